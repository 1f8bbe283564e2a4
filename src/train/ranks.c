/* ranks.c — a program among ranks: which part of every variable a rank has, its entries, and arrays
 * gathered from all ranks or cut for one. Moments are cut as their parameter is, or along "data"
 * too; gradients as the moments; batches by rows and tokens; scalars are everywhere. On one rank
 * all of this is the program as it was traced. */
#include <mx/train.h>

#include "internal.h"

/* ---- variables */

/* A leaf with its resolved spec, which has been checked. */
static bool array_of_leaf(MxTrainState *s, const MxLeaf *leaf, MxShardArray *out, MxError *err) {
    MxVariable variable = {.names = mx_spec_names(s->arena, leaf->axes, leaf->shape.rank)};
    MxResolved how;
    if (!mx_shard_resolve_variable(s->arena, &variable, &s->mesh.rules, &s->mesh.mesh, &how, err))
        return mx_context(err, "%s", leaf->path);
    *out = (MxShardArray){
        .path = leaf->path, .dtype = leaf->dtype, .shape = leaf->shape, .spec = how.spec};
    MxShape shape;
    return mx_shard_check(&s->mesh.mesh, how.spec, leaf->path, err) &&
           mx_shard_shape(&s->mesh.mesh, out, &shape, err);
}

/* ZeRO-1: "data" cuts a dim that nothing else cuts, so that a rank's part of the moments lies in
 * its part of the parameter. Where there is no such dim, it goes where MaxText has it. */
static bool shard_over_data(MxTrainState *s, const MxShardArray *array, MxSharding *out,
                            MxError *err) {
    const MxMesh *mesh = &s->mesh.mesh;
    MxSpec spec;
    int64_t n = mx_mesh_size(mesh, "data");
    *out = mx_sharding_of_spec(mesh, array->spec);
    if (n == 1 || mx_spec_uses(array->spec, "data")) return true;
    for (int d = 0; d < array->shape.rank; d++) {
        if (out->dim[d] || array->shape.dim[d] % n) continue;
        out->dim[d] = 1u << mx_mesh_find(mesh, "data");
        return true;
    }
    if (!mx_shard_add_data(s->arena, mesh, array, &spec, err)) return false;
    *out = mx_sharding_of_spec(mesh, spec);
    return true;
}

/* Micro-batches add to a sum that each rank has by itself, to be exchanged once for all of them,
 * along the mesh axes that cut the batch but not the parameter: a sum along an axis that cuts it
 * would be a whole array on every rank. */
static MxSharding shard_of_gradient(const MxTrainState *s, MxSharding param, MxSharding moment) {
    const MxSharding *batch = &s->sharding[s->var.train_batch[0]];
    uint32_t used = 0, late = batch->dim[0] | batch->dim[1];
    if (s->config->gradient_accumulation_steps == 1) return moment;
    for (int d = 0; d < MX_MAX_RANK; d++) used |= param.dim[d];
    param.partial = late & ~used;
    return param.partial ? param : moment;
}

static bool shard_parameters(MxTrainState *s, MxError *err) {
    const MxTree *params = mx_model_params(s->model);
    const ProgramVars *v = &s->var;
    bool ok = true;
    for (int i = 0; i < params->n; i++) {
        MxShardArray array;
        if (!array_of_leaf(s, &params->leaves[i], &array, err)) {
            ok = false;
            continue;
        }
        MxSharding param = mx_sharding_of_spec(&s->mesh.mesh, array.spec), moment = param;
        s->sharding[v->param[i]] = param;
        if (v->reference) s->sharding[v->reference[i]] = param;
        if (v->gradient[i] == MX_NONE) continue;
        if (s->config->shard_optimizer_over_data && !shard_over_data(s, &array, &moment, err))
            return false;
        s->sharding[v->gradient[i]] = shard_of_gradient(s, param, moment);
        for (int m = 0; m < s->optimizer->n_moments; m++) s->sharding[v->moment[m][i]] = moment;
    }
    return ok;
}

/* A batch and what a reference made of it ahead. */
static bool shard_batch(MxTrainState *s, bool is_eval, MxError *err) {
    const int *vars = is_eval ? s->var.eval_batch : s->var.train_batch;
    int logp = is_eval ? s->var.eval_logp : s->var.train_logp;
    MxSharding sharding;
    if (!train_shard_batch(s->arena, &s->mesh, is_eval, &sharding, err)) return false;
    for (int f = 0; f < MX_BATCH_FIELDS; f++) s->sharding[vars[f]] = sharding;
    if (logp != MX_NONE) s->sharding[logp] = sharding;
    return true;
}

static void cut_variables(MxTrainState *s) {
    s->local = (MxVars){.arena = s->arena};
    for (int i = 0; i < s->vars.n; i++) {
        MxVar var = s->vars.item[i];
        MxLayout layout = {&s->mesh.mesh, mx_sharding_spec(s->arena, &s->mesh.mesh, s->sharding[i],
                                                           var.type.shape.rank)};
        s->box[i] = mx_shard_box(layout, var.type.shape, s->rank);
        for (int d = 0; d < var.type.shape.rank; d++) var.type.shape.dim[d] = s->box[i].count[d];
        mx_vars_add(&s->local, var.name, var.type);
    }
}

bool train_check_ranks(const MxTrainMesh *mesh, const MxComm *comm, MxError *err) {
    int64_t n = comm ? mx_comm_size(comm) : 1, wanted = mesh->mesh.n_ranks;
    if (n == 1 && mesh->config->num_slices > 1)
        return mx_config_fail(err, mesh->config, MX_KEY_num_slices, "%lld slices of 1 rank",
                              (long long)mesh->config->num_slices);
    if (n == wanted) return true;
    MxArena arena = {.name = "message"};
    mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
            "the mesh has %lld device%s (%s), but this run has %lld rank%s: start it with mpirun "
            "-n %lld, or change the sizes of the mesh",
            (long long)wanted, wanted == 1 ? "" : "s", mx_mesh_text(&arena, &mesh->mesh),
            (long long)n, n == 1 ? "" : "s", (long long)wanted);
    mx_arena_release(&arena);
    return false;
}

/* Axes that mean more than dividing arrays. */
static bool check_axes(const MxTrainState *s, MxError *err) {
    static const struct {
        const char *axis;
        MxKey key;
    } refused[] = {{"stage", MX_KEY_ici_pipeline_parallelism},
                   {"diloco", MX_KEY_ici_diloco_parallelism}};
    for (int i = 0; i < MX_COUNT(refused); i++)
        if (mx_mesh_size(&s->mesh.mesh, refused[i].axis) > 1)
            return mx_config_fail(
                err, s->config, refused[i].key, "cannot be run yet: mesh axis \"%s\" has size %lld",
                refused[i].axis, (long long)mx_mesh_size(&s->mesh.mesh, refused[i].axis));
    return true;
}

/* ---- entries */

bool train_divide(MxTrainState *s, MxError *err) {
    MxPartition partition = {.mesh = &s->mesh.mesh,
                             .rules = &s->mesh.rules,
                             .rank = s->rank,
                             .vars = &s->local,
                             .var = s->sharding,
                             .regathers = !strcmp(s->config->remat_policy, "none")};
    for (int i = 0; s->is_divided && i < s->n_entries; i++)
        if (!mx_partition(&partition, s->entries[i], &s->entries[i], err)) return false;
    return true;
}

bool train_shard(MxTrainState *s, bool divides, MxError *err) {
    s->sharding = mx_new_n(s->arena, MxSharding, s->vars.n);
    s->box = mx_new_n(s->arena, MxBox, s->vars.n);
    s->is_divided = divides && s->mesh.mesh.n_ranks > 1;
    if (s->config->shard_optimizer_over_data && !s->optimizer->n_moments)
        return mx_config_fail(err, s->config, MX_KEY_shard_optimizer_over_data,
                              "optimizer \"%s\" keeps no moments", s->optimizer->name);
    if (s->is_divided && (!check_axes(s, err) || !shard_batch(s, false, err) ||
                          !shard_batch(s, true, err) || !shard_parameters(s, err)))
        return false;
    cut_variables(s);
    return true;
}

/* ---- whole arrays */

bool train_speaks_for(const MxTrainState *s, int var, int64_t rank) {
    uint32_t used = 0;
    for (int d = 0; d < MX_MAX_RANK; d++) used |= s->sharding[var].dim[d];
    for (int a = 0; a < s->mesh.mesh.n; a++)
        if (!(used >> a & 1) && mx_mesh_coord(&s->mesh.mesh, rank, a)) return false;
    return true;
}

void train_add_parts(MxTrainState *s, int var, float *x, int64_t n) {
    MxArena arena = {.name = "parts"};
    int64_t ranks = s->mesh.mesh.n_ranks, *counts = mx_new_n(&arena, int64_t, ranks);
    float *part = s->rank ? NULL : mx_new_n(&arena, float, n);
    for (int64_t r = 1; r < ranks; r++) {
        if (!train_speaks_for(s, var, r)) continue;
        counts[r] = n * (int64_t)sizeof *x;
        mx_comm_gather(s->comm, x, part, counts);
        counts[r] = 0;
        for (int64_t i = 0; s->rank == 0 && i < n; i++) x[i] += part[i];
    }
    mx_arena_release(&arena);
}

static size_t bytes_of(const MxLeaf *leaf) {
    return (size_t)mx_shape_count(leaf->shape) * mx_dtype_bytes(leaf->dtype);
}

/* The variable that a leaf shows, or MX_NONE: counters are no variables. */
static int var_of(const MxTrainState *s, const MxLeaf *leaf) {
    for (int v = 0; v < s->vars.n; v++)
        if (mx_run_var(s->run, v) == leaf->data) return v;
    return MX_NONE;
}

/* Copies between a box of a whole array and the box by itself. */
static void copy_box(const MxBox *box, const MxLeaf *leaf, char *whole, char *part, bool to_part) {
    size_t each = mx_dtype_bytes(leaf->dtype), row = each;
    int last = box->rank - 1;
    int64_t n_rows = 1;
    if (last >= 0) row *= (size_t)box->count[last];
    for (int d = 0; d < last; d++) n_rows *= box->count[d];
    for (int64_t r = 0; r < n_rows; r++) {
        int64_t rest = r, at = last >= 0 ? box->start[last] : 0;
        int64_t stride = last >= 0 ? leaf->shape.dim[last] : 1;
        for (int d = last - 1; d >= 0; d--) {
            at += (box->start[d] + rest % box->count[d]) * stride;
            stride *= leaf->shape.dim[d];
            rest /= box->count[d];
        }
        char *in_whole = whole + (size_t)at * each, *in_part = part + (size_t)r * row;
        memcpy(to_part ? in_part : in_whole, to_part ? in_whole : in_part, row);
    }
}

static bool is_alone(const MxTrainState *s) {
    return s->mesh.mesh.n_ranks == 1;
}

static MxTree *tree_with_data(MxTrainState *s, MxArena *arena, bool has_data) {
    MxTree *tree = mx_new(arena, MxTree);
    mx_tree_init(tree, arena);
    for (int i = 0; i < s->tree.n; i++) {
        MxLeaf leaf = s->tree.leaves[i];
        size_t bytes = bytes_of(&leaf);
        leaf.data = has_data ? mx_arena_alloc(arena, bytes ? bytes : 1) : NULL;
        mx_tree_add(tree, leaf);
    }
    return tree;
}

static void gather_leaf(MxTrainState *s, int var, const MxLeaf *own, MxLeaf *whole) {
    MxArena arena = {.name = "gather"};
    const MxMesh *mesh = &s->mesh.mesh;
    MxLayout layout = {mesh, mx_sharding_spec(&arena, mesh, s->sharding[var], own->shape.rank)};
    int64_t *counts = mx_new_n(&arena, int64_t, mesh->n_ranks), total = 0;
    int64_t part = mx_box_count(&s->box[var]) * (int64_t)mx_dtype_bytes(own->dtype);
    for (int64_t r = 0; r < mesh->n_ranks; r++) {
        counts[r] = train_speaks_for(s, var, r) ? part : 0;
        total += counts[r];
    }
    char *parts = s->rank ? NULL : mx_arena_alloc(&arena, (size_t)total + 1);
    mx_comm_gather(s->comm, own->data, parts, counts);
    for (int64_t r = 0; s->rank == 0 && r < mesh->n_ranks; parts += counts[r++])
        if (counts[r]) {
            MxBox box = mx_shard_box(layout, own->shape, r);
            copy_box(&box, own, whole->data, parts, false);
        }
    mx_arena_release(&arena);
}

MxTree *mx_train_state_on_first(MxTrainState *s, MxArena *arena) {
    return is_alone(s) ? &s->tree : tree_with_data(s, arena, s->rank == 0);
}

void mx_train_state_gather(MxTrainState *s, MxTree *whole) {
    for (int i = 0; i < whole->n && whole != &s->tree; i++) {
        const MxLeaf *own = &s->tree.leaves[i];
        int var = var_of(s, own);
        if (var != MX_NONE)
            gather_leaf(s, var, own, &whole->leaves[i]);
        else if (s->rank == 0)
            memcpy(whole->leaves[i].data, own->data, bytes_of(own));
    }
}

MxTree *mx_train_state_whole(MxTrainState *s, MxArena *arena) {
    if (is_alone(s)) return &s->tree;
    MxTree *tree = tree_with_data(s, arena, true);
    mx_train_state_gather(s, tree);
    for (int i = 0; i < tree->n; i++)
        mx_comm_broadcast(s->comm, tree->leaves[i].data, bytes_of(&tree->leaves[i]));
    return tree;
}

void mx_train_state_take(MxTrainState *s, const MxTree *whole) {
    for (int i = 0; i < s->tree.n && whole != &s->tree; i++) {
        const MxLeaf *own = &s->tree.leaves[i];
        int var = var_of(s, own);
        if (var == MX_NONE)
            memcpy(own->data, whole->leaves[i].data, bytes_of(own));
        else
            copy_box(&s->box[var], own, whole->leaves[i].data, own->data, true);
    }
}
