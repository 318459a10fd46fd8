/*
 * generate.h - the rules of speech-token generation for Turbo and Nano: when to go on, when to stop, and what is kept.
 *
 *     begin -> { next(logits) -> token to feed } until DONE -> finish -> speech tokens for the flow
 *
 * The published loop: draw up to 1001 tokens, stop after drawing 6562 (the first one is not tested), drop ids from
 * 6561 up, append three silence tokens. It has no other guard, and now and then a model never draws 6562 (public
 * reports R01 to R03, R10). So:
 *
 *     limit      an explicit max_tokens is obeyed to the letter (R04). Without one the limit is 3 s and three times the
 *                expected length of the text, at most the published 1001: one word ends after a few seconds at most
 *     cycle      without an explicit max_tokens, a pattern of up to 50 tokens that repeats for 3 s, and at least four
 *                times, ends the piece. Pauses of up to 3 s are kept as they are
 *     short      fewer tokens than a third of the expected length are reported (R08), not changed
 *
 * Whatever ended the piece, the tokens made stay: what a stream has played already is what a file holds. `end` says
 * why and is never to be dropped silently.
 *
 * A generation belongs to one task. Draws are by position (seed stream, step), so they depend on nothing else.
 */
#ifndef CHATTERBOX_GENERATE_H
#define CHATTERBOX_GENERATE_H

#include "base/rng.h"
#include "chatterbox/sampler.h"

enum {
    GENERATE_MAX_TOKENS = 1001, /* the published limit: the first token and 1000 more */
    GENERATE_MAX_CYCLE = 50,    /* longest pattern looked for: 2 s */
    GENERATE_CYCLE_TOKENS = 75, /* how long it must last: 3 s */
    GENERATE_SILENCE = 4299,    /* S3GEN_SIL */
    GENERATE_PAD_TOKENS = 3
};

/* Why a piece ended. */
enum generation_end {
    GENERATION_RUNS,     /* not yet */
    GENERATION_STOPPED,  /* the model drew its stop token: as it should be */
    GENERATION_LIMIT,    /* max_tokens, given or implied, or the model's last position */
    GENERATION_CYCLE,    /* it repeated itself */
    GENERATION_NO_CHOICE /* every score was -inf */
};

struct generation_options {
    struct sampler_params sampler;
    struct rng stream;       /* draws: index = step */
    int max_tokens;          /* > 0: explicit; 0: implied by the text */
    double expected_seconds; /* of speech, text_expected_seconds */
    int room;                /* positions the network has left for speech tokens */
};

struct generation {
    struct generation_options options;
    struct sampler *sampler;
    int limit;
    int32_t drawn[GENERATE_MAX_TOKENS]; /* everything drawn; the penalty's history */
    int n_drawn;
    int32_t speech[GENERATE_MAX_TOKENS + GENERATE_PAD_TOKENS]; /* ids below 6561 of them */
    int n_speech;
    int repeats[GENERATE_MAX_CYCLE + 1]; /* how long each period has held */
    enum generation_end end;
    bool suspiciously_short; /* set by generation_finish */
};

utter_status generation_create(struct generation **out, int n_vocab, struct error *e);
void generation_free(struct generation **g);

/* Forgets the piece before. INVALID_ARGUMENT for bad sampling parameters or max_tokens. */
utter_status generation_begin(struct generation *g, const struct generation_options *o, struct error *e);

/* Takes the logits [n_vocab] of the next token. OK: *token was drawn and wants to be fed. DONE: nothing more is to
 * be fed; g->end says why, and *token, when the last draw made one, is already in g->drawn. ENGINE for a NaN among
 * the logits. */
utter_status generation_next(struct generation *g, const float *logits, int32_t *token, struct error *e);

/* Appends the silence tokens; g->speech[0 .. g->n_speech) is what the flow takes. */
void generation_finish(struct generation *g);

static inline bool generation_truncated(const struct generation *g)
{
    return g->end == GENERATION_LIMIT || g->end == GENERATION_CYCLE;
}

/* The limit without an explicit one, in tokens. */
int generation_implied_limit(double expected_seconds);

#endif
