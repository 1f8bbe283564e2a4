/* ahead.c — the loss of next tokens with modules that predict further ones (multi-token
 * prediction): their mean cross-entropy, over all modules together, is added with a factor.
 * Evaluation omits it, and can report how often one module agrees with the decoder's later
 * prediction. */
#include <mx/program.h>

#include "internal.h"

enum { EXAMPLES, AHEAD }; /* weights */
/* Outputs: predictions of the module that is looked at, and those that are the decoder's too. */
enum { AHEAD_LOSS = TOKENS_SUMS, ACCEPTED, PREDICTED };

static bool is_meant(const MxConfig *config) {
    return config->mtp_num_layers > 0;
}

static MxAhead start(MxTrace *t, const int *batch, MxValue stream) {
    return (MxAhead){.stream = stream,
                     .tokens = mx_variable(t, batch[MX_INPUTS]),
                     .targets = mx_variable(t, batch[MX_TARGETS]),
                     .weights = mx_variable(t, batch[MX_TARGETS_SEGMENTATION]),
                     .positions = mx_variable(t, batch[MX_INPUTS_POSITION])};
}

static void weigh(MxTrainState *s, MxTrace *t, const int *batch, MxValue *weights) {
    MxValue segments = mx_variable(t, batch[MX_INPUTS_SEGMENTATION]), sum = MX_NONE;
    MxValue shifted = mx_variable(t, batch[MX_TARGETS_SEGMENTATION]);
    weights[EXAMPLES] = mx_count_nonzero(t, shifted);
    for (int k = 1; k <= s->config->mtp_num_layers; k++) {
        shifted = mx_shift(t, shifted, segments, k - 1);
        MxValue count = mx_count_nonzero(t, shifted);
        sum = k > 1 ? mx_add(t, sum, count) : count;
    }
    weights[AHEAD] = sum;
}

static MxValue trace(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                     const MxValue *weights) {
    MxModelInputs in = program_inputs(s, t, batch);
    MxBalance balance = {.sum = MX_NONE}, index = {.sum = MX_NONE};
    in.balance = &balance;
    in.index = &index;
    MxAhead at = start(t, batch, mx_model_stream(t, s->model, params, in));
    MxValue hidden = mx_model_last_norm(t, s->model, params, in, at.stream), sum = MX_NONE;
    MxValue loss = program_token_loss(s, t, params, batch, hidden, weights[EXAMPLES]);
    for (int k = 1; k <= s->config->mtp_num_layers; k++) {
        at = mx_model_ahead(t, s->model, params, in, k, at);
        hidden = mx_model_last_norm(t, s->model, params, in, at.stream);
        MxValue nll = mx_model_nll(t, s->model, params, hidden, at.targets, at.weights);
        sum = k > 1 ? mx_add(t, sum, nll) : nll;
    }
    loss = program_add_balance(s, t, batch, balance, TOKENS_BALANCE, loss);
    loss = program_add_balance(s, t, batch, index, TOKENS_INDEX, loss);
    t->scope = "loss";
    MxValue mean = mx_ratio(t, sum, weights[AHEAD], LOSS_EPS);
    MxValue ahead = mx_scale(t, mean, s->config->mtp_loss_scaling_factor);
    mx_trace_assign(t, ahead, loss_output(s, AHEAD_LOSS), false);
    return mx_add(t, loss, ahead);
}

static MxValue eval(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                    const MxValue *weights) {
    int64_t module = s->config->mtp_eval_target_module;
    MxModelInputs in = program_inputs(s, t, batch);
    MxBalance balance = {.sum = MX_NONE}, index = {.sum = MX_NONE};
    in.balance = &balance;
    in.index = &index;
    MxAhead at = start(t, batch, mx_model_stream(t, s->model, params, in));
    MxValue hidden = mx_model_last_norm(t, s->model, params, in, at.stream);
    MxValue loss = program_token_loss(s, t, params, batch, hidden, weights[EXAMPLES]);
    loss = program_add_balance(s, t, batch, balance, TOKENS_BALANCE, loss);
    loss = program_add_balance(s, t, batch, index, TOKENS_INDEX, loss);
    if (!module) return loss;
    MxValue main = mx_model_argmax(t, s->model, params, hidden, at.weights);
    for (int k = 1; k <= module; k++) {
        at = mx_model_ahead(t, s->model, params, in, k, at);
        main = mx_shift(t, main, in.segments, k - 1);
    }
    hidden = mx_model_last_norm(t, s->model, params, in, at.stream);
    MxValue own = mx_model_argmax(t, s->model, params, hidden, at.weights);
    t->scope = "loss";
    MxValue n_equal = mx_count_equal(t, main, own, at.weights);
    mx_trace_assign(t, n_equal, loss_output(s, ACCEPTED), false);
    mx_trace_assign(t, mx_count_nonzero(t, at.weights), loss_output(s, PREDICTED), false);
    return loss;
}

static double main_loss(const MxLoss *loss, int i) {
    return loss->loss - loss->sum[i];
}

static double acceptance(const MxLoss *loss, int i) {
    (void)i;
    return 100 * loss->sum[ACCEPTED] / (loss->sum[PREDICTED] + LOSS_EPS);
}

static const LossOutput outputs[] = {{"ahead_loss", 1}, {"accepted", 1}, {"predicted", 1}, {0}};

static const MxFigure figures[] = {
    {.metric = "learning/main_model_loss",
     .value = main_loss,
     .sum = AHEAD_LOSS,
     .label = "main_model_loss",
     .decimals = 3},
    {.metric = "learning/mtp_loss",
     .value = loss_sum,
     .sum = AHEAD_LOSS,
     .label = "mtp_loss",
     .decimals = 3},
    {0},
};

static const MxFigure eval_figures[] = {
    {.metric = "eval/avg_mtp_acceptance_rate_percent",
     .value = acceptance,
     .each_batch = true,
     .label = "avg_mtp_acceptance_rate",
     .unit = "%",
     .decimals = 2},
    {0},
};

const Loss loss_ahead = {
    .is_meant = is_meant,
    .weights = {[EXAMPLES] = "weights", [AHEAD] = "ahead_weights"},
    .weigh = weigh,
    .trace = trace,
    .eval = eval,
    .base = &loss_tokens,
    .outputs = outputs,
    .figures = figures,
    .eval_figures = eval_figures,
};
