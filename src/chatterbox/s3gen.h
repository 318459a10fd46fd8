/*
 * s3gen.h - from speech tokens to sound, whole or while the tokens are still being made.
 *
 *     tokens [n] --flow_encoder--> mu [2n][80] --cfm--> mel [2n - prompt][80] --hift--> samples [480 a frame]
 *      25/s                                              50/s                            24 kHz
 *
 * A `s3gen` holds the weights of the three networks: immutable, any thread. A `s3gen_stream` is one utterance on its way:
 * its caller hands it the tokens known so far, as often as it likes, and takes the samples that became ready. An utterance
 * spoken whole is the same thing with one call.
 *
 *     s3gen_stream_begin(st, voice, &options);
 *     for (;;) {
 *         ... more tokens ...
 *         s3gen_stream_mel(st, s, tokens, n_tokens, final);
 *         while ((status = s3gen_stream_wave(st, s)) == UTTER_AUDIO)
 *             ... s3gen_stream_samples(st, &n) ...
 *     }
 *
 * How a stream keeps its seams silent
 *   mel    Encoder and estimator look at everything at once, so every call computes prompt and context again, but a frame
 *          that was handed on is never changed. A call that is not the last gives no frames for the last three tokens
 *          (the encoder looks that far ahead: specification sections 2.6 and 2.13). Noise belongs to the absolute frame,
 *          so that how tokens are grouped into calls does not change it.
 *   wave   The vocoder is convolutional: a sample depends on HIFT_CONTEXT frames at either side. Each call vocodes its new
 *          frames with their neighbours, drops what the window's edges touched, and holds back the frames whose right
 *          neighbours are not known yet. The source's phase and samples carry over. With the full hold-back (HIFT_RIGHT) the
 *          samples are those of the whole mel vocoded at once, to the bit; with the default one nearly so.
 *   fade   The first 40 ms fade in once (section 2.11).
 *
 * Errors: as every network, through the stream's latched status; a bad token or voice is INVALID_ARGUMENT. After a failure
 * or a cancel the s3gen_stream must begin again.
 */
#ifndef CHATTERBOX_S3GEN_H
#define CHATTERBOX_S3GEN_H

#include "chatterbox/conds.h"
#include "chatterbox/observer.h"
#include "checkpoint/bind.h"
#include "device/device.h"

enum {
    S3GEN_SAMPLE_RATE = 24000,
    S3GEN_FRAMES_PER_TOKEN = 2,
    S3GEN_SAMPLES_PER_FRAME = 480,
    /* Of the 23 frames to its right that a sample depends on, the far ones weigh next to nothing: with 11 the built-in voice
     * is 127 dB above its error, less than 1e-6 of full scale, and a first sound needs six tokens less. */
    S3GEN_HOLD_BACK = 11,
    S3GEN_LOOKAHEAD_TOKENS = 3, /* tokens without frames until more follow or the last call says so */
    S3GEN_SILENCE_TOKEN = 4299
};

struct s3gen;

/* Binds flow and vocoder ("s3gen.flow.*", "s3gen.mel2wav.*"). The binder's status is returned. */
utter_status s3gen_load(struct s3gen **out, struct binder *b);
void s3gen_free(struct s3gen **m);
bool s3gen_is_meanflow(const struct s3gen *m);
int s3gen_default_steps(const struct s3gen *m); /* 2 for mean flow, else 10 */

struct s3gen_options {
    uint64_t seed;      /* of this utterance: initial noise, source phases, source noise */
    int n_steps;        /* of the flow's solver; 0: the model's default */
    int context_tokens; /* how many tokens before the first new one each call sees, besides the prompt; 0: all of them */
    int first_prompt; /* how many of the prompt's last tokens the first call sees, unless it is the last; 0: all of them */
    int hold_back_frames; /* right neighbours the vocoder waits for, 5 to HIFT_RIGHT; 0: S3GEN_HOLD_BACK */
};

struct s3gen_stream;

utter_status s3gen_stream_create(struct s3gen_stream **out, const struct s3gen *m, struct error *e);
void s3gen_stream_free(struct s3gen_stream **st);

/* Starts an utterance. The voice is kept by reference until the next begin or free. */
void s3gen_stream_begin(struct s3gen_stream *st, const struct conds *voice, const struct s3gen_options *o);

/* tokens: all of the utterance so far, from its first; the earlier ones must be those of the call before. final: there will
 * be no more. Computes the mel frames that became known. */
utter_status s3gen_stream_mel(struct s3gen_stream *st, struct stream *s, const int32_t *tokens, int n_tokens,
                              bool final);

/* Vocodes one block (at most six seconds) of the frames that are ready. AUDIO: there are samples, call again. OK: more
 * tokens are needed first. DONE: the utterance is complete. */
utter_status s3gen_stream_wave(struct s3gen_stream *st, struct stream *s);

/* The samples of the last s3gen_stream_wave that returned AUDIO, until the next call on `st`. */
const float *s3gen_stream_samples(const struct s3gen_stream *st, int *n_samples);

/* All mel frames so far, [n][80] natural log; valid until the next call on `st`. */
const float *s3gen_stream_frames(const struct s3gen_stream *st, int *n_frames);

/* How many tokens must be known before the first sample can come out. */
int s3gen_first_tokens(const struct s3gen_options *o);

/* ---- one step lower: for tests, the stage runner and measurements ----------------------------------------------- */

struct mel_request {
    const struct conds *voice;
    const int32_t *tokens; /* all tokens so far */
    int n_tokens;
    int first_prompt_token; /* the prompt starts there (a shorter window of it) */
    int first_token;        /* tokens before it are left out of the computation (bounded context) */
    bool final;
    int n_steps;      /* 0: the model's default */
    struct rng noise; /* z of row r, channel c of [prompt; speech] is draw r * 80 + c */
    const float *z;   /* tests: [rows][80] instead, for first_token 0 */
    const struct observer *observer;
};

/* Mel frames of [first_token, n_tokens), or fewer when not final; at least 0. */
int s3gen_mel_frames(const struct mel_request *r);
/* out: [s3gen_mel_frames][80]. */
void s3gen_mel(struct stream *s, const struct s3gen *m, struct array out, const struct mel_request *r);

const struct flow_encoder *s3gen_encoder(const struct s3gen *m);
const struct hift *s3gen_hift(const struct s3gen *m);
const struct cfm *s3gen_cfm(const struct s3gen *m);

/* Gain of an utterance's sample i: the start is silent for 20 ms, then rises for 20 ms, since what is left of the prompt's
 * sound there does not belong to the text (section 2.11). */
float s3gen_fade(int i);

#endif
