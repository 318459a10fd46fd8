/*
 * device.h - where arrays live and ops run.
 *
 * A device owns memory and knows how to run the ops below. A network holds arrays and weights that the device made and
 * issues ops on a stream; it never looks inside either. The CPU runs an op when it is issued; a GPU queues it, and only
 * stream_wait and stream_read meet the host.
 *
 * Arrays are float32 [rows][cols], rows = time, cols = channels, channels contiguous. A view is an array too.
 *
 * Errors latch. Ops return nothing: the first op that fails (no memory, cancelled, bad shapes) leaves its status in the
 * stream, and every later op on that stream does nothing. So a forward pass reads from top to bottom without a test on
 * every line, and its last line is `return stream_status(s)`. Outputs of a failed stream are undefined.
 *
 * Determinism: an op cuts its output into tiles by shape alone, never by thread count, so results are the same bytes at
 * any number of threads. CPU levels (scalar, avx2, avx512) may differ from each other in rounding.
 *
 * Cancelling: every op polls the stream's cancel token before every tile; no tile is more than about a millisecond.
 *
 * Aliasing: out may be the same view as x only where an op says "in place allowed"; residual and accumulation inputs may
 * always be the same view as out. Other overlaps are not allowed.
 */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/tensor.h"

struct device; /* thread-safe: any number of streams on any threads */
struct stream; /* one task's order of ops and its scratch memory; one thread at a time */
struct weight; /* a matrix, or a convolution's K matrices, in the device's layout; immutable */
struct kv_cache;

struct array {
    float *data; /* device address; never dereferenced outside src/device */
    int rows, cols;
    int stride; /* floats from one row to the next, >= cols */
};

/* ---- devices ---------------------------------------------------------------------------------------------------- */

enum cpu_level { CPU_AUTO, CPU_SCALAR, CPU_AVX2, CPU_AVX512, CPU_NEON };
bool cpu_level_by_name(enum cpu_level *out, const char *name); /* "auto", "scalar", "avx2", "avx512", "neon" */

/* What many-row matrix products may round to. F32 keeps every product in float32. FAST lets layers that were measured to
 * lose nothing audible (docs/quality.md) use bf16 products with float32 sums. */
enum precision { PRECISION_F32, PRECISION_FAST };

struct device_options {
    enum cpu_level level; /* CPU_AUTO: $UTTER_CPU, else the best this machine has; an unavailable level is refused */
    int n_threads;        /* 0: one per physical core */
    enum precision precision;
};

utter_status device_create_cpu(struct device **out, const struct device_options *o, struct error *e);
void device_destroy(struct device **d);          /* after every stream, weight and array of it */
const char *device_name(const struct device *d); /* for example "cpu avx512, 2 threads" */
int device_threads(const struct device *d);

/* What the machine can do at most with this device's threads and instructions, measured in about a second: multiply and add
 * count as two operations. 0: there are no such instructions, or products are faster without them. */
struct device_limits {
    double read_bytes;                  /* a second, from memory in huge pages */
    double f32_ops, bf16_ops, int8_ops; /* a second */
};
utter_status device_measure(struct device *d, struct device_limits *limits, struct error *e);
utter_status device_measure_memory(struct device *d, double *read_bytes,
                                   struct error *e); /* only that, in about 0.1 s */

/* ---- weights: made once at load ----------------------------------------------------------------------------------- */

enum weight_kind {
    WEIGHT_LINEAR,         /* LAYOUT_TORCH: [out, in] (or [out, in, 1]) */
    WEIGHT_LINEAR_GPT2,    /* LAYOUT_TORCH: [in, out], as Hugging Face's Conv1D stores it */
    WEIGHT_CONV1D,         /* LAYOUT_TORCH: [out, in, k] */
    WEIGHT_CONV_TRANSPOSE, /* LAYOUT_TORCH: [in, out, k] */
    WEIGHT_EMBEDDING       /* [entries, cols]: rows are looked up, or the whole serves as a linear head [out, in] */
};

/* The device may use t->data in place: it must stay valid and unchanged as long as the weight lives. bias: n floats or
 * NULL data for none, also kept by reference (a device vector). The tensor's shape and type were checked by the caller.
 * LAYOUT_TAPS_OUT_IN means [k][out][in] for every kind. */
utter_status weight_create(struct weight **out, struct device *d, enum weight_kind kind, const struct tensor *t,
                           struct array bias, struct error *e);
void weight_destroy(struct weight **w);
int weight_in(const struct weight *w);
int weight_out(const struct weight *w);
int weight_taps(const struct weight *w);
enum dtype weight_type(const struct weight *w); /* as stored */

/* For weights that every decode step reads: copies them once from the mapped file to huge pages, which are read almost
 * twice as fast, in the order in which a step reads them, and lets the file's pages go. Values and results stay the same
 * to the bit. Does nothing the second time, for weights that are no file's, and where the system has no huge pages or no
 * memory to spare. Any number of streams at once, also while others compute with the weight. */
void weight_make_resident(struct stream *s, struct weight *w);

/* A parameter array owned by the device until device_destroy, converted to float32: [1][n] for one dimension, [rows][cols]
 * for two (more dimensions are flattened into rows). f32 data that is aligned may be used in place. */
utter_status device_param(struct array *out, struct device *d, const struct tensor *t, struct error *e);
/* The same from host floats, copied. */
utter_status device_param_copy(struct array *out, struct device *d, int rows, int cols, const float *values,
                               struct error *e);

/* ---- streams and scratch ------------------------------------------------------------------------------------------ */

/* scratch_bytes: address space reserved, pages are touched as needed; 0 takes a default that suits the largest model. */
utter_status stream_create(struct stream **out, struct device *d, struct cancel *cancel, size_t scratch_bytes,
                           struct error *e);
void stream_destroy(struct stream **s);
void stream_set_cancel(struct stream *s, struct cancel *cancel); /* from here on; NULL: none */
utter_status stream_status(const struct stream *s);
const char *stream_error(const struct stream *s); /* what the latched failure was, "" when OK; lives with the stream */
void stream_fail(struct stream *s, utter_status status); /* latches unless already latched */
void stream_clear(struct stream *s);                     /* after a failure or cancel: OK again, scratch emptied */
struct device *stream_device(const struct stream *s);
/* Products and attentions in float32 in PRECISION_FAST too, until it is switched off: for what chooses between tokens. */
void stream_keep_exact(struct stream *s, bool on);

/* Scratch is a stack: stream_array pushes (contents undefined), stream_release pops everything made after the mark. Rows
 * may lie further apart than cols: a stride of whole KiB would put the same column of many rows into one cache set. */
struct array stream_array(struct stream *s, int rows, int cols);
size_t stream_mark(const struct stream *s);
void stream_release(struct stream *s, size_t mark);

struct array stream_upload(struct stream *s, int rows, int cols,
                           const float *values);                            /* copies host floats to scratch */
void stream_write(struct stream *s, struct array dst, const float *values); /* host [rows][cols], contiguous */
void stream_read(struct stream *s, float *values, struct array src);        /* waits; host, contiguous */
utter_status stream_wait(struct stream *s);                                 /* waits; returns stream_status */
bool stream_lock(struct stream *s, pthread_mutex_t *lock); /* false: a cancel came while waiting, and latched */
/* Two streams side by side: fn(arg), which issues the ops of s, runs on one of the device's threads and uses that one only; the
 * caller goes on with another stream on the others, and waits for the end of fn with stream_join. False when there is no
 * thread for it, and fn was not called. Results are the same bytes either way. */
bool stream_fork(struct stream *s, void (*fn)(void *), void *arg);
void stream_join(struct stream *s);
utter_status stream_poll(struct stream *s); /* for host work between ops: latches a cancel that came; stream_status */

/* Memory that outlives scratch (state of a streaming task), until device_array_free. */
utter_status device_array(struct array *out, struct device *d, int rows, int cols, struct error *e); /* zeroed */
void device_array_free(struct device *d, struct array *a);

/* ---- views -------------------------------------------------------------------------------------------------------- */

static inline struct array array_rows(struct array a, int first, int n)
{
    return (struct array){a.data ? a.data + (size_t)first * (size_t)a.stride : NULL, n, a.cols, a.stride};
}
static inline struct array array_cols(struct array a, int first, int n)
{
    return (struct array){a.data ? a.data + first : NULL, a.rows, n, a.stride};
}
static inline bool array_exists(struct array a)
{
    return a.data != NULL;
}

/* ---- ops: products ------------------------------------------------------------------------------------------------ */

enum activation {
    ACT_NONE,
    ACT_RELU,
    ACT_LEAKY_RELU /* slope in act_param */,
    ACT_SILU,
    ACT_MISH,
    ACT_ELU /* alpha 1 */,
    ACT_GELU_ERF,
    ACT_GELU_TANH,
    ACT_TANH,
    ACT_SIGMOID,
    ACT_ABS,
    ACT_EXP
};

/* What happens to a product before it is stored:
 *     v = product + bias (the weight's own) + row_add[0][col]
 *     v = activation(v), or Snake with alpha[col] when snake_alpha exists
 *     out = scale * v + residual[row][col]
 * A zeroed struct means: plain product plus the weight's bias. */
struct epilogue {
    struct array row_add; /* [1][out], optional */
    enum activation act;
    float act_param;
    struct array snake_alpha; /* [1][out], optional: v + sin^2(alpha v) / (alpha + 1e-9) */
    float scale;              /* 0 means 1 */
    struct array residual;    /* [rows][out], optional; may be out itself */
    bool exact;               /* float32 products in PRECISION_FAST too */
    bool bytes; /* PRECISION_FAST: x may be rounded to blocks of 8 bits where weights are, as a few rows always are */
};

/* out[t][n] = sum over k, c of x[t * stride + k * dilation - pad][c] * W[k][n][c]; rows outside x read as zero; out.rows
 * decides how many t there are (so right padding is implied). Linear layers have one tap: see op_linear. */
struct conv_shape {
    int stride, dilation, pad; /* 0 stride or dilation means 1 */
};
void op_conv1d(struct stream *s, struct array out, struct array x, const struct weight *w, struct conv_shape shape,
               struct epilogue e);

static inline void op_linear(struct stream *s, struct array out, struct array x, const struct weight *w,
                             struct epilogue e)
{
    op_conv1d(s, out, x, w, (struct conv_shape){0}, e);
}

/* out[o][n] += x[i][c] * W[kk][n][c] for o = i * stride + kk - pad: ConvTranspose1d. out.rows rows are produced. */
void op_conv_transpose1d(struct stream *s, struct array out, struct array x, const struct weight *w, int stride,
                         int pad, struct epilogue e);

/* ---- ops: attention ----------------------------------------------------------------------------------------------- */

/* Heads lie side by side in the columns: q, k, v and out are [T][heads * head_dim] views (so q, k and v may be column
 * ranges of one stacked product). softmax(scale * q k^T) v, full (bidirectional). */
void op_attention(struct stream *s, struct array out, struct array q, struct array k, struct array v, int n_heads,
                  float scale);

/* Relative positions (Transformer-XL, with espnet's table): score[i][j] = ((q_i + u) . k_j + (q_i + w) . pos[n - 1 - i + j]) * scale.
 * pos: [2n - 1][heads * head_dim], row r for distance n - 1 - r; u, w: [heads][head_dim]. */
void op_attention_relative(struct stream *s, struct array out, struct array q, struct array k, struct array v,
                           struct array pos, struct array bias_u, struct array bias_w, int n_heads, float scale);

/* Causal attention with a cache of all layers' keys and values. type: DTYPE_F32, or DTYPE_F16, which halves what a
 * decode step reads and rounds keys and values once, when they are stored. */
utter_status kv_cache_create(struct kv_cache **out, struct device *d, enum dtype type, int n_layers, int n_positions,
                             int width, struct error *e);
void kv_cache_destroy(struct kv_cache **kv);
int kv_cache_positions(const struct kv_cache *kv);
/* Positions 0 .. n - 1 of every layer of src into dst: type, layers and width alike, both with room for n. */
void kv_cache_copy(struct stream *s, struct kv_cache *dst, const struct kv_cache *src, int n);
/* Stores k and v [T][width] of one layer at positions first..first+T-1, then out = attention of q over positions 0..its own. */
void op_attention_cached(struct stream *s, struct array out, struct array q, struct array k, struct array v,
                         struct kv_cache *kv, int layer, int first, int n_heads, float scale);
/* The same for as many caches as there are rows: row i is stored at position first[i] of kv[i]. The bytes of a call a row. */
void op_attention_each(struct stream *s, struct array out, struct array q, struct array k, struct array v,
                       struct kv_cache *const *kv, int layer, const int *first, int n_heads, float scale);

/* ---- ops: everything else ------------------------------------------------------------------------------------------ */

/* out[i] = table[ids[i]] (+ out[i] when accumulate). ids are host memory, read before the call returns, each checked to be
 * inside the table (else the stream fails with INVALID_ARGUMENT). */
void op_embed(struct stream *s, struct array out, const struct weight *table, const int32_t *ids, bool accumulate);

/* Over the columns of each row, biased variance, then the activation. In place allowed. */
void op_layer_norm(struct stream *s, struct array out, struct array x, struct array gain, struct array bias, float eps,
                   enum activation act);

void op_activate(struct stream *s, struct array out, struct array x, enum activation act,
                 float param);                                                         /* in place allowed */
void op_snake(struct stream *s, struct array out, struct array x, struct array alpha); /* in place allowed */
void op_copy(struct stream *s, struct array out, struct array x); /* out and x: same shape; x of 1 row is repeated */
void op_fill(struct stream *s, struct array out, float value);
/* out = a * x + b * y; y may not exist (then out = a * x). x or y of one row is repeated over all rows. In place allowed. */
void op_add(struct stream *s, struct array out, float a, struct array x, float b, struct array y);
void op_repeat_rows(struct stream *s, struct array out, struct array x,
                    int times); /* a a b b ...: nearest upsampling */
void op_l2_normalize(struct stream *s, struct array out, struct array x,
                     float floor); /* each row / max(norm, floor); in place allowed */

/* ---- ops: source and spectrum of the vocoder (specification section 2.10) ------------------------------------------- */

/* Harmonic source. f0: [M][1] in Hz, one per mel frame; out: [M * hop][1]. For harmonic h = 1..n_harmonics and sample n:
 * theta = 2 pi frac(sum of f0 h / rate) (double, inclusive), voiced = f0 > 10,
 * s_h = voiced * 0.1 sin(theta + phase[h-1]) + (voiced ? 0.003 : 0.1 / 3) * noise, out = tanh(mix . s + mix_bias).
 * The phase of harmonic 1 (in cycles) is handed in and out, so that chunks continue each other.
 * noise comes from the array when it exists ([samples][n_harmonics], tests) and else from noise_stream, indexed by
 * (first_sample + n) * n_harmonics + h, so chunking does not change it. */
enum { SOURCE_MAX_HARMONICS = 16 };
struct source_params {
    int hop, n_harmonics;
    float sample_rate;
    struct array phase;    /* [1][n_harmonics] radians */
    struct array mix;      /* [1][n_harmonics]; the l_linear weight */
    struct array mix_bias; /* [1][1] */
    struct array noise;    /* optional */
    struct rng noise_stream;
    int64_t first_sample;
    double start_cycles; /* phase of harmonic 1 before the first sample, in cycles */
    double *end_cycles;  /* optional, host: the same after the last sample */
    /* Round each harmonic's running sum to float32 as the official implementation does: to compare with its values, which
     * drift from the exact phase. start_cycles is taken as 0 then. */
    bool official_rounding;
};
void op_sine_source(struct stream *s, struct array out, struct array f0, const struct source_params *p);

/* Centred STFT of x [L][1], n_fft 16, hop 4, periodic Hann, reflect padding: out [L / 4 + 1][18] = 9 real, then 9 imaginary. */
void op_stft16(struct stream *s, struct array out, struct array x);

/* The vocoder's head: x [F][18] = 9 log magnitudes, 9 phases -> mag = min(exp(.), 100), angle = sin(.), inverse STFT as in
 * the specification, clamp to +-limit. out: [4 * (F - 1)][1]. */
void op_istft16(struct stream *s, struct array out, struct array x, float limit);

/* ---- ops: the networks that listen (specification sections 4.4 to 4.6) ---------------------------------------------- */

/* out = act(scale[col] * x + shift[col]): batch norm in eval mode. In place allowed. */
void op_scale_shift(struct stream *s, struct array out, struct array x, struct array scale, struct array shift,
                    enum activation act);

/* Rotary positions on heads side by side: channel i of a head's first half turns with channel i of its second half by
 * (first_position + row) * frequencies[i]. frequencies: [1][head_dim / 2]. In place allowed. */
void op_rope(struct stream *s, struct array out, struct array x, struct array frequencies, int n_heads,
             int first_position);

/* out[t][c] = sum over k of x[t + k - pad][c] * taps[k][c] + residual[t][c]; rows outside x read as zero. taps: [K][cols]. */
void op_depthwise_conv1d(struct stream *s, struct array out, struct array x, struct array taps, int pad,
                         struct array residual);

/* One step of an LSTM for each row. gates: [rows][4 n] = input, forget, cell, output before their activations; cell
 * [rows][n] is updated, hidden [rows][n] is written. */
void op_lstm_cell(struct stream *s, struct array hidden, struct array cell, struct array gates);

/* out[i] = mean of the rows [i * segment, (i + 1) * segment) of x, the last of as many as there are. */
void op_segment_mean(struct stream *s, struct array out, struct array x, int segment);
/* out[t] = x[t] * gate[t / segment]. In place allowed. */
void op_segment_gate(struct stream *s, struct array out, struct array x, struct array gate, int segment);
/* out: [1][2 n] = mean, then unbiased standard deviation, of each column over at least 2 rows. */
void op_mean_std(struct stream *s, struct array out, struct array x);

#endif
