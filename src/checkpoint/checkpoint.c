#include "checkpoint/checkpoint.h"

#include <ctype.h>
#include <dirent.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "checkpoint/names.h"
#include "checkpoint/port.h"
#include "checkpoint/readers.h"

/* ---- one file ---- */

static utter_status refuse_unknown(const struct table_file *f, struct error *e)
{
    static const char lfs[] = "version https://git-lfs";
    const size_t n = f->map.n_bytes < 256 ? f->map.n_bytes : 256;
    size_t printable = 0;
    while (printable < n && (isprint(f->map.data[printable]) || isspace(f->map.data[printable]))) printable++;
    if (n >= sizeof lfs - 1 && memcmp(f->map.data, lfs, sizeof lfs - 1) == 0)
        return error_set(e, UTTER_MODEL_DAMAGED,
                         "%s: is a git-lfs pointer of %zu bytes, not the model: fetch the file itself (git lfs pull)",
                         f->path, f->map.n_bytes);
    if (printable == n)
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: is %s, not a model", f->path,
                         f->map.data[0] == '<' ? "a web page" : "text");
    return error_set(e, UTTER_MODEL_DAMAGED, "%s: is no safetensors, torch (zip) or GGUF file", f->path);
}

static bool begins_with(const struct table_file *f, const char *magic)
{
    return f->map.n_bytes >= strlen(magic) && memcmp(f->map.data, magic, strlen(magic)) == 0;
}

/* Our own file has canonical names; the port's are translated; others keep theirs. */
static utter_status read_gguf(struct checkpoint *ck, int file, const char **format, struct error *e)
{
    const size_t first = ck->n_entries;
    const utter_status s = gguf_read(ck, file, e);
    if (s != UTTER_OK) return s;
    const struct meta *version = checkpoint_meta(ck, "utter.format_version");
    *format = "gguf";
    if (version) {
        *format = "gguf (utter)";
        if (version->type != META_UINT || version->as.u != UTTER_GGUF_VERSION)
            return error_set(e, UTTER_MODEL_DAMAGED, "%s: utter.format_version: this program reads version %d",
                             ck->files[file].path, UTTER_GGUF_VERSION);
        names_mark_layouts(ck, first);
        return UTTER_OK;
    }
    if (port_part(ck) == PORT_NONE) return UTTER_OK;
    *format = "gguf (ggml port)";
    return port_translate(ck, first, e);
}

/* Reads one mapped file into the table, under canonical names; *format says what it was. */
static utter_status read_file(struct checkpoint *ck, int file, const char **format, struct error *e)
{
    const struct table_file *f = &ck->files[file];
    const size_t first = ck->n_entries;
    utter_status s;
    if (begins_with(f, "GGUF")) return read_gguf(ck, file, format, e);
    if (begins_with(f, "PK")) {
        *format = "torch";
        s = torch_read(ck, file, e);
    } else if (f->map.n_bytes > 8 && f->map.data[8] == '{') {
        *format = "safetensors";
        s = safetensors_read(ck, file, e);
    } else {
        return refuse_unknown(f, e);
    }
    return s == UTTER_OK ? names_add_network(ck, first, e) : s;
}

static utter_status open_file(struct checkpoint *ck, const char *path, const char **format, struct error *e)
{
    int file;
    const utter_status s = table_map_file(ck, path, &file, e);
    return s == UTTER_OK ? read_file(ck, file, format, e) : s;
}

/* ---- a published folder ---- */

/* Which S3Gen belongs to which T3, best first (specification section 1.1); the first row that matches decides. */
static const struct {
    const char *t3, *s3gen[4];
} families[] = {
    {"t3_turbo_v1.safetensors", {"s3gen_meanflow.safetensors", "s3gen.safetensors", "s3gen.pt"}},
    {"t3_nano_v1.safetensors", {"s3gen_meanflow.safetensors", "s3gen.safetensors", "s3gen.pt"}},
    {"t3_mtl23ls_v2.safetensors", {"s3gen.pt", "s3gen.safetensors", "s3gen_v3.pt"}},
    {"t3_mtl23ls_v3.safetensors", {"s3gen.pt", "s3gen_v3.pt", "s3gen.safetensors"}},
    {"t3_cfg.safetensors", {"s3gen.safetensors", "s3gen.pt", "s3gen_v3.pt"}},
    {"t3_*.safetensors", {"s3gen_v3.pt", "s3gen.pt", "s3gen.safetensors", "s3gen_meanflow.safetensors"}},
    {NULL, {"s3gen_meanflow.safetensors", "s3gen.safetensors", "s3gen.pt", "s3gen_v3.pt"}}, /* no T3 at all */
};
static const char *const side_files[] = {
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "grapheme_mtl_merged_expanded_v1.json",
    "Cangjie5_TC.json",
};

struct folder {
    const char *path;
    char name[512]; /* of the file last found */
};

/* The first file of the folder, in alphabetical order, that matches a pattern. */
static bool find_in(struct folder *folder, const char *pattern)
{
    folder->name[0] = 0;
    DIR *dir = opendir(folder->path);
    const struct dirent *d;
    while (dir && (d = readdir(dir)))
        if (fnmatch(pattern, d->d_name, 0) == 0 && (!folder->name[0] || strcmp(d->d_name, folder->name) < 0))
            snprintf(folder->name, sizeof folder->name, "%s", d->d_name);
    if (dir) closedir(dir);
    return folder->name[0] != 0;
}

static const char *path_in(struct checkpoint *ck, const struct folder *folder)
{
    return table_format(ck, "%s%s%s", folder->path, folder->path[strlen(folder->path) - 1] == '/' ? "" : "/",
                        folder->name);
}

/* Opens the first of up to four names that the folder has; none is fine. */
static utter_status open_first(struct checkpoint *ck, struct folder *folder, const char *const *names, size_t n,
                               struct error *e)
{
    for (size_t i = 0; i < n && names[i]; i++) {
        if (!find_in(folder, names[i])) continue;
        const char *path = path_in(ck, folder), *format;
        return path ? open_file(ck, path, &format, e) : table_out_of_memory(ck, e);
    }
    return UTTER_OK;
}

static utter_status open_folder(struct checkpoint *ck, const char *path, const char *s3gen_path, struct error *e)
{
    struct folder folder = {.path = path};
    size_t family = 0;
    while (families[family].t3 && !find_in(&folder, families[family].t3)) family++;
    utter_status s = open_first(ck, &folder, &families[family].t3, 1, e);
    const char *format;
    if (s == UTTER_OK)
        s = s3gen_path ? open_file(ck, s3gen_path, &format, e) : open_first(ck, &folder, families[family].s3gen, 4, e);
    if (s == UTTER_OK) s = open_first(ck, &folder, (const char *const[]){"ve.safetensors", "ve.pt"}, 2, e);
    if (s == UTTER_OK) s = open_first(ck, &folder, (const char *const[]){"conds.pt"}, 1, e);
    for (size_t i = 0; i < sizeof side_files / sizeof *side_files && s == UTTER_OK; i++) {
        int file;
        if (!find_in(&folder, side_files[i])) continue;
        const char *side = path_in(ck, &folder);
        s = side ? table_map_file(ck, side, &file, e) : table_out_of_memory(ck, e);
    }
    if (s == UTTER_OK && ck->n_files == 0)
        return error_set(e, UTTER_MODEL_NOT_FOUND,
                         "%s: the folder holds no model: looked for t3_*.safetensors, s3gen*.safetensors, s3gen*.pt, "
                         "ve.safetensors, conds.pt and tokenizer files",
                         path);
    ck->format = "published folder";
    return s;
}

/* ---- files and pairs ---- */

static bool has_network(const struct checkpoint *ck, int file, const char *prefix)
{
    for (size_t i = 0; i < ck->n_entries; i++)
        if (ck->entries[i].file == file && strncmp(ck->entries[i].tensor.name, prefix, strlen(prefix)) == 0)
            return true;
    return false;
}

static bool has_tensor(const struct checkpoint *ck, const char *part)
{
    for (size_t i = 0; i < ck->n_entries; i++)
        if (strstr(ck->entries[i].tensor.name, part)) return true;
    return false;
}

/* Turbo and Nano were distilled for the mean-flow decoder; the other models need the standard one. */
static utter_status check_pair(const struct checkpoint *ck, const char *second, struct error *e)
{
    const int file = ck->n_files - 1;
    if (!has_network(ck, file, "s3gen.") && !has_network(ck, file, "t3."))
        return error_set(e, UTTER_MODEL_DAMAGED,
                         "%s: expected the other half of %s, found tensors of neither T3 nor S3Gen", second, ck->path);
    const bool gpt2 = has_tensor(ck, "t3.tfmr.h."), llama = has_tensor(ck, "t3.tfmr.layers.");
    const bool s3gen = has_tensor(ck, "s3gen.flow."), mean_flow = has_tensor(ck, ".time_embed_mixer.");
    if (s3gen && ((gpt2 && !mean_flow) || (llama && mean_flow)))
        return error_set(e, UTTER_MODEL_DAMAGED,
                         "%s and %s do not belong together: expected the %s S3Gen, found the %s one", ck->path, second,
                         gpt2 ? "mean-flow" : "standard", gpt2 ? "standard" : "mean-flow");
    return UTTER_OK;
}

static utter_status open_files(struct checkpoint *ck, const char *path, const char *s3gen_path, struct error *e)
{
    const char *second = s3gen_path, *format;
    utter_status s = open_file(ck, path, &ck->format, e);
    const enum port_part part = s == UTTER_OK ? port_part(ck) : PORT_NONE;
    if (s == UTTER_OK && !second && part != PORT_NONE) {
        s = port_find_partner(ck, part, &second, e);
        ck->hint = part == PORT_T3
                       ? "no S3Gen file (general.architecture chatterbox-s3gen) lies beside it; name it with --s3gen"
                       : "no T3 file (general.architecture chatterbox) lies beside it; name that one as the model";
    } else if (s == UTTER_OK && !second && strncmp(ck->format, "gguf", 4) != 0)
        ck->hint = "a single published file holds one part; name its folder instead";
    if (s != UTTER_OK || !second) return s;
    ck->hint = NULL;
    s = open_file(ck, second, &format, e);
    return s == UTTER_OK ? check_pair(ck, second, e) : s;
}

/* ---- what it is ---- */

const char *checkpoint_variant(const struct checkpoint *ck)
{
    const struct tensor *wpe = checkpoint_find(ck, "t3.tfmr.wpe.weight"),
                        *text = checkpoint_find(ck, "t3.text_emb.weight");
    if (wpe) {
        const int64_t width = wpe->n_dims == 2 ? wpe->shape[1] : 0;
        return width == 1024 ? "turbo" : width == 768 ? "nano" : "small";
    }
    if (!text || !checkpoint_find(ck, "t3.tfmr.norm.weight")) return "none";
    return text->n_dims == 2 && text->shape[0] == 704 ? "english" : "multilingual";
}

bool checkpoint_can_clone(const struct checkpoint *ck)
{
    const struct meta *m = checkpoint_meta(ck, "utter.can_clone");
    if (m && m->type == META_BOOL && !m->as.b) return false;
    return checkpoint_find(ck, "ve.lstm.weight_ih_l0") && checkpoint_find(ck, "s3gen.tokenizer.encoder.conv1.weight") &&
           checkpoint_find(ck, "s3gen.speaker_encoder.head.conv1.weight");
}

/* ---- anything ---- */

static struct checkpoint *new_checkpoint(const char *path)
{
    struct checkpoint *ck = mem_calloc(1, sizeof *ck);
    if (ck && !(ck->path = table_text(ck, path, strlen(path)))) checkpoint_close(&ck);
    return ck;
}

/* Hands over a checkpoint that opened, closes one that did not. */
static utter_status hand_over(struct checkpoint **out, struct checkpoint *ck, utter_status s, struct error *e)
{
    if (s == UTTER_OK) s = table_finish(ck, e);
    ck->cancel = NULL;
    if (s == UTTER_OK)
        *out = ck;
    else
        checkpoint_close(&ck);
    return s;
}

utter_status checkpoint_open(struct checkpoint **out, const char *path, const char *s3gen_path, struct cancel *cancel,
                             struct error *e)
{
    *out = NULL;
    struct stat st;
    if (!path[0]) return error_set(e, UTTER_MODEL_NOT_FOUND, "the path of the model is empty");
    struct checkpoint *ck = new_checkpoint(path);
    if (!ck) return error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory to open it", path);
    ck->cancel = cancel;
    const bool is_folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    return hand_over(out, ck, is_folder ? open_folder(ck, path, s3gen_path, e) : open_files(ck, path, s3gen_path, e),
                     e);
}

utter_status checkpoint_open_memory(struct checkpoint **out, const void *data, size_t n_bytes, const char *name,
                                    struct error *e)
{
    *out = NULL;
    int file;
    if (n_bytes == 0) return error_set(e, UTTER_MODEL_DAMAGED, "%s: the file is empty", name);
    struct checkpoint *ck = new_checkpoint(name);
    if (!ck) return error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory to open it", name);
    utter_status s = table_lend_bytes(ck, name, data, n_bytes, &file, e);
    if (s == UTTER_OK) s = read_file(ck, file, &ck->format, e);
    return hand_over(out, ck, s, e);
}
