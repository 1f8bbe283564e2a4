/* test_graph.c — runs the suites of the room, and holds the ops that they build graphs from. */
#include "graph_test.h"
#include "common/suite.h"

MxArena arena = {.name = "test"};
MxError err;
MxVars vars;
MxTrace t;

typedef struct SourceAttr {
    int var;
    MxType type;
} SourceAttr;

static bool source_infer(MxInfer *infer) {
    infer->out[0] = ((const SourceAttr *)infer->attr)->type;
    return true;
}

const MxOp op_source = {
    .name = "source",
    .flags = MX_OP_SOURCE,
    .attr_bytes = sizeof(SourceAttr),
    .infer = source_infer,
};

static bool view_infer(MxInfer *infer) {
    infer->out[0] = (MxType){infer->in[0].dtype, *(const MxShape *)infer->attr};
    return mx_shape_count(infer->out[0].shape) == mx_shape_count(infer->in[0].shape) ||
           mx_infer_fail(infer, "another number of elements");
}

const MxOp op_view = {
    .name = "view",
    .arity = 1,
    .flags = MX_OP_VIEW,
    .attr_bytes = sizeof(MxShape),
    .infer = view_infer,
};

static bool add_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    return mx_shape_equal(infer->in[0].shape, infer->in[1].shape) ||
           mx_infer_fail(infer, "shapes of rank %d and %d differ", infer->in[0].shape.rank,
                         infer->in[1].shape.rank);
}

const MxOp op_add = {.name = "add", .arity = 2, .accumulates = 1, .infer = add_infer};

static bool split_infer(MxInfer *infer) {
    infer->n_out = 2;
    infer->out[0] = infer->in[0];
    infer->out[1] = (MxType){MX_F32, MX_SHAPE(mx_shape_count(infer->in[0].shape))};
    return true;
}

static void split_print(MxText *text, const void *attr) {
    mx_text_add(text, "at %d", *(const int *)attr);
}

const MxOp op_split = {
    .name = "split",
    .arity = 1,
    .accumulates = 2,
    .attr_bytes = sizeof(int),
    .infer = split_infer,
    .print = split_print,
};

MxValue source(int var) {
    SourceAttr attr = {.var = var, .type = vars.item[var].type};
    return mx_trace_node(&t, &op_source, NULL, 0, &attr);
}
MxValue view(MxValue x, MxShape shape) {
    return mx_trace_node(&t, &op_view, &x, 1, &shape);
}
MxValue add(MxValue x, MxValue y) {
    return mx_trace_node(&t, &op_add, (MxValue[]){x, y}, 2, NULL);
}
MxValue split(MxValue x) {
    int at = 7;
    return mx_trace_node(&t, &op_split, &x, 1, &at);
}

void set_up(void) {
    vars = (MxVars){.arena = &arena};
    mx_vars_add(&vars, "w", (MxType){MX_F32, MX_SHAPE(2, 3)});
    mx_vars_add(&vars, "x", (MxType){MX_F32, MX_SHAPE(2, 3)});
    mx_vars_add(&vars, "n", (MxType){MX_I32, MX_SHAPE(6)});
    mx_vars_add(&vars, "s", (MxType){MX_F32, MX_SHAPE(6)});
    mx_trace_begin(&t, mx_graph_new(&arena, "test", &vars));
}

void tear_down(void) {
    mx_error_release(&err);
    mx_arena_release(&arena);
}

int main(void) {
    return RUN_SUITES(trace_suite(), verify_suite());
}
