/* factor.c — factored moments. */
#include "cases.h"

#include <math.h>

/* Where an element of x lies in an array without a dim. */
static int64_t place_without(MxShape x, int dim, int64_t i) {
    int64_t inner = 1;
    if (dim == MX_NONE) return i;
    for (int d = dim + 1; d < x.rank; d++) inner *= x.dim[d];
    return i / (inner * x.dim[dim]) * inner + i % inner;
}

static void ref_sum_dim(const Reference *r) {
    const MxSumDimAttr *a = r->attr;
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) r->out[0][i] = 0;
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++) {
        double x = r->in[0][i];
        r->out[0][place_without(r->in_type[0].shape, a->dim, i)] += a->squares ? x * x : x;
    }
}

static void ref_times(const Reference *r) {
    const MxTimesAttr *a = r->attr;
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++) {
        bool is_scalar = !r->in_type[1].shape.rank;
        double y = r->in[1][is_scalar ? 0 : place_without(r->in_type[0].shape, a->dim, i)];
        if (a->factor == MX_FACTOR_INVERSE) y = 1 / y;
        if (a->factor == MX_FACTOR_INVERSE_ROOT) y = 1 / sqrt(y);
        r->out[0][i] = r->in[0][i] * y;
    }
}

static void ref_decayed(const Reference *r) {
    const MxDecayedAttr *a = r->attr;
    const double *hyper = r->in[2];
    double b = hyper[a->is_second ? MX_HYPER_B2 : MX_HYPER_B1];
    double share = hyper[a->is_second ? MX_HYPER_ONE_B2 : MX_HYPER_ONE_B1];
    if (r->in_type[0].dtype == MX_BF16) b = (double)mx_bf16_to_f32(mx_f32_to_bf16((float)b));
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++)
        r->out[0][i] = b * r->in[0][i] + share * (a->factor * r->in[1][i] + a->plus);
}

static void ref_rms_step(const Reference *r) {
    const MxRmsStepAttr *a = r->attr;
    double n = (double)a->count, step = r->in[2][MX_HYPER_LR];
    if (a->threshold > 0) step /= fmax(1, sqrt(r->in[0][0] / n) / a->threshold);
    if (a->scales) step *= fmax(MX_LEAST_RMS, sqrt(r->in[1][0] / n));
    r->out[0][0] = step;
}

// clang-format off
const OpTest test_sum_dim = {
    CASES(
        {"first", ATTR(MxSumDimAttr, .dim = 0, .squares = true), "f31,7,41", "f7,41", 0},
        {"last", ATTR(MxSumDimAttr, .dim = 2, .squares = true), "f31,7,41", "f31,7", 0},
        {"plain", ATTR(MxSumDimAttr, .dim = 1), "f31,7,341", "f31,341", 0},
        {"none", ATTR(MxSumDimAttr, .dim = MX_NONE, .squares = true), "f31,7", "f31,7", 0},
        {"large", ATTR(MxSumDimAttr, .dim = 0, .squares = true), "f311,541", "f541", 0},
        {NULL, ATTR(MxSumDimAttr, .dim = 0), "f5", "f", 0},
        {NULL, ATTR(MxSumDimAttr, .dim = 1, .squares = true), "f8,16,8", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxSumDimAttr, 0), "b2", "input 0 must be float32"},
        {ATTR(MxSumDimAttr, .dim = 1), "f2", "input 0 has no dim 1"}),
    .reference = ref_sum_dim,
};

const OpTest test_times = {
    CASES(
        {"rows", ATTR(MxTimesAttr, .dim = 0, .factor = MX_FACTOR_INVERSE_ROOT), "f31,7,41 f7,41:square0.5", NULL, 0},
        {"between", ATTR(MxTimesAttr, .dim = 1, .factor = MX_FACTOR_INVERSE), "f31,7,41 f31,41:away0.5", NULL, 0},
        {"columns", ATTR(MxTimesAttr, .dim = 2, .factor = MX_FACTOR_INVERSE_ROOT), "f31,7,41 f31,7:square0.5", NULL, 0},
        {"each", ATTR(MxTimesAttr, .dim = MX_NONE, .factor = MX_FACTOR_INVERSE_ROOT), "f31,41 f31,41:square0.5", NULL, 0},
        {"a scalar", ATTR(MxTimesAttr, .dim = MX_NONE), "f31,41 f:value0.6", NULL, 0},
        {"large", ATTR(MxTimesAttr, .dim = 1), "f311,541 f311", NULL, 0},
        {NULL, ATTR(MxTimesAttr, .dim = MX_NONE), "f7 f7", "f7", 0},
        {NULL, ATTR(MxTimesAttr, .dim = MX_NONE), "f8,16 f:value0.6", NULL, CASE_RANKS},
        {NULL, ATTR(MxTimesAttr, .dim = 1, .factor = MX_FACTOR_INVERSE_ROOT), "f8,16,8 f8,8:square0.5", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxTimesAttr, 0), "b2 f", "input 0 must be float32"},
        {ATTR(MxTimesAttr, 0), "f2 b", "input 1 must be float32"},
        {ATTR(MxTimesAttr, .dim = 1), "f2 f", "input 0 has no dim 1"},
        {ATTR(MxTimesAttr, .dim = 1), "f2,3 f3", "input 1 must have the dims of input 0 but dim 1"}),
    .reference = ref_times,
    .flows = 1 << 0,
};

const OpTest test_decayed = {
    CASES(
        {"second", ATTR(MxDecayedAttr, .is_second = true, .factor = 0.3, .plus = 1e-30), "f31,41:square0.5 f31,41:square0.5 f8:hyper", NULL, 0},
        {"first", ATTR(MxDecayedAttr, .factor = 1, .plus = 0.1), "x31,41 f31,41 f8:hyper", "f31,41", 0},
        {NULL, ATTR(MxDecayedAttr, .factor = 1), "b2,3 f2,3 f8:hyper", "f2,3", 0},
        {NULL, ATTR(MxDecayedAttr, .factor = 1), "f8,16 f8,16 f8:hyper", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxDecayedAttr, 0), "i2 f2 f8", "input 0 must be float32 or bfloat16"},
        {ATTR(MxDecayedAttr, 0), "f2 b2 f8", "input 1 must be float32"},
        {ATTR(MxDecayedAttr, 0), "f2 f3 f8", "input 1 must have the shape of input 0"},
        {ATTR(MxDecayedAttr, 0), "f2 f2 f", "input 2 must be float32 of rank 1"},
        {ATTR(MxDecayedAttr, 0), "f2 f2 f3", "hyper must have 8 elements"}),
    .reference = ref_decayed,
};

const OpTest test_rms_step = {
    CASES(
        {"both", ATTR(MxRmsStepAttr, .count = 7, .threshold = 0.5, .scales = true), "f:value2.5 f:value3.5 f8:hyper", "f", 0},
        {"small", ATTR(MxRmsStepAttr, .count = 7, .threshold = 5, .scales = true), "f:value2.5 f:value0 f8:hyper", NULL, 0},
        {"neither", ATTR(MxRmsStepAttr, .count = 7), "f:value2.5 f:value3.5 f8:hyper", NULL, 0}),
    WRONG(
        {ATTR(MxRmsStepAttr, 0), "f1 f f8", "input 0 must be float32 of rank 0"},
        {ATTR(MxRmsStepAttr, 0), "f f1 f8", "input 1 must be float32 of rank 0"},
        {ATTR(MxRmsStepAttr, 0), "f f f", "input 2 must be float32 of rank 1"},
        {ATTR(MxRmsStepAttr, 0), "f f f3", "hyper must have 8 elements"}),
    .reference = ref_rms_step,
};
// clang-format on
