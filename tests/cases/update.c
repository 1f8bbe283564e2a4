/* update.c — an optimizer's step. */
#include "cases.h"

#include <math.h>

/* A moment decays in its own dtype. */
static double decay1_of(const double *hyper, MxType mu) {
    double b1 = hyper[MX_HYPER_B1];
    return mu.dtype == MX_BF16 ? (double)mx_bf16_to_f32(mx_f32_to_bf16((float)b1)) : b1;
}

static double ahead_of(const double *hyper, double mu, double g) {
    return hyper[MX_HYPER_B1] * mu / hyper[MX_HYPER_NEXT1] +
           hyper[MX_HYPER_ONE_B1] * g / hyper[MX_HYPER_BIAS1];
}

static void ref_adamw(const Reference *r) {
    const MxAdamwAttr *a = r->attr;
    const double *hyper = r->in[4], decay = decay1_of(hyper, r->in_type[2]);
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++) {
        double p = r->in[0][i], g = r->in[1][i] * r->in[5][0];
        double mu = decay * r->in[2][i] + hyper[MX_HYPER_ONE_B1] * g;
        double nu = hyper[MX_HYPER_B2] * r->in[3][i] + hyper[MX_HYPER_ONE_B2] * g * g;
        double root = sqrt(nu / hyper[MX_HYPER_BIAS2] + a->eps_root) + a->eps;
        double first = a->nesterov ? ahead_of(hyper, mu, g) : mu / hyper[MX_HYPER_BIAS1];
        r->out[0][i] = p - hyper[MX_HYPER_LR] * (first / root + a->weight_decay * p);
        r->out[1][i] = mu;
        r->out[2][i] = nu;
    }
}

static void ref_sgd(const Reference *r) {
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++)
        r->out[0][i] = r->in[0][i] - r->in[2][MX_HYPER_LR] * r->in[3][0] * r->in[1][i];
}

static double sign_of(double x) {
    return x > 0 ? 1 : x < 0 ? -1 : 0;
}

static double decay2_of(const double *hyper, MxType mu) {
    double b2 = hyper[MX_HYPER_B2];
    return mu.dtype == MX_BF16 ? (double)mx_bf16_to_f32(mx_f32_to_bf16((float)b2)) : b2;
}

static void ref_lion(const Reference *r) {
    const double *hyper = r->in[3], b1 = decay1_of(hyper, r->in_type[2]);
    const double b2 = decay2_of(hyper, r->in_type[2]);
    const double decay = ((const MxLionAttr *)r->attr)->weight_decay;
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++) {
        double p = r->in[0][i], g = r->in[1][i] * r->in[4][0], mu = r->in[2][i];
        double step = sign_of(b1 * mu + hyper[MX_HYPER_ONE_B1] * g) + decay * p;
        r->out[0][i] = p - hyper[MX_HYPER_LR] * step;
        r->out[1][i] = b2 * mu + hyper[MX_HYPER_ONE_B2] * g;
    }
}

static void ref_schedule_free(const Reference *r) {
    const MxScheduleFreeAttr *a = r->attr;
    const double *hyper = r->in[4];
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++) {
        double x = r->in[0][i], g = r->in[1][i] * r->in[5][0], d = r->in[2][i];
        double nu = hyper[MX_HYPER_B2] * r->in[3][i] + hyper[MX_HYPER_ONE_B2] * g * g;
        double step = g / (sqrt(nu / hyper[MX_HYPER_BIAS2]) + a->eps);
        double z = x + d - hyper[MX_HYPER_LR] * (step + a->weight_decay * (x + (1 - a->b1) * d));
        r->out[0][i] = x + hyper[MX_HYPER_ONE_B1] * (z - x);
        r->out[1][i] = hyper[MX_HYPER_B1] * (z - x);
        r->out[2][i] = nu;
    }
}

static void ref_momentum(const Reference *r) {
    const double *hyper = r->in[2], decay = decay1_of(hyper, r->in_type[1]);
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++) {
        double g = r->in[0][i] * r->in[3][0];
        r->out[1][i] = decay * r->in[1][i] + hyper[MX_HYPER_ONE_B1] * g;
        r->out[0][i] = ahead_of(hyper, r->out[1][i], g);
    }
}

static void ref_unit(const Reference *r) {
    double eps = ((const MxUnitAttr *)r->attr)->eps;
    int64_t n = element_count(r->in_type[0]), each = n / element_count(r->in_type[1]);
    for (int64_t i = 0; i < n; i++) r->out[0][i] = r->in[0][i] / (sqrt(r->in[1][i / each]) + eps);
}

static void ref_descend(const Reference *r) {
    const MxDescendAttr *a = r->attr;
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++) {
        double p = r->in[0][i], step = a->factor * r->in[1][i] + a->weight_decay * p;
        r->out[0][i] = p - r->in[2][MX_HYPER_LR] * step;
    }
}

static void ref_spike(const Reference *r) {
    double norm = fmin(sqrt(r->in[0][0]), ((const MxSpikeAttr *)r->attr)->threshold);
    bool is_fine = r->in[0][0] >= 0 && norm - r->in[1][0] <= r->in[1][1];
    r->out[0][0] = !is_fine;
}

static void ref_select(const Reference *r) {
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++)
        r->out[0][i] = r->in[2][0] != 0 ? r->in[1][i] : r->in[0][i];
}

// clang-format off
const OpTest test_adamw = {
    CASES(
        {"plain", ATTR(MxAdamwAttr, .eps = 1e-8), "f31,41 f31,41 x31,41:normal0.5 f31,41:square0.5 f8:hyper f:value0.6", NULL, 0},
        {"decay, root", ATTR(MxAdamwAttr, .eps = 1e-8, .eps_root = 1e-6, .weight_decay = 0.1), "f31,41 f31,41 x31,41:normal0.5 f31,41:square0.5 f8:hyper f:value0.6", NULL, 0},
        {"large", ATTR(MxAdamwAttr, .eps = 1e-8, .weight_decay = 0.1), "f3,211,113 f3,211,113 x3,211,113:normal0.5 f3,211,113:square0.5 f8:hyper f:value0.6", NULL, 0},
        {"nesterov", ATTR(MxAdamwAttr, .eps = 1e-8, .weight_decay = 0.1, .nesterov = true), "f31,41 f31,41 x31,41:normal0.5 f31,41:square0.5 f8:hyper f:value0.6", NULL, 0},
        {NULL, ATTR(MxAdamwAttr, .eps = 1e-8), "f2,3 f2,3 f2,3 f2,3:square0.5 f8:hyper f:value0.6", "f2,3 f2,3 f2,3", 0},
        {NULL, ATTR(MxAdamwAttr, .eps = 1e-8), "f2,3 f2,3 b2,3 f2,3:square0.5 f8:hyper f:value0.6", "f2,3 b2,3 f2,3", 0},
        {NULL, ATTR(MxAdamwAttr, .eps = 1e-8, .weight_decay = 0.1), "f8,16 f8,16 f8,16 f8,16:square0.5 f8:hyper f:value0.6", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxAdamwAttr, 0), "b2 f2 f2 f2 f8 f", "input 0 must be float32"},
        {ATTR(MxAdamwAttr, 0), "f2 b2 f2 f2 f8 f", "input 1 must be float32"},
        {ATTR(MxAdamwAttr, 0), "f2 f2 i2 f2 f8 f", "input 2 must be float32 or bfloat16"},
        {ATTR(MxAdamwAttr, 0), "f2 f2 f2 b2 f8 f", "input 3 must be float32"},
        {ATTR(MxAdamwAttr, 0), "f2 f3 f2 f2 f8 f", "input 1 must have the shape of input 0"},
        {ATTR(MxAdamwAttr, 0), "f2 f2 f3 f2 f8 f", "input 2 must have the shape of input 0"},
        {ATTR(MxAdamwAttr, 0), "f2 f2 f2 f1,2 f8 f", "input 3 must have the shape of input 0"},
        {ATTR(MxAdamwAttr, 0), "f2 f2 f2 f2 f f", "input 4 must be float32 of rank 1"},
        {ATTR(MxAdamwAttr, 0), "f2 f2 f2 f2 f2 f", "hyper must have 8 elements"},
        {ATTR(MxAdamwAttr, 0), "f2 f2 f2 f2 f8 f1", "input 5 must be float32 of rank 0"}),
    .reference = ref_adamw,
    .replaces = {1, 3, 4},
};

const OpTest test_sgd = {
    CASES(
        {"plain", NULL, "f31,41 f31,41 f8:hyper f:value0.6", NULL, 0},
        {NULL, NULL, "f2,3 f2,3 f8:hyper f:value0.6", "f2,3", 0},
        {NULL, NULL, "f8,16 f8,16 f8:hyper f:value0.6", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "b2 f2 f8 f", "input 0 must be float32"},
        {NULL, "f2 b2 f8 f", "input 1 must be float32"},
        {NULL, "f2 f3 f8 f", "input 1 must have the shape of input 0"},
        {NULL, "f2 f2 f f", "input 2 must be float32 of rank 1"},
        {NULL, "f2 f2 f2 f", "hyper must have 8 elements"},
        {NULL, "f2 f2 f8 f1", "input 3 must be float32 of rank 0"}),
    .reference = ref_sgd,
    .replaces = {1},
};

const OpTest test_lion = {
    CASES(
        {"plain", ATTR(MxLionAttr, .weight_decay = 0.1), "f31,41 f31,41 x31,41:normal0.5 f8:hyper f:value0.6", NULL, 0},
        {NULL, ATTR(MxLionAttr, 0), "f2,3 f2,3 b2,3 f8:hyper f:value0.6", "f2,3 b2,3", 0},
        {NULL, ATTR(MxLionAttr, .weight_decay = 0.1), "f8,16 f8,16 f8,16 f8:hyper f:value0.6", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxLionAttr, 0), "b2 f2 f2 f8 f", "input 0 must be float32"},
        {ATTR(MxLionAttr, 0), "f2 b2 f2 f8 f", "input 1 must be float32"},
        {ATTR(MxLionAttr, 0), "f2 f2 i2 f8 f", "input 2 must be float32 or bfloat16"},
        {ATTR(MxLionAttr, 0), "f2 f2 f3 f8 f", "input 2 must have the shape of input 0"},
        {ATTR(MxLionAttr, 0), "f2 f2 f2 f3 f", "hyper must have 8 elements"},
        {ATTR(MxLionAttr, 0), "f2 f2 f2 f8 f1", "input 4 must be float32 of rank 0"}),
    .reference = ref_lion,
    .replaces = {1, 3},
};

const OpTest test_schedule_free = {
    CASES(
        {"plain", ATTR(MxScheduleFreeAttr, .b1 = 0.9, .eps = 1e-8, .weight_decay = 0.1), "f31,41 f31,41 f31,41:normal0.5 f31,41:square0.5 f8:hyper f:value0.6", NULL, 0},
        {NULL, ATTR(MxScheduleFreeAttr, .b1 = 0.9, .eps = 1e-8), "f2,3 f2,3 f2,3 f2,3:square0.5 f8:hyper f:value0.6", "f2,3 f2,3 f2,3", 0},
        {NULL, ATTR(MxScheduleFreeAttr, .b1 = 0.9, .eps = 1e-8), "f8,16 f8,16 f8,16 f8,16:square0.5 f8:hyper f:value0.6", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxScheduleFreeAttr, 0), "b2 f2 f2 f2 f8 f", "input 0 must be float32"},
        {ATTR(MxScheduleFreeAttr, 0), "f2 b2 f2 f2 f8 f", "input 1 must be float32"},
        {ATTR(MxScheduleFreeAttr, 0), "f2 f2 b2 f2 f8 f", "input 2 must be float32"},
        {ATTR(MxScheduleFreeAttr, 0), "f2 f2 f2 f3 f8 f", "input 3 must have the shape of input 0"},
        {ATTR(MxScheduleFreeAttr, 0), "f2 f2 f2 f2 f2 f", "hyper must have 8 elements"},
        {ATTR(MxScheduleFreeAttr, 0), "f2 f2 f2 f2 f8 f1", "input 5 must be float32 of rank 0"}),
    .reference = ref_schedule_free,
    .replaces = {1, 3, 4},
};

const OpTest test_momentum = {
    CASES(
        {"plain", NULL, "f31,41 x31,41:normal0.5 f8:hyper f:value0.6", NULL, 0},
        {NULL, NULL, "f2,3 b2,3 f8:hyper f:value0.6", "f2,3 b2,3", 0},
        {NULL, NULL, "f8,16 f8,16 f8:hyper f:value0.6", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "b2 f2 f8 f", "input 0 must be float32"},
        {NULL, "f2 i2 f8 f", "input 1 must be float32 or bfloat16"},
        {NULL, "f2 f3 f8 f", "input 1 must have the shape of input 0"},
        {NULL, "f2 f2 f3 f", "hyper must have 8 elements"},
        {NULL, "f2 f2 f8 f1", "input 3 must be float32 of rank 0"}),
    .reference = ref_momentum,
    .replaces = {1, 2},
};

const OpTest test_unit = {
    CASES(
        {"plain", ATTR(MxUnitAttr, .eps = 0.25), "x31,41 f:value2.5", NULL, 0},
        {"large", ATTR(MxUnitAttr, .eps = 0.25), "x311,241 f:value2.5", NULL, 0},
        {"parts", ATTR(MxUnitAttr, .eps = 0.25), "x5,31,41 f5:square0.5", NULL, 0},
        {NULL, ATTR(MxUnitAttr, .eps = 0.25), "b2,3 f:value2.5", "b2,3", 0},
        {NULL, ATTR(MxUnitAttr, .eps = 0.25), "f8,16,4 f8:square0.5", NULL, CASE_RANKS},
        {NULL, ATTR(MxUnitAttr, .eps = 0.25), "f8,16 f:value2.5", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxUnitAttr, 0), "i2 f", "input 0 must be float32 or bfloat16"},
        {ATTR(MxUnitAttr, 0), "f2 f1", "input 1 must have the first dims of input 0"},
        {ATTR(MxUnitAttr, 0), "f2 f2,1", "input 1 must have the first dims of input 0"}),
    .reference = ref_unit,
};

const OpTest test_descend = {
    CASES(
        {"plain", ATTR(MxDescendAttr, .factor = 0.7, .weight_decay = 0.3), "f31,41 f31,41 f8:hyper", NULL, 0},
        {NULL, ATTR(MxDescendAttr, .factor = 0.7), "f2,3 f2,3 f8:hyper", "f2,3", 0},
        {NULL, ATTR(MxDescendAttr, .factor = 0.7, .weight_decay = 0.3), "f8,16 f8,16 f8:hyper", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxDescendAttr, 0), "b2 f2 f8", "input 0 must be float32"},
        {ATTR(MxDescendAttr, 0), "f2 f3 f8", "input 1 must have the shape of input 0"},
        {ATTR(MxDescendAttr, 0), "f2 f2 f3", "hyper must have 8 elements"}),
    .reference = ref_descend,
    .replaces = {1},
};

const OpTest test_spike = {
    CASES(
        {"above", ATTR(MxSpikeAttr, .threshold = INFINITY), "f:value2.5 f2:value0.7", "f", 0},
        {"below", ATTR(MxSpikeAttr, .threshold = INFINITY), "f:value2.5 f2:value0.9", NULL, 0},
        {"clipped", ATTR(MxSpikeAttr, .threshold = 1.25), "f:value2.5 f2:value0.7", NULL, 0},
        {"not a number", ATTR(MxSpikeAttr, .threshold = 1.25), "f:value-1 f2:value9", NULL, 0}),
    WRONG(
        {ATTR(MxSpikeAttr, 0), "f1 f2", "input 0 must be float32 of rank 0"},
        {ATTR(MxSpikeAttr, 0), "f f", "input 1 must be float32 of rank 1"},
        {ATTR(MxSpikeAttr, 0), "f f3", "limit must have 2 elements"}),
    .reference = ref_spike,
};

const OpTest test_select = {
    CASES(
        {"first", NULL, "x31,41 x31,41 f:value0", NULL, 0},
        {"second", NULL, "x31,41 x31,41 f:value1", NULL, 0},
        {NULL, NULL, "b2 b2 f:value1", "b2", 0},
        {NULL, NULL, "f8,16 f8,16 f:value1", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "i2 i2 f", "input 0 must be float32 or bfloat16"},
        {NULL, "f2 b2 f", "inputs 0 and 1 must have one type"},
        {NULL, "f2 f2 f1", "input 2 must be float32 of rank 0"}),
    .reference = ref_select,
};
// clang-format on
