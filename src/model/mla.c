/* mla.c — a block: latent attention. Keys and values of all heads are computed from one narrow
 * vector per token, and so may queries be. A rotated part of each head is added beside the rest;
 * for keys, all heads share that part. Source: DeepSeek-V2 (2024) 2.1; MaxText
 * layers/attention_mla.py @e591f30c.
 *
 * Letters besides those of internal.h: Q, C widths of the narrow vectors of queries, and of keys
 * and values; S, R widths of the unrotated and the rotated part of a head; V width of a value head.
 */
#include <mx/model.h>

#include "chunks.h"

#include <math.h>

typedef struct Leaves {
    int query;        /* -1 = the next two */
    int wq_a, wq_b;   /* -1 = queries are not narrowed */
    int wkv_a, wkv_b; /* to C + R; to S + V a head */
    int out;
    Norm q_norm, kv_norm;
    const Indexer *indexer;
} Leaves;

static int64_t head_width(const MxConfig *c) {
    return c->qk_nope_head_dim + c->qk_rope_head_dim;
}

static int64_t rope_width(const MxConfig *c, const MxLayerSpec *spec) {
    (void)spec;
    return c->qk_rope_head_dim;
}

/* Longer contexts than those of training make sharper softmaxes. Source: Peng et al. 2023. */
static double scale(const MxConfig *c, const MxLayerSpec *spec) {
    (void)spec;
    double sharper = 1;
    if (c->max_position_embeddings > c->original_max_position_embeddings)
        sharper = 0.1 * c->mscale * log(c->rope_factor) + 1;
    return sharper * sharper / sqrt((double)head_width(c));
}

/* ---- parameters */

static const void *add_params(const Place *p, const MxConfig *c, const Spec *spec) {
    (void)spec;
    int64_t D = c->emb_dim, N = c->num_query_heads, H = head_width(c), Q = c->q_lora_rank;
    int64_t C = c->kv_lora_rank, R = c->qk_rope_head_dim, S = c->qk_nope_head_dim;
    int64_t V = c->v_head_dim;
    MxInit of_stream = model_fan_in(MX_INIT_NORMAL, D);
    Leaves *l = mx_new(p->arena, Leaves);
    *l = (Leaves){.query = -1, .wq_a = -1, .wq_b = -1};
    if (!Q) {
        l->query = model_add(p, "query/kernel", MX_SHAPE(D, N, H), 1,
                             AXES("embed", "q_heads", "kv"), of_stream);
    } else {
        l->wq_a = model_add(p, "wq_a/kernel", MX_SHAPE(D, Q), 1, AXES("embed", "q_lora_up_proj"),
                            of_stream);
        l->q_norm = model_add_norm(p, "q_norm", Q);
        l->wq_b = model_add(p, "wq_b/kernel", MX_SHAPE(Q, N, H), 1, AXES("q_lora", "q_heads", "kv"),
                            model_fan_in(MX_INIT_NORMAL, Q));
    }
    l->wkv_a = model_add(p, "wkv_a/kernel", MX_SHAPE(D, C + R), 1, AXES("embed", "kv_lora_up_proj"),
                         of_stream);
    l->kv_norm = model_add_norm(p, "kv_norm", C);
    l->wkv_b =
        model_add(p, "wkv_b/kernel", MX_SHAPE(C, N, S + V), 1,
                  AXES("kv_lora", "kv_heads", "kv_head_dim"), model_fan_in(MX_INIT_NORMAL, C));
    bool is_whole = c->ici_context_autoregressive_parallelism > 1;
    l->out = model_add(p, "out/kernel", MX_SHAPE(N, V, D), 2,
                       is_whole ? AXES(NULL, NULL, NULL) : AXES("heads", "kv", "embed"),
                       model_fan_in(MX_INIT_NORMAL, N * V));
    l->indexer = model_add_indexer(p, c);
    return l;
}

/* ---- forward pass */

/* The kernel that makes the heads of queries. */
static int query_kernel(const Leaves *l) {
    return l->query < 0 ? l->wq_b : l->query;
}

/* What queries are made of: narrow vectors, or x itself. */
static MxValue narrow(const Pass *p, const Spec *spec, const Leaves *l, MxValue x_BTD) {
    if (l->query >= 0) return x_BTD;
    return model_norm(p, model_project(p, x_BTD, l->wq_a, -1), l->q_norm, spec->epsilon);
}

/* Over caches attention sees the narrow vectors themselves, each followed by its rotated part: what
 * would make keys of them turns queries instead, q (W c) = (W^T q) c, and what would make values of
 * them is applied to what attention gives. Source: DeepSeek-V2 (2024) 2.1.2. The mean of such rows
 * makes the mean of keys, so heads choose the same chunks. */
static MxValue attend_narrow(const Pass *p, const Spec *spec, const Leaves *l,
                             const MxValue q_latent_turned[3], MxValue chosen) {
    MxTrace *t = p->t;
    const MxConfig *c = p->model->config;
    MxValue latent_BTC = q_latent_turned[1];
    MxShape shape = mx_trace_type(t, latent_BTC).shape;
    MxShape row = MX_SHAPE(shape.dim[0], shape.dim[1], 1, c->kv_lora_rank);
    MxHeadDotAttr to_keys = {.transposed = true, .width = c->qk_nope_head_dim};
    MxHeadDotAttr to_values = {.first = c->qk_nope_head_dim, .width = c->v_head_dim};
    MxAttentionAttr attr = spec->attention;
    attr.value_width = c->kv_lora_rank;
    attr.is_chosen = chosen != MX_NONE;
    MxValue w = mx_cast(t, model_fold_adapter(p, l->wkv_b), p->model->dtype);
    MxValue q_BTNS = mx_split(t, q_latent_turned[0], c->qk_nope_head_dim);
    MxValue q_BTNC = mx_concat(t, mx_head_dot(t, q_BTNS, w, to_keys), q_BTNS + 1);
    MxValue row_BT1C = mx_concat(t, mx_reshape(t, latent_BTC, row), q_latent_turned[2]);
    MxValue all = model_keep(p, 0, row_BT1C);
    if (spec->chunks.n_best) chosen = model_choose_chunks(p, spec, q_BTNC, all, &attr);
    MxValue o_BTNC = mx_cache_attention(t, (MxValue[]){q_BTNC, all, all}, p->place, chosen, attr);
    return mx_head_dot(t, o_BTNC, w, to_values);
}

/* Keys and values of heads, made of narrow vectors. */
static void widen(const Pass *p, const Leaves *l, MxValue latent_BTC, MxValue turned_BT1R,
                  MxValue kv[2]) {
    MxTrace *t = p->t;
    const char *const *axes = AXES("activation_kv_batch", "activation_length_attn",
                                   "activation_kv_heads", "activation_kv_head_dim");
    MxValue k_BTNS =
        mx_split(t, model_project(p, latent_BTC, l->wkv_b, -1), p->model->config->qk_nope_head_dim);
    kv[1] = mx_trace_constrain(t, k_BTNS + 1, axes);
    kv[0] = mx_trace_constrain(t, mx_concat(t, k_BTNS, turned_BT1R), axes);
}

/* Attention over the tokens of the pass. */
static MxValue attend(const Pass *p, const Spec *spec, const Leaves *l, const MxValue qkv[3],
                      const MxValue x_low[2]) {
    MxTrace *t = p->t;
    MxValue chosen = model_choose(p, spec, l->indexer, x_low, qkv);
    MxValue o_BTNV = chosen == MX_NONE
                         ? model_attend(p, spec, qkv, MX_NONE)
                         : mx_attention_chosen(t, qkv, p->segments_BT, chosen, spec->attention);
    if (p->tops && o_BTNV >= 0) p->tops[query_kernel(l)] = mx_largest(t, o_BTNV + 2);
    return mx_trace_constrain(t, o_BTNV,
                              AXES("activation_batch_attn", "activation_length_attn",
                                   "activation_heads", "activation_kv"));
}

static MxValue trace(const Pass *p, const Spec *spec, const void *own, MxValue x_BTD) {
    MxTrace *t = p->t;
    const Leaves *l = own;
    const MxConfig *c = p->model->config;
    const char *const *axes = AXES("activation_kv_batch", "activation_length_attn",
                                   "activation_kv_heads", "activation_kv_head_dim");
    MxValue table = p->rope_table[spec - p->model->specs];
    MxRopeAttr of_head = spec->rope_layout;
    of_head.first = c->qk_nope_head_dim;
    const MxValue x_low[] = {x_BTD, narrow(p, spec, l, x_BTD)};
    MxValue q_BTNH = mx_rope(t, model_project(p, x_low[1], query_kernel(l), -1), table, of_head);
    MxValue latent_BTC = mx_split(t, model_project(p, x_BTD, l->wkv_a, -1), c->kv_lora_rank);
    MxShape shape = mx_trace_type(t, q_BTNH).shape;
    MxValue turned_BT1R =
        mx_reshape(t, latent_BTC + 1, MX_SHAPE(shape.dim[0], shape.dim[1], 1, c->qk_rope_head_dim));
    turned_BT1R = mx_rope(t, turned_BT1R, table, spec->rope_layout);
    latent_BTC = model_norm(p, latent_BTC, l->kv_norm, spec->epsilon);
    if (p->caches) {
        const MxValue parts[] = {q_BTNH, latent_BTC, turned_BT1R};
        MxValue chosen = model_choose(p, spec, l->indexer, x_low, NULL);
        return model_project(p, attend_narrow(p, spec, l, parts, chosen), l->out, -1);
    }
    MxValue qkv[3] = {mx_trace_constrain(t, q_BTNH, axes)};
    widen(p, l, latent_BTC, turned_BT1R, qkv + 1);
    return model_project(p, attend(p, spec, l, qkv, x_low), l->out, -1);
}

static MxHeads heads(const MxConfig *c, const void *own) {
    const Leaves *l = own;
    return (MxHeads){.query = query_kernel(l), .key = l->wkv_b, .first = c->qk_nope_head_dim};
}

static int caches(const MxConfig *c, const Spec *spec, MxModelCache out[MODEL_MOST_CACHES]) {
    int64_t width = c->kv_lora_rank + c->qk_rope_head_dim;
    MxShape row = MX_SHAPE(1, width);
    out[0] = (MxModelCache){.name = "latent", .row = row, .window = model_cache_window(spec)};
    if (!c->use_indexer) return 1;
    out[MODEL_INDEX_CACHE] =
        (MxModelCache){.name = "index", .row = MX_SHAPE(1, c->indexer_head_dim)};
    return MODEL_INDEX_CACHE + 1;
}

/* ---- cost */

/* Source: MaxText utils/maxtext_utils.py, calculate_mla_tflops_per_device. */
static BlockFlops flops(const MxConfig *c, const MxLayerSpec *spec, const MxBlockSpec *row,
                        double rows, double length) {
    (void)spec, (void)row;
    double D = (double)c->emb_dim, N = (double)c->num_query_heads, H = (double)head_width(c);
    double C = (double)c->kv_lora_rank, R = (double)c->qk_rope_head_dim;
    double S = (double)c->qk_nope_head_dim, V = (double)c->v_head_dim, Q = (double)c->q_lora_rank;
    double tokens = rows * length;
    double query = 2 * tokens * (Q > 0 ? D * Q + Q * N * H : D * N * H);
    double key_value = 2 * tokens * (D * (C + R) + C * N * (S + V));
    double pairs = model_indexer_share(c, length);
    BlockFlops all = {.weights = query + key_value + 2 * tokens * D * N * V,
                      .attention = 2 * tokens * length * N * (H + V) * pairs};
    if (!c->use_indexer || length <= (double)c->indexer_topk) return all;
    BlockFlops indexer = model_indexer_flops(c, tokens, length);
    all.weights += indexer.weights;
    all.attention += indexer.attention;
    return all;
}

static double width(const MxConfig *c, const MxLayerSpec *spec, const MxBlockSpec *row) {
    (void)spec, (void)row;
    double value = (double)(c->qk_nope_head_dim + c->v_head_dim);
    return (double)c->num_query_heads * fmax((double)head_width(c), value);
}

const Block block_mla = {
    .params = add_params,
    .trace = trace,
    .caches = caches,
    .keeps_numbers = "the narrow vectors of latent attention",
    .flops = flops,
    .width = width,
    .rope_width = rope_width,
    .scale = scale,
    .heads = heads,
};
