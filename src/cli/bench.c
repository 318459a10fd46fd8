/*
 * bench.c - `utter bench`: what this machine can do, and what the engine makes of it.
 */
#include "cli/bench.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "cli/cli.h"

#define AT(field) offsetof(struct bench, field)
static const struct option options[] = {
    {"-m, --model", "MODEL", OPTION_TEXT, AT(model),
     .help = "Folder or GGUF file, of any size. kernels needs none; the others take the built-in voice without it."},
    {"--s3gen", "FILE", OPTION_TEXT, AT(s3gen), .help = "The second file of a model when it is not beside the first."},
    {"-v, --voice", "FILE", OPTION_TEXT, AT(voice), .help = "say, cancel: a saved voice. Default: the model's own."},
    {"--text", "TEXT", OPTION_TEXT, AT(text), .help = "say, cancel, precision: what is spoken."},
    {"--recording", "FILE", OPTION_TEXT, AT(recording),
     .help = "voice: a recording of any format. Default: ten seconds of made-up syllables."},
    {"-t, --threads", "N", OPTION_INTEGER, AT(threads), 1, 256, .help = "Threads. Default: one a core."},
    {"--cpu", "auto|scalar|avx2|avx512|neon", OPTION_CHOICE, AT(cpu),
     .help = "Which instructions to use. Default: the best there are."},
    {"--precision", "f32|fast", OPTION_CHOICE, AT(precision),
     .help = "fast: bf16 and 8-bit products where the CPU has them."},
    {"-n, --runs", "N", OPTION_INTEGER, AT(runs), 1, BENCH_MAX_RUNS,
     .help = "Measured runs of each piece of work, after one to warm up. Default: 5."},
    {"--samples", "N", OPTION_INTEGER, AT(samples), 2, 100000,
     .help = "cancel: how often each stage is cancelled, half by the call and half by the flag. Default: 200."},
    {"--stage", "NAME", OPTION_TEXT, AT(stage),
     .help = "cancel: only stages whose names begin so (load, voice, prompt, decode, encoder, flow, vocoder, a "
             "sentence), or "
             "cost: what listening costs when nobody cancels."},
    {"--clock", "wall|cpu", OPTION_CHOICE, AT(clock),
     .help = "cpu: processor time a thread instead of time that passes, for a machine that is busy with other things; "
             "only means something for work that keeps all threads busy."},
    {"--pipeline", NULL, OPTION_SWITCH, AT(pipeline),
     .help = "say: the default; --no-pipeline makes the tokens of one sentence after the other."},
    {"--vs-openblas", NULL, OPTION_SWITCH, AT(vs_openblas),
     .help = "kernels: OpenBLAS's rate for each product of many rows too, where it was built in."},
    {"--vs-onednn", NULL, OPTION_SWITCH, AT(vs_onednn),
     .help = "kernels: oneDNN's, with its weights packed beforehand; in bf16 with --precision fast."},
    {"--json", NULL, OPTION_SWITCH, AT(json), .help = "Print everything as JSON at the end."},
    {0}};

static const struct part {
    const char *name;
    utter_status (*run)(struct bench *b);
    bool by_default; /* without words */
    bool limited;    /* compared with the machine's limits, so they must be measured */
} parts[] = {{"kernels", bench_kernels, true, true}, {"load", bench_load, false, false},
             {"t3", bench_t3, false, true},          {"s3gen", bench_s3gen, false, false},
             {"hift", bench_hift, false, false},     {"say", bench_say, true, false},
             {"voice", bench_voice, false, true},    {"first", bench_first, false, false},
             {"cancel", bench_cancel, false, false}, {"precision", bench_precision, false, false}};
enum { N_PARTS = sizeof parts / sizeof parts[0] };

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double bench_peak_megabytes(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)r.ru_maxrss / 1024;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The least seconds that the measured limits allow for this work; 0 when nothing was counted or measured. */
static double floor_seconds(const struct bench *b, const struct work *w, double read_bytes)
{
    const double rate = w->int8 && b->limits.int8_ops > 0     ? b->limits.int8_ops
                        : w->narrow && b->limits.bf16_ops > 0 ? b->limits.bf16_ops
                                                              : b->limits.f32_ops;
    if (rate <= 0) return 0;
    const double compute = w->ops / rate, memory = w->bytes / read_bytes;
    return compute > memory ? compute : memory;
}

/* share: of what the limits allow. */
static void report(struct bench *b, const struct work *w, const double *seconds, double share)
{
    const double min = seconds[0], median = seconds[b->runs / 2], max = seconds[b->runs - 1];
    const double per = w->per > 1 ? w->per : 1;
    json_array_append_new(b->results,
                          json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f}", "part", w->part, "name", w->name,
                                    "unit", w->unit ? w->unit : "run", "min_ms", 1e3 * min / per, "median_ms",
                                    1e3 * median / per, "max_ms", 1e3 * max / per, "operations", w->ops / per, "bytes",
                                    w->bytes / per, "share_of_limit", share));
    if (b->json) return;
    printf("%-8s %-34s %9.3f %9.3f %9.3f ms", w->part, w->name, 1e3 * min / per, 1e3 * median / per, 1e3 * max / per);
    if (w->ops > 0) printf(" %8.1f GFLOP/s", w->ops / min / 1e9);
    if (w->bytes > 0) printf(" %7.1f GB/s", w->bytes / min / 1e9);
    if (share > 0) printf("  %3.0f %%", 100 * share);
    if (w->unit) printf("  a %s", w->unit);
    putchar('\n');
    fflush(stdout);
}

void bench_report(struct bench *b, const struct work *w, double *seconds)
{
    qsort(seconds, (size_t)b->runs, sizeof *seconds, by_value);
    report(b, w, seconds, floor_seconds(b, w, b->limits.read_bytes) / seconds[0]);
}

/* Of the chosen clock. */
static double seconds_now(const struct bench *b)
{
    struct timespec t;
    if (!b->clock || strcmp(b->clock, "cpu") != 0) return bench_now();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return ((double)t.tv_sec + 1e-9 * (double)t.tv_nsec) / device_threads(b->device);
}

utter_status bench_time(struct bench *b, const struct work *w, bench_fn *run, void *arg)
{
    double seconds[BENCH_MAX_RUNS], shares[BENCH_MAX_RUNS], read[2] = {0};
    for (int i = -1; i < b->runs; i++) {
        utter_status status = w->before ? w->before(arg) : UTTER_OK;
        if (status == UTTER_OK && w->beside) status = device_measure_memory(b->device, &read[0], &b->error);
        const double start = seconds_now(b);
        if (status == UTTER_OK) status = run(arg);
        const double end = seconds_now(b);
        if (status >= 0 && *b->interrupt) status = error_set(&b->error, UTTER_CANCELLED, "interrupted");
        if (status >= 0 && w->beside) status = device_measure_memory(b->device, &read[1], &b->error);
        if (status < 0) return status;
        if (i < 0) continue;
        seconds[i] = end - start;
        shares[i] = floor_seconds(b, w, read[0] > read[1] ? read[0] : read[1]) / seconds[i];
    }
    if (!w->beside) {
        bench_report(b, w, seconds);
        return UTTER_OK;
    }
    qsort(seconds, (size_t)b->runs, sizeof *seconds, by_value);
    qsort(shares, (size_t)b->runs, sizeof *shares, by_value);
    report(b, w, seconds, shares[b->runs / 2]);
    return UTTER_OK;
}

void bench_figure(struct bench *b, const char *part, const char *name, double value, const char *unit)
{
    json_array_append_new(b->results,
                          json_pack("{s:s, s:s, s:f, s:s}", "part", part, "name", name, "value", value, "unit", unit));
    if (b->json) return;
    printf("%-8s %-34s %9.*f %s\n", part, name, *unit ? 3 : 6, value, unit); /* without a unit: a share */
    fflush(stdout);
}

/* The device of everything but say and cancel, and the machine's limits with its threads. */
static utter_status prepare(struct bench *b, bool measure)
{
    static const char *const levels[] = {"auto", "scalar", "avx2", "avx512", "neon"}; /* enum cpu_level */
    struct device_options o = {.n_threads = (int)b->threads};
    while (b->cpu && strcmp(b->cpu, levels[o.level]) != 0) o.level++;
    o.precision = b->precision && strcmp(b->precision, "fast") == 0 ? PRECISION_FAST : PRECISION_F32;
    utter_status status = device_create_cpu(&b->device, &o, &b->error);
    if (status != UTTER_OK) return status;
    if (!b->json) printf("%s, precision %s\n", device_name(b->device), b->precision ? b->precision : "f32");
    if (measure) status = device_measure(b->device, &b->limits, &b->error);
    if (!b->json && measure)
        printf("at most: %.1f GB/s read, %.1f GFLOP/s f32, %.1f bf16, %.1f GOP/s int8\n", b->limits.read_bytes / 1e9,
               b->limits.f32_ops / 1e9, b->limits.bf16_ops / 1e9, b->limits.int8_ops / 1e9);
    return status;
}

static const struct part *find_part(const char *name)
{
    for (int i = 0; i < N_PARTS; i++)
        if (strcmp(name, parts[i].name) == 0) return &parts[i];
    return NULL;
}

static void print_json(const struct bench *b)
{
    json_t *all = json_pack("{s:s, s:s, s:s, s:{s:f, s:f, s:f, s:f}, s:O}", "version", utter_version(), "device",
                            device_name(b->device), "precision", b->precision ? b->precision : "f32", "limits",
                            "read_bytes", b->limits.read_bytes, "f32_ops", b->limits.f32_ops, "bf16_ops",
                            b->limits.bf16_ops, "int8_ops", b->limits.int8_ops, "results", b->results);
    json_dumpf(all, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(all);
}

static int run(const struct command *self, int argc, char **argv)
{
    struct bench b = {.runs = 5, .samples = 200, .pipeline = true, .interrupt = interrupt_flag()};
    struct words rest;
    int code;
    if (!options_parse(self, &b, &rest, argc, argv, &code)) return code;
    for (int i = 0; i < rest.count; i++)
        if (!find_part(rest.word[i])) {
            report_error("bench: there is no \"%s\"; see utter bench --help", rest.word[i]);
            return EXIT_USAGE;
        }
    bool wanted[N_PARTS], measure = false;
    for (int i = 0; i < N_PARTS; i++) {
        wanted[i] = rest.count == 0 && parts[i].by_default;
        for (int k = 0; k < rest.count; k++) wanted[i] |= strcmp(rest.word[k], parts[i].name) == 0;
        measure |= wanted[i] && parts[i].limited;
    }
    b.results = json_array();
    utter_status status = prepare(&b, measure);
    if (!b.json && (rest.count != 1 || strcmp(rest.word[0], "cancel") != 0))
        printf("%-8s %-34s %9s %9s %9s\n", "part", "work", "min", "median", "max");
    for (int i = 0; status >= 0 && i < N_PARTS; i++)
        if (wanted[i]) status = parts[i].run(&b);
    if (status < 0)
        report_error("%s", b.error.text[0] ? b.error.text : utter_status_text(status));
    else if (b.json)
        print_json(&b);
    json_decref(b.results);
    device_destroy(&b.device);
    return exit_code_of(status);
}

const struct command command_bench = {
    .name = "bench",
    .summary = "measure this machine and what the engine makes of it",
    .synopsis = "[kernels|load|t3|s3gen|hift|say|first|voice|cancel|precision]...",
    .description =
        "Measures what memory and arithmetic of this machine can do with the chosen threads and "
        "instructions, then the named "
        "pieces of work (kernels and say without any): best, median and worst time, operations and bytes a "
        "second, and the "
        "share of what the limits allow (a token's: the median of shares of the memory's speed right beside each "
        "run).\n\n"
        "kernels: the networks' products and attentions at the sizes of Chatterbox Turbo. load: opening a "
        "model. t3: the prompt, and "
        "speech tokens one by one at positions from 418 on. s3gen: 250 prompt and 150 speech tokens to mel, "
        "hift: their mel to "
        "sound. say: a sentence from text to sound. first: from a request to its first streamed sound, with the model "
        "loaded and the voice spoken with before, by steps of the flow and by how much of the voice's prompt the first "
        "chunk sees. cancel: how soon each stage of the work returns after a cancel "
        "at a random moment, by the call and by the flag, and what listening for it costs. voice: from a recording to "
        "a voice, "
        "stage by stage; needs a model that can clone. precision: how far the fast mode is from f32 in each network, "
        "given the same inputs, and in all.",
    .options = options,
    .run = run,
};
