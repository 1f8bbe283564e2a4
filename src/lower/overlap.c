/* overlap.c — exchanges beside computation. An exchange starts as soon as it may and is finished as
 * late as it may, within two bounds that keep few arrays under way:
 *  - what nobody needs for long (a gradient on its way into its variable) is finished when the next
 *    one of its kind starts; an all_reduce, which makes two exchanges, a phase at a time;
 *  - what is gathered from variables (weights, cast or not) starts when the gather before it is
 *    finished: while a product works with one weight, the next is fetched;
 *  - what goes around a ring is finished where it is needed: whoever made the ring started it a
 * round before;
 *  - what another stage of a pipeline sends is awaited from when the one before has come.
 * Nodes are moved for that, but none past another that it depends on, and on all ranks alike. */
#include "order.h"

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
        if (before && is_free && lower_is_of_variables(p->graph, node->in[0])) {
            lower_have_at(p->graph, node->in[0], p->time, before + 1);
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
        if (p->graph->nodes[n].op->collective == MX_RING_SHIFT) {
            p->early[n][0] = (Time)n * NODE;
            p->time[n] = (Time)need[n] * NODE - 1;
        } else if (need[n] > n + 1) {
            waiting[n_waiting++] = n;
        }
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

/* The first place that is not before a time. */
static int place_of(const LowerPlace *order, int n, Time time) {
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
    const LowerPlace *order = lower_reorder(&p->arena, graph, p->time);
    for (int n = 0; n < graph->n_nodes; n++)
        for (int k = 0; k < MX_COUNT(graph->nodes[n].early); k++) {
            Time early = p->early[order[n].node][k];
            graph->nodes[n].early[k] = early ? place_of(order, graph->n_nodes, early) : 0;
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
