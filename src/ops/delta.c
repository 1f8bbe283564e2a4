/* delta.c — the gated delta rule, a state that each token updates and reads, and related ops: a
 * causal convolution of each channel, and the decay of the state. */
#include <mx/ops.h>

#include "internal.h"

/* ---- convolution */

void ops_print_carries(MxText *text, const void *attr) {
    const MxDeltaAttr *a = attr;
    mx_text_add(text, "%s", a->carries ? "carries" : "by segment");
    if (a->apart > 1) mx_text_add(text, " %lld apart", (long long)a->apart);
}

MxValue mx_conv(MxTrace *t, MxValue x, MxValue w, MxValue segments, MxDeltaAttr attr) {
    return mx_trace_node(t, &op_conv, (MxValue[]){x, w, segments}, 3, &attr);
}

static bool check_conv(MxInfer *infer) {
    MxShape x = infer->in[0].shape, w = infer->in[1].shape, s = infer->in[2].shape;
    if (!ops_is_real(infer, 0) || !ops_is(infer, 1, MX_F32, 2) || !ops_is(infer, 2, MX_I32, 2))
        return false;
    if (x.rank != 3 || w.dim[1] != x.dim[2] || w.dim[0] < 1)
        return mx_infer_fail(infer, "x must be [B, T, D] and w [W, D]");
    if (((const MxDeltaAttr *)infer->attr)->apart < 0)
        return mx_infer_fail(infer, "taps must be apart by 0 or more");
    if (s.dim[0] == x.dim[0] && s.dim[1] == x.dim[1]) return true;
    return mx_infer_fail(infer, "segments must be [B, T]");
}

static bool conv_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    return check_conv(infer);
}

static void conv_vjp(const MxVjp *v) {
    MxValue in[] = {v->in[0], v->in[1], v->in[2], v->dy[0]};
    MxValue dx = mx_trace_node(v->t, &op_conv_grad, in, 4, v->attr);
    v->dx[0] = dx;
    v->dx[1] = dx < 0 ? MX_NONE : dx + 1;
}

/* Rows and channels are cut; w's gradient is a sum over the rows. */
static void cut_conv(MxFactors *f) {
    int row = ops_new_factor(f), channel = ops_new_factor(f);
    f->in_dim[0][0] = f->in_dim[2][0] = f->out_dim[0][0] = row;
    f->in_dim[0][2] = f->in_dim[1][1] = f->out_dim[0][2] = channel;
    if (f->n_in < 4) return;
    f->in_dim[3][0] = row;
    f->in_dim[3][2] = f->out_dim[1][1] = channel;
}

static double conv_flops(const MxType *in, const MxType *out, const void *attr) {
    (void)out, (void)attr;
    return 2.0 * (double)mx_shape_count(in[0].shape) * (double)in[1].shape.dim[0];
}

const MxOp op_conv = {
    .name = "conv",
    .arity = 3,
    .attr_bytes = sizeof(MxDeltaAttr),
    .infer = conv_infer,
    .vjp = conv_vjp,
    .partition = cut_conv,
    .flops = conv_flops,
    .print = ops_print_carries,
    .doc = "y[t, d] = sum_j w[j, d] x[t - (W - 1 - j) A, d] within a segment",
};

static bool conv_grad_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    infer->out[1] = infer->in[1];
    infer->n_out = 2;
    return check_conv(infer) && ops_same_type(infer, 0, 3);
}

static double conv_grad_flops(const MxType *in, const MxType *out, const void *attr) {
    return 2 * conv_flops(in, out, attr);
}

const MxOp op_conv_grad = {
    .name = "conv_grad",
    .arity = 4,
    .attr_bytes = sizeof(MxDeltaAttr),
    .infer = conv_grad_infer,
    .partition = cut_conv,
    .flops = conv_grad_flops,
    .print = ops_print_carries,
    .doc = "dx, dw (f32) from x, w, segments, dy",
};

/* ---- decay */

MxValue mx_decay(MxTrace *t, MxValue x, MxValue rate) {
    return mx_trace_node(t, &op_decay, (MxValue[]){x, rate}, 2, NULL);
}

static bool decay_infer(MxInfer *infer) {
    MxShape x = infer->in[0].shape;
    infer->out[0] = infer->in[0];
    if (!ops_is(infer, 0, MX_F32, -1) || !ops_is(infer, 1, MX_F32, 1)) return false;
    return (x.rank && x.dim[x.rank - 1] == infer->in[1].shape.dim[0]) ||
           mx_infer_fail(infer, "the rate must have the last dim of x");
}

static void decay_vjp(const MxVjp *v) {
    int lead = mx_trace_type(v->t, v->in[0]).shape.rank - 1;
    v->dx[0] =
        mx_trace_node(v->t, &op_decay_grad, (MxValue[]){v->in[0], v->in[1], v->dy[0]}, 3, NULL);
    if (v->needs[1])
        v->dx[1] = mx_sum_lead(v->t, mx_glu(v->t, v->out[0], v->dy[0], MX_LINEAR), lead);
}

static void decay_cut(MxFactors *f) {
    int last = f->out[0].shape.rank - 1;
    ops_cut_alike(f);
    f->in_dim[1][0] = f->out_dim[0][last];
}

const MxOp op_decay = {
    .name = "decay",
    .arity = 2,
    .infer = decay_infer,
    .vjp = decay_vjp,
    .partition = decay_cut,
    .doc = "-exp(rate) log(1 + exp(x))",
};

static bool decay_grad_infer(MxInfer *infer) {
    return decay_infer(infer) && ops_same_type(infer, 0, 2);
}

const MxOp op_decay_grad = {
    .name = "decay_grad",
    .arity = 3,
    .infer = decay_grad_infer,
    .partition = decay_cut,
    .doc = "dx from x, rate, dy",
};

/* ---- the rule */

enum { Q, K, V, DECAY, BETA, SEGMENTS, DO, DELTA_INPUTS = DO };

MxValue mx_delta(MxTrace *t, const MxValue qkv[3], const MxValue decay_beta[2], MxValue segments,
                 MxDeltaAttr attr) {
    const MxValue in[] = {qkv[0], qkv[1], qkv[2], decay_beta[0], decay_beta[1], segments};
    return mx_trace_node(t, &op_delta, in, DELTA_INPUTS, &attr);
}

static bool is_of_heads(const MxInfer *infer, int i) {
    MxShape v = infer->in[V].shape, x = infer->in[i].shape;
    return !memcmp(v.dim, x.dim, 3 * sizeof *v.dim);
}

static bool check_delta(MxInfer *infer) {
    MxShape q = infer->in[Q].shape, v = infer->in[V].shape, s = infer->in[SEGMENTS].shape;
    if (!ops_is_real(infer, Q) || !ops_same_type(infer, Q, K) || !ops_is(infer, DECAY, MX_F32, 3) ||
        !ops_is(infer, BETA, MX_F32, 3) || !ops_is(infer, SEGMENTS, MX_I32, 2))
        return false;
    if (q.rank != 4 || v.rank != 4 || infer->in[V].dtype != infer->in[Q].dtype)
        return mx_infer_fail(infer, "q, k and v must be [B, T, heads, width] of one dtype");
    if (q.dim[0] != v.dim[0] || q.dim[1] != v.dim[1] || q.dim[2] < 1 || v.dim[2] % q.dim[2])
        return mx_infer_fail(infer, "v must have a whole number of heads for each of q's");
    if (!is_of_heads(infer, DECAY) || !is_of_heads(infer, BETA))
        return mx_infer_fail(infer, "decay and beta must be [B, T, heads of v]");
    if (s.dim[0] == q.dim[0] && s.dim[1] == q.dim[1]) return true;
    return mx_infer_fail(infer, "segments must be [B, T]");
}

static bool delta_infer(MxInfer *infer) {
    infer->out[0] = infer->in[V];
    return check_delta(infer);
}

static void delta_vjp(const MxVjp *v) {
    MxValue in[DELTA_INPUTS + 1];
    memcpy(in, v->in, DELTA_INPUTS * sizeof *in);
    in[DO] = v->dy[0];
    MxValue d = mx_trace_node(v->t, &op_delta_grad, in, DELTA_INPUTS + 1, v->attr);
    for (int i = 0; i < SEGMENTS; i++) v->dx[i] = d < 0 ? MX_NONE : d + i;
}

/* Rows, and heads of keys with those of values that read them. */
static void cut_delta(MxFactors *f) {
    int row = ops_new_factor(f), head = ops_new_factor(f);
    for (int i = 0; i < f->n_in; i++) {
        f->in_dim[i][0] = row;
        if (i != SEGMENTS) f->in_dim[i][2] = head;
    }
    for (int i = 0; i < f->n_out; i++) {
        f->out_dim[i][0] = row;
        f->out_dim[i][2] = head;
    }
}

/* Of a token: three products with the memory, and those with about half a chunk of tokens. */
static double delta_flops(const MxType *in, const MxType *out, const void *attr) {
    (void)out, (void)attr;
    double H = (double)in[Q].shape.dim[3], W = (double)in[V].shape.dim[3];
    double tokens = (double)mx_shape_count(in[BETA].shape), half = MX_DELTA_CHUNK / 2.0;
    return 2 * tokens * (3 * H * W + half * (2 * H + 2 * W));
}

const MxOp op_delta = {
    .name = "delta",
    .arity = DELTA_INPUTS,
    .flags = MX_OP_IS_KEPT,
    .attr_bytes = sizeof(MxDeltaAttr),
    .infer = delta_infer,
    .vjp = delta_vjp,
    .partition = cut_delta,
    .flops = delta_flops,
    .print = ops_print_carries,
    .doc = "the gated delta rule: S = exp(decay) S + k (beta (v - S k)), o = S q",
};

static bool delta_grad_infer(MxInfer *infer) {
    for (int i = 0; i < SEGMENTS; i++) infer->out[i] = infer->in[i];
    infer->n_out = SEGMENTS;
    return check_delta(infer) && ops_same_type(infer, V, DO);
}

static double delta_grad_flops(const MxType *in, const MxType *out, const void *attr) {
    return 3 * delta_flops(in, out, attr);
}

const MxOp op_delta_grad = {
    .name = "delta_grad",
    .arity = DELTA_INPUTS + 1,
    .attr_bytes = sizeof(MxDeltaAttr),
    .infer = delta_grad_infer,
    .partition = cut_delta,
    .flops = delta_grad_flops,
    .print = ops_print_carries,
    .doc = "dq, dk, dv, ddecay, dbeta from q, k, v, decay, beta, segments, do",
};
