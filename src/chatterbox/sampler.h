/*
 * sampler.h - from logits to one token, in the exact order of the published models (specification section 2.5).
 *
 *     SAMPLER_TURBO   temperature -> top-k -> top-p -> repetition penalty -> softmax
 *     SAMPLER_CFG     guidance -> repetition penalty -> temperature -> min-p -> top-p -> softmax
 *
 * TURBO serves Turbo and Nano, CFG the English and the multilingual model.
 *
 * No full sort: the k-th largest score is selected by its bits, and top-p takes the best from a heap until the mass
 * is reached.
 *
 * Temperature 0 is greedy in both orders: repetition penalty, then the likeliest token, the lowest id of equal ones.
 * (The published Turbo code skips the division for T <= 0 and still draws at random; nobody asks for that.)
 * top_k = 1 is the published greedy: Turbo applies the penalty after the filters, so there it has no effect.
 *
 * A sampler belongs to one task; it allocates nothing after creation.
 */
#ifndef CHATTERBOX_SAMPLER_H
#define CHATTERBOX_SAMPLER_H

#include <stdint.h>

#include "base/error.h"

enum sampler_order { SAMPLER_TURBO, SAMPLER_CFG };

struct sampler_params {
    float temperature;        /* >= 0; 0: greedy */
    int top_k;                /* >= 0; 0: off. TURBO only */
    float top_p;              /* 0 < p <= 1; 1: off */
    float min_p;              /* 0 .. 1; 0: off. CFG only */
    float repetition_penalty; /* > 0; 1: off */
    float cfg_weight;         /* >= 0; 0: conditional logits alone. CFG only */
};

struct sampler_params sampler_defaults(enum sampler_order order); /* the published ones */
/* INVALID_ARGUMENT naming the parameter, what was expected and what was found. NaN is refused everywhere. */
utter_status sampler_check(const struct sampler_params *p, struct error *e);

struct sampler;

utter_status sampler_create(struct sampler **out, enum sampler_order order, int n_vocab, struct error *e);
void sampler_free(struct sampler **s);

struct sampler_choice {
    int32_t id;
    float score;        /* after every step */
    double probability; /* they sum to 1 */
};

/* What is left after all steps: *choices, *n of them, in no particular order that depends on anything but the
 * arguments; valid until the next call. logits, logits_uncond: [n_vocab]; the latter only with CFG and cfg_weight >
 * 0, else NULL. history: ids that the penalty falls on; ids outside the vocabulary are ignored. DONE when every
 * score is -inf: nothing can be said. ENGINE for a NaN or +inf among the logits, with its id. */
utter_status sampler_distribution(struct sampler *s, const struct sampler_params *p, const float *logits,
                                  const float *logits_uncond, const int32_t *history, int n_history,
                                  const struct sampler_choice **choices, int *n, struct error *e);

/* One token by a uniform draw in [0, 1). DONE and ENGINE as above. */
utter_status sampler_draw(struct sampler *s, const struct sampler_params *p, const float *logits,
                          const float *logits_uncond, const int32_t *history, int n_history, double uniform,
                          int32_t *token, struct error *e);

#endif
