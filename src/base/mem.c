#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Countdown to a forced failure; 0 = never, 1 = every call from now on. */
static atomic_long fail_countdown;

void mem_fail_after(long n) { atomic_store(&fail_countdown, n); }

static bool must_fail(void)
{
    if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) == 0) return false;
    long left = atomic_load(&fail_countdown);
    if (left > 1) atomic_fetch_sub(&fail_countdown, 1);
    return left <= 1;
}

void *mem_alloc(size_t n_bytes) { return n_bytes == 0 || must_fail() ? NULL : malloc(n_bytes); }

void *mem_calloc(size_t count, size_t size) { return must_fail() ? NULL : calloc(count, size); }

void *mem_realloc(void *p, size_t n_bytes) { return n_bytes == 0 || must_fail() ? NULL : realloc(p, n_bytes); }

void *mem_alloc_aligned(size_t n_bytes)
{
    size_t rounded;
    if (n_bytes == 0 || !size_add(n_bytes, 63, &rounded) || must_fail()) return NULL;
    return aligned_alloc(64, rounded & ~(size_t)63);
}

char *mem_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = mem_alloc(n);
    if (copy) memcpy(copy, s, n);
    return copy;
}

void mem_free(void *p) { free(p); }
