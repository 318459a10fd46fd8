/* numpy's .npy files. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct tensor t;
    struct error e = {""};
    if (npy_parse(&t, data, n, "fuzz", &e) != UTTER_OK) {
        if (!strstr(e.text, "fuzz")) abort();
        return 0;
    }
    const size_t count = tensor_count(&t);
    float first, last;
    if (count == 0) return 0;
    tensor_read_f32(&t, 0, 1, &first);
    tensor_read_f32(&t, count - 1, 1, &last);
    return 0;
}
