#include "checkpoint/port.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "checkpoint/names.h"
#include "checkpoint/readers.h"

/* ---- names ---- */

struct rename {
    const char *port, *canonical; /* '#' stands for a number, '*' for the rest of the name */
};

/* Groups that keep the published names, with slashes for dots. */
static const struct rename groups[] = {
    {"voice_encoder/*", "ve.*"},
    {"cfm/*", "s3gen.flow.decoder.estimator.*"},
    {"hift/*", "s3gen.mel2wav.*"},
    {"campplus/*", "s3gen.speaker_encoder.*"},
    {"s3tokv2/mel_fb", "s3gen.tokenizer._mel_filters"},
    {"s3tokv2/*", "s3gen.tokenizer.*"},
    {"s3gen/builtin/*", "conds.gen.*"},
};

/* Layers; a final /w or /g is ".weight", /b is ".bias". */
#define CONFORMER(port, canonical)                                                                                     \
    {"flow/encoder/block#/" port, "s3gen.flow.encoder.encoders.#." canonical},                                         \
    {                                                                                                                  \
        "flow/encoder/up_block#/" port, "s3gen.flow.encoder.up_encoders.#." canonical                                  \
    }

static const struct rename layers[] = {
    /* T3 */
    {"chatterbox/text_emb", "t3.text_emb.weight"},
    {"chatterbox/speech_emb", "t3.speech_emb.weight"},
    {"chatterbox/text_head", "t3.text_head.weight"},
    {"chatterbox/speech_head", "t3.speech_head.weight"},
    {"chatterbox/speech_head_bias", "t3.speech_head.bias"},
    {"chatterbox/text_pos_emb", "t3.text_pos_emb.emb.weight"},
    {"chatterbox/speech_pos_emb", "t3.speech_pos_emb.emb.weight"},
    {"chatterbox/cond_spkr", "t3.cond_enc.spkr_enc"},
    {"chatterbox/emotion_adv_fc", "t3.cond_enc.emotion_adv_fc"},
    {"chatterbox/perceiver/pre_attention_query", "t3.cond_enc.perceiver.pre_attention_query"},
    {"chatterbox/perceiver/attn/*", "t3.cond_enc.perceiver.attn.*"},
    {"chatterbox/builtin/*", "conds.t3.*"},
    /* its GPT-2 backbone */
    {"model/wpe", "t3.tfmr.wpe.weight"},
    {"model/ln_f", "t3.tfmr.ln_f"},
    {"model/h#/ln_#", "t3.tfmr.h.#.ln_#"},
    {"model/h#/attn/c_*", "t3.tfmr.h.#.attn.c_*"},
    {"model/h#/mlp/c_*", "t3.tfmr.h.#.mlp.c_*"},
    /* its Llama backbone */
    {"model/norm", "t3.tfmr.norm"},
    {"model/h#/ln_attn", "t3.tfmr.layers.#.input_layernorm"},
    {"model/h#/ln_mlp", "t3.tfmr.layers.#.post_attention_layernorm"},
    {"model/h#/attn/q", "t3.tfmr.layers.#.self_attn.q_proj"},
    {"model/h#/attn/k", "t3.tfmr.layers.#.self_attn.k_proj"},
    {"model/h#/attn/v", "t3.tfmr.layers.#.self_attn.v_proj"},
    {"model/h#/attn/o", "t3.tfmr.layers.#.self_attn.o_proj"},
    {"model/h#/mlp/gate", "t3.tfmr.layers.#.mlp.gate_proj"},
    {"model/h#/mlp/up", "t3.tfmr.layers.#.mlp.up_proj"},
    {"model/h#/mlp/down", "t3.tfmr.layers.#.mlp.down_proj"},
    /* the flow around its estimator */
    {"flow/input_embedding", "s3gen.flow.input_embedding.weight"},
    {"flow/spk_embed_affine", "s3gen.flow.spk_embed_affine_layer"},
    {"flow/encoder_proj", "s3gen.flow.encoder_proj"},
    {"flow/encoder/embed/linear", "s3gen.flow.encoder.embed.out.0"},
    {"flow/encoder/embed/norm", "s3gen.flow.encoder.embed.out.1"},
    {"flow/encoder/up_embed/linear", "s3gen.flow.encoder.up_embed.out.0"},
    {"flow/encoder/up_embed/norm", "s3gen.flow.encoder.up_embed.out.1"},
    {"flow/encoder/pre_lookahead/conv#", "s3gen.flow.encoder.pre_lookahead_layer.conv#"},
    {"flow/encoder/up_layer/conv", "s3gen.flow.encoder.up_layer.conv"},
    {"flow/encoder/after_norm", "s3gen.flow.encoder.after_norm"},
    CONFORMER("norm_mha", "norm_mha"),
    CONFORMER("norm_ff", "norm_ff"),
    CONFORMER("attn/q", "self_attn.linear_q"),
    CONFORMER("attn/k", "self_attn.linear_k"),
    CONFORMER("attn/v", "self_attn.linear_v"),
    CONFORMER("attn/o", "self_attn.linear_out"),
    CONFORMER("attn/pos", "self_attn.linear_pos"),
    CONFORMER("attn/pos_bias_u", "self_attn.pos_bias_u"),
    CONFORMER("attn/pos_bias_v", "self_attn.pos_bias_v"),
    CONFORMER("ff/w1", "feed_forward.w_1"),
    CONFORMER("ff/w2", "feed_forward.w_2"),
};

enum { MAX_CAPTURES = 4, NAME_ROOM = TABLE_NAME_ROOM };

struct capture {
    const char *text;
    size_t n;
};

/* The parts of a name that a pattern leaves open. */
static bool match(const char *pattern, const char *name, size_t n, struct capture captures[MAX_CAPTURES])
{
    const char *at = name, *end = name + n;
    for (int i = 0; *pattern; pattern++) {
        struct capture c = {at, 0};
        if (*pattern == '*') {
            c.n = (size_t)(end - at);
        } else if (*pattern == '#') {
            while (at + c.n < end && at[c.n] >= '0' && at[c.n] <= '9') c.n++;
        } else if (at < end && *at == *pattern) {
            at++;
            continue;
        }
        if (c.n == 0 || i == MAX_CAPTURES) return false;
        captures[i++] = c;
        at += c.n;
    }
    return at == end;
}

/* The canonical pattern with its gaps filled; slashes become dots. */
static void fill(char out[NAME_ROOM], const char *canonical, const struct capture *captures, const char *suffix)
{
    size_t n = 0;
    for (; *canonical; canonical++) {
        if (*canonical != '#' && *canonical != '*') {
            out[n++] = *canonical;
            continue;
        }
        for (size_t i = 0; i < captures->n; i++) out[n++] = captures->text[i] == '/' ? '.' : captures->text[i];
        captures++;
    }
    memcpy(out + n, suffix, strlen(suffix) + 1);
}

static bool translate(char out[NAME_ROOM], const struct rename *table, size_t rows, const char *name, size_t n,
                      const char *suffix)
{
    struct capture captures[MAX_CAPTURES] = {{NULL, 0}};
    for (size_t i = 0; i < rows; i++) {
        if (!match(table[i].port, name, n, captures)) continue;
        fill(out, table[i].canonical, captures, suffix);
        return true;
    }
    return false;
}

static bool canonical_name(char out[NAME_ROOM], const char *name)
{
    size_t n = strlen(name);
    if (translate(out, groups, sizeof groups / sizeof *groups, name, n, "")) return true;
    const char *suffix = "";
    if (n > 2 && name[n - 2] == '/' && strchr("wgb", name[n - 1])) {
        suffix = name[n - 1] == 'b' ? ".bias" : ".weight";
        n -= 2;
    }
    return translate(out, layers, sizeof layers / sizeof *layers, name, n, suffix);
}

/* The built-in voice lacks the batch dimension of conds.pt. */
static void add_batch_dimension(struct tensor *t)
{
    const int published = strstr(t->name, "prompt_feat") ? 3 : 2;
    if (t->n_dims != published - 1) return;
    for (int i = t->n_dims++; i > 0; i--) t->shape[i] = t->shape[i - 1];
    t->shape[0] = 1;
}

utter_status port_translate(struct checkpoint *ck, size_t first, struct error *e)
{
    char name[NAME_ROOM];
    for (size_t i = first; i < ck->n_entries; i++) {
        struct tensor *t = &ck->entries[i].tensor;
        if (!canonical_name(name, t->name)) continue;
        if (!(t->name = table_text(ck, name, strlen(name)))) return table_out_of_memory(ck, e);
        if (strncmp(name, "conds.", 6) == 0) add_batch_dimension(t);
        /* The port transposes GPT-2's Conv1D; its convolutions are as published. */
        if (names_layer_kind(name, t->n_dims) == LAYER_GPT2) t->layout = LAYOUT_TAPS_OUT_IN;
    }
    return UTTER_OK;
}

/* ---- the pair ---- */

static const char *string_meta(const struct checkpoint *ck, const char *key)
{
    const struct meta *m = checkpoint_meta(ck, key);
    return m && m->type == META_STRING ? m->as.string : "";
}

enum port_part port_part(const struct checkpoint *ck)
{
    const char *architecture = string_meta(ck, "general.architecture");
    if (strcmp(architecture, "chatterbox") == 0) return PORT_T3;
    return strcmp(architecture, "chatterbox-s3gen") == 0 ? PORT_S3GEN : PORT_NONE;
}

/* Multilingual files say so; files without a variant are older ones of Turbo, or Nano's. */
static bool is_multilingual(const struct checkpoint *ck)
{
    return strcmp(string_meta(ck, "chatterbox.variant"), "t3_mtl") == 0 ||
           strcmp(string_meta(ck, "s3gen.variant"), "mtl") == 0;
}

/* How much two file names share at both ends. */
static size_t likeness(const char *a, const char *b)
{
    size_t head = 0, tail = 0;
    const size_t n_a = strlen(a), n_b = strlen(b), n = n_a < n_b ? n_a : n_b;
    while (head < n && a[head] == b[head]) head++;
    while (tail < n - head && a[n_a - 1 - tail] == b[n_b - 1 - tail]) tail++;
    return head + tail;
}

/* Whether a file is the other half of this variant. Files that cannot be read are no candidates. */
static bool is_partner(const char *path, enum port_part wanted, bool multilingual)
{
    int file;
    struct checkpoint *ck = mem_calloc(1, sizeof *ck);
    if (!ck) return false;
    ck->path = path;
    const bool read = table_map_file(ck, path, &file, NULL) == UTTER_OK && ck->files[file].map.n_bytes > 4 &&
                      memcmp(ck->files[file].map.data, "GGUF", 4) == 0 && gguf_read(ck, file, NULL) == UTTER_OK;
    const bool fits = read && port_part(ck) == wanted && is_multilingual(ck) == multilingual;
    checkpoint_close(&ck);
    return fits;
}

utter_status port_find_partner(struct checkpoint *ck, enum port_part have, const char **path, struct error *e)
{
    const enum port_part wanted = have == PORT_T3 ? PORT_S3GEN : PORT_T3;
    const bool multilingual = is_multilingual(ck);
    const char *slash = strrchr(ck->path, '/'), *own = slash ? slash + 1 : ck->path;
    const int n_folder = (int)(own - ck->path);
    const char *folder = n_folder ? table_format(ck, "%.*s", n_folder, ck->path) : ".";
    *path = NULL;
    if (!folder) return table_out_of_memory(ck, e);
    size_t best = 0;
    DIR *dir = opendir(folder);
    const struct dirent *d;
    while (dir && (d = readdir(dir))) {
        const size_t n = strlen(d->d_name), score = likeness(d->d_name, own) + 1;
        if (n < 5 || strcmp(d->d_name + n - 5, ".gguf") != 0 || strcmp(d->d_name, own) == 0) continue;
        const char *candidate = table_format(ck, "%.*s%s", n_folder, ck->path, d->d_name);
        const bool better = score > best || (score == best && candidate && *path && strcmp(candidate, *path) < 0);
        if (!candidate || !better || !is_partner(candidate, wanted, multilingual)) continue;
        *path = candidate;
        best = score;
    }
    if (dir) closedir(dir);
    return UTTER_OK;
}
