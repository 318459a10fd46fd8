#include "checkpoint/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* ---- memory ---- */

struct table_block {
    struct table_block *next;
    size_t used, capacity;
    _Alignas(16) char bytes[];
};

void *table_memory(struct checkpoint *ck, size_t n_bytes)
{
    enum { CHUNK = 64 << 10 };
    size_t rounded;
    if (!size_add(n_bytes, 15, &rounded)) return NULL;
    rounded &= ~(size_t)15;
    struct table_block *b = ck->blocks;
    if (!b || b->capacity - b->used < rounded) {
        const size_t capacity = rounded > CHUNK ? rounded : CHUNK;
        size_t total;
        if (!size_add(capacity, sizeof *b, &total) || !(b = mem_alloc(total))) return NULL;
        *b = (struct table_block){ck->blocks, 0, capacity};
        ck->blocks = b;
    }
    void *p = b->bytes + b->used;
    b->used += rounded;
    return p;
}

char *table_text(struct checkpoint *ck, const char *text, size_t n_bytes)
{
    char *copy = table_memory(ck, n_bytes + 1);
    if (!copy) return NULL;
    memcpy(copy, text, n_bytes);
    copy[n_bytes] = 0;
    return copy;
}

char *table_format(struct checkpoint *ck, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = n < 0 ? NULL : table_memory(ck, (size_t)n + 1);
    if (!text) return NULL;
    va_start(args, format);
    vsnprintf(text, (size_t)n + 1, format, args);
    va_end(args);
    return text;
}

utter_status table_out_of_memory(const struct checkpoint *ck, struct error *e)
{
    return error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory for the list of tensors", ck->path);
}

static bool grow(void **array, size_t *capacity, size_t n, size_t size)
{
    if (n < *capacity) return true;
    const size_t wanted = *capacity ? *capacity * 2 : 64;
    size_t n_bytes;
    void *p = size_mul(wanted, size, &n_bytes) ? mem_realloc(*array, n_bytes) : NULL;
    if (!p) return false;
    *array = p;
    *capacity = wanted;
    return true;
}

/* ---- files ---- */

/* Room for one more file, and its name. */
static struct table_file *add_file(struct checkpoint *ck, const char *path)
{
    struct table_file *files = mem_realloc(ck->files, ((size_t)ck->n_files + 1) * sizeof *files);
    if (!files) return NULL;
    ck->files = files;
    files[ck->n_files] = (struct table_file){.path = table_text(ck, path, strlen(path))};
    return files[ck->n_files].path ? &files[ck->n_files] : NULL;
}

utter_status table_map_file(struct checkpoint *ck, const char *path, int *file, struct error *e)
{
    struct table_file *f = add_file(ck, path);
    if (!f) return table_out_of_memory(ck, e);
    const utter_status s = file_map_open(&f->map, path, e);
    if (s != UTTER_OK) return s == UTTER_INPUT_UNREADABLE ? UTTER_MODEL_DAMAGED : s; /* a pipe, no permission, ... */
    *file = ck->n_files++;
    return UTTER_OK;
}

utter_status table_lend_bytes(struct checkpoint *ck, const char *name, const void *data, size_t n_bytes, int *file,
                              struct error *e)
{
    struct table_file *f = add_file(ck, name);
    if (!f) return table_out_of_memory(ck, e);
    f->map = (struct file_map){data, n_bytes};
    f->borrowed = true;
    *file = ck->n_files++;
    return UTTER_OK;
}

/* ---- tensors ---- */

const char *shape_text(char text[SHAPE_TEXT], int n_dims, const int64_t *shape)
{
    size_t used = (size_t)snprintf(text, SHAPE_TEXT, "[");
    for (int i = 0; i < n_dims && used < SHAPE_TEXT; i++)
        used += (size_t)snprintf(text + used, SHAPE_TEXT - used, i ? ", %lld" : "%lld", (long long)shape[i]);
    if (used < SHAPE_TEXT) snprintf(text + used, SHAPE_TEXT - used, "]");
    return text;
}

/* The bytes of a shape in a type. NULL, or what is wrong with it. */
static const char *measure(const struct tensor *t, size_t *n_bytes)
{
    if (t->n_dims > TENSOR_MAX_DIMS) return "more than four dimensions";
    size_t n = 1;
    for (int i = 0; i < t->n_dims; i++) {
        if (t->shape[i] <= 0) return "a dimension is zero or negative";
        if (!size_mul(n, (size_t)t->shape[i], &n)) return "the shape is larger than any memory";
    }
    const size_t block = (size_t)dtype_block(t->type);
    if (block > 1 && (t->n_dims == 0 || t->shape[t->n_dims - 1] % (int64_t)block != 0))
        return "rows are not whole blocks of 32 values";
    return size_mul(n / block, dtype_block_bytes(t->type), n_bytes) ? NULL : "the shape is larger than any memory";
}

utter_status table_add(struct checkpoint *ck, int file, const struct tensor *t, uint64_t offset, struct error *e)
{
    const struct table_file *f = &ck->files[file];
    char shape[SHAPE_TEXT];
    size_t n_bytes = 0;
    if (cancel_check(ck->cancel, e) != UTTER_OK) return UTTER_CANCELLED;
    const char *fault = measure(t, &n_bytes);
    if (fault)
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: tensor %s: shape %s in %s: %s", f->path, t->name,
                         shape_text(shape, t->n_dims < TENSOR_MAX_DIMS ? t->n_dims : TENSOR_MAX_DIMS, t->shape),
                         dtype_name(t->type), fault);
    if (t->n_bytes != 0 && t->n_bytes != n_bytes)
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: tensor %s: shape %s in %s has %zu bytes, found %zu", f->path,
                         t->name, shape_text(shape, t->n_dims, t->shape), dtype_name(t->type), n_bytes, t->n_bytes);
    if (offset > f->map.n_bytes || n_bytes > f->map.n_bytes - offset)
        return error_set(e, UTTER_MODEL_DAMAGED,
                         "%s: tensor %s: expected %zu bytes at byte %llu, but the file has only %zu: cut short?",
                         f->path, t->name, n_bytes, (unsigned long long)offset, f->map.n_bytes);
    if (ck->n_entries >= TABLE_MAX_TENSORS)
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: more than %d tensors", f->path, TABLE_MAX_TENSORS);
    if (!grow((void **)&ck->entries, &ck->entry_capacity, ck->n_entries, sizeof *ck->entries))
        return table_out_of_memory(ck, e);
    struct table_entry *entry = &ck->entries[ck->n_entries];
    *entry = (struct table_entry){*t, file};
    entry->tensor.name = table_text(ck, t->name, strlen(t->name));
    entry->tensor.data = f->map.data + offset;
    entry->tensor.n_bytes = n_bytes;
    if (!entry->tensor.name) return table_out_of_memory(ck, e);
    ck->n_entries++;
    return UTTER_OK;
}

static int by_position(const void *a, const void *b)
{
    const char *const x = (*(const struct tensor *const *)a)->data, *const y = (*(const struct tensor *const *)b)->data;
    return x < y ? -1 : x > y;
}

utter_status table_refuse_overlaps(const struct checkpoint *ck, size_t first, struct error *e)
{
    const size_t n = ck->n_entries - first;
    if (n < 2) return UTTER_OK;
    const struct tensor **order = mem_calloc(n, sizeof *order);
    if (!order) return table_out_of_memory(ck, e);
    for (size_t i = 0; i < n; i++) order[i] = &ck->entries[first + i].tensor;
    qsort(order, n, sizeof *order, by_position);
    utter_status s = UTTER_OK;
    for (size_t i = 1; i < n && s == UTTER_OK; i++)
        if ((const char *)order[i]->data < (const char *)order[i - 1]->data + order[i - 1]->n_bytes)
            s = error_set(e, UTTER_MODEL_DAMAGED, "%s: tensors %s and %s overlap",
                          ck->files[ck->entries[first].file].path, order[i - 1]->name, order[i]->name);
    mem_free(order);
    return s;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

utter_status table_finish(struct checkpoint *ck, struct error *e)
{
    if (ck->n_entries) qsort(ck->entries, ck->n_entries, sizeof *ck->entries, by_name);
    for (size_t i = 1; i < ck->n_entries; i++)
        if (by_name(&ck->entries[i - 1], &ck->entries[i]) == 0)
            return error_set(e, UTTER_MODEL_DAMAGED, "%s: tensor %s appears twice", ck->files[ck->entries[i].file].path,
                             ck->entries[i].tensor.name);
    return UTTER_OK;
}

utter_status table_add_meta(struct checkpoint *ck, int file, const struct meta *m, struct error *e)
{
    for (size_t i = 0; i < ck->n_metas; i++) {
        if (strcmp(ck->metas[i].meta.key, m->key) != 0) continue;
        if (ck->metas[i].file != file) return UTTER_OK; /* of a pair, the first file describes the model */
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: metadata key %s appears twice", ck->files[file].path, m->key);
    }
    if (ck->n_metas >= TABLE_MAX_METAS)
        return error_set(e, UTTER_MODEL_DAMAGED, "%s: more than %d metadata keys", ck->files[file].path,
                         TABLE_MAX_METAS);
    if (!grow((void **)&ck->metas, &ck->meta_capacity, ck->n_metas, sizeof *ck->metas))
        return table_out_of_memory(ck, e);
    ck->metas[ck->n_metas++] = (struct table_meta){*m, file};
    return UTTER_OK;
}

/* ---- what checkpoint.h asks of a finished table ---- */

void checkpoint_close(struct checkpoint **out)
{
    struct checkpoint *ck = *out;
    if (!ck) return;
    for (int i = 0; i < ck->n_files; i++)
        if (!ck->files[i].borrowed) file_map_close(&ck->files[i].map);
    while (ck->blocks) {
        struct table_block *next = ck->blocks->next;
        mem_free(ck->blocks);
        ck->blocks = next;
    }
    mem_free(ck->files);
    mem_free(ck->entries);
    mem_free(ck->metas);
    mem_free(ck);
    *out = NULL;
}

const char *checkpoint_path(const struct checkpoint *ck)
{
    return ck->path;
}
const char *checkpoint_format(const struct checkpoint *ck)
{
    return ck->format;
}
size_t checkpoint_tensors(const struct checkpoint *ck)
{
    return ck->n_entries;
}
const struct tensor *checkpoint_tensor(const struct checkpoint *ck, size_t index)
{
    return &ck->entries[index].tensor;
}
size_t checkpoint_metas(const struct checkpoint *ck)
{
    return ck->n_metas;
}
const struct meta *checkpoint_meta_at(const struct checkpoint *ck, size_t index)
{
    return &ck->metas[index].meta;
}

const struct tensor *checkpoint_find(const struct checkpoint *ck, const char *name)
{
    const struct tensor key = {.name = name};
    return ck->n_entries ? bsearch(&key, ck->entries, ck->n_entries, sizeof *ck->entries, by_name) : NULL;
}

const char *checkpoint_tensor_file(const struct checkpoint *ck, const struct tensor *t)
{
    return ck->files[((const struct table_entry *)(const void *)t)->file].path;
}

bool checkpoint_maps(const struct checkpoint *ck, const void *data, size_t n_bytes)
{
    const uintptr_t first = (uintptr_t)data, end = first + n_bytes;
    for (int i = 0; i < ck->n_files; i++) {
        const struct table_file *f = &ck->files[i];
        const uintptr_t start = (uintptr_t)f->map.data;
        if (!f->borrowed && start && first >= start && end <= start + f->map.n_bytes) return true;
    }
    return false;
}

const char *checkpoint_file_of(const struct checkpoint *ck, const char *name)
{
    const char *dot = strchr(name, '.');
    const size_t n = dot ? (size_t)(dot - name) + 1 : strlen(name);
    for (size_t i = 0; i < ck->n_entries; i++)
        if (strncmp(ck->entries[i].tensor.name, name, n) == 0) return ck->files[ck->entries[i].file].path;
    return ck->path;
}

const char *checkpoint_hint(const struct checkpoint *ck)
{
    return ck->hint;
}

const struct meta *checkpoint_meta(const struct checkpoint *ck, const char *key)
{
    for (size_t i = 0; i < ck->n_metas; i++)
        if (strcmp(ck->metas[i].meta.key, key) == 0) return &ck->metas[i].meta;
    return NULL;
}

const char *checkpoint_side_file(const struct checkpoint *ck, const char *name, size_t *n_bytes)
{
    for (int i = 0; i < ck->n_files; i++) {
        const char *slash = strrchr(ck->files[i].path, '/');
        if (strcmp(slash ? slash + 1 : ck->files[i].path, name) != 0) continue;
        *n_bytes = ck->files[i].map.n_bytes;
        return (const char *)ck->files[i].map.data;
    }
    return NULL;
}
