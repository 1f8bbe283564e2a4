/* start.c — sets up a run before its first step, in this order: agreement of ranks, files, folder
 * and log, data and state, parts, metrics, the loader. */
#include "loop.h"
#include "signals.h"

bool loop_is_first(const Loop *l) {
    return mx_comm_rank(l->comm) == 0;
}

static TrainWants wanted_data(const Loop *l) {
    return l->only_evaluates ? TRAIN_WANTS_EVAL : train_wants(l->config);
}

/* What is kept of tokens the first rank makes, and the others find. */
static bool read_data(Loop *l, MxError *err) {
    const MxConfig *c = l->config;
    bool takes_turns = c->token_cache && mx_comm_size(l->comm) > 1, is_first = loop_is_first(l);
    bool ok =
        (takes_turns && !is_first) || train_open_data(&l->arena, c, wanted_data(l), &l->data, err);
    if (!takes_turns || !train_agree(l->comm, ok, err)) return ok && !takes_turns;
    return is_first || train_open_data(&l->arena, c, wanted_data(l), &l->data, err);
}

static bool open_data(Loop *l, MxError *err) {
    const MxConfig *c = l->config;
    const char *own = checkpoints_own(l->checkpoints);
    if (!read_data(l, err)) return false;
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

/* Weights that are kept in few bits. */
static void log_few_bits(const MxModel *model) {
    const MxTree *params = mx_model_params(model);
    int64_t n = 0, bytes = 0, count;
    MxQuant quant = {0};
    for (int i = 0; i < params->n; i++) {
        const MxLeaf *leaf = &params->leaves[i];
        if (!leaf->quant.type) continue;
        quant = leaf->quant;
        n += count = mx_shape_count(leaf->shape);
        bytes += mx_quant_bytes(quant, count);
    }
    if (n)
        mx_log("%lld weights are kept in %s: %.2f bits each with their scales, %.3f of float32",
               (long long)n, mx_qtype_name(quant.type), 8 * (double)bytes / (double)n,
               (double)bytes / (double)n / sizeof(float));
}

/* What the optimizer keeps in bytes, and what it could not: optimizer_state_dtype. */
static void log_bytes(const Loop *l) {
    const MxTree *tree = mx_train_state_tree(l->state);
    int64_t n = 0, bytes = 0, rest = 0;
    if (strcmp(l->config->optimizer_state_dtype, "int8")) return;
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        int64_t count = mx_shape_count(leaf->shape);
        if (leaf->kind != MX_KIND_OPTIMIZER) continue;
        n += leaf->quant.type ? count : 0;
        bytes += leaf->quant.type ? mx_quant_bytes(leaf->quant, count) : 0;
        rest +=
            leaf->quant.type ? -mx_shape_count(mx_quant_scales(leaf->quant, leaf->shape)) : count;
    }
    mx_log("%lld elements of the optimizer's state are kept as bytes, %.2f bits each with their "
           "scales; %lld are not, in small or odd arrays",
           (long long)n, n ? 8 * (double)bytes / (double)n : 0, (long long)rest);
}

static void log_adapters(const Loop *l, const MxModel *model) {
    enum { MOST_SHOWN = 20 };
    const MxLora *lora = mx_model_lora(model);
    if (!lora) return;
    double all = (double)mx_tree_count(mx_model_params(model), MX_KIND_PARAM);
    int64_t n = mx_tree_count(mx_model_params(model), MX_KIND_LORA_PARAM);
    mx_log("%s configured: rank=%lld alpha=%.15g", *l->config->lora_weight_qtype ? "QLoRA" : "LoRA",
           (long long)l->config->lora_rank, l->config->lora_alpha);
    if (l->config->lora_plus_ratio > 0)
        mx_log("LoRA+: B and vectors learn at %.9g times the learning rate",
               l->config->lora_plus_ratio);
    log_few_bits(model);
    mx_log("LoRA configured: module_path='%s' successfully matched %d target submodules.",
           lora->pattern, lora->n_modules);
    for (int i = 0; i < lora->n_modules && i < MOST_SHOWN; i++) mx_log("  %s", lora->modules[i]);
    if (lora->n_whole) mx_log("%d more are trained as they are:", lora->n_whole);
    for (int i = 0; i < lora->n_whole && i < MOST_SHOWN; i++) mx_log("  %s", lora->whole[i]);
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
    return mx_tree_count(params, MX_KIND_PARAM) + mx_tree_count(params, MX_KIND_LORA_PARAM) +
           mx_tree_count(params, MX_KIND_FROZEN);
}

/* Where rules cut a dim along axes behind fsdp, sums are scattered in every micro-batch. */
static void warn_few(const Loop *l) {
    const char *dtype = l->config->gradient_exchange_dtype;
    double share = mx_train_few_share(l->state);
    bool has_any = mx_comm_size(l->comm) > 1 && !l->only_evaluates;
    if (!has_any || !strcmp(dtype, "float32") || share > 0.5) return;
    mx_warn("gradient_exchange_dtype=%s: gradients of %.0f %% of the parameters are sent so; all "
            "others lie along mesh axes whose sums stay in float32 (docs/RANKS.md)",
            dtype, 100 * share);
}

static void log_plan(Loop *l) {
    const MxModel *model = mx_train_state_model(l->state);
    MxTrainBytes b = mx_train_state_bytes(l->state);
    mx_log("%s", mx_device_describe(mx_train_state_device(l->state)));
    int64_t n = n_parameters(l);
    mx_log("number parameters: %s billion (%lld)", figure(&l->arena, (double)n * 1e-9),
           (long long)n);
    log_adapters(l, model);
    log_bytes(l);
    size_t saving = saving_bytes(l);
    mx_log("memory: %s GiB = parameters %s, gradients %s, optimizer %s, reference %s, "
           "activations %s, casts %s, saving %s",
           gib(l, b.total + saving), gib(l, b.parameters), gib(l, b.gradients), gib(l, b.moments),
           gib(l, b.reference), gib(l, b.activations), gib(l, b.casts), gib(l, saving));
    if (b.disk)
        mx_log("on disk: moments, %s GiB in a file in \"%s\"", gib(l, b.disk),
               l->config->optimizer_memory_disk);
    mx_log("%s", mx_tflops_text(&l->arena, mx_model_tflops(model)));
    warn_few(l);
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
    if (!loop_is_first(l) && !l->config->rank_logs) return mx_log_copy(NULL, err);
    if (!loop_is_first(l)) {
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
    *columns = loop_metrics(&l->arena, l);
    l->told = loop_metrics(&l->arena, l);
    loop_collect(l, columns, (MxLoss){0}, (MxUpdate){0}, 1);
    loop_collect_eval(l, columns, &(MxEvaluation){0}, 0);
    setup.columns = columns;
    if (loop_is_first(l)) setup.other = c->metrics_file;
    if (loop_is_first(l) && !l->only_evaluates)
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
    if (loop_is_first(l) && !metrics_file_check(c, c->metrics_file, err)) return false;
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
    if (loop_is_first(l) &&
        (!mx_dir_make(c->checkpoint_dir, err) || !mx_config_write(c, config_path, err)))
        return false;
    if (!open_log(l, err)) return false;
    if (c->log_config && loop_is_first(l)) mx_config_print(c, config_path);
    return true;
}

/* Steps of the whole run: what is asked for, or the data gives. */
static int64_t n_steps(const Loop *l) {
    const MxConfig *c = l->config;
    bool is_endless = !l->data.train || c->reuse_example_batch > 0;
    int64_t of_data = is_endless ? -1 : mx_config_steps_of(c, mx_data_steps(l->data.train));
    return of_data >= 0 && of_data < c->steps ? of_data : c->steps;
}

/* The teacher's largest logits, where they are missing: by the teacher alone, which is gone when
 * the student comes. */
static bool make_logits(Loop *l, MxError *err) {
    const MxConfig *c = l->config;
    MxDataset *const data[] = {l->data.train, NULL};
    MxArena arena = {.name = "teacher"};
    MxTrainState *teacher;
    bool is_due;
    if (l->only_evaluates) return true;
    if (!mx_train_teaches_first(c, l->comm, &is_due, err)) return false;
    bool ok =
        !is_due || (mx_train_state_open_eval(&arena, c->offline_teacher, l->comm, &teacher, err) &&
                    train_restore(teacher, NULL, err) && mx_train_open_parts(teacher, data, err));
    mx_arena_release(&arena);
    return ok || mx_context(err, "the teacher");
}

/* Data and state. */
static bool build(Loop *l, MxError *err) {
    const MxConfig *c = l->config;
    if (!open_data(l, err) || !agree_on_data(l, err) || !make_logits(l, err) ||
        !(l->only_evaluates ? mx_train_state_open_eval
                            : mx_train_state_open_on)(&l->arena, c, l->comm, &l->state, err))
        return false;
    console_open(&l->arena, c, n_steps(l), &l->console);
    paces_open(&l->arena, l->comm, &l->paces);
    l->tracer = (Tracer){.config = c, .comm = l->comm};
    log_plan(l);
    return checkpoints_restore(l->checkpoints, l->state, err);
}

static bool open_parts(Loop *l, MxError *err) {
    MxDataset *const data[] = {l->data.train, l->data.eval};
    return mx_train_open_parts(l->state, data, err) &&
           rollouts_open(&l->arena, l->state, data, &l->rollouts, err);
}

bool loop_prepare(Loop *l, MxError *err) {
    if (!find_files(l, err)) return false;
    if (!has_steps(l)) return true;
    if (!try_files(l, err) || !open_folder(l, err) || !build(l, err)) return false;
    if (!has_steps(l)) return true;
    const MxLoaderConfig ahead = {.dataset = l->data.train,
                                  .part = l->train_part,
                                  .first_step = mx_config_take(l->config, l->start).first,
                                  .depth = 2,
                                  .most = l->config->ramp.stages ? l->config->accumulations : 1};
    return open_parts(l, err) && samples_open(&l->arena, l->state, &l->samples, err) &&
           exams_open(&l->arena, l->state, &l->exams, err) && open_metrics(l, l->start, err) &&
           mx_loader_open(&l->arena, &ahead, &l->loader, err);
}

bool loop_prepare_evaluation(Loop *l, MxError *err) {
    return mx_log_copy(NULL, err) && find_files(l, err) && try_files(l, err) && build(l, err) &&
           open_parts(l, err) && exams_open(&l->arena, l->state, &l->exams, err) &&
           open_metrics(l, METRICS_ADD, err);
}
