/* test_overlap.c — when exchanges start and end: weights one gather ahead, gradients until the next
 * one starts; never before what they send is there, never after somebody needs the result; and that
 * nothing else lies where they read and write meanwhile. */
#include "lower_test.h"

enum { LARGE = 1 << 16 }; /* elements of what no bucket takes */

static MxValue exchange(const MxOp *op, MxValue x) {
    MxCollectiveAttr attr = {.group = {.axes = "fsdp", .id = 1, .size = 2}};
    return mx_trace_node(&t, op, &x, 1, &attr);
}

static void keep(MxValue value, const char *name) {
    MxType type = mx_trace_type(&t, value);
    mx_trace_assign(&t, value, new_var(name, type.dtype, type.shape), false);
}

/* "op.phase" of every step. */
static const char *steps_of(const MxLowered *lowered) {
    MxText text;
    mx_text_init(&text, &arena);
    for (int s = 0; s < lowered->n_steps; s++) {
        const MxNode *node = &lowered->graph->nodes[lowered->steps[s]];
        mx_text_add(&text, "%s%s", s ? " " : "", node->op->name);
        if (node->op->collective) mx_text_add(&text, ".%d", lowered->phases[s]);
    }
    return text.data;
}

static MxLowered overlapped(void) {
    mx_pass_schedule(t.graph);
    mx_pass_overlap(t.graph, &test_machine);
    mx_graph_verify(t.graph);
    MxLowered lowered = mx_pass_memory(t.graph, &some_scratch);
    ck_lowered(&lowered, &some_scratch, 0);
    return lowered;
}

START_TEST(weights_are_gathered_one_ahead) {
    MxValue x = source("x", MX_BF16, MX_SHAPE(2 * LARGE));
    for (int i = 0; i < 3; i++) {
        MxValue w = source("w", MX_F32, MX_SHAPE(LARGE));
        x = mx_add(&t, x, exchange(&op_all_gather, mx_cast(&t, w, MX_BF16)));
    }
    keep(x, "out");
    MxLowered lowered = overlapped();
    ck_assert_str_eq(steps_of(&lowered), "cast all_gather.0 all_gather.1 cast all_gather.0 add "
                                         "all_gather.1 cast all_gather.0 add all_gather.1 add");
}
END_TEST

START_TEST(gradients_are_under_way_until_the_next) {
    MxValue x = source("x", MX_F32, MX_SHAPE(LARGE));
    for (int i = 0; i < 3; i++) {
        x = mx_scale(&t, x, 2);
        keep(exchange(i == 1 ? &op_reduce_scatter : &op_all_reduce, x), "gradient");
    }
    keep(mx_scale(&t, x, 3), "out");
    MxLowered lowered = overlapped();
    ck_assert_str_eq(steps_of(&lowered),
                     "scale all_reduce.0 scale all_reduce.1 reduce_scatter.0 scale all_reduce.2 "
                     "reduce_scatter.1 all_reduce.0 scale all_reduce.1 all_reduce.2");
}
END_TEST

START_TEST(a_user_ends_an_exchange) {
    MxValue x = source("x", MX_F32, MX_SHAPE(LARGE)), y = exchange(&op_reduce_scatter, x);
    keep(mx_scale(&t, x, 3), "beside");
    keep(mx_scale(&t, y, 2), "out");
    MxLowered lowered = overlapped();
    ck_assert_str_eq(steps_of(&lowered), "reduce_scatter.0 scale reduce_scatter.1 scale");
}
END_TEST

START_TEST(a_writer_ends_an_exchange) {
    int w = new_var("w", MX_F32, MX_SHAPE(LARGE));
    MxValue y = source("y", MX_F32, MX_SHAPE(LARGE));
    keep(exchange(&op_reduce_scatter, mx_variable(&t, w)), "sum");
    keep(mx_scale(&t, y, 2), "beside");
    mx_trace_assign(&t, mx_scale(&t, y, 3), w, false);
    MxLowered lowered = overlapped();
    ck_assert_str_eq(steps_of(&lowered), "reduce_scatter.0 scale reduce_scatter.1 scale");
}
END_TEST

/* An exchange of some value, now and then into a variable. */
static MxValue random_exchange(MxValue x, uint64_t *state) {
    static const MxOp *const ops[] = {&op_all_reduce, &op_reduce_scatter, &op_all_gather};
    int which = (int)(draw(state) % 3);
    MxValue y = exchange(ops[which], x);
    if (draw(state) % 2) {
        keep(y, "kept");
        return x;
    }
    if (which == 1) y = exchange(&op_all_gather, y);
    if (which == 2) y = exchange(&op_reduce_scatter, y);
    return y;
}

/* What starts early has what it sends. */
static void ck_starts(const MxGraph *graph) {
    for (int n = 0; n < graph->n_nodes; n++) {
        const MxNode *node = &graph->nodes[n];
        for (int k = 0; k < MX_COUNT(node->early); k++) {
            ck_assert_int_le(node->early[k], n);
            if (k && node->early[k]) ck_assert_int_ge(node->early[k], node->early[k - 1]);
            for (int i = 0; node->early[k] && i < node->n_in; i++)
                ck_assert_int_lt(graph->values[node->in[i]].node, node->early[k]);
        }
    }
}

START_TEST(nothing_lies_where_an_exchange_works) {
    enum { NODES = 60, KEPT = 4 };
    uint64_t state = (uint64_t)_i + 1;
    int n_early = 0;
    MxValue x[KEPT];
    for (int i = 0; i < KEPT; i++) x[i] = source("x", MX_F32, MX_SHAPE(_i % 2 ? 512 : 2048));
    for (int i = 0; i < NODES; i++) {
        MxValue a = x[draw(&state) % KEPT], b = x[draw(&state) % KEPT];
        uint64_t what = draw(&state) % 4;
        x[draw(&state) % KEPT] = what == 0   ? mx_add(&t, a, b)
                                 : what == 1 ? mx_scale(&t, a, 2)
                                             : random_exchange(a, &state);
    }
    for (int i = 0; i < KEPT; i++) keep(mx_scale(&t, x[i], 5), "out");
    MxLowered lowered = overlapped();
    ck_starts(lowered.graph);
    for (int n = 0; n < lowered.graph->n_nodes; n++)
        n_early += lowered.graph->nodes[n].early[0] > 0;
    ck_assert_int_gt(n_early, 0);
}
END_TEST

Suite *overlap_suite(void) {
    Suite *suite = suite_create("lower/overlap");
    TCase *tcase = add_case(suite, "overlap");
    tcase_add_test(tcase, weights_are_gathered_one_ahead);
    tcase_add_test(tcase, gradients_are_under_way_until_the_next);
    tcase_add_test(tcase, a_user_ends_an_exchange);
    tcase_add_test(tcase, a_writer_ends_an_exchange);
    tcase_add_loop_test(tcase, nothing_lies_where_an_exchange_works, 0, 40);
    return suite;
}
