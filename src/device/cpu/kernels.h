/*
 * kernels.h - what one CPU level implements, and the contract of each kernel.
 *
 * A kernel computes one tile of one op, on the thread that calls it. It reads only what its op reads, writes only its
 * own tile, and gives the same bytes for an output whichever tile holds it. Pointers have the alignment of their type;
 * nothing is padded. CPU_KERNELS is the one list: it makes the table, the declarations of every level, the tests
 * (tests/unit/test_kernels.c) and the benchmarks.
 */
#ifndef DEVICE_CPU_KERNELS_H
#define DEVICE_CPU_KERNELS_H

#include <stddef.h>

#include "base/tensor.h"
#include "device/device.h"

struct weight {
    struct device *device;
    enum dtype type; /* f32, f16, bf16, q8_0, q5_0, q4_0 */
    bool in_out;     /* rows are inputs ([in][out], GPT-2's Conv1D); else [taps][out][in] */
    bool grouped;    /* what `group` made, of one tap */
    int in, out, taps;
    size_t row_bytes;
    const unsigned char *data;       /* not necessarily aligned to the element */
    bool in_file_map;                /* data is a mapped file's */
    void *owned;                     /* the reordered copy, when data is one */
    const float *bias;               /* [out] or NULL */
    struct weight *_Atomic resident; /* the same values in huge pages, once weight_make_resident made them, or NULL */
};

/* One matrix product with taps and its epilogue (device.h, struct epilogue). Output row t reads, for tap j, the row
 * x_first + t * row_step + j * tap_step of x, which is zero outside 0 .. x_rows - 1, and the weight's tap
 * tap_first + j * tap_stride. So a convolution, a phase of a transposed one and a linear layer are the same thing. */
struct product {
    const struct weight *w;
    const float *x;
    ptrdiff_t x_stride;
    int x_rows, x_first, row_step, tap_step;
    int taps, tap_first, tap_stride;
    const float *packed; /* for product_tile and [in][out] weights: what pack_inputs made; else NULL */
    float *out;
    ptrdiff_t out_stride;
    int rows;
    const float *bias, *row_add, *snake_alpha, *residual; /* each may be NULL */
    ptrdiff_t residual_stride;
    enum activation act;
    float act_param, scale;
};

/* A row of activations as q8_0 blocks: x[i] is close to scale[i / 32] * q[i]. Stored weights are unsigned numbers less an
 * offset (q8_0: 128, q5_0: 16, q4_0: 8), so a block's product starts from what the offset takes off: start[b] is -offset times
 * the sum of the block's q.
 *
 * Every kernel adds the products of blocks b, b + 4, b + 8, ... in this order, and these four sums as (0 + 2) + (1 + 3): so the
 * bytes of a result do not depend on how its weights lie. */
struct quantized_row {
    int8_t *q;
    float *scale; /* per block, |x| max / 127 */
    int32_t *start;
    int step; /* from a block to the row's next; 1, or the number of rows, whose blocks b then lie side by side */
};

/* softmax(scale * scores) v for one head and some queries. Keys are panels of `panel` positions: key j, channel c of
 * head h is k[(j / panel) * k_panel + h * k_head + c * panel + j % panel]; value j is at
 * v[(j / panel) * v_panel + h * v_head + (j % panel) * v_row]. */
struct attention {
    int head_dim, n_queries, n_keys;
    int causal_first; /* query i sees keys 0 .. causal_first + i; -1: all keys */
    const float *q;
    ptrdiff_t q_stride;
    const float *k, *v;
    const uint16_t *k16, *v16; /* the same in f16, or NULL; only attend_part reads them, and then not k and v */
    ptrdiff_t k_panel, k_head, v_panel, v_head, v_row;
    /* Pairs of bf16, for attention_tile_bf16: channels 2 i and 2 i + 1 of key j of head h at k_pairs[h * k_pairs_head +
     * (j / panel) * k_pairs_panel + i * panel + j % panel], positions alike; keys 2 i and 2 i + 1 of channel c at
     * v_pairs[h * v_pairs_head + (2 i / panel) * v_pairs_panel + (2 i % panel) / 2 * head_dim + c]. */
    const uint32_t *k_pairs, *v_pairs, *pos_pairs;
    ptrdiff_t k_pairs_head, k_pairs_panel, v_pairs_head, v_pairs_panel, pos_pairs_head, pos_pairs_panel;
    const float *pos; /* relative positions as panels like k, 2 n_keys - 1 of them, or NULL */
    ptrdiff_t pos_panel, pos_head;
    const float *bias_u, *bias_w;
    float *out;
    ptrdiff_t out_stride;
    float scale;
};

enum { ATTENTION_PART = 64 }; /* keys; a multiple of every panel */

/* The harmonic source, ready for a tile: cycles[m] is the phase of harmonic 1 before mel frame m, in cycles. */
struct source {
    const struct source_params *p;
    const float *f0;
    ptrdiff_t f0_stride;
    const double *cycles;
    float *out;
    const double
        *sums; /* [m][h], official_rounding only: harmonic h's unwrapped cycles before frame m; only scalar reads it */
};

/* name, parameters (every kernel returns void).
 *
 * read_weights   elements [first, first + n) of a stored row as floats; for block types first is a multiple of 32 and
 *                first + n is one too or reaches the row's end
 * product_tile   rows x columns of a product; scratch: product_scratch floats
 * pack_inputs    the stored rows [first, first + n) of [in][out] weights into panels[out / panel][in][panel], zero past `out`
 * product_rows   the same for at most 4 rows of a product with one tap, straight from the stored weights; scratch: `in`
 * sum_inputs     for at most 4 rows and [in][out] weights: sums[n_rows][out] of the inputs lane, lane + lanes, ...
 * finish_inputs  adds up the sums of all lanes, then the epilogue: the same bytes as product_rows of the transposed matrix
 * product_rows_q8  the same for [out][in] block types with activations in 8 bits: the sums over a block are exact integers
 * pack_rows      x[row][0 .. width) into panels at positions `first` and on
 * narrow         x[i] as f16 to to[i * step], widen: back
 * attention_tile queries [query, query + n) of one head; scratch: attention_scratch floats
 * attend_part    one query, all heads, keys [first, first + n), n at most ATTENTION_PART and first a multiple of it: for each head
 *                the largest score, the sum of exp(score - largest), and the values weighed by those; then
 *                n_heads * ATTENTION_PART floats of scratch
 * join_parts     parts `part` floats apart, which it may overwrite, to a->out, in order
 * sine_source    mel frames [frame, frame + n)
 * stft16         frames of x[len] (stride 1), istft16: samples [sample, sample + n), sample a multiple of 4 */
#define CPU_KERNELS(X)                                                                                                 \
    X(read_weights, (const struct weight *w, size_t row, int first, int n, float *out))                                \
    X(product_tile, (const struct product *p, int row, int n_rows, int col, int n_cols, float *scratch))               \
    X(pack_inputs, (const struct weight *w, int first, int n, float *panels))                                          \
    X(product_rows, (const struct product *p, int row, int n_rows, int col, int n_cols, float *scratch))               \
    X(sum_inputs, (const struct product *p, int row, int n_rows, int lane, float *sums))                               \
    X(finish_inputs, (const struct product *p, int row, int n_rows, int col, int n_cols, const float *sums))           \
    X(quantize_row, (const struct quantized_row *out, const float *x, int n, int offset))                              \
    X(product_rows_q8,                                                                                                 \
      (const struct product *p, const struct quantized_row *x, int row, int n_rows, int col, int n_cols))              \
    X(pack_rows, (float *panels, const float *x, ptrdiff_t x_stride, int first, int n_rows, int width))                \
    X(narrow, (uint16_t * to, ptrdiff_t step, const float *x, int n))                                                  \
    X(widen, (float *to, const uint16_t *from, int n))                                                                 \
    X(attention_tile, (const struct attention *a, int head, int query, int n, float *scratch))                         \
    X(attend_part, (const struct attention *a, int n_heads, int first, int n, float *part))                            \
    X(join_parts, (const struct attention *a, int n_heads, float *parts, ptrdiff_t part, int n_parts))                 \
    X(layer_norm,                                                                                                      \
      (float *out, const float *x, const float *gain, const float *bias, int n, float eps, enum activation act))       \
    X(activate, (float *out, const float *x, int n, enum activation act, float param))                                 \
    X(snake, (float *out, const float *x, const float *alpha, int n))                                                  \
    X(add, (float *out, float a, const float *x, float b, const float *y, int n))                                      \
    X(l2_normalize, (float *out, const float *x, int n, float floor))                                                  \
    X(sine_source, (const struct source *s, int frame, int n))                                                         \
    X(stft16, (float *out, ptrdiff_t out_stride, const float *x, int len, int frame, int n))                           \
    X(istft16, (float *out, const float *x, ptrdiff_t x_stride, int n_frames, int sample, int n, float limit))

/* Kernels of PRECISION_FAST, where the level has them: products of bf16 pairs with float sums. A product's x becomes bf16 once per op, its
 * rows `stride` values apart, an even number that holds `in` rounded up to pairs; rows outside x and the odd value are zero.
 *
 * narrow_rows       rows [first, first + n) of x, which may lie outside, to out
 * product_tile_bf16 as product_tile; x: the row that output row 0 reads for tap 0; scratch: product_scratch floats
 * narrow_pairs      rows 2 i and 2 i + 1 of x[n][stride] as pairs[i][columns], the first of a pair in the low half; an odd last
 *                   row meets 0; columns a multiple of the vector width
 * attention_tile_bf16 as attention_tile, from a's pairs; head_dim a multiple of the panel */
#define CPU_BF16_KERNELS(X)                                                                                            \
    X(narrow_rows, (const struct product *p, int first, int n, uint16_t *out, ptrdiff_t stride))                       \
    X(product_tile_bf16, (const struct product *p, const uint16_t *x, ptrdiff_t stride, int row, int n_rows, int col,  \
                          int n_cols, float *scratch))                                                                 \
    X(narrow_pairs, (const float *x, ptrdiff_t stride, int n, int columns, uint32_t *pairs))                           \
    X(attention_tile_bf16, (const struct attention *a, int head, int query, int n, float *scratch))

/* The same for block types, where activations may be 8 bits, too (struct epilogue), and the level has more of these products:
 * columns [col, col + n_cols) at `groups`, q8_0 or q4_0; x: row 0 of all rows, whose blocks lie side by side. */
#define CPU_INT8_KERNELS(X)                                                                                            \
    X(product_tile_int8, (const struct product *p, const unsigned char *groups, enum dtype type,                       \
                          const struct quantized_row *x, int row, int n_rows, int col, int n_cols))

/* What the machine can do at most (device_measure). A round of spin_* is SPIN_CHAINS multiply-adds of whole vectors that only
 * depend on their own last: f32: `lanes` of them, bf16: twice, int8: four times as many. read_memory reads whole cache lines.
 * sink gets something, so that nothing is optimised away. */
enum { SPIN_CHAINS = 12 };
#define CPU_LIMIT_KERNELS(X)                                                                                           \
    X(spin_f32, (int64_t rounds, float *sink))                                                                         \
    X(spin_bf16, (int64_t rounds, float *sink)) /* may be NULL */                                                      \
    X(spin_int8, (int64_t rounds, float *sink)) /* may be NULL */                                                      \
    X(read_memory, (const float *x, size_t n, float *sink))

/* How a level wants weights of one tap that every decode step reads, so that a vector of them belongs to as many outputs and
 * nothing is summed across: `lanes` rows (outputs) at a time lie in a group, the last filled up with zeros.
 *
 *     f32, f16, bf16    [out / lanes][in][lanes]
 *     q8_0              [out / lanes][in / 32] blocks of { 8 times [lanes][4] values + 128, lanes scales }
 *     q5_0              becomes q8_0
 *     q4_0              [out / lanes][in / 32] blocks of { 4 times [lanes][4] bytes of two values + 8, lanes scales };
 *                       values i and i + 16 share byte i, as they are stored
 *
 * group: the groups [first, first + n) from [out][in], or the part of all groups that comes from the stored rows
 * [first, first + n) of [in][out]. product_rows, product_rows_q8 and product_tile* read grouped weights, too.
 * NULL: weights are best as they are stored. */
static inline const unsigned char *group_of(const struct weight *w, int col)
{
    return w->data + (size_t)col * w->row_bytes;
}
typedef void group_fn(const struct weight *w, int first, int n, unsigned char *groups);

struct cpu_kernels {
    int panel;     /* columns of a weight panel and positions of a key panel, a multiple of the vector width */
    int lanes;     /* of sum_inputs, and rows of a group */
    int block;     /* rows a product is computed in at a time */
    int tile_macs; /* multiply-adds of about half a millisecond: bounds a tile */
    group_fn *group;
#define X(name, params) void(*name) params;
    CPU_KERNELS(X)
    CPU_BF16_KERNELS(X) /* NULL where products are faster in float */
    CPU_INT8_KERNELS(X) /* NULL likewise */
    CPU_LIMIT_KERNELS(X)
#undef X
};

/* Each fills the table with its level's kernels; called in rising order, so a level may leave some as they were. Levels
 * of other machines are declared but not built. */
void cpu_kernels_scalar(struct cpu_kernels *k);
void cpu_kernels_avx2(struct cpu_kernels *k);
void cpu_kernels_avx512(struct cpu_kernels *k);
void cpu_kernels_neon(struct cpu_kernels *k);
void cpu_kernels_avx512_vnni(struct cpu_kernels *k); /* on top of avx512: 8-bit products */
void cpu_kernels_avx512_bf16(struct cpu_kernels *k); /* on top of avx512: PRECISION_FAST */

#define X(name, params) void name##_scalar params;
CPU_KERNELS(X)
CPU_BF16_KERNELS(X) /* for tests: the scalar table has none */
#undef X

/* Scratch of a tile, in floats. */
enum { LINEAR_BLOCKS = 6 }; /* blocks of rows whose sums a tile of few rows keeps */
size_t product_scratch(const struct cpu_kernels *k, const struct product *p);
size_t attention_scratch(const struct cpu_kernels *k, const struct attention *a);

#endif
