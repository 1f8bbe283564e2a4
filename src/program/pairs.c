/* pairs.c — losses of pairs of responses. Rows 0 … P-1 of a batch are chosen, P … 2P-1 rejected;
 * both rows of a pair have the same segments, each of which is a pair. */
#include <mx/program.h>

#include "internal.h"
#include "reference.h"

#include <math.h>
#include <string.h>

enum { PAIRS, BALANCE, OUTPUTS }; /* the first one of MX_PAIRS_* */

static bool is_meant(const MxConfig *config) {
    return config->use_dpo;
}

static int64_t rows(const MxConfig *config) {
    (void)config;
    return 2;
}

static void weigh(MxTrainState *s, MxTrace *t, const int *batch, MxValue *weights) {
    (void)s;
    MxValue segments = mx_variable(t, batch[MX_INPUTS_SEGMENTATION]);
    weights[0] = mx_scale(t, mx_count_segments(t, segments), 0.5); /* two a pair */
}

static MxPreference preference_of(const MxConfig *config) {
    for (int i = 0; i < MX_PREFERENCE_COUNT; i++)
        if (!strcmp(mx_preferences[i].name, config->dpo_algo)) return (MxPreference)i;
    MX_BUG("dpo.algo is not in the table");
}

static MxPreferenceAttr preference_attr(const MxConfig *c) {
    MxPreferenceAttr attr = {.algo = preference_of(c),
                             .beta = c->dpo_beta,
                             .label_smoothing = c->dpo_label_smoothing,
                             .lambda = c->orpo_lambda,
                             .gamma = c->simpo_gamma};
    for (int i = 0; i < MX_FORMULA_COUNT; i++)
        if (!strcmp(mx_formula_names[i], c->dpo_formula)) attr.formula = (MxFormula)i;
    return attr;
}

static MxValue trace(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                     const MxValue *total) {
    MxPreferenceAttr attr = preference_attr(s->config);
    MxValue reference = MX_NONE; /* first: nothing of it is kept */
    if (mx_preferences[attr.algo].has_reference) reference = reference_logp(s, t, params, batch);
    MxValue targets = mx_variable(t, batch[MX_TARGETS]);
    MxValue weights = mx_variable(t, batch[MX_TARGETS_SEGMENTATION]);
    MxModelInputs in = program_inputs(s, t, batch);
    MxBalance balance = {.sum = MX_NONE};
    in.balance = &balance;
    MxValue hidden = mx_model_hidden(t, s->model, params, in);
    MxValue logp = mx_model_logprob(t, s->model, params, hidden, targets, weights);
    t->scope = "loss";
    MxValue segments = mx_variable(t, batch[MX_INPUTS_SEGMENTATION]);
    MxValue sum = mx_preference(t, logp, reference, weights, segments, attr);
    if (sum >= 0) mx_trace_assign(t, sum + 1, loss_output(s, PAIRS), false);
    MxValue loss = mx_ratio(t, sum, total[0], LOSS_EPS);
    return program_add_balance(s, t, batch, balance, BALANCE, loss);
}

/* A policy that is its own reference has the loss log 2, unless something of it is left out by
 * chance: anything else is a reference that shares something with the policy, or one that is run
 * otherwise. */
static void check(const MxTrainState *s, const MxLoss *loss) {
    const double *sum = loss->sum, n = loss->total_weights, rounding = 1e-6;
    double bound = rounding;
    if (!reference_is_policy(s) || program_drops(s->config) ||
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

static const LossOutput outputs[] = {
    [PAIRS] = {"pairs", MX_PAIRS_COUNT}, [BALANCE] = {"moe_lb_loss", 1}, [OUTPUTS] = {0}};

static const MxFigure figures[] = {
    {.metric = "learning/dpo_loss",
     .value = mean,
     .sum = MX_PAIRS_LOSS,
     .label = "dpo_loss",
     .decimals = 3},
    {.metric = "learning/dpo_reward_accuracy", .value = mean, .sum = MX_PAIRS_CORRECT},
    {.metric = "learning/reward_accuracy",
     .value = mean,
     .sum = MX_PAIRS_CORRECT,
     .label = "reward_accuracy",
     .decimals = 3},
    {.metric = "learning/rewards_chosen", .value = mean, .sum = MX_PAIRS_CHOSEN_REWARD},
    {.metric = "learning/rewards_rejected", .value = mean, .sum = MX_PAIRS_REJECTED_REWARD},
    {.metric = "learning/rewards_margin", .value = mean, .sum = MX_PAIRS_MARGIN},
    {.metric = "learning/logps_chosen", .value = mean, .sum = MX_PAIRS_CHOSEN_LOGP},
    {.metric = "learning/logps_rejected", .value = mean, .sum = MX_PAIRS_REJECTED_LOGP},
    LOSS_BALANCE_FIGURE(MX_PAIRS_COUNT),
    {0},
};

static const MxFigure eval_figures[] = {
    {.metric = "eval/total_weights", .label = "total_weights"},
    {.metric = "eval/avg_dpo_reward_accuracy",
     .value = loss_mean,
     .sum = MX_PAIRS_CORRECT,
     .label = "dpo_reward_accuracy",
     .decimals = 3},
    {0},
};

static bool has_reference(const MxConfig *config) {
    return mx_preferences[preference_of(config)].has_reference;
}

const Loss loss_pairs = {
    .is_meant = is_meant,
    .rows = rows,
    .weights = {"weights"},
    .weigh = weigh,
    .trace = trace,
    .outputs = outputs,
    .figures = figures,
    .eval_figures = eval_figures,
    .check = check,
    .has_reference = has_reference,
};
