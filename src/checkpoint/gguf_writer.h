/*
 * gguf_writer.h - writes a GGUF v3 file from front to back.
 *
 * Order: create, metadata, declare every tensor, then the tensors' bytes in the declared order in pieces of any size, then
 * finish. The file is a part file (base/part_file.h) until finish, so PATH is either whole or untouched. Errors latch: only finish
 * reports them. One thread.
 */
#ifndef CHECKPOINT_GGUF_WRITER_H
#define CHECKPOINT_GGUF_WRITER_H

#include "base/error.h"
#include "base/tensor.h"

struct gguf_writer;

enum { GGUF_WRITER_ALIGNMENT = 64 }; /* a cache line, so that kernels can use the mapped data as it lies */

utter_status gguf_writer_create(struct gguf_writer **out, const char *path, struct error *e);
void gguf_writer_destroy(struct gguf_writer **w); /* removes the file unless finished */

void gguf_write_uint(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_write_float(struct gguf_writer *w, const char *key, float value);
void gguf_write_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_write_string(struct gguf_writer *w, const char *key, const char *value, size_t n_bytes);
void gguf_write_strings(struct gguf_writer *w, const char *key, const char *const *values, size_t n);
void gguf_write_ints(struct gguf_writer *w, const char *key, const int32_t *values, size_t n);

/* t: name, type, n_dims and shape. */
void gguf_declare(struct gguf_writer *w, const struct tensor *t);
void gguf_write_data(struct gguf_writer *w, const void *data, size_t n_bytes);

/* Writes what is buffered and gives the file its name. *n_bytes: its size. */
utter_status gguf_finish(struct gguf_writer *w, size_t *n_bytes);

#endif
