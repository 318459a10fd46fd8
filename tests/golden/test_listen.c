/* The networks that listen, and the features they hear, against the official implementation's values. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "chatterbox/s3_tokenizer.h"
#include "tools/golden.h"
#include "tools/hashfill.h"

#define MINI GOLDEN_DIR "/chatterbox-mini"

static void test_voice_encoder(void **state)
{
    (void)state;
    static const struct golden_tolerance tolerances[] = {{NULL, 2e-5}};
    const char *const tags[] = {"ve", NULL};
    const struct golden g = {
        .stage = "voice_encoder", .reference = MINI "/voice_encoder.safetensors", .tolerances = tolerances};
    assert_int_equal(golden_failures_hashfill(g, MINI, tags), 0);
}

/* The filter bank may be 2e-4 off in log units, of 15.9 at most: torchaudio's float transform is as far from exact. */
static void test_campplus(void **state)
{
    (void)state;
    static const struct golden_tolerance tolerances[] = {{"out.fbank", 1.25e-5}, {NULL, 2e-5}};
    const char *const tags[] = {"s3gen_meanflow", NULL};
    const struct golden g = {.stage = "campplus", .reference = MINI "/campplus.safetensors", .tolerances = tolerances};
    assert_int_equal(golden_failures_hashfill(g, MINI, tags), 0);
}

/* Tokens are identical. One of the 640 digits lies within 1e-3 of a tie before rounding, 2e-5 away from it, which is six
 * times what our values differ by. */
static void test_s3tokenizer(void **state)
{
    (void)state;
    static const struct golden_tolerance tolerances[] = {{"out.tokens", 0}, {NULL, 2e-5}};
    const char *const tags[] = {"s3gen_meanflow", NULL};
    const struct golden g = {
        .stage = "s3tokenizer", .reference = MINI "/s3tokenizer.safetensors", .tolerances = tolerances};
    assert_int_equal(golden_failures_hashfill(g, MINI, tags), 0);
}

static bool near_tie(const float *digits)
{
    for (int i = 0; i < S3_CODE_DIGITS; i++)
        if (fabsf(fabsf(digits[i]) - 0.5f) < 1e-3f) return true;
    return false;
}

/* Recordings around and over 30 s, against the package's own windows and merging: the same count, and the same tokens but
 * where a digit lies within 1e-3 of a tie. The mel is a rule: "in/long_mel", 0.3 +- 0.8, as [128][frames]. */
static int window_failures(struct stream *s, const struct s3_tokenizer *m, const struct ref_array *reference,
                           int n_frames)
{
    const size_t count = (size_t)n_frames * S3_MELS;
    const int n = s3_tokens(n_frames);
    float *drawn = malloc(count * sizeof *drawn), *mel = malloc(count * sizeof *mel);
    float *digits = malloc((size_t)n * S3_CODE_DIGITS * sizeof *digits);
    int32_t *tokens = malloc((size_t)n * sizeof *tokens);
    int failures = (size_t)n == reference->count ? 0 : 1, ties = 0;
    assert_true(drawn && mel && digits && tokens);
    hashfill_draw("in/long_mel", 0, count, 0.8, 0.3, drawn);
    for (size_t i = 0; i < count; i++) mel[i % (size_t)n_frames * S3_MELS + i / (size_t)n_frames] = drawn[i];
    s3_tokenize(s, m, &(struct s3_request){mel, n_frames, tokens, digits}, 1, NULL);
    assert_int_equal(stream_status(s), UTTER_OK);
    for (int i = 0; i < n && failures == 0; i++) {
        if (tokens[i] == reference->values.i[i]) continue;
        if (near_tie(digits + i * S3_CODE_DIGITS))
            ties++;
        else
            failures++;
    }
    print_message("%d frames: %d tokens, %d decided otherwise at a tie, %d wrong\n", n_frames, n, ties, failures);
    free(drawn), free(mel), free(digits), free(tokens);
    return failures + (ties > n / 100);
}

static void test_s3_windows(void **state)
{
    (void)state;
    static const int frames[] = {3000, 3001, 5400, 5700, 8300};
    const char *const tags[] = {"s3gen_meanflow", NULL};
    char folder[64], name[32];
    struct error e;
    struct checkpoint *ck;
    struct device *d;
    struct stream *s;
    struct s3_tokenizer *m;
    struct reffile reference = {0};
    int failures = 0;
    assert_int_equal(hashfill_folder(folder, MINI, tags, &e), UTTER_OK);
    assert_int_equal(checkpoint_open(&ck, folder, NULL, NULL, &e), UTTER_OK);
    assert_int_equal(device_create_cpu(&d, &(struct device_options){.n_threads = 2}, &e), UTTER_OK);
    assert_int_equal(stream_create(&s, d, NULL, 0, &e), UTTER_OK);
    struct binder b = {.checkpoint = ck, .device = d, .error = &e};
    assert_int_equal(s3_tokenizer_load(&m, &b), UTTER_OK);
    assert_int_equal(reffile_read(&reference, MINI "/s3tokenizer_long.safetensors", &e), UTTER_OK);
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        snprintf(name, sizeof name, "out.tokens.%d", frames[i]);
        assert_non_null(reffile_find(&reference, name));
        failures += window_failures(s, m, reffile_find(&reference, name), frames[i]);
    }
    reffile_free(&reference);
    s3_tokenizer_free(&m);
    binder_free_owned(&b.owned);
    stream_destroy(&s);
    device_destroy(&d);
    checkpoint_close(&ck);
    hashfill_remove_folder(folder);
    assert_int_equal(failures, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_voice_encoder), cmocka_unit_test(test_campplus),
                                       cmocka_unit_test(test_s3tokenizer), cmocka_unit_test(test_s3_windows)};
    return cmocka_run_group_tests_name("listen", tests, NULL, NULL);
}
