/* rows.cuh — rows that some threads of a block share: a part of a warp, a warp, or a whole block.
 */
#ifndef ROWS_CUH
#define ROWS_CUH

#include "device/cuda/gpu.cuh"

/* rows_block — the threads of a block whose rows have this many threads each. */
__host__ __device__ constexpr int rows_block(int threads) {
    return threads <= GPU_WARP ? GPU_BLOCK : threads;
}

/* rows_sum, rows_max — over the threads of a row, all of which get it. All threads of the block
 * call them, even those that have no row. */
template <int THREADS, class T> __device__ static inline T rows_sum(T x) {
    if constexpr (THREADS > GPU_WARP) {
        return gpu_block_sum(x);
    } else {
        for (int lane = THREADS / 2; lane; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
        return x;
    }
}
template <int THREADS, class T> __device__ static inline T rows_max(T x) {
    if constexpr (THREADS > GPU_WARP) {
        return gpu_block_max(x);
    } else {
        for (int lane = THREADS / 2; lane; lane /= 2) {
            T other = __shfl_xor_sync(0xffffffffu, x, lane);
            x = other > x ? other : x;
        }
        return x;
    }
}

/* The row of this thread, and its place among the threads of the row. */
template <int THREADS> __device__ static inline int64_t rows_row() {
    return (int64_t)blockIdx.x * (rows_block(THREADS) / THREADS) + threadIdx.x / THREADS;
}
template <int THREADS> __device__ static inline int rows_lane() {
    return (int)(threadIdx.x % THREADS);
}

/* How many threads a row has, for templates. */
template <int N, int M = 1> struct RowsFit { static constexpr int THREADS = N, PACKS = M; };

/* rows_width — the size of the last dim. rows_count — of the others together; 0 without elements.
 */
static inline int64_t rows_width(MxShape shape) {
    return shape.rank ? shape.dim[shape.rank - 1] : 1;
}
static inline int64_t rows_count(MxShape shape) {
    int64_t width = rows_width(shape);
    return width ? mx_shape_count(shape) / width : 0;
}

#endif
