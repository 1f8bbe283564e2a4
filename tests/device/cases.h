/* cases.h — the table of kernel cases: an op, its attributes, and what goes in. Each case is run in
 * f32 and, unless it says otherwise, in bf16. */
#ifndef CASES_H
#define CASES_H

#include "probe.h"

/* What an input holds. The first two have the dtype under test. */
typedef enum Fill {
    FILL_NORMAL,    /* normal numbers times a */
    FILL_DY,        /* the same; the cotangent of a gradient op */
    FILL_F32,       /* normal numbers times a, f32 always */
    FILL_VALUE,     /* f32 a everywhere */
    FILL_SQUARE,    /* f32 squares of normal numbers times a: second moments, sums */
    FILL_LOGP,      /* f32 below 0, of size a: log-probabilities */
    FILL_HYPER,     /* lr, bias1, bias2 */
    FILL_TRIG,      /* cos and sin of random angles */
    FILL_IDS,       /* i32 in [0, a); a few of them often */
    FILL_FLAGS,     /* i32, 0 with probability a */
    FILL_SEGMENTS,  /* i32: 1, 2, .. each about a long, padding 0 at the end */
    FILL_POSITIONS, /* i32: counting up to a, then again from 0 */
    FILL_FORWARD,   /* output a of the forward op: saved for its gradient */
} Fill;

typedef struct CaseInput {
    Fill fill;
    double a;
    MxShape shape;
} CaseInput;

typedef struct Case {
    const MxOp *op;
    const void *attr;
    CaseInput in[PROBE_INPUTS];
    const char *label;
    int n_in;
    bool only_f32;
    bool dtype_follows; /* the attributes start with the dtype under test */
} Case;

extern const Case cases[];
extern const int n_cases;

#endif
