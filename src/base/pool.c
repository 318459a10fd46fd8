#include "base/pool.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"

#if defined(__x86_64__)
#define CPU_RELAX() __builtin_ia32_pause()
#else
#define CPU_RELAX() ((void)0)
#endif

/* Between ops of a decode step the next job comes within microseconds, so workers spin this long before they sleep.
 * Past that, sleeping costs the next job a wake-up of some 50 us, which long work does not notice. */
enum { SPIN_ROUNDS = 4000 };

/* Tiles next .. end - 1 are still to be begun. */
struct share {
    _Alignas(64) atomic_int next;
    int end;
};

struct pool {
    int n_threads;
    int n_forks; /* of the process when the workers were started: see orphaned() */
    pthread_t threads[POOL_MAX_THREADS];
    int n_started;
    pthread_mutex_t run_lock; /* one job at a time */

    /* The job; written by the caller before `generation` moves, read by workers after. */
    pool_tile_fn *fn;
    void *arg;
    struct cancel *cancel;
    int n_shares; /* one for all workers, or one each */
    struct share shares[POOL_MAX_THREADS];

    /* What the last worker is lent out for; written by the borrower before `loan` says LOAN_GIVEN. */
    void (*loan_fn)(void *);
    void *loan_arg;
    atomic_int loan;
    pthread_cond_t loan_ended; /* with sleep_lock */

    atomic_uint generation;
    atomic_int inside; /* workers at the job, less CLOSED while there is none: see enter() */
    atomic_bool quit;

    pthread_mutex_t sleep_lock; /* guards only sleeping on `wake` and `loan_ended` */
    pthread_cond_t wake;
    atomic_int n_sleeping;
};

struct worker_start {
    struct pool *pool;
    int index;
};

/* A worker's own share first, then what is left of the others'. */
static void run_tiles(struct pool *p, int worker)
{
    for (int i = 0; i < p->n_shares; i++) {
        struct share *s = &p->shares[(worker + i) % p->n_shares];
        for (;;) {
            if (cancel_poll(p->cancel)) return;
            const int tile = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
            if (tile >= s->end) break;
            p->fn(p->arg, tile, worker);
        }
    }
}

/* The door to the job. The caller opens it when the job is written, and closes it when no tile is left; it waits only for
 * workers who came in, so one that the system has not run yet costs nothing. A worker that finds the door closed steps
 * back; one that comes late finds the next job or a closed door. */
enum { CLOSED = INT_MIN / 2 };

static bool enter(struct pool *p)
{
    if (atomic_fetch_add_explicit(&p->inside, 1, memory_order_acquire) >= 0) return true;
    atomic_fetch_sub_explicit(&p->inside, 1, memory_order_relaxed);
    return false;
}

static void leave(struct pool *p)
{
    atomic_fetch_sub_explicit(&p->inside, 1, memory_order_release);
}

static void open_door(struct pool *p)
{
    atomic_fetch_sub_explicit(&p->inside, CLOSED, memory_order_release);
}

static void close_door(struct pool *p)
{
    int spins = 0;
    for (int n = atomic_fetch_add_explicit(&p->inside, CLOSED, memory_order_acquire) + CLOSED; n != CLOSED;
         n = atomic_load_explicit(&p->inside, memory_order_acquire)) {
        if (++spins < SPIN_ROUNDS)
            CPU_RELAX();
        else
            sched_yield(); /* more threads than processors: the one we wait for may need ours */
    }
}

static unsigned wait_for_job(struct pool *p, unsigned seen)
{
    for (int i = 0; i < SPIN_ROUNDS; i++) {
        unsigned g = atomic_load_explicit(&p->generation, memory_order_acquire);
        if (g != seen) return g;
        CPU_RELAX();
    }
    pthread_mutex_lock(&p->sleep_lock);
    atomic_fetch_add(&p->n_sleeping, 1);
    unsigned g;
    while ((g = atomic_load(&p->generation)) == seen) pthread_cond_wait(&p->wake, &p->sleep_lock);
    atomic_fetch_sub(&p->n_sleeping, 1);
    pthread_mutex_unlock(&p->sleep_lock);
    return g;
}

enum { LOAN_NONE, LOAN_WRITTEN, LOAN_GIVEN, LOAN_ENDED };

static void serve_loan(struct pool *p)
{
    if (atomic_load_explicit(&p->loan, memory_order_acquire) != LOAN_GIVEN) return;
    p->loan_fn(p->loan_arg);
    pthread_mutex_lock(&p->sleep_lock);
    atomic_store(&p->loan, LOAN_ENDED);
    pthread_cond_signal(&p->loan_ended);
    pthread_mutex_unlock(&p->sleep_lock);
}

static void *worker_main(void *arg)
{
    struct worker_start start = *(struct worker_start *)arg;
    mem_free(arg);
    struct pool *p = start.pool;
    unsigned seen = 0;
    for (;;) {
        seen = wait_for_job(p, seen);
        if (atomic_load(&p->quit)) return NULL;
        if (start.index == p->n_threads - 1) serve_loan(p);
        if (enter(p)) {
            run_tiles(p, start.index);
            leave(p);
        }
    }
}

static void announce(struct pool *p)
{
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->n_sleeping) > 0) {
        pthread_mutex_lock(&p->sleep_lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->sleep_lock);
    }
}

/* A child that fork() makes has only the thread that made it, and a copy of whatever the workers were doing to locks and the door:
 * it leaves all of that alone. n_forks changes only in a new child, before it has another thread. */
static pthread_once_t watch_once = PTHREAD_ONCE_INIT;
static int n_forks;

static void count_fork(void)
{
    n_forks++;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

static bool orphaned(const struct pool *p)
{
    return p->n_forks != n_forks;
}

utter_status pool_create(struct pool **out, int n_threads, struct error *e)
{
    *out = NULL;
    if (n_threads < 1 || n_threads > POOL_MAX_THREADS)
        return error_set(e, UTTER_INVALID_ARGUMENT, "threads: %d is outside 1..%d", n_threads, POOL_MAX_THREADS);
    struct pool *p = mem_alloc_aligned(sizeof *p);
    if (!p) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a thread pool");
    memset(p, 0, sizeof *p);
    p->n_threads = n_threads;
    pthread_once(&watch_once, watch_forks);
    p->n_forks = n_forks;
    atomic_store(&p->inside, CLOSED);
    pthread_mutex_init(&p->run_lock, NULL);
    pthread_mutex_init(&p->sleep_lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->loan_ended, NULL);
    for (int i = 1; i < n_threads; i++) {
        struct worker_start *start = mem_alloc(sizeof *start);
        if (start) *start = (struct worker_start){p, i};
        if (!start || pthread_create(&p->threads[p->n_started], NULL, worker_main, start) != 0) {
            mem_free(start);
            pool_destroy(&p);
            return error_set(e, UTTER_OUT_OF_MEMORY, "cannot start thread %d of %d", i + 1, n_threads);
        }
        p->n_started++;
    }
    *out = p;
    return UTTER_OK;
}

void pool_destroy(struct pool **pool)
{
    struct pool *p = *pool;
    if (!p) return;
    if (!orphaned(p)) {
        atomic_store(&p->quit, true);
        announce(p);
        for (int i = 0; i < p->n_started; i++) pthread_join(p->threads[i], NULL);
        pthread_cond_destroy(&p->loan_ended);
        pthread_cond_destroy(&p->wake);
        pthread_mutex_destroy(&p->sleep_lock);
        pthread_mutex_destroy(&p->run_lock);
    }
    mem_free(p);
    *pool = NULL;
}

int pool_threads(const struct pool *pool)
{
    return pool->n_threads;
}

static bool run(struct pool *p, struct cancel *cancel, int n_tiles, int n_shares, pool_tile_fn *fn, void *arg)
{
    if (!cancel_lock(cancel, &p->run_lock)) return false;
    p->fn = fn;
    p->arg = arg;
    p->cancel = cancel;
    p->n_shares = n_shares;
    for (int i = 0; i < n_shares; i++) {
        atomic_store_explicit(&p->shares[i].next, (int)((int64_t)n_tiles * i / n_shares), memory_order_relaxed);
        p->shares[i].end = (int)((int64_t)n_tiles * (i + 1) / n_shares);
    }
    bool alone = p->n_started == 0 || n_tiles == 1 || orphaned(p);
    if (!alone) {
        open_door(p);
        announce(p);
    }
    run_tiles(p, 0);
    if (!alone) close_door(p);
    pthread_mutex_unlock(&p->run_lock);
    return !cancel_poll(cancel);
}

bool pool_run(struct pool *p, struct cancel *cancel, int n_tiles, pool_tile_fn *fn, void *arg)
{
    return run(p, cancel, n_tiles, 1, fn, arg);
}

bool pool_run_in_shares(struct pool *p, struct cancel *cancel, int n_tiles, pool_tile_fn *fn, void *arg)
{
    return run(p, cancel, n_tiles, p->n_threads, fn, arg);
}

bool pool_lend(struct pool *p, void (*fn)(void *), void *arg)
{
    int none = LOAN_NONE;
    if (p->n_started == 0 || orphaned(p) || !atomic_compare_exchange_strong(&p->loan, &none, LOAN_WRITTEN))
        return false;
    p->loan_fn = fn;
    p->loan_arg = arg;
    atomic_store_explicit(&p->loan, LOAN_GIVEN, memory_order_release);
    announce(p);
    return true;
}

void pool_take_back(struct pool *p)
{
    pthread_mutex_lock(&p->sleep_lock);
    while (atomic_load(&p->loan) != LOAN_ENDED) pthread_cond_wait(&p->loan_ended, &p->sleep_lock);
    atomic_store(&p->loan, LOAN_NONE);
    pthread_mutex_unlock(&p->sleep_lock);
}
