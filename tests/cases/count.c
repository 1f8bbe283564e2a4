/* count.c — counting. */
#include "cases.h"

#include <math.h>

static int largest(const double *ids, int64_t n) {
    double most = 1;
    for (int64_t i = 0; i < n; i++) most = fmax(most, ids[i]);
    return (int)most;
}

static void ref_count_segments(const Reference *r) {
    int64_t rows = r->in_type[0].shape.dim[0], T = r->in_type[0].shape.dim[1];
    r->out[0][0] = 0;
    for (int64_t row = 0; row < rows; row++) r->out[0][0] += largest(r->in[0] + row * T, T);
}

static void ref_count_nonzero(const Reference *r) {
    const MxCountAttr *a = r->attr;
    r->out[0][0] = 0;
    for (int64_t i = 0; i < element_count(r->in_type[0]) / a->parts; i++)
        r->out[0][0] += r->in[0][i] != 0;
}

static void ref_count_equal(const Reference *r) {
    r->out[0][0] = 0;
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++)
        r->out[0][0] += r->in[0][i] == r->in[1][i] && r->in[2][i] != 0;
}

// clang-format off
const OpTest test_count_nonzero = {
    CASES(
        {"flags", ATTR(MxCountAttr, .parts = 1), "i13,77:flags0.4", NULL, 0},
        {"first of two parts", ATTR(MxCountAttr, .parts = 2), "i14,77:flags0.4", NULL, 0},
        {NULL, ATTR(MxCountAttr, .parts = 1), "i2,3", "f", 0},
        {NULL, ATTR(MxCountAttr, .parts = 1), "i", "f", 0},
        {NULL, ATTR(MxCountAttr, .parts = 1), "i8,16:flags0.4", NULL, CASE_RANKS},
        {NULL, ATTR(MxCountAttr, .parts = 4), "i8,16:flags0.4", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxCountAttr, .parts = 1), "f2,3", "input 0 must be int32"},
        {ATTR(MxCountAttr, .parts = 2), "i3,3", "2 parts of the first dim are not of equal size"},
        {ATTR(MxCountAttr, .parts = 2), "i", "2 parts of the first dim are not of equal size"}),
    .reference = ref_count_nonzero,
};

const OpTest test_count_segments = {
    CASES(
        {"flags, none", NULL, "i77,3:flags0.8", NULL, 0},
        {NULL, NULL, "i2,3", "f", 0},
        {NULL, NULL, "i8,16:flags0.8", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "i6", "input 0 must be int32 of rank 2"}),
    .reference = ref_count_segments,
};

const OpTest test_count_equal = {
    CASES(
        {"ids", NULL, "i13,77:ids3 i13,77:ids3 i13,77:flags0.4", NULL, 0},
        {NULL, NULL, "i2,3 i2,3 i2,3", "f", 0},
        {NULL, NULL, "i i i", "f", 0},
        {NULL, NULL, "i8,16:ids3 i8,16:ids3 i8,16:flags0.4", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "f2 f2 i2", "input 0 must be int32"},
        {NULL, "i2 i3 i2", "inputs 0 and 1 must have one type"},
        {NULL, "i2 i2 f2", "inputs 0 and 2 must have one type"}),
    .reference = ref_count_equal,
};
// clang-format on
