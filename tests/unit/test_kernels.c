/*
 * test_kernels: every kernel of every level this machine has, against the scalar one, over random sizes, tails, strides
 * and starts, with guard words around what it writes. The list of kernels makes the list of tests: one without a test does
 * not compile. A failure prints the seed; `test-kernels SEED [ROUNDS]` replays it.
 *
 * Tolerances: a sum of n products, each at most m in all, rounds to within about sqrt(n) units in the last place of m
 * (n in the worst case, which random signs do not meet); 4 + 2 sqrt(n) leaves room for an epilogue.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "device/cpu/detect.h"
#include "device/cpu/transform16.h"
#include "test.h"

#define ULP 0x1p-24

enum { GUARD = 24 };

static int rounds = 60;

static uint64_t seed = 20261129, drawn;
static struct cpu_kernels plain, fast;
static const char *level_name;

static int below(int n)
{
    return (int)(rng_bits((struct rng){seed}, drawn++) % (uint64_t)n);
}
static int between(int low, int high)
{
    return low + below(high - low + 1);
}
static bool coin(void)
{
    return below(2);
}

/* Memory that a test writes or reads: floats at an odd start, freed all at once. */
static void *blocks[64];
static int n_blocks;

static void *bytes_of(size_t n)
{
    char *p = malloc(n + 64);
    assert_non_null(p);
    assert_true(n_blocks < 64);
    blocks[n_blocks++] = p;
    return p + 4 * below(15);
}

static float *floats_of(size_t n)
{
    float *p = bytes_of((n + 1) * sizeof *p);
    rng_normal((struct rng){seed}, drawn, n, p);
    drawn += n + 2;
    return p;
}

static void free_blocks(void)
{
    while (n_blocks > 0) free(blocks[--n_blocks]);
}

/* Output of n floats with guard words before and after. */
static float *guarded(size_t n)
{
    float *p = bytes_of((n + 2 * GUARD) * sizeof *p);
    for (size_t i = 0; i < n + 2 * GUARD; i++) p[i] = 12345.0f;
    return p + GUARD;
}

#define FAIL(...)                                                                                                      \
    do {                                                                                                               \
        print_error("%s, seed %llu: ", level_name, (unsigned long long)seed);                                          \
        fail_msg(__VA_ARGS__);                                                                                         \
    } while (0)

static void check_guards(const float *p, size_t n)
{
    for (int i = 1; i <= GUARD; i++)
        if (p[-i] != 12345.0f || p[n + (size_t)i - 1] != 12345.0f) FAIL("wrote outside its %zu floats", n);
}

static void compare(const float *expected, const float *found, size_t n, double tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)expected[i] - (double)found[i]) <= tolerance))
            FAIL("value %zu of %zu: expected %.9g, found %.9g (tolerance %.3g)", i, n, (double)expected[i],
                 (double)found[i], tolerance);
    check_guards(found, n);
}

/* ---- weights and products ---------------------------------------------------------------------------------------- */

static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q5_0, DTYPE_Q4_0};

static struct weight random_weight(enum dtype type, int in, int out, int taps, bool in_out)
{
    struct weight w = {.type = type, .in = in, .out = out, .taps = taps, .in_out = in_out};
    const size_t block = (size_t)dtype_block(type), size = dtype_block_bytes(type);
    const size_t n_blocks_of_weights = (size_t)in * (size_t)out * (size_t)taps / block;
    unsigned char *p = (unsigned char *)bytes_of(n_blocks_of_weights * size) + (type == DTYPE_F32 ? 0 : 1);
    w.row_bytes = (size_t)(in_out ? out : in) / block * size;
    w.data = p;
    for (size_t i = 0; i < n_blocks_of_weights; i++, p += size) {
        float x;
        rng_normal((struct rng){seed}, drawn++, 1, &x);
        const uint16_t half = float_to_half(x), bf16 = float_to_bf16(x), d = float_to_half(0.02f * fabsf(x));
        for (size_t k = 0; k < size; k++) p[k] = (unsigned char)below(256);
        if (type == DTYPE_F32)
            memcpy(p, &x, 4);
        else if (block == 1)
            memcpy(p, type == DTYPE_F16 ? &half : &bf16, 2);
        else
            memcpy(p, &d, 2);
    }
    return w;
}

static void test_read_weights(void)
{
    const enum dtype type = types[below(6)];
    const int step = dtype_block(type), in = step * between(1, 9) + (step == 1 ? below(90) : 0);
    struct weight w = random_weight(type, in, 3, 1, false);
    const int first = step == 1 ? below(in) : 32 * below(in / 32), n = in - first;
    float *a = guarded((size_t)n), *b = guarded((size_t)n);
    plain.read_weights(&w, 1, first, n, a);
    fast.read_weights(&w, 1, first, n, b);
    compare(a, b, (size_t)n, 0);
}

/* A product of random shape with a random epilogue; the outputs of both levels, and the size of a typical sum. */
struct product_case {
    struct product p;
    struct weight w;
    double tolerance;
};

static struct product_case random_product(bool one_tap, int max_rows, bool in_out, enum dtype type)
{
    const int block = dtype_block(type);
    struct product_case c = {.w = random_weight(type, block > 1 ? 32 * between(1, 6) : between(1, 150), between(1, 90),
                                                one_tap ? 1 : between(1, 8), in_out)};
    const int taps = c.w.taps, stride = one_tap ? 1 : between(1, 4), dilation = one_tap ? 1 : between(1, 5);
    const int rows = between(1, max_rows), x_rows = one_tap ? rows : between(1, rows * stride + 5);
    struct product *p = &c.p;
    *p = (struct product){.x_stride = c.w.in + below(9),
                          .x_rows = x_rows,
                          .row_step = stride,
                          .tap_step = coin() || one_tap ? dilation : -dilation,
                          .taps = taps,
                          .tap_stride = 1,
                          .x_first = one_tap ? 0 : between(-9, 9),
                          .out_stride = c.w.out + below(9),
                          .rows = rows,
                          .scale = coin() ? 1 : 0.3f};
    if (!one_tap && coin() && taps > 2)
        p->taps = taps / 2, p->tap_stride = 2, p->tap_first = 1; /* a phase of a transposed one */
    p->x = floats_of((size_t)x_rows * (size_t)p->x_stride);
    if (coin()) p->bias = floats_of((size_t)c.w.out);
    if (coin()) p->row_add = floats_of((size_t)c.w.out);
    p->act = (enum activation)below(ACT_EXP); /* exp would amplify rounding without bound */
    p->act_param = 0.1f;
    if (coin()) {
        float *alpha = floats_of((size_t)c.w.out);
        for (int i = 0; i < c.w.out; i++) alpha[i] = fabsf(alpha[i]) + 0.2f;
        p->snake_alpha = alpha;
    }
    p->residual_stride = p->out_stride;
    if (coin()) p->residual = floats_of((size_t)rows * (size_t)p->out_stride);
    const double n = (double)p->taps * c.w.in;
    c.tolerance =
        (4 + 2 * sqrt(n)) * ULP * (4 + 4 * sqrt(n)); /* the last factor: |sum| of n normal products, four sigma */
    return c;
}

/* Of a level, for [in][out] weights. */
static float *pack_inputs(const struct cpu_kernels *k, const struct weight *w)
{
    float *panels = floats_of((size_t)w->in * (size_t)(w->out + k->panel));
    const int cut = below(w->in + 1);
    k->pack_inputs(w, 0, cut, panels);
    k->pack_inputs(w, cut, w->in - cut, panels);
    return panels;
}

static void test_pack_inputs(void)
{
    const int panel = fast.panel;
    struct weight w = random_weight(types[below(3)], between(1, 60), between(1, 90), 1, true);
    const float *panels = pack_inputs(&fast, &w);
    for (int c = 0; c < w.in; c++)
        for (int i = 0; i < (w.out + panel - 1) / panel * panel; i++) {
            float value = 0;
            if (i < w.out) plain.read_weights(&w, (size_t)c, i, 1, &value);
            if (panels[(i / panel * w.in + c) * panel + i % panel] != value)
                FAIL("input %d, column %d of %d", c, i, w.out);
        }
}

typedef void run_product(const struct cpu_kernels *k, const struct product *p);

/* As the fast level wants it for decode steps, laid out in two calls; without data when it does not. */
static struct weight group(const struct weight *w)
{
    struct weight g = *w;
    const int lanes = fast.lanes, n_groups = (w->out + lanes - 1) / lanes, n = w->in_out ? w->in : n_groups;
    g.data = NULL;
    if (!fast.group || w->taps > 1) return g;
    g.type = w->type == DTYPE_Q5_0 ? DTYPE_Q8_0 : w->type;
    g.grouped = true;
    g.in_out = false;
    g.row_bytes = (size_t)w->in / (size_t)dtype_block(g.type) * dtype_block_bytes(g.type);
    const size_t n_bytes = (size_t)(n_groups * lanes) * g.row_bytes;
    unsigned char *p = bytes_of(n_bytes + 2 * GUARD);
    memset(p, 0x55, n_bytes + 2 * GUARD);
    const int cut = below(n + 1);
    fast.group(w, 0, cut, p + GUARD);
    fast.group(w, cut, n - cut, p + GUARD);
    for (size_t i = 0; i < GUARD; i++)
        if (p[i] != 0x55 || p[GUARD + n_bytes + i] != 0x55) FAIL("wrote outside its %zu bytes of groups", n_bytes);
    g.data = p + GUARD;
    return g;
}

static run_product run_rows, run_tiles_bf16, run_tiles_int8;

/* Who reads grouped weights. */
static bool reads_groups(run_product *run, enum dtype type)
{
    return run == run_rows         ? dtype_block(type) == 1 /* product_rows_q8 has the others */
           : run == run_tiles_bf16 ? fast.product_tile_bf16 != NULL
           : run == run_tiles_int8 ? fast.product_tile_int8 != NULL
                                   : true;
}

/* The plain level's values are close, and those of grouped weights are the fast level's own to the bit. */
static void check_product(struct product_case c, run_product *run)
{
    float *outs[3];
    const size_t n = (size_t)(c.p.rows - 1) * (size_t)c.p.out_stride + (size_t)c.w.out;
    const struct weight grouped = group(&c.w);
    c.p.w = &c.w;
    for (int i = 0; i < 2; i++) {
        c.p.out = outs[i] = guarded(n);
        if (c.w.in_out) c.p.packed = pack_inputs(i ? &fast : &plain, &c.w);
        run(i ? &fast : &plain, &c.p);
    }
    for (int r = 0; r < c.p.rows; r++)
        for (int i = 0; i < c.p.out_stride && (size_t)(r * c.p.out_stride + i) < n; i++) {
            const float a = outs[0][r * c.p.out_stride + i], b = outs[1][r * c.p.out_stride + i];
            if (i >= c.w.out ? b != 12345.0f : !(fabs((double)a - (double)b) <= c.tolerance))
                FAIL("row %d of %d, column %d of %d: expected %.9g, found %.9g (%d taps of %d %s inputs, tolerance "
                     "%.3g)",
                     r, c.p.rows, i, c.w.out, (double)a, (double)b, c.p.taps, c.w.in, dtype_name(c.w.type),
                     c.tolerance);
        }
    check_guards(outs[1], n);
    if (!grouped.data || !reads_groups(run, c.w.type)) return;
    c.p.w = &grouped;
    c.p.packed = NULL;
    c.p.out = outs[2] = guarded(n);
    run(&fast, &c.p);
    if (memcmp(outs[2] - GUARD, outs[1] - GUARD, (n + 2 * GUARD) * sizeof(float)) != 0)
        FAIL("groups of %d x %d %s differ from rows", c.w.out, c.w.in, dtype_name(c.w.type));
}

static float *scratch_of(const struct cpu_kernels *k, const struct product *p)
{
    return floats_of(product_scratch(k, p));
}

static void run_tiles(const struct cpu_kernels *k, const struct product *p)
{
    float *scratch = scratch_of(k, p);
    const int rows = k->block * 3;
    for (int r = 0; r < p->rows; r += rows)
        for (int c = 0; c < p->w->out; c += k->panel)
            k->product_tile(p, r, p->rows - r < rows ? p->rows - r : rows, c,
                            p->w->out - c < k->panel ? p->w->out - c : k->panel, scratch);
}

static void test_product_tile(void)
{
    const enum dtype type = types[below(6)];
    check_product(random_product(false, 60, false, type), run_tiles);
    check_product(random_product(true, 60, coin() && dtype_block(type) == 1, type), run_tiles);
}

/* Together or in two calls, as it happens: no row changes another. */
static void run_rows(const struct cpu_kernels *k, const struct product *p)
{
    const int cut = below(p->rows);
    if (cut) k->product_rows(p, 0, cut, 0, p->w->out, scratch_of(k, p));
    k->product_rows(p, cut, p->rows - cut, 0, p->w->out, scratch_of(k, p));
}

static void test_product_rows(void)
{
    check_product(random_product(true, 4, false, types[below(6)]), run_rows);
}

static void run_inputs(const struct cpu_kernels *k, const struct product *p)
{
    if (p->w->grouped) { /* the other way to these products */
        run_rows(k, p);
        return;
    }
    const size_t part = (size_t)p->rows * (size_t)p->w->out;
    float *sums = floats_of(part * (size_t)k->lanes);
    for (int i = 0; i < k->lanes; i++) k->sum_inputs(p, 0, p->rows, i, sums + (size_t)i * part);
    const int half = p->w->out / 2;
    if (half) k->finish_inputs(p, 0, p->rows, 0, half, sums);
    k->finish_inputs(p, 0, p->rows, half, p->w->out - half, sums);
}

static void test_sum_inputs(void)
{
    check_product(random_product(true, 4, true, types[below(3)]), run_inputs);
}
static void test_finish_inputs(void)
{
    test_sum_inputs();
}

/* Rows of [n], a row's blocks one after the other or side by side with those of the others. */
static struct quantized_row *quantize(const struct cpu_kernels *k, const float *x, ptrdiff_t x_stride, int rows, int n,
                                      int offset, bool side_by_side)
{
    const int per_row = n / 32, row = side_by_side ? 1 : per_row;
    struct quantized_row *q = calloc((size_t)rows, sizeof *q);
    int8_t *bytes = (int8_t *)bytes_of((size_t)(rows * n)) + 1;
    float *scales = floats_of((size_t)(rows * per_row));
    int32_t *starts = bytes_of((size_t)(rows * per_row) * sizeof *starts);
    for (int r = 0; r < rows; r++) {
        q[r] =
            (struct quantized_row){bytes + r * row * 32, scales + r * row, starts + r * row, side_by_side ? rows : 1};
        k->quantize_row(&q[r], x + r * x_stride, n, offset);
    }
    return q;
}

static void test_quantize_row(void)
{
    const int n = 32 * between(1, 20), rows = between(1, 3);
    const bool side_by_side = coin();
    float *x = floats_of((size_t)(rows * n));
    if (coin()) memset(x, 0, 32 * sizeof *x);
    struct quantized_row *a = quantize(&plain, x, n, rows, n, 16, side_by_side),
                         *b = quantize(&fast, x, n, rows, n, 16, side_by_side);
    for (int i = 0; i < rows * n; i++)
        if (a->q[i] != b->q[i] || a->scale[i / 32] != b->scale[i / 32] || a->start[i / 32] != b->start[i / 32])
            FAIL("value %d: expected %d, found %d", i, a->q[i], b->q[i]);
    free(a);
    free(b);
}

static int offset_of(enum dtype type)
{
    return type == DTYPE_Q8_0 ? 128 : type == DTYPE_Q5_0 ? 16 : 8;
}

static void run_rows_q8(const struct cpu_kernels *k, const struct product *p)
{
    struct quantized_row *rows = quantize(&plain, p->x, p->x_stride, p->rows, p->w->in, offset_of(p->w->type), false);
    const int cut = below(p->rows);
    if (cut) k->product_rows_q8(p, rows, 0, cut, 0, p->w->out);
    k->product_rows_q8(p, rows + cut, cut, p->rows - cut, 0, p->w->out);
    free(rows);
}

static void test_product_rows_q8(void)
{
    check_product(random_product(true, 4, false, types[3 + below(3)]), run_rows_q8);
}

/* A level without this kernel is compared with itself. */
static void run_tiles_int8(const struct cpu_kernels *k, const struct product *p)
{
    const bool has = k->product_tile_int8 != NULL;
    const struct weight g = !has || p->w->grouped ? *p->w : group(p->w);
    struct quantized_row *x = quantize(&plain, p->x, p->x_stride, p->rows, g.in, offset_of(g.type), true);
    const int cut = below(p->rows + 1);
    for (int c = 0; has && c < g.out; c += k->panel) {
        const int n = g.out - c < k->panel ? g.out - c : k->panel;
        k->product_tile_int8(p, group_of(&g, c), g.type, x, 0, cut, c, n);
        k->product_tile_int8(p, group_of(&g, c), g.type, x, cut, p->rows - cut, c, n);
    }
    if (!has) product_rows_q8_scalar(p, x, 0, p->rows, 0, g.out);
    free(x);
}

static void test_product_tile_int8(void)
{
    check_product(random_product(true, 40, false, types[3 + below(3)]), run_tiles_int8);
}

/* ---- bf16: the same roundings on both sides, so only the order of sums differs ---- */

static int lowest_row(const struct product *p, int *n)
{
    const int reach = (p->taps - 1) * p->tap_step, last = p->x_first + (p->rows - 1) * p->row_step;
    const int low = p->x_first + (reach < 0 ? reach : 0);
    *n = last + (reach > 0 ? reach : 0) - low + 1;
    return low;
}

static uint16_t *narrow(const struct cpu_kernels *k, const struct product *p, ptrdiff_t stride, int lowest, int n)
{
    uint16_t *x = bytes_of((size_t)(n + 1) * (size_t)stride * sizeof *x);
    const int cut = below(n + 1);
    (k->narrow_rows ? k->narrow_rows : narrow_rows_scalar)(p, lowest, cut, x, stride);
    (k->narrow_rows ? k->narrow_rows : narrow_rows_scalar)(p, lowest + cut, n - cut, x + cut * stride, stride);
    return x;
}

static void test_narrow_rows(void)
{
    struct product_case c = random_product(false, 40, false, DTYPE_F32);
    c.p.w = &c.w;
    int n;
    const int low = lowest_row(&c.p, &n);
    const ptrdiff_t stride = (c.w.in + 1) / 2 * 2 + 2 * below(9);
    const uint16_t *a = narrow(&plain, &c.p, stride, low, n), *b = narrow(&fast, &c.p, stride, low, n);
    if (memcmp(a, b, (size_t)n * (size_t)stride * sizeof *a) != 0) FAIL("%d rows of %d differ", n, c.w.in);
}

static void run_tiles_bf16(const struct cpu_kernels *k, const struct product *p)
{
    int n;
    const int low = lowest_row(p, &n);
    const ptrdiff_t stride = (p->w->in + 1) / 2 * 2 + 2 * 3;
    const uint16_t *x = narrow(k, p, stride, low, n) + (p->x_first - low) * stride;
    float *scratch = scratch_of(k, p);
    for (int c = 0; c < p->w->out; c += k->panel)
        (k->product_tile_bf16 ? k->product_tile_bf16 : product_tile_bf16_scalar)(
            p, x, stride, 0, p->rows, c, p->w->out - c < k->panel ? p->w->out - c : k->panel, scratch);
}

static void test_product_tile_bf16(void)
{
    const enum dtype type = types[below(6)];
    check_product(random_product(false, 60, false, type), run_tiles_bf16);
    check_product(random_product(true, 60, coin() && dtype_block(type) == 1, type), run_tiles_bf16);
}

/* ---- attention ---------------------------------------------------------------------------------------------------- */

static float *pack(const struct cpu_kernels *k, const float *x, int stride, int rows, int width)
{
    float *panels = floats_of((size_t)(rows + k->panel) * (size_t)width);
    const int cut = below(rows + 1); /* in two calls, as a cache grows */
    k->pack_rows(panels, x, stride, 0, cut, width);
    k->pack_rows(panels, x + (size_t)cut * (size_t)stride, stride, cut, rows - cut, width);
    return panels;
}

static void test_pack_rows(void)
{
    const int rows = between(1, 100), width = between(1, 70), stride = width + below(5), panel = fast.panel;
    const float *x = floats_of((size_t)rows * (size_t)stride), *p = pack(&fast, x, stride, rows, width);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < width; c++)
            if (p[(r / panel * width + c) * panel + r % panel] != x[r * stride + c])
                FAIL("row %d, column %d of %d x %d", r, c, rows, width);
}

struct attention_case {
    struct attention a;
    int n_heads, width, stride;
    const float *q, *k, *v, *pos;
    float scale;
};

static struct attention_case random_attention(bool one_query, bool relative)
{
    static const int head_dims[] = {64, 16, 32, 48, 80, 256, 20, 7};
    struct attention_case c = {.n_heads = between(1, 3), .scale = 0.2f};
    const int d = head_dims[below(8)], n_keys = between(1, 150),
              n_queries = one_query  ? 1
                          : relative ? n_keys
                                     : between(1, 40);
    c.width = c.n_heads * d;
    c.stride = c.width + below(7);
    c.q = floats_of((size_t)(n_queries * c.stride));
    c.k = floats_of((size_t)(n_keys * c.stride));
    c.v = floats_of((size_t)(n_keys * c.stride));
    c.a = (struct attention){.head_dim = d,
                             .n_queries = n_queries,
                             .n_keys = n_keys,
                             .causal_first = -1,
                             .q = c.q,
                             .q_stride = c.stride,
                             .v_row = c.stride,
                             .v_head = d,
                             .out_stride = c.width + 3,
                             .scale = c.scale};
    if (!one_query && !relative && coin()) {
        c.a.causal_first = between(0, 60);
        c.a.n_keys = c.a.causal_first + n_queries;
        c.k = floats_of((size_t)(c.a.n_keys * c.stride));
        c.v = floats_of((size_t)(c.a.n_keys * c.stride));
    }
    if (relative) {
        c.pos = floats_of((size_t)((2 * n_keys - 1) * c.stride));
        c.a.bias_u = floats_of((size_t)c.width);
        c.a.bias_w = floats_of((size_t)c.width);
    }
    return c;
}

/* For a level: its own panels, and a cache's order of values where `cache` says so. */
static struct attention for_level(const struct attention_case *c, const struct cpu_kernels *k, float *out, bool cache)
{
    struct attention a = c->a;
    a.k = pack(k, c->k, c->stride, a.n_keys, c->width);
    a.k_panel = (ptrdiff_t)k->panel * c->width;
    a.k_head = a.pos_head = (ptrdiff_t)k->panel * a.head_dim;
    if (c->pos) {
        a.pos = pack(k, c->pos, c->stride, 2 * a.n_keys - 1, c->width);
        a.pos_panel = a.k_panel;
    }
    a.v = c->v;
    a.v_panel = (ptrdiff_t)k->panel * c->stride;
    if (cache) {
        const int d = a.head_dim;
        float *v = floats_of((size_t)(a.n_keys + k->panel) * (size_t)c->width);
        for (int j = 0; j < a.n_keys; j++)
            for (int i = 0; i < c->width; i++)
                v[j / k->panel * a.k_panel + i / d * k->panel * d + j % k->panel * d + i % d] = c->v[j * c->stride + i];
        a.v = v;
        a.v_panel = a.k_panel;
        a.v_head = (ptrdiff_t)k->panel * d;
        a.v_row = d;
    }
    a.out = out;
    return a;
}

/* n floats in f16, for the kernel that reads both. */
static const uint16_t *halves_of(const struct cpu_kernels *k, const float *x, size_t n)
{
    uint16_t *halves = bytes_of(n * sizeof *halves);
    k->narrow(halves, 1, x, (int)n);
    return halves;
}

static void check_attention(struct attention_case c, bool once)
{
    const size_t n = (size_t)(c.a.n_queries - 1) * (size_t)c.a.out_stride + (size_t)c.width;
    float *outs[2];
    const bool in_f16 = once && c.a.head_dim % 16 == 0 && coin(), cache = in_f16 || coin();
    for (int i = 0; i < 2; i++) {
        const struct cpu_kernels *k = i ? &fast : &plain;
        struct attention a = for_level(&c, k, outs[i] = guarded(n), cache);
        if (in_f16) {
            const size_t panels = (size_t)((a.n_keys + k->panel - 1) / k->panel);
            a.k16 = halves_of(k, a.k, panels * (size_t)a.k_panel);
            a.v16 = halves_of(k, a.v, panels * (size_t)a.k_panel);
            a.k = a.v = NULL;
        }
        if (once) {
            enum { FLOATS = 3 * (2 + 256 + ATTENTION_PART) };
            const int parts = (a.n_keys + ATTENTION_PART - 1) / ATTENTION_PART;
            float *memory = floats_of((size_t)parts * FLOATS);
            for (int p = 0; p < parts; p++)
                k->attend_part(&a, c.n_heads, p * ATTENTION_PART,
                               p + 1 < parts ? ATTENTION_PART : a.n_keys - p * ATTENTION_PART, memory + p * FLOATS);
            k->join_parts(&a, c.n_heads, memory, FLOATS, parts);
        } else {
            float *scratch = floats_of(attention_scratch(k, &a));
            const int half = a.n_queries / 2;
            for (int h = 0; h < c.n_heads; h++) {
                if (half) k->attention_tile(&a, h, 0, half, scratch);
                k->attention_tile(&a, h, half, a.n_queries - half, scratch);
            }
        }
    }
    /* Scores round to about sqrt(d) ulp of their size, which exp turns into relative errors of the weights. */
    const double scores = 4 * (double)c.scale * sqrt((double)c.a.head_dim) * (c.pos ? 3 : 1);
    compare(outs[0], outs[1], n, ULP * (8 + 2 * sqrt((double)c.a.head_dim)) * (4 + scores) * 4);
}

static float *spread(int n, float low, float high, bool infinite);

/* Exact both ways: every half is a float, and rounding is to nearest even. */
static void test_narrow(void)
{
    const int n = between(1, 90), step = between(1, 40);
    const float *x = spread(n, -26, 17, true);
    const size_t span = (size_t)(n - 1) * (size_t)step + 1;
    uint16_t *a = bytes_of(span * sizeof *a), *b = bytes_of(span * sizeof *b);
    memset(a, 0x55, span * sizeof *a);
    memset(b, 0x55, span * sizeof *b);
    plain.narrow(a, step, x, n);
    fast.narrow(b, step, x, n);
    if (memcmp(a, b, span * sizeof *a) != 0) FAIL("narrow differs, %d values, step %d", n, step);
}

static void test_widen(void)
{
    const int n = between(1, 90);
    uint16_t *halves = bytes_of((size_t)n * sizeof *halves);
    for (int i = 0; i < n; i++) halves[i] = (uint16_t)(below(0x7C00) | below(2) << 15);
    float *a = guarded((size_t)n), *b = guarded((size_t)n);
    plain.widen(a, halves, n);
    fast.widen(b, halves, n);
    compare(a, b, (size_t)n, 0);
}

static void test_attention_tile(void)
{
    check_attention(random_attention(false, false), false);
    check_attention(random_attention(false, true), false);
}
static void test_attend_part(void)
{
    check_attention(random_attention(true, false), true);
}
static void test_join_parts(void)
{
    test_attend_part();
}

/* n floats from `x` on as pairs, in guarded memory. */
static void test_narrow_pairs(void)
{
    const int n = between(1, 40), columns = 16 * between(1, 5), stride = columns + below(9);
    const float *x = floats_of((size_t)n * (size_t)stride);
    const size_t size = (size_t)((n + 1) / 2) * (size_t)columns;
    float *a = guarded(size), *b = guarded(size);
    narrow_pairs_scalar(x, stride, n, columns, (uint32_t *)a);
    (fast.narrow_pairs ? fast.narrow_pairs : narrow_pairs_scalar)(x, stride, n, columns, (uint32_t *)b);
    if (memcmp(a, b, size * sizeof *a) != 0) FAIL("%d rows of %d columns differ", n, columns);
    check_guards(b, size);
}

/* Rows of x as pairs for a level with panels of `panel`: keys where `channels`, else values. */
static const uint32_t *pairs_of(const struct attention_case *c, const float *x, int rows, int panel, bool channels)
{
    const int d = c->a.head_dim, panels = (rows + panel - 1) / panel;
    uint32_t *pairs = bytes_of((size_t)panels * (size_t)(panel * c->width / 2) * sizeof *pairs);
    for (int h = 0; h < c->n_heads; h++)
        for (int p = 0; p < panels; p++) {
            float block[32 * 256] = {0}; /* [d][panel], or [panel][d] */
            const int n = rows - p * panel < panel ? rows - p * panel : panel;
            for (int r = 0; r < n; r++)
                for (int i = 0; i < d; i++)
                    block[channels ? i * panel + r : r * d + i] = x[(p * panel + r) * c->stride + h * d + i];
            narrow_pairs_scalar(block, channels ? panel : d, channels ? d : panel, channels ? panel : d,
                                pairs + (size_t)(h * panels + p) * (size_t)(panel * d / 2));
        }
    return pairs;
}

static struct attention pairs_for_level(const struct attention_case *c, int panel, float *out)
{
    struct attention a = c->a;
    const ptrdiff_t size = (ptrdiff_t)panel * a.head_dim / 2, panels = (a.n_keys + panel - 1) / panel;
    a.k_pairs_panel = a.v_pairs_panel = a.pos_pairs_panel = size;
    a.k_pairs_head = a.v_pairs_head = size * panels;
    a.pos_pairs_head = size * ((2 * a.n_keys - 1 + panel - 1) / panel);
    a.k_pairs = pairs_of(c, c->k, a.n_keys, panel, true);
    a.v_pairs = pairs_of(c, c->v, a.n_keys, panel, false);
    if (c->pos) a.pos_pairs = pairs_of(c, c->pos, 2 * a.n_keys - 1, panel, true);
    a.out = out;
    return a;
}

/* Both sides round alike, but a weight next to the middle between two bf16 values may go either way: 2^-8 of it. */
static void check_attention_bf16(struct attention_case c)
{
    const size_t n = (size_t)(c.a.n_queries - 1) * (size_t)c.a.out_stride + (size_t)c.width;
    const int half = c.a.n_queries / 2;
    float *expected = guarded(n), *found = guarded(n),
          *scratch = floats_of(attention_scratch(&fast, &c.a) + (size_t)c.a.n_keys);
    const struct attention a = pairs_for_level(&c, 8, expected), b = pairs_for_level(&c, fast.panel, found);
    for (int h = 0; h < c.n_heads; h++) {
        attention_tile_bf16_scalar(&a, h, 0, a.n_queries, scratch);
        if (half) fast.attention_tile_bf16(&b, h, 0, half, scratch);
        fast.attention_tile_bf16(&b, h, half, b.n_queries - half, scratch);
    }
    compare(expected, found, n, 0x1p-8);
}

static void test_attention_tile_bf16(void)
{
    if (!fast.attention_tile_bf16) return;
    struct attention_case full = random_attention(false, false), relative = random_attention(false, true);
    if (full.a.head_dim % fast.panel == 0) check_attention_bf16(full);
    if (relative.a.head_dim % fast.panel == 0) check_attention_bf16(relative);
}

/* ---- rows ---------------------------------------------------------------------------------------------------------- */

static void test_layer_norm(void)
{
    const int n = between(1, 600);
    float *x = floats_of((size_t)n), *gain = floats_of((size_t)n), *bias = floats_of((size_t)n);
    for (int i = 0; i < n; i++) x[i] += 3;
    float *a = guarded((size_t)n), *b = guarded((size_t)n);
    const enum activation act = (enum activation)below(ACT_EXP);
    plain.layer_norm(a, x, gain, bias, n, 1e-5f, act);
    fast.layer_norm(b, x, gain, bias, n, 1e-5f, act);
    compare(a, b, (size_t)n, n == 1 ? 1e-3 : 1e-5); /* one value: the rounding of its mean over sqrt(eps) */
}

/* Values spread over signs and magnitudes, with zeros, subnormals and (where `infinite`) infinities among them. */
static float *spread(int n, float low, float high, bool infinite)
{
    float *x = floats_of((size_t)n);
    for (int i = 0; i < n; i++) {
        const float magnitude = exp2f(low + (high - low) * (float)below(4096) / 4096);
        x[i] = coin() ? magnitude : -magnitude;
        if (below(40) == 0) x[i] = coin() ? 0.0f : -0.0f;
        if (below(40) == 0) x[i] = 1e-40f;
        if (infinite && below(40) == 0) x[i] = coin() ? INFINITY : -INFINITY;
    }
    return x;
}

static double exact_activation(double x, enum activation act, double param)
{
    switch (act) {
    case ACT_NONE:
        return x;
    case ACT_RELU:
        return x > 0 ? x : 0;
    case ACT_LEAKY_RELU:
        return x > 0 ? x : x * param;
    case ACT_SILU:
        return x / (1 + exp(-x));
    case ACT_MISH:
        return x * tanh(log1p(exp(x)));
    case ACT_ELU:
        return x > 0 ? x : expm1(x);
    case ACT_GELU_ERF:
        return 0.5 * x * erfc(-x * 0.7071067811865476);
    case ACT_GELU_TANH:
        return x / (1 + exp(-2 * 0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case ACT_TANH:
        return tanh(x);
    case ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case ACT_ABS:
        return fabs(x);
    case ACT_EXP:
        return exp(x);
    }
    return 0;
}

/* Largest error over the whole range: in ulp of the result, plus what is allowed in ulp of 1 near a zero that cancels. */
static const struct {
    double ulp, absolute;
} activation_errors[] = {
    [ACT_NONE] = {0, 0}, [ACT_RELU] = {0, 0},    [ACT_LEAKY_RELU] = {1, 0}, [ACT_SILU] = {6, 0},
    [ACT_MISH] = {8, 0}, [ACT_ELU] = {3, 0},     [ACT_GELU_ERF] = {4, 0.2}, [ACT_GELU_TANH] = {12, 1},
    [ACT_TANH] = {3, 0}, [ACT_SIGMOID] = {6, 0}, [ACT_ABS] = {0, 0},        [ACT_EXP] = {3, 0},
};

static void test_activate(void)
{
    const int n = between(1, 700);
    for (int act = ACT_NONE; act <= ACT_EXP; act++) {
        const float *x = spread(n, -20, 7, act == ACT_RELU || act == ACT_TANH || act == ACT_EXP);
        float *out = guarded((size_t)n);
        fast.activate(out, x, n, (enum activation)act, 0.1f);
        check_guards(out, (size_t)n);
        for (int i = 0; i < n; i++) {
            const double expected = exact_activation((double)x[i], (enum activation)act, (double)0.1f);
            if (expected == (double)out[i] || (float)expected == out[i]) continue;
            /* Below 1e-30 a negative tail is gone: less than anything that follows can see. */
            const double allowed = activation_errors[act].ulp * 2 * ULP * fabs(expected) +
                                   activation_errors[act].absolute * 2 * ULP + 1e-30;
            if (!(fabs(expected - (double)out[i]) <= allowed))
                FAIL("activation %d of %.9g: expected %.9g, found %.9g (%.1f ulp)", act, (double)x[i], expected,
                     (double)out[i], fabs(expected - (double)out[i]) / fabs(expected) / (2 * ULP));
        }
    }
}

static void test_snake(void)
{
    const int n = between(1, 300);
    float *x = spread(n, -10, 8, false), *alpha = floats_of((size_t)n), *out = guarded((size_t)n);
    for (int i = 0; i < n; i++) alpha[i] = fabsf(alpha[i]) * 4;
    fast.snake(out, x, alpha, n);
    check_guards(out, (size_t)n);
    for (int i = 0; i < n; i++) {
        const double a = (double)alpha[i],
                     angle = (double)(alpha[i] * x[i]); /* the product rounds before its sine is taken */
        const double s = sin(angle), expected = (double)x[i] + s * s / (a + (double)1e-9f);
        const double allowed = 4 * ULP * (fabs((double)x[i]) + 2 * (fabs(s) + 2 * ULP) / (a + 1e-9));
        if (!(fabs(expected - (double)out[i]) <= allowed))
            FAIL("snake of %.9g, alpha %.9g: expected %.9g, found %.9g", (double)x[i], a, expected, (double)out[i]);
    }
}

static void test_add(void)
{
    const int n = between(1, 300);
    float *x = floats_of((size_t)n), *y = floats_of((size_t)n), *a = guarded((size_t)n), *b = guarded((size_t)n);
    const bool two = coin();
    plain.add(a, 2, x, -0.3f, two ? y : NULL, n);
    fast.add(b, 2, x, -0.3f, two ? y : NULL, n);
    compare(a, b, (size_t)n, 20 * ULP);
}

static void test_l2_normalize(void)
{
    const int n = between(1, 400);
    float *x = floats_of((size_t)n), *a = guarded((size_t)n), *b = guarded((size_t)n);
    const float floor = coin() ? 1e-12f : 100;
    plain.l2_normalize(a, x, n, floor);
    fast.l2_normalize(b, x, n, floor);
    compare(a, b, (size_t)n, 6 * ULP);
}

/* ---- vocoder ------------------------------------------------------------------------------------------------------- */

static void test_sine_source(void)
{
    const int M = between(1, 6), H = between(1, SOURCE_MAX_HARMONICS), hop = coin() ? 480 : between(1, 100);
    const size_t n = (size_t)(M * hop);
    float *f0 = floats_of((size_t)M), *noise = floats_of(n * (size_t)(H + 1)), *a = guarded(n), *b = guarded(n);
    double cycles[6];
    for (int m = 0; m < M; m++) {
        f0[m] = coin() ? 100 + 50 * fabsf(f0[m]) : 2;
        cycles[m] = (double)below(1000) / 1000;
    }
    struct source_params p = {.hop = hop,
                              .n_harmonics = H,
                              .sample_rate = 24000,
                              .phase = {floats_of((size_t)H), 1, H, H},
                              .mix = {floats_of((size_t)H), 1, H, H},
                              .mix_bias = {floats_of(1), 1, 1, 1},
                              .noise_stream = rng_stream(seed, "noise"),
                              .first_sample = below(1 << 20)};
    if (coin()) p.noise = (struct array){noise, (int)n, H, H + 1};
    struct source s = {.p = &p, .f0 = f0, .f0_stride = 1, .cycles = cycles, .out = a};
    plain.sine_source(&s, 0, M);
    s.out = b;
    const int half = M / 2;
    fast.sine_source(&s, 0, half);
    fast.sine_source(&s, half, M - half);
    compare(a, b, n, 2e-6);
}

static double hann(int i)
{
    return 0.5 - 0.5 * cos(6.283185307179586 * i / 16);
}

static void test_stft16(void)
{
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 9; k++) {
            const double turn = 6.283185307179586 * (k * i % 16) / 16, edge = k == 0 || k == 8 ? 1 : 2;
            assert_true(fabs((double)stft16_matrix[i][k] - hann(i) * cos(turn)) < ULP);
            assert_true(fabs((double)stft16_matrix[i][9 + k] + hann(i) * sin(turn)) < ULP);
            assert_true(fabs((double)istft16_matrix[k][i] - edge * hann(i) * cos(turn) / 16) < ULP);
            assert_true(fabs((double)istft16_matrix[9 + k][i] +
                             (k == 0 || k == 8 ? 0 : edge) * hann(i) * sin(turn) / 16) < ULP);
            assert_true(fabs((double)window16_squared[i] - hann(i) * hann(i)) < ULP);
        }
    const int len = between(9, 200), frames = len / 4 + 1, stride = 18 + below(4);
    const size_t n = (size_t)(frames * stride);
    float *x = floats_of((size_t)len), *a = guarded(n), *b = guarded(n);
    plain.stft16(a, stride, x, len, 0, frames);
    fast.stft16(b, stride, x, len, 0, frames);
    compare(a, b, n, 40 * ULP);
}

static void test_istft16(void)
{
    const int frames = between(2, 90), stride = 18 + below(4), n = 4 * (frames - 1), cut = 4 * below(frames);
    float *x = floats_of((size_t)(frames * stride)), *a = guarded((size_t)n), *b = guarded((size_t)n);
    plain.istft16(a, x, stride, frames, 0, n, 0.99f);
    if (cut) fast.istft16(b, x, stride, frames, 0, cut, 0.99f);
    if (cut < n) fast.istft16(b, x, stride, frames, cut, n - cut, 0.99f);
    compare(a, b, (size_t)n, 4e-5); /* magnitudes reach e^4 here, weights at the ends fall to 0.5 */
}

/* ---- all of them --------------------------------------------------------------------------------------------------- */

static const struct {
    enum cpu_level level;
    const char *name;
} levels[] = {{CPU_SCALAR, "scalar"}, {CPU_AVX2, "avx2"}, {CPU_AVX512, "avx512"}, {CPU_NEON, "neon"}};

static void run_at_every_level(void (*test)(void))
{
    const uint64_t start = seed;
    cpu_kernels_fill(&plain, CPU_SCALAR);
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (!cpu_has_level(levels[i].level)) continue;
        level_name = levels[i].name;
        cpu_kernels_fill(&fast, levels[i].level);
        for (int round = 0; round < rounds; round++, seed++) {
            drawn = 0;
            test();
            free_blocks();
        }
        seed = start;
    }
}

#define X(name, params)                                                                                                \
    static void name##_matches(void **state)                                                                           \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        run_at_every_level(test_##name);                                                                               \
    }
CPU_KERNELS(X)
CPU_BF16_KERNELS(X)
CPU_INT8_KERNELS(X)
#undef X

int main(int argc, char **argv)
{
    if (argc > 1) seed = strtoull(argv[1], NULL, 10);
    if (argc > 2) rounds = atoi(argv[2]);
    const struct CMUnitTest tests[] = {
#define X(name, params) cmocka_unit_test(name##_matches),
        CPU_KERNELS(X) CPU_BF16_KERNELS(X) CPU_INT8_KERNELS(X)
#undef X
    };
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
