/* dot.c — the matrix product: one op for every contraction the decoders need, closed under
 * differentiation. */
#include <mx/ops.h>

#include "internal.h"

MxValue mx_dot(MxTrace *t, MxValue x, MxValue y, MxDotKind kind, int n_contract) {
    return mx_batch_dot(t, x, y, (MxDotAttr){.kind = kind, .n_contract = n_contract});
}

MxValue mx_batch_dot(MxTrace *t, MxValue x, MxValue y, MxDotAttr attr) {
    attr.dtype = mx_trace_type(t, x).dtype;
    return mx_trace_node(t, &op_dot, (MxValue[]){x, y}, 2, &attr);
}

static int64_t product(MxShape shape, int from, int to) {
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= shape.dim[i];
    return n;
}

MxDotSizes mx_dot_sizes(MxShape x, MxShape y, const MxDotAttr *attr) {
    int b = attr->n_batch, c = b + attr->n_contract;
    int x_lead = x.rank - attr->n_contract, y_lead = y.rank - attr->n_contract;
    MxDotSizes s = {.batch = product(x, 0, b)};
    s.n = attr->kind == MX_DOT_NT ? product(y, b, y_lead) : product(y, c, y.rank);
    s.m = attr->kind == MX_DOT_TN ? product(x, c, x.rank) : product(x, b, x_lead);
    s.k = attr->kind == MX_DOT_TN ? product(x, b, c) : product(x, x_lead, x.rank);
    return s;
}

/* Where groups of dims begin. */
typedef struct Groups {
    int x_k, x_m, y_k, y_n;
} Groups;

static Groups groups_of(const MxDotAttr *attr, MxShape x, MxShape y) {
    int b = attr->n_batch, c = attr->n_contract;
    return (Groups){.x_k = attr->kind == MX_DOT_TN ? b : x.rank - c,
                    .x_m = attr->kind == MX_DOT_TN ? b + c : b,
                    .y_k = attr->kind == MX_DOT_NT ? y.rank - c : b,
                    .y_n = attr->kind == MX_DOT_NT ? b : b + c};
}

bool ops_infer_dot(MxInfer *infer) {
    const MxDotAttr *attr = infer->attr;
    MxShape x = infer->in[0].shape, y = infer->in[1].shape;
    int b = attr->n_batch, c = attr->n_contract;
    int x_free = x.rank - c - b, y_free = y.rank - c - b;
    if (infer->in[0].dtype != infer->in[1].dtype)
        return mx_infer_fail(infer, "operands of two dtypes");
    if (b < 0 || c < 0 || x_free < 0 || y_free < 0 || b + x_free + y_free > MX_MAX_RANK)
        return mx_infer_fail(infer, "cannot contract %d dims", c);
    Groups at = groups_of(attr, x, y);
    for (int i = 0; i < b; i++)
        if (x.dim[i] != y.dim[i]) return mx_infer_fail(infer, "numbers of products differ");
    for (int i = 0; i < c; i++)
        if (x.dim[at.x_k + i] != y.dim[at.y_k + i])
            return mx_infer_fail(infer, "contracted dims differ");
    MxShape out = {.rank = b + x_free + y_free};
    for (int i = 0; i < b; i++) out.dim[i] = x.dim[i];
    for (int i = 0; i < x_free; i++) out.dim[b + i] = x.dim[at.x_m + i];
    for (int i = 0; i < y_free; i++) out.dim[b + x_free + i] = y.dim[at.y_n + i];
    infer->out[0] = (MxType){.dtype = attr->dtype, .shape = out};
    return ops_is_real(infer, 0);
}

/* The cotangent is cast to the operands' dtype, so that both gradients are again products of one
 * dtype. */
static void dot_vjp(const MxVjp *v) {
    const MxDotAttr *attr = v->attr;
    MxTrace *t = v->t;
    MxValue x = v->in[0], y = v->in[1], dy = mx_cast(t, v->dy[0], mx_trace_type(t, x).dtype);
    int b = attr->n_batch, c = b + attr->n_contract;
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
    MxDotAttr dx = {.kind = dx_of[attr->kind].kind, .n_contract = n, .n_batch = b};
    MxDotAttr dw = {.kind = dy_of[attr->kind].kind, .n_contract = m, .n_batch = b};
    v->dx[0] = !v->needs[0] ? none
               : swap_x     ? mx_batch_dot(t, y, dy, dx)
                            : mx_batch_dot(t, dy, y, dx);
    v->dx[1] = !v->needs[1] ? none
               : swap_y     ? mx_batch_dot(t, dy, x, dw)
                            : mx_batch_dot(t, x, dy, dw);
}

/* Free dims stay cut; cut contracted dims make the product a partial sum. */
void ops_cut_dot(MxFactors *f) {
    const MxDotAttr *attr = f->attr;
    int b = attr->n_batch, c = attr->n_contract;
    int m = f->in[0].shape.rank - c - b, n = f->in[1].shape.rank - c - b;
    Groups at = groups_of(attr, f->in[0].shape, f->in[1].shape);
    int *x = f->in_dim[0], *y = f->in_dim[1], *out = f->out_dim[0];
    for (int i = 0; i < c; i++) x[at.x_k + i] = y[at.y_k + i] = ops_new_factor(f);
    for (int i = 0; i < m; i++) x[at.x_m + i] = out[b + i] = ops_new_factor(f);
    for (int i = 0; i < n; i++) y[at.y_n + i] = out[b + m + i] = ops_new_factor(f);
    for (int i = 0; i < b; i++) x[i] = y[i] = out[i] = ops_new_factor(f);
}

double ops_dot_flops(const MxType *in, const MxType *out, const void *attr) {
    (void)out;
    MxDotSizes s = mx_dot_sizes(in[0].shape, in[1].shape, attr);
    return 2.0 * (double)s.batch * (double)s.m * (double)s.n * (double)s.k;
}

void ops_print_dot(MxText *text, const void *attr) {
    static const char *const names[] = {"nn", "nt", "tn"};
    const MxDotAttr *a = attr;
    mx_text_add(text, "%s %d %s", names[a->kind], a->n_contract, mx_dtype_name(a->dtype));
    if (a->n_batch) mx_text_add(text, " batch %d", a->n_batch);
    if (a->is_square) mx_text_add(text, " square");
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
