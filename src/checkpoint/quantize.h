/*
 * quantize.h - floats into the types that weights are stored in. Reading back is tensor_read_f32's job.
 */
#ifndef CHECKPOINT_QUANTIZE_H
#define CHECKPOINT_QUANTIZE_H

#include "base/tensor.h"

/* Whether quantize_f32 writes this type: f32, f16, bf16, q8_0, q4_0. */
bool quantize_writes(enum dtype t);

/* n values, a multiple of the type's block. Values must be finite. Within a block of 32 the scale is rounded to 16 bits
 * first and the numbers are chosen for the rounded scale: q8_0 errs at most half a step of the largest value / 127; q4_0
 * takes the scale of least squared error among a few. */
void quantize_f32(enum dtype t, const float *x, size_t n, void *out);

#endif
