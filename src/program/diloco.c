/* diloco.c — the part of a program for replicas: ranks along mesh axis "diloco" train independently
 * on their share of every batch, and periodically an outer optimizer updates the outer parameters
 * by the mean of the replicas' changes (outer.c). This file has the replicas' variables, leaves and
 * metrics.
 *
 * The outer parameters are the model in checkpoints, evaluation and generation. Each replica's own
 * parameters and optimizer state are in checkpoints below "inner_state/", with the replicas as dim
 * 0.
 *
 * Source: Douillard et al. 2023, DiLoCo; MaxText trainers/diloco/diloco.py and
 * utils/spmd_diloco_sync.py @e591f30c. */
#include <mx/program.h>

#include "diloco.h"
#include "internal.h"

#include <math.h>

static const char moments[] = "optimizer/opt_state/", inner[] = "inner_state/",
                  inner_model[] = "inner_state/model", trace_of_outer[] = "outer_opt_state/0/trace";

static bool is_wanted(const MxConfig *config) {
    return config->enable_diloco;
}

static int n_params(const MxTrainState *s) {
    return mx_model_params(s->model)->n;
}

int64_t program_replicas(const MxTrainState *s) {
    return mx_mesh_size(&s->mesh.mesh, "diloco");
}

int64_t mx_train_replicas(const MxTrainState *s) {
    return program_replicas(s);
}

/* ---- variables */

static bool declare(MxTrainState *s, MxError *err) {
    (void)err;
    Diloco *own = program_part(s, PART_diloco);
    own->outer = program_declare_beside(s, "outer", mx_model_params(s->model)->leaves[0].dtype);
    own->momentum = program_declare_beside(s, "outer_momentum", MX_F32);
    return true;
}

int program_held(const MxTrainState *s, int param) {
    const Diloco *own = program_part(s, PART_diloco);
    bool is_outer = own && own->outer[param] != MX_NONE;
    return is_outer ? own->outer[param] : s->var.param[param];
}

MxValue *program_read_held(MxTrainState *s, MxTrace *t) {
    MxValue *values = program_read_params(s, t);
    for (int i = 0; i < n_params(s); i++)
        if (program_held(s, i) != s->var.param[i]) values[i] = mx_variable(t, program_held(s, i));
    return values;
}

size_t program_outer_bytes(const MxTrainState *s, size_t (*bytes_of)(const MxTrainState *, int)) {
    const Diloco *own = program_part(s, PART_diloco);
    size_t bytes = 0;
    for (int i = 0; own && i < n_params(s); i++)
        bytes += bytes_of(s, own->outer[i]) + bytes_of(s, own->momentum[i]);
    return bytes;
}

/* ---- entries */

static void first(MxTrainState *s, MxTrace *t, int param, MxValue value) {
    const Diloco *own = program_part(s, PART_diloco);
    if (own->outer[param] != MX_NONE)
        mx_trace_assign(t, mx_copy(t, value), own->outer[param], false);
}

static void trace_spread(MxTrainState *s, MxTrace *t) {
    for (int i = 0; i < n_params(s); i++) {
        if (s->var.gradient[i] == MX_NONE) continue;
        t->scope = mx_model_params(s->model)->leaves[i].path;
        mx_trace_assign(t, mx_copy(t, mx_variable(t, program_held(s, i))), s->var.param[i], false);
    }
}

/* spread: every replica's parameters become the outer ones. */
static const Entry entry_spread = {
    .name = "spread", .trace = trace_spread, .is_wanted = program_is_training};
static const Entry *const entries[] = {&entry_spread, &diloco_entry_outer, &diloco_entry_join,
                                       NULL};

/* ---- while it is run */

void mx_train_rejoin(MxTrainState *s) {
    program_run_entry(s, &entry_spread);
    program_changed(s);
}

/* Before the first step: later, what was read says where each replica is. */
static void begin(MxTrainState *s) {
    if (program_is_training(s) && !*s->step) mx_train_rejoin(s);
}

/* ---- leaves */

/* Of a trained parameter, without data where nothing is trained: a checkpoint has it. */
static MxLeaf leaf_of(MxTrainState *s, const char *prefix, int param, const int *vars,
                      MxDtype dtype) {
    MxLeaf leaf = mx_leaf_abstract(mx_model_params(s->model)->leaves[param]);
    leaf.path = mx_arena_printf(s->arena, "%s/%s", prefix, leaf.path);
    if (leaf.stack.path)
        leaf.stack.path = mx_arena_printf(s->arena, "%s/%s", prefix, leaf.stack.path);
    leaf.kind = MX_KIND_OPTIMIZER;
    leaf.dtype = dtype;
    if (vars[param] != MX_NONE && program_is_training(s)) program_show_var(s, &leaf, vars[param]);
    return leaf;
}

static void show_outer(MxTrainState *s, int param) {
    const char *path = mx_model_params(s->model)->leaves[param].path;
    int at = mx_tree_find(&s->tree, mx_arena_printf(s->arena, "model/%s", path));
    if (program_is_training(s)) program_show_var(s, &s->tree.leaves[at], program_held(s, param));
}

/* Source of the names: MaxText utils/diloco_sharding.py @e591f30c. */
static void name_losses(MxTrainState *s, Diloco *own) {
    enum { MOST_TOLD = 64 };
    int64_t n = program_replicas(s);
    if (n == 1) return;
    own->n_told = n < MOST_TOLD ? (int)n : MOST_TOLD;
    own->metric = s->n_told;
    for (int r = 0; r < own->n_told; r++)
        program_add_metric(s, mx_arena_printf(s->arena, "learning/loss_island_%d", r),
                           METRIC_LARGEST); /* all replicas know all losses */
}

static void show(MxTrainState *s) {
    Diloco *own = program_part(s, PART_diloco);
    const MxTree *params = mx_model_params(s->model);
    name_losses(s, own);
    own->keeper = program_stacked(s);
    for (int i = 0; i < params->n; i++) {
        if (params->leaves[i].kind != mx_model_trains(s->model)) continue;
        show_outer(s, i);
        mx_tree_add(&s->tree, leaf_of(s, trace_of_outer, i, own->momentum, MX_F32));
        mx_tree_add(&s->tree, leaf_of(s, inner_model, i, s->var.param, params->leaves[i].dtype));
    }
}

/* ---- leaves of replicas, as checkpoints have them */

/* Of n replicas the rank's own, or the one that it takes instead. */
static MxBox box_of_replica(MxBox box, int64_t replica, bool is_empty) {
    MxBox out = {.rank = box.rank + 1, .start = {replica}, .count = {!is_empty}};
    for (int d = 0; d < box.rank; d++) {
        out.start[d + 1] = box.start[d];
        out.count[d + 1] = box.count[d];
    }
    return out;
}

/* How many ranks on a rank's neighbour along the replicas is. */
static int64_t stride(const MxMesh *mesh) {
    int64_t n = 1;
    for (int a = mx_mesh_find(mesh, "diloco") + 1; a < mesh->n; a++) n *= mesh->sizes[a];
    return n;
}

static const MxDivision *divide_replicas(MxTrainState *s, MxArena *arena, const MxDivision *from,
                                         int64_t n) {
    const MxMesh *mesh = &s->mesh.mesh;
    MxDivision *division = mx_new(arena, MxDivision);
    MxBox *box = mx_new_n(arena, MxBox, from->n_ranks);
    int *firsts = mx_new_n(arena, int, from->n_ranks);
    for (int r = 0; r < from->n_ranks; r++) {
        int64_t replica = program_replica(mesh, r);
        box[r] = box_of_replica(from->box[r], replica % n, !mx_box_count(&from->box[r]));
        firsts[r] = from->first[r] + (int)(replica * stride(mesh));
    }
    *division =
        (MxDivision){.rank = from->rank, .n_ranks = from->n_ranks, .box = box, .first = firsts};
    return division;
}

static void save(MxTrainState *s, MxArena *arena, int64_t n, MxLeaf *leaf) {
    Diloco *own = program_part(s, PART_diloco);
    bool is_moment = mx_text_has_prefix(leaf->path, moments);
    if (!is_moment && !mx_text_has_prefix(leaf->path, inner)) return;
    MxShape shape = {.rank = leaf->shape.rank + 1, .dim = {n}};
    MX_ASSERT(shape.rank <= MX_MAX_RANK);
    for (int d = 0; d < leaf->shape.rank; d++) shape.dim[d + 1] = leaf->shape.dim[d];
    if (is_moment) leaf->path = mx_arena_printf(arena, "%s%s", inner, leaf->path);
    leaf->shape = shape;
    leaf->stack = (MxStack){0};
    leaf->quant = (MxQuant){0};
    memset(leaf->axes, 0, sizeof leaf->axes);
    if (leaf->keeper) leaf->keeper = &own->keeper;
    if (leaf->division) leaf->division = divide_replicas(s, arena, leaf->division, n);
}

const char *mx_train_replica_leaf(const MxTrainState *s) {
    if (!program_part(s, PART_diloco)) return NULL;
    return mx_arena_printf(s->arena, "%s/%s", inner_model, s->trained->leaves[0].path);
}

/* ---- what all replicas tell */

/* Every rank gets what the first rank of each replica has, n numbers: [replica, n]. */
static double *gather(MxTrainState *s, MxArena *arena, const double *own, int n) {
    const MxMesh *mesh = &s->mesh.mesh;
    int64_t replicas = program_replicas(s), *counts = mx_new_n(arena, int64_t, mesh->n_ranks);
    double *all = mx_new_n(arena, double, replicas *n);
    for (int64_t k = 0; k < replicas; k++) counts[k * stride(mesh)] = n * (int64_t)sizeof *own;
    mx_comm_gather(s->comm, own, s->rank ? NULL : all, counts);
    mx_comm_broadcast(s->comm, all, (size_t)(replicas * n) * sizeof *all);
    return all;
}

static void tell_losses(MxTrainState *s, const MxLoss *losses) {
    const Diloco *own = program_part(s, PART_diloco);
    for (int r = 0; r < own->n_told; r++) program_tell(s, own->metric + r, losses[r].loss);
}

/* Losses count alike in training, which each replica did by itself; examples in evaluation. */
static double mean_loss(const MxLoss *losses, int64_t n, bool is_eval) {
    double sum = 0, weights = 0;
    for (int64_t r = 0; r < n; r++) {
        double weight = is_eval ? losses[r].total_weights : 1;
        sum += weight > 0 ? weight * losses[r].loss : 0;
        weights += weight;
    }
    return weights > 0 ? sum / weights : 0;
}

void program_join_loss(MxTrainState *s, bool is_eval, MxLoss *loss) {
    enum { NUMBERS = sizeof(MxLoss) / sizeof(double) };
    int64_t n = program_replicas(s);
    if (n == 1) return;
    MxArena arena = {.name = "replicas"};
    const double *numbers = gather(s, &arena, (const double *)loss, NUMBERS);
    const MxLoss *losses = (const MxLoss *)numbers;
    double mean[NUMBERS] = {0};
    for (int64_t r = 0; r < n; r++)
        for (int i = 0; i < NUMBERS; i++) mean[i] += numbers[r * NUMBERS + i] / (double)n;
    memcpy(loss, mean, sizeof *loss);
    if (!is_eval) tell_losses(s, losses);
    loss->loss = mean_loss(losses, n, is_eval);
    mx_arena_release(&arena);
}

/* Numbers [replica, n] joined in place of the first replica's. */
static void join(double *all, int64_t n_replicas, int n, int i, MetricJoin how) {
    double joined = how == METRIC_MEAN ? 0 : (double)NAN;
    for (int64_t r = 0; r < n_replicas; r++) {
        double x = all[r * n + i];
        joined = how == METRIC_MEAN ? joined + x / (double)n_replicas : fmax(joined, x);
    }
    all[i] = joined;
}

void program_join_update(MxTrainState *s, MxUpdate *update) {
    int64_t n_replicas = program_replicas(s);
    if (n_replicas == 1) return;
    double left_out = update->was_left_out;
    double *const norms[] = {&update->raw_grad_norm, &update->grad_norm, &update->param_norm};
    enum { NORMS = MX_COUNT(norms) };
    MxArena arena = {.name = "replicas"};
    int n = NORMS + 1 + s->n_told;
    double *own = mx_new_n(&arena, double, n);
    for (int i = 0; i < NORMS; i++) own[i] = *norms[i];
    own[NORMS] = left_out;
    for (int i = 0; i < s->n_told; i++) own[NORMS + 1 + i] = s->told[i].value;
    double *all = gather(s, &arena, own, n);
    for (int i = 0; i < n; i++) {
        MetricJoin how = i < NORMS ? METRIC_MEAN : METRIC_LARGEST;
        if (i > NORMS) how = s->told_join[i - NORMS - 1];
        join(all, n_replicas, n, i, how);
    }
    for (int i = 0; i < NORMS; i++) *norms[i] = all[i];
    update->was_left_out = all[NORMS] != 0;
    for (int i = 0; i < s->n_told; i++) s->told[i].value = all[NORMS + 1 + i];
    mx_arena_release(&arena);
}

const Part part_diloco = {
    .is_wanted = is_wanted,
    .bytes = sizeof(Diloco),
    .declare = declare,
    .entries = entries,
    .show = show,
    .save = save,
    .first = first,
    .begin = begin,
    .stepped = diloco_stepped,
};
