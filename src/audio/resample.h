/*
 * resample.h - from one sample rate to another: libsoxr, and the one windowed sinc that the official package needs exactly.
 */
#ifndef AUDIO_RESAMPLE_H
#define AUDIO_RESAMPLE_H

#include "base/cancel.h"
#include "base/error.h"

/* A stream of mono samples at one rate becomes a stream at another: libsoxr at its high quality, as librosa's "soxr_hq".
 * One thread at a time. */
struct resampler;
utter_status resampler_create(struct resampler **out, double from_hz, double to_hz, struct error *e);
void resampler_destroy(struct resampler **r);

/* Takes up to n_in samples (in NULL: the signal has ended) and gives up to max_out. *n_used of the input were taken. Returns how many came
 * out; at the end call until it returns 0. Negative after a failure of the library. */
long resampler_run(struct resampler *r, const float *in, size_t n_in, size_t *n_used, float *out, size_t max_out);

/* The whole signal at once: ceil(n * to / from) samples, freed by mem_free. */
utter_status resample(float **out, size_t *n_out, const float *x, size_t n, int from_hz, int to_hz,
                      struct cancel *cancel, struct error *e);

/* torchaudio.functional.resample(24000, 16000): Hann-windowed sinc, width 6, roll-off 0.99 (specification section 4.3).
 * out has resample_24k_to_16k_count(n) samples. */
size_t resample_24k_to_16k_count(size_t n);
void resample_24k_to_16k(float *out, const float *x, size_t n);

#endif
