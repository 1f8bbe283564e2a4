/* shape.c — variables, and arrays under other shapes. */
#include "cases.h"

#include <math.h>

static void ref_shift(const Reference *r) {
    int64_t T = r->in_type[0].shape.dim[1], offset = ((const MxShiftAttr *)r->attr)->offset;
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++) {
        const double *segment = r->in[1] + i + offset;
        bool ends = i % T + offset >= T - 1 || segment[0] == 0 || segment[0] != segment[1];
        r->out[0][i] = ends ? 0 : r->in[0][i + 1];
    }
}

/* How many rows of one half share a row of the other. */
static int64_t shared_by(const MxType half[2]) {
    int last = half[0].shape.rank - 1;
    return last > 0 ? half[0].shape.dim[last - 1] / half[1].shape.dim[last - 1] : 1;
}

static void ref_concat(const Reference *r) {
    MxShape shape = r->out_type[0].shape;
    int64_t width = shape.dim[shape.rank - 1], first = r->in_type[0].shape.dim[shape.rank - 1];
    int64_t shared = shared_by(r->in_type);
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) {
        int64_t row = i / width, at = i % width;
        r->out[0][i] = at < first ? r->in[0][row * first + at]
                                  : r->in[1][row / shared * (width - first) + at - first];
    }
}

static void ref_split(const Reference *r) {
    MxShape shape = r->in_type[0].shape;
    int64_t width = shape.dim[shape.rank - 1], first = r->out_type[0].shape.dim[shape.rank - 1];
    int64_t shared = shared_by(r->out_type);
    for (int64_t i = 0; i < element_count(r->out_type[1]); i++) r->out[1][i] = 0;
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++) {
        int64_t row = i / width, at = i % width;
        if (at < first)
            r->out[0][row * first + at] = r->in[0][i];
        else
            r->out[1][row / shared * (width - first) + at - first] += r->in[0][i];
    }
}

static void ref_first_bits(const Reference *r) {
    int64_t n = ((const MxFirstBitsAttr *)r->attr)->n, words = r->out_type[0].shape.dim[2];
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) {
        uint32_t word = 0;
        for (int64_t s = i % words * 32; s < n && s < (i % words + 1) * 32; s++)
            if ((double)s <= r->in[0][i / words]) word |= 1u << s % 32;
        r->out[0][i] = (double)(int32_t)word;
    }
}

static void ref_every(const Reference *r) {
    int64_t n = ((const MxEveryAttr *)r->attr)->n, width = r->out_type[0].shape.dim[1];
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++)
        r->out[0][i] = r->in[0][i / width * r->in_type[0].shape.dim[1] + i % width * n];
}

// clang-format off
const OpTest test_variable = {
    CASES(
        {NULL, ATTR(MxVariableAttr, .type = {MX_I32, {.rank = 2, .dim = {2, 3}}}), "", "i2,3", CASE_TYPES}),
};

const OpTest test_detach = {
    CASES(
        {NULL, NULL, "b2,3", "b2,3", 0},
        {NULL, NULL, "f8,16", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "i2,3", "input 0 must be float32 or bfloat16"}),
};

const OpTest test_reshape = {
    CASES(
        {NULL, ATTR(MxReshapeAttr, .shape = {.rank = 1, .dim = {6}}), "b2,3", "b6", 0},
        {NULL, ATTR(MxReshapeAttr, .shape = {.rank = 2, .dim = {1, 1}}), "i", "i1,1", 0},
        {NULL, ATTR(MxReshapeAttr, .shape = {.rank = 0}), "f1,1", "f", 0},
        {NULL, ATTR(MxReshapeAttr, {2, {32, 4}}), "f8,4,4", NULL, CASE_RANKS},
        {NULL, ATTR(MxReshapeAttr, {3, {8, 8, 2}}), "f8,16", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxReshapeAttr, .shape = {.rank = 2, .dim = {2, 4}}), "f2,3", "another number of elements"},
        {ATTR(MxReshapeAttr, .shape = {.rank = 0}), "f2", "another number of elements"}),
    .flows = 1 << 0,
};

const OpTest test_shift = {
    CASES(
        {"segments", ATTR(MxShiftAttr, 0), "i3,41:ids97 i3,41:segments7", NULL, 0},
        {"again, large", ATTR(MxShiftAttr, 2), "i70,1501:ids97 i70,1501:segments99", NULL, 0},
        {NULL, ATTR(MxShiftAttr, 1), "i2,3 i2,3", "i2,3", 0},
        {NULL, ATTR(MxShiftAttr, 1), "i8,16:ids97 i8,16:segments7", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxShiftAttr, 1), "f2,3 i2,3", "input 0 must be int32 of rank 2"},
        {ATTR(MxShiftAttr, 1), "i3 i3", "input 0 must be int32 of rank 2"},
        {ATTR(MxShiftAttr, 1), "i2,3 i2,4", "inputs 0 and 1 must have one type"}),
    .reference = ref_shift,
};

const OpTest test_concat = {
    CASES(
        {"rows", NULL, "x3,5,7 x3,5,4", NULL, 0},
        {"large", NULL, "x211,113 x211,113", NULL, 0},
        {NULL, NULL, "f2,3 f2,4", "f2,7", 0},
        {NULL, NULL, "b2,5,3 b2,5,3", "b2,5,6", 0},
        {NULL, NULL, "b3 b1", "b4", 0},
        {"shared", NULL, "x3,5,7,4 x3,5,1,70", NULL, 0},
        {"shared", NULL, "f8,4,8 f8,1,16", "f8,4,24", CASE_RANKS},
        {NULL, NULL, "f8,4,8 f8,4,16", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "f2,3 b2,3", "y must be of x's dtype and dims but the last"},
        {NULL, "f2,3 f3,3", "y must be of x's dtype and dims but the last"},
        {NULL, "f2,5,3 f1,5,4", "y must be of x's dtype and dims but the last"},
        {NULL, "f2,3 f3", "y must be of x's dtype and dims but the last"},
        {NULL, "f f", "y must be of x's dtype and dims but the last"},
        {NULL, "i2 i2", "input 0 must be float32 or bfloat16"}),
    .reference = ref_concat,
    .flows = 1 << 0 | 1 << 1,
};

const OpTest test_every = {
    CASES(
        {"third", ATTR(MxEveryAttr, 3), "i4,11:ids90", NULL, 0},
        {"of ranks", ATTR(MxEveryAttr, 2), "i8,16:ids90", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxEveryAttr, 3), "f4,11", "input 0 must be int32"},
        {ATTR(MxEveryAttr, 12), "i4,11", "every 12th of 11"}),
    .reference = ref_every,
};

const OpTest test_first_bits = {
    CASES(
        {"few", ATTR(MxFirstBitsAttr, 5), "i4,11:ids9", NULL, 0},
        {"many", ATTR(MxFirstBitsAttr, 70), "i4,11:ids99", NULL, 0},
        {"of none", ATTR(MxFirstBitsAttr, 64), "i4,11:none90", NULL, 0},
        {"of ranks", ATTR(MxFirstBitsAttr, 40), "i8,16:ids90", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxFirstBitsAttr, 3), "f4,11", "input 0 must be int32"},
        {ATTR(MxFirstBitsAttr, 0), "i4,11", "at least one bit"}),
    .reference = ref_first_bits,
};

const OpTest test_split = {
    CASES(
        {"rows", ATTR(MxSplitAttr, .width = 7), "x3,5,11", NULL, 0},
        {"large", ATTR(MxSplitAttr, .width = 113), "x211,226", NULL, 0},
        {NULL, ATTR(MxSplitAttr, .width = 3), "f2,7", "f2,3 f2,4", 0},
        {NULL, ATTR(MxSplitAttr, .width = 3), "b3", "b3 b0", 0},
        {"shared", ATTR(MxSplitAttr, .width = 4, .is_shared = true), "x3,5,7,74", NULL, 0},
        {"shared, large", ATTR(MxSplitAttr, .width = 40, .is_shared = true), "x3,91,9,73", NULL, 0},
        {"shared", ATTR(MxSplitAttr, .width = 8, .is_shared = true), "f8,4,24", "f8,4,8 f8,1,16", CASE_RANKS},
        {NULL, ATTR(MxSplitAttr, .width = 8), "f8,4,24", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxSplitAttr, .width = 3), "f3,2", "x has no last dim of 3 and more"},
        {ATTR(MxSplitAttr, .width = 3, .is_shared = true), "f7", "x has no dim before the last"},
        {ATTR(MxSplitAttr, .width = 3), "f", "x has no last dim of 3 and more"},
        {ATTR(MxSplitAttr, .width = 3), "i7", "input 0 must be float32 or bfloat16"}),
    .reference = ref_split,
    .flows = 1 << 0,
};
// clang-format on
