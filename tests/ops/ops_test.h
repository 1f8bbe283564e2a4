/* ops_test.h — the suites of this room, one test's trace, and types written as text. */
#ifndef OPS_TEST_H
#define OPS_TEST_H

#include <check.h>
#include <mx/ops.h>

Suite *infer_suite(void);
Suite *rules_suite(void);

/* One test's arena, variables and empty trace. */
extern MxArena arena;
extern MxVars vars;
extern MxTrace t;

void set_up(void);
void tear_down(void);

enum { MOST_TYPES = 8 };

/* parse_types — "f2,3 b4 i" to f32 [2, 3], bf16 [4], an i32 scalar; returns how many. Letters: f
 * float32, b bfloat16, i int32, d float64. */
int parse_types(const char *text, MxType types[MOST_TYPES]);

/* One way to use an op: right (`out` lists the types of its outputs) or wrong (`out` is "!" and a
 * part of the message). */
typedef struct OpCase {
    const MxOp *op;
    const void *attr;
    const char *in, *out;
} OpCase;

extern const OpCase op_cases[];
extern const int n_op_cases;

static inline bool is_right(const OpCase *c) {
    return c->out[0] != '!';
}
/* trace_case — the case's node, its inputs being variables; the first output or MX_NONE. */
MxValue trace_case(const OpCase *c);

#endif
