/* sgd.c — plain descent. Source: optax.sgd @0.2.8 as MaxText calls it, without momentum. */
#include "internal.h"

static void trace(MxTrace *t, const OptimParam *param, MxOptimStep *step) {
    (void)param;
    step->p = mx_sgd(t, step->p, step->g, step->hyper, step->clip);
}

static const OptimRule rule = {.name = "sgd", .counts = {"1/count"}, .trace = trace};

const OptimRow optim_sgd = {.name = "sgd", .parts = {{&rule, ""}}};
