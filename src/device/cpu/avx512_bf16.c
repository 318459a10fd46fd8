/* What AVX-512 BF16 adds to the AVX-512 level: PRECISION_FAST. */
#include <math.h>
#include <string.h>

#include "device/cpu/kernels.h"
#include "device/cpu/simd/avx512.inc"
#undef LEVEL
#define LEVEL(name) name##_avx512_bf16
#include "device/cpu/simd/math.inc"
#include "device/cpu/simd/stored.inc"
#include "device/cpu/simd/epilogue.inc"
#include "device/cpu/simd/pack.inc"
#include "device/cpu/simd/bf16.inc"
#include "device/cpu/simd/scores.inc"
#include "device/cpu/simd/attention_bf16.inc"

void cpu_kernels_avx512_bf16(struct cpu_kernels *k)
{
#define X(name, params) k->name = LEVEL(name);
    CPU_BF16_KERNELS(X)
#undef X
    k->spin_bf16 = spin_bf16_avx512_bf16;
}
