/* attention_see.cu — what queries see: the first and the last key of each, both of which the mask
 * and blocks of tokens decide, and its segment; and extremes of these, and of the segments of keys,
 * for grains of neighbours, by which tiles are passed over. */
#include "attention.cuh"

enum { Q, K, V };
enum { SEGMENTS = 3, MORE }; /* of attention and its gradient */
enum { POSITIONS = 3, SEQUENCES, COUNTS, CACHE_MORE };

static bool is_cache(const MxKernelCall *call) {
    return call->op == &op_cache_attention;
}

/* The sinks, the blocks or what was chosen; NULL = none. */
static const void *more_of(const MxKernelCall *call) {
    int i = is_cache(call) ? (int)CACHE_MORE : (int)MORE;
    int n = call->op == &op_attention_grad ? 3 : 0; /* that follow */
    return call->in && call->n_in - n > i ? call->in[i] : nullptr;
}

static bool in_packs(const void *array, int64_t width, MxDtype dtype) {
    return (uintptr_t)array % 16 == 0 && width * (int64_t)mx_dtype_bytes(dtype) % 16 == 0;
}

static void fill_pointers(const MxKernelCall *call, AttentionView *v) {
    const MxAttentionAttr *attr = (const MxAttentionAttr *)call->attr;
    MxDtype dtype = call->in_type[Q].dtype;
    const void *more = more_of(call);
    v->q = call->in[Q], v->k = call->in[K], v->v = call->in[V];
    v->in_packs = in_packs(v->q, v->width, dtype) && in_packs(v->k, v->width, dtype);
    v->v_in_packs = in_packs(v->v, v->value_row, dtype);
    v->chosen = attr->is_chosen ? (const uint32_t *)more : nullptr;
    v->sinks = attr->is_chosen || attr->block_size ? nullptr : (const float *)more;
    if (is_cache(call))
        v->sequences = (const int32_t *)call->in[SEQUENCES];
    else
        v->segments = (const int32_t *)call->in[SEGMENTS];
}

AttentionView attention_view(const MxKernelCall *call) {
    const MxAttentionAttr *attr = (const MxAttentionAttr *)call->attr;
    MxShape q = call->in_type[Q].shape, k = call->in_type[K].shape;
    AttentionView v = {};
    MX_ASSERT(!(attr->scale < 0)); /* the largest product makes the largest score */
    v.batch = (int)q.dim[0], v.time = (int)q.dim[1], v.heads = (int)q.dim[2];
    v.width = (int)q.dim[3], v.keys = (int)k.dim[1], v.key_heads = (int)k.dim[2];
    v.value_row = (int)call->in_type[V].shape.dim[3];
    v.value_width = is_cache(call) ? (int)call->out_type[0].shape.dim[3] : v.value_row;
    v.group = v.heads / v.key_heads;
    v.words = (v.keys + 31) / 32;
    v.wraps = is_cache(call);
    v.inverse_group = (uint32_t)(((uint64_t)1 << 32) / (unsigned)gpu_max(1, v.group) + 1);
    if (v.group > 0 && ((uint64_t)1 << 32) % (unsigned)v.group == 0) v.inverse_group--;
    MX_ASSERT((int64_t)v.time * v.group * v.group < INT64_C(1) << 32);
    v.scale = (float)attr->scale, v.cap = (float)attr->softcap;
    v.factor = (attr->softcap > 0 ? 1.0f : v.scale) * ATTENTION_LOG2_E;
    v.n_splits = 1;
    if (call->in) fill_pointers(call, &v);
    return v;
}

/* ---- ranges of keys */

typedef struct Source {
    AttentionView view;
    MxMask mask;
    int window, block_size;
    int first, half, second;           /* of queries: tokens, as in attention */
    const int32_t *blocks;             /* of keys, or of the piece's tokens; NULL = none */
    const int32_t *positions, *counts; /* of a cache */
    int4 *sees, *grains;
    int2 *key_grains;
} Source;

struct Range {
    int low, high; /* both included */
};

/* Of n keys. */
__device__ static inline Range masked_keys(const Source &s, int query, int n) {
    int window = s.window;
    switch (s.mask) {
    case MX_MASK_SLIDING:
        return Range{query - window + 1 > 0 ? query - window + 1 : 0, query};
    case MX_MASK_CHUNK:
        return Range{query / window * window, query};
    case MX_MASK_FULL:
        return Range{0, n - 1};
    case MX_MASK_BLOCKS:
        return Range{0, (int)gpu_min(n, ((int64_t)query / window + 1) * window) - 1};
    default:
        return Range{0, query};
    }
}

/* How many tokens of the block follow that of `of` in one direction, `most` at most; positions
 * must follow one another, NULL = they do. */
__device__ static inline int beside(const Source &s, const int32_t *of, const int32_t *positions,
                                    int step, int most) {
    int low = (of[0] - 1) / s.block_size * s.block_size, n = 0;
    for (; n < most; n++) {
        int next = (n + 1) * step;
        if (of[next] <= low || of[next] > low + s.block_size) break;
        if (positions && positions[next] != positions[0] + next) break;
    }
    return n;
}

/* Token `at` of a row of n tokens sees its block's others. */
__device__ static inline Range with_block(const Source &s, const int32_t *blocks,
                                          const int32_t *positions, int at, int n, int own,
                                          Range range) {
    if (!blocks || !blocks[at]) return range;
    if (positions) positions += at;
    int low = own - beside(s, blocks + at, positions, -1, at);
    int high = own + beside(s, blocks + at, positions, 1, n - 1 - at);
    return Range{low < range.low ? low : range.low, high > range.high ? high : range.high};
}

__device__ static inline int4 seen_of_keys(const Source &s, int b, int t) {
    const AttentionView &v = s.view;
    int token = t < s.half ? s.first + t : s.second + t - s.half;
    const int32_t *blocks = s.blocks ? s.blocks + (int64_t)b * v.keys : nullptr;
    Range range = masked_keys(s, token, v.keys);
    range = with_block(s, blocks, nullptr, token, v.keys, token, range);
    return int4{range.low, range.high, v.segments[(int64_t)b * v.keys + token], 0};
}

/* A cache holds the last keys of `count`. */
__device__ static inline int4 seen_of_cache(const Source &s, int b, int t) {
    const AttentionView &v = s.view;
    const int32_t *positions = s.positions + (int64_t)b * v.time;
    const int32_t *blocks = s.blocks ? s.blocks + (int64_t)b * v.time : nullptr;
    int own = positions[t], count = s.counts[b], oldest = count > v.keys ? count - v.keys : 0;
    const int4 nothing = {INT_MAX, -1, 0, 0};
    if (own < 0) return nothing;
    Range range = with_block(s, blocks, positions, t, v.time, own, masked_keys(s, own, count));
    if (range.low < oldest) range.low = oldest;
    if (range.high > count - 1) range.high = count - 1;
    return range.low <= range.high ? int4{range.low, range.high, 0, 0} : nothing;
}

__global__ void __launch_bounds__(GPU_BLOCK) see_queries(Source s) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= (int64_t)s.view.batch * s.view.time) return;
    int b = (int)(i / s.view.time), t = (int)(i % s.view.time);
    s.sees[i] = s.positions ? seen_of_cache(s, b, t) : seen_of_keys(s, b, t);
}

__global__ void __launch_bounds__(GPU_BLOCK) see_grains(Source s) {
    const AttentionView &v = s.view;
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    int n = attention_grains(v.time);
    if (i >= (int64_t)v.batch * n) return;
    int b = (int)(i / n), first = (int)(i % n) * ATTENTION_GRAIN;
    AttentionBounds all;
    all.begin();
    for (int t = first; t < first + ATTENTION_GRAIN && t < v.time; t++) {
        int4 query = s.sees[(int64_t)b * v.time + t];
        all.add(int4{query.x, query.x, query.y, query.y}, int2{query.z, query.z});
    }
    s.grains[2 * i] = int4{all.low, all.highest_low, all.lowest_high, all.high};
    s.grains[2 * i + 1] = int4{all.least, all.most, 0, 0};
}

__global__ void __launch_bounds__(GPU_BLOCK) see_key_grains(Source s) {
    const AttentionView &v = s.view;
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    int n = attention_grains(v.keys);
    if (i >= (int64_t)v.batch * n) return;
    int b = (int)(i / n), first = (int)(i % n) * ATTENTION_GRAIN;
    int2 all = {INT_MAX, INT_MIN};
    for (int k = first; k < first + ATTENTION_GRAIN && k < v.keys; k++) {
        int segment = v.segments[(int64_t)b * v.keys + k];
        all.x = segment < all.x ? segment : all.x;
        all.y = segment > all.y ? segment : all.y;
    }
    s.key_grains[i] = all;
}

static Source source_of(const MxKernelCall *call, const AttentionView *view) {
    const MxAttentionAttr *attr = (const MxAttentionAttr *)call->attr;
    Source s = {.view = *view};
    s.mask = attr->mask;
    s.window = (int)gpu_min(attr->window, INT_MAX / 2);
    s.block_size = (int)gpu_min(attr->block_size, INT_MAX / 2);
    s.first = (int)attr->first_query;
    s.half = attr->is_swapped ? view->time / 2 : view->time;
    s.second = (int)attr->second_query;
    if (attr->block_size) s.blocks = (const int32_t *)more_of(call);
    if (!is_cache(call)) return s;
    s.positions = (const int32_t *)call->in[POSITIONS];
    s.counts = (const int32_t *)call->in[COUNTS];
    return s;
}

/* What lies in scratch. */
static Source carve(const MxKernelCall *call, const AttentionView *view, void **scratch) {
    Source s = call->in ? source_of(call, view) : Source{};
    size_t n_queries = (size_t)view->batch * (size_t)view->time;
    size_t n_grains = (size_t)(view->batch * attention_grains(view->time));
    size_t n_key_grains = (size_t)(view->batch * attention_grains(view->keys));
    s.sees = (int4 *)gpu_carve(scratch, n_queries * sizeof(int4));
    s.grains = (int4 *)gpu_carve(scratch, 2 * n_grains * sizeof(int4));
    s.key_grains = (int2 *)gpu_carve(scratch, n_key_grains * sizeof(int2));
    return s;
}

size_t attention_see_bytes(const MxKernelCall *call) {
    AttentionView view = attention_view(call);
    void *scratch = nullptr;
    carve(call, &view, &scratch);
    return (size_t)(uintptr_t)scratch;
}

void attention_see(const MxDevice *device, const MxKernelCall *call, AttentionView *view,
                   void **scratch) {
    Source s = carve(call, view, scratch);
    view->sees = s.sees, view->grains = s.grains, view->key_grains = s.key_grains;
    int64_t grains = (int64_t)view->batch * attention_grains(view->time);
    int64_t key_grains = (int64_t)view->batch * attention_grains(view->keys);
    gpu_launch(device, see_queries, gpu_blocks((int64_t)view->batch * view->time), GPU_BLOCK, 0, s);
    gpu_launch(device, see_grains, gpu_blocks(grains), GPU_BLOCK, 0, s);
    if (view->segments) gpu_launch(device, see_key_grains, gpu_blocks(key_grains), GPU_BLOCK, 0, s);
}
