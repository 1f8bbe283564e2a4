/* test_bucket.c — small exchanges of a kind are made together, no later than somebody needs one of
 * them; large ones, and those of other ranks, are left alone. */
#include "lower_test.h"

static MxValue exchange(const MxOp *op, MxValue x, uint64_t group) {
    MxCollectiveAttr attr = {
        .group = {.axes = group == 1 ? "data" : "fsdp", .id = group, .size = 2}};
    return mx_trace_node(&t, op, &x, 1, &attr);
}

static void keep(MxValue value, const char *name) {
    MxType type = mx_trace_type(&t, value);
    mx_trace_assign(&t, value, new_var(name, type.dtype, type.shape), false);
}

START_TEST(small_sums_share_an_exchange) {
    MxValue x = source("x", MX_F32, MX_SHAPE(4)), y = source("y", MX_F32, MX_SHAPE(2, 3));
    keep(exchange(&op_all_reduce, x, 1), "a");
    keep(exchange(&op_all_reduce, y, 1), "b");
    mx_pass_schedule(t.graph);
    mx_pass_bucket(t.graph, &test_machine);
    mx_graph_verify(t.graph);
    ck_graph("graph test\n"
             "  %0 float32[4] = variable x()\n"
             "  %1 float32[2, 3] = variable y()\n"
             "  %4 float32[1, 10] = pack parts 1(%0, %1)\n"
             "  %5 float32[1, 10] = all_reduce data(%4)\n"
             "  %2 float32[4] -> a = unpack at 0(%5)\n"
             "  %3 float32[2, 3] -> b = unpack at 4(%5)\n");
}
END_TEST

START_TEST(parts_are_packed_by_rank) {
    MxValue x = source("x", MX_F32, MX_SHAPE(4)), y = source("y", MX_F32, MX_SHAPE(2, 3));
    keep(exchange(&op_reduce_scatter, x, 1), "a");
    keep(exchange(&op_reduce_scatter, y, 1), "b");
    keep(exchange(&op_all_gather, x, 1), "c");
    keep(exchange(&op_all_gather, y, 1), "d");
    mx_pass_schedule(t.graph);
    mx_pass_bucket(t.graph, &test_machine);
    mx_graph_verify(t.graph);
    ck_graph("graph test\n"
             "  %0 float32[4] = variable x()\n"
             "  %1 float32[2, 3] = variable y()\n"
             "  %6 float32[2, 5] = pack parts 2(%0, %1)\n"
             "  %7 float32[1, 5] = reduce_scatter dim 0 data(%6)\n"
             "  %2 float32[2] -> a = unpack at 0(%7)\n"
             "  %3 float32[1, 3] -> b = unpack at 2(%7)\n"
             "  %8 float32[1, 10] = pack parts 1(%0, %1)\n"
             "  %9 float32[2, 10] = all_gather dim 0 data(%8)\n"
             "  %4 float32[8] -> c = unpack at 0(%9)\n"
             "  %5 float32[4, 3] -> d = unpack at 4(%9)\n");
}
END_TEST

START_TEST(a_user_ends_the_wait) {
    MxValue x = source("x", MX_F32, MX_SHAPE(4)), y = source("y", MX_F32, MX_SHAPE(4));
    MxValue a = exchange(&op_all_reduce, x, 1), b = exchange(&op_all_reduce, y, 1);
    MxValue c = mx_scale(&t, a, 2);
    keep(exchange(&op_all_reduce, c, 1), "c");
    keep(b, "b");
    mx_pass_schedule(t.graph);
    mx_pass_bucket(t.graph, &test_machine);
    mx_graph_verify(t.graph);
    ck_assert_int_eq(count_op(t.graph, &op_all_reduce), 2);
    ck_assert_int_eq(count_op(t.graph, &op_pack), 1);
    ck_assert_int_eq(count_op(t.graph, &op_unpack), 2);
}
END_TEST

START_TEST(others_are_left_alone) {
    MxValue x = source("x", MX_F32, MX_SHAPE(4)), y = source("y", MX_BF16, MX_SHAPE(4));
    MxValue large = source("large", MX_F32, MX_SHAPE(1 << 16));
    keep(exchange(&op_all_reduce, x, 1), "a");
    keep(exchange(&op_all_reduce, x, 2), "b");     /* with other ranks */
    keep(exchange(&op_all_reduce, y, 1), "c");     /* another dtype */
    keep(exchange(&op_all_gather, x, 1), "d");     /* another exchange */
    keep(exchange(&op_all_reduce, large, 1), "e"); /* not small */
    mx_pass_schedule(t.graph);
    mx_pass_bucket(t.graph, &test_machine);
    mx_graph_verify(t.graph);
    ck_assert_int_eq(count_op(t.graph, &op_all_reduce), 4);
    ck_assert_int_eq(count_op(t.graph, &op_all_gather), 1);
    ck_assert_int_eq(count_op(t.graph, &op_pack), 0);
}
END_TEST

START_TEST(a_writer_ends_the_wait) {
    int w = new_var("w", MX_F32, MX_SHAPE(4));
    MxValue y = source("y", MX_F32, MX_SHAPE(4));
    keep(exchange(&op_all_reduce, mx_variable(&t, w), 1), "a");
    mx_trace_assign(&t, mx_scale(&t, y, 3), w, false);
    keep(exchange(&op_all_reduce, y, 1), "b");
    mx_pass_schedule(t.graph);
    mx_pass_bucket(t.graph, &test_machine);
    mx_graph_verify(t.graph);
    ck_assert_int_eq(count_op(t.graph, &op_all_reduce), 2);
}
END_TEST

/* More than a bucket holds. */
START_TEST(buckets_have_a_size) {
    enum { ARRAYS = 40 };
    MxValue x = source("x", MX_F32, MX_SHAPE(1 << 14)); /* 64 KiB: 32 fill a bucket */
    for (int i = 0; i < ARRAYS; i++) keep(exchange(&op_all_reduce, x, 1), "sum");
    mx_pass_schedule(t.graph);
    mx_pass_bucket(t.graph, &test_machine);
    mx_graph_verify(t.graph);
    ck_assert_int_eq(count_op(t.graph, &op_all_reduce), 2);
    ck_assert_int_eq(count_op(t.graph, &op_unpack), ARRAYS);
}
END_TEST

/* ---- gathers of weights go to the first of them */

/* A layer: a weight, cast and gathered, and a product's place taken by what uses it. */
static MxValue layer(MxValue x, const char *name, MxShape shape) {
    MxValue w = mx_cast(&t, source(name, MX_F32, shape), MX_BF16);
    return mx_add(&t, x, exchange(&op_all_gather, w, 1));
}

START_TEST(small_weights_of_layers_are_gathered_together) {
    MxValue x = source("x", MX_BF16, MX_SHAPE(8));
    x = layer(layer(layer(x, "a", MX_SHAPE(4)), "b", MX_SHAPE(4)), "c", MX_SHAPE(4));
    keep(x, "y");
    mx_pass_schedule(t.graph);
    mx_pass_gathers(t.graph, &test_machine);
    mx_graph_verify(t.graph);
    mx_pass_bucket(t.graph, &test_machine);
    mx_graph_verify(t.graph);
    ck_assert_int_eq(count_op(t.graph, &op_all_gather), 1);
    ck_assert_int_eq(count_op(t.graph, &op_unpack), 3);
}
END_TEST

START_TEST(large_weights_are_gathered_one_by_one) {
    MxValue x = source("x", MX_BF16, MX_SHAPE(1 << 18));
    x = layer(layer(x, "a", MX_SHAPE(1 << 17)), "b", MX_SHAPE(1 << 17));
    keep(x, "y");
    mx_pass_schedule(t.graph);
    mx_pass_gathers(t.graph, &test_machine);
    mx_pass_bucket(t.graph, &test_machine);
    mx_graph_verify(t.graph);
    ck_assert_int_eq(count_op(t.graph, &op_all_gather), 2);
}
END_TEST

START_TEST(what_is_no_weight_stays_where_it_is) {
    MxValue x = source("x", MX_F32, MX_SHAPE(4));
    MxValue a = exchange(&op_all_gather, x, 1);
    MxValue b = mx_scale(&t, a, 2);
    keep(b, "b");
    MxValue moved = exchange(&op_all_gather, mx_scale(&t, x, 5), 1); /* no variable's */
    keep(mx_scale(&t, moved, 7), "c");
    mx_pass_schedule(t.graph);
    mx_pass_gathers(t.graph, &test_machine);
    mx_graph_verify(t.graph);
    mx_pass_bucket(t.graph, &test_machine);
    mx_graph_verify(t.graph);
    ck_assert_int_eq(count_op(t.graph, &op_all_gather), 2);
}
END_TEST

Suite *bucket_suite(void) {
    Suite *suite = suite_create("lower/bucket");
    TCase *tcase = add_case(suite, "bucket");
    tcase_add_test(tcase, small_weights_of_layers_are_gathered_together);
    tcase_add_test(tcase, large_weights_are_gathered_one_by_one);
    tcase_add_test(tcase, what_is_no_weight_stays_where_it_is);
    tcase_add_test(tcase, small_sums_share_an_exchange);
    tcase_add_test(tcase, parts_are_packed_by_rank);
    tcase_add_test(tcase, a_user_ends_the_wait);
    tcase_add_test(tcase, others_are_left_alone);
    tcase_add_test(tcase, a_writer_ends_the_wait);
    tcase_add_test(tcase, buckets_have_a_size);
    return suite;
}
