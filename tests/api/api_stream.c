/* Sound made inside a sentence beside the same sentence spoken whole: lengths, seams and levels (R48, R50). The built-in voice,
 * so that levels are those of speech. */
#include "mini.h"

#include <math.h>

static utter_model *model;

static int set_up(void **state)
{
    (void)state;
    model = open_path(BUILT_IN, 2);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    utter_model_close(&model);
    return 0;
}

static utter_request sentence(int stream)
{
    utter_request r = request_for(model, "The birch canoe slid on the smooth planks, and nobody in the house minded.");
    r.max_tokens = 0;
    r.stream = stream;
    r.stream_first_chunk_tokens = 12;
    r.stream_chunk_tokens = 20;
    return r;
}

struct streamed {
    struct sound sound;
    size_t seams[256]; /* where a pull began, but for the first */
    int n_seams;
};

static struct streamed speak_in_chunks(void)
{
    struct streamed out = {0};
    utter_task *t = new_task(model);
    const utter_request r = sentence(UTTER_STREAM_ON);
    assert_int_equal(utter_task_start(t, &r), UTTER_OK);
    size_t at = 0;
    utter_status s;
    do {
        s = utter_task_step(t, NULL);
        assert_true(s >= 0);
        static float pulled[1 << 20];
        size_t n;
        assert_int_equal(utter_task_pull(t, pulled, 1 << 20, &n), UTTER_OK);
        if (n && at && out.n_seams < 256) out.seams[out.n_seams++] = at;
        at += n;
    } while (s != UTTER_DONE);
    out.sound = read_sound(t);
    assert_int_equal(out.sound.n, at);
    utter_task_free(&t);
    return out;
}

static double jump_at(const struct sound *s, size_t i)
{
    return fabs((double)s->samples[i] - (double)s->samples[i - 1]);
}

/* A step at a seam would be larger than what speech itself does within 50 ms of it. */
static void no_step_at_a_seam(void **state)
{
    (void)state;
    enum { NEAR = 1200 };
    struct streamed st = speak_in_chunks();
    assert_true(st.n_seams >= 2);
    for (int i = 0; i < st.n_seams; i++) {
        double around = 1e-4;
        for (size_t k = st.seams[i] - NEAR; k < st.seams[i] + NEAR && k < st.sound.n; k++)
            if (k != st.seams[i]) around = fmax(around, jump_at(&st.sound, k));
        assert_true(jump_at(&st.sound, st.seams[i]) <= around);
    }
    free(st.sound.samples);
}

static double level_db(const struct sound *s, size_t first, size_t n)
{
    double sum = 1e-20;
    for (size_t i = first; i < first + n; i++) sum += (double)s->samples[i] * (double)s->samples[i];
    return 10 * log10(sum / (double)n);
}

/* Nothing is lost, the fade happens once, and no chunk is louder than the whole has it. A mel frame that is computed before what
 * follows is known comes out a little different (docs/testing.md: 0.2 dB on average in 100 ms; three sentences with three
 * voices: at most 0.6 dB in 0.8 s, 0.13 dB in all); a chunk, or all of it, stays closer than the 1 dB that a listener
 * can just tell. */
static void as_loud_as_the_whole(void **state)
{
    (void)state;
    const utter_request r = sentence(UTTER_STREAM_OFF);
    struct sound whole = speak_fresh(model, &r);
    struct streamed st = speak_in_chunks();
    assert_int_equal(st.sound.n, whole.n);
    for (size_t i = 0; i < 480; i++) assert_true(st.sound.samples[i] == 0);
    assert_true(fabs(level_db(&st.sound, 0, whole.n) - level_db(&whole, 0, whole.n)) < 0.3);
    for (int i = 0; i + 1 < st.n_seams; i++) {
        const size_t first = st.seams[i], n = st.seams[i + 1] - first;
        if (level_db(&whole, first, n) < -45) continue;
        assert_true(fabs(level_db(&st.sound, first, n) - level_db(&whole, first, n)) < 1);
    }
    free(whole.samples);
    free(st.sound.samples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_step_at_a_seam), cmocka_unit_test(as_loud_as_the_whole)};
    return cmocka_run_group_tests_name("api_stream", tests, set_up, tear_down);
}
