/* collectives.c — the exchanges of a mesh's ranks in one training step, and in an outer step of
 * replicas: the collective ops of the program that rank 0 would run (program.c), added up by kind
 * and mesh axes. */
#include "internal.h"

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

int64_t plan_runs(const MxConfig *config, const char *entry, bool is_outer) {
    if (is_outer) return mx_text_has_prefix(entry, "outer") || mx_text_has_prefix(entry, "join");
    if (!strcmp(entry, "weigh")) return config->micro_batches;
    if (!strcmp(entry, "grad_add")) return config->accumulations - 1;
    return !strcmp(entry, "grad") || !strcmp(entry, "update");
}

static bool is_alike(const PlanExchanges *a, const PlanExchanges *b) {
    return !strcmp(a->op, b->op) && !strcmp(a->axes, b->axes) && a->phase == b->phase &&
           a->is_of_layers == b->is_of_layers;
}

PlanExchanges *plan_row(MxArena *arena, PlanTraffic *c, PlanExchanges like) {
    for (int i = 0; i < c->n; i++)
        if (is_alike(&c->rows[i], &like)) return &c->rows[i];
    c->rows = mx_arena_grow(arena, c->rows, (size_t)c->n, (size_t)c->n + 1, sizeof *c->rows);
    c->rows[c->n] = (PlanExchanges){.op = like.op,
                                    .axes = mx_arena_strdup(arena, like.axes),
                                    .phase = like.phase,
                                    .is_of_layers = like.is_of_layers};
    return &c->rows[c->n++];
}

const MxGroup *plan_exchange(const MxMachine *machine, const MxGraph *graph, const MxNode *node,
                             MxCommCost *cost) {
    MxType in[MX_MAX_CUT_IN];
    if (!node->op->exchange) return NULL;
    for (int i = 0; i < node->n_in; i++) in[i] = graph->values[node->in[i]].type;
    return node->op->exchange(machine, node, in, cost);
}

/* To all others; or to one: the opposite one, which the middle rank of an odd group has not, or the
 * one so many places behind. */
bool plan_sends_to(const MxNode *node, const MxGroup *group, int member) {
    const MxCollective kind = node->op->collective;
    int places = kind == MX_RING_SHIFT ? ((const MxCollectiveAttr *)node->attr)->places : 0;
    if (places) return member == (group->index + places + group->size) % group->size;
    bool swaps = kind == MX_SWAP_HALVES;
    return member != group->index && (!swaps || member == group->size - 1 - group->index);
}

/* Bytes that go to other slices; all that this rank sends to get as many. */
static int64_t slow_bytes(const MxMesh *mesh, const MxNode *node, const MxGroup *group,
                          int64_t bytes) {
    if (mx_mesh_slices(mesh, group->bits) == 1) return 0;
    int64_t slice = mx_mesh_slice(mesh, group->ranks[group->index]), n = 0, n_slow = 0;
    for (int i = 0; i < group->size; i++) {
        if (!plan_sends_to(node, group, i)) continue;
        n++;
        n_slow += mx_mesh_slice(mesh, group->ranks[i]) != slice;
    }
    return n ? bytes * n_slow / n : 0;
}

static void count_entry(MxArena *arena, const MxMesh *mesh, const MxMachine *machine,
                        const MxLowered *entry, int64_t n_runs, PlanTraffic *out) {
    const MxGraph *graph = entry->graph;
    for (int s = 0; s < entry->n_steps; s++) {
        const MxNode *node = &graph->nodes[entry->steps[s]];
        MxCommCost cost;
        const MxGroup *group = entry->phases[s] ? NULL : plan_exchange(machine, graph, node, &cost);
        if (!group) continue;
        PlanExchanges *row =
            plan_row(arena, out, (PlanExchanges){.op = node->op->name, .axes = group->axes});
        row->calls += n_runs * cost.calls;
        row->bytes += n_runs * cost.bytes;
        row->slow += n_runs * slow_bytes(mesh, node, group, cost.bytes);
    }
}

/* What a whole gradient along FSDP's mesh axes takes, or would take, besides this rank's part. */
static int64_t bytes_beside_part(const MxTrainMesh *mesh, const MxTrainProgram *program,
                                 int param) {
    const MxConfig *c = mesh->config;
    const MxLeaf *leaf = &mx_model_params(program->model)->leaves[param];
    const MxSharding *at = &program->sharding[program->param[param]],
                     *gradient = &program->sharding[program->gradient[param]];
    const uint32_t fsdp = mx_mesh_fsdp(&mesh->mesh);
    bool is_whole = c->reduce_gradients_once || strcmp(c->gradient_exchange_dtype, "float32") != 0;
    int64_t ranks = 1;
    if (at->home && (at->home - 1) % mesh->n_stages != 0) return 0; /* it is not with rank 0 */
    for (int d = 0; d < MX_MAX_RANK; d++) {
        uint32_t kept = is_whole ? gradient->dim[d] : mx_train_uncut(at->dim[d], fsdp);
        for (int a = 0; a < mesh->mesh.n; a++)
            if ((at->dim[d] & fsdp & ~kept) >> a & 1) ranks *= mesh->mesh.sizes[a];
    }
    MxShape part = mx_sharding_shape(&mesh->mesh, *at, leaf->shape);
    return (ranks - 1) * mx_shape_count(part) * (int64_t)sizeof(float);
}

void plan_traffic(MxArena *arena, const MxTrainMesh *mesh, const MxTrainProgram *program,
                  bool is_outer, PlanTraffic *out) {
    *out = (PlanTraffic){0};
    for (int i = 0; i < mx_model_params(program->model)->n; i++) {
        if (program->gradient[i] == MX_NONE) continue;
        out->late |= program->sharding[program->gradient[i]].partial;
        if (!program->refusal) out->whole += bytes_beside_part(mesh, program, i);
    }
    for (int i = 0; i < program->n_entries; i++) {
        const MxLowered *entry = &program->layout.lowered[i];
        int64_t n_runs = plan_runs(mesh->config, entry->graph->name, is_outer);
        if (n_runs) count_entry(arena, &mesh->mesh, program->machine, entry, n_runs, out);
    }
}

void plan_extend_traffic(MxArena *arena, const PlanLine *line, PlanTraffic *few,
                         PlanTraffic *more) {
    more->whole = plan_on_line(line, few->whole, more->whole);
    for (int i = 0; i < more->n; i++) {
        PlanExchanges *m = &more->rows[i];
        const PlanExchanges *f = plan_row(arena, few, *m);
        m->calls = plan_on_line(line, f->calls, m->calls);
        m->bytes = plan_on_line(line, f->bytes, m->bytes);
        m->slow = plan_on_line(line, f->slow, m->slow);
        m->seconds = plan_seconds_on_line(line, f->seconds, m->seconds);
    }
}

double plan_traffic_s(const PlanTraffic *c, int link) {
    double seconds = 0;
    for (int i = 0; i < c->n; i++)
        seconds += (double)c->rows[i].calls * links[link].latency_s +
                   (double)c->rows[i].bytes / links[link].bytes_per_s;
    return seconds;
}

const char *plan_link_name(int link) {
    return links[link].name;
}
