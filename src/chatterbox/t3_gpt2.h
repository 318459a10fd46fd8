/*
 * t3_gpt2.h - T3 on the GPT-2 backbone (Chatterbox Turbo and Nano): text and a voice to speech tokens.
 *
 * The network (struct t3_gpt2) holds weights only: immutable, any thread. A state (struct t3_gpt2_state) belongs to
 * one task and runs on that task's stream:
 *
 *     begin -> prefill until DONE -> { logits -> sampler -> decode } ...
 *
 * The voice's rows come first in the sequence, so their keys and values depend on nothing but the voice: a prefix
 * holds them, made once and shared by any number of states, and a begin with it computes only the text's rows. Sound
 * does not depend on whether a prefix was used, on the size of the batches, nor on what the state did before.
 */
#ifndef CHATTERBOX_T3_GPT2_H
#define CHATTERBOX_T3_GPT2_H

#include "chatterbox/observer.h"
#include "checkpoint/bind.h"
#include "device/device.h"

enum {
    T3_START_SPEECH = 6561,
    T3_STOP_SPEECH = 6562,
    T3_HEAD_DIM = 64,
    T3_MAX_TOGETHER = 4,      /* states of one t3_gpt2_decode_many */
    T3_MAX_BATCH_ROWS = 256,  /* what a batch of the prompt holds at most */
    T3_MIN_BATCH_ROWS = 32,   /* and at least, for products of fewer than 16 rows may round otherwise */
    T3_RESIDENT_AFTER = 64,   /* decode steps, 2.5 s of speech: see t3_gpt2_prefill */
    T3_STEPS_A_TEXT_TOKEN = 6 /* to expect: English has some 4 tokens and 25 steps a second */
};

struct t3_gpt2_block {
    struct array ln_1_gain, ln_1_bias, ln_2_gain, ln_2_bias; /* [1][width] */
    struct weight *c_attn;                                   /* width -> 3 width: q, k, v */
    struct weight *c_proj;                                   /* width -> width */
    struct weight *mlp_c_fc, *mlp_c_proj;                    /* width -> 4 width -> width */
};

struct t3_gpt2 {
    int n_layers, width, n_heads, n_positions, text_vocab, speech_vocab, speaker_dim;
    struct weight *wpe;                   /* [n_positions][width] */
    struct weight *text_emb, *speech_emb; /* [text_vocab][width], [speech_vocab][width] */
    struct weight *spkr_enc;              /* speaker_dim -> width */
    struct t3_gpt2_block *blocks;         /* [n_layers], owned */
    struct array ln_f_gain, ln_f_bias;    /* [1][width] */
    struct weight *speech_head;           /* width -> speech_vocab */
    struct t3_gpt2_use *use;              /* how many steps all states made so far, owned */
};

/* Binds "t3.*" by sizes read from the shapes. The weights belong to the binder. On failure *out is NULL and the
 * binder's status is returned. */
utter_status t3_gpt2_load(struct t3_gpt2 **out, struct binder *b);
void t3_gpt2_free(struct t3_gpt2 **t3);

struct t3_gpt2_voice {            /* host memory */
    const float *speaker_emb;     /* [speaker_dim] */
    const int32_t *speech_tokens; /* the acoustic prompt, ids 0 .. 6560 */
    int n_speech_tokens;
};

/* ---- states ----------------------------------------------------------------------------------------------------- */

struct t3_gpt2_state;
struct t3_gpt2_prefix;

/* n_positions: rows of prompt and speech tokens that the state can hold; cut to the model's own. The memory is
 * touched as it is used. Model and device outlive the state. */
utter_status t3_gpt2_state_create(struct t3_gpt2_state **out, const struct t3_gpt2 *t3, struct device *d,
                                  int n_positions, struct error *e);
void t3_gpt2_state_free(struct t3_gpt2_state **st);

/* Starts an utterance; everything is copied. prefix: of this very voice, or NULL; it must live until prefill is DONE.
 * INVALID_ARGUMENT for ids outside the vocabulary or a prompt that leaves no room for speech. */
utter_status t3_gpt2_begin(struct t3_gpt2_state *st, const struct t3_gpt2_voice *voice,
                           const struct t3_gpt2_prefix *prefix, const int32_t *text_ids, int n_text_ids,
                           struct error *e);

int t3_gpt2_prompt_rows(const struct t3_gpt2_state *st);      /* of the whole prompt */
int t3_gpt2_prompt_remaining(const struct t3_gpt2_state *st); /* rows not computed yet */
int t3_gpt2_room(const struct t3_gpt2_state *st);             /* speech tokens that can still be fed */

/* Computes one batch of the prompt, at most about max_rows rows (clamped to the two bounds above; 0: the larger).
 * OK: there is more. DONE: the logits are those of the first speech token. Else the stream's status.
 *
 * The weights move to huge pages (weight_make_resident) when that pays: when the steps that all states made so far and
 * those to expect of this text are at least T3_RESIDENT_AFTER, each just before the prompt reads it; and when steps alone
 * reach that number, one layer in each further step. So a word or two reads the mapped file; a sentence, a longer text or
 * a server does not. At full size (q8_0) a step from huge pages takes 10.4 ms, from the file 12.6, and the move costs as much
 * as 150 steps gain where the host must first give the memory (bench/RESULTS.md): any number up to that serves the first
 * sentence alike, a smaller one the later ones better. */
utter_status t3_gpt2_prefill(struct t3_gpt2_state *st, struct stream *s, int max_rows);

/* Feeds a speech token; then the logits are those of the next one. A token outside the vocabulary or a position past
 * the room fails the stream with INVALID_ARGUMENT. */
utter_status t3_gpt2_decode(struct t3_gpt2_state *st, struct stream *s, int32_t token);

/* The same for n states (1 to T3_MAX_TOGETHER) of one network and device, one token each: results are the bytes of n single
 * calls. All of them fail together: where one state or token is refused, no state moves. */
utter_status t3_gpt2_decode_many(struct t3_gpt2_state *const *states, int n, struct stream *s, const int32_t *tokens);

/* [speech_vocab] floats in host memory, valid until the next call on the state. */
const float *t3_gpt2_logits(const struct t3_gpt2_state *st);

/* Names seen: "prompt_embeds" (rows before positions are added), "h.<i>" (after block i), "ln_f", "logits"; each
 * once a batch or step, for its rows. NULL stops it. */
void t3_gpt2_observe(struct t3_gpt2_state *st, const struct observer *o);

/* ---- prefixes --------------------------------------------------------------------------------------------------- */

/* The voice's rows of a state whose prefill is past them, copied. Immutable; any number of states may use it at
 * once. */
utter_status t3_gpt2_prefix_create(struct t3_gpt2_prefix **out, struct t3_gpt2_state *st, struct stream *s,
                                   struct error *e);
void t3_gpt2_prefix_free(struct t3_gpt2_prefix **p);

#endif
