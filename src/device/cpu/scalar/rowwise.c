#include <math.h>

#include "device/cpu/scalar/activation.h"
#include "device/cpu/kernels.h"

void layer_norm_scalar(float *out, const float *x, const float *gain, const float *bias, int n, float eps,
                       enum activation act)
{
    double mean = 0, variance = 0;
    for (int i = 0; i < n; i++) mean += (double)x[i];
    mean /= n;
    for (int i = 0; i < n; i++) variance += ((double)x[i] - mean) * ((double)x[i] - mean);
    const double inverse = 1 / sqrt(variance / n + (double)eps);
    for (int i = 0; i < n; i++)
        out[i] =
            activation_scalar((float)(((double)x[i] - mean) * inverse * (double)gain[i] + (double)bias[i]), act, 0);
}

void activate_scalar(float *out, const float *x, int n, enum activation act, float param)
{
    for (int i = 0; i < n; i++) out[i] = activation_scalar(x[i], act, param);
}

void snake_scalar(float *out, const float *x, const float *alpha, int n)
{
    for (int i = 0; i < n; i++) out[i] = snake_scalar_value(x[i], alpha[i]);
}

void add_scalar(float *out, float a, const float *x, float b, const float *y, int n)
{
    if (y)
        for (int i = 0; i < n; i++) out[i] = a * x[i] + b * y[i];
    else
        for (int i = 0; i < n; i++) out[i] = a * x[i];
}

void l2_normalize_scalar(float *out, const float *x, int n, float floor)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    const float norm = fmaxf((float)sqrt(sum), floor);
    for (int i = 0; i < n; i++) out[i] = x[i] / norm;
}
