/* The AVX2 + FMA + F16C level. Compiled with those flags: nothing here runs before detect.c has seen them. */
#include <math.h>
#include <string.h>

#include "device/cpu/kernels.h"
#include "device/cpu/simd/avx2.inc"
#include "device/cpu/simd/level.inc"
