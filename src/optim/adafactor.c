/* adafactor.c — Adam without a first moment and with a factored second moment: a product of two
 * arrays, each of which lacks one of the two largest dims. Updates are scaled by the root mean
 * square of the parameter. Every layer is updated separately. Source: optax.adafactor @0.2.8;
 * Shazeer and Stern 2018. MaxText has none. */
#include "internal.h"

#include <math.h>

enum { V_ROW, V_COL, V, EMA };

/* The two largest dims of a parameter, the last of equals; whether its moment is factored. */
static bool factors(const OptimParam *param, int *second, int *largest) {
    const MxShape shape = param->leaf->shape;
    const MxConfig *c = param->config;
    if (!c->adafactor_factored || shape.rank < 2) return false;
    *largest = 0;
    for (int d = 1; d < shape.rank; d++)
        if (shape.dim[d] >= shape.dim[*largest]) *largest = d;
    *second = *largest == 0;
    for (int d = *second + 1; d < shape.rank; d++)
        if (d != *largest && shape.dim[d] >= shape.dim[*second]) *second = d;
    return shape.dim[*second] >= c->adafactor_min_dim_size_to_factor;
}

static int dims_of(const OptimParam *param, int slot, int dims[MX_MAX_RANK]) {
    int second, largest, n = 0, lacks = MX_NONE;
    bool is_factored = factors(param, &second, &largest), is_half = slot == V_ROW || slot == V_COL;
    if (slot == EMA ? param->config->adafactor_momentum <= 0 : is_half != is_factored)
        return MX_NONE;
    if (is_half) lacks = slot == V_ROW ? largest : second;
    for (int d = 0; d < param->leaf->shape.rank; d++)
        if (d != lacks) dims[n++] = d;
    return n;
}

/* 1 less the decay of update t is a power of t. */
static void hyper_of(const OptimUpdate *u, float *hyper) {
    double share = pow(u->t, -u->config->adafactor_decay_rate);
    hyper[MX_HYPER_B1] = (float)u->config->adafactor_momentum;
    hyper[MX_HYPER_ONE_B1] = (float)(1 - u->config->adafactor_momentum);
    hyper[MX_HYPER_B2] = (float)(1 - share);
    hyper[MX_HYPER_ONE_B2] = (float)share;
}

/* A moment of squares of g, their mean along a dim if one is said. */
static MxValue moment(MxTrace *t, const OptimParam *param, MxOptimStep *step, int slot, int dim) {
    const MxShape shape = param->leaf->shape;
    MxDecayedAttr attr = {.is_second = true,
                          .factor = dim == MX_NONE ? 1 : 1 / (double)shape.dim[dim],
                          .plus = param->config->adafactor_eps};
    MxValue new = mx_sum_dim(t, step->g, (MxSumDimAttr){.dim = dim, .squares = true});
    return step->kept[slot] = mx_decayed(t, step->kept[slot], new, step->hyper, attr);
}

/* g over the root of its second moment. */
static MxValue direction(MxTrace *t, const OptimParam *param, MxOptimStep *step) {
    int second, largest;
    if (!factors(param, &second, &largest)) {
        MxTimesAttr each = {.dim = MX_NONE, .factor = MX_FACTOR_INVERSE_ROOT};
        return mx_times(t, step->g, moment(t, param, step, V, MX_NONE), each);
    }
    MxValue row = moment(t, param, step, V_ROW, largest);
    MxValue col = moment(t, param, step, V_COL, second);
    int in_row = second > largest ? second - 1 : second; /* the same dim of what lacks the other */
    MxValue sum = mx_sum_dim(t, row, (MxSumDimAttr){.dim = in_row});
    MxValue mean = mx_scale(t, sum, 1 / (double)param->leaf->shape.dim[second]);
    MxTimesAttr shares = {.dim = in_row, .factor = MX_FACTOR_INVERSE};
    MxTimesAttr by_row = {.dim = largest, .factor = MX_FACTOR_INVERSE_ROOT};
    MxTimesAttr by_col = {.dim = second, .factor = MX_FACTOR_INVERSE_ROOT};
    MxValue u = mx_times(t, step->g, mx_times(t, row, mean, shares), by_row);
    return mx_times(t, u, col, by_col);
}

static void trace(MxTrace *t, const OptimParam *param, MxOptimStep *step) {
    const MxConfig *c = param->config;
    const MxTimesAttr plain = {.dim = MX_NONE};
    MxRmsStepAttr size = {.count = mx_shape_count(param->leaf->shape),
                          .threshold = c->adafactor_clipping_threshold,
                          .scales = c->adafactor_multiply_by_parameter_scale};
    step->g = mx_times(t, step->g, step->clip, plain);
    MxValue u = direction(t, param, step);
    MxValue squares = mx_sum_squares(t, &u, 1), of_p = mx_sum_squares(t, &step->p, 1);
    u = mx_times(t, u, mx_rms_step(t, squares, of_p, step->hyper, size), plain);
    if (c->adafactor_momentum > 0) {
        MxDtype dtype = mx_trace_type(t, step->kept[EMA]).dtype;
        u = mx_decayed(t, step->kept[EMA], u, step->hyper, (MxDecayedAttr){.factor = 1});
        step->kept[EMA] = mx_cast(t, u, dtype);
    }
    double decay = param->is_masked ? 0 : c->adafactor_weight_decay_rate;
    step->p = mx_add(t, mx_scale(t, step->p, 1 - decay), mx_scale(t, u, -1));
}

static const OptimRule rule = {
    .name = "adafactor",
    .kept = {[V_ROW] = {.tree = OPTIM_v_row},
             [V_COL] = {.tree = OPTIM_v_col},
             [V] = {.tree = OPTIM_v, .bytes = MX_SQUARES},
             [EMA] = {.tree = OPTIM_ema, .in_mu_dtype = true, .bytes = MX_DYNAMIC}},
    .folder = "0/",
    .counts = {"0/count", "2/count"},
    .dims = dims_of,
    .hyper = hyper_of,
    .trace = trace,
};

const OptimRow optim_adafactor = {.name = "adafactor", .parts = {{&rule, ""}}};
