/* delta.cu — the gated delta rule. A block takes some columns of the values of a head, which do not
 * depend on the others, and goes through the chunks of a row. */
#include "delta.cuh"

namespace gpu_delta {

static constexpr int64_t COLUMNS = 64; /* of values that a block takes at most */

typedef struct Forward {
    Delta d;
    GpuArray out;                         /* data NULL = nobody wants it, like `kept` */
    const int32_t *positions, *sequences; /* of memories that are kept; NULL = they are not */
    const float *memory;
    float *kept;
} Forward;

/* A holds what keys make of keys, then what they make of queries. */
typedef struct Tiles {
    Tile k, q, A, S, U;
} Tiles;

__host__ __device__ static Tiles lay_out(const Delta &d, TileRoom *room) {
    Tiles x;
    x.S = tile_take(room, d.H, d.W);
    x.k = tile_take(room, CHUNK, d.H);
    x.A = tile_take(room, CHUNK, CHUNK);
    x.U = tile_take(room, CHUNK, d.W);
    x.q = tile_take(room, CHUNK, d.H);
    return x;
}

/* U, from the memory before the chunk; and in A what keys make of queries. */
__device__ static void prepare(const Delta &d, const Span &s, const Tiles &x, const Numbers *y) {
    load_rows(d, s, head_of_keys(d, s, d.q), y->unread, x.q);
    load_rows(d, s, head_of_keys(d, s, d.k), y->silent, x.k);
    load_rows(d, s, head_of_values(d, s, d.v), y->silent, x.U);
    __syncthreads();
    tile_product<false, true>(x.k, x.k, CHUNK, CHUNK, d.H, nullptr,
                              [&](int64_t t, int64_t j, float sum) {
                                  float D = j < t ? weight_of_pair(y, t, j) : 0.0f;
                                  x.A.x[t * x.A.step + j] = sum * D;
                              });
    tile_product<false, false>(
        x.k, x.S, CHUNK, d.W, d.H, nullptr,
        [&](int64_t t, int64_t w, float sum) { x.U.x[t * x.U.step + w] -= y->e[t] * sum; });
    __syncthreads();
    solve(y, x.A, x.U, d.W);
    tile_product<false, true>(x.q, x.k, CHUNK, CHUNK, d.H, nullptr,
                              [&](int64_t t, int64_t j, float sum) {
                                  x.A.x[t * x.A.step + j] = sum * weight_of_pair(y, t, j);
                              });
    __syncthreads();
}

__device__ static void recall(const Forward &f, const Span &s, const Tiles &x, const Numbers *y) {
    const Delta &d = f.d;
    Head h = head_of_values(d, s, f.out);
    tile_each<false>(CHUNK, d.W, [&](int64_t i, int64_t j) {
        float sum[TILE_FOUR][TILE_FOUR] = {};
        tile_sum<false, false>(x.q, x.S, i, j, d.W, d.H, nullptr, sum);
#pragma unroll
        for (int r = 0; r < TILE_FOUR; r++)
#pragma unroll
            for (int c = 0; c < TILE_FOUR; c++) sum[r][c] *= y->e[i + r];
        tile_sum<false, false>(x.A, x.U, i, j, d.W, CHUNK, nullptr, sum);
        tile_give<false>(i, j, d.W, sum, [&](int64_t t, int64_t w, float value) {
            if (t < s.n && h.column + w < h.width) gpu_put(f.out, element_at(d, s, h, t, w), value);
        });
    });
    __syncthreads();
}

__device__ static void remember(const Delta &d, const Tiles &x, const Numbers *y) {
    tile_product<true, false>(x.k, x.U, d.H, d.W, CHUNK, y->rest,
                              [&](int64_t h, int64_t w, float sum) {
                                  float *S = x.S.x + h * x.S.step + w;
                                  *S = y->keep * *S + sum;
                              });
    __syncthreads();
}

/* Tokens of a row of the piece, before padding. */
__device__ static int64_t tokens_of(const Forward &f, int64_t b) {
    int64_t n = 0;
    if (!f.positions) return f.d.time;
    while (n < f.d.time && f.positions[b * f.d.time + n] >= 0) n++;
    return n;
}

__device__ static int64_t memory_at(const Forward &f, const Span &s) {
    int64_t heads = f.d.key_heads * f.d.group;
    return (f.sequences[s.b] * heads + s.head) * f.d.width * f.d.value_width;
}

/* The memory that is kept, or zeros. */
__device__ static void begin(const Forward &f, const Span &s, const Tiles &x, int64_t n) {
    const Delta &d = f.d;
    bool goes_on = f.positions && n && f.positions[s.b * d.time] > 0;
    const float *from = goes_on ? f.memory + memory_at(f, s) : nullptr;
    for (int64_t i = threadIdx.x; i < d.H * d.W; i += GPU_BLOCK) {
        int64_t h = i / d.W, w = i % d.W, column = s.column + w;
        bool is_there = goes_on && h < d.width && column < d.value_width;
        x.S.x[h * x.S.step + w] = is_there ? from[h * d.value_width + column] : 0.0f;
    }
    __syncthreads();
}

/* Keeps the memory, and lets padding read zeros. */
__device__ static void end(const Forward &f, const Span &s, const Tiles &x, int64_t n) {
    const Delta &d = f.d;
    int64_t columns = gpu_min(d.W, d.value_width - s.column);
    float *to = f.kept && n ? f.kept + memory_at(f, s) : nullptr;
    for (int64_t i = threadIdx.x; to && i < d.width * columns; i += GPU_BLOCK) {
        int64_t h = i / columns, w = i % columns;
        to[h * d.value_width + s.column + w] = x.S.x[h * x.S.step + w];
    }
    Span rest = {s.b, n, 0, s.head, s.column};
    Head h = head_of_values(d, s, f.out);
    for (int64_t i = threadIdx.x; f.out.data && i < (d.time - n) * columns; i += GPU_BLOCK)
        gpu_put(f.out, element_at(d, rest, h, i / columns, i % columns), 0.0f);
    __syncthreads();
}

__global__ void __launch_bounds__(GPU_BLOCK) delta_kernel(Forward f) {
    __shared__ Numbers numbers;
    const Delta &d = f.d;
    TileRoom room = {(char *)gpu_dynamic<float>(), d.scratch + blockIdx.x * d.block_bytes, 0, 0,
                     SHARED_MOST};
    Tiles x = lay_out(d, &room);
    int64_t slices = (d.value_width + d.W - 1) / d.W, heads = d.key_heads * d.group;
    for (int64_t i = blockIdx.x; i < d.batch * heads * slices; i += gridDim.x) {
        Span s = {i / slices / heads, 0, 0, i / slices % heads, i % slices * d.W};
        int64_t n = tokens_of(f, s.b);
        begin(f, s, x, n);
        for (; s.t < n; s.t += CHUNK) {
            s.n = gpu_min(CHUNK, n - s.t);
            load_numbers(d, s, &numbers);
            prepare(d, s, x, &numbers);
            if (f.out.data) recall(f, s, x, &numbers);
            remember(d, x, &numbers);
        }
        end(f, s, x, n);
    }
}

/* ---- */

static Delta forward_of(const MxType *type, void *const *in, bool carries) {
    Delta d = delta_of(type, in, carries);
    d.W = gpu_min(d.W, COLUMNS);
    return d;
}

static TileRoom room_of(const Delta &d) {
    TileRoom room = {nullptr, nullptr, 0, 0, SHARED_MOST};
    lay_out(d, &room);
    return room;
}

static int64_t blocks_of(const MxDevice *device, const Delta &d) {
    constexpr int64_t MOST_A_PROCESSOR = 4;
    int64_t slices = d.W ? (d.value_width + d.W - 1) / d.W : 0;
    return gpu_min(d.batch * d.key_heads * d.group * slices,
                   MOST_A_PROCESSOR * gpu_of(device)->n_processors);
}

static size_t forward_scratch(const MxDevice *device, const MxType *type) {
    Delta d = forward_of(type, nullptr, true);
    return room_of(d).scratch_used * (size_t)blocks_of(device, d);
}

static void run(const MxDevice *device, const MxKernelCall *call, Forward f) {
    TileRoom room = room_of(f.d);
    f.d.scratch = (char *)call->scratch;
    f.d.block_bytes = room.scratch_used;
    gpu_launch(device, delta_kernel, (unsigned)blocks_of(device, f.d), GPU_BLOCK, room.shared_used,
               f);
}

static size_t delta_scratch(const MxDevice *device, const MxKernelCall *call) {
    return forward_scratch(device, call->in_type);
}

static void delta_run(const MxDevice *device, const MxKernelCall *call) {
    Forward f = {};
    f.d = forward_of(call->in_type, call->in, ((const MxDeltaAttr *)call->attr)->carries);
    f.out = gpu_out(call, 0);
    if (f.out.data) run(device, call, f);
}
GPU_KERNEL(delta, .scratch = delta_scratch, .run = delta_run);

/* Inputs are the memories, those of delta but for segments, positions and sequences. */
static size_t cache_delta_scratch(const MxDevice *device, const MxKernelCall *call) {
    return forward_scratch(device, call->in_type + 1);
}

static void cache_delta_run(const MxDevice *device, const MxKernelCall *call) {
    constexpr int POSITIONS = DELTA_SEGMENTS + 1, SEQUENCES = POSITIONS + 1;
    Forward f = {};
    f.d = forward_of(call->in_type + 1, call->in + 1, true);
    f.d.segments = nullptr;
    f.out = gpu_out(call, 1);
    f.positions = (const int32_t *)call->in[POSITIONS];
    f.sequences = (const int32_t *)call->in[SEQUENCES];
    f.memory = (const float *)call->in[0];
    f.kept = (float *)call->out[0];
    size_t bytes = (size_t)mx_shape_count(call->in_type[0].shape) * sizeof(float);
    if (f.kept && f.kept != f.memory && bytes)
        gpu_runtime_copy(gpu_of(device), f.kept, f.memory, bytes);
    run(device, call, f);
}
GPU_KERNEL(cache_delta, .scratch = cache_delta_scratch, .run = cache_delta_run);

} // namespace gpu_delta
