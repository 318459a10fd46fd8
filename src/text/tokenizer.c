#include "text/tokenizer_build.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/mem.h"
#include "text/unicode.h"

/* White_Space spelled out: PCRE2's \s also takes U+180E, which Unicode dropped from it. */
#define SPACES                                                                                                         \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
static const char split_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACES "\\p{L}\\p{N}]+"
                                    "|[" SPACES "]+(?![^" SPACES "])|[" SPACES "]+";

enum { ALPHABET_END = 0x144 }; /* one behind the last code point of GPT-2's alphabet */

struct token {
    uint32_t first, n; /* range in bytes.data; n 0: no such id */
};

struct merge {
    int32_t left, right, joined; /* joined < 0: an empty slot */
    int32_t rank;
};

struct tokenizer {
    char *where; /* for messages */
    struct buf bytes;
    struct token *tokens; /* [n_tokens] */
    int n_tokens, capacity;
    int32_t *slots; /* hash table of the vocabulary's tokens by bytes: id + 1, 0 = empty */
    size_t n_slots;
    struct merge *merges; /* hash table by pair */
    size_t n_merge_slots, n_merges, max_merges;
    int32_t *added; /* ids matched verbatim */
    int n_added;
    bool starts_added[256]; /* bytes that begin an added token */
    int32_t byte_id[256];   /* -1: the vocabulary lacks the byte */
    int16_t byte_of[ALPHABET_END];
    pcre2_code *split;
    struct cancel *cancel; /* while it is built; NULL: none */
    unsigned n_polls;
};

/* ---- hash tables: open addressing, at most half full ------------------------------------------------------------ */

static size_t hash_bytes(const char *bytes, size_t n)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)bytes[i]) * 0x100000001B3u;
    return (size_t)(h ^ h >> 32);
}

static size_t hash_pair(int32_t left, int32_t right)
{
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    return (size_t)(h ^ h >> 32);
}

static size_t table_size(size_t entries)
{
    size_t n = 16;
    while (n < 2 * entries) n *= 2;
    return n;
}

static bool token_is(const struct tokenizer *t, int32_t id, const char *bytes, size_t n)
{
    return t->tokens[id].n == n && memcmp(t->bytes.data + t->tokens[id].first, bytes, n) == 0;
}

/* The slot of the token with these bytes, or the empty one where it belongs. */
static int32_t *token_slot(const struct tokenizer *t, const char *bytes, size_t n)
{
    size_t i = hash_bytes(bytes, n) & (t->n_slots - 1);
    while (t->slots[i] && !token_is(t, t->slots[i] - 1, bytes, n)) i = (i + 1) & (t->n_slots - 1);
    return &t->slots[i];
}

static struct merge *merge_slot(const struct tokenizer *t, int32_t left, int32_t right)
{
    size_t i = hash_pair(left, right) & (t->n_merge_slots - 1);
    while (t->merges[i].joined >= 0 && (t->merges[i].left != left || t->merges[i].right != right))
        i = (i + 1) & (t->n_merge_slots - 1);
    return &t->merges[i];
}

/* ---- building --------------------------------------------------------------------------------------------------- */

int32_t gpt2_byte_to_code_point(int byte)
{
    int32_t next = 0x100;
    for (int b = 0; b < 256; b++) {
        bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        if (b == byte) return printable ? b : next;
        if (!printable) next++;
    }
    return -1;
}

static utter_status out_of_memory(const char *where, struct error *e)
{
    return error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory for the tokenizer", where);
}

utter_status tokenizer_begin(struct tokenizer **out, const char *where, size_t max_tokens, size_t n_merges,
                             struct cancel *cancel, struct error *e)
{
    *out = NULL;
    if (max_tokens > TOKENIZER_MAX_TOKENS || n_merges > TOKENIZER_MAX_TOKENS)
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: %zu tokens and %zu merges, expected 1 to %d tokens", where,
                         max_tokens, n_merges, TOKENIZER_MAX_TOKENS);
    struct tokenizer *t = mem_calloc(1, sizeof *t);
    if (!t) return out_of_memory(where, e);
    t->bytes = buf_empty((size_t)1 << 30);
    t->cancel = cancel;
    t->n_slots = table_size(max_tokens);
    t->n_merge_slots = table_size(n_merges);
    t->max_merges = n_merges;
    t->where = mem_strdup(where);
    t->slots = mem_calloc(t->n_slots, sizeof *t->slots);
    t->merges = mem_calloc(t->n_merge_slots, sizeof *t->merges);
    if (!t->where || !t->slots || !t->merges) {
        tokenizer_free(&t);
        return out_of_memory(where, e);
    }
    for (size_t i = 0; i < t->n_merge_slots; i++) t->merges[i].joined = -1;
    for (int i = 0; i < ALPHABET_END; i++) t->byte_of[i] = -1;
    for (int b = 0; b < 256; b++) t->byte_of[gpt2_byte_to_code_point(b)] = (int16_t)b;
    *out = t;
    return UTTER_OK;
}

void tokenizer_free(struct tokenizer **tokenizer)
{
    struct tokenizer *t = *tokenizer;
    if (!t) return;
    pcre2_code_free(t->split);
    buf_free(&t->bytes);
    mem_free(t->where);
    mem_free(t->tokens);
    mem_free(t->slots);
    mem_free(t->merges);
    mem_free(t->added);
    mem_free(t);
    *tokenizer = NULL;
}

/* Characters of GPT-2's alphabet as the bytes they stand for; false when one is not of the alphabet. */
static bool append_mapped(struct buf *b, const struct tokenizer *t, const char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        int32_t cp = utf8_next(text, n, &at);
        if (cp >= ALPHABET_END || t->byte_of[cp] < 0) return false;
        buf_append(b, &(char){(char)t->byte_of[cp]}, 1);
    }
    return true;
}

/* Also makes room for it. */
static utter_status check_token(struct tokenizer *t, int64_t id, const char *text, struct error *e)
{
    if (id < 0 || id >= TOKENIZER_MAX_TOKENS)
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: token '%.40s' has id %lld, expected 0 to %d", t->where, text,
                         (long long)id, TOKENIZER_MAX_TOKENS - 1);
    if (!*text) return error_set(e, UTTER_MODEL_DAMAGED, "%s: token %lld is empty", t->where, (long long)id);
    if (utf8_check(text, strlen(text), t->where, e) != UTTER_OK) return UTTER_MODEL_DAMAGED;
    if (id >= t->capacity) {
        const int capacity = 2 * (int)id + 256;
        struct token *grown = mem_realloc(t->tokens, (size_t)capacity * sizeof *grown);
        if (!grown) return out_of_memory(t->where, e);
        t->tokens = grown;
        t->capacity = capacity;
    }
    for (; t->n_tokens <= id; t->n_tokens++) t->tokens[t->n_tokens] = (struct token){0};
    return UTTER_OK;
}

/* Once for every token and merge; only every 256th looks, some 0.1 ms apart. */
static utter_status poll(struct tokenizer *t, struct error *e)
{
    return ++t->n_polls % 256 ? UTTER_OK : cancel_check(t->cancel, e);
}

utter_status tokenizer_put(struct tokenizer *t, int64_t id, const char *text, struct error *e)
{
    utter_status s = check_token(t, id, text, e);
    if (s == UTTER_OK) s = poll(t, e);
    if (s != UTTER_OK) return s;
    if (t->tokens[id].n > 0)
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: two tokens have id %lld", t->where, (long long)id);
    const size_t first = t->bytes.n, n = strlen(text);
    if (!append_mapped(&t->bytes, t, text, n)) { /* no merge leads here: kept as it is written */
        t->bytes.n = first;
        buf_append(&t->bytes, text, n);
    }
    if (t->bytes.failed) return out_of_memory(t->where, e);
    t->tokens[id] = (struct token){(uint32_t)first, (uint32_t)(t->bytes.n - first)};
    int32_t *slot = token_slot(t, t->bytes.data + first, t->tokens[id].n);
    if (*slot) return error_set(e, UTTER_MODEL_DAMAGED, "%s: two tokens read '%.40s'", t->where, text);
    *slot = (int32_t)id + 1;
    return UTTER_OK;
}

utter_status tokenizer_put_added(struct tokenizer *t, int64_t id, const char *text, struct error *e)
{
    utter_status s = check_token(t, id, text, e);
    if (s != UTTER_OK) return s;
    const size_t n = strlen(text);
    for (int i = 0; i < t->n_added; i++)
        if (t->added[i] == id && token_is(t, (int32_t)id, text, n)) return UTTER_OK;
    if (t->tokens[id].n > 0 && !token_is(t, (int32_t)id, text, n))
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: added token '%.40s' has the id of another token, %lld", t->where,
                         text, (long long)id);
    if (t->tokens[id].n == 0) {
        t->tokens[id] = (struct token){(uint32_t)t->bytes.n, (uint32_t)n};
        buf_append(&t->bytes, text, n);
    }
    int32_t *grown = mem_realloc(t->added, ((size_t)t->n_added + 1) * sizeof *grown);
    if (!grown || t->bytes.failed) {
        if (grown) t->added = grown;
        return out_of_memory(t->where, e);
    }
    t->added = grown;
    t->added[t->n_added++] = (int32_t)id;
    t->starts_added[(unsigned char)*text] = true;
    return UTTER_OK;
}

utter_status tokenizer_put_merge(struct tokenizer *t, const char *pair, size_t n, struct error *e)
{
    const char *space = memchr(pair, ' ', n);
    const size_t left_n = space ? (size_t)(space - pair) : n;
    struct buf joined = buf_empty(1 << 16);
    size_t middle = 0;
    bool ok = space && left_n > 0 && left_n + 1 < n && t->n_merges < t->max_merges &&
              utf8_check(pair, n, t->where, NULL) == UTTER_OK && append_mapped(&joined, t, pair, left_n);
    middle = joined.n;
    ok = ok && append_mapped(&joined, t, space + 1, n - left_n - 1) && !joined.failed;
    struct merge m = {-1, -1, -1, (int32_t)t->n_merges};
    if (ok) {
        m.left = *token_slot(t, joined.data, middle) - 1;
        m.right = *token_slot(t, joined.data + middle, joined.n - middle) - 1;
        m.joined = *token_slot(t, joined.data, joined.n) - 1;
        ok = m.left >= 0 && m.right >= 0 && m.joined >= 0;
    }
    const bool lacks_memory = joined.failed;
    buf_free(&joined);
    if (lacks_memory) return out_of_memory(t->where, e);
    if (!ok)
        return error_set(e, UTTER_MODEL_DAMAGED,
                         "%s: merge %zu '%.*s' does not join two tokens of the vocabulary into a third", t->where,
                         t->n_merges, (int)(n < 60 ? n : 60), pair);
    struct merge *slot = merge_slot(t, m.left, m.right);
    if (slot->joined < 0) *slot = m; /* the first of two equal ones has the lower rank */
    t->n_merges++;
    return poll(t, e);
}

utter_status tokenizer_finish(struct tokenizer *t, struct error *e)
{
    if (t->n_tokens == 0) return error_set(e, UTTER_MODEL_DAMAGED, "%s: 0 tokens, expected some", t->where);
    for (int b = 0; b < 256; b++) t->byte_id[b] = *token_slot(t, &(char){(char)b}, 1) - 1;
    int code;
    size_t where;
    t->split = pcre2_compile((PCRE2_SPTR)split_pattern, PCRE2_ZERO_TERMINATED,
                             PCRE2_UTF | PCRE2_NO_UTF_CHECK | PCRE2_ANCHORED, &code, &where, NULL);
    if (!t->split) return out_of_memory(t->where, e);
    pcre2_jit_compile(t->split, PCRE2_JIT_COMPLETE); /* where there is no JIT, matching interprets */
    t->cancel = NULL;
    return UTTER_OK;
}

/* ---- BPE: the pair of lowest rank first, the leftmost of equal ones; a heap keeps long words from going quadratic */

struct symbol {
    int32_t id, previous, next; /* neighbours by index, -1 at the ends; id < 0: merged into the one before */
};

struct candidate {
    int32_t rank, at, left, right;
};

struct bpe {
    struct symbol *symbols;
    struct candidate *heap;
    size_t n_heap, max_symbols;
};

static bool comes_before(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(struct bpe *b, struct candidate c)
{
    size_t i = b->n_heap++;
    for (; i > 0 && comes_before(&c, &b->heap[(i - 1) / 2]); i = (i - 1) / 2) b->heap[i] = b->heap[(i - 1) / 2];
    b->heap[i] = c;
}

static struct candidate heap_pop(struct bpe *b)
{
    const struct candidate top = b->heap[0], last = b->heap[--b->n_heap];
    size_t i = 0;
    for (size_t child = 1; child < b->n_heap; child = 2 * i + 1) {
        if (child + 1 < b->n_heap && comes_before(&b->heap[child + 1], &b->heap[child])) child++;
        if (!comes_before(&b->heap[child], &last)) break;
        b->heap[i] = b->heap[child];
        i = child;
    }
    b->heap[i] = last;
    return top;
}

static void push_pair(struct bpe *b, const struct tokenizer *t, int32_t at)
{
    if (at < 0 || b->symbols[at].next < 0) return;
    const int32_t left = b->symbols[at].id, right = b->symbols[b->symbols[at].next].id;
    const struct merge *m = merge_slot(t, left, right);
    if (m->joined >= 0) heap_push(b, (struct candidate){m->rank, at, left, right});
}

static void join(struct bpe *b, const struct tokenizer *t, struct candidate c)
{
    struct symbol *s = &b->symbols[c.at];
    if (s->id != c.left || s->next < 0 || b->symbols[s->next].id != c.right) return; /* overtaken by another merge */
    struct symbol *gone = &b->symbols[s->next];
    s->id = merge_slot(t, c.left, c.right)->joined;
    gone->id = -1;
    s->next = gone->next;
    if (s->next >= 0) b->symbols[s->next].previous = c.at;
    push_pair(b, t, s->previous);
    push_pair(b, t, c.at);
}

static bool bpe_reserve(struct bpe *b, size_t n)
{
    if (n <= b->max_symbols) return true;
    mem_free(b->symbols);
    mem_free(b->heap);
    b->max_symbols = n;
    b->symbols = mem_calloc(n, sizeof *b->symbols);
    b->heap = mem_calloc(n, 3 * sizeof *b->heap); /* n - 1 pairs at first, two more for each merge */
    return b->symbols && b->heap;
}

struct id_list {
    int32_t *ids; /* room for one id a byte of the text: no merge makes more */
    size_t n;
};

static void encode_word(const struct tokenizer *t, struct bpe *b, const char *word, size_t n, struct id_list *out)
{
    for (size_t i = 0; i < n; i++)
        b->symbols[i] =
            (struct symbol){t->byte_id[(unsigned char)word[i]], (int32_t)i - 1, i + 1 < n ? (int32_t)i + 1 : -1};
    b->n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++) push_pair(b, t, (int32_t)i);
    while (b->n_heap > 0) join(b, t, heap_pop(b));
    for (int32_t i = 0; i >= 0; i = b->symbols[i].next) out->ids[out->n++] = b->symbols[i].id;
}

/* ---- encoding --------------------------------------------------------------------------------------------------- */

static utter_status check_bytes(const struct tokenizer *t, const char *text, size_t first, size_t n, struct error *e)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char byte = (unsigned char)text[first + i];
        if (t->byte_id[byte] < 0)
            return error_set(e, UTTER_INVALID_ARGUMENT, "text: the vocabulary has no token for byte %zu (0x%02X)",
                             first + i, byte);
    }
    return UTTER_OK;
}

static utter_status encode_stretch(const struct tokenizer *t, struct bpe *b, pcre2_match_data *match, const char *text,
                                   size_t n, struct id_list *out, struct error *e)
{
    for (size_t at = 0; at < n;) {
        int found = pcre2_match(t->split, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, match, NULL);
        const size_t end = found > 0 ? pcre2_get_ovector_pointer(match)[1] : at;
        if (end <= at)
            return error_set(e, UTTER_ENGINE, "text: the split pattern failed at byte %zu (PCRE2 error %d)", at, found);
        if (!bpe_reserve(b, end - at)) return out_of_memory("text", e);
        encode_word(t, b, text + at, end - at, out);
        at = end;
    }
    return UTTER_OK;
}

/* The longest added token at text[at], -1 when none begins there. */
static int32_t added_at(const struct tokenizer *t, const char *text, size_t n, size_t at)
{
    int32_t best = -1;
    if (!t->starts_added[(unsigned char)text[at]]) return -1;
    for (int i = 0; i < t->n_added; i++) {
        const struct token *a = &t->tokens[t->added[i]];
        if (a->n <= n - at && memcmp(t->bytes.data + a->first, text + at, a->n) == 0 &&
            (best < 0 || a->n > t->tokens[best].n))
            best = t->added[i];
    }
    return best;
}

static utter_status encode_all(const struct tokenizer *t, struct bpe *b, pcre2_match_data *match, const char *text,
                               size_t n, struct id_list *out, struct error *e)
{
    for (size_t at = 0, start = 0; at <= n; at++) {
        const int32_t id = at < n ? added_at(t, text, n, at) : -1;
        if (id < 0 && at < n) continue;
        utter_status s = check_bytes(t, text, start, at - start, e);
        if (s == UTTER_OK) s = encode_stretch(t, b, match, text + start, at - start, out, e);
        if (s != UTTER_OK || at == n) return s;
        out->ids[out->n++] = id;
        start = at + t->tokens[id].n;
        at = start - 1;
    }
    return UTTER_OK;
}

utter_status tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, int32_t **ids, size_t *n_ids,
                              struct error *e)
{
    *ids = NULL;
    *n_ids = 0;
    if (n == 0) return UTTER_OK;
    if (n > INT32_MAX / 4) return error_set(e, UTTER_INVALID_ARGUMENT, "text: %zu bytes are too many", n);
    utter_status s = utf8_check(text, n, "text", e);
    if (s != UTTER_OK) return s;
    struct bpe b = {0};
    struct id_list out = {mem_calloc(n, sizeof *out.ids), 0};
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    s = out.ids && match ? encode_all(t, &b, match, text, n, &out, e) : out_of_memory("text", e);
    pcre2_match_data_free(match);
    mem_free(b.symbols);
    mem_free(b.heap);
    if (s != UTTER_OK) {
        mem_free(out.ids);
        return s;
    }
    *ids = out.ids;
    *n_ids = out.n;
    return UTTER_OK;
}

/* ---- looking up ------------------------------------------------------------------------------------------------- */

int tokenizer_size(const struct tokenizer *t)
{
    return t->n_tokens;
}

const char *tokenizer_piece(const struct tokenizer *t, int32_t id, size_t *n_bytes)
{
    if (id < 0 || id >= t->n_tokens || t->tokens[id].n == 0) return NULL;
    *n_bytes = t->tokens[id].n;
    return t->bytes.data + t->tokens[id].first;
}

char *tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n_ids, size_t *n_bytes)
{
    struct buf b = buf_empty((size_t)1 << 30);
    for (size_t i = 0; i < n_ids; i++) {
        size_t n;
        const char *piece = tokenizer_piece(t, ids[i], &n);
        if (piece)
            buf_append(&b, piece, n);
        else
            b.failed = true;
    }
    *n_bytes = b.n;
    char *text = buf_take(&b);
    buf_free(&b);
    return text;
}

int32_t tokenizer_added(const struct tokenizer *t, const char *text, size_t n)
{
    for (int i = 0; i < t->n_added; i++) {
        const struct token *a = &t->tokens[t->added[i]];
        if (a->n == n && strncasecmp(t->bytes.data + a->first, text, n) == 0) return t->added[i];
    }
    return -1;
}
