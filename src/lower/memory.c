/* memory.c — a place in one arena for every value that is in no variable. A buffer lives from the
 * step that makes it to the last step that reads it; an op that may work in place takes over the
 * buffer of an input that dies there. Buffers are placed largest first, each at the lowest offset
 * where nothing that lives at the same time stands. */
#include <mx/lower.h>

#include <stdlib.h>

typedef struct Buffer {
    size_t bytes, offset;
    int first, last; /* steps */
} Buffer;

typedef struct Layout {
    const MxGraph *graph;
    MxArena arena;
    Buffer *buffers;
    int n_buffers;
    int *buffer_of; /* [value], -1 = in a variable */
    int *step_of;   /* [node], -1 = runs nothing */
    int *last_use;  /* [value that owns a buffer] */
} Layout;

static bool runs(const MxNode *node) {
    return !(node->op->flags & (MX_OP_SOURCE | MX_OP_VIEW));
}

static size_t bytes_of(const MxGraph *graph, MxValue value) {
    MxType type = graph->values[value].type;
    size_t bytes = (size_t)mx_shape_count(type.shape) * mx_dtype_bytes(type.dtype);
    return (bytes + MX_BUFFER_ALIGN - 1) / MX_BUFFER_ALIGN * MX_BUFFER_ALIGN;
}

static void find_lifetimes(Layout *l) {
    const MxGraph *graph = l->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const MxNode *node = &graph->nodes[n];
        int step = l->step_of[n];
        for (int i = 0; step >= 0 && i < node->n_in; i++)
            l->last_use[mx_graph_buffer(graph, node->in[i])] = step;
        for (int i = 0; step >= 0 && i < node->n_out; i++) l->last_use[node->out[i]] = step;
    }
}

/* The buffer that out 0 of a node may take over, or -1. */
static int inherited(const Layout *l, const MxNode *node, int step) {
    bool has_addend = node->op->takes_addend && node->n_in > node->op->arity;
    int input = has_addend ? node->op->arity : node->op->inplace - 1;
    if (input < 0) return -1;
    MxValue in = mx_graph_buffer(l->graph, node->in[input]);
    int buffer = l->buffer_of[in];
    if (buffer < 0 || l->last_use[in] != step || l->buffers[buffer].last > step) return -1;
    for (int i = 0, uses = 0; i < node->n_in; i++) {
        uses += mx_graph_buffer(l->graph, node->in[i]) == in;
        if (uses > 1) return -1;
    }
    return l->buffers[buffer].bytes == bytes_of(l->graph, node->out[0]) ? buffer : -1;
}

static int new_buffer(Layout *l, size_t bytes, int first, int last) {
    l->buffers[l->n_buffers] = (Buffer){.bytes = bytes, .first = first, .last = last};
    return l->n_buffers++;
}

static void assign_buffers(Layout *l) {
    const MxGraph *graph = l->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const MxNode *node = &graph->nodes[n];
        int step = l->step_of[n];
        for (int i = 0; step >= 0 && i < node->n_out; i++) {
            MxValue out = node->out[i];
            if (graph->values[out].var != MX_NONE || node->unused >> i & 1) continue;
            int old = i == 0 ? inherited(l, node, step) : -1;
            l->buffer_of[out] = old >= 0 ? old : new_buffer(l, bytes_of(graph, out), step, step);
            l->buffers[l->buffer_of[out]].last = l->last_use[out];
        }
    }
}

static int larger_first(const void *a, const void *b) {
    const Buffer *x = *(Buffer *const *)a, *y = *(Buffer *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x < y ? -1 : x > y;
}

static int by_offset(const void *a, const void *b) {
    const Buffer *x = *(Buffer *const *)a, *y = *(Buffer *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static size_t place_buffers(Layout *l) {
    Buffer **order = mx_new_n(&l->arena, Buffer *, l->n_buffers + 1);
    Buffer **meets = mx_new_n(&l->arena, Buffer *, l->n_buffers + 1);
    size_t top = 0;
    for (int i = 0; i < l->n_buffers; i++) order[i] = &l->buffers[i];
    qsort(order, (size_t)l->n_buffers, sizeof *order, larger_first);
    for (int i = 0; i < l->n_buffers; i++) {
        Buffer *b = order[i];
        int n = 0;
        for (int j = 0; j < i; j++)
            if (order[j]->first <= b->last && b->first <= order[j]->last) meets[n++] = order[j];
        qsort(meets, (size_t)n, sizeof *meets, by_offset);
        b->offset = 0;
        for (int j = 0; j < n; j++) {
            if (meets[j]->offset >= b->offset + b->bytes) break;
            size_t end = meets[j]->offset + meets[j]->bytes;
            if (end > b->offset) b->offset = end;
        }
        if (b->offset + b->bytes > top) top = b->offset + b->bytes;
    }
    return top;
}

MxPlan mx_pass_memory(const MxGraph *graph, const MxLowerOptions *options) {
    Layout l = {.graph = graph, .arena = {.name = "memory"}};
    int *steps = mx_new_n(graph->arena, int, graph->n_nodes + 1), n_steps = 0;
    l.step_of = mx_new_n(&l.arena, int, graph->n_nodes + 1);
    l.buffer_of = mx_new_n(&l.arena, int, graph->n_values + 1);
    l.last_use = mx_new_n(&l.arena, int, graph->n_values + 1);
    l.buffers = mx_new_n(&l.arena, Buffer, graph->n_values + graph->n_nodes + 1);
    for (int v = 0; v < graph->n_values; v++) l.buffer_of[v] = -1;
    for (int n = 0; n < graph->n_nodes; n++) {
        l.step_of[n] = runs(&graph->nodes[n]) ? n_steps : -1;
        if (l.step_of[n] >= 0) steps[n_steps++] = n;
    }
    find_lifetimes(&l);
    assign_buffers(&l);
    size_t *scratch = mx_new_n(graph->arena, size_t, n_steps + 1);
    int first_scratch = l.n_buffers;
    for (int s = 0; s < n_steps; s++) {
        size_t bytes = options->scratch_bytes(options->context, graph, &graph->nodes[steps[s]]);
        new_buffer(&l, (bytes + MX_BUFFER_ALIGN - 1) / MX_BUFFER_ALIGN * MX_BUFFER_ALIGN, s, s);
    }
    MxPlan plan = {
        .graph = graph, .steps = steps, .n_steps = n_steps, .arena_bytes = place_buffers(&l)};
    size_t *offsets = mx_new_n(graph->arena, size_t, graph->n_values + 1);
    for (int v = 0; v < graph->n_values; v++)
        if (l.buffer_of[v] >= 0) offsets[v] = l.buffers[l.buffer_of[v]].offset;
    for (int s = 0; s < n_steps; s++) scratch[s] = l.buffers[first_scratch + s].offset;
    plan.value_offset = offsets;
    plan.scratch_offset = scratch;
    mx_arena_release(&l.arena);
    return plan;
}

MxPlan mx_lower(MxGraph *graph, const MxLowerOptions *options) {
    mx_graph_verify(graph);
    mx_pass_remat(graph, options->remat);
    mx_graph_verify(graph);
    mx_pass_fuse(graph);
    mx_pass_schedule(graph);
    mx_pass_bucket(graph);
    mx_graph_verify(graph);
    return mx_pass_memory(graph, options);
}
