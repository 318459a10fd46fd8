/* activation.h - the activations one value at a time: what the vector forms must come close to. */
#ifndef DEVICE_CPU_SCALAR_ACTIVATION_H
#define DEVICE_CPU_SCALAR_ACTIVATION_H

#include <math.h>

#include "device/device.h"

static inline float activation_scalar(float x, enum activation act, float param)
{
    switch (act) {
    case ACT_NONE:
        return x;
    case ACT_RELU:
        return x > 0 ? x : 0;
    case ACT_LEAKY_RELU:
        return x > 0 ? x : param * x;
    case ACT_SILU:
        return x / (1 + expf(-x));
    case ACT_MISH:
        return x > 20 ? x : x * tanhf(log1pf(expf(x)));
    case ACT_ELU:
        return x > 0 ? x : expm1f(x);
    case ACT_GELU_ERF:
        return 0.5f * x * erfcf(x * -0.70710678f);
    case ACT_GELU_TANH:
        return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    case ACT_TANH:
        return tanhf(x);
    case ACT_SIGMOID:
        return 1 / (1 + expf(-x));
    case ACT_ABS:
        return fabsf(x);
    case ACT_EXP:
        return expf(x);
    }
    return x;
}

static inline float snake_scalar_value(float x, float alpha)
{
    const float s = sinf(alpha * x);
    return x + s * s / (alpha + 1e-9f);
}

#endif
