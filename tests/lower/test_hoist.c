/* test_hoist.c — casts of what does not change leave the entries that make them, for one that is
 * run once; everything else stays. */
#include "lower_test.h"

/* Two entries that cast `w` (frozen) and `v` (trained); the second one twice, once into a variable.
 * Returns which variables are constant. */
static bool *trace_two(MxGraph *entries[2], MxTrace *second) {
    MxShape shape = MX_SHAPE(2, 3);
    MxValue w = source("w", MX_F32, shape), v = source("v", MX_F32, shape);
    int out = new_var("out", MX_BF16, shape), kept = new_var("kept", MX_BF16, shape);
    MxValue first = mx_cast(&t, w, MX_BF16), other = mx_cast(&t, v, MX_BF16);
    mx_trace_assign(&t, mx_add(&t, first, other), out, false);
    entries[0] = t.graph;
    entries[1] = mx_graph_new(&arena, "second", &vars);
    mx_trace_begin(second, entries[1]);
    second->region = 1;
    MxValue again = mx_variable(second, 0);
    mx_trace_assign(second, mx_scale(second, mx_cast(second, again, MX_BF16), 2), out, false);
    mx_trace_assign(second, mx_cast(second, again, MX_BF16), kept, false);
    bool *is_constant = mx_new_n(&arena, bool, vars.n);
    is_constant[0] = true;
    return is_constant;
}

START_TEST(casts_of_constants_leave) {
    MxGraph *entries[2], *made = mx_graph_new(&arena, "cast", &vars);
    MxTrace second, into;
    bool *is_constant = trace_two(entries, &second);
    mx_trace_begin(&into, made);
    const int *from = mx_hoist_casts(&vars, is_constant, entries, 2, &into);
    ck_assert_int_eq(from[0], 0);
    for (int i = 0; i < 2; i++) {
        mx_pass_schedule(entries[i]);
        mx_graph_verify(entries[i]);
    }
    mx_graph_verify(made);
    ck_assert_str_eq(printed(made), "graph cast\n"
                                    "  %0 float32[2, 3] = variable w()  # w\n"
                                    "  %1 bfloat16[2, 3] -> bfloat16/w = cast bfloat16(%0)  # w\n");
    ck_graph("graph test\n"
             "  %1 float32[2, 3] = variable v()\n"
             "  %2 bfloat16[2, 3] = variable bfloat16/w()\n"
             "  %3 bfloat16[2, 3] = cast bfloat16(%1)\n"
             "  %4 bfloat16[2, 3] -> out = add(%2, %3)\n");
    ck_assert_str_eq(printed(entries[1]), "graph second\n"
                                          "  %0 float32[2, 3] = variable w()\n"
                                          "  %1 bfloat16[2, 3] = variable bfloat16/w()\n"
                                          "  %2 bfloat16[2, 3] -> out = scale 2(%1)\n"
                                          "  %3 bfloat16[2, 3] -> kept = cast bfloat16(%0)\n");
}
END_TEST

/* With nothing constant nothing happens. */
START_TEST(others_stay) {
    MxGraph *entries[2], *made = mx_graph_new(&arena, "cast", &vars);
    MxTrace second, into;
    bool *is_constant = trace_two(entries, &second);
    int n_vars = vars.n;
    is_constant[0] = false;
    mx_trace_begin(&into, made);
    mx_hoist_casts(&vars, is_constant, entries, 2, &into);
    ck_assert_int_eq(vars.n, n_vars);
    ck_assert_int_eq(made->n_nodes, 0);
    ck_assert_int_eq(count_op(entries[0], &op_cast), 2);
    ck_assert_int_eq(count_op(entries[1], &op_cast), 2);
}
END_TEST

Suite *hoist_suite(void) {
    Suite *suite = suite_create("hoist");
    TCase *tcase = add_case(suite, "casts");
    tcase_add_test(tcase, casts_of_constants_leave);
    tcase_add_test(tcase, others_stay);
    return suite;
}
