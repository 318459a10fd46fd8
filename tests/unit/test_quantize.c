/* Weights in small types: errors within their derived bounds, and values that do not fit refused. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "checkpoint/convert.h"
#include "checkpoint/quantize.h"
#include "tools/bytes.h"

enum { N = 32 * 200 };

/* Largest error of a type on x, in units of its block's largest value; *mean_square the same for the mean square. */
static double worst(enum dtype t, const float *x, double *mean_square)
{
    static unsigned char packed[N * 4];
    static float back[N];
    const struct tensor tensor = {.type = t, .n_dims = 1, .shape = {N}, .data = packed};
    quantize_f32(t, x, N, packed);
    tensor_read_f32(&tensor, 0, N, back);
    double most = 0, sum = 0;
    for (size_t b = 0; b < N; b += 32) {
        double largest = 0;
        for (size_t i = b; i < b + 32; i++) largest = fmax(largest, fabs((double)x[i]));
        for (size_t i = b; i < b + 32; i++) {
            const double error = largest > 0 ? ((double)back[i] - x[i]) / largest : back[i];
            most = fmax(most, fabs(error));
            sum += error * error;
        }
    }
    *mean_square = sum / N;
    return most;
}

static void errors_stay_within_their_bounds(void **state)
{
    (void)state;
    static float x[N];
    static const float scales[] = {1, 1e-3f, 300};
    for (size_t k = 0; k < 3; k++) {
        rng_normal(rng_stream(3, "weights"), 0, N, x);
        for (size_t i = 0; i < N; i++) x[i] *= scales[k];
        for (size_t i = 0; i < 32; i++) x[i] = 0;           /* a block of zeros */
        for (size_t i = 33; i < 64; i++) x[i] = 0;          /* one value alone */
        for (size_t i = 64; i < 96; i++) x[i] = -scales[k]; /* all alike */
        double square;
        assert_true(worst(DTYPE_F32, x, &square) == 0);
        assert_true(worst(DTYPE_F16, x, &square) <= 0x1p-11 + 1e-4); /* 1e-4: subnormal halves at the smallest scale */
        assert_true(worst(DTYPE_BF16, x, &square) <= 0x1p-8);
        /* Half a step of 1/127, and the scale's own rounding to 11 bits. */
        assert_true(worst(DTYPE_Q8_0, x, &square) <= 0.5 / 127 + 0x1p-11 + 1e-4);
        /* Up to two steps of a tenth are clipped; on average a step of 1/8 would give 1/8 / sqrt(12) = 0.036. */
        assert_true(worst(DTYPE_Q4_0, x, &square) <= 0.201);
        assert_true(sqrt(square) < 0.036);
    }
}

static void quantised_again_nothing_moves(void **state)
{
    (void)state;
    static float x[N], back[N];
    static unsigned char once[N * 2], twice[N * 2];
    rng_normal(rng_stream(4, "weights"), 0, N, x);
    const struct tensor t = {.type = DTYPE_Q8_0, .n_dims = 1, .shape = {N}, .data = once};
    quantize_f32(DTYPE_Q8_0, x, N, once);
    tensor_read_f32(&t, 0, N, back);
    quantize_f32(DTYPE_Q8_0, back, N, twice);
    const struct tensor u = {.type = DTYPE_Q8_0, .n_dims = 1, .shape = {N}, .data = twice};
    tensor_read_f32(&u, 0, N, x);
    for (size_t i = 0; i < N; i++) assert_true(fabsf(x[i] - back[i]) <= 2e-3f * fabsf(back[i]) + 1e-6f);
}

/* A checkpoint of one table with this value, converted to a type: the status, and the message in e. */
static utter_status convert_value(float value, enum dtype t, struct error *e)
{
    static const char header[] =
        "{\"flow.input_embedding.weight\":{\"dtype\":\"F32\",\"shape\":[1,32],\"data_offsets\":[0,128]}}";
    char path[] = "utter-quantize-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct bytes file = {0};
    bytes_uint(&file, sizeof header - 1, 8);
    bytes_text(&file, header);
    bytes_put(&file, &value, 4);
    bytes_uint(&file, 0, 124);
    struct checkpoint *ck;
    struct convert_report report;
    struct convert_options o = {0};
    convert_types(&o, t);
    assert_int_equal(checkpoint_open_memory(&ck, file.data, file.n, "table", e), UTTER_OK);
    const utter_status s = convert_checkpoint(ck, path, &o, &report, e);
    checkpoint_close(&ck);
    free(file.data);
    unlink(path);
    return s;
}

/* A row of a quantised tensor need not begin or end with a block: one value of a vector is such a row. */
static void parts_of_blocks_are_read(void **state)
{
    (void)state;
    static float x[96], whole[96];
    static unsigned char packed[96 * 4];
    rng_normal(rng_stream(5, "weights"), 0, 96, x);
    for (enum dtype type = DTYPE_Q8_0; type <= DTYPE_Q4_0; type++) {
        if (!quantize_writes(type)) continue;
        const struct tensor t = {.type = type, .n_dims = 1, .shape = {96}, .data = packed};
        quantize_f32(type, x, 96, packed);
        tensor_read_f32(&t, 0, 96, whole);
        for (size_t first = 0; first < 96; first++)
            for (size_t n = 0; n <= 96 - first; n++) {
                float part[97];
                for (size_t i = 0; i < 97; i++) part[i] = -7;
                tensor_read_f32(&t, first, n, part);
                assert_memory_equal(part, whole + first, n * sizeof *part);
                for (size_t i = n; i < 97; i++) assert_true(part[i] == -7);
            }
    }
}

static void values_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    struct error e = {""};
    assert_int_equal(convert_value(65504, DTYPE_F16, &e), UTTER_OK);
    assert_int_equal(convert_value(1e6f, DTYPE_F32, &e), UTTER_OK);
    assert_int_equal(convert_value(1e6f, DTYPE_F16, &e), UTTER_MODEL_DAMAGED);
    assert_non_null(strstr(e.text, "s3gen.flow.input_embedding.weight"));
    assert_non_null(strstr(e.text, "1e+06 does not fit in f16"));
    assert_int_equal(convert_value(NAN, DTYPE_F16, &e), UTTER_MODEL_DAMAGED);
    assert_int_equal(convert_value(INFINITY, DTYPE_Q8_0, &e), UTTER_MODEL_DAMAGED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_stay_within_their_bounds),
        cmocka_unit_test(quantised_again_nothing_moves),
        cmocka_unit_test(parts_of_blocks_are_read),
        cmocka_unit_test(values_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests_name("quantize", tests, NULL, NULL);
}
