/* elementwise.c — ops that work element by element, and sums over leading dims. */
#include "cases.h"

#include <math.h>

static void ref_copy(const Reference *r) {
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++) r->out[0][i] = r->in[0][i];
}

static void ref_add(const Reference *r) {
    int64_t period = element_count(r->in_type[1]);
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++)
        r->out[0][i] = r->in[0][i] + r->in[1][i % period];
}

static void ref_multiply(const Reference *r) {
    int64_t period = element_count(r->in_type[1]);
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++)
        r->out[0][i] = r->in[0][i] * r->in[1][i % period];
}

static void ref_sum_lead(const Reference *r) {
    int64_t width = element_count(r->out_type[0]);
    for (int64_t j = 0; j < width; j++) r->out[0][j] = 0;
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++) r->out[0][i % width] += r->in[0][i];
}

static void ref_scale(const Reference *r) {
    const MxScaleAttr *attr = r->attr;
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++)
        r->out[0][i] = r->in[0][i] * attr->factor + attr->plus;
}

static void ref_softcap(const Reference *r) {
    double cap = ((const MxSoftcapAttr *)r->attr)->cap;
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++)
        r->out[0][i] = cap * tanh(r->in[0][i] / cap);
}

static void ref_ratio(const Reference *r) {
    r->out[0][0] = r->in[0][0] / (r->in[1][0] + ((const MxRatioAttr *)r->attr)->eps);
}

static double activate(MxActivation activation, double x) {
    switch (activation) {
    case MX_SILU:
        return x / (1 + exp(-x));
    case MX_GELU:
        return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case MX_RELU:
        return x > 0 ? x : 0;
    case MX_SIGMOID:
        return 1 / (1 + exp(-x));
    case MX_GELU_EXACT:
        return 0.5 * x * erfc(-x / sqrt(2));
    case MX_SQRT_SOFTPLUS:
        return sqrt(log1p(exp(x)));
    case MX_ELU:
        return x > 0 ? x : expm1(x);
    case MX_SELU:
        return 1.0507009873554804934 * (x > 0 ? x : 1.6732632423543772848 * expm1(x));
    case MX_TANH:
        return tanh(x);
    case MX_SOFTPLUS:
        return log1p(exp(x));
    case MX_QUICK_GELU:
        return x / (1 + exp(-1.702 * x));
    default:
        return x;
    }
}

static void ref_activate(const Reference *r) {
    MxActivation activation = ((const MxGluAttr *)r->attr)->activation;
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++)
        r->out[0][i] = activate(activation, r->in[0][i]);
}

static void ref_glu(const Reference *r) {
    const MxGluAttr *a = r->attr;
    double limit = a->limit > 0 ? a->limit : INFINITY;
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++) {
        double gate = fmin(r->in[0][i], limit), up = fmax(fmin(r->in[1][i], limit), -limit);
        r->out[0][i] = activate(a->activation, gate) * (up + a->term);
    }
}

// clang-format off
const OpTest test_copy = {
    CASES(
        {"vector", NULL, "x1027", NULL, 0},
        {"large", NULL, "x3,211,113", NULL, 0},
        {NULL, NULL, "f2,3", "f2,3", 0},
        {NULL, NULL, "b", "b", 0},
        {NULL, NULL, "f8,16", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "i2", "input 0 must be float32 or bfloat16"}),
    .reference = ref_copy,
    .flows = 1 << 0,
};

const OpTest test_cast = {
    CASES(
        {"same dtype", ATTR(MxCastAttr, 0), "x3,341", NULL, CASE_FOLLOWS},
        {"bf16 to f32", ATTR(MxCastAttr, MX_F32), "x3,341", NULL, 0},
        {"f32 to bf16", ATTR(MxCastAttr, MX_BF16), "x3,341", NULL, 0},
        {NULL, ATTR(MxCastAttr, MX_BF16), "f2,3", "b2,3", 0},
        {NULL, ATTR(MxCastAttr, MX_F32), "b", "f", 0},
        {NULL, ATTR(MxCastAttr, MX_BF16), "f8,16", NULL, CASE_RANKS},
        {NULL, ATTR(MxCastAttr, MX_F32), "b8,16", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxCastAttr, MX_I32), "f2", "cannot cast to that dtype"},
        {ATTR(MxCastAttr, MX_F64), "f2", "cannot cast to that dtype"},
        {ATTR(MxCastAttr, MX_F32), "i2", "input 0 must be float32 or bfloat16"}),
    .reference = ref_copy,
    .flows = 1 << 0,
};

const OpTest test_add = {
    CASES(
        {"one shape", NULL, "x31,37 x31,37", NULL, 0},
        {"bias", NULL, "x2,19,37 x37", NULL, 0},
        {"large bias of two dims", NULL, "x5,17,33,21 x33,21", NULL, 0},
        {"wide bias", NULL, "x40,2051 x2051", NULL, 0},
        {NULL, NULL, "f2,3 f2,3", "f2,3", 0},
        {NULL, NULL, "b2,3 b3", "b2,3", 0},
        {NULL, NULL, "f2,3 f", "f2,3", 0},
        {NULL, NULL, "f f", "f", 0},
        {NULL, NULL, "f8,4,8 f8,4,8", NULL, CASE_RANKS},
        {NULL, NULL, "b8,4,8 b4,8", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "f2,3 f2", "trailing dims"},
        {NULL, "f2,3 f1,3", "trailing dims"},
        {NULL, "f3 f2,3", "trailing dims"},
        {NULL, "f2,3 b2,3", "y must have x's dtype"},
        {NULL, "i2 i2", "input 0 must be float32 or bfloat16"}),
    .reference = ref_add,
    .flows = 1 << 0 | 1 << 1,
};

const OpTest test_multiply = {
    CASES(
        {"one shape", NULL, "x31,37 x31,37", NULL, 0},
        {"columns", NULL, "x2,19,37 f37", NULL, 0},
        {"two dims", NULL, "x5,17,33,21 x33,21", NULL, 0},
        {"wide", NULL, "x40,2051 f2051", NULL, 0},
        {NULL, NULL, "f2,3 f2,3", "f2,3", 0},
        {NULL, NULL, "b2,3 f3", "b2,3", 0},
        {NULL, NULL, "f2,3 b", "f2,3", 0},
        {NULL, NULL, "f8,4,8 f8,4,8", NULL, CASE_RANKS},
        {NULL, NULL, "b8,4,8 f4,8", NULL, CASE_RANKS},
        {NULL, NULL, "f8,4,8 f8", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "f2,3 f2", "trailing dims"},
        {NULL, "f3 f2,3", "trailing dims"},
        {NULL, "f2 i2", "input 1 must be float32 or bfloat16"},
        {NULL, "i2 f2", "input 0 must be float32 or bfloat16"}),
    .reference = ref_multiply,
    .flows = 1 << 0 | 1 << 1,
};

const OpTest test_sum_lead = {
    CASES(
        {"one dim", ATTR(MxSumLeadAttr, .n_lead = 1), "x19,37", NULL, CASE_FOLLOWS},
        {"large, two dims", ATTR(MxSumLeadAttr, .n_lead = 2), "x5,91,17,33", NULL, CASE_FOLLOWS},
        {"to a scalar, folded", ATTR(MxSumLeadAttr, .n_lead = 2), "x51,7", NULL, 0},
        {NULL, ATTR(MxSumLeadAttr, .dtype = MX_F32, .n_lead = 1), "f2,3,4", "f3,4", 0},
        {NULL, ATTR(MxSumLeadAttr, .dtype = MX_F32, .n_lead = 2), "b2,3,4", "f4", 0},
        {NULL, ATTR(MxSumLeadAttr, .dtype = MX_BF16, .n_lead = 3), "b2,3,4", "b", 0},
        {NULL, ATTR(MxSumLeadAttr, .dtype = MX_F32), "f2", "f2", 0},
        {NULL, ATTR(MxSumLeadAttr, .n_lead = 2), "f8,4,8", NULL, CASE_RANKS},
        {NULL, ATTR(MxSumLeadAttr, .n_lead = 2), "f8,8", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxSumLeadAttr, .dtype = MX_F32, .n_lead = 3), "f2,3", "fewer dims than are summed"},
        {ATTR(MxSumLeadAttr, .dtype = MX_F32, .n_lead = 1), "i2,3", "input 0 must be float32 or bfloat16"}),
    .reference = ref_sum_lead,
    .flows = 1 << 0,
};

const OpTest test_scale = {
    CASES(
        {"vector", ATTR(MxScaleAttr, .factor = -1.7), "x1025", NULL, 0},
        {"and a constant", ATTR(MxScaleAttr, .factor = 1, .plus = 0.75), "x3,341", NULL, 0},
        {NULL, ATTR(MxScaleAttr, .factor = 2), "f2,3", "f2,3", 0},
        {NULL, ATTR(MxScaleAttr, .factor = 2), "b", "b", 0},
        {NULL, ATTR(MxScaleAttr, .factor = 1, .plus = 0.75), "f8,16", NULL, CASE_RANKS},
        {NULL, ATTR(MxScaleAttr, .factor = -1.5), "f8,16", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxScaleAttr, .factor = 2), "i2", "input 0 must be float32 or bfloat16"}),
    .reference = ref_scale,
    .flows = 1 << 0,
};

const OpTest test_softcap = {
    CASES(
        {"vector", ATTR(MxSoftcapAttr, 3.0), "x5,333:normal4", NULL, 0},
        {NULL, ATTR(MxSoftcapAttr, .cap = 30), "f2,3", "f2,3", 0},
        {NULL, ATTR(MxSoftcapAttr, 1.5), "f8,16", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxSoftcapAttr, .cap = 30), "i2", "input 0 must be float32 or bfloat16"}),
    .reference = ref_softcap,
    .flows = 1 << 0,
};

const OpTest test_softcap_grad = {
    WRONG(
        {ATTR(MxSoftcapAttr, .cap = 30), "f2 f3", "inputs 0 and 1 must have one type"},
        {ATTR(MxSoftcapAttr, .cap = 30), "f2 b2", "inputs 0 and 1 must have one type"},
        {ATTR(MxSoftcapAttr, .cap = 30), "i2 i2", "input 0 must be float32 or bfloat16"}),
    .forward = &op_softcap,
    .wrt = {0},
};

const OpTest test_ratio = {
    CASES(
        {"scalars", ATTR(MxRatioAttr, 1e-3), "f f:value7", NULL, 0},
        {NULL, ATTR(MxRatioAttr, 0), "f f", "f", 0},
        {NULL, ATTR(MxRatioAttr, 1e-3), "f f:value7", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxRatioAttr, 0), "f1 f", "input 0 must be float32 of rank 0"},
        {ATTR(MxRatioAttr, 0), "b f", "input 0 must be float32 of rank 0"},
        {ATTR(MxRatioAttr, 0), "f f1", "input 1 must be float32 of rank 0"},
        {ATTR(MxRatioAttr, 0), "f i", "input 1 must be float32 of rank 0"}),
    .reference = ref_ratio,
    .flows = 1 << 0,
};

const OpTest test_activate = {
    CASES(
        {"silu", ATTR(MxGluAttr, .activation = MX_SILU), "x5,333:normal2", NULL, 0},
        {"gelu", ATTR(MxGluAttr, .activation = MX_GELU), "x4,71,131:normal2", NULL, 0},
        {"relu", ATTR(MxGluAttr, .activation = MX_RELU), "x5,333:away0.5", NULL, 0},
        {"sigmoid", ATTR(MxGluAttr, .activation = MX_SIGMOID), "x5,333:normal2", NULL, 0},
        {"linear", ATTR(MxGluAttr, .activation = MX_LINEAR), "x5,333", NULL, 0},
        {NULL, ATTR(MxGluAttr, .activation = MX_GELU), "b2,3", "b2,3", 0},
        {NULL, ATTR(MxGluAttr, .activation = MX_GELU), "f8,4,8", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxGluAttr, .activation = MX_SILU), "i2", "input 0 must be float32 or bfloat16"}),
    .reference = ref_activate,
    .flows = 1 << 0,
};

const OpTest test_activate_grad = {
    WRONG(
        {ATTR(MxGluAttr, .activation = MX_SILU), "f2 f3", "inputs 0 and 1 must have one type"},
        {ATTR(MxGluAttr, .activation = MX_SILU), "i2 i2", "input 0 must be float32 or bfloat16"}),
    .forward = &op_activate,
    .wrt = {0},
};

const OpTest test_glu = {
    CASES(
        {"silu", ATTR(MxGluAttr, .activation = MX_SILU), "x2,5,111:normal2 x2,5,111", NULL, 0},
        {"gelu", ATTR(MxGluAttr, .activation = MX_GELU), "x2,5,111:normal2 x2,5,111", NULL, 0},
        {"relu", ATTR(MxGluAttr, .activation = MX_RELU), "x2,5,111:away0.5 x2,5,111", NULL, 0},
        {"linear", ATTR(MxGluAttr, .activation = MX_LINEAR), "x2,5,111:normal2 x2,5,111", NULL, 0},
        {"sigmoid", ATTR(MxGluAttr, .activation = MX_SIGMOID), "x2,5,111:normal2 x2,5,111", NULL, 0},
        {"quick gelu", ATTR(MxGluAttr, .activation = MX_QUICK_GELU), "x2,5,111:normal2 x2,5,111", NULL, 0},
        {"sqrtsoftplus", ATTR(MxGluAttr, .activation = MX_SQRT_SOFTPLUS), "x2,5,111:normal9 x2,5,111", NULL, CASE_NO_SLOPE},
        {"sqrtsoftplus, small", ATTR(MxGluAttr, .activation = MX_SQRT_SOFTPLUS), "x2,5,11:normal2 x2,5,11", NULL, 0},
        {"elu", ATTR(MxGluAttr, .activation = MX_ELU), "x2,5,111:away0.5 x2,5,111", NULL, 0},
        {"selu", ATTR(MxGluAttr, .activation = MX_SELU), "x2,5,111:away0.5 x2,5,111", NULL, 0},
        {"tanh", ATTR(MxGluAttr, .activation = MX_TANH), "x2,5,111:normal2 x2,5,111", NULL, 0},
        {"softplus", ATTR(MxGluAttr, .activation = MX_SOFTPLUS), "x2,5,111:normal2 x2,5,111", NULL, 0},
        {"gelu exact", ATTR(MxGluAttr, .activation = MX_GELU_EXACT), "x2,5,111:normal2 x2,5,111", NULL, 0},
        {"limited", ATTR(MxGluAttr, MX_QUICK_GELU, 1.2, 1), "x2,5,111:normal2 x2,5,111", NULL, CASE_NO_SLOPE},
        {"within the limit", ATTR(MxGluAttr, MX_QUICK_GELU, 70, 1), "x2,5,111:normal2 x2,5,111", NULL, 0},
        {"silu large", ATTR(MxGluAttr, .activation = MX_SILU), "x4,71,131:normal2 x4,71,131", NULL, 0},
        {NULL, ATTR(MxGluAttr, .activation = MX_SILU), "b2,3 b2,3", "b2,3", 0},
        {NULL, ATTR(MxGluAttr, .activation = MX_SILU), "f8,4,8 f8,4,8", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxGluAttr, .activation = MX_SILU), "f2,3 f3", "inputs 0 and 1 must have one type"},
        {ATTR(MxGluAttr, .activation = MX_SILU), "f2 b2", "inputs 0 and 1 must have one type"},
        {ATTR(MxGluAttr, .activation = MX_SILU), "i2 i2", "input 0 must be float32 or bfloat16"}),
    .reference = ref_glu,
    .flows = 1 << 0 | 1 << 1,
};

const OpTest test_glu_grad = {
    WRONG(
        {ATTR(MxGluAttr, .activation = MX_SILU), "f2 f3 f2", "inputs 0 and 1 must have one type"},
        {ATTR(MxGluAttr, .activation = MX_SILU), "f2 f2 f3", "inputs 0 and 2 must have one type"},
        {ATTR(MxGluAttr, .activation = MX_SILU), "f2 f2 b2", "inputs 0 and 2 must have one type"},
        {ATTR(MxGluAttr, .activation = MX_SILU), "i2 i2 i2", "input 0 must be float32 or bfloat16"}),
    .forward = &op_glu,
    .wrt = {0, 1},
};
// clang-format on
