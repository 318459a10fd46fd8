#include "chatterbox/voice_file.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "checkpoint/gguf_writer.h"
#include "checkpoint/npy.h"

enum { MAX_CLIP_SECONDS = 120, N_CONDS_TENSORS = 6 };

/* ---- conditionals as tensors -------------------------------------------------------------------------------------------- */

struct named_tensor {
    char name[96];
    struct tensor tensor;
};

static void name_tensor(struct named_tensor *t, const char *prefix, const char *leaf, enum dtype type, int rows,
                        int cols, const void *data)
{
    snprintf(t->name, sizeof t->name, "%s.%s", prefix, leaf);
    t->tensor = (struct tensor){.name = t->name,
                                .type = type,
                                .n_dims = rows > 0 ? 2 : 1,
                                .shape = {rows > 0 ? rows : cols, cols},
                                .data = data};
    t->tensor.n_bytes = tensor_count(&t->tensor) * dtype_block_bytes(type);
}

static void conds_tensors(struct named_tensor t[N_CONDS_TENSORS], const struct conds *c, const char *prefix)
{
    name_tensor(&t[0], prefix, "t3.speaker_emb", DTYPE_F32, 0, SPEAKER_EMB_SIZE, c->speaker_emb);
    name_tensor(&t[1], prefix, "t3.cond_prompt_speech_tokens", DTYPE_I32, 0, c->n_t3_tokens, c->t3_tokens);
    name_tensor(&t[2], prefix, "t3.emotion_adv", DTYPE_F32, 0, 1, &c->emotion);
    name_tensor(&t[3], prefix, "gen.prompt_token", DTYPE_I32, 0, c->n_prompt_tokens, c->prompt_tokens);
    name_tensor(&t[4], prefix, "gen.prompt_feat", DTYPE_F32, c->n_prompt_frames, PROMPT_N_MELS, c->prompt_mel);
    name_tensor(&t[5], prefix, "gen.embedding", DTYPE_F32, 0, XVECTOR_SIZE, c->xvector);
}

/* ---- writing ---------------------------------------------------------------------------------------------------------------- */

static void write_text(struct gguf_writer *w, const char *key, const char *text)
{
    if (text && text[0]) gguf_write_string(w, key, text, strlen(text));
}

static void write_hash(struct gguf_writer *w, const char *key, uint64_t hash)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    if (hash) write_text(w, key, text);
}

static void write_notes(struct gguf_writer *w, const struct voice_notes *n)
{
    write_text(w, "general.architecture", "utter-voice");
    write_text(w, "general.name", n->name);
    write_text(w, "general.license", n->license);
    gguf_write_uint(w, "utter.voice.version", VOICE_FILE_VERSION);
    write_text(w, "utter.voice.family", "chatterbox");
    write_text(w, "utter.voice.transcript", n->transcript);
    write_text(w, "utter.voice.consent", n->consent);
    write_text(w, "utter.voice.source", n->source);
    write_hash(w, "utter.voice.source_hash", n->source_hash);
    write_hash(w, "utter.voice.networks", n->networks);
    if (n->source_s > 0) gguf_write_float(w, "utter.voice.source_seconds", (float)n->source_s);
}

static int16_t *clip_as_i16(const struct voice *v)
{
    int16_t *pcm = mem_alloc(v->n_clip * sizeof *pcm);
    for (size_t i = 0; pcm && i < v->n_clip; i++) pcm[i] = (int16_t)lrintf(fminf(1, fmaxf(-1, v->clip[i])) * 32767);
    return pcm;
}

utter_status voice_save(const struct voice *v, const char *path, struct error *e)
{
    struct gguf_writer *w = NULL;
    struct named_tensor t[VOICE_N_RULES * N_CONDS_TENSORS + 1];
    size_t n = 0, n_bytes;
    int16_t *pcm = v->clip ? clip_as_i16(v) : NULL;
    if (v->clip && !pcm) return error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory to write it", path);
    utter_status status = gguf_writer_create(&w, path, e);
    for (int r = 0; r < VOICE_N_RULES; r++) {
        if (v->conds[r].n_prompt_tokens == 0) continue;
        conds_tensors(t + n, &v->conds[r], v->fits_any ? "any" : voice_rules_name((enum voice_rules)r));
        n += N_CONDS_TENSORS;
    }
    if (pcm) {
        t[n].tensor = (struct tensor){.name = "clip",
                                      .type = DTYPE_I16,
                                      .n_dims = 1,
                                      .shape = {(int64_t)v->n_clip},
                                      .data = pcm,
                                      .n_bytes = v->n_clip * 2};
        n++;
    }
    if (status == UTTER_OK) {
        write_notes(w, &v->notes);
        for (size_t i = 0; i < n; i++) gguf_declare(w, &t[i].tensor);
        for (size_t i = 0; i < n; i++) gguf_write_data(w, t[i].tensor.data, t[i].tensor.n_bytes);
        status = gguf_finish(w, &n_bytes);
    }
    gguf_writer_destroy(&w);
    mem_free(pcm);
    return status;
}

/* ---- reading ---------------------------------------------------------------------------------------------------------------- */

static char *text_meta(const struct checkpoint *ck, const char *key)
{
    const struct meta *m = checkpoint_meta(ck, key);
    return m && m->type == META_STRING ? mem_strdup(m->as.string) : NULL;
}

static uint64_t read_hash(const struct checkpoint *ck, const char *key)
{
    const struct meta *m = checkpoint_meta(ck, key);
    return m && m->type == META_STRING ? strtoull(m->as.string, NULL, 16) : 0;
}

static void read_notes(struct voice_notes *n, const struct checkpoint *ck)
{
    const struct meta *seconds = checkpoint_meta(ck, "utter.voice.source_seconds");
    n->name = text_meta(ck, "general.name");
    n->license = text_meta(ck, "general.license");
    n->transcript = text_meta(ck, "utter.voice.transcript");
    n->consent = text_meta(ck, "utter.voice.consent");
    n->source = text_meta(ck, "utter.voice.source");
    n->source_hash = read_hash(ck, "utter.voice.source_hash");
    n->networks = read_hash(ck, "utter.voice.networks");
    if (seconds && seconds->type == META_FLOAT && seconds->as.f > 0) n->source_s = seconds->as.f;
}

static utter_status read_clip(struct voice *v, const struct checkpoint *ck, struct error *e)
{
    const struct tensor *t = checkpoint_find(ck, "clip");
    if (!t) return UTTER_OK;
    const size_t n = tensor_count(t);
    if (t->type != DTYPE_I16 || t->n_dims != 1 || n < VOICE_RATE || n > (size_t)MAX_CLIP_SECONDS * VOICE_RATE)
        return error_set(e, UTTER_VOICE_UNUSABLE, "%s: tensor clip: expected 1 to %d s of i16 samples, found %zu of %s",
                         checkpoint_path(ck), MAX_CLIP_SECONDS, n, dtype_name(t->type));
    if (!(v->clip = mem_alloc(n * sizeof *v->clip)))
        return error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory for its clip", checkpoint_path(ck));
    tensor_read_f32(t, 0, n, v->clip);
    for (size_t i = 0; i < n; i++) v->clip[i] /= 32767;
    v->n_clip = n;
    return UTTER_OK;
}

static utter_status read_voice_file(struct voice *v, const struct checkpoint *ck, struct error *e)
{
    const char *path = checkpoint_path(ck);
    const struct meta *version = checkpoint_meta(ck, "utter.voice.version"),
                      *family = checkpoint_meta(ck, "utter.voice.family");
    if (version->type != META_UINT || version->as.u != VOICE_FILE_VERSION)
        return error_set(e, UTTER_VOICE_UNUSABLE, "%s: a voice file of another version; this program reads version %d",
                         path, VOICE_FILE_VERSION);
    if (!family || family->type != META_STRING || strcmp(family->as.string, "chatterbox") != 0)
        return error_set(e, UTTER_VOICE_UNUSABLE, "%s: a voice for %.40s models; this program's are chatterbox", path,
                         family && family->type == META_STRING ? family->as.string : "unknown");
    utter_status status = UTTER_OK;
    bool any = false;
    v->fits_any = conds_present(ck, "any");
    for (int r = 0; r < VOICE_N_RULES && status == UTTER_OK; r++) {
        const char *prefix = v->fits_any ? "any" : voice_rules_name((enum voice_rules)r);
        if ((v->fits_any && r > 0) || !conds_present(ck, prefix)) continue;
        status = conds_read(&v->conds[r], ck, prefix, e);
        any = true;
    }
    if (status == UTTER_OK) status = read_clip(v, ck, e);
    if (status == UTTER_OK && !any && !v->clip)
        status = error_set(e, UTTER_VOICE_UNUSABLE, "%s: a voice file without a voice in it", path);
    if (status == UTTER_OK) read_notes(&v->notes, ck);
    return status;
}

/* A model's or a conds.pt's. */
static utter_status read_built_in(struct voice *v, const struct checkpoint *ck, struct error *e)
{
    const char *variant = checkpoint_variant(ck);
    if (!conds_present(ck, "conds"))
        return error_set(e, UTTER_VOICE_UNUSABLE,
                         "%s: there is no voice in this file (a recording is given with --ref-audio)",
                         checkpoint_path(ck));
    v->fits_any = !strcmp(variant, "none");
    v->notes.name = text_meta(ck, "utter.voice");
    /* What no recording can be made again for is tied to its own model. */
    if (!v->fits_any && !checkpoint_can_clone(ck)) v->notes.networks = listeners_fingerprint(ck);
    return conds_read(&v->conds[v->fits_any ? 0 : (int)voice_rules_of(variant)], ck, "conds", e);
}

utter_status voice_read(struct voice *out, const struct checkpoint *ck, struct error *e)
{
    struct voice v = {0};
    const utter_status status =
        checkpoint_meta(ck, "utter.voice.version") ? read_voice_file(&v, ck, e) : read_built_in(&v, ck, e);
    if (status == UTTER_OK)
        *out = v;
    else
        voice_free(&v);
    return status;
}

/* ---- folders of .npy files ---------------------------------------------------------------------------------------------------- */

static const struct {
    const char *leaf, *file;
} npy_files[] = {{"t3.speaker_emb", "speaker_emb.npy"},
                 {"t3.cond_prompt_speech_tokens", "cond_prompt_speech_tokens.npy"},
                 {"gen.prompt_token", "prompt_token.npy"},
                 {"gen.prompt_feat", "prompt_feat.npy"},
                 {"gen.embedding", "embedding.npy"}};
enum { N_NPY = sizeof npy_files / sizeof *npy_files };

static const struct tensor *find_npy(void *from, const char *leaf)
{
    struct npy *open = from;
    for (int i = 0; i < N_NPY; i++)
        if (!strcmp(leaf, npy_files[i].leaf)) return &open[i].tensor;
    return NULL;
}

static bool path_in(char path[static 4096], const char *folder, const char *file)
{
    return snprintf(path, 4096, "%s/%s", folder, file) < 4096;
}

static utter_status read_npy_folder(struct voice *v, const char *folder, struct error *e)
{
    struct npy open[N_NPY];
    char paths[N_NPY][4096];
    memset(open, 0, sizeof open);
    utter_status status = UTTER_OK;
    for (int i = 0; i < N_NPY && status == UTTER_OK; i++)
        status = path_in(paths[i], folder, npy_files[i].file)
                     ? npy_open(&open[i], paths[i], e)
                     : error_set(e, UTTER_INPUT_UNREADABLE, "%s: the path is too long", folder);
    if (status == UTTER_OK) status = conds_read_from(&v->conds[0], find_npy, open, folder, e);
    v->fits_any = true;
    for (int i = 0; i < N_NPY; i++) npy_close(&open[i]);
    return status;
}

utter_status voice_save_npy(const struct conds *c, const char *folder, struct error *e)
{
    struct named_tensor t[N_CONDS_TENSORS];
    char path[4096];
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return error_set(e, UTTER_OUTPUT_UNWRITABLE, "%s: %s", folder, strerror(errno));
    conds_tensors(t, c, "npy");
    utter_status status = UTTER_OK;
    for (int i = 0; i < N_CONDS_TENSORS && status == UTTER_OK; i++)
        for (int k = 0; k < N_NPY && status == UTTER_OK; k++) {
            if (strcmp(t[i].name + 4, npy_files[k].leaf) != 0) continue;
            status = path_in(path, folder, npy_files[k].file)
                         ? npy_write(path, &t[i].tensor, e)
                         : error_set(e, UTTER_OUTPUT_UNWRITABLE, "%s: the path is too long", folder);
        }
    return status;
}

/* The reader of models has said what the file is not; a voice may be meant otherwise. */
static utter_status refuse_file(struct error *e)
{
    const struct error reason = *e;
    return error_set(e, UTTER_VOICE_UNUSABLE, "%.400s (a recording is given with --ref-audio)", reason.text);
}

/* ---- any of them ---------------------------------------------------------------------------------------------------------------- */

utter_status voice_load(struct voice *out, const char *path, struct error *e)
{
    struct voice v = {0};
    struct checkpoint *ck = NULL;
    struct stat st;
    char inside[4096];
    if (stat(path, &st) != 0) return error_set(e, UTTER_INPUT_UNREADABLE, "%s: %s", path, strerror(errno));
    const bool folder = S_ISDIR(st.st_mode);
    utter_status status;
    if (folder && path_in(inside, path, "speaker_emb.npy") && stat(inside, &st) == 0) {
        status = read_npy_folder(&v, path, e);
    } else {
        if (folder && path_in(inside, path, "conds.pt") && stat(inside, &st) == 0) path = inside;
        status = checkpoint_open(&ck, path, NULL, NULL, e);
        if (status == UTTER_MODEL_NOT_FOUND || status == UTTER_MODEL_DAMAGED) status = refuse_file(e);
        if (status == UTTER_OK) status = voice_read(&v, ck, e);
        checkpoint_close(&ck);
    }
    if (status == UTTER_OK)
        *out = v;
    else
        voice_free(&v);
    return status;
}

/* ---- into a model ---------------------------------------------------------------------------------------------------------------- */

static utter_status copy_meta(struct gguf_writer *w, const struct checkpoint *ck, const struct meta *m,
                              const char *name, struct error *e)
{
    if (!strcmp(m->key, "utter.voice") && m->type == META_STRING)
        write_text(w, m->key, name);
    else if (m->type == META_STRING)
        gguf_write_string(w, m->key, m->as.string, strlen(m->as.string));
    else if (m->type == META_UINT && m->as.u <= UINT32_MAX)
        gguf_write_uint(w, m->key, (uint32_t)m->as.u);
    else if (m->type == META_FLOAT)
        gguf_write_float(w, m->key, (float)m->as.f);
    else if (m->type == META_BOOL)
        gguf_write_bool(w, m->key, m->as.b);
    else if (m->type == META_STRINGS)
        gguf_write_strings(w, m->key, m->as.strings, m->count);
    else if (m->type == META_INTS) {
        int32_t *ints = mem_alloc(m->count * sizeof *ints + 1);
        if (!ints) return error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory for %s", checkpoint_path(ck), m->key);
        for (size_t i = 0; i < m->count; i++) ints[i] = (int32_t)m->as.ints[i];
        gguf_write_ints(w, m->key, ints, m->count);
        mem_free(ints);
    } else
        return error_set(e, UTTER_UNSUPPORTED, "%s: metadata %s is of a kind that cannot be copied",
                         checkpoint_path(ck), m->key);
    return UTTER_OK;
}

utter_status voice_bake(const struct checkpoint *model, const struct conds *c, const char *name, const char *path,
                        struct error *e)
{
    struct gguf_writer *w = NULL;
    struct named_tensor voice[N_CONDS_TENSORS];
    size_t n_bytes;
    bool named = false;
    if (strcmp(checkpoint_format(model), "gguf (utter)") != 0)
        return error_set(e, UTTER_UNSUPPORTED,
                         "%s: a %s; a voice is put into a GGUF file of ours: make one with utter convert",
                         checkpoint_path(model), checkpoint_format(model));
    conds_tensors(voice, c, "conds");
    utter_status status = gguf_writer_create(&w, path, e);
    for (size_t i = 0; status == UTTER_OK && i < checkpoint_metas(model); i++) {
        const struct meta *m = checkpoint_meta_at(model, i);
        if (!strcmp(m->key, "general.alignment")) continue; /* the writer's own */
        named = named || !strcmp(m->key, "utter.voice");
        status = copy_meta(w, model, m, name, e);
    }
    if (status == UTTER_OK && !named) write_text(w, "utter.voice", name);
    for (int pass = 0; pass < 2 && status == UTTER_OK; pass++) { /* every declaration, then every tensor's bytes */
        for (size_t i = 0; i < checkpoint_tensors(model); i++) {
            const struct tensor *t = checkpoint_tensor(model, i);
            if (!strncmp(t->name, "conds.", 6)) continue;
            if (pass == 0)
                gguf_declare(w, t);
            else
                gguf_write_data(w, t->data, t->n_bytes);
        }
        for (int i = 0; i < N_CONDS_TENSORS; i++) {
            if (pass == 0)
                gguf_declare(w, &voice[i].tensor);
            else
                gguf_write_data(w, voice[i].tensor.data, voice[i].tensor.n_bytes);
        }
    }
    if (status == UTTER_OK) status = gguf_finish(w, &n_bytes);
    gguf_writer_destroy(&w);
    return status;
}
