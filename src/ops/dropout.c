/* dropout.c — dropout of columns. The gradient drops the same ones. */
#include <mx/ops.h>

#include "internal.h"

enum { X, ROWS, STEP, INPUTS };

MxValue mx_dropout(MxTrace *t, MxValue x, MxValue rows, MxValue step, MxDropoutAttr attr) {
    MxShape shape = mx_trace_type(t, x).shape;
    attr.width = shape.rank ? shape.dim[shape.rank - 1] : 0;
    return mx_trace_node(t, &op_dropout, (MxValue[]){x, rows, step}, INPUTS, &attr);
}

static bool dropout_infer(MxInfer *infer) {
    const MxDropoutAttr *attr = infer->attr;
    MxShape x = infer->in[X].shape;
    infer->out[0] = infer->in[X];
    if (!ops_is_real(infer, X) || !ops_is(infer, ROWS, MX_I32, 1) ||
        !ops_is(infer, STEP, MX_I32, 0))
        return false;
    if (x.rank < 2 || x.dim[0] != infer->in[ROWS].shape.dim[0])
        return mx_infer_fail(infer, "rows must have x's first dim");
    if (attr->first < 0 || attr->first + x.dim[x.rank - 1] > attr->width)
        return mx_infer_fail(infer, "x is no part of rows of %lld", (long long)attr->width);
    return (attr->rate >= 0 && attr->rate <= 1) ||
           mx_infer_fail(infer, "a rate of %g is not within 0 and 1", attr->rate);
}

static void dropout_vjp(const MxVjp *v) {
    MxValue in[] = {[X] = v->dy[0], [ROWS] = v->in[ROWS], [STEP] = v->in[STEP]};
    v->dx[X] = mx_trace_node(v->t, &op_dropout, in, INPUTS, v->attr);
}

static void dropout_cut(MxFactors *f) {
    ops_cut_alike(f);
    f->in_dim[ROWS][0] = f->out_dim[0][0];
    f->linear = 1u << X;
}

static void dropout_localize(const MxShare *share, void *attr) {
    ((MxDropoutAttr *)attr)->first = share->start[share->out[0].shape.rank - 1];
}

static void dropout_print(MxText *text, const void *attr) {
    const MxDropoutAttr *a = attr;
    mx_text_add(text, "%.9g stream %llu", a->rate, (unsigned long long)a->stream);
    if (a->first) mx_text_add(text, " from %lld", (long long)a->first);
}

const MxOp op_dropout = {
    .name = "dropout",
    .arity = INPUTS,
    .inplace = 1,
    .attr_bytes = sizeof(MxDropoutAttr),
    .infer = dropout_infer,
    .vjp = dropout_vjp,
    .partition = dropout_cut,
    .localize = dropout_localize,
    .print = dropout_print,
    .doc = "x without columns that are left out by chance",
};
