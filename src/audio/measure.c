#include "audio/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "audio/biquad.h"
#include "audio/features.h"
#include "audio/loudness.h"
#include "base/mem.h"

#define RATE 24000

/* ---- levels --------------------------------------------------------------------------------------------------------- */

static double decibels(double power)
{
    return power > 1e-12 ? 10 * log10(power) : (double)LEVEL_NOTHING;
}

size_t level_meter_feed(struct level_meter *m, const float *x, size_t n, float *levels)
{
    struct biquad section[2]; /* together a fourth-order Butterworth: rumble and DC are no speech */
    const double q[2] = {0.5411961, 1.3065630};
    size_t made = 0;
    for (int i = 0; i < 2; i++) {
        section[i] = biquad_high_pass(RATE, 60, q[i]);
        section[i].z1 = m->filter[i][0], section[i].z2 = m->filter[i][1];
    }
    for (size_t i = 0; i < n; i++) {
        const double y = biquad_step(&section[1], biquad_step(&section[0], (double)x[i]));
        m->sum += y * y;
        if (++m->n < LEVEL_FRAME) continue;
        levels[made++] = (float)decibels(m->sum / LEVEL_FRAME);
        m->sum = 0;
        m->n = 0;
    }
    for (int i = 0; i < 2; i++) m->filter[i][0] = section[i].z1, m->filter[i][1] = section[i].z2;
    return made;
}

/* Levels are whole tenths of a dB here: a histogram needs no memory and no sorting, however long the recording. */
float level_percentile(const float *levels, size_t n, double share)
{
    enum { BINS = 1400 };
    unsigned histogram[BINS] = {0};
    size_t counted = 0, below = 0;
    for (size_t i = 0; i < n; i++) {
        if (levels[i] <= LEVEL_NOTHING + 20) continue;
        const int bin = (int)((levels[i] - LEVEL_NOTHING) * 10);
        histogram[bin < BINS ? bin : BINS - 1]++;
        counted++;
    }
    if (counted == 0) return LEVEL_NOTHING;
    int bin = 0;
    while (bin < BINS - 1 && (double)(below += histogram[bin]) < share * (double)counted) bin++;
    return LEVEL_NOTHING + (float)bin / 10;
}

float speech_threshold(const float *levels, size_t n)
{
    const float quiet = level_percentile(levels, n, 0.1), loud = level_percentile(levels, n, 0.95);
    return fmaxf(loud - 35, fminf(quiet + 8, loud - 12));
}

/* ---- bandwidth -------------------------------------------------------------------------------------------------------- */

enum { N_BANDS = 60, BAND_HZ = RATE / 2 / N_BANDS };

/* The highest band of 200 Hz that is at some moment within 45 dB of the loudest speech and 10 dB over its own quietest
 * moment: speech comes and goes, noise and what a codec leaves do not. */
static utter_status find_bandwidth(struct measures *m, const float *x, size_t n, struct cancel *cancel, struct error *e)
{
    enum { N = 2048, HOP = 1024, PER_BAND = N / 2 / N_BANDS };
    float power[N / 2 + 1];
    double most[N_BANDS] = {0}, least[N_BANDS], speech = 0;
    struct spectrum *s = NULL;
    utter_status status = spectrum_create(&s, N, e);
    for (int b = 0; b < N_BANDS; b++) least[b] = HUGE_VAL;
    for (size_t at = 0; status == UTTER_OK && at + N <= n; at += HOP) {
        double voice = 0;
        spectrum_power(s, power, x + at);
        for (int b = 0; b < N_BANDS; b++) {
            double sum = 0;
            for (int k = 0; k < PER_BAND; k++) sum += (double)power[b * PER_BAND + k];
            most[b] = fmax(most[b], sum);
            least[b] = fmin(least[b], sum);
            if (b >= 1 && b < 17) voice += sum / 16;
        }
        speech = fmax(speech, voice);
        status = cancel_check(cancel, e);
    }
    int band = N_BANDS - 1;
    while (band > 4 && !(most[band] > speech * 3e-5 && most[band] > 10 * least[band])) band--;
    m->bandwidth_hz = (band + 1) * BAND_HZ;
    spectrum_destroy(&s);
    return status;
}

/* ---- hum -------------------------------------------------------------------------------------------------------------- */

enum { HUM_FFT = 8192, HUM_HOP = 2048, HUM_BINS = 128 /* up to 375 Hz */, HUM_HARMONICS = 5 };

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* How far, in dB, a line stands out of what lies 12 to 24 Hz beside it. */
static double prominence(const float *spectrum, double hz)
{
    const int centre = (int)lround(hz * HUM_FFT / RATE);
    float around[10], peak = 0;
    for (int k = centre - 1; k <= centre + 1; k++) peak = fmaxf(peak, spectrum[k]);
    for (int d = 0; d < 5; d++) around[2 * d] = spectrum[centre - 4 - d], around[2 * d + 1] = spectrum[centre + 4 + d];
    qsort(around, 10, sizeof *around, compare_floats);
    return peak > 0 && around[5] > 0 ? 10 * log10((double)peak / (double)around[5]) : 0;
}

/* Narrow lines at the mains frequency and its multiples. */
static void find_lines(struct measures *m, const float *spectrum)
{
    for (int mains = 50; mains <= 60; mains += 10) {
        int lines = 0;
        double strongest = 0;
        for (int h = 1; h <= HUM_HARMONICS; h++) {
            const double p = prominence(spectrum, h * mains);
            lines += p > 12;
            strongest = fmax(strongest, p);
        }
        if (lines >= 2 && strongest > fmax(18, m->hum_db)) m->hum_hz = mains, m->hum_db = strongest;
    }
}

/* Hum never stops: it shows in what each bin holds at its quietest fifth. */
static utter_status find_hum(struct measures *m, const float *x, size_t n, struct cancel *cancel, struct error *e)
{
    float power[HUM_FFT / 2 + 1], steady[HUM_BINS];
    struct spectrum *s = NULL;
    const size_t n_blocks = n < HUM_FFT ? 0 : (n - HUM_FFT) / HUM_HOP + 1;
    if (n_blocks < 5) return UTTER_OK; /* too short to tell */
    float *bins = mem_alloc(n_blocks * HUM_BINS * sizeof *bins);
    utter_status status =
        bins ? spectrum_create(&s, HUM_FFT, e) : error_set(e, UTTER_OUT_OF_MEMORY, "no memory to look for hum");
    for (size_t b = 0; status == UTTER_OK && b < n_blocks; b++) {
        spectrum_power(s, power, x + b * HUM_HOP);
        for (size_t k = 0; k < HUM_BINS; k++) bins[k * n_blocks + b] = power[k];
        status = cancel_check(cancel, e);
    }
    for (size_t k = 0; status == UTTER_OK && k < HUM_BINS; k++) {
        qsort(bins + k * n_blocks, n_blocks, sizeof *bins, compare_floats);
        steady[k] = bins[k * n_blocks + n_blocks / 5];
    }
    if (status == UTTER_OK) find_lines(m, steady);
    spectrum_destroy(&s);
    mem_free(bins);
    return status;
}

/* ---- pitch ---------------------------------------------------------------------------------------------------------- */

enum {
    PITCH_DECIMATION = 6,
    PITCH_RATE = RATE / PITCH_DECIMATION,
    PITCH_FRAME = 160,
    PITCH_MIN_LAG = 10,
    PITCH_MAX_LAG = 66
};

/* One frame's pitch by the normalised autocorrelation, 0 when it is not voiced. x: PITCH_FRAME + PITCH_MAX_LAG at 4 kHz. */
static double frame_pitch(const float *x)
{
    double best = 0, energy = 0, r[PITCH_MAX_LAG + 2] = {0};
    for (int i = 0; i < PITCH_FRAME; i++) energy += (double)x[i] * (double)x[i];
    for (int lag = PITCH_MIN_LAG - 1; lag <= PITCH_MAX_LAG; lag++) {
        double dot = 0, shifted = 0;
        for (int i = 0; i < PITCH_FRAME; i++) {
            dot += (double)x[i] * (double)x[i + lag];
            shifted += (double)x[i + lag] * (double)x[i + lag];
        }
        r[lag] = dot / sqrt(energy * shifted + 1e-12);
        if (lag >= PITCH_MIN_LAG) best = fmax(best, r[lag]);
    }
    if (energy < 1e-6 || best < 0.6) return 0;
    for (int lag = PITCH_MIN_LAG; lag < PITCH_MAX_LAG; lag++) /* the first peak nearly as high: not an octave below */
        if (r[lag] > 0.88 * best && r[lag] >= r[lag - 1] && r[lag] >= r[lag + 1]) return (double)PITCH_RATE / lag;
    return 0;
}

static float median(float *values, size_t n)
{
    qsort(values, n, sizeof *values, compare_floats);
    return n ? values[n / 2] : 0;
}

struct phrase {
    float pitch;
    size_t n_voiced;
};

static int compare_phrases(const void *a, const void *b)
{
    return compare_floats(&((const struct phrase *)a)->pitch, &((const struct phrase *)b)->pitch);
}

/* Two voices: the phrases' pitches fall into two groups, a fifth or more apart, each with a seventh of the voiced time. */
static void find_second_voice(struct measures *m, struct phrase *phrases, size_t n)
{
    size_t total = 0, below = 0;
    qsort(phrases, n, sizeof *phrases, compare_phrases);
    for (size_t i = 0; i < n; i++) total += phrases[i].n_voiced;
    for (size_t i = 0; i + 1 < n; i++) {
        below += phrases[i].n_voiced;
        const bool both = 7 * below > total && 7 * (total - below) > total;
        if (!both || phrases[i + 1].pitch < 1.3f * phrases[i].pitch) continue;
        const float low = phrases[i / 2].pitch, high = phrases[i + 1 + (n - i - 1) / 2].pitch;
        if (high < 1.5f * low) continue;
        const bool mostly_low = 2 * below > total;
        m->pitch_hz = (double)(mostly_low ? low : high);
        m->other_pitch_hz = (double)(mostly_low ? high : low);
        return;
    }
}

/* Pitch in 20 ms steps; a phrase ends where 10 frames are not speech. */
static utter_status find_pitch(struct measures *m, const float *x, size_t n, const float *levels, size_t n_levels,
                               float threshold, struct cancel *cancel, struct error *e)
{
    const size_t n_low = n / PITCH_DECIMATION, step = LEVEL_FRAME / PITCH_DECIMATION;
    float *low = mem_alloc((n_low + 1) * sizeof *low), *voiced = mem_alloc((n_levels + 1) * sizeof *voiced);
    float *phrase_pitches = mem_alloc((n_levels + 1) * sizeof *phrase_pitches);
    struct phrase *phrases = mem_alloc((n_levels / 10 + 2) * sizeof *phrases);
    size_t n_voiced = 0, n_phrases = 0, in_phrase = 0, pause = 0;
    const bool memory = low && voiced && phrase_pitches && phrases;
    for (size_t i = 0; memory && i < n_low; i++) {
        float sum = 0;
        for (int k = 0; k < PITCH_DECIMATION; k++) sum += x[i * PITCH_DECIMATION + (size_t)k];
        low[i] = sum / PITCH_DECIMATION;
    }
    for (size_t f = 0; memory && f <= n_levels && !cancel_poll(cancel); f++) {
        const bool speech = f < n_levels && levels[f] > threshold;
        pause = speech ? 0 : pause + 1;
        if (speech && f * step + PITCH_FRAME + PITCH_MAX_LAG <= n_low) {
            const double pitch = frame_pitch(low + f * step);
            if (pitch > 0) voiced[n_voiced++] = phrase_pitches[in_phrase++] = (float)pitch;
        }
        if ((pause == 10 || f == n_levels) && in_phrase > 0) {
            if (in_phrase >= 10) {
                phrases[n_phrases].n_voiced = in_phrase;
                phrases[n_phrases++].pitch = median(phrase_pitches, in_phrase);
            }
            in_phrase = 0;
        }
    }
    if (memory) {
        m->pitch_hz = (double)median(voiced, n_voiced);
        find_second_voice(m, phrases, n_phrases);
    }
    mem_free(low);
    mem_free(voiced);
    mem_free(phrase_pitches);
    mem_free(phrases);
    return memory ? cancel_check(cancel, e) : error_set(e, UTTER_OUT_OF_MEMORY, "no memory to measure %zu samples", n);
}

/* ---- speech or music -------------------------------------------------------------------------------------------------- */

/* Speech has many frames far below the mean of their second (Saunders, 1996); music, tones and steady noise have few. */
static bool like_music(const float *levels, size_t n, float threshold)
{
    enum { SECOND = 50 };
    size_t low = 0, counted = 0;
    for (size_t first = 0; first + SECOND <= n; first += SECOND) {
        double power = 0;
        for (size_t i = first; i < first + SECOND; i++) power += pow(10, (double)levels[i] / 10);
        const double mean = decibels(power / SECOND);
        if (mean < (double)threshold) continue;
        counted += SECOND;
        for (size_t i = first; i < first + SECOND; i++) low += (double)levels[i] < mean - 6;
    }
    return counted >= 3 * SECOND && (double)low < 0.15 * (double)counted;
}

/* ---- all together ----------------------------------------------------------------------------------------------------- */

static void measure_levels(struct measures *m, const float *levels, size_t n, float threshold)
{
    double speech = 0;
    size_t n_speech = 0;
    for (size_t i = 0; i < n; i++) {
        if (levels[i] <= threshold) continue;
        speech += pow(10, (double)levels[i] / 10);
        n_speech++;
    }
    size_t silent = 0;
    for (size_t i = 0; i < n; i++) silent += levels[i] <= LEVEL_NOTHING + 20;
    const float floor = 50 * silent > n ? LEVEL_NOTHING : level_percentile(levels, n, 0.02);
    m->silence_share = n ? 1 - (double)n_speech / (double)n : 1;
    m->noise_floor_dbfs = (double)floor;
    m->snr_db = n_speech ? fmin(90, decibels(speech / (double)n_speech) - (double)floor) : 0;
}

utter_status measure(struct measures *out, const float *x, size_t n, struct cancel *cancel, struct error *e)
{
    enum { PIECE = 1 << 14 };
    struct measures m = {0};
    struct level_meter meter = {0};
    utter_status status = UTTER_OK;
    float peak = 0;
    float *levels = mem_alloc((n / LEVEL_FRAME + 2) * sizeof *levels);
    if (!levels) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory to measure %zu samples", n);
    size_t n_levels = 0;
    for (size_t at = 0; at < n && status == UTTER_OK; at += PIECE) {
        n_levels += level_meter_feed(&meter, x + at, n - at < PIECE ? n - at : PIECE, levels + n_levels);
        status = cancel_check(cancel, e);
    }
    const float threshold = speech_threshold(levels, n_levels);
    for (size_t i = 0; i < n; i++) peak = fmaxf(peak, fabsf(x[i]));
    m.peak_dbfs = peak > 0 ? 20 * log10((double)peak) : (double)LEVEL_NOTHING;
    measure_levels(&m, levels, n_levels, threshold);
    m.like_music = like_music(levels, n_levels, threshold);
    if (status == UTTER_OK) status = loudness_measure(&m.level_lufs, x, n, RATE, cancel, e);
    if (status == UTTER_OK) status = find_bandwidth(&m, x, n, cancel, e);
    if (status == UTTER_OK) status = find_hum(&m, x, n, cancel, e);
    if (status == UTTER_OK) status = find_pitch(&m, x, n, levels, n_levels, threshold, cancel, e);
    mem_free(levels);
    *out = m;
    return status;
}
