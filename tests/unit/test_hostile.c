/*
 * Model files that lie: whatever is wrong with one, the answer is a status and a message that names the file and the
 * tensor or key. (With the sanitizers on, also: nothing is read that is not there.)
 */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "checkpoint/bind.h"
#include "checkpoint/checkpoint.h"
#include "tools/bytes.h"
#include "tools/hashfill.h"

static char folder[] = "/dev/shm/utter-hostile-XXXXXX"; /* in memory: thousands of small files */

static const char *path_of(const char *name)
{
    static char paths[4][256];
    static int turn;
    char *p = paths[turn++ & 3];
    snprintf(p, sizeof *paths, "%s/%s", folder, name);
    return p;
}

/* Opening `path` fails so, and the message has the path and both words. */
static void refused(const char *path, utter_status status, const char *a, const char *b)
{
    struct checkpoint *ck;
    struct error e = {""};
    const utter_status s = checkpoint_open(&ck, path, NULL, NULL, &e);
    if (s != status) fail_msg("status %d, expected %d: %s", s, status, e.text);
    assert_null(ck);
    if (!strstr(e.text, path) || !strstr(e.text, a) || !strstr(e.text, b))
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", e.text, a, b);
}

static void refused_bytes(struct bytes *b, const char *x, const char *y)
{
    const char *path = path_of("file");
    bytes_write(b, path);
    refused(path, UTTER_MODEL_DAMAGED, x, y);
    free(b->data);
    *b = (struct bytes){0};
}

static struct checkpoint *accepted(struct bytes *b)
{
    struct checkpoint *ck;
    struct error e = {""};
    bytes_write(b, path_of("file"));
    if (checkpoint_open(&ck, path_of("file"), NULL, NULL, &e) != UTTER_OK) fail_msg("%s", e.text);
    free(b->data);
    *b = (struct bytes){0};
    return ck;
}

/* ---- what is no model at all ---- */

static void what_is_no_file(void **state)
{
    (void)state;
    struct bytes b = {0};
    refused(path_of("nothing"), UTTER_MODEL_NOT_FOUND, "", "");
    mkdir(path_of("empty-folder"), 0700);
    refused(path_of("empty-folder"), UTTER_MODEL_NOT_FOUND, "holds no model", "t3_");
    mkdir(path_of("odd-folder"), 0700);
    mkdir(path_of("odd-folder/t3_turbo_v1.safetensors"), 0700);
    refused(path_of("odd-folder"), UTTER_MODEL_DAMAGED, "t3_turbo_v1.safetensors", "folder");
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    refused(path_of("pipe"), UTTER_MODEL_DAMAGED, "not a regular file", "");
    refused("/dev/null", UTTER_MODEL_DAMAGED, "not a regular file", "");
    fclose(fopen(path_of("empty"), "wb"));
    refused(path_of("empty"), UTTER_MODEL_DAMAGED, "empty", "");
    bytes_text(&b, "x");
    refused_bytes(&b, "text", "");
    bytes_text(&b, "<!DOCTYPE html><html><body>404</body></html>\n");
    refused_bytes(&b, "web page", "");
    bytes_text(&b, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1917000000\n");
    refused_bytes(&b, "git-lfs pointer", "git lfs pull");
    bytes_text(&b, "{\"error\": \"no such model\"}\n");
    refused_bytes(&b, "text", "");
    bytes_put(&b,
              "\x7f"
              "ELF\2\1\1\0\0\0\0\0\0\0\0\0\0\0",
              18);
    refused_bytes(&b, "no safetensors, torch (zip) or GGUF file", "");
    struct checkpoint *ck;
    struct error e;
    assert_int_equal(checkpoint_open(&ck, "", NULL, NULL, &e), UTTER_MODEL_NOT_FOUND);
}

/* ---- safetensors ---- */

#define ENTRY(dtype, shape, range) "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" range "}}"

static void safetensors_headers(void **state)
{
    (void)state;
    static const char good[] = ENTRY("F32", "[2]", "[0,8]");
    static const uint64_t lengths[] = {0,       1,          sizeof good - 2, sizeof good + 8,
                                       1 << 20, UINT64_MAX, UINT64_MAX - 3,  (uint64_t)1 << 63};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct bytes b = {0};
        bytes_safetensors(&b, lengths[i], good, 8);
        refused_bytes(&b, "header", "");
    }
    static const char *const headers[] = {
        "{}x", "{ ", "{\"a\":}", "{\"a\":1,\"a\":2}", "{\"a\\u0000\":{}}", "{\"a\":99999999999999999999}"};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        struct bytes b = {0};
        bytes_safetensors(&b, strlen(headers[i]), headers[i], 8);
        refused_bytes(&b, "not a JSON object", "");
    }
    struct bytes deep = {0}, header = {0};
    bytes_text(&header, "{\"a\":");
    for (int i = 0; i < 100000; i++) bytes_text(&header, "[");
    bytes_uint(&header, 0, 1);
    bytes_safetensors(&deep, strlen((char *)header.data), (char *)header.data, 0);
    refused_bytes(&deep, "depth", "");
    free(header.data);
}

static void safetensors_entries(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {ENTRY("F32", "[2]", "[8,0]"), "no range"},
        {ENTRY("F32", "[2]", "[-8,0]"), "no range"},
        {ENTRY("F32", "[2]", "[0]"), "no range"},
        {ENTRY("F32", "[2]", "[0,8,16]"), "no range"},
        {ENTRY("F32", "[2]", "\"0,8\""), "no range"},
        {ENTRY("F32", "[2]", "[0,0]"), "no range"},
        {ENTRY("F32", "[2]", "[4,12]"), "expected 8 bytes"}, /* past the end */
        {ENTRY("F32", "[2]", "[9223372036854775799,9223372036854775807]"), "expected 8 bytes"},
        {ENTRY("F32", "[3]", "[0,8]"), "has 12 bytes, found 8"},
        {ENTRY("F32", "[0]", "[0,8]"), "zero or negative"},
        {ENTRY("F32", "[-2]", "[0,8]"), "zero or negative"},
        {ENTRY("F32", "[\"2\"]", "[0,8]"), "zero or negative"},
        {ENTRY("F32", "[2.0]", "[0,8]"), "zero or negative"},
        {ENTRY("F32", "[4294967296,4294967296,2]", "[0,8]"), "larger than any memory"},
        {ENTRY("F64", "[2305843009213693952]", "[0,8]"), "larger than any memory"},
        {ENTRY("F32", "[1,1,1,1,2]", "[0,8]"), "at most 4 dimensions"},
        {ENTRY("F32", "2", "[0,8]"), "at most 4 dimensions"},
        {ENTRY("F8_E4M3", "[8]", "[0,8]"), "dtype F8_E4M3"},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", "dtype (none)"},
        {"{\"a\":[]}", "dtype (none)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bytes b = {0};
        bytes_safetensors(&b, strlen(cases[i][0]), cases[i][0], 8);
        refused_bytes(&b, "tensor a", cases[i][1]);
    }
    struct bytes b = {0};
    static const char overlap[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                                  "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}";
    bytes_safetensors(&b, sizeof overlap - 1, overlap, 8);
    refused_bytes(&b, "a and b overlap", "");
    static const char metadata[] = "{\"__metadata__\":{\"k\":1}}";
    bytes_safetensors(&b, sizeof metadata - 1, metadata, 8);
    refused_bytes(&b, "__metadata__ k", "");
}

/* ---- GGUF ---- */

static const uint64_t one_four[8] = {4, 1, 1, 1, 1, 1, 1, 1}; /* as many as a helper may read */

static void gguf_headers(void **state)
{
    (void)state;
    struct bytes b = {0};
    bytes_text(&b, "GGUF");
    refused_bytes(&b, "header", "");
    bytes_text(&b, "GGUF");
    bytes_uint(&b, 1, 4);
    bytes_uint(&b, 0, 16);
    refused_bytes(&b, "GGUF version 1", "");
    bytes_text(&b, "GGUF");
    bytes_uint(&b, 0x03000000, 4); /* big-endian */
    bytes_uint(&b, 0, 16);
    refused_bytes(&b, "GGUF version", "");
    static const uint64_t counts[] = {1, 2000, (uint64_t)1 << 60, UINT64_MAX};
    for (size_t i = 0; i < 4; i++) {
        bytes_gguf(&b, counts[i], 0);
        refused_bytes(&b, "tensors", "");
        bytes_gguf(&b, 0, counts[i]);
        refused_bytes(&b, "metadata", "");
    }
}

/* A file with one key k of this type and the bytes that follow it. */
static void refused_key(const char *key, uint32_t type, const void *value, size_t n, const char *word)
{
    struct bytes b = {0};
    bytes_gguf(&b, 0, 1);
    bytes_gguf_key(&b, key, type);
    bytes_put(&b, value, n);
    refused_bytes(&b, *key ? key : "without a name", word);
}

static void gguf_keys(void **state)
{
    (void)state;
    enum { U32 = 4, STRING = 8, ARRAY = 9, U64 = 10 };
    unsigned char v[24] = {0};
    refused_key("", U32, v, 4, "");
    refused_key("k", 13, v, 4, "type 13");
    refused_key("k", 999, v, 4, "type 999");
    refused_key("k", U64, v, 4, "needs 8 bytes");
    v[7] = 0x80; /* a string of 2^63 bytes */
    refused_key("k", STRING, v, 16, "needs 9223372036854775808 bytes");
    memcpy(v, "\3\0\0\0\0\0\0\0a\0b", 11);
    refused_key("k", STRING, v, 11, "NUL inside");
    memset(v, 0, sizeof v);
    v[0] = ARRAY; /* an array of arrays */
    refused_key("k", ARRAY, v, 24, "array of type 9");
    v[0] = 77;
    refused_key("k", ARRAY, v, 24, "array of type 77");
    v[0] = STRING, v[4] = 2; /* two strings, of which only one and a half are there */
    refused_key("k", ARRAY, v, 24, "array of 2 strings");
    v[11] = 0x10; /* 2^60 strings */
    refused_key("k", ARRAY, v, 24, "array of 1152921504606846978 strings");
    v[0] = U32;
    refused_key("k", ARRAY, v, 24, "array of 1152921504606846978 numbers");
    memset(v, 0xFF, sizeof v);
    v[0] = U64, v[1] = v[2] = v[3] = 0;
    v[4] = 1, v[5] = v[6] = v[7] = v[8] = v[9] = v[10] = v[11] = 0;
    refused_key("k", ARRAY, v, 20, "element 0 is too large");
    memset(v, 0, sizeof v);
    refused_key("general.alignment", U32, v, 4, "power of two");
    v[0] = 33;
    refused_key("general.alignment", U32, v, 4, "power of two");
    refused_key("general.alignment", STRING, "\0\0\0\0\0\0\0\0", 8, "power of two");
    struct bytes b = {0};
    bytes_gguf(&b, 0, 2);
    for (int i = 0; i < 2; i++) {
        bytes_gguf_key(&b, "same", U32);
        bytes_uint(&b, 1, 4);
    }
    refused_bytes(&b, "same appears twice", "");
    bytes_gguf(&b, 0, 1);
    bytes_gguf_key(&b, "utter.format_version", U32);
    bytes_uint(&b, 99, 4);
    refused_bytes(&b, "utter.format_version", "reads version 1");
}

static void refused_tensor(uint32_t n_dims, const uint64_t *ne, uint32_t type, uint64_t offset, const char *word)
{
    struct bytes b = {0};
    bytes_gguf(&b, 1, 0);
    bytes_gguf_tensor(&b, "a", n_dims, ne, type, offset);
    bytes_pad(&b, 32);
    bytes_count(&b, 64);
    refused_bytes(&b, "a", word);
}

static void gguf_tensors(void **state)
{
    (void)state;
    enum { F32 = 0, Q4_K = 12, Q8_0 = 8 };
    refused_tensor(2, (const uint64_t[]){4, 0}, F32, 0, "zero or negative");
    refused_tensor(1, (const uint64_t[]){((uint64_t)1 << 42) + 1}, F32, 0, "cut short");
    refused_tensor(1, (const uint64_t[]){UINT64_MAX}, F32, 0, "larger than any memory");
    refused_tensor(3, (const uint64_t[]){1ull << 40, 1ull << 40, 1ull << 40}, F32, 0, "larger than any memory");
    refused_tensor(5, one_four, F32, 0, "5 dimensions");
    refused_tensor(UINT32_MAX, one_four, F32, 0, "4294967295 dimensions");
    refused_tensor(1, one_four, 999, 0, "type 999");
    refused_tensor(1, one_four, Q4_K, 0, "type 12");
    refused_tensor(1, one_four, F32, 4, "no multiple of 32");
    refused_tensor(1, one_four, F32, 64, "cut short");
    refused_tensor(1, one_four, F32, UINT64_MAX - 31, "outside the file");
    refused_tensor(1, (const uint64_t[]){33}, Q8_0, 0, "whole blocks");
    refused_tensor(0, one_four, Q8_0, 0, "whole blocks");
    struct bytes b = {0};
    bytes_gguf(&b, 1, 0);
    bytes_gguf_tensor(&b, "", 1, one_four, F32, 0);
    refused_bytes(&b, "without a name", "");
    for (int same = 0; same < 2; same++) {
        bytes_gguf(&b, 2, 0);
        bytes_gguf_tensor(&b, "a", 1, one_four, F32, 0);
        bytes_gguf_tensor(&b, same ? "a" : "b", 1, one_four, F32, same ? 32 : 0);
        bytes_pad(&b, 32);
        bytes_count(&b, 64);
        refused_bytes(&b, same ? "a appears twice" : "overlap", "");
    }
}

/* ---- torch ---- */

/* An archive with this pickle and one storage of 8 floats. */
static void put_archive(struct bytes *b, const void *pickle, size_t n)
{
    static unsigned char numbers[32];
    const struct zip_member members[] = {
        {"x/data.pkl", pickle, n}, {"x/data/0", numbers, sizeof numbers}, {"x/version", "3\n", 2}};
    bytes_zip(b, members, 3);
}

static void refused_pickle(const void *pickle, size_t n, const char *word)
{
    struct bytes b = {0};
    put_archive(&b, pickle, n);
    refused_bytes(&b, word, "");
}

static void torch_pickles_that_ask_for_more(void **state)
{
    (void)state;
#define PICKLE(text, word) refused_pickle(text, sizeof text - 1, word)
    PICKLE("\x80\x02"
           "cposix\nsystem\nX\4\0\0\0true\x85R.",
           "posix.system: only tensors are read");
    PICKLE("\x80\x02"
           "c__builtin__\neval\nX\1\0\0\0"
           "1\x85R.",
           "__builtin__.eval");
    PICKLE("\x80\x04\x8c\5posix\x8c\6system\x93.", "posix.system");
    PICKLE("cos\nsystem\n(S'true'\ntR.", "os.system");
    PICKLE("\x80\x02i", "opcode 0x69");     /* INST */
    PICKLE("\x80\x02\x81", "opcode 0x81");  /* NEWOBJ */
    PICKLE("\x80\x02P1\n.", "opcode 0x50"); /* PERSID */
    PICKLE("\x80\x02"
           "ctorch\nFloatStorage\n)R.",
           "calls what cannot be called");
    PICKLE("\x80\x02"
           "ctorch._utils\n_rebuild_tensor_v2\n)R.",
           "unknown arguments");
    PICKLE("\x80\x02"
           "ctorch._utils\n_rebuild_tensor_v2\nNR.",
           "unknown arguments");
    PICKLE("\x80\x02NQ.", "no storage");
    PICKLE("\x80\x02N.", "no dict of tensors");
    PICKLE("\x80\x02.", "takes a value that is not there");
    PICKLE("\x80\x02}NNs", "ends in the middle");
    PICKLE("\x80\x02", "ends in the middle");
    PICKLE("", "ends in the middle");
    PICKLE("\x80\x02X\xff\xff\xff\xff", "ends in the middle");
    PICKLE("\x80\x02X\1\0\0\0\0.", "NUL inside");
    PICKLE("\x80\x02h\7.", "remembered value 7");
    PICKLE("\x80\x02Nr\xff\xff\xff\xff.", "remembers more than");
    PICKLE("\x80\x02t.", "closes a group");
    PICKLE("\x80\x02(u.", "takes a value that is not there");
    PICKLE("\x80\x02](Nu.", "no dict");
    PICKLE("\x80\x02}(Nu.", "no dict"); /* an odd number of items */
    PICKLE("\x80\x02N}b.", "no dict");
    PICKLE("\x80\x02\x8a\x09.", "integer of 9 bytes");
    PICKLE("\x80\x02}q\0X\1\0\0\0ah\0s.", "nested too deep"); /* a dict inside itself */
#undef PICKLE
    struct bytes marks = {0}, dicts = {0}, values = {0};
    for (int i = 0; i < 1000; i++) bytes_text(&marks, "(");
    refused_pickle(marks.data, marks.n, "nests deeper");
    for (int i = 0; i < 200000; i++) bytes_text(&values, "N");
    refused_pickle(values.data, values.n, "stacks more");
    bytes_text(&dicts, "]");
    for (int i = 0; i < 2000000; i++) bytes_text(&dicts, "}a"); /* 128 MB of dicts */
    refused_pickle(dicts.data, dicts.n, "more memory");
    free(marks.data);
    free(dicts.data);
    free(values.data);
}

static void put_tensor(struct bytes *b, const char *class, const char *key, uint16_t offset, size_t n_dims,
                       const uint16_t *shape, const uint16_t *stride)
{
    struct bytes pickle = {0};
    bytes_pickle_begin(&pickle);
    bytes_pickle_tensor(&pickle, "a", class, key, 8, offset, n_dims, shape, stride);
    bytes_pickle_end(&pickle);
    put_archive(b, pickle.data, pickle.n);
    free(pickle.data);
}

static void torch_tensors(void **state)
{
    (void)state;
    struct bytes b = {0};
    const uint16_t two_four[] = {2, 4}, four_one[] = {4, 1}, one_two[] = {1, 2}, many[] = {1, 1, 1, 1, 8},
                   zero[] = {0, 4};
    put_tensor(&b, "FloatStorage", "0", 0, 2, two_four, four_one);
    struct checkpoint *ck = accepted(&b);
    assert_int_equal(checkpoint_find(ck, "a")->shape[1], 4);
    checkpoint_close(&ck);
    put_tensor(&b, "FloatStorage", "0", 0, 2, two_four, one_two); /* a transposed view: gathered */
    ck = accepted(&b);
    assert_int_equal(checkpoint_find(ck, "a")->n_bytes, 32);
    checkpoint_close(&ck);
    put_tensor(&b, "FloatStorage", "0", 1, 2, two_four, four_one);
    refused_bytes(&b, "tensor a", "does not lie in its storage");
    put_tensor(&b, "FloatStorage", "0", 0, 2, two_four, two_four);
    refused_bytes(&b, "tensor a", "does not lie in its storage");
    put_tensor(&b, "FloatStorage", "0", 0, 2, (const uint16_t[]){60000, 60000}, (const uint16_t[]){0, 0});
    refused_bytes(&b, "tensor a", "does not lie in its storage");
    put_tensor(&b, "LongStorage", "0", 0, 2, two_four, four_one); /* 64 bytes of 32 */
    refused_bytes(&b, "tensor a", "does not lie in its storage");
    put_tensor(&b, "FloatStorage", "7", 0, 2, two_four, four_one);
    refused_bytes(&b, "tensor a", "lacks its storage");
    put_tensor(&b, "FloatStorage", "../x", 0, 2, two_four, four_one);
    refused_bytes(&b, "tensor a", "lacks its storage");
    put_tensor(&b, "FloatStorage", "0", 0, 5, many, many);
    refused_bytes(&b, "tensor a", "four dimensions");
    put_tensor(&b, "FloatStorage", "0", 0, 2, zero, four_one);
    refused_bytes(&b, "tensor a", "");
    put_tensor(&b, "QInt8Storage", "0", 0, 2, two_four, four_one);
    refused_bytes(&b, "torch.QInt8Storage", "");
}

static void torch_archives(void **state)
{
    (void)state;
    struct bytes b = {0};
    bytes_text(&b, "PK");
    refused_bytes(&b, "no directory", "");
    bytes_put(&b, "PK\3\4\0\0\0\0", 8);
    refused_bytes(&b, "no directory", "");
    const struct zip_member other = {"readme", "hello", 5};
    bytes_zip(&b, &other, 1);
    refused_bytes(&b, "no data.pkl", "");
    /* Fields of the end record and of the first directory entry that claim too much. */
    static const struct {
        size_t from_end, bytes;
    } fields[] = {{12, 2}, {6, 4}}; /* number of entries, directory's position */
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        put_archive(&b, "\x80\x02}.", 4);
        memset(b.data + b.n - fields[i].from_end, 0xFE, fields[i].bytes);
        refused_bytes(&b, "directory", "");
    }
    static const size_t in_entry[] = {10, 20, 24, 42}; /* method, both sizes, position */
    for (size_t i = 0; i < sizeof in_entry / sizeof *in_entry; i++) {
        put_archive(&b, "\x80\x02}.", 4);
        unsigned char *entry = memmem(b.data, b.n, "PK\1\2", 4);
        entry[in_entry[i] + 1] = 0x7F;
        refused_bytes(&b, i == 3 ? "header is missing" : "compressed or encrypted", "");
    }
}

/* ---- every file cut and every byte changed ---- */

static void open_whatever(const struct bytes *b, size_t n)
{
    struct checkpoint *ck;
    struct error e = {""};
    const struct bytes part = {b->data, n, n};
    bytes_write(&part, path_of("file"));
    const utter_status s = checkpoint_open(&ck, path_of("file"), NULL, NULL, &e);
    if (s == UTTER_OK) {
        for (size_t i = 0; i < checkpoint_tensors(ck); i++) {
            float first[32], last[32];
            const struct tensor *t = checkpoint_tensor(ck, i);
            const size_t block = (size_t)dtype_block(t->type), count = tensor_count(t);
            tensor_read_f32(t, 0, block, first);
            tensor_read_f32(t, count - block, block, last);
        }
        checkpoint_close(&ck);
    } else {
        assert_true(s == UTTER_MODEL_DAMAGED || s == UTTER_UNSUPPORTED);
        assert_non_null(strstr(e.text, path_of("file")));
    }
}

static void make_sound(struct bytes *b, int format)
{
    *b = (struct bytes){0};
    const uint16_t shape[] = {2, 4}, stride[] = {4, 1};
    if (format == 0) bytes_safetensors(b, strlen(ENTRY("F32", "[2,4]", "[0,32]")), ENTRY("F32", "[2,4]", "[0,32]"), 32);
    if (format == 1) put_tensor(b, "FloatStorage", "0", 0, 2, shape, stride);
    if (format != 2) return;
    bytes_gguf(b, 2, 3);
    bytes_gguf_key(b, "general.architecture", 8);
    bytes_gguf_string(b, "chatterbox");
    bytes_gguf_key(b, "n", 5);
    bytes_uint(b, 7, 4);
    bytes_gguf_key(b, "list", 9);
    bytes_uint(b, 8, 4);
    bytes_uint(b, 2, 8);
    bytes_gguf_string(b, "x");
    bytes_gguf_string(b, "yy");
    bytes_gguf_tensor(b, "model/wpe", 2, (const uint64_t[]){4, 2}, 0, 0);
    bytes_gguf_tensor(b, "chatterbox/speech_head", 2, (const uint64_t[]){32, 2}, 8, 32);
    bytes_pad(b, 32);
    bytes_count(b, 32 + 68);
}

static void cut_at_every_byte(void **state)
{
    (void)state;
    for (int format = 0; format < 3; format++) {
        struct bytes b;
        make_sound(&b, format);
        struct bytes whole = {0};
        bytes_put(&whole, b.data, b.n);
        struct checkpoint *ck = accepted(&whole);
        checkpoint_close(&ck);
        for (size_t n = 1; n < b.n; n++) {
            struct error e;
            const struct bytes part = {b.data, n, n};
            bytes_write(&part, path_of("file"));
            if (checkpoint_open(&ck, path_of("file"), NULL, NULL, &e) == UTTER_OK)
                fail_msg("format %d cut to %zu of %zu opens", format, n, b.n);
            assert_non_null(strstr(e.text, path_of("file")));
        }
        free(b.data);
    }
}

static void every_byte_changed(void **state)
{
    (void)state;
    for (int format = 0; format < 3; format++) {
        struct bytes b;
        make_sound(&b, format);
        for (size_t i = 0; i < b.n; i++) {
            static const unsigned char changes[] = {0x01, 0x80, 0xFF};
            for (size_t k = 0; k < sizeof changes; k++) {
                b.data[i] ^= changes[k];
                open_whatever(&b, b.n);
                b.data[i] ^= changes[k];
            }
        }
        free(b.data);
    }
}

static void a_real_voice_file_cut_at_every_tenth(void **state)
{
    (void)state;
    struct bytes b = {0};
    unsigned char block[4096];
    FILE *f = fopen(GOLDEN_DIR "/torch/conds.pt", "rb");
    assert_non_null(f);
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;) bytes_put(&b, block, n);
    fclose(f);
    for (size_t i = 1; i < 10; i++) {
        struct bytes part = {0};
        bytes_put(&part, b.data, b.n * i / 10);
        refused_bytes(&part, "damaged or cut short", "");
    }
    struct checkpoint *ck = accepted(&b);
    assert_int_equal(checkpoint_tensors(ck), 7); /* None entries are absent */
    assert_null(checkpoint_find(ck, "conds.t3.clap_emb"));
    assert_int_equal(checkpoint_find(ck, "conds.gen.prompt_feat")->n_dims, 3);
    float emotion;
    tensor_read_f32(checkpoint_find(ck, "conds.t3.emotion_adv"), 0, 1, &emotion);
    assert_true(emotion == 0.5f);
    checkpoint_close(&ck);
}

/* ---- memory that runs out ---- */

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int format = 0; format < 3; format++) {
        struct bytes b;
        make_sound(&b, format);
        bytes_write(&b, path_of("file"));
        utter_status s = UTTER_OUT_OF_MEMORY;
        for (long n = 1; s == UTTER_OUT_OF_MEMORY; n++) {
            struct checkpoint *ck;
            struct error e = {""};
            assert_true(n < 1000);
            mem_fail_after(n);
            s = checkpoint_open(&ck, path_of("file"), NULL, NULL, &e);
            mem_fail_after(0);
            checkpoint_close(&ck);
        }
        assert_int_equal(s, UTTER_OK);
        free(b.data);
    }
}

int main(void)
{
    if (!mkdtemp(folder) && !mkdtemp(strcpy(folder, "utter-hostile-XXXXXX"))) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_file),
        cmocka_unit_test(safetensors_headers),
        cmocka_unit_test(safetensors_entries),
        cmocka_unit_test(gguf_headers),
        cmocka_unit_test(gguf_keys),
        cmocka_unit_test(gguf_tensors),
        cmocka_unit_test(torch_pickles_that_ask_for_more),
        cmocka_unit_test(torch_tensors),
        cmocka_unit_test(torch_archives),
        cmocka_unit_test(cut_at_every_byte),
        cmocka_unit_test(every_byte_changed),
        cmocka_unit_test(a_real_voice_file_cut_at_every_tenth),
        cmocka_unit_test(every_allocation_may_fail),
    };
    const int failed = cmocka_run_group_tests_name("hostile", tests, NULL, NULL);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 || failed;
}
