/*
 * reffile.h - reference values: a safetensors file of named float32 or int32 arrays, read and written whole.
 *
 * Inputs are called in.*, outputs out.*. Independent of src/checkpoint, which has its own tests.
 */
#ifndef TESTS_TOOLS_REFFILE_H
#define TESTS_TOOLS_REFFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { REF_MAX_DIMS = 4, REF_NAME_BYTES = 96 };

struct ref_array {
    char name[REF_NAME_BYTES];
    int n_dims;
    int64_t shape[REF_MAX_DIMS];
    size_t count;
    bool is_int;
    union {
        float *f;
        int32_t *i;
    } values;
};

struct reffile {
    struct ref_array *arrays;
    size_t n, capacity;
};

utter_status reffile_read(struct reffile *r, const char *path, struct error *e);
utter_status reffile_write(const struct reffile *r, const char *path, struct error *e);
void reffile_free(struct reffile *r); /* a zeroed one is fine */

struct ref_array *reffile_find(const struct reffile *r, const char *name); /* NULL when absent */

/* A new array, values zero, valid until the file is freed; the returned pointer until the next add. Tools may run out of
 * memory only fatally. */
struct ref_array *reffile_add(struct reffile *r, const char *name, bool is_int, int n_dims, const int64_t *shape);

/* One more item along the first dimension (of 1 or more): where its values go. */
float *reffile_append(struct ref_array *a);

/* Largest absolute difference and largest absolute reference; infinite where a value is not finite. */
void ref_compare(const struct ref_array *reference, const struct ref_array *value, double *difference,
                 double *magnitude);
bool ref_same_shape(const struct ref_array *a, const struct ref_array *b);

#endif
