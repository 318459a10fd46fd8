/* bench_model.c - the networks of a model on inputs that are a rule: no text, no voice, so any checkpoint will do. */
#include "cli/bench.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "chatterbox/generate.h"
#include "chatterbox/hift.h"
#include "chatterbox/s3gen.h"
#include "chatterbox/t3_gpt2.h"
#include "chatterbox/voice.h"
#include "checkpoint/bind.h"
#include "checkpoint/checkpoint.h"
#include "engine/locate.h"

enum { PROMPT_SPEECH = 375, PROMPT_TEXT = 40, DECODED = 150, FLOW_PROMPT = 250, FLOW_SPEECH = 150 };

void bench_model_close(struct bench_model *m)
{
    t3_gpt2_free(&m->t3);
    s3gen_free(&m->s3gen);
    listeners_free(&m->listeners);
    binder_free_owned(&m->owned);
    checkpoint_close(&m->checkpoint);
}

utter_status bench_model_open(struct bench_model *m, struct bench *b, struct device *d, unsigned networks)
{
    char *path = NULL;
    *m = (struct bench_model){0};
    utter_status status = locate_model(&path, b->model, &b->error);
    if (status == UTTER_OK) status = checkpoint_open(&m->checkpoint, path, b->s3gen, NULL, &b->error);
    mem_free(path);
    if (status != UTTER_OK) return status;
    struct binder binder = {.checkpoint = m->checkpoint, .device = d, .error = &b->error};
    if (networks & BENCH_T3) status = t3_gpt2_load(&m->t3, &binder);
    if (status == UTTER_OK && networks & BENCH_S3GEN) status = s3gen_load(&m->s3gen, &binder);
    if (status == UTTER_OK && networks & BENCH_LISTENERS) status = listeners_load(&m->listeners, &binder);
    m->owned = binder.owned;
    if (status != UTTER_OK) bench_model_close(m);
    return status;
}

static utter_status failed(struct bench *b, const struct stream *s)
{
    return error_set(&b->error, stream_status(s), "%s", stream_error(s));
}

/* ---- load ---------------------------------------------------------------------------------------------------------- */

static utter_status run_load(void *arg)
{
    struct bench *b = arg;
    struct bench_model m;
    const utter_status status = bench_model_open(&m, b, b->device, BENCH_T3 | BENCH_S3GEN);
    if (status == UTTER_OK) bench_model_close(&m);
    return status;
}

utter_status bench_load(struct bench *b)
{
    return bench_time(b, &(struct work){.part = "load", .name = "open and bind, files in memory"}, run_load, b);
}

/* ---- T3 ------------------------------------------------------------------------------------------------------------ */

struct t3_run {
    struct bench *bench;
    struct bench_model *model;
    struct stream *stream;
    int together; /* how many of the utterances are spoken */
    struct t3_gpt2_state *states[T3_MAX_TOGETHER];
    struct t3_gpt2_prefix *prefix;
    struct generation *generations[T3_MAX_TOGETHER];
    struct t3_gpt2_voice voice;
    int32_t text[PROMPT_TEXT];
};

static utter_status run_prompt(void *arg)
{
    struct t3_run *r = arg;
    for (int i = 0; i < r->together; i++) {
        utter_status status = t3_gpt2_begin(r->states[i], &r->voice, r->prefix, r->text, PROMPT_TEXT, &r->bench->error);
        while (status == UTTER_OK) status = t3_gpt2_prefill(r->states[i], r->stream, 0);
        if (stream_status(r->stream) != UTTER_OK) return failed(r->bench, r->stream);
        if (status != UTTER_DONE) return status;
    }
    return UTTER_OK;
}

/* DECODED tokens after the prompt, sampled as `say` does; one that would end speech is replaced. */
static utter_status run_decode(void *arg)
{
    struct t3_run *r = arg;
    struct error *e = &r->bench->error;
    utter_status status = UTTER_OK;
    for (int k = 0; status == UTTER_OK && k < r->together; k++) {
        const struct generation_options o = {.sampler = sampler_defaults(SAMPLER_TURBO),
                                             .stream = rng_stream(1 + (uint64_t)k, "bench"),
                                             .max_tokens = DECODED + 1,
                                             .room = DECODED + 1};
        status = generation_begin(r->generations[k], &o, e);
    }
    for (int i = 0; status == UTTER_OK && i < DECODED; i++) {
        int32_t tokens[T3_MAX_TOGETHER] = {0};
        for (int k = 0; k < r->together; k++) {
            status = generation_next(r->generations[k], t3_gpt2_logits(r->states[k]), &tokens[k], e);
            if (status < 0) return status;
            if (status == UTTER_DONE || tokens[k] >= T3_START_SPEECH) {
                tokens[k] = i;
                r->generations[k]->end = GENERATION_RUNS;
            }
        }
        status = t3_gpt2_decode_many(r->states, r->together, r->stream, tokens);
        if (status != UTTER_OK) return failed(r->bench, r->stream);
    }
    return status;
}

static double weight_bytes(const struct checkpoint *ck, const char *name)
{
    const struct tensor *t = checkpoint_find(ck, name);
    return t ? (double)t->n_bytes : 0;
}

/* Bytes of matrices that every token reads, and its multiply-adds. */
static void count_token(const struct bench_model *m, double *bytes, double *macs)
{
    static const char *const leaves[] = {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"};
    char name[64];
    *bytes = weight_bytes(m->checkpoint, "t3.speech_head.weight");
    for (int i = 0; i < m->t3->n_layers; i++)
        for (int k = 0; k < 4; k++) {
            snprintf(name, sizeof name, "t3.tfmr.h.%d.%s.weight", i, leaves[k]);
            *bytes += weight_bytes(m->checkpoint, name);
        }
    const double width = m->t3->width;
    *macs = 12 * width * width * m->t3->n_layers + width * m->t3->speech_vocab;
}

static utter_status time_t3(struct bench *b, struct t3_run *r)
{
    double bytes, macs;
    count_token(r->model, &bytes, &macs);
    const double width = r->model->t3->width, layers = r->model->t3->n_layers, rows = 2 + PROMPT_SPEECH + PROMPT_TEXT;
    const bool narrow = b->precision && strcmp(b->precision, "fast") == 0;
    const bool int8 = narrow && dtype_block(weight_type(r->model->t3->blocks[0].c_attn)) > 1;
    struct work w = {.part = "t3",
                     .name = "prompt of 417 rows",
                     .narrow = narrow,
                     .int8 = int8,
                     .ops = 2 * (rows * 12 * width * width * layers + rows * rows * width * layers)};
    utter_status status = bench_time(b, &w, run_prompt, r);
    if (status != UTTER_OK) return status;
    status = t3_gpt2_prefix_create(&r->prefix, r->states[0], r->stream, &b->error);
    if (status != UTTER_OK) return status;
    w = (struct work){.part = "t3",
                      .name = "prompt with the voice's prefix kept",
                      .narrow = narrow,
                      .int8 = int8,
                      .ops = 2 * (PROMPT_TEXT + 1) * 12 * width * width * layers,
                      .bytes = bytes};
    status = bench_time(b, &w, run_prompt, r);
    if (status != UTTER_OK) return status;
    /* Keys and values of about 493 positions are read too, in f16 unless weights are f32. */
    const double value = weight_type(r->model->t3->blocks[0].c_attn) == DTYPE_F32 ? 4 : 2;
    const double cache = 2 * (rows + DECODED / 2.0) * width * value * layers;
    static const char *const names[] = {"token at 418 to 567, sampled", "the same, 2 utterances together",
                                        "the same, 4 utterances together"};
    for (int i = 0; status == UTTER_OK && i < 3; i++) {
        r->together = 1 << i;
        w = (struct work){.part = "t3",
                          .name = names[i],
                          .before = run_prompt,
                          .ops = 2 * macs * DECODED * r->together,
                          .bytes = (bytes + cache * r->together) * DECODED,
                          .beside = true,
                          .per = DECODED * r->together,
                          .unit = "token"};
        status = bench_time(b, &w, run_decode, r);
    }
    return status;
}

utter_status bench_t3(struct bench *b)
{
    struct bench_model m;
    int32_t speech[PROMPT_SPEECH];
    utter_status status = bench_model_open(&m, b, b->device, BENCH_T3);
    if (status != UTTER_OK) return status;
    struct t3_run r = {.bench = b, .model = &m, .together = 1};
    float *speaker = mem_calloc((size_t)m.t3->speaker_dim, sizeof *speaker);
    if (!speaker) status = error_set(&b->error, UTTER_OUT_OF_MEMORY, "no memory for a voice");
    for (int i = 0; i < PROMPT_SPEECH; i++) speech[i] = i * 37 % T3_START_SPEECH;
    for (int i = 0; i < PROMPT_TEXT; i++) r.text[i] = i * 11 % m.t3->text_vocab;
    r.voice = (struct t3_gpt2_voice){speaker, speech, PROMPT_SPEECH};
    if (status == UTTER_OK) status = stream_create(&r.stream, b->device, NULL, 0, &b->error);
    for (int i = 0; i < T3_MAX_TOGETHER; i++) {
        if (status == UTTER_OK)
            status = t3_gpt2_state_create(&r.states[i], m.t3, b->device, 2 + PROMPT_SPEECH + PROMPT_TEXT + DECODED + 1,
                                          &b->error);
        if (status == UTTER_OK) status = generation_create(&r.generations[i], m.t3->speech_vocab, &b->error);
    }
    if (status == UTTER_OK) status = time_t3(b, &r);
    for (int i = 0; i < T3_MAX_TOGETHER; i++) {
        generation_free(&r.generations[i]);
        t3_gpt2_state_free(&r.states[i]);
    }
    t3_gpt2_prefix_free(&r.prefix);
    stream_destroy(&r.stream);
    mem_free(speaker);
    bench_model_close(&m);
    return status;
}

/* ---- flow and vocoder ---------------------------------------------------------------------------------------------- */

struct sound_run {
    struct bench *bench;
    const struct s3gen *s3gen;
    struct stream *stream;
    struct mel_request request;
    int frames;
    struct array mel;
};

static utter_status run_mel(void *arg)
{
    struct sound_run *r = arg;
    const size_t mark = stream_mark(r->stream);
    s3gen_mel(r->stream, r->s3gen, stream_array(r->stream, r->frames, PROMPT_N_MELS), &r->request);
    stream_release(r->stream, mark);
    return stream_wait(r->stream) == UTTER_OK ? UTTER_OK : failed(r->bench, r->stream);
}

static utter_status run_hift(void *arg)
{
    struct sound_run *r = arg;
    struct stream *s = r->stream;
    const struct hift *h = s3gen_hift(r->s3gen);
    const size_t mark = stream_mark(s);
    const int samples = r->frames * HIFT_HOP;
    struct array f0 = stream_array(s, r->frames, 1), source = stream_array(s, samples, 1),
                 phase = stream_array(s, 1, HIFT_HARMONICS);
    op_fill(s, phase, 0);
    hift_f0(s, h, f0, r->mel);
    hift_source(s, h, source, f0, (struct source_params){.phase = phase, .noise_stream = rng_stream(1, "bench")});
    hift_decode(s, h, stream_array(s, samples, 1), r->mel, source, (struct hift_window){0, r->frames}, NULL);
    stream_release(s, mark);
    return stream_wait(s) == UTTER_OK ? UTTER_OK : failed(r->bench, s);
}

utter_status bench_make_voice(struct conds *c, struct error *e)
{
    c->n_prompt_tokens = FLOW_PROMPT;
    c->n_prompt_frames = 2 * FLOW_PROMPT;
    c->prompt_tokens = mem_calloc(FLOW_PROMPT, sizeof *c->prompt_tokens);
    c->prompt_mel = mem_calloc((size_t)c->n_prompt_frames * PROMPT_N_MELS, sizeof *c->prompt_mel);
    if (!c->prompt_tokens || !c->prompt_mel) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a voice");
    for (int i = 0; i < FLOW_PROMPT; i++) c->prompt_tokens[i] = i * 53 % SPEECH_CODES;
    for (int i = 0; i < XVECTOR_SIZE; i++) c->xvector[i] = (float)(i % 7) - 3;
    return UTTER_OK;
}

static utter_status bench_sound(struct bench *b, bool mel)
{
    struct bench_model m;
    struct conds voice = {0};
    int32_t tokens[FLOW_SPEECH];
    utter_status status = bench_model_open(&m, b, b->device, BENCH_S3GEN);
    if (status != UTTER_OK) return status;
    for (int i = 0; i < FLOW_SPEECH; i++) tokens[i] = i * 37 % SPEECH_CODES;
    struct sound_run r = {.bench = b,
                          .s3gen = m.s3gen,
                          .request = {.voice = &voice,
                                      .tokens = tokens,
                                      .n_tokens = FLOW_SPEECH,
                                      .final = true,
                                      .noise = rng_stream(1, "bench")}};
    r.frames = 2 * FLOW_SPEECH;
    status = bench_make_voice(&voice, &b->error);
    if (status == UTTER_OK) status = stream_create(&r.stream, b->device, NULL, 0, &b->error);
    if (status == UTTER_OK) {
        r.mel = stream_array(r.stream, r.frames, PROMPT_N_MELS);
        op_fill(r.stream, r.mel, -4);
        status =
            mel ? bench_time(b, &(struct work){.part = "s3gen", .name = "250 + 150 tokens to mel"}, run_mel, &r)
                : bench_time(b, &(struct work){.part = "hift", .name = "300 mel frames to 6 s of sound"}, run_hift, &r);
    }
    stream_destroy(&r.stream);
    conds_free(&voice);
    bench_model_close(&m);
    return status;
}

utter_status bench_s3gen(struct bench *b)
{
    return bench_sound(b, true);
}
utter_status bench_hift(struct bench *b)
{
    return bench_sound(b, false);
}
