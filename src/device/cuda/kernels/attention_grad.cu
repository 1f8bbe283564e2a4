/* attention_grad.cu — the gradient of attention: probabilities are computed again from the saved
 * log-sums (Dao 2022). Some blocks own queries and sum up their gradient over keys, others own keys
 * and sum up theirs over queries, so that all sums have one order and none is added to by two
 * blocks. */
#include "attention_turns.cuh"

namespace gpu_attention_grad {

enum { Q, K, V, SEGMENTS };     /* inputs, … */
enum { O, LOG_SUMS, DO, LAST }; /* … of which these are the last */
enum { DQ = Q, DK = K, DV = V, DSINKS };

/* How the kernels are cut. Those that own queries: 16 TILES of them a warp, which make OUT columns
 * of their gradient; KEYS of a tile. Those that own keys: 16 TILES a warp, which make OUT and
 * OUT_VALUES columns; ROWS of queries of a tile. STAGES of tiles are in shared memory at a time. */
template <class Element, int WIDTH_, int VALUES_, int OUT_, int TILES_, int WARPS_, int KEYS_,
          int STAGES_>
struct OfQueries {
    using E = Element;
    static constexpr int WIDTH = WIDTH_, VALUES = VALUES_, OUT = OUT_, TILES = TILES_;
    static constexpr int KEYS = KEYS_, STAGES = STAGES_, THREADS = WARPS_ * GPU_WARP;
    static constexpr int ROWS = WARPS_ * TILES * 16;
    static constexpr int PITCHES = attention_pitch<E, WIDTH> + attention_pitch<E, VALUES>;
    static constexpr int STAGE = KEYS * PITCHES;
    static constexpr size_t SHARED = (size_t)(ROWS * PITCHES + STAGES * STAGE) * sizeof(E);
};
template <class Element, int WIDTH_, int VALUES_, int OUT_, int OUT_VALUES_, int TILES_, int WARPS_,
          int ROWS_, int STAGES_>
struct OfKeys {
    using E = Element;
    static constexpr int WIDTH = WIDTH_, VALUES = VALUES_, OUT = OUT_, OUT_VALUES = OUT_VALUES_;
    static constexpr int TILES = TILES_, ROWS = ROWS_, STAGES = STAGES_;
    static constexpr int THREADS = WARPS_ * GPU_WARP, KEYS = WARPS_ * TILES * 16;
    static constexpr int PITCHES = attention_pitch<E, WIDTH> + attention_pitch<E, VALUES>;
    static constexpr int SUMS = ROWS * (int)(sizeof(float2) / sizeof(E));
    static constexpr int STAGE = ROWS * PITCHES + SUMS; /* row sums are behind the rows */
    static constexpr size_t SHARED = (size_t)(KEYS * PITCHES + STAGES * STAGE) * sizeof(E);
    static_assert(WIDTH / OUT == VALUES / OUT_VALUES && WIDTH % OUT == 0);
};

/* ---- a tile: products to probabilities, and cotangents of probabilities to those of scores
 * (before the factor `scale`) */

template <class E>
__device__ __forceinline__ void score_gradient(const AttentionView &v, float2 sums, float *score,
                                               float *d) {
    float tangent = v.cap > 0.0f ? *score / v.cap : 0.0f;
    float p = attention_exp2<E>(*score * v.factor - sums.x);
    float slope = p > 0.0f ? p * (1.0f - tangent * tangent) : 0.0f; /* what is hidden has none */
    *d = slope * (*d - sums.y);
    *score = p;
}

/* ---- blocks that own queries */

struct GradPlace {
    int b, key_head, first, column, value_column; /* the first row, or key */
};

/* tiles: of a group. */
__device__ __forceinline__ GradPlace grad_place(const AttentionView &v, int tiles, int side,
                                                bool is_backwards) {
    int i = (int)(blockIdx.x / (unsigned)tiles), tile = (int)(blockIdx.x % (unsigned)tiles);
    GradPlace place = {};
    place.b = i / v.key_heads, place.key_head = i % v.key_heads;
    place.first = (is_backwards ? tiles - 1 - tile : tile) * side;
    return place;
}

template <class S>
__device__ __forceinline__ void
add_keys(const AttentionView &v, const GradPlace &place, const float2 (&sums)[S::TILES][2],
         const typename S::E *own, const typename S::E *stage, int first_key, bool is_whole,
         float (&out)[S::TILES][S::OUT / 8][4]) {
    using E = typename S::E;
    constexpr int PITCH = attention_pitch<E, S::WIDTH>, VALUE_PITCH = attention_pitch<E, S::VALUES>;
    int skipped = (int)threadIdx.x / GPU_WARP * S::TILES * 16;
    const E *d_out = own + S::ROWS * PITCH;
    float s[S::TILES][S::KEYS / 8][4], d[S::TILES][S::KEYS / 8][4];
    attention_pairs<S::TILES, S::KEYS, S::WIDTH>(own + skipped * PITCH, stage, s);
    attention_pairs<S::TILES, S::KEYS, S::VALUES>(d_out + skipped * VALUE_PITCH,
                                                  stage + S::KEYS * PITCH, d);
    if (v.cap > 0.0f) attention_cap<E, S::TILES, S::KEYS>(v, s);
    if (!is_whole || v.chosen)
        attention_hide<S::TILES, S::KEYS>(v, place.b, place.first + skipped, first_key, s);
#pragma unroll
    for (int m = 0; m < S::TILES; m++)
#pragma unroll
        for (int i = 0; i < S::KEYS / 2; i++)
            score_gradient<E>(v, sums[m][i % 4 / 2], &s[m][i / 4][i % 4], &d[m][i / 4][i % 4]);
    AttentionLeft<E, S::TILES, S::KEYS> left;
    left.set(d);
    attention_sums<S::WIDTH, S::TILES, S::OUT, S::KEYS>(left, stage + place.column, out);
}

template <class S>
__device__ __forceinline__ void load_keys(const AttentionView &v, typename S::E *stage,
                                          AttentionKeys keys, int first_key) {
    using E = typename S::E;
    attention_load_keys<E, S::KEYS, S::WIDTH, S::THREADS>(v, stage, v.k, v.width, 0, v.in_packs,
                                                          keys, first_key);
    attention_load_keys<E, S::KEYS, S::VALUES, S::THREADS>(
        v, stage + S::KEYS * attention_pitch<E, S::WIDTH>, v.v, v.value_row, 0, v.v_in_packs, keys,
        first_key);
    copy_commit();
}

template <class S>
__device__ __forceinline__ void load_rows(const AttentionView &v, typename S::E *to,
                                          const GradPlace &place, int first_row) {
    using E = typename S::E;
    attention_load_rows<E, S::ROWS, S::WIDTH, S::THREADS>(v, to, v.q, v.width, v.in_packs, place.b,
                                                          place.key_head, first_row);
    attention_load_rows<E, S::ROWS, S::VALUES, S::THREADS>(
        v, to + S::ROWS * attention_pitch<E, S::WIDTH>, v.d_out, v.value_width, v.v_in_packs,
        place.b, place.key_head, first_row);
}

template <class S>
__device__ __forceinline__ void store_queries(const AttentionView &v, const GradPlace &place,
                                              const float (&out)[S::TILES][S::OUT / 8][4]) {
    int lane = (int)(threadIdx.x % GPU_WARP);
    int first = place.first + (int)threadIdx.x / GPU_WARP * S::TILES * 16;
#pragma unroll
    for (int m = 0; m < 2 * S::TILES; m++) {
        int row = first + m * 8 + lane / 4;
        if (row >= v.time * v.group) continue;
        int64_t at = attention_row(v, place.b, place.key_head, row) * v.width;
#pragma unroll
        for (int i = 0; i < S::OUT / 8; i++) {
            const float *x = &out[m / 2][i][m % 2 * 2];
            attention_store<typename S::E>(v.dq, at, place.column + i * 8 + lane % 4 * 2, v.width,
                                           x[0] * v.scale, x[1] * v.scale);
        }
    }
}

template <class S> __global__ void __launch_bounds__(S::THREADS) queries_kernel(AttentionView v) {
    using E = typename S::E;
    E *own = gpu_dynamic<E>(), *stage = own + S::ROWS * S::PITCHES;
    int rows = v.time * v.group;
    GradPlace place = grad_place(v, (rows + S::ROWS - 1) / S::ROWS, S::ROWS, true);
    place.column = (int)blockIdx.z * S::OUT;
    int end_row = place.first + S::ROWS < rows ? place.first + S::ROWS : rows;
    AttentionBounds bounds = attention_bounds(v, place.b, place.first, end_row);
    AttentionKeys keys = {place.b, place.key_head, bounds.low, bounds.high};
    auto walk = attention_walk(
        [&](int tile) {
            int first = tile * S::KEYS, last = first + S::KEYS - 1;
            return attention_sight(bounds, first, last,
                                   attention_key_segments(v, place.b, first, last));
        },
        bounds.low / S::KEYS, bounds.high / S::KEYS + 1);
    bool is_whole = false, next_whole = false;
    int tile = walk.next(&is_whole), at = 0;
    load_rows<S>(v, own, place, place.first);
    if (tile >= 0) load_keys<S>(v, stage, keys, tile * S::KEYS);
    float2 sums[S::TILES][2];
#pragma unroll
    for (int m = 0; m < 2 * S::TILES; m++) {
        int row = place.first + ((int)threadIdx.x / GPU_WARP * S::TILES * 2 + m) * 8 +
                  (int)(threadIdx.x % GPU_WARP) / 4;
        sums[m / 2][m % 2] = row < rows ? v.row_sums[attention_row(v, place.b, place.key_head, row)]
                                        : make_float2(0.0f, 0.0f);
    }
    float out[S::TILES][S::OUT / 8][4] = {};
    while (tile >= 0) {
        copy_wait<0>();
        __syncthreads();
        int next = walk.next(&next_whole);
        if (S::STAGES > 1 && next >= 0)
            load_keys<S>(v, stage + (1 - at) * S::STAGE, keys, next * S::KEYS);
        add_keys<S>(v, place, sums, own, stage + at * S::STAGE, tile * S::KEYS, is_whole, out);
        if (S::STAGES == 1) {
            __syncthreads();
            if (next >= 0) load_keys<S>(v, stage, keys, next * S::KEYS);
        }
        if (S::STAGES > 1) at = 1 - at;
        tile = next, is_whole = next_whole;
    }
    copy_wait<0>();
    store_queries<S>(v, place, out);
}

/* ---- blocks that own keys */

template <class S>
__device__ __forceinline__ void
add_rows(const AttentionView &v, const GradPlace &place, const typename S::E *own,
         const typename S::E *stage, int first_row, bool is_whole,
         float (&dk)[S::TILES][S::OUT / 8][4], float (&dv)[S::TILES][S::OUT_VALUES / 8][4]) {
    using E = typename S::E;
    constexpr int PITCH = attention_pitch<E, S::WIDTH>, VALUE_PITCH = attention_pitch<E, S::VALUES>;
    int lane = (int)(threadIdx.x % GPU_WARP);
    int skipped = (int)threadIdx.x / GPU_WARP * S::TILES * 16;
    const E *values = own + S::KEYS * PITCH, *d_out = stage + S::ROWS * PITCH;
    const float2 *sums = (const float2 *)(stage + S::ROWS * S::PITCHES);
    float s[S::TILES][S::ROWS / 8][4], d[S::TILES][S::ROWS / 8][4];
    attention_pairs<S::TILES, S::ROWS, S::WIDTH>(own + skipped * PITCH, stage, s);
    attention_pairs<S::TILES, S::ROWS, S::VALUES>(values + skipped * VALUE_PITCH, d_out, d);
    if (v.cap > 0.0f) attention_cap<E, S::TILES, S::ROWS>(v, s);
    if (!is_whole || v.chosen)
        attention_hide_turned<S::TILES, S::ROWS>(v, place.b, first_row, place.first + skipped, s);
#pragma unroll
    for (int i = 0; i < S::ROWS / 4; i++) {
        float2 of_row = sums[i / 2 * 8 + lane % 4 * 2 + i % 2];
#pragma unroll
        for (int m = 0; m < 2 * S::TILES; m++)
            score_gradient<E>(v, of_row, &s[m / 2][i / 2][m % 2 * 2 + i % 2],
                              &d[m / 2][i / 2][m % 2 * 2 + i % 2]);
    }
    AttentionLeft<E, S::TILES, S::ROWS> left;
    left.set(s);
    attention_sums<S::VALUES, S::TILES, S::OUT_VALUES, S::ROWS>(left, d_out + place.value_column,
                                                                dv);
    left.set(d);
    attention_sums<S::WIDTH, S::TILES, S::OUT, S::ROWS>(left, stage + place.column, dk);
}

template <class S>
__device__ __forceinline__ void load_queries(const AttentionView &v, typename S::E *stage,
                                             const GradPlace &place, int first_row) {
    load_rows<S>(v, stage, place, first_row);
    float2 *sums = (float2 *)(stage + S::ROWS * S::PITCHES);
    for (int i = (int)threadIdx.x; i < S::ROWS; i += S::THREADS) {
        bool is_there = first_row + i < v.time * v.group;
        int64_t at = is_there ? attention_row(v, place.b, place.key_head, first_row + i) : 0;
        copy_async<8>(&sums[i], &v.row_sums[at], is_there);
    }
    copy_commit();
}

template <class S, int N>
__device__ __forceinline__ void store_keys(const AttentionView &v, const GradPlace &place, void *to,
                                           int column, int width, float scale,
                                           const float (&x)[S::TILES][N / 8][4]) {
    int lane = (int)(threadIdx.x % GPU_WARP);
    int first = place.first + (int)threadIdx.x / GPU_WARP * S::TILES * 16;
#pragma unroll
    for (int m = 0; m < 2 * S::TILES; m++) {
        int key = first + m * 8 + lane / 4;
        if (key >= v.keys || !to) continue;
        int64_t at = (((int64_t)place.b * v.keys + key) * v.key_heads + place.key_head) * width;
#pragma unroll
        for (int i = 0; i < N / 8; i++)
            attention_store<typename S::E>(to, at, column + i * 8 + lane % 4 * 2, width,
                                           x[m / 2][i][m % 2 * 2] * scale,
                                           x[m / 2][i][m % 2 * 2 + 1] * scale);
    }
}

template <class S>
__device__ __forceinline__ void load_own_keys(const AttentionView &v, typename S::E *own,
                                              const GradPlace &place) {
    using E = typename S::E;
    AttentionKeys keys = {place.b, place.key_head, 0, v.keys - 1};
    attention_load_keys<E, S::KEYS, S::WIDTH, S::THREADS>(v, own, v.k, v.width, 0, v.in_packs, keys,
                                                          place.first);
    attention_load_keys<E, S::KEYS, S::VALUES, S::THREADS>(
        v, own + S::KEYS * attention_pitch<E, S::WIDTH>, v.v, v.value_row, 0, v.v_in_packs, keys,
        place.first);
}

template <class S> __global__ void __launch_bounds__(S::THREADS) keys_kernel(AttentionView v) {
    using E = typename S::E;
    E *own = gpu_dynamic<E>(), *stage = own + S::KEYS * S::PITCHES;
    int rows = v.time * v.group;
    GradPlace place = grad_place(v, (v.keys + S::KEYS - 1) / S::KEYS, S::KEYS, false);
    place.column = (int)blockIdx.z * S::OUT, place.value_column = (int)blockIdx.z * S::OUT_VALUES;
    int last_key = place.first + S::KEYS - 1;
    int2 segments = attention_key_segments(v, place.b, place.first, last_key);
    auto walk = attention_walk(
        [&](int tile) {
            int first = tile * S::ROWS, end = first + S::ROWS < rows ? first + S::ROWS : rows;
            return attention_sight(attention_bounds(v, place.b, first, end), place.first, last_key,
                                   segments);
        },
        0, (rows + S::ROWS - 1) / S::ROWS);
    bool is_whole = false, next_whole = false;
    int tile = walk.next(&is_whole), at = 0;
    load_own_keys<S>(v, own, place);
    if (tile >= 0) load_queries<S>(v, stage, place, tile * S::ROWS);
    float dk[S::TILES][S::OUT / 8][4] = {}, dv[S::TILES][S::OUT_VALUES / 8][4] = {};
    while (tile >= 0) {
        copy_wait<0>();
        __syncthreads();
        int next = walk.next(&next_whole);
        if (S::STAGES > 1 && next >= 0)
            load_queries<S>(v, stage + (1 - at) * S::STAGE, place, next * S::ROWS);
        add_rows<S>(v, place, own, stage + at * S::STAGE, tile * S::ROWS, is_whole, dk, dv);
        if (S::STAGES == 1) {
            __syncthreads();
            if (next >= 0) load_queries<S>(v, stage, place, next * S::ROWS);
        }
        if (S::STAGES > 1) at = 1 - at;
        tile = next, is_whole = next_whole;
    }
    copy_wait<0>();
    store_keys<S, S::OUT>(v, place, v.dk, place.column, v.width, v.scale, dk);
    store_keys<S, S::OUT_VALUES>(v, place, v.dv, place.value_column, v.value_width, 1.0f, dv);
}

/* ---- sums of rows, and sinks */

/* A warp a row. log_sums [batch, heads, time]. */
template <class E>
__global__ void __launch_bounds__(GPU_BLOCK)
    sum_rows(AttentionView v, const E *out, const float *log_sums, float2 *row_sums) {
    constexpr MxDtype DTYPE = sizeof(E) == 2 ? MX_BF16 : MX_F32;
    int64_t row = ((int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x) / GPU_WARP;
    if (row >= (int64_t)v.batch * v.time * v.heads) return;
    GpuArray o = {(void *)(out + row * v.value_width), DTYPE};
    GpuArray d = {(void *)((const E *)v.d_out + row * v.value_width), DTYPE};
    int lane = (int)(threadIdx.x % GPU_WARP);
    bool packs = v.v_in_packs && (uintptr_t)out % 16 == 0 && v.value_width % GPU_PACK == 0;
    float sum = 0.0f;
    for (int i = lane * GPU_PACK; packs && i < v.value_width; i += GPU_WARP * GPU_PACK) {
        float x[GPU_PACK], y[GPU_PACK];
        gpu_get_pack(o, i, x);
        gpu_get_pack(d, i, y);
        for (int j = 0; j < GPU_PACK; j++) sum += x[j] * y[j];
    }
    for (int i = lane; !packs && i < v.value_width; i += GPU_WARP)
        sum += gpu_get(o, i) * gpu_get(d, i);
    sum = gpu_warp_sum(sum);
    int head = (int)(row % v.heads), t = (int)(row / v.heads % v.time);
    int64_t b = row / v.heads / v.time;
    if (!lane)
        row_sums[row] =
            make_float2(log_sums[(b * v.heads + head) * v.time + t] * ATTENTION_LOG2_E, sum);
}

/* A block a head. */
__global__ void __launch_bounds__(GPU_BLOCK)
    sum_sinks(AttentionView v, const float *log_sums, float *d_sinks) {
    int head = (int)blockIdx.x;
    double sum = 0, sink = v.sinks[head];
    for (int64_t i = threadIdx.x; i < (int64_t)v.batch * v.time; i += GPU_BLOCK) {
        int64_t b = i / v.time, t = i % v.time;
        double log_sum = log_sums[(b * v.heads + head) * v.time + t];
        sum -= exp(sink - log_sum) * v.row_sums[i * v.heads + head].y;
    }
    sum = gpu_block_sum(sum);
    if (!threadIdx.x) d_sinks[head] = (float)sum;
}

/* ---- which kernels */

template <class S, class T> static void run(const MxDevice *device, const AttentionView *v) {
    int64_t groups = (int64_t)v->batch * v->key_heads;
    int64_t tiles = gpu_blocks(attention_rows(v), S::ROWS),
            key_tiles = gpu_blocks(v->keys, T::KEYS);
    int64_t chunks = gpu_blocks(v->width, S::OUT);
    int64_t key_chunks =
        gpu_max(gpu_blocks(v->width, T::OUT), gpu_blocks(v->value_width, T::OUT_VALUES));
    if (v->dk || v->dv)
        gpu_launch(device, keys_kernel<T>,
                   dim3((unsigned)(groups * key_tiles), 1, (unsigned)key_chunks), T::THREADS,
                   T::SHARED, *v);
    if (v->dq)
        gpu_launch(device, queries_kernel<S>, dim3((unsigned)(groups * tiles), 1, (unsigned)chunks),
                   S::THREADS, S::SHARED, *v);
}

static void run_bf16(const MxDevice *device, const AttentionView *v) {
    using E = MxBf16;
    int width = v->width, values = v->value_width;
    if (width <= 64 && values <= 64)
        run<OfQueries<E, 64, 64, 64, 2, 4, 64, 2>, OfKeys<E, 64, 64, 64, 64, 2, 4, 32, 2>>(device,
                                                                                           v);
    else if (width <= 128 && values <= 128)
        run<OfQueries<E, 128, 128, 128, 2, 4, 32, 2>, OfKeys<E, 128, 128, 128, 128, 1, 4, 64, 2>>(
            device, v);
    else if (width <= 192 && values <= 128)
        run<OfQueries<E, 192, 128, 192, 1, 4, 32, 2>, OfKeys<E, 192, 128, 192, 128, 1, 4, 32, 2>>(
            device, v);
    else if (width <= 256 && values <= 256)
        run<OfQueries<E, 256, 256, 256, 1, 4, 32, 1>, OfKeys<E, 256, 256, 128, 128, 1, 4, 32, 1>>(
            device, v);
    else
        run<OfQueries<E, 576, 576, 192, 1, 2, 32, 1>, OfKeys<E, 576, 576, 192, 192, 1, 2, 32, 1>>(
            device, v);
}

static void run_f32(const MxDevice *device, const AttentionView *v) {
    using E = float;
    int width = v->width, values = v->value_width;
    if (width <= 64 && values <= 64)
        run<OfQueries<E, 64, 64, 64, 1, 4, 32, 1>, OfKeys<E, 64, 64, 64, 64, 1, 4, 32, 1>>(device,
                                                                                           v);
    else if (width <= 128 && values <= 128)
        run<OfQueries<E, 128, 128, 128, 1, 4, 32, 1>, OfKeys<E, 128, 128, 128, 128, 1, 4, 32, 1>>(
            device, v);
    else if (width <= 256 && values <= 256)
        run<OfQueries<E, 256, 256, 128, 1, 2, 32, 1>, OfKeys<E, 256, 256, 128, 128, 1, 2, 32, 1>>(
            device, v);
    else
        run<OfQueries<E, 576, 576, 192, 1, 1, 16, 1>, OfKeys<E, 576, 576, 192, 192, 1, 1, 16, 1>>(
            device, v);
}

/* ---- the op */

static bool attention_grad_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    if (attention_is_on_host(call)) return gpu_host_prepare(device, call, err);
    int64_t width = gpu_max(call->in_type[Q].shape.dim[3], call->in_type[V].shape.dim[3]);
    if (width <= ATTENTION_MOST_WIDTH) return true;
    return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "heads are wider than the %d of a GPU's kernel",
                   ATTENTION_MOST_WIDTH);
}

static size_t row_sum_bytes(const AttentionView *v) {
    return (size_t)v->batch * (size_t)v->time * (size_t)v->heads * sizeof(float2);
}

static size_t attention_grad_scratch(const MxDevice *, const MxKernelCall *call) {
    if (attention_is_on_host(call)) return 0;
    AttentionView view = attention_view(call);
    size_t bytes = attention_see_bytes(call) + gpu_padded(row_sum_bytes(&view));
    if (attention_turns_can(&view, call->in_type[Q].dtype)) bytes += attention_turns_bytes(&view);
    return bytes;
}

static void attention_grad_run(const MxDevice *device, const MxKernelCall *call) {
    if (attention_is_on_host(call)) {
        gpu_host_run(device, call);
        return;
    }
    AttentionView view = attention_view(call);
    void *scratch = call->scratch, *const *last = call->in + call->n_in - LAST;
    const float *log_sums = (const float *)last[LOG_SUMS];
    float2 *row_sums = (float2 *)gpu_carve(&scratch, row_sum_bytes(&view));
    view.d_out = last[DO], view.row_sums = row_sums;
    view.v_in_packs = view.v_in_packs && (uintptr_t)view.d_out % 16 == 0;
    view.dq = call->out[DQ], view.dk = call->out[DK], view.dv = call->out[DV];
    attention_see(device, call, &view, &scratch);
    bool is_bf16 = call->in_type[Q].dtype == MX_BF16;
    unsigned blocks = gpu_blocks((int64_t)view.batch * view.time * view.heads * GPU_WARP);
    if (is_bf16)
        gpu_launch(device, sum_rows<MxBf16>, blocks, GPU_BLOCK, 0, view, (const MxBf16 *)last[O],
                   log_sums, row_sums);
    else
        gpu_launch(device, sum_rows<float>, blocks, GPU_BLOCK, 0, view, (const float *)last[O],
                   log_sums, row_sums);
    bool has_packs = view.in_packs && view.v_in_packs;
    if (has_packs && attention_turns_can(&view, call->in_type[Q].dtype))
        attention_turns_run(device, &view, &scratch);
    else
        (is_bf16 ? run_bf16 : run_f32)(device, &view);
    if (call->n_out > DSINKS && call->out[DSINKS])
        gpu_launch(device, sum_sinks, (unsigned)view.heads, GPU_BLOCK, 0, view, log_sums,
                   (float *)call->out[DSINKS]);
}

GPU_KERNEL(attention_grad, .scratch = attention_grad_scratch, .prepare = attention_grad_prepare,
           .run = attention_grad_run);

} // namespace gpu_attention_grad
