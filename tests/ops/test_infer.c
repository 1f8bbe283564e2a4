/* test_infer.c — the table of ops, their shape rules on every case of tests/cases, and that no op
 * lacks a case that its row asks for. */
#include "ops_test.h"

static const Shot *const *shots;
static int n_shots;

static const char *type_text(MxType type) {
    return mx_arena_printf(&arena, "%s%s", mx_dtype_name(type.dtype),
                           mx_shape_text(&arena, type.shape));
}

static void ck_type(const Shot *s, int i, MxType want) {
    ck_assert_msg(s->out[i].dtype == want.dtype && mx_shape_equal(s->out[i].shape, want.shape),
                  "%s: output %d is %s, not %s", s->name, i, type_text(s->out[i]), type_text(want));
}

/* Outputs are what the case says; those of a gradient are of the type of what they are gradients
 * of, or float32. */
START_TEST(shapes_follow_from_inputs) {
    const Shot *s = shots[_i];
    MxValue value = trace_node(s->op, s->attr, s->in, s->n_in);
    ck_assert_msg(!t.failure.len, "%s: %s", s->name, t.failure.data);
    ck_assert_int_eq(mx_graph_producer(t.graph, value)->n_out, s->n_out);
    mx_graph_verify(t.graph);
    if (s->forward) {
        for (int i = 0; i < s->n_out; i++) {
            int wrt = s->test->wrt[i];
            MxType want = wrt < 0 ? s->forward->out[-1 - wrt] : s->in[wrt];
            if (i == 0 && s->op->flags & MX_OP_CAST_FOLDS) want.dtype = *(const MxDtype *)s->attr;
            ck_type(s, i, want);
        }
    } else if (s->c->out) {
        MxType want[SHOT_INPUTS];
        ck_assert_msg(parse_types(s->c->out, want) == s->n_out, "%s: %d outputs", s->name,
                      s->n_out);
        for (int i = 0; i < s->n_out; i++) ck_type(s, i, want[i]);
    }
}
END_TEST

START_TEST(wrong_inputs_are_refused) {
    const MxOp *op = mx_ops[_i];
    for (int i = 0; i < op_tests[_i]->n_wrong; i++) {
        const WrongCase *c = &op_tests[_i]->wrong[i];
        MxType in[SHOT_INPUTS];
        mx_trace_begin(&t, mx_graph_new(&arena, "test", &vars));
        MxValue value = trace_node(op, c->attr, in, parse_types(c->in, in));
        ck_assert_msg(value == MX_NONE, "%s(%s) was taken; wanted \"%s\"", op->name, c->in,
                      c->message);
        ck_assert_msg(strstr(t.failure.data, c->message) != NULL, "\"%s\" lacks \"%s\"",
                      t.failure.data, c->message);
        const char *start = mx_arena_printf(&arena, "%s: ", op->name);
        ck_assert_msg(mx_text_has_prefix(t.failure.data, start), "%s", t.failure.data);
    }
}
END_TEST

/* ---- nothing is missing */

static int count_shots(const MxOp *op, bool (*is)(const Shot *)) {
    int n = 0;
    for (int i = 0; i < n_shots; i++) n += shots[i]->op == op && (!is || is(shots[i]));
    return n;
}

static bool runs_alone(const Shot *s) {
    return !(s->c->use & CASE_TYPES);
}
static bool is_shared(const Shot *s) {
    return s->c->use & CASE_RANKS;
}
static bool has_slope(const Shot *s) {
    return runs_alone(s) && s->dtype == MX_F32 && !(s->c->use & (CASE_NO_SLOPE | CASE_DETACHED));
}

/* Two ranks make it together: tests/mpi runs it, on meshes with stages. */
static bool needs_peer(const MxOp *op) {
    return op == &op_send || op == &op_sent || op == &op_receive;
}

START_TEST(every_op_is_tested) {
    const MxOp *op = mx_ops[_i];
    const OpTest *test = op_tests[_i];
    bool runs = !(op->flags & (MX_OP_SOURCE | MX_OP_VIEW)) && !needs_peer(op);
    ck_assert_msg(count_shots(op, NULL) > 0, "%s has no case", op->name);
    ck_assert_msg(!op->arity || test->n_wrong > 0, "%s has no wrong case", op->name);
    ck_assert_msg(!runs || count_shots(op, runs_alone) > 0, "%s has no case that runs", op->name);
    ck_assert_msg(!runs || test->reference || test->forward, "%s has no reference", op->name);
    const OpTest *forward = test->forward ? op_tests[mx_op_index(test->forward)] : NULL;
    ck_assert_msg(!forward || forward->reference, "%s has no reference, for %s",
                  forward ? test->forward->name : "", op->name);
    ck_assert_msg(!op->vjp == !test->flows, "%s: a gradient rule and no flows, or the other way",
                  op->name);
    ck_assert_msg(!op->vjp || test->rounds || count_shots(op, has_slope) > 0,
                  "%s has no case with a slope", op->name);
    ck_assert_msg(!op->partition || count_shots(op, is_shared) > 0, "%s has no case for ranks",
                  op->name);
}
END_TEST

/* ---- rows of the table */

static const char *const symbols[] = {
#define MX_OP(symbol) #symbol,
#include <mx/ops.def>
#undef MX_OP
};

START_TEST(rows_make_sense) {
    const MxOp *op = mx_ops[_i];
    ck_assert_str_eq(op->name, symbols[_i]);
    ck_assert_int_eq(mx_op_index(op), _i);
    ck_assert_msg(op->infer && op->doc && *op->doc, "%s lacks a rule or a text", op->name);
    ck_assert_msg(op->inplace <= op->arity || op->arity < 0, "%s", op->name);
    bool runs = !(op->flags & (MX_OP_SOURCE | MX_OP_VIEW));
    ck_assert_msg(runs || (!op->inplace && !op->accumulates && !op->flops), "%s", op->name);
    ck_assert_msg(!(op->flags & MX_OP_VIEW) || op->arity == 1, "%s", op->name);
    bool starts_with_dtype = op->attr_bytes >= sizeof(MxDtype);
    ck_assert_msg(!(op->flags & MX_OP_CAST_FOLDS) || starts_with_dtype, "%s", op->name);
    ck_assert_msg(!(op->flags & MX_OP_CONSTANT) || !op->vjp, "%s", op->name);
    ck_assert_msg(!op->no_gradient || op->vjp, "%s", op->name);
    size_t attr_bytes = needs_peer(op) ? sizeof(MxPeerAttr) : sizeof(MxCollectiveAttr);
    ck_assert_msg(!op->collective || op->attr_bytes == attr_bytes, "%s", op->name);
    ck_assert_msg(!op->also.op || op->also.op->arity <= op->arity, "%s", op->name);
}
END_TEST

/* What a row says of outputs holds for every case: masks name outputs that there are; out 0 of an
 * op that works in place is of its input's size; a foldable dtype is out 0's. */
START_TEST(rows_agree_with_their_rules) {
    const Shot *s = shots[_i];
    ck_assert_msg((s->op->accumulates | s->op->no_gradient) < 1u << s->n_out, "%s", s->op->name);
    ck_assert_msg(s->op->also.at <= s->n_out, "%s", s->op->name);
    if (s->op->inplace) {
        MxType from = s->in[s->op->inplace - 1];
        ck_assert_msg(from.dtype == s->out[0].dtype && mx_shape_equal(from.shape, s->out[0].shape),
                      "%s works in place", s->name);
    }
    if (s->op->flags & MX_OP_CAST_FOLDS)
        ck_assert_msg(*(const MxDtype *)s->attr == s->out[0].dtype, "%s", s->name);
}
END_TEST

Suite *infer_suite(void) {
    Suite *suite = suite_create("ops/infer");
    TCase *tcase = tcase_create("infer");
    shots = op_shots(NULL, &n_shots);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, shapes_follow_from_inputs, 0, n_shots);
    tcase_add_loop_test(tcase, wrong_inputs_are_refused, 0, MX_OP_COUNT);
    tcase_add_loop_test(tcase, every_op_is_tested, 0, MX_OP_COUNT);
    tcase_add_loop_test(tcase, rows_make_sense, 0, MX_OP_COUNT);
    tcase_add_loop_test(tcase, rows_agree_with_their_rules, 0, n_shots);
    suite_add_tcase(suite, tcase);
    return suite;
}
