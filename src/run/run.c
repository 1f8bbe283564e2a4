/* run.c — lays out a program's memory on a device, binds every node to its addresses once, and runs
 * entries. Addresses are only passed to the device, which reads and writes the memory there. */
#include "internal.h"

typedef struct Step {
    const MxKernel *kernel;
    MxKernelCall call;
    bool is_last; /* of its node's */
    bool is_exchange;
    const char *result; /* for traces: dtype and shape, NULL = nobody wants to know */
    double seconds;
    uint64_t calls;
} Step;

/* Steps [from, to) in a row that none of them waits in: they are recorded together. */
typedef struct Span {
    int from, to;
    void *record;
} Span;

typedef struct Entry {
    MxLowered lowered;
    Step *steps;
    int n_steps;
    Span *spans; /* of devices that record; all steps are in one of these */
    int n_spans;
    uint64_t runs;
} Entry;

struct MxRun {
    MxArena *arena;
    MxDevice *device;
    const MxVars *vars;
    size_t *var_offset;
    uint8_t *memory; /* variables, then the arena; the device's */
    uint8_t *disk;   /* variables on disk; the device's too */
    MxRunBytes bytes;
    bool is_measured; /* every kernel is waited for, and none is recorded */
    Entry *entries;
    int n_entries;
};

static size_t aligned(size_t bytes) {
    return (bytes + MX_BUFFER_ALIGN - 1) / MX_BUFFER_ALIGN * MX_BUFFER_ALIGN;
}

static bool has_addend(const MxNode *node) {
    return node->op->takes_addend && node->n_in > node->op->arity;
}

/* A call without addresses: what kernels need to know to say how much scratch they want. An addend
 * is not an input to them: out 0 holds it already, and is added to. */
static MxKernelCall describe(MxArena *arena, const MxGraph *graph, const MxNode *node) {
    MxType *types = mx_new_n(arena, MxType, node->n_in + node->n_out + 1);
    for (int i = 0; i < node->n_in; i++) types[i] = graph->values[node->in[i]].type;
    for (int i = 0; i < node->n_out; i++) types[node->n_in + i] = graph->values[node->out[i]].type;
    return (MxKernelCall){.op = node->op,
                          .attr = node->attr,
                          .in_type = types,
                          .out_type = types + node->n_in,
                          .n_in = node->n_in - has_addend(node),
                          .n_out = node->n_out,
                          .accumulate = node->accumulate | has_addend(node),
                          .unused = node->unused};
}

static size_t scratch_bytes(const void *context, const MxGraph *graph, const MxNode *node) {
    const MxDevice *device = context;
    const MxKernel *kernel = mx_device_kernel(device, node->op);
    if (!kernel || !kernel->scratch) return 0;
    MxKernelCall call = describe(graph->arena, graph, node);
    return kernel->scratch(device, &call);
}

static uint8_t *address_of_var(const MxRun *run, int var) {
    return (run->vars->item[var].is_on_disk ? run->disk : run->memory) + run->var_offset[var];
}

static void *address(const MxRun *run, const MxLowered *lowered, MxValue value) {
    const MxGraph *graph = lowered->graph;
    value = mx_graph_buffer(graph, value);
    const MxNode *node = mx_graph_producer(graph, value);
    if (node->op->flags & MX_OP_SOURCE)
        return address_of_var(run, ((const MxVariableAttr *)node->attr)->var);
    int var = graph->values[value].var;
    if (var != MX_NONE) return address_of_var(run, var);
    return run->memory + run->bytes.vars + lowered->value_offset[value];
}

/* Brings an addend into out 0's buffer, unless it is there. */
static bool bind_addend(MxRun *run, Entry *entry, const MxNode *node, MxError *err) {
    void *from = address(run, &entry->lowered, node->in[node->op->arity]);
    void *to = address(run, &entry->lowered, node->out[0]);
    if (from == to) return true;
    const MxType *type = &entry->lowered.graph->values[node->out[0]].type;
    void **pointers = mx_new_n(run->arena, void *, 2);
    pointers[0] = from;
    pointers[1] = to;
    MxKernelCall call = {.op = &op_copy,
                         .in_type = type,
                         .out_type = type,
                         .in = pointers,
                         .out = pointers + 1,
                         .n_in = 1,
                         .n_out = 1};
    const MxKernel *kernel = mx_device_kernel(run->device, &op_copy);
    if (kernel->prepare && !kernel->prepare(run->device, &call, err)) return false;
    entry->steps[entry->n_steps++] = (Step){.kernel = kernel, .call = call, .is_last = true};
    return true;
}

static const MxKernel *find_kernel(const MxRun *run, const MxOp *op, MxError *err) {
    const MxKernel *kernel = mx_device_kernel(run->device, op);
    if (!kernel)
        mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "backend \"%s\" has no kernel for op \"%s\"",
                run->device->backend->name, op->name);
    return kernel;
}

static bool exchanges(const MxMachine *machine, const MxNode *node, const MxKernelCall *call) {
    MxCommCost cost = {0};
    return node->op->exchange && node->op->exchange(machine, node, call->in_type, &cost);
}

static bool bind_entry(MxRun *run, Entry *entry, MxError *err) {
    const MxLowered *lowered = &entry->lowered;
    entry->steps = mx_new_n(run->arena, Step, 2 * lowered->n_steps + 1);
    MxKernelCall *first = mx_new_n(run->arena, MxKernelCall, lowered->graph->n_nodes + 1);
    for (int s = 0; s < lowered->n_steps; s++) {
        const MxNode *node = &lowered->graph->nodes[lowered->steps[s]];
        MxKernelCall call = describe(run->arena, lowered->graph, node);
        call.in = mx_new_n(run->arena, void *, node->n_in + node->n_out + 1);
        call.out = call.in + node->n_in;
        for (int i = 0; i < node->n_in; i++) call.in[i] = address(run, lowered, node->in[i]);
        for (int i = 0; i < node->n_out; i++)
            if (!(node->unused >> i & 1)) call.out[i] = address(run, lowered, node->out[i]);
        call.scratch = run->memory + run->bytes.vars + lowered->scratch_offset[s];
        const MxKernel *kernel = find_kernel(run, node->op, err);
        if (!kernel) return false;
        MxKernelCall *prepared = &first[lowered->steps[s]];
        call.phase = lowered->phases[s];
        if (!call.phase) {
            if (kernel->prepare && !kernel->prepare(run->device, &call, err)) return false;
            *prepared = call;
        }
        call.state = prepared->state;
        call.waits = prepared->waits;
        if (has_addend(node) && !bind_addend(run, entry, node, err)) return false;
        const MxMachine *machine = run->device->backend->machine;
        int n_phases = mx_op_phases(machine, node->op, call.in_type[0], node->attr);
        entry->steps[entry->n_steps++] = (Step){.kernel = kernel,
                                                .call = call,
                                                .is_last = call.phase + 1 == n_phases,
                                                .is_exchange = exchanges(machine, node, &call)};
    }
    return true;
}

MxRunLayout mx_run_layout(MxArena *arena, const MxDevice *device, const MxVars *vars,
                          MxGraph *const *entries, int n_entries, MxRemat remat) {
    MxRunLayout layout = {.lowered = mx_new_n(arena, MxLowered, n_entries),
                          .var_offset = mx_new_n(arena, size_t, vars->n + 1)};
    for (int i = 0; i < vars->n; i++) {
        MxType type = vars->item[i].type;
        size_t *bytes = vars->item[i].is_on_disk ? &layout.bytes.disk : &layout.bytes.vars;
        layout.var_offset[i] = *bytes;
        *bytes += aligned((size_t)mx_shape_count(type.shape) * mx_dtype_bytes(type.dtype));
    }
    MxLowerOptions options = {.machine = device->backend->machine,
                              .remat = remat,
                              .scratch_bytes = scratch_bytes,
                              .context = device};
    for (int i = 0; i < n_entries; i++) {
        layout.lowered[i] = mx_lower(entries[i], &options);
        size_t bytes = layout.lowered[i].arena_bytes;
        if (bytes > layout.bytes.arena) layout.bytes.arena = bytes;
    }
    return layout;
}

/* A step that waits is a span of its own. */
static void bind_spans(MxRun *run, Entry *entry) {
    entry->spans = mx_new_n(run->arena, Span, entry->n_steps + 1);
    for (int s = 0; s < entry->n_steps; s++) {
        bool goes_on = s && !entry->steps[s - 1].call.waits && !entry->steps[s].call.waits;
        if (!goes_on) entry->spans[entry->n_spans++].from = s;
        entry->spans[entry->n_spans - 1].to = s + 1;
    }
}

bool mx_run_open(MxArena *arena, MxDevice *device, const MxVars *vars, MxGraph *const *entries,
                 int n_entries, MxRemat remat, MxRun **out, MxError *err) {
    MxRun *run = mx_new(arena, MxRun);
    *run = (MxRun){.arena = arena, .device = device, .vars = vars, .n_entries = n_entries};
    MxRunLayout layout = mx_run_layout(arena, device, vars, entries, n_entries, remat);
    run->entries = mx_new_n(arena, Entry, n_entries);
    for (int i = 0; i < n_entries; i++) run->entries[i].lowered = layout.lowered[i];
    run->var_offset = layout.var_offset;
    run->bytes = layout.bytes;
    void *memory, *disk = NULL;
    if (!mx_device_alloc(device, run->bytes.vars + run->bytes.arena, &memory, err)) return false;
    if (run->bytes.disk && !mx_device_alloc_on_disk(device, run->bytes.disk, &disk, err))
        return false;
    run->memory = memory;
    run->disk = disk;
    for (int i = 0; i < n_entries; i++)
        if (!bind_entry(run, &run->entries[i], err)) return false;
    for (int i = 0; i < n_entries && mx_device_records(device); i++)
        bind_spans(run, &run->entries[i]);
    *out = run;
    return true;
}

/* Exchanges that are under way are looked after so often: each look may give the processor away
 * where there are more ranks than cores. */
static const double PROGRESS_S = 1e-3;

static void keep_span(const Step *step, double start_s, double end_s) {
    mx_spans_add((MxTimeSpan){.thread = MX_SPAN_TRAINER,
                              .kind = step->is_exchange ? "exchange" : "op",
                              .name = step->call.op->name,
                              .detail = step->result,
                              .number = -1,
                              .start_s = start_s,
                              .end_s = end_s});
}

/* Begins before its first node and ends behind the last. */
static void keep_entry(const Entry *entry, double start_s) {
    mx_spans_add((MxTimeSpan){.thread = MX_SPAN_TRAINER,
                              .kind = "entry",
                              .name = entry->lowered.graph->name,
                              .number = -1,
                              .start_s = start_s,
                              .end_s = mx_clock_s()});
}

static void run_steps(MxRun *run, Entry *e, int from, int to) {
    bool is_traced = mx_spans_are_kept();
    double start = mx_clock_s(), looked = start;
    for (int s = from; s < to; s++) {
        Step *step = &e->steps[s];
        step->kernel->run(run->device, &step->call);
        if (run->is_measured) mx_device_sync(run->device);
        double end = mx_clock_s();
        if (is_traced) keep_span(step, start, end);
        if (end - looked >= PROGRESS_S) {
            mx_device_progress(run->device);
            looked = end;
        }
        step->seconds += end - start;
        step->calls += step->is_last;
        start = end;
    }
}

/* What is recorded takes part in the profile as often as it runs, but in no time. */
static void run_span(MxRun *run, Entry *e, Span *span) {
    if (e->steps[span->from].call.waits) {
        run_steps(run, e, span->from, span->to);
        return;
    }
    if (!span->record) {
        mx_device_record_begin(run->device);
        for (int s = span->from; s < span->to; s++)
            e->steps[s].kernel->run(run->device, &e->steps[s].call);
        span->record = mx_device_record_end(run->device);
    }
    mx_device_replay(run->device, span->record);
    for (int s = span->from; s < span->to; s++) e->steps[s].calls += e->steps[s].is_last;
}

/* Recorded when it runs for the second time: libraries prepare themselves in the first, and many
 * entries run once. */
void mx_run_entry(MxRun *run, int entry) {
    MX_ASSERT(entry >= 0 && entry < run->n_entries);
    Entry *e = &run->entries[entry];
    bool is_traced = mx_spans_are_kept();
    double begun = mx_clock_s();
    if (e->runs++ && e->n_spans && !run->is_measured && !is_traced)
        for (int i = 0; i < e->n_spans; i++) run_span(run, e, &e->spans[i]);
    else
        run_steps(run, e, 0, e->n_steps);
    if (is_traced) keep_entry(e, begun);
}

MxBox mx_run_box(const MxRun *run, int var) {
    return mx_box_of(run->vars->item[var].type.shape);
}

/* What of a variable is contiguous there and on the host, piece by piece. */
static void move(const MxRun *run, int var, const MxBox *box, char *to_host, const char *host) {
    const MxBox all = mx_run_box(run, var);
    size_t each = mx_dtype_bytes(run->vars->item[var].type.dtype);
    if (!mx_box_count(box)) return;
    MxBoxRuns runs = mx_box_runs(box, &all, box);
    for (int64_t i = 0, at[2]; i < runs.n; i++) {
        mx_box_run_at(&runs, i, at);
        size_t there = (size_t)at[0] * each, here = (size_t)at[1] * each;
        size_t bytes = (size_t)runs.length * each;
        uint8_t *address = address_of_var(run, var) + there;
        if (to_host)
            mx_device_read(run->device, address, to_host + here, bytes);
        else
            mx_device_write(run->device, address, host + here, bytes);
    }
}

void mx_run_read(const MxRun *run, int var, MxBox box, void *host) {
    move(run, var, &box, host, NULL);
}

void mx_run_write(MxRun *run, int var, MxBox box, const void *host) {
    move(run, var, &box, NULL, host);
}

void *mx_run_map(const MxRun *run, int var) {
    return run->device->backend->shares_memory ? address_of_var(run, var) : NULL;
}

void mx_run_measure(MxRun *run) {
    run->is_measured = true;
}

void mx_run_trace(MxRun *run) {
    for (int e = 0; e < run->n_entries; e++)
        for (int s = 0; s < run->entries[e].n_steps; s++) {
            Step *step = &run->entries[e].steps[s];
            const MxType *type = &step->call.out_type[0];
            if (step->call.n_out)
                step->result = mx_arena_printf(run->arena, "%s%s", mx_dtype_name(type->dtype),
                                               mx_shape_text(run->arena, type->shape));
        }
}

MxRunBytes mx_run_bytes(const MxRun *run) {
    return run->bytes;
}

/* ---- profile */

static void add_cost(RunCost *cost, const Step *step) {
    const MxKernelCall *call = &step->call;
    double calls = (double)step->calls;
    cost->seconds += step->seconds;
    cost->calls += step->calls;
    for (int i = 0; i < call->n_in; i++) cost->bytes += calls * run_type_bytes(call->in_type[i]);
    for (int i = 0; i < call->n_out; i++) cost->bytes += calls * run_type_bytes(call->out_type[i]);
    if (!call->op->flops) return;
    bool is_bf16 = call->n_in && (call->in_type[0].dtype == MX_BF16 ||
                                  (call->n_in > 1 && call->in_type[1].dtype == MX_BF16));
    cost->flops[is_bf16] += calls * call->op->flops(call->in_type, call->out_type, call->attr);
}

bool mx_run_profile(const MxRun *run, MxText *text, MxError *err) {
    RunCost costs[MX_OP_COUNT] = {0};
    MxRunRates rates;
    for (int i = 0; i < MX_OP_COUNT; i++) costs[i].name = mx_ops[i]->name;
    for (int e = 0; e < run->n_entries; e++)
        for (int s = 0; s < run->entries[e].n_steps; s++) {
            const Step *step = &run->entries[e].steps[s];
            add_cost(&costs[mx_op_index(step->call.op)], step);
        }
    if (!mx_run_rates(run->device, &rates, err)) return false;
    run_put_profile(costs, MX_OP_COUNT, &rates, text);
    return true;
}
