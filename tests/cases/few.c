/* few.c — terms of sums in few bits. */
#include "cases.h"

#include <math.h>

enum { BYTE = 256 };

/* Where element `at` of a part is in the array; -1 = the last part is too short. */
static int64_t place_of(MxShape shape, int n_parts, int dim, int64_t part, int64_t at) {
    int64_t each = mx_few_part(shape, n_parts), row = each;
    if (dim == MX_WHOLE) return part * each + at < mx_shape_count(shape) ? part * each + at : -1;
    row = shape.dim[dim] / n_parts;
    for (int d = dim + 1; d < shape.rank; d++) row *= shape.dim[d];
    return at / row * row * n_parts + part * row + at % row;
}

static void put(double *bytes, const void *value, int n) {
    const uint8_t *from = value;
    for (int i = 0; i < n; i++) bytes[i] = from[i];
}

static void get(const double *bytes, void *value, int n) {
    uint8_t *to = value;
    for (int i = 0; i < n; i++) to[i] = (uint8_t)bytes[i];
}

static float largest_of(const float *x, int64_t n) {
    float largest = 0;
    for (int64_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(x[i]));
    return largest;
}

/* One part's row from its n elements. */
static void ref_row(MxDtype wire, const float *x, int64_t n, double *row) {
    int64_t bytes = mx_few_bytes(wire, n), scales = (n + MX_FEW_BLOCK - 1) / MX_FEW_BLOCK;
    for (int64_t i = 0; i < bytes; i++) row[i] = 0;
    for (int64_t i = 0; wire == MX_BF16 && i < n; i++) {
        MxBf16 code = mx_f32_to_bf16(x[i]);
        put(row + i * (int64_t)sizeof code, &code, sizeof code);
    }
    for (int64_t b = 0; wire == MX_I8 && b < scales; b++) {
        int64_t at = b * MX_FEW_BLOCK, has = n - at < MX_FEW_BLOCK ? n - at : MX_FEW_BLOCK;
        float scale = largest_of(x + at, has) / 127, inverse = scale > 0 ? 1 / scale : 0;
        for (int64_t i = at; i < at + has; i++)
            row[i] = (uint8_t)(int8_t)(int)rintf(x[i] * inverse);
        put(row + bytes - (scales - b) * (int64_t)sizeof scale, &scale, sizeof scale);
    }
}

/* What a row says of element `at` of n. */
static double value_in(MxDtype wire, const double *row, int64_t n, int64_t at) {
    if (wire == MX_BF16) {
        MxBf16 code;
        get(row + at * (int64_t)sizeof code, &code, sizeof code);
        return (double)mx_bf16_to_f32(code);
    }
    int64_t scales = (n + MX_FEW_BLOCK - 1) / MX_FEW_BLOCK;
    float scale;
    get(row + mx_few_bytes(wire, n) - (scales - at / MX_FEW_BLOCK) * (int64_t)sizeof scale, &scale,
        sizeof scale);
    double code = row[at] < BYTE / 2 ? row[at] : row[at] - BYTE;
    return code * (double)scale;
}

static void ref_to_few(const Reference *r) {
    const MxToFewAttr *attr = r->attr;
    const MxShape shape = r->in_type[0].shape;
    int64_t n = mx_few_part(shape, attr->n_parts), bytes = r->out_type[0].shape.dim[1];
    MxArena arena = {.name = "part"};
    float *x = mx_new_n(&arena, float, n);
    for (int part = 0; part < attr->n_parts; part++) {
        double *row = r->out[0] + part * bytes;
        for (int64_t i = 0; i < n; i++) {
            int64_t at = place_of(shape, attr->n_parts, attr->dim, part, i);
            x[i] = at < 0 ? 0 : (float)r->in[0][at];
        }
        ref_row(attr->wire, x, n, row);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = place_of(shape, attr->n_parts, attr->dim, part, i);
            if (at >= 0) r->out[1][at] = (double)x[i] - value_in(attr->wire, row, n, i);
        }
    }
    mx_arena_release(&arena);
}

static void ref_from_few(const Reference *r) {
    const MxFromFewAttr *attr = r->attr;
    int64_t rows = r->in_type[0].shape.dim[0], bytes = r->in_type[0].shape.dim[1];
    int64_t n = mx_few_part(attr->shape, attr->sums ? 1 : (int)rows);
    for (int64_t i = 0; i < mx_shape_count(attr->shape); i++) {
        r->out[0][i] = 0;
        for (int64_t row = 0; row < rows; row++)
            if (attr->sums || row == i / n)
                r->out[0][i] += value_in(attr->wire, r->in[0] + row * bytes, n, i % n);
    }
}

static void ref_add_part(const Reference *r) {
    const MxAddPartAttr *attr = r->attr;
    const MxShape shape = r->in_type[0].shape;
    for (int64_t i = 0; i < mx_shape_count(shape); i++) r->out[0][i] = r->in[0][i];
    for (int64_t i = 0; i < mx_few_part(shape, attr->n_parts); i++) {
        int64_t at = place_of(shape, attr->n_parts, attr->dim, attr->index, i);
        if (at >= 0) r->out[0][at] += attr->factor * r->in[1][i];
    }
}

// clang-format off
const OpTest test_to_few = {
    CASES(
        {"int8, flat, a short last part", ATTR(MxToFewAttr, MX_I8, 3, MX_WHOLE), "f5,7,29", "u3,348 f5,7,29", 0},
        {"int8, parts of rows", ATTR(MxToFewAttr, MX_I8, 4, 1), "f3,8,131:normal0.001", "u4,804 f3,8,131", 0},
        {"int8, for threads", ATTR(MxToFewAttr, MX_I8, 2, 0), "f64,2051", "u2,66660 f64,2051", 0},
        {"int8, zeros", ATTR(MxToFewAttr, MX_I8, 2, 0), "f2,300:value0", "u2,308 f2,300", 0},
        {"bfloat16, flat, parts without elements", ATTR(MxToFewAttr, MX_BF16, 4, MX_WHOLE), "f5", "u4,4 f5", 0},
        {"bfloat16, parts of rows", ATTR(MxToFewAttr, MX_BF16, 2, 1), "f3,6,301", "u2,5420 f3,6,301", 0},
        {"a scalar", ATTR(MxToFewAttr, MX_I8, 2, MX_WHOLE), "f", "u2,8 f", 0}),
    WRONG(
        {ATTR(MxToFewAttr, MX_I8, 3, 1), "f3,8", "3 parts do not divide dim 1"},
        {ATTR(MxToFewAttr, MX_I8, 2, MX_WHOLE), "b4", "input 0 must be float32"}),
    .reference = ref_to_few,
};

const OpTest test_from_few = {
    CASES(
        {"bfloat16, sum", ATTR(MxFromFewAttr, MX_BF16, true, {2, {7, 301}}), "u3,4216:ids64", "f7,301", 0},
        {"bfloat16, joined, a short last part", ATTR(MxFromFewAttr, MX_BF16, false, {1, {1001}}), "u4,504:ids64", "f1001", 0},
        {"int8, sum", ATTR(MxFromFewAttr, MX_I8, true, {1, {300}}), "u3,308:ids64", "f300", 0},
        {"int8, joined", ATTR(MxFromFewAttr, MX_I8, false, {2, {3, 333}}), "u3,344:ids64", "f3,333", 0}),
    WRONG(
        {ATTR(MxFromFewAttr, MX_BF16, true, {1, {8}}), "u2,12", "rows of 12 bytes, not of 16"},
        {ATTR(MxFromFewAttr, MX_BF16, true, {1, {8}}), "f2,16", "input 0 must be uint8"}),
    .reference = ref_from_few,
};

const OpTest test_add_part = {
    CASES(
        {"flat, the last part", ATTR(MxAddPartAttr, 3, 2, MX_WHOLE, 1), "f5,7,29 f339", "f5,7,29", 0},
        {"of rows", ATTR(MxAddPartAttr, 4, 1, 1, 0.5), "f3,8,131 f3,2,131", "f3,8,131", 0},
        {"for threads", ATTR(MxAddPartAttr, 2, 0, 0, 1), "f64,2051 f32,2051", "f64,2051", 0}),
    WRONG(
        {ATTR(MxAddPartAttr, 3, 0, 1, 1), "f3,8 f8", "3 parts do not divide dim 1"},
        {ATTR(MxAddPartAttr, 2, 0, 1, 1), "f3,8 f8", "input 1 is not one of 2 parts of input 0"},
        {ATTR(MxAddPartAttr, 2, 0, 1, 1), "f3,8 b12", "input 1 must be float32"}),
    .reference = ref_add_part,
};
// clang-format on
