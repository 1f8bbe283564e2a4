/* figures.c — the metrics of a step and an evaluation, with MaxText's names and in its order. */
#include "loop.h"

#include <math.h>

/* MaxText's of every run: 0 unless the loss has them. */
static const char *const usual[] = {"learning/moe_lb_loss", "learning/indexer_loss",
                                    "learning/mtp_loss"};

static bool is_usual(const char *metric) {
    for (int i = 0; i < MX_COUNT(usual); i++)
        if (!strcmp(usual[i], metric)) return true;
    return false;
}

static void collect_loss(const MxFigure *figures, const MxLoss *loss, Metrics *m) {
    const MxFigure *f;
    metrics_add(m, "learning/loss", loss->loss);
    for (f = figures; f->metric; f++)
        if (f->value && !is_usual(f->metric)) metrics_add(m, f->metric, f->value(loss, f->sum));
    for (int i = 0; i < MX_COUNT(usual); i++) {
        for (f = figures; f->metric && strcmp(f->metric, usual[i]);) f++;
        metrics_add(m, usual[i], f->metric ? f->value(loss, f->sum) : 0);
    }
    metrics_add(m, "learning/total_weights", loss->total_weights);
}

Metrics loop_metrics(MxArena *arena, const Loop *l) {
    enum { OTHERS = 128 }; /* of losses, speed and tasks */
    int n_told;
    mx_train_told(l->state, &n_told);
    return metrics_new(arena, OTHERS + n_told);
}

void loop_collect(const Loop *l, Metrics *m, MxLoss loss, MxUpdate update, double seconds) {
    const MxConfig *c = l->config;
    double share = mx_config_share(c, l->step);
    double tflops = share * mx_model_tflops(mx_train_state_model(l->state)).total;
    double tokens =
        share * (double)(c->tokens_per_step * mx_train_rows(c)) / (double)mx_comm_size(l->comm);
    collect_loss(l->console.figures[false], &loss, m);
    int n_told;
    const MxTold *told = mx_train_told(l->state, &n_told);
    for (int i = 0; i < n_told; i++) metrics_add(m, told[i].metric, told[i].value);
    metrics_add(m, "learning/grad_norm", update.grad_norm);
    metrics_add(m, "learning/raw_grad_norm", update.raw_grad_norm);
    metrics_add(m, "learning/param_norm", update.param_norm);
    metrics_add(m, "learning/current_learning_rate", update.learning_rate);
    if (c->skip_step_on_spikes) metrics_add(m, "optim/step_skipped", update.was_left_out);
    metrics_add(m, "perf/step_time_seconds", seconds);
    metrics_add(m, "perf/per_device_tflops", tflops);
    metrics_add(m, "perf/per_device_tflops_per_sec", tflops / seconds);
    metrics_add(m, "perf/per_device_tokens", tokens);
    metrics_add(m, "perf/per_device_tokens_per_sec", tokens / seconds);
    if (l->rollouts) metrics_add(m, "perf/rollout_time_seconds", rollouts_seconds(l->rollouts));
    if (l->rollouts && c->rl_max_turns > 1)
        metrics_add(m, "learning/completion_turns", rollouts_turns(l->rollouts));
    if (l->paces.n == 1) return;
    bool is_known = !isnan(l->paces.slowdown);
    metrics_add(m, "perf/slowest_rank", is_known ? (double)l->paces.slowest : (double)NAN);
    metrics_add(m, "perf/slowest_rank_slowdown", l->paces.slowdown);
}

static void collect_eval_loss(const MxFigure *figures, const MxEvaluation *sums, Metrics *m) {
    metrics_add(m, "eval/total_loss", sums->total_loss);
    metrics_add(m, "eval/total_weights", sums->sums.total_weights);
    metrics_add(m, "eval/avg_loss", sums->sums.loss);
    for (int i = 0; figures[i].metric; i++)
        if (figures[i].value)
            metrics_add(m, figures[i].metric, mx_evaluation_figure(sums, figures, i));
}

void loop_collect_eval(const Loop *l, Metrics *m, const MxEvaluation *sums, double seconds) {
    const MxFigure *figures = l->console.figures[true];
    if (mx_config_judges(l->config))
        answers_collect(&l->answers, m);
    else
        collect_eval_loss(figures, sums, m);
    exams_collect(l->exams, m);
    metrics_add(m, "perf/eval_time_seconds", seconds);
}
