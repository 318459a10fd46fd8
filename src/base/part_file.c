#include "base/part_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

enum { MAX_PARTS = 1000, SUFFIX_BYTES = sizeof ".1000.part" };

static void forget(struct part_file *p)
{
    mem_free(p->part);
    mem_free(p->target);
    *p = (struct part_file){0};
}

/* Where the links of `path` lead; a path that is not there yet stays as it is. */
static char *follow_links(const char *path)
{
    char *real = realpath(path, NULL), *copy = mem_strdup(real ? real : path);
    free(real);
    return copy;
}

/* The first name beside the target that nobody has. -1 with errno. */
static int open_part(struct part_file *p, size_t size)
{
    const char *slash = strrchr(p->target, '/');
    const size_t folder = slash ? (size_t)(slash + 1 - p->target) : 0;
    size_t name = strlen(p->target + folder);
    if (name > NAME_MAX - SUFFIX_BYTES) name = NAME_MAX - SUFFIX_BYTES;
    int fd = -1;
    for (int i = 1; fd < 0 && i <= MAX_PARTS; i++) {
        if (i == 1)
            snprintf(p->part, size, "%.*s.part", (int)(folder + name), p->target);
        else
            snprintf(p->part, size, "%.*s.%d.part", (int)(folder + name), p->target, i);
        fd = open(p->part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST) break;
    }
    return fd;
}

utter_status part_file_create(struct part_file *p, int *fd, const char *path, struct error *e)
{
    struct stat st;
    *p = (struct part_file){0};
    *fd = -1;
    const bool there = stat(path, &st) == 0;
    if (there && !S_ISREG(st.st_mode))
        return error_set(e, UTTER_OUTPUT_UNWRITABLE, "%s: it is there and no regular file", path);
    if (there && access(path, W_OK) != 0) return error_set(e, UTTER_OUTPUT_UNWRITABLE, "%s: %s", path, strerror(errno));
    p->target = follow_links(path);
    const size_t size = p->target ? strlen(p->target) + SUFFIX_BYTES : 0;
    p->part = p->target ? mem_alloc(size) : NULL;
    if (!p->part) {
        forget(p);
        return error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory to write it", path);
    }
    *fd = open_part(p, size);
    if (*fd >= 0) return UTTER_OK;
    const int why = errno;
    forget(p);
    return error_set(e, UTTER_OUTPUT_UNWRITABLE, "%s: %s", path, strerror(why));
}

bool part_file_finish(struct part_file *p)
{
    const bool named = rename(p->part, p->target) == 0;
    const int why = errno;
    if (!named) unlink(p->part);
    forget(p);
    errno = why;
    return named;
}

void part_file_discard(struct part_file *p)
{
    if (p->part) unlink(p->part);
    forget(p);
}
