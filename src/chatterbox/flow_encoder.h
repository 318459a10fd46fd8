/*
 * flow_encoder.h - the upsampling conformer: speech tokens (25/s) to the mean mel that the flow starts from (50/s).
 *
 * Weights only; immutable after loading, any thread. Sizes come from the checkpoint, heads are 64 wide.
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

struct flow_encoder {
    int dim, n_mels, n_blocks, n_up_blocks;
    struct weight *input_embedding; /* [6561][dim] */
    struct encoder_embed embed, up_embed;
    struct weight *pre_conv1, *pre_conv2, *up_conv; /* taps 4, 3, 5 */
    struct conformer_block encoders[FLOW_ENCODER_MAX_BLOCKS], up_encoders[FLOW_ENCODER_MAX_BLOCKS];
    struct norm after_norm;
    struct weight *proj; /* dim -> n_mels */
};

/* Binds "s3gen.flow.input_embedding", "s3gen.flow.encoder.*" and "s3gen.flow.encoder_proj". Errors latch in the binder. */
void flow_encoder_load(struct flow_encoder *m, struct binder *b);

/* tokens: n ids, host memory. mu: [up to 2n][n_mels]; with fewer rows the last ones are dropped. */
void flow_encoder_forward(struct stream *s, const struct flow_encoder *m, struct array mu, const int32_t *tokens, int n,
                          const struct observer *o);

#endif
