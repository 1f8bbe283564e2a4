/* glu.c — a block: a gated feed-forward unit, activation(x wi_0) * (x wi_1) wo. Source: MaxText
 * layers/linears.py (MlpBlock) @e591f30c. */
#include <mx/model.h>

#include "internal.h"

typedef struct Leaves {
    int wi_0, wi_1, wo;
    int wi; /* fused_mlp: instead of the first two */
} Leaves;

static const void *add_params(const Place *p, const MxConfig *c, const Spec *spec) {
    (void)spec;
    int64_t D = c->emb_dim, M = c->mlp_dim;
    MxInit in = model_fan_in(MX_INIT_TRUNCATED_NORMAL, D);
    Leaves *l = mx_new(p->arena, Leaves);
    if (c->fused_mlp) {
        l->wi = model_add(p, "wi/kernel", MX_SHAPE(D, 2, M), 1,
                          AXES("embed", "num_activations", "mlp"), in);
    } else {
        l->wi_0 = model_add(p, "wi_0/kernel", MX_SHAPE(D, M), 1, AXES("embed", "mlp"), in);
        l->wi_1 = model_add(p, "wi_1/kernel", MX_SHAPE(D, M), 1, AXES("embed", "mlp"), in);
    }
    l->wo = model_add(p, "wo/kernel", MX_SHAPE(M, D), 1, AXES("mlp", "embed"),
                      model_fan_in(MX_INIT_TRUNCATED_NORMAL, M));
    return l;
}

static MxValue trace(const Pass *p, const Spec *spec, const void *own, MxValue x_BTD) {
    const Leaves *l = own;
    const MxShape M = MX_SHAPE(p->model->config->mlp_dim), widths[] = {M, M};
    const Dense apart[] = {{l->wi_0, -1}, {l->wi_1, -1}}, fused = {l->wi, -1};
    MxValue gate_up_BTM[2];
    if (p->model->config->fused_mlp)
        model_project_apart(p, x_BTD, fused, 2, widths, gate_up_BTM);
    else
        model_project_each(p, x_BTD, 2, apart, gate_up_BTM);
    MxValue hidden_BTM = mx_glu(p->t, gate_up_BTM[0], gate_up_BTM[1], spec->activation);
    mx_trace_constrain(p->t, hidden_BTM,
                       AXES("activation_batch", "activation_length", "activation_mlp"));
    return model_project(p, hidden_BTM, l->wo, -1);
}

static BlockFlops flops(const MxConfig *c, const MxLayerSpec *spec, double rows, double length) {
    (void)spec;
    double emb = (double)c->emb_dim, mlp = (double)c->mlp_dim;
    double in = 2 * rows * length * mlp * emb * c->mlp_activations.n;
    return (BlockFlops){.weights = in + 2 * rows * length * mlp * emb};
}

static double width(const MxConfig *c) {
    return (double)c->mlp_dim;
}

const Block block_glu = {
    .params = add_params,
    .trace = trace,
    .flops = flops,
    .width = width,
};
