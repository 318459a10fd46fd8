/*
 * voice_encoder.h - a speaker's vector for T3, from the mel of any amount of speech (specification section 4.4).
 *
 * Immutable once loaded; any thread.
 */
#ifndef CHATTERBOX_VOICE_ENCODER_H
#define CHATTERBOX_VOICE_ENCODER_H

#include "checkpoint/bind.h"
#include "device/device.h"

enum { VE_MELS = 40, VE_SIZE = 256, VE_WINDOW = 160 /* frames */, VE_STEP = 77 /* round((16000 / 1.3) / 160) */ };

struct voice_encoder;

/* Binds "ve.*". The binder's status is returned. */
utter_status voice_encoder_load(struct voice_encoder **out, struct binder *b);
void voice_encoder_free(struct voice_encoder **m);

/* How many windows, `step` frames apart, are heard of n_frames: the last one may reach past the end (zeros follow) when it
 * is full to 80 %. At least 1. */
int voice_encoder_windows(int n_frames, int step);

/* out: VE_SIZE floats on the host, unit norm. mel: [n_frames][VE_MELS] on the host (audio/features.h), n_frames > 0. */
void voice_encoder_embed(struct stream *s, const struct voice_encoder *m, float *out, const float *mel, int n_frames,
                         int step);

#endif
