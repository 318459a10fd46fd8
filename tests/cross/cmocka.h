/* cmocka.h - as much of cmocka as tests/unit/test_kernels.c uses, so that it runs under an emulator without an AArch64 cmocka. The
 * first failure ends the program. */
#ifndef CROSS_CMOCKA_H
#define CROSS_CMOCKA_H

#include <stdio.h>
#include <stdlib.h>

struct CMUnitTest {
    const char *name;
    void (*test)(void **state);
};

#define cmocka_unit_test(f)                                                                                            \
    {                                                                                                                  \
#f, f                                                                                                          \
    }
#define print_error(...) fprintf(stderr, __VA_ARGS__)
#define fail_msg(...)                                                                                                  \
    do {                                                                                                               \
        fprintf(stderr, __VA_ARGS__);                                                                                  \
        fprintf(stderr, "\n");                                                                                         \
        exit(1);                                                                                                       \
    } while (0)
#define assert_true(c)                                                                                                 \
    do {                                                                                                               \
        if (!(c)) fail_msg("%s:%d: %s", __FILE__, __LINE__, #c);                                                       \
    } while (0)
#define assert_non_null(p)     assert_true((p) != NULL)
#define assert_false(c)        assert_true(!(c))
#define assert_int_equal(a, b) assert_true((a) == (b))

#define cmocka_run_group_tests_name(group, tests, setup, teardown)                                                     \
    run_tests(group, tests, sizeof(tests) / sizeof((tests)[0]))

static int run_tests(const char *group, const struct CMUnitTest *tests, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        void *state = NULL;
        tests[i].test(&state);
        printf("ok %s %s\n", group, tests[i].name);
    }
    return 0;
}

#endif
