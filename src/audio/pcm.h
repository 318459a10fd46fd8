/*
 * pcm.h - a sample as 16 bits, the same way wherever sound leaves: rounded to the nearest, held at full scale.
 */
#ifndef AUDIO_PCM_H
#define AUDIO_PCM_H

#include <math.h>
#include <stdint.h>

static inline int16_t pcm_s16(float v)
{
    return (int16_t)lrintf(fminf(fmaxf(v * 32768.0f, -32768.0f), 32767.0f));
}

#endif
