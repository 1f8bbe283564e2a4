/* eval.c — the interpreter: ops modulo a prime, run either with a place of its own for every value
 * or in the one arena of a lowered. */
#include "lower_test.h"

#include <math.h>

/* ---- residues */

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 31) * 0x7fb5d329728ea185u;
    x = (x ^ x >> 27) * 0x81dadef4bc2dd44du;
    return x ^ x >> 33;
}

static uint32_t residue(double x) {
    double r = fmod(x, PRIME);
    return (uint32_t)(r < 0 ? r + PRIME : r);
}

static size_t count_of(const MxGraph *graph, MxValue value) {
    return (size_t)mx_shape_count(graph->values[value].type.shape);
}

/* ---- ops */

/* A node being run: inputs and outputs as dense residues. */
typedef struct Call {
    const MxGraph *graph;
    const MxNode *node;
    uint32_t **in, **out;
} Call;

static void run_copy(const Call *c) {
    for (size_t i = 0; i < count_of(c->graph, c->node->out[0]); i++) c->out[0][i] = c->in[0][i];
}

static void run_add(const Call *c) {
    size_t n_y = count_of(c->graph, c->node->in[1]);
    for (size_t i = 0; i < count_of(c->graph, c->node->out[0]); i++)
        c->out[0][i] = (c->in[0][i] + c->in[1][i % n_y]) % PRIME;
}

static void run_sum_lead(const Call *c) {
    size_t n = count_of(c->graph, c->node->out[0]);
    for (size_t i = 0; i < count_of(c->graph, c->node->in[0]); i++)
        c->out[0][i % n] = (c->out[0][i % n] + c->in[0][i]) % PRIME;
}

static void run_scale(const Call *c) {
    uint32_t factor = residue(((const MxScaleAttr *)c->node->attr)->factor);
    for (size_t i = 0; i < count_of(c->graph, c->node->out[0]); i++)
        c->out[0][i] = c->in[0][i] * factor % PRIME;
}

/* Gated units with the linear activation, whatever their attribute says: a polynomial. */
static void run_glu(const Call *c) {
    for (size_t i = 0; i < count_of(c->graph, c->node->out[0]); i++)
        c->out[0][i] = c->in[0][i] * c->in[1][i] % PRIME;
}

static void run_glu_grad(const Call *c) {
    for (size_t i = 0; i < count_of(c->graph, c->node->out[0]); i++) {
        c->out[0][i] = c->in[2][i] * c->in[1][i] % PRIME;
        c->out[1][i] = c->in[2][i] * c->in[0][i] % PRIME;
    }
}

static void run_dot(const Call *c) {
    const MxDotAttr *attr = c->node->attr;
    MxDotSizes s = mx_dot_sizes(c->graph->values[c->node->in[0]].type.shape,
                                c->graph->values[c->node->in[1]].type.shape, attr);
    for (int64_t m = 0; m < s.m; m++)
        for (int64_t n = 0; n < s.n; n++) {
            uint64_t sum = 0;
            for (int64_t k = 0; k < s.k; k++) {
                int64_t x = attr->kind == MX_DOT_TN ? k * s.m + m : m * s.k + k;
                int64_t y = attr->kind == MX_DOT_NT ? n * s.k + k : k * s.n + n;
                sum += (uint64_t)c->in[0][x] * c->in[1][y];
            }
            c->out[0][m * s.n + n] = (uint32_t)(sum % PRIME);
        }
}

static void run_init(const Call *c) {
    const MxInitAttr *attr = c->node->attr;
    for (size_t i = 0; i < count_of(c->graph, c->node->out[0]); i++)
        c->out[0][i] = attr->fill == MX_FILL_CONSTANT ? residue(attr->value)
                                                      : (uint32_t)(mix(attr->stream + i) % PRIME);
}

/* The number of an op and output for hashing; cross-entropy's gradient makes cross-entropy's two
 * sums as its last outputs. */
static uint64_t meaning(const MxNode *node, int out, int *n_in) {
    int op = mx_op_index(node->op);
    if (node->op == &op_xent_grad && out >= 2) {
        op = MX_OP_xent;
        out -= 2;
        *n_in = op_xent.arity;
    }
    uint64_t hash = mix((uint64_t)op * MX_MAX_OUT + (uint64_t)out);
    if (node->op == &op_xent || node->op == &op_xent_grad) {
        const MxXentAttr *attr = node->attr;
        double parts[] = {attr->tied, attr->scale, attr->softcap, attr->z_loss};
        hash ^= mx_hash64(parts, sizeof parts);
    }
    return hash;
}

static void run_opaque(const Call *c) {
    for (int o = 0; o < c->node->n_out; o++) {
        int n_in = c->node->op->arity < 0 ? c->node->n_in : c->node->op->arity;
        uint64_t digest = meaning(c->node, o, &n_in);
        for (int i = 0; i < n_in; i++)
            for (size_t k = 0; k < count_of(c->graph, c->node->in[i]); k++)
                digest = mix(digest + c->in[i][k]);
        for (size_t k = 0; k < count_of(c->graph, c->node->out[o]); k++)
            c->out[o][k] = (uint32_t)(mix(digest + k) % PRIME);
    }
}

static const struct {
    const MxOp *op;
    void (*run)(const Call *call);
} meanings[] = {
    {&op_copy, run_copy}, {&op_cast, run_copy},         {&op_reshape, run_copy},
    {&op_add, run_add},   {&op_sum_lead, run_sum_lead}, {&op_scale, run_scale},
    {&op_glu, run_glu},   {&op_glu_grad, run_glu_grad}, {&op_dot, run_dot},
    {&op_init, run_init},
};

static void run(const Call *call) {
    for (int i = 0; i < MX_COUNT(meanings); i++)
        if (meanings[i].op == call->node->op) {
            meanings[i].run(call);
            return;
        }
    run_opaque(call);
}

/* ---- variables */

static uint32_t **new_contents(void) {
    uint32_t **contents = mx_new_n(&arena, uint32_t *, vars.n + 1);
    for (int v = 0; v < vars.n; v++)
        contents[v] = mx_new_n(&arena, uint32_t, mx_shape_count(vars.item[v].type.shape));
    return contents;
}

static uint32_t **copy_contents(Contents from) {
    uint32_t **contents = new_contents();
    for (int v = 0; v < vars.n; v++)
        memcpy(contents[v], from[v],
               sizeof **contents * (size_t)mx_shape_count(vars.item[v].type.shape));
    return contents;
}

Contents initial_contents(uint64_t seed) {
    uint32_t **contents = new_contents();
    for (int v = 0; v < vars.n; v++)
        for (int64_t i = 0; i < mx_shape_count(vars.item[v].type.shape); i++)
            contents[v][i] = (uint32_t)(mix(seed + mix((uint64_t)v << 32) + (uint64_t)i) % PRIME);
    return contents;
}

void ck_same(Contents a, Contents b, const char *what, uint64_t seed) {
    for (int v = 0; v < vars.n; v++)
        for (int64_t i = 0; i < mx_shape_count(vars.item[v].type.shape); i++)
            if (a[v][i] != b[v][i])
                ck_abort_msg("%s, seed %llu: %s[%lld] is %u, not %u\n%s", what,
                             (unsigned long long)seed, vars.item[v].name, (long long)i, b[v][i],
                             a[v][i], printed(t.graph));
}

/* ---- a place for every value */

static void add_addend(const Call *c) {
    int arity = c->node->op->arity;
    if (!c->node->op->takes_addend || c->node->n_in == arity) return;
    for (size_t i = 0; i < count_of(c->graph, c->node->out[0]); i++)
        c->out[0][i] = (c->out[0][i] + c->in[arity][i]) % PRIME;
}

Contents eval_graph(const MxGraph *graph, Contents before) {
    uint32_t **contents = copy_contents(before);
    uint32_t **values = mx_new_n(&arena, uint32_t *, graph->n_values + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const MxNode *node = &graph->nodes[n];
        uint32_t **in = mx_new_n(&arena, uint32_t *, node->n_in + 1), *out[MX_MAX_OUT];
        for (int i = 0; i < node->n_in; i++) in[i] = values[node->in[i]];
        for (int i = 0; i < node->n_out; i++)
            out[i] = values[node->out[i]] =
                mx_new_n(&arena, uint32_t, count_of(graph, node->out[i]));
        if (node->op->flags & MX_OP_SOURCE) { /* what the variable held at the start */
            memcpy(out[0], before[((const MxVariableAttr *)node->attr)->var],
                   sizeof *out[0] * count_of(graph, node->out[0]));
            continue;
        }
        Call call = {graph, node, in, out};
        run(&call);
        add_addend(&call);
        for (int i = 0; i < node->n_out; i++) {
            int var = graph->values[node->out[i]].var;
            bool adds = node->accumulate >> i & 1;
            for (size_t k = 0; var != MX_NONE && k < count_of(graph, node->out[i]); k++)
                contents[var][k] = (out[i][k] + (adds ? contents[var][k] : 0)) % PRIME;
        }
    }
    return contents;
}

/* ---- a lowered's arena */

typedef struct Machine {
    const MxLowered *lowered;
    uint8_t **vars; /* as they lie in memory */
    uint8_t *arena;
} Machine;

static uint8_t *address(const Machine *m, MxValue value) {
    const MxGraph *graph = m->lowered->graph;
    value = mx_graph_buffer(graph, value);
    const MxNode *node = mx_graph_producer(graph, value);
    if (node->op->flags & MX_OP_SOURCE) return m->vars[((const MxVariableAttr *)node->attr)->var];
    int var = graph->values[value].var;
    return var != MX_NONE ? m->vars[var] : m->arena + m->lowered->value_offset[value];
}

static uint32_t load(const uint8_t *at, size_t bytes, size_t i) {
    uint32_t wide = 0;
    memcpy(&wide, at + bytes * i, bytes);
    return wide;
}

static void store(uint8_t *at, size_t bytes, size_t i, uint32_t x) {
    memcpy(at + bytes * i, &x, bytes);
}

static size_t width(const MxGraph *graph, MxValue value) {
    return mx_dtype_bytes(graph->values[value].type.dtype);
}

static uint32_t *unpack(const Machine *m, MxValue value) {
    const MxGraph *graph = m->lowered->graph;
    uint32_t *residues = mx_new_n(&arena, uint32_t, count_of(graph, value));
    for (size_t i = 0; i < count_of(graph, value); i++)
        residues[i] = load(address(m, value), width(graph, value), i);
    return residues;
}

/* An output may stand where an input stands only if it may take it over: as a whole, element for
 * element. */
static void ck_apart(const Machine *m, const MxNode *node, int out, int in) {
    const MxGraph *graph = m->lowered->graph;
    MxValue x = node->in[in], y = node->out[out];
    uint8_t *from = address(m, x), *to = address(m, y);
    size_t from_bytes = count_of(graph, x) * width(graph, x);
    size_t to_bytes = count_of(graph, y) * width(graph, y);
    if (from + from_bytes <= to || to + to_bytes <= from) return;
    bool elementwise = node->op == &op_add || node->op == &op_scale || node->op == &op_copy ||
                       node->op == &op_cast || node->op == &op_glu;
    bool is_addend = node->op->takes_addend && in == node->op->arity && out == 0;
    bool is_whole = from == to && from_bytes == to_bytes;
    ck_assert_msg(is_whole && (elementwise || is_addend), "%s: output %d overwrites input %d\n%s",
                  node->op->name, out, in, printed(graph));
}

static void run_step(const Machine *m, int step) {
    const MxGraph *graph = m->lowered->graph;
    const MxNode *node = &graph->nodes[m->lowered->steps[step]];
    int n_in = node->n_in;
    bool has_addend = node->op->takes_addend && n_in > node->op->arity;
    for (int o = 0; o < node->n_out; o++)
        for (int i = 0; i < n_in && !(node->unused >> o & 1); i++) ck_apart(m, node, o, i);
    if (has_addend) {
        size_t bytes = count_of(graph, node->out[0]) * width(graph, node->out[0]);
        memmove(address(m, node->out[0]), address(m, node->in[--n_in]), bytes);
    }
    uint32_t **in = mx_new_n(&arena, uint32_t *, n_in + 1), *out[MX_MAX_OUT];
    for (int i = 0; i < n_in; i++) in[i] = unpack(m, node->in[i]);
    memset(m->arena + m->lowered->scratch_offset[step], 0xee,
           some_scratch.scratch_bytes(NULL, graph, node));
    for (int o = 0; o < node->n_out; o++)
        out[o] = mx_new_n(&arena, uint32_t, count_of(graph, node->out[o]));
    run(&(Call){graph, node, in, out});
    unsigned adds = node->accumulate | has_addend;
    for (int o = 0; o < node->n_out; o++) {
        if (node->unused >> o & 1) continue; /* it has no place */
        uint8_t *to = address(m, node->out[o]);
        size_t bytes = width(graph, node->out[o]);
        for (size_t i = 0; i < count_of(graph, node->out[o]); i++)
            store(to, bytes, i, (out[o][i] + (adds >> o & 1 ? load(to, bytes, i) : 0)) % PRIME);
    }
}

Contents eval_lowered(const MxLowered *lowered, Contents before) {
    Machine m = {.lowered = lowered, .arena = mx_arena_alloc(&arena, lowered->arena_bytes + 1)};
    memset(m.arena, 0xee, lowered->arena_bytes);
    m.vars = mx_new_n(&arena, uint8_t *, vars.n + 1);
    for (int v = 0; v < vars.n; v++) {
        size_t n = (size_t)mx_shape_count(vars.item[v].type.shape);
        size_t bytes = mx_dtype_bytes(vars.item[v].type.dtype);
        m.vars[v] = mx_arena_alloc(&arena, n * bytes);
        for (size_t i = 0; i < n; i++) store(m.vars[v], bytes, i, before[v][i]);
    }
    for (int s = 0; s < lowered->n_steps; s++) run_step(&m, s);
    uint32_t **contents = new_contents();
    for (int v = 0; v < vars.n; v++)
        for (int64_t i = 0; i < mx_shape_count(vars.item[v].type.shape); i++)
            contents[v][i] = load(m.vars[v], mx_dtype_bytes(vars.item[v].type.dtype), (size_t)i);
    return contents;
}
