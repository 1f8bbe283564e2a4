/* program.c — what is trained, as a program: its variables, and its entries
 *   init      draws the parameters
 *   weigh     counts the tokens of a micro-batch that the loss is taken over
 *   grad      loss of a micro-batch and its gradient; grad_add adds to the gradient that is there
 *   update    sums the gradient up where ranks have parts of the sum, clips it, and lets the
 *             optimizer make new parameters and moments in place
 *   eval      loss of a batch
 *   take      makes the reference model equal to the policy
 *   frozen    what is made of frozen weights, and made again when they change: casts to the dtype
 *             of computation, and their part of the parameters' norm
 * All micro-batches are weighed first, and the loss of each is divided by the weight of the whole
 * batch: losses and gradients then add up to those of the batch, however it is split. */
#include <mx/train.h>

#include "internal.h"

/* ---- variables */

static int add_var(MxTrainState *s, const char *prefix, const char *name, MxType type) {
    return mx_vars_add(&s->vars, mx_arena_printf(s->arena, "%s/%s", prefix, name), type);
}

static const char *const outs[OUT_COUNT] = {
    [OUT_GRAD_SQUARES] = "grad_squares",
    [OUT_PARAM_SQUARES] = "param_squares",
    [OUT_FROZEN_SQUARES] = "frozen_squares",
};

int *train_declare_each(MxTrainState *s, const char *prefix, MxDtype dtype, bool only_trained) {
    const MxTree *params = mx_model_params(s->model);
    int *vars = mx_new_n(s->arena, int, params->n);
    for (int i = 0; i < params->n; i++) {
        const MxLeaf *leaf = &params->leaves[i];
        vars[i] = only_trained && !train_is_trained(s, leaf)
                      ? MX_NONE
                      : add_var(s, prefix, leaf->path, (MxType){dtype, leaf->shape});
    }
    return vars;
}

static void declare_loss(MxTrainState *s) {
    ProgramVars *v = &s->var;
    const Loss *loss = s->loss;
    const MxType scalar = {MX_F32, MX_SCALAR};
    v->loss = add_var(s, "out", "loss", scalar);
    for (int i = 0; s->outputs[i].name; i++) {
        const LossOutput *output = &s->outputs[i];
        MxType vector = {MX_F32, MX_SHAPE(output->count)};
        v->sum[i] = add_var(s, "out", output->name, output->count == 1 ? scalar : vector);
    }
    for (int i = 0; i < loss_weights(loss); i++) {
        v->weight[i] = add_var(s, "out", loss->weights[i], scalar);
        v->total_weight[i] = add_var(s, "total", loss->weights[i], scalar);
    }
}

/* A kind at a time, so that parameters, gradients and moments each lie in one piece. */
void train_declare_vars(MxTrainState *s) {
    ProgramVars *v = &s->var;
    s->vars.arena = s->arena;
    v->param = train_declare_each(s, "model", MX_F32, false);
    v->gradient = train_declare_each(s, "gradient", MX_F32, true);
    train_declare_moments(s);
    if (train_copies_reference(s->config))
        v->reference = train_declare_each(s, "reference_model", MX_F32, false);
    int64_t length = s->config->max_target_length, rows = s->loss->rows;
    MxType train = {MX_I32, MX_SHAPE(rows * s->config->micro_batch_size_to_train_on, length)};
    MxType eval = {MX_I32, MX_SHAPE(rows * s->config->micro_batch_size_to_eval_on, length)};
    for (int f = 0; f < MX_BATCH_FIELDS; f++) {
        v->train_batch[f] = add_var(s, "batch", mx_batch_field_name((MxBatchField)f), train);
        v->eval_batch[f] = add_var(s, "eval_batch", mx_batch_field_name((MxBatchField)f), eval);
    }
    v->train_logp = v->eval_logp = MX_NONE;
    if (train_refers_ahead(s->config)) {
        v->train_logp = add_var(s, "batch", "reference_logp", (MxType){MX_F32, train.shape});
        v->eval_logp = add_var(s, "eval_batch", "reference_logp", (MxType){MX_F32, eval.shape});
    }
    declare_loss(s);
    for (int i = 0; i < OUT_COUNT; i++)
        v->out[i] = add_var(s, "out", outs[i], (MxType){MX_F32, MX_SCALAR});
    v->hyper = add_var(s, "in", "hyper", (MxType){MX_F32, MX_SHAPE(MX_HYPER_COUNT)});
}

/* ---- entries */

MxValue *train_read_vars(MxTrainState *s, MxTrace *t, const int *vars) {
    int n = mx_model_params(s->model)->n;
    MxValue *values = mx_new_n(s->arena, MxValue, n);
    for (int i = 0; i < n; i++) values[i] = mx_variable(t, vars[i]);
    return values;
}

static MxInitAttr init_of(const MxTrainState *s, const MxLeaf *leaf) {
    static const MxFill fills[] = {[MX_INIT_ZEROS] = MX_FILL_CONSTANT,
                                   [MX_INIT_ONES] = MX_FILL_CONSTANT,
                                   [MX_INIT_NORMAL] = MX_FILL_NORMAL,
                                   [MX_INIT_TRUNCATED_NORMAL] = MX_FILL_TRUNCATED_NORMAL,
                                   [MX_INIT_UNIFORM] = MX_FILL_UNIFORM};
    return (MxInitAttr){.type = {MX_F32, leaf->shape},
                        .fill = fills[leaf->init.kind],
                        .value = leaf->init.kind == MX_INIT_ONES ? 1 : leaf->init.std,
                        .seed = (uint64_t)s->config->init_weights_seed,
                        .stream = mx_hash64(leaf->path, strlen(leaf->path))};
}

/* A parameter's first value. */
static MxValue draw(const MxTrainState *s, MxTrace *t, const MxLeaf *leaf) {
    MxInitAttr attr = init_of(s, leaf);
    MxShape rows = {.rank = 2, .dim = {1, 1}};
    if (!leaf->init.n_first) return mx_init(t, attr);
    for (int i = 0; i < leaf->shape.rank; i++)
        rows.dim[i >= leaf->n_contract] *= leaf->shape.dim[i];
    attr.type.shape = rows;
    MxValue first = mx_split(t, mx_init(t, attr), leaf->init.n_first);
    MxValue scaled = mx_scale(t, first, leaf->init.first_std / leaf->init.std);
    return mx_copy(t, mx_reshape(t, mx_concat(t, scaled, first + 1), leaf->shape));
}

static void trace_init(MxTrainState *s, MxTrace *t) {
    const MxTree *params = mx_model_params(s->model);
    for (int i = 0; i < params->n; i++) {
        t->scope = params->leaves[i].path;
        mx_trace_assign(t, draw(s, t, &params->leaves[i]), s->var.param[i], false);
    }
}

static void weigh(MxTrainState *s, MxTrace *t, const int *batch, MxValue *weights) {
    t->scope = "loss";
    s->loss->weigh(s, t, batch, weights);
    for (int i = 0; i < loss_weights(s->loss); i++)
        mx_trace_assign(t, weights[i], s->var.weight[i], false);
}

static void trace_weigh(MxTrainState *s, MxTrace *t) {
    MxValue weights[LOSS_MOST_WEIGHTS];
    weigh(s, t, s->var.train_batch, weights);
}

/* Which outputs of the loss a graph makes. */
static void find_outputs(MxTrainState *s, const MxTrace *t, bool is_eval) {
    const MxGraph *graph = t->graph;
    for (int i = 0; s->outputs[i].name; i++)
        for (int v = 0; v < graph->n_values; v++)
            if (graph->values[v].var == s->var.sum[i]) s->makes[is_eval] |= 1u << i;
}

static void trace_gradient(MxTrainState *s, MxTrace *t, bool add) {
    const MxTree *tree = mx_model_params(s->model);
    MxValue *params = train_read_vars(s, t, s->var.param);
    MxValue total[LOSS_MOST_WEIGHTS];
    for (int i = 0; i < loss_weights(s->loss); i++)
        total[i] = mx_variable(t, s->var.total_weight[i]);
    MxValue loss = s->loss->trace(s, t, params, s->var.train_batch, total);
    mx_trace_assign(t, loss, s->var.loss, false);
    find_outputs(s, t, false);
    MxGradTarget *targets = mx_new_n(s->arena, MxGradTarget, s->trained->n);
    int n = 0;
    for (int i = 0; i < tree->n; i++)
        if (s->var.gradient[i] != MX_NONE)
            targets[n++] = (MxGradTarget){.wrt = params[i], .var = s->var.gradient[i], .add = add};
    mx_grad(t, loss, targets, n);
}

static void trace_grad(MxTrainState *s, MxTrace *t) {
    trace_gradient(s, t, false);
}

static void trace_grad_add(MxTrainState *s, MxTrace *t) {
    trace_gradient(s, t, true);
}

static void trace_eval(MxTrainState *s, MxTrace *t) {
    MxValue weights[LOSS_MOST_WEIGHTS], *params = train_read_vars(s, t, s->var.param);
    weigh(s, t, s->var.eval_batch, weights);
    MxValue loss =
        (s->loss->eval ? s->loss->eval : s->loss->trace)(s, t, params, s->var.eval_batch, weights);
    mx_trace_assign(t, loss, s->var.loss, false);
    find_outputs(s, t, true);
}

static void trace_refer_batch(MxTrainState *s, MxTrace *t, const int *batch, int logp) {
    MxValue *params = train_read_vars(s, t, s->var.param);
    mx_trace_assign(t, train_trace_reference(s, t, params, batch), logp, false);
}

static void trace_refer(MxTrainState *s, MxTrace *t) {
    trace_refer_batch(s, t, s->var.train_batch, s->var.train_logp);
}

static void trace_refer_eval(MxTrainState *s, MxTrace *t) {
    trace_refer_batch(s, t, s->var.eval_batch, s->var.eval_logp);
}

/* Frozen parameters, and all of the reference's. */
static bool *find_constants(MxTrainState *s) {
    bool *is_constant = mx_new_n(s->arena, bool, s->vars.n);
    for (int i = 0; i < mx_model_params(s->model)->n; i++) {
        is_constant[s->var.param[i]] = s->var.gradient[i] == MX_NONE;
        if (s->var.reference) is_constant[s->var.reference[i]] = true;
    }
    return is_constant;
}

static void trace_frozen_norm(MxTrainState *s, MxTrace *t) {
    int n = mx_model_params(s->model)->n, n_frozen = 0;
    MxValue *frozen = mx_new_n(s->arena, MxValue, n);
    t->scope = "frozen";
    for (int i = 0; i < n; i++)
        if (s->var.gradient[i] == MX_NONE) frozen[n_frozen++] = mx_variable(t, s->var.param[i]);
    if (n_frozen && !s->only_evaluates)
        mx_trace_assign(t, mx_sum_squares(t, frozen, n_frozen), s->var.out[OUT_FROZEN_SQUARES],
                        false);
}

static void trace_frozen(MxTrainState *s, MxTrace *t) {
    int first = s->var.first_cast = s->vars.n, n_others = s->n_entries - 1;
    const int *from = mx_hoist_casts(&s->vars, find_constants(s), s->entries, n_others, t);
    for (int var = first; var < s->vars.n; var++) train_divide_like(s, var, from[var - first]);
    trace_frozen_norm(s, t);
}

static void trace_take(MxTrainState *s, MxTrace *t) {
    const MxTree *params = mx_model_params(s->model);
    for (int i = 0; i < params->n; i++) {
        t->scope = params->leaves[i].path;
        mx_trace_assign(t, mx_copy(t, mx_variable(t, s->var.param[i])), s->var.reference[i], false);
    }
}

static bool accumulates(const MxConfig *config) {
    return config->gradient_accumulation_steps > 1;
}

static const struct {
    const char *name;
    void (*trace)(MxTrainState *state, MxTrace *t);
    bool (*is_wanted)(const MxConfig *config); /* NULL = always */
    bool trains;                               /* not wanted where nothing is trained */
} entries[ENTRY_MAX] = {
    [ENTRY_INIT] = {"init", trace_init, NULL, false},
    [ENTRY_WEIGH] = {"weigh", trace_weigh, NULL, true},
    [ENTRY_GRAD] = {"grad", trace_grad, NULL, true},
    [ENTRY_UPDATE] = {"update", train_trace_update, NULL, true},
    [ENTRY_EVAL] = {"eval", trace_eval, NULL, false},
    [ENTRY_GRAD_ADD] = {"grad_add", trace_grad_add, accumulates, true},
    [ENTRY_REFER] = {"refer", trace_refer, train_refers_ahead, true},
    [ENTRY_REFER_EVAL] = {"refer_eval", trace_refer_eval, train_refers_ahead, false},
    [ENTRY_TAKE] = {"take", trace_take, train_copies_reference, false},
    [ENTRY_FROZEN] = {"frozen", trace_frozen, NULL, false},
};

bool train_trace_program(MxTrainState *state, MxError *err) {
    for (int i = 0; i < ENTRY_MAX; i++) {
        MxTrace t;
        state->entry[i] = MX_NONE;
        if (entries[i].is_wanted && !entries[i].is_wanted(state->config)) continue;
        if (entries[i].trains && state->only_evaluates) continue;
        MxGraph *graph = mx_graph_new(state->arena, entries[i].name, &state->vars);
        state->entries[state->entry[i] = state->n_entries++] = graph;
        mx_trace_begin(&t, graph);
        entries[i].trace(state, &t);
        if (!mx_trace_end(&t, err)) return false;
    }
    return true;
}
