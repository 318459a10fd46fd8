/* Memory that runs out anywhere between opening a model and the last sample: a clean status each time, and nothing lost (the
 * leak checker of the asan build looks). The one API test that looks inside: it needs mem_fail_after. */
#include "mini.h"

#include "base/mem.h"

static char error[512]; /* of the last failure */

/* One whole life; the first failure ends it. Frees everything. */
static utter_status one_life(void)
{
    error[0] = '\0';
    utter_model_options o;
    utter_model_options_init(&o);
    o.n_threads = 2;
    utter_model *m = NULL;
    utter_task *t = NULL;
    utter_status s = utter_model_open(&m, MINI_MODEL, &o, error, sizeof error);
    if (s == UTTER_OK) s = utter_task_create(&t, m, error, sizeof error);
    if (s == UTTER_OK) {
        utter_request r = request_for(m, "Out. Of memory.");
        r.max_tokens = 2;
        r.cfm_steps = 1;
        r.stream = UTTER_STREAM_ON;
        r.stream_first_chunk_tokens = 1;
        s = utter_task_start(t, &r);
        if (s == UTTER_OK) s = step_to_end(t, NULL);
        if (s < 0) snprintf(error, sizeof error, "%s", utter_task_last_error(t));
    }
    if (s < 0) assert_true(error[0]);
    utter_task_free(&t);
    utter_model_close(&m);
    return s;
}

static void any_allocation_may_fail(void **state)
{
    (void)state;
    int n_failed = 0;
    for (long n = 1;;
         n += n < 40 ? 1 : n / 12) { /* the first ones one by one, then in growing strides: there are thousands */
        mem_fail_after(n);
        const utter_status s = one_life();
        mem_fail_after(0);
        if (s == UTTER_DONE) break;
        if (s != UTTER_OUT_OF_MEMORY) fail_msg("allocation %ld: %s: %s", n, utter_status_text(s), error);
        n_failed++;
    }
    assert_true(n_failed > 50);
    assert_int_equal(one_life(), UTTER_DONE);
}

/* The same in the steps alone, one by one: where there is no memory to make the tokens of several pieces together, or to begin a queued
 * one, the task goes on as far as it would have come alone. */
static void any_allocation_of_pieces_may_fail(void **state)
{
    (void)state;
    utter_model *m = open_mini(2);
    utter_request r = request_for(m, "Out. Of memory. Once. More.");
    r.max_tokens = 2;
    r.cfm_steps = 1;
    struct sound whole = speak_fresh(m, &r);
    int n_failed = 0;
    utter_status s = UTTER_OK;
    for (long n = 1; s != UTTER_DONE; n++) {
        utter_task *t = new_task(m);
        assert_int_equal(utter_task_start(t, &r), UTTER_OK);
        mem_fail_after(n);
        s = step_to_end(t, NULL);
        mem_fail_after(0);
        if (s != UTTER_DONE && s != UTTER_OUT_OF_MEMORY) fail_msg("allocation %ld: %s", n, utter_status_text(s));
        n_failed += s != UTTER_DONE;
        struct sound again = speak_on(t, &r);
        assert_same_sound(whole, again);
        free(again.samples);
        utter_task_free(&t);
    }
    assert_true(n_failed > 20);
    free(whole.samples);
    utter_model_close(&m);
}

/* A voice of one second, saved and loaded; the networks that listen were bound by an earlier one. */
static utter_status one_voice(utter_model *m, const float *samples, size_t n, const char *path)
{
    utter_voice *v = NULL, *loaded = NULL;
    utter_voice_options o;
    utter_voice_options_init(&o);
    o.name = "n", o.license = "l", o.keep_audio = 1;
    utter_status s = utter_voice_make(&v, m, samples, n, 24000, &o, error, sizeof error);
    if (s == UTTER_OK) s = utter_voice_save(v, path, error, sizeof error);
    if (s == UTTER_OK) s = utter_voice_load(&loaded, m, path, NULL, error, sizeof error);
    if (s < 0) assert_true(error[0]);
    utter_voice_free(&v);
    utter_voice_free(&loaded);
    return s;
}

static void any_allocation_of_a_voice_may_fail(void **state)
{
    (void)state;
    enum { N = 24000 };
    static float samples[N];
    const char *path = "alloc_failures.voice";
    for (int i = 0; i < N; i++) samples[i] = (float)(i % 200) / 1000 - 0.1f;
    utter_model *m = open_mini(2);
    assert_int_equal(one_voice(m, samples, N, path), UTTER_OK);
    int n_failed = 0;
    for (long n = 1;; n += 1 + n / 20) {
        mem_fail_after(n);
        const utter_status s = one_voice(m, samples, N, path);
        mem_fail_after(0);
        if (s == UTTER_OK) break;
        if (s != UTTER_OUT_OF_MEMORY) fail_msg("allocation %ld: %s: %s", n, utter_status_text(s), error);
        n_failed++;
    }
    assert_true(n_failed > 20);
    remove(path);
    utter_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_allocation_may_fail),
                                       cmocka_unit_test(any_allocation_of_pieces_may_fail),
                                       cmocka_unit_test(any_allocation_of_a_voice_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
