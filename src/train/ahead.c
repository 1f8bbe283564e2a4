/* ahead.c — the loss of next tokens with modules that predict further ones (multi-token
 * prediction): their mean cross-entropy, over all modules together, is added with a factor.
 * Evaluation leaves it out and may tell how often one module predicts what the decoder does when it
 * gets there. */
#include <mx/train.h>

#include "internal.h"

static MxAhead start(MxTrace *t, const int *batch, MxValue stream) {
    return (MxAhead){.stream = stream,
                     .tokens = mx_variable(t, batch[MX_INPUTS]),
                     .targets = mx_variable(t, batch[MX_TARGETS]),
                     .weights = mx_variable(t, batch[MX_TARGETS_SEGMENTATION])};
}

static void weigh(MxTrainState *s, MxTrace *t, const int *batch, MxValue weights[WEIGHT_COUNT]) {
    MxValue segments = mx_variable(t, batch[MX_INPUTS_SEGMENTATION]), sum = MX_NONE;
    MxValue shifted = mx_variable(t, batch[MX_TARGETS_SEGMENTATION]);
    weights[WEIGHT_EXAMPLES] = mx_count_nonzero(t, shifted);
    for (int k = 1; k <= s->config->mtp_num_layers; k++) {
        shifted = mx_shift(t, shifted, segments, k - 1);
        MxValue count = mx_count_nonzero(t, shifted);
        sum = k > 1 ? mx_add(t, sum, count) : count;
    }
    weights[WEIGHT_AHEAD] = sum;
}

static MxValue trace(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                     const MxValue weights[WEIGHT_COUNT]) {
    MxModelInputs in = train_inputs(t, batch);
    MxAhead at = start(t, batch, mx_model_stream(t, s->model, params, in));
    MxValue hidden = mx_model_last_norm(t, s->model, params, at.stream), sum = MX_NONE;
    MxValue loss = train_token_loss(s, t, params, batch, hidden, weights[WEIGHT_EXAMPLES]);
    for (int k = 1; k <= s->config->mtp_num_layers; k++) {
        at = mx_model_ahead(t, s->model, params, in, k, at);
        hidden = mx_model_last_norm(t, s->model, params, at.stream);
        MxValue nll = mx_model_nll(t, s->model, params, hidden, at.targets, at.weights);
        sum = k > 1 ? mx_add(t, sum, nll) : nll;
    }
    t->scope = "loss";
    MxValue mean = mx_ratio(t, sum, weights[WEIGHT_AHEAD], LOSS_EPS);
    MxValue ahead = mx_scale(t, mean, s->config->mtp_loss_scaling_factor);
    mx_trace_assign(t, ahead, s->var.out[OUT_AHEAD_LOSS], false);
    return mx_add(t, loss, ahead);
}

static MxValue eval(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                    const MxValue weights[WEIGHT_COUNT]) {
    int64_t module = s->config->mtp_eval_target_module;
    MxModelInputs in = train_inputs(t, batch);
    MxAhead at = start(t, batch, mx_model_stream(t, s->model, params, in));
    MxValue hidden = mx_model_last_norm(t, s->model, params, at.stream);
    MxValue loss = train_token_loss(s, t, params, batch, hidden, weights[WEIGHT_EXAMPLES]);
    if (!module) return loss;
    MxValue main = mx_model_argmax(t, s->model, params, hidden, at.weights);
    for (int k = 1; k <= module; k++) {
        at = mx_model_ahead(t, s->model, params, in, k, at);
        main = mx_shift(t, main, in.segments, k - 1);
    }
    hidden = mx_model_last_norm(t, s->model, params, at.stream);
    MxValue own = mx_model_argmax(t, s->model, params, hidden, at.weights);
    t->scope = "loss";
    MxValue n_equal = mx_count_equal(t, main, own, at.weights);
    mx_trace_assign(t, n_equal, s->var.out[OUT_ACCEPTED], false);
    mx_trace_assign(t, mx_count_nonzero(t, at.weights), s->var.out[OUT_PREDICTED], false);
    return loss;
}

static void log_ahead(const MxLoss *loss, Metrics *m) {
    train_log_tokens(loss, m);
    metrics_add(m, "learning/main_model_loss", loss->loss - loss->ahead);
}

static void log_eval(const Evaluation *sums, Metrics *m) {
    train_log_eval_tokens(sums, m);
    metrics_add(m, "eval/avg_mtp_acceptance_rate_percent",
                sums->n ? sums->accepted / (double)sums->n : 0);
}

static const Field fields[] = {
    {.label = "lm_loss", .metric = "learning/lm_loss", .decimals = 3},
    {.label = "perplexity", .metric = "learning/perplexity", .decimals = 3},
    {.label = "main_model_loss", .metric = "learning/main_model_loss", .decimals = 3},
    {.label = "mtp_loss", .metric = "learning/mtp_loss", .decimals = 3},
    {0},
};

static const Field eval_fields[] = {
    {.label = "perplexity", .metric = "eval/avg_perplexity", .decimals = 3},
    {.label = "total_weights", .metric = "eval/total_weights"},
    {.label = "avg_z_loss", .metric = "eval/avg_z_loss", .decimals = 3},
    {.label = "avg_mtp_acceptance_rate",
     .metric = "eval/avg_mtp_acceptance_rate_percent",
     .unit = "%",
     .decimals = 2},
    {0},
};

const Loss train_ahead_loss = {
    .rows = 1,
    .weigh = weigh,
    .trace = trace,
    .eval = eval,
    .log = log_ahead,
    .log_eval = log_eval,
    .fields = fields,
    .eval_fields = eval_fields,
};
