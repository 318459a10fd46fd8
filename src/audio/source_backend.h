/*
 * source_backend.h - what decodes: private to source*.c.
 */
#ifndef AUDIO_SOURCE_BACKEND_H
#define AUDIO_SOURCE_BACKEND_H

#include "audio/source.h"

struct source {
    const struct source_backend *backend;
    void *state;
    struct source_info info;
    char *name;
    int fd; /* -1: none */
    int64_t position;
    bool reads_exactly; /* of what the header promises, n_frames is no estimate */
};

struct source_backend {
    /* Reads the file behind s->fd from its start, fills s->state and s->info. INPUT_UNREADABLE when it is of no known kind:
     * then nothing is left to close. */
    utter_status (*open)(struct source *s, struct error *e);
    /* Frames read, 0 at the end, -1 after a failure. */
    long (*read)(struct source *s, float *frames, size_t max_frames);
    bool (*seek)(struct source *s, int64_t frame);
    void (*close)(struct source *s);
};

extern const struct source_backend source_sndfile, source_ffmpeg;
bool source_has_ffmpeg(void);

#endif
