/* reduce.cu — sums along dims and of squares, in f64 and in one order whatever the number of
 * processors. */
#include "device/cuda/gpu.cuh"

namespace gpu_reduce {

/* ---- sums over a dim of [outer, n, inner]
 *
 * A block has some columns, `lanes` threads side by side with WIDE each, and a stretch of the rows
 * of one outer index, its threads' rows one below the other. Where columns are too few to fill the
 * GPU the rows are split, and the sums of the stretches are added up by a second kernel. */
typedef struct Along {
    GpuArray x, out;
    int64_t outer, n, inner, rows; /* rows: of a stretch */
    unsigned tiles, splits, lanes;
    bool is_wide, squares, adds;
} Along;

static constexpr int WIDE = GPU_QUAD;

__device__ static inline void add_quad(double *sum, const float *x, bool squares) {
#pragma unroll
    for (int i = 0; i < WIDE; i++) sum[i] += squares ? (double)x[i] * (double)x[i] : (double)x[i];
}

/* Of this thread's columns, from the first on, the sum over its rows. */
__device__ static inline void along_wide(const Along &a, int64_t at, int64_t row, int64_t end,
                                         double *sum) {
    const int64_t step = GPU_BLOCK / a.lanes;
#pragma unroll 4
    for (; row < end; row += step) {
        float x[WIDE];
        gpu_open_quad(a.x.dtype, gpu_load_quad(a.x, at + row * a.inner), x);
        add_quad(sum, x, a.squares);
    }
}
__device__ static inline void along_narrow(const Along &a, int64_t at, int64_t row, int64_t end,
                                           double *sum) {
    const int64_t step = GPU_BLOCK / a.lanes;
#pragma unroll 4
    for (; row < end; row += step) {
        double x = (double)gpu_get(a.x, at + row * a.inner);
        *sum += a.squares ? x * x : x;
    }
}

/* The sums of the block's columns, in the first `lanes` threads. */
__device__ static inline void add_rows(double *sum, unsigned lanes) {
    __shared__ double part[GPU_BLOCK];
    for (unsigned half = GPU_BLOCK / 2; half >= lanes && half; half /= 2) {
        if (threadIdx.x < 2 * half) part[threadIdx.x] = *sum;
        __syncthreads();
        if (threadIdx.x < half) *sum += part[threadIdx.x + half];
        __syncthreads();
    }
}

template <int COLUMNS>
__global__ void __launch_bounds__(GPU_BLOCK, 4) along_kernel(Along a, double *parts) {
    unsigned tile = blockIdx.x % a.tiles, split = blockIdx.x / a.tiles % a.splits;
    int64_t o = blockIdx.x / a.tiles / a.splits, end = gpu_min(a.n, (split + 1) * a.rows);
    int64_t column = (int64_t)(tile * a.lanes + threadIdx.x % a.lanes) * COLUMNS;
    int64_t at = o * a.n * a.inner + column, row = split * a.rows + threadIdx.x / a.lanes;
    double sum[COLUMNS] = {};
    if (column < a.inner && COLUMNS == WIDE)
        along_wide(a, at, row, end, sum);
    else if (column < a.inner)
        along_narrow(a, at, row, end, sum);
    for (int i = 0; i < COLUMNS; i++) add_rows(&sum[i], a.lanes);
    if (threadIdx.x >= a.lanes || column >= a.inner) return;
    for (int i = 0; i < COLUMNS; i++)
        if (parts)
            parts[(o * a.splits + split) * a.inner + column + i] = sum[i];
        else
            gpu_give(a.out, o * a.inner + column + i, (float)sum[i], a.adds);
}

__global__ void __launch_bounds__(GPU_BLOCK) join_kernel(Along a, const double *parts) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= a.outer * a.inner) return;
    const double *part = parts + i / a.inner * a.splits * a.inner + i % a.inner;
    double sum = 0;
#pragma unroll 8
    for (unsigned split = 0; split < a.splits; split++) sum += part[split * a.inner];
    gpu_give(a.out, i, (float)sum, a.adds);
}

/* How it is divided: from the shape alone. */
static void divide(Along *a) {
    const int64_t blocks = 1024, most_splits = 256, rows_each = 8;
    a->is_wide = a->inner % WIDE == 0;
    int64_t groups = a->inner / (a->is_wide ? WIDE : 1);
    for (a->lanes = 1; a->lanes < GPU_WARP && a->lanes < groups;) a->lanes *= 2;
    a->tiles = gpu_blocks(groups, a->lanes);
    int64_t step = GPU_BLOCK / a->lanes, others = gpu_max(1, a->outer * a->tiles);
    int64_t splits = gpu_min(blocks / others, a->n / (step * rows_each));
    splits = gpu_max(1, gpu_min(splits, most_splits));
    a->rows = gpu_blocks(gpu_blocks(a->n, splits), step) * step;
    a->splits = (unsigned)gpu_max(1, gpu_blocks(a->n, gpu_max(1, a->rows)));
}

static void sum_along(const MxDevice *device, const MxKernelCall *call, Along a) {
    double *parts = a.splits > 1 ? (double *)call->scratch : nullptr;
    a.x = gpu_in(call, 0);
    a.out = gpu_out(call, 0);
    a.adds = call->accumulate & 1;
    if (!a.out.data || !a.inner || !a.outer) return;
    MX_ASSERT(!a.is_wide || gpu_has_quads(a.x, a.inner));
    auto kernel = a.is_wide ? along_kernel<WIDE> : along_kernel<1>;
    gpu_launch(device, kernel, (unsigned)a.outer * a.tiles * a.splits, GPU_BLOCK, 0, a, parts);
    if (parts)
        gpu_launch(device, join_kernel, gpu_blocks(a.outer * a.inner), GPU_BLOCK, 0, a,
                   (const double *)parts);
}

static size_t along_scratch(const Along &a) {
    return a.splits > 1 ? sizeof(double) * (size_t)(a.outer * a.splits * a.inner) : 0;
}

static Along lead_of(const MxKernelCall *call) {
    Along a = {};
    a.outer = 1;
    a.inner = mx_shape_count(call->out_type[0].shape);
    a.n = a.inner ? mx_shape_count(call->in_type[0].shape) / a.inner : 0;
    divide(&a);
    return a;
}

static size_t sum_lead_scratch(const MxDevice *, const MxKernelCall *call) {
    return along_scratch(lead_of(call));
}
static void sum_lead_run(const MxDevice *device, const MxKernelCall *call) {
    sum_along(device, call, lead_of(call));
}
GPU_KERNEL(sum_lead, .scratch = sum_lead_scratch, .run = sum_lead_run);

/* dim MX_NONE: what has no such dim is inner. */
static Along dim_of(const MxKernelCall *call) {
    const MxSumDimAttr *attr = (const MxSumDimAttr *)call->attr;
    MxShape shape = call->in_type[0].shape;
    Along a = {};
    a.outer = a.n = a.inner = 1;
    for (int d = 0; d < shape.rank; d++)
        *(d < attr->dim ? &a.outer : d == attr->dim ? &a.n : &a.inner) *= shape.dim[d];
    a.squares = attr->squares;
    divide(&a);
    return a;
}

static size_t sum_dim_scratch(const MxDevice *, const MxKernelCall *call) {
    return along_scratch(dim_of(call));
}
static void sum_dim_run(const MxDevice *device, const MxKernelCall *call) {
    sum_along(device, call, dim_of(call));
}
GPU_KERNEL(sum_dim, .scratch = sum_dim_scratch, .run = sum_dim_run);

/* ---- sum of squares: pieces of all inputs, a block each; their sums in the order of pieces */

static constexpr int64_t PIECE = 1 << 15;

typedef struct Squared {
    GpuArray x;
    int64_t n, first; /* elements; piece, among those of the list */
} Squared;

typedef struct SquaredList {
    enum { MOST = 64 };
    Squared of[MOST];
    int n;
} SquaredList;

__device__ static inline double squares_of(GpuArray x, int64_t begin, int64_t end) {
    double sum[GPU_QUAD] = {};
    int64_t whole =
        (uintptr_t)x.data % (GPU_QUAD * sizeof(float)) ? begin : end / GPU_QUAD * GPU_QUAD;
    int64_t i = begin + threadIdx.x * GPU_QUAD;
#pragma unroll 8
    for (; i < whole; i += GPU_BLOCK * GPU_QUAD) {
        float v[GPU_QUAD];
        gpu_open_quad(x.dtype, gpu_load_quad(x, i), v);
        add_quad(sum, v, true);
    }
    for (i = whole + threadIdx.x; i < end; i += GPU_BLOCK) {
        double v = (double)gpu_get(x, i);
        sum[0] += v * v;
    }
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

__global__ void __launch_bounds__(GPU_BLOCK)
    squares_kernel(const __grid_constant__ SquaredList list, double *parts) {
    int input = 0;
    while (input + 1 < list.n && blockIdx.x >= list.of[input + 1].first) input++;
    const Squared &squared = list.of[input];
    int64_t begin = (blockIdx.x - squared.first) * PIECE;
    double sum = squares_of(squared.x, begin, gpu_min(squared.n, begin + PIECE));
    sum = gpu_block_sum(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

static constexpr int ALONE = 1024; /* threads of a block that does all by itself */

__global__ void __launch_bounds__(ALONE)
    add_parts_kernel(const double *parts, int64_t n, float *out) {
    double sum = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < n; i += ALONE) sum += parts[i];
    sum = gpu_block_sum(sum);
    if (threadIdx.x == 0) *out = (float)sum;
}

static int64_t pieces_of(const MxKernelCall *call, int input) {
    return gpu_blocks(mx_shape_count(call->in_type[input].shape), PIECE);
}

static size_t sum_squares_scratch(const MxDevice *, const MxKernelCall *call) {
    int64_t n = 0;
    for (int i = 0; i < call->n_in; i++) n += pieces_of(call, i);
    return (size_t)n * sizeof(double);
}

static void sum_squares_run(const MxDevice *device, const MxKernelCall *call) {
    double *parts = (double *)call->scratch;
    int64_t all = 0, n;
    if (!call->out[0]) return;
    for (int begin = 0, end; begin < call->n_in; begin = end, all += n) {
        SquaredList list = {};
        end = (int)gpu_min(call->n_in, begin + SquaredList::MOST);
        for (n = 0; list.n < end - begin; list.n++) {
            int i = begin + list.n;
            list.of[list.n] = {gpu_in(call, i), mx_shape_count(call->in_type[i].shape), n};
            n += pieces_of(call, i);
        }
        gpu_launch(device, squares_kernel, (unsigned)n, GPU_BLOCK, 0, list, parts + all);
    }
    gpu_launch(device, add_parts_kernel, 1, ALONE, 0, (const double *)parts, all,
               (float *)call->out[0]);
}
GPU_KERNEL(sum_squares, .scratch = sum_squares_scratch, .run = sum_squares_run);

/* ---- moments: pieces of one input, several sums each */

__global__ void __launch_bounds__(GPU_BLOCK) moments_kernel(GpuArray x, int64_t n, double *parts) {
    int64_t begin = blockIdx.x * PIECE, end = gpu_min(n, begin + PIECE);
    double sum[MX_MOMENTS] = {};
    for (int64_t i = begin + threadIdx.x; i < end; i += GPU_BLOCK) {
        double v = (double)gpu_get(x, i);
        sum[MX_MOMENT_COUNT] += 1;
        sum[MX_MOMENT_ZEROS] += v == 0;
        sum[MX_MOMENT_SUM] += v;
        sum[MX_MOMENT_SQUARES] += v * v;
    }
    for (int m = 0; m < MX_MOMENTS; m++) {
        double all = gpu_block_sum(sum[m]);
        if (threadIdx.x == 0) parts[blockIdx.x * MX_MOMENTS + m] = all;
    }
}

__global__ void __launch_bounds__(ALONE)
    join_moments_kernel(const double *parts, int64_t n, float *out, bool adds) {
    for (int m = 0; m < MX_MOMENTS; m++) {
        double sum = 0;
        for (int64_t i = threadIdx.x; i < n; i += ALONE) sum += parts[i * MX_MOMENTS + m];
        sum = gpu_block_sum(sum);
        if (threadIdx.x == 0) out[m] = (float)(sum + (adds ? (double)out[m] : 0));
    }
}

static size_t moments_scratch(const MxDevice *, const MxKernelCall *call) {
    return (size_t)pieces_of(call, 0) * MX_MOMENTS * sizeof(double);
}

static void moments_run(const MxDevice *device, const MxKernelCall *call) {
    double *parts = (double *)call->scratch;
    int64_t n = pieces_of(call, 0);
    if (!call->out[0]) return;
    if (n)
        gpu_launch(device, moments_kernel, (unsigned)n, GPU_BLOCK, 0, gpu_in(call, 0),
                   mx_shape_count(call->in_type[0].shape), parts);
    gpu_launch(device, join_moments_kernel, 1, ALONE, 0, (const double *)parts, n,
               (float *)call->out[0], (bool)(call->accumulate & 1));
}
GPU_KERNEL(moments, .scratch = moments_scratch, .run = moments_run);

} // namespace gpu_reduce
