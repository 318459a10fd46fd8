/*
 * Flow matching decoder: Matcha-TTS's one-dimensional U-Net (Mehta et al., 2024) as CosyVoice 2 made it causal, without any
 * down- or upsampling in time; specification sections 2.8 and 2.9.
 *
 *     x, mu, spk, cond side by side                               [T][320]
 *       down   resnet 320 -> 256, 4 transformers -> skip, conv3   [T][256]
 *       mid    12 x (resnet 256 -> 256, 4 transformers)
 *       up     [z, skip] 512: resnet 512 -> 256, 4 transformers, conv3
 *       final  block, final_proj                                  [T][80] = dx/dt
 *
 *     block(z)        mish(norm(causal conv3(z)))
 *     resnet(z, te)   block2(block1(z) + mlp(mish(te))) + res_conv(z)
 *     transformer(z)  z += to_out(attention(norm1(z))); z += ff(norm3(z)), erf GELU
 *
 *     te = tau(t), or mixer [tau(t); tau(r)] for mean flow (Geng et al., 2025: the mean velocity between t and r)
 */
#include "chatterbox/cfm.h"

#include <math.h>

static const float NORM_EPS = 1e-5f, GUIDANCE = 0.7f;
enum { HEAD_DIM = 64 };

/* ---- weights ------------------------------------------------------------------------------------------------------ */

#define ESTIMATOR "s3gen.flow.decoder.estimator."

static void load_block(struct cfm_block *m, struct binder *b, int in, int out, const char *stage, const char *name)
{
    m->conv = bind_conv1d(b, out, in, 3, BIAS_REQUIRED, ESTIMATOR "%s%s.block.0", stage, name);
    m->norm.gain = bind_vector(b, out, ESTIMATOR "%s%s.block.2.weight", stage, name);
    m->norm.bias = bind_vector(b, out, ESTIMATOR "%s%s.block.2.bias", stage, name);
}

static void load_resnet(struct cfm_resnet *m, struct binder *b, int in, int out, int time_dim, const char *stage)
{
    load_block(&m->block1, b, in, out, stage, ".0.block1");
    load_block(&m->block2, b, out, out, stage, ".0.block2");
    m->mlp = bind_linear(b, out, time_dim, BIAS_REQUIRED, ESTIMATOR "%s.0.mlp.1", stage);
    m->res_conv = bind_conv1d(b, out, in, 1, BIAS_REQUIRED, ESTIMATOR "%s.0.res_conv", stage);
}

static void load_transformer(struct cfm_transformer *m, struct binder *b, int dim, const char *stage, int i)
{
    const int inner = bind_dim(b, 0, ESTIMATOR "%s.1.%d.attn1.to_q.weight", stage, i);
    const int ff = bind_dim(b, 0, ESTIMATOR "%s.1.%d.ff.net.0.proj.weight", stage, i);
    if (b->status == UTTER_OK && inner % HEAD_DIM)
        b->status = error_set(b->error, UTTER_MODEL_DAMAGED, "%s: %s.1.%d.attn1.to_q is %d wide, not a multiple of %d",
                              checkpoint_path(b->checkpoint), stage, i, inner, HEAD_DIM);
    m->norm1.gain = bind_vector(b, dim, ESTIMATOR "%s.1.%d.norm1.weight", stage, i);
    m->norm1.bias = bind_vector(b, dim, ESTIMATOR "%s.1.%d.norm1.bias", stage, i);
    m->to_q = bind_linear(b, inner, dim, BIAS_NONE, ESTIMATOR "%s.1.%d.attn1.to_q", stage, i);
    m->to_k = bind_linear(b, inner, dim, BIAS_NONE, ESTIMATOR "%s.1.%d.attn1.to_k", stage, i);
    m->to_v = bind_linear(b, inner, dim, BIAS_NONE, ESTIMATOR "%s.1.%d.attn1.to_v", stage, i);
    m->to_out = bind_linear(b, dim, inner, BIAS_REQUIRED, ESTIMATOR "%s.1.%d.attn1.to_out.0", stage, i);
    m->norm3.gain = bind_vector(b, dim, ESTIMATOR "%s.1.%d.norm3.weight", stage, i);
    m->norm3.bias = bind_vector(b, dim, ESTIMATOR "%s.1.%d.norm3.bias", stage, i);
    m->ff_in = bind_linear(b, ff, dim, BIAS_REQUIRED, ESTIMATOR "%s.1.%d.ff.net.0.proj", stage, i);
    m->ff_out = bind_linear(b, dim, ff, BIAS_REQUIRED, ESTIMATOR "%s.1.%d.ff.net.2", stage, i);
}

static void load_stage(struct cfm_stage *m, struct binder *b, const struct cfm *cfm, int in, const char *name)
{
    load_resnet(&m->resnet, b, in, cfm->channels, cfm->time_dim, name);
    for (int i = 0; i < cfm->n_transformers; i++) load_transformer(&m->transformers[i], b, cfm->channels, name, i);
}

static int count_at_most(struct binder *b, const char *name, int most)
{
    const int n = bind_count(b, name);
    if (b->status == UTTER_OK && (n < 1 || n > most))
        b->status = error_set(b->error, UTTER_MODEL_DAMAGED, "%s: %d tensors %s, expected 1 to %d",
                              checkpoint_path(b->checkpoint), n, name, most);
    return b->status == UTTER_OK ? n : 0;
}

void cfm_load(struct cfm *m, struct binder *b, int n_mels)
{
    const int channels = bind_dim(b, 0, ESTIMATOR "final_block.block.2.weight");
    *m = (struct cfm){
        .channels = channels, .n_mels = n_mels, .time_dim = bind_dim(b, 0, ESTIMATOR "time_mlp.linear_1.weight")};
    m->n_transformers = count_at_most(b, ESTIMATOR "down_blocks.0.1.%d.norm1.weight", CFM_MAX_TRANSFORMERS);
    m->n_mid = count_at_most(b, ESTIMATOR "mid_blocks.%d.0.mlp.1.weight", CFM_MAX_MID);

    m->time_linear_1 = bind_linear(b, m->time_dim, 4 * n_mels, BIAS_REQUIRED, ESTIMATOR "time_mlp.linear_1");
    m->time_linear_2 = bind_linear(b, m->time_dim, m->time_dim, BIAS_REQUIRED, ESTIMATOR "time_mlp.linear_2");
    if (bind_has(b, ESTIMATOR "time_embed_mixer.weight"))
        m->time_embed_mixer = bind_linear(b, m->time_dim, 2 * m->time_dim, BIAS_NONE, ESTIMATOR "time_embed_mixer");

    load_stage(&m->down, b, m, 4 * n_mels, "down_blocks.0");
    m->down_conv = bind_conv1d(b, channels, channels, 3, BIAS_REQUIRED, ESTIMATOR "down_blocks.0.2");
    for (int i = 0; i < m->n_mid; i++) {
        char name[32];
        snprintf(name, sizeof name, "mid_blocks.%d", i);
        load_stage(&m->mid[i], b, m, channels, name);
    }
    load_stage(&m->up, b, m, 2 * channels, "up_blocks.0");
    m->up_conv = bind_conv1d(b, channels, channels, 3, BIAS_REQUIRED, ESTIMATOR "up_blocks.0.2");
    load_block(&m->final_block, b, channels, channels, "final_block", "");
    m->final_proj = bind_conv1d(b, n_mels, channels, 1, BIAS_REQUIRED, ESTIMATOR "final_proj");
}

/* ---- estimator ---------------------------------------------------------------------------------------------------- */

/* Where step k of n starts; float32 as in the reference. */
float cfm_time(const struct cfm *m, int k, int n)
{
    const float u = (float)k / (float)n;
    return cfm_is_meanflow(m) ? u : 1.0f - cosf(u * 0.5f * (float)M_PI);
}

/* tau of every point of the grid: [n + 1][time_dim]. Angles are rounded to float32 as in the reference (they reach 1000). */
static void time_mlp(struct stream *s, const struct cfm *m, struct array taus, const struct observer *o)
{
    enum { MOST = 1024 };
    float sinusoid[MOST];
    const int half = 2 * m->n_mels, n = taus.rows - 1;
    if (2 * half > MOST) {
        stream_fail(s, UTTER_UNSUPPORTED);
        return;
    }
    const size_t mark = stream_mark(s);
    struct array x = stream_array(s, n + 1, 2 * half), h = stream_array(s, n + 1, m->time_dim);
    for (int k = 0; k <= n; k++) {
        for (int i = 0; i < half; i++) {
            const double angle =
                (double)(1000.0f * cfm_time(m, k, n) * expf((float)i * (float)-(log(10000.0) / (half - 1))));
            sinusoid[i] = (float)sin(angle);
            sinusoid[half + i] = (float)cos(angle);
        }
        stream_write(s, array_rows(x, k, 1), sinusoid);
    }
    op_linear(s, h, x, m->time_linear_1, (struct epilogue){.act = ACT_SILU});
    op_linear(s, taus, h, m->time_linear_2, (struct epilogue){0});
    observe(o, taus, "time_mlp");
    stream_release(s, mark);
}

static int n_resnets(const struct cfm *m)
{
    return m->n_mid + 2;
}

static const struct cfm_resnet *resnet_at(const struct cfm *m, int i)
{
    return i == 0 ? &m->down.resnet : i <= m->n_mid ? &m->mid[i - 1].resnet : &m->up.resnet;
}

/* What the time of every step adds inside every resnet, mlp(mish(te)): [n][resnets * channels], down, mids, up. */
static void time_shifts(struct stream *s, const struct cfm *m, struct array shifts, const struct observer *o)
{
    const int n = shifts.rows, dim = m->time_dim;
    const size_t mark = stream_mark(s);
    struct array taus = stream_array(s, n + 1, dim), te = stream_array(s, n, dim);
    time_mlp(s, m, taus, o);
    if (cfm_is_meanflow(m)) {
        struct array both = stream_array(s, n, 2 * dim);
        op_copy(s, array_cols(both, 0, dim), array_rows(taus, 0, n));
        op_copy(s, array_cols(both, dim, dim), array_rows(taus, 1, n));
        op_linear(s, te, both, m->time_embed_mixer, (struct epilogue){.act = ACT_MISH});
    } else {
        op_activate(s, te, array_rows(taus, 0, n), ACT_MISH, 0);
    }
    for (int i = 0; i < n_resnets(m); i++)
        op_linear(s, array_cols(shifts, i * m->channels, m->channels), te, resnet_at(m, i)->mlp, (struct epilogue){0});
    stream_release(s, mark);
}

utter_status cfm_prepare(struct cfm *m, struct device *d, int n_steps, struct error *e)
{
    struct stream *s = NULL;
    utter_status status = stream_create(&s, d, NULL, (size_t)64 << 20, e);
    if (status != UTTER_OK) return status;
    m->device = d;
    status = device_array(&m->shifts, d, n_steps, n_resnets(m) * m->channels, e);
    if (status == UTTER_OK) {
        time_shifts(s, m, m->shifts, NULL);
        if ((status = stream_wait(s)) != UTTER_OK)
            error_set(e, status, "the flow's time embeddings: %s", utter_status_text(status));
    }
    stream_destroy(&s);
    return status;
}

void cfm_free(struct cfm *m)
{
    if (m->device) device_array_free(m->device, &m->shifts);
}

static void block(struct stream *s, const struct cfm_block *m, struct array out, struct array z)
{
    op_conv1d(s, out, z, m->conv, (struct conv_shape){.pad = 2}, (struct epilogue){0});
    op_layer_norm(s, out, out, m->norm.gain, m->norm.bias, NORM_EPS, ACT_MISH);
}

static void resnet(struct stream *s, const struct cfm_resnet *m, struct array out, struct array z, struct array shift)
{
    const size_t mark = stream_mark(s);
    struct array h = stream_array(s, z.rows, out.cols), h2 = stream_array(s, z.rows, out.cols);
    block(s, &m->block1, h, z);
    op_add(s, h, 1, h, 1, shift);
    block(s, &m->block2, h2, h);
    op_linear(s, out, z, m->res_conv, (struct epilogue){.residual = h2});
    stream_release(s, mark);
}

static void transformer(struct stream *s, const struct cfm_transformer *m, struct array z)
{
    const int inner = weight_out(m->to_q);
    const size_t mark = stream_mark(s);
    struct array h = stream_array(s, z.rows, z.cols), wide = stream_array(s, z.rows, weight_out(m->ff_in));
    struct array q = stream_array(s, z.rows, inner), k = stream_array(s, z.rows, inner);
    struct array v = stream_array(s, z.rows, inner), a = stream_array(s, z.rows, inner);
    op_layer_norm(s, h, z, m->norm1.gain, m->norm1.bias, NORM_EPS, ACT_NONE);
    op_linear(s, q, h, m->to_q, (struct epilogue){0});
    op_linear(s, k, h, m->to_k, (struct epilogue){0});
    op_linear(s, v, h, m->to_v, (struct epilogue){0});
    op_attention(s, a, q, k, v, inner / HEAD_DIM, 1.0f / 8);
    op_linear(s, z, a, m->to_out, (struct epilogue){.residual = z});
    op_layer_norm(s, h, z, m->norm3.gain, m->norm3.bias, NORM_EPS, ACT_NONE);
    op_linear(s, wide, h, m->ff_in, (struct epilogue){.act = ACT_GELU_ERF});
    op_linear(s, z, wide, m->ff_out, (struct epilogue){.residual = z});
    stream_release(s, mark);
}

/* out = transformers(resnet(z)) */
static void stage(struct stream *s, const struct cfm *m, const struct cfm_stage *g, struct array out, struct array z,
                  struct array shift, const struct observer *o, const char *name)
{
    resnet(s, &g->resnet, out, z, shift);
    observe(o, out, "%s.resnet", name);
    for (int i = 0; i < m->n_transformers; i++) {
        transformer(s, &g->transformers[i], out);
        observe(o, out, "%s.tfm.%d", name, i);
    }
}

/* v [T][n_mels] = dx/dt at `in`. shifts: the step's row of time_shifts. */
static void estimator(struct stream *s, const struct cfm *m, struct array v, struct array in, struct array shifts,
                      const struct observer *o)
{
    const int T = in.rows, channels = m->channels;
    const size_t mark = stream_mark(s);
    struct array x = stream_array(s, T, channels), y = stream_array(s, T, channels);
    struct array joined = stream_array(s, T, 2 * channels); /* [z, skip], the up stage's input */
    struct array z = array_cols(joined, 0, channels), skip = array_cols(joined, channels, channels);

    stage(s, m, &m->down, skip, in, array_cols(shifts, 0, channels), o, "down");
    op_conv1d(s, x, skip, m->down_conv, (struct conv_shape){.pad = 2}, (struct epilogue){0});
    for (int i = 0; i < m->n_mid && stream_status(s) == UTTER_OK; i++) {
        char name[16];
        snprintf(name, sizeof name, "mid.%d", i);
        struct array next = i == m->n_mid - 1 ? z : y;
        stage(s, m, &m->mid[i], next, x, array_cols(shifts, (i + 1) * channels, channels), o, name);
        y = x, x = next;
    }
    struct array up = stream_array(s, T, channels), last = stream_array(s, T, channels);
    stage(s, m, &m->up, up, joined, array_cols(shifts, (m->n_mid + 1) * channels, channels), o, "up");
    op_conv1d(s, last, up, m->up_conv, (struct conv_shape){.pad = 2}, (struct epilogue){0});
    block(s, &m->final_block, up, last);
    observe(o, up, "final_block");
    op_linear(s, v, up, m->final_proj, (struct epilogue){0});
    stream_release(s, mark);
}

/* ---- solver ------------------------------------------------------------------------------------------------------- */

void cfm_solve(struct stream *s, const struct cfm *m, struct array in, int n_steps, const struct observer *o)
{
    if (n_steps < 1 || n_steps > CFM_MAX_STEPS) {
        stream_fail(s, UTTER_INVALID_ARGUMENT);
        return;
    }
    const size_t mark = stream_mark(s);
    struct array x = array_cols(in, 0, m->n_mels);
    struct array v = stream_array(s, in.rows, m->n_mels), shifts = m->shifts;
    if (n_steps != shifts.rows || o) {
        shifts = stream_array(s, n_steps, n_resnets(m) * m->channels);
        time_shifts(s, m, shifts, o);
    }
    struct array blind = {0}, blind_v = {0}; /* guidance: the same x without mu, spk and cond */
    if (!cfm_is_meanflow(m)) {
        blind = stream_array(s, in.rows, in.cols);
        blind_v = stream_array(s, in.rows, m->n_mels);
        op_fill(s, blind, 0);
    }
    for (int k = 0; k < n_steps && stream_status(s) == UTTER_OK; k++) {
        const struct array now = array_rows(shifts, k, 1);
        observe(o, x, "x");
        estimator(s, m, v, in, now, o);
        observe(o, v, "dxdt");
        if (array_exists(blind)) {
            op_copy(s, array_cols(blind, 0, m->n_mels), x);
            estimator(s, m, blind_v, blind, now, o);
            observe(o, blind_v, "dxdt");
            op_add(s, v, 1 + GUIDANCE, v, -GUIDANCE, blind_v);
        }
        op_add(s, x, 1, x, cfm_time(m, k + 1, n_steps) - cfm_time(m, k, n_steps), v);
    }
    stream_release(s, mark);
}
