/* device: every op against a few lines of double arithmetic, at the level the environment asks for. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/half.h"
#include "base/mem.h"
#include "device/device.h"
#include "test.h"

static struct device *device;
static struct stream *stream;
static struct rng noise;
static uint64_t drawn;

static void fill(float *x, size_t n)
{
    rng_normal(noise, drawn, n, x);
    drawn += n;
}

static struct array random_array(int rows, int cols)
{
    struct array a = stream_array(stream, rows, cols);
    for (int r = 0; r < rows; r++) fill(array_rows(a, r, 1).data, (size_t)cols);
    return a;
}

static struct array random_row(int cols)
{
    return random_array(1, cols);
}
static float at(struct array a, int r, int c)
{
    return a.data[(size_t)r * (size_t)a.stride + (size_t)c];
}

/* Tolerance: sums of n products of standard normal values, in float: 2e-6 of the result's own scale. */
static double accuracy = 2e-6;

static void assert_close(double expected, float found, double scale)
{
    if (!(fabs(expected - (double)found) <= accuracy * (1 + scale)))
        fail_msg("expected %.9g, found %.9g", expected, (double)found);
}

static int setup(void **state)
{
    (void)state;
    struct error e;
    const utter_status status = device_create_cpu(&device, &(struct device_options){.n_threads = 2}, &e);
    if (status == UTTER_UNSUPPORTED) exit(77); /* a level this machine lacks: skipped */
    if (status != UTTER_OK) fail_msg("%s", e.text);
    assert_int_equal(stream_create(&stream, device, NULL, (size_t)1 << 30, &e), UTTER_OK);
    noise = rng_stream(1, "test_device");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    stream_destroy(&stream);
    device_destroy(&device);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    stream_clear(stream);
    return 0;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* A stored tensor and the floats it stands for. */
struct stored {
    struct tensor t;
    unsigned char *bytes, *misaligned;
    float *values;
};

static struct stored make_tensor(enum dtype type, enum tensor_layout layout, int a, int b, int c)
{
    struct stored s = {
        .t = {.name = "w", .type = type, .layout = layout, .n_dims = c ? 3 : 2, .shape = {a, b, c ? c : 1, 1}}};
    const size_t n = tensor_count(&s.t), block = (size_t)dtype_block(type);
    s.t.n_bytes = n / block * dtype_block_bytes(type);
    s.bytes = malloc(s.t.n_bytes + 64);
    s.values = malloc(n * sizeof(float));
    s.misaligned = s.bytes + (type == DTYPE_F32 ? 2 : 1);
    fill(s.values, n);
    for (size_t i = 0; i < n / block; i++) {
        unsigned char *p = s.misaligned + i * dtype_block_bytes(type);
        const uint16_t half = float_to_half(s.values[i]), bf16 = float_to_bf16(s.values[i]);
        const double wide = (double)s.values[i];
        const uint16_t d = float_to_half(fabsf(s.values[i * block]) / (type == DTYPE_Q8_0 ? 100 : 8));
        switch (type) {
        case DTYPE_F32:
            memcpy(p, &s.values[i], 4);
            break;
        case DTYPE_F16:
            memcpy(p, &half, 2);
            break;
        case DTYPE_BF16:
            memcpy(p, &bf16, 2);
            break;
        case DTYPE_F64:
            memcpy(p, &wide, 8);
            break;
        default:
            memcpy(p, &d, 2);
            for (size_t k = 2; k < dtype_block_bytes(type); k++) p[k] = (unsigned char)rng_bits(noise, drawn++);
        }
    }
    s.t.data = s.misaligned;
    tensor_read_f32(&s.t, 0, n, s.values);
    return s;
}

static void free_tensor(struct stored *s)
{
    free(s->bytes);
    free(s->values);
}

static double activation(double v, enum activation act, double param)
{
    switch (act) {
    case ACT_NONE:
        return v;
    case ACT_RELU:
        return fmax(v, 0);
    case ACT_LEAKY_RELU:
        return v > 0 ? v : param * v;
    case ACT_SILU:
        return v / (1 + exp(-v));
    case ACT_MISH:
        return v * tanh(log1p(exp(v)));
    case ACT_ELU:
        return v > 0 ? v : exp(v) - 1;
    case ACT_GELU_ERF:
        return 0.5 * v * (1 + erf(v / sqrt(2)));
    case ACT_GELU_TANH:
        return 0.5 * v * (1 + tanh(sqrt(2 / acos(-1)) * (v + 0.044715 * v * v * v)));
    case ACT_TANH:
        return tanh(v);
    case ACT_SIGMOID:
        return 1 / (1 + exp(-v));
    case ACT_ABS:
        return fabs(v);
    case ACT_EXP:
        return exp(v);
    }
    return NAN;
}

static double finish(double v, const float *bias, const struct epilogue *e, int row, int col)
{
    if (bias) v += (double)bias[col];
    if (array_exists(e->row_add)) v += (double)at(e->row_add, 0, col);
    if (array_exists(e->snake_alpha)) {
        const double alpha = (double)at(e->snake_alpha, 0, col);
        v += pow(sin(alpha * v), 2) / (alpha + 1e-9);
    } else
        v = activation(v, e->act, (double)e->act_param);
    v *= e->scale == 0 ? 1 : (double)e->scale;
    return array_exists(e->residual) ? v + (double)at(e->residual, row, col) : v;
}

/* W[k][n][c] in the layout the tensor has. */
static double weight_at(const struct stored *s, enum weight_kind kind, int k, int n, int c)
{
    const int64_t *d = s->t.shape;
    const int64_t taps = s->t.n_dims == 3 ? d[2] : 1;
    if (s->t.layout == LAYOUT_TAPS_OUT_IN)
        return (double)(s->t.n_dims == 3 ? s->values[(k * d[1] + n) * d[2] + c] : s->values[n * d[1] + c]);
    if (kind == WEIGHT_LINEAR_GPT2 || kind == WEIGHT_CONV_TRANSPOSE)
        return (double)s->values[(c * d[1] + n) * taps + k];
    return (double)s->values[(n * d[1] + c) * taps + k];
}

struct conv_case {
    enum weight_kind kind;
    enum dtype type;
    enum tensor_layout layout;
    int in, out, k, rows, x_rows, stride, dilation, pad;
    bool bias;
    struct epilogue e; /* filled in: existence is asked for by rows = 1 */
    double slack;      /* beyond rounding: 8-bit activations */
};

static void check_conv(struct conv_case c)
{
    const bool transposed = c.kind == WEIGHT_CONV_TRANSPOSE, in_first = transposed || c.kind == WEIGHT_LINEAR_GPT2;
    struct stored w = c.layout == LAYOUT_TAPS_OUT_IN ? (c.k > 1 ? make_tensor(c.type, c.layout, c.k, c.out, c.in)
                                                                : make_tensor(c.type, c.layout, c.out, c.in, 0))
                                                     : make_tensor(c.type, c.layout, in_first ? c.in : c.out,
                                                                   in_first ? c.out : c.in, c.k > 1 ? c.k : 0);
    struct array bias = c.bias ? random_row(c.out) : (struct array){0};
    struct weight *weight;
    struct error error;
    if (weight_create(&weight, device, c.kind, &w.t, bias, &error) != UTTER_OK) fail_msg("%s", error.text);
    assert_int_equal(weight_in(weight), c.in);
    assert_int_equal(weight_out(weight), c.out);
    assert_int_equal(weight_taps(weight), c.k);
    struct array x = array_cols(random_array(c.x_rows, c.in + 3), 1, c.in); /* a view with a stride */
    struct array out = array_cols(random_array(c.rows, c.out + 5), 2, c.out);
    if (c.e.row_add.rows) c.e.row_add = random_row(c.out);
    if (c.e.snake_alpha.rows) {
        c.e.snake_alpha = random_row(c.out);
        op_activate(stream, c.e.snake_alpha, c.e.snake_alpha, ACT_EXP, 0);
    }
    struct array residual = {0};
    if (c.e.residual.rows) { /* in place: the output's own old values */
        residual = random_array(c.rows, c.out);
        op_copy(stream, out, residual);
        c.e.residual = out;
    }
    const float before = out.data[-1], after = out.data[c.out];
    if (transposed)
        op_conv_transpose1d(stream, out, x, weight, c.stride, c.pad, c.e);
    else
        op_conv1d(stream, out, x, weight, (struct conv_shape){c.stride, c.dilation, c.pad}, c.e);
    assert_string_equal(stream_error(stream), "");
    assert_int_equal(stream_status(stream), UTTER_OK);
    assert_true(out.data[-1] == before && out.data[c.out] == after);
    c.e.residual = residual;
    for (int t = 0; t < c.rows; t++)
        for (int n = 0; n < c.out; n++) {
            double sum = 0, magnitude = 0;
            for (int k = 0; k < c.k; k++) {
                int row = t * (c.stride ? c.stride : 1) + k * (c.dilation ? c.dilation : 1) - c.pad;
                if (transposed) {
                    if ((t + c.pad - k) % c.stride != 0) continue;
                    row = (t + c.pad - k) / c.stride;
                }
                if (row < 0 || row >= c.x_rows) continue;
                for (int i = 0; i < c.in; i++) {
                    const double product = (double)at(x, row, i) * weight_at(&w, c.kind, k, n, i);
                    sum += product;
                    magnitude += fabs(product);
                }
            }
            const double expected = finish(sum, bias.data, &c.e, t, n);
            assert_close(expected, at(out, t, n), magnitude + fabs(expected) + c.slack * magnitude / 2e-6);
        }
    weight_destroy(&weight);
    free_tensor(&w);
    stream_clear(stream);
}

static const enum dtype stored_types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q5_0, DTYPE_Q4_0};

static void linear_in_every_type(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++)
        for (int rows = 1; rows <= 41; rows += rows < 6 ? 1 : 35) {
            const bool quantized = dtype_block(stored_types[i]) == 32;
            const double slack =
                quantized && rows <= 4 ? 0.01 : 0; /* activations rounded to 1/127 of their block's largest */
            check_conv((struct conv_case){.kind = WEIGHT_LINEAR,
                                          .type = stored_types[i],
                                          .layout = i & 1 ? LAYOUT_TORCH : LAYOUT_TAPS_OUT_IN,
                                          .in = 96,
                                          .out = 70,
                                          .k = 1,
                                          .rows = rows,
                                          .x_rows = rows,
                                          .bias = true,
                                          .slack = slack});
            check_conv((struct conv_case){.kind = WEIGHT_LINEAR_GPT2,
                                          .type = stored_types[i],
                                          .in = 45,
                                          .out = 160,
                                          .k = 1,
                                          .rows = rows,
                                          .x_rows = rows,
                                          .bias = rows & 1});
        }
    check_conv((struct conv_case){
        .kind = WEIGHT_LINEAR, .type = DTYPE_F64, .in = 5, .out = 3, .k = 1, .rows = 2, .x_rows = 2});
    check_conv((struct conv_case){
        .kind = WEIGHT_LINEAR, .in = 1023, .out = 1, .k = 1, .rows = 33, .x_rows = 33, .bias = true});
    check_conv((struct conv_case){.kind = WEIGHT_LINEAR, .in = 1, .out = 33, .k = 1, .rows = 9, .x_rows = 9});
    check_conv((struct conv_case){.kind = WEIGHT_LINEAR, .in = 1100, .out = 50, .k = 1, .rows = 30, .x_rows = 30});
    check_conv((struct conv_case){
        .kind = WEIGHT_EMBEDDING, .type = DTYPE_F16, .in = 40, .out = 300, .k = 1, .rows = 1, .x_rows = 1});
}

#define WANTED                                                                                                         \
    {                                                                                                                  \
        .rows = 1                                                                                                      \
    }
/* clang-format off */
static const struct conv_case conv_cases[] = {
    /* type, layout, in, out, k, rows, x_rows, stride, dilation, pad, bias, epilogue */
#define CASE(type, layout, ...) {WEIGHT_CONV1D, DTYPE_##type, LAYOUT_##layout, __VA_ARGS__, 0}
    CASE(F32, TORCH, 20, 33, 3, 50, 50, 1, 1, 1, true, {.act = ACT_NONE}),
    CASE(F16, TORCH, 20, 33, 7, 50, 50, 0, 5, 15, true, {.act = ACT_ELU}),
    CASE(BF16, TAPS_OUT_IN, 31, 65, 11, 301, 301, 1, 3, 15, false, {.snake_alpha = WANTED, .residual = WANTED, .scale = 0.5f}),
    CASE(Q8_0, TAPS_OUT_IN, 32, 40, 3, 30, 30, 1, 1, 2, false, {.act = ACT_MISH, .row_add = WANTED}),
    CASE(F32, TORCH, 18, 64, 30, 20, 300, 15, 1, 7, true, {.act = ACT_NONE}),
    CASE(F32, TORCH, 18, 16, 6, 34, 100, 3, 1, 1, true, {.act = ACT_NONE}),
    CASE(F32, TORCH, 64, 18, 7, 700, 700, 1, 1, 3, true, {.act = ACT_NONE}),
    CASE(F32, TORCH, 8, 4, 4, 1, 1, 1, 1, 0, true, {.residual = WANTED}),      /* right padding implied */
    CASE(F32, TORCH, 8, 4, 3, 3, 2, 1, 9, 9, false, {.act = ACT_NONE}),        /* taps beyond both ends */
    CASE(F32, TORCH, 700, 40, 3, 20, 20, 2, 2, 3, true, {.act = ACT_SILU}),
#undef CASE
};
/* clang-format on */

/* A converted file stores matrices the other way round, and must speak the same bytes. */
static void layouts_give_the_same_bytes(void **state)
{
    (void)state;
    for (int rows = 1; rows < 40; rows += rows < 5 ? 1 : 29)
        for (int type = DTYPE_F32; type <= DTYPE_BF16; type++) {
            enum { IN = 91, OUT = 75 };
            struct stored w = make_tensor((enum dtype)type, LAYOUT_TORCH, IN, OUT, 0),
                          turned = make_tensor((enum dtype)type, LAYOUT_TORCH, OUT, IN, 0);
            const size_t size = dtype_block_bytes((enum dtype)type);
            for (int i = 0; i < IN * OUT; i++)
                memcpy(turned.misaligned + (size_t)(i % OUT * IN + i / OUT) * size, w.misaligned + (size_t)i * size,
                       size);
            struct weight *a, *b;
            assert_int_equal(weight_create(&a, device, WEIGHT_LINEAR_GPT2, &w.t, (struct array){0}, NULL), UTTER_OK);
            assert_int_equal(weight_create(&b, device, WEIGHT_LINEAR, &turned.t, (struct array){0}, NULL), UTTER_OK);
            struct array x = random_array(rows, IN), one = stream_array(stream, rows, OUT),
                         other = stream_array(stream, rows, OUT);
            op_linear(stream, one, x, a, (struct epilogue){0});
            op_linear(stream, other, x, b, (struct epilogue){0});
            assert_int_equal(stream_status(stream), UTTER_OK);
            for (int r = 0; r < rows; r++)
                assert_memory_equal(array_rows(one, r, 1).data, array_rows(other, r, 1).data, OUT * sizeof(float));
            weight_destroy(&a);
            weight_destroy(&b);
            free_tensor(&w);
            free_tensor(&turned);
            stream_clear(stream);
        }
}

static void convolutions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof conv_cases / sizeof *conv_cases; i++) check_conv(conv_cases[i]);
}

static void transposed_convolutions(void **state)
{
    (void)state;
    const int shapes[4][3] = {{16, 8, 4}, {11, 5, 3}, {7, 3, 2}, {3, 4, 0}};
    for (int i = 0; i < 4; i++) {
        struct conv_case c = {.kind = WEIGHT_CONV_TRANSPOSE,
                              .type = i & 1 ? DTYPE_F16 : DTYPE_F32,
                              .in = 37,
                              .out = 21,
                              .k = shapes[i][0],
                              .x_rows = 9,
                              .rows = 9 * shapes[i][1],
                              .stride = shapes[i][1],
                              .pad = shapes[i][2],
                              .bias = true};
        check_conv(c);
        c.layout = LAYOUT_TAPS_OUT_IN;
        c.e.residual.rows = 1;
        c.rows += 3;
        check_conv(c);
    }
    check_conv((struct conv_case){
        .kind = WEIGHT_CONV_TRANSPOSE, .in = 6, .out = 5, .k = 1, .x_rows = 4, .rows = 4, .stride = 1});
}

static void epilogues(void **state)
{
    (void)state;
    const struct array wanted = {.rows = 1};
    for (int act = ACT_NONE; act <= ACT_EXP; act++) {
        struct conv_case c = {
            .kind = WEIGHT_LINEAR, .in = 16, .out = 37, .k = 1, .x_rows = 19, .rows = 19, .bias = act & 1};
        c.e = (struct epilogue){.act = (enum activation)act, .act_param = 0.1f, .scale = act & 2 ? 0.25f : 0};
        if (act & 1) c.e.residual = wanted;
        if (act % 3 == 0) c.e.row_add = wanted;
        check_conv(c);
        c.rows = c.x_rows = 2;
        check_conv(c);
    }
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

struct attention_case {
    int n_queries, n_keys, n_heads, head_dim, first; /* first < 0: all keys */
    bool relative;
};

static void check_attention(struct array out, struct array q, struct array k, struct array v, struct array pos,
                            struct array u, struct array w, struct attention_case c, double scale)
{
    double *p = malloc((size_t)c.n_keys * sizeof *p);
    for (int h = 0; h < c.n_heads; h++)
        for (int i = 0; i < c.n_queries; i++) {
            const int n = c.first < 0 ? c.n_keys : c.first + i + 1;
            double largest = -INFINITY, total = 0;
            for (int j = 0; j < n; j++) {
                p[j] = 0;
                for (int d = h * c.head_dim; d < (h + 1) * c.head_dim; d++) {
                    p[j] += ((double)at(q, i, d) + (c.relative ? (double)u.data[d] : 0)) * (double)at(k, j, d);
                    if (c.relative)
                        p[j] += ((double)at(q, i, d) + (double)w.data[d]) * (double)at(pos, n - 1 - i + j, d);
                }
                largest = fmax(largest, p[j] *= scale);
            }
            for (int j = 0; j < n; j++) total += p[j] = exp(p[j] - largest);
            for (int d = h * c.head_dim; d < (h + 1) * c.head_dim; d++) {
                double sum = 0;
                for (int j = 0; j < n; j++) sum += p[j] * (double)at(v, j, d);
                assert_close(sum / total, at(out, i, d), 2 * scale * c.head_dim);
            }
        }
    free(p);
}

static void check_full_attention(void)
{
    const struct attention_case cases[] = {
        {1, 1, 1, 16, -1, false}, {33, 50, 2, 64, -1, false},  {70, 70, 3, 16, -1, true},   {5, 33, 1, 256, -1, false},
        {1, 1, 2, 64, -1, true},  {101, 101, 2, 64, -1, true}, {17, 200, 2, 48, -1, false}, {9, 9, 1, 20, -1, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct attention_case c = cases[i];
        const int width = c.n_heads * c.head_dim;
        struct array q = array_cols(random_array(c.n_queries, 2 * width), 0, width);
        struct array kv = random_array(c.n_keys, 2 * width), k = array_cols(kv, 0, width),
                     v = array_cols(kv, width, width);
        struct array pos = random_array(2 * c.n_keys - 1, width), u = random_row(width), w = random_row(width);
        struct array out = stream_array(stream, c.n_queries, width);
        if (c.relative)
            op_attention_relative(stream, out, q, k, v, pos, u, w, c.n_heads, 0.125f);
        else
            op_attention(stream, out, q, k, v, c.n_heads, 0.125f);
        assert_string_equal(stream_error(stream), "");
        check_attention(out, q, k, v, pos, u, w, c, 0.125);
        stream_clear(stream);
    }
}

static void attention_is_full(void **state)
{
    (void)state;
    check_full_attention();
}

static void attention_survives_large_scores(void **state)
{
    (void)state;
    struct array q = random_array(3, 16), v = random_array(40, 16), k = random_array(40, 16);
    op_add(stream, q, 300, q, 0, (struct array){0});
    struct array out = stream_array(stream, 3, 16);
    op_attention(stream, out, q, k, v, 1, 1);
    check_attention(out, q, k, v, (struct array){0}, q, q, (struct attention_case){3, 40, 1, 16, -1, false}, 1);
}

/* Numbers that an f16 cache holds as they are. */
static struct array random_halves(int rows, int cols)
{
    struct array a = random_array(rows, cols);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) {
            float *x = array_rows(a, r, 1).data + c;
            *x = half_to_float(float_to_half(*x));
        }
    return a;
}

static void cached_attention(enum dtype type, int dim)
{
    enum { HEADS = 3, TOTAL = 90, KEPT = 38 };
    const int width = HEADS * dim;
    struct kv_cache *kv, *copy;
    assert_int_equal(kv_cache_create(&kv, device, type, 2, TOTAL, width, NULL), UTTER_OK);
    assert_int_equal(kv_cache_positions(kv), TOTAL);
    struct array q = random_array(TOTAL, width), k = random_halves(TOTAL, width), v = random_halves(TOTAL, width);
    struct array out = stream_array(stream, TOTAL, width);
    const int ends[] = {37, 38, 39, 72, 90};
    for (int i = 0, first = 0; i < 5; first = ends[i++]) {
        const int n = ends[i] - first;
        for (int layer = 1; layer >= 0; layer--) /* layer 1 sees the keys as values */
            op_attention_cached(stream, array_rows(out, first, n), array_rows(q, first, n),
                                array_rows(layer ? v : k, first, n), array_rows(layer ? k : v, first, n), kv, layer,
                                first, HEADS, 0.25f);
    }
    assert_int_equal(stream_status(stream), UTTER_OK);
    check_attention(out, q, k, v, k, k, k, (struct attention_case){TOTAL, TOTAL, HEADS, dim, 0, false}, 0.25);

    /* A copy of the first positions, in a smaller cache, goes on as the original did, to the bit. */
    struct array again = stream_array(stream, TOTAL, width);
    assert_int_equal(kv_cache_create(&copy, device, type, 2, KEPT + 1, width, NULL), UTTER_OK);
    kv_cache_copy(stream, copy, kv, KEPT);
    op_attention_cached(stream, array_rows(again, KEPT, 1), array_rows(q, KEPT, 1), array_rows(k, KEPT, 1),
                        array_rows(v, KEPT, 1), copy, 0, KEPT, HEADS, 0.25f);
    assert_int_equal(stream_status(stream), UTTER_OK);
    assert_memory_equal(array_rows(again, KEPT, 1).data, array_rows(out, KEPT, 1).data, width * sizeof(float));

    /* Two caches in one call, at their own positions: the same again. */
    kv_cache_copy(stream, copy, kv, KEPT);
    struct kv_cache *const both[] = {copy, kv};
    const int at_last[] = {KEPT, TOTAL - 1}, too_far[] = {KEPT, TOTAL};
    struct array q2 = stream_array(stream, 2, width), k2 = stream_array(stream, 2, width),
                 v2 = stream_array(stream, 2, width), out2 = stream_array(stream, 2, width);
    for (int i = 0; i < 2; i++) {
        op_copy(stream, array_rows(q2, i, 1), array_rows(q, at_last[i], 1));
        op_copy(stream, array_rows(k2, i, 1), array_rows(k, at_last[i], 1));
        op_copy(stream, array_rows(v2, i, 1), array_rows(v, at_last[i], 1));
    }
    op_attention_cached(stream, array_rows(out, TOTAL - 1, 1), array_rows(q2, 1, 1), array_rows(k2, 1, 1),
                        array_rows(v2, 1, 1), kv, 0, TOTAL - 1, HEADS, 0.25f);
    op_attention_each(stream, out2, q2, k2, v2, both, 0, at_last, HEADS, 0.25f);
    assert_int_equal(stream_status(stream), UTTER_OK);
    for (int i = 0; i < 2; i++)
        assert_memory_equal(array_rows(out2, i, 1).data, array_rows(out, at_last[i], 1).data, width * sizeof(float));
    op_attention_each(stream, out2, q2, k2, v2, both, 0, too_far, HEADS, 0.25f);
    assert_int_equal(stream_status(stream), UTTER_INVALID_ARGUMENT);
    stream_clear(stream);
    kv_cache_copy(stream, copy, kv, KEPT + 2);
    assert_int_equal(stream_status(stream), UTTER_INVALID_ARGUMENT);
    stream_clear(stream);
    kv_cache_destroy(&copy);

    struct array row = random_array(1, width);
    op_attention_cached(stream, row, row, row, row, kv, 0, TOTAL, HEADS, 1);
    assert_int_equal(stream_status(stream), UTTER_INVALID_ARGUMENT);
    stream_clear(stream);
    kv_cache_destroy(&kv);
    assert_null(kv);
    kv_cache_destroy(&kv);
}

static void cached_attention_grows(void **state)
{
    (void)state;
    struct kv_cache *kv;
    cached_attention(DTYPE_F32, 16);
    cached_attention(DTYPE_F16, 16);
    assert_int_equal(kv_cache_create(&kv, device, DTYPE_F32, 0, 1, 1, NULL), UTTER_INVALID_ARGUMENT);
    assert_int_equal(kv_cache_create(&kv, device, DTYPE_Q8_0, 1, 1, 1, NULL), UTTER_INVALID_ARGUMENT);
    assert_int_equal(kv_cache_create(&kv, device, DTYPE_F16, 1, 4, 24, NULL), UTTER_OK);
    struct array row = random_array(1, 24); /* heads of 8 */
    op_attention_cached(stream, row, row, row, row, kv, 0, 0, 3, 1);
    assert_int_equal(stream_status(stream), UTTER_INVALID_ARGUMENT);
    kv_cache_destroy(&kv);
}

/* bf16 leaves 8 bits; heads of 64 and 256 take that path where the CPU has it. */
static void fast_attention_is_close(void **state)
{
    (void)state;
    struct device *const exact_device = device;
    struct stream *const exact_stream = stream;
    assert_int_equal(
        device_create_cpu(&device, &(struct device_options){.n_threads = 2, .precision = PRECISION_FAST}, NULL),
        UTTER_OK);
    assert_int_equal(stream_create(&stream, device, NULL, (size_t)1 << 28, NULL), UTTER_OK);
    accuracy = 2e-3;
    check_full_attention();
    cached_attention(DTYPE_F32, 64);
    cached_attention(DTYPE_F16, 64);
    accuracy = 2e-6;
    stream_destroy(&stream);
    device_destroy(&device);
    device = exact_device;
    stream = exact_stream;
}

/* A query's result does not depend on how many come with it, nor where a batch ends: to the bit. */
static void queries_do_not_depend_on_their_batch(void **state)
{
    (void)state;
    enum { TOTAL = 300, WIDTH = 128 };
    struct array q = random_array(TOTAL, WIDTH), k = random_array(TOTAL, WIDTH), v = random_array(TOTAL, WIDTH);
    struct array whole = stream_array(stream, TOTAL, WIDTH), parts = stream_array(stream, TOTAL, WIDTH);
    for (int precision = PRECISION_F32; precision <= PRECISION_FAST; precision++) {
        struct device *d;
        struct stream *s;
        struct kv_cache *kv;
        const struct device_options o = {.n_threads = 2, .precision = (enum precision)precision};
        assert_int_equal(device_create_cpu(&d, &o, NULL), UTTER_OK);
        assert_int_equal(stream_create(&s, d, NULL, (size_t)1 << 28, NULL), UTTER_OK);
        assert_int_equal(kv_cache_create(&kv, d, DTYPE_F32, 1, TOTAL, WIDTH, NULL), UTTER_OK);
        op_attention_cached(s, whole, q, k, v, kv, 0, 0, 2, 0.125f);
        for (int first = 0, n = 17; first < TOTAL; first += n, n = TOTAL - first < 66 ? TOTAL - first : 25)
            op_attention_cached(s, array_rows(parts, first, n), array_rows(q, first, n), array_rows(k, first, n),
                                array_rows(v, first, n), kv, 0, first, 2, 0.125f);
        assert_int_equal(stream_status(s), UTTER_OK);
        for (int r = 0; r < TOTAL; r++)
            assert_memory_equal(array_rows(whole, r, 1).data, array_rows(parts, r, 1).data, WIDTH * sizeof(float));
        kv_cache_destroy(&kv);
        stream_destroy(&s);
        device_destroy(&d);
    }
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void rows_are_looked_up(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct stored table = make_tensor(stored_types[i], LAYOUT_TORCH, 11, 544, 0);
        struct weight *w;
        assert_int_equal(weight_create(&w, device, WEIGHT_EMBEDDING, &table.t, (struct array){0}, NULL), UTTER_OK);
        struct array out = stream_array(stream, 3, 544);
        op_embed(stream, out, w, (const int32_t[]){10, 0, 10}, false);
        op_embed(stream, array_rows(out, 1, 2), w, (const int32_t[]){1, 2}, true);
        for (int c = 0; c < 544; c++) {
            assert_true(at(out, 0, c) == table.values[10 * 544 + c]);
            assert_true(at(out, 1, c) == table.values[c] + table.values[544 + c]);
            assert_true(at(out, 2, c) == table.values[10 * 544 + c] + table.values[2 * 544 + c]);
        }
        op_embed(stream, array_rows(out, 0, 1), w, (const int32_t[]){11}, false);
        assert_int_equal(stream_status(stream), UTTER_INVALID_ARGUMENT);
        assert_non_null(strstr(stream_error(stream), "11"));
        stream_clear(stream);
        op_embed(stream, stream_array(stream, 1, 544), w, (const int32_t[]){-1}, false);
        assert_int_equal(stream_status(stream), UTTER_INVALID_ARGUMENT);
        stream_clear(stream);
        weight_destroy(&w);
        free_tensor(&table);
    }
}

static void rows_are_normalised(void **state)
{
    (void)state;
    for (int n = 1; n < 700; n += n < 40 ? 1 : 131) {
        struct array x = random_array(3, n), gain = random_row(n), bias = random_row(n),
                     out = stream_array(stream, 3, n);
        op_add(stream, x, 1, x, 5, random_row(n)); /* a mean well away from zero */
        op_layer_norm(stream, out, x, gain, bias, 1e-5f, ACT_MISH);
        for (int r = 0; r < 3; r++) {
            double mean = 0, var = 0;
            for (int c = 0; c < n; c++) mean += (double)at(x, r, c) / n;
            for (int c = 0; c < n; c++) var += pow((double)at(x, r, c) - mean, 2) / n;
            for (int c = 0; c < n; c++) {
                const double v = ((double)at(x, r, c) - mean) / sqrt(var + (double)1e-5f) * (double)at(gain, 0, c) +
                                 (double)at(bias, 0, c);
                assert_close(activation(v, ACT_MISH, 0), at(out, r, c), 4 + fabs(v));
            }
        }
        op_l2_normalize(stream, out, x, 1e-12f);
        for (int r = 0; r < 3; r++) {
            double norm = 0;
            for (int c = 0; c < n; c++) norm += pow((double)at(x, r, c), 2);
            for (int c = 0; c < n; c++) assert_close((double)at(x, r, c) / sqrt(norm), at(out, r, c), 0);
        }
        stream_clear(stream);
    }
    struct array zero = stream_array(stream, 1, 9);
    op_fill(stream, zero, 0);
    op_l2_normalize(stream, zero, zero, 1e-12f);
    for (int c = 0; c < 9; c++) assert_true(at(zero, 0, c) == 0);
}

static void activations_over_their_range(void **state)
{
    (void)state;
    enum { N = 4001 };
    float values[N];
    for (int i = 0; i < N; i++) values[i] = ((float)i - 2000) * (i % 2 ? 0.01f : 0.05f);
    struct array x = stream_upload(stream, 1, N, values), out = stream_array(stream, 1, N);
    for (int act = ACT_NONE; act <= ACT_EXP; act++) {
        op_activate(stream, out, x, (enum activation)act, 0.01f);
        for (int i = 0; i < N; i++) {
            if (act == ACT_EXP && values[i] > 80) continue;
            const double expected = activation((double)values[i], (enum activation)act, (double)0.01f);
            if (!(fabs(expected - (double)at(out, 0, i)) <= 3e-6 * fabs(expected) + 3e-7))
                fail_msg("activation %d of %g: expected %.9g, found %.9g", act, (double)values[i], expected,
                         (double)at(out, 0, i));
        }
    }
    struct array alpha = stream_array(stream, 1, N);
    for (int i = 0; i < N; i++) alpha.data[i] = i % 7 ? 0.01f + (float)(i % 97) * 0.05f : 0;
    op_snake(stream, out, x, alpha);
    for (int i = 0; i < N; i++) {
        const double a = (double)alpha.data[i], v = (double)values[i], product = (double)(float)(a * v);
        const double expected = v + pow(sin(product), 2) / (a + 1e-9);
        assert_close(expected, at(out, 0, i), fabs(expected) + fabs(product) / (a + 1e-9) * 0.1);
    }
    op_activate(stream, x, x, ACT_TANH, 0); /* in place */
    assert_close(tanh((double)values[17]), at(x, 0, 17), 0);
}

static void rows_are_added_copied_repeated(void **state)
{
    (void)state;
    struct array x = random_array(5, 37), y = random_array(5, 37), row = random_row(37),
                 out = stream_array(stream, 5, 37);
    const struct array none = {0};
    op_add(stream, out, 2, x, -1, y);
    for (int c = 0; c < 37; c++) assert_close(2 * (double)at(x, 3, c) - (double)at(y, 3, c), at(out, 3, c), 1);
    op_add(stream, out, 1, row, 3, x);
    for (int c = 0; c < 37; c++) assert_close((double)at(row, 0, c) + 3 * (double)at(x, 4, c), at(out, 4, c), 1);
    op_add(stream, out, 4, x, 9, none);
    for (int c = 0; c < 37; c++) assert_true(at(out, 2, c) == 4 * at(x, 2, c));
    op_copy(stream, out, row);
    for (int c = 0; c < 37; c++) assert_true(at(out, 2, c) == at(row, 0, c));
    struct array twice = stream_array(stream, 10, 37);
    op_repeat_rows(stream, twice, x, 2);
    for (int r = 0; r < 10; r++)
        for (int c = 0; c < 37; c++) assert_true(at(twice, r, c) == at(x, r / 2, c));
    op_fill(stream, array_cols(twice, 3, 5), 7);
    assert_true(at(twice, 4, 2) == at(x, 2, 2) && at(twice, 4, 3) == 7 && at(twice, 4, 7) == 7 &&
                at(twice, 4, 8) == at(x, 2, 8));
    float read[2 * 37];
    stream_read(stream, read, array_rows(x, 1, 2));
    for (int i = 0; i < 2 * 37; i++) assert_true(read[i] == at(x, 1 + i / 37, i % 37));
}

/* ---- vocoder ----------------------------------------------------------------------------------------------------- */

static const double two_pi = 6.283185307179586;

static void source_follows_its_definition(void **state)
{
    (void)state;
    enum { M = 11, HOP = 480, L = M * HOP, H = 9 };
    struct array f0 = random_array(M, 1), phase = random_row(H), mix = random_row(H), bias = random_row(1);
    struct array out = stream_array(stream, L, 1), again = stream_array(stream, L, 1), given = random_array(L, H);
    for (int m = 0; m < M; m++) f0.data[m] = m % 4 == 3 ? 3.0f : 180 + 40 * f0.data[m];
    double end = 0;
    struct source_params p = {.hop = HOP,
                              .n_harmonics = H,
                              .sample_rate = 24000,
                              .phase = phase,
                              .mix = mix,
                              .mix_bias = bias,
                              .noise = given,
                              .start_cycles = 0.3,
                              .end_cycles = &end};
    op_sine_source(stream, out, f0, &p);
    double cycles = 0.3;
    for (int n = 0; n < L; n++) {
        const double f = (double)f0.data[n / HOP];
        cycles += f / 24000;
        double sum = (double)bias.data[0];
        for (int h = 0; h < H; h++) {
            const double s = f > 10 ? 0.1 * sin(two_pi * fmod(cycles * (h + 1), 1) + (double)phase.data[h]) : 0;
            sum += (double)mix.data[h] * (s + (f > 10 ? 0.003 : 0.1 / 3) * (double)at(given, n, h));
        }
        assert_close(tanh(sum), out.data[n], 1);
    }
    assert_true(fabs(end - fmod(cycles, 1)) < 1e-9);
    /* Own noise: chunks continue each other exactly. */
    p.noise = (struct array){0};
    p.noise_stream = rng_stream(5, "source");
    op_sine_source(stream, out, f0, &p);
    op_sine_source(stream, array_rows(again, 0, 3 * HOP), array_rows(f0, 0, 3), &p);
    p.start_cycles = end;
    p.first_sample = 3 * HOP;
    op_sine_source(stream, array_rows(again, 3 * HOP, L - 3 * HOP), array_rows(f0, 3, M - 3), &p);
    assert_memory_equal(out.data, again.data, L * sizeof(float));
    float first[H];
    rng_normal(p.noise_stream, (uint64_t)HOP * 3 * H, H, first);
    double sum = (double)bias.data[0];
    for (int h = 0; h < H; h++) sum += (double)mix.data[h] * 0.1 / 3 * (double)first[h];
    assert_close(tanh(sum), out.data[3 * HOP], 1); /* frame 3 is unvoiced */
}

static double hann(int i)
{
    return 0.5 - 0.5 * cos(two_pi * i / 16);
}

static void short_fourier_transform_and_back(void **state)
{
    (void)state;
    for (int len = 9; len < 4000; len = len * 3 + 1) {
        struct array x = random_array(len, 1), out = stream_array(stream, len / 4 + 1, 18);
        op_stft16(stream, out, x);
        assert_string_equal(stream_error(stream), "");
        for (int f = 0; f < out.rows; f++)
            for (int k = 0; k <= 8; k++) {
                double re = 0, im = 0;
                for (int i = 0; i < 16; i++) {
                    int n = abs(4 * f + i - 8);
                    if (n >= len) n = 2 * (len - 1) - n;
                    re += hann(i) * (double)x.data[n] * cos(two_pi * k * i / 16);
                    im -= hann(i) * (double)x.data[n] * sin(two_pi * k * i / 16);
                }
                assert_close(re, at(out, f, k), 6);
                assert_close(im, at(out, f, 9 + k), 6);
            }
        const int frames = out.rows;
        struct array spectrum = random_array(frames, 18), wave = stream_array(stream, 4 * (frames - 1), 1);
        op_istft16(stream, wave, spectrum, 0.99f);
        for (int o = 0; o < wave.rows; o++) {
            double sum = 0, weight = 0, scale = 0;
            for (int f = 0; f < frames; f++) {
                const int i = o + 8 - 4 * f;
                if (i < 0 || i > 15) continue;
                for (int k = 0; k <= 8; k++) {
                    const double m = fmin(exp((double)at(spectrum, f, k)), 100),
                                 a = sin((double)at(spectrum, f, 9 + k));
                    const double edge = k == 0 || k == 8, turn = two_pi * k * i / 16;
                    sum += hann(i) * (edge ? m * cos(a) * cos(turn) : 2 * m * cos(a + turn)) / 16;
                    scale += m;
                }
                weight += hann(i) * hann(i);
            }
            assert_close(fmax((double)-0.99f, fmin((double)0.99f, sum / weight)), wave.data[o], scale);
        }
        stream_clear(stream);
    }
    struct array tiny = random_array(8, 1);
    op_stft16(stream, stream_array(stream, 3, 18), tiny);
    assert_int_equal(stream_status(stream), UTTER_INVALID_ARGUMENT);
}

/* ---- streams and devices ------------------------------------------------------------------------------------------ */

static void failures_latch(void **state)
{
    (void)state;
    struct array x = random_array(2, 3), out = stream_array(stream, 2, 4);
    op_fill(stream, out, 1);
    op_add(stream, out, 1, x, 0, (struct array){0});
    assert_int_equal(stream_status(stream), UTTER_INVALID_ARGUMENT);
    assert_string_equal(stream_error(stream), "add: out 2 x 4, x 2 x 3, y 0 x 0");
    op_fill(stream, out, 2); /* does nothing any more */
    assert_true(at(out, 1, 3) == 1);
    stream_fail(stream, UTTER_CANCELLED);
    assert_int_equal(stream_wait(stream), UTTER_INVALID_ARGUMENT);
    stream_clear(stream);
    assert_int_equal(stream_status(stream), UTTER_OK);
    stream_array(stream, 1 << 20, 1 << 20);
    assert_int_equal(stream_status(stream), UTTER_OUT_OF_MEMORY);
}

/* A file that holds the bytes, mapped. */
static void *map_file(const void *bytes, size_t n)
{
    char path[] = "utter-device-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    void *map = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(map != MAP_FAILED);
    close(fd);
    unlink(path);
    return map;
}

static void check_resident(enum dtype type, enum weight_kind kind, int out, int in, int rows)
{
    const bool in_first = kind == WEIGHT_LINEAR_GPT2;
    struct stored values = make_tensor(type, LAYOUT_TORCH, in_first ? in : out, in_first ? out : in, 0);
    const size_t n = values.t.n_bytes;
    struct tensor t = values.t;
    t.data = map_file(values.t.data, n);
    t.in_file_map = true;
    struct weight *w;
    assert_int_equal(weight_create(&w, device, kind, &t, (struct array){0}, NULL), UTTER_OK);
    struct array x = random_array(rows, in), before = stream_array(stream, rows, out),
                 after = stream_array(stream, rows, out);
    op_linear(stream, before, x, w, (struct epilogue){0});

    struct cancel cancel = {0};
    struct stream *s;
    assert_int_equal(stream_create(&s, device, &cancel, 1 << 20, NULL), UTTER_OK);
    cancel_request(&cancel);
    weight_make_resident(s, w);
    stream_destroy(&s);
    for (int i = 0; i < 3; i++) {
        op_linear(stream, after, x, w, (struct epilogue){0});
        assert_int_equal(stream_status(stream), UTTER_OK);
        for (int r = 0; r < rows; r++)
            assert_memory_equal(array_rows(after, r, 1).data, array_rows(before, r, 1).data,
                                (size_t)out * sizeof(float));
        weight_make_resident(stream, w);
    }
    assert_memory_equal(t.data, values.t.data, n);
    weight_destroy(&w);
    munmap((void *)(uintptr_t)t.data, n);
    free_tensor(&values);
    stream_clear(stream);
}

/* Copied to huge pages or not, cancelled half-way or not, few rows or many: the same numbers, and the file's are still there. */
static void resident_weights_are_the_same(void **state)
{
    (void)state;
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q5_0, DTYPE_Q4_0};
    static const int rows[] = {1, 3, 21};
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 3; k++) {
            const bool blocks = dtype_block(types[i]) > 1;
            check_resident(types[i], WEIGHT_LINEAR, 700, blocks ? 352 : 340, rows[k]);
            check_resident(types[i], WEIGHT_LINEAR, 3, blocks ? 32 : 9, rows[k]);
            if (!blocks) check_resident(types[i], WEIGHT_LINEAR_GPT2, 700, 341, rows[k]);
        }
}

/* ---- weights that move while others use them ---- */

enum { MOVED_ROWS = 2, MOVED_OUT = 700, MOVED_IN = 340, N_MOVED = 8 };

struct mover {
    struct weight **weights;
    struct array x;
    float out[N_MOVED][MOVED_ROWS * MOVED_OUT]; /* of the one that computes */
    bool moves;
};

static void *mover_main(void *arg)
{
    struct mover *m = arg;
    struct stream *s;
    if (stream_create(&s, device, NULL, 1 << 20, NULL) != UTTER_OK) return "no stream";
    for (int i = 0; i < N_MOVED; i++) {
        struct array out = stream_array(s, MOVED_ROWS, MOVED_OUT);
        if (m->moves)
            weight_make_resident(s, m->weights[i]);
        else
            op_linear(s, out, m->x, m->weights[N_MOVED - 1 - i], (struct epilogue){0});
        stream_read(s, m->out[N_MOVED - 1 - i], out);
        stream_release(s, 0);
    }
    const bool ok = stream_status(s) == UTTER_OK;
    stream_destroy(&s);
    return ok ? NULL : "a stream failed";
}

/* Two threads move the same weights at once while a third computes with them: what it finds is moved or not, never half. */
static void weights_move_from_two_threads_while_a_third_computes(void **state)
{
    (void)state;
    static struct mover threads[3];
    struct stored values = make_tensor(DTYPE_F32, LAYOUT_TORCH, MOVED_OUT, MOVED_IN, 0);
    struct tensor t = values.t;
    t.data = map_file(values.t.data, values.t.n_bytes);
    t.in_file_map = true;
    struct array x = random_array(MOVED_ROWS, MOVED_IN), expected = stream_array(stream, MOVED_ROWS, MOVED_OUT);
    for (int round = 0; round < 10; round++) {
        struct weight *w[N_MOVED];
        pthread_t ids[3];
        for (int i = 0; i < N_MOVED; i++)
            assert_int_equal(weight_create(&w[i], device, WEIGHT_LINEAR, &t, (struct array){0}, NULL), UTTER_OK);
        op_linear(stream, expected, x, w[0], (struct epilogue){0});
        for (int i = 0; i < 3; i++) {
            threads[i] = (struct mover){.weights = w, .x = x, .moves = i < 2};
            assert_int_equal(pthread_create(&ids[i], NULL, mover_main, &threads[i]), 0);
        }
        for (int i = 0; i < 3; i++) {
            void *fault;
            pthread_join(ids[i], &fault);
            if (fault) fail_msg("%s", (const char *)fault);
        }
        for (int i = 0; i < N_MOVED; i++)
            for (int r = 0; r < MOVED_ROWS; r++)
                assert_memory_equal(threads[2].out[i] + r * MOVED_OUT, array_rows(expected, r, 1).data,
                                    MOVED_OUT * sizeof(float));
        for (int i = 0; i < N_MOVED; i++) weight_destroy(&w[i]);
    }
    munmap((void *)(uintptr_t)t.data, t.n_bytes);
    free_tensor(&values);
}

struct forked {
    struct stream *s;
    struct array out, x;
};

static void double_it(void *arg)
{
    struct forked *f = arg;
    op_add(f->s, f->out, 2, f->x, 0, (struct array){0});
}

/* Two streams at once: each computes what it would alone, and each sees its own cancel, before its first tile too. */
static void forked_streams_work_side_by_side(void **state)
{
    (void)state;
    struct cancel cancel = {0};
    struct forked f = {.x = random_array(300, 200)};
    struct array mine = stream_array(stream, 300, 200);
    assert_int_equal(stream_create(&f.s, device, &cancel, 1 << 20, NULL), UTTER_OK);
    assert_int_equal(device_array(&f.out, device, 300, 200, NULL), UTTER_OK);
    for (int cancelled = 0; cancelled < 2; cancelled++) {
        stream_clear(f.s);
        op_fill(stream, f.out, 7);
        if (cancelled) cancel_request(&cancel);
        const bool forked = stream_fork(f.s, double_it, &f);
        assert_int_equal(forked, device_threads(device) > 1);
        op_add(stream, mine, 3, f.x, 0, (struct array){0});
        if (forked)
            stream_join(f.s);
        else
            double_it(&f);
        assert_int_equal(stream_status(f.s), cancelled ? UTTER_CANCELLED : UTTER_OK);
        assert_int_equal(stream_status(stream), UTTER_OK);
        for (int r = 0; r < 300; r++)
            for (int c = 0; c < 200; c++) {
                assert_true(at(f.out, r, c) == (cancelled ? 7 : 2 * at(f.x, r, c)));
                assert_true(at(mine, r, c) == 3 * at(f.x, r, c));
            }
    }
    stream_destroy(&f.s);
    device_array_free(device, &f.out);
}

struct product_beside {
    struct stream *s;
    struct array out, x;
    const struct weight *w;
};

static void multiply_beside(void *arg)
{
    struct product_beside *p = arg;
    op_linear(p->s, p->out, p->x, p->w, (struct epilogue){0});
}

/* It uses one thread, so the others' share of scratch is not asked for. */
static void a_forked_stream_needs_scratch_for_one_thread(void **state)
{
    (void)state;
    enum { IN = 700, OUT = 300, ROWS = 40 };
    struct stored values = make_tensor(DTYPE_F32, LAYOUT_TORCH, OUT, IN, 0);
    struct device *many;
    struct weight *w;
    struct product_beside p = {.x = random_array(ROWS, IN)};
    assert_int_equal(device_create_cpu(&many, &(struct device_options){.n_threads = 200}, NULL), UTTER_OK);
    assert_int_equal(stream_create(&p.s, many, NULL, 2 << 20, NULL), UTTER_OK);
    assert_int_equal(device_array(&p.out, many, ROWS, OUT, NULL), UTTER_OK);
    assert_int_equal(weight_create(&w, many, WEIGHT_LINEAR, &values.t, (struct array){0}, NULL), UTTER_OK);
    p.w = w;
    assert_true(stream_fork(p.s, multiply_beside, &p));
    stream_join(p.s);
    assert_string_equal(stream_error(p.s), "");
    weight_destroy(&w);
    device_array_free(many, &p.out);
    stream_destroy(&p.s);
    device_destroy(&many);
    free_tensor(&values);
}

static void a_cancel_latches(void **state)
{
    (void)state;
    struct cancel cancel = {0};
    struct stream *s;
    assert_int_equal(stream_create(&s, device, &cancel, 1 << 20, NULL), UTTER_OK);
    struct array a = stream_array(s, 4, 4);
    op_fill(s, a, 1);
    op_activate(s, a, a, ACT_EXP, 0);
    assert_int_equal(stream_status(s), UTTER_OK);
    cancel_request(&cancel);
    op_activate(s, a, a, ACT_EXP, 0);
    assert_int_equal(stream_status(s), UTTER_CANCELLED);
    assert_true(fabsf(at(a, 0, 0) - 2.7182817f) < 1e-6f);
    stream_destroy(&s);
}

static void threads_do_not_change_bytes(void **state)
{
    (void)state;
    float kept[3][300 * 40];
    struct stored w = make_tensor(DTYPE_F32, LAYOUT_TORCH, 40, 70, 3);
    float *x_values = malloc(300 * 70 * sizeof *x_values);
    fill(x_values, 300 * 70);
    for (int threads = 1; threads <= 3; threads++) {
        struct device *d;
        struct stream *s;
        struct weight *weight;
        assert_int_equal(device_create_cpu(&d, &(struct device_options){.n_threads = threads}, NULL), UTTER_OK);
        assert_int_equal(device_threads(d), threads);
        assert_int_equal(stream_create(&s, d, NULL, 1 << 26, NULL), UTTER_OK);
        assert_int_equal(weight_create(&weight, d, WEIGHT_CONV1D, &w.t, (struct array){0}, NULL), UTTER_OK);
        struct array x = stream_upload(s, 300, 70, x_values), out = stream_array(s, 300, 40);
        op_conv1d(s, out, x, weight, (struct conv_shape){.pad = 1}, (struct epilogue){.act = ACT_MISH});
        op_attention(s, array_cols(out, 0, 32), array_cols(out, 0, 32), array_cols(x, 0, 32), array_cols(x, 32, 32), 2,
                     1);
        stream_read(s, kept[threads - 1], out);
        assert_int_equal(stream_wait(s), UTTER_OK);
        weight_destroy(&weight);
        stream_destroy(&s);
        device_destroy(&d);
    }
    assert_memory_equal(kept[0], kept[1], sizeof kept[0]);
    assert_memory_equal(kept[0], kept[2], sizeof kept[0]);
    free(x_values);
    free_tensor(&w);
}

static void parameters_become_floats(void **state)
{
    (void)state;
    for (int type = DTYPE_F32; type <= DTYPE_BF16; type++) {
        struct stored t = make_tensor((enum dtype)type, LAYOUT_TORCH, 3, 5, 2);
        struct array a;
        assert_int_equal(device_param(&a, device, &t.t, NULL), UTTER_OK);
        assert_int_equal(a.rows, 15);
        assert_int_equal(a.cols, 2);
        assert_memory_equal(a.data, t.values, 30 * sizeof(float));
        free_tensor(&t);
    }
    const float values[4] = {1, 2, 3, 4};
    struct tensor t = {.name = "t", .n_dims = 1, .shape = {4}, .data = values, .n_bytes = sizeof values};
    struct array a;
    assert_int_equal(device_param(&a, device, &t, NULL), UTTER_OK);
    assert_ptr_equal(a.data, values);
    assert_true(a.rows == 1 && a.cols == 4);
    assert_int_equal(device_param_copy(&a, device, 2, 2, values, NULL), UTTER_OK);
    assert_true(at(a, 1, 1) == 4);
}

static void levels_are_named(void **state)
{
    (void)state;
    struct device *d;
    struct error e;
    char *kept = getenv("UTTER_CPU") ? strdup(getenv("UTTER_CPU")) : NULL;
    setenv("UTTER_CPU", "sse9", 1);
    assert_int_equal(device_create_cpu(&d, NULL, &e), UTTER_INVALID_ARGUMENT);
    assert_non_null(strstr(e.text, "sse9"));
    assert_null(d);
    assert_int_equal(device_create_cpu(&d, &(struct device_options){.level = CPU_SCALAR, .n_threads = 1}, &e),
                     UTTER_OK);
    assert_string_equal(device_name(d), "cpu scalar, 1 thread");
    device_destroy(&d);
    device_destroy(&d);
    setenv("UTTER_CPU", "scalar", 1);
    assert_int_equal(device_create_cpu(&d, NULL, &e), UTTER_OK);
    assert_non_null(strstr(device_name(d), "scalar"));
    device_destroy(&d);
    assert_int_equal(device_create_cpu(&d, &(struct device_options){.n_threads = -1}, &e), UTTER_INVALID_ARGUMENT);
    if (kept)
        setenv("UTTER_CPU", kept, 1);
    else
        unsetenv("UTTER_CPU");
    free(kept);
}

static void weights_are_checked(void **state)
{
    (void)state;
    struct weight *w;
    struct error e;
    const float data[4] = {0};
    struct tensor t = {.name = "h.0.w", .n_dims = 1, .shape = {4}, .data = data, .n_bytes = sizeof data};
    assert_int_equal(weight_create(&w, device, WEIGHT_LINEAR, &t, (struct array){0}, &e), UTTER_MODEL_DAMAGED);
    assert_non_null(strstr(e.text, "h.0.w"));
    t = (struct tensor){.name = "q", .type = DTYPE_Q8_0, .n_dims = 2, .shape = {1, 16}, .data = data, .n_bytes = 17};
    assert_int_equal(weight_create(&w, device, WEIGHT_LINEAR, &t, (struct array){0}, &e), UTTER_MODEL_DAMAGED);
    assert_null(w);
    weight_destroy(&w);
}

static void out_of_memory_is_an_error(void **state)
{
    (void)state;
    struct stored t = make_tensor(DTYPE_F32, LAYOUT_TORCH, 3, 5, 2);
    for (long n = 1; n < 4; n++) {
        struct device *d = NULL;
        struct stream *s = NULL;
        struct weight *w = NULL;
        struct array a = {0};
        struct kv_cache *kv = NULL;
        mem_fail_after(n);
        const utter_status made = device_create_cpu(&d, &(struct device_options){.n_threads = 2}, NULL);
        mem_fail_after(1);
        const utter_status stream_made = stream_create(&s, device, NULL, 1 << 20, NULL);
        const utter_status array_made = device_array(&a, device, 2, 2, NULL);
        const utter_status kv_made = kv_cache_create(&kv, device, DTYPE_F32, 1, 1, 1, NULL);
        mem_fail_after(n);
        const utter_status weight_made = weight_create(&w, device, WEIGHT_CONV1D, &t.t, (struct array){0}, NULL);
        mem_fail_after(0);
        assert_int_equal(made, n <= 3 ? UTTER_OUT_OF_MEMORY : UTTER_OK);
        assert_int_equal(stream_made, UTTER_OUT_OF_MEMORY);
        assert_int_equal(array_made, UTTER_OUT_OF_MEMORY);
        assert_int_equal(kv_made, UTTER_OUT_OF_MEMORY);
        assert_int_equal(weight_made, n <= 2 ? UTTER_OUT_OF_MEMORY : UTTER_OK);
        weight_destroy(&w);
        device_destroy(&d);
    }
    free_tensor(&t);
}

static void arrays_outlive_scratch(void **state)
{
    (void)state;
    struct array a;
    assert_int_equal(device_array(&a, device, 3, 256, NULL), UTTER_OK);
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 256; c++) assert_true(at(a, r, c) == 0);
    assert_true(array_exists(a) && a.stride >= 256);
    device_array_free(device, &a);
    assert_false(array_exists(a));
    size_t mark = stream_mark(stream);
    float *p = stream_array(stream, 4, 4).data;
    stream_release(stream, mark);
    assert_ptr_equal(stream_array(stream, 1, 4).data, p);
    assert_ptr_equal(stream_device(stream), device);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, clean)
    const struct CMUnitTest tests[] = {
        TEST(linear_in_every_type),
        TEST(layouts_give_the_same_bytes),
        TEST(convolutions),
        TEST(transposed_convolutions),
        TEST(epilogues),
        TEST(attention_is_full),
        TEST(attention_survives_large_scores),
        TEST(cached_attention_grows),
        TEST(fast_attention_is_close),
        TEST(queries_do_not_depend_on_their_batch),
        TEST(rows_are_looked_up),
        TEST(rows_are_normalised),
        TEST(activations_over_their_range),
        TEST(rows_are_added_copied_repeated),
        TEST(source_follows_its_definition),
        TEST(short_fourier_transform_and_back),
        TEST(failures_latch),
        TEST(resident_weights_are_the_same),
        TEST(weights_move_from_two_threads_while_a_third_computes),
        TEST(a_cancel_latches),
        TEST(forked_streams_work_side_by_side),
        TEST(a_forked_stream_needs_scratch_for_one_thread),
        TEST(threads_do_not_change_bytes),
        TEST(parameters_become_floats),
        TEST(levels_are_named),
        TEST(weights_are_checked),
        TEST(out_of_memory_is_an_error),
        TEST(arrays_outlive_scratch),
    };
    return cmocka_run_group_tests_name("device", tests, setup, teardown);
}
