/* OpenBLAS: packs the weights anew in every call. */
#include <cblas.h>
#include <openblas_config.h>

#include "cli/rival.h"

static utter_status open_product(void **state, const struct rival_product *p, struct error *e)
{
    *state = NULL;
    openblas_set_num_threads(p->threads);
    return p->narrow ? error_set(e, UTTER_UNSUPPORTED, "OpenBLAS is measured in float32 only") : UTTER_OK;
}

static void run(void *state, const struct rival_product *p)
{
    (void)state;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, p->rows, p->out, p->in, 1, p->x, p->in, p->w, p->in, 0, p->y,
                p->out);
}

static void close_product(void *state)
{
    (void)state;
}

const struct rival rival_openblas = {"openblas", open_product, run, close_product};
