#include "device/cpu/kernels.h"

static void spin_f32(int64_t rounds, float *sink)
{
    float sum[SPIN_CHAINS] = {0};
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < SPIN_CHAINS; i++) sum[i] = sum[i] * sink[0] + sink[1];
    for (int i = 0; i < SPIN_CHAINS; i++) sink[2] += sum[i];
}

static void read_memory(const float *x, size_t n, float *sink)
{
    float largest = 0;
    for (size_t i = 0; i < n; i += 16) largest = x[i] > largest ? x[i] : largest;
    sink[2] = largest;
}

void cpu_kernels_scalar(struct cpu_kernels *k)
{
    *k = (struct cpu_kernels){.panel = 8,
                              .lanes = 1,
                              .spin_f32 = spin_f32,
                              .read_memory = read_memory,
                              .block = 1,
                              .tile_macs = 1 << 19,
#define X(name, params) .name = name##_scalar,
                              CPU_KERNELS(X)
#undef X
    };
}
