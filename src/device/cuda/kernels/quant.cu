/* quant.cu — weights in few bits: encoding, decoding, and products of many rows, for which a slab
 * of the weight is decoded at a time. Products of few rows are in quant_few.cu. */
#include "quant.cuh"
#include "slabs.cuh"

namespace gpu_quant {

/* ---- codes to floats */

/* Part of an array: rows from `row` on, columns from `column` on. */
typedef struct Decoding {
    QuantArray from;
    int64_t row, column, n_rows, n_columns;
    GpuArray to; /* [n_rows, n_columns] */
    bool is_aligned;
} Decoding;

static constexpr int DECODED_ROWS = 16; /* of one scale, that a thread takes */

/* Rows [begin, end) that follow one another and have the same scales. */
typedef struct Rows {
    int64_t begin, end;
} Rows;

__host__ __device__ static int64_t pieces_of_tile(const QuantArray &x) {
    return (x.tile + DECODED_ROWS - 1) / DECODED_ROWS;
}

__device__ static Rows rows_of_piece(const Decoding &d, int64_t piece) {
    int64_t pieces = pieces_of_tile(d.from), tile = d.row / d.from.tile + piece / pieces;
    int64_t begin = tile * d.from.tile + piece % pieces * DECODED_ROWS;
    int64_t end = gpu_min(begin + DECODED_ROWS, (tile + 1) * d.from.tile);
    return Rows{gpu_max(begin, d.row), gpu_min(end, d.row + d.n_rows)};
}

/* A thread takes a pack of columns of some rows. */
template <QuantKind KIND>
__global__ void __launch_bounds__(GPU_BLOCK) decode_kernel(Decoding d, QuantValues all) {
    __shared__ float values[MX_BYTE_CODES];
    quant_load_values(all, values);
    __syncthreads();
    int64_t packs = (d.n_columns + GPU_PACK - 1) / GPU_PACK;
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x, at = i % packs * GPU_PACK;
    Rows rows = rows_of_piece(d, i / packs);
    if (rows.begin >= rows.end) return;
    int n = (int)gpu_min(GPU_PACK, d.n_columns - at);
    float scales[GPU_PACK], y[GPU_PACK];
    quant_scales(d.from, rows.begin, d.column + at, n, scales);
    for (int64_t row = rows.begin; row < rows.end; row++) {
        uint2 codes = quant_codes<KIND>(d.from, row * d.from.width + d.column + at, n);
        int64_t to = (row - d.row) * d.n_columns + at;
#pragma unroll
        for (int j = 0; j < GPU_PACK; j++) y[j] = quant_value<KIND>(codes, j, values) * scales[j];
        if (d.is_aligned) {
            gpu_put_pack(d.to, to, y);
            continue;
        }
#pragma unroll
        for (int j = 0; j < GPU_PACK; j++)
            if (j < n) gpu_put(d.to, to + j, y[j]);
    }
}

static void decode(const MxDevice *device, MxQtype type, Decoding d) {
    if (!d.n_rows || !d.n_columns) return;
    d.from.is_aligned = d.from.is_aligned && !(d.column % GPU_PACK) && !(d.n_columns % GPU_PACK);
    d.is_aligned = !(d.n_columns % GPU_PACK);
    int64_t tiles = (d.row + d.n_rows - 1) / d.from.tile - d.row / d.from.tile + 1;
    int64_t packs = (d.n_columns + GPU_PACK - 1) / GPU_PACK;
    auto kernel = quant_kind(type) == QUANT_PAIRS    ? decode_kernel<QUANT_PAIRS>
                  : quant_kind(type) == QUANT_SIGNED ? decode_kernel<QUANT_SIGNED>
                                                     : decode_kernel<QUANT_TABLE>;
    gpu_launch(device, kernel, gpu_blocks(packs * tiles * pieces_of_tile(d.from)), GPU_BLOCK, 0, d,
               quant_values(type));
}

static void dequantize_run(const MxDevice *device, const MxKernelCall *call) {
    MxQuant quant = ((const MxQuantAttr *)call->attr)->quant;
    if (!call->out[0]) return;
    Decoding d = {};
    d.from = quant_array(quant, call->out_type[0].shape);
    d.from.codes = (const uint8_t *)call->in[0];
    d.from.scales = (const float *)call->in[1];
    d.n_rows = d.from.rows;
    d.n_columns = d.from.width;
    d.to = gpu_out(call, 0);
    decode(device, quant.type, d);
}
GPU_KERNEL(dequantize, .run = dequantize_run);

/* ---- floats to codes */

/* The code of a number from 0 to 1 with n decades, of which the i-th has 2^i codes. What is less
 * than all, or no number, is 0. */
__device__ static int code_of_decades(float x, int n) {
    const float lowest = 0.1f, width = 0.9f;
    float ten = 1.0f, most = 1.0f;
    int i = 0;
    for (int k = 1; k < n; k++) most *= 10.0f; /* exact, as all are below 2^24 */
    x = __fmul_rn(x, most);
    if (!(x >= lowest)) return 0;
    for (int k = 0; k < n - 1 && x >= ten; k++) {
        i++;
        ten *= 10.0f;
    }
    int codes = 1 << i, at = (int)((x / ten - lowest) * ((float)codes / width));
    return codes + (at < 0 ? 0 : at < codes ? at : codes - 1);
}

/* Differences are of the rounded quotient: no fused operation may make x. */
__device__ static int code_of_nf4(float x, const float *values) {
    float least = fabsf(values[0] - x);
    int best = 0;
    for (int k = 1; k < MX_HALF_BYTE_CODES; k++) {
        float distance = fabsf(values[k] - x);
        if (distance < least) best = k;
        least = distance < least ? distance : least;
    }
    return best;
}

typedef struct Encoding {
    const float *x;
    uint8_t *codes; /* NULL, like scales: nobody wants it */
    float *scales;
    int64_t n_blocks, width, tile;
    MxQtype type;
    MxGridRow grid; /* width 0 = of none */
    bool by_f16;
    MxScaleForm scale_form;
    int a_byte;
    float inverse_bound;
} Encoding;

/* Of the grid's numbers with the sign of x, whose codes follow one another, the nearest to x; of
 * two as near the one with an even code. */
__device__ static int code_of_float(float x, const float *values, int bits, float most) {
    float size = fminf(fabsf(x), most);
    int sign = x < 0 ? 1 << (bits - 1) : 0, low = 0, high = (1 << (bits - 1)) - 1;
    while (low < high) { /* the last one that is not above it */
        int middle = (low + high + 1) / 2;
        if (values[middle] <= size) /* not of one that is no number */
            low = middle;
        else
            high = middle - 1;
    }
    if (values[low] >= most) return sign | low;
    float below = size - values[low], above = values[low + 1] - size;
    return sign | (above < below || (above == below && low % 2) ? low + 1 : low);
}

__device__ static int code_of(const Encoding &e, float x, const float *values) {
    constexpr int DYNAMIC_DECADES = 7, SQUARE_DECADES = 8, SIGN = 128;
    const MxQtype type = e.type;
    if (type == MX_NF4) return code_of_nf4(x, values);
    if (e.grid.is_whole) {
        float y = nearbyintf(x);
        return (int)(y < e.grid.least  ? e.grid.least
                     : y > e.grid.most ? e.grid.most
                                       : y) &
               ((1 << e.grid.width) - 1);
    }
    if (e.by_f16) {
        uint32_t bits = __float_as_uint(x);
        x = __uint_as_float((bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu);
    }
    if (e.grid.width) return x == x ? code_of_float(x, values, e.grid.width, e.grid.most) : 0;
    if (type == MX_SQUARES) return code_of_decades(x > 0 ? sqrtf(x) : 0.0f, SQUARE_DECADES);
    int code = code_of_decades(fabsf(x), DYNAMIC_DECADES);
    return code && x < 0 ? code | SIGN : code;
}

/* The next power of two; or a float of 8 bits, whose numbers above 2^-6 are an eighth of their
 * power of two apart, and 2^-9 below. */
__device__ static float rounded_scale(MxScaleForm form, float scale) {
    int exponent;
    if (form == MX_SCALE_FLOAT) return scale;
    float fraction = frexpf(scale, &exponent);
    if (form == MX_SCALE_POWER) return ldexpf(1.0f, fraction > 0.5f ? exponent : exponent - 1);
    int step = (exponent - 1 > -6 ? exponent - 1 : -6) - 3;
    return fminf(ldexpf(nearbyintf(ldexpf(scale, -step)), step), 448.0f);
}

/* A thread takes the columns of a byte, of one block. */
__global__ void __launch_bounds__(GPU_BLOCK) encode_kernel(Encoding e, QuantValues all) {
    constexpr int MOST = 2;
    const float smallest = 1.0842021724855044e-19f; /* its square is the smallest normal number */
    __shared__ float values[MX_BYTE_CODES];
    quant_load_values(all, values);
    __syncthreads();
    int64_t bytes = e.width / e.a_byte, i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= e.n_blocks * bytes) return;
    int64_t block = i / bytes, column = i % bytes * e.a_byte;
    const float *x = e.x + block * e.tile * e.width + column;
    float scale[MOST] = {0, 0}, inverse[MOST] = {0, 0};
    for (int64_t row = 0; row < e.tile; row++)
        for (int j = 0; j < e.a_byte; j++) {
            float size = fabsf(x[row * e.width + j]);
            scale[j] = size > scale[j] ? size : scale[j];
        }
    for (int j = 0; j < e.a_byte; j++) {
        scale[j] = scale[j] * e.inverse_bound;
        if (scale[j] < smallest) scale[j] = 1.0f;
        scale[j] = rounded_scale(e.scale_form, scale[j]);
        inverse[j] = 1.0f / scale[j];
        if (e.scales) e.scales[block * e.width + column + j] = scale[j];
    }
    for (int64_t row = 0; row < e.tile && e.codes; row++) {
        int byte = 0;
        for (int j = 0; j < e.a_byte; j++)
            byte |= code_of(e, __fmul_rn(x[row * e.width + j], inverse[j]), values) << 4 * j;
        e.codes[(block * e.tile + row) * bytes + column / e.a_byte] = (uint8_t)byte;
    }
}

static void quantize_run(const MxDevice *device, const MxKernelCall *call) {
    MxQuant quant = ((const MxQuantAttr *)call->attr)->quant;
    QuantArray array = quant_array(quant, call->in_type[0].shape);
    Encoding e = {};
    e.x = (const float *)call->in[0];
    e.codes = (uint8_t *)call->out[0];
    e.scales = (float *)call->out[1];
    e.n_blocks = array.rows / quant.tile;
    e.width = array.width;
    e.tile = quant.tile;
    e.type = quant.type;
    e.a_byte = mx_qtype_a_byte(quant.type);
    e.grid = mx_grids[mx_qtypes[quant.type].grid];
    e.by_f16 = mx_qtypes[quant.type].by_f16;
    e.scale_form = mx_qtypes[quant.type].scale;
    e.inverse_bound = 1 / mx_qtypes[quant.type].bound;
    gpu_launch(device, encode_kernel, gpu_blocks(e.n_blocks * (e.width / e.a_byte)), GPU_BLOCK, 0,
               e, quant_values(quant.type));
}
GPU_KERNEL(quantize, .run = quantize_run);

/* ---- products */

typedef struct QuantDot {
    MxQtype type;
    bool is_few;
    QuantFew few;
    Slabs slabs;
    Decoding decoding;
} QuantDot;

static QuantDot quant_dot_of(const MxDevice *device, const MxKernelCall *call, size_t *sums) {
    const MxQuantDotAttr *attr = (const MxQuantDotAttr *)call->attr;
    MxShape w = mx_quant_shape(attr->quant, call->in_type[1].shape);
    MxDotSizes size = mx_dot_sizes(call->in_type[0].shape, w, &attr->dot);
    QuantDot q = {};
    GpuProductSpec spec = {};
    spec.m = size.m, spec.n = size.n, spec.k = size.k;
    spec.lda = size.k, spec.ldc = size.n;
    spec.batch = 1;
    spec.trans_b = attr->dot.kind == MX_DOT_NT;
    spec.in = call->in_type[0].dtype, spec.out = call->out_type[0].dtype;
    q.type = attr->quant.type;
    q.slabs = slabs_of(spec, size.k, spec.in);
    q.is_few = !spec.trans_b && quant_is_few(q.type, size.m);
    q.decoding.from = quant_array(attr->quant, w);
    q.few.b = q.decoding.from;
    q.few.m = size.m;
    *sums = quant_few_parts(device, &q.few);
    return q;
}

static size_t quant_dot_scratch(const MxDevice *device, const MxKernelCall *call) {
    size_t sums;
    QuantDot q = quant_dot_of(device, call, &sums);
    return q.is_few ? sums : q.slabs.bytes + slabs_scratch(device, &q.slabs);
}

static bool quant_dot_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    size_t sums;
    QuantDot *q = mx_new(device->arena, QuantDot);
    *q = quant_dot_of(device, call, &sums);
    call->state = q;
    return q->is_few || slabs_prepare(device, &q->slabs, err);
}

static void multiply_few(const MxDevice *device, const MxKernelCall *call, const QuantDot *q) {
    QuantFew few = q->few;
    few.a = gpu_in(call, 0);
    few.b.codes = (const uint8_t *)call->in[1];
    few.b.scales = (const float *)call->in[2];
    few.c = gpu_out(call, 0);
    few.sums = (float *)call->scratch;
    quant_few_run(device, q->type, few);
}

/* A slab of the weight, then its product. */
static void multiply_slabs(const MxDevice *device, const MxKernelCall *call, const QuantDot *q) {
    const Slabs *s = &q->slabs;
    void *scratch = call->scratch;
    Decoding d = q->decoding;
    d.from.codes = (const uint8_t *)call->in[1];
    d.from.scales = (const float *)call->in[2];
    d.to = GpuArray{gpu_carve(&scratch, s->bytes), s->spec.in};
    d.n_rows = s->spec.k;
    d.n_columns = s->spec.k;
    for (int64_t at = 0, n; at < s->spec.n; at += n) {
        n = gpu_min(s->columns, s->spec.n - at);
        (s->spec.trans_b ? d.row : d.column) = at;
        (s->spec.trans_b ? d.n_rows : d.n_columns) = n;
        decode(device, q->type, d);
        slabs_multiply(device, s, n, call->in[0], d.to.data,
                       (char *)call->out[0] + (size_t)at * mx_dtype_bytes(s->spec.out), scratch);
    }
}

static void quant_dot_run(const MxDevice *device, const MxKernelCall *call) {
    const QuantDot *q = (const QuantDot *)call->state;
    const GpuProductSpec *spec = &q->slabs.spec;
    size_t bytes = (size_t)(spec->m * spec->n) * mx_dtype_bytes(spec->out);
    if (!call->out[0] || !bytes) return;
    if (!spec->k)
        gpu_runtime_zero(gpu_of(device), call->out[0], bytes);
    else
        (q->is_few ? multiply_few : multiply_slabs)(device, call, q);
}
GPU_KERNEL(quant_dot, .scratch = quant_dot_scratch, .prepare = quant_dot_prepare,
           .run = quant_dot_run);

} // namespace gpu_quant
