/*
 * gguf.h - the numbers of the GGUF format, shared by its reader and its writer. Private to this room.
 *
 *     "GGUF" u32 version  u64 n_tensors  u64 n_keys
 *     n_keys    x  { string key, u32 value type, value }       string: u64 n, n bytes; array: u32 type, u64 n, values
 *     n_tensors x  { string name, u32 n_dims, u64 ne[n_dims], u32 type, u64 offset }   ne: fastest dimension first
 *     padding to general.alignment, then the data; offsets count from there and are multiples of the alignment
 *
 * Everything is little-endian.
 */
#ifndef CHECKPOINT_GGUF_H
#define CHECKPOINT_GGUF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tensor.h"

enum { GGUF_VERSION = 3, GGUF_DEFAULT_ALIGNMENT = 32 };

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPE_COUNT
};

/* ggml's number of a tensor type; -1 when it has none. And back; false for a type that is not read. */
int gguf_tensor_type(enum dtype t);
bool gguf_dtype(uint32_t ggml_type, enum dtype *t);

#endif
