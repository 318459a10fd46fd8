/* text: punc_norm, the tokenizer, cleaning, splitting, loading. R-numbers name public cases of engines that got it wrong. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "checkpoint/gguf_writer.h"
#include "checkpoint/json_parts.h"
#include "test.h"
#include "text/decode.h"
#include "text/punc_norm.h"
#include "text/split.h"
#include "text/tokenizer_build.h"
#include "text/unicode.h"

#define GPT2 GOLDEN_DIR "/gpt2"

static struct error e;

/* GPT-2's files with the added tokens of gpt2_cases.json. */
static struct tokenizer *load_gpt2(struct cancel *cancel)
{
    struct tokenizer *t = NULL;
    struct file_map vocab, merges;
    assert_int_equal(file_map_open(&vocab, GPT2 "/vocab.json", &e), UTTER_OK);
    assert_int_equal(file_map_open(&merges, GPT2 "/merges.txt", &e), UTTER_OK);
    json_t *cases = json_load_file(GPT2 "/gpt2_cases.json", 0, NULL);
    char *added = json_dumps(json_object_get(cases, "added_tokens"), 0);
    const struct tokenizer_files f = {
        "gpt2",
        (const char *)vocab.data,
        (const char *)merges.data,
        added,
        NULL,
        vocab.n_bytes,
        merges.n_bytes,
        strlen(added),
        0,
        cancel,
    };
    const utter_status s = tokenizer_from_files(&t, &f, &e);
    assert_int_equal(s, cancel ? UTTER_CANCELLED : UTTER_OK);
    free(added);
    json_decref(cases);
    file_map_close(&vocab);
    file_map_close(&merges);
    return t;
}

static struct tokenizer *gpt2_tokenizer(void)
{
    return load_gpt2(NULL);
}

static void loading_a_tokenizer_can_be_cancelled(void **state)
{
    (void)state;
    struct cancel cancel = {0};
    cancel_request(&cancel);
    assert_null(load_gpt2(&cancel));
}

static void assert_encodes(const struct tokenizer *t, const char *text, const int32_t *expected, size_t n_expected)
{
    int32_t *ids;
    size_t n;
    assert_int_equal(tokenizer_encode(t, text, strlen(text), &ids, &n, &e), UTTER_OK);
    if (n != n_expected || (n && memcmp(ids, expected, n * sizeof *ids) != 0)) fail_msg("'%s' gives other ids", text);
    mem_free(ids);
}

static void gpt2_cases_are_exact(void **state)
{
    (void)state;
    struct tokenizer *t = gpt2_tokenizer();
    assert_int_equal(tokenizer_size(t), 50266);
    json_t *root = json_load_file(GPT2 "/gpt2_cases.json", 0, NULL), *c;
    size_t i, n_cases = 0;
    json_array_foreach(json_object_get(root, "cases"), i, c)
    {
        json_t *ids = json_object_get(c, "ids");
        int32_t expected[256];
        size_t n = json_array_size(ids);
        assert_true(n <= 256);
        for (size_t k = 0; k < n; k++) expected[k] = (int32_t)json_integer_value(json_array_get(ids, k));
        const char *text = json_string_value(json_object_get(c, "text"));
        assert_encodes(t, text, expected, n);
        size_t length;
        char *back = tokenizer_decode(t, expected, n, &length);
        assert_string_equal(back, text);
        mem_free(back);
        n_cases++;
    }
    assert_int_equal(n_cases, 40);
    json_decref(root);
    tokenizer_free(&t);
}

/* R29 */
static void every_byte_maps_one_to_one(void **state)
{
    (void)state;
    bool seen[0x144] = {false};
    for (int b = 0; b < 256; b++) {
        const int32_t cp = gpt2_byte_to_code_point(b);
        assert_in_range(cp, 33, 0x143);
        assert_false(seen[cp]);
        seen[cp] = true;
    }
    assert_int_equal(gpt2_byte_to_code_point(173), 0x143);
    assert_int_equal(gpt2_byte_to_code_point(' '), 0x120);
    struct tokenizer *t = gpt2_tokenizer();
    static const char text[] = "\u00e9 \u00df \u0436 \u4f60 \uc548";
    int32_t *ids;
    size_t n, length;
    assert_int_equal(tokenizer_encode(t, text, sizeof text - 1, &ids, &n, &e), UTTER_OK);
    char *back = tokenizer_decode(t, ids, n, &length);
    assert_string_equal(back, text);
    mem_free(back);
    mem_free(ids);
    tokenizer_free(&t);
}

static utter_status toy(struct tokenizer **t, const char *vocab, const char *merges, const char *added,
                        const char *config)
{
    const struct tokenizer_files f = {
        "toy",
        vocab,
        merges,
        added,
        config,
        vocab ? strlen(vocab) : 0,
        merges ? strlen(merges) : 0,
        added ? strlen(added) : 0,
        config ? strlen(config) : 0,
        NULL,
    };
    return tokenizer_from_files(t, &f, &e);
}

/* R28 */
static void missing_bytes_are_refused_with_their_place(void **state)
{
    (void)state;
    struct tokenizer *t;
    assert_int_equal(toy(&t, "{\"a\":0,\"b\":1,\"ab\":2,\"?\":3}", "#version: 0.2\na b\n", NULL, NULL), UTTER_OK);
    assert_encodes(t, "abba?", (int32_t[]){2, 1, 0, 3}, 4);
    static const char *const lacking[] = {"ab\u4f60\uff1f", "ab\ufdfa", "ab\U00010348", "ab\x01"};
    for (size_t i = 0; i < 4; i++) {
        int32_t *ids;
        size_t n;
        assert_int_equal(tokenizer_encode(t, lacking[i], strlen(lacking[i]), &ids, &n, &e), UTTER_INVALID_ARGUMENT);
        assert_non_null(strstr(e.text, "byte 2"));
        assert_null(ids);
    }
    tokenizer_free(&t);
}

static void added_tokens_match_leftmost_longest(void **state)
{
    (void)state;
    struct tokenizer *t;
    assert_int_equal(toy(&t, "{\"a\":0,\"[\":1,\"x\":2,\"]\":3}", "", "{\"[x]\":4,\"[x]a\":5}",
                         "{\"added_tokens_decoder\":{\"7\":{\"content\":\"xx\"}}}"),
                     UTTER_OK);
    assert_int_equal(tokenizer_size(t), 8);
    assert_encodes(t, "[x]a[x]xxx", (int32_t[]){5, 4, 7, 2}, 4);
    assert_encodes(t, "[x", (int32_t[]){1, 2}, 2);
    assert_int_equal(tokenizer_added(t, "[X]", 3), 4);
    assert_int_equal(tokenizer_added(t, "a", 1), -1);
    size_t n;
    assert_null(tokenizer_piece(t, 6, &n));
    assert_null(tokenizer_decode(t, (int32_t[]){6}, 1, &n));
    tokenizer_free(&t);
}

static void damaged_tokenizers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *vocab, *merges, *added, *config, *says;
    } cases[] = {
        {NULL, "", NULL, NULL, "no vocab.json"},
        {"{}", NULL, NULL, NULL, "no merges.txt"},
        {"{", "", NULL, NULL, "vocab.json: line 1"},
        {"[]", "", NULL, NULL, "expected a JSON object"},
        {"{}", "", NULL, NULL, "0 tokens"},
        {"{\"a\":\"0\"}", "", NULL, NULL, "'a' has no id"},
        {"{\"a\":-1}", "", NULL, NULL, "'a' has no id"},
        {"{\"a\":4294967296}", "", NULL, NULL, "'a' has no id"},
        {"{\"a\":0,\"b\":0}", "", NULL, NULL, "two tokens have id 0"},
        {"{\"a\":0,\"a\":1}", "", NULL, NULL, "duplicate object key"},
        {"{\"\u0120\":0,\" \":1}", "", NULL, NULL, "two tokens read ' '"},
        {"{\"\":0}", "", NULL, NULL, "token 0 is empty"},
        {"{\"a\":0}", "a b", NULL, NULL, "merge 0 'a b'"},
        {"{\"a\":0,\"b\":1}", "a b", NULL, NULL, "merge 0 'a b'"},
        {"{\"a\":0,\"aa\":1}", "aa", NULL, NULL, "merge 0 'aa'"},
        {"{\"a\":0,\"aa\":1}", "a a \n", NULL, NULL, "merge 0"},
        {"{\"a\":0}", "", "{\"b\":0}", NULL, "'b' has the id of another token"},
        {"{\"a\":0}", "", NULL, "{\"added_tokens_decoder\":{\"x\":{}}}", "'x' is no token"},
        {"{\"a\":0}", "", NULL, "{\"added_tokens_decoder\":{\"9999999999\":{\"content\":\"a\"}}}", "is no token"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *t;
        utter_status s = toy(&t, cases[i].vocab, cases[i].merges, cases[i].added, cases[i].config);
        assert_int_equal(s, cases[i].vocab && cases[i].merges ? UTTER_MODEL_DAMAGED : UTTER_MODEL_NOT_FOUND);
        if (!strstr(e.text, cases[i].says)) fail_msg("case %zu says '%s'", i, e.text);
        assert_null(t);
    }
    struct tokenizer *t;
    assert_int_equal(tokenizer_load_folder(&t, "/no/such/folder", &e), UTTER_MODEL_NOT_FOUND);
    assert_int_equal(tokenizer_load_folder(&t, GPT2, &e), UTTER_OK); /* holds nothing but tokenizer files */
    tokenizer_free(&t);
}

/* ---- large JSON objects, in parts ---- */

struct seen {
    int n_parts, n_members;
};

static utter_status see_members(void *user, json_t *members, struct error *error)
{
    (void)error;
    struct seen *seen = user;
    const char *key;
    json_t *value;
    seen->n_parts++;
    json_object_foreach(members, key, value)
    {
        char expected[64];
        snprintf(expected, sizeof expected, "},{\"%d\\", seen->n_members);
        assert_string_equal(key, expected);
        assert_int_equal(json_integer_value(json_array_get(json_object_get(value, "[,"), 1)), seen->n_members++);
    }
    return UTTER_OK;
}

enum { MEMBERS = 1000 };

/* MEMBERS of a few dozen bytes, one a line, whose keys and values hold what could be taken for an end; then `tail`, where # stands for more space than a part has. */
static struct buf large_object(const char *tail)
{
    struct buf b = buf_empty(1 << 20);
    for (int i = 0; i < MEMBERS; i++) {
        char member[128];
        snprintf(member, sizeof member, "%s\n\"},{\\\"%d\\\\\" : {\"[,\": [\"]}\\\"\", %d]}", i ? "," : " {", i, i);
        buf_append_string(&b, member);
    }
    for (const char *p = tail; *p; p++)
        if (*p == '#')
            for (int i = 0; i < 5000; i++) buf_append(&b, " ", 1);
        else
            buf_append(&b, p, 1);
    return b;
}

static void large_objects_are_read_in_parts(void **state)
{
    (void)state;
    static const struct {
        const char *tail, *says;
    } cases[] = {
        {"}", NULL},
        {"\n } \t\r\n", NULL},
        {"", "'}' expected"},
        {"#}", NULL},
        {",}", "string or '}' expected"},
        {"#,}", "expected a member"},
        {"#,#,\"a\":1}", "expected a member"},
        {",", "'}' expected"},
        {",,\"a\":1}", "string or '}' expected"},
        {"]", "'}' expected"},
        {"}}", "expected nothing behind the object"},
        {"}{}", "expected nothing behind the object"},
        {",\"a\":[}", "unexpected token"},
        {",\"a\":\"}", "premature end of input"},
    };
    struct cancel cancel = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf b = large_object(cases[i].tail);
        struct seen seen = {0};
        const utter_status s = json_object_parts(b.data, b.n, "file", "what", &cancel, see_members, &seen, &e);
        assert_int_equal(s, cases[i].says ? UTTER_MODEL_DAMAGED : UTTER_OK);
        if (cases[i].says && !strstr(e.text, cases[i].says)) fail_msg("case %zu says '%s'", i, e.text);
        if (cases[i].says && strncmp(e.text, "file: what: line 100", 20) != 0) fail_msg("case %zu: '%s'", i, e.text);
        if (!cases[i].says) assert_int_equal(seen.n_members, MEMBERS);
        assert_true(seen.n_parts > 4);
        buf_free(&b);
    }
    struct buf b = large_object("}");
    struct seen seen = {0};
    cancel_request(&cancel);
    assert_int_equal(json_object_parts(b.data, b.n, "file", "what", &cancel, see_members, &seen, &e), UTTER_CANCELLED);
    assert_int_equal(seen.n_parts, 0);
    buf_free(&b);
}

enum gguf_fault { WHOLE, NO_TYPES, FEW_TYPES, TYPES_ARE_TEXT, TOKENS_ARE_NUMBERS, BAD_MERGE };

/* A GGUF file whose tokenizer has a fault, opened. */
static utter_status gguf_tokenizer(struct tokenizer **t, enum gguf_fault fault)
{
    static const char *const tokens[] = {"a", "b", "ab", "[x]", "<|endoftext|>"}, *const merge[] = {"a b"},
                             *const bad[] = {"a c"};
    static const int32_t types[] = {1, 1, 1, 4, 1};
    char path[] = "utter-text-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct gguf_writer *w;
    assert_int_equal(gguf_writer_create(&w, path, &e), UTTER_OK);
    if (fault == TOKENS_ARE_NUMBERS)
        gguf_write_ints(w, "tokenizer.ggml.tokens", types, 5);
    else
        gguf_write_strings(w, "tokenizer.ggml.tokens", tokens, 5);
    if (fault == TYPES_ARE_TEXT)
        gguf_write_strings(w, "tokenizer.ggml.token_type", tokens, 5);
    else if (fault != NO_TYPES)
        gguf_write_ints(w, "tokenizer.ggml.token_type", types, fault == FEW_TYPES ? 4 : 5);
    gguf_write_strings(w, "tokenizer.ggml.merges", fault == BAD_MERGE ? bad : merge, 1);
    const float value = 1;
    gguf_declare(w, &(struct tensor){.name = "x", .type = DTYPE_F32, .n_dims = 1, .shape = {1}});
    gguf_write_data(w, &value, sizeof value);
    size_t n_bytes;
    assert_int_equal(gguf_finish(w, &n_bytes), UTTER_OK);
    gguf_writer_destroy(&w);
    struct checkpoint *ck;
    assert_int_equal(checkpoint_open(&ck, path, NULL, NULL, &e), UTTER_OK);
    unlink(path);
    const utter_status s = tokenizer_load(t, ck, NULL, &e);
    checkpoint_close(&ck);
    return s;
}

static void a_gguf_file_carries_its_tokenizer(void **state)
{
    (void)state; /* R76 */
    struct tokenizer *t;
    assert_int_equal(gguf_tokenizer(&t, WHOLE), UTTER_OK);
    assert_encodes(t, "ab[x]a<|endoftext|>b", (int32_t[]){2, 3, 0, 4, 1}, 5); /* outlives the file */
    tokenizer_free(&t);
    static const char *const says[] = {NULL,
                                       "tokenizer.ggml.token_type",
                                       "4 entries for 5 tokens",
                                       "tokenizer.ggml.token_type",
                                       "tokenizer.ggml.tokens",
                                       "merge 0 'a c'"};
    for (int fault = NO_TYPES; fault <= BAD_MERGE; fault++) {
        assert_int_equal(gguf_tokenizer(&t, (enum gguf_fault)fault), UTTER_MODEL_DAMAGED);
        if (!strstr(e.text, says[fault])) fail_msg("fault %d says '%s'", fault, e.text);
        assert_null(t);
    }
}

static void long_words_take_no_quadratic_time(void **state)
{
    (void)state;
    struct tokenizer *t = gpt2_tokenizer();
    enum { N = 2000000 };
    char *text = malloc(N);
    memset(text, 'x', N);
    int32_t *ids;
    size_t n;
    assert_int_equal(tokenizer_encode(t, text, N, &ids, &n, &e), UTTER_OK);
    assert_int_equal(n, N / 8); /* the merges reach eight x */
    mem_free(ids);
    free(text);
    tokenizer_free(&t);
}

static void tokenizer_survives_lack_of_memory(void **state)
{
    (void)state;
    for (long k = 1; k < 40; k++) {
        struct tokenizer *t = NULL;
        int32_t *ids = NULL;
        size_t n;
        mem_fail_after(k);
        utter_status s = toy(&t, "{\"a\":0,\"b\":1,\"ab\":2}", "a b\n", "{\"[x]\":3}", NULL);
        if (s == UTTER_OK) s = tokenizer_encode(t, "ab[x]", 5, &ids, &n, &e);
        mem_fail_after(0);
        assert_true(s == UTTER_OK || s == UTTER_OUT_OF_MEMORY || s == UTTER_MODEL_DAMAGED);
        mem_free(ids);
        tokenizer_free(&t);
    }
}

static void punc_norm_follows_the_table(void **state)
{
    (void)state;
    static const struct {
        enum punc_norm_rules rules;
        const char *text, *expected;
    } cases[] = {
        {PUNC_NORM_TURBO, "", "You need to add some text for me to talk."},
        {PUNC_NORM_TURBO, "   ", "."},
        {PUNC_NORM_TURBO, "hello world", "Hello world."},
        {PUNC_NORM_TURBO, " hello", "hello."},
        {PUNC_NORM_TURBO, "\u00dfig", "SSig."},
        {PUNC_NORM_TURBO, "\u01f0a", "J\u030ca."},
        {PUNC_NORM_TURBO, "\u01c5a", "\u01c5a."},
        {PUNC_NORM_TURBO,
         "a\u2003b\x1c"
         "c\n\nd",
         "A b c d."},
        {PUNC_NORM_TURBO, "wait\u2026 what?", "Wait,  what?"},
        {PUNC_NORM_TURBO, "so: \u2018a\u2019 \u2014 \u201cb\u201d \u2013 c ,", "So, 'a' - \"b\" - c,"},
        {PUNC_NORM_TURBO, "a... b; c - d", "A... b; c - d."},
        {PUNC_NORM_TURBO, "done\u2026", "Done,"},
        {PUNC_NORM_TURBO, "\u4f60\u597d\u3002", "\u4f60\u597d\u3002."},
        {PUNC_NORM_TURBO, "dash-", "Dash-"},
        {PUNC_NORM_ENGLISH, "a... b; c - d", "A,  b,  c, d."},
        {PUNC_NORM_ENGLISH, "\u4f60\u597d\u3002", "\u4f60\u597d\u3002."},
        {PUNC_NORM_MULTILINGUAL, "\u4f60\u597d\u3002", "\u4f60\u597d\u3002"},
        {PUNC_NORM_MULTILINGUAL, "oui\uff1f", "Oui\uff1f"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *out;
        size_t n;
        assert_int_equal(punc_norm(&out, &n, cases[i].rules, cases[i].text, strlen(cases[i].text), &e), UTTER_OK);
        assert_string_equal(out, cases[i].expected);
        assert_int_equal(n, strlen(out));
        mem_free(out);
    }
    char *out;
    assert_int_equal(punc_norm(&out, NULL, PUNC_NORM_TURBO, "a\xFF", 2, &e), UTTER_INVALID_ARGUMENT);
    assert_int_equal(punc_norm(&out, NULL, PUNC_NORM_TURBO, "a\0\u2026", 5, &e),
                     UTTER_OK); /* NUL is a character like others */
    assert_memory_equal(out, "A\0,", 4);
    mem_free(out);
}

/* ---- splitting ------------------------------------------------------------------------------------------------------ */

static struct text_pieces split(const char *text)
{
    struct text_pieces p;
    utter_status s = text_split(&p, text, strlen(text), NULL, &e);
    if (s != UTTER_OK) fail_msg("'%.60s': %s", text, e.text);
    size_t at = 0;
    for (size_t i = 0; i < p.n; i++) { /* the pieces cover the text */
        assert_int_equal(p.items[i].first, at);
        at += p.items[i].n_bytes;
        assert_true(unicode_has_words(p.items[i].spoken, strlen(p.items[i].spoken)));
        assert_true(p.items[i].seconds <= TEXT_PIECE_SECONDS + 1e-9);
        assert_true(strlen(p.items[i].spoken) <= TEXT_PIECE_BYTES);
    }
    assert_int_equal(at, strlen(text));
    return p;
}

static void assert_pieces(const char *text, const char *const *expected)
{
    struct text_pieces p = split(text);
    for (size_t i = 0; i < p.n || expected[i]; i++) {
        if (!expected[i] || i >= p.n)
            fail_msg("'%s': %zu pieces; piece %zu is '%s'", text, p.n, i, i < p.n ? p.items[i].spoken : "");
        assert_string_equal(p.items[i].spoken, expected[i]);
    }
    text_pieces_free(&p);
}
#define PIECES(text, ...) assert_pieces(text, (const char *const[]){__VA_ARGS__, NULL})

static void sentences_end_where_a_reader_pauses(void **state)
{
    (void)state;
    /* R20 */
    PIECES(
        "Dr. Lee met Mrs. Poe in the U.S. at 9 a.m. sharp. They spoke, e.g. about J. R. R. Tolkien. St. Mary's paid.",
        "Dr. Lee met Mrs. Poe in the U.S. at 9 a.m. sharp.", "They spoke, e.g. about J. R. R. Tolkien.",
        "St. Mary's paid.");
    /* R19 */
    PIECES("Height: 8,848.86 m (29,031.7 ft), v2.4.1, 192.168.1.1.",
           "Height: 8,848.86 m (29,031.7 ft), v2.4.1, 192.168.1.1.");
    PIECES("Es sind 22,1 \u00b0C.", "Es sind 22,1 \u00b0C.");
    PIECES("$5.3 billion at 9:30PM, 40\u201360\u00b0C, https://a.io/x?y=1, me@x.org",
           "$5.3 billion at 9:30PM, 40\u201360\u00b0C, https://a.io/x?y=1, me@x.org");
    PIECES("One. Two! Three? Four\u2026 Five", "One.", "Two!", "Three?", "Four\u2026", "Five");
    PIECES("Wait... what? No way.", "Wait... what?", "No way.");
    PIECES("\"Hello!\" she said. \"Go.\" He went.", "\"Hello!\" she said.", "\"Go.\"", "He went.");
    PIECES("He moved to the U.S. in May. She stayed in the U.S. They met.", "He moved to the U.S. in May.",
           "She stayed in the U.S.", "They met.");
    PIECES("See fig. 3 and no. 5. No. I won't.", "See fig. 3 and no. 5.", "No.", "I won't.");
    PIECES("Smith Jr. came. Then Acme Inc. sued.", "Smith Jr. came.", "Then Acme Inc. sued.");
    PIECES("See www.example.com. Click it.", "See www.example.com.", "Click it.");
    PIECES("Wait . . . what is it? Yes . . . No.", "Wait . . . what is it?", "Yes . . .", "No.");
    PIECES("Ann has a Ph.D. from there. Bob has none.", "Ann has a Ph.D. from there.", "Bob has none.");
    PIECES("first. second. third.", "first.", "second.", "third.");
    PIECES("This ends.Next one begins.", "This ends.", "Next one begins.");
    PIECES("Use System.Out.println or Node.js here.", "Use System.Out.println or Node.js here.");
    PIECES("\u4f60\u597d\u3002\u518d\u89c1\uff01", "\u4f60\u597d\u3002", "\u518d\u89c1\uff01");
    PIECES("A line\nthat wraps. Done.", "A line\nthat wraps.", "Done.");
    PIECES("No full stop here\n\nNew paragraph", "No full stop here", "New paragraph");
    PIECES("Buy:\n- milk\n- eggs\n1. Wash\n2. Cook", "Buy:", "milk", "eggs\n1. Wash\n2. Cook");
    PIECES("Am 3. mai kam er.", "Am 3. mai kam er.");
}

static void what_cannot_be_said_is_refused(void **state)
{
    (void)state; /* R14, R15, R17 */
    static const char *const silent[] = {"",
                                         "   ",
                                         "\n\n\t",
                                         "\u3002\u3002\u3002\uff01\uff1f",
                                         "\u200b\u200b",
                                         "\ufeff",
                                         "\"",
                                         "...",
                                         "* * *",
                                         "\U0001F604",
                                         "[nonsense]",
                                         "---\n***\n"};
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) {
        struct text_pieces p;
        assert_int_equal(text_split(&p, silent[i], strlen(silent[i]), NULL, &e), UTTER_NOTHING_TO_SPEAK);
        assert_int_equal(p.n, 0);
    }
    struct text_pieces p;
    assert_int_equal(text_split(&p, "M\xFCller", 6, NULL, &e), UTTER_INVALID_ARGUMENT);
    assert_non_null(strstr(e.text, "byte 1 (0xFC)"));
}

static void ornament_is_dropped_and_words_are_kept(void **state)
{
    (void)state;
    /* R16 */
    PIECES("* * *\nHello.", "Hello.");
    PIECES("Hello.\n---\n", "Hello.");
    PIECES("== Part 2 ==", "Part 2");
    PIECES("# Title\nText.", "Title", "Text.");
    PIECES("This is **very** `bold` text.", "This is very bold text.");
    PIECES("2 * 3 is 6, C# and C++ stay, #1 too.", "2 * 3 is 6, C# and C++ stay, #1 too.");
    PIECES("He said -- well -- no.", "He said - well - no.");
    PIECES("Title\n=====\nText.", "Title", "Text.");
    /* R17 */
    PIECES("\"Hello,\" she said.", "\"Hello,\" she said.");
    PIECES("\u00abHello,\u00bb \u201cshe\u201d \u2018said\u2019.",
           "\u00abHello,\u00bb \u201cshe\u201d \u2018said\u2019.");
    /* R27 */
    PIECES("\U0001F604Hi\U0001F604 there \U0001F468\u200d\U0001F469\u200d\U0001F467\u200d\U0001F466 "
           "\U0001F3F3\uFE0F\u200d\U0001F308",
           "Hi there");
    PIECES("Nice\U0001F44D\U0001F3FDwork \U0001F600.", "Nice work.");
    PIECES("zero\u200bwidth \u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
           "zerowidth \u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645");
    PIECES("Press 1\uFE0F\u20E3 now \u00a9 2024.", "Press 1 now \u00a9 2024.");
}

/* R18 */
static void tags_are_one_token_or_nothing(void **state)
{
    (void)state;
    struct tokenizer *t = gpt2_tokenizer();
    const struct text_split_options o = {.tags = t};
    static const char text[] =
        "Well [laugh] [Laugh] [ laugh ] [clear throat] [nonsense] [nope] so [1] and [a long aside here].";
    struct text_pieces p;
    assert_int_equal(text_split(&p, text, sizeof text - 1, &o, &e), UTTER_OK);
    assert_string_equal(p.items[0].spoken,
                        "Well [laugh] [laugh] [laugh] [clear throat]   so [1] and [a long aside here].");
    assert_int_equal(p.notices.n_unknown_tags, 2);
    assert_string_equal(p.notices.unknown_tag, "[nonsense]");
    text_pieces_free(&p);
    PIECES("Well [laugh] so.", "Well  so."); /* a vocabulary without the tag */
    json_t *cases = json_load_file(GPT2 "/gpt2_cases.json", 0, NULL), *id;
    const char *tag;
    json_object_foreach(json_object_get(cases, "added_tokens"), tag, id)
        assert_encodes(t, tag, (int32_t[]){(int32_t)json_integer_value(id)}, 1);
    json_decref(cases);
    tokenizer_free(&t);
}

static char *repeat(const char *unit, size_t n)
{
    const size_t length = strlen(unit);
    char *text = malloc(n * length + 1);
    for (size_t i = 0; i < n; i++) memcpy(text + i * length, unit, length);
    text[n * length] = 0;
    return text;
}

static size_t count_pieces(char *text)
{
    struct text_pieces p = split(text);
    const size_t n = p.n;
    text_pieces_free(&p);
    free(text);
    return n;
}

static void long_text_keeps_the_budget(void **state)
{
    (void)state;
    /* R07, R24: clause, then word, then hard */
    struct text_pieces p =
        split("When the long sentence goes on and on, and nobody stops it, it is cut at a clause, where a reader "
              "would breathe, and not in the middle of a word, so that the voice stays good, and the cap of the "
              "model is never met, however long the writer, who loves commas, keeps the reader waiting for the end "
              "of what he has to say, which comes at last.");
    assert_int_equal(p.n, 2);
    const char *first = p.items[0].spoken;
    assert_int_equal(first[strlen(first) - 1], ',');
    text_pieces_free(&p);
    assert_in_range(count_pieces(repeat("abcde, ", 215)), 5, 7);
    assert_in_range(count_pieces(repeat("abcde ", 250)), 5, 7);
    assert_in_range(count_pieces(repeat("abcdef", 250)), 5, 7);
    /* R05, R06: 2,000 and 3,000 characters */
    assert_in_range(count_pieces(repeat("the quick brown fox jumps over the lazy dog and ", 42)), 7, 9);
    assert_int_equal(count_pieces(repeat("The quick brown fox jumps over the lazy dog. ", 67)), 67);
    /* R25: ideographs weigh more */
    assert_int_equal(count_pieces(repeat("a", 280)), 1);
    assert_in_range(count_pieces(repeat("\u6c49", 280)), 4, 5);
    /* R23 */
    char *prose = repeat("Prose without an end goes on ", 69), *dashed = malloc(strlen(prose) + 64);
    sprintf(dashed, "-Within the tunnels (wait)-\n\n%s", prose);
    free(prose);
    assert_in_range(count_pieces(dashed), 8, 10);
    char *zalgo = repeat("a\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308\u0309\u030a\u030b\u030c\u030d\u030e"
                         "\u030f\u0310\u0311\u0312\u0313",
                         500);
    p = split(zalgo);
    for (size_t i = 0; i < p.n; i++) assert_int_equal(zalgo[p.items[i].first], 'a'); /* never inside a grapheme */
    assert_in_range(p.n, 7, 9);
    text_pieces_free(&p);
    free(zalgo);
    /* one grapheme over the budget: a consonant stack without an end */
    count_pieces(repeat("\u0915\u094d", 2000));
    /* digits take long to say, and stay together in words */
    p = split("1,234,567 2,345,678 3,456,789 4,567,890 5,678,901 6,789,012 7,890,123 8,901,234 9,012,345 1,234,567 "
              "2,345,678");
    assert_true(p.n > 1);
    text_pieces_free(&p);
}

static void short_sentences_can_share_a_piece(void **state)
{
    (void)state;
    const struct text_split_options o = {.join_seconds = 6};
    static const char text[] = "One here. Two here. Three is somewhat longer than the others were. Four follows that "
                               "one at some distance. Five.";
    struct text_pieces p;
    assert_int_equal(text_split(&p, text, sizeof text - 1, &o, &e), UTTER_OK);
    assert_int_equal(p.n, 2);
    assert_string_equal(p.items[0].spoken, "One here. Two here. Three is somewhat longer than the others were.");
    assert_int_equal(p.items[0].n_bytes + p.items[1].n_bytes, sizeof text - 1);
    text_pieces_free(&p);
}

static void growing_text_gives_whole_sentences_only(void **state)
{
    (void)state;
    static const char text[] = "First one. It is 3.14 long! \"Well.\" he";
    size_t at = text_first_sentence(text, sizeof text - 1, true);
    assert_int_equal(at, 11);
    assert_int_equal(text_first_sentence("First one.", 10, true), 0); /* "First one.5" may follow */
    assert_int_equal(text_first_sentence("First one.", 10, false), 10);
    assert_int_equal(text_first_sentence("First one. N", 12, true), 11);
    assert_int_equal(text_first_sentence("No end yet", 10, true), 0);
    at += text_first_sentence(text + at, sizeof text - 1 - at, true);
    assert_int_equal(at, 28);
    assert_int_equal(text_first_sentence(text + at, sizeof text - 1 - at, true), 0);
    assert_int_equal(text_first_sentence("Para\n\n", 6, true), 6);
}

static void splitting_is_linear(void **state)
{
    (void)state;
    assert_true(count_pieces(repeat("x", 1000000)) > 1000);
    assert_true(count_pieces(repeat("word ", 200000)) > 1000);
    assert_true(count_pieces(repeat("a\n", 300000)) > 100);
    assert_in_range(count_pieces(repeat("A. ", 100000)), 1000, 1100);
    char *blank = repeat("\n", 1000000);
    blank[0] = 'a';
    assert_int_equal(count_pieces(blank), 1);
}

/* R32 */
static void text_is_decoded_by_its_mark(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *expected, *says;
    } cases[] = {
        {"\xEF\xBB\xBFM\xC3\xBCller", 10, "M\u00fcller", NULL},
        {"\xFF\xFEM\0\xFC\0", 6, "M\u00fc", NULL},
        {"\xFE\xFF\0M\xD8\x3D\xDE\x04", 8, "M\U0001F604", NULL},
        {"plain", 5, "plain", NULL},
        {"", 0, "", NULL},
        {"M\xFCller", 6, NULL, "input: byte 1 (0xFC) is not UTF-8"},
        {"\xFF\xFEM", 3, NULL, "byte 2 is not UTF-16"},
        {"\xFF\xFE\x3D\xD8M\0", 6, NULL, "byte 2 is not UTF-16"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *out;
        size_t n;
        utter_status s = text_decode(&out, &n, cases[i].bytes, cases[i].n, "input", &e);
        assert_int_equal(s, cases[i].expected ? UTTER_OK : UTTER_INPUT_UNREADABLE);
        if (cases[i].expected)
            assert_string_equal(out, cases[i].expected);
        else
            assert_non_null(strstr(e.text, cases[i].says));
        mem_free(out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_cases_are_exact),
        cmocka_unit_test(every_byte_maps_one_to_one),
        cmocka_unit_test(missing_bytes_are_refused_with_their_place),
        cmocka_unit_test(added_tokens_match_leftmost_longest),
        cmocka_unit_test(damaged_tokenizers_are_refused),
        cmocka_unit_test(large_objects_are_read_in_parts),
        cmocka_unit_test(a_gguf_file_carries_its_tokenizer),
        cmocka_unit_test(long_words_take_no_quadratic_time),
        cmocka_unit_test(tokenizer_survives_lack_of_memory),
        cmocka_unit_test(punc_norm_follows_the_table),
        cmocka_unit_test(sentences_end_where_a_reader_pauses),
        cmocka_unit_test(what_cannot_be_said_is_refused),
        cmocka_unit_test(ornament_is_dropped_and_words_are_kept),
        cmocka_unit_test(tags_are_one_token_or_nothing),
        cmocka_unit_test(long_text_keeps_the_budget),
        cmocka_unit_test(short_sentences_can_share_a_piece),
        cmocka_unit_test(growing_text_gives_whole_sentences_only),
        cmocka_unit_test(loading_a_tokenizer_can_be_cancelled),
        cmocka_unit_test(splitting_is_linear),
        cmocka_unit_test(text_is_decoded_by_its_mark),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
