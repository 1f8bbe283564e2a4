/* count.cu — counts, largest elements, and what small arrays of them decide. */
#include "device/cuda/gpu.cuh"

namespace gpu_count {

static constexpr int ALONE = 1024; /* threads of a block that does all by itself */

/* ---- numbers of elements */

__global__ void __launch_bounds__(ALONE)
    count_nonzero_kernel(const int32_t *x, int64_t n, float *out) {
    int64_t count = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < n; i += ALONE) count += x[i] != 0;
    count = gpu_block_sum(count);
    if (threadIdx.x == 0) *out = (float)count;
}

static void count_nonzero_run(const MxDevice *device, const MxKernelCall *call) {
    int64_t parts = ((const MxCountAttr *)call->attr)->parts;
    if (call->out[0])
        gpu_launch(device, count_nonzero_kernel, 1, ALONE, 0, (const int32_t *)call->in[0],
                   mx_shape_count(call->in_type[0].shape) / parts, (float *)call->out[0]);
}
GPU_KERNEL(count_nonzero, .run = count_nonzero_run);

__global__ void __launch_bounds__(ALONE)
    count_equal_kernel(const int32_t *x, const int32_t *y, const int32_t *weights, int64_t n,
                       float *out) {
    int64_t count = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < n; i += ALONE) count += (weights[i] != 0) & (x[i] == y[i]);
    count = gpu_block_sum(count);
    if (threadIdx.x == 0) *out = (float)count;
}

static void count_equal_run(const MxDevice *device, const MxKernelCall *call) {
    if (call->out[0])
        gpu_launch(device, count_equal_kernel, 1, ALONE, 0, (const int32_t *)call->in[0],
                   (const int32_t *)call->in[1], (const int32_t *)call->in[2],
                   mx_shape_count(call->in_type[0].shape), (float *)call->out[0]);
}
GPU_KERNEL(count_equal, .run = count_equal_run);

/* A warp has a row. */
__global__ void __launch_bounds__(ALONE)
    count_segments_kernel(const int32_t *segments, int64_t rows, int64_t length, float *out) {
    int64_t count = 0;
    unsigned lane = threadIdx.x % GPU_WARP;
    for (int64_t row = threadIdx.x / GPU_WARP; row < rows; row += ALONE / GPU_WARP) {
        int32_t most = 1;
#pragma unroll 4
        for (int64_t i = lane; i < length; i += GPU_WARP)
            most = (int32_t)gpu_max(most, segments[row * length + i]);
        most = gpu_warp_max(most);
        if (lane == 0) count += most;
    }
    count = gpu_block_sum(count);
    if (threadIdx.x == 0) *out = (float)count;
}

static void count_segments_run(const MxDevice *device, const MxKernelCall *call) {
    MxShape shape = call->in_type[0].shape;
    if (call->out[0])
        gpu_launch(device, count_segments_kernel, 1, ALONE, 0, (const int32_t *)call->in[0],
                   shape.dim[0], shape.dim[1], (float *)call->out[0]);
}
GPU_KERNEL(count_segments, .run = count_segments_run);

/* ---- how often ids occur: whole numbers, whose sums have no order; a block's in shared memory if
 * they fit */

typedef struct CountIds {
    const int32_t *ids;
    uint32_t *count;
    int64_t n_ids, n;
    bool shares;
} CountIds;

__global__ void __launch_bounds__(GPU_BLOCK) count_ids_kernel(CountIds c) {
    uint32_t *count = c.shares ? gpu_dynamic<uint32_t>() : c.count;
    int64_t step = (int64_t)gridDim.x * GPU_BLOCK;
    for (int64_t i = threadIdx.x; i < c.n && c.shares; i += GPU_BLOCK) count[i] = 0;
    __syncthreads();
    for (int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x; i < c.n_ids; i += step) {
        GPU_ASSERT(c.ids[i] >= -1 && c.ids[i] < c.n);
        if (c.ids[i] >= 0) atomicAdd(&count[c.ids[i]], 1u);
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < c.n && c.shares; i += GPU_BLOCK)
        if (count[i]) atomicAdd(&c.count[i], count[i]);
}

__global__ void __launch_bounds__(GPU_BLOCK)
    write_counts_kernel(const uint32_t *count, int64_t n, float *out, bool adds) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i < n) out[i] = (adds ? out[i] : 0.0f) + (float)count[i];
}

static size_t count_ids_scratch(const MxDevice *, const MxKernelCall *call) {
    return sizeof(uint32_t) * (size_t)mx_shape_count(call->out_type[0].shape);
}

static void count_ids_run(const MxDevice *device, const MxKernelCall *call) {
    const int64_t most_shared = 8192, ids_each = 16, most_blocks = 264;
    CountIds c = {(const int32_t *)call->in[0], (uint32_t *)call->scratch,
                  mx_shape_count(call->in_type[0].shape), mx_shape_count(call->out_type[0].shape)};
    if (!call->out[0] || !c.n) return;
    c.shares = c.n <= most_shared;
    size_t bytes = sizeof(uint32_t) * (size_t)c.n;
    gpu_runtime_zero(gpu_of(device), c.count, bytes);
    unsigned blocks = (unsigned)gpu_min(most_blocks, gpu_blocks(c.n_ids, GPU_BLOCK * ids_each));
    gpu_launch(device, count_ids_kernel, blocks, GPU_BLOCK, c.shares ? bytes : 0, c);
    gpu_launch(device, write_counts_kernel, gpu_blocks(c.n), GPU_BLOCK, 0,
               (const uint32_t *)c.count, c.n, (float *)call->out[0], (bool)(call->accumulate & 1));
}
GPU_KERNEL(count_ids, .scratch = count_ids_scratch, .run = count_ids_run);

__global__ void __launch_bounds__(ALONE)
    even_out_kernel(const float *p, const float *counts, int64_t n, float rate, float *out) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += ALONE) sum += (double)counts[i];
    double mean = gpu_block_sum(sum) / (double)n;
    for (int64_t i = threadIdx.x; i < n; i += ALONE) {
        int sign = (mean > (double)counts[i]) - (mean < (double)counts[i]);
        out[i] = p[i] + rate * (float)sign;
    }
}

static void even_out_run(const MxDevice *device, const MxKernelCall *call) {
    if (call->out[0])
        gpu_launch(device, even_out_kernel, 1, ALONE, 0, (const float *)call->in[0],
                   (const float *)call->in[1], mx_shape_count(call->in_type[0].shape),
                   (float)((const MxEvenOutAttr *)call->attr)->rate, (float *)call->out[0]);
}
GPU_KERNEL(even_out, .run = even_out_run);

/* ---- the largest element of rows: a warp or a block each */

static int64_t dim_from_end(MxShape shape, int i) {
    return shape.dim[shape.rank - i];
}

__device__ static inline float largest_of(const float *x, int64_t n, unsigned first, int step) {
    float most = x[0];
#pragma unroll 4
    for (int64_t i = first; i < n; i += step) most = x[i] > most ? x[i] : most;
    return most;
}

__global__ void __launch_bounds__(GPU_BLOCK)
    largest_warp_kernel(const float *x, int64_t rows, int64_t n, float *out) {
    int64_t row = (int64_t)blockIdx.x * (GPU_BLOCK / GPU_WARP) + threadIdx.x / GPU_WARP;
    if (row >= rows) return; /* a whole warp */
    float most = gpu_warp_max(largest_of(x + row * n, n, threadIdx.x % GPU_WARP, GPU_WARP));
    if (threadIdx.x % GPU_WARP == 0) out[row] = most;
}

__global__ void __launch_bounds__(ALONE)
    largest_block_kernel(const float *x, int64_t n, float *out) {
    float most = gpu_block_max(largest_of(x + blockIdx.x * n, n, threadIdx.x, ALONE));
    if (threadIdx.x == 0) out[blockIdx.x] = most;
}

static void largest_run(const MxDevice *device, const MxKernelCall *call) {
    const int64_t short_row = 4096;
    const float *x = (const float *)call->in[0];
    float *out = (float *)call->out[0];
    int64_t n = dim_from_end(call->in_type[0].shape, 1);
    int64_t rows = mx_shape_count(call->out_type[0].shape);
    if (!out) return;
    if (n > short_row)
        gpu_launch(device, largest_block_kernel, (unsigned)rows, ALONE, 0, x, n, out);
    else
        gpu_launch(device, largest_warp_kernel, gpu_blocks(rows, GPU_BLOCK / GPU_WARP), GPU_BLOCK,
                   0, x, rows, n, out);
}
GPU_KERNEL(largest, .run = largest_run);

/* ---- clip_heads */

typedef struct ClipHeads {
    const float *w, *tops;
    float *out, *share;                /* of each head */
    int64_t heads, width, count, rows; /* rows: of tops */
    int64_t n_root;
    float threshold;
    bool keeps_rest;
} ClipHeads;

/* A warp has a head. */
__global__ void __launch_bounds__(GPU_WARP) head_share_kernel(ClipHeads c) {
    const float slack = 1e-6f; /* MaxText's */
    float top = 0.0f;
    for (int64_t row = threadIdx.x; row < c.rows; row += GPU_WARP)
        top = fmaxf(top, c.tops[row * c.heads + blockIdx.x]);
    top = gpu_warp_max(top);
    if (threadIdx.x == 0) c.share[blockIdx.x] = fminf(1.0f, c.threshold / (top + slack));
}

__global__ void __launch_bounds__(GPU_BLOCK) clip_heads_kernel(ClipHeads c) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= c.count) return;
    float share = c.share[i / c.width % c.heads];
    float rest = c.keeps_rest ? 1.0f : share;
    c.out[i] = c.w[i] * (i % c.width < c.n_root ? sqrtf(share) : rest);
}

static size_t clip_heads_scratch(const MxDevice *, const MxKernelCall *call) {
    return sizeof(float) * (size_t)dim_from_end(call->in_type[0].shape, 2);
}

static void clip_heads_run(const MxDevice *device, const MxKernelCall *call) {
    const MxClipHeadsAttr *attr = (const MxClipHeadsAttr *)call->attr;
    ClipHeads c = {(const float *)call->in[0], (const float *)call->in[1], (float *)call->out[0],
                   (float *)call->scratch};
    c.heads = dim_from_end(call->in_type[0].shape, 2);
    c.width = dim_from_end(call->in_type[0].shape, 1);
    c.count = mx_shape_count(call->in_type[0].shape);
    if (!c.out || !c.count) return;
    c.rows = mx_shape_count(call->in_type[1].shape) / c.heads;
    c.n_root = attr->n_root;
    c.threshold = (float)attr->threshold;
    c.keeps_rest = attr->keeps_rest;
    gpu_launch(device, head_share_kernel, (unsigned)c.heads, GPU_WARP, 0, c);
    gpu_launch(device, clip_heads_kernel, gpu_blocks(c.count), GPU_BLOCK, 0, c);
}
GPU_KERNEL(clip_heads, .scratch = clip_heads_scratch, .run = clip_heads_run);

} // namespace gpu_count
