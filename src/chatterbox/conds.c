#include "chatterbox/conds.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* Longer prompts than these help no voice and only cost memory: a minute of prompt sound. */
enum { MAX_PROMPT_TOKENS = 1500 };

struct reader {
    conds_find_fn *find;
    void *from;
    const char *where;
    struct error *e;
    utter_status status; /* the first failure latches */
};

static bool fail(struct reader *r, const char *name, const char *expected, const char *found)
{
    r->status = error_set(r->e, UTTER_VOICE_UNUSABLE, "%s: voice tensor %s: expected %s, found %s", r->where, name,
                          expected, found);
    return false;
}

static void describe(const struct tensor *t, char text[static 96])
{
    int n = snprintf(text, 96, "%s [", dtype_name(t->type));
    for (int i = 0; i < t->n_dims; i++)
        n += snprintf(text + n, 96 - (size_t)n, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    snprintf(text + n, 96 - (size_t)n, "]");
}

/* The tensor as floats. n_cols > 0: the last dimension must have this size. The count of elements is limited by max. */
static float *read_floats(struct reader *r, const char *leaf, size_t n_cols, size_t max, size_t *count)
{
    char found[96], expected[96];
    if (r->status != UTTER_OK) return NULL;
    const struct tensor *t = r->find(r->from, leaf);
    if (!t) return fail(r, leaf, "a tensor", "none"), NULL;
    *count = tensor_count(t);
    const bool fits = *count > 0 && *count <= max && *count % n_cols == 0 &&
                      (n_cols == 1 || (t->n_dims > 0 && t->shape[t->n_dims - 1] == (int64_t)n_cols));
    if (!fits) {
        describe(t, found);
        snprintf(expected, sizeof expected, "rows of %zu, 1 to %zu values", n_cols, max);
        return fail(r, leaf, expected, found), NULL;
    }
    float *values = mem_alloc(*count * sizeof *values);
    if (!values) {
        r->status = error_set(r->e, UTTER_OUT_OF_MEMORY, "%s: no memory for %s", r->where, leaf);
        return NULL;
    }
    tensor_read_f32(t, 0, *count, values);
    return values;
}

static void read_vector(struct reader *r, const char *leaf, float *out, size_t n)
{
    size_t count = 0;
    float *values = read_floats(r, leaf, n, n, &count);
    if (values) memcpy(out, values, n * sizeof *out);
    mem_free(values);
}

static int32_t *read_tokens(struct reader *r, const char *leaf, int *n)
{
    size_t count = 0;
    float *values = read_floats(r, leaf, 1, MAX_PROMPT_TOKENS, &count);
    if (!values) return NULL;
    int32_t *tokens = mem_alloc(count * sizeof *tokens);
    if (!tokens) r->status = error_set(r->e, UTTER_OUT_OF_MEMORY, "no memory for %zu tokens", count);
    for (size_t i = 0; tokens && i < count; i++) {
        const bool valid = values[i] >= 0 && values[i] < SPEECH_CODES && values[i] == truncf(values[i]);
        tokens[i] = valid ? (int32_t)values[i] : -1; /* conds_check refuses it by name */
    }
    mem_free(values);
    *n = (int)count;
    return tokens;
}

static bool all_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

static bool all_codes(const int32_t *ids, int n)
{
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= SPEECH_CODES) return false;
    return true;
}

utter_status conds_check(const struct conds *c, const char *where, struct error *e)
{
    const int n = c->n_prompt_tokens, frames = c->n_prompt_frames;
    const char *wrong = NULL;
    if (n <= 0 || n > MAX_PROMPT_TOKENS || c->n_t3_tokens <= 0 || c->n_t3_tokens > MAX_PROMPT_TOKENS)
        wrong = "the prompts must have 1 to 1500 tokens";
    else if (!all_codes(c->prompt_tokens, n) || !all_codes(c->t3_tokens, c->n_t3_tokens))
        wrong = "a prompt token is not a speech code from 0 to 6560";
    else if (!all_finite(c->speaker_emb, SPEAKER_EMB_SIZE) || !all_finite(c->xvector, XVECTOR_SIZE) ||
             !isfinite(c->emotion))
        wrong = "a speaker vector is not finite";
    if (wrong) return error_set(e, UTTER_VOICE_UNUSABLE, "%s: unusable voice: %s", where, wrong);
    if (frames != 2 * n && frames != 2 * n + 1)
        return error_set(e, UTTER_VOICE_UNUSABLE,
                         "%s: unusable voice: %d prompt tokens need %d or %d mel frames, found %d", where, n, 2 * n,
                         2 * n + 1, frames);
    if (!all_finite(c->prompt_mel, (size_t)frames * PROMPT_N_MELS))
        return error_set(e, UTTER_VOICE_UNUSABLE, "%s: unusable voice: the prompt mel is not finite", where);
    return UTTER_OK;
}

utter_status conds_read_from(struct conds *out, conds_find_fn *find, void *from, const char *where, struct error *e)
{
    struct reader r = {find, from, where, e, UTTER_OK};
    struct conds c = {.emotion = 0.5f}; /* the port's files do not store it; 0.5 is the official default */
    size_t n_mel = 0;
    read_vector(&r, "t3.speaker_emb", c.speaker_emb, SPEAKER_EMB_SIZE);
    c.t3_tokens = read_tokens(&r, "t3.cond_prompt_speech_tokens", &c.n_t3_tokens);
    if (find(from, "t3.emotion_adv")) read_vector(&r, "t3.emotion_adv", &c.emotion, 1);
    c.prompt_tokens = read_tokens(&r, "gen.prompt_token", &c.n_prompt_tokens);
    c.prompt_mel =
        read_floats(&r, "gen.prompt_feat", PROMPT_N_MELS, (size_t)PROMPT_N_MELS * (2 * MAX_PROMPT_TOKENS + 1), &n_mel);
    c.n_prompt_frames = (int)(n_mel / PROMPT_N_MELS);
    read_vector(&r, "gen.embedding", c.xvector, XVECTOR_SIZE);
    if (r.status == UTTER_OK) r.status = conds_check(&c, where, e);
    if (r.status == UTTER_OK)
        *out = c;
    else
        conds_free(&c);
    return r.status;
}

struct prefixed {
    const struct checkpoint *ck;
    const char *prefix;
};

static const struct tensor *find_prefixed(void *from, const char *leaf)
{
    const struct prefixed *p = from;
    char name[128];
    snprintf(name, sizeof name, "%s.%s", p->prefix, leaf);
    return checkpoint_find(p->ck, name);
}

bool conds_present(const struct checkpoint *ck, const char *prefix)
{
    struct prefixed p = {ck, prefix};
    return find_prefixed(&p, "gen.prompt_token") || find_prefixed(&p, "t3.speaker_emb");
}

utter_status conds_read(struct conds *out, const struct checkpoint *ck, const char *prefix, struct error *e)
{
    struct prefixed p = {ck, prefix};
    return conds_read_from(out, find_prefixed, &p, checkpoint_path(ck), e);
}

static void *duplicate(const void *from, size_t n_bytes)
{
    void *p = mem_alloc(n_bytes);
    if (p) memcpy(p, from, n_bytes);
    return p;
}

utter_status conds_copy(struct conds *out, const struct conds *from, struct error *e)
{
    struct conds c = *from;
    c.t3_tokens = duplicate(from->t3_tokens, (size_t)from->n_t3_tokens * sizeof *c.t3_tokens);
    c.prompt_tokens = duplicate(from->prompt_tokens, (size_t)from->n_prompt_tokens * sizeof *c.prompt_tokens);
    c.prompt_mel = duplicate(from->prompt_mel, (size_t)from->n_prompt_frames * PROMPT_N_MELS * sizeof *c.prompt_mel);
    if (!c.t3_tokens || !c.prompt_tokens || !c.prompt_mel) {
        conds_free(&c);
        return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a copy of a voice");
    }
    *out = c;
    return UTTER_OK;
}

void conds_free(struct conds *c)
{
    mem_free(c->t3_tokens);
    mem_free(c->prompt_tokens);
    mem_free(c->prompt_mel);
    memset(c, 0, sizeof *c);
}
