/* activations.c — what the program of one rank needs beside its parameters. The program is traced
 * for the rows that a rank gets and lowered as a run would, without memory. On one device its arena
 * is the answer. On more, what is live at each step is added up once as it stands and once with
 * every value divided by the parts that its activation constraint gives its dims after the batch;
 * the largest sum, times what the arena wastes, is the estimate. Values without a constraint count
 * as the constrained or parameter of their shape, else as tokens.
 *
 * Periods of layers are alike, so in deep models the bytes are a straight line in their number: two
 * shallow programs give it (tests/plan proves it equal). */
#include "internal.h"

enum {
    DEEPEST = 48, /* layers that are lowered as they are */
    FEW = 16,     /* layers of the two programs that give the line */
    MORE = 32
};

/* A tuple of logical axes and shape that was met, with the parts it is divided into. */
typedef struct Known {
    MxShape shape;
    const char *const *axes; /* NULL = a parameter */
    int64_t parts;
} Known;

typedef struct Estimate {
    MxArena *arena;
    const MxTrainMesh *mesh;
    const MxTrainProgram *program;
    const MxGraph *graph;
    PlanWarnings *warnings;
    int64_t rows;
    Known *known;
    int n_known, cap_known;
    int64_t *param_parts; /* [variable] parts of a parameter, 0 = another variable */
    int64_t length_parts; /* of a value [batch, length] */
} Estimate;

static MxSpec clean_spec(const Estimate *e, MxSpec names) {
    MxError ignored = {0};
    MxSpec raw;
    if (!mx_shard_resolve(e->arena, &e->mesh->rules, names, NULL, &raw, &ignored))
        raw = (MxSpec){0}; /* a name twice: told as an error of the constraint itself */
    mx_error_release(&ignored);
    return mx_shard_clean(e->arena, &e->mesh->mesh, raw);
}

/* The product of the parts of dims from `first` on. */
static int64_t parts_from(const Estimate *e, MxSpec spec, int first) {
    int64_t parts = 1;
    for (int d = first; d < spec.rank; d++) parts *= mx_shard_parts(&e->mesh->mesh, &spec.dim[d]);
    return parts;
}

static void remember(Estimate *e, Known known) {
    if (e->n_known == e->cap_known) {
        e->cap_known = e->cap_known ? 2 * e->cap_known : 32;
        e->known = mx_arena_grow(e->arena, e->known, (size_t)e->n_known, (size_t)e->cap_known,
                                 sizeof *e->known);
    }
    e->known[e->n_known++] = known;
}

static bool same_axes(const char *const *a, const char *const *b, int rank) {
    for (int d = 0; d < rank; d++)
        if (a[d] != b[d] && (!a[d] || !b[d] || strcmp(a[d], b[d]))) return false;
    return true;
}

static bool is_constrained(const MxValueInfo *info) {
    for (int d = 0; d < info->type.shape.rank; d++)
        if (info->axes[d]) return true;
    return false;
}

static const Known *find_known(const Estimate *e, MxShape shape, const char *const *axes) {
    for (int i = 0; i < e->n_known; i++) {
        const Known *k = &e->known[i];
        if (!mx_shape_equal(k->shape, shape)) continue;
        if (!axes || (k->axes && same_axes(k->axes, axes, shape.rank))) return k;
    }
    return NULL;
}

static bool meet_constraint(Estimate *e, const MxValueInfo *info, MxError *err) {
    MxShape shape = info->type.shape;
    if (find_known(e, shape, info->axes)) return true;
    MxSpec names = mx_spec_names(e->arena, info->axes, shape.rank);
    if (e->warnings) {
        const char *scope = mx_arena_strdup(e->warnings->arena, e->graph->nodes[info->node].scope);
        if (!plan_warn(e->warnings, e->mesh, scope, names, true, err))
            return mx_context(err, "activation of %s", scope);
    }
    remember(e, (Known){.shape = shape,
                        .axes = info->axes,
                        .parts = parts_from(e, clean_spec(e, names), 1)});
    return true;
}

static bool meet_constraints(Estimate *e, MxError *err) {
    for (int v = 0; v < e->graph->n_values; v++) {
        const MxValueInfo *info = &e->graph->values[v];
        if (info->node != MX_NONE && is_constrained(info) && !meet_constraint(e, info, err))
            return false;
    }
    return true;
}

static void meet_parameters(Estimate *e) {
    const MxTree *params = mx_model_params(e->program->model);
    e->param_parts = mx_new_n(e->arena, int64_t, e->program->vars->n);
    for (int i = 0; i < params->n; i++) {
        const MxLeaf *leaf = &params->leaves[i];
        int64_t parts =
            parts_from(e, clean_spec(e, mx_spec_names(e->arena, leaf->axes, leaf->shape.rank)), 0);
        e->param_parts[e->program->param[i]] = parts;
        if (!find_known(e, leaf->shape, NULL))
            remember(e, (Known){.shape = leaf->shape, .parts = parts});
    }
}

static int64_t parts_of(const Estimate *e, MxValue value) {
    const MxValueInfo *info = &e->graph->values[value];
    const MxNode *node = &e->graph->nodes[info->node];
    int64_t stages = node->region ? e->mesh->n_stages : 1;
    if (node->op->flags & MX_OP_CAST) { /* a parameter in the dtype of computation */
        const MxNode *from = mx_graph_producer(e->graph, mx_graph_buffer(e->graph, node->in[0]));
        if (from->op->flags & MX_OP_SOURCE) {
            int64_t parts = e->param_parts[((const MxVariableAttr *)from->attr)->var];
            if (parts) return parts * stages;
        }
    }
    const Known *known = find_known(e, info->type.shape, is_constrained(info) ? info->axes : NULL);
    if (known) return known->parts * stages;
    MxShape shape = info->type.shape;
    bool has_tokens = shape.rank >= 2 && shape.dim[0] == e->rows &&
                      shape.dim[1] == e->mesh->config->max_target_length;
    return (has_tokens ? e->length_parts : 1) * stages;
}

/* ---- what is live */

typedef struct Live {
    double bytes, peak; /* as they stand */
    double divided, divided_peak;
} Live;

static void change(Live *live, double bytes, int64_t parts) {
    live->bytes += bytes;
    live->divided += bytes / (double)parts;
    if (live->bytes > live->peak) live->peak = live->bytes;
    if (live->divided > live->divided_peak) live->divided_peak = live->divided;
}

static double bytes_of(const MxGraph *graph, MxValue value) {
    MxType type = graph->values[value].type;
    return (double)mx_shape_count(type.shape) * (double)mx_dtype_bytes(type.dtype);
}

static bool is_in_arena(const MxGraph *graph, MxValue value) {
    return graph->values[value].var == MX_NONE &&
           !(mx_graph_producer(graph, value)->op->flags & MX_OP_SOURCE);
}

/* [value that owns a buffer] the last step that reads it. */
static int *last_uses(MxArena *arena, const MxLowered *lowered) {
    const MxGraph *graph = lowered->graph;
    int *last = mx_new_n(arena, int, graph->n_values + 1);
    for (int s = 0; s < lowered->n_steps; s++) {
        const MxNode *node = &graph->nodes[lowered->steps[s]];
        for (int i = 0; i < node->n_in; i++) last[mx_graph_buffer(graph, node->in[i])] = s;
        for (int i = 0; i < node->n_out; i++) last[node->out[i]] = s;
    }
    return last;
}

static bool is_first_input(const MxNode *node, int i, const MxGraph *graph) {
    for (int j = 0; j < i; j++)
        if (mx_graph_buffer(graph, node->in[j]) == mx_graph_buffer(graph, node->in[i]))
            return false;
    return true;
}

/* The peak of an entry with every value divided, in bytes. */
static double divided_peak(const Estimate *e, const MxLowered *lowered) {
    const MxGraph *graph = lowered->graph;
    const int *last = last_uses(e->arena, lowered);
    Live live = {0};
    for (int s = 0; s < lowered->n_steps; s++) {
        const MxNode *node = &graph->nodes[lowered->steps[s]];
        MxValue taken_over = MX_NONE; /* an input whose buffer output 0 has now */
        for (int i = 0; i < node->n_in && node->n_out; i++) {
            MxValue in = mx_graph_buffer(graph, node->in[i]);
            bool dies = is_in_arena(graph, in) && last[in] == s;
            if (dies && is_in_arena(graph, node->out[0]) &&
                lowered->value_offset[in] == lowered->value_offset[node->out[0]])
                taken_over = in;
        }
        if (taken_over != MX_NONE)
            change(&live, -bytes_of(graph, taken_over), parts_of(e, taken_over));
        for (int i = 0; i < node->n_out; i++)
            if (is_in_arena(graph, node->out[i]))
                change(&live, bytes_of(graph, node->out[i]), parts_of(e, node->out[i]));
        for (int i = 0; i < node->n_in; i++) {
            MxValue in = mx_graph_buffer(graph, node->in[i]);
            if (is_in_arena(graph, in) && last[in] == s && in != taken_over &&
                is_first_input(node, i, graph))
                change(&live, -bytes_of(graph, in), parts_of(e, in));
        }
        for (int i = 0; i < node->n_out; i++)
            if (is_in_arena(graph, node->out[i]) && last[node->out[i]] == s)
                change(&live, -bytes_of(graph, node->out[i]), parts_of(e, node->out[i]));
    }
    if (live.peak <= 0) return 0;
    return live.divided_peak * ((double)lowered->arena_bytes / live.peak);
}

/* ---- the program */

/* Rows of a rank: the batch divided as its constraint says, rounded up. */
static int64_t rank_rows(MxArena *arena, const MxTrainMesh *mesh, int64_t rows) {
    static const char *const stream[] = {"activation_batch", "activation_norm_length",
                                         "activation_embed"};
    Estimate e = {.arena = arena, .mesh = mesh};
    MxSpec spec = clean_spec(&e, mx_spec_names(arena, stream, MX_COUNT(stream)));
    int64_t parts = spec.rank ? mx_shard_parts(&mesh->mesh, &spec.dim[0]) : 1;
    return (rows - 1) / parts + 1;
}

/* Bytes of the arena of one program; on one device those of the run. */
static bool arena_bytes(MxArena *arena, const MxTrainMesh *mesh, const MxConfig *config,
                        PlanWarnings *warnings, PlanProgram *out, MxError *err) {
    MxTrainProgram program;
    if (!mx_train_program(arena, config, false, &program, err)) return false;
    const MxVars *vars = program.vars;
    *out = (PlanProgram){.device = program.device,
                         .activations = (int64_t)program.layout.bytes.arena,
                         .buffers = (int64_t)program.layout.bytes.vars - program.cast_bytes,
                         .casts = program.cast_bytes,
                         .teacher = program.teacher_bytes,
                         .weight_bytes = mx_dtype_bytes(vars->item[program.param[0]].type.dtype)};
    const MxTree *params = mx_model_params(program.model);
    for (int i = 0; i < params->n; i++) {
        int64_t n = mx_shape_count(params->leaves[i].shape);
        if (program.reference) out->reference_bytes = out->weight_bytes;
        out->buffers -= plan_weight_bytes(out, &params->leaves[i], n);
        out->buffers -= n * (int64_t)out->reference_bytes;
        if (program.gradient[i] == MX_NONE) continue;
        out->gradient_bytes = mx_dtype_bytes(vars->item[program.gradient[i]].type.dtype);
        out->buffers -= n * (int64_t)out->gradient_bytes;
    }
    for (int i = 0; i < program.n_kept; i++) {
        MxType type = vars->item[program.kept[i]].type;
        out->optimizer += mx_shape_count(type.shape) * (int64_t)mx_dtype_bytes(type.dtype);
    }
    out->buffers -= out->optimizer + out->teacher;
    Estimate e = {.arena = arena,
                  .mesh = mesh,
                  .program = &program,
                  .warnings = warnings,
                  .rows = program.rows_per_example * config->micro_batch_size_to_train_on};
    static const char *const tokens[] = {"activation_batch", "activation_length"};
    e.length_parts = parts_from(&e, clean_spec(&e, mx_spec_names(arena, tokens, 2)), 1);
    double largest = 0;
    for (int i = 0; i < program.n_entries; i++) {
        e.graph = program.layout.lowered[i].graph;
        e.n_known = 0;
        if (!meet_constraints(&e, err)) return false;
        meet_parameters(&e);
        double peak = mesh->mesh.n_ranks > 1 ? divided_peak(&e, &program.layout.lowered[i]) : 0;
        if (peak > largest) largest = peak;
    }
    if (mesh->mesh.n_ranks > 1) out->activations = (int64_t)largest;
    return true;
}

/* Bytes of all values stay far inside an int64. */
static bool check_tokens(const MxConfig *c, MxError *err) {
    const double most_bytes = 1e18, values_a_layer = 64; /* more than any family keeps */
    double tokens = (double)c->micro_batch_size_to_train_on * (double)c->max_target_length;
    double bytes =
        tokens * mx_model_width(c) * values_a_layer * (double)c->num_decoder_layers * sizeof(float);
    if (bytes <= most_bytes) return true;
    return mx_config_fail(err, c, MX_KEY_per_device_batch_size,
                          "%.3g tokens on one rank are more than a plan takes", tokens);
}

bool plan_program(MxArena *arena, const MxTrainMesh *mesh, const char *policy,
                  PlanWarnings *warnings, PlanProgram *out, MxError *err) {
    MxConfig config = *mesh->config;
    config.remat = policy;
    config.micro_batch_size_to_train_on =
        rank_rows(arena, mesh, config.micro_batch_size_to_train_on);
    config.micro_batch_size_to_eval_on = rank_rows(arena, mesh, config.micro_batch_size_to_eval_on);
    MxArena *scratch = &(MxArena){.name = "plan of a program"};
    PlanLine line = plan_line(&config, FEW, MORE);
    bool ok = check_tokens(&config, err);
    if (ok && (line.layers <= DEEPEST || line.layers <= line.more)) {
        ok = arena_bytes(scratch, mesh, &config, warnings, out, err);
    } else if (ok) {
        PlanProgram few;
        config.num_decoder_layers = line.few;
        ok = arena_bytes(scratch, mesh, &config, NULL, &few, err);
        config.num_decoder_layers = line.more;
        ok = ok && arena_bytes(scratch, mesh, &config, warnings, out, err);
        if (ok) out->activations = plan_on_line(&line, few.activations, out->activations);
        if (ok) out->casts = plan_on_line(&line, few.casts, out->casts);
        if (ok) out->optimizer = plan_on_line(&line, few.optimizer, out->optimizer);
    }
    if (ok) out->device = mx_arena_strdup(arena, out->device);
    mx_arena_release(scratch);
    return ok;
}
