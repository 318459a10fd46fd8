/*
 * punc_norm.h - the punctuation rules that each Chatterbox model was trained behind (specification section 3.1).
 *
 * The first letter becomes a capital, white space collapses, typographic marks become plain ones, and a sentence
 * ender is added when none is there. Exact: the same string as the published package gives. Any thread.
 */
#ifndef TEXT_PUNC_NORM_H
#define TEXT_PUNC_NORM_H

#include <stddef.h>

#include "base/error.h"

enum punc_norm_rules { PUNC_NORM_TURBO, PUNC_NORM_ENGLISH, PUNC_NORM_MULTILINGUAL };

/* *out: NUL-terminated, *out_n bytes (out_n may be NULL), freed by the caller with mem_free. Text that is not UTF-8 is
 * refused. An empty text gives the package's own sentence "You need to add some text for me to talk."; callers refuse
 * empty text before they come here. */
utter_status punc_norm(char **out, size_t *out_n, enum punc_norm_rules rules, const char *text, size_t n,
                       struct error *e);

#endif
