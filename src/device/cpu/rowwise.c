/* Ops on rows, one after the other: norms, activations, sums, look-ups. A tile is some rows. */
#include <string.h>

#include "device/cpu/cpu.h"

enum { TILE_FLOATS = 1 << 14 }; /* some tens of microseconds of work */

struct job {
    const struct cpu_kernels *kernels;
    struct array out, x, y, gain, bias;
    const struct weight *table;
    const int32_t *ids;
    enum activation act;
    float a, b, eps, param;
    bool accumulate;
    int times, tile_rows;
    void (*row)(const struct job *j, int r);
};

static float *row_of(struct array a, int r)
{
    return a.data + (ptrdiff_t)(a.rows == 1 ? 0 : r) * a.stride;
}

static void run_tile(void *arg, int tile, int worker)
{
    (void)worker;
    const struct job *j = arg;
    const int first = tile * j->tile_rows;
    const int end = first + j->tile_rows < j->out.rows ? first + j->tile_rows : j->out.rows;
    for (int r = first; r < end; r++) j->row(j, r);
}

static void run(struct stream *s, struct job j)
{
    if (j.out.rows == 0 || j.out.cols == 0) return;
    j.kernels = &s->device->kernels;
    j.tile_rows = j.out.cols < TILE_FLOATS ? TILE_FLOATS / j.out.cols : 1;
    cpu_run(s, (j.out.rows + j.tile_rows - 1) / j.tile_rows, run_tile, &j);
}

static void embed_row(const struct job *j, int r)
{
    float *out = row_of(j->out, r), part[512];
    for (int c = 0; c < j->out.cols; c += 512) {
        const int n = j->out.cols - c < 512 ? j->out.cols - c : 512;
        j->kernels->read_weights(j->table, (size_t)j->ids[r], c, n, part);
        if (j->accumulate)
            j->kernels->add(out + c, 1, out + c, 1, part, n);
        else
            memcpy(out + c, part, (size_t)n * sizeof *part);
    }
}

void cpu_embed(struct stream *s, struct array out, const struct weight *table, const int32_t *ids, bool accumulate)
{
    run(s, (struct job){.out = out, .table = table, .ids = ids, .accumulate = accumulate, .row = embed_row});
}

static void layer_norm_row(const struct job *j, int r)
{
    j->kernels->layer_norm(row_of(j->out, r), row_of(j->x, r), j->gain.data, j->bias.data, j->x.cols, j->eps, j->act);
}

void cpu_layer_norm(struct stream *s, struct array out, struct array x, struct array gain, struct array bias, float eps,
                    enum activation act)
{
    run(s, (struct job){.out = out, .x = x, .gain = gain, .bias = bias, .eps = eps, .act = act, .row = layer_norm_row});
}

static void activate_row(const struct job *j, int r)
{
    j->kernels->activate(row_of(j->out, r), row_of(j->x, r), j->x.cols, j->act, j->param);
}

void cpu_activate(struct stream *s, struct array out, struct array x, enum activation act, float param)
{
    run(s, (struct job){.out = out, .x = x, .act = act, .param = param, .row = activate_row});
}

static void snake_row(const struct job *j, int r)
{
    j->kernels->snake(row_of(j->out, r), row_of(j->x, r), j->gain.data, j->x.cols);
}

void cpu_snake(struct stream *s, struct array out, struct array x, struct array alpha)
{
    run(s, (struct job){.out = out, .x = x, .gain = alpha, .row = snake_row});
}

static void add_row(const struct job *j, int r)
{
    const float *y = array_exists(j->y) ? row_of(j->y, r) : NULL;
    j->kernels->add(row_of(j->out, r), j->a, row_of(j->x, r), j->b, y, j->out.cols);
}

void cpu_add(struct stream *s, struct array out, float a, struct array x, float b, struct array y)
{
    run(s, (struct job){.out = out, .a = a, .x = x, .b = b, .y = y, .row = add_row});
}

static void repeat_row(const struct job *j, int r)
{
    memcpy(row_of(j->out, r), row_of(j->x, r / j->times), (size_t)j->x.cols * sizeof(float));
}

void cpu_repeat_rows(struct stream *s, struct array out, struct array x, int times)
{
    run(s, (struct job){.out = out, .x = x, .times = times, .row = repeat_row});
}

static void l2_normalize_row(const struct job *j, int r)
{
    j->kernels->l2_normalize(row_of(j->out, r), row_of(j->x, r), j->x.cols, j->eps);
}

void cpu_l2_normalize(struct stream *s, struct array out, struct array x, float floor)
{
    run(s, (struct job){.out = out, .x = x, .eps = floor, .row = l2_normalize_row});
}
