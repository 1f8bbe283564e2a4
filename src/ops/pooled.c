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

static bool check(MxInfer *infer) {
    const MxAttentionAttr *attr = infer->attr;
    if (!ops_check_heads(infer)) return false;
    MxShape q = infer->in[Q].shape, k = infer->in[K].shape, s = infer->in[SEGMENTS].shape;
    if (q.dim[0] != k.dim[0] || q.dim[3] != k.dim[3] || k.dim[2] < 1 || q.dim[2] % k.dim[2])
        return mx_infer_fail(infer, "k must have q's batch and width, and heads that divide q's");
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

static bool pooled_attention_infer(MxInfer *infer) {
    if (!check(infer)) return false;
    ops_infer_attention(infer);
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

/* Of rows half are over. */
static double keys_seen(const MxType *in, const MxAttentionAttr *attr) {
    double tokens = (double)in[SEGMENTS].shape.dim[1];
    return ops_keys_seen(tokens, attr) + ((double)in[K].shape.dim[1] - tokens) / 2;
}

static double pooled_attention_flops(const MxType *in, const MxType *out, const void *attr) {
    (void)out;
    return ops_attention_flops(in, keys_seen(in, attr));
}

static double pooled_attention_grad_flops(const MxType *in, const MxType *out, const void *attr) {
    (void)out;
    return ops_attention_grad_flops(in, keys_seen(in, attr));
}

static void cut_others(MxFactors *f) {
    f->in_dim[SINKS][0] = OPS_CUT_N;
    f->in_dim[SEEN][0] = OPS_CUT_B;
    f->in_dim[SEEN][1] = OPS_CUT_T;
}

static void pooled_attention_cut(MxFactors *f) {
    ops_cut_attention(f);
    cut_others(f);
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
    .localize = ops_localize_attention,
    .flops = pooled_attention_flops,
    .print = ops_print_attention,
    .doc = "attention whose keys go on with rows of windows; log-sums; largest scores",
};

static bool pooled_attention_grad_infer(MxInfer *infer) {
    if (!check(infer) || !ops_check_saved(infer)) return false;
    infer->n_out = SEGMENTS + 1;
    for (int i = 0; i < SEGMENTS; i++) infer->out[i] = infer->in[i];
    infer->out[SEGMENTS] = infer->in[SINKS];
    return true;
}

static void pooled_attention_grad_cut(MxFactors *f) {
    ops_cut_attention_grad(f);
    cut_others(f);
    f->out_dim[SEGMENTS][0] = OPS_CUT_N;
}

const MxOp op_pooled_attention_grad = {
    .name = "pooled_attention_grad",
    .arity = ALL_INPUTS,
    .attr_bytes = sizeof(MxAttentionAttr),
    .infer = pooled_attention_grad_infer,
    .partition = pooled_attention_grad_cut,
    .localize = ops_localize_attention,
    .flops = pooled_attention_grad_flops,
    .print = ops_print_attention,
    .doc = "dq, dk, dv and dsinks from q, k, v, segments, sinks, seen, o, log-sums, do",
};
