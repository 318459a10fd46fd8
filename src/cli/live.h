/*
 * live.h - text that is still being written: sentences as they become whole.
 *
 * A pipe is read until it ends; a regular file is followed, also when it is cut short or another takes its name, until the
 * end marker is read in it or the interrupt byte is raised. Sentences end where the text room says so, also without a space after the stop; one that only its silence ends
 * (nothing followed for LIVE_IDLE_MS) counts as whole when it ends with a sentence's mark. Bytes that are no UTF-8 become
 * question marks.
 */
#ifndef CLI_LIVE_H
#define CLI_LIVE_H

#include "base/error.h"

enum { LIVE_IDLE_MS = 300, LIVE_POLL_MS = 10 };

struct live_options {
    const char *path;       /* "-": stdin */
    bool by_line;           /* one line is one utterance, whatever it holds */
    const char *eof_marker; /* a line of exactly this text ends the input; NULL: none */
    const signed char *interrupt;
};

struct live;

utter_status live_open(struct live **out, const struct live_options *o, struct error *e);
void live_close(struct live **l);

/* Waits for the next utterance. OK: *text, *n, valid until the next call. DONE: there will be no more. CANCELLED: interrupted. */
utter_status live_next(struct live *l, const char **text, size_t *n, struct error *e);

#endif
