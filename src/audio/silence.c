#include "audio/silence.h"

#include <math.h>
#include <stdbool.h>

enum { FRAME = 2048, HOP = 512 };

static double mean_square(const float *x, size_t n, size_t frame)
{
    const size_t centre = frame * HOP;
    const size_t begin = centre > FRAME / 2 ? centre - FRAME / 2 : 0,
                 end = centre + FRAME / 2 < n ? centre + FRAME / 2 : n;
    double sum = 0;
    for (size_t i = begin; i < end; i++) sum += (double)x[i] * (double)x[i];
    return sum / FRAME;
}

static double decibels(double square)
{
    return 10 * log10(fmax(1e-10, square));
}

void silence_trim(const float *x, size_t n, double top_db, size_t *begin, size_t *end)
{
    const size_t n_frames = n / HOP + 1;
    double loudest = 0;
    bool sounds = false;
    *begin = *end = 0;
    for (size_t i = 0; i < n_frames; i++) loudest = fmax(loudest, mean_square(x, n, i));
    for (size_t i = 0; i < n_frames; i++) {
        if (decibels(mean_square(x, n, i)) - decibels(loudest) <= -top_db) continue;
        if (!sounds) *begin = i * HOP;
        sounds = true;
        *end = (i + 1) * HOP < n ? (i + 1) * HOP : n;
    }
}
