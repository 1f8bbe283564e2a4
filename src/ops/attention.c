/* attention.c — softmax attention in blocks, and its gradient from the saved output and log-sums.
 */
#include <mx/ops.h>

#include "internal.h"

MxValue mx_attention(MxTrace *t, MxValue q, MxValue k, MxValue v, MxValue segments,
                     MxAttentionAttr attr) {
    return mx_trace_node(t, &op_attention, (MxValue[]){q, k, v, segments}, 4, &attr);
}

MxValue mx_attention_sinks(MxTrace *t, const MxValue qkv[3], MxValue segments, MxValue sinks,
                           MxAttentionAttr attr) {
    MxValue in[] = {qkv[0], qkv[1], qkv[2], segments, sinks};
    return mx_trace_node(t, &op_attention, in, MX_COUNT(in), &attr);
}

MxValue mx_attention_blocks(MxTrace *t, const MxValue qkv[3], MxValue segments, MxValue blocks,
                            MxAttentionAttr attr) {
    MxValue in[] = {qkv[0], qkv[1], qkv[2], segments, blocks};
    MX_ASSERT(attr.block_size > 0);
    return mx_trace_node(t, &op_attention, in, MX_COUNT(in), &attr);
}

MxValue mx_attention_chosen(MxTrace *t, const MxValue qkv[3], MxValue segments, MxValue chosen,
                            MxAttentionAttr attr) {
    MxValue in[] = {qkv[0], qkv[1], qkv[2], segments, chosen};
    attr.is_chosen = true;
    return mx_trace_node(t, &op_attention, in, MX_COUNT(in), &attr);
}

/* Inputs are queries, keys, values, segments, the sinks, the blocks or what was chosen if there is
 * any of it, and, of the gradient, the last three. */
enum { Q, K, V, SEGMENTS, SINKS, BLOCKS = SINKS, CHOSEN = SINKS, BEFORE_SINKS = SINKS };

static bool has_sinks(int n_in, const void *attr, int more) {
    const MxAttentionAttr *a = attr;
    return n_in > BEFORE_SINKS + more && !a->block_size && !a->is_chosen;
}

static bool check_blocks(MxInfer *infer, int more) {
    bool is_there = infer->n_in > BEFORE_SINKS + more;
    return (is_there && ops_is(infer, BLOCKS, MX_I32, 2) &&
            mx_shape_equal(infer->in[BLOCKS].shape, infer->in[SEGMENTS].shape)) ||
           mx_infer_fail(infer, "blocks must be int32, as many as segments");
}

static bool check_chosen(MxInfer *infer, int more) {
    bool is_there = infer->n_in > BEFORE_SINKS + more;
    int64_t chunk = ((const MxAttentionAttr *)infer->attr)->chunk;
    int64_t tokens = infer->in[SEGMENTS].shape.dim[1];
    if (chunk > 0)
        return (is_there && ops_are_chunks(infer, CHOSEN, Q, tokens, chunk)) ||
               mx_infer_fail(infer, "chosen must be int32 [B, T, N, chunks / 32]");
    return (is_there && ops_is_chosen(infer, CHOSEN, Q, tokens)) ||
           mx_infer_fail(infer, "chosen must be int32 [B, T, keys / 32]");
}

static bool check_sinks(MxInfer *infer, int64_t heads, int more) {
    const MxAttentionAttr *attr = infer->attr;
    if (attr->block_size) return check_blocks(infer, more);
    if (attr->is_chosen) return check_chosen(infer, more);
    if (infer->n_in == BEFORE_SINKS + more) return true;
    MxType sinks = infer->in[SINKS];
    return (sinks.dtype == MX_F32 && mx_shape_equal(sinks.shape, MX_SHAPE(heads))) ||
           mx_infer_fail(infer, "sinks must be float32 [N]");
}

bool ops_is_in_time(const MxAttentionAttr *attr, int64_t queries, int64_t keys) {
    if (!attr->is_part) return queries == keys;
    if (!attr->is_swapped) return attr->first_query + queries <= keys;
    return queries % 2 == 0 && attr->first_query + queries / 2 <= keys &&
           attr->second_query + queries / 2 <= keys;
}

/* Whether as many keys can be all, or a part, of those of so many tokens. */
static bool are_keys(const MxAttentionAttr *attr, int64_t keys, int64_t tokens) {
    if (!attr->has_key_part) return keys == tokens;
    return keys > 0 && attr->first_key % keys == 0 && attr->first_key + keys <= tokens;
}

/* `more` inputs follow. */
static bool check(MxInfer *infer, int more) {
    const MxAttentionAttr *attr = infer->attr;
    MxShape q = infer->in[Q].shape, k = infer->in[K].shape, s = infer->in[SEGMENTS].shape;
    if (!ops_check_heads(infer)) return false;
    int64_t tokens = attr->has_key_part ? s.dim[1] : k.dim[1];
    bool same_time = ops_is_in_time(attr, q.dim[1], tokens);
    if (q.dim[0] != k.dim[0] || !same_time || q.dim[3] != k.dim[3] || k.dim[2] < 1 ||
        q.dim[2] % k.dim[2])
        return mx_infer_fail(infer,
                             "k and v must be q's shape but for fewer heads that divide q's");
    if (s.dim[0] != k.dim[0] || !are_keys(attr, k.dim[1], s.dim[1]))
        return mx_infer_fail(infer, "segments must be [B, T]");
    return check_sinks(infer, q.dim[2], more);
}

static bool attention_infer(MxInfer *infer) {
    if (!check(infer, 0)) return false;
    ops_infer_attention(infer);
    return true;
}

static void attention_vjp(const MxVjp *v) {
    MxValue in[SINKS + 1 + OPS_OF_GRADIENT];
    int n = v->n_in;
    memcpy(in, v->in, (size_t)n * sizeof *in);
    memcpy(in + n, (MxValue[]){v->out[0], v->out[1], v->dy[0]}, OPS_OF_GRADIENT * sizeof *in);
    MxValue dq = mx_trace_node(v->t, &op_attention_grad, in, n + OPS_OF_GRADIENT, v->attr);
    for (int i = 0; i < SEGMENTS; i++) v->dx[i] = dq < 0 ? MX_NONE : dq + i;
    v->dx[SEGMENTS] = MX_NONE;
    if (n > SINKS) v->dx[SINKS] = MX_NONE;
    if (has_sinks(n, v->attr, 0) && dq >= 0) v->dx[SINKS] = dq + SEGMENTS;
}

MxKeyRange mx_masked_keys(const MxAttentionAttr *attr, int64_t tokens, int64_t query) {
    int64_t window = attr->window, block = window > 0 ? query / window * window : 0;
    switch (attr->mask) {
    case MX_MASK_SLIDING:
        return (MxKeyRange){query >= window ? query - window + 1 : 0, query};
    case MX_MASK_CHUNK:
        return (MxKeyRange){block, query};
    case MX_MASK_FULL:
        return (MxKeyRange){0, tokens - 1};
    case MX_MASK_BLOCKS:
        return (MxKeyRange){0, (block + window < tokens ? block + window : tokens) - 1};
    default:
        return (MxKeyRange){0, query};
    }
}

double ops_keys_seen(double length, const MxAttentionAttr *attr) {
    double window = (double)attr->window;
    switch (attr->mask) {
    case MX_MASK_FULL:
        return length;
    case MX_MASK_BLOCKS:
        return (length + (window < length ? window : length)) / 2;
    case MX_MASK_SLIDING:
        return window < length ? window - window * window / (2 * length) : length / 2;
    case MX_MASK_CHUNK:
        return (window < length ? window : length) / 2;
    default:
        return length / 2;
    }
}

/* Of a part of the keys a query sees its share, on average over all parts. */
static double keys_seen(const MxType *in, const MxAttentionAttr *attr) {
    double keys = (double)in[K].shape.dim[1];
    double tokens = attr->has_key_part ? (double)in[SEGMENTS].shape.dim[1] : keys;
    return ops_keys_seen(tokens, attr) * (keys / tokens);
}

static double attention_flops(const MxType *in, const MxType *out, const void *attr) {
    (void)out;
    return ops_attention_flops(in, keys_seen(in, attr));
}

static double attention_grad_flops(const MxType *in, const MxType *out, const void *attr) {
    (void)out;
    return ops_attention_grad_flops(in, keys_seen(in, attr));
}

void ops_print_attention(MxText *text, const void *attr) {
    static const char *const names[] = {"causal", "sliding", "chunk", "full", "blocks"};
    const MxAttentionAttr *a = attr;
    mx_text_add(text, "%s", names[a->mask]);
    if (a->window) mx_text_add(text, " %lld", (long long)a->window);
    mx_text_add(text, " scale %.9g", a->scale);
    if (a->block_size) mx_text_add(text, " blocks of %lld", (long long)a->block_size);
    if (a->is_chosen) mx_text_add(text, " chosen");
    if (a->chunk) mx_text_add(text, " chunks of %lld", (long long)a->chunk);
    if (a->softcap > 0) mx_text_add(text, " softcap %.9g", a->softcap);
    if (a->is_part) mx_text_add(text, " from query %lld", (long long)a->first_query);
    if (a->is_swapped) mx_text_add(text, " and %lld", (long long)a->second_query);
    if (a->has_key_part) mx_text_add(text, " keys from %lld", (long long)a->first_key);
    if (a->value_width) mx_text_add(text, " values %lld", (long long)a->value_width);
    if (a->kept) mx_text_add(text, " kept as %s", mx_qtype_name(a->kept));
}

/* The most keys that the last query sees, segments aside; of queries that all see as many, none. */
static double most_keys(const MxAttentionAttr *attr, int64_t keys) {
    bool is_short = attr->mask == MX_MASK_SLIDING || attr->mask == MX_MASK_CHUNK;
    if (attr->mask == MX_MASK_FULL) return 0;
    return (double)(is_short && attr->window < keys ? attr->window : keys);
}

/* Sinks, blocks or what was chosen; `more` inputs follow. Later queries see more keys, which go
 * around or are there whole. */
static void cut_others(MxFactors *f, int more) {
    const MxAttentionAttr *attr = f->attr;
    f->ramp = most_keys(attr, f->in[K].shape.dim[1]);
    if (f->ramp > 0) f->swapped = OPS_CUT_T;
    f->ring = OPS_CUT_T;
    f->ring_dim = 1;
    f->ring_in = 1u << K | 1u << V;
    f->ring_reach = attr->block_size ? 0 : (int64_t)f->ramp;
    if (f->n_in == BEFORE_SINKS + more) return;
    f->in_dim[SINKS][0] = has_sinks(f->n_in, attr, more) ? OPS_CUT_N : OPS_CUT_B;
    if (attr->is_chosen) f->in_dim[CHOSEN][1] = OPS_CUT_T;
    if (attr->chunk > 0) f->in_dim[CHOSEN][2] = OPS_CUT_N;
}

static void attention_cut(MxFactors *f) {
    ops_cut_attention(f);
    cut_others(f, 0);
}

const MxOp op_attention = {
    .name = "attention",
    .arity = BEFORE_SINKS,
    .optional = 1,
    .flags = MX_OP_IS_KEPT,
    .no_gradient = 1 << 1 | 1 << 2,
    .attr_bytes = sizeof(MxAttentionAttr),
    .infer = attention_infer,
    .vjp = attention_vjp,
    .partition = attention_cut,
    .localize = ops_localize_attention,
    .ring = ops_ring_attention,
    .flops = attention_flops,
    .print = ops_print_attention,
    .doc = "softmax(mask(scale q k), sinks) v; log-sums; largest scores",
};

static bool attention_grad_infer(MxInfer *infer) {
    int n = infer->n_in - OPS_OF_GRADIENT;
    if (!check(infer, OPS_OF_GRADIENT) || !ops_check_saved(infer)) return false;
    bool sinks = has_sinks(n, infer->attr, 0);
    infer->n_out = sinks ? SEGMENTS + 1 : SEGMENTS;
    for (int i = 0; i < SEGMENTS; i++) infer->out[i] = infer->in[i];
    if (sinks) infer->out[SEGMENTS] = infer->in[SINKS];
    return true;
}

static void attention_grad_cut(MxFactors *f) {
    int n = f->n_in - OPS_OF_GRADIENT;
    ops_cut_attention_grad(f);
    cut_others(f, OPS_OF_GRADIENT);
    f->ring_out = 1u << K | 1u << V;
    if (has_sinks(n, f->attr, 0)) f->out_dim[SEGMENTS][0] = OPS_CUT_N;
}

const MxOp op_attention_grad = {
    .name = "attention_grad",
    .arity = BEFORE_SINKS + OPS_OF_GRADIENT,
    .optional = 1,
    .attr_bytes = sizeof(MxAttentionAttr),
    .infer = attention_grad_infer,
    .partition = attention_grad_cut,
    .localize = ops_localize_attention,
    .ring = ops_ring_attention_grad,
    .flops = attention_grad_flops,
    .print = ops_print_attention,
    .doc = "dq, dk, dv (and dsinks) from q, k, v, segments (and sinks), o, log-sums, do",
};
