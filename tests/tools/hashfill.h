/*
 * hashfill.h - weights and inputs that are a rule and not a file.
 *
 * The reference values in tests/golden were made with every tensor filled by this rule, so a checkpoint of any size, the
 * published ones included, is made from a list of names (spec-*.json) and nothing has to be downloaded.
 *
 * A stream is the 64-bit FNV-1a hash of "<file>/<tensor name>", the state of a SplitMix64 generator. Draw i gives
 * u_i = (z_i >> 40) / 2^24 in [0, 1). Element i (row-major) is float(b + a (2 u_i - 1)), computed in double and rounded
 * once; integer tensors are zero.
 */
#ifndef TESTS_TOOLS_HASHFILL_H
#define TESTS_TOOLS_HASHFILL_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* out[i] = element first + i of the stream: uniform in b +- a. */
void hashfill_draw(const char *stream, size_t first, size_t n, double a, double b, float *out);
/* Standard normal: Box-Muller over the streams "<stream>#u1" and "<stream>#u2". */
void hashfill_normal(const char *stream, size_t n, float *out);
/* Whole numbers in [low, high). */
void hashfill_integers(const char *stream, size_t n, int low, int high, int32_t *out);

/* Writes the safetensors file that a list describes: {"file": tag, "tensors": [{name, shape, dtype, a, b}, ...]}. Any
 * size: it is made in pieces. */
utter_status hashfill_checkpoint(const char *spec_path, const char *out_path, struct error *e);

/* Makes a temporary folder in the published layout: "<tag>.safetensors" for every tag of the NULL-terminated list, from
 * "<spec_folder>/spec-<tag>.json". Its path is written to `folder`; hashfill_remove_folder deletes folder and files. */
utter_status hashfill_folder(char folder[static 64], const char *spec_folder, const char *const *tags, struct error *e);
void hashfill_remove_folder(const char *folder);

#endif
