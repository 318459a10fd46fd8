/*
 * frontend.h - every front end of voice cloning that needs no trained weights, run on one recording.
 *
 * Shared by utter-frontend, which tests/tools/frontend_parity.py compares with the real libraries, and by the golden test
 * of the values that script kept.
 */
#ifndef TESTS_TOOLS_FRONTEND_H
#define TESTS_TOOLS_FRONTEND_H

#include "tools/reffile.h"

/* Adds to *out: "load24" [n] (mono at 24 kHz), "lufs" [1], "x16" [m] (soxr to 16 kHz), "sinc16" [k], "trim" [2] (of x16, i32),
 * "voice_encoder_mel" and "fbank" and "s3_log_mel" [frames, bands] of x16, "prompt_mel" of load24. */
utter_status frontend_run(struct reffile *out, const char *path, struct error *e);

#endif
