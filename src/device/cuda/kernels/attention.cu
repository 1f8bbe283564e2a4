/* attention.cu — softmax attention: a block has some queries of the heads that share a head of
 * keys, goes through the tiles of keys of which they see anything, and rescales its sums when a
 * much larger score appears (Milakov & Gimelshein 2018; Dao 2022). Of values it makes as many
 * columns as its registers have room for. */
#include "attention_tile.cuh"

/* How a kernel is cut: WIDTH of queries and keys, VALUES of a block's columns of values, 16 TILES
 * queries a warp, KEYS of a tile, of which STAGES are in shared memory at a time. */
template <class Element, int WIDTH_, int VALUES_, int TILES_, int WARPS_, int KEYS_, int STAGES_>
struct Forward {
    using E = Element;
    static constexpr int WIDTH = WIDTH_, VALUES = VALUES_, TILES = TILES_, KEYS = KEYS_;
    static constexpr int STAGES = STAGES_, THREADS = WARPS_ * GPU_WARP;
    static constexpr int ROWS = WARPS_ * TILES * 16;
    static constexpr int STAGE = KEYS * (attention_pitch<E, WIDTH> + attention_pitch<E, VALUES>);
    static constexpr int OUT_PITCH = VALUES + 8; /* floats */
    static constexpr size_t SHARED =
        attention_bytes<E, WIDTH>(ROWS) + (size_t)(STAGES * STAGE) * sizeof(E);
};

/* A warp's rows; exponents are of 2. */
template <class S> struct ForwardSums {
    float out[S::TILES][S::VALUES / 8][4]; /* not yet divided by the sums */
    float most[S::TILES][2];               /* about the largest exponent */
    float sum[S::TILES][2];                /* of 2^(exponent - most), of a lane's columns */
};

/* Where a block is. */
struct ForwardPlace {
    int b, key_head, first_row, column, split;
};

template <class S> __device__ __forceinline__ ForwardPlace forward_place(const AttentionView &v) {
    int tiles = (v.time * v.group + S::ROWS - 1) / S::ROWS;
    int i = (int)(blockIdx.x / (unsigned)tiles), tile = (int)(blockIdx.x % (unsigned)tiles);
    ForwardPlace place;
    place.b = i / v.key_heads, place.key_head = i % v.key_heads;
    place.first_row = (tiles - 1 - tile) * S::ROWS; /* those that see the most keys begin first */
    int chunks = (v.value_width + S::VALUES - 1) / S::VALUES;
    place.column = (int)blockIdx.z % chunks * S::VALUES, place.split = (int)blockIdx.z / chunks;
    return place;
}

/* The largest of a row, of which the four lanes of a quad have columns. */
__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* The largest products, or capped scores, of a warp's rows lie in shared memory, of each row for
 * one lane: they are seldom wanted. */
__device__ __forceinline__ void raise_top(float *tops, float top) {
    float *own = tops + threadIdx.x % GPU_WARP / 4;
    if (threadIdx.x % 4 == 0) *own = fmaxf(*own, top);
}

/* A sum may be up to 2^slack times what it would be relative to the true maximum: floats and bf16
 * have room for it, and it spares nearly all rescaling. */
template <class S>
__device__ __forceinline__ void raise_most(const AttentionView &v, float *tops,
                                           ForwardSums<S> &sums,
                                           const float (&s)[S::TILES][S::KEYS / 8][4]) {
    const float slack = 8.0f;
    bool raised = false;
    float now[S::TILES][2];
#pragma unroll
    for (int m = 0; m < S::TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = -INFINITY;
#pragma unroll
            for (int i = 0; i < S::KEYS / 8; i++)
                top = fmaxf(top, fmaxf(s[m][i][2 * half], s[m][i][2 * half + 1]));
            top = quad_max(top);
            if (v.tops) raise_top(tops + m * 16 + half * 8, top);
            bool higher = top * v.factor > sums.most[m][half] + slack;
            now[m][half] = higher ? top * v.factor : sums.most[m][half];
            raised |= higher;
        }
    if (!__any_sync(0xffffffffu, raised)) return;
#pragma unroll
    for (int m = 0; m < S::TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float scale = attention_exp2<typename S::E>(sums.most[m][half] - now[m][half]);
            sums.most[m][half] = now[m][half];
            sums.sum[m][half] *= scale;
#pragma unroll
            for (int i = 0; i < S::VALUES / 8; i++) {
                sums.out[m][i][2 * half] *= scale;
                sums.out[m][i][2 * half + 1] *= scale;
            }
        }
}

/* Scores of 16 keys from `key` on become probabilities, relative to about the largest score so far,
 * as the left operand of a product. */
template <class S>
__device__ __forceinline__ void soften(float factor, ForwardSums<S> &sums,
                                       const float (&s)[S::TILES][S::KEYS / 8][4], int key,
                                       AttentionLeft<typename S::E, S::TILES, 16> &p) {
    using E = typename S::E;
    float x[S::TILES][2][4];
#pragma unroll
    for (int m = 0; m < S::TILES; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *from = &s[m][key / 8 + i / 2][i % 2 * 2];
            float *to = &x[m][i / 2][i % 2 * 2], most = sums.most[m][i % 2];
            to[0] = attention_exp2<E>(from[0] * factor - most);
            to[1] = attention_exp2<E>(from[1] * factor - most);
            sums.sum[m][i % 2] += to[0] + to[1];
        }
    p.set(x);
}

/* meanwhile: starts copies, while products are still being made. */
template <class S, class F>
__device__ __forceinline__ void add_tile(const AttentionView &v, const ForwardPlace &place,
                                         ForwardSums<S> &sums, float *tops, const typename S::E *q,
                                         const typename S::E *keys, int first_key, bool is_whole,
                                         F meanwhile) {
    using E = typename S::E;
    int skipped = (int)threadIdx.x / GPU_WARP * S::TILES * 16;
    float s[S::TILES][S::KEYS / 8][4];
    attention_pairs<S::TILES, S::KEYS, S::WIDTH>(q + skipped * attention_pitch<E, S::WIDTH>, keys,
                                                 s);
    meanwhile();
    if (v.cap > 0.0f) attention_cap<E, S::TILES, S::KEYS>(v, s);
    if (!is_whole || v.chosen)
        attention_tile_hide<S::TILES, S::KEYS>(v, place.b, place.first_row + skipped, first_key, s);
    raise_most<S>(v, tops + skipped, sums, s);
    const E *values = keys + S::KEYS * attention_pitch<E, S::WIDTH>;
#pragma unroll
    for (int key = 0; key < S::KEYS; key += 16) {
        AttentionLeft<E, S::TILES, 16> p;
        soften<S>(v.factor, sums, s, key, p);
        attention_sums<S::VALUES, S::TILES, S::VALUES, 16>(
            p, values + key * attention_pitch<E, S::VALUES>, sums.out);
    }
}

/* ---- what comes of it */

/* A sink adds to a row's sum, and 0 to what comes of it, which is to be multiplied by the result:
 * the sink may be far above all scores. */
__device__ __forceinline__ float add_sink(float sink, float *most, float *sum) {
    float x = sink * ATTENTION_LOG2_E, now = x > *most ? x : *most;
    float scale = exp2f(*most - now);
    *sum = *sum * scale + exp2f(x - now);
    *most = now;
    return scale;
}

/* What is known of a row, of which a quad of lanes has the columns; returns the factor for them. */
template <class S>
__device__ __forceinline__ float finish_row(const AttentionView &v, const ForwardPlace &place,
                                            const ForwardSums<S> &sums, float top, int m, int half,
                                            int row) {
    float most = sums.most[m][half], sum = sums.sum[m][half], scale = 1.0f;
    int64_t at = attention_row(v, place.b, place.key_head, row);
    bool is_first = threadIdx.x % 4 == 0 && !place.column;
    if (v.n_splits > 1) {
        at += (int64_t)place.split * v.batch * v.time * v.heads;
        if (is_first) v.partial_sums[at] = make_float2(most, sum);
        return 1.0f;
    }
    int head = (int)(at % v.heads), token = attention_token(v, row);
    if (v.sinks && sum > 0) scale = add_sink(v.sinks[head], &most, &sum);
    int64_t place_of_row = ((int64_t)place.b * v.heads + head) * v.time + token;
    if (is_first) {
        if (v.log_sums)
            v.log_sums[place_of_row] =
                sum > 0 ? (most + log2f(sum)) * 0.693147181f : ATTENTION_LOWEST;
        if (v.tops) v.tops[place_of_row] = top * (v.cap > 0 ? 1.0f : v.scale);
    }
    return sum > 0 ? scale / sum : 0.0f;
}

/* GPU_PACK columns of a row, of which `width` are there. */
__device__ __forceinline__ void store_pack(GpuArray to, int64_t at, const float *from, int width) {
    size_t bytes = to.dtype == MX_BF16 ? sizeof(MxBf16) : sizeof(float);
    if (width >= GPU_PACK && ((uintptr_t)to.data + (size_t)at * bytes) % 16 == 0)
        return gpu_put_pack(to, at, from);
    for (int i = 0; i < GPU_PACK && i < width; i++) gpu_put(to, at + i, from[i]);
}

/* A warp's rows, which it has put in shared memory, so that whole lines are written. */
template <class S>
__device__ __forceinline__ void store_rows(const AttentionView &v, const ForwardPlace &place,
                                           const float *from, int first) {
    constexpr int PACKS = S::VALUES / GPU_PACK;
    bool is_part = v.n_splits > 1;
    GpuArray out = {is_part ? v.partial : v.out,
                    sizeof(typename S::E) == 4 || is_part ? MX_F32 : MX_BF16};
    if (!out.data) return;
    int64_t skipped = is_part ? (int64_t)place.split * v.batch * v.time * v.heads : 0;
#pragma unroll 4
    for (int i = (int)(threadIdx.x % GPU_WARP); i < S::TILES * 16 * PACKS; i += GPU_WARP) {
        int row = i / PACKS, column = i % PACKS * GPU_PACK, width = v.value_width;
        if (first + row >= v.time * v.group) continue;
        int64_t at = attention_row(v, place.b, place.key_head, first + row) + skipped;
        store_pack(out, at * width + place.column + column, from + row * S::OUT_PITCH + column,
                   width - place.column - column);
    }
}

template <class S>
__device__ __forceinline__ void finish(const AttentionView &v, const ForwardPlace &place,
                                       const float *tops, ForwardSums<S> &sums) {
    int lane = (int)(threadIdx.x % GPU_WARP), skipped = (int)threadIdx.x / GPU_WARP * S::TILES * 16;
    float *rows = gpu_dynamic<float>() + skipped * S::OUT_PITCH;
    static_assert(S::ROWS * S::OUT_PITCH * sizeof(float) <= S::SHARED);
    __syncthreads(); /* tiles are no longer read */
#pragma unroll
    for (int m = 0; m < S::TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = m * 16 + half * 8 + lane / 4;
            float factor = 0.0f;
            sums.sum[m][half] = quad_sum(sums.sum[m][half]);
            if (place.first_row + skipped + row < v.time * v.group)
                factor = finish_row<S>(v, place, sums, tops[skipped + row], m, half,
                                       place.first_row + skipped + row);
            float *to = rows + row * S::OUT_PITCH + lane % 4 * 2;
#pragma unroll
            for (int i = 0; i < S::VALUES / 8; i++)
                *(float2 *)(to + i * 8) = make_float2(sums.out[m][i][2 * half] * factor,
                                                      sums.out[m][i][2 * half + 1] * factor);
        }
    __syncwarp();
    store_rows<S>(v, place, rows, place.first_row + skipped);
}

/* ---- the kernel */

/* The tiles of keys that a block has to look at. */
template <class S>
__device__ __forceinline__ int2 forward_tiles(const AttentionView &v, const ForwardPlace &place,
                                              const AttentionBounds &bounds) {
    if (bounds.low > bounds.high) return int2{0, 0};
    int from = bounds.low / S::KEYS, end = bounds.high / S::KEYS + 1;
    int share = (end - from + v.n_splits - 1) / v.n_splits;
    from += share * place.split;
    return int2{from, end < from + share ? end : from + share};
}

/* Keys [first, first + ROWS): columns [column, column + WIDTH) of rows that are row_width wide. */
template <class E, int ROWS, int WIDTH, int THREADS>
__device__ __forceinline__ void load_some(const AttentionView &v, const ForwardPlace &place,
                                          const AttentionBounds &bounds, E *to, const void *from,
                                          int row_width, int column, bool in_packs, int first) {
    int sequence = v.sequences ? v.sequences[place.b] : place.b;
    int64_t skipped = (int64_t)sequence * v.keys;
    attention_tile_copy_some<E, ROWS, WIDTH, THREADS, 1>(
        to, (const E *)from, row_width - column, in_packs, [&](int i) {
            int key = first + i, slot = v.wraps ? key % v.keys : key;
            if (key < bounds.low || key > bounds.high) return (int64_t)-1;
            return ((skipped + slot) * v.key_heads + place.key_head) * row_width + column;
        });
}

/* Where a thread's packs of the sequence's first keys and values lie, and the tiles [from, end) of
 * which all is copied that way. */
template <class S> struct ForwardSource {
    using E = typename S::E;
    static constexpr bool FITS = attention_tile_fits<E, S::WIDTH, S::THREADS> &&
                                 attention_tile_fits<E, S::VALUES, S::THREADS>;
    const E *keys, *values;
    int from, end;

    __device__ __forceinline__ void begin(const AttentionView &v, const ForwardPlace &place,
                                          const AttentionBounds &bounds) {
        int sequence = v.sequences ? v.sequences[place.b] : place.b;
        int64_t row = (int64_t)sequence * v.keys * v.key_heads + place.key_head;
        keys = (const E *)v.k + row * v.width +
               attention_tile_start<E, S::WIDTH, S::THREADS>(v.key_heads * v.width, v.width);
        values = (const E *)v.v + row * v.value_row + place.column +
                 attention_tile_start<E, S::VALUES, S::THREADS>(v.key_heads * v.value_row,
                                                                v.value_row - place.column);
        bool is_simple = FITS && v.in_packs && v.v_in_packs && bounds.low <= bounds.high;
        from = is_simple ? (bounds.low + S::KEYS - 1) / S::KEYS : 0;
        end = is_simple ? (bounds.high + 1) / S::KEYS : 0;
    }
    __device__ __forceinline__ void copy(const AttentionView &v, const ForwardPlace &place, E *to,
                                         int slot) const {
        int step = v.key_heads * v.width, value_step = v.key_heads * v.value_row;
        if constexpr (FITS) {
            attention_tile_copy<E, S::KEYS, S::WIDTH, S::THREADS>(to, keys + (int64_t)slot * step,
                                                                  step, v.width);
            attention_tile_copy<E, S::KEYS, S::VALUES, S::THREADS>(
                to + S::KEYS * attention_pitch<E, S::WIDTH>, values + (int64_t)slot * value_step,
                value_step, v.value_row - place.column);
        }
    }
};

/* A tile of keys and values; those outside of the bounds are zeros. */
template <class S>
__device__ __forceinline__ void
load_stage(const AttentionView &v, const ForwardPlace &place, const AttentionBounds &bounds,
           const ForwardSource<S> &source, typename S::E *to, int tile) {
    using E = typename S::E;
    int first = tile * S::KEYS, slot = v.wraps ? first % v.keys : first;
    bool has_all = tile >= source.from && tile < source.end;
    if (v.wraps) has_all = has_all && slot + S::KEYS <= v.keys;
    if (has_all) {
        source.copy(v, place, to, slot);
    } else {
        E *values = to + S::KEYS * attention_pitch<E, S::WIDTH>;
        load_some<E, S::KEYS, S::WIDTH, S::THREADS>(v, place, bounds, to, v.k, v.width, 0,
                                                    v.in_packs, first);
        load_some<E, S::KEYS, S::VALUES, S::THREADS>(v, place, bounds, values, v.v, v.value_row,
                                                     place.column, v.v_in_packs, first);
    }
    copy_commit();
}

/* Goes through the tiles: with two stages the next tile is copied while one is added. */
template <class S, class W>
__device__ __forceinline__ void
add_tiles(const AttentionView &v, const ForwardPlace &place, const AttentionBounds &bounds, W walk,
          const typename S::E *q, typename S::E *stage, float *tops, ForwardSums<S> &sums) {
    bool is_whole = false, next_whole = false;
    int tile = walk.next(&is_whole), next = -1;
    ForwardSource<S> source;
    source.begin(v, place, bounds);
    if (tile >= 0) load_stage<S>(v, place, bounds, source, stage, tile);
    for (int at = 0; tile >= 0; at ^= S::STAGES - 1) {
        copy_wait<0>();
        __syncthreads();
        add_tile<S>(v, place, sums, tops, q, stage + at * S::STAGE, tile * S::KEYS, is_whole, [&] {
            next = walk.next(&next_whole);
            if (S::STAGES > 1 && next >= 0)
                load_stage<S>(v, place, bounds, source, stage + (1 - at) * S::STAGE, next);
        });
        if (S::STAGES == 1) {
            __syncthreads();
            if (next >= 0) load_stage<S>(v, place, bounds, source, stage, next);
        }
        tile = next, is_whole = next_whole;
    }
}

/* The bounds lie in shared memory, as registers are scarce. */
template <class S> __global__ void __launch_bounds__(S::THREADS) forward_kernel(AttentionView v) {
    using E = typename S::E;
    __shared__ AttentionBounds bounds;
    __shared__ float tops[S::ROWS];
    E *q = gpu_dynamic<E>(), *stage = q + S::ROWS * attention_pitch<E, S::WIDTH>;
    ForwardPlace place = forward_place<S>(v);
    int rows = v.time * v.group;
    int end_row = place.first_row + S::ROWS < rows ? place.first_row + S::ROWS : rows;
    for (int i = (int)threadIdx.x; i < S::ROWS; i += S::THREADS) tops[i] = ATTENTION_LOWEST;
    if (threadIdx.x == 0) bounds = attention_bounds(v, place.b, place.first_row, end_row);
    attention_tile_copy_some<E, S::ROWS, S::WIDTH, S::THREADS, 4>(
        q, (const E *)v.q, v.width, v.in_packs, [&](int i) {
            int row = place.first_row + i;
            return row < rows ? attention_row(v, place.b, place.key_head, row) * v.width
                              : (int64_t)-1;
        });
    __syncthreads();
    int2 tiles = forward_tiles<S>(v, place, bounds);
    auto walk = attention_walk(
        [&](int tile) {
            int first = tile * S::KEYS, last = first + S::KEYS - 1;
            return attention_sight(bounds, first, last,
                                   attention_key_segments(v, place.b, first, last));
        },
        tiles.x, tiles.y);
    ForwardSums<S> sums = {};
#pragma unroll
    for (int i = 0; i < S::TILES * 2; i++) sums.most[i / 2][i % 2] = ATTENTION_LOWEST;
    add_tiles<S>(v, place, bounds, walk, q, stage, tops, sums);
    copy_wait<0>();
    finish<S>(v, place, tops, sums);
}

/* ---- the results of splits of keys, in their order */

template <class E> __global__ void __launch_bounds__(GPU_BLOCK) merge_splits(AttentionView v) {
    int64_t row = ((int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x) / GPU_WARP;
    int64_t rows = (int64_t)v.batch * v.time * v.heads;
    if (row >= rows) return;
    float most = ATTENTION_LOWEST, sum = 0.0f, scale = 1.0f;
    for (int i = 0; i < v.n_splits; i++) most = fmaxf(most, v.partial_sums[i * rows + row].x);
    for (int i = 0; i < v.n_splits; i++) {
        float2 part = v.partial_sums[i * rows + row];
        sum += part.y * exp2f(part.x - most);
    }
    float highest = most;
    if (v.sinks && sum > 0) scale = add_sink(v.sinks[row % v.heads], &most, &sum);
    scale = sum > 0 ? scale / sum : 0.0f;
    for (int column = (int)(threadIdx.x % GPU_WARP); column < v.value_width; column += GPU_WARP) {
        float x = 0.0f;
        for (int i = 0; i < v.n_splits; i++) {
            float part = exp2f(v.partial_sums[i * rows + row].x - highest);
            x += part * v.partial[(i * rows + row) * v.value_width + column];
        }
        GpuArray out = {v.out, sizeof(E) == 2 ? MX_BF16 : MX_F32};
        gpu_put(out, row * v.value_width + column, x * scale);
    }
}

/* ---- which kernel */

enum { FEW_ROWS = 32 }; /* that a single warp a block does: blocks are there for many keys then */

template <class S> static void run(const MxDevice *device, const AttentionView *v) {
    int64_t tiles = gpu_blocks(attention_rows(v), S::ROWS);
    int64_t chunks = gpu_blocks(v->value_width, S::VALUES);
    dim3 grid((unsigned)(tiles * v->batch * v->key_heads), 1, (unsigned)(chunks * v->n_splits));
    gpu_launch(device, forward_kernel<S>, grid, S::THREADS, S::SHARED, *v);
    using E = typename S::E;
    int64_t rows = (int64_t)v->batch * v->time * v->heads;
    if (v->n_splits > 1)
        gpu_launch(device, merge_splits<E>, gpu_blocks(rows * GPU_WARP), GPU_BLOCK, 0, *v);
}

static void run_bf16(const MxDevice *device, const AttentionView *v) {
    using E = MxBf16;
    int width = v->width, values = v->value_width;
    if (attention_rows(v) <= FEW_ROWS) {
        if (width <= 64 && values <= 64) return run<Forward<E, 64, 64, 1, 1, 32, 2>>(device, v);
        if (width <= 128) return run<Forward<E, 128, 128, 1, 1, 32, 2>>(device, v);
        if (width <= 256) return run<Forward<E, 256, 256, 1, 1, 32, 2>>(device, v);
        return run<Forward<E, 576, 256, 1, 1, 32, 1>>(device, v);
    }
    if (width <= 64 && values <= 64) return run<Forward<E, 64, 64, 2, 4, 64, 2>>(device, v);
    if (width <= 96 && values <= 96) return run<Forward<E, 96, 96, 2, 4, 64, 2>>(device, v);
    if (width <= 128) return run<Forward<E, 128, 128, 2, 4, 64, 2>>(device, v);
    if (width <= 192 && values <= 128) return run<Forward<E, 192, 128, 2, 4, 32, 2>>(device, v);
    if (width <= 256) return run<Forward<E, 256, 256, 1, 4, 32, 2>>(device, v);
    return run<Forward<E, 576, 256, 1, 4, 32, 1>>(device, v);
}

static void run_f32(const MxDevice *device, const AttentionView *v) {
    int width = v->width, values = v->value_width;
    if (attention_rows(v) <= FEW_ROWS) {
        if (width <= 128) return run<Forward<float, 128, 128, 1, 1, 32, 1>>(device, v);
        return run<Forward<float, 576, 128, 1, 1, 32, 1>>(device, v);
    }
    if (width <= 64 && values <= 64) return run<Forward<float, 64, 64, 1, 4, 32, 1>>(device, v);
    if (width <= 128) return run<Forward<float, 128, 128, 1, 4, 32, 1>>(device, v);
    if (width <= 256) return run<Forward<float, 256, 128, 1, 4, 32, 1>>(device, v);
    return run<Forward<float, 576, 128, 1, 1, 32, 1>>(device, v);
}

void attention_forward(const MxDevice *device, const AttentionView *view, MxDtype dtype) {
    (dtype == MX_BF16 ? run_bf16 : run_f32)(device, view);
}

/* Blocks that there would be without splits are of at least 16 rows, or of 64. */
int attention_splits(const MxDevice *device, const AttentionView *view) {
    const int per_processor = 4, least_keys = 128, most = 64;
    int rows = attention_rows(view), side = rows <= FEW_ROWS ? 16 : 64;
    int64_t blocks = (int64_t)view->batch * view->key_heads * ((rows + side - 1) / side);
    int64_t wanted = (int64_t)gpu_of(device)->n_processors * per_processor / gpu_max(1, blocks);
    return (int)gpu_max(1, gpu_min(gpu_min(wanted, view->keys / least_keys), most));
}

void attention_partial(AttentionView *view, void **scratch) {
    size_t rows = (size_t)view->batch * (size_t)view->time * (size_t)view->heads;
    size_t n = view->n_splits > 1 ? rows * (size_t)view->n_splits : 0;
    view->partial_sums = (float2 *)gpu_carve(scratch, n * sizeof(float2));
    view->partial = (float *)gpu_carve(scratch, n * (size_t)view->value_width * sizeof(float));
}

size_t attention_partial_bytes(const AttentionView *view) {
    AttentionView same = *view;
    void *scratch = nullptr;
    attention_partial(&same, &scratch);
    return (size_t)(uintptr_t)scratch;
}

/* ---- the op */

static bool attention_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    if (attention_is_on_host(call)) return gpu_host_prepare(device, call, err);
    if (call->in_type[0].shape.dim[3] <= ATTENTION_MOST_WIDTH) return true;
    return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "heads are wider than the %d of a GPU's kernel",
                   ATTENTION_MOST_WIDTH);
}

static size_t attention_scratch(const MxDevice *, const MxKernelCall *call) {
    return attention_is_on_host(call) ? 0 : attention_see_bytes(call);
}

static void attention_run(const MxDevice *device, const MxKernelCall *call) {
    if (attention_is_on_host(call)) {
        gpu_host_run(device, call);
        return;
    }
    AttentionView view = attention_view(call);
    void *scratch = call->scratch;
    view.out = call->out[0];
    view.log_sums = (float *)call->out[1];
    view.tops = (float *)call->out[2];
    if (!view.out && !view.log_sums && !view.tops) return;
    attention_see(device, call, &view, &scratch);
    attention_forward(device, &view, call->in_type[0].dtype);
}

GPU_KERNEL(attention, .scratch = attention_scratch, .prepare = attention_prepare,
           .run = attention_run);
