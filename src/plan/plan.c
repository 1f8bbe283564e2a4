/* plan.c — assembles a plan, and applies sharding_strict to its findings. */
#include "internal.h"

static bool is_embedding(const MxLeaf *leaf) {
    return strstr(leaf->path, "token_embedder/") || strstr(leaf->path, "/logits_dense/");
}

/* Of the layers that are trained: the original's pipelines of layers that take turns have others.
 * Active is what a token uses: of experts those that it goes to, of the rest all. */
static PlanCount count(const MxModel *model, const MxConfig *config) {
    const MxTree *tree = mx_model_params(model);
    MxKind trains = mx_model_trains(model);
    PlanCount c = {0};
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        int64_t elements = mx_shape_count(leaf->shape);
        c.total += elements;
        c.active += leaf->is_of_experts
                        ? elements / config->num_experts * config->num_experts_per_tok
                        : elements;
        c.bytes += elements * (int64_t)mx_dtype_bytes(leaf->dtype);
        if (is_embedding(leaf)) c.embedding += elements;
        if (leaf->kind == trains) c.trainable += elements;
    }
    return c;
}

/* Paths in the tolerance message are MaxText's: inside the model. */
static const char *inside_model(const char *path) {
    static const char *const folders[] = {"model/", "params/params/"};
    for (int i = 0; i < MX_COUNT(folders); i++)
        if (mx_text_has_prefix(path, folders[i])) return path + strlen(folders[i]);
    return path;
}

/* MaxText counts parameters alone. */
static void check_tolerance(MxArena *arena, MxPlan *plan) {
    MxShardArray *arrays = mx_new_n(arena, MxShardArray, plan->n_arrays);
    int n = 0;
    for (int i = 0; i < plan->n_arrays; i++) {
        const PlanArray *a = &plan->arrays[i];
        if (a->leaf->is_unoptimized) continue;
        arrays[n++] = (MxShardArray){.path = inside_model(a->path),
                                     .dtype = a->dtype,
                                     .shape = a->shape,
                                     .spec = a->how.spec};
    }
    MxError why = {0};
    MxTolerance tolerance = {.fraction = plan->config->sharding_tolerance,
                             .where = mx_config_where(plan->config, MX_KEY_sharding_tolerance)};
    if (!mx_shard_sufficient(&plan->mesh.mesh, arrays, n, tolerance, &plan->unsharded, &why))
        plan->unsharded_text = mx_arena_strdup(arena, why.text.data);
    mx_error_release(&why);
}

/* Every strict finding of parameters and rules, and every shard without a shape, as errors.
 * Activation constraints only warn: MaxText's own rules pass over some in every tensor-parallel
 * run. */
static bool refuse(const MxPlan *plan, MxError *err) {
    bool ok = true;
    for (int i = 0; i < plan->warnings.n; i++) {
        const PlanWarning *w = &plan->warnings.items[i];
        MxFindings one = {.items = &plan->warnings.items[i].finding, .n = 1};
        if (!w->is_activation) ok &= mx_findings_fail(&one, w->path, err);
    }
    for (int i = 0; i < plan->n_arrays; i++)
        if (plan->arrays[i].error)
            ok = mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s", plan->arrays[i].error_text);
    if (plan->unsharded_text)
        ok = mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s", plan->unsharded_text);
    return ok;
}

bool plan_sharding(MxArena *arena, const MxConfig *config, MxPlan *plan, MxError *err) {
    *plan = (MxPlan){.config = config};
    if (!mx_train_mesh(arena, config, &plan->mesh, err) ||
        !mx_model_new(arena, config, &plan->model, err) ||
        !plan_arrays(arena, &plan->mesh, plan->model, &plan->arrays, &plan->n_arrays, err))
        return false;
    plan_warnings_init(&plan->warnings, arena);
    plan_warn_rules(&plan->warnings, &plan->mesh);
    for (int i = 0; i < plan->n_arrays; i++)
        if (!plan_warn(&plan->warnings, &plan->mesh, plan->arrays[i].path,
                       plan->arrays[i].how.names, false, err))
            return false;
    plan->parameters = count(plan->model, config);
    check_tolerance(arena, plan);
    return !config->sharding_strict || refuse(plan, err);
}

/* What a run refuses before it looks at anything else. */
static const char *refusal(MxArena *arena, const MxConfig *config) {
    MxError why = {0};
    bool ok = mx_config_runnable(config, &why);
    const char *text = ok ? NULL : mx_arena_strdup(arena, why.text.data);
    mx_error_release(&why);
    return text;
}

bool mx_plan_new(MxArena *arena, const MxConfig *config, const MxPlanDevice *device, MxPlan **out,
                 MxError *err) {
    MxPlan *plan = mx_new(arena, MxPlan);
    if (!plan_sharding(arena, config, plan, err)) return false;
    plan->device = device;
    plan->refusal = refusal(arena, config);
    PlanCase of = {.mesh = &plan->mesh,
                   .policy = config->remat,
                   .device = device,
                   .warnings = &plan->warnings};
    if (!plan_program(arena, of, &plan->program, err) || !plan_memory(arena, plan, err))
        return false;
    plan->tflops = mx_model_tflops(plan->model);
    *out = plan;
    return true;
}

bool mx_plan_check(const MxConfig *config, MxError *err) {
    MxArena arena = {.name = "plan"};
    MxPlan plan;
    bool ok = !config->sharding_strict || plan_sharding(&arena, config, &plan, err);
    mx_arena_release(&arena);
    return ok;
}

bool mx_plan_dump_sharding(MxArena *arena, const MxConfig *config, MxText *out, MxError *err) {
    MxTrainMesh mesh;
    MxModel *model;
    PlanArray *arrays;
    int n;
    if (!mx_train_mesh(arena, config, &mesh, err) || !mx_model_new(arena, config, &model, err) ||
        !plan_arrays(arena, &mesh, model, &arrays, &n, err))
        return false;
    mx_text_add(out, "path\tshape\tdtype\tlogical\tspec_raw\tspec\tshard_shape\n");
    for (int i = 0; i < n; i++) {
        const PlanArray *a = &arrays[i];
        mx_text_add(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", a->path, plan_shape_text(arena, a->shape),
                    mx_dtype_name(a->dtype), mx_spec_text(arena, a->how.names),
                    mx_spec_text(arena, a->how.raw), mx_spec_text(arena, a->how.spec),
                    plan_shard_text(arena, a));
    }
    return true;
}
