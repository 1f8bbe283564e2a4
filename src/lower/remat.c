/* remat.c — rematerialisation: what the backward pass needs of a region (a decoder layer) is made
 * again from the region's inputs just before the backward pass first needs any of it, instead of
 * being kept. The whole region is made again; what of it nobody uses falls to the removal of dead
 * nodes. Values do not change: the same ops run on the same inputs. What a region writes into a
 * variable (a count, a maximum) is written once, when it is first made. */
#include <mx/lower.h>

typedef struct Remat {
    MxGraph *graph;
    MxRemat policy;
    MxArena arena;
    MxNode *old_nodes;
    int n_old;
    bool *is_kept;  /* [value] the backward pass reads the value itself */
    MxValue *again; /* [value] its second making, or MX_NONE */
    bool *is_made;  /* [region] made again already */
    int n_regions;
} Remat;

/* Whether fusing may make a node a part of what makes its input (fuse.c). */
static bool may_fuse(const Remat *r, const MxNode *node) {
    return node->op->flags & MX_OP_SUM ||
           (node->op->flags & MX_OP_CAST && r->graph->values[node->out[0]].type.dtype == MX_F32);
}

/* What is expensive to compute. Where nothing but a sum or a cast reads it, that is kept
 * instead: otherwise it would have a second reader, and be rounded before the sum. */
static void choose_dear(Remat *r) {
    int *uses = mx_new_n(&r->arena, int, r->graph->n_values);
    for (int n = 0; n < r->n_old; n++)
        for (int i = 0; i < r->old_nodes[n].n_in; i++) uses[r->old_nodes[n].in[i]]++;
    for (int n = 0; n < r->n_old; n++) {
        const MxNode *node = &r->old_nodes[n];
        bool is_dear = node->op->flags & MX_OP_IS_KEPT;
        for (int i = 0; i < node->n_in && !node->backward && may_fuse(r, node); i++) {
            bool *is_kept = &r->is_kept[node->in[i]];
            if (!*is_kept || uses[node->in[i]] > 1) continue;
            is_dear = true;
            *is_kept = false;
        }
        for (int i = 0; is_dear && i < node->n_out; i++) r->is_kept[node->out[i]] = true;
    }
}

/* A region's value is kept if it leaves the region in the forward pass, if it lies in a variable,
 * or if the policy says so. */
static void choose_kept(Remat *r) {
    if (r->policy == MX_REMAT_MINIMAL) choose_dear(r);
    for (int n = 0; n < r->n_old; n++) {
        const MxNode *node = &r->old_nodes[n];
        for (int i = 0; i < node->n_out; i++)
            if (r->graph->values[node->out[i]].var != MX_NONE) r->is_kept[node->out[i]] = true;
        if (node->backward) continue;
        for (int i = 0; i < node->n_in; i++) {
            int region = mx_graph_producer(r->graph, node->in[i])->region;
            if (region && region != node->region) r->is_kept[node->in[i]] = true;
        }
    }
}

static MxValue stand_in(const Remat *r, MxValue value) {
    return r->again[value] == MX_NONE ? value : r->again[value];
}

static MxNode with_stand_ins(const Remat *r, MxNode node) {
    MxValue *in = mx_arena_grow(r->graph->arena, node.in, (size_t)node.n_in, (size_t)node.n_in + 1,
                                sizeof *in);
    for (int i = 0; i < node.n_in; i++) in[i] = stand_in(r, in[i]);
    node.in = in;
    return node;
}

static void make_again(Remat *r, int region) {
    for (int n = 0; n < r->n_old; n++) {
        const MxNode *old = &r->old_nodes[n];
        if (old->region != region || old->backward) continue;
        MxNode node = with_stand_ins(r, *old);
        node.accumulate = 0;
        node.is_again = true;
        for (int i = 0; i < node.n_out; i++) {
            MxValueInfo info = r->graph->values[old->out[i]];
            info.var = MX_NONE;
            node.out[i] = mx_graph_add_value(r->graph, info);
        }
        mx_graph_add_node(r->graph, node);
        for (int i = 0; i < node.n_out; i++)
            if (!r->is_kept[old->out[i]]) r->again[old->out[i]] = node.out[i];
    }
    r->is_made[region] = true;
}

void mx_pass_remat(MxGraph *graph, MxRemat policy) {
    if (policy == MX_REMAT_NONE) return;
    Remat r = {
        .graph = graph, .policy = policy, .arena = {.name = "remat"}, .n_old = graph->n_nodes};
    r.old_nodes =
        mx_arena_grow(&r.arena, graph->nodes, (size_t)r.n_old, (size_t)r.n_old + 1, sizeof(MxNode));
    r.is_kept = mx_new_n(&r.arena, bool, graph->n_values);
    r.again = mx_new_n(&r.arena, MxValue, graph->n_values);
    for (int i = 0; i < graph->n_values; i++) r.again[i] = MX_NONE;
    for (int n = 0; n < r.n_old; n++)
        if (r.old_nodes[n].region >= r.n_regions) r.n_regions = r.old_nodes[n].region + 1;
    r.is_made = mx_new_n(&r.arena, bool, r.n_regions + 1);
    choose_kept(&r);
    /* While nodes are pushed, producers are looked up in the old list only: values keep their old
     * node index until their node is pushed, so regions are read off beforehand. */
    int n_old_values = graph->n_values;
    int *region_of = mx_new_n(&r.arena, int, n_old_values);
    for (int v = 0; v < n_old_values; v++) {
        const MxNode *maker = &r.old_nodes[graph->values[v].node];
        region_of[v] = maker->backward ? 0 : maker->region;
    }
    graph->n_nodes = 0;
    for (int n = 0; n < r.n_old; n++) {
        MxNode node = r.old_nodes[n];
        for (int i = 0; node.backward && i < node.n_in; i++) {
            int region = region_of[node.in[i]];
            if (region && !r.is_kept[node.in[i]] && !r.is_made[region]) make_again(&r, region);
        }
        mx_graph_add_node(graph, node.backward ? with_stand_ins(&r, node) : node);
    }
    mx_arena_release(&r.arena);
}
