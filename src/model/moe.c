/* moe.c — a block: a mixture of gated feed-forward experts, a few of which process each token. A
 * router scores experts; the best `num_experts_per_tok` are chosen, and their outputs are added,
 * weighted by scores. No choice is dropped, unless a capacity limits the tokens of a row per
 * expert; further choices contribute nothing. A shared unit may process all tokens. Scores are
 * computed in the dtype of activations, everything that follows from them in float32. Source:
 * MaxText layers/moe.py (RoutedMoE, RoutedAndSharedMoE) @e591f30c; Shazeer et al. 2017, Fedus et
 * al. 2021, DeepSeek-V3 (2024) 2.1.2.
 *
 * X experts, C choices of a token, S slots of an expert, M width of an expert. */
#include <mx/model.h>

#include "adapter.h"
#include "balance.h"

#include <math.h>

typedef struct Leaves {
    Dense gate, wi_0, wi_1, wo;
    int table;        /* experts of each token's number, instead of a choice by scores; -1 = none */
    int expert_scale; /* -1 = none */
    const Glu *shared; /* NULL = there is none */
    int shared_gate;   /* -1 = none */
    /* Scales -1 = none; of router and experts, they then read what the block does. */
    Norm router_norm, routed_norm, routed_after, shared_after;
} Leaves;

static int64_t shared_width(const MxConfig *c, const MxBlockSpec *row) {
    return c->shared_experts * (row->shared_is_mlp ? c->mlp_dim : c->moe_mlp_dim);
}

static void add_shared(const Place *p, const MxConfig *c, const Spec *spec, Leaves *l) {
    const MxBlockSpec *row = p->row;
    l->shared_gate = -1;
    l->shared_after.scale = -1;
    if (!row->shared || !c->shared_experts) return;
    Place shared = model_inside(p, row->shared);
    l->shared = model_add_glu(&shared, c, spec, shared_width(c, row));
    l->shared_after = model_add_norm(p, row->shared_after, c->emb_dim);
    if (row->shared_gate)
        l->shared_gate = model_add(p, mx_path_join(p->arena, row->shared_gate, "kernel"),
                                   MX_SHAPE(c->emb_dim, 1), 1, AXES("embed", NULL),
                                   model_fan_in(MX_INIT_TRUNCATED_NORMAL, c->emb_dim));
}

static void add_norms(const Place *p, const MxConfig *c, Leaves *l) {
    int64_t D = c->emb_dim;
    l->router_norm = (Norm){.kind = MX_NORM_RMS, .scale = -1, .bias = -1};
    if (p->row->router_scale)
        l->router_norm.scale = model_add(p, p->row->router_scale, MX_SHAPE(D), 1, AXES("embed"),
                                         (MxInit){.kind = MX_INIT_ONES});
    l->routed_norm = model_add_norm(p, p->row->routed_norm, D);
    l->routed_after = model_add_norm(p, p->row->routed_after, D);
}

/* A leaf with a part for each expert. */
static int add_of_experts(const Place *p, const char *name, MxShape shape, int n_contract,
                          const char *const axes[], MxInit init) {
    int leaf = model_add(p, name, shape, n_contract, axes, init);
    p->tree->leaves[leaf].is_of_experts = true;
    return leaf;
}

/* The matrices of all experts, and their biases. */
static Dense add_experts(const Place *p, const MxConfig *c, const char *name, MxShape shape,
                         const char *const axes[3], const char *bias_axis) {
    Dense dense = {.bias = -1};
    dense.kernel = add_of_experts(p, name, shape, 1, axes,
                                  model_fan_in(MX_INIT_TRUNCATED_NORMAL, shape.dim[1]));
    p->tree->leaves[dense.kernel].n_batch = 1;
    if (c->mlp_bias)
        dense.bias = add_of_experts(p, mx_arena_printf(p->arena, "%s_bias", name),
                                    MX_SHAPE(shape.dim[0], shape.dim[2]), 0, AXES("exp", bias_axis),
                                    (MxInit){.kind = MX_INIT_ZEROS});
    return dense;
}

/* Logical axes of the matrices that read activations [X, D, M] and that write them [X, M, D]. */
typedef struct Cut {
    const char *in[3], *out[3];
} Cut;

static const Cut *cut_of(const MxConfig *c) {
    static const Cut usual = {{"exp", "embed_moe", "mlp_moe"}, {"exp", "mlp_moe", "embed_moe"}},
                     by_experts = {{"embed_moe", NULL, "mlp_moe"}, {"embed_moe", "mlp_moe", NULL}},
                     in_two = {{"embed_moe", "mlp_moe", NULL}, {"embed_moe", "mlp_moe", NULL}};
    return c->shard_exp_on_fsdp ? &by_experts : c->use_2d_fsdp_sharding ? &in_two : &usual;
}

/* A table that is chosen by is no parameter either: whole numbers, as floats. MaxText leaves it
 * zeros until it is loaded; here a token's experts are next to one another, those of all tokens as
 * many each. Source: Roller et al. 2021 (balanced assignment). */
static void add_choice(const Place *p, const MxConfig *c, const MxLayerSpec *spec, Leaves *l) {
    l->table = -1;
    if (spec->hashes) {
        Place fixed = *p;
        fixed.kind = c->enable_lora ? p->kind : MX_KIND_FROZEN;
        fixed.dtype = MX_F32;
        l->table =
            model_add_bare(&fixed, "tid2eid", MX_SHAPE(c->vocab_size, c->num_experts_per_tok),
                           (MxInit){.kind = MX_INIT_CYCLE, .std = (double)c->num_experts});
        p->tree->leaves[l->table].is_unoptimized = true;
        return;
    }
    if (!c->routed_bias) return;
    l->gate.bias = model_add(p, "gate/bias", MX_SHAPE(c->num_experts), 0, AXES(NULL),
                             (MxInit){.kind = MX_INIT_ZEROS});
    p->tree->leaves[l->gate.bias].is_unoptimized = spec->bias_apart;
}

/* Of the leaves from one on. */
static void scale_kernels(MxTree *tree, int first, double variance) {
    for (int i = first; i < tree->n; i++) {
        MxInit *init = &tree->leaves[i].init;
        if (init->kind == MX_INIT_TRUNCATED_NORMAL) init->std *= sqrt(variance);
    }
}

static const void *add_params(const Place *place, const MxConfig *c, const Spec *spec) {
    const MxBlockSpec *row = place->row;
    int first = place->tree->n;
    Place routed = model_inside(place, row->routed), *p = &routed;
    int64_t D = model_width(c, row->reads), M = c->moe_mlp_dim, X = c->num_experts;
    const char *read = row->router_axis ? row->router_axis : "embed";
    const Cut *cut = cut_of(c);
    Leaves *l = mx_new(p->arena, Leaves);
    l->gate = (Dense){.bias = -1};
    l->gate.kernel = model_add(p, "gate/kernel", MX_SHAPE(D, X), 1, AXES(read, NULL),
                               model_fan_in(MX_INIT_TRUNCATED_NORMAL, D));
    add_choice(p, c, spec->row, l);
    l->wi_0 = add_experts(p, c, "wi_0", MX_SHAPE(X, D, M), cut->in, "activation_mlp");
    l->wi_1 = add_experts(p, c, "wi_1", MX_SHAPE(X, D, M), cut->in, "activation_mlp");
    l->wo = add_experts(p, c, "wo", MX_SHAPE(X, M, D), cut->out, "activation_embed");
    l->expert_scale = -1;
    if (spec->row->weighs == MX_WEIGHS_ALL)
        l->expert_scale = add_of_experts(p, "per_expert_scale", MX_SHAPE(X), 0, AXES("exp"),
                                         (MxInit){.kind = MX_INIT_ONES});
    add_shared(place, c, spec, l);
    add_norms(place, c, l);
    scale_kernels(place->tree, first, c->dense_init_scale);
    return l;
}

static MxRouter router(const Spec *spec, const void *own) {
    const Leaves *l = own;
    return (MxRouter){l->gate.kernel, spec->row->weighs == MX_WEIGHS_SCORES ? l->gate.bias : -1};
}

/* ---- routing */

/* Choices of a row that an expert takes: those of all tokens at most, each of which chooses it
 * once, unless by chance. Source: MaxText layers/moe.py generate_masks. */
static MxSlotsAttr slots_of(const MxConfig *c, int64_t length) {
    int64_t most = c->use_random_routing ? length * c->num_experts_per_tok : length;
    double even = ceil((double)(length * c->num_experts_per_tok) / (double)c->num_experts);
    double capacity = floor(fmax(even * c->capacity_factor, c->capacity_factor));
    return (MxSlotsAttr){.n_experts = c->num_experts,
                         .capacity = (int64_t)fmin(capacity, (double)most)};
}

/* Which experts, and their weights, rounded as activations are. */
typedef struct Routes {
    MxValue ids_BTC, weights_BTC;
} Routes;

static MxTopKAttr choice_of(const MxConfig *c) {
    MxTopKAttr attr = {.k = c->num_experts_per_tok};
    bool has_groups = mx_family_reads(mx_family_find(c->decoder_block), "n_routing_groups");
    if (!has_groups || c->n_routing_groups == -1) return attr;
    attr.n_groups = c->n_routing_groups;
    attr.n_best = c->topk_routing_group;
    return attr;
}

/* The number of each choice's expert, f32. */
static MxValue scale_of(const Pass *p, int leaf, MxValue ids_BTC) {
    MxTrace *t = p->t;
    MxShape shape = mx_trace_type(t, ids_BTC).shape;
    MxValue table = mx_reshape(t, mx_cast(t, model_param(p, leaf), MX_F32),
                               MX_SHAPE(p->model->config->num_experts, 1));
    return mx_reshape(t, mx_embed(t, table, model_flatten_last(t, ids_BTC, 2), MX_F32), shape);
}

static bool draws(const Pass *p) {
    return p->draws && p->model->config->use_random_routing;
}

/* The chosen scores' weights; `by` are the scores that they were chosen by. Those of experts that
 * were drawn are these as they are. Source: MaxText layers/moe.py random_routing @e591f30c. */
static MxValue weigh(const Pass *p, const Spec *spec, const Leaves *l, MxValue scores_BTX,
                     MxValue by_BTX, MxValue ids_BTC) {
    MxTrace *t = p->t;
    if (draws(p) && spec->row->weighs != MX_WEIGHS_READ) return mx_pick(t, by_BTX, ids_BTC);
    if (spec->row->weighs == MX_WEIGHS_ALL) {
        MxValue all = mx_pick(t, mx_softmax(t, by_BTX), ids_BTC);
        if (p->model->config->norm_topk_prob) all = mx_share(t, all);
        return mx_glu(t, all, scale_of(p, l->expert_scale, ids_BTC), MX_LINEAR);
    }
    if (spec->row->weighs == MX_WEIGHS_CHOSEN) return mx_softmax(t, mx_pick(t, by_BTX, ids_BTC));
    if (spec->row->weighs == MX_WEIGHS_READ)
        return mx_activate(t, mx_pick(t, by_BTX, ids_BTC), MX_SIGMOID);
    MxValue weights_BTC = mx_pick(t, scores_BTX, ids_BTC);
    bool sums_to_1 = spec->score == SCORE_SIGMOID || spec->score == SCORE_SQRT_SOFTPLUS;
    if (sums_to_1) weights_BTC = mx_share(t, weights_BTC);
    double factor = p->model->config->routed_scaling_factor;
    return factor == 1 ? weights_BTC : mx_scale(t, weights_BTC, factor);
}

static MxValue bias_of(const Pass *p, const Spec *spec, const Leaves *l) {
    MxValue bias_X = mx_cast(p->t, model_param(p, l->gate.bias), MX_F32);
    return spec->row->bias_apart ? mx_detach(p->t, bias_X) : bias_X;
}

static Routes route(const Pass *p, const Spec *spec, const Leaves *l, MxValue x_BTD) {
    MxTrace *t = p->t;
    const MxConfig *c = p->model->config;
    MxValue scores_BTX = mx_cast(t, model_project(p, x_BTD, l->gate.kernel, -1), MX_F32);
    if (spec->score == SCORE_SOFTMAX) scores_BTX = mx_softmax(t, scores_BTX);
    if (spec->score == SCORE_SIGMOID) scores_BTX = mx_activate(t, scores_BTX, MX_SIGMOID);
    if (spec->score == SCORE_SQRT_SOFTPLUS)
        scores_BTX = mx_activate(t, scores_BTX, MX_SQRT_SOFTPLUS);
    MxValue by_BTX = scores_BTX;
    if (l->gate.bias >= 0) by_BTX = mx_add(t, by_BTX, bias_of(p, spec, l));
    MxValue ids_BTC = draws(p)        ? model_draw(p, by_BTX, c->num_experts_per_tok)
                      : l->table >= 0 ? mx_row_ids(t, model_param(p, l->table), p->tokens_BT)
                                      : mx_top_k(t, by_BTX, choice_of(c));
    MxValue weights_BTC = weigh(p, spec, l, scores_BTX, by_BTX, ids_BTC);
    if (l->table < 0) model_add_balance(p, spec, scores_BTX, by_BTX, ids_BTC);
    if (p->loads) model_add_counts(p, &p->loads[l->gate.kernel], ids_BTC);
    return (Routes){ids_BTC, mx_cast(t, mx_cast(t, weights_BTC, p->model->dtype), MX_F32)};
}

/* ---- forward pass */

/* Rows of x times numbers, f32 [B, T, 1]. */
static MxValue weigh_rows(MxTrace *t, MxValue x_BTD, MxValue weights_BT1) {
    MxShape s = mx_trace_type(t, x_BTD).shape;
    MxValue x_BT1D = mx_reshape(t, x_BTD, MX_SHAPE(s.dim[0], s.dim[1], 1, s.dim[2]));
    return mx_combine(t, x_BT1D, weights_BT1);
}

/* What the unit for all tokens adds. */
static MxValue add_of_all(const Pass *p, const Spec *spec, const Leaves *l, const MxValue x_y[2]) {
    MxTrace *t = p->t;
    if (!l->shared) return x_y[1];
    MxValue made_BTD = model_glu(p, spec, l->shared, x_y[0]);
    made_BTD = model_norm(p, made_BTD, l->shared_after, spec->epsilon);
    if (l->shared_gate >= 0) {
        MxValue gate_BT1 = mx_cast(t, model_project(p, x_y[0], l->shared_gate, -1), MX_F32);
        made_BTD = weigh_rows(t, made_BTD, mx_activate(t, gate_BT1, MX_SIGMOID));
    }
    return mx_add(t, x_y[1], made_BTD);
}

/* Rows for experts: those of choices where they stand, or in slots. */
typedef struct ExpertRows {
    MxValue x, ids;
    bool slots;
} ExpertRows;

static MxValue expert_dot(const Pass *p, ExpertRows rows, MxValue w) {
    return mx_expert_dot(p->t, rows.x, rows.ids, w, (MxExpertDotAttr){.slots = rows.slots});
}

static MxValue add_bias(const Pass *p, MxValue y, MxValue ids, int bias) {
    MxTrace *t = p->t;
    MxShape shape = mx_trace_type(t, y).shape;
    MxValue rows =
        mx_embed(t, model_param(p, bias), model_flatten_last(t, ids, 2), p->model->dtype);
    return mx_add(t, y, mx_reshape(t, rows, shape));
}

/* Each row times the matrices of its expert, with adapters and biases, which are rows of a table.
 * What adapters read is one product for all of them, as outside of experts. */
static void expert_project(const Pass *p, ExpertRows rows, int n, const Dense *dense, MxValue *y) {
    MxValue a = model_join_a(p, n, dense), low[MODEL_MOST_BESIDE];
    ExpertRows narrow = rows;
    for (int i = 0; i < n; i++) y[i] = expert_dot(p, rows, model_weight(p, dense[i].kernel));
    if (a != MX_NONE) model_part_low(p, expert_dot(p, rows, a), n, dense, low);
    for (int i = 0; i < n; i++) {
        const Adapter *adapter = model_adapter(p, dense[i].kernel);
        narrow.x = adapter ? low[i] : MX_NONE;
        if (adapter) y[i] = mx_add(p->t, expert_dot(p, narrow, model_weight(p, adapter->b)), y[i]);
        if (dense[i].bias >= 0) y[i] = add_bias(p, y[i], rows.ids, dense[i].bias);
    }
}

MxValue model_project_groups(const Pass *p, MxValue x, MxValue numbers, Dense dense) {
    MxValue y;
    expert_project(p, (ExpertRows){x, numbers, false}, 1, &dense, &y);
    return y;
}

/* What experts make of their rows. Rows in slots are wherever it costs least to have them. */
static MxValue pass_experts(const Pass *p, const Spec *spec, const Leaves *l, ExpertRows rows) {
    MxTrace *t = p->t;
    MxValue branch[2], y;
    expert_project(p, rows, 2, (Dense[]){l->wi_0, l->wi_1}, branch);
    rows.x = mx_glu_within(t, branch[0], branch[1], spec->expert);
    if (!rows.slots)
        mx_trace_constrain(
            t, rows.x,
            AXES("activation_batch_moe", "activation_length_moe", NULL, "activation_mlp_moe"));
    expert_project(p, rows, 1, &l->wo, &y);
    return y;
}

/* [B, T, C, D]. With a capacity rows go to slots, whose number is known, and come back. */
static MxValue made_by_experts(const Pass *p, const Spec *spec, const Leaves *l, MxValue x_BTD,
                               MxValue ids_BTC) {
    MxTrace *t = p->t;
    const MxConfig *c = p->model->config;
    if (!mx_config_has_capacity(c))
        return pass_experts(p, spec, l, (ExpertRows){x_BTD, ids_BTC, false});
    MxSlotsAttr slots = slots_of(c, mx_trace_type(t, x_BTD).shape.dim[1]);
    MxValue x_BXSD = mx_to_slots(t, x_BTD, ids_BTC, slots);
    if (x_BXSD < 0) return MX_NONE; /* the trace has failed */
    if (p->kept) model_add_counts(p, &p->kept[l->gate.kernel], x_BXSD + 1);
    MxValue made_BXSD = pass_experts(p, spec, l, (ExpertRows){x_BXSD, x_BXSD + 1, true});
    return mx_from_slots(t, made_BXSD, ids_BTC, slots);
}

/* What the router reads of the stream itself, or x. */
static MxValue read_of_router(const Pass *p, const Spec *spec, const Leaves *l, MxValue x_BTD) {
    if (l->router_norm.scale < 0) return x_BTD;
    MxValue y_BTD = model_norm(p, p->stream, l->router_norm, spec->epsilon);
    return mx_scale(p->t, y_BTD, 1 / sqrt((double)p->model->config->emb_dim));
}

static MxValue trace(const Pass *p, const Spec *spec, const void *own, MxValue x_BTD) {
    MxTrace *t = p->t;
    const Leaves *l = own;
    Routes r = route(p, spec, l, read_of_router(p, spec, l, x_BTD));
    bool weighs_read = spec->row->weighs == MX_WEIGHS_READ; /* then C is 1 */
    MxValue read_BTD = x_BTD;
    if (l->routed_norm.scale >= 0)
        read_BTD = model_norm(p, p->stream, l->routed_norm, spec->epsilon);
    if (weighs_read) read_BTD = weigh_rows(t, read_BTD, r.weights_BTC);
    MxValue made_BTCD = made_by_experts(p, spec, l, read_BTD, r.ids_BTC);
    MxValue y_BTD = weighs_read ? mx_reshape(t, made_BTCD, mx_trace_type(t, x_BTD).shape)
                                : mx_combine(t, made_BTCD, r.weights_BTC);
    y_BTD = model_norm(p, y_BTD, l->routed_after, spec->epsilon);
    return add_of_all(p, spec, l, (MxValue[]){x_BTD, y_BTD});
}

/* ---- cost */

static BlockFlops flops(const MxConfig *c, const MxLayerSpec *spec, const MxBlockSpec *row,
                        double rows, double length) {
    (void)spec;
    double reads = (double)model_width(c, row->reads), tokens = rows * length;
    double one = model_glu_flops(c, reads, (double)c->moe_mlp_dim, tokens);
    double gate = 2 * tokens * reads * (double)c->num_experts;
    double each = row->shared_is_mlp ? model_glu_flops(c, reads, (double)c->mlp_dim, tokens) : one;
    if (row->shared) gate += each * (double)c->shared_experts;
    return (BlockFlops){.weights = gate + one * (double)c->num_experts_per_tok};
}

static double width(const MxConfig *c, const MxLayerSpec *spec, const MxBlockSpec *row) {
    double chosen = (double)c->moe_mlp_dim * (double)c->num_experts_per_tok;
    (void)spec;
    return row->shared ? fmax(chosen, (double)shared_width(c, row)) : chosen;
}

const Block block_moe = {
    .params = add_params,
    .trace = trace,
    .flops = flops,
    .width = width,
    .router = router,
};
