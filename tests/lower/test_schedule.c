/* test_schedule.c — the order of nodes: what nobody needs is gone, everything else is there once,
 * after what it reads and in the traced order where that is legal; readers of a variable come
 * before its writer. */
#include "lower_test.h"

START_TEST(drops_what_nobody_needs) {
    MxValue w = scalar("w"), unused = scalar("unused");
    MxValue kept = mx_scale(&t, w, 2);
    mx_scale(&t, mx_scale(&t, unused, 3), 4);
    mx_scale(&t, kept, 5);
    mx_trace_assign(&t, mx_scale(&t, kept, 6), new_var("out", MX_F32, MX_SCALAR), false);
    mx_pass_schedule(t.graph);
    ck_graph("graph test\n"
             "  %0 float32[] = variable w()\n"
             "  %2 float32[] = scale 2(%0)\n"
             "  %6 float32[] -> out = scale 6(%2)\n");
    for (int v = 0; v < t.graph->n_values; v++) /* no value points at another's maker */
        ck_assert_int_eq(t.graph->values[v].node, v == 0 ? 0 : v == 2 ? 1 : v == 6 ? 2 : MX_NONE);
    mx_graph_verify(t.graph);
}
END_TEST

START_TEST(one_output_keeps_a_node) {
    MxValue x = source("x", MX_F32, MX_SHAPE(2, 3)), s = source("s", MX_F32, MX_SHAPE(3));
    MxValue y = mx_rmsnorm(&t, x, s, 1e-5);
    mx_trace_assign(&t, y + 1, new_var("rstd", MX_F32, MX_SHAPE(2)), false);
    mx_pass_schedule(t.graph);
    ck_assert_int_eq(t.graph->n_nodes, 3);
}
END_TEST

START_TEST(an_empty_graph_stays_empty) {
    scalar("w");
    mx_pass_schedule(t.graph);
    ck_assert_int_eq(t.graph->n_nodes, 0);
    MxLowered lowered = mx_pass_memory(t.graph, &no_scratch);
    ck_assert_int_eq(lowered.n_steps, 0);
    ck_assert_uint_eq(lowered.arena_bytes, 0);
}
END_TEST

/* Moves a node to the end of the list, as a pass may leave it. */
static void move_to_end(int from) {
    MxGraph *graph = t.graph;
    MxNode node = graph->nodes[from];
    for (int n = from; n + 1 < graph->n_nodes; n++) graph->nodes[n] = graph->nodes[n + 1];
    graph->nodes[graph->n_nodes - 1] = node;
    for (int n = 0; n < graph->n_nodes; n++)
        for (int i = 0; i < graph->nodes[n].n_out; i++)
            graph->values[graph->nodes[n].out[i]].node = n;
}

START_TEST(users_wait_for_their_maker) {
    MxValue w = scalar("w"), late = mx_scale(&t, w, 2), other = mx_scale(&t, w, 3);
    mx_trace_assign(&t, mx_add(&t, late, other), new_var("a", MX_F32, MX_SCALAR), false);
    mx_trace_assign(&t, mx_scale(&t, other, 4), new_var("b", MX_F32, MX_SCALAR), false);
    move_to_end(1);
    mx_pass_schedule(t.graph);
    mx_graph_verify(t.graph);
    ck_graph("graph test\n"
             "  %0 float32[] = variable w()\n"
             "  %2 float32[] = scale 3(%0)\n"
             "  %4 float32[] -> b = scale 4(%2)\n"
             "  %1 float32[] = scale 2(%0)\n"
             "  %3 float32[] -> a = add(%1, %2)\n");
}
END_TEST

START_TEST(readers_come_before_the_writer) {
    int v = new_var("v", MX_F32, MX_SCALAR);
    MxValue old = mx_variable(&t, v), late = mx_scale(&t, scalar("w"), 2);
    MxValue flat = mx_reshape(&t, old, MX_SHAPE(1));
    MxValue reader = mx_add(&t, flat, mx_reshape(&t, late, MX_SHAPE(1)));
    mx_trace_assign(&t, reader, new_var("out", MX_F32, MX_SHAPE(1)), false);
    mx_trace_assign(&t, mx_scale(&t, old, 3), v, false);
    mx_graph_verify(t.graph);
    move_to_end(2); /* `late`: its reader, which also reads v, now stands after v's writer */
    mx_pass_schedule(t.graph);
    mx_graph_verify(t.graph);
    ck_assert_int_eq(t.graph->values[t.graph->nodes[t.graph->n_nodes - 1].out[0]].var, v);
}
END_TEST

/* The same where what is read was itself written in this graph, and is then overwritten. */
START_TEST(readers_of_a_result_come_before_the_next_writer) {
    int v = new_var("v", MX_F32, MX_SCALAR);
    MxValue w = scalar("w"), late = mx_scale(&t, w, 2), first = mx_scale(&t, w, 3);
    mx_trace_assign(&t, first, v, false);
    mx_trace_assign(&t, mx_add(&t, first, late), new_var("out", MX_F32, MX_SCALAR), false);
    mx_trace_assign(&t, mx_scale(&t, w, 4), v, false);
    mx_graph_verify(t.graph);
    move_to_end(1);
    mx_pass_schedule(t.graph);
    mx_graph_verify(t.graph);
    ck_assert_int_eq(t.graph->values[t.graph->nodes[t.graph->n_nodes - 1].out[0]].var, v);
}
END_TEST

START_TEST(writers_keep_their_order) {
    int v = new_var("v", MX_F32, MX_SCALAR);
    MxValue w = scalar("w"), late = mx_scale(&t, w, 2);
    mx_trace_assign(&t, mx_copy(&t, late), v, false);
    mx_trace_assign(&t, mx_copy(&t, w), v, true);
    move_to_end(1);
    mx_pass_schedule(t.graph);
    mx_graph_verify(t.graph);
    ck_graph("graph test\n"
             "  %0 float32[] = variable w()\n"
             "  %1 float32[] = scale 2(%0)\n"
             "  %2 float32[] -> v = copy(%1)\n"
             "  %3 float32[] +> v = copy(%0)\n");
}
END_TEST

/* ---- random graphs */

static bool is_needed(const MxNode *node, const bool *wanted, const MxGraph *graph) {
    for (int i = 0; i < node->n_out; i++)
        if (wanted[node->out[i]] || graph->values[node->out[i]].var != MX_NONE) return true;
    return false;
}

/* The live nodes of a graph in legal order, by their first outputs. */
static int live_nodes(const MxGraph *graph, MxValue *live) {
    bool *wanted = mx_new_n(&arena, bool, graph->n_values);
    int n_live = 0;
    for (int n = graph->n_nodes - 1; n >= 0; n--) {
        const MxNode *node = &graph->nodes[n];
        if (!is_needed(node, wanted, graph)) continue;
        live[n_live++] = node->out[0];
        for (int i = 0; i < node->n_in; i++) wanted[node->in[i]] = true;
    }
    for (int i = 0; i < n_live / 2; i++) {
        MxValue first = live[i];
        live[i] = live[n_live - 1 - i];
        live[n_live - 1 - i] = first;
    }
    return n_live;
}

START_TEST(a_legal_order_stays) {
    for (int k = 0; k < 20; k++) {
        uint64_t seed = (uint64_t)(20 * _i + k);
        set_up();
        random_program(seed, 5 + (int)seed % 60);
        mx_graph_verify(t.graph);
        Contents before = initial_contents(seed), want = eval_graph(t.graph, before);
        MxValue *live = mx_new_n(&arena, MxValue, t.graph->n_nodes);
        int n_live = live_nodes(t.graph, live);
        mx_pass_schedule(t.graph);
        mx_graph_verify(t.graph);
        ck_assert_msg(t.graph->n_nodes == n_live, "seed %llu: %d nodes, not %d",
                      (unsigned long long)seed, t.graph->n_nodes, n_live);
        for (int n = 0; n < n_live; n++)
            if (t.graph->nodes[n].out[0] != live[n])
                ck_abort_msg("seed %llu: node %d makes %%%d, not %%%d", (unsigned long long)seed, n,
                             t.graph->nodes[n].out[0], live[n]);
        ck_same(want, eval_graph(t.graph, before), "schedule", seed);
        mx_arena_release(&arena);
    }
}
END_TEST

/* Nodes that write no variable may be moved anywhere; results must stay the same. */
START_TEST(a_shuffled_order_is_mended) {
    for (int k = 0; k < 20; k++) {
        uint64_t seed = (uint64_t)(20 * _i + k), state = seed << 20;
        set_up();
        random_program(seed, 5 + (int)seed % 60);
        Contents before = initial_contents(seed), want = eval_graph(t.graph, before);
        for (int round = 0; round < t.graph->n_nodes; round++) {
            int n = (int)(draw(&state) % (uint64_t)t.graph->n_nodes);
            const MxNode *node = &t.graph->nodes[n];
            bool writes = false;
            for (int i = 0; i < node->n_out; i++)
                writes = writes || t.graph->values[node->out[i]].var != MX_NONE;
            if (!writes) move_to_end(n);
        }
        mx_pass_schedule(t.graph);
        mx_graph_verify(t.graph);
        ck_same(want, eval_graph(t.graph, before), "shuffle and schedule", seed);
        mx_arena_release(&arena);
    }
}
END_TEST

Suite *schedule_suite(void) {
    Suite *suite = suite_create("lower/schedule");
    TCase *tcase = add_case(suite, "schedule");
    tcase_add_test(tcase, drops_what_nobody_needs);
    tcase_add_test(tcase, one_output_keeps_a_node);
    tcase_add_test(tcase, an_empty_graph_stays_empty);
    tcase_add_test(tcase, users_wait_for_their_maker);
    tcase_add_test(tcase, readers_come_before_the_writer);
    tcase_add_test(tcase, readers_of_a_result_come_before_the_next_writer);
    tcase_add_test(tcase, writers_keep_their_order);
    tcase = add_case(suite, "random graphs");
    tcase_add_loop_test(tcase, a_legal_order_stays, 0, 100);
    tcase_add_loop_test(tcase, a_shuffled_order_is_mended, 0, 100);
    return suite;
}
