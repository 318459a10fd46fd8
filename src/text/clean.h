/*
 * clean.h - what of a text is spoken: drops what a voice can only stumble over.
 *
 *     emoji                 dropped, with their joiners, selectors and skin tones
 *     ornament              rows of stars, dashes, equals signs; heading and list marks; markdown's asterisks and
 *                           backticks
 *     [tags]                kept when the model's vocabulary has them as added tokens (letter case and inner spaces are
 *                           forgiven), else dropped with a notice: one or two bracketed words
 *     invisible characters  controls, zero-width marks, byte order marks
 *     combining marks       six a letter at most
 *
 * Everything else passes unchanged: plain text comes out byte for byte.
 */
#ifndef TEXT_CLEAN_H
#define TEXT_CLEAN_H

#include "base/buf.h"
#include "text/tokenizer.h"

enum { TEXT_MAX_MARKS = 6 };

struct text_notices {
    int n_emoji, n_ornaments, n_unknown_tags;
    char unknown_tag[40]; /* the first one */
};

/* Appends what is spoken of text[first .. end) to out. The text before the range tells whether a line begins at its
 * start. Valid UTF-8 only. tags and notices may be NULL. */
void text_clean(struct buf *out, const char *text, size_t first, size_t end, const struct tokenizer *tags,
                struct text_notices *notices);

/* A mark that begins a line and is not spoken: its length ("# ", "- ", "* ", "> ", "== ", a bullet), 0 when there is
 * none. */
size_t text_line_mark(const char *line, size_t n);
/* A line of ornament and no letter or number. */
bool text_is_ornament_row(const char *line, size_t n);

#endif
