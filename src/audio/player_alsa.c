#include "audio/player.h"

#include <alsa/asoundlib.h>

#include "audio/pcm.h"
#include "base/mem.h"

enum { LATENCY_US = 200000, CHUNK = 1024 };

struct player {
    snd_pcm_t *pcm;
    int64_t n_written;
};

static void drop_message(const char *file, int line, const char *function, int error, const char *format, ...)
{
    (void)file, (void)line, (void)function, (void)error, (void)format;
}

utter_status player_open(struct player **out, const char *device, int sample_rate, struct error *e)
{
    *out = NULL;
    snd_lib_error_set_handler(drop_message); /* ALSA would print to stderr by itself */
    struct player *p = mem_calloc(1, sizeof *p);
    if (!p) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory to play sound");
    if (!device) device = "default";
    int r = snd_pcm_open(&p->pcm, device, SND_PCM_STREAM_PLAYBACK, 0);
    if (r >= 0)
        r = snd_pcm_set_params(p->pcm, SND_PCM_FORMAT_S16, SND_PCM_ACCESS_RW_INTERLEAVED, 1, (unsigned)sample_rate, 1,
                               LATENCY_US);
    if (r < 0) {
        player_close(&p);
        return error_set(e, UTTER_OUTPUT_UNWRITABLE, "sound device %s: %s", device, snd_strerror(r));
    }
    *out = p;
    return UTTER_OK;
}

utter_status player_write(struct player *p, const float *samples, size_t n, struct error *e)
{
    while (n > 0) {
        int16_t chunk[CHUNK];
        const size_t m = n < CHUNK ? n : CHUNK;
        for (size_t i = 0; i < m; i++) chunk[i] = pcm_s16(samples[i]);
        snd_pcm_sframes_t done = snd_pcm_writei(p->pcm, chunk, m);
        if (done < 0) done = snd_pcm_recover(p->pcm, (int)done, 1); /* an underrun: the next write starts it again */
        if (done < 0) return error_set(e, UTTER_OUTPUT_UNWRITABLE, "sound device: %s", snd_strerror((int)done));
        p->n_written += done;
        samples += done;
        n -= (size_t)done;
    }
    return UTTER_OK;
}

int64_t player_heard(const struct player *p)
{
    snd_pcm_sframes_t waiting = 0;
    if (snd_pcm_delay(p->pcm, &waiting) < 0 || waiting < 0) waiting = 0;
    return waiting < p->n_written ? p->n_written - waiting : 0;
}

utter_status player_drain(struct player *p, struct error *e)
{
    const int r = snd_pcm_drain(p->pcm);
    return r < 0 ? error_set(e, UTTER_OUTPUT_UNWRITABLE, "sound device: %s", snd_strerror(r)) : UTTER_OK;
}

void player_close(struct player **player)
{
    struct player *p = *player;
    if (!p) return;
    if (p->pcm) {
        snd_pcm_drop(p->pcm);
        snd_pcm_close(p->pcm);
    }
    mem_free(p);
    *player = NULL;
}
