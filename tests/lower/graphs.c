/* graphs.c — graphs to lower: random polynomials, random programs, and a small decoder. */
#include "lower_test.h"

/* ---- random values */

typedef struct Random {
    uint64_t state;
    MxValue readable[512];
    int n;
} Random;

static int below(Random *r, int n) {
    return (int)(draw(&r->state) % (uint64_t)n);
}

static MxValue any(Random *r) { /* recent ones rather than old ones */
    int back = below(r, 2) ? below(r, r->n < 6 ? r->n : 6) : below(r, r->n);
    return r->readable[r->n - 1 - back];
}

static bool same_type(MxValue a, MxValue b) {
    MxType x = mx_trace_type(&t, a), y = mx_trace_type(&t, b);
    return x.dtype == y.dtype && mx_shape_equal(x.shape, y.shape);
}

/* A value of x's type: one that there is, if a few tries find one, else x. */
static MxValue like(Random *r, MxValue x) {
    for (int i = 0; i < 8; i++) {
        MxValue y = any(r);
        if (same_type(x, y)) return y;
    }
    return x;
}

static MxValue flip(Random *r, MxValue x) {
    static const MxShape shapes[] = {
        {2, {2, 6}}, {2, {6, 2}}, {2, {3, 4}}, {1, {12}}, {3, {2, 3, 2}}};
    return mx_reshape(&t, x, shapes[below(r, MX_COUNT(shapes))]);
}

/* x y^T, made small again by a product with a third: [a, b] [a, b]^T [a, c]. */
static MxValue product(Random *r, MxValue x) {
    MxShape shape = mx_trace_type(&t, x).shape;
    MxValue y = like(r, x), z = like(r, x);
    bool is_left = below(r, 2), is_turned = below(r, 2);
    if (shape.rank != 2) return mx_glu(&t, x, y, MX_LINEAR);
    MxValue square = mx_dot(&t, x, y, is_left ? MX_DOT_NT : MX_DOT_TN, 1);
    if (is_left) return mx_dot(&t, square, z, is_turned ? MX_DOT_TN : MX_DOT_NN, 1);
    return mx_dot(&t, z, square, is_turned ? MX_DOT_NT : MX_DOT_NN, 1);
}

/* All random values have 12 elements. */
static MxValue grow(Random *r) {
    MxValue x = any(r), y = like(r, x);
    MxShape shape = mx_trace_type(&t, x).shape;
    switch (below(r, 9)) {
    case 0:
    case 1:
        return mx_add(&t, x, y);
    case 2:
        return mx_scale(&t, x, 2 + below(r, 3));
    case 3:
        return mx_glu(&t, x, y, MX_LINEAR);
    case 4:
        return mx_copy(&t, x);
    case 5:
        return flip(r, x);
    case 6:
        return mx_cast(&t, x, below(r, 2) ? MX_F32 : MX_BF16);
    case 7: /* a bias: the sum over the first dim, spread again */
        if (shape.rank < 2) return mx_copy(&t, x);
        return mx_add(&t, y, mx_sum_lead(&t, x, 1));
    default:
        return product(r, x);
    }
}

static void keep(Random *r, MxValue value) {
    ck_assert_msg(!t.failure.len, "%s", t.failure.data);
    ck_assert_int_lt(r->n, MX_COUNT(r->readable));
    r->readable[r->n++] = value;
}

/* ---- polynomials */

static MxValue grow_smoothly(Random *r) { /* what has a gradient */
    for (;;) {
        int n_nodes = t.graph->n_nodes;
        MxValue value = grow(r);
        bool has_sum = false;
        for (int n = n_nodes; n < t.graph->n_nodes; n++)
            has_sum = has_sum || t.graph->nodes[n].op == &op_sum_lead;
        if (!has_sum) return value;
    }
}

MxValue random_forward(uint64_t seed, int n_nodes, MxValue params[N_PARAMS]) {
    Random r = {.state = seed << 32};
    static const char *const names[N_PARAMS] = {"p0", "p1", "p2", "p3"};
    for (int i = 0; i < N_PARAMS; i++) {
        params[i] = source(names[i], MX_F32, i % 2 ? MX_SHAPE(3, 4) : MX_SHAPE(2, 6));
        keep(&r, params[i]);
    }
    while (t.graph->n_nodes < n_nodes) {
        if (!below(&r, 6)) t.region = below(&r, 4) ? t.region + 1 : 0;
        keep(&r, grow_smoothly(&r));
    }
    t.region = 0;
    MxValue sum = MX_NONE;
    for (int i = 1; i <= 4; i++) { /* the last few, so that little is dead */
        MxValue flat = mx_reshape(&t, mx_cast(&t, r.readable[r.n - i], MX_F32), MX_SHAPE(12));
        sum = sum == MX_NONE ? flat : mx_add(&t, sum, flat);
    }
    MxValue column = source("column", MX_F32, MX_SHAPE(12, 1));
    return mx_reshape(&t, mx_dot(&t, sum, column, MX_DOT_NN, 1), MX_SCALAR);
}

/* ---- programs */

typedef struct Program {
    Random random;
    int first_var, n_vars;
    MxValue holds[8]; /* what is in a variable now; MX_NONE = what it started with */
    bool is_mixed[8]; /* it was added to: its value is in no buffer any more */
} Program;

static int var_of(MxValue value) {
    value = mx_graph_buffer(t.graph, value);
    const MxNode *node = mx_graph_producer(t.graph, value);
    if (node->op->flags & MX_OP_SOURCE) return ((const MxVariableAttr *)node->attr)->var;
    return t.graph->values[value].var;
}

static bool is_readable(const Program *p, MxValue value) {
    MxValue buffer = mx_graph_buffer(t.graph, value);
    int var = var_of(buffer) - p->first_var;
    if (var_of(buffer) == MX_NONE) return true;
    bool is_source = mx_graph_producer(t.graph, buffer)->op->flags & MX_OP_SOURCE;
    return !p->is_mixed[var] && p->holds[var] == (is_source ? MX_NONE : buffer);
}

static void forget_what_is_overwritten(Program *p) {
    int n = 0;
    for (int i = 0; i < p->random.n; i++)
        if (is_readable(p, p->random.readable[i])) p->random.readable[n++] = p->random.readable[i];
    p->random.n = n;
}

static bool reads_var(const MxNode *node, int var) {
    for (int i = 0; i < node->n_in; i++)
        if (var_of(node->in[i]) == var) return true;
    return false;
}

static void assign_somewhere(Program *p, MxValue value) {
    const MxNode *node = mx_graph_producer(t.graph, value);
    int i = below(&p->random, p->n_vars), var = p->first_var + i;
    bool runs = !(node->op->flags & (MX_OP_SOURCE | MX_OP_VIEW));
    if (!runs || t.graph->values[value].var != MX_NONE || node->out[0] != value) return;
    bool elementwise = node->op == &op_add || node->op == &op_scale || node->op == &op_glu;
    if (mx_trace_type(&t, value).dtype != MX_F32 || (reads_var(node, var) && !elementwise)) return;
    bool adds = node->op->accumulates & 1 && below(&p->random, 2);
    mx_trace_assign(&t, value, var, adds);
    p->holds[i] = value;
    p->is_mixed[i] = adds;
    forget_what_is_overwritten(p);
}

void random_program(uint64_t seed, int n_nodes) {
    Program p = {.random = {.state = ~seed << 32}, .first_var = vars.n, .n_vars = 5};
    for (int i = 0; i < p.n_vars; i++) {
        p.holds[i] = MX_NONE;
        keep(&p.random, source(mx_arena_printf(&arena, "v%d", i), MX_F32,
                               i % 2 ? MX_SHAPE(3, 4) : MX_SHAPE(2, 6)));
    }
    /* Something that is never overwritten, so that there is always something to read. */
    keep(&p.random, mx_copy(&t, p.random.readable[0]));
    while (t.graph->n_nodes < n_nodes) {
        int n_values = t.graph->n_values;
        MxValue value = grow(&p.random);
        keep(&p.random, value);
        bool is_new = value >= n_values;
        if (is_new && !below(&p.random, 3)) assign_somewhere(&p, value);
    }
}

/* ---- a decoder */

enum { B = 2, T = 4, D = 8, N = 2, K = 1, H = 4, M = 6, V = 10 };

typedef struct Model {
    MxDtype dtype;
    MxValue *params, segments, table;
    int n;
} Model;

static MxValue param(Model *m, const char *name, MxShape shape) {
    return m->params[m->n++] = source(name, MX_F32, shape);
}

static MxValue weight(Model *m, const char *name, MxShape shape) {
    return mx_cast(&t, param(m, name, shape), m->dtype);
}

static const char *named(int layer, const char *name) {
    return mx_arena_printf(&arena, "layers_%d/%s", layer, name);
}

static MxValue layer(Model *m, int i, MxValue x_BTD) {
    const MxAttentionAttr attention = {.scale = 0.5};
    const MxRopeAttr halves = {0};
    t.region = i + 1;
    t.scope = named(i, "attention");
    MxValue h = mx_rmsnorm(&t, x_BTD, param(m, named(i, "norm_1"), MX_SHAPE(D)), 1e-5);
    MxValue q = mx_dot(&t, h, weight(m, named(i, "query"), MX_SHAPE(D, N, H)), MX_DOT_NN, 1);
    MxValue k = mx_dot(&t, h, weight(m, named(i, "key"), MX_SHAPE(D, K, H)), MX_DOT_NN, 1);
    MxValue v = mx_dot(&t, h, weight(m, named(i, "value"), MX_SHAPE(D, K, H)), MX_DOT_NN, 1);
    q = mx_rope(&t, q, m->table, halves);
    k = mx_rope(&t, k, m->table, halves);
    MxValue o = mx_attention(&t, q, k, v, m->segments, attention);
    MxValue wo = weight(m, named(i, "out"), MX_SHAPE(N, H, D));
    x_BTD = mx_add(&t, x_BTD, mx_dot(&t, o, wo, MX_DOT_NN, 2));
    t.scope = named(i, "mlp");
    h = mx_rmsnorm(&t, x_BTD, param(m, named(i, "norm_2"), MX_SHAPE(D)), 1e-5);
    MxValue gate = mx_dot(&t, h, weight(m, named(i, "wi_0"), MX_SHAPE(D, M)), MX_DOT_NN, 1);
    MxValue up = mx_dot(&t, h, weight(m, named(i, "wi_1"), MX_SHAPE(D, M)), MX_DOT_NN, 1);
    MxValue wo_M = weight(m, named(i, "wo"), MX_SHAPE(M, D));
    MxValue down = mx_dot(&t, mx_glu(&t, gate, up, MX_SILU), wo_M, MX_DOT_NN, 1);
    return mx_add(&t, x_BTD, down);
}

MxValue model_forward(MxDtype dtype, MxValue params[MODEL_PARAMS]) {
    Model m = {.dtype = dtype, .params = params};
    MxValue ids = source("ids", MX_I32, MX_SHAPE(B, T));
    MxValue targets = source("targets", MX_I32, MX_SHAPE(B, T));
    m.segments = source("segments", MX_I32, MX_SHAPE(B, T));
    MxRopeFreqs freqs = {.n = H / 2, .frequency = mx_new_n(&arena, double, H / 2), .amplitude = 1};
    m.table = mx_rope_table(&t, source("positions", MX_I32, MX_SHAPE(B, T)), freqs);
    MxValue x_BTD = mx_embed(&t, param(&m, "embedding", MX_SHAPE(V, D)), ids, dtype);
    for (int i = 0; i < MODEL_LAYERS; i++) x_BTD = layer(&m, i, x_BTD);
    t.region = 0;
    t.scope = "head";
    x_BTD = mx_rmsnorm(&t, x_BTD, param(&m, "norm", MX_SHAPE(D)), 1e-5);
    MxValue xent = mx_xent(&t, x_BTD, weight(&m, "logits", MX_SHAPE(D, V)), targets, m.segments,
                           (MxXentAttr){.scale = 1});
    t.scope = "loss";
    MxValue count = mx_count_nonzero(&t, m.segments);
    MxValue loss = mx_ratio(&t, xent, count, 1e-8);
    ck_assert_msg(!t.failure.len, "%s", t.failure.data);
    mx_trace_assign(&t, xent, new_var("xent", MX_F32, MX_SCALAR), false);
    mx_trace_assign(&t, xent + 1, new_var("z", MX_F32, MX_SCALAR), false);
    mx_trace_assign(&t, count, new_var("count", MX_F32, MX_SCALAR), false);
    mx_trace_assign(&t, loss, new_var("loss", MX_F32, MX_SCALAR), false);
    ck_assert_int_eq(m.n, MODEL_PARAMS);
    return loss;
}
