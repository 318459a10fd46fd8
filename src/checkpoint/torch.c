/*
 * torch's zip files: NAME/data.pkl describes the objects, NAME/data/KEY holds the numbers of storage KEY, uncompressed.
 *
 * The directory is read here and not by a zip library, because the numbers are used where they lie in the mapped file,
 * and libraries do not tell where that is.
 *
 *     [local header, name, extra][bytes] ... [central directory][zip64 end, locator][end]
 *
 * Sizes come from the central directory (torch leaves them out of the local headers), positions from the local header
 * (its extra field, which aligns the bytes, differs from the directory's).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "checkpoint/pickle.h"
#include "checkpoint/readers.h"

enum {
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    MAX_MEMBERS = 1 << 18,
    MAX_PICKLE = 16 << 20,
    PICKLE_MEMORY = 64 << 20, /* of parsed values; a Chatterbox state dict needs 3 MiB */
    MAX_DEPTH = 8,            /* of dicts in dicts */
    MAX_VISITS = 1 << 20
};

struct member {
    const char *name; /* in the file, n_name bytes, not NUL-terminated */
    size_t n_name;
    uint64_t offset, n_bytes;
};

struct archive {
    struct checkpoint *ck;
    int file;
    const char *path;
    const unsigned char *data;
    size_t n_bytes;
    struct error *e;
    struct member *members; /* sorted by name */
    size_t n_members;
    const struct member *pickle; /* the one that ends in /data.pkl; what stands before is the archive's own name */
    size_t n_visits, n_copied;
};

/* ---- the directory ---- */

static uint64_t number(const unsigned char *p, int n)
{
    uint64_t v = 0;
    for (int i = 0; i < n; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

/* The n bytes at an offset, when they lie in the file and begin with this signature. */
static const unsigned char *record(const struct archive *a, uint64_t offset, size_t n, const char signature[4])
{
    if (offset > a->n_bytes || n > a->n_bytes - offset) return NULL;
    return memcmp(a->data + offset, signature, 4) == 0 ? a->data + offset : NULL;
}

static utter_status damaged(const struct archive *a, const char *what)
{
    return error_set(a->e, UTTER_MODEL_DAMAGED, "%s: the zip archive is damaged or cut short: %s", a->path, what);
}

struct directory {
    uint64_t offset, n_bytes, n_entries;
};

static bool find_directory(const struct archive *a, struct directory *d)
{
    if (a->n_bytes < END_BYTES) return false;
    const size_t last = a->n_bytes - END_BYTES, first = last > 0xFFFF ? last - 0xFFFF : 0;
    for (size_t at = last + 1; at-- > first;) { /* a comment may follow, so look backwards */
        const unsigned char *end = record(a, at, END_BYTES, "PK\5\6");
        if (!end || number(end + 20, 2) > last - at) continue;
        *d = (struct directory){number(end + 16, 4), number(end + 12, 4), number(end + 10, 2)};
        const unsigned char *locator =
            at >= LOCATOR_BYTES ? record(a, at - LOCATOR_BYTES, LOCATOR_BYTES, "PK\6\7") : NULL;
        if (!locator) return true;
        const unsigned char *end64 = record(a, number(locator + 8, 8), END64_BYTES, "PK\6\6");
        if (end64) *d = (struct directory){number(end64 + 48, 8), number(end64 + 40, 8), number(end64 + 32, 8)};
        return end64 != NULL;
    }
    return false;
}

/* The zip64 extra field has, in this order, only those of the three that do not fit in 32 bits. */
static void read_zip64(const unsigned char *extra, size_t n, uint64_t *size, uint64_t *packed, uint64_t *offset)
{
    for (size_t at = 0; at + 4 <= n;) {
        const size_t id = (size_t)number(extra + at, 2), length = (size_t)number(extra + at + 2, 2);
        const unsigned char *p = extra + at + 4;
        at += 4 + length;
        if (id != 1 || at > n) continue;
        uint64_t *const wide[3] = {size, packed, offset};
        for (int i = 0; i < 3; i++)
            if (*wide[i] == 0xFFFFFFFF && p + 8 <= extra + at) *wide[i] = number(p, 8), p += 8;
        return;
    }
}

/* One entry at byte `at` of the directory; *next is where the following one begins. */
static utter_status read_member(const struct archive *a, struct member *m, uint64_t at, uint64_t *next)
{
    const unsigned char *p = record(a, at, CENTRAL_BYTES, "PK\1\2");
    if (!p) return damaged(a, "a directory entry is missing");
    const size_t n_name = (size_t)number(p + 28, 2), n_extra = (size_t)number(p + 30, 2);
    const size_t n_all = CENTRAL_BYTES + n_name + n_extra + (size_t)number(p + 32, 2);
    if (n_all > a->n_bytes - at) return damaged(a, "a directory entry ends outside the file");
    *next = at + n_all;
    uint64_t packed = number(p + 20, 4), offset = number(p + 42, 4);
    *m = (struct member){(const char *)p + CENTRAL_BYTES, n_name, 0, number(p + 24, 4)};
    read_zip64(p + CENTRAL_BYTES + n_name, n_extra, &m->n_bytes, &packed, &offset);
    if (number(p + 10, 2) != 0 || packed != m->n_bytes || (number(p + 8, 2) & 1) != 0)
        return error_set(a->e, UTTER_MODEL_DAMAGED,
                         "%s: member %.*s is compressed or encrypted; torch stores plain bytes", a->path, (int)n_name,
                         m->name);
    const unsigned char *local = record(a, offset, LOCAL_BYTES, "PK\3\4");
    if (!local) return damaged(a, "a member's header is missing");
    m->offset = offset + LOCAL_BYTES + number(local + 26, 2) + number(local + 28, 2);
    if (m->offset > a->n_bytes || m->n_bytes > a->n_bytes - m->offset)
        return error_set(a->e, UTTER_MODEL_DAMAGED, "%s: member %.*s: %llu bytes at byte %llu of a file of %zu",
                         a->path, (int)n_name, m->name, (unsigned long long)m->n_bytes, (unsigned long long)m->offset,
                         a->n_bytes);
    return UTTER_OK;
}

static int compare(const char *a, size_t n_a, const char *b, size_t n_b)
{
    const int order = memcmp(a, b, n_a < n_b ? n_a : n_b);
    return order ? order : n_a < n_b ? -1 : n_a > n_b;
}

static int by_name(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    return compare(x->name, x->n_name, y->name, y->n_name);
}

static utter_status read_directory(struct archive *a)
{
    struct directory d;
    if (!find_directory(a, &d)) return damaged(a, "no directory at its end");
    if (d.offset > a->n_bytes || d.n_entries > MAX_MEMBERS || d.n_entries > (a->n_bytes - d.offset) / CENTRAL_BYTES)
        return damaged(a, "its directory claims more than the file holds");
    a->members = mem_calloc((size_t)d.n_entries + 1, sizeof *a->members);
    if (!a->members) return table_out_of_memory(a->ck, a->e);
    uint64_t at = d.offset;
    for (; a->n_members < d.n_entries; a->n_members++) {
        const utter_status s = read_member(a, &a->members[a->n_members], at, &at);
        if (s != UTTER_OK) return s;
    }
    qsort(a->members, a->n_members, sizeof *a->members, by_name);
    static const char suffix[] = "/data.pkl";
    for (size_t i = 0; i < a->n_members; i++) {
        const struct member *m = &a->members[i];
        const size_t n = sizeof suffix - 1;
        if (m->n_name >= n && memcmp(m->name + m->n_name - n, suffix, n) == 0) a->pickle = m;
    }
    return UTTER_OK;
}

/* A member beside data.pkl. */
static const struct member *find_member(const struct archive *a, const char *folder, const char *name)
{
    char path[TABLE_MAX_NAME];
    const size_t n_prefix = a->pickle->n_name - strlen("data.pkl");
    const int n = snprintf(path, sizeof path, "%.*s%s%s", (int)n_prefix, a->pickle->name, folder, name);
    if (n < 0 || (size_t)n >= sizeof path) return NULL;
    const struct member key = {path, (size_t)n, 0, 0};
    return bsearch(&key, a->members, a->n_members, sizeof *a->members, by_name);
}

/* ---- tensors ---- */

static utter_status refuse(const struct archive *a, const char *name, const char *why)
{
    return error_set(a->e, UTTER_MODEL_DAMAGED, "%s: tensor %s: %s", a->path, name, why);
}

static bool is_contiguous(const struct tensor *t, const int64_t *stride)
{
    int64_t expected = 1;
    for (int i = t->n_dims; i-- > 0; expected *= t->shape[i])
        if (t->shape[i] != 1 && stride[i] != expected) return false;
    return true;
}

/* A view with other strides is copied into order. The element counts were checked: no index leaves the storage. */
static bool gather(struct archive *a, struct tensor *t, const unsigned char *from, const int64_t *stride)
{
    const size_t element = dtype_block_bytes(t->type), n = tensor_count(t);
    unsigned char *copy = table_memory(a->ck, n * element);
    if (!copy) return false;
    int64_t index[TENSOR_MAX_DIMS] = {0};
    for (size_t i = 0; i < n; i++) {
        int64_t at = 0;
        for (int d = 0; d < t->n_dims; d++) at += index[d] * stride[d];
        memcpy(copy + i * element, from + (size_t)at * element, element);
        for (int d = t->n_dims; d-- > 0 && ++index[d] == t->shape[d];) index[d] = 0;
    }
    t->data = copy;
    return true;
}

/* The index of the last element of a view, or -1 when the numbers cannot be right. */
static int64_t last_index(const struct tensor *t, const int64_t *stride, int64_t offset)
{
    int64_t last = offset, n = 1;
    if (offset < 0) return -1;
    for (int i = 0; i < t->n_dims; i++) {
        int64_t span;
        if (t->shape[i] <= 0 || stride[i] < 0 || __builtin_mul_overflow(t->shape[i] - 1, stride[i], &span) ||
            __builtin_add_overflow(last, span, &last) || __builtin_mul_overflow(n, t->shape[i], &n))
            return -1;
    }
    return n - 1 <= last - offset ? last : -1; /* more elements than the span has: a stride of 0 repeats some */
}

static utter_status add_tensor(struct archive *a, const char *name, const struct pickle_value *v)
{
    const struct pickle_value *storage = v->as.tensor.storage, *shape = v->as.tensor.shape;
    struct tensor t = {.name = name, .type = storage->as.storage.type, .n_dims = TENSOR_MAX_DIMS + 1};
    int64_t stride[TENSOR_MAX_DIMS] = {0};
    if (shape->as.list.n <= TENSOR_MAX_DIMS) t.n_dims = (int)shape->as.list.n;
    if (t.n_dims > TENSOR_MAX_DIMS) return refuse(a, name, "more than four dimensions");
    for (int i = 0; i < t.n_dims; i++) {
        t.shape[i] = shape->as.list.items[i]->as.i;
        stride[i] = v->as.tensor.stride->as.list.items[i]->as.i;
    }
    const struct member *m = find_member(a, "data/", storage->as.storage.key);
    if (!m) return refuse(a, name, "the archive lacks its storage");
    const size_t element = dtype_block_bytes(t.type);
    const int64_t offset = v->as.tensor.offset, last = last_index(&t, stride, offset);
    if (last < 0 || (uint64_t)last >= m->n_bytes / element) {
        char text[SHAPE_TEXT];
        return error_set(a->e, UTTER_MODEL_DAMAGED,
                         "%s: tensor %s: shape %s from element %lld on does not lie in its storage of %llu bytes",
                         a->path, name, shape_text(text, t.n_dims, t.shape), (long long)offset,
                         (unsigned long long)m->n_bytes);
    }
    const uint64_t start = m->offset + (uint64_t)offset * element;
    utter_status s = table_add(a->ck, a->file, &t, start, a->e);
    if (s != UTTER_OK || is_contiguous(&t, stride)) return s;
    struct tensor *added = &a->ck->entries[a->ck->n_entries - 1].tensor;
    a->n_copied += added->n_bytes;
    if (a->n_copied > a->n_bytes) return refuse(a, name, "its strides make the tensors larger than the file");
    return gather(a, added, a->data + start, stride) ? UTTER_OK : table_out_of_memory(a->ck, a->e);
}

/* Tensors of dicts in dicts get the keys joined by dots; what is no tensor is passed over. */
static utter_status add_tree(struct archive *a, char *name, size_t n_name, const struct pickle_value *v, int depth)
{
    if (++a->n_visits > MAX_VISITS || depth > MAX_DEPTH) return damaged(a, "its objects are nested too deep");
    if (v->kind == PICKLE_TENSOR) return add_tensor(a, name, v);
    utter_status s = UTTER_OK;
    for (size_t i = 0; v->kind == PICKLE_DICT && i + 1 < v->as.list.n && s == UTTER_OK; i += 2) {
        const struct pickle_value *key = v->as.list.items[i];
        if (key->kind != PICKLE_STRING) continue;
        const int n = snprintf(name + n_name, TABLE_MAX_NAME - n_name, "%s%s", n_name ? "." : "", key->as.string);
        if (n < 0 || (size_t)n >= TABLE_MAX_NAME - n_name) return damaged(a, "a tensor's name is too long");
        s = add_tree(a, name, n_name + (size_t)n, v->as.list.items[i + 1], depth + 1);
    }
    return s;
}

static utter_status read_pickle(struct archive *a)
{
    const struct member *m = a->pickle;
    if (!m) return damaged(a, "it holds no data.pkl, so torch did not write it");
    const struct member *order = find_member(a, "", "byteorder");
    if (order && order->n_bytes >= 3 && memcmp(a->data + order->offset, "big", 3) == 0)
        return error_set(a->e, UTTER_UNSUPPORTED, "%s: its numbers are big-endian", a->path);
    if (m->n_bytes > MAX_PICKLE) return damaged(a, "data.pkl is larger than any list of tensors");
    struct arena memory;
    const struct pickle_value *top;
    char name[TABLE_MAX_NAME] = "";
    utter_status s = arena_create(&memory, PICKLE_MEMORY, a->e);
    if (s == UTTER_OK) s = pickle_parse(&top, &memory, a->data + m->offset, (size_t)m->n_bytes, a->path, a->e);
    if (s == UTTER_OK && top->kind != PICKLE_DICT) s = damaged(a, "data.pkl holds no dict of tensors");
    if (s == UTTER_OK) s = add_tree(a, name, 0, top, 0);
    arena_destroy(&memory);
    return s;
}

utter_status torch_read(struct checkpoint *ck, int file, struct error *e)
{
    const struct table_file *f = &ck->files[file];
    struct archive a = {
        .ck = ck, .file = file, .path = f->path, .data = f->map.data, .n_bytes = f->map.n_bytes, .e = e};
    utter_status s = read_directory(&a);
    if (s == UTTER_OK) s = read_pickle(&a);
    mem_free(a.members);
    return s;
}
