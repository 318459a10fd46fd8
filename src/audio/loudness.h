/*
 * loudness.h - how loud a recording is, as the official package measures it (pyloudnorm's default meter, specification
 * section 4.2): K-weighting by two textbook biquads, 400 ms blocks, two gates. libebur128 has the ITU's coefficients, which
 * differ by up to a tenth of a LU, and a reference that is scaled differently gives other speech tokens.
 *
 * Signals are mono floats. Any thread; no state is kept.
 */
#ifndef AUDIO_LOUDNESS_H
#define AUDIO_LOUDNESS_H

#include "base/cancel.h"
#include "base/error.h"

/* Integrated loudness in LUFS. -INFINITY when no block passes the gates: silence, or less than 0.4 s. */
utter_status loudness_measure(double *lufs, const float *x, size_t n_samples, int rate_hz, struct cancel *cancel,
                              struct error *e);

/* Scales x in place so that it measures `target_lufs`; leaves it alone when its loudness is not finite. *gain (may be
 * NULL): what it was multiplied with. */
utter_status loudness_normalize(float *x, size_t n_samples, int rate_hz, double target_lufs, double *gain,
                                struct cancel *cancel, struct error *e);

#endif
