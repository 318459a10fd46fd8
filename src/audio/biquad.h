/*
 * biquad.h - second-order filters of the Audio EQ Cookbook (R. Bristow-Johnson), in double precision.
 */
#ifndef AUDIO_BIQUAD_H
#define AUDIO_BIQUAD_H

struct biquad {
    double b0, b1, b2, a1, a2; /* a0 = 1 */
    double z1, z2;             /* state, direct form II transposed; starts at 0 */
};

struct biquad biquad_high_pass(double rate_hz, double corner_hz, double q);
struct biquad biquad_high_shelf(double rate_hz, double corner_hz, double q, double gain_db);
struct biquad biquad_peak(double rate_hz, double centre_hz, double width_hz, double gain_db);

static inline double biquad_step(struct biquad *f, double x)
{
    const double y = f->b0 * x + f->z1;
    f->z1 = f->b1 * x - f->a1 * y + f->z2;
    f->z2 = f->b2 * x - f->a2 * y;
    return y;
}

#endif
