/* preference.c — losses of pairs, as they are written in the papers: no care for large arguments.
 */
#include "cases.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

static double s(double x) {
    return 1 / (1 + exp(-x));
}

static double smoothed(double z, double e) {
    return -(1 - e) * log(s(z)) - e * log(s(-z));
}

static double odds(double x) {
    return log(exp(x) / (1 - exp(x)));
}

static double diverged(const MxPreferenceAttr *a, double u) {
    if (a->divergence == MX_DIVERGENCE_FORWARD) return 1 - 1 / exp(u);
    if (a->divergence == MX_DIVERGENCE_JS) return log(2 * exp(u) / (exp(u) + 1));
    if (a->divergence == MX_DIVERGENCE_ALPHA && a->alpha != 1)
        return (pow(exp(u), a->alpha - 1) - 1) / (a->alpha - 1);
    return u;
}

/* x and y: sums or means of log-probabilities less the reference's, of n tokens each. */
static double pair_loss(const MxPreferenceAttr *a, double x, double y, const double n[2]) {
    double b = a->beta, e = a->label_smoothing, z = b * (x - y), q = s(z), half = 1 / (2 * b);
    bool is_maxtext = a->formula == MX_FORMULA_MAXTEXT;
    switch (a->algo) {
    case MX_PREFERENCE_DPO:
        return smoothed(is_maxtext ? b * z : z, e);
    case MX_PREFERENCE_SIGMOID_NORM:
        return smoothed(z, e);
    case MX_PREFERENCE_HINGE:
        return z < 1 ? 1 - z : 0;
    case MX_PREFERENCE_IPO:
        return pow(x - y - half, 2);
    case MX_PREFERENCE_ROBUST:
        return (-(1 - e) * log(s(z)) + e * log(s(-z))) / (1 - 2 * e);
    case MX_PREFERENCE_EXO_PAIR:
        return q * log(q / (1 - e)) + (1 - q) * log((1 - q) / e);
    case MX_PREFERENCE_NCA_PAIR:
        return -log(s(b * x)) - 0.5 * log(s(-b * x)) - 0.5 * log(s(-b * y));
    case MX_PREFERENCE_BCO_PAIR:
        return -log(s(b * x)) - log(s(-b * y));
    case MX_PREFERENCE_SPPO_HARD:
        return pow(x - half, 2) + pow(y + half, 2);
    case MX_PREFERENCE_APO_ZERO:
        return 1 - s(b * x) + s(b * y);
    case MX_PREFERENCE_APO_DOWN:
        return s(b * x) + 1 - s(z);
    case MX_PREFERENCE_DISCOPOP:
        return -(1 - s(z / a->tau)) * log(s(z)) + s(z / a->tau) * exp(-z);
    case MX_PREFERENCE_ORPO:
        z = n[0] > 0 && n[1] > 0 ? odds(x) - odds(y) : 0;
        return -x / (is_maxtext ? fmax(n[0], 1) : 1) + a->lambda * smoothed(z, e);
    case MX_PREFERENCE_SFT:
        return -x;
    case MX_PREFERENCE_AOT:
    case MX_PREFERENCE_AOT_UNPAIRED:
        return 0; /* sorted_loss */
    case MX_PREFERENCE_REWARD:
        return -log(s(x - y)) + a->center * (x + y) * (x + y);
    default:
        return smoothed(z - a->gamma, e);
    }
}

/* Two numbers of every pair of a batch. */
typedef struct Numbers {
    double of[2][256];
    int n;
} Numbers;

static void keep(Numbers *numbers, MxSorts sorts, const double logp[2], const double ratio[2]) {
    double u = logp[0] - logp[1], v = u - (ratio[0] - ratio[1]);
    bool is_margin = sorts == MX_SORTS_MARGINS;
    ck_assert_int_lt(numbers->n, MX_COUNT(numbers->of[0]));
    numbers->of[0][numbers->n] = is_margin ? u : ratio[0];
    numbers->of[1][numbers->n++] = is_margin ? v : ratio[1];
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double sorted_loss(const MxPreferenceAttr *a, Numbers *numbers) {
    double loss = 0;
    for (int i = 0; i < 2; i++) qsort(numbers->of[i], (size_t)numbers->n, sizeof(double), by_size);
    for (int i = 0; i < numbers->n; i++)
        loss += smoothed(a->beta * (numbers->of[0][i] - numbers->of[1][i]), a->label_smoothing);
    return loss;
}

static int largest(const double *ids, int64_t n) {
    double most = 1;
    for (int64_t i = 0; i < n; i++) most = fmax(most, ids[i]);
    return (int)most;
}

/* Adds what pair `id` of a pair of rows gives to sums over pairs. */
static void add_pair(const Reference *r, int64_t row, int id, Numbers *numbers) {
    double *total = r->out[1], *extremes = r->out[2];
    const MxPreferenceAttr *a = r->attr;
    const MxPreferenceRow *how = &mx_preferences[a->algo];
    bool averages = how->averages && a->formula == MX_FORMULA_STANDARD;
    bool compares = how->has_reference && !a->no_reference;
    int64_t P = r->in_type[0].shape.dim[0] / 2, T = r->in_type[0].shape.dim[1];
    double factor = how->has_scores ? 1 : a->algo == MX_PREFERENCE_ORPO ? a->lambda : a->beta;
    double logp[2] = {0}, sum[2] = {0}, n[2] = {0}, x[2], reward[2];
    for (int side = 0; side < 2; side++)
        for (int64_t i = (row + side * P) * T; i < (row + side * P + 1) * T; i++)
            n[side] += (int)r->in[1][i] == id;
    for (int side = 0; side < 2; side++) {
        double seen = 0, each = averages ? fmax(n[side], 1) : 1;
        for (int64_t i = (row + side * P) * T; i < (row + side * P + 1) * T; i++) {
            if ((int)r->in[1][i] != id) continue;
            double share = ++seen > fmin(n[0], n[1]) ? 1 - a->tail_cut : 1;
            logp[side] += share * r->in[0][i];
            sum[side] += share * (r->in[0][i] - (compares ? r->in[3][i] : 0));
        }
        x[side] = compares ? diverged(a, sum[side]) / each : diverged(a, sum[side] / each);
        reward[side] = compares ? sum[side] : x[side];
    }
    double mean = 0;
    for (int side = 0; side < 2 && a->weighs; side++)
        for (int64_t i = (row + side * P) * T; i < (row + side * P + 1) * T; i++)
            if ((int)r->in[1][i] == id) mean += r->in[3 + compares][i] / fmax(n[side], 1);
    if (how->sorts) keep(numbers, how->sorts, logp, sum);
    const double add[] = {
        [MX_PAIRS_LOSS] = exp(mean) * pair_loss(a, x[0], x[1], n),
        [MX_PAIRS_CORRECT] = reward[0] > reward[1],
        [MX_PAIRS_CHOSEN_REWARD] = factor * reward[0],
        [MX_PAIRS_REJECTED_REWARD] = factor * reward[1],
        [MX_PAIRS_MARGIN] = factor * (reward[0] - reward[1]),
        [MX_PAIRS_CHOSEN_LOGP] = logp[0],
        [MX_PAIRS_REJECTED_LOGP] = logp[1],
        [MX_PAIRS_CHOSEN_TOKENS] = n[0],
        [MX_PAIRS_REJECTED_TOKENS] = n[1],
        [MX_PAIRS_NLL] = -logp[0] / fmax(n[0], 1),
    };
    for (int i = 0; i < MX_PAIRS_COUNT; i++) total[i] += add[i];
    for (int side = 0; side < 2; side++) {
        extremes[MX_EXTREMES_HIGHEST] = fmax(extremes[MX_EXTREMES_HIGHEST], factor * reward[side]);
        extremes[MX_EXTREMES_LOWEST] = fmax(extremes[MX_EXTREMES_LOWEST], -factor * reward[side]);
    }
}

static void ref_preference(const Reference *r) {
    int64_t P = r->in_type[0].shape.dim[0] / 2, T = r->in_type[0].shape.dim[1];
    Numbers numbers = {.n = 0};
    for (int i = 0; i < MX_PAIRS_COUNT; i++) r->out[1][i] = 0;
    for (int i = 0; i < MX_EXTREMES_COUNT; i++) r->out[2][i] = -INFINITY;
    for (int64_t row = 0; row < P; row++) {
        const double *chosen = r->in[2] + row * T, *rejected = chosen + P * T;
        int chosen_ids = largest(chosen, T), rejected_ids = largest(rejected, T);
        for (int id = 1; id <= chosen_ids || id <= rejected_ids; id++)
            add_pair(r, row, id, &numbers);
    }
    r->out[1][MX_PAIRS_LOSS] += sorted_loss(r->attr, &numbers);
    r->out[0][0] = r->out[1][MX_PAIRS_LOSS];
}

// clang-format off
const OpTest test_preference = {
    CASES(
        {"dpo", ATTR(MxPreferenceAttr, .beta = 0.3), "f6,9:logp0.7 i6,9:flags0.3 i6,9:flags0.1 f6,9:logp0.7", NULL, 0},
        {"dpo, smoothed, MaxText's", ATTR(MxPreferenceAttr, .formula = MX_FORMULA_MAXTEXT, .beta = 0.5, .label_smoothing = 0.2), "f6,9:logp0.7 i6,9:flags0.3 i6,9:flags0.1 f6,9:logp0.7", NULL, 0},
        {"dpo, no beta", ATTR(MxPreferenceAttr, 0), "f6,9:logp0.7 i6,9:flags0.3 i6,9:flags0.1 f6,9:logp0.7", NULL, CASE_NO_SLOPE},
        {"large", ATTR(MxPreferenceAttr, .beta = 0.02, .label_smoothing = 0.1), "f74,1031:logp0.7 i74,1031:flags0.3 i74,1031:flags0.1 f74,1031:logp0.7", NULL, 0},
        {"means", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_SIGMOID_NORM, .beta = 2, .label_smoothing = 0.1), "f10,9:logp0.7 i10,9:flags0.3 i10,9:flags0.1 f10,9:logp0.7", NULL, 0},
        {"hinge", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_HINGE, .beta = 0.5), "f14,9:logp0.7 i14,9:flags0.3 i14,9:flags0.1 f14,9:logp0.7", NULL, 0},
        {"ipo", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_IPO, .beta = 0.4), "f10,9:logp0.7 i10,9:flags0.3 i10,9:flags0.1 f10,9:logp0.7", NULL, 0},
        {"robust", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_ROBUST, .beta = 0.4, .label_smoothing = 0.25), "f10,9:logp0.7 i10,9:flags0.3 i10,9:flags0.1 f10,9:logp0.7", NULL, 0},
        {"exo", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_EXO_PAIR, .beta = 0.4, .label_smoothing = 0.1), "f10,9:logp0.7 i10,9:flags0.3 i10,9:flags0.1 f10,9:logp0.7", NULL, 0},
        {"nca", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_NCA_PAIR, .beta = 0.4), "f10,9:logp0.7 i10,9:flags0.3 i10,9:flags0.1 f10,9:logp0.7", NULL, 0},
        {"bco", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_BCO_PAIR, .beta = 0.4), "f10,9:logp0.7 i10,9:flags0.3 i10,9:flags0.1 f10,9:logp0.7", NULL, 0},
        {"sppo", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_SPPO_HARD, .beta = 0.4), "f10,9:logp0.7 i10,9:flags0.3 i10,9:flags0.1 f10,9:logp0.7", NULL, 0},
        {"apo zero", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_APO_ZERO, .beta = 0.4), "f10,9:logp0.7 i10,9:flags0.3 i10,9:flags0.1 f10,9:logp0.7", NULL, 0},
        {"apo down", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_APO_DOWN, .beta = 0.4), "f10,9:logp0.7 i10,9:flags0.3 i10,9:flags0.1 f10,9:logp0.7", NULL, 0},
        {"discopop", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_DISCOPOP, .beta = 0.02, .tau = 0.05), "f10,9:logp0.7 i10,9:flags0.3 i10,9:flags0.1 f10,9:logp0.7", NULL, 0},
        {"aot", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_AOT, .beta = 0.4, .label_smoothing = 0.1), "f14,9:logp0.7 i14,9:flags0.3 i14,9:flags0.1 f14,9:logp0.7", NULL, CASE_NO_SLOPE},
        {"aot, several pairs in a row", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_AOT, .beta = 0.4), "f10,9:logp0.7 i10,9:ids4 i10,9:ids4 f10,9:logp0.7", NULL, CASE_NO_SLOPE},
        {"aot, unpaired", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_AOT_UNPAIRED, .beta = 0.4, .label_smoothing = 0.1), "f10,9:logp0.7 i10,9:ids4 i10,9:ids4 f10,9:logp0.7", NULL, CASE_NO_SLOPE},
        {"aot, unpaired, large", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_AOT_UNPAIRED, .beta = 0.02), "f74,1031:logp0.7 i74,1031:flags0.3 i74,1031:flags0.1 f74,1031:logp0.7", NULL, 0},
        {"forward divergence", ATTR(MxPreferenceAttr, .divergence = MX_DIVERGENCE_FORWARD, .beta = 0.1), "f10,9:logp0.2 i10,9:flags0.3 i10,9:flags0.1 f10,9:logp0.2", NULL, 0},
        {"divergence of Jensen and Shannon, means", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_SIGMOID_NORM, .divergence = MX_DIVERGENCE_JS, .beta = 2), "f10,9:logp0.7 i10,9:flags0.3 i10,9:flags0.1 f10,9:logp0.7", NULL, 0},
        {"alpha divergence", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_HINGE, .divergence = MX_DIVERGENCE_ALPHA, .alpha = 0.4, .beta = 0.1), "f14,9:logp0.2 i14,9:flags0.3 i14,9:flags0.1 f14,9:logp0.2", NULL, 0},
        {"alpha divergence of 1", ATTR(MxPreferenceAttr, .divergence = MX_DIVERGENCE_ALPHA, .alpha = 1, .beta = 0.3), "f10,9:logp0.7 i10,9:flags0.3 i10,9:flags0.1 f10,9:logp0.7", NULL, 0},
        {"orpo", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_ORPO, .lambda = 0.3, .label_smoothing = 0.1), "f10,9:logp0.2 i10,9:flags0.3 i10,9:flags0.1", NULL, CASE_NO_SLOPE},
        {"orpo, MaxText's", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_ORPO, .formula = MX_FORMULA_MAXTEXT, .lambda = 0.3), "f10,9:logp0.2 i10,9:flags0.3 i10,9:flags0.1", NULL, CASE_NO_SLOPE},
        {"simpo", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_SIMPO, .beta = 2, .gamma = 0.5, .label_smoothing = 0.1), "f10,9:logp0.2 i10,9:flags0.3 i10,9:flags0.1", NULL, 0},
        {"alpha of simpo", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_SIMPO, .divergence = MX_DIVERGENCE_ALPHA, .alpha = 0.6, .beta = 2, .gamma = 0.5), "f10,9:logp0.2 i10,9:flags0.3 i10,9:flags0.1", NULL, 0},
        {"weighed", ATTR(MxPreferenceAttr, .beta = 0.3, .weighs = true), "f10,9:logp0.7 i10,9:flags0.3 i10,9:flags0.1 f10,9:logp0.7 f10,9:logp0.3", NULL, 0},
        {"weighed, without reference, several pairs", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_IPO, .beta = 0.4, .no_reference = true, .weighs = true), "f10,9:logp0.2 i10,9:ids4 i10,9:ids4 f10,9:logp0.3", NULL, 0},
        {"tails", ATTR(MxPreferenceAttr, .beta = 0.3, .tail_cut = 0.7), "f10,9:logp0.7 i10,9:flags0.5 i10,9:flags0.1 f10,9:logp0.7", NULL, 0},
        {"tails left out, means of several pairs", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_IPO, .beta = 0.4, .tail_cut = 1), "f10,19:logp0.7 i10,19:ids4 i10,19:ids4 f10,19:logp0.7", NULL, 0},
        {"dpo without reference", ATTR(MxPreferenceAttr, .beta = 0.3, .no_reference = true), "f10,9:logp0.2 i10,9:flags0.3 i10,9:flags0.1", NULL, 0},
        {"ipo without reference", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_IPO, .beta = 0.4, .no_reference = true), "f10,9:logp0.2 i10,9:flags0.3 i10,9:flags0.1", NULL, 0},
        {"sft", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_SFT), "f10,9:logp0.2 i10,9:flags0.3 i10,9:flags0.1", NULL, 0},
        {"reward", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_REWARD), "f10,9 i10,9:flags0.9 i10,9:flags0.1", NULL, 0},
        {"reward, centred", ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_REWARD, .center = 0.05), "f10,9 i10,9:flags0.9 i10,9:flags0.1", NULL, 0},
        {NULL, ATTR(MxPreferenceAttr, .beta = 0.1), "f4,5:logp0.7 i4,5 i4,5 f4,5:logp0.7", "f f10 f2", 0},
        {NULL, ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_ORPO, .lambda = 0.5), "f4,5:logp3 i4,5 i4,5", "f f10 f2", 0},
        {NULL, ATTR(MxPreferenceAttr, .beta = 0.1), "f8,8:logp0.7 i8,8:flags0.3 i8,8:flags0.1 f8,8:logp0.7", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxPreferenceAttr, .beta = 0.1), "f4,5 i4,5 i4,5", "dpo takes 4 inputs, not 3"},
        {ATTR(MxPreferenceAttr, .beta = 0.1, .no_reference = true), "f4,5 i4,5 i4,5 f4,5", "dpo takes 3 inputs, not 4"},
        {ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_ORPO), "f4,5 i4,5 i4,5 f4,5", "orpo takes 3 inputs, not 4"},
        {ATTR(MxPreferenceAttr, .beta = 0.1, .weighs = true), "f4,5 i4,5 i4,5 f4,5", "dpo takes 5 inputs, not 4"},
        {ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_AOT, .weighs = true), "f4,5 i4,5 i4,5 f4,5 f4,5", "aot has no weights of pairs"},
        {ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_BCO_PAIR, .divergence = MX_DIVERGENCE_JS), "f4,5 i4,5 i4,5 f4,5", "bco_pair has no js_divergence"},
        {ATTR(MxPreferenceAttr, .beta = 0.1), "f3,5 i3,5 i3,5 f3,5", "rows must come in pairs"},
        {ATTR(MxPreferenceAttr, .beta = 0.1), "f4,5 i4,6 i4,5 f4,5", "weights must have the log-probabilities' shape"},
        {ATTR(MxPreferenceAttr, .beta = 0.1), "f4,5 i4,5 i4,5 f4,6", "inputs 0 and 3 must have one type"},
        {ATTR(MxPreferenceAttr, .beta = 0.1), "b4,5 i4,5 i4,5 b4,5", "input 0 must be float32 of rank 2"},
        {ATTR(MxPreferenceAttr, .beta = 0.1), "f4,5 f4,5 i4,5 f4,5", "input 1 must be int32 of rank 2"},
        {ATTR(MxPreferenceAttr, .beta = 0.1), "f4,5 i4,5 i4,6 f4,5", "inputs 1 and 2 must have one type"},
        {ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_IPO), "f4,5 i4,5 i4,5 f4,5", "beta must be more than 0, not 0"},
        {ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_DISCOPOP, .beta = 0.1), "f4,5 i4,5 i4,5 f4,5", "tau must be more than 0, not 0"},
        {ATTR(MxPreferenceAttr, .beta = 0.1, .tail_cut = 1.5), "f4,5 i4,5 i4,5 f4,5", "tail_cut must be between 0 and 1, not 1.5"},
        {ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_ROBUST, .label_smoothing = 0.5), "f4,5 i4,5 i4,5 f4,5", "label smoothing must be less than 0.5, not 0.5"},
        {ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_EXO_PAIR), "f4,5 i4,5 i4,5 f4,5", "label smoothing must be between 0 and 1, not 0"},
        {ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_HINGE, .formula = MX_FORMULA_MAXTEXT), "f4,5 i4,5 i4,5 f4,5", "MaxText has no hinge"}),
    .reference = ref_preference,
    .flows = 1 << 0,
};

const OpTest test_preference_grad = {
    WRONG(
        {ATTR(MxPreferenceAttr, .beta = 0.1), "f4,5 i4,5 i4,5 f", "dpo takes 5 inputs, not 4"},
        {ATTR(MxPreferenceAttr, .beta = 0.1), "f4,5 i4,5 i4,5 f2,5 f", "inputs 0 and 3 must have one type"},
        {ATTR(MxPreferenceAttr, .beta = 0.1), "f4,5 i4,5 i4,5 f4,5 f1", "input 4 must be float32 of rank 0"},
        {ATTR(MxPreferenceAttr, .algo = MX_PREFERENCE_IPO), "f4,5 i4,5 i4,5 f4,5 f", "beta must be more than 0, not 0"}),
    .forward = &op_preference,
    .wrt = {0},
};
// clang-format on
