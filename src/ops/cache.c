/* cache.c — values kept for sequences between runs of an entry, rows of positions or states, and
 * the ops that read them. None has a gradient. Pieces select their sequences by index, so caches
 * are never sharded along sequences. */
#include <mx/ops.h>

#include "internal.h"

bool ops_is_place(MxInfer *infer, int i, int64_t B, int64_t T) {
    MxShape at = infer->in[i].shape, of = infer->in[i + 1].shape;
    if (!ops_is(infer, i, MX_I32, 2) || !ops_is(infer, i + 1, MX_I32, 1)) return false;
    return (at.dim[0] == B && at.dim[1] == T && of.dim[0] == B) ||
           mx_infer_fail(infer, "positions must be [B, T], sequences [B]");
}

/* ---- rows in few bits */

int64_t mx_cache_row_bytes(MxQtype type, int64_t width, MxDtype dtype) {
    int64_t each = mx_qtype_a_byte(type);
    return (width + each - 1) / each + (int64_t)mx_dtype_bytes(dtype);
}

MxValue mx_cache_codes(MxTrace *t, MxValue x, MxCacheCodesAttr attr) {
    return mx_trace_node(t, &op_cache_codes, &x, 1, &attr);
}

static bool cache_codes_infer(MxInfer *infer) {
    const MxCacheCodesAttr *attr = infer->attr;
    MxType x = infer->in[0];
    if (!ops_is_real(infer, 0)) return false;
    if (x.shape.rank != 4) return mx_infer_fail(infer, "rows of heads must be [B, T, K, H]");
    if (attr->type != MX_INT8 && attr->type != MX_INT4)
        return mx_infer_fail(infer, "codes of caches are int8 or int4");
    x.shape.dim[3] = mx_cache_row_bytes(attr->type, x.shape.dim[3], x.dtype);
    infer->out[0] = (MxType){MX_U8, x.shape};
    return true;
}

/* All but the elements of a row, and the heads that share a scale. */
static void cache_codes_cut(MxFactors *f) {
    const MxCacheCodesAttr *attr = f->attr;
    for (int d = 0; d < (attr->spans_heads ? 2 : 3); d++)
        f->in_dim[0][d] = f->out_dim[0][d] = ops_new_factor(f);
}

static void print_codes(MxText *text, const void *attr) {
    const MxCacheCodesAttr *a = attr;
    mx_text_add(text, "%s%s", mx_qtype_name(a->type), a->spans_heads ? " of all heads" : "");
}

const MxOp op_cache_codes = {
    .name = "cache_codes",
    .arity = 1,
    .attr_bytes = sizeof(MxCacheCodesAttr),
    .infer = cache_codes_infer,
    .partition = cache_codes_cut,
    .print = print_codes,
    .doc = "rows of heads as codes of few bits, each with a scale",
};

/* ---- rows of positions */

MxValue mx_cache_write(MxTrace *t, MxValue cache, MxValue rows, MxCachePlace place) {
    const MxValue in[] = {cache, rows, place.positions, place.sequences};
    return mx_trace_node(t, &op_cache_write, in, MX_COUNT(in), NULL);
}

static bool cache_write_infer(MxInfer *infer) {
    MxShape cache = infer->in[0].shape, rows = infer->in[1].shape;
    infer->out[0] = infer->in[0];
    MxDtype dtype = infer->in[0].dtype; /* of ids and codes too */
    if (dtype != MX_I32 && dtype != MX_U8 && !ops_is_real(infer, 0)) return false;
    if (!ops_is(infer, 1, infer->in[0].dtype, cache.rank)) return false;
    if (cache.rank < 2 || cache.dim[1] < 1) return mx_infer_fail(infer, "a cache is [S, C, ..]");
    for (int d = 2; d < cache.rank; d++)
        if (cache.dim[d] != rows.dim[d])
            return mx_infer_fail(infer, "rows must be those of the cache");
    return ops_is_place(infer, 2, rows.dim[0], rows.dim[1]);
}

/* Elements of rows can be cut. */
static void cache_write_cut(MxFactors *f) {
    for (int d = 2; d < f->in[0].shape.rank; d++)
        f->in_dim[0][d] = f->in_dim[1][d] = f->out_dim[0][d] = ops_new_factor(f);
}

const MxOp op_cache_write = {
    .name = "cache_write",
    .arity = 4,
    .inplace = 1,
    .infer = cache_write_infer,
    .partition = cache_write_cut,
    .doc = "a cache with rows put into the slots of their positions",
};

/* ---- attention */

enum { Q, K, V, POSITIONS, SEQUENCES, COUNTS, SINKS, CHOSEN = SINKS, BLOCKS = SINKS };

MxValue mx_cache_attention(MxTrace *t, const MxValue qkv[3], MxCachePlace place, MxValue sinks,
                           MxAttentionAttr attr) {
    const MxValue in[] = {qkv[0],          qkv[1],       qkv[2], place.positions,
                          place.sequences, place.counts, sinks};
    return mx_trace_node(t, &op_cache_attention, in, sinks == MX_NONE ? SINKS : SINKS + 1, &attr);
}

static int64_t value_width(const MxType *in, const MxAttentionAttr *attr) {
    return attr->value_width ? attr->value_width : in[V].shape.dim[3];
}

/* The sinks, or what was chosen, or blocks. */
static bool check_more(MxInfer *infer) {
    const MxAttentionAttr *attr = infer->attr;
    bool is_there = infer->n_in > SINKS;
    if (attr->chunk > 0)
        return (is_there &&
                ops_are_chunks(infer, CHOSEN, Q, infer->in[K].shape.dim[1], attr->chunk)) ||
               mx_infer_fail(infer, "chosen must be int32 [B, T, N, chunks / 32]");
    if (attr->is_chosen)
        return (is_there && ops_is_chosen(infer, CHOSEN, Q, infer->in[K].shape.dim[1])) ||
               mx_infer_fail(infer, "chosen must be int32 [B, T, slots / 32]");
    if (attr->block_size)
        return (is_there && ops_is(infer, BLOCKS, MX_I32, 2) &&
                mx_shape_equal(infer->in[BLOCKS].shape, infer->in[POSITIONS].shape)) ||
               mx_infer_fail(infer, "blocks must be int32, as many as positions");
    return !is_there ||
           (infer->in[SINKS].dtype == MX_F32 &&
            mx_shape_equal(infer->in[SINKS].shape, MX_SHAPE(infer->in[Q].shape.dim[2]))) ||
           mx_infer_fail(infer, "sinks must be float32 [N]");
}

/* Gives the widths of the rows that codes of k and v stand for. */
static bool check_kept(MxInfer *infer, MxShape *k, MxShape *v) {
    const MxAttentionAttr *attr = infer->attr;
    MxType q = infer->in[Q];
    int64_t of_key = mx_cache_row_bytes(attr->kept, q.shape.dim[3], q.dtype);
    int64_t of_value = mx_cache_row_bytes(attr->kept, attr->value_width, q.dtype);
    if (k->dim[3] != of_key || v->dim[3] != of_value)
        return mx_infer_fail(infer, "k and v must be rows of codes and a scale");
    k->dim[3] = q.shape.dim[3];
    v->dim[3] = attr->value_width;
    return true;
}

static bool cache_attention_infer(MxInfer *infer) {
    const MxAttentionAttr *attr = infer->attr;
    MxShape q = infer->in[Q].shape, k = infer->in[K].shape, v = infer->in[V].shape;
    MxDtype dtype = infer->in[Q].dtype, kept = attr->kept ? MX_U8 : dtype;
    if (!ops_is_real(infer, Q) || !ops_is(infer, COUNTS, MX_I32, 1)) return false;
    if (q.rank != 4 || k.rank != 4 || v.rank != 4 || infer->in[K].dtype != kept ||
        infer->in[V].dtype != kept)
        return mx_infer_fail(infer, "q must be [B, T, N, H], k and v [S, C, K, H] of its dtype");
    if (attr->kept && !check_kept(infer, &k, &v)) return false;
    if (memcmp(k.dim, v.dim, 3 * sizeof *k.dim))
        return mx_infer_fail(infer, "v must be k's shape but for its own width");
    if (q.dim[3] != k.dim[3] || k.dim[1] < 1 || k.dim[2] < 1 || q.dim[2] % k.dim[2])
        return mx_infer_fail(infer, "k must have q's width, and heads that divide q's");
    if (!ops_is_place(infer, POSITIONS, q.dim[0], q.dim[1])) return false;
    if (infer->in[COUNTS].shape.dim[0] != q.dim[0])
        return mx_infer_fail(infer, "counts must be [B]");
    if (!check_more(infer)) return false;
    q.dim[3] = value_width(infer->in, infer->attr);
    if (q.dim[3] > v.dim[3]) return mx_infer_fail(infer, "v's rows must hold the values");
    infer->out[0] = (MxType){dtype, q};
    return true;
}

static double cache_attention_flops(const MxType *in, const MxType *out, const void *attr) {
    (void)out;
    MxShape q = in[Q].shape;
    double pairs = (double)(q.dim[0] * q.dim[1] * q.dim[2] * in[V].shape.dim[1]);
    return 2 * pairs * (double)(q.dim[3] + value_width(in, attr));
}

/* Heads with those of their keys; queries, unless they see their neighbours. */
static void cache_attention_cut(MxFactors *f) {
    const MxAttentionAttr *attr = f->attr;
    int n = ops_new_factor(f);
    f->in_dim[Q][2] = f->in_dim[K][2] = f->in_dim[V][2] = f->out_dim[0][2] = n;
    if (attr->block_size) return;
    int t = ops_new_factor(f);
    f->in_dim[Q][1] = f->in_dim[POSITIONS][1] = f->out_dim[0][1] = t;
    if (attr->chunk > 0) f->in_dim[CHOSEN][2] = n;
    if (attr->is_chosen)
        f->in_dim[CHOSEN][1] = t;
    else if (f->n_in > SINKS)
        f->in_dim[SINKS][0] = n;
}

const MxOp op_cache_attention = {
    .name = "cache_attention",
    .arity = SINKS,
    .optional = 1,
    .attr_bytes = sizeof(MxAttentionAttr),
    .infer = cache_attention_infer,
    .partition = cache_attention_cut,
    .flops = cache_attention_flops,
    .print = ops_print_attention,
    .doc = "attention of queries at positions over caches of keys and values",
};

/* ---- attention that goes on with rows of windows */

enum { ROWS = SINKS + 1, SEEN, POOLED_INPUTS };

MxValue mx_cache_pooled_attention(MxTrace *t, const MxValue q_keys_rows[3], MxCachePlace place,
                                  MxValue sinks, MxValue seen, MxAttentionAttr attr) {
    const MxValue *x = q_keys_rows;
    const MxValue in[POOLED_INPUTS] = {
        x[0], x[1], x[1], place.positions, place.sequences, place.counts, sinks, x[2], seen};
    return mx_trace_node(t, &op_cache_pooled_attention, in, POOLED_INPUTS, &attr);
}

static bool cache_pooled_attention_infer(MxInfer *infer) {
    MxShape q = infer->in[Q].shape, k = infer->in[K].shape, rows = infer->in[ROWS].shape;
    if (!cache_attention_infer(infer)) return false;
    if (infer->in[ROWS].dtype != infer->in[K].dtype || rows.rank != 4 || rows.dim[0] != k.dim[0] ||
        rows.dim[1] < 1 || memcmp(rows.dim + 2, k.dim + 2, 2 * sizeof *k.dim))
        return mx_infer_fail(infer, "rows must be a cache like that of keys");
    return (infer->in[SEEN].dtype == MX_I32 &&
            mx_shape_equal(infer->in[SEEN].shape,
                           MX_SHAPE(q.dim[0], q.dim[1], ops_words_of(rows.dim[1])))) ||
           mx_infer_fail(infer, "seen must be int32 [B, T, rows / 32]");
}

static void cache_pooled_attention_cut(MxFactors *f) {
    cache_attention_cut(f);
    f->in_dim[ROWS][2] = f->in_dim[K][2];
    f->in_dim[SEEN][1] = f->in_dim[Q][1];
}

const MxOp op_cache_pooled_attention = {
    .name = "cache_pooled_attention",
    .arity = POOLED_INPUTS,
    .attr_bytes = sizeof(MxAttentionAttr),
    .infer = cache_pooled_attention_infer,
    .partition = cache_pooled_attention_cut,
    .flops = cache_attention_flops,
    .print = ops_print_attention,
    .doc = "attention of queries at positions over caches of keys and of rows of windows",
};

/* ---- convolution */

MxValue mx_cache_conv(MxTrace *t, MxValue cache, MxValue w, MxCachePlace place, MxDeltaAttr attr) {
    const MxValue in[] = {cache, w, place.positions, place.sequences};
    return mx_trace_node(t, &op_cache_conv, in, MX_COUNT(in), &attr);
}

static bool cache_conv_infer(MxInfer *infer) {
    MxShape x = infer->in[0].shape, w = infer->in[1].shape, at = infer->in[2].shape;
    if (!ops_is_real(infer, 0) || !ops_is(infer, 1, MX_F32, 2)) return false;
    if (x.rank != 3 || x.dim[1] < 1 || w.dim[1] != x.dim[2] || w.dim[0] < 1)
        return mx_infer_fail(infer, "a cache must be [S, C, D] and w [W, D]");
    infer->out[0] = (MxType){infer->in[0].dtype, MX_SHAPE(at.dim[0], at.dim[1], x.dim[2])};
    return ops_is_place(infer, 2, at.dim[0], at.dim[1]);
}

static void cache_conv_cut(MxFactors *f) {
    f->in_dim[0][2] = f->in_dim[1][1] = f->out_dim[0][2] = ops_new_factor(f);
}

static double cache_conv_flops(const MxType *in, const MxType *out, const void *attr) {
    (void)attr;
    return 2.0 * (double)mx_shape_count(out[0].shape) * (double)in[1].shape.dim[0];
}

const MxOp op_cache_conv = {
    .name = "cache_conv",
    .arity = 4,
    .attr_bytes = sizeof(MxDeltaAttr),
    .infer = cache_conv_infer,
    .partition = cache_conv_cut,
    .flops = cache_conv_flops,
    .print = ops_print_carries,
    .doc = "y[t, d] = sum_j w[j, d] x[t - (W - 1 - j) A, d] of x in a cache",
};

/* ---- the gated delta rule */

enum { MEMORY, DELTA_Q, DELTA_K, DELTA_V, DECAY, BETA, DELTA_POSITIONS, DELTA_INPUTS = 8 };

MxValue mx_cache_delta(MxTrace *t, MxValue memory, const MxValue qkv[3],
                       const MxValue decay_beta[2], MxCachePlace place) {
    const MxValue in[DELTA_INPUTS] = {memory,          qkv[0],         qkv[1],
                                      qkv[2],          decay_beta[0],  decay_beta[1],
                                      place.positions, place.sequences};
    return mx_trace_node(t, &op_cache_delta, in, DELTA_INPUTS, NULL);
}

static bool cache_delta_infer(MxInfer *infer) {
    MxShape q = infer->in[DELTA_Q].shape, v = infer->in[DELTA_V].shape, m = infer->in[MEMORY].shape;
    infer->out[0] = infer->in[MEMORY];
    infer->out[1] = infer->in[DELTA_V];
    infer->n_out = 2;
    if (!ops_is_real(infer, DELTA_Q) || !ops_same_type(infer, DELTA_Q, DELTA_K) ||
        !ops_is(infer, MEMORY, MX_F32, 5) || !ops_is(infer, DECAY, MX_F32, 3) ||
        !ops_is(infer, BETA, MX_F32, 3))
        return false;
    if (q.rank != 4 || v.rank != 4 || infer->in[DELTA_V].dtype != infer->in[DELTA_Q].dtype)
        return mx_infer_fail(infer, "q, k and v must be [B, T, heads, width] of one dtype");
    if (q.dim[0] != v.dim[0] || q.dim[1] != v.dim[1] || q.dim[2] < 1 || v.dim[2] % q.dim[2])
        return mx_infer_fail(infer, "v must have a whole number of heads for each of q's");
    for (int i = DECAY; i <= BETA; i++)
        if (memcmp(v.dim, infer->in[i].shape.dim, 3 * sizeof *v.dim))
            return mx_infer_fail(infer, "decay and beta must be [B, T, heads of v]");
    if (m.dim[1] != 1 || m.dim[2] != v.dim[2] || m.dim[3] != q.dim[3] || m.dim[4] != v.dim[3])
        return mx_infer_fail(infer, "memories must be [S, 1, heads of v, width of q, of v]");
    return ops_is_place(infer, DELTA_POSITIONS, v.dim[0], v.dim[1]);
}

/* Heads of keys with those of values that read them. */
static void cache_delta_cut(MxFactors *f) {
    int head = ops_new_factor(f);
    for (int i = MEMORY; i < DELTA_POSITIONS; i++) f->in_dim[i][2] = head;
    for (int i = 0; i < f->n_out; i++) f->out_dim[i][2] = head;
}

static double cache_delta_flops(const MxType *in, const MxType *out, const void *attr) {
    return op_delta.flops(in + DELTA_Q, out, attr);
}

const MxOp op_cache_delta = {
    .name = "cache_delta",
    .arity = DELTA_INPUTS,
    .inplace = 1,
    .infer = cache_delta_infer,
    .partition = cache_delta_cut,
    .flops = cache_delta_flops,
    .doc = "the gated delta rule from memories that are kept; the memories, o",
};

/* ---- products of heads */

MxValue mx_head_dot(MxTrace *t, MxValue x, MxValue w, MxHeadDotAttr attr) {
    return mx_trace_node(t, &op_head_dot, (MxValue[]){x, w}, 2, &attr);
}

static bool head_dot_infer(MxInfer *infer) {
    const MxHeadDotAttr *attr = infer->attr;
    MxShape x = infer->in[0].shape, w = infer->in[1].shape;
    if (!ops_is_real(infer, 0) || !ops_is(infer, 1, infer->in[0].dtype, 3)) return false;
    if (attr->first < 0 || attr->width < 1 || attr->first + attr->width > w.dim[2])
        return mx_infer_fail(infer, "w must be [C, N, E], E with all elements that take part");
    if (x.rank < 2 || x.dim[x.rank - 2] != w.dim[1] ||
        x.dim[x.rank - 1] != (attr->transposed ? attr->width : w.dim[0]))
        return mx_infer_fail(infer, "x must have w's heads, of its width");
    x.dim[x.rank - 1] = attr->transposed ? w.dim[0] : attr->width;
    infer->out[0] = (MxType){infer->in[0].dtype, x};
    return true;
}

/* Rows, heads, and of w's widths the first one, which is summed over unless it is transposed. */
static void head_dot_cut(MxFactors *f) {
    const MxHeadDotAttr *attr = f->attr;
    int rank = f->in[0].shape.rank;
    for (int d = 0; d < rank - 1; d++) f->in_dim[0][d] = f->out_dim[0][d] = ops_new_factor(f);
    f->in_dim[1][1] = f->in_dim[0][rank - 2];
    f->in_dim[1][0] = ops_new_factor(f);
    *(attr->transposed ? &f->out_dim[0][rank - 1] : &f->in_dim[0][rank - 1]) = f->in_dim[1][0];
}

static double head_dot_flops(const MxType *in, const MxType *out, const void *attr) {
    const MxHeadDotAttr *a = attr;
    MxShape x = in[0].shape;
    double rows = (double)mx_shape_count(x) / (double)x.dim[x.rank - 1];
    (void)out;
    return 2 * rows * (double)in[1].shape.dim[0] * (double)a->width;
}

static void head_dot_print(MxText *text, const void *attr) {
    const MxHeadDotAttr *a = attr;
    mx_text_add(text, "%s %lld from %lld", a->transposed ? "nt" : "nn", (long long)a->width,
                (long long)a->first);
}

const MxOp op_head_dot = {
    .name = "head_dot",
    .arity = 2,
    .attr_bytes = sizeof(MxHeadDotAttr),
    .infer = head_dot_infer,
    .partition = head_dot_cut,
    .flops = head_dot_flops,
    .print = head_dot_print,
    .doc = "every head times its own part of a kernel",
};
