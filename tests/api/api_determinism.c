/* The same request gives the same bytes: any number of threads, any history, beside other tasks (D-*, R12, R13, R60, R89). */
#include "mini.h"

#include <pthread.h>

static utter_model *model;

static int set_up(void **state)
{
    (void)state;
    model = open_mini(2);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    utter_model_close(&model);
    return 0;
}

static void any_number_of_threads(void **state)
{
    (void)state;
    const utter_request r = request_for(NULL, "As many threads as you like.");
    struct sound first = {0};
    for (int n = 1; n <= 4; n++) {
        utter_model *m = open_mini(n);
        struct sound s = speak_fresh(m, &r);
        if (n == 1)
            first = s;
        else {
            assert_same_sound(first, s);
            free(s.samples);
        }
        utter_model_close(&m);
    }
    free(first.samples);
    const int bad[] = {-1, 10000};
    for (int i = 0; i < 2; i++) {
        utter_model_options o;
        utter_model_options_init(&o);
        o.n_threads = bad[i];
        utter_model *m;
        char error[256];
        assert_int_equal(utter_model_open(&m, MINI_MODEL, &o, error, sizeof error), UTTER_INVALID_ARGUMENT);
        assert_non_null(strstr(error, "threads"));
    }
}

static void history_does_not_matter(void **state)
{
    (void)state;
    utter_task *t = new_task(model);
    const utter_request b = request_for(model, "I had a cat.");
    const utter_request a =
        request_for(model, "I had a cat and a dog, and both of them slept on the warm stove all day. Truly.");
    struct sound fresh = speak_fresh(model, &b);
    for (int i = 0; i < 5; i++) {
        struct sound other = speak_on(t, &a), again = speak_on(t, &b);
        assert_same_sound(fresh, again);
        free(other.samples);
        free(again.samples);
    }
    free(fresh.samples);
    utter_task_free(&t);
}

static int prompt_steps(utter_task *t, const utter_request *r)
{
    utter_progress p = {.struct_size = sizeof p, .state = UTTER_STATE_PROMPT};
    int n = 0;
    assert_int_equal(utter_task_start(t, r), UTTER_OK);
    for (; p.state == UTTER_STATE_PROMPT; n++) assert_true(utter_task_step(t, &p) >= 0);
    assert_int_equal(step_to_end(t, &p), UTTER_DONE);
    return n;
}

/* What the first utterance computed of the voice's prompt serves the second one, and the sound is the same. */
static void the_voice_is_computed_once(void **state)
{
    (void)state;
    utter_model *m = open_mini(2);
    utter_task *t = new_task(m);
    const utter_request r = request_for(m, "Once.");
    const int first = prompt_steps(t, &r);
    struct sound a = read_sound(t);
    assert_int_equal(prompt_steps(t, &r), 1);
    struct sound b = read_sound(t);
    assert_true(first > 1);
    assert_same_sound(a, b);
    free(a.samples);
    free(b.samples);
    utter_task_free(&t);
    utter_model_close(&m);
}

/* How the prompt is cut into batches does not change it. */
static void prompt_batches_do_not_matter(void **state)
{
    (void)state;
    utter_task *t = new_task(model);
    utter_request r =
        request_for(model, "A prompt of a good length, so that it can be cut into several batches of rows at all.");
    struct sound whole = speak_on(t, &r);
    const int sizes[] = {1, 17, 64};
    for (int i = 0; i < 3; i++) {
        r.prompt_batch_size = sizes[i];
        struct sound s = speak_on(t, &r);
        assert_same_sound(whole, s);
        free(s.samples);
    }
    free(whole.samples);
    utter_task_free(&t);
}

/* A piece of a long text does not depend on the pieces before it: the second sentence alone differs only in its seed, so its length
 * in a text is that of any other place. */
static void pieces_follow_each_other_with_silence_between(void **state)
{
    (void)state;
    utter_task *t = new_task(model);
    utter_request r =
        request_for(model, "This is the first sentence. This is the second sentence. And this one is the third.");
    r.sentence_silence = 0.25f;
    utter_progress p = {.struct_size = sizeof p};
    assert_int_equal(utter_task_start(t, &r), UTTER_OK);
    assert_int_equal(step_to_end(t, &p), UTTER_DONE);
    struct sound s = read_sound(t);
    assert_true(p.pieces >= 1);
    assert_int_equal(s.n, (size_t)p.pieces * 960 * (size_t)(r.max_tokens + 3) + (size_t)(p.pieces - 1) * 6000);
    for (int i = 1; i < p.pieces; i++) {
        const size_t gap = (size_t)i * 960 * (size_t)(r.max_tokens + 3) + (size_t)(i - 1) * 6000;
        for (size_t k = 0; k < 6000; k++) assert_true(s.samples[gap + k] == 0);
    }
    free(s.samples);
    utter_task_free(&t);
}

/* How many tokens there are when the first chunk, asked for with n_asked, becomes sound. */
static void assert_first_sound_after(utter_task *t, const utter_request *request, int n_asked, int n_tokens)
{
    utter_request r = *request;
    utter_progress p = {.struct_size = sizeof p};
    r.stream_first_chunk_tokens = n_asked;
    r.stream_chunk_tokens = 20;
    assert_int_equal(utter_task_reset(t), UTTER_OK);
    assert_int_equal(utter_task_start(t, &r), UTTER_OK);
    while (utter_task_step(t, &p) == UTTER_OK) continue;
    assert_true(p.samples_ready > 0);
    assert_int_equal(p.tokens_generated, n_tokens);
    assert_int_equal(utter_task_reset(t), UTTER_OK);
}

static void streamed_chunks_join_to_a_whole(void **state)
{
    (void)state;
    utter_task *t = new_task(model);
    utter_request r = request_for(model, "Streamed.");
    r.max_tokens = 30;
    struct sound whole = speak_on(t, &r);
    r.stream = UTTER_STREAM_ON;
    r.stream_first_chunk_tokens = 6;
    r.stream_chunk_tokens = 9;
    struct sound streamed = speak_on(t, &r);
    struct sound again = speak_on(t, &r);
    assert_same_sound(streamed, again);
    assert_int_equal(whole.n, streamed.n); /* as long as in one piece (R52) */
    /* Sound comes before the last token does (R51). */
    utter_progress p = {.struct_size = sizeof p};
    assert_int_equal(utter_task_start(t, &r), UTTER_OK);
    while (utter_task_step(t, &p) == UTTER_OK) continue;
    assert_true(p.samples_ready > 0);
    assert_true(p.tokens_generated < 20);
    assert_first_sound_after(t, &r, 1, 10); /* not after a whole later chunk */
    assert_first_sound_after(t, &r, 10, 10);
    assert_first_sound_after(t, &r, 12, 12);
    r.stream = UTTER_STREAM_AUTO;
    assert_first_sound_after(t, &r, 1, 10);
    assert_int_equal(utter_task_reset(t), UTTER_OK);
    struct sound governed = speak_on(t, &r);
    assert_int_equal(whole.n, governed.n);
    free(whole.samples);
    free(streamed.samples);
    free(again.samples);
    free(governed.samples);
    utter_task_free(&t);
}

/* Tokens made beside sound are those that are made after it: at any number of threads, in chunks of any size, also where the piece ends
 * among them; one token is told a step. */
static void pipelining_changes_nothing(void **state)
{
    (void)state;
    const int first[] = {6, 11}, later[] = {4, 17};
    for (int i = 0; i < 2; i++) {
        struct sound serial = {0};
        for (int threads = 1; threads <= 3; threads++)
            for (int pipelined = 0; pipelined < 2; pipelined++) {
                utter_model *m = open_mini(threads);
                utter_task *t = new_task(m);
                utter_request r = request_for(m, "One sentence in chunks. And another one.");
                r.max_tokens = 40;
                r.stream = UTTER_STREAM_ON;
                r.stream_first_chunk_tokens = first[i];
                r.stream_chunk_tokens = later[i];
                r.stream_serial = !pipelined;
                utter_progress p = {.struct_size = sizeof p};
                int told = 0;
                utter_status s;
                assert_int_equal(utter_task_start(t, &r), UTTER_OK);
                do {
                    s = utter_task_step(t, &p);
                    assert_true(s >= 0 && p.tokens_generated <= told + 1);
                    told = p.tokens_generated;
                } while (s != UTTER_DONE);
                struct sound sound = read_sound(t);
                if (serial.samples) {
                    assert_same_sound(serial, sound);
                    free(sound.samples);
                } else {
                    serial = sound;
                }
                utter_task_free(&t);
                utter_model_close(&m);
            }
        free(serial.samples);
    }
}

/* ---- two tasks at once ---- */

struct worker {
    utter_request request;
    struct sound sound;
};

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    w->sound = speak_fresh(model, &w->request);
    return NULL;
}

static void two_tasks_on_one_model(void **state)
{
    (void)state;
    struct worker w[2] = {{.request = request_for(model, "I am the one.")},
                          {.request = request_for(model, "And I am another, with more to say.")}};
    struct sound alone[2];
    for (int i = 0; i < 2; i++) { /* in chunks: both want a thread for their next tokens */
        w[i].request.max_tokens = 24;
        w[i].request.stream = UTTER_STREAM_ON;
        w[i].request.stream_first_chunk_tokens = w[i].request.stream_chunk_tokens = 7;
    }
    for (int i = 0; i < 2; i++) alone[i] = speak_fresh(model, &w[i].request);
    for (int round = 0; round < 3; round++) {
        pthread_t threads[2];
        for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, worker_main, &w[i]), 0);
        for (int i = 0; i < 2; i++) {
            pthread_join(threads[i], NULL);
            assert_same_sound(alone[i], w[i].sound);
            free(w[i].sound.samples);
        }
    }
    for (int i = 0; i < 2; i++) free(alone[i].samples);
}

/* R91: two models loading at once. */
static void *open_and_close(void *arg)
{
    (void)arg;
    for (int i = 0; i < 3; i++) {
        utter_model *m = open_mini(2);
        utter_model_close(&m);
    }
    return NULL;
}

static void two_models_load_at_once(void **state)
{
    (void)state;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, open_and_close, NULL), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

/* R13: short texts of every kind, one after the other. */
static void many_short_texts(void **state)
{
    (void)state;
    utter_task *t = new_task(model);
    unsigned random = 12345;
    for (int i = 0; i < 25; i++) {
        char text[32];
        random = random * 1664525u + 1013904223u;
        const int n = 1 + (int)(random >> 16) % 25;
        for (int k = 0; k < n; k++) {
            random = random * 1664525u + 1013904223u;
            text[k] = (char)(32 + (random >> 16) % 95);
        }
        text[n] = '\0';
        utter_request r = request_for(model, text);
        r.max_tokens = 2;
        const utter_status s = utter_task_start(t, &r);
        if (s == UTTER_NOTHING_TO_SPEAK) continue;
        assert_int_equal(s, UTTER_OK);
        if (step_to_end(t, NULL) != UTTER_DONE) fail_msg("\"%s\": %s", text, utter_task_last_error(t));
    }
    utter_task_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_threads),
        cmocka_unit_test(history_does_not_matter),
        cmocka_unit_test(the_voice_is_computed_once),
        cmocka_unit_test(prompt_batches_do_not_matter),
        cmocka_unit_test(pieces_follow_each_other_with_silence_between),
        cmocka_unit_test(streamed_chunks_join_to_a_whole),
        cmocka_unit_test(pipelining_changes_nothing),
        cmocka_unit_test(two_tasks_on_one_model),
        cmocka_unit_test(two_models_load_at_once),
        cmocka_unit_test(many_short_texts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
