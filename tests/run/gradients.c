/* gradients.c — every op with a gradient rule, through the whole path that training takes: a small
 * graph, its gradient by mx_grad, lowered and run, against differences of the forward graph as it
 * is run. An op with a gradient rule and no case fails the suite. */
#include <mx/run.h>

#include "suites.h"
#include "common/vars.h"

#include <math.h>

enum { MOST_INPUTS = 4, FORWARD = 0, BACKWARD = 1 };

/* What an input holds. Only reals are differentiated. */
typedef enum Fill {
    REAL,
    FAR_FROM_ZERO, /* no kink of an activation within reach of a difference */
    IDS,           /* i32 in [0, 5) */
    LOGP,          /* below 0 */
    FLAGS,         /* i32, some 0 */
    SEGMENTS,      /* i32: 1 1 1 2 2 2 .. */
    POSITIONS      /* i32: 0 1 2 .. */
} Fill;

typedef struct Case {
    const MxOp *op;
    const char *label;
    MxValue (*build)(MxTrace *t, const MxValue *in);
    struct {
        Fill fill;
        MxShape shape;
    } in[MOST_INPUTS];
    int n_in;
    double step; /* of differences; 0 = the usual one */
} Case;

/* ---- one graph an op */

static MxValue build_copy(MxTrace *t, const MxValue *in) {
    return mx_copy(t, in[0]);
}
static MxValue build_concat(MxTrace *t, const MxValue *in) {
    return mx_concat(t, mx_scale(t, in[0], 2), in[1]);
}
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
static MxValue build_add(MxTrace *t, const MxValue *in) {
    return mx_add(t, in[0], in[1]);
}
static MxValue build_twice(MxTrace *t, const MxValue *in) {
    return mx_add(t, mx_scale(t, in[0], 3.0), in[0]);
}
static MxValue build_scale(MxTrace *t, const MxValue *in) {
    return mx_scale(t, in[0], -1.25);
}
static MxValue build_softcap(MxTrace *t, const MxValue *in) {
    return mx_softcap(t, in[0], 1.5);
}
static MxValue build_ratio(MxTrace *t, const MxValue *in) {
    MxValue x = mx_reshape(t, mx_scale(t, in[0], 1.0), MX_SCALAR);
    return mx_ratio(t, x, mx_count_nonzero(t, in[1]), 1e-3);
}
static MxValue build_silu(MxTrace *t, const MxValue *in) {
    return mx_glu(t, in[0], in[1], MX_SILU);
}
static MxValue build_gelu(MxTrace *t, const MxValue *in) {
    return mx_glu(t, in[0], in[1], MX_GELU);
}
static MxValue build_relu(MxTrace *t, const MxValue *in) {
    return mx_glu(t, in[0], in[1], MX_RELU);
}
static MxValue build_linear(MxTrace *t, const MxValue *in) {
    return mx_glu(t, in[0], in[1], MX_LINEAR);
}
static MxValue build_dot_nn(MxTrace *t, const MxValue *in) {
    return mx_dot(t, in[0], in[1], MX_DOT_NN, 1);
}
static MxValue build_dot_nt(MxTrace *t, const MxValue *in) {
    return mx_dot(t, in[0], in[1], MX_DOT_NT, 2);
}
static MxValue build_dot_tn(MxTrace *t, const MxValue *in) {
    return mx_dot(t, in[0], in[1], MX_DOT_TN, 1);
}
static MxValue build_square(MxTrace *t, const MxValue *in) {
    return mx_dot(t, in[0], in[0], MX_DOT_NT, 1);
}
static MxValue build_rmsnorm(MxTrace *t, const MxValue *in) {
    return mx_rmsnorm(t, in[0], in[1], 1e-3);
}

static MxValue rope(MxTrace *t, const MxValue *in, bool interleaved_in, bool interleaved_out) {
    static double frequency[] = {1.0, 0.3};
    MxValue table = mx_rope_table(t, in[1], (MxRopeFreqs){2, frequency, 1.2});
    return mx_rope(
        t, in[0], table,
        (MxRopeAttr){.interleaved_in = interleaved_in, .interleaved_out = interleaved_out});
}
static MxValue build_rope(MxTrace *t, const MxValue *in) {
    return rope(t, in, false, false);
}
static MxValue build_rope_mixed(MxTrace *t, const MxValue *in) {
    return rope(t, in, true, false);
}

static MxValue build_attention(MxTrace *t, const MxValue *in) {
    return mx_attention(t, in[0], in[1], in[2], in[3], (MxAttentionAttr){.scale = 0.5});
}
static MxValue build_attention_capped(MxTrace *t, const MxValue *in) {
    return mx_attention(
        t, in[0], in[1], in[2], in[3],
        (MxAttentionAttr){.scale = 0.7, .softcap = 1.5, .mask = MX_MASK_SLIDING, .window = 3});
}
/* Queries, keys and values that are one: three contributions to one gradient. */
static MxValue build_attention_self(MxTrace *t, const MxValue *in) {
    return mx_attention(t, in[0], in[0], in[0], in[1], (MxAttentionAttr){.scale = 0.5});
}
static MxValue build_embed(MxTrace *t, const MxValue *in) {
    return mx_embed(t, in[0], in[1], MX_F32);
}
static MxValue build_xent(MxTrace *t, const MxValue *in) {
    MxXentAttr attr = {.scale = 0.9, .z_loss = 0.01};
    return mx_xent(t, in[0], in[1], in[2], in[3], attr);
}
static MxValue build_xent_tied(MxTrace *t, const MxValue *in) {
    MxXentAttr attr = {.tied = true, .scale = 1.1, .softcap = 2.0};
    return mx_xent(t, in[0], in[1], in[2], in[3], attr);
}

static MxValue build_logprob(MxTrace *t, const MxValue *in) {
    MxXentAttr attr = {.scale = 0.9, .tiles = 3};
    return mx_logprob(t, in[0], in[1], in[2], in[3], attr);
}
static MxValue build_logprob_tied(MxTrace *t, const MxValue *in) {
    MxXentAttr attr = {.tied = true, .scale = 1.1, .softcap = 2.0};
    return mx_logprob(t, in[0], in[1], in[2], in[3], attr);
}
static MxValue build_dpo(MxTrace *t, const MxValue *in) {
    MxInitAttr reference = {.type = mx_trace_type(t, in[0]), .value = -0.8};
    MxPreferenceAttr attr = {.beta = 0.4, .label_smoothing = 0.1};
    return mx_preference(t, mx_scale(t, in[0], 1), mx_init(t, reference), in[1], in[1], attr);
}
static MxValue build_orpo(MxTrace *t, const MxValue *in) {
    MxPreferenceAttr attr = {.algo = MX_PREFERENCE_ORPO, .lambda = 0.5};
    return mx_preference(t, mx_scale(t, in[0], 1), MX_NONE, in[1], in[1], attr);
}

// clang-format off
#define S(rank_, ...) {.rank = rank_, .dim = {__VA_ARGS__}}
#define X(...)        {REAL, S(__VA_ARGS__)}
static const Case cases[] = {
    {&op_copy, "", build_copy, {X(2, 3, 4)}, 1, 0},
    {&op_concat, "", build_concat, {X(3, 2, 3, 4), X(3, 2, 3, 5)}, 2, 0},
    {&op_split, "", build_split, {X(3, 2, 3, 5)}, 1, 0},
    {&op_split, "a part", build_part, {X(3, 2, 3, 5)}, 1, 0},
    {&op_cast, "", build_cast, {X(2, 30, 40)}, 1, 1.0},
    {&op_reshape, "", build_reshape, {X(3, 2, 3, 4)}, 1, 0},
    {&op_add, "one shape", build_add, {X(2, 3, 4), X(2, 3, 4)}, 2, 0},
    {&op_add, "bias", build_add, {X(3, 2, 3, 4), X(1, 4)}, 2, 0},
    {&op_add, "one value twice", build_twice, {X(2, 3, 4)}, 1, 0},
    {&op_scale, "", build_scale, {X(2, 3, 4)}, 1, 0},
    {&op_softcap, "", build_softcap, {X(2, 3, 4)}, 1, 0},
    {&op_ratio, "", build_ratio, {X(1, 1), {FLAGS, S(1, 9)}}, 2, 0},
    {&op_glu, "silu", build_silu, {X(2, 3, 5), X(2, 3, 5)}, 2, 0},
    {&op_glu, "gelu", build_gelu, {X(2, 3, 5), X(2, 3, 5)}, 2, 0},
    {&op_glu, "relu", build_relu, {{FAR_FROM_ZERO, S(2, 3, 5)}, X(2, 3, 5)}, 2, 0},
    {&op_glu, "linear", build_linear, {X(2, 3, 5), X(2, 3, 5)}, 2, 0},
    {&op_dot, "nn", build_dot_nn, {X(3, 2, 3, 4), X(3, 4, 2, 3)}, 2, 0},
    {&op_dot, "nt", build_dot_nt, {X(3, 3, 2, 4), X(4, 2, 2, 2, 4)}, 2, 0},
    {&op_dot, "tn", build_dot_tn, {X(2, 5, 3), X(3, 5, 2, 2)}, 2, 0},
    {&op_dot, "with itself", build_square, {X(2, 3, 4)}, 1, 0},
    {&op_rmsnorm, "", build_rmsnorm, {X(3, 2, 3, 8), X(1, 8)}, 2, 0},
    {&op_rope, "halves", build_rope, {X(4, 2, 5, 3, 4), {POSITIONS, S(2, 2, 5)}}, 2, 0},
    {&op_rope, "mixed", build_rope_mixed, {X(4, 2, 5, 3, 4), {POSITIONS, S(2, 2, 5)}}, 2, 0},
    {&op_attention, "causal", build_attention, {X(4, 2, 7, 4, 3), X(4, 2, 7, 2, 3), X(4, 2, 7, 2, 3), {SEGMENTS, S(2, 2, 7)}}, 4, 0},
    {&op_attention, "window, cap", build_attention_capped, {X(4, 1, 9, 4, 3), X(4, 1, 9, 1, 3), X(4, 1, 9, 1, 3), {SEGMENTS, S(2, 1, 9)}}, 4, 0},
    {&op_attention, "large", build_attention, {X(4, 1, 200, 2, 16), X(4, 1, 200, 1, 16), X(4, 1, 200, 1, 16), {SEGMENTS, S(2, 1, 200)}}, 4, 0},
    {&op_attention, "of itself", build_attention_self, {X(4, 1, 6, 2, 3), {SEGMENTS, S(2, 1, 6)}}, 2, 0},
    {&op_embed, "", build_embed, {X(2, 5, 4), {IDS, S(2, 2, 6)}}, 2, 0},
    {&op_xent, "untied", build_xent, {X(3, 2, 3, 4), X(2, 4, 5), {IDS, S(2, 2, 3)}, {FLAGS, S(2, 2, 3)}}, 4, 0},
    {&op_xent, "tied, cap", build_xent_tied, {X(3, 2, 3, 4), X(2, 5, 4), {IDS, S(2, 2, 3)}, {FLAGS, S(2, 2, 3)}}, 4, 0},
    {&op_xent, "large", build_xent, {X(3, 2, 150, 16), X(2, 16, 301), {IDS, S(2, 2, 150)}, {FLAGS, S(2, 2, 150)}}, 4, 0},
    {&op_logprob, "untied", build_logprob, {X(3, 2, 3, 4), X(2, 4, 5), {IDS, S(2, 2, 3)}, {FLAGS, S(2, 2, 3)}}, 4, 0},
    {&op_logprob, "tied, cap", build_logprob_tied, {X(3, 2, 3, 4), X(2, 5, 4), {IDS, S(2, 2, 3)}, {FLAGS, S(2, 2, 3)}}, 4, 0},
    {&op_preference, "dpo", build_dpo, {{LOGP, S(2, 6, 5)}, {FLAGS, S(2, 6, 5)}}, 2, 0},
    {&op_preference, "orpo", build_orpo, {{LOGP, S(2, 6, 5)}, {FLAGS, S(2, 6, 5)}}, 2, 0},
};
// clang-format on

/* ---- the program: a forward entry and its gradient */

typedef struct Program {
    MxArena arena;
    MxVars vars;
    MxRun *run;
    const Case *c;
    int in[MOST_INPUTS], grad[MOST_INPUTS], out, cotangent;
    int64_t n_out;
} Program;

static bool is_real(const Case *c, int i) {
    return c->in[i].fill == REAL || c->in[i].fill == FAR_FROM_ZERO || c->in[i].fill == LOGP;
}

static double normal(uint64_t stream, int64_t i) {
    uint32_t w[4];
    mx_philox(5, stream, (uint64_t)i, w);
    double radius = sqrt(-2 * log((double)mx_uniform(w[0])));
    return radius * cos(6.283185307179586 * (double)mx_uniform(w[1]));
}

static void check_trace(Program *p, MxTrace *t) {
    MxError err = {0};
    ck_assert_msg(mx_trace_end(t, &err), "%s (%s): %s", p->c->op->name, p->c->label,
                  err.count ? err.text.data : "");
}

static MxValue trace_forward(Program *p, MxTrace *t, MxGraph *graph, MxValue *in) {
    mx_trace_begin(t, graph);
    for (int i = 0; i < p->c->n_in; i++) in[i] = mx_variable(t, p->in[i]);
    return p->c->build(t, in);
}

/* The forward entry also tells how large the output is. */
static MxGraph *forward_graph(Program *p) {
    MxTrace t;
    MxValue in[MOST_INPUTS];
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
    MxValue in[MOST_INPUTS];
    MxGraph *graph = mx_graph_new(&p->arena, "backward", &p->vars);
    MxValue out = mx_reshape(&t, trace_forward(p, &t, graph, in), MX_SHAPE(1, p->n_out));
    MxValue loss = mx_dot(&t, out, mx_variable(&t, p->cotangent), MX_DOT_NT, 1);
    MxGradTarget targets[MOST_INPUTS];
    int n = 0;
    for (int i = 0; i < p->c->n_in; i++)
        if (is_real(p->c, i))
            targets[n++] = (MxGradTarget){.wrt = in[i], .var = p->grad[i], .add = true};
    mx_grad(&t, mx_reshape(&t, loss, MX_SCALAR), targets, n);
    check_trace(p, &t);
    return graph;
}

static void fill_input(Program *p, int i) {
    int64_t n = mx_shape_count(p->c->in[i].shape);
    void *x = mx_new_n(&p->arena, float, n);
    for (int64_t j = 0; j < n; j++) {
        double z = normal((uint64_t)i, j);
        switch (p->c->in[i].fill) {
        case REAL:
            ((float *)x)[j] = (float)z;
            break;
        case FAR_FROM_ZERO:
            ((float *)x)[j] = (float)(z + (z < 0 ? -0.5 : 0.5));
            break;
        case LOGP:
            ((float *)x)[j] = (float)(-0.5 - z * z);
            break;
        case IDS:
            ((int32_t *)x)[j] = (int32_t)(fabs(z) * 100) % 5;
            break;
        case FLAGS:
            ((int32_t *)x)[j] = j % 4 != 1;
            break;
        case SEGMENTS:
            ((int32_t *)x)[j] = 1 + (int32_t)(3 * j / n);
            break;
        case POSITIONS:
            ((int32_t *)x)[j] = (int32_t)(j % 5);
            break;
        }
    }
    var_fill(p->run, p->in[i], x);
}

static void open_program(Program *p, const Case *c) {
    *p = (Program){.arena = {.name = "test"}, .c = c};
    p->vars.arena = &p->arena;
    for (int i = 0; i < c->n_in; i++) {
        MxType type = {is_real(c, i) ? MX_F32 : MX_I32, c->in[i].shape};
        p->in[i] = mx_vars_add(&p->vars, "in", type);
        if (is_real(c, i)) p->grad[i] = mx_vars_add(&p->vars, "gradient", type);
    }
    MxGraph *entries[2];
    entries[FORWARD] = forward_graph(p);
    entries[BACKWARD] = backward_graph(p);
    MxDevice *device;
    MxError err = {0};
    ck_assert(mx_device_open(&p->arena, &(MxDeviceConfig){0}, &device, &err));
    ck_assert(mx_run_open(&p->arena, device, &p->vars, entries, 2, MX_REMAT_NONE, &p->run, &err));
    for (int i = 0; i < c->n_in; i++) fill_input(p, i);
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
    int64_t n = mx_shape_count(p->c->in[input].shape);
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
    double usual = at < 0 ? 0.01 : 0.05, h = p->c->step > 0 ? p->c->step : usual;
    double near = loss_moved(p, input, at, h) - loss_moved(p, input, at, -h);
    double far = loss_moved(p, input, at, 2 * h) - loss_moved(p, input, at, -2 * h);
    return (8 * near - far) / (12 * h);
}

static const double tolerance = 2e-3, tolerance_rounded = 3e-2; /* of the gradient's size */

static void check_input(Program *p, int input) {
    enum { MOST_ELEMENTS = 300 };
    int64_t n = mx_shape_count(p->c->in[input].shape);
    const float *g = var_values(&p->arena, p->run, p->grad[input]);
    double largest = 0, norm = 0, along = 0, limit = p->c->step > 0 ? tolerance_rounded : tolerance;
    for (int64_t j = 0; j < n; j++) {
        largest = fmax(largest, fabs((double)g[j]));
        norm += (double)g[j] * (double)g[j];
        along += (double)g[j] * normal(60, j);
    }
    ck_assert_msg(norm > 0, "%s (%s): no gradient of input %d", p->c->op->name, p->c->label, input);
    double want = difference(p, input, -1);
    ck_assert_msg(fabs(along - want) <= limit * sqrt(norm),
                  "%s (%s): input %d along a direction: %.9g, not %.9g", p->c->op->name,
                  p->c->label, input, along, want);
    for (int64_t j = 0; n <= MOST_ELEMENTS && j < n; j++) {
        want = difference(p, input, j);
        ck_assert_msg(fabs((double)g[j] - want) <= limit * fmax(largest, 0.1),
                      "%s (%s): input %d, element %lld: %.9g, not %.9g", p->c->op->name,
                      p->c->label, input, (long long)j, (double)g[j], want);
    }
}

START_TEST(gradient_is_slope) {
    Program p;
    open_program(&p, &cases[_i]);
    mx_run_entry(p.run, BACKWARD);
    for (int i = 0; i < p.c->n_in; i++)
        if (is_real(p.c, i)) check_input(&p, i);
    mx_arena_release(&p.arena);
}
END_TEST

START_TEST(gradients_add_up) {
    Program p;
    open_program(&p, &cases[_i]);
    mx_run_entry(p.run, BACKWARD);
    float *once[MOST_INPUTS];
    for (int i = 0; i < p.c->n_in; i++)
        if (is_real(p.c, i)) once[i] = var_values(&p.arena, p.run, p.grad[i]);
    mx_run_entry(p.run, BACKWARD);
    for (int i = 0; i < p.c->n_in; i++) {
        if (!is_real(p.c, i)) continue;
        const float *twice = var_values(&p.arena, p.run, p.grad[i]);
        for (int64_t j = 0; j < mx_shape_count(p.c->in[i].shape); j++)
            ck_assert_msg(fabsf(twice[j] - 2 * once[i][j]) <= 1e-4f * (1 + fabsf(twice[j])),
                          "%s (%s): input %d, element %lld: %g after %g", p.c->op->name, p.c->label,
                          i, (long long)j, (double)twice[j], (double)once[i][j]);
    }
    mx_arena_release(&p.arena);
}
END_TEST

START_TEST(every_rule_has_a_case) {
    for (int op = 0; op < MX_OP_COUNT; op++) {
        bool found = !mx_ops[op]->vjp;
        for (int i = 0; i < MX_COUNT(cases); i++) found |= cases[i].op == mx_ops[op];
        ck_assert_msg(found, "op %s has a gradient rule and no case in tests/run/gradients.c",
                      mx_ops[op]->name);
    }
}
END_TEST

Suite *suite_gradients(void) {
    Suite *suite = suite_create("gradients");
    TCase *t = tcase_create("gradients");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, every_rule_has_a_case);
    tcase_add_loop_test(t, gradient_is_slope, 0, MX_COUNT(cases));
    tcase_add_loop_test(t, gradients_add_up, 0, MX_COUNT(cases));
    suite_add_tcase(suite, t);
    return suite;
}
