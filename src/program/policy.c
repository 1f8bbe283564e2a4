/* policy.c — losses of rewarded responses. Rows of a batch form groups as in rewards.h: row side *
 * groups + g is response `side` to prompt g. The losses differ in a few choices, one table row
 * each, and so do the ways in which losses of tokens become that of a batch. */
#include <mx/program.h>

#include "internal.h"
#include "reference.h"
#include "rewards.h"

enum { EXAMPLES, TOKENS }; /* what sums are divided by */
enum { POLICY, NUMBERS, ENTROPY, BALANCE, OUTPUTS };
/* The first of each among all sums. */
enum { AT_NUMBERS = MX_POLICY_COUNT, AT_ENTROPY = AT_NUMBERS + REWARDS_NUMBERS, AT_BALANCE };

// clang-format off
/* Sources: grpo Shao et al. 2024; gspo-token Zheng et al. 2025; dr_grpo Liu et al. 2025; dapo Yu et
 * al. 2025; rloo Ahmadian et al. 2024; reinforce_pp Hu 2025; cispo MiniMax 2025; sapo Gao et al.
 * 2025; vespo, as TRL 1.16 has it. */
static const PolicyRow rows_of_policy[] = {
    {.name = "grpo"},
    {.name = "gspo-token", .ratio = MX_RATIO_MEAN},
    {.name = "dr_grpo", .mean = MEAN_BY_LENGTH, .scale = SCALE_NONE},
    {.name = "dapo", .mean = MEAN_OF_TOKENS},
    {.name = "rloo", .ratio = MX_RATIO_SUM, .baseline = BASELINE_OTHERS, .scale = SCALE_NONE},
    {.name = "reinforce_pp", .mean = MEAN_OF_TOKENS, .baseline = BASELINE_BATCH, .scale = SCALE_BATCH},
    {.name = "cispo", .trust = MX_TRUST_WEIGHT, .mean = MEAN_OF_TOKENS},
    {.name = "sapo", .trust = MX_TRUST_GATE},
    {.name = "vespo", .trust = MX_TRUST_GAMMA, .mean = MEAN_OF_TOKENS},
};
// clang-format on

/* Source: tunix rl/common.py, aggregate_loss @0.1.7. */
static const struct {
    const char *name;
    bool sums;      /* a row counts as the sum of its tokens */
    bool by_token;  /* divided by tokens of the batch, else by its rows … */
    bool by_length; /* … or by rows times max_target_length */
} means[MEAN_COUNT] = {
    [MEAN_OF_ROWS] = {.name = "sequence-mean-token-mean"},
    [MEAN_OF_TOKENS] = {.name = "token-mean", .sums = true, .by_token = true},
    [MEAN_BY_LENGTH] = {.name = "sequence-mean-token-scale", .sums = true, .by_length = true},
    [MEAN_OF_SUMS] = {.name = "seq-mean-token-sum", .sums = true},
};
static const char *const scales[SCALE_COUNT] = {
    [SCALE_GROUP] = "group", [SCALE_BATCH] = "batch", [SCALE_NONE] = "none"};

/* Source: tunix rl/common.py, compute_kl_divergence @0.1.7. */
static const char *const divergences[MX_KL_COUNT] = {
    [MX_KL_LOW_VAR] = "low_var_kl", [MX_KL_PLAIN] = "kl", [MX_KL_SQUARE] = "mse_kl"};

static MxKl kl_of(const MxConfig *config) {
    int i = 0;
    while (i < MX_KL_COUNT && strcmp(divergences[i], config->rl_kl_loss_mode)) i++;
    MX_ASSERT(i < MX_KL_COUNT);
    return (MxKl)i;
}

PolicyRow policy_row(const MxConfig *config) {
    int i = 0;
    while (i < MX_COUNT(rows_of_policy) && strcmp(rows_of_policy[i].name, config->rl_loss_algo))
        i++;
    MX_ASSERT(i < MX_COUNT(rows_of_policy));
    PolicyRow row = rows_of_policy[i];
    for (int k = 0; k < MEAN_COUNT; k++)
        if (!strcmp(means[k].name, config->rl_loss_agg_mode)) row.mean = (PolicyMean)k;
    for (int k = 0; k < SCALE_COUNT; k++)
        if (!strcmp(scales[k], config->rl_scale_rewards)) row.scale = (RewardScale)k;
    const char *level = config->rl_importance_sampling_level;
    if (*level && row.ratio != MX_RATIO_SUM && row.trust != MX_TRUST_GAMMA)
        row.ratio = strcmp(level, "token") ? MX_RATIO_MEAN : MX_RATIO_TOKEN;
    return row;
}

static bool is_meant(const MxConfig *config) {
    return config->use_grpo;
}

static int64_t rows(const MxConfig *config) {
    return config->rl_num_generations;
}

static bool has_reference(const MxConfig *config) {
    return config->grpo_beta > 0;
}

static void weigh(MxTrainState *s, MxTrace *t, const int *batch, MxValue *weights) {
    weights[TOKENS] = mx_count_nonzero(t, mx_variable(t, batch[MX_TARGETS_SEGMENTATION]));
    if (means[policy_row(s->config).mean].by_token)
        weights[EXAMPLES] = mx_copy(t, weights[TOKENS]);
    else /* a row is one segment */
        weights[EXAMPLES] = mx_count_segments(t, mx_variable(t, batch[MX_INPUTS_SEGMENTATION]));
}

static MxPolicyAttr policy_attr(const MxConfig *c) {
    const PolicyRow row = policy_row(c);
    bool weighs = row.trust == MX_TRUST_WEIGHT;
    return (MxPolicyAttr){.ratio = row.ratio,
                          .trust = row.trust,
                          .kl = kl_of(c),
                          .weighs_kl = c->rl_use_bias_correction_kl,
                          .most = weighs ? c->rl_epsilon_high : c->rl_delta,
                          .rise = c->sapo_temperature_pos,
                          .fall = c->sapo_temperature_neg,
                          .shape = {c->vespo_k_pos, c->vespo_k_neg},
                          .rate = {c->vespo_lambda_pos, c->vespo_lambda_neg},
                          .off = c->rl_off_policy_mask_threshold,
                          .sums = means[row.mean].sums,
                          .low = c->grpo_epsilon,
                          .high = c->rl_epsilon_high < 0 ? c->grpo_epsilon : c->rl_epsilon_high,
                          .beta = c->grpo_beta};
}

/* Less entropy is more loss: the mean of tokens, of those that are kept. Source: TRL 1.16. */
static MxValue add_entropy(const MxConfig *c, MxTrace *t, MxValue loss, MxValue entropy,
                           MxValue kept, MxValue tokens) {
    if (c->rl_entropy_coef == 0) return loss;
    if (kept != MX_NONE) entropy = mx_multiply(t, entropy, kept);
    MxValue mean = mx_ratio(t, mx_sum_lead(t, entropy, 2), tokens, LOSS_EPS);
    return mx_add(t, loss, mx_scale(t, mean, -c->rl_entropy_coef));
}

static MxValue trace(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                     const MxValue *total) {
    const MxConfig *c = s->config;
    const Rewards *own = rewards_of(s);
    MxLogps logp = {.old = rewards_old(s, t, batch), .reference = MX_NONE};
    if (has_reference(c)) logp.reference = reference_logp(s, t, params, batch);
    MxValue weights = mx_variable(t, batch[MX_TARGETS_SEGMENTATION]);
    MxModelInputs in = program_inputs(s, t, batch);
    MxBalance balance = {.sum = MX_NONE};
    in.balance = &balance;
    MxValue entropy, kept = MX_NONE;
    logp.policy = program_logp(t, s->model, params, batch, in, &entropy);
    t->scope = "loss";
    if (c->rl_top_entropy_quantile < 1)
        kept = mx_upper_tokens(t, mx_detach(t, entropy), weights,
                               (MxUpperAttr){.share = c->rl_top_entropy_quantile});
    MxValue sum =
        mx_policy(t, logp, weights, mx_variable(t, batch[own->advantage]), kept, policy_attr(c));
    if (sum >= 0) mx_trace_assign(t, sum + 1, loss_output(s, POLICY), false);
    mx_trace_assign(t, mx_copy(t, mx_variable(t, own->numbers)), loss_output(s, NUMBERS), false);
    mx_trace_assign(t, mx_sum_lead(t, mx_detach(t, entropy), 2), loss_output(s, ENTROPY), false);
    MxValue loss = mx_ratio(t, sum, total[EXAMPLES], LOSS_EPS);
    if (means[policy_row(c).mean].by_length)
        loss = mx_scale(t, loss, 1 / (double)c->max_target_length);
    loss = add_entropy(c, t, loss, entropy, kept, total[TOKENS]);
    return program_add_balance(s, t, batch, balance, BALANCE, loss);
}

/* ---- what is told */

static double by_row(const MxLoss *loss, int i) {
    return loss->sum[i] / (loss->sum[MX_POLICY_ROWS] + LOSS_EPS);
}

static double by_token(const MxLoss *loss, int i) {
    return loss->sum[i] / (loss->sum[MX_POLICY_TOKENS] + LOSS_EPS);
}

static const LossOutput outputs[] = {[POLICY] = {"policy", MX_POLICY_COUNT},
                                     [NUMBERS] = {"rewards", REWARDS_NUMBERS},
                                     [ENTROPY] = {"entropy", 1},
                                     [BALANCE] = {"moe_lb_loss", 1},
                                     [OUTPUTS] = {0}};

// clang-format off
static const MxFigure figures[] = {
    {.metric = "learning/avg_reward", .value = loss_sum, .sum = AT_NUMBERS + REWARDS_MEAN, .label = "reward", .decimals = 3},
    {.metric = "learning/avg_reward_std", .value = loss_sum, .sum = AT_NUMBERS + REWARDS_STD},
    {.metric = "learning/avg_advantage", .value = loss_sum, .sum = AT_NUMBERS + REWARDS_ADVANTAGE},
    {.metric = "learning/advantage_logps", .value = by_row, .sum = MX_POLICY_GAIN, .label = "advantage_logps", .decimals = 3},
    {.metric = "learning/avg_kl", .is_meant = has_reference, .value = by_token, .sum = MX_POLICY_KL, .label = "kl", .decimals = 3},
    {.metric = "learning/clip_fraction", .is_meant = mx_config_has_ratios, .value = by_token, .sum = MX_POLICY_CLIPPED, .label = "clipped", .decimals = 3},
    {.metric = "learning/entropy", .value = by_token, .sum = AT_ENTROPY, .label = "entropy", .decimals = 3},
    {.metric = "learning/completion_length", .value = by_row, .sum = MX_POLICY_TOKENS, .label = "length", .decimals = 1},
    LOSS_BALANCE_FIGURE(AT_BALANCE),
    {0},
};

static const MxFigure eval_figures[] = {
    {.metric = "eval/total_weights", .label = "total_weights"},
    {.metric = "eval/avg_reward", .value = loss_sum, .sum = AT_NUMBERS + REWARDS_MEAN, .each_batch = true, .label = "reward", .decimals = 3},
    {.metric = "eval/advantage_logps", .value = by_row, .sum = MX_POLICY_GAIN, .label = "advantage_logps", .decimals = 3},
    {.metric = "eval/avg_kl", .is_meant = has_reference, .value = by_token, .sum = MX_POLICY_KL, .label = "kl", .decimals = 3},
    {0},
};
// clang-format on

const Loss loss_policy = {
    .is_meant = is_meant,
    .rows = rows,
    .weights = {"weights", "tokens"},
    .weigh = weigh,
    .trace = trace,
    .outputs = outputs,
    .of_batch = 1u << NUMBERS,
    .figures = figures,
    .eval_figures = eval_figures,
    .has_reference = has_reference,
};
