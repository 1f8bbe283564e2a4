/* random.cu — initial values, dropout and indices that are drawn. Element e of a stream uses word
 * e % 4 of Philox at counter e / 4, so that any part of an array can be made independently, with
 * the words of the CPU. */
#include "device/cuda/gpu.cuh"

namespace gpu_random {

static constexpr int WORDS = 4;

/* mx_philox, for threads. */
__device__ static inline void philox(uint64_t seed, uint64_t stream, uint64_t counter,
                                     uint32_t *word) {
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        uint32_t high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0;
        c2 = high0 ^ c3 ^ k1;
        c1 = low1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    word[0] = c0, word[1] = c1, word[2] = c2, word[3] = c3;
}

/* The key of a step's random sequence. */
__device__ static inline uint64_t key_of(uint64_t seed, uint64_t stream, int32_t step) {
    uint32_t word[WORDS];
    philox(seed, stream, (uint64_t)step, word);
    return (uint64_t)word[1] << 32 | word[0];
}

/* mx_uniform, for threads. */
__device__ static inline float uniform(uint32_t bits) {
    return ((float)(bits >> 9) + 0.5f) * (1.0f / 8388608.0f);
}

/* ---- numbers of words: a counter's */

/* Sine and cosine of 2 pi u, u in [0, 1]; absolute error below 2e-7. Polynomials after Cephes. */
__device__ static inline void sincos_turns(float u, float *sine, float *cosine) {
    float quarters = u * 4.0f;
    int q = (int)(quarters + 0.5f);
    float r = (quarters - (float)q) * 1.57079633f, z = r * r;
    float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
    float c = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) *
                  (z * z) -
              0.5f * z + 1.0f;
    float swap_s = q & 1 ? c : s, swap_c = q & 1 ? s : c;
    *sine = q & 2 ? -swap_s : swap_s;
    *cosine = (q + 1) & 2 ? -swap_c : swap_c;
}

/* Box-Muller: words 0, 1 make elements 0, 1 and words 2, 3 make 2, 3. */
__device__ static inline void normals(const uint32_t *word, float deviation, float *z) {
#pragma unroll
    for (int w = 0; w < WORDS; w += 2) {
        float radius = deviation * sqrtf(-2.0f * logf(uniform(word[w]))), sine, cosine;
        sincos_turns(uniform(word[w + 1]), &sine, &cosine);
        z[w] = radius * cosine;
        z[w + 1] = radius * sine;
    }
}

/* A normal truncated at two deviations, by the inverse of its distribution. The inverse error
 * function is the central polynomial of Giles (GPU Computing Gems 2011); here |y| <= erf(sqrt 2),
 * where it holds. */
__device__ static inline float truncated(uint32_t bits) {
    const float erf_sqrt2 = 0.954499736f, sqrt2 = 1.41421356f;
    float y = (2.0f * uniform(bits) - 1.0f) * erf_sqrt2;
    float w = -logf((1.0f - y) * (1.0f + y)) - 2.5f;
    float p = 2.81022636e-08f;
    p = p * w + 3.43273939e-07f;
    p = p * w - 3.5233877e-06f;
    p = p * w - 4.39150654e-06f;
    p = p * w + 0.00021858087f;
    p = p * w - 0.00125372503f;
    p = p * w - 0.00417768164f;
    p = p * w + 0.246640727f;
    p = p * w + 1.50140941f;
    return fminf(fmaxf(sqrt2 * (p * y), -2.0f), 2.0f);
}

__device__ static inline float number_of(MxFill fill, uint32_t word, float value) {
    const float of_truncated = 0.879625661f; /* deviation of a standard normal cut at 2 */
    const float sqrt3 = 1.73205081f;
    if (fill == MX_FILL_TRUNCATED_NORMAL) return truncated(word) * (value / of_truncated);
    if (fill == MX_FILL_UNIFORM) return sqrt3 * value * (2.0f * uniform(word) - 1.0f);
    return logf(value * uniform(word));
}

__device__ static inline void numbers_of(MxFill fill, const uint32_t *word, float value, float *z) {
    if (fill == MX_FILL_NORMAL) {
        normals(word, value, z);
        return;
    }
#pragma unroll
    for (int w = 0; w < WORDS; w++) z[w] = number_of(fill, word[w], value);
}

/* ---- init */

typedef struct Init {
    GpuArray out;
    MxShape part, whole;
    int64_t start[MX_MAX_RANK], n;
    uint64_t seed, stream;
    MxFill fill;
    float value;
} Init;

/* Where element `at` of a part stands in the whole. */
__device__ static inline int64_t place_in_whole(const Init &init, int64_t at) {
    int64_t place = 0, stride = 1;
    if (!init.whole.rank) return at;
    for (int d = init.part.rank - 1; d >= 0; d--) {
        place += (init.start[d] + at % init.part.dim[d]) * stride;
        stride *= init.whole.dim[d];
        at /= init.part.dim[d];
    }
    return place;
}

/* A thread has as many elements as a counter, of which a part may have fewer next to each other. */
__global__ void __launch_bounds__(GPU_BLOCK) init_kernel(const __grid_constant__ Init init) {
    int64_t first = ((int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x) * WORDS, counter = -1;
    uint32_t word[WORDS];
    float z[WORDS];
    for (int64_t i = first; i < gpu_min(first + WORDS, init.n); i++) {
        int64_t place = place_in_whole(init, i);
        if (place / WORDS != counter) {
            counter = place / WORDS;
            philox(init.seed, init.stream, (uint64_t)counter, word);
            numbers_of(init.fill, word, init.value, z);
        }
        int w = (int)(place % WORDS);
        gpu_put(init.out, i, w < 2 ? (w ? z[1] : z[0]) : (w == 2 ? z[2] : z[3]));
    }
}

__global__ void __launch_bounds__(GPU_BLOCK)
    cycle_kernel(const __grid_constant__ Init init, int32_t *numbers) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= init.n) return;
    int64_t number = place_in_whole(init, i) % (int64_t)init.value;
    if (numbers)
        numbers[i] = (int32_t)number;
    else
        gpu_put(init.out, i, (float)number);
}

template <class T>
__global__ void __launch_bounds__(GPU_BLOCK) constant_kernel(T *out, int64_t n, T value) {
    int64_t step = (int64_t)gridDim.x * GPU_BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x; i < n; i += step)
        out[i] = value;
}

template <class T> static void fill_with(const MxDevice *device, void *out, int64_t n, T value) {
    const int64_t most_blocks = 4096;
    gpu_launch(device, constant_kernel<T>, (unsigned)gpu_min(most_blocks, gpu_blocks(n)), GPU_BLOCK,
               0, (T *)out, n, value);
}

static void init_constant(const MxDevice *device, const MxKernelCall *call, double value) {
    MxDtype dtype = call->out_type[0].dtype;
    int64_t n = mx_shape_count(call->out_type[0].shape);
    if (value == 0)
        gpu_runtime_zero(gpu_of(device), call->out[0], (size_t)n * mx_dtype_bytes(dtype));
    else if (dtype == MX_F32)
        fill_with(device, call->out[0], n, (float)value);
    else if (dtype == MX_BF16)
        fill_with(device, call->out[0], n, mx_f32_to_bf16((float)value));
    else
        fill_with(device, call->out[0], n, (int32_t)value);
}

static void init_run(const MxDevice *device, const MxKernelCall *call) {
    const MxInitAttr *attr = (const MxInitAttr *)call->attr;
    MxDtype dtype = attr->type.dtype;
    bool is_constant = attr->fill == MX_FILL_CONSTANT;
    bool is_cycle = attr->fill == MX_FILL_CYCLE;
    MX_ASSERT(dtype == MX_F32 || (dtype == MX_BF16 && !is_cycle) ||
              (dtype == MX_I32 && (is_constant || is_cycle)));
    if (!call->out[0]) return;
    if (is_constant) {
        init_constant(device, call, attr->value);
        return;
    }
    Init init = {gpu_out(call, 0), attr->type.shape, attr->whole};
    memcpy(init.start, attr->start, sizeof init.start);
    init.n = mx_shape_count(attr->type.shape);
    init.seed = attr->seed, init.stream = attr->stream;
    init.fill = attr->fill, init.value = (float)attr->value;
    if (is_cycle)
        gpu_launch(device, cycle_kernel, gpu_blocks(init.n), GPU_BLOCK, 0, init,
                   dtype == MX_I32 ? (int32_t *)call->out[0] : nullptr);
    else
        gpu_launch(device, init_kernel, gpu_blocks(init.n, GPU_BLOCK * WORDS), GPU_BLOCK, 0, init);
}
GPU_KERNEL(init, .run = init_run);

/* ---- dropout: a thread has a few columns of a row of the batch, whose factors hold for a stretch
 * of the rows between */

typedef struct Dropout {
    GpuArray x, y;
    const int32_t *rows, *step;
    uint64_t seed, stream, least;         /* words from this on are kept */
    int64_t between, width, whole, first; /* width: of what is here */
    unsigned tiles, stretches;
    int64_t stretch; /* rows of it */
    float kept;
    bool has_quads;
} Dropout;

/* Of columns from `from` on in the sequence. */
__device__ static inline void find_factors(const Dropout &d, uint64_t from, float *factor) {
    uint32_t word[2 * WORDS];
    uint64_t seed = key_of(d.seed, d.stream, *d.step);
    int skipped = (int)(from % WORDS);
    philox(seed, d.stream, from / WORDS, word);
    philox(seed, d.stream, from / WORDS + 1, word + WORDS);
#pragma unroll
    for (int i = 0; i < GPU_QUAD; i++) {
        uint32_t own = word[i];
#pragma unroll
        for (int k = 1; k < WORDS; k++) own = skipped == k ? word[i + k] : own;
        factor[i] = own < d.least ? 0.0f : d.kept;
    }
}

__device__ static inline float dropped(float x, float factor) {
    return factor > 0.0f ? x * factor : 0.0f;
}

/* Rows [row, end) of four columns, ABREAST rows at a time. */
__device__ static inline void drop_quads(const Dropout &d, int64_t at, int64_t row, int64_t end,
                                         const float *factor) {
    constexpr int ABREAST = 4;
    for (; row < end; row += ABREAST) {
        GpuQuad quad[ABREAST];
#pragma unroll
        for (int k = 0; k < ABREAST; k++)
            if (row + k < end) quad[k] = gpu_load_quad(d.x, at + (row + k) * d.width);
#pragma unroll
        for (int k = 0; k < ABREAST; k++) {
            float x[GPU_QUAD];
            if (row + k >= end) break;
            gpu_open_quad(d.x.dtype, quad[k], x);
            for (int i = 0; i < GPU_QUAD; i++) x[i] = dropped(x[i], factor[i]);
            gpu_put_quad(d.y, at + (row + k) * d.width, x);
        }
    }
}

__global__ void __launch_bounds__(GPU_BLOCK, 4) dropout_kernel(Dropout d) {
    int64_t column = ((int64_t)(blockIdx.x % d.tiles) * GPU_BLOCK + threadIdx.x) * GPU_QUAD;
    int64_t b = blockIdx.x / d.tiles / d.stretches, at = b * d.between * d.width + column;
    int64_t row = blockIdx.x / d.tiles % d.stretches * d.stretch;
    int64_t end = gpu_min(d.between, row + d.stretch);
    if (column >= d.width) return;
    float factor[GPU_QUAD];
    find_factors(d, (uint64_t)d.rows[b] * (uint64_t)d.whole + (uint64_t)(d.first + column), factor);
    if (d.has_quads) {
        drop_quads(d, at, row, end, factor);
        return;
    }
    for (; row < end; row++)
        for (int i = 0; i < gpu_min(GPU_QUAD, d.width - column); i++) {
            int64_t place = at + row * d.width + i;
            gpu_put(d.y, place, dropped(gpu_get(d.x, place), factor[i]));
        }
}

static void dropout_run(const MxDevice *device, const MxKernelCall *call) {
    const MxDropoutAttr *attr = (const MxDropoutAttr *)call->attr;
    const double range = 4294967296.0; /* of a word */
    MxShape x = call->in_type[0].shape;
    Dropout d = {gpu_in(call, 0), gpu_out(call, 0), (const int32_t *)call->in[1],
                 (const int32_t *)call->in[2]};
    d.seed = attr->seed, d.stream = attr->stream;
    d.least = (uint64_t)(attr->rate * range);
    d.kept = attr->rate < 1 ? (float)(1 / (1 - attr->rate)) : 0.0f;
    d.width = x.dim[x.rank - 1], d.between = 1;
    d.whole = attr->width, d.first = attr->first;
    for (int i = 1; i < x.rank - 1; i++) d.between *= x.dim[i];
    d.has_quads = gpu_has_quads(d.x, d.width) && gpu_has_quads(d.y, d.width);
    d.tiles = gpu_blocks(d.width, GPU_BLOCK * GPU_QUAD);
    d.stretch = 16;
    d.stretches = gpu_blocks(d.between, d.stretch);
    if (d.y.data)
        gpu_launch(device, dropout_kernel, (unsigned)x.dim[0] * d.tiles * d.stretches, GPU_BLOCK, 0,
                   d);
}
GPU_KERNEL(dropout, .run = dropout_run);

/* ---- indices: a thread has one */

typedef struct Draw {
    const int32_t *rows, *step;
    int32_t *out;
    uint64_t seed, stream, of;
    int64_t n, each, whole, first; /* of all, and of a row: here, of all ranks, of others before */
} Draw;

__global__ void __launch_bounds__(GPU_BLOCK) draw_ids_kernel(Draw d) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= d.n) return;
    uint64_t at = (uint64_t)(d.rows[i / d.each] * d.whole + d.first + i % d.each);
    uint32_t word[WORDS], own;
    philox(key_of(d.seed, d.stream, *d.step), d.stream, at / WORDS, word);
    own = word[0];
#pragma unroll
    for (int k = 1; k < WORDS; k++) own = (int)(at % WORDS) == k ? word[k] : own;
    d.out[i] = (int32_t)(own * d.of >> 32);
}

static void draw_ids_run(const MxDevice *device, const MxKernelCall *call) {
    const MxDrawIdsAttr *attr = (const MxDrawIdsAttr *)call->attr;
    MxShape x = call->in_type[0].shape;
    Draw d = {(const int32_t *)call->in[1], (const int32_t *)call->in[2], (int32_t *)call->out[0]};
    d.seed = attr->seed, d.stream = attr->stream, d.of = (uint64_t)x.dim[2];
    d.each = x.dim[1] * attr->k, d.n = x.dim[0] * d.each;
    d.whole = attr->length * attr->k, d.first = attr->first * attr->k;
    if (d.out && d.n)
        gpu_launch(device, draw_ids_kernel, gpu_blocks(d.n, GPU_BLOCK), GPU_BLOCK, 0, d);
}
GPU_KERNEL(draw_ids, .run = draw_ids_run);

} // namespace gpu_random
