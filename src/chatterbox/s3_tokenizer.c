/*
 * S3TokenizerV2: supervised semantic speech tokens, the encoder of an ASR model cut at a finite scalar quantiser
 * (CosyVoice 2, Du et al., 2024, arXiv:2412.10117; package s3tokenizer, model_v2.py).
 *
 *     log-mel [F][128]
 *     conv1 k 3 stride 2, GELU; conv2 k 3 stride 2, GELU                        [T][D], T = F / 4 rounded up twice
 *     blocks, pre-norm, heads of 64:
 *         h = LN(x) (eps 1e-6: the package has 1e-5 since 0.3.0);  q, k, v = linear(h)
 *         x += out(attention(rope(q), rope(k), v)) + v + depthwise conv k 31 (v)     ("FSMN" memory)
 *         x += mlp(LN(x)) (eps 1e-5), mlp = linear 4 D, GELU, linear
 *     digits = round(tanh(project_down(x)) * 0.999) + 1 in {0, 1, 2}            [T][8], code = sum digit_i 3^i
 *
 * Over 30 s: windows of 3000 frames every 2600, of which the tokens in the middle are kept. The official code pads the last
 * window and masks it; hearing its true frames only is the same thing. Windows and recordings are stacked, so that every
 * weight is read once for all their rows; convolution, attention and memory see each alone.
 */
#include "chatterbox/s3_tokenizer.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

enum {
    HEAD = 64,
    FSMN_TAPS = 31,
    MAX_BLOCKS = 32,
    WINDOW = 3000, /* frames */
    WINDOW_STEP = 2600,
    OVERLAP_TOKENS = 50,    /* cut from either side of a seam */
    MAX_STACK_FRAMES = 6000 /* frames in one pass; bounds scratch */
};

struct block {
    struct array attn_gain, attn_bias, mlp_gain, mlp_bias;
    struct weight *query, *key, *value, *out, *mlp_in, *mlp_out;
    struct array fsmn; /* [31][D] */
};

struct s3_tokenizer {
    int width, n_blocks;
    struct weight *conv1, *conv2, *project_down;
    struct array frequencies; /* [1][32] */
    struct block block[MAX_BLOCKS];
};

/* ---- weights ---------------------------------------------------------------------------------------------------- */

/* [D][1][31] turned so that channels lie side by side. */
static struct array bind_fsmn(struct binder *b, int width, int block)
{
    struct array taps = {0};
    float *values = bind_values(b, 4, (const int64_t[]){width, 1, FSMN_TAPS, 1},
                                "s3gen.tokenizer.encoder.blocks.%d.attn.fsmn_block", block);
    float *turned = mem_alloc((size_t)width * FSMN_TAPS * sizeof *turned);
    for (int i = 0; values && turned && i < width * FSMN_TAPS; i++)
        turned[i % FSMN_TAPS * width + i / FSMN_TAPS] = values[i];
    if (values && turned)
        b->status = device_param_copy(&taps, b->device, FSMN_TAPS, width, turned, b->error);
    else if (values)
        bind_fail_memory(b, "s3gen.tokenizer.encoder.blocks.*.attn.fsmn_block");
    mem_free(values);
    mem_free(turned);
    return taps;
}

static void load_block(struct block *l, struct binder *b, int width, int i)
{
#define NAME "s3gen.tokenizer.encoder.blocks.%d."
    l->attn_gain = bind_vector(b, width, NAME "attn_ln.weight", i);
    l->attn_bias = bind_vector(b, width, NAME "attn_ln.bias", i);
    l->query = bind_linear(b, width, width, BIAS_REQUIRED, NAME "attn.query", i);
    l->key = bind_linear(b, width, width, BIAS_NONE, NAME "attn.key", i);
    l->value = bind_linear(b, width, width, BIAS_REQUIRED, NAME "attn.value", i);
    l->out = bind_linear(b, width, width, BIAS_REQUIRED, NAME "attn.out", i);
    l->fsmn = bind_fsmn(b, width, i);
    l->mlp_gain = bind_vector(b, width, NAME "mlp_ln.weight", i);
    l->mlp_bias = bind_vector(b, width, NAME "mlp_ln.bias", i);
    l->mlp_in = bind_linear(b, 4 * width, width, BIAS_REQUIRED, NAME "mlp.0", i);
    l->mlp_out = bind_linear(b, width, 4 * width, BIAS_REQUIRED, NAME "mlp.2", i);
#undef NAME
}

static utter_status load_frequencies(struct s3_tokenizer *m, struct binder *b)
{
    float f[HEAD / 2];
    for (int i = 0; i < HEAD / 2; i++) f[i] = (float)(1.0 / (double)powf(10000.0f, (float)(2 * i) / HEAD));
    return device_param_copy(&m->frequencies, b->device, 1, HEAD / 2, f, b->error);
}

utter_status s3_tokenizer_load(struct s3_tokenizer **out, struct binder *b)
{
    struct s3_tokenizer *m = *out = mem_calloc(1, sizeof *m);
    if (!m) return error_set(b->error, UTTER_OUT_OF_MEMORY, "no memory for the S3 tokenizer");
    m->width = bind_dim(b, 0, "s3gen.tokenizer.encoder.conv1.weight");
    m->n_blocks = bind_count(b, "s3gen.tokenizer.encoder.blocks.%d.attn_ln.weight");
    if (b->status == UTTER_OK && (m->width <= 0 || m->width % HEAD || m->n_blocks < 1 || m->n_blocks > MAX_BLOCKS))
        b->status = error_set(b->error, UTTER_MODEL_DAMAGED,
                              "%s: S3 tokenizer: expected a width in heads of 64 and 1 to %d blocks, found %d and %d",
                              checkpoint_path(b->checkpoint), MAX_BLOCKS, m->width, m->n_blocks);
    m->conv1 = bind_conv1d(b, m->width, S3_MELS, 3, BIAS_REQUIRED, "s3gen.tokenizer.encoder.conv1");
    m->conv2 = bind_conv1d(b, m->width, m->width, 3, BIAS_REQUIRED, "s3gen.tokenizer.encoder.conv2");
    for (int i = 0; b->status == UTTER_OK && i < m->n_blocks; i++) load_block(&m->block[i], b, m->width, i);
    m->project_down =
        bind_linear(b, S3_CODE_DIGITS, m->width, BIAS_REQUIRED, "s3gen.tokenizer.quantizer._codebook.project_down");
    if (b->status == UTTER_OK) b->status = load_frequencies(m, b);
    if (b->status != UTTER_OK) s3_tokenizer_free(out);
    return b->status;
}

void s3_tokenizer_free(struct s3_tokenizer **m)
{
    mem_free(*m);
    *m = NULL;
}

/* ---- windows ---------------------------------------------------------------------------------------------------- */

static int halved(int n)
{
    return (n - 1) / 2 + 1;
}

static int windows_of(int n_frames)
{
    return n_frames <= WINDOW ? 1 : (n_frames + WINDOW_STEP - 1) / WINDOW_STEP;
}

/* One window of one recording: the frames it hears, and which of its tokens are kept where. */
struct window {
    const struct s3_request *request;
    int first_frame, n_frames, n_tokens;
    int keep_first, n_keep, at; /* tokens [keep_first, keep_first + n_keep) go to tokens[at] of the request */
};

static struct window window_of(const struct s3_request *r, int i, int at)
{
    const int n = windows_of(r->n_frames), first = i * WINDOW_STEP;
    struct window w = {r, first, r->n_frames - first < WINDOW ? r->n_frames - first : WINDOW, 0, 0, 0, at};
    w.n_tokens = halved(halved(w.n_frames));
    const int head = i > 0 ? OVERLAP_TOKENS : 0, tail = i + 1 < n ? OVERLAP_TOKENS : 0;
    w.keep_first = head < w.n_tokens ? head : w.n_tokens;
    w.n_keep = w.n_tokens - tail > w.keep_first ? w.n_tokens - tail - w.keep_first : 0;
    return w;
}

int s3_tokens(int n_frames)
{
    const struct s3_request r = {.n_frames = n_frames};
    int n = 0;
    for (int i = 0; n_frames > 0 && i < windows_of(n_frames); i++) n += window_of(&r, i, 0).n_keep;
    return n;
}

/* ---- forward ---------------------------------------------------------------------------------------------------- */

enum { MAX_STACK = 16 };

/* Windows one below the other: rows [first[i], first[i] + n_tokens) belong to window i. */
struct stack {
    struct window window[MAX_STACK];
    int first[MAX_STACK];
    int n, n_rows, n_frames;
};

static struct array part(const struct stack *k, struct array a, int i)
{
    return array_rows(a, k->first[i], k->window[i].n_tokens);
}

static void hear(struct stream *s, const struct s3_tokenizer *m, const struct stack *k, struct array x)
{
    for (int i = 0; i < k->n; i++) {
        const struct window *w = &k->window[i];
        const size_t mark = stream_mark(s);
        struct array mel = stream_upload(s, w->n_frames, S3_MELS, w->request->mel + (size_t)w->first_frame * S3_MELS);
        struct array half = stream_array(s, halved(w->n_frames), m->width);
        op_conv1d(s, half, mel, m->conv1, (struct conv_shape){.stride = 2, .pad = 1},
                  (struct epilogue){.act = ACT_GELU_ERF});
        op_conv1d(s, part(k, x, i), half, m->conv2, (struct conv_shape){.stride = 2, .pad = 1},
                  (struct epilogue){.act = ACT_GELU_ERF});
        stream_release(s, mark);
    }
}

static void attend(struct stream *s, const struct s3_tokenizer *m, const struct block *l, const struct stack *k,
                   struct array x)
{
    const size_t mark = stream_mark(s);
    const int rows = x.rows, D = m->width;
    struct array h = stream_array(s, rows, D), q = stream_array(s, rows, D), key = stream_array(s, rows, D);
    struct array v = stream_array(s, rows, D), mixed = stream_array(s, rows, D);
    op_layer_norm(s, h, x, l->attn_gain, l->attn_bias, 1e-6f, ACT_NONE);
    op_linear(s, q, h, l->query, (struct epilogue){0});
    op_linear(s, key, h, l->key, (struct epilogue){0});
    op_linear(s, v, h, l->value, (struct epilogue){0});
    for (int i = 0; i < k->n; i++) {
        struct array qi = part(k, q, i), ki = part(k, key, i), vi = part(k, v, i), memory = part(k, h, i);
        op_rope(s, qi, qi, m->frequencies, D / HEAD, 0);
        op_rope(s, ki, ki, m->frequencies, D / HEAD, 0);
        op_attention(s, part(k, mixed, i), qi, ki, vi, D / HEAD, 1.0f / 8);
        op_depthwise_conv1d(s, memory, vi, l->fsmn, (FSMN_TAPS - 1) / 2, vi);
    }
    op_add(s, x, 1, x, 1, h);
    op_linear(s, x, mixed, l->out, (struct epilogue){.residual = x});
    stream_release(s, mark);
}

static void feed_forward(struct stream *s, const struct block *l, struct array x)
{
    const size_t mark = stream_mark(s);
    struct array h = stream_array(s, x.rows, x.cols), inner = stream_array(s, x.rows, 4 * x.cols);
    op_layer_norm(s, h, x, l->mlp_gain, l->mlp_bias, 1e-5f, ACT_NONE);
    op_linear(s, inner, h, l->mlp_in, (struct epilogue){.act = ACT_GELU_ERF});
    op_linear(s, x, inner, l->mlp_out, (struct epilogue){.residual = x});
    stream_release(s, mark);
}

static int32_t code_of(const float *digits)
{
    int32_t code = 0;
    for (int i = S3_CODE_DIGITS - 1; i >= 0; i--) code = 3 * code + (int32_t)nearbyintf(digits[i]) + 1;
    return code;
}

/* digits: [rows][8] before rounding, on the host. */
static void keep_tokens(const struct stack *k, const float *digits)
{
    for (int i = 0; i < k->n; i++) {
        const struct window *w = &k->window[i];
        for (int t = 0; t < w->n_keep; t++) {
            const float *d = digits + (size_t)(k->first[i] + w->keep_first + t) * S3_CODE_DIGITS;
            w->request->tokens[w->at + t] = code_of(d);
            if (w->request->pre_round)
                memcpy(w->request->pre_round + (size_t)(w->at + t) * S3_CODE_DIGITS, d, S3_CODE_DIGITS * sizeof *d);
        }
    }
}

static void run_stack(struct stream *s, const struct s3_tokenizer *m, const struct stack *k, const struct observer *o)
{
    const size_t mark = stream_mark(s);
    struct array x = stream_array(s, k->n_rows, m->width), code = stream_array(s, k->n_rows, S3_CODE_DIGITS);
    hear(s, m, k, x);
    for (int i = 0; i < m->n_blocks; i++) {
        attend(s, m, &m->block[i], k, x);
        feed_forward(s, &m->block[i], x);
        observe(o, x, "blocks.%d", i);
    }
    observe(o, x, "hidden");
    op_linear(s, code, x, m->project_down, (struct epilogue){.act = ACT_TANH, .scale = 0.9990000128746033f});
    observe(o, code, "fsq_pre_round");
    float *digits = mem_alloc((size_t)k->n_rows * S3_CODE_DIGITS * sizeof *digits);
    if (digits) {
        stream_read(s, digits, code);
        for (int i = 0; stream_status(s) == UTTER_OK && i < k->n_rows * S3_CODE_DIGITS; i++)
            if (!isfinite(digits[i])) stream_fail(s, UTTER_ENGINE);
        if (stream_status(s) == UTTER_OK) keep_tokens(k, digits);
    } else {
        stream_fail(s, UTTER_OUT_OF_MEMORY);
    }
    mem_free(digits);
    stream_release(s, mark);
}

void s3_tokenize(struct stream *s, const struct s3_tokenizer *m, const struct s3_request *requests, int n_requests,
                 const struct observer *observer)
{
    struct stack k = {0};
    for (int r = 0; r < n_requests; r++) {
        int at = 0;
        for (int i = 0; i < windows_of(requests[r].n_frames); i++) {
            const struct window w = window_of(&requests[r], i, at);
            at += w.n_keep;
            if (w.n_keep == 0) continue;
            if (k.n == MAX_STACK || k.n_frames + w.n_frames > MAX_STACK_FRAMES) {
                run_stack(s, m, &k, observer);
                k = (struct stack){0};
            }
            k.first[k.n] = k.n_rows;
            k.window[k.n++] = w;
            k.n_rows += w.n_tokens;
            k.n_frames += w.n_frames;
        }
    }
    if (k.n > 0) run_stack(s, m, &k, observer);
}
