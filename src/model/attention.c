/* attention.c — a block: queries, keys and values of heads, rotated, keys and values shared by
 * groups of queries. Source: MaxText layers/attentions.py @e591f30c. */
#include <mx/model.h>

#include "internal.h"

#include <math.h>

typedef struct Leaves {
    int query, key, value, out;
    int query_bias, key_bias, value_bias, out_bias; /* -1 = none */
    int query_norm, key_norm;                       /* -1 = none */
} Leaves;

/* ---- parameters */

static int add_norm_of_heads(const Place *p, const char *name, int64_t width, bool has) {
    return has ? model_add_norm(p, name, width) : -1;
}

static const void *add_params(const Place *p, const MxConfig *c, const Spec *spec) {
    int64_t D = c->emb_dim, N = c->num_query_heads, K = c->num_kv_heads, H = c->head_dim;
    MxInit init = model_fan_in(MX_INIT_NORMAL, D), query = init, zeros = {.kind = MX_INIT_ZEROS};
    if (spec->attention.scale == 1) query.std /= sqrt((double)H);
    /* MaxText leaves these kernels whole where decoding cuts the context (attentions.py). */
    bool is_whole = c->ici_context_autoregressive_parallelism > 1;
    const char *const *no_axes = AXES(NULL, NULL, NULL);
    const char *const *q_axes = is_whole ? no_axes : AXES("embed", "q_heads", "kv");
    const char *const *kv_axes = is_whole ? no_axes : AXES("embed", "kv_heads", "kv_head_dim");
    const char *const *out_axes = is_whole ? no_axes : AXES("heads", "kv", "embed");
    Leaves *l = mx_new(p->arena, Leaves);
    *l = (Leaves){.query_bias = -1, .key_bias = -1, .value_bias = -1, .out_bias = -1};
    l->query = model_add(p, "query/kernel", MX_SHAPE(D, N, H), 1, q_axes, query);
    l->key = model_add(p, "key/kernel", MX_SHAPE(D, K, H), 1, kv_axes, init);
    l->value = model_add(p, "value/kernel", MX_SHAPE(D, K, H), 1, kv_axes, init);
    l->out = model_add(p, "out/kernel", MX_SHAPE(N, H, D), 2, out_axes,
                       model_fan_in(MX_INIT_NORMAL, N * H));
    if (c->attention_bias) {
        l->query_bias = model_add(p, "query/bias", MX_SHAPE(N, H), 0, q_axes + 1, zeros);
        l->key_bias = model_add(p, "key/bias", MX_SHAPE(K, H), 0, kv_axes + 1, zeros);
        l->value_bias = model_add(p, "value/bias", MX_SHAPE(K, H), 0, kv_axes + 1, zeros);
        if (spec->row->has_out_bias)
            l->out_bias = model_add(p, "out/bias", MX_SHAPE(D), 0, out_axes + 2, zeros);
    }
    l->query_norm = add_norm_of_heads(p, "query_norm/scale", H, spec->norms_heads);
    l->key_norm = add_norm_of_heads(p, "key_norm/scale", H, spec->norms_heads);
    return l;
}

/* ---- forward pass */

static MxValue trace(const Pass *p, const Spec *spec, const void *own, MxValue x_BTD) {
    MxTrace *t = p->t;
    const Leaves *l = own;
    const char *const *axes = AXES("activation_kv_batch", "activation_length_attn",
                                   "activation_kv_heads", "activation_kv_head_dim");
    const Dense dense[] = {
        {l->query, l->query_bias}, {l->key, l->key_bias}, {l->value, l->value_bias}};
    MxValue qkv[MX_COUNT(dense)];
    model_project_each(p, x_BTD, MX_COUNT(dense), dense, qkv);
    MxValue q_BTNH = mx_trace_constrain(t, qkv[0], axes);
    MxValue k_BTKH = mx_trace_constrain(t, qkv[1], axes);
    MxValue v_BTKH = mx_trace_constrain(t, qkv[2], axes);
    if (l->query_norm >= 0) {
        q_BTNH = model_norm(p, q_BTNH, l->query_norm, spec->epsilon);
        k_BTKH = model_norm(p, k_BTKH, l->key_norm, spec->epsilon);
    }
    MxValue rope_table = p->rope_table[spec - p->model->specs];
    q_BTNH = mx_rope(t, q_BTNH, rope_table, spec->rope_layout);
    k_BTKH = mx_rope(t, k_BTKH, rope_table, spec->rope_layout);
    MxValue o_BTNH = mx_attention(t, q_BTNH, k_BTKH, v_BTKH, p->segments_BT, spec->attention);
    mx_trace_constrain(t, o_BTNH,
                       AXES("activation_batch_attn", "activation_length_attn", "activation_heads",
                            "activation_kv"));
    return model_project(p, o_BTNH, l->out, l->out_bias);
}

/* ---- cost */

/* Pairs of tokens that see each other, as MaxText counts them: windows only where the family has
 * them. Source: MaxText utils/maxtext_utils.py,
 * calculate_mixed_attention_model_tflops_training_per_device. */
static double count_pairs(const MxConfig *c, const MxLayerSpec *spec, double length) {
    double window = fmin((double)c->sliding_window_size, length);
    return spec->sees == MX_SEES_WINDOW ? length * window - 0.5 * (window * window)
                                        : length * length / 2;
}

static BlockFlops flops(const MxConfig *c, const MxLayerSpec *spec, double rows, double length) {
    double emb = (double)c->emb_dim, head = (double)c->head_dim;
    double heads = (double)c->num_query_heads, kv_heads = (double)c->num_kv_heads;
    double qkv = 2 * rows * length * emb * (heads + 2 * kv_heads) * head;
    double projection = 2 * rows * length * emb * heads * head;
    return (BlockFlops){.weights = qkv + projection,
                        .attention = 4 * rows * count_pairs(c, spec, length) * heads * head};
}

static double width(const MxConfig *c) {
    return (double)c->num_query_heads * (double)c->head_dim;
}

const Block block_attention = {
    .params = add_params,
    .trace = trace,
    .flops = flops,
    .width = width,
};
