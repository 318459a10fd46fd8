#include "audio/cleanup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <kiss_fftr.h>

#include "audio/biquad.h"
#include "audio/loudness.h"
#include "base/mem.h"

#define RATE       24000
#define PEAK_LIMIT 0.85f
enum { LOOK_AHEAD = 120 /* samples, 5 ms */ };

static void filter(float *x, size_t n, struct biquad f)
{
    for (size_t i = 0; i < n; i++) x[i] = (float)biquad_step(&f, (double)x[i]);
}

static void high_pass(float *x, size_t n)
{
    filter(x, n, biquad_high_pass(RATE, 60, sqrt(0.5)));
}

/* Where a peak is too high the gain sinks to what it needs and returns, on a raised cosine LOOK_AHEAD to either side. */
static void limit_peaks(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float magnitude = fabsf(x[i]);
        if (magnitude <= PEAK_LIMIT) continue;
        const float depth = 1 - PEAK_LIMIT / magnitude;
        const size_t first = i > LOOK_AHEAD ? i - LOOK_AHEAD : 0, end = i + LOOK_AHEAD < n ? i + LOOK_AHEAD : n;
        for (size_t k = first; k < end; k++) {
            const double distance = fabs((double)k - (double)i) / LOOK_AHEAD;
            x[k] *= 1 - depth * (float)(0.5 + 0.5 * cos(M_PI * distance));
        }
    }
}

void cleanup_clean(float *x, size_t n)
{
    high_pass(x, n);
    limit_peaks(x, n);
}

/* ---- de-noising ------------------------------------------------------------------------------------------------------ */

enum { FRAME = 1024, HOP = 256, BINS = FRAME / 2 + 1 };

struct denoiser {
    kiss_fftr_cfg forward, inverse;
    kiss_fft_cpx *bins;    /* [BINS] */
    float *window, *frame; /* [FRAME] */
    float *power;          /* [n_frames][BINS], then gains */
    float *sorted;         /* [n_frames] */
    float *out;            /* [n + 2 * FRAME] */
};

static void denoiser_free(struct denoiser *d)
{
    mem_free(d->forward);
    mem_free(d->inverse);
    mem_free(d->bins);
    mem_free(d->window);
    mem_free(d->frame);
    mem_free(d->power);
    mem_free(d->sorted);
    mem_free(d->out);
}

static kiss_fftr_cfg fft_create(int inverse)
{
    size_t bytes = 0;
    kiss_fftr_alloc(FRAME, inverse, NULL, &bytes);
    void *memory = mem_alloc(bytes);
    return memory ? kiss_fftr_alloc(FRAME, inverse, memory, &bytes) : NULL;
}

static bool denoiser_create(struct denoiser *d, size_t n, size_t n_frames)
{
    *d = (struct denoiser){fft_create(0),
                           fft_create(1),
                           mem_alloc(BINS * sizeof *d->bins),
                           mem_alloc(FRAME * sizeof *d->window),
                           mem_alloc(FRAME * sizeof *d->frame),
                           mem_alloc(n_frames * BINS * sizeof *d->power),
                           mem_alloc(n_frames * sizeof *d->sorted),
                           mem_calloc(n + 2 * FRAME, sizeof *d->out)};
    if (!d->forward || !d->inverse || !d->bins || !d->window || !d->frame || !d->power || !d->sorted || !d->out)
        return false;
    for (int i = 0; i < FRAME; i++) d->window[i] = (float)sqrt(0.5 - 0.5 * cos(2 * M_PI * i / FRAME));
    return true;
}

/* The transform of frame f; frames begin FRAME before the signal, so that every sample lies under four of them. */
static void transform(struct denoiser *d, const float *x, size_t n, size_t f)
{
    for (size_t i = 0; i < FRAME; i++) {
        const size_t at = f * HOP + i;
        d->frame[i] = at >= FRAME && at - FRAME < n ? x[at - FRAME] * d->window[i] : 0;
    }
    kiss_fftr(d->forward, d->frame, d->bins);
}

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Power to gain: Wiener's, but never lower than -6 dB. The noise of a bin is what its quiet tenth holds, averaged over
 * AVERAGE frames; three times that is a little more than its mean, as such a tenth of a noise's power lies at 0.45 of it. */
static void gains_of_bin(struct denoiser *d, size_t n_frames, size_t bin)
{
    enum { AVERAGE = 8 };
    const float least = 0.501f;
    const size_t n = n_frames > AVERAGE ? n_frames - AVERAGE : 1;
    for (size_t f = 0; f < n; f++) {
        float sum = 0;
        for (size_t k = f; k < f + AVERAGE && k < n_frames; k++) sum += d->power[k * BINS + bin];
        d->sorted[f] = sum / AVERAGE;
    }
    qsort(d->sorted, n, sizeof *d->sorted, compare_floats);
    const float noise = 3 * d->sorted[n / 10];
    for (size_t f = 0; f < n_frames; f++) {
        float *p = &d->power[f * BINS + bin];
        *p = *p > 0 ? fmaxf(least, 1 - noise / *p) : least;
    }
}

static utter_status denoise(float *x, size_t n, struct cancel *cancel, struct error *e)
{
    const size_t n_frames = (n + FRAME) / HOP + 1;
    struct denoiser d;
    if (!denoiser_create(&d, n, n_frames)) {
        denoiser_free(&d);
        return error_set(e, UTTER_OUT_OF_MEMORY, "no memory to de-noise %zu samples", n);
    }
    utter_status status = UTTER_OK;
    for (size_t f = 0; status == UTTER_OK && f < n_frames; f++) {
        transform(&d, x, n, f);
        status = cancel_check(cancel, e);
        for (int k = 0; k < BINS; k++)
            d.power[f * BINS + (size_t)k] = d.bins[k].r * d.bins[k].r + d.bins[k].i * d.bins[k].i;
    }
    for (size_t k = 0; status == UTTER_OK && k < BINS; k++) {
        gains_of_bin(&d, n_frames, k);
        status = cancel_check(cancel, e);
    }
    for (size_t f = 0; status == UTTER_OK && f < n_frames; f++) {
        transform(&d, x, n, f);
        status = cancel_check(cancel, e);
        for (int k = 0; k < BINS; k++) {
            d.bins[k].r *= d.power[f * BINS + (size_t)k];
            d.bins[k].i *= d.power[f * BINS + (size_t)k];
        }
        kiss_fftri(d.inverse, d.bins, d.frame);
        for (size_t i = 0; i < FRAME && f * HOP + i < n + 2 * FRAME; i++)
            d.out[f * HOP + i] += d.frame[i] * d.window[i] / (FRAME * 2); /* four squared windows add up to 2 */
    }
    if (status == UTTER_OK) memcpy(x, d.out + FRAME, n * sizeof *x);
    denoiser_free(&d);
    return status;
}

utter_status cleanup_lossy(float *x, size_t n, double bandwidth_hz, struct cancel *cancel, struct error *e)
{
    high_pass(x, n);
    utter_status status = denoise(x, n, cancel, e);
    if (status != UTTER_OK) return status;
    filter(x, n, biquad_peak(RATE, 200, 150, -1));
    if (bandwidth_hz > 3200) filter(x, n, biquad_peak(RATE, 3200, 2200, 2.5));
    if (bandwidth_hz > 7500) filter(x, n, biquad_peak(RATE, 7500, 2500, 3));
    status = loudness_normalize(x, n, RATE, -18, NULL, cancel, e);
    limit_peaks(x, n);
    return status;
}
