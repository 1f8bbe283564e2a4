/* adam_pax.c — Adam whose decays include the bias correction, so that the moments need none;
 * moments are always float32. Source: MaxText optimizers/optimizers.py adam_pax @e591f30c, after
 * section 7.1 of Shazeer and Stern 2018. */
#include "internal.h"

#include <math.h>

/* b (1 - b^(t-1)) / (1 - b^t), from 0 at the first update to b. */
static double corrected(double b, double t) {
    return b * (1 - pow(b, t - 1)) / (1 - pow(b, t));
}

static void hyper_of(const OptimUpdate *u, float *hyper) {
    const double decay1 = corrected(u->config->adam_b1, u->t);
    const double decay2 = corrected(u->config->adam_b2, u->t);
    hyper[MX_HYPER_B1] = (float)decay1;
    hyper[MX_HYPER_ONE_B1] = (float)(1 - decay1);
    hyper[MX_HYPER_B2] = (float)decay2;
    hyper[MX_HYPER_ONE_B2] = (float)(1 - decay2);
    hyper[MX_HYPER_BIAS1] = hyper[MX_HYPER_BIAS2] = 1;
}

static const OptimRule rule = {
    .name = "adam_pax",
    .kept = {{.tree = OPTIM_mu, .bytes = MX_DYNAMIC}, {.tree = OPTIM_nu, .bytes = MX_SQUARES}},
    .folder = "",
    .counts = {"count"},
    .hyper = hyper_of,
    .trace = optim_adamw_trace,
};

const OptimRow optim_adam_pax = {.name = "adam_pax", .parts = {{&rule, ""}}};
