#include <math.h>

#include "base/half.h"
#include "device/cpu/kernels.h"

enum { PANEL = 8 };

static float element(const float *values, const uint16_t *halves, ptrdiff_t at)
{
    return halves ? half_to_float(halves[at]) : values[at];
}

void narrow_scalar(uint16_t *to, ptrdiff_t step, const float *x, int n)
{
    for (int i = 0; i < n; i++) to[i * step] = float_to_half(x[i]);
}

void widen_scalar(float *to, const uint16_t *from, int n)
{
    for (int i = 0; i < n; i++) to[i] = half_to_float(from[i]);
}

static double score(const struct attention *a, int head, int query, int key)
{
    const int d = a->head_dim;
    const float *q = a->q + query * a->q_stride + head * d;
    const ptrdiff_t at = (key / PANEL) * a->k_panel + head * a->k_head + key % PANEL;
    double sum = 0;
    if (!a->pos) {
        for (int c = 0; c < d; c++) sum += (double)q[c] * (double)element(a->k, a->k16, at + c * PANEL);
        return sum * (double)a->scale;
    }
    const float *k = a->k + at;
    const int r = a->n_keys - 1 - query + key;
    const float *pos = a->pos + (r / PANEL) * a->pos_panel + head * a->pos_head + r % PANEL;
    const float *u = a->bias_u + head * d, *w = a->bias_w + head * d;
    for (int c = 0; c < d; c++)
        sum += ((double)q[c] + (double)u[c]) * (double)k[c * PANEL] +
               ((double)q[c] + (double)w[c]) * (double)pos[c * PANEL];
    return sum * (double)a->scale;
}

void attention_tile_scalar(const struct attention *a, int head, int query, int n, float *scratch)
{
    for (int i = query; i < query + n; i++) {
        const int n_keys = a->causal_first < 0 ? a->n_keys : a->causal_first + i + 1;
        float largest = -INFINITY;
        for (int j = 0; j < n_keys; j++) {
            scratch[j] = (float)score(a, head, i, j);
            largest = fmaxf(largest, scratch[j]);
        }
        double total = 0;
        for (int j = 0; j < n_keys; j++) total += (double)(scratch[j] = expf(scratch[j] - largest));
        for (int c = 0; c < a->head_dim; c++) {
            double sum = 0;
            for (int j = 0; j < n_keys; j++)
                sum += (double)scratch[j] *
                       (double)a->v[(j / PANEL) * a->v_panel + head * a->v_head + (j % PANEL) * a->v_row + c];
            a->out[i * a->out_stride + head * a->head_dim + c] = (float)(sum / total);
        }
    }
}

void attend_part_scalar(const struct attention *a, int n_heads, int first, int n, float *part)
{
    const int d = a->head_dim;
    for (int h = 0; h < n_heads; h++, part += 2 + d) {
        double s[ATTENTION_PART], largest = -INFINITY, total = 0;
        for (int j = 0; j < n; j++) largest = fmax(largest, s[j] = (double)(float)score(a, h, 0, first + j));
        for (int j = 0; j < n; j++) total += s[j] = exp(s[j] - largest);
        for (int c = 0; c < d; c++) {
            double sum = 0;
            for (int j = 0; j < n; j++)
                sum += s[j] * (double)element(a->v, a->v16,
                                              ((first + j) / PANEL) * a->v_panel + h * a->v_head +
                                                  ((first + j) % PANEL) * a->v_row + c);
            part[2 + c] = (float)sum;
        }
        part[0] = (float)largest;
        part[1] = (float)total;
    }
}

void join_parts_scalar(const struct attention *a, int n_heads, float *parts, ptrdiff_t part, int n_parts)
{
    const int d = a->head_dim;
    for (int h = 0; h < n_heads; h++, parts += 2 + d) {
        double largest = -INFINITY, total = 0;
        for (int i = 0; i < n_parts; i++) largest = fmax(largest, (double)parts[i * part]);
        for (int i = 0; i < n_parts; i++) total += exp((double)parts[i * part] - largest) * (double)parts[i * part + 1];
        for (int c = 0; c < d; c++) {
            double sum = 0;
            for (int i = 0; i < n_parts; i++)
                sum += exp((double)parts[i * part] - largest) * (double)parts[i * part + 2 + c];
            a->out[h * d + c] = (float)(sum / total);
        }
    }
}

/* ---- bf16 -------------------------------------------------------------------------------------------------------- */

void narrow_pairs_scalar(const float *x, ptrdiff_t stride, int n, int columns, uint32_t *pairs)
{
    for (int r = 0; r < n; r += 2)
        for (int c = 0; c < columns; c++) {
            const uint32_t first = float_to_bf16(x[r * stride + c]);
            const uint32_t second = r + 1 < n ? float_to_bf16(x[(r + 1) * stride + c]) : 0;
            pairs[r / 2 * columns + c] = first | second << 16;
        }
}

static double half_of_pair(uint32_t pair, bool second)
{
    return (double)bf16_to_float((uint16_t)(second ? pair >> 16 : pair & 0xFFFF));
}

/* (q + bias) . key, queries rounded as the kernels do: a weight is a power of two, so they carry log2(e) */
static double score_pairs(const struct attention *a, int head, int query, const float *bias, const uint32_t *pairs)
{
    double sum = 0;
    for (int c = 0; c < a->head_dim; c++) {
        const float q = a->q[query * a->q_stride + head * a->head_dim + c];
        const float x = (bias ? q + bias[head * a->head_dim + c] : q) * (a->scale * 1.442695041f);
        sum += (double)bf16_to_float(float_to_bf16(x)) * half_of_pair(pairs[c / 2 * PANEL], c % 2);
    }
    return sum;
}

void attention_tile_bf16_scalar(const struct attention *a, int head, int query, int n, float *scratch)
{
    for (int i = query; i < query + n; i++) {
        const int n_keys = a->causal_first < 0 ? a->n_keys : a->causal_first + i + 1;
        double largest = -INFINITY, total = 0;
        for (int j = 0; j < n_keys; j++) {
            const int r = a->n_keys - 1 - i + j;
            double score =
                score_pairs(a, head, i, a->bias_u,
                            a->k_pairs + head * a->k_pairs_head + (j / PANEL) * a->k_pairs_panel + j % PANEL);
            if (a->pos_pairs)
                score +=
                    score_pairs(a, head, i, a->bias_w,
                                a->pos_pairs + head * a->pos_pairs_head + (r / PANEL) * a->pos_pairs_panel + r % PANEL);
            scratch[j] = (float)score;
            largest = fmax(largest, score);
        }
        for (int j = 0; j < n_keys; j++) {
            const float weight = (float)exp2((double)scratch[j] - largest);
            total += (double)weight;
            scratch[j] = bf16_to_float(float_to_bf16(weight));
        }
        for (int c = 0; c < a->head_dim; c++) {
            double sum = 0;
            for (int j = 0; j < n_keys; j++)
                sum += (double)scratch[j] *
                       half_of_pair(a->v_pairs[head * a->v_pairs_head + (j / PANEL) * a->v_pairs_panel +
                                               j % PANEL / 2 * a->head_dim + c],
                                    j % 2);
            a->out[i * a->out_stride + head * a->head_dim + c] = (float)(sum / total);
        }
    }
}
