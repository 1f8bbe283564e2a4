/* pairs.c — losses of pairs of responses: for a policy, or for a reward model, whose head has one
 * output, read at the end of a response. That of a policy may be a weighted sum of several, one of
 * which may be the mean cross-entropy of chosen responses (Xu et al. 2024, CPO; Wang et al. 2024,
 * MPO; TRL 1.16, cpo_trainer, dpo_trainer). Rows 0 …
 * P-1 of a batch are chosen, P … 2P-1 rejected; both rows of a pair have the same segments, each of
 * which is a pair. */
#include <mx/program.h>

#include "internal.h"
#include "reference.h"

#include <math.h>
#include <string.h>

enum { PAIRS, BALANCE, EXTREMES, CHOSEN, WEIGHED, OUTPUTS };
/* The first of each but the first ones, which are MX_PAIRS_*, among all sums. */
enum {
    AT_BALANCE = MX_PAIRS_COUNT,
    AT_EXTREMES,
    AT_CHOSEN = AT_EXTREMES + MX_EXTREMES_COUNT,
    AT_WEIGHED
};
/* Weights of a batch; the second is read only where chosen responses count by themselves. */
enum { RESPONSES, TOKENS };

static bool is_meant(const MxConfig *config) {
    return config->use_dpo;
}

static int64_t rows(const MxConfig *config) {
    (void)config;
    return 2;
}

static double weight_of(const MxConfig *config, MxPreference algo) {
    return mx_config_loss_weight(config, mx_preferences[algo].name);
}

static bool adds_chosen(const MxConfig *config) {
    return weight_of(config, MX_PREFERENCE_SFT) > 0;
}

static void weigh(MxTrainState *s, MxTrace *t, const int *batch, MxValue *weights) {
    MxValue segments = mx_variable(t, batch[MX_INPUTS_SEGMENTATION]);
    weights[RESPONSES] = mx_scale(t, mx_count_segments(t, segments), 0.5); /* two a pair */
    weights[TOKENS] = mx_copy(t, weights[RESPONSES]);
    if (adds_chosen(s->config)) /* ranks exchange rows for it */
        weights[TOKENS] = mx_count_nonzero_first(t, mx_variable(t, batch[MX_TARGETS_SEGMENTATION]),
                                                 rows(s->config));
}

static MxPreference preference_of(const MxConfig *config) {
    for (int i = 0; i < MX_PREFERENCE_COUNT; i++)
        if (!strcmp(mx_preferences[i].name, config->dpo_algo)) return (MxPreference)i;
    MX_BUG("dpo.algo is not in the table");
}

static bool weighs_pairs(const MxConfig *config) {
    return config->dpo_weighting && !config->score_head;
}

static MxPreferenceAttr preference_attr(const MxConfig *c, MxPreference algo) {
    const MxPreferenceRow *row = &mx_preferences[algo];
    MxPreferenceAttr attr = {.algo = algo,
                             .no_reference = !strcmp(c->dpo_reference, "none"),
                             .tail_cut = row->by_token || row->has_scores ? 0 : 1 - c->dpo_ld_alpha,
                             .weighs = weighs_pairs(c) && !row->by_token,
                             .beta = c->dpo_beta,
                             .label_smoothing = c->dpo_label_smoothing,
                             .lambda = c->orpo_lambda,
                             .gamma = c->simpo_gamma,
                             .tau = c->discopop_tau,
                             .alpha = c->dpo_divergence_alpha,
                             .center = c->dpo_center_rewards};
    for (int i = 0; row->has_maxtext && i < MX_FORMULA_COUNT; i++)
        if (!strcmp(mx_formula_names[i], c->dpo_formula)) attr.formula = (MxFormula)i;
    bool has_others = row->has_others && attr.formula == MX_FORMULA_STANDARD;
    for (int i = 0; has_others && i < MX_DIVERGENCE_COUNT; i++)
        if (!strcmp(mx_divergence_names[i], c->dpo_divergence)) attr.divergence = (MxDivergence)i;
    return attr;
}

/* What a response's tokens are measured by. */
static MxValue numbers_of(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                          MxValue hidden) {
    if (s->config->score_head) return mx_model_score(t, s->model, params, hidden);
    return mx_model_logprob(t, s->model, params, hidden, mx_variable(t, batch[MX_TARGETS]),
                            mx_variable(t, batch[MX_TARGETS_SEGMENTATION]), NULL);
}

static bool has_reference(const MxConfig *config) {
    for (int i = 0; i < MX_PREFERENCE_COUNT; i++) {
        MxPreferenceAttr attr = preference_attr(config, (MxPreference)i);
        if (weight_of(config, attr.algo) > 0 && mx_preference_compares(&attr)) return true;
    }
    return false;
}

/* The sum of one of them over a micro-batch. What is told of pairs besides is dpo.algo's. */
static MxValue sum_of(MxTrainState *s, MxTrace *t, const MxPairInputs *in, MxPreference algo) {
    MxPreferenceAttr attr = preference_attr(s->config, algo);
    MxPairInputs own = *in;
    if (!mx_preference_compares(&attr)) own.reference = MX_NONE;
    if (!attr.weighs) own.alignment = MX_NONE;
    MxValue sum = mx_preference(t, own, attr);
    if (sum < 0 || algo != preference_of(s->config)) return sum;
    mx_trace_assign(t, sum + 1, loss_output(s, PAIRS), false);
    if (s->config->score_head) mx_trace_assign(t, sum + 2, loss_output(s, EXTREMES), false);
    return sum;
}

static MxValue weighed(MxTrace *t, MxValue x, double weight) {
    return weight == 1 ? x : mx_scale(t, x, weight);
}

/* The mean over pairs of all losses of pairs, each times its weight. */
static MxValue mean_of_pairs(MxTrainState *s, MxTrace *t, const MxPairInputs *in, MxValue pairs) {
    MxValue total = MX_NONE;
    for (int i = 0; i < MX_PREFERENCE_COUNT; i++) {
        double weight = weight_of(s->config, (MxPreference)i);
        if (mx_preferences[i].by_token || !(weight > 0)) continue;
        MxValue sum = weighed(t, sum_of(s, t, in, (MxPreference)i), weight);
        total = total == MX_NONE ? sum : mx_add(t, total, sum);
    }
    if (total >= 0) mx_trace_assign(t, total, loss_output(s, WEIGHED), false);
    return mx_ratio(t, total, pairs, LOSS_EPS);
}

/* Adds the mean cross-entropy of chosen responses. */
static MxValue add_chosen(MxTrainState *s, MxTrace *t, const MxPairInputs *in, MxValue loss,
                          MxValue tokens) {
    MxValue sum = sum_of(s, t, in, MX_PREFERENCE_SFT);
    MxValue mean = mx_ratio(t, sum, tokens, LOSS_EPS);
    if (mean >= 0) mx_trace_assign(t, mean, loss_output(s, CHOSEN), false);
    return mx_add(t, loss, weighed(t, mean, weight_of(s->config, MX_PREFERENCE_SFT)));
}

static MxValue trace(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                     const MxValue *total) {
    MxPairInputs pairs = {.reference = MX_NONE, .alignment = MX_NONE};
    if (has_reference(s->config)) /* first: nothing of it is kept */
        pairs.reference = reference_logp(s, t, params, batch);
    pairs.weights = mx_variable(t, batch[MX_TARGETS_SEGMENTATION]);
    MxModelInputs in = program_inputs(s, t, batch);
    MxBalance balance = {.sum = MX_NONE};
    in.balance = &balance;
    MxValue hidden = mx_model_hidden(t, s->model, params, in);
    pairs.logp = numbers_of(s, t, params, batch, hidden);
    MxTargets targets = {hidden, mx_variable(t, batch[MX_TARGETS]), pairs.weights, pairs.logp};
    if (weighs_pairs(s->config)) pairs.alignment = mx_model_alignment(t, s->model, params, targets);
    t->scope = "loss";
    pairs.segments = mx_variable(t, batch[MX_INPUTS_SEGMENTATION]);
    MxValue loss = mean_of_pairs(s, t, &pairs, total[RESPONSES]);
    if (adds_chosen(s->config)) loss = add_chosen(s, t, &pairs, loss, total[TOKENS]);
    return program_add_balance(s, t, batch, balance, BALANCE, loss);
}

/* A policy that is its own reference has the loss log 2, unless pairs are weighed or something of
 * it is left to chance: anything else is a reference that shares something with the policy, or one
 * that is run otherwise. */
static void check(const MxTrainState *s, const MxLoss *loss) {
    const double *sum = loss->sum, n = loss->total_weights, rounding = 1e-6;
    double bound = rounding;
    if (!reference_is_policy(s) || program_draws(s->config) || weighs_pairs(s->config) ||
        preference_of(s->config) != MX_PREFERENCE_DPO)
        return;
    /* What was precomputed may be of another mesh, so of another order of sums; so may be, on
     * several ranks, what an entry with gradients divides in other places than one without. In
     * float32 the latter is below the bound, in bfloat16 sums are rounded at each such place. */
    bool is_rounded = s->mesh.mesh.n_ranks > 1 && !strcmp(s->config->dtype, "bfloat16");
    if (reference_is_precomputed(s->config) || is_rounded)
        bound += (is_rounded ? 0x1p-8 : rounding) * s->config->dpo_beta *
                 fabs(sum[MX_PAIRS_CHOSEN_LOGP] + sum[MX_PAIRS_REJECTED_LOGP]) / n;
    MX_ASSERT(!(fabs(sum[MX_PAIRS_LOSS] / n - log(2)) > bound));
}

/* ---- what is told of them; nothing of next tokens, which are not what is measured */

static double mean(const MxLoss *loss, int i) {
    return loss->sum[i] / loss->total_weights;
}

/* Of both responses of pairs. */
static double mean_reward(const MxLoss *loss, int i) {
    (void)i;
    return (loss->sum[MX_PAIRS_CHOSEN_REWARD] + loss->sum[MX_PAIRS_REJECTED_REWARD]) /
           (2 * loss->total_weights);
}

static double lowest(const MxLoss *loss, int i) {
    return -loss->sum[i];
}

static bool has_scores(const MxConfig *config) {
    return config->score_head;
}

static bool has_logps(const MxConfig *config) {
    return !config->score_head;
}

static const LossOutput outputs[] = {[PAIRS] = {"pairs", MX_PAIRS_COUNT},
                                     [BALANCE] = {"moe_lb_loss", 1},
                                     [EXTREMES] = {"extremes", MX_EXTREMES_COUNT},
                                     [CHOSEN] = {"chosen_loss", 1},
                                     [WEIGHED] = {"pairs_loss", 1},
                                     [OUTPUTS] = {0}};

// clang-format off
static const MxFigure figures[] = {
    {.metric = "learning/dpo_loss", .is_meant = has_logps, .value = mean, .sum = AT_WEIGHED, .label = "dpo_loss", .decimals = 3},
    {.metric = "learning/dpo_reward_accuracy", .is_meant = has_logps, .value = mean, .sum = MX_PAIRS_CORRECT},
    {.metric = "learning/chosen_loss", .is_meant = adds_chosen, .value = loss_sum, .sum = AT_CHOSEN, .label = "chosen_loss", .decimals = 3},
    {.metric = "learning/reward_accuracy", .value = mean, .sum = MX_PAIRS_CORRECT, .label = "reward_accuracy", .decimals = 3},
    {.metric = "learning/rewards_chosen", .value = mean, .sum = MX_PAIRS_CHOSEN_REWARD},
    {.metric = "learning/rewards_rejected", .value = mean, .sum = MX_PAIRS_REJECTED_REWARD},
    {.metric = "learning/rewards_margin", .is_meant = has_logps, .value = mean, .sum = MX_PAIRS_MARGIN, .label = "margin", .decimals = 3},
    {.metric = "learning/logps_chosen", .is_meant = has_logps, .value = mean, .sum = MX_PAIRS_CHOSEN_LOGP},
    {.metric = "learning/logps_rejected", .is_meant = has_logps, .value = mean, .sum = MX_PAIRS_REJECTED_LOGP},
    {.metric = "learning/rewards_margin", .is_meant = has_scores, .value = mean, .sum = MX_PAIRS_MARGIN, .label = "margin", .decimals = 3},
    {.metric = "learning/rewards_mean", .is_meant = has_scores, .value = mean_reward},
    {.metric = "learning/rewards_min", .is_meant = has_scores, .value = lowest, .sum = AT_EXTREMES + MX_EXTREMES_LOWEST},
    {.metric = "learning/rewards_max", .is_meant = has_scores, .value = loss_sum, .sum = AT_EXTREMES + MX_EXTREMES_HIGHEST},
    LOSS_BALANCE_FIGURE(AT_BALANCE),
    {0},
};

static const MxFigure eval_figures[] = {
    {.metric = "eval/total_weights", .label = "total_weights"},
    {.metric = "eval/avg_dpo_reward_accuracy", .is_meant = has_logps, .value = loss_mean, .sum = MX_PAIRS_CORRECT, .label = "dpo_reward_accuracy", .decimals = 3},
    {.metric = "eval/reward_accuracy", .is_meant = has_scores, .value = loss_mean, .sum = MX_PAIRS_CORRECT, .label = "reward_accuracy", .decimals = 3},
    {.metric = "eval/rewards_margin", .is_meant = has_scores, .value = loss_mean, .sum = MX_PAIRS_MARGIN, .label = "margin", .decimals = 3},
    {.metric = "eval/rewards_mean", .is_meant = has_scores, .value = mean_reward, .label = "reward", .decimals = 3},
    {.metric = "eval/rewards_min", .is_meant = has_scores, .value = lowest, .sum = AT_EXTREMES + MX_EXTREMES_LOWEST, .each_batch = true},
    {.metric = "eval/rewards_max", .is_meant = has_scores, .value = loss_sum, .sum = AT_EXTREMES + MX_EXTREMES_HIGHEST, .each_batch = true},
    {0},
};
// clang-format on

const Loss loss_pairs = {
    .is_meant = is_meant,
    .rows = rows,
    .weights = {"weights", "chosen_tokens"},
    .weigh = weigh,
    .trace = trace,
    .outputs = outputs,
    .largest = 1 << EXTREMES,
    .figures = figures,
    .eval_figures = eval_figures,
    .check = check,
    .has_reference = has_reference,
};
