/*
 * features.h - what the networks hear: mel spectrograms and filter-bank energies of a mono signal.
 *
 * Each function is one front end of the official package (specification sections 4.4 to 4.6), frame for frame. Signals are
 * mono floats in [-1, 1] at the rate in the function's name. Outputs are [frames][bands], bands contiguous; the caller
 * allocates them with the matching _frames count. A signal too short for one frame, or for the reflected edge, has 0 frames
 * and is refused with INVALID_ARGUMENT. cancel may be NULL; CANCELLED comes within a millisecond. Any thread; no state is kept.
 */
#ifndef AUDIO_FEATURES_H
#define AUDIO_FEATURES_H

#include "base/cancel.h"
#include "base/error.h"

enum { S3_N_MELS = 128, VOICE_ENCODER_N_MELS = 40, PROMPT_MEL_BANDS = 80, FBANK_BANDS = 80 };

/* S3 tokenizer: log10 of Slaney mel power, floored 8 below the clip's maximum, (x + 4) / 4. One frame a 10 ms. */
size_t s3_log_mel_16k_frames(size_t n_samples);
utter_status s3_log_mel_16k(float *out, const float *x, size_t n_samples, struct cancel *cancel, struct error *e);

/* Voice encoder: Slaney mel power, no logarithm. One frame a 10 ms, the last one centred on the end. */
size_t voice_encoder_mel_16k_frames(size_t n_samples);
utter_status voice_encoder_mel_16k(float *out, const float *x, size_t n_samples, struct cancel *cancel,
                                   struct error *e);

/* The flow's prompt: natural log of Slaney mel magnitude, floored at 1e-5. 50 frames a second. */
size_t prompt_mel_24k_frames(size_t n_samples);
utter_status prompt_mel_24k(float *out, const float *x, size_t n_samples, struct cancel *cancel, struct error *e);

/* CAMPPlus: Kaldi's natural-log filter-bank energies (Povey window, pre-emphasis, no dither), mean not yet subtracted. */
size_t kaldi_fbank_16k_frames(size_t n_samples);
utter_status kaldi_fbank_16k(float *out, const float *x, size_t n_samples, struct cancel *cancel, struct error *e);

/* The power spectrum of n_fft samples under a Hann window, for looking at recordings. out: [n_fft / 2 + 1]. */
struct spectrum;
utter_status spectrum_create(struct spectrum **out, int n_fft, struct error *e);
void spectrum_power(struct spectrum *s, float *out, const float *x);
void spectrum_destroy(struct spectrum **s);

#endif
