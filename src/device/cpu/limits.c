/* What the machine can do: every thread spins or reads its share and looks at its own processor time, so that other programs on
 * the machine disturb less; the best of a few tries counts. */
#include <string.h>
#include <time.h>

#include "device/cpu/cpu.h"

enum { TRIES = 7, ROUNDS = 1 << 20 };
static const size_t READ_FLOATS = (size_t)64 << 20; /* 256 MiB: past every cache */

struct spin {
    const struct cpu_kernels *kernels;
    void (*spin)(int64_t rounds, float *sink);
    const float *memory;
    size_t floats_each;
    double seconds[POOL_MAX_THREADS];
};

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run_share(void *arg, int tile, int worker)
{
    (void)worker;
    struct spin *s = arg;
    _Alignas(64) float sink[64] = {0.5f, 0.25f};
    const double start = thread_seconds();
    if (s->spin)
        s->spin(ROUNDS, sink);
    else
        s->kernels->read_memory(s->memory + (size_t)tile * s->floats_each, s->floats_each, sink);
    s->seconds[tile] = thread_seconds() - start;
}

static double best_seconds(struct device *d, struct spin *s)
{
    double best = 1e9;
    for (int i = 0; i < TRIES; i++) {
        double seconds = 0;
        pool_run(d->pool, NULL, pool_threads(d->pool), run_share, s);
        for (int t = 0; t < pool_threads(d->pool); t++) seconds = s->seconds[t] > seconds ? s->seconds[t] : seconds;
        if (seconds < best) best = seconds;
    }
    return best;
}

static double measure_ops(struct device *d, void (*spin)(int64_t, float *), int ops_a_lane)
{
    struct spin s = {.kernels = &d->kernels, .spin = spin};
    if (!spin) return 0;
    return (double)ROUNDS * SPIN_CHAINS * d->kernels.lanes * ops_a_lane * pool_threads(d->pool) / best_seconds(d, &s);
}

utter_status device_measure_memory(struct device *d, double *read_bytes, struct error *e)
{
    struct arena memory;
    utter_status status = arena_create(&memory, READ_FLOATS * sizeof(float), e);
    if (status != UTTER_OK) return status;
    float *x = arena_alloc(&memory, READ_FLOATS * sizeof(float));
    memset(x, 0, READ_FLOATS * sizeof(float));
    struct spin s = {.kernels = &d->kernels, .memory = x, .floats_each = READ_FLOATS / (size_t)pool_threads(d->pool)};
    *read_bytes = (double)(READ_FLOATS * sizeof(float)) / best_seconds(d, &s);
    arena_destroy(&memory);
    return UTTER_OK;
}

utter_status device_measure(struct device *d, struct device_limits *limits, struct error *e)
{
    const utter_status status = device_measure_memory(d, &limits->read_bytes, e);
    if (status != UTTER_OK) return status;
    limits->f32_ops = measure_ops(d, d->kernels.spin_f32, 2);
    limits->bf16_ops = measure_ops(d, d->kernels.spin_bf16, 4);
    limits->int8_ops = measure_ops(d, d->kernels.spin_int8, 8);
    return UTTER_OK;
}
