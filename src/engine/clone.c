/* Voices for a model: made of a recording, loaded, fitted to the way a model listens, saved. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "audio/clip.h"
#include "base/mem.h"
#include "chatterbox/voice_file.h"
#include "engine/abi.h"
#include "engine/locate.h"
#include "engine/model.h"
#include "engine/voice.h"

/* ---- the networks that listen, bound when they are first needed --------------------------------------------------------- */

struct clone_room {
    pthread_mutex_t lock; /* guards the rest until `listeners` is set */
    struct listeners *listeners;
    struct binder_owned *owned;
};

utter_status clone_room_create(struct clone_room **out, struct error *e)
{
    struct clone_room *r = *out = mem_calloc(1, sizeof *r);
    if (!r) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a model");
    pthread_mutex_init(&r->lock, NULL);
    return UTTER_OK;
}

void clone_room_free(struct clone_room **room)
{
    struct clone_room *r = *room;
    if (!r) return;
    listeners_free(&r->listeners);
    binder_free_owned(&r->owned);
    pthread_mutex_destroy(&r->lock);
    mem_free(r);
    *room = NULL;
}

static utter_status refuse_clone(const struct utter_model *m, struct error *e)
{
    return error_set(e, UTTER_CANNOT_CLONE,
                     "%s: this model has one voice of its own and cannot take others; Chatterbox Turbo and Nano can "
                     "(name one with -m)",
                     m->path);
}

static utter_status get_listeners(const struct listeners **out, const struct utter_model *m, struct cancel *cancel,
                                  struct error *e)
{
    if (!checkpoint_can_clone(m->checkpoint)) return refuse_clone(m, e);
    struct clone_room *r = m->clone_room;
    utter_status status = UTTER_OK;
    pthread_mutex_lock(&r->lock);
    if (!r->listeners) {
        struct binder b = {.checkpoint = m->checkpoint, .device = m->device, .error = e, .cancel = cancel};
        status = listeners_load(&r->listeners, &b);
        if (status == UTTER_OK)
            r->owned = b.owned;
        else
            binder_free_owned(&b.owned);
    }
    *out = r->listeners;
    pthread_mutex_unlock(&r->lock);
    return status;
}

/* ---- making -------------------------------------------------------------------------------------------------------------- */

/* One call of the API: its options, its cancel token, what it makes. */
struct making {
    utter_model *model;
    utter_voice_options options;
    struct cancel cancel;
    struct error error;
    struct utter_voice *voice;
};

void utter_voice_options_init_sized(utter_voice_options *o, size_t size)
{
    const utter_voice_options defaults = {.start_seconds = -1};
    abi_init(o, size, &defaults, sizeof defaults);
}

static utter_status begin(struct making *k, utter_voice **out, utter_model *model, const utter_voice_options *options)
{
    *k = (struct making){.model = model};
    if (!out) return UTTER_INVALID_ARGUMENT;
    *out = NULL;
    if (!model) return error_set(&k->error, UTTER_INVALID_ARGUMENT, "a voice is made for a model, and there is none");
    utter_voice_options_init(&k->options);
    utter_status s = options ? abi_read(&k->options, sizeof k->options, options, "voice options", &k->error) : UTTER_OK;
    const utter_voice_options *o = &k->options;
    if (s == UTTER_OK && !(o->start_seconds < 1e9 && o->start_seconds > -1e9))
        s = error_set(&k->error, UTTER_INVALID_ARGUMENT, "start_seconds: %g is no time", o->start_seconds);
    if (s == UTTER_OK &&
        !(o->duration_seconds == 0 || (o->duration_seconds >= CLIP_MIN_S && o->duration_seconds < 1e9)))
        s = error_set(&k->error, UTTER_INVALID_ARGUMENT, "duration_seconds: %g; a voice needs at least %.0f",
                      o->duration_seconds, CLIP_MIN_S);
    cancel_attach_flag(&k->cancel, o->cancel_flag);
    if (s == UTTER_OK) s = voice_create(&k->voice, model, &k->error);
    if (s == UTTER_OK && !(k->voice->record = mem_calloc(1, sizeof *k->voice->record)))
        s = error_set(&k->error, UTTER_OUT_OF_MEMORY, "no memory for a voice");
    return s;
}

static utter_status finish(struct making *k, utter_voice **out, utter_status status, char *error, size_t error_size)
{
    if (status != UTTER_OK) utter_voice_free(&k->voice);
    if (error && error_size) snprintf(error, error_size, "%s", status == UTTER_OK ? "" : k->error.text);
    if (out) *out = k->voice;
    return status;
}

static void tell(struct making *k, double share, const char *what)
{
    if (k->options.progress) k->options.progress(share, what, k->options.progress_user);
}

static void tell_reading(void *user, double share)
{
    tell(user, 0.3 * share, "reading");
}
static void tell_listening(void *user, double share)
{
    tell(user, 0.3 + 0.7 * share, "listening");
}

/* The model's set of conditionals, from samples. */
static utter_status hear(struct making *k, const float *samples, size_t n)
{
    const struct listeners *listeners = NULL;
    struct stream *s = NULL;
    const struct listen_options o = {
        .rules = voice_rules_of(k->model->variant), .progress = tell_listening, .user = k, .cancel = &k->cancel};
    struct conds *c = &k->voice->record->conds[o.rules];
    utter_status status = get_listeners(&listeners, k->model, &k->cancel, &k->error);
    if (status == UTTER_OK) status = stream_create(&s, k->model->device, &k->cancel, 0, &k->error);
    if (status == UTTER_OK) {
        conds_free(c);
        status = listen(c, listeners, s, samples, n, &o, &k->error);
    }
    if (status == UTTER_OK) k->voice->record->notes.networks = listeners_fingerprint(k->model->checkpoint);
    stream_destroy(&s);
    return status;
}

static utter_status note(char **to, const char *text, struct error *e)
{
    if (!text || !text[0]) return UTTER_OK;
    *to = mem_strdup(text);
    return *to ? UTTER_OK : error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a voice's notes");
}

static utter_status write_notes(struct making *k, const struct source *source)
{
    struct voice_notes *n = &k->voice->record->notes;
    const char *file = source_name(source), *slash = strrchr(file, '/');
    utter_status s = note(&n->name, k->options.name, &k->error);
    if (s == UTTER_OK) s = note(&n->transcript, k->options.transcript, &k->error);
    if (s == UTTER_OK) s = note(&n->license, k->options.license, &k->error);
    if (s == UTTER_OK) s = note(&n->consent, k->options.consent, &k->error);
    if (s == UTTER_OK) s = note(&n->source, slash ? slash + 1 : file, &k->error);
    n->source_hash = source_hash(source);
    n->source_s = k->voice->report->recording_s > 0 ? k->voice->report->recording_s : k->voice->report->duration_s;
    return s;
}

/* Takes the source over. */
static utter_status make(struct making *k, struct source *source)
{
    struct clip clip = {0};
    const struct clip_options o = {.start_s = k->options.start_seconds,
                                   .duration_s = k->options.duration_seconds,
                                   .raw = k->options.raw,
                                   .cancel = &k->cancel,
                                   .progress = tell_reading,
                                   .user = k};
    struct utter_voice *v = k->voice;
    utter_status s = checkpoint_can_clone(k->model->checkpoint) ? UTTER_OK : refuse_clone(k->model, &k->error);
    if (s == UTTER_OK && !(v->report = mem_alloc(sizeof *v->report)))
        s = error_set(&k->error, UTTER_OUT_OF_MEMORY, "no memory for a voice");
    if (s == UTTER_OK) s = clip_make(&clip, source, &o, &k->error);
    if (s == UTTER_OK) {
        *v->report = clip.report;
        s = write_notes(k, source);
    }
    if (s == UTTER_OK) s = hear(k, clip.samples, clip.n_samples);
    if (s == UTTER_OK) s = conds_copy(&v->conds, voice_conds(v->record, voice_rules_of(k->model->variant)), &k->error);
    if (s == UTTER_OK && k->options.keep_audio) {
        v->record->clip = clip.samples;
        v->record->n_clip = clip.n_samples;
        clip.samples = NULL;
    }
    clip_free(&clip);
    source_close(&source);
    return s;
}

utter_status utter_voice_make(utter_voice **out, utter_model *model, const float *samples, size_t n_samples,
                              int32_t sample_rate, const utter_voice_options *options, char *error, size_t error_size)
{
    struct making k;
    struct source *source = NULL;
    utter_status s = begin(&k, out, model, options);
    if (s == UTTER_OK && !samples && n_samples > 0) s = error_set(&k.error, UTTER_INVALID_ARGUMENT, "samples is NULL");
    if (s == UTTER_OK) s = source_open_samples(&source, "samples", samples, n_samples, sample_rate, &k.error);
    if (s == UTTER_OK) s = make(&k, source);
    return finish(&k, out, s, error, error_size);
}

utter_status utter_voice_make_from_file(utter_voice **out, utter_model *model, const char *path,
                                        const utter_voice_options *options, char *error, size_t error_size)
{
    struct making k;
    struct source *source = NULL;
    utter_status s = begin(&k, out, model, options);
    if (s == UTTER_OK && !path) s = error_set(&k.error, UTTER_INVALID_ARGUMENT, "path is NULL");
    if (s == UTTER_OK) s = source_open(&source, path, &k.error);
    if (s == UTTER_OK) s = make(&k, source);
    return finish(&k, out, s, error, error_size);
}

/* ---- loading ---------------------------------------------------------------------------------------------------------------- */

/* The set for the model: there, or made of the kept clip. */
static utter_status fit(struct making *k, const char *path)
{
    struct voice *v = k->voice->record;
    const struct utter_model *m = k->model;
    const enum voice_rules rules = voice_rules_of(m->variant);
    const uint64_t networks = listeners_fingerprint(m->checkpoint);
    const bool other_networks = v->notes.networks && networks != v->notes.networks;
    /* A model that cannot clone takes what is known to be its own, and what says that it fits any. */
    if (!v->fits_any && !checkpoint_can_clone(m->checkpoint) && (!v->notes.networks || other_networks))
        return refuse_clone(m, &k->error);
    if (voice_conds(v, rules) && !other_networks) return UTTER_OK;
    if (!v->clip)
        return error_set(&k->error, UTTER_VOICE_UNUSABLE,
                         other_networks
                             ? "%s: this voice was made with another model, whose speech tokens mean something else; "
                               "make it again from the "
                               "recording with this model (keeping the audio in the voice file would have avoided that)"
                             : "%s: this voice was made for models that listen in another way than %s does; make it "
                               "again from the recording "
                               "with this model (keeping the audio in the voice file would have avoided that)",
                         path, m->variant);
    k->voice->fitted = true;
    if (other_networks) /* what the other networks heard is of no use to these */
        for (int i = 0; i < VOICE_N_RULES; i++) conds_free(&v->conds[i]);
    return hear(k, v->clip, v->n_clip);
}

utter_status utter_voice_load(utter_voice **out, utter_model *model, const char *path,
                              const utter_voice_options *options, char *error, size_t error_size)
{
    struct making k;
    char *located = NULL;
    utter_status s = begin(&k, out, model, options);
    if (s == UTTER_OK && !path) s = error_set(&k.error, UTTER_INVALID_ARGUMENT, "path is NULL");
    if (s == UTTER_OK) s = locate_voice(&located, path, &k.error);
    if (s == UTTER_OK) s = voice_load(k.voice->record, located, &k.error);
    if (s == UTTER_OK) s = fit(&k, located);
    if (s == UTTER_OK)
        s = conds_copy(&k.voice->conds, voice_conds(k.voice->record, voice_rules_of(model->variant)), &k.error);
    mem_free(located);
    return finish(&k, out, s, error, error_size);
}

/* ---- the rest ----------------------------------------------------------------------------------------------------------------- */

utter_status utter_voice_save(const utter_voice *v, const char *path, char *error, size_t error_size)
{
    struct error e = {""};
    utter_status s = v && path && v->record
                         ? voice_save(v->record, path, &e)
                         : error_set(&e, UTTER_INVALID_ARGUMENT, "nothing to save: no voice, or no path");
    if (error && error_size) snprintf(error, error_size, "%s", e.text);
    return s;
}

utter_status utter_voice_get_info(const utter_voice *v, utter_voice_info *info)
{
    if (!v || !info) return UTTER_INVALID_ARGUMENT;
    utter_voice_info known = {
        .struct_size = sizeof known, .fitted = v->fitted, .prompt_seconds = v->conds.n_prompt_tokens / 25.0};
    if (v->record) {
        const struct voice_notes *n = &v->record->notes;
        known.keeps_audio = v->record->clip != NULL;
        known.source_seconds = n->source_s;
        known.source_hash = n->source_hash;
        known.name = n->name;
        known.transcript = n->transcript;
        known.license = n->license;
        known.consent = n->consent;
        known.source = n->source;
    }
    return abi_write(info, &known, sizeof known) ? UTTER_OK : UTTER_INVALID_ARGUMENT;
}

const char *utter_voice_finding(const utter_voice *v, size_t index, int32_t *warning)
{
    if (!v || !v->report || index >= (size_t)v->report->n_findings) return NULL;
    if (warning) *warning = v->report->finding[index].warning;
    return v->report->finding[index].text;
}
