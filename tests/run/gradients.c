/* gradients.c — every op with a gradient rule, through the whole path that training takes: a small
 * graph, its gradient by mx_grad, lowered and run, against differences of the forward graph as it
 * is run. A graph is one node, as the cases of tests/cases have it; some here have more. */
#include "suites.h"
#include "common/vars.h"

#include <cases/cases.h>
#include <math.h>

enum { FORWARD = 0, BACKWARD = 1 };

/* ---- graphs of more nodes: gradients that come together, and outputs that are used apart */

typedef MxValue BuildFn(MxTrace *t, const MxValue *in);

static MxValue build_split(MxTrace *t, const MxValue *in) {
    MxValue first = mx_split(t, in[0], 3);
    return mx_concat(t, mx_scale(t, first + 1, 3), mx_scale(t, first, 2));
}
static MxValue build_part(MxTrace *t, const MxValue *in) {
    return mx_split(t, mx_scale(t, in[0], 2), 3) + 1;
}
static MxValue build_cast(MxTrace *t, const MxValue *in) {
    return mx_cast(t, mx_cast(t, in[0], MX_BF16), MX_F32);
}
static MxValue build_reshape(MxTrace *t, const MxValue *in) {
    return mx_reshape(t, mx_scale(t, in[0], 2.0), MX_SHAPE(4, 6));
}
static MxValue build_twice(MxTrace *t, const MxValue *in) {
    return mx_add(t, mx_scale(t, in[0], 3.0), in[0]);
}
static MxValue build_ratio(MxTrace *t, const MxValue *in) {
    MxValue x = mx_reshape(t, mx_scale(t, in[0], 1.0), MX_SCALAR);
    return mx_ratio(t, x, mx_count_nonzero(t, in[1]), 1e-3);
}
static MxValue build_square(MxTrace *t, const MxValue *in) {
    return mx_dot(t, in[0], in[0], MX_DOT_NT, 1);
}
static MxValue build_rope(MxTrace *t, const MxValue *in) {
    static double frequency[] = {1.0, 0.3};
    MxValue table =
        mx_rope_table(t, in[1], (MxRopeFreqs){.n = 2, .frequency = frequency, .amplitude = 1.2});
    return mx_rope(t, in[0], table, (MxRopeAttr){.interleaved_in = true});
}
/* Queries, keys and values that are one: three contributions to one gradient. */
static MxValue build_attention_self(MxTrace *t, const MxValue *in) {
    return mx_attention(t, in[0], in[0], in[0], in[1], (MxAttentionAttr){.scale = 0.5});
}
static MxValue build_dpo(MxTrace *t, const MxValue *in) {
    MxInitAttr reference = {.type = mx_trace_type(t, in[0]), .value = -0.8};
    MxPreferenceAttr attr = {.beta = 0.4, .label_smoothing = 0.1};
    MxPairInputs pairs = {.logp = mx_scale(t, in[0], 1),
                          .reference = mx_init(t, reference),
                          .alignment = MX_NONE,
                          .weights = in[1],
                          .segments = in[1]};
    return mx_preference(t, pairs, attr);
}
/* With entropies, and these alone. */
static MxValue build_entropy(MxTrace *t, const MxValue *in) {
    return 2 + mx_logprob(t, in[0], in[1], in[2], in[3], (MxXentAttr){.scale = 1, .entropy = true});
}
static MxValue build_logp_entropy(MxTrace *t, const MxValue *in) {
    MxValue entropy = build_entropy(t, in);
    return mx_add(t, entropy - 2, mx_scale(t, entropy, 3));
}

static const struct {
    OpCase c;
    BuildFn *build;
    double step; /* of differences; 0 = the usual one */
} graphs[] = {
    {{.label = "split and joined", .in = "f2,3,5"}, build_split, 0},
    {{.label = "part of a split", .in = "f2,3,5"}, build_part, 0},
    {{.label = "cast there and back", .in = "f30,40"}, build_cast, 1.0},
    {{.label = "reshaped", .in = "f2,3,4"}, build_reshape, 0},
    {{.label = "added twice", .in = "f3,4"}, build_twice, 0},
    {{.label = "ratio to a count", .in = "f1 i9:flags0.3"}, build_ratio, 0},
    {{.label = "product with itself", .in = "f3,4"}, build_square, 0},
    {{.label = "rope and its table", .in = "f2,5,3,4 i2,5:positions5"}, build_rope, 0},
    {{.label = "attention of itself", .in = "f1,6,2,3 i1,6:segments2"}, build_attention_self, 0},
    {{.label = "dpo with a reference", .in = "f6,5:logp0.5 i6,5:flags0.3"}, build_dpo, 0},
    {{.label = "entropy", .in = "f2,3,4 f4,9:normal0.5 i2,3:ids9 i2,3:flags0.2"}, build_entropy, 0},
    {{.label = "log-probability and entropy",
      .in = "f2,3,4 f4,9:normal0.5 i2,3:ids9 i2,3:flags0.2"},
     build_logp_entropy,
     0},
};

/* A graph of one node, or one of the above. */
typedef struct Graph {
    const char *name;
    const Shot *shot;
    BuildFn *build; /* NULL = the shot's node */
    double step;
} Graph;

static Graph *cases;
static int n_cases;

/* ---- the program: a forward entry and its gradient */

typedef struct Program {
    MxArena arena;
    MxVars vars;
    MxRun *run;
    Graph graph;
    int in[SHOT_INPUTS], grad[SHOT_INPUTS], out, cotangent;
    int64_t n_out;
} Program;

static bool is_real(const Program *p, int i) {
    return p->graph.shot->in[i].dtype == MX_F32;
}

/* Whether input i has a gradient: reals of graphs all have one, those of a node as its op says. */
static bool is_slope(const Program *p, int i) {
    return is_real(p, i) && (p->graph.build || p->graph.shot->test->flows >> i & 1);
}

static void check_trace(Program *p, MxTrace *t) {
    MxError err = {0};
    ck_assert_msg(mx_trace_end(t, &err), "%s: %s", p->graph.name, err.count ? err.text.data : "");
}

static MxValue trace_forward(Program *p, MxTrace *t, MxGraph *graph, MxValue *in) {
    mx_trace_begin(t, graph);
    const Shot *shot = p->graph.shot;
    for (int i = 0; i < shot->n_in; i++) in[i] = mx_variable(t, p->in[i]);
    if (p->graph.build) return p->graph.build(t, in);
    return mx_trace_node(t, shot->op, in, shot->n_in, shot->attr);
}

/* The forward entry also tells how large the output is. */
static MxGraph *forward_graph(Program *p) {
    MxTrace t;
    MxValue in[SHOT_INPUTS];
    MxGraph *graph = mx_graph_new(&p->arena, "forward", &p->vars);
    MxValue out = trace_forward(p, &t, graph, in);
    check_trace(p, &t);
    MxType type = mx_trace_type(&t, out);
    p->n_out = mx_shape_count(type.shape);
    p->out = mx_vars_add(&p->vars, "out", type);
    p->cotangent = mx_vars_add(&p->vars, "cotangent", (MxType){MX_F32, MX_SHAPE(1, p->n_out)});
    mx_trace_assign(&t, mx_copy(&t, out), p->out, false);
    check_trace(p, &t);
    return graph;
}

static MxGraph *backward_graph(Program *p) {
    MxTrace t;
    MxValue in[SHOT_INPUTS];
    MxGraph *graph = mx_graph_new(&p->arena, "backward", &p->vars);
    MxValue out = mx_reshape(&t, trace_forward(p, &t, graph, in), MX_SHAPE(1, p->n_out));
    MxValue loss = mx_dot(&t, out, mx_variable(&t, p->cotangent), MX_DOT_NT, 1);
    MxGradTarget targets[SHOT_INPUTS];
    int n = 0;
    for (int i = 0; i < p->graph.shot->n_in; i++)
        if (is_slope(p, i))
            targets[n++] = (MxGradTarget){.wrt = in[i], .var = p->grad[i], .add = true};
    mx_grad(&t, mx_reshape(&t, loss, MX_SCALAR), targets, n);
    check_trace(p, &t);
    return graph;
}

static double normal(uint64_t stream, int64_t i) {
    return case_normal(stream, (uint64_t)i);
}

static void fill_inputs(Program *p) {
    double *in[SHOT_INPUTS];
    shot_inputs(p->graph.shot, &p->arena, in);
    for (int i = 0; i < p->graph.shot->n_in; i++) {
        int64_t n = element_count(p->graph.shot->in[i]);
        void *x = mx_new_n(&p->arena, float, n + 1);
        for (int64_t j = 0; j < n; j++)
            case_put(x, is_real(p, i) ? MX_F32 : p->graph.shot->in[i].dtype, j, in[i][j]);
        var_fill(p->run, p->in[i], x);
    }
}

static void open_program(Program *p, const Graph *graph) {
    *p = (Program){.arena = {.name = "test"}, .graph = *graph};
    p->vars.arena = &p->arena;
    for (int i = 0; i < graph->shot->n_in; i++) {
        MxType type = graph->shot->in[i];
        p->in[i] = mx_vars_add(&p->vars, "in", type);
        if (is_slope(p, i)) p->grad[i] = mx_vars_add(&p->vars, "gradient", type);
    }
    MxGraph *entries[2];
    entries[FORWARD] = forward_graph(p);
    entries[BACKWARD] = backward_graph(p);
    MxDevice *device;
    MxError err = {0};
    ck_assert(mx_device_open(&p->arena, &(MxDeviceConfig){0}, &device, &err));
    ck_assert(mx_run_open(&p->arena, device, &p->vars, entries, 2, MX_REMAT_NONE, &p->run, &err));
    fill_inputs(p);
    float *cotangent = mx_new_n(&p->arena, float, p->n_out);
    for (int64_t j = 0; j < p->n_out; j++) cotangent[j] = (float)normal(50, j);
    var_fill(p->run, p->cotangent, cotangent);
}

/* ---- differences */

static double loss_of(Program *p) {
    MxArena arena = {.name = "loss"};
    mx_run_entry(p->run, FORWARD);
    const float *out = var_values(&arena, p->run, p->out);
    const float *r = var_values(&arena, p->run, p->cotangent);
    double loss = 0;
    for (int64_t j = 0; j < p->n_out; j++) loss += (double)out[j] * (double)r[j];
    mx_arena_release(&arena);
    return loss;
}

/* Moves an input by `by` along a direction: one element, or all by random amounts if at < 0. */
static double loss_moved(Program *p, int input, int64_t at, double by) {
    int64_t n = element_count(p->graph.shot->in[input]);
    MxArena arena = {.name = "moved"};
    const float *saved = var_values(&arena, p->run, p->in[input]);
    float *x = var_values(&arena, p->run, p->in[input]);
    for (int64_t j = 0; j < n; j++)
        if (at < 0 || at == j) x[j] = (float)((double)x[j] + by * (at < 0 ? normal(60, j) : 1.0));
    var_fill(p->run, p->in[input], x);
    double loss = loss_of(p);
    var_fill(p->run, p->in[input], saved);
    mx_arena_release(&arena);
    return loss;
}

/* Five points: the error is of the fourth order in the step. */
static double difference(Program *p, int input, int64_t at) {
    double usual = at < 0 ? 0.01 : 0.05, h = p->graph.step > 0 ? p->graph.step : usual;
    double near = loss_moved(p, input, at, h) - loss_moved(p, input, at, -h);
    double far = loss_moved(p, input, at, 2 * h) - loss_moved(p, input, at, -2 * h);
    return (8 * near - far) / (12 * h);
}

static const double tolerance = 2e-3, tolerance_rounded = 3e-2; /* of the gradient's size */

static void check_input(Program *p, int input) {
    enum { MOST_ELEMENTS = 300 };
    int64_t n = element_count(p->graph.shot->in[input]);
    const float *g = var_values(&p->arena, p->run, p->grad[input]);
    double largest = 0, norm = 0, along = 0,
           limit = p->graph.step > 0 ? tolerance_rounded : tolerance;
    for (int64_t j = 0; j < n; j++) {
        largest = fmax(largest, fabs((double)g[j]));
        norm += (double)g[j] * (double)g[j];
        along += (double)g[j] * normal(60, j);
    }
    ck_assert_msg(norm > 0, "%s: no gradient of input %d", p->graph.name, input);
    double want = difference(p, input, -1);
    ck_assert_msg(fabs(along - want) <= limit * sqrt(norm),
                  "%s: input %d along a direction: %.9g, not %.9g", p->graph.name, input, along,
                  want);
    for (int64_t j = 0; n <= MOST_ELEMENTS && j < n; j++) {
        want = difference(p, input, j);
        ck_assert_msg(fabs((double)g[j] - want) <= limit * fmax(largest, 0.1),
                      "%s: input %d, element %lld: %.9g, not %.9g", p->graph.name, input,
                      (long long)j, (double)g[j], want);
    }
}

START_TEST(gradient_is_slope) {
    Program p;
    open_program(&p, &cases[_i]);
    mx_run_entry(p.run, BACKWARD);
    for (int i = 0; i < p.graph.shot->n_in; i++)
        if (is_slope(&p, i)) check_input(&p, i);
    mx_arena_release(&p.arena);
}
END_TEST

START_TEST(gradients_add_up) {
    Program p;
    open_program(&p, &cases[_i]);
    mx_run_entry(p.run, BACKWARD);
    float *once[SHOT_INPUTS];
    for (int i = 0; i < p.graph.shot->n_in; i++)
        if (is_slope(&p, i)) once[i] = var_values(&p.arena, p.run, p.grad[i]);
    mx_run_entry(p.run, BACKWARD);
    for (int i = 0; i < p.graph.shot->n_in; i++) {
        if (!is_slope(&p, i)) continue;
        const float *twice = var_values(&p.arena, p.run, p.grad[i]);
        for (int64_t j = 0; j < element_count(p.graph.shot->in[i]); j++)
            ck_assert_msg(fabsf(twice[j] - 2 * once[i][j]) <= 1e-4f * (1 + fabsf(twice[j])),
                          "%s: input %d, element %lld: %g after %g", p.graph.name, i, (long long)j,
                          (double)twice[j], (double)once[i][j]);
    }
    mx_arena_release(&p.arena);
}
END_TEST

static bool has_slope(const Shot *shot) {
    return shot->op->vjp && shot->dtype == MX_F32 && shot->out[0].dtype == MX_F32 &&
           !(shot->c->use & (CASE_TYPES | CASE_NO_SLOPE | CASE_DETACHED)) &&
           !strchr(shot->c->in, 'b');
}

/* A shot of the op that a graph ends with serves for its inputs alone. */
static const Shot *inputs_of(const OpCase *c) {
    static MxArena arena = {.name = "inputs"};
    Shot *shot = mx_new(&arena, Shot);
    *shot = (Shot){.c = c, .name = c->label, .dtype = MX_F32};
    shot_parse(shot);
    return shot;
}

static MxValue build_delta(MxTrace *t, const MxValue *in) {
    return mx_delta(t, in, in + 3, in[5], (MxDeltaAttr){.carries = false});
}

/* Of two tokens of which the second forgets most of the first: what flows to its decay is 1e-6 of
 * what flows within a token, and was lost in the rounding of that as a difference of sums. */
START_TEST(little_flows_through_strong_decays) {
    enum { N = 4, DECAYS = 3, BETAS = 4 }; /* N: width of keys and values */
    static const OpCase c = {.label = "forgotten",
                             .in = "f1,2,1,4 f1,2,1,4:normal0.4 f1,2,1,4 f1,2,1 f1,2,1:square0.5 "
                                   "i1,2:segments1000"};
    const float decays[] = {-12, -12};
    Program p;
    open_program(&p, &(Graph){.name = c.label, .shot = inputs_of(&c), .build = build_delta});
    var_fill(p.run, p.in[DECAYS], decays);
    mx_run_entry(p.run, BACKWARD);
    const float *g = var_values(&p.arena, p.run, p.grad[DECAYS]), *in[BETAS + 1];
    for (int i = 0; i <= BETAS; i++) in[i] = var_values(&p.arena, p.run, p.in[i]);
    const float *q = in[0] + N, *k = in[1], *beta = in[BETAS];
    double qk0 = 0, qk1 = 0, kk = 0, flow = 0;
    for (int i = 0; i < N; i++) {
        qk0 += (double)q[i] * (double)k[i];
        qk1 += (double)q[i] * (double)k[N + i];
        kk += (double)k[i] * (double)k[N + i];
        flow += (double)in[2][i] * normal(50, N + i);
    }
    double want = exp(-12) * (double)beta[0] * flow * (qk0 - qk1 * (double)beta[1] * kk);
    ck_assert_msg(fabs((double)g[1] - want) < 1e-5 * fabs(want), "%.9g, not %.9g", (double)g[1],
                  want);
    mx_arena_release(&p.arena);
}
END_TEST

static void collect_cases(void) {
    static MxArena arena = {.name = "graphs"};
    int n;
    const Shot *const *shots = op_shots(has_slope, &n);
    cases = mx_new_n(&arena, Graph, n + MX_COUNT(graphs));
    for (n_cases = 0; n_cases < n; n_cases++)
        cases[n_cases] = (Graph){.name = shots[n_cases]->name, .shot = shots[n_cases]};
    for (int i = 0; i < MX_COUNT(graphs); i++)
        cases[n_cases++] = (Graph){.name = graphs[i].c.label,
                                   .shot = inputs_of(&graphs[i].c),
                                   .build = graphs[i].build,
                                   .step = graphs[i].step};
}

Suite *suite_gradients(void) {
    Suite *suite = suite_create("gradients");
    TCase *t = tcase_create("gradients");
    collect_cases();
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, gradient_is_slope, 0, n_cases);
    tcase_add_loop_test(t, gradients_add_up, 0, n_cases);
    tcase_add_test(t, little_flows_through_strong_decays);
    suite_add_tcase(suite, t);
    return suite;
}
