/*
 * pickle.h - the object tree of a torch file's data.pkl, and nothing that could run. Private to this room.
 *
 * A machine for just the opcodes and classes that a dict of tensors needs (specification section 1.2); every other one is
 * refused by name. Values live in the caller's arena, whose capacity bounds the memory a file can ask for.
 */
#ifndef CHECKPOINT_PICKLE_H
#define CHECKPOINT_PICKLE_H

#include "base/arena.h"
#include "base/tensor.h"

enum pickle_kind {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_FLOAT,
    PICKLE_STRING,
    PICKLE_TUPLE,
    PICKLE_LIST,
    PICKLE_DICT, /* items are key, value, key, value, ... */
    PICKLE_CLASS,
    PICKLE_STORAGE,
    PICKLE_TENSOR
};

struct pickle_value {
    enum pickle_kind kind;
    union {
        int64_t i;
        double f;
        const char *string; /* NUL-terminated; embedded NULs are refused */
        struct {
            struct pickle_value **items;
            size_t n, capacity;
        } list; /* of a tuple, list or dict */
        const struct pickle_class *class;
        struct {
            enum dtype type;
            const char *key; /* the member data/KEY of the archive */
            int64_t count;
        } storage;
        struct {
            const struct pickle_value *storage;
            int64_t offset;                            /* in elements */
            const struct pickle_value *shape, *stride; /* tuples of ints of equal length */
        } tensor;
    } as;
};

/* *out: the object before STOP. `where` begins every message. */
utter_status pickle_parse(const struct pickle_value **out, struct arena *memory, const unsigned char *data,
                          size_t n_bytes, const char *where, struct error *e);

#endif
