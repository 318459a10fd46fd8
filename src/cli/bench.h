/*
 * bench.h - what the parts of `utter bench` share: timing with warm-up and repeats, and one report.
 *
 * A part describes one piece of work as operations and bytes and hands it over as a function; bench_time runs it once to
 * warm up and then as often as asked, keeps min, median and max, and compares the best with the time that the machine's
 * measured limits allow.
 */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "device/device.h"

enum { BENCH_MAX_RUNS = 1000 };

struct bench {
    const char *model, *s3gen, *cpu, *precision, *text, *voice, *clock, *stage, *recording;
    int64_t threads, runs, samples;
    bool json, pipeline, vs_openblas, vs_onednn;
    const signed char *interrupt;
    struct device *device;
    struct device_limits limits;
    json_t *results; /* what was measured so far */
    struct error error;
};

typedef utter_status bench_fn(void *arg);

struct work {
    const char *part, *name;
    bench_fn *before; /* every run, with the same argument, not timed; or NULL */
    double ops;       /* multiply and add count as two; 0: not counted */
    double bytes;     /* that must come from memory; 0: not counted */
    bool narrow;      /* operations may be bf16 */
    bool int8;        /* or int8 */
    bool beside;      /* memory is measured before and after every run: on shared machines it changes by the second */
    double per;       /* > 1: times are divided by this, for example tokens */
    const char *unit; /* of one: "token"; NULL: "run" */
};

/* Times `run(arg)` and reports it. A run that does not return OK ends the benchmark with its status. */
utter_status bench_time(struct bench *b, const struct work *w, bench_fn *run, void *arg);

/* Reports what was timed elsewhere: b->runs times in seconds, which it sorts. */
void bench_report(struct bench *b, const struct work *w, double *seconds);

/* A figure that is no time, as a line of its own. */
void bench_figure(struct bench *b, const char *part, const char *name, double value, const char *unit);

/* The networks of b's model on a device, as far as they are asked for. */
enum bench_networks { BENCH_T3 = 1, BENCH_S3GEN = 2, BENCH_LISTENERS = 4 };
struct bench_model {
    struct checkpoint *checkpoint;
    struct binder_owned *owned;
    struct t3_gpt2 *t3;
    struct s3gen *s3gen;
    struct listeners *listeners;
};
utter_status bench_model_open(struct bench_model *m, struct bench *b, struct device *d, unsigned networks);
void bench_model_close(struct bench_model *m); /* a zeroed one is fine */

/* A made-up voice of 250 prompt tokens, for conds_free. */
struct conds;
utter_status bench_make_voice(struct conds *c, struct error *e);

enum { BENCH_RECORDING_RATE = 24000, BENCH_RECORDING_SECONDS = 10 };
/* A made-up recording, for mem_free: harmonics in syllables, enough like speech for what listens. */
utter_status bench_make_recording(float **samples, struct error *e);

double bench_now(void);            /* seconds */
double bench_peak_megabytes(void); /* most memory that was resident so far */

utter_status bench_kernels(struct bench *b);
utter_status bench_t3(struct bench *b);
utter_status bench_s3gen(struct bench *b);
utter_status bench_hift(struct bench *b);
utter_status bench_voice(struct bench *b);
utter_status bench_load(struct bench *b);
utter_status bench_say(struct bench *b);
utter_status bench_first(struct bench *b);
utter_status bench_cancel(struct bench *b);
utter_status bench_precision(struct bench *b);

#endif
