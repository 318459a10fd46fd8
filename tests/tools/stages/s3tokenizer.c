/*
 * Stage s3tokenizer: from a wave to its log-mel, the encoder's blocks, the digits before rounding, and the tokens.
 */
#include "chatterbox/s3_tokenizer.h"

#include <string.h>

#include "audio/features.h"
#include "base/mem.h"
#include "tools/stages/stage.h"

static void see(void *user, const char *name, struct array value)
{
    stage_output(user, name, value, false);
}

/* The reference keeps bands first: [1, 128, frames]. */
static void put_mel(struct stage_run *r, const float *mel, size_t n_frames)
{
    float *turned = mem_alloc(n_frames * S3_MELS * sizeof *turned);
    for (size_t i = 0; turned && i < n_frames * S3_MELS; i++) turned[i % S3_MELS * n_frames + i / S3_MELS] = mel[i];
    if (turned) stage_output_values(r, "log_mel", 3, (int64_t[]){1, S3_MELS, (int64_t)n_frames}, turned);
    mem_free(turned);
}

static void tokenize(struct stage_run *r, const struct s3_tokenizer *m, const float *mel, int n_frames)
{
    const int n = s3_tokens(n_frames);
    const struct observer observer = {see, r};
    struct ref_array *tokens = reffile_add(r->out, "out.tokens", true, 2, (int64_t[]){1, n});
    int32_t *ids = mem_alloc((size_t)n * sizeof *ids);
    if (ids) {
        s3_tokenize(r->stream, m, &(struct s3_request){mel, n_frames, ids, NULL}, 1, &observer);
        tokens = reffile_find(r->out, "out.tokens"); /* outputs added by the observer may have moved it */
        memcpy(tokens->values.i, ids, (size_t)n * sizeof *ids);
    }
    mem_free(ids);
}

stage_fn stage_s3tokenizer;

utter_status stage_s3tokenizer(struct stage_run *r)
{
    struct s3_tokenizer *m = NULL;
    const struct ref_array *wav = stage_input(r, "in.wav_16k", false, 2);
    const size_t n_frames = wav ? s3_log_mel_16k_frames(wav->count) : 0;
    float *mel = mem_alloc(n_frames * S3_MELS * sizeof *mel);
    if (r->status == UTTER_OK && !mel)
        r->status = error_set(r->error, UTTER_INPUT_UNREADABLE, "in.wav_16k is too short");
    if (r->status == UTTER_OK) r->status = s3_log_mel_16k(mel, wav->values.f, wav->count, NULL, r->error);
    if (r->status == UTTER_OK) r->status = s3_tokenizer_load(&m, r->binder);
    if (r->status == UTTER_OK) {
        put_mel(r, mel, n_frames);
        tokenize(r, m, mel, (int)n_frames);
    }
    s3_tokenizer_free(&m);
    mem_free(mel);
    return r->status;
}
