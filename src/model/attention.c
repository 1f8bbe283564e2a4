/* attention.c — a block: attention with rotary positions, in which groups of query heads share keys
 * and values. Source: MaxText layers/attentions.py @e591f30c. */
#include <mx/model.h>

#include "chunks.h"
#include "mapped.h"

#include <math.h>

typedef struct Leaves {
    Dense query, key, value, out;
    Dense qkv; /* fused_qkv: instead of the first three */
    Norm query_norm, key_norm, value_norm;
    int sinks; /* -1 = none */
} Leaves;

/* ---- parameters */

/* Before they are turned. */
static bool norms_heads(const Spec *spec) {
    return spec->norms_heads && !spec->row->norms_turned;
}

/* Of each head of a width, or of all of them together. */
static Norm add_norm_of_heads(const Place *p, const MxConfig *c, const char *name, const Spec *spec,
                              int64_t n_heads) {
    bool has_scale = norms_heads(spec) && c->qk_norm_with_scale;
    int64_t H = spec->head_dim;
    return model_add_norm(p, has_scale ? name : NULL, spec->row->norms_together ? n_heads * H : H);
}

/* A kernel, and its bias, which has the dims that are not contracted. */
static Dense add_dense(const Place *p, Kernel k, bool has_bias) {
    MxShape bias = {.rank = k.shape.rank - k.n_contract};
    for (int i = 0; i < bias.rank; i++) bias.dim[i] = k.shape.dim[k.n_contract + i];
    Dense dense = {.bias = -1};
    if (p->maps)
        dense = model_add_mapped(p, &k);
    else
        dense.kernel = model_add(p, mx_path_join(p->arena, k.name, "kernel"), k.shape, k.n_contract,
                                 k.axes, k.init);
    if (has_bias)
        dense.bias = model_add(p, mx_path_join(p->arena, k.name, "bias"), bias, 0,
                               k.axes + k.n_contract, (MxInit){.kind = MX_INIT_ZEROS});
    return dense;
}

/* Query kernels are drawn smaller where nothing scales queries later. Fused, they still are, which
 * MaxText forgets (init_qkv_w). */
static void add_qkv(const Place *p, const MxConfig *c, const Spec *spec, Leaves *l) {
    double query_scale = spec->attention.scale == 1 ? 1 / sqrt((double)spec->head_dim) : 1;
    bool is_alike = spec->row->heads_alike;
    int64_t D = c->emb_dim, N = c->num_query_heads, K = spec->n_kv_heads, H = spec->head_dim;
    MxInit init = model_fan_in(MX_INIT_NORMAL, D), query = init;
    query.std *= query_scale;
    if (c->fused_qkv) {
        if (query_scale != 1) init.n_first = N * H, init.first_std = query.std;
        Kernel beside = {"qkv_proj", MX_SHAPE(D, N + 2 * K, H), 1, AXES("embed", "heads", "kv"),
                         init};
        Kernel apart = {"qkv_proj", MX_SHAPE(D, 3, N, H), 1, AXES("embed", "qkv", "heads", "kv"),
                        init};
        l->qkv = add_dense(p, is_alike ? apart : beside, spec->has_bias);
        return;
    }
    /* MaxText leaves these kernels whole where decoding cuts the context (attentions.py). */
    bool is_whole = c->ici_context_autoregressive_parallelism > 1;
    const char *const *no_axes = AXES(NULL, NULL, NULL);
    const char *const *q_axes = AXES("embed", is_alike ? "heads" : "q_heads", "kv");
    const char *const *kv_axes = is_alike ? q_axes : AXES("embed", "kv_heads", "kv_head_dim");
    if (is_whole) q_axes = kv_axes = no_axes;
    MxShape kv = MX_SHAPE(D, K, H);
    MxShape q = MX_SHAPE(D, N, spec->row->gates_heads ? 2 * H : H);
    l->query = add_dense(p, (Kernel){"query", q, 1, q_axes, query}, spec->has_bias);
    if (spec->row->takes_kv) return;
    l->key = add_dense(p, (Kernel){"key", kv, 1, kv_axes, init}, spec->has_bias);
    l->value.kernel = -1;
    if (!spec->shares_kv)
        l->value = add_dense(p, (Kernel){"value", kv, 1, kv_axes, init}, spec->has_bias);
}

/* Of gated heads MaxText has them in one dim. */
static Dense add_out(const Place *p, const MxConfig *c, const Spec *spec) {
    int64_t N = c->num_query_heads, H = spec->head_dim, D = model_width(c, p->row->gives);
    bool is_whole = c->ici_context_autoregressive_parallelism > 1;
    const char *const *axes = is_whole ? AXES(NULL, NULL, NULL) : AXES("heads", "kv", "embed");
    Kernel out = {"out", MX_SHAPE(N, H, D), 2, axes, model_fan_in(MX_INIT_NORMAL, N * H)};
    Kernel flat = {"out", MX_SHAPE(N * H, D), 1, AXES("mlp", "embed"), out.init};
    return add_dense(p, spec->row->gates_heads ? flat : out, spec->has_out_bias);
}

static const void *add_params(const Place *p, const MxConfig *c, const Spec *spec) {
    int64_t N = c->num_query_heads, H = spec->head_dim;
    Leaves *l = mx_new(p->arena, Leaves);
    add_qkv(p, c, spec, l);
    l->out = add_out(p, c, spec);
    l->sinks = -1;
    if (c->attention_sink)
        l->sinks =
            model_add(p, "sinks", MX_SHAPE(N), 0, AXES(NULL), (MxInit){.kind = MX_INIT_ZEROS});
    l->query_norm = add_norm_of_heads(p, c, "query_norm", spec, N);
    if (spec->row->takes_kv) return l;
    l->key_norm = add_norm_of_heads(p, c, "key_norm", spec, spec->n_kv_heads);
    bool has_scale = spec->row->norms_values && c->v_norm_with_scale;
    l->value_norm = model_add_norm(p, has_scale ? "value_norm" : NULL, H);
    return l;
}

/* ---- forward pass */

static void project_qkv(const Pass *p, const Spec *spec, const Leaves *l, MxValue x_BTD,
                        MxValue qkv[3]) {
    const MxConfig *c = p->model->config;
    int64_t N = c->num_query_heads, K = spec->n_kv_heads, H = spec->head_dim;
    const Dense dense[] = {l->query, l->key, l->value};
    const MxShape heads[] = {MX_SHAPE(N, H), MX_SHAPE(K, H), MX_SHAPE(K, H)};
    if (c->fused_qkv)
        model_project_apart(p, x_BTD, l->qkv, 3, heads, qkv);
    else
        model_project_each(p, x_BTD, spec->row->takes_kv ? 1 : spec->shares_kv ? 2 : 3, dense, qkv);
    if (spec->shares_kv) qkv[2] = qkv[1];
}

/* A norm with a scale or without. */
static MxValue any_norm(const Pass *p, const Spec *spec, MxValue x, Norm norm) {
    return norm.scale >= 0 ? model_norm(p, x, norm, spec->epsilon)
                           : model_norm_bare(p->t, x, 1, spec->epsilon);
}

static MxValue norm_of_values(const Pass *p, const Spec *spec, MxValue v_BTKH, Norm norm) {
    return spec->row->norms_values ? any_norm(p, spec, v_BTKH, norm) : v_BTKH;
}

static MxValue norm_of_heads(const Pass *p, const Spec *spec, MxValue x_BTNH, Norm norm) {
    if (!norms_heads(spec)) return x_BTNH;
    if (!spec->row->norms_together) return any_norm(p, spec, x_BTNH, norm);
    MxShape shape = mx_trace_type(p->t, x_BTNH).shape;
    MxValue all = any_norm(p, spec, model_flatten_last(p->t, x_BTNH, 2), norm);
    return mx_reshape(p->t, all, shape);
}

/* Rotated, or not; and normed after it, or not. */
static MxValue rotate(const Pass *p, const Spec *spec, MxValue x_BTNH) {
    if (!spec->rope.n) return x_BTNH;
    x_BTNH = mx_rope(p->t, x_BTNH, p->rope_table[spec - p->model->specs], spec->rope_layout);
    return spec->row->norms_turned && spec->norms_heads
               ? model_norm_bare(p->t, x_BTNH, 1, spec->epsilon)
               : x_BTNH;
}

/* Longer at later positions, or not. */
static MxValue tune(const Pass *p, const Spec *spec, MxValue q_BTNH) {
    if (!spec->tuning.n) return q_BTNH;
    return mx_rope(p->t, q_BTNH, p->tuning_table[spec - p->model->specs], (MxRopeAttr){0});
}

/* The second half of every head of the queries' product; MX_NONE if there is none. */
static MxValue take_gate(const Pass *p, const Spec *spec, MxValue *q_BTNH) {
    if (!spec->row->gates_heads) return MX_NONE;
    *q_BTNH = mx_split(p->t, *q_BTNH, spec->head_dim);
    return *q_BTNH + 1;
}

/* Keys and values of queries, normed and rotated, into kv; q_BTNH is as it was made. */
static void finish_kv(const Pass *p, const Spec *spec, const Leaves *l, const MxValue qkv[3],
                      MxValue kv[2]) {
    kv[0] = rotate(p, spec, norm_of_heads(p, spec, qkv[1], l->key_norm));
    kv[1] = norm_of_values(p, spec, qkv[2], l->value_norm);
    model_keep_both(p, spec, kv);
}

static MxValue trace(const Pass *p, const Spec *spec, const void *own, MxValue x_BTD) {
    MxTrace *t = p->t;
    const Leaves *l = own;
    const char *const *axes = AXES("activation_kv_batch", "activation_length_attn",
                                   "activation_kv_heads", "activation_kv_head_dim");
    bool takes_kv = spec->row->takes_kv;
    MxValue qkv[3], *kv = p->kv[takes_kv ? p->giver : p->layer];
    project_qkv(p, spec, l, x_BTD, qkv);
    MxValue gate_BTNH = take_gate(p, spec, &qkv[0]);
    for (int i = 0; i < (takes_kv ? 1 : 3); i++) qkv[i] = mx_trace_constrain(t, qkv[i], axes);
    MxValue q_BTNH = tune(p, spec, rotate(p, spec, norm_of_heads(p, spec, qkv[0], l->query_norm)));
    if (!takes_kv) finish_kv(p, spec, l, qkv, kv);
    MxValue sinks = l->sinks < 0 ? MX_NONE : mx_cast(t, model_param(p, l->sinks), MX_F32);
    MxValue o_BTNH = model_attend(p, spec, (MxValue[]){q_BTNH, kv[0], kv[1]}, sinks);
    mx_trace_constrain(t, o_BTNH,
                       AXES("activation_batch_attn", "activation_length_attn", "activation_heads",
                            "activation_kv"));
    if (gate_BTNH != MX_NONE)
        o_BTNH = model_flatten_last(t, mx_glu(t, gate_BTNH, o_BTNH, MX_SIGMOID), 2);
    MxValue y_BTD;
    model_project_each(p, o_BTNH, 1, &l->out, &y_BTD);
    return y_BTD;
}

static int caches(const MxConfig *c, const Spec *spec, MxModelCache out[MODEL_MOST_CACHES]) {
    static const char *const names[] = {"key", "value"};
    MxDtype dtype = MX_F32;
    int64_t width = spec->head_dim;
    if (spec->row->takes_kv) return 0;
    mx_dtype_parse(c->dtype, &dtype);
    if (spec->kept.type) width = mx_cache_row_bytes(spec->kept.type, width, dtype);
    for (int i = 0; i < MX_COUNT(names); i++)
        out[i] = (MxModelCache){.name = names[i],
                                .row = MX_SHAPE(spec->n_kv_heads, width),
                                .window = model_cache_window(spec),
                                .are_codes = spec->kept.type != MX_NOT_QUANTIZED};
    return MX_COUNT(names);
}

/* ---- cost */

/* Pairs of tokens that see each other, as MaxText counts them: windows only where the family has
 * them. Source: MaxText utils/maxtext_utils.py,
 * calculate_mixed_attention_model_tflops_training_per_device, calculate_llama4_attention_tflops. */
static double count_pairs(const MxConfig *c, const MxLayerSpec *spec, double length) {
    if (spec->sees == MX_SEES_CHUNK) {
        double chunk = (double)c->chunk_attn_window_size, n = floor(length / chunk);
        double rest = length - n * chunk;
        return (n * (chunk * chunk) + rest * rest) / 2;
    }
    double window = fmin((double)c->sliding_window_size, length);
    return spec->sees == MX_SEES_WINDOW && !spec->counts_all
               ? length * window - 0.5 * (window * window)
               : length * length / 2;
}

/* As read_heads of spec.c has them. */
static double head_width(const MxConfig *c, const MxLayerSpec *spec) {
    return (double)(spec->has_own_heads && c->global_head_dim ? c->global_head_dim : c->head_dim);
}

static BlockFlops flops(const MxConfig *c, const MxLayerSpec *spec, const MxBlockSpec *row,
                        double rows, double length) {
    bool has_own = spec->has_own_heads;
    double emb = (double)c->emb_dim, head = head_width(c, spec), heads = (double)c->num_query_heads;
    double kv_heads =
        (double)(has_own && c->global_num_kv_heads ? c->global_num_kv_heads : c->num_kv_heads);
    double n_kv = spec->takes_kv ? 0 : has_own && c->share_kv_projections ? 1 : 2;
    double qkv = 2 * rows * length * emb * (heads + n_kv * kv_heads) * head;
    double projection = 2 * rows * length * (double)model_width(c, row->gives) * heads * head;
    return (BlockFlops){.weights = qkv + projection,
                        .attention = 4 * rows * count_pairs(c, spec, length) * heads * head};
}

static double width(const MxConfig *c, const MxLayerSpec *spec, const MxBlockSpec *row) {
    (void)row;
    return (double)c->num_query_heads * head_width(c, spec);
}

/* Of layers with a share of their own all pairs are in the table; the others stand still. */
static int64_t rope_width(const MxConfig *c, const MxLayerSpec *spec) {
    bool has_share = spec->rope == MX_ROPE_LOCAL_PART || spec->rope == MX_ROPE_GLOBAL_PART;
    return (int64_t)(head_width(c, spec) * (has_share ? 1 : c->partial_rotary_factor));
}

static double scale(const MxConfig *c, const MxLayerSpec *spec) {
    bool is_said = c->use_qk_norm && !spec->norms_heads;
    return spec->scales_query || is_said ? 1 / sqrt((double)c->head_dim) : 1;
}

const Block block_attention = {
    .params = add_params,
    .trace = trace,
    .caches = caches,
    .flops = flops,
    .width = width,
    .rope_width = rope_width,
    .scale = scale,
};
