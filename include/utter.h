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
 * Structs start with struct_size. Fill those you hand in with the matching _init function, then change what you need. It hands
 * sizeof to the library's _init_sized (which is what bindings call), so that a program writes the struct it was compiled with: a
 * smaller struct_size means an older caller, whose missing fields take their defaults; a larger one is refused when its
 * unknown tail is not zero. For those you hand out, set struct_size = sizeof: a smaller one receives the fields it has room
 * for, a larger one zeros in the fields this library does not know.
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

/* ---- models -------------------------------------------------------------------------------------------------------- */

typedef struct utter_model utter_model;
typedef struct utter_voice utter_voice;
typedef struct utter_task utter_task;

/* What products of many rows may round to. FAST lets layers that were measured to lose nothing audible use narrower
 * products; F32 keeps float32 everywhere. */
typedef enum utter_precision { UTTER_PRECISION_F32 = 0, UTTER_PRECISION_FAST = 1 } utter_precision;

typedef enum utter_log_level { UTTER_LOG_WARNING = 0, UTTER_LOG_INFO = 1, UTTER_LOG_DEBUG = 2 } utter_log_level;

/* Receives one line without a newline, on the thread that works. */
typedef void utter_log_fn(int level, const char *line, void *user);

typedef struct utter_model_options {
    uint32_t struct_size;
    int32_t n_threads;      /* 1 to 256; 0: one per physical core. Results do not depend on it */
    const char *cpu_level;  /* "scalar", "avx2", "avx512", "neon"; NULL: $UTTER_CPU, else the best this machine has */
    int32_t precision;      /* utter_precision */
    const char *s3gen_path; /* the second file of a pair when it is not beside the first; NULL: look there */
    const signed char
        *cancel_flag;  /* optional byte: loading stops soon after it is non-zero. Read only inside the call */
    utter_log_fn *log; /* NULL: nothing is logged */
    void *log_user;
} utter_model_options;

UTTER_API void utter_model_options_init_sized(utter_model_options *options, size_t size);
static inline void utter_model_options_init(utter_model_options *options)
{
    utter_model_options_init_sized(options, sizeof *options);
}

/*
 * Opens a model: a published folder, a GGUF file, or the name of a model that `utter models` lists; NULL (not "") is the
 * default model, which is the built-in voice where nothing else was chosen. options may be NULL. Weights are mapped, not read:
 * its files must stay as they are until it is closed. Renaming or replacing them is fine (the old bytes stay); one that is cut
 * short or written over meanwhile ends the process (SIGBUS) or changes what is spoken, and nothing can guard against that.
 * On failure *out is NULL and error (when it is not NULL) receives a terminated text of at most error_size bytes.
 * MODEL_NOT_FOUND, MODEL_DAMAGED, OUT_OF_MEMORY, CANCELLED, INVALID_ARGUMENT, UNSUPPORTED, DEVICE. Any thread.
 */
UTTER_API utter_status utter_model_open(utter_model **out, const char *path, const utter_model_options *options,
                                        char *error, size_t error_size);

/* Closes and sets *model to NULL; NULL inside is fine. Only after all tasks and voices of the model were freed. */
UTTER_API void utter_model_close(utter_model **model);

/* Bits of utter_model_info.capabilities. */
enum {
    UTTER_CAN_CLONE = 1,          /* voices can be made from recordings */
    UTTER_HAS_BUILT_IN_VOICE = 2, /* a request without a voice speaks */
    UTTER_HAS_LANGUAGES = 4,      /* utter_request.language chooses one */
    UTTER_HAS_EXAGGERATION = 8    /* utter_request.exaggeration and cfg_weight matter */
};

/* Strings live as long as the model. */
typedef struct utter_model_info {
    uint32_t struct_size;
    uint32_t capabilities;
    int32_t sample_rate; /* samples a second of everything it speaks */
    int32_t channels;    /* 1 */
    int32_t n_threads;
    const char *family;  /* "chatterbox" */
    const char *variant; /* "turbo", "nano", ... */
    const char *path;
    const char *device; /* for people: "cpu avx512, 2 threads" */
} utter_model_info;

/* info->struct_size must be set. Any thread. */
UTTER_API utter_status utter_model_get_info(const utter_model *model, utter_model_info *info);

/* ---- voices --------------------------------------------------------------------------------------------------------- */

/* Called on the thread that makes a voice: how much of the work is done, 0 to 1, and what is going on ("listening"). */
typedef void utter_voice_progress_fn(double share, const char *what, void *user);

/* How a voice is made of a recording. Texts may be NULL; they are copied. */
typedef struct utter_voice_options {
    uint32_t struct_size;
    uint8_t raw;             /* 1: no clean-up of the recording */
    uint8_t keep_audio;      /* 1: the chosen seconds stay in the voice, so that it can be fitted to other models */
    double start_seconds;    /* < 0 (default): the best part is chosen */
    double duration_seconds; /* 0 (default): up to 15 s of a chosen part, else to the end; 60 at most */
    const char *name, *transcript, *license, *consent;
    const signed char
        *cancel_flag; /* optional byte: the work stops soon after it is non-zero. Read only inside the call */
    utter_voice_progress_fn *progress; /* optional */
    void *progress_user;
} utter_voice_options;

UTTER_API void utter_voice_options_init_sized(utter_voice_options *options, size_t size);
static inline void utter_voice_options_init(utter_voice_options *options)
{
    utter_voice_options_init_sized(options, sizeof *options);
}

/*
 * Makes a voice of a recording, for one model; it may be spoken with by any number of tasks of that model at once, and is
 * freed before the model is closed. A second of sound is the least, 10 to 15 s are best. A file may be of any format that
 * the library reads, "-" is standard input; samples are mono in [-1, 1] at 8,000 to 192,000 a second. options may be NULL.
 * VOICE_UNUSABLE (too short, silent), INPUT_UNREADABLE, CANNOT_CLONE, CANCELLED, OUT_OF_MEMORY, INVALID_ARGUMENT; the text
 * says what to do. Any thread.
 */
UTTER_API utter_status utter_voice_make(utter_voice **out, utter_model *model, const float *samples, size_t n_samples,
                                        int32_t sample_rate, const utter_voice_options *options, char *error,
                                        size_t error_size);
UTTER_API utter_status utter_voice_make_from_file(utter_voice **out, utter_model *model, const char *path,
                                                  const utter_voice_options *options, char *error, size_t error_size);

/*
 * Opens a saved voice for a model: a voice file, a published conds.pt, a folder of .npy files of the ggml port, or the built-in
 * voice of a model file. A voice that was made for models that listen in another way is fitted when it kept its recording
 * (options: only cancel_flag and progress are used), else refused with VOICE_UNUSABLE. Any thread.
 */
UTTER_API utter_status utter_voice_load(utter_voice **out, utter_model *model, const char *path,
                                        const utter_voice_options *options, char *error, size_t error_size);

/* Writes a voice file; it appears whole or not at all. OUTPUT_UNWRITABLE. Any thread. */
UTTER_API utter_status utter_voice_save(const utter_voice *voice, const char *path, char *error, size_t error_size);

/* Strings live as long as the voice and may be NULL. */
typedef struct utter_voice_info {
    uint32_t struct_size;
    uint8_t fitted; /* 1: utter_voice_load had to make it fit the model; save it to keep that */
    uint8_t keeps_audio;
    double prompt_seconds; /* of sound that the model continues from */
    double source_seconds; /* length of the recording it came from; 0: unknown */
    uint64_t source_hash;  /* FNV-1a of that recording's bytes; 0: unknown */
    const char *name, *transcript, *license, *consent, *source;
} utter_voice_info;

/* info->struct_size must be set. Any thread. */
UTTER_API utter_status utter_voice_get_info(const utter_voice *voice, utter_voice_info *info);

/* What a person should know about the recording a voice was just made of, one sentence each, the worst first; NULL past the
 * last. *warning (may be NULL): 1 when it costs likeness. Any thread. */
UTTER_API const char *utter_voice_finding(const utter_voice *voice, size_t index, int32_t *warning);

/* Frees a voice and sets *voice to NULL; NULL inside is fine. Only when no active task uses it. */
UTTER_API void utter_voice_free(utter_voice **voice);

/* ---- requests ------------------------------------------------------------------------------------------------------ */

enum { UTTER_STREAM_OFF = 0, UTTER_STREAM_ON = 1, UTTER_STREAM_AUTO = 2 };
#define UTTER_SEED_RANDOM UINT64_MAX

/*
 * One synthesis. Everything is copied or finished with when utter_task_start returns, except the voice, which must live
 * as long as the task is active. Fields that a model has no use for are ignored.
 */
typedef struct utter_request {
    uint32_t struct_size;
    int32_t prompt_batch_size; /* most rows of the prompt a step computes, > 0 */
    const char *text;          /* UTF-8; need not be terminated */
    size_t text_length;        /* bytes, > 0 */
    const utter_voice *voice;  /* NULL: the model's built-in voice */
    const char *language;      /* a code such as "en"; NULL: the model's own choice */
    uint64_t seed;             /* UTTER_SEED_RANDOM (the default): one is drawn, see utter_output_info */
    int32_t max_tokens; /* most speech tokens (1/25 s each) of one piece of text, obeyed to the letter, 1001 at most;
                                       0: a limit that follows from the length of the text, and an end to endless
                                       repetition */
    int32_t top_k;      /* 0: off */
    float top_p, min_p; /* above 0 to 1, 1: off; 0 to 1, 0: off */
    float temperature;  /* 0: always the likeliest token */
    float repetition_penalty;          /* 1: off; 0.01 to 100 */
    float exaggeration, cfg_weight;    /* >= 0 */
    int32_t cfm_steps;                 /* 1 to 100: steps of the flow; few are fast, the default sounds as published */
    int32_t stream;                    /* UTTER_STREAM_OFF: samples come piece by piece, each piece computed as a whole.
                                       ON: also inside a piece, in chunks of the two sizes below. AUTO: in chunks whose sizes
                                       follow measured speed so that playback does not starve; the samples then depend on
                                       that timing, unlike with the other two */
    int32_t stream_first_chunk_tokens; /* tokens of the first chunk, > 0; fewer than 10 count as 10: no sound before */
    int32_t stream_chunk_tokens;       /* tokens of every later chunk, > 0 */
    int32_t stream_context_tokens; /* how many tokens before a chunk its computation looks back on, besides the voice's
                                       prompt; 0: all (cost grows with the square of the length) */
    float sentence_silence;        /* seconds of silence between pieces of a long text, 0 to 10 */
    int32_t drop_pulled;           /* 1: samples are forgotten once pulled, so that long texts need little memory;
                                      utter_task_read is then refused */
    int32_t
        stream_first_prompt_tokens; /* how many of the last tokens of the voice's prompt the first chunk sees; 0: all.
                                      The prompt is most of a first chunk's work: fewer give sound sooner */
    int32_t stream_serial; /* 1: no token is made before it is its turn. 0 (default): the next tokens are made while a
                                      chunk becomes sound, on one of the model's threads; and with UTTER_STREAM_OFF those of
                                      the next pieces together with this one's, which takes less time in all, while the
                                      first piece takes longer. 2: as 0, but up to its first sound a task makes only what
                                      that needs. The samples are the same bytes, step by step, each way */
} utter_request;

/* Fills in the defaults of the model (NULL: of Chatterbox Turbo). */
UTTER_API void utter_request_init_sized(utter_request *request, size_t size, const utter_model *model);
static inline void utter_request_init(utter_request *request, const utter_model *model)
{
    utter_request_init_sized(request, sizeof *request, model);
}

/* ---- tasks --------------------------------------------------------------------------------------------------------- */

typedef enum utter_state {
    UTTER_STATE_IDLE = 0,
    UTTER_STATE_PROMPT = 1,     /* active: computing the prompt of a piece */
    UTTER_STATE_GENERATING = 2, /* active: making speech tokens and sound */
    UTTER_STATE_COMPLETED = 3,
    UTTER_STATE_CANCELLED = 4,
    UTTER_STATE_FAILED = 5
} utter_state;

typedef struct utter_progress {
    uint32_t struct_size;
    int32_t state;                   /* utter_state */
    int32_t pieces, pieces_done;     /* a long text is spoken in pieces, in order */
    int32_t prompt_tokens_remaining; /* of the current piece */
    int32_t tokens_generated;        /* speech tokens of all pieces so far; never decreases within a task */
    int64_t samples_ready;           /* samples finished so far, pulled or not */
    uint64_t text_bytes_done;        /* bytes of the text whose pieces are finished */
    uint64_t seed;                   /* the seed in use */
    uint8_t truncated;               /* 1: max_tokens ended a piece before the model did */
} utter_progress;

typedef struct utter_output_info {
    uint32_t struct_size;
    int32_t sample_rate, channels;
    int64_t sample_count;
    uint64_t seed;
    uint8_t truncated;
} utter_output_info;

/* The steady life of a task:
 *
 *     utter_task_create -> { utter_task_start -> utter_task_step until DONE, pulling samples -> ... } -> utter_task_free
 *
 * One thread at a time may call these functions on one task; utter_task_cancel alone may be called from any thread at any
 * time while the task lives. Several tasks may run on one model at once, each on its own thread: their results are the
 * same as alone. The same request on the same model gives the same samples, whatever the task did before, was cancelled
 * or not. */
UTTER_API utter_status utter_task_create(utter_task **out, utter_model *model, char *error, size_t error_size);
UTTER_API void utter_task_free(utter_task **task); /* NULL inside is fine; leaves NULL behind */

/*
 * Checks the request, splits the text and gets ready; the state becomes PROMPT. A refused request (INVALID_ARGUMENT,
 * INVALID_STATE on an active task, NOTHING_TO_SPEAK) changes nothing but the error text, and keeps the samples of a
 * completed run. An accepted one drops them, and with them any earlier cancel and cancel flag. VOICE_UNUSABLE and other
 * failures leave the state FAILED.
 */
UTTER_API utter_status utter_task_start(utter_task *task, const utter_request *request);

/*
 * One bounded piece of work: a batch of the prompt, or one speech token, with it a chunk of sound when one is due, or the
 * rest of the sound of a piece. With a token of one piece, a batch of the prompt of another and a token of up to three may be made,
 * which are told when it is their turn. progress may be NULL; else its struct_size must be set.
 *     OK         call again          AUDIO      call again; new samples can be pulled
 *     DONE       completed; samples may be left to pull
 *     CANCELLED  and again on every later step; no partial work is ever visible
 *     INVALID_STATE when nothing is active; other errors leave the state FAILED.
 */
UTTER_API utter_status utter_task_step(utter_task *task, utter_progress *progress);

/* Asks an active task to stop: the step that runs, or else the next one, returns CANCELLED after at most a few
 * milliseconds. Latches until the next start or reset. Never blocks; any thread; NULL is fine. A cancel that arrives after
 * the last check of the last step has no effect on the completed task, nor on the next. */
UTTER_API void utter_task_cancel(utter_task *task);

/* Attaches a byte that the caller owns to an active task: once it is read as non-zero, the task is cancelled for good,
 * even if the byte is lowered again. Any thread may write it (atomically, relaxed suffices), without having the task. It is
 * read only inside utter_task_step, and forgotten before the step that ends the task returns, or by reset, start and
 * free. Attaching again replaces the byte. INVALID_ARGUMENT for NULL, INVALID_STATE when the task is not active. */
UTTER_API utter_status utter_task_set_cancel_flag(utter_task *task, const signed char *flag);

/* Back to IDLE from any state: drops samples, work, cancel and flag. */
UTTER_API utter_status utter_task_reset(utter_task *task);

/* The state of things between steps; progress->struct_size must be set. */
UTTER_API utter_status utter_task_progress(const utter_task *task, utter_progress *progress);

/* Copies up to `capacity` samples that are finished and were not pulled yet, in order; *count is how many. Allowed while the
 * task is active and after it completed; INVALID_STATE when it is idle, cancelled or failed (what was pulled before
 * stays good). Samples stay for utter_task_read. */
UTTER_API utter_status utter_task_pull(utter_task *task, float *samples, size_t capacity, size_t *count);

/* Only when completed, else INVALID_STATE. read: samples NULL asks how many remain from offset on; otherwise copies up to
 * `capacity` of them. An offset outside 0..sample_count is INVALID_ARGUMENT. */
UTTER_API utter_status utter_task_output_info(const utter_task *task, utter_output_info *info);
UTTER_API utter_status utter_task_read(const utter_task *task, int64_t offset, float *samples, size_t capacity,
                                       size_t *count);

/* What went wrong last on this task; never NULL, valid until the next call on the task. For NULL a fixed text. */
UTTER_API const char *utter_task_last_error(const utter_task *task);

#ifdef __cplusplus
}
#endif
#endif
