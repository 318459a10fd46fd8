/*
 * names.h - from the names a file uses to the canonical ones. Private to this room.
 */
#ifndef CHECKPOINT_NAMES_H
#define CHECKPOINT_NAMES_H

#include "checkpoint/table.h"

/* Puts the network in front of the names of entries [first, n_entries) of one published file: "t3.", "s3gen.", "ve." or
 * "conds.", decided by what the tensors are called. Names of no known network stay as they are. */
utter_status names_add_network(struct checkpoint *ck, size_t first, struct error *e);

/* What a tensor is to its network, from its canonical name and published shape. */
enum layer_kind {
    LAYER_OTHER,         /* vectors, Linear [out, in], embeddings, two-dimensional and depth-wise convolutions */
    LAYER_GPT2,          /* GPT-2's Conv1D, [in, out] */
    LAYER_CONV1D,        /* [out, in, k] */
    LAYER_CONV_TRANSPOSE /* [in, out, k] */
};
enum layer_kind names_layer_kind(const char *name, int n_dims);

/* Our own GGUF: every layer whose published order differs is stored as [k][out][in]. */
enum { UTTER_GGUF_VERSION = 1 };
void names_mark_layouts(struct checkpoint *ck, size_t first);

#endif
