/* What was not built in. */
#include "cli/rival.h"

static utter_status refuse(void **state, struct error *e, const char *option)
{
    *state = NULL;
    return error_set(e, UTTER_UNSUPPORTED, "this utter was built without that comparison: configure with -D%s=ON",
                     option);
}

static void run(void *state, const struct rival_product *p)
{
    (void)state, (void)p;
}

static void close_product(void *state)
{
    (void)state;
}

#ifndef HAVE_OPENBLAS
static utter_status refuse_openblas(void **state, const struct rival_product *p, struct error *e)
{
    (void)p;
    return refuse(state, e, "UTTER_BENCH_OPENBLAS");
}
const struct rival rival_openblas = {"openblas", refuse_openblas, run, close_product};
#endif

#ifndef HAVE_ONEDNN
static utter_status refuse_onednn(void **state, const struct rival_product *p, struct error *e)
{
    (void)p;
    return refuse(state, e, "UTTER_BENCH_ONEDNN");
}
const struct rival rival_onednn = {"onednn", refuse_onednn, run, close_product};
#endif
