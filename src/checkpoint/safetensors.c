/*
 * safetensors: [u64 n] [n bytes of JSON: name -> {dtype, shape, data_offsets: [begin, end]}] [data]; offsets count from
 * the end of the JSON. An optional "__metadata__" maps strings to strings. A name that stands twice is refused by table_finish.
 */
#include <string.h>

#include "checkpoint/json_parts.h"
#include "checkpoint/readers.h"

/* The longest header read; real ones are below 1 MiB. Bounds the memory of the parsed JSON. */
enum { MAX_HEADER = 8 << 20 };

static const struct {
    const char *name;
    enum dtype type;
} types[] = {{"F32", DTYPE_F32}, {"F16", DTYPE_F16}, {"BF16", DTYPE_BF16}, {"F64", DTYPE_F64}, {"I8", DTYPE_I8},
             {"U8", DTYPE_U8},   {"I16", DTYPE_I16}, {"I32", DTYPE_I32},   {"I64", DTYPE_I64}, {"BOOL", DTYPE_BOOL}};

static bool find_type(const char *name, enum dtype *type)
{
    for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) {
            *type = types[i].type;
            return true;
        }
    return false;
}

static utter_status add_tensor(struct checkpoint *ck, int file, uint64_t data_start, const char *name,
                               const json_t *entry, struct error *e)
{
    const char *path = ck->files[file].path;
    const json_t *shape = json_object_get(entry, "shape"), *range = json_object_get(entry, "data_offsets");
    const char *type_name = json_string_value(json_object_get(entry, "dtype"));
    if (strlen(name) > TABLE_MAX_NAME)
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: tensor %.64s...: a name of %zu bytes", path, name, strlen(name));
    struct tensor t = {.name = name};
    if (!find_type(type_name, &t.type))
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: tensor %s: dtype %s is not known", path, name,
                         type_name ? type_name : "(none)");
    if (!json_is_array(shape) || json_array_size(shape) > TENSOR_MAX_DIMS)
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: tensor %s: expected a shape of at most %d dimensions, found %zu",
                         path, name, TENSOR_MAX_DIMS, json_array_size(shape));
    t.n_dims = (int)json_array_size(shape);
    for (int i = 0; i < t.n_dims; i++) { /* what is no integer counts as 0, which table_add refuses */
        t.shape[i] = json_integer_value(json_array_get(shape, (size_t)i));
    }
    const json_int_t begin = json_integer_value(json_array_get(range, 0)),
                     end = json_integer_value(json_array_get(range, 1));
    if (json_array_size(range) != 2 || begin < 0 || end <= begin)
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: tensor %s: data_offsets [%lld, %lld] are no range", path, name,
                         (long long)begin, (long long)end);
    t.n_bytes = (size_t)(end - begin);
    return table_add(ck, file, &t, data_start + (uint64_t)begin, e);
}

static utter_status add_metadata(struct checkpoint *ck, int file, json_t *entries, struct error *e)
{
    const char *key;
    json_t *value;
    json_object_foreach(entries, key, value)
    {
        if (!json_is_string(value))
            return error_set(e, UTTER_MODEL_DAMAGED, "%s: __metadata__ %s: expected a string", ck->files[file].path,
                             key);
        const struct meta m = {.key = table_text(ck, key, strlen(key)),
                               .type = META_STRING,
                               .count = 1,
                               .as.string = table_text(ck, json_string_value(value), json_string_length(value))};
        if (!m.key || !m.as.string) return table_out_of_memory(ck, e);
        const utter_status s = table_add_meta(ck, file, &m, e);
        if (s != UTTER_OK) return s;
    }
    return UTTER_OK;
}

struct reading {
    struct checkpoint *ck;
    int file;
    uint64_t data_start;
};

static utter_status add_members(void *user, json_t *members, struct error *e)
{
    const struct reading *r = user;
    const char *name;
    json_t *entry;
    utter_status s = UTTER_OK;
    json_object_foreach(members, name, entry)
    {
        s = strcmp(name, "__metadata__") == 0 ? add_metadata(r->ck, r->file, entry, e)
                                              : add_tensor(r->ck, r->file, r->data_start, name, entry, e);
        if (s != UTTER_OK) break;
    }
    return s;
}

utter_status safetensors_read(struct checkpoint *ck, int file, struct error *e)
{
    const struct table_file *f = &ck->files[file];
    uint64_t n = 0;
    if (f->map.n_bytes < sizeof n + 2)
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: %zu bytes are too few for a model", f->path, f->map.n_bytes);
    memcpy(&n, f->map.data, sizeof n);
    if (n < 2 || n > f->map.n_bytes - sizeof n)
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: a header of %llu bytes in a file of %zu: cut short or damaged?",
                         f->path, (unsigned long long)n, f->map.n_bytes);
    if (n > MAX_HEADER)
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: a header of %llu bytes; at most %d are read", f->path,
                         (unsigned long long)n, MAX_HEADER);
    const size_t first = ck->n_entries;
    struct reading r = {ck, file, sizeof n + n};
    const utter_status s = json_object_parts((const char *)f->map.data + sizeof n, (size_t)n, f->path,
                                             "the header is not a JSON object", ck->cancel, add_members, &r, e);
    return s == UTTER_OK ? table_refuse_overlaps(ck, first, e) : s;
}
