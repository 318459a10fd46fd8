#include "cli/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static enum verbosity verbosity = REPORT_NORMAL;
static bool line_shown;
static double last_drawn;

void report_set_verbosity(enum verbosity v)
{
    verbosity = v;
}
enum verbosity report_verbosity(void)
{
    return verbosity;
}

static bool on_terminal(void)
{
    return isatty(STDERR_FILENO) == 1;
}

static bool has_colour(void)
{
    const char *no_colour = getenv("NO_COLOR");
    return on_terminal() && (!no_colour || !*no_colour);
}

static void say(const char *label, const char *colour, const char *format, va_list args)
{
    progress_clear();
    if (label && has_colour())
        fprintf(stderr, "\x1b[%sm%s:\x1b[0m ", colour, label);
    else if (label)
        fprintf(stderr, "%s: ", label);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

#define REPORT(function, shown, label, colour)                                                                         \
    void function(const char *format, ...)                                                                             \
    {                                                                                                                  \
        if (!(shown)) return;                                                                                          \
        va_list args;                                                                                                  \
        va_start(args, format);                                                                                        \
        say(label, colour, format, args);                                                                              \
        va_end(args);                                                                                                  \
    }
REPORT(report_error, true, "utter", "31")
REPORT(report_warning, verbosity >= REPORT_NORMAL, "warning", "33")
REPORT(report_note, verbosity >= REPORT_NORMAL, NULL, NULL)
REPORT(report_debug, verbosity >= REPORT_VERBOSE, NULL, NULL)

static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void progress_show(double fraction, const char *format, ...)
{
    const double now = now_seconds();
    if (verbosity == REPORT_QUIET || !on_terminal() || (line_shown && now - last_drawn < 0.1)) return;
    enum { BAR = 24 };
    fputs("\r\x1b[K", stderr);
    if (fraction >= 0) {
        const int full = (int)(BAR * (fraction > 1 ? 1 : fraction));
        fprintf(stderr, "[%.*s%*s] %3.0f%%  ", full, "########################", BAR - full, "",
                100 * (fraction > 1 ? 1 : fraction));
    }
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fflush(stderr);
    line_shown = true;
    last_drawn = now;
}

void progress_clear(void)
{
    if (!line_shown) return;
    fputs("\r\x1b[K", stderr);
    fflush(stderr);
    line_shown = false;
}
