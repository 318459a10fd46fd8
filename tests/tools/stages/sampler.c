/*
 * Stage sampler: the probabilities left after every step, for each case "in.turbo.<name>" and "in.mtl.<name>". Needs no network.
 */
#include "chatterbox/sampler.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tools/stages/stage.h"

static void put_case(struct stage_run *r, const struct ref_array *c, enum sampler_order order)
{
    const struct ref_array *logits = stage_input(r, "in.logits", false, 2),
                           *uncond = stage_input(r, "in.logits_uncond", false, 2),
                           *history = stage_input(r, "in.history", true, 2);
    if (r->status != UTTER_OK) return;
    const float *v = c->values.f;
    const struct sampler_params turbo = {
        .temperature = v[0], .top_k = (int)v[1], .top_p = v[2], .repetition_penalty = v[3]};
    const struct sampler_params cfg = {.temperature = v[0],
                                       .top_p = v[1],
                                       .min_p = v[2],
                                       .repetition_penalty = v[3],
                                       .cfg_weight = order == SAMPLER_CFG ? v[4] : 0};
    const struct sampler_choice *choices;
    const int64_t shape[] = {1, (int64_t)logits->count};
    struct sampler *s = NULL;
    int n;
    float *dense = mem_calloc(logits->count, sizeof *dense);
    if (!dense)
        r->status = UTTER_OUT_OF_MEMORY;
    else
        r->status = sampler_create(&s, order, (int)logits->count, r->error);
    if (r->status == UTTER_OK)
        r->status = sampler_distribution(s, order == SAMPLER_TURBO ? &turbo : &cfg, logits->values.f, uncond->values.f,
                                         history->values.i, (int)history->count, &choices, &n, r->error);
    if (r->status == UTTER_OK) {
        for (int i = 0; i < n; i++) dense[choices[i].id] = (float)choices[i].probability;
        stage_output_values(r, c->name + strlen("in."), 2, shape, dense);
    }
    sampler_free(&s);
    mem_free(dense);
}

stage_fn stage_sampler;

utter_status stage_sampler(struct stage_run *r)
{
    for (size_t i = 0; i < r->in->n && r->status == UTTER_OK; i++) {
        const struct ref_array *c = &r->in->arrays[i];
        if (strncmp(c->name, "in.turbo.", 9) == 0 && c->count == 4) put_case(r, c, SAMPLER_TURBO);
        if (strncmp(c->name, "in.mtl.", 7) == 0 && c->count == 5) put_case(r, c, SAMPLER_CFG);
    }
    return r->status;
}
