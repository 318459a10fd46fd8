/*
 * options.h - the command line of one subcommand, from one table.
 *
 * A subcommand describes its options once, as offsets into a settings struct that it fills with defaults first:
 *
 *     struct settings { const char *model; int64_t threads; bool json; };
 *     static const struct option options[] = {
 *         {"-m, --model", "PATH", OPTION_TEXT, offsetof(struct settings, model), .help = "Model file or folder."},
 *         {"-t, --threads", "N", OPTION_INTEGER, offsetof(struct settings, threads), 1, 256, "Threads."},
 *         {"--json", NULL, OPTION_SWITCH, offsetof(struct settings, json), .help = "Report as JSON."},
 *         {0}};
 *
 * Names after a "|" are accepted and not shown: "-n, --n-predict | --max-new, --max-tokens". A value may follow as the
 * next word or after "=" ("--seed=7"). "--" ends the options; a lone "-" is an ordinary word. A switch --x may be undone
 * with --no-x. Every option also reads the environment variable UTTER_ plus its first long name in capitals
 * (UTTER_THREADS); the command line wins.
 *
 * Every subcommand also has -h/--help, -q/--quiet and --verbose.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The type of the field at `offset`. */
enum option_type {
    OPTION_SWITCH,  /* bool */
    OPTION_TEXT,    /* const char *, pointing into argv or the environment */
    OPTION_CHOICE,  /* the same; `value` lists what is allowed: "auto|on|off" */
    OPTION_INTEGER, /* int64_t in min..max */
    OPTION_NUMBER,  /* double in min..max, finite */
    OPTION_HEADING  /* not an option: `help` is a heading in the help text */
};

struct option {
    const char *names;
    const char *value; /* what the value is called in the help; NULL for a switch */
    enum option_type type;
    size_t offset;
    double min, max;
    const char *help; /* one or two sentences; the default in words */
};

struct command {
    const char *name;        /* "say" */
    const char *summary;     /* one line for `utter --help` */
    const char *synopsis;    /* what follows the options: "[TEXT...]" */
    const char *description; /* paragraphs for the command's own help and the man page */
    const struct option *options;
    int (*run)(const struct command *self, int argc,
               char **argv); /* argv[0] is the command's name; returns the exit code */
};

struct words {
    char **word;
    int count;
};

/* Fills `settings` from the environment, then from argv; `rest` gets the words that are no options (in argv's memory). Returns
 * true to go on; false when the program should end now with *exit_code (help was printed, or the command line is wrong and
 * the message is on stderr). */
bool options_parse(const struct command *c, void *settings, struct words *rest, int argc, char **argv, int *exit_code);

void options_help(const struct command *c, FILE *out);
void options_man(const struct command *c, FILE *out); /* the same as a section of the man page */

/* The names of `candidates` (n of them) nearest to `word`, or NULL when none is near. */
const char *nearest_name(const char *word, const char *const *candidates, int n);

#endif
