/* GGUF files: ours, the ggml port's halves, others. The magic is put there, so that no run is lost on it. */
#include "model.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 4) return 0;
    uint8_t *copy = malloc(n); /* of the very size, so that a byte too far is seen */
    if (!copy) return 0;
    memcpy(copy, data, n);
    memcpy(copy, "GGUF", 4);
    fuzz_model(copy, n);
    free(copy);
    return 0;
}
