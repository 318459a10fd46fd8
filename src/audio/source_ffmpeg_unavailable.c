/* FFmpeg was not built in: what libsndfile does not know is refused. */
#include "audio/source_backend.h"

static utter_status open_nothing(struct source *s, struct error *e)
{
    return error_set(e, UTTER_INPUT_UNREADABLE,
                     "%s: this build reads no such file: FFmpeg's libraries are not built in (UTTER_FFMPEG)", s->name);
}

static long read_nothing(struct source *s, float *frames, size_t max_frames)
{
    (void)s, (void)frames, (void)max_frames;
    return -1;
}

static bool seek_nothing(struct source *s, int64_t frame)
{
    (void)s, (void)frame;
    return false;
}

static void close_nothing(struct source *s)
{
    (void)s;
}

const struct source_backend source_ffmpeg = {open_nothing, read_nothing, seek_nothing, close_nothing};
bool source_has_ffmpeg(void)
{
    return false;
}
