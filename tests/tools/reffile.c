#include "tools/reffile.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"

static void *need(void *p)
{
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

void reffile_free(struct reffile *r)
{
    for (size_t i = 0; i < r->n; i++) free(r->arrays[i].values.f);
    free(r->arrays);
    *r = (struct reffile){0};
}

struct ref_array *reffile_find(const struct reffile *r, const char *name)
{
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->arrays[i].name, name) == 0) return &r->arrays[i];
    return NULL;
}

struct ref_array *reffile_add(struct reffile *r, const char *name, bool is_int, int n_dims, const int64_t *shape)
{
    if (r->n == r->capacity) {
        r->capacity = r->capacity * 2 + 32;
        r->arrays = need(realloc(r->arrays, r->capacity * sizeof *r->arrays));
    }
    struct ref_array *a = &r->arrays[r->n++];
    *a = (struct ref_array){.n_dims = n_dims, .is_int = is_int, .count = 1};
    snprintf(a->name, sizeof a->name, "%s", name);
    for (int i = 0; i < n_dims; i++) a->count *= (size_t)(a->shape[i] = shape[i]);
    a->values.f = need(calloc(a->count + 1, 4));
    return a;
}

float *reffile_append(struct ref_array *a)
{
    const size_t item = a->count / (size_t)a->shape[0];
    a->values.f = need(realloc(a->values.f, (a->count + item + 1) * sizeof(float)));
    a->shape[0]++;
    a->count += item;
    return a->values.f + a->count - item;
}

/* ---- files -------------------------------------------------------------------------------------------------------- */

static utter_status read_array(struct reffile *r, const char *name, json_t *j, const char *path,
                               const unsigned char *data, size_t n_bytes, struct error *e)
{
    const char *dtype = json_string_value(json_object_get(j, "dtype"));
    json_t *dims = json_object_get(j, "shape"), *offsets = json_object_get(j, "data_offsets");
    const json_int_t begin = json_integer_value(json_array_get(offsets, 0)),
                     end = json_integer_value(json_array_get(offsets, 1));
    const bool is_int = dtype && strcmp(dtype, "I32") == 0;
    if (!dtype || (!is_int && strcmp(dtype, "F32") != 0) || json_array_size(dims) > REF_MAX_DIMS)
        return error_set(e, UTTER_INPUT_UNREADABLE, "%s: %s: not an F32 or I32 array of at most %d dimensions", path,
                         name, REF_MAX_DIMS);
    int64_t shape[REF_MAX_DIMS];
    size_t bytes = 4;
    for (size_t i = 0; i < json_array_size(dims); i++) {
        shape[i] = json_integer_value(json_array_get(dims, i));
        if (shape[i] < 0 || !size_mul(bytes, (size_t)shape[i], &bytes)) bytes = SIZE_MAX;
    }
    if (begin < 0 || end < begin || (size_t)end > n_bytes || (size_t)(end - begin) != bytes)
        return error_set(e, UTTER_INPUT_UNREADABLE, "%s: %s: its bytes do not fit its shape or the file", path, name);
    struct ref_array *a = reffile_add(r, name, is_int, (int)json_array_size(dims), shape);
    memcpy(a->values.f, data + begin, bytes);
    return UTTER_OK;
}

utter_status reffile_read(struct reffile *r, const char *path, struct error *e)
{
    *r = (struct reffile){0};
    struct file_map map;
    utter_status status = file_map_open(&map, path, e);
    if (status != UTTER_OK) return status;
    uint64_t length = 0;
    for (size_t k = 0; k < 8 && k < map.n_bytes; k++) length |= (uint64_t)map.data[k] << 8 * k;
    json_t *header = NULL, *j;
    if (map.n_bytes >= 8 && length <= map.n_bytes - 8) header = json_loadb((const char *)map.data + 8, length, 0, NULL);
    if (!json_is_object(header)) status = error_set(e, UTTER_INPUT_UNREADABLE, "%s: not a safetensors file", path);
    const char *name;
    json_object_foreach(header, name, j)
    {
        if (status != UTTER_OK) break;
        if (strcmp(name, "__metadata__") != 0)
            status = read_array(r, name, j, path, map.data + 8 + length, map.n_bytes - 8 - length, e);
    }
    json_decref(header);
    file_map_close(&map);
    if (status != UTTER_OK) reffile_free(r);
    return status;
}

utter_status reffile_write(const struct reffile *r, const char *path, struct error *e)
{
    FILE *f = fopen(path, "wb");
    if (!f) return error_set(e, UTTER_OUTPUT_UNWRITABLE, "%s: cannot be written", path);
    json_t *header = json_object();
    size_t offset = 0;
    for (size_t i = 0; i < r->n; i++) {
        const struct ref_array *a = &r->arrays[i];
        json_t *dims = json_array();
        for (int d = 0; d < a->n_dims; d++) json_array_append_new(dims, json_integer(a->shape[d]));
        json_object_set_new(header, a->name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", a->is_int ? "I32" : "F32", "shape", dims,
                                      "data_offsets", (json_int_t)offset, (json_int_t)(offset + 4 * a->count)));
        offset += 4 * a->count;
    }
    char *text = need(json_dumps(header, JSON_COMPACT));
    const uint64_t length = (strlen(text) + 7) / 8 * 8;
    for (int k = 0; k < 8; k++) fputc((int)(length >> 8 * k & 255), f);
    fprintf(f, "%-*s", (int)length, text);
    for (size_t i = 0; i < r->n; i++) fwrite(r->arrays[i].values.f, 4, r->arrays[i].count, f);
    free(text);
    json_decref(header);
    const bool failed = ferror(f) != 0;
    if ((fclose(f) != 0) | failed) return error_set(e, UTTER_OUTPUT_UNWRITABLE, "%s: write failed", path);
    return UTTER_OK;
}

/* ---- comparing ---------------------------------------------------------------------------------------------------- */

bool ref_same_shape(const struct ref_array *a, const struct ref_array *b)
{
    return a->n_dims == b->n_dims && memcmp(a->shape, b->shape, (size_t)a->n_dims * sizeof a->shape[0]) == 0;
}

static double value_at(const struct ref_array *a, size_t i)
{
    return a->is_int ? (double)a->values.i[i] : (double)a->values.f[i];
}

void ref_compare(const struct ref_array *reference, const struct ref_array *value, double *difference,
                 double *magnitude)
{
    *difference = *magnitude = 0;
    for (size_t i = 0; i < reference->count; i++) {
        const double a = value_at(reference, i), d = fabs(a - value_at(value, i));
        if (fabs(a) > *magnitude) *magnitude = fabs(a);
        if (!(d <= *difference)) *difference = isnan(d) ? INFINITY : d;
    }
}
