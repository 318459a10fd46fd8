#include "audio/source.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audio/source_backend.h"
#include "base/mem.h"
#include "base/rng.h"

#define SPOOL_LIMIT ((int64_t)2 << 30)

/* ---- samples in memory ---------------------------------------------------------------------------------------------- */

struct samples {
    const float *data;
    size_t n, at;
};

static long read_samples(struct source *s, float *frames, size_t max_frames)
{
    struct samples *m = s->state;
    const size_t n = m->n - m->at < max_frames ? m->n - m->at : max_frames;
    memcpy(frames, m->data + m->at, n * sizeof *frames);
    m->at += n;
    return (long)n;
}

static bool seek_samples(struct source *s, int64_t frame)
{
    struct samples *m = s->state;
    m->at = frame < (int64_t)m->n ? (size_t)frame : m->n;
    return true;
}

static void close_samples(struct source *s)
{
    mem_free(s->state);
}

static const struct source_backend samples_backend = {NULL, read_samples, seek_samples, close_samples};

/* ---- opening -------------------------------------------------------------------------------------------------------- */

/* Recordings that only FFmpeg reads. */
static const char *const media[] = {"an MP4 or M4A file", "a Matroska or WebM file", "an AMR file"};

static bool is_media(const char *what)
{
    return what == media[0] || what == media[1] || what == media[2];
}

/* What a file that is no recording looks like, so that a message can say it. */
static const char *looks_like(const unsigned char *p, size_t n)
{
    static const struct {
        const char *magic, *what;
        size_t length;
    } known[] = {{"\x89PNG", "a PNG picture", 4},
                 {"\xFF\xD8\xFF", "a JPEG picture", 3},
                 {"GIF8", "a GIF picture", 4},
                 {"%PDF", "a PDF document", 4},
                 {"PK\3\4", "a zip archive", 4},
                 {"\x1F\x8B", "a gzip archive", 2},
                 {"GGUF", "a GGUF model", 4},
                 {"\x7F"
                  "ELF",
                  "a program", 4},
                 {"<!DOCTYPE", "a web page", 9},
                 {"<html", "a web page", 5},
                 {"<?xml", "an XML document", 5},
                 {"{", "JSON text", 1}};
    if (n >= 12 && !memcmp(p + 4, "ftyp", 4)) return media[0];
    if (n >= 4 && !memcmp(p, "\x1A\x45\xDF\xA3", 4)) return media[1];
    if (n >= 5 && !memcmp(p, "#!AMR", 5)) return media[2];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (n >= known[i].length && !memcmp(p, known[i].magic, known[i].length)) return known[i].what;
    size_t text = 0, zeros = 0;
    for (size_t i = 0; i < n; i++) {
        text += (p[i] >= 32 && p[i] < 127) || p[i] == '\n' || p[i] == '\r' || p[i] == '\t';
        zeros += p[i] == 0;
    }
    return text == n ? "text" : zeros == n ? "nothing but zero bytes" : NULL;
}

/* Copies what a pipe gives to a file without a name and puts it in the pipe's place. */
static utter_status spool(struct source *s, struct error *e)
{
    char buffer[1 << 16];
    FILE *file = tmpfile();
    const int fd = file ? dup(fileno(file)) : -1;
    if (file) fclose(file);
    if (fd < 0)
        return error_set(e, UTTER_INPUT_UNREADABLE, "%s: no temporary file for a pipe: %s", s->name, strerror(errno));
    utter_status status = UTTER_OK;
    int64_t total = 0;
    ssize_t got;
    while (status == UTTER_OK && (got = read(s->fd, buffer, sizeof buffer)) != 0) {
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            status = error_set(e, UTTER_INPUT_UNREADABLE, "%s: %s", s->name, strerror(errno));
        else if ((total += got) > SPOOL_LIMIT)
            status = error_set(e, UTTER_INPUT_UNREADABLE, "%s: more than 2 GiB came through the pipe", s->name);
        else if (write(fd, buffer, (size_t)got) != got)
            status = error_set(e, UTTER_INPUT_UNREADABLE, "%s: cannot write the temporary file: %s", s->name,
                               strerror(errno));
    }
    if (s->fd != STDIN_FILENO) close(s->fd);
    s->fd = fd;
    return status;
}

static utter_status open_file(struct source *s, const char *path, struct error *e)
{
    struct stat st;
    s->fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0 || fstat(s->fd, &st) != 0)
        return error_set(e, UTTER_INPUT_UNREADABLE, "%s: %s", s->name, strerror(errno));
    if (S_ISDIR(st.st_mode)) return error_set(e, UTTER_INPUT_UNREADABLE, "%s: a folder, not a recording", s->name);
    if (!S_ISREG(st.st_mode)) {
        const utter_status status = spool(s, e);
        if (status != UTTER_OK || fstat(s->fd, &st) != 0) return status;
    } else if (s->fd == STDIN_FILENO) {
        s->fd = dup(STDIN_FILENO);
    }
    if (st.st_size == 0) return error_set(e, UTTER_INPUT_UNREADABLE, "%s: the file is empty", s->name);
    return UTTER_OK;
}

/* The first decoder that knows the file. */
static utter_status find_backend(struct source *s, struct error *e)
{
    static const struct source_backend *const backends[] = {&source_sndfile, &source_ffmpeg};
    struct error reasons[2] = {{""}, {""}};
    for (int i = 0; i < 2; i++) {
        if (lseek(s->fd, 0, SEEK_SET) != 0) break;
        const utter_status status = backends[i]->open(s, &reasons[i]);
        if (status == UTTER_OK) {
            s->backend = backends[i];
            return UTTER_OK;
        }
        if (status != UTTER_INPUT_UNREADABLE) return error_set(e, status, "%s", reasons[i].text);
    }
    unsigned char head[512];
    const ssize_t n = pread(s->fd, head, sizeof head, 0);
    const char *what = looks_like(head, n > 0 ? (size_t)n : 0);
    const bool ours = n >= 4 && (!memcmp(head, "RIFF", 4) || !memcmp(head, "fLaC", 4) || !memcmp(head, "OggS", 4) ||
                                 !memcmp(head, "FORM", 4));
    if (ours)
        return error_set(e, UTTER_INPUT_UNREADABLE, "%s", reasons[0].text); /* the decoder that knows it says why */
    if (what && source_has_ffmpeg() && is_media(what))
        return error_set(e, UTTER_INPUT_UNREADABLE, "%s: it looks like %s, but it is damaged or cut short", s->name,
                         what);
    if (what && !is_media(what))
        return error_set(e, UTTER_INPUT_UNREADABLE, "%s: not a recording that can be read (it looks like %s)", s->name,
                         what);
    if (what) return error_set(e, UTTER_INPUT_UNREADABLE, "%s, and it looks like %s", reasons[1].text, what);
    return error_set(e, UTTER_INPUT_UNREADABLE, "%s: not a recording of a known format", s->name);
}

static utter_status check_info(const struct source *s, struct error *e)
{
    const struct source_info *i = &s->info;
    if (i->rate_hz < SOURCE_MIN_RATE || i->rate_hz > SOURCE_MAX_RATE)
        return error_set(e, UTTER_INPUT_UNREADABLE, "%s: its sample rate is %d Hz; rates from %d to %d Hz can be used",
                         s->name, i->rate_hz, SOURCE_MIN_RATE, SOURCE_MAX_RATE);
    if (i->n_channels < 1 || i->n_channels > SOURCE_MAX_CHANNELS)
        return error_set(e, UTTER_INPUT_UNREADABLE, "%s: it has %d channels; 1 to %d can be used", s->name,
                         i->n_channels, SOURCE_MAX_CHANNELS);
    if (i->n_frames == 0)
        return error_set(e, UTTER_INPUT_UNREADABLE, "%s: there is no sound in the file (0 samples)", s->name);
    return UTTER_OK;
}

static struct source *source_new(const char *name, struct error *e)
{
    struct source *s = mem_calloc(1, sizeof *s);
    if (s) s->fd = -1;
    if (s && (s->name = mem_strdup(name))) return s;
    mem_free(s);
    error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory", name);
    return NULL;
}

utter_status source_open(struct source **out, const char *path, struct error *e)
{
    *out = NULL;
    struct source *s = source_new(strcmp(path, "-") == 0 ? "standard input" : path, e);
    if (!s) return UTTER_OUT_OF_MEMORY;
    utter_status status = open_file(s, path, e);
    if (status == UTTER_OK) status = find_backend(s, e);
    if (status == UTTER_OK) status = check_info(s, e);
    if (status != UTTER_OK)
        source_close(&s);
    else
        *out = s;
    return status;
}

utter_status source_open_samples(struct source **out, const char *name, const float *samples, size_t n, int rate_hz,
                                 struct error *e)
{
    *out = NULL;
    struct source *s = source_new(name, e);
    if (!s) return UTTER_OUT_OF_MEMORY;
    struct samples *m = mem_alloc(sizeof *m);
    if (!m) {
        source_close(&s);
        return error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory", name);
    }
    *m = (struct samples){samples, n, 0};
    s->state = m;
    s->backend = &samples_backend;
    s->info = (struct source_info){.rate_hz = rate_hz, .n_channels = 1, .n_frames = (int64_t)n, .format = "samples"};
    s->reads_exactly = true;
    const utter_status status = check_info(s, e);
    if (status != UTTER_OK)
        source_close(&s);
    else
        *out = s;
    return status;
}

void source_close(struct source **source)
{
    struct source *s = *source;
    if (!s) return;
    if (s->backend) s->backend->close(s);
    if (s->fd >= 0 && s->fd != STDIN_FILENO) close(s->fd);
    mem_free(s->name);
    mem_free(s);
    *source = NULL;
}

const struct source_info *source_info(const struct source *s)
{
    return &s->info;
}
const char *source_name(const struct source *s)
{
    return s->name;
}

/* ---- reading -------------------------------------------------------------------------------------------------------- */

/* The end came before what the header promised: said once, when it is more than an estimate's error. */
static void note_early_end(struct source *s)
{
    const double missing = (double)(s->info.n_frames - s->position) / s->info.rate_hz;
    const double tolerance = s->reads_exactly ? 0.1 : 0.5 + 0.05 * (double)s->info.n_frames / s->info.rate_hz;
    if (s->info.n_frames < 0 || missing < tolerance || s->info.note[0]) return;
    snprintf(s->info.note, sizeof s->info.note, "the file ends early: %.1f s of %.1f s could be decoded",
             (double)s->position / s->info.rate_hz, (double)s->info.n_frames / s->info.rate_hz);
}

/* Float files may hold anything. Whole numbers of 16 or 24 bits stored as floats are scaled down later; beyond that nothing is sound. */
#define MAX_MAGNITUDE 1e7f

static utter_status refuse_sample(const struct source *s, float sample, size_t frame, size_t channel, struct error *e)
{
    char what[32];
    snprintf(what, sizeof what, "%g", (double)sample);
    return error_set(e, UTTER_INPUT_UNREADABLE,
                     "%s: sample %lld of channel %zu is %s; a recording must be numbers around -1 to 1", s->name,
                     (long long)s->position + (long long)frame, channel + 1,
                     isnan(sample)   ? "not a number"
                     : isinf(sample) ? "infinite"
                                     : what);
}

utter_status source_read(struct source *s, float *frames, size_t max_frames, size_t *n, struct error *e)
{
    const size_t channels = (size_t)s->info.n_channels;
    const long got = s->backend->read(s, frames, max_frames);
    *n = 0;
    if (got < 0)
        return error_set(e, UTTER_INPUT_UNREADABLE, "%s: damaged %.1f s after its start", s->name,
                         (double)s->position / s->info.rate_hz);
    for (size_t i = 0; i < (size_t)got * channels; i++)
        if (!(fabsf(frames[i]) <= MAX_MAGNITUDE)) return refuse_sample(s, frames[i], i / channels, i % channels, e);
    s->position += got;
    if (got == 0) note_early_end(s);
    *n = (size_t)got;
    return UTTER_OK;
}

utter_status source_seek(struct source *s, int64_t frame, struct error *e)
{
    if (!s->backend->seek(s, frame))
        return error_set(e, UTTER_INPUT_UNREADABLE, "%s: cannot go to %.1f s", s->name,
                         (double)frame / s->info.rate_hz);
    s->position = frame;
    return UTTER_OK;
}

uint64_t source_hash(const struct source *s)
{
    unsigned char buffer[1 << 16];
    uint64_t hash = FNV1A64_START;
    if (s->fd < 0) {
        const struct samples *m = s->state;
        return fnv1a64_bytes(hash, m->data, m->n * sizeof *m->data);
    }
    off_t at = 0;
    for (ssize_t got; (got = pread(s->fd, buffer, sizeof buffer, at)) > 0; at += got)
        hash = fnv1a64_bytes(hash, buffer, (size_t)got);
    return hash;
}
