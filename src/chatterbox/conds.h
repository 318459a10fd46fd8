/*
 * conds.h - the five conditionals that make a speaker for Chatterbox (specification section 1.3).
 *
 *     speaker_emb    256 floats, unit norm       T3's speaker token
 *     t3_tokens      up to 375 or 150 ids        T3's acoustic prompt, 25 a second
 *     prompt_tokens  n ids, 25 a second          what the flow continues
 *     prompt_mel     [2n or 2n + 1][80]          24 kHz natural-log mel of the same sound, 50 frames a second
 *     xvector        192 floats                  CAMPPlus vector for the flow's decoder, not normalised
 *
 * plus emotion, the exaggeration that English and multilingual voices were made with. Ids are 0 .. 6560. Values only: the
 * struct owns its arrays and knows neither files nor devices. Immutable once made; any thread may read.
 */
#ifndef CHATTERBOX_CONDS_H
#define CHATTERBOX_CONDS_H

#include "checkpoint/checkpoint.h"

enum { SPEAKER_EMB_SIZE = 256, XVECTOR_SIZE = 192, PROMPT_N_MELS = 80, SPEECH_CODES = 6561 };

struct conds {
    float speaker_emb[SPEAKER_EMB_SIZE];
    float xvector[XVECTOR_SIZE];
    float emotion;
    int n_t3_tokens, n_prompt_tokens, n_prompt_frames; /* n_prompt_tokens 0: nothing here */
    int32_t *t3_tokens, *prompt_tokens;
    float *prompt_mel; /* [n_prompt_frames][PROMPT_N_MELS] */
};

/* Reads the tensors `prefix`.t3.* and `prefix`.gen.* ("conds" in a model and in a published conds.pt). Every shape, id and
 * value is checked; VOICE_UNUSABLE with a message that names file and tensor when one is missing or wrong. */
utter_status conds_read(struct conds *out, const struct checkpoint *ck, const char *prefix, struct error *e);

/* The same from tensors that `find` knows by the names behind the prefix ("gen.prompt_feat"), NULL for none. `where` stands in
 * messages. */
typedef const struct tensor *conds_find_fn(void *from, const char *leaf);
utter_status conds_read_from(struct conds *out, conds_find_fn *find, void *from, const char *where, struct error *e);

/* True when the checkpoint holds such tensors at all (a model without a built-in voice does not). */
bool conds_present(const struct checkpoint *ck, const char *prefix);

/* The rules every set must keep, whoever made it: counts, ids, finite values, and 2n or 2n + 1 frames for n tokens.
 * `where` is the file's name for the message. */
utter_status conds_check(const struct conds *c, const char *where, struct error *e);

utter_status conds_copy(struct conds *out, const struct conds *from, struct error *e);
void conds_free(struct conds *c); /* a zeroed one is fine; zeroes it */

#endif
