/*
 * flow_encoder.h - the upsampling conformer: speech tokens (25/s) to the mean mel that the flow starts from (50/s).
 *
 * Weights, and a bounded cache of position tables that guards itself: any thread. Sizes come from the checkpoint, heads are
 * 64 wide.
 */
#ifndef CHATTERBOX_FLOW_ENCODER_H
#define CHATTERBOX_FLOW_ENCODER_H

#include "chatterbox/observer.h"
#include "checkpoint/bind.h"
#include "device/device.h"

enum { FLOW_ENCODER_MAX_BLOCKS = 16 };

struct norm {
    struct array gain, bias; /* [1][dim] */
};

struct conformer_block {
    struct norm norm_mha, norm_ff;
    struct weight *linear_q, *linear_k, *linear_v, *linear_out; /* dim -> dim */
    struct weight *linear_pos;                                  /* dim -> dim, no bias */
    struct array pos_bias_u, pos_bias_v;                        /* [heads][64] */
    struct weight *w_1, *w_2;                                   /* dim -> ff -> dim */
};

struct encoder_embed {
    struct weight *linear;
    struct norm norm;
};

struct position_cache; /* projected position tables, made when first needed; see flow_encoder.c */

struct flow_encoder {
    int dim, n_mels, n_blocks, n_up_blocks;
    struct weight *input_embedding; /* [6561][dim] */
    struct encoder_embed embed, up_embed;
    struct weight *pre_conv1, *pre_conv2, *up_conv; /* taps 4, 3, 5 */
    struct conformer_block encoders[FLOW_ENCODER_MAX_BLOCKS], up_encoders[FLOW_ENCODER_MAX_BLOCKS];
    struct norm after_norm;
    struct weight *proj; /* dim -> n_mels */
    struct position_cache *positions;
};

/* Binds "s3gen.flow.input_embedding", "s3gen.flow.encoder.*" and "s3gen.flow.encoder_proj". Errors latch in the binder. */
void flow_encoder_load(struct flow_encoder *m, struct binder *b);
void flow_encoder_free(struct flow_encoder *m); /* a zeroed or half-loaded one is fine */

/* tokens: n ids, host memory. mu: [up to 2n][n_mels]; with fewer rows the last ones are dropped. */
void flow_encoder_forward(struct stream *s, const struct flow_encoder *m, struct array mu, const int32_t *tokens, int n,
                          const struct observer *o);

#endif
