/* overlap.c — exchanges beside computation. An exchange starts as soon as it may and is finished as
 * late as it may, within two bounds that keep few arrays under way:
 *  - what nobody needs for long (a gradient on its way into its variable) is finished when the next
 *    one of its kind starts; an all_reduce, which makes two exchanges, a phase at a time;
 *  - what is gathered from variables (weights, cast or not) starts when the gather before it is
 *    finished: while a product works with one weight, the next is fetched;
 *  - what another stage of a pipeline sends is awaited from when the one before has come.
 * Nodes are moved for that, but none past another that it depends on, and on all ranks alike. */
#include <mx/lower.h>

#include <stdlib.h>

/* Where things happen, on a scale on which node n of the old order is at n * NODE. */
enum { NODE = 8 };
typedef int64_t Time;

typedef struct Pass {
    MxGraph *graph;
    const MxMachine *machine;
    MxArena arena;
    Time *time;                       /* [node] of its last phase */
    Time (*early)[MX_MAX_PHASES - 1]; /* [node] of the phases before; 0 = just before the last */
} Pass;

static int phases_of(const Pass *p, int n) {
    const MxNode *node = &p->graph->nodes[n];
    MxType in = node->n_in ? p->graph->values[node->in[0]].type : (MxType){0};
    return mx_op_phases(p->machine, node->op, in, node->attr);
}

/* Exchanges of several stages stay where they are: their programs have nothing else in common. */
static bool is_fixed(const MxNode *node) {
    const MxCollective kind = node->op->collective;
    return kind == MX_RECEIVE || (kind && ((const MxCollectiveAttr *)node->attr)->group.is_uneven);
}

/* ---- started early */

/* Whether a value is a variable's, cast or seen as another shape, or several of these packed. */
static bool is_of_variables(const Pass *p, MxValue value) {
    const MxNode *node = mx_graph_producer(p->graph, value);
    if (node->op->flags & MX_OP_SOURCE) return true;
    bool is = node->op->flags & (MX_OP_CAST | MX_OP_VIEW | MX_OP_PACK);
    for (int i = 0; is && i < node->n_in; i++) is = is_of_variables(p, node->in[i]);
    return is;
}

/* Lets such a value be there at a time at which it may not have been made yet. */
static void have_at(Pass *p, MxValue value, Time time) {
    int maker = p->graph->values[value].node;
    const MxNode *node = &p->graph->nodes[maker];
    if (p->time[maker] > time) p->time[maker] = time;
    for (int i = 0; i < node->n_in; i++) have_at(p, node->in[i], time);
}

/* What another stage sends may come while the layers work on what it sent before. */
static void receive_early(Pass *p) {
    Time before = 0; /* end of the one before */
    for (int n = 0; n < p->graph->n_nodes; n++) {
        if (p->graph->nodes[n].op->collective != MX_RECEIVE) continue;
        if (before) p->early[n][0] = before + 2;
        before = p->time[n];
    }
}

static void start_early(Pass *p) {
    Time before = 0; /* end of the gather before */
    for (int n = 0; n < p->graph->n_nodes; n++) {
        const MxNode *node = &p->graph->nodes[n];
        if (node->op->collective != MX_ALL_GATHER || phases_of(p, n) == 1 || is_fixed(node))
            continue;
        bool is_free = p->graph->values[node->out[0]].var == MX_NONE;
        if (before && is_free && is_of_variables(p, node->in[0])) {
            have_at(p, node->in[0], before + 1);
            p->early[n][0] = before + 2;
        }
        before = p->time[n];
    }
}

/* ---- finished late */

static int var_of(const MxGraph *graph, MxValue value) {
    const MxNode *node = mx_graph_producer(graph, mx_graph_buffer(graph, value));
    if (node->op->flags & MX_OP_SOURCE) return *(const int *)node->attr;
    return graph->values[mx_graph_buffer(graph, value)].var;
}

/* Whether a node must come after the end of an exchange that stands before it. */
static bool needs_end(const Pass *p, const MxNode *node, const MxNode *exchange) {
    const MxGraph *graph = p->graph;
    int reads = var_of(graph, exchange->in[0]), writes = graph->values[exchange->out[0]].var;
    for (int i = 0; i < node->n_in; i++) {
        if (mx_graph_buffer(graph, node->in[i]) == exchange->out[0]) return true;
        if (writes != MX_NONE && var_of(graph, node->in[i]) == writes) return true;
    }
    for (int i = 0; i < node->n_out; i++) {
        int var = graph->values[node->out[i]].var;
        if (var != MX_NONE && (var == reads || var == writes)) return true;
    }
    return false;
}

static int first_need(const Pass *p, int n) {
    int at = n + 1;
    while (at < p->graph->n_nodes && !needs_end(p, &p->graph->nodes[at], &p->graph->nodes[n])) at++;
    return at;
}

static void finish_late(Pass *p) {
    int *waiting = mx_new_n(&p->arena, int, p->graph->n_nodes + 1), n_waiting = 0;
    int *need = mx_new_n(&p->arena, int, p->graph->n_nodes + 1);
    for (int n = 0; n < p->graph->n_nodes; n++) {
        if (phases_of(p, n) == 1 || p->early[n][0] || is_fixed(&p->graph->nodes[n])) continue;
        need[n] = first_need(p, n);
        if (need[n] > n + 1) waiting[n_waiting++] = n;
    }
    for (int i = 0; i < n_waiting; i++) {
        int n = waiting[i], phases = phases_of(p, n);
        p->early[n][0] = (Time)n * NODE;
        for (int k = 1; k < phases; k++) {
            int at = i + k < n_waiting ? waiting[i + k] : p->graph->n_nodes;
            Time end = (Time)(at < need[n] ? at : need[n]) * NODE - 1;
            *(k + 1 == phases ? &p->time[n] : &p->early[n][k]) = end;
        }
    }
}

/* ---- the new order */

typedef struct Place {
    Time time;
    int node;
} Place;

static int earlier_first(const void *a, const void *b) {
    const Place *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* The first place that is not before a time. */
static int place_of(const Place *order, int n, Time time) {
    int low = 0, high = n;
    while (low < high) {
        int mid = (low + high) / 2;
        if (order[mid].time < time)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void reorder(Pass *p) {
    MxGraph *graph = p->graph;
    int n_nodes = graph->n_nodes;
    Place *order = mx_new_n(&p->arena, Place, n_nodes + 1);
    const MxNode *old =
        mx_arena_grow(&p->arena, graph->nodes, (size_t)n_nodes, (size_t)n_nodes + 1, sizeof *old);
    for (int n = 0; n < n_nodes; n++) order[n] = (Place){p->time[n], n};
    qsort(order, (size_t)n_nodes, sizeof *order, earlier_first);
    graph->n_nodes = 0;
    for (int n = 0; n < n_nodes; n++) {
        MxNode node = old[order[n].node];
        for (int k = 0; k < MX_COUNT(node.early); k++) {
            Time early = p->early[order[n].node][k];
            node.early[k] = early ? place_of(order, n_nodes, early) : 0;
        }
        mx_graph_add_node(graph, node);
    }
}

void mx_pass_overlap(MxGraph *graph, const MxMachine *machine) {
    Pass p = {.graph = graph, .machine = machine, .arena = {.name = "overlap"}};
    p.time = mx_new_n(&p.arena, Time, graph->n_nodes + 1);
    p.early = mx_arena_alloc(&p.arena, sizeof *p.early * (size_t)(graph->n_nodes + 1));
    for (int n = 0; n < graph->n_nodes; n++) p.time[n] = (Time)n * NODE;
    start_early(&p);
    receive_early(&p);
    finish_late(&p);
    reorder(&p);
    mx_arena_release(&p.arena);
}
