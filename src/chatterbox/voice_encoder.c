/*
 * The voice encoder: speaker vectors by generalised end-to-end training (Wan et al., 2018, arXiv:1710.10467), as in
 * Resemblyzer and the official package's models/voice_encoder.
 *
 *     mel [F][40] -> windows of 160 frames, 77 apart                       [160][B][40]
 *     LSTM 40 -> 256, 256 -> 256, 256 -> 256, zero initial state           lstm.*_l0, _l1, _l2
 *     hidden state of the last layer at the window's last frame            [B][256]
 *     ReLU(proj), each divided by its norm                                 proj.*
 *     mean over the windows, divided by its norm                           [256]
 *
 * All windows step together: row t * B + b is frame t of window b, so one step is one product of B rows.
 */
#include "chatterbox/voice_encoder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { N_LAYERS = 3, MAX_BATCH = 32 /* windows at once; bounds scratch for long recordings */ };

struct voice_encoder {
    struct {
        struct weight *input, *hidden; /* [4 * 256][40 or 256], [4 * 256][256]; input has bias_ih */
        struct array hidden_bias;      /* [1][4 * 256] */
    } lstm[N_LAYERS];
    struct weight *proj; /* [256][256] */
};

utter_status voice_encoder_load(struct voice_encoder **out, struct binder *b)
{
    struct voice_encoder *m = *out = mem_calloc(1, sizeof *m);
    if (!m) return error_set(b->error, UTTER_OUT_OF_MEMORY, "no memory for the voice encoder");
    for (int l = 0; l < N_LAYERS; l++) {
        char bias[32];
        snprintf(bias, sizeof bias, "ve.lstm.bias_ih_l%d", l);
        m->lstm[l].input =
            bind_matrix_weight(b, 4 * VE_SIZE, l == 0 ? VE_MELS : VE_SIZE, bias, "ve.lstm.weight_ih_l%d", l);
        m->lstm[l].hidden = bind_matrix_weight(b, 4 * VE_SIZE, VE_SIZE, NULL, "ve.lstm.weight_hh_l%d", l);
        m->lstm[l].hidden_bias = bind_vector(b, 4 * VE_SIZE, "ve.lstm.bias_hh_l%d", l);
    }
    m->proj = bind_linear(b, VE_SIZE, VE_SIZE, BIAS_REQUIRED, "ve.proj");
    if (binder_status(b) != UTTER_OK) voice_encoder_free(out);
    return binder_status(b);
}

void voice_encoder_free(struct voice_encoder **m)
{
    mem_free(*m);
    *m = NULL;
}

int voice_encoder_windows(int n_frames, int step)
{
    const int reach = n_frames - VE_WINDOW + step > 0 ? n_frames - VE_WINDOW + step : 0;
    const int n = reach / step, rest = reach % step;
    const bool covered = (float)(rest + VE_WINDOW - step) / VE_WINDOW >= 0.8f;
    return n == 0 || covered ? n + 1 : n;
}

/* Frames of windows [first, first + n), time-major; zeros past the end. */
static struct array upload_windows(struct stream *s, const float *mel, int n_frames, int step, int first, int n,
                                   struct error *e)
{
    float *rows = mem_calloc((size_t)VE_WINDOW * (size_t)n * VE_MELS, sizeof *rows);
    if (!rows) {
        stream_fail(s, error_set(e, UTTER_OUT_OF_MEMORY, "no memory for %d windows", n));
        return (struct array){0};
    }
    for (int t = 0; t < VE_WINDOW; t++)
        for (int b = 0; b < n; b++) {
            const int frame = (first + b) * step + t;
            if (frame < n_frames)
                memcpy(rows + (size_t)(t * n + b) * VE_MELS, mel + (size_t)frame * VE_MELS, VE_MELS * sizeof *rows);
        }
    const struct array x = stream_upload(s, VE_WINDOW * n, VE_MELS, rows);
    mem_free(rows);
    return x;
}

/* embeds: [n][256], each of unit norm. */
static void embed_windows(struct stream *s, const struct voice_encoder *m, struct array embeds, struct array x)
{
    const int n = embeds.rows;
    struct array gates = stream_array(s, x.rows, 4 * VE_SIZE), hidden = stream_array(s, x.rows, VE_SIZE);
    struct array cell = stream_array(s, n, VE_SIZE);
    for (int l = 0; l < N_LAYERS; l++) {
        op_linear(s, gates, l == 0 ? x : hidden, m->lstm[l].input,
                  (struct epilogue){.row_add = m->lstm[l].hidden_bias});
        op_fill(s, cell, 0);
        for (int t = 0; t < VE_WINDOW; t++) {
            const struct array now = array_rows(gates, t * n, n);
            if (t > 0)
                op_linear(s, now, array_rows(hidden, (t - 1) * n, n), m->lstm[l].hidden,
                          (struct epilogue){.residual = now});
            op_lstm_cell(s, array_rows(hidden, t * n, n), cell, now);
        }
    }
    op_linear(s, embeds, array_rows(hidden, (VE_WINDOW - 1) * n, n), m->proj, (struct epilogue){.act = ACT_RELU});
    op_l2_normalize(s, embeds, embeds, 0);
}

void voice_encoder_embed(struct stream *s, const struct voice_encoder *m, float *out, const float *mel, int n_frames,
                         int step)
{
    float part[MAX_BATCH * VE_SIZE];
    double sum[VE_SIZE] = {0}, square = 0;
    const int n_windows = voice_encoder_windows(n_frames, step);
    for (int first = 0; first < n_windows && stream_status(s) == UTTER_OK; first += MAX_BATCH) {
        const int n = n_windows - first < MAX_BATCH ? n_windows - first : MAX_BATCH;
        const size_t mark = stream_mark(s);
        struct array embeds = stream_array(s, n, VE_SIZE);
        embed_windows(s, m, embeds, upload_windows(s, mel, n_frames, step, first, n, NULL));
        stream_read(s, part, embeds);
        stream_release(s, mark);
        if (stream_status(s) != UTTER_OK) return;
        for (int i = 0; i < n * VE_SIZE; i++) sum[i % VE_SIZE] += (double)part[i];
    }
    for (int i = 0; i < VE_SIZE; i++) square += sum[i] * sum[i];
    for (int i = 0; i < VE_SIZE; i++) out[i] = (float)(sum[i] / sqrt(square));
}
