/*
 * worker.c - how a user interface drives libutter: a worker thread is inside utter_task_step most of the time, and the main
 * thread, which has no task, stops it through one byte that it owns. This is the shape of a Dart or Flutter program, whose main
 * isolate cannot call into the worker while it is blocked, and of any program with an event loop.
 *
 *     cc worker.c $(pkg-config --cflags --libs utter) -pthread -o worker
 *     ./worker MILLISECONDS       speaks a long text and stops it after that time
 *
 * The rules it keeps:
 *   - the byte is made before anything is posted, so that no cancel can come too early to be kept;
 *   - the worker looks at the byte itself before it starts (start forgets older cancels), then attaches it;
 *   - exactly one last event is posted, and when it has come the library has forgotten the byte: main may free it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utter.h>

static const char text[] = "This is a text that would take a while to speak. It goes on for several sentences. "
                           "Somebody will surely lose patience before it ends. And that is what this example is about.";

/* What the worker posts: progress, then exactly one of the others. */
enum event { PROGRESS, FINISHED, CANCELLED, FAILED };

struct job {
    utter_model *model;
    signed char *cancel; /* owned by the main thread */
    pthread_mutex_t lock;
    pthread_cond_t posted;
    enum event event; /* the newest */
    int64_t samples;
    char message[256];
};

static void post(struct job *j, enum event event, int64_t samples, const char *message)
{
    pthread_mutex_lock(&j->lock);
    j->event = event;
    j->samples = samples;
    snprintf(j->message, sizeof j->message, "%s", message);
    pthread_cond_signal(&j->posted);
    pthread_mutex_unlock(&j->lock);
}

static void speak(struct job *j, utter_task *task)
{
    utter_request request;
    utter_request_init(&request, j->model);
    request.text = text;
    request.text_length = strlen(text);
    if (__atomic_load_n(j->cancel, __ATOMIC_RELAXED)) {
        post(j, CANCELLED, 0, "before the start");
        return;
    }
    utter_status status = utter_task_start(task, &request);
    if (status == UTTER_OK) status = utter_task_set_cancel_flag(task, j->cancel);
    utter_progress progress = {.struct_size = sizeof progress};
    while (status == UTTER_OK || status == UTTER_AUDIO) {
        status = utter_task_step(task, &progress);
        if (status >= 0) post(j, PROGRESS, progress.samples_ready, "speaking");
    }
    if (status == UTTER_DONE)
        post(j, FINISHED, progress.samples_ready, "spoken to the end");
    else
        post(j, status == UTTER_CANCELLED ? CANCELLED : FAILED, 0, utter_task_last_error(task));
}

static void *worker(void *arg)
{
    struct job *j = arg;
    utter_task *task;
    char error[256];
    if (utter_task_create(&task, j->model, error, sizeof error) == UTTER_OK)
        speak(j, task);
    else
        post(j, FAILED, 0, error);
    utter_task_free(&task);
    return NULL;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* The event loop: waits for events, and raises the byte once when the time has come. Returns the last event. */
static enum event main_loop(struct job *j, double stop_at)
{
    bool raised = false;
    pthread_mutex_lock(&j->lock);
    while (j->event == PROGRESS) {
        const double wake = raised ? now_ms() + 1000 : stop_at;
        const struct timespec until = {(time_t)(wake / 1e3), (long)((wake - 1e3 * (double)(time_t)(wake / 1e3)) * 1e6)};
        pthread_cond_timedwait(&j->posted, &j->lock, &until);
        if (!raised && now_ms() >= stop_at) {
            __atomic_store_n(j->cancel, 1, __ATOMIC_RELAXED);
            raised = true;
        }
    }
    const enum event last = j->event;
    pthread_mutex_unlock(&j->lock);
    return last;
}

int main(int argc, char **argv)
{
    struct job job = {.lock = PTHREAD_MUTEX_INITIALIZER, .posted = PTHREAD_COND_INITIALIZER, .event = PROGRESS};
    char error[512];
    if (utter_model_open(&job.model, argc > 2 ? argv[2] : NULL, NULL, error, sizeof error) != UTTER_OK) {
        fprintf(stderr, "worker: %s\n", error);
        return 1;
    }
    job.cancel = calloc(1, 1);
    pthread_t thread;
    const double stop_at = now_ms() + (argc > 1 ? atof(argv[1]) : 300);
    pthread_create(&thread, NULL, worker, &job);
    const enum event last = main_loop(&job, stop_at);
    const double ended = now_ms();
    free(job.cancel); /* the last event has come: nobody reads it any more */
    pthread_join(thread, NULL);
    static const char *const names[] = {"progress", "finished", "cancelled", "failed"};
    printf("%s: %s, %.1f ms after the time to stop, %lld samples\n", names[last], job.message, ended - stop_at, (long long)job.samples);
    utter_model_close(&job.model);
    return last == FAILED;
}
