/*
 * The text front end: parts separated by bytes 0xFF (never in UTF-8, rare in a mutation): vocab.json, merges.txt,
 * added_tokens.json, tokenizer_config.json, text. Missing parts are left out; a tokenizer that loads encodes the text and must decode to the
 * same bytes; the text is split and normalised whatever the tokenizer.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/decode.h"
#include "text/punc_norm.h"
#include "text/split.h"
#include "text/unicode.h"

static void check(bool ok)
{
    if (!ok) abort();
}

static void encode_and_decode(const struct tokenizer *t, const char *text, size_t n)
{
    int32_t *ids;
    size_t n_ids, n_back;
    if (tokenizer_encode(t, text, n, &ids, &n_ids, NULL) != UTTER_OK) return;
    char *back = tokenizer_decode(t, ids, n_ids, &n_back);
    check(back && n_back == n && memcmp(back, text, n) == 0);
    mem_free(back);
    mem_free(ids);
}

static void split(const char *text, size_t n, const struct tokenizer *tags)
{
    struct text_pieces p;
    const struct text_split_options o = {.tags = tags};
    const utter_status s = text_split(&p, text, n, &o, NULL);
    size_t at = 0;
    for (size_t i = 0; i < p.n; i++) {
        check(p.items[i].first == at && p.items[i].n_bytes > 0);
        at += p.items[i].n_bytes;
        /* the estimate is of the text as it came; cleaning exchanges marks of slightly different cost */
        check(strlen(p.items[i].spoken) <= TEXT_PIECE_BYTES && p.items[i].seconds <= 1.05 * TEXT_PIECE_SECONDS);
        check(unicode_has_words(p.items[i].spoken, strlen(p.items[i].spoken)));
        check(utf8_check(text, at, "", NULL) == UTTER_OK); /* a cut is between code points */
    }
    check(s != UTTER_OK || at == n);
    text_pieces_free(&p);
}

static void normalise(const char *text, size_t n)
{
    for (int rules = PUNC_NORM_TURBO; rules <= PUNC_NORM_MULTILINGUAL; rules++) {
        char *out;
        size_t out_n;
        if (punc_norm(&out, &out_n, (enum punc_norm_rules)rules, text, n, NULL) != UTTER_OK) continue;
        check(utf8_check(out, out_n, "", NULL) == UTTER_OK);
        mem_free(out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    enum { PARTS = 5 };
    const char *part[PARTS] = {NULL};
    size_t length[PARTS] = {0};
    const char *at = (const char *)data, *const end = at + n;
    for (int i = 0; i < PARTS && at <= end; i++) {
        const char *stop = i + 1 < PARTS && at < end ? memchr(at, 0xFF, (size_t)(end - at)) : NULL;
        if (!stop) stop = end;
        part[i] = stop > at ? at : NULL;
        length[i] = (size_t)(stop - at);
        at = stop + 1;
    }
    const struct tokenizer_files f = {
        "fuzz", part[0], part[1] ? part[1] : "", part[2], part[3], length[0], length[1], length[2], length[3], NULL,
    };
    struct tokenizer *t;
    const char *text = part[4] ? part[4] : "";
    if (tokenizer_from_files(&t, &f, NULL) == UTTER_OK) encode_and_decode(t, text, length[4]);
    split(text, length[4], t);
    normalise(text, length[4]);
    char *decoded;
    size_t decoded_n;
    if (text_decode(&decoded, &decoded_n, (const char *)data, n, "fuzz", NULL) == UTTER_OK) mem_free(decoded);
    tokenizer_free(&t);
    return 0;
}
