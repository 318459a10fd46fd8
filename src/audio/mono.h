/*
 * mono.h - a recording as one channel at 24 kHz, the rate the models speak and hear at.
 *
 * What librosa.load(path, sr=24000) gives: the mean of all channels, then soxr's high quality. While it reads it watches the
 * source: its peak, how much of it is clipped, and whether the channels cancel each other.
 */
#ifndef AUDIO_MONO_H
#define AUDIO_MONO_H

#include "audio/source.h"

enum { MONO_RATE = 24000, MONO_MEAN = -1 };

struct mono_watch {
    int64_t n_frames;                 /* of the source, read so far */
    float peak;                       /* largest magnitude in any channel; above 1 only in float files */
    int64_t n_clipped;                /* frames inside runs of 3 or more samples at 98.5 % of full scale or above */
    double channel_power, mean_power; /* sums of squares: of the channels on average, and of their mean */
};

struct mono;

/* From `first_frame` of the source on. channel: MONO_MEAN, or the only channel to take. The source stays the caller's. */
utter_status mono_open(struct mono **out, struct source *s, int64_t first_frame, int channel, struct error *e);
void mono_close(struct mono **m);

/* Up to max samples at 24 kHz; *n is 0 only at the end. */
utter_status mono_read(struct mono *m, float *samples, size_t max, size_t *n, struct error *e);
const struct mono_watch *mono_watch(const struct mono *m);

#endif
