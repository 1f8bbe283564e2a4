/* ops_test.h — the suites of this room and one test's trace. */
#ifndef OPS_TEST_H
#define OPS_TEST_H

#include <cases/cases.h>
#include <check.h>

Suite *infer_suite(void);
Suite *rules_suite(void);

/* One test's arena, variables and empty trace. */
extern MxArena arena;
extern MxVars vars;
extern MxTrace t;

void set_up(void);
void tear_down(void);

/* trace_node — a node of the op whose inputs are variables; its first output or MX_NONE. */
MxValue trace_node(const MxOp *op, const void *attr, const MxType *in, int n_in);

#endif
