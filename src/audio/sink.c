#include "audio/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <sndfile.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audio/pcm.h"
#include "base/mem.h"
#include "base/part_file.h"

/* The head of an Ogg page (RFC 3533): 27 bytes and up to 255 lengths. */
enum { OGG_FIXED_BYTES = 27, OGG_SERIAL = 14, OGG_CHECKSUM = 22, OGG_MAX_LENGTHS = 255 };

/* The common 44-byte header of 16-bit, 24-bit or float wav. */
enum { WAV_HEADER_BYTES = 44, WAV_MARGIN = 4096 };

static const struct {
    const char *name, *alias;
    int format;        /* libsndfile's, for files */
    int stream_format; /* for pipes */
    int bytes;         /* a sample, for wav and pcm */
} formats[SINK_N_FORMATS] = {
    [SINK_WAV16] = {"wav", "wav16", SF_FORMAT_WAV | SF_FORMAT_PCM_16,
                    SF_FORMAT_RAW | SF_FORMAT_PCM_16 | SF_ENDIAN_LITTLE, 2},
    [SINK_WAV24] = {"wav24", "wav24", SF_FORMAT_WAV | SF_FORMAT_PCM_24,
                    SF_FORMAT_RAW | SF_FORMAT_PCM_24 | SF_ENDIAN_LITTLE, 3},
    [SINK_WAV32F] = {"wav32f", "wav32f", SF_FORMAT_WAV | SF_FORMAT_FLOAT,
                     SF_FORMAT_RAW | SF_FORMAT_FLOAT | SF_ENDIAN_LITTLE, 4},
    [SINK_FLAC] = {"flac", "flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 0},
    [SINK_OPUS] = {"opus", "opus", SF_FORMAT_OGG | SF_FORMAT_OPUS, SF_FORMAT_OGG | SF_FORMAT_OPUS, 0},
    [SINK_VORBIS] = {"ogg", "vorbis", SF_FORMAT_OGG | SF_FORMAT_VORBIS, SF_FORMAT_OGG | SF_FORMAT_VORBIS, 0},
    [SINK_MP3] = {"mp3", "mp3", SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III,
                  0},
    [SINK_PCM] = {"pcm", "raw", SF_FORMAT_RAW | SF_FORMAT_PCM_16 | SF_ENDIAN_LITTLE,
                  SF_FORMAT_RAW | SF_FORMAT_PCM_16 | SF_ENDIAN_LITTLE, 2},
};

struct sink {
    int fd;
    bool is_file; /* regular: seekable */
    char *path;
    struct part_file part;
    const signed char *interrupt; /* ends the wait for a reader; may be NULL */
    enum sink_format format;
    SNDFILE *encoder;
    int64_t n_samples;
    sf_count_t position, end; /* where the encoder believes it is, and how much was written */
    int write_errno;          /* the first failed write */
    unsigned char page[OGG_FIXED_BYTES + OGG_MAX_LENGTHS]; /* head of an Ogg page whose body is still to come */
    size_t n_page;
};

/* ---- formats ---- */

const char *sink_format_name(enum sink_format f)
{
    return formats[f].name;
}

const char *sink_format_extension(enum sink_format f)
{
    return f <= SINK_WAV32F ? "wav" : formats[f].name;
}

bool sink_format_by_name(enum sink_format *out, const char *name)
{
    for (int f = 0; f < SINK_N_FORMATS; f++)
        if (strcasecmp(name, formats[f].name) == 0 || strcasecmp(name, formats[f].alias) == 0) {
            *out = (enum sink_format)f;
            return true;
        }
    return false;
}

bool sink_format_by_path(enum sink_format *out, const char *path)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    if (!dot || (slash && dot < slash)) return false;
    if (strcasecmp(dot, ".oga") == 0 || strcasecmp(dot, ".wave") == 0) {
        *out = strcasecmp(dot, ".oga") == 0 ? SINK_VORBIS : SINK_WAV16;
        return true;
    }
    return sink_format_by_name(out, dot + 1);
}

int64_t sink_max_samples(enum sink_format f)
{
    if (f > SINK_WAV32F) return INT64_MAX / 8;
    return ((int64_t)UINT32_MAX - WAV_MARGIN) / formats[f].bytes;
}

/* ---- libsndfile writes through these ---- */

static sf_count_t io_length(void *user)
{
    return ((struct sink *)user)->end;
}
static sf_count_t io_tell(void *user)
{
    const struct sink *s = user;
    return s->position + (sf_count_t)s->n_page;
}
static sf_count_t io_read(void *p, sf_count_t n, void *user)
{
    (void)p, (void)n, (void)user;
    return 0;
}

static sf_count_t io_seek(sf_count_t offset, int whence, void *user)
{
    struct sink *s = user;
    s->position = offset + (whence == SEEK_CUR ? s->position : whence == SEEK_END ? s->end : 0);
    return s->position;
}

static bool interrupted(const struct sink *s)
{
    return s->interrupt && __atomic_load_n(s->interrupt, __ATOMIC_RELAXED);
}

/* To a pipe: a poll that says ready promises room for PIPE_BUF bytes, so that a write of no more does not wait, and a reader that
 * has stalled holds up an interrupt no longer than a poll does. A reader that reads still gets everything. */
static ssize_t write_some(const struct sink *s, const char *p, size_t n)
{
    enum { WAIT_MS = 50 };
    struct pollfd out = {.fd = s->fd, .events = POLLOUT};
    while (poll(&out, 1, WAIT_MS) <= 0)
        if (interrupted(s)) {
            errno = ECANCELED;
            return -1;
        }
    return write(s->fd, p, n < PIPE_BUF ? n : PIPE_BUF);
}

static void write_through(struct sink *s, const void *data, sf_count_t n)
{
    const char *p = data;
    const bool too_late = !s->is_file && s->position < s->end; /* an encoder that corrects its header, on a pipe */
    for (sf_count_t left = too_late ? 0 : n; left > 0 && !s->write_errno;) {
        const ssize_t done =
            s->is_file ? pwrite(s->fd, p, (size_t)left, s->position + n - left) : write_some(s, p, (size_t)left);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) s->write_errno = done < 0 ? errno : ENOSPC;
        if (done <= 0) break;
        p += done;
        left -= done;
    }
    s->position += n;
    if (s->position > s->end) s->end = s->position;
}

static void put_le32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(v >> (8 * i));
}

static uint32_t ogg_checksum(uint32_t sum, const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sum ^= (uint32_t)p[i] << 24;
        for (int bit = 0; bit < 8; bit++) sum = sum << 1 ^ (sum >> 31 ? 0x04C11DB7u : 0);
    }
    return sum;
}

static size_t page_body_bytes(const struct sink *s)
{
    size_t n = 0;
    for (size_t i = OGG_FIXED_BYTES; i < s->n_page; i++) n += s->page[i];
    return n;
}

/* libsndfile draws the serial number of an Ogg stream, and no two files would be the same. It writes a page in two parts, head
 * and body; the head waits here for the body, gets number 1 and the checksum of both. */
static void write_page(struct sink *s, const unsigned char *body, size_t n)
{
    if (page_body_bytes(s) == n) {
        put_le32(s->page + OGG_SERIAL, 1);
        put_le32(s->page + OGG_CHECKSUM, 0);
        put_le32(s->page + OGG_CHECKSUM, ogg_checksum(ogg_checksum(0, s->page, s->n_page), body, n));
    }
    write_through(s, s->page, (sf_count_t)s->n_page);
    write_through(s, body, (sf_count_t)n);
    s->n_page = 0;
}

/* Always tells the encoder that all went well: some of libsndfile's lose memory when a write fails. The failure is kept, and every
 * caller looks at it. */
static sf_count_t io_write(const void *data, sf_count_t n, void *user)
{
    struct sink *s = user;
    const bool ogg = (formats[s->format].format & SF_FORMAT_TYPEMASK) == SF_FORMAT_OGG;
    if (ogg && s->n_page) {
        write_page(s, data, (size_t)n);
    } else if (ogg && n >= OGG_FIXED_BYTES && n <= (sf_count_t)sizeof s->page && memcmp(data, "OggS", 4) == 0) {
        memcpy(s->page, data, (size_t)n);
        s->n_page = (size_t)n;
        if (page_body_bytes(s) == 0) write_page(s, NULL, 0);
    } else {
        write_through(s, data, n);
    }
    return n;
}

/* Players take sizes of 0xFFFFFFFF as "until the stream ends". */
static void write_stream_wav_header(struct sink *s, int sample_rate)
{
    unsigned char h[WAV_HEADER_BYTES] = "RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0";
    const int bytes = formats[s->format].bytes;
    h[20] = s->format == SINK_WAV32F ? 3 : 1; /* IEEE float or PCM */
    h[22] = 1;                                /* channels */
    put_le32(h + 24, (uint32_t)sample_rate);
    put_le32(h + 28, (uint32_t)(sample_rate * bytes));
    h[32] = (unsigned char)bytes;
    h[34] = (unsigned char)(8 * bytes);
    memcpy(h + 36, "data\xff\xff\xff\xff", 8);
    write_through(s, h, sizeof h);
    s->position = s->end = 0; /* the encoder of the samples starts at its own zero */
}

/* ---- life ---- */

static utter_status fail(const struct sink *s, struct error *e)
{
    if (s->write_errno == ECANCELED) return error_set(e, UTTER_CANCELLED, "cancelled");
    const char *why = s->write_errno ? strerror(s->write_errno) : sf_strerror(s->encoder);
    return error_set(e, UTTER_OUTPUT_UNWRITABLE, "%s: %s", s->path, why);
}

static void release(struct sink **sink)
{
    struct sink *s = *sink;
    if (s->encoder) sf_close(s->encoder);
    if (s->fd > STDOUT_FILENO) close(s->fd);
    mem_free(s->path);
    mem_free(s);
    *sink = NULL;
}

/* Opening a named pipe waits for its reader, but not past an interrupt. -1 with errno. */
static int open_fifo(const struct sink *s)
{
    enum { WAIT_MS = 10 };
    int fd;
    while ((fd = open(s->path, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) < 0 && errno == ENXIO) {
        if (interrupted(s)) {
            errno = ECANCELED;
            return -1;
        }
        poll(NULL, 0, WAIT_MS);
    }
    if (fd >= 0) fcntl(fd, F_SETFL, 0);
    return fd;
}

static utter_status open_target(struct sink *s, struct error *e)
{
    struct stat st;
    if (strcmp(s->path, "-") == 0) {
        s->fd = STDOUT_FILENO;
        return UTTER_OK;
    }
    if (stat(s->path, &st) != 0 || S_ISREG(st.st_mode)) {
        s->is_file = true;
        return part_file_create(&s->part, &s->fd, s->path, e);
    }
    s->fd = S_ISFIFO(st.st_mode) ? open_fifo(s) : open(s->path, O_WRONLY | O_CLOEXEC);
    if (s->fd >= 0) return UTTER_OK;
    s->write_errno = errno;
    return fail(s, e);
}

static bool open_encoder(struct sink *s, int sample_rate)
{
    SF_VIRTUAL_IO io = {io_length, io_seek, io_read, io_write, io_tell};
    SF_INFO info = {.samplerate = sample_rate, .channels = 1};
    info.format = s->is_file ? formats[s->format].format : formats[s->format].stream_format;
    if (!s->is_file && s->format <= SINK_WAV32F) write_stream_wav_header(s, sample_rate);
    s->encoder = sf_open_virtual(&io, SFM_WRITE, &info, s);
    if (!s->encoder) return false;
    sf_command(s->encoder, SFC_SET_CLIPPING, NULL, SF_TRUE);
    sf_command(s->encoder, SFC_SET_ADD_PEAK_CHUNK, NULL, SF_FALSE);
    if (s->is_file && s->format <= SINK_WAV32F) sf_command(s->encoder, SFC_SET_UPDATE_HEADER_AUTO, NULL, SF_TRUE);
    return !s->write_errno;
}

utter_status sink_open(struct sink **out, const char *path, enum sink_format format, int sample_rate,
                       const signed char *interrupt, struct error *e)
{
    *out = NULL;
    struct sink *s = mem_calloc(1, sizeof *s);
    if (!s) return error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory to write it", path);
    s->fd = -1;
    s->format = format;
    s->interrupt = interrupt;
    s->path = mem_strdup(path);
    utter_status status =
        s->path ? open_target(s, e) : error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory to write it", path);
    if (status == UTTER_OK && !open_encoder(s, sample_rate)) status = fail(s, e);
    if (status != UTTER_OK) sink_discard(&s);
    *out = s;
    return status;
}

static bool holds_16_bits(const struct sink *s)
{
    return (formats[s->format].format & SF_FORMAT_SUBMASK) == SF_FORMAT_PCM_16;
}

/* Samples of 16 bits are rounded here: libsndfile, told to clip, rounds them all down. */
static bool encode(struct sink *s, const float *samples, size_t n)
{
    if (!holds_16_bits(s))
        return n == 0 || (sf_write_float(s->encoder, samples, (sf_count_t)n) == (sf_count_t)n && !s->write_errno);
    short block[1024];
    for (size_t done = 0; done < n;) {
        const size_t part = n - done < 1024 ? n - done : 1024;
        for (size_t i = 0; i < part; i++) block[i] = pcm_s16(samples[done + i]);
        if (sf_write_short(s->encoder, block, (sf_count_t)part) != (sf_count_t)part || s->write_errno) return false;
        done += part;
    }
    return true;
}

utter_status sink_write(struct sink *s, const float *samples, size_t n, struct error *e)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(samples[i]))
            return error_set(e, UTTER_INVALID_ARGUMENT, "%s: sample %lld is not a finite number", s->path,
                             (long long)s->n_samples + (long long)i);
    if (n > (size_t)(sink_max_samples(s->format) - s->n_samples))
        return error_set(e, UTTER_OUTPUT_UNWRITABLE, "%s: a %s file cannot hold more than %lld samples", s->path,
                         sink_format_name(s->format), (long long)sink_max_samples(s->format));
    if (!encode(s, samples, n)) return fail(s, e);
    s->n_samples += (int64_t)n;
    return UTTER_OK;
}

utter_status sink_finish(struct sink **sink, struct error *e)
{
    struct sink *s = *sink;
    utter_status status = UTTER_OK;
    sf_close(s->encoder); /* writes what the codec held back, and the final header */
    s->encoder = NULL;
    if (s->is_file && !s->write_errno && close(s->fd) != 0) s->write_errno = errno; /* network disks report here */
    if (s->is_file) s->fd = -1;
    if (!s->write_errno && s->is_file && !part_file_finish(&s->part)) s->write_errno = errno;
    if (s->write_errno) status = fail(s, e);
    part_file_discard(&s->part);
    release(sink);
    return status;
}

void sink_discard(struct sink **sink)
{
    if (!*sink) return;
    part_file_discard(&(*sink)->part);
    release(sink);
}

int64_t sink_samples(const struct sink *s)
{
    return s->n_samples;
}
bool sink_reader_left(const struct sink *s)
{
    return s->write_errno == EPIPE;
}
