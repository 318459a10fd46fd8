/*
 * cli.h - what the subcommands of `utter` share: their table, the exit codes, Ctrl-C.
 *
 * One file per subcommand. Each defines a `const struct command command_NAME`, listed once in main.c; help text and man
 * page come from these tables (see options.h). Data goes to stdout, talk to stderr (see report.h).
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "cli/options.h"
#include "cli/report.h"
#include "utter.h"

/* name, number, what it means */
#define EXIT_CODE_MAP(X)                                                                                               \
    X(OK, 0, "success; also when the reader of standard output had enough and closed it")                              \
    X(FAILED, 1, "synthesis, or whatever the command does, failed; or a sentence ran into the token limit")            \
    X(USAGE, 2, "the command line is wrong")                                                                           \
    X(MODEL, 3, "model missing or damaged")                                                                            \
    X(INPUT, 4, "input unreadable, or nothing in it can be spoken")                                                    \
    X(OUTPUT, 5, "output not writable")                                                                                \
    X(MEMORY, 6, "out of memory")                                                                                      \
    X(DEVICE, 7, "device error")                                                                                       \
    X(INTERRUPTED, 130, "interrupted by Ctrl-C, SIGTERM or SIGHUP; what was spoken is kept")

enum exit_code {
#define X(name, number, text) EXIT_##name = number,
    EXIT_CODE_MAP(X)
#undef X
};

int exit_code_of(utter_status s); /* success gives EXIT_OK */

/* Whether a model or a voice may be written as `output`, made from `input`: not to standard output, not over itself. Else
 * says why. */
bool output_allowed(const char *output, const char *input);

/* From here on the first Ctrl-C (or SIGTERM, or SIGHUP) raises the byte that is returned, and only one that comes half a
 * second later or more ends the process. The byte fits utter_task_set_cancel_flag. main ignores SIGPIPE and SIGXFSZ, so that a closed
 * pipe and a file limit are write errors. */
const signed char *interrupt_flag(void);

#endif
