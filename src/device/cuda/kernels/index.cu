/* index.cu — the keys that an indexer chooses, of a sequence or of a cache. A block takes a query
 * at a time: its scores, then the least one that is chosen, digit by digit. */
#include "index.cuh"
#include "windows.cuh"

namespace gpu_index {

static constexpr int DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS;

typedef struct Choice {
    Index x;
    const int32_t *positions, *sequences; /* of a cache; NULL = there is none */
    uint32_t *out;
    float *scores; /* [blocks][keys] */
    int64_t n_best;
    bool keeps_ties;
    char *scratch; /* tiles that shared memory has no room for */
    size_t block_bytes;
} Choice;

/* Integers in the order of floats; both zeros are one. */
__device__ static uint32_t in_order(float score) {
    uint32_t bits = __float_as_uint(score + 0.0f);
    if (bits == 0x80000000u) bits = 0;
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* A query and its keys: those before `end` that it may see. */
typedef struct Query {
    int64_t b, t, end;
} Query;

/* The k-th largest, from the highest digit on; *n_equal: how many of those that equal it are among
 * the k largest. */
__device__ static uint32_t find_last(const Index &x, const Query &q, const float *scores, int64_t k,
                                     int64_t *n_equal) {
    __shared__ unsigned count[DIGITS];
    uint32_t prefix = 0, known = 0;
    for (int shift = 32 - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        __syncthreads();
        for (int i = (int)threadIdx.x; i < DIGITS; i += GPU_BLOCK) count[i] = 0;
        __syncthreads();
        for (int64_t s = threadIdx.x; s < q.end; s += GPU_BLOCK) {
            uint32_t score = in_order(scores[s]);
            if ((score & known) == prefix && index_sees(x, q.b, q.t, s))
                atomicAdd(&count[score >> shift & (DIGITS - 1)], 1u);
        }
        __syncthreads();
        uint32_t digit = DIGITS - 1;
        for (; digit && k > (int64_t)count[digit]; digit--) k -= count[digit];
        prefix |= digit << shift;
        known |= (uint32_t)(DIGITS - 1) << shift;
    }
    *n_equal = k;
    return prefix;
}

__device__ static int64_t count_seen(const Index &x, const Query &q) {
    int n = 0;
    for (int64_t s = threadIdx.x; s < q.end; s += GPU_BLOCK) n += index_sees(x, q.b, q.t, s);
    return gpu_block_sum(n);
}

/* A word of the result is made by a warp; ties are counted through all warps, in their order. */
__device__ static void choose(const Choice &c, const Query &q, const float *scores) {
    constexpr int WARPS = GPU_BLOCK / GPU_WARP;
    __shared__ int ties[WARPS];
    const Index &x = c.x;
    uint32_t *chosen = c.out + (q.b * x.time + q.t) * x.words, least = 0;
    int warp = (int)threadIdx.x / GPU_WARP, lane = (int)threadIdx.x % GPU_WARP;
    bool takes_all = count_seen(x, q) <= c.n_best;
    int64_t n_equal = 0, before = 0;
    if (!takes_all) least = find_last(x, q, scores, c.n_best, &n_equal);
    for (int64_t first = 0; first < x.words; first += WARPS) {
        int64_t word = first + warp, s = word * GPU_WARP + lane;
        bool sees = s < q.end && index_sees(x, q.b, q.t, s);
        uint32_t score = sees ? in_order(scores[s]) : 0;
        bool is_tie = sees && !takes_all && score == least;
        unsigned equal = __ballot_sync(0xffffffffu, is_tie);
        __syncthreads();
        if (!lane) ties[warp] = __popc(equal);
        __syncthreads();
        int64_t earlier = before + __popc(equal & ((1u << lane) - 1));
        for (int i = 0; i < WARPS; i++) {
            if (i < warp) earlier += ties[i];
            before += ties[i];
        }
        bool takes =
            sees && (takes_all || score > least || (is_tie && (c.keeps_ties || earlier < n_equal)));
        unsigned bits = __ballot_sync(0xffffffffu, takes);
        if (!lane && word < x.words) chosen[word] = bits;
    }
    __syncthreads();
}

__global__ void __launch_bounds__(GPU_BLOCK) choose_kernel(Choice c) {
    Index x = c.x;
    TileRoom room = {(char *)gpu_dynamic<float>(), c.scratch + blockIdx.x * c.block_bytes, 0, 0,
                     INDEX_SHARED};
    IndexTiles tiles = index_lay_out(x, &room);
    float *scores = c.scores + blockIdx.x * x.keys;
    for (int64_t i = blockIdx.x; i < x.batch * x.time; i += gridDim.x) {
        Query q = {i / x.time, i % x.time, 0};
        if (c.positions) c.x.first = gpu_min(c.positions[i], x.keys - 1) - q.t;
        q.end = c.positions && c.positions[i] < 0 ? 0 : (c.x.first + q.t + 1) / x.ratio;
        index_scores(x, i, c.sequences ? c.sequences[q.b] : q.b, q.end, tiles, scores);
        choose(c, q, scores);
    }
}

/* ---- */

static int64_t blocks_of(const MxDevice *device, const Index &x) {
    constexpr int64_t A_PROCESSOR = 4;
    return gpu_min(x.batch * x.time, A_PROCESSOR * gpu_of(device)->n_processors);
}

static TileRoom room_of(const Index &x) {
    TileRoom room = {nullptr, nullptr, 0, 0, INDEX_SHARED};
    index_lay_out(x, &room);
    return room;
}

/* Of keys that are windows. */
static size_t key_segments_bytes(const MxKernelCall *call, const Index &x) {
    bool are_windows = ((const MxIndexAttr *)call->attr)->ratio > 0;
    return are_windows ? (size_t)(x.batch * x.keys) * sizeof(int32_t) : 0;
}

static size_t index_scratch(const MxDevice *device, const MxKernelCall *call) {
    MxKernelCall types = *call;
    types.in = nullptr;
    Index x = index_of(&types);
    size_t blocks = (size_t)blocks_of(device, x);
    return gpu_padded(key_segments_bytes(call, x)) +
           gpu_padded(blocks * (size_t)x.keys * sizeof(float)) + blocks * room_of(x).scratch_used;
}

static void run(const MxDevice *device, const MxKernelCall *call, Choice c) {
    const MxIndexAttr *attr = (const MxIndexAttr *)call->attr;
    int64_t blocks = blocks_of(device, c.x);
    TileRoom room = room_of(c.x);
    void *scratch = call->scratch;
    int32_t *key_segments = (int32_t *)gpu_carve(&scratch, key_segments_bytes(call, c.x));
    c.scores = (float *)gpu_carve(&scratch, (size_t)(blocks * c.x.keys) * sizeof(float));
    c.scratch = (char *)scratch;
    c.block_bytes = room.scratch_used;
    c.out = (uint32_t *)call->out[0];
    c.n_best = attr->n_best;
    c.keeps_ties = attr->keeps_ties;
    if (!c.out) return;
    if (attr->ratio > 0) {
        windows_segments(device, {c.x.segments, c.x.batch, c.x.tokens, c.x.ratio}, key_segments);
        c.x.key_segments = key_segments;
    }
    gpu_launch(device, choose_kernel, (unsigned)blocks, GPU_BLOCK, room.shared_used, c);
}

static void index_run(const MxDevice *device, const MxKernelCall *call) {
    const MxIndexAttr *attr = (const MxIndexAttr *)call->attr;
    Choice c = {};
    c.x = index_of(call);
    c.x.first = attr->first_query;
    c.x.tokens = call->in_type[INDEX_SEGMENTS].shape.dim[1];
    if (attr->ratio > 0) c.x.ratio = attr->ratio;
    run(device, call, c);
}
GPU_KERNEL(index, .scratch = index_scratch, .run = index_run);

static void cache_index_run(const MxDevice *device, const MxKernelCall *call) {
    constexpr int POSITIONS = INDEX_W + 1, SEQUENCES = POSITIONS + 1;
    Choice c = {};
    c.x = index_of(call);
    c.x.segments = nullptr;
    c.positions = (const int32_t *)call->in[POSITIONS];
    c.sequences = (const int32_t *)call->in[SEQUENCES];
    run(device, call, c);
}
GPU_KERNEL(cache_index, .scratch = index_scratch, .run = cache_index_run);

} // namespace gpu_index
