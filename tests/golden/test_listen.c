/* The networks that listen, and the features they hear, against the official implementation's values. */
#include "test.h"

#include "tools/golden.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_voice_encoder), cmocka_unit_test(test_campplus),
                                       cmocka_unit_test(test_s3tokenizer)};
    return cmocka_run_group_tests_name("listen", tests, NULL, NULL);
}
