/* The CPU device: which level this machine has, its threads, and the parameters it keeps. */
#include "device/cpu/cpu.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/cpu/detect.h"

struct param {
    struct param *next;
    _Alignas(64) float data[];
};

static const char *const level_names[] = {
    [CPU_AUTO] = "auto", [CPU_SCALAR] = "scalar", [CPU_AVX2] = "avx2", [CPU_AVX512] = "avx512", [CPU_NEON] = "neon"};
enum { N_LEVELS = sizeof level_names / sizeof level_names[0] };

bool cpu_level_by_name(enum cpu_level *out, const char *name)
{
    int i = 0;
    while (i < N_LEVELS && strcmp(name, level_names[i]) != 0) i++;
    if (i < N_LEVELS) *out = (enum cpu_level)i;
    return i < N_LEVELS;
}

/* $UTTER_CPU names the level unless the caller does. */
static utter_status choose_level(enum cpu_level asked, enum cpu_level *out, struct error *e)
{
    const char *from = "";
    if (asked == CPU_AUTO) {
        const char *name = getenv("UTTER_CPU");
        if (name && *name) {
            from = "UTTER_CPU: ";
            if (!cpu_level_by_name(&asked, name))
                return error_set(e, UTTER_INVALID_ARGUMENT,
                                 "UTTER_CPU: \"%.40s\" is not one of auto, scalar, avx2, avx512, neon", name);
        }
    }
    *out = asked == CPU_AUTO ? cpu_best_level() : asked;
    if (!cpu_has_level(*out))
        return error_set(e, UTTER_UNSUPPORTED, "%sthis machine has no %s (its best level is %s)", from,
                         level_names[*out], level_names[cpu_best_level()]);
    return UTTER_OK;
}

/* Whether `cpu` is the first of its core's hardware threads that we may run on. */
static bool first_of_core(int cpu, const cpu_set_t *allowed)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *f = fopen(path, "r");
    if (!f) return true;
    int first = cpu;
    if (fscanf(f, "%d", &first) != 1) first = cpu;
    fclose(f);
    return first == cpu || first < 0 || first >= CPU_SETSIZE || !CPU_ISSET(first, allowed);
}

static int physical_cores(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
    int n = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) n += CPU_ISSET(cpu, &allowed) && first_of_core(cpu, &allowed);
    return n < 1 ? 1 : n > POOL_MAX_THREADS ? POOL_MAX_THREADS : n;
}

/* Without huge pages a copy would be as slow to read as the file, and slower to make. */
static bool has_huge_pages(void)
{
    char setting[64] = "[never]";
    FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    if (!f) return false;
    const bool known = fgets(setting, sizeof setting, f) != NULL;
    fclose(f);
    return known && !strstr(setting, "[never]");
}

utter_status device_create_cpu(struct device **out, const struct device_options *o, struct error *e)
{
    const struct device_options defaults = {0};
    if (!o) o = &defaults;
    *out = NULL;
    enum cpu_level level = CPU_SCALAR;
    utter_status status = choose_level(o->level, &level, e);
    if (status != UTTER_OK) return status;
    struct device *d = mem_calloc(1, sizeof *d);
    if (!d) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a device");
    pthread_mutex_init(&d->params_lock, NULL);
    pthread_mutex_init(&d->resident_lock, NULL);
    d->huge_pages = has_huge_pages();
    d->level = level;
    d->precision = o->precision;
    cpu_kernels_fill(&d->kernels, level);
    status = pool_create(&d->pool, o->n_threads ? o->n_threads : physical_cores(), e);
    if (status != UTTER_OK) {
        device_destroy(&d);
        return status;
    }
    const int n = pool_threads(d->pool);
    snprintf(d->name, sizeof d->name, "cpu %s, %d thread%s", level_names[level], n, n == 1 ? "" : "s");
    *out = d;
    return UTTER_OK;
}

void device_destroy(struct device **device)
{
    struct device *d = *device;
    if (!d) return;
    pool_destroy(&d->pool);
    while (d->params) {
        struct param *next = d->params->next;
        mem_free(d->params);
        d->params = next;
    }
    arena_destroy(&d->resident);
    pthread_mutex_destroy(&d->resident_lock);
    pthread_mutex_destroy(&d->params_lock);
    mem_free(d);
    *device = NULL;
}

const char *device_name(const struct device *d)
{
    return d->name;
}
int device_threads(const struct device *d)
{
    return pool_threads(d->pool);
}

bool stream_fork(struct stream *s, void (*fn)(void *), void *arg)
{
    s->alone = true;
    if (pool_lend(s->device->pool, fn, arg)) return true;
    s->alone = false;
    return false;
}

void stream_join(struct stream *s)
{
    pool_take_back(s->device->pool);
    s->alone = false;
}

int cpu_workers(const struct stream *s)
{
    return s->alone ? 1 : pool_threads(s->device->pool);
}

static bool run_alone(struct stream *s, int n_tiles, pool_tile_fn *fn, void *arg)
{
    for (int tile = 0; tile < n_tiles; tile++) {
        if (cancel_poll(s->cancel)) return false;
        fn(arg, tile, 0);
    }
    return !cancel_poll(s->cancel);
}

void cpu_run(struct stream *s, int n_tiles, pool_tile_fn *fn, void *arg)
{
    if (s->alone ? !run_alone(s, n_tiles, fn, arg) : !pool_run(s->device->pool, s->cancel, n_tiles, fn, arg))
        stream_fail(s, UTTER_CANCELLED);
}

void cpu_run_in_shares(struct stream *s, int n_tiles, pool_tile_fn *fn, void *arg)
{
    if (s->alone ? !run_alone(s, n_tiles, fn, arg) : !pool_run_in_shares(s->device->pool, s->cancel, n_tiles, fn, arg))
        stream_fail(s, UTTER_CANCELLED);
}

/* ---- parameters ------------------------------------------------------------------------------------------------- */

static utter_status param_create(struct array *out, struct device *d, int rows, int cols, struct error *e)
{
    *out = (struct array){NULL, rows, cols, cols};
    size_t bytes;
    if (rows < 0 || cols < 0 || !size_mul((size_t)rows * sizeof(float), (size_t)cols, &bytes) ||
        !size_add(bytes, sizeof(struct param), &bytes))
        return error_set(e, UTTER_INVALID_ARGUMENT, "parameter of %d x %d", rows, cols);
    struct param *p = mem_alloc_aligned(bytes);
    if (!p) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a parameter of %d x %d", rows, cols);
    pthread_mutex_lock(&d->params_lock);
    p->next = d->params;
    d->params = p;
    pthread_mutex_unlock(&d->params_lock);
    out->data = p->data;
    return UTTER_OK;
}

utter_status device_param(struct array *out, struct device *d, const struct tensor *t, struct error *e)
{
    const size_t n = tensor_count(t);
    const size_t cols = t->n_dims > 0 ? (size_t)t->shape[t->n_dims - 1] : 1;
    if (n > INT32_MAX || cols == 0)
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: %zu values are no parameter", t->name ? t->name : "tensor", n);
    const int rows = (int)(n / cols);
    if (t->type == DTYPE_F32 && (uintptr_t)t->data % _Alignof(float) == 0) {
        *out = (struct array){(float *)(uintptr_t)t->data, rows, (int)cols, (int)cols};
        return UTTER_OK;
    }
    utter_status status = param_create(out, d, rows, (int)cols, e);
    if (status == UTTER_OK) tensor_read_f32(t, 0, n, out->data);
    return status;
}

utter_status device_param_copy(struct array *out, struct device *d, int rows, int cols, const float *values,
                               struct error *e)
{
    utter_status status = param_create(out, d, rows, cols, e);
    if (status == UTTER_OK) memcpy(out->data, values, (size_t)rows * (size_t)cols * sizeof(float));
    return status;
}
