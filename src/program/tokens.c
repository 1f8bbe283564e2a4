/* tokens.c — the loss of next tokens: pre-training and supervised fine-tuning. */
#include <mx/program.h>

#include "internal.h"

#include <math.h>
#include <string.h>

MxModelInputs program_inputs(MxTrainState *s, MxTrace *t, const int *batch) {
    MxModelInputs in = {.tokens = mx_variable(t, batch[MX_INPUTS]),
                        .positions = mx_variable(t, batch[MX_INPUTS_POSITION]),
                        .segments = mx_variable(t, batch[MX_INPUTS_SEGMENTATION])};
    bool is_eval = batch == s->var.batch[true];
    for (int i = 0; i < PART_COUNT; i++)
        if (s->part[i] && program_parts[i]->read) program_parts[i]->read(s, t, is_eval, &in);
    for (int i = 0; i < PART_COUNT && !is_eval; i++)
        if (s->part[i] && program_parts[i]->ask) program_parts[i]->ask(s, t, &in);
    return in;
}

MxModelInputs program_plain(MxModelInputs in) {
    return (MxModelInputs){.tokens = in.tokens,
                           .positions = in.positions,
                           .segments = in.segments,
                           .mrope = in.mrope,
                           .images = in.images};
}

MxValue program_logp(MxTrace *t, const MxModel *model, const MxValue *params, const int *batch,
                     MxModelInputs in, MxValue *entropy) {
    MxValue hidden = mx_model_hidden(t, model, params, in);
    return mx_model_logprob(t, model, params, hidden, mx_variable(t, batch[MX_TARGETS]),
                            mx_variable(t, batch[MX_TARGETS_SEGMENTATION]), entropy);
}

static void weigh(MxTrainState *s, MxTrace *t, const int *batch, MxValue *weights) {
    (void)s;
    weights[0] = mx_count_nonzero(t, mx_variable(t, batch[MX_TARGETS_SEGMENTATION]));
}

/* Indexers are trained to score as attention weighs before anything else sees less than all.
 * Source: MaxText trainers/pre_train/train.py @e591f30c. */
static bool trains_indexers_alone(const MxTrainState *s, const int *batch) {
    bool trains = batch == s->var.batch[false];
    return trains && mx_model_trains_indexer(s->config) && !s->config->indexer_sparse_training;
}

static MxValue no_loss(MxTrainState *s, MxTrace *t) {
    const MxInitAttr zero = {.type = {MX_F32, MX_SCALAR}};
    mx_trace_assign(t, mx_init(t, zero), loss_output(s, TOKENS_XENT), false);
    mx_trace_assign(t, mx_init(t, zero), loss_output(s, TOKENS_Z), false);
    return mx_init(t, zero);
}

/* Training alone: evaluation tells what other runs tell. */
static bool weighs_tokens(const MxTrainState *s, const int *batch) {
    bool trains = batch == s->var.batch[false];
    return trains && s->config->use_sft && !strcmp(s->config->sft_loss, "dft");
}

/* Dynamic fine-tuning: the cross-entropy of a token times its probability, through which no
 * gradient flows. That is a policy whose actions are the targets, each with the advantage 1.
 * Source: Wu et al. 2025; TRL 1.16, sft_trainer. */
static MxValue weighed_loss(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                            MxValue hidden) {
    MxInitAttr fill = {.type = mx_trace_type(t, mx_variable(t, batch[MX_TARGETS]))};
    MxValue weights = mx_variable(t, batch[MX_TARGETS_SEGMENTATION]);
    MxLogps logp = {.policy = mx_model_logprob(t, s->model, params, hidden,
                                               mx_variable(t, batch[MX_TARGETS]), weights, NULL),
                    .reference = MX_NONE};
    fill.type.dtype = MX_F32;
    logp.old = mx_init(t, fill); /* of probability 1, so that ratios are probabilities */
    fill.value = 1;
    MxPolicyAttr attr = {.trust = MX_TRUST_WEIGHT, .sums = true};
    MxValue sum = mx_policy(t, logp, weights, mx_init(t, fill), MX_NONE, attr);
    if (sum < 0) return sum;
    MxValue xent = mx_scale(t, mx_sum_lead(t, mx_detach(t, logp.policy), 2), -1);
    mx_trace_assign(t, xent, loss_output(s, TOKENS_XENT), false);
    mx_trace_assign(t, mx_init(t, (MxInitAttr){.type = {MX_F32, MX_SCALAR}}),
                    loss_output(s, TOKENS_Z), false);
    return sum;
}

static MxValue plain_loss(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                          MxValue hidden) {
    MxValue targets = mx_variable(t, batch[MX_TARGETS]);
    MxValue weights = mx_variable(t, batch[MX_TARGETS_SEGMENTATION]);
    MxValue xent = mx_model_xent(t, s->model, params, hidden, targets, weights);
    if (xent < 0) return xent;
    mx_trace_assign(t, xent, loss_output(s, TOKENS_XENT), false);
    mx_trace_assign(t, xent + 1, loss_output(s, TOKENS_Z), false);
    return xent;
}

MxValue program_token_loss(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                           MxValue hidden, MxValue weight) {
    if (trains_indexers_alone(s, batch)) return no_loss(s, t);
    MxValue sum = weighs_tokens(s, batch) ? weighed_loss(s, t, params, batch, hidden)
                                          : plain_loss(s, t, params, batch, hidden);
    t->scope = "loss";
    return mx_ratio(t, sum, weight, LOSS_EPS);
}

MxValue program_add_balance(MxTrainState *s, MxTrace *t, const int *batch, MxBalance balance,
                            int output, MxValue loss) {
    bool trains = batch == s->var.batch[false];
    int64_t n_micro = trains ? s->config->micro_batches : 1;
    if (!balance.n || loss < 0) return loss;
    t->scope = "loss";
    MxValue mean = mx_scale(t, balance.sum, 1.0 / (double)(balance.n * n_micro));
    mx_trace_assign(t, mean, loss_output(s, output), false);
    return trains ? mx_add(t, loss, mean) : loss;
}

static MxValue trace(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                     const MxValue *weights) {
    MxModelInputs in = program_inputs(s, t, batch);
    MxBalance balance = {.sum = MX_NONE}, index = {.sum = MX_NONE};
    in.balance = &balance;
    in.index = &index;
    MxValue hidden = mx_model_hidden(t, s->model, params, in);
    MxValue loss = program_token_loss(s, t, params, batch, hidden, weights[0]);
    loss = program_add_balance(s, t, batch, balance, TOKENS_BALANCE, loss);
    return program_add_balance(s, t, batch, index, TOKENS_INDEX, loss);
}

static double perplexity(const MxLoss *loss, int i) {
    (void)i;
    return exp(loss_mean(loss, TOKENS_XENT));
}

static double eval_perplexity(const MxLoss *loss, int i) {
    (void)i;
    return exp(loss->loss);
}

static const LossOutput outputs[] = {[TOKENS_XENT] = {"xent_sum", 1},
                                     [TOKENS_Z] = {"z_sum", 1},
                                     [TOKENS_BALANCE] = {"moe_lb_loss", 1},
                                     [TOKENS_INDEX] = {"indexer_loss", 1},
                                     [TOKENS_SUMS] = {0}};

static const MxFigure figures[] = {
    {.metric = "learning/lm_loss",
     .value = loss_mean,
     .sum = TOKENS_XENT,
     .label = "lm_loss",
     .decimals = 3},
    {.metric = "learning/perplexity", .value = perplexity, .label = "perplexity", .decimals = 3},
    {.metric = "learning/z_loss", .value = loss_mean, .sum = TOKENS_Z},
    LOSS_BALANCE_FIGURE(TOKENS_BALANCE),
    {.metric = "learning/indexer_loss",
     .is_meant = mx_model_trains_indexer,
     .value = loss_sum,
     .sum = TOKENS_INDEX,
     .label = "indexer_loss",
     .decimals = 3},
    {0},
};

static const MxFigure eval_figures[] = {
    {.metric = "eval/avg_perplexity",
     .value = eval_perplexity,
     .label = "perplexity",
     .decimals = 3},
    {.metric = "eval/total_weights", .label = "total_weights"},
    {.metric = "eval/avg_z_loss",
     .value = loss_mean,
     .sum = TOKENS_Z,
     .each_batch = true,
     .label = "avg_z_loss",
     .decimals = 3},
    {.metric = "eval/avg_moe_lb_loss",
     .is_meant = loss_has_balance,
     .value = loss_sum,
     .sum = TOKENS_BALANCE,
     .each_batch = true,
     .label = "avg_moe_lb_loss",
     .decimals = 3},
    {.metric = "eval/avg_indexer_loss",
     .is_meant = mx_model_trains_indexer,
     .value = loss_sum,
     .sum = TOKENS_INDEX,
     .each_batch = true,
     .label = "avg_indexer_loss",
     .decimals = 3},
    {0},
};

const Loss loss_tokens = {
    .weights = {"weights"},
    .weigh = weigh,
    .trace = trace,
    .outputs = outputs,
    .figures = figures,
    .eval_figures = eval_figures,
};
