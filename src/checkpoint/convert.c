#include "checkpoint/convert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "checkpoint/fold.h"
#include "checkpoint/gguf_writer.h"
#include "checkpoint/quantize.h"
#include "checkpoint/tokenizer_meta.h"

void convert_types(struct convert_options *o, enum dtype t)
{
    o->t3 = t;
    o->embedding = DTYPE_F16;
    o->flow = t == DTYPE_Q4_0 ? DTYPE_Q8_0 : t;
    o->vocoder = t == DTYPE_Q4_0 || t == DTYPE_Q8_0 ? DTYPE_F16 : t;
}

/* ---- what becomes of a tensor ---- */

static bool starts(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool ends(const char *text, const char *suffix)
{
    const size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}

/* True when a name matches one of the patterns; a pattern is a prefix, or with a leading '*' a suffix. */
static bool is_any(const char *name, const char *const *patterns)
{
    for (; *patterns; patterns++)
        if (**patterns == '*' ? ends(name, *patterns + 1) : starts(name, *patterns)) return true;
    return false;
}

/* Never read at inference, or recomputed. */
static const char *const unused[] = {"t3.tfmr.wte.",
                                     "t3.tfmr.embed_tokens.",
                                     "t3.text_head.",
                                     "ve.similarity_",
                                     "ve.mel_fb",
                                     "s3gen.speaker_encoder.mel_fb",
                                     "s3gen.trim_fade",
                                     "*.num_batches_tracked",
                                     "*.attn.bias",
                                     "*.attn.masked_bias",
                                     "*.original0",
                                     "*.weight_g",
                                     NULL};
static const char *const cloning[] = {"ve.", "s3gen.speaker_encoder.", "s3gen.tokenizer.", NULL};
static const char *const precise[] = {"ve.",
                                      "conds.",
                                      "s3gen.speaker_encoder.",
                                      "s3gen.tokenizer.",
                                      "s3gen.flow.spk_embed_affine_layer.",
                                      "s3gen.mel2wav.f0_predictor.",
                                      "s3gen.mel2wav.m_source.",
                                      NULL};
static const char *const tables[] = {"t3.text_emb.",
                                     "t3.speech_emb.",
                                     "t3.tfmr.wpe.",
                                     "t3.text_pos_emb.",
                                     "t3.speech_pos_emb.",
                                     "s3gen.flow.input_embedding.",
                                     NULL};
static const char *const at_least_f16[] = {"t3.cond_enc.", "s3gen.flow.encoder_proj.",
                                           "s3gen.flow.decoder.estimator.final_proj.", "s3gen.mel2wav.conv_post.",
                                           NULL};
static const char *const networks[] = {"t3.", "s3gen.", "ve.", "conds.", NULL};

static bool is_left_out(const char *name, const struct convert_options *o)
{
    return !is_any(name, networks) || is_any(name, unused) || (o->no_clone && is_any(name, cloning));
}

struct item {
    char name[TABLE_NAME_ROOM];
    struct layer layer;
    enum layer_kind kind;
    struct tensor out; /* name, type and shape of what is written */
};

static enum dtype type_for(const struct item *item, const struct convert_options *o)
{
    const struct tensor *t = item->layer.weight;
    const char *name = item->name;
    enum dtype wanted = starts(name, "t3.") ? o->t3 : starts(name, "s3gen.mel2wav.") ? o->vocoder : o->flow;
    if (!dtype_is_float(t->type)) return t->type;
    if (wanted == DTYPE_F32) return DTYPE_F32;
    const bool matrix = t->n_dims >= 2 && ends(name, ".weight");
    if (!matrix || is_any(name, precise)) return t->type;
    if (is_any(name, tables)) wanted = o->embedding;
    if (is_any(name, at_least_f16)) return DTYPE_F16;
    /* Blocks run along the inputs, the last dimension of what is written. */
    const bool fits = tensor_count(t) >= 1024 && item->out.shape[item->out.n_dims - 1] % dtype_block(wanted) == 0;
    if (!fits) return DTYPE_F16;
    /* Every frame's choice among 6,563 codes passes through this one matrix. */
    if (wanted == DTYPE_Q4_0 && starts(name, "t3.speech_head.")) return DTYPE_Q8_0;
    return wanted;
}

/* X.parametrizations.weight.original1 and X.weight_v are written as X.weight. */
static void name_item(struct item *item, const char *name)
{
    static const char *const forms[] = {".parametrizations.weight.original1", ".weight_v"};
    snprintf(item->name, sizeof item->name, "%s", name);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (ends(name, forms[i])) memcpy(item->name + strlen(name) - strlen(forms[i]), ".weight", sizeof ".weight");
}

/* Whether the bytes cannot be copied as they lie. */
static bool is_changed(const struct item *item)
{
    const struct tensor *t = item->layer.weight;
    return item->layer.g || t->type != item->out.type || fold_reorders(t, item->kind);
}

/* False when the tensor is left out. */
static bool plan(struct item *item, const struct checkpoint *ck, const struct tensor *t,
                 const struct convert_options *o)
{
    if (is_left_out(t->name, o)) return false;
    name_item(item, t->name);
    item->layer = (struct layer){.weight = t};
    if (strcmp(item->name, t->name) != 0) {
        char layer_name[TABLE_NAME_ROOM];
        snprintf(layer_name, sizeof layer_name, "%.*s", (int)(strlen(item->name) - strlen(".weight")), item->name);
        item->layer = fold_find(ck, layer_name);
        if (item->layer.weight != t) return false; /* a plain weight is there too and wins */
    }
    item->kind = names_layer_kind(item->name, t->n_dims);
    item->out = (struct tensor){.name = item->name, .type = t->type, .n_dims = t->n_dims};
    memcpy(item->out.shape, t->shape, sizeof t->shape);
    if (item->kind != LAYER_OTHER) {
        const struct layer_shape s = fold_shape(t, item->kind);
        const int64_t shape[3] = {s.k, s.out, s.in};
        item->out.n_dims = s.k == 1 ? 2 : 3;
        for (int i = 0; i < item->out.n_dims; i++) item->out.shape[i] = shape[i + 3 - item->out.n_dims];
    }
    item->out.type = type_for(item, o);
    if (is_changed(item) && !quantize_writes(item->out.type)) item->out.type = DTYPE_F32;
    return true;
}

static size_t bytes_of(const struct tensor *t)
{
    return tensor_count(t) / (size_t)dtype_block(t->type) * dtype_block_bytes(t->type);
}

/* ---- metadata ---- */

static void write_text(struct gguf_writer *w, const char *key, const char *text)
{
    if (text) gguf_write_string(w, key, text, strlen(text));
}

/* An option, or what the source says under the same key. */
static const char *text_of(const struct checkpoint *ck, const char *key, const char *option)
{
    const struct meta *m = checkpoint_meta(ck, key);
    return option ? option : m && m->type == META_STRING ? m->as.string : NULL;
}

static void write_languages(struct gguf_writer *w, const struct checkpoint *ck, const struct convert_options *o)
{
    const struct meta *source = checkpoint_meta(ck, "general.languages");
    if (o->n_languages)
        gguf_write_strings(w, "general.languages", o->languages, o->n_languages);
    else if (source && source->type == META_STRINGS)
        gguf_write_strings(w, "general.languages", source->as.strings, source->count);
}

static utter_status write_metadata(struct gguf_writer *w, const struct checkpoint *ck, const struct convert_options *o,
                                   struct error *e)
{
    write_text(w, "general.architecture", "utter");
    write_text(w, "general.name", text_of(ck, "general.name", o->name));
    write_text(w, "general.license", text_of(ck, "general.license", o->license));
    write_languages(w, ck, o);
    gguf_write_uint(w, "general.quantization_version", 2);
    gguf_write_uint(w, "utter.format_version", UTTER_GGUF_VERSION);
    write_text(w, "utter.family", "chatterbox");
    write_text(w, "utter.variant", checkpoint_variant(ck));
    gguf_write_bool(w, "utter.can_clone", !o->no_clone && checkpoint_can_clone(ck));
    write_text(w, "utter.voice", text_of(ck, "utter.voice", o->voice));
    write_text(w, "utter.t3_type", dtype_name(o->t3));
    write_text(w, "utter.embedding_type", dtype_name(o->embedding));
    write_text(w, "utter.flow_type", dtype_name(o->flow));
    write_text(w, "utter.vocoder_type", dtype_name(o->vocoder));
    return tokenizer_write_meta(w, ck, e);
}

/* ---- numbers ---- */

struct conversion {
    const struct checkpoint *ck;
    const struct convert_options *o;
    struct gguf_writer *w;
    struct convert_report *report;
    struct error *e;
    size_t done, total;
    float *numbers;        /* PIECE floats */
    unsigned char *packed; /* PIECE values of any type */
};

enum { PIECE = 1 << 18 }; /* values converted at a time: a multiple of every block */

static utter_status refuse_values(struct conversion *c, const struct item *item, const float *x, size_t n)
{
    const float limit = item->out.type == DTYPE_F32 || item->out.type == DTYPE_BF16 ? INFINITY : 65504.0f;
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) <= limit))
            return error_set(c->e, UTTER_MODEL_DAMAGED, "%s: tensor %s: the value %g does not fit in %s",
                             checkpoint_tensor_file(c->ck, item->layer.weight), item->name, (double)x[i],
                             dtype_name(item->out.type));
    return UTTER_OK;
}

static utter_status tell(struct conversion *c, const struct item *item, size_t n_bytes)
{
    c->done += n_bytes;
    if (c->o->progress) c->o->progress(c->o->progress_arg, c->done, c->total, item->name);
    return cancel_poll(c->o->cancel) ? error_set(c->e, UTTER_CANCELLED, "cancelled") : UTTER_OK;
}

/* Values [0, n) of x, or of the tensor itself when x is NULL, packed and written. */
static utter_status write_values(struct conversion *c, const struct item *item, const float *x, size_t n)
{
    const size_t block = (size_t)dtype_block(item->out.type), block_bytes = dtype_block_bytes(item->out.type);
    utter_status s = UTTER_OK;
    for (size_t first = 0; first < n && s == UTTER_OK; first += PIECE) {
        const size_t count = n - first < PIECE ? n - first : PIECE, n_bytes = count / block * block_bytes;
        if (!x) tensor_read_f32(item->layer.weight, first, count, c->numbers);
        const float *values = x ? x + first : c->numbers;
        if ((s = refuse_values(c, item, values, count)) != UTTER_OK) break;
        quantize_f32(item->out.type, values, count, c->packed);
        gguf_write_data(c->w, c->packed, n_bytes);
        s = tell(c, item, n_bytes);
    }
    return s;
}

static utter_status write_item(struct conversion *c, const struct item *item)
{
    const struct tensor *t = item->layer.weight;
    const size_t n = tensor_count(t);
    if (!is_changed(item)) {
        gguf_write_data(c->w, t->data, t->n_bytes);
        return tell(c, item, t->n_bytes);
    }
    if (!item->layer.g && !fold_reorders(t, item->kind)) return write_values(c, item, NULL, n);
    float *folded = mem_alloc(n * sizeof *folded);
    utter_status s;
    if (folded && fold_f32(folded, &item->layer, item->kind, c->o->cancel))
        s = write_values(c, item, folded, n);
    else if ((s = cancel_check(c->o->cancel, c->e)) == UTTER_OK)
        s = error_set(c->e, UTTER_OUT_OF_MEMORY, "no memory for tensor %s", item->name);
    mem_free(folded);
    return s;
}

static void declare(struct conversion *c, const struct item *item)
{
    const size_t n_bytes = bytes_of(&item->out);
    gguf_declare(c->w, &item->out);
    c->total += n_bytes;
    c->report->n_tensors++;
    c->report->tensors_by_type[item->out.type]++;
    c->report->bytes_by_type[item->out.type] += n_bytes;
}

static utter_status check_norm(struct conversion *c, const struct item *item)
{
    const struct layer *layer = &item->layer;
    if (!layer->g || tensor_count(layer->g) == fold_rows(layer->weight)) return UTTER_OK;
    return error_set(c->e, UTTER_MODEL_DAMAGED, "%s: tensor %s: expected %zu values, found %zu",
                     checkpoint_tensor_file(c->ck, layer->g), layer->g->name, fold_rows(layer->weight),
                     tensor_count(layer->g));
}

static utter_status convert(struct conversion *c)
{
    struct item item;
    const size_t n = checkpoint_tensors(c->ck);
    utter_status s = write_metadata(c->w, c->ck, c->o, c->e);
    for (size_t i = 0; i < n && s == UTTER_OK; i++) {
        if (!plan(&item, c->ck, checkpoint_tensor(c->ck, i), c->o)) {
            c->report->n_left_out++;
            continue;
        }
        s = check_norm(c, &item);
        declare(c, &item);
    }
    for (size_t i = 0; i < n && s == UTTER_OK; i++)
        if (plan(&item, c->ck, checkpoint_tensor(c->ck, i), c->o)) s = write_item(c, &item);
    return s == UTTER_OK ? gguf_finish(c->w, &c->report->n_bytes) : s;
}

utter_status convert_checkpoint(const struct checkpoint *ck, const char *path, const struct convert_options *o,
                                struct convert_report *report, struct error *e)
{
    *report = (struct convert_report){0};
    if (!quantize_writes(o->t3) || !quantize_writes(o->flow) || !quantize_writes(o->vocoder) ||
        !quantize_writes(o->embedding))
        return error_set(e, UTTER_INVALID_ARGUMENT, "weights are written as f32, f16, bf16, q8_0 or q4_0");
    if (!checkpoint_find(ck, "t3.speech_emb.weight") && !checkpoint_find(ck, "s3gen.flow.input_embedding.weight"))
        return error_set(e, UTTER_MODEL_DAMAGED,
                         "%s: expected tensors of T3 or S3Gen, found neither: nothing to convert", checkpoint_path(ck));
    struct conversion c = {.ck = ck, .o = o, .report = report, .e = e};
    c.numbers = mem_alloc(PIECE * sizeof *c.numbers);
    c.packed = mem_alloc(PIECE * sizeof(float));
    utter_status s = UTTER_OUT_OF_MEMORY;
    if (c.numbers && c.packed)
        s = gguf_writer_create(&c.w, path, e);
    else
        error_set(e, s, "no memory to convert");
    if (s == UTTER_OK) s = convert(&c);
    gguf_writer_destroy(&c.w);
    mem_free(c.numbers);
    mem_free(c.packed);
    return s;
}
