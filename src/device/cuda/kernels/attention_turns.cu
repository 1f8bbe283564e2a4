/* attention_turns.cu — the gradient of attention, of bf16 and heads that are not wide: a block owns
 * keys and goes through the queries that see any of them. It sums up the gradient of its keys and
 * values in registers. What its keys give to the gradient of a tile of queries it adds to a sum in
 * memory when it is its turn: blocks take turns at a tile in the order of their keys, so that a sum
 * always has the same bits. Each waits only for blocks that have begun before it. */
#include "attention_turns.cuh"

namespace gpu_attention_turns {

/* How the kernel is cut: two warps share 32 keys, of whose scores each has half of the rows, and of
 * whose gradients half of the columns. ROWS of queries are a tile, of which two are in shared
 * memory at a time. In what a block gives to queries a warp has half of the rows and a quarter of
 * the columns. */
template <int WIDTH_> struct Cut {
    static constexpr int WIDTH = WIDTH_, ROWS = 64, THREADS = 256;
    static constexpr int KEYS = THREADS / GPU_WARP * 16, COLUMNS = WIDTH / 4;
    static constexpr int HALF = ROWS / 2, OUT = WIDTH / 2; /* a warp's */
    static constexpr int PITCH = attention_pitch<MxBf16, WIDTH>;
    static constexpr int ROW_PITCH = attention_pitch<MxBf16, ROWS>;
    static constexpr int OWN = 2 * KEYS * PITCH;
    static constexpr int SCORES = KEYS * ROW_PITCH; /* probabilities, or their cotangents */
    static constexpr int SUMS = ROWS * (int)(sizeof(float2) / sizeof(MxBf16));
    static constexpr int STAGE = 2 * ROWS * PITCH + SUMS; /* q, d_out, sums of the rows */
    static constexpr size_t SHARED = (size_t)(OWN + 2 * SCORES + 2 * STAGE) * sizeof(MxBf16);
    static constexpr int QUADS = COLUMNS / 4; /* a thread's, of a tile's sums */
};

typedef struct Turns {
    AttentionView view;
    int key_tiles, row_tiles, n_together;
    uint16_t *turns; /* [batch, key tiles, row tiles]; 0 = nothing is seen */
    int *counts;     /* [batch, row tiles]: of key tiles of which something is seen */
    int *done;       /* [batch, key heads, row tiles]: turns that are over */
    int *n_begun;    /* blocks */
    float4 *sums;    /* [batch, key heads, row tiles, quads, threads]: of the queries' gradient */
} Turns;

/* A block's turn at a tile: 2 + 2 * how many come before it + whether all of it is seen. */
__device__ __forceinline__ bool turn_is_whole(int turn) {
    return turn % 2;
}
__device__ __forceinline__ int turn_place(int turn) {
    return turn / 2 - 1;
}

/* The last tile up to `tile` at which a block has a turn, -1 = there is none; all lanes of a warp
 * together. */
__device__ __forceinline__ int find_turn(const uint16_t *turns, int tile) {
    for (; tile >= 0; tile -= GPU_WARP) {
        int own = tile - (int)threadIdx.x % GPU_WARP;
        unsigned found = __ballot_sync(0xffffffffu, own >= 0 && turns[own]);
        if (found) return tile - __ffs((int)found) + 1;
    }
    return -1;
}

/* ---- turns: a warp a tile of queries */

template <class S> __global__ void __launch_bounds__(GPU_BLOCK) plan_turns(Turns t) {
    const AttentionView &v = t.view;
    int index = (int)(blockIdx.x * GPU_BLOCK + threadIdx.x);
    int lane = index % GPU_WARP, tile = index / GPU_WARP, n_before = 0;
    if (!index) *t.n_begun = 0;
    if (tile >= v.batch * t.row_tiles) return;
    int b = tile / t.row_tiles, first = tile % t.row_tiles * S::ROWS, rows = v.time * v.group;
    AttentionBounds bounds =
        attention_bounds(v, b, first, first + S::ROWS < rows ? first + S::ROWS : rows);
    for (int from = 0; from < t.key_tiles; from += GPU_WARP) {
        int own = from + lane, first_key = own * S::KEYS, last_key = first_key + S::KEYS - 1;
        AttentionSight sight = ATTENTION_NONE;
        if (own < t.key_tiles)
            sight = attention_sight(bounds, first_key, last_key,
                                    attention_key_segments(v, b, first_key, last_key));
        unsigned seen = __ballot_sync(0xffffffffu, sight != ATTENTION_NONE);
        int turn = n_before + __popc(seen & ((1u << lane) - 1));
        if (own < t.key_tiles)
            t.turns[((int64_t)b * t.key_tiles + own) * t.row_tiles + tile % t.row_tiles] =
                sight == ATTENTION_NONE ? 0 : (uint16_t)(2 + 2 * turn + (sight == ATTENTION_ALL));
        n_before += __popc(seen);
    }
    if (!lane) t.counts[tile] = n_before;
    for (int head = lane; head < v.key_heads; head += GPU_WARP)
        t.done[((int64_t)b * v.key_heads + head) * t.row_tiles + tile % t.row_tiles] = 0;
}

/* How many turns are over. await_turn, end_turn — by one thread, for all that meet it at a barrier
 * afterwards, or have met it before. */
__device__ __forceinline__ int turns_over(const int *done) {
#ifdef __CUDA_ARCH__
    int now;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];\n" : "=r"(now) : "l"(done));
    return now;
#else
    return *done;
#endif
}
__device__ __forceinline__ void await_turn(const int *done, int turn) {
#ifdef __CUDA_ARCH__
    int now;
    do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];\n" : "=r"(now) : "l"(done) : "memory");
    while (now != turn);
#else
    GPU_ASSERT(*done == turn);
#endif
}
__device__ __forceinline__ void end_turn(int *done, int turn) {
#ifdef __CUDA_ARCH__
    asm volatile("st.release.gpu.global.s32 [%0], %1;\n" : : "l"(done), "r"(turn + 1) : "memory");
#else
    GPU_ASSERT(*done == turn);
    *done = turn + 1;
#endif
}

/* An addition that the thread need not wait for. No other is made to the same place until the turn
 * is over. */
__device__ __forceinline__ void add_quad(float4 *to, float4 x) {
#if !defined(__CUDA_ARCH__)
    to->x += x.x, to->y += x.y, to->z += x.z, to->w += x.w;
#elif __CUDA_ARCH__ >= 900
    atomicAdd(to, x);
#else
    atomicAdd(&to->x, x.x), atomicAdd(&to->y, x.y), atomicAdd(&to->z, x.z), atomicAdd(&to->w, x.w);
#endif
}

/* ---- tiles */

struct Place {
    int b, key_head, key_tile;
};

template <class S>
__device__ __forceinline__ void load_stage(const AttentionView &v, const Place &place,
                                           MxBf16 *stage, int first_row) {
    constexpr int PACKS = S::WIDTH / 8, STEP = S::THREADS / PACKS;
    int thread = (int)threadIdx.x, row = first_row + thread / PACKS, column = thread % PACKS * 8;
    int rows = v.time * v.group;
    const MxBf16 *q = (const MxBf16 *)v.q + column, *d_out = (const MxBf16 *)v.d_out + column;
    MxBf16 *to = stage + thread / PACKS * S::PITCH + column;
    bool in_q = column < v.width, in_d_out = column < v.value_width;
#pragma unroll
    for (int i = 0; i < S::ROWS; i += STEP) {
        bool is_there = row + i < rows;
        int64_t at = is_there ? attention_row(v, place.b, place.key_head, row + i) : 0;
        copy_async<16>(to + i * S::PITCH, q + at * v.width, is_there && in_q);
        copy_async<16>(to + (S::ROWS + i) * S::PITCH, d_out + at * v.value_width,
                       is_there && in_d_out);
    }
    if (thread < S::ROWS) {
        row = first_row + thread;
        int64_t at = row < rows ? attention_row(v, place.b, place.key_head, row) : 0;
        float2 *sums = (float2 *)(stage + 2 * S::ROWS * S::PITCH);
        copy_async<8>(&sums[thread], &v.row_sums[at], row < rows);
    }
    copy_commit();
}

/* The first of a warp's keys, and of its rows of a tile. */
__device__ __forceinline__ int warp_key() {
    return (int)threadIdx.x / (2 * GPU_WARP) * 32;
}
template <class S> __device__ __forceinline__ int warp_row() {
    return (int)threadIdx.x / GPU_WARP % 2 * S::HALF;
}

/* out [32, N] += a product over K: rows(x, k) gets the words of 32 rows, columns(y, k, n) those of
 * 16 columns. */
template <int K, int N, class A, class B>
__device__ __forceinline__ void add_product(const A &rows, const B &columns,
                                            float (&out)[2][N / 8][4]) {
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        uint32_t x[2][4];
        rows(x, k);
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            uint32_t y[4];
            columns(y, k, n);
#pragma unroll
            for (int m = 0; m < 2; m++) {
                mma_bf16(out[m][n / 8], x[m], y);
                mma_bf16(out[m][n / 8 + 1], x[m], y + 2);
            }
        }
    }
}

/* s [32 keys, HALF] += keys times rows. */
template <class S>
__device__ __forceinline__ void multiply(const MxBf16 *keys, const MxBf16 *rows,
                                         float (&s)[2][S::HALF / 8][4]) {
    int lane = (int)(threadIdx.x % GPU_WARP);
    const MxBf16 *left = keys + (warp_key() + lane % 16) * S::PITCH + lane / 16 * 8;
    const MxBf16 *right =
        rows + (warp_row<S>() + lane % 8 + lane / 16 * 8) * S::PITCH + lane / 8 % 2 * 8;
    add_product<S::WIDTH, S::HALF>(
        [&](uint32_t(*x)[4], int k) {
            mma_load(x[0], left + k);
            mma_load(x[1], left + 16 * S::PITCH + k);
        },
        [&](uint32_t *y, int k, int n) { mma_load(y, right + n * S::PITCH + k); }, s);
}

/* out [32 keys, OUT] += scores [32 keys, ROWS] times columns of rows. */
template <class S>
__device__ __forceinline__ void sum_up(const MxBf16 *scores, const MxBf16 *rows,
                                       float (&out)[2][S::OUT / 8][4]) {
    int lane = (int)(threadIdx.x % GPU_WARP);
    const MxBf16 *left = scores + (warp_key() + lane % 16) * S::ROW_PITCH + lane / 16 * 8;
    const MxBf16 *right =
        rows + lane % 16 * S::PITCH + lane / 16 * 8 + (int)threadIdx.x / GPU_WARP % 2 * S::OUT;
    add_product<S::ROWS, S::OUT>(
        [&](uint32_t(*x)[4], int k) {
            mma_load(x[0], left + k);
            mma_load(x[1], left + 16 * S::ROW_PITCH + k);
        },
        [&](uint32_t *y, int k, int n) { mma_load_turned(y, right + k * S::PITCH + n); }, out);
}

/* Whether a query sees a key that is within its range. */
__device__ __forceinline__ bool may_see(const AttentionView &v, int b, int token, int segment,
                                        int key) {
    if (v.segments && v.segments[(int64_t)b * v.keys + key] != segment) return false;
    if (!v.chosen) return true;
    return v.chosen[((int64_t)b * v.time + token) * v.words + key / 32] >> key % 32 & 1u;
}

/* Bits of a lane's scores that are hidden: 16 m + 4 i + j of s[m][i][j]. */
template <class S>
__device__ __forceinline__ uint32_t hidden_bits(const AttentionView &v, const Place &place,
                                                int first_row) {
    int lane = (int)(threadIdx.x % GPU_WARP), rows = v.time * v.group, b = place.b;
    int key = place.key_tile * S::KEYS + warp_key() + lane / 4;
    uint32_t bits = 0;
    first_row += warp_row<S>() + lane % 4 * 2;
#pragma unroll 4
    for (int i = 0; i < S::HALF / 4; i++) {
        int row = first_row + i / 2 * 8 + i % 2;
        int token = attention_token(v, row < rows ? row : rows - 1);
        int4 query = v.sees[(int64_t)b * v.time + token];
        uint32_t hidden = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int own = key + 8 * j;
            bool sees = own >= query.x && own <= query.y && may_see(v, b, token, query.z, own);
            if (row >= rows || !sees) hidden |= 1u << (j / 2 * 16 + j % 2 * 2);
        }
        bits |= hidden << (i / 2 * 4 + i % 2);
    }
    return bits;
}

/* Products become probabilities, and cotangents of these those of scores, before the factor
 * `scale`. */
template <class S>
__device__ __forceinline__ void change(const AttentionView &v, const float2 *sums, uint32_t hidden,
                                       float (&s)[2][S::HALF / 8][4],
                                       float (&d)[2][S::HALF / 8][4]) {
    int lane = (int)(threadIdx.x % GPU_WARP);
    if (v.cap > 0.0f) {
#pragma unroll
        for (int i = 0; i < S::HALF; i++) {
            float *x = &s[i / (S::HALF / 2)][i / 4 % (S::HALF / 8)][i % 4];
            float tangent = attention_tanh<MxBf16>(*x * (v.scale / v.cap));
            *x = v.cap * tangent;
            d[i / (S::HALF / 2)][i / 4 % (S::HALF / 8)][i % 4] *= 1.0f - tangent * tangent;
        }
    }
    if (hidden) {
#pragma unroll
        for (int i = 0; i < S::HALF; i++)
            if (hidden >> i & 1) s[i / 16][i / 4 % 4][i % 4] = -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < S::HALF / 8; i++) {
        float4 two = *(const float4 *)&sums[i * 8 + lane % 4 * 2];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float *x = &s[j / 4][i][j % 4];
            *x = mma_exp2(*x * v.factor - (j % 2 ? two.z : two.x));
            d[j / 4][i][j % 4] *= *x;
        }
    }
}

/* The scores of a tile of rows, and their cotangents: both [KEYS, ROWS], in shared memory. */
template <class S>
__device__ __forceinline__ void make_scores(const AttentionView &v, const MxBf16 *own,
                                            const MxBf16 *stage, MxBf16 *scores, uint32_t hidden) {
    int lane = (int)(threadIdx.x % GPU_WARP);
    const float2 *sums = (const float2 *)(stage + 2 * S::ROWS * S::PITCH) + warp_row<S>();
    uint32_t *p =
        (uint32_t *)(scores + (warp_key() + lane / 4) * S::ROW_PITCH + warp_row<S>()) + lane % 4;
    uint32_t *changes = p + S::SCORES / 2;
    if (__all_sync(0xffffffffu, hidden == ~0u)) {
#pragma unroll
        for (int i = 0; i < S::HALF / 2; i++) {
            int at = i % 4 * 4 * S::ROW_PITCH + i / 4 * 4;
            p[at] = changes[at] = 0;
        }
        return;
    }
    float s[2][S::HALF / 8][4] = {}, d[2][S::HALF / 8][4];
#pragma unroll
    for (int i = 0; i < S::HALF / 8; i++) {
        float4 two = *(const float4 *)&sums[i * 8 + lane % 4 * 2];
#pragma unroll
        for (int j = 0; j < 8; j++) d[j / 4][i][j % 4] = j % 2 ? -two.w : -two.y;
    }
    multiply<S>(own, stage, s);
    multiply<S>(own + S::KEYS * S::PITCH, stage + S::ROWS * S::PITCH, d);
    change<S>(v, sums, hidden, s, d);
#pragma unroll
    for (int i = 0; i < S::HALF / 2; i++) {
        int at = i % 4 * 4 * S::ROW_PITCH + i / 4 * 4;
        const float *x = &s[i % 4 / 2][i / 4][i % 2 * 2], *y = &d[i % 4 / 2][i / 4][i % 2 * 2];
        p[at] = mma_word(x[0], x[1]);
        changes[at] = mma_word(y[0], y[1]);
    }
}

/* What the block's keys give to the gradient of a tile of queries. */
template <class S>
__device__ __forceinline__ void give(const Turns &t, const MxBf16 *own, const MxBf16 *changes,
                                     int64_t tile, bool is_first) {
    int lane = (int)(threadIdx.x % GPU_WARP), warp = (int)threadIdx.x / GPU_WARP;
    const MxBf16 *left = changes + (lane % 8 + lane / 16 * 8) * S::ROW_PITCH + lane / 8 % 2 * 8 +
                         warp % 2 * (S::ROWS / 2);
    const MxBf16 *right = own + lane % 16 * S::PITCH + lane / 16 * 8 + warp / 2 * S::COLUMNS;
    float out[2][S::COLUMNS / 8][4] = {};
    add_product<S::KEYS, S::COLUMNS>(
        [&](uint32_t(*x)[4], int k) {
            mma_load_turned(x[0], left + k * S::ROW_PITCH);
            mma_load_turned(x[1], left + k * S::ROW_PITCH + 16);
        },
        [&](uint32_t *y, int k, int n) { mma_load_turned(y, right + k * S::PITCH + n); }, out);
    float4 *to = t.sums + tile * S::QUADS * S::THREADS + threadIdx.x;
#pragma unroll
    for (int i = 0; i < S::QUADS; i++) {
        const float *x = out[i / (S::COLUMNS / 8)][i % (S::COLUMNS / 8)];
        float4 quad = make_float4(x[0], x[1], x[2], x[3]);
        if (is_first)
            to[i * S::THREADS] = quad;
        else
            add_quad(&to[i * S::THREADS], quad);
    }
}

template <class S>
__device__ __forceinline__ void store_keys(const AttentionView &v, const Place &place, void *to,
                                           int width, float scale,
                                           const float (&x)[2][S::OUT / 8][4]) {
    int lane = (int)(threadIdx.x % GPU_WARP);
    int first = place.key_tile * S::KEYS + warp_key();
    int column = (int)threadIdx.x / GPU_WARP % 2 * S::OUT + lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < 4; m++) {
        int key = first + m * 8 + lane / 4;
        if (key >= v.keys || !to) continue;
        int64_t at = (((int64_t)place.b * v.keys + key) * v.key_heads + place.key_head) * width;
#pragma unroll
        for (int i = 0; i < S::OUT / 8; i++) {
            const float *y = &x[m / 2][i][m % 2 * 2];
            attention_store<MxBf16>(to, at, column + i * 8, width, y[0] * scale, y[1] * scale);
        }
    }
}

/* ---- the kernel */

/* What a block knows of itself, in shared memory: registers are short. */
struct Block {
    Place place;
    int tile, turn; /* that it has added to, and that others wait for; -1 = none */
};

/* In the order in which blocks begin they own the keys of some heads from the first ones on.
 * Several heads, since a block can only begin with the last queries when those of the keys before
 * it have done with them. */
__device__ __forceinline__ void begin_block(const Turns &t, Block *block) {
    if (!threadIdx.x) {
        int i = atomicAdd(t.n_begun, 1), n_groups = t.view.batch * t.view.key_heads;
        int first = i / (t.n_together * t.key_tiles) * t.n_together;
        int n = n_groups - first < t.n_together ? n_groups - first : t.n_together;
        i -= first * t.key_tiles;
        int group = first + i % n;
        block->place.key_tile = i / n;
        block->place.b = group / t.view.key_heads;
        block->place.key_head = group % t.view.key_heads;
        block->tile = -1;
    }
    __syncthreads();
}

__device__ __forceinline__ const uint16_t *turns_of(const Turns &t, const Place &place) {
    return t.turns + ((int64_t)place.b * t.key_tiles + place.key_tile) * t.row_tiles;
}
/* Among [batch, key heads, row tiles]. */
__device__ __forceinline__ int64_t index_of(const Turns &t, const Place &place, int tile) {
    return ((int64_t)place.b * t.view.key_heads + place.key_head) * t.row_tiles + tile;
}

/* By one thread: others may go on with the tile that the block has added to. */
__device__ __forceinline__ void pass_turn(const Turns &t, const Block *block) {
    if (block->tile >= 0) end_turn(&t.done[index_of(t, block->place, block->tile)], block->turn);
}

template <class S>
__device__ __forceinline__ void load_own(const AttentionView &v, const Place &place, MxBf16 *own) {
    constexpr int PACKS = S::WIDTH / 8, STEP = S::THREADS / PACKS;
    int row = (int)threadIdx.x / PACKS, column = (int)threadIdx.x % PACKS * 8;
    MxBf16 *to = own + row * S::PITCH + column;
    bool in_k = column < v.width, in_v = column < v.value_width;
    for (int i = 0; i < S::KEYS; i += STEP) {
        int key = place.key_tile * S::KEYS + row + i;
        int64_t at = ((int64_t)place.b * v.keys + key) * v.key_heads + place.key_head;
        copy_async<16>(to + i * S::PITCH, (const MxBf16 *)v.k + at * v.width + column,
                       key < v.keys && in_k);
        copy_async<16>(to + (S::KEYS + i) * S::PITCH,
                       (const MxBf16 *)v.v + at * v.value_row + column, key < v.keys && in_v);
    }
}

template <class S> __global__ void __launch_bounds__(S::THREADS, 1) gradient_kernel(Turns t) {
    const AttentionView &v = t.view;
    __shared__ Block block;
    MxBf16 *own = gpu_dynamic<MxBf16>(), *stage = own + S::OWN, *scores = stage + 2 * S::STAGE;
    begin_block(t, &block);
    load_own<S>(v, block.place, own);
    int tile = find_turn(turns_of(t, block.place), t.row_tiles - 1), at = 0;
    if (tile >= 0) load_stage<S>(v, block.place, stage, tile * S::ROWS);
    float dk[2][S::OUT / 8][4] = {}, dv[2][S::OUT / 8][4] = {};
    while (tile >= 0) {
        copy_wait<0>();
        __syncthreads();
        const uint16_t *turns = turns_of(t, block.place);
        int turn = turns[tile], next = find_turn(turns, tile - 1);
        if (next >= 0) load_stage<S>(v, block.place, stage + (at ^ S::STAGE), next * S::ROWS);
        /* Most often the turn has come long before it is needed. */
        int over = 0;
        if (v.dq && !threadIdx.x) {
            over = turns_over(&t.done[index_of(t, block.place, tile)]);
            pass_turn(t, &block);
            block.tile = tile, block.turn = turn_place(turn);
        }
        uint32_t hidden = 0;
        if (!turn_is_whole(turn) || v.chosen)
            hidden = hidden_bits<S>(v, block.place, tile * S::ROWS);
        make_scores<S>(v, own, stage + at, scores, hidden);
        if (v.dq && !threadIdx.x && over != turn_place(turn))
            await_turn(&t.done[index_of(t, block.place, tile)], turn_place(turn));
        __syncthreads();
        sum_up<S>(scores, stage + at + S::ROWS * S::PITCH, dv);
        sum_up<S>(scores + S::SCORES, stage + at, dk);
        if (v.dq)
            give<S>(t, own, scores + S::SCORES, index_of(t, block.place, tile), !turn_place(turn));
        at ^= S::STAGE, tile = next;
    }
    copy_wait<0>();
    __syncthreads();
    if (v.dq && !threadIdx.x) pass_turn(t, &block);
    store_keys<S>(v, block.place, v.dk, v.width, v.scale, dk);
    store_keys<S>(v, block.place, v.dv, v.value_width, 1.0f, dv);
}

/* ---- the gradient of queries, from the sums: a block a tile, with the threads as in `give` */

template <class S> __global__ void __launch_bounds__(S::THREADS) store_queries(Turns t) {
    const AttentionView &v = t.view;
    int group = (int)(blockIdx.x / (unsigned)t.row_tiles);
    int tile = (int)(blockIdx.x % (unsigned)t.row_tiles);
    int b = group / v.key_heads, lane = (int)threadIdx.x % GPU_WARP;
    int warp = (int)threadIdx.x / GPU_WARP;
    bool is_zero = !t.counts[b * t.row_tiles + tile];
    const float4 *from = t.sums + (int64_t)blockIdx.x * S::QUADS * S::THREADS + threadIdx.x;
#pragma unroll
    for (int i = 0; i < S::QUADS; i++) {
        float4 x = is_zero ? make_float4(0, 0, 0, 0) : from[i * S::THREADS];
        int row = tile * S::ROWS + warp % 2 * (S::ROWS / 2) + i / (S::COLUMNS / 8) * 16 + lane / 4;
        int column = warp / 2 * S::COLUMNS + i % (S::COLUMNS / 8) * 8 + lane % 4 * 2;
        for (int half = 0; half < 2; half++, row += 8) {
            if (row >= v.time * v.group) continue;
            int64_t at = attention_row(v, b, group % v.key_heads, row) * v.width;
            attention_store<MxBf16>(v.dq, at, column, v.width, (half ? x.z : x.x) * v.scale,
                                    (half ? x.w : x.y) * v.scale);
        }
    }
}

template <class S> static Turns carve(const AttentionView *view, void **scratch) {
    Turns t = {};
    t.view = *view;
    t.key_tiles = (int)gpu_blocks(view->keys, S::KEYS);
    t.row_tiles = (int)gpu_blocks(attention_rows(view), S::ROWS);
    size_t tiles = (size_t)view->batch * (size_t)t.row_tiles;
    size_t groups = tiles * (size_t)view->key_heads;
    t.turns = (uint16_t *)gpu_carve(scratch, tiles * (size_t)t.key_tiles * sizeof *t.turns);
    t.counts = (int *)gpu_carve(scratch, tiles * sizeof *t.counts);
    t.done = (int *)gpu_carve(scratch, groups * sizeof *t.done);
    t.n_begun = (int *)gpu_carve(scratch, sizeof *t.n_begun);
    t.sums = (float4 *)gpu_carve(scratch, groups * S::QUADS * S::THREADS * sizeof *t.sums);
    return t;
}

template <class S>
static void run(const MxDevice *device, const AttentionView *view, void **scratch) {
    Turns t = carve<S>(view, scratch);
    t.n_together = (int)gpu_max(1, gpu_blocks(gpu_of(device)->n_processors, t.key_tiles));
    int64_t groups = (int64_t)view->batch * view->key_heads;
    gpu_launch(device, plan_turns<S>, gpu_blocks((int64_t)view->batch * t.row_tiles * GPU_WARP),
               GPU_BLOCK, 0, t);
    gpu_launch(device, gradient_kernel<S>, (unsigned)(groups * t.key_tiles), S::THREADS, S::SHARED,
               t);
    if (view->dq)
        gpu_launch(device, store_queries<S>, (unsigned)(groups * t.row_tiles), S::THREADS, 0, t);
}

static bool is_narrow(const AttentionView *view) {
    return view->width <= 64 && view->value_width <= 64;
}

} // namespace gpu_attention_turns

using namespace gpu_attention_turns;

bool attention_turns_can(const AttentionView *view, MxDtype dtype) {
    return dtype == MX_BF16 && view->width <= 128 && view->value_width <= 128 &&
           view->width % 8 == 0 && view->value_row % 8 == 0 && view->value_width % 8 == 0;
}

size_t attention_turns_bytes(const AttentionView *view) {
    void *scratch = nullptr;
    if (is_narrow(view))
        carve<Cut<64>>(view, &scratch);
    else
        carve<Cut<128>>(view, &scratch);
    return (size_t)(uintptr_t)scratch;
}

void attention_turns_run(const MxDevice *device, const AttentionView *view, void **scratch) {
    (is_narrow(view) ? run<Cut<64>> : run<Cut<128>>)(device, view, scratch);
}
