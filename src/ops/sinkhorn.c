/* sinkhorn.c — doubly stochastic matrices: by alternately normalising rows and columns, and as sums
 * of permutations. */
#include <mx/ops.h>

#include "internal.h"

/* Matrices are cut from each other, never inside. */
static void cut_matrices(MxFactors *f, int lead) {
    ops_cut_lead(f, lead, (1u << f->n_in) - 1);
    for (int d = 0; d < lead; d++) f->out_dim[0][d] = f->in_dim[0][d];
}

/* ---- normalising in turns */

MxValue mx_sinkhorn(MxTrace *t, MxValue x, int64_t iterations) {
    return mx_trace_node(t, &op_sinkhorn, &x, 1, &(MxSinkhornAttr){iterations});
}

static bool sinkhorn_infer(MxInfer *infer) {
    MxShape x = infer->in[0].shape;
    infer->out[0] = infer->in[0];
    if (!ops_is(infer, 0, MX_F32, -1)) return false;
    if (x.rank < 2 || x.dim[x.rank - 1] != x.dim[x.rank - 2])
        return mx_infer_fail(infer, "x must be square matrices");
    return ((const MxSinkhornAttr *)infer->attr)->iterations >= 1 ||
           mx_infer_fail(infer, "wants at least one iteration");
}

static void sinkhorn_vjp(const MxVjp *v) {
    MxValue in[] = {v->in[0], v->dy[0]};
    v->dx[0] = mx_trace_node(v->t, &op_sinkhorn_grad, in, 2, v->attr);
}

static void sinkhorn_cut(MxFactors *f) {
    cut_matrices(f, f->in[0].shape.rank - 2);
}

static void sinkhorn_print(MxText *text, const void *attr) {
    mx_text_add(text, "%lld", (long long)((const MxSinkhornAttr *)attr)->iterations);
}

const MxOp op_sinkhorn = {
    .name = "sinkhorn",
    .arity = 1,
    .attr_bytes = sizeof(MxSinkhornAttr),
    .infer = sinkhorn_infer,
    .vjp = sinkhorn_vjp,
    .partition = sinkhorn_cut,
    .print = sinkhorn_print,
    .doc = "matrices whose rows and columns sum to 1",
};

static bool sinkhorn_grad_infer(MxInfer *infer) {
    return sinkhorn_infer(infer) && ops_same_type(infer, 0, 1);
}

const MxOp op_sinkhorn_grad = {
    .name = "sinkhorn_grad",
    .arity = 2,
    .attr_bytes = sizeof(MxSinkhornAttr),
    .infer = sinkhorn_grad_infer,
    .partition = sinkhorn_cut,
    .print = sinkhorn_print,
    .doc = "dx from x and dy",
};

/* ---- sums of permutations */

MxValue mx_permutations(MxTrace *t, MxValue x, int64_t n) {
    return mx_trace_node(t, &op_permutations, &x, 1, &(MxPermutationsAttr){.n = n});
}

bool mx_next_permutation(int64_t n, uint8_t *p) {
    int64_t i = n - 1, j = n - 1;
    while (i > 0 && p[i - 1] > p[i]) i--;
    if (i <= 0) return false;
    while (p[j] < p[i - 1]) j--;
    uint8_t kept = p[j];
    p[j] = p[i - 1];
    p[i - 1] = kept;
    for (j = n - 1; i < j; i++, j--) {
        kept = p[i];
        p[i] = p[j];
        p[j] = kept;
    }
    return true;
}

static int64_t factorial(int64_t n) {
    int64_t product = 1;
    for (int64_t i = 2; i <= n; i++) product *= i;
    return product;
}

/* The dims of a side: of weights one, of matrices two. */
static int dims_of(bool is_matrix) {
    return is_matrix ? 2 : 1;
}

static bool permutations_infer(MxInfer *infer) {
    const MxPermutationsAttr *attr = infer->attr;
    MxShape shape = infer->in[0].shape;
    int lead = shape.rank - dims_of(attr->is_back);
    if (!ops_is(infer, 0, MX_F32, -1)) return false;
    if (attr->n < 1 || attr->n > MX_MOST_PERMUTED)
        return mx_infer_fail(infer, "permutations of %lld, wants 1 to %d", (long long)attr->n,
                             MX_MOST_PERMUTED);
    int64_t each = attr->is_back ? attr->n : factorial(attr->n);
    bool fits = lead >= 0;
    for (int d = lead; fits && d < shape.rank; d++) fits = shape.dim[d] == each;
    if (!fits) return mx_infer_fail(infer, "x must be of permutations of %lld", (long long)attr->n);
    shape.rank = lead + dims_of(!attr->is_back);
    for (int d = lead; d < shape.rank; d++)
        shape.dim[d] = attr->is_back ? factorial(attr->n) : attr->n;
    infer->out[0] = (MxType){MX_F32, shape};
    return true;
}

static void permutations_vjp(const MxVjp *v) {
    MxPermutationsAttr attr = *(const MxPermutationsAttr *)v->attr;
    attr.is_back = !attr.is_back;
    v->dx[0] = mx_trace_node(v->t, &op_permutations, v->dy, 1, &attr);
}

static void permutations_cut(MxFactors *f) {
    cut_matrices(f, f->in[0].shape.rank - dims_of(((const MxPermutationsAttr *)f->attr)->is_back));
    f->linear = 1;
}

static void permutations_print(MxText *text, const void *attr) {
    const MxPermutationsAttr *a = attr;
    mx_text_add(text, "of %lld%s", (long long)a->n, a->is_back ? " back" : "");
}

const MxOp op_permutations = {
    .name = "permutations",
    .arity = 1,
    .attr_bytes = sizeof(MxPermutationsAttr),
    .infer = permutations_infer,
    .vjp = permutations_vjp,
    .partition = permutations_cut,
    .print = permutations_print,
    .doc = "the sum of all permutation matrices times their weights",
};
