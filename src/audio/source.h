/*
 * source.h - a recording being decoded, whatever its format, a piece at a time.
 *
 * libsndfile reads wav of every width, flac, ogg vorbis, opus, mp3, aiff and more; where the library was built with FFmpeg
 * it reads the rest (m4a, mp4, mov, webm, amr, ...). A file is known by its content, never by its name. Memory does not depend on the
 * recording's length. Rates of 8 to 192 kHz, 1 to 1024 channels.
 *
 * Everything in a file is hostile: headers that lie are corrected where the samples are still there (source_info.note says
 * so) and refused else; a sample that is not finite is refused. INPUT_UNREADABLE with a message that names the file.
 * One thread at a time.
 */
#ifndef AUDIO_SOURCE_H
#define AUDIO_SOURCE_H

#include "base/error.h"

enum { SOURCE_MIN_RATE = 8000, SOURCE_MAX_RATE = 192000, SOURCE_MAX_CHANNELS = 1024 };

struct source;

struct source_info {
    int rate_hz, n_channels;
    int64_t n_frames;    /* what the header promises; -1 when it does not tell */
    int bits_per_second; /* of a lossy file; 0 when unknown */
    bool lossy;          /* a codec threw sound away: opus, vorbis, mp3, aac, amr, ... */
    char format[48];     /* for people: "wav, 16 bit", "mp3" */
    char note[160];      /* what was wrong and could be mended, "" for nothing; may appear while reading */
};

/* path: "-" is standard input; a pipe is copied to an unnamed temporary file first (at most 2 GiB). */
utter_status source_open(struct source **out, const char *path, struct error *e);

/* Mono samples that the caller keeps alive. `name` stands in messages. */
utter_status source_open_samples(struct source **out, const char *name, const float *samples, size_t n, int rate_hz,
                                 struct error *e);

void source_close(struct source **s); /* NULL inside is fine */
const struct source_info *source_info(const struct source *s);
const char *source_name(const struct source *s);

/* Up to max_frames frames, channels interleaved, into `frames`. *n is 0 only at the end. */
utter_status source_read(struct source *s, float *frames, size_t max_frames, size_t *n, struct error *e);

/* FNV-1a of the file's bytes (of the samples' for source_open_samples): tells recordings apart, no more. */
uint64_t source_hash(const struct source *s);

/* The next read begins at this frame of the recording, sample-exact (what lies before is decoded again where a format needs it). */
utter_status source_seek(struct source *s, int64_t frame, struct error *e);

#endif
