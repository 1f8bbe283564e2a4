/* json.c — a plan as JSON for programs: the numbers of the text in full, every array, every
 * finding. */
#include "internal.h"

static void put_mesh(const MxPlan *plan, MxJson *root) {
    const MxMesh *mesh = &plan->mesh.mesh;
    MxJson *object = mx_json_put_object(root, "mesh");
    mx_json_set_int(object, "devices", mesh->n_ranks);
    MxJson *axes = mx_json_put_object(object, "axes");
    for (int i = 0; i < mesh->n; i++) mx_json_set_int(axes, mesh->axes[i], mesh->sizes[i]);
    mx_json_set_int(object, "pipeline_repeats", plan->mesh.n_repeats);
}

static void put_batch(const MxPlan *plan, MxJson *root) {
    const MxConfig *c = plan->config;
    MxJson *object = mx_json_put_object(root, "batch");
    const int64_t rows = mx_train_rows(c);
    mx_json_set_number(object, "rows_per_device", c->per_device_batch_size * (double)rows);
    mx_json_set_int(object, "rows", c->global_batch_size_to_train_on * rows);
    mx_json_set_int(object, "micro_batches", c->gradient_accumulation_steps);
    mx_json_set_int(object, "tokens", c->tokens_per_step * rows);
}

static void put_parameters(const MxPlan *plan, MxJson *root) {
    const PlanCount *p = &plan->parameters;
    MxJson *object = mx_json_put_object(root, "parameters");
    mx_json_set_int(object, "total", p->total);
    mx_json_set_int(object, "active", p->active);
    mx_json_set_int(object, "embedding", p->embedding);
    mx_json_set_int(object, "trainable", p->trainable);
    mx_json_set_int(object, "bytes", p->bytes);
}

static void put_memory(const MxPlan *plan, MxJson *root) {
    const PlanMemory *m = &plan->memory;
    MxJson *object = mx_json_put_object(root, "memory_per_rank");
    mx_json_set_int(object, "weights", m->weights);
    mx_json_set_int(object, "gradients", m->gradients);
    mx_json_set_int(object, "optimizer", m->optimizer);
    mx_json_set_int(object, "outer", m->outer);
    mx_json_set_int(object, "reference", m->reference);
    mx_json_set_int(object, "activations", m->activations);
    mx_json_set_int(object, "casts", m->casts);
    mx_json_set_int(object, "buffers", m->buffers);
    mx_json_set_int(object, "saving", m->saving);
    mx_json_set_int(object, "process", m->process);
    mx_json_set_int(object, "total", m->total);
    mx_json_set_int(object, "disk", m->disk);
    mx_json_set_bool(object, "activations_are_exact", m->is_exact);
    mx_json_set_int(object, "machine", m->limit.bytes);
    mx_json_set_bool(object, "fits", m->total <= m->limit.bytes);
    MxJson *other = mx_json_put_object(object, "activations_with_remat_policy");
    for (int i = 0; i < MX_COUNT(m->other) && m->other[i].policy; i++)
        mx_json_set_int(other, m->other[i].policy, m->other[i].activations);
}

static void put_flops(const MxPlan *plan, MxJson *root) {
    MxJson *object = mx_json_put_object(root, "tflops_per_device");
    mx_json_set_number(object, "total", plan->tflops.total);
    mx_json_set_number(object, "learnable", plan->tflops.learnable);
    mx_json_set_number(object, "attention", plan->tflops.attention);
    mx_json_set_number(object, "reference", plan->tflops.reference);
}

static void put_check(const MxPlan *plan, MxJson *root) {
    const MxShardReport *r = &plan->unsharded;
    MxJson *object = mx_json_put_object(root, "sharding_check");
    mx_json_set_number(object, "tolerance", plan->config->sharding_tolerance);
    mx_json_set_number(object, "fraction", r->fraction);
    mx_json_set_int(object, "unsharded_arrays", r->n_unsharded);
    mx_json_set_int(object, "unsharded_parameters", r->unsharded_elements);
    mx_json_set_int(object, "total_parameters", r->total_elements);
    mx_json_set_int(object, "total_bytes", r->total_bytes);
    mx_json_set_bool(object, "ok", !plan->unsharded_text);
    MxJson *errors = mx_json_put_array(root, "errors_when_run");
    if (plan->refusal) mx_json_push_string(errors, plan->refusal);
    if (plan->unsharded_text) mx_json_push_string(errors, plan->unsharded_text);
    for (int i = 0; i < plan->n_arrays; i++)
        if (plan->arrays[i].error) mx_json_push_string(errors, plan->arrays[i].error_text);
    if (plan->program.refusal) mx_json_push_string(errors, plan->program.refusal);
}

static void put_exchanges(const MxPlan *plan, const PlanTraffic *c, MxJson *list) {
    for (int i = 0; i < c->n && !plan->program.refusal; i++) {
        MxJson *object = mx_json_push_object(list);
        mx_json_set_string(object, "op", c->rows[i].op);
        mx_json_set_string(object, "mesh_axes", c->rows[i].axes);
        mx_json_set_int(object, "exchanges", c->rows[i].calls);
        mx_json_set_int(object, "bytes_sent", c->rows[i].bytes);
        mx_json_set_int(object, "bytes_between_slices", c->rows[i].slow);
    }
}

static void put_collectives(const MxPlan *plan, MxJson *root) {
    if (plan->mesh.mesh.n_ranks == 1) return;
    put_exchanges(plan, &plan->program.traffic, mx_json_put_array(root, "collectives_per_step"));
    if (!plan->config->enable_diloco) return;
    mx_json_set_int(root, "outer_step_period",
                    plan->config->diloco_fragments * plan->config->diloco_fragment_steps);
    put_exchanges(plan, &plan->program.outer,
                  mx_json_put_array(root, "collectives_per_outer_step"));
}

static const char *const kinds[] = {
    [MX_FIND_FALLBACK] = "fallback",
    [MX_FIND_CONFLICT] = "conflict",
    [MX_FIND_NO_RULE] = "no_rule",
    [MX_FIND_ABSENT_AXIS] = "absent_axis",
    [MX_FIND_UNKNOWN_AXIS] = "unknown_axis",
    [MX_FIND_EMPTY_AXIS] = "empty_axis",
    [MX_FIND_TWICE] = "twice",
};

static void put_findings(MxArena *arena, const MxPlan *plan, MxJson *root) {
    MxJson *list = mx_json_put_array(root, "findings");
    for (int i = 0; i < plan->warnings.n; i++) {
        const PlanWarning *w = &plan->warnings.items[i];
        const MxFinding *f = &w->finding;
        MxJson *object = mx_json_push_object(list);
        mx_json_set_string(object, "kind", kinds[f->kind]);
        mx_json_set_bool(object, "costs", f->costs);
        mx_json_set_bool(object, "strict", f->is_strict && !w->is_activation);
        if (f->where.file) mx_json_set_string(object, "where", plan_where_text(arena, f->where));
        mx_json_set_string(object, "text", f->text);
        if (!w->path) continue;
        mx_json_set_string(object, w->is_activation ? "activation" : "array", w->path);
        if (!w->is_activation) mx_json_set_int(object, "arrays", w->n_arrays);
    }
}

static void put_arrays(MxArena *arena, const MxPlan *plan, MxJson *root) {
    MxJson *list = mx_json_put_array(root, "arrays");
    for (int i = 0; i < plan->n_arrays; i++) {
        const PlanArray *a = &plan->arrays[i];
        MxJson *object = mx_json_push_object(list);
        mx_json_set_string(object, "path", a->path);
        mx_json_set_string(object, "shape", plan_shape_text(arena, a->shape));
        mx_json_set_string(object, "dtype", mx_dtype_name(a->dtype));
        mx_json_set_string(object, "logical", mx_spec_text(arena, a->how.names));
        mx_json_set_string(object, "spec_raw", mx_spec_text(arena, a->how.raw));
        mx_json_set_string(object, "spec", mx_spec_text(arena, a->how.spec));
        mx_json_set_string(object, "shard_shape", plan_shard_text(arena, a));
    }
}

char *mx_plan_json(MxArena *arena, const MxPlan *plan) {
    MxJson *root = mx_json_object(arena);
    mx_json_set_string(root, "mxtrain", MX_VERSION);
    mx_json_set_string(root, "run_name", plan->config->run_name);
    mx_json_set_string(root, "model_name", plan->config->model_name);
    mx_json_set_string(root, "machine", plan->program.device);
    put_mesh(plan, root);
    put_batch(plan, root);
    put_parameters(plan, root);
    put_memory(plan, root);
    put_flops(plan, root);
    put_collectives(plan, root);
    if (plan->device) plan_put_time(plan, root);
    put_check(plan, root);
    put_findings(arena, plan, root);
    put_arrays(arena, plan, root);
    return mx_json_dump(arena, root, true);
}
