/* quant.cuh — arrays in few bits, as kernels read them: eight columns of a row at a time. */
#ifndef GPU_QUANT_CUH
#define GPU_QUANT_CUH

#include "device/cuda/gpu.cuh"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#endif

/* How values follow from codes: two in a byte, the byte itself, or a table of all bytes. */
typedef enum QuantKind { QUANT_PAIRS, QUANT_SIGNED, QUANT_TABLE } QuantKind;

static inline QuantKind quant_kind(MxQtype type) {
    return mx_qtypes[type].bits == 4 ? QUANT_PAIRS : type == MX_INT8 ? QUANT_SIGNED : QUANT_TABLE;
}

/* Values of codes, a parameter of kernels, which copy it to shared memory. */
typedef struct QuantValues {
    float of[MX_BYTE_CODES];
} QuantValues;

static inline QuantValues quant_values(MxQtype type) {
    QuantValues values = {};
    size_t n = (size_t)1 << mx_qtypes[type].bits;
    memcpy(values.of, mx_qtypes[type].values, n * sizeof *values.of);
    return values;
}

/* The array as [rows, width]; of every `tile` rows a column has one scale. */
typedef struct QuantArray {
    const uint8_t *codes;
    const float *scales;
    int64_t rows, width, tile;
    bool is_aligned; /* rows begin with whole packs */
} QuantArray;

static inline QuantArray quant_array(MxQuant quant, MxShape shape) {
    QuantArray x = {};
    x.width = 1;
    for (int d = quant.dim + 1; d < shape.rank; d++) x.width *= shape.dim[d];
    x.rows = x.width ? mx_shape_count(shape) / x.width : 0;
    x.tile = quant.tile;
    x.is_aligned = x.width % GPU_PACK == 0;
    return x;
}

/* quant_load_values — by all threads of a block; a barrier must follow. */
__device__ static inline void quant_load_values(const QuantValues &from, float *to) {
    for (int i = (int)threadIdx.x; i < MX_BYTE_CODES; i += (int)blockDim.x) to[i] = from.of[i];
}

/* quant_codes — the codes of n columns, from element `at` on; two words. Pairs take half of them.
 */
template <QuantKind KIND>
__device__ static inline uint2 quant_codes(const QuantArray &x, int64_t at, int n) {
    constexpr int A_BYTE = KIND == QUANT_PAIRS ? 2 : 1;
    const uint8_t *from = x.codes + at / A_BYTE;
    if (x.is_aligned && KIND == QUANT_PAIRS) return make_uint2(*(const uint32_t *)from, 0);
    if (x.is_aligned) return *(const uint2 *)from;
    uint32_t word[2] = {0, 0};
    for (int i = 0; i < n / A_BYTE; i++) word[i / 4] |= (uint32_t)from[i] << i % 4 * 8;
    return make_uint2(word[0], word[1]);
}

/* quant_value — of column i of a pack. */
template <QuantKind KIND>
__device__ static inline float quant_value(uint2 codes, int i, const float *values) {
    if (KIND == QUANT_PAIRS) return values[codes.x >> 4 * i & 15];
    uint32_t byte = (i < 4 ? codes.x : codes.y) >> i % 4 * 8 & 255;
    return KIND == QUANT_SIGNED ? (float)(int8_t)byte : values[byte];
}

/* quant_scales — of n columns of a row, from `column` on. */
__device__ static inline void quant_scales(const QuantArray &x, int64_t row, int64_t column, int n,
                                           float *to) {
    const float *from = x.scales + row / x.tile * x.width + column;
    if (x.is_aligned) {
        gpu_get_pack(GpuArray{(void *)from, MX_F32}, 0, to);
        return;
    }
#pragma unroll
    for (int i = 0; i < GPU_PACK; i++) to[i] = i < n ? from[i] : 0.0f;
}

/* quant_round — numbers of a pack to bf16 and back. */
__device__ static inline void quant_round(float *x) {
#ifdef __CUDACC__
#pragma unroll
    for (int i = 0; i < GPU_PACK; i += 2) {
        float2 y = __bfloat1622float2(__floats2bfloat162_rn(x[i], x[i + 1]));
        x[i] = y.x;
        x[i + 1] = y.y;
    }
#else
    for (int i = 0; i < GPU_PACK; i++) x[i] = gpu_round(x[i], MX_BF16);
#endif
}

/* ---- quant_few.cu: products of few rows, which read codes once and make no array of floats */

/* c [m, width of b] = a [m, rows of b] b, in a's dtype. */
typedef struct QuantFew {
    GpuArray a, c;
    QuantArray b;
    int64_t m;
    int64_t part, n_parts; /* rows of b that a block takes; how many blocks share a column */
    float *sums;           /* [parts][m][width of b] if there are several */
} QuantFew;

bool quant_is_few(MxQtype type, int64_t m);
/* quant_few_parts — fills in how work is divided; returns bytes of scratch for sums. */
size_t quant_few_parts(const MxDevice *device, QuantFew *few);
void quant_few_run(const MxDevice *device, MxQtype type, const QuantFew &few);

#endif
