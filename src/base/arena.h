/*
 * arena.h - a stack of scratch memory that is reserved once and touched as needed.
 *
 *     base                 top              touched               capacity
 *      |== live blocks ====|---- reused ----|.... never touched ....|
 *
 * The whole capacity is address space only; pages cost memory when first touched and then stay, so the steady state
 * neither asks the kernel for memory nor gives it back. Huge pages are asked for: the first touch of fresh 4 KiB pages
 * is one of the largest costs of a naive engine. One thread at a time. Blocks are 64-byte aligned, the first one to a huge
 * page.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/error.h"

enum { ARENA_HUGE_PAGE = 2 << 20 }; /* bytes that are touched at once, where the system has them */

struct arena {
    char *base;
    size_t capacity, top, peak;
};

utter_status arena_create(struct arena *a, size_t capacity_bytes, struct error *e);
void arena_destroy(struct arena *a); /* a zeroed arena is fine */

/* NULL when the capacity does not suffice. Contents are undefined (poisoned with NaN in debug builds). */
void *arena_alloc(struct arena *a, size_t n_bytes);

static inline size_t arena_mark(const struct arena *a) { return a->top; }
void arena_release(struct arena *a, size_t mark); /* frees every block made after the mark */

#endif
