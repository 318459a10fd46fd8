#include "engine/utterance.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "chatterbox/generate.h"
#include "text/punc_norm.h"

#define AHEAD_SCRATCH ((size_t)64 << 20) /* a decode step needs a few MiB */

enum {
    /* The longest prompt (voice, text, start) and the most speech. */
    MAX_POSITIONS = 1 + 375 + 1024 + 1 + GENERATE_MAX_TOKENS,
    /* Pieces begun and queued. More than are computed together: where a short one has ended beside a long one, the next takes
     * its place. */
    MAX_LANES = 2 * T3_MAX_TOGETHER,
    MAX_MADE =
        MAX_POSITIONS / T3_MIN_BATCH_ROWS + 2 + GENERATE_MAX_TOKENS /* voice and text are cut apart: 2 batches more */
};

/* A piece from text to tokens: all that was made of it, step by step, and how much of that was told. */
struct lane {
    struct utterance_options options;
    struct t3_gpt2_state *t3; /* one of the utterance's, its own until ENDED */
    struct generation *generation;
    enum { LANE_PROMPT, LANE_TOKENS, LANE_ENDED } stage; /* of what is made next */
    int n_made, n_told;
    struct {
        utter_status status;
        int n; /* rows of the prompt left after the step, or tokens that there are */
    } made[MAX_MADE];
    struct error error; /* of the last one, when it failed */
};

struct utterance {
    const struct utter_model *model;
    struct stream *stream, *ahead_stream; /* the second for tokens beside sound */
    struct t3_gpt2_state *t3[T3_MAX_TOGETHER];
    struct lane lanes[MAX_LANES]; /* a ring: the current piece and those queued */
    int first, n_lanes;
    struct s3gen_stream *s3gen;
    const utter_voice *voice;
    uint64_t computed_voice;        /* serial of the voice whose whole prompt t3[0] holds, 0 for none */
    int prompt_remaining, n_tokens; /* as told; the silence at the end not counted */
    int mel_tokens;                 /* how many the mel was computed for */
    bool ended, mel_final;
    int n_ahead;        /* tokens to make beside sound */
    atomic_bool enough; /* the sound is ready: no further one is begun */
};

utter_status utterance_create(struct utterance **out, const struct utter_model *m, struct cancel *cancel,
                              struct error *e)
{
    *out = NULL;
    struct utterance *u = mem_calloc(1, sizeof *u);
    if (!u) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a task");
    u->model = m;
    u->n_lanes = 1;
    utter_status s = stream_create(&u->stream, m->device, cancel, 0, e);
    if (s == UTTER_OK) s = stream_create(&u->ahead_stream, m->device, cancel, AHEAD_SCRATCH, e);
    if (s == UTTER_OK) s = t3_gpt2_state_create(&u->t3[0], m->t3, m->device, MAX_POSITIONS, e);
    if (s == UTTER_OK) s = generation_create(&u->lanes[0].generation, m->t3->speech_vocab, e);
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
    for (int i = 0; i < MAX_LANES; i++) generation_free(&u->lanes[i].generation);
    for (int i = 0; i < T3_MAX_TOGETHER; i++) t3_gpt2_state_free(&u->t3[i]);
    stream_destroy(&u->stream);
    stream_destroy(&u->ahead_stream);
    mem_free(u);
    *utterance = NULL;
}

/* The i-th piece from the current one on. */
static struct lane *lane_at(struct utterance *u, int i)
{
    return &u->lanes[(u->first + i) % MAX_LANES];
}

/* A failure that latched in the stream, with its text. */
static utter_status stream_failure(const struct stream *s, struct error *e)
{
    return error_set(e, stream_status(s), "%s", stream_error(s));
}

/* ---- making ---- */

static void write_down(struct lane *l, utter_status status, int n)
{
    l->made[l->n_made].status = status;
    l->made[l->n_made++].n = n;
    if (status < 0) l->stage = LANE_ENDED;
}

static utter_status begin_tokens(struct lane *l, const utter_voice *v, const int32_t *ids, size_t n_ids,
                                 struct error *e)
{
    const struct conds *c = &v->conds;
    const struct t3_gpt2_voice voice = {c->speaker_emb, c->t3_tokens, c->n_t3_tokens};
    const utter_status s = t3_gpt2_begin(l->t3, &voice, voice_prefix(v), ids, (int)n_ids, e);
    if (s != UTTER_OK) return s;
    const struct utterance_options *o = &l->options;
    const struct generation_options g = {
        .sampler = {.temperature = o->temperature,
                    .top_k = o->top_k,
                    .top_p = o->top_p,
                    .repetition_penalty = o->repetition_penalty},
        .stream = rng_stream(o->seed, "t3"),
        .max_tokens = o->max_tokens,
        .expected_seconds = o->expected_seconds,
        .room = t3_gpt2_room(l->t3),
    };
    return generation_begin(l->generation, &g, e);
}

static utter_status begin_lane(struct lane *l, const struct utterance *u, const char *text, struct t3_gpt2_state *t3,
                               const struct utterance_options *o, struct error *e)
{
    l->options = *o;
    l->t3 = t3;
    l->stage = LANE_PROMPT;
    l->n_made = l->n_told = 0;
    char *normal = NULL;
    int32_t *ids = NULL;
    size_t n = 0, n_ids = 0;
    utter_status s = punc_norm(&normal, &n, PUNC_NORM_TURBO, text, strlen(text), e);
    if (s == UTTER_OK) s = tokenizer_encode(u->model->tokenizer, normal, n, &ids, &n_ids, e);
    if (s == UTTER_OK) s = begin_tokens(l, u->voice, ids, n_ids, e);
    mem_free(ids);
    mem_free(normal);
    return s;
}

static void make_prompt(struct utterance *u, struct lane *l)
{
    utter_status s = t3_gpt2_prefill(l->t3, u->stream, l->options.prompt_rows);
    if (s < 0)
        s = stream_failure(u->stream, &l->error);
    else if (s == UTTER_DONE && l->options.keep_prefix)
        s = voice_keep_prefix(u->voice, l->t3, u->stream, &l->error);
    if (s == UTTER_DONE) l->stage = LANE_TOKENS;
    write_down(l, s, t3_gpt2_prompt_remaining(l->t3));
}

/* False when the lane has ended, which is then written down; else *token wants to be fed. */
static bool draw(struct lane *l, int32_t *token)
{
    const utter_status s = generation_next(l->generation, t3_gpt2_logits(l->t3), token, &l->error);
    if (s == UTTER_OK) return true;
    l->stage = LANE_ENDED;
    write_down(l, s, l->generation->n_speech);
    return false;
}

/* Draws and feeds a token of the current piece and, unless that was its last, of every other one that has come so far. */
static void make_tokens(struct utterance *u, struct stream *s)
{
    struct lane *fed[T3_MAX_TOGETHER];
    struct t3_gpt2_state *states[T3_MAX_TOGETHER] = {NULL};
    int32_t tokens[T3_MAX_TOGETHER] = {0};
    int n = 0;
    for (int i = 0; i < u->n_lanes; i++) {
        struct lane *l = lane_at(u, i);
        if (l->stage == LANE_TOKENS && draw(l, &tokens[n])) {
            fed[n] = l;
            states[n++] = l->t3;
        }
        if (n == 0) return;
    }
    const utter_status status = t3_gpt2_decode_many(states, n, s, tokens);
    for (int i = 0; i < n; i++)
        write_down(fed[i], status < 0 ? stream_failure(s, &fed[i]->error) : UTTER_OK, fed[i]->generation->n_speech);
}

/* One batch of one queued piece's prompt. What fails is told when it is that piece's turn, and breaks nothing before; a cancel is
 * everybody's. */
static void make_queued_prompt(struct utterance *u)
{
    for (int i = 1; i < u->n_lanes; i++)
        if (lane_at(u, i)->stage == LANE_PROMPT) {
            make_prompt(u, lane_at(u, i));
            const utter_status s = stream_status(u->stream);
            if (s < 0 && s != UTTER_CANCELLED) stream_clear(u->stream);
            return;
        }
}

/* ---- telling ---- */

static utter_status tell(struct lane *l, int *n, struct error *e)
{
    assert(l->n_told < l->n_made);
    const utter_status s = l->made[l->n_told].status;
    *n = l->made[l->n_told++].n;
    return s < 0 ? error_set(e, s, "%s", l->error.text) : s;
}

static bool all_told(const struct lane *l)
{
    return l->n_told == l->n_made;
}

utter_status utterance_prompt(struct utterance *u, struct error *e)
{
    struct lane *l = lane_at(u, 0);
    if (all_told(l)) make_prompt(u, l);
    const utter_status s = tell(l, &u->prompt_remaining, e);
    if (s == UTTER_DONE) u->computed_voice = u->voice->kept->serial;
    return s;
}

utter_status utterance_token(struct utterance *u, struct error *e)
{
    struct lane *l = lane_at(u, 0);
    if (all_told(l)) {
        make_queued_prompt(u);
        make_tokens(u, u->stream);
    }
    const utter_status s = tell(l, &u->n_tokens, e);
    if (s == UTTER_DONE) {
        generation_finish(l->generation);
        u->ended = true;
    }
    return s;
}

int utterance_prompt_remaining(const struct utterance *u)
{
    return u->prompt_remaining;
}
int utterance_tokens(const struct utterance *u)
{
    return u->n_tokens;
}
bool utterance_truncated(const struct utterance *u)
{
    return generation_truncated(u->lanes[u->first].generation);
}
bool utterance_suspiciously_short(const struct utterance *u)
{
    return u->lanes[u->first].generation->suspiciously_short;
}

/* ---- pieces ---- */

/* The voice's rows that the utterance before computed need not be computed again to be kept. */
static utter_status keep_rows(struct utterance *u, const utter_voice *voice, bool keep_prefix, struct error *e)
{
    const bool there = u->computed_voice == voice->kept->serial;
    u->computed_voice = 0;
    if (!there || !keep_prefix || voice_prefix(voice)) return UTTER_OK;
    const utter_status s = voice_keep_prefix(voice, u->t3[0], u->stream, e);
    return s < 0 ? s : UTTER_OK;
}

static void begin_sound(struct utterance *u)
{
    const struct utterance_options *o = &lane_at(u, 0)->options;
    u->prompt_remaining = u->n_tokens = u->mel_tokens = 0;
    u->ended = u->mel_final = false;
    const struct s3gen_options sound = {.seed = o->seed,
                                        .n_steps = o->cfm_steps,
                                        .context_tokens = o->context_tokens,
                                        .first_prompt = o->first_prompt_tokens};
    s3gen_stream_begin(u->s3gen, &u->voice->conds, &sound);
}

utter_status utterance_begin(struct utterance *u, const char *text, const utter_voice *voice,
                             const struct utterance_options *o, struct error *e)
{
    u->voice = voice;
    u->first = 0;
    u->n_lanes = 1;
    stream_clear(u->stream);
    stream_clear(u->ahead_stream);
    utter_status s = keep_rows(u, voice, o->keep_prefix, e);
    if (s == UTTER_OK) s = begin_lane(lane_at(u, 0), u, text, u->t3[0], o, e);
    if (s == UTTER_OK) begin_sound(u);
    return s;
}

/* One that no piece computes with; made when it is first needed. NULL when there is none. */
static struct t3_gpt2_state *idle_state(struct utterance *u)
{
    for (int i = 0; i < T3_MAX_TOGETHER; i++) {
        bool busy = false;
        for (int k = 0; k < u->n_lanes; k++)
            busy |= lane_at(u, k)->t3 == u->t3[i] && lane_at(u, k)->stage != LANE_ENDED;
        if (busy) continue;
        struct error none;
        if (!u->t3[i]) t3_gpt2_state_create(&u->t3[i], u->model->t3, u->model->device, MAX_POSITIONS, &none);
        return u->t3[i];
    }
    return NULL;
}

bool utterance_queue(struct utterance *u, const char *text, const struct utterance_options *o)
{
    if (u->n_lanes == MAX_LANES || !all_told(lane_at(u, 0)) || !voice_prefix(u->voice)) return false;
    struct t3_gpt2_state *t3 = idle_state(u);
    struct lane *l = lane_at(u, u->n_lanes);
    struct error none;
    if (t3 && !l->generation) generation_create(&l->generation, u->model->t3->speech_vocab, &none);
    if (!t3 || !l->generation) return false;
    u->n_lanes++;
    const utter_status s = begin_lane(l, u, text, t3, o, &l->error);
    if (s < 0) write_down(l, s, 0);
    return true;
}

void utterance_next(struct utterance *u)
{
    assert(u->n_lanes > 1);
    u->first = (u->first + 1) % MAX_LANES;
    u->n_lanes--;
    begin_sound(u);
}

/* ---- sound ---- */

static bool wants_ahead(struct utterance *u)
{
    const struct lane *l = lane_at(u, 0);
    return l->stage == LANE_TOKENS && l->n_made - l->n_told < u->n_ahead;
}

static void make_ahead(void *arg)
{
    struct utterance *u = arg;
    while (wants_ahead(u) && !atomic_load_explicit(&u->enough, memory_order_relaxed)) make_tokens(u, u->ahead_stream);
}

utter_status utterance_sound(struct utterance *u, int n_ahead, const float **samples, int *n_samples, struct error *e)
{
    const struct generation *g = lane_at(u, 0)->generation;
    const int n_tokens = u->ended ? g->n_speech : u->n_tokens; /* there may be more already, made ahead */
    const bool fresh = !u->mel_final && (u->ended || n_tokens > u->mel_tokens);
    utter_status s = UTTER_OK;
    bool forked = false;
    u->n_ahead = n_ahead;
    atomic_store_explicit(&u->enough, false, memory_order_relaxed);
    if (fresh && wants_ahead(u)) forked = stream_fork(u->ahead_stream, make_ahead, u);
    if (fresh) {
        s = s3gen_stream_mel(u->s3gen, u->stream, g->speech, n_tokens, u->ended);
        u->mel_tokens = n_tokens;
        u->mel_final = u->ended;
    }
    if (s == UTTER_OK) s = s3gen_stream_wave(u->s3gen, u->stream);
    if (forked) {
        atomic_store_explicit(&u->enough, true, memory_order_relaxed);
        stream_join(u->ahead_stream);
    }
    if (s < 0) return stream_failure(u->stream, e);
    if (s == UTTER_AUDIO) *samples = s3gen_stream_samples(u->s3gen, n_samples);
    return s;
}
