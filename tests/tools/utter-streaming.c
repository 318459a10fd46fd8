/*
 * utter-streaming FOLDER TOKENS [FIRST CHUNK] - what streaming costs in accuracy, measured on a model with a built-in voice.
 *
 * TOKENS holds one utterance's speech tokens as numbers. They are spoken in pieces of FIRST tokens, then CHUNK (20 and 25).
 *   hold-back   samples against the same mel vocoded at once: signal-to-error ratio, largest difference
 *   level       of 100 ms windows, streamed against whole
 *   prompt      mel of the first piece when it sees only the end of the prompt, against all of it
 *   context     mel against the utterance computed at once: mean and largest difference in log units, and against the
 *               published scheme (all tokens so far in every piece)
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "chatterbox/hift.h"
#include "chatterbox/s3gen.h"

enum { MAX_TOKENS = 4096 };

struct bench {
    struct checkpoint *ck;
    struct device *device;
    struct stream *s;
    struct binder binder;
    struct s3gen *model;
    struct conds voice;
    int32_t tokens[MAX_TOKENS];
    int n_tokens, first, chunk;
};

struct spoken {
    float *samples, *mel;
    int n_samples, n_frames;
    double seconds;
};

static void die(const char *what)
{
    fprintf(stderr, "utter-streaming: %s\n", what);
    exit(1);
}

static void need(utter_status status, const struct error *e)
{
    if (status != UTTER_OK) die(e->text);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct spoken speak(struct bench *b, struct s3gen_options o, bool whole)
{
    struct spoken out = {.samples = malloc(sizeof(float) * 960 * MAX_TOKENS),
                         .mel = malloc(sizeof(float) * 160 * MAX_TOKENS)};
    struct s3gen_stream *st = NULL;
    struct error e = {""};
    const double start = now();
    need(s3gen_stream_create(&st, b->model, &e), &e);
    s3gen_stream_begin(st, &b->voice, &o);
    for (int known = 0; known < b->n_tokens;) {
        known += known ? b->chunk : b->first;
        if (known >= b->n_tokens || whole) known = b->n_tokens;
        if (s3gen_stream_mel(st, b->s, b->tokens, known, known == b->n_tokens) != UTTER_OK) die("the mel failed");
        utter_status status;
        while ((status = s3gen_stream_wave(st, b->s)) == UTTER_AUDIO) {
            int n;
            const float *samples = s3gen_stream_samples(st, &n);
            memcpy(out.samples + out.n_samples, samples, sizeof(float) * (size_t)n);
            out.n_samples += n;
        }
        if (status < 0) die("the wave failed");
    }
    const float *mel = s3gen_stream_frames(st, &out.n_frames);
    memcpy(out.mel, mel, sizeof(float) * PROMPT_N_MELS * (size_t)out.n_frames);
    s3gen_stream_free(&st);
    out.seconds = now() - start;
    return out;
}

static void spoken_free(struct spoken *sp)
{
    free(sp->samples);
    free(sp->mel);
}

struct difference {
    double mean, most, ratio_db;
};

static struct difference compare(const float *reference, const float *values, int n)
{
    struct difference d = {0};
    double signal = 0, error = 0;
    for (int i = 0; i < n; i++) {
        const double x = (double)values[i] - (double)reference[i];
        d.mean += fabs(x) / n;
        d.most = fmax(d.most, fabs(x));
        error += x * x;
        signal += (double)reference[i] * (double)reference[i];
    }
    d.ratio_db = error > 0 ? 10 * log10(signal / error) : INFINITY;
    return d;
}

static void hold_back_table(struct bench *b)
{
    struct spoken exact = speak(b, (struct s3gen_options){.seed = 1, .hold_back_frames = HIFT_RIGHT}, false);
    printf("hold-back, frames   SNR dB   largest difference\n");
    for (int hold = HIFT_F0_CONTEXT; hold < HIFT_RIGHT; hold += 3) {
        struct spoken sp = speak(b, (struct s3gen_options){.seed = 1, .hold_back_frames = hold}, false);
        const struct difference d = compare(exact.samples, sp.samples, exact.n_samples);
        printf("%17d %8.1f %12.5f\n", hold, d.ratio_db, d.most);
        spoken_free(&sp);
    }
    spoken_free(&exact);
}

static void context_table(struct bench *b)
{
    static const int contexts[] = {0, 200, 100, 50, 25, 12};
    struct spoken whole = speak(b, (struct s3gen_options){.seed = 1}, true), published = {0};
    printf("context, tokens   mel to the whole: mean  most   to the published scheme: mean  most   seconds\n");
    for (size_t i = 0; i < sizeof contexts / sizeof contexts[0]; i++) {
        struct spoken sp = speak(b, (struct s3gen_options){.seed = 1, .context_tokens = contexts[i]}, false);
        if (!i) published = sp;
        const int n = sp.n_frames * PROMPT_N_MELS;
        const struct difference w = compare(whole.mel, sp.mel, n), p = compare(published.mel, sp.mel, n);
        printf("%15d %23.4f %5.2f %29.4f %5.2f %9.2f\n", contexts[i], w.mean, w.most, p.mean, p.most, sp.seconds);
        if (i) spoken_free(&sp);
    }
    spoken_free(&published);
    spoken_free(&whole);
}

/* Level of 100 ms windows, streamed against whole, where the whole is louder than -50 dB of full scale. */
static void level_line(struct bench *b)
{
    enum { WINDOW = S3GEN_SAMPLE_RATE / 10 };
    struct spoken whole = speak(b, (struct s3gen_options){.seed = 1}, true);
    struct spoken sp = speak(b, (struct s3gen_options){.seed = 1}, false);
    double mean = 0, most = 0;
    int n = 0;
    for (int at = 0; at + WINDOW <= whole.n_samples; at += WINDOW) {
        double a = 0, c = 0;
        for (int i = at; i < at + WINDOW; i++) {
            a += (double)whole.samples[i] * (double)whole.samples[i];
            c += (double)sp.samples[i] * (double)sp.samples[i];
        }
        if (10 * log10(a / WINDOW) < -50) continue;
        const double d = fabs(10 * log10(c / a));
        mean += d;
        most = fmax(most, d);
        n++;
    }
    printf("level of %d windows of 100 ms, streamed to whole: mean %.3f dB, largest %.3f dB\n", n, n ? mean / n : 0,
           most);
    spoken_free(&whole);
    spoken_free(&sp);
}

/* The first piece alone, with less of the prompt. */
static void prompt_table(struct bench *b)
{
    struct spoken whole = speak(b, (struct s3gen_options){.seed = 1}, false);
    const int n = 2 * (b->first - S3GEN_LOOKAHEAD_TOKENS) * PROMPT_N_MELS;
    printf("prompt of the first piece, tokens   its mel: mean  most\n");
    for (int prompt = b->voice.n_prompt_tokens / 2; prompt > 5; prompt /= 2) {
        struct spoken sp = speak(b, (struct s3gen_options){.seed = 1, .first_prompt = prompt}, false);
        const struct difference d = compare(whole.mel, sp.mel, n);
        printf("%33d %15.4f %5.2f\n", prompt, d.mean, d.most);
        spoken_free(&sp);
    }
    spoken_free(&whole);
}

static void read_tokens(struct bench *b, const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f) die("the file of tokens cannot be read");
    while (b->n_tokens < MAX_TOKENS && fscanf(f, "%d", &b->tokens[b->n_tokens]) == 1) b->n_tokens++;
    fclose(f);
}

int main(int argc, char **argv)
{
    static struct bench b;
    struct error e = {""};
    if (argc != 3 && argc != 5) {
        fprintf(stderr, "usage: utter-streaming FOLDER TOKENS [FIRST CHUNK]\n");
        return 2;
    }
    b.first = argc == 5 ? atoi(argv[3]) : 20;
    b.chunk = argc == 5 ? atoi(argv[4]) : 25;
    if (b.first < 1 || b.chunk < 1) die("pieces need a token");
    read_tokens(&b, argv[2]);
    const struct device_options options = {0};
    need(checkpoint_open(&b.ck, argv[1], NULL, NULL, &e), &e);
    need(conds_read(&b.voice, b.ck, "conds", &e), &e);
    need(device_create_cpu(&b.device, &options, &e), &e);
    need(stream_create(&b.s, b.device, NULL, 0, &e), &e);
    b.binder = (struct binder){.checkpoint = b.ck, .device = b.device, .error = &e};
    need(s3gen_load(&b.model, &b.binder), &e);
    printf("%s, %d tokens after a prompt of %d, pieces of %d and %d\n", device_name(b.device), b.n_tokens,
           b.voice.n_prompt_tokens, b.first, b.chunk);
    hold_back_table(&b);
    context_table(&b);
    prompt_table(&b);
    level_line(&b);
    s3gen_free(&b.model);
    conds_free(&b.voice);
    stream_destroy(&b.s);
    binder_free_owned(&b.binder.owned);
    device_destroy(&b.device);
    checkpoint_close(&b.ck);
    return 0;
}
