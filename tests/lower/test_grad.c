/* test_grad.c — differentiation: which nodes it adds, in which order contributions are summed,
 * where gradients are made; and, for random polynomials, that the gradient is the derivative. */
#include "lower_test.h"

/* Gradients of `loss` with respect to values, in new variables "g0", "g1", ... */
static void grad(MxValue loss, const MxValue *wrt, int n, bool add) {
    static const char *const names[] = {"g0", "g1"};
    MxGradTarget targets[2];
    ck_assert_int_le(n, MX_COUNT(targets));
    for (int i = 0; i < n; i++)
        targets[i] =
            (MxGradTarget){wrt[i], new_var(names[i], MX_F32, mx_trace_type(&t, wrt[i]).shape), add};
    mx_grad(&t, loss, targets, n);
}

START_TEST(only_paths_to_targets_get_nodes) {
    MxValue w = scalar("w"), c = scalar("c");
    MxValue on_path = mx_scale(&t, w, 2), off_path = mx_scale(&t, c, 3);
    MxValue loss = mx_add(&t, on_path, off_path);
    grad(loss, &w, 1, false);
    ck_graph("graph test\n"
             "  %0 float32[] = variable w()\n"
             "  %1 float32[] = variable c()\n"
             "  %2 float32[] = scale 2(%0)\n"
             "  %3 float32[] = scale 3(%1)\n"
             "  %4 float32[] = add(%2, %3)\n"
             "  %5 float32[] = init constant 1 stream 0()\n"
             "  %6 float32[] -> g0 = scale 2(%5)\n");
}
END_TEST

START_TEST(an_unreached_target_gets_zeros) {
    MxValue w[] = {scalar("w"), source("u", MX_F32, MX_SHAPE(2, 3))};
    grad(mx_scale(&t, w[0], 2), w, 2, false);
    const MxNode *last = &t.graph->nodes[t.graph->n_nodes - 1];
    ck_assert_ptr_eq(last->op, &op_init);
    const MxInitAttr *attr = last->attr;
    ck_assert(attr->fill == MX_FILL_CONSTANT && attr->value == 0);
    ck_assert_str_eq(vars.item[t.graph->values[last->out[0]].var].name, "g1");
    mx_graph_verify(t.graph);
}
END_TEST

START_TEST(an_unreached_target_that_is_added_to_stays) {
    MxValue w[] = {scalar("w"), scalar("u")};
    grad(mx_scale(&t, w[0], 2), w, 2, true);
    ck_graph("graph test\n"
             "  %0 float32[] = variable w()\n"
             "  %1 float32[] = variable u()\n"
             "  %2 float32[] = scale 2(%0)\n"
             "  %3 float32[] = init constant 1 stream 0()\n"
             "  %4 float32[] = scale 2(%3)\n"
             "  %5 float32[] +> g0 = copy(%4)\n");
}
END_TEST

START_TEST(a_product_is_made_in_its_gradients_variable) {
    MxValue x = source("x", MX_F32, MX_SHAPE(2, 3)), w = source("w", MX_F32, MX_SHAPE(3, 4));
    grad(mx_dot(&t, x, w, MX_DOT_NN, 1), &w, 1, _i == 1);
    const char *want[] = {"  %4 float32[3, 4] -> g0 = dot tn 1 float32(%0, %3)\n",
                          "  %4 float32[3, 4] +> g0 = dot tn 1 float32(%0, %3)\n"};
    const char *got = printed(t.graph);
    ck_assert_msg(mx_text_has_suffix(got, want[_i]), "%s", got);
}
END_TEST

/* The second of two contributions to a target is added where the first was made. */
START_TEST(contributions_to_a_target_add_up) {
    MxValue w = scalar("w");
    grad(mx_glu(&t, w, w, MX_SILU), &w, 1, false);
    ck_graph("graph test\n"
             "  %0 float32[] = variable w()\n"
             "  %1 float32[] = glu silu(%0, %0)\n"
             "  %2 float32[] = init constant 1 stream 0()\n"
             "  %3 float32[] -> g0, %4 float32[] = glu_grad silu(%0, %0, %2)\n"
             "  %5 float32[] +> g0 = copy(%4)\n");
}
END_TEST

/* A cotangent that belongs to two values is copied for each target, never made in a variable. */
START_TEST(a_shared_cotangent_is_copied) {
    MxValue w[] = {scalar("w"), scalar("u")};
    grad(mx_add(&t, w[0], w[1]), w, 2, false);
    ck_graph("graph test\n"
             "  %0 float32[] = variable w()\n"
             "  %1 float32[] = variable u()\n"
             "  %2 float32[] = add(%0, %1)\n"
             "  %3 float32[] = init constant 1 stream 0()\n"
             "  %4 float32[] -> g0 = copy(%3)\n"
             "  %5 float32[] -> g1 = copy(%3)\n");
}
END_TEST

/* A value used three times: the latest use comes first in the sum. */
START_TEST(cotangents_are_summed_from_the_last_use) {
    MxValue w = scalar("w"), s = mx_scale(&t, w, 2), c = scalar("c");
    MxValue loss = mx_glu(&t, mx_glu(&t, mx_glu(&t, s, c, 0), s, 0), s, 0);
    grad(loss, &w, 1, false);
    ck_graph("graph test\n"
             "  %0 float32[] = variable w()\n"
             "  %1 float32[] = scale 2(%0)\n"
             "  %2 float32[] = variable c()\n"
             "  %3 float32[] = glu silu(%1, %2)\n"
             "  %4 float32[] = glu silu(%3, %1)\n"
             "  %5 float32[] = glu silu(%4, %1)\n"
             "  %6 float32[] = init constant 1 stream 0()\n"
             "  %7 float32[], %8 float32[] = glu_grad silu(%4, %1, %6)\n"
             "  %9 float32[], %10 float32[] = glu_grad silu(%3, %1, %7)\n"
             "  %11 float32[] = add(%8, %10)\n"
             "  %12 float32[], %13 float32[] = glu_grad silu(%1, %2, %9)\n"
             "  %14 float32[] = add(%11, %12)\n"
             "  %15 float32[] -> g0 = scale 2(%14)\n");
}
END_TEST

START_TEST(goes_through_views_and_casts) {
    MxValue w = source("w", MX_F32, MX_SHAPE(2, 3));
    MxValue flat = mx_reshape(&t, mx_cast(&t, w, MX_BF16), MX_SHAPE(6));
    grad(mx_cast(&t, mx_scale(&t, flat, 2), MX_F32), &w, 1, false);
    ck_graph("graph test\n"
             "  %0 float32[2, 3] = variable w()\n"
             "  %1 bfloat16[2, 3] = cast bfloat16(%0)\n"
             "  %2 bfloat16[6] = reshape(%1)\n"
             "  %3 bfloat16[6] = scale 2(%2)\n"
             "  %4 float32[6] = cast float32(%3)\n"
             "  %5 float32[6] = init constant 1 stream 0()\n"
             "  %6 bfloat16[6] = cast bfloat16(%5)\n"
             "  %7 bfloat16[6] = scale 2(%6)\n"
             "  %8 bfloat16[2, 3] = reshape(%7)\n"
             "  %9 float32[2, 3] -> g0 = cast float32(%8)\n");
}
END_TEST

START_TEST(a_view_is_copied_into_its_variable) {
    MxValue w = source("w", MX_F32, MX_SHAPE(2, 3));
    grad(mx_scale(&t, mx_reshape(&t, w, MX_SHAPE(6)), 2), &w, 1, false);
    const char *got = printed(t.graph);
    ck_assert_msg(mx_text_has_suffix(got, "  %4 float32[6] = scale 2(%3)\n"
                                          "  %5 float32[2, 3] = reshape(%4)\n"
                                          "  %6 float32[2, 3] -> g0 = copy(%5)\n"),
                  "%s", got);
}
END_TEST

START_TEST(a_bias_gets_the_sum_over_what_it_was_added_to) {
    MxValue x = source("x", MX_F32, MX_SHAPE(2, 3, 4)), b = source("b", MX_F32, MX_SHAPE(4));
    grad(mx_add(&t, x, b), &b, 1, true);
    const char *got = printed(t.graph);
    ck_assert_msg(mx_text_has_suffix(got, "  %4 float32[4] +> g0 = sum_lead(%3)\n"), "%s", got);
}
END_TEST

START_TEST(what_has_no_rule_fails_on_the_way_only) {
    MxValue x = source("x", MX_F32, MX_SHAPE(2, 3)), w = source("w", MX_F32, MX_SHAPE(3));
    t.scope = "decoder/odd";
    MxValue sum = mx_sum_squares(&t, &x, 1);
    t.scope = "";
    MxValue loss = mx_add(&t, w, sum);
    grad(loss, _i ? &x : &w, 1, false);
    bool ok = mx_trace_end(&t, &err);
    ck_assert_msg(ok == (_i == 0), "%s", t.failure.data);
    if (!ok) ck_assert_str_eq(err.text.data, "decoder/odd: sum_squares is not differentiable");
}
END_TEST

/* A loss made of a statistic would have the wrong gradient in silence. */
START_TEST(some_outputs_carry_none) {
    MxValue h = source("h", MX_F32, MX_SHAPE(4, 2)), w = source("w", MX_F32, MX_SHAPE(2, 8));
    MxValue ids = source("ids", MX_I32, MX_SHAPE(4)),
            counts = source("counts", MX_I32, MX_SHAPE(4));
    t.scope = "loss";
    MxValue xent = mx_xent(&t, h, w, ids, counts, (MxXentAttr){.dtype = MX_F32, .scale = 1});
    t.scope = "";
    grad(_i ? xent + 1 : xent, &w, 1, false);
    bool ok = mx_trace_end(&t, &err);
    ck_assert_msg(ok == (_i == 0), "%s", t.failure.data);
    if (!ok) ck_assert_str_eq(err.text.data, "loss: output 1 of xent carries no gradient");
}
END_TEST

/* No gradient flows through counts, and that is no failure. */
START_TEST(constants_end_a_path) {
    MxValue x = scalar("x"), ids = source("ids", MX_I32, MX_SHAPE(4));
    MxValue loss = mx_ratio(&t, x, mx_count_nonzero(&t, ids), 0);
    grad(loss, (MxValue[]){x}, 1, false);
    ck_assert(mx_trace_end(&t, &err));
    ck_assert_int_eq(count_op(t.graph, &op_count_nonzero), 1);
    ck_assert_int_eq(count_op(t.graph, &op_ratio), 2);
}
END_TEST

START_TEST(the_trace_is_left_as_it_was) {
    MxValue w = scalar("w");
    t.scope = "layers_0";
    t.region = 3;
    MxValue loss = mx_scale(&t, w, 2);
    t.scope = "outer";
    t.region = 7;
    int n = t.graph->n_nodes;
    grad(loss, &w, 1, false);
    ck_assert_str_eq(t.scope, "outer");
    ck_assert_int_eq(t.region, 7);
    ck_assert(!t.backward);
    for (int i = 0; i < t.graph->n_nodes; i++) {
        ck_assert_int_eq(t.graph->nodes[i].backward, i >= n);
        ck_assert_int_eq(t.graph->nodes[i].region, i == n || i == 0 ? 0 : 3);
    }
    const MxNode *scale = &t.graph->nodes[n + 1]; /* after the first cotangent */
    ck_assert_ptr_eq(scale->op, &op_scale);
    ck_assert_str_eq(scale->scope, "layers_0");
}
END_TEST

START_TEST(a_failed_trace_gets_nothing) {
    MxValue w = scalar("w");
    mx_trace_fail(&t, "before");
    int n = t.graph->n_nodes;
    grad(MX_NONE, &w, 1, false);
    ck_assert_int_eq(t.graph->n_nodes, n);
    ck_assert_str_eq(t.failure.data, "before");
}
END_TEST

/* ---- the derivative */

static uint32_t power(uint32_t x, uint32_t n) {
    uint32_t y = 1;
    for (; n; n--) y = y * x % PRIME;
    return y;
}

/* f'(0) modulo the prime from all values of f: the polynomial through them has the coefficient
 * -sum f(h) h^(p-2) at h^1, if its degree is below the prime's number of points. */
static uint32_t derivative(const uint32_t f[PRIME]) {
    uint64_t sum = 0;
    for (uint32_t h = 1; h < PRIME; h++) sum += (uint64_t)f[h] * power(h, PRIME - 2);
    return (PRIME - (uint32_t)(sum % PRIME)) % PRIME;
}

/* The degree of a value in the parameters, at most. */
static int degree(MxValue value) {
    const MxNode *node = mx_graph_producer(t.graph, value);
    int sum = 0, most = 0;
    for (int i = 0; i < node->n_in; i++) {
        int d = degree(node->in[i]);
        sum += d;
        most = d > most ? d : most;
    }
    if (node->op->flags & MX_OP_SOURCE) return 1;
    return node->op == &op_dot || node->op == &op_glu ? sum : most;
}

START_TEST(the_gradient_is_the_derivative) {
    MxValue params[N_PARAMS];
    uint64_t seed = (uint64_t)_i;
    MxValue loss = random_forward(seed, 8 + _i % 8, params);
    if (degree(loss) >= PRIME - 1) return;
    int var = new_var("loss", MX_F32, MX_SCALAR);
    mx_trace_assign(&t, mx_copy(&t, loss), var, false);
    MxGraph forward = *t.graph; /* without the nodes that come now */
    differentiate(loss, params, N_PARAMS);
    mx_graph_verify(t.graph);
    Contents before = initial_contents(seed);
    Contents gradients = eval_graph(t.graph, before);
    for (int p = 0; p < N_PARAMS; p++) {
        int element = (_i + p) % 12;
        uint32_t f[PRIME], start = before[p][element];
        for (uint32_t h = 0; h < PRIME; h++) {
            before[p][element] = (start + h) % PRIME;
            f[h] = eval_graph(&forward, before)[var][0];
        }
        before[p][element] = start;
        uint32_t got = gradients[var + 1 + p][element], want = derivative(f);
        ck_assert_msg(got == want, "seed %d: d loss / d p%d[%d] is %u, not %u\n%s", _i, p, element,
                      got, want, printed(t.graph));
    }
}
END_TEST

Suite *grad_suite(void) {
    Suite *suite = suite_create("lower/grad");
    TCase *tcase = add_case(suite, "structure");
    tcase_add_test(tcase, only_paths_to_targets_get_nodes);
    tcase_add_test(tcase, an_unreached_target_gets_zeros);
    tcase_add_test(tcase, an_unreached_target_that_is_added_to_stays);
    tcase_add_loop_test(tcase, a_product_is_made_in_its_gradients_variable, 0, 2);
    tcase_add_test(tcase, contributions_to_a_target_add_up);
    tcase_add_test(tcase, a_shared_cotangent_is_copied);
    tcase_add_test(tcase, cotangents_are_summed_from_the_last_use);
    tcase_add_test(tcase, goes_through_views_and_casts);
    tcase_add_test(tcase, a_view_is_copied_into_its_variable);
    tcase_add_test(tcase, a_bias_gets_the_sum_over_what_it_was_added_to);
    tcase_add_loop_test(tcase, what_has_no_rule_fails_on_the_way_only, 0, 2);
    tcase_add_loop_test(tcase, some_outputs_carry_none, 0, 2);
    tcase_add_test(tcase, constants_end_a_path);
    tcase_add_test(tcase, the_trace_is_left_as_it_was);
    tcase_add_test(tcase, a_failed_trace_gets_nothing);
    tcase = add_case(suite, "derivative");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, the_gradient_is_the_derivative, 0, 60);
    return suite;
}
