#include "tools/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bytes_put(struct bytes *b, const void *data, size_t n)
{
    if (b->n + n >= b->capacity) b->data = realloc(b->data, b->capacity = 2 * (b->n + n) + 64);
    if (!b->data) abort(); /* a test tool */
    if (n) memcpy(b->data + b->n, data, n);
    b->n += n;
}

void bytes_text(struct bytes *b, const char *text)
{
    bytes_put(b, text, strlen(text));
}

void bytes_uint(struct bytes *b, uint64_t v, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        const unsigned char c = (unsigned char)(i < 8 ? v >> (8 * i) : 0);
        bytes_put(b, &c, 1);
    }
}

void bytes_count(struct bytes *b, size_t n)
{
    for (size_t i = 0; i < n; i++) bytes_uint(b, i & 255, 1);
}

void bytes_write(const struct bytes *b, const char *path)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(b->data, 1, b->n, f) != b->n || fclose(f) != 0) abort();
}

void bytes_safetensors(struct bytes *b, uint64_t header_bytes, const char *header, size_t n_data)
{
    bytes_uint(b, header_bytes, 8);
    bytes_text(b, header);
    bytes_count(b, n_data);
}

void bytes_gguf(struct bytes *b, uint64_t n_tensors, uint64_t n_keys)
{
    bytes_text(b, "GGUF");
    bytes_uint(b, 3, 4);
    bytes_uint(b, n_tensors, 8);
    bytes_uint(b, n_keys, 8);
}

void bytes_gguf_string(struct bytes *b, const char *text)
{
    bytes_uint(b, strlen(text), 8);
    bytes_text(b, text);
}

void bytes_gguf_key(struct bytes *b, const char *key, uint32_t type)
{
    bytes_gguf_string(b, key);
    bytes_uint(b, type, 4);
}

void bytes_gguf_tensor(struct bytes *b, const char *name, uint32_t n_dims, const uint64_t *ne, uint32_t type,
                       uint64_t offset)
{
    bytes_gguf_string(b, name);
    bytes_uint(b, n_dims, 4);
    for (uint32_t i = 0; i < n_dims && i < 8; i++) bytes_uint(b, ne[i], 8);
    bytes_uint(b, type, 4);
    bytes_uint(b, offset, 8);
}

void bytes_pad(struct bytes *b, size_t alignment)
{
    while (b->n % alignment) bytes_uint(b, 0, 1);
}

static void pickle_string(struct bytes *b, const char *text)
{
    bytes_text(b, "X");
    bytes_uint(b, strlen(text), 4);
    bytes_text(b, text);
}

static void pickle_int(struct bytes *b, uint16_t v)
{
    bytes_text(b, "M");
    bytes_uint(b, v, 2);
}

static void pickle_ints(struct bytes *b, size_t n, const uint16_t *v)
{
    bytes_text(b, "(");
    for (size_t i = 0; i < n; i++) pickle_int(b, v[i]);
    bytes_text(b, "t");
}

void bytes_pickle_begin(struct bytes *b)
{
    bytes_put(b, "\x80\x02}(", 4);
}

void bytes_pickle_tensor(struct bytes *b, const char *name, const char *storage_class, const char *key, uint16_t numel,
                         uint16_t offset, size_t n_dims, const uint16_t *shape, const uint16_t *stride)
{
    pickle_string(b, name);
    bytes_text(b, "ctorch._utils\n_rebuild_tensor_v2\n((");
    pickle_string(b, "storage");
    bytes_text(b, "ctorch\n");
    bytes_text(b, storage_class);
    bytes_text(b, "\n");
    pickle_string(b, key);
    pickle_string(b, "cpu");
    pickle_int(b, numel);
    bytes_text(b, "tQ");
    pickle_int(b, offset);
    pickle_ints(b, n_dims, shape);
    pickle_ints(b, n_dims, stride);
    bytes_text(b, "\x89"
                  "ccollections\nOrderedDict\n)RtR");
}

void bytes_pickle_end(struct bytes *b)
{
    bytes_text(b, "u.");
}

enum { MAX_MEMBERS = 16 };

void bytes_zip(struct bytes *b, const struct zip_member *members, size_t n)
{
    size_t offsets[MAX_MEMBERS];
    for (size_t i = 0; i < n && i < MAX_MEMBERS; i++) {
        const size_t n_name = strlen(members[i].name);
        const size_t extra = 4 + (64 - (b->n + 30 + n_name + 4) % 64) % 64;
        offsets[i] = b->n;
        bytes_put(b, "PK\3\4\0\0\x08\x08\0\0", 10);
        bytes_uint(b, 0, 16);
        bytes_uint(b, n_name, 2);
        bytes_uint(b, extra, 2);
        bytes_text(b, members[i].name);
        bytes_text(b, "FB");
        bytes_uint(b, extra - 4, 2);
        bytes_uint(b, 0, extra - 4);
        bytes_put(b, members[i].data, members[i].n);
    }
    const size_t directory = b->n;
    for (size_t i = 0; i < n && i < MAX_MEMBERS; i++) {
        bytes_put(b, "PK\1\2\0\0\0\0\x08\x08\0\0", 12);
        bytes_uint(b, 0, 8); /* time, checksum */
        bytes_uint(b, members[i].n, 4);
        bytes_uint(b, members[i].n, 4);
        bytes_uint(b, strlen(members[i].name), 2);
        bytes_uint(b, 0, 12);
        bytes_uint(b, offsets[i], 4);
        bytes_text(b, members[i].name);
    }
    const size_t n_directory = b->n - directory;
    bytes_put(b, "PK\5\6\0\0\0\0", 8);
    bytes_uint(b, n, 2);
    bytes_uint(b, n, 2);
    bytes_uint(b, n_directory, 4);
    bytes_uint(b, directory, 4);
    bytes_uint(b, 0, 2);
}
