#include "text/clean.h"

#include <string.h>
#include <utf8proc.h>

#include "text/unicode.h"

struct cleaner {
    struct buf *out;
    const char *text;
    size_t end;
    const struct tokenizer *tags;
    struct text_notices *notices;
    size_t line_start; /* in out->data: where the output of this line begins */
    int32_t last;      /* last code point written on this line, -1 for none */
    bool gap;          /* something was dropped since */
    bool digit_before; /* the last thing written but spaces is a digit */
    int marks;         /* combining marks on the last base */
};

static bool is_line_break(int32_t cp)
{
    return cp == '\n' || cp == '\r' || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}
static bool is_word(int32_t cp)
{
    return cp >= 0 && (unicode_is_letter(cp) || unicode_is_digit(cp));
}

static bool is_emoji(int32_t cp)
{
    if (cp < 0x203C || cp == 0x2122) return false;   /* (c), (r), TM are text */
    if (cp >= 0x1F3FB && cp <= 0x1F3FF) return true; /* skin tones */
    const int bound = utf8proc_get_property(cp)->boundclass;
    return bound == UTF8PROC_BOUNDCLASS_EXTENDED_PICTOGRAPHIC || bound == UTF8PROC_BOUNDCLASS_REGIONAL_INDICATOR ||
           bound == UTF8PROC_BOUNDCLASS_E_BASE || bound == UTF8PROC_BOUNDCLASS_E_MODIFIER ||
           bound == UTF8PROC_BOUNDCLASS_GLUE_AFTER_ZWJ || bound == UTF8PROC_BOUNDCLASS_E_BASE_GAZ;
}

/* Controls and format characters; the joiners stay between letters, where Persian and Indic spelling need them. */
static bool is_invisible(int32_t cp, int32_t before, int32_t after)
{
    if (cp == 0x200C || cp == 0x200D)
        return !(before >= 0 && (unicode_is_letter(before) || unicode_is_mark(before))) || !unicode_is_letter(after);
    if ((cp >= 0xFE00 && cp <= 0xFE0F) || cp == 0x20E3 || (cp >= 0xE0000 && cp <= 0xE0FFF)) return true;
    const utf8proc_category_t c = utf8proc_category(cp);
    return c == UTF8PROC_CATEGORY_CF || (c == UTF8PROC_CATEGORY_CC && !unicode_is_space(cp));
}

/* Lines, boxes, bullets and other furniture of the page. */
static bool is_furniture(int32_t cp)
{
    return (cp >= 0x2500 && cp <= 0x25FF) || cp == 0x2022 || cp == 0x2023 || cp == 0x2043 || cp == 0x2217 ||
           cp == 0x204E;
}

static bool is_row_mark(char c)
{
    return c && strchr("*=-_~#+|<>^\\", c) != NULL;
}

static size_t run_length(const char *text, size_t at, size_t end)
{
    size_t n = 1;
    while (at + n < end && text[at + n] == text[at]) n++;
    return n;
}

size_t text_line_mark(const char *line, size_t n)
{
    size_t at = 0;
    int32_t cp = utf8_next(line, n, &at);
    if (cp < 0) return 0;
    const size_t run = run_length(line, 0, n);
    if (cp < 128 && is_row_mark((char)cp) && (run > 1 || cp == '#')) {
        at = run;
    } else if (cp != '-' && cp != '*' && cp != '+' && cp != '>' && !is_furniture(cp)) {
        return 0;
    }
    if (at >= n || (line[at] != ' ' && line[at] != '\t')) return 0;
    while (at < n && (line[at] == ' ' || line[at] == '\t')) at++;
    return at;
}

static void drop(struct cleaner *c, int *count)
{
    if (count) ++*count;
    c->gap = true;
}

static void put(struct cleaner *c, int32_t cp)
{
    if (unicode_is_mark(cp)) {
        if (++c->marks > TEXT_MAX_MARKS) return;
    } else {
        c->marks = 0;
    }
    if (c->gap && is_word(cp) && is_word(c->last)) buf_append(c->out, " ", 1);
    if (c->gap && c->last == ' ' && cp < 128 && strchr(".,!?;:)", cp) && c->out->n > c->line_start) c->out->n--;
    c->gap = false;
    buf_append_code_point(c->out, cp);
    c->last = cp;
    if (cp != ' ') c->digit_before = unicode_is_digit(cp);
}

/* A tag at text[at]: its length, with `inner` the words between the brackets; 0 for any other bracket. */
static size_t tag_length(const struct cleaner *c, size_t at, size_t *inner, size_t *inner_n)
{
    enum { LONGEST = 32 };
    size_t i = at + 1, words = 0;
    for (bool in_word = false; i < c->end && i - at < LONGEST && c->text[i] != ']'; i++) {
        const char ch = c->text[i];
        const bool letter = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || ch == '_' || ch == '-';
        if (!letter && ch != ' ') return 0;
        if (letter && !in_word) words++;
        in_word = letter;
    }
    if (i >= c->end || c->text[i] != ']' || words < 1 || words > 2) return 0;
    *inner = at + 1;
    *inner_n = i - at - 1;
    while (c->text[*inner] == ' ') ++*inner, --*inner_n;
    while (c->text[*inner + *inner_n - 1] == ' ') --*inner_n;
    return i + 1 - at;
}

static void put_tag(struct cleaner *c, size_t at, size_t length, size_t inner, size_t inner_n)
{
    char name[40] = "[";
    memcpy(name + 1, c->text + inner, inner_n);
    memcpy(name + 1 + inner_n, "]", 2);
    const int32_t id = c->tags ? tokenizer_added(c->tags, name, inner_n + 2) : -1;
    if (id < 0) {
        if (c->notices && c->notices->n_unknown_tags == 0) {
            memcpy(c->notices->unknown_tag, c->text + at, length);
            c->notices->unknown_tag[length] = 0;
        }
        drop(c, c->notices ? &c->notices->n_unknown_tags : NULL);
        return;
    }
    size_t n;
    const char *piece = tokenizer_piece(c->tags, id, &n);
    buf_append(c->out, piece, n);
    c->last = ']';
    c->gap = false;
}

/* How many bytes of a row of marks at text[at] are ornament; 0 when it is to be said. */
static size_t ornament_length(const struct cleaner *c, size_t at, size_t line_end)
{
    const char ch = c->text[at];
    if (ch == '`') return 1;
    if (!is_row_mark(ch)) return 0;
    const size_t n = run_length(c->text, at, line_end);
    if (ch == '*') { /* 2 * 3 is arithmetic, **bold** is not */
        size_t after = at + 1;
        while (after < line_end && c->text[after] == ' ') after++;
        return n == 1 && c->digit_before && after < line_end && c->text[after] >= '0' && c->text[after] <= '9' ? 0 : n;
    }
    if (ch == '+') return n >= 3 ? n : 0; /* C++ */
    if (ch == '-') {                      /* a typed dash between words is a dash */
        const bool between = c->last >= 0 && unicode_has_words(c->text + at + n, line_end - at - n);
        return n >= 4 || (n >= 2 && !between) ? n : n >= 2 ? n - 1 : 0;
    }
    return n >= 2 ? n : 0;
}

bool text_is_ornament_row(const char *line, size_t n)
{
    bool ornament = false;
    for (size_t at = 0; at < n;) {
        const int32_t cp = utf8_next(line, n, &at);
        if (is_word(cp)) return false;
        ornament |= is_furniture(cp) || (cp < 128 && is_row_mark((char)cp));
    }
    return ornament;
}

static void clean_line(struct cleaner *c, size_t at, size_t line_end)
{
    c->line_start = c->out->n;
    c->last = -1;
    c->gap = c->digit_before = false;
    if (text_is_ornament_row(c->text + at, line_end - at)) {
        drop(c, c->notices ? &c->notices->n_ornaments : NULL);
        return;
    }
    while (at < line_end) {
        size_t inner, inner_n, n;
        if (c->text[at] == '[' && (n = tag_length(c, at, &inner, &inner_n)) > 0) {
            put_tag(c, at, n, inner, inner_n);
            at += n;
            continue;
        }
        if ((n = ornament_length(c, at, line_end)) > 0) {
            drop(c, c->notices ? &c->notices->n_ornaments : NULL);
            at += n;
            continue;
        }
        int32_t cp = utf8_next(c->text, line_end, &at);
        size_t ahead = at;
        if (is_emoji(cp))
            drop(c, c->notices ? &c->notices->n_emoji : NULL);
        else if (is_furniture(cp))
            drop(c, c->notices ? &c->notices->n_ornaments : NULL);
        else if (!is_invisible(cp, c->last, utf8_next(c->text, line_end, &ahead)))
            put(c, cp);
    }
}

void text_clean(struct buf *out, const char *text, size_t first, size_t end, const struct tokenizer *tags,
                struct text_notices *notices)
{
    struct cleaner c = {.out = out, .text = text, .end = end, .tags = tags, .notices = notices};
    for (size_t at = first; at < end;) {
        size_t before = at, line_end = at, next = at;
        for (int32_t cp; next < end; line_end = next) {
            cp = utf8_next(text, end, &next);
            if (is_line_break(cp)) break;
        }
        const bool at_line_start = at == 0 || is_line_break(utf8_previous(text, &before));
        if (at_line_start) {
            size_t blank = at;
            while (blank < line_end && (text[blank] == ' ' || text[blank] == '\t')) blank++;
            at = blank + text_line_mark(text + blank, line_end - blank);
        }
        clean_line(&c, at, line_end);
        buf_append(out, text + line_end, next - line_end);
        at = next;
    }
}
