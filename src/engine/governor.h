/*
 * governor.h - how many tokens the next chunk of streamed sound waits for.
 *
 * Fixed sizes: the first chunk of a task takes `first` tokens, so that sound starts soon, all others `later`.
 *
 * Automatic: the first chunk takes `first` too. Every chunk costs again what was said before it (s3gen.h), so large chunks
 * waste less; but a listener must not run out of sound while one is made. After each chunk the size doubles when the sound
 * still unheard lasts longer than a chunk twice as large would take at the pace of this one, is kept when it lasts for
 * one as large, and halves otherwise, within first .. MOST_TOKENS.
 *
 * Times are seconds of one clock, given by the caller, so that tests need none.
 */
#ifndef ENGINE_GOVERNOR_H
#define ENGINE_GOVERNOR_H

#include <stdbool.h>

enum { GOVERNOR_MOST_TOKENS = 100 };

struct governor {
    bool automatic, playing;
    int first, later;
    int tokens;         /* of the next chunk */
    double play_start;  /* when the first sound was handed out */
    double handed_out;  /* seconds of sound so far */
    double chunk_start; /* when work on the current chunk began */
};

void governor_begin(struct governor *g, bool automatic, int first, int later, double now);
void governor_sound(struct governor *g, double seconds, double now); /* a block of sound was handed out */
void governor_chunk_end(struct governor *g, double now);             /* the last block of a chunk was */

#endif
