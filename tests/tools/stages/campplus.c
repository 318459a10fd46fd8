/*
 * Stage campplus: the x-vector of given features, and features and x-vector of a wave.
 */
#include "chatterbox/campplus.h"

#include "audio/features.h"
#include "base/mem.h"
#include "tools/stages/stage.h"

static void embed(struct stage_run *r, const struct campplus *m, const char *output, const float *fbank, int n_frames)
{
    float vector[CAMPPLUS_SIZE];
    campplus_embed(r->stream, m, vector, fbank, n_frames);
    if (stream_status(r->stream) == UTTER_OK) stage_output_values(r, output, 2, (int64_t[]){1, CAMPPLUS_SIZE}, vector);
}

static void embed_wave(struct stage_run *r, const struct campplus *m, const struct ref_array *wav)
{
    const size_t n_frames = kaldi_fbank_16k_frames(wav->count);
    float *fbank = mem_alloc(n_frames * FBANK_BANDS * sizeof *fbank);
    if (!fbank || n_frames < CAMPPLUS_MIN_FRAMES)
        r->status = error_set(r->error, UTTER_INPUT_UNREADABLE, "in.wav_16k is too short");
    else
        r->status = kaldi_fbank_16k(fbank, wav->values.f, wav->count, NULL, r->error);
    if (r->status == UTTER_OK) {
        stage_output_values(r, "fbank", 2, (int64_t[]){(int64_t)n_frames, FBANK_BANDS}, fbank);
        campplus_subtract_mean(fbank, (int)n_frames);
        embed(r, m, "embedding_from_wav", fbank, (int)n_frames);
    }
    mem_free(fbank);
}

stage_fn stage_campplus;

utter_status stage_campplus(struct stage_run *r)
{
    struct campplus *m = NULL;
    const struct ref_array *fbank = stage_input(r, "in.fbank_mean_normalised", false, 3);
    const struct ref_array *wav = stage_input(r, "in.wav_16k", false, 2);
    if (r->status == UTTER_OK && fbank->shape[2] != CAMPPLUS_BANDS)
        r->status = error_set(r->error, UTTER_INPUT_UNREADABLE, "in.fbank_mean_normalised: 80 bands are needed");
    if (r->status == UTTER_OK) r->status = campplus_load(&m, r->binder);
    if (r->status == UTTER_OK) {
        embed(r, m, "embedding", fbank->values.f, (int)fbank->shape[1]);
        embed_wave(r, m, wav);
    }
    campplus_free(&m);
    return r->status;
}
