/* factor.c — parts of updates with factored moments: sums along a dim, and products with arrays
 * that lack one. */
#include <mx/ops.h>

#include "internal.h"

/* x without a dim. */
static MxShape without(MxShape x, int dim) {
    for (int d = dim; dim >= 0 && d + 1 < x.rank; d++) x.dim[d] = x.dim[d + 1];
    x.rank -= dim >= 0;
    return x;
}

static bool is_dim(MxInfer *infer, int dim) {
    return (dim >= MX_NONE && dim < infer->in[0].shape.rank) ||
           mx_infer_fail(infer, "input 0 has no dim %d", dim);
}

/* A factor for each dim of x, to which those of an array belong that lacks one. */
static void cut_without(MxFactors *f, int dim, int *of_x, int *of_other) {
    for (int d = 0, at = 0; d < f->in[0].shape.rank; d++) {
        of_x[d] = ops_new_factor(f);
        if (d != dim) of_other[at++] = of_x[d];
    }
}

/* ---- sums along a dim */

MxValue mx_sum_dim(MxTrace *t, MxValue x, MxSumDimAttr attr) {
    return mx_trace_node(t, &op_sum_dim, &x, 1, &attr);
}

static bool sum_dim_infer(MxInfer *infer) {
    const MxSumDimAttr *attr = infer->attr;
    if (!ops_is(infer, 0, MX_F32, -1) || !is_dim(infer, attr->dim)) return false;
    infer->out[0] = (MxType){MX_F32, without(infer->in[0].shape, attr->dim)};
    return true;
}

static void sum_dim_cut(MxFactors *f) {
    const MxSumDimAttr *attr = f->attr;
    cut_without(f, attr->dim, f->in_dim[0], f->out_dim[0]);
}

static void sum_dim_print(MxText *text, const void *attr) {
    const MxSumDimAttr *a = attr;
    mx_text_add(text, "dim %d%s", a->dim, a->squares ? " of squares" : "");
}

const MxOp op_sum_dim = {
    .name = "sum_dim",
    .arity = 1,
    .attr_bytes = sizeof(MxSumDimAttr),
    .infer = sum_dim_infer,
    .partition = sum_dim_cut,
    .print = sum_dim_print,
    .doc = "sum along a dim, of elements or their squares",
};

/* ---- products */

MxValue mx_times(MxTrace *t, MxValue x, MxValue y, MxTimesAttr attr) {
    return mx_trace_node(t, &op_times, (MxValue[]){x, y}, 2, &attr);
}

static bool times_infer(MxInfer *infer) {
    const MxTimesAttr *attr = infer->attr;
    infer->out[0] = infer->in[0];
    if (!ops_is(infer, 0, MX_F32, -1) || !ops_is(infer, 1, MX_F32, -1) || !is_dim(infer, attr->dim))
        return false;
    MxShape y = infer->in[1].shape;
    return (attr->dim == MX_NONE && !y.rank) ||
           mx_shape_equal(y, without(infer->in[0].shape, attr->dim)) ||
           mx_infer_fail(infer, "input 1 must have the dims of input 0 but dim %d", attr->dim);
}

static void times_vjp(const MxVjp *v) {
    v->dx[0] = mx_times(v->t, v->dy[0], v->in[1], *(const MxTimesAttr *)v->attr);
}

static void times_cut(MxFactors *f) {
    const MxTimesAttr *attr = f->attr;
    int ignored[MX_MAX_RANK];
    bool is_scalar = !f->in[1].shape.rank;
    cut_without(f, attr->dim, f->in_dim[0], is_scalar ? ignored : f->in_dim[1]);
    memcpy(f->out_dim[0], f->in_dim[0], sizeof f->out_dim[0]);
}

static void times_print(MxText *text, const void *attr) {
    static const char *const names[MX_FACTOR_COUNT] = {
        [MX_FACTOR_PLAIN] = "y",
        [MX_FACTOR_INVERSE] = "1 / y",
        [MX_FACTOR_INVERSE_ROOT] = "1 / sqrt(y)",
    };
    const MxTimesAttr *a = attr;
    mx_text_add(text, "%s dim %d", names[a->factor], a->dim);
}

const MxOp op_times = {
    .name = "times",
    .arity = 2,
    .inplace = 1,
    .attr_bytes = sizeof(MxTimesAttr),
    .infer = times_infer,
    .vjp = times_vjp,
    .partition = times_cut,
    .print = times_print,
    .doc = "x times a factor made of y, which may lack a dim",
};

/* ---- moments and the size of a step */

MxValue mx_decayed(MxTrace *t, MxValue v, MxValue x, MxValue hyper, MxDecayedAttr attr) {
    return mx_trace_node(t, &op_decayed, (MxValue[]){v, x, hyper}, 3, &attr);
}

static bool decayed_infer(MxInfer *infer) {
    infer->out[0] = infer->in[1];
    if (!ops_is_real(infer, 0) || !ops_is(infer, 1, MX_F32, -1)) return false;
    if (!mx_shape_equal(infer->in[0].shape, infer->in[1].shape))
        return mx_infer_fail(infer, "input 1 must have the shape of input 0");
    return ops_is_hyper(infer, 2);
}

static void decayed_cut(MxFactors *f) {
    ops_cut_lead(f, f->in[0].shape.rank, 3);
    memcpy(f->out_dim[0], f->in_dim[0], sizeof f->out_dim[0]);
}

static void decayed_print(MxText *text, const void *attr) {
    const MxDecayedAttr *a = attr;
    mx_text_add(text, "%s factor %g plus %g", a->is_second ? "second" : "first", a->factor,
                a->plus);
}

const MxOp op_decayed = {
    .name = "decayed",
    .arity = 3,
    .attr_bytes = sizeof(MxDecayedAttr),
    .infer = decayed_infer,
    .partition = decayed_cut,
    .print = decayed_print,
    .doc = "a moment that decays, and what is new",
};

MxValue mx_rms_step(MxTrace *t, MxValue squares_u, MxValue squares_p, MxValue hyper,
                    MxRmsStepAttr attr) {
    return mx_trace_node(t, &op_rms_step, (MxValue[]){squares_u, squares_p, hyper}, 3, &attr);
}

static bool rms_step_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    return ops_is(infer, 0, MX_F32, 0) && ops_is(infer, 1, MX_F32, 0) && ops_is_hyper(infer, 2);
}

static void rms_step_print(MxText *text, const void *attr) {
    const MxRmsStepAttr *a = attr;
    mx_text_add(text, "%lld elements threshold %g%s", (long long)a->count, a->threshold,
                a->scales ? " scales" : "");
}

const MxOp op_rms_step = {
    .name = "rms_step",
    .arity = 3,
    .attr_bytes = sizeof(MxRmsStepAttr),
    .infer = rms_step_infer,
    .print = rms_step_print,
    .doc = "the size of a step, by root mean squares of direction and parameter",
};
