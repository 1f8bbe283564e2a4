/* base_arrays.h — types, shapes and boxes of arrays; a part of base.h, which includes it. */
#ifndef MX_BASE_ARRAYS_H
#define MX_BASE_ARRAYS_H

#include <mx/base.h>

/* ---- dtype */

/* MX_DTYPE(symbol, name, bytes) */
#define MX_DTYPES(MX_DTYPE)                                                                        \
    MX_DTYPE(F32, "float32", 4)                                                                    \
    MX_DTYPE(BF16, "bfloat16", 2)                                                                  \
    MX_DTYPE(F64, "float64", 8)                                                                    \
    MX_DTYPE(F16, "float16", 2)                                                                    \
    MX_DTYPE(I64, "int64", 8)                                                                      \
    MX_DTYPE(I32, "int32", 4)                                                                      \
    MX_DTYPE(U32, "uint32", 4)                                                                     \
    MX_DTYPE(U16, "uint16", 2)                                                                     \
    MX_DTYPE(I8, "int8", 1)                                                                        \
    MX_DTYPE(U8, "uint8", 1)

typedef enum MxDtype {
#define MX_DTYPE(symbol, name, bytes) MX_##symbol,
    MX_DTYPES(MX_DTYPE)
#undef MX_DTYPE
        MX_DTYPE_COUNT
} MxDtype;

const char *mx_dtype_name(MxDtype dtype);
size_t mx_dtype_bytes(MxDtype dtype);
bool mx_dtype_is_float(MxDtype dtype);
/* mx_dtype_parse — by name ("float32", "bfloat16", …); false if there is none such. */
bool mx_dtype_parse(const char *name, MxDtype *out);

/* bfloat16 is the upper half of a float32; rounding is to nearest even, NaN stays NaN. */
typedef uint16_t MxBf16;
static inline float mx_bf16_to_f32(MxBf16 x) {
    uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static inline MxBf16 mx_f32_to_bf16(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    uint32_t rounded = u + 0x7fffu + (u >> 16 & 1u);
    rounded = f != f ? u | 0x00400000u : rounded;
    return (MxBf16)(rounded >> 16);
}

/* ---- sums (numbers.c) */

/* mx_log_sum — log(sum(exp(x))) of n numbers, of which the largest is finite; NaN if one is. */
double mx_log_sum(const float *x, int64_t n);

/* ---- shape */

enum { MX_MAX_RANK = 6 };

/* Sizes of a dense row-major array, in elements; rank 0 is a scalar. */
typedef struct MxShape {
    int rank;
    int64_t dim[MX_MAX_RANK];
} MxShape;

#define MX_SHAPE(...)                                                                              \
    ((MxShape){.rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                  \
               .dim = {__VA_ARGS__}})
#define MX_SCALAR ((MxShape){0})

int64_t mx_shape_count(MxShape shape);
bool mx_shape_equal(MxShape a, MxShape b);
/* mx_shape_text — "[4, 512]" in a buffer of the arena. */
const char *mx_shape_text(MxArena *arena, MxShape shape);

/* Part of an array: elements start[d] … start[d] + count[d] - 1 of each dim. */
typedef struct MxBox {
    int rank;
    int64_t start[MX_MAX_RANK], count[MX_MAX_RANK];
} MxBox;

MxBox mx_box_of(MxShape shape); /* all of it */
int64_t mx_box_count(const MxBox *box);
bool mx_box_equal(const MxBox *a, const MxBox *b);
/* mx_box_meet — what two boxes of one array share; maybe without elements. */
MxBox mx_box_meet(const MxBox *a, const MxBox *b);
/* mx_box_insert — the box in an array that has one dim more, at `dim`. */
MxBox mx_box_insert(MxBox box, int dim, int64_t start, int64_t count);

/* How the elements of a box lie in two boxes around it, each dense and row-major: `n` runs of
 * `length` elements that are contiguous in both, in order. */
typedef struct MxBoxRuns {
    MxBox box, in[2];
    int outer; /* dims that runs do not span */
    int64_t n, length;
} MxBoxRuns;

/* mx_box_runs — of a box with elements that lies inside a and b. */
MxBoxRuns mx_box_runs(const MxBox *box, const MxBox *a, const MxBox *b);
/* mx_box_run_at — where run i starts in both, in elements. */
void mx_box_run_at(const MxBoxRuns *runs, int64_t i, int64_t at[2]);
/* mx_box_copy — the elements of `box` from one box's memory to another's. */
void mx_box_copy(const MxBox *box, const MxBox *from, const void *from_data, const MxBox *to,
                 void *to_data, size_t element_bytes);

/* ---- numbers of few bits (grid.c) */

/* What operands of a quantised product are rounded to once they are divided by their scale. */
typedef enum MxGrid {
    MX_NO_GRID,
    MX_GRID_INT4,
    MX_GRID_INT8,
    MX_GRID_E2M1,
    MX_GRID_E4M3,
    MX_GRID_E5M2,
    MX_GRID_COUNT
} MxGrid;

typedef struct MxGridRow {
    const char *name;
    float bound;        /* the largest magnitude is scaled to it */
    float least, most;  /* numbers of the grid */
    int bits, exponent; /* numbers from 2^e to 2^(e+1) are 2^(max(e, exponent) - bits) apart */
    int width;          /* bits of a code */
    bool is_whole;      /* codes are whole numbers in two's complement, not signs and exponents */
} MxGridRow;
extern const MxGridRow mx_grids[MX_GRID_COUNT];

/* mx_grid_scale — the scale with which a magnitude becomes the grid's bound; 1 below
 * MX_LEAST_SCALE, whose square is the smallest normal number. */
#define MX_LEAST_SCALE 1.0842021724855044e-19f
float mx_grid_scale(MxGrid grid, float magnitude);
/* mx_grid_round — the nearest numbers of the grid, of two as near the even one; NaN stays NaN.
 * Source: qwix _src/core/numerics.py @0.1.8; OCP 8-bit Floating Point Specification (2023). */
void mx_grid_round(MxGrid grid, const float *x, int64_t n, float *y);
/* mx_grid_code — that of a number of the grid. */
unsigned mx_grid_code(MxGrid grid, float y);

/* ---- calibration: which magnitude becomes the bound of a grid (calibrate.c) */

/* What is measured of the elements that share a scale: the largest magnitude, the root of the mean
 * square, or nothing, because the magnitude is given. */
typedef enum MxMeasure { MX_ABSMAX, MX_RMS, MX_FIXED, MX_MEASURE_COUNT } MxMeasure;

typedef struct MxCalibration {
    MxMeasure measure;
    float by; /* factor of what is measured; of MX_FIXED the magnitude itself */
} MxCalibration;

/* mx_calibration_parse — of a text "absmax", "absmax,F", "rms,F", "fixed,A" or "fixed,-A,A", with
 * numbers above 0 and letters of either case; else says in the arena why not. NULL = none wrong.
 * Source: qwix _src/core/qarray.py, calibrate @0.1.8, which also has ranges that are not
 * symmetrical, but no gradients for products of what they give. */
const char *mx_calibration_parse(MxArena *arena, const char *text, MxCalibration *out);
/* mx_calibration_magnitude — from what was found of n elements: the largest magnitude, or the sum
 * of squares. */
float mx_calibration_magnitude(MxCalibration c, float found, int64_t n);
/* mx_calibration_scale — that of elements of a magnitude; 1 below 1e-19. What is measured is
 * multiplied by the reciprocal of the bound (mx_grid_scale), what is given is divided, as XLA does
 * with a constant. */
float mx_calibration_scale(MxCalibration c, MxGrid grid, float magnitude);
/* mx_calibration_cuts — whether elements can have a larger magnitude. */
static inline bool mx_calibration_cuts(MxCalibration c) {
    return c.measure != MX_ABSMAX || c.by < 1;
}
/* mx_calibration_name — "absmax", "rms" or "fixed". */
const char *mx_calibration_name(MxMeasure measure);

/* ---- quantised arrays (quant.c) */

/* How an array is kept in few bits: as codes, and a scale for each block of elements. `dim` and the
 * dims before it are rows, those behind it columns; a block is `tile` rows of one column. */
typedef enum MxQtype {
    MX_NOT_QUANTIZED,
    MX_NF4,
    MX_INT8,
    MX_INT4,
    MX_E4M3,
    MX_E5M2,
    MX_MXFP8,
    MX_MXFP4,
    MX_NVFP4,
    MX_DYNAMIC,
    MX_SQUARES,
    MX_QTYPE_COUNT
} MxQtype;

typedef struct MxQuant {
    MxQtype type;
    int dim;
    int64_t tile; /* divides the size of `dim` */
} MxQuant;

/* What a scale is rounded to: nothing, the next power of two, a float of 8 bits. */
typedef enum MxScaleForm { MX_SCALE_FLOAT, MX_SCALE_POWER, MX_SCALE_E4M3 } MxScaleForm;

typedef struct MxQtypeRow {
    const char *name;
    bool is_of_weights;  /* others are for moments */
    int bits;            /* of a code, 4 or 8 */
    const float *values; /* of the codes */
    float bound;         /* the largest magnitude of a block is scaled to it */
    MxGrid grid;         /* whose numbers they are; MX_NO_GRID = none that is known */
    bool by_f16;         /* quotients are first rounded to float16, as XLA does */
    MxScaleForm scale;
    int64_t tile; /* what blocks must be; 0 = of any size */
} MxQtypeRow;
extern const MxQtypeRow mx_qtypes[MX_QTYPE_COUNT];

/* Codes of half a byte and of a byte, and what they stand for. */
enum { MX_HALF_BYTE_CODES = 16, MX_BYTE_CODES = 256 };
extern const float mx_nf4_values[MX_HALF_BYTE_CODES], mx_int4_values[MX_HALF_BYTE_CODES],
    mx_e2m1_values[MX_HALF_BYTE_CODES];
/* The least number that each code but the first of nf4 is nearest to. */
extern const float mx_nf4_bounds[MX_HALF_BYTE_CODES - 1];
extern const float mx_int8_values[MX_BYTE_CODES], mx_e4m3_values[MX_BYTE_CODES],
    mx_e5m2_values[MX_BYTE_CODES];
extern const float mx_dynamic_values[MX_BYTE_CODES], mx_square_values[MX_BYTE_CODES];

/* mx_qtype_parse — by name ("nf4", "int8"); false if there is none such. mx_qtype_list — names of
 * those that weights are kept in, for messages. */
bool mx_qtype_parse(const char *name, MxQtype *out);
const char *mx_qtype_list(MxArena *arena);
static inline const char *mx_qtype_name(MxQtype type) {
    return mx_qtypes[type].name;
}
/* mx_qtype_a_byte — columns of a byte of codes. */
static inline int mx_qtype_a_byte(MxQtype type) {
    return 8 / mx_qtypes[type].bits;
}
/* mx_quant_why_not — why arrays of a shape cannot be kept so, in the arena; NULL = they can. */
const char *mx_quant_why_not(MxArena *arena, MxQuant quant, MxShape shape);
/* mx_quant_codes, mx_quant_scales — the shapes of what is kept, uint8 and float32. Of codes of 4
 * bits a byte has two columns, the first in its low half. */
MxShape mx_quant_codes(MxQuant quant, MxShape shape);
MxShape mx_quant_scales(MxQuant quant, MxShape shape);
/* mx_quant_shape — the other way round: of the array whose codes have that shape. */
MxShape mx_quant_shape(MxQuant quant, MxShape codes);
/* mx_quant_blocks — the least box of whole blocks, and whole bytes of codes, around another. */
MxBox mx_quant_blocks(MxQuant quant, MxBox box);
/* mx_quant_bytes — of codes and scales of so many elements, in whole blocks. */
int64_t mx_quant_bytes(MxQuant quant, int64_t n);
/* mx_quantize — codes and scales of an array that can be kept so. nf4: the scale is the largest
 * magnitude of a block, a code the nearest of 16 quantiles of the normal distribution. int8: the
 * scale is the largest magnitude / 127.5, a code x / scale rounded to even, -128 to 127; int4 in
 * the same way with 7.5, -8 to 7. float8_e4m3fn, float8_e5m2: the largest magnitude is scaled to
 * the largest float of 8 bits, to which quotients are rounded. mxfp8 (e4m3) and mxfp4 (e2m1): the
 * same with blocks of 32, the scale rounded up to a power of two; nvfp4 (e2m1): blocks of 16, the
 * scale rounded to e4m3, which may be 0, as are its values then. Quotients that become e2m1 are
 * rounded to float16 first, by which XLA makes them of float32. dynamic and squares: the scale is
 * the largest magnitude of a block. Each decade below it has half the codes of the one above, of
 * equal width, and a code is the middle of its width, the last one 1. dynamic has seven decades and
 * a sign, squares eight of the root of what is not negative. A block below 1e-19 has scale 1.
 * Quotients are products with reciprocals, as XLA has them. Returns whether all elements are
 * finite; else codes mean nothing. Source: QLoRA (Dettmers et al. 2023), appendix E; 8-bit
 * optimizers (Dettmers et al. 2022), 1.3, whose codes for second moments are of themselves; qwix
 * _src/core/qarray.py, numerics.py @0.1.8. */
bool mx_quantize(MxQuant quant, MxShape shape, const float *x, uint8_t *codes, float *scales);
/* mx_scale_rounded — a scale in its form. mx_quotient_rounded — to the bits that float16 has of a
 * number from 2^-14 on; of a lower one no code knows. */
float mx_scale_rounded(MxScaleForm form, float scale);
static inline float mx_quotient_rounded(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu;
    memcpy(&x, &bits, sizeof x);
    return x;
}
/* mx_dequantize — value of the code times scale, each rounded once. */
void mx_dequantize(MxQuant quant, MxShape shape, const uint8_t *codes, const float *scales,
                   float *x);

#endif
