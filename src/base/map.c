#include "base/map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

utter_status file_map_open(struct file_map *m, const char *path, struct error *e)
{
    *m = (struct file_map){0};
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* non-blocking: a FIFO must not hang us */
    if (fd < 0)
        return error_set(e, errno == ENOENT || errno == ENOTDIR ? UTTER_MODEL_NOT_FOUND : UTTER_INPUT_UNREADABLE,
                         "%s: %s", path, strerror(errno));
    struct stat st;
    utter_status s = UTTER_OK;
    if (fstat(fd, &st) != 0)
        s = error_set(e, UTTER_INPUT_UNREADABLE, "%s: %s", path, strerror(errno));
    else if (S_ISDIR(st.st_mode))
        s = error_set(e, UTTER_INPUT_UNREADABLE, "%s: is a folder", path);
    else if (!S_ISREG(st.st_mode))
        s = error_set(e, UTTER_INPUT_UNREADABLE, "%s: not a regular file", path);
    else if (st.st_size == 0)
        s = error_set(e, UTTER_MODEL_DAMAGED, "%s: the file is empty", path);
    if (s == UTTER_OK) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            s = error_set(e, UTTER_OUT_OF_MEMORY, "%s: cannot map %lld bytes: %s", path, (long long)st.st_size,
                          strerror(errno));
        else
            *m = (struct file_map){p, (size_t)st.st_size};
    }
    close(fd);
    return s;
}

void file_map_drop(const void *data, size_t n_bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = ((uintptr_t)data + page - 1) & ~(page - 1), end = ((uintptr_t)data + n_bytes) & ~(page - 1);
    if (first < end) madvise((void *)first, end - first, MADV_DONTNEED); /* a wish: failure only keeps memory */
}

void file_map_close(struct file_map *m)
{
    if (m->data) munmap((void *)m->data, m->n_bytes);
    *m = (struct file_map){0};
}
