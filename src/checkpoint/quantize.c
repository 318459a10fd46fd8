#include "checkpoint/quantize.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

enum { BLOCK = 32 };

bool quantize_writes(enum dtype t)
{
    return t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16 || t == DTYPE_Q8_0 || t == DTYPE_Q4_0;
}

/* The value of largest magnitude, with its sign. */
static float extreme(const float *x)
{
    float m = 0;
    for (int i = 0; i < BLOCK; i++)
        if (fabsf(x[i]) > fabsf(m)) m = x[i];
    return m;
}

static int nearest(float x, int low, int high)
{
    const int q = (int)lrintf(x);
    return q < low ? low : q > high ? high : q;
}

static void block_q8_0(const float *x, unsigned char *out)
{
    const uint16_t d16 = float_to_half(fabsf(extreme(x)) / 127.0f);
    const float d = half_to_float(d16), inverse = d > 0 ? 1 / d : 0;
    memcpy(out, &d16, 2);
    for (int i = 0; i < BLOCK; i++) out[2 + i] = (unsigned char)nearest(x[i] * inverse, -127, 127);
}

/* Squared error of a block in steps of d, whose integers run from -8 to 7. */
static float error_q4_0(const float *x, float d)
{
    float sum = 0;
    for (int i = 0; i < BLOCK; i++) {
        const float rest = x[i] - d * (float)nearest(x[i] / d, -8, 7);
        sum += rest * rest;
    }
    return sum;
}

static void block_q4_0(const float *x, unsigned char *out)
{
    /* The largest value lands near -8; a slightly smaller step clips it but serves the other 31 better. */
    static const float divisors[] = {-8.0f, -7.5f, -8.5f, -9.0f, -9.5f, -10.0f};
    const float m = extreme(x);
    uint16_t best = 0;
    float least = INFINITY;
    for (size_t i = 0; i < sizeof divisors / sizeof *divisors; i++) {
        const uint16_t d16 = float_to_half(m / divisors[i]);
        const float d = half_to_float(d16), error = d != 0 ? error_q4_0(x, d) : INFINITY;
        if (error < least) least = error, best = d16;
    }
    const float d = half_to_float(best), inverse = d != 0 ? 1 / d : 0;
    memcpy(out, &best, 2);
    for (int i = 0; i < BLOCK / 2; i++) {
        const int low = nearest(x[i] * inverse, -8, 7) + 8, high = nearest(x[i + BLOCK / 2] * inverse, -8, 7) + 8;
        out[2 + i] = (unsigned char)(low | high << 4);
    }
}

void quantize_f32(enum dtype t, const float *x, size_t n, void *out)
{
    unsigned char *p = out;
    switch (t) {
    case DTYPE_F32:
        memcpy(p, x, n * sizeof *x);
        return;
    case DTYPE_F16:
    case DTYPE_BF16:
        for (size_t i = 0; i < n; i++, p += 2) {
            const uint16_t h = t == DTYPE_F16 ? float_to_half(x[i]) : float_to_bf16(x[i]);
            memcpy(p, &h, 2);
        }
        return;
    case DTYPE_Q8_0:
        for (size_t i = 0; i < n; i += BLOCK, p += 34) block_q8_0(x + i, p);
        return;
    case DTYPE_Q4_0:
        for (size_t i = 0; i < n; i += BLOCK, p += 18) block_q4_0(x + i, p);
        return;
    default:
        return;
    }
}
