/*
 * utterance.h - one piece of text on its way from words to sound.
 *
 *     utterance_begin -> utterance_prompt until DONE -> utterance_token until DONE
 *                                                        \_ utterance_sound whenever a chunk is due, and at the end
 *
 * An utterance is made once for a task and begun again for every piece; a begin forgets everything of the ones before, so that
 * results do not depend on history. It runs on one stream, whose cancel token belongs to the task. One thread at a time.
 * Every function that computes returns the stream's latched status on failure, with the message in *e.
 *
 * Making and telling. Tokens may be made before they are asked for: beside sound, and together with those of the pieces before,
 * which reads T3's weights once for up to T3_MAX_TOGETHER tokens:
 *
 *     utterance_queue: the piece after those begun and queued so far     utterance_next instead of utterance_begin
 *
 * Every step of a prompt or of tokens is written down as it is made, failures too, and told by the call that would have made it.
 * So results, their order and what each call returns are those of pieces that are made one after the other.
 */
#ifndef ENGINE_UTTERANCE_H
#define ENGINE_UTTERANCE_H

#include "base/cancel.h"
#include "engine/model.h"
#include "engine/voice.h"

struct utterance;

struct utterance_options {
    uint64_t seed;           /* of this piece */
    double expected_seconds; /* of speech, from the text */
    int prompt_rows;         /* a step computes about so many at most */
    int max_tokens;          /* 0: what the text needs at most */
    int top_k;
    float top_p, temperature, repetition_penalty;
    int cfm_steps, context_tokens, first_prompt_tokens;
    bool keep_prefix; /* the voice's part of the prompt will be needed again: keep it */
};

utter_status utterance_create(struct utterance **out, const struct utter_model *m, struct cancel *cancel,
                              struct error *e);
void utterance_free(struct utterance **u);

/* text: what is spoken, cleaned and short enough for the model (text/split.h). The voice is kept by reference until the next
 * begin. */
utter_status utterance_begin(struct utterance *u, const char *text, const utter_voice *voice,
                             const struct utterance_options *o, struct error *e);

/* Takes the next piece of the same voice, once the current one's prompt is computed; both are copied. Its prompt and tokens are made
 * in calls of utterance_token. False when there is no room or memory for it now, or nothing to gain: ask again with the next token. */
bool utterance_queue(struct utterance *u, const char *text, const struct utterance_options *o);
/* Goes on to the first queued piece. There must be one. */
void utterance_next(struct utterance *u);

int utterance_prompt_remaining(const struct utterance *u); /* rows */
/* Computes rows of the prompt. OK: there are more. DONE: ready for tokens. */
utter_status utterance_prompt(struct utterance *u, struct error *e);

/* Draws one speech token and feeds it; queued pieces get one each as well, or a step of one's prompt. OK: there will be more. DONE: that
 * was the last. */
utter_status utterance_token(struct utterance *u, struct error *e);
int utterance_tokens(const struct utterance *u); /* made so far */
bool utterance_truncated(const struct utterance *u);
bool utterance_suspiciously_short(const struct utterance *u);

/* The next block of sound of the tokens so far. Up to n_ahead further tokens are made meanwhile, where a thread can be spared, and
 * handed out by utterance_token as if it had made them then; all work has ended when this returns. AUDIO: *samples, until the next call; call again. OK: no more before there are
 * more tokens. DONE: no more at all. */
utter_status utterance_sound(struct utterance *u, int n_ahead, const float **samples, int *n_samples, struct error *e);

#endif
