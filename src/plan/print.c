/* print.c — a plan as text for people. Every number is marked as exact or as an estimate. */
#include "internal.h"

static double gib(int64_t bytes) {
    return (double)bytes / (1 << 30);
}

static const char *figure(MxText *out, double value) {
    enum { DECIMALS = 3 };
    return mx_figure(mx_new_n(out->arena, char, MX_FIGURE), value, DECIMALS);
}

static void print_pipeline(const MxTrainMesh *mesh, MxText *out) {
    int64_t micros = mesh->config->pipeline_micro_batches;
    double bubble = mx_stages_bubble((int)mesh->n_stages, (int)mesh->n_repeats, (int)micros);
    mx_text_add(out,
                "pipeline     %lld stages, %lld repeats, %lld layer%s each; %lld micro-batches: "
                "%.1f%% of the time is waiting\n",
                (long long)mesh->n_stages, (long long)mesh->n_repeats,
                (long long)mesh->stage_layers, mesh->stage_layers == 1 ? "" : "s",
                (long long)micros, 100 * bubble);
}

static void print_mesh(const MxPlan *plan, MxText *out) {
    const MxMesh *mesh = &plan->mesh.mesh;
    const MxConfig *c = plan->config;
    mx_text_add(out, "mesh         %s; ", mx_mesh_text(out->arena, mesh));
    mx_text_add(out, "Num_devices: %lld, shape (", (long long)mesh->n_ranks);
    for (int i = 0; i < mesh->n; i++)
        mx_text_add(out, "%s%lld", i ? ", " : "", (long long)mesh->sizes[i]);
    mx_text_add(out, mesh->n == 1 ? ",)\n" : ")\n");
    if (plan->mesh.n_stages > 1) print_pipeline(&plan->mesh, out);
    const int64_t rows = mx_train_rows(c);
    mx_text_add(out, "batch        %.15g rows a device, %lld rows = %lld tokens a step",
                c->per_device_batch_size * (double)rows,
                (long long)(c->global_batch_size_to_train_on * rows),
                (long long)(c->tokens_per_step * rows));
    if (c->gradient_accumulation_steps > 1)
        mx_text_add(out, " in %lld micro-batches", (long long)c->gradient_accumulation_steps);
    mx_text_add(out, "\n");
    if (strcmp(c->remat, c->remat_policy) != 0)
        mx_text_add(out, "remat        %s: done as %s\n", c->remat_policy, c->remat);
    const PlanCount *p = &plan->parameters;
    mx_text_add(out, "parameters   %s billion (%lld), active %lld, in embeddings %lld\n",
                figure(out, (double)p->total * 1e-9), (long long)p->total, (long long)p->active,
                (long long)p->embedding);
    if (p->trainable < p->total)
        mx_text_add(out, "trainable    %lld, %.3f%% of all\n", (long long)p->trainable,
                    100 * (double)p->trainable / (double)p->total);
}

static void print_bytes(MxText *out, const char *what, int64_t bytes, const char *how) {
    mx_text_add(out, "  %-12s %12s  %s\n", what, figure(out, gib(bytes)), how);
}

static void print_memory(const MxPlan *plan, MxText *out) {
    const PlanMemory *m = &plan->memory;
    const char *guess = m->is_exact ? "at peak, from the lowered program"
                                    : "at peak, estimated: no run takes this mesh";
    const char *exact = m->is_exact ? "exact" : "about";
    bool is_alone = plan->mesh.mesh.n_ranks == 1;
    bool is_piped = plan->mesh.n_stages > 1 && m->is_exact;
    mx_text_add(out, "\nmemory of %s, GiB\n",
                is_alone   ? "the device"
                : is_piped ? "each rank of the first stage"
                           : "each rank");
    print_bytes(out, "weights", m->weights, exact);
    print_bytes(out, "gradients", m->gradients, exact);
    print_bytes(out, "optimizer", m->optimizer, exact);
    if (m->outer) print_bytes(out, "outer", m->outer, "parameters and momentum of DiLoCo: exact");
    if (m->reference)
        print_bytes(out, "reference", m->reference,
                    plan->config->teacher ? "the teacher" : "a frozen copy: exact");
    print_bytes(out, "activations", m->activations, guess);
    if (m->casts)
        print_bytes(out, "casts", m->casts,
                    m->is_exact ? "frozen weights in the dtype of computation: exact"
                                : "frozen weights in the dtype of computation: about");
    print_bytes(out, "buffers", m->buffers, "batch, scalars: exact");
    if (m->saving)
        print_bytes(out, "saving", m->saving,
                    is_alone
                        ? "the copy of the state that is written in the background"
                        : "the copy of its share of the state, written in the background: about");
    print_bytes(out, "process", m->process,
                m->is_apart ? "code and libraries, as saving in the host's memory: about"
                            : "code and libraries: about");
    print_bytes(out, "total", m->total, "");
    if (m->disk)
        print_bytes(out, "on disk", m->disk,
                    mx_arena_printf(out->arena, "moments, in a file in \"%s\", not in memory: %s",
                                    plan->config->optimizer_memory_disk, exact));
    if (m->total <= m->limit.bytes) {
        mx_text_add(out, "%s has %.3f GiB: enough for one rank\n", m->limit.name,
                    gib(m->limit.bytes));
        return;
    }
    mx_text_add(out, "%s has %.3f GiB: not enough for one rank\n", m->limit.name,
                gib(m->limit.bytes));
    for (int i = 0; i < MX_COUNT(m->other) && m->other[i].policy; i++)
        mx_text_add(out, "  remat_policy=%s would need %.3f for activations, %.3f in all\n",
                    m->other[i].policy, gib(m->other[i].activations),
                    gib(m->total - m->activations + m->other[i].activations));
}

static void print_flops(const MxPlan *plan, MxText *out) {
    const MxTflops *f = &plan->tflops;
    mx_text_add(out, "\n%s\n", mx_tflops_text(out->arena, *f));
    if (plan->mesh.mesh.n_ranks > 1)
        mx_text_add(out, " on each device; %s on all\n",
                    figure(out, f->total * (double)plan->mesh.mesh.n_ranks));
}

static const char *late_axes(MxArena *arena, const MxPlan *plan) {
    const MxMesh *mesh = &plan->mesh.mesh;
    MxText names;
    mx_text_init(&names, arena);
    for (int i = 0; i < mesh->n; i++)
        if (plan->program.traffic.late >> i & 1)
            mx_text_add(&names, "%s%s", names.len ? ", " : "", mesh->axes[i]);
    return names.data;
}

static double mib(int64_t bytes) {
    return (double)bytes / (1 << 20);
}

static void print_exchanges(const PlanTraffic *c, MxText *out) {
    int64_t slow = 0;
    for (int i = 0; i < c->n; i++) {
        const PlanExchanges *row = &c->rows[i];
        mx_text_add(out, "  %-14s %-24s %6lld %12.3f", row->op, row->axes, (long long)row->calls,
                    mib(row->bytes));
        if (row->slow) mx_text_add(out, ", %.3f between slices", mib(row->slow));
        mx_text_add(out, "\n");
        slow += row->slow;
    }
    if (slow) mx_text_add(out, "  in all %.3f MiB between slices\n", mib(slow));
}

/* What whole gradients along fsdp take and save, where micro-batches share them or could. */
static void print_whole(const MxPlan *plan, MxText *out) {
    const MxConfig *c = plan->config;
    int64_t whole = plan->program.traffic.whole;
    bool is_few = strcmp(c->gradient_exchange_dtype, "float32") != 0;
    bool is_whole = c->reduce_gradients_once || is_few;
    if (is_few && plan->program.traffic.late & ~mx_mesh_stages(&plan->mesh.mesh))
        mx_text_add(out, "  gradients are sent in %s; what that loses is kept for the next step\n",
                    c->gradient_exchange_dtype);
    if (!whole || (c->micro_batches == 1 && !is_whole)) return;
    if (is_whole)
        mx_text_add(out, "  gradients are whole along fsdp: they take %.3f GiB more than parts\n",
                    gib(whole));
    else
        mx_text_add(out,
                    "  each micro-batch sums gradients along fsdp; reduce_gradients_once=true "
                    "would send %.3f MiB less a step, and take %.3f GiB more\n",
                    mib((c->micro_batches - 1) * whole), gib(whole));
}

static void print_seconds(const PlanTraffic *c, MxText *out) {
    for (int i = 0; i < PLAN_LINKS; i++)
        mx_text_add(out, "  about %.3g s over %s\n", plan_traffic_s(c, i), plan_link_name(i));
}

static void print_collectives(const MxPlan *plan, MxText *out) {
    const PlanTraffic *c = &plan->program.traffic, *outer = &plan->program.outer;
    if (plan->mesh.mesh.n_ranks == 1) return;
    if (plan->program.refusal) {
        mx_text_add(out, "\ncollectives  none: this mesh cannot be run\nerror, when run: %s\n",
                    plan->program.refusal);
        return;
    }
    mx_text_add(out, "\ncollectives of each rank and train step: exchanges, MiB sent\n");
    print_exchanges(c, out);
    if (c->late)
        mx_text_add(out, "  gradients are summed once for all micro-batches along %s\n",
                    late_axes(out->arena, plan));
    print_whole(plan, out);
    if (!plan->device) print_seconds(c, out);
    if (!outer->n) return;
    mx_text_add(out, "and of each outer step, every %lld steps\n",
                (long long)(plan->config->diloco_fragments * plan->config->diloco_fragment_steps));
    print_exchanges(outer, out);
    print_seconds(outer, out);
}

/* Layers that are not stacked are shown once. */
static bool is_shown(const PlanArray *array) {
    return array->leaf->stack.index == 0;
}

static void print_arrays(const MxPlan *plan, MxText *out) {
    MxArena *arena = out->arena;
    int width = 0, hidden = 0;
    for (int i = 0; i < plan->n_arrays; i++) {
        int n = (int)strlen(plan->arrays[i].path);
        if (is_shown(&plan->arrays[i]) && n > width) width = n;
        hidden += !is_shown(&plan->arrays[i]);
    }
    mx_text_add(out, "\narrays       shape, logical axes, spec, shard\n");
    for (int i = 0; i < plan->n_arrays; i++) {
        const PlanArray *a = &plan->arrays[i];
        if (!is_shown(a)) continue;
        mx_text_add(out, "  %-*s  %s  %s  %s  %s", width, a->path, plan_shape_text(arena, a->shape),
                    mx_spec_text(arena, a->how.names), mx_spec_text(arena, a->how.spec),
                    plan_shard_text(arena, a));
        if (a->leaf->quant.type)
            mx_text_add(out, "  %s in blocks of %lld", mx_qtype_name(a->leaf->quant.type),
                        (long long)a->leaf->quant.tile);
        mx_text_add(out, "\n");
    }
    if (hidden) mx_text_add(out, "  and %d arrays of other layers, cut alike\n", hidden);
}

static void print_check(const MxPlan *plan, MxText *out) {
    const MxShardReport *r = &plan->unsharded;
    mx_text_add(out,
                "\nsharding     %.2f%% of the parameters (%d arrays) miss a mesh axis; "
                "sharding_tolerance %.2f%%: %s\n",
                100 * r->fraction, r->n_unsharded, 100 * plan->config->sharding_tolerance,
                plan->unsharded_text ? "too much" : "fine");
    if (plan->unsharded_text)
        mx_text_add(out, "error, with sharding_strict: %s\n", plan->unsharded_text);
    for (int i = 0; i < plan->n_arrays; i++)
        if (plan->arrays[i].error && is_shown(&plan->arrays[i]))
            mx_text_add(out, "error, when run: %s\n", plan->arrays[i].error_text);
}

const char *plan_where_text(MxArena *arena, MxWhere where) {
    if (!where.line) return where.file; /* the command line */
    return mx_arena_printf(arena, "%s:%d", where.file, where.line);
}

static void print_warning(const PlanWarning *w, MxText *out) {
    const MxFinding *f = &w->finding;
    mx_text_add(out, "%s: ", f->costs || f->is_strict ? "warning" : "note");
    if (f->where.file) mx_text_add(out, "%s: ", plan_where_text(out->arena, f->where));
    mx_text_add(out, "%s", f->text);
    if (w->path) mx_text_add(out, " (%s%s", w->is_activation ? "activation of " : "", w->path);
    if (w->path && w->n_arrays > 1 && !w->is_activation)
        mx_text_add(out, " and %d more", w->n_arrays - 1);
    mx_text_add(out, w->path ? ")\n" : "\n");
}

/* Neighbours with the same hint share it. */
static void print_hint(const PlanWarnings *warnings, int i, MxText *out) {
    const char *hint = warnings->items[i].finding.hint;
    const char *next = i + 1 < warnings->n ? warnings->items[i + 1].finding.hint : NULL;
    if (hint && (!next || strcmp(hint, next))) mx_text_add(out, "hint: %s\n", hint);
}

void mx_plan_print(const MxPlan *plan, MxText *out) {
    const MxConfig *c = plan->config;
    mx_text_add(out, "plan of %s, model %s\n", c->run_name, c->model_name);
    if (plan->refusal) mx_text_add(out, "error, when run: %s\n", plan->refusal);
    mx_text_add(out, "machine      %s\n", plan->program.device);
    print_mesh(plan, out);
    print_memory(plan, out);
    print_flops(plan, out);
    print_collectives(plan, out);
    if (plan->device) plan_print_time(plan, out);
    print_arrays(plan, out);
    print_check(plan, out);
    if (plan->warnings.n)
        mx_text_add(out, "\nrules that were passed over, are missing or doubtful\n");
    for (int i = 0; i < plan->warnings.n; i++) {
        print_warning(&plan->warnings.items[i], out);
        print_hint(&plan->warnings, i, out);
    }
}
