/* tiles.cuh — products of tiles of floats, in shared memory or elsewhere, by a block of GPU_BLOCK
 * threads. All sizes are multiples of four, and what lies behind the elements of a row is zeros, so
 * that threads read four floats at once. Barriers before and after are the caller's. */
#ifndef GPU_TILES_CUH
#define GPU_TILES_CUH

#include "device/cuda/gpu.cuh"

static constexpr int TILE_FOUR = 4, TILE_SIDE = 16; /* threads side by side in both directions */
static constexpr int TILE_STEP = TILE_FOUR * TILE_SIDE;

typedef struct Tile {
    float *x;
    int64_t step; /* from row to row */
} Tile;

/* tile_padded — to fours. tile_step — floats from row to row, such that 16 bytes of consecutive
 * rows lie in different banks. */
__host__ __device__ static inline int64_t tile_padded(int64_t n) {
    return (n + TILE_FOUR - 1) / TILE_FOUR * TILE_FOUR;
}
__host__ __device__ static inline int64_t tile_step(int64_t n) {
    return TILE_FOUR * ((n + TILE_FOUR - 1) / TILE_FOUR | 1);
}

/* Memory of a block's tiles: shared as long as there is room, then scratch. */
typedef struct TileRoom {
    char *shared, *scratch; /* NULL = only counts */
    size_t shared_used, scratch_used, shared_most;
} TileRoom;

__host__ __device__ static inline Tile tile_take(TileRoom *room, int64_t rows, int64_t columns) {
    int64_t step = tile_step(columns);
    size_t bytes = (size_t)(rows * step) * sizeof(float);
    bool is_shared = room->shared_used + bytes <= room->shared_most;
    size_t *used = is_shared ? &room->shared_used : &room->scratch_used;
    uintptr_t at = (uintptr_t)(is_shared ? room->shared : room->scratch) + *used;
    *used += bytes;
    return Tile{(float *)at, step};
}

__device__ static inline void tile_four(const float *from, float *to) {
    float4 x = *(const float4 *)from;
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
}

/* tile_column — of a thread's four columns: neighbours, or if b is turned, as far apart as lanes
 * keep banks apart. */
template <bool B_TURNED> __device__ static inline int64_t tile_column(int64_t j, int q) {
    return B_TURNED ? j + q * TILE_SIDE : j + q;
}

/* tile_sum — adds sums over k for rows i … i + 3 and four columns: of a [m, k], or if it is turned
 * [k, m], whose rows may have weights, and b [k, n] or [n, k]. Columns from n on repeat column 0.
 */
template <bool A_TURNED, bool B_TURNED>
__device__ static inline void tile_sum(Tile a, Tile b, int64_t i, int64_t j, int64_t n, int64_t k,
                                       const float *weight, float (*sum)[TILE_FOUR]) {
    for (int64_t l = 0; l < k; l += TILE_FOUR) {
        float x[TILE_FOUR][TILE_FOUR], y[TILE_FOUR][TILE_FOUR];
#pragma unroll
        for (int q = 0; q < TILE_FOUR; q++) {
            int64_t column = tile_column<B_TURNED>(j, q);
            tile_four(A_TURNED ? a.x + (l + q) * a.step + i : a.x + (i + q) * a.step + l, x[q]);
            tile_four(B_TURNED ? b.x + (column < n ? column : 0) * b.step + l
                               : b.x + (l + q) * b.step + j,
                      y[q]);
        }
        if (A_TURNED && weight)
#pragma unroll
            for (int q = 0; q < TILE_FOUR; q++)
#pragma unroll
                for (int r = 0; r < TILE_FOUR; r++) x[q][r] *= weight[l + q];
#pragma unroll
        for (int q = 0; q < TILE_FOUR; q++)
#pragma unroll
            for (int r = 0; r < TILE_FOUR; r++)
#pragma unroll
                for (int s = 0; s < TILE_FOUR; s++)
                    sum[r][s] += (A_TURNED ? x[q][r] : x[r][q]) * (B_TURNED ? y[s][q] : y[q][s]);
    }
}

/* tile_each — each(i, j) for the rows and columns that this thread has of [m, n]. */
template <bool B_TURNED, class Each>
__device__ static inline void tile_each(int64_t m, int64_t n, const Each &each) {
    int x = (int)threadIdx.x % TILE_SIDE, y = (int)threadIdx.x / TILE_SIDE;
    for (int64_t i = TILE_FOUR * y; i < m; i += TILE_STEP)
        for (int64_t j = B_TURNED ? x : TILE_FOUR * x; j < n; j += TILE_STEP) each(i, j);
}

/* tile_give — give(i, j, sum) for each of a thread's sums. */
template <bool B_TURNED, class Give>
__device__ static inline void tile_give(int64_t i, int64_t j, int64_t n,
                                        const float (*sum)[TILE_FOUR], const Give &give) {
#pragma unroll
    for (int r = 0; r < TILE_FOUR; r++)
#pragma unroll
        for (int s = 0; s < TILE_FOUR; s++)
            if (tile_column<B_TURNED>(j, s) < n)
                give(i + r, tile_column<B_TURNED>(j, s), sum[r][s]);
}

/* tile_product — give(i, j, sum over k of a and b) for all of [m, n]. */
template <bool A_TURNED, bool B_TURNED, class Give>
__device__ static inline void tile_product(Tile a, Tile b, int64_t m, int64_t n, int64_t k,
                                           const float *weight, const Give &give) {
    tile_each<B_TURNED>(m, n, [&](int64_t i, int64_t j) {
        float sum[TILE_FOUR][TILE_FOUR] = {};
        tile_sum<A_TURNED, B_TURNED>(a, b, i, j, n, k, weight, sum);
        tile_give<B_TURNED>(i, j, n, sum, give);
    });
}

#endif
