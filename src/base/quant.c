/* quant.c — arrays in four or eight bits: encoding to codes and scales of blocks, and decoding.
 * Kernels of products read codes themselves (src/device/cpu/kernels/quant.c). */
#include <mx/base.h>

#include <math.h>

const float mx_nf4_values[MX_NF4_CODES] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

enum { COLUMNS = 256 }; /* at a time */

/* Columns of one row: to codes, from values divided by their scales, and back. */
static void encode_nf4(const float *x, int64_t n, uint8_t *codes) {
    float least[COLUMNS];
    uint8_t best[COLUMNS + 1] = {0};
    for (int64_t i = 0; i < n; i++) least[i] = fabsf(mx_nf4_values[0] - x[i]);
    for (int k = 1; k < MX_NF4_CODES; k++)
        for (int64_t i = 0; i < n; i++) {
            float distance = fabsf(mx_nf4_values[k] - x[i]);
            best[i] = distance < least[i] ? (uint8_t)k : best[i];
            least[i] = distance < least[i] ? distance : least[i];
        }
    for (int64_t i = 0; i < n; i += 2) codes[i / 2] = (uint8_t)(best[i] | best[i + 1] << 4);
}

static void decode_nf4(const uint8_t *codes, int64_t n, float *x) {
    for (int64_t i = 0; i < n; i++) x[i] = mx_nf4_values[codes[i / 2] >> (i % 2 * 4) & 15];
}

static void encode_int8(const float *x, int64_t n, uint8_t *codes) {
    for (int64_t i = 0; i < n; i++) {
        float y = nearbyintf(x[i]);
        codes[i] = (uint8_t)(int8_t)(y < -128 ? -128 : y > 127 ? 127 : y);
    }
}

static void decode_int8(const uint8_t *codes, int64_t n, float *x) {
    for (int64_t i = 0; i < n; i++) x[i] = (float)(int8_t)codes[i];
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

static void decode_dynamic(const uint8_t *codes, int64_t n, float *x) {
    for (int64_t i = 0; i < n; i++) x[i] = mx_dynamic_values[codes[i]];
}

static void encode_squares(const float *x, int64_t n, uint8_t *codes) {
    enum { DECADES = 8 };
    for (int64_t i = 0; i < n; i++)
        codes[i] = (uint8_t)code_of(x[i] > 0 ? sqrtf(x[i]) : 0, DECADES);
}

static void decode_squares(const uint8_t *codes, int64_t n, float *x) {
    for (int64_t i = 0; i < n; i++) x[i] = mx_square_values[codes[i]];
}

static const struct {
    const char *name;
    float bound; /* of a value divided by its scale */
    int a_byte;  /* columns */
    void (*encode)(const float *x, int64_t n, uint8_t *codes);
    void (*decode)(const uint8_t *codes, int64_t n, float *x);
} types[MX_QTYPE_COUNT] = {
    [MX_NF4] = {"nf4", 1, 2, encode_nf4, decode_nf4},
    [MX_INT8] = {"int8", 127.5f, 1, encode_int8, decode_int8},
    [MX_DYNAMIC] = {"dynamic", 1, 1, encode_dynamic, decode_dynamic},
    [MX_SQUARES] = {"squares", 1, 1, encode_squares, decode_squares},
};

bool mx_qtype_parse(const char *name, MxQtype *out) {
    for (int i = 0; i < MX_QTYPE_COUNT; i++)
        if (types[i].name && !strcmp(types[i].name, name)) {
            *out = (MxQtype)i;
            return true;
        }
    return false;
}

const char *mx_qtype_name(MxQtype type) {
    return types[type].name;
}

/* ---- shapes */

const char *mx_quant_why_not(MxArena *arena, MxQuant quant, MxShape shape) {
    int last = shape.rank - 1, a_byte = types[quant.type].a_byte;
    if (quant.dim < 0 || quant.dim >= last) return "it is no matrix";
    if (quant.tile < 1 || shape.dim[quant.dim] % quant.tile)
        return mx_arena_printf(arena, "blocks of %lld do not divide dim %d = %lld",
                               (long long)quant.tile, quant.dim, (long long)shape.dim[quant.dim]);
    if (shape.dim[last] % a_byte)
        return mx_arena_printf(arena, "%s wants an even dim %d, found %lld", types[quant.type].name,
                               last, (long long)shape.dim[last]);
    return NULL;
}

MxShape mx_quant_codes(MxQuant quant, MxShape shape) {
    shape.dim[shape.rank - 1] /= types[quant.type].a_byte;
    return shape;
}

MxShape mx_quant_scales(MxQuant quant, MxShape shape) {
    shape.dim[quant.dim] /= quant.tile;
    return shape;
}

MxShape mx_quant_shape(MxQuant quant, MxShape codes) {
    codes.dim[codes.rank - 1] *= types[quant.type].a_byte;
    return codes;
}

MxBox mx_quant_blocks(MxQuant quant, MxBox box) {
    const int dims[] = {quant.dim, box.rank - 1};
    const int64_t steps[] = {quant.tile, types[quant.type].a_byte};
    for (int i = 0; i < MX_COUNT(dims); i++) {
        int64_t *start = &box.start[dims[i]], *count = &box.count[dims[i]];
        int64_t before = *start % steps[i];
        *start -= before;
        *count = (*count + before + steps[i] - 1) / steps[i] * steps[i];
    }
    return box;
}

int64_t mx_quant_bytes(MxQuant quant, int64_t n) {
    return n / types[quant.type].a_byte + n / quant.tile * (int64_t)sizeof(float);
}

static int64_t columns_of(MxQuant quant, MxShape shape) {
    int64_t n = 1;
    for (int d = quant.dim + 1; d < shape.rank; d++) n *= shape.dim[d];
    return n;
}

/* ---- values */

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
        scales[i] *= 1 / types[quant.type].bound;
        if (scales[i] < smallest) scales[i] = 1;
    }
    return nothing == 0;
}

bool mx_quantize(MxQuant quant, MxShape shape, const float *x, uint8_t *codes, float *scales) {
    const int64_t width = columns_of(quant, shape);
    const int64_t n_blocks = width ? mx_shape_count(shape) / width / quant.tile : 0;
    const int64_t a_byte = types[quant.type].a_byte;
    bool is_finite = true;
    for (int64_t block = 0; block < n_blocks; block++)
        for (int64_t at = 0; at < width; at += COLUMNS) {
            int64_t n = width - at < COLUMNS ? width - at : COLUMNS;
            const float *from = x + block * quant.tile * width + at;
            float *scale = scales + block * width + at, row[COLUMNS], inverse[COLUMNS];
            is_finite = find_scales(quant, from, width, n, scale) && is_finite;
            for (int64_t c = 0; c < n; c++) inverse[c] = 1 / scale[c];
            for (int64_t i = 0; i < quant.tile; i++, from += width) {
                for (int64_t c = 0; c < n; c++) row[c] = from[c] * inverse[c];
                types[quant.type].encode(row, n,
                                         codes + ((block * quant.tile + i) * width + at) / a_byte);
            }
        }
    return is_finite;
}

void mx_dequantize(MxQuant quant, MxShape shape, const uint8_t *codes, const float *scales,
                   float *x) {
    const int64_t width = columns_of(quant, shape);
    const int64_t n_rows = width ? mx_shape_count(shape) / width : 0;
    for (int64_t row = 0; row < n_rows; row++, x += width) {
        const float *scale = scales + row / quant.tile * width;
        types[quant.type].decode(codes + row * width / types[quant.type].a_byte, width, x);
        for (int64_t i = 0; i < width; i++) x[i] *= scale[i];
    }
}
