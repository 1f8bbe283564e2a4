/* state.c — initialisation and norms of parameters. None has a gradient. */
#include <mx/ops.h>

#include "internal.h"

MxValue mx_init(MxTrace *t, MxInitAttr attr) {
    return mx_trace_node(t, &op_init, NULL, 0, &attr);
}

static bool init_infer(MxInfer *infer) {
    const MxInitAttr *attr = infer->attr;
    infer->out[0] = attr->type;
    return attr->fill != MX_FILL_CYCLE || attr->value >= 1 ||
           mx_infer_fail(infer, "a cycle has at least one number");
}

static void init_print(MxText *text, const void *attr) {
    static const char *const names[] = {"constant", "normal",      "truncated_normal",
                                        "uniform",  "log_uniform", "cycle"};
    const MxInitAttr *a = attr;
    mx_text_add(text, "%s %.9g stream %llu", names[a->fill], a->value,
                (unsigned long long)a->stream);
}

static void init_localize(const MxShare *share, void *attr) {
    MxInitAttr *a = attr;
    a->whole = a->type.shape;
    a->type.shape = share->out[0].shape;
    for (int d = 0; d < a->whole.rank; d++) a->start[d] = share->start[d];
}

const MxOp op_init = {
    .name = "init",
    .attr_bytes = sizeof(MxInitAttr),
    .infer = init_infer,
    .partition = ops_cut_alike,
    .localize = init_localize,
    .print = init_print,
    .doc = "a constant or random array",
};

MxValue mx_sum_squares(MxTrace *t, const MxValue *x, int n) {
    return mx_trace_node(t, &op_sum_squares, x, n, NULL);
}

static bool sum_squares_infer(MxInfer *infer) {
    infer->out[0] = (MxType){MX_F32, MX_SCALAR};
    for (int i = 0; i < infer->n_in; i++)
        if (!ops_is_real(infer, i)) return false;
    return true;
}

/* One input at a time. */
static void sum_squares_cut(MxFactors *f) {
    ops_cut_lead(f, f->in[0].shape.rank, 1);
}

const MxOp op_sum_squares = {
    .name = "sum_squares",
    .arity = -1,
    .flags = MX_OP_ADDS_INPUTS,
    .infer = sum_squares_infer,
    .partition = sum_squares_cut,
    .doc = "sum of squares over all inputs",
};

MxValue mx_moments(MxTrace *t, MxValue x) {
    return mx_trace_node(t, &op_moments, &x, 1, NULL);
}

static bool moments_infer(MxInfer *infer) {
    infer->out[0] = (MxType){MX_F32, MX_SHAPE(MX_MOMENTS)};
    return ops_is_real(infer, 0);
}

const MxOp op_moments = {
    .name = "moments",
    .arity = 1,
    .flags = MX_OP_CONSTANT,
    .accumulates = 1,
    .infer = moments_infer,
    .partition = sum_squares_cut,
    .doc = "numbers of elements and of zeros, sum and sum of squares",
};

MxValue mx_clip_factor(MxTrace *t, MxValue sum_squares, double threshold) {
    MxClipFactorAttr attr = {.threshold = threshold};
    return mx_trace_node(t, &op_clip_factor, &sum_squares, 1, &attr);
}

static bool clip_factor_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    return ops_is(infer, 0, MX_F32, 0);
}

const MxOp op_clip_factor = {
    .name = "clip_factor",
    .arity = 1,
    .attr_bytes = sizeof(MxClipFactorAttr),
    .infer = clip_factor_infer,
    .doc = "min(1, threshold / norm)",
};
