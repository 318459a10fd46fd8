#include "audio/resample.h"

#include <math.h>
#include <soxr.h>

#include "base/mem.h"

struct resampler {
    soxr_t soxr;
};

utter_status resampler_create(struct resampler **out, double from, double to, struct error *e)
{
    soxr_error_t problem = NULL;
    const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
    struct resampler *r = *out = mem_calloc(1, sizeof *r);
    if (!r) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a resampler");
    r->soxr = soxr_create(from, to, 1, &problem, NULL, &quality, NULL);
    if (problem) {
        resampler_destroy(out);
        return error_set(e, UTTER_INVALID_ARGUMENT, "cannot resample from %g to %g Hz: %s", from, to, problem);
    }
    return UTTER_OK;
}

void resampler_destroy(struct resampler **r)
{
    if (*r && (*r)->soxr) soxr_delete((*r)->soxr);
    mem_free(*r);
    *r = NULL;
}

long resampler_run(struct resampler *r, const float *in, size_t n_in, size_t *n_used, float *out, size_t max_out)
{
    size_t used = 0, made = 0;
    if (soxr_process(r->soxr, in, n_in, &used, out, max_out, &made)) return -1;
    if (n_used) *n_used = used;
    return (long)made;
}

utter_status resample(float **out, size_t *n_out, const float *x, size_t n, int from, int to, struct cancel *cancel,
                      struct error *e)
{
    enum { PIECE = 1 << 14 }; /* of the input, between two looks at the token */
    struct resampler *r = NULL;
    const size_t wanted = (size_t)ceil((double)n * to / from);
    size_t taken = 0, made = 0;
    float *y = mem_calloc(wanted + 1, sizeof *y); /* what the filter's end leaves short stays 0, as librosa pads it */
    utter_status status =
        y ? resampler_create(&r, from, to, e) : error_set(e, UTTER_OUT_OF_MEMORY, "no memory for %zu samples", wanted);
    while (status == UTTER_OK && made < wanted) {
        size_t used = 0;
        const size_t piece = n - taken < PIECE ? n - taken : PIECE;
        const long got = resampler_run(r, piece > 0 ? x + taken : NULL, piece, &used, y + made, wanted - made);
        status = cancel_check(cancel, e);
        if (got < 0) status = error_set(e, UTTER_ENGINE, "resampling from %d to %d Hz failed", from, to);
        if (got <= 0 && used == 0) break;
        taken += used;
        made += (size_t)got;
    }
    resampler_destroy(&r);
    if (status != UTTER_OK) {
        mem_free(y);
        return status;
    }
    *out = y;
    *n_out = wanted;
    return UTTER_OK;
}

/* y[2m + p] = sum over k = -10 .. 12 of h[p][k + 10] x[3m + k]. */
enum { SINC_FIRST = -10, SINC_TAPS = 23 };

static void sinc_filters(float h[2][SINC_TAPS])
{
    for (int p = 0; p < 2; p++) {
        for (int i = 0; i < SINC_TAPS; i++) {
            const double t = fmin(6, fmax(-6, 1.98 * ((i + SINC_FIRST) / 3.0 - p / 2.0)));
            const double window = pow(cos(M_PI * t / 12), 2);
            h[p][i] = (float)(1.98 / 3 * window * (t == 0 ? 1 : sin(M_PI * t) / (M_PI * t)));
        }
    }
}

size_t resample_24k_to_16k_count(size_t n)
{
    return (2 * n + 2) / 3;
}

void resample_24k_to_16k(float *out, const float *x, size_t n)
{
    float h[2][SINC_TAPS];
    sinc_filters(h);
    const size_t n_out = resample_24k_to_16k_count(n);
    for (size_t i = 0; i < n_out; i++) {
        const int64_t start = (int64_t)(i / 2) * 3 + SINC_FIRST;
        double sum = 0;
        for (int k = 0; k < SINC_TAPS; k++)
            if (start + k >= 0 && start + k < (int64_t)n) sum += (double)h[i % 2][k] * (double)x[start + k];
        out[i] = (float)sum;
    }
}
