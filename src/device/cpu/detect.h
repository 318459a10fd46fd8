/* detect.h - which CPU levels this machine and its operating system support. Any thread. */
#ifndef DEVICE_CPU_DETECT_H
#define DEVICE_CPU_DETECT_H

#include "device/cpu/kernels.h"

bool cpu_has_level(enum cpu_level level);
enum cpu_level cpu_best_level(void);

/* The table of a level that is available: scalar first, overwritten by each level up to this one. */
void cpu_kernels_fill(struct cpu_kernels *k, enum cpu_level level);

#endif
