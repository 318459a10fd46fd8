#include "base/arena.h"

#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"

#if defined(__SANITIZE_ADDRESS__)
#define HAVE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ASAN 1
#endif
#endif
#ifdef HAVE_ASAN
#include <sanitizer/asan_interface.h>
enum { GAP = 64 }; /* unreadable bytes after each block, so that overruns show */
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
enum { GAP = 0 };
#endif

utter_status arena_create(struct arena *a, size_t capacity_bytes, struct error *e)
{
    *a = (struct arena){0};
    size_t capacity; /* one block of capacity_bytes must fit, with the gap behind it */
    if (!size_add(capacity_bytes, ARENA_HUGE_PAGE - 1 + GAP, &capacity) || capacity > SIZE_MAX - ARENA_HUGE_PAGE)
        return error_set(e, UTTER_OUT_OF_MEMORY, "cannot reserve %zu bytes of working memory", capacity_bytes);
    capacity &= ~((size_t)ARENA_HUGE_PAGE - 1);
    void *p = mmap(NULL, capacity + ARENA_HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return error_set(e, UTTER_OUT_OF_MEMORY, "cannot reserve %zu MiB of working memory", capacity >> 20);
    /* Keep only an aligned span, so that every huge page can be one. */
    size_t skip = (ARENA_HUGE_PAGE - ((size_t)p & (ARENA_HUGE_PAGE - 1))) & (ARENA_HUGE_PAGE - 1);
    if (skip) munmap(p, skip);
    if (ARENA_HUGE_PAGE - skip) munmap((char *)p + skip + capacity, ARENA_HUGE_PAGE - skip);
    a->base = (char *)p + skip;
    a->capacity = capacity;
    madvise(a->base, capacity, MADV_HUGEPAGE); /* a wish: failure only costs speed */
    return UTTER_OK;
}

void arena_destroy(struct arena *a)
{
    if (!a->base) return;
    ASAN_UNPOISON_MEMORY_REGION(a->base, a->peak);
    munmap(a->base, a->capacity);
    *a = (struct arena){0};
}

void *arena_alloc(struct arena *a, size_t n_bytes)
{
    size_t rounded, end;
    if (!size_add(n_bytes, 63, &rounded)) return NULL;
    rounded &= ~(size_t)63;
    if (!size_add(a->top, rounded, &end) || !size_add(end, GAP, &end) || end > a->capacity) return NULL;
    char *p = a->base + a->top;
    a->top = end;
    if (end > a->peak) a->peak = end;
    ASAN_UNPOISON_MEMORY_REGION(p, rounded);
    ASAN_POISON_MEMORY_REGION(p + rounded, GAP);
#ifndef NDEBUG
    memset(p, 0xFF, rounded); /* every float a NaN: reading before writing shows */
#endif
    return p;
}

void arena_release(struct arena *a, size_t mark)
{
    if (mark < a->top) {
#ifndef NDEBUG
        ASAN_UNPOISON_MEMORY_REGION(a->base + mark, a->top - mark);
        memset(a->base + mark, 0xFF, a->top - mark);
#endif
        ASAN_POISON_MEMORY_REGION(a->base + mark, a->top - mark);
        a->top = mark;
    }
}
