/* shard.c — a program among ranks: which part of every variable a rank has, its entries, and arrays
 * gathered from all ranks. Moments are sharded like their parameter, or along "data" too; gradients
 * like the moments; batches by rows and tokens; scalars are replicated. On one rank this is the
 * program as it was traced. */
#include <mx/program.h>

#include "internal.h"

/* ---- variables */

/* A leaf with its resolved spec, which has been checked, or made to fit where no run is meant. */
static bool array_of_leaf(MxTrainState *s, const MxLeaf *leaf, MxShardArray *out, MxError *err) {
    MxVariable variable = {.names = mx_spec_names(s->arena, leaf->axes, leaf->shape.rank)};
    MxResolved how;
    if (!mx_shard_resolve_variable(s->arena, &variable, &s->mesh.rules, &s->mesh.mesh, &how, err))
        return mx_context(err, "%s", leaf->path);
    *out = (MxShardArray){
        .path = leaf->path, .dtype = leaf->dtype, .shape = leaf->shape, .spec = how.spec};
    MxShape shape;
    if (s->refusal) {
        MxError ignored = {0};
        bool is_usable = mx_shard_check(&s->mesh.mesh, how.spec, leaf->path, &ignored);
        mx_error_release(&ignored);
        if (!is_usable) out->spec = (MxSpec){0};
        if (s->uneven) out->spec = mx_shard_adjust(s->arena, &s->mesh.mesh, out);
        return true;
    }
    return mx_shard_check(&s->mesh.mesh, how.spec, leaf->path, err) &&
           mx_shard_shape(&s->mesh.mesh, out, &shape, err);
}

/* ZeRO-1, from how the parameter is cut: "data" cuts a dim that nothing else cuts, so that a rank's
 * part of the moments lies in its part of the parameter. Where there is no such dim, it goes where
 * MaxText has it. */
static bool shard_over_data(MxTrainState *s, const MxShardArray *array, MxSharding *out,
                            MxError *err) {
    const MxMesh *mesh = &s->mesh.mesh;
    MxSpec spec;
    int64_t n = mx_mesh_size(mesh, "data");
    if (n == 1 || mx_spec_uses(array->spec, "data")) return true;
    for (int d = 0; d < array->shape.rank; d++) {
        if (out->dim[d] || array->shape.dim[d] % n) continue;
        out->dim[d] = 1u << mx_mesh_find(mesh, "data");
        return true;
    }
    if (s->refusal) return true; /* sizes need not divide */
    if (!mx_shard_add_data(s->arena, mesh, array, &spec, err)) return false;
    memcpy(out->dim, mx_sharding_of_spec(mesh, spec).dim, sizeof out->dim);
    return true;
}

/* An array that is kept for a parameter, and its scales, as the parameter's own moments are cut.
 * Errors: ranks would have parts of blocks; what is only planned leaves such an array whole. */
static bool shard_kept(MxTrainState *s, int array, MxSharding moment, MxError *err) {
    if (array == MX_NONE) return true;
    const MxOptimArray *kept = &s->optim->arrays[array];
    const MxLeaf *leaf = &kept->leaf;
    MxSharding *sharding = &s->sharding[s->var.kept[array]];
    *sharding = moment;
    for (int d = 0; d < MX_MAX_RANK; d++)
        sharding->dim[d] = d < leaf->shape.rank ? moment.dim[kept->dim[d]] : 0;
    if (!leaf->shape.rank) sharding->home = 0; /* no box of it is empty */
    if (kept->scales == MX_NONE) return true;
    const MxSpec spec = mx_sharding_spec(s->arena, &s->mesh.mesh, *sharding, leaf->shape.rank);
    MxShardArray scales = {.path = s->optim->arrays[kept->scales].leaf.path,
                           .dtype = MX_F32,
                           .shape = s->optim->arrays[kept->scales].leaf.shape,
                           .spec = spec};
    MxShape part;
    MxError ignored = {0};
    bool fits = mx_shard_shape(&s->mesh.mesh, &scales, &part, s->refusal ? &ignored : err);
    mx_error_release(&ignored);
    if (!fits && !s->refusal) return false;
    if (!fits && s->uneven) *sharding = moment = (MxSharding){0};
    return shard_kept(s, kept->scales, moment, err);
}

static bool shard_parameters(MxTrainState *s, MxError *err) {
    const MxTree *params = mx_model_params(s->model);
    const ProgramVars *v = &s->var;
    bool ok = true;
    for (int i = 0; i < params->n; i++) {
        MxShardArray array;
        if (!array_of_leaf(s, &params->leaves[i], &array, err) ||
            !program_shard_param(s, i, array, err)) {
            ok = false;
            continue;
        }
        s->sharding[v->param[i]].home = program_home(s, &params->leaves[i]);
        if (v->scales[i] != MX_NONE) s->sharding[v->scales[i]].home = s->sharding[v->param[i]].home;
        MxSharding param = s->sharding[v->param[i]], moment = param;
        if (v->gradient[i] == MX_NONE) continue;
        if (s->config->shard_optimizer_over_data && !shard_over_data(s, &array, &moment, err))
            return false;
        s->sharding[v->gradient[i]] = program_shard_gradient(s, param, moment);
        for (int k = 0; k < MX_OPTIM_KEPT; k++)
            ok = shard_kept(s, s->optim->array[i * MX_OPTIM_KEPT + k], moment, err) && ok;
    }
    return ok;
}

/* Those of another model. */
static bool shard_frozen(MxTrainState *s, MxError *err) {
    bool ok = true;
    for (int var = 0; var < s->vars.n; var++) {
        MxShardArray array;
        if (!s->role[var].leaf) continue;
        bool fits = array_of_leaf(s, s->role[var].leaf, &array, err);
        if (fits) s->sharding[var] = mx_sharding_of_spec(&s->mesh.mesh, array.spec);
        ok = ok && fits;
    }
    return ok;
}

static bool shard_batch(MxTrainState *s, bool is_eval, MxError *err) {
    MxSharding sharding, whole = {0};
    MxError ignored = {0}, *told = s->refusal ? &ignored : err;
    bool ok = program_shard_batch(s->arena, &s->mesh, is_eval, &sharding, told);
    mx_error_release(&ignored);
    if (!ok && !s->refusal) return false;
    for (int i = 0; i < s->n_inputs; i++) {
        MxSharding *own = &s->sharding[s->var.batch[is_eval][i]];
        *own = ok ? sharding : whole;
        if (s->input[i].row.rank) own->dim[1] = 0;
    }
    return true;
}

static void shard_alike(MxTrainState *s) {
    for (int var = 0; var < s->vars.n; var++)
        if (s->role[var].like != MX_NONE) s->sharding[var] = s->sharding[s->role[var].like];
}

static void cut_variables(MxTrainState *s) {
    s->local = (MxVars){.arena = s->arena};
    for (int i = 0; i < s->vars.n; i++) {
        MxVar var = s->vars.item[i];
        MxLayout layout = {&s->mesh.mesh, mx_sharding_spec(s->arena, &s->mesh.mesh, s->sharding[i],
                                                           var.type.shape.rank)};
        s->box[i] = mx_shard_box(layout, var.type.shape, s->rank);
        for (int d = 0; d < var.type.shape.rank; d++) var.type.shape.dim[d] = s->box[i].count[d];
        int local = mx_vars_add(&s->local, var.name, var.type);
        s->local.item[local].is_on_disk = var.is_on_disk;
    }
}

void program_divide_like(MxTrainState *s, int var, int like) {
    MxVar new = s->vars.item[var];
    s->sharding[var] = s->sharding[like];
    if (s->uneven) s->uneven[var] = s->uneven[like];
    s->box[var] = s->box[like];
    new.type.shape = s->local.item[like].type.shape;
    int local = mx_vars_add(&s->local, new.name, new.type);
    MX_ASSERT(local == var);
}

bool mx_train_check_ranks(const MxTrainMesh *mesh, const MxComm *comm, MxError *err) {
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

/* Whether a rule cuts arrays along the replicas, which differ there. The axis of their own name is
 * no array's. */
static const MxRule *rule_of_replicas(const MxTrainState *s) {
    for (int i = 0; i < s->mesh.rules.n; i++) {
        const MxRule *rule = &s->mesh.rules.rule[i];
        for (int k = 0; k < rule->n; k++)
            if (rule->axis && rule->mesh_axes[k] && !strcmp(rule->mesh_axes[k], "diloco") &&
                strcmp(rule->axis, "diloco"))
                return rule;
    }
    return NULL;
}

static bool check_replicas(const MxTrainState *s, MxError *err) {
    const MxRule *rule = rule_of_replicas(s);
    if (program_replicas(s) == 1) return true;
    if (!s->config->enable_diloco)
        return mx_config_fail(err, s->config, MX_KEY_ici_diloco_parallelism,
                              "mesh axis \"diloco\" has size %lld, which wants enable_diloco=true",
                              (long long)program_replicas(s));
    if (program_wire(s->config) != MX_F32)
        return mx_config_fail(err, s->config, MX_KEY_gradient_exchange_dtype,
                              "%s is not available yet with enable_diloco",
                              s->config->gradient_exchange_dtype);
    return !rule || mx_fail(err, MX_EXIT_CONFIG, rule->where,
                            "logical_axis_rules: \"%s\" cannot be cut along \"diloco\", whose "
                            "replicas differ",
                            rule->axis);
}

static bool check_axes(const MxTrainState *s, MxError *err) {
    return check_replicas(s, err) && mx_train_check_stages(&s->mesh, err);
}

/* ---- entries */

bool program_divide(MxTrainState *s, MxError *err) {
    const MxMachine *machine = s->device->backend->machine;
    MxPartition partition = {.machine = machine,
                             .mesh = &s->mesh.mesh,
                             .rules = &s->mesh.rules,
                             .rank = s->rank,
                             .vars = &s->local,
                             .var = s->sharding,
                             .regathers = !strcmp(s->config->remat, "none"),
                             .balances = s->config->context_parallel_load_balance,
                             .rings = !strcmp(s->config->context_parallel_strategy, "ring")};
    if (s->mesh.mesh.n_ranks > 1 && partition.rings && !machine->has_rings)
        return mx_config_fail(err, s->config, MX_KEY_context_parallel_strategy,
                              "ring is not available yet on %s", s->device->backend->name);
    for (int i = 0; s->mesh.mesh.n_ranks > 1 && i < s->n_entries; i++) {
        partition.apart = program_apart(s, s->entry[i]);
        if (!mx_partition(&partition, s->entries[i], &s->entries[i], err)) return false;
    }
    return true;
}

static bool shard_all(MxTrainState *s, MxError *err) {
    return shard_batch(s, false, err) && shard_batch(s, true, err) && shard_parameters(s, err) &&
           shard_frozen(s, err);
}

/* The mesh without the axes that no run takes. */
static void leave_axes_out(MxTrainState *s) {
    MxMesh *mesh = &s->mesh.mesh;
    int64_t *sizes = mx_new_n(s->arena, int64_t, mesh->n + 1);
    memcpy(sizes, mesh->sizes, (size_t)mesh->n * sizeof *sizes);
    uint32_t replicas = mx_mesh_replicas(mesh);
    bool has_stages = mx_mesh_stages(mesh), runs_stages = true;
    if (has_stages) {
        MxError why = {0};
        runs_stages = mx_train_check_stages(&s->mesh, &why);
        mx_error_release(&why);
    }
    for (int axis = 0; axis < mesh->n; axis++) {
        bool is_stage = mx_mesh_stages(mesh) >> axis & 1;
        if (!(replicas >> axis & 1) && (!is_stage || runs_stages)) continue;
        mesh->n_ranks /= sizes[axis];
        sizes[axis] = 1;
    }
    mesh->sizes = sizes;
}

/* First as the rules say, whatever divides, to know what a rank would have; then so that the
 * program can be divided. */
static bool shard_nearly(MxTrainState *s, MxError *err) {
    size_t bytes = 2 * (size_t)s->vars.n * sizeof *s->uneven;
    if (!shard_all(s, err)) return false;
    shard_alike(s);
    MxSharding *uneven = mx_arena_alloc(s->arena, bytes);
    memcpy(uneven, s->sharding, bytes);
    s->uneven = uneven;
    return shard_all(s, err);
}

/* What no run takes is described as nearly as it can be where nothing is to be run. */
static bool shard_among_ranks(MxTrainState *s, MxError *err) {
    MxError why = {0}, *told = s->is_planned ? &why : err;
    bool ok = check_axes(s, told) && shard_all(s, told);
    if (!ok && s->is_planned) {
        s->refusal = mx_arena_strdup(s->arena, why.text.data);
        leave_axes_out(s);
        ok = shard_nearly(s, err);
    }
    mx_error_release(&why);
    return ok;
}

bool program_shard(MxTrainState *s, MxError *err) {
    /* with a cast of each, and what each micro-batch of a pipeline has */
    int most = 2 * s->vars.n * (int)(1 + s->config->pipeline_micro_batches);
    s->sharding = mx_new_n(s->arena, MxSharding, most);
    s->box = mx_new_n(s->arena, MxBox, most);
    if (s->config->shard_optimizer_over_data && !mx_optim_has_kept(s->optim) &&
        s->purpose == PURPOSE_TRAINS)
        return mx_config_fail(err, s->config, MX_KEY_shard_optimizer_over_data,
                              "optimizer \"%s\" keeps no moments", s->config->opt_type);
    if (s->mesh.mesh.n_ranks > 1 && !shard_among_ranks(s, err)) return false;
    shard_alike(s);
    cut_variables(s);
    return true;
}

/* ---- which part of an array a rank has */

/* The first rank with the same part: it stands at the start of every mesh axis that cuts nothing.
 */
static int64_t first_alike(const MxMesh *mesh, MxSharding sharding, int64_t rank) {
    uint32_t used = sharding.home ? mx_mesh_stages(mesh) : 0;
    int64_t first = 0;
    for (int d = 0; d < MX_MAX_RANK; d++) used |= sharding.dim[d];
    for (int a = 0; a < mesh->n; a++)
        first = first * mesh->sizes[a] + (used >> a & 1 ? mx_mesh_coord(mesh, rank, a) : 0);
    return first;
}

bool program_speaks_for(const MxTrainState *s, int var, int64_t rank) {
    MxSharding at = s->sharding[var];
    at.dim[0] |= mx_mesh_replicas(&s->mesh.mesh); /* which differ in what no rule cuts */
    return first_alike(&s->mesh.mesh, at, rank) == rank;
}

void program_add_parts(MxTrainState *s, int var, void *x, int64_t n) {
    MxArena arena = {.name = "parts"};
    int64_t ranks = s->mesh.mesh.n_ranks, *counts = mx_new_n(&arena, int64_t, ranks);
    uint32_t *all = x, *part = s->rank ? NULL : mx_new_n(&arena, uint32_t, n);
    for (int64_t r = 1; r < ranks; r++) {
        if (!program_speaks_for(s, var, r)) continue;
        counts[r] = n * (int64_t)sizeof *all;
        mx_comm_gather(s->comm, x, part, counts);
        counts[r] = 0;
        for (int64_t i = 0; s->rank == 0 && i < n; i++) all[i] |= part[i];
    }
    mx_arena_release(&arena);
}

static const MxDivision *new_division(MxTrainState *s, MxSharding sharding, MxShape shape) {
    const MxMesh *mesh = &s->mesh.mesh;
    MxLayout layout = {mesh, mx_sharding_spec(s->arena, mesh, sharding, shape.rank)};
    MxBox *box = mx_new_n(s->arena, MxBox, mesh->n_ranks);
    int *first = mx_new_n(s->arena, int, mesh->n_ranks);
    MxDivision *division = mx_new(s->arena, MxDivision);
    for (int64_t r = 0; r < mesh->n_ranks; r++) {
        box[r] = mx_shard_box(layout, shape, r);
        if (!program_has(s, sharding, r)) box[r].count[0] = 0;
        first[r] = (int)first_alike(mesh, sharding, r);
    }
    *division = (MxDivision){
        .rank = (int)s->rank, .n_ranks = (int)mesh->n_ranks, .box = box, .first = first};
    return division;
}

const MxDivision *program_division(MxTrainState *s, MxSharding sharding, MxShape shape) {
    if (s->mesh.mesh.n_ranks == 1) return NULL;
    for (Division *known = s->divisions; known; known = known->next)
        if (mx_shape_equal(known->shape, shape) && known->sharding.home == sharding.home &&
            !memcmp(known->sharding.dim, sharding.dim, sizeof sharding.dim))
            return known->division;
    Division *made = mx_new(s->arena, Division);
    *made = (Division){sharding, shape, new_division(s, sharding, shape), s->divisions};
    s->divisions = made;
    return made->division;
}

/* ---- whole arrays */

const void *program_gather(MxTrainState *s, MxArena *arena, const MxLeaf *leaf) {
    const MxDivision *division = leaf->division;
    const void *own = mx_leaf_values(arena, leaf);
    if (!division) return own;
    size_t each = mx_dtype_bytes(leaf->dtype);
    int64_t *counts = mx_new_n(arena, int64_t, division->n_ranks), total = 0;
    for (int r = 0; r < division->n_ranks; r++) {
        bool speaks = division->first[r] == r;
        counts[r] = speaks ? mx_box_count(&division->box[r]) * (int64_t)each : 0;
        total += counts[r];
    }
    char *parts = division->rank ? NULL : mx_arena_alloc(arena, (size_t)total + 1);
    mx_comm_gather(s->comm, own, parts, counts);
    if (division->rank) return NULL;
    char *whole = mx_arena_alloc(arena, (size_t)mx_shape_count(leaf->shape) * each + 1);
    MxBox all = mx_box_of(leaf->shape);
    for (int r = 0; r < division->n_ranks; parts += counts[r++])
        if (counts[r]) mx_box_copy(&division->box[r], &division->box[r], parts, &all, whole, each);
    return whole;
}

int64_t mx_train_fingerprint(MxTrainState *s) {
    return mx_train_fingerprint_of(s, &s->tree);
}

int64_t mx_train_fingerprint_of(MxTrainState *s, const MxTree *tree) {
    uint64_t hash = 0;
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        MxArena arena = {.name = "fingerprint"};
        if (leaf->kind != MX_KIND_PARAM && leaf->kind != MX_KIND_FROZEN) continue;
        const void *whole = program_gather(s, &arena, leaf);
        size_t bytes = (size_t)mx_shape_count(leaf->shape) * mx_dtype_bytes(leaf->dtype);
        if (whole) hash = mx_tree_fingerprint(hash, leaf->path, mx_hash64(whole, bytes));
        mx_arena_release(&arena);
    }
    if (s->comm) mx_comm_broadcast(s->comm, &hash, sizeof hash);
    return (int64_t)hash;
}
