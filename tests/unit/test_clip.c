/* Choosing, judging and cleaning the clip of a voice, on signals made to have each fault. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audio/biquad.h"
#include "audio/cleanup.h"
#include "audio/clip.h"
#include "audio/features.h"
#include "audio/loudness.h"
#include "audio/resample.h"
#include "wav.h"

#define PI 3.14159265358979323846
enum { RATE = 24000 };

/* ---- signals ---------------------------------------------------------------------------------------------------------- */

static uint32_t noise_state = 1;

static float noise(void)
{
    noise_state = noise_state * 1664525u + 1013904223u;
    return (float)(int32_t)noise_state / 2147483648.0f;
}

/* Syllables at 4 a second and a pause every 2 s: pulses through two resonances, with breath in between. Adds to x. */
static void speak(float *x, double from_s, double seconds, double pitch, double level)
{
    double phase = 0;
    struct biquad first = biquad_peak(RATE, 600, 200, 20), second = biquad_peak(RATE, 1700, 300, 14);
    for (int i = 0; i < (int)(seconds * RATE); i++) {
        const double t = (double)i / RATE, syllable = fmax(0, sin(2 * PI * 4 * t)), phrase = fmod(t, 2) < 1.6 ? 1 : 0;
        phase += pitch * (1 + 0.1 * sin(2 * PI * 0.7 * t)) / RATE;
        double pulse = 0;
        if (phase >= 1) phase -= 1, pulse = 1;
        const double voice = biquad_step(&second, biquad_step(&first, pulse * syllable));
        const double breath = 0.05 * (double)noise() * fmax(0, -sin(2 * PI * 4 * t));
        x[(int)(from_s * RATE) + i] += (float)(level * phrase * (voice + breath));
    }
}

static float *silence(double seconds)
{
    float *x = calloc((size_t)(seconds * RATE) + 1, sizeof *x);
    assert_non_null(x);
    return x;
}

static void add_noise(float *x, double seconds, double level)
{
    for (int i = 0; i < (int)(seconds * RATE); i++) x[i] += (float)level * noise();
}

static void add_tone(float *x, double seconds, double hz, double level)
{
    for (int i = 0; i < (int)(seconds * RATE); i++) x[i] += (float)(level * sin(2 * PI * hz * i / RATE));
}

static void scale(float *x, double seconds, double by)
{
    for (int i = 0; i < (int)(seconds * RATE); i++) x[i] *= (float)by;
}

static struct error e;

static double lufs_of(const float *x, size_t n, int rate)
{
    double lufs;
    assert_int_equal(loudness_measure(&lufs, x, n, rate, NULL, &e), UTTER_OK);
    return lufs;
}

/* ---- helpers ---------------------------------------------------------------------------------------------------------- */

static struct clip_options chosen = {.start_s = -1, .raw = true};

static utter_status make(struct clip *c, const float *x, double seconds, const struct clip_options *o)
{
    struct source *s;
    e.text[0] = 0;
    assert_int_equal(source_open_samples(&s, "test", x, (size_t)(seconds * RATE), RATE, &e), UTTER_OK);
    const utter_status status = clip_make(c, s, o, &e);
    source_close(&s);
    return status;
}

static const struct clip_finding *finding(const struct clip *c, const char *part)
{
    for (int i = 0; i < c->report.n_findings; i++)
        if (strstr(c->report.finding[i].text, part)) return &c->report.finding[i];
    return NULL;
}

static void expect_warning(const struct clip *c, const char *part)
{
    const struct clip_finding *f = finding(c, part);
    if (!f) print_message("no finding with \"%s\"\n", part);
    assert_non_null(f);
    assert_true(f->warning);
}

static void expect_none(const struct clip *c, const char *part)
{
    if (finding(c, part)) print_message("unexpected: %s\n", finding(c, part)->text);
    assert_null(finding(c, part));
}

/* ---- lengths and places ------------------------------------------------------------------------------------------------ */

static void test_lengths(void **state)
{
    (void)state;
    static const struct {
        double seconds;
        utter_status status;
        const char *says;
    } cases[] = {{0.1, UTTER_VOICE_UNUSABLE, "0.10 s of sound; a voice needs at least 1 s"},
                 {0.9, UTTER_VOICE_UNUSABLE, "0.90 s of sound"},
                 {4.9, UTTER_OK, "s long: the voice will be alike in pitch"},
                 {5.6, UTTER_OK, "s long: good"},
                 {12, UTTER_OK, NULL},
                 {41, UTTER_OK, "were chosen"},
                 {600, UTTER_OK, "were chosen"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct clip c;
        float *x = silence(cases[i].seconds);
        speak(x, 0, cases[i].seconds, 120, 0.5);
        assert_int_equal(make(&c, x, cases[i].seconds, &chosen), cases[i].status);
        assert_true(c.n_samples <= (size_t)(CLIP_TARGET_S * RATE) + 1);
        if (cases[i].status != UTTER_OK)
            assert_non_null(strstr(e.text, cases[i].says));
        else if (cases[i].says)
            assert_non_null(finding(&c, cases[i].says));
        else
            expect_none(&c, "s long");
        clip_free(&c);
        free(x);
    }
}

static void test_middle_of_the_longest(void **state)
{
    (void)state;
    struct clip c;
    float *x = silence(80);
    speak(x, 3, 5, 120, 0.3);
    speak(x, 20, 40, 120, 0.3);
    assert_int_equal(make(&c, x, 80, &chosen), UTTER_OK);
    assert_int_equal(c.report.n_spans, 1);
    assert_true(fabs(c.report.span[0].start_s - 32.5) < 1); /* 20 + (40 - 15) / 2 */
    assert_true(fabs(c.report.duration_s - 15) < 0.1);
    assert_true(fabs(c.report.speech_s - 45) < 3);
    clip_free(&c);
    free(x);
}

static void test_two_short_ones_are_joined(void **state)
{
    (void)state;
    struct clip c;
    float *x = silence(60);
    speak(x, 5, 5.6, 120, 0.3);
    speak(x, 25, 7.6, 120, 0.3);
    speak(x, 50, 1.6, 120, 0.3);
    assert_int_equal(make(&c, x, 60, &chosen), UTTER_OK);
    assert_int_equal(c.report.n_spans, 2);
    assert_true(fabs(c.report.span[0].start_s - 5) < 0.5 && fabs(c.report.span[1].start_s - 25) < 0.5);
    assert_true(c.report.duration_s > 12 && c.report.duration_s < 14.5);
    clip_free(&c);
    free(x);
}

static void test_given_part(void **state)
{
    (void)state;
    struct clip c;
    float *x = silence(30);
    speak(x, 0, 30, 120, 0.3);
    const struct clip_options part = {.start_s = 7, .duration_s = 6, .raw = true};
    assert_int_equal(make(&c, x, 30, &part), UTTER_OK);
    assert_int_equal(c.n_samples, 6 * RATE);
    assert_memory_equal(c.samples, x + 7 * RATE, 6 * RATE * sizeof *x);
    clip_free(&c);
    const struct clip_options beyond = {.start_s = 31, .raw = true};
    assert_int_equal(make(&c, x, 30, &beyond), UTTER_INVALID_ARGUMENT);
    assert_non_null(strstr(e.text, "ends at 30.0 s"));
    free(x);
}

/* Twelve hours are refused from the header, in no time and without memory. */
static void test_twelve_hours(void **state)
{
    (void)state;
    char path[] = "utter-long-XXXXXX";
    const int fd = mkstemp(path);
    struct source *s;
    struct clip c;
    assert_true(fd >= 0);
    static const unsigned char one = 128;
    write_wav(path, &(struct wav){.format = 1, .channels = 1, .bits = 8, .rate = 8000, .data_size = 12 * 3600 * 8000},
              &one, 1);
    assert_int_equal(ftruncate(fd, 44 + 12 * 3600 * 8000), 0); /* sparse */
    assert_int_equal(source_open(&s, path, &e), UTTER_OK);
    assert_int_equal(clip_make(&c, s, &chosen, &e), UTTER_VOICE_UNUSABLE);
    assert_non_null(strstr(e.text, "12.0 h long"));
    assert_non_null(strstr(e.text, "--start"));
    source_close(&s);
    close(fd);
    unlink(path);
}

/* ---- nothing to use ------------------------------------------------------------------------------------------------------ */

static void test_nothing(void **state)
{
    (void)state;
    struct clip c;
    float *x = silence(6);
    assert_int_equal(make(&c, x, 6, &chosen), UTTER_VOICE_UNUSABLE);
    assert_non_null(strstr(e.text, "silence (every sample is 0)"));
    for (int i = 0; i < 6 * RATE; i++) x[i] = 0.25f;
    assert_int_equal(make(&c, x, 6, &chosen), UTTER_VOICE_UNUSABLE);
    assert_non_null(strstr(e.text, "a constant 0.250"));
    memset(x, 0, 6 * RATE * sizeof *x);
    add_noise(x, 6, 3e-5);
    assert_int_equal(make(&c, x, 6, &chosen), UTTER_VOICE_UNUSABLE);
    assert_non_null(strstr(e.text, "its loudest moment is at"));
    x[0] = 1;
    assert_int_equal(make(&c, x, 1.0 / RATE, &chosen), UTTER_VOICE_UNUSABLE);
    assert_null(c.samples);
    free(x);
}

static void test_cancel(void **state)
{
    (void)state;
    struct clip c;
    struct cancel cancel = {0};
    float *x = silence(30);
    speak(x, 0, 30, 120, 0.3);
    struct clip_options o = chosen;
    o.cancel = &cancel;
    cancel_request(&cancel);
    assert_int_equal(make(&c, x, 30, &o), UTTER_CANCELLED);
    assert_null(c.samples);
    free(x);
}

/* ---- judgements ------------------------------------------------------------------------------------------------------------ */

static void test_clean_speech(void **state)
{
    (void)state;
    struct clip c;
    float *x = silence(12);
    speak(x, 0, 12, 120, 0.5);
    add_noise(x, 12, 2e-4);
    assert_int_equal(make(&c, x, 12, &chosen), UTTER_OK);
    for (int i = 0; i < c.report.n_findings; i++) assert_false(c.report.finding[i].warning);
    assert_true(fabs(c.report.measures.pitch_hz - 120) < 12);
    assert_true(c.report.measures.snr_db > 30);
    assert_true(c.report.measures.bandwidth_hz > 9000);
    assert_int_equal(c.report.cleanup, CLIP_AS_IT_IS);
    clip_free(&c);
    free(x);
}

static void test_faults(void **state)
{
    (void)state;
    struct clip c;
    float *x = silence(12);

    speak(x, 0, 12, 120, 0.5);
    add_noise(x, 12, 0.05);
    assert_int_equal(make(&c, x, 12, &chosen), UTTER_OK);
    expect_warning(&c, "above the noise");
    clip_free(&c);

    memset(x, 0, 12 * RATE * sizeof *x);
    speak(x, 0, 12, 120, 0.5);
    add_noise(x, 12, 2e-4);
    add_tone(x, 12, 50, 0.01), add_tone(x, 12, 100, 0.005), add_tone(x, 12, 150, 0.005);
    assert_int_equal(make(&c, x, 12, &chosen), UTTER_OK);
    expect_warning(&c, "Mains hum at 50 Hz");
    clip_free(&c);

    memset(x, 0, 12 * RATE * sizeof *x);
    speak(x, 0, 12, 120, 8);
    for (int i = 0; i < 12 * RATE; i++) x[i] = fmaxf(-1, fminf(1, x[i]));
    assert_int_equal(make(&c, x, 12, &chosen), UTTER_OK);
    expect_warning(&c, "clipped");
    clip_free(&c);

    memset(x, 0, 12 * RATE * sizeof *x);
    add_tone(x, 12, 220, 0.2), add_tone(x, 12, 277, 0.2), add_tone(x, 12, 330, 0.2);
    assert_int_equal(make(&c, x, 12, &chosen), UTTER_OK);
    expect_warning(&c, "music");
    clip_free(&c);

    memset(x, 0, 12 * RATE * sizeof *x);
    speak(x, 0, 6, 100, 0.3), speak(x, 6, 6, 210, 0.3);
    assert_int_equal(make(&c, x, 12, &chosen), UTTER_OK);
    expect_warning(&c, "two voices");
    expect_none(&c, "music");
    clip_free(&c);
    free(x);
}

/* 6 s of speech-shaped noise at -55 dBFS is a recording, if a poor one; so is speech at about -70 LUFS. */
static void test_quiet_is_accepted(void **state)
{
    (void)state;
    struct clip c;
    float *x = silence(6);
    struct biquad shape = biquad_peak(RATE, 500, 600, 15);
    for (int i = 0; i < 6 * RATE; i++) x[i] = (float)biquad_step(&shape, (double)noise());
    double power = 0;
    for (int i = 0; i < 6 * RATE; i++) power += (double)x[i] * (double)x[i];
    scale(x, 6, pow(10, -55.0 / 20) / sqrt(power / (6 * RATE)));
    assert_int_equal(make(&c, x, 6, &chosen), UTTER_OK);
    assert_int_equal(c.n_samples, 6 * RATE);
    clip_free(&c);

    memset(x, 0, 6 * RATE * sizeof *x);
    speak(x, 0, 6, 120, 0.5);
    scale(x, 6, pow(10, (-70 - lufs_of(x, 6 * RATE, RATE)) / 20));
    assert_int_equal(make(&c, x, 6, &chosen), UTTER_OK);
    double gain;
    assert_int_equal(loudness_normalize(c.samples, c.n_samples, RATE, -27, &gain, NULL, &e), UTTER_OK);
    assert_true(isfinite(gain) && gain > 1);
    for (size_t i = 0; i < c.n_samples; i++) assert_true(isfinite(c.samples[i]));
    clip_free(&c);
    free(x);
}

/* The same recording at a fiftieth of its level is the same voice to a model that normalises loudness. */
static void test_level_does_not_matter(void **state)
{
    (void)state;
    enum { N = 8 * RATE };
    float *loud = silence(8), *quiet = silence(8);
    speak(loud, 0, 8, 120, 0.5);
    for (int i = 0; i < N; i++) quiet[i] = 0.02f * loud[i];
    assert_int_equal(loudness_normalize(loud, N, RATE, -27, NULL, NULL, &e), UTTER_OK);
    assert_int_equal(loudness_normalize(quiet, N, RATE, -27, NULL, NULL, &e), UTTER_OK);
    for (int i = 0; i < N; i++) assert_true(fabsf(loud[i] - quiet[i]) < 1e-5f);
    assert_true(fabs(lufs_of(loud, N, RATE) + 27) < 1e-3);
    free(loud);
    free(quiet);
}

/* Float files may go beyond full scale: scaled to fit, with a note. */
static void test_over_full_scale(void **state)
{
    (void)state;
    struct clip c;
    float *x = silence(8), peak = 0;
    speak(x, 0, 8, 120, 0.5);
    for (int i = 0; i < 8 * RATE; i++) peak = fmaxf(peak, fabsf(x[i]));
    scale(x, 8, 1.5 / (double)peak);
    assert_int_equal(make(&c, x, 8, &chosen), UTTER_OK);
    assert_non_null(finding(&c, "scaled down"));
    peak = 0;
    for (size_t i = 0; i < c.n_samples; i++) peak = fmaxf(peak, fabsf(c.samples[i]));
    assert_true(peak <= 1.0f && peak > 0.99f);
    clip_free(&c);
    free(x);
}

/* ---- clean-up ---------------------------------------------------------------------------------------------------------------- */

static double level_of(const float *x, int from, int n)
{
    double power = 0;
    for (int i = from; i < from + n; i++) power += (double)x[i] * (double)x[i];
    return 10 * log10(power / n + 1e-20);
}

static void test_cleanup_clean(void **state)
{
    (void)state;
    float *x = silence(4), *was = silence(4);
    speak(x, 0, 4, 120, 0.2);
    for (int i = 0; i < 4 * RATE; i++) was[i] = x[i], x[i] += 0.2f;
    x[RATE] = 1.3f;
    cleanup_clean(x, 4 * RATE);
    for (int i = 0; i < 4 * RATE; i++) assert_true(fabsf(x[i]) <= 0.8501f);
    double mean = 0;
    for (int i = RATE; i < 4 * RATE; i++) mean += (double)x[i] / (3 * RATE);
    assert_true(fabs(mean) < 1e-3);                                                       /* the constant is gone */
    assert_true(fabs(level_of(x, 2 * RATE, RATE) - level_of(was, 2 * RATE, RATE)) < 0.5); /* the speech is not */
    free(x);
    free(was);
}

/* Vowels with few peaks, so that the limiter leaves them alone, and pauses of noise alone. */
static void test_cleanup_lossy(void **state)
{
    (void)state;
    float *x = silence(8);
    for (int h = 1; h <= 8; h++) add_tone(x, 8, 150 * h + h * h, 0.02);
    for (int i = 0; i < 8 * RATE; i++)
        if (i % (2 * RATE) >= RATE * 8 / 5) x[i] = 0;
    add_noise(x, 8, 0.004);
    const int pause = (int)(1.7 * RATE), vowel = (int)(0.2 * RATE), n = RATE / 5;
    const double before = level_of(x, vowel, n) - level_of(x, pause, n);
    assert_int_equal(cleanup_lossy(x, 8 * RATE, 3000, NULL, &e), UTTER_OK); /* nothing above 3 kHz is raised */
    const double after = level_of(x, vowel, n) - level_of(x, pause, n);
    assert_true(after > before + 4 && after < before + 7);
    assert_true(fabs(lufs_of(x, 8 * RATE, RATE) + 18) < 1);
    for (int i = 0; i < 8 * RATE; i++) assert_true(fabsf(x[i]) <= 0.8501f);
    free(x);
}

/* Everything that looks at a whole clip sees a cancel on its way; what it made is then not to be used. */
static void test_cancel_of_analysis(void **state)
{
    (void)state;
    static float out[2000 * S3_N_MELS];
    float *x = silence(8);
    speak(x, 0, 8, 120, 0.1);
    struct cancel cancel = {0};
    struct measures m;
    cancel_request(&cancel);
    assert_int_equal(measure(&m, x, 8 * RATE, &cancel, &e), UTTER_CANCELLED);
    assert_int_equal(cleanup_lossy(x, 8 * RATE, 3000, &cancel, &e), UTTER_CANCELLED);
    double lufs;
    assert_int_equal(loudness_measure(&lufs, x, 8 * RATE, RATE, &cancel, &e), UTTER_CANCELLED);
    float *y = NULL;
    size_t n;
    assert_int_equal(resample(&y, &n, x, 8 * RATE, RATE, 16000, &cancel, &e), UTTER_CANCELLED);
    assert_null(y);
    assert_int_equal(s3_log_mel_16k(out, x, 8 * RATE, &cancel, &e), UTTER_CANCELLED);
    assert_int_equal(voice_encoder_mel_16k(out, x, 8 * RATE, &cancel, &e), UTTER_CANCELLED);
    assert_int_equal(prompt_mel_24k(out, x, 8 * RATE, &cancel, &e), UTTER_CANCELLED);
    assert_int_equal(kaldi_fbank_16k(out, x, 8 * RATE, &cancel, &e), UTTER_CANCELLED);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lengths),
                                       cmocka_unit_test(test_middle_of_the_longest),
                                       cmocka_unit_test(test_two_short_ones_are_joined),
                                       cmocka_unit_test(test_given_part),
                                       cmocka_unit_test(test_twelve_hours),
                                       cmocka_unit_test(test_nothing),
                                       cmocka_unit_test(test_cancel),
                                       cmocka_unit_test(test_cancel_of_analysis),
                                       cmocka_unit_test(test_clean_speech),
                                       cmocka_unit_test(test_faults),
                                       cmocka_unit_test(test_quiet_is_accepted),
                                       cmocka_unit_test(test_level_does_not_matter),
                                       cmocka_unit_test(test_over_full_scale),
                                       cmocka_unit_test(test_cleanup_clean),
                                       cmocka_unit_test(test_cleanup_lossy)};
    return cmocka_run_group_tests_name("clip", tests, NULL, NULL);
}
