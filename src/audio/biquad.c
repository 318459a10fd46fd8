#include "audio/biquad.h"

#include <math.h>

static struct biquad normalized(double b0, double b1, double b2, double a0, double a1, double a2)
{
    return (struct biquad){b0 / a0, b1 / a0, b2 / a0, a1 / a0, a2 / a0, 0, 0};
}

struct biquad biquad_high_pass(double rate, double corner, double q)
{
    const double w = 2 * M_PI * corner / rate, c = cos(w), alpha = sin(w) / (2 * q);
    return normalized((1 + c) / 2, -(1 + c), (1 + c) / 2, 1 + alpha, -2 * c, 1 - alpha);
}

struct biquad biquad_high_shelf(double rate, double corner, double q, double gain_db)
{
    const double w = 2 * M_PI * corner / rate, c = cos(w), A = pow(10, gain_db / 40);
    const double beta = 2 * sqrt(A) * sin(w) / (2 * q);
    return normalized(A * ((A + 1) + (A - 1) * c + beta), -2 * A * ((A - 1) + (A + 1) * c),
                      A * ((A + 1) + (A - 1) * c - beta), (A + 1) - (A - 1) * c + beta, 2 * ((A - 1) - (A + 1) * c),
                      (A + 1) - (A - 1) * c - beta);
}

struct biquad biquad_peak(double rate, double centre, double width, double gain_db)
{
    const double w = 2 * M_PI * centre / rate, c = cos(w), A = pow(10, gain_db / 40);
    const double alpha = sin(w) / (2 * centre / width);
    return normalized(1 + alpha * A, -2 * c, 1 - alpha * A, 1 + alpha / A, -2 * c, 1 - alpha / A);
}
