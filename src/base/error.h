/*
 * error.h - the text of a failure, kept in the object that failed.
 *
 * A function that fails writes one line that names the file, the tensor or the option at fault, what was expected and
 * what was found, and returns the status. Callers pass both up unchanged.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "utter.h"

struct error {
    char text[512];
};

/* Writes the message, cut to fit. e may be NULL. */
void error_text(struct error *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* error_set(e, status, format, ...): writes the message and gives the status, so that `return error_set(e, ...)` reads well. A
 * macro over an inline function, because then compilers and analyzers see which status comes back. */
static inline utter_status error_status(utter_status status)
{
    return status;
}
#define error_set(e, status, ...) (error_text((e), __VA_ARGS__), error_status(status))

#endif
