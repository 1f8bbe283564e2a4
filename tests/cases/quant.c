/* quant.c — weights in few bits. */
#include "cases.h"

#include <math.h>

/* An array's elements by row and column; codes and scales of them. */
typedef struct Bits {
    MxQuant quant;
    int64_t rows, width;
    const double *codes, *scales;
} Bits;

static Bits bits_of(MxQuant quant, MxShape shape, const double *codes, const double *scales) {
    Bits b = {quant, 1, 1, codes, scales};
    for (int d = 0; d < shape.rank; d++) *(d <= quant.dim ? &b.rows : &b.width) *= shape.dim[d];
    return b;
}

static double value_at(const Bits *b, int64_t row, int64_t column) {
    int64_t at = row * b->width + column;
    double scale = b->scales[row / b->quant.tile * b->width + column];
    const float *values = mx_qtypes[b->quant.type].values;
    if (mx_qtypes[b->quant.type].bits == 8) return (double)values[(int)b->codes[at]] * scale;
    int pair = (int)b->codes[at / 2];
    return (double)values[at % 2 ? pair / 16 : pair % 16] * scale;
}

static void ref_dequantize(const Reference *r) {
    const MxQuantAttr *attr = r->attr;
    Bits b = bits_of(attr->quant, r->out_type[0].shape, r->in[0], r->in[1]);
    for (int64_t row = 0; row < b.rows; row++)
        for (int64_t c = 0; c < b.width; c++) r->out[0][row * b.width + c] = value_at(&b, row, c);
}

/* Of the width in which a magnitude lies: widths of decade i, the first is the least, are 2^i. */
static int code_of_decades(double x, int n) {
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 1 << i; k++) {
            double low = pow(10, i + 1 - n) * (0.1 + 0.9 * k / (1 << i));
            double high = pow(10, i + 1 - n) * (0.1 + 0.9 * (k + 1) / (1 << i));
            bool is_last = i == n - 1 && k == (1 << i) - 1;
            if (x >= low && (x < high || is_last)) return (1 << i) + k;
        }
    return 0;
}

/* In floats, as the definition has it: what lies between two codes is decided by its last bit. */
static int code_of(MxQtype type, float x) {
    const MxQtypeRow *row = &mx_qtypes[type];
    int best = 0;
    if (mx_grids[row->grid].is_whole) {
        float most = row->bound - 0.5f, y = rintf(x);
        y = y > most ? most : y < -most - 1 ? -most - 1 : y;
        return (int)y & ((1 << row->bits) - 1);
    }
    if (row->by_f16) {
        int exponent;
        double fraction = frexp((double)x, &exponent);
        x = (float)ldexp(rint(ldexp(fraction, 11)), exponent - 11);
    }
    if (row->grid) {
        int sign = 1 << (row->bits - 1);
        for (int k = 1; k < sign && row->values[k] <= row->bound; k++) { /* of two the even one */
            float was = fabsf(row->values[best] - fabsf(x)), is = fabsf(row->values[k] - fabsf(x));
            if (is < was || (is == was && k % 2 == 0)) best = k;
        }
        return x < 0 ? best | sign : best;
    }
    if (type == MX_SQUARES) return code_of_decades(x > 0 ? sqrt((double)x) : 0, 8);
    if (type == MX_DYNAMIC) {
        int code = code_of_decades(fabs((double)x), 7);
        return code && x < 0 ? code | 128 : code;
    }
    for (int k = 1; k < MX_HALF_BYTE_CODES; k++)
        if (fabsf(mx_nf4_values[k] - x) < fabsf(mx_nf4_values[best] - x)) best = k;
    return best;
}

static float scale_of(const MxQtypeRow *row, float most) {
    float scale = most * (1 / row->bound), best = 0;
    if (scale < 1e-19f) scale = 1;
    if (row->scale == MX_SCALE_POWER) return (float)exp2(ceil(log2((double)scale)));
    if (row->scale == MX_SCALE_FLOAT) return scale;
    for (int k = 1; k < 127; k++) {
        float was = fabsf(best - scale), is = fabsf(mx_e4m3_values[k] - scale);
        if (is < was || (is == was && k % 2 == 0)) best = mx_e4m3_values[k];
    }
    return best;
}

static void ref_quantize(const Reference *r) {
    MxQuant quant = ((const MxQuantAttr *)r->attr)->quant;
    Bits b = bits_of(quant, r->in_type[0].shape, NULL, NULL);
    int a_byte = mx_qtype_a_byte(quant.type);
    for (int64_t i = 0; i < b.rows * b.width / a_byte; i++) r->out[0][i] = 0;
    for (int64_t row = 0; row < b.rows; row++)
        for (int64_t c = 0; c < b.width; c++) {
            float most = 0;
            for (int64_t k = 0; k < quant.tile; k++) {
                int64_t from = row / quant.tile * quant.tile + k;
                most = fmaxf(most, fabsf((float)r->in[0][from * b.width + c]));
            }
            float scale = scale_of(&mx_qtypes[quant.type], most);
            int64_t at = row * b.width + c;
            int code = scale > 0 ? code_of(quant.type, (float)r->in[0][at] * (1 / scale)) : 0;
            r->out[1][row / quant.tile * b.width + c] = (double)scale;
            r->out[0][at / a_byte] += at % a_byte ? 16 * code : code;
        }
}

static void ref_quant_dot(const Reference *r) {
    const MxQuantDotAttr *attr = r->attr;
    MxShape w = mx_quant_shape(attr->quant, r->in_type[1].shape);
    MxDotSizes s = mx_dot_sizes(r->in_type[0].shape, w, &attr->dot);
    Bits b = bits_of(attr->quant, w, r->in[1], r->in[2]);
    bool is_bf16 = r->in_type[0].dtype == MX_BF16, is_turned = attr->dot.kind == MX_DOT_NT;
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < s.n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < s.k; k++) {
                double y = is_turned ? value_at(&b, j, k) : value_at(&b, k, j);
                if (is_bf16) y = (double)mx_bf16_to_f32(mx_f32_to_bf16((float)y));
                sum += r->in[0][i * s.k + k] * y;
            }
            r->out[0][i * s.n + j] = sum;
        }
}

// clang-format off
#define NF4(d, t)  {.type = MX_NF4, .dim = d, .tile = t}
#define INT8(d, t) {.type = MX_INT8, .dim = d, .tile = t}
#define BYTE(t_, d, t) {.type = MX_##t_, .dim = d, .tile = t}
#define QUANT(...) ATTR(MxQuantAttr, .quant = __VA_ARGS__)
#define DOT(k, c, ...) ATTR(MxQuantDotAttr, .dot = {.kind = MX_DOT_##k, .n_contract = c}, .quant = __VA_ARGS__)

const OpTest test_quantize = {
    CASES(
        {"nf4", QUANT(NF4(0, 8)), "f24,6", "u24,3 f3,6", 0},
        {"int8", QUANT(INT8(0, 8)), "f24,7", "u24,7 f3,7", 0},
        {"nf4, groups of dims", QUANT(NF4(1, 4)), "f3,8,2,6", "u3,8,2,3 f3,2,2,6", 0},
        {"nf4, large", QUANT(NF4(0, 64)), "f192,518", NULL, 0},
        {"int8, large", QUANT(INT8(0, 64)), "f192,518", NULL, 0},
        {"dynamic", QUANT(BYTE(DYNAMIC, 0, 8)), "f24,7", "u24,7 f3,7", 0},
        {"squares", QUANT(BYTE(SQUARES, 1, 8)), "f3,24,7:square0.5", "u3,24,7 f3,3,7", 0},
        {"dynamic, large", QUANT(BYTE(DYNAMIC, 0, 64)), "f192,519", NULL, 0},
        {"zeros", QUANT(NF4(0, 4)), "f8,2:value0", NULL, 0},
        {"int4", QUANT(BYTE(INT4, 0, 8)), "f24,6", "u24,3 f3,6", 0},
        {"e4m3", QUANT(BYTE(E4M3, 0, 8)), "f24,7", "u24,7 f3,7", 0},
        {"e5m2", QUANT(BYTE(E5M2, 1, 8)), "f3,24,7", "u3,24,7 f3,3,7", 0},
        {"mxfp8", QUANT(BYTE(MXFP8, 0, 32)), "f64,7", "u64,7 f2,7", 0},
        {"mxfp4", QUANT(BYTE(MXFP4, 0, 32)), "f64,6", "u64,3 f2,6", 0},
        {"nvfp4", QUANT(BYTE(NVFP4, 0, 16)), "f64,6", "u64,3 f4,6", 0},
        {"e4m3, large", QUANT(BYTE(E4M3, 0, 64)), "f192,519", NULL, 0},
        {"nvfp4, large", QUANT(BYTE(NVFP4, 0, 16)), "f192,518", NULL, 0},
        {NULL, QUANT(BYTE(SQUARES, 0, 4)), "f64,32:square0.5", NULL, CASE_RANKS},
        {NULL, QUANT(NF4(0, 4)), "f64,32", NULL, CASE_RANKS},
        {NULL, QUANT(INT8(1, 2)), "f8,16,16", NULL, CASE_RANKS}),
    WRONG(
        {QUANT(NF4(0, 8)), "f12,4", "blocks of 8 do not divide dim 0 = 12"},
        {QUANT(NF4(0, 4)), "f12,5", "nf4 wants an even dim 1, found 5"},
        {QUANT(NF4(0, 0)), "f12,4", "blocks of 0 do not divide"},
        {QUANT(BYTE(MXFP4, 0, 16)), "f32,4", "mxfp4 has blocks of 32, found 16"},
        {QUANT(INT8(0, 4)), "f12", "it is no matrix"},
        {QUANT(INT8(0, 4)), "b12,4", "input 0 must be float32"}),
    .reference = ref_quantize,
};

const OpTest test_dequantize = {
    CASES(
        {"nf4", QUANT(NF4(0, 8)), "u24,9 f3,18", NULL, CASE_FOLLOWS},
        {"int8", QUANT(INT8(0, 8)), "u24,7 f3,7", NULL, CASE_FOLLOWS},
        {"dynamic", QUANT(BYTE(DYNAMIC, 0, 8)), "u24,7 f3,7", NULL, CASE_FOLLOWS},
        {"squares", QUANT(BYTE(SQUARES, 0, 8)), "u24,7 f3,7:square0.5", NULL, CASE_FOLLOWS},
        {"nf4, groups of dims", QUANT(NF4(1, 4)), "u3,8,2,3 f3,2,2,6", "f3,8,2,6", 0},
        {"int4", QUANT(BYTE(INT4, 0, 8)), "u24,9 f3,18", NULL, CASE_FOLLOWS},
        {"mxfp4", QUANT(BYTE(MXFP4, 0, 32)), "u64,9 f2,18", NULL, CASE_FOLLOWS},
        {"nf4, large", QUANT(NF4(0, 64)), "u192,259 f3,518", NULL, CASE_FOLLOWS},
        {"int8, large", QUANT(INT8(0, 64)), "u192,519 f3,519", NULL, CASE_FOLLOWS},
        {NULL, QUANT(NF4(0, 4)), "u64,16 f16,32", NULL, CASE_RANKS},
        {NULL, QUANT(INT8(1, 2)), "u8,16,16 f8,8,16", NULL, CASE_RANKS}),
    WRONG(
        {QUANT(NF4(0, 8)), "u24,9 f3,9", "scales must be one a block"},
        {QUANT(NF4(0, 8)), "u12,9 f3,18", "blocks of 8 do not divide dim 0 = 12"},
        {QUANT(NF4(0, 8)), "i24,9 f3,18", "input 0 must be uint8"},
        {QUANT(NF4(0, 8)), "u24,9 b3,18", "input 1 must be float32"}),
    .reference = ref_dequantize,
};

const OpTest test_quant_dot = {
    CASES(
        {"nf4, nn", DOT(NN, 1, NF4(0, 8)), "x17,24 u24,17 f3,34:square0.1", NULL, CASE_FOLLOWS},
        {"nf4, nt", DOT(NT, 1, NF4(0, 8)), "x17,34 u24,17 f3,34:square0.1", NULL, CASE_FOLLOWS},
        {"int8, nn", DOT(NN, 1, INT8(0, 8)), "x17,24 u24,33 f3,33:square0.01", NULL, CASE_FOLLOWS},
        {"int8, nt", DOT(NT, 1, INT8(0, 8)), "x17,33 u24,33 f3,33:square0.01", NULL, CASE_FOLLOWS},
        {"nf4, nn, groups of dims", DOT(NN, 2, NF4(1, 4)), "x2,5,3,8 u3,8,2,3 f3,2,2,6", "f2,5,2,6", 0},
        {"nf4, nt, groups of dims", DOT(NT, 2, NF4(1, 4)), "x2,5,2,6 u3,8,2,3 f3,2,2,6", "f2,5,3,8", 0},
        {"nf4, nn, several slabs", DOT(NN, 1, NF4(0, 64)), "x3,1024 u1024,75 f16,150", NULL, CASE_FOLLOWS},
        {"nf4, nt, several slabs", DOT(NT, 1, NF4(0, 64)), "x3,1024 u192,512 f3,1024", NULL, CASE_FOLLOWS},
        {"one row", DOT(NN, 1, NF4(0, 8)), "x1,24 u24,17 f3,34", NULL, CASE_FOLLOWS},
        {"one row, int8", DOT(NN, 1, INT8(0, 8)), "x1,24 u24,33 f3,33:square0.01", NULL, CASE_FOLLOWS},
        {"int4, nn", DOT(NN, 1, BYTE(INT4, 0, 8)), "x17,24 u24,17 f3,34:square0.1", NULL, CASE_FOLLOWS},
        {"mxfp4, nt", DOT(NT, 1, BYTE(MXFP4, 0, 32)), "x17,34 u64,17 f2,34:square0.1", NULL, CASE_FOLLOWS},
        {"one row, int4", DOT(NN, 1, BYTE(INT4, 0, 8)), "x1,24 u24,17 f3,34", NULL, CASE_FOLLOWS},
        {"one row, e4m3", DOT(NN, 1, BYTE(E4M3, 0, 8)), "x1,24 u24,33:ids126 f3,33:square0.01", NULL, CASE_FOLLOWS},
        {"one row, e5m2", DOT(NN, 1, BYTE(E5M2, 0, 8)), "x1,24 u24,33:ids124 f3,33:square0.01", NULL, CASE_FOLLOWS},
        {"e4m3, nt", DOT(NT, 1, BYTE(E4M3, 0, 8)), "x17,33 u24,33:ids126 f3,33:square0.01", NULL, CASE_FOLLOWS},
        {"one row, mxfp4, large", DOT(NN, 1, BYTE(MXFP4, 0, 32)), "x1,192 u192,775 f6,1550", NULL, CASE_FOLLOWS},
        {"one row, short blocks", DOT(NN, 1, NF4(0, 4)), "x1,20 u20,17 f5,34", NULL, CASE_FOLLOWS},
        {"one row, large", DOT(NN, 1, NF4(0, 64)), "x1,192 u192,775 f3,1550", NULL, CASE_FOLLOWS},
        {"one row, int8, large", DOT(NN, 1, INT8(0, 64)), "x1,192 u192,1551 f3,1551:square0.01", NULL, CASE_FOLLOWS},
        {"few rows", DOT(NN, 1, INT8(0, 12)), "x5,36 u36,1033 f3,1033:square0.01", NULL, CASE_FOLLOWS},
        {"folded to f32", DOT(NN, 1, INT8(0, 8)), "x17,24 u24,33 f3,33:square0.01", NULL, 0},
        {NULL, DOT(NN, 1, NF4(0, 4)), "f8,8,32 u32,16 f8,32", NULL, CASE_RANKS},
        {NULL, DOT(NT, 1, NF4(0, 4)), "f8,8,32 u32,16 f8,32", NULL, CASE_RANKS},
        {NULL, DOT(NN, 2, INT8(1, 2)), "f8,8,16 u8,16,16 f8,8,16", NULL, CASE_RANKS}),
    WRONG(
        {DOT(NN, 1, NF4(0, 8)), "f17,23 u24,17 f3,34", "contracted dims differ"},
        {DOT(NN, 2, NF4(0, 8)), "f17,24 u24,17 f3,34", "what is contracted must be the weight's rows or columns"},
        {DOT(TN, 1, NF4(0, 8)), "f24,17 u24,17 f3,34", "what is contracted must be the weight's rows or columns"},
        {DOT(NN, 1, NF4(0, 8)), "f17,24 u24,17 f4,34", "scales must be one a block"},
        {DOT(NN, 1, NF4(0, 8)), "i17,24 u24,17 f3,34", "input 0 must be float32 or bfloat16"}),
    .reference = ref_quant_dot,
    .flows = 1 << 0,
    .any_bits = true,
};
// clang-format on
