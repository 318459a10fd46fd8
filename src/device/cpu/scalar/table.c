#include "device/cpu/kernels.h"

void cpu_kernels_scalar(struct cpu_kernels *k)
{
    *k = (struct cpu_kernels){.panel = 8,
                              .lanes = 1,
                              .block = 1,
                              .tile_macs = 1 << 19,
#define X(name, params) .name = name##_scalar,
                              CPU_KERNELS(X)
#undef X
    };
}
