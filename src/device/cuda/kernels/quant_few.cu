/* quant_few.cu — products of few rows with a weight in few bits, as in generating one token at a
 * time. They cost as much as reading the codes: every block decodes some rows of some columns in
 * registers, and where several share a column, their sums are added up in their order. */
#include "quant.cuh"

static constexpr int MOST_ROWS = 32;  /* of a product that is one of few */
static constexpr int GROUP = 8;       /* of them that are multiplied at once */
static constexpr int WARPS = 8;       /* of a block, which divide its rows of the weight */
static constexpr int MOST_PART = 512; /* rows of the weight that a block takes */
static constexpr int STEP = 4;        /* rows whose codes are read at once */
static constexpr int COLUMNS = GPU_WARP * GPU_PACK;

bool quant_is_few(MxQtype type, int64_t m) {
    return m <= MOST_ROWS && quant_kind(type) != QUANT_TABLE;
}

size_t quant_few_parts(const MxDevice *device, QuantFew *few) {
    constexpr int64_t LEAST_PART = WARPS * STEP, BLOCKS_A_PROCESSOR = 4;
    int64_t groups = (few->m + GROUP - 1) / GROUP, rows = few->b.rows;
    int64_t blocks = groups * ((few->b.width + COLUMNS - 1) / COLUMNS);
    int64_t wanted = BLOCKS_A_PROCESSOR * gpu_of(device)->n_processors / gpu_max(1, blocks);
    few->part = rows / gpu_max(1, wanted) / LEAST_PART * LEAST_PART;
    few->part = gpu_min(gpu_max(few->part, LEAST_PART), MOST_PART);
    few->n_parts = (rows + few->part - 1) / few->part;
    return few->n_parts > 1
               ? gpu_padded((size_t)(few->n_parts * few->m * few->b.width) * sizeof(float))
               : 0;
}

/* The left side's elements that a block needs: [row of the group][row of the part]. */
template <int ROWS>
__device__ static void load_left(const QuantFew &f, int64_t m, int64_t begin, int64_t n,
                                 float *to) {
    for (int64_t i = threadIdx.x; i < ROWS * n; i += GPU_BLOCK) {
        int64_t row = m + i / n, k = i % n;
        to[i / n * MOST_PART + k] = row < f.m ? gpu_get(f.a, row * f.b.rows + begin + k) : 0.0f;
    }
}

/* Adds what rows [begin, end) of the part's n give to a pack of columns. */
template <QuantKind KIND, int ROWS>
__device__ static void add_rows(const QuantFew &f, const float *values, const float *left,
                                int64_t first, int64_t begin, int64_t end, int64_t column,
                                float (*sum)[GPU_PACK]) {
    int n = (int)gpu_min(GPU_PACK, f.b.width - column);
    float scales[GPU_PACK], y[GPU_PACK];
    int64_t tile = -1;
    for (int64_t k = begin; k < end; k += STEP) {
        uint2 codes[STEP];
#pragma unroll
        for (int j = 0; j < STEP; j++)
            if (k + j < end)
                codes[j] = quant_codes<KIND>(f.b, (first + k + j) * f.b.width + column, n);
#pragma unroll
        for (int j = 0; j < STEP; j++) {
            if (k + j >= end) break;
            int64_t own = (int64_t)((uint32_t)(first + k + j) / (uint32_t)f.b.tile);
            if (own != tile) quant_scales(f.b, first + k + j, column, n, scales);
            tile = own;
#pragma unroll
            for (int i = 0; i < GPU_PACK; i++)
                y[i] = quant_value<KIND>(codes[j], i, values) * scales[i];
            if (f.a.dtype == MX_BF16) quant_round(y);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                float x = left[r * MOST_PART + k + j];
#pragma unroll
                for (int i = 0; i < GPU_PACK; i++) sum[r][i] += x * y[i];
            }
        }
    }
}

/* The warps' sums of a row of the result, one after the other. */
__device__ static void give_row(const QuantFew &f, int64_t row, const float *sum,
                                float (*part)[COLUMNS]) {
    int warp = (int)threadIdx.x / GPU_WARP, lane = (int)threadIdx.x % GPU_WARP;
    int64_t column = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
#pragma unroll
    for (int i = 0; i < GPU_PACK; i++) part[warp][lane * GPU_PACK + i] = sum[i];
    __syncthreads();
    float all = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) all += part[w][threadIdx.x];
    __syncthreads();
    if (row >= f.m || column >= f.b.width) return;
    if (f.n_parts > 1)
        f.sums[((int64_t)blockIdx.y * f.m + row) * f.b.width + column] = all;
    else
        gpu_put(f.c, row * f.b.width + column, all);
}

template <QuantKind KIND, int ROWS>
__global__ void __launch_bounds__(GPU_BLOCK) few_kernel(QuantFew f, QuantValues all) {
    __shared__ float values[MX_BYTE_CODES], left[ROWS * MOST_PART];
    __shared__ float part[WARPS][COLUMNS];
    int64_t m = (int64_t)blockIdx.z * ROWS, first = (int64_t)blockIdx.y * f.part;
    int64_t n = gpu_min(f.part, f.b.rows - first), a_warp = (n + WARPS - 1) / WARPS;
    quant_load_values(all, values);
    load_left<ROWS>(f, m, first, n, left);
    __syncthreads();
    float sum[ROWS][GPU_PACK] = {};
    int64_t warp = threadIdx.x / GPU_WARP, lane = threadIdx.x % GPU_WARP;
    int64_t column = (int64_t)blockIdx.x * COLUMNS + lane * GPU_PACK;
    if (column < f.b.width)
        add_rows<KIND, ROWS>(f, values, left, first, warp * a_warp, gpu_min(n, (warp + 1) * a_warp),
                             column, sum);
#pragma unroll
    for (int r = 0; r < ROWS; r++) give_row(f, m + r, sum[r], part);
}

__global__ void __launch_bounds__(GPU_BLOCK) sum_parts_kernel(QuantFew f) {
    int64_t n = f.m * f.b.width, i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (int64_t part = 0; part < f.n_parts; part++) sum += f.sums[part * n + i];
    gpu_put(f.c, i, sum);
}

template <QuantKind KIND> static void run(const MxDevice *device, MxQtype type, const QuantFew &f) {
    auto kernel = f.m == 1   ? few_kernel<KIND, 1>
                  : f.m == 2 ? few_kernel<KIND, 2>
                  : f.m <= 4 ? few_kernel<KIND, 4>
                             : few_kernel<KIND, GROUP>;
    dim3 grid(gpu_blocks(f.b.width, COLUMNS), (unsigned)f.n_parts, gpu_blocks(f.m, GROUP));
    gpu_launch(device, kernel, grid, GPU_BLOCK, 0, f, quant_values(type));
    if (f.n_parts > 1)
        gpu_launch(device, sum_parts_kernel, gpu_blocks(f.m * f.b.width), GPU_BLOCK, 0, f);
}

void quant_few_run(const MxDevice *device, MxQtype type, const QuantFew &few) {
    if (quant_kind(type) == QUANT_PAIRS)
        run<QUANT_PAIRS>(device, type, few);
    else
        run<QUANT_SIGNED>(device, type, few);
}
