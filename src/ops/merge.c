/* merge.c — replacing some rows of a sequence by rows from elsewhere: image tokens among the
 * embeddings of text tokens. */
#include <mx/ops.h>

#include "internal.h"

MxValue mx_merge(MxTrace *t, MxValue x, MxValue rows, MxValue index) {
    return mx_trace_node(t, &op_merge, (MxValue[]){x, rows, index}, 3, NULL);
}

static bool merge_infer(MxInfer *infer) {
    MxShape x = infer->in[0].shape, rows = infer->in[1].shape, index = infer->in[2].shape;
    infer->out[0] = infer->in[0];
    if (!ops_is_real(infer, 0) || !ops_is(infer, 0, infer->in[0].dtype, 3) ||
        !ops_is(infer, 1, infer->in[0].dtype, 3) || !ops_is(infer, 2, MX_I32, 2))
        return false;
    if (rows.dim[0] != x.dim[0] || rows.dim[2] != x.dim[2])
        return mx_infer_fail(infer, "rows must be [B, R, D] for x [B, T, D]");
    return (index.dim[0] == x.dim[0] && index.dim[1] == x.dim[1]) ||
           mx_infer_fail(infer, "index must be [B, T] for x [B, T, D]");
}

static void merge_vjp(const MxVjp *v) {
    MxMergeGradAttr attr = {.n = mx_trace_type(v->t, v->in[1]).shape.dim[1]};
    v->dx[0] = mx_trace_node(v->t, &op_merge_grad, (MxValue[]){v->in[2], v->dy[0]}, 2, &attr);
    v->dx[1] = v->dx[0] < 0 ? MX_NONE : v->dx[0] + 1;
    v->dx[2] = MX_NONE;
}

enum { B, T, D, CUT_FACTORS };
static const int of_tokens[] = {B, T, D}, of_rows[] = {B, MX_WHOLE, D};

static void merge_cut(MxFactors *f) {
    for (int i = 0; i < CUT_FACTORS; i++) ops_new_factor(f);
    memcpy(f->in_dim[0], of_tokens, sizeof of_tokens);
    memcpy(f->in_dim[1], of_rows, sizeof of_rows);
    memcpy(f->in_dim[2], of_tokens, 2 * sizeof *of_tokens);
    memcpy(f->out_dim[0], of_tokens, sizeof of_tokens);
}

const MxOp op_merge = {
    .name = "merge",
    .arity = 3,
    .infer = merge_infer,
    .vjp = merge_vjp,
    .partition = merge_cut,
    .doc = "x, or where the index is above 0 that row of others",
};

static bool merge_grad_infer(MxInfer *infer) {
    MxShape index = infer->in[0].shape, dy = infer->in[1].shape;
    int64_t n = ((const MxMergeGradAttr *)infer->attr)->n;
    if (!ops_is(infer, 0, MX_I32, 2) || !ops_is_real(infer, 1)) return false;
    if (dy.rank != 3 || dy.dim[0] != index.dim[0] || dy.dim[1] != index.dim[1])
        return mx_infer_fail(infer, "dy must be [B, T, D] for an index [B, T]");
    infer->n_out = 2;
    infer->out[0] = infer->in[1];
    infer->out[1] = (MxType){infer->in[1].dtype, MX_SHAPE(dy.dim[0], n, dy.dim[2])};
    return true;
}

static void merge_grad_cut(MxFactors *f) {
    for (int i = 0; i < CUT_FACTORS; i++) ops_new_factor(f);
    memcpy(f->in_dim[0], of_tokens, 2 * sizeof *of_tokens);
    memcpy(f->in_dim[1], of_tokens, sizeof of_tokens);
    memcpy(f->out_dim[0], of_tokens, sizeof of_tokens);
    memcpy(f->out_dim[1], of_rows, sizeof of_rows);
}

static void merge_grad_print(MxText *text, const void *attr) {
    mx_text_add(text, "%lld rows", (long long)((const MxMergeGradAttr *)attr)->n);
}

const MxOp op_merge_grad = {
    .name = "merge_grad",
    .arity = 2,
    .attr_bytes = sizeof(MxMergeGradAttr),
    .infer = merge_grad_infer,
    .partition = merge_grad_cut,
    .print = merge_grad_print,
    .doc = "dx, drows from index, dy; rows that stand at several tokens add up",
};
