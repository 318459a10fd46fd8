#include "checkpoint/bind.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "checkpoint/fold.h"

/* ---- what a binder made ---- */

struct binder_owned {
    struct binder_owned *next;
    struct weight *weight;
    void *copy; /* the folded or reordered numbers that the weight may use in place */
};

void binder_free_owned(struct binder_owned **owned)
{
    while (*owned) {
        struct binder_owned *o = *owned;
        *owned = o->next;
        weight_destroy(&o->weight);
        mem_free(o->copy);
        mem_free(o);
    }
}

utter_status binder_status(const struct binder *b)
{
    return b->status;
}

/* ---- failures ---- */

struct name {
    char text[TABLE_NAME_ROOM];
};

#define NAME_FROM_ARGS(name, format)                                                                                   \
    struct name name;                                                                                                  \
    do {                                                                                                               \
        va_list args;                                                                                                  \
        va_start(args, format);                                                                                        \
        vsnprintf(name.text, sizeof name.text, format, args);                                                          \
        va_end(args);                                                                                                  \
    } while (0)

static struct name name_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
static struct name name_of(const char *format, ...)
{
    NAME_FROM_ARGS(name, format);
    return name;
}

/* False when nothing more should be bound: an earlier failure, or a cancel. */
static bool ready(struct binder *b)
{
    if (b->status == UTTER_OK && cancel_poll(b->cancel))
        b->status = error_set(b->error, UTTER_CANCELLED, "%s: cancelled while loading", checkpoint_path(b->checkpoint));
    return b->status == UTTER_OK;
}

static void fail_missing(struct binder *b, const char *name)
{
    const char *hint = checkpoint_hint(b->checkpoint);
    b->status = error_set(b->error, UTTER_MODEL_DAMAGED, "%s: tensor %s is missing%s%s",
                          checkpoint_file_of(b->checkpoint, name), name, hint ? ": " : "", hint ? hint : "");
}

static void fail_shape(struct binder *b, const struct tensor *t, int n_dims, const int64_t *expected)
{
    char want[SHAPE_TEXT], have[SHAPE_TEXT];
    b->status = error_set(b->error, UTTER_MODEL_DAMAGED, "%s: tensor %s: expected shape %s, found %s%s",
                          checkpoint_tensor_file(b->checkpoint, t), t->name, shape_text(want, n_dims, expected),
                          shape_text(have, t->n_dims, t->shape),
                          t->layout == LAYOUT_TAPS_OUT_IN ? " (stored as taps, out, in)" : "");
}

void bind_fail_memory(struct binder *b, const char *name)
{
    b->status =
        error_set(b->error, UTTER_OUT_OF_MEMORY, "%s: no memory for tensor %s", checkpoint_path(b->checkpoint), name);
}

static bool is_float(struct binder *b, const struct tensor *t)
{
    if (!dtype_is_float(t->type))
        b->status = error_set(b->error, UTTER_MODEL_DAMAGED, "%s: tensor %s: expected floating point, found %s",
                              checkpoint_tensor_file(b->checkpoint, t), t->name, dtype_name(t->type));
    return b->status == UTTER_OK;
}

/* Equal shapes, dimensions of 1 aside: files differ in whether they keep them. */
static bool same_shape(const struct tensor *t, int n_dims, const int64_t *expected)
{
    int i = 0, j = 0;
    for (;;) {
        while (i < t->n_dims && t->shape[i] == 1) i++;
        while (j < n_dims && expected[j] == 1) j++;
        if (i == t->n_dims || j == n_dims) return i == t->n_dims && j == n_dims;
        if (t->shape[i++] != expected[j++]) return false;
    }
}

/* ---- asking ---- */

bool bind_has(const struct binder *b, const char *name_format, ...)
{
    NAME_FROM_ARGS(name, name_format);
    return checkpoint_find(b->checkpoint, name.text) != NULL;
}

int bind_count(const struct binder *b, const char *name_format_with_one_d)
{
    struct name name;
    for (int i = 0;; i++) {
        snprintf(name.text, sizeof name.text, name_format_with_one_d, i);
        if (!checkpoint_find(b->checkpoint, name.text)) return i;
    }
}

/* "X.weight" of a weight-normalised layer is its direction tensor. */
static const struct tensor *find_weight(const struct binder *b, const char *name)
{
    const struct tensor *t = checkpoint_find(b->checkpoint, name);
    static const char suffix[] = ".weight";
    const size_t n = strlen(name), m = sizeof suffix - 1;
    if (t || n < m || strcmp(name + n - m, suffix) != 0) return t;
    const struct name layer = name_of("%.*s", (int)(n - m), name);
    return fold_find(b->checkpoint, layer.text).weight;
}

int bind_dim(struct binder *b, int dim, const char *name_format, ...)
{
    NAME_FROM_ARGS(name, name_format);
    if (!ready(b)) return -1;
    const struct tensor *t = find_weight(b, name.text);
    if (!t) {
        fail_missing(b, name.text);
        return -1;
    }
    int64_t shape[TENSOR_MAX_DIMS] = {1, 1, 1, 1};
    int n_dims = t->n_dims;
    for (int i = 0; i < n_dims; i++) shape[i] = t->shape[i];
    if (t->layout == LAYOUT_TAPS_OUT_IN) {
        const enum layer_kind kind = names_layer_kind(name.text, n_dims);
        const struct layer_shape s = fold_shape(t, kind);
        const bool in_first = kind == LAYER_GPT2 || kind == LAYER_CONV_TRANSPOSE;
        shape[0] = in_first ? s.in : s.out, shape[1] = in_first ? s.out : s.in, shape[2] = s.k;
        n_dims = 3;
    }
    if (dim < 0 || dim >= TENSOR_MAX_DIMS || shape[dim] > INT_MAX || dim >= (n_dims > 3 ? n_dims : 3)) {
        b->status = error_set(b->error, UTTER_MODEL_DAMAGED, "%s: tensor %s: dimension %d is missing or too large",
                              checkpoint_tensor_file(b->checkpoint, t), t->name, dim);
        return -1;
    }
    return (int)shape[dim];
}

/* ---- parameters ---- */

static struct array bind_param(struct binder *b, const char *name, int n_dims, const int64_t *shape)
{
    struct array a = {0};
    if (!ready(b)) return a;
    const struct tensor *t = checkpoint_find(b->checkpoint, name);
    if (!t)
        fail_missing(b, name);
    else if (!same_shape(t, n_dims, shape))
        fail_shape(b, t, n_dims, shape);
    else if (is_float(b, t)) {
        struct tensor view = *t; /* the asked shape, so that the array has its rows and columns */
        view.n_dims = n_dims;
        for (int i = 0; i < n_dims; i++) view.shape[i] = shape[i];
        b->status = device_param(&a, b->device, &view, b->error);
    }
    return a;
}

struct array bind_vector(struct binder *b, int n, const char *name_format, ...)
{
    NAME_FROM_ARGS(name, name_format);
    return bind_param(b, name.text, 1, (const int64_t[]){n});
}

struct array bind_matrix(struct binder *b, int rows, int cols, const char *name_format, ...)
{
    NAME_FROM_ARGS(name, name_format);
    return bind_param(b, name.text, 2, (const int64_t[]){rows, cols});
}

/* ---- batch norm ---- */

/* One of the four vectors, or the constant it has without affine parameters. */
static bool read_norm_vector(struct binder *b, float *out, int n, const char *layer, const char *leaf)
{
    const struct name name = name_of("%s.%s", layer, leaf);
    const struct tensor *t = checkpoint_find(b->checkpoint, name.text);
    if (!t)
        fail_missing(b, name.text);
    else if (!same_shape(t, 1, (const int64_t[]){n}))
        fail_shape(b, t, 1, (const int64_t[]){n});
    else if (is_float(b, t))
        tensor_read_f32(t, 0, (size_t)n, out);
    return b->status == UTTER_OK;
}

static void fold_batch_norm(struct binder *b, float *v, int n, float eps, bool affine, const char *layer)
{
    float *gamma = v, *beta = v + n, *mean = v + 2 * n, *variance = v + 3 * n;
    for (int i = 0; i < n; i++) gamma[i] = 1, beta[i] = 0;
    if (affine && !(read_norm_vector(b, gamma, n, layer, "weight") && read_norm_vector(b, beta, n, layer, "bias")))
        return;
    if (!read_norm_vector(b, mean, n, layer, "running_mean") || !read_norm_vector(b, variance, n, layer, "running_var"))
        return;
    for (int i = 0; i < n; i++) {
        gamma[i] = (float)(gamma[i] / sqrt((double)variance[i] + eps));
        beta[i] = beta[i] - mean[i] * gamma[i];
    }
}

static bool read_batch_norm(struct binder *b, float *v, int n, float eps, bool affine, const char *layer)
{
    const struct name folded = name_of("%s.s", layer);
    if (checkpoint_find(b->checkpoint, folded.text))
        (void)(read_norm_vector(b, v, n, layer, "s") && read_norm_vector(b, v + n, n, layer, "b"));
    else
        fold_batch_norm(b, v, n, eps, affine, layer);
    return b->status == UTTER_OK;
}

void bind_batch_norm(struct binder *b, struct array *scale, struct array *shift, int n, float eps, bool affine,
                     const char *name_format, ...)
{
    NAME_FROM_ARGS(name, name_format);
    *scale = *shift = (struct array){0};
    if (!ready(b)) return;
    float *v = mem_calloc((size_t)n, 4 * sizeof *v);
    if (!v)
        bind_fail_memory(b, name.text);
    else
        read_batch_norm(b, v, n, eps, affine, name.text);
    if (b->status == UTTER_OK) b->status = device_param_copy(scale, b->device, 1, n, v, b->error);
    if (b->status == UTTER_OK) b->status = device_param_copy(shift, b->device, 1, n, v + n, b->error);
    mem_free(v);
}

bool bind_batch_norm_values(struct binder *b, float *scale, float *shift, int n, float eps, bool affine,
                            const char *name_format, ...)
{
    NAME_FROM_ARGS(name, name_format);
    if (!ready(b)) return false;
    float *v = mem_calloc((size_t)n, 4 * sizeof *v);
    if (!v)
        bind_fail_memory(b, name.text);
    else if (read_batch_norm(b, v, n, eps, affine, name.text)) {
        memcpy(scale, v, (size_t)n * sizeof *v);
        memcpy(shift, v + n, (size_t)n * sizeof *v);
    }
    mem_free(v);
    return b->status == UTTER_OK;
}

/* ---- weights ---- */

struct request {
    enum weight_kind kind;
    enum layer_kind layer_kind;
    int n_dims;
    int64_t shape[TENSOR_MAX_DIMS]; /* as published */
    enum bind_bias bias;
    const char *layer;
};

/* Whether the tensor is what was asked for; *view is then the tensor in exactly the asked shape. */
static bool fits(struct binder *b, struct tensor *view, const struct tensor *t, const struct request *r)
{
    const bool in_first = r->layer_kind == LAYER_GPT2 || r->layer_kind == LAYER_CONV_TRANSPOSE;
    const int64_t taps_out_in[3] = {r->n_dims == 3 ? r->shape[2] : 1, r->shape[in_first], r->shape[!in_first]};
    const bool published = t->layout == LAYOUT_TORCH, one_tap = taps_out_in[0] == 1;
    const int64_t *shape = published ? r->shape : one_tap ? taps_out_in + 1 : taps_out_in;
    *view = *t;
    view->n_dims = published ? r->n_dims : one_tap ? 2 : 3;
    for (int i = 0; i < view->n_dims; i++) view->shape[i] = shape[i];
    if (!same_shape(t, view->n_dims, shape)) fail_shape(b, t, view->n_dims, shape);
    return b->status == UTTER_OK && is_float(b, t);
}

static bool fits_norm(struct binder *b, const struct layer *layer)
{
    const int64_t n = layer->weight->shape[0];
    if (layer->g && !same_shape(layer->g, 1, &n)) fail_shape(b, layer->g, 1, &n);
    return b->status == UTTER_OK && (!layer->g || is_float(b, layer->g));
}

/* Makes *t what the device can use in place: the mapped tensor itself, or *copy, reordered and folded. False: no memory, or
 * cancelled. */
static bool prepare(struct tensor *t, void **copy, const struct layer *layer, const struct request *r,
                    struct cancel *cancel)
{
    /* GPT-2's matrices are used as they lie: the device reads them transposed. */
    const bool reorders = fold_reorders(t, r->layer_kind) && r->layer_kind != LAYER_GPT2;
    if (!layer->g && !reorders && t->type != DTYPE_F64) return true;
    const bool narrow = t->type == DTYPE_F16 || t->type == DTYPE_BF16;
    const bool only_moves = !layer->g && (narrow || t->type == DTYPE_F32);
    const size_t n = tensor_count(t), element = only_moves && narrow ? 2 : 4;
    const struct layer_shape s = fold_shape(t, r->layer_kind);
    if (!(*copy = mem_alloc_aligned(n * element))) return false;
    if (!(only_moves ? fold_reorder(*copy, t->data, element, s, r->layer_kind, cancel)
                     : fold_f32(*copy, layer, r->layer_kind, cancel)))
        return false;
    if (!only_moves) t->type = DTYPE_F32;
    t->data = *copy;
    t->n_bytes = n * element;
    t->layout = LAYOUT_TAPS_OUT_IN;
    t->n_dims = s.k == 1 ? 2 : 3;
    const int64_t shape[3] = {s.k, s.out, s.in};
    for (int i = 0; i < t->n_dims; i++) t->shape[i] = shape[i + 3 - t->n_dims];
    return true;
}

/* What was folded or reordered is not read again. Given back here and not when the model is closed, it costs no cancel some milliseconds. */
static void drop_source(const struct binder *b, const struct tensor *t)
{
    if (checkpoint_maps(b->checkpoint, t->data, t->n_bytes)) file_map_drop(t->data, t->n_bytes);
}

static struct array bind_bias_vector(struct binder *b, const struct request *r)
{
    const int64_t n = r->shape[r->layer_kind == LAYER_GPT2 || r->layer_kind == LAYER_CONV_TRANSPOSE];
    const struct name name = name_of("%s.bias", r->layer);
    if (r->bias == BIAS_NONE || (r->bias == BIAS_OPTIONAL && !checkpoint_find(b->checkpoint, name.text)))
        return (struct array){0};
    return bind_param(b, name.text, 1, &n);
}

/* The device weight of t, kept with the copy that it may use in place until binder_free_owned. */
static struct weight *own_weight(struct binder *b, enum weight_kind kind, const struct tensor *t, struct array bias,
                                 void *copy)
{
    struct binder_owned *o = mem_calloc(1, sizeof *o);
    if (!o) {
        mem_free(copy);
        bind_fail_memory(b, t->name);
        return NULL;
    }
    *o = (struct binder_owned){b->owned, NULL, copy};
    b->owned = o;
    b->status = weight_create(&o->weight, b->device, kind, t, bias, b->error);
    return b->status == UTTER_OK ? o->weight : NULL;
}

static struct weight *bind_weight(struct binder *b, const struct request *r)
{
    const struct name name = name_of("%s.weight", r->layer);
    if (!ready(b)) return NULL;
    struct layer layer = fold_find(b->checkpoint, r->layer);
    if (!layer.weight) {
        fail_missing(b, name.text);
        return NULL;
    }
    struct tensor view, t;
    if (!fits(b, &view, layer.weight, r)) return NULL;
    layer.weight = &view;
    if (!fits_norm(b, &layer)) return NULL;
    const struct array bias = bind_bias_vector(b, r);
    if (b->status != UTTER_OK) return NULL;
    t = view;
    void *copy = NULL;
    if (!prepare(&t, &copy, &layer, r, b->cancel)) {
        mem_free(copy);
        if (ready(b)) bind_fail_memory(b, name.text);
        return NULL;
    }
    if (copy) drop_source(b, &view);
    t.in_file_map = checkpoint_maps(b->checkpoint, t.data, t.n_bytes);
    return own_weight(b, r->kind, &t, bias, copy);
}

struct weight *bind_linear(struct binder *b, int out, int in, enum bind_bias bias, const char *name_format, ...)
{
    NAME_FROM_ARGS(name, name_format);
    return bind_weight(b, &(struct request){WEIGHT_LINEAR, LAYER_OTHER, 2, {out, in}, bias, name.text});
}

struct weight *bind_linear_gpt2(struct binder *b, int out, int in, enum bind_bias bias, const char *name_format, ...)
{
    NAME_FROM_ARGS(name, name_format);
    return bind_weight(b, &(struct request){WEIGHT_LINEAR_GPT2, LAYER_GPT2, 2, {in, out}, bias, name.text});
}

struct weight *bind_conv1d(struct binder *b, int out, int in, int k, enum bind_bias bias, const char *name_format, ...)
{
    NAME_FROM_ARGS(name, name_format);
    return bind_weight(b, &(struct request){WEIGHT_CONV1D, LAYER_CONV1D, 3, {out, in, k}, bias, name.text});
}

struct weight *bind_conv_transpose1d(struct binder *b, int in, int out, int k, enum bind_bias bias,
                                     const char *name_format, ...)
{
    NAME_FROM_ARGS(name, name_format);
    return bind_weight(
        b, &(struct request){WEIGHT_CONV_TRANSPOSE, LAYER_CONV_TRANSPOSE, 3, {in, out, k}, bias, name.text});
}

struct weight *bind_embedding(struct binder *b, int entries, int cols, const char *name_format, ...)
{
    NAME_FROM_ARGS(name, name_format);
    return bind_weight(b, &(struct request){WEIGHT_EMBEDDING, LAYER_OTHER, 2, {entries, cols}, BIAS_NONE, name.text});
}

/* ---- folding at load ---- */

struct weight *bind_matrix_weight(struct binder *b, int out, int in, const char *bias_name, const char *name_format,
                                  ...)
{
    NAME_FROM_ARGS(name, name_format);
    if (!ready(b)) return NULL;
    struct array bias = {0};
    struct tensor view = {0};
    const struct request r = {WEIGHT_LINEAR, LAYER_OTHER, 2, {out, in}, BIAS_NONE, name.text};
    const struct tensor *t = checkpoint_find(b->checkpoint, name.text);
    if (!t)
        fail_missing(b, name.text);
    else if (fits(b, &view, t, &r) && bias_name)
        bias = bind_vector(b, out, "%s", bias_name);
    if (b->status != UTTER_OK) return NULL;
    return own_weight(b, WEIGHT_LINEAR, &view, bias, NULL);
}

float *bind_values(struct binder *b, int n_dims, const int64_t *published_shape, const char *name_format, ...)
{
    NAME_FROM_ARGS(name, name_format);
    if (!ready(b)) return NULL;
    struct request r = {WEIGHT_CONV1D, n_dims == 3 ? LAYER_CONV1D : LAYER_OTHER, n_dims, {0}, BIAS_NONE, name.text};
    for (int i = 0; i < n_dims; i++) r.shape[i] = published_shape[i];
    struct layer layer = fold_find(b->checkpoint, name.text);
    struct tensor view;
    if (!layer.weight) {
        const struct name weight = name_of("%s.weight", name.text);
        fail_missing(b, weight.text);
        return NULL;
    }
    if (!fits(b, &view, layer.weight, &r)) return NULL;
    layer.weight = &view;
    if (!fits_norm(b, &layer)) return NULL;
    float *values = mem_alloc_aligned(tensor_count(&view) * sizeof *values);
    if (!values || !fold_f32(values, &layer, r.layer_kind, b->cancel)) {
        mem_free(values);
        if (ready(b)) bind_fail_memory(b, name.text);
        return NULL;
    }
    drop_source(b, &view);
    return values;
}

struct weight *bind_computed(struct binder *b, enum weight_kind kind, int k, int out, int in, float *values,
                             const float *bias)
{
    struct array bias_row = {0};
    const size_t n = (size_t)k * (size_t)out * (size_t)in;
    const struct tensor t = {.name = "computed",
                             .type = DTYPE_F32,
                             .layout = LAYOUT_TAPS_OUT_IN,
                             .n_dims = 3,
                             .shape = {k, out, in},
                             .data = values,
                             .n_bytes = n * sizeof *values};
    if (ready(b) && bias) b->status = device_param_copy(&bias_row, b->device, 1, out, bias, b->error);
    if (b->status != UTTER_OK) {
        mem_free(values);
        return NULL;
    }
    return own_weight(b, kind, &t, bias_row, values);
}
