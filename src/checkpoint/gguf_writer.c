#include "checkpoint/gguf_writer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/part_file.h"
#include "checkpoint/gguf.h"

struct bytes {
    unsigned char *data;
    size_t n, capacity;
};

struct gguf_writer {
    FILE *file;
    char *path;
    struct part_file part;
    struct error *e;
    utter_status status; /* the first failure latches */
    struct bytes keys, infos;
    uint64_t n_keys, n_tensors;
    size_t *sizes; /* of the declared tensors */
    size_t size_capacity;
    size_t current, written; /* the tensor being written, and how much of it */
    uint64_t data_bytes;     /* declared so far, padding included */
    size_t n_bytes;          /* of the file so far */
    bool data_begun;
};

/* ---- buffers ---- */

static void fail_memory(struct gguf_writer *w)
{
    if (w->status == UTTER_OK) w->status = error_set(w->e, UTTER_OUT_OF_MEMORY, "%s: no memory to write it", w->path);
}

static void put(struct gguf_writer *w, struct bytes *b, const void *data, size_t n)
{
    if (w->status != UTTER_OK || n == 0) return;
    if (n > b->capacity - b->n) {
        const size_t capacity = 2 * (b->n + n) + 4096;
        unsigned char *grown = mem_realloc(b->data, capacity);
        if (!grown) {
            fail_memory(w);
            return;
        }
        b->data = grown;
        b->capacity = capacity;
    }
    memcpy(b->data + b->n, data, n);
    b->n += n;
}

static void put_uint(struct gguf_writer *w, struct bytes *b, uint64_t v, size_t n)
{
    unsigned char le[8];
    for (size_t i = 0; i < n; i++) le[i] = (unsigned char)(v >> (8 * i));
    put(w, b, le, n);
}

static void put_string(struct gguf_writer *w, struct bytes *b, const char *text, size_t n)
{
    put_uint(w, b, n, 8);
    put(w, b, text, n);
}

/* ---- metadata ---- */

static void begin_key(struct gguf_writer *w, const char *key, enum gguf_type type)
{
    put_string(w, &w->keys, key, strlen(key));
    put_uint(w, &w->keys, type, 4);
    w->n_keys++;
}

static void begin_array(struct gguf_writer *w, const char *key, enum gguf_type type, size_t n)
{
    begin_key(w, key, GGUF_ARRAY);
    put_uint(w, &w->keys, type, 4);
    put_uint(w, &w->keys, n, 8);
}

void gguf_write_uint(struct gguf_writer *w, const char *key, uint32_t value)
{
    begin_key(w, key, GGUF_U32);
    put_uint(w, &w->keys, value, 4);
}

void gguf_write_float(struct gguf_writer *w, const char *key, float value)
{
    begin_key(w, key, GGUF_F32);
    put(w, &w->keys, &value, 4);
}

void gguf_write_bool(struct gguf_writer *w, const char *key, bool value)
{
    begin_key(w, key, GGUF_BOOL);
    put_uint(w, &w->keys, value, 1);
}

void gguf_write_string(struct gguf_writer *w, const char *key, const char *value, size_t n_bytes)
{
    begin_key(w, key, GGUF_STRING);
    put_string(w, &w->keys, value, n_bytes);
}

void gguf_write_strings(struct gguf_writer *w, const char *key, const char *const *values, size_t n)
{
    begin_array(w, key, GGUF_STRING, n);
    for (size_t i = 0; i < n; i++) put_string(w, &w->keys, values[i], strlen(values[i]));
}

void gguf_write_ints(struct gguf_writer *w, const char *key, const int32_t *values, size_t n)
{
    begin_array(w, key, GGUF_I32, n);
    put(w, &w->keys, values, n * sizeof *values);
}

/* ---- tensors ---- */

static size_t padding(uint64_t n)
{
    return (size_t)(-n & (GGUF_WRITER_ALIGNMENT - 1));
}

void gguf_declare(struct gguf_writer *w, const struct tensor *t)
{
    const size_t n_bytes = tensor_count(t) / (size_t)dtype_block(t->type) * dtype_block_bytes(t->type);
    if (w->n_tensors == w->size_capacity) {
        const size_t capacity = w->size_capacity ? 2 * w->size_capacity : 256;
        size_t *sizes = mem_realloc(w->sizes, capacity * sizeof *sizes);
        if (!sizes) {
            fail_memory(w);
            return;
        }
        w->sizes = sizes;
        w->size_capacity = capacity;
    }
    put_string(w, &w->infos, t->name, strlen(t->name));
    put_uint(w, &w->infos, (uint64_t)t->n_dims, 4);
    for (int i = t->n_dims; i-- > 0;) put_uint(w, &w->infos, (uint64_t)t->shape[i], 8);
    put_uint(w, &w->infos, (uint64_t)gguf_tensor_type(t->type), 4);
    put_uint(w, &w->infos, w->data_bytes, 8);
    w->sizes[w->n_tensors++] = n_bytes;
    w->data_bytes += n_bytes + padding(n_bytes);
}

static void write_bytes(struct gguf_writer *w, const void *data, size_t n)
{
    if (w->status != UTTER_OK || n == 0) return;
    if (fwrite(data, 1, n, w->file) != n)
        w->status = error_set(w->e, UTTER_OUTPUT_UNWRITABLE, "%s: %s", w->path, strerror(errno));
    w->n_bytes += n;
}

static void write_padding(struct gguf_writer *w)
{
    static const unsigned char zeros[GGUF_WRITER_ALIGNMENT];
    write_bytes(w, zeros, padding(w->n_bytes));
}

static void begin_data(struct gguf_writer *w)
{
    struct bytes header = {0};
    gguf_write_uint(w, "general.alignment", GGUF_WRITER_ALIGNMENT);
    put(w, &header, "GGUF", 4);
    put_uint(w, &header, GGUF_VERSION, 4);
    put_uint(w, &header, w->n_tensors, 8);
    put_uint(w, &header, w->n_keys, 8);
    write_bytes(w, header.data, header.n);
    write_bytes(w, w->keys.data, w->keys.n);
    write_bytes(w, w->infos.data, w->infos.n);
    write_padding(w);
    mem_free(header.data);
    w->data_begun = true;
}

void gguf_write_data(struct gguf_writer *w, const void *data, size_t n_bytes)
{
    if (!w->data_begun) begin_data(w);
    if (w->status == UTTER_OK && (w->current >= w->n_tensors || n_bytes > w->sizes[w->current] - w->written))
        w->status = error_set(w->e, UTTER_INVALID_ARGUMENT, "%s: more bytes than its tensors have", w->path);
    if (w->status != UTTER_OK) return;
    write_bytes(w, data, n_bytes);
    w->written += n_bytes;
    if (w->written < w->sizes[w->current]) return;
    write_padding(w);
    w->current++;
    w->written = 0;
}

/* ---- the file ---- */

utter_status gguf_writer_create(struct gguf_writer **out, const char *path, struct error *e)
{
    *out = NULL;
    struct gguf_writer *w = mem_calloc(1, sizeof *w);
    if (!w || !(w->path = mem_strdup(path))) {
        gguf_writer_destroy(&w);
        return error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory to write it", path);
    }
    w->e = e;
    int fd;
    utter_status status = part_file_create(&w->part, &fd, path, e);
    if (status == UTTER_OK && !(w->file = fdopen(fd, "wb"))) {
        status = error_set(e, UTTER_OUTPUT_UNWRITABLE, "%s: %s", path, strerror(errno));
        close(fd);
    }
    if (status != UTTER_OK) gguf_writer_destroy(&w);
    *out = w;
    return status;
}

void gguf_writer_destroy(struct gguf_writer **out)
{
    struct gguf_writer *w = *out;
    if (!w) return;
    if (w->file) fclose(w->file);
    part_file_discard(&w->part); /* nothing is left of it after finish */
    mem_free(w->keys.data);
    mem_free(w->infos.data);
    mem_free(w->sizes);
    mem_free(w->path);
    mem_free(w);
    *out = NULL;
}

utter_status gguf_finish(struct gguf_writer *w, size_t *n_bytes)
{
    if (!w->data_begun) begin_data(w);
    if (w->status == UTTER_OK && w->current != w->n_tensors)
        w->status = error_set(w->e, UTTER_INVALID_ARGUMENT, "%s: tensor %zu of %llu was not written", w->path,
                              w->current, (unsigned long long)w->n_tensors);
    if (w->status == UTTER_OK && (fflush(w->file) != 0 || fsync(fileno(w->file)) != 0 || !part_file_finish(&w->part)))
        w->status = error_set(w->e, UTTER_OUTPUT_UNWRITABLE, "%s: %s", w->path, strerror(errno));
    *n_bytes = w->n_bytes;
    return w->status;
}
