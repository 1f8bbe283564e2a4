/* ring.c — attention of a part of the queries where each rank keeps its part of the keys: the parts
 * go around, and a rank meets one after another, its own first (Liu, Zaharia & Abbeel 2023). A part
 * goes straight from the rank that has it to those whose queries see any of it, and what a part's
 * gradient gets from other ranks comes straight back. The next part is on its way while a rank
 * computes with the one before; no more than two are in memory. */
#include <mx/ops.h>

#include "internal.h"

/* ---- attention over the keys of two parts */

static MxValue join(MxTrace *t, const MxValue a[3], const MxValue b[3], MxDtype dtype) {
    MxValue in[] = {a[0], a[1], a[2], b[0], b[1], b[2]};
    return mx_trace_node(t, &op_join_attention, in, MX_COUNT(in), &(MxCastAttr){.dtype = dtype});
}

static bool join_infer(MxInfer *infer) {
    MxShape o = infer->in[0].shape;
    if (!ops_is_real(infer, 0) || !ops_is_real(infer, 3)) return false;
    if (o.rank != 4 || !mx_shape_equal(infer->in[3].shape, o))
        return mx_infer_fail(infer, "both results must be [B, T, N, W]");
    MxShape rows = MX_SHAPE(o.dim[0], o.dim[2], o.dim[1]);
    for (int i = 1; i < infer->n_in; i++)
        if (i != 3 && (infer->in[i].dtype != MX_F32 || !mx_shape_equal(infer->in[i].shape, rows)))
            return mx_infer_fail(infer, "input %d must be float32 [B, N, T]", i);
    infer->n_out = 3;
    infer->out[0] = (MxType){((const MxCastAttr *)infer->attr)->dtype, o};
    infer->out[1] = infer->out[2] = (MxType){MX_F32, rows};
    return true;
}

static void join_print(MxText *text, const void *attr) {
    mx_text_add(text, "%s", mx_dtype_name(((const MxCastAttr *)attr)->dtype));
}

const MxOp op_join_attention = {
    .name = "join_attention",
    .arity = 6,
    .flags = MX_OP_IS_KEPT,
    .attr_bytes = sizeof(MxCastAttr),
    .infer = join_infer,
    .print = join_print,
    .doc = "attention over two parts of the keys, from that over each of them",
};

/* ---- who meets whom */

typedef struct Ring {
    MxTrace *t;
    const MxGroup *group;
    const MxAttentionAttr *attr;
    const MxValue *in;
    int n_in, more; /* inputs; those behind attention's own */
    int64_t tokens, part;
} Ring;

/* Whether any of so many queries side by side sees a key of a rank's part. */
static bool sees_part(const Ring *r, int64_t query, int64_t n, int64_t rank) {
    int64_t low = mx_masked_keys(r->attr, r->tokens, query).low;
    int64_t high = mx_masked_keys(r->attr, r->tokens, query + n - 1).high;
    return low < (rank + 1) * r->part && high >= rank * r->part;
}

/* Whether queries of a rank may see keys of another: blocks of tokens may lie anywhere. */
static bool sees(const Ring *r, int64_t rank, int64_t other) {
    int64_t half = r->attr->is_swapped ? r->part / 2 : r->part;
    int64_t second = (r->group->size - 1 - rank) * r->part + half;
    return r->attr->block_size || sees_part(r, rank * r->part, half, other) ||
           (r->attr->is_swapped && sees_part(r, second, half, other));
}

/* The rank so many places from this one. */
static int64_t rank_at(const Ring *r, int64_t places) {
    return (r->group->index + places + r->group->size) % r->group->size;
}

/* The next distance over which keys go to any rank. */
static int next_distance(const Ring *r, int places) {
    int n = r->group->size;
    while (++places < n)
        for (int64_t rank = 0; rank < n; rank++)
            if (sees(r, rank, (rank - places + n) % n)) return places;
    return n;
}

/* ---- rounds */

/* Keys, or values, of the rank so many places before. */
static MxValue fetched(const Ring *r, int input, int places) {
    if (places >= r->group->size) return MX_NONE;
    MxCollectiveAttr attr = {.group = *r->group,
                             .places = places,
                             .sends = sees(r, rank_at(r, places), r->group->index),
                             .receives = sees(r, r->group->index, rank_at(r, -places))};
    return mx_trace_node(r->t, &op_ring_shift, &r->in[input], 1, &attr);
}

/* What another rank computed for this one's part, of what this one computed for another's. */
static MxValue returned(const Ring *r, MxValue x, int places) {
    MxCollectiveAttr attr = {.group = *r->group,
                             .places = -places,
                             .sends = sees(r, r->group->index, rank_at(r, -places)),
                             .receives = sees(r, rank_at(r, places), r->group->index)};
    return mx_trace_node(r->t, &op_ring_shift, &x, 1, &attr);
}

enum { Q, K, V, SEGMENTS, OWN_INPUTS };

/* Runs an op with keys and values from so many places before. Sinks count in one round alone. */
static MxValue meet(const Ring *r, const MxOp *op, const MxValue keys[2], int places) {
    MxValue in[MX_MAX_CUT_IN];
    MxAttentionAttr attr = *r->attr;
    attr.has_key_part = true;
    attr.first_key = rank_at(r, -places) * r->part;
    bool has_all = !places || attr.block_size || attr.is_chosen;
    int n = has_all ? r->n_in - r->more : OWN_INPUTS;
    memcpy(in, r->in, (size_t)n * sizeof *in);
    memcpy(in + n, r->in + r->n_in - r->more, (size_t)r->more * sizeof *in);
    in[K] = keys[0];
    in[V] = keys[1];
    return mx_trace_node(r->t, op, in, n + r->more, &attr);
}

static Ring ring_of(MxTrace *t, const MxGroup *group, const MxValue *in, int n_in, const void *attr,
                    int more) {
    return (Ring){.t = t,
                  .group = group,
                  .attr = attr,
                  .in = in,
                  .n_in = n_in,
                  .more = more,
                  .tokens = mx_trace_type(t, in[SEGMENTS]).shape.dim[1],
                  .part = mx_trace_type(t, in[K]).shape.dim[1]};
}

static void fetch(const Ring *r, int places, MxValue keys[2]) {
    keys[0] = fetched(r, K, places);
    keys[1] = fetched(r, V, places);
}

void ops_ring_attention(MxTrace *t, const MxGroup *group, const MxValue *in, int n_in,
                        const void *attr, MxValue *out) {
    Ring r = ring_of(t, group, in, n_in, attr, 0);
    MxValue keys[2] = {in[K], in[V]}, coming[2], all[3];
    for (int at = 0, next; at < group->size; at = next) {
        next = next_distance(&r, at);
        fetch(&r, next, coming);
        MxValue one = meet(&r, &op_attention, keys, at);
        MxDtype dtype = next < group->size ? MX_F32 : mx_trace_type(t, in[Q]).dtype;
        const MxValue ones[] = {one, one + 1, one + 2};
        MxValue joined = at ? join(t, all, ones, dtype) : one;
        for (int i = 0; i < 3; i++) all[i] = joined + i;
        memcpy(keys, coming, sizeof keys);
    }
    memcpy(out, all, sizeof all);
}

static MxValue added(MxTrace *t, MxValue sum, MxValue term) {
    term = mx_cast(t, term, MX_F32);
    return sum == MX_NONE ? term : mx_add(t, sum, term);
}

void ops_ring_attention_grad(MxTrace *t, const MxGroup *group, const MxValue *in, int n_in,
                             const void *attr, MxValue *out) {
    Ring r = ring_of(t, group, in, n_in, attr, OPS_OF_GRADIENT);
    MxValue keys[2] = {in[K], in[V]}, coming[2], sum[] = {MX_NONE, MX_NONE, MX_NONE};
    MxValue back[2] = {MX_NONE, MX_NONE}, sinks = MX_NONE;
    for (int at = 0, next; at < group->size; at = next) {
        next = next_distance(&r, at);
        fetch(&r, next, coming);
        MxValue one = meet(&r, &op_attention_grad, keys, at);
        sum[Q] = added(t, sum[Q], one + Q);
        for (int i = 0; i < 2; i++) {
            if (back[i] != MX_NONE) sum[K + i] = added(t, sum[K + i], back[i]);
            if (at)
                back[i] = returned(&r, one + K + i, at);
            else
                sum[K + i] = added(t, MX_NONE, one + K + i);
        }
        if (!at) sinks = one + SEGMENTS;
        memcpy(keys, coming, sizeof keys);
    }
    for (int i = 0; i < 2; i++)
        if (back[i] != MX_NONE) sum[K + i] = added(t, sum[K + i], back[i]);
    for (int i = 0; i < SEGMENTS; i++) out[i] = mx_cast(t, sum[i], mx_trace_type(t, in[i]).dtype);
    out[SEGMENTS] = sinks;
}
