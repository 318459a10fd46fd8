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

enum exit_code {
    EXIT_OK = 0,
    EXIT_FAILED = 1,        /* synthesis (or whatever the command does) failed */
    EXIT_USAGE = 2,         /* the command line is wrong */
    EXIT_MODEL = 3,         /* model missing or damaged */
    EXIT_INPUT = 4,         /* input unreadable or unusable */
    EXIT_OUTPUT = 5,        /* output not writable */
    EXIT_MEMORY = 6,        /* out of memory */
    EXIT_DEVICE = 7,        /* device error */
    EXIT_INTERRUPTED = 130, /* Ctrl-C; what was finished is kept */
};

int exit_code_of(utter_status s); /* success gives EXIT_OK */

/* From here on the first Ctrl-C (or SIGTERM) raises the byte that is returned, and only a second one ends the process.
 * The byte fits utter_task_set_cancel_flag. SIGPIPE is ignored, so that a closed pipe is a write error. */
const signed char *interrupt_flag(void);

#endif
