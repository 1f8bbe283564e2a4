/* verify.c — the conditions that every graph must satisfy between passes. A violation is a bug of
 * the previous pass. */
#include <mx/graph.h>

static void verify_types(const MxGraph *graph, const MxNode *node, MxArena *arena) {
    MxType *types = mx_new_n(arena, MxType, node->n_in + 1);
    for (int i = 0; i < node->n_in; i++) types[i] = graph->values[node->in[i]].type;
    MxText message;
    mx_text_init(&message, arena);
    MxInfer infer = {
        .in = types, .n_in = node->n_in, .attr = node->attr, .n_out = 1, .message = &message};
    MX_ASSERT(node->op->infer(&infer));
    MX_ASSERT(infer.n_out == node->n_out);
    for (int i = 0; i < node->n_out; i++) {
        MxType type = graph->values[node->out[i]].type;
        MX_ASSERT(type.dtype == infer.out[i].dtype &&
                  mx_shape_equal(type.shape, infer.out[i].shape));
    }
}

/* The variable whose buffer a value is, be it read or made there. */
static int var_of(const MxGraph *graph, MxValue value) {
    value = mx_graph_buffer(graph, value);
    const MxNode *node = mx_graph_producer(graph, value);
    return node->op->flags & MX_OP_SOURCE ? *(const int *)node->attr : graph->values[value].var;
}

/* Whether a value was added to what its variable held: the buffer has the total, not the value. */
static bool is_added(const MxGraph *graph, MxValue value) {
    const MxNode *maker = mx_graph_producer(graph, value);
    for (int i = 0; i < maker->n_out; i++)
        if (maker->out[i] == value) return maker->accumulate >> i & 1;
    return false;
}

void mx_graph_verify(const MxGraph *graph) {
    MxArena arena = {.name = "verify"};
    int n_vars = graph->vars->n ? graph->vars->n : 1;
    MxValue *holds =
        mx_new_n(&arena, MxValue, n_vars); /* value in a variable; MX_NONE = what it started with */
    bool *made = mx_new_n(&arena, bool, graph->n_values + 1);
    for (int i = 0; i < n_vars; i++) holds[i] = MX_NONE;
    for (int n = 0; n < graph->n_nodes; n++) {
        const MxNode *node = &graph->nodes[n];
        for (int i = 0; i < node->n_in; i++) {
            MX_ASSERT(made[node->in[i]]);
            MX_ASSERT(!is_added(graph, node->in[i]));
            MxValue buffer = mx_graph_buffer(graph, node->in[i]);
            bool is_source = mx_graph_producer(graph, buffer)->op->flags & MX_OP_SOURCE;
            int var = var_of(graph, buffer);
            if (var != MX_NONE && !(node->op->flags & MX_OP_VIEW))
                MX_ASSERT(holds[var] == (is_source ? MX_NONE : buffer));
        }
        verify_types(graph, node, &arena);
        for (int i = 0; i < node->n_out; i++) {
            MX_ASSERT(graph->values[node->out[i]].node == n);
            made[node->out[i]] = true;
            int var = graph->values[node->out[i]].var;
            if (var != MX_NONE) holds[var] = node->out[i];
        }
    }
    mx_arena_release(&arena);
}
