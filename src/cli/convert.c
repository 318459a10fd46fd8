/*
 * convert.c - `utter convert`: any checkpoint into one GGUF file of our own.
 */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/convert.h"

struct settings {
    const char *output, *s3gen, *type, *t3_type, *s3gen_type, *flow_type, *vocoder_type, *embedding_type;
    const char *name, *license, *voice, *languages;
    bool clone;
};

#define TYPES "f32|f16|bf16|q8_0|q4_0"

static const struct option options[] = {
    {"-o, --output", "FILE", OPTION_TEXT, offsetof(struct settings, output), .help = "The GGUF file to write."},
    {"--s3gen", "FILE", OPTION_TEXT, offsetof(struct settings, s3gen),
     .help = "The second file of a GGUF pair, when it is not beside the first."},
    {"--type", TYPES, OPTION_CHOICE, offsetof(struct settings, type),
     .help =
         "Type of the weights; f16. With q8_0 and q4_0 the vocoder stays f16, with q4_0 the flow stays q8_0. What must "
         "stay precise stays as it is."},
    {"--t3-type", TYPES, OPTION_CHOICE, offsetof(struct settings, t3_type), .help = "Type of T3 alone."},
    {"--s3gen-type", TYPES, OPTION_CHOICE, offsetof(struct settings, s3gen_type), .help = "Type of flow and vocoder."},
    {"--flow-type", TYPES, OPTION_CHOICE, offsetof(struct settings, flow_type), .help = "Type of the flow alone."},
    {"--vocoder-type", TYPES, OPTION_CHOICE, offsetof(struct settings, vocoder_type),
     .help = "Type of the vocoder alone."},
    {"--embedding-type", TYPES, OPTION_CHOICE, offsetof(struct settings, embedding_type),
     .help = "Type of the token and position tables; f16."},
    {"--clone", NULL, OPTION_SWITCH, offsetof(struct settings, clone),
     .help = "Keep the networks that listen to a reference voice (default); --no-clone leaves them out."},
    {"--name", "TEXT", OPTION_TEXT, offsetof(struct settings, name), .help = "Metadata: the model's name."},
    {"--voice", "TEXT", OPTION_TEXT, offsetof(struct settings, voice), .help = "Metadata: the built-in voice's name."},
    {"--languages", "LIST", OPTION_TEXT, offsetof(struct settings, languages), .help = "Metadata: codes as en,de."},
    {"--license", "TEXT", OPTION_TEXT, offsetof(struct settings, license),
     .help = "Metadata: the licence of the weights."},
    {0}};

static enum dtype type_named(const char *name)
{
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (strcmp(dtype_name((enum dtype)t), name) == 0) return (enum dtype)t;
    return DTYPE_F16; /* not reached: OPTION_CHOICE allows known names only */
}

static void choose_types(struct convert_options *o, const struct settings *s)
{
    convert_types(o, type_named(s->type));
    if (s->t3_type) o->t3 = type_named(s->t3_type);
    if (s->s3gen_type) o->flow = o->vocoder = type_named(s->s3gen_type);
    if (s->flow_type) o->flow = type_named(s->flow_type);
    if (s->embedding_type) o->embedding = type_named(s->embedding_type);
    if (s->vocoder_type) o->vocoder = type_named(s->vocoder_type);
}

/* Cuts "en,de" in place. */
enum { MAX_LANGUAGES = 64 };
static size_t split_languages(char *list, const char *codes[MAX_LANGUAGES])
{
    size_t n = 0;
    char *rest = NULL;
    for (char *code = strtok_r(list, ", ", &rest); code && n < MAX_LANGUAGES; code = strtok_r(NULL, ", ", &rest))
        codes[n++] = code;
    return n;
}

static void show_progress(void *arg, size_t done, size_t total, const char *tensor)
{
    (void)arg;
    progress_show((double)done / (double)total, "%s", tensor);
}

static void print_report(const struct convert_report *r, const char *path)
{
    report_note("%-6s%9s%12s", "type", "tensors", "MB");
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (r->tensors_by_type[t])
            report_note("%-6s%9zu%12.2f", dtype_name((enum dtype)t), r->tensors_by_type[t],
                        (double)r->bytes_by_type[t] / 1e6);
    report_note("%s: %zu tensors, %.2f MB; %zu source tensors left out or merged", path, r->n_tensors,
                (double)r->n_bytes / 1e6, r->n_left_out);
}

static int run(const struct command *self, int argc, char **argv)
{
    struct settings s = {.type = "f16", .clone = true};
    struct words rest;
    int code;
    if (!options_parse(self, &s, &rest, argc, argv, &code)) return code;
    if (rest.count != 1 || !s.output) {
        report_error("convert takes one model and -o FILE; see utter convert --help");
        return EXIT_USAGE;
    }
    if (!output_allowed(s.output, rest.word[0])) return EXIT_USAGE;
    char list[512];
    const char *codes[MAX_LANGUAGES];
    struct cancel cancel = {0};
    cancel_attach_flag(&cancel, interrupt_flag());
    struct convert_options o = {.no_clone = !s.clone,
                                .name = s.name,
                                .license = s.license,
                                .voice = s.voice,
                                .languages = codes,
                                .progress = show_progress,
                                .cancel = &cancel};
    choose_types(&o, &s);
    if (s.languages) {
        snprintf(list, sizeof list, "%s", s.languages);
        o.n_languages = split_languages(list, codes);
    }
    struct checkpoint *ck;
    struct convert_report report;
    struct error error;
    utter_status status = checkpoint_open(&ck, rest.word[0], s.s3gen, NULL, &error);
    if (status == UTTER_OK) status = convert_checkpoint(ck, s.output, &o, &report, &error);
    progress_clear();
    checkpoint_close(&ck);
    if (status == UTTER_OK)
        print_report(&report, s.output);
    else
        report_error("%s", error.text);
    return exit_code_of(status);
}

const struct command command_convert = {
    .name = "convert",
    .summary = "turn a model into one GGUF file, optionally smaller",
    .synopsis = "MODEL -o FILE.gguf",
    .description =
        "Reads a published folder, a single safetensors or torch file, the ggml port's pair of GGUF files, or a file "
        "of our own, and writes one file that holds weights, tokenizer and built-in voice. Norms, biases, filter "
        "banks, the voice encoder, CAMPPlus, the S3 tokenizer and the F0 predictor stay as precise as they are; "
        "embeddings are never coarser than f16. The file appears under its name only when it is whole.",
    .options = options,
    .run = run,
};
