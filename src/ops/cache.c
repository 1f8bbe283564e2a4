/* cache.c — rows of positions that are kept from run to run, and attention over them. None has a
 * gradient. */
#include <mx/ops.h>

#include "internal.h"

MxValue mx_cache_write(MxTrace *t, MxValue cache, MxValue rows, MxValue positions) {
    return mx_trace_node(t, &op_cache_write, (MxValue[]){cache, rows, positions}, 3, NULL);
}

static bool cache_write_infer(MxInfer *infer) {
    MxShape cache = infer->in[0].shape, rows = infer->in[1].shape, at = infer->in[2].shape;
    infer->out[0] = infer->in[0];
    if (!ops_is_real(infer, 0) || !ops_is(infer, 1, infer->in[0].dtype, cache.rank) ||
        !ops_is(infer, 2, MX_I32, 2))
        return false;
    if (cache.rank < 2 || cache.dim[1] < 1) return mx_infer_fail(infer, "a cache is [B, C, ..]");
    for (int d = 0; d < cache.rank; d++)
        if (d != 1 && cache.dim[d] != rows.dim[d])
            return mx_infer_fail(infer, "rows must be those of the cache");
    return (at.dim[0] == rows.dim[0] && at.dim[1] == rows.dim[1]) ||
           mx_infer_fail(infer, "positions must be [B, T]");
}

/* Sequences and elements of rows can be cut, slots cannot. */
static void cache_write_cut(MxFactors *f) {
    for (int d = 0; d < f->in[0].shape.rank; d++) {
        if (d == 1) continue;
        int factor = ops_new_factor(f);
        f->in_dim[0][d] = f->in_dim[1][d] = f->out_dim[0][d] = factor;
        if (d == 0) f->in_dim[2][0] = factor;
    }
}

const MxOp op_cache_write = {
    .name = "cache_write",
    .arity = 3,
    .inplace = 1,
    .infer = cache_write_infer,
    .partition = cache_write_cut,
    .doc = "a cache with rows put into the slots of their positions",
};

MxValue mx_cache_attention(MxTrace *t, const MxValue qkv[3], MxValue positions, MxValue counts,
                           MxValue sinks, MxAttentionAttr attr) {
    MxValue in[] = {qkv[0], qkv[1], qkv[2], positions, counts, sinks};
    return mx_trace_node(t, &op_cache_attention, in, sinks == MX_NONE ? 5 : 6, &attr);
}

enum { Q, K, V, POSITIONS, COUNTS, SINKS };

static bool cache_attention_infer(MxInfer *infer) {
    MxShape q = infer->in[Q].shape, k = infer->in[K].shape, v = infer->in[V].shape;
    MxShape at = infer->in[POSITIONS].shape, n = infer->in[COUNTS].shape;
    MxDtype dtype = infer->in[Q].dtype;
    if (!ops_is_real(infer, Q) || !ops_is(infer, POSITIONS, MX_I32, 2) ||
        !ops_is(infer, COUNTS, MX_I32, 1))
        return false;
    if (q.rank != 4 || k.rank != 4 || v.rank != 4 || infer->in[K].dtype != dtype ||
        infer->in[V].dtype != dtype)
        return mx_infer_fail(infer, "q must be [B, T, N, H], k and v [B, C, K, H] of its dtype");
    if (memcmp(k.dim, v.dim, 3 * sizeof *k.dim))
        return mx_infer_fail(infer, "v must be k's shape but for its own width");
    if (q.dim[0] != k.dim[0] || q.dim[3] != k.dim[3] || k.dim[1] < 1 || k.dim[2] < 1 ||
        q.dim[2] % k.dim[2])
        return mx_infer_fail(infer, "k must have q's sequences, width, and heads that divide q's");
    if (at.dim[0] != q.dim[0] || at.dim[1] != q.dim[1] || n.dim[0] != q.dim[0])
        return mx_infer_fail(infer, "positions must be [B, T], counts [B]");
    if (infer->n_in > SINKS && (infer->in[SINKS].dtype != MX_F32 ||
                                !mx_shape_equal(infer->in[SINKS].shape, MX_SHAPE(q.dim[2]))))
        return mx_infer_fail(infer, "sinks must be float32 [N]");
    q.dim[3] = v.dim[3];
    infer->out[0] = (MxType){dtype, q};
    return true;
}

static double cache_attention_flops(const MxType *in, const MxType *out, const void *attr) {
    (void)out, (void)attr;
    MxShape q = in[Q].shape, v = in[V].shape;
    double pairs = (double)(q.dim[0] * q.dim[1] * q.dim[2] * v.dim[1]);
    return 2 * pairs * (double)(q.dim[3] + v.dim[3]);
}

/* As of attention: sequences, heads with those of their keys, queries. */
static void cache_attention_cut(MxFactors *f) {
    int b = ops_new_factor(f), t = ops_new_factor(f), n = ops_new_factor(f);
    for (int d = 0; d < 3; d++) f->in_dim[Q][d] = f->out_dim[0][d] = (int[]){b, t, n}[d];
    for (int i = K; i <= V; i++) {
        f->in_dim[i][0] = b;
        f->in_dim[i][2] = n;
    }
    f->in_dim[POSITIONS][0] = f->in_dim[COUNTS][0] = b;
    f->in_dim[POSITIONS][1] = t;
    if (f->n_in > SINKS) f->in_dim[SINKS][0] = n;
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
