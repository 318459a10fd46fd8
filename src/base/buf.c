#include "base/buf.h"

#include <string.h>

#include "base/mem.h"

static bool reserve(struct buf *b, size_t more)
{
    size_t need;
    if (b->failed || !size_add(b->n, more, &need) || need > b->ceiling || !size_add(need, 1, &need)) return false;
    if (need <= b->capacity) return true;
    size_t capacity = b->capacity < 32 ? 64 : b->capacity * 2;
    if (capacity < need) capacity = need;
    char *grown = mem_realloc(b->data, capacity);
    if (!grown) return false;
    b->data = grown;
    b->capacity = capacity;
    return true;
}

void buf_append(struct buf *b, const void *bytes, size_t n)
{
    if (!reserve(b, n)) {
        b->failed = true;
        return;
    }
    if (n > 0) memcpy(b->data + b->n, bytes, n);
    b->n += n;
    b->data[b->n] = 0;
}

void buf_append_string(struct buf *b, const char *s)
{
    buf_append(b, s, strlen(s));
}

char *buf_take(struct buf *b)
{
    buf_append(b, "", 0);
    char *data = b->failed ? NULL : b->data;
    if (data) *b = buf_empty(b->ceiling);
    return data;
}

void buf_free(struct buf *b)
{
    mem_free(b->data);
    *b = buf_empty(b->ceiling);
}
