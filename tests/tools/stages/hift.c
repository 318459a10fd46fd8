/*
 * Stage hift: mel to samples, with a pitch track, phases and noise that are given.
 */
#include "chatterbox/hift.h"

#include <string.h>

#include "base/mem.h"
#include "chatterbox/s3gen.h"
#include "tools/stages/stage.h"

static void see(void *user, const char *name, struct array value)
{
    stage_output(user, name, value, true);
}

/* out.<name> with the shape [1, rows] of a column */
static void put_column(struct stage_run *r, const char *name, struct array column, int n_dims)
{
    float *host = mem_calloc((size_t)column.rows, sizeof *host);
    if (!host) return;
    stream_read(r->stream, host, column);
    const int64_t flat[] = {1, column.rows}, deep[] = {1, 1, column.rows};
    stage_output_values(r, name, n_dims, n_dims == 2 ? flat : deep, host);
    mem_free(host);
}

static void vocode(struct stage_run *r, const struct hift *m, const float *mel, int frames, const float *noise)
{
    struct stream *s = r->stream;
    const struct ref_array *track = stage_input(r, "in.f0_track", false, 2),
                           *phase = stage_input(r, "in.sine_phase", false, 3);
    if (r->status != UTTER_OK) return;
    struct array mel_array = stream_upload(s, frames, m->n_mels, mel), f0 = stream_array(s, frames, 1);
    hift_f0(s, m, f0, mel_array);
    put_column(r, "f0", f0, 2);

    struct array source = stream_array(s, frames * HIFT_HOP, 1), wav = stream_array(s, frames * HIFT_HOP, 1);
    const struct source_params p = {.phase = stream_upload(s, 1, HIFT_HARMONICS, phase->values.f),
                                    .official_rounding = true,
                                    .noise = stream_upload(s, frames * HIFT_HOP, HIFT_HARMONICS, noise)};
    hift_source(s, m, source, stream_upload(s, frames, 1, track->values.f), p);
    put_column(r, "source", source, 3);

    const struct observer observer = {see, r};
    hift_decode(s, m, wav, mel_array, source, (struct hift_window){0, frames}, &observer);
    put_column(r, "wav", wav, 2);
}

stage_fn stage_hift;

utter_status stage_hift(struct stage_run *r)
{
    struct s3gen *m = NULL;
    float *mel = stage_input_transposed(r, "in.mel"), *noise = stage_input_transposed(r, "in.sine_noise");
    const struct ref_array *shape = reffile_find(r->in, "in.mel"), *noise_shape = reffile_find(r->in, "in.sine_noise");
    const struct ref_array *track = reffile_find(r->in, "in.f0_track"), *phase = reffile_find(r->in, "in.sine_phase");
    if (r->status == UTTER_OK) r->status = s3gen_load(&m, r->binder);
    if (r->status == UTTER_OK) {
        const int frames = (int)shape->shape[2];
        if (shape->shape[1] != PROMPT_N_MELS || !track || track->count != (size_t)frames || !phase ||
            phase->count != HIFT_HARMONICS || noise_shape->count != (size_t)frames * HIFT_HOP * HIFT_HARMONICS)
            r->status = error_set(r->error, UTTER_INPUT_UNREADABLE, "inputs of stage hift do not fit each other");
        else
            vocode(r, s3gen_hift(m), mel, frames, noise);
    }
    float fade[960];
    for (int i = 0; i < 960; i++) fade[i] = s3gen_fade(i);
    stage_output_values(r, "trim_fade", 1, (int64_t[]){960}, fade);
    s3gen_free(&m);
    mem_free(mel);
    mem_free(noise);
    return r->status;
}
