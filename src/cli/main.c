/*
 * main.c - the command `utter`: finds the subcommand and runs it.
 */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

bool output_allowed(const char *output, const char *input)
{
    struct stat out, in;
    if (strcmp(output, "-") == 0)
        report_error("-o -: this file is not written to a pipe; name it");
    else if (stat(output, &out) == 0 && stat(input, &in) == 0 && out.st_dev == in.st_dev && out.st_ino == in.st_ino)
        report_error("-o %s: this is what it would be made from", output);
    else
        return true;
    return false;
}

static signed char interrupted;

/* `timeout` and terminals send one stop as two signals: only one that comes later forces an end. */
static void on_interrupt(int signal_number)
{
    enum { FORCE_AFTER_MS = 500 };
    static struct timespec first;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!__atomic_exchange_n(&interrupted, 1, __ATOMIC_RELAXED)) {
        first = now;
    } else if ((now.tv_sec - first.tv_sec) * 1000 + (now.tv_nsec - first.tv_nsec) / 1000000 >= FORCE_AFTER_MS) {
        signal(signal_number, SIG_DFL);
        raise(signal_number); /* delivered when this handler returns */
    }
}

static void ignore(int signal_number)
{
    const struct sigaction action = {.sa_handler = SIG_IGN};
    sigaction(signal_number, &action, NULL);
}

const signed char *interrupt_flag(void)
{
    struct sigaction stop = {.sa_handler = on_interrupt}, hang_up;
    sigaddset(&stop.sa_mask, SIGINT);
    sigaddset(&stop.sa_mask, SIGTERM);
    sigaddset(&stop.sa_mask, SIGHUP);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    if (sigaction(SIGHUP, NULL, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN) /* nohup ignores it */
        sigaction(SIGHUP, &stop, NULL);
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

/* A closed 0, 1 or 2 would be the number of the next file that is opened. In its place comes one that fails to be read or to be
 * written, as the closed one would. */
static void occupy_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) return;
}

/* What was printed must have arrived, or its reader have had enough. */
static int check_stdout(int code)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    errno = 0;
    const bool failed = fflush(stdout) != 0, failed_before = ferror(stdout) != 0;
    const int why = errno;
    if ((!failed && !failed_before) || (poll(&out, 1, 0) == 1 && out.revents & POLLERR)) return code;
    report_error("standard output: %s", why ? strerror(why) : "not all could be written");
    return code == EXIT_OK ? EXIT_OUTPUT : code;
}

static int run(int argc, char **argv)
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

int main(int argc, char **argv)
{
    occupy_standard_files();
    ignore(SIGPIPE);
    ignore(SIGXFSZ);
    return check_stdout(run(argc, argv));
}
