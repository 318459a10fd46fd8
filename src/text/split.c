#include "text/split.h"

#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "text/unicode.h"

/* ---- how long a text takes to say ------------------------------------------------------------------------------- */

/* Seconds of speech for one code point: averages of read speech, good to about a factor of 1.5 for whole sentences. */
static double seconds_of(int32_t cp)
{
    if (unicode_is_digit(cp)) return 0.3;                             /* read as a word */
    if (cp >= 0x3040 && cp <= 0x30FF) return 0.13;                    /* kana: one mora */
    if ((cp >= 0x3400 && cp <= 0x9FFF) || cp >= 0x20000) return 0.25; /* ideographs: one syllable and more */
    if (cp >= 0xAC00 && cp <= 0xD7A3) return 0.2;                     /* Hangul syllables */
    if (unicode_is_letter(cp)) return 1 / 15.0;
    switch (utf8proc_category(cp)) {
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SM:
        return 0.4; /* "dollars", "plus" */
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return 0;
    default:
        return 1 / 15.0; /* marks, and what cleaning turns into a mark or a space: a piece must not grow by cleaning */
    }
}

/* What the text from its start up to some point costs. */
struct cost {
    double seconds;
    size_t bytes;
    int marks;
    bool space;
};

static void cost_add(struct cost *c, int32_t cp, size_t bytes)
{
    const bool space = unicode_is_space(cp);
    c->marks = unicode_is_mark(cp) ? c->marks + 1 : 0;
    if (!(space && c->space) && c->marks <= TEXT_MAX_MARKS) { /* the others are dropped by cleaning */
        c->bytes += bytes;
        c->seconds += seconds_of(space ? ' ' : cp);
    }
    c->space = space;
}

static struct cost cost_of(const char *text, size_t n)
{
    struct cost c = {0};
    for (size_t at = 0; at < n;) {
        size_t start = at;
        int32_t cp = utf8_next(text, n, &at);
        cost_add(&c, cp, at - start);
    }
    return c;
}

double text_expected_seconds(const char *text, size_t n)
{
    return cost_of(text, n).seconds;
}

/* ---- sentences -------------------------------------------------------------------------------------------------- */

static bool is_one_of(int32_t cp, const int32_t *set)
{
    for (; *set; set++)
        if (*set == cp) return true;
    return false;
}

/* . ! ? ..., Arabic, Devanagari, Armenian, Ethiopic, Khmer */
static bool is_ender(int32_t cp)
{
    static const int32_t set[] = {'.',    '!',    '?',    0x2026, 0x203C, 0x2047, 0x2048, 0x2049,
                                  0x061F, 0x06D4, 0x0964, 0x0965, 0x0589, 0x1362, 0x17D4, 0};
    return is_one_of(cp, set);
}

/* Enders of scripts that put no space behind them: ideographic and half-width full stop, full-width ! and ? and . */
static bool is_wide_ender(int32_t cp)
{
    static const int32_t set[] = {0x3002, 0xFF61, 0xFF01, 0xFF1F, 0xFF0E, 0};
    return is_one_of(cp, set);
}

static bool is_closer(int32_t cp)
{
    static const int32_t set[] = {'"',    '\'',   ')',    ']',    '}',    0x201D, 0x2019, 0xBB,
                                  0x203A, 0x300D, 0x300F, 0xFF09, 0x3011, 0x300B, 0};
    return is_one_of(cp, set);
}

static bool is_opener(int32_t cp)
{
    static const int32_t set[] = {'"', '\'', '(', '[', '{', 0x201C, 0x201E, 0x2018, 0x201A, 0xAB, 0xBF, 0xA1, 0};
    return is_one_of(cp, set);
}

/* A clause may end here when white space follows; behind the wide ones always. */
static bool is_clause_end(int32_t cp)
{
    static const int32_t set[] = {',', ';', ':', ')', ']', 0x2014, 0x2013, '-', 0x060C, 0x061B, 0};
    return is_one_of(cp, set) || is_ender(cp);
}

static bool is_wide_clause_end(int32_t cp)
{
    static const int32_t set[] = {0xFF0C, 0x3001, 0xFF1B, 0xFF1A, 0};
    return is_one_of(cp, set) || is_wide_ender(cp);
}

/* Is `word` (lower case, n bytes) in a list of words between single spaces? */
static bool in_list(const char *list, const char *word, size_t n)
{
    for (const char *p = list; (p = memmem(p, strlen(p), word, n)); p++)
        if (p[-1] == ' ' && p[n] == ' ') return true;
    return false;
}

/* A full stop behind these never ends a sentence. */
static const char titles[] =
    " mr mrs ms mx dr prof rev hon messrs mme mlle capt cmdr sgt cpl pvt lt maj gov vs cf viz approx e.g i.e ";
/* Behind these it does when the next word is one that often begins a sentence. */
static const char abbreviations[] =
    " st mt ft gen col adm sen rep pres dept est hr fr nr bzw ca etc jr sr inc ltd co corp bros ave blvd "
    "jan feb aug sept oct nov dec mon tue tues wed thu thur thurs fri ";
/* Behind these it does unless a number follows. */
static const char numbered[] = " no nos art ch sec fig figs eq vol vols pp p pg op ext para nr ";
static const char starters[] =
    " the a an he she it they we i you this that these those there then but and so or if when while as at in on for "
    "with after before what who how why where my his her its their our your no yes not now here some all one "
    "i'm it's he's she's that's there's let's don't ";

static char ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

/* The word of text[at ..) in lower case, up to 15 bytes; letters, apostrophes and inner full stops. */
static size_t lower_word(char word[16], const char *text, size_t at, size_t end)
{
    size_t n = 0;
    for (; at < end && n < 15; at++) {
        const char c = ascii_lower(text[at]);
        const bool letter = (c >= 'a' && c <= 'z') || c == '.' || c == '\'' || (unsigned char)c >= 0x80;
        if (!letter) break;
        word[n++] = c;
    }
    word[n] = 0;
    return n;
}

struct stop {                      /* a run of sentence enders and what stands around it */
    size_t first, enders_end, end; /* "?!" then closing quotes; end is behind both */
    size_t next;                   /* the next thing that is no space and no opening quote */
    int32_t next_cp;               /* -1 at the end of the text */
    bool closed, wide, only_full_stop;
};

/* u.s, p.m, ph.d: full stops between parts of one or two letters. An address is none. */
static bool is_acronym(const char *word)
{
    size_t part = 0;
    for (const char *c = word; *c && part <= 2; c++) part = *c == '.' ? 0 : part + 1;
    return part <= 2 && strchr(word, '.');
}

/* Is the single full stop at text[s->first] part of an abbreviation, an initial or a list number? */
static bool is_abbreviation(const char *text, size_t from, size_t n, const struct stop *s)
{
    char word[16], next[16];
    size_t start = s->first;
    while (start > from && s->first - start < 16) {
        size_t before = start;
        const int32_t cp = utf8_previous(text, &before);
        if (unicode_is_space(cp) || is_opener(cp) || cp == '-' || cp == '/') break;
        start = before;
    }
    const size_t length = lower_word(word, text, start, s->first);
    const size_t next_n = lower_word(next, text, s->next, n);
    const bool starter = unicode_is_upper(s->next_cp) && in_list(starters, next, next_n);
    const bool number_next = unicode_is_digit(s->next_cp);
    if (start == s->first) return !unicode_is_upper(s->next_cp); /* a spaced ellipsis . . . */
    if (length == 0 || start + length < s->first) { /* a number: "1. Milk" at the start of a line, "am 3. mai" */
        size_t i = start;
        while (i < s->first && text[i] >= '0' && text[i] <= '9') i++;
        const bool number = i == s->first && i > start;
        const bool line_start = start == from || text[start - 1] == '\n';
        return number && (line_start || unicode_is_lower(s->next_cp));
    }
    if (in_list(titles, word, length)) return true;
    if (length == 1 || is_acronym(word)) return !starter; /* initials, U.S., a.m. */
    if (in_list(numbered, word, length)) return number_next;
    return in_list(abbreviations, word, length) && !starter;
}

static bool ends_sentence(const char *text, size_t from, size_t n, const struct stop *s)
{
    if (s->next_cp < 0 || s->wide) return true;
    if (s->closed && unicode_is_lower(s->next_cp)) return false; /* "Hello!" she said */
    if (s->only_full_stop) return !is_abbreviation(text, from, n, s);
    const char last = text[s->enders_end - 1];
    return last == '!' || last == '?' || !unicode_is_lower(s->next_cp); /* an ellipsis goes on in lower case */
}

static size_t skip_spaces(const char *text, size_t n, size_t at)
{
    for (size_t next = at; next < n; at = next)
        if (!unicode_is_space(utf8_next(text, n, &next))) break;
    return at;
}

/* Reads the run of enders that begins at text[at]. */
static struct stop read_stop(const char *text, size_t n, size_t at)
{
    struct stop s = {.first = at, .only_full_stop = text[at] == '.'};
    size_t next = at;
    for (int32_t cp; next < n; at = next) {
        cp = utf8_next(text, n, &next);
        if (!is_ender(cp) && !is_wide_ender(cp)) break;
        s.only_full_stop &= at == s.first;
        s.wide |= is_wide_ender(cp);
    }
    s.enders_end = s.end = at;
    for (next = at; next < n; s.end = next)
        if (!is_closer(utf8_next(text, n, &next))) break;
    s.closed = s.end > s.enders_end;
    s.next = skip_spaces(text, n, s.end);
    for (next = s.next; next < n; s.next = next)
        if (!is_opener(utf8_next(text, n, &next))) break;
    next = s.next;
    s.next_cp = utf8_next(text, n, &next);
    return s;
}

/* Does the line break at text[at] end the sentence that began at `from`? Then where the next one starts, else 0. A
 * blank line does, the end of a heading, and a heading, a list mark or a row of ornament on the next line. */
static size_t line_break_ends(const char *text, size_t n, size_t from, size_t at)
{
    const size_t start = skip_spaces(text, n, at);
    int breaks = 0;
    for (size_t i = at; i < start; i++) breaks += text[i] == '\n';
    size_t head = at;
    while (head > from && text[head - 1] != '\n') head--;
    const char *newline = memchr(text + start, '\n', n - start);
    const size_t next_n = newline ? (size_t)(newline - text) - start : n - start;
    const bool heading = text[head] == '#' && text_line_mark(text + head, at - head) > 0;
    const bool marked = text_line_mark(text + start, next_n) > 0 || text_is_ornament_row(text + start, next_n);
    return breaks > 1 || heading || marked ? start : 0;
}

/* Is text[start .. end) a number and text[next ..) a capitalised word? "It was 1990.Then" */
static bool number_then_word(const char *text, size_t start, size_t end, size_t next, size_t n)
{
    for (size_t i = start; i < end; i++)
        if (text[i] < '0' || text[i] > '9') return false;
    utf8_next(text, n, &next);
    return end > start && next < n && unicode_is_lower(utf8_next(text, n, &next));
}

/* "First.Second": a full stop that lost its space, in a word that is no address and no number. */
static bool lost_its_space(const char *text, size_t from, size_t n, const struct stop *s)
{
    static const char address[] = "/@:_\\";
    size_t second = s->next;
    utf8_next(text, n, &second);
    if (!unicode_is_upper(s->next_cp) || s->end != s->next || !unicode_is_letter(utf8_next(text, n, &second)))
        return false; /* not the D of Ph.D. */
    size_t word = s->first, last = s->first;
    for (; word > from && text[word - 1] != ' ' && text[word - 1] != '\n'; word--)
        if (text[word - 1] == '.' || strchr(address, text[word - 1])) return false;
    if (!unicode_is_lower(utf8_previous(text, &last)) && !number_then_word(text, word, s->first, s->next, n))
        return false;
    for (size_t i = s->next; i + 1 < n && text[i] != ' '; i++) {
        size_t next = i + 1; /* "First.Second.Third" may go on; "First.Second.com" is an address */
        if (strchr(address, text[i]) || (text[i] == '.' && unicode_is_lower(utf8_next(text, n, &next)))) return false;
    }
    return true;
}

size_t text_first_sentence(const char *text, size_t n, bool grows)
{
    bool words = false;
    for (size_t at = 0; at < n;) {
        const size_t start = at;
        const int32_t cp = utf8_next(text, n, &at);
        words |= unicode_is_letter(cp) || unicode_is_digit(cp);
        if (cp == '\n' && words) {
            const size_t end = line_break_ends(text, n, 0, start);
            if (end > 0) return end;
        } else if (is_ender(cp) || is_wide_ender(cp)) {
            const struct stop s = read_stop(text, n, start);
            at = s.end;
            if (!words) continue;
            if (grows && s.next_cp < 0) return 0;
            const size_t after = skip_spaces(text, n, s.end);
            const bool apart = after > s.end || s.end == n || s.wide;
            if (apart ? ends_sentence(text, 0, n, &s) : lost_its_space(text, 0, n, &s)) return after;
        }
    }
    return grows ? 0 : n;
}

/* ---- sentences over the budget ---------------------------------------------------------------------------------- */

struct splitter {
    struct text_pieces *out;
    const char *text;
    double max_seconds, join_seconds;
    const struct tokenizer *tags;
    struct error *e;
    size_t first; /* where the next piece's range begins */
};

/* Share of the budget that a cost takes; over 1 does not fit. */
static double load_of(const struct splitter *sp, struct cost c)
{
    const double seconds = c.seconds / sp->max_seconds, bytes = (double)c.bytes / TEXT_PIECE_BYTES;
    return seconds > bytes ? seconds : bytes;
}

enum cut_class { CUT_CODE_POINT, CUT_GRAPHEME, CUT_WORD, CUT_CLAUSE, CUT_CLASSES };

/* What may be cut between two code points; `before` is the last one that is no space. */
static enum cut_class cut_class_at(int32_t previous, int32_t before, int32_t next, bool grapheme_break)
{
    if (!grapheme_break) return CUT_CODE_POINT;
    if (is_wide_clause_end(previous)) return CUT_CLAUSE;
    if (!unicode_is_space(previous) || unicode_is_space(next)) return CUT_GRAPHEME;
    if (is_clause_end(before)) return CUT_CLAUSE;
    return unicode_is_digit(before) && unicode_is_digit(next) ? CUT_GRAPHEME : CUT_WORD;
}

/* The best place to cut text[first .. end), whose whole load is given: parts of about equal load, at a clause if one
 * ends past a third of the budget, else between words, else between graphemes. */
static size_t best_cut(const struct splitter *sp, size_t first, size_t end, double whole)
{
    double parts = 1;
    while (parts < whole) parts++;
    const double target = whole / parts;
    size_t best[CUT_CLASSES] = {0};
    double distance[CUT_CLASSES];
    struct cost cost = {0};
    int32_t previous = -1, before = -1;
    utf8proc_int32_t state = 0;
    for (size_t at = first; at < end;) {
        const size_t start = at;
        const int32_t cp = utf8_next(sp->text, end, &at);
        if (previous >= 0) {
            const bool apart = utf8proc_grapheme_break_stateful(previous, cp, &state);
            const enum cut_class class = cut_class_at(previous, before, cp, apart);
            const double load = load_of(sp, cost), off = load > target ? load - target : target - load;
            const bool enough = class < CUT_WORD || load > 1 / 3.0;
            if (load <= 1 && enough && (!best[class] || off <= distance[class]))
                best[class] = start, distance[class] = off;
            if (load > 1) break;
        }
        cost_add(&cost, cp, at - start);
        previous = cp;
        if (!unicode_is_space(cp)) before = cp;
    }
    for (int class = CUT_CLASSES - 1; class >= 0; class --)
        if (best[class]) return best[class];
    return end;
}

/* ---- pieces ----------------------------------------------------------------------------------------------------- */

static utter_status out_of_memory(struct error *e)
{
    return error_set(e, UTTER_OUT_OF_MEMORY, "no memory to split the text");
}

/* One more sentence in the last piece, if the budget for that is not used up. */
static bool join_last(struct splitter *sp, const char *spoken, double seconds)
{
    struct text_pieces *out = sp->out;
    if (out->n == 0 || out->items[out->n - 1].seconds + seconds > sp->join_seconds) return false;
    struct text_piece *last = &out->items[out->n - 1];
    struct buf b = buf_empty(TEXT_PIECE_BYTES);
    buf_append_string(&b, last->spoken);
    buf_append_string(&b, " ");
    buf_append_string(&b, spoken);
    char *joined = buf_take(&b);
    buf_free(&b);
    if (!joined) return false;
    mem_free(last->spoken);
    last->spoken = joined;
    last->seconds += seconds;
    return true;
}

static utter_status append_piece(struct splitter *sp, char *spoken, double seconds)
{
    struct text_pieces *out = sp->out;
    struct text_piece *grown = out->items;
    if ((out->n & (out->n - 1)) == 0) grown = mem_realloc(out->items, (out->n ? 2 * out->n : 1) * sizeof *grown);
    if (!grown) {
        mem_free(spoken);
        return out_of_memory(sp->e);
    }
    out->items = grown;
    out->items[out->n++] = (struct text_piece){.first = sp->first, .spoken = spoken, .seconds = seconds};
    return UTTER_OK;
}

static void trim(struct buf *b)
{
    const size_t first = b->n > 0 ? skip_spaces(b->data, b->n, 0) : 0;
    for (size_t at = b->n; at > first && unicode_is_space(utf8_previous(b->data, &at));) b->n = at;
    if (b->n > 0) memmove(b->data, b->data + first, b->n -= first);
    buf_append(b, "", 0); /* the NUL behind it */
}

/* text[first .. end) becomes a piece, or part of a neighbour when nothing of it is spoken. */
static utter_status add_range(struct splitter *sp, size_t first, size_t end)
{
    struct buf b = buf_empty(4 * (end - first) + 64);
    text_clean(&b, sp->text, first, end, sp->tags, &sp->out->notices);
    trim(&b);
    const bool words = unicode_has_words(b.data, b.n);
    const double seconds = text_expected_seconds(b.data, b.n);
    char *spoken = buf_take(&b);
    buf_free(&b);
    if (!spoken) return out_of_memory(sp->e);
    utter_status s = UTTER_OK;
    if (!words || join_last(sp, spoken, seconds))
        mem_free(spoken);
    else
        s = append_piece(sp, spoken, seconds);
    if (s != UTTER_OK || sp->out->n == 0) return s;
    struct text_piece *last = &sp->out->items[sp->out->n - 1];
    last->n_bytes = end - last->first;
    sp->first = end;
    return UTTER_OK;
}

static utter_status add_sentence(struct splitter *sp, size_t first, size_t end)
{
    double left = load_of(sp, cost_of(sp->text + first, end - first));
    while (left > 1) {
        const size_t cut = best_cut(sp, first, end, left);
        utter_status s = add_range(sp, first, cut);
        if (s != UTTER_OK) return s;
        left -= load_of(sp, cost_of(sp->text + first, cut - first));
        first = cut;
    }
    return first < end ? add_range(sp, first, end) : UTTER_OK;
}

utter_status text_split(struct text_pieces *out, const char *text, size_t n, const struct text_split_options *options,
                        struct error *e)
{
    *out = (struct text_pieces){0};
    utter_status s = utf8_check(text, n, "text", e);
    struct splitter sp = {.out = out, .text = text, .max_seconds = TEXT_PIECE_SECONDS, .e = e};
    if (options) {
        if (options->max_seconds > 0) sp.max_seconds = options->max_seconds;
        sp.join_seconds = options->join_seconds < sp.max_seconds ? options->join_seconds : sp.max_seconds;
        sp.tags = options->tags;
    }
    for (size_t first = 0; first < n && s == UTTER_OK;) {
        const size_t end = first + text_first_sentence(text + first, n - first, false);
        s = add_sentence(&sp, first, end);
        first = end;
    }
    if (s == UTTER_OK && out->n == 0)
        s = error_set(e, UTTER_NOTHING_TO_SPEAK, "nothing to speak: the text has no letter or number");
    if (s != UTTER_OK) text_pieces_free(out);
    return s;
}

void text_pieces_free(struct text_pieces *p)
{
    for (size_t i = 0; i < p->n; i++) mem_free(p->items[i].spoken);
    mem_free(p->items);
    p->items = NULL;
    p->n = 0;
}
