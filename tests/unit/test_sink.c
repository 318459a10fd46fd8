/* audio/sink: every format, pipes, full disks, samples that are no numbers. */
#include "test.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sndfile.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audio/sink.h"

enum { RATE = 24000, SECONDS = 2, N = RATE * SECONDS };

static char folder[] = "sink-XXXXXX";
static float tone[N];

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) tone[i] = 0.5f * sinf((float)i * 0.05f);
    signal(SIGPIPE, SIG_IGN);
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(folder); /* fails when a .part or a file was left behind */
}

static const char *path_of(const char *name)
{
    static char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Writes the tone in uneven chunks. */
static utter_status write_tone(const char *path, enum sink_format f, struct error *e)
{
    struct sink *s;
    utter_status status = sink_open(&s, path, f, RATE, NULL, e);
    for (size_t at = 0, n = 1; status == UTTER_OK && at < N; at += n, n = n * 3 + 1) {
        if (n > N - at) n = N - at;
        status = sink_write(s, tone + at, n, e);
    }
    if (status != UTTER_OK) {
        sink_discard(&s);
        return status;
    }
    return sink_finish(&s, e);
}

static size_t read_all(const char *path, unsigned char **bytes)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    struct stat st;
    assert_int_equal(fstat(fileno(f), &st), 0);
    *bytes = malloc((size_t)st.st_size + 1);
    assert_int_equal(fread(*bytes, 1, (size_t)st.st_size, f), st.st_size);
    fclose(f);
    return (size_t)st.st_size;
}

/* The whole tone comes back from every format: nothing is lost at the end (a codec frame is at most 60 ms). */
static void every_format_keeps_the_whole_length(void **state)
{
    (void)state;
    for (int f = 0; f < SINK_PCM; f++) {
        struct error e;
        const char *path = path_of(sink_format_name((enum sink_format)f));
        assert_int_equal(write_tone(path, (enum sink_format)f, &e), UTTER_OK);
        SF_INFO info = {0};
        SNDFILE *in = sf_open(path, SFM_READ, &info);
        assert_non_null(in);
        static float back[2 * N];
        const sf_count_t n = sf_readf_float(in, back, 2 * N);
        assert_int_equal(info.samplerate, RATE);
        assert_int_equal(info.channels, 1);
        if (f <= SINK_FLAC) assert_int_equal(n, N);
        assert_true(llabs(n - N) <= RATE * 60 / 1000);
        sf_close(in);
        unlink(path);
    }
}

/* A child copies a pipe to a file; the parent writes to the pipe through /dev/fd. */
static void a_pipe_gets_the_bytes_of_the_file(void **state)
{
    (void)state;
    const enum sink_format pipes[] = {SINK_WAV16, SINK_WAV24, SINK_WAV32F, SINK_FLAC, SINK_PCM};
    for (size_t i = 0; i < sizeof pipes / sizeof pipes[0]; i++) {
        struct error e;
        char file[64], fifo[64], copy[64], command[160];
        snprintf(file, sizeof file, "%s/file", folder);
        snprintf(fifo, sizeof fifo, "%s/fifo", folder);
        snprintf(copy, sizeof copy, "%s/copy", folder);
        assert_int_equal(write_tone(file, pipes[i], &e), UTTER_OK);
        assert_int_equal(mkfifo(fifo, 0600), 0);
        snprintf(command, sizeof command, "cat %s > %s", fifo, copy);
        FILE *child = popen(command, "r");
        assert_int_equal(write_tone(fifo, pipes[i], &e), UTTER_OK);
        pclose(child);
        unsigned char *a, *b;
        const size_t na = read_all(file, &a), nb = read_all(copy, &b);
        if (pipes[i] == SINK_FLAC || pipes[i] == SINK_PCM) {
            const size_t header = pipes[i] == SINK_FLAC ? 42 : 0; /* STREAMINFO ends with length and checksum */
            assert_int_equal(na, nb);
            assert_memory_equal(a + header, b + header, na - header);
        } else { /* the same samples after the header; one RIFF, at byte 0, with open sizes */
            const size_t data = N * (size_t)(pipes[i] == SINK_WAV16 ? 2 : pipes[i] == SINK_WAV24 ? 3 : 4);
            assert_int_equal(nb, 44 + data);
            assert_memory_equal(b, "RIFF\xff\xff\xff\xffWAVEfmt ", 16);
            assert_memory_equal(b + 36, "data\xff\xff\xff\xff", 8);
            assert_memory_equal(a + na - data, b + nb - data, data);
        }
        free(a);
        free(b);
        unlink(file);
        unlink(fifo);
        unlink(copy);
    }
}

static void a_file_has_its_name_only_when_whole(void **state)
{
    (void)state;
    struct error e;
    struct sink *s;
    const char *path = path_of("a.wav");
    char part[80];
    snprintf(part, sizeof part, "%s.part", path);
    assert_int_equal(sink_open(&s, path, SINK_WAV16, RATE, NULL, &e), UTTER_OK);
    assert_int_equal(sink_write(s, tone, 1000, &e), UTTER_OK);
    assert_int_not_equal(access(path, F_OK), 0);
    SF_INFO info = {0}; /* what a killed run would leave: a .part that plays */
    SNDFILE *in = sf_open(part, SFM_READ, &info);
    assert_non_null(in);
    assert_int_equal(info.frames, 1000);
    sf_close(in);
    assert_int_equal(sink_finish(&s, &e), UTTER_OK);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_not_equal(access(part, F_OK), 0);
    unlink(path);
}

static void a_full_disk_is_an_error(void **state)
{
    (void)state;
    for (int f = 0; f < SINK_N_FORMATS; f++) {
        struct error e = {""};
        assert_int_equal(write_tone("/dev/full", (enum sink_format)f, &e), UTTER_OUTPUT_UNWRITABLE);
        assert_non_null(strstr(e.text, "/dev/full"));
        assert_non_null(strstr(e.text, "No space"));
    }
}

static void a_folder_that_is_not_there_is_an_error(void **state)
{
    (void)state;
    struct error e;
    struct sink *s;
    assert_int_equal(sink_open(&s, path_of("no/such.wav"), SINK_WAV16, RATE, NULL, &e), UTTER_OUTPUT_UNWRITABLE);
    assert_null(s);
    assert_non_null(strstr(e.text, "no/such.wav"));
    assert_int_equal(sink_open(&s, folder, SINK_WAV16, RATE, NULL, &e), UTTER_OUTPUT_UNWRITABLE);
    assert_null(s);
}

static void a_closed_pipe_is_told_apart(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    char path[32];
    snprintf(path, sizeof path, "/dev/fd/%d", ends[1]);
    struct error e;
    struct sink *s;
    assert_int_equal(sink_open(&s, path, SINK_PCM, RATE, NULL, &e), UTTER_OK);
    close(ends[0]);
    assert_int_equal(sink_write(s, tone, N, &e), UTTER_OUTPUT_UNWRITABLE);
    assert_true(sink_reader_left(s));
    sink_discard(&s);
    close(ends[1]);
}

static void samples_that_are_no_numbers_are_refused(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        struct error e;
        struct sink *s;
        const float samples[3] = {0.1f, bad[i], 0.1f};
        assert_int_equal(sink_open(&s, path_of("nan.wav"), SINK_WAV16, RATE, NULL, &e), UTTER_OK);
        assert_int_equal(sink_write(s, samples, 3, &e), UTTER_INVALID_ARGUMENT);
        assert_non_null(strstr(e.text, "sample 1"));
        sink_discard(&s);
        assert_int_not_equal(access(path_of("nan.wav"), F_OK), 0);
    }
}

static void loud_samples_are_clipped(void **state)
{
    (void)state;
    struct error e;
    struct sink *s;
    const float loud[2] = {3, -3};
    assert_int_equal(sink_open(&s, path_of("loud.pcm"), SINK_PCM, RATE, NULL, &e), UTTER_OK);
    assert_int_equal(sink_write(s, loud, 2, &e), UTTER_OK);
    assert_int_equal(sink_finish(&s, &e), UTTER_OK);
    unsigned char *bytes;
    assert_int_equal(read_all(path_of("loud.pcm"), &bytes), 4);
    assert_memory_equal(bytes, "\xff\x7f\x00\x80", 4);
    free(bytes);
    unlink(path_of("loud.pcm"));
}

static void formats_are_known_by_name_and_extension(void **state)
{
    (void)state;
    enum sink_format f;
    assert_true(sink_format_by_path(&f, "a/b.c/x.WAV") && f == SINK_WAV16);
    assert_true(sink_format_by_path(&f, "x.ogg") && f == SINK_VORBIS);
    assert_true(sink_format_by_path(&f, "x.opus") && f == SINK_OPUS);
    assert_true(sink_format_by_name(&f, "raw") && f == SINK_PCM);
    assert_false(sink_format_by_path(&f, "a.wav/x"));
    assert_false(sink_format_by_path(&f, "x.doc"));
    assert_false(sink_format_by_path(&f, "wav"));
    /* A wav header counts bytes in 32 bits. */
    assert_true(sink_max_samples(SINK_WAV16) * 2 + 44 <= UINT32_MAX);
    assert_true(sink_max_samples(SINK_WAV24) * 3 + 44 <= UINT32_MAX);
    assert_true(sink_max_samples(SINK_FLAC) > (int64_t)UINT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_keeps_the_whole_length),     cmocka_unit_test(a_pipe_gets_the_bytes_of_the_file),
        cmocka_unit_test(a_file_has_its_name_only_when_whole),     cmocka_unit_test(a_full_disk_is_an_error),
        cmocka_unit_test(a_folder_that_is_not_there_is_an_error),  cmocka_unit_test(a_closed_pipe_is_told_apart),
        cmocka_unit_test(samples_that_are_no_numbers_are_refused), cmocka_unit_test(loud_samples_are_clipped),
        cmocka_unit_test(formats_are_known_by_name_and_extension)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
