/*
 * Attention: keys (and relative positions) are packed once into panels, then each tile is one head and some queries.
 * A tile keeps whole rows of scores: they fit the second cache for any length that occurs, and one pass of softmax over
 * them is exact and cheaper than a running one.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "device/cpu/cpu.h"

enum { MIN_NARROW_QUERIES = 16 /* PRECISION_FAST: fewer do not pay for the keys' conversion */ };

struct job {
    const struct attention *a;
    const struct cpu_kernels *kernels;
    int n_heads, tile_queries, n_query_tiles;
    float *scratch;
    size_t scratch_floats;
};

/* Keys and positions lie in panels, [head][panel of positions][head_dim][panel], or with all heads inside a panel where a
 * cache grows by positions; values in rows, [head][position][head_dim]. So a head reads its own from end to end. */
struct packing {
    const struct cpu_kernels *kernels;
    float *panels;
    struct array x;
    int n_heads, first, rows_per_tile;
    size_t head_size;
};

static int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}
static int min_int(int a, int b)
{
    return a < b ? a : b;
}
static size_t round_up(int n, int to)
{
    return (size_t)ceil_div(n, to) * (size_t)to;
}

static void pack_tile(void *arg, int tile, int worker)
{
    (void)worker;
    const struct packing *p = arg;
    const int row = tile * p->rows_per_tile, n = min_int(p->rows_per_tile, p->x.rows - row), d = p->x.cols / p->n_heads;
    for (int h = 0; h < p->n_heads; h++)
        p->kernels->pack_rows(p->panels + (size_t)h * p->head_size, array_rows(p->x, row, n).data + h * d, p->x.stride,
                              p->first + row, n, d);
}

/* Rows x into panels at positions first and on; tiles end where panels do, so no two write to one cache line. */
static void pack(struct stream *s, float *panels, struct array x, int first)
{
    const struct cpu_kernels *k = &s->device->kernels;
    struct packing p = {.kernels = k, .panels = panels, .x = x, .n_heads = 1, .first = first, .rows_per_tile = 64};
    if (first % k->panel != 0) p.rows_per_tile = x.rows;
    cpu_run(s, ceil_div(x.rows, p.rows_per_tile), pack_tile, &p);
}

static const float *packed(struct stream *s, struct array x, int n_heads, ptrdiff_t *head_step)
{
    const struct cpu_kernels *k = &s->device->kernels;
    struct packing p = {.kernels = k, .x = x, .n_heads = n_heads, .rows_per_tile = 64};
    p.head_size = round_up(x.rows, k->panel) * (size_t)(x.cols / n_heads);
    p.panels = cpu_scratch(s, p.head_size * (size_t)n_heads);
    *head_step = (ptrdiff_t)p.head_size;
    if (p.panels) cpu_run(s, ceil_div(x.rows, p.rows_per_tile), pack_tile, &p);
    return p.panels;
}

static void gather_tile(void *arg, int tile, int worker)
{
    (void)worker;
    const struct packing *p = arg;
    const int row = tile * p->rows_per_tile, n = min_int(p->rows_per_tile, p->x.rows - row), d = p->x.cols / p->n_heads;
    for (int h = 0; h < p->n_heads; h++)
        for (int r = row; r < row + n; r++)
            memcpy(p->panels + (size_t)h * p->head_size + (size_t)r * (size_t)d,
                   p->x.data + (ptrdiff_t)r * p->x.stride + (ptrdiff_t)h * d, (size_t)d * sizeof(float));
}

static const float *gathered(struct stream *s, struct array x, int n_heads, ptrdiff_t *head_step)
{
    struct packing p = {.x = x, .n_heads = n_heads, .rows_per_tile = 64};
    p.head_size = (size_t)x.rows * (size_t)(x.cols / n_heads);
    p.panels = cpu_scratch(s, p.head_size * (size_t)n_heads);
    *head_step = (ptrdiff_t)p.head_size;
    if (p.panels) cpu_run(s, ceil_div(x.rows, p.rows_per_tile), gather_tile, &p);
    return p.panels;
}

/* ---- pairs of bf16 (PRECISION_FAST) -------------------------------------------------------------------------------- */

/* Panels of pairs, one position panel a tile: [head][panel of positions][panel * head_dim / 2]. */
struct pairing {
    const struct cpu_kernels *kernels;
    struct array x;
    int n_heads;
    bool channels; /* a pair is two channels of a position (keys); else two positions of a channel (values) */
    uint32_t *pairs;
    float *scratch; /* one panel of all heads for each worker */
};

static void pair_tile(void *arg, int tile, int worker)
{
    const struct pairing *p = arg;
    const struct cpu_kernels *k = p->kernels;
    const int panel = k->panel, d = p->x.cols / p->n_heads, first = tile * panel, n = min_int(panel, p->x.rows - first);
    const size_t size = (size_t)panel * (size_t)d / 2, head_size = size * (size_t)ceil_div(p->x.rows, panel);
    const struct array x = array_rows(p->x, first, n);
    float *floats = p->scratch + (size_t)worker * (size_t)(panel * p->x.cols);
    if (p->channels) k->pack_rows(floats, x.data, x.stride, 0, n, x.cols);
    for (int h = 0; h < p->n_heads; h++) {
        uint32_t *to = p->pairs + (size_t)h * head_size + (size_t)tile * size;
        if (p->channels)
            k->narrow_pairs(floats + h * d * panel, panel, d, panel, to);
        else
            k->narrow_pairs(x.data + h * d, x.stride, n, d, to);
    }
}

static const uint32_t *paired(struct stream *s, struct array x, int n_heads, bool channels, ptrdiff_t *head_step)
{
    const struct cpu_kernels *k = &s->device->kernels;
    struct pairing p = {.kernels = k, .x = x, .n_heads = n_heads, .channels = channels};
    const size_t rows = round_up(x.rows, k->panel);
    *head_step = (ptrdiff_t)(rows * (size_t)(x.cols / n_heads / 2));
    p.pairs = (uint32_t *)cpu_scratch(s, rows * (size_t)x.cols / 2);
    p.scratch = cpu_scratch(s, (size_t)(k->panel * x.cols) * (size_t)cpu_workers(s));
    if (p.pairs && p.scratch) cpu_run(s, ceil_div(x.rows, k->panel), pair_tile, &p);
    return p.pairs;
}

static bool narrow_pays(const struct stream *s, const struct attention *a)
{
    const struct device *d = s->device;
    return d->precision == PRECISION_FAST && !s->exact && d->kernels.attention_tile_bf16 &&
           a->head_dim % d->kernels.panel == 0 && a->n_queries >= MIN_NARROW_QUERIES;
}

static void narrow_attention(struct stream *s, struct attention *a, struct array k, struct array v, struct array pos,
                             int n_heads)
{
    a->k_pairs_panel = a->v_pairs_panel = a->pos_pairs_panel = (ptrdiff_t)s->device->kernels.panel * a->head_dim / 2;
    a->k_pairs = paired(s, k, n_heads, true, &a->k_pairs_head);
    if (s->status == UTTER_OK) a->v_pairs = paired(s, v, n_heads, false, &a->v_pairs_head);
    if (s->status == UTTER_OK && array_exists(pos)) a->pos_pairs = paired(s, pos, n_heads, true, &a->pos_pairs_head);
}

/* ---- tiles --------------------------------------------------------------------------------------------------------- */

static void attend_tile(void *arg, int tile, int worker)
{
    const struct job *j = arg;
    const int head = tile / j->n_query_tiles, query = tile % j->n_query_tiles * j->tile_queries;
    (j->a->k_pairs ? j->kernels->attention_tile_bf16
                   : j->kernels->attention_tile)(j->a, head, query, min_int(j->tile_queries, j->a->n_queries - query),
                                                 j->scratch + (size_t)worker * j->scratch_floats);
}

/* Head by head: its keys and values stay in the second cache. */
static void attend(struct stream *s, const struct attention *a, int n_heads)
{
    struct device *d = s->device;
    struct job j = {.a = a, .kernels = &d->kernels, .n_heads = n_heads};
    const int64_t query_macs = (int64_t)a->n_keys * a->head_dim * (a->pos ? 3 : 2);
    const int64_t most = d->kernels.tile_macs / 4 / (query_macs > 0 ? query_macs : 1);
    j.tile_queries = d->kernels.block * (int)(most / d->kernels.block > 0 ? most / d->kernels.block : 1);
    if (j.tile_queries > a->n_queries) j.tile_queries = a->n_queries;
    j.n_query_tiles = ceil_div(a->n_queries, j.tile_queries);
    j.scratch_floats = (attention_scratch(&d->kernels, a) + 15) & ~(size_t)15;
    j.scratch = cpu_scratch(s, j.scratch_floats * (size_t)cpu_workers(s));
    if (j.scratch) cpu_run(s, j.n_query_tiles * n_heads, attend_tile, &j);
}

size_t attention_scratch(const struct cpu_kernels *k, const struct attention *a)
{
    const size_t block = (size_t)k->block, panel = (size_t)k->panel;
    return block * (2 * (size_t)a->head_dim + 2 * round_up(a->n_keys, k->panel) + 3 * panel + block);
}

void cpu_attention(struct stream *s, struct array out, struct array q, struct array k, struct array v, struct array pos,
                   struct array bias_u, struct array bias_w, int n_heads, float scale)
{
    if (q.rows == 0) return;
    const size_t mark = stream_mark(s);
    const int head_dim = q.cols / n_heads;
    const ptrdiff_t panel = (ptrdiff_t)s->device->kernels.panel * head_dim;
    struct attention a = {.head_dim = head_dim,
                          .n_queries = q.rows,
                          .n_keys = k.rows,
                          .causal_first = -1,
                          .q = q.data,
                          .q_stride = q.stride,
                          .k_panel = panel,
                          .v_panel = panel,
                          .v_row = head_dim,
                          .pos_panel = panel,
                          .bias_u = bias_u.data,
                          .bias_w = bias_w.data,
                          .out = out.data,
                          .out_stride = out.stride,
                          .scale = scale};
    if (narrow_pays(s, &a)) {
        narrow_attention(s, &a, k, v, pos, n_heads);
    } else {
        a.k = packed(s, k, n_heads, &a.k_head);
        if (s->status == UTTER_OK) a.v = gathered(s, v, n_heads, &a.v_head);
        if (s->status == UTTER_OK && array_exists(pos)) a.pos = packed(s, pos, n_heads, &a.pos_head);
    }
    if (s->status == UTTER_OK) attend(s, &a, n_heads);
    stream_release(s, mark);
}

/* ---- the cache ---------------------------------------------------------------------------------------------------- */

/* A long layer begins with a huge page, so that few positions of each touch few pages. */
static bool layer_pages(size_t *layer_bytes)
{
    const size_t page = ARENA_HUGE_PAGE;
    if (*layer_bytes <= page) return true;
    if (!size_add(*layer_bytes, page - 1, layer_bytes)) return false;
    *layer_bytes -= *layer_bytes % page;
    return true;
}

utter_status kv_cache_create(struct kv_cache **out, struct device *d, enum dtype type, int n_layers, int n_positions,
                             int width, struct error *e)
{
    *out = NULL;
    if (n_layers < 1 || n_positions < 1 || width < 1 || (type != DTYPE_F32 && type != DTYPE_F16))
        return error_set(e, UTTER_INVALID_ARGUMENT, "cache of %d layers, %d positions, width %d, type %s", n_layers,
                         n_positions, width, dtype_name(type));
    struct kv_cache *kv = mem_calloc(1, sizeof *kv);
    if (!kv) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a cache");
    *kv =
        (struct kv_cache){.device = d, .type = type, .n_layers = n_layers, .n_positions = n_positions, .width = width};
    size_t elements, bytes = 0;
    utter_status status;
    if (!size_mul(round_up(n_positions, d->kernels.panel), (size_t)width, &elements) ||
        !size_mul(elements, dtype_block_bytes(type), &kv->layer_bytes) || !layer_pages(&kv->layer_bytes) ||
        !size_mul(kv->layer_bytes, (size_t)n_layers * 2, &bytes))
        status = error_set(e, UTTER_OUT_OF_MEMORY, "cache of %d layers, %d positions, width %d", n_layers, n_positions,
                           width);
    else
        status = arena_create(&kv->memory, bytes + 4096 /* for the arena's own gaps */, e);
    if (status == UTTER_OK && !(kv->keys = arena_alloc(&kv->memory, bytes)))
        status = error_set(e, UTTER_OUT_OF_MEMORY, "no %zu MiB for a cache", bytes >> 20);
    if (status != UTTER_OK) {
        kv_cache_destroy(&kv);
        return status;
    }
    kv->values = kv->keys + kv->layer_bytes * (size_t)n_layers;
    *out = kv;
    return UTTER_OK;
}

void kv_cache_destroy(struct kv_cache **kv)
{
    if (!*kv) return;
    arena_destroy(&(*kv)->memory);
    mem_free(*kv);
    *kv = NULL;
}

int kv_cache_positions(const struct kv_cache *kv)
{
    return kv->n_positions;
}

struct copying {
    struct kv_cache *dst;
    const struct kv_cache *src;
    size_t n_bytes; /* of one layer's keys, or values */
};

static void copy_tile(void *arg, int tile, int worker)
{
    (void)worker;
    const struct copying *c = arg;
    const size_t layer = (size_t)tile / 2;
    unsigned char *dst = (tile % 2 ? c->dst->values : c->dst->keys) + layer * c->dst->layer_bytes;
    const unsigned char *src = (tile % 2 ? c->src->values : c->src->keys) + layer * c->src->layer_bytes;
    memcpy(dst, src, c->n_bytes);
}

/* Whole panels: what lies behind position n in the last one is never read before it is stored. */
void cpu_kv_cache_copy(struct stream *s, struct kv_cache *dst, const struct kv_cache *src, int n)
{
    if (n == 0) return;
    const size_t elements = round_up(n, s->device->kernels.panel) * (size_t)src->width;
    struct copying c = {dst, src, elements * dtype_block_bytes(src->type)};
    cpu_run(s, 2 * src->n_layers, copy_tile, &c);
}

static void store_values(float *values, struct array v, int first, int panel, int n_heads)
{
    const int head_dim = v.cols / n_heads;
    for (int r = 0; r < v.rows; r++) {
        const int at = first + r;
        float *block =
            values + (size_t)(at / panel) * (size_t)panel * (size_t)v.cols + (size_t)(at % panel) * (size_t)head_dim;
        for (int h = 0; h < n_heads; h++)
            memcpy(block + (size_t)h * (size_t)panel * (size_t)head_dim,
                   v.data + (ptrdiff_t)r * v.stride + (ptrdiff_t)h * head_dim, (size_t)head_dim * sizeof(float));
    }
}

/* One layer of an f16 cache: rows go in narrowed; many queries read it widened, one query as it lies. */
struct half_layer {
    const struct cpu_kernels *kernels;
    uint16_t *keys, *values;
    struct array k, v;
    int first, n_heads;
    float *wide_keys, *wide_values;
};

/* The rows of one panel. */
static void narrow_tile(void *arg, int tile, int worker)
{
    (void)worker;
    const struct half_layer *l = arg;
    const int panel = l->kernels->panel, width = l->k.cols, head_dim = width / l->n_heads;
    const int first = (l->first / panel + tile) * panel, end = l->first + l->k.rows;
    for (int at = first > l->first ? first : l->first; at < end && at < first + panel; at++) {
        const size_t start = (size_t)first * (size_t)width;
        const float *v = array_rows(l->v, at - l->first, 1).data;
        l->kernels->narrow(l->keys + start + at % panel, panel, array_rows(l->k, at - l->first, 1).data, width);
        for (int h = 0; h < l->n_heads; h++)
            l->kernels->narrow(l->values + start + (size_t)((h * panel + at % panel) * head_dim), 1, v + h * head_dim,
                               head_dim);
    }
}

static void widen_tile(void *arg, int tile, int worker)
{
    (void)worker;
    const struct half_layer *l = arg;
    const int n = l->kernels->panel * l->k.cols;
    l->kernels->widen(l->wide_keys + (size_t)tile * (size_t)n, l->keys + (size_t)tile * (size_t)n, n);
    l->kernels->widen(l->wide_values + (size_t)tile * (size_t)n, l->values + (size_t)tile * (size_t)n, n);
}

/* The cache's panels as pairs of bf16 (PRECISION_FAST): keys by channels, values by positions, all heads inside a panel. */
struct cached_pairs {
    const struct cpu_kernels *kernels;
    const unsigned char *keys, *values;
    enum dtype type;
    int n, width, n_heads; /* n: positions */
    uint32_t *key_pairs, *value_pairs;
    float *scratch; /* a panel for each worker, where the cache is f16 */
};

static const float *cached_panel(const struct cached_pairs *p, const unsigned char *from, int tile, float *scratch)
{
    const int size = p->kernels->panel * p->width;
    from += (size_t)tile * (size_t)size * dtype_block_bytes(p->type);
    if (p->type == DTYPE_F32) return (const float *)(const void *)from;
    p->kernels->widen(scratch, (const uint16_t *)(const void *)from, size);
    return scratch;
}

static void pair_cached_tile(void *arg, int tile, int worker)
{
    const struct cached_pairs *p = arg;
    const struct cpu_kernels *k = p->kernels;
    const int panel = k->panel, d = p->width / p->n_heads, n = min_int(panel, p->n - tile * panel);
    const size_t at = (size_t)tile * (size_t)(panel * p->width / 2);
    float *scratch = p->scratch + (size_t)worker * (size_t)(panel * p->width);
    const float *keys = cached_panel(p, p->keys, tile, scratch);
    for (int h = 0; h < p->n_heads; h++)
        k->narrow_pairs(keys + h * d * panel, panel, d, panel, p->key_pairs + at + h * d * panel / 2);
    const float *values = cached_panel(p, p->values, tile, scratch);
    for (int h = 0; h < p->n_heads; h++)
        k->narrow_pairs(values + h * d * panel, d, n, d, p->value_pairs + at + h * d * panel / 2);
}

static void narrow_cache(struct stream *s, struct attention *a, const struct kv_cache *kv, int layer, int n_heads)
{
    const struct cpu_kernels *k = &s->device->kernels;
    const size_t n_panels = (size_t)ceil_div(a->n_keys, k->panel), size = (size_t)(k->panel * kv->width);
    struct cached_pairs p = {.kernels = k,
                             .keys = kv->keys + kv->layer_bytes * (size_t)layer,
                             .values = kv->values + kv->layer_bytes * (size_t)layer,
                             .type = kv->type,
                             .n = a->n_keys,
                             .width = kv->width,
                             .n_heads = n_heads};
    a->k_pairs = p.key_pairs = (uint32_t *)cpu_scratch(s, n_panels * size / 2);
    a->v_pairs = p.value_pairs = (uint32_t *)cpu_scratch(s, n_panels * size / 2);
    a->k_pairs_head = a->v_pairs_head = (ptrdiff_t)k->panel * a->head_dim / 2;
    a->k_pairs_panel = a->v_pairs_panel = (ptrdiff_t)size / 2;
    p.scratch = cpu_scratch(s, size * (size_t)cpu_workers(s));
    if (s->status == UTTER_OK) cpu_run(s, (int)n_panels, pair_cached_tile, &p);
}

static void widen_layer(struct stream *s, struct half_layer *l, struct attention *a)
{
    const int panel = l->kernels->panel, n_panels = ceil_div(l->first + l->k.rows, panel);
    a->k = l->wide_keys = cpu_scratch(s, (size_t)n_panels * (size_t)(panel * l->k.cols));
    a->v = l->wide_values = cpu_scratch(s, (size_t)n_panels * (size_t)(panel * l->k.cols));
    if (s->status == UTTER_OK) cpu_run(s, n_panels, widen_tile, l);
}

/* ---- one query a cache ---------------------------------------------------------------------------------------------- */

/* It reads every key and value once, so it is bound by memory: a tile is some positions of half the heads, which lie in one
 * piece in every panel. Who finishes the last tile of a half joins their parts, in order. */
enum { HALVES = 2 };

struct half_query {
    struct attention a; /* q, k, v and out: from its first head on */
    int n_heads, first_tile, n_parts;
    const float *new_k, *new_v; /* of the query's own position, not stored yet */
    float *parts;
    atomic_int left; /* parts that are not done */
};

struct queries {
    const struct cpu_kernels *kernels;
    struct half_query *halves;
    int n_halves;
    size_t part_floats;
};

static void store_position(const struct cpu_kernels *k, const struct half_query *h)
{
    const int at = h->a.n_keys - 1, panel = k->panel, d = h->a.head_dim, in_panel = at % panel;
    const ptrdiff_t keys = at / panel * h->a.k_panel, values = at / panel * h->a.v_panel + in_panel * d;
    if (!h->a.k16) k->pack_rows((float *)(uintptr_t)h->a.k + keys, h->new_k, 0, in_panel, 1, h->n_heads * d);
    if (h->a.k16) k->narrow((uint16_t *)(uintptr_t)h->a.k16 + keys + in_panel, panel, h->new_k, h->n_heads * d);
    for (int i = 0; i < h->n_heads; i++) {
        const float *v = h->new_v + i * d;
        if (h->a.v16)
            k->narrow((uint16_t *)(uintptr_t)h->a.v16 + values + i * h->a.v_head, 1, v, d);
        else
            memcpy((float *)(uintptr_t)h->a.v + values + i * h->a.v_head, v, (size_t)d * sizeof *v);
    }
}

static void attend_once_tile(void *arg, int tile, int worker)
{
    (void)worker;
    const struct queries *j = arg;
    int i = j->n_halves - 1;
    while (j->halves[i].first_tile > tile) i--;
    struct half_query *h = &j->halves[i];
    const int part = tile - h->first_tile, first = part * ATTENTION_PART;
    if (part == h->n_parts - 1) store_position(j->kernels, h);
    j->kernels->attend_part(&h->a, h->n_heads, first, min_int(ATTENTION_PART, h->a.n_keys - first),
                            h->parts + (size_t)part * j->part_floats);
    if (atomic_fetch_sub_explicit(&h->left, 1, memory_order_acq_rel) == 1)
        j->kernels->join_parts(&h->a, h->n_heads, h->parts, (ptrdiff_t)j->part_floats, h->n_parts);
}

void cpu_attention_each(struct stream *s, struct array out, struct array q, struct array k, struct array v,
                        struct kv_cache *const *kv, int layer, const int *first, int n_heads, float scale)
{
    const size_t mark = stream_mark(s);
    const int panel = s->device->kernels.panel, head_dim = q.cols / n_heads;
    struct queries j = {.kernels = &s->device->kernels, .n_halves = HALVES * q.rows};
    int n_tiles = 0;
    j.part_floats = round_up(ceil_div(n_heads, HALVES) * (2 + head_dim + ATTENTION_PART), 16);
    j.halves = (struct half_query *)cpu_scratch(s, (size_t)j.n_halves * sizeof *j.halves / sizeof(float));
    for (int i = 0; s->status == UTTER_OK && i < j.n_halves; i++) {
        const int row = i / HALVES, half = i % HALVES, head = n_heads * half / HALVES;
        const int n_parts = ceil_div(first[row] + 1, ATTENTION_PART);
        const ptrdiff_t column = (ptrdiff_t)head * head_dim;
        struct kv_cache *c = kv[row];
        const size_t start = c->layer_bytes * (size_t)layer + (size_t)(panel * column) * dtype_block_bytes(c->type);
        j.halves[i] = (struct half_query){.n_heads = n_heads * (half + 1) / HALVES - head,
                                          .first_tile = n_tiles,
                                          .n_parts = n_parts,
                                          .new_k = array_rows(k, row, 1).data + column,
                                          .new_v = array_rows(v, row, 1).data + column,
                                          .a = {.head_dim = head_dim,
                                                .n_queries = 1,
                                                .n_keys = first[row] + 1,
                                                .q = array_rows(q, row, 1).data + column,
                                                .k_panel = (ptrdiff_t)panel * c->width,
                                                .k_head = (ptrdiff_t)panel * head_dim,
                                                .v_panel = (ptrdiff_t)panel * c->width,
                                                .v_head = (ptrdiff_t)panel * head_dim,
                                                .v_row = head_dim,
                                                .out = array_rows(out, row, 1).data + column,
                                                .scale = scale}};
        struct half_query *h = &j.halves[i];
        void *keys = c->keys + start, *values = c->values + start;
        if (c->type == DTYPE_F16) {
            h->a.k16 = keys;
            h->a.v16 = values;
        } else {
            h->a.k = keys;
            h->a.v = values;
        }
        atomic_init(&h->left, n_parts);
        h->parts = cpu_scratch(s, j.part_floats * (size_t)n_parts);
        n_tiles += n_parts;
    }
    if (s->status == UTTER_OK) cpu_run_in_shares(s, n_tiles, attend_once_tile, &j);
    stream_release(s, mark);
}

/* ---- any number of queries for one cache ------------------------------------------------------------------------------ */

void cpu_attention_cached(struct stream *s, struct array out, struct array q, struct array k, struct array v,
                          struct kv_cache *kv, int layer, int first, int n_heads, float scale)
{
    if (q.rows == 0) return;
    if (q.rows == 1) {
        cpu_attention_each(s, out, q, k, v, &kv, layer, &first, n_heads, scale);
        return;
    }
    const size_t mark = stream_mark(s);
    const int panel = s->device->kernels.panel, head_dim = q.cols / n_heads;
    void *keys = kv->keys + kv->layer_bytes * (size_t)layer, *values = kv->values + kv->layer_bytes * (size_t)layer;
    struct attention a = {.head_dim = head_dim,
                          .n_queries = q.rows,
                          .n_keys = first + q.rows,
                          .causal_first = first,
                          .q = q.data,
                          .q_stride = q.stride,
                          .k = keys,
                          .k_panel = (ptrdiff_t)panel * kv->width,
                          .k_head = (ptrdiff_t)panel * head_dim,
                          .v = values,
                          .v_panel = (ptrdiff_t)panel * kv->width,
                          .v_head = (ptrdiff_t)panel * head_dim,
                          .v_row = head_dim,
                          .out = out.data,
                          .out_stride = out.stride,
                          .scale = scale};
    const bool narrow = narrow_pays(s, &a);
    if (kv->type == DTYPE_F16) {
        struct half_layer l = {.kernels = &s->device->kernels,
                               .keys = keys,
                               .values = values,
                               .k = k,
                               .v = v,
                               .first = first,
                               .n_heads = n_heads};
        cpu_run(s, ceil_div(first + k.rows, panel) - first / panel, narrow_tile, &l);
        if (!narrow) widen_layer(s, &l, &a);
    } else {
        pack(s, keys, k, first);
        store_values(values, v, first, panel, n_heads);
    }
    if (narrow && s->status == UTTER_OK) narrow_cache(s, &a, kv, layer, n_heads);
    if (s->status == UTTER_OK) attend(s, &a, n_heads);
    stream_release(s, mark);
}
