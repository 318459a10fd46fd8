/*
 * Stage voice_encoder: speaker vectors of one window, and of a long mel in two window steps.
 */
#include "chatterbox/voice_encoder.h"

#include "tools/stages/stage.h"

static void embed(struct stage_run *r, const struct voice_encoder *m, const char *input, const char *output, int step)
{
    float vector[VE_SIZE];
    const struct ref_array *mel = stage_input(r, input, false, 3);
    if (!mel) return;
    if (mel->shape[2] != VE_MELS || mel->shape[1] < 1) {
        r->status = error_set(r->error, UTTER_INPUT_UNREADABLE, "%s: %d bands are needed", input, VE_MELS);
        return;
    }
    voice_encoder_embed(r->stream, m, vector, mel->values.f, (int)mel->shape[1], step);
    if (stream_status(r->stream) == UTTER_OK) stage_output_values(r, output, 2, (int64_t[]){1, VE_SIZE}, vector);
}

stage_fn stage_voice_encoder;

utter_status stage_voice_encoder(struct stage_run *r)
{
    struct voice_encoder *m = NULL;
    const utter_status status = voice_encoder_load(&m, r->binder);
    if (status != UTTER_OK) return status;
    embed(r, m, "in.mel_partial", "embed_partial", VE_STEP);
    embed(r, m, "in.mel_long", "embed_long_rate1.3", VE_STEP);
    embed(r, m, "in.mel_long", "embed_long_overlap0.5", VE_WINDOW / 2);
    voice_encoder_free(&m);
    return r->status;
}
