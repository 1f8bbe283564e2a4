/* combine.cu — weighted sums of a token's rows, and their gradients. */
#include "device/cuda/gpu.cuh"

namespace gpu_combine {

/* Rows of x a token, and how many sums are made of them. N elements a thread at a time. */
typedef struct Combined {
    GpuArray x, y; /* of the gradient y is dy */
    const float *weights;
    int64_t tokens, choices, sums, width;
} Combined;

static Combined combined_of(const MxKernelCall *call) {
    MxShape x = call->in_type[0].shape, w = call->in_type[1].shape;
    Combined c = {};
    c.x = gpu_in(call, 0);
    c.weights = (const float *)call->in[1];
    c.choices = x.dim[x.rank - 2];
    c.sums = w.rank == x.rank ? w.dim[w.rank - 1] : 1;
    c.width = x.dim[x.rank - 1];
    int64_t each = c.choices * c.width;
    c.tokens = each ? mx_shape_count(x) / each : 0;
    return c;
}

template <int N> __device__ static inline void get_some(GpuArray x, int64_t at, float *to) {
    if constexpr (N == GPU_PACK)
        gpu_get_pack(x, at, to);
    else
        to[0] = gpu_get(x, at);
}
template <int N> __device__ static inline void put_some(GpuArray x, int64_t at, const float *from) {
    if constexpr (N == GPU_PACK)
        gpu_put_pack(x, at, from);
    else
        gpu_put(x, at, from[0]);
}

/* Threads for the columns of a row. */
static unsigned block_of(int64_t width, int n) {
    int64_t threads = (width + n - 1) / n;
    return gpu_blocks(gpu_max(1, gpu_min(threads, GPU_BLOCK)), GPU_WARP) * GPU_WARP;
}

/* A block makes sum m of a token. */
template <int N> __global__ void __launch_bounds__(GPU_BLOCK) combine_rows(Combined c) {
    int64_t token = blockIdx.x / c.sums, m = blockIdx.x % c.sums;
    const float *weights = c.weights + token * c.choices * c.sums + m;
    for (int64_t at = (int64_t)threadIdx.x * N; at < c.width; at += (int64_t)blockDim.x * N) {
        float sum[N] = {}, x[N];
#pragma unroll 4
        for (int64_t i = 0; i < c.choices; i++) {
            float weight = weights[i * c.sums];
            get_some<N>(c.x, (token * c.choices + i) * c.width + at, x);
#pragma unroll
            for (int j = 0; j < N; j++) sum[j] += weight * x[j];
        }
        put_some<N>(c.y, blockIdx.x * c.width + at, sum);
    }
}

/* launch_rows — a block each, for whole packs or for single elements. */
template <class P, class... A>
static void launch_rows(const MxDevice *device, P *packs, P *single, int64_t rows,
                        const Combined &c, A... args) {
    bool is_packs = c.width % GPU_PACK == 0;
    gpu_launch(device, is_packs ? packs : single, (unsigned)rows,
               block_of(c.width, is_packs ? GPU_PACK : 1), 0, c, args...);
}

static void combine_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    Combined c = combined_of(call);
    c.y = gpu_out(call, 0);
    launch_rows(device, combine_rows<GPU_PACK>, combine_rows<1>, c.tokens * c.sums, c);
}

GPU_KERNEL(combine, .run = combine_run);

/* A block has a choice: dx is the sum of weight dy, … */
template <int N>
__device__ static inline void grad_x(const Combined &c, int64_t choice, GpuArray dx) {
    int64_t token = choice / c.choices;
    for (int64_t at = (int64_t)threadIdx.x * N; at < c.width; at += (int64_t)blockDim.x * N) {
        float sum[N] = {}, dy[N];
        for (int64_t m = 0; m < c.sums; m++) {
            float weight = c.weights[choice * c.sums + m];
            get_some<N>(c.y, (token * c.sums + m) * c.width + at, dy);
#pragma unroll
            for (int j = 0; j < N; j++) sum[j] += weight * dy[j];
        }
        put_some<N>(dx, choice * c.width + at, sum);
    }
}

/* … and dweights are x · dy. */
template <int N>
__device__ static inline void grad_weights(const Combined &c, int64_t choice, float *dweights) {
    int64_t token = choice / c.choices;
    for (int64_t m = 0; m < c.sums; m++) {
        float sum = 0, x[N], dy[N];
        for (int64_t at = (int64_t)threadIdx.x * N; at < c.width; at += (int64_t)blockDim.x * N) {
            get_some<N>(c.x, choice * c.width + at, x);
            get_some<N>(c.y, (token * c.sums + m) * c.width + at, dy);
#pragma unroll
            for (int j = 0; j < N; j++) sum += x[j] * dy[j];
        }
        sum = gpu_block_sum(sum);
        if (threadIdx.x == 0) dweights[choice * c.sums + m] = sum;
    }
}

template <int N>
__global__ void __launch_bounds__(GPU_BLOCK)
    combine_grad_rows(Combined c, GpuArray dx, float *dweights) {
    if (dx.data) grad_x<N>(c, blockIdx.x, dx);
    if (dweights) grad_weights<N>(c, blockIdx.x, dweights);
}

static void combine_grad_run(const MxDevice *device, const MxKernelCall *call) {
    Combined c = combined_of(call);
    c.y = gpu_in(call, 2);
    launch_rows(device, combine_grad_rows<GPU_PACK>, combine_grad_rows<1>, c.tokens * c.choices, c,
                gpu_out(call, 0), call->out[1]);
}

GPU_KERNEL(combine_grad, .run = combine_grad_run);

} // namespace gpu_combine
