/*
 * voice.c - `utter voice`: making, listing, showing, checking and baking voices.
 */
#include "cli/cli.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "audio/clip.h"
#include "base/mem.h"
#include "chatterbox/voice_file.h"
#include "engine/locate.h"
#include "engine/voice.h"

struct settings {
    const char *model, *s3gen, *output, *npy, *name, *transcript, *license, *consent, *cpu;
    double start, duration;
    int64_t threads;
    bool raw, keep_audio, json;
};

#define AT(field) offsetof(struct settings, field)
static const struct option options[] = {
    {.type = OPTION_HEADING, .help = "The recording (make, check)"},
    {"--start", "SECONDS", OPTION_NUMBER, AT(start), 0, 1e8,
     .help = "Use the part that begins here. Default: the best part is chosen."},
    {"--duration", "SECONDS", OPTION_NUMBER, AT(duration), 1, 1e8,
     .help = "Use this much of it. Default: 15 s of a chosen part, else up to 60 s."},
    {"--ref-raw | --raw", NULL, OPTION_SWITCH, AT(raw),
     .help = "Use it as it is: no filters, de-noising or equaliser."},

    {.type = OPTION_HEADING, .help = "The voice (make)"},
    {"-o, --output", "FILE", OPTION_TEXT, AT(output),
     .help = "The voice file to write; with bake the model. Default: NAME.voice in the folder that `utter voice list` "
             "shows."},
    {"--npy", "DIR", OPTION_TEXT, AT(npy), .help = "Write the five .npy files of the ggml port into a folder."},
    {"--name", "TEXT", OPTION_TEXT, AT(name), .help = "What the voice is called. Default: as the recording."},
    {"--transcript", "TEXT", OPTION_TEXT, AT(transcript), .help = "What is said in the recording; kept as a note."},
    {"--license", "TEXT", OPTION_TEXT, AT(license), .help = "The licence of the recording; kept as a note."},
    {"--consent", "TEXT", OPTION_TEXT, AT(consent), .help = "How the speaker agreed; kept as a note."},
    {"--keep-audio", NULL, OPTION_SWITCH, AT(keep_audio),
     .help = "Keep the chosen seconds in the voice file, so that it can be fitted to other models later."},

    {.type = OPTION_HEADING, .help = "Model"},
    {"-m, --model", "MODEL", OPTION_TEXT, AT(model),
     .help = "The model that the voice is for: a published folder, a GGUF file, or a name."},
    {"--s3gen | --s3gen-gguf, --codec", "FILE", OPTION_TEXT, AT(s3gen),
     .help = "The second file of a model when it is not beside the first."},
    {"-t, --threads", "N", OPTION_INTEGER, AT(threads), 1, 256,
     .help = "Threads; the voice does not depend on it. Default: one a core."},
    {"--cpu", "auto|scalar|avx2|avx512|neon", OPTION_CHOICE, AT(cpu),
     .help = "Which instructions to use. Default: the best there are."},
    {"--json", NULL, OPTION_SWITCH, AT(json), .help = "list, show, check: print JSON."},
    {0}};

static int fail(utter_status s, const char *message)
{
    progress_clear();
    report_error("%s", message);
    return exit_code_of(s);
}

/* "alice" of "recordings/alice.m4a"; freed with mem_free. */
static char *stem(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *name = mem_strdup(slash ? slash + 1 : path);
    char *dot = name ? strrchr(name, '.') : NULL;
    if (dot && dot != name) *dot = 0;
    return name;
}

static void print_json(json_t *j)
{
    json_dumpf(j, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(j);
}

/* ---- make -------------------------------------------------------------------------------------------------------------- */

static void log_line(int level, const char *line, void *user)
{
    (void)user;
    if (level == UTTER_LOG_WARNING)
        report_warning("%s", line);
    else
        report_debug("%s", line);
}

static utter_status open_model(utter_model **out, const char *path, const struct settings *s, char *error, size_t size)
{
    utter_model_options o;
    utter_model_options_init(&o);
    o.n_threads = (int32_t)s->threads;
    o.cpu_level = s->cpu;
    o.s3gen_path = s->s3gen;
    o.cancel_flag = interrupt_flag();
    o.log = log_line;
    return utter_model_open(out, path, &o, error, size);
}

static void show_progress(double share, const char *what, void *user)
{
    (void)user;
    progress_show(share, "%s", what);
}

static void report_findings(const utter_voice *v)
{
    int32_t warning;
    const char *text;
    for (size_t i = 0; (text = utter_voice_finding(v, i, &warning)); i++) {
        if (warning)
            report_warning("%s", text);
        else
            report_note("%s", text);
    }
}

/* to: the voice file, or NULL for .npy files alone. */
static utter_status save(const utter_voice *v, const struct settings *s, const char *to, char *error, size_t size)
{
    struct error e = {""};
    utter_status status = UTTER_OK;
    if (s->npy) status = voice_save_npy(&v->conds, s->npy, &e);
    if (status != UTTER_OK) snprintf(error, size, "%s", e.text);
    if (status == UTTER_OK && to) status = utter_voice_save(v, to, error, size);
    if (status == UTTER_OK) {
        utter_voice_info info = {.struct_size = sizeof info};
        utter_voice_get_info(v, &info);
        report_note("%s: a voice of %.1f s of %s%s", to ? to : s->npy, v->report->duration_s, info.source,
                    info.keeps_audio ? ", audio kept" : "");
    }
    return status;
}

static int make(const struct settings *s, const struct words *w)
{
    if (w->count != 2) {
        report_error("voice make takes one recording: utter voice make RECORDING [-o FILE] [-m MODEL]");
        return EXIT_USAGE;
    }
    if (s->output && !output_allowed(s->output, w->word[1])) return EXIT_USAGE;
    char error[512] = "", *name = s->name ? mem_strdup(s->name) : stem(w->word[1]);
    utter_model *model = NULL;
    utter_voice *voice = NULL;
    utter_voice_options o;
    utter_voice_options_init(&o);
    o.raw = s->raw;
    o.keep_audio = s->keep_audio;
    o.start_seconds = s->start;
    o.duration_seconds = s->duration;
    o.name = name;
    o.transcript = s->transcript;
    o.license = s->license;
    o.consent = s->consent;
    o.cancel_flag = interrupt_flag();
    o.progress = show_progress;
    struct error e = {""};
    char *path = NULL;
    utter_status status = name ? UTTER_OK : UTTER_OUT_OF_MEMORY;
    if (name && !s->output && !s->npy && (status = locate_new_voice(&path, name, &e)) != UTTER_OK)
        snprintf(error, sizeof error, "%s", e.text); /* before the work: a name that cannot be */
    if (status == UTTER_OK) status = open_model(&model, s->model, s, error, sizeof error);
    if (status == UTTER_OK) status = utter_voice_make_from_file(&voice, model, w->word[1], &o, error, sizeof error);
    progress_clear();
    if (status == UTTER_OK) {
        report_findings(voice);
        status = save(voice, s, s->output ? s->output : path, error, sizeof error);
    }
    utter_voice_free(&voice);
    utter_model_close(&model);
    mem_free(path);
    mem_free(name);
    return status == UTTER_OK ? EXIT_OK : fail(status, error);
}

/* ---- list, show ---------------------------------------------------------------------------------------------------------- */

static int list(const struct settings *s, const struct words *w)
{
    if (w->count != 1) {
        report_error("voice list takes no argument: %s", w->word[1]);
        return EXIT_USAGE;
    }
    struct located_models all;
    struct error e;
    const utter_status status = locate_voices(&all, &e);
    if (status != UTTER_OK) return fail(status, e.text);
    json_t *j = json_array();
    for (size_t i = 0; i < all.count; i++) {
        if (s->json)
            json_array_append_new(j, json_pack("{s:s, s:s}", "name", all.models[i].name, "path", all.models[i].path));
        else
            printf("%-20s %s\n", all.models[i].name, all.models[i].path);
    }
    if (s->json)
        print_json(j);
    else
        json_decref(j);
    if (all.count == 0) report_note("no voices yet: utter voice make RECORDING --name NAME makes one");
    located_models_free(&all);
    return EXIT_OK;
}

static json_t *conds_json(const struct conds *c)
{
    return json_pack("{s:i, s:i, s:i, s:f}", "t3_prompt_tokens", c->n_t3_tokens, "prompt_tokens", c->n_prompt_tokens,
                     "prompt_mel_frames", c->n_prompt_frames, "emotion", (double)c->emotion);
}

static void show_json(const struct voice *v, const char *path)
{
    const struct voice_notes *n = &v->notes;
    char hash[17] = "";
    if (n->source_hash) snprintf(hash, sizeof hash, "%016" PRIx64, n->source_hash);
    json_t *sets = json_object();
    for (int r = 0; r < VOICE_N_RULES; r++)
        if (v->conds[r].n_prompt_tokens > 0)
            json_object_set_new(sets, v->fits_any ? "any" : voice_rules_name((enum voice_rules)r),
                                conds_json(&v->conds[r]));
    print_json(json_pack("{s:s, s:s?, s:s?, s:s?, s:s?, s:s?, s:s, s:f, s:f, s:o}", "path", path, "name", n->name,
                         "transcript", n->transcript, "license", n->license, "consent", n->consent, "source", n->source,
                         "source_hash", hash, "source_seconds", n->source_s, "audio_seconds",
                         (double)v->n_clip / VOICE_RATE, "fits", sets));
}

static void show_text(const struct voice *v, const char *path)
{
    const struct voice_notes *n = &v->notes;
    const struct {
        const char *what, *text;
    } texts[] = {{"name", n->name},
                 {"transcript", n->transcript},
                 {"licence", n->license},
                 {"consent", n->consent},
                 {"recording", n->source}};
    printf("%-12s %s\n", "file", path);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].text) printf("%-12s %s\n", texts[i].what, texts[i].text);
    if (n->source_s > 0) printf("%-12s %.1f s, hash %016" PRIx64 "\n", "", n->source_s, n->source_hash);
    for (int r = 0; r < VOICE_N_RULES; r++) {
        const struct conds *c = &v->conds[r];
        if (c->n_prompt_tokens == 0) continue;
        printf("%-12s %s: T3 prompt %d tokens (%.1f s), flow prompt %d tokens, %d frames (%.1f s)\n", "fits",
               v->fits_any        ? "any Chatterbox model"
               : r == VOICE_TURBO ? "Turbo and Nano"
                                  : "English and Multilingual",
               c->n_t3_tokens, c->n_t3_tokens / 25.0, c->n_prompt_tokens, c->n_prompt_frames,
               c->n_prompt_frames / 50.0);
    }
    if (v->clip)
        printf("%-12s kept, %.1f s: it can be fitted to every model that clones\n", "audio",
               (double)v->n_clip / VOICE_RATE);
}

static int show(const struct settings *s, const struct words *w)
{
    if (w->count != 2) {
        report_error("voice show takes one voice: utter voice show NAME|FILE");
        return EXIT_USAGE;
    }
    struct voice v;
    struct error e;
    char *path = NULL;
    utter_status status = locate_voice(&path, w->word[1], &e);
    if (status == UTTER_OK) status = voice_load(&v, path, &e);
    if (status == UTTER_OK) {
        if (s->json)
            show_json(&v, path);
        else
            show_text(&v, path);
        voice_free(&v);
    }
    mem_free(path);
    return status == UTTER_OK ? EXIT_OK : fail(status, e.text);
}

/* ---- check --------------------------------------------------------------------------------------------------------------- */

static json_t *report_json(const struct clip_report *r)
{
    const struct measures *m = &r->measures;
    json_t *spans = json_array(), *findings = json_array();
    for (int i = 0; i < r->n_spans; i++)
        json_array_append_new(spans,
                              json_pack("{s:f, s:f}", "start", r->span[i].start_s, "duration", r->span[i].duration_s));
    for (int i = 0; i < r->n_findings; i++)
        json_array_append_new(
            findings, json_pack("{s:b, s:s}", "warning", (int)r->finding[i].warning, "text", r->finding[i].text));
    const bool silent_floor = m->noise_floor_dbfs <= (double)LEVEL_NOTHING;
    return json_pack(
        "{s:s, s:i, s:i, s:f, s:f, s:o, s:f, s:f, s:f, s:f, s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:b, s:o}",
        "format", r->source.format, "sample_rate", r->source.rate_hz, "channels", r->source.n_channels,
        "recording_seconds", r->recording_s, "speech_seconds", r->speech_s, "parts", spans, "clip_seconds",
        r->duration_s, "loudness_lufs", m->level_lufs, "peak_dbfs", m->peak_dbfs, "clipped_share", r->clipped_share,
        "noise_floor_dbfs", silent_floor ? json_null() : json_real(m->noise_floor_dbfs), "snr_db", m->snr_db,
        "silence_share", m->silence_share, "bandwidth_hz", m->bandwidth_hz, "hum_hz", m->hum_hz, "hum_db", m->hum_db,
        "pitch_hz", m->pitch_hz, "second_pitch_hz", m->other_pitch_hz, "like_music", (int)m->like_music, "findings",
        findings);
}

static void report_text(const struct clip_report *r)
{
    const struct measures *m = &r->measures;
    printf("%-14s %s, %d Hz, %d channel%s\n", "recording", r->source.format, r->source.rate_hz, r->source.n_channels,
           r->source.n_channels == 1 ? "" : "s");
    if (r->recording_s >= 0) printf("%-14s %.1f s, of which %.1f s speech\n", "length", r->recording_s, r->speech_s);
    for (int i = 0; i < r->n_spans; i++)
        printf("%-14s from %.1f s on, %.1f s\n", i ? "" : "clip", r->span[i].start_s, r->span[i].duration_s);
    printf("%-14s %.1f LUFS, peak %.1f dBFS, %.2f %% clipped\n", "level", m->level_lufs, m->peak_dbfs,
           100 * r->clipped_share);
    if (m->noise_floor_dbfs > (double)LEVEL_NOTHING)
        printf("%-14s %.0f dBFS, speech %.0f dB above it\n", "noise", m->noise_floor_dbfs, m->snr_db);
    else
        printf("%-14s none: the pauses are digital silence\n", "noise");
    printf("%-14s up to %.1f kHz\n", "bandwidth", m->bandwidth_hz / 1000);
    if (m->hum_hz > 0) printf("%-14s %.0f Hz, %.0f dB\n", "hum", m->hum_hz, m->hum_db);
    printf("%-14s %.0f %%\n", "silence", 100 * m->silence_share);
    if (m->pitch_hz > 0) printf("%-14s %.0f Hz\n", "pitch", m->pitch_hz);
    for (int i = 0; i < r->n_findings; i++)
        printf("%-14s %s\n", r->finding[i].warning ? "warning" : "note", r->finding[i].text);
    if (r->n_findings == 0) printf("%-14s nothing to complain about\n", "note");
}

static int check(const struct settings *s, const struct words *w)
{
    if (w->count != 2) {
        report_error("voice check takes one recording: utter voice check RECORDING");
        return EXIT_USAGE;
    }
    struct source *source = NULL;
    struct clip clip = {0};
    struct error e;
    struct cancel cancel = {0};
    cancel_attach_flag(&cancel, interrupt_flag());
    const struct clip_options o = {.start_s = s->start, .duration_s = s->duration, .raw = true, .cancel = &cancel};
    utter_status status = source_open(&source, w->word[1], &e);
    if (status == UTTER_OK) status = clip_make(&clip, source, &o, &e);
    if (status == UTTER_OK) {
        if (s->json)
            print_json(report_json(&clip.report));
        else
            report_text(&clip.report);
    }
    clip_free(&clip);
    source_close(&source);
    return status == UTTER_OK ? EXIT_OK : fail(status, e.text);
}

/* ---- bake ---------------------------------------------------------------------------------------------------------------- */

static int bake(const struct settings *s, const struct words *w)
{
    if (w->count != 3 || !s->output) {
        report_error("voice bake takes a model, a voice and -o: utter voice bake MODEL VOICE -o MODEL2");
        return EXIT_USAGE;
    }
    if (!output_allowed(s->output, w->word[1]) || !output_allowed(s->output, w->word[2])) return EXIT_USAGE;
    char error[512] = "";
    struct error e = {""};
    utter_model *model = NULL;
    utter_voice *voice = NULL;
    utter_voice_options o;
    utter_voice_options_init(&o);
    o.cancel_flag = interrupt_flag();
    o.progress = show_progress;
    struct checkpoint *ck = NULL;
    utter_status status = open_model(&model, w->word[1], s, error, sizeof error);
    if (status == UTTER_OK) status = utter_voice_load(&voice, model, w->word[2], &o, error, sizeof error);
    progress_clear();
    if (status == UTTER_OK) {
        utter_model_info info = {.struct_size = sizeof info};
        utter_model_get_info(model, &info);
        char *name = voice->record->notes.name ? mem_strdup(voice->record->notes.name) : stem(w->word[2]);
        status = name ? checkpoint_open(&ck, info.path, NULL, NULL, &e) : UTTER_OUT_OF_MEMORY;
        if (status == UTTER_OK) status = voice_bake(ck, &voice->conds, name, s->output, &e);
        if (status != UTTER_OK) snprintf(error, sizeof error, "%s", e.text);
        if (status == UTTER_OK) report_note("%s: %s with the voice %s built in", s->output, info.path, name);
        mem_free(name);
    }
    checkpoint_close(&ck);
    utter_voice_free(&voice);
    utter_model_close(&model);
    return status == UTTER_OK ? EXIT_OK : fail(status, error);
}

/* ---- the command --------------------------------------------------------------------------------------------------------- */

static int run(const struct command *self, int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const struct settings *s, const struct words *w);
    } verbs[] = {{"make", make}, {"list", list}, {"show", show}, {"check", check}, {"bake", bake}};
    struct settings s = {.start = -1};
    struct words w;
    int code;
    if (!options_parse(self, &s, &w, argc, argv, &code)) return code;
    for (size_t i = 0; w.count > 0 && i < sizeof verbs / sizeof *verbs; i++)
        if (!strcmp(w.word[0], verbs[i].name)) return verbs[i].run(&s, &w);
    report_error("%s%s; utter voice make|list|show|check|bake, see utter voice --help",
                 w.count ? "voice has no command " : "voice needs a command", w.count ? w.word[0] : "");
    return EXIT_USAGE;
}

const struct command command_voice = {
    .name = "voice",
    .summary = "make a voice of a recording, and look after voices",
    .synopsis = "make RECORDING | list | show VOICE | check RECORDING | bake MODEL VOICE",
    .description =
        "make   makes a voice file of a recording (any format, \"-\" is standard input); utter say -v speaks with it.\n"
        "list   lists the voices that can be named without a path.\n"
        "show   tells what is in a voice file, a conds.pt or a folder of .npy files.\n"
        "check  only reports what a recording is like and what that means for a voice made of it.\n"
        "bake   writes a copy of a model file whose built-in voice is this one.",
    .options = options,
    .run = run,
};
