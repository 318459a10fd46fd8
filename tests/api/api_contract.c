/* The task contract: lifecycle, arguments, progress, results (A-*, F-1, B-*, V-1 to V-3). */
#include "mini.h"

#include <math.h>

static utter_model *model;

static int open_model(void **state)
{
    (void)state;
    model = open_mini(1);
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    utter_model_close(&model);
    return model != NULL;
}

static void null_is_safe(void **state)
{
    (void)state;
    size_t n;
    utter_progress p = {.struct_size = sizeof p};
    utter_output_info info = {.struct_size = sizeof info};
    utter_request r = request_for(model, "x");
    signed char flag = 0;
    utter_task *none = NULL;
    utter_task_cancel(NULL);
    utter_task_free(NULL);
    utter_task_free(&none);
    utter_model_close(NULL);
    assert_int_equal(utter_task_start(NULL, &r), UTTER_INVALID_ARGUMENT); /* */
    assert_int_equal(utter_task_step(NULL, &p), UTTER_INVALID_ARGUMENT);
    assert_int_equal(utter_task_progress(NULL, &p), UTTER_INVALID_ARGUMENT);
    assert_int_equal(utter_task_set_cancel_flag(NULL, &flag), UTTER_INVALID_ARGUMENT); /* F-1 */
    assert_int_equal(utter_task_reset(NULL), UTTER_INVALID_ARGUMENT);                  /* */
    assert_int_equal(utter_task_pull(NULL, NULL, 0, &n), UTTER_INVALID_ARGUMENT);
    assert_int_equal(utter_task_read(NULL, 0, NULL, 0, &n), UTTER_INVALID_ARGUMENT);
    assert_int_equal(utter_task_output_info(NULL, &info), UTTER_INVALID_ARGUMENT);
    assert_int_equal(utter_task_create(NULL, model, NULL, 0), UTTER_INVALID_ARGUMENT);
    assert_int_equal(utter_task_create(&none, NULL, NULL, 0), UTTER_INVALID_ARGUMENT);
    assert_string_equal(utter_task_last_error(NULL), "no task");
    assert_non_null(strchr(utter_version(), '.'));
    assert_string_equal(utter_status_text(UTTER_CANCELLED), "cancelled");
    assert_string_equal(utter_status_text((utter_status)-999), "unknown status");
}

static void the_model_tells_what_it_is(void **state)
{
    (void)state;
    utter_model_info info = {.struct_size = sizeof info};
    assert_int_equal(utter_model_get_info(model, &info), UTTER_OK);
    assert_string_equal(info.family, "chatterbox");
    assert_int_equal(info.sample_rate, 24000);
    assert_int_equal(info.channels, 1);
    assert_int_equal(info.n_threads, 1);
    assert_true(info.capabilities & UTTER_HAS_BUILT_IN_VOICE);
    utter_model_info unset = {0};
    assert_int_equal(utter_model_get_info(model, &unset), UTTER_INVALID_ARGUMENT); /* */
    char error[256];
    utter_model *none = (utter_model *)&info;
    assert_int_equal(utter_model_open(&none, "no/such/model", NULL, error, sizeof error), UTTER_MODEL_NOT_FOUND);
    assert_null(none);
    assert_non_null(strstr(error, "no/such/model"));
    assert_int_equal(utter_model_open(&none, "", NULL, error, sizeof error), UTTER_MODEL_NOT_FOUND);
    assert_null(none);
    assert_non_null(strstr(error, "empty"));
}

/* each bad field is named, and neither the state nor a completed result changes. */
static void a_bad_request_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    utter_task *t = new_task(model);
    utter_request good = request_for(model, "Good text.");
    struct sound sound = speak_on(t, &good);
    utter_request bad[40];
    const char *name[40];
    int n = 0;
#define BAD(field, value) bad[n] = good, bad[n].field = (value), name[n++] = #field
    BAD(text, NULL);
    BAD(text_length, 0);
    BAD(prompt_batch_size, 0);
    BAD(prompt_batch_size, -1);
    BAD(max_tokens, 1002);
    BAD(max_tokens, -5);
    BAD(top_k, -1);
    BAD(top_p, NAN);
    BAD(top_p, -0.1f);
    BAD(top_p, 1.1f);
    BAD(min_p, INFINITY);
    BAD(min_p, 1.5f);
    BAD(temperature, NAN);
    BAD(temperature, -1);
    BAD(temperature, INFINITY);
    BAD(repetition_penalty, 0);
    BAD(repetition_penalty, NAN);
    BAD(exaggeration, -1);
    BAD(cfg_weight, NAN);
    BAD(cfm_steps, 0);
    BAD(stream, 9);
    BAD(stream_first_chunk_tokens, 0);
    BAD(stream_chunk_tokens, -1);
    BAD(stream_context_tokens, -1);
    BAD(stream_first_prompt_tokens, -1);
    BAD(sentence_silence, -1);
    BAD(sentence_silence, NAN);
    BAD(drop_pulled, 2);
    BAD(stream_serial, 3);
    BAD(struct_size, 0);
#undef BAD
    for (int i = 0; i < n; i++) {
        if (utter_task_start(t, &bad[i]) != UTTER_INVALID_ARGUMENT)
            fail_msg("%s of request %d was accepted", name[i], i);
        const char *field = strcmp(name[i], "text_length") == 0 ? "text" : name[i];
        if (!strstr(utter_task_last_error(t), field)) fail_msg("%s: %s", field, utter_task_last_error(t));
    }
    assert_int_equal(utter_task_start(t, NULL), UTTER_INVALID_ARGUMENT);
    utter_request silent = request_for(model, "... !? \xe3\x80\x82");
    assert_int_equal(utter_task_start(t, &silent), UTTER_NOTHING_TO_SPEAK); /* R14 */
    utter_request broken = request_for(model, "bad \xff byte");
    assert_int_equal(utter_task_start(t, &broken), UTTER_INVALID_ARGUMENT);
    struct sound again = read_sound(t);
    assert_same_sound(sound, again);
    free(again.samples);
    free(sound.samples);
    utter_task_free(&t);
}

/* An init function fills what its caller was compiled with: an older struct is not written past its end, a newer one's
 * tail is zero, and either is accepted as it comes out. */
static void init_writes_the_callers_size(void **state)
{
    (void)state;
    union {
        utter_request r;
        utter_model_options m;
        utter_voice_options v;
        unsigned char bytes[sizeof(utter_request) + 16];
    } u;
    const size_t sizes[] = {offsetof(utter_request, seed), offsetof(utter_request, stream_serial), sizeof u};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memset(&u, 0xA5, sizeof u);
        utter_request_init_sized(&u.r, sizes[i], model);
        assert_int_equal(u.r.struct_size, sizes[i]);
        assert_int_equal(u.r.prompt_batch_size, 512);
        for (size_t k = sizes[i]; k < sizeof u; k++) assert_int_equal(u.bytes[k], 0xA5);
        for (size_t k = sizeof u.r; k < sizes[i]; k++) assert_int_equal(u.bytes[k], 0);
        u.r.text = "Hi.";
        u.r.text_length = 3;
        utter_task *t = new_task(model);
        assert_int_equal(utter_task_start(t, &u.r), UTTER_OK);
        utter_task_free(&t);
    }
    memset(&u, 0xA5, sizeof u);
    utter_model_options_init_sized(&u.m, offsetof(utter_model_options, log));
    assert_int_equal(u.m.struct_size, offsetof(utter_model_options, log));
    assert_true(u.bytes[offsetof(utter_model_options, log)] == 0xA5 && u.m.n_threads == 0);
    utter_voice_options_init_sized(&u.v, sizeof(uint32_t) - 1); /* no room for its size: nothing */
    assert_int_equal(u.bytes[sizeof u - 1], 0xA5);
    assert_int_equal(u.m.struct_size, offsetof(utter_model_options, log));
}

/* The bounds belong to the range, also where a float is not the decimal number. */
static void bounds_are_accepted(void **state)
{
    (void)state;
    utter_task *t = new_task(model);
    utter_request r = request_for(model, "Hi.");
    r.repetition_penalty = 0.01f;
    r.max_tokens = 1;
    assert_int_equal(utter_task_start(t, &r), UTTER_OK);
    assert_int_equal(step_to_end(t, NULL), UTTER_DONE);
    r.repetition_penalty = 0.0099f;
    assert_int_equal(utter_task_start(t, &r), UTTER_INVALID_ARGUMENT);
    utter_task_free(&t);
}

/* An older caller's struct ends earlier; a newer one's is longer. */
static void structs_of_other_versions(void **state)
{
    (void)state;
    utter_task *t = new_task(model);
    utter_request r = request_for(model, "Versions.");
    struct sound whole = speak_on(t, &r);
    utter_request old = r;
    old.struct_size = offsetof(utter_request, repetition_penalty);
    old.repetition_penalty = NAN; /* not looked at: the default stands */
    struct sound from_old = speak_on(t, &old);
    assert_same_sound(whole, from_old);
    struct {
        utter_request r;
        uint64_t tail;
    } newer = {.r = r};
    newer.r.struct_size = sizeof newer;
    struct sound from_newer = speak_on(t, &newer.r);
    assert_same_sound(whole, from_newer);
    newer.tail = 1;
    assert_int_equal(utter_task_start(t, &newer.r), UTTER_INVALID_ARGUMENT);
    struct {
        utter_progress p;
        uint64_t tail;
    } wide = {.p = {.struct_size = sizeof wide}, .tail = 99};
    assert_int_equal(utter_task_progress(t, &wide.p), UTTER_OK);
    assert_int_equal(wide.tail, 0);
    utter_progress narrow = {.struct_size = offsetof(utter_progress, pieces), .pieces = -7};
    assert_int_equal(utter_task_progress(t, &narrow), UTTER_OK);
    assert_int_equal(narrow.state, UTTER_STATE_COMPLETED);
    assert_int_equal(narrow.pieces, -7);
    free(whole.samples);
    free(from_old.samples);
    free(from_newer.samples);
    utter_task_free(&t);
}

/* a step tells the state even when it is refused. */
static void steps_outside_a_run(void **state)
{
    (void)state;
    utter_task *t = new_task(model);
    utter_progress p = {.struct_size = sizeof p, .state = 77}, unset = {0};
    assert_int_equal(utter_task_step(t, &p), UTTER_INVALID_STATE);
    assert_int_equal(p.state, UTTER_STATE_IDLE);
    utter_request r = request_for(model, "Once.");
    assert_int_equal(utter_task_start(t, &r), UTTER_OK);
    assert_int_equal(utter_task_step(t, &unset), UTTER_INVALID_ARGUMENT);
    assert_int_equal(utter_task_start(t, &r), UTTER_INVALID_STATE); /* the running one goes on */
    assert_int_equal(utter_task_start(t, NULL), UTTER_INVALID_STATE);
    assert_int_equal(step_to_end(t, &p), UTTER_DONE);
    assert_int_equal(p.state, UTTER_STATE_COMPLETED);
    assert_int_equal(utter_task_step(t, &p), UTTER_INVALID_STATE);
    assert_int_equal(p.state, UTTER_STATE_COMPLETED);
    assert_int_equal(utter_task_step(t, NULL), UTTER_INVALID_STATE);
    utter_task_free(&t);
}

/* prompt in batches, at most one token a step, counts that never fall, truncation told. */
static void a_run_step_by_step(void **state)
{
    (void)state;
    utter_task *t = new_task(model);
    utter_request r = request_for(
        model, "A sentence that is long enough for more than one batch of the prompt, for batches are never "
               "smaller than sixteen rows and its voice has a batch of its own as well.");
    r.prompt_batch_size = 16;
    r.max_tokens = 11;
    assert_int_equal(utter_task_start(t, &r), UTTER_OK);
    utter_progress p = {.struct_size = sizeof p};
    int prompt_steps = 0, tokens = 0, remaining = 1 << 20;
    int64_t samples = 0;
    for (utter_status s = UTTER_OK; s != UTTER_DONE;) {
        s = utter_task_step(t, &p);
        assert_true(s >= 0);
        if (p.state == UTTER_STATE_PROMPT) {
            prompt_steps++;
            assert_true(p.prompt_tokens_remaining < remaining);
            remaining = p.prompt_tokens_remaining;
        }
        assert_in_range(p.tokens_generated, tokens, tokens + 1);
        assert_true(p.samples_ready >= samples);
        assert_int_equal(s == UTTER_AUDIO, p.samples_ready > samples);
        tokens = p.tokens_generated;
        samples = p.samples_ready;
        assert_int_equal(p.seed, 7);
    }
    assert_true(prompt_steps >= 2);
    assert_int_equal(tokens, 11);
    assert_int_equal(p.truncated, 1);
    assert_int_equal(p.text_bytes_done, r.text_length);
    assert_int_equal(p.pieces_done, p.pieces);
    utter_output_info info = {.struct_size = sizeof info};
    assert_int_equal(utter_task_output_info(t, &info), UTTER_OK);
    assert_int_equal(info.sample_count, samples);
    assert_int_equal(info.sample_count, 960 * (11 + 3)); /* three tokens of silence are appended */
    assert_int_equal(info.truncated, 1);
    assert_int_equal(info.seed, 7);
    utter_task_free(&t);
}

/* A-12 and the pull of samples. */
static void reading_results(void **state)
{
    (void)state;
    utter_task *t = new_task(model);
    utter_request r = request_for(model, "Read me. And me.");
    float buffer[1000], *pulled = NULL;
    size_t n, total = 0, n_pulled = 0;
    utter_output_info info = {.struct_size = sizeof info};
    assert_int_equal(utter_task_read(t, 0, NULL, 0, &n), UTTER_INVALID_STATE);
    assert_int_equal(utter_task_output_info(t, &info), UTTER_INVALID_STATE);
    assert_int_equal(utter_task_pull(t, buffer, 1000, &n), UTTER_INVALID_STATE);
    assert_int_equal(utter_task_start(t, &r), UTTER_OK);
    assert_int_equal(utter_task_read(t, 0, NULL, 0, &n), UTTER_INVALID_STATE);
    utter_status s;
    do {
        s = utter_task_step(t, NULL);
        assert_true(s >= 0);
        do {
            assert_int_equal(utter_task_pull(t, buffer, 1000, &n), UTTER_OK);
            pulled = realloc(pulled, (n_pulled + n + 1) * sizeof *pulled);
            memcpy(pulled + n_pulled, buffer, n * sizeof *pulled);
            n_pulled += n;
        } while (n > 0);
    } while (s != UTTER_DONE);
    assert_int_equal(utter_task_read(t, 0, NULL, 0, &total), UTTER_OK);
    assert_int_equal(n_pulled, total);
    struct sound whole = read_sound(t);
    assert_memory_equal(pulled, whole.samples, total * sizeof *pulled);
    assert_int_equal(utter_task_read(t, -1, buffer, 10, &n), UTTER_INVALID_ARGUMENT);
    assert_int_equal(utter_task_read(t, (int64_t)total + 1, buffer, 10, &n), UTTER_INVALID_ARGUMENT);
    assert_int_equal(utter_task_read(t, (int64_t)total, buffer, 10, &n), UTTER_OK);
    assert_int_equal(n, 0);
    assert_int_equal(utter_task_read(t, 5, buffer, 10, &n), UTTER_OK);
    assert_int_equal(n, 10);
    assert_memory_equal(buffer, whole.samples + 5, 10 * sizeof *buffer);
    assert_int_equal(utter_task_reset(t), UTTER_OK);
    assert_int_equal(utter_task_read(t, 0, NULL, 0, &n), UTTER_INVALID_STATE);
    free(pulled);
    free(whole.samples);
    utter_task_free(&t);
}

static void dropping_what_was_pulled(void **state)
{
    (void)state;
    utter_task *t = new_task(model);
    utter_request r = request_for(model, "One. Two. Three.");
    struct sound whole = speak_on(t, &r);
    r.drop_pulled = 1;
    assert_int_equal(utter_task_start(t, &r), UTTER_OK);
    float buffer[777];
    size_t n, at = 0;
    utter_status s;
    do {
        s = utter_task_step(t, NULL);
        assert_true(s >= 0);
        while (utter_task_pull(t, buffer, 777, &n) == UTTER_OK && n > 0) {
            assert_true(at + n <= whole.n);
            assert_memory_equal(buffer, whole.samples + at, n * sizeof *buffer);
            at += n;
        }
    } while (s != UTTER_DONE);
    assert_int_equal(at, whole.n);
    assert_int_equal(utter_task_read(t, 0, NULL, 0, &n), UTTER_INVALID_STATE);
    free(whole.samples);
    utter_task_free(&t);
}

/* Everything in a request may be gone once start has returned. */
static void the_request_is_copied(void **state)
{
    (void)state;
    utter_task *t = new_task(model);
    char *text = strdup("Copied text is safe.");
    utter_request r = request_for(model, text);
    struct sound a = speak_on(t, &r);
    assert_int_equal(utter_task_start(t, &r), UTTER_OK);
    memset(text, 'x', strlen(text));
    free(text);
    assert_int_equal(step_to_end(t, NULL), UTTER_DONE);
    struct sound b = read_sound(t);
    assert_same_sound(a, b);
    free(a.samples);
    free(b.samples);
    utter_task_free(&t);
}

static void random_seeds_are_told(void **state)
{
    (void)state;
    utter_task *t = new_task(model);
    utter_request r = request_for(model, "Random.");
    r.seed = UTTER_SEED_RANDOM;
    utter_output_info info = {.struct_size = sizeof info};
    struct sound a = speak_on(t, &r);
    assert_int_equal(utter_task_output_info(t, &info), UTTER_OK);
    struct sound b = speak_on(t, &r);
    r.seed = info.seed;
    struct sound again = speak_on(t, &r);
    assert_same_sound(a, again);
    assert_true(a.n != b.n || memcmp(a.samples, b.samples, a.n * sizeof *a.samples) != 0);
    free(a.samples);
    free(b.samples);
    free(again.samples);
    utter_task_free(&t);
}

/* no token at all is an error, never an empty success.: a failed task is not active and can start again. */
static void a_model_that_says_nothing(void **state)
{
    (void)state;
    utter_model *mute = open_path(MINI_MODEL "-mute", 1);
    utter_task *t = new_task(mute);
    utter_request r = request_for(mute, "Speak!");
    utter_progress p = {.struct_size = sizeof p};
    size_t n;
    for (int round = 0; round < 2; round++) {
        assert_int_equal(utter_task_start(t, &r), UTTER_OK);
        assert_int_equal(step_to_end(t, &p), UTTER_ENGINE);
        assert_int_equal(p.state, UTTER_STATE_FAILED);
        assert_non_null(strstr(utter_task_last_error(t), "Speak!"));
        assert_int_equal(utter_task_read(t, 0, NULL, 0, &n), UTTER_INVALID_STATE);
        assert_int_equal(utter_task_step(t, &p), UTTER_INVALID_STATE);
    }
    utter_task_free(&t);
    utter_model_close(&mute);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_is_safe),
        cmocka_unit_test(the_model_tells_what_it_is),
        cmocka_unit_test(a_bad_request_is_refused_and_changes_nothing),
        cmocka_unit_test(init_writes_the_callers_size),
        cmocka_unit_test(bounds_are_accepted),
        cmocka_unit_test(structs_of_other_versions),
        cmocka_unit_test(steps_outside_a_run),
        cmocka_unit_test(a_run_step_by_step),
        cmocka_unit_test(reading_results),
        cmocka_unit_test(dropping_what_was_pulled),
        cmocka_unit_test(the_request_is_copied),
        cmocka_unit_test(random_seeds_are_told),
        cmocka_unit_test(a_model_that_says_nothing),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
