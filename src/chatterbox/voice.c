#include "chatterbox/voice.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "audio/features.h"
#include "audio/loudness.h"
#include "audio/resample.h"
#include "audio/silence.h"
#include "base/mem.h"
#include "base/rng.h"
#include "chatterbox/campplus.h"
#include "chatterbox/s3_tokenizer.h"
#include "chatterbox/voice_encoder.h"

enum { RATE_16K = 16000, FLOW_SECONDS = 10, TRIM_DB = 20 };
#define TURBO_LUFS (-27.0)

/* T3's prompt: specification section 4.1. */
static const struct {
    const char *name;
    int t3_seconds, max_t3_tokens;
    bool normalizes;
} rules_table[VOICE_N_RULES] = {
    [VOICE_TURBO] = {"turbo", 15, 375, true}, [VOICE_STANDARD] = {"standard", 6, 150, false}};

const char *voice_rules_name(enum voice_rules r)
{
    return rules_table[r].name;
}

enum voice_rules voice_rules_of(const char *variant)
{
    return !strcmp(variant, "english") || !strcmp(variant, "multilingual") ? VOICE_STANDARD : VOICE_TURBO;
}

void voice_free(struct voice *v)
{
    mem_free(v->notes.name);
    mem_free(v->notes.transcript);
    mem_free(v->notes.license);
    mem_free(v->notes.consent);
    mem_free(v->notes.source);
    for (int i = 0; i < VOICE_N_RULES; i++) conds_free(&v->conds[i]);
    mem_free(v->clip);
    *v = (struct voice){0};
}

const struct conds *voice_conds(const struct voice *v, enum voice_rules rules)
{
    const struct conds *c = &v->conds[v->fits_any ? 0 : rules];
    return c->n_prompt_tokens > 0 ? c : NULL;
}

/* ---- the networks --------------------------------------------------------------------------------------------------- */

struct listeners {
    struct voice_encoder *voice_encoder;
    struct campplus *campplus;
    struct s3_tokenizer *s3_tokenizer;
};

utter_status listeners_load(struct listeners **out, struct binder *b)
{
    struct listeners *l = *out = mem_calloc(1, sizeof *l);
    if (!l) return error_set(b->error, UTTER_OUT_OF_MEMORY, "no memory for the networks that listen");
    utter_status status = voice_encoder_load(&l->voice_encoder, b);
    if (status == UTTER_OK) status = campplus_load(&l->campplus, b);
    if (status == UTTER_OK) status = s3_tokenizer_load(&l->s3_tokenizer, b);
    if (status != UTTER_OK) listeners_free(out);
    return status;
}

void listeners_free(struct listeners **l)
{
    if (!*l) return;
    voice_encoder_free(&(*l)->voice_encoder);
    campplus_free(&(*l)->campplus);
    s3_tokenizer_free(&(*l)->s3_tokenizer);
    mem_free(*l);
    *l = NULL;
}

uint64_t listeners_fingerprint(const struct checkpoint *ck)
{
    enum { ENOUGH = 16384 };
    const struct tensor *t = checkpoint_find(ck, "s3gen.tokenizer.quantizer._codebook.project_down.weight");
    if (!t) t = checkpoint_find(ck, "s3gen.flow.input_embedding.weight");
    size_t n = t && dtype_is_float(t->type) ? tensor_count(t) / 32 * 32 : 0;
    if (n > ENOUGH) n = ENOUGH;
    uint64_t hash = FNV1A64_START;
    float part[32];
    for (size_t i = 0; i < n; i += 32) {
        unsigned char signs[32];
        tensor_read_f32(t, i, 32, part);
        for (int k = 0; k < 32; k++) signs[k] = part[k] < 0;
        hash = fnv1a64_bytes(hash, signs, 32);
    }
    return n ? hash : 0;
}

/* ---- listening ------------------------------------------------------------------------------------------------------- */

/* Everything between the clip and its conditionals. */
struct work {
    float *x24, *x16; /* the clip as loud as the model wants it, at 24 kHz, and all of it at 16 kHz (soxr) */
    float *flow16;    /* its first 10 s at 16 kHz, by the sinc that the flow's reference goes through */
    float *t3_mel, *flow_mel, *fbank, *speaker_mel;
    size_t n24, n16, n_flow24, n_flow16, n_t3_frames, n_flow_frames, n_fbank, n_speaker;
};

static void work_free(struct work *w)
{
    mem_free(w->x24);
    mem_free(w->x16);
    mem_free(w->flow16);
    mem_free(w->t3_mel);
    mem_free(w->flow_mel);
    mem_free(w->fbank);
    mem_free(w->speaker_mel);
}

static size_t at_most(size_t n, size_t limit)
{
    return n < limit ? n : limit;
}

static utter_status no_memory(struct error *e)
{
    return error_set(e, UTTER_OUT_OF_MEMORY, "no memory to make a voice");
}

static utter_status prepare_signals(struct work *w, const float *samples, size_t n, const struct listen_options *o,
                                    struct error *e)
{
    if (!(w->x24 = mem_alloc(n * sizeof *w->x24))) return no_memory(e);
    memcpy(w->x24, samples, n * sizeof *samples);
    w->n24 = n;
    utter_status status = UTTER_OK;
    if (rules_table[o->rules].normalizes)
        status = loudness_normalize(w->x24, n, VOICE_RATE, TURBO_LUFS, NULL, o->cancel, e);
    if (status == UTTER_OK) status = resample(&w->x16, &w->n16, w->x24, n, VOICE_RATE, RATE_16K, o->cancel, e);
    if (status != UTTER_OK) return status;
    w->n_flow24 = at_most(n, FLOW_SECONDS * VOICE_RATE);
    w->n_flow16 = resample_24k_to_16k_count(w->n_flow24);
    if (!(w->flow16 = mem_alloc(w->n_flow16 * sizeof *w->flow16))) return no_memory(e);
    resample_24k_to_16k(w->flow16, w->x24, w->n_flow24);
    return cancel_check(o->cancel, e);
}

/* One spectrogram into memory of its own. */
static utter_status feature(float **out, size_t *n_frames, size_t frames, size_t bands,
                            utter_status (*make)(float *, const float *, size_t, struct cancel *, struct error *),
                            const float *x, size_t n, struct cancel *cancel, struct error *e)
{
    *n_frames = frames;
    *out = mem_alloc((frames ? frames : 1) * bands * sizeof **out);
    return *out ? make(*out, x, n, cancel, e) : no_memory(e);
}

static utter_status prepare_features(struct work *w, struct conds *c, const struct listen_options *o, struct error *e)
{
    const size_t n_t3 = at_most(w->n16, (size_t)rules_table[o->rules].t3_seconds * RATE_16K);
    size_t begin, end, n_prompt = 0;
    utter_status s = feature(&w->t3_mel, &w->n_t3_frames, s3_log_mel_16k_frames(n_t3), S3_N_MELS, s3_log_mel_16k,
                             w->x16, n_t3, o->cancel, e);
    if (s == UTTER_OK)
        s = feature(&w->flow_mel, &w->n_flow_frames, s3_log_mel_16k_frames(w->n_flow16), S3_N_MELS, s3_log_mel_16k,
                    w->flow16, w->n_flow16, o->cancel, e);
    if (s == UTTER_OK)
        s = feature(&w->fbank, &w->n_fbank, kaldi_fbank_16k_frames(w->n_flow16), FBANK_BANDS, kaldi_fbank_16k,
                    w->flow16, w->n_flow16, o->cancel, e);
    if (s == UTTER_OK)
        s = feature(&c->prompt_mel, &n_prompt, prompt_mel_24k_frames(w->n_flow24), PROMPT_MEL_BANDS, prompt_mel_24k,
                    w->x24, w->n_flow24, o->cancel, e);
    silence_trim(w->x16, w->n16, TRIM_DB, &begin, &end);
    if (s == UTTER_OK && begin == end)
        s = error_set(e, UTTER_VOICE_UNUSABLE, "the clip is silent: there is no voice in it");
    if (s == UTTER_OK)
        s = feature(&w->speaker_mel, &w->n_speaker, voice_encoder_mel_16k_frames(end - begin), VOICE_ENCODER_N_MELS,
                    voice_encoder_mel_16k, w->x16 + begin, end - begin, o->cancel, e);
    c->n_prompt_frames = (int)n_prompt;
    return s;
}

/* Specification section 4.7: the mel decides, tokens are cut to fit it. */
static void align_lengths(struct conds *c)
{
    if (c->n_prompt_tokens > c->n_prompt_frames / 2) c->n_prompt_tokens = c->n_prompt_frames / 2;
}

static void hear_tokens(struct conds *c, const struct listeners *l, struct stream *s, const struct work *w,
                        enum voice_rules rules)
{
    const int t3_frames =
        (int)at_most(w->n_t3_frames, (size_t)S3_FRAMES_PER_TOKEN * (size_t)rules_table[rules].max_t3_tokens);
    const struct s3_request requests[2] = {{w->flow_mel, (int)w->n_flow_frames, NULL, NULL},
                                           {w->t3_mel, t3_frames, NULL, NULL}};
    struct s3_request r[2] = {requests[0], requests[1]};
    c->n_prompt_tokens = s3_tokens(r[0].n_frames);
    c->n_t3_tokens = s3_tokens(r[1].n_frames);
    r[0].tokens = c->prompt_tokens = mem_alloc((size_t)c->n_prompt_tokens * sizeof *c->prompt_tokens);
    r[1].tokens = c->t3_tokens = mem_alloc((size_t)c->n_t3_tokens * sizeof *c->t3_tokens);
    if (!r[0].tokens || !r[1].tokens)
        stream_fail(s, UTTER_OUT_OF_MEMORY);
    else
        s3_tokenize(s, l->s3_tokenizer, r, 2, NULL);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void tell(const struct listen_options *o, double share)
{
    if (o->progress) o->progress(o->user, share);
}

static utter_status hear(struct conds *c, const struct listeners *l, struct stream *s, struct work *w,
                         const struct listen_options *o, struct error *e)
{
    struct listen_times times = {0};
    const double start = now();
    stream_keep_exact(s,
                      true); /* in bf16 one token in forty is another one (docs/quality.md), and a voice is made once */
    hear_tokens(c, l, s, w, o->rules);
    const double after_tokens = now();
    if (stream_poll(s) == UTTER_OK) { /* what these do on the host does not stop by itself */
        tell(o, 0.8);
        campplus_subtract_mean(w->fbank, (int)w->n_fbank);
        campplus_embed(s, l->campplus, c->xvector, w->fbank, (int)w->n_fbank);
    }
    const double after_xvector = now();
    if (stream_poll(s) == UTTER_OK) {
        tell(o, 0.9);
        voice_encoder_embed(s, l->voice_encoder, c->speaker_emb, w->speaker_mel, (int)w->n_speaker, VE_STEP);
        tell(o, 1);
    }
    stream_keep_exact(s, false);
    times = (struct listen_times){0, after_tokens - start, after_xvector - after_tokens, now() - after_xvector};
    if (o->times) *o->times = times;
    c->emotion = 0.5f;
    align_lengths(c);
    const utter_status status = stream_status(s);
    return status == UTTER_OK ? UTTER_OK : error_set(e, status, "making a voice: %s", stream_error(s));
}

utter_status listen(struct conds *out, const struct listeners *l, struct stream *s, const float *samples, size_t n,
                    const struct listen_options *o, struct error *e)
{
    struct work w = {0};
    struct conds c = {0};
    const double start = now();
    *out = (struct conds){0};
    utter_status status =
        n >= VOICE_RATE
            ? UTTER_OK
            : error_set(e, UTTER_VOICE_UNUSABLE, "%.2f s of sound; a voice needs at least 1 s", (double)n / VOICE_RATE);
    if (status == UTTER_OK) status = prepare_signals(&w, samples, n, o, e);
    if (status == UTTER_OK) status = prepare_features(&w, &c, o, e);
    const double features = now() - start;
    tell(o, 0.05);
    if (status == UTTER_OK) status = hear(&c, l, s, &w, o, e);
    if (o->times) o->times->features = features;
    if (status == UTTER_OK) status = conds_check(&c, "the recording", e);
    work_free(&w);
    if (status == UTTER_OK)
        *out = c;
    else
        conds_free(&c);
    return status;
}
