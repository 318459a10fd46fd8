/*
 * task.c - the step and cancel contract of utter.h, whatever the model.
 *
 *     IDLE --start--> PROMPT --prompt done--> GENERATING --last token--> next piece: PROMPT
 *                                                        --last piece--> COMPLETED
 *     any active state --cancel--> CANCELLED, --error--> FAILED; everything --reset--> IDLE
 *
 * A cancel is looked at on entry of a step, inside every kernel, and once more when the step's work is done: that last look
 * is the commit point, before it nothing of the step's work can be seen from outside.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/cancel.h"
#include "base/mem.h"
#include "base/rng.h"
#include "chatterbox/generate.h"
#include "engine/abi.h"
#include "engine/governor.h"
#include "engine/model.h"
#include "engine/utterance.h"
#include "text/split.h"

/* What may be kept for utter_task_read: a day of sound. */
enum { MAX_SAMPLES = 86400 * S3GEN_SAMPLE_RATE };

struct utter_task {
    struct utter_model *model;
    struct cancel cancel;
    enum utter_state state;
    struct error error;
    struct utterance *utterance;

    utter_request request; /* text points to our copy */
    char *text;
    struct text_pieces pieces;
    size_t n_pieces, piece, queued; /* piece: the current one; queued: how many the utterance was given */
    size_t text_bytes_done;
    int n_runs; /* started so far */
    bool piece_open, tokens_done, truncated;
    struct governor governor;
    int sounded_tokens; /* of this piece, when the last chunk of sound was begun */
    bool sound_pending; /* the last block of sound was not the last one of its chunk */

    int tokens_of_done_pieces, n_tokens; /* n_tokens: the current piece included */
    float *samples;                      /* finished, from `dropped` on */
    size_t capacity;
    int64_t n_samples, dropped, pulled;
};

utter_status utter_task_create(utter_task **out, utter_model *model, char *error, size_t error_size)
{
    struct error e = {""};
    utter_status s = UTTER_OK;
    if (!out) return UTTER_INVALID_ARGUMENT;
    *out = NULL;
    struct utter_task *t = model ? mem_calloc(1, sizeof *t) : NULL;
    if (!model)
        s = error_set(&e, UTTER_INVALID_ARGUMENT, "no model");
    else if (!t)
        s = error_set(&e, UTTER_OUT_OF_MEMORY, "no memory for a task");
    else {
        t->model = model;
        s = utterance_create(&t->utterance, model, &t->cancel, &e);
    }
    if (s != UTTER_OK) utter_task_free(&t);
    if (error && error_size) snprintf(error, error_size, "%s", e.text);
    *out = t;
    return s;
}

/* ---- leaving a state ---- */

/* What only an active task needs. */
static void release_work(struct utter_task *t)
{
    cancel_attach_flag(&t->cancel, NULL);
    text_pieces_free(&t->pieces);
    mem_free(t->text);
    t->text = NULL;
    t->piece_open = false;
}

static void drop_samples(struct utter_task *t)
{
    mem_free(t->samples);
    t->samples = NULL;
    t->capacity = 0;
    t->n_samples = t->dropped = t->pulled = 0;
}

static utter_status end(struct utter_task *t, enum utter_state state, utter_status status)
{
    t->state = state;
    if (state != UTTER_STATE_COMPLETED) drop_samples(t);
    release_work(t);
    return status;
}

static bool is_active(const struct utter_task *t)
{
    return t->state == UTTER_STATE_PROMPT || t->state == UTTER_STATE_GENERATING;
}

void utter_task_free(utter_task **task)
{
    if (!task || !*task) return;
    end(*task, UTTER_STATE_IDLE, UTTER_OK);
    utterance_free(&(*task)->utterance);
    mem_free(*task);
    *task = NULL;
}

utter_status utter_task_reset(utter_task *t)
{
    if (!t) return UTTER_INVALID_ARGUMENT;
    end(t, UTTER_STATE_IDLE, UTTER_OK);
    cancel_clear(&t->cancel);
    t->piece = t->queued = 0;
    t->n_pieces = t->text_bytes_done = 0;
    t->tokens_of_done_pieces = t->n_tokens = 0;
    t->truncated = false;
    return UTTER_OK;
}

/* ---- start ---- */

static utter_status check_range(const char *name, double v, double min, double max, struct error *e)
{
    if (v >= min && v <= max) return UTTER_OK; /* false for NaN */
    return error_set(e, UTTER_INVALID_ARGUMENT, "%s: %g is outside %g..%g", name, v, min, max);
}

static utter_status check_request(const utter_request *r, struct error *e)
{
    if (!r->text || r->text_length == 0) return error_set(e, UTTER_INVALID_ARGUMENT, "text: there is none");
    const struct {
        const char *name;
        double value, min, max;
    } fields[] = {
        {"prompt_batch_size", r->prompt_batch_size, 1, INT32_MAX},
        {"max_tokens", r->max_tokens, 0, GENERATE_MAX_TOKENS},
        {"top_k", r->top_k, 0, INT32_MAX},
        {"top_p", (double)r->top_p, 1e-6, 1},
        {"min_p", (double)r->min_p, 0, 1},
        {"temperature", (double)r->temperature, 0, 100},
        {"repetition_penalty", (double)r->repetition_penalty, (double)0.01f, 100},
        {"exaggeration", (double)r->exaggeration, 0, 10},
        {"cfg_weight", (double)r->cfg_weight, 0, 10},
        {"cfm_steps", r->cfm_steps, 1, 100},
        {"stream", r->stream, UTTER_STREAM_OFF, UTTER_STREAM_AUTO},
        {"stream_first_chunk_tokens", r->stream_first_chunk_tokens, 1, INT32_MAX},
        {"stream_chunk_tokens", r->stream_chunk_tokens, 1, INT32_MAX},
        {"stream_context_tokens", r->stream_context_tokens, 0, INT32_MAX},
        {"stream_first_prompt_tokens", r->stream_first_prompt_tokens, 0, INT32_MAX},
        {"sentence_silence", (double)r->sentence_silence, 0, 10},
        {"drop_pulled", r->drop_pulled, 0, 1},
        {"stream_serial", r->stream_serial, 0, 2},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const utter_status s = check_range(fields[i].name, fields[i].value, fields[i].min, fields[i].max, e);
        if (s != UTTER_OK) return s;
    }
    return UTTER_OK;
}

static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t random_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        seed = (uint64_t)now.tv_sec * 1000000007u ^ (uint64_t)now.tv_nsec;
    }
    return seed & 0xFFFFFFFFu; /* short enough to type again */
}

/* A request that passes has its text copied and split, but the task is untouched so far. */
static utter_status prepare(const struct utter_task *t, const utter_request *from, utter_request *r, char **text,
                            struct text_pieces *pieces, struct error *e)
{
    if (!from) return error_set(e, UTTER_INVALID_ARGUMENT, "request: there is none");
    utter_request_init(r, t->model);
    utter_status s = abi_read(r, sizeof *r, from, "request", e);
    if (s == UTTER_OK) s = check_request(r, e);
    if (s != UTTER_OK) return s;
    if (!(*text = mem_alloc(r->text_length))) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for the text");
    memcpy(*text, r->text, r->text_length);
    const struct text_split_options o = {.tags = t->model->tokenizer};
    return text_split(pieces, *text, r->text_length, &o, e);
}

static void tell_notices(const struct utter_model *m, const struct text_notices *n)
{
    if (n->n_unknown_tags > 0)
        model_log(m, UTTER_LOG_WARNING, "left out %s, which is no tag of this model (%d such)", n->unknown_tag,
                  n->n_unknown_tags);
    if (n->n_emoji + n->n_ornaments > 0)
        model_log(m, UTTER_LOG_INFO, "left out %d emoji and %d ornaments", n->n_emoji, n->n_ornaments);
}

/* With fewer tokens than give a sample the first sound would have to wait for a whole later chunk. */
static int first_chunk_tokens(const utter_request *r)
{
    const int least = s3gen_first_tokens(&(struct s3gen_options){0});
    return r->stream_first_chunk_tokens > least ? r->stream_first_chunk_tokens : least;
}

utter_status utter_task_start(utter_task *t, const utter_request *request)
{
    if (!t) return UTTER_INVALID_ARGUMENT;
    if (is_active(t))
        return error_set(&t->error, UTTER_INVALID_STATE, "the task is active: reset it or step it to its end first");
    utter_request r;
    char *text = NULL;
    struct text_pieces pieces = {0};
    utter_status s = prepare(t, request, &r, &text, &pieces, &t->error);
    if (s != UTTER_OK) {
        text_pieces_free(&pieces);
        mem_free(text);
        return s;
    }
    utter_task_reset(t);
    t->error.text[0] = '\0';
    t->request = r;
    t->request.text = t->text = text;
    t->pieces = pieces;
    t->n_pieces = pieces.n;
    tell_notices(t->model, &pieces.notices);
    if (r.seed == UTTER_SEED_RANDOM) t->request.seed = random_seed();
    if (!r.voice) t->request.voice = t->model->voice;
    if (!t->request.voice)
        return end(
            t, UTTER_STATE_FAILED,
            error_set(&t->error, UTTER_VOICE_UNUSABLE, "%s has no built-in voice: name a voice", t->model->path));
    if (t->request.voice->model != t->model)
        return end(t, UTTER_STATE_FAILED,
                   error_set(&t->error, UTTER_VOICE_UNUSABLE, "the voice was made for %s, not for %s",
                             t->request.voice->model->path, t->model->path));
    t->n_runs++;
    governor_begin(&t->governor, r.stream == UTTER_STREAM_AUTO, first_chunk_tokens(&r), r.stream_chunk_tokens,
                   now_seconds());
    t->state = UTTER_STATE_PROMPT;
    return UTTER_OK;
}

/* ---- sound ---- */

static utter_status append_samples(struct utter_task *t, const float *samples, size_t n)
{
    const size_t held = (size_t)(t->n_samples - t->dropped);
    if (held + n > MAX_SAMPLES)
        return error_set(&t->error, UTTER_ENGINE, "more than %d hours of sound were not pulled",
                         MAX_SAMPLES / S3GEN_SAMPLE_RATE / 3600);
    if (held + n > t->capacity) {
        const size_t capacity = (held + n) * 2;
        float *grown = mem_realloc(t->samples, capacity * sizeof *grown);
        if (!grown) return error_set(&t->error, UTTER_OUT_OF_MEMORY, "no memory for %zu samples", capacity);
        t->samples = grown;
        t->capacity = capacity;
    }
    for (size_t i = 0; i < n; i++) {
        const float v = samples ? samples[i] : 0;
        if (!isfinite(v))
            return error_set(&t->error, UTTER_ENGINE, "%s made a sample that is no number", t->model->path);
        t->samples[held + i] = v;
    }
    t->n_samples += (int64_t)n;
    return UTTER_OK;
}

static utter_status end_piece(struct utter_task *t)
{
    const char *spoken = t->pieces.items[t->piece].spoken;
    t->truncated |= utterance_truncated(t->utterance);
    if (utterance_truncated(t->utterance)) model_log(t->model, UTTER_LOG_WARNING, "a limit ended \"%.60s\"", spoken);
    if (utterance_suspiciously_short(t->utterance))
        model_log(t->model, UTTER_LOG_WARNING, "suspiciously short: \"%.60s\"", spoken);
    t->tokens_of_done_pieces = t->n_tokens;
    t->text_bytes_done += t->pieces.items[t->piece].n_bytes;
    t->piece_open = false;
    if (++t->piece == t->n_pieces) return UTTER_DONE;
    t->state = UTTER_STATE_PROMPT;
    return append_samples(t, NULL, (size_t)(t->request.sentence_silence * S3GEN_SAMPLE_RATE));
}

/* How many tokens are made beside a block of sound: as many as the next chunk will want. The first sound of all gets every thread
 * for itself. */
static int tokens_ahead(const struct utter_task *t)
{
    if (t->request.stream == UTTER_STREAM_OFF || t->request.stream_serial == 1 || t->n_samples == 0) return 0;
    return t->governor.tokens;
}

/* One block of sound. DONE when there is no more of the last piece. */
static utter_status sound_step(struct utter_task *t)
{
    const float *samples;
    int n;
    const utter_status s = utterance_sound(t->utterance, tokens_ahead(t), &samples, &n, &t->error);
    t->sound_pending = s == UTTER_AUDIO;
    if (s == UTTER_AUDIO) {
        governor_sound(&t->governor, (double)n / S3GEN_SAMPLE_RATE, now_seconds());
        return append_samples(t, samples, (size_t)n);
    }
    if (s < 0) return s;
    governor_chunk_end(&t->governor, now_seconds());
    return s == UTTER_DONE ? end_piece(t) : s;
}

static bool chunk_due(const struct utter_task *t)
{
    if (t->request.stream == UTTER_STREAM_OFF) return false;
    return utterance_tokens(t->utterance) - t->sounded_tokens >= t->governor.tokens;
}

/* ---- steps ---- */

static struct utterance_options piece_options(const struct utter_task *t, size_t piece)
{
    const utter_request *r = &t->request;
    return (struct utterance_options){
        .seed = rng_bits(rng_stream(r->seed, "piece"), piece), /* so that no piece depends on those before it */
        .expected_seconds = t->pieces.items[piece].seconds,
        .prompt_rows = r->prompt_batch_size,
        .max_tokens = r->max_tokens,
        .top_k = r->top_k,
        .top_p = r->top_p,
        .temperature = r->temperature,
        .repetition_penalty = r->repetition_penalty,
        .cfm_steps = r->cfm_steps,
        .context_tokens = r->stream_context_tokens,
        .first_prompt_tokens = r->stream_first_prompt_tokens,
        .keep_prefix = t->pieces.n > 1 || t->n_runs > 1,
    };
}

static utter_status open_piece(struct utter_task *t)
{
    t->piece_open = true;
    t->tokens_done = t->sound_pending = false;
    t->sounded_tokens = 0;
    if (t->queued > t->piece) {
        utterance_next(t->utterance);
        return UTTER_OK;
    }
    t->queued = t->piece + 1;
    const struct utterance_options o = piece_options(t, t->piece);
    return utterance_begin(t->utterance, t->pieces.items[t->piece].spoken, t->request.voice, &o, &t->error);
}

/* The tokens of the next pieces are made together with this one's, where nobody waits for its first sound. */
static void queue_piece(struct utter_task *t)
{
    const int32_t serial = t->request.stream_serial;
    if (t->request.stream != UTTER_STREAM_OFF || serial == 1 || t->queued == t->n_pieces) return;
    if (serial == 2 && t->n_samples == 0) return;
    const struct utterance_options o = piece_options(t, t->queued);
    if (utterance_queue(t->utterance, t->pieces.items[t->queued].spoken, &o)) t->queued++;
}

static utter_status prompt_step(struct utter_task *t)
{
    utter_status s = t->piece_open ? UTTER_OK : open_piece(t);
    if (s == UTTER_OK) s = utterance_prompt(t->utterance, &t->error);
    if (s != UTTER_DONE) return s;
    t->state = UTTER_STATE_GENERATING;
    return UTTER_OK;
}

/* One token, and with it the first block of a chunk of sound when that is due; later blocks take a step each. */
static utter_status generating_step(struct utter_task *t)
{
    if (t->sound_pending || t->tokens_done) return sound_step(t);
    queue_piece(t);
    const utter_status s = utterance_token(t->utterance, &t->error);
    if (s < 0) return s;
    t->n_tokens = t->tokens_of_done_pieces + utterance_tokens(t->utterance);
    if (s == UTTER_DONE) {
        if (utterance_tokens(t->utterance) == 0)
            return error_set(&t->error, UTTER_ENGINE, "the model said nothing for \"%.60s\"",
                             t->pieces.items[t->piece].spoken);
        t->tokens_done = true;
    } else if (!chunk_due(t)) {
        return UTTER_OK;
    }
    t->sounded_tokens = utterance_tokens(t->utterance);
    return sound_step(t);
}

static utter_status cancelled(struct utter_task *t)
{
    return end(t, UTTER_STATE_CANCELLED, error_set(&t->error, UTTER_CANCELLED, "cancelled"));
}

static utter_status step(struct utter_task *t)
{
    if (t->state == UTTER_STATE_CANCELLED) return UTTER_CANCELLED;
    if (!is_active(t)) return error_set(&t->error, UTTER_INVALID_STATE, "the task is not active: start it first");
    if (cancel_poll(&t->cancel)) return cancelled(t);
    const int64_t samples_before = t->n_samples;
    utter_status s = t->state == UTTER_STATE_PROMPT ? prompt_step(t) : generating_step(t);
    if (cancel_poll(&t->cancel)) return cancelled(t); /* the commit point */
    if (s < 0) return end(t, UTTER_STATE_FAILED, s);
    if (s == UTTER_DONE) return end(t, UTTER_STATE_COMPLETED, UTTER_DONE);
    return t->n_samples > samples_before ? UTTER_AUDIO : UTTER_OK;
}

static utter_progress progress_of(const struct utter_task *t)
{
    const bool open = is_active(t) && t->piece_open;
    return (utter_progress){
        .state = (int32_t)t->state,
        .pieces = (int32_t)t->n_pieces,
        .pieces_done = (int32_t)t->piece,
        .prompt_tokens_remaining = open ? utterance_prompt_remaining(t->utterance) : 0,
        .tokens_generated = t->n_tokens,
        .samples_ready = t->n_samples,
        .text_bytes_done = t->text_bytes_done,
        .seed = t->request.seed,
        .truncated = t->truncated,
    };
}

utter_status utter_task_progress(const utter_task *t, utter_progress *progress)
{
    if (!t || !progress) return UTTER_INVALID_ARGUMENT;
    const utter_progress known = progress_of(t);
    return abi_write(progress, &known, sizeof known) ? UTTER_OK : UTTER_INVALID_ARGUMENT;
}

utter_status utter_task_step(utter_task *t, utter_progress *progress)
{
    if (!t) return UTTER_INVALID_ARGUMENT;
    if (progress && utter_task_progress(t, progress) != UTTER_OK)
        return error_set(&t->error, UTTER_INVALID_ARGUMENT, "progress: struct_size is not set");
    const utter_status s = step(t);
    if (progress) utter_task_progress(t, progress);
    return s;
}

/* ---- cancelling from outside ---- */

void utter_task_cancel(utter_task *t)
{
    if (t) cancel_request(&t->cancel);
}

utter_status utter_task_set_cancel_flag(utter_task *t, const signed char *flag)
{
    if (!t) return UTTER_INVALID_ARGUMENT;
    if (!flag) return error_set(&t->error, UTTER_INVALID_ARGUMENT, "cancel flag: the address is NULL");
    if (!is_active(t)) return error_set(&t->error, UTTER_INVALID_STATE, "cancel flag: the task is not active");
    cancel_attach_flag(&t->cancel, flag);
    return UTTER_OK;
}

/* ---- results ---- */

utter_status utter_task_pull(utter_task *t, float *samples, size_t capacity, size_t *count)
{
    if (!t || !count || (!samples && capacity > 0)) return UTTER_INVALID_ARGUMENT;
    *count = 0;
    if (!is_active(t) && t->state != UTTER_STATE_COMPLETED)
        return error_set(&t->error, UTTER_INVALID_STATE, "there are no samples in this state");
    const size_t left = (size_t)(t->n_samples - t->pulled);
    *count = left < capacity ? left : capacity;
    if (*count > 0) memcpy(samples, t->samples + (t->pulled - t->dropped), *count * sizeof *samples);
    t->pulled += (int64_t)*count;
    if (t->request.drop_pulled && t->pulled == t->n_samples) t->dropped = t->pulled;
    return UTTER_OK;
}

utter_status utter_task_output_info(const utter_task *t, utter_output_info *info)
{
    if (!t || !info) return UTTER_INVALID_ARGUMENT;
    if (t->state != UTTER_STATE_COMPLETED) return UTTER_INVALID_STATE;
    const utter_output_info known = {.sample_rate = S3GEN_SAMPLE_RATE,
                                     .channels = 1,
                                     .sample_count = t->n_samples,
                                     .seed = t->request.seed,
                                     .truncated = t->truncated};
    return abi_write(info, &known, sizeof known) ? UTTER_OK : UTTER_INVALID_ARGUMENT;
}

utter_status utter_task_read(const utter_task *t, int64_t offset, float *samples, size_t capacity, size_t *count)
{
    if (!t || !count) return UTTER_INVALID_ARGUMENT;
    *count = 0;
    if (t->state != UTTER_STATE_COMPLETED || t->request.drop_pulled) return UTTER_INVALID_STATE;
    if (offset < 0 || offset > t->n_samples) return UTTER_INVALID_ARGUMENT;
    *count = (size_t)(t->n_samples - offset);
    if (!samples) return UTTER_OK;
    if (*count > capacity) *count = capacity;
    if (*count > 0) memcpy(samples, t->samples + offset, *count * sizeof *samples);
    return UTTER_OK;
}

const char *utter_task_last_error(const utter_task *t)
{
    return t ? t->error.text : "no task";
}
