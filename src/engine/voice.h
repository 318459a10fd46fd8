/*
 * voice.h - what a utter_voice holds: the conditionals, and the part of T3's prompt that depends on nothing else.
 *
 * Immutable to its users; any number of tasks on any threads speak with one voice at a time. The prefix is made by the first
 * task that finds it worth keeping, under a lock, and then only read.
 */
#ifndef ENGINE_VOICE_H
#define ENGINE_VOICE_H

#include <pthread.h>

#include "audio/clip.h"
#include "chatterbox/conds.h"
#include "chatterbox/t3_gpt2.h"
#include "chatterbox/voice.h"

struct utter_voice {
    const struct utter_model *model; /* the one it was made for */
    struct conds conds;
    struct kept_prefix *kept; /* the one thing that changes, see below */
    struct voice *record; /* what is known of it, all its sets of conditionals, its clip; NULL for the built-in one */
    struct clip_report *report; /* of the recording it was just made of, or NULL */
    bool fitted;
};

struct kept_prefix {
    pthread_mutex_t lock; /* guards `prefix` until it is set */
    struct t3_gpt2_prefix *prefix;
    uint64_t serial; /* unlike every other voice's of this process; an address may be used again */
};

/* A voice without conditionals, for its maker to fill. */
utter_status voice_create(utter_voice **out, const struct utter_model *m, struct error *e);

/* NULL when none was kept yet. Valid as long as the voice. */
const struct t3_gpt2_prefix *voice_prefix(const utter_voice *v);

/* Keeps the voice's rows of a state whose prompt is computed, unless that was done before. DONE, or the failure. */
utter_status voice_keep_prefix(const utter_voice *v, struct t3_gpt2_state *t3, struct stream *s, struct error *e);

#endif
