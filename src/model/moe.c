/* moe.c — a block: a mixture of gated feed-forward units, of which each token goes to a few. A
 * router scores experts; the best `num_experts_per_tok` of them are chosen, and what they make is
 * added up, weighed by the softmax of their scores. No choice is dropped, unless capacity_factor
 * limits how many of a row an expert takes: what is beyond counts nothing. Scores are made in the
 * dtype of activations, all that follows from them in float32. Source: MaxText layers/moe.py
 * (RoutedMoE) @e591f30c; Shazeer et al. 2017, Fedus et al. 2021.
 *
 * X experts, C choices of a token, M width of an expert. */
#include <mx/model.h>

#include "internal.h"

#include <math.h>

typedef struct Leaves {
    int gate, wi_0, wi_1, wo;
} Leaves;

static const void *add_params(const Place *p, const MxConfig *c, const Spec *spec) {
    (void)spec;
    int64_t D = c->emb_dim, M = c->moe_mlp_dim, X = c->num_experts;
    MxInit in = model_fan_in(MX_INIT_TRUNCATED_NORMAL, D);
    MxInit out = model_fan_in(MX_INIT_TRUNCATED_NORMAL, M);
    Leaves *l = mx_new(p->arena, Leaves);
    l->gate = model_add(p, "gate/kernel", MX_SHAPE(D, X), 1, AXES("embed", NULL), in);
    l->wi_0 = model_add(p, "wi_0", MX_SHAPE(X, D, M), 0, AXES("exp", "embed_moe", "mlp_moe"), in);
    l->wi_1 = model_add(p, "wi_1", MX_SHAPE(X, D, M), 0, AXES("exp", "embed_moe", "mlp_moe"), in);
    l->wo = model_add(p, "wo", MX_SHAPE(X, M, D), 0, AXES("exp", "mlp_moe", "embed_moe"), out);
    return l;
}

/* Choices of a row that an expert takes. Source: MaxText layers/moe.py generate_masks. */
static int64_t capacity_of(const MxConfig *c, int64_t length) {
    double even = ceil((double)(length * c->num_experts_per_tok) / (double)c->num_experts);
    return (int64_t)fmax(even * c->capacity_factor, c->capacity_factor);
}

/* Which experts, and their weights, rounded as activations are. */
typedef struct Routes {
    MxValue ids_BTC, weights_BTC;
} Routes;

static void add_balance(const Pass *p, MxValue scores_BTX, MxValue ids_BTC) {
    MxTrace *t = p->t;
    const MxConfig *c = p->model->config;
    if (!p->balance || c->load_balance_loss_weight <= 0) return;
    MxShape shape = mx_trace_type(t, scores_BTX).shape;
    double mean = (double)shape.dim[2] / (double)(shape.dim[0] * p->model->n_moe);
    MxValue one =
        mx_balance(t, mx_softmax(t, scores_BTX), ids_BTC, c->load_balance_loss_weight * mean);
    *p->balance = *p->balance == MX_NONE ? one : mx_add(t, *p->balance, one);
}

static Routes route(const Pass *p, const Leaves *l, MxValue x_BTD) {
    MxTrace *t = p->t;
    const MxConfig *c = p->model->config;
    MxValue scores_BTX = mx_cast(t, model_project(p, x_BTD, l->gate, -1), MX_F32);
    MxValue ids_BTC = mx_top_k(t, scores_BTX, c->num_experts_per_tok);
    MxValue weights_BTC = mx_softmax(t, mx_pick(t, scores_BTX, ids_BTC));
    add_balance(p, scores_BTX, ids_BTC);
    if (c->capacity_factor > 0) {
        MxCapacityAttr attr = {c->num_experts,
                               capacity_of(c, mx_trace_type(t, x_BTD).shape.dim[1])};
        ids_BTC = mx_within_capacity(t, ids_BTC, attr);
    }
    return (Routes){ids_BTC, mx_cast(t, mx_cast(t, weights_BTC, p->model->dtype), MX_F32)};
}

static MxValue trace(const Pass *p, const Spec *spec, const void *own, MxValue x_BTD) {
    MxTrace *t = p->t;
    const Leaves *l = own;
    const MxExpertDotAttr plain = {0};
    Routes r = route(p, l, x_BTD);
    MxValue gate_BTCM = mx_expert_dot(t, x_BTD, r.ids_BTC, model_weight(p, l->wi_0), plain);
    MxValue up_BTCM = mx_expert_dot(t, x_BTD, r.ids_BTC, model_weight(p, l->wi_1), plain);
    MxValue hidden_BTCM = mx_glu(t, gate_BTCM, up_BTCM, spec->activations[0]);
    mx_trace_constrain(
        t, hidden_BTCM,
        AXES("activation_batch_moe", "activation_length_moe", NULL, "activation_mlp_moe"));
    MxValue made_BTCD = mx_expert_dot(t, hidden_BTCM, r.ids_BTC, model_weight(p, l->wo), plain);
    return mx_combine(t, made_BTCD, r.weights_BTC);
}

static BlockFlops flops(const MxConfig *c, const MxLayerSpec *spec, double rows, double length) {
    (void)spec;
    double emb = (double)c->emb_dim, mlp = (double)c->moe_mlp_dim;
    double in = 2 * rows * length * mlp * emb * c->mlp_activations.n;
    double gate = 2 * rows * length * emb * (double)c->num_experts;
    double one = in + 2 * rows * length * mlp * emb;
    return (BlockFlops){.weights = gate + one * (double)c->num_experts_per_tok};
}

static double width(const MxConfig *c) {
    return (double)c->moe_mlp_dim * (double)c->num_experts_per_tok;
}

const Block block_moe = {
    .params = add_params,
    .trace = trace,
    .flops = flops,
    .width = width,
};
