/* What the API tests share: the mini model, small requests, whole runs. Only utter.h is used. */
#ifndef MINI_H
#define MINI_H

#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "utter.h"

struct sound {
    float *samples;
    size_t n;
};

static inline utter_model *open_path(const char *path, int n_threads)
{
    utter_model_options o;
    utter_model_options_init(&o);
    o.n_threads = n_threads;
    char error[512];
    utter_model *m;
    if (utter_model_open(&m, path, &o, error, sizeof error) != UTTER_OK) fprintf(stderr, "%s\n", error);
    assert_non_null(m);
    return m;
}

static inline utter_model *open_mini(int n_threads)
{
    return open_path(MINI_MODEL, n_threads);
}

static inline utter_task *new_task(utter_model *m)
{
    utter_task *t;
    assert_int_equal(utter_task_create(&t, m, NULL, 0), UTTER_OK);
    return t;
}

/* The rule-made weights never say stop: max_tokens ends every piece. */
static inline utter_request request_for(const utter_model *m, const char *text)
{
    utter_request r;
    utter_request_init(&r, m);
    r.text = text;
    r.text_length = strlen(text);
    r.max_tokens = 8;
    r.seed = 7;
    return r;
}

static inline utter_status step_to_end(utter_task *t, utter_progress *p)
{
    utter_status s;
    utter_progress mine = {.struct_size = sizeof mine};
    if (!p) p = &mine;
    do s = utter_task_step(t, p);
    while (s == UTTER_OK || s == UTTER_AUDIO);
    return s;
}

static inline struct sound read_sound(utter_task *t)
{
    struct sound s = {0};
    assert_int_equal(utter_task_read(t, 0, NULL, 0, &s.n), UTTER_OK);
    s.samples = malloc(s.n * sizeof *s.samples);
    size_t n;
    assert_int_equal(utter_task_read(t, 0, s.samples, s.n, &n), UTTER_OK);
    assert_int_equal(n, s.n);
    return s;
}

static inline struct sound speak_on(utter_task *t, const utter_request *r)
{
    assert_int_equal(utter_task_start(t, r), UTTER_OK);
    const utter_status s = step_to_end(t, NULL);
    if (s != UTTER_DONE) fprintf(stderr, "%s\n", utter_task_last_error(t));
    assert_int_equal(s, UTTER_DONE);
    return read_sound(t);
}

static inline struct sound speak_fresh(utter_model *m, const utter_request *r)
{
    utter_task *t = new_task(m);
    struct sound s = speak_on(t, r);
    utter_task_free(&t);
    return s;
}

static inline void assert_same_sound(struct sound a, struct sound b)
{
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.samples, b.samples, a.n * sizeof *a.samples);
}

#endif
