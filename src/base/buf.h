/*
 * buf.h - a growable string of bytes with a ceiling.
 *
 * Appends latch their failure (no memory, or past the ceiling), so that a writer tests once at its end. `data` is kept
 * NUL-terminated behind its n bytes once anything was appended. One thread at a time.
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *data; /* owned; NULL while empty */
    size_t n, capacity, ceiling;
    bool failed;
};

static inline struct buf buf_empty(size_t ceiling)
{
    return (struct buf){.ceiling = ceiling};
}
void buf_append(struct buf *b, const void *bytes, size_t n);
void buf_append_string(struct buf *b, const char *s);
char *buf_take(struct buf *b); /* the bytes, never NULL unless the buffer failed; the caller frees them with mem_free */
void buf_free(struct buf *b);

#endif
