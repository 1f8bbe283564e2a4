/* schedule.c — drops nodes whose results nobody needs and puts the rest into an order that respects
 * data and variables: readers of a variable's old content before its writer, several writers as
 * they were traced. Among nodes that could run next the one traced first goes first, so the order
 * is the model's own wherever it may be. */
#include <mx/lower.h>

typedef struct Edge {
    int to;
    int next; /* index of the next edge of the same node, -1 = none */
} Edge;

typedef struct Order {
    const MxGraph *graph;
    MxArena arena;
    bool *is_live;
    int *first_writer; /* [variable] node that overwrites what it started with, or MX_NONE */
    int *next_writer;  /* [value in a variable] node that overwrites it, or MX_NONE */
    int *waits_for;    /* [node] unfinished predecessors */
    int *first;        /* [node] its first edge */
    Edge *edges;
    int n_edges, cap_edges;
} Order;

/* Whether ranks of several stages make it together. */
static bool is_uneven(const MxNode *node) {
    const MxCollective kind = node->op->collective;
    return kind && kind != MX_RECEIVE && ((const MxCollectiveAttr *)node->attr)->group.is_uneven;
}

/* Whether another rank waits for it. */
static bool is_met(const MxNode *node) {
    return node->op->flags & MX_OP_IS_MET || is_uneven(node);
}

static void mark_live(Order *o) {
    const MxGraph *graph = o->graph;
    bool *wanted = mx_new_n(&o->arena, bool, graph->n_values + 1);
    bool grows = true;
    while (grows) { /* a second round only if nodes stand out of order */
        grows = false;
        for (int n = graph->n_nodes - 1; n >= 0; n--) {
            const MxNode *node = &graph->nodes[n];
            bool live = is_met(node);
            for (int i = 0; i < node->n_out; i++)
                live = live || wanted[node->out[i]] || graph->values[node->out[i]].var != MX_NONE;
            if (!live || o->is_live[n]) continue;
            o->is_live[n] = grows = true;
            for (int i = 0; i < node->n_in; i++) wanted[node->in[i]] = true;
        }
    }
}

static void add_edge(Order *o, int from, int to) {
    if (from == to) return;
    if (o->n_edges == o->cap_edges) {
        o->cap_edges = o->cap_edges ? 2 * o->cap_edges : 1024;
        o->edges = mx_arena_grow(&o->arena, o->edges, (size_t)o->n_edges, (size_t)o->cap_edges,
                                 sizeof *o->edges);
    }
    o->edges[o->n_edges] = (Edge){.to = to, .next = o->first[from]};
    o->first[from] = o->n_edges++;
    o->waits_for[to]++;
}

/* Each writer of a variable before the next. */
static void order_writers(Order *o) {
    const MxGraph *graph = o->graph;
    MxValue *holds = mx_new_n(&o->arena, MxValue, graph->vars->n + 1);
    o->first_writer = mx_new_n(&o->arena, int, graph->vars->n + 1);
    o->next_writer = mx_new_n(&o->arena, int, graph->n_values + 1);
    for (int i = 0; i < graph->vars->n; i++) holds[i] = o->first_writer[i] = MX_NONE;
    for (int i = 0; i < graph->n_values; i++) o->next_writer[i] = MX_NONE;
    for (int n = 0; n < graph->n_nodes; n++) {
        const MxNode *node = &graph->nodes[n];
        for (int i = 0; o->is_live[n] && i < node->n_out; i++) {
            int var = graph->values[node->out[i]].var;
            if (var == MX_NONE) continue;
            MxValue old = holds[var];
            *(old == MX_NONE ? &o->first_writer[var] : &o->next_writer[old]) = n;
            if (old != MX_NONE) add_edge(o, graph->values[old].node, n);
            holds[var] = node->out[i];
        }
    }
}

/* Exchanges of several stages in the order in which they stand: their ranks' programs have nothing
 * else in common. */
static void order_uneven(Order *o) {
    int last = MX_NONE;
    for (int n = 0; n < o->graph->n_nodes; n++) {
        if (!o->is_live[n] || !is_uneven(&o->graph->nodes[n])) continue;
        if (last != MX_NONE) add_edge(o, last, n);
        last = n;
    }
}

/* Each node after the makers of its inputs, and before what overwrites them. */
static void order_nodes(Order *o) {
    const MxGraph *graph = o->graph;
    order_writers(o);
    order_uneven(o);
    for (int n = 0; n < graph->n_nodes; n++) {
        if (!o->is_live[n]) continue;
        const MxNode *node = &graph->nodes[n];
        for (int i = 0; i < node->n_in; i++) {
            add_edge(o, graph->values[node->in[i]].node, n);
            MxValue buffer = mx_graph_buffer(graph, node->in[i]);
            const MxNode *maker = mx_graph_producer(graph, buffer);
            bool is_source = maker->op->flags & MX_OP_SOURCE;
            int writer =
                is_source ? o->first_writer[*(const int *)maker->attr] : o->next_writer[buffer];
            if (writer != MX_NONE) add_edge(o, n, writer);
        }
    }
}

/* A heap of node indices, smallest on top. */
static void heap_push(int *heap, int *n, int node) {
    int i = (*n)++;
    for (; i && heap[(i - 1) / 2] > node; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = node;
}

static int heap_pop(int *heap, int *n) {
    int top = heap[0], last = heap[--*n], i = 0;
    for (;;) {
        int child = 2 * i + 1;
        if (child + 1 < *n && heap[child + 1] < heap[child]) child++;
        if (child >= *n || heap[child] >= last) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

static void mark_unused(MxGraph *graph, MxArena *arena) {
    bool *is_used = mx_new_n(arena, bool, graph->n_values + 1);
    for (int n = 0; n < graph->n_nodes; n++)
        for (int i = 0; i < graph->nodes[n].n_in; i++) is_used[graph->nodes[n].in[i]] = true;
    for (int n = 0; n < graph->n_nodes; n++) {
        MxNode *node = &graph->nodes[n];
        node->unused = 0;
        for (int i = 0; i < node->n_out; i++)
            if (!is_used[node->out[i]] && graph->values[node->out[i]].var == MX_NONE &&
                !is_met(node))
                node->unused |= 1u << i;
    }
}

void mx_pass_schedule(MxGraph *graph) {
    Order o = {.graph = graph, .arena = {.name = "schedule"}};
    int n_nodes = graph->n_nodes, n_ready = 0, n_done = 0, n_live = 0;
    o.is_live = mx_new_n(&o.arena, bool, n_nodes + 1);
    o.waits_for = mx_new_n(&o.arena, int, n_nodes + 1);
    o.first = mx_new_n(&o.arena, int, n_nodes + 1);
    int *heap = mx_new_n(&o.arena, int, n_nodes + 1);
    for (int n = 0; n < n_nodes; n++) o.first[n] = -1;
    mark_live(&o);
    order_nodes(&o);
    MxNode *ordered = mx_new_n(graph->arena, MxNode, n_nodes + 1);
    for (int n = 0; n < n_nodes; n++) {
        n_live += o.is_live[n];
        if (o.is_live[n] && !o.waits_for[n]) heap_push(heap, &n_ready, n);
    }
    while (n_ready) {
        int n = heap_pop(heap, &n_ready);
        ordered[n_done++] = graph->nodes[n];
        for (int e = o.first[n]; e >= 0; e = o.edges[e].next)
            if (!--o.waits_for[o.edges[e].to]) heap_push(heap, &n_ready, o.edges[e].to);
    }
    MX_ASSERT(n_done == n_live); /* else there is a cycle */
    for (int n = 0; n < n_nodes; n++)
        for (int i = 0; !o.is_live[n] && i < graph->nodes[n].n_out; i++)
            graph->values[graph->nodes[n].out[i]].node = MX_NONE;
    graph->nodes = ordered;
    graph->n_nodes = n_done;
    graph->cap_nodes = n_nodes + 1;
    for (int n = 0; n < n_done; n++)
        for (int i = 0; i < ordered[n].n_out; i++) graph->values[ordered[n].out[i]].node = n;
    mark_unused(graph, &o.arena);
    mx_arena_release(&o.arena);
}
