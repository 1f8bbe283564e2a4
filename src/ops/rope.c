/* rope.c — rotary position embedding: a table of cos and sin, computed once a step, and the
 * rotation. */
#include <mx/ops.h>

#include "internal.h"

MxValue mx_rope_table_of(MxTrace *t, int n_kinds, const MxValue *positions, MxRopeFreqs freqs) {
    MxRopeTableAttr attr = {.freqs = freqs};
    return mx_trace_node(t, &op_rope_table, positions, n_kinds, &attr);
}

MxValue mx_rope_table(MxTrace *t, MxValue positions, MxRopeFreqs freqs) {
    freqs.kind = NULL;
    return mx_rope_table_of(t, 1, &positions, freqs);
}

static bool rope_table_infer(MxInfer *infer) {
    const MxRopeFreqs *freqs = &((const MxRopeTableAttr *)infer->attr)->freqs;
    MxShape positions = infer->in[0].shape;
    infer->out[0] = (MxType){MX_F32, MX_SHAPE(positions.dim[0], positions.dim[1], freqs->n, 2)};
    for (int k = 0; k < infer->n_in; k++)
        if (!ops_is(infer, k, MX_I32, 2)) return false;
    for (int k = 1; k < infer->n_in; k++)
        if (!mx_shape_equal(infer->in[k].shape, positions))
            return mx_infer_fail(infer, "positions must have one shape");
    for (int i = 0; freqs->kind && i < freqs->n; i++) MX_ASSERT(freqs->kind[i] < infer->n_in);
    return true;
}

static void rope_table_cut(MxFactors *f) {
    ops_cut_lead(f, 2, 1);
    for (int d = 0; d < 2; d++) {
        f->out_dim[0][d] = f->in_dim[0][d];
        for (int k = 1; k < f->n_in; k++) f->in_dim[k][d] = f->in_dim[0][d];
    }
}

const MxOp op_rope_table = {
    .name = "rope_table",
    .arity = 1,
    .optional = MX_ROPE_MOST_KINDS - 1,
    .flags = MX_OP_CONSTANT,
    .attr_bytes = sizeof(MxRopeTableAttr),
    .infer = rope_table_infer,
    .partition = rope_table_cut,
    .doc = "cos and sin of positions times frequencies",
};

MxValue mx_rope(MxTrace *t, MxValue x, MxValue table, MxRopeAttr attr) {
    return mx_trace_node(t, &op_rope, (MxValue[]){x, table}, 2, &attr);
}

static bool rope_infer(MxInfer *infer) {
    MxShape x = infer->in[0].shape, table = infer->in[1].shape;
    infer->out[0] = infer->in[0];
    if (!ops_is_real(infer, 0) || !ops_is(infer, 1, MX_F32, 4)) return false;
    int64_t first = ((const MxRopeAttr *)infer->attr)->first, end = first + 2 * table.dim[2];
    if (x.rank == 4 && x.dim[0] == table.dim[0] && x.dim[1] == table.dim[1] && first >= 0 &&
        x.dim[3] >= end && table.dim[3] == 2)
        return true;
    return mx_infer_fail(infer, "x must be [B, T, N, 2n], or wider, for a table [B, T, n, 2]");
}

/* A rotation's transpose is its inverse; the two layouts change places. */
static void rope_vjp(const MxVjp *v) {
    MxRopeAttr attr = *(const MxRopeAttr *)v->attr;
    bool in = attr.interleaved_in;
    attr.interleaved_in = attr.interleaved_out;
    attr.interleaved_out = in;
    attr.inverse = !attr.inverse;
    v->dx[0] = mx_rope(v->t, v->dy[0], v->in[1], attr);
    v->dx[1] = MX_NONE;
}

static void rope_print(MxText *text, const void *attr) {
    const MxRopeAttr *a = attr;
    mx_text_add(text, "%s to %s%s", a->interleaved_in ? "interleaved" : "halves",
                a->interleaved_out ? "interleaved" : "halves", a->inverse ? " inverse" : "");
    if (a->first) mx_text_add(text, " from %lld", (long long)a->first);
}

/* Tokens and heads; the table has no heads. */
static void rope_cut(MxFactors *f) {
    enum { B_T_N = 3 };
    ops_cut_lead(f, B_T_N, 1);
    for (int d = 0; d < B_T_N; d++) f->out_dim[0][d] = f->in_dim[0][d];
    for (int d = 0; d < 2; d++) f->in_dim[1][d] = f->in_dim[0][d];
}

const MxOp op_rope = {
    .name = "rope",
    .arity = 2,
    .attr_bytes = sizeof(MxRopeAttr),
    .infer = rope_infer,
    .vjp = rope_vjp,
    .partition = rope_cut,
    .print = rope_print,
    .doc = "rotates pairs of each head, or of a part of it, by the table's angles",
};
