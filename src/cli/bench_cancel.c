/*
 * bench_cancel.c - how soon work stops when it is told to, stage by stage, and what listening for it costs.
 *
 * A stage is one piece of the engine's work that can be started as often as one likes: a sample starts it, another thread
 * cancels it at a random moment of the time it takes, and the time from just before the cancel until the work has returned,
 * with all its threads parked, is kept. So a sample costs half a stage on average, not an utterance.
 */
#include "cli/bench.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "chatterbox/cfm.h"
#include "chatterbox/flow_encoder.h"
#include "chatterbox/generate.h"
#include "chatterbox/hift.h"
#include "cli/report.h"
#include "engine/model.h"
#include "engine/voice.h"

#define TEXT "The quick brown fox jumps over the lazy dog, and the rain in Spain stays mainly in the plain."

/* As much as a chunk of sound in a conversation: ten seconds of prompt, one of speech. */
enum { PROMPT_SPEECH = 375, PROMPT_TEXT = 40, FLOW_TOKENS = 250 + 25, WAVE_FRAMES = 100, UTTERANCE_TOKENS = 8 };
enum { DECODED = 3 };

struct rig {
    struct bench *bench;
    utter_model_options options;
    utter_model *model;
    utter_task *task;
    utter_request request;
    struct cancel cancel; /* of `stream` */
    signed char flag;     /* attached to everything that takes one */
    struct stream *stream;
    struct t3_gpt2_state *t3;
    struct t3_gpt2_prefix *prefix;
    struct generation *generation;
    struct t3_gpt2_voice voice;
    int32_t speech[PROMPT_SPEECH], text[PROMPT_TEXT], flow[FLOW_TOKENS];
    float *recording;
};

static utter_status stream_result(struct rig *r, const struct stream *s)
{
    const utter_status status = stream_status(s);
    return status == UTTER_OK ? status : error_set(&r->bench->error, status, "%s", stream_error(s));
}

/* ---- stages: each returns OK when it was done before the cancel, or CANCELLED ---------------------------------------- */

typedef utter_status stage_fn(struct rig *r, struct stream *s);

static utter_status load(struct rig *r, struct stream *s)
{
    (void)s;
    utter_model *m;
    char *const text = r->bench->error.text;
    const utter_status status = utter_model_open(&m, r->bench->model, &r->options, text, sizeof r->bench->error.text);
    utter_model_close(&m);
    return status;
}

static utter_status make_voice(struct rig *r, struct stream *s)
{
    (void)s;
    utter_voice_options o;
    utter_voice_options_init(&o);
    o.cancel_flag = &r->flag;
    utter_voice *v;
    const utter_status status =
        utter_voice_make(&v, r->model, r->recording, (size_t)BENCH_RECORDING_RATE * BENCH_RECORDING_SECONDS,
                         BENCH_RECORDING_RATE, &o, r->bench->error.text, sizeof r->bench->error.text);
    utter_voice_free(&v);
    return status;
}

static utter_status compute_prompt(struct rig *r, struct stream *s, const struct t3_gpt2_prefix *prefix)
{
    utter_status status = t3_gpt2_begin(r->t3, &r->voice, prefix, r->text, PROMPT_TEXT, &r->bench->error);
    while (status == UTTER_OK) status = t3_gpt2_prefill(r->t3, s, 0);
    return status == UTTER_DONE ? UTTER_OK : stream_status(s) == UTTER_OK ? status : stream_result(r, s);
}

static utter_status prompt(struct rig *r, struct stream *s)
{
    return compute_prompt(r, s, NULL);
}

/* A few tokens; one that would end speech is replaced. The prompt that they need is not timed: see ready_to_decode. */
static utter_status decode(struct rig *r, struct stream *s)
{
    for (int i = 0; i < DECODED; i++) {
        int32_t token = 0;
        utter_status status = generation_next(r->generation, t3_gpt2_logits(r->t3), &token, &r->bench->error);
        if (status < 0) return status;
        if (status == UTTER_DONE || token >= T3_START_SPEECH) {
            token = r->generation->n_drawn % T3_START_SPEECH;
            r->generation->end = GENERATION_RUNS;
        }
        if (t3_gpt2_decode(r->t3, s, token) != UTTER_OK) return stream_result(r, s);
    }
    return UTTER_OK;
}

static utter_status ready_to_decode(struct rig *r)
{
    if (t3_gpt2_prompt_remaining(r->t3) == 0 && t3_gpt2_room(r->t3) > DECODED && r->generation->n_drawn > 0 &&
        r->generation->n_drawn < GENERATE_MAX_TOKENS - DECODED)
        return UTTER_OK;
    const struct generation_options o = {.sampler = sampler_defaults(SAMPLER_TURBO),
                                         .stream = rng_stream(1, "bench"),
                                         .max_tokens = GENERATE_MAX_TOKENS,
                                         .room = t3_gpt2_room(r->t3)};
    stream_set_cancel(r->stream, NULL);
    const utter_status status = compute_prompt(r, r->stream, r->prefix);
    stream_set_cancel(r->stream, &r->cancel);
    return status == UTTER_OK ? generation_begin(r->generation, &o, &r->bench->error) : status;
}

static utter_status encode(struct rig *r, struct stream *s)
{
    struct array mu = stream_array(s, 2 * FLOW_TOKENS, PROMPT_N_MELS);
    flow_encoder_forward(s, s3gen_encoder(r->model->s3gen), mu, r->flow, FLOW_TOKENS, NULL);
    return stream_result(r, s);
}

static utter_status solve(struct rig *r, struct stream *s)
{
    struct array in = stream_array(s, 2 * FLOW_TOKENS, 4 * PROMPT_N_MELS);
    op_fill(s, in, 0.1f);
    cfm_solve(s, s3gen_cfm(r->model->s3gen), in, s3gen_default_steps(r->model->s3gen), NULL);
    return stream_result(r, s);
}

static utter_status vocode(struct rig *r, struct stream *s)
{
    const struct hift *h = s3gen_hift(r->model->s3gen);
    struct array mel = stream_array(s, WAVE_FRAMES, PROMPT_N_MELS), f0 = stream_array(s, WAVE_FRAMES, 1);
    struct array source = stream_array(s, WAVE_FRAMES * HIFT_HOP, 1), phase = stream_array(s, 1, HIFT_HARMONICS);
    op_fill(s, mel, -4);
    op_fill(s, phase, 0);
    hift_f0(s, h, f0, mel);
    hift_source(s, h, source, f0, (struct source_params){.phase = phase, .noise_stream = rng_stream(1, "bench")});
    hift_decode(s, h, stream_array(s, WAVE_FRAMES * HIFT_HOP, 1), mel, source, (struct hift_window){0, WAVE_FRAMES},
                NULL);
    return stream_result(r, s);
}

/* A short sentence through the public interface. */
static utter_status speak(struct rig *r, struct stream *s)
{
    (void)s;
    utter_status status = utter_task_start(r->task, &r->request);
    if (status == UTTER_OK) status = utter_task_set_cancel_flag(r->task, &r->flag);
    while (status == UTTER_OK || status == UTTER_AUDIO) status = utter_task_step(r->task, NULL);
    if (status == UTTER_DONE) return UTTER_OK;
    return error_set(&r->bench->error, status, "%s", utter_task_last_error(r->task));
}

/* ---- one sample ------------------------------------------------------------------------------------------------------ */

struct shot {
    struct rig *rig;
    bool by_flag;
    double after, at; /* seconds to wait; when the cancel was called */
};

static void *cancel_later(void *arg)
{
    struct shot *shot = arg;
    const double whole = floor(shot->after);
    const struct timespec wait = {(time_t)whole, (long)((shot->after - whole) * 1e9)};
    nanosleep(&wait, NULL);
    shot->at = bench_now();
    if (shot->by_flag)
        __atomic_store_n(&shot->rig->flag, 1, __ATOMIC_RELAXED);
    else {
        cancel_request(&shot->rig->cancel);
        utter_task_cancel(shot->rig->task);
    }
    return NULL;
}

static void make_ready(struct rig *r)
{
    r->flag = 0;
    cancel_clear(&r->cancel);
    cancel_attach_flag(&r->cancel, &r->flag);
    stream_clear(r->stream);
    utter_task_reset(r->task);
}

/* *ms: from the cancel to the return; negative when the work was done first. */
static utter_status shoot(struct rig *r, stage_fn *run, double after, bool by_flag, double *ms)
{
    make_ready(r);
    if (run == decode && ready_to_decode(r) != UTTER_OK) return UTTER_ENGINE;
    struct shot shot = {.rig = r, .by_flag = by_flag, .after = after};
    pthread_t thread;
    if (pthread_create(&thread, NULL, cancel_later, &shot) != 0)
        return error_set(&r->bench->error, UTTER_OUT_OF_MEMORY, "no thread to cancel from");
    const utter_status status = run(r, r->stream);
    const double end = bench_now();
    pthread_join(thread, NULL);
    *ms = status == UTTER_CANCELLED ? 1e3 * (end - shot.at) : -1;
    return status == UTTER_CANCELLED ? UTTER_OK : status;
}

/* ---- a stage --------------------------------------------------------------------------------------------------------- */

struct stage {
    const char *name;
    stage_fn *run;
    bool flag_only;  /* there is no call that cancels it */
    int part, parts; /* cancels fall into this part of the work, counted from 0; 0 parts: anywhere */
};

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double share(const double *sorted, int n, double q)
{
    return n > 0 ? sorted[(int)((n - 1) * q + 0.5)] : 0;
}

/* ms: the samples by call, then those by flag. */
static void report_stage(struct bench *b, const struct stage *g, double lasts, double *ms, const int n[2])
{
    double by[2] = {0, 0};
    for (int i = 0; i < n[0] + n[1]; i++) by[i >= n[0]] = fmax(by[i >= n[0]], ms[i]);
    const int all = n[0] + n[1];
    qsort(ms, (size_t)all, sizeof *ms, by_value);
    const double median = share(ms, all, 0.5), p99 = share(ms, all, 0.99), most = share(ms, all, 1);
    json_array_append_new(b->results, json_pack("{s:s, s:s, s:f, s:i, s:i, s:f, s:f, s:f, s:f, s:f}", "part", "cancel",
                                                "name", g->name, "stage_ms", 1e3 * lasts, "by_call", n[0], "by_flag",
                                                n[1], "median_ms", median, "p99_ms", p99, "max_ms", most,
                                                "max_by_call_ms", by[0], "max_by_flag_ms", by[1]));
    progress_clear();
    if (b->json) return;
    printf("%-8s %-24s %9.1f %6d+%-4d %8.3f %8.3f %8.3f %8.3f %8.3f\n", "cancel", g->name, 1e3 * lasts, n[0], n[1],
           median, p99, most, by[0], by[1]);
    fflush(stdout);
}

/* How long the stage takes, after one run to warm up. */
static utter_status time_stage(struct rig *r, const struct stage *g, double *seconds)
{
    for (int i = 0; i < 2; i++) {
        make_ready(r);
        utter_status status = g->run == decode ? ready_to_decode(r) : UTTER_OK;
        const double start = bench_now();
        if (status == UTTER_OK) status = g->run(r, r->stream);
        *seconds = bench_now() - start;
        if (status != UTTER_OK) return status;
    }
    return UTTER_OK;
}

/* Sources take turns. A run that ends before its cancel comes counts for nothing and is tried again, within reason. */
static utter_status bench_stage(struct rig *r, const struct stage *g)
{
    struct bench *b = r->bench;
    const int wanted = (int)b->samples;
    double *ms[2] = {mem_alloc((size_t)wanted * 2 * sizeof **ms), mem_alloc((size_t)wanted * sizeof **ms)};
    const struct rng random = rng_stream(1, g->name);
    double lasts;
    int n[2] = {0, 0};
    utter_status status =
        ms[0] && ms[1] ? time_stage(r, g, &lasts) : error_set(&b->error, UTTER_OUT_OF_MEMORY, "no memory for samples");
    for (int i = 0; i < 3 * wanted && n[0] + n[1] < wanted && status == UTTER_OK; i++) {
        const bool by_flag = g->flag_only || i % 2 == 1;
        const double u = rng_uniform(random, (uint64_t)i), at = g->parts ? (g->part + u) / g->parts : u;
        double taken;
        status = shoot(r, g->run, lasts * at, by_flag, &taken);
        if (status == UTTER_OK && taken >= 0) ms[by_flag][n[by_flag]++] = taken;
        if (status == UTTER_OK && *b->interrupt) status = error_set(&b->error, UTTER_CANCELLED, "interrupted");
        progress_show((double)(n[0] + n[1]) / wanted, "cancel: %s", g->name);
    }
    if (status == UTTER_OK) {
        memcpy(ms[0] + n[0], ms[1], (size_t)n[1] * sizeof **ms);
        report_stage(b, g, lasts, ms[0], n);
    }
    mem_free(ms[0]);
    mem_free(ms[1]);
    return status;
}

/* ---- when nobody cancels --------------------------------------------------------------------------------------------- */

/* The same work in turn with a token that every tile polls and without one, which leaves the poll a test for NULL: the median of
 * the ratios of neighbouring runs. */
static utter_status bench_overhead(struct rig *r, const char *name, stage_fn *run)
{
    struct bench *b = r->bench;
    const int wanted = (int)b->samples;
    double *ratios = mem_alloc((size_t)wanted * sizeof *ratios), seconds[2] = {0, 0};
    utter_status status = ratios ? UTTER_OK : error_set(&b->error, UTTER_OUT_OF_MEMORY, "no memory for samples");
    for (int i = -1; i < wanted && status == UTTER_OK; i++) {
        for (int k = 0; k < 2 && status == UTTER_OK; k++) {
            const bool listens = (i + k) % 2 != 0; /* A B B A: a drift falls on both alike */
            make_ready(r);
            if (run == decode) status = ready_to_decode(r);
            const double start = bench_now();
            if (status == UTTER_OK) {
                stream_set_cancel(r->stream, listens ? &r->cancel : NULL);
                status = run(r, r->stream);
            }
            seconds[listens] = bench_now() - start;
        }
        if (i >= 0) ratios[i] = seconds[1] / seconds[0];
        if (status == UTTER_OK && *b->interrupt) status = error_set(&b->error, UTTER_CANCELLED, "interrupted");
        progress_show((double)i / wanted, "cancel: cost of listening, %s", name);
    }
    progress_clear();
    if (status == UTTER_OK) {
        char line[64];
        qsort(ratios, (size_t)wanted, sizeof *ratios, by_value);
        snprintf(line, sizeof line, "cost of listening, %s", name);
        bench_figure(b, "cancel", line, 100 * (share(ratios, wanted, 0.5) - 1), "%");
    }
    stream_set_cancel(r->stream, &r->cancel);
    mem_free(ratios);
    return status;
}

static void bench_poll(struct rig *r)
{
    enum { POLLS = 10000000 };
    make_ready(r);
    const double start = bench_now();
    int seen = 0;
    for (int i = 0; i < POLLS; i++) seen += cancel_poll(&r->cancel);
    bench_figure(r->bench, "cancel", "a poll", (bench_now() - start) / POLLS * 1e9 + seen, "ns");
}

/* ---- all of it ------------------------------------------------------------------------------------------------------- */

static void close_rig(struct rig *r)
{
    generation_free(&r->generation);
    t3_gpt2_prefix_free(&r->prefix);
    t3_gpt2_state_free(&r->t3);
    stream_destroy(&r->stream);
    utter_task_free(&r->task);
    utter_model_close(&r->model);
    mem_free(r->recording);
}

static utter_status open_rig(struct rig *r, struct bench *b)
{
    struct error *e = &b->error;
    r->bench = b;
    utter_model_options_init(&r->options);
    r->options.n_threads = (int32_t)b->threads;
    r->options.cpu_level = b->cpu && strcmp(b->cpu, "auto") != 0 ? b->cpu : NULL;
    r->options.precision =
        b->precision && strcmp(b->precision, "fast") == 0 ? UTTER_PRECISION_FAST : UTTER_PRECISION_F32;
    r->options.s3gen_path = b->s3gen;
    r->options.cancel_flag = &r->flag;
    utter_status status = utter_model_open(&r->model, b->model, &r->options, e->text, sizeof e->text);
    if (status == UTTER_OK) status = utter_task_create(&r->task, r->model, e->text, sizeof e->text);
    if (status == UTTER_OK) status = stream_create(&r->stream, r->model->device, &r->cancel, 0, e);
    if (status == UTTER_OK) status = bench_make_recording(&r->recording, &b->error);
    if (status != UTTER_OK) return status;
    const struct t3_gpt2 *t3 = r->model->t3;
    for (int i = 0; i < PROMPT_SPEECH; i++) r->speech[i] = i * 37 % T3_START_SPEECH;
    for (int i = 0; i < PROMPT_TEXT; i++) r->text[i] = i * 11 % t3->text_vocab;
    for (int i = 0; i < FLOW_TOKENS; i++) r->flow[i] = i * 53 % SPEECH_CODES;
    static const float speaker[SPEAKER_EMB_SIZE];
    r->voice = (struct t3_gpt2_voice){speaker, r->speech, PROMPT_SPEECH};
    utter_request_init(&r->request, r->model);
    r->request.text = b->text ? b->text : TEXT;
    r->request.text_length = strlen(r->request.text);
    r->request.max_tokens = UTTERANCE_TOKENS;
    r->request.seed = 1;
    status =
        t3_gpt2_state_create(&r->t3, t3, r->model->device, 2 + PROMPT_SPEECH + PROMPT_TEXT + GENERATE_MAX_TOKENS, e);
    if (status == UTTER_OK) status = generation_create(&r->generation, t3->speech_vocab, e);
    if (status == UTTER_OK) status = compute_prompt(r, r->stream, NULL);
    return status == UTTER_OK ? t3_gpt2_prefix_create(&r->prefix, r->t3, r->stream, e) : status;
}

static utter_status bench_stages(struct rig *r)
{
    struct stage stages[8 + CFM_MAX_STEPS];
    char names[CFM_MAX_STEPS][48];
    const int steps = s3gen_default_steps(r->model->s3gen);
    int n = 0;
    bool chosen = false;
    stages[n++] = (struct stage){"load", load, true, 0, 0};
    if (checkpoint_can_clone(r->model->checkpoint)) stages[n++] = (struct stage){"voice", make_voice, true, 0, 0};
    stages[n++] = (struct stage){"prompt", prompt, false, 0, 0};
    stages[n++] = (struct stage){"decode", decode, false, 0, 0};
    stages[n++] = (struct stage){"encoder", encode, false, 0, 0};
    for (int k = 0; k < steps; k++) {
        snprintf(names[k], sizeof names[k], "flow step %d of %d", k + 1, steps);
        stages[n++] = (struct stage){names[k], solve, false, k, steps};
    }
    stages[n++] = (struct stage){"vocoder", vocode, false, 0, 0};
    if (r->model->voice) stages[n++] = (struct stage){"a sentence, by utter_task", speak, false, 0, 0};
    if (!r->bench->json)
        printf("%-8s %-24s %9s %6s+%-4s %8s %8s %8s %8s %8s  ms\n", "cancel", "stage", "lasts", "call", "flag",
               "median", "p99", "max", "by call", "by flag");
    for (int i = 0; i < n; i++) {
        if (r->bench->stage && strncmp(stages[i].name, r->bench->stage, strlen(r->bench->stage)) != 0) continue;
        const utter_status status = bench_stage(r, &stages[i]);
        if (status != UTTER_OK) return status;
        chosen = true;
    }
    if (!chosen && strcmp(r->bench->stage, "cost") != 0)
        return error_set(&r->bench->error, UTTER_INVALID_ARGUMENT, "--stage: no stage's name begins with \"%s\"",
                         r->bench->stage);
    return UTTER_OK;
}

utter_status bench_cancel(struct bench *b)
{
    struct rig *r = mem_calloc(1, sizeof *r);
    if (!r) return error_set(&b->error, UTTER_OUT_OF_MEMORY, "no memory to measure with");
    utter_status status = open_rig(r, b);
    if (status == UTTER_OK) status = bench_stages(r);
    if (status == UTTER_OK && (!b->stage || strcmp(b->stage, "cost") == 0)) {
        bench_poll(r);
        status = bench_overhead(r, "decode", decode);
        if (status == UTTER_OK) status = bench_overhead(r, "vocoder", vocode);
    }
    close_rig(r);
    mem_free(r);
    return status;
}
