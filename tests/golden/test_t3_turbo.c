/* T3 on the GPT-2 backbone and the sampler against the official implementation's values. */
#include "test.h"

#include "tools/golden.h"

#define MINI GOLDEN_DIR "/chatterbox-mini"

/* design.md: 2e-5; greedy tokens identical. */
static const struct golden_tolerance tolerances[] = {{"out.greedy_tokens", 0}, {NULL, 2e-5}};

static void test_t3_turbo(void **state)
{
    (void)state;
    const char *const tags[] = {"t3_turbo_v1", NULL};
    const struct golden g = {.stage = "t3_turbo", .reference = MINI "/t3_turbo.safetensors", .tolerances = tolerances};
    assert_int_equal(golden_failures_hashfill(g, MINI, tags), 0);
}

static void test_sampler(void **state)
{
    (void)state;
    const char *const tags[] = {"ve", NULL}; /* any checkpoint: the stage uses none */
    const struct golden g = {.stage = "sampler", .reference = MINI "/sampler.safetensors", .tolerances = tolerances};
    assert_int_equal(golden_failures_hashfill(g, MINI, tags), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_t3_turbo), cmocka_unit_test(test_sampler)};
    return cmocka_run_group_tests_name("t3_turbo", tests, NULL, NULL);
}
