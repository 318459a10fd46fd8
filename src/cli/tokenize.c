/*
 * tokenize.c - `utter tokenize`: what a model's tokenizer makes of a text.
 */
#include "cli/cli.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/input.h"
#include "engine/locate.h"
#include "text/punc_norm.h"
#include "text/split.h"
#include "text/unicode.h"

struct settings {
    const char *model, *file;
    bool json, no_norm, split;
};

static const struct option options[] = {
    {"-m, --model", "PATH", OPTION_TEXT, offsetof(struct settings, model),
     .help = "Model, or a folder that holds only tokenizer files. Default: the default model."},
    {"-f, --file", "FILE", OPTION_TEXT, offsetof(struct settings, file),
     .help = "Read the text from a file; - is standard input."},
    {"--no-norm", NULL, OPTION_SWITCH, offsetof(struct settings, no_norm),
     .help = "Encode the text as it is, without the model's punctuation rules."},
    {"--split", NULL, OPTION_SWITCH, offsetof(struct settings, split),
     .help = "First clean the text and cut it into the pieces in which it would be spoken."},
    {"--json", NULL, OPTION_SWITCH, offsetof(struct settings, json), .help = "Print JSON."},
    {0}};

static utter_status open_tokenizer(struct tokenizer **t, const char *model, struct error *e)
{
    char *path = NULL;
    struct checkpoint *ck = NULL;
    struct stat st;
    utter_status s = locate_model(&path, model, e);
    if (s != UTTER_OK) return s;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        s = tokenizer_load_folder(t, path, e);
    } else {
        s = checkpoint_open(&ck, path, NULL, NULL, e);
        if (s == UTTER_OK) s = tokenizer_load(t, ck, NULL, e);
        checkpoint_close(&ck);
    }
    mem_free(path);
    return s;
}

/* The bytes of a token for people: bytes that are no whole character as \xHH. */
static char *readable(const struct tokenizer *t, int32_t id)
{
    size_t n = 0;
    const char *piece = tokenizer_piece(t, id, &n);
    struct buf b = buf_empty(4 * n + 16);
    const bool whole = piece && utf8_check(piece, n, "", NULL) == UTTER_OK;
    for (size_t i = 0; piece && i < n; i++) {
        const unsigned char byte = (unsigned char)piece[i];
        char hex[8];
        snprintf(hex, sizeof hex, "\\x%02X", byte);
        if ((whole && byte >= 32 && byte != 127) || (byte >= 32 && byte < 127))
            buf_append(&b, &piece[i], 1);
        else
            buf_append_string(&b, hex);
    }
    char *text = buf_take(&b);
    buf_free(&b);
    return text;
}

static json_t *tokens_json(const struct tokenizer *t, const char *text, size_t text_n, const int32_t *ids, size_t n)
{
    json_t *list = json_array(), *pieces = json_array();
    for (size_t i = 0; i < n; i++) {
        char *piece = readable(t, ids[i]);
        json_array_append_new(list, json_integer(ids[i]));
        json_array_append_new(pieces, json_string(piece ? piece : ""));
        mem_free(piece);
    }
    return json_pack("{s:s%, s:o, s:o}", "text", text, text_n, "ids", list, "pieces", pieces);
}

static void print_tokens(const struct tokenizer *t, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *piece = readable(t, ids[i]);
        printf("%6d  '%s'\n", (int)ids[i], piece ? piece : "");
        mem_free(piece);
    }
}

/* Encodes one stretch of text; its JSON is appended to `list`, or its tokens are printed. */
static utter_status show(json_t *list, const struct tokenizer *t, const char *text, size_t n, const struct settings *s,
                         const struct text_piece *piece, struct error *e)
{
    char *normal = NULL;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    utter_status status = s->no_norm ? UTTER_OK : punc_norm(&normal, &n, PUNC_NORM_TURBO, text, n, e);
    if (normal) text = normal;
    if (status == UTTER_OK) status = tokenizer_encode(t, text, n, &ids, &n_ids, e);
    if (status == UTTER_OK && s->json) {
        json_t *object = tokens_json(t, text, n, ids, n_ids);
        if (piece) {
            json_object_set_new(object, "first_byte", json_integer((json_int_t)piece->first));
            json_object_set_new(object, "n_bytes", json_integer((json_int_t)piece->n_bytes));
        }
        json_array_append_new(list, object);
    } else if (status == UTTER_OK) {
        if (piece) printf("# bytes %zu to %zu: %s\n", piece->first, piece->first + piece->n_bytes, text);
        print_tokens(t, ids, n_ids);
    }
    mem_free(normal);
    mem_free(ids);
    return status;
}

static utter_status show_split(json_t *list, const struct tokenizer *t, const char *text, size_t n,
                               const struct settings *s, struct error *e)
{
    struct text_pieces pieces;
    const struct text_split_options o = {.tags = t};
    utter_status status = text_split(&pieces, text, n, &o, e);
    for (size_t i = 0; i < pieces.n && status == UTTER_OK; i++)
        status = show(list, t, pieces.items[i].spoken, strlen(pieces.items[i].spoken), s, &pieces.items[i], e);
    if (status == UTTER_OK && pieces.notices.n_unknown_tags > 0)
        report_note("left out %d tags that this model does not know, the first is %s", pieces.notices.n_unknown_tags,
                    pieces.notices.unknown_tag);
    text_pieces_free(&pieces);
    return status;
}

static int run(const struct command *self, int argc, char **argv)
{
    struct settings s = {0};
    struct words rest;
    int code;
    if (!options_parse(self, &s, &rest, argc, argv, &code)) return code;
    struct error e;
    struct tokenizer *t = NULL;
    char *text = NULL;
    size_t n;
    json_t *list = json_array();
    utter_status status = open_tokenizer(&t, s.model, &e);
    if (status == UTTER_OK) status = input_words(&text, &n, s.file, &rest, &e);
    if (status == UTTER_OK)
        status = s.split ? show_split(list, t, text, n, &s, &e) : show(list, t, text, n, &s, NULL, &e);
    if (status == UTTER_OK && s.json) {
        json_dumpf(s.split ? list : json_array_get(list, 0), stdout, JSON_COMPACT);
        putchar('\n');
    }
    if (status != UTTER_OK) report_error("%s", e.text);
    json_decref(list);
    tokenizer_free(&t);
    mem_free(text);
    return exit_code_of(status);
}

const struct command command_tokenize = {
    .name = "tokenize",
    .summary = "show the tokens of a text",
    .synopsis = "[TEXT...]",
    .description = "Prints the id and the characters of every token that a model's tokenizer makes of the text, after "
                   "the model's punctuation "
                   "rules. Without TEXT, or with -, the text comes from standard input. Bytes that are no whole "
                   "character are written \\xHH.",
    .options = options,
    .run = run,
};
