/* test_ops.c — runs the suites of the room, and holds what they share. */
#include "ops_test.h"

#include <stdlib.h>

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

static MxDtype dtype_of(char letter) {
    switch (letter) {
    case 'f':
        return MX_F32;
    case 'b':
        return MX_BF16;
    case 'i':
        return MX_I32;
    case 'd':
        return MX_F64;
    default:
        ck_abort_msg("no dtype '%c'", letter);
    }
}

int parse_types(const char *text, MxType types[MOST_TYPES]) {
    int n = 0;
    while (*text) {
        ck_assert_int_lt(n, MOST_TYPES);
        MxType type = {.dtype = dtype_of(*text++)};
        while (*text && *text != ' ') {
            char *end;
            type.shape.dim[type.shape.rank++] = strtoll(text, &end, 10);
            ck_assert_msg(end != text, "\"%s\" is no number", text);
            text = *end == ',' ? end + 1 : end;
        }
        while (*text == ' ') text++;
        types[n++] = type;
    }
    return n;
}

MxValue trace_case(const OpCase *c) {
    MxType types[MOST_TYPES];
    MxValue in[MOST_TYPES];
    int n = parse_types(c->in, types);
    for (int i = 0; i < n; i++) in[i] = mx_variable(&t, mx_vars_add(&vars, "x", types[i]));
    if (c->op == &op_variable) mx_vars_add(&vars, "self", (MxType){MX_I32, MX_SHAPE(2, 3)});
    return mx_trace_node(&t, c->op, in, n, c->attr);
}

int main(void) {
    SRunner *runner = srunner_create(infer_suite());
    srunner_add_suite(runner, rules_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
