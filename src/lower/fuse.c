/* fuse.c — rewrites that save passes over memory without changing what is computed beyond rounding:
 *  - a cast of a result that its op can make in that dtype itself (weight gradients in f32 from
 * bf16 operands);
 *  - a sum into the op that makes one of its terms, where that op can add (matrix products: sums of
 * cotangents, residuals);
 *  - cross-entropy into its gradient, which makes the loss on the way, so that logits are made
 * once. */
#include <mx/lower.h>

/* ---- results in variables */

static int var_of(const MxGraph *graph, MxValue value) {
    value = mx_graph_buffer(graph, value);
    const MxNode *node = mx_graph_producer(graph, value);
    if (node->op->flags & MX_OP_SOURCE) return ((const MxVariableAttr *)node->attr)->var;
    return graph->values[value].var;
}

/* Whether `maker` may make what `value` leaves in its variable: it must not read that variable, and
 * no node between the two may write it. */
static bool may_write(const MxGraph *graph, int maker, MxValue value) {
    int var = graph->values[value].var, other = graph->values[value].node;
    if (var == MX_NONE) return true;
    for (int n = other < maker ? other : maker; n <= (other < maker ? maker : other); n++)
        for (int i = 0; i < graph->nodes[n].n_out; i++) {
            MxValue out = graph->nodes[n].out[i];
            if (out != value && graph->values[out].var == var) return false;
        }
    for (int i = 0; i < graph->nodes[maker].n_in; i++)
        if (var_of(graph, graph->nodes[maker].in[i]) == var) return false;
    return true;
}

/* ---- casts into their producers */

static int *count_uses(const MxGraph *graph, MxArena *arena) {
    int *uses = mx_new_n(arena, int, graph->n_values + 1);
    for (int n = 0; n < graph->n_nodes; n++)
        for (int i = 0; i < graph->nodes[n].n_in; i++) uses[graph->nodes[n].in[i]]++;
    return uses;
}

static void fold_cast(MxGraph *graph, const MxNode *cast, int *uses) {
    MxValue x = cast->in[0];
    MxNode *maker = &graph->nodes[graph->values[x].node];
    MxDtype dtype = graph->values[cast->out[0]].type.dtype;
    bool foldable = maker->op->flags & MX_OP_CAST_FOLDS && maker->out[0] == x && uses[x] == 1;
    if (!foldable || dtype != MX_F32 || graph->values[x].var != MX_NONE) return;
    if (!may_write(graph, graph->values[x].node, cast->out[0])) return;
    void *attr = mx_arena_grow(graph->arena, maker->attr, 1, 1, maker->op->attr_bytes);
    memcpy(attr, &dtype, sizeof dtype);
    maker->attr = attr;
    graph->values[x].type.dtype = dtype;
    uses[x] = uses[cast->out[0]];
    mx_graph_replace(graph, cast->out[0], x, uses[x]);
}

/* ---- sums into what makes a term */

/* Whether a value is made, for this one use alone, by an op that can add a further input to it. */
static bool can_take_addend(const MxGraph *graph, MxValue value, const int *uses) {
    const MxNode *maker = mx_graph_producer(graph, value);
    return maker->op->takes_addend && maker->n_in == maker->op->arity && maker->out[0] == value &&
           uses[value] == 1 && graph->values[value].var == MX_NONE;
}

static bool same_shape(const MxGraph *graph, MxValue a, MxValue b) {
    return mx_shape_equal(graph->values[a].type.shape, graph->values[b].type.shape);
}

/* The product that a term can be added to: the one that makes `value`, or, if that has an addend
 * already, the one that makes the addend. All of them must be made after `term`. */
static MxValue addend_site(const MxGraph *graph, MxValue value, MxValue term, const int *uses) {
    for (;;) {
        const MxNode *maker = mx_graph_producer(graph, value);
        if (graph->values[value].node <= graph->values[term].node) return MX_NONE;
        if (can_take_addend(graph, value, uses)) return value;
        bool is_sum = maker->op->takes_addend && maker->n_in > maker->op->arity;
        if (!is_sum || maker->out[0] != value || uses[value] != 1) return MX_NONE;
        value = maker->in[maker->op->arity];
    }
}

static void fold_add(MxGraph *graph, const MxNode *add, int *uses) {
    MxValue x = add->in[0], y = add->in[1];
    if (!same_shape(graph, x, y) || x == y) return;
    /* The term that is made later takes the earlier one, which is there by then. */
    if (graph->values[x].node > graph->values[y].node) {
        MxValue later = x;
        x = y;
        y = later;
    }
    if (graph->values[x].node == graph->values[y].node) return; /* two outputs of one node */
    MxValue site = addend_site(graph, y, x, uses);
    if (site == MX_NONE || graph->values[y].var != MX_NONE) return;
    if (!may_write(graph, graph->values[y].node, add->out[0])) return;
    MxNode *maker = &graph->nodes[graph->values[site].node];
    MxValue *in = mx_arena_grow(graph->arena, maker->in, (size_t)maker->n_in,
                                (size_t)maker->n_in + 1, sizeof *in);
    in[maker->n_in++] = x;
    maker->in = in;
    uses[y] = uses[add->out[0]];
    mx_graph_replace(graph, add->out[0], y, uses[y]);
}

/* ---- ops into those that make their outputs too: cross-entropy into its gradient */

/* Whether `value` is made, directly or not, from an output of node `from`. */
static bool depends_on(const MxGraph *graph, MxValue value, int from, MxArena *arena) {
    bool *reached = mx_new_n(arena, bool, graph->n_values);
    for (int i = 0; i < graph->nodes[from].n_out; i++) reached[graph->nodes[from].out[i]] = true;
    for (int n = from + 1; n < graph->n_nodes; n++) {
        const MxNode *node = &graph->nodes[n];
        bool any = false;
        for (int i = 0; i < node->n_in; i++) any = any || reached[node->in[i]];
        for (int i = 0; any && i < node->n_out; i++) reached[node->out[i]] = true;
    }
    return reached[value];
}

/* Whether a node makes what another does, and has all that it needs by then. */
static bool makes_also(const MxGraph *graph, int maker, int other, MxArena *arena) {
    const MxNode *a = &graph->nodes[maker], *b = &graph->nodes[other];
    if (b->op != a->op->also.op || !a->op->also.is_same(a->attr, b->attr)) return false;
    for (int i = 0; i < b->n_in; i++)
        if (a->in[i] != b->in[i]) return false;
    for (int i = b->n_in; i < a->n_in; i++)
        if (depends_on(graph, a->in[i], other, arena)) return false;
    for (int i = 0; i < b->n_out; i++)
        if (!may_write(graph, maker, b->out[i])) return false;
    return true;
}

static void fuse_also(MxGraph *graph, int maker, MxArena *arena) {
    const MxNode *node = &graph->nodes[maker];
    for (int n = 0; n < maker; n++) {
        const MxNode *other = &graph->nodes[n];
        if (!makes_also(graph, maker, n, arena)) continue;
        for (int i = 0; i < other->n_out; i++)
            mx_graph_replace(graph, other->out[i], node->out[node->op->also.at + i], MX_ANYWHERE);
        return;
    }
}

/* The result is in no good order: users of the loss now stand before its maker. mx_pass_schedule
 * mends that. */
void mx_pass_fuse_losses(MxGraph *graph) {
    MxArena arena = {.name = "fuse"};
    for (int n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n].op->also.op) fuse_also(graph, n, &arena);
    mx_arena_release(&arena);
}

void mx_pass_fuse(MxGraph *graph) {
    MxArena arena = {.name = "fuse"};
    int *uses = count_uses(graph, &arena);
    for (int n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n].op->flags & MX_OP_CAST) fold_cast(graph, &graph->nodes[n], uses);
    for (int n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n].op->flags & MX_OP_SUM) fold_add(graph, &graph->nodes[n], uses);
    mx_arena_release(&arena);
    mx_pass_fuse_losses(graph);
}
