/* quant.c — arrays in four or eight bits: encoding to codes and scales of blocks, and decoding.
 * Kernels of products read codes themselves (src/device/cpu/kernels/quant.c). */
#include <mx/base.h>

#include <math.h>

enum { COLUMNS = 256 }; /* at a time */

/* Columns of one row to a code each, from values divided by their scales. Whole groups, as
 * compilers make vectors of loops whose length they know. */
static void encode_nf4(const float *x, int64_t n, uint8_t *codes) {
    enum { GROUP = 16 };
    for (int64_t at = 0; at < n; at += GROUP) {
        int32_t code[GROUP] = {0};
        for (int k = 0; k < MX_HALF_BYTE_CODES - 1; k++)
            for (int i = 0; i < GROUP; i++) code[i] += x[at + i] >= mx_nf4_bounds[k];
        for (int i = 0; i < GROUP; i++) codes[at + i] = (uint8_t)code[i];
    }
}

static void encode_grid(const MxQtypeRow *row, const float *x, int64_t n, uint8_t *codes) {
    float y[COLUMNS];
    for (int64_t i = 0; i < n; i++) y[i] = row->by_f16 ? mx_quotient_rounded(x[i]) : x[i];
    mx_grid_round(row->grid, y, n, y);
    for (int64_t i = 0; i < n; i++) /* a 0 has a sign, too */
        codes[i] = (uint8_t)mx_grid_code(row->grid, copysignf(y[i], x[i]));
}

/* The code of a number from 0 to 1 with n decades, of which the i-th has 2^i codes. What is less
 * than all, or no number, is 0. */
static int code_of(float x, int n) {
    static const float tens[] = {1, 1e1f, 1e2f, 1e3f, 1e4f, 1e5f, 1e6f, 1e7f};
    const float lowest = 0.1f, width = 0.9f;
    int i = 0;
    x *= tens[n - 1];
    if (!(x >= lowest)) return 0;
    for (int k = 0; k < n - 1; k++) i += x >= tens[k];
    int codes = 1 << i, at = (int)((x / tens[i] - lowest) * ((float)codes / width));
    return codes + (at < 0 ? 0 : at < codes ? at : codes - 1);
}

static void encode_dynamic(const float *x, int64_t n, uint8_t *codes) {
    enum { DECADES = 7, SIGN = 128 };
    for (int64_t i = 0; i < n; i++) {
        int code = code_of(fabsf(x[i]), DECADES);
        codes[i] = (uint8_t)(code | (code && x[i] < 0 ? SIGN : 0));
    }
}

static void encode_squares(const float *x, int64_t n, uint8_t *codes) {
    enum { DECADES = 8 };
    for (int64_t i = 0; i < n; i++)
        codes[i] = (uint8_t)code_of(x[i] > 0 ? sqrtf(x[i]) : 0, DECADES);
}

#define WEIGHTS(name_, bits_, values_, bound_, ...)                                                \
    {                                                                                              \
        .name = name_, .is_of_weights = true, .bits = bits_, .values = values_, .bound = bound_,   \
        __VA_ARGS__                                                                                \
    }
const MxQtypeRow mx_qtypes[MX_QTYPE_COUNT] = {
    [MX_NF4] = WEIGHTS("nf4", 4, mx_nf4_values, 1, .grid = MX_NO_GRID),
    [MX_INT8] = WEIGHTS("int8", 8, mx_int8_values, 127.5f, .grid = MX_GRID_INT8),
    [MX_INT4] = WEIGHTS("int4", 4, mx_int4_values, 7.5f, .grid = MX_GRID_INT4),
    [MX_E4M3] = WEIGHTS("float8_e4m3fn", 8, mx_e4m3_values, 448, .grid = MX_GRID_E4M3),
    [MX_E5M2] = WEIGHTS("float8_e5m2", 8, mx_e5m2_values, 57344, .grid = MX_GRID_E5M2),
    [MX_MXFP8] = WEIGHTS("mxfp8", 8, mx_e4m3_values, 448, .grid = MX_GRID_E4M3,
                         .scale = MX_SCALE_POWER, .tile = 32),
    [MX_MXFP4] = WEIGHTS("mxfp4", 4, mx_e2m1_values, 6, .grid = MX_GRID_E2M1, .by_f16 = true,
                         .scale = MX_SCALE_POWER, .tile = 32),
    [MX_NVFP4] = WEIGHTS("nvfp4", 4, mx_e2m1_values, 6, .grid = MX_GRID_E2M1, .by_f16 = true,
                         .scale = MX_SCALE_E4M3, .tile = 16),
    [MX_DYNAMIC] = {.name = "dynamic", .bits = 8, .values = mx_dynamic_values, .bound = 1},
    [MX_SQUARES] = {.name = "squares", .bits = 8, .values = mx_square_values, .bound = 1},
};

static void encode(MxQtype type, const float *x, int64_t n, uint8_t *codes) {
    if (mx_qtypes[type].grid) encode_grid(&mx_qtypes[type], x, n, codes);
    if (type == MX_NF4) encode_nf4(x, n, codes);
    if (type == MX_DYNAMIC) encode_dynamic(x, n, codes);
    if (type == MX_SQUARES) encode_squares(x, n, codes);
}

bool mx_qtype_parse(const char *name, MxQtype *out) {
    for (int i = 0; i < MX_QTYPE_COUNT; i++)
        if (mx_qtypes[i].name && !strcmp(mx_qtypes[i].name, name)) {
            *out = (MxQtype)i;
            return true;
        }
    return false;
}

const char *mx_qtype_list(MxArena *arena) {
    const char *list = "";
    for (int i = 0; i < MX_QTYPE_COUNT; i++)
        if (mx_qtypes[i].is_of_weights)
            list = mx_arena_printf(arena, "%s%s%s", list, *list ? ", " : "", mx_qtypes[i].name);
    return list;
}

/* ---- shapes */

const char *mx_quant_why_not(MxArena *arena, MxQuant quant, MxShape shape) {
    const MxQtypeRow *row = &mx_qtypes[quant.type];
    int last = shape.rank - 1, a_byte = mx_qtype_a_byte(quant.type);
    if (quant.dim < 0 || quant.dim >= last) return "it is no matrix";
    if (row->tile && quant.tile != row->tile)
        return mx_arena_printf(arena, "%s has blocks of %lld, found %lld", row->name,
                               (long long)row->tile, (long long)quant.tile);
    if (quant.tile < 1 || shape.dim[quant.dim] % quant.tile)
        return mx_arena_printf(arena, "blocks of %lld do not divide dim %d = %lld",
                               (long long)quant.tile, quant.dim, (long long)shape.dim[quant.dim]);
    if (shape.dim[last] % a_byte)
        return mx_arena_printf(arena, "%s wants an even dim %d, found %lld", row->name, last,
                               (long long)shape.dim[last]);
    return NULL;
}

MxShape mx_quant_codes(MxQuant quant, MxShape shape) {
    shape.dim[shape.rank - 1] /= mx_qtype_a_byte(quant.type);
    return shape;
}

MxShape mx_quant_scales(MxQuant quant, MxShape shape) {
    shape.dim[quant.dim] /= quant.tile;
    return shape;
}

MxShape mx_quant_shape(MxQuant quant, MxShape codes) {
    codes.dim[codes.rank - 1] *= mx_qtype_a_byte(quant.type);
    return codes;
}

MxBox mx_quant_blocks(MxQuant quant, MxBox box) {
    const int dims[] = {quant.dim, box.rank - 1};
    const int64_t steps[] = {quant.tile, mx_qtype_a_byte(quant.type)};
    for (int i = 0; i < MX_COUNT(dims); i++) {
        int64_t *start = &box.start[dims[i]], *count = &box.count[dims[i]];
        int64_t before = *start % steps[i];
        *start -= before;
        *count = (*count + before + steps[i] - 1) / steps[i] * steps[i];
    }
    return box;
}

int64_t mx_quant_bytes(MxQuant quant, int64_t n) {
    return n / mx_qtype_a_byte(quant.type) + n / quant.tile * (int64_t)sizeof(float);
}

static int64_t columns_of(MxQuant quant, MxShape shape) {
    int64_t n = 1;
    for (int d = quant.dim + 1; d < shape.rank; d++) n *= shape.dim[d];
    return n;
}

/* ---- values */

float mx_scale_rounded(MxScaleForm form, float scale) {
    int exponent;
    if (form == MX_SCALE_POWER) {
        float fraction = frexpf(scale, &exponent);
        return ldexpf(1, fraction > 0.5f ? exponent : exponent - 1);
    }
    if (form == MX_SCALE_E4M3) mx_grid_round(MX_GRID_E4M3, &scale, 1, &scale);
    return scale;
}

/* Scales of n columns next to each other, `step` elements a row; whether all are finite. */
static bool find_scales(MxQuant quant, const float *x, int64_t step, int64_t n, float *scales) {
    const float smallest = 1.0842021724855044e-19f; /* its square is the smallest normal number */
    float nothing = 0;                              /* x - x is 0, or no number */
    for (int64_t i = 0; i < n; i++) scales[i] = 0;
    for (int64_t row = 0; row < quant.tile; row++, x += step)
        for (int64_t i = 0; i < n; i++) {
            float size = fabsf(x[i]);
            scales[i] = size > scales[i] ? size : scales[i];
            nothing += x[i] - x[i];
        }
    for (int64_t i = 0; i < n; i++) {
        scales[i] *= 1 / mx_qtypes[quant.type].bound;
        if (scales[i] < smallest) scales[i] = 1;
        scales[i] = mx_scale_rounded(mx_qtypes[quant.type].scale, scales[i]);
    }
    return nothing == 0;
}

/* Codes of columns, which are next to each other in bytes. */
static void pack(const uint8_t *code, int64_t n, int64_t a_byte, uint8_t *to) {
    if (a_byte == 1) memcpy(to, code, (size_t)n);
    for (int64_t i = 0; i < n && a_byte == 2; i += 2)
        to[i / 2] = (uint8_t)(code[i] | code[i + 1] << 4);
}

bool mx_quantize(MxQuant quant, MxShape shape, const float *x, uint8_t *codes, float *scales) {
    const int64_t width = columns_of(quant, shape);
    const int64_t n_blocks = width ? mx_shape_count(shape) / width / quant.tile : 0;
    const int64_t a_byte = mx_qtype_a_byte(quant.type);
    bool is_finite = true;
    for (int64_t block = 0; block < n_blocks; block++)
        for (int64_t at = 0; at < width; at += COLUMNS) {
            int64_t n = width - at < COLUMNS ? width - at : COLUMNS;
            const float *from = x + block * quant.tile * width + at;
            float *scale = scales + block * width + at, row[COLUMNS] = {0}, inverse[COLUMNS];
            uint8_t code[COLUMNS];
            is_finite = find_scales(quant, from, width, n, scale) && is_finite;
            for (int64_t c = 0; c < n; c++) inverse[c] = 1 / scale[c];
            for (int64_t i = 0; i < quant.tile; i++, from += width) {
                for (int64_t c = 0; c < n; c++) row[c] = from[c] * inverse[c];
                encode(quant.type, row, n, code);
                pack(code, n, a_byte, codes + ((block * quant.tile + i) * width + at) / a_byte);
            }
        }
    return is_finite;
}

void mx_dequantize(MxQuant quant, MxShape shape, const uint8_t *codes, const float *scales,
                   float *x) {
    const int64_t width = columns_of(quant, shape);
    const int64_t n_rows = width ? mx_shape_count(shape) / width : 0;
    const int64_t a_byte = mx_qtype_a_byte(quant.type);
    const float *values = mx_qtypes[quant.type].values;
    for (int64_t row = 0; row < n_rows; row++, x += width) {
        const float *scale = scales + row / quant.tile * width;
        const uint8_t *code = codes + row * width / a_byte;
        for (int64_t i = 0; i < width; i++) {
            int at = a_byte == 1 ? code[i] : code[i / 2] >> (i % 2 * 4) & 15;
            x[i] = values[at] * scale[i];
        }
    }
}
