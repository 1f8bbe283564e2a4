/* graph_test.h — the suites of this room, and a few ops of its own to build graphs from: the room
 * knows no real ones. */
#ifndef GRAPH_TEST_H
#define GRAPH_TEST_H

#include <check.h>
#include <mx/graph.h>

Suite *trace_suite(void);
Suite *verify_suite(void);

/* source (a variable; its attribute is the variable's index), view (first attribute: the new
 * shape), add (two inputs of one type; accumulates), split (one input, two outputs, of which the
 * second accumulates; its attribute is printed). */
extern const MxOp op_source, op_view, op_add, op_split;

/* One test's arena, error, variables "w" f32[2, 3], "x" f32[2, 3], "n" i32[6] and "s" f32[6], and
 * an empty trace. */
extern MxArena arena;
extern MxError err;
extern MxVars vars;
extern MxTrace t;
enum { VAR_W, VAR_X, VAR_N, VAR_S };

void set_up(void);
void tear_down(void);

MxValue source(int var);
MxValue view(MxValue x, MxShape shape);
MxValue add(MxValue x, MxValue y);
MxValue split(MxValue x);

#endif
