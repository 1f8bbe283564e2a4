/* index.cuh — the scores of an indexer, shared by its choice and its loss: the heads of one query
 * meet a tile of keys at a time. */
#ifndef GPU_INDEX_CUH
#define GPU_INDEX_CUH

#include "tiles.cuh"

enum { INDEX_Q, INDEX_K, INDEX_W, INDEX_SEGMENTS };

static constexpr int INDEX_KEYS = 64, INDEX_ROWS = 64; /* keys, and heads, of a tile */
static constexpr size_t INDEX_SHARED = 90 << 10;       /* of tiles */

typedef struct Index {
    GpuArray q, k;
    const float *w;
    const int32_t *segments;          /* of tokens; NULL = all are of one */
    const int32_t *key_segments;      /* the same if keys are tokens */
    const int32_t *chosen;            /* NULL = all are */
    int64_t batch, time, keys, first; /* first: the token that query 0 is */
    int64_t tokens, ratio;            /* of a sequence; that are a key */
    int64_t heads, width, padded, words;
} Index;

static inline Index index_of(const MxKernelCall *call) {
    MxShape q = call->in_type[INDEX_Q].shape, k = call->in_type[INDEX_K].shape;
    Index x = {};
    x.batch = q.dim[0], x.time = q.dim[1], x.heads = q.dim[2], x.width = q.dim[3];
    x.keys = x.tokens = k.dim[1];
    x.ratio = 1;
    x.padded = tile_padded(x.width);
    x.words = (x.keys + 31) / 32;
    if (!call->in) return x;
    x.q = gpu_in(call, INDEX_Q);
    x.k = gpu_in(call, INDEX_K);
    x.w = (const float *)call->in[INDEX_W];
    x.segments = x.key_segments = (const int32_t *)call->in[INDEX_SEGMENTS];
    return x;
}

typedef struct IndexTiles {
    Tile q, k;     /* [INDEX_ROWS][width] of heads, [INDEX_KEYS][width] */
    Tile products; /* [INDEX_ROWS][INDEX_KEYS] */
} IndexTiles;

__host__ __device__ static inline IndexTiles index_lay_out(const Index &x, TileRoom *room) {
    IndexTiles t;
    t.products = tile_take(room, INDEX_ROWS, INDEX_KEYS);
    t.q = tile_take(room, INDEX_ROWS, x.padded);
    t.k = tile_take(room, INDEX_KEYS, x.padded);
    return t;
}

/* index_load — n rows of `width` elements, `step` apart, from element `at` on, and zeros behind
 * them as far as a tile has rows. */
__device__ static inline void index_load(GpuArray from, int64_t at, int64_t step, int64_t n,
                                         int64_t width, int64_t rows, Tile to) {
    int64_t padded = tile_padded(width);
    for (int64_t i = threadIdx.x; i < rows * padded; i += GPU_BLOCK) {
        int64_t row = i / padded, column = i % padded;
        to.x[row * to.step + column] =
            row < n && column < width ? gpu_get(from, at + row * step + column) : 0.0f;
    }
}

/* index_sees — whether query t may see key s: its last token is no later, and it is of the same
 * segment. */
__device__ static inline bool index_sees(const Index &x, int64_t b, int64_t t, int64_t s) {
    int64_t own = x.first + t;
    if ((s + 1) * x.ratio > own + 1) return false;
    if (x.segments && x.key_segments[b * x.keys + s] != x.segments[b * x.tokens + own])
        return false;
    if (!x.chosen) return true;
    return (uint32_t)x.chosen[(b * x.time + t) * x.words + s / 32] >> s % 32 & 1u;
}

/* index_rows — of a tile whose first head is `head`. */
__device__ static inline int64_t index_rows(const Index &x, int64_t head) {
    return tile_padded(gpu_min(INDEX_ROWS, x.heads - head));
}

/* index_products — of `rows` heads of a query, which are in tiles.q, with the keys from s on of a
 * sequence. Ends with a barrier. */
__device__ static inline void index_products(const Index &x, int64_t sequence, int64_t s,
                                             int64_t rows, const IndexTiles &tiles) {
    index_load(x.k, (sequence * x.keys + s) * x.width, x.width, gpu_min(INDEX_KEYS, x.keys - s),
               x.width, INDEX_KEYS, tiles.k);
    __syncthreads();
    tile_product<false, true>(tiles.q, tiles.k, rows, INDEX_KEYS, x.padded, nullptr,
                              [&](int64_t n, int64_t j, float sum) {
                                  tiles.products.x[n * tiles.products.step + j] = sum;
                              });
    __syncthreads();
}

/* index_load_heads — of query `row`, from `head` on; a barrier must follow. */
__device__ static inline void index_load_heads(const Index &x, int64_t row, int64_t head,
                                               const IndexTiles &tiles) {
    index_load(x.q, (row * x.heads + head) * x.width, x.width, gpu_min(INDEX_ROWS, x.heads - head),
               x.width, index_rows(x, head), tiles.q);
}

/* index_scores — of query `row` (of all rows) with the first `reach` keys of a sequence. Ends with
 * a barrier. */
__device__ static inline void index_scores(const Index &x, int64_t row, int64_t sequence,
                                           int64_t reach, const IndexTiles &tiles, float *scores) {
    for (int64_t head = 0; head < x.heads; head += INDEX_ROWS) {
        int64_t n = gpu_min(INDEX_ROWS, x.heads - head);
        const float *w = x.w + row * x.heads + head;
        index_load_heads(x, row, head, tiles);
        for (int64_t s = 0; s < reach; s += INDEX_KEYS) {
            index_products(x, sequence, s, index_rows(x, head), tiles);
            int64_t j = threadIdx.x;
            if (j >= INDEX_KEYS || s + j >= reach) continue;
            float sum = head ? scores[s + j] : 0.0f;
            for (int64_t i = 0; i < n; i++) {
                float product = tiles.products.x[i * tiles.products.step + j];
                sum += w[i] * (product > 0.0f ? product : 0.0f);
            }
            scores[s + j] = sum;
        }
        __syncthreads();
    }
}

#endif
