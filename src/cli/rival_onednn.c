/* oneDNN 2: weights are reordered once to what its matmul asks for. */
#include <oneapi/dnnl/dnnl.h>
#include <omp.h>

#include "base/mem.h"
#include "cli/rival.h"

#if DNNL_VERSION_MAJOR != 2
#error "this comparison is written for oneDNN 2 (Debian 12: libdnnl-dev 2.6)"
#endif

struct state {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_desc_t description;
    dnnl_primitive_t matmul;
    dnnl_memory_t x, w, y;
};

static void close_product(void *state)
{
    struct state *s = state;
    if (!s) return;
    if (s->x) dnnl_memory_destroy(s->x);
    if (s->w) dnnl_memory_destroy(s->w);
    if (s->y) dnnl_memory_destroy(s->y);
    if (s->matmul) dnnl_primitive_destroy(s->matmul);
    if (s->description) dnnl_primitive_desc_destroy(s->description);
    if (s->stream) dnnl_stream_destroy(s->stream);
    if (s->engine) dnnl_engine_destroy(s->engine);
    mem_free(s);
}

static bool describe(struct state *s, const struct rival_product *p)
{
    const dnnl_dims_t x = {p->rows, p->in}, w = {p->in, p->out}, y = {p->rows, p->out};
    dnnl_memory_desc_t x_desc, w_any, y_desc;
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_attr_t attributes = NULL;
    const bool fine =
        dnnl_engine_create(&s->engine, dnnl_cpu, 0) == dnnl_success &&
        dnnl_stream_create(&s->stream, s->engine, dnnl_stream_default_flags) == dnnl_success &&
        dnnl_memory_desc_init_by_tag(&x_desc, 2, x, dnnl_f32, dnnl_ab) == dnnl_success &&
        dnnl_memory_desc_init_by_tag(&w_any, 2, w, dnnl_f32, dnnl_format_tag_any) == dnnl_success &&
        dnnl_memory_desc_init_by_tag(&y_desc, 2, y, dnnl_f32, dnnl_ab) == dnnl_success &&
        dnnl_matmul_desc_init(&matmul, &x_desc, &w_any, NULL, &y_desc) == dnnl_success &&
        dnnl_primitive_attr_create(&attributes) == dnnl_success &&
        dnnl_primitive_attr_set_fpmath_mode(attributes, p->narrow ? dnnl_fpmath_mode_bf16 : dnnl_fpmath_mode_strict) ==
            dnnl_success &&
        dnnl_primitive_desc_create(&s->description, &matmul, attributes, s->engine, NULL) == dnnl_success &&
        dnnl_primitive_create(&s->matmul, s->description) == dnnl_success &&
        dnnl_memory_create(&s->x, &x_desc, s->engine, (void *)(uintptr_t)p->x) == dnnl_success &&
        dnnl_memory_create(&s->y, &y_desc, s->engine, p->y) == dnnl_success;
    if (attributes) dnnl_primitive_attr_destroy(attributes);
    return fine;
}

static bool reorder_weights(struct state *s, const struct rival_product *p)
{
    const dnnl_dims_t w = {p->in, p->out};
    const dnnl_memory_desc_t *wanted = dnnl_primitive_desc_query_md(s->description, dnnl_query_weights_md, 0);
    dnnl_memory_desc_t stored;
    dnnl_memory_t from = NULL;
    dnnl_primitive_desc_t description = NULL;
    dnnl_primitive_t reorder = NULL;
    bool fine =
        dnnl_memory_desc_init_by_tag(&stored, 2, w, dnnl_f32, dnnl_ba) == dnnl_success &&
        dnnl_memory_create(&from, &stored, s->engine, (void *)(uintptr_t)p->w) == dnnl_success &&
        dnnl_memory_create(&s->w, wanted, s->engine, DNNL_MEMORY_ALLOCATE) == dnnl_success &&
        dnnl_reorder_primitive_desc_create(&description, &stored, s->engine, wanted, s->engine, NULL) == dnnl_success &&
        dnnl_primitive_create(&reorder, description) == dnnl_success;
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, s->w}};
    fine = fine && dnnl_primitive_execute(reorder, s->stream, 2, arguments) == dnnl_success &&
           dnnl_stream_wait(s->stream) == dnnl_success;
    if (reorder) dnnl_primitive_destroy(reorder);
    if (description) dnnl_primitive_desc_destroy(description);
    if (from) dnnl_memory_destroy(from);
    return fine;
}

static utter_status open_product(void **state, const struct rival_product *p, struct error *e)
{
    struct state *s = *state = mem_calloc(1, sizeof *s);
    if (!s) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for oneDNN");
    omp_set_num_threads(p->threads);
    if (describe(s, p) && reorder_weights(s, p)) return UTTER_OK;
    close_product(s);
    *state = NULL;
    return error_set(e, UTTER_ENGINE, "oneDNN refuses a product of %d x %d -> %d", p->rows, p->in, p->out);
}

static void run(void *state, const struct rival_product *p)
{
    struct state *s = state;
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, s->x}, {DNNL_ARG_WEIGHTS, s->w}, {DNNL_ARG_DST, s->y}};
    (void)p;
    dnnl_primitive_execute(s->matmul, s->stream, 3, arguments);
    dnnl_stream_wait(s->stream);
}

const struct rival rival_onednn = {"onednn", open_product, run, close_product};
