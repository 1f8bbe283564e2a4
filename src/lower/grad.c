/* grad.c — reverse-mode differentiation as a pass over the trace: nodes are visited from last to
 * first, and each op's gradient rule adds the nodes that turn cotangents of its outputs into
 * cotangents of its inputs. Only values on a path from a target to the loss get any. */
#include <mx/lower.h>

typedef struct Grad {
    MxTrace *t;
    MxArena arena;
    const MxGradTarget *targets;
    int n_targets;
    int *target_of;     /* [value] 1 + index of the target that it is */
    bool *is_reached;   /* [target] has a contribution already */
    bool *depends;      /* [value] depends on a target */
    MxValue *cotangent; /* [value] */
} Grad;

static void mark_dependents(Grad *g) {
    const MxGraph *graph = g->t->graph;
    for (int i = 0; i < g->n_targets; i++) {
        g->target_of[g->targets[i].wrt] = i + 1;
        g->depends[g->targets[i].wrt] = true;
    }
    for (int n = 0; n < graph->n_nodes; n++) {
        const MxNode *node = &graph->nodes[n];
        bool any = false;
        for (int i = 0; i < node->n_in; i++) any = any || g->depends[node->in[i]];
        if (!any || node->op->flags & MX_OP_CONSTANT) continue;
        for (int i = 0; i < node->n_out; i++) g->depends[node->out[i]] = true;
    }
}

/* Makes a contribution to a target's gradient in the gradient's own variable. A value that this
 * rule did not make for the target alone is copied there. */
static void contribute_to_target(Grad *g, int target, MxValue dx, bool is_fresh) {
    MxTrace *t = g->t;
    if (t->failure.len) return;
    const MxGradTarget *to = &g->targets[target];
    bool add = to->add || g->is_reached[target];
    dx = mx_cast(t, dx, MX_F32);
    const MxNode *node = mx_graph_producer(t->graph, dx);
    int out = 0;
    while (node->out[out] != dx) out++;
    bool can_add = node->op->accumulates >> out & 1;
    bool is_view = node->op->flags & (MX_OP_VIEW | MX_OP_SOURCE);
    bool is_free = t->graph->values[dx].var == MX_NONE;
    if (!is_fresh || is_view || !is_free || (add && !can_add)) dx = mx_copy(t, dx);
    mx_trace_assign(t, dx, to->var, add);
    g->is_reached[target] = true;
}

static void contribute(Grad *g, MxValue to, MxValue dx, bool is_fresh) {
    if (g->target_of[to]) {
        contribute_to_target(g, g->target_of[to] - 1, dx, is_fresh);
        return;
    }
    MxValue *sum = &g->cotangent[to];
    *sum = *sum == MX_NONE ? dx : mx_add(g->t, *sum, dx);
}

static bool is_among(const MxValue *list, int n, MxValue value) {
    for (int i = 0; i < n; i++)
        if (list[i] == value) return true;
    return false;
}

/* A cotangent lives where its value does: it takes over the constraint. */
static void constrain_alike(MxGraph *graph, MxValue value, MxValue cotangent) {
    MxValueInfo *to = &graph->values[cotangent];
    for (int d = 0; d < to->type.shape.rank; d++)
        if (to->axes[d]) return;
    memcpy(to->axes, graph->values[value].axes, sizeof to->axes);
}

static void differentiate_node(Grad *g, int index) {
    MxNode node = g->t->graph->nodes[index]; /* a copy: the array moves while rules add nodes */
    MxValue dy[MX_MAX_OUT];
    bool any_dy = false, any_needed = false;
    bool *needs = mx_new_n(&g->arena, bool, node.n_in + 1);
    MxValue *dx = mx_new_n(&g->arena, MxValue, node.n_in + 1);
    for (int i = 0; i < node.n_out; i++) {
        dy[i] = g->cotangent[node.out[i]];
        if (dy[i] == MX_NONE) continue;
        constrain_alike(g->t->graph, node.out[i], dy[i]);
        any_dy = true;
    }
    for (int i = 0; i < node.n_in; i++) {
        needs[i] = g->depends[node.in[i]];
        any_needed = any_needed || needs[i];
        dx[i] = MX_NONE;
    }
    if (!any_dy || !any_needed || node.op->flags & MX_OP_CONSTANT) return;
    g->t->scope = node.scope;
    g->t->region = node.region;
    if (!node.op->vjp) {
        mx_trace_fail(g->t, "%s is not differentiable", node.op->name);
        return;
    }
    for (int i = 0; i < node.n_out; i++)
        if (dy[i] != MX_NONE && node.op->no_gradient >> i & 1)
            mx_trace_fail(g->t, "output %d of %s carries no gradient", i, node.op->name);
    int first_new = g->t->graph->n_values;
    node.op->vjp(&(MxVjp){.t = g->t,
                          .attr = node.attr,
                          .in = node.in,
                          .out = node.out,
                          .dy = dy,
                          .n_in = node.n_in,
                          .needs = needs,
                          .dx = dx});
    for (int i = 0; i < node.n_in && !g->t->failure.len; i++) {
        if (!needs[i] || dx[i] == MX_NONE) continue;
        bool is_fresh = dx[i] >= first_new && !is_among(dx, i, dx[i]) &&
                        !is_among(dx + i + 1, node.n_in - i - 1, dx[i]);
        contribute(g, node.in[i], dx[i], is_fresh);
    }
}

static void fill_unreached(Grad *g) {
    for (int i = 0; i < g->n_targets; i++) {
        if (g->is_reached[i] || g->targets[i].add) continue;
        int var = g->targets[i].var;
        MxInitAttr zeros = {.type = g->t->graph->vars->item[var].type};
        mx_trace_assign(g->t, mx_init(g->t, zeros), var, false);
    }
}

void mx_grad(MxTrace *t, MxValue loss, const MxGradTarget *targets, int n) {
    if (t->failure.len) return;
    int n_values = t->graph->n_values, n_nodes = t->graph->n_nodes;
    Grad g = {.t = t, .arena = {.name = "grad"}, .targets = targets, .n_targets = n};
    g.target_of = mx_new_n(&g.arena, int, n_values);
    g.depends = mx_new_n(&g.arena, bool, n_values);
    g.cotangent = mx_new_n(&g.arena, MxValue, n_values);
    g.is_reached = mx_new_n(&g.arena, bool, n + 1);
    for (int i = 0; i < n_values; i++) g.cotangent[i] = MX_NONE;
    mark_dependents(&g);
    const char *scope = t->scope;
    int region = t->region;
    t->region = 0;
    t->backward = true;
    MxInitAttr one = {.type = mx_trace_type(t, loss), .value = 1};
    g.cotangent[loss] = mx_init(t, one);
    for (int i = n_nodes - 1; i >= 0 && !t->failure.len; i--) differentiate_node(&g, i);
    fill_unreached(&g);
    t->backward = false;
    t->scope = scope;
    t->region = region;
    mx_arena_release(&g.arena);
}
