/*
 * Matrix products with taps: linear layers, convolutions, and transposed convolutions by output phase.
 *
 * Many rows: a tile is some rows times one panel of columns. Its worker packs the panel's weights (converted to float,
 * [taps][in][panel]) into its own scratch, which stays in the second cache while the rows pass over it. Tiles get enough
 * rows that the packing is a few percent of the work, and few enough that a tile stays under a millisecond.
 *
 * Few rows (a decode step): the stored weights are read once, in their own type and from end to end: tiles are runs of
 * stored rows. For [out][in] these are output columns. For [in][out] they are inputs: every tile gives one lane of all
 * sums, which a second round of tiles adds up in the order that [out][in] has: the same bytes either way round.
 */
#include "base/mem.h"
#include "device/cpu/cpu.h"

enum {
    FEW_ROWS = 4,               /* what product_rows takes at most */
    MIN_TILE_ROWS = 192,        /* packing a panel costs about as much as 8 rows */
    WANTED_TILES = 32,          /* fewer only when the rows do not suffice: keeps up to 16 threads busy */
    ROWS_TILE_BYTES = 64 << 10, /* weights read by a tile of few rows */
    FINISH_COLUMNS = 512,
    MIN_NARROW_ROWS = 16 /* PRECISION_FAST: fewer do not pay for their conversion */
};

struct job {
    const struct product *p;
    const struct cpu_kernels *kernels;
    int tile_rows, tile_cols, n_col_tiles, n_tiles;
    float *scratch; /* scratch_floats for each worker */
    size_t scratch_floats;
    struct quantized_row *quantized;
    bool few, int8;
    enum dtype type; /* of grouped weights */
    float *packed;
    /* PRECISION_FAST: x as bf16, its row `lowest` first */
    uint16_t *narrow;
    ptrdiff_t narrow_stride;
    int lowest, n_narrow, narrow_rows;
};

static int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}
static int min_int(int a, int b)
{
    return a < b ? a : b;
}
static int max_int(int a, int b)
{
    return a > b ? a : b;
}

/* The groups of some columns, which weights that are not grouped are laid out for here. */
static const unsigned char *groups_of(const struct job *j, int col, int n_cols, float *scratch)
{
    const struct weight *w = j->p->w;
    if (w->grouped) return group_of(w, col);
    struct weight part = *w;
    part.data = group_of(w, col); /* rows are as long either way */
    part.out = n_cols;
    j->kernels->group(&part, 0, ceil_div(n_cols, j->kernels->lanes), (unsigned char *)scratch);
    return (const unsigned char *)scratch;
}

static void run_tile(void *arg, int tile, int worker)
{
    const struct job *j = arg;
    const struct product *p = j->p;
    const int row = tile / j->n_col_tiles * j->tile_rows, col = tile % j->n_col_tiles * j->tile_cols;
    const int n_rows = min_int(j->tile_rows, p->rows - row), n_cols = min_int(j->tile_cols, p->w->out - col);
    float *scratch = j->scratch + (size_t)worker * j->scratch_floats;
    if (j->int8)
        j->kernels->product_tile_int8(p, groups_of(j, col, n_cols, scratch), j->type, j->quantized, row, n_rows, col,
                                      n_cols);
    else if (j->quantized)
        j->kernels->product_rows_q8(p, j->quantized + row, row, n_rows, col, n_cols);
    else if (j->narrow)
        j->kernels->product_tile_bf16(p, j->narrow + (p->x_first - j->lowest) * j->narrow_stride, j->narrow_stride, row,
                                      n_rows, col, n_cols, scratch);
    else if (j->few)
        j->kernels->product_rows(p, row, n_rows, col, n_cols, scratch);
    else
        j->kernels->product_tile(p, row, n_rows, col, n_cols, scratch);
}

/* Tile sizes depend on shapes only, never on the number of threads. */
static void cut_into_tiles(struct job *j)
{
    const struct product *p = j->p;
    const int block = j->kernels->block;
    if (j->few) {
        j->tile_rows = FEW_ROWS;
        j->tile_cols = max_int((int)(ROWS_TILE_BYTES / max_int((int)p->w->row_bytes, 1)) & ~15, 16);
    } else {
        const int64_t row_macs = (int64_t)p->taps * p->w->in * j->kernels->panel;
        const int most = (int)(j->kernels->tile_macs / max_int((int)row_macs, 1));
        const int panels = ceil_div(p->w->out, j->kernels->panel);
        const int wanted = ceil_div(p->rows, max_int(ceil_div(WANTED_TILES, panels), 1));
        int rows = min_int(max_int(wanted, MIN_TILE_ROWS), max_int(most, 1));
        rows = ceil_div(p->rows, ceil_div(p->rows, rows)); /* even tiles */
        j->tile_rows = ceil_div(rows, block) * block;
        j->tile_cols = j->kernels->panel;
    }
    j->n_col_tiles = ceil_div(p->w->out, j->tile_cols);
    j->n_tiles = ceil_div(p->rows, j->tile_rows) * j->n_col_tiles;
}

enum { QUANTIZED_ROWS = 4 }; /* of a tile */

static void quantize_tile(void *arg, int tile, int worker)
{
    (void)worker;
    const struct job *j = arg;
    const struct product *p = j->p;
    const int first = tile * QUANTIZED_ROWS, end = min_int(first + QUANTIZED_ROWS, p->rows);
    const int offset = j->type == DTYPE_Q8_0 ? 128 : j->type == DTYPE_Q5_0 ? 16 : 8;
    for (int t = first; t < end; t++)
        j->kernels->quantize_row(&j->quantized[t], p->x + (p->x_first + t * p->row_step) * p->x_stride, p->w->in,
                                 offset);
}

/* The rows of x as 8-bit blocks, in the stream's scratch: one after the other, or blocks side by side for product_tile_int8. */
static void quantize_input(struct stream *s, struct job *j)
{
    const size_t rows = (size_t)j->p->rows, blocks = (size_t)j->p->w->in / 32;
    const size_t row = j->int8 ? 1 : blocks, step = j->int8 ? rows : 1; /* in blocks */
    float *memory = cpu_scratch(s, rows * (sizeof *j->quantized / sizeof(float) + blocks + blocks + blocks * 8));
    if (!memory) return;
    j->quantized = (struct quantized_row *)memory;
    float *scales = memory + rows * sizeof *j->quantized / sizeof(float);
    int32_t *starts = (int32_t *)(scales + rows * blocks);
    int8_t *bytes = (int8_t *)(starts + rows * blocks);
    for (size_t t = 0; t < rows; t++)
        j->quantized[t] = (struct quantized_row){bytes + t * row * 32, scales + t * row, starts + t * row, (int)step};
    cpu_run(s, ceil_div(j->p->rows, QUANTIZED_ROWS), quantize_tile, j);
}

static void sum_lane(void *arg, int tile, int worker)
{
    (void)worker;
    const struct job *j = arg;
    j->kernels->sum_inputs(j->p, 0, j->p->rows, tile, j->scratch + (size_t)tile * j->scratch_floats);
}

static void finish_columns(void *arg, int tile, int worker)
{
    (void)worker;
    const struct job *j = arg;
    const int col = tile * FINISH_COLUMNS;
    j->kernels->finish_inputs(j->p, 0, j->p->rows, col, min_int(FINISH_COLUMNS, j->p->w->out - col), j->scratch);
}

static void run_inputs(struct stream *s, struct job *j)
{
    const int lanes = j->kernels->lanes;
    j->scratch_floats = (size_t)j->p->rows * (size_t)j->p->w->out;
    j->scratch = cpu_scratch(s, j->scratch_floats * (size_t)lanes);
    if (!j->scratch) return;
    cpu_run(s, lanes, sum_lane, j);
    if (s->status == UTTER_OK) cpu_run(s, ceil_div(j->p->w->out, FINISH_COLUMNS), finish_columns, j);
}

enum { PACK_INPUTS = 16 };

static void pack_tile(void *arg, int tile, int worker)
{
    (void)worker;
    const struct job *j = arg;
    const int first = tile * PACK_INPUTS;
    j->kernels->pack_inputs(j->p->w, first, min_int(PACK_INPUTS, j->p->w->in - first), j->packed);
}

/* A panel of [in][out] weights has a piece of every stored row, each on another page. Reading the rows from end to end into
 * all panels first costs a pass over memory and saves five. */
static void pack_all(struct stream *s, struct job *j, struct product *p)
{
    j->packed =
        cpu_scratch(s, (size_t)p->w->in * (size_t)ceil_div(p->w->out, j->kernels->panel) * (size_t)j->kernels->panel);
    if (j->packed) cpu_run(s, ceil_div(p->w->in, PACK_INPUTS), pack_tile, j);
    p->packed = j->packed;
}

static void narrow_tile(void *arg, int tile, int worker)
{
    (void)worker;
    const struct job *j = arg;
    const int first = tile * j->narrow_rows;
    j->kernels->narrow_rows(j->p, j->lowest + first, min_int(j->narrow_rows, j->n_narrow - first),
                            j->narrow + first * j->narrow_stride, j->narrow_stride);
}

/* Every row of x that some output reads, zeros outside, as bf16. */
static void narrow_input(struct stream *s, struct job *j)
{
    const struct product *p = j->p;
    const int reach = (p->taps - 1) * p->tap_step, last = p->x_first + (p->rows - 1) * p->row_step;
    const int pairs = (p->w->in + 1) & ~1;
    j->lowest = p->x_first + min_int(reach, 0);
    j->n_narrow = last + max_int(reach, 0) - j->lowest + 1;
    j->narrow_stride = pairs % 512 == 0 ? pairs + 32 : pairs; /* rows in different cache sets, as arrays have it */
    j->narrow_rows = max_int((1 << 15) / pairs, 1);
    j->narrow = (uint16_t *)cpu_scratch(s, ((size_t)j->n_narrow * (size_t)j->narrow_stride + 1) / 2);
    if (j->narrow) cpu_run(s, ceil_div(j->n_narrow, j->narrow_rows), narrow_tile, j);
}

static void run_product(struct stream *s, struct product *p, const struct epilogue *e)
{
    if (p->rows <= 0 || s->status != UTTER_OK) return;
    struct device *d = s->device;
    const size_t mark = stream_mark(s);
    struct job j = {.p = p, .kernels = &d->kernels, .type = p->w->type};
    const bool inside = p->x_first >= 0 && p->x_first + (p->rows - 1) * p->row_step < p->x_rows;
    const bool fast = d->precision == PRECISION_FAST && !e->exact && !s->exact, blocks = dtype_block(p->w->type) == 32;
    j.few = p->taps == 1 && inside && (p->rows <= FEW_ROWS || p->w->out < FEW_ROWS);
    if (j.few && p->w->in_out && p->rows <= FEW_ROWS) {
        run_inputs(s, &j);
        stream_release(s, mark);
        return;
    }
    j.few &= !p->w->in_out;
    cut_into_tiles(&j);
    j.int8 = fast && e->bytes && blocks && !j.few && p->taps == 1 && inside && d->kernels.product_tile_int8;
    if (j.int8 && !p->w->grouped && j.type == DTYPE_Q5_0) j.type = DTYPE_Q8_0; /* what group() makes of it */
    if (j.int8 || (blocks && p->rows <= FEW_ROWS && j.few)) quantize_input(s, &j);
    if (!j.few && p->w->in_out) pack_all(s, &j, p);
    const bool pays = p->rows >= MIN_NARROW_ROWS && p->w->out >= d->kernels.lanes && p->taps > 0;
    if (s->status == UTTER_OK && fast && !j.int8 && d->kernels.product_tile_bf16 && pays) narrow_input(s, &j);
    if (s->status != UTTER_OK) return;
    j.scratch_floats = (product_scratch(&d->kernels, p) + 15) & ~(size_t)15;
    j.scratch = cpu_scratch(s, j.scratch_floats * (size_t)cpu_workers(s));
    if (j.scratch) {
        if (j.few && p->w->grouped)
            cpu_run_in_shares(s, j.n_tiles, run_tile, &j);
        else
            cpu_run(s, j.n_tiles, run_tile, &j);
    }
    stream_release(s, mark);
}

size_t product_scratch(const struct cpu_kernels *k, const struct product *p)
{
    const size_t in = (size_t)p->w->in, panel = (size_t)k->panel, block = (size_t)k->block, taps = (size_t)p->taps;
    const size_t tap_step = (size_t)(p->tap_step < 0 ? -p->tap_step : p->tap_step);
    const size_t rows_of_x = (block - 1) * (size_t)p->row_step + (taps > 0 ? (taps - 1) * tap_step : 0) + 1;
    const size_t narrow = in * panel + taps * ((in + 1) / 2) * panel, wide = taps * in * panel + rows_of_x * in;
    return LINEAR_BLOCKS * block * panel + (narrow > wide ? narrow : wide);
}

static struct product make_product(struct array out, struct array x, const struct weight *w, const struct epilogue *e)
{
    const struct weight *resident = w->resident;
    return (struct product){
        .w = resident ? resident : w,
        .x = x.data,
        .x_stride = x.stride,
        .x_rows = x.rows,
        .row_step = 1,
        .tap_step = 1,
        .taps = w->taps,
        .tap_stride = 1,
        .out = out.data,
        .out_stride = out.stride,
        .rows = out.rows,
        .bias = w->bias,
        .row_add = e->row_add.data,
        .snake_alpha = e->snake_alpha.data,
        .residual = e->residual.data,
        .residual_stride = e->residual.stride,
        .act = e->act,
        .act_param = e->act_param,
        .scale = e->scale == 0 ? 1 : e->scale,
    };
}

void cpu_conv1d(struct stream *s, struct array out, struct array x, const struct weight *w, struct conv_shape shape,
                const struct epilogue *e)
{
    struct product p = make_product(out, x, w, e);
    p.row_step = max_int(shape.stride, 1);
    p.tap_step = max_int(shape.dilation, 1);
    p.x_first = -shape.pad;
    run_product(s, &p, e);
}

/* out[o] takes x[i] by tap kk = o + pad - i * stride. For the outputs of phase r = (o + pad) % stride these are the taps
 * r, r + stride, ..., read from x rows that go backwards from q = (o + pad) / stride: a small convolution a phase. */
void cpu_conv_transpose1d(struct stream *s, struct array out, struct array x, const struct weight *w, int stride,
                          int pad, const struct epilogue *e)
{
    for (int first = 0; first < min_int(stride, out.rows); first++) {
        const int phase = (first + pad) % stride;
        struct product p = make_product(out, x, w, e);
        p.taps = phase < w->taps ? ceil_div(w->taps - phase, stride) : 0;
        p.tap_first = phase;
        p.tap_stride = stride;
        p.tap_step = -1;
        p.x_first = (first + pad) / stride;
        p.rows = ceil_div(out.rows - first, stride);
        p.out += (ptrdiff_t)first * out.stride;
        p.out_stride *= stride;
        if (p.residual) p.residual += (ptrdiff_t)first * p.residual_stride;
        p.residual_stride *= stride;
        run_product(s, &p, e);
    }
}
