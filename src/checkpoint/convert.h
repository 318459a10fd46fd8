/*
 * convert.h - any checkpoint into one file of our own: a GGUF with canonical names, weight norm folded, layers in
 * [k][out][in], weights in a chosen type, the tokenizer and the built-in voice inside (docs/models.md).
 *
 * What must stay precise stays as the source has it: vectors (norms, biases, Snake's alpha), batch norms, filter banks,
 * the voice encoder, CAMPPlus, the S3 tokenizer, the F0 predictor, the built-in voice. Token and position
 * tables have a type of their own, and layers at the networks' edges are never coarser than f16. Left out: what inference never reads (wte, text_head, counters).
 */
#ifndef CHECKPOINT_CONVERT_H
#define CHECKPOINT_CONVERT_H

#include "base/cancel.h"
#include "checkpoint/checkpoint.h"

/* Called before each piece of work; done and total in bytes of the output. */
typedef void convert_progress_fn(void *arg, size_t done, size_t total, const char *tensor);

struct convert_options {
    enum dtype t3, flow, vocoder; /* f32, f16, bf16, q8_0 or q4_0 */
    enum dtype embedding;         /* of token and position tables, unless their network is f32 */
    bool no_clone;                /* leaves out VE, CAMPPlus and the S3 tokenizer; utter.can_clone becomes false */
    const char *name, *license, *voice; /* metadata; NULL keeps the source's, or none */
    const char *const *languages;       /* codes as "en" */
    size_t n_languages;
    convert_progress_fn *progress; /* optional */
    void *progress_arg;
    struct cancel *cancel; /* optional; PATH stays as it was */
};

/* The types that --type T stands for: T for T3; f16 at least for tables and vocoder, q8_0 at least for the flow. */
void convert_types(struct convert_options *o, enum dtype t);

struct convert_report {
    size_t n_tensors, n_bytes; /* of the whole file */
    size_t tensors_by_type[DTYPE_COUNT], bytes_by_type[DTYPE_COUNT];
    size_t n_left_out;
};

utter_status convert_checkpoint(const struct checkpoint *ck, const char *path, const struct convert_options *o,
                                struct convert_report *report, struct error *e);

#endif
