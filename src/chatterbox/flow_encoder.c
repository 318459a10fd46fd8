/*
 * The encoder of the flow: CosyVoice 2's upsampling conformer (Du et al., 2024), specification section 2.7.
 *
 *     tokens [n]
 *       input_embedding                                        [n][512]
 *       embed          linear, layer norm, x sqrt(512)
 *       pre-lookahead  x + conv3(lrelu(conv4(x)))              conv4 sees three tokens ahead, conv3 two back
 *       encoders       6 blocks                                x += attention(norm_mha(x)); x += ff(norm_ff(x))
 *       up_layer       every row twice, causal conv5           [2n][512]
 *       up_embed       linear, layer norm, x sqrt(512)
 *       up_encoders    4 blocks
 *       after_norm, encoder_proj                               [2n][80]
 *
 * Attention is bidirectional over everything, with relative positions as in Transformer-XL (appendix B) and espnet's table:
 * sinusoids of the signed distance, projected by each block.
 */
#include "chatterbox/flow_encoder.h"

#include <math.h>
#include <pthread.h>

#include "base/mem.h"
#include "chatterbox/conds.h"

static const float NORM_EPS = 1e-5f, BLOCK_NORM_EPS = 1e-12f;
enum { HEAD_DIM = 64 };

/* ---- weights ------------------------------------------------------------------------------------------------------ */

#define ENCODER "s3gen.flow.encoder."

static void load_block(struct conformer_block *block, struct binder *b, const char *list, int i, int dim)
{
    const int heads = dim / HEAD_DIM, ff = bind_dim(b, 0, ENCODER "%s.%d.feed_forward.w_1.weight", list, i);
    block->norm_mha.gain = bind_vector(b, dim, ENCODER "%s.%d.norm_mha.weight", list, i);
    block->norm_mha.bias = bind_vector(b, dim, ENCODER "%s.%d.norm_mha.bias", list, i);
    block->linear_q = bind_linear(b, dim, dim, BIAS_REQUIRED, ENCODER "%s.%d.self_attn.linear_q", list, i);
    block->linear_k = bind_linear(b, dim, dim, BIAS_REQUIRED, ENCODER "%s.%d.self_attn.linear_k", list, i);
    block->linear_v = bind_linear(b, dim, dim, BIAS_REQUIRED, ENCODER "%s.%d.self_attn.linear_v", list, i);
    block->linear_out = bind_linear(b, dim, dim, BIAS_REQUIRED, ENCODER "%s.%d.self_attn.linear_out", list, i);
    block->linear_pos = bind_linear(b, dim, dim, BIAS_NONE, ENCODER "%s.%d.self_attn.linear_pos", list, i);
    block->pos_bias_u = bind_matrix(b, heads, HEAD_DIM, ENCODER "%s.%d.self_attn.pos_bias_u", list, i);
    block->pos_bias_v = bind_matrix(b, heads, HEAD_DIM, ENCODER "%s.%d.self_attn.pos_bias_v", list, i);
    block->norm_ff.gain = bind_vector(b, dim, ENCODER "%s.%d.norm_ff.weight", list, i);
    block->norm_ff.bias = bind_vector(b, dim, ENCODER "%s.%d.norm_ff.bias", list, i);
    block->w_1 = bind_linear(b, ff, dim, BIAS_REQUIRED, ENCODER "%s.%d.feed_forward.w_1", list, i);
    block->w_2 = bind_linear(b, dim, ff, BIAS_REQUIRED, ENCODER "%s.%d.feed_forward.w_2", list, i);
}

static int load_blocks(struct conformer_block *blocks, struct binder *b, const char *list, const char *counted, int dim)
{
    const int n = bind_count(b, counted);
    if ((n < 1 || n > FLOW_ENCODER_MAX_BLOCKS) && b->status == UTTER_OK)
        b->status = error_set(b->error, UTTER_MODEL_DAMAGED, "%s: %s has %d blocks, expected 1 to %d",
                              checkpoint_path(b->checkpoint), list, n, FLOW_ENCODER_MAX_BLOCKS);
    if (b->status != UTTER_OK) return 0;
    for (int i = 0; i < n; i++) load_block(&blocks[i], b, list, i, dim);
    return n;
}

static void load_embed(struct encoder_embed *embed, struct binder *b, const char *name, int dim)
{
    embed->linear = bind_linear(b, dim, dim, BIAS_REQUIRED, ENCODER "%s.out.0", name);
    embed->norm.gain = bind_vector(b, dim, ENCODER "%s.out.1.weight", name);
    embed->norm.bias = bind_vector(b, dim, ENCODER "%s.out.1.bias", name);
}

/* ---- relative positions ------------------------------------------------------------------------------------------- */

/* Every block projects the same sinusoids, whatever is said: a seventh of the encoder's work. The projections of all
 * distances below a class's capacity are kept from the first use on: at most 50 MB at the published size. Longer inputs
 * (20 s of prompt and speech) project anew. */
enum { POSITION_CLASSES = 3, FIRST_CAPACITY = 128 }; /* capacities 128, 256, 512 tokens */

struct position_tables { /* [2 capacity - 1][dim] and, at twice the rate, [4 capacity - 1][dim] */
    struct array encoders[FLOW_ENCODER_MAX_BLOCKS], up_encoders[FLOW_ENCODER_MAX_BLOCKS];
    bool made;
};

struct position_cache {
    pthread_mutex_t classes_lock;
    struct device *device;
    struct position_tables classes[POSITION_CLASSES];
};

static void cache_create(struct flow_encoder *m, struct binder *b)
{
    m->positions = mem_calloc(1, sizeof *m->positions);
    if (m->positions) {
        pthread_mutex_init(&m->positions->classes_lock, NULL);
        m->positions->device = b->device;
    } else if (b->status == UTTER_OK) {
        b->status = error_set(b->error, UTTER_OUT_OF_MEMORY, "out of memory for the flow's encoder");
    }
}

void flow_encoder_free(struct flow_encoder *m)
{
    if (!m->positions) return;
    for (int c = 0; c < POSITION_CLASSES; c++)
        for (int i = 0; i < FLOW_ENCODER_MAX_BLOCKS; i++) {
            device_array_free(m->positions->device, &m->positions->classes[c].encoders[i]);
            device_array_free(m->positions->device, &m->positions->classes[c].up_encoders[i]);
        }
    pthread_mutex_destroy(&m->positions->classes_lock);
    mem_free(m->positions);
    m->positions = NULL;
}

/* Row r of [2n - 1][dim] is distance d = n - 1 - r: sin(d w_k), cos(d w_k) side by side, w_k = 10000^(-2k / dim). The
 * reference rounds the angle to float32 before the sine; at d = 1000 that is worth 3e-5, so this does too. */
static struct array sinusoids(struct stream *s, int n, int dim)
{
    float *table = mem_alloc((size_t)(2 * n - 1) * (size_t)dim * sizeof *table);
    if (!table) {
        stream_fail(s, UTTER_OUT_OF_MEMORY);
        return (struct array){0};
    }
    for (int k = 0; k < dim / 2 && stream_poll(s) == UTTER_OK; k++) {
        const float frequency = expf((float)(2 * k) * (float)-(log(10000.0) / dim));
        for (int d = 0; d < n; d++) {
            const double angle = (double)((float)d * frequency);
            const float sine = (float)sin(angle), cosine = (float)cos(angle);
            float *ahead = table + (size_t)(n - 1 - d) * (size_t)dim + 2 * k;
            float *behind = table + (size_t)(n - 1 + d) * (size_t)dim + 2 * k;
            behind[0] = -sine, behind[1] = cosine;
            ahead[0] = sine, ahead[1] = cosine;
        }
    }
    struct array a = stream_upload(s, 2 * n - 1, dim, table);
    mem_free(table);
    return a;
}

/* Fills `tables` for n rows; an array that an interrupted attempt left behind is used again. */
static void project_positions(struct stream *s, struct array *tables, const struct conformer_block *list, int n_blocks,
                              int n)
{
    const size_t mark = stream_mark(s);
    const int dim = weight_in(list[0].linear_pos);
    const struct array table = sinusoids(s, n, dim);
    for (int i = 0; i < n_blocks && stream_status(s) == UTTER_OK; i++) {
        const utter_status status =
            array_exists(tables[i]) ? UTTER_OK : device_array(&tables[i], stream_device(s), 2 * n - 1, dim, NULL);
        if (status != UTTER_OK) stream_fail(s, status);
        op_linear(s, tables[i], table, list[i].linear_pos, (struct epilogue){0});
    }
    stream_release(s, mark);
}

/* The tables for n tokens and the distance they reach; NULL when n is beyond every class or the stream failed. */
static const struct position_tables *positions_for(struct stream *s, const struct flow_encoder *m, int n)
{
    int c = 0;
    while (c < POSITION_CLASSES && FIRST_CAPACITY << c < n) c++;
    if (c == POSITION_CLASSES) return NULL;
    struct position_tables *t = &m->positions->classes[c];
    if (!stream_lock(s, &m->positions->classes_lock)) return NULL; /* another task may take 50 ms over it */
    if (!t->made) {
        project_positions(s, t->encoders, m->encoders, m->n_blocks, FIRST_CAPACITY << c);
        project_positions(s, t->up_encoders, m->up_encoders, m->n_up_blocks, 2 * FIRST_CAPACITY << c);
        t->made = stream_wait(s) == UTTER_OK;
    }
    const bool made = t->made;
    pthread_mutex_unlock(&m->positions->classes_lock);
    return made ? t : NULL;
}

void flow_encoder_load(struct flow_encoder *m, struct binder *b)
{
    const int dim = bind_dim(b, 1, "s3gen.flow.input_embedding.weight");
    *m = (struct flow_encoder){.dim = dim, .n_mels = bind_dim(b, 0, "s3gen.flow.encoder_proj.weight")};
    cache_create(m, b);
    m->input_embedding = bind_embedding(b, SPEECH_CODES, dim, "s3gen.flow.input_embedding");
    if (b->status == UTTER_OK && dim % HEAD_DIM)
        b->status = error_set(b->error, UTTER_MODEL_DAMAGED,
                              "%s: s3gen.flow.input_embedding.weight is %d wide, expected a multiple of %d",
                              checkpoint_path(b->checkpoint), dim, HEAD_DIM);
    load_embed(&m->embed, b, "embed", dim);
    m->pre_conv1 = bind_conv1d(b, dim, dim, 4, BIAS_REQUIRED, ENCODER "pre_lookahead_layer.conv1");
    m->pre_conv2 = bind_conv1d(b, dim, dim, 3, BIAS_REQUIRED, ENCODER "pre_lookahead_layer.conv2");
    m->n_blocks = load_blocks(m->encoders, b, "encoders", ENCODER "encoders.%d.norm_ff.weight", dim);
    m->up_conv = bind_conv1d(b, dim, dim, 5, BIAS_REQUIRED, ENCODER "up_layer.conv");
    load_embed(&m->up_embed, b, "up_embed", dim);
    m->n_up_blocks = load_blocks(m->up_encoders, b, "up_encoders", ENCODER "up_encoders.%d.norm_ff.weight", dim);
    m->after_norm.gain = bind_vector(b, dim, ENCODER "after_norm.weight");
    m->after_norm.bias = bind_vector(b, dim, ENCODER "after_norm.bias");
    m->proj = bind_linear(b, m->n_mels, dim, BIAS_REQUIRED, "s3gen.flow.encoder_proj");
}

/* ---- forward ------------------------------------------------------------------------------------------------------ */

/* pos: the block's projected positions, the middle 2n - 1 rows of them for n rows of x. */
static void attention(struct stream *s, const struct conformer_block *b, struct array x, struct array pos)
{
    const struct epilogue plain = {0};
    const size_t mark = stream_mark(s);
    struct array h = stream_array(s, x.rows, x.cols), q = stream_array(s, x.rows, x.cols);
    struct array k = stream_array(s, x.rows, x.cols), v = stream_array(s, x.rows, x.cols);
    op_layer_norm(s, h, x, b->norm_mha.gain, b->norm_mha.bias, BLOCK_NORM_EPS, ACT_NONE);
    op_linear(s, q, h, b->linear_q, plain);
    op_linear(s, k, h, b->linear_k, plain);
    op_linear(s, v, h, b->linear_v, plain);
    op_attention_relative(s, h, q, k, v, array_rows(pos, (pos.rows + 1) / 2 - x.rows, 2 * x.rows - 1), b->pos_bias_u,
                          b->pos_bias_v, x.cols / HEAD_DIM, 1.0f / 8);
    op_linear(s, x, h, b->linear_out, (struct epilogue){.residual = x});
    stream_release(s, mark);
}

static void feed_forward(struct stream *s, const struct conformer_block *b, struct array x)
{
    const size_t mark = stream_mark(s);
    struct array h = stream_array(s, x.rows, x.cols), wide = stream_array(s, x.rows, weight_out(b->w_1));
    op_layer_norm(s, h, x, b->norm_ff.gain, b->norm_ff.bias, BLOCK_NORM_EPS, ACT_NONE);
    op_linear(s, wide, h, b->w_1, (struct epilogue){.act = ACT_SILU});
    op_linear(s, x, wide, b->w_2, (struct epilogue){.residual = x});
    stream_release(s, mark);
}

/* tables: the blocks' projected positions, or NULL to project them here. */
static void blocks(struct stream *s, const struct conformer_block *list, int n, struct array x,
                   const struct array *tables, const char *name, const struct observer *o)
{
    const size_t mark = stream_mark(s);
    struct array table = {0}, projected = {0};
    if (!tables) {
        table = sinusoids(s, x.rows, x.cols);
        projected = stream_array(s, 2 * x.rows - 1, x.cols);
    }
    for (int i = 0; i < n && stream_status(s) == UTTER_OK; i++) {
        if (!tables) op_linear(s, projected, table, list[i].linear_pos, (struct epilogue){0});
        attention(s, &list[i], x, tables ? tables[i] : projected);
        feed_forward(s, &list[i], x);
        observe(o, x, "enc.%s.%d", name, i);
    }
    stream_release(s, mark);
}

static void embed(struct stream *s, const struct encoder_embed *e, struct array out, struct array x)
{
    op_linear(s, out, x, e->linear, (struct epilogue){0});
    op_layer_norm(s, out, out, e->norm.gain, e->norm.bias, NORM_EPS, ACT_NONE);
    op_add(s, out, sqrtf((float)out.cols), out, 0, (struct array){0});
}

void flow_encoder_forward(struct stream *s, const struct flow_encoder *m, struct array mu, const int32_t *tokens, int n,
                          const struct observer *o)
{
    const struct position_tables *tables = positions_for(s, m, n);
    const size_t mark = stream_mark(s);
    struct array x = stream_array(s, n, m->dim), h = stream_array(s, n, m->dim);
    struct array up = stream_array(s, 2 * n, m->dim), twice = stream_array(s, 2 * n, m->dim);

    op_embed(s, h, m->input_embedding, tokens, false);
    embed(s, &m->embed, x, h);
    observe(o, x, "enc.embed");
    op_conv1d(s, h, x, m->pre_conv1, (struct conv_shape){.pad = 0},
              (struct epilogue){.act = ACT_LEAKY_RELU, .act_param = 0.01f});
    op_conv1d(s, x, h, m->pre_conv2, (struct conv_shape){.pad = 2}, (struct epilogue){.residual = x});
    observe(o, x, "enc.pre_lookahead");
    blocks(s, m->encoders, m->n_blocks, x, tables ? tables->encoders : NULL, "encoders", o);

    op_repeat_rows(s, twice, x, 2);
    op_conv1d(s, up, twice, m->up_conv, (struct conv_shape){.pad = 4}, (struct epilogue){0});
    observe(o, up, "enc.up_layer");
    embed(s, &m->up_embed, twice, up);
    observe(o, twice, "enc.up_embed");
    blocks(s, m->up_encoders, m->n_up_blocks, twice, tables ? tables->up_encoders : NULL, "up_encoders", o);

    op_layer_norm(s, up, twice, m->after_norm.gain, m->after_norm.bias, NORM_EPS, ACT_NONE);
    observe(o, up, "enc.after_norm");
    op_linear(s, mu, array_rows(up, 0, mu.rows), m->proj, (struct epilogue){0});
    stream_release(s, mark);
}
