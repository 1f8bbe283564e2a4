/* norm.c — centring and RMS normalisation over the last dim. Layer normalisation is centring
 * followed by RMS normalisation. */
#include <mx/ops.h>

#include "internal.h"

MxValue mx_center(MxTrace *t, MxValue x) {
    return mx_trace_node(t, &op_center, &x, 1, NULL);
}

static bool center_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    if (!ops_is_real(infer, 0)) return false;
    return infer->in[0].shape.rank || mx_infer_fail(infer, "x must have a last dim");
}

/* The mean of a cotangent flows back to every element alike. */
static void center_vjp(const MxVjp *v) {
    v->dx[0] = mx_center(v->t, v->dy[0]);
}

static void center_cut(MxFactors *f) {
    int rows = f->in[0].shape.rank - 1;
    ops_cut_lead(f, rows, 1);
    for (int d = 0; d < rows; d++) f->out_dim[0][d] = f->in_dim[0][d];
    f->linear = 1;
}

const MxOp op_center = {
    .name = "center",
    .arity = 1,
    .accumulates = 1,
    .infer = center_infer,
    .vjp = center_vjp,
    .partition = center_cut,
    .doc = "x minus its mean over the last dim",
};

MxValue mx_rmsnorm(MxTrace *t, MxValue x, MxValue scale, double eps) {
    MxRmsnormAttr attr = {.eps = eps};
    return mx_trace_node(t, &op_rmsnorm, (MxValue[]){x, scale}, 2, &attr);
}

static bool check(MxInfer *infer) {
    MxShape x = infer->in[0].shape, scale = infer->in[1].shape;
    if (!ops_is_real(infer, 0) || !ops_is(infer, 1, MX_F32, -1)) return false;
    int lead = x.rank - scale.rank;
    bool fits = (scale.rank == 1 || scale.rank == 2) && lead >= 0;
    for (int d = 0; fits && d < scale.rank; d++) fits = scale.dim[d] == x.dim[lead + d];
    return fits || mx_infer_fail(infer, "scale must have the last dim of x, or the last two");
}

static MxType rows_of(MxType x) {
    x.shape.rank--;
    x.shape.dim[x.shape.rank] = 0;
    x.dtype = MX_F32;
    return x;
}

static bool rmsnorm_infer(MxInfer *infer) {
    if (!check(infer)) return false;
    infer->n_out = 2;
    infer->out[0] = infer->in[0];
    infer->out[1] = rows_of(infer->in[0]);
    return true;
}

static void rmsnorm_vjp(const MxVjp *v) {
    MxValue in[] = {v->in[0], v->in[1], v->out[1], v->dy[0]};
    MxValue dx = mx_trace_node(v->t, &op_rmsnorm_grad, in, 4, NULL);
    v->dx[0] = dx;
    v->dx[1] = dx < 0 ? MX_NONE : dx + 1;
}

static void rmsnorm_print(MxText *text, const void *attr) {
    mx_text_add(text, "eps %g", ((const MxRmsnormAttr *)attr)->eps);
}

/* Rows that have a scale of their own are cut with their scales. */
static void cut_scales(MxFactors *f) {
    if (f->in[1].shape.rank == 2) f->in_dim[1][0] = f->in_dim[0][f->in[0].shape.rank - 2];
}

static void rmsnorm_cut(MxFactors *f) {
    int rows = f->in[0].shape.rank - 1;
    ops_cut_lead(f, rows, 1);
    cut_scales(f);
    for (int d = 0; d < rows; d++) f->out_dim[0][d] = f->out_dim[1][d] = f->in_dim[0][d];
}

const MxOp op_rmsnorm = {
    .name = "rmsnorm",
    .arity = 2,
    .no_gradient = 1 << 1,
    .attr_bytes = sizeof(MxRmsnormAttr),
    .infer = rmsnorm_infer,
    .vjp = rmsnorm_vjp,
    .partition = rmsnorm_cut,
    .print = rmsnorm_print,
    .doc = "y = x rstd scale; rstd",
};

static bool is_type(MxType a, MxType b) {
    return a.dtype == b.dtype && mx_shape_equal(a.shape, b.shape);
}

static bool rmsnorm_grad_infer(MxInfer *infer) {
    if (!check(infer) || !ops_same_type(infer, 0, 3)) return false;
    if (!is_type(infer->in[2], rows_of(infer->in[0])))
        return mx_infer_fail(infer, "rstd must be float32 of x's leading dims");
    infer->n_out = 2;
    infer->out[0] = infer->in[0];
    infer->out[1] = infer->in[1];
    return true;
}

/* dscale is a sum over the rows. */
static void rmsnorm_grad_cut(MxFactors *f) {
    enum { X = 1 << 0, RSTD = 1 << 2, DY = 1 << 3 };
    int rows = f->in[0].shape.rank - 1;
    ops_cut_lead(f, rows, X | RSTD | DY);
    cut_scales(f);
    f->out_dim[1][0] = f->in_dim[1][0];
    for (int d = 0; d < rows; d++) f->out_dim[0][d] = f->in_dim[0][d];
}

const MxOp op_rmsnorm_grad = {
    .name = "rmsnorm_grad",
    .arity = 4,
    .accumulates = 3,
    .takes_addend = true,
    .infer = rmsnorm_grad_infer,
    .partition = rmsnorm_grad_cut,
    .doc = "dx, dscale (f32) from x, scale, rstd, dy",
};
