/* transform16.h - constants of the vocoder's 16-point transforms: samples to 9 real and 9 imaginary parts, and back. */
#ifndef DEVICE_CPU_TRANSFORM16_H
#define DEVICE_CPU_TRANSFORM16_H

extern const float stft16_matrix[16][32];  /* [sample][part], window included; columns 18 to 31 are zero */
extern const float istft16_matrix[18][16]; /* [part][sample], window included */
extern const float window16_squared[16];

#endif
