#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "chatterbox/conds.h"
#include "checkpoint/bind.h"
#include "checkpoint/convert.h"
#include "text/tokenizer.h"

static void read_ends(const struct tensor *t)
{
    float values[32];
    const size_t block = (size_t)dtype_block(t->type), n = tensor_count(t);
    tensor_read_f32(t, 0, block, values);
    tensor_read_f32(t, n - block, block, values);
}

/* Layers as networks ask for them, by the shapes the file claims. */
static void fold(const struct checkpoint *ck, const struct tensor *t)
{
    static const char *const suffixes[] = {".weight", ".parametrizations.weight.original1", ".weight_v"};
    struct binder b = {.checkpoint = ck};
    const size_t n = strlen(t->name);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        const size_t m = strlen(suffixes[i]);
        if (n <= m || strcmp(t->name + n - m, suffixes[i]) != 0 || tensor_count(t) > 1 << 16) continue;
        int64_t shape[TENSOR_MAX_DIMS];
        for (int k = 0; k < t->n_dims; k++) shape[k] = bind_dim(&b, k, "%.*s.weight", (int)(n - m), t->name);
        mem_free(bind_values(&b, t->n_dims, shape, "%.*s", (int)(n - m), t->name));
    }
}

/* What converts must open again, with as many layers as were written. */
static void convert(const struct checkpoint *ck)
{
    char path[64];
    struct convert_report report;
    struct error e = {""};
    struct convert_options o = {0};
    struct checkpoint *again;
    convert_types(&o, checkpoint_tensors(ck) % 2 ? DTYPE_Q8_0 : DTYPE_Q4_0);
    snprintf(path, sizeof path, "/dev/shm/utter-fuzz-%d.gguf", (int)getpid());
    if (convert_checkpoint(ck, path, &o, &report, &e) != UTTER_OK) return;
    if (checkpoint_open(&again, path, NULL, NULL, &e) != UTTER_OK || checkpoint_tensors(again) != report.n_tensors) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
    checkpoint_close(&again);
    unlink(path);
}

void fuzz_model(const uint8_t *data, size_t n)
{
    struct checkpoint *ck;
    struct error e = {""};
    if (checkpoint_open_memory(&ck, data, n, "fuzz", &e) != UTTER_OK) {
        if (n > 0 && !strstr(e.text, "fuzz")) abort(); /* every message names the file */
        return;
    }
    for (size_t i = 0; i < checkpoint_tensors(ck); i++) {
        read_ends(checkpoint_tensor(ck, i));
        fold(ck, checkpoint_tensor(ck, i));
        if (checkpoint_find(ck, checkpoint_tensor(ck, i)->name) != checkpoint_tensor(ck, i)) abort();
    }
    convert(ck);
    struct tokenizer *t = NULL;
    struct conds c = {0};
    if (tokenizer_load(&t, ck, NULL, &e) == UTTER_OK) tokenizer_free(&t);
    if (conds_read(&c, ck, "conds", &e) == UTTER_OK) conds_free(&c);
    checkpoint_close(&ck);
}
