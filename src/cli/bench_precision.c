/*
 * bench_precision.c - how far the fast mode is from f32: every network on both, given the same inputs (those of the f32 side), and
 * then one after the other as an utterance has them.
 *
 * Speech tokens come from the model itself, drawn in f32; where a model has no voice of its own, one is made up.
 */
#include "cli/bench.h"

#include <math.h>
#include <string.h>

#include "audio/features.h"
#include "base/mem.h"
#include "chatterbox/cfm.h"
#include "chatterbox/generate.h"
#include "chatterbox/hift.h"
#include "chatterbox/s3gen.h"
#include "chatterbox/t3_gpt2.h"
#include "chatterbox/voice.h"
#include "checkpoint/checkpoint.h"
#include "text/punc_norm.h"
#include "text/tokenizer.h"

enum { MAX_TOKENS = 200 };
#define TEXT "The quick brown fox jumps over the lazy dog, and the rain in Spain stays mainly in the plain."

/* One precision. */
struct side {
    struct device *device;
    struct stream *stream;
    struct bench_model model;
    struct t3_gpt2_state *t3;
    float *flow_in; /* [rows][320]: what the solver starts from, x, mu, spk, cond */
    float *mel;     /* [frames][80] */
    float *wave;    /* [480 frames] */
};

struct comparison {
    struct bench *bench;
    struct side f32, fast;
    struct conds voice;
    int32_t *text;
    size_t n_text;
    struct generation *generation;
    int rows, frames;
};

/* ---- figures ----------------------------------------------------------------------------------------------------------- */

static double cosine(const float *a, const float *b, size_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return ab / sqrt(aa * bb);
}

static double signal_to_error(const float *a, const float *b, size_t n)
{
    double signal = 0, error = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)a[i] - (double)b[i];
        signal += (double)a[i] * (double)a[i];
        error += d * d;
    }
    return 10 * log10(signal / (error > 0 ? error : 1e-300));
}

static void figure(const struct comparison *c, const char *stage, const char *what, double value, const char *unit)
{
    char name[64];
    snprintf(name, sizeof name, "%s: %s", stage, what);
    bench_figure(c->bench, "precision", name, value, unit);
}

static void compare_mels(const struct comparison *c, const char *stage, const float *a, const float *b, size_t n)
{
    double difference = 0;
    for (size_t i = 0; i < n; i++) difference += fabs((double)a[i] - (double)b[i]);
    figure(c, stage, "log-mel cosine", cosine(a, b, n), "");
    figure(c, stage, "mean difference", difference / (double)n, "nat");
}

static utter_status compare_waves(const struct comparison *c, const char *stage, const float *a, const float *b)
{
    const size_t n = (size_t)c->frames * HIFT_HOP, values = prompt_mel_24k_frames(n) * PROMPT_MEL_BANDS;
    float *mels = mem_alloc((2 * values + 1) * sizeof *mels);
    utter_status status = mels ? UTTER_OK : error_set(&c->bench->error, UTTER_OUT_OF_MEMORY, "no memory for spectra");
    if (status == UTTER_OK) status = prompt_mel_24k(mels, a, n, NULL, &c->bench->error);
    if (status == UTTER_OK) status = prompt_mel_24k(mels + values, b, n, NULL, &c->bench->error);
    if (status == UTTER_OK) {
        figure(c, stage, "signal to error", signal_to_error(a, b, n), "dB");
        compare_mels(c, stage, mels, mels + values, values);
    }
    mem_free(mels);
    return status;
}

/* ---- T3 ---------------------------------------------------------------------------------------------------------------- */

static utter_status result(struct comparison *c, const struct side *s, utter_status status)
{
    const utter_status latched = stream_status(s->stream);
    return latched == UTTER_OK ? status : error_set(&c->bench->error, latched, "%s", stream_error(s->stream));
}

static utter_status begin_t3(struct comparison *c, struct side *s)
{
    const struct t3_gpt2_voice voice = {c->voice.speaker_emb, c->voice.t3_tokens, c->voice.n_t3_tokens};
    struct error *e = &c->bench->error;
    utter_status status =
        t3_gpt2_state_create(&s->t3, s->model.t3, s->device, 2 + c->voice.n_t3_tokens + (int)c->n_text + MAX_TOKENS, e);
    if (status == UTTER_OK) status = t3_gpt2_begin(s->t3, &voice, NULL, c->text, (int)c->n_text, e);
    while (status == UTTER_OK) status = t3_gpt2_prefill(s->t3, s->stream, 0);
    return result(c, s, status == UTTER_DONE ? UTTER_OK : status);
}

static int largest(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++) best = x[i] > x[best] ? i : best;
    return best;
}

/* Draws tokens by the f32 side's logits and feeds them to both. */
static utter_status compare_t3(struct comparison *c)
{
    struct bench *b = c->bench;
    const int n = c->f32.model.t3->speech_vocab;
    const struct generation_options o = {.sampler = sampler_defaults(SAMPLER_TURBO),
                                         .stream = rng_stream(1, "t3"),
                                         .max_tokens = MAX_TOKENS - 2,
                                         .room = MAX_TOKENS - 2};
    utter_status status = begin_t3(c, &c->f32);
    if (status == UTTER_OK) status = begin_t3(c, &c->fast);
    if (status == UTTER_OK) status = generation_create(&c->generation, n, &b->error);
    if (status == UTTER_OK) status = generation_begin(c->generation, &o, &b->error);
    double least = 1, sum = 0;
    int steps = 0, same = 0;
    while (status == UTTER_OK) {
        const float *x = t3_gpt2_logits(c->f32.t3), *y = t3_gpt2_logits(c->fast.t3);
        const double alike = cosine(x, y, (size_t)n);
        least = alike < least ? alike : least;
        sum += alike;
        same += largest(x, n) == largest(y, n);
        steps++;
        int32_t token;
        status = generation_next(c->generation, x, &token, &b->error);
        if (status != UTTER_OK) break;
        status = result(c, &c->f32, t3_gpt2_decode(c->f32.t3, c->f32.stream, token));
        if (status == UTTER_OK) status = result(c, &c->fast, t3_gpt2_decode(c->fast.t3, c->fast.stream, token));
    }
    if (status != UTTER_DONE) return status;
    generation_finish(c->generation);
    figure(c, "t3", "cosine of the logits, mean", sum / steps, "");
    figure(c, "t3", "cosine of the logits, least", least, "");
    figure(c, "t3", "same best token", 100.0 * same / steps, "% of steps");
    return UTTER_OK;
}

/* ---- flow -------------------------------------------------------------------------------------------------------------- */

enum { N_MELS = PROMPT_N_MELS, IN = 4 * N_MELS };

struct watch {
    struct comparison *comparison;
    struct side *side;
    bool started;
};

/* Collects the solver's start; its noise is the first x that it shows. */
static void see(void *user, const char *name, struct array value)
{
    struct watch *w = user;
    struct side *s = w->side;
    const bool x = strcmp(name, "x") == 0 && !w->started, mu = strcmp(name, "encoder_proj") == 0,
               spk = strcmp(name, "spk_affine") == 0;
    if (!x && !mu && !spk) return;
    w->started |= x;
    float *rows = mem_alloc((size_t)value.rows * N_MELS * sizeof *rows);
    if (!rows) {
        stream_fail(s->stream, UTTER_OUT_OF_MEMORY);
        return;
    }
    stream_read(s->stream, rows, value);
    for (int r = 0; r < w->comparison->rows; r++)
        memcpy(s->flow_in + (size_t)r * IN +
                   (x    ? 0
                    : mu ? N_MELS
                         : 2 * N_MELS),
               rows + (spk ? 0 : (size_t)r * N_MELS), N_MELS * sizeof *rows);
    mem_free(rows);
}

static void set_cond(const struct comparison *c, struct side *s)
{
    for (int r = 0; r < c->voice.n_prompt_frames; r++)
        memcpy(s->flow_in + (size_t)r * IN + 3 * N_MELS, c->voice.prompt_mel + (size_t)r * N_MELS,
               N_MELS * sizeof(float));
}

static utter_status run_flow(struct comparison *c, struct side *s)
{
    struct watch watch = {c, s, false};
    const struct observer o = {see, &watch};
    const struct mel_request request = {.voice = &c->voice,
                                        .tokens = c->generation->speech,
                                        .n_tokens = c->generation->n_speech,
                                        .final = true,
                                        .noise = rng_stream(1, "flow noise"),
                                        .observer = &o};
    if (!s->flow_in) {
        c->frames = s3gen_mel_frames(&request);
        c->rows = 2 * (c->voice.n_prompt_tokens + request.n_tokens);
        s->flow_in = mem_calloc((size_t)c->rows * IN, sizeof(float));
        s->mel = mem_alloc(((size_t)c->frames * N_MELS + 1) * sizeof(float));
        s->wave = mem_alloc(((size_t)c->frames * HIFT_HOP + 1) * sizeof(float));
    }
    if (!s->flow_in || !s->mel || !s->wave)
        return error_set(&c->bench->error, UTTER_OUT_OF_MEMORY, "no memory for a mel");
    const size_t mark = stream_mark(s->stream);
    struct array mel = stream_array(s->stream, c->frames, N_MELS);
    s3gen_mel(s->stream, s->model.s3gen, mel, &request);
    stream_read(s->stream, s->mel, mel);
    stream_release(s->stream, mark);
    set_cond(c, s);
    return result(c, s, UTTER_OK);
}

/* The mel of the solver on `s` from another side's start. */
static utter_status solve(struct comparison *c, const struct side *s, const float *start, float *mel)
{
    const size_t mark = stream_mark(s->stream);
    struct array in = stream_upload(s->stream, c->rows, IN, start);
    cfm_solve(s->stream, s3gen_cfm(s->model.s3gen), in, s3gen_default_steps(s->model.s3gen), NULL);
    stream_read(s->stream, mel, array_cols(array_rows(in, c->rows - c->frames, c->frames), 0, N_MELS));
    stream_release(s->stream, mark);
    return result(c, s, UTTER_OK);
}

static double encoder_signal_to_error(const struct comparison *c)
{
    double signal = 0, error = 0;
    for (int r = 0; r < c->rows; r++)
        for (int i = N_MELS; i < 2 * N_MELS; i++) {
            const double a = (double)c->f32.flow_in[(size_t)r * IN + i];
            const double d = a - (double)c->fast.flow_in[(size_t)r * IN + i];
            signal += a * a;
            error += d * d;
        }
    return 10 * log10(signal / (error > 0 ? error : 1e-300));
}

static utter_status compare_flow(struct comparison *c)
{
    const size_t n = (size_t)c->frames * N_MELS;
    float *mel = mem_alloc((n + 1) * sizeof *mel);
    utter_status status = mel ? UTTER_OK : error_set(&c->bench->error, UTTER_OUT_OF_MEMORY, "no memory for a mel");
    if (status == UTTER_OK) {
        figure(c, "encoder", "signal to error", encoder_signal_to_error(c), "dB");
        status = solve(c, &c->f32, c->fast.flow_in, mel); /* only the encoder was fast */
    }
    if (status == UTTER_OK) {
        compare_mels(c, "encoder, to the mel", c->f32.mel, mel, n);
        status = solve(c, &c->fast, c->f32.flow_in, mel);
    }
    if (status == UTTER_OK) {
        compare_mels(c, "cfm", c->f32.mel, mel, n);
        compare_mels(c, "encoder and cfm", c->f32.mel, c->fast.mel, n);
    }
    mem_free(mel);
    return status;
}

/* ---- vocoder ----------------------------------------------------------------------------------------------------------- */

static utter_status vocode(struct comparison *c, struct side *s, const float *frames, float *wave)
{
    struct stream *q = s->stream;
    const struct hift *h = s3gen_hift(s->model.s3gen);
    const size_t mark = stream_mark(q);
    struct array mel = stream_upload(q, c->frames, N_MELS, frames), f0 = stream_array(q, c->frames, 1),
                 source = stream_array(q, c->frames * HIFT_HOP, 1), phase = stream_array(q, 1, HIFT_HARMONICS),
                 out = stream_array(q, c->frames * HIFT_HOP, 1);
    op_fill(q, phase, 0);
    hift_f0(q, h, f0, mel);
    hift_source(q, h, source, f0,
                (struct source_params){.phase = phase, .noise_stream = rng_stream(1, "source noise")});
    hift_decode(q, h, out, mel, source, (struct hift_window){0, c->frames}, NULL);
    stream_read(q, wave, out);
    stream_release(q, mark);
    return result(c, s, UTTER_OK);
}

static utter_status compare_sound(struct comparison *c)
{
    utter_status status = vocode(c, &c->f32, c->f32.mel, c->f32.wave);
    if (status == UTTER_OK) status = vocode(c, &c->fast, c->f32.mel, c->fast.wave);
    if (status == UTTER_OK) status = compare_waves(c, "vocoder", c->f32.wave, c->fast.wave);
    if (status == UTTER_OK) status = vocode(c, &c->fast, c->fast.mel, c->fast.wave);
    if (status == UTTER_OK) status = compare_waves(c, "all but t3", c->f32.wave, c->fast.wave);
    return status;
}

/* ---- making a voice ---------------------------------------------------------------------------------------------------- */

static double same_share(const int32_t *a, const int32_t *b, int n)
{
    int same = 0;
    for (int i = 0; i < n; i++) same += a[i] == b[i];
    return n ? 100.0 * same / n : 100;
}

/* The made-up recording as both sides hear it; only for models that can. */
static utter_status compare_voices(struct comparison *c)
{
    struct bench *b = c->bench;
    struct side *const sides[2] = {&c->f32, &c->fast};
    struct conds heard[2] = {0};
    float *samples = NULL;
    if (!checkpoint_can_clone(c->f32.model.checkpoint)) return UTTER_OK;
    const struct listen_options o = {.rules = voice_rules_of(checkpoint_variant(c->f32.model.checkpoint))};
    utter_status status = bench_make_recording(&samples, &b->error);
    for (int i = 0; status == UTTER_OK && i < 2; i++) {
        struct bench_model m = {0};
        status = bench_model_open(&m, b, sides[i]->device, BENCH_LISTENERS);
        if (status == UTTER_OK)
            status = listen(&heard[i], m.listeners, sides[i]->stream, samples,
                            (size_t)BENCH_RECORDING_RATE * BENCH_RECORDING_SECONDS, &o, &b->error);
        bench_model_close(&m);
    }
    if (status == UTTER_OK) {
        const struct conds *x = &heard[0], *y = &heard[1];
        figure(c, "voice", "same speech tokens", same_share(x->prompt_tokens, y->prompt_tokens, x->n_prompt_tokens),
               "%");
        figure(c, "voice", "cosine of the x-vector", cosine(x->xvector, y->xvector, XVECTOR_SIZE), "");
        figure(c, "voice", "cosine of the speaker", cosine(x->speaker_emb, y->speaker_emb, SPEAKER_EMB_SIZE), "");
    }
    conds_free(&heard[0]);
    conds_free(&heard[1]);
    mem_free(samples);
    return status;
}

/* ---- both sides -------------------------------------------------------------------------------------------------------- */

static utter_status side_open(struct side *s, struct bench *b, enum precision precision)
{
    struct device_options o = {.n_threads = (int)b->threads, .precision = precision};
    if (b->cpu && !cpu_level_by_name(&o.level, b->cpu)) o.level = CPU_AUTO;
    utter_status status = device_create_cpu(&s->device, &o, &b->error);
    if (status == UTTER_OK) status = bench_model_open(&s->model, b, s->device, BENCH_T3 | BENCH_S3GEN);
    if (status == UTTER_OK) status = stream_create(&s->stream, s->device, NULL, 0, &b->error);
    return status;
}

static void side_close(struct side *s)
{
    t3_gpt2_state_free(&s->t3);
    stream_destroy(&s->stream);
    bench_model_close(&s->model);
    device_destroy(&s->device);
    mem_free(s->flow_in);
    mem_free(s->mel);
    mem_free(s->wave);
}

static utter_status read_text(struct comparison *c)
{
    struct bench *b = c->bench;
    const char *text = b->text ? b->text : TEXT;
    struct tokenizer *tokenizer = NULL;
    char *normal = NULL;
    size_t n = 0;
    utter_status status = tokenizer_load(&tokenizer, c->f32.model.checkpoint, NULL, &b->error);
    if (status == UTTER_OK) status = punc_norm(&normal, &n, PUNC_NORM_TURBO, text, strlen(text), &b->error);
    if (status == UTTER_OK) status = tokenizer_encode(tokenizer, normal, n, &c->text, &c->n_text, &b->error);
    tokenizer_free(&tokenizer);
    mem_free(normal);
    return status;
}

utter_status bench_precision(struct bench *b)
{
    struct comparison c = {.bench = b};
    utter_status status = side_open(&c.f32, b, PRECISION_F32);
    if (status == UTTER_OK) status = side_open(&c.fast, b, PRECISION_FAST);
    if (status == UTTER_OK)
        status = conds_present(c.f32.model.checkpoint, "conds")
                     ? conds_read(&c.voice, c.f32.model.checkpoint, "conds", &b->error)
                     : bench_make_voice(&c.voice, &b->error);
    if (status == UTTER_OK) status = read_text(&c);
    if (status == UTTER_OK) status = compare_t3(&c);
    if (status == UTTER_OK) status = run_flow(&c, &c.f32);
    if (status == UTTER_OK) status = run_flow(&c, &c.fast);
    if (status == UTTER_OK) status = compare_flow(&c);
    if (status == UTTER_OK) status = compare_sound(&c);
    if (status == UTTER_OK) status = compare_voices(&c);
    generation_free(&c.generation);
    conds_free(&c.voice);
    mem_free(c.text);
    side_close(&c.f32);
    side_close(&c.fast);
    return status;
}
