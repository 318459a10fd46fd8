/*
 * split.h - long text cut into pieces that a model can say, the same list for every entry point.
 *
 *     text --sentences--> ranges --too long? clause, word, grapheme--> ranges --clean.h--> what is spoken of each
 *
 * One piece is one sentence, or a part of one when the sentence is over the budget:
 *
 *     TEXT_PIECE_SECONDS   20 s of expected speech, about 300 Latin letters. Turbo degrades past 300 to 350 characters
 *                          or 25 s, and its cap of 1,000 speech tokens is 40 s, so the slowest speaker still fits.
 *                          Ideographs count more than letters, digits more still (they are read as words).
 *     TEXT_PIECE_BYTES     900 bytes of spoken text. Byte-level BPE makes at most one token a byte, so a piece never
 *                          meets the tokenizer's limit of 1,024 tokens, whatever its script.
 *
 * Cuts stand at sentence ends; numbers (8,848.86, v2.4.1, 192.168.1.1), abbreviations (Dr., e.g., U.S., a.m.) and
 * initials (J. R. R.) hold together. A blank line, a heading and a list item end a sentence too; a single line break
 * does not. No cut is inside a UTF-8 sequence, nor inside a grapheme unless that grapheme alone is over the budget.
 *
 * The ranges of the pieces follow each other and cover the whole text: what is not spoken (white space, ornament,
 * emoji) belongs to a neighbour. Any thread.
 */
#ifndef TEXT_SPLIT_H
#define TEXT_SPLIT_H

#include "text/clean.h"

#define TEXT_PIECE_SECONDS 20.0
enum { TEXT_PIECE_BYTES = 900 };

struct text_piece {
    size_t first, n_bytes; /* range in the text given */
    char *spoken;          /* what is said of it, NUL-terminated; punc_norm and the tokenizer come next */
    double seconds;        /* expected speech, from the letters alone */
};

struct text_pieces {
    struct text_piece *items;
    size_t n;
    struct text_notices notices; /* what was left out, for a message */
};

struct text_split_options {
    double max_seconds;           /* 0: TEXT_PIECE_SECONDS */
    double join_seconds;          /* neighbouring sentences share a piece while it stays under this; 0: never */
    const struct tokenizer *tags; /* whose bracket tags are kept; NULL: none */
};

/* NOTHING_TO_SPEAK when the text has no letter or number (or nothing but dropped tags); INVALID_ARGUMENT when it is not
 * UTF-8. options may be NULL. */
utter_status text_split(struct text_pieces *out, const char *text, size_t n, const struct text_split_options *options,
                        struct error *e);
void text_pieces_free(struct text_pieces *p); /* a zeroed one is fine */

/* For text that still grows: the length of the first sentence, trailing white space included; 0 when no sentence is
 * certainly complete yet (what follows could still change it). A text that will not grow any more is one sentence at
 * least. */
size_t text_first_sentence(const char *text, size_t n, bool grows);

/* Seconds a voice needs for this text, roughly: 15 Latin letters a second. */
double text_expected_seconds(const char *text, size_t n);

#endif
