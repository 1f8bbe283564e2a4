/* pool.c — windows of consecutive tokens: pooling their rows into one, and which of them a token
 * sees; the same for pieces of sequences whose rows are in caches. */
#include <mx/ops.h>

#include "internal.h"

static bool is_ratio(MxInfer *infer, int64_t ratio) {
    return ratio >= 1 || mx_infer_fail(infer, "a window must have at least one token");
}

/* Checks that a row of T tokens has a window. */
static bool has_windows(MxInfer *infer, int64_t T, int64_t ratio) {
    if (!is_ratio(infer, ratio)) return false;
    return T >= ratio || mx_infer_fail(infer, "rows of %lld tokens have no window of %lld",
                                       (long long)T, (long long)ratio);
}

/* ---- pooling. The gradient's inputs are the same and the cotangent. */

enum { X, GATES, BIAS, SEGMENTS, DY };

MxValue mx_pool(MxTrace *t, MxValue x, MxValue gates, MxValue bias, MxValue segments,
                MxPoolAttr attr) {
    return mx_trace_node(t, &op_pool, (MxValue[]){x, gates, bias, segments}, DY, &attr);
}

/* Checks x, gates and bias. */
static bool check_rows(MxInfer *infer) {
    const MxPoolAttr *attr = infer->attr;
    MxShape x = infer->in[X].shape, bias = infer->in[BIAS].shape;
    if (!ops_is_real(infer, X) || !ops_same_type(infer, X, GATES) ||
        !ops_is(infer, BIAS, MX_F32, 2) || !is_ratio(infer, attr->ratio))
        return false;
    if (x.rank != 3 || x.dim[1] < 1 || bias.dim[0] != attr->ratio || bias.dim[1] != x.dim[2])
        return mx_infer_fail(infer, "x must be [B, T, E] or a cache [S, C, E], the bias [R, E]");
    return !attr->overlaps || x.dim[2] % 2 == 0 ||
           mx_infer_fail(infer, "rows of windows that overlap must have two halves");
}

static bool check_pool(MxInfer *infer) {
    const MxPoolAttr *attr = infer->attr;
    MxShape x = infer->in[X].shape, s = infer->in[SEGMENTS].shape;
    if (!check_rows(infer) || !ops_is(infer, SEGMENTS, MX_I32, 2)) return false;
    if (s.dim[0] != x.dim[0] || s.dim[1] != x.dim[1])
        return mx_infer_fail(infer, "segments must be [B, T]");
    return has_windows(infer, x.dim[1], attr->ratio);
}

/* Of so many pooled rows for each of B. */
static MxType pooled_type(const MxInfer *infer, int64_t B, int64_t rows) {
    MxType x = infer->in[X];
    int64_t halves = ((const MxPoolAttr *)infer->attr)->overlaps ? 2 : 1;
    return (MxType){x.dtype, MX_SHAPE(B, rows, x.shape.dim[2] / halves)};
}

/* Of all windows of x. */
static MxType windows_type(const MxInfer *infer) {
    MxShape x = infer->in[X].shape;
    return pooled_type(infer, x.dim[0], x.dim[1] / ((const MxPoolAttr *)infer->attr)->ratio);
}

static bool pool_infer(MxInfer *infer) {
    if (!check_pool(infer)) return false;
    infer->out[0] = windows_type(infer);
    return true;
}

static void pool_vjp(const MxVjp *v) {
    MxValue in[DY + 1] = {[DY] = v->dy[0]};
    memcpy(in, v->in, DY * sizeof *in);
    MxValue dx = mx_trace_node(v->t, &op_pool_grad, in, DY + 1, v->attr);
    for (int i = 0; i < SEGMENTS; i++) v->dx[i] = dx < 0 ? MX_NONE : dx + i;
}

/* Rows are cut; the bias's gradient is a sum over them. */
static void pool_cut(MxFactors *f) {
    int row = ops_new_factor(f);
    for (int i = 0; i < f->n_in; i++)
        if (i != BIAS) f->in_dim[i][0] = row;
    for (int i = 0; i < f->n_out; i++)
        if (i != BIAS) f->out_dim[i][0] = row;
}

static void pool_print(MxText *text, const void *attr) {
    const MxPoolAttr *a = attr;
    mx_text_add(text, "%lld%s", (long long)a->ratio, a->overlaps ? " overlaps" : "");
}

const MxOp op_pool = {
    .name = "pool",
    .arity = DY,
    .attr_bytes = sizeof(MxPoolAttr),
    .infer = pool_infer,
    .vjp = pool_vjp,
    .partition = pool_cut,
    .print = pool_print,
    .doc = "means of windows of rows, weighted by a softmax of gates plus a bias",
};

static bool pool_grad_infer(MxInfer *infer) {
    if (!check_pool(infer)) return false;
    MxType y = windows_type(infer);
    infer->n_out = SEGMENTS;
    for (int i = 0; i < SEGMENTS; i++) infer->out[i] = infer->in[i];
    return (infer->in[DY].dtype == y.dtype && mx_shape_equal(infer->in[DY].shape, y.shape)) ||
           mx_infer_fail(infer, "dy must be [B, W, H] of x's dtype");
}

const MxOp op_pool_grad = {
    .name = "pool_grad",
    .arity = DY + 1,
    .attr_bytes = sizeof(MxPoolAttr),
    .infer = pool_grad_infer,
    .partition = pool_cut,
    .print = pool_print,
    .doc = "dx, dgates, dbias (f32) from x, gates, bias, segments, dy",
};

/* ---- the windows that tokens see */

MxValue mx_windows(MxTrace *t, MxValue segments, int64_t ratio) {
    return mx_trace_node(t, &op_windows, &segments, 1, &(MxWindowsAttr){ratio});
}

static bool windows_infer(MxInfer *infer) {
    int64_t ratio = ((const MxWindowsAttr *)infer->attr)->ratio;
    MxShape s = infer->in[0].shape;
    if (!ops_is(infer, 0, MX_I32, 2) || !has_windows(infer, s.dim[1], ratio)) return false;
    infer->out[0] = (MxType){MX_I32, MX_SHAPE(s.dim[0], s.dim[1], ops_words_of(s.dim[1] / ratio))};
    return true;
}

static void windows_cut(MxFactors *f) {
    ops_cut_lead(f, 1, 1);
    f->out_dim[0][0] = f->in_dim[0][0];
}

static void windows_print(MxText *text, const void *attr) {
    mx_text_add(text, "%lld", (long long)((const MxWindowsAttr *)attr)->ratio);
}

const MxOp op_windows = {
    .name = "windows",
    .arity = 1,
    .flags = MX_OP_CONSTANT,
    .attr_bytes = sizeof(MxWindowsAttr),
    .infer = windows_infer,
    .partition = windows_cut,
    .print = windows_print,
    .doc = "the windows that are over and of a token's segment, a bit each",
};

/* ---- of pieces of sequences */

enum { POSITIONS = SEGMENTS, SEQUENCES, CACHE_INPUTS };

/* The windows that end with a piece of T tokens, at most. */
static int64_t most_windows(int64_t T, int64_t ratio) {
    return (T + ratio - 1) / ratio;
}

MxValue mx_cache_pool(MxTrace *t, const MxValue xs[2], MxValue bias, MxCachePlace place,
                      MxPoolAttr attr) {
    const MxValue in[] = {xs[0], xs[1], bias, place.positions, place.sequences};
    return mx_trace_node(t, &op_cache_pool, in, CACHE_INPUTS, &attr);
}

static bool cache_pool_infer(MxInfer *infer) {
    MxShape at = infer->in[POSITIONS].shape;
    if (!check_rows(infer) || !ops_is_place(infer, POSITIONS, at.dim[0], at.dim[1])) return false;
    int64_t ratio = ((const MxPoolAttr *)infer->attr)->ratio;
    infer->out[0] = pooled_type(infer, at.dim[0], most_windows(at.dim[1], ratio));
    return true;
}

const MxOp op_cache_pool = {
    .name = "cache_pool",
    .arity = CACHE_INPUTS,
    .attr_bytes = sizeof(MxPoolAttr),
    .infer = cache_pool_infer,
    .print = pool_print,
    .doc = "the same means of the windows that end with a piece, of rows in caches",
};

MxValue mx_cache_windows(MxTrace *t, MxCachePlace place, int64_t ratio) {
    return mx_trace_node(t, &op_cache_windows, &place.positions, 1, &(MxWindowsAttr){ratio});
}

static bool cache_windows_infer(MxInfer *infer) {
    int64_t ratio = ((const MxWindowsAttr *)infer->attr)->ratio;
    MxShape at = infer->in[0].shape;
    if (!ops_is(infer, 0, MX_I32, 2) || !is_ratio(infer, ratio)) return false;
    infer->out[0] = (MxType){MX_I32, MX_SHAPE(at.dim[0], most_windows(at.dim[1], ratio))};
    return true;
}

const MxOp op_cache_windows = {
    .name = "cache_windows",
    .arity = 1,
    .flags = MX_OP_CONSTANT,
    .attr_bytes = sizeof(MxWindowsAttr),
    .infer = cache_windows_infer,
    .print = windows_print,
    .doc = "the numbers of the windows that end with a piece",
};

MxValue mx_cache_last_window(MxTrace *t, MxCachePlace place, int64_t ratio) {
    return mx_trace_node(t, &op_cache_last_window, &place.positions, 1, &(MxWindowsAttr){ratio});
}

static bool cache_last_window_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    return ops_is(infer, 0, MX_I32, 2) &&
           is_ratio(infer, ((const MxWindowsAttr *)infer->attr)->ratio);
}

const MxOp op_cache_last_window = {
    .name = "cache_last_window",
    .arity = 1,
    .flags = MX_OP_CONSTANT,
    .attr_bytes = sizeof(MxWindowsAttr),
    .infer = cache_last_window_infer,
    .partition = ops_cut_alike,
    .print = windows_print,
    .doc = "the number of the last window that is over at each position",
};
