/*
 * Stage t3_turbo: a prompt, forced speech tokens, and a greedy run with repetition penalty 1.2.
 */
#include "chatterbox/t3_gpt2.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "chatterbox/sampler.h"
#include "tools/stages/stage.h"

/* Rows seen under one name, batch after batch. */
struct seen {
    char name[32];
    struct buf floats;
    int cols;
};

struct recorder {
    struct stage_run *r;
    struct seen seen[64];
    size_t n;
};

static void see(void *user, const char *name, struct array value)
{
    struct recorder *rec = user;
    size_t i = 0;
    while (i < rec->n && strcmp(rec->seen[i].name, name) != 0) i++;
    if (i == sizeof rec->seen / sizeof *rec->seen) return;
    struct seen *s = &rec->seen[i];
    if (i == rec->n) {
        *s = (struct seen){.floats = buf_empty((size_t)1 << 30), .cols = value.cols};
        snprintf(s->name, sizeof s->name, "%s", name);
        rec->n++;
    }
    float *host = mem_calloc((size_t)value.rows * (size_t)value.cols, sizeof *host);
    if (host) {
        stream_read(rec->r->stream, host, value);
        buf_append(&s->floats, host, (size_t)value.rows * (size_t)value.cols * sizeof *host);
    }
    mem_free(host);
}

static void put_seen(struct recorder *rec)
{
    for (size_t i = 0; i < rec->n; i++) {
        const struct seen *s = &rec->seen[i];
        const int64_t shape[] = {1, (int64_t)(s->floats.n / sizeof(float)) / s->cols, s->cols};
        stage_output_values(rec->r, s->name, 3, shape, (const float *)s->floats.data);
        buf_free(&rec->seen[i].floats);
    }
}

static void prefill(struct t3_gpt2_state *st, struct stage_run *r, const struct t3_gpt2_voice *voice,
                    const struct ref_array *text)
{
    if (r->status == UTTER_OK) r->status = t3_gpt2_begin(st, voice, NULL, text->values.i, (int)text->count, r->error);
    while (r->status == UTTER_OK) r->status = t3_gpt2_prefill(st, r->stream, 0);
    if (r->status == UTTER_DONE) r->status = UTTER_OK;
}

/* The generator's own counts: MINI and FULL. */
static int greedy_count(const struct t3_gpt2 *t3)
{
    return t3->width == 128 ? 24 : 16;
}

static void greedy(struct t3_gpt2_state *st, const struct t3_gpt2 *t3, struct stage_run *r)
{
    const struct sampler_params params = {.temperature = 0, .top_p = 1, .repetition_penalty = 1.2f};
    const int n = greedy_count(t3);
    int32_t tokens[24];
    struct sampler *sampler;
    if (r->status != UTTER_OK ||
        (r->status = sampler_create(&sampler, SAMPLER_TURBO, t3->speech_vocab, r->error)) != UTTER_OK)
        return;
    for (int i = 0; i < n && r->status == UTTER_OK; i++) {
        const int32_t start = T3_START_SPEECH;
        r->status = sampler_draw(sampler, &params, t3_gpt2_logits(st), NULL, i ? tokens : &start, i ? i : 1, 0,
                                 &tokens[i], r->error);
        if (r->status == UTTER_OK && i + 1 < n) r->status = t3_gpt2_decode(st, r->stream, tokens[i]);
    }
    if (r->status == UTTER_OK)
        memcpy(reffile_add(r->out, "out.greedy_tokens", true, 2, (int64_t[]){1, n})->values.i, tokens,
               (size_t)n * sizeof *tokens);
    sampler_free(&sampler);
}

stage_fn stage_t3_turbo;

utter_status stage_t3_turbo(struct stage_run *r)
{
    const struct ref_array *text = stage_input(r, "in.text_tokens", true, 2),
                           *forced = stage_input(r, "in.forced_speech_tokens", true, 2),
                           *prompt = stage_input(r, "in.cond_prompt_speech_tokens", true, 2),
                           *speaker = stage_input(r, "in.speaker_emb", false, 2);
    struct t3_gpt2 *t3 = NULL;
    struct t3_gpt2_state *st = NULL;
    struct recorder rec = {.r = r};
    const struct observer observer = {see, &rec};
    if (r->status == UTTER_OK) r->status = t3_gpt2_load(&t3, r->binder);
    if (r->status == UTTER_OK && speaker->count != (size_t)t3->speaker_dim)
        r->status = error_set(r->error, UTTER_INPUT_UNREADABLE, "in.speaker_emb: %zu values, expected %d",
                              speaker->count, t3->speaker_dim);
    if (r->status == UTTER_OK) r->status = t3_gpt2_state_create(&st, t3, r->device, t3->n_positions, r->error);
    if (r->status == UTTER_OK) {
        const struct t3_gpt2_voice voice = {speaker->values.f, prompt->values.i, (int)prompt->count};
        t3_gpt2_observe(st, &observer);
        prefill(st, r, &voice, text);
        /* The last row of the prompt and the forced tokens: 11 rows of ln_f and logits, as recorded. */
        for (size_t i = 0; i < forced->count && r->status == UTTER_OK; i++) {
            t3_gpt2_decode(st, r->stream, forced->values.i[i]);
            r->status = stream_status(r->stream);
        }
        t3_gpt2_observe(st, NULL);
        put_seen(&rec);
        prefill(st, r, &voice, text);
        greedy(st, t3, r);
    }
    t3_gpt2_state_free(&st);
    t3_gpt2_free(&t3);
    return r->status;
}
