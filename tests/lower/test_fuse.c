/* test_fuse.c — fusing: casts into what they cast, sums into what makes a term, cross-entropy into
 * its gradient; and where that would change a result, not. */
#include "lower_test.h"

static MxValue matrix(const char *name, MxDtype dtype, int64_t rows, int64_t columns) {
    return source(name, dtype, MX_SHAPE(rows, columns));
}

static MxValue product(const char *x, const char *y, MxDtype dtype) {
    MxValue left = matrix(x, dtype, 2, 3), right = matrix(y, dtype, 3, 4);
    return mx_dot(&t, left, right, MX_DOT_NN, 1);
}

static void assign(MxValue value, const char *name, bool add) {
    MxType type = mx_trace_type(&t, value);
    mx_trace_assign(&t, value, new_var(name, type.dtype, type.shape), add);
}

/* Fuses and schedules; results stay the same, in order and in memory. */
static void fuse(void) {
    ck_assert_msg(!t.failure.len, "%s", t.failure.data);
    mx_graph_verify(t.graph);
    Contents before = initial_contents(9), want = eval_graph(t.graph, before);
    mx_pass_fuse(t.graph);
    mx_pass_schedule(t.graph);
    mx_graph_verify(t.graph);
    ck_same(want, eval_graph(t.graph, before), "fuse", 9);
    MxLowered lowered = mx_pass_memory(t.graph, &some_scratch);
    ck_same(want, eval_lowered(&lowered, before), "fused lowered", 9);
}

/* ---- casts */

START_TEST(a_cast_is_folded_with_its_variable) {
    MxValue y = mx_cast(&t, product("x", "w", MX_BF16), MX_F32);
    assign(y, "g", _i == 1);
    fuse();
    const char *want[] = {"graph test\n"
                          "  %0 bfloat16[2, 3] = variable x()\n"
                          "  %1 bfloat16[3, 4] = variable w()\n"
                          "  %2 float32[2, 4] -> g = dot nn 1 float32(%0, %1)\n",
                          "graph test\n"
                          "  %0 bfloat16[2, 3] = variable x()\n"
                          "  %1 bfloat16[3, 4] = variable w()\n"
                          "  %2 float32[2, 4] +> g = dot nn 1 float32(%0, %1)\n"};
    ck_graph(want[_i]);
}
END_TEST

START_TEST(a_cast_of_a_sum_is_folded) {
    assign(mx_cast(&t, mx_sum_lead(&t, matrix("x", MX_BF16, 2, 3), 1), MX_F32), "g", true);
    fuse();
    ck_graph("graph test\n"
             "  %0 bfloat16[2, 3] = variable x()\n"
             "  %1 float32[3] +> g = sum_lead(%0)\n");
}
END_TEST

static void to_bf16(void) { /* the op makes what its attribute says; only f32 is promised */
    assign(mx_cast(&t, product("x", "w", MX_F32), MX_BF16), "g", false);
}
static void used_twice(void) {
    MxValue y = product("x", "w", MX_BF16);
    assign(mx_cast(&t, y, MX_F32), "g", false);
    assign(mx_scale(&t, y, 2), "h", false);
}
static void already_in_a_variable(void) {
    MxValue y = product("x", "w", MX_BF16);
    assign(y, "narrow", false);
    assign(mx_cast(&t, y, MX_F32), "g", false);
}
static void of_what_cannot(void) {
    assign(mx_cast(&t, mx_scale(&t, matrix("x", MX_BF16, 2, 3), 2), MX_F32), "g", false);
}
static void of_another_output(void) { /* only out 0 can change its dtype */
    MxValue h = matrix("h", MX_BF16, 2, 3), w = matrix("w", MX_BF16, 3, 5);
    MxValue ids = source("ids", MX_I32, MX_SHAPE(2));
    MxValue in[] = {h, w, ids, ids, scalar("dy")};
    MxXentAttr attr = {.dtype = MX_BF16, .scale = 1};
    MxValue dw = mx_trace_node(&t, &op_xent_grad, in, 5, &attr);
    assign(mx_cast(&t, dw + 1, MX_F32), "g", false);
}

static void (*const kept_casts[])(void) = {to_bf16, used_twice, already_in_a_variable,
                                           of_what_cannot, of_another_output};

START_TEST(other_casts_stay) {
    kept_casts[_i]();
    fuse();
    ck_assert_int_eq(count_op(t.graph, &op_cast), 1);
}
END_TEST

/* A folded product has as many uses as its cast had: it is no longer made for one use alone. */
START_TEST(a_folded_product_with_two_uses_takes_no_addend) {
    MxValue b = matrix("b", MX_F32, 2, 4);
    MxValue wide = mx_cast(&t, product("x", "w", MX_BF16), MX_F32);
    assign(mx_add(&t, b, wide), "sum", false);
    assign(mx_scale(&t, wide, 2), "other", false);
    fuse();
    ck_assert_int_eq(count_op(t.graph, &op_cast), 0);
    ck_assert_int_eq(count_op(t.graph, &op_add), 1);
}
END_TEST

/* ---- sums */

START_TEST(a_sum_becomes_an_addend) {
    MxValue x = mx_scale(&t, matrix("b", MX_F32, 2, 4), 2), y = product("x", "w", MX_F32);
    MxValue sum = _i ? mx_add(&t, x, y) : mx_add(&t, y, x);
    assign(sum, "out", false);
    fuse();
    ck_graph("graph test\n"
             "  %0 float32[2, 4] = variable b()\n"
             "  %1 float32[2, 4] = scale 2(%0)\n"
             "  %2 float32[2, 3] = variable x()\n"
             "  %3 float32[3, 4] = variable w()\n"
             "  %4 float32[2, 4] -> out = dot nn 1 float32(%2, %3, %1)\n");
}
END_TEST

START_TEST(of_two_products_the_later_takes_the_earlier) {
    MxValue x = product("x", "w", MX_F32), y = product("u", "v", MX_F32);
    assign(mx_add(&t, y, x), "out", false);
    fuse();
    ck_assert_int_eq(count_op(t.graph, &op_add), 0);
    const MxNode *last = &t.graph->nodes[t.graph->n_nodes - 1];
    ck_assert_int_eq(last->out[0], y);
    ck_assert_int_eq(last->in[2], x);
}
END_TEST

START_TEST(a_sum_of_three_takes_one_addend_each) {
    MxValue x = product("x", "w", MX_F32), y = product("u", "v", MX_F32),
            z = product("q", "r", MX_F32);
    assign(mx_add(&t, mx_add(&t, x, y), z), "out", false);
    fuse();
    ck_assert_int_eq(count_op(t.graph, &op_add), 0);
}
END_TEST

/* A residual: the product that is made last has an addend already, so the first takes the term. */
START_TEST(a_sum_reaches_the_first_product) {
    MxValue b = mx_scale(&t, matrix("b", MX_F32, 2, 4), 2);
    MxValue x = product("x", "w", MX_F32), y = product("u", "v", MX_F32);
    MxValue sum = mx_add(&t, y, x);
    assign(mx_add(&t, b, sum), "out", false);
    if (_i) assign(mx_scale(&t, sum, 2), "other", false); /* then the sum without b is wanted */
    fuse();
    ck_assert_int_eq(count_op(t.graph, &op_add), _i);
    if (_i) return;
    const MxNode *last = &t.graph->nodes[t.graph->n_nodes - 1];
    ck_assert_int_eq(last->in[2], x);
    ck_assert_int_eq(mx_graph_producer(t.graph, x)->in[2], b);
}
END_TEST

static void a_bias(void) {
    MxValue b = source("b", MX_F32, MX_SHAPE(4));
    assign(mx_add(&t, product("x", "w", MX_F32), b), "out", false);
}
static void twice_the_same(void) {
    MxValue y = product("x", "w", MX_F32);
    assign(mx_add(&t, y, y), "out", false);
}
static void a_product_used_elsewhere(void) {
    MxValue b = matrix("b", MX_F32, 2, 4), y = product("x", "w", MX_F32);
    assign(mx_add(&t, b, y), "out", false);
    assign(mx_scale(&t, y, 2), "other", false);
}
static void a_product_in_a_variable(void) {
    MxValue b = matrix("b", MX_F32, 2, 4), y = product("x", "w", MX_F32);
    assign(y, "kept", false);
    assign(mx_add(&t, b, y), "out", false);
}
static void an_earlier_product(void) { /* its addend is not there yet */
    MxValue y = product("x", "w", MX_F32), x = mx_scale(&t, matrix("b", MX_F32, 2, 4), 2);
    assign(mx_add(&t, x, y), "out", false);
}
static void two_outputs_of_one_node(void) { /* neither can be there before the other */
    MxValue x = source("x", MX_F32, MX_SHAPE(4)), s = source("s", MX_F32, MX_SHAPE(4));
    MxValue in[] = {x, s, scalar("rstd"), source("dy", MX_F32, MX_SHAPE(4))};
    MxValue dx = mx_trace_node(&t, &op_rmsnorm_grad, in, 4, NULL);
    assign(mx_add(&t, dx + 1, dx), "out", false);
}
static void the_products_own_input(void) { /* made in its input's variable, it would destroy it */
    int v = new_var("v", MX_F32, MX_SHAPE(3, 3));
    MxValue old = mx_variable(&t, v), b = mx_scale(&t, matrix("b", MX_F32, 3, 3), 2);
    MxValue y = mx_dot(&t, old, old, MX_DOT_NN, 1);
    mx_trace_assign(&t, mx_add(&t, b, y), v, false);
}
static void a_write_between(void) { /* made earlier, it would be overwritten */
    int v = new_var("v", MX_F32, MX_SHAPE(2, 4));
    MxValue b = mx_scale(&t, matrix("b", MX_F32, 2, 4), 2), y = product("x", "w", MX_F32);
    mx_trace_assign(&t, mx_copy(&t, b), v, false);
    mx_trace_assign(&t, mx_add(&t, b, y), v, false);
}

static void (*const kept_sums[])(void) = {a_bias,
                                          twice_the_same,
                                          a_product_used_elsewhere,
                                          a_product_in_a_variable,
                                          an_earlier_product,
                                          two_outputs_of_one_node,
                                          the_products_own_input,
                                          a_write_between};

START_TEST(other_sums_stay) {
    kept_sums[_i]();
    fuse();
    ck_assert_int_eq(count_op(t.graph, &op_add), 1);
}
END_TEST

/* A cast must not move its product before another write of the same variable, either. */
START_TEST(a_cast_stays_behind_other_writes) {
    int v = new_var("v", MX_F32, MX_SHAPE(2, 4));
    MxValue y = product("x", "w", MX_BF16);
    mx_trace_assign(&t, mx_copy(&t, matrix("b", MX_F32, 2, 4)), v, false);
    mx_trace_assign(&t, mx_cast(&t, y, MX_F32), v, _i == 1);
    fuse();
}
END_TEST

/* ---- cross-entropy */

static MxValue hidden, output, ids;

static MxValue xent(double softcap) {
    return mx_xent(&t, hidden, output, ids, ids, (MxXentAttr){.scale = 1, .softcap = softcap});
}

static void make_inputs(MxDtype dtype) {
    hidden = matrix("h", dtype, 2, 3);
    output = matrix("w", dtype, 3, 5);
    ids = source("ids", MX_I32, MX_SHAPE(2));
}

START_TEST(cross_entropy_is_made_by_its_gradient) {
    make_inputs(MX_F32);
    MxValue sum = xent(0), loss = mx_ratio(&t, sum, scalar("count"), 0);
    assign(sum, "sum", false);
    assign(sum + 1, "z", false);
    assign(loss, "loss", false);
    differentiate(loss, (MxValue[]){hidden, output}, 2);
    fuse();
    ck_graph("graph test\n"
             "  %0 float32[2, 3] = variable h()\n"
             "  %1 float32[3, 5] = variable w()\n"
             "  %2 int32[2] = variable ids()\n"
             "  %5 float32[] = variable count()\n"
             "  %7 float32[] = init constant 1 stream 0()\n"
             "  %8 float32[] = ratio(%7, %5)\n"
             "  %9 float32[3, 5] -> d_w, %10 float32[2, 3] -> d_h, %11 float32[] -> sum, "
             "%12 float32[] -> z = xent_grad(%0, %1, %2, %2, %8)\n"
             "  %6 float32[] -> loss = ratio(%11, %5)\n");
}
END_TEST

START_TEST(without_a_gradient_it_stays) {
    make_inputs(MX_F32);
    assign(xent(0), "sum", false);
    fuse();
    ck_assert_int_eq(count_op(t.graph, &op_xent), 1);
}
END_TEST

/* The gradient's own cotangent is made from the loss: the loss must be there first. */
START_TEST(a_gradient_that_needs_the_loss_does_not_make_it) {
    make_inputs(MX_F32);
    MxValue sum = xent(0), squared = mx_glu(&t, sum, sum, MX_LINEAR);
    assign(squared, "loss", false);
    differentiate(squared, &hidden, 1);
    fuse();
    ck_assert_int_eq(count_op(t.graph, &op_xent), 1);
    ck_assert_int_eq(count_op(t.graph, &op_xent_grad), 1);
}
END_TEST

/* Two losses of the same inputs, capped differently: each by its own gradient. */
START_TEST(other_attributes_are_another_loss) {
    make_inputs(MX_F32);
    MxValue capped = xent(30), plain = xent(0);
    assign(capped, "capped", false);
    assign(plain, "plain", false);
    differentiate(mx_add(&t, capped, plain), (MxValue[]){hidden}, 1);
    fuse();
    ck_assert_int_eq(count_op(t.graph, &op_xent), 0);
}
END_TEST

START_TEST(the_gradient_of_a_bf16_output_is_made_in_f32) {
    make_inputs(MX_F32);
    hidden = mx_cast(&t, hidden, MX_BF16);
    MxValue w = output;
    output = mx_cast(&t, w, MX_BF16);
    MxValue sum = xent(0);
    assign(sum, "sum", false);
    differentiate(sum, &w, 1);
    fuse();
    ck_assert_int_eq(count_op(t.graph, &op_xent), 0);
    ck_assert_int_eq(count_op(t.graph, &op_cast), 2);
    const MxNode *last = &t.graph->nodes[t.graph->n_nodes - 1];
    ck_assert_ptr_eq(last->op, &op_xent_grad);
    ck_assert_int_eq(t.graph->values[last->out[0]].type.dtype, MX_F32);
    ck_assert_str_eq(vars.item[t.graph->values[last->out[0]].var].name, "d_w");
}
END_TEST

Suite *fuse_suite(void) {
    Suite *suite = suite_create("lower/fuse");
    TCase *tcase = add_case(suite, "casts");
    tcase_add_loop_test(tcase, a_cast_is_folded_with_its_variable, 0, 2);
    tcase_add_test(tcase, a_cast_of_a_sum_is_folded);
    tcase_add_loop_test(tcase, other_casts_stay, 0, MX_COUNT(kept_casts));
    tcase_add_test(tcase, a_folded_product_with_two_uses_takes_no_addend);
    tcase_add_loop_test(tcase, a_cast_stays_behind_other_writes, 0, 2);
    tcase = add_case(suite, "sums");
    tcase_add_loop_test(tcase, a_sum_becomes_an_addend, 0, 2);
    tcase_add_test(tcase, of_two_products_the_later_takes_the_earlier);
    tcase_add_test(tcase, a_sum_of_three_takes_one_addend_each);
    tcase_add_loop_test(tcase, a_sum_reaches_the_first_product, 0, 2);
    tcase_add_loop_test(tcase, other_sums_stay, 0, MX_COUNT(kept_sums));
    tcase = add_case(suite, "cross-entropy");
    tcase_add_test(tcase, cross_entropy_is_made_by_its_gradient);
    tcase_add_test(tcase, without_a_gradient_it_stays);
    tcase_add_test(tcase, a_gradient_that_needs_the_loss_does_not_make_it);
    tcase_add_test(tcase, other_attributes_are_another_loss);
    tcase_add_test(tcase, the_gradient_of_a_bf16_output_is_made_in_f32);
    return suite;
}
