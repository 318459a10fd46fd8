/*
 * report.h - talk for people, always on stderr: errors, warnings, notes and one progress line.
 *
 * The progress line exists only when stderr is a terminal and nobody asked for quiet; every other message clears it first.
 * NO_COLOR is honoured. One thread.
 */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include <stdbool.h>

enum verbosity { REPORT_QUIET, REPORT_NORMAL, REPORT_VERBOSE };
void report_set_verbosity(enum verbosity v);
enum verbosity report_verbosity(void);

void report_error(const char *format, ...) __attribute__((format(printf, 1, 2)));   /* always shown */
void report_warning(const char *format, ...) __attribute__((format(printf, 1, 2))); /* unless quiet */
void report_note(const char *format, ...) __attribute__((format(printf, 1, 2)));    /* unless quiet */
void report_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));   /* when verbose */

/* fraction: 0 to 1, or negative when unknown. Redrawn at most ten times a second. */
void progress_show(double fraction, const char *format, ...) __attribute__((format(printf, 2, 3)));
void progress_clear(void);

#endif
