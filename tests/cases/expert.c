/* expert.c — products of rows with the matrices of the experts that they chose. */
#include "cases.h"

/* Row of choice c: its own, or its token's. */
static const double *row_of(const double *rows, MxShape shape, MxShape ids, int64_t c) {
    int64_t width = shape.dim[shape.rank - 1], choices = ids.dim[ids.rank - 1];
    return rows + (shape.rank == ids.rank ? c / choices : c) * width;
}

static void ref_expert_dot(const Reference *r) {
    const MxExpertDotAttr *a = r->attr;
    MxShape ids = r->in_type[1].shape, w = r->in_type[2].shape;
    int64_t D = w.dim[a->transposed ? 2 : 1], N = w.dim[a->transposed ? 1 : 2];
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) r->out[0][i] = 0;
    for (int64_t c = 0; c < mx_shape_count(ids); c++) {
        const double *x = row_of(r->in[0], r->in_type[0].shape, ids, c);
        int64_t e = (int64_t)r->in[1][c] - a->first;
        double *y = r->out[0] + (a->sums ? c / ids.dim[ids.rank - 1] : c) * N;
        if (e < 0 || e >= w.dim[0] || r->in[1][c] < 0) continue;
        for (int64_t j = 0; j < N; j++)
            for (int64_t k = 0; k < D; k++)
                y[j] += x[k] * r->in[2][(e * D * N) + (a->transposed ? j * D + k : k * N + j)];
    }
}

static void ref_expert_dw(const Reference *r) {
    const MxExpertDwAttr *a = r->attr;
    MxShape ids = r->in_type[1].shape, out = r->out_type[0].shape;
    int64_t D = out.dim[1], N = out.dim[2];
    for (int64_t i = 0; i < mx_shape_count(out); i++) r->out[0][i] = 0;
    for (int64_t c = 0; c < mx_shape_count(ids); c++) {
        const double *x = row_of(r->in[0], r->in_type[0].shape, ids, c);
        const double *y = row_of(r->in[2], r->in_type[2].shape, ids, c);
        int64_t e = (int64_t)r->in[1][c] - a->first;
        if (e < 0 || e >= out.dim[0] || r->in[1][c] < 0) continue;
        for (int64_t k = 0; k < D; k++)
            for (int64_t j = 0; j < N; j++) r->out[0][(e * D + k) * N + j] += x[k] * y[j];
    }
}

// clang-format off
#define EXPERT_DOT(n, ...) ATTR(MxExpertDotAttr, .n_experts = n, __VA_ARGS__)
#define EXPERT_DW(n, ...)  ATTR(MxExpertDwAttr, .n_experts = n, __VA_ARGS__)

const OpTest test_expert_dot = {
    CASES(
        {"a row a token", EXPERT_DOT(3, .first = 0), "x5,7 i5,2:ids3 x3,7,11", NULL, CASE_FOLLOWS},
        {"a row a choice", EXPERT_DOT(3, .first = 0), "x2,5,2,7 i2,5,2:ids3 x3,7,11", NULL, CASE_FOLLOWS},
        {NULL, EXPERT_DOT(3, .first = 0, .dtype = MX_BF16), "b301,72 i301,2:ids3 b3,72,136", NULL, CASE_NO_SLOPE},
        {NULL, EXPERT_DOT(3, .transposed = true, .dtype = MX_BF16), "b301,72 i301,2:none2 b3,136,72", NULL, CASE_NO_SLOPE},
        {NULL, EXPERT_DOT(3, .sums = true), "b301,2,40 i301,2:ids3 b3,40,264", NULL, CASE_NO_SLOPE},
        {NULL, EXPERT_DOT(6, .first = 2, .transposed = true, .sums = true, .dtype = MX_BF16), "b301,2,168 i301,2:ids6 b3,8,168", NULL, CASE_NO_SLOPE},
        {"transposed", EXPERT_DOT(4, .transposed = true), "x5,3,7 i5,3:ids4 x4,11,7", NULL, CASE_FOLLOWS},
        {"sums", EXPERT_DOT(4, .sums = true), "x5,3,7 i5,3:ids4 x4,7,11", NULL, CASE_FOLLOWS},
        {"transposed, sums, f32", EXPERT_DOT(4, .transposed = true, .sums = true), "x5,3,7 i5,3:ids4 x4,11,7", NULL, 0},
        {"sums of one row", EXPERT_DOT(4, .sums = true), "x5,7 i5,3:ids4 x4,7,11", NULL, CASE_FOLLOWS},
        {"all to one expert", EXPERT_DOT(3, .first = 0), "x19,7 i19,2:ids1 x3,7,11", NULL, CASE_FOLLOWS},
        {"large", EXPERT_DOT(5, .first = 0), "x2,301,65 i2,301,3:ids5 x5,65,97", NULL, CASE_FOLLOWS},
        {"large, sums", EXPERT_DOT(5, .transposed = true, .sums = true), "x2,301,3,65 i2,301,3:ids5 x5,97,65", NULL, CASE_FOLLOWS},
        {"more rows than a product", EXPERT_DOT(2, .first = 0), "x1501,9 i1501,1:ids2 x2,9,5", NULL, CASE_FOLLOWS},
        {"some of the experts", EXPERT_DOT(6, .first = 2), "x19,7 i19,2:ids6 x3,7,11", NULL, CASE_FOLLOWS},
        {"some of the experts, sums", EXPERT_DOT(6, .first = 2, .sums = true), "x19,2,7 i19,2:ids6 x3,7,11", NULL, CASE_FOLLOWS},
        {"no expert", EXPERT_DOT(3, .first = 0), "x5,7 i5,2:none2 x3,7,11", NULL, CASE_FOLLOWS},
        {NULL, EXPERT_DOT(3, .first = 0), "f2,5,7 i2,5,2 f3,7,11", "f2,5,2,11", 0},
        {NULL, EXPERT_DOT(3, .sums = true), "b2,5,2,7 i2,5,2 b3,7,11", "f2,5,11", 0},
        {NULL, EXPERT_DOT(8, .first = 0), "f8,4,16 i8,4,2:ids8 f8,16,8", NULL, CASE_RANKS},
        {NULL, EXPERT_DOT(8, .transposed = true, .sums = true), "f8,4,2,8 i8,4,2:ids8 f8,16,8", NULL, CASE_RANKS},
        {NULL, EXPERT_DOT(8, .dtype = MX_BF16), "b8,2,8 i8,2:ids8 b8,8,16", NULL, CASE_RANKS},
        {"rows in slots", EXPERT_DOT(3, .slots = true), "x5,3,4,7 i5,3,4:slots x3,7,11", NULL, CASE_FOLLOWS},
        {NULL, EXPERT_DOT(8, .slots = true), "f8,8,4,16 i8,8,4:slots f8,16,8", NULL, CASE_RANKS},
        {NULL, EXPERT_DOT(8, .slots = true, .transposed = true), "f4,8,4,8 i4,8,4:slots f8,16,8", NULL, CASE_RANKS}),
    WRONG(
        {EXPERT_DOT(3, .first = 0), "f5,7 i5,2 b3,7,11", "operands of two dtypes"},
        {EXPERT_DOT(3, .first = 0), "f5,7 i4,2 f3,7,11", "input 0 must have a row for each token or choice"},
        {EXPERT_DOT(3, .first = 0), "f7 i5,2 f3,7,11", "input 0 must have a row for each token or choice"},
        {EXPERT_DOT(3, .first = 0), "f5,7 i5,2 f3,11,7", "w must be a matrix an expert"},
        {EXPERT_DOT(3, .first = 0), "f5,7 i5,2 f7,11", "w must be a matrix an expert"},
        {EXPERT_DOT(3, .first = 0), "f5,7 f5,2 f3,7,11", "input 1 must be int32"},
        {EXPERT_DOT(3, .first = 0), "i5,7 i5,2 i3,7,11", "input 0 must be float32 or bfloat16"},
        {EXPERT_DOT(3, .first = 0), "f1,1,1,1,2,7 i1,1,1,1,2,3 f3,7,2", "too many dims"}),
    .reference = ref_expert_dot,
    .flows = 1 << 0 | 1 << 2,
    .any_bits = true,
};

const OpTest test_expert_dw = {
    CASES(
        {"rows of tokens", EXPERT_DW(3, .first = 0), "x5,7 i5,2:ids3 x5,2,11", NULL, CASE_FOLLOWS},
        {"rows of choices", EXPERT_DW(3, .first = 0), "x2,5,2,7 i2,5,2:ids3 x2,5,11", NULL, CASE_FOLLOWS},
        {"f32", EXPERT_DW(3, .first = 0), "x5,7 i5,2:ids3 x5,2,11", NULL, 0},
        {NULL, EXPERT_DW(3, .first = 0), "b301,136 i301,2:ids3 b301,2,72", NULL, CASE_NO_SLOPE},
        {NULL, EXPERT_DW(3, .first = 0, .dtype = MX_BF16), "b301,136 i301,2:ids2 b301,72", NULL, CASE_NO_SLOPE},
        {"experts without rows", EXPERT_DW(9, .first = 0), "x5,7 i5,2:ids2 x5,2,11", NULL, CASE_FOLLOWS},
        {"large", EXPERT_DW(5, .first = 0), "x2,301,65 i2,301,3:ids5 x2,301,3,97", NULL, CASE_FOLLOWS},
        {"more rows than a product", EXPERT_DW(2, .first = 0), "x1501,9 i1501,1:ids2 x1501,1,5", NULL, CASE_FOLLOWS},
        {"some of the experts", EXPERT_DW(3, .first = 2), "x19,7 i19,2:ids6 x19,2,11", NULL, CASE_FOLLOWS},
        {NULL, EXPERT_DW(3, .first = 0), "f5,7 i5,2 f5,2,11", "f3,7,11", 0},
        {NULL, EXPERT_DW(8, .first = 0), "f8,4,16 i8,4,2:ids8 f8,4,2,8", NULL, CASE_RANKS},
        {NULL, EXPERT_DW(8, .first = 0), "b8,2,8 i8,2:ids8 b8,16", NULL, CASE_RANKS},
        {"rows in slots", EXPERT_DW(3, .slots = true), "x5,3,4,7 i5,3,4:slots x5,3,4,11", NULL, CASE_FOLLOWS},
        {NULL, EXPERT_DW(8, .slots = true), "f8,8,4,16 i8,8,4:slots f8,8,4,8", NULL, CASE_RANKS}),
    WRONG(
        {EXPERT_DW(3, .first = 0), "f5,7 i5,2 b5,2,11", "operands of two dtypes"},
        {EXPERT_DW(3, .first = 0), "f5,7 i5,2 f5,3,11", "input 2 must have a row for each token or choice"},
        {EXPERT_DW(3, .first = 0), "f4,7 i5,2 f5,2,11", "input 0 must have a row for each token or choice"}),
    .reference = ref_expert_dw,
    .any_bits = true,
};
// clang-format on
