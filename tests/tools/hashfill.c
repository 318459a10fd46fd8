#include "tools/hashfill.h"

#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"

enum { CHUNK = 1 << 16, NAME_MAX_BYTES = 512 };

static double uniform(struct rng r, uint64_t i)
{
    return (double)(rng_bits(r, i) >> 40) * 0x1p-24;
}

static struct rng stream_of(const char *text)
{
    return (struct rng){fnv1a64(text)};
}

void hashfill_draw(const char *stream, size_t first, size_t n, double a, double b, float *out)
{
    const struct rng r = stream_of(stream);
    for (size_t i = 0; i < n; i++) out[i] = (float)(b + a * (2.0 * uniform(r, first + i) - 1.0));
}

void hashfill_normal(const char *stream, size_t n, float *out)
{
    char name[NAME_MAX_BYTES];
    snprintf(name, sizeof name, "%s#u1", stream);
    const struct rng r1 = stream_of(name);
    snprintf(name, sizeof name, "%s#u2", stream);
    const struct rng r2 = stream_of(name);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(sqrt(-2.0 * log(1.0 - uniform(r1, i))) * cos(2.0 * M_PI * uniform(r2, i)));
}

void hashfill_integers(const char *stream, size_t n, int low, int high, int32_t *out)
{
    const struct rng r = stream_of(stream);
    for (size_t i = 0; i < n; i++) out[i] = (int32_t)(low + floor(uniform(r, i) * (high - low)));
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

struct row { /* one tensor of a list */
    const char *name;
    bool is_float;
    json_t *shape;
    size_t count;
    double a, b;
};

static utter_status read_row(struct row *row, json_t *j, const char *spec_path, struct error *e)
{
    *row = (struct row){.name = json_string_value(json_object_get(j, "name")), .shape = json_object_get(j, "shape")};
    const char *dtype = json_string_value(json_object_get(j, "dtype"));
    if (!row->name || !dtype || !json_is_array(row->shape))
        return error_set(e, UTTER_INPUT_UNREADABLE, "%s: a tensor lacks its name, dtype or shape", spec_path);
    row->is_float = strcmp(dtype, "float32") == 0;
    if (!row->is_float && strcmp(dtype, "int64") != 0)
        return error_set(e, UTTER_INPUT_UNREADABLE, "%s: tensor %s: dtype is %s, expected float32 or int64", spec_path,
                         row->name, dtype);
    row->count = 1;
    size_t i;
    json_t *dim;
    json_array_foreach(row->shape, i,
                       dim) if (json_integer_value(dim) < 0 ||
                                !size_mul(row->count, (size_t)json_integer_value(dim),
                                          &row->count)) return error_set(e, UTTER_INPUT_UNREADABLE,
                                                                         "%s: tensor %s: impossible shape", spec_path,
                                                                         row->name);
    row->a = json_number_value(json_object_get(j, "a"));
    row->b = json_number_value(json_object_get(j, "b"));
    return UTTER_OK;
}

/* The safetensors header: a little-endian length, then JSON padded to a multiple of eight. */
static utter_status write_header(FILE *f, json_t *tensors, const char *spec_path, struct error *e)
{
    json_t *header = json_object(), *j;
    size_t i, offset = 0;
    utter_status status = UTTER_OK;
    json_array_foreach(tensors, i, j)
    {
        struct row row;
        if ((status = read_row(&row, j, spec_path, e)) != UTTER_OK) break;
        const size_t end = offset + row.count * (row.is_float ? 4 : 8);
        json_object_set_new(header, row.name,
                            json_pack("{s:s, s:O, s:[I, I]}", "dtype", row.is_float ? "F32" : "I64", "shape", row.shape,
                                      "data_offsets", (json_int_t)offset, (json_int_t)end));
        offset = end;
    }
    char *text = status == UTTER_OK ? json_dumps(header, JSON_COMPACT) : NULL;
    if (text) {
        const uint64_t length = (strlen(text) + 7) / 8 * 8;
        unsigned char prefix[8];
        for (int k = 0; k < 8; k++) prefix[k] = (unsigned char)(length >> 8 * k);
        fwrite(prefix, 1, 8, f);
        fprintf(f, "%-*s", (int)length, text);
        free(text);
    }
    json_decref(header);
    return status;
}

static void write_tensor(FILE *f, const struct row *row, const char *tag)
{
    static float chunk[CHUNK];
    char stream[NAME_MAX_BYTES];
    snprintf(stream, sizeof stream, "%s/%s", tag, row->name);
    if (!row->is_float) memset(chunk, 0, sizeof chunk);
    for (size_t first = 0; first < row->count;) {
        const size_t left = row->count - first, most = row->is_float ? CHUNK : CHUNK / 2, n = left < most ? left : most;
        if (row->is_float) hashfill_draw(stream, first, n, row->a, row->b, chunk);
        fwrite(chunk, row->is_float ? 4 : 8, n, f);
        first += n;
    }
}

utter_status hashfill_checkpoint(const char *spec_path, const char *out_path, struct error *e)
{
    json_error_t je;
    json_t *spec = json_load_file(spec_path, 0, &je);
    if (!spec) return error_set(e, UTTER_INPUT_UNREADABLE, "%s: %s (line %d)", spec_path, je.text, je.line);
    utter_status status = UTTER_OK;
    FILE *f = NULL;
    const char *tag = json_string_value(json_object_get(spec, "file"));
    json_t *tensors = json_object_get(spec, "tensors"), *j;
    if (!tag || !json_is_array(tensors)) {
        status = error_set(e, UTTER_INPUT_UNREADABLE, "%s: not a list of tensors", spec_path);
        goto done;
    }
    if (!(f = fopen(out_path, "wb"))) {
        status = error_set(e, UTTER_OUTPUT_UNWRITABLE, "%s: cannot be written", out_path);
        goto done;
    }
    if ((status = write_header(f, tensors, spec_path, e)) != UTTER_OK) goto done;
    size_t i;
    json_array_foreach(tensors, i, j)
    {
        struct row row;
        if ((status = read_row(&row, j, spec_path, e)) != UTTER_OK) goto done;
        write_tensor(f, &row, tag);
        if (ferror(f)) break;
    }
done:
    if (f && (ferror(f) | (fclose(f) != 0)) && status == UTTER_OK)
        status = error_set(e, UTTER_OUTPUT_UNWRITABLE, "%s: write failed", out_path);
    json_decref(spec);
    return status;
}

/* ---- folders ------------------------------------------------------------------------------------------------------ */

utter_status hashfill_folder(char folder[static 64], const char *spec_folder, const char *const *tags, struct error *e)
{
    const char *tmp = getenv("TMPDIR");
    if (snprintf(folder, 64, "%s/utter-test-XXXXXX", tmp && strlen(tmp) < 40 ? tmp : "/tmp") >= 64 || !mkdtemp(folder))
        return error_set(e, UTTER_OUTPUT_UNWRITABLE, "cannot make a temporary folder");
    for (; *tags; tags++) {
        char spec[1024], out[1024];
        snprintf(spec, sizeof spec, "%s/spec-%s.json", spec_folder, *tags);
        snprintf(out, sizeof out, "%s/%s.safetensors", folder, *tags);
        utter_status status = hashfill_checkpoint(spec, out, e);
        if (status != UTTER_OK) {
            hashfill_remove_folder(folder);
            return status;
        }
    }
    return UTTER_OK;
}

void hashfill_remove_folder(const char *folder)
{
    DIR *d = opendir(folder);
    if (!d) return;
    for (struct dirent *entry; (entry = readdir(d));) {
        char path[1024];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        unlink(path);
    }
    closedir(d);
    rmdir(folder);
}
