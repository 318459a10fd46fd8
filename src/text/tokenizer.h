/*
 * tokenizer.h - GPT-2's byte-level BPE with added tokens (specification section 3.2).
 *
 *     text --added tokens, verbatim, leftmost longest--> stretches --split pattern--> words --bytes, merges by rank-->
 *     ids
 *
 * The split pattern is GPT-2's own. No normalisation, no start or end token: punc_norm comes before, the model's
 * prompt layout after. A vocabulary of any size takes the same path; one without some byte cannot encode a text that
 * holds it and says so.
 *
 * A tokenizer is immutable once loaded; any thread may use it.
 */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include <stdint.h>

#include "base/cancel.h"
#include "checkpoint/checkpoint.h"

struct tokenizer;

/* The tokenizer of a model: GGUF metadata (tokenizer.ggml.*) when present, else the side files of a published
 * folder. cancel may be NULL; CANCELLED comes within a millisecond. */
utter_status tokenizer_load(struct tokenizer **out, const struct checkpoint *ck, struct cancel *cancel, struct error *e);
/* The tokenizer files of a folder that need not hold anything else. */
utter_status tokenizer_load_folder(struct tokenizer **out, const char *folder, struct error *e);

/* The bytes of the files, as tokenizer_load_folder reads them. vocab and merges must be there; added_tokens
 * (added_tokens.json) and config (tokenizer_config.json, whose added_tokens_decoder is read) may be NULL. */
struct tokenizer_files {
    const char *where; /* for messages */
    const char *vocab, *merges, *added_tokens, *config;
    size_t vocab_n, merges_n, added_tokens_n, config_n;
    struct cancel *cancel; /* optional */
};
utter_status tokenizer_from_files(struct tokenizer **out, const struct tokenizer_files *f, struct error *e);
void tokenizer_free(struct tokenizer **t);

int tokenizer_size(const struct tokenizer *t); /* largest id + 1 */

/* *ids: *n_ids ids, freed by the caller with mem_free (NULL when the text is empty). INVALID_ARGUMENT for text that
 * is not UTF-8 or holds a byte that the vocabulary lacks, with its position. */
utter_status tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, int32_t **ids, size_t *n_ids,
                              struct error *e);

/* The bytes that an id stands for (not necessarily whole UTF-8 characters); NULL for an id that does not exist. */
const char *tokenizer_piece(const struct tokenizer *t, int32_t id, size_t *n_bytes);
/* The text of ids, NUL-terminated, freed by the caller; NULL when an id does not exist or memory is out. */
char *tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n_ids, size_t *n_bytes);

/* The id of an added token such as "[laugh]", letter case ignored; -1 when there is none. */
int32_t tokenizer_added(const struct tokenizer *t, const char *text, size_t n);

#endif
