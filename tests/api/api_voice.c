/* Voices through utter.h: made of samples and files, saved, loaded, shared, cancelled, refused (R36, R46). */
#include "mini.h"

#include <math.h>
#include <pthread.h>
#include <unistd.h>

enum { RATE = 24000, SECONDS = 2, N = RATE * SECONDS }; /* short: under sanitizers a second of sound takes seconds */

static utter_model *model;
static utter_voice *alices; /* made once, of `alice`, with notes */
static float alice[N], bob[N];
static char folder[] = "utter-voice-XXXXXX";
static char path[64], error[512];

/* Harmonics in syllables, with pauses: enough like speech. */
static void fill(float *x, double pitch)
{
    for (int i = 0; i < N; i++) {
        const double t = (double)i / RATE, syllable = fmax(0, sin(6.2831853 * 4 * t)), phrase = fmod(t, 2) < 1.6;
        double v = 0;
        for (int h = 1; h <= 12; h++) v += sin(6.2831853 * h * pitch * t) / h;
        x[i] = (float)(0.1 * v * syllable * phrase);
    }
}

static utter_voice *voice_of(utter_model *m, const float *samples, const utter_voice_options *o)
{
    utter_voice *v;
    const utter_status s = utter_voice_make(&v, m, samples, N, RATE, o, error, sizeof error);
    if (s != UTTER_OK) print_message("%s\n", error);
    assert_int_equal(s, UTTER_OK);
    return v;
}

static int set_up(void **state)
{
    (void)state;
    fill(alice, 200);
    fill(bob, 110);
    model = open_mini(2);
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/a.voice", folder);
    utter_voice_options o;
    utter_voice_options_init(&o);
    o.name = "Alice", o.transcript = "la la la", o.license = "CC0", o.consent = "she said so", o.keep_audio = 1;
    alices = voice_of(model, alice, &o);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    utter_voice_free(&alices);
    utter_model_close(&model);
    unlink(path);
    return rmdir(folder);
}

static struct sound speak_as(utter_model *m, const utter_voice *v)
{
    utter_request r = request_for(m, "A voice of my own.");
    r.voice = v;
    return speak_fresh(m, &r);
}

static bool same(struct sound a, struct sound b)
{
    return a.n == b.n && memcmp(a.samples, b.samples, a.n * sizeof *a.samples) == 0;
}

/* The reference matters, and nothing else does: A = A, A differs from B and from the built-in voice. */
static void a_b_a(void **state)
{
    (void)state;
    utter_voice *b = voice_of(model, bob, NULL), *again = voice_of(model, alice, NULL);
    struct sound as = speak_as(model, alices), bs = speak_as(model, b), agains = speak_as(model, again),
                 own = speak_as(model, NULL);
    assert_true(same(as, agains));
    assert_false(same(as, bs));
    assert_false(same(as, own));
    for (size_t i = 0; i < as.n; i++) assert_true(isfinite(as.samples[i]));
    free(as.samples), free(bs.samples), free(agains.samples), free(own.samples);
    utter_voice_free(&b), utter_voice_free(&again);
    assert_null(b);
}

/* One task, voices that come and go, often at the same address: nothing of a freed one is taken for the next one's. */
static void voices_come_and_go(void **state)
{
    (void)state;
    utter_task *t = new_task(model);
    utter_voice *bobs = voice_of(model, bob, NULL);
    struct sound expected[2] = {speak_as(model, alices), speak_as(model, bobs)};
    utter_voice_free(&bobs);
    for (int i = 0; i < 6; i++) {
        utter_voice *v = voice_of(model, i % 2 ? bob : alice, NULL);
        utter_request r = request_for(model, "A voice of my own.");
        r.voice = v;
        struct sound s = speak_on(t, &r);
        assert_same_sound(expected[i % 2], s);
        free(s.samples);
        utter_voice_free(&v);
    }
    assert_false(same(expected[0], expected[1]));
    free(expected[0].samples), free(expected[1].samples);
    utter_task_free(&t);
}

static void the_same_at_any_number_of_threads(void **state)
{
    (void)state;
    struct sound first = speak_as(model, alices); /* made and spoken with two */
    for (int n = 1; n <= 3; n += 2) {
        utter_model *m = open_mini(n);
        utter_voice *v = voice_of(m, alice, NULL);
        struct sound s = speak_as(m, v);
        assert_same_sound(first, s);
        free(s.samples);
        utter_voice_free(&v);
        utter_model_close(&m);
    }
    free(first.samples);
}

static void saved_and_loaded(void **state)
{
    (void)state;
    utter_voice *loaded;
    assert_int_equal(utter_voice_save(alices, path, error, sizeof error), UTTER_OK);
    assert_int_equal(utter_voice_load(&loaded, model, path, NULL, error, sizeof error), UTTER_OK);
    utter_voice_info was = {.struct_size = sizeof was}, is = {.struct_size = sizeof is};
    assert_int_equal(utter_voice_get_info(alices, &was), UTTER_OK);
    assert_int_equal(utter_voice_get_info(loaded, &is), UTTER_OK);
    assert_string_equal(is.name, "Alice");
    assert_string_equal(is.transcript, "la la la");
    assert_string_equal(is.license, "CC0");
    assert_string_equal(is.consent, "she said so");
    assert_int_equal(is.keeps_audio, 1);
    assert_int_equal(is.fitted, 0);
    assert_true(is.source_hash == was.source_hash && is.source_hash != 0);
    assert_true(fabs(is.source_seconds - SECONDS) < 0.01);
    struct sound a = speak_as(model, alices), b = speak_as(model, loaded);
    assert_same_sound(a, b);
    free(a.samples), free(b.samples);
    utter_voice_free(&loaded);
}

struct shared {
    utter_voice *voice;
    struct sound sound;
};

static void *speak_in_thread(void *arg)
{
    struct shared *s = arg;
    s->sound = speak_as(model, s->voice);
    return NULL;
}

static void shared_by_threads(void **state)
{
    (void)state;
    struct shared s[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        s[i].voice = alices;
        assert_int_equal(pthread_create(&threads[i], NULL, speak_in_thread, &s[i]), 0);
    }
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    assert_same_sound(s[0].sound, s[1].sound);
    assert_same_sound(s[0].sound, s[2].sound);
    for (int i = 0; i < 3; i++) free(s[i].sound.samples);
}

/* ---- progress and cancel ---- */

struct watch {
    double last;
    int calls;
    double cancel_at; /* > 0: raise the flag there */
    signed char flag;
};

static void see_progress(double share, const char *what, void *user)
{
    struct watch *w = user;
    assert_non_null(what);
    assert_true(share >= w->last - 1e-9 && share <= 1);
    w->last = share;
    w->calls++;
    if (w->cancel_at > 0 && share >= w->cancel_at) w->flag = 1;
}

static void progress_rises(void **state)
{
    (void)state;
    struct watch w = {0};
    utter_voice_options o;
    utter_voice_options_init(&o);
    o.progress = see_progress, o.progress_user = &w;
    utter_voice *v = voice_of(model, alice, &o);
    assert_true(w.calls > 4 && w.last > 0.99);
    utter_voice_free(&v);
}

static void cancelled_at_every_stage(void **state)
{
    (void)state;
    static const double places[] = {1e-6, 0.2, 0.31, 0.8, 0.92};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct watch w = {.cancel_at = places[i]};
        utter_voice_options o;
        utter_voice_options_init(&o);
        o.progress = see_progress, o.progress_user = &w, o.cancel_flag = &w.flag;
        utter_voice *v = NULL;
        assert_int_equal(utter_voice_make(&v, model, alice, N, RATE, &o, error, sizeof error), UTTER_CANCELLED);
        assert_null(v);
    }
}

/* ---- refusals ---- */

static void expect(utter_status expected, utter_status got, const char *part)
{
    if (got != expected || !strstr(error, part)) print_message("%d: %s\n", got, error);
    assert_int_equal(got, expected);
    assert_non_null(strstr(error, part));
}

static void refusals(void **state)
{
    (void)state;
    static const float silence[2 * RATE];
    utter_voice *v = (utter_voice *)8;
    expect(UTTER_VOICE_UNUSABLE, utter_voice_make(&v, model, alice, RATE / 2, RATE, NULL, error, sizeof error),
           "0.50 s");
    assert_null(v);
    expect(UTTER_VOICE_UNUSABLE, utter_voice_make(&v, model, silence, 2 * RATE, RATE, NULL, error, sizeof error),
           "silence");
    expect(UTTER_INPUT_UNREADABLE, utter_voice_make(&v, model, alice, N, 4000, NULL, error, sizeof error), "4000 Hz");
    expect(UTTER_INPUT_UNREADABLE, utter_voice_make(&v, model, alice, 0, RATE, NULL, error, sizeof error), "0 samples");
    expect(UTTER_INVALID_ARGUMENT, utter_voice_make(&v, model, NULL, N, RATE, NULL, error, sizeof error), "NULL");
    expect(UTTER_INVALID_ARGUMENT, utter_voice_make(&v, NULL, alice, N, RATE, NULL, error, sizeof error), "model");
    expect(UTTER_INPUT_UNREADABLE, utter_voice_make_from_file(&v, model, "/no/such.wav", NULL, error, sizeof error),
           "/no/such.wav");
    expect(UTTER_INPUT_UNREADABLE, utter_voice_load(&v, model, "no-such-voice", NULL, error, sizeof error),
           "no-such-voice");
    utter_voice_options o;
    utter_voice_options_init(&o);
    o.start_seconds = NAN;
    expect(UTTER_INVALID_ARGUMENT, utter_voice_make(&v, model, alice, N, RATE, &o, error, sizeof error),
           "start_seconds");
    utter_voice_options_init(&o);
    o.duration_seconds = 0.1;
    expect(UTTER_INVALID_ARGUMENT, utter_voice_make(&v, model, alice, N, RATE, &o, error, sizeof error),
           "duration_seconds");
    alice[1000] = INFINITY;
    expect(UTTER_INPUT_UNREADABLE, utter_voice_make(&v, model, alice, N, RATE, NULL, error, sizeof error),
           "sample 1000");
    fill(alice, 200);
    assert_int_equal(utter_voice_make(NULL, model, alice, N, RATE, NULL, NULL, 0), UTTER_INVALID_ARGUMENT);
    assert_int_equal(utter_voice_get_info(NULL, NULL), UTTER_INVALID_ARGUMENT);
    assert_null(utter_voice_finding(NULL, 0, NULL));
}

static void a_voice_cannot_be_written_nowhere(void **state)
{
    (void)state;
    expect(UTTER_OUTPUT_UNWRITABLE, utter_voice_save(alices, "/no/such/folder/a.voice", error, sizeof error),
           "/no/such/folder/a.voice");
}

/* The small built-in model says in its file that it cannot take other voices; then nothing else happens. */
static void a_model_that_cannot_clone(void **state)
{
    (void)state;
    utter_model *m;
    utter_voice *v;
    assert_int_equal(utter_model_open(&m, BUILT_IN, NULL, error, sizeof error), UTTER_OK);
    expect(UTTER_CANNOT_CLONE, utter_voice_make(&v, m, alice, N, RATE, NULL, error, sizeof error), "Chatterbox Turbo");
    assert_int_equal(utter_voice_save(alices, path, error, sizeof error), UTTER_OK);
    expect(UTTER_CANNOT_CLONE, utter_voice_load(&v, m, path, NULL, error, sizeof error), "cannot take others");
    utter_model_close(&m);
}

/* ... but it takes its own, from its file and from a voice file made of that, and nobody else does. */
static void a_model_takes_its_own_voice(void **state)
{
    (void)state;
    utter_model *m;
    utter_voice *v;
    assert_int_equal(utter_model_open(&m, BUILT_IN, NULL, error, sizeof error), UTTER_OK);
    utter_request r;
    utter_request_init(&r, m);
    r.text = "Mine.";
    r.text_length = strlen(r.text);
    r.seed = 1;
    struct sound own = speak_fresh(m, &r);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(utter_voice_load(&v, m, i ? path : BUILT_IN, NULL, error, sizeof error), UTTER_OK);
        r.voice = v;
        struct sound loaded = speak_fresh(m, &r);
        assert_same_sound(own, loaded);
        free(loaded.samples);
        assert_int_equal(utter_voice_save(v, path, error, sizeof error), UTTER_OK);
        utter_voice_free(&v);
    }
    free(own.samples);
    expect(UTTER_VOICE_UNUSABLE, utter_voice_load(&v, model, BUILT_IN, NULL, error, sizeof error), "another model");
    expect(UTTER_VOICE_UNUSABLE, utter_voice_load(&v, model, path, NULL, error, sizeof error), "another model");
    utter_model_close(&m);
}

static void findings_tell(void **state)
{
    (void)state;
    int32_t warning = 0;
    const char *text = utter_voice_finding(alices, 0, &warning);
    assert_non_null(text);
    assert_int_equal(warning, 1);
    bool told = false;
    for (size_t i = 0; (text = utter_voice_finding(alices, i, NULL)); i++)
        told = told || strstr(text, "Use 5 s or more");
    assert_true(told);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_b_a),
                                       cmocka_unit_test(voices_come_and_go),
                                       cmocka_unit_test(the_same_at_any_number_of_threads),
                                       cmocka_unit_test(saved_and_loaded),
                                       cmocka_unit_test(shared_by_threads),
                                       cmocka_unit_test(progress_rises),
                                       cmocka_unit_test(cancelled_at_every_stage),
                                       cmocka_unit_test(refusals),
                                       cmocka_unit_test(a_voice_cannot_be_written_nowhere),
                                       cmocka_unit_test(a_model_that_cannot_clone),
                                       cmocka_unit_test(a_model_takes_its_own_voice),
                                       cmocka_unit_test(findings_tell)};
    return cmocka_run_group_tests_name("api_voice", tests, set_up, tear_down);
}
