/* loop.c — a run from start to end: restore or initialise, then batch, step, checkpoint,
 * evaluation, log, until the steps are done, the data ends, the target is reached, the loss becomes
 * NaN or infinite, or a signal arrives. */
#include "loop.h"
#include "signals.h"

#include <math.h>

/* ---- signals */

/* After this all ranks know what one of them was asked for. */
static void hear(Loop *l) {
    Wish wish = signals_hear(paces_share(&l->paces, signals_wish()));
    if (!l->stop_signal) l->stop_signal = wish.stop;
    l->save_is_asked = l->save_is_asked || wish.saves;
}

static bool is_stopped(Loop *l) {
    if (!l->stop_signal) hear(l);
    return l->stop_signal != 0;
}

/* ---- checkpoints */

/* Metrics first: a resumed run keeps the lines of what was saved. */
static bool save(Loop *l, MxError *err) {
    double start = mx_clock_s();
    bool ok = metrics_file_flush(l->metrics, err) && checkpoints_save(l->checkpoints, l->step, err);
    tracer_span("save", "save", l->step, start);
    return ok;
}

/* Whether a save was asked for and can be made. */
static bool takes_request(Loop *l) {
    bool is_asked = l->save_is_asked;
    l->save_is_asked = false;
    if (is_asked && l->config->enable_checkpointing)
        mx_log("received SIGUSR1: saving after step %lld", (long long)l->step);
    else if (is_asked)
        mx_warn("received SIGUSR1, but enable_checkpointing=false: nothing is saved");
    return is_asked && l->config->enable_checkpointing;
}

/* Last in a step, so that the checkpoint stands for all of it. */
static bool save_if_due(Loop *l, MxError *err) {
    if (!checkpoints_poll(l->checkpoints, err)) return false;
    bool is_asked = takes_request(l), is_due = checkpoints_are_due(l->checkpoints, l->step);
    return (!is_asked && !is_due) || save(l, err);
}

/* ---- evaluation */

/* What a batch becomes before it goes through the model. */
static bool before_batch(Loop *l, bool is_eval, int64_t i, MxBatch *batch, MxError *err) {
    if (l->rollouts && !rollouts_write(l->rollouts, is_eval, i, batch, err)) return false;
    if (l->rollouts) paces_leave_out(&l->paces, rollouts_reward_s(l->rollouts));
    return mx_train_before_batch(l->state, is_eval, i, batch, err);
}

/* Batch i of evaluation: its answers judged, or its loss. */
static bool evaluate_batch(Loop *l, int64_t i, MxEvaluation *sums, MxError *err) {
    if (mx_config_judges(l->config))
        return rollouts_judge(l->rollouts, i, &l->eval_batch, &l->answers, err);
    MxBatch batch = l->eval_batch;
    if (!before_batch(l, true, i, &batch, err)) return false;
    MxLoss loss = mx_train_eval(l->state, &batch);
    mx_evaluation_add(sums, l->console.figures[true], &loss);
    return true;
}

static bool run_evaluation(Loop *l, MxEvaluation *sums, MxError *err) {
    const int64_t most = l->config->eval_steps;
    l->answers = (Answers){0};
    for (int64_t i = 0; (most <= 0 || i < most) && !is_stopped(l); i++) {
        console_progress(&l->console, l->step, i);
        MxDataStatus status = mx_data_batch(l->data.eval, i, &l->eval_batch, err);
        if (status == MX_DATA_ERROR) return mx_context(err, "evaluation data");
        if (status == MX_DATA_END) break;
        if (!evaluate_batch(l, i, sums, err)) return false;
    }
    return true;
}

static bool ask_questions(Loop *l, MxError *err) {
    bool is_over = false;
    exams_begin(l->exams);
    while (!is_over && !is_stopped(l))
        if (!exams_ask(l->exams, &is_over, err)) return false;
    return true;
}

/* Evaluates after the present step. Cut short by a signal, it is not reported, and stays to be done
 * when the run resumes. */
static bool evaluate(Loop *l, MxError *err) {
    const MxConfig *c = l->config;
    MxEvaluation sums = {0};
    double start = mx_clock_s();
    if (!run_evaluation(l, &sums, err) || !ask_questions(l, err)) return false;
    *mx_train_state_eval_pending(l->state) = l->stop_signal != 0;
    if (l->stop_signal) return true;
    double mean = sums.sums.loss, seconds = mx_clock_s() - start;
    tracer_span("evaluation", "evaluation", l->step, start);
    if (sums.n) checkpoints_evaluated(l->checkpoints, l->step, mean);
    l->told.n = 0;
    loop_collect_eval(l, &l->told, &sums, seconds);
    console_took_eval(&l->console, seconds);
    if (mx_config_judges(c))
        answers_tell(&l->answers, l->step, seconds);
    else
        console_eval(&l->console, l->step, &l->told);
    exams_tell(l->exams, l->step);
    if (sums.n && c->target_eval_loss > 0 && mean <= c->target_eval_loss)
        l->stop_reason =
            mx_arena_printf(&l->arena, "Target loss %g is achieved.", c->target_eval_loss);
    return metrics_file_write(l->metrics, l->step, &l->told, err);
}

/* ---- one step */

/* Whether the loss or the gradient broke down in a way that the config says to stop at. */
static const char *breakdown(const MxConfig *c, double value) {
    if (c->abort_on_nan_loss && isnan(value)) return "NaN";
    if (c->abort_on_inf_loss && isinf(value)) return "Inf";
    return NULL;
}

static bool abort_if_broken(Loop *l, const char *what, double value, MxError *err) {
    const char *kind = breakdown(l->config, value);
    if (!kind) return true;
    if (!checkpoints_finish(l->checkpoints, err)) return false; /* all ranks are here */
    l->exit = MX_EXIT_DIFFERENT;
    return mx_fail(err, MX_EXIT_DIFFERENT, MX_NOWHERE,
                   "Aborting training due to %s %s at step %lld; nothing was saved from it", kind,
                   what, (long long)l->step);
}

static bool train_step(Loop *l, const MxBatch *batch, MxError *err) {
    double start = mx_clock_s();
    MxLoss loss = mx_train_loss_and_grad(l->state, batch);
    bool loss_is_fine = !breakdown(l->config, loss.loss);
    MxUpdate update = {
        .learning_rate = NAN, .raw_grad_norm = NAN, .grad_norm = NAN, .param_norm = NAN};
    if (loss_is_fine) update = mx_train_update(l->state);
    double seconds = mx_clock_s() - start;
    paces_end(&l->paces);
    l->told.n = 0;
    loop_collect(l, &l->told, loss, update, seconds);
    console_step(&l->console, l->step, &l->told);
    if (update.was_left_out)
        mx_log("the update of step %lld was left out: loss or gradient is a spike",
               (long long)l->step);
    return metrics_file_write(l->metrics, l->step, &l->told, err) &&
           abort_if_broken(l, "loss", loss.loss, err) &&
           abort_if_broken(l, "gradient norm", update.raw_grad_norm, err);
}

static bool sample_if_due(const Loop *l, MxError *err) {
    int64_t n_done = l->step + 1;
    bool is_due =
        l->samples && (n_done % l->config->sample_interval == 0 || l->step == l->console.last);
    return !is_due || samples_take(l->samples, l->step, l->metrics, err);
}

/* The batch of the present step, in memory that is not written to before the next one. */
static MxDataStatus next_batch(Loop *l, MxBatch *batch, MxError *err) {
    double start = mx_clock_s();
    const MxConfig *c = l->config;
    MxTake take = mx_config_take(c, l->step);
    bool goes_on = c->reuse_example_batch > 0 || l->step % mx_config_iterations(c);
    bool has_one = goes_on && l->step > l->start;
    MxDataStatus status = has_one ? MX_DATA_OK : mx_loader_next(l->loader, take.n, batch, err);
    tracer_span("data", "wait for batch", l->step, start);
    if (status == MX_DATA_END) l->stop_reason = mx_data_end_reason(l->data.train);
    if (status == MX_DATA_ERROR) mx_context(err, "training data");
    return status;
}

/* All of a step but its batch: training, and what its number asks for besides. */
static bool make_step(Loop *l, const MxBatch *batch, double start, MxError *err) {
    MxBatch now = *batch;
    bool reuses = l->config->reuse_example_batch > 0 && l->step > l->start;
    int64_t of = reuses ? 0 : mx_config_take(l->config, l->step).first;
    if (!before_batch(l, false, of, &now, err) || !train_step(l, &now, err)) return false;
    console_took_step(&l->console, mx_clock_s() - start);
    if (console_eval_is_due(&l->console, l->step) && !evaluate(l, err)) return false;
    if (!sample_if_due(l, err)) return false;
    if (is_stopped(l)) l->stop_reason = signals_reason(l->stop_signal);
    paces_judge(&l->paces);
    return save_if_due(l, err);
}

static bool run_steps(Loop *l, MxError *err) {
    const MxConfig *c = l->config;
    MxBatch batch = {0};
    signals_begin();
    l->tracer.start = l->start;
    l->step = l->start - 1;
    bool begins = !l->start && mx_config_judges(c);
    bool is_due = begins || *mx_train_state_eval_pending(l->state);
    if (is_due && c->eval_interval > 0 && !evaluate(l, err)) return false;
    for (l->step = l->start; l->step < c->steps && !l->stop_reason; l->step++) {
        tracer_before_step(&l->tracer, l->step);
        double start = mx_clock_s();
        paces_begin(&l->paces);
        MxDataStatus status = next_batch(l, &batch, err);
        if (status == MX_DATA_ERROR) return false;
        if (status == MX_DATA_END) break;
        if (!make_step(l, &batch, start, err)) return false;
        tracer_span("step", "step", l->step, start);
        if (!tracer_after_step(&l->tracer, l->step, false, err)) return false;
        console_progress(&l->console, l->step, -1);
    }
    l->step--; /* the last step that was made */
    return tracer_after_step(&l->tracer, l->step, true, err);
}

/* ---- the end */

static bool log_profile(Loop *l, MxError *err) {
    MxText text;
    mx_text_init(&text, &l->arena);
    if (!mx_run_profile(mx_train_state_run(l->state), &text, err)) return false;
    MxCommCount sent = mx_comm_count(l->comm);
    if (sent.calls)
        mx_text_add(&text, "%llu exchanges, %.3f MiB sent to other ranks\n",
                    (unsigned long long)sent.calls, (double)sent.bytes / (1 << 20));
    mx_log("%.*s", (int)text.len - 1, text.data); /* which ends a line itself */
    return true;
}

/* What is done once the loop has ended well: the last state saved, the reason told. */
static bool finish(Loop *l, MxError *err) {
    const MxConfig *c = l->config;
    bool made_a_step = l->step >= l->start;
    bool saves = c->enable_checkpointing && made_a_step &&
                 (c->save_checkpoint_on_completion || l->stop_signal);
    mx_progress_end();
    /* before the last save: a run that is killed on the way has steps left, and comes here again */
    if (saves && !l->stop_signal && !checkpoints_fold(l->checkpoints, l->step, err)) return false;
    if ((saves && !save(l, err)) || !checkpoints_finish(l->checkpoints, err)) return false;
    /* it takes memory that no plan counts, so the state is safe by then */
    if (c->profile_ops && !log_profile(l, err)) return false;
    if (l->stop_reason) mx_log("Training stopped: %s", l->stop_reason);
    if (l->stop_signal)
        l->exit = (MxExit)(128 + l->stop_signal);
    else if (c->enable_checkpointing)
        mx_log("results are in %s", c->run_dir);
    return metrics_file_flush(l->metrics, err);
}

MxExit mx_train_run(const MxConfig *config, MxComm *comm, MxError *err) {
    Loop l = {.arena = {.name = "run"}, .config = config, .comm = comm};
    signals_catch(comm);
    bool ok = loop_prepare(&l, err);
    if (ok && l.start < config->steps) {
        ok = run_steps(&l, err) && finish(&l, err);
        mx_loader_close(l.loader);
        mx_progress_end();
        MxError ignored = {0};
        if (!ok) metrics_file_flush(l.metrics, &ignored); /* the first error is the one to tell */
        mx_error_release(&ignored);
    }
    MxExit exit = ok || l.exit ? l.exit : err->exit;
    mx_arena_release(&l.arena);
    return exit;
}

/* Weights of a run or from elsewhere, once. Lines of metrics_file stay. */
static bool evaluate_alone(Loop *l, MxError *err) {
    if (!loop_prepare_evaluation(l, err)) return false;
    signals_begin();
    l->step = checkpoints_start(l->checkpoints) - 1;
    if (!evaluate(l, err) || !metrics_file_flush(l->metrics, err)) return false;
    if (l->stop_signal) l->exit = (MxExit)(128 + l->stop_signal);
    return true;
}

MxExit mx_train_evaluate(const MxConfig *config, MxComm *comm, MxError *err) {
    Loop l = {
        .arena = {.name = "evaluation"}, .config = config, .comm = comm, .only_evaluates = true};
    signals_catch(comm);
    bool ok = evaluate_alone(&l, err);
    MxExit exit = ok || l.exit ? l.exit : err->exit;
    mx_arena_release(&l.arena);
    return exit;
}
