/* elementwise.c — ops whose output element depends on the input elements at the same position. */
#include <mx/ops.h>

#include "internal.h"

/* ---- copy and cast */

MxValue mx_copy(MxTrace *t, MxValue x) {
    return mx_trace_node(t, &op_copy, &x, 1, NULL);
}

static void copy_vjp(const MxVjp *v) {
    v->dx[0] = v->dy[0];
}

const MxOp op_copy = {
    .name = "copy",
    .arity = 1,
    .flags = MX_OP_COPY,
    .accumulates = 1,
    .infer = ops_infer_same,
    .vjp = copy_vjp,
    .partition = ops_cut_alike_linear,
    .doc = "y = x in a buffer of its own",
};

MxValue mx_cast(MxTrace *t, MxValue x, MxDtype dtype) {
    if (mx_trace_type(t, x).dtype == dtype) return x;
    MxCastAttr attr = {.dtype = dtype};
    return mx_trace_node(t, &op_cast, &x, 1, &attr);
}

static bool cast_infer(MxInfer *infer) {
    MxDtype dtype = ((const MxCastAttr *)infer->attr)->dtype;
    infer->out[0] = (MxType){.dtype = dtype, .shape = infer->in[0].shape};
    if (dtype != MX_F32 && dtype != MX_BF16)
        return mx_infer_fail(infer, "cannot cast to that dtype");
    return ops_is_real(infer, 0);
}

/* A variable's gradient is not rounded on its way. */
static void cast_vjp(const MxVjp *v) {
    bool is_variable = mx_graph_producer(v->t->graph, v->in[0])->op->flags & MX_OP_SOURCE;
    MxDtype dtype = is_variable ? MX_F32 : mx_trace_type(v->t, v->in[0]).dtype;
    v->dx[0] = mx_cast(v->t, v->dy[0], dtype);
}

static void cast_print(MxText *text, const void *attr) {
    mx_text_add(text, "%s", mx_dtype_name(((const MxCastAttr *)attr)->dtype));
}

/* Sums are made in the wider type. */
static void cast_cut(MxFactors *f) {
    ops_cut_alike(f);
    f->linear = f->out[0].dtype == MX_F32;
}

const MxOp op_cast = {
    .name = "cast",
    .arity = 1,
    .flags = MX_OP_CAST,
    .accumulates = 1,
    .attr_bytes = sizeof(MxCastAttr),
    .infer = cast_infer,
    .vjp = cast_vjp,
    .partition = cast_cut,
    .print = cast_print,
    .doc = "y = x as another dtype",
};

/* ---- add and its gradient */

MxValue mx_add(MxTrace *t, MxValue x, MxValue y) {
    return mx_trace_node(t, &op_add, (MxValue[]){x, y}, 2, NULL);
}

bool ops_is_tail(MxShape tail, MxShape of) {
    int lead = of.rank - tail.rank;
    for (int i = 0; lead >= 0 && i < tail.rank; i++)
        if (tail.dim[i] != of.dim[lead + i]) return false;
    return lead >= 0;
}

static bool add_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    bool fits = ops_is_tail(infer->in[1].shape, infer->in[0].shape);
    if (fits && infer->in[0].dtype == infer->in[1].dtype) return ops_is_real(infer, 0);
    return mx_infer_fail(infer, "y must have x's dtype and its trailing dims");
}

static void add_vjp(const MxVjp *v) {
    int lead = mx_trace_type(v->t, v->in[0]).shape.rank - mx_trace_type(v->t, v->in[1]).shape.rank;
    v->dx[0] = v->dy[0];
    if (v->needs[1]) v->dx[1] = lead ? mx_sum_lead(v->t, v->dy[0], lead) : v->dy[0];
}

void ops_cut_tail(MxFactors *f) {
    int lead = f->in[0].shape.rank - f->in[1].shape.rank;
    for (int d = 0; d < f->in[1].shape.rank; d++) f->in_dim[1][d] = f->out_dim[0][lead + d];
}

static void add_cut(MxFactors *f) {
    ops_cut_alike_linear(f);
    ops_cut_tail(f);
}

const MxOp op_add = {
    .name = "add",
    .arity = 2,
    .flags = MX_OP_SUM,
    .inplace = 1,
    .infer = add_infer,
    .vjp = add_vjp,
    .partition = add_cut,
    .doc = "x + y; y has x's shape or its trailing dims",
};

MxValue mx_sum_lead(MxTrace *t, MxValue x, int n_lead) {
    MxSumLeadAttr attr = {.dtype = mx_trace_type(t, x).dtype, .n_lead = n_lead};
    return mx_trace_node(t, &op_sum_lead, &x, 1, &attr);
}

static bool sum_lead_infer(MxInfer *infer) {
    const MxSumLeadAttr *attr = infer->attr;
    infer->out[0].dtype = attr->dtype;
    infer->out[0].shape.rank = infer->in[0].shape.rank - attr->n_lead;
    if (infer->out[0].shape.rank < 0) return mx_infer_fail(infer, "fewer dims than are summed");
    for (int i = attr->n_lead; i < infer->in[0].shape.rank; i++)
        infer->out[0].shape.dim[i - attr->n_lead] = infer->in[0].shape.dim[i];
    return ops_is_real(infer, 0);
}

/* The cotangent once for everything that was summed. */
static void sum_lead_vjp(const MxVjp *v) {
    MxType x = mx_trace_type(v->t, v->in[0]);
    MxInitAttr ones = {.type = {MX_F32, x.shape}, .value = 1};
    v->dx[0] = mx_cast(v->t, mx_multiply(v->t, mx_init(v->t, ones), v->dy[0]), x.dtype);
}

static void sum_lead_cut(MxFactors *f) {
    int lead = f->in[0].shape.rank - f->out[0].shape.rank;
    ops_cut_lead(f, f->in[0].shape.rank, 1);
    for (int d = 0; d < f->out[0].shape.rank; d++) f->out_dim[0][d] = f->in_dim[0][lead + d];
    f->linear = f->in[0].dtype == MX_F32 || f->out[0].dtype == MX_F32;
}

const MxOp op_sum_lead = {
    .name = "sum_lead",
    .arity = 1,
    .flags = MX_OP_CAST_FOLDS,
    .accumulates = 1,
    .attr_bytes = sizeof(MxSumLeadAttr),
    .infer = sum_lead_infer,
    .vjp = sum_lead_vjp,
    .partition = sum_lead_cut,
    .doc = "sum over the leading dims",
};

/* ---- scalars and caps */

MxValue mx_scale(MxTrace *t, MxValue x, double factor) {
    MxScaleAttr attr = {.factor = factor};
    return mx_trace_node(t, &op_scale, &x, 1, &attr);
}

MxValue mx_plus(MxTrace *t, MxValue x, double constant) {
    MxScaleAttr attr = {.factor = 1, .plus = constant};
    return mx_trace_node(t, &op_scale, &x, 1, &attr);
}

static void scale_vjp(const MxVjp *v) {
    double factor = ((const MxScaleAttr *)v->attr)->factor;
    v->dx[0] = factor == 1 ? v->dy[0] : mx_scale(v->t, v->dy[0], factor);
}

static void scale_print(MxText *text, const void *attr) {
    const MxScaleAttr *scale = attr;
    mx_text_add(text, "%.9g", scale->factor);
    if (scale->plus != 0) mx_text_add(text, " plus %.9g", scale->plus);
}

/* A constant is added once. */
static void scale_cut(MxFactors *f) {
    ops_cut_alike(f);
    f->linear = ((const MxScaleAttr *)f->attr)->plus == 0;
}

const MxOp op_scale = {
    .name = "scale",
    .arity = 1,
    .inplace = 1,
    .attr_bytes = sizeof(MxScaleAttr),
    .infer = ops_infer_same,
    .vjp = scale_vjp,
    .partition = scale_cut,
    .print = scale_print,
    .doc = "x times a constant, and a constant",
};

MxValue mx_softcap(MxTrace *t, MxValue x, double cap) {
    MxSoftcapAttr attr = {.cap = cap};
    return mx_trace_node(t, &op_softcap, &x, 1, &attr);
}

static void softcap_vjp(const MxVjp *v) {
    v->dx[0] = mx_trace_node(v->t, &op_softcap_grad, (MxValue[]){v->in[0], v->dy[0]}, 2, v->attr);
}

static void softcap_print(MxText *text, const void *attr) {
    mx_text_add(text, "%.9g", ((const MxSoftcapAttr *)attr)->cap);
}

const MxOp op_softcap = {
    .name = "softcap",
    .arity = 1,
    .inplace = 1,
    .attr_bytes = sizeof(MxSoftcapAttr),
    .infer = ops_infer_same,
    .vjp = softcap_vjp,
    .partition = ops_cut_alike,
    .print = softcap_print,
    .doc = "cap * tanh(x / cap)",
};

static bool binary_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    return ops_is_real(infer, 0) && ops_same_type(infer, 0, 1);
}

const MxOp op_softcap_grad = {
    .name = "softcap_grad",
    .arity = 2,
    .attr_bytes = sizeof(MxSoftcapAttr),
    .infer = binary_infer,
    .partition = ops_cut_alike,
    .print = softcap_print,
    .doc = "dx = dy (1 - tanh(x / cap)^2)",
};

MxValue mx_ratio(MxTrace *t, MxValue x, MxValue y, double eps) {
    MxRatioAttr attr = {.eps = eps};
    return mx_trace_node(t, &op_ratio, (MxValue[]){x, y}, 2, &attr);
}

static bool ratio_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    return ops_is(infer, 0, MX_F32, 0) && ops_is(infer, 1, MX_F32, 0);
}

static void ratio_vjp(const MxVjp *v) {
    v->dx[0] = mx_ratio(v->t, v->dy[0], v->in[1], ((const MxRatioAttr *)v->attr)->eps);
    v->dx[1] = MX_NONE;
}

const MxOp op_ratio = {
    .name = "ratio",
    .arity = 2,
    .attr_bytes = sizeof(MxRatioAttr),
    .infer = ratio_infer,
    .vjp = ratio_vjp,
    .doc = "x / (y + eps) of scalars",
};

/* ---- gated units */

#define MX_ACTIVATION(name, function) [MX_##name] = #function,
#define MX_ALSO_CALLED(function, other)
const char *const mx_activation_names[MX_ACTIVATION_COUNT] = {
#include <mx/ops_activations.def>
};
#undef MX_ACTIVATION
#undef MX_ALSO_CALLED

#define MX_ACTIVATION(name, function)
#define MX_ALSO_CALLED(function, other) {#function, #other},
static const struct {
    const char *name, *other;
} also_called[] = {
#include <mx/ops_activations.def>
};
#undef MX_ACTIVATION
#undef MX_ALSO_CALLED

bool mx_activation_find(const char *name, MxActivation *found) {
    for (int i = 0; i < MX_COUNT(also_called); i++)
        if (!strcmp(name, also_called[i].other)) name = also_called[i].name;
    int i = 0;
    while (i < MX_ACTIVATION_COUNT && strcmp(name, mx_activation_names[i])) i++;
    *found = (MxActivation)i;
    return i < MX_ACTIVATION_COUNT;
}

MxValue mx_activate(MxTrace *t, MxValue x, MxActivation activation) {
    MxGluAttr attr = {.activation = activation};
    return mx_trace_node(t, &op_activate, &x, 1, &attr);
}

MxValue mx_glu(MxTrace *t, MxValue gate, MxValue up, MxActivation activation) {
    return mx_glu_within(t, gate, up, (MxGluAttr){.activation = activation});
}

MxValue mx_glu_within(MxTrace *t, MxValue gate, MxValue up, MxGluAttr attr) {
    return mx_trace_node(t, &op_glu, (MxValue[]){gate, up}, 2, &attr);
}

static void glu_print(MxText *text, const void *attr) {
    const MxGluAttr *a = attr;
    mx_text_add(text, "%s", mx_activation_names[a->activation]);
    if (a->limit > 0) mx_text_add(text, " within %g", a->limit);
    if (a->term != 0) mx_text_add(text, " + %g", a->term);
}

static void activate_vjp(const MxVjp *v) {
    v->dx[0] = mx_trace_node(v->t, &op_activate_grad, (MxValue[]){v->in[0], v->dy[0]}, 2, v->attr);
}

const MxOp op_activate = {
    .name = "activate",
    .arity = 1,
    .inplace = 1,
    .attr_bytes = sizeof(MxGluAttr),
    .infer = ops_infer_same,
    .vjp = activate_vjp,
    .partition = ops_cut_alike,
    .print = glu_print,
    .doc = "activation(x)",
};

const MxOp op_activate_grad = {
    .name = "activate_grad",
    .arity = 2,
    .attr_bytes = sizeof(MxGluAttr),
    .infer = binary_infer,
    .partition = ops_cut_alike,
    .print = glu_print,
    .doc = "dx from x, dy",
};

static void glu_vjp(const MxVjp *v) {
    MxValue in[] = {v->in[0], v->in[1], v->dy[0]};
    MxValue dgate = mx_trace_node(v->t, &op_glu_grad, in, 3, v->attr);
    v->dx[0] = dgate;
    v->dx[1] = dgate < 0 ? MX_NONE : dgate + 1;
}

const MxOp op_glu = {
    .name = "glu",
    .arity = 2,
    .inplace = 1,
    .attr_bytes = sizeof(MxGluAttr),
    .infer = binary_infer,
    .vjp = glu_vjp,
    .partition = ops_cut_alike,
    .print = glu_print,
    .doc = "activation(gate) * up",
};

static bool glu_grad_infer(MxInfer *infer) {
    infer->out[0] = infer->out[1] = infer->in[0];
    infer->n_out = 2;
    return ops_is_real(infer, 0) && ops_same_type(infer, 0, 1) && ops_same_type(infer, 0, 2);
}

const MxOp op_glu_grad = {
    .name = "glu_grad",
    .arity = 3,
    .attr_bytes = sizeof(MxGluAttr),
    .infer = glu_grad_infer,
    .partition = ops_cut_alike,
    .print = glu_print,
    .doc = "dgate, dup from gate, up, dy",
};
