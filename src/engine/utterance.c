#include "engine/utterance.h"

#include <string.h>

#include "base/mem.h"
#include "chatterbox/generate.h"
#include "text/punc_norm.h"

/* The longest prompt (voice, text, start) and the most speech. */
enum { MAX_POSITIONS = 1 + 375 + 1024 + 1 + GENERATE_MAX_TOKENS };

struct utterance {
    const struct utter_model *model;
    struct stream *stream;
    struct t3_gpt2_state *t3;
    struct generation *generation;
    struct s3gen_stream *s3gen;
    struct utterance_options options;
    const utter_voice *voice;
    int n_tokens;   /* made so far, the silence at the end not counted */
    int mel_tokens; /* how many the mel was computed for */
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
    mem_free(u);
    *utterance = NULL;
}

/* A failure that latched in the stream, with its text. */
static utter_status stream_failure(const struct utterance *u, struct error *e)
{
    return error_set(e, stream_status(u->stream), "%s", stream_error(u->stream));
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

utter_status utterance_begin(struct utterance *u, const char *text, const utter_voice *voice,
                             const struct utterance_options *o, struct error *e)
{
    u->options = *o;
    u->voice = voice;
    u->n_tokens = u->mel_tokens = 0;
    u->ended = u->mel_final = false;
    stream_clear(u->stream);
    char *normal = NULL;
    int32_t *ids = NULL;
    size_t n = 0, n_ids = 0;
    utter_status s = punc_norm(&normal, &n, PUNC_NORM_TURBO, text, strlen(text), e);
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
    if (s < 0) return stream_failure(u, e);
    if (s == UTTER_DONE && u->options.keep_prefix) return voice_keep_prefix(u->voice, u->t3, u->stream, e);
    return s;
}

/* ---- tokens ---- */

utter_status utterance_token(struct utterance *u, struct error *e)
{
    int32_t token;
    utter_status s = generation_next(u->generation, t3_gpt2_logits(u->t3), &token, e);
    if (s < 0) return s;
    u->n_tokens = u->generation->n_speech;
    if (s == UTTER_DONE) {
        generation_finish(u->generation);
        u->ended = true;
        return UTTER_DONE;
    }
    s = t3_gpt2_decode(u->t3, u->stream, token);
    return s < 0 ? stream_failure(u, e) : s;
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

utter_status utterance_sound(struct utterance *u, const float **samples, int *n_samples, struct error *e)
{
    const struct generation *g = u->generation;
    utter_status s = UTTER_OK;
    if (!u->mel_final && (u->ended || g->n_speech > u->mel_tokens)) {
        s = s3gen_stream_mel(u->s3gen, u->stream, g->speech, g->n_speech, u->ended);
        u->mel_tokens = g->n_speech;
        u->mel_final = u->ended;
    }
    if (s == UTTER_OK) s = s3gen_stream_wave(u->s3gen, u->stream);
    if (s < 0) return stream_failure(u, e);
    if (s == UTTER_AUDIO) *samples = s3gen_stream_samples(u->s3gen, n_samples);
    return s;
}
