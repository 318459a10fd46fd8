/*
 * rng.h - random numbers by position, not by order.
 *
 * A stream is (seed, name); draw i of a stream is a function of i alone, so that noise does not depend on how work is
 * cut into chunks or spread over threads. The generator is SplitMix64 in counter mode (Steele, Lea, Flood: Fast
 * splittable pseudorandom number generators, 2014), the stream's start the FNV-1a hash of its name mixed with the seed.
 */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

struct rng {
    uint64_t state;
};

struct rng rng_stream(uint64_t seed, const char *name);
static inline uint64_t rng_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline uint64_t rng_bits(struct rng r, uint64_t index)
{
    return rng_mix(r.state + (index + 1) * 0x9E3779B97F4A7C15u);
}

/* [0, 1), 53 bits */
static inline double rng_uniform(struct rng r, uint64_t index)
{
    return (double)(rng_bits(r, index) >> 11) * 0x1p-53;
}

/* out[i] = draw first + i, standard normal (Box-Muller on pairs; draw i needs only pair i / 2). */
void rng_normal(struct rng r, uint64_t first, size_t n, float *out);

uint64_t fnv1a64(const char *text);

/* The same over bytes, piece by piece: start with FNV1A64_START. */
#define FNV1A64_START 0xCBF29CE484222325u
uint64_t fnv1a64_bytes(uint64_t hash, const void *bytes, size_t n);

#endif
