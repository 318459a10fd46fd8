/*
 * cleanup.h - making a clip fit to be cloned, in place.
 *
 * The chains are those that the ggml port's journal found to help (spectral de-noising of 6 dB, a gentle equaliser and
 * level for what a lossy codec took away; little for clean sources). Mono at 24 kHz. Any thread.
 */
#ifndef AUDIO_CLEANUP_H
#define AUDIO_CLEANUP_H

#include "base/cancel.h"
#include "base/error.h"

/* High-pass at 60 Hz, peaks held under 0.85. */
void cleanup_clean(float *x, size_t n);

/* For lossy sources: high-pass; noise 6 dB down; -1 dB at 200 Hz, +2.5 dB at 3.2 kHz, +3 dB at 7.5 kHz (where there is
 * sound: above bandwidth_hz nothing is raised); -18 LUFS; peaks held under 0.85. */
utter_status cleanup_lossy(float *x, size_t n, double bandwidth_hz, struct cancel *cancel, struct error *e);

#endif
