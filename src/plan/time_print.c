/* time_print.c — the time of a step on a device as text and as JSON, and the exchanges of ranks by
 * phase of the step and inside or outside layers. */
#include "internal.h"

static const char *seconds_text(MxText *out, double seconds) {
    return mx_figure(mx_new_n(out->arena, char, MX_FIGURE), seconds, 3);
}

static double tokens_per_s(const MxPlan *plan) {
    return (double)plan->config->tokens_per_step / plan->program.step.seconds;
}

/* Of what the device's products could do in the time. */
static double utilisation(const MxPlan *plan) {
    const MxPlanDevice *d = plan->device;
    bool is_bf16 = !strcmp(plan->config->dtype, "bfloat16");
    double peak = is_bf16 ? d->bf16_per_s : d->f32_per_s;
    return plan->tflops.total * 1e12 / peak / plan->program.step.seconds;
}

static void print_rows(const PlanTraffic *timed, MxText *out) {
    if (!timed->n) return;
    mx_text_add(out, "  exchanges by phase, of layers or outside: exchanges, MiB sent, seconds\n");
    for (int i = 0; i < timed->n; i++) {
        const PlanExchanges *row = &timed->rows[i];
        mx_text_add(out, "    %-8s %-7s %-14s %-24s %6lld %12.3f %10s\n",
                    plan_phase_name(row->phase), row->is_of_layers ? "layers" : "outside", row->op,
                    row->axes, (long long)row->calls, (double)row->bytes / (1 << 20),
                    seconds_text(out, row->seconds));
    }
}

void plan_print_time(const MxPlan *plan, MxText *out) {
    const PlanStep *step = &plan->program.step;
    const MxPlanDevice *d = plan->device;
    mx_text_add(out, "\ntime of a step on %s, seconds: %s\n", d->name, d->doc);
    if (plan->program.refusal) {
        mx_text_add(out, "  none: this mesh cannot be run\n");
        return;
    }
    mx_text_add(out, "  kernels      %12s  of each rank%s\n", seconds_text(out, step->kernels),
                plan->mesh.n_stages > 1 ? " of the first stage" : "");
    mx_text_add(out, "  exchanges    %12s  of them exposed %s\n",
                seconds_text(out, step->exchanges), seconds_text(out, step->exposed));
    if (plan->mesh.n_stages > 1)
        mx_text_add(out, "  bubble       %12s  %.1f%% of the step: a stage waits for others\n",
                    seconds_text(out, step->bubble), 100 * step->bubble / step->seconds);
    mx_text_add(out, "  total        %12s  %.6g tokens/s, %.1f%% of the products' peak\n",
                seconds_text(out, step->seconds), tokens_per_s(plan), 100 * utilisation(plan));
    print_rows(&plan->program.timed, out);
}

static void put_rows(const PlanTraffic *timed, MxJson *list) {
    for (int i = 0; i < timed->n; i++) {
        const PlanExchanges *row = &timed->rows[i];
        MxJson *object = mx_json_push_object(list);
        mx_json_set_string(object, "phase", plan_phase_name(row->phase));
        mx_json_set_bool(object, "of_layers", row->is_of_layers);
        mx_json_set_string(object, "op", row->op);
        mx_json_set_string(object, "mesh_axes", row->axes);
        mx_json_set_int(object, "exchanges", row->calls);
        mx_json_set_int(object, "bytes_sent", row->bytes);
        mx_json_set_number(object, "seconds", row->seconds);
    }
}

void plan_put_time(const MxPlan *plan, MxJson *root) {
    const PlanStep *step = &plan->program.step;
    MxJson *object = mx_json_put_object(root, "time");
    mx_json_set_string(object, "device", plan->device->name);
    if (plan->program.refusal) return;
    mx_json_set_number(object, "step", step->seconds);
    mx_json_set_number(object, "kernels", step->kernels);
    mx_json_set_number(object, "exchanges", step->exchanges);
    mx_json_set_number(object, "exposed", step->exposed);
    mx_json_set_number(object, "bubble", step->bubble);
    mx_json_set_number(object, "tokens_per_s", tokens_per_s(plan));
    put_rows(&plan->program.timed, mx_json_put_array(object, "collectives"));
}

/* ---- searches */

void mx_plan_search_print(const MxPlanSearch *search, MxText *out) {
    mx_text_add(out, "search for %lld devices \"%s\" of %.3f GiB, %lld rows = %lld tokens a step\n",
                (long long)search->n_devices, search->device->name,
                (double)search->device->memory_bytes / (1 << 30), (long long)search->rows,
                (long long)search->tokens);
    mx_text_add(out,
                "%d candidates, the likeliest %d planned: %d too large, %d that no run takes\n\n",
                search->n_candidates, search->n_planned, search->n_too_large, search->n_refused);
    mx_text_add(out, "  %9s %9s %7s %12s  %s\n", "seconds", "GiB", "bubble", "tokens/s", "keys");
    for (int i = 0; i < search->n; i++) {
        const MxPlanFound *f = &search->found[i];
        mx_text_add(out, "  %9s %9.3f %6.1f%% %12.6g  %s\n", seconds_text(out, f->seconds),
                    (double)f->bytes / (1 << 30), 100 * f->bubble, f->tokens_per_s, f->words);
    }
}

char *mx_plan_search_json(MxArena *arena, const MxPlanSearch *search) {
    MxJson *root = mx_json_object(arena);
    mx_json_set_string(root, "device", search->device->name);
    mx_json_set_int(root, "devices", search->n_devices);
    mx_json_set_int(root, "candidates", search->n_candidates);
    mx_json_set_int(root, "planned", search->n_planned);
    mx_json_set_int(root, "too_large", search->n_too_large);
    mx_json_set_int(root, "refused", search->n_refused);
    MxJson *list = mx_json_put_array(root, "plans");
    for (int i = 0; i < search->n; i++) {
        const MxPlanFound *f = &search->found[i];
        MxJson *object = mx_json_push_object(list);
        mx_json_set_number(object, "seconds", f->seconds);
        mx_json_set_number(object, "bubble", f->bubble);
        mx_json_set_number(object, "tokens_per_s", f->tokens_per_s);
        mx_json_set_int(object, "bytes", f->bytes);
        mx_json_set_string(object, "keys", f->words);
    }
    return mx_json_dump(arena, root, true);
}
