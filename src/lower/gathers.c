/* gathers.c — small weights are gathered together, those of several layers if they are small
 * enough. A gather stands before the first node that needs it, so that of a layer's small weights
 * each would be an exchange of its own. Here those of variables that fit into one bucket go to
 * where the first of them stands, in the forward and in the backward pass, and bucket.c makes one
 * of them. What is gathered is in memory for longer: at most a bucket. */
#include <mx/lower.h>

#include <stdlib.h>

enum { MOST_WINDOWS = 32 };

/* Gathers of a kind that go to one place. */
typedef struct Window {
    const MxNode *first;
    int at; /* where that stands */
    size_t bytes;
} Window;

typedef struct Pass {
    MxGraph *graph;
    const MxMachine *machine;
    MxArena arena;
    int *place;      /* [node] the node of the old order behind which it stands now, or itself */
    int *written_at; /* [variable] 1 + the last node that wrote it; 0 = none has */
    Window window[MOST_WINDOWS];
    int n; /* windows; a new one replaces the oldest */
} Pass;

static size_t gathered_bytes(const Pass *p, const MxNode *node) {
    MxType type = p->graph->values[node->out[0]].type;
    return (size_t)mx_shape_count(type.shape) * mx_dtype_bytes(type.dtype);
}

static bool is_small_gather(const Pass *p, const MxNode *node) {
    if (node->op->collective != MX_ALL_GATHER) return false;
    const MxCollectiveAttr *attr = node->attr;
    return !attr->group.is_uneven && p->graph->values[node->out[0]].var == MX_NONE &&
           gathered_bytes(p, node) <= p->machine->small_bytes;
}

static bool is_alike(const Pass *p, const MxNode *a, const MxNode *b) {
    const MxCollectiveAttr *x = a->attr, *y = b->attr;
    return x->group.id == y->group.id && a->backward == b->backward && a->is_again == b->is_again &&
           p->graph->values[a->in[0]].type.dtype == p->graph->values[b->in[0]].type.dtype;
}

/* Lets a value that is a variable's, cast or seen as another shape, be there at a node; false if it
 * is anything else, or the variable is written after that. */
static bool have_at(Pass *p, MxValue value, int at) {
    enum { MOST = 4 }; /* nodes: view, cast, view, variable */
    int chain[MOST], n = 0;
    bool is_source = false;
    while (n < MOST && !is_source) {
        const MxNode *node = mx_graph_producer(p->graph, value);
        is_source = node->op->flags & MX_OP_SOURCE;
        if (!is_source && (!(node->op->flags & (MX_OP_CAST | MX_OP_VIEW)) ||
                           p->graph->values[value].var != MX_NONE))
            return false;
        if (is_source && p->written_at[((const MxVariableAttr *)node->attr)->var] > at)
            return false;
        chain[n++] = p->graph->values[value].node;
        if (!is_source) value = node->in[0];
    }
    for (int i = 0; is_source && i < n; i++)
        if (p->place[chain[i]] > at) p->place[chain[i]] = at;
    return is_source;
}

static void place_gather(Pass *p, int n) {
    const MxNode *node = &p->graph->nodes[n];
    size_t bytes = gathered_bytes(p, node);
    int w = 0, n_windows = p->n < MOST_WINDOWS ? p->n : MOST_WINDOWS;
    while (w < n_windows && !is_alike(p, node, p->window[w].first)) w++;
    Window *window = &p->window[w < n_windows ? w : p->n++ % MOST_WINDOWS];
    bool joins = w < n_windows && window->bytes + bytes <= p->machine->bucket_bytes;
    if (joins && have_at(p, node->in[0], window->at)) {
        window->bytes += bytes;
        p->place[n] = window->at;
    } else if (!joins) {
        *window = (Window){.first = node, .at = n, .bytes = bytes};
    }
}

/* ---- the new order */

typedef struct Place {
    int at, node;
} Place;

static int earlier_first(const void *a, const void *b) {
    const Place *x = a, *y = b;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at)
                          : (x->node > y->node) - (x->node < y->node);
}

static void reorder(Pass *p) {
    MxGraph *graph = p->graph;
    int n_nodes = graph->n_nodes;
    Place *order = mx_new_n(&p->arena, Place, n_nodes + 1);
    const MxNode *old =
        mx_arena_grow(&p->arena, graph->nodes, (size_t)n_nodes, (size_t)n_nodes + 1, sizeof *old);
    for (int n = 0; n < n_nodes; n++) order[n] = (Place){p->place[n], n};
    qsort(order, (size_t)n_nodes, sizeof *order, earlier_first);
    graph->n_nodes = 0;
    for (int n = 0; n < n_nodes; n++) mx_graph_add_node(graph, old[order[n].node]);
}

void mx_pass_gathers(MxGraph *graph, const MxMachine *machine) {
    Pass p = {.graph = graph, .machine = machine, .arena = {.name = "gathers"}};
    p.place = mx_new_n(&p.arena, int, graph->n_nodes + 1);
    p.written_at = mx_new_n(&p.arena, int, graph->vars->n + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const MxNode *node = &graph->nodes[n];
        p.place[n] = n;
        if (is_small_gather(&p, node)) place_gather(&p, n);
        for (int i = 0; i < node->n_out; i++)
            if (graph->values[node->out[i]].var != MX_NONE)
                p.written_at[graph->values[node->out[i]].var] = n + 1;
    }
    reorder(&p);
    mx_arena_release(&p.arena);
}
