#include "checkpoint/tokenizer_meta.h"

#include <jansson.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_TOKENS = 1 << 20, MAX_SIDE_BYTES = 32 << 20 };
enum { TOKEN_NORMAL = 1, TOKEN_ADDED = 4, TOKEN_UNUSED = 5 };

struct vocabulary {
    const char **tokens; /* by id; point into the JSON values */
    int32_t *types;
    size_t n;
};

/* A side file as a JSON object; NULL and OK when absent. */
static utter_status load(json_t **out, const struct checkpoint *ck, const char *name, struct error *e)
{
    size_t n = 0;
    const char *text = checkpoint_side_file(ck, name, &n);
    json_error_t fault = {.text = "too large"};
    *out = NULL;
    if (!text) return UTTER_OK;
    if (n <= MAX_SIDE_BYTES) *out = json_loadb(text, n, JSON_REJECT_DUPLICATES, &fault);
    if (json_is_object(*out)) return UTTER_OK;
    json_decref(*out);
    *out = NULL;
    return error_set(e, UTTER_MODEL_DAMAGED, "%s: %s: not a JSON object: %s", checkpoint_path(ck), name, fault.text);
}

static size_t highest_id(json_t *tokens)
{
    const char *text;
    json_t *id;
    json_int_t highest = -1;
    json_object_foreach(tokens, text, id)
    {
        if (!json_is_integer(id) || json_integer_value(id) < 0) return MAX_TOKENS;
        if (json_integer_value(id) > highest) highest = json_integer_value(id);
    }
    return (size_t)(highest + 1);
}

static void place(struct vocabulary *v, json_t *tokens, int32_t type)
{
    const char *text;
    json_t *id;
    json_object_foreach(tokens, text, id)
    {
        v->tokens[json_integer_value(id)] = text;
        v->types[json_integer_value(id)] = type;
    }
}

/* The lines "left right" of merges.txt. */
static utter_status write_merges(struct gguf_writer *w, const struct checkpoint *ck, struct error *e)
{
    size_t n_bytes = 0, n = 0;
    const char *text = checkpoint_side_file(ck, "merges.txt", &n_bytes);
    if (!text)
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: merges.txt is missing beside vocab.json", checkpoint_path(ck));
    char *copy = n_bytes <= MAX_SIDE_BYTES ? mem_alloc(n_bytes + 1) : NULL;
    const char **merges = copy ? mem_calloc(n_bytes / 2 + 1, sizeof *merges) : NULL;
    if (merges) {
        memcpy(copy, text, n_bytes);
        copy[n_bytes] = 0;
        char *rest = NULL;
        for (char *line = strtok_r(copy, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest))
            if (strncmp(line, "#version", 8) != 0) merges[n++] = line;
        gguf_write_strings(w, "tokenizer.ggml.merges", merges, n);
    }
    const bool written = merges != NULL;
    mem_free(copy);
    mem_free(merges);
    return written ? UTTER_OK : error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory for merges.txt", checkpoint_path(ck));
}

static utter_status write_vocabulary(struct gguf_writer *w, const struct checkpoint *ck, json_t *vocab, json_t *added,
                                     struct error *e)
{
    const size_t a = highest_id(vocab), b = highest_id(added);
    struct vocabulary v = {.n = a > b ? a : b};
    if (v.n == 0 || v.n >= MAX_TOKENS)
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: vocab.json: token ids must be integers from 0 to %d",
                         checkpoint_path(ck), MAX_TOKENS - 1);
    v.tokens = mem_calloc(v.n, sizeof *v.tokens);
    v.types = mem_calloc(v.n, sizeof *v.types);
    const bool fits = v.tokens && v.types;
    for (size_t i = 0; fits && i < v.n; i++) v.tokens[i] = "", v.types[i] = TOKEN_UNUSED;
    if (fits) {
        place(&v, vocab, TOKEN_NORMAL);
        place(&v, added, TOKEN_ADDED);
        gguf_write_string(w, "tokenizer.ggml.model", "gpt2", strlen("gpt2"));
        gguf_write_strings(w, "tokenizer.ggml.tokens", v.tokens, v.n);
        gguf_write_ints(w, "tokenizer.ggml.token_type", v.types, v.n);
    }
    mem_free(v.tokens);
    mem_free(v.types);
    if (!fits) return error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory for vocab.json", checkpoint_path(ck));
    return write_merges(w, ck, e);
}

/* Grapheme tokenizers, and the table Chinese needs, kept as the JSON they are. */
static void write_whole_files(struct gguf_writer *w, const struct checkpoint *ck)
{
    static const char *const files[][3] = {
        {"grapheme_mtl_merged_expanded_v1.json", "tokenizer.ggml.mtl_json", "mtl_grapheme"},
        {"tokenizer.json", "tokenizer.ggml.json", "grapheme"},
        {"Cangjie5_TC.json", "tokenizer.ggml.cangjie_json", NULL},
    };
    bool named = false;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t n = 0;
        const char *text = checkpoint_side_file(ck, files[i][0], &n);
        if (!text || (files[i][2] && named)) continue;
        if (files[i][2]) gguf_write_string(w, "tokenizer.ggml.model", files[i][2], strlen(files[i][2]));
        if (files[i][2]) named = true;
        gguf_write_string(w, files[i][1], text, n);
    }
}

static utter_status copy_keys(struct gguf_writer *w, const struct checkpoint *ck, struct error *e)
{
    for (size_t i = 0; i < checkpoint_metas(ck); i++) {
        const struct meta *m = checkpoint_meta_at(ck, i);
        if (strncmp(m->key, "tokenizer.", strlen("tokenizer.")) != 0) continue;
        if (m->type == META_STRING) {
            gguf_write_string(w, m->key, m->as.string, strlen(m->as.string));
        } else if (m->type == META_STRINGS) {
            gguf_write_strings(w, m->key, m->as.strings, m->count);
        } else if (m->type == META_INTS) {
            int32_t *values = mem_calloc(m->count + 1, sizeof *values);
            if (!values) return error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory for %s", checkpoint_path(ck), m->key);
            for (size_t k = 0; k < m->count; k++) values[k] = (int32_t)m->as.ints[k];
            gguf_write_ints(w, m->key, values, m->count);
            mem_free(values);
        }
    }
    return UTTER_OK;
}

utter_status tokenizer_write_meta(struct gguf_writer *w, const struct checkpoint *ck, struct error *e)
{
    size_t n;
    if (!checkpoint_side_file(ck, "vocab.json", &n)) {
        write_whole_files(w, ck);
        return copy_keys(w, ck, e);
    }
    json_t *vocab, *added = NULL;
    utter_status s = load(&vocab, ck, "vocab.json", e);
    if (s == UTTER_OK) s = load(&added, ck, "added_tokens.json", e);
    if (s == UTTER_OK) s = write_vocabulary(w, ck, vocab, added, e);
    json_decref(vocab);
    json_decref(added);
    return s;
}
