/*
 * measure.h - what a recording is like, in numbers that say what a voice made of it will be like.
 *
 * Mono signals at 24 kHz (audio/mono.h), held in memory. Any thread.
 */
#ifndef AUDIO_MEASURE_H
#define AUDIO_MEASURE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cancel.h"
#include "base/error.h"

enum { LEVEL_FRAME = 480 /* samples, 20 ms: the unit in which speech and pauses are told apart */ };

/* RMS levels of consecutive frames in dB of full scale, below 60 Hz left out, never under LEVEL_NOTHING. Feed samples in
 * any pieces; one level comes out for every LEVEL_FRAME of them. */
#define LEVEL_NOTHING (-120.0f)
struct level_meter {
    double filter[2][2]; /* state of two high-pass sections */
    double sum;
    int n;
};
/* Returns how many levels were written to `levels`, at most n / LEVEL_FRAME + 1. */
size_t level_meter_feed(struct level_meter *m, const float *x, size_t n, float *levels);

/* The level that `share` of the n levels lie below (those of digital silence aside); LEVEL_NOTHING when all are silent. */
float level_percentile(const float *levels, size_t n, double share);

/* The level that separates speech from pauses: 35 dB under the loud parts, or 8 dB over the quiet ones when those are
 * higher, but always well under the loud ones, so that even steady quiet sound counts as sound. */
float speech_threshold(const float *levels, size_t n);

struct measures {
    double level_lufs; /* integrated loudness */
    double peak_dbfs;
    double noise_floor_dbfs; /* level that 2 % of the frames lie below; LEVEL_NOTHING when they are digital silence */
    double snr_db;           /* level of speech over the noise floor, at most 90 */
    double silence_share;    /* of the time, 0 to 1 */
    double bandwidth_hz;     /* speech has sound up to here, at most 12 kHz */
    double hum_hz, hum_db;   /* mains hum: 50 or 60 and how far it stands out of its surroundings; 0 for none */
    double pitch_hz;         /* median of the voiced frames; 0 when nothing is voiced */
    double other_pitch_hz;   /* that of a second voice, when the phrases fall into two clear groups; else 0 */
    bool like_music;         /* none of the pauses and syllables of speech */
};

utter_status measure(struct measures *out, const float *x, size_t n_samples, struct cancel *cancel, struct error *e);

#endif
