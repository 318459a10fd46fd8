/*
 * tensor.h - a named array as a checkpoint stores it: a view, never an owner.
 */
#ifndef BASE_TENSOR_H
#define BASE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* name, number (ours, stable within a build only), elements a block, bytes a block */
#define DTYPE_MAP(X)                                                                                                   \
    X(F32, "f32", 1, 4)                                                                                                \
    X(F16, "f16", 1, 2)                                                                                                \
    X(BF16, "bf16", 1, 2)                                                                                              \
    X(F64, "f64", 1, 8)                                                                                                \
    X(I8, "i8", 1, 1)                                                                                                  \
    X(U8, "u8", 1, 1)                                                                                                  \
    X(I16, "i16", 1, 2)                                                                                                \
    X(I32, "i32", 1, 4)                                                                                                \
    X(I64, "i64", 1, 8)                                                                                                \
    X(BOOL, "bool", 1, 1)                                                                                              \
    X(Q8_0, "q8_0", 32, 34)                                                                                            \
    X(Q5_0, "q5_0", 32, 22)                                                                                            \
    X(Q4_0, "q4_0", 32, 18)

enum dtype {
#define X(name, text, n, bytes) DTYPE_##name,
    DTYPE_MAP(X)
#undef X
        DTYPE_COUNT
};

const char *dtype_name(enum dtype t);
int dtype_block(enum dtype t);          /* elements a block */
size_t dtype_block_bytes(enum dtype t); /* bytes a block */
bool dtype_is_float(enum dtype t);      /* true for every type that can hold weights, quantised ones included */

/* How a weight matrix or convolution is laid out in memory. */
enum tensor_layout {
    LAYOUT_TORCH,      /* as the published checkpoints: Linear [out, in], Conv1d [out, in, k], ConvTranspose1d [in, out,
                          k], GPT-2's Conv1D [in, out] */
    LAYOUT_TAPS_OUT_IN /* as the kernels want it: [k, out, in] with k left out when it is 1; every kind of layer */
};

enum { TENSOR_MAX_DIMS = 4 };

struct tensor {
    const char *name; /* canonical name, owned by the checkpoint */
    enum dtype type;
    enum tensor_layout layout;
    int n_dims;
    int64_t shape[TENSOR_MAX_DIMS]; /* row-major: the last one is contiguous */
    const void *data;               /* not necessarily aligned to the element */
    size_t n_bytes;                 /* equals the product of shape in this type; checked by the reader */
    bool in_file_map; /* data lies in a mapped file: its pages may be dropped and come back by themselves */
};

size_t tensor_count(const struct tensor *t); /* number of elements */

/* Elements [first, first + n) as float, whatever the type (integers are converted). */
void tensor_read_f32(const struct tensor *t, size_t first, size_t n, float *out);

#endif
