/*
 * safetensors files: JSON, a byte 0xFF, data. The length of the JSON is put in front of it, except when the input begins
 * with 0xFF: then the rest is the file.
 */
#include "model.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0) return 0;
    if (data[0] == 0xFF) {
        fuzz_model(data + 1, n - 1);
        return 0;
    }
    const uint8_t *end = memchr(data, 0xFF, n);
    const uint64_t n_json = end ? (uint64_t)(end - data) : n;
    const size_t n_data = n - (size_t)n_json - (end ? 1 : 0);
    uint8_t *file = malloc(8 + (size_t)n_json + n_data);
    if (!file) return 0;
    memcpy(file, &n_json, 8);
    memcpy(file + 8, data, (size_t)n_json);
    if (n_data) memcpy(file + 8 + n_json, end + 1, n_data);
    fuzz_model(file, 8 + (size_t)n_json + n_data);
    free(file);
    return 0;
}
