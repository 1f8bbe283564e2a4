/* trace.c — adds variables, nodes and values; after the first failure later calls do nothing. */
#include <mx/graph.h>

int mx_vars_add(MxVars *vars, const char *name, MxType type) {
    if (vars->n == vars->cap) {
        vars->cap = vars->cap ? 2 * vars->cap : 64;
        vars->item = mx_arena_grow(vars->arena, vars->item, (size_t)vars->n, (size_t)vars->cap,
                                   sizeof *vars->item);
    }
    vars->item[vars->n] = (MxVar){.name = name, .type = type};
    return vars->n++;
}

MxGraph *mx_graph_new(MxArena *arena, const char *name, const MxVars *vars) {
    MxGraph *graph = mx_new(arena, MxGraph);
    *graph = (MxGraph){.arena = arena, .name = name, .vars = vars};
    return graph;
}

void mx_graph_seen(const MxGraph *graph, const char *pass) {
    if (graph->watch) graph->watch->see(graph->watch->context, graph, pass);
}

void mx_trace_begin(MxTrace *t, MxGraph *graph) {
    *t = (MxTrace){.graph = graph, .scope = ""};
    mx_text_init(&t->failure, graph->arena);
}

bool mx_trace_end(MxTrace *t, MxError *err) {
    if (!t->failure.len) return true;
    return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s", t->failure.data);
}

static void start_failure(MxTrace *t) {
    if (*t->scope) mx_text_add(&t->failure, "%s: ", t->scope);
}

void mx_trace_fail(MxTrace *t, const char *fmt, ...) {
    if (t->failure.len) return;
    start_failure(t);
    va_list ap;
    va_start(ap, fmt);
    mx_text_vadd(&t->failure, fmt, ap);
    va_end(ap);
}

bool mx_infer_fail(MxInfer *infer, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    mx_text_vadd(infer->message, fmt, ap);
    va_end(ap);
    return false;
}

MxValue mx_graph_add_value(MxGraph *graph, MxValueInfo info) {
    if (graph->n_values == graph->cap_values) {
        graph->cap_values = graph->cap_values ? 2 * graph->cap_values : 256;
        graph->values = mx_arena_grow(graph->arena, graph->values, (size_t)graph->n_values,
                                      (size_t)graph->cap_values, sizeof *graph->values);
    }
    graph->values[graph->n_values] = info;
    return graph->n_values++;
}

void mx_graph_add_node(MxGraph *graph, MxNode node) {
    if (graph->n_nodes == graph->cap_nodes) {
        graph->cap_nodes = graph->cap_nodes ? 2 * graph->cap_nodes : 256;
        graph->nodes = mx_arena_grow(graph->arena, graph->nodes, (size_t)graph->n_nodes,
                                     (size_t)graph->cap_nodes, sizeof *graph->nodes);
    }
    for (int i = 0; i < node.n_out; i++) graph->values[node.out[i]].node = graph->n_nodes;
    graph->nodes[graph->n_nodes++] = node;
}

/* Runs the shape rule over types of the inputs; false leaves the failure in the trace. */
static bool infer_types(MxTrace *t, const MxOp *op, const MxValue *in, MxInfer *infer) {
    MxType *types = mx_new_n(t->graph->arena, MxType, infer->n_in ? infer->n_in : 1);
    for (int i = 0; i < infer->n_in; i++) types[i] = t->graph->values[in[i]].type;
    MxText message;
    mx_text_init(&message, t->graph->arena);
    infer->in = types;
    infer->message = &message;
    if (op->infer(infer)) return true;
    start_failure(t);
    mx_text_add(&t->failure, "%s: %s (inputs", op->name, message.data);
    for (int i = 0; i < infer->n_in; i++)
        mx_text_add(&t->failure, " %s%s", mx_dtype_name(types[i].dtype),
                    mx_shape_text(t->graph->arena, types[i].shape));
    mx_text_add(&t->failure, ")");
    return false;
}

MxValue mx_trace_node(MxTrace *t, const MxOp *op, const MxValue *in, int n_in, const void *attr) {
    MxGraph *graph = t->graph;
    if (t->failure.len) return MX_NONE;
    MX_ASSERT(op->arity < 0 || (op->arity <= n_in && n_in <= op->arity + op->optional));
    for (int i = 0; i < n_in; i++) MX_ASSERT(in[i] >= 0 && in[i] < graph->n_values);
    MxInfer infer = {.n_in = n_in, .attr = attr, .n_out = 1};
    if (!infer_types(t, op, in, &infer)) return MX_NONE;
    MxNode node = {.op = op,
                   .n_in = n_in,
                   .n_out = infer.n_out,
                   .scope = t->scope,
                   .region = t->region,
                   .backward = t->backward};
    node.in = mx_arena_grow(graph->arena, in, (size_t)n_in, (size_t)n_in + 1, sizeof *in);
    if (op->attr_bytes) node.attr = mx_arena_grow(graph->arena, attr, 1, 1, op->attr_bytes);
    for (int i = 0; i < infer.n_out; i++)
        node.out[i] = mx_graph_add_value(
            graph, (MxValueInfo){.type = infer.out[i], .var = MX_NONE, .like = MX_NONE});
    mx_graph_add_node(graph, node);
    return node.out[0];
}

MxType mx_trace_type(const MxTrace *t, MxValue value) {
    return value < 0 ? (MxType){0} : t->graph->values[value].type;
}

MxValue mx_trace_constrain(MxTrace *t, MxValue value, const char *const axes[]) {
    if (value < 0) return value;
    MxValueInfo *info = &t->graph->values[value];
    for (int i = 0; i < info->type.shape.rank; i++) info->axes[i] = axes[i];
    return value;
}

MxValue mx_trace_like(MxTrace *t, MxValue value, int var) {
    if (value < 0) return value;
    MX_ASSERT(
        mx_shape_equal(t->graph->values[value].type.shape, t->graph->vars->item[var].type.shape));
    t->graph->values[value].like = var;
    return value;
}

MxValue mx_trace_send_as(MxTrace *t, MxValue value, MxDtype wire, int lost) {
    if (value < 0) return value;
    MX_ASSERT(
        mx_shape_equal(t->graph->values[value].type.shape, t->graph->vars->item[lost].type.shape));
    t->graph->values[value].wire = wire;
    t->graph->values[value].lost = lost;
    return value;
}

MxValue mx_trace_terms(MxTrace *t, MxValue value, const char *mesh_axis) {
    if (value >= 0) t->graph->values[value].terms = mesh_axis;
    return value;
}

void mx_trace_assign(MxTrace *t, MxValue value, int var, bool add) {
    if (value < 0) return;
    MxGraph *graph = t->graph;
    MxValueInfo *info = &graph->values[value];
    MxNode *node = &graph->nodes[info->node];
    MxType want = graph->vars->item[var].type;
    MX_ASSERT(!(node->op->flags & (MX_OP_SOURCE | MX_OP_VIEW)) && info->var == MX_NONE);
    MX_ASSERT(info->type.dtype == want.dtype);
    MX_ASSERT(mx_shape_count(info->type.shape) == mx_shape_count(want.shape));
    info->var = var;
    for (int i = 0; add && i < node->n_out; i++)
        if (node->out[i] == value) {
            MX_ASSERT(node->op->accumulates >> i & 1);
            node->accumulate |= 1u << i;
        }
}

MxValue mx_graph_buffer(const MxGraph *graph, MxValue value) {
    const MxNode *node = mx_graph_producer(graph, value);
    while (node->op->flags & MX_OP_VIEW) {
        value = node->in[0];
        node = mx_graph_producer(graph, value);
    }
    return value;
}

void mx_graph_replace(MxGraph *graph, MxValue old, MxValue with, int uses) {
    int first = uses == MX_ANYWHERE ? 0 : graph->values[old].node + 1;
    for (int i = first, found = 0; i < graph->n_nodes && found != uses; i++) {
        MxNode *node = &graph->nodes[i];
        int before = found;
        for (int j = 0; j < node->n_in; j++) found += node->in[j] == old;
        if (found == before) continue;
        MxValue *in = mx_arena_grow(graph->arena, node->in, (size_t)node->n_in, (size_t)node->n_in,
                                    sizeof *in);
        for (int j = 0; j < node->n_in; j++)
            if (in[j] == old) in[j] = with;
        node->in = in;
    }
    const char **axes = graph->values[with].axes;
    for (int d = 0; d < MX_MAX_RANK; d++)
        if (!axes[d]) axes[d] = graph->values[old].axes[d];
    if (graph->values[old].var == MX_NONE) return;
    MX_ASSERT(graph->values[with].var == MX_NONE);
    MxNode *from = &graph->nodes[graph->values[old].node],
           *to = &graph->nodes[graph->values[with].node];
    unsigned adds = 0;
    for (int i = 0; i < from->n_out; i++)
        if (from->out[i] == old) adds = from->accumulate >> i & 1;
    for (int i = 0; i < to->n_out; i++)
        if (to->out[i] == with) to->accumulate |= adds << i;
    graph->values[with].var = graph->values[old].var;
    graph->values[old].var = MX_NONE;
}
