/* What the three model fuzzers share: a model file's bytes opened, and everything in it that opens looked at. */
#ifndef FUZZ_MODEL_H
#define FUZZ_MODEL_H

#include "fuzz.h"

/* Opens the bytes when they begin like this format: every tensor's ends are read, layers folded, the whole
 * converted and opened again, tokenizer and voice built. */
void fuzz_model(const uint8_t *data, size_t n);

#endif
