/* dropout.c — what is left to chance: dropout, whose gradient drops the same elements, noise, and
 * indices that are drawn. */
#include <mx/ops.h>

#include "internal.h"

enum { X, ROWS, STEP, INPUTS };

MxValue mx_dropout(MxTrace *t, MxValue x, MxValue rows, MxValue step, MxRandomAttr attr) {
    attr.whole = mx_trace_type(t, x).shape;
    return mx_trace_node(t, &op_dropout, (MxValue[]){x, rows, step}, INPUTS, &attr);
}

/* The rows and the step that a random sequence is of. */
static bool has_sequence(MxInfer *infer) {
    MxShape x = infer->in[X].shape;
    if (!ops_is(infer, ROWS, MX_I32, 1) || !ops_is(infer, STEP, MX_I32, 0)) return false;
    return (x.rank >= 2 && x.dim[0] == infer->in[ROWS].shape.dim[0]) ||
           mx_infer_fail(infer, "rows must have x's first dim");
}

static bool random_infer(MxInfer *infer) {
    const MxRandomAttr *attr = infer->attr;
    MxShape x = infer->in[X].shape;
    infer->out[0] = infer->in[X];
    if (!ops_is_real(infer, X) || !has_sequence(infer)) return false;
    bool is_part = x.rank == attr->whole.rank;
    for (int d = 1; is_part && d < x.rank; d++)
        is_part = attr->first[d] >= 0 && attr->first[d] + x.dim[d] <= attr->whole.dim[d];
    return is_part || mx_infer_fail(infer, "x is no part of the whole");
}

static bool dropout_infer(MxInfer *infer) {
    const MxRandomAttr *attr = infer->attr;
    return random_infer(infer) &&
           ((attr->amount >= 0 && attr->amount <= 1) ||
            mx_infer_fail(infer, "a rate of %g is not within 0 and 1", attr->amount));
}

static void dropout_vjp(const MxVjp *v) {
    MxValue in[] = {[X] = v->dy[0], [ROWS] = v->in[ROWS], [STEP] = v->in[STEP]};
    v->dx[X] = mx_trace_node(v->t, &op_dropout, in, INPUTS, v->attr);
}

static void random_cut(MxFactors *f) {
    ops_cut_alike(f);
    f->in_dim[ROWS][0] = f->out_dim[0][0];
}

static void dropout_cut(MxFactors *f) {
    random_cut(f);
    f->linear = 1u << X;
}

static void random_localize(const MxShare *share, void *attr) {
    MxRandomAttr *a = attr;
    for (int d = 1; d < share->out[0].shape.rank; d++) a->first[d] = share->start[d];
}

static void random_print(MxText *text, const void *attr) {
    const MxRandomAttr *a = attr;
    mx_text_add(text, "%.9g stream %llu", a->amount, (unsigned long long)a->stream);
    if (a->by_column) mx_text_add(text, " by column");
    for (int d = 1; d < a->whole.rank; d++)
        if (a->first[d]) mx_text_add(text, " dim %d from %lld", d, (long long)a->first[d]);
}

const MxOp op_dropout = {
    .name = "dropout",
    .arity = INPUTS,
    .inplace = 1,
    .attr_bytes = sizeof(MxRandomAttr),
    .infer = dropout_infer,
    .vjp = dropout_vjp,
    .partition = dropout_cut,
    .localize = random_localize,
    .print = random_print,
    .doc = "x without elements, or columns, that are left out by chance",
};

/* ---- noise */

MxValue mx_noise(MxTrace *t, MxValue x, MxValue rows, MxValue step, MxRandomAttr attr) {
    attr.whole = mx_trace_type(t, x).shape;
    return mx_trace_node(t, &op_noise, (MxValue[]){x, rows, step}, INPUTS, &attr);
}

static bool noise_infer(MxInfer *infer) {
    const MxRandomAttr *attr = infer->attr;
    return random_infer(infer) &&
           (attr->amount >= 0 || mx_infer_fail(infer, "a range of %g is below 0", attr->amount));
}

static void noise_vjp(const MxVjp *v) {
    v->dx[X] = v->dy[0];
}

const MxOp op_noise = {
    .name = "noise",
    .arity = INPUTS,
    .inplace = 1,
    .attr_bytes = sizeof(MxRandomAttr),
    .infer = noise_infer,
    .vjp = noise_vjp,
    .partition = random_cut,
    .localize = random_localize,
    .print = random_print,
    .doc = "x plus uniform noise",
};

/* ---- indices */

enum { CUT_B, CUT_T, CUT_DIMS };

MxValue mx_draw_ids(MxTrace *t, MxValue x, MxValue rows, MxValue step, MxDrawIdsAttr attr) {
    MxShape shape = mx_trace_type(t, x).shape;
    attr.length = shape.rank == 3 ? shape.dim[1] : 0;
    return mx_trace_node(t, &op_draw_ids, (MxValue[]){x, rows, step}, INPUTS, &attr);
}

static bool draw_ids_infer(MxInfer *infer) {
    const MxDrawIdsAttr *attr = infer->attr;
    MxShape x = infer->in[X].shape;
    if (!ops_is(infer, X, MX_F32, 3) || !has_sequence(infer)) return false;
    if (attr->first < 0 || attr->first + x.dim[1] > attr->length)
        return mx_infer_fail(infer, "x is no part of rows of %lld", (long long)attr->length);
    if (attr->k < 1 || x.dim[2] < 1 || x.dim[2] > INT32_MAX)
        return mx_infer_fail(infer, "cannot draw %lld of %lld", (long long)attr->k,
                             (long long)x.dim[2]);
    infer->out[0] = (MxType){MX_I32, MX_SHAPE(x.dim[0], x.dim[1], attr->k)};
    return true;
}

static void draw_ids_cut(MxFactors *f) {
    ops_cut_lead(f, CUT_DIMS, 1u << X);
    for (int d = 0; d < CUT_DIMS; d++) f->out_dim[0][d] = f->in_dim[X][d];
    f->in_dim[ROWS][0] = f->in_dim[X][CUT_B];
}

static void draw_ids_localize(const MxShare *share, void *attr) {
    ((MxDrawIdsAttr *)attr)->first = share->start[CUT_T];
}

static void draw_ids_print(MxText *text, const void *attr) {
    const MxDrawIdsAttr *a = attr;
    mx_text_add(text, "%lld stream %llu", (long long)a->k, (unsigned long long)a->stream);
    if (a->first) mx_text_add(text, " from %lld", (long long)a->first);
}

const MxOp op_draw_ids = {
    .name = "draw_ids",
    .arity = INPUTS,
    .flags = MX_OP_CONSTANT,
    .attr_bytes = sizeof(MxDrawIdsAttr),
    .infer = draw_ids_infer,
    .partition = draw_ids_cut,
    .localize = draw_ids_localize,
    .print = draw_ids_print,
    .doc = "indices of the last dim by chance",
};
