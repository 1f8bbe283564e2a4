/* expert.c — products of rows with the matrix of the expert chosen for each, and their gradients.
 * Rows keep their places (only the kernel sorts them), so that tokens, choices, widths and experts
 * can each be divided among ranks as in any product. */
#include <mx/ops.h>

#include "internal.h"

MxValue mx_expert_dot(MxTrace *t, MxValue x, MxValue ids, MxValue w, MxExpertDotAttr attr) {
    MxShape shape = mx_trace_type(t, w).shape;
    attr.dtype = mx_trace_type(t, x).dtype;
    attr.n_experts = shape.rank ? shape.dim[0] : 0;
    return mx_trace_node(t, &op_expert_dot, (MxValue[]){x, ids, w}, 3, &attr);
}

MxValue mx_expert_dw(MxTrace *t, MxValue x, MxValue ids, MxValue y, MxExpertDwAttr attr) {
    attr.dtype = mx_trace_type(t, x).dtype;
    return mx_trace_node(t, &op_expert_dw, (MxValue[]){x, ids, y}, 3, &attr);
}

/* Rows [.., C, n] or [.., n] beside ids [.., C]. */
static bool rows_fit(MxInfer *infer, int i) {
    MxShape x = infer->in[i].shape, ids = infer->in[1].shape;
    bool fits = ids.rank > 0 && (x.rank == ids.rank || x.rank == ids.rank + 1);
    for (int d = 0; fits && d < x.rank - 1; d++) fits = x.dim[d] == ids.dim[d];
    return fits || mx_infer_fail(infer, "input %d must have a row for each token or choice", i);
}

static bool operands_fit(MxInfer *infer) {
    if (!ops_is_real(infer, 0) || !ops_is(infer, 1, MX_I32, -1)) return false;
    if (infer->in[2].dtype != infer->in[0].dtype)
        return mx_infer_fail(infer, "operands of two dtypes");
    return rows_fit(infer, 0);
}

/* ids' dims, the last one only if it stays, and a width. */
static MxShape result(MxShape ids, bool keeps_choices, int64_t width) {
    MxShape out = ids;
    if (!keeps_choices) out.rank--;
    out.dim[out.rank++] = width;
    return out;
}

static bool expert_dot_infer(MxInfer *infer) {
    const MxExpertDotAttr *attr = infer->attr;
    MxShape x = infer->in[0].shape, ids = infer->in[1].shape, w = infer->in[2].shape;
    if (!operands_fit(infer)) return false;
    if (w.rank != 3 || w.dim[attr->transposed ? 2 : 1] != x.dim[x.rank - 1])
        return mx_infer_fail(infer, "w must be a matrix an expert, with rows of x's width");
    if (ids.rank + 1 > MX_MAX_RANK) return mx_infer_fail(infer, "too many dims");
    infer->out[0] =
        (MxType){attr->dtype, result(ids, !attr->sums, w.dim[attr->transposed ? 1 : 2])};
    return true;
}

static void expert_dot_vjp(const MxVjp *v) {
    const MxExpertDotAttr *attr = v->attr;
    MxTrace *t = v->t;
    MxValue x = v->in[0], ids = v->in[1], w = v->in[2];
    MxType type = mx_trace_type(t, x);
    MxValue dy = mx_cast(t, v->dy[0], type.dtype);
    bool is_shared = type.shape.rank == mx_trace_type(t, ids).shape.rank;
    MxExpertDotAttr back = *attr;
    back.dtype = type.dtype;
    back.transposed = !attr->transposed;
    back.sums = is_shared;
    MxExpertDwAttr dw = {
        .slots = attr->slots, .n_experts = mx_trace_type(t, w).shape.dim[0], .first = attr->first};
    v->dx[0] = MX_NONE;
    if (v->needs[0]) v->dx[0] = mx_trace_node(t, &op_expert_dot, (MxValue[]){dy, ids, w}, 3, &back);
    v->dx[1] = MX_NONE;
    v->dx[2] = !v->needs[2]       ? MX_NONE
               : attr->transposed ? mx_expert_dw(t, dy, ids, x, dw)
                                  : mx_expert_dw(t, x, ids, dy, dw);
}

/* Factors. Rows and their results share those of the ids' dims, which come last. */
enum { EXPERTS, INNER, OUTER, FIRST_OF_IDS };

static void cut_rows(MxFactors *f, int *dims, MxShape shape, int width) {
    for (int d = 0; d < shape.rank - 1; d++) dims[d] = f->in_dim[1][d];
    dims[shape.rank - 1] = width;
}

/* The slots of an expert are where its matrix is. */
static void cut_ids(MxFactors *f, bool slots) {
    for (int i = 0; i < FIRST_OF_IDS; i++) ops_new_factor(f);
    for (int d = 0; d < f->in[1].shape.rank; d++)
        f->in_dim[1][d] = slots && d == 1 ? EXPERTS : ops_new_factor(f);
}

/* Cut experts, like all that is summed over, make the result a partial sum. */
static void expert_dot_cut(MxFactors *f) {
    bool transposed = ((const MxExpertDotAttr *)f->attr)->transposed;
    cut_ids(f, ((const MxExpertDotAttr *)f->attr)->slots);
    cut_rows(f, f->in_dim[0], f->in[0].shape, INNER);
    cut_rows(f, f->out_dim[0], f->out[0].shape, OUTER);
    f->in_dim[2][0] = EXPERTS;
    f->in_dim[2][1] = transposed ? OUTER : INNER;
    f->in_dim[2][2] = transposed ? INNER : OUTER;
}

static void expert_dot_localize(const MxShare *share, void *attr) {
    ((MxExpertDotAttr *)attr)->first = share->start[EXPERTS];
}

/* Rows that other ranks' experts have are not multiplied. */
static double expert_dot_flops(const MxType *in, const MxType *out, const void *attr) {
    const MxExpertDotAttr *a = attr;
    double rows = (double)mx_shape_count(in[1].shape);
    double part = (double)in[2].shape.dim[0] / (double)a->n_experts;
    (void)out;
    return 2 * rows * part * (double)in[2].shape.dim[1] * (double)in[2].shape.dim[2];
}

static void expert_dot_print(MxText *text, const void *attr) {
    const MxExpertDotAttr *a = attr;
    mx_text_add(text, "%s%s%s", a->transposed ? "nt " : "nn ", a->sums ? "sums " : "",
                mx_dtype_name(a->dtype));
}

const MxOp op_expert_dot = {
    .name = "expert_dot",
    .arity = 3,
    .flags = MX_OP_CAST_FOLDS | MX_OP_IS_KEPT,
    .attr_bytes = sizeof(MxExpertDotAttr),
    .infer = expert_dot_infer,
    .vjp = expert_dot_vjp,
    .partition = expert_dot_cut,
    .localize = expert_dot_localize,
    .flops = expert_dot_flops,
    .print = expert_dot_print,
    .doc = "rows times the matrices of the experts that they chose",
};

static bool expert_dw_infer(MxInfer *infer) {
    const MxExpertDwAttr *attr = infer->attr;
    MxShape x = infer->in[0].shape, y = infer->in[2].shape;
    if (!operands_fit(infer) || !rows_fit(infer, 2)) return false;
    infer->out[0] =
        (MxType){attr->dtype, MX_SHAPE(attr->n_experts, x.dim[x.rank - 1], y.dim[y.rank - 1])};
    return true;
}

static void expert_dw_cut(MxFactors *f) {
    cut_ids(f, ((const MxExpertDwAttr *)f->attr)->slots);
    cut_rows(f, f->in_dim[0], f->in[0].shape, INNER);
    cut_rows(f, f->in_dim[2], f->in[2].shape, OUTER);
    f->out_dim[0][0] = EXPERTS;
    f->out_dim[0][1] = INNER;
    f->out_dim[0][2] = OUTER;
}

static void expert_dw_localize(const MxShare *share, void *attr) {
    MxExpertDwAttr *a = attr;
    a->n_experts = share->out[0].shape.dim[0];
    a->first = share->start[EXPERTS];
}

static double expert_dw_flops(const MxType *in, const MxType *out, const void *attr) {
    double rows = (double)mx_shape_count(in[1].shape);
    (void)attr;
    return 2 * rows * (double)out[0].shape.dim[1] * (double)out[0].shape.dim[2];
}

const MxOp op_expert_dw = {
    .name = "expert_dw",
    .arity = 3,
    .flags = MX_OP_CAST_FOLDS,
    .accumulates = 1,
    .attr_bytes = sizeof(MxExpertDwAttr),
    .infer = expert_dw_infer,
    .partition = expert_dw_cut,
    .localize = expert_dw_localize,
    .flops = expert_dw_flops,
    .doc = "gradient of the experts' matrices",
};
