#include "audio/features.h"

#include <math.h>
#include <string.h>
#include <kiss_fftr.h>

#include "base/mem.h"

/* ---- frames and their spectra ------------------------------------------------------------------------------------- */

struct spectrum {
    int n_fft, n_window;
    kiss_fftr_cfg fft;
    float *window;                      /* [n_window] */
    float *frame;                       /* [n_fft]: the windowed samples, zeros behind them */
    kiss_fft_cpx *bins;                 /* [n_fft / 2 + 1] */
    double (*exact)[2], (*twiddles)[2]; /* [n_fft], [n_fft / 2]: the double-precision transform's, or NULL */
};

void spectrum_destroy(struct spectrum **s)
{
    if (!*s) return;
    mem_free((*s)->fft);
    mem_free((*s)->window);
    mem_free((*s)->frame);
    mem_free((*s)->bins);
    mem_free((*s)->exact);
    mem_free((*s)->twiddles);
    mem_free(*s);
    *s = NULL;
}

static utter_status spectrum_create_window(struct spectrum **out, int n_fft, int n_window, struct error *e)
{
    size_t fft_bytes = 0;
    kiss_fftr_alloc(n_fft, 0, NULL, &fft_bytes); /* asks for the size */
    struct spectrum *s = mem_calloc(1, sizeof *s);
    if (s) {
        s->n_fft = n_fft;
        s->n_window = n_window;
        s->fft = mem_alloc(fft_bytes);
        s->window = mem_alloc((size_t)n_window * sizeof *s->window);
        s->frame = mem_calloc((size_t)n_fft, sizeof *s->frame);
        s->bins = mem_alloc(((size_t)n_fft / 2 + 1) * sizeof *s->bins);
    }
    if (!s || !s->fft || !s->window || !s->frame || !s->bins) {
        spectrum_destroy(&s);
        return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a %d-point spectrum", n_fft);
    }
    kiss_fftr_alloc(n_fft, 0, s->fft, &fft_bytes);
    for (int i = 0; i < n_window; i++) s->window[i] = (float)(0.5 - 0.5 * cos(2.0 * M_PI * i / n_window));
    *out = s;
    return UTTER_OK;
}

utter_status spectrum_create(struct spectrum **out, int n_fft, struct error *e)
{
    *out = NULL;
    return spectrum_create_window(out, n_fft, n_fft, e);
}

/* A decimation-in-time FFT in double precision, n a power of two, in place. twiddles: [n / 2] of exp(-2 pi i k / n). */
static void fft_double(double (*x)[2], double (*twiddles)[2], int n)
{
    for (int i = 1, j = 0; i < n; i++) { /* bit reversal */
        int bit = n >> 1;
        for (; j & bit; bit >>= 1) j ^= bit;
        j ^= bit;
        if (i >= j) continue;
        const double re = x[i][0], im = x[i][1];
        x[i][0] = x[j][0], x[i][1] = x[j][1];
        x[j][0] = re, x[j][1] = im;
    }
    for (int half = 1; half < n; half *= 2) {
        for (int i = 0; i < n; i++) {
            if (i & half) continue;
            const double *w = twiddles[(i & (half - 1)) * (n / 2 / half)];
            double *a = x[i], *b = x[i + half];
            const double re = b[0] * w[0] - b[1] * w[1], im = b[0] * w[1] + b[1] * w[0];
            b[0] = a[0] - re, b[1] = a[1] - im;
            a[0] += re, a[1] += im;
        }
    }
}

/* |X|^2 of s->frame, whose first n_window samples the caller has filled and not yet windowed. */
static void power_of_frame(struct spectrum *s, float *power)
{
    for (int i = 0; i < s->n_window; i++) s->frame[i] *= s->window[i];
    if (s->exact) {
        for (int i = 0; i < s->n_fft; i++) s->exact[i][0] = (double)s->frame[i], s->exact[i][1] = 0;
        fft_double(s->exact, s->twiddles, s->n_fft);
        for (int i = 0; i <= s->n_fft / 2; i++)
            power[i] = (float)(s->exact[i][0] * s->exact[i][0] + s->exact[i][1] * s->exact[i][1]);
        return;
    }
    kiss_fftr(s->fft, s->frame, s->bins);
    for (int i = 0; i <= s->n_fft / 2; i++) power[i] = s->bins[i].r * s->bins[i].r + s->bins[i].i * s->bins[i].i;
}

void spectrum_power(struct spectrum *s, float *out, const float *x)
{
    memcpy(s->frame, x, (size_t)s->n_window * sizeof *x);
    power_of_frame(s, out);
}

/* x[start ...] with the signal mirrored at its ends (the edge sample is not repeated): |start| < n and so on hold. */
static void copy_reflected(float *frame, int n_frame, const float *x, int64_t n, int64_t start)
{
    for (int i = 0; i < n_frame; i++) {
        int64_t at = start + i;
        if (at < 0) at = -at;
        if (at >= n) at = 2 * (n - 1) - at;
        frame[i] = x[at];
    }
}

/* ---- filter banks --------------------------------------------------------------------------------------------------- */

/* One triangle: its non-zero weights begin at bin `first`. */
struct band {
    int first, count;
    float *weights;
};

struct filter_bank {
    int n_bands;
    struct band *bands;
    float *weights; /* [n_bands][n_bins], which the bands point into */
};

static void filter_bank_free(struct filter_bank *b)
{
    mem_free(b->bands);
    mem_free(b->weights);
    *b = (struct filter_bank){0};
}

/* Slaney's auditory toolbox scale: linear to 1 kHz, then logarithmic. */
static double slaney_to_hz(double mel)
{
    return mel < 15 ? mel * 200.0 / 3.0 : 1000.0 * exp((mel - 15) * log(6.4) / 27.0);
}

static double slaney_from_hz(double hz)
{
    return hz < 1000 ? hz * 3.0 / 200.0 : 15 + log(hz / 1000) * 27.0 / log(6.4);
}
static double kaldi_from_hz(double hz)
{
    return 1127.0 * log(1.0 + hz / 700.0);
}

static double triangle(double low, double centre, double high, double at)
{
    const double up = (at - low) / (centre - low), down = (high - at) / (high - centre);
    return fmax(0, fmin(up, down));
}

/* Slaney: triangles in Hz, each with area 1. Kaldi: triangles in mel between 20 Hz and half the rate, the Nyquist bin
 * left out, as torchaudio does. */
static double band_weight(bool kaldi, int band, int n_bands, double hz, double rate)
{
    if (kaldi) {
        const double low = kaldi_from_hz(20), step = (kaldi_from_hz(rate / 2) - low) / (n_bands + 1);
        if (hz >= rate / 2) return 0;
        return triangle(low + band * step, low + (band + 1) * step, low + (band + 2) * step, kaldi_from_hz(hz));
    }
    const double step = slaney_from_hz(8000) / (n_bands + 1);
    const double low = slaney_to_hz(band * step), high = slaney_to_hz((band + 2) * step);
    return triangle(low, slaney_to_hz((band + 1) * step), high, hz) * 2 / (high - low);
}

static utter_status filter_bank_create(struct filter_bank *b, bool kaldi, int n_bands, int n_fft, double rate,
                                       struct error *e)
{
    const int n_bins = n_fft / 2 + 1;
    *b = (struct filter_bank){n_bands, mem_calloc((size_t)n_bands, sizeof *b->bands),
                              mem_calloc((size_t)n_bands * (size_t)n_bins, sizeof *b->weights)};
    if (!b->bands || !b->weights) {
        filter_bank_free(b);
        return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for %d filters", n_bands);
    }
    for (int i = 0; i < n_bands; i++) {
        float *row = b->weights + (size_t)i * (size_t)n_bins;
        int first = n_bins, end = 0;
        for (int k = 0; k < n_bins; k++) {
            row[k] = (float)band_weight(kaldi, i, n_bands, k * rate / n_fft, rate);
            if (row[k] <= 0) continue;
            if (first > k) first = k;
            end = k + 1;
        }
        b->bands[i] = (struct band){first, end > first ? end - first : 0, row + first};
    }
    return UTTER_OK;
}

static double band_energy(const struct band *band, const float *spectrum)
{
    double sum = 0;
    for (int k = 0; k < band->count; k++) sum += (double)band->weights[k] * (double)spectrum[band->first + k];
    return sum;
}

/* ---- the front ends -------------------------------------------------------------------------------------------------- */

/* What differs between them. A frame starts at index * hop - pad, mirrored at the signal's ends. */
struct front_end {
    int rate, n_fft, n_window, hop, pad, n_bands;
    bool kaldi;
    double magnitude_floor; /* > 0: bands add magnitudes sqrt(power + floor), not powers */
    double (*compress)(double);
};

static double keep(double x)
{
    return x;
}
static double ln_1em5(double x)
{
    return log(fmax(x, 1e-5));
}
static double ln_epsilon(double x)
{
    return log(fmax(x, 1.1920928955078125e-07));
}
static double log10_1em10(double x)
{
    return log10(fmax(x, 1e-10));
}

static const struct front_end s3 = {16000, 400, 400, 160, 200, S3_N_MELS, false, 0, log10_1em10};
static const struct front_end voice_encoder = {16000, 400, 400, 160, 200, VOICE_ENCODER_N_MELS, false, 0, keep};
static const struct front_end prompt = {24000, 1920, 1920, 480, 720, PROMPT_MEL_BANDS, false, 1e-9, ln_1em5};
static const struct front_end fbank = {16000, 512, 400, 160, 0, FBANK_BANDS, true, 0, ln_epsilon};

static size_t frames_of(const struct front_end *f, size_t n)
{
    const size_t padded = n + 2 * (size_t)f->pad;
    if (n <= (size_t)f->pad || padded < (size_t)f->n_window) return 0;
    return (padded - (size_t)f->n_window) / (size_t)f->hop + 1;
}

/* Kaldi's frame: mean removed, first difference at 0.97, then the Povey window (in place of the spectrum's Hann). */
static void kaldi_frame(float *frame, const float *x, int n)
{
    double mean = 0;
    for (int i = 0; i < n; i++) mean += (double)x[i];
    mean /= n;
    for (int i = n - 1; i >= 0; i--) {
        const float now = x[i] - (float)mean, before = x[i > 0 ? i - 1 : 0] - (float)mean;
        frame[i] = now - 0.97f * before;
    }
}

/* After pre-emphasis the lowest bands lie 60 dB below the rest, where the rounding of a float transform alone moves the
 * logarithm by 5e-4; so Kaldi's spectrum is taken in double precision. */
static utter_status use_kaldi_spectrum(struct spectrum *s, struct error *e)
{
    for (int i = 0; i < s->n_window; i++)
        s->window[i] = (float)pow(0.5 - 0.5 * cos(2.0 * M_PI * i / (s->n_window - 1)), 0.85);
    s->exact = mem_alloc((size_t)s->n_fft * sizeof *s->exact);
    s->twiddles = mem_alloc((size_t)s->n_fft / 2 * sizeof *s->twiddles);
    if (!s->exact || !s->twiddles)
        return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a %d-point spectrum", s->n_fft);
    for (int k = 0; k < s->n_fft / 2; k++) {
        s->twiddles[k][0] = cos(2 * M_PI * k / s->n_fft);
        s->twiddles[k][1] = -sin(2 * M_PI * k / s->n_fft);
    }
    return UTTER_OK;
}

static void use_magnitudes(float *power, int n_bins, double floor)
{
    for (int k = 0; k < n_bins; k++) power[k] = sqrtf(power[k] + (float)floor);
}

enum { CANCEL_FRAMES = 32 }; /* between two looks at the token: less than half a millisecond */

static utter_status run(const struct front_end *f, float *out, size_t n_frames, const float *x, size_t n,
                        struct cancel *cancel, struct error *e)
{
    struct spectrum *s = NULL;
    struct filter_bank bank = {0};
    float *power = mem_alloc(((size_t)f->n_fft / 2 + 1) * sizeof *power);
    utter_status status = power ? UTTER_OK : error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a spectrum");
    if (n_frames == 0)
        status = error_set(e, UTTER_INVALID_ARGUMENT, "%zu samples at %d Hz are too short for a spectrum", n, f->rate);
    if (status == UTTER_OK) status = spectrum_create_window(&s, f->n_fft, f->n_window, e);
    if (status == UTTER_OK) status = filter_bank_create(&bank, f->kaldi, f->n_bands, f->n_fft, f->rate, e);
    if (status == UTTER_OK && f->kaldi) status = use_kaldi_spectrum(s, e);
    for (size_t i = 0; status == UTTER_OK && i < n_frames; i++) {
        const int64_t start = (int64_t)i * f->hop - f->pad;
        if (f->kaldi)
            kaldi_frame(s->frame, x + start, f->n_window);
        else
            copy_reflected(s->frame, f->n_window, x, (int64_t)n, start);
        power_of_frame(s, power);
        if (f->magnitude_floor > 0) use_magnitudes(power, f->n_fft / 2 + 1, f->magnitude_floor);
        if (i % CANCEL_FRAMES == 0) status = cancel_check(cancel, e);
        for (int b = 0; b < f->n_bands; b++)
            out[i * (size_t)f->n_bands + (size_t)b] = (float)f->compress(band_energy(&bank.bands[b], power));
    }
    filter_bank_free(&bank);
    spectrum_destroy(&s);
    mem_free(power);
    return status;
}

/* The tokenizer drops the last frame of a centred transform (specification section 4.6). */
size_t s3_log_mel_16k_frames(size_t n)
{
    const size_t frames = frames_of(&s3, n);
    return frames ? frames - 1 : 0;
}

utter_status s3_log_mel_16k(float *out, const float *x, size_t n, struct cancel *cancel, struct error *e)
{
    const size_t n_frames = s3_log_mel_16k_frames(n), count = n_frames * S3_N_MELS;
    const utter_status status = run(&s3, out, n_frames, x, n, cancel, e);
    if (status != UTTER_OK) return status;
    float max = out[0];
    for (size_t i = 1; i < count; i++) max = fmaxf(max, out[i]);
    for (size_t i = 0; i < count; i++) out[i] = (fmaxf(out[i], max - 8.0f) + 4.0f) / 4.0f;
    return UTTER_OK;
}

size_t voice_encoder_mel_16k_frames(size_t n)
{
    return frames_of(&voice_encoder, n);
}
utter_status voice_encoder_mel_16k(float *out, const float *x, size_t n, struct cancel *cancel, struct error *e)
{
    return run(&voice_encoder, out, frames_of(&voice_encoder, n), x, n, cancel, e);
}

size_t prompt_mel_24k_frames(size_t n)
{
    return frames_of(&prompt, n);
}
utter_status prompt_mel_24k(float *out, const float *x, size_t n, struct cancel *cancel, struct error *e)
{
    return run(&prompt, out, frames_of(&prompt, n), x, n, cancel, e);
}

size_t kaldi_fbank_16k_frames(size_t n)
{
    return frames_of(&fbank, n);
}
utter_status kaldi_fbank_16k(float *out, const float *x, size_t n, struct cancel *cancel, struct error *e)
{
    return run(&fbank, out, frames_of(&fbank, n), x, n, cancel, e);
}
