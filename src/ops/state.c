/* state.c — what happens to parameters and moments: initialisation, norms, optimizer updates. None
 * has a gradient. */
#include <mx/ops.h>

#include "internal.h"

MxValue mx_init(MxTrace *t, MxInitAttr attr) {
    return mx_trace_node(t, &op_init, NULL, 0, &attr);
}

static bool init_infer(MxInfer *infer) {
    infer->out[0] = ((const MxInitAttr *)infer->attr)->type;
    return true;
}

static void init_print(MxText *text, const void *attr) {
    static const char *const names[] = {"constant", "normal", "truncated_normal", "uniform"};
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

MxValue mx_adamw(MxTrace *t, const MxValue p_g_mu_nu[4], MxValue hyper, MxValue clip,
                 MxAdamwAttr attr) {
    MxValue in[] = {p_g_mu_nu[0], p_g_mu_nu[1], p_g_mu_nu[2], p_g_mu_nu[3], hyper, clip};
    return mx_trace_node(t, &op_adamw, in, MX_COUNT(in), &attr);
}

static bool is_hyper(MxInfer *infer, int i) {
    if (!ops_is(infer, i, MX_F32, 1)) return false;
    if (infer->in[i].shape.dim[0] == MX_HYPER_COUNT) return true;
    return mx_infer_fail(infer, "hyper must have %d elements", MX_HYPER_COUNT);
}

static bool same_shape(MxInfer *infer, int i) {
    if (mx_shape_equal(infer->in[0].shape, infer->in[i].shape)) return true;
    return mx_infer_fail(infer, "input %d must have the parameter's shape", i);
}

static bool adamw_infer(MxInfer *infer) {
    infer->n_out = 3;
    infer->out[0] = infer->in[0];
    infer->out[1] = infer->in[2];
    infer->out[2] = infer->in[3];
    return ops_is(infer, 0, MX_F32, -1) && ops_is(infer, 1, MX_F32, -1) && ops_is_real(infer, 2) &&
           ops_is(infer, 3, MX_F32, -1) && same_shape(infer, 1) && same_shape(infer, 2) &&
           same_shape(infer, 3) && is_hyper(infer, 4) && ops_is(infer, 5, MX_F32, 0);
}

/* The parameter's dims; the first inputs are its own, the last two scalars of all. */
static void update_cut(MxFactors *f) {
    int own = f->n_in - 2;
    ops_cut_lead(f, f->in[0].shape.rank, (1u << own) - 1);
    for (int i = 0; i < f->n_out; i++) memcpy(f->out_dim[i], f->in_dim[0], sizeof f->out_dim[i]);
}

static void adamw_print(MxText *text, const void *attr) {
    const MxAdamwAttr *a = attr;
    mx_text_add(text, "b1 %g b2 %g eps %g decay %g", a->b1, a->b2, a->eps, a->weight_decay);
}

const MxOp op_adamw = {
    .name = "adamw",
    .arity = 6,
    .attr_bytes = sizeof(MxAdamwAttr),
    .infer = adamw_infer,
    .partition = update_cut,
    .print = adamw_print,
    .doc = "new p, mu, nu from p, g, mu, nu, hyper, clip",
};

MxValue mx_sgd(MxTrace *t, MxValue p, MxValue g, MxValue hyper, MxValue clip) {
    return mx_trace_node(t, &op_sgd, (MxValue[]){p, g, hyper, clip}, 4, NULL);
}

static bool sgd_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    return ops_is(infer, 0, MX_F32, -1) && ops_is(infer, 1, MX_F32, -1) && same_shape(infer, 1) &&
           is_hyper(infer, 2) && ops_is(infer, 3, MX_F32, 0);
}

const MxOp op_sgd = {
    .name = "sgd",
    .arity = 4,
    .infer = sgd_infer,
    .partition = update_cut,
    .doc = "p - lr clip g",
};
