/* Recordings, through a file in memory as the decoders want one: opened, and a few seconds read. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "audio/mono.h"

static void read_some(const char *path)
{
    static float samples[4096];
    struct source *s;
    struct mono *m;
    struct error e = {""};
    if (source_open(&s, path, &e) != UTTER_OK) {
        if (!strstr(e.text, path)) abort(); /* every message names the file */
        return;
    }
    size_t n = 1;
    if (mono_open(&m, s, 0, MONO_MEAN, &e) == UTTER_OK) {
        for (int i = 0; i < 12 && n > 0 && mono_read(m, samples, 4096, &n, &e) == UTTER_OK; i++)
            for (size_t k = 0; k < n; k++)
                if (samples[k] != samples[k]) abort();
        mono_close(&m);
    }
    source_close(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char path[64];
    const int fd = memfd_create("recording", 0);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    read_some(path);
    close(fd);
    return 0;
}
