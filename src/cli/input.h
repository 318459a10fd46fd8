/*
 * input.h - text from files and pipes.
 */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include "base/error.h"
#include "cli/options.h"

enum { INPUT_MAX_BYTES = 64 << 20 };

/* Reads all of a file ("-" is stdin) as UTF-8. A byte order mark is dropped; UTF-16 with one is converted. The text is
 * terminated, *n excludes that; freed with mem_free. INPUT_UNREADABLE names the file; text that is not UTF-8 is refused with
 * the position of the first bad byte. */
utter_status input_read(char **text, size_t *n, const char *path, struct error *e);

/* The same for bytes in memory (a file's start decides what they are). Frees or returns `bytes`. */
utter_status input_to_utf8(char **text, size_t *n, char *bytes, size_t n_bytes, const char *where, struct error *e);

/* The text that a command line names: the file, else the words with single spaces between, else standard input ("-" alone, or no
 * words). */
utter_status input_words(char **text, size_t *n, const char *file, const struct words *words, struct error *e);

#endif
