/* The AVX-512 level: F, BW, DQ, VL. Compiled with those flags: nothing here runs before detect.c has seen them. */
#include <math.h>
#include <string.h>

#include "device/cpu/kernels.h"
#include "device/cpu/simd/avx512.inc"
#include "device/cpu/simd/level.inc"
