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

/* Writes the message (cut to fit) and returns `status`, so that `return error_set(e, ...)` reads well. e may be NULL. */
utter_status error_set(struct error *e, utter_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#ifdef __clang_analyzer__ /* which cannot see that the status comes back, and would follow failures as if they were none */
#define error_set(e, status, ...) ((void)error_set((e), (status), __VA_ARGS__), (status))
#endif

#endif
