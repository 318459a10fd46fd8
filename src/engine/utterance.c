#include "engine/utterance.h"

#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "chatterbox/generate.h"
#include "text/punc_norm.h"

enum { MAX_AHEAD = 128 };                /* tokens, some 5 s */
#define AHEAD_SCRATCH ((size_t)64 << 20) /* a decode step needs a few MiB */

/* The longest prompt (voice, text, start) and the most speech. */
enum { MAX_POSITIONS = 1 + 375 + 1024 + 1 + GENERATE_MAX_TOKENS };

/* Tokens that were made while sound was, and what utterance_token has not told yet: whether it went well, and how many there were
 * after each. One thread makes them, another waits for it: nothing here needs a lock. */
struct ahead {
    int n_wanted, n, n_told;
    int tokens[MAX_AHEAD];
    utter_status status[MAX_AHEAD];
    struct error error; /* of the last one, when it failed */
    atomic_bool enough; /* the sound is ready: no further token is begun */
};

struct utterance {
    const struct utter_model *model;
    struct stream *stream, *ahead_stream; /* the second for tokens beside sound */
    struct ahead ahead;
    struct t3_gpt2_state *t3;
    struct generation *generation;
    struct s3gen_stream *s3gen;
    struct utterance_options options;
    const utter_voice *voice;
    uint64_t computed_voice; /* serial of the voice whose whole prompt the T3 state holds, 0 for none */
    int n_tokens;            /* made so far, the silence at the end not counted */
    int mel_tokens;          /* how many the mel was computed for */
    bool ended, mel_final;
};

utter_status utterance_create(struct utterance **out, const struct utter_model *m, struct cancel *cancel,
                              struct error *e)
{
    *out = NULL;
    struct utterance *u = mem_calloc(1, sizeof *u);
    if (!u) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a task");
    u->model = m;
    utter_status s = stream_create(&u->stream, m->device, cancel, 0, e);
    if (s == UTTER_OK) s = stream_create(&u->ahead_stream, m->device, cancel, AHEAD_SCRATCH, e);
    if (s == UTTER_OK) s = t3_gpt2_state_create(&u->t3, m->t3, m->device, MAX_POSITIONS, e);
    if (s == UTTER_OK) s = generation_create(&u->generation, m->t3->speech_vocab, e);
    if (s == UTTER_OK) s = s3gen_stream_create(&u->s3gen, m->s3gen, e);
    if (s != UTTER_OK) utterance_free(&u);
    *out = u;
    return s;
}

void utterance_free(struct utterance **utterance)
{
    struct utterance *u = *utterance;
    if (!u) return;
    s3gen_stream_free(&u->s3gen);
    generation_free(&u->generation);
    t3_gpt2_state_free(&u->t3);
    stream_destroy(&u->stream);
    stream_destroy(&u->ahead_stream);
    mem_free(u);
    *utterance = NULL;
}

/* A failure that latched in the stream, with its text. */
static utter_status stream_failure(const struct stream *s, struct error *e)
{
    return error_set(e, stream_status(s), "%s", stream_error(s));
}

/* ---- text and prompt ---- */

static utter_status begin_tokens(struct utterance *u, const int32_t *ids, size_t n_ids, struct error *e)
{
    const struct conds *c = &u->voice->conds;
    const struct t3_gpt2_voice voice = {c->speaker_emb, c->t3_tokens, c->n_t3_tokens};
    const utter_status s = t3_gpt2_begin(u->t3, &voice, voice_prefix(u->voice), ids, (int)n_ids, e);
    if (s != UTTER_OK) return s;
    const struct utterance_options *o = &u->options;
    const struct generation_options g = {
        .sampler = {.temperature = o->temperature,
                    .top_k = o->top_k,
                    .top_p = o->top_p,
                    .repetition_penalty = o->repetition_penalty},
        .stream = rng_stream(o->seed, "t3"),
        .max_tokens = o->max_tokens,
        .expected_seconds = o->expected_seconds,
        .room = t3_gpt2_room(u->t3),
    };
    return generation_begin(u->generation, &g, e);
}

/* The voice's rows that the utterance before computed need not be computed again to be kept. */
static utter_status keep_rows(struct utterance *u, const utter_voice *voice, struct error *e)
{
    const bool there = u->computed_voice == voice->kept->serial;
    u->computed_voice = 0;
    if (!there || !u->options.keep_prefix || voice_prefix(voice)) return UTTER_OK;
    const utter_status s = voice_keep_prefix(voice, u->t3, u->stream, e);
    return s < 0 ? s : UTTER_OK;
}

utter_status utterance_begin(struct utterance *u, const char *text, const utter_voice *voice,
                             const struct utterance_options *o, struct error *e)
{
    u->options = *o;
    u->voice = voice;
    u->n_tokens = u->mel_tokens = 0;
    u->ended = u->mel_final = false;
    u->ahead.n = u->ahead.n_told = 0;
    stream_clear(u->stream);
    stream_clear(u->ahead_stream);
    char *normal = NULL;
    int32_t *ids = NULL;
    size_t n = 0, n_ids = 0;
    utter_status s = keep_rows(u, voice, e);
    if (s == UTTER_OK) s = punc_norm(&normal, &n, PUNC_NORM_TURBO, text, strlen(text), e);
    if (s == UTTER_OK) s = tokenizer_encode(u->model->tokenizer, normal, n, &ids, &n_ids, e);
    if (s == UTTER_OK) s = begin_tokens(u, ids, n_ids, e);
    mem_free(ids);
    mem_free(normal);
    if (s != UTTER_OK) return s;
    const struct s3gen_options sound = {.seed = o->seed,
                                        .n_steps = o->cfm_steps,
                                        .context_tokens = o->context_tokens,
                                        .first_prompt = o->first_prompt_tokens};
    s3gen_stream_begin(u->s3gen, &voice->conds, &sound);
    return UTTER_OK;
}

int utterance_prompt_remaining(const struct utterance *u)
{
    return t3_gpt2_prompt_remaining(u->t3);
}

utter_status utterance_prompt(struct utterance *u, int max_rows, struct error *e)
{
    const utter_status s = t3_gpt2_prefill(u->t3, u->stream, max_rows);
    if (s < 0) return stream_failure(u->stream, e);
    if (s == UTTER_DONE) u->computed_voice = u->voice->kept->serial;
    if (s == UTTER_DONE && u->options.keep_prefix) return voice_keep_prefix(u->voice, u->t3, u->stream, e);
    return s;
}

/* ---- tokens ---- */

/* Draws one token and feeds it. *n_tokens: how many there are then. */
static utter_status make_token(struct utterance *u, struct stream *s, int *n_tokens, struct error *e)
{
    int32_t token;
    utter_status status = generation_next(u->generation, t3_gpt2_logits(u->t3), &token, e);
    *n_tokens = u->generation->n_speech;
    if (status != UTTER_OK) return status;
    status = t3_gpt2_decode(u->t3, s, token);
    return status < 0 ? stream_failure(s, e) : status;
}

static void make_ahead(void *arg)
{
    struct utterance *u = arg;
    struct ahead *a = &u->ahead;
    bool more = true;
    while (more && a->n < a->n_wanted && !atomic_load_explicit(&a->enough, memory_order_relaxed)) {
        a->status[a->n] = make_token(u, u->ahead_stream, &a->tokens[a->n], &a->error);
        more = a->status[a->n++] == UTTER_OK;
    }
}

/* One that was made ahead already. */
static utter_status tell_ahead(struct utterance *u, int *n_tokens, struct error *e)
{
    struct ahead *a = &u->ahead;
    const int i = a->n_told++;
    const utter_status status = a->status[i];
    *n_tokens = a->tokens[i];
    if (a->n_told == a->n) a->n = a->n_told = 0;
    return status < 0 ? error_set(e, status, "%s", a->error.text) : status;
}

utter_status utterance_token(struct utterance *u, struct error *e)
{
    int n_tokens;
    const utter_status s = u->ahead.n > 0 ? tell_ahead(u, &n_tokens, e) : make_token(u, u->stream, &n_tokens, e);
    if (s < 0) return s;
    u->n_tokens = n_tokens;
    if (s == UTTER_DONE) {
        generation_finish(u->generation);
        u->ended = true;
    }
    return s;
}

int utterance_tokens(const struct utterance *u)
{
    return u->n_tokens;
}
bool utterance_truncated(const struct utterance *u)
{
    return generation_truncated(u->generation);
}
bool utterance_suspiciously_short(const struct utterance *u)
{
    return u->generation->suspiciously_short;
}

/* ---- sound ---- */

/* Makes room for n tokens that are not told yet; false when there are as many, or the last one is known. */
static bool wants_ahead(struct ahead *a, int n)
{
    a->n -= a->n_told;
    memmove(a->tokens, a->tokens + a->n_told, (size_t)a->n * sizeof *a->tokens);
    memmove(a->status, a->status + a->n_told, (size_t)a->n * sizeof *a->status);
    a->n_told = 0;
    a->n_wanted = n < MAX_AHEAD ? n : MAX_AHEAD;
    atomic_store_explicit(&a->enough, false, memory_order_relaxed);
    return a->n < a->n_wanted && (a->n == 0 || a->status[a->n - 1] == UTTER_OK);
}

utter_status utterance_sound(struct utterance *u, int n_ahead, const float **samples, int *n_samples, struct error *e)
{
    const struct generation *g = u->generation;
    const int n_tokens = u->ended ? g->n_speech : u->n_tokens; /* there may be more already, made ahead */
    const bool fresh = !u->mel_final && (u->ended || n_tokens > u->mel_tokens);
    utter_status s = UTTER_OK;
    bool forked = false;
    if (fresh && !u->ended && wants_ahead(&u->ahead, n_ahead)) forked = stream_fork(u->ahead_stream, make_ahead, u);
    if (fresh) {
        s = s3gen_stream_mel(u->s3gen, u->stream, g->speech, n_tokens, u->ended);
        u->mel_tokens = n_tokens;
        u->mel_final = u->ended;
    }
    if (s == UTTER_OK) s = s3gen_stream_wave(u->s3gen, u->stream);
    if (forked) {
        atomic_store_explicit(&u->ahead.enough, true, memory_order_relaxed);
        stream_join(u->ahead_stream);
    }
    if (s < 0) return stream_failure(u->stream, e);
    if (s == UTTER_AUDIO) *samples = s3gen_stream_samples(u->s3gen, n_samples);
    return s;
}
