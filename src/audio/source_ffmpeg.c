/* FFmpeg's libraries, for what libsndfile does not know. The demuxer reads through our file descriptor and may open nothing
 * else: no protocol is used, and playlists, which name other files, are not among the formats allowed. */
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/channel_layout.h>
#include <libavutil/log.h>
#include <libavutil/opt.h>
#include <libswresample/swresample.h>
#include <string.h>
#include <unistd.h>

#include "audio/source_backend.h"
#include "base/mem.h"

#define FORMATS                                                                                                        \
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,amr,amrnb,amrwb,aac,ac3,eac3,asf,avi,flv,mpeg,mpegts,mp3,ogg,wav,w64,aiff," \
    "caf,flac,tta,ape,wv,dsf,au"
enum { IO_BYTES = 1 << 16 };

struct ffmpeg {
    AVIOContext *io;
    AVFormatContext *container;
    AVCodecContext *codec;
    SwrContext *to_float; /* any sample format to interleaved float */
    AVPacket *packet;
    AVFrame *frame;
    int stream;
    float *ready; /* decoded and not yet taken: frames [taken, n_ready) */
    size_t n_ready, taken, capacity;
    bool ended;
};

static int read_bytes(void *opaque, uint8_t *bytes, int n)
{
    const struct source *s = opaque;
    const ssize_t got = read(s->fd, bytes, (size_t)n);
    return got > 0 ? (int)got : got == 0 ? AVERROR_EOF : AVERROR(EIO);
}

static int64_t seek_bytes(void *opaque, int64_t offset, int whence)
{
    const struct source *s = opaque;
    if (whence & AVSEEK_SIZE) {
        const off_t here = lseek(s->fd, 0, SEEK_CUR), size = lseek(s->fd, 0, SEEK_END);
        lseek(s->fd, here, SEEK_SET);
        return size;
    }
    return lseek(s->fd, offset, whence & ~AVSEEK_FORCE);
}

static void free_ffmpeg(struct ffmpeg *f)
{
    if (!f) return;
    avcodec_free_context(&f->codec);
    avformat_close_input(&f->container);
    if (f->io) av_freep(&f->io->buffer);
    avio_context_free(&f->io);
    swr_free(&f->to_float);
    av_packet_free(&f->packet);
    av_frame_free(&f->frame);
    mem_free(f->ready);
    mem_free(f);
}

static bool open_container(struct source *s, struct ffmpeg *f)
{
    unsigned char *buffer = av_malloc(IO_BYTES);
    AVDictionary *options = NULL;
    if (!buffer) return false;
    if (!(f->io = avio_alloc_context(buffer, IO_BYTES, 0, s, read_bytes, NULL, seek_bytes))) {
        av_free(buffer);
        return false;
    }
    if (!(f->container = avformat_alloc_context())) return false;
    f->container->pb = f->io;
    av_dict_set(&options, "format_whitelist", FORMATS, 0);
    const int status = avformat_open_input(&f->container, NULL, NULL, &options);
    av_dict_free(&options);
    return status >= 0 && avformat_find_stream_info(f->container, NULL) >= 0;
}

static bool open_codec(struct ffmpeg *f)
{
    const AVCodec *decoder = NULL;
    f->stream = av_find_best_stream(f->container, AVMEDIA_TYPE_AUDIO, -1, -1, &decoder, 0);
    if (f->stream < 0 || !decoder || !(f->codec = avcodec_alloc_context3(decoder))) return false;
    AVStream *stream = f->container->streams[f->stream];
    for (unsigned i = 0; i < f->container->nb_streams; i++)
        if ((int)i != f->stream) f->container->streams[i]->discard = AVDISCARD_ALL;
    f->codec->pkt_timebase = stream->time_base;
    f->codec->thread_count = 1;
    return avcodec_parameters_to_context(f->codec, stream->codecpar) >= 0 &&
           avcodec_open2(f->codec, decoder, NULL) >= 0 && (f->packet = av_packet_alloc()) &&
           (f->frame = av_frame_alloc());
}

static bool is_lossy(const AVCodecContext *codec)
{
    const AVCodecDescriptor *d = avcodec_descriptor_get(codec->codec_id);
    return d && (d->props & AV_CODEC_PROP_LOSSY) && !(d->props & AV_CODEC_PROP_LOSSLESS);
}

static void describe(struct source *s, const struct ffmpeg *f)
{
    const AVStream *stream = f->container->streams[f->stream];
    s->info.rate_hz = f->codec->sample_rate;
    s->info.n_channels = f->codec->ch_layout.nb_channels;
    s->info.n_frames =
        f->container->duration > 0 ? av_rescale(f->container->duration, s->info.rate_hz, AV_TIME_BASE) : -1;
    s->info.lossy = is_lossy(f->codec);
    const int64_t rate = stream->codecpar->bit_rate > 0 ? stream->codecpar->bit_rate : f->container->bit_rate;
    s->info.bits_per_second = rate > 0 && rate < 100000000 ? (int)rate : 0;
    const char *container = f->container->iformat->name;
    snprintf(s->info.format, sizeof s->info.format, "%.*s, %s", (int)strcspn(container, ","), container,
             avcodec_get_name(f->codec->codec_id));
    if (!strncmp(container, "mov,", 4))
        snprintf(s->info.format, sizeof s->info.format, "mp4, %s", avcodec_get_name(f->codec->codec_id));
}

static utter_status open_ffmpeg(struct source *s, struct error *e)
{
    av_log_set_level(AV_LOG_QUIET); /* it would print to stderr */
    struct ffmpeg *f = mem_calloc(1, sizeof *f);
    if (!f) return error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory for a decoder", s->name);
    if (!open_container(s, f) || !open_codec(f)) {
        const bool no_sound = f->container && f->container->nb_streams > 0 && f->stream < 0;
        free_ffmpeg(f);
        return error_set(e, UTTER_INPUT_UNREADABLE,
                         no_sound ? "%s: the file has no sound in it" : "%s: not audio of a known format", s->name);
    }
    s->state = f;
    describe(s, f);
    return UTTER_OK;
}

/* The frame's samples behind what is ready. */
static bool keep_frame(struct source *s, struct ffmpeg *f)
{
    AVFrame *frame = f->frame;
    if (frame->ch_layout.nb_channels != s->info.n_channels || frame->sample_rate != s->info.rate_hz ||
        frame->nb_samples <= 0)
        return frame->nb_samples <= 0; /* a stream that changes its format half-way is not followed */
    if (!f->to_float) {
        if (swr_alloc_set_opts2(&f->to_float, &frame->ch_layout, AV_SAMPLE_FMT_FLT, frame->sample_rate,
                                &frame->ch_layout, (enum AVSampleFormat)frame->format, frame->sample_rate, 0,
                                NULL) < 0 ||
            swr_init(f->to_float) < 0)
            return false;
    }
    if ((size_t)frame->nb_samples > f->capacity) {
        float *bigger = mem_realloc(f->ready, (size_t)frame->nb_samples * (size_t)s->info.n_channels * sizeof *bigger);
        if (!bigger) return false;
        f->ready = bigger;
        f->capacity = (size_t)frame->nb_samples;
    }
    uint8_t *out = (uint8_t *)f->ready;
    const int n =
        swr_convert(f->to_float, &out, frame->nb_samples, (const uint8_t **)frame->extended_data, frame->nb_samples);
    f->taken = 0;
    f->n_ready = n > 0 ? (size_t)n : 0;
    return n >= 0;
}

/* Decodes until something is ready. False after a failure; damaged packets are skipped, as players do. */
static bool decode(struct source *s, struct ffmpeg *f)
{
    while (f->taken == f->n_ready && !f->ended) {
        const int got = avcodec_receive_frame(f->codec, f->frame);
        if (got == 0) {
            const bool kept = keep_frame(s, f);
            av_frame_unref(f->frame);
            if (!kept) return false;
        } else if (got == AVERROR(EAGAIN)) {
            const int packet = av_read_frame(f->container, f->packet);
            if (packet >= 0 && f->packet->stream_index == f->stream)
                avcodec_send_packet(f->codec, f->packet);
            else if (packet < 0)
                avcodec_send_packet(f->codec, NULL); /* drains */
            av_packet_unref(f->packet);
        } else {
            f->ended = true;
        }
    }
    return true;
}

static long read_ffmpeg(struct source *s, float *frames, size_t max_frames)
{
    struct ffmpeg *f = s->state;
    if (!decode(s, f)) return -1;
    if (f->taken == f->n_ready) return 0;
    const size_t n = f->n_ready - f->taken < max_frames ? f->n_ready - f->taken : max_frames;
    const size_t channels = (size_t)s->info.n_channels;
    memcpy(frames, f->ready + f->taken * channels, n * channels * sizeof *frames);
    f->taken += n;
    return (long)n;
}

/* Decoded again from the start: exact for every format. */
static bool seek_ffmpeg(struct source *s, int64_t frame)
{
    struct ffmpeg *f = s->state;
    if (frame < s->position) {
        if (av_seek_frame(f->container, f->stream, INT64_MIN, AVSEEK_FLAG_BACKWARD) < 0 &&
            avformat_seek_file(f->container, -1, INT64_MIN, 0, INT64_MAX, 0) < 0)
            return false;
        avcodec_flush_buffers(f->codec);
        f->n_ready = f->taken = 0;
        f->ended = false;
        s->position = 0;
    }
    while (s->position < frame) {
        if (!decode(s, f)) return false;
        const int64_t here = (int64_t)(f->n_ready - f->taken), wanted = frame - s->position;
        if (here == 0) return true; /* the end: the next read says so */
        const int64_t skip = here < wanted ? here : wanted;
        f->taken += (size_t)skip;
        s->position += skip;
    }
    return true;
}

static void close_ffmpeg(struct source *s)
{
    free_ffmpeg(s->state);
}

const struct source_backend source_ffmpeg = {open_ffmpeg, read_ffmpeg, seek_ffmpeg, close_ffmpeg};
bool source_has_ffmpeg(void)
{
    return true;
}
