#include "tools/frontend.h"

#include <stdlib.h>
#include <string.h>

#include "audio/features.h"
#include "audio/loudness.h"
#include "audio/mono.h"
#include "audio/resample.h"
#include "audio/silence.h"
#include "base/mem.h"

enum { MAX_SAMPLES = 24000 * 60 };

static float *add(struct reffile *out, const char *name, size_t rows, size_t cols)
{
    const int64_t shape[2] = {(int64_t)rows, (int64_t)cols};
    return reffile_add(out, name, false, cols ? 2 : 1, shape)->values.f;
}

static utter_status load(struct reffile *out, const char *path, float **x, size_t *n, struct error *e)
{
    struct source *s = NULL;
    struct mono *m = NULL;
    size_t got = 1;
    *n = 0;
    *x = malloc(MAX_SAMPLES * sizeof **x);
    utter_status status = *x ? source_open(&s, path, e) : UTTER_OUT_OF_MEMORY;
    if (status == UTTER_OK) status = mono_open(&m, s, 0, MONO_MEAN, e);
    while (status == UTTER_OK && got > 0) {
        status = mono_read(m, *x + *n, MAX_SAMPLES - *n, &got, e);
        *n += got;
    }
    mono_close(&m);
    source_close(&s);
    if (status == UTTER_OK) memcpy(add(out, "load24", *n, 0), *x, *n * sizeof **x);
    return status;
}

utter_status frontend_run(struct reffile *out, const char *path, struct error *e)
{
    float *x = NULL, *x16 = NULL;
    size_t n, n16, begin, end;
    utter_status s = load(out, path, &x, &n, e);
    if (s == UTTER_OK) s = resample(&x16, &n16, x, n, 24000, 16000, NULL, e);
    if (s == UTTER_OK) {
        double lufs;
        s = loudness_measure(&lufs, x, n, 24000, NULL, e);
        *add(out, "lufs", 1, 0) = (float)lufs;
        memcpy(add(out, "x16", n16, 0), x16, n16 * sizeof *x16);
        resample_24k_to_16k(add(out, "sinc16", resample_24k_to_16k_count(n), 0), x, n);
        silence_trim(x16, n16, 20, &begin, &end);
        int32_t *trim = reffile_add(out, "trim", true, 1, (int64_t[]){2})->values.i;
        trim[0] = (int32_t)begin, trim[1] = (int32_t)end;
        s = voice_encoder_mel_16k(
            add(out, "voice_encoder_mel", voice_encoder_mel_16k_frames(n16), VOICE_ENCODER_N_MELS), x16, n16, NULL, e);
    }
    if (s == UTTER_OK)
        s = kaldi_fbank_16k(add(out, "fbank", kaldi_fbank_16k_frames(n16), FBANK_BANDS), x16, n16, NULL, e);
    if (s == UTTER_OK)
        s = s3_log_mel_16k(add(out, "s3_log_mel", s3_log_mel_16k_frames(n16), S3_N_MELS), x16, n16, NULL, e);
    if (s == UTTER_OK)
        s = prompt_mel_24k(add(out, "prompt_mel", prompt_mel_24k_frames(n), PROMPT_MEL_BANDS), x, n, NULL, e);
    free(x);
    mem_free(x16);
    return s;
}
