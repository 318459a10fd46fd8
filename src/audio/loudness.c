#include "audio/loudness.h"

#include <math.h>
#include <stdbool.h>

#include "audio/biquad.h"
#include "base/mem.h"

enum { POLL_SAMPLES = 1 << 14 }; /* between two looks at the token: some 0.1 ms */

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

/* sums[i]: of the squares of the K-weighted samples before i. */
static utter_status sum_squares(double *sums, const float *x, size_t n, int rate, struct cancel *cancel,
                                struct error *e)
{
    struct biquad shelf = biquad_high_shelf(rate, 1500, 1 / sqrt(2), 4), high_pass = biquad_high_pass(rate, 38, 0.5);
    utter_status status = UTTER_OK;
    sums[0] = 0;
    for (size_t i = 0; i < n && status == UTTER_OK; i++) {
        if (i % POLL_SAMPLES == 0) status = cancel_check(cancel, e);
        const double y = biquad_step(&high_pass, biquad_step(&shelf, (double)x[i]));
        sums[i + 1] = sums[i] + y * y;
    }
    return status;
}

utter_status loudness_measure(double *out, const float *x, size_t n, int rate, struct cancel *cancel, struct error *e)
{
    const double seconds = (double)n / rate;
    *out = -INFINITY;
    if (seconds < 0.4) return UTTER_OK;
    const size_t n_blocks = (size_t)(nearbyint((seconds - 0.4) / 0.1) + 1);
    double *sums = mem_alloc((n + 1) * sizeof *sums), *blocks = mem_alloc(n_blocks * sizeof *blocks);
    utter_status status =
        sums && blocks ? sum_squares(sums, x, n, rate, cancel, e)
                       : error_set(e, UTTER_OUT_OF_MEMORY, "no memory to measure the loudness of %zu samples", n);
    if (status == UTTER_OK) {
        for (size_t j = 0; j < n_blocks; j++) {
            const size_t begin = block_bound((double)j, 0, rate), end = block_bound((double)j, 1, rate);
            blocks[j] = (sums[end < n ? end : n] - sums[begin < n ? begin : n]) / (0.4 * rate);
        }
        const double relative_gate = lufs(gated_mean(blocks, n_blocks, -70, false)) - 10;
        const double mean = gated_mean(blocks, n_blocks, fmax(relative_gate, -70), true);
        if (mean > 0) *out = lufs(mean);
    }
    mem_free(sums);
    mem_free(blocks);
    return status;
}

utter_status loudness_normalize(float *x, size_t n, int rate, double target, double *gain, struct cancel *cancel,
                                struct error *e)
{
    double measured;
    const utter_status status = loudness_measure(&measured, x, n, rate, cancel, e);
    double by = pow(10, (target - measured) / 20);
    if (status != UTTER_OK || !isfinite(by) || by <= 0) by = 1;
    for (size_t i = 0; by != 1 && i < n; i++) x[i] = (float)((double)x[i] * by);
    if (gain) *gain = by;
    return status;
}
