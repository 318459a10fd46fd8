/* Networks of the published sizes against the official implementation's values: ctest -L full. */
#include "test.h"

#include "tools/golden.h"

#define FULL  GOLDEN_DIR "/chatterbox-full"
#define SPECS GOLDEN_DIR "/spec-full"

static const struct golden_tolerance t3_tolerances[] = {{"out.greedy_tokens", 0}, {NULL, 2e-5}};

static void test_t3_turbo(void **state)
{
    (void)state;
    const char *const tags[] = {"t3_turbo_v1", NULL};
    const struct golden g = {.stage = "t3_turbo",
                             .reference = FULL "/t3_turbo.safetensors",
                             .tolerances = t3_tolerances,
                             .fast_levels = true};
    assert_int_equal(golden_failures_hashfill(g, SPECS, tags), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_t3_turbo)};
    return cmocka_run_group_tests_name("full", tests, NULL, NULL);
}
