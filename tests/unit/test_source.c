/* Recordings: every width and header variant reads alike, hostile ones are refused by name, resampling keeps length and pitch. */
#include "test.h"

#include <fcntl.h>
#include <math.h>
#include <sndfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audio/mono.h"
#include "base/mem.h"
#include "wav.h"

#define PI 3.14159265358979323846

static char folder[] = "utter-source-XXXXXX";
static char path[64];

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/recording", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static double tone(double hz, double rate, int i)
{
    return 0.5 * sin(2 * PI * hz * i / rate);
}

/* All of a file at 24 kHz. The caller frees *out. */
static utter_status read_all(const char *from, int channel, float **out, size_t *n, struct mono_watch *watch,
                             struct error *e)
{
    struct source *s;
    struct mono *m = NULL;
    size_t got = 1, capacity = 24000 * 10;
    *n = 0;
    *out = NULL;
    utter_status status = source_open(&s, from, e);
    if (status != UTTER_OK) return status;
    *out = malloc(capacity * sizeof **out);
    status = mono_open(&m, s, 0, channel, e);
    while (status == UTTER_OK && got > 0 && *n < capacity) {
        status = mono_read(m, *out + *n, capacity - *n, &got, e);
        *n += got;
    }
    if (watch && m) *watch = *mono_watch(m);
    mono_close(&m);
    source_close(&s);
    return status;
}

static void expect_refused(const char *from, const char *part_of_message)
{
    struct error e = {""};
    float *x;
    size_t n;
    assert_int_equal(read_all(from, MONO_MEAN, &x, &n, NULL, &e), UTTER_INPUT_UNREADABLE);
    assert_non_null(strstr(e.text, part_of_message));
    assert_non_null(strstr(e.text, from));
    free(x);
}

/* Zero crossings upwards: pitch without a transform. */
static double pitch(const float *x, size_t n, double rate)
{
    size_t first = 0, last = 0, count = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i - 1] < 0 && x[i] >= 0) {
            if (!count++) first = i;
            last = i;
        }
    return (double)(count - 1) * rate / (double)(last - first);
}

static void test_rates(void **state)
{
    (void)state;
    static const int rates[] = {8000, 11025, 16000, 22050, 24000, 32000, 44100, 48000, 96000, 192000};
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        const int n_in = 6 * rates[r];
        int16_t *pcm = malloc((size_t)n_in * sizeof *pcm);
        struct error e;
        float *x;
        size_t n;
        for (int i = 0; i < n_in; i++) pcm[i] = (int16_t)(32767 * tone(300, rates[r], i));
        write_wav(path, &(struct wav){.format = 1, .channels = 1, .bits = 16, .rate = (uint32_t)rates[r]}, pcm,
                  (size_t)n_in * 2);
        assert_int_equal(read_all(path, MONO_MEAN, &x, &n, NULL, &e), UTTER_OK);
        assert_in_range(n, 6 * 24000 - 1, 6 * 24000 + 1);
        assert_true(fabs(pitch(x + 2400, n - 4800, 24000) - 300) < 0.1);
        free(x);
        free(pcm);
    }
}

/* Sample i of the test signal in every width. */
static void put_sample(unsigned char *p, int format, int bits, double v)
{
    if (format == 3 && bits == 32) {
        const float f = (float)v;
        memcpy(p, &f, 4);
    } else if (format == 3) {
        memcpy(p, &v, 8);
    } else if (bits == 8) {
        p[0] = (unsigned char)lrint(128 + 127 * v);
    } else {
        const long long scaled = llrint(v * (ldexp(1, bits - 1) - 1));
        for (int b = 0; b < bits / 8; b++) p[b] = (unsigned char)(scaled >> (8 * b));
    }
}

static void test_widths_and_headers(void **state)
{
    (void)state;
    static const struct wav variants[] = {{.format = 1, .channels = 1, .bits = 8, .rate = 24000},
                                          {.format = 1, .channels = 1, .bits = 16, .rate = 24000},
                                          {.format = 1, .channels = 1, .bits = 24, .rate = 24000},
                                          {.format = 1, .channels = 1, .bits = 32, .rate = 24000},
                                          {.format = 3, .channels = 1, .bits = 32, .rate = 24000},
                                          {.format = 3, .channels = 1, .bits = 64, .rate = 24000},
                                          {.format = 0xFFFE, .channels = 1, .bits = 24, .rate = 24000},
                                          {.format = 1, .channels = 1, .bits = 16, .rate = 24000, .fmt_size = 18},
                                          {.format = 1, .channels = 1, .bits = 16, .rate = 24000, .before = "LIST"},
                                          {.format = 1, .channels = 1, .bits = 16, .rate = 24000, .before = "JUNK"},
                                          {.format = 1, .channels = 2, .bits = 16, .rate = 24000},
                                          {.format = 1, .channels = 6, .bits = 24, .rate = 24000}};
    enum { N = 24000 };
    static unsigned char bytes[N * 6 * 8];
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        const struct wav *w = &variants[v];
        const size_t width = w->bits / 8, channels = w->channels;
        struct error e;
        float *x;
        size_t n;
        for (size_t i = 0; i < N; i++)
            for (size_t c = 0; c < channels; c++)
                put_sample(bytes + (i * channels + c) * width, w->format == 3 ? 3 : 1, w->bits,
                           tone(300, 24000, (int)i));
        write_wav(path, w, bytes, N * channels * width);
        assert_int_equal(read_all(path, MONO_MEAN, &x, &n, NULL, &e), UTTER_OK);
        assert_int_equal(n, N);
        const double tolerance = w->bits == 8 ? 0.01 : 2e-4;
        for (size_t i = 0; i < n; i++) assert_true(fabs((double)x[i] - tone(300, 24000, (int)i)) < tolerance);
        free(x);
    }
}

static void test_formats(void **state)
{
    (void)state;
    static const int formats[] = {SF_FORMAT_FLAC | SF_FORMAT_PCM_16,
                                  SF_FORMAT_OGG | SF_FORMAT_VORBIS,
                                  SF_FORMAT_OGG | SF_FORMAT_OPUS,
                                  SF_FORMAT_AIFF | SF_FORMAT_PCM_16,
                                  SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III,
                                  SF_FORMAT_CAF | SF_FORMAT_ALAC_16};
    for (size_t k = 0; k < sizeof formats / sizeof *formats; k++) {
        SF_INFO info = {.samplerate = 24000, .channels = 1, .format = formats[k]};
        SNDFILE *f = sf_open(path, SFM_WRITE, &info);
        assert_non_null(f);
        static float tone_samples[48000];
        for (int i = 0; i < 48000; i++) tone_samples[i] = (float)tone(300, 24000, i);
        assert_int_equal(sf_writef_float(f, tone_samples, 48000), 48000);
        sf_close(f);
        struct error e = {""};
        float *x;
        size_t n;
        assert_int_equal(read_all(path, MONO_MEAN, &x, &n, NULL, &e), UTTER_OK);
        assert_in_range(n, 47000, 52000);
        assert_true(fabs(pitch(x + 4800, n - 9600, 24000) - 300) < 0.5);
        free(x);
    }
}

static void test_channels(void **state)
{
    (void)state;
    enum { N = 24000 };
    static int16_t pcm[2 * N];
    struct mono_watch watch;
    struct error e;
    float *x;
    size_t n;
    for (int i = 0; i < N; i++) pcm[2 * i] = (int16_t)(32767 * tone(300, 24000, i)), pcm[2 * i + 1] = 0;
    write_wav(path, &(struct wav){.format = 1, .channels = 2, .bits = 16, .rate = 24000}, pcm, sizeof pcm);
    assert_int_equal(read_all(path, MONO_MEAN, &x, &n, &watch, &e), UTTER_OK);
    assert_true(fabs(pitch(x, n, 24000) - 300) < 0.1); /* left only: half as loud, the same tone */
    assert_true(watch.mean_power > 0.4 * watch.channel_power);
    free(x);
    for (int i = 0; i < N; i++) pcm[2 * i + 1] = (int16_t)-pcm[2 * i];
    write_wav(path, &(struct wav){.format = 1, .channels = 2, .bits = 16, .rate = 24000}, pcm, sizeof pcm);
    assert_int_equal(read_all(path, MONO_MEAN, &x, &n, &watch, &e), UTTER_OK);
    assert_true(watch.mean_power < 1e-6 * watch.channel_power); /* they cancel, and that is seen */
    free(x);
    assert_int_equal(read_all(path, 0, &x, &n, &watch, &e), UTTER_OK);
    assert_true(fabs(pitch(x, n, 24000) - 300) < 0.1);
    free(x);
}

static void test_clipping_is_seen(void **state)
{
    (void)state;
    enum { N = 2400 };
    static float square[N];
    struct mono_watch watch;
    struct error e;
    float *x;
    size_t n;
    for (int i = 0; i < N; i++) square[i] = i / 40 % 2 ? 1.5f : -1.5f;
    write_wav(path, &(struct wav){.format = 3, .channels = 1, .bits = 32, .rate = 24000}, square, sizeof square);
    assert_int_equal(read_all(path, MONO_MEAN, &x, &n, &watch, &e), UTTER_OK);
    assert_true(watch.peak == 1.5f);
    assert_true(watch.n_clipped == N);
    free(x);
}

static void write_bytes(const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void test_not_audio(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *message;
    } cases[] = {{"\x89PNG\r\n\x1a\n and so on, a picture", "a PNG picture"},
                 {"<html><body>404</body></html>", "a web page"},
                 {"just some words\n", "text"},
                 {"GGUF\3\0\0\0\0\0\0\0\0", "a GGUF model"},
                 {"PK\3\4rest of a zip", "a zip archive"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_bytes(cases[i].bytes, strlen(cases[i].bytes));
        expect_refused(path, cases[i].message);
    }
    write_bytes("", 0);
    expect_refused(path, "empty");
    expect_refused(folder, "a folder");
    static const char absent[] = "utter-no-such-recording.wav";
    expect_refused(absent, "No such file");
    write_bytes("", 0);
    assert_int_equal(truncate(path, (off_t)1 << 30), 0); /* sparse */
    expect_refused(path, "zero bytes");
    if (geteuid() != 0) {
        assert_int_equal(chmod(path, 0), 0);
        expect_refused(path, "Permission denied");
        assert_int_equal(chmod(path, 0600), 0);
    }
}

/* None may crash; each is refused, or read as what is really there. */
static void test_lying_headers(void **state)
{
    (void)state;
    static const int16_t pcm[4800] = {1000, -1000, 1000};
    static const struct wav refused[] = {{.format = 1, .channels = 0, .bits = 16, .rate = 24000},
                                         {.format = 1, .channels = 65535, .bits = 16, .rate = 24000},
                                         {.format = 1, .channels = 1, .bits = 16, .rate = 0},
                                         {.format = 1, .channels = 1, .bits = 16, .rate = 0xFFFFFFFFu},
                                         {.format = 1, .channels = 1, .bits = 16, .rate = 4000},
                                         {.format = 0x7777, .channels = 1, .bits = 16, .rate = 24000}};
    static const struct wav survived[] = {{.format = 1, .channels = 1, .bits = 0, .rate = 24000},
                                          {.format = 1, .channels = 1, .bits = 7, .rate = 24000},
                                          {.format = 1, .channels = 1, .bits = 12, .rate = 24000},
                                          {.format = 1, .channels = 1, .bits = 16, .block = 77, .rate = 24000},
                                          {.format = 3, .channels = 1, .bits = 16, .rate = 24000}};
    struct error e;
    float *x;
    size_t n;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        write_wav(path, &refused[i], pcm, sizeof pcm);
        assert_int_equal(read_all(path, MONO_MEAN, &x, &n, NULL, &e), UTTER_INPUT_UNREADABLE);
        free(x);
    }
    for (size_t i = 0; i < sizeof survived / sizeof *survived; i++) {
        write_wav(path, &survived[i], pcm, sizeof pcm);
        const utter_status status = read_all(path, MONO_MEAN, &x, &n, NULL, &e);
        assert_true(status == UTTER_OK || status == UTTER_INPUT_UNREADABLE);
        free(x);
    }
}

static void test_wrong_sizes(void **state)
{
    (void)state;
    static const int16_t pcm[4800] = {1000, -1000, 1000};
    struct source *s;
    struct error e;
    float block[4800];
    size_t n;
    struct wav w = {.format = 1, .channels = 1, .bits = 16, .rate = 24000, .data_size = 96000};
    write_wav(path, &w, pcm, sizeof pcm - 1); /* ends in the middle of a sample, and promises ten times as much */
    assert_int_equal(source_open(&s, path, &e), UTTER_OK);
    assert_int_equal(source_read(s, block, 4800, &n, &e), UTTER_OK);
    assert_int_equal(n, 4799);
    assert_non_null(strstr(source_info(s)->note, "ends early"));
    source_close(&s);
    w.data_size = 0xFFFFFFFFu; /* what a program leaves that wrote to a pipe */
    write_wav(path, &w, pcm, sizeof pcm);
    assert_int_equal(source_open(&s, path, &e), UTTER_OK);
    assert_int_equal(source_read(s, block, 4800, &n, &e), UTTER_OK);
    assert_int_equal(n, 4800);
    assert_string_equal(source_info(s)->note, "");
    source_close(&s);
    write_wav(path, &(struct wav){.format = 1, .channels = 1, .bits = 16, .rate = 24000}, pcm, 0);
    expect_refused(path, "0 samples");
}

static void test_not_finite(void **state)
{
    (void)state;
    static float x[2400];
    const struct wav w = {.format = 3, .channels = 1, .bits = 32, .rate = 24000};
    x[1234] = NAN;
    write_wav(path, &w, x, sizeof x);
    expect_refused(path, "sample 1234 of channel 1 is not a number");
    x[1234] = -INFINITY;
    write_wav(path, &w, x, sizeof x);
    expect_refused(path, "infinite");
}

static void test_pipe_and_seek(void **state)
{
    (void)state;
    static int16_t pcm[24000];
    struct source *s;
    struct error e;
    float block[100];
    size_t n;
    for (int i = 0; i < 24000; i++) pcm[i] = (int16_t)i;
    write_wav(path, &(struct wav){.format = 1, .channels = 1, .bits = 16, .rate = 24000}, pcm, sizeof pcm);
    const int file = open(path, O_RDONLY), old = dup(STDIN_FILENO);
    int ends[2];
    char bytes[sizeof pcm + 64];
    assert_int_equal(pipe(ends), 0);
    const ssize_t got = read(file, bytes, sizeof bytes);
    assert_int_equal(write(ends[1], bytes, (size_t)got), got);
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    assert_int_equal(source_open(&s, "-", &e), UTTER_OK);
    assert_string_equal(source_name(s), "standard input");
    assert_int_equal(source_seek(s, 12345, &e), UTTER_OK);
    assert_int_equal(source_read(s, block, 100, &n, &e), UTTER_OK);
    assert_true(block[0] == 12345 / 32768.0f);
    source_close(&s);
    dup2(old, STDIN_FILENO);
    close(ends[0]), close(old), close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rates),
                                       cmocka_unit_test(test_widths_and_headers),
                                       cmocka_unit_test(test_formats),
                                       cmocka_unit_test(test_channels),
                                       cmocka_unit_test(test_clipping_is_seen),
                                       cmocka_unit_test(test_not_audio),
                                       cmocka_unit_test(test_lying_headers),
                                       cmocka_unit_test(test_wrong_sizes),
                                       cmocka_unit_test(test_not_finite),
                                       cmocka_unit_test(test_pipe_and_seek)};
    return cmocka_run_group_tests_name("source", tests, setup, teardown);
}
