/* What a fuzz target defines: one input, any bytes. Returns 0; a crash or a sanitizer report is the failure. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#endif
