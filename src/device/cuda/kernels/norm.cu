/* norm.cu — centring of rows; RMS normalisation of rows and its gradient.
 *
 * Rows that are whole packs, and not too wide, are kept in registers by as many threads as fit, so
 * that they are read once: `fit` chooses. All others are walked twice by a block. The scale's
 * gradient is a sum over all rows: every group of rows leaves a partial sum in scratch, and the
 * groups are added up in order by a kernel of its own. */
#include "rows.cuh"

namespace gpu_norm {

typedef struct Norm {
    GpuArray x, y, dy, dx;
    const float *scale;
    float *rstd, *partial;       /* [groups, scales, width] */
    int64_t rows, width, scales; /* scales: that rows have in turn */
    int64_t groups, piece;       /* of rows of one scale */
    float eps;
    bool adds; /* to dx */
} Norm;

/* Of types alone: call->in may not be set. */
static Norm norm_of(const MxKernelCall *call) {
    Norm norm = {};
    norm.width = rows_width(call->in_type[0].shape);
    norm.rows = rows_count(call->in_type[0].shape);
    norm.scales = 1;
    return norm;
}

static Norm scaled_norm_of(const MxKernelCall *call) {
    Norm norm = norm_of(call);
    MxShape scale = call->in_type[1].shape;
    if (scale.rank == 2) norm.scales = scale.dim[0];
    return norm;
}

/* fit — calls f with the number of threads of a row, and of packs that each keeps; false if rows do
 * not fit in registers. */
template <class F> static bool fit(int64_t width, const F &f) {
    int64_t packs = width / GPU_PACK;
    if (width % GPU_PACK) return false;
    if (packs <= 8)
        f(RowsFit<8, 1>());
    else if (packs <= 16)
        f(RowsFit<16, 1>());
    else if (packs <= 32)
        f(RowsFit<32, 1>());
    else if (packs <= 64)
        f(RowsFit<32, 2>());
    else if (packs <= 128)
        f(RowsFit<128, 1>());
    else if (packs <= 256)
        f(RowsFit<256, 1>());
    else if (packs <= 512)
        f(RowsFit<256, 2>());
    else if (packs <= 1024)
        f(RowsFit<512, 2>());
    else if (packs <= 2048)
        f(RowsFit<1024, 2>());
    else
        return false;
    return true;
}

/* any_block — the threads of a block that walks a row of any width. */
static unsigned any_block(const Norm &norm) {
    constexpr int64_t EACH = 4; /* elements that are worth a thread */
    int64_t warps = norm.width / (EACH * GPU_WARP);
    return (unsigned)(gpu_max(1, gpu_min(warps, GPU_BLOCK / GPU_WARP)) * GPU_WARP);
}

/* The first column of a thread's pack. */
template <class Fit> __device__ static inline int64_t column_of(int pack) {
    return ((int64_t)pack * Fit::THREADS + rows_lane<Fit::THREADS>()) * GPU_PACK;
}

/* The packs of a row; zeros behind its end. */
template <class Fit, MxDtype TYPE>
__device__ static inline void get_row(const void *data, int64_t row, int64_t width, bool is_row,
                                      float x[Fit::PACKS][GPU_PACK]) {
#pragma unroll
    for (int p = 0; p < Fit::PACKS; p++) {
        int64_t column = column_of<Fit>(p);
        if (is_row && column < width) {
            gpu_get_pack(GpuArray{(void *)data, TYPE}, row * width + column, x[p]);
        } else {
#pragma unroll
            for (int i = 0; i < GPU_PACK; i++) x[p][i] = 0;
        }
    }
}

/* The scale of a pack, rounded to x's dtype. */
template <MxDtype TYPE>
__device__ static inline void get_scale(const float *from, float scale[GPU_PACK]) {
    gpu_get_pack(GpuArray{(void *)from, MX_F32}, 0, scale);
#pragma unroll
    for (int i = 0; i < GPU_PACK; i++) scale[i] = gpu_round(scale[i], TYPE);
}

/* ---- forward */

__device__ static inline float rstd_of(float squares, const Norm &norm) {
    return 1.0f / sqrtf(squares / (float)norm.width + norm.eps);
}

template <class Fit, MxDtype TYPE>
__global__ void __launch_bounds__(rows_block(Fit::THREADS)) norm_rows(Norm norm) {
    int64_t row = rows_row<Fit::THREADS>();
    bool is_row = row < norm.rows;
    float x[Fit::PACKS][GPU_PACK], sum = 0;
    get_row<Fit, TYPE>(norm.x.data, row, norm.width, is_row, x);
#pragma unroll
    for (int p = 0; p < Fit::PACKS; p++)
#pragma unroll
        for (int i = 0; i < GPU_PACK; i++) sum += x[p][i] * x[p][i];
    float rstd = rstd_of(rows_sum<Fit::THREADS>(sum), norm);
    if (!is_row) return;
    if (norm.rstd && rows_lane<Fit::THREADS>() == 0) norm.rstd[row] = rstd;
    if (!norm.y.data) return;
    const float *scale_row = norm.scale + (norm.scales > 1 ? row % norm.scales * norm.width : 0);
#pragma unroll
    for (int p = 0; p < Fit::PACKS; p++) {
        int64_t column = column_of<Fit>(p);
        if (column >= norm.width) break;
        float scale[GPU_PACK];
        get_scale<TYPE>(scale_row + column, scale);
#pragma unroll
        for (int i = 0; i < GPU_PACK; i++) x[p][i] = gpu_round(x[p][i] * rstd, TYPE) * scale[i];
        gpu_put_pack(GpuArray{norm.y.data, TYPE}, row * norm.width + column, x[p]);
    }
}

/* Rows of any width, a block each. */
__global__ void __launch_bounds__(GPU_BLOCK) norm_any_rows(Norm norm) {
    int64_t row = blockIdx.x, first = row * norm.width;
    float sum = 0;
    for (int64_t i = threadIdx.x; i < norm.width; i += blockDim.x) {
        float x = gpu_get(norm.x, first + i);
        sum += x * x;
    }
    float rstd = rstd_of(gpu_block_sum(sum), norm);
    if (norm.rstd && threadIdx.x == 0) norm.rstd[row] = rstd;
    const float *scale = norm.scale + row % norm.scales * norm.width;
    for (int64_t i = threadIdx.x; norm.y.data && i < norm.width; i += blockDim.x) {
        float x = gpu_round(gpu_get(norm.x, first + i) * rstd, norm.x.dtype);
        gpu_put(norm.y, first + i, x * gpu_round(scale[i], norm.x.dtype));
    }
}

static void rmsnorm_run(const MxDevice *device, const MxKernelCall *call) {
    Norm norm = scaled_norm_of(call);
    norm.x = gpu_in(call, 0);
    norm.scale = (const float *)call->in[1];
    norm.y = gpu_out(call, 0);
    norm.rstd = (float *)call->out[1];
    norm.eps = (float)((const MxRmsnormAttr *)call->attr)->eps;
    bool fits = fit(norm.width, [&](auto f) {
        using Fit = decltype(f);
        constexpr int BLOCK = rows_block(Fit::THREADS);
        gpu_launch(device,
                   norm.x.dtype == MX_BF16 ? norm_rows<Fit, MX_BF16> : norm_rows<Fit, MX_F32>,
                   gpu_blocks(norm.rows, BLOCK / Fit::THREADS), BLOCK, 0, norm);
    });
    if (!fits) gpu_launch(device, norm_any_rows, (unsigned)norm.rows, any_block(norm), 0, norm);
}

GPU_KERNEL(rmsnorm, .run = rmsnorm_run);

/* ---- backward: dx = rstd (g - xhat mean(g xhat)), g = dy scale, xhat = x rstd; dscale = sum dy
 * xhat */

/* A block has a group of rows of one scale: `piece` of them, every scales-th of all rows. */
typedef struct Group {
    int64_t scale, begin, end;
    float *partial;
} Group;

__device__ static inline Group group_of(const Norm &norm) {
    int64_t number = blockIdx.x / norm.scales;
    Group group;
    group.scale = blockIdx.x % norm.scales;
    group.begin = number * norm.piece;
    group.end = gpu_min(group.begin + norm.piece, norm.rows / norm.scales);
    group.partial = norm.partial ? norm.partial + blockIdx.x * norm.width : nullptr;
    return group;
}

/* Writes the group's sums of a thread's columns; those of rows side by side are added up first. */
template <class Fit>
__device__ static inline void put_partial(const Norm &norm, const Group &group,
                                          const float sum[Fit::PACKS][GPU_PACK]) {
    constexpr int ROWS = rows_block(Fit::THREADS) / Fit::THREADS;
    constexpr int WIDTH = Fit::THREADS * Fit::PACKS * GPU_PACK;
    if constexpr (ROWS == 1) {
#pragma unroll
        for (int p = 0; p < Fit::PACKS; p++) {
            int64_t column = column_of<Fit>(p);
            if (column < norm.width) gpu_put_pack(GpuArray{group.partial, MX_F32}, column, sum[p]);
        }
    } else {
        __align__(16) __shared__ float sums[ROWS * WIDTH];
        int64_t slot = threadIdx.x / Fit::THREADS * WIDTH;
#pragma unroll
        for (int p = 0; p < Fit::PACKS; p++)
            gpu_put_pack(GpuArray{sums, MX_F32}, slot + column_of<Fit>(p), sum[p]);
        __syncthreads();
        for (int64_t column = threadIdx.x; column < norm.width;
             column += rows_block(Fit::THREADS)) {
            float all = 0;
            for (int i = 0; i < ROWS; i++) all += sums[i * WIDTH + column];
            group.partial[column] = all;
        }
    }
}

/* One row: adds to the sums of dscale, and makes dx of what is in dy. */
template <class Fit, MxDtype TYPE>
__device__ static inline void
grad_row(const Norm &norm, const float *scale_row, float rstd, const float x[Fit::PACKS][GPU_PACK],
         float dy[Fit::PACKS][GPU_PACK], float sum[Fit::PACKS][GPU_PACK]) {
    float scale[Fit::PACKS][GPU_PACK], product = 0;
#pragma unroll
    for (int p = 0; p < Fit::PACKS; p++) {
        if (column_of<Fit>(p) < norm.width)
            get_scale<TYPE>(scale_row + column_of<Fit>(p), scale[p]);
#pragma unroll
        for (int i = 0; i < GPU_PACK; i++) {
            if (column_of<Fit>(p) >= norm.width) scale[p][i] = 0;
            product += x[p][i] * (dy[p][i] * scale[p][i]);
        }
    }
    float mean = rows_sum<Fit::THREADS>(product) / (float)norm.width * rstd;
#pragma unroll
    for (int p = 0; p < Fit::PACKS; p++)
#pragma unroll
        for (int i = 0; i < GPU_PACK; i++) {
            float xhat = x[p][i] * rstd;
            sum[p][i] += dy[p][i] * xhat;
            dy[p][i] = rstd * (dy[p][i] * scale[p][i] - xhat * mean);
        }
}

template <class Fit, MxDtype TYPE>
__global__ void __launch_bounds__(rows_block(Fit::THREADS)) grad_rows(Norm norm) {
    constexpr int ROWS = rows_block(Fit::THREADS) / Fit::THREADS;
    Group group = group_of(norm);
    const GpuArray dx = {norm.dx.data, TYPE};
    const float *scale = norm.scale + group.scale * norm.width;
    float x[Fit::PACKS][GPU_PACK], dy[Fit::PACKS][GPU_PACK], sum[Fit::PACKS][GPU_PACK] = {};
    for (int64_t first = group.begin; first < group.end; first += ROWS) {
        int64_t index = first + threadIdx.x / Fit::THREADS;
        bool is_row = index < group.end;
        int64_t row = is_row ? index * norm.scales + group.scale : 0;
        get_row<Fit, TYPE>(norm.x.data, row, norm.width, is_row, x);
        get_row<Fit, TYPE>(norm.dy.data, row, norm.width, is_row, dy);
        grad_row<Fit, TYPE>(norm, scale, norm.rstd[row], x, dy, sum);
#pragma unroll
        for (int p = 0; p < Fit::PACKS; p++) {
            int64_t column = column_of<Fit>(p), at = row * norm.width + column;
            if (!is_row || !dx.data || column >= norm.width) continue;
            if (norm.adds) {
                gpu_get_pack(dx, at, x[p]);
#pragma unroll
                for (int i = 0; i < GPU_PACK; i++) dy[p][i] += x[p][i];
            }
            gpu_put_pack(dx, at, dy[p]);
        }
    }
    if (group.partial) put_partial<Fit>(norm, group, sum);
}

/* Rows of any width, one after the other; each thread has some of the columns. */
__global__ void __launch_bounds__(GPU_BLOCK) grad_any_rows(Norm norm) {
    Group group = group_of(norm);
    const float *scale = norm.scale + group.scale * norm.width;
    for (int64_t i = threadIdx.x; group.partial && i < norm.width; i += blockDim.x)
        group.partial[i] = 0;
    for (int64_t index = group.begin; index < group.end; index++) {
        int64_t row = index * norm.scales + group.scale, first = row * norm.width;
        float rstd = norm.rstd[row], product = 0;
        for (int64_t i = threadIdx.x; i < norm.width; i += blockDim.x)
            product += gpu_get(norm.x, first + i) *
                       (gpu_get(norm.dy, first + i) * gpu_round(scale[i], norm.x.dtype));
        float mean = gpu_block_sum(product) / (float)norm.width * rstd;
        for (int64_t i = threadIdx.x; i < norm.width; i += blockDim.x) {
            float xhat = gpu_get(norm.x, first + i) * rstd, dy = gpu_get(norm.dy, first + i);
            if (group.partial) group.partial[i] += dy * xhat;
            if (norm.dx.data)
                gpu_give(norm.dx, first + i,
                         rstd * (dy * gpu_round(scale[i], norm.x.dtype) - xhat * mean), norm.adds);
        }
    }
}

/* Adds up partial sums [groups, n]: every column of a block has a warp's worth of threads, each
 * with some of the groups, whose sums are added in order. */
static constexpr int SUM_COLUMNS = 32, SUM_PARTS = 32;

__global__ void __launch_bounds__(SUM_COLUMNS *SUM_PARTS)
    sum_groups(const float *partial, int64_t groups, int64_t n, float *to, bool adds) {
    __shared__ float part[SUM_PARTS][SUM_COLUMNS + 1];
    int64_t column = (int64_t)blockIdx.x * SUM_COLUMNS + threadIdx.x;
    float sum = 0;
    for (int64_t i = threadIdx.y; column < n && i < groups; i += SUM_PARTS)
        sum += partial[i * n + column];
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || column >= n) return;
    sum = 0;
    for (int i = 0; i < SUM_PARTS; i++) sum += part[i][threadIdx.x];
    to[column] = adds ? to[column] + sum : sum;
}

/* Groups enough to fill a GPU, of rows enough that their partial sums are little of the work. */
static void group_rows(Norm *norm) {
    constexpr int64_t LEAST_ROWS = 8, MOST_GROUPS = 512, NARROW = 512, MOST_NARROW = 1024;
    int64_t rows = norm->rows / norm->scales;
    int64_t most = gpu_max(1, (norm->width <= NARROW ? MOST_NARROW : MOST_GROUPS) / norm->scales);
    norm->groups = gpu_min(most, (rows + LEAST_ROWS - 1) / LEAST_ROWS);
    norm->piece = norm->groups ? (rows + norm->groups - 1) / norm->groups : 0;
}

static size_t rmsnorm_grad_scratch(const MxDevice *, const MxKernelCall *call) {
    Norm norm = scaled_norm_of(call);
    group_rows(&norm);
    return sizeof(float) * (size_t)(norm.groups * norm.scales * norm.width);
}

static void rmsnorm_grad_run(const MxDevice *device, const MxKernelCall *call) {
    Norm norm = scaled_norm_of(call);
    norm.x = gpu_in(call, 0);
    norm.scale = (const float *)call->in[1];
    norm.rstd = (float *)call->in[2];
    norm.dy = gpu_in(call, 3);
    norm.dx = gpu_out(call, 0);
    norm.partial = call->out[1] ? (float *)call->scratch : nullptr;
    norm.adds = call->accumulate & 1;
    group_rows(&norm);
    unsigned n_blocks = (unsigned)(norm.groups * norm.scales);
    bool fits = fit(norm.width, [&](auto f) {
        using Fit = decltype(f);
        gpu_launch(device,
                   norm.x.dtype == MX_BF16 ? grad_rows<Fit, MX_BF16> : grad_rows<Fit, MX_F32>,
                   n_blocks, rows_block(Fit::THREADS), 0, norm);
    });
    if (!fits) gpu_launch(device, grad_any_rows, n_blocks, any_block(norm), 0, norm);
    int64_t n = norm.scales * norm.width;
    if (call->out[1])
        gpu_launch(device, sum_groups, gpu_blocks(n, SUM_COLUMNS), dim3(SUM_COLUMNS, SUM_PARTS), 0,
                   norm.partial, norm.groups, n, call->out[1], call->accumulate >> 1 & 1);
}

GPU_KERNEL(rmsnorm_grad, .scratch = rmsnorm_grad_scratch, .run = rmsnorm_grad_run);

/* ---- centring: a block a row */

__global__ void __launch_bounds__(GPU_BLOCK) center_rows(Norm norm) {
    int64_t first = (int64_t)blockIdx.x * norm.width;
    float sum = 0;
    for (int64_t i = threadIdx.x; i < norm.width; i += blockDim.x)
        sum += gpu_get(norm.x, first + i);
    float mean = gpu_block_sum(sum) / (float)norm.width;
    for (int64_t i = threadIdx.x; i < norm.width; i += blockDim.x)
        gpu_give(norm.y, first + i, gpu_get(norm.x, first + i) - mean, norm.adds);
}

static void center_run(const MxDevice *device, const MxKernelCall *call) {
    Norm norm = norm_of(call);
    norm.x = gpu_in(call, 0);
    norm.y = gpu_out(call, 0);
    norm.adds = call->accumulate & 1;
    if (norm.y.data) gpu_launch(device, center_rows, (unsigned)norm.rows, any_block(norm), 0, norm);
}

GPU_KERNEL(center, .run = center_run);

} // namespace gpu_norm
