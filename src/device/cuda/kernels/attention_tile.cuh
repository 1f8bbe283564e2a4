/* attention_tile.cuh — what attention's inner loop does with tiles of keys, made for its speed:
 * copies without tests or divisions where all of a tile is wanted, and a mask that needs few
 * registers. */
#ifndef ATTENTION_TILE_CUH
#define ATTENTION_TILE_CUH

#include "attention.cuh"

/* attention_tile_fits — whether a block's threads can each keep to one column of packs. */
template <class E, int WIDTH, int THREADS>
static constexpr bool attention_tile_fits = WIDTH / attention_pack<E> <= THREADS;

/* attention_tile_start — of the packs that a thread copies of rows `step` elements apart, of which
 * `width` columns are there, the first one's place. attention_tile_copy — copies them, from there
 * on, and zeros behind the columns. All rows exist and are made of aligned packs. */
template <class E, int WIDTH, int THREADS>
__device__ __forceinline__ int attention_tile_start(int step, int width) {
    constexpr int PACK = attention_pack<E>, PACKS = WIDTH / PACK;
    int row = (int)threadIdx.x / PACKS, column = (int)threadIdx.x % PACKS * PACK;
    return row * step + (column < width ? column : 0);
}
template <class E, int ROWS, int WIDTH, int THREADS>
__device__ __forceinline__ void attention_tile_copy(E *to, const E *from, int step, int width) {
    constexpr int PACK = attention_pack<E>, PACKS = WIDTH / PACK, AT_ONCE = THREADS / PACKS;
    static_assert(attention_tile_fits<E, WIDTH, THREADS>);
    int row = (int)threadIdx.x / PACKS, column = (int)threadIdx.x % PACKS * PACK;
    if (THREADS % PACKS && row >= AT_ONCE) return;
    to += row * attention_pitch<E, WIDTH> + column;
#pragma unroll
    for (int i = 0; i < ROWS; i += AT_ONCE) {
        if (ROWS % AT_ONCE && i + row >= ROWS) break;
        copy_async<16>(to + i * attention_pitch<E, WIDTH>, from + (int64_t)i * step,
                       column < width);
    }
}

/* attention_tile_copy_some — copies rows and zeros, whatever they are like: at(i) is where row i
 * starts in `from`, below 0 = zeros. UNROLL: iterations that are under way together. */
template <class E, int ROWS, int WIDTH, int THREADS, int UNROLL, class F>
__device__ __forceinline__ void attention_tile_copy_some(E *to, const E *from, int width,
                                                         bool in_packs, F at) {
    constexpr int PACK = attention_pack<E>, PACKS = WIDTH / PACK;
    static_assert(WIDTH % PACK == 0);
#pragma unroll UNROLL
    for (int i = (int)threadIdx.x; i < ROWS * PACKS; i += THREADS) {
        int row = i / PACKS, column = i % PACKS * PACK;
        int64_t start = at(row);
        E *place = to + row * attention_pitch<E, WIDTH> + column;
        bool is_there = start >= 0 && column < width;
        if (in_packs) {
            copy_async<16>(place, from + (is_there ? start + column : 0), is_there);
            continue;
        }
#pragma unroll
        for (int j = 0; j < PACK; j++)
            place[j] = is_there && column + j < width ? from[start + column + j] : E(0);
    }
}

/* attention_tile_hide — scores [16 M rows, N keys] that are not seen become minus infinity. One
 * reason after the other, so that little is in registers at a time. */
template <int M, int N>
__device__ __forceinline__ void attention_hide_range(const AttentionView &v, const int4 *sees,
                                                     int first_row, int first_key,
                                                     float (&s)[M][N / 8][4]) {
#pragma unroll
    for (int m = 0; m < 2 * M; m++) {
        int row = first_row + 8 * m;
        if (row >= v.time * v.group) continue;
        int2 seen = *(const int2 *)(sees + attention_token(v, row));
        int low = seen.x - first_key, high = seen.y - first_key;
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            int key = i / 2 * 8 + i % 2;
            float *score = &s[m / 2][i / 2][m % 2 * 2 + i % 2];
            if (key < low || key > high) *score = -INFINITY;
        }
    }
}
template <int M, int N>
__device__ __forceinline__ void attention_hide_segments(const AttentionView &v, int b,
                                                        const int4 *sees, int first_row,
                                                        int first_key, float (&s)[M][N / 8][4]) {
    const int32_t *segments = v.segments + (int64_t)b * v.keys;
    int own[2 * M];
#pragma unroll
    for (int m = 0; m < 2 * M; m++) {
        int row = first_row + 8 * m, rows = v.time * v.group;
        own[m] = sees[attention_token(v, row < rows ? row : rows - 1)].z;
    }
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        int key = first_key + i / 2 * 8 + i % 2;
        int segment = segments[key < v.keys ? key : v.keys - 1];
#pragma unroll
        for (int m = 0; m < 2 * M; m++)
            if (segment != own[m]) s[m / 2][i / 2][m % 2 * 2 + i % 2] = -INFINITY;
    }
}
template <int M, int N>
__device__ __forceinline__ void attention_hide_unchosen(const AttentionView &v, int b,
                                                        int first_row, int first_key,
                                                        float (&s)[M][N / 8][4]) {
#pragma unroll
    for (int m = 0; m < 2 * M; m++) {
        int row = first_row + 8 * m;
        if (row >= v.time * v.group) continue;
        const uint32_t *chosen =
            v.chosen + ((int64_t)b * v.time + attention_token(v, row)) * v.words;
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            int key = first_key + i / 2 * 8 + i % 2;
            int slot = v.wraps ? key % v.keys : key < v.keys ? key : v.keys - 1;
            float *score = &s[m / 2][i / 2][m % 2 * 2 + i % 2];
            if (!(chosen[slot / 32] >> slot % 32 & 1u)) *score = -INFINITY;
        }
    }
}
template <int M, int N>
__device__ __forceinline__ void attention_tile_hide(const AttentionView &v, int b, int first_row,
                                                    int first_key, float (&s)[M][N / 8][4]) {
    int lane = (int)(threadIdx.x % GPU_WARP);
    const int4 *sees = v.sees + (int64_t)b * v.time;
    first_row += lane / 4, first_key += lane % 4 * 2;
    attention_hide_range<M, N>(v, sees, first_row, first_key, s);
    if (v.segments) attention_hide_segments<M, N>(v, b, sees, first_row, first_key, s);
    if (v.chosen) attention_hide_unchosen<M, N>(v, b, first_row, first_key, s);
}

#endif
