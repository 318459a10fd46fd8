/*
 * portfile.h - makes the ggml port's pair of GGUF files from a published folder, for tests: no such file is published
 * small enough to keep. Written from the specification (section 5) alone, apart from the reader that it tests.
 */
#ifndef TESTS_TOOLS_PORTFILE_H
#define TESTS_TOOLS_PORTFILE_H

#include "base/error.h"
#include "base/tensor.h"

/* type: f32, f16, q8_0, q5_0 or q4_0, used where the port's converters use it. A quantised file also has its 1 x 1
 * convolutions squeezed to two dimensions, as later versions do. */
utter_status portfile_write(const char *folder, const char *t3_path, const char *s3gen_path, enum dtype type,
                            struct error *e);

#endif
