/*
 * hift.h - the vocoder: mel (50 frames a second) to samples (24 kHz).
 *
 * Weights only; immutable after loading, any thread. What one utterance carries from call to call (phase and samples of the
 * source) belongs to the caller: see s3gen.c.
 *
 * A window of mel frames is vocoded at a time. Convolutions see zeros beyond a window's edges, so a window that is not at
 * the utterance's start or end needs HIFT_LEFT and HIFT_RIGHT further frames at that side for the frames that are kept to
 * come out as if all had been vocoded at once.
 */
#ifndef CHATTERBOX_HIFT_H
#define CHATTERBOX_HIFT_H

#include "chatterbox/observer.h"
#include "checkpoint/bind.h"
#include "device/device.h"

enum {
    HIFT_HOP = 480,      /* samples a frame */
    HIFT_F0_CONTEXT = 5, /* frames at either side that a frame's pitch depends on */
    HIFT_LEFT = 21,      /* frames at either side that a sample depends on, pitch apart ... */
    HIFT_RIGHT = 23,     /* ... and with the pitch of frames to come */
    HIFT_STAGES = 3,
    HIFT_HARMONICS = 9
};

struct hift_resblock {
    int kernel;
    struct weight *convs1[3], *convs2[3];
    struct array alpha1[3], alpha2[3];
};

struct hift {
    int n_mels, channels; /* of conv_pre; halved by every stage */
    struct weight *f0_convs[5], *f0_classifier;
    struct array source_mix, source_mix_bias; /* l_linear: [1][9], [1][1] */
    struct weight *conv_pre, *conv_post;
    struct weight *ups[HIFT_STAGES], *source_downs[HIFT_STAGES];
    struct hift_resblock source_resblocks[HIFT_STAGES], resblocks[3 * HIFT_STAGES];
};

/* Binds "s3gen.mel2wav.*". Errors latch in the binder. */
void hift_load(struct hift *m, struct binder *b, int n_mels);

/* f0: [M][1] in Hz of mel [M][n_mels]. */
void hift_f0(struct stream *s, const struct hift *m, struct array f0, struct array mel);

/* The harmonic source of frames f0 [M][1]: out [480 M][1]. p: phase, noise and cycles as in device.h; the rest is filled in. */
void hift_source(struct stream *s, const struct hift *m, struct array out, struct array f0, struct source_params p);

/* What to make of a window of M frames: frames first .. first + n - 1 are kept. */
struct hift_window {
    int first, n;
};

/* mel: [M][n_mels], source: [480 M][1] of the same frames; out: [480 n][1] in +-0.99. */
void hift_decode(struct stream *s, const struct hift *m, struct array out, struct array mel, struct array source,
                 struct hift_window w, const struct observer *o);

#endif
