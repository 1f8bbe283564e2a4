/* expert_sort.cuh — choices in the order of their experts, for products of rows with the matrices
 * of experts, and the tiles of such products: all on the device, since the host does not know who
 * chose whom. */
#ifndef EXPERT_SORT_CUH
#define EXPERT_SORT_CUH

#include "places.cuh"

/* Rows of a tile of a product, all of one expert; expert -1 = there is no such tile. */
typedef struct ExpertTile {
    int32_t expert, first, rows; /* rows of order, from one on */
} ExpertTile;

/* Experts of other ranks, and none at all, count as one behind the last. */
typedef struct ExpertSort {
    Places places;
    int32_t *order; /* [n] choices, sorted by expert */
    int32_t *token; /* [n] their tokens, likewise */
    int32_t *start; /* [n_experts + 2] where an expert's begin in order */
    int32_t *tiles; /* [n_experts + 2] and its tiles among all */
    ExpertTile *tile;
    int64_t n_tiles; /* at most */
    int64_t choices; /* of a token */
    int tile_rows;
} ExpertSort;

static inline ExpertSort expert_sort_of(const MxKernelCall *call, int64_t n_experts, int64_t first,
                                        int tile_rows) {
    ExpertSort s = {};
    MxShape ids = call->in_type[1].shape;
    int64_t n = mx_shape_count(ids);
    MX_ASSERT(n < INT32_MAX);
    s.places = places_of(1, n, n_experts, first);
    s.choices = ids.dim[ids.rank - 1];
    s.tile_rows = tile_rows;
    s.n_tiles = n / tile_rows + n_experts + 1;
    return s;
}

static inline void expert_sort_carve(ExpertSort *s, void **scratch) {
    size_t starts = sizeof(int32_t) * (size_t)(s->places.n_keys + 2);
    places_carve(&s->places, scratch);
    s->order = (int32_t *)gpu_carve(scratch, sizeof(int32_t) * (size_t)s->places.n);
    s->token = (int32_t *)gpu_carve(scratch, sizeof(int32_t) * (size_t)s->places.n);
    s->start = (int32_t *)gpu_carve(scratch, starts);
    s->tiles = (int32_t *)gpu_carve(scratch, starts);
    s->tile = (ExpertTile *)gpu_carve(scratch, sizeof(ExpertTile) * (size_t)s->n_tiles);
}

/* expert_sort_rows — the rows of an input in the order of experts: it has one a token, or one a
 * choice. */
static inline const int32_t *expert_sort_rows(const ExpertSort &s, const MxKernelCall *call,
                                              int i) {
    return call->in_type[i].shape.rank == call->in_type[1].shape.rank ? s.token : s.order;
}

/* Where experts begin: one warp. */
static __global__ void __launch_bounds__(GPU_WARP) expert_starts(ExpertSort s) {
    int32_t lane = (int32_t)threadIdx.x, start = 0, tiles = 0;
    for (int64_t first = 0; first <= s.places.n_keys; first += GPU_WARP) {
        bool is_key = first + lane <= s.places.n_keys;
        int32_t rows = is_key ? s.places.count[first + lane] : 0;
        int32_t own = (rows + s.tile_rows - 1) / s.tile_rows;
        int32_t rows_sum = places_scan(rows), tiles_sum = places_scan(own);
        if (is_key) {
            s.start[first + lane] = start + rows_sum - rows;
            s.tiles[first + lane] = tiles + tiles_sum - own;
        }
        start += __shfl_sync(0xffffffffu, rows_sum, GPU_WARP - 1);
        tiles += __shfl_sync(0xffffffffu, tiles_sum, GPU_WARP - 1);
    }
    if (lane) return;
    s.start[s.places.n_keys + 1] = start;
    s.tiles[s.places.n_keys + 1] = tiles;
}

static __global__ void __launch_bounds__(GPU_BLOCK) expert_order(ExpertSort s) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= s.places.n) return;
    int32_t at = s.start[places_key(s.places, s.places.ids[i])] + s.places.place[i];
    s.order[at] = (int32_t)i;
    s.token[at] = (int32_t)(i / s.choices);
}

/* Looks for each tile's expert: the last that begins at or before it and has tiles. */
static __global__ void __launch_bounds__(GPU_BLOCK) expert_tiles(ExpertSort s) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= s.n_tiles) return;
    ExpertTile tile = {-1, 0, 0};
    if (i < s.tiles[s.places.n_keys + 1]) {
        int32_t low = 0, high = (int32_t)s.places.n_keys + 1; /* tiles[low] <= i < tiles[high] */
        while (high - low > 1) {
            int32_t middle = (low + high) / 2;
            if (s.tiles[middle] <= i)
                low = middle;
            else
                high = middle;
        }
        tile.expert = low;
        tile.first = s.start[low] + ((int32_t)i - s.tiles[low]) * s.tile_rows;
        tile.rows = (int32_t)gpu_min(s.tile_rows, s.start[low + 1] - tile.first);
    }
    s.tile[i] = tile;
}

static inline void expert_sort_run(const MxDevice *device, const ExpertSort &s) {
    places_run(device, s.places);
    gpu_launch(device, expert_starts, 1, GPU_WARP, 0, s);
    gpu_launch(device, expert_order, gpu_blocks(s.places.n), GPU_BLOCK, 0, s);
    gpu_launch(device, expert_tiles, gpu_blocks(s.n_tiles), GPU_BLOCK, 0, s);
}

#endif
