/* bench_say.c - from text to sound through the public interface, and how soon that stops. */
#include "cli/bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

/* ---- cancel -------------------------------------------------------------------------------------------------------- */

struct canceller {
    utter_task *task;
    double after, at; /* seconds to wait; when the cancel was called */
};

static void *cancel_later(void *arg)
{
    struct canceller *c = arg;
    const struct timespec wait = {(time_t)c->after, (long)((c->after - (double)(time_t)c->after) * 1e9)};
    nanosleep(&wait, NULL);
    c->at = bench_now();
    utter_task_cancel(c->task);
    return NULL;
}

/* Milliseconds from a cancel after `after` seconds to the return of the step that saw it; negative when the task was done first. */
static utter_status cancel_once(struct say_run *r, double after, double *ms)
{
    struct canceller c = {.task = r->task, .after = after};
    pthread_t thread;
    utter_status status = utter_task_start(r->task, &r->request);
    if (status != UTTER_OK) return error_set(&r->bench->error, status, "%s", utter_task_last_error(r->task));
    if (pthread_create(&thread, NULL, cancel_later, &c) != 0)
        return error_set(&r->bench->error, UTTER_OUT_OF_MEMORY, "no thread to cancel from");
    while (status == UTTER_OK || status == UTTER_AUDIO) status = utter_task_step(r->task, NULL);
    const double end = bench_now();
    pthread_join(thread, NULL);
    *ms = status == UTTER_CANCELLED ? 1e3 * (end - c.at) : -1;
    return status == UTTER_CANCELLED || status == UTTER_DONE
               ? UTTER_OK
               : error_set(&r->bench->error, status, "%s", utter_task_last_error(r->task));
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

utter_status bench_cancel(struct bench *b)
{
    enum { MOMENTS = 101 };
    double ms[MOMENTS];
    int n = 0;
    struct say_run r;
    utter_status status = say_open(&r, b);
    if (status != UTTER_OK) return status;
    status = run_say(&r);
    const double whole = r.prompt + r.tokens + r.sound;
    for (int i = 0; i < MOMENTS && status == UTTER_OK; i++) {
        double taken = -1;
        status = cancel_once(&r, whole * (i + 0.5) / MOMENTS, &taken);
        if (taken >= 0) ms[n++] = taken;
        if (status == UTTER_OK && *b->interrupt) status = error_set(&b->error, UTTER_CANCELLED, "interrupted");
    }
    if (status == UTTER_OK && n > 0) {
        qsort(ms, (size_t)n, sizeof *ms, by_value);
        bench_figure(b, "cancel", "median", ms[n / 2], "ms");
        bench_figure(b, "cancel", "90 of 100 within", ms[n * 9 / 10], "ms");
        bench_figure(b, "cancel", "longest", ms[n - 1], "ms");
    }
    say_close(&r);
    return status;
}
