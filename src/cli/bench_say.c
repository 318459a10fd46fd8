/* bench_say.c - from text to sound through the public interface. */
#include "cli/bench.h"

#include <stdio.h>
#include <string.h>

#include "utter.h"

#define TEXT "The quick brown fox jumps over the lazy dog, and the rain in Spain stays mainly in the plain."

struct say_run {
    struct bench *bench;
    utter_model *model;
    utter_voice *voice;
    utter_task *task;
    utter_request request;
    double first_sound, prompt, tokens, sound; /* seconds of the last run */
    int n_tokens;
    int64_t n_samples;
};

static void say_close(struct say_run *r)
{
    utter_task_free(&r->task);
    utter_voice_free(&r->voice);
    utter_model_close(&r->model);
}

static utter_status say_open(struct say_run *r, struct bench *b)
{
    utter_model_options o;
    utter_model_options_init(&o);
    o.n_threads = (int32_t)b->threads;
    o.cpu_level = b->cpu && strcmp(b->cpu, "auto") != 0 ? b->cpu : NULL;
    o.precision = b->precision && strcmp(b->precision, "fast") == 0 ? UTTER_PRECISION_FAST : UTTER_PRECISION_F32;
    o.s3gen_path = b->s3gen;
    *r = (struct say_run){.bench = b};
    char *const text = b->error.text;
    const size_t size = sizeof b->error.text;
    utter_status status = utter_model_open(&r->model, b->model, &o, text, size);
    if (status == UTTER_OK && b->voice) status = utter_voice_load(&r->voice, r->model, b->voice, NULL, text, size);
    if (status == UTTER_OK) status = utter_task_create(&r->task, r->model, text, size);
    if (status != UTTER_OK) {
        say_close(r);
        return status;
    }
    utter_request_init(&r->request, r->model);
    r->request.text = b->text ? b->text : TEXT;
    r->request.text_length = strlen(r->request.text);
    r->request.voice = r->voice;
    r->request.seed = 1;
    r->request.stream_serial = !b->pipeline;
    return UTTER_OK;
}

/* Steps to the end; what kind of step took how long is kept. */
static utter_status run_say(void *arg)
{
    struct say_run *r = arg;
    utter_progress p = {.struct_size = sizeof p, .state = UTTER_STATE_PROMPT};
    const double began = bench_now();
    utter_status status = utter_task_start(r->task, &r->request);
    r->first_sound = r->prompt = r->tokens = r->sound = 0;
    while (status == UTTER_OK || status == UTTER_AUDIO) {
        const int state = p.state;
        const double start = bench_now();
        status = utter_task_step(r->task, &p);
        const double seconds = bench_now() - start;
        *(status == UTTER_AUDIO || status == UTTER_DONE ? &r->sound
          : state == UTTER_STATE_PROMPT                 ? &r->prompt
                                                        : &r->tokens) += seconds;
        if (status == UTTER_AUDIO && r->first_sound == 0) r->first_sound = bench_now() - began;
    }
    if (status != UTTER_DONE) return error_set(&r->bench->error, status, "%s", utter_task_last_error(r->task));
    if (r->first_sound == 0) r->first_sound = bench_now() - began;
    r->n_tokens = p.tokens_generated;
    r->n_samples = p.samples_ready;
    return UTTER_OK;
}

utter_status bench_say(struct bench *b)
{
    struct say_run r;
    const double opened = bench_now();
    utter_status status = say_open(&r, b);
    if (status != UTTER_OK) return status;
    bench_figure(b, "say", "open the model", 1e3 * (bench_now() - opened), "ms");
    const double began = bench_now();
    status = run_say(&r);
    if (status == UTTER_OK)
        bench_figure(b, "say", "first utterance, to the last sample", 1e3 * (bench_now() - began), "ms");
    if (status == UTTER_OK)
        status = bench_time(b, &(struct work){.part = "say", .name = "text to sound, later ones"}, run_say, &r);
    if (status == UTTER_OK) { /* of the last run */
        const double seconds = (double)r.n_samples / 24000;
        bench_figure(b, "say", "speech", seconds, "s");
        bench_figure(b, "say", "prompt", 1e3 * r.prompt, "ms");
        bench_figure(b, "say", "tokens", 1e3 * r.tokens, "ms");
        bench_figure(b, "say", "a token", r.n_tokens ? 1e3 * r.tokens / r.n_tokens : 0, "ms");
        bench_figure(b, "say", "flow and vocoder", 1e3 * r.sound, "ms");
        bench_figure(b, "say", "first sound", 1e3 * r.first_sound, "ms");
        bench_figure(b, "say", "real-time factor", (r.prompt + r.tokens + r.sound) / seconds, "s a s of speech");
        bench_figure(b, "say", "peak memory, resident", bench_peak_megabytes(), "MiB");
    }
    say_close(&r);
    return status;
}

/* ---- the first sound ---- */

/* Up to the first sound, as a player would ask for it. */
static utter_status run_first(void *arg)
{
    struct say_run *r = arg;
    utter_progress p = {.struct_size = sizeof p, .state = UTTER_STATE_PROMPT};
    double *const parts[] = {&r->prompt, &r->tokens};
    r->prompt = r->tokens = 0;
    utter_status status = utter_task_start(r->task, &r->request);
    const double began = bench_now();
    while (status == UTTER_OK) {
        const int state = p.state;
        const double start = bench_now();
        status = utter_task_step(r->task, &p);
        if (status == UTTER_OK) *parts[state != UTTER_STATE_PROMPT] += bench_now() - start;
    }
    r->first_sound = bench_now() - began;
    if (status != UTTER_AUDIO && status != UTTER_DONE)
        return error_set(&r->bench->error, status, "%s", utter_task_last_error(r->task));
    utter_task_reset(r->task);
    return UTTER_OK;
}

utter_status bench_first(struct bench *b)
{
    static const char words[] =
        "The quick brown fox jumps over the lazy dog near the river bank while the sun sets behind the distant "
        "mountains and a gentle breeze carries the scent of wild flowers across the quiet valley where children "
        "play and laugh together.";
    struct say_run r;
    utter_status status = say_open(&r, b);
    if (status != UTTER_OK) return status;
    if (!b->text) {
        r.request.text = words;
        r.request.text_length = sizeof words - 1;
    }
    r.request.stream = UTTER_STREAM_AUTO;
    const int most_steps = r.request.cfm_steps;
    for (int i = 0; i < 2 && status == UTTER_OK; i++) status = run_first(&r); /* the second keeps the voice's prompt */
    for (int steps = most_steps; steps >= 1 && status == UTTER_OK; steps = steps > 1 ? 1 : 0)
        for (int prompt = 0; prompt <= 125 && status == UTTER_OK; prompt = prompt == 0 ? 50 : prompt * 5 / 2) {
            char name[64], window[32] = "whole prompt";
            if (prompt) snprintf(window, sizeof window, "%d of its tokens", prompt);
            snprintf(name, sizeof name, "%d step%s, %s", steps, steps > 1 ? "s" : "", window);
            r.request.cfm_steps = steps;
            r.request.stream_first_prompt_tokens = prompt;
            status = bench_time(b, &(struct work){.part = "first", .name = name}, run_first, &r);
            if (status != UTTER_OK || prompt) continue;
            bench_figure(b, "first", "of which text's prompt", 1e3 * r.prompt, "ms");
            bench_figure(b, "first", "of which tokens", 1e3 * r.tokens, "ms");
            bench_figure(b, "first", "of which chunk", 1e3 * (r.first_sound - r.prompt - r.tokens), "ms");
        }
    say_close(&r);
    return status;
}
