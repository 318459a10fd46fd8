#include "tools/golden.h"

#include <stdio.h>
#include <string.h>

#include "tools/hashfill.h"

/* Under a sanitizer, whose runs are slow and look at what is read and written, 1 and 3 threads. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { THREADS_STEP = 2 };
#else
enum { THREADS_STEP = 1 };
#endif

static double tolerance_of(const struct golden_tolerance *t, const char *name)
{
    while (t->prefix && strncmp(name, t->prefix, strlen(t->prefix)) != 0) t++;
    return t->ratio;
}

static int check_values(const struct golden *g, const struct reffile *reference, const struct reffile *out,
                        const char *level)
{
    int failures = 0;
    for (size_t i = 0; i < reference->n; i++) {
        const struct ref_array *a = &reference->arrays[i], *b = reffile_find(out, a->name);
        if (strncmp(a->name, "out.", 4) != 0) continue;
        double difference = 0, magnitude = 0;
        const bool comparable = b && ref_same_shape(a, b);
        if (comparable) ref_compare(a, b, &difference, &magnitude);
        if (comparable && difference <= tolerance_of(g->tolerances, a->name) * magnitude) continue;
        failures++;
        printf("%s, %s: %s: %s, difference %g of %g\n", g->stage, level, a->name,
               comparable ? "too far" : "missing or of another shape", difference, magnitude);
    }
    return failures;
}

static int check_same_bytes(const struct golden *g, const struct reffile *one, const struct reffile *out, int threads,
                            const char *level)
{
    int failures = one->n == out->n ? 0 : 1;
    for (size_t i = 0; i < one->n && i < out->n; i++) {
        const struct ref_array *a = &one->arrays[i], *b = &out->arrays[i];
        if (a->count == b->count && memcmp(a->values.f, b->values.f, 4 * a->count) == 0) continue;
        failures++;
        printf("%s, %s: %s differs between 1 and %d threads\n", g->stage, level, a->name, threads);
    }
    return failures;
}

static int check_level(const struct golden *g, const struct reffile *reference, enum cpu_level level, const char *name)
{
    struct stage_settings settings = {.checkpoint = g->checkpoint, .stage = g->stage, .device = {.level = level}};
    struct reffile one = {0};
    int failures = 0;
    for (int threads = 1; threads <= 3; threads += THREADS_STEP) {
        struct reffile out = {0};
        struct error e = {""};
        settings.device.n_threads = threads;
        if (stage_run(&settings, reference, &out, &e) != UTTER_OK) {
            printf("%s, %s, %d threads: %s\n", g->stage, name, threads, e.text);
            failures++;
        } else if (threads == 1) {
            failures += check_values(g, reference, &out, name);
        } else {
            failures += check_same_bytes(g, &one, &out, threads, name);
        }
        if (threads == 1)
            one = out;
        else
            reffile_free(&out);
    }
    reffile_free(&one);
    return failures;
}

static bool level_available(enum cpu_level level)
{
    struct device *d = NULL;
    struct error e;
    const struct device_options o = {.level = level, .n_threads = 1};
    const bool available = device_create_cpu(&d, &o, &e) == UTTER_OK;
    if (available) device_destroy(&d);
    return available;
}

int golden_failures(const struct golden *g)
{
    static const struct {
        enum cpu_level level;
        const char *name;
    } levels[] = {{CPU_SCALAR, "scalar"}, {CPU_AVX2, "avx2"}, {CPU_AVX512, "avx512"}, {CPU_NEON, "neon"}};
    struct reffile reference;
    struct error e = {""};
    if (reffile_read(&reference, g->reference, &e) != UTTER_OK) {
        printf("%s: %s\n", g->stage, e.text);
        return 1;
    }
    if (g->complete) g->complete(&reference);
    int failures = 0;
    for (size_t i = g->fast_levels ? 1 : 0; i < sizeof levels / sizeof levels[0]; i++)
        if (level_available(levels[i].level)) failures += check_level(g, &reference, levels[i].level, levels[i].name);
    reffile_free(&reference);
    return failures;
}

int golden_failures_hashfill(struct golden g, const char *spec_folder, const char *const *tags)
{
    char folder[64];
    struct error e = {""};
    if (hashfill_folder(folder, spec_folder, tags, &e) != UTTER_OK) {
        printf("%s: %s\n", g.stage, e.text);
        return 1;
    }
    g.checkpoint = folder;
    const int failures = golden_failures(&g);
    hashfill_remove_folder(folder);
    return failures;
}
