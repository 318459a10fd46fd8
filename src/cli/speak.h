/*
 * speak.h - requests spoken into a file, a pipe or the loudspeaker, with a progress line and measured times.
 */
#ifndef CLI_SPEAK_H
#define CLI_SPEAK_H

#include "audio/player.h"
#include "audio/sink.h"
#include "utter.h"

/* Where sound goes: a sink, a player, or both. */
struct outlet {
    struct sink *sink;
    struct player *player;
};

struct speak_times { /* seconds, counted from speak_begin */
    double first_sound, total;
    double prompt, tokens, sound; /* spent in steps that computed a prompt, only a token, sound */
    int n_tokens;
    int64_t n_samples;
    uint64_t seed;
    bool truncated;
};

struct speaker {
    utter_task *task;
    struct outlet *outlet;
    const signed char *interrupt; /* cancels what is spoken */
    struct speak_times times;     /* of all requests so far */
    double began;
    char error[512]; /* of the last failure */
};

void speak_begin(struct speaker *s, utter_task *task, struct outlet *outlet, const signed char *interrupt);

/* Speaks one request to its end. OUTPUT_UNWRITABLE when the outlet failed; the message is in s->error. */
utter_status speak(struct speaker *s, const utter_request *request);

#endif
