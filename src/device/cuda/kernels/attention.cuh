/* attention.cuh — shared by attention, its gradient and attention over caches: which keys a query
 * sees, tiles in shared memory, and products of tiles. The numbers of a tile of scores lie in the
 * registers of a warp as those of mma.cuh's C do, whatever the dtype is.
 *
 * The query heads that read one head of keys are rows of one matrix: row r of such a group is head
 * r % group of token r / group. */
#ifndef ATTENTION_CUH
#define ATTENTION_CUH

#include "mma.cuh"

#include <climits>

static constexpr int ATTENTION_GRAIN = 16; /* queries, or keys, that are described together */
static constexpr int ATTENTION_MOST_WIDTH = 576;
static constexpr float ATTENTION_LOG2_E = 1.44269504f;
static constexpr float ATTENTION_LOWEST = -1e30f; /* finite: what has seen nothing stays 0 */

/* Everything that kernels know of a call. Keys are counted from the sequence's first one; key k
 * lies in row k, or of caches in row k mod keys. */
typedef struct AttentionView {
    const void *q, *k, *v;  /* [batch, time, heads, width], [.., keys, key heads, width], [..] */
    void *out;              /* [batch, time, heads, value width] */
    float *log_sums, *tops; /* [batch, heads, time]; NULL = not wanted */
    const int4 *sees;       /* [batch, time]: first key, last key, segment of a query */
    const int4 *grains;     /* [batch, grains, 2]: extremes of these, as AttentionBounds has them */
    const int2 *key_grains; /* [batch, grains]: extremes of segments */
    const int32_t *segments;  /* [batch, keys]; NULL = all are of one */
    const uint32_t *chosen;   /* [batch, time, words]; NULL = all are */
    const float *sinks;       /* [heads]; NULL = none */
    const int32_t *sequences; /* of a batch's rows in caches; NULL = its own */
    int batch, time, keys, heads, group, key_heads;
    int width, value_width, value_row; /* rows of v may be wider than what is read of them */
    int words;
    bool wraps;                /* keys lie in the rows of a cache */
    bool in_packs, v_in_packs; /* rows of q and k, of v are made of aligned packs of 16 bytes */
    uint32_t inverse_group;
    float scale, factor, cap; /* factor: from a product, or a capped score, to the exponent of 2 */
    /* Keys may be split among blocks, which leave these for a second kernel. */
    int n_splits;
    float *partial;       /* [splits, batch, time, heads, value width] */
    float2 *partial_sums; /* [splits, batch, time, heads]: most, sum */
    /* of the gradient */
    const void *d_out;
    const float2 *row_sums; /* [batch, time, heads]: log-sum to base 2; d_out * out, summed up */
    void *dq, *dk, *dv;
} AttentionView;

/* attention_view — of a call of attention, its gradient or cache_attention, without what lies in
 * scratch. */
AttentionView attention_view(const MxKernelCall *call);
/* attention_is_on_host — a part of the keys, of which rings are made (GPUs have none of these),
 * chunks that every head chooses for itself, and caches in few bits. */
static inline bool attention_is_on_host(const MxKernelCall *call) {
    const MxAttentionAttr *attr = (const MxAttentionAttr *)call->attr;
    return attr->has_key_part || attr->chunk > 0 || attr->kept;
}
/* attention_see — finds out what queries see; the view then knows. It carves attention_see_bytes
 * from scratch. */
size_t attention_see_bytes(const MxKernelCall *call);
void attention_see(const MxDevice *device, const MxKernelCall *call, AttentionView *view,
                   void **scratch);
/* attention_forward — out, log-sums and largest scores; of split keys out alone. attention_splits —
 * into how many parts keys should be split. attention_partial — carves what they leave from
 * scratch, attention_partial_bytes. */
void attention_forward(const MxDevice *device, const AttentionView *view, MxDtype dtype);
int attention_splits(const MxDevice *device, const AttentionView *view);
void attention_partial(AttentionView *view, void **scratch);
size_t attention_partial_bytes(const AttentionView *view);

static inline int attention_rows(const AttentionView *view) {
    return view->time * view->group;
}

/* ---- rows: queries of the heads that share a head of keys */

__device__ __forceinline__ int attention_token(const AttentionView &v, int row) {
    return v.group == 1 ? row : (int)__umulhi((uint32_t)row, v.inverse_group);
}
/* attention_row — the index of a row of a group among [batch, time, heads]. */
__device__ __forceinline__ int64_t attention_row(const AttentionView &v, int b, int key_head,
                                                 int row) {
    int token = attention_token(v, row);
    int64_t first = ((int64_t)b * v.time + token) * v.heads;
    return first + key_head * v.group + (row - token * v.group);
}

/* ---- what is seen */

/* Extremes of some queries' first keys, last keys and segments. */
struct AttentionBounds {
    int low, highest_low, lowest_high, high, least, most;

    __device__ void begin() {
        low = lowest_high = least = INT_MAX;
        highest_low = high = most = INT_MIN;
    }
    __device__ void add(int4 ends, int2 segment) {
        low = ends.x < low ? ends.x : low;
        highest_low = ends.y > highest_low ? ends.y : highest_low;
        lowest_high = ends.z < lowest_high ? ends.z : lowest_high;
        high = ends.w > high ? ends.w : high;
        least = segment.x < least ? segment.x : least;
        most = segment.y > most ? segment.y : most;
    }
};

typedef enum AttentionSight { ATTENTION_NONE, ATTENTION_PART, ATTENTION_ALL } AttentionSight;

static inline __host__ __device__ int attention_grains(int n) {
    return (n + ATTENTION_GRAIN - 1) / ATTENTION_GRAIN;
}

/* Of the tokens of rows [first, end), and perhaps of some beside them. */
__device__ static inline AttentionBounds attention_bounds(const AttentionView &v, int b, int first,
                                                          int end) {
    AttentionBounds bounds;
    bounds.begin();
    int from = attention_token(v, first) / ATTENTION_GRAIN;
    int to = attention_token(v, end - 1) / ATTENTION_GRAIN;
    const int4 *grains = v.grains + 2 * (int64_t)b * attention_grains(v.time);
    for (int i = from; i <= to; i++) {
        int4 ends = grains[2 * i], segments = grains[2 * i + 1];
        bounds.add(ends, int2{segments.x, segments.y});
    }
    return bounds;
}

/* The least and the greatest segment of keys [first, last]. */
__device__ static inline int2 attention_key_segments(const AttentionView &v, int b, int first,
                                                     int last) {
    int2 all = {INT_MAX, INT_MIN};
    if (!v.segments) return int2{0, 0};
    const int2 *grains = v.key_grains + (int64_t)b * attention_grains(v.keys);
    last = last < v.keys ? last : v.keys - 1;
    for (int i = first / ATTENTION_GRAIN; i <= last / ATTENTION_GRAIN; i++) {
        all.x = grains[i].x < all.x ? grains[i].x : all.x;
        all.y = grains[i].y > all.y ? grains[i].y : all.y;
    }
    return all;
}

__device__ static inline AttentionSight attention_sight(const AttentionBounds &rows, int first,
                                                        int last, int2 segments) {
    if (last < rows.low || first > rows.high) return ATTENTION_NONE;
    if (rows.most < segments.x || segments.y < rows.least) return ATTENTION_NONE;
    bool is_one = rows.least == rows.most && segments.x == segments.y;
    bool in_range = first >= rows.highest_low && last <= rows.lowest_high;
    return is_one && in_range ? ATTENTION_ALL : ATTENTION_PART;
}

/* Goes through the tiles [at, end) of which something is seen; all lanes of a warp together. sight:
 * of a tile. */
template <class F> struct AttentionWalk {
    F sight;
    int at, end;
    unsigned seen, whole; /* bits of the 32 tiles before `at` */

    /* The next tile, -1 = there are no more; whether all of it is seen. */
    __device__ __forceinline__ int next(bool *is_whole) {
        while (!seen) {
            if (at >= end) return -1;
            int tile = at + (int)(threadIdx.x % GPU_WARP);
            AttentionSight own = tile < end ? sight(tile) : ATTENTION_NONE;
            seen = __ballot_sync(0xffffffffu, own != ATTENTION_NONE);
            whole = __ballot_sync(0xffffffffu, own == ATTENTION_ALL);
            at += GPU_WARP;
        }
        int bit = __ffs((int)seen) - 1;
        seen &= seen - 1;
        *is_whole = whole >> bit & 1;
        return at - GPU_WARP + bit;
    }
};
template <class F>
__device__ __forceinline__ AttentionWalk<F> attention_walk(F sight, int from, int end) {
    return AttentionWalk<F>{sight, from, end, 0, 0};
}

/* Whether a query, token t of b, sees a key. */
__device__ __forceinline__ bool attention_sees(const AttentionView &v, int b, int token, int4 query,
                                               int key) {
    if (key < query.x || key > query.y) return false;
    if (v.segments && v.segments[(int64_t)b * v.keys + key] != query.z) return false;
    if (!v.chosen) return true;
    int slot = v.wraps ? key % v.keys : key;
    return v.chosen[((int64_t)b * v.time + token) * v.words + slot / 32] >> slot % 32 & 1u;
}

/* attention_hide — scores that are not seen become minus infinity; tile [16 M rows, N keys].
 * attention_hide_turned — of a tile [16 M keys, N rows]. What is seen is found out as bits first,
 * in loops that take few registers: they are rarely run. */
template <int M, int N>
__device__ __forceinline__ void attention_hide(const AttentionView &v, int b, int first_row,
                                               int first_key, float (&s)[M][N / 8][4]) {
    int lane = (int)(threadIdx.x % GPU_WARP), rows = v.time * v.group;
    static_assert(N / 4 <= 32);
#pragma unroll
    for (int m = 0; m < 2 * M; m++) {
        int row = first_row + lane / 4 + 8 * m;
        uint32_t seen = 0;
        if (row < rows) {
            int token = attention_token(v, row);
            int4 query = v.sees[(int64_t)b * v.time + token];
#pragma unroll 1
            for (int i = 0; i < N / 4; i++) {
                int key = first_key + i / 2 * 8 + lane % 4 * 2 + i % 2;
                seen |= (uint32_t)attention_sees(v, b, token, query, key) << i;
            }
        }
#pragma unroll
        for (int i = 0; i < N / 4; i++)
            if (!(seen >> i & 1)) s[m / 2][i / 2][m % 2 * 2 + i % 2] = -INFINITY;
    }
}
template <int M, int N>
__device__ __forceinline__ void attention_hide_turned(const AttentionView &v, int b, int first_row,
                                                      int first_key, float (&s)[M][N / 8][4]) {
    int lane = (int)(threadIdx.x % GPU_WARP), rows = v.time * v.group;
    uint32_t seen[2 * M] = {};
    static_assert(N / 4 <= 32);
#pragma unroll 1
    for (int i = 0; i < N / 4; i++) {
        int row = first_row + i / 2 * 8 + lane % 4 * 2 + i % 2;
        if (row >= rows) break;
        int token = attention_token(v, row);
        int4 query = v.sees[(int64_t)b * v.time + token];
#pragma unroll
        for (int m = 0; m < 2 * M; m++) {
            int key = first_key + lane / 4 + 8 * m;
            seen[m] |= (uint32_t)attention_sees(v, b, token, query, key) << i;
        }
    }
#pragma unroll
    for (int m = 0; m < 2 * M; m++)
#pragma unroll
        for (int i = 0; i < N / 4; i++)
            if (!(seen[m] >> i & 1)) s[m / 2][i / 2][m % 2 * 2 + i % 2] = -INFINITY;
}

/* ---- numbers */

template <class E> __device__ __forceinline__ float attention_exp2(float x) {
    if constexpr (sizeof(E) == 2)
        return mma_exp2(x);
    else
        return exp2f(x);
}
template <class E> __device__ __forceinline__ float attention_tanh(float x) {
    if constexpr (sizeof(E) == 2)
        return 1.0f - 2.0f * mma_inverse(mma_exp2(2.0f * ATTENTION_LOG2_E * x) + 1.0f);
    else
        return tanhf(x);
}

template <class E, int M, int N>
__device__ __forceinline__ void attention_cap(const AttentionView &v, float (&s)[M][N / 8][4]) {
    float inner = v.scale / v.cap;
#pragma unroll
    for (int i = 0; i < M * N / 2; i++) {
        float *x = &s[i / (N / 2)][i / 4 % (N / 8)][i % 4];
        *x = v.cap * attention_tanh<E>(*x * inner);
    }
}

/* ---- tiles in shared memory: rows follow one another with a pack of space between them, so that
 * rows of one column lie in different banks */

template <class E> static constexpr int attention_pack = 16 / (int)sizeof(E);
template <class E, int WIDTH> static constexpr int attention_pitch = WIDTH + attention_pack<E>;
template <class E, int WIDTH> static constexpr size_t attention_bytes(int rows) {
    return (size_t)rows * attention_pitch<E, WIDTH> * sizeof(E);
}

/* attention_load — copies rows, of `width` elements, and zeros behind them; at(i) is where row i
 * starts in `from`, below 0 = zeros. The copies are of the thread's open group. */
template <class E, int ROWS, int WIDTH, int THREADS, class F>
__device__ __forceinline__ void attention_load(E *to, const E *from, int width, bool in_packs,
                                               F at) {
    constexpr int PACK = attention_pack<E>, PACKS = WIDTH / PACK, PITCH = attention_pitch<E, WIDTH>;
    static_assert(WIDTH % PACK == 0);
    if (!in_packs) {
#pragma unroll 1
        for (int i = (int)threadIdx.x; i < ROWS * WIDTH; i += THREADS) {
            int row = i / WIDTH, column = i % WIDTH;
            int64_t start = at(row);
            to[row * PITCH + column] = start >= 0 && column < width ? from[start + column] : E(0);
        }
        return;
    }
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < ROWS * PACKS; i += THREADS) {
        int row = i / PACKS, column = i % PACKS * PACK;
        int64_t start = at(row);
        bool is_there = start >= 0 && column < width;
        copy_async<16>(to + row * PITCH + column, from + (is_there ? start + column : 0), is_there);
    }
}

/* Rows [first, first + ROWS) of a group, of an array [batch, time, heads, width]. */
template <class E, int ROWS, int WIDTH, int THREADS>
__device__ __forceinline__ void attention_load_rows(const AttentionView &v, E *to, const void *from,
                                                    int width, bool in_packs, int b, int key_head,
                                                    int first) {
    int rows = v.time * v.group;
    attention_load<E, ROWS, WIDTH, THREADS>(to, (const E *)from, width, in_packs, [&](int i) {
        return first + i < rows ? attention_row(v, b, key_head, first + i) * width : (int64_t)-1;
    });
}

/* Keys of which something is seen, both ends included; others are zeros. */
struct AttentionKeys {
    int b, head, low, high;
};

/* Keys [first, first + ROWS): columns [column, column + WIDTH) of rows that are row_width wide. */
template <class E, int ROWS, int WIDTH, int THREADS>
__device__ __forceinline__ void attention_load_keys(const AttentionView &v, E *to, const void *from,
                                                    int row_width, int column, bool in_packs,
                                                    AttentionKeys keys, int first) {
    int sequence = v.sequences ? v.sequences[keys.b] : keys.b;
    int64_t start = ((int64_t)sequence * v.keys * v.key_heads + keys.head) * row_width + column;
    int64_t step = (int64_t)v.key_heads * row_width;
    attention_load<E, ROWS, WIDTH, THREADS>(
        to, (const E *)from, row_width - column, in_packs, [&](int i) {
            int key = first + i;
            if (key < keys.low || key > keys.high) return (int64_t)-1;
            return start + (v.wraps ? key % v.keys : key) * step;
        });
}

/* ---- products of tiles: 16 M rows by a warp */

/* The left operand of attention_sums: what a tile of scores became. */
template <class E, int M, int K> struct AttentionLeft;

template <int M, int K> struct AttentionLeft<MxBf16, M, K> {
    uint32_t word[M][K / 16][4];
    __device__ __forceinline__ void set(const float (&s)[M][K / 8][4]) {
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < K / 4; i++)
                word[m][i / 4][i % 4] =
                    mma_word(s[m][i / 2][i % 2 * 2], s[m][i / 2][i % 2 * 2 + 1]);
    }
};
template <int M, int K> struct AttentionLeft<float, M, K> {
    float x[M][K / 8][4];
    __device__ __forceinline__ void set(const float (&s)[M][K / 8][4]) {
#pragma unroll
        for (int i = 0; i < M * K / 2; i++) (&x[0][0][0])[i] = (&s[0][0][0])[i];
    }
};

/* attention_pairs — s [16 M, N] = rows of a, K wide, times rows of b. */
template <int M, int N, int K>
__device__ __forceinline__ void attention_pairs(const MxBf16 *a, const MxBf16 *b,
                                                float (&s)[M][N / 8][4]) {
    constexpr int PITCH = attention_pitch<MxBf16, K>;
    int lane = (int)(threadIdx.x % GPU_WARP);
    const MxBf16 *left = a + lane % 16 * PITCH + lane / 16 * 8;
    const MxBf16 *right = b + (lane % 8 + lane / 16 * 8) * PITCH + lane / 8 % 2 * 8;
#pragma unroll
    for (int i = 0; i < M * N / 2; i++) (&s[0][0][0])[i] = 0.0f;
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        uint32_t x[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) mma_load(x[m], left + m * 16 * PITCH + k);
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            uint32_t y[4];
            mma_load(y, right + n * PITCH + k);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma_bf16(s[m][n / 8], x[m], y);
                mma_bf16(s[m][n / 8 + 1], x[m], y + 2);
            }
        }
    }
}

template <int M, int N, int K>
__device__ __forceinline__ void attention_pairs(const float *a, const float *b,
                                                float (&s)[M][N / 8][4]) {
    constexpr int PITCH = attention_pitch<float, K>;
    int lane = (int)(threadIdx.x % GPU_WARP);
    const float *left = a + lane / 4 * PITCH, *right = b + lane % 4 * 2 * PITCH;
#pragma unroll
    for (int i = 0; i < M * N / 2; i++) (&s[0][0][0])[i] = 0.0f;
#pragma unroll 1
    for (int k = 0; k < K; k += 4) {
        float4 x[2 * M];
#pragma unroll
        for (int m = 0; m < 2 * M; m++) x[m] = *(const float4 *)(left + m * 8 * PITCH + k);
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            float4 y = *(const float4 *)(right + (i / 2 * 8 + i % 2) * PITCH + k);
#pragma unroll
            for (int m = 0; m < 2 * M; m++) {
                float *to = &s[m / 2][i / 2][m % 2 * 2 + i % 2];
                *to += x[m].x * y.x;
                *to += x[m].y * y.y;
                *to += x[m].z * y.z;
                *to += x[m].w * y.w;
            }
        }
    }
}

/* attention_sums — out [16 M, N] += p times columns of rows of b; rows are WIDTH wide. */
template <int WIDTH, int M, int N, int K>
__device__ __forceinline__ void attention_sums(const AttentionLeft<MxBf16, M, K> &p,
                                               const MxBf16 *b, float (&out)[M][N / 8][4]) {
    constexpr int PITCH = attention_pitch<MxBf16, WIDTH>;
    int lane = (int)(threadIdx.x % GPU_WARP);
    const MxBf16 *right = b + lane % 16 * PITCH + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < K; k += 16) {
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            uint32_t y[4];
            mma_load_turned(y, right + k * PITCH + n);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma_bf16(out[m][n / 8], p.word[m][k / 16], y);
                mma_bf16(out[m][n / 8 + 1], p.word[m][k / 16], y + 2);
            }
        }
    }
}

template <int WIDTH, int M, int N, int K>
__device__ __forceinline__ void attention_sums(const AttentionLeft<float, M, K> &p, const float *b,
                                               float (&out)[M][N / 8][4]) {
    constexpr int PITCH = attention_pitch<float, WIDTH>;
    int lane = (int)(threadIdx.x % GPU_WARP);
    const float *right = b + lane % 4 * 2;
#pragma unroll
    for (int k = 0; k < K; k++) {
        float x[2 * M];
#pragma unroll
        for (int m = 0; m < 2 * M; m++)
            x[m] = __shfl_sync(0xffffffffu, p.x[m / 2][k / 8][m % 2 * 2 + k % 2],
                               lane / 4 * 4 + k % 8 / 2);
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
            float2 y = *(const float2 *)(right + k * PITCH + n * 8);
#pragma unroll
            for (int m = 0; m < 2 * M; m++) {
                out[m / 2][n][m % 2 * 2] += x[m] * y.x;
                out[m / 2][n][m % 2 * 2 + 1] += x[m] * y.y;
            }
        }
    }
}

/* attention_store — elements `column` and the next of a row that starts at `at` and is `width`
 * wide.
 */
template <class E>
__device__ __forceinline__ void attention_store(void *array, int64_t at, int column, int width,
                                                float x, float y) {
    E *to = (E *)array + at + column;
    GpuArray out = {to, sizeof(E) == 2 ? MX_BF16 : MX_F32};
    if (column + 1 < width && (uintptr_t)to % (2 * sizeof(E)) == 0) {
        if constexpr (sizeof(E) == 2)
            *(uint32_t *)to = mma_word(x, y);
        else
            *(float2 *)to = make_float2(x, y);
        return;
    }
    if (column < width) gpu_put(out, 0, x);
    if (column + 1 < width) gpu_put(out, 1, y);
}

#endif
