/* merge.c — rows from elsewhere. */
#include "cases.h"

static void ref_merge(const Reference *r) {
    MxShape x = r->in_type[0].shape;
    int64_t n = r->in_type[1].shape.dim[1], width = x.dim[2];
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) {
        int64_t token = i / width, b = token / x.dim[1], at = (int64_t)r->in[2][token];
        r->out[0][i] = at ? r->in[1][(b * n + at - 1) * width + i % width] : r->in[0][i];
    }
}

static void ref_merge_grad(const Reference *r) {
    MxShape dy = r->in_type[1].shape;
    int64_t n = r->out_type[1].shape.dim[1], width = dy.dim[2];
    for (int64_t i = 0; i < element_count(r->out_type[1]); i++) r->out[1][i] = 0;
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) {
        int64_t token = i / width, b = token / dy.dim[1], at = (int64_t)r->in[0][token];
        r->out[0][i] = at ? 0 : r->in[1][i];
        if (at) r->out[1][(b * n + at - 1) * width + i % width] += r->in[1][i];
    }
}

// clang-format off
const OpTest test_merge = {
    CASES(
        {"rows", NULL, "x3,19,7 x3,5,7 i3,19:ids6", NULL, 0},
        {"large", NULL, "x5,101,137 x5,33,137 i5,101:ids34", NULL, 0},
        {NULL, NULL, "b2,5,4 b2,3,4 i2,5:ids4", "b2,5,4", 0},
        {NULL, NULL, "f8,16,8 f8,8,8 i8,16:ids9", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "i2,5,4 i2,3,4 i2,5", "input 0 must be float32 or bfloat16"},
        {NULL, "f2,5,4 b2,3,4 i2,5", "input 1 must be float32 of rank 3"},
        {NULL, "f2,5,4 f2,3,4 f2,5", "input 2 must be int32 of rank 2"},
        {NULL, "f2,5,4 f1,3,4 i2,5", "rows must be [B, R, D]"},
        {NULL, "f2,5,4 f2,3,5 i2,5", "rows must be [B, R, D]"},
        {NULL, "f2,5,4 f2,3,4 i2,4", "index must be [B, T]"}),
    .reference = ref_merge,
    .flows = 1 << 0 | 1 << 1,
};

const OpTest test_merge_grad = {
    CASES(
        {"rows", ATTR(MxMergeGradAttr, .n = 5), "i3,19:ids6 f3,19,7", NULL, 0},
        {NULL, ATTR(MxMergeGradAttr, .n = 3), "i2,5:ids4 b2,5,4", "b2,5,4 b2,3,4", 0},
        {NULL, ATTR(MxMergeGradAttr, .n = 8), "i8,16:ids9 f8,16,8", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxMergeGradAttr, .n = 3), "i5 f2,5,4", "input 0 must be int32 of rank 2"},
        {ATTR(MxMergeGradAttr, .n = 3), "i2,5 i2,5,4", "input 1 must be float32 or bfloat16"},
        {ATTR(MxMergeGradAttr, .n = 3), "i2,5 f2,4,4", "dy must be [B, T, D]"}),
    .reference = ref_merge_grad,
};
// clang-format on
