/*
 * campplus.h - a speaker's x-vector for the flow's decoder, from Kaldi filter-bank features (specification section 4.5).
 *
 * Immutable once loaded; any thread.
 */
#ifndef CHATTERBOX_CAMPPLUS_H
#define CHATTERBOX_CAMPPLUS_H

#include "checkpoint/bind.h"
#include "device/device.h"

enum { CAMPPLUS_BANDS = 80, CAMPPLUS_SIZE = 192, CAMPPLUS_MIN_FRAMES = 3 /* two frames are left for the deviation */ };

struct campplus;

/* Binds "s3gen.speaker_encoder.*"; the number of layers in each dense block is read from the tensors. */
utter_status campplus_load(struct campplus **out, struct binder *b);
void campplus_free(struct campplus **m);

/* out: CAMPPLUS_SIZE floats on the host, not normalised. fbank: [n_frames][80] on the host, each band's mean over time
 * subtracted (campplus_subtract_mean), n_frames >= CAMPPLUS_MIN_FRAMES. */
void campplus_embed(struct stream *s, const struct campplus *m, float *out, const float *fbank, int n_frames);
void campplus_subtract_mean(float *fbank, int n_frames);

#endif
