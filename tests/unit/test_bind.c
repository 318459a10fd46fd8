/* Binding: shapes and types by name, weight norm and batch norm folded, failures that latch and name the tensor. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "checkpoint/bind.h"
#include "checkpoint/fold.h"
#include "tools/bytes.h"

static struct device *device;
static struct bytes file;
static struct checkpoint *ck;

/* name, published shape, values */
struct fixture {
    const char *name, *shape;
    size_t n;
    float values[16];
};
static const struct fixture fixtures[] = {
    {"flow.lin.weight", "[2,3]", 6, {1, 2, 3, 4, 5, 6}},
    {"flow.lin.bias", "[2]", 2, {10, 20}},
    {"flow.conv.weight", "[2,1,3]", 6, {1, 2, 3, 4, 5, 6}},
    {"flow.point.weight", "[2,3,1]", 6, {1, 2, 3, 4, 5, 6}},
    {"mel2wav.wn.parametrizations.weight.original0", "[2,1,1]", 2, {10, 0.5f}},
    {"mel2wav.wn.parametrizations.weight.original1", "[2,1,2]", 4, {3, 4, 0, -2}},
    {"mel2wav.old.weight_g", "[2,1,1]", 2, {1, 1}},
    {"mel2wav.old.weight_v", "[2,1,2]", 4, {0, 0, 0, 5}},
    {"mel2wav.bad.weight_g", "[3,1,1]", 3, {1, 1, 1}},
    {"mel2wav.bad.weight_v", "[2,1,2]", 4, {1, 1, 1, 1}},
    {"speaker_encoder.bn.weight", "[2]", 2, {2, 4}},
    {"speaker_encoder.bn.bias", "[2]", 2, {1, 1}},
    {"speaker_encoder.bn.running_mean", "[2]", 2, {3, 5}},
    {"speaker_encoder.bn.running_var", "[2]", 2, {4, 16}},
    {"speaker_encoder.folded.s", "[2]", 2, {7, 8}},
    {"speaker_encoder.folded.b", "[2]", 2, {9, 10}},
};

static int set_up(void **state)
{
    (void)state;
    const struct device_options o = {.n_threads = 1};
    struct error e = {""};
    struct bytes header = {0};
    char entry[256];
    size_t at = 0;
    bytes_text(&header, "{\"flow.ids\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]}");
    at = 16;
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        const size_t end = at + 4 * fixtures[i].n;
        snprintf(entry, sizeof entry, ",\"%s\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                 fixtures[i].name, fixtures[i].shape, at, end);
        bytes_text(&header, entry);
        at = end;
    }
    bytes_text(&header, "}");
    bytes_uint(&file, header.n, 8);
    bytes_put(&file, header.data, header.n);
    bytes_uint(&file, 0, 16);
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++)
        bytes_put(&file, fixtures[i].values, 4 * fixtures[i].n);
    free(header.data);
    const utter_status s = checkpoint_open_memory(&ck, file.data, file.n, "mini.safetensors", &e);
    if (s != UTTER_OK) printf("%s\n", e.text);
    return s != UTTER_OK || device_create_cpu(&device, &o, &e) != UTTER_OK;
}

static int tear_down(void **state)
{
    (void)state;
    device_destroy(&device);
    checkpoint_close(&ck);
    free(file.data);
    return 0;
}

static void expect_values(const float *v, size_t n, const float *expected)
{
    assert_non_null(v);
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(v[i] - expected[i]) <= 1e-5f))
            fail_msg("element %zu is %g, expected %g", i, (double)v[i], (double)expected[i]);
}

static void layers_are_folded_and_reordered(void **state)
{
    (void)state;
    struct error e = {""};
    struct binder b = {.checkpoint = ck, .device = device, .error = &e};
    static const struct {
        const char *name;
        int64_t shape[3];
        float expected[6];
    } cases[] = {
        {"s3gen.flow.conv", {2, 1, 3}, {1, 4, 2, 5, 3, 6}},
        {"s3gen.mel2wav.wn", {2, 1, 2}, {6, 0, 8, -0.5f}}, /* 10 (3, 4) / 5 and 0.5 (0, -2) / 2 */
        {"s3gen.mel2wav.old", {2, 1, 2}, {0, 0, 0, 1}},    /* a direction of zeros stays zeros */
    };
    for (size_t i = 0; i < 3; i++) {
        float *v = bind_values(&b, 3, cases[i].shape, "%s", cases[i].name);
        expect_values(v, (size_t)(cases[i].shape[0] * cases[i].shape[2]), cases[i].expected);
        mem_free(v);
    }
    float scale[2], shift[2];
    assert_true(bind_batch_norm_values(&b, scale, shift, 2, 0, true, "s3gen.speaker_encoder.bn"));
    expect_values(scale, 2, (const float[]){1, 1});
    expect_values(shift, 2, (const float[]){-2, -4});
    assert_true(bind_batch_norm_values(&b, scale, shift, 2, 0, false, "s3gen.speaker_encoder.bn"));
    expect_values(scale, 2, (const float[]){0.5f, 0.25f});
    assert_true(bind_batch_norm_values(&b, scale, shift, 2, 0, true, "s3gen.speaker_encoder.folded"));
    expect_values(shift, 2, (const float[]){9, 10});
    assert_int_equal(bind_dim(&b, 0, "s3gen.mel2wav.wn.weight"), 2);
    assert_int_equal(bind_dim(&b, 2, "s3gen.mel2wav.wn.weight"), 2);
    assert_int_equal(bind_dim(&b, 2, "s3gen.flow.lin.weight"), 1);
    assert_int_equal(binder_status(&b), UTTER_OK);
}

static void a_bound_layer_computes(void **state)
{
    (void)state;
    struct error e = {""};
    struct binder b = {.checkpoint = ck, .device = device, .error = &e};
    struct weight *lin = bind_linear(&b, 2, 3, BIAS_REQUIRED, "s3gen.flow.lin");
    struct weight *point = bind_linear(&b, 2, 3, BIAS_OPTIONAL, "s3gen.flow.point"); /* a 1 x 1 convolution */
    struct weight *conv = bind_conv1d(&b, 2, 1, 3, BIAS_NONE, "s3gen.flow.conv");
    struct weight *wn = bind_conv_transpose1d(&b, 2, 1, 2, BIAS_NONE, "s3gen.mel2wav.wn");
    if (binder_status(&b) != UTTER_OK) fail_msg("%s", e.text);
    struct stream *s;
    assert_int_equal(stream_create(&s, device, NULL, 1 << 20, &e), UTTER_OK);
    float y[8];
    struct array x = stream_upload(s, 1, 3, (const float[]){1, 1, 1}), out = stream_array(s, 1, 2);
    op_linear(s, out, x, lin, (struct epilogue){0});
    stream_read(s, y, out);
    expect_values(y, 2, (const float[]){16, 35});
    op_linear(s, out, x, point, (struct epilogue){0});
    stream_read(s, y, out);
    expect_values(y, 2, (const float[]){6, 15});
    op_conv1d(s, out, stream_upload(s, 3, 1, (const float[]){1, 10, 100}), conv, (struct conv_shape){0},
              (struct epilogue){0});
    stream_read(s, y, out);
    expect_values(y, 2, (const float[]){321, 654});
    out = stream_array(s, 2, 1);
    op_conv_transpose1d(s, out, stream_upload(s, 1, 2, (const float[]){1, 2}), wn, 2, 0, (struct epilogue){0});
    stream_read(s, y, out);
    expect_values(y, 2, (const float[]){6, 7}); /* taps (6, 8) and 2 (0, -0.5) */
    assert_int_equal(stream_status(s), UTTER_OK);
    stream_destroy(&s);
    binder_free_owned(&b.owned);
    assert_null(b.owned);
}

static void failures_latch_and_name_the_tensor(void **state)
{
    (void)state;
    struct error e;
#define REFUSED(call, ...)                                                                                             \
    do {                                                                                                               \
        struct binder b = {.checkpoint = ck, .device = device, .error = &e};                                           \
        const char *const words[] = {"mini.safetensors", __VA_ARGS__};                                                 \
        (void)call;                                                                                                    \
        assert_int_equal(binder_status(&b), UTTER_MODEL_DAMAGED);                                                      \
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)                                                      \
            if (!strstr(e.text, words[i])) fail_msg("\"%s\" lacks \"%s\"", e.text, words[i]);                          \
        assert_null(bind_linear(&b, 2, 3, BIAS_NONE, "s3gen.flow.lin"));                                               \
        assert_int_equal(bind_dim(&b, 0, "s3gen.flow.lin.weight"), -1);                                                \
        binder_free_owned(&b.owned);                                                                                   \
    } while (0)
    REFUSED(bind_linear(&b, 3, 2, BIAS_NONE, "s3gen.flow.lin"), "s3gen.flow.lin.weight", "[3, 2]", "[2, 3]");
    REFUSED(bind_linear(&b, 2, 3, BIAS_NONE, "s3gen.flow.%s.%d", "gone", 7), "s3gen.flow.gone.7.weight is missing");
    REFUSED(bind_linear(&b, 2, 3, BIAS_REQUIRED, "s3gen.flow.point"), "s3gen.flow.point.bias is missing");
    REFUSED(bind_conv1d(&b, 2, 3, 3, BIAS_NONE, "s3gen.flow.conv"), "s3gen.flow.conv.weight", "[2, 3, 3]", "[2, 1, 3]");
    REFUSED(bind_conv1d(&b, 2, 1, 2, BIAS_NONE, "s3gen.mel2wav.bad"), "s3gen.mel2wav.bad.weight_g", "[2]", "[3, 1, 1]");
    REFUSED(bind_vector(&b, 3, "s3gen.flow.lin.bias").data, "s3gen.flow.lin.bias", "[3]", "[2]");
    REFUSED(bind_vector(&b, 2, "s3gen.flow.ids").data, "s3gen.flow.ids", "floating point", "i64");
    REFUSED(bind_dim(&b, 5, "s3gen.flow.lin.weight"), "s3gen.flow.lin.weight", "dimension 5");
    REFUSED(bind_dim(&b, 0, "s3gen.flow.none"), "s3gen.flow.none is missing");
#undef REFUSED
}

static void loading_stops_when_asked(void **state)
{
    (void)state;
    struct cancel cancel = {0};
    struct error e;
    struct binder b = {.checkpoint = ck, .device = device, .error = &e, .cancel = &cancel};
    assert_non_null(bind_linear(&b, 2, 3, BIAS_NONE, "s3gen.flow.lin"));
    cancel_request(&cancel);
    assert_null(bind_linear(&b, 2, 3, BIAS_NONE, "s3gen.flow.lin"));
    assert_int_equal(binder_status(&b), UTTER_CANCELLED);
    binder_free_owned(&b.owned);
}

/* In the middle of a layer, too: the largest take longer than a cancel may. */
static void a_layer_stops_when_asked(void **state)
{
    (void)state;
    static const char *const layers[] = {"s3gen.mel2wav.wn", "s3gen.mel2wav.old", "s3gen.flow.conv"};
    for (int i = 0; i < 3; i++) {
        struct cancel cancel = {0};
        float out[16] = {0};
        const struct layer layer = fold_find(ck, layers[i]);
        assert_non_null(layer.weight);
        const struct layer_shape shape = fold_shape(layer.weight, LAYER_CONV1D);
        assert_true(fold_f32(out, &layer, LAYER_CONV1D, &cancel));
        cancel_request(&cancel);
        memset(out, 0, sizeof out);
        assert_false(fold_f32(out, &layer, LAYER_CONV1D, &cancel));
        assert_false(fold_reorder(out, layer.weight->data, 4, shape, LAYER_CONV1D, &cancel));
        for (int k = 0; k < 16; k++) assert_true(out[k] == 0);
    }
}

static void memory_may_run_out(void **state)
{
    (void)state;
    utter_status s = UTTER_OUT_OF_MEMORY;
    for (long n = 1; s == UTTER_OUT_OF_MEMORY; n++) {
        struct error e = {""};
        struct binder b = {.checkpoint = ck, .device = device, .error = &e};
        assert_true(n < 100);
        mem_fail_after(n);
        bind_linear(&b, 2, 3, BIAS_REQUIRED, "s3gen.flow.lin");
        bind_conv_transpose1d(&b, 2, 1, 2, BIAS_NONE, "s3gen.mel2wav.wn");
        struct array scale, shift;
        bind_batch_norm(&b, &scale, &shift, 2, 0, true, "s3gen.speaker_encoder.bn");
        mem_fail_after(0);
        s = binder_status(&b);
        binder_free_owned(&b.owned);
    }
    assert_int_equal(s, UTTER_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_folded_and_reordered),    cmocka_unit_test(a_bound_layer_computes),
        cmocka_unit_test(failures_latch_and_name_the_tensor), cmocka_unit_test(loading_stops_when_asked),
        cmocka_unit_test(a_layer_stops_when_asked),           cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests_name("bind", tests, set_up, tear_down);
}
