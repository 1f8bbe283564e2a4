/* test_trace.c — tracing: what a node remembers, the first failure and how it is told, assignment
 * to variables, replacement of values, and the printed graph. */
#include "base/child.h"
#include "graph_test.h"

static const char *printed(void) {
    MxText text;
    mx_text_init(&text, &arena);
    mx_graph_print(t.graph, &text);
    return text.data;
}

START_TEST(a_node_remembers_where_it_was_made) {
    MxValue in[] = {source(VAR_W)};
    int at = 3;
    t.scope = "decoder/layers_1";
    t.region = 2;
    t.backward = true;
    MxValue y = mx_trace_node(&t, &op_split, in, 1, &at);
    at = 4;
    in[0] = 99;
    const MxNode *node = mx_graph_producer(t.graph, y);
    ck_assert_ptr_eq(node->op, &op_split);
    ck_assert_int_eq(node->in[0], 0); /* inputs and attributes were copied */
    ck_assert_int_eq(*(const int *)node->attr, 3);
    ck_assert_str_eq(node->scope, "decoder/layers_1");
    ck_assert_int_eq(node->region, 2);
    ck_assert(node->backward);
    ck_assert_int_eq(node->n_out, 2);
    ck_assert_int_eq(node->out[0], y);
    ck_assert_int_eq(node->out[1], y + 1);
    ck_assert_int_eq(t.graph->values[y + 1].node, 1);
    ck_assert_int_eq(mx_trace_type(&t, y + 1).shape.rank, 1);
    ck_assert(mx_trace_end(&t, &err));
    ck_assert_int_eq(err.count, 0);
}
END_TEST

START_TEST(graphs_grow) {
    enum { N = 2000 };
    MxValue x = source(VAR_W), y = x;
    for (int i = 0; i < N; i++) y = add(y, x);
    ck_assert_int_eq(t.graph->n_nodes, N + 1);
    for (int i = 1; i <= N; i++) {
        const MxNode *node = &t.graph->nodes[i];
        if (node->in[0] != i - 1 || node->in[1] != x || node->out[0] != i)
            ck_abort_msg("node %d", i);
    }
    for (int i = 0; i < N; i++)
        mx_vars_add(&vars, mx_arena_printf(&arena, "v%d", i), (MxType){MX_I8, MX_SHAPE(i)});
    ck_assert_int_eq(vars.n, N + 4);
    for (int i = 0; i < N; i++) ck_assert_int_eq(vars.item[i + 4].type.shape.dim[0], i);
    ck_assert_str_eq(vars.item[0].name, "w");
}
END_TEST

/* ---- failures */

START_TEST(the_first_failure_sticks) {
    MxValue x = source(VAR_W), n = source(VAR_N);
    t.scope = "decoder/mlp";
    MxValue bad = add(x, n);
    ck_assert_int_eq(bad, MX_NONE);
    ck_assert_int_eq(t.graph->n_nodes, 2);
    t.scope = "later";
    ck_assert_int_eq(add(bad, x), MX_NONE); /* no inputs are looked at any more */
    ck_assert_int_eq(source(VAR_X), MX_NONE);
    mx_trace_fail(&t, "second");
    mx_trace_assign(&t, bad, VAR_W, true);
    ck_assert_int_eq(mx_trace_constrain(&t, bad, (const char *const[]){"a"}), MX_NONE);
    ck_assert_int_eq(mx_trace_type(&t, bad).shape.rank, 0);
    ck_assert_int_eq(t.graph->n_nodes, 2);
    ck_assert(!mx_trace_end(&t, &err));
    ck_assert_str_eq(err.text.data, "decoder/mlp: add: shapes of rank 2 and 1 differ "
                                    "(inputs float32[2, 3] int32[6])");
    ck_assert_int_eq(err.exit, MX_EXIT_CONFIG);
    ck_assert_int_eq(err.count, 1);
}
END_TEST

static const struct {
    const char *scope, *text;
} scopes[] = {{"", "head_dim 7 is odd"}, {"decoder/rope", "decoder/rope: head_dim 7 is odd"}};

START_TEST(models_fail_in_their_own_words) {
    t.scope = scopes[_i].scope;
    mx_trace_fail(&t, "head_dim %d is odd", 7);
    mx_trace_fail(&t, "again");
    ck_assert(!mx_trace_end(&t, &err));
    ck_assert_str_eq(err.text.data, scopes[_i].text);
}
END_TEST

static void use_what_is_not_there(const void *unused) {
    (void)unused;
    MxValue x = source(VAR_W);
    add(x, x + 1);
}
static void use_too_few(const void *unused) {
    (void)unused;
    MxValue x = source(VAR_W);
    mx_trace_node(&t, &op_add, &x, 1, NULL);
}

START_TEST(wrong_inputs_are_bugs) {
    const char *file = "src/graph/trace.c:";
    ck_aborts(use_what_is_not_there, NULL, file, "in[i] >= 0 && in[i] < graph->n_values");
    ck_aborts(use_too_few, NULL, file,
              "op->arity < 0 || (op->arity <= n_in && n_in <= op->arity + op->optional)");
}
END_TEST

/* ---- constraints and variables */

START_TEST(constraints_name_axes) {
    MxValue y = add(source(VAR_W), source(VAR_X));
    ck_assert_int_eq(mx_trace_constrain(&t, y, (const char *const[]){"batch", NULL, "no"}), y);
    const MxValueInfo *info = &t.graph->values[y];
    ck_assert_str_eq(info->axes[0], "batch");
    ck_assert_ptr_null(info->axes[1]);
    ck_assert_ptr_null(info->axes[2]); /* beyond the rank */
}
END_TEST

START_TEST(assigns_values_to_variables) {
    MxValue y = split(source(VAR_W));
    mx_trace_assign(&t, y, VAR_X, false);
    mx_trace_assign(&t, y + 1, VAR_S, true);
    ck_assert_int_eq(t.graph->values[y].var, VAR_X);
    ck_assert_int_eq(t.graph->values[y + 1].var, VAR_S);
    ck_assert_uint_eq(mx_graph_producer(t.graph, y)->accumulate, 2);
    ck_assert_int_eq(t.graph->values[0].var, MX_NONE);
}
END_TEST

static void assign_source(const void *unused) {
    (void)unused;
    mx_trace_assign(&t, source(VAR_W), VAR_X, false);
}
static void assign_view(const void *unused) {
    (void)unused;
    MxValue y = add(source(VAR_W), source(VAR_W));
    mx_trace_assign(&t, view(y, MX_SHAPE(6)), VAR_S, false);
}
static void assign_twice(const void *unused) {
    (void)unused;
    MxValue y = add(source(VAR_W), source(VAR_W));
    mx_trace_assign(&t, y, VAR_X, false);
    mx_trace_assign(&t, y, VAR_W, false);
}
static void assign_other_dtype(const void *unused) {
    (void)unused;
    mx_trace_assign(&t, split(source(VAR_W)) + 1, VAR_N, false);
}
static void assign_other_count(const void *unused) {
    (void)unused;
    MxValue y = add(source(VAR_W), source(VAR_W));
    int var = mx_vars_add(&vars, "short", (MxType){MX_F32, MX_SHAPE(5)});
    mx_trace_assign(&t, y, var, false);
}
static void add_what_cannot(const void *unused) {
    (void)unused;
    mx_trace_assign(&t, split(source(VAR_W)), VAR_X, true);
}

START_TEST(wrong_assignments_are_bugs) {
    const char *file = "src/graph/trace.c:";
    const char *fresh = "!(node->op->flags & (MX_OP_SOURCE | MX_OP_VIEW)) && info->var == MX_NONE";
    ck_aborts(assign_source, NULL, file, fresh);
    ck_aborts(assign_view, NULL, file, fresh);
    ck_aborts(assign_twice, NULL, file, fresh);
    ck_aborts(assign_other_dtype, NULL, file, "info->type.dtype == want.dtype");
    ck_aborts(assign_other_count, NULL, file,
              "mx_shape_count(info->type.shape) == mx_shape_count(want.shape)");
    ck_aborts(add_what_cannot, NULL, file, "node->op->accumulates >> i & 1");
}
END_TEST

START_TEST(views_share_a_buffer) {
    MxValue x = source(VAR_W), y = add(x, x);
    MxValue flat = view(y, MX_SHAPE(6)), wide = view(flat, MX_SHAPE(3, 2));
    ck_assert_int_eq(mx_graph_buffer(t.graph, wide), y);
    ck_assert_int_eq(mx_graph_buffer(t.graph, flat), y);
    ck_assert_int_eq(mx_graph_buffer(t.graph, y), y);
    ck_assert_int_eq(mx_graph_buffer(t.graph, view(x, MX_SHAPE(6))), x);
}
END_TEST

/* ---- replacement and printing */

START_TEST(replaces_every_use) {
    MxValue x = source(VAR_W), old = split(x), sum = add(x, x), with = split(sum);
    mx_trace_assign(&t, old + 1, VAR_S, true);
    MxValue user = add(old, old), flat = view(old, MX_SHAPE(6)), other = add(sum, with);
    mx_graph_replace(t.graph, old, with, MX_ANYWHERE);
    mx_graph_replace(t.graph, old + 1, with + 1, MX_ANYWHERE);
    const MxNode *node = mx_graph_producer(t.graph, user);
    ck_assert(node->in[0] == with && node->in[1] == with);
    ck_assert_int_eq(mx_graph_producer(t.graph, flat)->in[0], with);
    node = mx_graph_producer(t.graph, other);
    ck_assert(node->in[0] == sum && node->in[1] == with);
    ck_assert_int_eq(t.graph->values[with + 1].var, VAR_S); /* the variable has passed on */
    ck_assert_uint_eq(mx_graph_producer(t.graph, with)->accumulate, 2);
    ck_assert_int_eq(t.graph->values[old + 1].var, MX_NONE);
    ck_assert_int_eq(t.graph->values[with].var, MX_NONE);
}
END_TEST

static void replace_by_an_assigned_one(const void *unused) {
    (void)unused;
    MxValue x = source(VAR_W), a = add(x, x), b = add(x, x);
    mx_trace_assign(&t, a, VAR_W, false);
    mx_trace_assign(&t, b, VAR_X, false);
    mx_graph_replace(t.graph, a, b, MX_ANYWHERE);
}

START_TEST(a_value_is_in_one_variable) {
    ck_aborts(replace_by_an_assigned_one, NULL,
              "src/graph/trace.c:", "graph->values[with].var == MX_NONE");
}
END_TEST

START_TEST(prints_a_line_a_node) {
    MxValue w = source(VAR_W);
    t.scope = "decoder/layers_0";
    MxValue y = split(w);
    mx_trace_assign(&t, y, VAR_X, false);
    mx_trace_assign(&t, y + 1, VAR_S, true);
    t.scope = "";
    view(add(y, w), MX_SHAPE(3, 2));
    source(VAR_N);
    ck_assert_str_eq(printed(), "graph test\n"
                                "  %0 float32[2, 3] = source w()\n"
                                "  %1 float32[2, 3] -> x, %2 float32[6] +> s = split at 7(%0)"
                                "  # decoder/layers_0\n"
                                "  %3 float32[2, 3] = add(%1, %0)\n"
                                "  %4 float32[3, 2] = view(%3)\n"
                                "  %5 int32[6] = source n()\n");
}
END_TEST

Suite *trace_suite(void) {
    Suite *suite = suite_create("graph/trace");
    TCase *tcase = tcase_create("trace");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_node_remembers_where_it_was_made);
    tcase_add_test(tcase, graphs_grow);
    tcase_add_test(tcase, the_first_failure_sticks);
    tcase_add_loop_test(tcase, models_fail_in_their_own_words, 0, MX_COUNT(scopes));
    tcase_add_test(tcase, wrong_inputs_are_bugs);
    tcase_add_test(tcase, constraints_name_axes);
    tcase_add_test(tcase, assigns_values_to_variables);
    tcase_add_test(tcase, wrong_assignments_are_bugs);
    tcase_add_test(tcase, views_share_a_buffer);
    tcase_add_test(tcase, replaces_every_use);
    tcase_add_test(tcase, a_value_is_in_one_variable);
    tcase_add_test(tcase, prints_a_line_a_node);
    suite_add_tcase(suite, tcase);
    return suite;
}
