/*
 * unicode.h - the little Unicode that the text room shares; everything else is asked of utf8proc.
 *
 * Text is UTF-8 with a length and may hold NUL bytes. Functions that walk text want it valid: call utf8_check once
 * where text enters the room. Any thread.
 */
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

/* INVALID_ARGUMENT with the position and value of the first byte that is not UTF-8. `what` names the text. */
utter_status utf8_check(const char *text, size_t n, const char *what, struct error *e);

/* The code point at text[*at], *at moved behind it; -1 at the end. */
int32_t utf8_next(const char *text, size_t n, size_t *at);
/* The code point that ends at text[*at], *at moved to its start; -1 at the beginning. */
int32_t utf8_previous(const char *text, size_t *at);
void buf_append_code_point(struct buf *b, int32_t cp);

/* Python's str.isspace: White_Space and U+001C..U+001F. */
bool unicode_is_space(int32_t cp);
bool unicode_is_letter(int32_t cp);
bool unicode_is_digit(int32_t cp); /* every number: digits, fractions, Roman numerals */
bool unicode_is_mark(int32_t cp);  /* combining: belongs to what stands before it */
bool unicode_is_lower(int32_t cp);
bool unicode_is_upper(int32_t cp); /* title case too */

/* True when something in the text can be spoken: a letter or a number. */
bool unicode_has_words(const char *text, size_t n);

#endif
