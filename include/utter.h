/*
 * utter.h - the public interface of libutter, a text-to-speech engine.
 *
 * Concepts
 *   model   the networks of one voice family, mapped from files. Immutable once open; any number of tasks and
 *           threads may use one model at a time. Tasks keep it alive: close it only after they are freed.
 *   voice   what makes a speaker: the conditioning vectors, prompt tokens and prompt mel. Immutable, shared by any
 *           number of tasks and threads.
 *   task    one synthesis at a time, driven by its caller: start, then step until it is done. A task belongs to one
 *           thread at a time; only utter_task_cancel() and the cancel flag may be touched from other threads.
 *
 * Audio is mono float in [-1, 1] at 24,000 samples a second unless a function says otherwise.
 *
 * Errors: every function that can fail returns a utter_status; zero or more is success. The text of the failure is
 * kept by the object that failed (utter_task_last_error) or written to the caller's buffer when there is no object
 * yet. The library never prints, never exits, and installs no signal handler.
 *
 * Structs start with struct_size; fill them with the matching _init function, then change what you need. A smaller
 * struct_size means an older caller, whose missing fields take their defaults; a larger one is refused when its unknown
 * tail is not zero.
 */
#ifndef UTTER_H
#define UTTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define UTTER_API __attribute__((visibility("default")))
#else
#define UTTER_API
#endif

#define UTTER_VERSION_MAJOR 0
#define UTTER_VERSION_MINOR 1
#define UTTER_VERSION_PATCH 0

/* Every status and its text, from one list. Numbers are pinned; gaps are for later members of a group. */
#define UTTER_STATUS_MAP(X)                                                                                            \
    X(OK, 0, "ok")                                                                                                     \
    X(AUDIO, 1, "samples are ready")                                                                                   \
    X(DONE, 2, "the task is complete")                                                                                 \
    X(INVALID_ARGUMENT, -1, "invalid argument")                                                                        \
    X(UNSUPPORTED, -2, "not supported")                                                                                \
    X(INVALID_STATE, -3, "not allowed in this state")                                                                  \
    X(CANCELLED, -4, "cancelled")                                                                                      \
    X(NOTHING_TO_SPEAK, -5, "nothing to speak")                                                                        \
    X(MODEL_NOT_FOUND, -10, "model not found")                                                                         \
    X(MODEL_DAMAGED, -11, "model damaged or of an unknown kind")                                                       \
    X(VOICE_UNUSABLE, -12, "voice unusable")                                                                           \
    X(CANNOT_CLONE, -13, "the model cannot clone voices")                                                              \
    X(INPUT_UNREADABLE, -20, "input unreadable")                                                                       \
    X(OUTPUT_UNWRITABLE, -21, "output not writable")                                                                   \
    X(OUT_OF_MEMORY, -30, "out of memory")                                                                             \
    X(DEVICE, -31, "device error")                                                                                     \
    X(ENGINE, -40, "synthesis failed")

typedef enum utter_status {
#define X(name, number, text) UTTER_##name = number,
    UTTER_STATUS_MAP(X)
#undef X
} utter_status;

/* A fixed English text for a status; never NULL. Any thread. */
UTTER_API const char *utter_status_text(utter_status status);

/* "major.minor.patch" of the library that is loaded. Any thread. */
UTTER_API const char *utter_version(void);

#ifdef __cplusplus
}
#endif
#endif
