/* Weights: the mapped bytes as they are where the kernels can read them, and a reordered copy where they cannot. */
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "device/cpu/cpu.h"

static bool is_stored_type(enum dtype t)
{
    return t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16 || t == DTYPE_Q8_0 || t == DTYPE_Q5_0 || t == DTYPE_Q4_0;
}

/* [out, in, k] to [k][out][in], or [in, out, k] to the same. */
struct reorder {
    const unsigned char *from;
    unsigned char *to;
    size_t rows, cols, k, row_step, col_step, element; /* steps of `from` in elements, for one out and one in */
};

static void reorder_row(void *arg, int row, int worker)
{
    (void)worker;
    const struct reorder *r = arg;
    for (size_t tap = 0; tap < r->k; tap++) {
        unsigned char *to = r->to + (tap * r->rows + (size_t)row) * r->cols * r->element;
        const unsigned char *from = r->from + ((size_t)row * r->row_step + tap) * r->element;
        for (size_t c = 0; c < r->cols; c++)
            memcpy(to + c * r->element, from + c * r->col_step * r->element, r->element);
    }
}

static utter_status reorder_taps(struct weight *w, const struct tensor *t, bool in_first, struct error *e)
{
    const size_t out = (size_t)w->out, in = (size_t)w->in, k = (size_t)w->taps, element = dtype_block_bytes(w->type);
    size_t bytes;
    if (!size_mul(out * in, k * element, &bytes) || !(w->owned = mem_alloc_aligned(bytes)))
        return error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory to reorder %d x %d x %d weights", t->name, w->out,
                         w->in, w->taps);
    struct reorder r = {.from = t->data,
                        .to = w->owned,
                        .rows = out,
                        .cols = in,
                        .k = k,
                        .element = element,
                        .row_step = in_first ? k : in * k,
                        .col_step = in_first ? out * k : k};
    pool_run(w->device->pool, NULL, w->out, reorder_row, &r);
    w->data = w->owned;
    w->in_file_map = false;
    return UTTER_OK;
}

/* Types that no kernel reads (f64, integers) become f32; so do quantised [in, out] matrices, whose blocks run the wrong way. */
static utter_status convert_to_f32(struct weight *w, const struct tensor *t, struct error *e)
{
    const size_t n = tensor_count(t);
    size_t bytes;
    if (!size_mul(n, sizeof(float), &bytes) || !(w->owned = mem_alloc_aligned(bytes)))
        return error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory to convert %zu weights", t->name, n);
    tensor_read_f32(t, 0, n, w->owned);
    w->type = DTYPE_F32;
    w->data = w->owned;
    w->in_file_map = false;
    return UTTER_OK;
}

/* The sizes of the kind's published shape, or of [k, out, in]; unused trailing dimensions are 1. */
static bool read_shape(struct weight *w, enum weight_kind kind, const struct tensor *t)
{
    int64_t d[3] = {1, 1, 1};
    if (t->n_dims < 2 || t->n_dims > 3) return false;
    const bool taps_first = t->layout == LAYOUT_TAPS_OUT_IN;
    for (int i = 0; i < t->n_dims; i++) {
        if (t->shape[i] < 1 || t->shape[i] > INT32_MAX) return false;
        d[taps_first ? 3 - t->n_dims + i : i] = t->shape[i];
    }
    const bool in_first = kind == WEIGHT_LINEAR_GPT2 || kind == WEIGHT_CONV_TRANSPOSE;
    w->taps = (int)d[taps_first ? 0 : 2];
    w->out = (int)d[taps_first ? 1 : in_first ? 1 : 0];
    w->in = (int)d[taps_first ? 2 : in_first ? 0 : 1];
    w->in_out = !taps_first && in_first;
    return true;
}

utter_status weight_create(struct weight **out, struct device *d, enum weight_kind kind, const struct tensor *t,
                           struct array bias, struct error *e)
{
    *out = NULL;
    struct weight *w = mem_calloc(1, sizeof *w);
    if (!w) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a weight");
    *w = (struct weight){
        .device = d, .type = t->type, .data = t->data, .in_file_map = t->in_file_map, .bias = bias.data};
    utter_status status = UTTER_OK;
    if (!read_shape(w, kind, t))
        status = error_set(e, UTTER_MODEL_DAMAGED, "%s: %d dimensions are no weight matrix", t->name, t->n_dims);
    const bool blocks = dtype_block(t->type) > 1;
    const int last = w->in_out ? w->out : w->in; /* contiguous, once a single tap at the end is left out */
    if (status == UTTER_OK && blocks &&
        (last % dtype_block(t->type) != 0 || (t->layout == LAYOUT_TORCH && w->taps > 1)))
        status = error_set(e, UTTER_MODEL_DAMAGED, "%s: %s blocks do not fit rows of %d", t->name, dtype_name(t->type),
                           last);
    if (status == UTTER_OK && (!is_stored_type(t->type) || (blocks && w->in_out))) {
        status = convert_to_f32(w, t, e);
    }
    if (status == UTTER_OK && t->layout == LAYOUT_TORCH && w->taps > 1) {
        void *converted = w->owned;
        struct tensor source = *t;
        source.data = w->data;
        status = reorder_taps(w, &source, w->in_out, e);
        w->in_out = false;
        mem_free(converted);
    }
    if (status != UTTER_OK) {
        weight_destroy(&w);
        return status;
    }
    w->row_bytes = (size_t)(w->in_out ? w->out : w->in) / (size_t)dtype_block(w->type) * dtype_block_bytes(w->type);
    *out = w;
    return UTTER_OK;
}

void weight_destroy(struct weight **w)
{
    if (!*w) return;
    mem_free((*w)->owned);
    mem_free((*w)->resident);
    mem_free(*w);
    *w = NULL;
}

int weight_in(const struct weight *w)
{
    return w->in;
}
int weight_out(const struct weight *w)
{
    return w->out;
}
int weight_taps(const struct weight *w)
{
    return w->taps;
}
enum dtype weight_type(const struct weight *w)
{
    return w->type;
}

/* ---- weights in huge pages ------------------------------------------------------------------------------------------ */

#define RESIDENT_SPACE ((size_t)16 << 30) /* address space only */
enum { MOVE_TILE = 256 << 10 };

struct moving {
    const struct weight *from;
    group_fn *group;
    unsigned char *to;
    size_t n_bytes;
    int n, n_tile; /* units of group(), in all and in a tile */
};

static void group_tile(void *arg, int tile, int worker)
{
    (void)worker;
    const struct moving *m = arg;
    const int first = tile * m->n_tile, left = m->n - first;
    m->group(m->from, first, left < m->n_tile ? left : m->n_tile, m->to);
}

static void copy_tile(void *arg, int tile, int worker)
{
    (void)worker;
    const struct moving *m = arg;
    const size_t first = (size_t)tile * MOVE_TILE, left = m->n_bytes - first;
    memcpy(m->to + first, m->from->data + first, left < MOVE_TILE ? left : MOVE_TILE);
}

static size_t stored_bytes(const struct weight *w)
{
    return (size_t)w->taps * (size_t)(w->in_out ? w->in : w->out) * w->row_bytes;
}

/* As the level's kernels want it, without data. */
static struct weight resident_form(const struct weight *w)
{
    struct weight r = {.device = w->device,
                       .type = w->type,
                       .in_out = w->in_out,
                       .in = w->in,
                       .out = w->out,
                       .taps = w->taps,
                       .row_bytes = w->row_bytes,
                       .bias = w->bias};
    if (!w->device->kernels.group || w->taps > 1 || w->out < w->device->kernels.lanes) return r;
    if (w->type == DTYPE_Q5_0) r.type = DTYPE_Q8_0;
    r.grouped = true;
    r.in_out = false;
    r.row_bytes = (size_t)w->in / (size_t)dtype_block(r.type) * dtype_block_bytes(r.type);
    return r;
}

static void move_weight(struct stream *s, struct weight *w)
{
    struct arena *a = &s->device->resident;
    const struct cpu_kernels *k = &s->device->kernels;
    struct weight r = resident_form(w), *copy = mem_alloc(sizeof *copy);
    const int n_groups = (w->out + k->lanes - 1) / k->lanes;
    struct moving m = {.from = w, .group = k->group, .n_bytes = stored_bytes(w)};
    if (r.grouped) m.n_bytes = (size_t)n_groups * (size_t)k->lanes * r.row_bytes;
    const bool room = copy && (a->base || arena_create(a, RESIDENT_SPACE, NULL) == UTTER_OK);
    const size_t mark = arena_mark(a);
    if (!room || !(m.to = arena_alloc(a, m.n_bytes))) {
        mem_free(copy);
        return;
    }
    if (r.grouped) {
        m.n = w->in_out ? w->in : n_groups;
        const size_t unit = m.n_bytes / (size_t)m.n;
        m.n_tile = unit < MOVE_TILE ? (int)(MOVE_TILE / unit) : 1;
        cpu_run(s, (m.n + m.n_tile - 1) / m.n_tile, group_tile, &m);
    } else {
        cpu_run(s, (int)((m.n_bytes + MOVE_TILE - 1) / MOVE_TILE), copy_tile, &m);
    }
    if (s->status != UTTER_OK) { /* cancelled half-way: the next task tries again */
        arena_release(a, mark);
        mem_free(copy);
        return;
    }
    r.data = m.to;
    *copy = r;
    w->resident = copy;
    file_map_drop(w->data, stored_bytes(w));
}

void weight_make_resident(struct stream *s, struct weight *w)
{
    if (s->status != UTTER_OK || !s->device->huge_pages || !w->in_file_map || w->resident) return;
    if (!stream_lock(s, &s->device->resident_lock)) return;
    if (!w->resident) move_weight(s, w);
    pthread_mutex_unlock(&s->device->resident_lock);
}
