/* collectives.c — what the ranks of a mesh exchange in one training step: the program as rank 0
 * would run it, divided by the same pass, and its collective ops added up by kind and mesh axes.
 * The same program tells what a rank needs beside its parameters. Periods of layers are
 * alike, so in deep models all of it is a straight line in their number. A mesh that cannot be run
 * has no such program; the plan then says why. */
#include "internal.h"

enum {
    DEEPEST = 16, /* layers that are divided as they are */
    FEW = 6,      /* layers of the two programs that give the line */
    MORE = 10
};

/* Links between ranks: bytes a second each way, seconds an exchange takes at least. Round numbers
 * of the kind, not of a product. */
static const struct {
    const char *name;
    double bytes_per_s, latency_s;
} links[PLAN_LINKS] = {
    {"memory of one machine", 5e9, 5e-6},
    {"10 Gbit/s Ethernet", 1.2e9, 30e-6},
    {"200 Gbit/s InfiniBand", 24e9, 3e-6},
};

/* How often an entry runs in one step. */
static int64_t runs_a_step(const MxConfig *config, const char *entry) {
    int64_t n = config->gradient_accumulation_steps;
    if (!strcmp(entry, "weigh")) return n;
    if (!strcmp(entry, "grad_add")) return n - 1;
    return !strcmp(entry, "grad") || !strcmp(entry, "update");
}

static PlanTraffic *row_of(MxArena *arena, PlanCollectives *c, const char *op, const char *axes) {
    for (int i = 0; i < c->n; i++)
        if (!strcmp(c->rows[i].op, op) && !strcmp(c->rows[i].axes, axes)) return &c->rows[i];
    c->rows = mx_arena_grow(arena, c->rows, (size_t)c->n, (size_t)c->n + 1, sizeof *c->rows);
    c->rows[c->n] = (PlanTraffic){.op = op, .axes = mx_arena_strdup(arena, axes)};
    return &c->rows[c->n++];
}

static const MxGroup *exchange_of(const MxMachine *machine, const MxGraph *graph,
                                  const MxNode *node, MxCommCost *cost) {
    MxType in[MX_MAX_CUT_IN];
    if (!node->op->exchange) return NULL;
    for (int i = 0; i < node->n_in; i++) in[i] = graph->values[node->in[i]].type;
    return node->op->exchange(machine, node, in, cost);
}

static void count_entry(MxArena *arena, const MxMachine *machine, const MxLowered *entry,
                        int64_t n_runs, PlanCollectives *out) {
    const MxGraph *graph = entry->graph;
    for (int s = 0; s < entry->n_steps; s++) {
        const MxNode *node = &graph->nodes[entry->steps[s]];
        MxCommCost cost;
        const MxGroup *group = entry->phases[s] ? NULL : exchange_of(machine, graph, node, &cost);
        if (!group) continue;
        PlanTraffic *row = row_of(arena, out, node->op->name, group->axes);
        row->calls += n_runs * cost.calls;
        row->bytes += n_runs * cost.bytes;
    }
}

static int64_t bytes_of(const MxTrainProgram *program, int var) {
    if (var == MX_NONE) return 0;
    MxType type = program->vars->item[var].type;
    return mx_shape_count(type.shape) * (int64_t)mx_dtype_bytes(type.dtype);
}

static void count_state(const MxTrainProgram *program, PlanCollectives *out) {
    for (int i = 0; i < mx_model_params(program->model)->n; i++) {
        int gradient = program->gradient[i];
        out->gradients += bytes_of(program, gradient);
        if (gradient != MX_NONE) out->late |= program->sharding[gradient].partial;
    }
    for (int i = 0; i < program->n_kept; i++) out->optimizer += bytes_of(program, program->kept[i]);
}

static bool count_program(MxArena *arena, const MxConfig *config, PlanCollectives *out,
                          MxError *err) {
    MxArena scratch = {.name = "plan of collectives"};
    MxTrainProgram program;
    bool ok = mx_train_program(&scratch, config, true, &program, err);
    if (ok) out->activations = (int64_t)program.layout.bytes.arena;
    if (ok) out->casts = program.cast_bytes;
    if (ok) count_state(&program, out);
    for (int i = 0; ok && i < program.n_entries; i++) {
        const MxLowered *entry = &program.layout.lowered[i];
        int64_t n_runs = runs_a_step(config, entry->graph->name);
        if (n_runs) count_entry(arena, program.machine, entry, n_runs, out);
    }
    mx_arena_release(&scratch);
    return ok;
}

/* Two shallow programs to a deep one. */
static void extend(MxArena *arena, const PlanLine *line, const PlanCollectives *few,
                   PlanCollectives *more) {
    PlanCollectives copy = *few;
    more->activations = plan_on_line(line, few->activations, more->activations);
    more->gradients = plan_on_line(line, few->gradients, more->gradients);
    more->optimizer = plan_on_line(line, few->optimizer, more->optimizer);
    more->casts = plan_on_line(line, few->casts, more->casts);
    for (int i = 0; i < more->n; i++) {
        PlanTraffic *m = &more->rows[i];
        const PlanTraffic *f = row_of(arena, &copy, m->op, m->axes);
        m->calls = plan_on_line(line, f->calls, m->calls);
        m->bytes = plan_on_line(line, f->bytes, m->bytes);
    }
}

double plan_traffic_s(const PlanCollectives *c, int link) {
    double seconds = 0;
    for (int i = 0; i < c->n; i++)
        seconds += (double)c->rows[i].calls * links[link].latency_s +
                   (double)c->rows[i].bytes / links[link].bytes_per_s;
    return seconds;
}

const char *plan_link_name(int link) {
    return links[link].name;
}

void plan_collectives(MxArena *arena, const MxConfig *config, PlanCollectives *out) {
    MxConfig shallow = *config;
    MxError why = {0};
    PlanLine line = plan_line(config, FEW, MORE);
    *out = (PlanCollectives){0};
    bool ok;
    if (line.layers <= DEEPEST || line.layers <= line.more) {
        ok = count_program(arena, config, out, &why);
    } else {
        PlanCollectives few = {0};
        shallow.num_decoder_layers = line.few;
        ok = count_program(arena, &shallow, &few, &why);
        shallow.num_decoder_layers = line.more;
        ok = ok && count_program(arena, &shallow, out, &why);
        if (ok) extend(arena, &line, &few, out);
    }
    if (!ok) out->refusal = mx_arena_strdup(arena, why.text.data);
    mx_error_release(&why);
}
