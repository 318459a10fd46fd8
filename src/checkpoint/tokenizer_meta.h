/*
 * tokenizer_meta.h - a folder's tokenizer files as GGUF metadata, under the keys that ggml programs use.
 */
#ifndef CHECKPOINT_TOKENIZER_META_H
#define CHECKPOINT_TOKENIZER_META_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf_writer.h"

/* GPT-2 files (vocab.json, merges.txt, added_tokens.json) become tokenizer.ggml.tokens, .token_type (1 normal, 4 added,
 * 5 unused id) and .merges; a grapheme tokenizer's JSON is kept whole. A GGUF source's tokenizer.* keys are copied.
 * Nothing is written when there is no tokenizer. */
utter_status tokenizer_write_meta(struct gguf_writer *w, const struct checkpoint *ck, struct error *e);

#endif
