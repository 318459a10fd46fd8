/*
 * golden.h - a stage against the official implementation's values, at every CPU level and thread count.
 */
#ifndef TESTS_TOOLS_GOLDEN_H
#define TESTS_TOOLS_GOLDEN_H

#include "tools/stages/stage.h"

/* Largest allowed max |difference| / max |reference| of the outputs whose names start with `prefix`; the first match
 * counts. A table ends with a NULL prefix, whose tolerance holds for the rest. */
struct golden_tolerance {
    const char *prefix;
    double ratio;
};

struct golden {
    const char *stage, *checkpoint; /* folder */
    const char *reference;          /* file */
    const struct golden_tolerance *tolerances;
    void (*complete)(struct reffile *reference); /* optional: adds inputs that are a rule and too large for the file */
    bool fast_levels; /* leave out the scalar level, which takes minutes on networks of the published sizes */
};

/* Runs the stage at every level this machine has, on 1, 2 and 3 threads (1 and 3 under a sanitizer). Every out.* of the reference must be there and
 * within its tolerance, and the bytes must not depend on the number of threads. Prints what is wrong and returns how many
 * things are. */
int golden_failures(const struct golden *g);

/* The same against a folder made by hashfill_folder from `spec_folder`, for the length of the call. */
int golden_failures_hashfill(struct golden g, const char *spec_folder, const char *const *tags);

#endif
