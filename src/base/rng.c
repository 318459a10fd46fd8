#include "base/rng.h"

#include <math.h>

uint64_t fnv1a64(const char *text)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) h = (h ^ *p) * 0x100000001B3u;
    return h;
}

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

struct rng rng_stream(uint64_t seed, const char *name) { return (struct rng){mix(fnv1a64(name) ^ mix(seed))}; }

uint64_t rng_bits(struct rng r, uint64_t index) { return mix(r.state + (index + 1) * 0x9E3779B97F4A7C15u); }

double rng_uniform(struct rng r, uint64_t index) { return (double)(rng_bits(r, index) >> 11) * 0x1p-53; }

void rng_normal(struct rng r, uint64_t first, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t pair = (first + i) & ~(uint64_t)1;
        double radius = sqrt(-2.0 * log(1.0 - rng_uniform(r, pair)));
        double angle = 6.283185307179586 * rng_uniform(r, pair + 1);
        out[i] = (float)(radius * ((first + i) & 1 ? sin(angle) : cos(angle)));
    }
}
