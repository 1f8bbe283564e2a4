/* muon.c — matrices are updated along their orthogonalized momentum, everything else with AdamW
 * with Nesterov's momentum. A matrix is the operand of a product of the model: the leading
 * n_contract dims against the others; each expert has its own matrix and norm. Source:
 * optax.contrib.muon @0.2.8 as MaxText optimizers/optimizers.py and utils/muon_utils.py @e591f30c
 * call it; Jordan et al. 2024. */
#include "internal.h"

#include <mx/family.h>

#include <math.h>

/* a x + b (x x') x + c (x x')^2 x takes singular values between 0 and 1 near 1. */
enum { COEFFICIENTS = 3 };
#define NEAR_1 3.4445f, -4.7750f, 2.0315f
#define STAYS  2.0f, -1.5f, 0.5f /* which leaves them there */

typedef struct Iterations {
    int n, n_apart; /* with coefficients of their own; 1 = all have the same */
    const float (*coefficients)[COEFFICIENTS];
} Iterations;

/* Source: MaxText optimizers/optimizers.py @e591f30c, for DeepSeek-V4. */
static Iterations iterations_of(const MxConfig *config) {
    static const float usual[][COEFFICIENTS] = {{NEAR_1}};
    static const float settling[][COEFFICIENTS] = {{NEAR_1}, {NEAR_1}, {NEAR_1}, {NEAR_1}, {NEAR_1},
                                                   {NEAR_1}, {NEAR_1}, {NEAR_1}, {STAYS},  {STAYS}};
    if (mx_family_find(config->decoder_block)->muon_settles)
        return (Iterations){MX_COUNT(settling), MX_COUNT(settling), settling};
    return (Iterations){5, MX_COUNT(usual), usual};
}

static OptimConstant constant(const MxConfig *config) {
    Iterations all = iterations_of(config);
    MxShape shape = MX_SHAPE(all.n_apart, COEFFICIENTS);
    if (all.n_apart == 1) shape = MX_SHAPE(COEFFICIENTS);
    return (OptimConstant){"ns_coeffs", shape, all.coefficients[0]};
}

/* What does not go by matrices although it may be one, by a part of its path. */
static const char *const others[] = {"scale", "embedding", "logits_dense", "bias", "sinks"};

static bool is_matrix(const MxLeaf *leaf) {
    bool is_other = !leaf->n_contract || leaf->n_batch + leaf->n_contract == leaf->shape.rank;
    for (int i = 0; i < MX_COUNT(others); i++) is_other |= strstr(leaf->path, others[i]) != NULL;
    return !is_other;
}

static int64_t count(const MxLeaf *leaf, int from, int to) {
    int64_t n = 1;
    for (int d = from; d < to; d++) n *= leaf->shape.dim[d];
    return n;
}

static int64_t n_inputs(const MxLeaf *leaf) {
    return count(leaf, leaf->n_batch, leaf->n_batch + leaf->n_contract);
}

static int64_t n_outputs(const MxLeaf *leaf) {
    return count(leaf, leaf->n_batch + leaf->n_contract, leaf->shape.rank);
}

/* One iteration on the side that has fewer elements: x' = s x or x s, with s = a + b g + c g^2 and
 * g the smaller of x x' and x' x. */
static MxValue iterate(MxTrace *t, MxValue x, const MxLeaf *leaf, const float *coefficients) {
    bool is_tall = n_inputs(leaf) > n_outputs(leaf);
    int n_rows = leaf->n_contract, n_columns = leaf->shape.rank - leaf->n_batch - n_rows;
    MxDotAttr square = {.kind = is_tall ? MX_DOT_TN : MX_DOT_NT,
                        .n_contract = is_tall ? n_rows : n_columns,
                        .n_batch = leaf->n_batch,
                        .is_square = true};
    MxDotAttr plain = {.n_contract = is_tall ? n_columns : n_rows, .n_batch = leaf->n_batch};
    MxDotAttr again = plain; /* g is symmetric: g g' is g^2, and half the work */
    again.kind = MX_DOT_NT;
    again.is_square = true;
    MxValue g = mx_batch_dot(t, x, x, square);
    MxValue s = mx_scale(t, mx_batch_dot(t, g, g, again), (double)coefficients[2]);
    s = mx_add(t, s, mx_scale(t, g, (double)coefficients[1]));
    MxValue moved = is_tall ? mx_batch_dot(t, x, s, plain) : mx_batch_dot(t, s, x, plain);
    return mx_add(t, moved, mx_scale(t, x, (double)coefficients[0]));
}

/* Of each matrix. */
static MxValue squares_of(MxTrace *t, const MxLeaf *leaf, MxValue x) {
    if (!leaf->n_batch) return mx_sum_squares(t, &x, 1);
    for (int d = leaf->shape.rank - 1; d >= leaf->n_batch; d--)
        x = mx_sum_dim(t, x, (MxSumDimAttr){.dim = d, .squares = d == leaf->shape.rank - 1});
    return x;
}

/* In the dtype of the model's own products. */
static MxValue orthogonalize(MxTrace *t, const OptimParam *param, MxValue x) {
    const MxLeaf *leaf = param->leaf;
    MxDtype dtype;
    bool known = mx_dtype_parse(param->config->dtype, &dtype);
    MX_ASSERT(known);
    x = mx_unit(t, x, squares_of(t, leaf, x), param->config->adam_eps);
    x = mx_cast(t, x, dtype);
    Iterations all = iterations_of(param->config);
    for (int i = 0; i < all.n; i++) x = iterate(t, x, leaf, all.coefficients[i % all.n_apart]);
    return mx_cast(t, x, MX_F32);
}

static double factor(const MxConfig *config, const MxLeaf *leaf) {
    double in = (double)n_inputs(leaf), out = (double)n_outputs(leaf);
    if (config->muon_consistent_rms > 0) return sqrt(fmax(in, out)) * config->muon_consistent_rms;
    return sqrt(fmax(1, out / in));
}

static void trace_matrix(MxTrace *t, const OptimParam *param, MxOptimStep *step) {
    MxDescendAttr attr = {.factor = factor(param->config, param->leaf),
                          .weight_decay = param->config->muon_weight_decay};
    MxValue ahead = mx_momentum(t, step->g, step->kept[0], step->hyper, step->clip);
    if (ahead < 0) return;
    step->kept[0] = ahead + 1;
    step->p = mx_descend(t, step->p, orthogonalize(t, param, ahead), step->hyper, attr);
}

static void matrix_hyper(const OptimUpdate *u, float *hyper) {
    optim_decay1(hyper, u->config->muon_beta, u->t);
}

static void trace_other(MxTrace *t, const OptimParam *param, MxOptimStep *step) {
    MxAdamwAttr attr = {.weight_decay = param->config->adam_weight_decay, .nesterov = true};
    optim_adam_trace(t, param->config, attr, step);
}

static const OptimRule matrices = {
    .name = "muon",
    .kept = {{.tree = OPTIM_mu, .in_mu_dtype = true, .bytes = MX_DYNAMIC}},
    .folder = "0/",
    .counts = {"0/count", "3/count"},
    .constant = constant,
    .hyper = matrix_hyper,
    .trace = trace_matrix,
};

static const OptimRule rest = {
    .name = "adam",
    .kept = {{.tree = OPTIM_mu, .in_mu_dtype = true, .bytes = MX_DYNAMIC},
             {.tree = OPTIM_nu, .bytes = MX_SQUARES}},
    .folder = "0/",
    .counts = {"0/count", "2/count"},
    .hyper = optim_adam_hyper,
    .trace = trace_other,
};

/* Source: MaxText utils/muon_utils.py (transform_logic) in release 0.2.5. */
static bool is_router(const MxLeaf *leaf) {
    return mx_text_has_suffix(leaf->path, "/gate/kernel");
}

static int part(const MxConfig *config, const MxLeaf *leaf) {
    return is_matrix(leaf) && (config->muon_include_routers || !is_router(leaf)) ? 0 : 1;
}

const OptimRow optim_muon = {
    .name = "muon",
    .parts = {{&matrices, "inner_states/muon/inner_state/"},
              {&rest, "inner_states/adam/inner_state/"}},
    .part = part,
};
