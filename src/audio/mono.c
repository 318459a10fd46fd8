#include "audio/mono.h"

#include <math.h>
#include <string.h>

#include "audio/resample.h"
#include "base/mem.h"

/* Samples of all channels at once; bounds memory whatever the number of channels. */
enum { BUFFER_SAMPLES = 1 << 14, CLIP_RUN = 3 };
#define CLIP_LEVEL 0.985f

struct mono {
    struct source *source;
    int channel, n_channels;
    struct resampler *resampler; /* NULL: the source is at 24 kHz already */
    float *interleaved, *mixed;  /* [block][channels], [block] */
    size_t block, n_mixed, taken;
    bool ended;
    int64_t n_given;
    int *clip_run; /* [channels] */
    struct mono_watch watch;
};

void mono_close(struct mono **mono)
{
    struct mono *m = *mono;
    if (!m) return;
    resampler_destroy(&m->resampler);
    mem_free(m->interleaved);
    mem_free(m->mixed);
    mem_free(m->clip_run);
    mem_free(m);
    *mono = NULL;
}

utter_status mono_open(struct mono **out, struct source *s, int64_t first_frame, int channel, struct error *e)
{
    const struct source_info *info = source_info(s);
    struct mono *m = *out = mem_calloc(1, sizeof *m);
    if (!m) return error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory", source_name(s));
    m->source = s;
    m->channel = channel;
    m->n_channels = info->n_channels;
    m->block = (size_t)(BUFFER_SAMPLES / m->n_channels);
    m->interleaved = mem_alloc(m->block * (size_t)m->n_channels * sizeof *m->interleaved);
    m->mixed = mem_alloc(m->block * sizeof *m->mixed);
    m->clip_run = mem_calloc((size_t)m->n_channels, sizeof *m->clip_run);
    utter_status status = UTTER_OK;
    if (!m->interleaved || !m->mixed || !m->clip_run)
        status = error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory", source_name(s));
    if (status == UTTER_OK && info->rate_hz != MONO_RATE)
        status = resampler_create(&m->resampler, info->rate_hz, MONO_RATE, e);
    if (status == UTTER_OK) status = source_seek(s, first_frame, e);
    if (status != UTTER_OK) mono_close(out);
    return status;
}

const struct mono_watch *mono_watch(const struct mono *m)
{
    return &m->watch;
}

static void look_at_frame(struct mono *m, const float *frame)
{
    bool clipped = false;
    double power = 0, sum = 0;
    for (int c = 0; c < m->n_channels; c++) {
        const float magnitude = fabsf(frame[c]);
        m->watch.peak = fmaxf(m->watch.peak, magnitude);
        m->clip_run[c] = magnitude >= CLIP_LEVEL ? m->clip_run[c] + 1 : 0;
        if (m->clip_run[c] == CLIP_RUN) m->watch.n_clipped += CLIP_RUN - 1;
        clipped = clipped || m->clip_run[c] >= CLIP_RUN;
        power += (double)frame[c] * (double)frame[c];
        sum += (double)frame[c];
    }
    m->watch.n_clipped += clipped;
    m->watch.channel_power += power / m->n_channels;
    m->watch.mean_power += sum / m->n_channels * (sum / m->n_channels);
}

/* Fills `mixed`. Sums in float and in order, as numpy's mean of float32 does. */
static utter_status mix_block(struct mono *m, struct error *e)
{
    size_t n = 0;
    const utter_status status = source_read(m->source, m->interleaved, m->block, &n, e);
    if (status != UTTER_OK) return status;
    for (size_t i = 0; i < n; i++) {
        const float *frame = m->interleaved + i * (size_t)m->n_channels;
        look_at_frame(m, frame);
        float sum = 0;
        for (int c = 0; c < m->n_channels; c++) sum += frame[c];
        m->mixed[i] = m->channel == MONO_MEAN ? sum / (float)m->n_channels : frame[m->channel];
    }
    m->watch.n_frames += (int64_t)n;
    m->n_mixed = n;
    m->taken = 0;
    m->ended = n == 0;
    return UTTER_OK;
}

/* librosa makes a resampled signal as long as the next whole sample; libsoxr may leave the last one out. */
static size_t pad_end(const struct mono *m, float *samples, size_t max)
{
    const int64_t rate = source_info(m->source)->rate_hz;
    const int64_t missing = (m->watch.n_frames * MONO_RATE + rate - 1) / rate - m->n_given;
    const size_t n = missing <= 0 ? 0 : (size_t)missing < max ? (size_t)missing : max;
    memset(samples, 0, n * sizeof *samples);
    return n;
}

utter_status mono_read(struct mono *m, float *samples, size_t max, size_t *n, struct error *e)
{
    *n = 0;
    while (*n == 0) {
        if (m->taken == m->n_mixed && !m->ended) {
            const utter_status status = mix_block(m, e);
            if (status != UTTER_OK) return status;
        }
        const size_t ready = m->n_mixed - m->taken;
        if (!m->resampler) {
            *n = ready < max ? ready : max;
            memcpy(samples, m->mixed + m->taken, *n * sizeof *samples);
            m->taken += *n;
        } else {
            size_t used = 0;
            const long got =
                resampler_run(m->resampler, m->ended ? NULL : m->mixed + m->taken, ready, &used, samples, max);
            if (got < 0) return error_set(e, UTTER_ENGINE, "%s: resampling failed", source_name(m->source));
            m->taken += used;
            *n = (size_t)got;
        }
        if (m->ended && *n == 0) {
            *n = pad_end(m, samples, max);
            break;
        }
    }
    m->n_given += (int64_t)*n;
    return UTTER_OK;
}
