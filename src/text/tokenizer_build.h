/*
 * tokenizer_build.h - how the readers of tokenizer files and GGUF metadata fill a tokenizer. Inside the text room only.
 *
 * Order: tokenizer_begin, tokenizer_put for every token of the vocabulary, tokenizer_put_added, tokenizer_put_merge
 * in order of rank, tokenizer_finish. After a failure the caller frees what it has. Everything given is checked
 * here. A cancel is looked at on the way.
 */
#ifndef TEXT_TOKENIZER_BUILD_H
#define TEXT_TOKENIZER_BUILD_H

#include "text/tokenizer.h"

enum { TOKENIZER_MAX_TOKENS = 1 << 20 };

/* max_tokens: calls of tokenizer_put at most; ids are below TOKENIZER_MAX_TOKENS. */
utter_status tokenizer_begin(struct tokenizer **out, const char *where, size_t max_tokens, size_t n_merges,
                             struct cancel *cancel, struct error *e);
/* `text` in GPT-2's alphabet, as vocabularies write tokens. */
utter_status tokenizer_put(struct tokenizer *t, int64_t id, const char *text, struct error *e);
/* `text` as it stands in a text. The vocabulary may have the same token already. */
utter_status tokenizer_put_added(struct tokenizer *t, int64_t id, const char *text, struct error *e);
/* "left right" */
utter_status tokenizer_put_merge(struct tokenizer *t, const char *pair, size_t n, struct error *e);
utter_status tokenizer_finish(struct tokenizer *t, struct error *e);

/* GPT-2's byte table: printable bytes stand for themselves, the others for U+0100 and up, in order. */
int32_t gpt2_byte_to_code_point(int byte);

#endif
