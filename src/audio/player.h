/*
 * player.h - sound straight to the system's sound server, through ALSA (whose default device PulseAudio and PipeWire take
 * over where they run). Built without ALSA, player_open answers UNSUPPORTED.
 *
 * One thread at a time. player_write blocks while more than about 200 ms wait to be heard, so that a stop is heard soon.
 */
#ifndef AUDIO_PLAYER_H
#define AUDIO_PLAYER_H

#include "base/error.h"

struct player;

/* device: an ALSA name; NULL: "default". */
utter_status player_open(struct player **out, const char *device, int sample_rate, struct error *e);
utter_status player_write(struct player *p, const float *samples, size_t n, struct error *e); /* mono, [-1, 1] */
int64_t player_heard(const struct player *p); /* samples that left the loudspeaker, as far as the server tells */
utter_status player_drain(struct player *p, struct error *e); /* waits until everything was heard */
void player_close(struct player **p);                         /* drops what was not heard yet; NULL inside is fine */

#endif
