/* dot.c — matrix products. */
#include "cases.h"

#include <math.h>

static void ref_dot(const Reference *r) {
    const MxDotAttr *attr = r->attr;
    MxDotSizes s = mx_dot_sizes(r->in_type[0].shape, r->in_type[1].shape, attr);
    bool trans_a = attr->kind == MX_DOT_TN, trans_b = attr->kind == MX_DOT_NT;
    for (int64_t row = 0; row < s.batch * s.m; row++)
        for (int64_t j = 0; j < s.n; j++) {
            int64_t e = row / s.m, i = row % s.m;
            double sum = 0;
            for (int64_t k = 0; k < s.k; k++)
                sum += r->in[0][e * s.m * s.k + (trans_a ? k * s.m + i : i * s.k + k)] *
                       r->in[1][e * s.k * s.n + (trans_b ? j * s.k + k : k * s.n + j)];
            r->out[0][row * s.n + j] = sum;
        }
}

// clang-format off
const OpTest test_dot = {
    CASES(
        {"nn", ATTR(MxDotAttr, .n_contract = 1), "x17,23 x23,31", NULL, CASE_FOLLOWS},
        {"nt", ATTR(MxDotAttr, .kind = MX_DOT_NT, .n_contract = 1), "x17,23 x31,23", NULL, CASE_FOLLOWS},
        {"tn", ATTR(MxDotAttr, .kind = MX_DOT_TN, .n_contract = 1), "x23,17 x23,31", NULL, CASE_FOLLOWS},
        {"nn, groups of dims", ATTR(MxDotAttr, .n_contract = 2), "x2,3,4,5 x4,5,7", NULL, CASE_FOLLOWS},
        {"nt, groups of dims", ATTR(MxDotAttr, .kind = MX_DOT_NT, .n_contract = 2), "x2,3,4,5 x3,2,4,5", NULL, CASE_FOLLOWS},
        {"tn, groups of dims", ATTR(MxDotAttr, .kind = MX_DOT_TN, .n_contract = 2), "x4,5,7 x4,5,3,2", NULL, CASE_FOLLOWS},
        {"nn large", ATTR(MxDotAttr, .n_contract = 1), "x150,129 x129,203", NULL, CASE_FOLLOWS},
        {"tn large", ATTR(MxDotAttr, .kind = MX_DOT_TN, .n_contract = 1), "x301,65 x301,97", NULL, CASE_FOLLOWS},
        {"nn, batch", ATTR(MxDotAttr, .n_contract = 1, .n_batch = 1), "x3,17,23 x3,23,31", NULL, CASE_FOLLOWS},
        {"nt, batch", ATTR(MxDotAttr, .kind = MX_DOT_NT, .n_contract = 2, .n_batch = 1), "x3,7,4,5 x3,9,4,5", NULL, CASE_FOLLOWS},
        {"tn, batch", ATTR(MxDotAttr, .kind = MX_DOT_TN, .n_contract = 1, .n_batch = 2), "x2,3,17,5 x2,3,17,7", NULL, CASE_FOLLOWS},
        {"folded to f32", ATTR(MxDotAttr, .kind = MX_DOT_TN, .n_contract = 1), "x40,24 x40,33", NULL, 0},
        {NULL, ATTR(MxDotAttr, .dtype = MX_F32, .n_contract = 1), "f2,3,4 f4,5", "f2,3,5", 0},
        {NULL, ATTR(MxDotAttr, .dtype = MX_F32, .n_contract = 2), "b2,3,4 b3,4,5", "f2,5", 0},
        {NULL, ATTR(MxDotAttr, .dtype = MX_F32, .n_contract = 1), "f2,4 f4,5,6", "f2,5,6", 0},
        {NULL, ATTR(MxDotAttr, .dtype = MX_F32, .kind = MX_DOT_NT, .n_contract = 1), "f2,3,4 f5,4", "f2,3,5", 0},
        {NULL, ATTR(MxDotAttr, .dtype = MX_F32, .kind = MX_DOT_NT, .n_contract = 2), "f2,3,4 f5,3,4", "f2,5", 0},
        {NULL, ATTR(MxDotAttr, .dtype = MX_F32, .kind = MX_DOT_TN, .n_contract = 2), "f2,3,4 f2,3,5", "f4,5", 0},
        {NULL, ATTR(MxDotAttr, .dtype = MX_F32, .kind = MX_DOT_TN, .n_contract = 1), "f2,3,4 f2,5,6", "f3,4,5,6", 0},
        {NULL, ATTR(MxDotAttr, .dtype = MX_F32, .n_contract = 1), "f4 f4", "f", 0},
        {NULL, ATTR(MxDotAttr, .dtype = MX_F32), "f2 f3", "f2,3", 0},
        {NULL, ATTR(MxDotAttr, .n_contract = 1), "f8,8,16 f16,8,4", NULL, CASE_RANKS},
        {NULL, ATTR(MxDotAttr, .n_contract = 2), "f8,8,16 f8,16,8", NULL, CASE_RANKS},
        {NULL, ATTR(MxDotAttr, .kind = MX_DOT_NT, .n_contract = 1), "b8,8,16 b8,16", NULL, CASE_RANKS},
        {NULL, ATTR(MxDotAttr, .kind = MX_DOT_TN, .n_contract = 2), "f8,4,16 f8,4,8", NULL, CASE_RANKS},
        {NULL, ATTR(MxDotAttr, .n_contract = 1, .n_batch = 1), "f4,8,16 f4,16,8", NULL, CASE_RANKS},
        {NULL, ATTR(MxDotAttr, .kind = MX_DOT_NT, .n_contract = 1, .n_batch = 1), "f4,8,16 f4,8,16", NULL, CASE_RANKS},
        {NULL, ATTR(MxDotAttr, .kind = MX_DOT_TN, .n_contract = 1, .n_batch = 1), "f4,16,8 f4,16,8", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxDotAttr, .dtype = MX_F32, .n_contract = 1), "f2,3 f4,5", "contracted dims differ"},
        {ATTR(MxDotAttr, .dtype = MX_F32, .n_contract = 2), "f2,3,4 f3,5,6", "contracted dims differ"},
        {ATTR(MxDotAttr, .dtype = MX_F32, .kind = MX_DOT_NT, .n_contract = 1), "f2,3 f3,4", "contracted dims differ"},
        {ATTR(MxDotAttr, .dtype = MX_F32, .kind = MX_DOT_TN, .n_contract = 1), "f2,3 f3,4", "contracted dims differ"},
        {ATTR(MxDotAttr, .dtype = MX_F32, .n_contract = 1, .n_batch = 1), "f2,3,4 f3,4,5", "numbers of products differ"},
        {ATTR(MxDotAttr, .dtype = MX_F32, .n_contract = 1, .n_batch = 2), "f2,3 f2,3", "cannot contract 1 dims"},
        {ATTR(MxDotAttr, .dtype = MX_F32, .n_contract = 1), "f2,3 b3,4", "operands of two dtypes"},
        {ATTR(MxDotAttr, .dtype = MX_F32, .n_contract = -1), "f2,3 f3,4", "cannot contract -1 dims"},
        {ATTR(MxDotAttr, .dtype = MX_F32, .n_contract = 3), "f2,3 f3,4", "cannot contract 3 dims"},
        {ATTR(MxDotAttr, .dtype = MX_F32, .n_contract = 2), "f2,3 f3", "cannot contract 2 dims"},
        {ATTR(MxDotAttr, .dtype = MX_F32, .n_contract = 1), "f2,2,2,2,3 f3,2,2,2", "cannot contract 1 dims"},
        {ATTR(MxDotAttr, .dtype = MX_F32, .n_contract = 1), "i2,3 i3,4", "input 0 must be float32 or bfloat16"}),
    .reference = ref_dot,
    .flows = 1 << 0 | 1 << 1,
    .any_bits = true,
};
// clang-format on
