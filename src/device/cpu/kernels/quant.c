/* quant.c — weights in few bits. A product converts a slab of its weight to floats at a time, for
 * some columns of the result, and multiplies that like any other matrix: so the whole weight is in
 * memory only as codes, and the fastest provider multiplies. Products of few rows are in
 * quant_few.c. */
#include "quant.h"
#include "slabs.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

/* ---- rows of codes to floats */

/* The values of n codes of half a byte times their scales; n is even. */
#if defined(__AVX512F__)
static void decode_pairs(const float *of, const uint8_t *codes, const float *scales, int64_t n,
                         float *y) {
    enum { LANES = 16 };
    const __m512 values = _mm512_loadu_ps(of);
    const __m128i low = _mm_set1_epi8(15);
    for (int64_t i = 0; i < n; i += LANES) {
        uint64_t bytes = 0;
        memcpy(&bytes, codes + i / 2, (size_t)cpu_min(LANES, n - i) / 2);
        __mmask16 part = (__mmask16)(UINT32_MAX >> cpu_max(LANES, 2 * LANES - (n - i)));
        __m128i pairs = _mm_cvtsi64_si128((long long)bytes);
        __m128i each = _mm_unpacklo_epi8(_mm_and_si128(pairs, low),
                                         _mm_and_si128(_mm_srli_epi16(pairs, 4), low));
        __m512 x = _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(each), values);
        __m512 scale = _mm512_maskz_loadu_ps(part, scales + i);
        _mm512_mask_storeu_ps(y + i, part, _mm512_mul_ps(x, scale));
    }
}
#elif defined(__AVX2__)
static void decode_pairs(const float *of, const uint8_t *codes, const float *scales, int64_t n,
                         float *y) {
    enum { LANES = 8 };
    const __m256 first = _mm256_loadu_ps(of), last = _mm256_loadu_ps(of + 8);
    const __m128i low = _mm_set1_epi8(15);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        int32_t bytes;
        memcpy(&bytes, codes + i / 2, sizeof bytes);
        __m128i pairs = _mm_cvtsi32_si128(bytes);
        __m128i each = _mm_unpacklo_epi8(_mm_and_si128(pairs, low),
                                         _mm_and_si128(_mm_srli_epi16(pairs, 4), low));
        __m256i at = _mm256_cvtepu8_epi32(each);
        __m256 is_last = _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)); /* bit 3 on top */
        __m256 x = _mm256_blendv_ps(_mm256_permutevar8x32_ps(first, at),
                                    _mm256_permutevar8x32_ps(last, at), is_last);
        _mm256_storeu_ps(y + i, _mm256_mul_ps(x, _mm256_loadu_ps(scales + i)));
    }
    for (; i < n; i++) y[i] = of[codes[i / 2] >> (i % 2 * 4) & 15] * scales[i];
}
#else
static void decode_pairs(const float *of, const uint8_t *codes, const float *scales, int64_t n,
                         float *y) {
    for (int64_t i = 0; i < n; i += 2) {
        y[i] = of[codes[i / 2] & 15] * scales[i];
        y[i + 1] = of[codes[i / 2] >> 4] * scales[i + 1];
    }
}
#endif

static void decode_int8(const uint8_t *codes, const float *scales, int64_t n, float *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = (float)(int8_t)codes[i] * scales[i];
}

static void decode_by(const float *values, const uint8_t *codes, const float *scales, int64_t n,
                      float *y) {
    for (int64_t i = 0; i < n; i++) y[i] = values[codes[i]] * scales[i];
}

void quant_decode(const QuantArray *x, int64_t row, int64_t column, int64_t n, float *y) {
    const MxQtype type = x->quant.type;
    const float *values = mx_qtypes[type].values;
    const int64_t at = row * x->width + column;
    const uint8_t *codes = x->codes + at / mx_qtype_a_byte(type);
    const float *scales = x->scales + row / x->quant.tile * x->width + column;
    if (mx_qtypes[type].bits == 4)
        decode_pairs(values, codes, scales, n, y);
    else if (type == MX_INT8)
        decode_int8(codes, scales, n, y);
    else
        decode_by(values, codes, scales, n, y);
}

/* Rows [.., columns) of an array as floats. */
typedef struct Decoding {
    QuantArray from;
    int64_t row, column, columns; /* the first of what is made */
    void *to;                     /* [.., columns] */
    MxDtype dtype;
} Decoding;

static void decode_rows(const void *context, int64_t begin, int64_t end, int worker) {
    const Decoding *d = context;
    float block[CPU_BLOCK];
    (void)worker;
    for (int64_t row = begin; row < end; row++)
        for (int64_t at = 0; at < d->columns; at += CPU_BLOCK) {
            int64_t n = cpu_min(CPU_BLOCK, d->columns - at), to = row * d->columns + at;
            float *y = cpu_place(d->to, d->dtype, to, block);
            quant_decode(&d->from, d->row + row, d->column + at, n, y);
            cpu_write(y, n, d->to, d->dtype, to);
        }
}

static void decode(const MxDevice *device, const Decoding *d, int64_t rows) {
    cpu_for(device, rows, cpu_max(1, CPU_PIECE / cpu_max(1, d->columns)), decode_rows, d);
}

/* Rows are all dims up to the one along which blocks lie, the rest is columns. */
static Decoding decoding_of(MxQuant quant, MxShape shape) {
    Decoding d = {.from = {.quant = quant, .width = 1}};
    for (int i = quant.dim + 1; i < shape.rank; i++) d.from.width *= shape.dim[i];
    d.columns = d.from.width;
    return d;
}

static void dequantize_run(const MxDevice *device, const MxKernelCall *call) {
    const MxQuantAttr *attr = call->attr;
    MxShape shape = call->out_type[0].shape;
    Decoding d = decoding_of(attr->quant, shape);
    d.from.codes = call->in[0];
    d.from.scales = call->in[1];
    d.to = call->out[0];
    d.dtype = attr->dtype;
    if (d.to && mx_shape_count(shape)) decode(device, &d, mx_shape_count(shape) / d.columns);
}

const MxKernel cpu_dequantize = {.run = dequantize_run};

/* ---- floats to codes */

/* Blocks side by side, as many rows as one has. */
typedef struct Encoding {
    MxQuant quant;
    MxShape shape; /* [rows of a block, columns] */
    const float *x;
    uint8_t *codes, *unwanted_codes;
    float *scales, *unwanted_scales;
    int64_t code_bytes;
} Encoding;

static size_t code_bytes_of(const Encoding *e) {
    return (size_t)mx_shape_count(mx_quant_codes(e->quant, e->shape));
}

static Encoding encoding_of(const MxKernelCall *call) {
    MxQuant quant = ((const MxQuantAttr *)call->attr)->quant;
    Decoding d = decoding_of(quant, call->in_type[0].shape);
    Encoding e = {.quant = quant, .shape = MX_SHAPE(quant.tile, d.columns)};
    e.quant.dim = 0;
    return e;
}

/* What a thread makes although nobody wants it. */
static size_t quantize_scratch(const MxDevice *device, const MxKernelCall *call) {
    Encoding e = encoding_of(call);
    size_t bytes = cpu_padded(code_bytes_of(&e)) + cpu_padded(4 * (size_t)e.shape.dim[1]);
    return bytes * (size_t)device->n_threads;
}

static void encode_blocks(const void *context, int64_t begin, int64_t end, int worker) {
    const Encoding *e = context;
    int64_t width = e->shape.dim[1], bytes = (int64_t)code_bytes_of(e);
    int64_t padded = (int64_t)cpu_padded((size_t)bytes);
    for (int64_t i = begin; i < end; i++)
        mx_quantize(e->quant, e->shape, e->x + i * e->quant.tile * width,
                    e->codes ? e->codes + i * bytes : e->unwanted_codes + worker * padded,
                    e->scales
                        ? e->scales + i * width
                        : e->unwanted_scales + worker * (int64_t)cpu_padded(4 * (size_t)width) / 4);
}

static void quantize_run(const MxDevice *device, const MxKernelCall *call) {
    Encoding e = encoding_of(call);
    void *scratch = call->scratch;
    e.x = call->in[0];
    e.codes = call->out[0];
    e.scales = call->out[1];
    e.unwanted_codes =
        cpu_carve(&scratch, cpu_padded(code_bytes_of(&e)) * (size_t)device->n_threads);
    e.unwanted_scales = scratch;
    int64_t n = mx_shape_count(e.shape);
    if (n) cpu_for(device, mx_shape_count(call->in_type[0].shape) / n, 1, encode_blocks, &e);
}

const MxKernel cpu_quantize = {.scratch = quantize_scratch, .run = quantize_run};

/* ---- products */

/* Where few rows are multiplied, a slab stays in the second cache; where many are, it is as large
 * as its products want. */
static Slabs slabs_of_weight(const MxKernelCall *call) {
    enum { FEW_ROWS = 16 };
    const int64_t small = 1 << 17, large = 1 << 21; /* elements */
    const MxQuantDotAttr *attr = call->attr;
    MxShape w = mx_quant_shape(attr->quant, call->in_type[1].shape);
    MxDotSizes size = mx_dot_sizes(call->in_type[0].shape, w, &attr->dot);
    CpuMatmulSpec spec = {.m = size.m,
                          .n = size.n,
                          .k = size.k,
                          .lda = size.k,
                          .ldc = size.n,
                          .trans_b = attr->dot.kind == MX_DOT_NT,
                          .in = call->in_type[0].dtype,
                          .out = call->out_type[0].dtype};
    return slabs_of(spec, size.m <= FEW_ROWS ? small : large, size.k, mx_dtype_bytes(spec.in));
}

static size_t quant_dot_scratch(const MxDevice *device, const MxKernelCall *call) {
    Slabs s = slabs_of_weight(call);
    if (quant_is_few(device, &s.spec)) return cpu_few_products.scratch(device, &s.spec);
    return slabs_scratch(device, &s);
}

static bool quant_dot_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    Slabs *s = mx_new(device->arena, Slabs);
    *s = slabs_of_weight(call);
    call->state = s;
    return quant_is_few(device, &s->spec) || slabs_prepare(device, s, err);
}

static void quant_dot_run(const MxDevice *device, const MxKernelCall *call) {
    const Slabs *s = call->state;
    const MxQuantDotAttr *attr = call->attr;
    Decoding d = decoding_of(attr->quant, mx_quant_shape(attr->quant, call->in_type[1].shape));
    d.from.codes = call->in[1];
    d.from.scales = call->in[2];
    if (call->out[0] && quant_is_few(device, &s->spec)) {
        quant_multiply_few(device, &s->spec, call->in[0], &d.from, call->out[0], call->scratch);
        return;
    }
    void *scratch = call->scratch, *slab = cpu_carve(&scratch, s->bytes);
    d.to = slab;
    d.dtype = s->spec.in;
    for (int64_t at = 0; call->out[0] && at < s->spec.n; at += s->columns) {
        int64_t n = cpu_min(s->columns, s->spec.n - at);
        if (s->spec.trans_b) {
            d.row = at;
        } else {
            d.column = at;
            d.columns = n;
        }
        decode(device, &d, s->spec.trans_b ? n : s->spec.k);
        cpu_matmul(slabs_product(s, n), call->in[0], slab,
                   (char *)call->out[0] + (size_t)at * mx_dtype_bytes(s->spec.out), scratch);
    }
}

const MxKernel cpu_quant_dot = {
    .scratch = quant_dot_scratch,
    .prepare = quant_dot_prepare,
    .run = quant_dot_run,
};
