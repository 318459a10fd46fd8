#include "base/rng.h"

#include <math.h>

uint64_t fnv1a64(const char *text)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) h = (h ^ *p) * 0x100000001B3u;
    return h;
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
