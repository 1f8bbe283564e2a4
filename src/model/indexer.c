/* indexer.c — the tokens that latent attention reads in sparse mode: a small attention scores
 * earlier tokens, and the best indexer_topk are used. The loss of next tokens has no gradient here;
 * with indexer_loss_scaling_factor the indexer is trained to score as attention does. Source:
 * DeepSeek-V3.2 (2025) 2.1; MaxText layers/attention_mla.py (Indexer) @e591f30c.
 *
 * Letters besides those of internal.h: Q width of the low-rank queries, I heads of the indexer, E
 * their width. */
#include <mx/model.h>

#include "internal.h"

#include <math.h>

struct Indexer {
    int query, key, weights;
    Norm key_norm;
};

/* The weights of heads are float32 whatever others are. */
const Indexer *model_add_indexer(const Place *outer, const MxConfig *c) {
    int64_t D = c->emb_dim, Q = c->q_lora_rank, I = c->indexer_n_heads, E = c->indexer_head_dim;
    MxInit of_stream = model_fan_in(MX_INIT_NORMAL, D);
    Place p = model_inside(outer, "indexer");
    if (!c->use_indexer) return NULL;
    Indexer *x = mx_new(p.arena, Indexer);
    x->query = model_add(&p, "wq_b/kernel", MX_SHAPE(Q, I, E), 1, AXES("q_lora", "q_heads", "kv"),
                         model_fan_in(MX_INIT_NORMAL, Q));
    x->key = model_add(&p, "wk/kernel", MX_SHAPE(D, E), 1, AXES("embed", "kv"), of_stream);
    p.norm = MX_NORM_LAYER_PLAIN;
    p.norms_are_whole = true;
    x->key_norm = model_add_norm(&p, "k_norm", E);
    p.dtype = MX_F32;
    x->weights = model_add(&p, "weights_proj/kernel", MX_SHAPE(D, I), 1, AXES("embed", "q_heads"),
                           of_stream);
    return x;
}

/* The first elements of a head turn, as halves where the layer's own are neighbours. */
static MxValue turn(const Pass *p, const Spec *spec, MxValue x_BTIE) {
    bool is_yarn = !spec->rope_layout.interleaved_out;
    MxRopeAttr layout = is_yarn ? (MxRopeAttr){0} : spec->rope_layout;
    return mx_rope(p->t, x_BTIE, p->rope_table[spec - p->model->specs], layout);
}

static MxValue make_keys(const Pass *p, const Spec *spec, const Indexer *x, MxValue x_BTD) {
    const double epsilon = 1e-6; /* flax's, whatever the model's is */
    MxTrace *t = p->t;
    MxValue k_BTE = model_norm(p, model_project(p, x_BTD, x->key, -1), x->key_norm, epsilon);
    MxShape shape = mx_trace_type(t, k_BTE).shape;
    MxShape head = MX_SHAPE(shape.dim[0], shape.dim[1], 1, shape.dim[2]);
    return turn(p, spec, mx_reshape(t, k_BTE, head));
}

static MxValue weigh_heads(const Pass *p, const Indexer *x, MxValue x_BTD) {
    MxTrace *t = p->t;
    const MxConfig *c = p->model->config;
    MxValue w = mx_cast(t, model_param(p, x->weights), MX_F32);
    MxValue w_BTI = mx_dot(t, mx_cast(t, x_BTD, MX_F32), w, MX_DOT_NN, 1);
    return mx_scale(t, w_BTI, 1 / sqrt((double)(c->indexer_n_heads * c->indexer_head_dim)));
}

bool mx_model_trains_indexer(const MxConfig *c) {
    return c->use_indexer && c->indexer_loss_scaling_factor > 0;
}

/* The mean over tokens. */
static void add_loss(const Pass *p, const Spec *spec, const MxValue qkw[3], const MxValue qk[2],
                     MxValue chosen) {
    MxTrace *t = p->t;
    const MxConfig *c = p->model->config;
    if (!p->index || !mx_model_trains_indexer(c)) return;
    MxShape shape = mx_trace_type(t, qkw[0]).shape;
    double tokens = (double)(shape.dim[0] * shape.dim[1]);
    MxIndexLossAttr attr = {.factor = c->indexer_loss_scaling_factor / tokens,
                            .scale = spec->attention.scale};
    MxValue one = mx_index_loss(t, qkw, p->segments_BT, qk,
                                c->indexer_sparse_training ? chosen : MX_NONE, attr);
    MxBalance *all = p->index;
    all->sum = all->n++ ? mx_add(t, all->sum, one) : one;
}

MxValue model_choose(const Pass *p, const Spec *spec, const Indexer *x, const MxValue x_low[2],
                     const MxValue qk[2]) {
    MxTrace *t = p->t;
    const MxConfig *c = p->model->config;
    if (!x) return MX_NONE;
    MxIndexAttr attr = {.n_best = c->indexer_topk, .keeps_ties = !c->indexer_mask_exact_topk};
    MxShape tokens = mx_trace_type(t, x_low[0]).shape;
    if (!p->caches && tokens.dim[1] <= attr.n_best) return MX_NONE; /* all are */
    MxValue x_BTD = mx_detach(t, x_low[0]), low_BTQ = mx_detach(t, x_low[1]);
    MxValue q_BTIE = turn(p, spec, model_project(p, low_BTQ, x->query, -1));
    MxValue k_BT1E = make_keys(p, spec, x, x_BTD), w_BTI = weigh_heads(p, x, x_BTD);
    if (p->caches) {
        MxValue all = model_keep(p, MODEL_INDEX_CACHE, k_BT1E);
        return mx_cache_index(t, (MxValue[]){q_BTIE, all, w_BTI}, p->place, attr);
    }
    MxShape flat = MX_SHAPE(tokens.dim[0], tokens.dim[1], c->indexer_head_dim);
    const MxValue qkw[] = {q_BTIE, mx_reshape(t, k_BT1E, flat), w_BTI};
    MxValue chosen = mx_index(t, qkw, p->segments_BT, attr);
    add_loss(p, spec, qkw, qk, chosen);
    return chosen;
}

/* ---- cost */

/* Source: MaxText utils/maxtext_utils.py, calculate_indexer_tflops_per_device. */
BlockFlops model_indexer_flops(const MxConfig *c, double tokens, double length) {
    double D = (double)c->emb_dim, Q = (double)c->q_lora_rank;
    double I = (double)c->indexer_n_heads, E = (double)c->indexer_head_dim;
    double scores = 2 * tokens * length * I * E + 2 * tokens * length * I;
    return (BlockFlops){.weights = 2 * tokens * Q * I * E + 2 * tokens * D * E + 2 * tokens * D * I,
                        .attention = scores / 2};
}

double model_indexer_share(const MxConfig *c, double length) {
    double ratio = (double)c->indexer_topk / length;
    return c->use_indexer && ratio < 1 ? ratio - 0.5 * (ratio * ratio) : 0.5;
}
