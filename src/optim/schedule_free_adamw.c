/* schedule_free_adamw.c — AdamW without a first moment, whose learning rate need not decay: z
 * descends, x is an average of z weighted by the squares of learning rates, and gradients are taken
 * between them, at y = b1 x + (1 - b1) z. A model's parameters are x, so evaluation and export need
 * no special handling; z - x is stored, which is 0 at the start. Source:
 * optax.contrib.schedule_free_adamw @0.2.8, which has y and z instead; Defazio et al. 2024. */
#include "internal.h"

#include <math.h>

enum { Z_MINUS_X, NU };
enum { WEIGHT_SUM, MAX_LR };

/* x moves towards z by its share of all weights so far. Like the original, an update is weighed by
 * the learning rate of the one after it. */
static void hyper_of(const OptimUpdate *u, float *hyper) {
    double most = fmax((double)u->sums[MAX_LR], u->next);
    double weight = pow(most, u->config->schedule_free_weight_lr_power);
    double sum = (double)u->sums[WEIGHT_SUM] + weight, share = sum > 0 ? weight / sum : 0;
    optim_decay2(hyper, u->config->adam_b2, u->t);
    hyper[MX_HYPER_B1] = (float)(1 - share);
    hyper[MX_HYPER_ONE_B1] = (float)share;
    u->new_sums[WEIGHT_SUM] = (float)sum;
    u->new_sums[MAX_LR] = (float)most;
}

static void trace(MxTrace *t, const OptimParam *param, MxOptimStep *step) {
    const MxConfig *c = param->config;
    MxScheduleFreeAttr attr = {.b1 = c->adam_b1,
                               .eps = c->adam_eps,
                               .weight_decay = param->is_masked ? 0 : c->adam_weight_decay};
    const MxValue old[] = {step->p, step->g, step->kept[Z_MINUS_X], step->kept[NU]};
    MxValue p = mx_schedule_free(t, old, step->hyper, step->clip, attr);
    if (p < 0) return;
    step->p = p;
    step->kept[Z_MINUS_X] = p + 1;
    step->kept[NU] = p + 2;
}

static MxValue point(MxTrace *t, const OptimParam *param, const MxOptimStep *step) {
    return mx_add(t, step->p, mx_scale(t, step->kept[Z_MINUS_X], 1 - param->config->adam_b1));
}

static const OptimRule rule = {
    .name = "schedule_free_adamw",
    .kept =
        {[Z_MINUS_X] = {.tree = OPTIM_z_minus_x}, [NU] = {.tree = OPTIM_nu, .bytes = MX_SQUARES}},
    .folder = "",
    .counts = {"count"},
    .sums = {[WEIGHT_SUM] = "weight_sum", [MAX_LR] = "max_lr"},
    .hyper = hyper_of,
    .trace = trace,
    .point = point,
};

const OptimRow optim_schedule_free_adamw = {.name = "schedule_free_adamw", .parts = {{&rule, ""}}};
