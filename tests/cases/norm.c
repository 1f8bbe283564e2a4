/* norm.c — normalisation. */
#include "cases.h"

#include <math.h>

static void ref_center(const Reference *r) {
    int64_t width = r->in_type[0].shape.dim[r->in_type[0].shape.rank - 1];
    for (int64_t row = 0; row < element_count(r->in_type[0]) / width; row++) {
        const double *x = r->in[0] + row * width;
        double sum = 0;
        for (int64_t i = 0; i < width; i++) sum += x[i];
        for (int64_t i = 0; i < width; i++) r->out[0][row * width + i] = x[i] - sum / (double)width;
    }
}

static void ref_rmsnorm(const Reference *r) {
    int64_t width = r->in_type[0].shape.dim[r->in_type[0].shape.rank - 1];
    int64_t scales = element_count(r->in_type[1]) / width;
    double eps = ((const MxRmsnormAttr *)r->attr)->eps;
    for (int64_t row = 0; row < element_count(r->out_type[1]); row++) {
        const double *x = r->in[0] + row * width;
        double squares = 0;
        for (int64_t i = 0; i < width; i++) squares += x[i] * x[i];
        double rstd = 1 / sqrt(squares / (double)width + eps);
        r->out[1][row] = rstd;
        const double *scale = r->in[1] + row % scales * width;
        for (int64_t i = 0; i < width; i++) r->out[0][row * width + i] = x[i] * rstd * scale[i];
    }
}

// clang-format off
const OpTest test_center = {
    CASES(
        {"one row", NULL, "x37:normal3", NULL, 0},
        {"large", NULL, "x3,170,131:normal3", NULL, 0},
        {NULL, NULL, "b2,3,4", "b2,3,4", 0},
        {NULL, NULL, "f8,4,16", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "f", "x must have a last dim"},
        {NULL, "i2,3", "input 0 must be float32 or bfloat16"}),
    .reference = ref_center,
    .flows = 1 << 0,
};

const OpTest test_rmsnorm = {
    CASES(
        {"one row", ATTR(MxRmsnormAttr, 1e-5), "x37:normal3 f37", NULL, 0},
        {"rows", ATTR(MxRmsnormAttr, 1e-5), "x2,7,65:normal3 f65", NULL, 0},
        {"large", ATTR(MxRmsnormAttr, 1e-5), "x3,170,131:normal3 f131", NULL, 0},
        {"three scales", ATTR(MxRmsnormAttr, 1e-5), "x2,7,3,65:normal3 f3,65", NULL, 0},
        {NULL, ATTR(MxRmsnormAttr, 1e-5), "x3,57,64:normal3 f64", NULL, CASE_NO_SLOPE},
        {NULL, ATTR(MxRmsnormAttr, 1e-5), "x3,57,104:normal3 f104", NULL, CASE_NO_SLOPE},
        {NULL, ATTR(MxRmsnormAttr, 1e-5), "x37,256:normal3 f256", NULL, CASE_NO_SLOPE},
        {NULL, ATTR(MxRmsnormAttr, 1e-5), "x2,17,3,504:normal3 f3,504", NULL, CASE_NO_SLOPE},
        {NULL, ATTR(MxRmsnormAttr, 1e-5), "x17,1016:normal3 f1016", NULL, CASE_NO_SLOPE},
        {NULL, ATTR(MxRmsnormAttr, 1e-5), "x17,2048:normal3 f2048", NULL, CASE_NO_SLOPE},
        {"many rows of five scales", ATTR(MxRmsnormAttr, 1e-5), "x3,170,5,33:normal3 f5,33", NULL, 0},
        {NULL, ATTR(MxRmsnormAttr, .eps = 1e-5), "b2,3,4 f4", "b2,3,4 f2,3", 0},
        {NULL, ATTR(MxRmsnormAttr, .eps = 1e-5), "f4 f4", "f4 f", 0},
        {NULL, ATTR(MxRmsnormAttr, 1e-5), "f8,4,16 f16", NULL, CASE_RANKS},
        {"four scales", ATTR(MxRmsnormAttr, 1e-5), "f8,4,16 f4,16", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxRmsnormAttr, .eps = 1e-5), "f2,3 f2", "scale must have the last dim of x"},
        {ATTR(MxRmsnormAttr, .eps = 1e-5), "f f1", "scale must have the last dim of x"},
        {ATTR(MxRmsnormAttr, .eps = 1e-5), "f2,3 b3", "input 1 must be float32"},
        {ATTR(MxRmsnormAttr, .eps = 1e-5), "f2,3 f1,3", "scale must have the last dim of x, or the last two"},
        {ATTR(MxRmsnormAttr, .eps = 1e-5), "i2,3 f3", "input 0 must be float32 or bfloat16"}),
    .reference = ref_rmsnorm,
    .flows = 1 << 0 | 1 << 1,
};

const OpTest test_rmsnorm_grad = {
    WRONG(
        {NULL, "b2,4 f4 f2 f2,4", "inputs 0 and 3 must have one type"},
        {NULL, "b2,4 f3 f2 b2,4", "scale must have the last dim of x"},
        {NULL, "f2,4 f4 f3 f2,4", "rstd must"},
        {NULL, "f2,4 f4 b2 f2,4", "rstd must"}),
    .forward = &op_rmsnorm,
    .saved = 1 << 1,
    .wrt = {0, 1},
};
// clang-format on
