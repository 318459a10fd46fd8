/*
 * sink.h - where samples go: a file of some format, a pipe, a device.
 *
 * Mono float samples in [-1, 1]; louder ones are clipped. A sample that is not finite is refused, never written.
 *
 * A regular file is a part file (base/part_file.h) and gets its name in sink_finish, so that a name always holds a whole file; the
 * header is kept true while the file grows, so that even a killed run leaves a .part that plays. Pipes and devices are
 * written directly and in order: every sink_write reaches the reader before it returns (as far as the codec has whole
 * frames); wav then carries the streaming header, with sizes of 0xFFFFFFFF. Apart from what a header
 * says of the length (wav, flac, mp3), a pipe receives the same bytes as the file.
 *
 * One thread at a time. SIGPIPE and SIGXFSZ must be ignored by the program for closed pipes and file limits to come back
 * as errors.
 */
#ifndef AUDIO_SINK_H
#define AUDIO_SINK_H

#include "base/error.h"

/* format, its names for people: the first one stands in messages, all are accepted; also as file extensions */
#define SINK_FORMAT_MAP(X)                                                                                             \
    X(WAV16, "wav", "wav16")                                                                                           \
    X(WAV24, "wav24", "wav24")                                                                                         \
    X(WAV32F, "wav32f", "wav32f")                                                                                      \
    X(FLAC, "flac", "flac")                                                                                            \
    X(OPUS, "opus", "opus")                                                                                            \
    X(VORBIS, "ogg", "vorbis")                                                                                         \
    X(MP3, "mp3", "mp3")                                                                                               \
    X(PCM, "pcm", "raw") /* signed 16-bit little-endian, no header */

enum sink_format {
#define X(name, text, alias) SINK_##name,
    SINK_FORMAT_MAP(X)
#undef X
        SINK_N_FORMATS
};

/* By a format's name, or by the extension of a path. False when there is none of that name. */
bool sink_format_by_name(enum sink_format *out, const char *name);
bool sink_format_by_path(enum sink_format *out, const char *path);
const char *sink_format_name(enum sink_format f);
const char *sink_format_extension(enum sink_format f); /* one that players know */

/* The most samples a file of this format can describe (4 GiB for wav; practically unlimited for the others). */
int64_t sink_max_samples(enum sink_format f);

struct sink;

/* path: "-" is stdout. OUTPUT_UNWRITABLE with a message that names the path. interrupt: a byte that, once it is not 0, ends
 * every wait for a pipe's reader, here and in what follows, with CANCELLED; may be NULL. */
utter_status sink_open(struct sink **out, const char *path, enum sink_format format, int sample_rate,
                       const signed char *interrupt, struct error *e);
utter_status sink_write(struct sink *s, const float *samples, size_t n, struct error *e);

/* Ends the file and gives it its name. *s is NULL afterwards, also after a failure, when the .part is removed. */
utter_status sink_finish(struct sink **s, struct error *e);
void sink_discard(struct sink **s); /* removes what was written to a regular file; NULL inside is fine */

int64_t sink_samples(const struct sink *s);  /* written so far */
bool sink_reader_left(const struct sink *s); /* the other end of the pipe was closed: a quiet stop, not a failure */

#endif
