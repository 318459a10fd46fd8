#include "checkpoint/npy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/part_file.h"

static const struct {
    const char *descr;
    enum dtype type;
} types[] = {{"<f4", DTYPE_F32}, {"<f8", DTYPE_F64}, {"<i4", DTYPE_I32}, {"<i8", DTYPE_I64},
             {"<i2", DTYPE_I16}, {"|i1", DTYPE_I8},  {"|u1", DTYPE_U8}};

/* The header is a Python dict such as {'descr': '<f4', 'fortran_order': False, 'shape': (500, 80), }: where the value of a
 * key begins, or NULL. The text is NUL-terminated. */
static const char *value_of(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    if (!at) return NULL;
    at += strlen(key);
    while (*at == ' ' || *at == ':') at++;
    return at;
}

static bool read_descr(const char *at, enum dtype *type)
{
    if (!at || (*at != '\'' && *at != '"')) return false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strncmp(at + 1, types[i].descr, 3) && at[4] == *at) {
            *type = types[i].type;
            return true;
        }
    return false;
}

static bool read_shape(const char *at, struct tensor *t)
{
    if (!at || *at++ != '(') return false;
    for (t->n_dims = 0; *at != ')';) {
        char *end;
        if (t->n_dims == TENSOR_MAX_DIMS || *at < '0' || *at > '9') return false;
        errno = 0;
        const long long n = strtoll(at, &end, 10);
        if (errno || n < 0 || n > INT32_MAX) return false;
        t->shape[t->n_dims++] = n;
        at = end;
        while (*at == ' ' || *at == ',') at++;
    }
    return true;
}

utter_status npy_parse(struct tensor *out, const unsigned char *p, size_t n_bytes, const char *name, struct error *e)
{
    char header[1024];
    const bool version1 = n_bytes >= 10 && p[6] == 1, version2 = n_bytes >= 12 && (p[6] == 2 || p[6] == 3);
    if (n_bytes < 10 || memcmp(p, "\x93NUMPY", 6) != 0 || (!version1 && !version2))
        return error_set(e, UTTER_INPUT_UNREADABLE, "%s: not a .npy file", name);
    const size_t start = version1 ? 10 : 12;
    const size_t length = version1 ? (size_t)p[8] | (size_t)p[9] << 8
                                   : (size_t)p[8] | (size_t)p[9] << 8 | (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (length >= sizeof header || length > n_bytes - start)
        return error_set(e, UTTER_INPUT_UNREADABLE, "%s: a .npy header of %zu bytes in a file of %zu", name, length,
                         n_bytes);
    memcpy(header, p + start, length);
    header[length] = 0;
    struct tensor t = {
        .name = name, .layout = LAYOUT_TORCH, .data = p + start + length, .n_bytes = n_bytes - start - length};
    const char *fortran = value_of(header, "'fortran_order'");
    if (!read_descr(value_of(header, "'descr'"), &t.type) || !read_shape(value_of(header, "'shape'"), &t))
        return error_set(e, UTTER_INPUT_UNREADABLE, "%s: a .npy header that is not understood: %.100s", name, header);
    if (!fortran || strncmp(fortran, "False", 5) != 0)
        return error_set(e, UTTER_INPUT_UNREADABLE, "%s: a .npy file in Fortran order", name);
    size_t count = dtype_block_bytes(t.type);
    for (int i = 0; i < t.n_dims; i++)
        if (!size_mul(count, (size_t)t.shape[i], &count))
            return error_set(e, UTTER_INPUT_UNREADABLE, "%s: its shape is too large", name);
    if (count != t.n_bytes)
        return error_set(e, UTTER_INPUT_UNREADABLE, "%s: its shape needs %zu bytes, %zu are there", name, count,
                         t.n_bytes);
    *out = t;
    return UTTER_OK;
}

utter_status npy_open(struct npy *n, const char *path, struct error *e)
{
    *n = (struct npy){0};
    utter_status status = file_map_open(&n->map, path, e);
    if (status == UTTER_OK) status = npy_parse(&n->tensor, n->map.data, n->map.n_bytes, path, e);
    if (status != UTTER_OK) npy_close(n);
    return status == UTTER_MODEL_NOT_FOUND || status == UTTER_MODEL_DAMAGED ? UTTER_INPUT_UNREADABLE : status;
}

void npy_close(struct npy *n)
{
    file_map_close(&n->map);
    *n = (struct npy){0};
}

/* The dict, padded with spaces to a multiple of 64 bytes and ended by a newline, as numpy writes it. */
static size_t make_header(unsigned char header[128], const struct tensor *t)
{
    char shape[64] = "", dict[128];
    size_t n = 0;
    for (int i = 0; i < t->n_dims; i++)
        n += (size_t)snprintf(shape + n, sizeof shape - n, "%lld,%s", (long long)t->shape[i],
                              i + 1 < t->n_dims ? " " : "");
    if (t->n_dims > 1) shape[strlen(shape) - 1] = 0; /* (3,) but (3, 4) */
    const int used = snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                              t->type == DTYPE_I32 ? "<i4" : "<f4", shape);
    memset(header, ' ', 128);
    memcpy(header, "\x93NUMPY\1\0", 8);
    const size_t total = (size_t)used + 11 <= 64 ? 64 : 128;
    header[8] = (unsigned char)(total - 10), header[9] = 0;
    memcpy(header + 10, dict, (size_t)used);
    header[total - 1] = '\n';
    return total;
}

utter_status npy_write(const char *path, const struct tensor *t, struct error *e)
{
    unsigned char header[128];
    struct part_file part;
    int fd;
    const utter_status created = part_file_create(&part, &fd, path, e);
    if (created != UTTER_OK) return created;
    FILE *f = fdopen(fd, "wb");
    if (!f) close(fd);
    const size_t n = make_header(header, t);
    const bool written = f && fwrite(header, 1, n, f) == n && fwrite(t->data, 1, t->n_bytes, f) == t->n_bytes;
    const bool closed = f && fclose(f) == 0;
    if (written && closed && part_file_finish(&part)) return UTTER_OK;
    const utter_status status = error_set(e, UTTER_OUTPUT_UNWRITABLE, "%s: %s", path, strerror(errno));
    part_file_discard(&part);
    return status;
}
