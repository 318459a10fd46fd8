#include "device/device.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "device/cpu/cpu.h"

/* Address space only; the largest use is the vocoder on a thousand tokens, some 2 GiB. */
#define DEFAULT_SCRATCH ((size_t)8 << 30)

/* ---- streams ---------------------------------------------------------------------------------------------------- */

utter_status stream_create(struct stream **out, struct device *d, struct cancel *cancel, size_t scratch_bytes,
                           struct error *e)
{
    *out = NULL;
    struct stream *s = mem_calloc(1, sizeof *s);
    if (!s) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a stream");
    utter_status status = arena_create(&s->scratch, scratch_bytes ? scratch_bytes : DEFAULT_SCRATCH, e);
    if (status != UTTER_OK) {
        mem_free(s);
        return status;
    }
    s->device = d;
    s->cancel = cancel;
    *out = s;
    return UTTER_OK;
}

void stream_destroy(struct stream **stream)
{
    if (!*stream) return;
    arena_destroy(&(*stream)->scratch);
    mem_free(*stream);
    *stream = NULL;
}

void stream_set_cancel(struct stream *s, struct cancel *cancel)
{
    s->cancel = cancel;
}

utter_status stream_status(const struct stream *s)
{
    return s->status;
}
const char *stream_error(const struct stream *s)
{
    return s->error.text;
}
void stream_keep_exact(struct stream *s, bool on)
{
    s->exact = on;
}

struct device *stream_device(const struct stream *s)
{
    return s->device;
}

void stream_fail(struct stream *s, utter_status status)
{
    if (s->status == UTTER_OK && status != UTTER_OK)
        s->status = error_set(&s->error, status, "%s", utter_status_text(status));
}

utter_status stream_poll(struct stream *s)
{
    if (cancel_poll(s->cancel)) stream_fail(s, UTTER_CANCELLED);
    return s->status;
}

bool stream_lock(struct stream *s, pthread_mutex_t *lock)
{
    if (cancel_lock(s->cancel, lock)) return true;
    stream_fail(s, UTTER_CANCELLED);
    return false;
}

void stream_clear(struct stream *s)
{
    s->status = UTTER_OK;
    s->error.text[0] = 0;
    arena_release(&s->scratch, 0);
}

/* True when the op may run. A shape that does not fit is a bug of the caller, or a model whose sizes disagree. */
__attribute__((format(printf, 2, 3))) static void refuse(struct stream *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(s->error.text, sizeof s->error.text, format, args);
    va_end(args);
    s->status = UTTER_INVALID_ARGUMENT;
}

#define require(s, fits, ...) ((s)->status == UTTER_OK && ((fits) || (refuse((s), __VA_ARGS__), false)))

float *cpu_scratch(struct stream *s, size_t n_floats)
{
    size_t bytes;
    float *p = size_mul(n_floats, sizeof *p, &bytes) ? arena_alloc(&s->scratch, bytes) : NULL;
    if (!p)
        s->status = error_set(&s->error, UTTER_OUT_OF_MEMORY, "the working memory of %zu MiB is used up",
                              s->scratch.capacity >> 20);
    return p;
}

static int row_stride(int cols)
{
    return cols % 256 == 0 ? cols + 16 : cols;
}

struct array stream_array(struct stream *s, int rows, int cols)
{
    struct array a = {NULL, rows, cols, row_stride(cols)};
    if (require(s, rows >= 0 && cols >= 0, "array: %d x %d", rows, cols))
        a.data = cpu_scratch(s, (size_t)rows * (size_t)a.stride);
    return a;
}

size_t stream_mark(const struct stream *s)
{
    return arena_mark(&s->scratch);
}
void stream_release(struct stream *s, size_t mark)
{
    arena_release(&s->scratch, mark);
}

struct array stream_upload(struct stream *s, int rows, int cols, const float *values)
{
    struct array a = stream_array(s, rows, cols);
    stream_write(s, a, values);
    return a;
}

static float *row_of(struct array a, int r)
{
    return a.data + (ptrdiff_t)r * a.stride;
}

void stream_write(struct stream *s, struct array dst, const float *values)
{
    if (s->status != UTTER_OK || !array_exists(dst)) return;
    for (int r = 0; r < dst.rows; r++)
        memcpy(row_of(dst, r), values + (size_t)r * (size_t)dst.cols, (size_t)dst.cols * sizeof(float));
}

void stream_read(struct stream *s, float *values, struct array src)
{
    if (s->status != UTTER_OK || !array_exists(src)) return;
    for (int r = 0; r < src.rows; r++)
        memcpy(values + (size_t)r * (size_t)src.cols, row_of(src, r), (size_t)src.cols * sizeof(float));
}

utter_status stream_wait(struct stream *s)
{
    return s->status;
}

utter_status device_array(struct array *out, struct device *d, int rows, int cols, struct error *e)
{
    (void)d;
    *out = (struct array){NULL, rows, cols, row_stride(cols)};
    size_t bytes;
    if (rows < 0 || cols < 0 || !size_mul((size_t)rows * sizeof(float), (size_t)out->stride, &bytes))
        return error_set(e, UTTER_INVALID_ARGUMENT, "array: %d x %d", rows, cols);
    out->data = mem_alloc_aligned(bytes ? bytes : sizeof(float));
    if (!out->data) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for an array of %d x %d", rows, cols);
    memset(out->data, 0, bytes);
    return UTTER_OK;
}

void device_array_free(struct device *d, struct array *a)
{
    (void)d;
    mem_free(a->data);
    *a = (struct array){0};
}

/* ---- ops: the checks, then the device ------------------------------------------------------------------------------ */

static bool is_row(struct array a, int cols)
{
    return a.rows == 1 && a.cols == cols;
}
static bool same_shape(struct array a, struct array b)
{
    return a.rows == b.rows && a.cols == b.cols;
}

static bool product_fits(struct stream *s, const char *op, struct array out, struct array x, const struct weight *w,
                         const struct epilogue *e)
{
    if (!w) return require(s, false, "%s: no weight", op);
    return require(s, x.cols == w->in && out.cols == w->out, "%s: %d -> %d columns, but the weight is %d -> %d", op,
                   x.cols, out.cols, w->in, w->out) &&
           require(s, !array_exists(e->row_add) || is_row(e->row_add, out.cols), "%s: row_add is %d x %d, not 1 x %d",
                   op, e->row_add.rows, e->row_add.cols, out.cols) &&
           require(s, !array_exists(e->snake_alpha) || is_row(e->snake_alpha, out.cols),
                   "%s: snake_alpha is %d x %d, not 1 x %d", op, e->snake_alpha.rows, e->snake_alpha.cols, out.cols) &&
           require(s, !array_exists(e->residual) || same_shape(e->residual, out),
                   "%s: residual is %d x %d, not %d x %d", op, e->residual.rows, e->residual.cols, out.rows, out.cols);
}

void op_conv1d(struct stream *s, struct array out, struct array x, const struct weight *w, struct conv_shape shape,
               struct epilogue e)
{
    if (product_fits(s, "conv1d", out, x, w, &e) &&
        require(s, shape.stride >= 0 && shape.dilation >= 0, "conv1d: stride %d, dilation %d", shape.stride,
                shape.dilation))
        cpu_conv1d(s, out, x, w, shape, &e);
}

void op_conv_transpose1d(struct stream *s, struct array out, struct array x, const struct weight *w, int stride,
                         int pad, struct epilogue e)
{
    if (product_fits(s, "conv_transpose1d", out, x, w, &e) &&
        require(s, stride >= 1 && pad >= 0, "conv_transpose1d: stride %d, pad %d", stride, pad))
        cpu_conv_transpose1d(s, out, x, w, stride, pad, &e);
}

static bool attention_fits(struct stream *s, const char *op, struct array out, struct array q, struct array k,
                           struct array v, int n_heads)
{
    return require(s, same_shape(out, q) && same_shape(k, v) && k.cols == q.cols,
                   "%s: q %d x %d, k %d x %d, v %d x %d, out %d x %d", op, q.rows, q.cols, k.rows, k.cols, v.rows,
                   v.cols, out.rows, out.cols) &&
           require(s, n_heads > 0 && q.cols % n_heads == 0, "%s: %d columns in %d heads", op, q.cols, n_heads) &&
           require(s, k.rows > 0 || q.rows == 0, "%s: no keys", op);
}

void op_attention(struct stream *s, struct array out, struct array q, struct array k, struct array v, int n_heads,
                  float scale)
{
    const struct array none = {0};
    if (attention_fits(s, "attention", out, q, k, v, n_heads))
        cpu_attention(s, out, q, k, v, none, none, none, n_heads, scale);
}

void op_attention_relative(struct stream *s, struct array out, struct array q, struct array k, struct array v,
                           struct array pos, struct array bias_u, struct array bias_w, int n_heads, float scale)
{
    if (attention_fits(s, "attention_relative", out, q, k, v, n_heads) &&
        require(s, k.rows == q.rows && pos.rows == 2 * k.rows - 1 && pos.cols == k.cols,
                "attention_relative: %d queries, %d keys, positions %d x %d", q.rows, k.rows, pos.rows, pos.cols) &&
        require(s, bias_u.rows * bias_u.cols == q.cols && bias_w.rows * bias_w.cols == q.cols,
                "attention_relative: biases of %d and %d values for %d columns", bias_u.rows * bias_u.cols,
                bias_w.rows * bias_w.cols, q.cols) &&
        require(
            s, (bias_u.rows == 1 || bias_u.stride == bias_u.cols) && (bias_w.rows == 1 || bias_w.stride == bias_w.cols),
            "attention_relative: biases must be contiguous"))
        cpu_attention(s, out, q, k, v, pos, bias_u, bias_w, n_heads, scale);
}

static bool cache_fits(struct stream *s, const char *op, struct array q, struct array k, const struct kv_cache *kv,
                       int layer, int first, int n, int n_heads)
{
    return require(s, k.rows == q.rows && k.cols == kv->width, "%s: %d queries, %d keys of %d, cache of %d", op, q.rows,
                   k.rows, k.cols, kv->width) &&
           require(s, kv->type == DTYPE_F32 || q.cols / n_heads % 16 == 0,
                   "%s: heads of %d columns, expected a multiple of 16 for an f16 cache", op, q.cols / n_heads) &&
           require(s, layer >= 0 && layer < kv->n_layers, "%s: layer %d of %d", op, layer, kv->n_layers) &&
           require(s, first >= 0 && first <= kv->n_positions - n, "%s: positions %d to %d of %d", op, first, first + n,
                   kv->n_positions);
}

void op_attention_cached(struct stream *s, struct array out, struct array q, struct array k, struct array v,
                         struct kv_cache *kv, int layer, int first, int n_heads, float scale)
{
    if (attention_fits(s, "attention_cached", out, q, k, v, n_heads) &&
        cache_fits(s, "attention_cached", q, k, kv, layer, first, k.rows, n_heads))
        cpu_attention_cached(s, out, q, k, v, kv, layer, first, n_heads, scale);
}

void op_attention_each(struct stream *s, struct array out, struct array q, struct array k, struct array v,
                       struct kv_cache *const *kv, int layer, const int *first, int n_heads, float scale)
{
    bool fits = attention_fits(s, "attention_each", out, q, k, v, n_heads);
    for (int i = 0; fits && i < q.rows; i++)
        fits = cache_fits(s, "attention_each", q, k, kv[i], layer, first[i], 1, n_heads);
    if (fits) cpu_attention_each(s, out, q, k, v, kv, layer, first, n_heads, scale);
}

void kv_cache_copy(struct stream *s, struct kv_cache *dst, const struct kv_cache *src, int n)
{
    if (require(s, dst->type == src->type && dst->n_layers == src->n_layers && dst->width == src->width,
                "kv_cache_copy: %d layers of width %d into %d of %d", src->n_layers, src->width, dst->n_layers,
                dst->width) &&
        require(s, n >= 0 && n <= src->n_positions && n <= dst->n_positions,
                "kv_cache_copy: %d positions of %d into %d", n, src->n_positions, dst->n_positions))
        cpu_kv_cache_copy(s, dst, src, n);
}

void op_embed(struct stream *s, struct array out, const struct weight *table, const int32_t *ids, bool accumulate)
{
    if (!table) {
        require(s, false, "embed: no table");
        return;
    }
    if (!require(s, out.cols == table->in && table->taps == 1 && !table->in_out, "embed: %d columns of a table of %d",
                 out.cols, table->in))
        return;
    for (int i = 0; i < out.rows; i++)
        if (!require(s, ids[i] >= 0 && ids[i] < table->out, "embed: id %d at %d is outside a table of %d", ids[i], i,
                     table->out))
            return;
    cpu_embed(s, out, table, ids, accumulate);
}

void op_layer_norm(struct stream *s, struct array out, struct array x, struct array gain, struct array bias, float eps,
                   enum activation act)
{
    if (require(s, same_shape(out, x) && is_row(gain, x.cols) && is_row(bias, x.cols),
                "layer_norm: out %d x %d, x %d x %d, gain %d x %d, bias %d x %d", out.rows, out.cols, x.rows, x.cols,
                gain.rows, gain.cols, bias.rows, bias.cols))
        cpu_layer_norm(s, out, x, gain, bias, eps, act);
}

void op_activate(struct stream *s, struct array out, struct array x, enum activation act, float param)
{
    if (require(s, same_shape(out, x), "activate: out %d x %d, x %d x %d", out.rows, out.cols, x.rows, x.cols))
        cpu_activate(s, out, x, act, param);
}

void op_snake(struct stream *s, struct array out, struct array x, struct array alpha)
{
    if (require(s, same_shape(out, x) && is_row(alpha, x.cols), "snake: out %d x %d, x %d x %d, alpha %d x %d",
                out.rows, out.cols, x.rows, x.cols, alpha.rows, alpha.cols))
        cpu_snake(s, out, x, alpha);
}

static bool adds_to(struct array out, struct array x)
{
    return x.cols == out.cols && (x.rows == out.rows || x.rows == 1);
}

void op_copy(struct stream *s, struct array out, struct array x)
{
    if (require(s, adds_to(out, x), "copy: out %d x %d, x %d x %d", out.rows, out.cols, x.rows, x.cols))
        cpu_add(s, out, 1, x, 0, (struct array){0});
}

void op_fill(struct stream *s, struct array out, float value)
{
    if (s->status != UTTER_OK || !array_exists(out)) return;
    for (int r = 0; r < out.rows; r++) {
        if (r % 64 == 0 && stream_poll(s) != UTTER_OK) return; /* fresh memory may cost milliseconds a huge page */
        for (int c = 0; c < out.cols; c++) row_of(out, r)[c] = value;
    }
}

void op_add(struct stream *s, struct array out, float a, struct array x, float b, struct array y)
{
    if (require(s, adds_to(out, x) && (!array_exists(y) || adds_to(out, y)), "add: out %d x %d, x %d x %d, y %d x %d",
                out.rows, out.cols, x.rows, x.cols, y.rows, y.cols))
        cpu_add(s, out, a, x, b, y);
}

void op_repeat_rows(struct stream *s, struct array out, struct array x, int times)
{
    if (require(s, times > 0 && out.cols == x.cols && out.rows == x.rows * times,
                "repeat_rows: out %d x %d, x %d x %d, %d times", out.rows, out.cols, x.rows, x.cols, times))
        cpu_repeat_rows(s, out, x, times);
}

void op_l2_normalize(struct stream *s, struct array out, struct array x, float floor)
{
    if (require(s, same_shape(out, x), "l2_normalize: out %d x %d, x %d x %d", out.rows, out.cols, x.rows, x.cols))
        cpu_l2_normalize(s, out, x, floor);
}

void op_sine_source(struct stream *s, struct array out, struct array f0, const struct source_params *p)
{
    if (require(s, p->hop > 0 && f0.cols == 1 && out.cols == 1 && out.rows == f0.rows * p->hop,
                "sine_source: f0 %d x %d, hop %d, out %d x %d", f0.rows, f0.cols, p->hop, out.rows, out.cols) &&
        require(s, is_row(p->phase, p->n_harmonics) && is_row(p->mix, p->n_harmonics) && is_row(p->mix_bias, 1),
                "sine_source: %d harmonics, phase %d x %d, mix %d x %d", p->n_harmonics, p->phase.rows, p->phase.cols,
                p->mix.rows, p->mix.cols) &&
        require(s, p->n_harmonics >= 1 && p->n_harmonics <= SOURCE_MAX_HARMONICS,
                "sine_source: %d harmonics, at most %d", p->n_harmonics, SOURCE_MAX_HARMONICS) &&
        require(s, !array_exists(p->noise) || (p->noise.rows == out.rows && p->noise.cols == p->n_harmonics),
                "sine_source: noise %d x %d for %d samples", p->noise.rows, p->noise.cols, out.rows) &&
        require(s, out.stride == 1, "sine_source: the samples must be contiguous"))
        cpu_sine_source(s, out, f0, p);
}

void op_stft16(struct stream *s, struct array out, struct array x)
{
    if (require(s, x.cols == 1 && x.stride == 1 && x.rows > 8,
                "stft16: x %d x %d, at least 9 contiguous samples are needed", x.rows, x.cols) &&
        require(s, out.cols == 18 && out.rows == x.rows / 4 + 1, "stft16: out %d x %d for %d samples", out.rows,
                out.cols, x.rows))
        cpu_stft16(s, out, x);
}

void op_istft16(struct stream *s, struct array out, struct array x, float limit)
{
    if (require(s, x.cols == 18 && x.rows > 0 && out.cols == 1 && out.stride == 1 && out.rows == 4 * (x.rows - 1),
                "istft16: out %d x %d, x %d x %d", out.rows, out.cols, x.rows, x.cols))
        cpu_istft16(s, out, x, limit);
}

/* ---- ops: the networks that listen ------------------------------------------------------------------------------------ */

static int segments(struct array x, int segment)
{
    return (x.rows + segment - 1) / segment;
}

void op_scale_shift(struct stream *s, struct array out, struct array x, struct array scale, struct array shift,
                    enum activation act)
{
    if (require(s, same_shape(out, x) && is_row(scale, x.cols) && is_row(shift, x.cols),
                "scale_shift: out %d x %d, x %d x %d, scale %d x %d, shift %d x %d", out.rows, out.cols, x.rows, x.cols,
                scale.rows, scale.cols, shift.rows, shift.cols))
        cpu_scale_shift(s, out, x, scale, shift, act);
}

void op_rope(struct stream *s, struct array out, struct array x, struct array frequencies, int n_heads,
             int first_position)
{
    if (require(s,
                same_shape(out, x) && n_heads > 0 && frequencies.cols <= 128 &&
                    is_row(frequencies, x.cols / n_heads / 2) && x.cols == 2 * frequencies.cols * n_heads,
                "rope: out %d x %d, x %d x %d, %d heads, frequencies %d x %d", out.rows, out.cols, x.rows, x.cols,
                n_heads, frequencies.rows, frequencies.cols))
        cpu_rope(s, out, x, frequencies, first_position);
}

void op_depthwise_conv1d(struct stream *s, struct array out, struct array x, struct array taps, int pad,
                         struct array residual)
{
    if (require(s,
                out.cols == x.cols && taps.cols == x.cols && pad >= 0 && taps.rows > 0 &&
                    (!array_exists(residual) || same_shape(residual, out)),
                "depthwise_conv1d: out %d x %d, x %d x %d, taps %d x %d, residual %d x %d", out.rows, out.cols, x.rows,
                x.cols, taps.rows, taps.cols, residual.rows, residual.cols))
        cpu_depthwise_conv1d(s, out, x, taps, pad, residual);
}

void op_lstm_cell(struct stream *s, struct array hidden, struct array cell, struct array gates)
{
    if (require(s, same_shape(hidden, cell) && gates.rows == cell.rows && gates.cols == 4 * cell.cols,
                "lstm_cell: hidden %d x %d, cell %d x %d, gates %d x %d", hidden.rows, hidden.cols, cell.rows,
                cell.cols, gates.rows, gates.cols))
        cpu_lstm_cell(s, hidden, cell, gates);
}

void op_segment_mean(struct stream *s, struct array out, struct array x, int segment)
{
    if (require(s, segment > 0 && x.rows > 0 && out.cols == x.cols && out.rows == segments(x, segment),
                "segment_mean: out %d x %d, x %d x %d, segments of %d", out.rows, out.cols, x.rows, x.cols, segment))
        cpu_segment_mean(s, out, x, segment);
}

void op_segment_gate(struct stream *s, struct array out, struct array x, struct array gate, int segment)
{
    if (require(s, segment > 0 && same_shape(out, x) && gate.cols == x.cols && gate.rows == segments(x, segment),
                "segment_gate: out %d x %d, x %d x %d, gate %d x %d, segments of %d", out.rows, out.cols, x.rows,
                x.cols, gate.rows, gate.cols, segment))
        cpu_segment_gate(s, out, x, gate, segment);
}

void op_mean_std(struct stream *s, struct array out, struct array x)
{
    if (require(s, x.rows >= 2 && is_row(out, 2 * x.cols), "mean_std: out %d x %d, x %d x %d", out.rows, out.cols,
                x.rows, x.cols))
        cpu_mean_std(s, out, x);
}
