/* conv.cu — causal convolution of channels, of rows and of what is kept in a cache, and the decay
 * of the gated delta rule. A thread takes a pack of channels of some tokens. */
#include "device/cuda/map.cuh"

namespace gpu_conv {

static constexpr int TOKENS = 4;    /* that a thread takes */
static constexpr int MOST_TAPS = 4; /* whose gradients it sums up at once */
static constexpr int LANES = 32, WARPS = GPU_BLOCK / LANES;

typedef struct Conv {
    GpuArray x, y; /* to and from; of the gradient of w, x and dy */
    const float *w;
    const int32_t *segments;              /* NULL = all tokens are of one */
    const int32_t *positions, *sequences; /* of a cache */
    int64_t rows, time, width, taps, apart, slots;
    int direction;   /* 1 looks back, -1 ahead */
    bool is_aligned; /* channels are whole packs */
    float *parts;    /* [parts][taps][width] of the gradient of w; parts of tokens */
    float *dw;
    int64_t n_parts;
} Conv;

static Conv conv_of(const MxKernelCall *call) {
    const MxDeltaAttr *attr = (const MxDeltaAttr *)call->attr;
    MxShape x = call->in_type[0].shape;
    Conv c = {};
    c.rows = x.dim[0], c.time = x.dim[1], c.width = x.dim[2];
    c.taps = call->in_type[1].shape.dim[0];
    c.apart = gpu_max(1, attr->apart);
    c.direction = 1;
    c.is_aligned = c.width % GPU_PACK == 0;
    if (!call->in) return c;
    c.x = gpu_in(call, 0);
    c.y = gpu_out(call, 0);
    c.w = (const float *)call->in[1];
    c.segments = attr->carries ? nullptr : (const int32_t *)call->in[2];
    return c;
}

/* ---- packs of channels */

__device__ static void get_some(const Conv &c, GpuArray x, int64_t at, int n, float *to) {
    if (c.is_aligned) {
        gpu_get_pack(x, at, to);
        return;
    }
#pragma unroll
    for (int i = 0; i < GPU_PACK; i++) to[i] = i < n ? gpu_get(x, at + i) : 0.0f;
}

__device__ static void put_some(const Conv &c, GpuArray x, int64_t at, int n, const float *from) {
    if (c.is_aligned) {
        gpu_put_pack(x, at, from);
        return;
    }
#pragma unroll
    for (int i = 0; i < GPU_PACK; i++)
        if (i < n) gpu_put(x, at + i, from[i]);
}

/* Of a tap, rounded to x's dtype. */
__device__ static void get_weights(const Conv &c, int64_t tap, int64_t channel, int n, float *to) {
    get_some(c, GpuArray{(void *)c.w, MX_F32}, tap * c.width + channel, n, to);
#pragma unroll
    for (int i = 0; i < GPU_PACK; i++) to[i] = gpu_round(to[i], c.x.dtype);
}

__device__ static void add_times(const float *x, const float *w, float *sum) {
#pragma unroll
    for (int i = 0; i < GPU_PACK; i++) sum[i] += x[i] * w[i];
}

/* ---- where taps look */

/* The token of a tap, counted through all rows; -1 = none that is seen. */
__device__ static int64_t source(const Conv &c, int64_t token, int64_t tap, int direction) {
    int64_t before = direction * (c.taps - 1 - tap) * c.apart, t = token % c.time - before;
    if (t < 0 || t >= c.time) return -1;
    if (c.segments && c.segments[token - before] != c.segments[token]) return -1;
    return token - before;
}

/* The row of a cache. */
__device__ static int64_t source_in_cache(const Conv &c, int64_t token, int64_t tap) {
    int64_t position = c.positions[token], t = position - (c.taps - 1 - tap) * c.apart;
    if (position < 0 || t < 0) return -1;
    return c.sequences[token / c.time] * c.slots + t % c.slots;
}

__global__ void __launch_bounds__(GPU_BLOCK) conv_kernel(Conv c) {
    int64_t packs = (c.width + GPU_PACK - 1) / GPU_PACK, tokens = c.rows * c.time;
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    int64_t channel = i % packs * GPU_PACK, first = i / packs * TOKENS;
    int n = (int)gpu_min(GPU_PACK, c.width - channel);
    if (first >= tokens) return;
    float sum[TOKENS][GPU_PACK] = {};
    for (int64_t tap = 0; tap < c.taps; tap++) {
        float w[GPU_PACK], x[GPU_PACK];
        get_weights(c, tap, channel, n, w);
#pragma unroll
        for (int j = 0; j < TOKENS; j++) {
            if (first + j >= tokens) break;
            int64_t from = c.positions ? source_in_cache(c, first + j, tap)
                                       : source(c, first + j, tap, c.direction);
            if (from < 0) continue;
            get_some(c, c.x, from * c.width + channel, n, x);
            add_times(x, w, sum[j]);
        }
    }
#pragma unroll
    for (int j = 0; j < TOKENS; j++)
        if (first + j < tokens) put_some(c, c.y, (first + j) * c.width + channel, n, sum[j]);
}

static void convolve(const MxDevice *device, const Conv &c) {
    int64_t packs = (c.width + GPU_PACK - 1) / GPU_PACK;
    int64_t pieces = (c.rows * c.time + TOKENS - 1) / TOKENS;
    gpu_launch(device, conv_kernel, gpu_blocks(packs * pieces), GPU_BLOCK, 0, c);
}

static void conv_run(const MxDevice *device, const MxKernelCall *call) {
    if (call->out[0]) convolve(device, conv_of(call));
}
GPU_KERNEL(conv, .run = conv_run);

static void cache_conv_run(const MxDevice *device, const MxKernelCall *call) {
    MxShape piece = call->in_type[2].shape;
    Conv c = conv_of(call);
    c.slots = c.time;
    c.rows = piece.dim[0], c.time = piece.dim[1];
    c.segments = nullptr;
    c.positions = (const int32_t *)call->in[2];
    c.sequences = (const int32_t *)call->in[3];
    if (call->out[0]) convolve(device, c);
}
GPU_KERNEL(cache_conv, .run = cache_conv_run);

/* ---- gradient of w: sums over tokens */

/* Warps take tokens in turn, lanes packs of channels; their sums are added up in their order. */
__device__ static void give_taps(const Conv &c, int64_t tap, int64_t channel,
                                 const float (*sum)[GPU_PACK], float (*all)[LANES * GPU_PACK]) {
    int warp = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES;
    for (int j = 0; j < MOST_TAPS; j++) {
#pragma unroll
        for (int i = 0; i < GPU_PACK; i++) all[warp][lane * GPU_PACK + i] = sum[j][i];
        __syncthreads();
        float total = 0.0f;
        for (int other = 0; other < WARPS; other++) total += all[other][threadIdx.x];
        __syncthreads();
        if (tap + j < c.taps && channel + threadIdx.x < c.width)
            c.parts[(blockIdx.y * c.taps + tap + j) * c.width + channel + threadIdx.x] = total;
    }
}

__global__ void __launch_bounds__(GPU_BLOCK) conv_taps_kernel(Conv c) {
    __shared__ float all[WARPS][LANES * GPU_PACK];
    int64_t first = (int64_t)blockIdx.x * LANES * GPU_PACK, tokens = c.rows * c.time;
    int64_t channel = first + threadIdx.x % LANES * GPU_PACK, warp = threadIdx.x / LANES;
    int64_t a_part = (tokens + c.n_parts - 1) / c.n_parts, begin = blockIdx.y * a_part;
    int64_t end = gpu_min(tokens, begin + a_part);
    int n = (int)gpu_min(GPU_PACK, c.width - channel);
    for (int64_t tap = 0; tap < c.taps; tap += MOST_TAPS) {
        float sum[MOST_TAPS][GPU_PACK] = {}, x[GPU_PACK], dy[GPU_PACK];
        for (int64_t token = begin + warp; token < end && n > 0; token += WARPS) {
            get_some(c, c.y, token * c.width + channel, n, dy);
#pragma unroll
            for (int j = 0; j < MOST_TAPS; j++) {
                int64_t from = tap + j < c.taps ? source(c, token, tap + j, 1) : -1;
                if (from < 0) continue;
                get_some(c, c.x, from * c.width + channel, n, x);
                add_times(x, dy, sum[j]);
            }
        }
        give_taps(c, tap, first, sum, all);
    }
}

__global__ void __launch_bounds__(GPU_BLOCK) sum_taps_kernel(Conv c) {
    int64_t n = c.taps * c.width, i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (int64_t part = 0; part < c.n_parts; part++) sum += c.parts[part * n + i];
    c.dw[i] = sum;
}

/* Enough for all processors, of 64 tokens at least. */
static int64_t parts_of(const MxDevice *device, const Conv &c) {
    constexpr int64_t LEAST_TOKENS = 64, BLOCKS_A_PROCESSOR = 4;
    int64_t blocks = gpu_max(1, gpu_blocks(c.width, LANES * GPU_PACK));
    int64_t wanted = (BLOCKS_A_PROCESSOR * gpu_of(device)->n_processors + blocks - 1) / blocks;
    return gpu_max(1, gpu_min(wanted, c.rows * c.time / LEAST_TOKENS));
}

static size_t conv_grad_scratch(const MxDevice *device, const MxKernelCall *call) {
    MxKernelCall types = *call;
    types.in = nullptr;
    Conv c = conv_of(&types);
    return gpu_padded((size_t)(parts_of(device, c) * c.taps * c.width) * sizeof(float));
}

static void conv_grad_run(const MxDevice *device, const MxKernelCall *call) {
    Conv to_x = conv_of(call), to_w = to_x;
    to_x.x = to_w.y = gpu_in(call, 3);
    to_x.direction = -1;
    if (call->out[0]) convolve(device, to_x);
    if (!call->out[1]) return;
    to_w.n_parts = parts_of(device, to_w);
    to_w.parts = (float *)call->scratch;
    to_w.dw = (float *)call->out[1];
    dim3 grid(gpu_blocks(to_w.width, LANES * GPU_PACK), (unsigned)to_w.n_parts);
    gpu_launch(device, conv_taps_kernel, grid, GPU_BLOCK, 0, to_w);
    gpu_launch(device, sum_taps_kernel, gpu_blocks(to_w.taps * to_w.width), GPU_BLOCK, 0, to_w);
}
GPU_KERNEL(conv_grad, .scratch = conv_grad_scratch, .run = conv_grad_run);

/* ---- decay */

struct Decay : GpuEach {
    __device__ void operator()(const float *in, float *out) const {
        float x = in[0]; /* log(1 + exp(x)), of which exp never overflows */
        out[0] = -expf(in[1]) * ((x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x))));
    }
};
struct DecayGrad : GpuEach {
    __device__ void operator()(const float *in, float *out) const {
        out[0] = -in[1] * expf(in[2]) * (1.0f / (1.0f + expf(-in[0])));
    }
};

static void decay_run(const MxDevice *device, const MxKernelCall *call) {
    gpu_map<2, 1>(device, call, Decay());
}
GPU_KERNEL(decay, .run = decay_run);

static void decay_grad_run(const MxDevice *device, const MxKernelCall *call) {
    GpuMap map = {};
    map.in[0] = gpu_in(call, 0), map.in[1] = gpu_in(call, 2), map.in[2] = gpu_in(call, 1);
    map.out[0] = gpu_out(call, 0);
    map.n = mx_shape_count(call->in_type[0].shape);
    map.period = mx_shape_count(call->in_type[1].shape);
    map.accumulate = call->accumulate;
    gpu_map_arrays<3, 1>(device, map, DecayGrad());
}
GPU_KERNEL(decay_grad, .run = decay_grad_run);

} // namespace gpu_conv
