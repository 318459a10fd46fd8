#include "checkpoint/names.h"

#include <string.h>

static bool starts(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool ends(const char *text, const char *suffix)
{
    const size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}

/* A tensor that begins so belongs to this network, and so does the rest of its file. */
static const struct {
    const char *begins, *network;
} marks[] = {
    {"tfmr.", "t3."},
    {"speech_head.", "t3."},
    {"flow.", "s3gen."},
    {"mel2wav.", "s3gen."},
    {"tokenizer.encoder.", "s3gen."},
    {"speaker_encoder.", "s3gen."},
    {"lstm.weight_ih_l0", "ve."},
    {"t3.speaker_emb", "conds."},
    {"gen.prompt_token", "conds."},
    {"gen.embedding", "conds."},
};

static const char *network_of(const struct checkpoint *ck, size_t first)
{
    for (size_t i = first; i < ck->n_entries; i++)
        for (size_t m = 0; m < sizeof marks / sizeof *marks; m++)
            if (starts(ck->entries[i].tensor.name, marks[m].begins)) return marks[m].network;
    return "";
}

utter_status names_add_network(struct checkpoint *ck, size_t first, struct error *e)
{
    const char *network = network_of(ck, first);
    for (size_t i = first; *network && i < ck->n_entries; i++) {
        struct tensor *t = &ck->entries[i].tensor;
        if (!(t->name = table_format(ck, "%s%s", network, t->name))) return table_out_of_memory(ck, e);
    }
    return UTTER_OK;
}

enum layer_kind names_layer_kind(const char *name, int n_dims)
{
    static const char *const gpt2[] = {".attn.c_attn.weight", ".attn.c_proj.weight", ".mlp.c_fc.weight",
                                       ".mlp.c_proj.weight"};
    if (n_dims == 2 && starts(name, "t3.tfmr.h."))
        for (size_t i = 0; i < sizeof gpt2 / sizeof *gpt2; i++)
            if (ends(name, gpt2[i])) return LAYER_GPT2;
    const bool depthwise = ends(name, ".fsmn_block.weight");
    if (n_dims == 3 && starts(name, "s3gen.") && ends(name, ".weight") && !depthwise)
        return starts(name, "s3gen.mel2wav.ups.") ? LAYER_CONV_TRANSPOSE : LAYER_CONV1D;
    return LAYER_OTHER;
}

void names_mark_layouts(struct checkpoint *ck, size_t first)
{
    for (size_t i = first; i < ck->n_entries; i++) {
        struct tensor *t = &ck->entries[i].tensor;
        if (names_layer_kind(t->name, t->n_dims) != LAYER_OTHER) t->layout = LAYOUT_TAPS_OUT_IN;
    }
}
