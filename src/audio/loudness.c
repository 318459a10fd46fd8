#include "audio/loudness.h"

#include <math.h>
#include <stdbool.h>

#include "audio/biquad.h"
#include "base/mem.h"

/* A block is 0.4 s, a new one begins every 0.1 s. pyloudnorm rounds the bounds of each block on its own, in exactly this
 * arithmetic; a sum of squares up to every sample gives any block by one subtraction. */
static size_t block_bound(double block_index, double extra, int rate)
{
    return (size_t)(0.4 * (block_index * 0.25 + extra) * rate);
}

static double lufs(double mean_square)
{
    return -0.691 + 10 * log10(mean_square);
}

/* Mean of the blocks louder than `gate`; 0 when there is none. */
static double gated_mean(const double *blocks, size_t n, double gate, bool strictly)
{
    double sum = 0;
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        const double l = lufs(blocks[i]);
        if (l < gate || (strictly && l <= gate)) continue;
        sum += blocks[i];
        count++;
    }
    return count ? sum / (double)count : 0;
}

double loudness_lufs(const float *x, size_t n, int rate)
{
    const double seconds = (double)n / rate;
    if (seconds < 0.4) return -INFINITY;
    const size_t n_blocks = (size_t)(nearbyint((seconds - 0.4) / 0.1) + 1);
    double *sums = mem_alloc((n + 1) * sizeof *sums), *blocks = mem_alloc(n_blocks * sizeof *blocks);
    double mean = 0;
    if (sums && blocks) {
        struct biquad shelf = biquad_high_shelf(rate, 1500, 1 / sqrt(2), 4),
                      high_pass = biquad_high_pass(rate, 38, 0.5);
        sums[0] = 0;
        for (size_t i = 0; i < n; i++) {
            const double y = biquad_step(&high_pass, biquad_step(&shelf, (double)x[i]));
            sums[i + 1] = sums[i] + y * y;
        }
        for (size_t j = 0; j < n_blocks; j++) {
            const size_t begin = block_bound((double)j, 0, rate), end = block_bound((double)j, 1, rate);
            blocks[j] = (sums[end < n ? end : n] - sums[begin < n ? begin : n]) / (0.4 * rate);
        }
        const double relative_gate = lufs(gated_mean(blocks, n_blocks, -70, false)) - 10;
        mean = gated_mean(blocks, n_blocks, fmax(relative_gate, -70), true);
    }
    mem_free(sums);
    mem_free(blocks);
    return mean > 0 ? lufs(mean) : -INFINITY;
}

float loudness_normalize(float *x, size_t n, int rate, double target)
{
    const double gain = pow(10, (target - loudness_lufs(x, n, rate)) / 20);
    if (!isfinite(gain) || gain <= 0) return 1;
    for (size_t i = 0; i < n; i++) x[i] = (float)((double)x[i] * gain);
    return (float)gain;
}
