#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "checkpoint/json_parts.h"
#include "text/tokenizer_build.h"

/* An added token of every GPT-2 tokenizer, listed as one or not. */
static const char end_of_text[] = "<|endoftext|>";

/* ---- published folders ------------------------------------------------------------------------------------------ */

static utter_status parse_object(json_t **out, const struct tokenizer_files *f, const char *name, const char *data,
                                 size_t n, struct error *e)
{
    *out = NULL;
    if (!data) return UTTER_OK;
    json_error_t problem;
    json_t *root = json_loadb(data, n, JSON_REJECT_DUPLICATES, &problem);
    if (!root)
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: %s: line %d: %s", f->where, name, problem.line, problem.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: %s: expected a JSON object", f->where, name);
    }
    *out = root;
    return UTTER_OK;
}

/* What the two small JSON files hold, as borrowed views. */
struct parsed {
    json_t *added, *config;
    json_t *decoder; /* inside config: id as text -> {"content": ...}; NULL when absent */
};

static utter_status id_of(int64_t *id, const struct tokenizer_files *f, const char *token, json_t *value,
                          struct error *e)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) >= TOKENIZER_MAX_TOKENS)
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: token '%.40s' has no id in 0 to %d", f->where, token,
                         TOKENIZER_MAX_TOKENS - 1);
    *id = json_integer_value(value);
    return UTTER_OK;
}

static utter_status decoder_entry(int64_t *id, const char **text, const struct tokenizer_files *f, const char *key,
                                  json_t *value, struct error *e)
{
    char *end;
    errno = 0;
    *id = strtoll(key, &end, 10);
    *text = json_string_value(json_object_get(value, "content"));
    if (errno || end == key || *end || *id < 0 || *id >= TOKENIZER_MAX_TOKENS || !*text)
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: tokenizer_config.json: added_tokens_decoder '%.20s' is no token",
                         f->where, key);
    return UTTER_OK;
}

/* ---- vocab.json, in parts ---- */

struct vocabulary {
    struct tokenizer *t;
    const struct tokenizer_files *f;
    int64_t end_of_text; /* its id, -1 when it is none of them */
};

static utter_status put_members(void *user, json_t *members, struct error *e)
{
    struct vocabulary *v = user;
    int64_t id = 0;
    const char *key;
    json_t *value;
    json_object_foreach(members, key, value)
    {
        utter_status s = id_of(&id, v->f, key, value, e);
        if (s == UTTER_OK) s = tokenizer_put(v->t, id, key, e);
        if (s != UTTER_OK) return s;
        if (strcmp(key, end_of_text) == 0) v->end_of_text = id;
    }
    return UTTER_OK;
}

/* Every member but the first has a comma before it. */
static size_t most_members(const char *json, size_t n)
{
    size_t commas = 0;
    for (size_t i = 0; i < n; i++) commas += json[i] == ',';
    return commas + 1;
}

static utter_status put_tokens(struct tokenizer *t, const struct parsed *p, const struct tokenizer_files *f,
                               struct error *e)
{
    struct vocabulary v = {t, f, -1};
    int64_t id = 0;
    const char *key, *text;
    json_t *value;
    utter_status s = json_object_parts(f->vocab, f->vocab_n, f->where, "vocab.json", f->cancel, put_members, &v, e);
    if (s == UTTER_OK && v.end_of_text >= 0) s = tokenizer_put_added(t, v.end_of_text, end_of_text, e);
    if (s != UTTER_OK) return s;
    json_object_foreach(p->added, key, value)
    {
        if ((s = id_of(&id, f, key, value, e)) != UTTER_OK) return s;
        if ((s = tokenizer_put_added(t, id, key, e)) != UTTER_OK) return s;
    }
    json_object_foreach(p->decoder, key, value)
    {
        if ((s = decoder_entry(&id, &text, f, key, value, e)) != UTTER_OK) return s;
        if ((s = tokenizer_put_added(t, id, text, e)) != UTTER_OK) return s;
    }
    return UTTER_OK;
}

/* Calls tokenizer_put_merge for every line of merges.txt but the "#version" one; t NULL only counts them. */
static utter_status each_merge(struct tokenizer *t, const struct tokenizer_files *f, size_t *count, struct error *e)
{
    const char *p = f->merges, *const end = p + f->merges_n;
    *count = 0;
    for (const char *next; p < end; p = next) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((newline ? newline : end) - p);
        next = p + n + 1;
        if (n > 0 && p[n - 1] == '\r') n--;
        if (n == 0 || (p == f->merges && n >= 8 && memcmp(p, "#version", 8) == 0)) continue;
        utter_status s = t ? tokenizer_put_merge(t, p, n, e) : UTTER_OK;
        if (s != UTTER_OK) return s;
        ++*count;
        if (!newline) break;
    }
    return UTTER_OK;
}

static utter_status build(struct tokenizer **out, const struct parsed *p, const struct tokenizer_files *f,
                          struct error *e)
{
    struct tokenizer *t = NULL;
    size_t n_merges;
    utter_status s = each_merge(NULL, f, &n_merges, e);
    if (s == UTTER_OK) s = tokenizer_begin(&t, f->where, most_members(f->vocab, f->vocab_n), n_merges, f->cancel, e);
    if (s == UTTER_OK) s = put_tokens(t, p, f, e);
    if (s == UTTER_OK) s = each_merge(t, f, &n_merges, e);
    if (s == UTTER_OK) s = tokenizer_finish(t, e);
    if (s != UTTER_OK) tokenizer_free(&t);
    *out = t;
    return s;
}

utter_status tokenizer_from_files(struct tokenizer **out, const struct tokenizer_files *f, struct error *e)
{
    *out = NULL;
    if (!f->vocab || !f->merges)
        return error_set(e, UTTER_MODEL_NOT_FOUND, "%s: no %s, which the GPT-2 tokenizer needs", f->where,
                         f->vocab ? "merges.txt" : "vocab.json");
    struct parsed p = {0};
    utter_status s = parse_object(&p.added, f, "added_tokens.json", f->added_tokens, f->added_tokens_n, e);
    if (s == UTTER_OK) s = parse_object(&p.config, f, "tokenizer_config.json", f->config, f->config_n, e);
    p.decoder = json_object_get(p.config, "added_tokens_decoder");
    if (s == UTTER_OK) s = build(out, &p, f, e);
    json_decref(p.added);
    json_decref(p.config);
    return s;
}

utter_status tokenizer_load_folder(struct tokenizer **out, const char *folder, struct error *e)
{
    static const char *const names[] = {"vocab.json", "merges.txt", "added_tokens.json", "tokenizer_config.json"};
    enum { N_FILES = 4, REQUIRED = 2 };
    struct file_map maps[N_FILES] = {0};
    *out = NULL;
    utter_status s = UTTER_OK;
    for (int i = 0; i < N_FILES && s == UTTER_OK; i++) {
        char path[4096];
        if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, names[i]) >= sizeof path)
            s = error_set(e, UTTER_INVALID_ARGUMENT, "%s: the path is too long", folder);
        else
            s = file_map_open(&maps[i], path, e);
        if (s == UTTER_MODEL_NOT_FOUND && i >= REQUIRED) s = UTTER_OK;
    }
    const struct tokenizer_files f = {
        folder,
        (const char *)maps[0].data,
        (const char *)maps[1].data,
        (const char *)maps[2].data,
        (const char *)maps[3].data,
        maps[0].n_bytes,
        maps[1].n_bytes,
        maps[2].n_bytes,
        maps[3].n_bytes,
        NULL,
    };
    if (s == UTTER_OK) s = tokenizer_from_files(out, &f, e);
    for (int i = 0; i < N_FILES; i++) file_map_close(&maps[i]);
    return s;
}

/* ---- GGUF metadata ---------------------------------------------------------------------------------------------- */

enum { GGUF_TOKEN_CONTROL = 3, GGUF_TOKEN_USER_DEFINED = 4 };

/* NULL, with the message set, when the key is missing or of another type. */
static const struct meta *need_meta(const struct checkpoint *ck, const char *key, enum meta_type type,
                                    const char *type_name, struct error *e)
{
    const struct meta *m = checkpoint_meta(ck, key);
    if (m && m->type == type) return m;
    error_set(e, UTTER_MODEL_DAMAGED, "%s: %s: expected an array of %s, found %s", checkpoint_path(ck), key, type_name,
              m ? "something else" : "nothing");
    return NULL;
}

static utter_status put_gguf(struct tokenizer *t, const struct meta *tokens, const struct meta *types,
                             const struct meta *merges, struct error *e)
{
    utter_status s = UTTER_OK;
    for (size_t i = 0; i < tokens->count && s == UTTER_OK; i++) {
        const int64_t type = types->as.ints[i];
        const char *text = tokens->as.strings[i];
        const bool added =
            type == GGUF_TOKEN_CONTROL || type == GGUF_TOKEN_USER_DEFINED || strcmp(text, end_of_text) == 0;
        s = (added ? tokenizer_put_added : tokenizer_put)(t, (int64_t)i, text, e);
    }
    for (size_t i = 0; i < merges->count && s == UTTER_OK; i++)
        s = tokenizer_put_merge(t, merges->as.strings[i], strlen(merges->as.strings[i]), e);
    return s == UTTER_OK ? tokenizer_finish(t, e) : s;
}

static utter_status load_gguf(struct tokenizer **out, const struct checkpoint *ck, struct cancel *cancel,
                              struct error *e)
{
    const struct meta *tokens = need_meta(ck, "tokenizer.ggml.tokens", META_STRINGS, "strings", e);
    const struct meta *types = tokens ? need_meta(ck, "tokenizer.ggml.token_type", META_INTS, "integers", e) : NULL;
    const struct meta *merges = types ? need_meta(ck, "tokenizer.ggml.merges", META_STRINGS, "strings", e) : NULL;
    if (!tokens || !types || !merges) return UTTER_MODEL_DAMAGED;
    if (types->count != tokens->count)
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: tokenizer.ggml.token_type: %zu entries for %zu tokens",
                         checkpoint_path(ck), types->count, tokens->count);
    struct tokenizer *t = NULL;
    utter_status s = tokenizer_begin(&t, checkpoint_path(ck), tokens->count, merges->count, cancel, e);
    if (s == UTTER_OK) s = put_gguf(t, tokens, types, merges, e);
    if (s != UTTER_OK) tokenizer_free(&t);
    *out = t;
    return s;
}

utter_status tokenizer_load(struct tokenizer **out, const struct checkpoint *ck, struct cancel *cancel, struct error *e)
{
    *out = NULL;
    if (checkpoint_meta(ck, "tokenizer.ggml.tokens")) return load_gguf(out, ck, cancel, e);
    struct tokenizer_files f = {.where = checkpoint_path(ck), .cancel = cancel};
    f.vocab = checkpoint_side_file(ck, "vocab.json", &f.vocab_n);
    f.merges = checkpoint_side_file(ck, "merges.txt", &f.merges_n);
    f.added_tokens = checkpoint_side_file(ck, "added_tokens.json", &f.added_tokens_n);
    f.config = checkpoint_side_file(ck, "tokenizer_config.json", &f.config_n);
    return tokenizer_from_files(out, &f, e);
}
