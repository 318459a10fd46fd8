/* What AVX-512 VNNI adds to the AVX-512 level. */
#include <math.h>
#include <string.h>

#include "device/cpu/kernels.h"
#include "device/cpu/simd/avx512.inc"
#undef LEVEL
#define LEVEL(name) name##_avx512_vnni
#include "device/cpu/simd/math.inc"
#include "device/cpu/simd/epilogue.inc"
#include "device/cpu/simd/quantized.inc"
#include "device/cpu/simd/int8.inc"

static void spin_int8(int64_t rounds, float *sink)
{
    __m512i sum[SPIN_CHAINS];
    const __m512i a = _mm512_loadu_si512(sink), b = _mm512_loadu_si512(sink);
    for (int i = 0; i < SPIN_CHAINS; i++) sum[i] = _mm512_set1_epi32(i);
    for (int64_t r = 0; r < rounds; r++)
#pragma GCC unroll 12
        for (int i = 0; i < SPIN_CHAINS; i++) sum[i] = _mm512_dpbusd_epi32(sum[i], a, b);
    for (int i = 1; i < SPIN_CHAINS; i++) sum[0] = _mm512_add_epi32(sum[0], sum[i]);
    sink[2] = (float)_mm512_reduce_add_epi32(sum[0]);
}

void cpu_kernels_avx512_vnni(struct cpu_kernels *k)
{
    k->product_rows_q8 = product_rows_q8_avx512_vnni;
    k->product_tile_int8 = product_tile_int8_avx512_vnni;
    k->spin_int8 = spin_int8;
}
