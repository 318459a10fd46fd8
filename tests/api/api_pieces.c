/* The tokens of several pieces of a text are made together (UTTER_STREAM_OFF): every step, what it tells and logs, and the sound are those
 * of pieces that are made one after the other (stream_serial). */
#include "mini.h"

#include <pthread.h>

enum { MAX_STEPS = 4096, MAX_LOG = 4096 };

/* All that a run shows. */
struct trace {
    int n_steps;
    utter_status status[MAX_STEPS];
    utter_progress progress[MAX_STEPS];
    struct sound sound;
    char error[512];
    char log[MAX_LOG]; /* with the step of each line */
};

static struct trace *listener; /* whose run logs now; NULL: nobody's */

static void keep_line(int level, const char *line, void *user)
{
    (void)level, (void)user;
    if (!listener) return;
    const size_t n = strlen(listener->log);
    snprintf(listener->log + n, MAX_LOG - n, "%d %s\n", listener->n_steps, line);
}

static utter_model *open_heard(const char *path, int n_threads)
{
    utter_model_options o;
    utter_model_options_init(&o);
    o.n_threads = n_threads;
    o.log = keep_line;
    utter_model *m;
    assert_int_equal(utter_model_open(&m, path, &o, NULL, 0), UTTER_OK);
    return m;
}

static void run(struct trace *out, utter_task *t, const utter_request *r, int serial)
{
    utter_request request = *r;
    request.stream_serial = serial;
    memset(out, 0, sizeof *out);
    assert_int_equal(utter_task_start(t, &request), UTTER_OK);
    listener = out;
    utter_status s;
    do {
        assert_true(out->n_steps < MAX_STEPS);
        out->progress[out->n_steps].struct_size = sizeof *out->progress;
        s = out->status[out->n_steps] = utter_task_step(t, &out->progress[out->n_steps]);
        out->n_steps++;
    } while (s == UTTER_OK || s == UTTER_AUDIO);
    listener = NULL;
    if (s == UTTER_DONE)
        out->sound = read_sound(t);
    else
        snprintf(out->error, sizeof out->error, "%s", utter_task_last_error(t));
}

static void assert_same_trace(const struct trace *a, const struct trace *b)
{
    for (int i = 0; i < a->n_steps && i < b->n_steps; i++) {
        const utter_progress *p = &a->progress[i], *q = &b->progress[i];
        if (a->status[i] != b->status[i] || memcmp(p, q, sizeof *p) != 0)
            fail_msg("step %d: %s and %s, states %d and %d, %d and %d pieces, %d and %d rows left, %d and %d tokens", i,
                     utter_status_text(a->status[i]), utter_status_text(b->status[i]), p->state, q->state,
                     p->pieces_done, q->pieces_done, p->prompt_tokens_remaining, q->prompt_tokens_remaining,
                     p->tokens_generated, q->tokens_generated);
    }
    assert_int_equal(a->n_steps, b->n_steps);
    assert_string_equal(a->error, b->error);
    assert_string_equal(a->log, b->log);
    assert_same_sound(a->sound, b->sound);
}

static struct trace serial, together; /* too large for a stack */

static void forget(struct trace *t)
{
    free(t->sound.samples);
    t->sound.samples = NULL;
}

/* Both ways on fresh models, and perhaps once more, when the voice was spoken with before. Together is from the beginning, or from the
 * first sound on. */
static void assert_nothing_changes(const char *path, int threads, int rounds, const utter_request *r)
{
    utter_model *a = open_heard(path, 1), *b = open_heard(path, threads);
    utter_task *one = new_task(a), *other = new_task(b);
    for (int round = 0; round < rounds; round++) {
        run(&serial, one, r, 1);
        run(&together, other, r, (threads + round) % 2 ? 0 : 2);
        assert_same_trace(&serial, &together);
        forget(&serial);
        forget(&together);
    }
    utter_task_free(&one);
    utter_task_free(&other);
    utter_model_close(&a);
    utter_model_close(&b);
}

static const char nine[] =
    "First of all. The second has somewhat more to say, for it is a longer sentence than any other one that can be "
    "found in here, "
    "and it takes several batches. No. Four. The fifth comes after the fourth. And six. Seven. Eight is late. The end.";

static void any_number_of_pieces(void **state)
{
    (void)state;
    const struct {
        size_t length;
        int pieces;
    } texts[] = {{13, 1}, {154, 2}, {198, 5}, {sizeof nine - 1, 9}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        for (int threads = 1; threads <= 3; threads++) {
            utter_request r = request_for(NULL, nine);
            r.text_length = texts[i].length;
            r.max_tokens = 3 * threads - 2; /* 1, 4, 7 */
            r.cfm_steps = 1;
            r.prompt_batch_size = threads == 2 ? 32 : 256;
            assert_nothing_changes(MINI_MODEL, threads, threads == 2 ? 2 : 1, &r);
            assert_int_equal(together.progress[together.n_steps - 1].pieces, texts[i].pieces);
        }
}

/* Real lengths: each piece ends when the model says so, or at a limit that some of them meet. */
static void long_and_short_ones(void **state)
{
    (void)state;
    utter_request r = request_for(
        NULL, "Yes. The children walked down to the river, where the old boats lay. No! Why? One. Two. It rained.");
    r.cfm_steps = 1;
    for (int limit = 0; limit <= 30; limit += 30) {
        r.max_tokens = limit;
        assert_nothing_changes(BUILT_IN, 2, 1, &r);
        assert_int_equal(together.progress[together.n_steps - 1].truncated, limit > 0);
    }
}

/* In chunks nothing is made together; samples that are dropped when pulled were made all the same. */
static void other_ways_to_speak(void **state)
{
    (void)state;
    utter_request r = request_for(NULL, nine);
    r.cfm_steps = 1;
    r.max_tokens = 20;
    r.stream = UTTER_STREAM_ON;
    r.stream_first_chunk_tokens = 6;
    r.stream_chunk_tokens = 5;
    assert_nothing_changes(MINI_MODEL, 2, 1, &r);
    r.stream = UTTER_STREAM_OFF;
    r.sentence_silence = 0.1f;
    r.temperature = 0;
    assert_nothing_changes(MINI_MODEL, 2, 1, &r);
}

/* A failure comes when it is the turn of the piece that fails. */
static void one_that_fails(void **state)
{
    (void)state;
    const char *const texts[] = {"Quite. So. It. Is. Now.", "So. Quite. It. Is. Now.", "So. It. Is. Quite. Now.",
                                 "So. It. Is. Now. Why. Not. Quite."};
    for (int i = 0; i < 4; i++) {
        utter_request r = request_for(NULL, texts[i]);
        r.cfm_steps = 1;
        assert_nothing_changes(MINI_MODEL "-stumbling", 2, 2, &r);
        assert_int_equal(together.status[together.n_steps - 1], UTTER_ENGINE);
        assert_non_null(strstr(together.error, "nan"));
    }
}

/* Stopped after every number of steps: what was made and not told is gone. */
static void stopped_anywhere(void **state)
{
    (void)state;
    utter_model *m = open_heard(MINI_MODEL, 2);
    utter_task *fresh = new_task(m), *t = new_task(m);
    utter_request r = request_for(NULL, nine), other = request_for(NULL, "Another text. It has pieces. Three.");
    r.cfm_steps = other.cfm_steps = 1;
    r.max_tokens = 5;
    other.max_tokens = 4;
    other.seed = 8;
    run(&serial, fresh, &r, 1); /* the voice's prompt */
    forget(&serial);
    run(&serial, fresh, &r, 1);
    for (int n = 1; n < serial.n_steps; n += 1 + n / 7) {
        assert_int_equal(utter_task_start(t, n % 2 ? &r : &other), UTTER_OK);
        for (int i = 0; i < n; i++)
            if (utter_task_step(t, NULL) == UTTER_DONE) break;
        if (n % 3) {
            utter_task_cancel(t);
            utter_task_step(t, NULL);
        } else {
            utter_task_reset(t);
        }
        run(&together, t, &r, 0);
        assert_same_trace(&serial, &together);
        forget(&together);
    }
    forget(&serial);
    utter_task_free(&fresh);
    utter_task_free(&t);
    utter_model_close(&m);
}

struct worker {
    utter_model *model;
    utter_request request;
    struct sound sound;
};

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    w->sound = speak_fresh(w->model, &w->request);
    return NULL;
}

static void two_tasks_at_once(void **state)
{
    (void)state;
    utter_model *m = open_heard(MINI_MODEL, 2);
    struct worker w[2] = {{m, request_for(NULL, nine), {0}}, {m, request_for(NULL, "One. Two! Three? Four."), {0}}};
    struct sound alone[2];
    for (int i = 0; i < 2; i++) {
        w[i].request.cfm_steps = 1;
        w[i].request.stream_serial = 1;
        alone[i] = speak_fresh(m, &w[i].request);
        w[i].request.stream_serial = 0;
    }
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
    utter_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_number_of_pieces), cmocka_unit_test(long_and_short_ones),
                                       cmocka_unit_test(other_ways_to_speak),  cmocka_unit_test(one_that_fails),
                                       cmocka_unit_test(stopped_anywhere),     cmocka_unit_test(two_tasks_at_once)};
    return cmocka_run_group_tests_name("api_pieces", tests, NULL, NULL);
}
