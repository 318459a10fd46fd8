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
    return checkpoint_open(&ck, folder, NULL, &e);
}

/* The same network in q8_0: few-row products in 8 bits, and a cache in f16. */
static char blocks_path[80];

static int blocks_setup(void **state)
{
    if (group_setup(state) != 0) return -1;
    struct convert_options o = {0};
    struct convert_report report;
    convert_types(&o, DTYPE_Q8_0);
    snprintf(blocks_path, sizeof blocks_path, "%s/q8_0.gguf", folder);
    if (convert_checkpoint(ck, blocks_path, &o, &report, &e) != UTTER_OK) return -1;
    checkpoint_close(&ck);
    return checkpoint_open(&ck, blocks_path, NULL, &e);
}

static int group_teardown(void **state)
{
    (void)state;
    checkpoint_close(&ck);
    if (blocks_path[0]) unlink(blocks_path);
    hashfill_remove_folder(folder);
    return 0;
}

static void rig_open(struct rig *r, int n_threads, int n_positions)
{
    *r = (struct rig){0};
    const struct device_options o = {.n_threads = n_threads, .precision = precision};
    assert_int_equal(device_create_cpu(&r->device, &o, &e), UTTER_OK);
    assert_int_equal(stream_create(&r->stream, r->device, &r->cancel, (size_t)1 << 30, &e), UTTER_OK);
    r->binder = (struct binder){.checkpoint = ck, .device = r->device, .error = &e};
    assert_int_equal(t3_gpt2_load(&r->t3, &r->binder), UTTER_OK);
    assert_int_equal(t3_gpt2_state_create(&r->st, r->t3, r->device, n_positions, &e), UTTER_OK);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_but_the_request_decides),    cmocka_unit_test(cancelling_leaves_no_trace),
        cmocka_unit_test(limits_are_refused_not_read),        cmocka_unit_test(two_states_share_a_network_and_a_prefix),
        cmocka_unit_test(moving_the_weights_changes_nothing),
    };
    int failed = 0;
    for (precision = PRECISION_F32; precision <= PRECISION_FAST; precision++)
        failed += cmocka_run_group_tests_name("t3_state", tests, group_setup, group_teardown) +
                  cmocka_run_group_tests_name("t3_state q8_0", tests, blocks_setup, group_teardown);
    return failed;
}
