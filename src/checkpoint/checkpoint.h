/*
 * checkpoint.h - one model on disk, whatever its format, seen as named tensors and metadata.
 *
 * Opens a published folder (safetensors, torch .pt, tokenizer files), a single safetensors or .pt file, the ggml port's
 * GGUF pair (either file: the partner is found beside it), or our own single GGUF. Files are mapped, not read. Names are
 * canonical: the published tensor's own name with the network in front -
 *     t3.tfmr.h.0.ln_1.weight      t3_*.safetensors
 *     s3gen.flow.encoder_proj.bias s3gen*.safetensors / s3gen.pt
 *     ve.lstm.weight_ih_l0         ve.safetensors / ve.pt
 *     conds.t3.speaker_emb         conds.pt
 * - whatever the file calls them (the port's names are translated). A tensor's `layout` says whether its matrices are in
 * the published order or in [k, out, in].
 *
 * Nothing in a file is trusted: sizes and offsets are checked before use, and a damaged file gives a message that names
 * the file and the tensor. Immutable after opening; any thread may read.
 */
#ifndef CHECKPOINT_CHECKPOINT_H
#define CHECKPOINT_CHECKPOINT_H

#include "base/cancel.h"
#include "base/error.h"
#include "base/tensor.h"

struct checkpoint;

/* s3gen_path: the second file when it is not beside the first; may be NULL, as cancel may. */
utter_status checkpoint_open(struct checkpoint **out, const char *path, const char *s3gen_path, struct cancel *cancel,
                             struct error *e);
/* The same from one file's bytes, which stay the caller's and must outlive the checkpoint. `name` stands for the path. */
utter_status checkpoint_open_memory(struct checkpoint **out, const void *data, size_t n_bytes, const char *name,
                                    struct error *e);
void checkpoint_close(struct checkpoint **ck);

const char *checkpoint_path(const struct checkpoint *ck);   /* as given to checkpoint_open */
const char *checkpoint_format(const struct checkpoint *ck); /* for people: "published folder", "gguf (utter)", ... */

size_t checkpoint_tensors(const struct checkpoint *ck);
const struct tensor *checkpoint_tensor(const struct checkpoint *ck, size_t index);
const struct tensor *checkpoint_find(const struct checkpoint *ck, const char *name); /* NULL when absent; O(log n) */

/* For messages. The file a tensor of this checkpoint lies in; the file that should hold a missing tensor; and what may be
 * wrong when something is missing (NULL when nothing is known). */
const char *checkpoint_tensor_file(const struct checkpoint *ck, const struct tensor *t);
/* True when these bytes are a mapped file's own, not a copy that a reader made. */
bool checkpoint_maps(const struct checkpoint *ck, const void *data, size_t n_bytes);
const char *checkpoint_file_of(const struct checkpoint *ck, const char *name);
const char *checkpoint_hint(const struct checkpoint *ck);

/* Metadata of GGUF files and safetensors' __metadata__; empty for others. */
enum meta_type { META_UINT, META_INT, META_FLOAT, META_BOOL, META_STRING, META_STRINGS, META_INTS, META_FLOATS };
struct meta {
    const char *key;
    enum meta_type type;
    size_t count; /* elements of an array, else 1 */
    union {
        uint64_t u;
        int64_t i;
        double f;
        bool b;
        const char *string; /* NUL-terminated copy; embedded NULs are refused */
        const char *const *strings;
        const int64_t *ints;
        const double *floats;
    } as;
};
size_t checkpoint_metas(const struct checkpoint *ck);
const struct meta *checkpoint_meta_at(const struct checkpoint *ck, size_t index);
const struct meta *checkpoint_meta(const struct checkpoint *ck, const char *key); /* NULL when absent */

/* Which published model has these shapes: "turbo", "nano", "english", "multilingual"; "small": on GPT-2 as Turbo, but of
 * another width, as the built-in voices; "none" without T3. */
const char *checkpoint_variant(const struct checkpoint *ck);
/* Whether the networks that listen to a reference are there, and no metadata says that they are of no use. */
bool checkpoint_can_clone(const struct checkpoint *ck);

/* A side file's bytes: tokenizer files of a published folder ("vocab.json", "merges.txt", "added_tokens.json",
 * "tokenizer.json", ...), mapped; NULL when absent. GGUF files carry the tokenizer in metadata (tokenizer.ggml.*). */
const char *checkpoint_side_file(const struct checkpoint *ck, const char *name, size_t *n_bytes);

#endif
