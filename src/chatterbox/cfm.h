/*
 * cfm.h - the flow's decoder: from noise to mel by a few steps along a learned velocity field.
 *
 * Two kinds of network share the estimator: mean flow (Turbo, Nano: the step's both ends are embedded, no guidance) and the
 * standard one (English, multilingual, voice conversion: cosine grid, classifier-free guidance 0.7). The checkpoint says
 * which: time_embed_mixer exists or not. Weights only; immutable after loading, any thread.
 */
#ifndef CHATTERBOX_CFM_H
#define CHATTERBOX_CFM_H

#include "chatterbox/flow_encoder.h"
#include "chatterbox/observer.h"
#include "checkpoint/bind.h"
#include "device/device.h"

enum { CFM_MAX_MID = 16, CFM_MAX_TRANSFORMERS = 8, CFM_MAX_STEPS = 100 };

struct cfm_block { /* causal conv, layer norm, Mish */
    struct weight *conv;
    struct norm norm;
};

struct cfm_resnet {
    struct cfm_block block1, block2;
    struct weight *mlp;      /* time embedding -> channels */
    struct weight *res_conv; /* one tap */
};

struct cfm_transformer {
    struct norm norm1, norm3;
    struct weight *to_q, *to_k, *to_v, *to_out; /* channels -> heads * 64 -> channels */
    struct weight *ff_in, *ff_out;
};

struct cfm_stage { /* a resnet and its transformers */
    struct cfm_resnet resnet;
    struct cfm_transformer transformers[CFM_MAX_TRANSFORMERS];
};

struct cfm {
    int channels, n_mels, n_mid, n_transformers, time_dim;
    struct weight *time_linear_1, *time_linear_2;
    struct weight *time_embed_mixer; /* NULL: the standard network */
    struct cfm_stage down, mid[CFM_MAX_MID], up;
    struct weight *down_conv, *up_conv; /* causal, three taps */
    struct cfm_block final_block;
    struct weight *final_proj;
    struct device *device;
    struct array shifts; /* cfm_prepare's: what time adds in every resnet at every step of the usual number */
};

/* Binds "s3gen.flow.decoder.estimator.*". Errors latch in the binder. */
void cfm_load(struct cfm *m, struct binder *b, int n_mels);

/* Computes once what depends only on the steps' times, for n_steps steps; other numbers of steps are computed when used. */
utter_status cfm_prepare(struct cfm *m, struct device *d, int n_steps, struct error *e);
void cfm_free(struct cfm *m); /* a zeroed or half-loaded one is fine */

static inline bool cfm_is_meanflow(const struct cfm *m)
{
    return m->time_embed_mixer != NULL;
}

/* Where step k of n starts (k = n: where the last one ends): k / n for mean flow, 1 - cos(pi/2 k/n) else. */
float cfm_time(const struct cfm *m, int k, int n);

/* in: [T][4 * n_mels], columns x (the noise), mu, spk (the same in every row), cond. Leaves the mel in x after n_steps steps
 * (1 to CFM_MAX_STEPS). */
void cfm_solve(struct stream *s, const struct cfm *m, struct array in, int n_steps, const struct observer *o);

#endif
