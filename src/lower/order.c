/* order.c — nodes in another order: each pass that moves nodes gives every node a time, and values
 * that come from variables alone may be there earlier. */
#include "order.h"

#include <stdlib.h>

bool lower_is_of_variables(const MxGraph *graph, MxValue value) {
    const MxNode *node = mx_graph_producer(graph, value);
    if (node->op->flags & MX_OP_SOURCE) return true;
    bool is = node->op->flags & (MX_OP_CAST | MX_OP_VIEW | MX_OP_PACK) &&
              graph->values[value].var == MX_NONE;
    for (int i = 0; is && i < node->n_in; i++) is = lower_is_of_variables(graph, node->in[i]);
    return is;
}

void lower_have_at(const MxGraph *graph, MxValue value, int64_t *time, int64_t at) {
    int maker = graph->values[value].node;
    const MxNode *node = &graph->nodes[maker];
    if (time[maker] > at) time[maker] = at;
    for (int i = 0; i < node->n_in; i++) lower_have_at(graph, node->in[i], time, at);
}

static int earlier_first(const void *a, const void *b) {
    const LowerPlace *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

const LowerPlace *lower_reorder(MxArena *arena, MxGraph *graph, const int64_t *time) {
    int n_nodes = graph->n_nodes;
    LowerPlace *order = mx_new_n(arena, LowerPlace, n_nodes + 1);
    const MxNode *old =
        mx_arena_grow(arena, graph->nodes, (size_t)n_nodes, (size_t)n_nodes + 1, sizeof *old);
    for (int n = 0; n < n_nodes; n++) order[n] = (LowerPlace){time[n], n};
    qsort(order, (size_t)n_nodes, sizeof *order, earlier_first);
    graph->n_nodes = 0;
    for (int n = 0; n < n_nodes; n++) mx_graph_add_node(graph, old[order[n].node]);
    return order;
}
