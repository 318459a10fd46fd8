/* The ops of the networks that listen. A tile is some rows, or some columns where an op sums over rows. */
#include <math.h>
#include <string.h>

#include "device/cpu/cpu.h"

enum { TILE_FLOATS = 1 << 14, COLUMN_TILE = 16 };

struct job {
    const struct cpu_kernels *kernels;
    struct array out, x, y, z;
    enum activation act;
    int n, first, tile;
    void (*part)(const struct job *j, int first, int end);
};

static float *row(struct array a, int r)
{
    return a.data + (ptrdiff_t)r * a.stride;
}

static void run_tile(void *arg, int tile, int worker)
{
    (void)worker;
    const struct job *j = arg;
    const int first = tile * j->tile, end = first + j->tile < j->n ? first + j->tile : j->n;
    j->part(j, first, end);
}

/* Cuts [0, n) into tiles. */
static void run(struct stream *s, int n, int tile, struct job j)
{
    j.kernels = &s->device->kernels;
    j.n = n;
    j.tile = tile > 0 ? tile : 1;
    if (n > 0) cpu_run(s, (n + j.tile - 1) / j.tile, run_tile, &j);
}

static void scale_shift(const struct job *j, int first, int end)
{
    for (int r = first; r < end; r++) {
        float *restrict out = row(j->out, r);
        const float *x = row(j->x, r), *scale = j->y.data, *shift = j->z.data;
        for (int c = 0; c < j->x.cols; c++) out[c] = scale[c] * x[c] + shift[c];
        if (j->act != ACT_NONE) j->kernels->activate(out, out, j->x.cols, j->act, 0);
    }
}

void cpu_scale_shift(struct stream *s, struct array out, struct array x, struct array scale, struct array shift,
                     enum activation act)
{
    run(s, x.rows, TILE_FLOATS / (x.cols + 1),
        (struct job){.out = out, .x = x, .y = scale, .z = shift, .act = act, .part = scale_shift});
}

/* Angles are rounded to float before their sine is taken, as the official implementations do. */
static void rope(const struct job *j, int first, int end)
{
    enum { MAX_HALF = 128 };
    const int half = j->y.cols;
    float cosine[MAX_HALF], sine[MAX_HALF];
    for (int r = first; r < end; r++) {
        for (int i = 0; i < half; i++) {
            const float angle = (float)(j->first + r) * j->y.data[i];
            cosine[i] = (float)cos((double)angle);
            sine[i] = (float)sin((double)angle);
        }
        for (int head = 0; head < j->x.cols; head += 2 * half) {
            const float *x = row(j->x, r) + head;
            float *out = row(j->out, r) + head;
            for (int i = 0; i < half; i++) {
                const float a = x[i], b = x[i + half];
                out[i] = a * cosine[i] - b * sine[i];
                out[i + half] = b * cosine[i] + a * sine[i];
            }
        }
    }
}

void cpu_rope(struct stream *s, struct array out, struct array x, struct array frequencies, int first_position)
{
    run(s, x.rows, TILE_FLOATS / (x.cols + 1),
        (struct job){.out = out, .x = x, .y = frequencies, .first = first_position, .part = rope});
}

static void depthwise(const struct job *j, int first, int end)
{
    const int pad = j->first;
    for (int r = first; r < end; r++) {
        float *restrict out = row(j->out, r);
        if (array_exists(j->z))
            memcpy(out, row(j->z, r), (size_t)j->out.cols * sizeof *out);
        else
            memset(out, 0, (size_t)j->out.cols * sizeof *out);
        for (int k = 0; k < j->y.rows; k++) {
            const int t = r + k - pad;
            if (t < 0 || t >= j->x.rows) continue;
            const float *restrict x = row(j->x, t), *restrict taps = row(j->y, k);
            for (int c = 0; c < j->out.cols; c++) out[c] += x[c] * taps[c];
        }
    }
}

void cpu_depthwise_conv1d(struct stream *s, struct array out, struct array x, struct array taps, int pad,
                          struct array residual)
{
    run(s, out.rows, TILE_FLOATS / (out.cols * taps.rows / 8 + 1),
        (struct job){.out = out, .x = x, .y = taps, .z = residual, .first = pad, .part = depthwise});
}

static void lstm_cell(const struct job *j, int first, int end)
{
    const int n = j->out.cols;
    for (int r = first; r < end; r++) {
        float *gates = row(j->x, r), *cell = row(j->y, r), *hidden = row(j->out, r);
        const float *in = gates, *forget = gates + n, *candidate = gates + 2 * n, *out = gates + 3 * n;
        j->kernels->activate(gates, gates, 2 * n, ACT_SIGMOID, 0);
        j->kernels->activate(gates + 2 * n, candidate, n, ACT_TANH, 0);
        j->kernels->activate(gates + 3 * n, out, n, ACT_SIGMOID, 0);
        for (int i = 0; i < n; i++) cell[i] = forget[i] * cell[i] + in[i] * candidate[i];
        j->kernels->activate(hidden, cell, n, ACT_TANH, 0);
        for (int i = 0; i < n; i++) hidden[i] *= out[i];
    }
}

void cpu_lstm_cell(struct stream *s, struct array hidden, struct array cell, struct array gates)
{
    run(s, gates.rows, 4, (struct job){.out = hidden, .x = gates, .y = cell, .part = lstm_cell});
}

static void segment_mean(const struct job *j, int first, int end)
{
    const int segment = j->first;
    for (int i = 0; i < j->out.rows; i++) {
        const int begin = i * segment, stop = begin + segment < j->x.rows ? begin + segment : j->x.rows;
        double sums[COLUMN_TILE] = {0};
        for (int t = begin; t < stop; t++)
            for (int c = first; c < end; c++) sums[c - first] += (double)row(j->x, t)[c];
        for (int c = first; c < end; c++) row(j->out, i)[c] = (float)(sums[c - first] / (stop - begin));
    }
}

void cpu_segment_mean(struct stream *s, struct array out, struct array x, int segment)
{
    run(s, x.cols, COLUMN_TILE, (struct job){.out = out, .x = x, .first = segment, .part = segment_mean});
}

static void segment_gate(const struct job *j, int first, int end)
{
    for (int r = first; r < end; r++) {
        const float *x = row(j->x, r), *gate = row(j->y, r / j->first);
        float *out = row(j->out, r);
        for (int c = 0; c < j->x.cols; c++) out[c] = x[c] * gate[c];
    }
}

void cpu_segment_gate(struct stream *s, struct array out, struct array x, struct array gate, int segment)
{
    run(s, x.rows, TILE_FLOATS / (x.cols + 1),
        (struct job){.out = out, .x = x, .y = gate, .first = segment, .part = segment_gate});
}

static void mean_std(const struct job *j, int first, int end)
{
    const int n = j->x.rows;
    for (int c = first; c < end; c++) {
        double mean = 0, square = 0;
        for (int t = 0; t < n; t++) mean += (double)row(j->x, t)[c];
        mean /= n;
        for (int t = 0; t < n; t++) square += ((double)row(j->x, t)[c] - mean) * ((double)row(j->x, t)[c] - mean);
        j->out.data[c] = (float)mean;
        j->out.data[c + j->x.cols] = (float)sqrt(square / (n - 1));
    }
}

void cpu_mean_std(struct stream *s, struct array out, struct array x)
{
    run(s, x.cols, COLUMN_TILE, (struct job){.out = out, .x = x, .part = mean_std});
}
