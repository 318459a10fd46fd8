/*
 * cpu.h - the CPU device from inside: what its objects hold, and the ops behind device.h's checks.
 *
 * device.c checks shapes and statuses and owns lifetimes; the files here cut an op into tiles by shape alone and hand the
 * tiles to the pool; kernels.h lists what each CPU level implements for one tile.
 */
#ifndef DEVICE_CPU_CPU_H
#define DEVICE_CPU_CPU_H

#include <pthread.h>

#include "base/arena.h"
#include "base/pool.h"
#include "device/cpu/kernels.h"
#include "device/device.h"

struct device {
    enum cpu_level level;
    enum precision precision;
    struct cpu_kernels kernels;
    struct pool *pool;
    struct param *params; /* converted parameters, freed with the device */
    pthread_mutex_t params_lock;
    struct arena resident;         /* weights copied to huge pages; its space is reserved when the first one comes */
    pthread_mutex_t resident_lock; /* guards the arena: one weight is moved at a time */
    bool huge_pages;
    char name[64];
};

struct stream {
    struct device *device;
    struct cancel *cancel;
    struct arena scratch;
    bool exact; /* stream_keep_exact */
    utter_status status;
    struct error error;
    bool alone; /* inside stream_fork: its tiles run on the thread that issues the op */
};

/* Keys lie in panels of kernels.panel positions, each [width][panel], so that the scores of neighbouring positions come
 * from one vector; values in blocks of the same positions, each [head][panel][head_dim]. */
struct kv_cache {
    struct device *device;
    enum dtype type; /* f32 or f16 */
    int n_layers, n_positions, width;
    size_t layer_bytes;  /* of one layer's keys, or values */
    struct arena memory; /* reserved address space: positions that were never used cost nothing */
    unsigned char *keys, *values;
};

/* Runs fn over tiles; a cancel latches CANCELLED in the stream. */
void cpu_run(struct stream *s, int n_tiles, pool_tile_fn *fn, void *arg);
void cpu_run_in_shares(struct stream *s, int n_tiles, pool_tile_fn *fn, void *arg); /* see pool.h */
int cpu_workers(const struct stream *s); /* how many may run the tiles of an op: for scratch of each */
/* 64-byte aligned floats from the stream's scratch; NULL after latching OUT_OF_MEMORY. */
float *cpu_scratch(struct stream *s, size_t n_floats);

void cpu_conv1d(struct stream *s, struct array out, struct array x, const struct weight *w, struct conv_shape shape,
                const struct epilogue *e);
void cpu_conv_transpose1d(struct stream *s, struct array out, struct array x, const struct weight *w, int stride,
                          int pad, const struct epilogue *e);
/* pos does not exist for plain attention. */
void cpu_attention(struct stream *s, struct array out, struct array q, struct array k, struct array v, struct array pos,
                   struct array bias_u, struct array bias_w, int n_heads, float scale);
void cpu_attention_cached(struct stream *s, struct array out, struct array q, struct array k, struct array v,
                          struct kv_cache *kv, int layer, int first, int n_heads, float scale);
void cpu_attention_each(struct stream *s, struct array out, struct array q, struct array k, struct array v,
                        struct kv_cache *const *kv, int layer, const int *first, int n_heads, float scale);
void cpu_kv_cache_copy(struct stream *s, struct kv_cache *dst, const struct kv_cache *src, int n);
void cpu_embed(struct stream *s, struct array out, const struct weight *table, const int32_t *ids, bool accumulate);
void cpu_layer_norm(struct stream *s, struct array out, struct array x, struct array gain, struct array bias, float eps,
                    enum activation act);
void cpu_activate(struct stream *s, struct array out, struct array x, enum activation act, float param);
void cpu_snake(struct stream *s, struct array out, struct array x, struct array alpha);
void cpu_add(struct stream *s, struct array out, float a, struct array x, float b, struct array y);
void cpu_repeat_rows(struct stream *s, struct array out, struct array x, int times);
void cpu_l2_normalize(struct stream *s, struct array out, struct array x, float floor);
void cpu_sine_source(struct stream *s, struct array out, struct array f0, const struct source_params *p);
void cpu_stft16(struct stream *s, struct array out, struct array x);
void cpu_istft16(struct stream *s, struct array out, struct array x, float limit);
void cpu_scale_shift(struct stream *s, struct array out, struct array x, struct array scale, struct array shift,
                     enum activation act);
void cpu_rope(struct stream *s, struct array out, struct array x, struct array frequencies, int first_position);
void cpu_depthwise_conv1d(struct stream *s, struct array out, struct array x, struct array taps, int pad,
                          struct array residual);
void cpu_lstm_cell(struct stream *s, struct array hidden, struct array cell, struct array gates);
void cpu_segment_mean(struct stream *s, struct array out, struct array x, int segment);
void cpu_segment_gate(struct stream *s, struct array out, struct array x, struct array gate, int segment);
void cpu_mean_std(struct stream *s, struct array out, struct array x);

#endif
