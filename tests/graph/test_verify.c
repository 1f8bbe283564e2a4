/* test_verify.c — the verifier: graphs that are right pass; a right graph with one thing broken
 * fails at the assertion that states that thing. */
#include "base/child.h"
#include "graph_test.h"

#include <stdlib.h>

/* ---- graphs that are right */

static void verify_nothing(void) {}

static void read_then_overwrite(void) {
    MxValue x = source(VAR_W);
    MxValue y = add(x, x), z = add(y, x);
    mx_trace_assign(&t, z, VAR_W, false); /* the last reader is the writer */
}

static void read_what_was_written(void) {
    MxValue y = add(source(VAR_W), source(VAR_W));
    mx_trace_assign(&t, y, VAR_W, false);
    add(view(y, MX_SHAPE(6)), view(y, MX_SHAPE(6)));
    MxValue z = add(y, y);
    mx_trace_assign(&t, z, VAR_W, false);
    add(z, z);
}

static void view_of_an_overwritten_variable(void) { /* a view reads nothing */
    MxValue x = source(VAR_W);
    mx_trace_assign(&t, add(x, x), VAR_W, false);
    view(x, MX_SHAPE(6));
}

static void many_outputs(void) {
    MxValue y = split(source(VAR_W));
    mx_trace_assign(&t, y + 1, VAR_S, true);
    add(y, y);
}

static void (*const right[])(void) = {verify_nothing, read_then_overwrite, read_what_was_written,
                                      view_of_an_overwritten_variable, many_outputs};

START_TEST(right_graphs_pass) {
    right[_i]();
    ck_assert(mx_trace_end(&t, &err));
    mx_graph_verify(t.graph);
}
END_TEST

/* ---- one thing broken */

enum { X, SUM, SPLIT, SECOND, LAST }; /* values of the graph below, nodes 0, 1, 2, 2, 3 */

static void build(void) {
    MxValue x = source(VAR_W), sum = add(x, x);
    MxValue parts = split(sum);
    add(view(parts, MX_SHAPE(6)), parts + 1);
}

static MxNode *node_of(MxValue value) {
    return &t.graph->nodes[t.graph->values[value].node];
}

static void set_input(MxNode *node, int i, MxValue value) {
    MxValue *in =
        mx_arena_grow(&arena, node->in, (size_t)node->n_in, (size_t)node->n_in, sizeof *in);
    in[i] = value;
    node->in = in;
}

static void use_its_own_output(void) {
    set_input(node_of(SUM), 1, SUM);
}
static void use_a_later_output(void) {
    set_input(node_of(SUM), 0, SPLIT);
}
static void swap_nodes(void) {
    MxNode *nodes = t.graph->nodes, first = nodes[1];
    nodes[1] = nodes[2];
    nodes[2] = first;
    t.graph->values[SUM].node = 2;
    t.graph->values[SPLIT].node = t.graph->values[SECOND].node = 1;
}
static void change_a_dtype(void) {
    t.graph->values[SUM].type.dtype = MX_BF16;
}
static void change_a_shape(void) {
    t.graph->values[SECOND].type.shape.dim[0] = 5;
}
static void change_an_attribute(void) {
    static const MxShape seven = {.rank = 1, .dim = {7}};
    node_of(LAST)->attr = &seven;
}
static void drop_an_output(void) {
    node_of(SPLIT)->n_out = 1;
}
static void name_another_maker(void) {
    t.graph->values[SECOND].node = 1;
}
static void overwrite_before_reading(void) { /* w := sum, then w's old content is read */
    t.graph->values[SUM].var = VAR_W;
    set_input(node_of(SPLIT), 0, X);
}
static void overwrite_before_reading_a_view(void) {
    MxValue flat = view(X, MX_SHAPE(6));
    t.graph->values[SUM].var = VAR_W;
    add(flat, flat);
}
static void overwrite_a_result_before_reading(void) { /* s := second, s := its sum, second again */
    t.graph->values[SECOND].var = VAR_S;
    MxValue sum = add(SECOND, SECOND);
    t.graph->values[sum].var = VAR_S;
    add(SECOND, SECOND);
}

static const struct {
    void (*break_it)(void);
    const char *assertion;
} broken[] = {
    {use_its_own_output, "made[node->in[i]]"},
    {use_a_later_output, "made[node->in[i]]"},
    {swap_nodes, "made[node->in[i]]"},
    {change_a_dtype, "type.dtype == infer.out[i].dtype && mx_shape_equal(type.shape, "
                     "infer.out[i].shape)"},
    {change_a_shape, "type.dtype == infer.out[i].dtype && mx_shape_equal(type.shape, "
                     "infer.out[i].shape)"},
    {change_an_attribute, "node->op->infer(&infer)"},
    {drop_an_output, "infer.n_out == node->n_out"},
    {name_another_maker, "graph->values[node->out[i]].node == n"},
    {overwrite_before_reading, "holds[var] == (is_source ? MX_NONE : buffer)"},
    {overwrite_before_reading_a_view, "holds[var] == (is_source ? MX_NONE : buffer)"},
    {overwrite_a_result_before_reading, "holds[var] == (is_source ? MX_NONE : buffer)"},
};

static void verify(const void *unused) {
    (void)unused;
    mx_graph_verify(t.graph);
}

START_TEST(broken_graphs_fail) {
    build();
    mx_graph_verify(t.graph);
    broken[_i].break_it();
    ck_assert(mx_trace_end(&t, &err));
    ck_aborts(verify, NULL, "src/graph/verify.c:", broken[_i].assertion);
}
END_TEST

Suite *verify_suite(void) {
    Suite *suite = suite_create("graph/verify");
    TCase *tcase = tcase_create("verify");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, right_graphs_pass, 0, MX_COUNT(right));
    tcase_add_loop_test(tcase, broken_graphs_fail, 0, MX_COUNT(broken));
    suite_add_tcase(suite, tcase);
    return suite;
}
