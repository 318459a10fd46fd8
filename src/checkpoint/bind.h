/*
 * bind.h - from a checkpoint's tensors to a device's weights, by exact name and exact shape.
 *
 * Used by each network's loader. The first failure latches: later calls return empty things, and the loader tests
 * binder_status once at its end. Messages name the file, the tensor, the shape expected and the shape found. A network
 * that reads its sizes from the tensors asks bind_shape first.
 *
 * Names are printf formats: bind_vector(b, n, "t3.tfmr.h.%d.ln_1.weight", i).
 */
#ifndef CHECKPOINT_BIND_H
#define CHECKPOINT_BIND_H

#include "checkpoint/checkpoint.h"
#include "device/device.h"

struct binder {
    const struct checkpoint *checkpoint;
    struct device *device;
    struct error *error;
    struct cancel *cancel; /* optional: loading stops at the next tensor */
    utter_status status;
    struct binder_owned *owned; /* folded and reordered copies; they and the weights die in binder_free_owned */
};

/* Everything a binder made lives until binder_free_owned(&owned), which the model calls when it closes. */
void binder_free_owned(struct binder_owned **owned);
utter_status binder_status(const struct binder *b);

bool bind_has(const struct binder *b, const char *name_format, ...) __attribute__((format(printf, 2, 3)));
/* Dimension `dim` of a tensor that must exist; -1 after a failure. In LAYOUT_TORCH terms of its kind whatever the layout. */
int bind_dim(struct binder *b, int dim, const char *name_format, ...) __attribute__((format(printf, 3, 4)));
/* How many i = 0, 1, ... exist of a name with one %d. */
int bind_count(const struct binder *b, const char *name_format_with_one_d);

struct array bind_vector(struct binder *b, int n, const char *name_format, ...) __attribute__((format(printf, 3, 4)));
struct array bind_matrix(struct binder *b, int rows, int cols, const char *name_format, ...)
    __attribute__((format(printf, 4, 5)));

/* `name` is the layer: ".weight" and ".bias" are appended (weight-normalised layers are folded: g v / |v|, norm over all
 * axes but the first). A bias is used when present; bind_linear etc. with BIAS_REQUIRED fail without one. */
enum bind_bias { BIAS_NONE, BIAS_REQUIRED, BIAS_OPTIONAL };
struct weight *bind_linear(struct binder *b, int out, int in, enum bind_bias bias, const char *name_format, ...)
    __attribute__((format(printf, 5, 6)));
struct weight *bind_linear_gpt2(struct binder *b, int out, int in, enum bind_bias bias, const char *name_format, ...)
    __attribute__((format(printf, 5, 6)));
struct weight *bind_conv1d(struct binder *b, int out, int in, int k, enum bind_bias bias, const char *name_format, ...)
    __attribute__((format(printf, 6, 7)));
struct weight *bind_conv_transpose1d(struct binder *b, int in, int out, int k, enum bind_bias bias,
                                     const char *name_format, ...) __attribute__((format(printf, 6, 7)));
struct weight *bind_embedding(struct binder *b, int entries, int cols, const char *name_format, ...)
    __attribute__((format(printf, 4, 5)));

/* Batch norm in eval mode as scale and shift rows [1][n] each: gamma / sqrt(var + eps), beta - mean * scale. Reads weight,
 * bias, running_mean, running_var (affine = false: 1 and 0), or the port's folded ".s" and ".b". */
void bind_batch_norm(struct binder *b, struct array *scale, struct array *shift, int n, float eps, bool affine,
                     const char *name_format, ...) __attribute__((format(printf, 7, 8)));

/* ---- folding at load: networks that merge a batch norm or another constant into a layer ---- */

/* A linear layer whose tensor has a name of its own (an LSTM's); bias_name: its bias vector, or NULL for none. */
struct weight *bind_matrix_weight(struct binder *b, int out, int in, const char *bias_name, const char *name_format,
                                  ...) __attribute__((format(printf, 5, 6)));

/* A layer's effective weight as floats on the host, the caller's to mem_free: [k][out][in] of a published shape [out, in, k],
 * the stored order of other numbers of dimensions. NULL after a failure. */
float *bind_values(struct binder *b, int n_dims, const int64_t *published_shape, const char *name_format, ...)
    __attribute__((format(printf, 4, 5)));

/* bind_batch_norm on the host: n floats each. False after a failure. */
bool bind_batch_norm_values(struct binder *b, float *scale, float *shift, int n, float eps, bool affine,
                            const char *name_format, ...) __attribute__((format(printf, 7, 8)));

/* A weight from values [k][out][in] of mem_alloc_aligned, which the binder takes over even when it fails, and a bias of
 * `out` floats, which is copied (NULL for none). */
struct weight *bind_computed(struct binder *b, enum weight_kind kind, int k, int out, int in, float *values,
                             const float *bias);

/* Latches OUT_OF_MEMORY for the tensor. */
void bind_fail_memory(struct binder *b, const char *name);

#endif
