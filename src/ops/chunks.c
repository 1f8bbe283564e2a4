/* chunks.c — mixture of block attention: the chunks of keys that each query of a head reads, chosen
 * by the products of the query with the chunks' mean keys. */
#include <mx/ops.h>

#include "internal.h"

enum { Q, K, POSITIONS, SEQUENCES };

MxValue mx_chunks(MxTrace *t, MxValue q, MxValue k, MxChunksAttr attr) {
    return mx_trace_node(t, &op_chunks, (MxValue[]){q, k}, 2, &attr);
}

MxValue mx_cache_chunks(MxTrace *t, MxValue q, MxValue k, MxCachePlace place, MxChunksAttr attr) {
    MxValue in[] = {q, k, place.positions, place.sequences};
    return mx_trace_node(t, &op_cache_chunks, in, MX_COUNT(in), &attr);
}

int64_t ops_chunk_words(int64_t keys, int64_t chunk) {
    return ops_words_of((keys + chunk - 1) / chunk);
}

bool ops_are_chunks(const MxInfer *infer, int i, int queries, int64_t keys, int64_t chunk) {
    MxShape shape = infer->in[queries].shape;
    shape.dim[3] = ops_chunk_words(keys, chunk);
    return infer->in[i].dtype == MX_I32 && mx_shape_equal(infer->in[i].shape, shape);
}

/* Heads and sizes; sets the output. */
static bool infer(MxInfer *infer) {
    const MxChunksAttr *a = infer->attr;
    MxShape q = infer->in[Q].shape, k = infer->in[K].shape;
    if (!ops_is_real(infer, Q) || !ops_is(infer, K, infer->in[Q].dtype, 4)) return false;
    if (q.rank != 4 || k.dim[1] < 1 || k.dim[2] < 1 || q.dim[2] % k.dim[2] || q.dim[3] != k.dim[3])
        return mx_infer_fail(infer, "k must be [.., .., K, H], with heads that divide those of q");
    if (a->chunk < 1 || a->n_best < 1)
        return mx_infer_fail(infer, "a query must see at least one chunk of at least one key");
    infer->out[0] = (MxType){
        MX_I32, MX_SHAPE(q.dim[0], q.dim[1], q.dim[2], ops_chunk_words(k.dim[1], a->chunk))};
    return true;
}

static bool chunks_infer(MxInfer *in) {
    const MxChunksAttr *a = in->attr;
    MxShape q = in->in[Q].shape, k = in->in[K].shape;
    if (!infer(in)) return false;
    bool fits = a->is_part ? a->first_query + q.dim[1] <= k.dim[1] : q.dim[1] == k.dim[1];
    return (q.dim[0] == k.dim[0] && fits) ||
           mx_infer_fail(in, "q must have the tokens of k, or a part of them");
}

/* A query against half of all chunks, and what makes their means. */
static double chunks_flops(const MxType *in, const MxType *out, const void *attr) {
    MxShape q = in[Q].shape, k = in[K].shape;
    double chunks = (double)k.dim[1] / (double)((const MxChunksAttr *)attr)->chunk;
    (void)out;
    return (double)mx_shape_count(q) * chunks + (double)mx_shape_count(k);
}

/* Sequences, queries, and heads with those of their keys; keys are there whole. */
enum { CUT_B, CUT_T, CUT_N, CUT_FACTORS };

static void chunks_cut(MxFactors *f) {
    for (int i = 0; i < CUT_FACTORS; i++) {
        ops_new_factor(f);
        f->in_dim[Q][i] = f->out_dim[0][i] = i;
    }
    f->in_dim[K][0] = CUT_B;
    f->in_dim[K][2] = CUT_N;
}

static void chunks_localize(const MxShare *share, void *attr) {
    MxChunksAttr *a = attr;
    a->is_part = share->is_cut[CUT_T];
    a->first_query = share->start[CUT_T];
}

static void chunks_print(MxText *text, const void *attr) {
    const MxChunksAttr *a = attr;
    mx_text_add(text, "%lld of %lld", (long long)a->n_best, (long long)a->chunk);
    if (a->is_part) mx_text_add(text, " from query %lld", (long long)a->first_query);
}

const MxOp op_chunks = {
    .name = "chunks",
    .arity = K + 1,
    .flags = MX_OP_CONSTANT | MX_OP_IS_KEPT,
    .attr_bytes = sizeof(MxChunksAttr),
    .infer = chunks_infer,
    .partition = chunks_cut,
    .localize = chunks_localize,
    .flops = chunks_flops,
    .print = chunks_print,
    .doc = "the chunks of keys that a query of a head reads, a bit each",
};

static bool cache_chunks_infer(MxInfer *in) {
    MxShape q = in->in[Q].shape;
    return infer(in) && ops_is_place(in, POSITIONS, q.dim[0], q.dim[1]);
}

static void cache_chunks_cut(MxFactors *f) {
    int n = ops_new_factor(f), t = ops_new_factor(f);
    f->in_dim[Q][2] = f->in_dim[K][2] = f->out_dim[0][2] = n;
    f->in_dim[Q][1] = f->in_dim[POSITIONS][1] = f->out_dim[0][1] = t;
}

const MxOp op_cache_chunks = {
    .name = "cache_chunks",
    .arity = SEQUENCES + 1,
    .flags = MX_OP_CONSTANT,
    .attr_bytes = sizeof(MxChunksAttr),
    .infer = cache_chunks_infer,
    .partition = cache_chunks_cut,
    .flops = chunks_flops,
    .print = chunks_print,
    .doc = "the chunks of cached keys that a query of a head reads, a bit each",
};
