/* hoist.c — what entries make anew, run by run, of variables that none of them changes: casts,
 * above all of frozen weights to the dtype of computation. Each is made once instead, into a
 * variable of its own that all entries read. Nothing else is hoisted: whatever else is made of
 * weights alone costs nothing (views). */
#include <mx/lower.h>

/* The constant variable that a node casts, or MX_NONE. */
static int cast_constant(const MxGraph *graph, const MxNode *node, const bool *is_constant, int n) {
    if (!(node->op->flags & MX_OP_CAST) || graph->values[node->out[0]].var != MX_NONE)
        return MX_NONE;
    const MxNode *from = mx_graph_producer(graph, node->in[0]);
    if (!(from->op->flags & MX_OP_SOURCE)) return MX_NONE;
    int var = ((const MxVariableAttr *)from->attr)->var;
    return var < n && is_constant[var] ? var : MX_NONE;
}

/* A variable for the cast of another, which `into` makes. */
static int add_cast(MxVars *vars, int var, MxDtype dtype, MxTrace *into) {
    MxVar from = vars->item[var];
    const char *name = mx_arena_printf(vars->arena, "%s/%s", mx_dtype_name(dtype), from.name);
    int cast = mx_vars_add(vars, name, (MxType){dtype, from.type.shape});
    into->scope = from.name;
    mx_trace_assign(into, mx_cast(into, mx_variable(into, var), dtype), cast, false);
    return cast;
}

/* The node becomes a read of the variable, in its place. */
static void read_instead(MxGraph *graph, MxNode *node, int var) {
    MxVariableAttr attr = {.var = var, .type = graph->vars->item[var].type};
    node->op = &op_variable;
    node->n_in = 0;
    node->attr = mx_arena_grow(graph->arena, &attr, 1, 1, sizeof attr);
    node->region = 0; /* it is there for all layers, and backwards too */
    node->backward = false;
}

const int *mx_hoist_casts(MxVars *vars, const bool *is_constant, MxGraph *const *entries,
                          int n_entries, MxTrace *into) {
    int n = vars->n, *from = mx_new_n(vars->arena, int, n + 1);
    int *cast_of = mx_new_n(vars->arena, int, n + 1); /* real dtypes are two: one cast each */
    for (int i = 0; i < n; i++) cast_of[i] = MX_NONE;
    for (int e = 0; e < n_entries; e++)
        for (int i = 0; i < entries[e]->n_nodes; i++) {
            MxNode *node = &entries[e]->nodes[i];
            int var = cast_constant(entries[e], node, is_constant, n);
            if (var == MX_NONE) continue;
            MxDtype dtype = ((const MxCastAttr *)node->attr)->dtype;
            if (cast_of[var] == MX_NONE) cast_of[var] = add_cast(vars, var, dtype, into);
            from[cast_of[var] - n] = var;
            read_instead(entries[e], node, cast_of[var]);
        }
    return from;
}
