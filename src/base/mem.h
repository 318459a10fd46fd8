/*
 * mem.h - allocation that can be counted and made to fail, and checked arithmetic for sizes read from files.
 *
 * All heap memory of the library goes through these functions. Any thread.
 */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t n_bytes);               /* uninitialised; NULL when out of memory or n_bytes is 0 */
void *mem_calloc(size_t count, size_t size);   /* zeroed; NULL on overflow or out of memory */
void *mem_realloc(void *p, size_t n_bytes);    /* NULL leaves p as it was */
void *mem_alloc_aligned(size_t n_bytes);       /* 64-byte aligned; freed by mem_free like the others */
char *mem_strdup(const char *s);
void mem_free(void *p);                        /* NULL is fine */

/* Tests only: the n-th allocation from now (1 = the next) and all after it fail; 0 switches that off. */
void mem_fail_after(long n);

/* True and *out set when the result fits in size_t. */
static inline bool size_mul(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool size_add(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }

#endif
