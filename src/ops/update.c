/* update.c — an optimizer's step: new parameters and moments from old ones and a gradient. None has
 * a gradient. */
#include <mx/ops.h>

#include "internal.h"

bool ops_is_hyper(MxInfer *infer, int i) {
    if (!ops_is(infer, i, MX_F32, 1)) return false;
    if (infer->in[i].shape.dim[0] == MX_HYPER_COUNT) return true;
    return mx_infer_fail(infer, "hyper must have %d elements", MX_HYPER_COUNT);
}

static bool same_shape(MxInfer *infer, int i) {
    if (mx_shape_equal(infer->in[0].shape, infer->in[i].shape)) return true;
    return mx_infer_fail(infer, "input %d must have the shape of input 0", i);
}

/* An f32 array, of input 0's shape. */
static bool is_own(MxInfer *infer, int i) {
    return ops_is(infer, i, MX_F32, -1) && same_shape(infer, i);
}

static bool is_scalar(MxInfer *infer, int i) {
    return ops_is(infer, i, MX_F32, 0);
}

/* The dims of the first n inputs and of all outputs; the others are whole. */
static void cut_own(MxFactors *f, int n) {
    ops_cut_lead(f, f->in[0].shape.rank, (1u << n) - 1);
    for (int i = 0; i < f->n_out; i++) memcpy(f->out_dim[i], f->in_dim[0], sizeof f->out_dim[i]);
}

/* All inputs but the last two, which are numbers; but the last one. */
static void cut_but_two(MxFactors *f) {
    cut_own(f, f->n_in - 2);
}
static void cut_but_one(MxFactors *f) {
    cut_own(f, f->n_in - 1);
}

/* ---- Adam and descent */

MxValue mx_adamw(MxTrace *t, const MxValue p_g_mu_nu[4], MxValue hyper, MxValue clip,
                 MxAdamwAttr attr) {
    MxValue in[] = {p_g_mu_nu[0], p_g_mu_nu[1], p_g_mu_nu[2], p_g_mu_nu[3], hyper, clip};
    return mx_trace_node(t, &op_adamw, in, MX_COUNT(in), &attr);
}

static bool adamw_infer(MxInfer *infer) {
    infer->n_out = 3;
    infer->out[0] = infer->in[0];
    infer->out[1] = infer->in[2];
    infer->out[2] = infer->in[3];
    return is_own(infer, 0) && is_own(infer, 1) && ops_is_real(infer, 2) && same_shape(infer, 2) &&
           is_own(infer, 3) && ops_is_hyper(infer, 4) && is_scalar(infer, 5);
}

static void adamw_print(MxText *text, const void *attr) {
    const MxAdamwAttr *a = attr;
    mx_text_add(text, "eps %g %g decay %g%s", a->eps, a->eps_root, a->weight_decay,
                a->nesterov ? " nesterov" : "");
}

const MxOp op_adamw = {
    .name = "adamw",
    .arity = 6,
    .attr_bytes = sizeof(MxAdamwAttr),
    .infer = adamw_infer,
    .partition = cut_but_two,
    .print = adamw_print,
    .doc = "new p, mu, nu from p, g, mu, nu, hyper, clip",
};

MxValue mx_sgd(MxTrace *t, MxValue p, MxValue g, MxValue hyper, MxValue clip) {
    return mx_trace_node(t, &op_sgd, (MxValue[]){p, g, hyper, clip}, 4, NULL);
}

static bool sgd_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    return is_own(infer, 0) && is_own(infer, 1) && ops_is_hyper(infer, 2) && is_scalar(infer, 3);
}

const MxOp op_sgd = {
    .name = "sgd",
    .arity = 4,
    .infer = sgd_infer,
    .partition = cut_but_two,
    .doc = "p - lr clip g",
};

MxValue mx_lion(MxTrace *t, const MxValue p_g_mu[3], MxValue hyper, MxValue clip, MxLionAttr attr) {
    MxValue in[] = {p_g_mu[0], p_g_mu[1], p_g_mu[2], hyper, clip};
    return mx_trace_node(t, &op_lion, in, MX_COUNT(in), &attr);
}

static bool lion_infer(MxInfer *infer) {
    infer->n_out = 2;
    infer->out[0] = infer->in[0];
    infer->out[1] = infer->in[2];
    return is_own(infer, 0) && is_own(infer, 1) && ops_is_real(infer, 2) && same_shape(infer, 2) &&
           ops_is_hyper(infer, 3) && is_scalar(infer, 4);
}

static void lion_print(MxText *text, const void *attr) {
    mx_text_add(text, "decay %g", ((const MxLionAttr *)attr)->weight_decay);
}

const MxOp op_lion = {
    .name = "lion",
    .arity = 5,
    .attr_bytes = sizeof(MxLionAttr),
    .infer = lion_infer,
    .partition = cut_but_two,
    .print = lion_print,
    .doc = "new p, mu from p, g, mu, hyper, clip",
};

MxValue mx_schedule_free(MxTrace *t, const MxValue x_g_d_nu[4], MxValue hyper, MxValue clip,
                         MxScheduleFreeAttr attr) {
    MxValue in[] = {x_g_d_nu[0], x_g_d_nu[1], x_g_d_nu[2], x_g_d_nu[3], hyper, clip};
    return mx_trace_node(t, &op_schedule_free, in, MX_COUNT(in), &attr);
}

static bool schedule_free_infer(MxInfer *infer) {
    infer->n_out = 3;
    infer->out[0] = infer->in[0];
    infer->out[1] = infer->in[2];
    infer->out[2] = infer->in[3];
    return is_own(infer, 0) && is_own(infer, 1) && is_own(infer, 2) && is_own(infer, 3) &&
           ops_is_hyper(infer, 4) && is_scalar(infer, 5);
}

static void schedule_free_print(MxText *text, const void *attr) {
    const MxScheduleFreeAttr *a = attr;
    mx_text_add(text, "b1 %g eps %g decay %g", a->b1, a->eps, a->weight_decay);
}

const MxOp op_schedule_free = {
    .name = "schedule_free",
    .arity = 6,
    .attr_bytes = sizeof(MxScheduleFreeAttr),
    .infer = schedule_free_infer,
    .partition = cut_but_two,
    .print = schedule_free_print,
    .doc = "new x, d, nu from x, g, d, nu, hyper, clip",
};

/* ---- parts of updates by matrices */

MxValue mx_momentum(MxTrace *t, MxValue g, MxValue mu, MxValue hyper, MxValue clip) {
    return mx_trace_node(t, &op_momentum, (MxValue[]){g, mu, hyper, clip}, 4, NULL);
}

static bool momentum_infer(MxInfer *infer) {
    infer->n_out = 2;
    infer->out[0] = infer->in[0];
    infer->out[1] = infer->in[1];
    return is_own(infer, 0) && ops_is_real(infer, 1) && same_shape(infer, 1) &&
           ops_is_hyper(infer, 2) && is_scalar(infer, 3);
}

const MxOp op_momentum = {
    .name = "momentum",
    .arity = 4,
    .infer = momentum_infer,
    .partition = cut_but_two,
    .doc = "a direction ahead of the moment, and the new mu, from g, mu, hyper, clip",
};

MxValue mx_unit(MxTrace *t, MxValue x, MxValue squares, double eps) {
    MxUnitAttr attr = {.eps = eps};
    return mx_trace_node(t, &op_unit, (MxValue[]){x, squares}, 2, &attr);
}

static bool unit_infer(MxInfer *infer) {
    MxShape x = infer->in[0].shape, squares = infer->in[1].shape;
    infer->out[0] = infer->in[0];
    if (!ops_is_real(infer, 0) || !ops_is(infer, 1, MX_F32, -1)) return false;
    bool fits = squares.rank <= x.rank;
    for (int d = 0; fits && d < squares.rank; d++) fits = squares.dim[d] == x.dim[d];
    return fits || mx_infer_fail(infer, "input 1 must have the first dims of input 0");
}

static void unit_cut(MxFactors *f) {
    cut_own(f, 1);
    for (int d = 0; d < f->in[1].shape.rank; d++) f->in_dim[1][d] = f->in_dim[0][d];
}

static void unit_print(MxText *text, const void *attr) {
    mx_text_add(text, "eps %g", ((const MxUnitAttr *)attr)->eps);
}

const MxOp op_unit = {
    .name = "unit",
    .arity = 2,
    .inplace = 1,
    .attr_bytes = sizeof(MxUnitAttr),
    .infer = unit_infer,
    .partition = unit_cut,
    .print = unit_print,
    .doc = "x, or parts of it, over the root of a sum of squares",
};

MxValue mx_descend(MxTrace *t, MxValue p, MxValue u, MxValue hyper, MxDescendAttr attr) {
    return mx_trace_node(t, &op_descend, (MxValue[]){p, u, hyper}, 3, &attr);
}

static bool descend_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    return is_own(infer, 0) && is_own(infer, 1) && ops_is_hyper(infer, 2);
}

static void descend_print(MxText *text, const void *attr) {
    const MxDescendAttr *a = attr;
    mx_text_add(text, "factor %g decay %g", a->factor, a->weight_decay);
}

const MxOp op_descend = {
    .name = "descend",
    .arity = 3,
    .attr_bytes = sizeof(MxDescendAttr),
    .infer = descend_infer,
    .partition = cut_but_one,
    .print = descend_print,
    .doc = "p - lr (factor u + decay p)",
};

/* ---- steps that are left out */

MxValue mx_spike(MxTrace *t, MxValue squares, MxValue limit, double threshold) {
    MxSpikeAttr attr = {.threshold = threshold};
    return mx_trace_node(t, &op_spike, (MxValue[]){squares, limit}, 2, &attr);
}

static bool spike_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    if (!is_scalar(infer, 0) || !ops_is(infer, 1, MX_F32, 1)) return false;
    return infer->in[1].shape.dim[0] == 2 || mx_infer_fail(infer, "limit must have 2 elements");
}

static void spike_print(MxText *text, const void *attr) {
    mx_text_add(text, "threshold %g", ((const MxSpikeAttr *)attr)->threshold);
}

const MxOp op_spike = {
    .name = "spike",
    .arity = 2,
    .attr_bytes = sizeof(MxSpikeAttr),
    .infer = spike_infer,
    .print = spike_print,
    .doc = "whether a norm is above a limit",
};

MxValue mx_select(MxTrace *t, MxValue x, MxValue y, MxValue flag) {
    return mx_trace_node(t, &op_select, (MxValue[]){x, y, flag}, 3, NULL);
}

static bool select_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    return ops_is_real(infer, 0) && ops_same_type(infer, 0, 1) && is_scalar(infer, 2);
}

const MxOp op_select = {
    .name = "select",
    .arity = 3,
    .inplace = 1,
    .infer = select_infer,
    .partition = cut_but_one,
    .doc = "x where the flag is 0, else y",
};
