/*
 * say.c - `utter say`: text to a file, a pipe or the loudspeaker.
 */
#include "cli/cli.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/input.h"
#include "cli/live.h"
#include "cli/speak.h"
#include "engine/locate.h"

/* Numbers that were not given stay at these and take the model's default. */
#define UNSET_NUMBER  NAN
#define UNSET_INTEGER INT64_MIN

struct settings {
    const char *model, *s3gen, *voice, *ref_audio, *ref_text, *language, *precision, *cpu;
    double ref_start, ref_duration;
    bool ref_raw;
    const char *prompt, *file, *input_file, *input_eof_marker;
    bool input_by_line;
    const char *output, *output_dir, *format, *play_device;
    bool raw, play, json, timings, pipeline;
    int64_t threads, seed, top_k, max_tokens, cfm_steps;
    double temperature, top_p, min_p, repeat_penalty, exaggeration, cfg_weight, sentence_silence;
    const char *stream;
    int64_t first_chunk_tokens, chunk_tokens, context_tokens, first_prompt_tokens;
};

#define AT(field) offsetof(struct settings, field)
static const struct option options[] = {
    {.type = OPTION_HEADING, .help = "Text"},
    {"-p, --prompt", "TEXT", OPTION_TEXT, AT(prompt), .help = "The text, instead of words after the options."},
    {"-f, --file", "FILE", OPTION_TEXT, AT(file), .help = "Read the text from a file (- is standard input)."},
    {"--input-file", "FILE", OPTION_TEXT, AT(input_file),
     .help = "Speak a file or pipe (-) while it is being written, sentence by sentence. A pipe ends when it is closed, "
             "a file "
             "with --input-eof-marker or Ctrl-C only."},
    {"--input-by-line", NULL, OPTION_SWITCH, AT(input_by_line),
     .help = "With --input-file: one line is one utterance."},
    {"--input-eof-marker", "TEXT", OPTION_TEXT, AT(input_eof_marker),
     .help = "With --input-file: a line of exactly this text ends the input."},

    {.type = OPTION_HEADING, .help = "Output"},
    {"-o, --output", "FILE", OPTION_TEXT, AT(output),
     .help =
         "Write a file; its extension says how: wav, flac, opus, ogg, mp3, pcm. - is standard output (raw samples)."},
    {"-d, --output-dir", "DIR", OPTION_TEXT, AT(output_dir),
     .help = "One file for each line of the text: 0001.wav, 0002.wav, ..."},
    {"--format", "wav|wav16|wav24|wav32f|flac|opus|ogg|vorbis|mp3|pcm|raw", OPTION_CHOICE, AT(format),
     .help = "The format, whatever the file is called."},
    {"--raw | --output-raw", NULL, OPTION_SWITCH, AT(raw),
     .help = "The same as --format pcm: signed 16-bit little-endian, mono."},
    {"--play", NULL, OPTION_SWITCH, AT(play),
     .help = "Play the sound. This is what happens without -o, -d and --play too."},
    {"--play-device", "NAME", OPTION_TEXT, AT(play_device), .help = "The ALSA device to play on."},

    {.type = OPTION_HEADING, .help = "Model and voice"},
    {"-m, --model", "MODEL", OPTION_TEXT, AT(model),
     .help = "A published folder, a GGUF file, or a name that `utter models` lists. Default: the built-in voice."},
    {"--s3gen | --s3gen-gguf, --codec", "FILE", OPTION_TEXT, AT(s3gen),
     .help = "The second file of a model when it is not beside the first."},
    {"-v, --voice", "NAME|FILE", OPTION_TEXT, AT(voice),
     .help = "A voice that `utter voice list` shows, a voice file, a conds.pt or a folder of .npy files. Default: the "
             "model's own voice."},
    {"--ref-audio | --reference-audio", "FILE", OPTION_TEXT, AT(ref_audio),
     .help = "Speak as in this recording, of any format (- is standard input); `utter voice make` keeps the voice."},
    {"--ref-text", "TEXT", OPTION_TEXT, AT(ref_text), .help = "What is said in it; Chatterbox does not need it."},
    {"--ref-start", "SECONDS", OPTION_NUMBER, AT(ref_start), 0, 1e8,
     .help = "Use the part of it that begins here. Default: the best part is chosen."},
    {"--ref-duration", "SECONDS", OPTION_NUMBER, AT(ref_duration), 1, 1e8, .help = "Use this much of it."},
    {"--ref-raw", NULL, OPTION_SWITCH, AT(ref_raw), .help = "Use it as it is, without clean-up."},
    {"-l, --language", "CODE", OPTION_TEXT, AT(language),
     .help = "The language of the text, for models that know several."},

    {.type = OPTION_HEADING, .help = "How it is spoken (defaults are the model's)"},
    {"-s, --seed", "N", OPTION_INTEGER, AT(seed), -1, 9007199254740992.0,
     .help = "The same seed gives the same sound; -1 draws one and tells it. Default: -1."},
    {"--temp | --temperature", "X", OPTION_NUMBER, AT(temperature), 0, 100,
     .help = "Sampling temperature; 0 takes the likeliest token."},
    {"--top-k", "N", OPTION_INTEGER, AT(top_k), 0, 1e6, .help = "Sample among the N likeliest; 0: all."},
    {"--top-p", "X", OPTION_NUMBER, AT(top_p), 1e-6, 1,
     .help = "Sample among those that share this probability; 1: all."},
    {"--min-p", "X", OPTION_NUMBER, AT(min_p), 0, 1,
     .help = "Drop what is less likely than this share of the best; 0: off."},
    {"--repeat-penalty | --rep-pen, --rep-penalty, --repetition-penalty", "X", OPTION_NUMBER, AT(repeat_penalty), 0.01,
     100, .help = "Makes tokens that came before less likely; 1: off."},
    {"-n, --n-predict | --max-new, --max-tokens", "N", OPTION_INTEGER, AT(max_tokens), 1, 1001,
     .help = "Most speech tokens for a sentence (25 a second), up to 1001."},
    {"--cfm-steps", "N", OPTION_INTEGER, AT(cfm_steps), 1, 100, .help = "Steps of the flow that makes the spectrum."},
    {"--exaggeration", "X", OPTION_NUMBER, AT(exaggeration), 0, 10,
     .help = "How much feeling, for models that know it."},
    {"--cfg-weight", "X", OPTION_NUMBER, AT(cfg_weight), 0, 10,
     .help = "How closely to follow the voice, for models that know it."},
    {"--sentence-silence", "SECONDS", OPTION_NUMBER, AT(sentence_silence), 0, 10, .help = "Silence between sentences."},

    {.type = OPTION_HEADING, .help = "Speed and streaming"},
    {"-t, --threads", "N", OPTION_INTEGER, AT(threads), 1, 256,
     .help = "Threads; the sound does not depend on it. Default: one a core."},
    {"--precision", "f32|fast", OPTION_CHOICE, AT(precision),
     .help = "fast: narrower products where that is not heard."},
    {"--cpu", "auto|scalar|avx2|avx512|neon", OPTION_CHOICE, AT(cpu),
     .help = "Which instructions to use. Default: the best there are."},
    {"--stream", "off|on|auto", OPTION_CHOICE, AT(stream),
     .help =
         "Make sound before a sentence is complete. auto picks chunk sizes by measured speed. Default: without a seed "
         "auto when playing and for a pipe; with one on when only playing; else off, so that what is written depends "
         "on the seed alone."},
    {"--stream-first-chunk-tokens", "N", OPTION_INTEGER, AT(first_chunk_tokens), 1, 1000,
     .help = "Tokens of the first chunk; implies --stream on."},
    {"--stream-chunk-tokens", "N", OPTION_INTEGER, AT(chunk_tokens), 1, 1000,
     .help = "Tokens of later chunks; implies --stream on."},
    {"--stream-context-tokens", "N", OPTION_INTEGER, AT(context_tokens), 0, 1000000,
     .help = "Tokens before a chunk that its computation looks back on; 0: all."},
    {"--stream-first-prompt-tokens", "N", OPTION_INTEGER, AT(first_prompt_tokens), 0, 1000000,
     .help = "Tokens of the voice's prompt that the first chunk sees; fewer give sound sooner; 0: all."},

    {"--pipeline", NULL, OPTION_SWITCH, AT(pipeline),
     .help =
         "Make tokens before it is their turn: the next ones while a chunk becomes sound, where there are two "
         "threads or more, and with --stream off those of the next sentences together with this one's (for a "
         "loudspeaker or "
         "a pipe once the first one has sounded). This is the default; --no-pipeline makes one after the other. The "
         "sound is the same."},

    {.type = OPTION_HEADING, .help = "Reports"},
    {"--json", NULL, OPTION_SWITCH, AT(json),
     .help = "Print what was done as JSON on standard output (standard error with -o -)."},
    {"--timings", NULL, OPTION_SWITCH, AT(timings), .help = "Print times on standard error."},
    {0}};

static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* What a run holds open. */
struct run {
    struct settings s;
    const signed char *interrupt;
    utter_model *model;
    utter_voice *voice; /* NULL: the model's own */
    utter_task *task;
    struct outlet outlet;
    bool to_stdout, to_pipe; /* to_pipe: somebody may be listening */
    bool seeded;
    struct speaker speaker;
    double load_seconds;
    int n_utterances, n_dropped;
};

/* ---- the request ---- */

/* Somebody waits for the first sound. */
static bool listens(const struct run *run)
{
    return run->outlet.player || run->to_pipe;
}

static bool streams(const struct settings *s)
{
    return s->first_chunk_tokens != UNSET_INTEGER || s->chunk_tokens != UNSET_INTEGER;
}

/* Who listens, at the loudspeaker or a pipe, wants sound at once. Chunks by the clock make samples that no second run repeats,
 * so who named a seed gets chunks of fixed sizes where it is only played, and else the bytes that a file would hold. */
static int32_t default_stream_mode(const struct run *run)
{
    const bool only_played = run->outlet.player && !run->s.output && !run->s.output_dir;
    if (streams(&run->s)) return UTTER_STREAM_ON;
    if (run->seeded) return only_played ? UTTER_STREAM_ON : UTTER_STREAM_OFF;
    return listens(run) ? UTTER_STREAM_AUTO : UTTER_STREAM_OFF;
}

static int32_t stream_mode(const struct run *run)
{
    const struct settings *s = &run->s;
    if (!s->stream) return default_stream_mode(run);
    return strcmp(s->stream, "auto") == 0 ? UTTER_STREAM_AUTO
           : strcmp(s->stream, "on") == 0 ? UTTER_STREAM_ON
                                          : UTTER_STREAM_OFF;
}

static utter_request make_request(const struct run *run)
{
    const struct settings *s = &run->s;
    utter_request r;
    utter_request_init(&r, run->model);
    r.voice = run->voice;
    r.language = s->language;
    r.seed = s->seed == -1 ? UTTER_SEED_RANDOM : (uint64_t)s->seed;
    r.stream = stream_mode(run);
    r.drop_pulled = 1;
    r.stream_serial = !s->pipeline ? 1 : listens(run) ? 2 : 0;
#define TAKE_INTEGER(to, from)                                                                                         \
    if (s->from != UNSET_INTEGER) r.to = (int32_t)s->from
#define TAKE_NUMBER(to, from)                                                                                          \
    if (!isnan(s->from)) r.to = (float)s->from
    TAKE_INTEGER(top_k, top_k);
    TAKE_INTEGER(max_tokens, max_tokens);
    TAKE_INTEGER(cfm_steps, cfm_steps);
    TAKE_INTEGER(stream_first_chunk_tokens, first_chunk_tokens);
    TAKE_INTEGER(stream_chunk_tokens, chunk_tokens);
    TAKE_INTEGER(stream_context_tokens, context_tokens);
    TAKE_INTEGER(stream_first_prompt_tokens, first_prompt_tokens);
    TAKE_NUMBER(temperature, temperature);
    TAKE_NUMBER(top_p, top_p);
    TAKE_NUMBER(min_p, min_p);
    TAKE_NUMBER(repetition_penalty, repeat_penalty);
    TAKE_NUMBER(exaggeration, exaggeration);
    TAKE_NUMBER(cfg_weight, cfg_weight);
    TAKE_NUMBER(sentence_silence, sentence_silence);
    return r;
}

/* ---- what is opened ---- */

static void log_line(int level, const char *line, void *user)
{
    (void)user;
    if (level == UTTER_LOG_WARNING)
        report_warning("%s", line);
    else
        report_debug("%s", line);
}

static int open_model(struct run *run)
{
    const struct settings *s = &run->s;
    utter_model_options o;
    utter_model_options_init(&o);
    o.n_threads = s->threads == UNSET_INTEGER ? 0 : (int32_t)s->threads;
    o.cpu_level = s->cpu;
    o.precision = s->precision && strcmp(s->precision, "fast") == 0 ? UTTER_PRECISION_FAST : UTTER_PRECISION_F32;
    o.s3gen_path = s->s3gen;
    o.cancel_flag = run->interrupt;
    o.log = log_line;
    char error[512];
    const double start = now_seconds();
    utter_status status = utter_model_open(&run->model, s->model, &o, error, sizeof error);
    if (status == UTTER_OK) status = utter_task_create(&run->task, run->model, error, sizeof error);
    run->load_seconds = now_seconds() - start;
    if (status != UTTER_OK) report_error("%s", error);
    return exit_code_of(status);
}

static void show_voice_progress(double share, const char *what, void *user)
{
    (void)user;
    progress_show(share, "voice: %s", what);
}

static void report_findings(const utter_voice *v)
{
    int32_t warning;
    const char *text;
    for (size_t i = 0; (text = utter_voice_finding(v, i, &warning)); i++)
        if (warning) report_warning("%s", text);
}

/* A voice file that had to be fitted to the model stays so. */
static void keep_fitted(const struct run *run)
{
    utter_voice_info info = {.struct_size = sizeof info};
    char error[512], *path = NULL;
    struct error e;
    utter_voice_get_info(run->voice, &info);
    if (info.fitted && locate_voice(&path, run->s.voice, &e) == UTTER_OK &&
        utter_voice_save(run->voice, path, error, sizeof error) != UTTER_OK)
        report_debug("the voice was fitted to the model, but cannot be kept so: %s", error);
    mem_free(path);
}

static int open_voice(struct run *run)
{
    const struct settings *s = &run->s;
    if (!s->voice && !s->ref_audio) return EXIT_OK;
    char error[512];
    utter_voice_options o;
    utter_voice_options_init(&o);
    o.raw = s->ref_raw;
    o.start_seconds = s->ref_start;
    o.duration_seconds = s->ref_duration;
    o.cancel_flag = run->interrupt;
    o.progress = show_voice_progress;
    const utter_status status =
        s->voice ? utter_voice_load(&run->voice, run->model, s->voice, &o, error, sizeof error)
                 : utter_voice_make_from_file(&run->voice, run->model, s->ref_audio, &o, error, sizeof error);
    progress_clear();
    if (status != UTTER_OK) {
        report_error("%s", error);
        return exit_code_of(status);
    }
    report_findings(run->voice);
    if (s->voice) keep_fitted(run);
    return EXIT_OK;
}

static bool pick_format(const struct settings *s, const char *path, enum sink_format *format)
{
    if (s->raw || s->format) return sink_format_by_name(format, s->raw ? "pcm" : s->format);
    if (strcmp(path, "-") == 0) return sink_format_by_name(format, "pcm");
    if (sink_format_by_path(format, path)) return true;
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) return sink_format_by_name(format, "pcm");
    return false;
}

static utter_status open_sink(struct run *run, const char *path, struct error *e)
{
    enum sink_format format;
    if (!pick_format(&run->s, path, &format))
        return error_set(e, UTTER_INVALID_ARGUMENT,
                         "%s: the name does not say the format (wav, flac, opus, ogg, mp3, pcm); name it so or use "
                         "--format",
                         path);
    struct stat st;
    run->to_stdout = strcmp(path, "-") == 0;
    run->to_pipe = (run->to_stdout ? fstat(STDOUT_FILENO, &st) : stat(path, &st)) == 0 &&
                   (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
    if (run->to_stdout && isatty(STDOUT_FILENO))
        return error_set(e, UTTER_INVALID_ARGUMENT,
                         "standard output is a terminal: sound would garble it; redirect it or name a file with -o");
    if (run->to_stdout && format == SINK_PCM) report_debug("%d Hz s16le mono", 24000);
    return sink_open(&run->outlet.sink, path, format, 24000, run->interrupt, e);
}

static int open_outlet(struct run *run)
{
    const struct settings *s = &run->s;
    struct error e;
    const utter_status opened = s->output ? open_sink(run, s->output, &e) : UTTER_OK;
    if (opened != UTTER_OK) report_error("%s", e.text);
    if (opened != UTTER_OK || (!s->play && (s->output || s->output_dir))) return exit_code_of(opened);
    const utter_status status = player_open(&run->outlet.player, s->play_device, 24000, &e);
    if (status == UTTER_OK) return EXIT_OK;
    report_error("%s%s", e.text, s->play || status == UTTER_UNSUPPORTED ? "" : "; name a file with -o to write one");
    return EXIT_OUTPUT;
}

/* ---- reports ---- */

static json_t *times_json(const struct run *run)
{
    const struct speak_times *t = &run->speaker.times;
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "load", run->load_seconds, "first_sound", t->first_sound,
                     "prompt", t->prompt, "tokens", t->tokens, "sound", t->sound, "total", t->total);
}

static void report_json(const struct run *run)
{
    const struct speak_times *t = &run->speaker.times;
    utter_model_info info = {.struct_size = sizeof info};
    utter_model_get_info(run->model, &info);
    const double seconds = (double)t->n_samples / 24000;
    json_t *j =
        json_pack("{s:s?, s:s, s:s, s:s, s:s, s:I, s:i, s:i, s:I, s:i, s:f, s:b, s:f, s:o}", "output", run->s.output,
                  "model", info.path, "family", info.family, "variant", info.variant, "device", info.device, "seed",
                  (json_int_t)t->seed, "utterances", run->n_utterances, "tokens", t->n_tokens, "samples",
                  (json_int_t)t->n_samples, "sample_rate", 24000, "seconds", seconds, "truncated", (int)t->truncated,
                  "rtf", seconds > 0 ? t->total / seconds : 0.0, "timings", times_json(run));
    FILE *out = run->to_stdout ? stderr : stdout;
    json_dumpf(j, out, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    fputc('\n', out);
    json_decref(j);
}

static void report_times(const struct run *run)
{
    const struct speak_times *t = &run->speaker.times;
    const double seconds = (double)t->n_samples / 24000;
    fprintf(
        stderr,
        "load         %8.3f s\nfirst sound  %8.3f s\nprompt       %8.3f s\ntokens       %8.3f s  %.2f ms each of %d\n"
        "sound        %8.3f s\ntotal        %8.3f s  %.2f of %.2f s of speech\n",
        run->load_seconds, t->first_sound, t->prompt, t->tokens, t->n_tokens ? 1e3 * t->tokens / t->n_tokens : 0.0,
        t->n_tokens, t->sound, t->total, seconds > 0 ? t->total / seconds : 0.0, seconds);
}

/* ---- speaking ---- */

static utter_status nothing_spoken(struct run *run, const char *why)
{
    snprintf(run->speaker.error, sizeof run->speaker.error, "nothing to speak: %s", why);
    return UTTER_NOTHING_TO_SPEAK;
}

/* OK, or the first failure that ends the run. */
static utter_status speak_text(struct run *run, const char *text, size_t n)
{
    if (n == 0) return nothing_spoken(run, "the text is empty");
    utter_request r = make_request(run);
    r.text = text;
    r.text_length = n;
    const utter_status s = speak(&run->speaker, &r);
    if (s != UTTER_OK) return s;
    run->n_utterances++;
    run->s.seed = (int64_t)run->speaker.times.seed; /* a drawn one serves the whole run: it is told once */
    return s;
}

/* For one of several utterances: nothing to speak is a notice, not the end. */
static utter_status speak_one_of_many(struct run *run, const char *text, size_t n)
{
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r')) n--;
    if (n == 0) return UTTER_OK;
    const utter_status s = speak_text(run, text, n);
    if (s != UTTER_NOTHING_TO_SPEAK) return s;
    report_note("nothing to speak in \"%.*s\"", (int)(n < 60 ? n : 60), text);
    run->n_dropped++;
    return UTTER_OK;
}

static utter_status speak_live(struct run *run)
{
    struct error e = {""};
    const struct live_options o = {run->s.input_file, run->s.input_by_line, run->s.input_eof_marker, run->interrupt};
    struct live *live;
    utter_status s = live_open(&live, &o, &e);
    const bool prompts = s == UTTER_OK && strcmp(o.path, "-") == 0 && isatty(STDIN_FILENO);
    while (s == UTTER_OK) {
        const char *text;
        size_t n;
        if (prompts) fputs("> ", stderr);
        s = live_next(live, &text, &n, &e);
        if (s == UTTER_OK) s = speak_one_of_many(run, text, n);
        if (s < 0 && !e.text[0]) snprintf(e.text, sizeof e.text, "%s", run->speaker.error);
    }
    live_close(&live);
    snprintf(run->speaker.error, sizeof run->speaker.error, "%s", e.text);
    return s == UTTER_DONE ? UTTER_OK : s;
}

/* Each line of the text into a file of its own. */
static utter_status speak_lines(struct run *run, const char *text, size_t n)
{
    utter_status s = UTTER_OK;
    int number = 1;
    for (const char *line = text, *end; s == UTTER_OK && line < text + n; line = end + 1, number++) {
        end = memchr(line, '\n', (size_t)(text + n - line));
        if (!end) end = text + n;
        char path[4096];
        struct error e = {""};
        enum sink_format format = SINK_WAV16;
        if (run->s.raw || run->s.format) pick_format(&run->s, run->s.output_dir, &format);
        snprintf(path, sizeof path, "%s/%04d.%s", run->s.output_dir, number, sink_format_extension(format));
        s = open_sink(run, path, &e);
        const int spoken = run->n_utterances;
        if (s == UTTER_OK) s = speak_one_of_many(run, line, (size_t)(end - line));
        if (run->n_utterances == spoken)
            sink_discard(&run->outlet.sink);
        else if (s == UTTER_OK)
            s = sink_finish(&run->outlet.sink, &e);
        if (e.text[0]) snprintf(run->speaker.error, sizeof run->speaker.error, "%s", e.text);
    }
    return s;
}

static utter_status read_text(const struct run *run, const struct words *words, char **text, size_t *n, struct error *e)
{
    if (!run->s.prompt) return input_words(text, n, run->s.file, words, e);
    char *word[] = {(char *)(size_t)run->s.prompt};
    return input_words(text, n, NULL, &(const struct words){word, 1}, e);
}

/* ---- the end ---- */

static int close_outlet(struct run *run, utter_status s)
{
    struct error e = {""};
    const bool reader_left = run->outlet.sink && sink_reader_left(run->outlet.sink);
    int code = reader_left ? EXIT_OK : exit_code_of(s);
    if (s < 0 && !reader_left) report_error("%s", run->speaker.error);
    if (run->outlet.player) {
        if (s == UTTER_OK && player_drain(run->outlet.player, &e) != UTTER_OK) report_warning("%s", e.text);
        if (s == UTTER_CANCELLED)
            report_note("heard %.2f s of %.2f s", (double)player_heard(run->outlet.player) / 24000,
                        (double)run->speaker.times.n_samples / 24000);
        player_close(&run->outlet.player);
    }
    /* What was spoken before a stop is kept, as a whole file. */
    const bool keep = run->outlet.sink && (s == UTTER_OK || s == UTTER_CANCELLED) && sink_samples(run->outlet.sink) > 0;
    if (!keep)
        sink_discard(&run->outlet.sink);
    else {
        const utter_status finished = sink_finish(&run->outlet.sink, &e);
        if (finished != UTTER_OK && finished != UTTER_CANCELLED) report_error("%s", e.text);
        if (finished != UTTER_OK) code = exit_code_of(finished);
    }
    return code;
}

static void report_run(const struct run *run)
{
    const struct speak_times *t = &run->speaker.times;
    if (run->s.json) report_json(run);
    if (run->s.timings) report_times(run);
    if (t->n_samples == 0) return;
    report_note("%s%s%.2f s of speech, seed %llu", run->s.output && !run->to_stdout ? run->s.output : "",
                run->s.output && !run->to_stdout ? ": " : "", (double)t->n_samples / 24000,
                (unsigned long long)t->seed);
}

static int say(struct run *run, const struct words *words)
{
    struct error e = {""};
    char *text = NULL;
    size_t n = 0;
    if (!run->s.input_file) {
        const utter_status s = read_text(run, words, &text, &n, &e);
        if (s != UTTER_OK) {
            report_error("%s", e.text);
            return exit_code_of(s);
        }
    }
    int code = open_outlet(run); /* first: a wrong name should not wait for a model */
    if (code == EXIT_OK) code = open_model(run);
    if (code == EXIT_OK) code = open_voice(run);
    if (code == EXIT_OK) {
        speak_begin(&run->speaker, run->task, &run->outlet, run->interrupt);
        utter_status s = run->s.input_file   ? speak_live(run)
                         : run->s.output_dir ? speak_lines(run, text, n)
                                             : speak_text(run, text, n);
        if (s == UTTER_OK && run->n_utterances == 0) s = nothing_spoken(run, "no sentence in the text");
        code = close_outlet(run, s);
        if (s == UTTER_OK || s == UTTER_CANCELLED) report_run(run);
        if (s == UTTER_OK && run->speaker.times.truncated) {
            report_warning("the token limit ended a sentence before the model did; a larger -n may help");
            code = code == EXIT_OK ? EXIT_FAILED : code;
        }
    }
    sink_discard(&run->outlet.sink); /* still open only when nothing could be spoken */
    player_close(&run->outlet.player);
    utter_task_free(&run->task);
    utter_voice_free(&run->voice);
    utter_model_close(&run->model);
    mem_free(text);
    return code;
}

/* Of texts, voices or outputs that exclude each other, those of the environment give way to the command line's. */
static bool from_environment(const char *text, const char *variable)
{
    return text && text == getenv(variable);
}

static void let_command_line_win(struct settings *s, const struct words *words)
{
    struct {
        const char **text, *variable;
        int group;
    } given[] = {{&s->prompt, "UTTER_PROMPT", 0},         {&s->file, "UTTER_FILE", 0},
                 {&s->input_file, "UTTER_INPUT_FILE", 0}, {&s->voice, "UTTER_VOICE", 1},
                 {&s->ref_audio, "UTTER_REF_AUDIO", 1},   {&s->output, "UTTER_OUTPUT", 2},
                 {&s->output_dir, "UTTER_OUTPUT_DIR", 2}};
    enum { N = sizeof given / sizeof given[0] };
    bool on_command_line[3] = {words->count > 0};
    for (int i = 0; i < N; i++)
        if (*given[i].text && !from_environment(*given[i].text, given[i].variable))
            on_command_line[given[i].group] = true;
    for (int i = 0; i < N; i++)
        if (on_command_line[given[i].group] && from_environment(*given[i].text, given[i].variable))
            *given[i].text = NULL;
}

/* A setting of the environment is a habit: where it has no use it is no mistake. */
static bool check_combinations(const struct settings *s, const struct words *words)
{
    const int sources = (s->prompt != NULL) + (s->file != NULL) + (s->input_file != NULL) + (words->count > 0);
    if (sources > 1)
        report_error("more than one text: use either words, --prompt, --file or --input-file");
    else if (s->voice && s->ref_audio)
        report_error("either --voice or --ref-audio");
    else if (s->output && s->output_dir)
        report_error("either --output or --output-dir");
    else if (s->output_dir && s->input_file)
        report_error("--output-dir cannot follow --input-file");
    else if ((s->input_by_line || s->input_eof_marker) && !s->input_file)
        report_error("--input-by-line and --input-eof-marker need --input-file");
    else if (!s->ref_audio && ((s->ref_start >= 0 && !getenv("UTTER_REF_START")) ||
                               (s->ref_duration > 0 && !getenv("UTTER_REF_DURATION"))))
        report_error("--ref-start and --ref-duration need --ref-audio");
    else if (s->play_device && !s->play && (s->output || s->output_dir) &&
             !from_environment(s->play_device, "UTTER_PLAY_DEVICE"))
        report_error("--play-device needs --play beside --output and --output-dir");
    else
        return true;
    return false;
}

static int run_say(const struct command *self, int argc, char **argv)
{
    struct run run = {.s = {.ref_start = -1,
                            .seed = -1,
                            .pipeline = true,
                            .threads = UNSET_INTEGER,
                            .top_k = UNSET_INTEGER,
                            .max_tokens = UNSET_INTEGER,
                            .cfm_steps = UNSET_INTEGER,
                            .first_chunk_tokens = UNSET_INTEGER,
                            .chunk_tokens = UNSET_INTEGER,
                            .context_tokens = UNSET_INTEGER,
                            .first_prompt_tokens = UNSET_INTEGER,
                            .temperature = UNSET_NUMBER,
                            .top_p = UNSET_NUMBER,
                            .min_p = UNSET_NUMBER,
                            .repeat_penalty = UNSET_NUMBER,
                            .exaggeration = UNSET_NUMBER,
                            .cfg_weight = UNSET_NUMBER,
                            .sentence_silence = UNSET_NUMBER}};
    struct words words;
    int code;
    if (!options_parse(self, &run.s, &words, argc, argv, &code)) return code;
    let_command_line_win(&run.s, &words);
    if (!check_combinations(&run.s, &words)) return EXIT_USAGE;
    run.interrupt = interrupt_flag();
    run.seeded = run.s.seed != -1;
    return say(&run, &words);
}

const struct command command_say = {
    .name = "say",
    .summary = "speak text: to a file, a pipe or the loudspeaker",
    .synopsis = "[TEXT ...]",
    .description = "Speaks the words after the options, or a file, or standard input when there are none. Long text is "
                   "spoken sentence "
                   "by sentence. Without -o and -d the sound is played.",
    .options = options,
    .run = run_say,
};
