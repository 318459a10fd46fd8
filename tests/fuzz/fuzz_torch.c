/*
 * torch files. An input that begins with PK is the zip file; any other is the pickle, put into an archive with a storage
 * of 64 bytes.
 */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "tools/bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n >= 2 && data[0] == 'P' && data[1] == 'K') {
        fuzz_model(data, n);
        return 0;
    }
    static const uint8_t numbers[64] = {0, 0, 128, 63};
    const struct zip_member members[] = {{"x/data.pkl", data, n}, {"x/data/0", numbers, sizeof numbers}};
    struct bytes file = {0};
    bytes_zip(&file, members, 2);
    file.data = realloc(file.data, file.n); /* of the very size, so that a byte too far is seen */
    if (file.data) fuzz_model(file.data, file.n);
    free(file.data);
    return 0;
}
