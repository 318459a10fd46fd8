#include "chatterbox/s3gen.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "chatterbox/cfm.h"
#include "chatterbox/flow_encoder.h"
#include "chatterbox/hift.h"

enum {
    N_MELS = PROMPT_N_MELS,
    MEANFLOW_STEPS = 2,
    STANDARD_STEPS = 10,
    WAVE_BLOCK = 300 /* frames vocoded at a time: their neighbours cost again, 6 % here and 17 % with 100 */
};

struct s3gen {
    struct flow_encoder encoder;
    struct weight *spk_embed_affine; /* 192 -> 80 */
    struct cfm cfm;
    struct hift hift;
};

utter_status s3gen_load(struct s3gen **out, struct binder *b)
{
    *out = NULL;
    struct s3gen *m = mem_calloc(1, sizeof *m);
    if (!m) return error_set(b->error, UTTER_OUT_OF_MEMORY, "out of memory for the flow and the vocoder");
    flow_encoder_load(&m->encoder, b);
    if (binder_status(b) == UTTER_OK && m->encoder.n_mels != N_MELS)
        b->status =
            error_set(b->error, UTTER_MODEL_DAMAGED, "%s: s3gen.flow.encoder_proj gives %d mel channels, expected %d",
                      checkpoint_path(b->checkpoint), m->encoder.n_mels, N_MELS);
    m->spk_embed_affine = bind_linear(b, N_MELS, XVECTOR_SIZE, BIAS_REQUIRED, "s3gen.flow.spk_embed_affine_layer");
    cfm_load(&m->cfm, b, N_MELS);
    hift_load(&m->hift, b, N_MELS);
    *out = m;
    if (binder_status(b) == UTTER_OK) b->status = cfm_prepare(&m->cfm, b->device, s3gen_default_steps(m), b->error);
    if (binder_status(b) != UTTER_OK) s3gen_free(out);
    return binder_status(b);
}

void s3gen_free(struct s3gen **m)
{
    if (!*m) return;
    flow_encoder_free(&(*m)->encoder);
    cfm_free(&(*m)->cfm);
    mem_free(*m);
    *m = NULL;
}

bool s3gen_is_meanflow(const struct s3gen *m)
{
    return cfm_is_meanflow(&m->cfm);
}
int s3gen_default_steps(const struct s3gen *m)
{
    return s3gen_is_meanflow(m) ? MEANFLOW_STEPS : STANDARD_STEPS;
}
const struct flow_encoder *s3gen_encoder(const struct s3gen *m)
{
    return &m->encoder;
}
const struct cfm *s3gen_cfm(const struct s3gen *m)
{
    return &m->cfm;
}
const struct hift *s3gen_hift(const struct s3gen *m)
{
    return &m->hift;
}

/* ---- tokens to mel ---------------------------------------------------------------------------------------------- */

/* What a request computes with: tokens and rows of [prompt; speech], and where the prompt's mel ends in them. A prompt of
 * 2n + 1 frames overlaps the first speech token's first row, unless that token is left out. */
struct extent {
    int prompt_tokens, speech_tokens;
    int rows, prompt_rows, prompt_frames;
};

static struct extent extent_of(const struct mel_request *r)
{
    struct extent x = {.prompt_tokens = r->voice->n_prompt_tokens - r->first_prompt_token,
                       .speech_tokens = r->n_tokens - r->first_token};
    const int left_out = r->final ? 0 : S3GEN_LOOKAHEAD_TOKENS;
    x.rows = S3GEN_FRAMES_PER_TOKEN * (x.prompt_tokens + x.speech_tokens - left_out);
    x.prompt_rows = S3GEN_FRAMES_PER_TOKEN * x.prompt_tokens;
    x.prompt_frames = r->voice->n_prompt_frames - S3GEN_FRAMES_PER_TOKEN * r->first_prompt_token;
    if (r->first_token && x.prompt_frames > x.prompt_rows) x.prompt_frames = x.prompt_rows;
    return x;
}

int s3gen_mel_frames(const struct mel_request *r)
{
    const struct extent x = extent_of(r);
    return x.rows > x.prompt_frames ? x.rows - x.prompt_frames : 0;
}

/* The frame of speech that row 0 of s3gen_mel's result is. */
static int mel_first_frame(const struct mel_request *r)
{
    const int overlap = r->voice->n_prompt_frames - S3GEN_FRAMES_PER_TOKEN * r->voice->n_prompt_tokens; /* 0 or 1 */
    return r->first_token ? S3GEN_FRAMES_PER_TOKEN * r->first_token - overlap : 0;
}

/* Rows first .. first + n - 1 of the noise; a cancel leaves them unfinished. */
static void draw_rows(struct stream *s, struct rng noise, int first, int n, float *out)
{
    enum { BAND = 64 }; /* rows, some 0.3 ms */
    for (int i = 0; i < n && stream_poll(s) == UTTER_OK; i += BAND)
        rng_normal(noise, (uint64_t)(first + i) * N_MELS, (size_t)(n - i < BAND ? n - i : BAND) * N_MELS,
                   out + (size_t)i * N_MELS);
}

/* The initial noise, by absolute row. */
static struct array initial_noise(struct stream *s, const struct mel_request *r, const struct extent *x)
{
    if (r->z) return stream_upload(s, x->rows, N_MELS, r->z);
    float *z = mem_alloc((size_t)x->rows * N_MELS * sizeof *z);
    if (!z) {
        stream_fail(s, UTTER_OUT_OF_MEMORY);
        return (struct array){0};
    }
    draw_rows(s, r->noise, S3GEN_FRAMES_PER_TOKEN * r->first_prompt_token, x->prompt_rows, z);
    draw_rows(s, r->noise, S3GEN_FRAMES_PER_TOKEN * (r->voice->n_prompt_tokens + r->first_token),
              x->rows - x->prompt_rows, z + (size_t)x->prompt_rows * N_MELS);
    struct array a = stream_upload(s, x->rows, N_MELS, z);
    mem_free(z);
    return a;
}

static void encode(struct stream *s, const struct s3gen *m, struct array mu, const struct mel_request *r,
                   const struct extent *x)
{
    const size_t n_prompt = (size_t)x->prompt_tokens, n_speech = (size_t)x->speech_tokens;
    int32_t *tokens = mem_alloc((n_prompt + n_speech) * sizeof *tokens);
    if (!tokens) {
        stream_fail(s, UTTER_OUT_OF_MEMORY);
        return;
    }
    if (n_prompt) memcpy(tokens, r->voice->prompt_tokens + r->first_prompt_token, n_prompt * sizeof *tokens);
    memcpy(tokens + n_prompt, r->tokens + r->first_token, n_speech * sizeof *tokens);
    flow_encoder_forward(s, &m->encoder, mu, tokens, (int)(n_prompt + n_speech), r->observer);
    mem_free(tokens);
}

/* spk = affine(e / |e|) [1][80] */
static struct array speaker(struct stream *s, const struct s3gen *m, const struct mel_request *r)
{
    struct array spk = stream_array(s, 1, N_MELS), e = stream_upload(s, 1, XVECTOR_SIZE, r->voice->xvector);
    op_l2_normalize(s, e, e, 1e-12f);
    op_linear(s, spk, e, m->spk_embed_affine, (struct epilogue){0});
    observe(r->observer, spk, "spk_affine");
    return spk;
}

void s3gen_mel(struct stream *s, const struct s3gen *m, struct array out, const struct mel_request *r)
{
    const struct extent e = extent_of(r);
    if (e.rows <= e.prompt_frames) return;
    const size_t mark = stream_mark(s);
    struct array in = stream_array(s, e.rows, 4 * N_MELS); /* x, mu, spk, cond */
    struct array x = array_cols(in, 0, N_MELS), mu = array_cols(in, N_MELS, N_MELS);
    struct array cond = array_cols(in, 3 * N_MELS, N_MELS);

    encode(s, m, mu, r, &e);
    observe(r->observer, mu, "encoder_proj");
    op_copy(s, array_cols(in, 2 * N_MELS, N_MELS), speaker(s, m, r));
    op_fill(s, cond, 0);
    if (e.prompt_frames)
        stream_write(s, array_rows(cond, 0, e.prompt_frames),
                     r->voice->prompt_mel + (size_t)r->first_prompt_token * S3GEN_FRAMES_PER_TOKEN * N_MELS);
    op_copy(s, x, initial_noise(s, r, &e));

    cfm_solve(s, &m->cfm, in, r->n_steps ? r->n_steps : s3gen_default_steps(m), r->observer);
    op_copy(s, out, array_rows(x, e.prompt_frames, e.rows - e.prompt_frames));
    stream_release(s, mark);
}

/* ---- an utterance on its way ------------------------------------------------------------------------------------ */

struct s3gen_stream {
    const struct s3gen *model;
    const struct conds *voice;
    struct s3gen_options options;
    struct rng flow_noise, source_noise;
    float phases[HIFT_HARMONICS];

    float *mel; /* [n_frames][80], every frame so far */
    int n_frames, capacity;
    bool complete; /* no more frames will come */

    /* The source of frames source_first .. source_first + n_source - 1 is settled: their pitch will not change any more. */
    float source[(HIFT_LEFT + WAVE_BLOCK + HIFT_RIGHT) * HIFT_HOP];
    int source_first, n_source;
    double cycles; /* phase of the first harmonic after them */

    int n_spoken; /* frames handed out as samples */
    float samples[WAVE_BLOCK * HIFT_HOP];
    int n_samples;
};

utter_status s3gen_stream_create(struct s3gen_stream **out, const struct s3gen *m, struct error *e)
{
    *out = mem_calloc(1, sizeof **out);
    if (!*out) return error_set(e, UTTER_OUT_OF_MEMORY, "out of memory for an utterance");
    (*out)->model = m;
    return UTTER_OK;
}

void s3gen_stream_free(struct s3gen_stream **st)
{
    if (!*st) return;
    mem_free((*st)->mel);
    mem_free(*st);
    *st = NULL;
}

void s3gen_stream_begin(struct s3gen_stream *st, const struct conds *voice, const struct s3gen_options *o)
{
    st->voice = voice;
    st->options = *o;
    st->flow_noise = rng_stream(o->seed, "flow noise");
    st->source_noise = rng_stream(o->seed, "source noise");
    const struct rng phase = rng_stream(o->seed, "source phase");
    st->phases[0] = 0;
    for (int h = 1; h < HIFT_HARMONICS; h++) st->phases[h] = (float)(M_PI * (2 * rng_uniform(phase, (uint64_t)h) - 1));
    st->n_frames = st->source_first = st->n_source = st->n_spoken = st->n_samples = 0;
    st->cycles = 0;
    st->complete = false;
}

static int hold_back(const struct s3gen_options *o)
{
    const int frames = o->hold_back_frames ? o->hold_back_frames : S3GEN_HOLD_BACK;
    return frames < HIFT_F0_CONTEXT ? HIFT_F0_CONTEXT : frames < HIFT_RIGHT ? frames : HIFT_RIGHT;
}

int s3gen_first_tokens(const struct s3gen_options *o)
{
    /* 2 n - 6 - 1 frames are known (1 for a prompt of 2n + 1 frames); one more than is held back must be. */
    return (hold_back(o) + 1 + 1) / S3GEN_FRAMES_PER_TOKEN + S3GEN_LOOKAHEAD_TOKENS + 1;
}

static bool reserve_frames(struct s3gen_stream *st, int n)
{
    if (n <= st->capacity) return true;
    const int capacity = n + n / 2;
    float *mel = mem_realloc(st->mel, (size_t)capacity * N_MELS * sizeof *mel);
    if (!mel) return false;
    st->mel = mel;
    st->capacity = capacity;
    return true;
}

utter_status s3gen_stream_mel(struct s3gen_stream *st, struct stream *s, const int32_t *tokens, int n_tokens,
                              bool final)
{
    struct mel_request r = {.voice = st->voice,
                            .tokens = tokens,
                            .n_tokens = n_tokens,
                            .final = final,
                            .n_steps = st->options.n_steps,
                            .noise = st->flow_noise};
    const int context = st->options.context_tokens, known = st->n_frames / S3GEN_FRAMES_PER_TOKEN;
    if (context && known > context) r.first_token = known - context;
    if (st->options.first_prompt && !st->n_frames && !final && st->options.first_prompt < st->voice->n_prompt_tokens)
        r.first_prompt_token = st->voice->n_prompt_tokens - st->options.first_prompt;
    const int first = mel_first_frame(&r), n = s3gen_mel_frames(&r), fresh = first + n - st->n_frames;
    if (fresh > 0) {
        if (!reserve_frames(st, first + n)) stream_fail(s, UTTER_OUT_OF_MEMORY);
        const size_t mark = stream_mark(s);
        struct array mel = stream_array(s, n, N_MELS);
        s3gen_mel(s, st->model, mel, &r);
        if (stream_wait(s) == UTTER_OK) {
            stream_read(s, st->mel + (size_t)st->n_frames * N_MELS, array_rows(mel, n - fresh, fresh));
            st->n_frames += fresh;
        }
        stream_release(s, mark);
    }
    if (final && stream_status(s) == UTTER_OK) st->complete = true;
    return stream_status(s);
}

/* Brings the source up to date for the frames [first, end) of mel. The pitch of the last frames still depends on frames to
 * come, unless the utterance ends there: their source is good enough as a neighbour, and made anew by the next call. */
static void extend_source(struct s3gen_stream *st, struct stream *s, struct array mel, int first, int end)
{
    const int settled = end == st->n_frames && st->complete ? end : end - HIFT_F0_CONTEXT;
    const int drop = first - st->source_first, known = st->source_first + st->n_source;
    memmove(st->source, st->source + (size_t)drop * HIFT_HOP, (size_t)(st->n_source - drop) * HIFT_HOP * sizeof(float));
    st->source_first = first;
    st->n_source -= drop;

    struct array f0 = stream_array(s, end - first, 1), out = stream_array(s, (end - first) * HIFT_HOP, 1);
    hift_f0(s, &st->model->hift, f0, mel);
    struct source_params p = {.phase = stream_upload(s, 1, HIFT_HARMONICS, st->phases),
                              .noise_stream = st->source_noise};
    const int cuts[] = {known, settled > known ? settled : known, end};
    for (int i = 0; i < 2; i++) {
        const int n = cuts[i + 1] - cuts[i];
        if (n <= 0 || stream_status(s) != UTTER_OK) continue;
        const bool is_settled = i == 0;
        double end_cycles = st->cycles;
        p.first_sample = (int64_t)cuts[i] * HIFT_HOP;
        p.start_cycles = st->cycles;
        p.end_cycles = &end_cycles;
        struct array part = array_rows(out, 0, n * HIFT_HOP);
        hift_source(s, &st->model->hift, part, array_rows(f0, cuts[i] - first, n), p);
        stream_read(s, st->source + (size_t)(cuts[i] - first) * HIFT_HOP, part);
        if (is_settled) {
            st->cycles = end_cycles;
            st->n_source += n;
        }
    }
}

float s3gen_fade(int i)
{
    enum { HALF = S3GEN_SAMPLE_RATE / 50 };
    if (i >= 2 * HALF) return 1;
    return i < HALF ? 0 : (float)((cos(M_PI * (1 - (double)(i - HALF) / (HALF - 1))) + 1) / 2);
}

utter_status s3gen_stream_wave(struct s3gen_stream *st, struct stream *s)
{
    const int ready = st->complete ? st->n_frames : st->n_frames - hold_back(&st->options), left = ready - st->n_spoken;
    const int n = left < WAVE_BLOCK ? left : WAVE_BLOCK;
    if (stream_status(s) != UTTER_OK) return stream_status(s);
    if (n <= 0) return st->complete ? UTTER_DONE : UTTER_OK;

    const int first = st->n_spoken > HIFT_LEFT ? st->n_spoken - HIFT_LEFT : 0, wish = st->n_spoken + n + HIFT_RIGHT;
    const int end = wish < st->n_frames ? wish : st->n_frames;
    const size_t mark = stream_mark(s);
    struct array mel = stream_upload(s, end - first, N_MELS, st->mel + (size_t)first * N_MELS);
    extend_source(st, s, mel, first, end);
    struct array source = stream_upload(s, (end - first) * HIFT_HOP, 1, st->source);
    struct array out = stream_array(s, n * HIFT_HOP, 1);
    hift_decode(s, &st->model->hift, out, mel, source, (struct hift_window){st->n_spoken - first, n}, NULL);
    stream_read(s, st->samples, out);
    stream_release(s, mark);
    if (stream_status(s) != UTTER_OK) return stream_status(s);

    const int fading = 2 - st->n_spoken; /* frames of the fade that are in this block */
    for (int i = 0; i < HIFT_HOP * (fading < n ? fading : n); i++)
        st->samples[i] *= s3gen_fade(HIFT_HOP * st->n_spoken + i);
    st->n_spoken += n;
    st->n_samples = n * HIFT_HOP;
    return UTTER_AUDIO;
}

const float *s3gen_stream_samples(const struct s3gen_stream *st, int *n_samples)
{
    *n_samples = st->n_samples;
    return st->samples;
}

const float *s3gen_stream_frames(const struct s3gen_stream *st, int *n_frames)
{
    *n_frames = st->n_frames;
    return st->mel;
}
