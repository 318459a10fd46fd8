/*
 * stage.h - one part of an engine, replayed from a reference file.
 *
 * A stage reads in.* arrays, runs the library's own code on a device, and adds every out.* it can compute, under the names
 * and in the shapes of the reference. One file a stage; stages.c lists them.
 */
#ifndef TESTS_TOOLS_STAGES_STAGE_H
#define TESTS_TOOLS_STAGES_STAGE_H

#include "checkpoint/bind.h"
#include "checkpoint/checkpoint.h"
#include "device/device.h"
#include "tools/reffile.h"

struct stage_run {
    const struct checkpoint *checkpoint;
    struct device *device;
    struct stream *stream;
    struct binder *binder; /* of this device and checkpoint */
    const struct reffile *in;
    struct reffile *out;
    struct error *error;
    utter_status status; /* latches; stage functions may return early, too */
};

typedef utter_status stage_fn(struct stage_run *r);

struct stage {
    const char *name;
    stage_fn *run;
};
extern const struct stage stages[]; /* ends with a NULL name */

/* Opens the checkpoint and a device, and runs the stage. */
struct stage_settings {
    const char *checkpoint, *stage;
    struct device_options device;
};
utter_status stage_run(const struct stage_settings *settings, const struct reffile *in, struct reffile *out,
                       struct error *e);

/* ---- for the stages ------------------------------------------------------------------------------------------------- */

/* An input that must exist with this many dimensions and this type; NULL and a latched error else. */
const struct ref_array *stage_input(struct stage_run *r, const char *name, bool is_int, int n_dims);
/* [1, channels, time] as the reference keeps it, to [time][channels]; freed with mem_free; NULL after an error. */
float *stage_input_transposed(struct stage_run *r, const char *name);

/* Adds "out.<name>" with the value's rows and columns: [1, rows, cols], or [1, cols, rows] when channels come first. A
 * second value of the same name becomes the next of the batch. */
void stage_output(struct stage_run *r, const char *name, struct array value, bool channels_first);
/* Adds "out.<name>" from host values in a shape of its own. */
void stage_output_values(struct stage_run *r, const char *name, int n_dims, const int64_t *shape, const float *values);

#endif
