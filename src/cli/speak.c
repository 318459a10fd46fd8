#include "cli/speak.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"

static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void speak_begin(struct speaker *s, utter_task *task, struct outlet *outlet, const signed char *interrupt)
{
    *s = (struct speaker){.task = task, .outlet = outlet, .interrupt = interrupt, .began = now_seconds()};
}

static utter_status fail(struct speaker *s, utter_status status, const char *text)
{
    snprintf(s->error, sizeof s->error, "%s", text);
    return status;
}

static utter_status hand_out(struct speaker *s, const float *samples, size_t n)
{
    struct error e = {""};
    utter_status status = UTTER_OK;
    if (s->times.n_samples == 0) s->times.first_sound = now_seconds() - s->began;
    s->times.n_samples += (int64_t)n;
    if (s->outlet->sink) status = sink_write(s->outlet->sink, samples, n, &e);
    if (status == UTTER_OK && s->outlet->player) status = player_write(s->outlet->player, samples, n, &e);
    if (status == UTTER_OK) return status;
    return fail(s, status == UTTER_CANCELLED ? status : UTTER_OUTPUT_UNWRITABLE, e.text);
}

static utter_status hand_out_ready(struct speaker *s)
{
    float samples[4096];
    size_t n;
    utter_status status = utter_task_pull(s->task, samples, sizeof samples / sizeof samples[0], &n);
    while (status == UTTER_OK && n > 0) {
        status = hand_out(s, samples, n);
        /* Playing takes as long as the sound does: a stop must not wait for that. */
        if (status == UTTER_OK && s->outlet->player && __atomic_load_n(s->interrupt, __ATOMIC_RELAXED))
            status = fail(s, UTTER_CANCELLED, "cancelled");
        if (status == UTTER_OK) status = utter_task_pull(s->task, samples, sizeof samples / sizeof samples[0], &n);
    }
    return status;
}

static void show_progress(const struct speaker *s, const utter_progress *p, size_t text_length)
{
    const double spoken = (double)s->times.n_samples / 24000.0;
    if (p->pieces > 1)
        progress_show((double)p->text_bytes_done / (double)text_length, "sentence %d of %d, %.1f s of speech",
                      p->pieces_done + 1, p->pieces, spoken);
    else
        progress_show(-1, "%d tokens, %.1f s of speech", p->tokens_generated, spoken);
}

/* Which kind of work the time of a step belongs to. */
static void count_time(struct speaker *s, int state_before, utter_status status, double seconds)
{
    if (status == UTTER_AUDIO || status == UTTER_DONE)
        s->times.sound += seconds;
    else if (state_before == UTTER_STATE_PROMPT)
        s->times.prompt += seconds;
    else
        s->times.tokens += seconds;
}

static utter_status step_to_end(struct speaker *s, size_t text_length)
{
    utter_progress p = {.struct_size = sizeof p, .state = UTTER_STATE_PROMPT};
    utter_status status;
    do {
        const int state_before = p.state;
        const double start = now_seconds();
        status = utter_task_step(s->task, &p);
        count_time(s, state_before, status, now_seconds() - start);
        if (status < 0) break;
        if (p.pieces_done < p.pieces) show_progress(s, &p, text_length);
        if (status != UTTER_OK) {
            const utter_status out = hand_out_ready(s);
            if (out < 0) return out; /* s->error is set */
        }
    } while (status != UTTER_DONE);
    s->times.n_tokens += p.tokens_generated;
    s->times.seed = p.seed;
    s->times.truncated |= p.truncated;
    return status == UTTER_DONE ? UTTER_OK : fail(s, status, utter_task_last_error(s->task));
}

utter_status speak(struct speaker *s, const utter_request *request)
{
    utter_status status = utter_task_start(s->task, request);
    if (status != UTTER_OK) return fail(s, status, utter_task_last_error(s->task));
    utter_task_set_cancel_flag(s->task, s->interrupt);
    status = step_to_end(s, request->text_length);
    progress_clear();
    s->times.total = now_seconds() - s->began;
    utter_task_reset(s->task); /* after an outlet failed the task may still be active */
    return status;
}
