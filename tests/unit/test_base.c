/* base: half floats, random streams, arena, pool and cancel. */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/half.h"
#include "base/map.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/tensor.h"
#include "test.h"

static void half_round_trips_every_value(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = half_to_float((uint16_t)h);
        if (f != f) continue;
        assert_int_equal(float_to_half(f), h);
    }
    assert_int_equal(float_to_half(65519.0f), 0x7BFF);
    assert_int_equal(float_to_half(65520.0f), 0x7C00);
    assert_int_equal(float_to_half(1.0f + 0x1p-11f), 0x3C00); /* tie goes to even */
    assert_int_equal(float_to_half(1.0f + 3 * 0x1p-11f), 0x3C02);
    assert_int_equal(float_to_half(0x1p-25f), 0);
    assert_int_equal(float_to_half(0x1.8p-25f), 1);
}

static void rng_depends_on_position_only(void **state)
{
    (void)state;
    struct rng r = rng_stream(7, "cfm/noise");
    float whole[101], parts[101];
    rng_normal(r, 0, 101, whole);
    rng_normal(r, 0, 33, parts);
    rng_normal(r, 33, 68, parts + 33);
    assert_memory_equal(whole, parts, sizeof whole);
    assert_true(rng_bits(rng_stream(7, "a"), 0) != rng_bits(rng_stream(7, "b"), 0));
    double sum = 0, sum2 = 0;
    for (uint64_t i = 0; i < 200000; i++) {
        float x;
        rng_normal(r, i, 1, &x);
        sum += x;
        sum2 += (double)x * x;
    }
    assert_true(fabs(sum / 200000) < 0.01);
    assert_true(fabs(sum2 / 200000 - 1) < 0.02);
}

static void arena_is_a_stack(void **state)
{
    (void)state;
    struct arena a;
    assert_int_equal(arena_create(&a, 1 << 20, NULL), UTTER_OK);
    char *p = arena_alloc(&a, 100);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 64, 0);
    size_t mark = arena_mark(&a);
    char *q = arena_alloc(&a, 1);
    arena_release(&a, mark);
    assert_ptr_equal(arena_alloc(&a, 1), q);
    assert_null(arena_alloc(&a, (size_t)8 << 20));
    assert_null(arena_alloc(&a, SIZE_MAX));
    arena_destroy(&a);
    arena_destroy(&a);
    assert_int_equal(arena_create(&a, 2 << 20, NULL), UTTER_OK); /* all of it in one block */
    assert_non_null(arena_alloc(&a, 2 << 20));
    arena_destroy(&a);
    assert_int_equal(arena_create(&a, SIZE_MAX - 5, NULL), UTTER_OUT_OF_MEMORY);
}

static void count_tile(void *arg, int tile, int worker)
{
    (void)worker;
    atomic_fetch_add(&((atomic_int *)arg)[tile], 1);
}

static void pool_runs_every_tile_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 4; threads++) {
        struct pool *p;
        assert_int_equal(pool_create(&p, threads, NULL), UTTER_OK);
        for (int round = 0; round < 200; round++) {
            atomic_int seen[37] = {0};
            assert_true(pool_run(p, NULL, 37, count_tile, seen));
            assert_true(pool_run_in_shares(p, NULL, round % 38, count_tile, seen));
            for (int i = 0; i < 37; i++) assert_int_equal(atomic_load(&seen[i]), i < round % 38 ? 2 : 1);
        }
        pool_destroy(&p);
    }
    struct error e;
    struct pool *p;
    assert_int_equal(pool_create(&p, 0, &e), UTTER_INVALID_ARGUMENT);
    assert_int_equal(pool_create(&p, 100000, &e), UTTER_INVALID_ARGUMENT);
}

struct stopping {
    struct cancel cancel;
    atomic_int ran, late; /* late: began after the cancel */
};

static void stop_at_ten(void *arg, int tile, int worker)
{
    (void)tile, (void)worker;
    struct stopping *s = arg;
    if (cancel_poll(&s->cancel)) atomic_fetch_add(&s->late, 1);
    if (atomic_fetch_add(&s->ran, 1) == 9) cancel_request(&s->cancel);
}

static void pool_stops_at_the_next_tile(void **state)
{
    (void)state;
    struct pool *p;
    assert_int_equal(pool_create(&p, 3, NULL), UTTER_OK);
    struct stopping s = {0};
    assert_false(pool_run(p, &s.cancel, 100000, stop_at_ten, &s));
    assert_true(atomic_load(&s.ran) >= 10 && atomic_load(&s.ran) < 100000);
    assert_in_range(atomic_load(&s.late), 0,
                    2); /* each of the other workers may have been between its poll and its tile */
    pool_destroy(&p);
}

struct loan {
    atomic_int met, at_end;
};

/* Ends only when a job of the same pool runs meanwhile. */
static void wait_for_a_job(void *arg)
{
    struct loan *l = arg;
    while (!atomic_load(&l->met)) sched_yield();
    for (int i = 0; i < 1000; i++) sched_yield(); /* so that who does not wait for the end is caught */
    atomic_store(&l->at_end, 1);
}

static void meet(void *arg, int tile, int worker)
{
    (void)worker;
    struct loan *l = arg;
    if (tile == 3) atomic_store(&l->met, 1);
}

static void a_lent_worker_works_beside_the_others(void **state)
{
    (void)state;
    struct pool *p;
    struct loan l = {0};
    assert_int_equal(pool_create(&p, 1, NULL), UTTER_OK);
    assert_false(pool_lend(p, wait_for_a_job, &l)); /* nobody to lend */
    pool_destroy(&p);
    for (int threads = 2; threads <= 4; threads++) {
        assert_int_equal(pool_create(&p, threads, NULL), UTTER_OK);
        for (int round = 0; round < 20; round++) {
            atomic_store(&l.met, 0);
            atomic_store(&l.at_end, 0);
            assert_true(pool_lend(p, wait_for_a_job, &l));
            assert_false(pool_lend(p, wait_for_a_job, &l)); /* lent already */
            assert_true(pool_run(p, NULL, 9, meet, &l));
            pool_take_back(p);
            assert_int_equal(atomic_load(&l.at_end), 1);
            atomic_int seen[37] = {0};
            assert_true(pool_run(p, NULL, 37, count_tile, seen)); /* and is back at the jobs */
            for (int i = 0; i < 37; i++) assert_int_equal(atomic_load(&seen[i]), 1);
        }
        pool_destroy(&p);
    }
}

/* What a child does, in which the workers are not: nothing waits for them. */
static void use_without_workers(struct pool *p)
{
    struct loan l = {0};
    alarm(20); /* a child that hangs is killed */
    for (int round = 0; round < 3; round++) {
        atomic_int seen[37] = {0};
        bool well = !pool_lend(p, wait_for_a_job, &l) && pool_run(p, NULL, 37, count_tile, seen);
        for (int i = 0; i < 37; i++) well &= atomic_load(&seen[i]) == 1;
        if (!well) _exit(1);
    }
    pool_destroy(&p);
    _exit(0);
}

static void a_forked_child_goes_on_alone(void **state)
{
    (void)state;
    struct pool *p;
    assert_int_equal(pool_create(&p, 3, NULL), UTTER_OK);
    for (int asleep = 0; asleep < 2; asleep++) { /* what a child inherits: workers that spin, workers that sleep */
        if (asleep) usleep(50000);
        const pid_t child = fork();
        if (child == 0) use_without_workers(p);
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    atomic_int seen[37] = {0};
    assert_true(pool_run(p, NULL, 37, count_tile, seen));
    pool_destroy(&p);
}

struct waiting {
    struct cancel cancel;
    pthread_mutex_t lock;
    bool taken;
};

static void *wait_for_lock(void *arg)
{
    struct waiting *w = arg;
    w->taken = cancel_lock(&w->cancel, &w->lock);
    return NULL;
}

/* Who waits for a lock sees a cancel without getting it. */
static void cancel_ends_waiting_for_a_lock(void **state)
{
    (void)state;
    struct waiting w = {.lock = PTHREAD_MUTEX_INITIALIZER, .taken = true};
    pthread_t thread;
    pthread_mutex_lock(&w.lock);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_lock, &w), 0);
    cancel_request(&w.cancel);
    pthread_join(thread, NULL); /* the lock is still ours */
    assert_false(w.taken);
    pthread_mutex_unlock(&w.lock);
    cancel_clear(&w.cancel);
    assert_true(cancel_lock(&w.cancel, &w.lock));
    pthread_mutex_unlock(&w.lock);
}

static void cancel_latches(void **state)
{
    (void)state;
    struct cancel c = {0};
    signed char flag = 0;
    cancel_attach_flag(&c, &flag);
    assert_false(cancel_poll(&c));
    flag = 1;
    assert_true(cancel_poll(&c));
    flag = 0;
    assert_true(cancel_poll(&c));
    cancel_clear(&c);
    assert_false(cancel_poll(&c));
}

static void map_refuses_what_is_no_file(void **state)
{
    (void)state;
    struct file_map m;
    struct error e;
    assert_int_equal(file_map_open(&m, "/no/such/file", &e), UTTER_MODEL_NOT_FOUND);
    assert_int_equal(file_map_open(&m, SOURCE_DIR, &e), UTTER_INPUT_UNREADABLE);
    assert_non_null(strstr(e.text, "folder"));
    assert_int_equal(file_map_open(&m, "/dev/null", &e), UTTER_INPUT_UNREADABLE);
    assert_int_equal(file_map_open(&m, SOURCE_DIR "/LICENSE", &e), UTTER_OK);
    assert_memory_equal(m.data, "MIT", 3);
    file_map_close(&m);
}

static void blocks_read_as_specified(void **state)
{
    (void)state;
    unsigned char block[34] = {0x00, 0x40}; /* d = 2 */
    float out[32];
    block[2] = 0xFF, block[33] = 5;
    struct tensor t = {.type = DTYPE_Q8_0, .n_dims = 1, .shape = {32}, .data = block, .n_bytes = 34};
    tensor_read_f32(&t, 0, 32, out);
    assert_true(out[0] == -2.0f && out[1] == 0.0f && out[31] == 10.0f);
    unsigned char q4[18] = {0x00, 0x3C, 0x8F}; /* d = 1; element 0: 15 - 8, element 16: 8 - 8 */
    t = (struct tensor){.type = DTYPE_Q4_0, .n_dims = 1, .shape = {32}, .data = q4, .n_bytes = 18};
    tensor_read_f32(&t, 0, 32, out);
    assert_true(out[0] == 7.0f && out[16] == 0.0f && out[1] == -8.0f);
    unsigned char q5[22] = {0x00, 0x3C, 1, 0, 1, 0, 0x21}; /* high bits of elements 0 and 16 */
    t = (struct tensor){.type = DTYPE_Q5_0, .n_dims = 1, .shape = {32}, .data = q5, .n_bytes = 22};
    tensor_read_f32(&t, 0, 32, out);
    assert_true(out[0] == 1.0f && out[16] == 2.0f && out[1] == -16.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_round_trips_every_value),
        cmocka_unit_test(rng_depends_on_position_only),
        cmocka_unit_test(arena_is_a_stack),
        cmocka_unit_test(pool_runs_every_tile_once),
        cmocka_unit_test(pool_stops_at_the_next_tile),
        cmocka_unit_test(cancel_ends_waiting_for_a_lock),
        cmocka_unit_test(a_lent_worker_works_beside_the_others),
        cmocka_unit_test(a_forked_child_goes_on_alone),
        cmocka_unit_test(cancel_latches),
        cmocka_unit_test(map_refuses_what_is_no_file),
        cmocka_unit_test(blocks_read_as_specified),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
