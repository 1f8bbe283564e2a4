/* test_ops.c — runs the suites of the room, and holds what they share. */
#include "ops_test.h"
#include "common/suite.h"

MxArena arena = {.name = "test"};
MxVars vars;
MxTrace t;

void set_up(void) {
    vars = (MxVars){.arena = &arena};
    mx_trace_begin(&t, mx_graph_new(&arena, "test", &vars));
}

void tear_down(void) {
    mx_arena_release(&arena);
}

MxValue trace_node(const MxOp *op, const void *attr, const MxType *types, int n) {
    MxValue in[SHOT_INPUTS];
    for (int i = 0; i < n; i++) in[i] = mx_variable(&t, mx_vars_add(&vars, "x", types[i]));
    if (op == &op_variable) mx_vars_add(&vars, "self", ((const MxVariableAttr *)attr)->type);
    return mx_trace_node(&t, op, in, n, attr);
}

int main(void) {
    return RUN_SUITES(infer_suite(), rules_suite());
}
