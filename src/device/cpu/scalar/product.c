/* Matrix products, the plain way: every kernel's sums in double, so that a vector level is compared with nearly exact values. */
#include "base/half.h"
#include "base/tensor.h"
#include "device/cpu/scalar/activation.h"
#include "device/cpu/kernels.h"

void read_weights_scalar(const struct weight *w, size_t row, int first, int n, float *out)
{
    const struct tensor t = {.type = w->type, .data = w->data + row * w->row_bytes};
    tensor_read_f32(&t, (size_t)first, (size_t)n, out);
}

static void store(const struct product *p, int row, int col, double sum)
{
    float v = (float)sum;
    if (p->bias) v += p->bias[col];
    if (p->row_add) v += p->row_add[col];
    v = p->snake_alpha ? snake_scalar_value(v, p->snake_alpha[col]) : activation_scalar(v, p->act, p->act_param);
    v *= p->scale;
    if (p->residual) v += p->residual[row * p->residual_stride + col];
    p->out[row * p->out_stride + col] = v;
}

/* The weights of one output column, [taps][in]. */
static void read_column(const struct product *p, int col, float *out)
{
    const struct weight *w = p->w;
    for (int j = 0; j < p->taps; j++, out += w->in) {
        const int tap = p->tap_first + j * p->tap_stride;
        if (!w->in_out) {
            read_weights_scalar(w, (size_t)tap * (size_t)w->out + (size_t)col, 0, w->in, out);
            continue;
        }
        for (int c = 0; c < w->in; c++) read_weights_scalar(w, (size_t)c, col, 1, out + c);
    }
}

void product_tile_scalar(const struct product *p, int row, int n_rows, int col, int n_cols, float *scratch)
{
    for (int n = col; n < col + n_cols; n++) {
        read_column(p, n, scratch);
        for (int t = row; t < row + n_rows; t++) {
            double sum = 0;
            for (int j = 0; j < p->taps; j++) {
                const int at = p->x_first + t * p->row_step + j * p->tap_step;
                if (at < 0 || at >= p->x_rows) continue;
                const float *x = p->x + at * p->x_stride, *w = scratch + (size_t)j * (size_t)p->w->in;
                for (int c = 0; c < p->w->in; c++) sum += (double)x[c] * (double)w[c];
            }
            store(p, t, n, sum);
        }
    }
}

void pack_inputs_scalar(const struct weight *w, int first, int n, float *panels)
{
    enum { PANEL = 8 };
    for (int c = first; c < first + n; c++)
        for (int i = 0; i < (w->out + PANEL - 1) / PANEL * PANEL; i++) {
            float value = 0;
            if (i < w->out) read_weights_scalar(w, (size_t)c, i, 1, &value);
            panels[((size_t)(i / PANEL) * (size_t)w->in + (size_t)c) * PANEL + (size_t)(i % PANEL)] = value;
        }
}

void product_rows_scalar(const struct product *p, int row, int n_rows, int col, int n_cols, float *scratch)
{
    product_tile_scalar(p, row, n_rows, col, n_cols, scratch);
}

void sum_inputs_scalar(const struct product *p, int row, int n_rows, int lane, float *sums)
{
    enum { LANES = 1 };
    for (int t = 0; t < n_rows; t++)
        for (int col = 0; col < p->w->out; col++) {
            const float *x = p->x + (p->x_first + (row + t) * p->row_step) * p->x_stride;
            double sum = 0;
            for (int c = lane; c < p->w->in; c += LANES) {
                float w;
                read_weights_scalar(p->w, (size_t)c, col, 1, &w);
                sum += (double)x[c] * (double)w;
            }
            sums[t * p->w->out + col] = (float)sum;
        }
}

void finish_inputs_scalar(const struct product *p, int row, int n_rows, int col, int n_cols, const float *sums)
{
    for (int t = 0; t < n_rows; t++)
        for (int n = col; n < col + n_cols; n++) store(p, row + t, n, (double)sums[t * p->w->out + n]);
}

void quantize_row_scalar(const struct quantized_row *out, const float *x, int n, int offset)
{
    for (int b = 0; b < n / 32; b++, x += 32) {
        float largest = 0;
        for (int i = 0; i < 32; i++) largest = fmaxf(largest, fabsf(x[i]));
        const float inverse = largest > 0 ? 127 / largest : 0;
        const int at = b * out->step;
        out->scale[at] = largest / 127;
        out->start[at] = 0;
        for (int i = 0; i < 32; i++) {
            out->q[32 * at + i] = (int8_t)rintf(x[i] * inverse);
            out->start[at] -= offset * out->q[32 * at + i];
        }
    }
}

void product_rows_q8_scalar(const struct product *p, const struct quantized_row *x, int row, int n_rows, int col,
                            int n_cols)
{
    const struct weight *w = p->w;
    for (int n = col; n < col + n_cols; n++)
        for (int t = 0; t < n_rows; t++) {
            double sum = 0;
            for (int b = 0; b < w->in / 32; b++) {
                float block[32];
                double dot = 0;
                read_weights_scalar(w, (size_t)n, 32 * b, 32, block);
                for (int i = 0; i < 32; i++) dot += (double)block[i] * x[t].q[32 * b * x[t].step + i];
                sum += dot * (double)x[t].scale[b * x[t].step];
            }
            store(p, row + t, n, sum);
        }
}

void pack_rows_scalar(float *panels, const float *x, ptrdiff_t x_stride, int first, int n_rows, int width)
{
    enum { PANEL = 8 };
    for (int r = 0; r < n_rows; r++) {
        float *panel = panels + (size_t)((first + r) / PANEL) * (size_t)width * PANEL + (first + r) % PANEL;
        for (int c = 0; c < width; c++) panel[(size_t)c * PANEL] = x[r * x_stride + c];
    }
}

/* ---- bf16 -------------------------------------------------------------------------------------------------------- */

void narrow_rows_scalar(const struct product *p, int first, int n, uint16_t *out, ptrdiff_t stride)
{
    for (int r = first; r < first + n; r++, out += stride)
        for (int c = 0; c < stride; c++)
            out[c] = r >= 0 && r < p->x_rows && c < p->w->in ? float_to_bf16(p->x[r * p->x_stride + c]) : 0;
}

void product_tile_bf16_scalar(const struct product *p, const uint16_t *x, ptrdiff_t stride, int row, int n_rows,
                              int col, int n_cols, float *scratch)
{
    for (int n = col; n < col + n_cols; n++) {
        read_column(p, n, scratch);
        for (int t = row; t < row + n_rows; t++) {
            double sum = 0;
            for (int j = 0; j < p->taps; j++)
                for (int c = 0; c < p->w->in; c++) {
                    const float w = bf16_to_float(float_to_bf16(scratch[j * p->w->in + c]));
                    sum += (double)bf16_to_float(x[(t * p->row_step + j * p->tap_step) * stride + c]) * (double)w;
                }
            store(p, t, n, sum);
        }
    }
}
