#include "tools/stages/stage.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

stage_fn stage_campplus, stage_hift, stage_s3gen, stage_s3tokenizer, stage_sampler, stage_t3_turbo, stage_voice_encoder;

const struct stage stages[] = {
    {"campplus", stage_campplus},
    {"hift", stage_hift},
    {"s3gen", stage_s3gen},
    {"s3gen_meanflow", stage_s3gen},
    {"s3tokenizer", stage_s3tokenizer},
    {"sampler", stage_sampler},
    {"t3_turbo", stage_t3_turbo},
    {"voice_encoder", stage_voice_encoder},
    {NULL, NULL},
};

utter_status stage_run(const struct stage_settings *settings, const struct reffile *in, struct reffile *out,
                       struct error *e)
{
    const struct stage *stage = stages;
    while (stage->name && strcmp(stage->name, settings->stage) != 0) stage++;
    if (!stage->name) return error_set(e, UTTER_INVALID_ARGUMENT, "no stage is called %s", settings->stage);

    struct checkpoint *ck = NULL;
    struct device *d = NULL;
    struct stream *s = NULL;
    struct binder b = {.error = e};
    utter_status status;
    if ((status = checkpoint_open(&ck, settings->checkpoint, NULL, NULL, e)) != UTTER_OK) goto done;
    if ((status = device_create_cpu(&d, &settings->device, e)) != UTTER_OK) goto done;
    if ((status = stream_create(&s, d, NULL, 0, e)) != UTTER_OK) goto done;
    b.checkpoint = ck;
    b.device = d;
    struct stage_run r = {.checkpoint = ck, .device = d, .stream = s, .binder = &b, .in = in, .out = out, .error = e};
    status = stage->run(&r);
    if (status == UTTER_OK) status = r.status;
    if (status == UTTER_OK && (status = stream_status(s)) != UTTER_OK)
        error_set(e, status, "stage %s: %s", settings->stage, utter_status_text(status));
done:
    stream_destroy(&s);
    binder_free_owned(&b.owned);
    device_destroy(&d);
    checkpoint_close(&ck);
    return status;
}

/* ---- for the stages ------------------------------------------------------------------------------------------------- */

const struct ref_array *stage_input(struct stage_run *r, const char *name, bool is_int, int n_dims)
{
    const struct ref_array *a = reffile_find(r->in, name);
    if (r->status != UTTER_OK) return NULL;
    if (a && a->is_int == is_int && a->n_dims == n_dims) return a;
    r->status = error_set(r->error, UTTER_INPUT_UNREADABLE, "input %s: expected %s values of %d dimensions, found %s",
                          name, is_int ? "int32" : "float32", n_dims, a ? "others" : "none");
    return NULL;
}

static void transpose(float *out, const float *in, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) out[j * rows + i] = in[i * cols + j];
}

float *stage_input_transposed(struct stage_run *r, const char *name)
{
    const struct ref_array *a = stage_input(r, name, false, 3);
    float *out = a ? mem_alloc(a->count * sizeof *out) : NULL;
    if (out) transpose(out, a->values.f, a->shape[1], a->shape[2]);
    return out;
}

/* Where the values of "out.<name>" go: a new array, or one more of the batch. */
static float *output(struct stage_run *r, const char *name, int n_dims, const int64_t *shape)
{
    char full[REF_NAME_BYTES];
    snprintf(full, sizeof full, "out.%s", name);
    struct ref_array *earlier = reffile_find(r->out, full);
    return earlier ? reffile_append(earlier) : reffile_add(r->out, full, false, n_dims, shape)->values.f;
}

void stage_output_values(struct stage_run *r, const char *name, int n_dims, const int64_t *shape, const float *values)
{
    size_t count = 1;
    for (int i = 0; i < n_dims; i++) count *= (size_t)shape[i];
    memcpy(output(r, name, n_dims, shape), values, count * sizeof *values);
}

void stage_output(struct stage_run *r, const char *name, struct array value, bool channels_first)
{
    const int64_t rows = value.rows, cols = value.cols;
    float *host = mem_calloc((size_t)(rows * cols), sizeof *host);
    if (!host || stream_status(r->stream) != UTTER_OK) {
        mem_free(host);
        return;
    }
    stream_read(r->stream, host, value);
    float *out = output(r, name, 3, channels_first ? (int64_t[]){1, cols, rows} : (int64_t[]){1, rows, cols});
    if (channels_first)
        transpose(out, host, rows, cols);
    else
        memcpy(out, host, (size_t)(rows * cols) * sizeof *out);
    mem_free(host);
}
