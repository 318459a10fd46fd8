/*
 * inspect.c - `utter inspect`: what a model file or folder holds.
 */
#include "cli/cli.h"

#include <jansson.h>
#include <string.h>

#include "checkpoint/checkpoint.h"

struct settings {
    const char *s3gen;
    bool json;
};

static const struct option options[] = {
    {"--json", NULL, OPTION_SWITCH, offsetof(struct settings, json), .help = "Report as JSON."},
    {"--s3gen", "FILE", OPTION_TEXT, offsetof(struct settings, s3gen),
     .help = "The second file of a GGUF pair, when it is not beside the first."},
    {0}};

/* How many elements of an array are shown. */
enum { SHOWN = 8 };

static json_t *element(const struct meta *m, size_t i)
{
    switch (m->type) {
    case META_UINT:
        return json_integer((json_int_t)m->as.u);
    case META_INT:
        return json_integer(m->as.i);
    case META_FLOAT:
        return json_real(m->as.f);
    case META_BOOL:
        return json_boolean(m->as.b);
    case META_STRING:
        return json_string(m->as.string);
    case META_STRINGS:
        return json_string(m->as.strings[i]);
    case META_INTS:
        return json_integer(m->as.ints[i]);
    case META_FLOATS:
        return json_real(m->as.floats[i]);
    }
    return NULL;
}

static json_t *value(const struct meta *m)
{
    const bool array = m->type == META_STRINGS || m->type == META_INTS || m->type == META_FLOATS;
    if (!array) return element(m, 0);
    json_t *list = json_array();
    for (size_t i = 0; i < m->count && i < SHOWN; i++) json_array_append_new(list, element(m, i));
    return list;
}

static const char *parts(const struct checkpoint *ck, char text[64])
{
    static const char *const names[] = {"t3", "s3gen", "ve", "conds"};
    text[0] = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char prefix[16];
        const int n = snprintf(prefix, sizeof prefix, "%s.", names[i]);
        for (size_t k = 0; k < checkpoint_tensors(ck); k++) {
            if (strncmp(checkpoint_tensor(ck, k)->name, prefix, (size_t)n) != 0) continue;
            snprintf(text + strlen(text), 64 - strlen(text), "%s%s", text[0] ? " " : "", names[i]);
            break;
        }
    }
    return text;
}

static json_t *tensor_json(const struct checkpoint *ck, const struct tensor *t)
{
    json_t *shape = json_array();
    for (int i = 0; i < t->n_dims; i++) json_array_append_new(shape, json_integer(t->shape[i]));
    return json_pack("{s:s, s:s, s:o, s:s, s:I, s:s}", "name", t->name, "type", dtype_name(t->type), "shape", shape,
                     "layout", t->layout == LAYOUT_TORCH ? "published" : "taps, out, in", "bytes",
                     (json_int_t)t->n_bytes, "file", checkpoint_tensor_file(ck, t));
}

static void print_json(const struct checkpoint *ck)
{
    char text[64];
    json_t *metadata = json_object(), *tensors = json_array();
    for (size_t i = 0; i < checkpoint_metas(ck); i++) {
        const struct meta *m = checkpoint_meta_at(ck, i);
        json_object_set_new(metadata, m->key,
                            m->count > SHOWN ? json_pack("{s:I, s:o}", "count", (json_int_t)m->count, "first", value(m))
                                             : value(m));
    }
    for (size_t i = 0; i < checkpoint_tensors(ck); i++)
        json_array_append_new(tensors, tensor_json(ck, checkpoint_tensor(ck, i)));
    json_t *all = json_pack("{s:s, s:s, s:s, s:s, s:b, s:o, s:o}", "path", checkpoint_path(ck), "format",
                            checkpoint_format(ck), "variant", checkpoint_variant(ck), "parts", parts(ck, text),
                            "can_clone", checkpoint_can_clone(ck), "metadata", metadata, "tensors", tensors);
    json_dumpf(all, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(all);
}

/* One line, cut; long texts are of no use here. */
static void print_meta(const struct meta *m)
{
    json_t *v = value(m);
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    printf("  %-34s %.100s", m->key, text ? text : "?");
    if (text && strlen(text) > 100) printf("...");
    if (m->count != 1) printf("  (%zu elements)", m->count);
    putchar('\n');
    free(text);
    json_decref(v);
}

static void print_tensor(const struct tensor *t)
{
    char shape[96] = "";
    for (int i = 0; i < t->n_dims; i++)
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    printf("  %-5s %-20s %12zu  %s%s\n", dtype_name(t->type), shape, t->n_bytes, t->name,
           t->layout == LAYOUT_TORCH ? "" : "  (taps, out, in)");
}

static void print_totals(const struct checkpoint *ck)
{
    size_t tensors[DTYPE_COUNT] = {0}, bytes[DTYPE_COUNT] = {0};
    for (size_t i = 0; i < checkpoint_tensors(ck); i++) {
        const struct tensor *t = checkpoint_tensor(ck, i);
        tensors[t->type]++;
        bytes[t->type] += t->n_bytes;
    }
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (tensors[i])
            printf("  %-5s %6zu tensors %12.2f MB\n", dtype_name((enum dtype)i), tensors[i], (double)bytes[i] / 1e6);
}

static void print_text(const struct checkpoint *ck)
{
    char text[64];
    printf("%s: %s\nvariant: %s; parts: %s; clones voices: %s\n", checkpoint_path(ck), checkpoint_format(ck),
           checkpoint_variant(ck), parts(ck, text), checkpoint_can_clone(ck) ? "yes" : "no");
    if (checkpoint_metas(ck)) printf("\nmetadata:\n");
    for (size_t i = 0; i < checkpoint_metas(ck); i++) print_meta(checkpoint_meta_at(ck, i));
    printf("\ntensors:\n");
    for (size_t i = 0; i < checkpoint_tensors(ck); i++) print_tensor(checkpoint_tensor(ck, i));
    printf("\ntotals:\n");
    print_totals(ck);
}

static int run(const struct command *self, int argc, char **argv)
{
    struct settings s = {0};
    struct words rest;
    int code;
    if (!options_parse(self, &s, &rest, argc, argv, &code)) return code;
    if (rest.count != 1) {
        report_error("inspect takes one model file or folder; see utter inspect --help");
        return EXIT_USAGE;
    }
    struct checkpoint *ck;
    struct error error;
    const utter_status status = checkpoint_open(&ck, rest.word[0], s.s3gen, NULL, &error);
    if (status != UTTER_OK) {
        report_error("%s", error.text);
        return exit_code_of(status);
    }
    if (s.json)
        print_json(ck);
    else
        print_text(ck);
    checkpoint_close(&ck);
    return EXIT_OK;
}

const struct command command_inspect = {
    .name = "inspect",
    .summary = "list what a model file or folder holds",
    .synopsis = "MODEL",
    .description =
        "Lists metadata and tensors of a published folder, a safetensors, torch or GGUF file. Tensors are shown under "
        "the published names with their network in front (t3, s3gen, ve, conds). Of long arrays only the first "
        "elements are shown.",
    .options = options,
    .run = run,
};
