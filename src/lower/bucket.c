/* bucket.c — small exchanges of a kind put into one: an exchange of a few KiB takes as long as its
 * latency, and there are many of them (gradients of norms, biases and adapters, sums of a loss). A
 * small collective waits in a bucket until somebody needs its result; then all that wait for the
 * same ranks are packed, exchanged and unpacked together. Elements are summed in the same order as
 * alone, so no bit changes. */
#include <mx/lower.h>

enum { MOST_MEMBERS = 256, MOST_BUCKETS = 32 };

typedef struct Bucket {
    int member[MOST_MEMBERS]; /* nodes of the old list; all of one op, group and dtype */
    int n;
    size_t bytes;
} Bucket;

typedef struct Pass {
    MxGraph *graph;
    const MxMachine *machine;
    MxArena arena;
    const MxNode *old;
    const MxValue *buffer;         /* [old value] that owns its buffer */
    const int *var;                /* [old value] whose buffer it is, or MX_NONE */
    Bucket *buckets[MOST_BUCKETS]; /* the oldest first */
    int n;
} Pass;

static const MxCollectiveAttr *attr_of(const MxNode *node) {
    return node->attr;
}

static MxType type_of(const Pass *p, MxValue value) {
    return p->graph->values[value].type;
}

static size_t bytes_of(MxType type) {
    return (size_t)mx_shape_count(type.shape) * mx_dtype_bytes(type.dtype);
}

static size_t moved_bytes(const Pass *p, const MxNode *node) {
    size_t in = bytes_of(type_of(p, node->in[0])), out = bytes_of(type_of(p, node->out[0]));
    return in > out ? in : out;
}

static bool is_alike(const Pass *p, const MxNode *a, const MxNode *b) {
    return a->op == b->op && attr_of(a)->group.id == attr_of(b)->group.id &&
           type_of(p, a->in[0]).dtype == type_of(p, b->in[0]).dtype;
}

/* ---- emptying a bucket */

static MxValue add_node(Pass *p, const MxNode *like, const MxOp *op, MxValue in, const void *attr,
                        MxType type) {
    MxValueInfo info = {.type = type, .var = MX_NONE, .like = MX_NONE};
    MxNode node = {
        .op = op, .scope = like->scope, .backward = like->backward, .n_in = 1, .n_out = 1};
    node.in = mx_arena_grow(p->graph->arena, &in, 1, 1, sizeof in);
    node.attr = mx_arena_grow(p->graph->arena, attr, 1, 1, op->attr_bytes);
    node.out[0] = mx_graph_add_value(p->graph, info);
    mx_graph_add_node(p->graph, node);
    return node.out[0];
}

/* [parts, elements]: of what goes into the exchange, and of what comes out. */
static MxValue add_pack(Pass *p, const Bucket *b, int n_parts) {
    MxArena *arena = p->graph->arena;
    const MxNode *first = &p->old[b->member[0]];
    MxValue *in = mx_new_n(arena, MxValue, b->n);
    int *dim = mx_new_n(arena, int, b->n);
    int64_t n = 0;
    for (int i = 0; i < b->n; i++) {
        const MxNode *node = &p->old[b->member[i]];
        in[i] = node->in[0];
        dim[i] = attr_of(node)->cut;
        n += mx_shape_count(type_of(p, in[i]).shape) / n_parts;
    }
    MxPackAttr attr = {.n_parts = n_parts, .dim = dim};
    MxType type = {type_of(p, in[0]).dtype, MX_SHAPE(n_parts, n)};
    MxValue out = add_node(p, first, &op_pack, in[0], &attr, type);
    MxNode *pack = &p->graph->nodes[p->graph->n_nodes - 1];
    pack->in = in;
    pack->n_in = b->n;
    return out;
}

/* The results in their own values. */
static void add_unpacks(Pass *p, const Bucket *b, MxValue from, int n_parts) {
    int64_t at = 0;
    for (int i = 0; i < b->n; i++) {
        MxNode node = p->old[b->member[i]];
        MxUnpackAttr attr = {
            .at = at, .dim = attr_of(&node)->joined, .shape = type_of(p, node.out[0]).shape};
        at += mx_shape_count(attr.shape) / n_parts;
        node.op = &op_unpack;
        node.in = mx_arena_grow(p->graph->arena, &from, 1, 1, sizeof from);
        node.attr = mx_arena_grow(p->graph->arena, &attr, 1, 1, sizeof attr);
        mx_graph_add_node(p->graph, node);
    }
}

static void empty_bucket(Pass *p, int index) {
    const Bucket *b = p->buckets[index];
    const MxNode *first = &p->old[b->member[0]];
    for (int i = index; i + 1 < p->n; i++) p->buckets[i] = p->buckets[i + 1];
    p->n--;
    if (b->n == 1) {
        mx_graph_add_node(p->graph, *first);
        return;
    }
    const MxCollective kind = first->op->collective;
    int size = attr_of(first)->group.size;
    int scattered = kind == MX_REDUCE_SCATTER || kind == MX_ALL_TO_ALL ? size : 1;
    int gathered = kind == MX_ALL_GATHER || kind == MX_ALL_TO_ALL ? size : 1;
    MxValue packed = add_pack(p, b, scattered);
    MxCollectiveAttr attr = {.group = attr_of(first)->group};
    MxType type = type_of(p, packed);
    type.shape.dim[0] = gathered;
    add_unpacks(p, b, add_node(p, first, first->op, packed, &attr, type), gathered);
}

/* ---- who may wait */

static bool can_wait(const MxNode *node) {
    const MxCollective kind = node->op->collective;
    bool is_packed = kind && kind != MX_RECEIVE && kind != MX_SWAP_HALVES && kind != MX_RING_SHIFT;
    return is_packed && !attr_of(node)->group.is_uneven;
}

/* Whether a node reads what a waiting one will make, or touches a variable that it uses. */
static bool disturbs(const Pass *p, const MxNode *node, const MxNode *waiting) {
    int reads = p->var[waiting->in[0]], writes = p->var[waiting->out[0]];
    for (int i = 0; i < node->n_in; i++) {
        if (p->buffer[node->in[i]] == waiting->out[0]) return true;
        if (writes != MX_NONE && p->var[node->in[i]] == writes) return true;
    }
    for (int i = 0; i < node->n_out; i++) {
        int var = p->var[node->out[i]];
        if (var != MX_NONE && (var == reads || var == writes)) return true;
    }
    return false;
}

static void empty_disturbed(Pass *p, const MxNode *node) {
    for (int b = 0; b < p->n; b++) {
        bool is_disturbed = false;
        for (int i = 0; i < p->buckets[b]->n; i++)
            is_disturbed = is_disturbed || disturbs(p, node, &p->old[p->buckets[b]->member[i]]);
        if (is_disturbed) empty_bucket(p, b--);
    }
}

static void wait_in_bucket(Pass *p, int index) {
    const MxNode *node = &p->old[index];
    size_t bytes = moved_bytes(p, node);
    int b = 0;
    while (b < p->n && !is_alike(p, node, &p->old[p->buckets[b]->member[0]])) b++;
    if (b < p->n && (p->buckets[b]->n == MOST_MEMBERS ||
                     p->buckets[b]->bytes + bytes > p->machine->bucket_bytes)) {
        empty_bucket(p, b);
        b = p->n;
    }
    if (b == p->n) {
        if (p->n == MOST_BUCKETS) empty_bucket(p, 0);
        b = p->n++;
        p->buckets[b] = mx_new(&p->arena, Bucket);
    }
    Bucket *bucket = p->buckets[b];
    bucket->member[bucket->n++] = index;
    bucket->bytes += bytes;
}

/* Producers are looked up beforehand: while nodes are pushed, a value that waits has none. */
static void find_buffers(Pass *p) {
    const MxGraph *graph = p->graph;
    MxValue *buffer = mx_new_n(&p->arena, MxValue, graph->n_values + 1);
    int *var = mx_new_n(&p->arena, int, graph->n_values + 1);
    for (int n = 0; n < graph->n_nodes; n++)
        for (int i = 0; i < graph->nodes[n].n_out; i++) {
            MxValue value = graph->nodes[n].out[i];
            buffer[value] = mx_graph_buffer(graph, value);
            const MxNode *maker = mx_graph_producer(graph, buffer[value]);
            var[value] = maker->op->flags & MX_OP_SOURCE ? *(const int *)maker->attr
                                                         : graph->values[buffer[value]].var;
        }
    p->buffer = buffer;
    p->var = var;
}

void mx_pass_bucket(MxGraph *graph, const MxMachine *machine) {
    Pass p = {.graph = graph, .machine = machine, .arena = {.name = "bucket"}};
    int n_old = graph->n_nodes;
    find_buffers(&p);
    p.old = mx_arena_grow(&p.arena, graph->nodes, (size_t)n_old, (size_t)n_old + 1, sizeof(MxNode));
    graph->n_nodes = 0;
    for (int n = 0; n < n_old; n++) {
        const MxNode *node = &p.old[n];
        empty_disturbed(&p, node);
        if (can_wait(node) && moved_bytes(&p, node) <= machine->small_bytes)
            wait_in_bucket(&p, n);
        else
            mx_graph_add_node(graph, *node);
    }
    while (p.n) empty_bucket(&p, 0);
    mx_arena_release(&p.arena);
}
