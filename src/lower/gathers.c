/* gathers.c — small weights are gathered together, those of several layers if they are small
 * enough. A gather stands before the first node that needs it, so that of a layer's small weights
 * each would be an exchange of its own. Here those of variables that fit into one bucket go to
 * where the first of them stands, in the forward and in the backward pass, and bucket.c makes one
 * of them. What is gathered is in memory for longer: at most a bucket. */
#include "order.h"

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
    int64_t *place; /* [node] the node of the old order behind which it stands now, or itself */
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

static void place_gather(Pass *p, int n) {
    const MxNode *node = &p->graph->nodes[n];
    size_t bytes = gathered_bytes(p, node);
    int w = 0, n_windows = p->n < MOST_WINDOWS ? p->n : MOST_WINDOWS;
    while (w < n_windows && !is_alike(p, node, p->window[w].first)) w++;
    Window *window = &p->window[w < n_windows ? w : p->n++ % MOST_WINDOWS];
    bool joins = w < n_windows && window->bytes + bytes <= p->machine->bucket_bytes;
    if (joins && lower_is_of_variables(p->graph, node->in[0])) {
        lower_have_at(p->graph, node->in[0], p->place, window->at);
        window->bytes += bytes;
        p->place[n] = window->at;
    } else if (!joins) {
        *window = (Window){.first = node, .at = n, .bytes = bytes};
    }
}

void mx_pass_gathers(MxGraph *graph, const MxMachine *machine) {
    Pass p = {.graph = graph, .machine = machine, .arena = {.name = "gathers"}};
    p.place = mx_new_n(&p.arena, int64_t, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        p.place[n] = n;
        if (is_small_gather(&p, &graph->nodes[n])) place_gather(&p, n);
    }
    lower_reorder(&p.arena, graph, p.place);
    mx_arena_release(&p.arena);
}
