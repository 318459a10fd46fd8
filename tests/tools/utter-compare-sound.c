/*
 * utter-compare-sound A B - two 24 kHz recordings of the same length: signal to error, cosine and mean difference of their
 * log-mel spectrograms (natural log, 80 bands, 50 frames a second).
 */
#include <math.h>
#include <sndfile.h>
#include <stdio.h>
#include <stdlib.h>

#include "audio/features.h"

static float *read_sound(const char *path, size_t *n)
{
    SF_INFO info = {0};
    SNDFILE *f = sf_open(path, SFM_READ, &info);
    float *x = f && info.channels == 1 && info.frames > 0 ? malloc((size_t)info.frames * sizeof *x) : NULL;
    if (x) *n = (size_t)sf_readf_float(f, x, info.frames);
    if (f) sf_close(f);
    if (!x) fprintf(stderr, "%s: no mono recording\n", path);
    return x;
}

static double dot(const float *x, const float *y, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * y[i];
    return sum;
}

int main(int argc, char **argv)
{
    size_t n = 0, m = 0;
    struct error e;
    float *a = argc == 3 ? read_sound(argv[1], &n) : NULL, *b = argc == 3 ? read_sound(argv[2], &m) : NULL;
    if (!a || !b) {
        fprintf(stderr, "usage: utter-compare-sound A B\n");
        return 2;
    }
    if (n != m) {
        fprintf(stderr, "%zu and %zu samples: cannot be compared\n", n, m);
        return 1;
    }
    const size_t values = prompt_mel_24k_frames(n) * 80;
    float *mel_a = malloc(values * sizeof *mel_a), *mel_b = malloc(values * sizeof *mel_b);
    if (!mel_a || !mel_b || prompt_mel_24k(mel_a, a, n, NULL, &e) != UTTER_OK || prompt_mel_24k(mel_b, b, n, NULL, &e) != UTTER_OK)
        return 1;
    double error = 0, difference = 0;
    for (size_t i = 0; i < n; i++) error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    for (size_t i = 0; i < values; i++) difference += fabs((double)mel_a[i] - mel_b[i]);
    printf("signal to error %.1f dB, log-mel cosine %.6f, mean difference %.4f\n", 10 * log10(dot(a, a, n) / error),
           dot(mel_a, mel_b, values) / sqrt(dot(mel_a, mel_a, values) * dot(mel_b, mel_b, values)),
           difference / (double)values);
    free(a);
    free(b);
    free(mel_a);
    free(mel_b);
    return 0;
}
