/*
 * clip.h - from a recording to the seconds of speech that a voice is made of, and what they are worth.
 *
 * A recording of any length is decoded once for its levels (memory: 50 numbers a second), the best part is chosen, and only that part
 * is decoded again and kept: mono, 24 kHz. Any thread.
 */
#ifndef AUDIO_CLIP_H
#define AUDIO_CLIP_H

#include "audio/measure.h"
#include "audio/source.h"
#include "base/cancel.h"

/* Seconds. A voice uses 15 s for T3 and 10 s for the flow; the speaker's vector hears all of it. */
#define CLIP_MIN_S      1.0
#define CLIP_GOOD_S     5.0
#define CLIP_TARGET_S   15.0
#define CLIP_MAX_S      60.0
#define RECORDING_MAX_S (4.0 * 3600) /* longer ones are searched only where start and duration say */

struct clip_options {
    double start_s;        /* < 0: the best part is chosen */
    double duration_s;     /* 0: CLIP_TARGET_S when the part is chosen, else to the end; at most CLIP_MAX_S is used */
    bool raw;              /* no clean-up */
    struct cancel *cancel; /* optional */
    void (*progress)(void *user, double share); /* optional: 0 to 1 of the searching and reading */
    void *user;
};

enum clip_cleanup { CLIP_AS_IT_IS, CLIP_CLEANED, CLIP_CLEANED_LOSSY };
enum { CLIP_MAX_FINDINGS = 16, CLIP_MAX_SPANS = 2 };

/* What a person should know, worst first. */
struct clip_finding {
    bool warning; /* it costs likeness; else good to know */
    char text[200];
};

struct clip_span {
    double start_s, duration_s;
};

struct clip_report {
    struct source_info source;
    double recording_s; /* -1: not searched to its end */
    double speech_s;    /* of the whole recording when it was searched, else of the clip */
    int n_spans;        /* parts of the recording that make the clip */
    struct clip_span span[CLIP_MAX_SPANS];
    double duration_s;
    double clipped_share;     /* of the samples read */
    struct measures measures; /* of the clip before clean-up */
    enum clip_cleanup cleanup;
    int n_findings;
    struct clip_finding finding[CLIP_MAX_FINDINGS];
};

struct clip {
    float *samples; /* mono, 24 kHz */
    size_t n_samples;
    struct clip_report report;
};

/* Fills *clip. VOICE_UNUSABLE, with numbers, when there is no second of sound, or nothing but silence or a constant; CANCELLED;
 * INPUT_UNREADABLE when the file is damaged. The report is filled as far as it goes also after a failure. */
utter_status clip_make(struct clip *clip, struct source *s, const struct clip_options *o, struct error *e);
void clip_free(struct clip *clip); /* a zeroed one is fine */

#endif
