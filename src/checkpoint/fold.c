#include "checkpoint/fold.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

struct layer fold_find(const struct checkpoint *ck, const char *layer_name)
{
    static const char *const forms[][2] = {
        {".weight", NULL},
        {".parametrizations.weight.original1", ".parametrizations.weight.original0"},
        {".weight_v", ".weight_g"},
    };
    char name[TABLE_NAME_ROOM];
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct layer layer = {0};
        snprintf(name, sizeof name, "%s%s", layer_name, forms[i][0]);
        if (!(layer.weight = checkpoint_find(ck, name))) continue;
        if (!forms[i][1]) return layer;
        snprintf(name, sizeof name, "%s%s", layer_name, forms[i][1]);
        if ((layer.g = checkpoint_find(ck, name))) return layer;
    }
    return (struct layer){0};
}

struct layer_shape fold_shape(const struct tensor *t, enum layer_kind kind)
{
    const int64_t *d = t->shape;
    const int n = t->n_dims;
    if (t->layout == LAYOUT_TAPS_OUT_IN)
        return n == 3 ? (struct layer_shape){d[0], d[1], d[2]} : (struct layer_shape){1, d[0], n > 1 ? d[1] : 1};
    const int64_t first = n > 0 ? d[0] : 1, second = n > 1 ? d[1] : 1;
    int64_t k = 1;
    for (int i = 2; i < n; i++) k *= d[i];
    if (kind == LAYER_GPT2 || kind == LAYER_CONV_TRANSPOSE) return (struct layer_shape){k, second, first};
    return (struct layer_shape){k, first, second};
}

size_t fold_rows(const struct tensor *t)
{
    return t->n_dims > 0 ? (size_t)t->shape[0] : 1;
}

bool fold_reorders(const struct tensor *t, enum layer_kind kind)
{
    const struct layer_shape s = fold_shape(t, kind);
    if (t->layout == LAYOUT_TAPS_OUT_IN || kind == LAYER_OTHER) return false;
    return kind == LAYER_CONV1D ? s.k > 1 : s.in > 1 && s.k * s.out > 1;
}

bool fold_reorder(void *out, const void *data, size_t element, struct layer_shape s, enum layer_kind kind,
                  struct cancel *cancel)
{
    /* Element (k, o, i) lies at k + o * step_out + i * step_in of the published order. Output by output, so that the cache lines of
     * one tap serve the others. */
    const size_t taps = (size_t)s.k, n_out = (size_t)s.out, n_in = (size_t)s.in;
    const bool in_first = kind == LAYER_GPT2 || kind == LAYER_CONV_TRANSPOSE;
    const size_t step_out = in_first ? taps : n_in * taps, step_in = in_first ? n_out * taps : taps;
    for (size_t o = 0; o < n_out; o++) {
        if (cancel_poll(cancel)) return false;
        for (size_t k = 0; k < taps; k++) {
            const char *from = (const char *)data + (k + o * step_out) * element;
            char *to = (char *)out + (k * n_out + o) * n_in * element;
            for (size_t i = 0; i < n_in; i++, to += element, from += step_in * element) {
                if (element == 4)
                    memcpy(to, from, 4);
                else
                    memcpy(to, from, 2);
            }
        }
    }
    return true;
}

/* v *= g / |v|, for one index of the first dimension. */
static void scale_row(float *v, size_t n, float magnitude)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)v[i] * v[i];
    const double scale = sum > 0 ? magnitude / sqrt(sum) : 0;
    for (size_t i = 0; i < n; i++) v[i] = (float)(scale * v[i]);
}

bool fold_f32(float *out, const struct layer *layer, enum layer_kind kind, struct cancel *cancel)
{
    const struct tensor *t = layer->weight;
    const size_t n = tensor_count(t), rows = fold_rows(t), width = n / rows;
    const bool reorders = fold_reorders(t, kind);
    float *plain = reorders ? mem_alloc(n * sizeof *plain) : out, g;
    bool done = plain != NULL;
    for (size_t r = 0; r < rows && (done = done && !cancel_poll(cancel)); r++) {
        tensor_read_f32(t, r * width, width, plain + r * width);
        if (!layer->g) continue;
        tensor_read_f32(layer->g, r, 1, &g);
        scale_row(plain + r * width, width, g);
    }
    if (!reorders) return done;
    done = done && fold_reorder(out, plain, sizeof *out, fold_shape(t, kind), kind, cancel);
    mem_free(plain);
    return done;
}
