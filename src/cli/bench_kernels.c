/* bench_kernels.c - the networks' own shapes, with weights that are a rule. */
#include "cli/bench.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/tensor.h"
#include "cli/rival.h"

struct kernel_run {
    struct stream *stream;
    struct weight **weights; /* one or more of the same shape: more than the caches hold */
    int n_weights, taps, dilation;
    struct array out, x, pos, bias;
    struct epilogue epilogue;
    struct kv_cache *kv;
    int position;
    struct error *error;
};

static utter_status done(const struct kernel_run *k)
{
    const utter_status status = stream_wait(k->stream);
    return status == UTTER_OK ? status : error_set(k->error, status, "%s", stream_error(k->stream));
}

static utter_status run_products(void *arg)
{
    const struct kernel_run *k = arg;
    const struct conv_shape shape = {1, k->dilation, k->dilation * (k->taps - 1) / 2};
    for (int i = 0; i < k->n_weights; i++) op_conv1d(k->stream, k->out, k->x, k->weights[i], shape, k->epilogue);
    return done(k);
}

static utter_status run_attention(void *arg)
{
    const struct kernel_run *k = arg;
    const int width = k->out.cols;
    const struct array q = array_cols(k->x, 0, width), key = array_cols(k->x, width, width),
                       v = array_cols(k->x, 2 * width, width);
    if (array_exists(k->pos))
        op_attention_relative(k->stream, k->out, q, key, v, k->pos, k->bias, k->bias, width / 64, 0.125f);
    else if (k->kv)
        op_attention_cached(k->stream, k->out, q, key, v, k->kv, 0, k->position, width / 64, 0.125f);
    else
        op_attention(k->stream, k->out, q, key, v, width / 64, 0.125f);
    return done(k);
}

/* [taps][out][in] of a type, filled by a rule: values small, but none so small that arithmetic takes longer for it. */
static utter_status make_weight(struct weight **out, void **memory, struct device *d, enum dtype type, int n_out,
                                int in, int taps, struct error *e)
{
    struct tensor t = {.name = "bench", .type = type, .layout = LAYOUT_TAPS_OUT_IN, .n_dims = taps > 1 ? 3 : 2};
    const int64_t shape[3] = {taps, n_out, in};
    memcpy(t.shape, shape + (taps > 1 ? 0 : 1), (size_t)t.n_dims * sizeof *shape);
    t.n_bytes = tensor_count(&t) / (size_t)dtype_block(type) * dtype_block_bytes(type);
    unsigned char *p = *memory = mem_alloc_aligned(t.n_bytes);
    if (!p) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for %zu bytes of weights", t.n_bytes);
    for (size_t i = 0; i < t.n_bytes; i++)
        p[i] = (unsigned char)(i * 2654435761u >> 24 & 0x1F); /* a small number in 8 and 16 bits */
    const size_t size = dtype_block_bytes(type);
    for (size_t i = size - 1; (type == DTYPE_F32 || type == DTYPE_BF16) && i < t.n_bytes; i += size)
        p[i] = 0x3C; /* from 2^-7 on */
    t.data = p;
    return weight_create(out, d, WEIGHT_LINEAR, &t, (struct array){0}, e);
}

enum { MAX_WEIGHTS = 64 };

struct product_shape {
    const char *name;
    int rows, in, out, taps, dilation;
    enum activation act;
};

/* One product, with as many different weights as few rows need to come from memory. */
static utter_status bench_product(struct bench *b, struct stream *s, const struct product_shape *p, enum dtype type,
                                  int n_weights)
{
    struct weight *weights[MAX_WEIGHTS] = {0};
    void *memory[MAX_WEIGHTS] = {0};
    char name[64];
    const double macs = (double)p->rows * p->in * p->out * p->taps;
    const double bytes = (double)p->in * p->out * p->taps / dtype_block(type) * (double)dtype_block_bytes(type);
    utter_status status = UTTER_OK;
    for (int i = 0; i < n_weights && status == UTTER_OK; i++)
        status = make_weight(&weights[i], &memory[i], b->device, type, p->out, p->in, p->taps, &b->error);
    if (status == UTTER_OK) {
        struct kernel_run k = {.stream = s,
                               .weights = weights,
                               .n_weights = n_weights,
                               .taps = p->taps,
                               .dilation = p->dilation,
                               .x = stream_array(s, p->rows, p->in),
                               .out = stream_array(s, p->rows, p->out),
                               .epilogue = {.act = p->act},
                               .error = &b->error};
        op_fill(s, k.x, 0.01f);
        snprintf(name, sizeof name, "%s %s %d x %d -> %d%s", dtype_name(type), p->name, p->rows, p->in * p->taps,
                 p->out, p->dilation > 1 ? " dilated" : "");
        const struct work w = {.part = "kernels",
                               .name = name,
                               .ops = 2 * macs * n_weights,
                               .bytes = p->rows < 8 ? bytes * n_weights : 0,
                               .narrow = b->precision && strcmp(b->precision, "fast") == 0 && p->rows >= 16};
        status = bench_time(b, &w, run_products, &k);
    }
    for (int i = 0; i < n_weights; i++) {
        weight_destroy(&weights[i]);
        mem_free(memory[i]);
    }
    stream_clear(s);
    return status;
}

struct rival_run {
    const struct rival *rival;
    void *state;
    struct rival_product product;
};

static utter_status run_rival(void *arg)
{
    struct rival_run *r = arg;
    r->rival->run(r->state, &r->product);
    return UTTER_OK;
}

/* The product alone: taps as one long row, without what it takes to gather them, and no activation. */
static utter_status bench_rival(struct bench *b, const struct rival *rival, const struct product_shape *p)
{
    const int in = p->in * p->taps;
    const size_t n_x = (size_t)p->rows * (size_t)in, n_w = (size_t)p->out * (size_t)in,
                 n_y = (size_t)p->rows * (size_t)p->out;
    float *memory = mem_alloc_aligned((n_x + n_w + n_y) * sizeof *memory);
    if (!memory) return error_set(&b->error, UTTER_OUT_OF_MEMORY, "no memory for a product");
    for (size_t i = 0; i < n_x + n_w; i++) memory[i] = (float)(i % 17) / 16;
    struct rival_run r = {.rival = rival,
                          .product = {.rows = p->rows,
                                      .in = in,
                                      .out = p->out,
                                      .threads = device_threads(b->device),
                                      .x = memory,
                                      .w = memory + n_x,
                                      .y = memory + n_x + n_w,
                                      .narrow = b->precision && strcmp(b->precision, "fast") == 0}};
    utter_status status = rival->open(&r.state, &r.product, &b->error);
    if (status == UTTER_OK) {
        char name[64];
        snprintf(name, sizeof name, "%s %s %d x %d -> %d", rival->name, p->name, p->rows, in, p->out);
        const struct work w = {
            .part = "kernels", .name = name, .ops = 2.0 * p->rows * in * p->out, .narrow = r.product.narrow};
        status = bench_time(b, &w, run_rival, &r);
        rival->close(r.state);
        nanosleep(&(struct timespec){.tv_nsec = 200000000},
                  NULL); /* their threads spin for a while, and would disturb */
    }
    mem_free(memory);
    return status;
}

static utter_status bench_many_rows(struct bench *b, struct stream *s, const struct product_shape *p)
{
    utter_status status = bench_product(b, s, p, DTYPE_F32, 1);
    if (status == UTTER_OK && b->vs_openblas) status = bench_rival(b, &rival_openblas, p);
    if (status == UTTER_OK && b->vs_onednn) status = bench_rival(b, &rival_onednn, p);
    return status;
}

/* The sizes of Chatterbox Turbo: 250 prompt and 153 speech tokens are 403 rows at 25 and 806 at 50 a second, 306 mel frames. */
static const struct product_shape many_rows[] = {
    {"encoder", 403, 512, 512, 1, 1, ACT_NONE},     {"encoder", 806, 512, 2048, 1, 1, ACT_SILU},
    {"encoder", 806, 2048, 512, 1, 1, ACT_NONE},    {"cfm", 806, 256, 512, 1, 1, ACT_NONE},
    {"cfm", 806, 256, 1024, 1, 1, ACT_GELU_ERF},    {"cfm", 806, 1024, 256, 1, 1, ACT_NONE},
    {"cfm conv", 806, 256, 256, 3, 1, ACT_NONE},    {"cfm conv", 806, 320, 256, 3, 1, ACT_NONE},
    {"hift", 2448, 256, 256, 3, 1, ACT_NONE},       {"hift", 2448, 256, 256, 11, 5, ACT_NONE},
    {"hift", 12240, 128, 128, 7, 3, ACT_NONE},      {"hift", 36721, 64, 64, 3, 1, ACT_NONE},
    {"hift", 36721, 64, 64, 11, 5, ACT_NONE},       {"hift post", 36721, 64, 18, 7, 1, ACT_NONE},
    {"t3 prompt", 417, 1024, 3072, 1, 1, ACT_NONE}, {"t3 prompt", 417, 1024, 4096, 1, 1, ACT_GELU_TANH},
    {"t3 prompt", 417, 4096, 1024, 1, 1, ACT_NONE},
};

static utter_status bench_attention(struct bench *b, struct stream *s, const char *name, int rows, int width,
                                    bool relative, int cached_at)
{
    struct kernel_run k = {.stream = s,
                           .x = stream_array(s, rows, 3 * width),
                           .out = stream_array(s, rows, width),
                           .position = cached_at,
                           .error = &b->error};
    op_fill(s, k.x, 0.01f);
    if (relative) {
        k.pos = stream_array(s, 2 * rows - 1, width);
        k.bias = stream_array(s, 1, width);
        op_fill(s, k.pos, 0.01f);
        op_fill(s, k.bias, 0.01f);
    }
    utter_status status = UTTER_OK;
    if (cached_at > 0) status = kv_cache_create(&k.kv, b->device, DTYPE_F32, 1, cached_at + rows, width, &b->error);
    const double keys = cached_at > 0 ? cached_at + (rows + 1) / 2.0 : rows;
    const struct work w = {.part = "kernels",
                           .name = name,
                           .ops = 2.0 * rows * keys * width * (relative ? 3 : 2),
                           .narrow = b->precision && strcmp(b->precision, "fast") == 0 && rows >= 16,
                           .bytes = cached_at > 0 ? 2.0 * cached_at * width * sizeof(float) : 0};
    if (status == UTTER_OK) status = bench_time(b, &w, run_attention, &k);
    kv_cache_destroy(&k.kv);
    stream_clear(s);
    return status;
}

utter_status bench_kernels(struct bench *b)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q5_0, DTYPE_Q4_0};
    struct stream *s;
    utter_status status = stream_create(&s, b->device, NULL, 0, &b->error);
    if (status != UTTER_OK) return status;
    for (size_t i = 0; i < sizeof many_rows / sizeof *many_rows && status == UTTER_OK; i++)
        status = bench_many_rows(b, s, &many_rows[i]);
    for (int i = 1; i < 6 && status == UTTER_OK; i++) status = bench_product(b, s, &many_rows[14], types[i], 1);
    for (int i = 0; i < 6 && status == UTTER_OK; i++) /* 64 of them: 100 to 800 MB */
        status = bench_product(b, s, &(struct product_shape){"decode", 1, 1024, 3072, 1, 1, ACT_NONE}, types[i],
                               MAX_WEIGHTS);
    if (status == UTTER_OK) status = bench_attention(b, s, "attention 806 x 8 x 64", 806, 512, false, 0);
    if (status == UTTER_OK) status = bench_attention(b, s, "attention relative 806 x 8 x 64", 806, 512, true, 0);
    if (status == UTTER_OK) status = bench_attention(b, s, "attention decode at 500, 16 x 64", 1, 1024, false, 500);
    stream_destroy(&s);
    return status;
}
