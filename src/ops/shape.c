/* shape.c — ops that run no kernel: variables and views. */
#include <mx/ops.h>

#include "internal.h"

MxValue mx_variable(MxTrace *t, int var) {
    MxVariableAttr attr = {.var = var, .type = t->graph->vars->item[var].type};
    return mx_trace_node(t, &op_variable, NULL, 0, &attr);
}

static bool variable_infer(MxInfer *infer) {
    infer->out[0] = ((const MxVariableAttr *)infer->attr)->type;
    return true;
}

static void variable_print(MxText *text, const void *attr) {
    mx_text_add(text, "%d", ((const MxVariableAttr *)attr)->var);
}

const MxOp op_variable = {
    .name = "variable",
    .flags = MX_OP_SOURCE,
    .attr_bytes = sizeof(MxVariableAttr),
    .infer = variable_infer,
    .print = variable_print,
    .doc = "the content of a variable when the entry starts",
};

MxValue mx_detach(MxTrace *t, MxValue x) {
    return mx_trace_node(t, &op_detach, &x, 1, NULL);
}

const MxOp op_detach = {
    .name = "detach",
    .arity = 1,
    .flags = MX_OP_VIEW | MX_OP_CONSTANT,
    .infer = ops_infer_same,
    .partition = ops_cut_alike_linear,
    .doc = "x, without a gradient",
};

MxValue mx_reshape(MxTrace *t, MxValue x, MxShape shape) {
    MxReshapeAttr attr = {.shape = shape};
    return mx_trace_node(t, &op_reshape, &x, 1, &attr);
}

static bool reshape_infer(MxInfer *infer) {
    const MxReshapeAttr *attr = infer->attr;
    infer->out[0] = (MxType){.dtype = infer->in[0].dtype, .shape = attr->shape};
    if (mx_shape_count(attr->shape) == mx_shape_count(infer->in[0].shape)) return true;
    return mx_infer_fail(infer, "the new shape has another number of elements");
}

static void reshape_vjp(const MxVjp *v) {
    v->dx[0] = mx_reshape(v->t, v->dy[0], mx_trace_type(v->t, v->in[0]).shape);
}

/* Groups of dims with the same number of elements on both sides correspond; the outermost dim of a
 * group can be cut. */
static void reshape_cut(MxFactors *f) {
    MxShape x = f->in[0].shape, y = f->out[0].shape;
    int64_t left = 1, right = 1; /* elements of the open groups */
    for (int i = 0, j = 0; i < x.rank || j < y.rank;) {
        bool opens = left == right;
        if (opens && i < x.rank && j < y.rank) {
            f->in_dim[0][i] = f->out_dim[0][j] = ops_new_factor(f);
            left = x.dim[i++];
            right = y.dim[j++];
        } else if (j == y.rank || (i < x.rank && left <= right))
            left *= x.dim[i++];
        else
            right *= y.dim[j++];
    }
    f->linear = 1;
}

static void reshape_localize(const MxShare *share, void *attr) {
    ((MxReshapeAttr *)attr)->shape = share->out[0].shape;
}

const MxOp op_reshape = {
    .name = "reshape",
    .arity = 1,
    .flags = MX_OP_VIEW,
    .attr_bytes = sizeof(MxReshapeAttr),
    .infer = reshape_infer,
    .vjp = reshape_vjp,
    .partition = reshape_cut,
    .localize = reshape_localize,
    .doc = "the same elements under another shape",
};
