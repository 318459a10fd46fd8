#include "base/rng.h"

#include <math.h>
#include <string.h>

uint64_t fnv1a64_bytes(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++) hash = (hash ^ p[i]) * 0x100000001B3u;
    return hash;
}

uint64_t fnv1a64(const char *text)
{
    return fnv1a64_bytes(FNV1A64_START, text, strlen(text));
}

struct rng rng_stream(uint64_t seed, const char *name)
{
    return (struct rng){rng_mix(fnv1a64(name) ^ rng_mix(seed))};
}

void rng_normal(struct rng r, uint64_t first, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t pair = (first + i) & ~(uint64_t)1;
        double radius = sqrt(-2.0 * log(1.0 - rng_uniform(r, pair)));
        double angle = 6.283185307179586 * rng_uniform(r, pair + 1);
        out[i] = (float)(radius * ((first + i) & 1 ? sin(angle) : cos(angle)));
    }
}
