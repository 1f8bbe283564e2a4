/* expert.cu — products of rows with the matrix of the expert chosen for each. Choices are sorted by
 * expert (stable, so that sums have one order); a tile has rows of one expert alone, which are read
 * where they lie and written where they belong. */
#include "expert_product.cuh"
#include "expert_sort.cuh"

namespace gpu_expert {

/* Tensor cores take bf16, in whole packs of 16 bytes. */
static bool suits_mma(MxDtype dtype, int64_t d, int64_t n) {
    return dtype == MX_BF16 && d % GPU_PACK == 0 && n % GPU_PACK == 0;
}

/* ---- expert_dot. Sums over the choices of a token are made from products in f32, of some columns
 * at a time, so that they need little scratch. */

typedef struct ExpertDot {
    ExpertSort sort;
    GpuArray x, w, y;                  /* y: the products, a row a choice */
    const int32_t *rows;               /* of x, in the order of experts */
    int64_t deep, n;                   /* widths of rows of x and of products */
    int64_t column, y_column, y_width; /* first column of this launch; where it is in y */
    int64_t columns;                   /* of this launch */
    int64_t choices;                   /* that are summed up; 1 = none */
} ExpertDot;

/* The matrices of one tile. */
template <bool TRANSPOSED>
__device__ static inline bool dot_lines(const ExpertDot &d, const ExpertTile &tile, Lines *x,
                                        Lines *w) {
    bool is_zero = tile.expert == d.sort.places.n_keys;
    *x = Lines{d.x, 0, tile.rows, d.deep, d.rows + tile.first};
    *w = Lines{d.w, tile.expert * d.deep * d.n, TRANSPOSED ? d.n : d.deep,
               TRANSPOSED ? d.deep : d.n, nullptr};
    return !is_zero;
}

__device__ static inline int64_t dot_tiles(const ExpertDot &d) {
    return (d.columns + MATRIX_TILE - 1) / MATRIX_TILE;
}

/* Where an element of a product belongs; negative = it is behind the end. */
__device__ static inline int64_t dot_place(const ExpertDot &d, const ExpertTile &tile, int64_t row,
                                           int64_t column) {
    if (row >= tile.rows || column >= d.column + d.columns) return -1;
    return d.sort.order[tile.first + row] * d.y_width + column - d.y_column;
}

template <bool TRANSPOSED>
__global__ void __launch_bounds__(MATRIX_THREADS, 2) dot_mma(ExpertDot d) {
    TilePlace place = tile_place(blockIdx.x, d.sort.n_tiles, dot_tiles(d));
    ExpertTile tile = d.sort.tile[place.row];
    Lines x, w;
    if (tile.expert < 0) return;
    int64_t deep = dot_lines<TRANSPOSED>(d, tile, &x, &w) ? d.deep : 0;
    if (!deep) w.n = 0;
    mma_tile<false, !TRANSPOSED>(x, w, 0, d.column + place.column * MATRIX_TILE, deep,
                                 [&](int64_t row, int64_t column, const float value[2]) {
                                     int64_t to = dot_place(d, tile, row, column);
                                     if (to < 0) return;
                                     if (d.y.dtype == MX_BF16)
                                         ((uint32_t *)d.y.data)[to / 2] =
                                             mma_word(value[0], value[1]);
                                     else
                                         ((float2 *)d.y.data)[to / 2] =
                                             make_float2(value[0], value[1]);
                                 });
}

template <bool TRANSPOSED>
__global__ void __launch_bounds__(MATRIX_THREADS) dot_plain(ExpertDot d) {
    TilePlace place = tile_place(blockIdx.x, d.sort.n_tiles, dot_tiles(d));
    ExpertTile tile = d.sort.tile[place.row];
    Lines x, w;
    if (tile.expert < 0) return;
    int64_t deep = dot_lines<TRANSPOSED>(d, tile, &x, &w) ? d.deep : 0;
    plain_tile<false, !TRANSPOSED>(x, w, 0, d.column + place.column * MATRIX_TILE, deep,
                                   [&](int64_t row, int64_t column, float value) {
                                       int64_t to = dot_place(d, tile, row, column);
                                       if (to >= 0) gpu_put(d.y, to, value);
                                   });
}

/* Adds up the products of a token's choices, of the columns that were just made. */
__global__ void __launch_bounds__(GPU_BLOCK) sum_choices(ExpertDot d, GpuArray out) {
    int64_t token = blockIdx.x;
    for (int64_t i = threadIdx.x; i < d.columns; i += GPU_BLOCK) {
        const float *product = (const float *)d.y.data + token * d.choices * d.y_width + i;
        float sum = 0;
        for (int64_t c = 0; c < d.choices; c++) sum += product[c * d.y_width];
        gpu_put(out, token * d.n + d.column + i, sum);
    }
}

static ExpertDot expert_dot_of(const MxKernelCall *call) {
    const MxExpertDotAttr *attr = (const MxExpertDotAttr *)call->attr;
    MxShape x = call->in_type[0].shape, ids = call->in_type[1].shape;
    constexpr int64_t MOST_SUMMED = 1 << 26; /* floats of scratch */
    ExpertDot d = {};
    d.sort = expert_sort_of(call, call->in_type[2].shape.dim[0], attr->first, MATRIX_TILE);
    d.deep = x.dim[x.rank - 1];
    d.n = call->in_type[2].shape.dim[attr->transposed ? 1 : 2];
    d.choices = attr->sums ? ids.dim[ids.rank - 1] : 1;
    d.y_width = d.n;
    if (d.choices > 1) {
        int64_t fit = MOST_SUMMED / gpu_max(1, d.sort.places.n) / MATRIX_TILE * MATRIX_TILE;
        d.y_width = gpu_min(d.n, gpu_max(MATRIX_TILE, fit));
    }
    return d;
}

static size_t dot_carve(ExpertDot *d, void *scratch) {
    char *begin = (char *)scratch;
    expert_sort_carve(&d->sort, &scratch);
    int64_t summed = d->choices > 1 ? d->sort.places.n * d->y_width : 0;
    d->y = GpuArray{gpu_carve(&scratch, sizeof(float) * (size_t)summed), MX_F32};
    return (size_t)((char *)scratch - begin);
}

static size_t dot_scratch(const MxDevice *, const MxKernelCall *call) {
    static char origin[1]; /* offsets alone matter */
    ExpertDot d = expert_dot_of(call);
    return dot_carve(&d, origin);
}

template <bool TRANSPOSED> static void dot_columns(const MxDevice *device, const ExpertDot &d) {
    unsigned blocks = (unsigned)(d.sort.n_tiles * gpu_blocks(d.columns, MATRIX_TILE));
    if (suits_mma(d.x.dtype, d.deep, d.n))
        gpu_launch(device, dot_mma<TRANSPOSED>, blocks, MATRIX_THREADS,
                   mma_shared<false, !TRANSPOSED>(), d);
    else
        gpu_launch(device, dot_plain<TRANSPOSED>, blocks, MATRIX_THREADS, 0, d);
}

static void dot_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    ExpertDot d = expert_dot_of(call);
    GpuArray out = gpu_out(call, 0);
    dot_carve(&d, call->scratch);
    d.sort.places.ids = (const int32_t *)call->in[1];
    d.rows = expert_sort_rows(d.sort, call, 0);
    d.x = gpu_in(call, 0);
    d.w = gpu_in(call, 2);
    if (d.choices <= 1) d.y = out;
    expert_sort_run(device, d.sort);
    for (; d.column < d.n; d.column += d.y_width) {
        d.columns = gpu_min(d.y_width, d.n - d.column);
        d.y_column = d.column;
        if (((const MxExpertDotAttr *)call->attr)->transposed)
            dot_columns<true>(device, d);
        else
            dot_columns<false>(device, d);
        if (d.choices > 1)
            gpu_launch(device, sum_choices, (unsigned)(d.sort.places.n / d.choices), GPU_BLOCK, 0,
                       d, out);
    }
}

GPU_KERNEL(expert_dot, .scratch = dot_scratch, .run = dot_run);

/* ---- expert_dw: a block a tile of an expert's matrix, over all its rows */

typedef struct ExpertDw {
    ExpertSort sort;
    GpuArray x, y, out;
    const int32_t *rows_x, *rows_y; /* of x and of y, in the order of experts */
    int64_t d, n, row_tiles, column_tiles;
    bool adds;
} ExpertDw;

typedef struct DwTile {
    Lines x, y;
    int64_t expert, row, column;
} DwTile;

__device__ static inline DwTile dw_tile(const ExpertDw &d) {
    int64_t each = d.row_tiles * d.column_tiles, expert = blockIdx.x / each;
    TilePlace place = tile_place(blockIdx.x % each, d.row_tiles, d.column_tiles);
    int64_t first = d.sort.start[expert], rows = d.sort.start[expert + 1] - first;
    return DwTile{Lines{d.x, 0, rows, d.d, d.rows_x + first},
                  Lines{d.y, 0, rows, d.n, d.rows_y + first}, expert, place.row * MATRIX_TILE,
                  place.column * MATRIX_TILE};
}

__global__ void __launch_bounds__(MATRIX_THREADS, 2) dw_mma(ExpertDw d) {
    DwTile tile = dw_tile(d);
    mma_tile<true, true>(tile.x, tile.y, tile.row, tile.column, tile.x.n,
                         [&](int64_t row, int64_t column, const float value[2]) {
                             if (row >= d.d || column >= d.n) return;
                             int64_t to = (tile.expert * d.d + row) * d.n + column;
                             gpu_give(d.out, to, value[0], d.adds);
                             gpu_give(d.out, to + 1, value[1], d.adds);
                         });
}

__global__ void __launch_bounds__(MATRIX_THREADS) dw_plain(ExpertDw d) {
    DwTile tile = dw_tile(d);
    plain_tile<true, true>(tile.x, tile.y, tile.row, tile.column, tile.x.n,
                           [&](int64_t row, int64_t column, float value) {
                               if (row >= d.d || column >= d.n) return;
                               gpu_give(d.out, (tile.expert * d.d + row) * d.n + column, value,
                                        d.adds);
                           });
}

static ExpertDw expert_dw_of(const MxKernelCall *call) {
    MxShape out = call->out_type[0].shape;
    ExpertDw d = {};
    int64_t first = ((const MxExpertDwAttr *)call->attr)->first;
    d.sort = expert_sort_of(call, out.dim[0], first, MATRIX_TILE);
    d.d = out.dim[1];
    d.n = out.dim[2];
    d.row_tiles = gpu_blocks(d.d, MATRIX_TILE);
    d.column_tiles = gpu_blocks(d.n, MATRIX_TILE);
    return d;
}

static size_t dw_carve(ExpertDw *d, void *scratch) {
    char *begin = (char *)scratch;
    expert_sort_carve(&d->sort, &scratch);
    return (size_t)((char *)scratch - begin);
}

static size_t dw_scratch(const MxDevice *, const MxKernelCall *call) {
    static char origin[1]; /* offsets alone matter */
    ExpertDw d = expert_dw_of(call);
    return dw_carve(&d, origin);
}

static void dw_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    ExpertDw d = expert_dw_of(call);
    dw_carve(&d, call->scratch);
    d.sort.places.ids = (const int32_t *)call->in[1];
    d.rows_x = expert_sort_rows(d.sort, call, 0);
    d.rows_y = expert_sort_rows(d.sort, call, 2);
    d.x = gpu_in(call, 0);
    d.y = gpu_in(call, 2);
    d.out = gpu_out(call, 0);
    d.adds = call->accumulate & 1;
    expert_sort_run(device, d.sort);
    unsigned blocks = (unsigned)(d.sort.places.n_keys * d.row_tiles * d.column_tiles);
    if (suits_mma(d.x.dtype, d.d, d.n))
        gpu_launch(device, dw_mma, blocks, MATRIX_THREADS, mma_shared<true, true>(), d);
    else
        gpu_launch(device, dw_plain, blocks, MATRIX_THREADS, 0, d);
}

GPU_KERNEL(expert_dw, .scratch = dw_scratch, .run = dw_run);

} // namespace gpu_expert
