#include "tools/portfile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf_writer.h"
#include "checkpoint/quantize.h"
#include "checkpoint/tokenizer_meta.h"

/* ---- names: published on the left, as sscanf reads them; the port's on the right ---- */

struct pair {
    const char *published, *port;
};

static const struct pair t3_names[] = {
    {"t3.tfmr.wpe.weight%n", "model/wpe"},
    {"t3.tfmr.ln_f.weight%n", "model/ln_f/g"},
    {"t3.tfmr.ln_f.bias%n", "model/ln_f/b"},
    {"t3.tfmr.h.%d.ln_1.weight%n", "model/h%d/ln_1/g"},
    {"t3.tfmr.h.%d.ln_1.bias%n", "model/h%d/ln_1/b"},
    {"t3.tfmr.h.%d.ln_2.weight%n", "model/h%d/ln_2/g"},
    {"t3.tfmr.h.%d.ln_2.bias%n", "model/h%d/ln_2/b"},
    {"t3.tfmr.h.%d.attn.c_attn.weight%n", "model/h%d/attn/c_attn/w"},
    {"t3.tfmr.h.%d.attn.c_attn.bias%n", "model/h%d/attn/c_attn/b"},
    {"t3.tfmr.h.%d.attn.c_proj.weight%n", "model/h%d/attn/c_proj/w"},
    {"t3.tfmr.h.%d.attn.c_proj.bias%n", "model/h%d/attn/c_proj/b"},
    {"t3.tfmr.h.%d.mlp.c_fc.weight%n", "model/h%d/mlp/c_fc/w"},
    {"t3.tfmr.h.%d.mlp.c_fc.bias%n", "model/h%d/mlp/c_fc/b"},
    {"t3.tfmr.h.%d.mlp.c_proj.weight%n", "model/h%d/mlp/c_proj/w"},
    {"t3.tfmr.h.%d.mlp.c_proj.bias%n", "model/h%d/mlp/c_proj/b"},
    {"t3.tfmr.norm.weight%n", "model/norm/g"},
    {"t3.tfmr.layers.%d.input_layernorm.weight%n", "model/h%d/ln_attn/g"},
    {"t3.tfmr.layers.%d.post_attention_layernorm.weight%n", "model/h%d/ln_mlp/g"},
    {"t3.tfmr.layers.%d.self_attn.q_proj.weight%n", "model/h%d/attn/q/w"},
    {"t3.tfmr.layers.%d.self_attn.k_proj.weight%n", "model/h%d/attn/k/w"},
    {"t3.tfmr.layers.%d.self_attn.v_proj.weight%n", "model/h%d/attn/v/w"},
    {"t3.tfmr.layers.%d.self_attn.o_proj.weight%n", "model/h%d/attn/o/w"},
    {"t3.tfmr.layers.%d.mlp.gate_proj.weight%n", "model/h%d/mlp/gate/w"},
    {"t3.tfmr.layers.%d.mlp.up_proj.weight%n", "model/h%d/mlp/up/w"},
    {"t3.tfmr.layers.%d.mlp.down_proj.weight%n", "model/h%d/mlp/down/w"},
    {"t3.text_emb.weight%n", "chatterbox/text_emb"},
    {"t3.speech_emb.weight%n", "chatterbox/speech_emb"},
    {"t3.speech_head.weight%n", "chatterbox/speech_head"},
    {"t3.speech_head.bias%n", "chatterbox/speech_head_bias"},
    {"t3.text_pos_emb.emb.weight%n", "chatterbox/text_pos_emb"},
    {"t3.speech_pos_emb.emb.weight%n", "chatterbox/speech_pos_emb"},
    {"t3.cond_enc.spkr_enc.weight%n", "chatterbox/cond_spkr/w"},
    {"t3.cond_enc.spkr_enc.bias%n", "chatterbox/cond_spkr/b"},
    {"t3.cond_enc.emotion_adv_fc.weight%n", "chatterbox/emotion_adv_fc/w"},
    {"t3.cond_enc.perceiver.pre_attention_query%n", "chatterbox/perceiver/pre_attention_query"},
    {"t3.cond_enc.perceiver.attn.norm.weight%n", "chatterbox/perceiver/attn/norm/g"},
    {"t3.cond_enc.perceiver.attn.norm.bias%n", "chatterbox/perceiver/attn/norm/b"},
    {"t3.cond_enc.perceiver.attn.to_q.weight%n", "chatterbox/perceiver/attn/to_q/w"},
    {"t3.cond_enc.perceiver.attn.to_q.bias%n", "chatterbox/perceiver/attn/to_q/b"},
    {"t3.cond_enc.perceiver.attn.to_k.weight%n", "chatterbox/perceiver/attn/to_k/w"},
    {"t3.cond_enc.perceiver.attn.to_k.bias%n", "chatterbox/perceiver/attn/to_k/b"},
    {"t3.cond_enc.perceiver.attn.to_v.weight%n", "chatterbox/perceiver/attn/to_v/w"},
    {"t3.cond_enc.perceiver.attn.to_v.bias%n", "chatterbox/perceiver/attn/to_v/b"},
    {"t3.cond_enc.perceiver.attn.proj_out.weight%n", "chatterbox/perceiver/attn/proj_out/w"},
    {"t3.cond_enc.perceiver.attn.proj_out.bias%n", "chatterbox/perceiver/attn/proj_out/b"},
    {"ve.lstm.weight_ih_l%d%n", "voice_encoder/lstm/weight_ih_l%d"},
    {"ve.lstm.weight_hh_l%d%n", "voice_encoder/lstm/weight_hh_l%d"},
    {"ve.lstm.bias_ih_l%d%n", "voice_encoder/lstm/bias_ih_l%d"},
    {"ve.lstm.bias_hh_l%d%n", "voice_encoder/lstm/bias_hh_l%d"},
    {"ve.proj.weight%n", "voice_encoder/proj/weight"},
    {"ve.proj.bias%n", "voice_encoder/proj/bias"},
    {"conds.t3.speaker_emb%n", "chatterbox/builtin/speaker_emb"},
    {"conds.t3.cond_prompt_speech_tokens%n", "chatterbox/builtin/cond_prompt_speech_tokens"},
    {NULL, NULL},
};

#define CONFORMER(list, block)                                                                                         \
    {"s3gen.flow.encoder." list ".%d.norm_mha.weight%n", "flow/encoder/" block "%d/norm_mha/w"},                       \
        {"s3gen.flow.encoder." list ".%d.norm_mha.bias%n", "flow/encoder/" block "%d/norm_mha/b"},                     \
        {"s3gen.flow.encoder." list ".%d.norm_ff.weight%n", "flow/encoder/" block "%d/norm_ff/w"},                     \
        {"s3gen.flow.encoder." list ".%d.norm_ff.bias%n", "flow/encoder/" block "%d/norm_ff/b"},                       \
        {"s3gen.flow.encoder." list ".%d.self_attn.linear_q.weight%n", "flow/encoder/" block "%d/attn/q/w"},           \
        {"s3gen.flow.encoder." list ".%d.self_attn.linear_q.bias%n", "flow/encoder/" block "%d/attn/q/b"},             \
        {"s3gen.flow.encoder." list ".%d.self_attn.linear_k.weight%n", "flow/encoder/" block "%d/attn/k/w"},           \
        {"s3gen.flow.encoder." list ".%d.self_attn.linear_k.bias%n", "flow/encoder/" block "%d/attn/k/b"},             \
        {"s3gen.flow.encoder." list ".%d.self_attn.linear_v.weight%n", "flow/encoder/" block "%d/attn/v/w"},           \
        {"s3gen.flow.encoder." list ".%d.self_attn.linear_v.bias%n", "flow/encoder/" block "%d/attn/v/b"},             \
        {"s3gen.flow.encoder." list ".%d.self_attn.linear_out.weight%n", "flow/encoder/" block "%d/attn/o/w"},         \
        {"s3gen.flow.encoder." list ".%d.self_attn.linear_out.bias%n", "flow/encoder/" block "%d/attn/o/b"},           \
        {"s3gen.flow.encoder." list ".%d.self_attn.linear_pos.weight%n", "flow/encoder/" block "%d/attn/pos/w"},       \
        {"s3gen.flow.encoder." list ".%d.self_attn.pos_bias_u%n", "flow/encoder/" block "%d/attn/pos_bias_u"},         \
        {"s3gen.flow.encoder." list ".%d.self_attn.pos_bias_v%n", "flow/encoder/" block "%d/attn/pos_bias_v"},         \
        {"s3gen.flow.encoder." list ".%d.feed_forward.w_1.weight%n", "flow/encoder/" block "%d/ff/w1/w"},              \
        {"s3gen.flow.encoder." list ".%d.feed_forward.w_1.bias%n", "flow/encoder/" block "%d/ff/w1/b"},                \
        {"s3gen.flow.encoder." list ".%d.feed_forward.w_2.weight%n", "flow/encoder/" block "%d/ff/w2/w"},              \
    {                                                                                                                  \
        "s3gen.flow.encoder." list ".%d.feed_forward.w_2.bias%n", "flow/encoder/" block "%d/ff/w2/b"                   \
    }

static const struct pair s3gen_names[] = {
    {"s3gen.flow.input_embedding.weight%n", "flow/input_embedding"},
    {"s3gen.flow.spk_embed_affine_layer.weight%n", "flow/spk_embed_affine/w"},
    {"s3gen.flow.spk_embed_affine_layer.bias%n", "flow/spk_embed_affine/b"},
    {"s3gen.flow.encoder_proj.weight%n", "flow/encoder_proj/w"},
    {"s3gen.flow.encoder_proj.bias%n", "flow/encoder_proj/b"},
    {"s3gen.flow.encoder.embed.out.0.weight%n", "flow/encoder/embed/linear/w"},
    {"s3gen.flow.encoder.embed.out.0.bias%n", "flow/encoder/embed/linear/b"},
    {"s3gen.flow.encoder.embed.out.1.weight%n", "flow/encoder/embed/norm/w"},
    {"s3gen.flow.encoder.embed.out.1.bias%n", "flow/encoder/embed/norm/b"},
    {"s3gen.flow.encoder.up_embed.out.0.weight%n", "flow/encoder/up_embed/linear/w"},
    {"s3gen.flow.encoder.up_embed.out.0.bias%n", "flow/encoder/up_embed/linear/b"},
    {"s3gen.flow.encoder.up_embed.out.1.weight%n", "flow/encoder/up_embed/norm/w"},
    {"s3gen.flow.encoder.up_embed.out.1.bias%n", "flow/encoder/up_embed/norm/b"},
    {"s3gen.flow.encoder.pre_lookahead_layer.conv%d.weight%n", "flow/encoder/pre_lookahead/conv%d/w"},
    {"s3gen.flow.encoder.pre_lookahead_layer.conv%d.bias%n", "flow/encoder/pre_lookahead/conv%d/b"},
    {"s3gen.flow.encoder.up_layer.conv.weight%n", "flow/encoder/up_layer/conv/w"},
    {"s3gen.flow.encoder.up_layer.conv.bias%n", "flow/encoder/up_layer/conv/b"},
    {"s3gen.flow.encoder.after_norm.weight%n", "flow/encoder/after_norm/w"},
    {"s3gen.flow.encoder.after_norm.bias%n", "flow/encoder/after_norm/b"},
    CONFORMER("encoders", "block"),
    CONFORMER("up_encoders", "up_block"),
    {"s3gen.tokenizer._mel_filters%n", "s3tokv2/mel_fb"},
    {"conds.gen.prompt_token%n", "s3gen/builtin/prompt_token"},
    {"conds.gen.prompt_feat%n", "s3gen/builtin/prompt_feat"},
    {"conds.gen.embedding%n", "s3gen/builtin/embedding"},
    {NULL, NULL},
};

/* Groups that keep their names, slashes for dots. */
static const struct pair s3gen_groups[] = {{"s3gen.flow.decoder.estimator.", "cfm/"},
                                           {"s3gen.mel2wav.", "hift/"},
                                           {"s3gen.speaker_encoder.", "campplus/"},
                                           {"s3gen.tokenizer.", "s3tokv2/"},
                                           {NULL, NULL}};

enum { NAME = 256 };

static bool listed_name(char out[NAME], const struct pair *names, const char *published)
{
    for (; names->published; names++) {
        int number = 0, end = 0;
        if (strstr(names->published, "%d"))
            sscanf(published, names->published, &number, &end);
        else
            sscanf(published, names->published, &end);
        if (end == 0 || published[end]) continue;
        snprintf(out, NAME, names->port, number);
        return true;
    }
    return false;
}

static bool group_name(char out[NAME], const char *published)
{
    for (const struct pair *g = s3gen_groups; g->published; g++) {
        const size_t n = strlen(g->published);
        if (strncmp(published, g->published, n) != 0) continue;
        snprintf(out, NAME, "%s%s", g->port, published + n);
        for (char *p = out; *p; p++)
            if (*p == '.') *p = '/';
        return true;
    }
    return false;
}

static bool ends(const char *text, const char *suffix)
{
    const size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}

/* ---- types ---- */

/* What T3's own converter quantises, and the rule that S3Gen's converter shares with the re-quantiser. */
static enum dtype type_for(const char *name, const struct tensor *t, enum dtype type)
{
    static const char *const t3[] = {"attn/c_attn/w", "attn/c_proj/w", "mlp/c_fc/w", "mlp/c_proj/w",
                                     "chatterbox/speech_head"};
    static const char *const half[] = {"chatterbox/text_emb", "chatterbox/speech_emb"};
    static const char *const denied[] = {"flow/input_embedding",
                                         "/builtin/",
                                         "text_emb",
                                         "speech_emb",
                                         "wte",
                                         "wpe",
                                         "mel_fb",
                                         "pos_emb",
                                         "pe/pe",
                                         "/b",
                                         "/bias",
                                         "/bn/",
                                         "/norm/",
                                         "/ln_",
                                         "/g",
                                         "/s",
                                         "alpha",
                                         "beta",
                                         "gamma",
                                         "voice_encoder/",
                                         "campplus/",
                                         "s3tokv2/"};
    if (type == DTYPE_F32) return DTYPE_F32;
    for (size_t i = 0; i < sizeof half / sizeof *half; i++)
        if (strcmp(name, half[i]) == 0) return DTYPE_F16;
    for (size_t i = 0; i < sizeof t3 / sizeof *t3; i++)
        if (ends(name, t3[i])) return type;
    if (strncmp(name, "flow/", 5) != 0 && strncmp(name, "cfm/", 4) != 0) return DTYPE_F32;
    for (size_t i = 0; i < sizeof denied / sizeof *denied; i++)
        if (strstr(name, denied[i])) return DTYPE_F32;
    const bool fits = t->n_dims == 2 && tensor_count(t) >= 1024 && t->shape[1] % 32 == 0;
    return fits ? type : DTYPE_F32;
}

static void quantize_q5_0(const float *x, size_t n, unsigned char *out)
{
    for (size_t b = 0; b < n; b += 32, out += 22) {
        float m = 0;
        uint32_t high = 0;
        for (size_t i = 0; i < 32; i++)
            if (fabsf(x[b + i]) > fabsf(m)) m = x[b + i];
        const uint16_t d16 = float_to_half(m / -16);
        const float d = half_to_float(d16);
        memset(out, 0, 22);
        memcpy(out, &d16, 2);
        for (size_t i = 0; i < 32; i++) {
            const long q = d != 0 ? lrintf(x[b + i] / d) + 16 : 16;
            const unsigned v = q < 0 ? 0 : q > 31 ? 31 : (unsigned)q;
            out[6 + i % 16] = (unsigned char)(out[6 + i % 16] | (v & 15) << (i < 16 ? 0 : 4));
            high |= (v >> 4) << i;
        }
        memcpy(out + 2, &high, 4);
    }
}

/* ---- tensors ---- */

struct output {
    struct tensor t; /* of the file, name included */
    char name[NAME];
    float *values;
};

struct outputs {
    struct output *list;
    size_t n;
};

static struct output *add(struct outputs *o, const char *name, const struct tensor *like)
{
    o->list = realloc(o->list, (o->n + 1) * sizeof *o->list);
    if (!o->list) abort(); /* a test tool */
    struct output *out = &o->list[o->n++];
    *out = (struct output){.t = *like};
    snprintf(out->name, sizeof out->name, "%s", name);
    out->values = malloc(tensor_count(like) * sizeof *out->values);
    if (!out->values) abort();
    tensor_read_f32(like, 0, tensor_count(like), out->values);
    out->t.type = dtype_is_float(like->type) ? DTYPE_F32 : DTYPE_I32;
    return out;
}

static const struct tensor *sibling(const struct checkpoint *ck, const char *name, const char *leaf, const char *other)
{
    char path[NAME];
    snprintf(path, sizeof path, "%.*s%s", (int)(strlen(name) - strlen(leaf)), name, other);
    return checkpoint_find(ck, path);
}

/* Batch norm as scale and shift. */
static void add_batch_norm(struct outputs *o, const struct checkpoint *ck, const struct tensor *mean, const char *port)
{
    static const char leaf[] = "running_mean";
    const struct tensor *weight = sibling(ck, mean->name, leaf, "weight"),
                        *bias = sibling(ck, mean->name, leaf, "bias");
    const struct tensor *variance = sibling(ck, mean->name, leaf, "running_var");
    char name[NAME];
    snprintf(name, sizeof name, "%.*ss", (int)(strlen(port) - strlen(leaf)), port);
    float *s = add(o, name, variance)->values;
    name[strlen(name) - 1] = 'b';
    float *b = add(o, name, mean)->values;
    for (size_t i = 0; i < tensor_count(mean); i++) {
        float gamma = 1, beta = 0;
        if (weight) tensor_read_f32(weight, i, 1, &gamma);
        if (bias) tensor_read_f32(bias, i, 1, &beta);
        const double scale = gamma / sqrt((double)s[i] + 1e-5);
        s[i] = (float)scale;
        b[i] = (float)(beta - b[i] * scale);
    }
}

/* g v / |v|. */
static void add_weight_norm(struct outputs *o, const struct checkpoint *ck, const struct tensor *v, const char *port)
{
    static const char leaf[] = "parametrizations.weight.original1";
    const struct tensor *g = sibling(ck, v->name, leaf, "parametrizations.weight.original0");
    char name[NAME];
    snprintf(name, sizeof name, "%.*sweight", (int)(strlen(port) - strlen(leaf)), port);
    float *w = add(o, name, v)->values;
    const size_t n = tensor_count(v) / (size_t)v->shape[0];
    for (size_t r = 0; r < (size_t)v->shape[0]; r++) {
        float magnitude;
        double sum = 0;
        tensor_read_f32(g, r, 1, &magnitude);
        for (size_t i = 0; i < n; i++) sum += (double)w[r * n + i] * w[r * n + i];
        for (size_t i = 0; i < n; i++) w[r * n + i] = (float)(w[r * n + i] * (magnitude / sqrt(sum)));
    }
}

static void transpose(struct output *o)
{
    const size_t rows = (size_t)o->t.shape[0], cols = (size_t)o->t.shape[1];
    float *to = malloc(rows * cols * sizeof *to);
    if (!to) abort();
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) to[c * rows + r] = o->values[r * cols + c];
    free(o->values);
    o->values = to;
    o->t.shape[0] = (int64_t)cols;
    o->t.shape[1] = (int64_t)rows;
}

static void drop_batch_dimension(struct tensor *t)
{
    for (int i = 1; i < t->n_dims; i++) t->shape[i - 1] = t->shape[i];
    t->n_dims--;
}

static void collect(struct outputs *o, const struct checkpoint *ck, const struct pair *names, bool s3gen,
                    enum dtype type)
{
    for (size_t i = 0; i < checkpoint_tensors(ck); i++) {
        const struct tensor *t = checkpoint_tensor(ck, i);
        char name[NAME];
        if (!listed_name(name, names, t->name) && !(s3gen && group_name(name, t->name))) continue;
        const char *dot = strrchr(t->name, '.') + 1;
        const bool in_norm = sibling(ck, t->name, dot, "running_mean") != NULL;
        if (ends(name, "/running_mean")) add_batch_norm(o, ck, t, name);
        if (ends(name, "/original1")) add_weight_norm(o, ck, t, name);
        if (in_norm || strstr(name, "/parametrizations/") || ends(name, "/num_batches_tracked")) continue;
        struct output *out = add(o, name, t);
        if (strstr(name, "/c_attn/w") || strstr(name, "/c_proj/w") || strstr(name, "/c_fc/w")) transpose(out);
        if (strstr(name, "/builtin/") && !ends(name, "speaker_emb")) drop_batch_dimension(&out->t);
    }
    for (size_t i = 0; i < o->n; i++) {
        struct output *out = &o->list[i];
        const bool quantised = type != DTYPE_F32 && type != DTYPE_F16;
        if (quantised && out->t.n_dims == 3 && out->t.shape[2] == 1 && strncmp(out->name, "cfm/", 4) == 0)
            out->t.n_dims = 2;
        out->t.name = out->name;
        if (out->t.type == DTYPE_F32) out->t.type = type_for(out->name, &out->t, type);
    }
}

static void write_tensor(struct gguf_writer *w, const struct output *o)
{
    const size_t n = tensor_count(&o->t), n_bytes = n / (size_t)dtype_block(o->t.type) * dtype_block_bytes(o->t.type);
    unsigned char *packed = malloc(n_bytes);
    if (!packed) abort();
    if (o->t.type == DTYPE_Q5_0)
        quantize_q5_0(o->values, n, packed);
    else if (o->t.type == DTYPE_I32)
        for (size_t i = 0; i < n; i++) {
            const int32_t v = (int32_t)o->values[i];
            memcpy(packed + 4 * i, &v, 4);
        }
    else
        quantize_f32(o->t.type, o->values, n, packed);
    gguf_write_data(w, packed, n_bytes);
    free(packed);
}

static void write_string(struct gguf_writer *w, const char *key, const char *value)
{
    gguf_write_string(w, key, value, strlen(value));
}

static utter_status write_t3_keys(struct gguf_writer *w, const struct checkpoint *ck, enum dtype type, struct error *e)
{
    const bool llama = checkpoint_find(ck, "t3.tfmr.norm.weight") != NULL;
    write_string(w, "general.architecture", "chatterbox");
    write_string(w, "general.name", "port T3");
    write_string(w, "chatterbox.variant", llama ? "t3_mtl" : "t3_turbo");
    write_string(w, "chatterbox.quantization", dtype_name(type));
    gguf_write_float(w, "chatterbox.layer_norm_eps", 1e-5f);
    gguf_write_uint(w, "chatterbox.start_speech_token", 6561);
    return tokenizer_write_meta(w, ck, e); /* the port uses the keys that our own files have */
}

static void write_s3gen_keys(struct gguf_writer *w, const struct checkpoint *ck, enum dtype type)
{
    const bool meanflow = checkpoint_find(ck, "s3gen.flow.decoder.estimator.time_embed_mixer.weight") != NULL;
    write_string(w, "general.architecture", "chatterbox-s3gen");
    write_string(w, "general.name", "port S3Gen");
    write_string(w, "s3gen.variant", meanflow ? "turbo" : "mtl");
    write_string(w, "s3gen.quantization", dtype_name(type));
    gguf_write_bool(w, "s3gen.meanflow", meanflow);
    gguf_write_uint(w, "s3gen.n_timesteps", meanflow ? 2 : 10);
}

static utter_status write_half(const struct checkpoint *ck, const char *path, bool s3gen, enum dtype type,
                               struct error *e)
{
    struct outputs o = {0};
    struct gguf_writer *w;
    size_t n_bytes;
    utter_status s = gguf_writer_create(&w, path, e);
    if (s != UTTER_OK) return s;
    collect(&o, ck, s3gen ? s3gen_names : t3_names, s3gen, type);
    if (s3gen)
        write_s3gen_keys(w, ck, type);
    else
        s = write_t3_keys(w, ck, type, e);
    for (size_t i = 0; i < o.n; i++) gguf_declare(w, &o.list[i].t);
    for (size_t i = 0; i < o.n; i++) {
        write_tensor(w, &o.list[i]);
        free(o.list[i].values);
    }
    if (s == UTTER_OK) s = gguf_finish(w, &n_bytes);
    gguf_writer_destroy(&w);
    free(o.list);
    return s;
}

utter_status portfile_write(const char *folder, const char *t3_path, const char *s3gen_path, enum dtype type,
                            struct error *e)
{
    struct checkpoint *ck;
    utter_status s = checkpoint_open(&ck, folder, NULL, NULL, e);
    if (s != UTTER_OK) return s;
    s = write_half(ck, t3_path, false, type, e);
    if (s == UTTER_OK) s = write_half(ck, s3gen_path, true, type, e);
    checkpoint_close(&ck);
    return s;
}
