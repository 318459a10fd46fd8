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

void cpu_kernels_avx512_vnni(struct cpu_kernels *k)
{
    k->product_rows_q8 = product_rows_q8_avx512_vnni;
}
