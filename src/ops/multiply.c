/* multiply.c — products of elements. */
#include <mx/ops.h>

#include "internal.h"

MxValue mx_multiply(MxTrace *t, MxValue x, MxValue y) {
    return mx_trace_node(t, &op_multiply, (MxValue[]){x, y}, 2, NULL);
}

static bool multiply_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    if (!ops_is_real(infer, 0) || !ops_is_real(infer, 1)) return false;
    return ops_is_tail(infer->in[1].shape, infer->in[0].shape) ||
           mx_infer_fail(infer, "y must have x's trailing dims");
}

static void multiply_vjp(const MxVjp *v) {
    MxTrace *t = v->t;
    MxType x = mx_trace_type(t, v->in[0]), y = mx_trace_type(t, v->in[1]);
    int lead = x.shape.rank - y.shape.rank;
    if (v->needs[0]) v->dx[0] = mx_multiply(t, v->dy[0], v->in[1]);
    if (!v->needs[1]) return;
    MxValue dy = mx_multiply(t, v->dy[0], v->in[0]);
    v->dx[1] = mx_cast(t, lead ? mx_sum_lead(t, dy, lead) : dy, y.dtype);
}

static void multiply_cut(MxFactors *f) {
    ops_cut_alike(f);
    ops_cut_tail(f);
}

const MxOp op_multiply = {
    .name = "multiply",
    .arity = 2,
    .inplace = 1,
    .infer = multiply_infer,
    .vjp = multiply_vjp,
    .partition = multiply_cut,
    .doc = "x * y; y has x's shape or its trailing dims",
};
