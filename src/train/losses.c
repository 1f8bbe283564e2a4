/* losses.c — the table of losses: what a batch's rows are, what they weigh, and the forward pass up
 * to sums, divided by weights of the whole batch. Also what of a loss is logged. */
#include <mx/train.h>

#include "internal.h"

#include <math.h>

MxModelInputs train_inputs(MxTrace *t, const int *batch) {
    return (MxModelInputs){.tokens = mx_variable(t, batch[MX_INPUTS]),
                           .positions = mx_variable(t, batch[MX_INPUTS_POSITION]),
                           .segments = mx_variable(t, batch[MX_INPUTS_SEGMENTATION])};
}

/* ---- next tokens: pre-training and supervised fine-tuning */

static void weigh_tokens(MxTrainState *s, MxTrace *t, const int *batch,
                         MxValue weights[WEIGHT_COUNT]) {
    (void)s;
    weights[WEIGHT_EXAMPLES] = mx_count_nonzero(t, mx_variable(t, batch[MX_TARGETS_SEGMENTATION]));
}

MxValue train_token_loss(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                         MxValue hidden, MxValue weight) {
    MxValue targets = mx_variable(t, batch[MX_TARGETS]);
    MxValue weights = mx_variable(t, batch[MX_TARGETS_SEGMENTATION]);
    MxValue xent = mx_model_xent(t, s->model, params, hidden, targets, weights);
    if (xent < 0) return xent;
    mx_trace_assign(t, xent, s->var.out[OUT_XENT], false);
    mx_trace_assign(t, xent + 1, s->var.out[OUT_Z], false);
    t->scope = "loss";
    return mx_ratio(t, xent, weight, LOSS_EPS);
}

static MxValue trace_tokens(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                            const MxValue weights[WEIGHT_COUNT]) {
    MxValue hidden = mx_model_hidden(t, s->model, params, train_inputs(t, batch));
    return train_token_loss(s, t, params, batch, hidden, weights[WEIGHT_EXAMPLES]);
}

void train_log_tokens(const MxLoss *loss, Metrics *m) {
    double mean = loss->xent_sum / (loss->total_weights + LOSS_EPS);
    metrics_add(m, "learning/lm_loss", mean);
    metrics_add(m, "learning/perplexity", exp(mean));
    metrics_add(m, "learning/z_loss", loss->z_sum / (loss->total_weights + LOSS_EPS));
}

static double eval_mean(const Evaluation *sums) {
    return sums->loss / (sums->weights + LOSS_EPS);
}

void train_log_eval_tokens(const Evaluation *sums, Metrics *m) {
    metrics_add(m, "eval/avg_perplexity", exp(eval_mean(sums)));
    metrics_add(m, "eval/avg_z_loss", sums->n ? sums->z / (double)sums->n : 0);
}

/* ---- pairs of responses: rows 0 … P-1 of a batch are chosen, P … 2P-1 rejected; both rows of a
 * pair have the same segments, each of which is a pair */

static void weigh_pairs(MxTrainState *s, MxTrace *t, const int *batch,
                        MxValue weights[WEIGHT_COUNT]) {
    (void)s;
    MxValue segments = mx_variable(t, batch[MX_INPUTS_SEGMENTATION]);
    weights[WEIGHT_EXAMPLES] = mx_scale(t, mx_count_segments(t, segments), 0.5); /* two a pair */
}

/* Log-probabilities under the reference: its own parameters, or the policy's without adapters. No
 * gradient reaches them. */
MxValue train_trace_reference(MxTrainState *s, MxTrace *t, const MxValue *params,
                              const int *batch) {
    const MxModel *model = s->reference_model;
    if (s->var.reference) params = train_read_vars(s, t, s->var.reference);
    MxValue hidden = mx_model_hidden(t, model, params, train_inputs(t, batch));
    return mx_model_logprob(t, model, params, hidden, mx_variable(t, batch[MX_TARGETS]),
                            mx_variable(t, batch[MX_TARGETS_SEGMENTATION]));
}

static MxPreferenceAttr preference_attr(const MxConfig *c) {
    MxPreferenceAttr attr = {.algo = train_preference(c),
                             .beta = c->dpo_beta,
                             .label_smoothing = c->dpo_label_smoothing,
                             .lambda = c->orpo_lambda,
                             .gamma = c->simpo_gamma};
    for (int i = 0; i < MX_FORMULA_COUNT; i++)
        if (!strcmp(mx_formula_names[i], c->dpo_formula)) attr.formula = (MxFormula)i;
    return attr;
}

static MxValue trace_pairs(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                           const MxValue total[WEIGHT_COUNT]) {
    MxPreferenceAttr attr = preference_attr(s->config);
    MxValue reference = MX_NONE;
    if (s->var.train_logp != MX_NONE)
        reference =
            mx_variable(t, batch == s->var.train_batch ? s->var.train_logp : s->var.eval_logp);
    else if (mx_preferences[attr.algo].has_reference)
        reference = train_trace_reference(s, t, params, batch); /* first: nothing of it is kept */
    MxValue targets = mx_variable(t, batch[MX_TARGETS]);
    MxValue weights = mx_variable(t, batch[MX_TARGETS_SEGMENTATION]);
    MxValue hidden = mx_model_hidden(t, s->model, params, train_inputs(t, batch));
    MxValue logp = mx_model_logprob(t, s->model, params, hidden, targets, weights);
    t->scope = "loss";
    MxValue segments = mx_variable(t, batch[MX_INPUTS_SEGMENTATION]);
    MxValue sum = mx_preference(t, logp, reference, weights, segments, attr);
    if (sum >= 0) mx_trace_assign(t, sum + 1, s->var.out[OUT_PAIRS], false);
    return mx_ratio(t, sum, total[WEIGHT_EXAMPLES], LOSS_EPS);
}

/* Nothing of next tokens, which are not what is measured. */
static void log_pairs(const MxLoss *loss, Metrics *m) {
    const double *sum = loss->pairs, n = loss->total_weights;
    metrics_add(m, "learning/dpo_loss", sum[MX_PAIRS_LOSS] / n);
    metrics_add(m, "learning/dpo_reward_accuracy", sum[MX_PAIRS_CORRECT] / n);
    metrics_add(m, "learning/reward_accuracy", sum[MX_PAIRS_CORRECT] / n);
    metrics_add(m, "learning/rewards_chosen", sum[MX_PAIRS_CHOSEN_REWARD] / n);
    metrics_add(m, "learning/rewards_rejected", sum[MX_PAIRS_REJECTED_REWARD] / n);
    metrics_add(m, "learning/rewards_margin", sum[MX_PAIRS_MARGIN] / n);
    metrics_add(m, "learning/logps_chosen", sum[MX_PAIRS_CHOSEN_LOGP] / n);
    metrics_add(m, "learning/logps_rejected", sum[MX_PAIRS_REJECTED_LOGP] / n);
}

static void log_eval_pairs(const Evaluation *sums, Metrics *m) {
    metrics_add(m, "eval/avg_dpo_reward_accuracy", sums->correct / (sums->weights + LOSS_EPS));
}

/* ---- the table */

static const Field token_fields[] = {
    {.label = "lm_loss", .metric = "learning/lm_loss", .decimals = 3},
    {.label = "perplexity", .metric = "learning/perplexity", .decimals = 3},
    {0},
};

static const Field token_eval_fields[] = {
    {.label = "perplexity", .metric = "eval/avg_perplexity", .decimals = 3},
    {.label = "total_weights", .metric = "eval/total_weights"},
    {.label = "avg_z_loss", .metric = "eval/avg_z_loss", .decimals = 3},
    {0},
};

static const Loss tokens = {
    .rows = 1,
    .weigh = weigh_tokens,
    .trace = trace_tokens,
    .log = train_log_tokens,
    .log_eval = train_log_eval_tokens,
    .fields = token_fields,
    .eval_fields = token_eval_fields,
};

static const Field pair_fields[] = {
    {.label = "dpo_loss", .metric = "learning/dpo_loss", .decimals = 3},
    {.label = "reward_accuracy", .metric = "learning/reward_accuracy", .decimals = 3},
    {0},
};

static const Field pair_eval_fields[] = {
    {.label = "total_weights", .metric = "eval/total_weights"},
    {.label = "dpo_reward_accuracy", .metric = "eval/avg_dpo_reward_accuracy", .decimals = 3},
    {0},
};

static const Loss pairs = {
    .rows = 2,
    .weigh = weigh_pairs,
    .trace = trace_pairs,
    .log = log_pairs,
    .log_eval = log_eval_pairs,
    .fields = pair_fields,
    .eval_fields = pair_eval_fields,
};

const Loss *train_loss(const MxConfig *config) {
    if (config->use_dpo) return &pairs;
    return config->mtp_num_layers > 0 ? &train_ahead_loss : &tokens;
}

MxPreference train_preference(const MxConfig *config) {
    for (int i = 0; i < MX_PREFERENCE_COUNT; i++)
        if (!strcmp(mx_preferences[i].name, config->dpo_algo)) return (MxPreference)i;
    MX_BUG("dpo.algo is not in the table");
}

static bool has_reference(const MxConfig *config) {
    return config->use_dpo && mx_preferences[train_preference(config)].has_reference;
}

bool train_refers_ahead(const MxConfig *config) {
    return has_reference(config) && !strcmp(config->dpo_reference, "precomputed");
}

bool train_copies_reference(const MxConfig *config) {
    if (!has_reference(config) || train_refers_ahead(config)) return false;
    return !config->enable_lora || !strcmp(config->dpo_reference, "copy");
}
