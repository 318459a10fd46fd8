/* bench_voice.c - from a recording to a voice: choosing and cleaning the clip, features, and the three networks that listen. */
#include "cli/bench.h"

#include <math.h>
#include <string.h>

#include "audio/clip.h"
#include "base/mem.h"
#include "chatterbox/voice.h"
#include "checkpoint/checkpoint.h"

enum stage { CLIP, FEATURES, TOKENS, XVECTOR, SPEAKER, WHOLE, N_STAGES };
static const char *const stage_names[N_STAGES] = {"read, choose and clean the clip",
                                                  "resample, features",
                                                  "speech tokens",
                                                  "x-vector",
                                                  "speaker embedding",
                                                  "recording to voice"};

struct voice_run {
    struct bench *bench;
    struct bench_model model;
    struct stream *stream;
    float *samples; /* made up, or NULL: the recording is a file */
    double seconds[N_STAGES][BENCH_MAX_RUNS];
    int clip_frames; /* mel frames of the clip, 100 a second */
};

utter_status bench_make_recording(float **samples, struct error *e)
{
    const int n = BENCH_RECORDING_RATE * BENCH_RECORDING_SECONDS;
    float *x = *samples = mem_alloc((size_t)n * sizeof *x);
    if (!x) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a recording");
    for (int i = 0; i < n; i++) {
        const double t = (double)i / BENCH_RECORDING_RATE, syllable = fmax(0, sin(2 * M_PI * 4 * t));
        double v = 0;
        for (int h = 1; h <= 12; h++) v += sin(2 * M_PI * h * 150 * t) / h;
        x[i] = (float)(0.1 * v * syllable);
    }
    return UTTER_OK;
}

static utter_status make_clip(struct voice_run *r, struct clip *clip)
{
    struct source *source = NULL;
    struct error *e = &r->bench->error;
    const struct clip_options o = {.start_s = -1};
    utter_status status = r->samples ? source_open_samples(&source, "samples", r->samples,
                                                           (size_t)BENCH_RECORDING_RATE * BENCH_RECORDING_SECONDS,
                                                           BENCH_RECORDING_RATE, e)
                                     : source_open(&source, r->bench->recording, e);
    if (status == UTTER_OK) status = clip_make(clip, source, &o, e);
    source_close(&source);
    return status;
}

/* Times of run i; -1 only warms up. */
static utter_status run_once(struct voice_run *r, int i)
{
    struct clip clip = {0};
    struct conds voice = {0};
    struct listen_times times = {0};
    const struct listen_options o = {.rules = voice_rules_of(checkpoint_variant(r->model.checkpoint)), .times = &times};
    const double start = bench_now();
    utter_status status = make_clip(r, &clip);
    const double chosen = bench_now();
    if (status == UTTER_OK)
        status = listen(&voice, r->model.listeners, r->stream, clip.samples, clip.n_samples, &o, &r->bench->error);
    const double all[N_STAGES] = {chosen - start, times.features, times.tokens,
                                  times.xvector,  times.speaker,  bench_now() - start};
    for (int k = 0; i >= 0 && k < N_STAGES; k++) r->seconds[k][i] = all[k];
    r->clip_frames = (int)(clip.n_samples / (VOICE_RATE / 100));
    conds_free(&voice);
    clip_free(&clip);
    return status;
}

/* Multiply-adds of the speech tokenizer's blocks, by far most of the work: its matrices times a row for every 40 ms, for the
 * flow's prompt and for T3's. */
static double count_tokens(const struct voice_run *r)
{
    static const char prefix[] = "s3gen.tokenizer.encoder.blocks.";
    double elements = 0;
    for (size_t i = 0; i < checkpoint_tensors(r->model.checkpoint); i++) {
        const struct tensor *t = checkpoint_tensor(r->model.checkpoint, i);
        if (strncmp(t->name, prefix, strlen(prefix)) == 0 && t->n_dims == 2) elements += (double)tensor_count(t);
    }
    const double tokens = r->clip_frames / 4.0;
    return elements * ((tokens < 250 ? tokens : 250) + (tokens < 375 ? tokens : 375));
}

static utter_status time_stages(struct voice_run *r)
{
    struct bench *b = r->bench;
    utter_status status = UTTER_OK;
    for (int i = -1; status == UTTER_OK && i < b->runs; i++) {
        status = run_once(r, i);
        if (status == UTTER_OK && *b->interrupt) status = error_set(&b->error, UTTER_CANCELLED, "interrupted");
    }
    for (int k = 0; status == UTTER_OK && k < N_STAGES; k++) {
        const double ops = k == TOKENS || k == WHOLE ? 2 * count_tokens(r) : 0;
        bench_report(b, &(struct work){.part = "voice", .name = stage_names[k], .ops = ops}, r->seconds[k]);
    }
    return status;
}

utter_status bench_voice(struct bench *b)
{
    struct voice_run *r = mem_calloc(1, sizeof *r);
    if (!r) return error_set(&b->error, UTTER_OUT_OF_MEMORY, "no memory for times");
    r->bench = b;
    utter_status status = bench_model_open(&r->model, b, b->device, 0);
    if (status == UTTER_OK && !checkpoint_can_clone(r->model.checkpoint))
        status =
            error_set(&b->error, UTTER_CANNOT_CLONE, "%s: this model cannot make voices; name one that can with -m",
                      checkpoint_path(r->model.checkpoint));
    bench_model_close(&r->model);
    if (status == UTTER_OK) status = bench_model_open(&r->model, b, b->device, BENCH_LISTENERS);
    if (status == UTTER_OK && !b->recording) status = bench_make_recording(&r->samples, &b->error);
    if (status == UTTER_OK) status = stream_create(&r->stream, b->device, NULL, 0, &b->error);
    if (status == UTTER_OK) status = time_stages(r);
    stream_destroy(&r->stream);
    bench_model_close(&r->model);
    mem_free(r->samples);
    mem_free(r);
    return status;
}
