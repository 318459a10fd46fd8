/* The vocoder's source and 16-point transforms (specification 2.10), straight from their definitions. */
#include <math.h>

#include "device/cpu/kernels.h"

#define TWO_PI 6.283185307179586

/* Phase of harmonic h at sample i of frame m, in cycles. */
static double source_cycles(const struct source *s, int m, int h, int i)
{
    const float f0 = s->f0[m * s->f0_stride];
    if (!s->sums) return (s->cycles[m] + (i + 1) * ((double)f0 / (double)s->p->sample_rate)) * (h + 1);
    const float step = f0 * (float)(h + 1) / s->p->sample_rate;
    return (double)(float)(s->sums[m * s->p->n_harmonics + h] + (i + 1) * (double)step);
}

void sine_source_scalar(const struct source *s, int frame, int n)
{
    const struct source_params *p = s->p;
    const int H = p->n_harmonics;
    for (int m = frame; m < frame + n; m++) {
        const float f0 = s->f0[m * s->f0_stride];
        const bool voiced = f0 > 10;
        const float sigma = voiced ? 0.003f : 0.1f / 3;
        for (int i = 0; i < p->hop; i++) {
            const int64_t at = (int64_t)m * p->hop + i;
            double sum = (double)p->mix_bias.data[0];
            for (int h = 0; h < H; h++) {
                const double turns = source_cycles(s, m, h, i);
                const double theta = TWO_PI * (turns - floor(turns)) + (double)p->phase.data[h];
                float noise;
                if (array_exists(p->noise))
                    noise = p->noise.data[at * p->noise.stride + h];
                else
                    rng_normal(p->noise_stream, (uint64_t)((p->first_sample + at) * H + h), 1, &noise);
                sum += (double)p->mix.data[h] * ((voiced ? 0.1 * sin(theta) : 0) + (double)(sigma * noise));
            }
            s->out[at] = (float)tanh(sum);
        }
    }
}

static double hann(int i)
{
    return 0.5 - 0.5 * cos(TWO_PI * i / 16);
}

void stft16_scalar(float *out, ptrdiff_t out_stride, const float *x, int len, int frame, int n)
{
    for (int f = frame; f < frame + n; f++)
        for (int k = 0; k <= 8; k++) {
            double re = 0, im = 0;
            for (int i = 0; i < 16; i++) {
                int at = 4 * f + i - 8;
                at = at < 0 ? -at : at >= len ? 2 * (len - 1) - at : at;
                re += hann(i) * (double)x[at] * cos(TWO_PI * (k * i % 16) / 16);
                im -= hann(i) * (double)x[at] * sin(TWO_PI * (k * i % 16) / 16);
            }
            out[f * out_stride + k] = (float)re;
            out[f * out_stride + 9 + k] = (float)im;
        }
}

void istft16_scalar(float *out, const float *x, ptrdiff_t x_stride, int n_frames, int sample, int n, float limit)
{
    for (int o = sample; o < sample + n; o++) {
        double sum = 0, weight = 0;
        for (int f = (o + 8) / 4 - 3; f <= (o + 8) / 4; f++) {
            if (f < 0 || f >= n_frames) continue;
            const int i = o + 8 - 4 * f;
            double value = 0;
            for (int k = 0; k <= 8; k++) {
                const double magnitude = fmin(exp((double)x[f * x_stride + k]), 100);
                const double angle = sin((double)x[f * x_stride + 9 + k]);
                const double turn = TWO_PI * (k * i % 16) / 16;
                const double re = magnitude * cos(angle), im = k == 0 || k == 8 ? 0 : magnitude * sin(angle);
                value += (k == 0 || k == 8 ? 1 : 2) * (re * cos(turn) - im * sin(turn));
            }
            sum += hann(i) * value / 16;
            weight += hann(i) * hann(i);
        }
        out[o] = (float)fmax(-(double)limit, fmin((double)limit, sum / weight));
    }
}
