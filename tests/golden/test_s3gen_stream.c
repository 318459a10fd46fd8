/* An utterance in pieces: what streaming may change, and what not. */
#include "test.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "chatterbox/flow_encoder.h"
#include "chatterbox/hift.h"
#include "chatterbox/s3gen.h"
#include "tools/hashfill.h"

enum {
    N_TOKENS = 100,
    MANY_TOKENS = 160 /* more than one block of the vocoder */,
    N_PROMPT = 20,
    N_PROMPT_FRAMES = 2 * N_PROMPT
};

static char folder[64];
static struct checkpoint *ck;
static struct device *device;
static struct stream *s;
static struct binder binder;
static struct error e;
static struct s3gen *model;
static int32_t tokens[MANY_TOKENS], prompt[N_PROMPT];
static float prompt_mel[(N_PROMPT_FRAMES + 1) * PROMPT_N_MELS];
static struct conds voice = {
    .n_prompt_tokens = N_PROMPT, .n_prompt_frames = N_PROMPT_FRAMES, .prompt_tokens = prompt, .prompt_mel = prompt_mel};

static int set_up(void **state)
{
    (void)state;
    const char *const tags[] = {"s3gen_meanflow", NULL};
    const struct device_options options = {.n_threads = 2};
    if (hashfill_folder(folder, GOLDEN_DIR "/chatterbox-mini", tags, &e) != UTTER_OK) return 1;
    if (checkpoint_open(&ck, folder, NULL, NULL, &e) != UTTER_OK ||
        device_create_cpu(&device, &options, &e) != UTTER_OK)
        return 1;
    if (stream_create(&s, device, NULL, 0, &e) != UTTER_OK) return 1;
    binder = (struct binder){.checkpoint = ck, .device = device, .error = &e};
    hashfill_integers("in/stream_tokens", MANY_TOKENS, 0, SPEECH_CODES, tokens);
    hashfill_integers("in/prompt_tokens", N_PROMPT, 0, SPEECH_CODES, prompt);
    hashfill_draw("in/prompt_feat", 0, (N_PROMPT_FRAMES + 1) * PROMPT_N_MELS, 3, -5, prompt_mel);
    hashfill_draw("in/xvector", 0, XVECTOR_SIZE, 1.5, 0, voice.xvector);
    return s3gen_load(&model, &binder) != UTTER_OK;
}

static int tear_down(void **state)
{
    (void)state;
    s3gen_free(&model);
    stream_destroy(&s);
    binder_free_owned(&binder.owned);
    device_destroy(&device);
    checkpoint_close(&ck);
    hashfill_remove_folder(folder);
    return 0;
}

struct spoken {
    float *samples, *mel;
    int n_samples, n_frames;
};

static void collect(struct spoken *out, struct s3gen_stream *st, utter_status expected)
{
    utter_status status;
    while ((status = s3gen_stream_wave(st, s)) == UTTER_AUDIO) {
        int n;
        const float *samples = s3gen_stream_samples(st, &n);
        out->samples = realloc(out->samples, (size_t)(out->n_samples + n) * sizeof(float));
        memcpy(out->samples + out->n_samples, samples, (size_t)n * sizeof(float));
        out->n_samples += n;
    }
    assert_int_equal(status, expected);
}

/* Speaks the first `total` tokens, handing over the numbers of tokens in `pieces` (0-terminated) first. */
static struct spoken speak(const struct s3gen_options *o, const int *pieces, int total)
{
    struct spoken out = {0};
    struct s3gen_stream *st = NULL;
    int known = 0;
    assert_int_equal(s3gen_stream_create(&st, model, &e), UTTER_OK);
    s3gen_stream_begin(st, &voice, o);
    for (; *pieces; pieces++) {
        known += *pieces;
        assert_int_equal(s3gen_stream_mel(st, s, tokens, known, false), UTTER_OK);
        collect(&out, st, UTTER_OK);
    }
    assert_int_equal(s3gen_stream_mel(st, s, tokens, total, true), UTTER_OK);
    collect(&out, st, UTTER_DONE);
    const float *mel = s3gen_stream_frames(st, &out.n_frames);
    out.mel = malloc((size_t)out.n_frames * PROMPT_N_MELS * sizeof(float) + 1);
    if (out.n_frames) memcpy(out.mel, mel, (size_t)out.n_frames * PROMPT_N_MELS * sizeof(float));
    s3gen_stream_free(&st);
    return out;
}

static void spoken_free(struct spoken *sp)
{
    free(sp->samples);
    free(sp->mel);
}

/* The samples of a whole mel vocoded at once, by the networks alone. */
static float *vocode_whole(const struct spoken *sp, uint64_t seed)
{
    const int frames = sp->n_frames;
    float phases[HIFT_HARMONICS] = {0}, *samples = malloc((size_t)frames * HIFT_HOP * sizeof(float));
    for (int h = 1; h < HIFT_HARMONICS; h++)
        phases[h] = (float)(M_PI * (2 * rng_uniform(rng_stream(seed, "source phase"), (uint64_t)h) - 1));
    const size_t mark = stream_mark(s);
    struct array mel = stream_upload(s, frames, PROMPT_N_MELS, sp->mel), f0 = stream_array(s, frames, 1);
    struct array source = stream_array(s, frames * HIFT_HOP, 1), out = stream_array(s, frames * HIFT_HOP, 1);
    hift_f0(s, s3gen_hift(model), f0, mel);
    hift_source(s, s3gen_hift(model), source, f0,
                (struct source_params){.phase = stream_upload(s, 1, HIFT_HARMONICS, phases),
                                       .noise_stream = rng_stream(seed, "source noise")});
    hift_decode(s, s3gen_hift(model), out, mel, source, (struct hift_window){0, frames}, NULL);
    stream_read(s, samples, out);
    stream_release(s, mark);
    assert_int_equal(stream_status(s), UTTER_OK);
    for (int i = 0; i < frames * HIFT_HOP; i++) samples[i] *= s3gen_fade(i);
    return samples;
}

static double largest_difference(const float *a, const float *b, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++) most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

struct speaker {
    struct stream *stream;
    float mel[2 * N_TOKENS * PROMPT_N_MELS];
    utter_status status;
};

static void *mel_of_all_tokens(void *arg)
{
    struct speaker *sp = arg;
    const struct mel_request q = {
        .voice = &voice, .tokens = tokens, .n_tokens = N_TOKENS, .final = true, .noise = rng_stream(1, "flow noise")};
    struct array mel = stream_array(sp->stream, s3gen_mel_frames(&q), PROMPT_N_MELS);
    s3gen_mel(sp->stream, model, mel, &q);
    stream_read(sp->stream, sp->mel, mel);
    sp->status = stream_status(sp->stream);
    return NULL;
}

/* Runs first, so that both find the model's cache of positions empty. */
static void test_two_at_once(void **state)
{
    (void)state;
    static struct speaker speakers[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) assert_int_equal(stream_create(&speakers[i].stream, device, NULL, 0, &e), UTTER_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, mel_of_all_tokens, &speakers[i]), 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(speakers[i].status, UTTER_OK);
        stream_destroy(&speakers[i].stream);
    }
    struct speaker alone = {.stream = s};
    mel_of_all_tokens(&alone);
    stream_release(s, 0);
    assert_memory_equal(speakers[0].mel, alone.mel, sizeof alone.mel);
    assert_memory_equal(speakers[1].mel, alone.mel, sizeof alone.mel);
}

/* Pieces of any size give the samples of the whole mel, to the bit: nothing at a seam, and nothing missing. */
static void test_wave_has_no_seams(void **state)
{
    (void)state;
    static const int cases[][8] = {{0}, {18, 25, 50, 0}, {40, 1, 1, 1, 30, 0}, {3, 2, 0}, {14, 1, 1, 1, 1, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const struct s3gen_options o = {.seed = 7 + c, .hold_back_frames = HIFT_RIGHT};
        const int total = c ? N_TOKENS : MANY_TOKENS;
        struct spoken sp = speak(&o, cases[c], total);
        assert_int_equal(sp.n_frames, 2 * total);
        assert_int_equal(sp.n_samples, 960 * total);
        float *whole = vocode_whole(&sp, o.seed);
        assert_memory_equal(whole, sp.samples, (size_t)sp.n_samples * sizeof(float));
        for (int i = 0; i < 480; i++) assert_true(sp.samples[i] == 0);
        free(whole);
        spoken_free(&sp);
    }
}

/* The default hold-back is close. On these networks, whose weights are noise and whose last layer reaches its limits, the far
 * neighbours weigh more than on a trained one. */
static void test_default_hold_back(void **state)
{
    (void)state;
    const int pieces[] = {18, 25, 25, 0};
    const struct s3gen_options o = {.seed = 9};
    struct spoken sp = speak(&o, pieces, 100);
    float *whole = vocode_whole(&sp, o.seed);
    const double d = largest_difference(whole, sp.samples, sp.n_samples);
    printf("default hold-back: %g\n", d);
    assert_true(d <= 0.02);
    free(whole);
    spoken_free(&sp);
}

/* Frames of a call are the official chunked computation's: everything known so far, less the look-ahead, whose earlier
 * frames are not handed on again. */
static void test_mel_of_pieces(void **state)
{
    (void)state;
    const int pieces[] = {25, 30, 0}, known[] = {25, 55, 100};
    const struct s3gen_options o = {.seed = 3};
    struct spoken sp = speak(&o, pieces, 100);
    for (int i = 0, at = 0; i < 3; i++) {
        const struct mel_request q = {.voice = &voice,
                                      .tokens = tokens,
                                      .n_tokens = known[i],
                                      .final = i == 2,
                                      .noise = rng_stream(3, "flow noise")};
        const int n = s3gen_mel_frames(&q);
        assert_int_equal(n, 2 * known[i] - (i == 2 ? 0 : 6));
        float *mel = malloc((size_t)n * PROMPT_N_MELS * sizeof(float));
        struct array out = stream_array(s, n, PROMPT_N_MELS);
        s3gen_mel(s, model, out, &q);
        stream_read(s, mel, out);
        assert_memory_equal(mel + at * PROMPT_N_MELS, sp.mel + at * PROMPT_N_MELS,
                            (size_t)(n - at) * PROMPT_N_MELS * sizeof(float));
        at = n;
        free(mel);
        stream_release(s, 0);
    }
    spoken_free(&sp);
}

/* The noise of a frame is its own: leaving tokens out moves no noise, so the frames stay alike. */
static void test_bounded_context(void **state)
{
    (void)state;
    const int pieces[] = {30, 30, 30, 0};
    struct s3gen_options o = {.seed = 5};
    struct spoken whole = speak(&o, pieces, N_TOKENS);
    o.context_tokens = N_TOKENS;
    struct spoken same = speak(&o, pieces, N_TOKENS);
    assert_memory_equal(whole.samples, same.samples, (size_t)whole.n_samples * sizeof(float));
    o.context_tokens = 25;
    struct spoken bounded = speak(&o, pieces, N_TOKENS);
    assert_int_equal(bounded.n_samples, whole.n_samples);
    const double d = largest_difference(whole.mel, bounded.mel, whole.n_frames * PROMPT_N_MELS);
    assert_true(d > 0 && d < 2);
    spoken_free(&whole);
    spoken_free(&same);
    spoken_free(&bounded);
}

/* A prompt of 2n + 1 frames: the first speech token's first frame belongs to the prompt. */
static void test_odd_prompt(void **state)
{
    (void)state;
    const int pieces[] = {30, 40, 0};
    struct s3gen_options o = {.seed = 5, .context_tokens = 20, .hold_back_frames = HIFT_RIGHT};
    voice.n_prompt_frames++;
    struct spoken sp = speak(&o, pieces, 90);
    voice.n_prompt_frames--;
    assert_int_equal(sp.n_frames, 179);
    float *whole = vocode_whole(&sp, o.seed);
    assert_memory_equal(whole, sp.samples, (size_t)sp.n_samples * sizeof(float));
    free(whole);
    spoken_free(&sp);
}

static void test_first_tokens(void **state)
{
    (void)state;
    for (int hold = 0; hold < 30; hold += 7) {
        const struct s3gen_options o = {.seed = 1, .hold_back_frames = hold};
        struct s3gen_stream *st = NULL;
        const int n = s3gen_first_tokens(&o);
        assert_int_equal(s3gen_stream_create(&st, model, &e), UTTER_OK);
        s3gen_stream_begin(st, &voice, &o);
        assert_int_equal(s3gen_stream_mel(st, s, tokens, n - 2, false), UTTER_OK);
        assert_int_equal(s3gen_stream_wave(st, s), UTTER_OK);
        assert_int_equal(s3gen_stream_mel(st, s, tokens, n, false), UTTER_OK);
        assert_int_equal(s3gen_stream_wave(st, s), UTTER_AUDIO);
        s3gen_stream_free(&st);
    }
}

/* Nothing at all, one token, and a token that does not exist. */
static void test_edges(void **state)
{
    (void)state;
    const int none[] = {0};
    const struct s3gen_options o = {.seed = 1};
    struct spoken sp = speak(&o, none, 0);
    assert_int_equal(sp.n_samples, 0);
    spoken_free(&sp);
    sp = speak(&o, none, 1);
    assert_int_equal(sp.n_samples, 960);
    spoken_free(&sp);

    struct s3gen_stream *st = NULL;
    const int32_t bad[] = {1, SPEECH_CODES};
    assert_int_equal(s3gen_stream_create(&st, model, &e), UTTER_OK);
    s3gen_stream_begin(st, &voice, &o);
    assert_int_equal(s3gen_stream_mel(st, s, bad, 2, true), UTTER_INVALID_ARGUMENT);
    assert_int_equal(s3gen_stream_wave(st, s), UTTER_INVALID_ARGUMENT);
    stream_clear(s);
    s3gen_stream_free(&st);
}

static size_t resident_bytes(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%*u %lu", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return pages * 4096;
}

/* What an encoder keeps is bounded by its classes of lengths, not by how many lengths come. */
static void many_lengths_do_not_grow_memory(void **state)
{
    (void)state;
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    /* Slow, and what was freed is kept aside for a while: here only what is read and written counts. */
    enum { LENGTHS = 12 };
    const size_t slack = (size_t)320 << 20;
#else
    enum { LENGTHS = 250 };
    const size_t slack = (size_t)4 << 20;
#endif
    enum { LONGEST = 800 };
    struct flow_encoder encoder;
    int32_t ids[LONGEST];
    for (int i = 0; i < LONGEST; i++) ids[i] = i * 37 % SPEECH_CODES;
    flow_encoder_load(&encoder, &binder);
    assert_int_equal(binder_status(&binder), UTTER_OK);
    size_t before = 0;
    for (int i = -4; i < LENGTHS; i++) {
        const int classes[] = {100, 200, 400, LONGEST}, n = i < 0 ? classes[i + 4] : i * 389 % LONGEST + 1;
        const size_t mark = stream_mark(s);
        flow_encoder_forward(s, &encoder, stream_array(s, 2 * n, PROMPT_N_MELS), ids, n, NULL);
        assert_int_equal(stream_wait(s), UTTER_OK);
        stream_release(s, mark);
        if (i < 0) before = resident_bytes();
    }
    if (before) assert_true(resident_bytes() < before + slack);
    flow_encoder_free(&encoder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_wave_has_no_seams),
        cmocka_unit_test(test_default_hold_back),
        cmocka_unit_test(test_mel_of_pieces),
        cmocka_unit_test(test_bounded_context),
        cmocka_unit_test(test_odd_prompt),
        cmocka_unit_test(test_first_tokens),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(many_lengths_do_not_grow_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
