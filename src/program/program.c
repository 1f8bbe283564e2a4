/* program.c — what is trained, as a program: its variables, and its entries
 *   init      draws the parameters
 *   weigh     counts the tokens of a micro-batch that the loss is taken over
 *   grad      loss of a micro-batch and its gradient; grad_add adds to the gradient that is there
 *   update    sums the gradient up where ranks have parts of the sum, clips it, and lets the
 *             optimizer make new parameters and moments in place
 *   eval      loss of a batch
 *   prefill   a piece of a prompt goes through the model, which keeps what it needs of it;
 *             prefill_8 …: a short one; foretell: one with logits of all its tokens
 *   decode    a token of one sequence does, decode_all: one of each
 *   see       a view of an image becomes rows, which pieces of a prompt read
 *   factors   quotients of magnitudes and norms of adapters, which all pieces read; adapters: what
 *             they begin with of the base
 *   take      makes the reference model equal to the policy
 *   frozen    casts of frozen weights, and their part of the parameters' norm: whenever they change
 *
 * All micro-batches are weighed first, and the loss of each is divided by the weight of the whole
 * batch: losses and gradients then add up to those of the batch, however it is split. */
#include <mx/program.h>

#include "internal.h"

/* ---- variables */

static void note_role(MxTrainState *s, int var, VarRole role) {
    if (var >= s->role_cap) {
        int cap = s->vars.cap;
        s->role = mx_arena_grow(s->arena, s->role, (size_t)s->role_cap, (size_t)cap, sizeof role);
        s->role_cap = cap;
    }
    s->role[var] = role;
}

int program_add_var(MxTrainState *s, const char *prefix, const char *name, MxType type) {
    int var = mx_vars_add(&s->vars, mx_arena_printf(s->arena, "%s/%s", prefix, name), type);
    note_role(s, var, (VarRole){.like = MX_NONE});
    return var;
}

void program_note_micro(MxTrainState *s, int var) {
    s->role[var].is_of_micro = true;
}

void program_note_sum(MxTrainState *s, int var) {
    s->role[var].is_sum = true;
}

static const char *const outs[OUT_COUNT] = {
    [OUT_GRAD_SQUARES] = "grad_squares",
    [OUT_PARAM_SQUARES] = "param_squares",
    [OUT_FROZEN_SQUARES] = "frozen_squares",
    [OUT_IS_LEFT_OUT] = "is_left_out",
};

int *program_declare_each(MxTrainState *s, const char *prefix, MxDtype dtype, bool only_trained) {
    const MxTree *params = mx_model_params(s->model);
    int *vars = mx_new_n(s->arena, int, params->n);
    for (int i = 0; i < params->n; i++) {
        const MxLeaf *leaf = &params->leaves[i];
        vars[i] = only_trained && !program_is_trained(s, leaf)
                      ? MX_NONE
                      : program_add_var(s, prefix, leaf->path, (MxType){dtype, leaf->shape});
    }
    return vars;
}

/* Of all of the model's parameters (weight_dtype). */
static MxDtype dtype_of_weights(const MxTrainState *s) {
    return mx_model_params(s->model)->leaves[0].dtype;
}

int program_declare_like(MxTrainState *s, const char *prefix, int param, MxDtype dtype) {
    const MxLeaf *leaf = &mx_model_params(s->model)->leaves[param];
    int var = program_add_var(s, prefix, leaf->path, (MxType){dtype, leaf->shape});
    note_role(s, var, (VarRole){.like = s->var.param[param]});
    return var;
}

int *program_declare_beside(MxTrainState *s, const char *prefix, MxDtype dtype) {
    int *vars = program_declare_each(s, prefix, dtype, true);
    for (int i = 0; i < mx_model_params(s->model)->n; i++)
        if (vars[i] != MX_NONE) note_role(s, vars[i], (VarRole){.like = s->var.param[i]});
    return vars;
}

int *program_declare_copy(MxTrainState *s, const char *prefix) {
    int *vars = program_declare_each(s, prefix, dtype_of_weights(s), false);
    for (int i = 0; i < mx_model_params(s->model)->n; i++)
        note_role(s, vars[i], (VarRole){.like = s->var.param[i], .is_constant = true});
    return vars;
}

int *program_declare_tree(MxTrainState *s, const char *prefix, const MxTree *tree) {
    int *vars = mx_new_n(s->arena, int, tree->n);
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        vars[i] = program_add_var(s, prefix, leaf->path, (MxType){leaf->dtype, leaf->shape});
        note_role(s, vars[i], (VarRole){.like = MX_NONE, .leaf = leaf, .is_constant = true});
    }
    return vars;
}

int program_declare_input(MxTrainState *s, const char *name, MxDtype dtype) {
    MX_ASSERT(s->n_inputs < MOST_INPUTS);
    s->input[s->n_inputs] = (Input){.name = name, .dtype = dtype};
    return s->n_inputs++;
}

int program_declare_wide_input(MxTrainState *s, const char *name, MxDtype dtype, MxShape row) {
    int input = program_declare_input(s, name, dtype);
    s->input[input].row = row;
    return input;
}

static void declare_inputs(MxTrainState *s) {
    static const char *const prefix[] = {"batch", "eval_batch"};
    const MxConfig *c = s->config;
    int64_t examples[] = {c->micro_batch_size_to_train_on, c->micro_batch_size_to_eval_on};
    for (int i = 0; i < s->n_inputs; i++)
        for (int is_eval = 0; is_eval < 2; is_eval++) {
            MxShape row = s->input[i].row, shape = MX_SHAPE(mx_train_rows(c) * examples[is_eval]);
            if (!row.rank) row = MX_SHAPE(c->max_target_length);
            for (int d = 0; d < row.rank; d++) shape.dim[shape.rank++] = row.dim[d];
            s->var.batch[is_eval][i] = program_add_var(s, prefix[is_eval], s->input[i].name,
                                                       (MxType){s->input[i].dtype, shape});
            if (!is_eval) program_note_micro(s, s->var.batch[is_eval][i]);
        }
}

static void declare_loss(MxTrainState *s) {
    ProgramVars *v = &s->var;
    const Loss *loss = s->loss;
    const MxType scalar = {MX_F32, MX_SCALAR};
    v->loss = program_add_var(s, "out", "loss", scalar);
    program_note_sum(s, v->loss);
    for (int i = 0; s->outputs[i].name; i++) {
        const LossOutput *output = &s->outputs[i];
        MxType vector = {MX_F32, MX_SHAPE(output->count)};
        v->sum[i] = program_add_var(s, "out", output->name, output->count == 1 ? scalar : vector);
        if (!(loss->of_batch >> i & 1)) program_note_sum(s, v->sum[i]);
    }
    for (int i = 0; i < loss_weights(loss); i++) {
        v->weight[i] = program_add_var(s, "out", loss->weights[i], scalar);
        v->total_weight[i] = program_add_var(s, "total", loss->weights[i], scalar);
    }
}

/* A kind at a time, so that parameters, gradients and moments each lie in one piece. */
bool program_declare_vars(MxTrainState *s, MxError *err) {
    ProgramVars *v = &s->var;
    s->vars.arena = s->arena;
    program_declare_params(s);
    v->gradient = program_declare_each(s, "gradient", MX_F32, true);
    program_declare_kept(s);
    for (int f = 0; f < MX_BATCH_FIELDS; f++)
        program_declare_input(s, mx_batch_field_name((MxBatchField)f), MX_I32);
    for (int i = 0; i < PART_COUNT; i++)
        if (s->part[i] && program_parts[i]->declare && !program_parts[i]->declare(s, err))
            return false;
    declare_inputs(s);
    declare_loss(s);
    for (int i = 0; i < OUT_COUNT; i++)
        v->out[i] = program_add_var(s, "out", outs[i], (MxType){MX_F32, MX_SCALAR});
    return true;
}

/* ---- entries */

MxValue *program_read_tree(MxTrainState *s, MxTrace *t, const MxTree *tree, const int *vars) {
    MxValue *values = mx_new_n(s->arena, MxValue, tree->n);
    for (int i = 0; i < tree->n; i++) values[i] = mx_variable(t, vars[i]);
    return values;
}

MxValue *program_read_vars(MxTrainState *s, MxTrace *t, const int *vars) {
    return program_read_tree(s, t, mx_model_params(s->model), vars);
}

static MxInitAttr init_of(const MxTrainState *s, const MxLeaf *leaf) {
    static const MxFill fills[] = {[MX_INIT_ZEROS] = MX_FILL_CONSTANT,
                                   [MX_INIT_ONES] = MX_FILL_CONSTANT,
                                   [MX_INIT_CONSTANT] = MX_FILL_CONSTANT,
                                   [MX_INIT_NORMAL] = MX_FILL_NORMAL,
                                   [MX_INIT_TRUNCATED_NORMAL] = MX_FILL_TRUNCATED_NORMAL,
                                   [MX_INIT_UNIFORM] = MX_FILL_UNIFORM,
                                   [MX_INIT_LOG_UNIFORM] = MX_FILL_LOG_UNIFORM,
                                   [MX_INIT_CYCLE] = MX_FILL_CYCLE};
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
        MxValue value = mx_cast(t, draw(s, t, &params->leaves[i]), params->leaves[i].dtype);
        program_assign_param(s, t, i, value);
        program_first(s, t, i, value);
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
    weigh(s, t, s->var.batch[false], weights);
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
    MxValue *params = program_read_points(s, t);
    MxValue total[LOSS_MOST_WEIGHTS];
    for (int i = 0; i < loss_weights(s->loss); i++)
        total[i] = mx_variable(t, s->var.total_weight[i]);
    MxValue loss = s->loss->trace(s, t, params, s->var.batch[false], total);
    mx_trace_assign(t, loss, s->var.loss, false);
    for (int i = 0; i < PART_COUNT; i++)
        if (s->part[i] && program_parts[i]->observe) program_parts[i]->observe(s, t, add);
    find_outputs(s, t, false);
    MxGradTarget *targets = mx_new_n(s->arena, MxGradTarget, s->trained->n);
    int n = 0;
    for (int i = 0; i < tree->n; i++)
        if (s->var.gradient[i] != MX_NONE)
            targets[n++] = (MxGradTarget){.wrt = params[i],
                                          .var = s->var.gradient[i],
                                          .add = add || program_keeps_lost(s, i)};
    mx_grad(t, loss, targets, n);
}

/* In a pipeline all micro-batches add: which comes first is seen when they are put in order. */
static void trace_grad(MxTrainState *s, MxTrace *t) {
    trace_gradient(s, t, program_is_piped(s));
}

static void trace_grad_add(MxTrainState *s, MxTrace *t) {
    trace_gradient(s, t, true);
}

static void trace_eval(MxTrainState *s, MxTrace *t) {
    MxValue weights[LOSS_MOST_WEIGHTS], *params = program_read_held(s, t);
    weigh(s, t, s->var.batch[true], weights);
    MxValue loss =
        (s->loss->eval ? s->loss->eval : s->loss->trace)(s, t, params, s->var.batch[true], weights);
    mx_trace_assign(t, loss, s->var.loss, false);
    find_outputs(s, t, true);
}

/* Frozen parameters, and variables that say so. */
static bool *find_constants(MxTrainState *s) {
    bool *is_constant = mx_new_n(s->arena, bool, s->vars.n);
    for (int var = 0; var < s->vars.n; var++) is_constant[var] = s->role[var].is_constant;
    for (int i = 0; i < mx_model_params(s->model)->n; i++)
        is_constant[s->var.param[i]] = s->var.gradient[i] == MX_NONE;
    return is_constant;
}

static void trace_frozen_norm(MxTrainState *s, MxTrace *t) {
    int n = mx_model_params(s->model)->n, n_frozen = 0;
    MxValue *frozen = mx_new_n(s->arena, MxValue, n), sum = MX_NONE;
    t->scope = "frozen";
    if (s->purpose != PURPOSE_TRAINS) return;
    const MxTree *params = mx_model_params(s->model);
    for (int i = 0; i < n; i++)
        if (s->var.gradient[i] == MX_NONE && s->var.scales[i] == MX_NONE &&
            !params->leaves[i].is_unoptimized)
            frozen[n_frozen++] = mx_variable(t, s->var.param[i]);
    if (n_frozen) sum = mx_sum_squares(t, frozen, n_frozen);
    for (int i = 0; i < n; i++) { /* one by one: as floats they would fill the memory */
        if (s->var.scales[i] == MX_NONE) continue;
        MxValue weight = program_read_param(s, t, i), squares = mx_sum_squares(t, &weight, 1);
        sum = sum == MX_NONE ? squares : mx_add(t, sum, squares);
    }
    if (sum != MX_NONE) mx_trace_assign(t, sum, s->var.out[OUT_FROZEN_SQUARES], false);
}

/* Takes casts of frozen weights out of all other entries. */
static void trace_frozen(MxTrainState *s, MxTrace *t) {
    int first = s->var.first_cast = s->vars.n;
    const int *from = mx_hoist_casts(&s->vars, find_constants(s), s->entries, s->n_entries, t);
    for (int var = first; var < s->vars.n; var++) program_divide_like(s, var, from[var - first]);
    trace_frozen_norm(s, t);
}

void program_trace_copy(MxTrainState *s, MxTrace *t, const int *from, const int *to) {
    const MxTree *params = mx_model_params(s->model);
    for (int i = 0; i < params->n; i++) {
        t->scope = params->leaves[i].path;
        mx_trace_assign(t, mx_copy(t, mx_variable(t, from[i])), to[i], false);
    }
}

bool program_is_training(const MxTrainState *s) {
    return s->purpose == PURPOSE_TRAINS;
}

static bool accumulates(const MxTrainState *s) {
    return program_is_training(s) && s->config->accumulations > 1;
}

static bool measures(const MxTrainState *s) {
    return s->purpose != PURPOSE_GENERATES;
}

const Entry entry_init = {.name = "init", .trace = trace_init};
const Entry entry_weigh = {.name = "weigh", .trace = trace_weigh, .is_wanted = program_is_training};
const Entry entry_grad = {.name = "grad", .trace = trace_grad, .is_wanted = program_is_training};
const Entry entry_grad_add = {
    .name = "grad_add", .trace = trace_grad_add, .is_wanted = accumulates};
const Entry entry_eval = {.name = "eval", .trace = trace_eval, .is_wanted = measures};
const Entry program_entry_frozen = {.name = "frozen", .trace = trace_frozen};

static bool trace_graph(MxTrainState *s, const Entry *entry, const char *name, int number,
                        MxError *err) {
    MxTrace t;
    MxGraph *graph = mx_graph_new(s->arena, name, &s->vars);
    graph->watch = s->watch;
    mx_trace_begin(&t, graph);
    entry->count ? entry->trace_one(s, &t, number) : entry->trace(s, &t);
    size_t n = (size_t)s->n_entries++;
    s->entry = mx_arena_grow(s->arena, s->entry, n, n + 1, sizeof *s->entry);
    s->entries = mx_arena_grow(s->arena, s->entries, n, n + 1, sizeof *s->entries);
    s->entry[n] = entry;
    s->entries[n] = graph;
    if (!mx_trace_end(&t, err)) return false;
    mx_graph_seen(graph, "trace");
    return true;
}

/* Those of a kind lie one behind the other. */
static bool trace_entry(MxTrainState *s, const Entry *entry, MxError *err) {
    if (entry->is_wanted && !entry->is_wanted(s)) return true;
    int n = entry->count ? entry->count(s) : 1;
    bool ok = true;
    for (int i = 0; ok && i < n; i++) {
        const char *name = n > 1 ? mx_arena_printf(s->arena, "%s_%d", entry->name, i) : entry->name;
        ok = trace_graph(s, entry, name, i, err);
    }
    return ok;
}

bool program_trace(MxTrainState *s, MxError *err) {
#define ROW(name, width, all_rows, all_logits) &entry_##name,
    static const Entry *const own[] = {&entry_init,   &entry_weigh, &entry_grad,
                                       &entry_update, &entry_eval,  &entry_grad_add,
                                       &entry_see,    &entry_hear,  PIECES(ROW) NULL};
#undef ROW
    bool ok = true;
    for (const Entry *const *entry = own; ok && *entry; entry++) ok = trace_entry(s, *entry, err);
    for (int i = 0; i < PART_COUNT; i++) {
        const Entry *const *entry = s->part[i] ? program_parts[i]->entries : NULL;
        for (; ok && entry && *entry; entry++) ok = trace_entry(s, *entry, err);
    }
    return ok && trace_entry(s, &program_entry_frozen, err);
}
