/* lion.c — updates of equal size along the sign of a moment. Source: optax.lion @0.2.8; Chen et al.
 * 2023. MaxText has none. */
#include "internal.h"

static void hyper_of(const OptimUpdate *u, float *hyper) {
    optim_decay1(hyper, u->config->lion_b1, u->t);
    optim_decay2(hyper, u->config->lion_b2, u->t);
}

static void trace(MxTrace *t, const OptimParam *param, MxOptimStep *step) {
    MxLionAttr attr = {.weight_decay = param->is_masked ? 0 : param->config->adam_weight_decay};
    const MxValue old[] = {step->p, step->g, step->kept[0]};
    MxValue p = mx_lion(t, old, step->hyper, step->clip, attr);
    if (p < 0) return;
    step->p = p;
    step->kept[0] = p + 1;
}

static const OptimRule rule = {
    .name = "lion",
    .kept = {{.tree = OPTIM_mu, .in_mu_dtype = true, .bytes = MX_DYNAMIC}},
    .folder = "0/",
    .counts = {"0/count", "2/count"},
    .hyper = hyper_of,
    .trace = trace,
};

const OptimRow optim_lion = {.name = "lion", .parts = {{&rule, ""}}};
