/*
 * load.h - text from a file or a pipe, as UTF-8.
 *
 * A byte order mark decides: UTF-8 (dropped), UTF-16 little or big endian (converted). Without one the text must be UTF-8; the
 * message for any other names the first bad byte and its position. Any thread.
 */
#ifndef TEXT_LOAD_H
#define TEXT_LOAD_H

#include <stddef.h>
#include <stdio.h>

#include "base/error.h"

enum { TEXT_MAX_BYTES = 64 << 20 };

/* *out: NUL-terminated, *out_n bytes, freed by the caller with mem_free. `name` is for messages. */
utter_status text_decode(char **out, size_t *out_n, const char *bytes, size_t n, const char *name, struct error *e);

/* Reads to the end of the stream, at most TEXT_MAX_BYTES. INPUT_UNREADABLE with the system's reason. */
utter_status text_read(char **out, size_t *out_n, FILE *f, const char *name, struct error *e);

#endif
