/*
 * HiFT-GAN (Li et al., 2023) as CosyVoice 2 uses it: a source-filter vocoder that ends in an inverse STFT instead of its last
 * upsampling layers; specification section 2.10.
 *
 *     f0      5 x (conv3, ELU), linear, abs                mel [M][80] -> [M][1] Hz
 *     source  9 harmonics of f0, tanh(l_linear)            [480 M][1]; its 16-point STFT: S [120 M + 1][18]
 *
 *     x = conv_pre(mel)                                    [M][512]
 *     stage i = 0, 1, 2: x 8, x 5, x 3                     [8 M][256], [40 M][128], [120 M + 1][64]
 *       x = ups[i](lrelu 0.1(x))                           stage 2: one more row in front, the mirror image of row 1
 *       x += source_resblocks[i](source_downs[i](S))
 *       x = mean of resblocks[3 i .. 3 i + 2](x)           kernels 3, 7, 11
 *     conv_post(lrelu 0.01(x))                             [120 M + 1][18]: log magnitude, phase
 *     inverse STFT                                         [480 M][1]
 *
 *     resblock(x): for dilations 1, 3, 5: x += conv(snake(conv_dilated(snake(x))))
 */
#include "chatterbox/hift.h"

static const int UP[HIFT_STAGES] = {8, 5, 3}, UP_KERNEL[HIFT_STAGES] = {16, 11, 7};
static const int RATE[HIFT_STAGES] = {8, 40, 120}; /* rows a frame after stage i */
static const int DOWN[HIFT_STAGES] = {15, 3, 1}, DOWN_KERNEL[HIFT_STAGES] = {30, 6, 1},
                 DOWN_PAD[HIFT_STAGES] = {7, 1, 0};
static const int SOURCE_KERNEL[HIFT_STAGES] = {7, 7, 11}, KERNEL[3] = {3, 7, 11}, DILATION[3] = {1, 3, 5};

/* Frames at either side that the kept frames depend on through stage i and what follows. A resblock of kernel k reaches
 * 6 (k - 1) rows: 60 for the widest and 36 or 60 for the source's; the convolutions around them add a few:
 *   stage 2: 60 + 60 + conv_post 3 + inverse STFT 2 + edges 2 = 127 rows of 120 a frame      -> 2 frames
 *   stage 1: 36 + 60 + source_downs 2 + edges 2                = 100 rows of 40               -> 3 more
 *   stage 0: 36 + 60 + source_downs 1 + edges 2                =  99 rows of 8                -> 13 more
 * and conv_pre 3 more: HIFT_LEFT. To the right, the pitch of the last of them needs HIFT_F0_CONTEXT frames, 2 more than
 * conv_pre: HIFT_RIGHT. */
static const int REACH[HIFT_STAGES] = {18, 5, 2};

/* ---- weights ------------------------------------------------------------------------------------------------------ */

#define VOCODER "s3gen.mel2wav."

static void load_resblock(struct hift_resblock *m, struct binder *b, int channels, int kernel, const char *list, int i)
{
    m->kernel = kernel;
    for (int j = 0; j < 3; j++) {
        m->convs1[j] = bind_conv1d(b, channels, channels, kernel, BIAS_REQUIRED, VOCODER "%s.%d.convs1.%d", list, i, j);
        m->convs2[j] = bind_conv1d(b, channels, channels, kernel, BIAS_REQUIRED, VOCODER "%s.%d.convs2.%d", list, i, j);
        m->alpha1[j] = bind_vector(b, channels, VOCODER "%s.%d.activations1.%d.alpha", list, i, j);
        m->alpha2[j] = bind_vector(b, channels, VOCODER "%s.%d.activations2.%d.alpha", list, i, j);
    }
}

void hift_load(struct hift *m, struct binder *b, int n_mels)
{
    const int channels = bind_dim(b, 0, VOCODER "conv_pre.bias"),
              f0_channels = bind_dim(b, 0, VOCODER "f0_predictor.condnet.0.bias");
    *m = (struct hift){.n_mels = n_mels, .channels = channels};
    if (b->status == UTTER_OK && channels % 8)
        b->status = error_set(b->error, UTTER_MODEL_DAMAGED, "%s: conv_pre has %d channels, not a multiple of 8",
                              checkpoint_path(b->checkpoint), channels);
    for (int i = 0; i < 5; i++)
        m->f0_convs[i] = bind_conv1d(b, f0_channels, i ? f0_channels : n_mels, 3, BIAS_REQUIRED,
                                     VOCODER "f0_predictor.condnet.%d", 2 * i);
    m->f0_classifier = bind_linear(b, 1, f0_channels, BIAS_REQUIRED, VOCODER "f0_predictor.classifier");
    m->source_mix = bind_matrix(b, 1, HIFT_HARMONICS, VOCODER "m_source.l_linear.weight");
    m->source_mix_bias = bind_vector(b, 1, VOCODER "m_source.l_linear.bias");

    m->conv_pre = bind_conv1d(b, channels, n_mels, 7, BIAS_REQUIRED, VOCODER "conv_pre");
    for (int i = 0, c = channels; i < HIFT_STAGES; i++, c /= 2) {
        m->ups[i] = bind_conv_transpose1d(b, c, c / 2, UP_KERNEL[i], BIAS_REQUIRED, VOCODER "ups.%d", i);
        m->source_downs[i] = bind_conv1d(b, c / 2, 18, DOWN_KERNEL[i], BIAS_REQUIRED, VOCODER "source_downs.%d", i);
        load_resblock(&m->source_resblocks[i], b, c / 2, SOURCE_KERNEL[i], "source_resblocks", i);
        for (int j = 0; j < 3; j++)
            load_resblock(&m->resblocks[3 * i + j], b, c / 2, KERNEL[j], "resblocks", 3 * i + j);
    }
    m->conv_post = bind_conv1d(b, 18, channels >> HIFT_STAGES, 7, BIAS_REQUIRED, VOCODER "conv_post");
}

/* ---- pitch and source --------------------------------------------------------------------------------------------- */

void hift_f0(struct stream *s, const struct hift *m, struct array f0, struct array mel)
{
    const size_t mark = stream_mark(s);
    struct array x = stream_array(s, mel.rows, weight_out(m->f0_convs[0])), y = stream_array(s, x.rows, x.cols);
    op_conv1d(s, x, mel, m->f0_convs[0], (struct conv_shape){.pad = 1}, (struct epilogue){.act = ACT_ELU, .exact = true});
    for (int i = 1; i < 5; i++) {
        op_conv1d(s, y, x, m->f0_convs[i], (struct conv_shape){.pad = 1}, (struct epilogue){.act = ACT_ELU, .exact = true});
        struct array t = x;
        x = y, y = t;
    }
    op_linear(s, f0, x, m->f0_classifier, (struct epilogue){.act = ACT_ABS, .exact = true});
    stream_release(s, mark);
}

void hift_source(struct stream *s, const struct hift *m, struct array out, struct array f0, struct source_params p)
{
    p.hop = HIFT_HOP;
    p.n_harmonics = HIFT_HARMONICS;
    p.sample_rate = 24000;
    p.mix = m->source_mix;
    p.mix_bias = m->source_mix_bias;
    op_sine_source(s, out, f0, &p);
}

/* ---- decoder ------------------------------------------------------------------------------------------------------ */

/* out may be x. */
static void resblock(struct stream *s, const struct hift_resblock *m, struct array out, struct array x)
{
    const size_t mark = stream_mark(s);
    struct array h = stream_array(s, x.rows, x.cols), h2 = stream_array(s, x.rows, x.cols);
    for (int j = 0; j < 3; j++) {
        const struct conv_shape dilated = {.dilation = DILATION[j], .pad = DILATION[j] * (m->kernel - 1) / 2};
        const struct conv_shape dense = {.pad = (m->kernel - 1) / 2};
        op_snake(s, h, x, m->alpha1[j]);
        op_conv1d(s, h2, h, m->convs1[j], dilated, (struct epilogue){.snake_alpha = m->alpha2[j]});
        op_conv1d(s, out, h2, m->convs2[j], dense, (struct epilogue){.residual = x});
        x = out;
    }
    stream_release(s, mark);
}

/* out = ups[i](lrelu(x)) + source. At stage 2, out has one more row, in front. */
static void upsample(struct stream *s, const struct hift *m, int i, struct array out, struct array x,
                     const struct observer *o)
{
    const bool last = i == HIFT_STAGES - 1;
    struct array body = last ? array_rows(out, 1, out.rows - 1) : out;
    op_activate(s, x, x, ACT_LEAKY_RELU, 0.1f);
    op_conv_transpose1d(s, body, x, m->ups[i], UP[i], (UP_KERNEL[i] - UP[i]) / 2, (struct epilogue){0});
    observe(o, body, "ups.%d", i);
    if (last) op_copy(s, array_rows(out, 0, 1), array_rows(out, 2, 1)); /* reflection */
}

/* out = stage i of x; S: the source's spectrum from the window's first frame on. */
static void stage(struct stream *s, const struct hift *m, int i, struct array out, struct array x, struct array S,
                  const struct observer *o)
{
    const size_t mark = stream_mark(s);
    struct array y = stream_array(s, out.rows, out.cols), h = stream_array(s, out.rows, out.cols);
    upsample(s, m, i, y, x, o);
    op_conv1d(s, h, S, m->source_downs[i], (struct conv_shape){.stride = DOWN[i], .pad = DOWN_PAD[i]},
              (struct epilogue){0});
    resblock(s, &m->source_resblocks[i], h, h);
    observe(o, h, "source_resblocks.%d", i);
    op_add(s, y, 1, y, 1, h);
    for (int j = 0; j < 3; j++) {
        resblock(s, &m->resblocks[3 * i + j], h, y);
        observe(o, h, "resblocks.%d", 3 * i + j);
        op_add(s, out, 1.0f / 3, h, 1, j ? out : (struct array){0});
    }
    stream_release(s, mark);
}

/* Frames of a window that matter at stage i. */
struct span {
    int first, n;
};

static struct span reach(const struct hift_window *w, int frames, int i)
{
    const int first = w->first - REACH[i] > 0 ? w->first - REACH[i] : 0;
    const int end = w->first + w->n + REACH[i] < frames ? w->first + w->n + REACH[i] : frames;
    return (struct span){first, end - first};
}

void hift_decode(struct stream *s, const struct hift *m, struct array out, struct array mel, struct array source,
                 struct hift_window w, const struct observer *o)
{
    const size_t mark = stream_mark(s);
    struct array S = stream_array(s, 120 * mel.rows + 1, 18), x = stream_array(s, mel.rows, m->channels);
    op_stft16(s, S, source);
    observe(o, S, "stft");
    op_conv1d(s, x, mel, m->conv_pre, (struct conv_shape){.pad = 3}, (struct epilogue){0});
    observe(o, x, "conv_pre");

    struct span now = {0, mel.rows}; /* the frames that x covers */
    int rate = 1;
    for (int i = 0; i < HIFT_STAGES; i++) {
        const struct span next = reach(&w, mel.rows, i);
        const int extra = i == HIFT_STAGES - 1;
        struct array y = stream_array(s, next.n * RATE[i] + extra, m->channels >> (i + 1));
        stage(s, m, i, y, array_rows(x, (next.first - now.first) * rate, next.n * rate),
              array_rows(S, 120 * next.first, 120 * next.n + 1), o);
        x = y, now = next, rate = RATE[i];
    }

    struct array spectrum = stream_array(s, x.rows, 18), samples = stream_array(s, HIFT_HOP * now.n, 1);
    op_activate(s, x, x, ACT_LEAKY_RELU, 0.01f);
    op_conv1d(s, spectrum, x, m->conv_post, (struct conv_shape){.pad = 3}, (struct epilogue){.exact = true});
    observe(o, spectrum, "conv_post");
    op_istft16(s, samples, spectrum, 0.99f);
    op_copy(s, out, array_rows(samples, HIFT_HOP * (w.first - now.first), HIFT_HOP * w.n));
    stream_release(s, mark);
}
