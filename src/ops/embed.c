/* embed.c — looking up rows of the embedding table. */
#include <mx/ops.h>

#include "internal.h"

MxValue mx_embed(MxTrace *t, MxValue table, MxValue ids, MxDtype dtype) {
    MxEmbedAttr attr = {.dtype = dtype};
    return mx_trace_node(t, &op_embed, (MxValue[]){table, ids}, 2, &attr);
}

static bool embed_infer(MxInfer *infer) {
    MxShape ids = infer->in[1].shape;
    MxDtype dtype = ((const MxEmbedAttr *)infer->attr)->dtype;
    infer->out[0] = (MxType){dtype, MX_SHAPE(ids.dim[0], ids.dim[1], infer->in[0].shape.dim[1])};
    return ops_is_real(infer, 0) && ops_is(infer, 0, infer->in[0].dtype, 2) &&
           ops_is(infer, 1, MX_I32, 2);
}

static void embed_vjp(const MxVjp *v) {
    MxEmbedGradAttr attr = {.vocab = mx_trace_type(v->t, v->in[0]).shape.dim[0]};
    v->dx[0] = mx_trace_node(v->t, &op_embed_grad, (MxValue[]){v->in[1], v->dy[0]}, 2, &attr);
    v->dx[1] = MX_NONE;
}

enum { B, T, D, V, CUT_FACTORS };

/* A rank with part of the vocabulary makes zeros for the tokens that it lacks. */
static void embed_cut(MxFactors *f) {
    static const int table[] = {V, D}, out[] = {B, T, D};
    for (int i = 0; i < CUT_FACTORS; i++) ops_new_factor(f);
    memcpy(f->in_dim[0], table, sizeof table);
    memcpy(f->in_dim[1], out, 2 * sizeof *out);
    memcpy(f->out_dim[0], out, sizeof out);
}

static void embed_localize(const MxShare *share, void *attr) {
    MxEmbedAttr *a = attr;
    a->n_parts = share->group[V].size;
    a->first_id = share->start[V];
}

const MxOp op_embed = {
    .name = "embed",
    .arity = 2,
    .attr_bytes = sizeof(MxEmbedAttr),
    .infer = embed_infer,
    .vjp = embed_vjp,
    .partition = embed_cut,
    .localize = embed_localize,
    .doc = "rows of a table by ids",
};

static bool embed_grad_infer(MxInfer *infer) {
    int64_t vocab = ((const MxEmbedGradAttr *)infer->attr)->vocab;
    MxShape ids = infer->in[0].shape, dy = infer->in[1].shape;
    if (!ops_is(infer, 0, MX_I32, 2) || !ops_is_real(infer, 1)) return false;
    if (dy.rank != 3 || dy.dim[0] != ids.dim[0] || dy.dim[1] != ids.dim[1])
        return mx_infer_fail(infer, "dy must be [B, T, D] for ids [B, T]");
    infer->out[0] = (MxType){MX_F32, MX_SHAPE(vocab, dy.dim[2])};
    return true;
}

static void embed_grad_cut(MxFactors *f) {
    static const int table[] = {V, D}, dy[] = {B, T, D};
    for (int i = 0; i < CUT_FACTORS; i++) ops_new_factor(f);
    memcpy(f->in_dim[0], dy, 2 * sizeof *dy);
    memcpy(f->in_dim[1], dy, sizeof dy);
    memcpy(f->out_dim[0], table, sizeof table);
}

static void embed_grad_localize(const MxShare *share, void *attr) {
    MxEmbedGradAttr *a = attr;
    a->vocab = share->out[0].shape.dim[0];
    a->first_id = share->start[V];
}

const MxOp op_embed_grad = {
    .name = "embed_grad",
    .arity = 2,
    .accumulates = 1,
    .attr_bytes = sizeof(MxEmbedGradAttr),
    .infer = embed_grad_infer,
    .partition = embed_grad_cut,
    .localize = embed_grad_localize,
    .doc = "dtable (f32) from ids, dy; rows of repeated ids add up",
};

/* ---- rows of whole numbers */

MxValue mx_row_ids(MxTrace *t, MxValue table, MxValue ids) {
    return mx_trace_node(t, &op_row_ids, (MxValue[]){table, ids}, 2, NULL);
}

static bool row_ids_infer(MxInfer *infer) {
    MxShape ids = infer->in[1].shape;
    if (!ops_is_real(infer, 0) || !ops_is(infer, 0, infer->in[0].dtype, 2) ||
        !ops_is(infer, 1, MX_I32, 2))
        return false;
    infer->out[0] = (MxType){MX_I32, MX_SHAPE(ids.dim[0], ids.dim[1], infer->in[0].shape.dim[1])};
    return true;
}

static void row_ids_cut(MxFactors *f) {
    for (int d = 0; d < 2; d++) f->in_dim[1][d] = f->out_dim[0][d] = ops_new_factor(f);
}

const MxOp op_row_ids = {
    .name = "row_ids",
    .arity = 2,
    .flags = MX_OP_CONSTANT,
    .infer = row_ids_infer,
    .partition = row_ids_cut,
    .doc = "rows of a table of whole numbers by ids, as integers",
};
