/*
 * npy.h - numpy's .npy files: one array each (NEP 1). Integers of 8 to 64 bits and floats of 32 or 64, little-endian, C order.
 *
 * Read as views of the mapped bytes; nothing in a header is trusted. Written whole or not at all.
 */
#ifndef CHECKPOINT_NPY_H
#define CHECKPOINT_NPY_H

#include "base/error.h"
#include "base/map.h"
#include "base/tensor.h"

struct npy {
    struct file_map map;
    struct tensor tensor; /* points into the map; its name is the path */
};

utter_status npy_open(struct npy *out, const char *path, struct error *e);
void npy_close(struct npy *n); /* a zeroed one is fine */

/* The same for bytes in memory, which `out` then points into. INPUT_UNREADABLE. */
utter_status npy_parse(struct tensor *out, const unsigned char *bytes, size_t n_bytes, const char *name,
                       struct error *e);

/* t: DTYPE_F32 or DTYPE_I32. OUTPUT_UNWRITABLE. */
utter_status npy_write(const char *path, const struct tensor *t, struct error *e);

#endif
