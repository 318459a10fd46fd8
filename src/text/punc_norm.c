#include "text/punc_norm.h"

#include <string.h>
#include <utf8proc.h>

#include "base/buf.h"
#include "base/mem.h"
#include "text/unicode.h"

/* Lower-case letters whose capital is more than one character (Unicode's SpecialCasing.txt); utf8proc has the
 * others. */
static const struct {
    int32_t lower, upper[3];
} special_upper[] = {
    {0xDF, {0x53, 0x53}},
    {0x149, {0x2BC, 0x4E}},
    {0x1F0, {0x4A, 0x30C}},
    {0x390, {0x399, 0x308, 0x301}},
    {0x3B0, {0x3A5, 0x308, 0x301}},
    {0x587, {0x535, 0x552}},
    {0x1E96, {0x48, 0x331}},
    {0x1E97, {0x54, 0x308}},
    {0x1E98, {0x57, 0x30A}},
    {0x1E99, {0x59, 0x30A}},
    {0x1E9A, {0x41, 0x2BE}},
    {0x1F50, {0x3A5, 0x313}},
    {0x1F52, {0x3A5, 0x313, 0x300}},
    {0x1F54, {0x3A5, 0x313, 0x301}},
    {0x1F56, {0x3A5, 0x313, 0x342}},
    {0x1F80, {0x1F08, 0x399}},
    {0x1F81, {0x1F09, 0x399}},
    {0x1F82, {0x1F0A, 0x399}},
    {0x1F83, {0x1F0B, 0x399}},
    {0x1F84, {0x1F0C, 0x399}},
    {0x1F85, {0x1F0D, 0x399}},
    {0x1F86, {0x1F0E, 0x399}},
    {0x1F87, {0x1F0F, 0x399}},
    {0x1F90, {0x1F28, 0x399}},
    {0x1F91, {0x1F29, 0x399}},
    {0x1F92, {0x1F2A, 0x399}},
    {0x1F93, {0x1F2B, 0x399}},
    {0x1F94, {0x1F2C, 0x399}},
    {0x1F95, {0x1F2D, 0x399}},
    {0x1F96, {0x1F2E, 0x399}},
    {0x1F97, {0x1F2F, 0x399}},
    {0x1FA0, {0x1F68, 0x399}},
    {0x1FA1, {0x1F69, 0x399}},
    {0x1FA2, {0x1F6A, 0x399}},
    {0x1FA3, {0x1F6B, 0x399}},
    {0x1FA4, {0x1F6C, 0x399}},
    {0x1FA5, {0x1F6D, 0x399}},
    {0x1FA6, {0x1F6E, 0x399}},
    {0x1FA7, {0x1F6F, 0x399}},
    {0x1FB2, {0x1FBA, 0x399}},
    {0x1FB3, {0x391, 0x399}},
    {0x1FB4, {0x386, 0x399}},
    {0x1FB6, {0x391, 0x342}},
    {0x1FB7, {0x391, 0x342, 0x399}},
    {0x1FC2, {0x1FCA, 0x399}},
    {0x1FC3, {0x397, 0x399}},
    {0x1FC4, {0x389, 0x399}},
    {0x1FC6, {0x397, 0x342}},
    {0x1FC7, {0x397, 0x342, 0x399}},
    {0x1FD2, {0x399, 0x308, 0x300}},
    {0x1FD3, {0x399, 0x308, 0x301}},
    {0x1FD6, {0x399, 0x342}},
    {0x1FD7, {0x399, 0x308, 0x342}},
    {0x1FE2, {0x3A5, 0x308, 0x300}},
    {0x1FE3, {0x3A5, 0x308, 0x301}},
    {0x1FE4, {0x3A1, 0x313}},
    {0x1FE6, {0x3A5, 0x342}},
    {0x1FE7, {0x3A5, 0x308, 0x342}},
    {0x1FF2, {0x1FFA, 0x399}},
    {0x1FF3, {0x3A9, 0x399}},
    {0x1FF4, {0x38F, 0x399}},
    {0x1FF6, {0x3A9, 0x342}},
    {0x1FF7, {0x3A9, 0x342, 0x399}},
    {0xFB00, {0x46, 0x46}},
    {0xFB01, {0x46, 0x49}},
    {0xFB02, {0x46, 0x4C}},
    {0xFB03, {0x46, 0x46, 0x49}},
    {0xFB04, {0x46, 0x46, 0x4C}},
    {0xFB05, {0x53, 0x54}},
    {0xFB06, {0x53, 0x54}},
    {0xFB13, {0x544, 0x546}},
    {0xFB14, {0x544, 0x535}},
    {0xFB15, {0x544, 0x53B}},
    {0xFB16, {0x54E, 0x546}},
    {0xFB17, {0x544, 0x53D}},
};

static void append_capital(struct buf *b, int32_t cp)
{
    for (size_t i = 0; i < sizeof special_upper / sizeof *special_upper; i++) {
        if (special_upper[i].lower != cp) continue;
        for (int k = 0; k < 3 && special_upper[i].upper[k]; k++) buf_append_code_point(b, special_upper[i].upper[k]);
        return;
    }
    bool title_case = utf8proc_category(cp) == UTF8PROC_CATEGORY_LT; /* not a lower-case letter: stays */
    buf_append_code_point(b, title_case ? cp : utf8proc_toupper(cp));
}

/* First letter to a capital, runs of white space to one space, none at either end. */
static void collapse(struct buf *b, const char *text, size_t n)
{
    bool space = false;
    for (size_t at = 0; at < n;) {
        bool first = at == 0;
        int32_t cp = utf8_next(text, n, &at);
        if (unicode_is_space(cp)) {
            space = b->n > 0;
            continue;
        }
        if (space) buf_append(b, " ", 1);
        space = false;
        if (first)
            append_capital(b, cp);
        else
            buf_append_code_point(b, cp);
    }
}

/* The order of the specification's table; `turbo` says whether the Turbo column has the pair. */
static const struct {
    const char *from, *to;
    bool turbo;
} replacements[] = {
    {"...", ", ", false},   {"\u2026", ", ", true}, {":", ",", true},      {" - ", ", ", false},
    {";", ", ", false},     {"\u2014", "-", true},  {"\u2013", "-", true}, {" ,", ",", true},
    {"\u201C", "\"", true}, {"\u201D", "\"", true}, {"\u2018", "'", true}, {"\u2019", "'", true},
};

static void replace_all(struct buf *b, const char *from, const char *to)
{
    if (b->failed || b->n == 0 || !memmem(b->data, b->n, from, strlen(from))) return;
    struct buf done = buf_empty(b->ceiling);
    const size_t from_n = strlen(from);
    for (size_t at = 0; at < b->n;) {
        if (b->n - at >= from_n && memcmp(b->data + at, from, from_n) == 0) {
            buf_append_string(&done, to);
            at += from_n;
        } else {
            buf_append(&done, b->data + at++, 1);
        }
    }
    buf_free(b);
    *b = done;
}

static bool ends_with(const struct buf *b, const char *ending)
{
    size_t n = strlen(ending);
    return b->n >= n && memcmp(b->data + b->n - n, ending, n) == 0;
}

static void end_sentence(struct buf *b, enum punc_norm_rules rules)
{
    static const char *const enders[] = {".", "!", "?", "-", ",", "\u3001", "\uFF0C", "\u3002", "\uFF1F", "\uFF01"};
    while (b->n > 0 && b->data[b->n - 1] == ' ') b->data[--b->n] = 0;
    const size_t n = rules == PUNC_NORM_MULTILINGUAL ? 10 : 5;
    for (size_t i = 0; i < n; i++)
        if (ends_with(b, enders[i])) return;
    buf_append(b, ".", 1);
}

utter_status punc_norm(char **out, size_t *out_n, enum punc_norm_rules rules, const char *text, size_t n,
                       struct error *e)
{
    utter_status s = utf8_check(text, n, "text", e);
    if (s != UTTER_OK) return s;
    size_t ceiling;
    if (!size_mul(n, 3, &ceiling) || !size_add(ceiling, 64, &ceiling))
        return error_set(e, UTTER_OUT_OF_MEMORY, "text of %zu bytes is too long", n);
    struct buf b = buf_empty(ceiling);
    if (n == 0) {
        buf_append_string(&b, "You need to add some text for me to talk.");
    } else {
        collapse(&b, text, n);
        for (size_t i = 0; i < sizeof replacements / sizeof *replacements; i++)
            if (replacements[i].turbo || rules != PUNC_NORM_TURBO)
                replace_all(&b, replacements[i].from, replacements[i].to);
        end_sentence(&b, rules);
    }
    const size_t length = b.n;
    *out = buf_take(&b);
    if (!*out) {
        buf_free(&b);
        return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a text of %zu bytes", n);
    }
    if (out_n) *out_n = length;
    return UTTER_OK;
}
