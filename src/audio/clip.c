#include "audio/clip.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "audio/cleanup.h"
#include "audio/mono.h"
#include "base/mem.h"

enum { FRAMES_PER_S = MONO_RATE / LEVEL_FRAME }; /* levels a second */
enum { PIECE = 1 << 14 };

void clip_free(struct clip *clip)
{
    mem_free(clip->samples);
    *clip = (struct clip){0};
}

/* ---- the recording's levels -------------------------------------------------------------------------------------------- */

struct scan {
    float *levels; /* one a LEVEL_FRAME */
    size_t n, capacity;
    struct mono_watch watch;
};

static utter_status too_long(const struct source *s, double seconds, struct error *e)
{
    return error_set(e, UTTER_VOICE_UNUSABLE,
                     "%s: the recording is %.1f h long%s; up to %.0f h are searched for speech: say which part to use "
                     "with --start and "
                     "--duration",
                     source_name(s), seconds / 3600, seconds > RECORDING_MAX_S + 60 ? "" : " or longer",
                     RECORDING_MAX_S / 3600);
}

static bool grow(struct scan *scan, size_t more)
{
    if (scan->n + more <= scan->capacity) return true;
    const size_t capacity = 2 * scan->capacity + more;
    float *levels = mem_realloc(scan->levels, capacity * sizeof *levels);
    if (!levels) return false;
    scan->levels = levels;
    scan->capacity = capacity;
    return true;
}

static void report_progress(const struct clip_options *o, double share)
{
    if (o->progress) o->progress(o->user, share);
}

static utter_status scan_recording(struct scan *scan, struct source *s, int channel, const struct clip_options *o,
                                   struct error *e)
{
    struct mono *m = NULL;
    struct level_meter meter = {0};
    float piece[PIECE];
    size_t n = 0;
    const struct source_info *info = source_info(s);
    const double promised = (double)info->n_frames / info->rate_hz;
    if (promised > RECORDING_MAX_S) return too_long(s, promised, e);
    scan->n = 0;
    utter_status status = mono_open(&m, s, 0, channel, e);
    while (status == UTTER_OK && (status = mono_read(m, piece, PIECE, &n, e)) == UTTER_OK && n > 0) {
        if (!grow(scan, n / LEVEL_FRAME + 2))
            status = error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory", source_name(s));
        if (status == UTTER_OK) scan->n += level_meter_feed(&meter, piece, n, scan->levels + scan->n);
        const double seconds = (double)scan->n / FRAMES_PER_S;
        if (status == UTTER_OK && seconds > RECORDING_MAX_S) status = too_long(s, seconds, e);
        if (status == UTTER_OK && cancel_poll(o->cancel))
            status = error_set(e, UTTER_CANCELLED, "%s: cancelled", source_name(s));
        if (promised > 0) report_progress(o, 0.9 * fmin(1, seconds / promised));
    }
    if (m) scan->watch = *mono_watch(m);
    mono_close(&m);
    return status;
}

/* ---- choosing -------------------------------------------------------------------------------------------------------------- */

struct region {
    size_t first, end; /* levels */
};

static double region_s(struct region r)
{
    return (double)(r.end - r.first) / FRAMES_PER_S;
}

/* The next stretch of speech from *at on: pauses up to 0.7 s belong to it, sounds under 0.2 s do not count. */
static bool next_region(struct region *r, size_t *at, const struct scan *scan, float threshold)
{
    const size_t longest_pause = FRAMES_PER_S * 7 / 10, shortest = FRAMES_PER_S / 5;
    while (*at < scan->n) {
        while (*at < scan->n && scan->levels[*at] <= threshold) ++*at;
        if (*at == scan->n) return false;
        size_t end = *at + 1;
        r->first = *at;
        for (size_t i = end; i < scan->n && i - end <= longest_pause; i++)
            if (scan->levels[i] > threshold) end = i + 1;
        r->end = end;
        *at = end;
        if (end - r->first >= shortest) return true;
    }
    return false;
}

/* The quietest frame within half a second: where a cut is heard least. */
static size_t quiet_place(const struct scan *scan, size_t near)
{
    const size_t reach = FRAMES_PER_S / 2, first = near > reach ? near - reach : 0,
                 end = near + reach < scan->n ? near + reach : scan->n;
    size_t best = near;
    for (size_t i = first; i < end; i++)
        if (scan->levels[i] < scan->levels[best < scan->n ? best : scan->n - 1]) best = i;
    return best;
}

/* The speech with up to 0.2 s of the pauses around it. */
static struct region with_margin(const struct scan *scan, struct region r)
{
    const size_t margin = FRAMES_PER_S / 5;
    return (struct region){r.first > margin ? r.first - margin : 0,
                           r.end + margin < scan->n ? r.end + margin : scan->n};
}

/* `wanted` seconds from the middle of a longer region, cut at quiet places: there a speaker is warm and not yet ending. */
static struct region middle_of(const struct scan *scan, struct region r, double wanted)
{
    const size_t length = (size_t)(wanted * FRAMES_PER_S), spare = r.end - r.first - length;
    struct region m = {quiet_place(scan, r.first + spare / 2), 0};
    m.end = m.first + length < scan->n ? m.first + length : scan->n;
    return m;
}

static int choose(struct region chosen[CLIP_MAX_SPANS], const struct scan *scan, float threshold, double wanted,
                  double *speech_s)
{
    struct region r, best = {0}, second = {0};
    *speech_s = 0;
    for (size_t at = 0; next_region(&r, &at, scan, threshold);) {
        *speech_s += region_s(r);
        if (region_s(r) > region_s(best))
            second = best, best = r;
        else if (region_s(r) > region_s(second))
            second = r;
    }
    if ((double)scan->n / FRAMES_PER_S <= wanted || best.end == 0) { /* all of it, without the silence at its ends */
        size_t at = 0;
        struct region all = {0, scan->n};
        if (next_region(&r, &at, scan, threshold)) {
            all.first = r.first;
            do all.end = r.end;
            while (next_region(&r, &at, scan, threshold));
        }
        chosen[0] = with_margin(scan, all);
        return 1;
    }
    if (region_s(best) >= wanted) {
        chosen[0] = middle_of(scan, best, wanted);
        return 1;
    }
    if (region_s(second) < 1 || region_s(best) >= 0.9 * wanted) {
        chosen[0] = with_margin(scan, best);
        return 1;
    }
    const double rest = wanted - region_s(best);
    if (region_s(second) > rest + 1) second = middle_of(scan, second, rest);
    const bool in_order = best.first < second.first;
    chosen[0] = with_margin(scan, in_order ? best : second);
    chosen[1] = with_margin(scan, in_order ? second : best);
    return 2;
}

/* ---- reading what was chosen ------------------------------------------------------------------------------------------------- */

static utter_status read_span(struct clip *clip, size_t capacity, struct source *s, struct clip_span span, int channel,
                              const struct clip_options *o, struct mono_watch *watch, struct error *e)
{
    struct mono *m = NULL;
    const int rate = source_info(s)->rate_hz;
    const size_t begin = clip->n_samples;
    const double wanted = ceil(span.duration_s * MONO_RATE);
    const size_t end = wanted < (double)(capacity - begin) ? begin + (size_t)wanted : capacity;
    size_t n = 1;
    utter_status status = mono_open(&m, s, (int64_t)(span.start_s * rate), channel, e);
    while (status == UTTER_OK && clip->n_samples < end && n > 0) {
        status = mono_read(m, clip->samples + clip->n_samples,
                           end - clip->n_samples < PIECE ? end - clip->n_samples : PIECE, &n, e);
        clip->n_samples += n;
        if (status == UTTER_OK && cancel_poll(o->cancel))
            status = error_set(e, UTTER_CANCELLED, "%s: cancelled", source_name(s));
    }
    if (m) *watch = *mono_watch(m);
    mono_close(&m);
    return status;
}

/* 10 ms at either side of a join. */
static void fade_join(float *samples, size_t join, size_t n)
{
    const size_t length = MONO_RATE / 100;
    for (size_t i = 0; i < length; i++) {
        const float gain = (float)i / (float)length;
        if (join > i) samples[join - 1 - i] *= gain;
        if (join + i < n) samples[join + i] *= gain;
    }
}

static utter_status read_clip(struct clip *clip, struct source *s, int channel, const struct clip_options *o,
                              struct mono_watch *watch, struct error *e)
{
    struct clip_report *r = &clip->report;
    double seconds = 0;
    for (int i = 0; i < r->n_spans; i++) seconds += fmin(r->span[i].duration_s, CLIP_MAX_S);
    const size_t capacity = (size_t)(fmin(seconds, CLIP_MAX_S) * MONO_RATE) + 2;
    if (!(clip->samples = mem_alloc(capacity * sizeof *clip->samples)))
        return error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory for %.0f s of sound", source_name(s), seconds);
    for (int i = 0; i < r->n_spans; i++) {
        const size_t join = clip->n_samples;
        const utter_status status = read_span(clip, capacity, s, r->span[i], channel, o, watch, e);
        if (status != UTTER_OK) return status;
        if (i > 0) fade_join(clip->samples, join, clip->n_samples);
        r->span[i].duration_s = (double)(clip->n_samples - join) / MONO_RATE;
    }
    r->duration_s = (double)clip->n_samples / MONO_RATE;
    return UTTER_OK;
}

/* ---- what it is worth --------------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void find(struct clip_report *r, bool warning, const char *format, ...)
{
    if (r->n_findings == CLIP_MAX_FINDINGS) return;
    int at = r->n_findings++;
    for (; warning && at > 0 && !r->finding[at - 1].warning; at--)
        r->finding[at] = r->finding[at - 1]; /* warnings first */
    r->finding[at].warning = warning;
    va_list args;
    va_start(args, format);
    vsnprintf(r->finding[at].text, sizeof r->finding[at].text, format, args);
    va_end(args);
}

static void judge_sound(struct clip_report *r)
{
    const struct measures *m = &r->measures;
    if (r->clipped_share > 0.0005)
        find(r, true, "%.1f %% of the samples are clipped: the clone will sound rough. Record again with less gain.",
             100 * r->clipped_share);
    if (m->peak_dbfs > 0.1)
        find(r, false, "Its samples go up to %+.1f dB of full scale; the clip was scaled down to fit.", m->peak_dbfs);
    if (m->level_lufs < -40)
        find(r, false, "It is quiet (%.0f LUFS). That is made up for, but its noise is raised with it.", m->level_lufs);
    if (m->snr_db < 15)
        find(r, true, "Speech is only %.0f dB above the noise: the clone will carry the noise. Aim for 30 dB or more.",
             m->snr_db);
    else if (m->snr_db < 25)
        find(r, false, "Speech is %.0f dB above the noise: usable; a quieter room would help.", m->snr_db);
    if (m->bandwidth_hz < 5000)
        find(r, true, "There is no sound above %.1f kHz (telephone quality): the clone will sound dull.",
             m->bandwidth_hz / 1000);
    else if (m->bandwidth_hz < 9000)
        find(r, false, "There is no sound above %.1f kHz: the clone will be a little dull.", m->bandwidth_hz / 1000);
    if (m->hum_hz > 0)
        find(r, m->hum_db > 25,
             "Mains hum at %.0f Hz, %.0f dB above its surroundings: move the cables, or filter it before.", m->hum_hz,
             m->hum_db);
}

static void judge_content(struct clip_report *r)
{
    const struct measures *m = &r->measures;
    if (m->like_music)
        find(r, true,
             "It has none of the pauses of speech: music, a tone or steady noise? A voice cannot be made of music.");
    if (m->other_pitch_hz > 0)
        find(r, true,
             "There seem to be two voices, at %.0f and %.0f Hz: the clone would mix them. Choose one with --start and "
             "--duration.",
             m->pitch_hz, m->other_pitch_hz);
    if (m->silence_share > 0.5)
        find(r, true, "%.0f %% of the clip is silence, which the clone will copy as pauses.", 100 * m->silence_share);
    if (r->duration_s < CLIP_GOOD_S)
        find(r, true,
             "Only %.1f s long: the voice will be alike in pitch and colour but not in manner, and may drift. Use 5 s "
             "or more; 10 to 15 s are best.",
             r->duration_s);
    else if (r->duration_s < 9.5)
        find(r, false, "%.1f s long: good; 10 to 15 s are best.", r->duration_s);
    if (r->source.lossy && r->source.bits_per_second > 0 && r->source.bits_per_second < 64000)
        find(r, false, "A lossy recording at %d kbit/s: an uncompressed one would be clearer.",
             r->source.bits_per_second / 1000);
    if (r->source.note[0]) find(r, true, "%c%s.", r->source.note[0] - 'a' + 'A', r->source.note + 1);
}

/* Too little to make a voice of. loudest: of the clip's 20 ms levels. */
static utter_status refuse_nothing(const struct clip *clip, const struct source *s, struct cancel *cancel,
                                   struct error *e)
{
    const struct clip_report *r = &clip->report;
    double mean = 0, power = 0;
    for (size_t i = 0; i < clip->n_samples; i++)
        mean += (double)clip->samples[i], power += (double)clip->samples[i] * (double)clip->samples[i];
    mean /= clip->n_samples ? (double)clip->n_samples : 1;
    power /= clip->n_samples ? (double)clip->n_samples : 1;
    if (r->duration_s < CLIP_MIN_S)
        return error_set(e, UTTER_VOICE_UNUSABLE,
                         "%s: %.2f s of sound; a voice needs at least %.0f s (from %.0f s on it becomes alike)",
                         source_name(s), r->duration_s, CLIP_MIN_S, CLIP_GOOD_S);
    struct level_meter meter = {0};
    float levels[PIECE / LEVEL_FRAME + 1], loudest = LEVEL_NOTHING;
    /* where a constant begins and ends the filters ring: a fifth of a second at either end does not count */
    const size_t n_frames = clip->n_samples / LEVEL_FRAME, edge = FRAMES_PER_S / 5;
    size_t frame = 0;
    for (size_t at = 0; at < clip->n_samples; at += PIECE) {
        const size_t n = clip->n_samples - at < PIECE ? clip->n_samples - at : PIECE,
                     made = level_meter_feed(&meter, clip->samples + at, n, levels);
        for (size_t i = 0; i < made; i++, frame++)
            if (frame >= edge && frame + edge < n_frames) loudest = fmaxf(loudest, levels[i]);
        if (cancel_check(cancel, e) != UTTER_OK) return UTTER_CANCELLED;
    }
    if (loudest > -80) return UTTER_OK;
    if (power > 1e-8 && mean * mean > 0.99 * power)
        return error_set(e, UTTER_VOICE_UNUSABLE, "%s: nothing but a constant %.3f; is the microphone connected?",
                         source_name(s), mean);
    if (power <= 0)
        return error_set(e, UTTER_VOICE_UNUSABLE, "%s: nothing but silence (every sample is 0)", source_name(s));
    return error_set(
        e, UTTER_VOICE_UNUSABLE,
        "%s: nothing but silence: its loudest moment is at %.0f dB of full scale; a voice needs -80 or more",
        source_name(s), (double)loudest);
}

static utter_status clean(struct clip *clip, const struct clip_options *o, struct error *e)
{
    struct clip_report *r = &clip->report;
    const struct source_info *i = &r->source;
    const bool mp3_or_aac = strstr(i->format, "mp3") || strstr(i->format, "aac");
    const bool good = mp3_or_aac && i->bits_per_second >= (strstr(i->format, "mp3") ? 128000 : 96000);
    if (o->raw) return UTTER_OK;
    r->cleanup = i->lossy && !good ? CLIP_CLEANED_LOSSY : CLIP_CLEANED;
    if (r->cleanup == CLIP_CLEANED_LOSSY)
        return cleanup_lossy(clip->samples, clip->n_samples, r->measures.bandwidth_hz, o->cancel, e);
    cleanup_clean(clip->samples, clip->n_samples);
    return UTTER_OK;
}

/* ---- all together --------------------------------------------------------------------------------------------------------------- */

/* Channels that cancel each other when they are mixed: then the first one is used. */
static bool cancels(const struct mono_watch *w)
{
    return w->channel_power > 0 && w->mean_power < 1e-3 * w->channel_power;
}

static utter_status choose_spans(struct clip_report *r, struct scan *scan, struct source *s, int *channel,
                                 const struct clip_options *o, struct error *e)
{
    utter_status status = scan_recording(scan, s, *channel, o, e);
    if (status == UTTER_OK && cancels(&scan->watch)) {
        *channel = 0;
        status = scan_recording(scan, s, *channel, o, e);
    }
    if (status != UTTER_OK) return status;
    struct region chosen[CLIP_MAX_SPANS];
    const double wanted = o->duration_s > 0 ? fmin(o->duration_s, CLIP_MAX_S) : CLIP_TARGET_S;
    r->recording_s = (double)scan->watch.n_frames / source_info(s)->rate_hz;
    r->n_spans = choose(chosen, scan, speech_threshold(scan->levels, scan->n), wanted, &r->speech_s);
    for (int i = 0; i < r->n_spans; i++)
        r->span[i] = (struct clip_span){(double)chosen[i].first / FRAMES_PER_S, region_s(chosen[i])};
    if (scan->n < (size_t)(CLIP_MIN_S * FRAMES_PER_S)) r->span[0] = (struct clip_span){0, r->recording_s};
    r->clipped_share = (double)scan->watch.n_clipped / (double)(scan->watch.n_frames ? scan->watch.n_frames : 1);
    return UTTER_OK;
}

static utter_status use_given_span(struct clip_report *r, struct source *s, int *channel, const struct clip_options *o,
                                   struct error *e)
{
    const struct source_info *info = source_info(s);
    const double promised = (double)info->n_frames / info->rate_hz;
    if (info->n_frames >= 0 && o->start_s >= promised)
        return error_set(e, UTTER_INVALID_ARGUMENT,
                         "%s: the part should start at %.1f s, but the recording ends at %.1f s", source_name(s),
                         o->start_s, promised);
    r->recording_s = info->n_frames >= 0 ? promised : -1;
    r->n_spans = 1;
    r->span[0] = (struct clip_span){o->start_s, o->duration_s > 0 ? fmin(o->duration_s, CLIP_MAX_S) : CLIP_MAX_S};
    *channel = MONO_MEAN;
    return UTTER_OK;
}

static void judge_length(struct clip_report *r, const struct clip_options *o)
{
    if (o->duration_s > CLIP_MAX_S)
        find(r, false, "%.0f s were asked for; more than %.0f s tell a voice nothing more, so that many are used.",
             o->duration_s, CLIP_MAX_S);
    if (o->start_s < 0 && r->recording_s > r->duration_s + 2)
        find(r, false, "Of %.0f s, %.1f s were chosen (from %.1f s on%s).", r->recording_s, r->duration_s,
             r->span[0].start_s, r->n_spans > 1 ? ", in two parts" : "");
}

utter_status clip_make(struct clip *clip, struct source *s, const struct clip_options *o, struct error *e)
{
    *clip = (struct clip){0};
    struct clip_report *r = &clip->report;
    struct scan scan = {0};
    struct mono_watch watch = {0};
    int channel = MONO_MEAN;
    const bool chosen = o->start_s < 0;
    utter_status status = chosen ? choose_spans(r, &scan, s, &channel, o, e) : use_given_span(r, s, &channel, o, e);
    if (status == UTTER_OK) status = read_clip(clip, s, channel, o, &watch, e);
    if (status == UTTER_OK && !chosen && cancels(&watch)) {
        clip->n_samples = 0;
        mem_free(clip->samples);
        status = read_clip(clip, s, channel = 0, o, &watch, e);
    }
    r->source = *source_info(s);
    if (!chosen && watch.n_frames > 0) r->clipped_share = (double)watch.n_clipped / (double)watch.n_frames;
    if (status == UTTER_OK) status = refuse_nothing(clip, s, o->cancel, e);
    if (status == UTTER_OK) status = measure(&r->measures, clip->samples, clip->n_samples, o->cancel, e);
    if (status == UTTER_OK && !chosen) r->speech_s = r->duration_s * (1 - r->measures.silence_share);
    if (status == UTTER_OK) {
        if (channel != MONO_MEAN)
            find(r, true, "Its channels cancel each other (one is inverted); only the first was used.");
        judge_sound(r);
        judge_content(r);
        judge_length(r, o);
        const float peak = chosen ? scan.watch.peak : watch.peak;
        for (size_t i = 0; peak > 1 && i < clip->n_samples; i++) clip->samples[i] /= peak;
        status = clean(clip, o, e);
    }
    report_progress(o, 1);
    mem_free(scan.levels);
    if (status != UTTER_OK) {
        mem_free(clip->samples);
        clip->samples = NULL;
        clip->n_samples = 0;
    }
    return status;
}
