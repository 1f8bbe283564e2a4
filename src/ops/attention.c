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
enum { O, LOG_SUMS, DO, OF_GRADIENT = OPS_OF_GRADIENT };

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
    return (is_there && ops_is_chosen(infer, CHOSEN, Q, infer->in[SEGMENTS].shape.dim[1])) ||
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
    MxShape q = infer->in[Q].shape, k = infer->in[K].shape, v = infer->in[V].shape;
    MxShape s = infer->in[SEGMENTS].shape;
    MxDtype dtype = infer->in[Q].dtype;
    if (!ops_is_real(infer, Q) || !ops_is(infer, SEGMENTS, MX_I32, 2)) return false;
    if (q.rank != 4 || k.rank != 4 || v.rank != 4 || infer->in[K].dtype != dtype ||
        infer->in[V].dtype != dtype)
        return mx_infer_fail(infer, "q, k and v must be [B, T, heads, H] of one dtype");
    if (memcmp(k.dim, v.dim, 3 * sizeof *k.dim))
        return mx_infer_fail(infer, "v must be k's shape but for its own width");
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

static MxType type_of_out(const MxInfer *infer) {
    MxType type = infer->in[Q];
    type.shape.dim[3] = infer->in[V].shape.dim[3];
    return type;
}

/* A number a row of scores. */
static MxType type_of_rows(const MxInfer *infer) {
    MxShape q = infer->in[Q].shape;
    return (MxType){MX_F32, MX_SHAPE(q.dim[0], q.dim[2], q.dim[1])};
}

static bool attention_infer(MxInfer *infer) {
    if (!check(infer, 0)) return false;
    infer->n_out = 3;
    infer->out[0] = type_of_out(infer);
    infer->out[1] = infer->out[2] = type_of_rows(infer);
    return true;
}

static void attention_vjp(const MxVjp *v) {
    MxValue in[SINKS + 1 + OF_GRADIENT];
    int n = v->n_in;
    memcpy(in, v->in, (size_t)n * sizeof *in);
    memcpy(in + n, (MxValue[]){v->out[0], v->out[1], v->dy[0]}, OF_GRADIENT * sizeof *in);
    MxValue dq = mx_trace_node(v->t, &op_attention_grad, in, n + OF_GRADIENT, v->attr);
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

/* So many products over the width of keys, and over that of values. Of a part of the keys a query
 * sees its share, on average over all parts. */
static double products(const MxType *in, const MxAttentionAttr *attr, int of_keys, int of_values) {
    MxShape q = in[Q].shape, k = in[K].shape, v = in[V].shape;
    double widths = (double)(of_keys * k.dim[3] + of_values * v.dim[3]);
    double keys = (double)k.dim[1];
    double tokens = attr->has_key_part ? (double)in[SEGMENTS].shape.dim[1] : keys;
    double seen = ops_keys_seen(tokens, attr) * (keys / tokens);
    double pairs = (double)(q.dim[0] * q.dim[1] * q.dim[2]) * seen;
    return 2 * pairs * widths;
}

static double attention_flops(const MxType *in, const MxType *out, const void *attr) {
    (void)out;
    return products(in, attr, 1, 1);
}

/* Scores are made again. */
static double attention_grad_flops(const MxType *in, const MxType *out, const void *attr) {
    (void)out;
    return products(in, attr, 3, 2);
}

void ops_print_attention(MxText *text, const void *attr) {
    static const char *const names[] = {"causal", "sliding", "chunk", "full", "blocks"};
    const MxAttentionAttr *a = attr;
    mx_text_add(text, "%s", names[a->mask]);
    if (a->window) mx_text_add(text, " %lld", (long long)a->window);
    mx_text_add(text, " scale %.9g", a->scale);
    if (a->block_size) mx_text_add(text, " blocks of %lld", (long long)a->block_size);
    if (a->is_chosen) mx_text_add(text, " chosen");
    if (a->softcap > 0) mx_text_add(text, " softcap %.9g", a->softcap);
    if (a->is_part) mx_text_add(text, " from query %lld", (long long)a->first_query);
    if (a->is_swapped) mx_text_add(text, " and %lld", (long long)a->second_query);
    if (a->has_key_part) mx_text_add(text, " keys from %lld", (long long)a->first_key);
    if (a->value_width) mx_text_add(text, " values %lld", (long long)a->value_width);
}

/* Sequences, heads (of queries together with those of their keys) and queries can be cut. Every
 * query may look at all keys: they are there whole, or go around. */
enum { CUT_B, CUT_T, CUT_N, CUT_FACTORS };
static const int query_cut[] = {CUT_B, CUT_T, CUT_N}, key_cut[] = {CUT_B, MX_WHOLE, CUT_N};
static const int row_cut[] = {CUT_B, CUT_N, CUT_T};

/* The most keys that the last query sees, segments aside; of queries that all see as many, none. */
static double most_keys(const MxAttentionAttr *attr, int64_t keys) {
    bool is_short = attr->mask == MX_MASK_SLIDING || attr->mask == MX_MASK_CHUNK;
    if (attr->mask == MX_MASK_FULL) return 0;
    return (double)(is_short && attr->window < keys ? attr->window : keys);
}

/* `more` inputs follow. */
static void cut_operands(MxFactors *f, int more) {
    for (int i = 0; i < CUT_FACTORS; i++) ops_new_factor(f);
    f->ramp = most_keys(f->attr, f->in[K].shape.dim[1]);
    if (f->ramp > 0) f->swapped = CUT_T;
    memcpy(f->in_dim[Q], query_cut, sizeof query_cut);
    memcpy(f->in_dim[K], key_cut, sizeof key_cut);
    memcpy(f->in_dim[V], key_cut, sizeof key_cut);
    f->ring = CUT_T;
    f->ring_dim = 1;
    f->ring_in = 1u << K | 1u << V;
    f->ring_reach = ((const MxAttentionAttr *)f->attr)->block_size ? 0 : (int64_t)f->ramp;
    f->in_dim[SEGMENTS][0] = CUT_B;
    if (f->n_in == BEFORE_SINKS + more) return;
    f->in_dim[SINKS][0] = has_sinks(f->n_in, f->attr, more) ? CUT_N : CUT_B;
    if (((const MxAttentionAttr *)f->attr)->is_chosen) f->in_dim[CHOSEN][1] = CUT_T;
}

static void attention_cut(MxFactors *f) {
    cut_operands(f, 0);
    memcpy(f->out_dim[0], query_cut, sizeof query_cut);
    memcpy(f->out_dim[1], row_cut, sizeof row_cut);
    memcpy(f->out_dim[2], row_cut, sizeof row_cut);
}

static void attention_localize(const MxShare *share, void *attr) {
    MxAttentionAttr *a = attr;
    a->is_part = share->is_cut[CUT_T];
    a->first_query = share->start[CUT_T];
    a->is_swapped = share->is_swapped;
    a->second_query = share->second;
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
    .localize = attention_localize,
    .ring = ops_ring_attention,
    .flops = attention_flops,
    .print = ops_print_attention,
    .doc = "softmax(mask(scale q k), sinks) v; log-sums; largest scores",
};

static bool is_type(MxType type, MxType wanted) {
    return type.dtype == wanted.dtype && mx_shape_equal(type.shape, wanted.shape);
}

static bool attention_grad_infer(MxInfer *infer) {
    int n = infer->n_in - OF_GRADIENT;
    if (!check(infer, OF_GRADIENT)) return false;
    if (!is_type(infer->in[n + O], type_of_out(infer)) ||
        !is_type(infer->in[n + DO], type_of_out(infer)))
        return mx_infer_fail(infer, "o and do must be q's type but for the width of v");
    if (!is_type(infer->in[n + LOG_SUMS], type_of_rows(infer)))
        return mx_infer_fail(infer, "log-sums must be float32 [B, N, T]");
    bool sinks = has_sinks(n, infer->attr, 0);
    infer->n_out = sinks ? SEGMENTS + 1 : SEGMENTS;
    for (int i = 0; i < SEGMENTS; i++) infer->out[i] = infer->in[i];
    if (sinks) infer->out[SEGMENTS] = infer->in[SINKS];
    return true;
}

static void attention_grad_cut(MxFactors *f) {
    int n = f->n_in - OF_GRADIENT;
    cut_operands(f, OF_GRADIENT);
    memcpy(f->in_dim[n + O], query_cut, sizeof query_cut);
    memcpy(f->in_dim[n + LOG_SUMS], row_cut, sizeof row_cut);
    memcpy(f->in_dim[n + DO], query_cut, sizeof query_cut);
    memcpy(f->out_dim[Q], query_cut, sizeof query_cut);
    memcpy(f->out_dim[K], key_cut, sizeof key_cut);
    memcpy(f->out_dim[V], key_cut, sizeof key_cut);
    f->ring_out = 1u << K | 1u << V;
    if (has_sinks(n, f->attr, 0)) f->out_dim[SEGMENTS][0] = CUT_N;
}

const MxOp op_attention_grad = {
    .name = "attention_grad",
    .arity = BEFORE_SINKS + OF_GRADIENT,
    .optional = 1,
    .attr_bytes = sizeof(MxAttentionAttr),
    .infer = attention_grad_infer,
    .partition = attention_grad_cut,
    .localize = attention_localize,
    .ring = ops_ring_attention_grad,
    .flops = attention_grad_flops,
    .print = ops_print_attention,
    .doc = "dq, dk, dv (and dsinks) from q, k, v, segments (and sinks), o, log-sums, do",
};
