/* streams.c — a residual stream with several rows per token (manifold-constrained
 * hyper-connections): a block reads a combination of all rows, its output is added to each, and
 * rows are mixed by a doubly stochastic matrix. The weights of all three are computed from the
 * token's rows. Source: Xie et al. 2025 (mHC) 4; MaxText layers/mhc.py @e591f30c.
 *
 * Letters besides those of internal.h: S rows of a token, R numbers from which the matrix is
 * computed: S S, or the number of permutations of rows. */
#include <mx/model.h>

#include "streams.h"

/* How a map is made: scale (x · alpha) + beta. */
typedef struct Map {
    int alpha, beta, scale;
} Map;

struct Hyper {
    Norm norm;
    Map reads, gives, mixes;
};

struct Collapse {
    int alpha, beta, scale;
};

static const double least = 1e-6; /* of what a row counts */

int64_t model_n_streams(const MxConfig *c) {
    return mx_family_find(c->decoder_block)->has_streams ? c->mhc_expansion_rate : 1;
}

/* ---- parameters */

static const double FIRST_SCALE = 0.01;

static Map add_map(const Place *p, const char *name, int64_t in, MxShape out) {
    MxInit zeros = {.kind = MX_INIT_ZEROS}, scale = {MX_INIT_CONSTANT, .std = FIRST_SCALE};
    const char *const alpha = mx_arena_printf(p->arena, "%s_alpha", name);
    return (Map){.alpha =
                     model_add(p, alpha, MX_SHAPE(in, mx_shape_count(out)), 1,
                               AXES("activation_embed", NULL), model_fan_in(MX_INIT_NORMAL, in)),
                 .beta = model_add(p, mx_arena_printf(p->arena, "%s_beta", name), out, 0,
                                   AXES(NULL, NULL), zeros),
                 .scale = model_add(p, mx_arena_printf(p->arena, "%s_scale", alpha), MX_SHAPE(1), 0,
                                    AXES(NULL), scale)};
}

static int64_t factorial(int64_t n) {
    return n < 2 ? 1 : n * factorial(n - 1);
}

const Hyper *model_add_hyper(const Place *outer, const MxConfig *c, int block) {
    static const char *const names[MX_LAYER_BLOCKS] = {"mhc_attention", "mhc_mlp"};
    int64_t S = model_n_streams(c), in = S * c->emb_dim;
    Place p = *outer;
    if (S == 1) return NULL;
    Hyper *hyper = mx_new(p.arena, Hyper);
    p.block = names[block];
    hyper->norm = model_add_norm(&p, "mhc_norm", in);
    hyper->mixes =
        add_map(&p, "res", in, c->enable_mhc_lite ? MX_SHAPE(factorial(S)) : MX_SHAPE(S, S));
    hyper->reads = add_map(&p, "pre", in, MX_SHAPE(S));
    hyper->gives = add_map(&p, "post", in, MX_SHAPE(S));
    return hyper;
}

const Collapse *model_add_collapse(const Place *p, const MxConfig *c) {
    int64_t S = model_n_streams(c), in = S * c->emb_dim;
    if (S == 1 || !mx_family_find(c->decoder_block)->weighs_streams) return NULL;
    Collapse *l = mx_new(p->arena, Collapse);
    l->alpha = model_add(p, "decoder/hc_head/hc_fn", MX_SHAPE(in, S), 1,
                         AXES("activation_embed", NULL), model_fan_in(MX_INIT_NORMAL, in));
    l->beta = model_add(p, "decoder/hc_head/hc_base", MX_SHAPE(S), 0, AXES(NULL),
                        (MxInit){.kind = MX_INIT_ZEROS});
    l->scale = model_add(p, "decoder/hc_head/hc_scale", MX_SHAPE(1), 0, AXES(NULL),
                         (MxInit){MX_INIT_CONSTANT, .std = FIRST_SCALE});
    return l;
}

/* ---- forward pass */

/* The first two dims of x [B, T, ..], and these. */
static MxShape tokens_of(MxTrace *t, MxValue x, MxShape behind) {
    MxShape shape = mx_trace_type(t, x).shape;
    shape.rank = 2;
    for (int i = 0; i < behind.rank; i++) shape.dim[shape.rank++] = behind.dim[i];
    return shape;
}

static MxValue shaped(MxTrace *t, MxValue x, MxShape behind) {
    return mx_reshape(t, x, tokens_of(t, x, behind));
}

/* As weights of rows. */
static MxValue ones(MxTrace *t, MxValue x, MxShape behind) {
    MxInitAttr attr = {
        .type = {MX_F32, tokens_of(t, x, behind)}, .fill = MX_FILL_CONSTANT, .value = 1};
    return mx_init(t, attr);
}

MxValue model_spread(const Pass *p, MxValue x_BTD) {
    int64_t S = model_n_streams(p->model->config), D = p->model->config->emb_dim;
    if (S == 1) return x_BTD;
    return mx_combine(p->t, shaped(p->t, x_BTD, MX_SHAPE(1, D)), ones(p->t, x_BTD, MX_SHAPE(1, S)));
}

/* In float32 whatever the stream is. Source: MaxText layers/mhc.py (DeepSeek4HyperHead) @e591f30c.
 */
static MxValue weigh_rows(const Pass *p, const Collapse *l, MxValue x_BTSD) {
    MxTrace *t = p->t;
    MxValue flat = model_flatten_last(t, mx_cast(t, x_BTSD, MX_F32), 2);
    MxValue w = mx_cast(t, model_param(p, l->alpha), MX_F32);
    MxValue made_BTS = mx_dot(t, model_norm_bare(t, flat, 1, least), w, MX_DOT_NN, 1);
    made_BTS = model_scaled(t, made_BTS, mx_cast(t, model_param(p, l->scale), MX_F32));
    made_BTS = mx_add(t, made_BTS, mx_cast(t, model_param(p, l->beta), MX_F32));
    return mx_plus(t, mx_activate(t, made_BTS, MX_SIGMOID), least);
}

MxValue model_gather(const Pass *p, MxValue x_BTSD) {
    int64_t S = model_n_streams(p->model->config);
    const Collapse *l = p->model->collapse;
    if (S == 1) return x_BTSD;
    return mx_combine(p->t, x_BTSD, l ? weigh_rows(p, l, x_BTSD) : ones(p->t, x_BTSD, MX_SHAPE(S)));
}

/* The products of all maps with x, scaled and with their biases. */
static void map_all(const Pass *p, const Hyper *h, MxValue x_BTSD, double epsilon, MxValue *out) {
    MxTrace *t = p->t;
    const Map *const maps[] = {&h->reads, &h->gives, &h->mixes};
    const Dense dense[] = {{.kernel = h->reads.alpha, .bias = -1},
                           {.kernel = h->gives.alpha, .bias = -1},
                           {.kernel = h->mixes.alpha, .bias = -1}};
    MxValue x = model_norm(p, model_flatten_last(t, x_BTSD, 2), h->norm, epsilon);
    model_project_each(p, x, MX_COUNT(maps), dense, out);
    for (int i = 0; i < MX_COUNT(maps); i++) {
        MxShape shape = p->model->params.leaves[maps[i]->beta].shape;
        MxValue scaled = model_times(p, out[i], maps[i]->scale);
        out[i] = mx_add(t, shaped(t, scaled, shape), model_weight(p, maps[i]->beta));
    }
}

static MxValue squash(MxTrace *t, MxValue x) {
    return mx_cast(t, mx_activate(t, x, MX_SIGMOID), MX_F32);
}

Streams model_read_streams(const Pass *p, const Hyper *h, MxValue x_BTSD, double epsilon) {
    MxTrace *t = p->t;
    const MxConfig *c = p->model->config;
    MxValue made[3];
    if (!h) return (Streams){.reads = x_BTSD};
    map_all(p, h, x_BTSD, epsilon, made);
    MxValue matrix = mx_cast(t, made[2], MX_F32);
    return (Streams){.hyper = h,
                     .reads = mx_combine(t, x_BTSD, mx_plus(t, squash(t, made[0]), least)),
                     .gives_BTS = mx_scale(t, squash(t, made[1]), 2),
                     .mixes_BTSS =
                         c->enable_mhc_lite
                             ? mx_permutations(t, mx_softmax(t, matrix), model_n_streams(c))
                             : mx_sinkhorn(t, matrix, c->sinkhorn_iterations)};
}

MxValue model_write_streams(const Pass *p, const Streams *s, MxValue x_BTSD, MxValue y_BTD) {
    MxTrace *t = p->t;
    if (!s->hyper) return mx_add(t, x_BTSD, y_BTD);
    int64_t S = model_n_streams(p->model->config), D = p->model->config->emb_dim;
    MxValue given =
        mx_combine(t, shaped(t, y_BTD, MX_SHAPE(1, D)), shaped(t, s->gives_BTS, MX_SHAPE(1, S)));
    return mx_add(t, mx_combine(t, x_BTSD, s->mixes_BTSS), given);
}

/* Source: MaxText utils/maxtext_utils.py, calculate_mhc_flops_per_layer. */
double model_hyper_flops(const MxConfig *c, double tokens) {
    double S = (double)model_n_streams(c), D = (double)c->emb_dim;
    double maps = 2 * tokens * (S * D) * (S + S + S * S);
    double rows = 2 * tokens * S * D + tokens * S * D + 2 * tokens * (S * S) * D;
    return S > 1 ? maps + rows : 0;
}
