/* test_remat.c — rematerialisation: what is made again under each policy, when, and that results
 * stay the same. */
#include "lower_test.h"

static const MxRemat policies[] = {MX_REMAT_NONE, MX_REMAT_MINIMAL, MX_REMAT_FULL};

/* How often each op runs in the decoder of two layers. */
static const struct {
    const MxOp *op;
    int n[MX_REMAT_COUNT]; /* none, minimal, full */
} runs[] = {
    {&op_attention, {2, 2, 4}},
    {&op_attention_grad, {2, 2, 2}},
    {&op_glu, {2, 4, 4}},
    {&op_rope, {8, 12, 12}},  /* of which 4 backward */
    {&op_rmsnorm, {5, 9, 9}}, /* the last is in no region */
    {&op_embed, {1, 1, 1}},
    {&op_rope_table, {1, 1, 1}},
    {&op_xent, {1, 1, 1}},
    /* 7 products a layer; of those the two that make the residuals are not needed again. The first
     * residual is: minimal keeps it in the place of its product. */
    {&op_dot, {14 + 28, 14 + 28, 14 + 28 + 12}},
    {&op_add, {4 + 10, 4 + 10, 4 + 10 + 2}},
};

START_TEST(makes_again_what_the_policy_says) {
    MxValue params[MODEL_PARAMS];
    differentiate(model_forward(MX_BF16, params), params, MODEL_PARAMS);
    mx_pass_remat(t.graph, policies[_i]);
    mx_graph_verify(t.graph);
    mx_pass_schedule(t.graph); /* what nobody uses goes */
    mx_graph_verify(t.graph);
    for (int k = 0; k < MX_COUNT(runs); k++) {
        int n = count_op(t.graph, runs[k].op);
        ck_assert_msg(n == runs[k].n[_i], "policy %d: %d of %s, not %d", _i, n, runs[k].op->name,
                      runs[k].n[_i]);
    }
}
END_TEST

/* Whether anything of region `region` runs after the first backward node, and before it. */
static void find_region(int region, int *first_again, int *last_backward_use) {
    bool is_backward = false;
    *first_again = *last_backward_use = -1;
    for (int n = 0; n < t.graph->n_nodes; n++) {
        const MxNode *node = &t.graph->nodes[n];
        is_backward = is_backward || node->backward;
        bool is_again = is_backward && !node->backward && node->region == region;
        if (is_again && *first_again < 0) *first_again = n;
        for (int i = 0; node->backward && i < node->n_in; i++) {
            const MxNode *maker = mx_graph_producer(t.graph, node->in[i]);
            if (!maker->backward && maker->region == region) *last_backward_use = n;
        }
    }
}

START_TEST(a_layer_is_made_again_when_it_is_needed) {
    MxValue params[MODEL_PARAMS];
    differentiate(model_forward(MX_BF16, params), params, MODEL_PARAMS);
    mx_pass_remat(t.graph, MX_REMAT_FULL);
    mx_pass_schedule(t.graph);
    int first[3], last[3];
    for (int region = 1; region <= MODEL_LAYERS; region++)
        find_region(region, &first[region], &last[region]);
    ck_assert_int_gt(first[2], 0);
    ck_assert_msg(first[2] < last[2] && last[2] < first[1] && first[1] < last[1],
                  "layer 1 made again at %d for uses up to %d, layer 0 at %d for uses up to %d",
                  first[2], last[2], first[1], last[1]);
}
END_TEST

/* The backward pass reads nothing of the first making but what leaves the layers. */
START_TEST(full_keeps_only_the_inputs_of_layers) {
    MxValue params[MODEL_PARAMS];
    differentiate(model_forward(MX_BF16, params), params, MODEL_PARAMS);
    int n_before = t.graph->n_values;
    mx_pass_remat(t.graph, MX_REMAT_FULL);
    for (int n = 0; n < t.graph->n_nodes; n++) {
        const MxNode *node = &t.graph->nodes[n];
        for (int i = 0; node->backward && i < node->n_in; i++) {
            const MxNode *maker = mx_graph_producer(t.graph, node->in[i]);
            bool is_first = maker->region && !maker->backward && node->in[i] < n_before;
            bool leaves = maker->op == &op_add; /* the layer's result */
            ck_assert_msg(!is_first || leaves, "%s of %s reads %%%d of %s", node->op->name,
                          node->scope, node->in[i], maker->op->name);
        }
    }
}
END_TEST

static int count_writers(const MxGraph *graph, int var) {
    int n = 0;
    for (int v = 0; v < graph->n_values; v++) n += graph->values[v].var == var;
    return n;
}

/* A layer counts something, which a second making must not count again, and leaves in a variable
 * what the backward pass reads. */
START_TEST(a_layer_writes_variables_once) {
    const uint64_t seed = 1;
    MxValue w = source("w", MX_F32, MX_SHAPE(3));
    int count = new_var("count", MX_F32, MX_SHAPE(3)), left = new_var("left", MX_F32, MX_SHAPE(3));
    t.region = 1;
    MxValue x = mx_scale(&t, w, 2), y = mx_glu(&t, x, w, MX_SILU);
    mx_trace_assign(&t, mx_copy(&t, x), count, true);
    mx_trace_assign(&t, y, left, false);
    MxValue z = mx_glu(&t, y, x, MX_SILU);
    t.region = 0;
    differentiate(z, &w, 1);
    Contents before = initial_contents(seed), want = eval_graph(t.graph, before);
    mx_pass_remat(t.graph, policies[_i]);
    ck_assert_int_eq(count_writers(t.graph, count), 1);
    ck_assert_int_eq(count_writers(t.graph, left), 1);
    mx_pass_schedule(t.graph);
    mx_graph_verify(t.graph);
    ck_same(want, eval_graph(t.graph, before), "writes of a layer", seed);
}
END_TEST

START_TEST(nothing_happens_without_regions) {
    MxValue w = source("w", MX_F32, MX_SHAPE(2, 3));
    differentiate(mx_glu(&t, mx_scale(&t, w, 2), w, MX_SILU), &w, 1);
    const char *before = printed(t.graph);
    mx_pass_remat(t.graph, policies[_i]);
    ck_graph(before);
}
END_TEST

START_TEST(results_stay_the_same) {
    MxValue params[N_PARAMS];
    uint64_t seed = (uint64_t)_i;
    MxValue loss = random_forward(seed, 20 + _i % 60, params);
    mx_trace_assign(&t, mx_copy(&t, loss), new_var("loss", MX_F32, MX_SCALAR), false);
    differentiate(loss, params, N_PARAMS);
    Contents before = initial_contents(seed), want = eval_graph(t.graph, before);
    mx_pass_remat(t.graph, policies[_i % 3]);
    mx_graph_verify(t.graph);
    ck_same(want, eval_graph(t.graph, before), "remat", seed);
    mx_pass_schedule(t.graph);
    mx_graph_verify(t.graph);
    ck_same(want, eval_graph(t.graph, before), "remat and schedule", seed);
}
END_TEST

Suite *remat_suite(void) {
    Suite *suite = suite_create("lower/remat");
    TCase *tcase = add_case(suite, "remat");
    tcase_add_loop_test(tcase, makes_again_what_the_policy_says, 0, MX_REMAT_COUNT);
    tcase_add_test(tcase, a_layer_is_made_again_when_it_is_needed);
    tcase_add_test(tcase, full_keeps_only_the_inputs_of_layers);
    tcase_add_loop_test(tcase, a_layer_writes_variables_once, 0, MX_REMAT_COUNT);
    tcase_add_loop_test(tcase, nothing_happens_without_regions, 0, MX_REMAT_COUNT);
    tcase_add_loop_test(tcase, results_stay_the_same, 0, 300);
    return suite;
}
