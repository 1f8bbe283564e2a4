/* glu.c — a block: a feed-forward unit of one to three branches that are multiplied, usually a
 * gated one: (activation(x wi_0) * (x wi_1)) wo. Source: MaxText layers/linears.py (MlpBlock)
 * @e591f30c.
 */
#include <mx/model.h>

#include "internal.h"

struct Glu {
    int64_t width;
    Dense branch[MOST_ACTIVATIONS]; /* wi_0, wi_1, …; of one alone wi */
    Dense wi;                       /* fused_mlp: instead of all of them */
    Dense wo;
};

static Dense add_dense(const Place *p, const Spec *spec, const char *name, MxShape shape,
                       const char *const *axes) {
    MxShape out = {.rank = shape.rank - 1};
    for (int i = 0; i < out.rank; i++) out.dim[i] = shape.dim[i + 1];
    Dense dense = {.bias = -1};
    dense.kernel = model_add(p, mx_path_join(p->arena, name, "kernel"), shape, 1, axes,
                             model_fan_in(MX_INIT_TRUNCATED_NORMAL, shape.dim[0]));
    if (spec->row->has_biases)
        dense.bias = model_add(p, mx_path_join(p->arena, name, "bias"), out, 0, axes + 1,
                               (MxInit){.kind = MX_INIT_ZEROS});
    return dense;
}

const Glu *model_add_glu(const Place *p, const MxConfig *c, const Spec *spec, int64_t width) {
    int64_t D = c->emb_dim, M = width;
    int n = spec->n_activations;
    Glu *l = mx_new(p->arena, Glu);
    l->width = width;
    if (c->fused_mlp)
        l->wi =
            add_dense(p, spec, "wi", MX_SHAPE(D, n, M), AXES("embed", "num_activations", "mlp"));
    for (int i = 0; i < n && !c->fused_mlp; i++) {
        const char *name = n == 1 ? "wi" : mx_arena_printf(p->arena, "wi_%d", i);
        l->branch[i] = add_dense(p, spec, name, MX_SHAPE(D, M), AXES("embed", "mlp"));
    }
    l->wo = add_dense(p, spec, "wo", MX_SHAPE(M, D), AXES("mlp", "embed"));
    return l;
}

/* The product of the branches' activations, from the last one on. */
static MxValue multiply(const Pass *p, const Spec *spec, const MxValue *branch) {
    int last = spec->n_activations - 1;
    MxValue y = branch[last];
    if (spec->activations[last] != MX_LINEAR) y = mx_activate(p->t, y, spec->activations[last]);
    for (int i = last - 1; i >= 0; i--) y = mx_glu(p->t, branch[i], y, spec->activations[i]);
    return y;
}

MxValue model_glu(const Pass *p, const Spec *spec, const Glu *l, MxValue x_BTD) {
    const MxShape M = MX_SHAPE(l->width), widths[MOST_ACTIVATIONS] = {M, M, M};
    MxValue branch_BTM[MOST_ACTIVATIONS];
    if (p->model->config->fused_mlp)
        model_project_apart(p, x_BTD, l->wi, spec->n_activations, widths, branch_BTM);
    else
        model_project_each(p, x_BTD, spec->n_activations, l->branch, branch_BTM);
    MxValue hidden_BTM = multiply(p, spec, branch_BTM);
    mx_trace_constrain(p->t, hidden_BTM,
                       AXES("activation_batch", "activation_length", "activation_mlp"));
    hidden_BTM = model_drop(p, hidden_BTM);
    return model_project(p, hidden_BTM, l->wo.kernel, l->wo.bias);
}

double model_glu_flops(const MxConfig *c, double reads, double width, double tokens) {
    double in = 2 * tokens * width * reads * c->mlp_activations.n;
    return in + 2 * tokens * width * reads;
}

/* ---- the block */

static int64_t width_of(const MxConfig *c, const MxLayerSpec *row) {
    return row->takes_kv && c->use_double_wide_mlp ? 2 * c->mlp_dim : c->mlp_dim;
}

static const void *add_params(const Place *p, const MxConfig *c, const Spec *spec) {
    return model_add_glu(p, c, spec, width_of(c, spec->row));
}

static MxValue trace(const Pass *p, const Spec *spec, const void *own, MxValue x_BTD) {
    return model_glu(p, spec, own, x_BTD);
}

static BlockFlops flops(const MxConfig *c, const MxLayerSpec *spec, const MxBlockSpec *row,
                        double rows, double length) {
    (void)row;
    double reads = (double)c->emb_dim, width = (double)width_of(c, spec);
    return (BlockFlops){.weights = model_glu_flops(c, reads, width, rows * length)};
}

static double width(const MxConfig *c, const MxLayerSpec *spec, const MxBlockSpec *row) {
    (void)row;
    return (double)width_of(c, spec);
}

const Block block_glu = {
    .params = add_params,
    .trace = trace,
    .flops = flops,
    .width = width,
};
