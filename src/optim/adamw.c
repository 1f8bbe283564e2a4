/* adamw.c — Adam with decoupled weight decay, and code shared by related optimizers. Source:
 * optax.adamw @0.2.8. */
#include "internal.h"

#include <math.h>

void optim_decay1(float *hyper, double b1, double t) {
    hyper[MX_HYPER_B1] = (float)b1;
    hyper[MX_HYPER_ONE_B1] = (float)(1 - b1);
    hyper[MX_HYPER_BIAS1] = (float)(1 - pow(b1, t));
    hyper[MX_HYPER_NEXT1] = (float)(1 - pow(b1, t + 1));
}

void optim_decay2(float *hyper, double b2, double t) {
    hyper[MX_HYPER_B2] = (float)b2;
    hyper[MX_HYPER_ONE_B2] = (float)(1 - b2);
    hyper[MX_HYPER_BIAS2] = (float)(1 - pow(b2, t));
}

void optim_adam_hyper(const OptimUpdate *u, float *hyper) {
    optim_decay1(hyper, u->config->adam_b1, u->t);
    optim_decay2(hyper, u->config->adam_b2, u->t);
}

void optim_adam_trace(MxTrace *t, const MxConfig *config, MxAdamwAttr attr, MxOptimStep *step) {
    attr.eps = config->adam_eps;
    attr.eps_root = config->adam_eps_root;
    const MxValue old[] = {step->p, step->g, step->kept[0], step->kept[1]};
    MxValue p = mx_adamw(t, old, step->hyper, step->clip, attr);
    if (p < 0) return;
    step->p = p;
    step->kept[0] = p + 1;
    step->kept[1] = p + 2;
}

void optim_adamw_trace(MxTrace *t, const OptimParam *param, MxOptimStep *step) {
    MxAdamwAttr attr = {.weight_decay = param->is_masked ? 0 : param->config->adam_weight_decay};
    optim_adam_trace(t, param->config, attr, step);
}

static const OptimRule rule = {
    .name = "adamw",
    .kept = {{.tree = OPTIM_mu, .in_mu_dtype = true, .bytes = MX_DYNAMIC},
             {.tree = OPTIM_nu, .bytes = MX_SQUARES}},
    .folder = "0/",
    .counts = {"0/count", "2/count"},
    .hyper = optim_adam_hyper,
    .trace = optim_adamw_trace,
};

const OptimRow optim_adamw = {.name = "adamw", .parts = {{&rule, ""}}};
