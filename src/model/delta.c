/* delta.c — a block: a gated delta net. Queries, keys and values of heads pass a short causal
 * convolution, then a state of each head that every token updates and reads (mx_delta); the result
 * is normed, and gated by a fourth product of the stream. Source: Yang et al. 2024; MaxText
 * models/qwen3.py (Qwen3NextGatedDeltaNet) @e591f30c.
 *
 * Letters besides those of internal.h: K heads of keys, N of values, R = N / K, H and W their
 * widths, C taps of the convolution. The products are ordered by key head: [q | k | R v | R z] and
 * [R beta | R decay]. */
#include <mx/model.h>

#include "internal.h"

#include <math.h>

typedef struct Leaves {
    int qkvz, ba, taps, rate, bias, out;
    Norm norm;
} Leaves;

typedef struct Sizes {
    int64_t D, K, N, R, H, W, C;
} Sizes;

static Sizes sizes_of(const MxConfig *c) {
    return (Sizes){.D = c->emb_dim,
                   .K = c->gdn_num_key_heads,
                   .N = c->gdn_num_value_heads,
                   .R = c->gdn_num_value_heads / c->gdn_num_key_heads,
                   .H = c->gdn_key_head_dim,
                   .W = c->gdn_value_head_dim,
                   .C = c->gdn_conv_kernel_dim};
}

/* ---- parameters */

static const void *add_params(const Place *p, const MxConfig *c, const Spec *spec) {
    const double most = 16; /* rates start at log u, u below it */
    (void)spec;
    Sizes s = sizes_of(c);
    int64_t keys = s.K * s.H, values = s.N * s.W;
    MxInit in = model_fan_in(MX_INIT_TRUNCATED_NORMAL, s.D);
    Leaves *l = mx_new(p->arena, Leaves);
    Place plain = *p;
    plain.norm = MX_NORM_RMS;
    l->qkvz = model_add(p, "in_proj_qkvz/kernel", MX_SHAPE(s.D, 2 * (keys + values)), 1,
                        AXES("embed", "gdn_head"), in);
    l->ba =
        model_add(p, "in_proj_ba/kernel", MX_SHAPE(s.D, 2 * s.N), 1, AXES("embed", "gdn_head"), in);
    l->taps = model_add_bare(p, "conv1d/kernel", MX_SHAPE(s.C, 1, 2 * keys + values),
                             model_fan_in(MX_INIT_TRUNCATED_NORMAL, s.C));
    l->rate = model_add_bare(p, "A_log", MX_SHAPE(s.N),
                             (MxInit){.kind = MX_INIT_LOG_UNIFORM, .std = most});
    l->bias = model_add_bare(p, "dt_bias", MX_SHAPE(s.N), (MxInit){.kind = MX_INIT_ONES});
    l->norm = model_add_norm(&plain, "norm/rms_norm", s.W);
    l->out = model_add(p, "out_proj/kernel", MX_SHAPE(values, s.D), 1, AXES("gdn_head", "embed"),
                       model_fan_in(MX_INIT_TRUNCATED_NORMAL, values));
    return l;
}

/* ---- forward pass */

/* What passes the convolution, and the caches, in which the memory stands behind these. */
enum { QUERY, KEY, VALUE, PARTS, MEMORY = PARTS, CACHES };

/* The taps of the channels of queries, keys and values. */
static void split_taps(const Pass *p, const Leaves *l, MxValue w[PARTS]) {
    MxTrace *t = p->t;
    Sizes s = sizes_of(p->model->config);
    MxValue all = mx_cast(t, model_param(p, l->taps), MX_F32);
    all = mx_reshape(t, all, MX_SHAPE(s.C, 2 * s.K * s.H + s.N * s.W));
    w[QUERY] = mx_split(t, all, s.K * s.H);
    w[KEY] = mx_split(t, w[QUERY] + 1, s.K * s.H);
    w[VALUE] = w[KEY] + 1;
}

static MxDeltaAttr delta_attr(const Pass *p) {
    return (MxDeltaAttr){.carries = !p->model->config->gdn_reset_at_documents};
}

/* silu(conv(x)) of a part, as `to`. */
static MxValue convolve(const Pass *p, int part, MxValue x, const MxValue w[PARTS], MxShape to) {
    MxTrace *t = p->t;
    MxShape flat = MX_SHAPE(to.dim[0], to.dim[1], to.dim[2] * to.dim[3]);
    MxValue y = model_convolve(p, mx_reshape(t, x, flat), w[part], delta_attr(p), part);
    return mx_reshape(t, mx_activate(t, y, MX_SILU), to);
}

/* Vectors of heads times `factor`, of length 1 before if use_qk_norm_in_gdn. */
static MxValue norm_of_heads(const Pass *p, MxValue x_BTKH, double factor) {
    const double epsilon = 1e-6;
    MxTrace *t = p->t;
    double width = (double)p->model->config->gdn_key_head_dim;
    if (!p->model->config->use_qk_norm_in_gdn)
        return factor == 1 ? x_BTKH : mx_scale(t, x_BTKH, factor);
    return model_norm_bare(t, x_BTKH, factor / sqrt(width), epsilon / width);
}

/* What beta and decay are made of, f32 [B, T, N] each. */
static void gates(const Pass *p, const Leaves *l, MxValue x_BTD, MxValue gate[2]) {
    MxTrace *t = p->t;
    Sizes s = sizes_of(p->model->config);
    MxValue ba = model_project(p, x_BTD, l->ba, -1);
    MxShape shape = mx_trace_type(t, ba).shape, BTN = MX_SHAPE(shape.dim[0], shape.dim[1], s.N);
    ba = mx_reshape(t, ba, MX_SHAPE(shape.dim[0], shape.dim[1], s.K, 2 * s.R));
    MxValue beta = mx_split(t, mx_cast(t, ba, MX_F32), s.R);
    MxValue rate = mx_cast(t, model_param(p, l->rate), MX_F32);
    MxValue x =
        mx_add(t, mx_reshape(t, beta + 1, BTN), mx_cast(t, model_param(p, l->bias), MX_F32));
    gate[0] = mx_decay(t, x, rate);
    gate[1] = mx_activate(t, mx_reshape(t, beta, BTN), MX_SIGMOID);
}

static MxValue trace(const Pass *p, const Spec *spec, const void *own, MxValue x_BTD) {
    MxTrace *t = p->t;
    const Leaves *l = own;
    Sizes s = sizes_of(p->model->config);
    MxValue all = model_project(p, x_BTD, l->qkvz, -1), w[PARTS], gate[2];
    MxShape shape = mx_trace_type(t, all).shape;
    int64_t B = shape.dim[0], T = shape.dim[1];
    MxShape keys = MX_SHAPE(B, T, s.K, s.H), values = MX_SHAPE(B, T, s.N, s.W);
    all = mx_reshape(t, all, MX_SHAPE(B, T, s.K, 2 * s.H + 2 * s.R * s.W));
    mx_trace_constrain(t, all, AXES("activation_kv_batch", NULL, "activation_kv_heads", NULL));
    MxValue q = mx_split(t, all, s.H), k = mx_split(t, q + 1, s.H);
    MxValue v = mx_split(t, k + 1, s.R * s.W), z_BTNW = mx_reshape(t, v + 1, values);
    split_taps(p, l, w);
    gates(p, l, x_BTD, gate);
    q = norm_of_heads(p, convolve(p, QUERY, q, w, keys), 1 / sqrt((double)s.H));
    k = norm_of_heads(p, convolve(p, KEY, k, w, keys), 1);
    v = convolve(p, VALUE, v, w, values);
    MxValue o_BTNW = model_remember(p, (MxValue[]){q, k, v}, gate, delta_attr(p), MEMORY);
    o_BTNW = model_norm(p, o_BTNW, l->norm, spec->epsilon);
    MxValue y = model_flatten_last(t, mx_glu(t, z_BTNW, o_BTNW, MX_SILU), 2);
    return model_project(p, y, l->out, -1);
}

static int caches(const MxConfig *c, const Spec *spec, MxModelCache out[MODEL_MOST_CACHES]) {
    Sizes s = sizes_of(c);
    MxShape keys = MX_SHAPE(s.K * s.H), values = MX_SHAPE(s.N * s.W);
    (void)spec;
    out[QUERY] = (MxModelCache){.name = "query", .row = keys, .window = s.C};
    out[KEY] = (MxModelCache){.name = "key", .row = keys, .window = s.C};
    out[VALUE] = (MxModelCache){.name = "value", .row = values, .window = s.C};
    out[MEMORY] =
        (MxModelCache){.name = "memory", .row = MX_SHAPE(s.N, s.H, s.W), .is_memory = true};
    return CACHES;
}

/* ---- cost */

/* Source: MaxText utils/maxtext_utils.py, calculate_gated_delta_net_flops_per_device. */
static BlockFlops flops(const MxConfig *c, const MxLayerSpec *spec, const MxBlockSpec *row,
                        double rows, double length) {
    (void)spec, (void)row;
    Sizes s = sizes_of(c);
    double D = (double)s.D, N = (double)s.N, keys = (double)(s.K * s.H), values = N * (double)s.W;
    double tokens = rows * length;
    double in = 2 * tokens * D * (2 * keys + 2 * values + 2 * N), out = 2 * tokens * D * values;
    double taps = 2 * tokens * (double)s.C * (2 * keys + values);
    return (BlockFlops){.weights = in + out + taps,
                        .attention = tokens * (N * (double)(s.H * s.W) * 8)};
}

static double width(const MxConfig *c, const MxLayerSpec *spec, const MxBlockSpec *row) {
    (void)spec, (void)row;
    Sizes s = sizes_of(c);
    return 2 * (double)(s.K * s.H + s.N * s.W);
}

static int64_t rope_width(const MxConfig *c, const MxLayerSpec *spec) {
    (void)c, (void)spec;
    return 0;
}

static double scale(const MxConfig *c, const MxLayerSpec *spec) {
    (void)c, (void)spec;
    return 1;
}

const Block block_delta = {
    .params = add_params,
    .trace = trace,
    .caches = caches,
    .flops = flops,
    .width = width,
    .rope_width = rope_width,
    .scale = scale,
};
