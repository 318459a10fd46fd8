#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sndfile.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audio/source_backend.h"

static const char *major_name(int format)
{
    switch (format & SF_FORMAT_TYPEMASK) {
    case SF_FORMAT_WAV:
    case SF_FORMAT_WAVEX:
        return "wav";
    case SF_FORMAT_RF64:
        return "rf64 wav";
    case SF_FORMAT_W64:
        return "w64";
    case SF_FORMAT_AIFF:
        return "aiff";
    case SF_FORMAT_AU:
        return "au";
    case SF_FORMAT_CAF:
        return "caf";
    case SF_FORMAT_FLAC:
        return "flac";
    case SF_FORMAT_OGG:
        return "ogg";
    case SF_FORMAT_MPEG:
        return "mp3";
    default:
        return "audio";
    }
}

static const char *codec_name(int format)
{
    switch (format & SF_FORMAT_SUBMASK) {
    case SF_FORMAT_PCM_S8:
    case SF_FORMAT_PCM_U8:
        return "8 bit";
    case SF_FORMAT_PCM_16:
        return "16 bit";
    case SF_FORMAT_PCM_24:
        return "24 bit";
    case SF_FORMAT_PCM_32:
        return "32 bit";
    case SF_FORMAT_FLOAT:
        return "32 bit float";
    case SF_FORMAT_DOUBLE:
        return "64 bit float";
    case SF_FORMAT_ULAW:
        return "mu-law";
    case SF_FORMAT_ALAW:
        return "A-law";
    case SF_FORMAT_VORBIS:
        return "vorbis";
    case SF_FORMAT_OPUS:
        return "opus";
    case SF_FORMAT_IMA_ADPCM:
    case SF_FORMAT_MS_ADPCM:
        return "ADPCM";
    case SF_FORMAT_GSM610:
        return "GSM";
    case SF_FORMAT_ALAC_16:
    case SF_FORMAT_ALAC_20:
    case SF_FORMAT_ALAC_24:
    case SF_FORMAT_ALAC_32:
        return "ALAC";
    case SF_FORMAT_MPEG_LAYER_I:
    case SF_FORMAT_MPEG_LAYER_II:
    case SF_FORMAT_MPEG_LAYER_III:
        return "MPEG audio";
    default:
        return "coded";
    }
}

static bool is_lossy(int format)
{
    switch (format & SF_FORMAT_SUBMASK) {
    case SF_FORMAT_PCM_S8:
    case SF_FORMAT_PCM_U8:
    case SF_FORMAT_PCM_16:
    case SF_FORMAT_PCM_24:
    case SF_FORMAT_PCM_32:
    case SF_FORMAT_FLOAT:
    case SF_FORMAT_DOUBLE:
    case SF_FORMAT_ALAC_16:
    case SF_FORMAT_ALAC_20:
    case SF_FORMAT_ALAC_24:
    case SF_FORMAT_ALAC_32:
        return false;
    default:
        return true;
    }
}

/* libsndfile's log says "data : 96000 (should be 48000)" where a chunk promises more than the file has. Sizes near 2^32 are
 * what a program that writes to a pipe leaves behind. */
static void note_wrong_sizes(struct source *s, SNDFILE *file)
{
    char log[8192];
    unsigned long promised, present;
    sf_command(file, SFC_GET_LOG_INFO, log, sizeof log);
    const char *at = strstr(log, "data :");
    if (!at || sscanf(at, "data : %lu (should be %lu)", &promised, &present) != 2) return;
    if (promised > present && promised < 0xFFFFFF00ul && promised != 0x7FFFFFFFul)
        snprintf(s->info.note, sizeof s->info.note,
                 "the file ends early: its header promises %lu bytes of sound, %lu are there", promised, present);
}

static utter_status open_sndfile(struct source *s, struct error *e)
{
    SF_INFO info = {0};
    const int fd = dup(s->fd);
    SNDFILE *file = fd < 0 ? NULL : sf_open_fd(fd, SFM_READ, &info, SF_TRUE); /* closes fd, also when it fails */
    if (!file)
        return error_set(e, UTTER_INPUT_UNREADABLE, "%s: %s", s->name, fd < 0 ? strerror(errno) : sf_strerror(NULL));
    s->state = file;
    s->info.rate_hz = info.samplerate;
    s->info.n_channels = info.channels;
    s->info.n_frames = info.frames == SF_COUNT_MAX ? -1 : info.frames;
    s->info.lossy = is_lossy(info.format);
    s->reads_exactly = (info.format & SF_FORMAT_TYPEMASK) != SF_FORMAT_MPEG;
    if ((info.format & SF_FORMAT_TYPEMASK) == SF_FORMAT_MPEG)
        snprintf(s->info.format, sizeof s->info.format, "mp3");
    else
        snprintf(s->info.format, sizeof s->info.format, "%s, %s", major_name(info.format), codec_name(info.format));
    struct stat st;
    if (s->info.lossy && info.frames > 0 && fstat(s->fd, &st) == 0)
        s->info.bits_per_second = (int)fmin((double)st.st_size * 8 * info.samplerate / (double)info.frames, INT_MAX);
    note_wrong_sizes(s, file);
    return UTTER_OK;
}

static long read_sndfile(struct source *s, float *frames, size_t max_frames)
{
    const sf_count_t n = sf_readf_float(s->state, frames, (sf_count_t)max_frames);
    return (long)n;
}

static bool seek_sndfile(struct source *s, int64_t frame)
{
    return sf_seek(s->state, frame, SEEK_SET) == frame;
}
static void close_sndfile(struct source *s)
{
    sf_close(s->state);
}

const struct source_backend source_sndfile = {open_sndfile, read_sndfile, seek_sndfile, close_sndfile};
