#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Options that every subcommand has; their fields live here. */
static struct {
    bool help, quiet, verbose;
} shared;

enum { SHARED_HELP, SHARED_QUIET, SHARED_VERBOSE, N_SHARED };
static const struct option shared_options[N_SHARED + 1] = {
    {"-q, --quiet | --no-prints, -np", NULL, OPTION_SWITCH, offsetof(__typeof__(shared), quiet),
     .help = "Errors only."},
    {"--verbose", NULL, OPTION_SWITCH, offsetof(__typeof__(shared), verbose), .help = "Say more about what happens."},
    {"-h, --help", NULL, OPTION_SWITCH, offsetof(__typeof__(shared), help), .help = "Show this help."},
    {0}};

/* ---- names ---- */

/* Steps through "-m, --model | --alias": copies the next name into `name`, returns what follows, NULL at the end. */
static const char *next_name(const char *names, char name[64])
{
    names += strspn(names, " ,|");
    const size_t n = strcspn(names, " ,|");
    if (n == 0 || n >= 64) return NULL;
    memcpy(name, names, n);
    name[n] = '\0';
    return names + n;
}

static bool option_has_name(const struct option *o, const char *word)
{
    char name[64];
    for (const char *p = o->names; p && (p = next_name(p, name));)
        if (strcmp(name, word) == 0) return true;
    return false;
}

static const char *first_long_name(const struct option *o, char name[64])
{
    for (const char *p = o->names; p && (p = next_name(p, name));)
        if (strncmp(name, "--", 2) == 0) return name + 2;
    return NULL;
}

static bool environment_name(const struct option *o, char out[96])
{
    char name[64];
    const char *l = first_long_name(o, name);
    if (!l) return false;
    snprintf(out, 96, "UTTER_%s", l);
    for (char *c = out; *c; c++) *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    return true;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Insertions, deletions, substitutions and swaps of neighbours. */
static int edit_distance(const char *a, const char *b)
{
    enum { MAX = 48 };
    int rows[3][MAX + 1]; /* of the last three letters of a */
    const int n = (int)strlen(b);
    if (n > MAX) return MAX;
    for (int j = 0; j <= n; j++) rows[0][j] = j;
    int i = 1;
    for (; a[i - 1]; i++) {
        int *row = rows[i % 3];
        const int *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            row[j] = least(above[j - 1] + (a[i - 1] != b[j - 1]), least(row[j - 1], above[j]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], two_above[j - 2] + 1);
        }
    }
    return rows[(i + 2) % 3][n];
}

const char *nearest_name(const char *word, const char *const *candidates, int n)
{
    const char *best = NULL;
    int best_distance = (int)strlen(word) / 2 + 1; /* farther than that is no help */
    for (int i = 0; i < n; i++) {
        const int d = edit_distance(word, candidates[i]);
        if (d < best_distance) {
            best = candidates[i];
            best_distance = d;
        }
    }
    return best;
}

/* ---- parsing ---- */

static const struct option *find(const struct option *o, const char *word)
{
    for (; o->names || o->type == OPTION_HEADING; o++)
        if (o->names && option_has_name(o, word)) return o;
    return NULL;
}

static bool choice_allowed(const char *choices, const char *text)
{
    const size_t n = strlen(text);
    for (const char *p = choices; p; p = strchr(p, '|')) {
        p += *p == '|';
        if (strncmp(p, text, n) == 0 && (p[n] == '|' || p[n] == '\0') && n > 0) return true;
    }
    return false;
}

static bool set_number(const struct option *o, void *field, const char *text, const char *source)
{
    char *end;
    errno = 0;
    const bool integer = o->type == OPTION_INTEGER;
    const long long i = integer ? strtoll(text, &end, 10) : 0;
    const double v = integer ? (double)i : strtod(text, &end);
    if (end == text || *end || (integer && errno) || !isfinite(v) || v < o->min || v > o->max) {
        if (integer)
            report_error("%s: '%s' is not a whole number in %.0f..%.0f", source, text, o->min, o->max);
        else
            report_error("%s: '%s' is not a number in %g..%g", source, text, o->min, o->max);
        return false;
    }
    if (integer)
        *(int64_t *)field = i;
    else
        *(double *)field = v;
    return true;
}

static bool means_off(const char *text)
{
    static const char *const words[] = {"", "0", "off", "no", "false"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcasecmp(text, words[i]) == 0) return true;
    return false;
}

/* text: NULL for a switch that was named without a value. source: the option or variable, for messages. */
static bool set_field(const struct option *o, void *settings, const char *text, const char *source)
{
    void *field = (char *)settings + o->offset;
    switch (o->type) {
    case OPTION_SWITCH:
        *(bool *)field = !text || !means_off(text);
        return true;
    case OPTION_TEXT:
        *(const char **)field = text;
        return true;
    case OPTION_CHOICE:
        if (!choice_allowed(o->value, text)) {
            report_error("%s: '%s' is not one of %s", source, text, o->value);
            return false;
        }
        *(const char **)field = text;
        return true;
    case OPTION_INTEGER:
    case OPTION_NUMBER:
        return set_number(o, field, text, source);
    case OPTION_HEADING:
        break;
    }
    return false;
}

static bool read_environment(const struct option *o, void *settings)
{
    char variable[96];
    for (; o->names || o->type == OPTION_HEADING; o++) {
        if (!o->names || !environment_name(o, variable)) continue;
        const char *text = getenv(variable);
        if (text && *text && !set_field(o, settings, text, variable)) return false; /* an empty one counts as unset */
    }
    return true;
}

static void report_unknown(const struct command *c, const char *word)
{
    const char *candidates[256];
    static char storage[256][64];
    int n = 0;
    const struct option *tables[] = {c->options, shared_options};
    for (int t = 0; t < 2; t++)
        for (const struct option *o = tables[t]; o && (o->names || o->type == OPTION_HEADING); o++)
            for (const char *p = o->names; p && n < 256 && (p = next_name(p, storage[n])); n++)
                candidates[n] = storage[n];
    const char *near = nearest_name(word, candidates, n);
    if (near)
        report_error("unknown option %s; did you mean %s? See utter %s --help", word, near, c->name);
    else
        report_error("unknown option %s; see utter %s --help", word, c->name);
}

struct found {
    const struct option *option;
    void *settings;
    bool negated;
};

static struct found find_anywhere(const struct command *c, void *settings, const char *word)
{
    const struct option *o = c->options ? find(c->options, word) : NULL;
    if (o) return (struct found){o, settings, false};
    if ((o = find(shared_options, word))) return (struct found){o, &shared, false};
    if (strncmp(word, "--no-", 5) == 0) {
        char positive[64];
        snprintf(positive, sizeof positive, "--%s", word + 5);
        if (c->options && (o = find(c->options, positive)) && o->type == OPTION_SWITCH)
            return (struct found){o, settings, true};
    }
    return (struct found){0};
}

/* One word that begins with '-'. *i is moved past a value taken from the next word. */
static bool parse_option(const struct command *c, void *settings, int argc, char **argv, int *i)
{
    char word[64];
    const char *equals = strncmp(argv[*i], "--", 2) == 0 ? strchr(argv[*i], '=') : NULL;
    snprintf(word, sizeof word, "%.*s", equals ? (int)(equals - argv[*i]) : 63, argv[*i]);
    struct found f = find_anywhere(c, settings, word);
    const char *text = equals ? equals + 1 : NULL;
    if (!f.option && !equals && word[1] != '-' && word[1]) { /* -t4 */
        const char short_name[3] = {'-', word[1], '\0'};
        f = find_anywhere(c, settings, short_name);
        if (f.option && f.option->type == OPTION_SWITCH) f.option = NULL;
        text = argv[*i] + 2;
    }
    if (!f.option) {
        report_unknown(c, word);
        return false;
    }
    if (f.option->type == OPTION_SWITCH) {
        if (text) {
            report_error("%s takes no value; see utter %s --help", word, c->name);
            return false;
        }
        return set_field(f.option, f.settings, f.negated ? "0" : NULL, word);
    }
    if (!text && ++*i < argc) text = argv[*i];
    if (!text) {
        report_error("%s needs a value (%s); see utter %s --help", word, f.option->value, c->name);
        return false;
    }
    return set_field(f.option, f.settings, text, word);
}

bool options_parse(const struct command *c, void *settings, struct words *rest, int argc, char **argv, int *exit_code)
{
    *rest = (struct words){argv + 1, 0};
    *exit_code = EXIT_USAGE;
    memset(&shared, 0, sizeof shared);
    if ((c->options && !read_environment(c->options, settings)) || !read_environment(shared_options, &shared))
        return false;
    int i = 1;
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (argv[i][0] != '-' || !argv[i][1])
            rest->word[rest->count++] = argv[i];
        else if (!parse_option(c, settings, argc, argv, &i))
            return false;
    }
    for (i++; i < argc; i++) rest->word[rest->count++] = argv[i];
    if (shared.help) {
        options_help(c, stdout);
        *exit_code = EXIT_OK;
        return false;
    }
    report_set_verbosity(shared.quiet ? REPORT_QUIET : shared.verbose ? REPORT_VERBOSE : REPORT_NORMAL);
    return true;
}

/* ---- help ---- */

static void print_wrapped(FILE *out, const char *text, int indent, int column)
{
    enum { WIDTH = 100 };
    while (*text) {
        const int n = (int)strcspn(text, " \n");
        if (column + n > WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        }
        fprintf(out, "%.*s", n, text);
        column += n;
        text += n;
        if (*text == '\n') {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
            text++;
        } else if (*text) {
            fputc(' ', out);
            column++;
            text++;
        }
    }
    fputc('\n', out);
}

static void print_options(const struct option *o, FILE *out)
{
    enum { COLUMN = 34 };
    for (; o && (o->names || o->type == OPTION_HEADING); o++) {
        if (o->type == OPTION_HEADING) {
            fprintf(out, "\n%s:\n", o->help);
            continue;
        }
        const int shown = (int)strcspn(o->names, "|");
        char left[160];
        int n = snprintf(left, sizeof left, "  %s%.*s", o->names[1] == '-' ? "    " : "", shown, o->names);
        while (n > 0 && left[n - 1] == ' ') n--;
        if (o->value) n += snprintf(left + n, sizeof left - (size_t)n, " %s", o->value);
        fprintf(out, "%.*s", n, left);
        if (n >= COLUMN - 1) {
            fputc('\n', out);
            n = 0;
        }
        fprintf(out, "%*s", COLUMN - n, "");
        print_wrapped(out, o->help, COLUMN, COLUMN);
    }
}

void options_help(const struct command *c, FILE *out)
{
    fprintf(out, "utter %s - %s\n\nUsage: utter %s [options] %s\n", c->name, c->summary, c->name, c->synopsis);
    if (c->description) {
        fputc('\n', out);
        print_wrapped(out, c->description, 0, 0);
    }
    if (c->options && c->options[0].type != OPTION_HEADING) fprintf(out, "\nOptions:\n");
    print_options(c->options, out);
    fprintf(out, "\nEverywhere:\n");
    print_options(shared_options, out);
    fprintf(out, "\nEvery option can also be set by an environment variable: UTTER_ and its long name in capitals.\n");
}

/* ---- man page ---- */

/* roff: a leading dot or quote is a command, backslash and minus want care. */
static void print_roff(FILE *out, const char *text)
{
    if (*text == '.' || *text == '\'') fputs("\\&", out);
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else
            fputc(*text, out);
    }
}

static void print_option_roff(const struct option *o, FILE *out)
{
    char shown[160];
    snprintf(shown, sizeof shown, "%.*s", (int)strcspn(o->names, "|"), o->names);
    for (size_t n = strlen(shown); n > 0 && shown[n - 1] == ' ';) shown[--n] = '\0';
    fputs(".TP\n\\fB", out);
    print_roff(out, shown);
    fputs("\\fR", out);
    if (o->value) {
        fputs(" \\fI", out);
        print_roff(out, o->value);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    print_roff(out, o->help);
    fputc('\n', out);
}

void options_man(const struct command *c, FILE *out)
{
    fprintf(out, ".SH UTTER %s\n.B utter %s\n[options] %s\n.PP\n", c->name, c->name, c->synopsis);
    print_roff(out, c->description ? c->description : c->summary);
    fputc('\n', out);
    for (const struct option *o = c->options; o && (o->names || o->type == OPTION_HEADING); o++) {
        if (o->type == OPTION_HEADING)
            fprintf(out, ".SS %s\n", o->help);
        else
            print_option_roff(o, out);
    }
}
