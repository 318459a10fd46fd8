#include "device/cpu/detect.h"

bool cpu_has_level(enum cpu_level level)
{
    return level == CPU_SCALAR;
}

enum cpu_level cpu_best_level(void)
{
    return CPU_SCALAR;
}

void cpu_kernels_fill(struct cpu_kernels *k, enum cpu_level level)
{
    (void)level;
    cpu_kernels_scalar(k);
}
