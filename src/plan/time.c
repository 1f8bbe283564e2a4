/* time.c — the time of a step, from the program that a rank would run and the speed of a device. A
 * kernel takes the longer of the times for its operations and for its bytes. An exchange takes the
 * latency of its link and the time for its bytes; exchanges over one link follow each other. An
 * exchange that runs in phases overlaps with the kernels between them, as far as the device allows;
 * the rest is waiting time and called exposed. Stages of a pipeline run in the order of its table,
 * each with its own times (mx_stages_s). Not counted: reading data, saving, evaluation, and outer
 * steps of replicas. */
#include "internal.h"

enum { INSIDE, BETWEEN, LINKS };

typedef struct Clock {
    const PlanCase *of;
    const MxMachine *machine;
    const MxGraph *graph;
    double now, free_at[LINKS]; /* seconds since the entry began */
    double *end;                /* [node] of the exchange that is under way */
    double n_runs;
    PlanSeconds *out;
} Clock;

/* ---- kernels */

static double bytes_of(const MxGraph *graph, MxValue value) {
    MxType type = graph->values[value].type;
    return (double)mx_shape_count(type.shape) * (double)mx_dtype_bytes(type.dtype);
}

static double touched(const MxGraph *graph, const MxNode *node) {
    double bytes = 0;
    for (int i = 0; i < node->n_in; i++) bytes += bytes_of(graph, node->in[i]);
    for (int i = 0; i < node->n_out; i++)
        if (!(node->unused >> i & 1)) bytes += bytes_of(graph, node->out[i]);
    return bytes;
}

static double flops_of(const MxGraph *graph, const MxNode *node) {
    MxType in[MX_MAX_CUT_IN], out[MX_MAX_OUT];
    if (!node->op->flops || node->n_in > MX_MAX_CUT_IN) return 0;
    for (int i = 0; i < node->n_in; i++) in[i] = graph->values[node->in[i]].type;
    for (int i = 0; i < node->n_out; i++) out[i] = graph->values[node->out[i]].type;
    return node->op->flops(in, out, node->attr);
}

static double kernel_s(const MxPlanDevice *d, const MxGraph *graph, const MxNode *node) {
    bool is_bf16 = false;
    for (int i = 0; i < node->n_in && i < 2; i++)
        is_bf16 = is_bf16 || graph->values[node->in[i]].type.dtype == MX_BF16;
    double rate = (is_bf16 ? d->bf16_per_s : d->f32_per_s) * d->product_share;
    double computes = flops_of(graph, node) / rate, moves = touched(graph, node) / d->touched_per_s;
    return d->kernel_s + (computes > moves ? computes : moves);
}

/* ---- exchanges */

/* Number of a rank's host: slices first, then hosts of a slice. */
static int64_t host_of(const MxPlanDevice *d, const MxMesh *mesh, int64_t rank) {
    int64_t n_places = mesh->n_ranks / mx_mesh_slices(mesh, ~0u >> (32 - mesh->n));
    int64_t each = d->host_devices ? d->host_devices : n_places;
    return mx_mesh_slice(mesh, rank) * ((n_places - 1) / each + 1) +
           mx_mesh_place(mesh, rank) / each;
}

/* Ranks that this rank sends to, and those of them on other hosts. */
typedef struct Reach {
    int n, n_far;
} Reach;

static Reach reach_of(const Clock *c, const MxNode *node, const MxGroup *group) {
    const MxMesh *mesh = &c->of->mesh->mesh;
    int64_t own = host_of(c->of->device, mesh, group->ranks[group->index]);
    Reach reach = {0};
    for (int i = 0; i < group->size; i++) {
        if (!plan_sends_to(node, group, i)) continue;
        reach.n++;
        reach.n_far += host_of(c->of->device, mesh, group->ranks[i]) != own;
    }
    return reach;
}

static double link_s(MxLink link, double calls, double bytes) {
    return bytes > 0 ? calls * link.latency_s + bytes / link.bytes_per_s : 0;
}

/* Bytes go to all others alike; those on the way inside and between hosts go at once. */
static double exchange_s(const Clock *c, const MxNode *node, const MxGroup *group, MxCommCost cost,
                         int *link) {
    Reach reach = reach_of(c, node, group);
    double bytes = (double)cost.bytes, calls = (double)cost.calls;
    double far = reach.n ? bytes * reach.n_far / reach.n : 0;
    double inside = link_s(c->of->device->inside, calls, bytes - far);
    double between = link_s(c->of->device->between, calls, far);
    *link = reach.n_far ? BETWEEN : INSIDE;
    return inside > between ? inside : between;
}

static PlanPhase phase_of(const MxGraph *graph, const MxNode *node) {
    if (!mx_text_has_prefix(graph->name, "grad")) return PLAN_REST;
    return node->backward || node->is_again ? PLAN_BACKWARD : PLAN_FORWARD;
}

static void note_exchange(Clock *c, MxArena *arena, PlanTraffic *timed, const MxNode *node,
                          const MxGroup *group) {
    MxCommCost cost;
    int link;
    plan_exchange(c->machine, c->graph, node, &cost);
    PlanExchanges *row = plan_row(arena, timed,
                                  (PlanExchanges){.op = node->op->name,
                                                  .axes = group->axes,
                                                  .phase = phase_of(c->graph, node),
                                                  .is_of_layers = node->region > 0});
    double seconds = c->n_runs * exchange_s(c, node, group, cost, &link);
    row->calls += (int64_t)c->n_runs * cost.calls;
    row->bytes += (int64_t)c->n_runs * cost.bytes;
    row->seconds += seconds;
    c->out->exchanges[row->phase] += seconds;
}

static void wait_until(Clock *c, PlanPhase phase, double end) {
    if (end <= c->now) return;
    c->out->exposed[phase] += c->n_runs * (end - c->now);
    c->now = end;
}

/* ---- an entry */

/* Messages go beside passes; the longest is told. */
static void see_message(Clock *c, const MxNode *node) {
    MxCommCost cost;
    int link;
    const MxGroup *group = plan_exchange(c->machine, c->graph, node, &cost);
    double seconds = group ? exchange_s(c, node, group, cost, &link) : 0;
    if (seconds > c->out->message) c->out->message = seconds;
}

static void compute(Clock *c, const MxNode *node) {
    double seconds = kernel_s(c->of->device, c->graph, node);
    c->out->kernels[phase_of(c->graph, node)] += c->n_runs * seconds;
    c->now += seconds;
}

/* Starts what the next phase waits for. What a device cannot do beside kernels is waited for at
 * once. */
static void start(Clock *c, int n, double seconds, int link) {
    double hidden = c->of->device->hidden_share * seconds;
    wait_until(c, phase_of(c->graph, &c->graph->nodes[n]), c->now + seconds - hidden);
    double from = c->now > c->free_at[link] ? c->now : c->free_at[link];
    c->end[n] = c->free_at[link] = from + hidden;
}

static void run_phase(Clock *c, MxArena *arena, PlanTraffic *timed, int n, int phase) {
    const MxNode *node = &c->graph->nodes[n];
    MxCommCost cost;
    const MxGroup *group = plan_exchange(c->machine, c->graph, node, &cost);
    MxType in = node->n_in ? c->graph->values[node->in[0]].type : (MxType){0};
    int phases = mx_op_phases(c->machine, node->op, in, node->attr), link;
    if (phase) wait_until(c, phase_of(c->graph, node), c->end[n]);
    if (!phase && group) note_exchange(c, arena, timed, node, group);
    if (group && phases == 1)
        wait_until(c, phase_of(c->graph, node), c->now + exchange_s(c, node, group, cost, &link));
    if (phase + 1 == phases) {
        compute(c, node);
        return;
    }
    double seconds = group ? exchange_s(c, node, group, cost, &link) / (phases - 1) : 0;
    if (group) start(c, n, seconds, link);
}

static void run_entry(Clock *c, MxArena *arena, PlanTraffic *timed, const MxLowered *entry) {
    for (int s = 0; s < entry->n_steps; s++) {
        int n = entry->steps[s];
        if (c->graph->nodes[n].op->flags & MX_OP_LETTER)
            see_message(c, &c->graph->nodes[n]);
        else
            run_phase(c, arena, timed, n, entry->phases[s]);
    }
}

void plan_time(MxArena *arena, const PlanCase *of, const MxTrainProgram *program, PlanSeconds *out,
               PlanTraffic *timed) {
    MxArena scratch = {.name = "time of a program"};
    *out = (PlanSeconds){0};
    for (int i = 0; i < program->n_entries; i++) {
        const MxLowered *entry = &program->layout.lowered[i];
        int64_t n_runs = plan_runs(of->mesh->config, entry->graph->name, false);
        if (!n_runs) continue;
        Clock c = {.of = of,
                   .machine = program->machine,
                   .graph = entry->graph,
                   .end = mx_new_n(&scratch, double, entry->graph->n_nodes + 1),
                   .n_runs = (double)n_runs,
                   .out = out};
        run_entry(&c, arena, timed, entry);
    }
    mx_arena_release(&scratch);
}

/* ---- a step */

void plan_extend_seconds(const PlanLine *line, const PlanSeconds *few, PlanSeconds *more) {
    for (int p = 0; p < PLAN_PHASES; p++) {
        more->kernels[p] = plan_seconds_on_line(line, few->kernels[p], more->kernels[p]);
        more->exchanges[p] = plan_seconds_on_line(line, few->exchanges[p], more->exchanges[p]);
        more->exposed[p] = plan_seconds_on_line(line, few->exposed[p], more->exposed[p]);
    }
}

static double pass_s(const PlanSeconds *s, PlanPhase phase) {
    return s->kernels[phase] + s->exposed[phase];
}

/* Seconds of a pass of the stages over all micro-batches of an accumulation step. Stages but the
 * last are like the first; what outlasts their work is waiting. */
static double stages_s(const MxTrainMesh *mesh, const PlanSeconds *first, const PlanSeconds *last,
                       double *bubble) {
    MxArena arena = {.name = "stages"};
    int n = (int)mesh->n_stages, micros = (int)mesh->config->pipeline_micro_batches;
    double passes = (double)mesh->config->gradient_accumulation_steps;
    double units = passes * (double)(micros * mesh->n_repeats), busy = 0;
    double *forward = mx_new_n(&arena, double, n), *backward = mx_new_n(&arena, double, n);
    for (int s = 0; s < n; s++) {
        const PlanSeconds *of = s + 1 < n ? first : last;
        forward[s] = pass_s(of, PLAN_FORWARD) / units;
        backward[s] = pass_s(of, PLAN_BACKWARD) / units;
        busy += (forward[s] + backward[s]) * units / n;
    }
    double seconds = passes * mx_stages_s(&(MxStageTimes){.n_stages = n,
                                                          .n_repeats = (int)mesh->n_repeats,
                                                          .n_micros = micros,
                                                          .forward_s = forward,
                                                          .backward_s = backward,
                                                          .message_s = first->message});
    *bubble = seconds - busy;
    mx_arena_release(&arena);
    return seconds;
}

PlanStep plan_step(const MxTrainMesh *mesh, const PlanSeconds *first, const PlanSeconds *last) {
    PlanStep step = {0};
    for (int p = 0; p < PLAN_PHASES; p++) {
        step.kernels += first->kernels[p];
        step.exchanges += first->exchanges[p];
        step.exposed += first->exposed[p];
    }
    step.seconds = last ? stages_s(mesh, first, last, &step.bubble) + pass_s(first, PLAN_REST)
                        : step.kernels + step.exposed;
    return step;
}

const char *plan_phase_name(PlanPhase phase) {
    static const char *const names[PLAN_PHASES] = {
        [PLAN_FORWARD] = "forward", [PLAN_BACKWARD] = "backward", [PLAN_REST] = "rest"};
    return names[phase];
}
