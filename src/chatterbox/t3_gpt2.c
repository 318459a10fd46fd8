/*
 * T3, GPT-2 backbone (specification sections 2.2 to 2.4; Radford et al., Language Models are Unsupervised Multitask
 * Learners, 2019, as Hugging Face's GPT2Model computes it). N rows of width C, 64-wide heads:
 *
 *     rows    speaker: spkr_enc(speaker_emb)                         1
 *             prompt:  speech_emb[speech_tokens]                     P   } the prefix: depends on the voice alone
 *             text:    text_emb[ids]                                 T
 *             start:   speech_emb[6561]                              1
 *             then speech_emb[token] for every token made
 *     x       = rows + wpe[0, 1, 2, ...]                             [N][C]
 *     block   x += c_proj(attention(c_attn(ln_1(x))))                causal, scale 1/8, keys and values cached
 *             x += mlp.c_proj(gelu_tanh(mlp.c_fc(ln_2(x))))
 *     logits  = speech_head(ln_f(x))                                 [6563], of the last row only
 */
#include "chatterbox/t3_gpt2.h"

#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"

struct t3_gpt2_use {
    atomic_int n_steps;
};

/* ---- weights ---------------------------------------------------------------------------------------------------- */

static void bind_block(struct t3_gpt2_block *block, struct binder *b, int i, int width)
{
    block->ln_1_gain = bind_vector(b, width, "t3.tfmr.h.%d.ln_1.weight", i);
    block->ln_1_bias = bind_vector(b, width, "t3.tfmr.h.%d.ln_1.bias", i);
    block->c_attn = bind_linear_gpt2(b, 3 * width, width, BIAS_REQUIRED, "t3.tfmr.h.%d.attn.c_attn", i);
    block->c_proj = bind_linear_gpt2(b, width, width, BIAS_REQUIRED, "t3.tfmr.h.%d.attn.c_proj", i);
    block->ln_2_gain = bind_vector(b, width, "t3.tfmr.h.%d.ln_2.weight", i);
    block->ln_2_bias = bind_vector(b, width, "t3.tfmr.h.%d.ln_2.bias", i);
    block->mlp_c_fc = bind_linear_gpt2(b, 4 * width, width, BIAS_REQUIRED, "t3.tfmr.h.%d.mlp.c_fc", i);
    block->mlp_c_proj = bind_linear_gpt2(b, width, 4 * width, BIAS_REQUIRED, "t3.tfmr.h.%d.mlp.c_proj", i);
}

static utter_status check_sizes(const struct t3_gpt2 *t3, struct binder *b)
{
    if (b->status != UTTER_OK) return b->status;
    const char *wrong = NULL;
    if (t3->n_layers < 1)
        wrong = "no block t3.tfmr.h.0";
    else if (t3->width < T3_HEAD_DIM || t3->width % T3_HEAD_DIM != 0)
        wrong = "a width that is no multiple of 64";
    else if (t3->speech_vocab <= T3_STOP_SPEECH)
        wrong = "a speech vocabulary without the stop token 6562";
    else if (t3->n_positions < 8)
        wrong = "fewer than 8 positions";
    if (!wrong) return UTTER_OK;
    b->status =
        error_set(b->error, UTTER_MODEL_DAMAGED, "%s: T3 has %s (%d layers, width %d, %d positions, %d speech tokens)",
                  checkpoint_path(b->checkpoint), wrong, t3->n_layers, t3->width, t3->n_positions, t3->speech_vocab);
    return b->status;
}

utter_status t3_gpt2_load(struct t3_gpt2 **out, struct binder *b)
{
    *out = NULL;
    struct t3_gpt2 *t3 = mem_calloc(1, sizeof *t3);
    if (!t3) return b->status = error_set(b->error, UTTER_OUT_OF_MEMORY, "no memory for T3");
    t3->n_layers = bind_count(b, "t3.tfmr.h.%d.ln_1.weight");
    t3->n_positions = bind_dim(b, 0, "t3.tfmr.wpe.weight");
    t3->width = bind_dim(b, 1, "t3.tfmr.wpe.weight");
    t3->text_vocab = bind_dim(b, 0, "t3.text_emb.weight");
    t3->speech_vocab = bind_dim(b, 0, "t3.speech_emb.weight");
    t3->speaker_dim = bind_dim(b, 1, "t3.cond_enc.spkr_enc.weight");
    t3->n_heads = t3->width / T3_HEAD_DIM;
    if (check_sizes(t3, b) != UTTER_OK) goto fail;
    t3->blocks = mem_calloc((size_t)t3->n_layers, sizeof *t3->blocks);
    t3->use = mem_calloc(1, sizeof *t3->use);
    if (!t3->blocks || !t3->use) {
        b->status = error_set(b->error, UTTER_OUT_OF_MEMORY, "no memory for T3's %d layers", t3->n_layers);
        goto fail;
    }
    t3->wpe = bind_embedding(b, t3->n_positions, t3->width, "t3.tfmr.wpe");
    t3->text_emb = bind_embedding(b, t3->text_vocab, t3->width, "t3.text_emb");
    t3->speech_emb = bind_embedding(b, t3->speech_vocab, t3->width, "t3.speech_emb");
    t3->spkr_enc = bind_linear(b, t3->width, t3->speaker_dim, BIAS_REQUIRED, "t3.cond_enc.spkr_enc");
    for (int i = 0; i < t3->n_layers; i++) bind_block(&t3->blocks[i], b, i, t3->width);
    t3->ln_f_gain = bind_vector(b, t3->width, "t3.tfmr.ln_f.weight");
    t3->ln_f_bias = bind_vector(b, t3->width, "t3.tfmr.ln_f.bias");
    t3->speech_head = bind_linear(b, t3->speech_vocab, t3->width, BIAS_REQUIRED, "t3.speech_head");
    if (binder_status(b) != UTTER_OK) goto fail;
    *out = t3;
    return UTTER_OK;
fail:
    t3_gpt2_free(&t3);
    return b->status;
}

void t3_gpt2_free(struct t3_gpt2 **t3)
{
    if (!*t3) return;
    mem_free((*t3)->blocks);
    mem_free((*t3)->use);
    mem_free(*t3);
    *t3 = NULL;
}

/* ---- state ------------------------------------------------------------------------------------------------------ */

struct t3_gpt2_prefix {
    struct kv_cache *kv;
    int n_rows;
    uint64_t serial; /* unlike every other prefix of this process */
};

struct t3_gpt2_state {
    const struct t3_gpt2 *t3;
    struct device *device;
    struct kv_cache *kv;
    int n_positions;
    float *speaker_emb, *logits;
    int32_t *ids; /* the prompt's ids, row by row: speech_tokens, text, start; the speaker has none */
    int n_speech, n_text;
    int row;    /* the next position */
    bool moves; /* weights go to huge pages before they are read */
    const struct t3_gpt2_prefix *prefix;
    uint64_t held; /* serial of the prefix whose rows the cache still holds, 0 for none */
    const struct observer *observer;
};

/* Where weights are rounded, an f16 cache loses nothing that is left, and a decode step reads much less. */
static enum dtype cache_type(const struct t3_gpt2 *t3)
{
    return weight_type(t3->blocks[0].c_attn) == DTYPE_F32 ? DTYPE_F32 : DTYPE_F16;
}

utter_status t3_gpt2_state_create(struct t3_gpt2_state **out, const struct t3_gpt2 *t3, struct device *d,
                                  int n_positions, struct error *e)
{
    *out = NULL;
    struct t3_gpt2_state *st = mem_calloc(1, sizeof *st);
    if (!st) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a T3 state");
    st->t3 = t3;
    st->device = d;
    st->n_positions = n_positions < t3->n_positions ? n_positions : t3->n_positions;
    utter_status status = kv_cache_create(&st->kv, d, cache_type(t3), t3->n_layers, st->n_positions, t3->width, e);
    if (status == UTTER_OK) {
        st->speaker_emb = mem_calloc((size_t)t3->speaker_dim, sizeof *st->speaker_emb);
        st->logits = mem_calloc((size_t)t3->speech_vocab, sizeof *st->logits);
        st->ids = mem_calloc((size_t)st->n_positions, sizeof *st->ids);
        if (!st->speaker_emb || !st->logits || !st->ids)
            status = error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a T3 state of %d positions", st->n_positions);
    }
    if (status != UTTER_OK) t3_gpt2_state_free(&st);
    *out = st;
    return status;
}

void t3_gpt2_state_free(struct t3_gpt2_state **state)
{
    struct t3_gpt2_state *st = *state;
    if (!st) return;
    kv_cache_destroy(&st->kv);
    mem_free(st->speaker_emb);
    mem_free(st->logits);
    mem_free(st->ids);
    mem_free(st);
    *state = NULL;
}

static utter_status check_ids(const int32_t *ids, int n, int limit, const char *what, struct error *e)
{
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= limit)
            return error_set(e, UTTER_INVALID_ARGUMENT, "%s %d is %d, expected 0 to %d", what, i, ids[i], limit - 1);
    return UTTER_OK;
}

static int prefix_rows(const struct t3_gpt2_state *st)
{
    return 1 + st->n_speech;
}

int t3_gpt2_prompt_rows(const struct t3_gpt2_state *st)
{
    return prefix_rows(st) + st->n_text + 1;
}

int t3_gpt2_prompt_remaining(const struct t3_gpt2_state *st)
{
    const int left = t3_gpt2_prompt_rows(st) - st->row;
    return left > 0 ? left : 0;
}

int t3_gpt2_room(const struct t3_gpt2_state *st)
{
    return st->n_positions - st->row - t3_gpt2_prompt_remaining(st);
}

utter_status t3_gpt2_begin(struct t3_gpt2_state *st, const struct t3_gpt2_voice *voice,
                           const struct t3_gpt2_prefix *prefix, const int32_t *text_ids, int n_text_ids,
                           struct error *e)
{
    const int n_speech = voice->n_speech_tokens;
    if (n_speech < 0 || n_text_ids < 0 || n_speech > st->n_positions - 3 || n_text_ids > st->n_positions - 3 - n_speech)
        return error_set(e, UTTER_INVALID_ARGUMENT,
                         "a prompt of %d speech and %d text tokens does not fit %d positions", n_speech, n_text_ids,
                         st->n_positions);
    if (prefix && prefix->n_rows != 1 + n_speech)
        return error_set(e, UTTER_INVALID_ARGUMENT, "a prefix of %d rows for a voice of %d", prefix->n_rows,
                         1 + n_speech);
    utter_status status = check_ids(voice->speech_tokens, n_speech, st->t3->speech_vocab, "speech prompt token", e);
    if (status == UTTER_OK) status = check_ids(text_ids, n_text_ids, st->t3->text_vocab, "text token", e);
    if (status != UTTER_OK) return status;
    memcpy(st->speaker_emb, voice->speaker_emb, (size_t)st->t3->speaker_dim * sizeof *st->speaker_emb);
    if (n_speech > 0) memcpy(st->ids, voice->speech_tokens, (size_t)n_speech * sizeof *st->ids);
    if (n_text_ids > 0) memcpy(st->ids + n_speech, text_ids, (size_t)n_text_ids * sizeof *st->ids);
    st->ids[n_speech + n_text_ids] = T3_START_SPEECH;
    st->n_speech = n_speech;
    st->n_text = n_text_ids;
    st->row = 0;
    st->prefix = prefix;
    if (!prefix) st->held = 0; /* the voice's rows will be computed over those that are there */
    return UTTER_OK;
}

void t3_gpt2_observe(struct t3_gpt2_state *st, const struct observer *o)
{
    st->observer = o;
}

const float *t3_gpt2_logits(const struct t3_gpt2_state *st)
{
    return st->logits;
}

/* ---- forward ---------------------------------------------------------------------------------------------------- */

/* The rows of x that fall into [start, start + n) of the prompt, looked up in one table. */
static void embed_range(struct t3_gpt2_state *st, struct stream *s, struct array x, int start, int n,
                        const struct weight *table)
{
    const int first = st->row > start ? st->row : start;
    const int end = st->row + x.rows < start + n ? st->row + x.rows : start + n;
    if (first < end) op_embed(s, array_rows(x, first - st->row, end - first), table, st->ids + first - 1, false);
}

static void embed_prompt(struct t3_gpt2_state *st, struct stream *s, struct array x)
{
    const struct t3_gpt2 *t3 = st->t3;
    if (st->row == 0) {
        const struct array speaker = stream_upload(s, 1, t3->speaker_dim, st->speaker_emb);
        op_linear(s, array_rows(x, 0, 1), speaker, t3->spkr_enc, (struct epilogue){0});
    }
    embed_range(st, s, x, 1, st->n_speech, t3->speech_emb);
    embed_range(st, s, x, prefix_rows(st), st->n_text, t3->text_emb);
    embed_range(st, s, x, prefix_rows(st) + st->n_text, 1, t3->speech_emb);
    observe(st->observer, x, "prompt_embeds");
}

static void move_layer(const struct t3_gpt2_block *b, struct stream *s)
{
    weight_make_resident(s, b->c_attn);
    weight_make_resident(s, b->c_proj);
    weight_make_resident(s, b->mlp_c_fc);
    weight_make_resident(s, b->mlp_c_proj);
}

/* Several rows of one state (n = 1), or a row each of n states. */
static void attend(struct t3_gpt2_state *const *states, int n, struct stream *s, int layer, struct array out,
                   struct array qkv)
{
    const int width = states[0]->t3->width, n_heads = states[0]->t3->n_heads;
    const struct array q = array_cols(qkv, 0, width), k = array_cols(qkv, width, width),
                       v = array_cols(qkv, 2 * width, width);
    struct kv_cache *caches[T3_MAX_TOGETHER];
    int rows[T3_MAX_TOGETHER];
    for (int i = 0; i < n; i++) {
        caches[i] = states[i]->kv;
        rows[i] = states[i]->row;
    }
    if (n == 1)
        op_attention_cached(s, out, q, k, v, caches[0], layer, rows[0], n_heads, 0.125f);
    else
        op_attention_each(s, out, q, k, v, caches, layer, rows, n_heads, 0.125f);
}

/* Every state sees its own rows of x; by the layer's number where there is one. */
static void show(struct t3_gpt2_state *const *states, int n, struct array x, const char *name, int layer)
{
    const int rows = x.rows / n;
    for (int i = 0; i < n; i++) {
        const struct array own = array_rows(x, i * rows, rows);
        if (layer >= 0)
            observe(states[i]->observer, own, "%s.%d", name, layer);
        else
            observe(states[i]->observer, own, "%s", name);
    }
}

static void block_forward(struct t3_gpt2_state *const *states, int n, struct stream *s, int layer, struct array x,
                          struct array norm, struct array qkv, struct array hidden)
{
    const struct t3_gpt2 *t3 = states[0]->t3;
    const struct t3_gpt2_block *b = &t3->blocks[layer];
    if (states[0]->moves) move_layer(b, s);
    op_layer_norm(s, norm, x, b->ln_1_gain, b->ln_1_bias, 1e-5f, ACT_NONE);
    op_linear(s, qkv, norm, b->c_attn, (struct epilogue){.bytes = true});
    attend(states, n, s, layer, norm, qkv);
    op_linear(s, x, norm, b->c_proj, (struct epilogue){.residual = x, .bytes = true});
    op_layer_norm(s, norm, x, b->ln_2_gain, b->ln_2_bias, 1e-5f, ACT_NONE);
    op_linear(s, hidden, norm, b->mlp_c_fc, (struct epilogue){.act = ACT_GELU_TANH, .bytes = true});
    op_linear(s, x, hidden, b->mlp_c_proj, (struct epilogue){.residual = x, .bytes = true});
    show(states, n, x, "h", layer);
}

/* Rows x [x.rows][width] at their positions, which are not added yet: through all blocks, in place. */
static void backbone(struct t3_gpt2_state *const *states, int n, struct stream *s, struct array x)
{
    const struct t3_gpt2 *t3 = states[0]->t3;
    const int width = t3->width;
    int32_t positions[T3_MAX_BATCH_ROWS];
    for (int i = 0; i < x.rows; i++) positions[i] = n == 1 ? states[0]->row + i : states[i]->row;
    op_embed(s, x, t3->wpe, positions, true);
    const struct array norm = stream_array(s, x.rows, width), qkv = stream_array(s, x.rows, 3 * width),
                       hidden = stream_array(s, x.rows, 4 * width);
    for (int layer = 0; layer < t3->n_layers; layer++) block_forward(states, n, s, layer, x, norm, qkv, hidden);
}

/* The last n rows of x, one a state, to their logits on the host. */
static void head(struct t3_gpt2_state *const *states, int n, struct stream *s, struct array x)
{
    const struct t3_gpt2 *t3 = states[0]->t3;
    const struct array last = array_rows(x, x.rows - n, n), logits = stream_array(s, n, t3->speech_vocab);
    if (states[0]->moves) weight_make_resident(s, t3->speech_head);
    op_layer_norm(s, last, last, t3->ln_f_gain, t3->ln_f_bias, 1e-5f, ACT_NONE);
    show(states, n, last, "ln_f", -1);
    op_linear(s, logits, last, t3->speech_head, (struct epilogue){0});
    show(states, n, logits, "logits", -1);
    for (int i = 0; i < n; i++) stream_read(s, states[i]->logits, array_rows(logits, i, 1));
}

/* Rows of the next batch. The voice's rows and the text's are two stretches that no batch joins, so that a batch
 * computes the same with and without a prefix; each is cut into even batches. */
static int batch_rows(const struct t3_gpt2_state *st, int max_rows)
{
    if (max_rows <= 0 || max_rows > T3_MAX_BATCH_ROWS) max_rows = T3_MAX_BATCH_ROWS;
    if (max_rows < T3_MIN_BATCH_ROWS) max_rows = T3_MIN_BATCH_ROWS;
    const int end = st->row < prefix_rows(st) ? prefix_rows(st) : t3_gpt2_prompt_rows(st);
    const int left = end - st->row, batches = (left + max_rows - 1) / max_rows;
    return (left + batches - 1) / batches;
}

static void use_prefix(struct t3_gpt2_state *st, struct stream *s)
{
    if (st->held != st->prefix->serial) {
        st->held = 0;
        kv_cache_copy(s, st->kv, st->prefix->kv, st->prefix->n_rows);
        if (stream_status(s) == UTTER_OK) st->held = st->prefix->serial;
    }
    st->row = st->prefix->n_rows;
}

utter_status t3_gpt2_prefill(struct t3_gpt2_state *st, struct stream *s, int max_rows)
{
    if (st->row == 0 && st->prefix) use_prefix(st, s);
    if (t3_gpt2_prompt_remaining(st) == 0) return UTTER_DONE;
    const int steps = atomic_load(&st->t3->use->n_steps) + T3_STEPS_A_TEXT_TOKEN * st->n_text;
    st->moves = steps >= T3_RESIDENT_AFTER;
    const size_t mark = stream_mark(s);
    const struct array x = stream_array(s, batch_rows(st, max_rows), st->t3->width);
    embed_prompt(st, s, x);
    backbone(&st, 1, s, x);
    const bool last = x.rows == t3_gpt2_prompt_remaining(st);
    if (last) head(&st, 1, s, x);
    stream_release(s, mark);
    const utter_status status = stream_status(s);
    if (status != UTTER_OK) return status;
    st->row += x.rows;
    return last ? UTTER_DONE : UTTER_OK;
}

/* One layer a step, so that no step takes long; the head comes last. Which utterance's steps they are changes nothing but
 * speed. */
static void count_step(const struct t3_gpt2 *t3, struct stream *s)
{
    const int layer = atomic_fetch_add(&t3->use->n_steps, 1) - T3_RESIDENT_AFTER;
    if (layer >= 0 && layer < t3->n_layers) move_layer(&t3->blocks[layer], s);
    if (layer == t3->n_layers) weight_make_resident(s, t3->speech_head);
}

utter_status t3_gpt2_decode(struct t3_gpt2_state *st, struct stream *s, int32_t token)
{
    return t3_gpt2_decode_many(&st, 1, s, &token);
}

utter_status t3_gpt2_decode_many(struct t3_gpt2_state *const *states, int n, struct stream *s, const int32_t *tokens)
{
    if (n < 1 || n > T3_MAX_TOGETHER) stream_fail(s, UTTER_INVALID_ARGUMENT);
    for (int i = 0; stream_status(s) == UTTER_OK && i < n; i++) {
        bool own = states[i]->t3 == states[0]->t3;
        for (int k = 0; k < i; k++) own &= states[k] != states[i];
        if (t3_gpt2_prompt_remaining(states[i]) > 0)
            stream_fail(s, UTTER_INVALID_STATE);
        else if (t3_gpt2_room(states[i]) < 1 || !own)
            stream_fail(s, UTTER_INVALID_ARGUMENT);
    }
    if (stream_status(s) != UTTER_OK) return stream_status(s);
    const struct t3_gpt2 *t3 = states[0]->t3;
    count_step(t3, s);
    states[0]->moves = false;
    const size_t mark = stream_mark(s);
    const struct array x = stream_array(s, n, t3->width);
    op_embed(s, x, t3->speech_emb, tokens, false);
    backbone(states, n, s, x);
    head(states, n, s, x);
    stream_release(s, mark);
    for (int i = 0; stream_status(s) == UTTER_OK && i < n; i++) states[i]->row++;
    return stream_status(s);
}

/* ---- prefixes --------------------------------------------------------------------------------------------------- */

utter_status t3_gpt2_prefix_create(struct t3_gpt2_prefix **out, struct t3_gpt2_state *st, struct stream *s,
                                   struct error *e)
{
    static atomic_uint_least64_t next_serial = 1;
    *out = NULL;
    const int n_rows = prefix_rows(st);
    if (st->row < n_rows) return error_set(e, UTTER_INVALID_STATE, "the voice's rows are not computed yet");
    struct t3_gpt2_prefix *p = mem_calloc(1, sizeof *p);
    if (!p) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a voice's prefix");
    p->n_rows = n_rows;
    p->serial = atomic_fetch_add(&next_serial, 1);
    utter_status status =
        kv_cache_create(&p->kv, st->device, cache_type(st->t3), st->t3->n_layers, n_rows, st->t3->width, e);
    if (status == UTTER_OK) {
        kv_cache_copy(s, p->kv, st->kv, n_rows);
        status = stream_wait(s);
    }
    if (status == UTTER_OK)
        st->held = p->serial;
    else
        t3_gpt2_prefix_free(&p);
    *out = p;
    return status;
}

void t3_gpt2_prefix_free(struct t3_gpt2_prefix **p)
{
    if (!*p) return;
    kv_cache_destroy(&(*p)->kv);
    mem_free(*p);
    *p = NULL;
}
