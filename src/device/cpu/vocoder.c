/* The vocoder's source and 16-point transforms, cut into tiles. */
#include <math.h>

#include "device/cpu/cpu.h"

enum { TILE_FRAMES = 4 /* of mel */, TILE_TRANSFORMS = 512 };

struct job {
    const struct cpu_kernels *kernels;
    struct source source;
    struct array out, x;
    float limit;
    int n, per_tile; /* frames or samples, in all and a tile */
};

static int in_tile(const struct job *j, int tile)
{
    const int left = j->n - tile * j->per_tile;
    return left < j->per_tile ? left : j->per_tile;
}

static void run(struct stream *s, struct job *j, pool_tile_fn *fn)
{
    j->kernels = &s->device->kernels;
    if (j->n > 0) cpu_run(s, (j->n + j->per_tile - 1) / j->per_tile, fn, j);
}

static void source_tile(void *arg, int tile, int worker)
{
    (void)worker;
    const struct job *j = arg;
    (j->source.sums ? sine_source_scalar : j->kernels->sine_source)(&j->source, tile * j->per_tile, in_tile(j, tile));
}

/* Unwrapped cycles of every harmonic before every frame. */
static double *harmonic_sums(struct stream *s, struct array f0, const struct source_params *p)
{
    const int H = p->n_harmonics;
    double *sums = (double *)cpu_scratch(s, 2 * (size_t)H * ((size_t)f0.rows + 1));
    if (!sums) return NULL;
    for (int h = 0; h < H; h++) sums[h] = 0;
    for (int m = 0; m < f0.rows; m++)
        for (int h = 0; h < H; h++) {
            const float step = f0.data[(ptrdiff_t)m * f0.stride] * (float)(h + 1) / p->sample_rate;
            sums[(m + 1) * H + h] = sums[m * H + h] + p->hop * (double)step;
        }
    return sums;
}

void cpu_sine_source(struct stream *s, struct array out, struct array f0, const struct source_params *p)
{
    const size_t mark = stream_mark(s);
    double *cycles = (double *)cpu_scratch(s, 2 * (size_t)f0.rows + 2);
    if (!cycles) return;
    cycles[0] = p->start_cycles;
    for (int m = 0; m < f0.rows; m++) {
        const double end = cycles[m] + p->hop * ((double)f0.data[(ptrdiff_t)m * f0.stride] / (double)p->sample_rate);
        cycles[m + 1] = end - floor(end);
    }
    if (p->end_cycles) *p->end_cycles = cycles[f0.rows];
    struct job j = {.source = {p, f0.data, f0.stride, cycles, out.data, NULL}, .n = f0.rows, .per_tile = TILE_FRAMES};
    if (p->official_rounding && !(j.source.sums = harmonic_sums(s, f0, p))) return;
    run(s, &j, source_tile);
    stream_release(s, mark);
}

static void stft_tile(void *arg, int tile, int worker)
{
    (void)worker;
    const struct job *j = arg;
    j->kernels->stft16(j->out.data, j->out.stride, j->x.data, j->x.rows, tile * j->per_tile, in_tile(j, tile));
}

void cpu_stft16(struct stream *s, struct array out, struct array x)
{
    struct job j = {.out = out, .x = x, .n = out.rows, .per_tile = TILE_TRANSFORMS};
    run(s, &j, stft_tile);
}

static void istft_tile(void *arg, int tile, int worker)
{
    (void)worker;
    const struct job *j = arg;
    j->kernels->istft16(j->out.data, j->x.data, j->x.stride, j->x.rows, tile * j->per_tile, in_tile(j, tile), j->limit);
}

void cpu_istft16(struct stream *s, struct array out, struct array x, float limit)
{
    struct job j = {.out = out, .x = x, .limit = limit, .n = out.rows, .per_tile = 4 * TILE_TRANSFORMS};
    run(s, &j, istft_tile);
}
