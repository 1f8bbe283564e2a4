/* test_infer.c — the table of ops and their shape rules: every case of cases.c, and that every op
 * has some. */
#include "ops_test.h"

static const char *type_text(MxType type) {
    return mx_arena_printf(&arena, "%s%s", mx_dtype_name(type.dtype),
                           mx_shape_text(&arena, type.shape));
}

static void ck_right(const OpCase *c, MxValue value) {
    MxType want[MOST_TYPES];
    int n = parse_types(c->out, want);
    ck_assert_msg(!t.failure.len, "%s(%s): %s", c->op->name, c->in, t.failure.data);
    const MxNode *node = mx_graph_producer(t.graph, value);
    ck_assert_msg(node->n_out == n, "%s(%s): %d outputs", c->op->name, c->in, node->n_out);
    for (int i = 0; i < n; i++) {
        MxType got = mx_trace_type(&t, node->out[i]);
        ck_assert_msg(got.dtype == want[i].dtype && mx_shape_equal(got.shape, want[i].shape),
                      "%s(%s): output %d is %s, not %s", c->op->name, c->in, i, type_text(got),
                      type_text(want[i]));
    }
    mx_graph_verify(t.graph);
}

START_TEST(shape_rules) {
    const OpCase *c = &op_cases[_i];
    MxValue value = trace_case(c);
    if (is_right(c)) {
        ck_right(c, value);
        return;
    }
    ck_assert_msg(value == MX_NONE, "%s(%s) was taken; wanted \"%s\"", c->op->name, c->in,
                  c->out + 1);
    ck_assert_msg(strstr(t.failure.data, c->out + 1) != NULL, "\"%s\" lacks \"%s\"", t.failure.data,
                  c->out + 1);
    const char *start = mx_arena_printf(&arena, "%s: ", c->op->name);
    ck_assert_msg(mx_text_has_prefix(t.failure.data, start), "%s", t.failure.data);
}
END_TEST

static int count_cases(const MxOp *op, bool right) {
    int n = 0;
    for (int i = 0; i < n_op_cases; i++)
        n += op_cases[i].op == op && is_right(&op_cases[i]) == right;
    return n;
}

START_TEST(every_op_has_cases) {
    const MxOp *op = mx_ops[_i];
    ck_assert_msg(count_cases(op, true) > 0, "%s has no case", op->name);
    bool takes_anything = op->arity == 0;
    ck_assert_msg(takes_anything || count_cases(op, false) > 0, "%s has no wrong case", op->name);
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
    ck_assert_msg(!op->collective || op->attr_bytes == sizeof(MxCollectiveAttr), "%s", op->name);
    ck_assert_msg(!op->also.op || op->also.op->arity <= op->arity, "%s", op->name);
}
END_TEST

/* What a row says of outputs holds for every right case: masks name outputs that there are; out 0
 * of an op that works in place is of its input's size; a foldable dtype is out 0's. */
START_TEST(rows_agree_with_their_rules) {
    const OpCase *c = &op_cases[_i];
    if (!is_right(c)) return;
    MxType in[MOST_TYPES], out[MOST_TYPES];
    parse_types(c->in, in);
    int n_out = parse_types(c->out, out);
    ck_assert_msg((c->op->accumulates | c->op->no_gradient) < 1u << n_out, "%s", c->op->name);
    ck_assert_msg(c->op->also.at <= n_out, "%s", c->op->name);
    if (c->op->inplace) {
        MxType from = in[c->op->inplace - 1];
        ck_assert_msg(from.dtype == out[0].dtype && mx_shape_equal(from.shape, out[0].shape),
                      "%s(%s) works in place", c->op->name, c->in);
    }
    if (c->op->flags & MX_OP_CAST_FOLDS)
        ck_assert_msg(*(const MxDtype *)c->attr == out[0].dtype, "%s(%s)", c->op->name, c->in);
}
END_TEST

Suite *infer_suite(void) {
    Suite *suite = suite_create("ops/infer");
    TCase *tcase = tcase_create("infer");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, shape_rules, 0, n_op_cases);
    tcase_add_loop_test(tcase, every_op_has_cases, 0, MX_OP_COUNT);
    tcase_add_loop_test(tcase, rows_make_sense, 0, MX_OP_COUNT);
    tcase_add_loop_test(tcase, rows_agree_with_their_rules, 0, n_op_cases);
    suite_add_tcase(suite, tcase);
    return suite;
}
