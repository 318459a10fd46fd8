/*
 * bytes.h - model files byte by byte, sound or hostile, for tests and fuzz seeds.
 */
#ifndef TESTS_TOOLS_BYTES_H
#define TESTS_TOOLS_BYTES_H

#include <stddef.h>
#include <stdint.h>

struct bytes { /* zeroed at first; freed with free(data) */
    unsigned char *data;
    size_t n, capacity;
};

void bytes_put(struct bytes *b, const void *data, size_t n);
void bytes_text(struct bytes *b, const char *text);           /* without its NUL */
void bytes_uint(struct bytes *b, uint64_t v, size_t n_bytes); /* little-endian */
void bytes_count(struct bytes *b, size_t n);                  /* n bytes 0, 1, 2, ... */

void bytes_write(const struct bytes *b, const char *path);

/* The header's length as given, its text, n_data bytes. */
void bytes_safetensors(struct bytes *b, uint64_t header_bytes, const char *header, size_t n_data);

void bytes_gguf(struct bytes *b, uint64_t n_tensors, uint64_t n_keys);
void bytes_gguf_string(struct bytes *b, const char *text);
void bytes_gguf_key(struct bytes *b, const char *key, uint32_t type); /* the value follows */
void bytes_gguf_tensor(struct bytes *b, const char *name, uint32_t n_dims, const uint64_t *ne, uint32_t type,
                       uint64_t offset);
void bytes_pad(struct bytes *b, size_t alignment);

/* A pickled dict of tensors: begin, any number of tensors, end. storage_class as "FloatStorage". */
void bytes_pickle_begin(struct bytes *b);
void bytes_pickle_tensor(struct bytes *b, const char *name, const char *storage_class, const char *key, uint16_t numel,
                         uint16_t offset, size_t n_dims, const uint16_t *shape, const uint16_t *stride);
void bytes_pickle_end(struct bytes *b);

struct zip_member {
    const char *name;
    const void *data;
    size_t n;
};
/* Stored members as torch writes them: sizes only in the directory, data aligned by the local extra field. */
void bytes_zip(struct bytes *b, const struct zip_member *members, size_t n);

#endif
