/* The NEON level: every AArch64 machine has it. */
#include "device/cpu/kernels.h"

#ifdef __aarch64__ /* elsewhere this file is empty, for tools that read every file */
#include <math.h>
#include <string.h>

#include "device/cpu/simd/neon.inc"
#include "device/cpu/simd/level.inc"
#endif
