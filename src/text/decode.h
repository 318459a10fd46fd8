/*
 * decode.h - bytes of a file or a pipe as UTF-8.
 *
 * A byte order mark decides: UTF-8 (dropped), UTF-16 little or big endian (converted). Without one the text must be
 * UTF-8; the message for any other names the first bad byte and its position. Any thread.
 */
#ifndef TEXT_DECODE_H
#define TEXT_DECODE_H

#include <stddef.h>

#include "base/error.h"

/* INPUT_UNREADABLE when it is not text. *out: NUL-terminated, *out_n bytes, freed by the caller with mem_free.
 * `name` is for messages. */
utter_status text_decode(char **out, size_t *out_n, const char *bytes, size_t n, const char *name, struct error *e);

#endif
