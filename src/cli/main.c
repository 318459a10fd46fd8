/*
 * main.c - the command `utter`: finds the subcommand and runs it.
 */
#include "cli/cli.h"

#include <signal.h>
#include <string.h>

/* One list: the declaration, the table and the order of `utter --help`. */
#define COMMAND_MAP(X)                                                                                                 \
    X(say)                                                                                                             \
    X(voice)                                                                                                           \
    X(models)                                                                                                          \
    X(convert)                                                                                                         \
    X(inspect)                                                                                                         \
    X(tokenize)                                                                                                        \
    X(bench)

#define X(name) extern const struct command command_##name;
COMMAND_MAP(X)
#undef X

static const struct command *const commands[] = {
#define X(name) &command_##name,
    COMMAND_MAP(X)
#undef X
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

int exit_code_of(utter_status s)
{
    if (s >= 0) return EXIT_OK;
    switch (s) {
    case UTTER_INVALID_ARGUMENT:
    case UTTER_UNSUPPORTED:
        return EXIT_USAGE;
    case UTTER_CANCELLED:
        return EXIT_INTERRUPTED;
    case UTTER_MODEL_NOT_FOUND:
    case UTTER_MODEL_DAMAGED:
    case UTTER_CANNOT_CLONE:
        return EXIT_MODEL;
    case UTTER_NOTHING_TO_SPEAK:
    case UTTER_VOICE_UNUSABLE:
    case UTTER_INPUT_UNREADABLE:
        return EXIT_INPUT;
    case UTTER_OUTPUT_UNWRITABLE:
        return EXIT_OUTPUT;
    case UTTER_OUT_OF_MEMORY:
        return EXIT_MEMORY;
    case UTTER_DEVICE:
        return EXIT_DEVICE;
    default:
        return EXIT_FAILED;
    }
}

static signed char interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    __atomic_store_n(&interrupted, 1, __ATOMIC_RELAXED);
}

const signed char *interrupt_flag(void)
{
    const struct sigaction stop = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);
    return &interrupted;
}

static void print_help(FILE *out)
{
    fprintf(out, "utter %s - text to speech\n\nUsage: utter COMMAND [options] ...\n\nCommands:\n", utter_version());
    for (int i = 0; i < N_COMMANDS; i++) fprintf(out, "  %-12s%s\n", commands[i]->name, commands[i]->summary);
    fprintf(out, "\n  utter COMMAND --help   the options of one command\n  utter --version        the version\n\n"
                 "Example:\n  utter say \"Hello there.\" -o hello.wav\n");
}

/* The whole man page, from the same tables as the help. */
static void print_man(FILE *out)
{
    fprintf(out, ".TH UTTER 1 \"\" \"utter %s\" \"User Commands\"\n.SH NAME\nutter \\- text to speech\n.SH SYNOPSIS\n",
            utter_version());
    fprintf(out, ".B utter\n.I command\n[options] ...\n.SH DESCRIPTION\nSpeaks text with neural voices, on the CPU, "
                 "without a network.\n.PP\n");
    for (int i = 0; i < N_COMMANDS; i++) fprintf(out, ".TP\n.B %s\n%s\n", commands[i]->name, commands[i]->summary);
    fprintf(out, ".PP\nEvery command has \\fB\\-h\\fR, \\fB\\-\\-help\\fR, \\fB\\-q\\fR, \\fB\\-\\-quiet\\fR and "
                 "\\fB\\-\\-verbose\\fR.\n"
                 "\\fButter \\-\\-version\\fR prints the version.\n");
    for (int i = 0; i < N_COMMANDS; i++) options_man(commands[i], out);
    fprintf(out, ".SH EXIT STATUS\n");
#define X(name, number, text) fprintf(out, ".TP\n%d\n%s\n", number, text);
    EXIT_CODE_MAP(X)
#undef X
    fprintf(out, ".SH ENVIRONMENT\nEvery option reads UTTER_ followed by its long name in capitals, with underscores; "
                 "the command "
                 "line wins.\nNO_COLOR switches colours off.\n.SH FILES\n.TP\n.I $XDG_DATA_HOME/utter/models\n"
                 "models that can be named without a path (~/.local/share/utter/models)\n");
}

static int unknown_command(const char *word)
{
    const char *names[N_COMMANDS];
    for (int i = 0; i < N_COMMANDS; i++) names[i] = commands[i]->name;
    const char *near = nearest_name(word, names, N_COMMANDS);
    if (near)
        report_error("unknown command %s; did you mean %s? See utter --help", word, near);
    else
        report_error("unknown command %s; see utter --help", word);
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("utter %s\n", utter_version());
        return EXIT_OK;
    }
    if (strcmp(word, "--man") == 0) { /* how the build makes utter.1 */
        print_man(stdout);
        return EXIT_OK;
    }
    const bool help_first = strcmp(word, "help") == 0 && argc == 3;
    if ((strcmp(word, "help") == 0 && !help_first) || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        print_help(stdout);
        return EXIT_OK;
    }
    if (help_first) word = argv[2];
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(word, commands[i]->name) != 0) continue;
        if (!help_first) return commands[i]->run(commands[i], argc - 1, argv + 1);
        options_help(commands[i], stdout);
        return EXIT_OK;
    }
    return unknown_command(word);
}
