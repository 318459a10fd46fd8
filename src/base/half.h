/*
 * half.h - 16-bit floats to and from 32 bits, plain C. Kernels have their own vector forms.
 */
#ifndef BASE_HALF_H
#define BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float float_from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static inline uint32_t float_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static inline float half_to_float(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 1023;
    if (exponent == 31) return float_from_bits(sign | 0x7F800000u | mantissa << 13);
    if (exponent == 0) { /* zero or subnormal: mantissa * 2^-24 is exact */
        const float f = (float)mantissa * 0x1p-24f;
        return sign ? -f : f;
    }
    return float_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

/* Round to nearest even; overflow gives infinity, NaN stays NaN. */
static inline uint16_t float_to_half(float f)
{
    const uint32_t bits = float_bits(f), sign = (bits >> 16) & 0x8000;
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return (uint16_t)(sign | 0x7E00);
    if (magnitude >= 0x477FF000u) return (uint16_t)(sign | 0x7C00);
    if (magnitude < 0x38800000u) { /* subnormal half: let the FPU round at 2^-24 */
        const float scaled = float_from_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (float_bits(scaled) - 0x3F000000u));
    }
    const uint32_t odd = (magnitude >> 13) & 1;
    return (uint16_t)(sign | ((magnitude + 0xFFF + odd - 0x38000000u) >> 13));
}

static inline float bf16_to_float(uint16_t h) { return float_from_bits((uint32_t)h << 16); }

static inline uint16_t float_to_bf16(float f)
{
    const uint32_t bits = float_bits(f);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)((bits >> 16) | 0x40);
    return (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

#endif
