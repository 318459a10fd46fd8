/* The front ends of voice cloning on ten recordings against librosa, pyloudnorm, torch and torchaudio; the values were kept by
 * tests/tools/frontend_parity.py, thinned to every 97th sample and every 16th frame. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/frontend.h"

#define FOLDER GOLDEN_DIR "/frontends"
enum { SAMPLES = 97, FRAMES = 16 };

/* Allowed |difference| = absolute + of_max * largest value of the array + slope * exp(k * (frame's largest - value)).
 *
 * Logarithmic spectra are within 2e-4 where float32 resolves them. Both sides' transforms round at about 1e-7 of a frame's
 * loudest amplitude, so that a band far below it carries that much more noise in log units: k is 1/2 for energies, 1 for
 * amplitudes. Against a float64 computation our values are nearer than the reference's in nine of the ten recordings. */
static const struct tolerance {
    const char *name;
    double absolute, of_max, slope, k;
} tolerances[] = {{"load24", 1e-6, 0, 0, 0},     {"x16", 1e-6, 0, 0, 0},        {"lufs", 1e-4, 0, 0, 0},
                  {"sinc16", 1e-6, 0, 0, 0},     {"trim", 0, 0, 0, 0},          {"voice_encoder_mel", 0, 1e-6, 0, 0},
                  {"fbank", 2e-4, 0, 6e-6, 0.5}, {"s3_log_mel", 2e-4, 0, 0, 0}, {"prompt_mel", 2e-4, 0, 2e-7, 1}};

static double value(const struct ref_array *a, size_t i)
{
    return a->is_int ? a->values.i[i] : (double)a->values.f[i];
}

static size_t columns(const struct ref_array *a)
{
    return a->n_dims == 2 ? (size_t)a->shape[1] : 1;
}

/* Where value i of a thinned array lies in the whole one. */
static size_t position(const struct ref_array *a, size_t i)
{
    if (a->n_dims == 2) return i / columns(a) * FRAMES * columns(a) + i % columns(a);
    return a->count > 2 ? i * SAMPLES : i;
}

static double largest(const struct ref_array *a, size_t first, size_t n)
{
    double max = -HUGE_VAL;
    for (size_t i = first; i < first + n; i++) max = fmax(max, value(a, i));
    return max;
}

static int compare(const char *recording, const struct tolerance *t, const struct ref_array *reference,
                   const struct ref_array *ours)
{
    const size_t cols = columns(reference);
    const double max = largest(reference, 0, reference->count);
    for (size_t i = 0; i < reference->count; i++) {
        const size_t at = position(reference, i);
        const double r = value(reference, i), frame_max = largest(reference, i / cols * cols, cols);
        const double allowed = t->absolute + t->of_max * max + t->slope * exp(t->k * (frame_max - r));
        if (at < ours->count && fabs(value(ours, at) - r) <= allowed) continue;
        printf("%s: %s[%zu]: %g, expected %g within %g\n", recording, t->name, at,
               at < ours->count ? value(ours, at) : NAN, r, allowed);
        return 1;
    }
    return 0;
}

/* The whole array must be as long as what it was thinned from. */
static bool same_length(const struct ref_array *reference, const struct ref_array *ours)
{
    const size_t step = reference->n_dims == 2 ? FRAMES : reference->count > 2 ? SAMPLES : 1;
    return columns(ours) == columns(reference) &&
           ((size_t)ours->shape[0] + step - 1) / step == (size_t)reference->shape[0];
}

static void test_recordings(void **state)
{
    (void)state;
    struct reffile reference = {0};
    struct error e;
    int failures = 0, compared = 0;
    assert_int_equal(reffile_read(&reference, FOLDER "/frontends.safetensors", &e), UTTER_OK);
    char last[64] = "";
    struct reffile ours = {0};
    for (size_t i = 0; i < reference.n; i++) {
        const struct ref_array *r = &reference.arrays[i];
        char recording[64], path[512];
        const char *dot = strchr(r->name, '.');
        assert_non_null(dot);
        snprintf(recording, sizeof recording, "%.*s", (int)(dot - r->name), r->name);
        if (strcmp(recording, last)) { /* the arrays of one recording lie together */
            reffile_free(&ours);
            snprintf(path, sizeof path, FOLDER "/%s.flac", recording);
            assert_int_equal(frontend_run(&ours, path, &e), UTTER_OK);
            strcpy(last, recording);
        }
        for (size_t k = 0; k < sizeof tolerances / sizeof *tolerances; k++) {
            if (strcmp(dot + 1, tolerances[k].name)) continue;
            const struct ref_array *o = reffile_find(&ours, dot + 1);
            assert_non_null(o);
            assert_true(same_length(r, o));
            failures += compare(recording, &tolerances[k], r, o);
            compared++;
        }
    }
    reffile_free(&ours);
    reffile_free(&reference);
    assert_int_equal(compared, 10 * (int)(sizeof tolerances / sizeof *tolerances));
    assert_int_equal(failures, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recordings)};
    return cmocka_run_group_tests_name("frontends", tests, NULL, NULL);
}
