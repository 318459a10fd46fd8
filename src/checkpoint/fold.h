/*
 * fold.h - a layer's effective weight from what the files store: weight norm folded, convolutions reordered.
 *
 * One function for loading and for converting, so that both see the same numbers. Private to this room.
 */
#ifndef CHECKPOINT_FOLD_H
#define CHECKPOINT_FOLD_H

#include "base/cancel.h"
#include "checkpoint/names.h"

/* Where a layer's weight is: a plain tensor, or the magnitude g and direction v of a weight norm. */
struct layer {
    const struct tensor *weight; /* the plain tensor, or v */
    const struct tensor *g;      /* NULL when plain */
};

/* Finds X.weight, X.parametrizations.weight.original{0,1} or X.weight_{g,v}; weight is NULL when there is none. */
struct layer fold_find(const struct checkpoint *ck, const char *layer_name);

/* Taps, outputs and inputs of a stored weight, whatever its layout. */
struct layer_shape {
    int64_t k, out, in;
};
struct layer_shape fold_shape(const struct tensor *t, enum layer_kind kind);

/* Whether the stored order differs from [k][out][in]. */
bool fold_reorders(const struct tensor *t, enum layer_kind kind);

/* From the published order to [k][out][in], elements of 2 or 4 bytes. False when cancelled, which is looked for at every output. */
bool fold_reorder(void *out, const void *data, size_t element, struct layer_shape s, enum layer_kind kind,
                  struct cancel *cancel);

/* How many first indices a weight has, each with a norm of its own; a single value without dimensions is one. */
size_t fold_rows(const struct tensor *t);

/* The effective weight as floats in the order [k][out][in]; with a weight norm g v / |v|, the norm over all axes but the
 * first (g has one value for each first index of v: the caller checks). out: tensor_count(layer->weight) floats. False
 * when out of memory or cancelled. */
bool fold_f32(float *out, const struct layer *layer, enum layer_kind kind, struct cancel *cancel);

#endif
