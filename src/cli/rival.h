/*
 * rival.h - the same products by other libraries, for `utter bench kernels --vs-...`.
 *
 * y[rows][out] = x[rows][in] . w[out][in] transposed, all contiguous float32, on `threads` threads. What a library can prepare
 * of the weights it does in open. Built on request only (CMake options UTTER_BENCH_OPENBLAS, UTTER_BENCH_ONEDNN); else open
 * says so with UNSUPPORTED.
 */
#ifndef CLI_RIVAL_H
#define CLI_RIVAL_H

#include <stdbool.h>

#include "base/error.h"

struct rival_product {
    int rows, in, out, threads;
    const float *x, *w;
    float *y;
    bool narrow; /* may compute in bf16 */
};

struct rival {
    const char *name;
    utter_status (*open)(void **state, const struct rival_product *p, struct error *e);
    void (*run)(void *state, const struct rival_product *p);
    void (*close)(void *state);
};

extern const struct rival rival_openblas, rival_onednn;

#endif
