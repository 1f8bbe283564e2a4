/* pooled.c — softmax attention over tokens and, behind them, rows that stand for windows of tokens;
 * and its gradient. */
#include <mx/ops.h>

#include "internal.h"

/* Inputs; those of the gradient go on with OUTPUT. */
enum { Q, K, V, SEGMENTS, SINKS, SEEN, INPUTS };
enum { OUTPUT = INPUTS, LOG_SUMS, D_OUTPUT, ALL_INPUTS };

MxValue mx_pooled_attention(MxTrace *t, const MxValue qkv[3], MxValue segments, MxValue sinks,
                            MxValue seen, MxAttentionAttr attr) {
    MxValue in[INPUTS] = {qkv[0], qkv[1], qkv[2], segments, sinks, seen};
    return mx_trace_node(t, &op_pooled_attention, in, INPUTS, &attr);
}

static int64_t rows_behind(const MxInfer *infer) {
    return infer->in[K].shape.dim[1] - infer->in[SEGMENTS].shape.dim[1];
}

static bool check_heads(MxInfer *infer) {
    MxShape q = infer->in[Q].shape, k = infer->in[K].shape, v = infer->in[V].shape;
    MxDtype dtype = infer->in[Q].dtype;
    if (!ops_is_real(infer, Q)) return false;
    if (q.rank != 4 || k.rank != 4 || v.rank != 4 || infer->in[K].dtype != dtype ||
        infer->in[V].dtype != dtype)
        return mx_infer_fail(infer, "q, k and v must be [B, T, heads, H] of one dtype");
    if (q.dim[0] != k.dim[0] || q.dim[3] != k.dim[3] || k.dim[2] < 1 || q.dim[2] % k.dim[2])
        return mx_infer_fail(infer, "k must have q's batch and width, and heads that divide q's");
    return !memcmp(k.dim, v.dim, 3 * sizeof *k.dim) ||
           mx_infer_fail(infer, "v must be k's shape but for its own width");
}

static bool check(MxInfer *infer) {
    const MxAttentionAttr *attr = infer->attr;
    if (!check_heads(infer) || !ops_is(infer, SEGMENTS, MX_I32, 2)) return false;
    MxShape q = infer->in[Q].shape, s = infer->in[SEGMENTS].shape;
    int64_t rows = rows_behind(infer), words = ops_words_of(rows);
    if (s.dim[0] != q.dim[0] || !ops_is_in_time(attr, q.dim[1], s.dim[1]))
        return mx_infer_fail(infer, "segments must be [B, T] of q's tokens");
    if (rows < 1) return mx_infer_fail(infer, "k must have rows behind those of tokens");
    if (!ops_is(infer, SINKS, MX_F32, 1) || infer->in[SINKS].shape.dim[0] != q.dim[2])
        return mx_infer_fail(infer, "sinks must be float32 [N]");
    return (infer->in[SEEN].dtype == MX_I32 &&
            mx_shape_equal(infer->in[SEEN].shape, MX_SHAPE(q.dim[0], q.dim[1], words))) ||
           mx_infer_fail(infer, "seen must be int32 [B, T, rows / 32]");
}

static MxType type_of_out(const MxInfer *infer) {
    MxType type = infer->in[Q];
    type.shape.dim[3] = infer->in[V].shape.dim[3];
    return type;
}

/* A number a row of scores. */
static MxType type_of_scores(const MxInfer *infer) {
    MxShape q = infer->in[Q].shape;
    return (MxType){MX_F32, MX_SHAPE(q.dim[0], q.dim[2], q.dim[1])};
}

static bool pooled_attention_infer(MxInfer *infer) {
    if (!check(infer)) return false;
    infer->n_out = 3;
    infer->out[0] = type_of_out(infer);
    infer->out[1] = infer->out[2] = type_of_scores(infer);
    return true;
}

static void pooled_attention_vjp(const MxVjp *v) {
    MxValue in[ALL_INPUTS];
    memcpy(in, v->in, INPUTS * sizeof *in);
    in[OUTPUT] = v->out[0];
    in[LOG_SUMS] = v->out[1];
    in[D_OUTPUT] = v->dy[0];
    MxValue dq = mx_trace_node(v->t, &op_pooled_attention_grad, in, ALL_INPUTS, v->attr);
    bool has_failed = dq < 0;
    for (int i = 0; i < SEGMENTS; i++) v->dx[i] = has_failed ? MX_NONE : dq + i;
    v->dx[SEGMENTS] = v->dx[SEEN] = MX_NONE;
    v->dx[SINKS] = has_failed ? MX_NONE : dq + SEGMENTS;
}

/* So many products over the width of keys, and over that of values. Of rows half are over. */
static double products(const MxType *in, const MxAttentionAttr *attr, int of_keys, int of_values) {
    MxShape q = in[Q].shape;
    double tokens = (double)in[SEGMENTS].shape.dim[1];
    double rows = (double)in[K].shape.dim[1] - tokens;
    double widths = (double)(of_keys * q.dim[3] + of_values * in[V].shape.dim[3]);
    double seen = ops_keys_seen(tokens, attr) + rows / 2;
    return 2 * (double)(q.dim[0] * q.dim[1] * q.dim[2]) * seen * widths;
}

static double pooled_attention_flops(const MxType *in, const MxType *out, const void *attr) {
    (void)out;
    return products(in, attr, 1, 1);
}

/* Scores are made again. */
static double pooled_attention_grad_flops(const MxType *in, const MxType *out, const void *attr) {
    (void)out;
    return products(in, attr, 3, 2);
}

/* Sequences, heads (of queries together with those of their keys) and queries can be cut. */
enum { CUT_B, CUT_T, CUT_N, CUT_FACTORS };
static const int query_cut[] = {CUT_B, CUT_T, CUT_N}, key_cut[] = {CUT_B, MX_WHOLE, CUT_N};
static const int score_cut[] = {CUT_B, CUT_N, CUT_T};

static void cut_inputs(MxFactors *f) {
    for (int i = 0; i < CUT_FACTORS; i++) ops_new_factor(f);
    memcpy(f->in_dim[Q], query_cut, sizeof query_cut);
    memcpy(f->in_dim[K], key_cut, sizeof key_cut);
    memcpy(f->in_dim[V], key_cut, sizeof key_cut);
    f->in_dim[SEGMENTS][0] = f->in_dim[SEEN][0] = CUT_B;
    f->in_dim[SINKS][0] = CUT_N;
    f->in_dim[SEEN][1] = CUT_T;
}

static void pooled_attention_cut(MxFactors *f) {
    cut_inputs(f);
    memcpy(f->out_dim[0], query_cut, sizeof query_cut);
    memcpy(f->out_dim[1], score_cut, sizeof score_cut);
    memcpy(f->out_dim[2], score_cut, sizeof score_cut);
}

static void pooled_attention_localize(const MxShare *share, void *attr) {
    MxAttentionAttr *a = attr;
    a->is_part = share->is_cut[CUT_T];
    a->first_query = share->start[CUT_T];
}

const MxOp op_pooled_attention = {
    .name = "pooled_attention",
    .arity = INPUTS,
    .flags = MX_OP_IS_KEPT,
    .no_gradient = 1 << 1 | 1 << 2,
    .attr_bytes = sizeof(MxAttentionAttr),
    .infer = pooled_attention_infer,
    .vjp = pooled_attention_vjp,
    .partition = pooled_attention_cut,
    .localize = pooled_attention_localize,
    .flops = pooled_attention_flops,
    .print = ops_print_attention,
    .doc = "attention whose keys go on with rows of windows; log-sums; largest scores",
};

static bool is_type(MxType type, MxType wanted) {
    return type.dtype == wanted.dtype && mx_shape_equal(type.shape, wanted.shape);
}

static bool pooled_attention_grad_infer(MxInfer *infer) {
    if (!check(infer)) return false;
    if (!is_type(infer->in[OUTPUT], type_of_out(infer)) ||
        !is_type(infer->in[D_OUTPUT], type_of_out(infer)))
        return mx_infer_fail(infer, "o and do must be q's type but for the width of v");
    if (!is_type(infer->in[LOG_SUMS], type_of_scores(infer)))
        return mx_infer_fail(infer, "log-sums must be float32 [B, N, T]");
    infer->n_out = SEGMENTS + 1;
    for (int i = 0; i < SEGMENTS; i++) infer->out[i] = infer->in[i];
    infer->out[SEGMENTS] = infer->in[SINKS];
    return true;
}

static void pooled_attention_grad_cut(MxFactors *f) {
    cut_inputs(f);
    memcpy(f->in_dim[OUTPUT], query_cut, sizeof query_cut);
    memcpy(f->in_dim[LOG_SUMS], score_cut, sizeof score_cut);
    memcpy(f->in_dim[D_OUTPUT], query_cut, sizeof query_cut);
    memcpy(f->out_dim[Q], query_cut, sizeof query_cut);
    memcpy(f->out_dim[K], key_cut, sizeof key_cut);
    memcpy(f->out_dim[V], key_cut, sizeof key_cut);
    f->out_dim[SEGMENTS][0] = CUT_N;
}

const MxOp op_pooled_attention_grad = {
    .name = "pooled_attention_grad",
    .arity = ALL_INPUTS,
    .attr_bytes = sizeof(MxAttentionAttr),
    .infer = pooled_attention_grad_infer,
    .partition = pooled_attention_grad_cut,
    .localize = pooled_attention_localize,
    .flops = pooled_attention_grad_flops,
    .print = ops_print_attention,
    .doc = "dq, dk, dv and dsinks from q, k, v, segments, sinks, seen, o, log-sums, do",
};
