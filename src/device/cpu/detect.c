#include "device/cpu/detect.h"

#ifdef __x86_64__
#include <cpuid.h>

struct features {
    bool avx2, avx512, vnni, bf16;
};

/* The register states that the operating system saves: without them the wide registers must not be touched. */
static unsigned saved_states(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static struct features detect(void)
{
    enum { OSXSAVE = 1 << 27, AVX = 1 << 28, F16C = 1 << 29, FMA = 1 << 12 };          /* leaf 1, ecx */
    enum { AVX2 = 1 << 5, AVX512F = 1 << 16, AVX512DQ = 1 << 17, AVX512BW = 1 << 30 }; /* leaf 7, ebx */
    const unsigned AVX512VL = 1u << 31, VNNI = 1u << 11 /* ecx */, BF16 = 1u << 5 /* leaf 7.1, eax */;
    enum { YMM = 0x6, ZMM = 0xE6 }; /* XCR0 */
    struct features f = {0};
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return f;
    const unsigned basic = OSXSAVE | AVX | F16C | FMA;
    if ((c & basic) != basic) return f;
    const unsigned saved = saved_states();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return f;
    const unsigned wide = AVX512F | AVX512DQ | AVX512BW | AVX512VL;
    f.avx2 = (saved & YMM) == YMM && (b & AVX2);
    f.avx512 = f.avx2 && (saved & ZMM) == ZMM && (b & wide) == wide;
    f.vnni = f.avx512 && (c & VNNI);
    f.bf16 = f.avx512 && a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & BF16);
    return f;
}
#endif

bool cpu_has_level(enum cpu_level level)
{
    if (level == CPU_SCALAR) return true;
#ifdef __x86_64__
    if (level == CPU_AVX2) return detect().avx2;
    if (level == CPU_AVX512) return detect().avx512;
#endif
#ifdef __aarch64__
    if (level == CPU_NEON) return true;
#endif
    return false;
}

enum cpu_level cpu_best_level(void)
{
    static const enum cpu_level best_first[] = {CPU_AVX512, CPU_AVX2, CPU_NEON};
    for (int i = 0; i < 3; i++)
        if (cpu_has_level(best_first[i])) return best_first[i];
    return CPU_SCALAR;
}

void cpu_kernels_fill(struct cpu_kernels *k, enum cpu_level level)
{
    cpu_kernels_scalar(k);
    if (level == CPU_SCALAR) return;
#ifdef __x86_64__
    const struct features f = detect();
    if (level >= CPU_AVX2 && level <= CPU_AVX512) cpu_kernels_avx2(k);
    if (level == CPU_AVX512) cpu_kernels_avx512(k);
    if (level == CPU_AVX512 && f.vnni) cpu_kernels_avx512_vnni(k);
    if (level == CPU_AVX512 && f.bf16) cpu_kernels_avx512_bf16(k);
#endif
#ifdef __aarch64__
    if (level == CPU_NEON) cpu_kernels_neon(k);
#endif
}
