#include "checkpoint/gguf.h"

#include <string.h>

#include "checkpoint/readers.h"

/* ---- types ---- */

static const struct {
    enum dtype type;
    uint32_t ggml;
} tensor_types[] = {{DTYPE_F32, 0},  {DTYPE_F16, 1},  {DTYPE_Q4_0, 2}, {DTYPE_Q5_0, 6}, {DTYPE_Q8_0, 8}, {DTYPE_I8, 24},
                    {DTYPE_I16, 25}, {DTYPE_I32, 26}, {DTYPE_I64, 27}, {DTYPE_F64, 28}, {DTYPE_BF16, 30}};

int gguf_tensor_type(enum dtype t)
{
    for (size_t i = 0; i < sizeof tensor_types / sizeof *tensor_types; i++)
        if (tensor_types[i].type == t) return (int)tensor_types[i].ggml;
    return -1;
}

bool gguf_dtype(uint32_t ggml_type, enum dtype *t)
{
    for (size_t i = 0; i < sizeof tensor_types / sizeof *tensor_types; i++)
        if (tensor_types[i].ggml == ggml_type) {
            *t = tensor_types[i].type;
            return true;
        }
    return false;
}

static const unsigned char value_bytes[GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* ---- a cursor over the file: the first failure latches, and then everything reads as nothing ---- */

struct cursor {
    struct checkpoint *ck;
    int file;
    const char *path;
    const unsigned char *data;
    size_t n_bytes, at;
    struct error *e;
    utter_status status;
    const char *what; /* the key or tensor being read, for messages */
    uint64_t alignment;
    char name[TABLE_MAX_NAME + 1]; /* of the tensor being read */
};

/* Far above real files, whose longest array are the 100,000 merges of a tokenizer and longest string its JSON. */
enum { MAX_ARRAY = 1 << 22, MAX_STRING = 64 << 20 };

#define FAIL(c, ...)                                                                                                   \
    do {                                                                                                               \
        if ((c)->status == UTTER_OK) (c)->status = error_set((c)->e, UTTER_MODEL_DAMAGED, __VA_ARGS__);                \
    } while (0)

static const unsigned char *take(struct cursor *c, uint64_t n)
{
    if (c->status != UTTER_OK) return NULL;
    if (n > c->n_bytes - c->at) {
        FAIL(c, "%s: %s: needs %llu bytes at byte %zu of a file of %zu: cut short or damaged?", c->path, c->what,
             (unsigned long long)n, c->at, c->n_bytes);
        return NULL;
    }
    c->at += (size_t)n;
    return c->data + c->at - n;
}

static uint64_t take_uint(struct cursor *c, size_t n)
{
    const unsigned char *p = take(c, n);
    uint64_t v = 0;
    for (size_t i = 0; p && i < n; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

/* The bytes of a string, not NUL-terminated and without one inside. */
static const char *take_text(struct cursor *c, size_t max, size_t *n)
{
    const uint64_t length = take_uint(c, 8);
    const unsigned char *p = take(c, length);
    *n = p ? (size_t)length : 0;
    if (p && (length > max || memchr(p, 0, (size_t)length)))
        FAIL(c, "%s: %s: a string of %zu bytes, too long or with a NUL inside", c->path, c->what, *n);
    return c->status == UTTER_OK ? (const char *)p : NULL;
}

/* A copy that lives as long as the checkpoint; "" after a failure. */
static const char *take_string(struct cursor *c, size_t max)
{
    size_t n;
    const char *text = take_text(c, max, &n);
    const char *copy = text ? table_text(c->ck, text, n) : "";
    if (!copy) c->status = table_out_of_memory(c->ck, c->e);
    return copy ? copy : "";
}

/* ---- metadata ---- */

union number {
    uint64_t u;
    int64_t i;
    double f;
};

static enum meta_type number_kind(uint32_t type)
{
    switch (type) {
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64:
        return META_UINT;
    case GGUF_F32:
    case GGUF_F64:
        return META_FLOAT;
    case GGUF_BOOL:
        return META_BOOL;
    default:
        return META_INT;
    }
}

static union number take_number(struct cursor *c, uint32_t type)
{
    const size_t n = value_bytes[type];
    union number v = {.u = take_uint(c, n)};
    if (type == GGUF_F32) {
        const uint32_t bits = (uint32_t)v.u;
        float f;
        memcpy(&f, &bits, sizeof f);
        v.f = f;
    } else if (number_kind(type) == META_INT && n < 8 && v.u >> (8 * n - 1)) {
        v.u |= ~(uint64_t)0 << (8 * n);
    }
    return v;
}

static void take_strings(struct cursor *c, struct meta *m, uint64_t n)
{
    if (n > MAX_ARRAY || n > (c->n_bytes - c->at) / 8) { /* each has at least its length */
        FAIL(c, "%s: %s: an array of %llu strings in a file of %zu bytes", c->path, c->what, (unsigned long long)n,
             c->n_bytes);
        return;
    }
    const char **strings = table_memory(c->ck, (size_t)n * sizeof *strings);
    if (!strings) {
        c->status = table_out_of_memory(c->ck, c->e);
        return;
    }
    for (uint64_t i = 0; i < n && c->status == UTTER_OK; i++) strings[i] = take_string(c, MAX_STRING);
    m->type = META_STRINGS;
    m->as.strings = strings;
}

static void take_numbers(struct cursor *c, struct meta *m, uint32_t type, uint64_t n)
{
    if (n > MAX_ARRAY || n > (c->n_bytes - c->at) / value_bytes[type]) {
        FAIL(c, "%s: %s: an array of %llu numbers in a file of %zu bytes", c->path, c->what, (unsigned long long)n,
             c->n_bytes);
        return;
    }
    const bool is_float = number_kind(type) == META_FLOAT;
    union number *v = table_memory(c->ck, (size_t)n * sizeof *v); /* int64_t and double alike */
    if (!v) {
        c->status = table_out_of_memory(c->ck, c->e);
        return;
    }
    for (uint64_t i = 0; i < n && c->status == UTTER_OK; i++) {
        v[i] = take_number(c, type);
        if (type == GGUF_U64 && v[i].u > INT64_MAX)
            FAIL(c, "%s: %s: element %llu is too large", c->path, c->what, (unsigned long long)i);
    }
    m->type = is_float ? META_FLOATS : META_INTS;
    if (is_float)
        m->as.floats = &v->f;
    else
        m->as.ints = &v->i;
}

static void take_array(struct cursor *c, struct meta *m)
{
    const uint32_t type = (uint32_t)take_uint(c, 4);
    const uint64_t n = take_uint(c, 8);
    m->count = (size_t)n;
    if (type == GGUF_STRING)
        take_strings(c, m, n);
    else if (type < GGUF_TYPE_COUNT && type != GGUF_ARRAY)
        take_numbers(c, m, type, n);
    else
        FAIL(c, "%s: %s: an array of type %u; numbers and strings are read", c->path, c->what, type);
}

static void set_alignment(struct cursor *c, const struct meta *m)
{
    c->alignment = m->type == META_UINT ? m->as.u : 0;
    if (c->alignment < 8 || c->alignment > 1 << 20 || (c->alignment & (c->alignment - 1)) != 0)
        FAIL(c, "%s: metadata key general.alignment: expected a power of two from 8 to 2^20", c->path);
}

static void take_meta(struct cursor *c)
{
    struct meta m = {.key = take_string(c, TABLE_MAX_NAME), .count = 1};
    if (!m.key[0]) FAIL(c, "%s: %s: a key without a name", c->path, c->what);
    c->what = table_format(c->ck, "metadata key %.200s", m.key);
    if (!c->what) c->what = m.key;
    const uint32_t type = (uint32_t)take_uint(c, 4);
    if (type >= GGUF_TYPE_COUNT) {
        FAIL(c, "%s: %s: value type %u is not known", c->path, c->what, type);
    } else if (type == GGUF_ARRAY) {
        take_array(c, &m);
    } else if (type == GGUF_STRING) {
        m.type = META_STRING;
        m.as.string = take_string(c, MAX_STRING);
    } else {
        const union number v = take_number(c, type);
        m.type = number_kind(type);
        if (m.type == META_UINT) m.as.u = v.u;
        if (m.type == META_INT) m.as.i = v.i;
        if (m.type == META_FLOAT) m.as.f = v.f;
        if (m.type == META_BOOL) m.as.b = v.u != 0;
    }
    if (strcmp(m.key, "general.alignment") == 0) set_alignment(c, &m);
    if (c->status == UTTER_OK) c->status = table_add_meta(c->ck, c->file, &m, c->e);
}

/* ---- tensors ---- */

/* One tensor's description, its name in c->name; *offset counts from the start of the data. */
static void take_info(struct cursor *c, struct tensor *t, uint64_t *offset)
{
    size_t n_name;
    const char *name = take_text(c, TABLE_MAX_NAME, &n_name), *place = c->what;
    if (name && n_name == 0) FAIL(c, "%s: %s: a tensor without a name", c->path, c->what);
    if (name) memcpy(c->name, name, n_name);
    c->name[name ? n_name : 0] = 0;
    *t = (struct tensor){.name = c->name};
    if (name) c->what = c->name;
    const uint32_t n_dims = (uint32_t)take_uint(c, 4);
    if (n_dims > TENSOR_MAX_DIMS) {
        FAIL(c, "%s: tensor %s: %u dimensions; at most %d are read", c->path, t->name, n_dims, TENSOR_MAX_DIMS);
        return;
    }
    t->n_dims = (int)n_dims;
    for (int i = t->n_dims; i-- > 0;) {
        const uint64_t n = take_uint(c, 8);
        t->shape[i] = n > INT64_MAX ? INT64_MAX : (int64_t)n; /* table_add refuses it */
    }
    const uint32_t type = (uint32_t)take_uint(c, 4);
    *offset = take_uint(c, 8);
    if (c->status == UTTER_OK && !gguf_dtype(type, &t->type))
        FAIL(c, "%s: tensor %s: ggml type %u is not read (f32, f16, bf16, q8_0, q5_0, q4_0 and integers are)", c->path,
             t->name, type);
    c->what = place;
}

static void add_tensors(struct cursor *c, uint64_t n)
{
    struct tensor t = {0};
    uint64_t offset = 0;
    const size_t infos = c->at, first = c->ck->n_entries;
    const uint64_t alignment = c->alignment;
    c->what = "the list of tensors";
    for (uint64_t i = 0; i < n && c->status == UTTER_OK; i++)
        take_info(c, &t, &offset); /* to find where the data begins */
    const uint64_t start = (c->at + alignment - 1) & ~(alignment - 1);
    c->at = infos;
    for (uint64_t i = 0; i < n && c->status == UTTER_OK; i++) {
        take_info(c, &t, &offset);
        if (offset % alignment != 0)
            FAIL(c, "%s: tensor %s: its offset %llu is no multiple of %llu", c->path, t.name,
                 (unsigned long long)offset, (unsigned long long)alignment);
        else if (offset > UINT64_MAX - start)
            FAIL(c, "%s: tensor %s: its offset %llu is outside the file", c->path, t.name, (unsigned long long)offset);
        if (c->status == UTTER_OK) c->status = table_add(c->ck, c->file, &t, start + offset, c->e);
    }
    if (c->status == UTTER_OK) c->status = table_refuse_overlaps(c->ck, first, c->e);
}

utter_status gguf_read(struct checkpoint *ck, int file, struct error *e)
{
    const struct table_file *f = &ck->files[file];
    struct cursor c = {.ck = ck,
                       .file = file,
                       .path = f->path,
                       .data = f->map.data,
                       .n_bytes = f->map.n_bytes,
                       .e = e,
                       .what = "the header",
                       .alignment = GGUF_DEFAULT_ALIGNMENT};
    take(&c, 4); /* "GGUF" */
    const uint32_t version = (uint32_t)take_uint(&c, 4);
    const uint64_t n_tensors = take_uint(&c, 8), n_keys = take_uint(&c, 8);
    if (c.status == UTTER_OK && version != GGUF_VERSION && version != 2) /* 2 differs in nothing that is read here */
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: GGUF version %u; 2 and 3 are read", f->path, version);
    if (n_keys > TABLE_MAX_METAS)
        FAIL(&c, "%s: %llu metadata keys; at most %d are read", f->path, (unsigned long long)n_keys, TABLE_MAX_METAS);
    if (n_tensors > TABLE_MAX_TENSORS)
        FAIL(&c, "%s: %llu tensors; at most %d are read", f->path, (unsigned long long)n_tensors, TABLE_MAX_TENSORS);
    c.what = "the metadata";
    for (uint64_t i = 0; i < n_keys && c.status == UTTER_OK; i++) take_meta(&c);
    add_tensors(&c, n_tensors);
    return c.status;
}
