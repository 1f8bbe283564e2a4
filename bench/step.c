/* step.c — a training step as graphs: the loss with its gradient, the update, and the drawing of
 * the parameters, which is part of the start. It follows src/program/program.c, which keeps its
 * graphs to itself. Evaluation and the rounding of gradients (grad_dtype) are left out. */
#include "step.h"

#include <mx/model.h>

const char *const step_names[STEP_ENTRIES] = {
    [STEP_GRAD] = "grad",
    [STEP_UPDATE] = "update",
    [STEP_INIT] = "init",
};

/* The config's model and the indices of its variables; arrays are over the model's tree, MX_NONE
 * where nothing is trained. */
typedef struct Program {
    MxArena *arena;
    const MxConfig *config;
    const MxModel *model;
    const MxTree *params;
    MxVars *vars;
    int *param, *gradient, *mu, *nu;
    int tokens, positions, segments, targets, weights;
    int loss, hyper, squares, param_squares;
} Program;

static int *add_like_params(Program *p, const char *name, bool only_trained) {
    int *vars = mx_new_n(p->arena, int, p->params->n);
    for (int i = 0; i < p->params->n; i++) {
        const MxLeaf *leaf = &p->params->leaves[i];
        bool is_wanted = !only_trained || leaf->kind == mx_model_trains(p->model);
        vars[i] = is_wanted ? mx_vars_add(p->vars, name, (MxType){MX_F32, leaf->shape}) : MX_NONE;
    }
    return vars;
}

static void declare(Program *p) {
    const MxConfig *c = p->config;
    MxType batch = {MX_I32, MX_SHAPE(c->micro_batch_size_to_train_on, c->max_target_length)};
    MxType scalar = {MX_F32, MX_SCALAR};
    p->param = add_like_params(p, "param", false);
    p->gradient = add_like_params(p, "gradient", true);
    p->mu = add_like_params(p, "mu", true);
    p->nu = add_like_params(p, "nu", true);
    p->tokens = mx_vars_add(p->vars, "tokens", batch);
    p->positions = mx_vars_add(p->vars, "positions", batch);
    p->segments = mx_vars_add(p->vars, "segments", batch);
    p->targets = mx_vars_add(p->vars, "targets", batch);
    p->weights = mx_vars_add(p->vars, "weights", batch);
    p->loss = mx_vars_add(p->vars, "loss", scalar);
    p->squares = mx_vars_add(p->vars, "squares", scalar);
    p->param_squares = mx_vars_add(p->vars, "param_squares", scalar);
    p->hyper = mx_vars_add(p->vars, "hyper", (MxType){MX_F32, MX_SHAPE(MX_HYPER_COUNT)});
}

static MxValue *read_all(const Program *p, MxTrace *t, const int *vars) {
    MxValue *values = mx_new_n(p->arena, MxValue, p->params->n);
    for (int i = 0; i < p->params->n; i++)
        values[i] = vars[i] == MX_NONE ? MX_NONE : mx_variable(t, vars[i]);
    return values;
}

static void trace_grad(const Program *p, MxTrace *t) {
    const double loss_eps = 1e-8;
    int n = p->params->n;
    MxValue *params = read_all(p, t, p->param);
    MxModelInputs in = {.tokens = mx_variable(t, p->tokens),
                        .positions = mx_variable(t, p->positions),
                        .segments = mx_variable(t, p->segments)};
    MxValue targets = mx_variable(t, p->targets), weights = mx_variable(t, p->weights);
    MxValue hidden = mx_model_hidden(t, p->model, params, in);
    MxValue xent = mx_model_xent(t, p->model, params, hidden, targets, weights);
    MxValue loss = mx_ratio(t, xent, mx_count_nonzero(t, weights), loss_eps);
    if (loss < 0) return;
    mx_trace_assign(t, loss, p->loss, false);
    MxGradTarget *wrt = mx_new_n(p->arena, MxGradTarget, n);
    int n_trained = 0;
    for (int i = 0; i < n; i++)
        if (p->gradient[i] != MX_NONE)
            wrt[n_trained++] = (MxGradTarget){.wrt = params[i], .var = p->gradient[i]};
    mx_grad(t, loss, wrt, n_trained);
}

static void trace_update(const Program *p, MxTrace *t) {
    const MxConfig *c = p->config;
    MxAdamwAttr attr = {
        .eps = c->adam_eps, .eps_root = c->adam_eps_root, .weight_decay = c->adam_weight_decay};
    MxValue *param = read_all(p, t, p->param), *gradient = read_all(p, t, p->gradient);
    MxValue *mu = read_all(p, t, p->mu), *nu = read_all(p, t, p->nu);
    MxValue hyper = mx_variable(t, p->hyper);
    MxValue *trained = mx_new_n(p->arena, MxValue, p->params->n);
    int n = 0;
    for (int i = 0; i < p->params->n; i++)
        if (gradient[i] != MX_NONE) trained[n++] = gradient[i];
    MxValue squares = mx_sum_squares(t, trained, n);
    mx_trace_assign(t, squares, p->squares, false);
    MxValue clip = mx_clip_factor(t, squares, c->gradient_clipping_threshold);
    n = 0;
    for (int i = 0; i < p->params->n; i++) {
        MxValue old[4] = {param[i], gradient[i], mu[i], nu[i]};
        if (gradient[i] == MX_NONE) continue;
        MxValue new = mx_adamw(t, old, hyper, clip, attr);
        if (new < 0) return;
        mx_trace_assign(t, trained[n++] = new, p->param[i], false);
        mx_trace_assign(t, new + 1, p->mu[i], false);
        mx_trace_assign(t, new + 2, p->nu[i], false);
    }
    mx_trace_assign(t, mx_sum_squares(t, trained, n), p->param_squares, false);
}

static void trace_init(const Program *p, MxTrace *t) {
    static const MxFill fills[] = {[MX_INIT_ZEROS] = MX_FILL_CONSTANT,
                                   [MX_INIT_ONES] = MX_FILL_CONSTANT,
                                   [MX_INIT_NORMAL] = MX_FILL_NORMAL,
                                   [MX_INIT_TRUNCATED_NORMAL] = MX_FILL_TRUNCATED_NORMAL,
                                   [MX_INIT_UNIFORM] = MX_FILL_UNIFORM,
                                   [MX_INIT_LOG_UNIFORM] = MX_FILL_LOG_UNIFORM};
    for (int i = 0; i < p->params->n; i++) {
        MxInit init = p->params->leaves[i].init;
        MxInitAttr attr = {.type = {MX_F32, p->params->leaves[i].shape},
                           .fill = fills[init.kind],
                           .value = init.kind == MX_INIT_ONES ? 1 : init.std};
        mx_trace_assign(t, mx_init(t, attr), p->param[i], false);
    }
}

static size_t no_scratch(const void *context, const MxGraph *graph, const MxNode *node) {
    (void)context, (void)graph, (void)node;
    return 0; /* the layout is not used */
}

bool step_open(MxArena *arena, const MxConfig *config, const MxMachine *machine, Step **out,
               MxError *err) {
    static void (*const traces[STEP_ENTRIES])(const Program *, MxTrace *) = {
        [STEP_GRAD] = trace_grad, [STEP_UPDATE] = trace_update, [STEP_INIT] = trace_init};
    Step *step = *out = mx_new(arena, Step);
    step->vars.arena = arena;
    MxModel *model;
    if (!mx_model_new(arena, config, &model, err)) return false;
    Program p = {.arena = arena, .config = config, .model = model, .vars = &step->vars};
    p.params = mx_model_params(model);
    declare(&p);
    MxLowerOptions options = {
        .machine = machine, .remat = MX_REMAT_NONE, .scratch_bytes = no_scratch};
    for (int i = 0; i < STEP_ENTRIES; i++) {
        MxTrace t;
        MxGraph *graph = mx_graph_new(arena, step_names[i], &step->vars);
        mx_trace_begin(&t, graph);
        traces[i](&p, &t);
        if (!mx_trace_end(&t, err)) return false;
        step->lowered[i] = mx_lower(graph, &options);
    }
    return true;
}
