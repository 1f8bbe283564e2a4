/* random.cu — initial values, dropout, noise and indices that are drawn. Element e of a stream uses
 * word e % 4 of Philox at counter e / 4, so that any part of an array can be made independently,
 * with the words of the CPU. */
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

/* ---- dropout and noise: a thread has a few columns of a row of what gets draws of its own, which
 * hold for a stretch of the rows that get the same */

enum { DROPOUT, NOISE };

typedef struct Random {
    GpuArray x, y;
    const int32_t *rows, *step;
    uint64_t seed, stream, least; /* words from this on are kept */
    int64_t alike, width;         /* rows with the same draws; columns, of what is here */
    int64_t between, n_dims;      /* rows of a row of the batch; dims of them that have draws … */
    int64_t dim[MX_MAX_RANK], whole[MX_MAX_RANK], first[MX_MAX_RANK]; /* … and the columns */
    unsigned tiles, stretches;
    int64_t stretch;   /* rows of it */
    float kept, range; /* of dropout; of noise */
    bool has_quads;
} Random;

/* Which element of the sequence the first of a row is. */
__device__ static inline uint64_t first_of(const Random &r, int64_t row) {
    int64_t rest = row % r.between, below = r.between;
    uint64_t at = (uint64_t)r.rows[row / r.between];
    for (int d = 0; d < r.n_dims; d++) {
        below /= r.dim[d];
        at = at * (uint64_t)r.whole[d] + (uint64_t)(r.first[d] + rest / below);
        rest %= below;
    }
    return at * (uint64_t)r.whole[r.n_dims] + (uint64_t)r.first[r.n_dims];
}

/* Factors or noise of columns from `from` on in the sequence. */
template <int KIND>
__device__ static inline void draw_quad(const Random &r, uint64_t from, float *drawn) {
    uint32_t word[2 * WORDS];
    uint64_t seed = key_of(r.seed, r.stream, *r.step);
    int skipped = (int)(from % WORDS);
    philox(seed, r.stream, from / WORDS, word);
    if (skipped) philox(seed, r.stream, from / WORDS + 1, word + WORDS);
#pragma unroll
    for (int i = 0; i < GPU_QUAD; i++) {
        uint32_t own = word[i];
#pragma unroll
        for (int k = 1; k < WORDS; k++) own = skipped == k ? word[i + k] : own;
        drawn[i] = KIND == NOISE   ? r.range * (2.0f * uniform(own) - 1.0f)
                   : own < r.least ? 0.0f
                                   : r.kept;
    }
}

template <int KIND> __device__ static inline float applied(float x, float drawn) {
    if (KIND == NOISE) return x + drawn;
    return drawn > 0.0f ? x * drawn : 0.0f;
}

/* Rows [row, end) of four columns, ABREAST rows at a time. */
template <int KIND>
__device__ static inline void apply_quads(const Random &r, int64_t at, int64_t row, int64_t end,
                                          const float *drawn) {
    constexpr int ABREAST = 4;
    for (; row < end; row += ABREAST) {
        GpuQuad quad[ABREAST];
#pragma unroll
        for (int k = 0; k < ABREAST; k++)
            if (row + k < end) quad[k] = gpu_load_quad(r.x, at + (row + k) * r.width);
#pragma unroll
        for (int k = 0; k < ABREAST; k++) {
            float x[GPU_QUAD];
            if (row + k >= end) break;
            gpu_open_quad(r.x.dtype, quad[k], x);
            for (int i = 0; i < GPU_QUAD; i++) x[i] = applied<KIND>(x[i], drawn[i]);
            gpu_put_quad(r.y, at + (row + k) * r.width, x);
        }
    }
}

template <int KIND> __global__ void __launch_bounds__(GPU_BLOCK, 4) random_kernel(Random r) {
    int64_t column = ((int64_t)(blockIdx.x % r.tiles) * GPU_BLOCK + threadIdx.x) * GPU_QUAD;
    int64_t top = blockIdx.x / r.tiles / r.stretches * r.alike, at = top * r.width + column;
    int64_t row = blockIdx.x / r.tiles % r.stretches * r.stretch;
    int64_t end = gpu_min(r.alike, row + r.stretch);
    if (column >= r.width) return;
    float drawn[GPU_QUAD];
    draw_quad<KIND>(r, first_of(r, top) + (uint64_t)column, drawn);
    if (r.has_quads) {
        apply_quads<KIND>(r, at, row, end, drawn);
        return;
    }
    for (; row < end; row++)
        for (int i = 0; i < gpu_min(GPU_QUAD, r.width - column); i++) {
            int64_t place = at + row * r.width + i;
            gpu_put(r.y, place, applied<KIND>(gpu_get(r.x, place), drawn[i]));
        }
}

static Random random_of(const MxKernelCall *call) {
    const MxRandomAttr *attr = (const MxRandomAttr *)call->attr;
    MxShape x = call->in_type[0].shape;
    Random r = {gpu_in(call, 0), gpu_out(call, 0), (const int32_t *)call->in[1],
                (const int32_t *)call->in[2]};
    r.seed = attr->seed, r.stream = attr->stream;
    r.width = x.dim[x.rank - 1], r.between = 1;
    for (int d = 1; d < x.rank; d++) {
        bool is_last = d == x.rank - 1;
        if (!is_last) r.between *= x.dim[d];
        if (!is_last && attr->by_column) continue;
        r.dim[r.n_dims] = x.dim[d];
        r.whole[r.n_dims] = attr->whole.dim[d], r.first[r.n_dims] = attr->first[d];
        if (!is_last) r.n_dims++;
    }
    r.alike = attr->by_column ? r.between : 1;
    r.has_quads = gpu_has_quads(r.x, r.width) && gpu_has_quads(r.y, r.width);
    r.tiles = gpu_blocks(r.width, GPU_BLOCK * GPU_QUAD);
    r.stretch = 16;
    r.stretches = gpu_blocks(r.alike, r.stretch);
    return r;
}

template <int KIND> static void random_run(const MxDevice *device, const MxKernelCall *call) {
    const double range = 4294967296.0; /* of a word */
    const double amount = ((const MxRandomAttr *)call->attr)->amount;
    Random r = random_of(call);
    int64_t groups = call->in_type[0].shape.dim[0] * (r.between / r.alike);
    r.range = (float)amount;
    r.least = KIND == DROPOUT ? (uint64_t)(amount * range) : 0;
    r.kept = amount < 1 ? (float)(1 / (1 - amount)) : 0.0f;
    if (r.y.data)
        gpu_launch(device, random_kernel<KIND>, (unsigned)groups * r.tiles * r.stretches, GPU_BLOCK,
                   0, r);
}
GPU_KERNEL(dropout, .run = random_run<DROPOUT>);
GPU_KERNEL(noise, .run = random_run<NOISE>);

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
