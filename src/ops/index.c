/* index.c — the keys that a query of sparse attention reads, chosen by the scores of a separate
 * indexer; and the loss that trains the indexer: the distance of its scores from those of
 * attention. */
#include <mx/ops.h>

#include "internal.h"

enum { INDEX_Q, INDEX_K, INDEX_W, SEGMENTS, Q, K, CHOSEN, WITH_CHOSEN };

int64_t ops_words_of(int64_t keys) {
    return (keys + 31) / 32;
}

bool ops_is_chosen(const MxInfer *infer, int i, int queries, int64_t keys) {
    MxShape q = infer->in[queries].shape;
    return infer->in[i].dtype == MX_I32 &&
           mx_shape_equal(infer->in[i].shape, MX_SHAPE(q.dim[0], q.dim[1], ops_words_of(keys)));
}

/* Queries from first_query on, or all, of the sequences of tokens [B, T, ..]. */
static bool fits(MxShape q, MxShape tokens, bool is_part, int64_t first_query) {
    bool same_time = is_part ? first_query + q.dim[1] <= tokens.dim[1] : q.dim[1] == tokens.dim[1];
    return q.dim[0] == tokens.dim[0] && same_time;
}

/* Keys are tokens, or windows of `ratio` tokens if that is above 0. */
static bool check_index(MxInfer *infer, bool is_part, int64_t first_query, int64_t ratio) {
    MxShape q = infer->in[INDEX_Q].shape, k = infer->in[INDEX_K].shape;
    MxShape w = infer->in[INDEX_W].shape, s = infer->in[SEGMENTS].shape;
    if (!ops_is_real(infer, INDEX_Q) || !ops_is(infer, INDEX_K, infer->in[INDEX_Q].dtype, 3) ||
        !ops_is(infer, INDEX_W, MX_F32, 3) || !ops_is(infer, SEGMENTS, MX_I32, 2))
        return false;
    if (ratio > 0 && (k.dim[1] < 1 || s.dim[1] / ratio != k.dim[1]))
        return mx_infer_fail(infer, "k must have a row for each window of %lld", (long long)ratio);
    if (s.dim[0] != k.dim[0] || (ratio <= 0 && s.dim[1] != k.dim[1]))
        return mx_infer_fail(infer, "segments must be [B, T]");
    if (q.rank != 4 || !fits(q, s, is_part, first_query) || q.dim[3] != k.dim[2])
        return mx_infer_fail(infer, "an index must have q [B, T, N, H] and k [B, T, H]");
    return !memcmp(w.dim, q.dim, 3 * sizeof *q.dim) ||
           mx_infer_fail(infer, "w must be float32 [B, T, N]");
}

/* Sequences and queries can be cut; keys and heads are there whole. */
enum { CUT_B, CUT_T, CUT_FACTORS };

static void cut_index(MxFactors *f) {
    for (int i = 0; i < CUT_FACTORS; i++) ops_new_factor(f);
    for (int i = 0; i <= SEGMENTS; i++) f->in_dim[i][0] = CUT_B;
    f->in_dim[INDEX_Q][1] = f->in_dim[INDEX_W][1] = CUT_T;
}

static double pairs(const MxType *in) {
    MxShape q = in[INDEX_Q].shape, k = in[INDEX_K].shape;
    return (double)(q.dim[0] * q.dim[1]) * (double)k.dim[1] / 2;
}

/* Of scores. */
static double index_flops(const MxType *in, const MxType *out, const void *attr) {
    MxShape q = in[INDEX_Q].shape;
    (void)out, (void)attr;
    return 2 * pairs(in) * (double)(q.dim[2] * (q.dim[3] + 1));
}

/* ---- the choice */

MxValue mx_index(MxTrace *t, const MxValue qkw[3], MxValue segments, MxIndexAttr attr) {
    MxValue in[] = {qkw[0], qkw[1], qkw[2], segments};
    return mx_trace_node(t, &op_index, in, MX_COUNT(in), &attr);
}

static bool index_infer(MxInfer *infer) {
    const MxIndexAttr *a = infer->attr;
    MxShape q = infer->in[INDEX_Q].shape, k = infer->in[INDEX_K].shape;
    if (!check_index(infer, a->is_part, a->first_query, a->ratio)) return false;
    if (a->n_best < 1) return mx_infer_fail(infer, "a query must see at least one key");
    infer->out[0] = (MxType){MX_I32, MX_SHAPE(q.dim[0], q.dim[1], ops_words_of(k.dim[1]))};
    return true;
}

static void index_cut(MxFactors *f) {
    cut_index(f);
    f->out_dim[0][0] = CUT_B;
    f->out_dim[0][1] = CUT_T;
}

static void index_localize(const MxShare *share, void *attr) {
    MxIndexAttr *a = attr;
    a->is_part = share->is_cut[CUT_T];
    a->first_query = share->start[CUT_T];
}

static void index_print(MxText *text, const void *attr) {
    const MxIndexAttr *a = attr;
    mx_text_add(text, "%lld", (long long)a->n_best);
    if (a->keeps_ties) mx_text_add(text, " and ties");
    if (a->ratio > 0) mx_text_add(text, " windows of %lld", (long long)a->ratio);
    if (a->is_part) mx_text_add(text, " from query %lld", (long long)a->first_query);
}

const MxOp op_index = {
    .name = "index",
    .arity = SEGMENTS + 1,
    .flags = MX_OP_CONSTANT | MX_OP_IS_KEPT,
    .attr_bytes = sizeof(MxIndexAttr),
    .infer = index_infer,
    .partition = index_cut,
    .localize = index_localize,
    .flops = index_flops,
    .print = index_print,
    .doc = "the keys with the largest scores of an index, a bit each",
};

/* ---- the same over a cache */

enum { POSITIONS = SEGMENTS, SEQUENCES };

MxValue mx_cache_index(MxTrace *t, const MxValue qkw[3], MxCachePlace place, MxIndexAttr attr) {
    MxValue in[] = {qkw[0], qkw[1], qkw[2], place.positions, place.sequences};
    return mx_trace_node(t, &op_cache_index, in, MX_COUNT(in), &attr);
}

static bool cache_index_infer(MxInfer *infer) {
    MxShape q = infer->in[INDEX_Q].shape, k = infer->in[INDEX_K].shape;
    MxShape w = infer->in[INDEX_W].shape, at = infer->in[POSITIONS].shape;
    if (!ops_is_real(infer, INDEX_Q) || !ops_is(infer, INDEX_K, infer->in[INDEX_Q].dtype, 4) ||
        !ops_is(infer, INDEX_W, MX_F32, 3) || !ops_is(infer, POSITIONS, MX_I32, 2) ||
        !ops_is(infer, SEQUENCES, MX_I32, 1))
        return false;
    if (q.rank != 4 || k.dim[1] < 1 || k.dim[2] != 1 || q.dim[3] != k.dim[3])
        return mx_infer_fail(infer, "q must be [B, T, N, H] and a cache of keys [S, C, 1, H]");
    if (memcmp(w.dim, q.dim, 3 * sizeof *q.dim))
        return mx_infer_fail(infer, "w must be float32 [B, T, N]");
    if (at.dim[0] != q.dim[0] || at.dim[1] != q.dim[1] ||
        infer->in[SEQUENCES].shape.dim[0] != q.dim[0])
        return mx_infer_fail(infer, "positions must be [B, T], sequences [B]");
    if (((const MxIndexAttr *)infer->attr)->n_best < 1)
        return mx_infer_fail(infer, "a query must see at least one key");
    if (((const MxIndexAttr *)infer->attr)->ratio)
        return mx_infer_fail(infer, "keys in a cache have positions of their own and no ratio");
    infer->out[0] = (MxType){MX_I32, MX_SHAPE(q.dim[0], q.dim[1], ops_words_of(k.dim[1]))};
    return true;
}

static void cache_index_cut(MxFactors *f) {
    int t = ops_new_factor(f);
    f->in_dim[INDEX_Q][1] = f->in_dim[INDEX_W][1] = f->in_dim[POSITIONS][1] = t;
    f->out_dim[0][1] = t;
}

const MxOp op_cache_index = {
    .name = "cache_index",
    .arity = SEQUENCES + 1,
    .flags = MX_OP_CONSTANT,
    .attr_bytes = sizeof(MxIndexAttr),
    .infer = cache_index_infer,
    .partition = cache_index_cut,
    .flops = index_flops,
    .print = index_print,
    .doc = "the positions in a cache with the largest scores of an index, a bit each",
};

/* ---- its loss. The gradient's inputs are the same and the cotangent. */

MxValue mx_index_loss(MxTrace *t, const MxValue qkw[3], MxValue segments, const MxValue qk[2],
                      MxValue chosen, MxIndexLossAttr attr) {
    MxValue in[] = {qkw[0], qkw[1], qkw[2], segments, qk[0], qk[1], chosen};
    return mx_trace_node(t, &op_index_loss, in, chosen == MX_NONE ? CHOSEN : WITH_CHOSEN, &attr);
}

/* `more` inputs follow. */
static bool check_loss(MxInfer *infer, int more) {
    const MxIndexLossAttr *a = infer->attr;
    if (!check_index(infer, a->is_part, a->first_query, 0)) return false;
    MxShape of_index = infer->in[INDEX_Q].shape, q = infer->in[Q].shape, k = infer->in[K].shape;
    MxDtype dtype = infer->in[INDEX_Q].dtype;
    if (!ops_is(infer, Q, dtype, 4) || !ops_is(infer, K, dtype, 4)) return false;
    bool is_alike = q.dim[0] == of_index.dim[0] && q.dim[1] == of_index.dim[1] &&
                    k.dim[1] == infer->in[INDEX_K].shape.dim[1];
    if (!is_alike || !fits(q, k, a->is_part, a->first_query) || q.dim[3] != k.dim[3] ||
        k.dim[2] < 1 || q.dim[2] % k.dim[2])
        return mx_infer_fail(infer, "q and k must be those of attention over the same tokens");
    return infer->n_in == CHOSEN + more ||
           ops_is_chosen(infer, CHOSEN, INDEX_Q, infer->in[INDEX_K].shape.dim[1]) ||
           mx_infer_fail(infer, "chosen must be int32 [B, T, keys / 32]");
}

static bool index_loss_infer(MxInfer *infer) {
    infer->out[0] = (MxType){MX_F32, MX_SCALAR};
    return check_loss(infer, 0);
}

static void index_loss_vjp(const MxVjp *v) {
    MxValue in[WITH_CHOSEN + 1];
    memcpy(in, v->in, (size_t)v->n_in * sizeof *in);
    in[v->n_in] = v->dy[0];
    MxValue dq = mx_trace_node(v->t, &op_index_loss_grad, in, v->n_in + 1, v->attr);
    for (int i = 0; i < v->n_in; i++) v->dx[i] = i > INDEX_W || dq < 0 ? MX_NONE : dq + i;
}

/* `more` inputs follow. */
static void cut_loss(MxFactors *f, int more) {
    cut_index(f);
    f->in_dim[Q][0] = f->in_dim[K][0] = CUT_B;
    f->in_dim[Q][1] = CUT_T;
    if (f->n_in == CHOSEN + more) return;
    f->in_dim[CHOSEN][0] = CUT_B;
    f->in_dim[CHOSEN][1] = CUT_T;
}

static void index_loss_cut(MxFactors *f) {
    cut_loss(f, 0);
}

static void index_loss_localize(const MxShare *share, void *attr) {
    MxIndexLossAttr *a = attr;
    a->is_part = share->is_cut[CUT_T];
    a->first_query = share->start[CUT_T];
}

static double index_loss_flops(const MxType *in, const MxType *out, const void *attr) {
    MxShape q = in[Q].shape;
    return index_flops(in, out, attr) + 2 * pairs(in) * (double)(q.dim[2] * q.dim[3]);
}

/* Scores of the index are made three times, and are twice multiplied again. */
static double index_loss_grad_flops(const MxType *in, const MxType *out, const void *attr) {
    return index_loss_flops(in, out, attr) + 4 * index_flops(in, out, attr);
}

static void index_loss_print(MxText *text, const void *attr) {
    const MxIndexLossAttr *a = attr;
    mx_text_add(text, "%.9g scale %.9g", a->factor, a->scale);
    if (a->is_part) mx_text_add(text, " from query %lld", (long long)a->first_query);
}

const MxOp op_index_loss = {
    .name = "index_loss",
    .arity = CHOSEN,
    .optional = 1,
    .attr_bytes = sizeof(MxIndexLossAttr),
    .infer = index_loss_infer,
    .vjp = index_loss_vjp,
    .partition = index_loss_cut,
    .localize = index_loss_localize,
    .flops = index_loss_flops,
    .print = index_loss_print,
    .doc = "how far the scores of an index are from those of attention",
};

static bool index_loss_grad_infer(MxInfer *infer) {
    int dy = infer->n_in - 1;
    if (!check_loss(infer, 1) || !ops_is(infer, dy, MX_F32, 0)) return false;
    infer->n_out = INDEX_W + 1;
    for (int i = 0; i <= INDEX_W; i++) infer->out[i] = infer->in[i];
    return true;
}

static void index_loss_grad_cut(MxFactors *f) {
    cut_loss(f, 1);
    for (int i = 0; i <= INDEX_W; i++) memcpy(f->out_dim[i], f->in_dim[i], sizeof f->in_dim[i]);
}

const MxOp op_index_loss_grad = {
    .name = "index_loss_grad",
    .arity = CHOSEN + 1,
    .optional = 1,
    .attr_bytes = sizeof(MxIndexLossAttr),
    .infer = index_loss_grad_infer,
    .partition = index_loss_grad_cut,
    .localize = index_loss_localize,
    .flops = index_loss_grad_flops,
    .print = index_loss_print,
    .doc = "dq, dk and dw of an index from its loss's inputs and dy",
};
