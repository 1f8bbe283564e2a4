/* loop.c — a run from start to end: restore or initialise, then batch, step, checkpoint,
 * evaluation, log, until the steps are done, the data ends, the target is reached, the loss breaks
 * down, or a signal comes. */
#include <mx/train.h>

#include "checkpoint.h"
#include "console.h"
#include "data.h"
#include "internal.h"
#include "signals.h"

#include <math.h>
#include <stdio.h>

typedef struct Loop {
    MxArena arena;
    const MxConfig *config;
    MxComm *comm;
    bool only_evaluates;
    int stop_signal;    /* that some rank got and all have agreed on, 0 = none */
    bool save_is_asked; /* the same, of a save */
    MxTrainState *state;
    TrainData data;
    MxBatchPart train_part, eval_part; /* what this rank needs of every batch */
    MxBatch eval_batch;
    MxLoader *loader;
    Console console;
    MetricsFile *metrics;
    Checkpoints *checkpoints;
    int64_t start, step;     /* first and current step */
    const char *stop_reason; /* NULL = go on */
    MxExit exit;
} Loop;

/* ---- signals */

/* After this all ranks know what one of them was asked for. */
static void hear(Loop *l) {
    Wish wish = signals_hear(l->comm);
    if (!l->stop_signal) l->stop_signal = wish.stop;
    l->save_is_asked = l->save_is_asked || wish.saves;
}

static bool is_stopped(Loop *l) {
    if (!l->stop_signal) hear(l);
    return l->stop_signal != 0;
}

/* ---- ranks: the first one writes for all */

static bool is_first(const Loop *l) {
    return mx_comm_rank(l->comm) == 0;
}

/* ---- checkpoints */

/* Metrics first: a resumed run keeps the lines of what was saved. */
static bool save(Loop *l, MxError *err) {
    return metrics_file_flush(l->metrics, err) && checkpoints_save(l->checkpoints, l->step, err);
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
    bool is_due = takes_request(l) || checkpoints_are_due(l->checkpoints, l->step);
    return checkpoints_poll(l->checkpoints, err) && (!is_due || save(l, err));
}

/* ---- evaluation */

/* Cut short by a signal, it stays to be done when the run resumes. */
static bool run_evaluation(Loop *l, MxEvaluation *sums, MxError *err) {
    const MxConfig *c = l->config;
    while ((c->eval_steps <= 0 || sums->n < c->eval_steps) && !is_stopped(l)) {
        console_progress(&l->console, l->step, sums->n);
        MxDataStatus status = mx_data_batch(l->data.eval, sums->n, &l->eval_batch, err);
        if (status == MX_DATA_ERROR) return mx_context(err, "evaluation data");
        if (status == MX_DATA_END) break;
        if (!mx_train_before_batch(l->state, true, sums->n, &l->eval_batch, err)) return false;
        MxLoss loss = mx_train_eval(l->state, &l->eval_batch);
        mx_evaluation_add(sums, l->console.figures[true], &loss);
    }
    *mx_train_state_eval_pending(l->state) = l->stop_signal != 0;
    return true;
}

static void collect_eval(const MxFigure *figures, Metrics *m, const MxEvaluation *sums,
                         double seconds) {
    metrics_add(m, "eval/total_loss", sums->total_loss);
    metrics_add(m, "eval/total_weights", sums->sums.total_weights);
    metrics_add(m, "eval/avg_loss", sums->sums.loss);
    for (int i = 0; figures[i].metric; i++)
        if (figures[i].value)
            metrics_add(m, figures[i].metric, mx_evaluation_figure(sums, figures, i));
    metrics_add(m, "perf/eval_time_seconds", seconds);
}

/* Evaluates after the present step; what a signal left unfinished is not reported. */
static bool evaluate(Loop *l, MxError *err) {
    const MxConfig *c = l->config;
    MxEvaluation sums = {0};
    double start = mx_clock_s();
    if (!run_evaluation(l, &sums, err)) return false;
    if (l->stop_signal) return true;
    double mean = sums.sums.loss, seconds = mx_clock_s() - start;
    if (sums.n) checkpoints_evaluated(l->checkpoints, l->step, mean);
    Metrics m = {0};
    collect_eval(l->console.figures[true], &m, &sums, seconds);
    console_took_eval(&l->console, seconds);
    console_eval(&l->console, l->step, &m);
    if (sums.n && c->target_eval_loss > 0 && mean <= c->target_eval_loss)
        l->stop_reason =
            mx_arena_printf(&l->arena, "Target loss %g is achieved.", c->target_eval_loss);
    return metrics_file_write(l->metrics, l->step, &m, err);
}

/* ---- one step */

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

static void collect(const Loop *l, Metrics *m, MxLoss loss, MxUpdate update, double seconds) {
    const MxConfig *c = l->config;
    double tflops = mx_model_tflops(mx_train_state_model(l->state)).total;
    double tokens = (double)c->tokens_per_step / (double)mx_comm_size(l->comm);
    collect_loss(l->console.figures[false], &loss, m);
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
}

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
    Metrics m = {0};
    MxLoss loss = mx_train_loss_and_grad(l->state, batch);
    bool loss_is_fine = !breakdown(l->config, loss.loss);
    MxUpdate update = {
        .learning_rate = NAN, .raw_grad_norm = NAN, .grad_norm = NAN, .param_norm = NAN};
    if (loss_is_fine) update = mx_train_update(l->state);
    double seconds = mx_clock_s() - start;
    collect(l, &m, loss, update, seconds);
    console_step(&l->console, l->step, &m);
    if (update.was_left_out)
        mx_log("the update of step %lld was left out: loss or gradient is a spike",
               (long long)l->step);
    return metrics_file_write(l->metrics, l->step, &m, err) &&
           abort_if_broken(l, "loss", loss.loss, err) &&
           abort_if_broken(l, "gradient norm", update.raw_grad_norm, err);
}

static bool run_steps(Loop *l, MxError *err) {
    const MxConfig *c = l->config;
    MxBatch batch = {0};
    signals_begin();
    l->step = l->start - 1;
    if (*mx_train_state_eval_pending(l->state) && c->eval_interval > 0 && !evaluate(l, err))
        return false;
    for (l->step = l->start; l->step < c->steps && !l->stop_reason; l->step++) {
        double start = mx_clock_s();
        bool reuses = c->reuse_example_batch > 0 && l->step > l->start;
        MxDataStatus status = reuses ? MX_DATA_OK : mx_loader_next(l->loader, &batch, err);
        if (status == MX_DATA_ERROR) return mx_context(err, "training data");
        if (status == MX_DATA_END) {
            l->stop_reason = mx_data_end_reason(l->data.train);
            break;
        }
        if (!mx_train_before_batch(l->state, false, reuses ? 0 : l->step, &batch, err) ||
            !train_step(l, &batch, err))
            return false;
        console_took_step(&l->console, mx_clock_s() - start);
        if (console_eval_is_due(&l->console, l->step) && !evaluate(l, err)) return false;
        if (is_stopped(l)) l->stop_reason = signals_reason(l->stop_signal);
        if (!save_if_due(l, err)) return false;
        console_progress(&l->console, l->step, -1);
    }
    l->step--; /* the last step that was made */
    return true;
}

/* ---- start and end */

static TrainWants wanted_data(const Loop *l) {
    return l->only_evaluates ? TRAIN_WANTS_EVAL : train_wants(l->config);
}

static bool open_data(Loop *l, MxError *err) {
    const MxConfig *c = l->config;
    const char *own = checkpoints_own(l->checkpoints);
    if (!train_open_data(&l->arena, c, wanted_data(l), &l->data, err)) return false;
    if (l->data.eval) l->eval_batch = mx_batch_new_part(&l->arena, &l->eval_part);
    if (own && l->data.train && !train_same_data(c, own, l->data.train, err)) return false;
    if (l->only_evaluates) return !own || c->eval_share <= 0 || train_same_share(c, own, err);
    checkpoints_remember(l->checkpoints, train_data_files(&l->arena, l->data.train));
    train_warn_steps(c, l->data.train);
    return true;
}

/* Ranks take their rows of the same batches. */
static bool agree_on_data(Loop *l, MxError *err) {
    const MxDataset *const data[] = {l->data.train, l->data.eval};
    bool ok = true;
    for (int i = 0; ok && i < MX_COUNT(data); i++)
        ok = !data[i] || train_same_files(l->comm, i ? "evaluation data" : "training data",
                                          train_data_files(&l->arena, data[i]), err);
    return ok;
}

static const char *figure(MxArena *arena, double value) {
    enum { DECIMALS = 3 };
    return mx_figure(mx_new_n(arena, char, MX_FIGURE), value, DECIMALS);
}

static const char *gib(Loop *l, size_t bytes) {
    return figure(&l->arena, (double)bytes / (1 << 30));
}

static void log_adapters(const Loop *l, const MxModel *model) {
    enum { MOST_SHOWN = 20 };
    const MxLora *lora = mx_model_lora(model);
    if (!lora) return;
    double all = (double)mx_tree_count(mx_model_params(model), MX_KIND_PARAM);
    int64_t n = mx_tree_count(mx_model_params(model), MX_KIND_LORA_PARAM);
    mx_log("LoRA configured: rank=%lld alpha=%.15g", (long long)l->config->lora_rank,
           l->config->lora_alpha);
    mx_log("LoRA configured: module_path='%s' successfully matched %d target submodules.",
           lora->pattern, lora->n_modules);
    for (int i = 0; i < lora->n_modules && i < MOST_SHOWN; i++) mx_log("  %s", lora->modules[i]);
    mx_log("number trainable parameters: %lld, %.3f%% of the frozen ones", (long long)n,
           100 * (double)n / all);
}

/* The copy of what a rank writes of the state in the background; of the rank with most of it. */
static size_t saving_bytes(const Loop *l) {
    const MxConfig *c = l->config;
    MxArena arena = {.name = "plan"};
    int64_t n = 0;
    if (c->enable_checkpointing && c->async_checkpointing && !l->only_evaluates)
        n = mx_ckpt_share_bytes(checkpoints_form(c), mx_train_saved_tree(&arena, l->state));
    mx_arena_release(&arena);
    return (size_t)n;
}

static int64_t n_parameters(const Loop *l) {
    const MxTree *params = mx_model_params(mx_train_state_model(l->state));
    return mx_tree_count(params, MX_KIND_PARAM) + mx_tree_count(params, MX_KIND_LORA_PARAM);
}

static void log_plan(Loop *l) {
    const MxModel *model = mx_train_state_model(l->state);
    MxTrainBytes b = mx_train_state_bytes(l->state);
    mx_log("%s", mx_device_describe(mx_train_state_device(l->state)));
    int64_t n = n_parameters(l);
    mx_log("number parameters: %s billion (%lld)", figure(&l->arena, (double)n * 1e-9),
           (long long)n);
    log_adapters(l, model);
    size_t saving = saving_bytes(l);
    mx_log("memory: %s GiB = parameters %s, gradients %s, optimizer %s, reference %s, "
           "activations %s, casts %s, saving %s",
           gib(l, b.total + saving), gib(l, b.parameters), gib(l, b.gradients), gib(l, b.moments),
           gib(l, b.reference), gib(l, b.activations), gib(l, b.casts), gib(l, saving));
    mx_log("%s", mx_tflops_text(&l->arena, mx_model_tflops(model)));
}

/* Takes over where the run starts; whether that leaves anything to do. */
static bool has_steps(Loop *l) {
    l->start = checkpoints_start(l->checkpoints);
    if (l->start < l->config->steps) return true;
    mx_log("nothing to do: step %lld of %lld; raise steps=", (long long)l->start,
           (long long)l->config->steps);
    return false;
}

static bool divide_batches(Loop *l, const MxTrainMesh *mesh, MxError *err) {
    int64_t rank = mx_comm_rank(l->comm);
    return mx_train_batch_part(&l->arena, mesh, rank, false, &l->train_part, err) &&
           mx_train_batch_part(&l->arena, mesh, rank, true, &l->eval_part, err);
}

/* The run's log is the first rank's; the others may have logs of their own. */
static bool open_log(Loop *l, MxError *err) {
    const char *dir = l->config->run_dir, *name = "run.log";
    if (!is_first(l) && !l->config->rank_logs) return mx_log_copy(NULL, err);
    if (!is_first(l)) {
        dir = mx_path_join(&l->arena, dir, "logs");
        name = mx_arena_printf(&l->arena, "rank_%d.log", mx_comm_rank(l->comm));
    }
    return mx_dir_make(dir, err) && mx_log_copy(mx_path_join(&l->arena, dir, name), err);
}

/* The run's own file is the run's alone: evaluation beside it would take lines away. */
static bool open_metrics(Loop *l, int64_t first_step, MxError *err) {
    const MxConfig *c = l->config;
    MetricsSetup setup = {.config = c, .first_step = first_step, .n_parameters = n_parameters(l)};
    Metrics *columns = mx_new(&l->arena, Metrics);
    collect(l, columns, (MxLoss){0}, (MxUpdate){0}, 1);
    collect_eval(l->console.figures[true], columns, &(MxEvaluation){0}, 0);
    setup.columns = columns;
    if (is_first(l)) setup.other = c->metrics_file;
    if (is_first(l) && !l->only_evaluates)
        setup.own = mx_path_join(&l->arena, c->run_dir, "metrics.jsonl");
    if (setup.own && c->enable_tensorboard)
        setup.events = mx_path_join(&l->arena, c->run_dir, "tensorboard");
    return metrics_file_open(&l->arena, &setup, &l->metrics, err);
}

/* Whether there are weights to evaluate. */
static bool check_weights(const Loop *l, MxError *err) {
    const MxConfig *c = l->config;
    if (checkpoints_own(l->checkpoints)) return true;
    if (!mx_train_evaluates(c, err)) return false;
    if (c->load_parameters_path || c->load_full_state_path) return true;
    mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "nothing to evaluate: there is no checkpoint in %s",
            c->checkpoint_dir);
    mx_note(err, "hint: run_name names a run, load_parameters_path other weights");
    return false;
}

/* What the run starts from and reads, before anything is made. */
static bool find_files(Loop *l, MxError *err) {
    const MxConfig *c = l->config;
    MxTrainMesh mesh;
    if (!train_same_config(c, l->comm, err) || !mx_train_mesh(&l->arena, c, &mesh, err) ||
        !mx_train_check_ranks(&mesh, l->comm, err) || !divide_batches(l, &mesh, err))
        return false;
    if (is_first(l) && !metrics_file_check(c, c->metrics_file, err)) return false;
    mx_comm_watch(l->comm, (double)c->watchdog_seconds);
    CheckpointsUse use = l->only_evaluates ? CHECKPOINTS_EVALUATE : CHECKPOINTS_TRAIN;
    return checkpoints_open(&l->arena, c, l->comm, use, &l->checkpoints, err) &&
           (!l->only_evaluates || check_weights(l, err));
}

/* In a child process, which has handlers of its own set. */
static bool try_files(Loop *l, MxError *err) {
    bool ok = checkpoints_try(l->checkpoints, err) &&
              train_try_data(l->config, l->comm, wanted_data(l), err);
    signals_catch(l->comm);
    return ok;
}

static bool open_folder(Loop *l, MxError *err) {
    const MxConfig *c = l->config;
    const char *config_path = mx_path_join(&l->arena, c->run_dir, "config.yml");
    if (is_first(l) &&
        (!mx_dir_make(c->checkpoint_dir, err) || !mx_config_write(c, config_path, err)))
        return false;
    if (!open_log(l, err)) return false;
    if (c->log_config && is_first(l)) mx_config_print(c, config_path);
    return true;
}

/* Steps of the whole run: what is asked for, or the data gives. */
static int64_t n_steps(const Loop *l) {
    const MxConfig *c = l->config;
    bool is_endless = !l->data.train || c->reuse_example_batch > 0;
    int64_t of_data = is_endless ? -1 : mx_data_steps(l->data.train);
    return of_data >= 0 && of_data < c->steps ? of_data : c->steps;
}

/* Data and state. */
static bool build(Loop *l, MxError *err) {
    const MxConfig *c = l->config;
    if (!open_data(l, err) || !agree_on_data(l, err) ||
        !(l->only_evaluates ? mx_train_state_open_eval
                            : mx_train_state_open_on)(&l->arena, c, l->comm, &l->state, err))
        return false;
    console_open(&l->arena, c, n_steps(l), &l->console);
    log_plan(l);
    return checkpoints_restore(l->checkpoints, l->state, err);
}

static bool open_parts(Loop *l, MxError *err) {
    MxDataset *const data[] = {l->data.train, l->data.eval};
    return mx_train_open_parts(l->state, data, err);
}

static bool prepare(Loop *l, MxError *err) {
    if (!find_files(l, err)) return false;
    if (!has_steps(l)) return true;
    if (!try_files(l, err) || !open_folder(l, err) || !build(l, err)) return false;
    if (!has_steps(l)) return true;
    const MxLoaderConfig ahead = {
        .dataset = l->data.train, .part = l->train_part, .first_step = l->start, .depth = 2};
    return open_parts(l, err) && open_metrics(l, l->start, err) &&
           mx_loader_open(&l->arena, &ahead, &l->loader, err);
}

static void log_profile(Loop *l) {
    MxText text;
    mx_text_init(&text, &l->arena);
    mx_run_profile(mx_train_state_run(l->state), &text);
    mx_log("%s", text.data);
}

/* What is done once the loop has ended well: the last state saved, the reason told. */
static bool finish(Loop *l, MxError *err) {
    const MxConfig *c = l->config;
    bool made_a_step = l->step >= l->start;
    bool saves = c->enable_checkpointing && made_a_step &&
                 (c->save_checkpoint_on_completion || l->stop_signal);
    mx_progress_end();
    if (c->profile_ops) log_profile(l);
    if ((saves && !save(l, err)) || !checkpoints_finish(l->checkpoints, err)) return false;
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
    bool ok = prepare(&l, err);
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
    if (!mx_log_copy(NULL, err) || !find_files(l, err) || !try_files(l, err) || !build(l, err) ||
        !open_parts(l, err) || !open_metrics(l, METRICS_ADD, err))
        return false;
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
