/* move.c — ops that move elements. */
#include <mx/ops.h>

#include "internal.h"

MxValue mx_shift(MxTrace *t, MxValue x, MxValue segments, int64_t offset) {
    MxShiftAttr attr = {.offset = offset};
    return mx_trace_node(t, &op_shift, (MxValue[]){x, segments}, 2, &attr);
}

static bool shift_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    return ops_is(infer, 0, MX_I32, 2) && ops_same_type(infer, 0, 1);
}

/* Rows; an element's neighbour is in its own. */
static void shift_cut(MxFactors *f) {
    ops_cut_lead(f, 1, 3);
    f->out_dim[0][0] = f->in_dim[0][0];
}

const MxOp op_shift = {
    .name = "shift",
    .arity = 2,
    .flags = MX_OP_CONSTANT,
    .attr_bytes = sizeof(MxShiftAttr),
    .infer = shift_infer,
    .partition = shift_cut,
    .doc = "every element the one to its right, as long as a segment goes on",
};

MxValue mx_concat(MxTrace *t, MxValue x, MxValue y) {
    return mx_trace_node(t, &op_concat, (MxValue[]){x, y}, 2, NULL);
}

/* Whether all of the dim before the last of `one` share what `other` has once. */
static bool shares(MxShape one, MxShape other) {
    int d = one.rank - 2;
    return d >= 0 && one.dim[d] != other.dim[d] && other.dim[d] == 1;
}

static bool concat_infer(MxInfer *infer) {
    MxShape x = infer->in[0].shape, y = infer->in[1].shape;
    if (!ops_is_real(infer, 0)) return false;
    bool fits = x.rank > 0 && x.rank == y.rank && infer->in[0].dtype == infer->in[1].dtype;
    if (fits && shares(x, y)) y.dim[y.rank - 2] = x.dim[x.rank - 2];
    for (int i = 0; fits && i < x.rank - 1; i++) fits = x.dim[i] == y.dim[i];
    if (!fits) return mx_infer_fail(infer, "y must be of x's dtype and dims but the last");
    infer->out[0] = infer->in[0];
    infer->out[0].shape.dim[x.rank - 1] += y.dim[x.rank - 1];
    return true;
}

static void concat_vjp(const MxVjp *v) {
    MxShape x = mx_trace_type(v->t, v->in[0]).shape, y = mx_trace_type(v->t, v->in[1]).shape;
    MxSplitAttr attr = {.width = x.rank ? x.dim[x.rank - 1] : 0, .is_shared = shares(x, y)};
    MxValue dx = mx_trace_node(v->t, &op_split, v->dy, 1, &attr);
    v->dx[0] = dx;
    v->dx[1] = dx < 0 ? MX_NONE : dx + 1;
}

static void concat_cut(MxFactors *f) {
    int lead = f->out[0].shape.rank - 1;
    ops_cut_lead(f, lead, 3);
    for (int d = 0; d < lead; d++) f->out_dim[0][d] = f->in_dim[0][d];
    if (shares(f->in[0].shape, f->in[1].shape)) f->in_dim[1][lead - 1] = MX_WHOLE;
    f->linear = 3;
}

const MxOp op_concat = {
    .name = "concat",
    .arity = 2,
    .infer = concat_infer,
    .vjp = concat_vjp,
    .partition = concat_cut,
    .doc = "two arrays side by side in the last dim",
};

MxValue mx_split(MxTrace *t, MxValue x, int64_t m) {
    return mx_trace_node(t, &op_split, &x, 1, &(MxSplitAttr){.width = m});
}

static bool split_infer(MxInfer *infer) {
    const MxSplitAttr *attr = infer->attr;
    int64_t width = attr->width;
    MxShape shape = infer->in[0].shape;
    if (!ops_is_real(infer, 0)) return false;
    if (!shape.rank || shape.dim[shape.rank - 1] < width)
        return mx_infer_fail(infer, "x has no last dim of %lld and more", (long long)width);
    infer->n_out = 2;
    infer->out[0] = infer->out[1] = infer->in[0];
    infer->out[0].shape.dim[shape.rank - 1] = width;
    infer->out[1].shape.dim[shape.rank - 1] -= width;
    if (attr->is_shared && shape.rank < 2)
        return mx_infer_fail(infer, "x has no dim before the last");
    if (attr->is_shared) infer->out[1].shape.dim[shape.rank - 2] = 1;
    return true;
}

/* A part that nobody differentiates has no cotangent: zeros stand in its place. */
static void split_vjp(const MxVjp *v) {
    MxValue dy[2];
    for (int i = 0; i < 2; i++)
        dy[i] = v->dy[i] != MX_NONE
                    ? v->dy[i]
                    : mx_init(v->t, (MxInitAttr){.type = mx_trace_type(v->t, v->out[i])});
    v->dx[0] = mx_concat(v->t, dy[0], dy[1]);
}

static void split_cut(MxFactors *f) {
    int lead = f->in[0].shape.rank - 1;
    ops_cut_lead(f, lead, 1);
    for (int d = 0; d < lead; d++) f->out_dim[0][d] = f->out_dim[1][d] = f->in_dim[0][d];
    if (((const MxSplitAttr *)f->attr)->is_shared) f->out_dim[1][lead - 1] = MX_WHOLE;
    f->linear = 1;
}

const MxOp op_split = {
    .name = "split",
    .arity = 1,
    .attr_bytes = sizeof(MxSplitAttr),
    .infer = split_infer,
    .vjp = split_vjp,
    .partition = split_cut,
    .doc = "two arrays that stand side by side in the last dim, apart",
};

/* ---- every n-th number */

MxValue mx_every(MxTrace *t, MxValue x, int64_t n) {
    return mx_trace_node(t, &op_every, &x, 1, &(MxEveryAttr){n});
}

static bool every_infer(MxInfer *infer) {
    int64_t n = ((const MxEveryAttr *)infer->attr)->n;
    MxShape x = infer->in[0].shape;
    if (!ops_is(infer, 0, MX_I32, 2)) return false;
    if (n < 1 || n > x.dim[1])
        return mx_infer_fail(infer, "every %lldth of %lld there is not", (long long)n,
                             (long long)x.dim[1]);
    infer->out[0] = (MxType){MX_I32, MX_SHAPE(x.dim[0], x.dim[1] / n)};
    return true;
}

static void every_cut(MxFactors *f) {
    ops_cut_lead(f, 1, 1);
    f->out_dim[0][0] = f->in_dim[0][0];
}

static void every_print(MxText *text, const void *attr) {
    mx_text_add(text, "%lld", (long long)((const MxEveryAttr *)attr)->n);
}

const MxOp op_every = {
    .name = "every",
    .arity = 1,
    .flags = MX_OP_CONSTANT,
    .attr_bytes = sizeof(MxEveryAttr),
    .infer = every_infer,
    .partition = every_cut,
    .print = every_print,
    .doc = "every n-th integer of a row",
};

/* ---- bits up to a number */

MxValue mx_first_bits(MxTrace *t, MxValue last, int64_t n) {
    return mx_trace_node(t, &op_first_bits, &last, 1, &(MxFirstBitsAttr){n});
}

static bool first_bits_infer(MxInfer *infer) {
    int64_t n = ((const MxFirstBitsAttr *)infer->attr)->n;
    MxShape last = infer->in[0].shape;
    if (!ops_is(infer, 0, MX_I32, 2)) return false;
    infer->out[0] = (MxType){MX_I32, MX_SHAPE(last.dim[0], last.dim[1], ops_words_of(n))};
    return n > 0 || mx_infer_fail(infer, "wants at least one bit");
}

static void first_bits_cut(MxFactors *f) {
    for (int d = 0; d < 2; d++) f->in_dim[0][d] = f->out_dim[0][d] = ops_new_factor(f);
}

static void first_bits_print(MxText *text, const void *attr) {
    mx_text_add(text, "of %lld", (long long)((const MxFirstBitsAttr *)attr)->n);
}

const MxOp op_first_bits = {
    .name = "first_bits",
    .arity = 1,
    .flags = MX_OP_CONSTANT,
    .attr_bytes = sizeof(MxFirstBitsAttr),
    .infer = first_bits_infer,
    .partition = first_bits_cut,
    .print = first_bits_print,
    .doc = "bits that are set up to a number",
};
