/* memory.c — a place in one arena for every value that is in no variable. A buffer lives from the
 * (first) step that makes it to the last step that reads it; what an exchange sends, to its end; an
 * op that may work in place takes over the buffer of an input that dies there. Buffers are placed
 * largest first, each at the lowest offset where nothing that lives at the same time stands. */
#include <mx/lower.h>

#include <stdlib.h>

typedef struct Buffer {
    size_t bytes, offset;
    int first, last; /* steps */
} Buffer;

typedef struct Layout {
    const MxGraph *graph;
    const MxMachine *machine;
    MxArena arena;
    Buffer *buffers;
    int n_buffers;
    int *buffer_of; /* [value], -1 = in a variable */
    int *first_of;  /* [node] its first step */
    int *step_of;   /* [node] its last step, -1 = runs nothing */
    int *steps, *phases, n_steps;
    int *last_use; /* [value that owns a buffer] */
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
            l->buffer_of[out] =
                old >= 0 ? old : new_buffer(l, bytes_of(graph, out), l->first_of[n], step);
            l->buffers[l->buffer_of[out]].last = l->last_use[out];
        }
    }
}

/* ---- places */

/* Bytes from one offset to before another. */
typedef struct Extent {
    size_t offset, end;
} Extent;

/* Extents in order that neither overlap nor touch. */
typedef struct Extents {
    Extent *item;
    int n, cap;
} Extents;

/* What is occupied when: a tree over steps, node k with children 2 k and 2 k + 1, the root 1. */
typedef struct Times {
    MxArena *arena;
    int n_leaves; /* a power of two */
    Extents
        *always;   /* [node] during all its steps; noted at the highest node of which it is true */
    Extents *ever; /* [node] during any of them, noted there or below */
} Times;

static Times new_times(MxArena *arena, int n_steps) {
    Times t = {.arena = arena, .n_leaves = 1};
    while (t.n_leaves < n_steps) t.n_leaves *= 2;
    t.always = mx_new_n(arena, Extents, 2 * t.n_leaves);
    t.ever = mx_new_n(arena, Extents, 2 * t.n_leaves);
    return t;
}

/* The first that ends behind an offset. */
static int first_behind(const Extents *x, size_t offset) {
    int low = 0, high = x->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (x->item[middle].end <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void add_extent(MxArena *arena, Extents *x, Extent e) {
    int at = e.offset ? first_behind(x, e.offset - 1) : 0, end = at;
    for (; end < x->n && x->item[end].offset <= e.end; end++) {
        if (x->item[end].offset < e.offset) e.offset = x->item[end].offset;
        if (x->item[end].end > e.end) e.end = x->item[end].end;
    }
    if (at == end && x->n == x->cap) {
        x->cap = x->cap ? 2 * x->cap : 4;
        x->item = mx_arena_grow(arena, x->item, (size_t)x->n, (size_t)x->cap, sizeof *x->item);
    }
    memmove(x->item + at + 1, x->item + end, (size_t)(x->n - end) * sizeof *x->item);
    x->n += 1 - (end - at);
    x->item[at] = e;
}

/* Of node k, whose steps are from .. from + n - 1. */
static void occupy(Times *t, const Buffer *b, int k, int from, int n) {
    const Extent e = {b->offset, b->offset + b->bytes};
    if (b->last < from || b->first > from + n - 1) return;
    add_extent(t->arena, &t->ever[k], e);
    if (b->first <= from && b->last >= from + n - 1) {
        add_extent(t->arena, &t->always[k], e);
        return;
    }
    occupy(t, b, 2 * k, from, n / 2);
    occupy(t, b, 2 * k + 1, from + n / 2, n / 2);
}

enum { MOST_SETS = 4 * 32 }; /* two ways down a tree, and what branches off */

/* What is occupied at any time of a buffer's life, in so many sets. */
static int find_occupied(const Times *t, const Buffer *b, int k, int from, int n,
                         const Extents *sets[MOST_SETS], int n_sets) {
    if (b->last < from || b->first > from + n - 1 || !t->ever[k].n) return n_sets;
    bool is_within = b->first <= from && b->last >= from + n - 1;
    MX_ASSERT(n_sets < MOST_SETS);
    sets[n_sets++] = is_within ? &t->ever[k] : &t->always[k];
    if (is_within) return n_sets;
    n_sets = find_occupied(t, b, 2 * k, from, n / 2, sets, n_sets);
    return find_occupied(t, b, 2 * k + 1, from + n / 2, n / 2, sets, n_sets);
}

/* The lowest offset where nothing lies: behind whatever is met, until nothing is. */
static size_t find_room(const Times *t, const Buffer *b) {
    const Extents *sets[MOST_SETS];
    int n = find_occupied(t, b, 1, 0, t->n_leaves, sets, 0);
    size_t offset = 0;
    for (bool is_met = true; is_met;) {
        is_met = false;
        for (int i = 0; i < n; i++) {
            int at = first_behind(sets[i], offset);
            if (at == sets[i]->n || sets[i]->item[at].offset >= offset + b->bytes) continue;
            offset = sets[i]->item[at].end;
            is_met = true;
        }
    }
    return offset;
}

static int larger_first(const void *a, const void *b) {
    const Buffer *x = *(Buffer *const *)a, *y = *(Buffer *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x < y ? -1 : x > y;
}

/* Largest first, each at the lowest offset where nothing lies that lives while it does. */
static size_t place_buffers(Layout *l) {
    Buffer **order = mx_new_n(&l->arena, Buffer *, l->n_buffers + 1);
    Times times = new_times(&l->arena, l->n_steps);
    size_t top = 0;
    for (int i = 0; i < l->n_buffers; i++) order[i] = &l->buffers[i];
    qsort(order, (size_t)l->n_buffers, sizeof *order, larger_first);
    for (int i = 0; i < l->n_buffers && order[i]->bytes; i++) {
        order[i]->offset = find_room(&times, order[i]);
        occupy(&times, order[i], 1, 0, times.n_leaves);
        if (order[i]->offset + order[i]->bytes > top) top = order[i]->offset + order[i]->bytes;
    }
    return top;
}

/* ---- steps: nodes in order, exchanges in several */

static void add_step(Layout *l, int node, int phase) {
    if (!phase) l->first_of[node] = l->n_steps;
    l->step_of[node] = l->n_steps;
    l->steps[l->n_steps] = node;
    l->phases[l->n_steps++] = phase;
}

static int phases_of(const Layout *l, const MxNode *node) {
    if (!runs(node)) return 0;
    MxType in = node->n_in ? l->graph->values[node->in[0]].type : (MxType){0};
    return mx_op_phases(l->machine, node->op, in, node->attr);
}

static void order_steps(Layout *l) {
    enum { EARLY = MX_COUNT(((MxNode *)0)->early) };
    const MxGraph *graph = l->graph;
    int *first = mx_new_n(&l->arena, int, graph->n_nodes + 1); /* [node] early phase before it */
    int *next = mx_new_n(&l->arena, int, EARLY * graph->n_nodes + 1);
    l->steps = mx_new_n(graph->arena, int, MX_MAX_PHASES * graph->n_nodes + 1);
    l->phases = mx_new_n(graph->arena, int, MX_MAX_PHASES * graph->n_nodes + 1);
    for (int n = graph->n_nodes - 1; n >= 0; n--)
        for (int k = EARLY - 1; k >= 0; k--) {
            int at = graph->nodes[n].early[k];
            if (!at) continue;
            next[EARLY * n + k] = first[at];
            first[at] = EARLY * n + k + 1;
        }
    for (int n = 0; n < graph->n_nodes; n++) {
        const MxNode *node = &graph->nodes[n];
        int n_phases = phases_of(l, node);
        for (int e = first[n]; e; e = next[e - 1]) add_step(l, (e - 1) / EARLY, (e - 1) % EARLY);
        if (!n_phases) l->step_of[n] = -1;
        for (int k = 0; k < n_phases; k++)
            if (k + 1 == n_phases || !node->early[k]) add_step(l, n, k);
    }
}

/* The buffer of each node's scratch, which it has from its first step to its last. */
static int *add_scratch(Layout *l, const MxLowerOptions *options) {
    const MxGraph *graph = l->graph;
    int *buffer = mx_new_n(&l->arena, int, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        if (l->step_of[n] < 0) continue;
        size_t bytes = options->scratch_bytes(options->context, graph, &graph->nodes[n]);
        bytes = (bytes + MX_BUFFER_ALIGN - 1) / MX_BUFFER_ALIGN * MX_BUFFER_ALIGN;
        buffer[n] = new_buffer(l, bytes, l->first_of[n], l->step_of[n]);
    }
    return buffer;
}

MxLowered mx_pass_memory(const MxGraph *graph, const MxLowerOptions *options) {
    Layout l = {.graph = graph, .machine = options->machine, .arena = {.name = "memory"}};
    l.first_of = mx_new_n(&l.arena, int, graph->n_nodes + 1);
    l.step_of = mx_new_n(&l.arena, int, graph->n_nodes + 1);
    l.buffer_of = mx_new_n(&l.arena, int, graph->n_values + 1);
    l.last_use = mx_new_n(&l.arena, int, graph->n_values + 1);
    l.buffers = mx_new_n(&l.arena, Buffer, graph->n_values + graph->n_nodes + 1);
    for (int v = 0; v < graph->n_values; v++) l.buffer_of[v] = -1;
    order_steps(&l);
    find_lifetimes(&l);
    assign_buffers(&l);
    const int *scratch = add_scratch(&l, options);
    MxLowered lowered = {.graph = graph,
                         .steps = l.steps,
                         .phases = l.phases,
                         .n_steps = l.n_steps,
                         .arena_bytes = place_buffers(&l)};
    size_t *offsets = mx_new_n(graph->arena, size_t, graph->n_values + 1);
    size_t *scratch_offsets = mx_new_n(graph->arena, size_t, l.n_steps + 1);
    for (int v = 0; v < graph->n_values; v++)
        if (l.buffer_of[v] >= 0) offsets[v] = l.buffers[l.buffer_of[v]].offset;
    for (int s = 0; s < l.n_steps; s++) scratch_offsets[s] = l.buffers[scratch[l.steps[s]]].offset;
    lowered.value_offset = offsets;
    lowered.scratch_offset = scratch_offsets;
    mx_arena_release(&l.arena);
    return lowered;
}
