/*
 * CAMPPlus: context-aware masking in a densely connected time-delay network (Wang et al., 2023, arXiv:2303.00332), as
 * 3D-Speaker and CosyVoice publish it. T frames of 80 bands become one vector.
 *
 *     head     image [T][80 bands][1]: conv 3x3 -> 32, two residual pairs with stride (2, 1) in frequency, one more
 *              strided conv: [T][10 bands][32] = [T][320]
 *     tdnn     conv k 5, stride 2                                  [T2][128], T2 = (T - 1) / 2 + 1
 *     block1   12 dense layers, dilation 1        128 ->  512      transit1   512 -> 256
 *     block2   24 dense layers, dilation 2        256 -> 1024      transit2  1024 -> 512
 *     block3   16 dense layers, dilation 2        512 -> 1024      transit3  1024 -> 512
 *     dense layer   z = ReLU(BN(linear1(ReLU(BN(x)))))             [T2][128]
 *                   y = conv k 3 (z)                               [T2][32]
 *                   mask = sigmoid(linear2(ReLU(linear1(mean(z) + mean of z's segment of 100 frames))))
 *                   x grows by y * mask
 *     out      ReLU(BN), mean and deviation over time [1024], linear, BN without affine -> [192]
 *
 * Every batch norm that follows a convolution is folded into it at load; those in front of one stay ops.
 *
 * An image is an array [T][(F + 2) * 32]: bands side by side with one empty band at either edge, so that the 3x3
 * convolution of one band is a conv1d over time whose input is a column view of three neighbouring bands.
 */
#include "chatterbox/campplus.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum {
    CHANNELS = 32,
    GROWTH = 32,
    BOTTLENECK = 128,
    TDNN = 128,
    SEGMENT = 100,
    N_BLOCKS = 3,
    MAX_LAYERS = 64,
    BANDS_OUT = 10
};
#define BN_EPS 1e-5f
#define ROOT   "s3gen.speaker_encoder."

struct residual {
    struct weight *conv1, *conv2;
    struct weight *shortcut; /* NULL: identity */
};

struct norm {
    struct array scale, shift;
};

struct dense_layer {
    struct norm norm;
    struct weight *linear1, *local, *context1, *context2;
};

struct campplus {
    struct weight *conv1, *conv2, *tdnn, *dense;
    struct residual residual[2][2];
    struct block {
        int n_layers, dilation, channels; /* channels: at its input */
        struct dense_layer layer[MAX_LAYERS];
        struct norm transit_norm;
        struct weight *transit; /* halves the channels */
    } block[N_BLOCKS];
    struct norm out_norm;
};

/* ---- weights ------------------------------------------------------------------------------------------------------ */

/* A bias-free convolution with the batch norm behind it: w * scale, and shift as its bias. in: inputs of one tap. The taps of
 * `raw` are already in front ([k][out][in]). */
static struct weight *fold_norm(struct binder *b, float *values, int k, int out, int in, bool affine, const char *norm)
{
    float *scale = mem_calloc((size_t)out, 2 * sizeof *scale);
    struct weight *w = NULL;
    if (!values || !scale)
        bind_fail_memory(b, norm);
    else if (bind_batch_norm_values(b, scale, scale + out, out, BN_EPS, affine, "%s", norm)) {
        for (int i = 0; i < k * out * in; i++) values[i] *= scale[i / in % out];
        w = bind_computed(b, WEIGHT_CONV1D, k, out, in, values, scale + out);
        values = NULL; /* the binder's now */
    }
    mem_free(values);
    mem_free(scale);
    return w;
}

static struct weight *conv1d_norm(struct binder *b, int out, int in, bool affine, const char *layer, const char *norm)
{
    float *values = bind_values(b, 3, (const int64_t[]){out, in, 1}, "%s", layer);
    return values ? fold_norm(b, values, 1, out, in, affine, norm) : NULL;
}

/* The published kernel takes its input channel-major (c * 10 + band); ours is band-major, as the head leaves it. */
static struct weight *tdnn_norm(struct binder *b)
{
    enum { TAPS = 5, IN = CHANNELS * BANDS_OUT };
    float row[IN];
    float *values = bind_values(b, 3, (const int64_t[]){TDNN, IN, TAPS}, ROOT "xvector.tdnn.linear");
    for (int r = 0; values && r < TAPS * TDNN; r++) {
        float *to = values + (size_t)r * IN;
        memcpy(row, to, sizeof row);
        for (int i = 0; i < IN; i++) to[i % BANDS_OUT * CHANNELS + i / BANDS_OUT] = row[i];
    }
    return values ? fold_norm(b, values, TAPS, TDNN, IN, true, ROOT "xvector.tdnn.nonlinear.batchnorm") : NULL;
}

/* A 2-d kernel [out][in][k bands][k frames] as k taps over time of [out][k bands][in]. */
static struct weight *conv2d_norm(struct binder *b, int k, int in, const char *layer, const char *norm)
{
    float *kernel = bind_values(b, 4, (const int64_t[]){CHANNELS, in, k, k}, "%s", layer);
    const size_t n = (size_t)CHANNELS * (size_t)(in * k * k);
    float *values = kernel ? mem_alloc_aligned(n * sizeof *values) : NULL;
    if (!values) {
        if (kernel) bind_fail_memory(b, layer);
        mem_free(kernel);
        return NULL;
    }
    float *to = values;
    for (int time = 0; time < k; time++)
        for (int o = 0; o < CHANNELS; o++)
            for (int band = 0; band < k; band++)
                for (int i = 0; i < in; i++) *to++ = kernel[((o * in + i) * k + band) * k + time];
    mem_free(kernel);
    return fold_norm(b, values, k, CHANNELS, in * k, true, norm);
}

static void load_head(struct campplus *m, struct binder *b)
{
    m->conv1 = conv2d_norm(b, 3, 1, ROOT "head.conv1", ROOT "head.bn1");
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < 2; i++) {
            struct residual *r = &m->residual[l][i];
            char layer[96], norm[96];
#define NAMES(a, n)                                                                                                    \
    (snprintf(layer, sizeof layer, ROOT "head.layer%d.%d." a, l + 1, i),                                               \
     snprintf(norm, sizeof norm, ROOT "head.layer%d.%d." n, l + 1, i))
            NAMES("conv1", "bn1");
            r->conv1 = conv2d_norm(b, 3, CHANNELS, layer, norm);
            NAMES("conv2", "bn2");
            r->conv2 = conv2d_norm(b, 3, CHANNELS, layer, norm);
            NAMES("shortcut.0", "shortcut.1");
            if (i == 0) r->shortcut = conv2d_norm(b, 1, CHANNELS, layer, norm);
#undef NAMES
        }
    m->conv2 = conv2d_norm(b, 3, CHANNELS, ROOT "head.conv2", ROOT "head.bn2");
}

static void load_dense_layer(struct dense_layer *d, struct binder *b, int channels, const char *prefix)
{
    char layer[96], norm[112];
    bind_batch_norm(b, &d->norm.scale, &d->norm.shift, channels, BN_EPS, true, "%s.nonlinear1.batchnorm", prefix);
    snprintf(layer, sizeof layer, "%s.linear1", prefix);
    snprintf(norm, sizeof norm, "%s.nonlinear2.batchnorm", prefix);
    d->linear1 = conv1d_norm(b, BOTTLENECK, channels, true, layer, norm);
    d->local = bind_conv1d(b, GROWTH, BOTTLENECK, 3, BIAS_NONE, "%s.cam_layer.linear_local", prefix);
    d->context1 = bind_conv1d(b, BOTTLENECK / 2, BOTTLENECK, 1, BIAS_REQUIRED, "%s.cam_layer.linear1", prefix);
    d->context2 = bind_conv1d(b, GROWTH, BOTTLENECK / 2, 1, BIAS_REQUIRED, "%s.cam_layer.linear2", prefix);
}

static int load_block(struct campplus *m, struct binder *b, int index, int channels)
{
    struct block *block = &m->block[index];
    char prefix[80];
    block->dilation = index == 0 ? 1 : 2;
    block->channels = channels;
    for (int l = 0; l < MAX_LAYERS; l++) {
        snprintf(prefix, sizeof prefix, ROOT "xvector.block%d.tdnnd%d", index + 1, l + 1);
        if (!bind_has(b, "%s.linear1.weight", prefix)) break;
        load_dense_layer(&block->layer[l], b, channels, prefix);
        channels += GROWTH;
        block->n_layers++;
    }
    bind_batch_norm(b, &block->transit_norm.scale, &block->transit_norm.shift, channels, BN_EPS, true,
                    ROOT "xvector.transit%d.nonlinear.batchnorm", index + 1);
    block->transit = bind_conv1d(b, channels / 2, channels, 1, BIAS_NONE, ROOT "xvector.transit%d.linear", index + 1);
    return channels / 2;
}

utter_status campplus_load(struct campplus **out, struct binder *b)
{
    struct campplus *m = *out = mem_calloc(1, sizeof *m);
    if (!m) return error_set(b->error, UTTER_OUT_OF_MEMORY, "no memory for CAMPPlus");
    load_head(m, b);
    m->tdnn = tdnn_norm(b);
    int channels = TDNN;
    for (int i = 0; i < N_BLOCKS; i++) channels = load_block(m, b, i, channels);
    bind_batch_norm(b, &m->out_norm.scale, &m->out_norm.shift, channels, BN_EPS, true,
                    ROOT "xvector.out_nonlinear.batchnorm");
    m->dense = conv1d_norm(b, CAMPPLUS_SIZE, 2 * channels, false, ROOT "xvector.dense.linear",
                           ROOT "xvector.dense.nonlinear.batchnorm");
    if (binder_status(b) != UTTER_OK) campplus_free(out);
    return binder_status(b);
}

void campplus_free(struct campplus **m)
{
    mem_free(*m);
    *m = NULL;
}

/* ---- forward ------------------------------------------------------------------------------------------------------ */

struct image {
    struct array data; /* [T][(n_bands + 2) * channels] */
    int n_bands, channels;
};

/* Bands [first, first + n); -1 is the empty one below, n_bands the one above. */
static struct array bands(struct image i, int first, int n)
{
    return array_cols(i.data, (first + 1) * i.channels, n * i.channels);
}

static struct image image_create(struct stream *s, int n_frames, int n_bands, int channels)
{
    const struct image i = {stream_array(s, n_frames, (n_bands + 2) * channels), n_bands, channels};
    op_fill(s, bands(i, -1, 1), 0);
    op_fill(s, bands(i, n_bands, 1), 0);
    return i;
}

/* Every band of `out` reads k bands of x around the same place. add: an image like `out` that is added, or NULL. */
static void conv2d(struct stream *s, struct image out, struct image x, const struct weight *w, const struct image *add,
                   enum activation act)
{
    const int k = weight_taps(w), stride = x.n_bands / out.n_bands;
    for (int f = 0; f < out.n_bands; f++)
        op_conv1d(s, bands(out, f, 1), bands(x, f * stride - k / 2, k), w, (struct conv_shape){.pad = k / 2},
                  (struct epilogue){.act = act, .residual = add ? bands(*add, f, 1) : (struct array){0}});
}

static struct image residual_pair(struct stream *s, const struct residual *r, struct image x, int stride)
{
    const int T = x.data.rows, n_bands = x.n_bands / stride;
    const struct image inner = image_create(s, T, n_bands, CHANNELS), out = image_create(s, T, n_bands, CHANNELS);
    struct image shortcut = x;
    conv2d(s, inner, x, r->conv1, NULL, ACT_RELU);
    if (r->shortcut) {
        shortcut = image_create(s, T, n_bands, CHANNELS);
        conv2d(s, shortcut, x, r->shortcut, NULL, ACT_NONE);
    }
    conv2d(s, out, inner, r->conv2, &shortcut, ACT_NONE);
    op_activate(s, out.data, out.data, ACT_RELU, 0); /* the empty bands stay empty */
    return out;
}

/* [T][320]: column band * 32 + channel. */
static struct array head(struct stream *s, const struct campplus *m, const float *fbank, int T)
{
    struct image x = image_create(s, T, CAMPPLUS_BANDS, 1);
    stream_write(s, bands(x, 0, CAMPPLUS_BANDS), fbank);
    struct image y = image_create(s, T, CAMPPLUS_BANDS, CHANNELS);
    conv2d(s, y, x, m->conv1, NULL, ACT_RELU);
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < 2; i++) y = residual_pair(s, &m->residual[l][i], y, i == 0 ? 2 : 1);
    struct image z = image_create(s, T, BANDS_OUT, CHANNELS);
    conv2d(s, z, y, m->conv2, NULL, ACT_RELU);
    return bands(z, 0, BANDS_OUT);
}

/* x: [T][channels], the new GROWTH columns go to `out`. */
static void dense_layer(struct stream *s, const struct dense_layer *d, struct array out, struct array x, int dilation)
{
    const size_t mark = stream_mark(s);
    const int T = x.rows, n_segments = (T + SEGMENT - 1) / SEGMENT;
    struct array normed = stream_array(s, T, x.cols), z = stream_array(s, T, BOTTLENECK);
    struct array whole = stream_array(s, 1, BOTTLENECK), context = stream_array(s, n_segments, BOTTLENECK);
    struct array inner = stream_array(s, n_segments, BOTTLENECK / 2), mask = stream_array(s, n_segments, GROWTH);
    op_scale_shift(s, normed, x, d->norm.scale, d->norm.shift, ACT_RELU);
    op_linear(s, z, normed, d->linear1, (struct epilogue){.act = ACT_RELU});
    op_conv1d(s, out, z, d->local, (struct conv_shape){.dilation = dilation, .pad = dilation}, (struct epilogue){0});
    op_segment_mean(s, whole, z, T);
    op_segment_mean(s, context, z, SEGMENT);
    op_add(s, context, 1, context, 1, whole);
    op_linear(s, inner, context, d->context1, (struct epilogue){.act = ACT_RELU});
    op_linear(s, mask, inner, d->context2, (struct epilogue){.act = ACT_SIGMOID});
    op_segment_gate(s, out, out, mask, SEGMENT);
    stream_release(s, mark);
}

/* x: the block's input, in the first columns of an array wide enough for all that the layers add. */
static void dense_block(struct stream *s, const struct block *block, struct array wide)
{
    int channels = block->channels;
    for (int l = 0; l < block->n_layers; l++, channels += GROWTH)
        dense_layer(s, &block->layer[l], array_cols(wide, channels, GROWTH), array_cols(wide, 0, channels),
                    block->dilation);
}

static int block_channels(const struct block *block)
{
    return block->channels + block->n_layers * GROWTH;
}

void campplus_embed(struct stream *s, const struct campplus *m, float *out, const float *fbank, int T)
{
    const size_t mark = stream_mark(s);
    if (T < CAMPPLUS_MIN_FRAMES) stream_fail(s, UTTER_INVALID_ARGUMENT);
    const int T2 = (T - 1) / 2 + 1;
    struct array x = head(s, m, fbank, T);
    struct array wide = stream_array(s, T2, block_channels(&m->block[0]));
    op_conv1d(s, array_cols(wide, 0, TDNN), x, m->tdnn, (struct conv_shape){.stride = 2, .pad = 2},
              (struct epilogue){.act = ACT_RELU});
    for (int i = 0; i < N_BLOCKS; i++) {
        const struct block *block = &m->block[i];
        const int next = i + 1 < N_BLOCKS ? block_channels(&m->block[i + 1]) : wide.cols / 2;
        dense_block(s, block, wide);
        struct array halved = stream_array(s, T2, next);
        op_scale_shift(s, wide, wide, block->transit_norm.scale, block->transit_norm.shift, ACT_RELU);
        op_linear(s, array_cols(halved, 0, wide.cols / 2), wide, block->transit, (struct epilogue){0});
        wide = halved;
    }
    struct array statistics = stream_array(s, 1, 2 * wide.cols), vector = stream_array(s, 1, CAMPPLUS_SIZE);
    op_scale_shift(s, wide, wide, m->out_norm.scale, m->out_norm.shift, ACT_RELU);
    op_mean_std(s, statistics, wide);
    op_linear(s, vector, statistics, m->dense, (struct epilogue){0});
    stream_read(s, out, vector);
    stream_release(s, mark);
}

void campplus_subtract_mean(float *fbank, int n_frames)
{
    for (int b = 0; b < CAMPPLUS_BANDS; b++) {
        double mean = 0;
        for (int t = 0; t < n_frames; t++) mean += (double)fbank[(size_t)t * CAMPPLUS_BANDS + (size_t)b];
        mean /= n_frames;
        for (int t = 0; t < n_frames; t++) fbank[(size_t)t * CAMPPLUS_BANDS + (size_t)b] -= (float)mean;
    }
}
