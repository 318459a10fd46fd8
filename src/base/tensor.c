#include "base/tensor.h"

#include <string.h>

#include "base/half.h"

static const struct {
    const char *name;
    int block;
    size_t bytes;
} types[DTYPE_COUNT] = {
#define X(name, text, n, bytes) [DTYPE_##name] = {text, n, bytes},
    DTYPE_MAP(X)
#undef X
};

const char *dtype_name(enum dtype t) { return types[t].name; }
int dtype_block(enum dtype t) { return types[t].block; }
size_t dtype_block_bytes(enum dtype t) { return types[t].bytes; }
bool dtype_is_float(enum dtype t)
{
    return t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16 || t == DTYPE_F64 || t >= DTYPE_Q8_0;
}

size_t tensor_count(const struct tensor *t)
{
    size_t n = 1;
    for (int i = 0; i < t->n_dims; i++) n *= (size_t)t->shape[i];
    return n;
}

/* Block formats: ggml's, as the model specification lists them (section 5.4). */

static void read_q8_0(const unsigned char *p, float *out)
{
    uint16_t d16;
    memcpy(&d16, p, 2);
    const float d = half_to_float(d16);
    for (int i = 0; i < 32; i++) out[i] = d * (float)(int8_t)p[2 + i];
}

static void read_q5_0(const unsigned char *p, float *out)
{
    uint16_t d16;
    uint32_t high;
    memcpy(&d16, p, 2);
    memcpy(&high, p + 2, 4);
    const float d = half_to_float(d16);
    for (int i = 0; i < 16; i++) {
        const int lo = (p[6 + i] & 15) | (int)((high >> i) & 1) << 4;
        const int hi = (p[6 + i] >> 4) | (int)((high >> (i + 16)) & 1) << 4;
        out[i] = d * (float)(lo - 16);
        out[i + 16] = d * (float)(hi - 16);
    }
}

static void read_q4_0(const unsigned char *p, float *out)
{
    uint16_t d16;
    memcpy(&d16, p, 2);
    const float d = half_to_float(d16);
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)((p[2 + i] & 15) - 8);
        out[i + 16] = d * (float)((p[2 + i] >> 4) - 8);
    }
}

static void read_blocks(const struct tensor *t, void (*read)(const unsigned char *, float *), size_t first, size_t n,
                        float *out)
{
    while (n > 0) {
        const size_t skip = first % 32, take = n < 32 - skip ? n : 32 - skip;
        const unsigned char *block = (const unsigned char *)t->data + first / 32 * types[t->type].bytes;
        float whole[32];
        read(block, take == 32 ? out : whole);
        if (take < 32) memcpy(out, whole + skip, take * sizeof *out);
        first += take, n -= take, out += take;
    }
}

void tensor_read_f32(const struct tensor *t, size_t first, size_t n, float *out)
{
    const unsigned char *p = t->data;
#define READ(T, expr)                                                                                                  \
    for (size_t i = 0; i < n; i++) {                                                                                   \
        T v;                                                                                                           \
        memcpy(&v, p + (first + i) * sizeof v, sizeof v);                                                              \
        out[i] = (float)(expr);                                                                                        \
    }                                                                                                                  \
    return
    switch (t->type) {
    case DTYPE_F32: memcpy(out, p + first * 4, n * 4); return;
    case DTYPE_F16: READ(uint16_t, half_to_float(v));
    case DTYPE_BF16: READ(uint16_t, bf16_to_float(v));
    case DTYPE_F64: READ(double, v);
    case DTYPE_I8: READ(int8_t, v);
    case DTYPE_U8: READ(uint8_t, v);
    case DTYPE_BOOL: READ(uint8_t, v != 0);
    case DTYPE_I16: READ(int16_t, v);
    case DTYPE_I32: READ(int32_t, v);
    case DTYPE_I64: READ(int64_t, v);
    case DTYPE_Q8_0: read_blocks(t, read_q8_0, first, n, out); return;
    case DTYPE_Q5_0: read_blocks(t, read_q5_0, first, n, out); return;
    case DTYPE_Q4_0: read_blocks(t, read_q4_0, first, n, out); return;
    case DTYPE_COUNT: break;
    }
#undef READ
}
