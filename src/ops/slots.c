/* slots.c — moving rows of tokens to the experts chosen for them, and back: an expert has a fixed
 * number of slots in each row of the batch. Experts are then an ordinary dim, which can be sharded:
 * rows travel to the ranks of their experts and back, and matrices stay where they are. */
#include <mx/ops.h>

#include "internal.h"

MxValue mx_to_slots(MxTrace *t, MxValue x, MxValue ids, MxSlotsAttr attr) {
    attr.sums = false;
    return mx_trace_node(t, &op_to_slots, (MxValue[]){x, ids}, 2, &attr);
}

MxValue mx_from_slots(MxTrace *t, MxValue y, MxValue ids, MxSlotsAttr attr) {
    return mx_trace_node(t, &op_from_slots, (MxValue[]){y, ids}, 2, &attr);
}

/* An expert that takes nothing has an empty slot. */
static int64_t n_slots(const MxSlotsAttr *attr) {
    return attr->capacity > 0 ? attr->capacity : 1;
}

static bool to_slots_infer(MxInfer *infer) {
    const MxSlotsAttr *attr = infer->attr;
    MxShape x = infer->in[0].shape, ids = infer->in[1].shape;
    if (!ops_is_real(infer, 0) || !ops_is(infer, 1, MX_I32, 3)) return false;
    bool fits = x.rank == 3 || x.rank == 4;
    for (int d = 0; fits && d < x.rank - 1; d++) fits = x.dim[d] == ids.dim[d];
    if (!fits) return mx_infer_fail(infer, "x must have a row for each token or choice");
    MxShape slots = MX_SHAPE(x.dim[0], attr->n_experts, n_slots(attr));
    infer->n_out = 2;
    infer->out[1] = (MxType){MX_I32, slots};
    slots.dim[slots.rank++] = x.dim[x.rank - 1];
    infer->out[0] = (MxType){infer->in[0].dtype, slots};
    return true;
}

static void to_slots_vjp(const MxVjp *v) {
    MxSlotsAttr back = *(const MxSlotsAttr *)v->attr;
    MxType x = mx_trace_type(v->t, v->in[0]);
    back.sums = x.shape.rank == mx_trace_type(v->t, v->in[1]).shape.rank;
    v->dx[0] = mx_from_slots(v->t, mx_cast(v->t, v->dy[0], x.dtype), v->in[1], back);
    v->dx[1] = MX_NONE;
}

/* Rows of the batch: which slot is a token's depends on all tokens before it, and who is there is
 * known only where rows are whole. */
static void to_slots_cut(MxFactors *f) {
    f->in_dim[0][0] = f->in_dim[1][0] = f->out_dim[0][0] = f->out_dim[1][0] = ops_new_factor(f);
}

static void slots_print(MxText *text, const void *attr) {
    const MxSlotsAttr *a = attr;
    mx_text_add(text, "%lld%s", (long long)a->capacity, a->sums ? " sums" : "");
}

const MxOp op_to_slots = {
    .name = "to_slots",
    .arity = 2,
    .no_gradient = 1 << 1,
    .attr_bytes = sizeof(MxSlotsAttr),
    .infer = to_slots_infer,
    .vjp = to_slots_vjp,
    .partition = to_slots_cut,
    .print = slots_print,
    .doc = "rows in the slots of their experts, and whose slots are taken",
};

static bool from_slots_infer(MxInfer *infer) {
    const MxSlotsAttr *attr = infer->attr;
    MxShape y = infer->in[0].shape, out = infer->in[1].shape;
    if (!ops_is_real(infer, 0) || !ops_is(infer, 1, MX_I32, 3)) return false;
    if (y.rank != 4 || y.dim[0] != out.dim[0] || y.dim[1] != attr->n_experts ||
        y.dim[2] != n_slots(attr))
        return mx_infer_fail(infer, "y must have the slots of every expert for each row of ids");
    out.rank -= attr->sums;
    out.dim[out.rank++] = y.dim[3];
    infer->out[0] = (MxType){infer->in[0].dtype, out};
    return true;
}

static void from_slots_vjp(const MxVjp *v) {
    MxType y = mx_trace_type(v->t, v->in[0]);
    MxValue dx = mx_cast(v->t, v->dy[0], y.dtype);
    v->dx[0] = mx_to_slots(v->t, dx, v->in[1], *(const MxSlotsAttr *)v->attr);
    v->dx[1] = MX_NONE;
}

static void from_slots_cut(MxFactors *f) {
    f->in_dim[0][0] = f->in_dim[1][0] = f->out_dim[0][0] = ops_new_factor(f);
    f->in_dim[0][3] = f->out_dim[0][f->out[0].shape.rank - 1] = ops_new_factor(f);
    f->linear = 1;
}

const MxOp op_from_slots = {
    .name = "from_slots",
    .arity = 2,
    .attr_bytes = sizeof(MxSlotsAttr),
    .infer = from_slots_infer,
    .vjp = from_slots_vjp,
    .partition = from_slots_cut,
    .print = slots_print,
    .doc = "rows of choices, or their sums, from the slots of their experts",
};
