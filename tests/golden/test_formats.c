/* One small model in every format: the published folder, our GGUF, the ggml port's pair. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "checkpoint/bind.h"
#include "checkpoint/convert.h"
#include "checkpoint/fold.h"
#include "tools/hashfill.h"
#include "tools/portfile.h"
#include "tools/stages/stage.h"

#define MINI GOLDEN_DIR "/chatterbox-mini"

static char turbo[64], multilingual[64], made[64];

static void copy(const char *from, const char *to)
{
    char command[1024];
    snprintf(command, sizeof command, "cp '%s' '%s'", from, to);
    assert_int_equal(system(command), 0);
}

static const char *path_in(const char *folder, const char *name)
{
    static char paths[8][512];
    static int turn;
    char *p = paths[turn++ & 7];
    snprintf(p, sizeof *paths, "%s/%s", folder, name);
    return p;
}

static int make_folders(void **state)
{
    (void)state;
    static const char *const turbo_tags[] = {"t3_turbo_v1", "s3gen_meanflow", "ve", NULL};
    static const char *const multilingual_tags[] = {"t3_mtl23ls_v2", "s3gen", "ve", NULL};
    struct error e = {""};
    snprintf(made, sizeof made, "utter-formats-XXXXXX");
    if (hashfill_folder(turbo, MINI, turbo_tags, &e) != UTTER_OK ||
        hashfill_folder(multilingual, MINI, multilingual_tags, &e) != UTTER_OK || !mkdtemp(made)) {
        printf("%s\n", e.text);
        return 1;
    }
    copy(GOLDEN_DIR "/torch/conds.pt", path_in(turbo, "conds.pt"));
    copy(GOLDEN_DIR "/gpt2/vocab.json", path_in(turbo, "vocab.json"));
    copy(GOLDEN_DIR "/gpt2/merges.txt", path_in(turbo, "merges.txt"));
    return 0;
}

static int remove_folders(void **state)
{
    (void)state;
    hashfill_remove_folder(turbo);
    hashfill_remove_folder(multilingual);
    hashfill_remove_folder(made);
    return 0;
}

static struct checkpoint *open_model(const char *path, const char *s3gen)
{
    struct checkpoint *ck;
    struct error e = {""};
    if (checkpoint_open(&ck, path, s3gen, NULL, &e) != UTTER_OK) fail_msg("%s", e.text);
    return ck;
}

static void convert(const char *from, const char *to, enum dtype type)
{
    struct convert_options o = {0};
    struct convert_report report;
    struct error e = {""};
    struct checkpoint *ck = open_model(from, NULL);
    convert_types(&o, type);
    if (convert_checkpoint(ck, to, &o, &report, &e) != UTTER_OK) fail_msg("%s", e.text);
    struct stat st;
    assert_int_equal(stat(to, &st), 0);
    assert_int_equal(st.st_size, report.n_bytes);
    checkpoint_close(&ck);
}

/* ---- tensors ---- */

/* Largest difference over largest magnitude between a layer in two checkpoints, whatever their layouts. */
static double difference(const struct checkpoint *a, const struct checkpoint *b, const char *layer_name, int n_dims)
{
    char name[600];
    snprintf(name, sizeof name, "%.500s.weight", layer_name);
    const struct layer x = fold_find(a, layer_name), y = fold_find(b, layer_name);
    if (!x.weight || !y.weight) fail_msg("%s is missing", layer_name);
    const enum layer_kind kind = names_layer_kind(name, n_dims);
    const size_t n = tensor_count(x.weight);
    if (n != tensor_count(y.weight)) fail_msg("%s: another size", layer_name);
    float *v = mem_alloc(n * sizeof *v), *w = mem_alloc(n * sizeof *w);
    assert_true(fold_f32(v, &x, kind, NULL) && fold_f32(w, &y, kind, NULL));
    double most = 0, magnitude = 0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)v[i] - w[i]));
        magnitude = fmax(magnitude, fabs((double)v[i]));
    }
    mem_free(v);
    mem_free(w);
    return magnitude > 0 ? most / magnitude : most;
}

/* Every layer that inference uses is in `b` within `ratio`. */
static void check_layers(const struct checkpoint *a, const struct checkpoint *b, double ratio)
{
    static const char *const suffixes[] = {".parametrizations.weight.original1", ".weight"};
    for (size_t i = 0; i < checkpoint_tensors(a); i++) {
        const struct tensor *t = checkpoint_tensor(a, i);
        if (strstr(t->name, "wte.") || strstr(t->name, "text_head.") || strstr(t->name, "embed_tokens.")) continue;
        if (strstr(t->name, ".bn") || strstr(t->name, "batchnorm") || strstr(t->name, "shortcut.1")) continue;
        for (size_t k = 0; k < sizeof suffixes / sizeof *suffixes; k++) {
            const size_t n = strlen(t->name), m = strlen(suffixes[k]);
            if (n < m || strcmp(t->name + n - m, suffixes[k]) != 0) continue;
            char layer[512];
            snprintf(layer, sizeof layer, "%.*s", (int)(n - m), t->name);
            const double d = difference(a, b, layer, t->n_dims);
            if (!(d <= ratio)) fail_msg("%s: difference %g, allowed %g", t->name, d, ratio);
        }
    }
}

/* Half a step of each type over the largest value it holds; q5_0 may clip by one step, q4_0 by two of ten. */
static const struct {
    enum dtype type;
    double ratio;
} types[] = {{DTYPE_F32, 0}, {DTYPE_F16, 0x1p-11}, {DTYPE_BF16, 0x1p-8}, {DTYPE_Q8_0, 0.004}, {DTYPE_Q4_0, 0.201}};

static void our_file_keeps_every_layer(void **state)
{
    (void)state;
    struct checkpoint *folder = open_model(turbo, NULL);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const char *path = path_in(made, "ours.gguf");
        convert(turbo, path, types[i].type);
        struct checkpoint *ck = open_model(path, NULL);
        assert_string_equal(checkpoint_format(ck), "gguf (utter)");
        assert_string_equal(checkpoint_variant(ck), "small"); /* narrower than any published one */
        check_layers(folder, ck, types[i].ratio);
        const struct tensor *head = checkpoint_find(ck, "t3.speech_head.weight");
        assert_int_equal(head->type, types[i].type == DTYPE_Q4_0 ? DTYPE_Q8_0 : types[i].type);
        assert_int_equal(checkpoint_find(ck, "t3.tfmr.ln_f.weight")->type, DTYPE_F32);
        assert_int_equal(checkpoint_find(ck, "s3gen.tokenizer.encoder.conv1.weight")->type, DTYPE_F32);
        assert_null(checkpoint_find(ck, "t3.tfmr.wte.weight"));
        assert_null(checkpoint_find(ck, "t3.text_head.weight"));
        const struct tensor *token = checkpoint_find(ck, "conds.gen.prompt_token");
        assert_int_equal(token->type, DTYPE_I64);
        assert_int_equal(token->n_dims, 2);
        assert_int_equal(checkpoint_meta(ck, "tokenizer.ggml.tokens")->count, 50257);
        assert_string_equal(checkpoint_meta(ck, "tokenizer.ggml.tokens")->as.strings[50256], "<|endoftext|>");
        assert_string_equal(checkpoint_meta(ck, "tokenizer.ggml.merges")->as.strings[0], "\xC4\xA0 t");
        assert_true(checkpoint_can_clone(ck));
        checkpoint_close(&ck);
    }
    checkpoint_close(&folder);
}

static void converting_our_file_again_changes_nothing(void **state)
{
    (void)state;
    convert(turbo, path_in(made, "ours.gguf"), DTYPE_Q8_0);
    convert(path_in(made, "ours.gguf"), path_in(made, "again.gguf"), DTYPE_Q8_0);
    char command[600];
    snprintf(command, sizeof command, "cmp '%s' '%s'", path_in(made, "ours.gguf"), path_in(made, "again.gguf"));
    assert_int_equal(system(command), 0);
}

static void a_file_without_cloning_says_so(void **state)
{
    (void)state;
    struct convert_options o = {
        .no_clone = true, .name = "n", .voice = "v", .languages = (const char *const[]){"en"}, .n_languages = 1};
    struct convert_report report;
    struct checkpoint *ck = open_model(turbo, NULL);
    convert_types(&o, DTYPE_F16);
    assert_int_equal(convert_checkpoint(ck, path_in(made, "mute.gguf"), &o, &report, NULL), UTTER_OK);
    checkpoint_close(&ck);
    ck = open_model(path_in(made, "mute.gguf"), NULL);
    assert_false(checkpoint_can_clone(ck));
    assert_false(checkpoint_meta(ck, "utter.can_clone")->as.b);
    assert_string_equal(checkpoint_meta(ck, "general.languages")->as.strings[0], "en");
    assert_null(checkpoint_find(ck, "ve.proj.weight"));
    assert_null(checkpoint_find(ck, "s3gen.tokenizer.encoder.conv1.weight"));
    assert_null(checkpoint_find(ck, "s3gen.speaker_encoder.head.conv1.weight"));
    checkpoint_close(&ck);
}

static void a_cancelled_conversion_leaves_nothing(void **state)
{
    (void)state;
    struct cancel cancel = {0};
    cancel_request(&cancel);
    struct convert_options o = {.cancel = &cancel};
    struct convert_report report;
    struct error e;
    struct checkpoint *ck = open_model(turbo, NULL);
    convert_types(&o, DTYPE_F16);
    assert_int_equal(convert_checkpoint(ck, path_in(made, "half.gguf"), &o, &report, &e), UTTER_CANCELLED);
    struct stat st;
    assert_int_equal(stat(path_in(made, "half.gguf"), &st), -1);
    assert_int_equal(stat(path_in(made, "half.gguf.part"), &st), -1);
    assert_int_equal(convert_checkpoint(ck, "/no/such/folder/x.gguf", &o, &report, &e), UTTER_OUTPUT_UNWRITABLE);
    checkpoint_close(&ck);
}

/* ---- the port's pair ---- */

static void the_ports_pair_reads_in_every_type(void **state)
{
    (void)state;
    static const struct {
        enum dtype type;
        double ratio;
    } port_types[] = {
        {DTYPE_F32, 1e-7}, {DTYPE_F16, 0x1p-11}, {DTYPE_Q8_0, 0.004}, {DTYPE_Q5_0, 0.063}, {DTYPE_Q4_0, 0.201}};
    const char *models[] = {turbo, multilingual};
    for (size_t m = 0; m < 2; m++) {
        struct checkpoint *folder = open_model(models[m], NULL);
        for (size_t i = 0; i < sizeof port_types / sizeof *port_types; i++) {
            struct error e = {""};
            if (portfile_write(models[m], path_in(made, "port-t3.gguf"), path_in(made, "port-s3gen.gguf"),
                               port_types[i].type, &e) != UTTER_OK)
                fail_msg("%s", e.text);
            struct checkpoint *ck = open_model(path_in(made, "port-t3.gguf"), NULL);
            assert_string_equal(checkpoint_format(ck), "gguf (ggml port)");
            check_layers(folder, ck, port_types[i].ratio);
            if (m == 0) assert_int_equal(checkpoint_find(ck, "t3.tfmr.h.0.mlp.c_fc.weight")->type, port_types[i].type);
            checkpoint_close(&ck);
        }
        checkpoint_close(&folder);
    }
    remove(path_in(made, "port-t3.gguf"));
    remove(path_in(made, "port-s3gen.gguf"));
}

static void the_ports_voice_gets_published_shapes(void **state)
{
    (void)state;
    assert_int_equal(portfile_write(turbo, path_in(made, "v-t3.gguf"), path_in(made, "v-s3gen.gguf"), DTYPE_F16, NULL),
                     UTTER_OK);
    struct checkpoint *ck = open_model(path_in(made, "v-s3gen.gguf"), NULL); /* either half will do */
    const struct tensor *mel = checkpoint_find(ck, "conds.gen.prompt_feat");
    assert_int_equal(mel->n_dims, 3);
    assert_int_equal(mel->shape[2], 80);
    const struct tensor *token = checkpoint_find(ck, "conds.t3.cond_prompt_speech_tokens");
    assert_int_equal(token->n_dims, 2);
    assert_int_equal(token->type, DTYPE_I32);
    assert_string_equal(checkpoint_meta(ck, "tokenizer.ggml.tokens")->as.strings[50256], "<|endoftext|>");
    assert_int_equal(checkpoint_meta(ck, "tokenizer.ggml.token_type")->as.ints[0], 1);
    checkpoint_close(&ck);
    remove(path_in(made, "v-t3.gguf"));
    remove(path_in(made, "v-s3gen.gguf"));
}

static void the_right_partner_is_found(void **state)
{
    (void)state;
    struct error e = {""};
    assert_int_equal(portfile_write(turbo, path_in(made, "a-t3.gguf"), path_in(made, "a-s3gen.gguf"), DTYPE_Q8_0, &e),
                     UTTER_OK);
    assert_int_equal(portfile_write(turbo, path_in(made, "b-t3.gguf"), path_in(made, "b-s3gen.gguf"), DTYPE_F16, &e),
                     UTTER_OK);
    assert_int_equal(
        portfile_write(multilingual, path_in(made, "a-t3-m.gguf"), path_in(made, "a-s3gen-m.gguf"), DTYPE_F16, &e),
        UTTER_OK);
    static const char *const expected[][2] = {
        {"a-t3.gguf", "a-s3gen.gguf"}, {"b-t3.gguf", "b-s3gen.gguf"}, {"a-t3-m.gguf", "a-s3gen-m.gguf"}};
    for (size_t i = 0; i < 3; i++) {
        struct checkpoint *ck = open_model(path_in(made, expected[i][0]), NULL);
        assert_string_equal(checkpoint_file_of(ck, "s3gen.flow.encoder_proj.weight"), path_in(made, expected[i][1]));
        checkpoint_close(&ck);
    }
    struct checkpoint *ck;
    assert_int_equal(checkpoint_open(&ck, path_in(made, "a-t3.gguf"), path_in(made, "a-s3gen-m.gguf"), NULL, &e),
                     UTTER_MODEL_DAMAGED);
    assert_non_null(strstr(e.text, "do not belong together"));
    assert_int_equal(checkpoint_open(&ck, path_in(made, "a-t3.gguf"), path_in(made, "b-t3.gguf"), NULL, &e),
                     UTTER_MODEL_DAMAGED);
    assert_non_null(strstr(e.text, "appears twice"));
    ck = open_model(path_in(made, "a-t3.gguf"), path_in(turbo, "s3gen_meanflow.safetensors"));
    assert_non_null(checkpoint_find(ck, "s3gen.flow.encoder_proj.weight"));
    checkpoint_close(&ck);
}

static void a_missing_partner_is_named(void **state)
{
    (void)state;
    char lonely[80];
    snprintf(lonely, sizeof lonely, "%s/alone", made);
    mkdir(lonely, 0700);
    assert_int_equal(portfile_write(turbo, path_in(lonely, "t3.gguf"), path_in(made, "s.gguf"), DTYPE_F16, NULL),
                     UTTER_OK);
    struct checkpoint *ck = open_model(path_in(lonely, "t3.gguf"), NULL);
    struct error e = {""};
    struct binder b = {.checkpoint = ck, .error = &e};
    assert_int_equal(bind_dim(&b, 0, "s3gen.flow.encoder_proj.weight"), -1);
    assert_int_equal(binder_status(&b), UTTER_MODEL_DAMAGED);
    assert_non_null(strstr(e.text, "s3gen.flow.encoder_proj.weight is missing"));
    assert_non_null(strstr(e.text, "--s3gen"));
    checkpoint_close(&ck);
    hashfill_remove_folder(lonely);
}

/* ---- files cut short ---- */

/* Cut at every tenth, from the end: each is refused by name, and from some tensor on by that tensor's name. */
static void check_cuts(const char *file)
{
    const char *cut = path_in(made, "cut");
    struct stat st;
    assert_int_equal(stat(file, &st), 0);
    copy(file, cut);
    for (int tenth = 9; tenth >= 0; tenth--) {
        struct checkpoint *ck;
        struct error e = {""};
        assert_int_equal(truncate(cut, st.st_size * tenth / 10), 0);
        const utter_status s = checkpoint_open(&ck, cut, NULL, NULL, &e);
        if (s != UTTER_MODEL_DAMAGED || !strstr(e.text, cut))
            fail_msg("%s at %d tenths: %d, %s", file, tenth, s, e.text);
        if (tenth >= 2 && !strstr(e.text, "tensor "))
            fail_msg("%s at %d tenths: no tensor named: %s", file, tenth, e.text);
    }
}

static void files_cut_short_are_refused(void **state)
{
    (void)state;
    convert(turbo, path_in(made, "ours.gguf"), DTYPE_Q8_0);
    assert_int_equal(portfile_write(turbo, path_in(made, "c-t3.gguf"), path_in(made, "c-s3gen.gguf"), DTYPE_Q5_0, NULL),
                     UTTER_OK);
    check_cuts(path_in(made, "ours.gguf"));
    check_cuts(path_in(made, "c-t3.gguf"));
    check_cuts(path_in(made, "c-s3gen.gguf"));
    check_cuts(path_in(turbo, "t3_turbo_v1.safetensors"));
    check_cuts(path_in(turbo, "s3gen_meanflow.safetensors"));
}

/* ---- sound ---- */

static void run(struct reffile *out, const char *checkpoint, const char *stage, const char *reference)
{
    struct reffile in;
    struct error e = {""};
    const struct stage_settings s = {.checkpoint = checkpoint, .stage = stage, .device = {.n_threads = 2}};
    if (reffile_read(&in, reference, &e) != UTTER_OK || stage_run(&s, &in, out, &e) != UTTER_OK) fail_msg("%s", e.text);
    reffile_free(&in);
}

/* ratio: largest difference over largest magnitude that an output may have; 0: the same bytes. */
static void compare_outputs(const char *checkpoint, double ratio)
{
    static const char *const replays[][2] = {{"s3gen_meanflow", MINI "/s3gen_meanflow.safetensors"},
                                             {"hift", MINI "/hift.safetensors"},
                                             {"campplus", MINI "/campplus.safetensors"},
                                             {"s3tokenizer", MINI "/s3tokenizer.safetensors"},
                                             {"voice_encoder", MINI "/voice_encoder.safetensors"},
                                             {"t3_turbo", MINI "/t3_turbo.safetensors"}};
    for (size_t i = 0; i < sizeof replays / sizeof *replays; i++) {
        bool known = false;
        for (const struct stage *s = stages; s->name; s++) known |= strcmp(s->name, replays[i][0]) == 0;
        if (!known) continue;
        struct reffile a = {0}, b = {0};
        run(&a, turbo, replays[i][0], replays[i][1]);
        run(&b, checkpoint, replays[i][0], replays[i][1]);
        assert_int_equal(a.n, b.n);
        for (size_t k = 0; k < a.n; k++) {
            double d = 0, magnitude = 0;
            assert_true(ref_same_shape(&a.arrays[k], &b.arrays[k]));
            ref_compare(&a.arrays[k], &b.arrays[k], &d, &magnitude);
            if (!(d <= ratio * magnitude))
                fail_msg("%s, %s: difference %g of %g", replays[i][0], a.arrays[k].name, d, magnitude);
        }
        reffile_free(&a);
        reffile_free(&b);
    }
}

static void our_f32_file_sounds_the_same_to_the_bit(void **state)
{
    (void)state;
    convert(turbo, path_in(made, "ours.gguf"), DTYPE_F32);
    compare_outputs(path_in(made, "ours.gguf"), 0);
}

/* The port folds norms in its own way, so weights differ in the last bit, and the vocoder's phases amplify that. */
static void the_ports_f32_pair_sounds_the_same(void **state)
{
    (void)state;
    assert_int_equal(portfile_write(turbo, path_in(made, "f-t3.gguf"), path_in(made, "f-s3gen.gguf"), DTYPE_F32, NULL),
                     UTTER_OK);
    compare_outputs(path_in(made, "f-t3.gguf"), 1e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_file_keeps_every_layer),
        cmocka_unit_test(converting_our_file_again_changes_nothing),
        cmocka_unit_test(a_file_without_cloning_says_so),
        cmocka_unit_test(a_cancelled_conversion_leaves_nothing),
        cmocka_unit_test(the_ports_pair_reads_in_every_type),
        cmocka_unit_test(the_ports_voice_gets_published_shapes),
        cmocka_unit_test(the_right_partner_is_found),
        cmocka_unit_test(a_missing_partner_is_named),
        cmocka_unit_test(files_cut_short_are_refused),
        cmocka_unit_test(our_f32_file_sounds_the_same_to_the_bit),
        cmocka_unit_test(the_ports_f32_pair_sounds_the_same),
    };
    return cmocka_run_group_tests_name("formats", tests, make_folders, remove_folders);
}
