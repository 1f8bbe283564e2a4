/* recall.c — rows of tables that n-grams of tokens name, and how well what they hold matches the
 * stream. */
#include <mx/ops.h>

#include "internal.h"

/* ---- n-grams */

static int64_t rows_of(const void *attr) {
    const MxNgrams *of = ((const MxNgramAttr *)attr)->of;
    return (int64_t)(of->longest - 1) * of->n_heads;
}

static void ngrams_print(MxText *text, const void *attr) {
    const MxNgrams *of = ((const MxNgramAttr *)attr)->of;
    mx_text_add(text, "of 2 to %d tokens, %d heads", of->longest, of->n_heads);
}

MxValue mx_ngrams(MxTrace *t, MxValue tokens, MxNgramAttr attr) {
    return mx_trace_node(t, &op_ngrams, &tokens, 1, &attr);
}

static bool ngrams_infer(MxInfer *infer) {
    MxShape tokens = infer->in[0].shape;
    if (!ops_is(infer, 0, MX_I32, 2)) return false;
    infer->out[0] = (MxType){MX_I32, MX_SHAPE(tokens.dim[0], tokens.dim[1], rows_of(infer->attr))};
    return true;
}

/* Rows of the batch; a token's n-grams are of those before it. */
static void ngrams_cut(MxFactors *f) {
    ops_cut_lead(f, 1, 1);
    f->out_dim[0][0] = f->in_dim[0][0];
}

const MxOp op_ngrams = {
    .name = "ngrams",
    .arity = 1,
    .flags = MX_OP_CONSTANT,
    .attr_bytes = sizeof(MxNgramAttr),
    .infer = ngrams_infer,
    .partition = ngrams_cut,
    .print = ngrams_print,
    .doc = "ids of rows that n-grams of tokens name",
};

MxValue mx_cache_ngrams(MxTrace *t, MxValue cache, MxCachePlace place, MxNgramAttr attr) {
    const MxValue in[] = {cache, place.positions, place.sequences};
    return mx_trace_node(t, &op_cache_ngrams, in, MX_COUNT(in), &attr);
}

static bool cache_ngrams_infer(MxInfer *infer) {
    MxShape cache = infer->in[0].shape, at = infer->in[1].shape, of = infer->in[2].shape;
    if (!ops_is(infer, 0, MX_I32, 2) || !ops_is(infer, 1, MX_I32, 2) ||
        !ops_is(infer, 2, MX_I32, 1))
        return false;
    if (cache.dim[1] < 1) return mx_infer_fail(infer, "a cache must be [S, C]");
    if (of.dim[0] != at.dim[0])
        return mx_infer_fail(infer, "positions must be [B, T], sequences [B]");
    infer->out[0] = (MxType){MX_I32, MX_SHAPE(at.dim[0], at.dim[1], rows_of(infer->attr))};
    return true;
}

const MxOp op_cache_ngrams = {
    .name = "cache_ngrams",
    .arity = 3,
    .flags = MX_OP_CONSTANT,
    .attr_bytes = sizeof(MxNgramAttr),
    .infer = cache_ngrams_infer,
    .print = ngrams_print,
    .doc = "the same of tokens in a cache",
};

/* ---- matching */

MxValue mx_match(MxTrace *t, MxValue q, MxValue k, MxMatchAttr attr) {
    return mx_trace_node(t, &op_match, (MxValue[]){q, k}, 2, &attr);
}

static bool check_match(MxInfer *infer) {
    return ops_is_real(infer, 0) && ops_same_type(infer, 0, 1) &&
           (infer->in[0].shape.rank || mx_infer_fail(infer, "q must have a last dim"));
}

static MxType rows_type(MxType x) {
    x.shape.rank--;
    x.shape.dim[x.shape.rank] = 0;
    x.dtype = MX_F32;
    return x;
}

static bool match_infer(MxInfer *infer) {
    if (!check_match(infer)) return false;
    infer->out[0] = rows_type(infer->in[0]);
    return true;
}

static void match_vjp(const MxVjp *v) {
    MxValue in[] = {v->in[0], v->in[1], v->dy[0]};
    MxValue dq = mx_trace_node(v->t, &op_match_grad, in, MX_COUNT(in), v->attr);
    v->dx[0] = dq;
    v->dx[1] = dq < 0 ? MX_NONE : dq + 1;
}

static void match_print(MxText *text, const void *attr) {
    mx_text_add(text, "scale %g", ((const MxMatchAttr *)attr)->scale);
}

static void match_cut(MxFactors *f) {
    int rows = f->in[0].shape.rank - 1;
    ops_cut_lead(f, rows, (1u << f->n_in) - 1);
    for (int i = 0; i < f->n_out; i++)
        for (int d = 0; d < rows; d++) f->out_dim[i][d] = f->in_dim[0][d];
}

const MxOp op_match = {
    .name = "match",
    .arity = 2,
    .attr_bytes = sizeof(MxMatchAttr),
    .infer = match_infer,
    .vjp = match_vjp,
    .partition = match_cut,
    .print = match_print,
    .doc = "sigmoid of the signed root of scale q · k, over the last dim",
};

static bool match_grad_infer(MxInfer *infer) {
    if (!check_match(infer)) return false;
    MxType rows = rows_type(infer->in[0]);
    infer->n_out = 2;
    infer->out[0] = infer->out[1] = infer->in[0];
    return (infer->in[2].dtype == MX_F32 && mx_shape_equal(infer->in[2].shape, rows.shape)) ||
           mx_infer_fail(infer, "dy must be float32 of q's leading dims");
}

const MxOp op_match_grad = {
    .name = "match_grad",
    .arity = 3,
    .attr_bytes = sizeof(MxMatchAttr),
    .infer = match_grad_infer,
    .partition = match_cut,
    .print = match_print,
    .doc = "dq, dk from q, k, dy",
};
