/* expert_product.cuh — a block's tile of a product of matrices whose lines lie anywhere: of bf16 by
 * tensor cores, with lines of whole packs; of any dtype and width by additions and multiplications.
 *
 * A tile is MATRIX_TILE by MATRIX_TILE; `deep` elements of k are added at a time. An operand is a
 * matrix of lines. Those of a `turned` one are the k's and their elements are the rows (or columns)
 * of the product; of others it is the other way round. Lines may be chosen by an order. */
#ifndef EXPERT_PRODUCT_CUH
#define EXPERT_PRODUCT_CUH

#include "mma.cuh"

static constexpr int MATRIX_TILE = 128, MATRIX_THREADS = 256;

typedef struct Lines {
    GpuArray data;
    int64_t begin;        /* of line 0 in the data */
    int64_t n, width;     /* lines, elements of each */
    const int32_t *order; /* of line i, NULL = i */
} Lines;

__device__ static inline int64_t line_at(const Lines &x, int64_t i) {
    return x.begin + (x.order ? x.order[i] : i) * x.width;
}

/* ---- by tensor cores */

static constexpr int MMA_DEEP = 32, MMA_STAGES = 3;

/* A tile of an operand in shared memory. Lines are so far apart that eight of them, at the same
 * element, lie in different banks. */
template <bool TURNED> struct Staged {
    static constexpr int APART = (TURNED ? MATRIX_TILE : MMA_DEEP) + GPU_PACK;
    static constexpr int ELEMENTS = (TURNED ? MMA_DEEP : MATRIX_TILE) * APART;
};

/* What a thread copies of a tile: a pack of two lines. */
template <bool TURNED> struct Stream {
    static constexpr int PACKS = (TURNED ? MATRIX_TILE : MMA_DEEP) / GPU_PACK; /* of a line */
    static constexpr int STEP = MATRIX_THREADS / PACKS;
    const MxBf16 *line[2]; /* of the next copy; NULL = zeros */
    int64_t at;            /* first row of the product (or column) */

    __device__ void find(const Lines &x, int64_t first) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int64_t number = first + threadIdx.x / PACKS + i * STEP;
            line[i] = number < x.n ? (const MxBf16 *)x.data.data + line_at(x, number) : nullptr;
        }
    }
    __device__ void begin(const Lines &x, int64_t first) {
        at = first;
        find(x, TURNED ? 0 : at);
    }
    /* Copies k to k + MMA_DEEP. The lines of the next copy are looked up already. */
    __device__ void copy(const Lines &x, MxBf16 *to, int64_t k) {
        int pack = (int)(threadIdx.x % PACKS) * GPU_PACK;
        int64_t element = (TURNED ? at : k) + pack;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            bool is_there = line[i] && element < x.width;
            int slot = ((int)threadIdx.x / PACKS + i * STEP) * Staged<TURNED>::APART + pack;
            copy_async<16>(to + slot, is_there ? line[i] + element : x.data.data, is_there);
        }
        if constexpr (TURNED) find(x, k + MMA_DEEP);
    }
};

/* Sums of a thread: of warps two by four, each with 64 by 32 elements of the tile. */
static constexpr int MMA_ROWS = 4, MMA_COLUMNS = 4;
typedef float MmaSums[MMA_ROWS][MMA_COLUMNS][4];

/* Operands of 16 rows, and of 16 columns, and 16 k's. */
template <bool TURNED>
__device__ static inline void load_rows(uint32_t to[4], const MxBf16 *tile, int row, int k) {
    int lane = (int)(threadIdx.x % GPU_WARP), matrix = lane / 8, own = lane % 8;
    constexpr int APART = Staged<TURNED>::APART;
    if constexpr (TURNED)
        mma_load_turned(to, tile + (k + matrix / 2 * 8 + own) * APART + row + matrix % 2 * 8);
    else
        mma_load(to, tile + (row + matrix % 2 * 8 + own) * APART + k + matrix / 2 * 8);
}
template <bool TURNED>
__device__ static inline void load_columns(uint32_t to[4], const MxBf16 *tile, int column, int k) {
    int lane = (int)(threadIdx.x % GPU_WARP), matrix = lane / 8, own = lane % 8;
    constexpr int APART = Staged<TURNED>::APART;
    if constexpr (TURNED)
        mma_load_turned(to, tile + (k + matrix % 2 * 8 + own) * APART + column + matrix / 2 * 8);
    else
        mma_load(to, tile + (column + matrix / 2 * 8 + own) * APART + k + matrix % 2 * 8);
}

template <bool TURNED_A, bool TURNED_B>
__device__ static inline void add_stage(MmaSums sum, const MxBf16 *a, const MxBf16 *b) {
    int warp = (int)threadIdx.x / GPU_WARP, row = warp / 4 * 64, column = warp % 4 * 32;
#pragma unroll
    for (int k = 0; k < MMA_DEEP; k += 16) {
        uint32_t x[MMA_ROWS][4], y[MMA_COLUMNS / 2][4];
#pragma unroll
        for (int i = 0; i < MMA_ROWS; i++) load_rows<TURNED_A>(x[i], a, row + 16 * i, k);
#pragma unroll
        for (int j = 0; j < MMA_COLUMNS / 2; j++)
            load_columns<TURNED_B>(y[j], b, column + 16 * j, k);
#pragma unroll
        for (int i = 0; i < MMA_ROWS; i++)
#pragma unroll
            for (int j = 0; j < MMA_COLUMNS; j++) mma_bf16(sum[i][j], x[i], y[j / 2] + j % 2 * 2);
    }
}

template <bool TURNED_A, bool TURNED_B> constexpr size_t mma_shared() {
    return sizeof(MxBf16) * MMA_STAGES * (Staged<TURNED_A>::ELEMENTS + Staged<TURNED_B>::ELEMENTS);
}

/* mma_tile — the product's tile from `row` and `column` on; give(row, column, value) gets elements
 * of it, some of which may lie behind the product's end. */
template <bool TURNED_A, bool TURNED_B, class F>
__device__ static inline void mma_tile(const Lines &a, const Lines &b, int64_t row, int64_t column,
                                       int64_t deep, const F &give) {
    constexpr int A = Staged<TURNED_A>::ELEMENTS, STAGE = A + Staged<TURNED_B>::ELEMENTS;
    MxBf16 *shared = gpu_dynamic<MxBf16>();
    int64_t steps = (deep + MMA_DEEP - 1) / MMA_DEEP;
    MmaSums sum = {};
    Stream<TURNED_A> to_a;
    Stream<TURNED_B> to_b;
    to_a.begin(a, row);
    to_b.begin(b, column);
    auto copy = [&](int64_t step) {
        MxBf16 *stage = shared + step % MMA_STAGES * STAGE;
        if (step < steps) {
            to_a.copy(a, stage, step * MMA_DEEP);
            to_b.copy(b, stage + A, step * MMA_DEEP);
        }
        copy_commit();
    };
    for (int64_t step = 0; step < MMA_STAGES - 1; step++) copy(step);
    for (int64_t step = 0; step < steps; step++) {
        copy_wait<MMA_STAGES - 2>();
        __syncthreads();
        copy(step + MMA_STAGES - 1); /* to the stage that all have read */
        const MxBf16 *stage = shared + step % MMA_STAGES * STAGE;
        add_stage<TURNED_A, TURNED_B>(sum, stage, stage + A);
    }
    int warp = (int)threadIdx.x / GPU_WARP, lane = (int)threadIdx.x % GPU_WARP;
    row += warp / 4 * 64 + lane / 4;
    column += warp % 4 * 32 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < MMA_ROWS; i++)
#pragma unroll
        for (int j = 0; j < MMA_COLUMNS; j++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                give(row + 16 * i + 8 * half, column + 8 * j, sum[i][j] + 2 * half);
}

/* ---- by additions and multiplications: each thread has eight by eight elements */

static constexpr int PLAIN_DEEP = 8, PLAIN_EACH = 8;

template <bool TURNED>
__device__ static inline void stage_plain(const Lines &x, int64_t first, int64_t k,
                                          float to[PLAIN_DEEP][MATRIX_TILE + 1]) {
    for (int i = (int)threadIdx.x; i < PLAIN_DEEP * MATRIX_TILE; i += MATRIX_THREADS) {
        int own = TURNED ? i % MATRIX_TILE : i / PLAIN_DEEP;
        int deep = TURNED ? i / MATRIX_TILE : i % PLAIN_DEEP;
        int64_t line = TURNED ? k + deep : first + own, element = TURNED ? first + own : k + deep;
        bool is_there = line < x.n && element < x.width;
        to[deep][own] = is_there ? gpu_get(x.data, line_at(x, line) + element) : 0;
    }
}

/* plain_tile — as mma_tile; give gets one element at a time. */
template <bool TURNED_A, bool TURNED_B, class F>
__device__ static inline void plain_tile(const Lines &a, const Lines &b, int64_t row,
                                         int64_t column, int64_t deep, const F &give) {
    __shared__ float x[PLAIN_DEEP][MATRIX_TILE + 1], y[PLAIN_DEEP][MATRIX_TILE + 1];
    constexpr int APART = MATRIX_TILE / PLAIN_EACH;
    int own_row = (int)threadIdx.x / APART, own_column = (int)threadIdx.x % APART;
    float sum[PLAIN_EACH][PLAIN_EACH] = {};
    for (int64_t k = 0; k < deep; k += PLAIN_DEEP) {
        stage_plain<TURNED_A>(a, row, k, x);
        stage_plain<TURNED_B>(b, column, k, y);
        __syncthreads();
#pragma unroll
        for (int d = 0; d < PLAIN_DEEP; d++)
#pragma unroll
            for (int i = 0; i < PLAIN_EACH; i++)
#pragma unroll
                for (int j = 0; j < PLAIN_EACH; j++)
                    sum[i][j] += x[d][own_row + APART * i] * y[d][own_column + APART * j];
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < PLAIN_EACH; i++)
#pragma unroll
        for (int j = 0; j < PLAIN_EACH; j++)
            give(row + own_row + APART * i, column + own_column + APART * j, sum[i][j]);
}

/* ---- the tiles of a grid: blocks that run together share rows and columns */

typedef struct TilePlace {
    int64_t row, column; /* in tiles */
} TilePlace;

__host__ __device__ static inline TilePlace tile_place(int64_t block, int64_t rows,
                                                       int64_t columns) {
    constexpr int64_t BAND = 8; /* rows of tiles */
    int64_t first = block / (BAND * columns) * BAND, in_band = block % (BAND * columns);
    int64_t high = gpu_min(BAND, rows - first);
    return TilePlace{first + in_band % high, in_band / high};
}

#endif
