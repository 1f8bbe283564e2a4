/* route.c — routing of tokens to experts: the chosen experts, their weights, and how evenly they
 * are chosen. */
#include <mx/ops.h>

#include "internal.h"

/* ---- softmax */

MxValue mx_softmax(MxTrace *t, MxValue x) {
    return mx_trace_node(t, &op_softmax, &x, 1, NULL);
}

static bool has_last_dim(MxInfer *infer, int i) {
    if (infer->in[i].shape.rank > 0) return true;
    return mx_infer_fail(infer, "input %d must have a last dim", i);
}

static bool softmax_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    return ops_is(infer, 0, MX_F32, -1) && has_last_dim(infer, 0);
}

static void softmax_vjp(const MxVjp *v) {
    v->dx[0] = mx_trace_node(v->t, &op_softmax_grad, (MxValue[]){v->out[0], v->dy[0]}, 2, NULL);
}

/* Rows are cut, the last dim is not. */
static void cut_rows(MxFactors *f) {
    int lead = f->in[0].shape.rank - 1;
    ops_cut_lead(f, lead, (1u << f->n_in) - 1);
    for (int d = 0; d < lead; d++) f->out_dim[0][d] = f->in_dim[0][d];
}

const MxOp op_softmax = {
    .name = "softmax",
    .arity = 1,
    .infer = softmax_infer,
    .vjp = softmax_vjp,
    .partition = cut_rows,
    .doc = "exp(x) over its sum, over the last dim",
};

static bool softmax_grad_infer(MxInfer *infer) {
    return softmax_infer(infer) && ops_same_type(infer, 0, 1);
}

const MxOp op_softmax_grad = {
    .name = "softmax_grad",
    .arity = 2,
    .infer = softmax_grad_infer,
    .partition = cut_rows,
    .doc = "dx from y = softmax(x) and dy",
};

/* ---- shares */

MxValue mx_share(MxTrace *t, MxValue x) {
    return mx_trace_node(t, &op_share, &x, 1, NULL);
}

static void share_vjp(const MxVjp *v) {
    v->dx[0] = mx_trace_node(v->t, &op_share_grad, (MxValue[]){v->in[0], v->dy[0]}, 2, NULL);
}

const MxOp op_share = {
    .name = "share",
    .arity = 1,
    .infer = softmax_infer,
    .vjp = share_vjp,
    .partition = cut_rows,
    .doc = "x over its sum, over the last dim",
};

const MxOp op_share_grad = {
    .name = "share_grad",
    .arity = 2,
    .infer = softmax_grad_infer,
    .partition = cut_rows,
    .doc = "dx from x and the dy of its share",
};

/* ---- the largest elements, and picking them */

MxValue mx_top_k(MxTrace *t, MxValue x, MxTopKAttr attr) {
    return mx_trace_node(t, &op_top_k, &x, 1, &attr);
}

static bool groups_fit(MxInfer *infer, int64_t n) {
    const MxTopKAttr *a = infer->attr;
    if (!a->n_groups) return true;
    if (n % a->n_groups || n / a->n_groups < 2)
        return mx_infer_fail(infer, "%lld elements are not %lld groups of two or more",
                             (long long)n, (long long)a->n_groups);
    return (a->n_best >= 1 && a->n_best <= a->n_groups) ||
           mx_infer_fail(infer, "cannot take the %lld best of %lld groups", (long long)a->n_best,
                         (long long)a->n_groups);
}

static bool top_k_infer(MxInfer *infer) {
    const MxTopKAttr *a = infer->attr;
    MxShape shape = infer->in[0].shape;
    if (!ops_is(infer, 0, MX_F32, -1) || !has_last_dim(infer, 0)) return false;
    int64_t n = shape.dim[shape.rank - 1];
    if (!groups_fit(infer, n)) return false;
    if (a->n_groups) n = n / a->n_groups * a->n_best;
    if (a->k < 1 || a->k > n)
        return mx_infer_fail(infer, "cannot take the %lld largest of %lld", (long long)a->k,
                             (long long)n);
    shape.dim[shape.rank - 1] = a->k;
    infer->out[0] = (MxType){MX_I32, shape};
    return true;
}

static void top_k_print(MxText *text, const void *attr) {
    const MxTopKAttr *a = attr;
    mx_text_add(text, "%lld", (long long)a->k);
    if (a->n_groups)
        mx_text_add(text, " in %lld of %lld groups", (long long)a->n_best, (long long)a->n_groups);
}

const MxOp op_top_k = {
    .name = "top_k",
    .arity = 1,
    .flags = MX_OP_CONSTANT,
    .attr_bytes = sizeof(MxTopKAttr),
    .infer = top_k_infer,
    .partition = cut_rows,
    .print = top_k_print,
    .doc = "indices of the k largest elements of the last dim",
};

MxValue mx_pick(MxTrace *t, MxValue x, MxValue ids) {
    return mx_trace_node(t, &op_pick, (MxValue[]){x, ids}, 2, NULL);
}

/* ids [.., k] beside something [.., n]. */
static bool ids_fit(MxInfer *infer, int ids, int beside) {
    MxShape a = infer->in[ids].shape, b = infer->in[beside].shape;
    bool fits = a.rank == b.rank && a.rank > 0;
    for (int i = 0; fits && i < a.rank - 1; i++) fits = a.dim[i] == b.dim[i];
    return fits || mx_infer_fail(infer, "inputs %d and %d must differ in the last dim alone",
                                 ids < beside ? ids : beside, ids < beside ? beside : ids);
}

static bool pick_infer(MxInfer *infer) {
    infer->out[0] = (MxType){MX_F32, infer->in[1].shape};
    return ops_is(infer, 0, MX_F32, -1) && ops_is(infer, 1, MX_I32, -1) && ids_fit(infer, 1, 0);
}

static void pick_vjp(const MxVjp *v) {
    MxShape x = mx_trace_type(v->t, v->in[0]).shape;
    MxPickGradAttr attr = {.n = x.dim[x.rank - 1]};
    v->dx[0] = mx_trace_node(v->t, &op_pick_grad, (MxValue[]){v->in[1], v->dy[0]}, 2, &attr);
    v->dx[1] = MX_NONE;
}

const MxOp op_pick = {
    .name = "pick",
    .arity = 2,
    .infer = pick_infer,
    .vjp = pick_vjp,
    .partition = cut_rows,
    .doc = "elements of the last dim by indices",
};

static bool pick_grad_infer(MxInfer *infer) {
    MxShape shape = infer->in[0].shape;
    if (!ops_is(infer, 0, MX_I32, -1) || !ops_is(infer, 1, MX_F32, -1)) return false;
    if (!shape.rank || !mx_shape_equal(shape, infer->in[1].shape))
        return mx_infer_fail(infer, "dy must have the shape of the ids");
    shape.dim[shape.rank - 1] = ((const MxPickGradAttr *)infer->attr)->n;
    infer->out[0] = (MxType){MX_F32, shape};
    return true;
}

const MxOp op_pick_grad = {
    .name = "pick_grad",
    .arity = 2,
    .attr_bytes = sizeof(MxPickGradAttr),
    .infer = pick_grad_infer,
    .partition = cut_rows,
    .doc = "dx from ids and dy; what was picked more than once adds up",
};

/* ---- loads */

MxValue mx_count_ids(MxTrace *t, MxValue ids, int64_t n) {
    return mx_trace_node(t, &op_count_ids, &ids, 1, &(MxCountIdsAttr){.n = n});
}

static bool count_ids_infer(MxInfer *infer) {
    infer->out[0] = (MxType){MX_F32, MX_SHAPE(((const MxCountIdsAttr *)infer->attr)->n)};
    return ops_is(infer, 0, MX_I32, -1);
}

static void count_ids_cut(MxFactors *f) {
    ops_cut_lead(f, f->in[0].shape.rank, 1);
}

const MxOp op_count_ids = {
    .name = "count_ids",
    .arity = 1,
    .flags = MX_OP_CONSTANT,
    .accumulates = 1,
    .attr_bytes = sizeof(MxCountIdsAttr),
    .infer = count_ids_infer,
    .partition = count_ids_cut,
    .doc = "how often each id occurs",
};

MxValue mx_even_out(MxTrace *t, MxValue p, MxValue counts, double rate) {
    return mx_trace_node(t, &op_even_out, (MxValue[]){p, counts}, 2, &(MxEvenOutAttr){rate});
}

static bool even_out_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    return ops_is(infer, 0, MX_F32, 1) && ops_same_type(infer, 0, 1);
}

static void even_out_print(MxText *text, const void *attr) {
    mx_text_add(text, "%g", ((const MxEvenOutAttr *)attr)->rate);
}

/* Few elements, whose mean counts: every rank has them all. */
const MxOp op_even_out = {
    .name = "even_out",
    .arity = 2,
    .flags = MX_OP_CONSTANT,
    .attr_bytes = sizeof(MxEvenOutAttr),
    .infer = even_out_infer,
    .print = even_out_print,
    .doc = "p, more where fewer than the mean were counted, less where more were",
};

/* ---- combining what experts made */

MxValue mx_combine(MxTrace *t, MxValue x, MxValue weights) {
    return mx_trace_node(t, &op_combine, (MxValue[]){x, weights}, 2, NULL);
}

/* x [.., C, D] beside weights [.., C] or [.., C, M]. */
static bool is_weighted(MxInfer *infer) {
    MxShape x = infer->in[0].shape, w = infer->in[1].shape;
    if (!ops_is_real(infer, 0) || !ops_is(infer, 1, MX_F32, -1)) return false;
    bool fits = x.rank > 1 && (w.rank == x.rank - 1 || w.rank == x.rank);
    for (int i = 0; fits && i < x.rank - 1; i++) fits = x.dim[i] == w.dim[i];
    return fits || mx_infer_fail(infer, "weights must have x's dims but the last");
}

/* One sum of x's rows, or as many as weights have columns. */
static MxType combined(const MxType *in) {
    MxType out = in[0];
    int rows = out.shape.rank - 2;
    if (in[1].shape.rank == out.shape.rank)
        out.shape.dim[rows] = in[1].shape.dim[rows + 1];
    else
        out.shape.dim[rows] = out.shape.dim[--out.shape.rank];
    return out;
}

static bool combine_infer(MxInfer *infer) {
    if (!is_weighted(infer)) return false;
    infer->out[0] = combined(infer->in);
    return true;
}

static void combine_vjp(const MxVjp *v) {
    MxValue in[] = {v->in[0], v->in[1], v->dy[0]};
    v->dx[0] = mx_trace_node(v->t, &op_combine_grad, in, 3, NULL);
    v->dx[1] = v->dx[0] < 0 ? MX_NONE : v->dx[0] + 1;
}

/* Tokens, choices, sums and the last dim: what is summed over may stay partial. */
static void combine_cut(MxFactors *f) {
    int rank = f->in[0].shape.rank, choice = rank - 2, last = rank - 1;
    bool is_grad = f->n_in == 3, has_columns = f->in[1].shape.rank == rank;
    ops_cut_lead(f, choice, 3);
    int choices = ops_new_factor(f), width = ops_new_factor(f);
    f->in_dim[0][choice] = f->in_dim[1][choice] = choices;
    f->in_dim[0][last] = width;
    int *y = is_grad ? f->in_dim[2] : f->out_dim[0];
    for (int d = 0; d < choice; d++) y[d] = f->in_dim[0][d];
    if (has_columns) f->in_dim[1][last] = y[choice] = ops_new_factor(f);
    y[has_columns ? last : choice] = width;
    if (!is_grad) return;
    memcpy(f->out_dim[0], f->in_dim[0], sizeof f->in_dim[0]);
    memcpy(f->out_dim[1], f->in_dim[1], sizeof f->in_dim[1]);
}

const MxOp op_combine = {
    .name = "combine",
    .arity = 2,
    .infer = combine_infer,
    .vjp = combine_vjp,
    .partition = combine_cut,
    .doc = "sums of rows times their weights",
};

static bool combine_grad_infer(MxInfer *infer) {
    if (!is_weighted(infer)) return false;
    MxType dy = combined(infer->in);
    if (infer->in[2].dtype != dy.dtype || !mx_shape_equal(infer->in[2].shape, dy.shape))
        return mx_infer_fail(infer, "dy must be of the result's type");
    infer->n_out = 2;
    infer->out[0] = infer->in[0];
    infer->out[1] = infer->in[1];
    return true;
}

const MxOp op_combine_grad = {
    .name = "combine_grad",
    .arity = 3,
    .infer = combine_grad_infer,
    .partition = combine_cut,
    .doc = "dx and dweights from x, weights and dy",
};

/* ---- balance */

MxValue mx_balance(MxTrace *t, MxValue probs, MxValue ids, double factor) {
    MxShape shape = mx_trace_type(t, probs).shape;
    MxBalanceAttr attr = {.factor = factor, .n_experts = shape.rank == 3 ? shape.dim[2] : 0};
    return mx_trace_node(t, &op_balance, (MxValue[]){probs, ids}, 2, &attr);
}

static bool balance_infer(MxInfer *infer) {
    infer->out[0] = (MxType){MX_F32, MX_SCALAR};
    if (!ops_is(infer, 0, MX_F32, 3) || !ops_is(infer, 1, MX_I32, 3)) return false;
    return ids_fit(infer, 1, 0);
}

static void balance_vjp(const MxVjp *v) {
    v->dx[0] = mx_trace_node(v->t, &op_balance_grad, (MxValue[]){v->in[1], v->dy[0]}, 2, v->attr);
    v->dx[1] = MX_NONE;
}

/* A row's sum is a product of two means over all of its tokens. */
static void balance_cut(MxFactors *f) {
    f->in_dim[0][0] = f->in_dim[1][0] = ops_new_factor(f);
}

const MxOp op_balance = {
    .name = "balance",
    .arity = 2,
    .attr_bytes = sizeof(MxBalanceAttr),
    .infer = balance_infer,
    .vjp = balance_vjp,
    .partition = balance_cut,
    .doc = "how unevenly experts are chosen",
};

static bool balance_grad_infer(MxInfer *infer) {
    MxShape ids = infer->in[0].shape;
    if (!ops_is(infer, 0, MX_I32, 3) || !ops_is(infer, 1, MX_F32, 0)) return false;
    int64_t n_experts = ((const MxBalanceAttr *)infer->attr)->n_experts;
    infer->out[0] = (MxType){MX_F32, MX_SHAPE(ids.dim[0], ids.dim[1], n_experts)};
    return true;
}

static void balance_grad_cut(MxFactors *f) {
    f->in_dim[0][0] = f->out_dim[0][0] = ops_new_factor(f);
}

const MxOp op_balance_grad = {
    .name = "balance_grad",
    .arity = 2,
    .attr_bytes = sizeof(MxBalanceAttr),
    .infer = balance_grad_infer,
    .partition = balance_grad_cut,
    .doc = "dprobs from ids and the scalar dy",
};
