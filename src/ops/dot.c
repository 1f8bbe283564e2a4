/* dot.c — the matrix product: one op for every contraction the decoders need, closed under
 * differentiation. */
#include <mx/ops.h>

#include "internal.h"

MxValue mx_dot(MxTrace *t, MxValue x, MxValue y, MxDotKind kind, int n_contract) {
    MxDotAttr attr = {.dtype = mx_trace_type(t, x).dtype, .kind = kind, .n_contract = n_contract};
    return mx_trace_node(t, &op_dot, (MxValue[]){x, y}, 2, &attr);
}

static int64_t product(MxShape shape, int from, int to) {
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= shape.dim[i];
    return n;
}

MxDotSizes mx_dot_sizes(MxShape x, MxShape y, const MxDotAttr *attr) {
    int c = attr->n_contract, x_lead = x.rank - c, y_lead = y.rank - c;
    if (attr->kind == MX_DOT_TN)
        return (MxDotSizes){product(x, c, x.rank), product(y, c, y.rank), product(x, 0, c)};
    int64_t n = attr->kind == MX_DOT_NN ? product(y, c, y.rank) : product(y, 0, y_lead);
    return (MxDotSizes){product(x, 0, x_lead), n, product(x, x_lead, x.rank)};
}

bool ops_infer_dot(MxInfer *infer) {
    const MxDotAttr *attr = infer->attr;
    MxShape x = infer->in[0].shape, y = infer->in[1].shape;
    int c = attr->n_contract, x_free = x.rank - c, y_free = y.rank - c;
    if (infer->in[0].dtype != infer->in[1].dtype)
        return mx_infer_fail(infer, "operands of two dtypes");
    if (c < 0 || x_free < 0 || y_free < 0 || x_free + y_free > MX_MAX_RANK)
        return mx_infer_fail(infer, "cannot contract %d dims", c);
    int x_k = attr->kind == MX_DOT_TN ? 0 : x_free, x_m = attr->kind == MX_DOT_TN ? c : 0;
    int y_k = attr->kind == MX_DOT_NT ? y_free : 0, y_n = attr->kind == MX_DOT_NT ? 0 : c;
    for (int i = 0; i < c; i++)
        if (x.dim[x_k + i] != y.dim[y_k + i]) return mx_infer_fail(infer, "contracted dims differ");
    MxShape out = {.rank = x_free + y_free};
    for (int i = 0; i < x_free; i++) out.dim[i] = x.dim[x_m + i];
    for (int i = 0; i < y_free; i++) out.dim[x_free + i] = y.dim[y_n + i];
    infer->out[0] = (MxType){.dtype = attr->dtype, .shape = out};
    return ops_is_real(infer, 0);
}

/* The cotangent is cast to the operands' dtype, so that both gradients are again products of one
 * dtype. */
static void dot_vjp(const MxVjp *v) {
    const MxDotAttr *attr = v->attr;
    MxTrace *t = v->t;
    MxValue x = v->in[0], y = v->in[1], dy = mx_cast(t, v->dy[0], mx_trace_type(t, x).dtype);
    int c = attr->n_contract;
    int m = mx_trace_type(t, x).shape.rank - c, n = mx_trace_type(t, y).shape.rank - c;
    static const struct {
        MxDotKind kind;
        bool swap;
    } dx_of[] = {[MX_DOT_NN] = {MX_DOT_NT, false},
                 [MX_DOT_NT] = {MX_DOT_NN, false},
                 [MX_DOT_TN] = {MX_DOT_NT, true}},
      dy_of[] = {[MX_DOT_NN] = {MX_DOT_TN, false},
                 [MX_DOT_NT] = {MX_DOT_TN, true},
                 [MX_DOT_TN] = {MX_DOT_NN, false}};
    MxValue none = MX_NONE;
    bool swap_x = dx_of[attr->kind].swap, swap_y = dy_of[attr->kind].swap;
    v->dx[0] = !v->needs[0] ? none
               : swap_x     ? mx_dot(t, y, dy, dx_of[attr->kind].kind, n)
                            : mx_dot(t, dy, y, dx_of[attr->kind].kind, n);
    v->dx[1] = !v->needs[1] ? none
               : swap_y     ? mx_dot(t, dy, x, dy_of[attr->kind].kind, m)
                            : mx_dot(t, x, dy, dy_of[attr->kind].kind, m);
}

/* Free dims stay cut; cut contracted dims make the product a partial sum. */
void ops_cut_dot(MxFactors *f) {
    const MxDotAttr *attr = f->attr;
    int c = attr->n_contract, m = f->in[0].shape.rank - c, n = f->in[1].shape.rank - c;
    int x_k = attr->kind == MX_DOT_TN ? 0 : m, x_m = attr->kind == MX_DOT_TN ? c : 0;
    int y_k = attr->kind == MX_DOT_NT ? n : 0, y_n = attr->kind == MX_DOT_NT ? 0 : c;
    for (int i = 0; i < c; i++) f->in_dim[0][x_k + i] = f->in_dim[1][y_k + i] = ops_new_factor(f);
    for (int i = 0; i < m; i++) f->in_dim[0][x_m + i] = f->out_dim[0][i] = ops_new_factor(f);
    for (int i = 0; i < n; i++) f->in_dim[1][y_n + i] = f->out_dim[0][m + i] = ops_new_factor(f);
}

double ops_dot_flops(const MxType *in, const MxType *out, const void *attr) {
    (void)out;
    MxDotSizes s = mx_dot_sizes(in[0].shape, in[1].shape, attr);
    return 2.0 * (double)s.m * (double)s.n * (double)s.k;
}

void ops_print_dot(MxText *text, const void *attr) {
    static const char *const names[] = {"nn", "nt", "tn"};
    const MxDotAttr *a = attr;
    mx_text_add(text, "%s %d %s", names[a->kind], a->n_contract, mx_dtype_name(a->dtype));
}

const MxOp op_dot = {
    .name = "dot",
    .arity = 2,
    .flags = MX_OP_CAST_FOLDS | MX_OP_IS_KEPT,
    .accumulates = 1,
    .takes_addend = true,
    .attr_bytes = sizeof(MxDotAttr),
    .infer = ops_infer_dot,
    .vjp = dot_vjp,
    .partition = ops_cut_dot,
    .flops = ops_dot_flops,
    .print = ops_print_dot,
    .doc = "matrix product over groups of dims",
};
