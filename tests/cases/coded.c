/* coded.c — operands rounded to few numbers, and their products. */
#include "cases.h"

#include <math.h>

/* Rows and columns of x, of which one kind has scales. */
typedef struct Sides {
    int64_t rows, columns;
} Sides;

static Sides sides_of(const MxEncodeAttr *attr, MxShape x) {
    int split = attr->leads ? attr->n_contract : x.rank - attr->n_contract;
    Sides s = {1, 1};
    for (int d = 0; d < x.rank; d++) *(d < split ? &s.rows : &s.columns) *= x.dim[d];
    return s;
}

/* In floats, as the definition has it: what lies between two codes is decided by its last bit. */
static double nearest(MxGrid grid, float x) {
    const MxGridRow *g = &mx_grids[grid];
    int exponent = x != 0 ? ilogbf(x) : g->exponent;
    double step = ldexp(1, (exponent > g->exponent ? exponent : g->exponent) - g->bits);
    double y = rint((double)x / step) * step;
    return fmin(fmax(y, (double)g->least), (double)g->most);
}

static float scaled(const Reference *r, const MxEncodeAttr *attr, Sides s, int64_t i) {
    float x = (float)r->in[0][i];
    if (r->n_in < 2) return x;
    return x * (float)r->in[1][attr->leads ? i / s.columns : i % s.columns];
}

/* Elements of a scale, and what is measured of them. */
static float magnitude_of(MxCalibration c, double most, double squares, int64_t n) {
    float measured = c.measure == MX_ABSMAX ? (float)most
                     : c.measure == MX_RMS  ? sqrtf((float)squares / (float)n)
                                            : 1;
    return measured * c.by;
}

static void ref_encode(const Reference *r) {
    const MxEncodeAttr *attr = r->attr;
    MxGrid grid = attr->coding.grid;
    Sides s = sides_of(attr, r->in_type[0].shape);
    int64_t n = s.rows * s.columns, n_scales = attr->leads ? s.columns : s.rows;
    double *scales = r->out[1], *squares = r->out[2];
    for (int64_t i = 0; i < n_scales; i++) scales[i] = squares[i] = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = attr->leads ? i % s.columns : i / s.columns;
        double x = (double)scaled(r, attr, s, i);
        scales[at] = fmax(scales[at], fabs(x));
        squares[at] += x * x;
    }
    for (int64_t i = 0; i < n_scales; i++) {
        float magnitude =
            magnitude_of(attr->coding.calibration, scales[i], squares[i], n / n_scales);
        float bound = mx_grids[grid].bound;
        bool is_given = attr->coding.calibration.measure == MX_FIXED;
        float scale = is_given ? magnitude / bound : magnitude * (1 / bound);
        scales[i] = scale < 1e-19f ? 1 : (double)scale;
        r->out[2][i] = (double)magnitude;
    }
    for (int64_t i = 0; i < n; i++) {
        float scale = (float)scales[attr->leads ? i % s.columns : i / s.columns];
        r->out[0][i] = nearest(grid, scaled(r, attr, s, i) * (1 / scale));
    }
}

static void ref_within(const Reference *r) {
    Sides s = sides_of(r->attr, r->in_type[1].shape);
    bool leads = ((const MxEncodeAttr *)r->attr)->leads;
    for (int64_t i = 0; i < s.rows * s.columns; i++) {
        double most = r->in[2][leads ? i % s.columns : i / s.columns];
        r->out[0][i] = fabs(r->in[1][i]) <= most ? r->in[0][i] : 0;
    }
}

static void ref_prune(const Reference *r) {
    MxShape shape = r->in_type[1].shape;
    int64_t width = shape.dim[shape.rank - 1];
    for (int64_t i = 0; i < mx_shape_count(shape); i++) {
        int64_t n_before = 0;
        for (int64_t j = i - i % width; j < i - i % width + width; j++) {
            double other = fabs(r->in[1][j]), own = fabs(r->in[1][i]);
            n_before += j < i ? other >= own : other > own;
        }
        r->out[0][i] = n_before < ((const MxPruneAttr *)r->attr)->n ? r->in[0][i] : 0;
    }
}

static void ref_coded_dot(const Reference *r) {
    const MxCodedDotAttr *attr = r->attr;
    MxDotSizes s = mx_dot_sizes(r->in_type[0].shape, r->in_type[1].shape, &attr->dot);
    bool trans_a = attr->dot.kind == MX_DOT_TN, trans_b = attr->dot.kind == MX_DOT_NT;
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < s.n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < s.k; k++)
                sum += r->in[0][trans_a ? k * s.m + i : i * s.k + k] *
                       r->in[1][trans_b ? j * s.k + k : k * s.n + j];
            if (attr->rows) sum *= r->in[2][i];
            if (attr->columns) sum *= r->in[2 + attr->rows][j];
            r->out[0][i * s.n + j] = sum;
        }
}

// clang-format off
#define CODES(g, n, ...) CALIBRATED(g, ABSMAX, 1, n, __VA_ARGS__)
#define CALIBRATED(g, m, f, n, ...) ATTR(MxEncodeAttr, .coding = {MX_GRID_##g, {MX_##m, f}}, .n_contract = n, __VA_ARGS__)
#define DIMS(n, ...) ATTR(MxEncodeAttr, .n_contract = n, __VA_ARGS__)
#define KEEP(k) ATTR(MxPruneAttr, .n = k)
#define DOT(k, c, ...) DOT_TO(E5M2, k, c, __VA_ARGS__)
#define WHOLE(k, c, ...) DOT_TO(INT8, k, c, __VA_ARGS__)
#define DOT_TO(g, k, c, ...) ATTR(MxCodedDotAttr, .dot = {.kind = MX_DOT_##k, .n_contract = c}, .to_x = {MX_GRID_##g, {MX_ABSMAX, 1}}, .to_w = {MX_GRID_##g, {MX_ABSMAX, 1}}, __VA_ARGS__)
#define BOTH .rows = true, .columns = true

/* Gradients: tests/train/test_quantized.c. */
const OpTest test_encode = {
    CASES(
        {"rows, int8", CODES(INT8, 1, .leads = false), "x17,41", NULL, CASE_NO_SLOPE},
        {"columns, int8", CODES(INT8, 1, .leads = true), "x41,17", NULL, CASE_NO_SLOPE},
        {"rows, e4m3", CODES(E4M3, 1, .leads = false), "x17,41", NULL, CASE_NO_SLOPE},
        {"columns, e5m2", CODES(E5M2, 1, .leads = true), "x41,17", NULL, CASE_NO_SLOPE},
        {"rows, int4", CODES(INT4, 1, .leads = false), "x17,41", NULL, CASE_NO_SLOPE},
        {"rows, e2m1", CODES(E2M1, 1, .leads = false), "x17,41", NULL, CASE_NO_SLOPE},
        {"rows with a factor", CODES(INT8, 1, .leads = false), "x17,41 f41:square", NULL, CASE_NO_SLOPE},
        {"columns with a factor", CODES(INT8, 1, .leads = true), "x41,17 f41:square", NULL, CASE_NO_SLOPE},
        {"groups of dims", CODES(INT8, 2, .leads = false), "f2,3,4,5 f4,5", "c2,3,4,5 f2,3 f2,3", CASE_NO_SLOPE},
        {"groups of dims first", CODES(INT8, 2, .leads = true), "f2,3,4,5 f2,3", "c2,3,4,5 f4,5 f4,5", CASE_NO_SLOPE},
        {"large rows", CODES(INT8, 1, .leads = false), "x37,3001", NULL, CASE_NO_SLOPE},
        {"large columns", CODES(E4M3, 1, .leads = true), "x37,3001", NULL, CASE_NO_SLOPE},
        {"rows, a share of the largest", CALIBRATED(INT8, ABSMAX, 0.7f, 1, .leads = false), "x17,41", NULL, CASE_NO_SLOPE},
        {"columns, a share of the largest", CALIBRATED(E4M3, ABSMAX, 0.7f, 1, .leads = true), "x41,17", NULL, CASE_NO_SLOPE},
        {"rows by their mean square", CALIBRATED(E4M3, RMS, 2, 1, .leads = false), "x17,41 f41:square", NULL, CASE_NO_SLOPE},
        {"columns by their mean square", CALIBRATED(INT8, RMS, 3, 1, .leads = true), "x41,17", NULL, CASE_NO_SLOPE},
        {"rows of a fixed range", CALIBRATED(INT4, FIXED, 1.5f, 1, .leads = false), "x17,41", NULL, CASE_NO_SLOPE},
        {"columns of a fixed range", CALIBRATED(E5M2, FIXED, 0.5f, 1, .leads = true), "x41,17 f41:square", NULL, CASE_NO_SLOPE},
        {"large rows by their mean square", CALIBRATED(E4M3, RMS, 2, 1, .leads = false), "x37,3001", NULL, CASE_NO_SLOPE},
        {"large columns by their mean square", CALIBRATED(E4M3, RMS, 2, 1, .leads = true), "x300,700", NULL, CASE_NO_SLOPE},
        {"zeros by their mean square", CALIBRATED(INT8, RMS, 2, 1, .leads = false), "f3,8:value0", NULL, CASE_NO_SLOPE},
        {"zeros", CODES(INT8, 1, .leads = false), "f3,8:value0", NULL, CASE_NO_SLOPE},
        {NULL, CODES(INT8, 1, .leads = false), "f8,16,32 f32", NULL, CASE_RANKS | CASE_JOINED | CASE_NO_SLOPE},
        {NULL, CODES(E4M3, 2, .leads = true), "f16,8,32 f16,8", NULL, CASE_RANKS | CASE_JOINED | CASE_NO_SLOPE},
        {NULL, CALIBRATED(E4M3, RMS, 2, 1, .leads = false), "f8,16,32", NULL, CASE_RANKS | CASE_JOINED | CASE_NO_SLOPE},
        {NULL, CALIBRATED(E4M3, FIXED, 2, 2, .leads = true), "f16,8,32", NULL, CASE_RANKS | CASE_NO_SLOPE}),
    WRONG(
        {CODES(INT8, 0, .leads = true), "f3,4", "cannot contract 0 dims"},
        {CODES(INT8, 3, .leads = true), "f3,4", "cannot contract 3 dims"},
        {CALIBRATED(INT8, FIXED, 0, 1, .leads = true), "f3,4", "calibration wants a number above 0, not 0"},
        {CODES(INT8, 1, .leads = true), "f3,4 f4", "factor must have the dims that are contracted"},
        {CODES(INT8, 1, .leads = true), "f3,4 b3", "input 1 must be float32"},
        {CODES(INT8, 1, .leads = true), "i3,4", "input 0 must be float32 or bfloat16"}),
    .reference = ref_encode,
    .flows = 1 << 0,
    .rounds = true,
};

const OpTest test_within = {
    CASES(
        {"rows", DIMS(1, .leads = false), "x17,41 x17,41 f17:square", NULL, 0},
        {"columns", DIMS(1, .leads = true), "x41,17 x41,17 f17:square", NULL, 0},
        {"groups of dims", DIMS(2, .leads = true), "f2,3,4,5 f2,3,4,5 f4,5:square", NULL, 0},
        {"large", DIMS(1, .leads = false), "x37,3001 x37,3001 f37:square", NULL, 0},
        {NULL, DIMS(1, .leads = false), "f8,16,32 f8,16,32 f8,16:square", NULL, CASE_RANKS},
        {NULL, DIMS(2, .leads = true), "f16,8,32 f16,8,32 f32:square", NULL, CASE_RANKS}),
    WRONG(
        {DIMS(1, .leads = false), "f3,4 f4,3 f3", "both arrays must have one shape"},
        {DIMS(0, .leads = false), "f3,4 f3,4 f3", "cannot contract 0 dims"},
        {DIMS(1, .leads = false), "f3,4 f3,4 f4", "magnitudes must be one for all that is contracted"},
        {DIMS(1, .leads = false), "f3,4 f3,4 b3", "input 2 must be float32"},
        {DIMS(1, .leads = false), "i3,4 f3,4 f3", "input 0 must be float32 or bfloat16"}),
    .reference = ref_within,
};

const OpTest test_prune = {
    CASES(
        {"of four", KEEP(2), "x6,5,4 x6,5,4", NULL, 0},
        {"of seven", KEEP(3), "x17,7 x17,7", NULL, 0},
        {"of equals", KEEP(3), "f5,8 f5,8:value2", NULL, 0},
        {"all", KEEP(4), "x5,4 x5,4", NULL, 0},
        {"a row", KEEP(5), "x12 x12", NULL, 0},
        {"of many", KEEP(300), "x3,1000 x3,1000", NULL, 0},
        {"many", KEEP(1), "x70,64,8 x70,64,8", NULL, 0},
        {NULL, KEEP(2), "f8,16,8 f8,16,8", NULL, CASE_RANKS}),
    WRONG(
        {KEEP(2), "f3,4 f4,3", "both arrays must have one shape"},
        {KEEP(0), "f3,4 f3,4", "cannot keep 0 of 4"},
        {KEEP(5), "f3,4 f3,4", "cannot keep 5 of 4"},
        {KEEP(1), "f f", "cannot keep 1 of 0"},
        {KEEP(1), "f2,1025 f2,1025", "cannot keep 1 of 1025"},
        {KEEP(2), "f3,4 i3,4", "input 1 must be float32 or bfloat16"}),
    .reference = ref_prune,
    .flows = 1 << 0,
};

const OpTest test_coded_dot = {
    CASES(
        {"nn", DOT(NN, 1, BOTH), "x17,23 x23,31 f17:square f31:square", NULL, CASE_FOLLOWS | CASE_NO_SLOPE},
        {"nn, groups of dims", DOT(NN, 2, BOTH), "x2,3,4,5 x4,5,7 f2,3 f7", NULL, CASE_FOLLOWS | CASE_NO_SLOPE},
        {"nn, several slabs", DOT(NN, 1, BOTH), "x8200,9 x9,600 f8200 f600", NULL, CASE_FOLLOWS | CASE_NO_SLOPE},
        {"nn, int8", WHOLE(NN, 1, BOTH), "c17,23 c23,31 f17:square f31:square", NULL, CASE_FOLLOWS | CASE_NO_SLOPE},
        {"nt, int8, groups of dims", WHOLE(NT, 2, .rows = true), "c3,7,4,5 c6,4,5 f3,7:square", NULL, CASE_FOLLOWS | CASE_NO_SLOPE | CASE_LAST},
        {"tn, int8", WHOLE(TN, 1, .columns = true), "c40,17 c40,33 f33:square", NULL, CASE_FOLLOWS | CASE_NO_SLOPE | CASE_LAST},
        {"nn, int8, a row", WHOLE(NN, 1, BOTH), "c1,300 c300,257 f1 f257", NULL, CASE_NO_SLOPE},
        {"nn, int8, several slabs", WHOLE(NN, 1, BOTH), "c8200,9 c9,600 f8200 f600", NULL, CASE_FOLLOWS | CASE_NO_SLOPE},
        {"nt, int8, several slabs", WHOLE(NT, 1, .rows = true), "c8200,9 c600,9 f8200", NULL, CASE_NO_SLOPE | CASE_LAST},
        {"nn, int8, the largest sums", WHOLE(NN, 1, BOTH), "c3,65536:value-128 c65536,5:value-128 f3 f5", NULL, CASE_NO_SLOPE},
        {"nn, int8, larger sums", WHOLE(NN, 1, BOTH), "c3,131073:value-128 c131073,5:value-128 f3 f5", NULL, CASE_NO_SLOPE},
        {"folded to f32", DOT(NN, 1, BOTH), "x17,23 x23,31 f17 f31", NULL, CASE_NO_SLOPE},
        {NULL, DOT(NN, 1, BOTH), "f2,3,4 f4,5,6 f2,3 f5,6", "f2,3,5,6", CASE_NO_SLOPE},
        {NULL, DOT(NN, 1, BOTH), "f8,8,16 f16,8,4 f8,8 f8,4", NULL, CASE_RANKS | CASE_NO_SLOPE},
        {NULL, WHOLE(NN, 1, BOTH), "c8,8,16 c16,8,4 f8,8 f8,4", NULL, CASE_RANKS | CASE_NO_SLOPE},
        {NULL, DOT(NN, 2, BOTH), "f8,8,16 f8,16,8 f8 f8", NULL, CASE_RANKS | CASE_NO_SLOPE}),
    WRONG(
        {DOT(NN, 1, BOTH), "f2,3 f4,5 f2 f5", "contracted dims differ"},
        {DOT(NN, 1, BOTH), "f2,3 f3,5 f2", "wants 4 inputs"},
        {DOT(NN, 1, BOTH), "f2,3 f3,5 f5 f2", "scales must be one for each row"},
        {DOT(NN, 1, BOTH), "f2,3 f3,5 f2 b5", "input 3 must be float32"},
        {DOT(NN, 1, BOTH), "c2,3 f3,5 f2 f5", "operands of two dtypes"},
        {DOT(NN, 1, BOTH), "i2,3 i3,4 f2 f4", "input 0 must be float32 or bfloat16"}),
    .reference = ref_coded_dot,
    .flows = 1 << 0 | 1 << 1,
    .rounds = true,
    .any_bits = true,
};
// clang-format on
