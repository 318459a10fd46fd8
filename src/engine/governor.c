#include "engine/governor.h"

void governor_begin(struct governor *g, bool automatic, int first, int later, double now)
{
    *g = (struct governor){.automatic = automatic, .first = first, .later = later, .tokens = first, .chunk_start = now};
}

void governor_sound(struct governor *g, double seconds, double now)
{
    if (!g->playing) g->play_start = now;
    g->playing = true;
    g->handed_out += seconds;
}

void governor_chunk_end(struct governor *g, double now)
{
    const double cost = now - g->chunk_start, unheard = g->handed_out - (now - g->play_start);
    g->chunk_start = now;
    if (!g->automatic)
        g->tokens = g->later;
    else if (unheard > 2 * cost)
        g->tokens = g->tokens * 2 < GOVERNOR_MOST_TOKENS ? g->tokens * 2 : GOVERNOR_MOST_TOKENS;
    else if (unheard < cost)
        g->tokens = g->tokens / 2 > g->first ? g->tokens / 2 : g->first;
}
