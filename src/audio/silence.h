/*
 * silence.h - where a signal begins and ends, as librosa.effects.trim finds it (specification section 4.4).
 */
#ifndef AUDIO_SILENCE_H
#define AUDIO_SILENCE_H

#include <stddef.h>

/* Frames of 2048 samples every 512, centred and zero-padded, count as sound when their RMS is within top_db of the loudest
 * frame's. [*begin, *end) spans the first to the last of them; both 0 when nothing sounds. Any thread. */
void silence_trim(const float *x, size_t n_samples, double top_db, size_t *begin, size_t *end);

#endif
