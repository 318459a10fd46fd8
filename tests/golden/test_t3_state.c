/* T3's state on the small network: batches, cached prefixes, history, threads, cancelling and limits leave no trace in the logits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chatterbox/t3_gpt2.h"
#include "checkpoint/convert.h"
#include "test.h"
#include "tools/hashfill.h"

enum { N_TEXT = 40, N_PROMPT = 60, N_FORCED = 3 };

static struct error e;
static char folder[64];
static struct checkpoint *ck;

struct rig {
    struct device *device;
    struct stream *stream;
    struct cancel cancel;
    struct binder binder;
    struct t3_gpt2 *t3;
    struct t3_gpt2_state *st;
};

static int32_t text[N_TEXT], prompt[N_PROMPT];
static float speaker[256];
static const struct t3_gpt2_voice voice = {speaker, prompt, N_PROMPT};

static enum precision precision;

static int group_setup(void **state)
{
    (void)state;
    const char *const tags[] = {"t3_turbo_v1", NULL};
    hashfill_integers("text", N_TEXT, 0, 600, text);
    hashfill_integers("prompt", N_PROMPT, 0, 6561, prompt);
    hashfill_draw("speaker", 0, 256, 0.1, 0, speaker);
    if (hashfill_folder(folder, GOLDEN_DIR "/chatterbox-mini", tags, &e) != UTTER_OK) return -1;
    return checkpoint_open(&ck, folder, NULL, NULL, &e);
}

/* The same network in other types: few-row products of blocks in 8 bits, and a cache in f16. */
static char blocks_path[80];
static enum dtype blocks_type = DTYPE_Q8_0;

static int blocks_setup(void **state)
{
    if (group_setup(state) != 0) return -1;
    struct convert_options o = {0};
    struct convert_report report;
    convert_types(&o, blocks_type);
    snprintf(blocks_path, sizeof blocks_path, "%s/blocks.gguf", folder);
    if (convert_checkpoint(ck, blocks_path, &o, &report, &e) != UTTER_OK) return -1;
    checkpoint_close(&ck);
    return checkpoint_open(&ck, blocks_path, NULL, NULL, &e);
}

static int group_teardown(void **state)
{
    (void)state;
    checkpoint_close(&ck);
    if (blocks_path[0]) unlink(blocks_path);
    hashfill_remove_folder(folder);
    return 0;
}

static bool rig_open_level(struct rig *r, enum cpu_level level, int n_threads, int n_positions)
{
    *r = (struct rig){0};
    const struct device_options o = {.level = level, .n_threads = n_threads, .precision = precision};
    const utter_status status = device_create_cpu(&r->device, &o, &e);
    if (status == UTTER_UNSUPPORTED && level != CPU_AUTO) return false;
    assert_int_equal(status, UTTER_OK);
    assert_int_equal(stream_create(&r->stream, r->device, &r->cancel, (size_t)1 << 30, &e), UTTER_OK);
    r->binder = (struct binder){.checkpoint = ck, .device = r->device, .error = &e};
    assert_int_equal(t3_gpt2_load(&r->t3, &r->binder), UTTER_OK);
    assert_int_equal(t3_gpt2_state_create(&r->st, r->t3, r->device, n_positions, &e), UTTER_OK);
    return true;
}

static void rig_open(struct rig *r, int n_threads, int n_positions)
{
    assert_true(rig_open_level(r, CPU_AUTO, n_threads, n_positions));
}

static void rig_close(struct rig *r)
{
    t3_gpt2_state_free(&r->st);
    t3_gpt2_free(&r->t3);
    stream_destroy(&r->stream);
    binder_free_owned(&r->binder.owned);
    device_destroy(&r->device);
}

/* The logits after the prompt and after a few forced tokens: [N_FORCED + 1][6563]. */
static float *speak(struct rig *r, const struct t3_gpt2_voice *v, const struct t3_gpt2_prefix *prefix, int n_text,
                    int max_rows)
{
    const size_t bytes = 6563 * sizeof(float);
    float *out = malloc((N_FORCED + 1) * bytes);
    utter_status s = t3_gpt2_begin(r->st, v, prefix, text, n_text, &e);
    assert_int_equal(s, UTTER_OK);
    for (int left = t3_gpt2_prompt_rows(r->st); s == UTTER_OK;) {
        s = t3_gpt2_prefill(r->st, r->stream, max_rows);
        assert_true(t3_gpt2_prompt_remaining(r->st) < left);
        left = t3_gpt2_prompt_remaining(r->st);
    }
    assert_int_equal(s, UTTER_DONE);
    memcpy(out, t3_gpt2_logits(r->st), bytes);
    for (int i = 0; i < N_FORCED; i++) {
        assert_int_equal(t3_gpt2_decode(r->st, r->stream, 100 * i), UTTER_OK);
        memcpy(out + (i + 1) * 6563, t3_gpt2_logits(r->st), bytes);
    }
    return out;
}

static void assert_same(float *a, const float *b)
{
    assert_memory_equal(a, b, (N_FORCED + 1) * 6563 * sizeof(float));
    free(a);
}

static void nothing_but_the_request_decides(void **state)
{
    (void)state; /* R12 */
    struct rig r;
    struct t3_gpt2_prefix *prefix;
    rig_open(&r, 1, 1000);
    float *reference = speak(&r, &voice, NULL, N_TEXT, 0);
    assert_int_equal(t3_gpt2_prefix_create(&prefix, r.st, r.stream, &e), UTTER_OK);
    for (int rows = T3_MIN_BATCH_ROWS; rows < N_PROMPT; rows += 5)
        assert_same(speak(&r, &voice, NULL, N_TEXT, rows), reference);
    assert_same(speak(&r, &voice, NULL, N_TEXT, 1), reference);
    assert_same(speak(&r, &voice, prefix, N_TEXT, 0), reference);  /* copied */
    assert_same(speak(&r, &voice, prefix, N_TEXT, 20), reference); /* still held */
    const struct t3_gpt2_voice other = {speaker, prompt + 20, 30}, mute = {speaker, prompt, 0};
    free(speak(&r, &other, NULL, N_TEXT, 0));
    assert_same(speak(&r, &voice, prefix, N_TEXT, 0), reference);
    free(speak(&r, &mute, NULL, 3, 0));
    assert_same(speak(&r, &voice, NULL, N_TEXT, 0), reference);
    rig_close(&r);
    rig_open(&r, 3, 1000);
    assert_same(speak(&r, &voice, NULL, N_TEXT, 0), reference);
    rig_close(&r);
    t3_gpt2_prefix_free(&prefix);
    free(reference);
}

static void cancelling_leaves_no_trace(void **state)
{
    (void)state;
    struct rig r;
    struct t3_gpt2_prefix *prefix;
    rig_open(&r, 2, 1000);
    float *reference = speak(&r, &voice, NULL, N_TEXT, 0);
    assert_int_equal(t3_gpt2_prefix_create(&prefix, r.st, r.stream, &e), UTTER_OK);
    for (int with_prefix = 0; with_prefix < 2; with_prefix++) {
        assert_int_equal(t3_gpt2_begin(r.st, &voice, with_prefix ? prefix : NULL, text, N_TEXT, &e), UTTER_OK);
        assert_int_equal(t3_gpt2_prefill(r.st, r.stream, 16), UTTER_OK);
        cancel_request(&r.cancel);
        assert_int_equal(t3_gpt2_prefill(r.st, r.stream, 16), UTTER_CANCELLED);
        assert_int_equal(t3_gpt2_decode(r.st, r.stream, 1), UTTER_CANCELLED);
        cancel_clear(&r.cancel);
        stream_clear(r.stream);
        assert_same(speak(&r, &voice, with_prefix ? prefix : NULL, N_TEXT, 0), reference);
    }
    t3_gpt2_prefix_free(&prefix);
    rig_close(&r);
    free(reference);
}

static void limits_are_refused_not_read(void **state)
{
    (void)state; /* R09 */
    struct rig r;
    rig_open(&r, 1, 50);
    const struct t3_gpt2_voice small = {speaker, prompt, 10};
    assert_int_equal(t3_gpt2_begin(r.st, &voice, NULL, text, 1, &e), UTTER_INVALID_ARGUMENT);
    assert_int_equal(t3_gpt2_begin(r.st, &small, NULL, text, 38, &e), UTTER_INVALID_ARGUMENT);
    assert_non_null(strstr(e.text, "50 positions"));
    free(speak(&r, &small, NULL, 34, 0)); /* 46 rows and 3 tokens */
    assert_int_equal(t3_gpt2_room(r.st), 1);
    assert_int_equal(t3_gpt2_decode(r.st, r.stream, 1), UTTER_OK);
    assert_int_equal(t3_gpt2_decode(r.st, r.stream, 1), UTTER_INVALID_ARGUMENT);
    stream_clear(r.stream);
    free(speak(&r, &small, NULL, 3, 0));
    assert_int_equal(t3_gpt2_decode(r.st, r.stream, 6563), UTTER_INVALID_ARGUMENT);
    stream_clear(r.stream);
    assert_int_equal(t3_gpt2_decode(r.st, r.stream, -1), UTTER_INVALID_ARGUMENT);
    stream_clear(r.stream);
    assert_int_equal(t3_gpt2_begin(r.st, &small, NULL, (int32_t[]){3, 600}, 2, &e), UTTER_INVALID_ARGUMENT);
    assert_non_null(strstr(e.text, "text token 1 is 600"));
    const struct t3_gpt2_voice bad = {speaker, (int32_t[]){-1}, 1};
    assert_int_equal(t3_gpt2_begin(r.st, &bad, NULL, text, 2, &e), UTTER_INVALID_ARGUMENT);
    assert_int_equal(t3_gpt2_begin(r.st, &small, NULL, text, 2, &e), UTTER_OK);
    assert_int_equal(t3_gpt2_decode(r.st, r.stream, 1), UTTER_INVALID_STATE); /* before the prompt is done */
    stream_clear(r.stream);
    struct t3_gpt2_prefix *prefix;
    assert_int_equal(t3_gpt2_prefix_create(&prefix, r.st, r.stream, &e), UTTER_INVALID_STATE);
    rig_close(&r);
}

static void two_states_share_a_network_and_a_prefix(void **state)
{
    (void)state;
    struct rig r;
    struct t3_gpt2_prefix *prefix;
    rig_open(&r, 2, 1000);
    float *reference = speak(&r, &voice, NULL, N_TEXT, 0);
    assert_int_equal(t3_gpt2_prefix_create(&prefix, r.st, r.stream, &e), UTTER_OK);
    struct t3_gpt2_state *first = r.st, *second;
    assert_int_equal(t3_gpt2_state_create(&second, r.t3, r.device, 400, &e), UTTER_OK);
    r.st = second;
    assert_same(speak(&r, &voice, prefix, N_TEXT, 0), reference);
    r.st = first;
    assert_same(speak(&r, &voice, prefix, N_TEXT, 0), reference);
    t3_gpt2_state_free(&second);
    t3_gpt2_prefix_free(&prefix);
    rig_close(&r);
    free(reference);
}

static void moving_the_weights_changes_nothing(void **state)
{
    (void)state;
    enum { FEW = (T3_RESIDENT_AFTER - 1) / T3_STEPS_A_TEXT_TOKEN - 1 }; /* text tokens that do not move them */
    struct rig r;
    rig_open(&r, 2, 1000);
    float *few = speak(&r, &voice, NULL, FEW, 0);
    for (int i = 0; i < T3_RESIDENT_AFTER + 10; i++) assert_int_equal(t3_gpt2_decode(r.st, r.stream, i), UTTER_OK);
    assert_same(speak(&r, &voice, NULL, FEW, 0), few); /* a layer a step */
    float *many = speak(&r, &voice, NULL, N_TEXT, 0);
    rig_close(&r);
    rig_open(&r, 1, 1000);
    assert_same(speak(&r, &voice, NULL, N_TEXT, 17), many); /* by the prompt */
    assert_same(speak(&r, &voice, NULL, FEW, 0), few);
    rig_close(&r);
    free(few);
    free(many);
}

static void see_logits(void *user, const char *name, struct array value)
{
    if (strcmp(name, "logits") == 0) memcpy(user, value.data, 6563 * sizeof(float));
}

/* Utterances of several lengths, n of them at a time, decode as each does alone: the first, the first two, ... */
static void check_together(struct rig *r, int text_more)
{
    enum { STEPS = 2, STATES = T3_MAX_TOGETHER };
    struct t3_gpt2_state *states[STATES];
    float *alone = malloc(STATES * STEPS * 6563 * sizeof *alone), *seen = malloc(STATES * 6563 * sizeof *seen);
    int32_t tokens[STATES];
    states[0] = r->st;
    for (int i = 1; i < STATES; i++)
        assert_int_equal(t3_gpt2_state_create(&states[i], r->t3, r->device, 200, &e), UTTER_OK);
    for (int n = 0; n <= STATES; n++) { /* 0: alone */
        for (int i = 0; i < (n ? n : STATES); i++) {
            const struct t3_gpt2_voice v = {speaker, prompt, 15 * (3 - i)};
            assert_int_equal(t3_gpt2_begin(states[i], &v, NULL, text, 2 + i + text_more, &e), UTTER_OK);
            while (t3_gpt2_prefill(states[i], r->stream, 0) == UTTER_OK) continue;
        }
        for (int step = 0; step < STEPS; step++) {
            for (int i = 0; i < STATES; i++) tokens[i] = 100 * i + step;
            const struct observer o[STATES] = {{see_logits, seen},
                                               {see_logits, seen + 6563},
                                               {see_logits, seen + 2 * 6563},
                                               {see_logits, seen + 3 * 6563}};
            for (int i = 0; i < n; i++) t3_gpt2_observe(states[i], &o[i]);
            if (n) assert_int_equal(t3_gpt2_decode_many(states, n, r->stream, tokens), UTTER_OK);
            for (int i = 0; i < (n ? n : STATES); i++) {
                float *expected = alone + (step * STATES + i) * 6563;
                if (!n) {
                    assert_int_equal(t3_gpt2_decode(states[i], r->stream, tokens[i]), UTTER_OK);
                    memcpy(expected, t3_gpt2_logits(states[i]), 6563 * sizeof *expected);
                } else {
                    assert_memory_equal(t3_gpt2_logits(states[i]), expected, 6563 * sizeof *expected);
                    assert_memory_equal(seen + i * 6563, expected, 6563 * sizeof *expected);
                }
                t3_gpt2_observe(states[i], NULL);
            }
        }
    }
    for (int i = 1; i < STATES; i++) t3_gpt2_state_free(&states[i]);
    free(alone);
    free(seen);
}

static void together_is_as_alone(void **state)
{
    (void)state;
    for (int level = CPU_SCALAR; level <= CPU_NEON; level++)
        for (int threads = 1; threads <= 3; threads++) {
            struct rig r;
            if (!rig_open_level(&r, (enum cpu_level)level, threads, 200)) continue;
            check_together(&r, 0);          /* from the file */
            check_together(&r, N_TEXT - 5); /* moved */
            rig_close(&r);
        }
}

static void what_cannot_go_together_is_refused(void **state)
{
    (void)state;
    struct rig r, foreign;
    rig_open(&r, 1, 100);
    rig_open(&foreign, 1, 100);
    float *expected = speak(&r, &voice, NULL, 10, 0);
    free(speak(&foreign, &voice, NULL, 10, 0));
    struct t3_gpt2_state *second, *const twice[] = {r.st, r.st}, *const strangers[] = {r.st, foreign.st};
    assert_int_equal(t3_gpt2_state_create(&second, r.t3, r.device, 100, &e), UTTER_OK);
    struct t3_gpt2_state *const pair[] = {r.st, second};
    const int32_t tokens[T3_MAX_TOGETHER + 1] = {1, 2}, wrong[] = {1, 6563};
    const int room = t3_gpt2_room(r.st);
    assert_int_equal(t3_gpt2_decode_many(twice, 2, r.stream, tokens), UTTER_INVALID_ARGUMENT);
    stream_clear(r.stream);
    assert_int_equal(t3_gpt2_decode_many(strangers, 2, r.stream, tokens), UTTER_INVALID_ARGUMENT);
    stream_clear(r.stream);
    assert_int_equal(t3_gpt2_decode_many(pair, 0, r.stream, tokens), UTTER_INVALID_ARGUMENT);
    stream_clear(r.stream);
    assert_int_equal(t3_gpt2_decode_many(pair, T3_MAX_TOGETHER + 1, r.stream, tokens), UTTER_INVALID_ARGUMENT);
    stream_clear(r.stream);
    assert_int_equal(t3_gpt2_begin(second, &voice, NULL, text, 10, &e), UTTER_OK);
    assert_int_equal(t3_gpt2_decode_many(pair, 2, r.stream, tokens), UTTER_INVALID_STATE);
    stream_clear(r.stream);
    while (t3_gpt2_prefill(second, r.stream, 0) == UTTER_OK) continue;
    assert_int_equal(t3_gpt2_decode_many(pair, 2, r.stream, wrong), UTTER_INVALID_ARGUMENT);
    stream_clear(r.stream);
    assert_int_equal(t3_gpt2_room(r.st), room);
    assert_int_equal(t3_gpt2_decode_many(pair, 2, r.stream, tokens), UTTER_OK);
    assert_int_equal(t3_gpt2_room(r.st), room - 1);
    t3_gpt2_state_free(&second);
    rig_close(&foreign);
    rig_close(&r);
    free(expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_but_the_request_decides),    cmocka_unit_test(cancelling_leaves_no_trace),
        cmocka_unit_test(limits_are_refused_not_read),        cmocka_unit_test(two_states_share_a_network_and_a_prefix),
        cmocka_unit_test(moving_the_weights_changes_nothing), cmocka_unit_test(what_cannot_go_together_is_refused),
    };
    const struct CMUnitTest together[] = {cmocka_unit_test(together_is_as_alone)};
    static const enum dtype types[] = {DTYPE_F16, DTYPE_BF16, DTYPE_Q4_0, DTYPE_Q8_0};
    int failed = 0;
    for (precision = PRECISION_F32; precision <= PRECISION_FAST; precision++)
        failed += cmocka_run_group_tests_name("t3_state", tests, group_setup, group_teardown) +
                  cmocka_run_group_tests_name("t3_state q8_0", tests, blocks_setup, group_teardown);
    precision = PRECISION_F32;
    failed += cmocka_run_group_tests_name("t3_state together f32", together, group_setup, group_teardown);
    for (int i = 0; i < 4; i++) {
        blocks_type = types[i];
        failed += cmocka_run_group_tests_name(dtype_name(types[i]), together, blocks_setup, group_teardown);
    }
    return failed;
}
