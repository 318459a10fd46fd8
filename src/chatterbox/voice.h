/*
 * voice.h - a speaker: the conditionals that the networks take, made from a clip, and what is known of where they came from.
 *
 * Models differ in how they listen (specification section 4.1): Turbo and Nano take 15 s for T3's prompt, of sound at
 * -27 LUFS; the English and multilingual models 6 s, as loud as it is. So a voice has one set of conditionals for each way,
 * and can be given the other later when the clip was kept. A voice that came without a word about its model (a published conds.pt, a
 * folder of .npy files) has one set that serves any.
 *
 * The struct owns everything. Immutable once made; any thread may read.
 */
#ifndef CHATTERBOX_VOICE_H
#define CHATTERBOX_VOICE_H

#include "chatterbox/conds.h"
#include "checkpoint/bind.h"
#include "device/device.h"

enum voice_rules { VOICE_TURBO, VOICE_STANDARD, VOICE_N_RULES };
const char *voice_rules_name(enum voice_rules r); /* "turbo", "standard": in files */
/* By checkpoint_variant: "turbo", "nano" and others on GPT-2, or "english", "multilingual". */
enum voice_rules voice_rules_of(const char *variant);

enum { VOICE_RATE = 24000 };

/* Texts may be NULL. */
struct voice_notes {
    char *name, *transcript, *license, *consent;
    char *source;         /* the recording's file name without its folder */
    uint64_t source_hash; /* FNV-1a of the recording's bytes; 0: unknown */
    double source_s;      /* length of the recording; 0: unknown */
    uint64_t networks;    /* listeners_fingerprint of the model that listened; 0: unknown */
};

struct voice {
    struct voice_notes notes;
    bool fits_any;                     /* conds[0] serves every model */
    struct conds conds[VOICE_N_RULES]; /* n_prompt_tokens 0: not made */
    float *clip;                       /* mono at VOICE_RATE, what the conditionals were made of; NULL: not kept */
    size_t n_clip;
};

void voice_free(struct voice *v); /* a zeroed one is fine; zeroes it */

/* The set for a model, or NULL. */
const struct conds *voice_conds(const struct voice *v, enum voice_rules rules);

/* ---- making conditionals ------------------------------------------------------------------------------------------- */

struct listeners; /* the three networks that listen */
utter_status listeners_load(struct listeners **out, struct binder *b);
void listeners_free(struct listeners **l);

/* Tells networks that hear alike: a hash of the signs of the weights that give speech tokens their meaning, so that files of one
 * model in several types agree. A model that does not listen is told by what its flow takes the tokens for. 0 when the file has neither. */
uint64_t listeners_fingerprint(const struct checkpoint *ck);

/* Where the time went, in seconds. */
struct listen_times {
    double features, tokens, xvector, speaker;
};

struct listen_options {
    enum voice_rules rules;
    void (*progress)(void *user, double share); /* optional: 0 to 1 */
    void *user;
    struct listen_times *times; /* optional */
    struct cancel *cancel;      /* optional: the stream's, for work outside of it */
};

/* samples: mono at VOICE_RATE, at least a second (audio/clip.h chooses and checks them). VOICE_UNUSABLE when nothing of it
 * is loud enough to be trimmed to; the stream's status when it fails or is cancelled. */
utter_status listen(struct conds *out, const struct listeners *l, struct stream *s, const float *samples,
                    size_t n_samples, const struct listen_options *o, struct error *e);

#endif
