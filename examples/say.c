/*
 * say.c - the smallest whole use of libutter: text to raw samples (float32, mono, 24 kHz) on standard output.
 *
 *     cc say.c $(pkg-config --cflags --libs utter) -o say
 *     ./say "Hello there." >hello.f32
 */
#include <stdio.h>
#include <string.h>
#include <utter.h>

static int fail(const char *what)
{
    fprintf(stderr, "say: %s\n", what);
    return 1;
}

int main(int argc, char **argv)
{
    const char *text = argc > 1 ? argv[1] : "Hello from the library.";
    char error[512];
    utter_model *model;
    if (utter_model_open(&model, NULL, NULL, error, sizeof error) != UTTER_OK) return fail(error);
    utter_task *task;
    if (utter_task_create(&task, model, error, sizeof error) != UTTER_OK) return fail(error);

    utter_request request;
    utter_request_init(&request, model);
    request.text = text;
    request.text_length = strlen(text);
    request.seed = 0; /* the same samples every time; left alone, each run draws a seed */
    if (utter_task_start(task, &request) != UTTER_OK) return fail(utter_task_last_error(task));

    utter_status status;
    do {
        float samples[4096];
        size_t n;
        status = utter_task_step(task, NULL);
        if (status < 0) return fail(utter_task_last_error(task));
        while (utter_task_pull(task, samples, 4096, &n) == UTTER_OK && n > 0) fwrite(samples, sizeof *samples, n, stdout);
    } while (status != UTTER_DONE);

    utter_task_free(&task);
    utter_model_close(&model);
    return 0;
}
