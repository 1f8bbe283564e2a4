/* clip.c — keeping attention scores within bounds: the largest score of a row, and scaling down the
 * kernels of heads. */
#include <mx/ops.h>

#include "internal.h"

MxValue mx_largest(MxTrace *t, MxValue x) {
    return mx_trace_node(t, &op_largest, &x, 1, NULL);
}

static bool largest_infer(MxInfer *infer) {
    MxShape x = infer->in[0].shape;
    if (!ops_is(infer, 0, MX_F32, -1)) return false;
    if (!x.rank || x.dim[x.rank - 1] < 1)
        return mx_infer_fail(infer, "x must have a last dim of at least 1");
    x.dim[--x.rank] = 0;
    infer->out[0] = (MxType){MX_F32, x};
    return true;
}

static void largest_cut(MxFactors *f) {
    int rows = f->out[0].shape.rank;
    ops_cut_lead(f, rows, 1);
    for (int d = 0; d < rows; d++) f->out_dim[0][d] = f->in_dim[0][d];
}

const MxOp op_largest = {
    .name = "largest",
    .arity = 1,
    .infer = largest_infer,
    .partition = largest_cut,
    .doc = "the largest element of each row",
};

MxValue mx_clip_heads(MxTrace *t, MxValue w, MxValue tops, MxClipHeadsAttr attr) {
    return mx_trace_node(t, &op_clip_heads, (MxValue[]){w, tops}, 2, &attr);
}

static bool clip_heads_infer(MxInfer *infer) {
    const MxClipHeadsAttr *attr = infer->attr;
    MxShape w = infer->in[0].shape, tops = infer->in[1].shape;
    if (!ops_is(infer, 0, MX_F32, -1) || !ops_is(infer, 1, MX_F32, -1)) return false;
    if (w.rank < 2 || tops.rank < 1 || tops.dim[tops.rank - 1] != w.dim[w.rank - 2])
        return mx_infer_fail(infer, "the last dim of tops must be w's heads");
    if (attr->n_root < 0 || attr->n_root > w.dim[w.rank - 1])
        return mx_infer_fail(infer, "a head has no %lld elements", (long long)attr->n_root);
    infer->out[0] = infer->in[0];
    return true;
}

/* A head's elements are told apart by their place. */
static void clip_heads_cut(MxFactors *f) {
    int heads = f->in[0].shape.rank - 2;
    ops_cut_lead(f, heads + 1, 1);
    for (int d = 0; d <= heads; d++) f->out_dim[0][d] = f->in_dim[0][d];
    f->in_dim[1][f->in[1].shape.rank - 1] = f->in_dim[0][heads];
}

static void clip_heads_print(MxText *text, const void *attr) {
    const MxClipHeadsAttr *a = attr;
    mx_text_add(text, "%.9g, %lld by the root", a->threshold, (long long)a->n_root);
    if (a->keeps_rest) mx_text_add(text, " alone");
}

const MxOp op_clip_heads = {
    .name = "clip_heads",
    .arity = 2,
    .inplace = 1,
    .attr_bytes = sizeof(MxClipHeadsAttr),
    .infer = clip_heads_infer,
    .partition = clip_heads_cut,
    .print = clip_heads_print,
    .doc = "w, heads of which are made smaller where a score is above the threshold",
};
