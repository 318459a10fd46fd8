/* WAV files made byte by byte, so that tests can lie in any field. */
#ifndef TESTS_UNIT_WAV_H
#define TESTS_UNIT_WAV_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wav {
    int format;                     /* 1: integers, 3: float, 0xFFFE: extensible */
    uint16_t channels, bits, block; /* block 0: channels * bits / 8 */
    uint32_t rate;
    uint32_t data_size; /* 0: as much as there is */
    int fmt_size;       /* 0: 16, or 40 for extensible */
    const char *before; /* a chunk of this name and odd size in front of the data */
};

static inline size_t put_u32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(v >> (8 * i));
    return 4;
}

static inline size_t put_u16(unsigned char *p, unsigned v)
{
    p[0] = (unsigned char)v, p[1] = (unsigned char)(v >> 8);
    return 2;
}

static inline void write_wav(const char *path, const struct wav *w, const void *data, size_t n_bytes)
{
    unsigned char head[256] = "RIFF....WAVEfmt ";
    const int fmt_size = w->fmt_size ? w->fmt_size : w->format == 0xFFFE ? 40 : 16;
    const unsigned block = w->block ? w->block : (unsigned)w->channels * w->bits / 8;
    size_t n = 16;
    n += put_u32(head + n, (uint32_t)fmt_size);
    n += put_u16(head + n, (unsigned)w->format);
    n += put_u16(head + n, w->channels);
    n += put_u32(head + n, w->rate);
    n += put_u32(head + n, w->rate * block);
    n += put_u16(head + n, block);
    n += put_u16(head + n, w->bits);
    if (w->format == 0xFFFE) {
        static const unsigned char guid[14] = {0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xAA, 0, 0x38, 0x9B, 0x71};
        n += put_u16(head + n, 22);
        n += put_u16(head + n, w->bits);
        n += put_u32(head + n, 0);
        n += put_u16(head + n, 1);
        memcpy(head + n, guid, 14);
        n += 14;
    } else {
        memset(head + n, 0, (size_t)fmt_size - 16);
        n += (size_t)fmt_size - 16;
    }
    if (w->before) {
        memcpy(head + n, w->before, 4);
        n += 4;
        n += put_u32(head + n, 5);
        memcpy(head + n, "odd!!\0", 6); /* five bytes and the pad */
        n += 6;
    }
    memcpy(head + n, "data", 4);
    n += 4;
    n += put_u32(head + n, w->data_size ? w->data_size : (uint32_t)n_bytes);
    put_u32(head + 4, (uint32_t)(n + n_bytes - 8));
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(head, 1, n, f) != n || fwrite(data, 1, n_bytes, f) != n_bytes || fclose(f) != 0) abort();
}

#endif
