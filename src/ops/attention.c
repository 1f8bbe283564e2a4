/* attention.c — softmax attention in blocks, and its gradient from the saved output and log-sums.
 */
#include <mx/ops.h>

#include "internal.h"

MxValue mx_attention(MxTrace *t, MxValue q, MxValue k, MxValue v, MxValue segments,
                     MxAttentionAttr attr) {
    return mx_trace_node(t, &op_attention, (MxValue[]){q, k, v, segments}, 4, &attr);
}

static bool check(MxInfer *infer) {
    const MxAttentionAttr *attr = infer->attr;
    MxShape q = infer->in[0].shape, k = infer->in[1].shape, s = infer->in[3].shape;
    if (!ops_is_real(infer, 0) || !ops_same_type(infer, 1, 2) || !ops_is(infer, 3, MX_I32, 2))
        return false;
    if (q.rank != 4 || k.rank != 4 || infer->in[0].dtype != infer->in[1].dtype)
        return mx_infer_fail(infer, "q, k and v must be [B, T, heads, H] of one dtype");
    bool same_time =
        attr->is_part ? attr->first_query + q.dim[1] <= k.dim[1] : q.dim[1] == k.dim[1];
    if (q.dim[0] != k.dim[0] || !same_time || q.dim[3] != k.dim[3] || k.dim[2] < 1 ||
        q.dim[2] % k.dim[2])
        return mx_infer_fail(infer,
                             "k and v must be q's shape but for fewer heads that divide q's");
    if (s.dim[0] != k.dim[0] || s.dim[1] != k.dim[1])
        return mx_infer_fail(infer, "segments must be [B, T]");
    return true;
}

static bool attention_infer(MxInfer *infer) {
    if (!check(infer)) return false;
    MxShape q = infer->in[0].shape;
    infer->n_out = 2;
    infer->out[0] = infer->in[0];
    infer->out[1] = (MxType){MX_F32, MX_SHAPE(q.dim[0], q.dim[2], q.dim[1])};
    return true;
}

static void attention_vjp(const MxVjp *v) {
    MxValue in[] = {v->in[0], v->in[1], v->in[2], v->in[3], v->out[0], v->out[1], v->dy[0]};
    MxValue dq = mx_trace_node(v->t, &op_attention_grad, in, MX_COUNT(in), v->attr);
    for (int i = 0; i < 3; i++) v->dx[i] = dq < 0 ? MX_NONE : dq + i;
    v->dx[3] = MX_NONE;
}

/* Keys that an average query sees, segments aside. */
static double keys_seen(double length, const MxAttentionAttr *attr) {
    double window = (double)attr->window;
    switch (attr->mask) {
    case MX_MASK_FULL:
        return length;
    case MX_MASK_SLIDING:
        return window < length ? window - window * window / (2 * length) : length / 2;
    case MX_MASK_CHUNK:
        return (window < length ? window : length) / 2;
    default:
        return length / 2;
    }
}

static double attention_flops(const MxType *in, const MxType *out, const void *attr) {
    (void)out;
    MxShape q = in[0].shape, k = in[1].shape;
    return 4.0 * (double)mx_shape_count(q) * keys_seen((double)k.dim[1], attr);
}

static double attention_grad_flops(const MxType *in, const MxType *out, const void *attr) {
    enum { PRODUCTS_BACKWARD = 5, PRODUCTS_FORWARD = 2 }; /* scores are made again */
    return attention_flops(in, out, attr) * PRODUCTS_BACKWARD / PRODUCTS_FORWARD;
}

static void attention_print(MxText *text, const void *attr) {
    static const char *const names[] = {"causal", "sliding", "chunk", "full"};
    const MxAttentionAttr *a = attr;
    mx_text_add(text, "%s", names[a->mask]);
    if (a->window) mx_text_add(text, " %lld", (long long)a->window);
    mx_text_add(text, " scale %.9g", a->scale);
    if (a->softcap > 0) mx_text_add(text, " softcap %.9g", a->softcap);
    if (a->is_part) mx_text_add(text, " from query %lld", (long long)a->first_query);
}

/* Sequences, heads (of queries together with those of their keys) and queries can be cut. Keys are
 * there whole: every query may look at all of them. */
enum { B, T, N, CUT_FACTORS };

static void cut_operands(MxFactors *f) {
    for (int i = 0; i < CUT_FACTORS; i++) ops_new_factor(f);
    static const int query[] = {B, T, N}, key[] = {B, MX_WHOLE, N};
    memcpy(f->in_dim[0], query, sizeof query);
    memcpy(f->in_dim[1], key, sizeof key);
    memcpy(f->in_dim[2], key, sizeof key);
    f->in_dim[3][0] = B;
}

static void attention_cut(MxFactors *f) {
    cut_operands(f);
    static const int query[] = {B, T, N}, log_sums[] = {B, N, T};
    memcpy(f->out_dim[0], query, sizeof query);
    memcpy(f->out_dim[1], log_sums, sizeof log_sums);
}

static void attention_localize(const MxShare *share, void *attr) {
    MxAttentionAttr *a = attr;
    a->is_part = share->is_cut[T];
    a->first_query = share->start[T];
}

const MxOp op_attention = {
    .name = "attention",
    .arity = 4,
    .flags = MX_OP_IS_KEPT,
    .no_gradient = 1 << 1,
    .attr_bytes = sizeof(MxAttentionAttr),
    .infer = attention_infer,
    .vjp = attention_vjp,
    .partition = attention_cut,
    .localize = attention_localize,
    .flops = attention_flops,
    .print = attention_print,
    .doc = "softmax(mask(scale q k)) v; log-sums",
};

static bool attention_grad_infer(MxInfer *infer) {
    if (!check(infer) || !ops_same_type(infer, 0, 4) || !ops_same_type(infer, 0, 6)) return false;
    infer->n_out = 3;
    for (int i = 0; i < 3; i++) infer->out[i] = infer->in[i];
    MxShape q = infer->in[0].shape, log_sums = MX_SHAPE(q.dim[0], q.dim[2], q.dim[1]);
    if (infer->in[5].dtype == MX_F32 && mx_shape_equal(infer->in[5].shape, log_sums)) return true;
    return mx_infer_fail(infer, "log-sums must be float32 [B, N, T]");
}

static void attention_grad_cut(MxFactors *f) {
    cut_operands(f);
    static const int query[] = {B, T, N}, log_sums[] = {B, N, T};
    memcpy(f->in_dim[4], query, sizeof query);
    memcpy(f->in_dim[5], log_sums, sizeof log_sums);
    memcpy(f->in_dim[6], query, sizeof query);
    memcpy(f->out_dim[0], query, sizeof query);
    memcpy(f->out_dim[1], f->in_dim[1], sizeof query);
    memcpy(f->out_dim[2], f->in_dim[2], sizeof query);
}

const MxOp op_attention_grad = {
    .name = "attention_grad",
    .arity = 7,
    .attr_bytes = sizeof(MxAttentionAttr),
    .infer = attention_grad_infer,
    .partition = attention_grad_cut,
    .localize = attention_localize,
    .flops = attention_grad_flops,
    .print = attention_print,
    .doc = "dq, dk, dv from q, k, v, segments, o, log-sums, do",
};
