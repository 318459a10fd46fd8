#include "chatterbox/generate.h"

#include <string.h>

#include "base/mem.h"

enum { TOKENS_A_SECOND = 25, START_TOKEN = 6561, STOP_TOKEN = 6562, FIRST_CONTROL_TOKEN = 6561 };

utter_status generation_create(struct generation **out, int n_vocab, struct error *e)
{
    *out = NULL;
    struct generation *g = mem_calloc(1, sizeof *g);
    if (!g) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a generation");
    const utter_status s = sampler_create(&g->sampler, SAMPLER_TURBO, n_vocab, e);
    if (s != UTTER_OK) generation_free(&g);
    *out = g;
    return s;
}

void generation_free(struct generation **g)
{
    if (!*g) return;
    sampler_free(&(*g)->sampler);
    mem_free(*g);
    *g = NULL;
}

int generation_implied_limit(double expected_seconds)
{
    const double tokens = TOKENS_A_SECOND * (3 + 3 * expected_seconds);
    return tokens < GENERATE_MAX_TOKENS ? (int)tokens : GENERATE_MAX_TOKENS;
}

utter_status generation_begin(struct generation *g, const struct generation_options *o, struct error *e)
{
    const utter_status s = sampler_check(&o->sampler, e);
    if (s != UTTER_OK) return s;
    if (o->max_tokens < 0 || o->max_tokens > GENERATE_MAX_TOKENS)
        return error_set(e, UTTER_INVALID_ARGUMENT, "max_tokens: expected 1 to %d, found %d", GENERATE_MAX_TOKENS,
                         o->max_tokens);
    g->options = *o;
    g->limit = o->max_tokens ? o->max_tokens : generation_implied_limit(o->expected_seconds);
    if (g->limit > o->room) g->limit = o->room > 0 ? o->room : 0;
    g->n_drawn = g->n_speech = 0;
    g->end = GENERATION_RUNS;
    g->suspiciously_short = false;
    memset(g->repeats, 0, sizeof g->repeats);
    return UTTER_OK;
}

/* Does the last token continue a pattern that has lasted long enough to be a loop? */
static bool in_cycle(struct generation *g)
{
    const int last = g->n_drawn - 1;
    bool found = false;
    for (int period = 1; period <= GENERATE_MAX_CYCLE && period <= last; period++) {
        int *held = &g->repeats[period];
        *held = g->drawn[last] == g->drawn[last - period] ? *held + 1 : 0;
        found |= *held >= GENERATE_CYCLE_TOKENS && *held >= 3 * period; /* the first time is not counted as a repeat */
    }
    return found;
}

utter_status generation_next(struct generation *g, const float *logits, int32_t *token, struct error *e)
{
    if (g->end != GENERATION_RUNS) return UTTER_DONE;
    if (g->limit == 0) {
        g->end = GENERATION_LIMIT;
        return UTTER_DONE;
    }
    static const int32_t before_the_first[] = {START_TOKEN};
    const bool first = g->n_drawn == 0;
    utter_status s =
        sampler_draw(g->sampler, &g->options.sampler, logits, NULL, first ? before_the_first : g->drawn,
                     first ? 1 : g->n_drawn, rng_uniform(g->options.stream, (uint64_t)g->n_drawn), token, e);
    if (s == UTTER_DONE) g->end = GENERATION_NO_CHOICE;
    if (s != UTTER_OK) return s;
    g->drawn[g->n_drawn++] = *token;
    if (*token < FIRST_CONTROL_TOKEN) g->speech[g->n_speech++] = *token;
    if (*token == STOP_TOKEN && !first)
        g->end = GENERATION_STOPPED;
    else if (g->n_drawn >= g->limit)
        g->end = GENERATION_LIMIT;
    else if (!g->options.max_tokens && in_cycle(g))
        g->end = GENERATION_CYCLE;
    return g->end == GENERATION_RUNS ? UTTER_OK : UTTER_DONE;
}

void generation_finish(struct generation *g)
{
    g->suspiciously_short = g->n_speech * 3 < TOKENS_A_SECOND * g->options.expected_seconds;
    for (int i = 0; i < GENERATE_PAD_TOKENS; i++) g->speech[g->n_speech++] = GENERATE_SILENCE;
}
