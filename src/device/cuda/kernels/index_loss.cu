/* index_loss.cu — the distance of an indexer's scores from those of attention, and its gradient. A
 * block makes rows of all keys for some queries; the gradient keeps what flows to scores for many
 * queries, from which blocks make that of queries and weights, one query each, and that of keys, a
 * tile of them each. */
#include "index.cuh"

namespace gpu_index_loss {

static constexpr int QUERIES = 32;               /* that a block takes at a time */
static constexpr int64_t ROW_ELEMENTS = 1 << 26; /* of rows that the gradient keeps */
static constexpr float TINY = 1e-8f;             /* MaxText's EPS */

enum { Q = INDEX_SEGMENTS + 1, K, CHOSEN };
enum { DQ = INDEX_Q, DK = INDEX_K, DW = INDEX_W }; /* outputs of the gradient */

typedef struct Loss {
    Index x;
    GpuArray q, k; /* of attention */
    int64_t heads, key_heads, width, padded;
    float scale, factor;
    int64_t step;  /* floats of a row: keys in whole tiles */
    char *scratch; /* of each block: rows, and tiles that shared memory has no room for */
    size_t block_bytes;
    double *sums; /* [pieces] of the loss */
    /* Of the gradient: queries [from, from + n) of sequence b */
    int64_t b, from, n;
    float *rows;  /* [n][step] what flows to scores; NULL = it is the loss that is made */
    float *sum_k; /* [keys][width] so far */
    const float *dy;
    GpuArray dq, dk; /* data NULL = nobody wants it, like dw */
    float *dw;
} Loss;

typedef struct Work {
    IndexTiles index;
    Tile q, k;              /* of attention */
    float *wanted, *scores; /* [QUERIES][step] what attention does, and the index */
} Work;

__host__ __device__ static Work lay_out(const Loss &l, TileRoom *room) {
    Work w;
    w.index = index_lay_out(l.x, room);
    w.q = tile_take(room, QUERIES, l.padded);
    w.k = tile_take(room, INDEX_KEYS, l.padded);
    room->shared_most = 0;
    w.wanted = tile_take(room, QUERIES, l.step).x;
    w.scores = tile_take(room, QUERIES, l.step).x;
    return w;
}

/* Queries [t, t + n) of sequence b; keys in whole tiles that some of them see. */
typedef struct Piece {
    int64_t b, t, n, reach;
} Piece;

__device__ static Piece piece_of(const Loss &l, int64_t b, int64_t t, int64_t end) {
    int64_t n = gpu_min(QUERIES, end - t), reach = l.x.first + t + n;
    return Piece{b, t, n, (reach + INDEX_KEYS - 1) / INDEX_KEYS * INDEX_KEYS};
}

/* ---- probabilities */

/* Scores times a factor to their softmax over the keys that query t sees, by a warp. */
__device__ static void soften(const Loss &l, const Piece &p, int64_t t, float factor, float *row) {
    int lane = (int)threadIdx.x % GPU_WARP;
    float most = -INFINITY, sum = 0.0f;
    for (int64_t s = lane; s < p.reach; s += GPU_WARP) {
        row[s] = index_sees(l.x, p.b, t, s) ? row[s] * factor : -INFINITY;
        most = row[s] > most ? row[s] : most;
    }
    most = gpu_warp_max(most);
    for (int64_t s = lane; s < p.reach; s += GPU_WARP) {
        row[s] = row[s] > -INFINITY ? expf(row[s] - most) : 0.0f;
        sum += row[s];
    }
    float inverse = 1.0f / gpu_warp_sum(sum);
    for (int64_t s = lane; s < p.reach; s += GPU_WARP) row[s] *= inverse;
}

/* One head of attention: products to w.scores. Ends with a barrier. */
__device__ static void multiply_head(const Loss &l, const Piece &p, int64_t head, const Work &w) {
    int64_t key_head = head / (l.heads / l.key_heads), H = l.width;
    index_load(l.q, ((p.b * l.x.time + p.t) * l.heads + head) * H, l.heads * H, p.n, H, QUERIES,
               w.q);
    for (int64_t s = 0; s < p.reach; s += INDEX_KEYS) {
        index_load(l.k, ((p.b * l.x.keys + s) * l.key_heads + key_head) * H, l.key_heads * H,
                   gpu_min(INDEX_KEYS, l.x.keys - s), H, INDEX_KEYS, w.k);
        __syncthreads();
        tile_product<false, true>(
            w.q, w.k, QUERIES, INDEX_KEYS, l.padded, nullptr,
            [&](int64_t r, int64_t j, float sum) { w.scores[r * l.step + s + j] = sum; });
        __syncthreads();
    }
}

/* w.wanted, the mean over heads of what they attend to, and w.scores, the index's softmax. Each row
 * is a warp's. */
__device__ static void make_rows(const Loss &l, const Piece &p, const Work &w) {
    constexpr int WARPS = GPU_BLOCK / GPU_WARP;
    int lane = (int)threadIdx.x % GPU_WARP, warp = (int)threadIdx.x / GPU_WARP;
    for (int64_t head = 0; head < l.heads; head++) {
        multiply_head(l, p, head, w);
        for (int64_t r = warp; r < p.n; r += WARPS) {
            float *row = w.scores + r * l.step, *wanted = w.wanted + r * l.step;
            soften(l, p, p.t + r, l.scale, row);
            for (int64_t s = lane; s < p.reach; s += GPU_WARP)
                wanted[s] = (head ? wanted[s] : 0.0f) + row[s];
        }
        __syncthreads();
    }
    for (int64_t r = 0; r < p.n; r++)
        index_scores(l.x, p.b * l.x.time + p.t + r, p.b, l.x.first + p.t + r + 1, w.index,
                     w.scores + r * l.step);
    for (int64_t r = warp; r < p.n; r += WARPS) {
        float *wanted = w.wanted + r * l.step, sum = 0.0f;
        for (int64_t s = lane; s < p.reach; s += GPU_WARP) sum += wanted[s];
        float inverse = 1.0f / (gpu_warp_sum(sum) + TINY);
        for (int64_t s = lane; s < p.reach; s += GPU_WARP) wanted[s] *= inverse;
        soften(l, p, p.t + r, 1.0f, w.scores + r * l.step);
    }
    __syncthreads();
}

/* ---- the loss */

__device__ static double divergence(const Loss &l, const Piece &p, const Work &w) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < p.n * p.reach; i += GPU_BLOCK) {
        int64_t at = i / p.reach * l.step + i % p.reach;
        float wanted = w.wanted[at];
        if (wanted > 0.0f)
            sum += (double)(wanted * (logf(wanted + TINY) - logf(w.scores[at] + TINY)));
    }
    return gpu_block_sum(sum);
}

/* The cotangents of a row of scores, through the softmax, by a warp. */
__device__ static void score_gradient(const Piece &p, float factor, const float *wanted,
                                      const float *made, float *to) {
    int lane = (int)threadIdx.x % GPU_WARP;
    float mean = 0.0f;
    for (int64_t s = lane; s < p.reach; s += GPU_WARP) {
        to[s] = -wanted[s] / (made[s] + TINY);
        mean += made[s] * to[s];
    }
    mean = gpu_warp_sum(mean);
    for (int64_t s = lane; s < p.reach; s += GPU_WARP) to[s] = factor * made[s] * (to[s] - mean);
}

/* Of all queries their part of the loss, or of some what flows to their scores. */
__global__ void __launch_bounds__(GPU_BLOCK) rows_kernel(Loss l) {
    TileRoom room = {(char *)gpu_dynamic<float>(), l.scratch + blockIdx.x * l.block_bytes, 0, 0,
                     INDEX_SHARED};
    Work w = lay_out(l, &room);
    int64_t a_sequence = (l.n + QUERIES - 1) / QUERIES;
    int64_t n = l.rows ? a_sequence : a_sequence * l.x.batch;
    for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
        int64_t t = l.from + i % a_sequence * QUERIES;
        Piece p = piece_of(l, l.rows ? l.b : i / a_sequence, t, l.from + l.n);
        make_rows(l, p, w);
        if (l.rows) {
            for (int64_t r = threadIdx.x / GPU_WARP; r < p.n; r += GPU_BLOCK / GPU_WARP)
                score_gradient(p, l.factor * *l.dy, w.wanted + r * l.step, w.scores + r * l.step,
                               l.rows + (t - l.from + r) * l.step);
        } else {
            double sum = divergence(l, p, w);
            if (threadIdx.x == 0) l.sums[i] = sum;
        }
        __syncthreads();
    }
}

__global__ void __launch_bounds__(GPU_BLOCK)
    sum_kernel(Loss l, int64_t n, double factor, float *to) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += GPU_BLOCK) sum += l.sums[i];
    sum = gpu_block_sum(sum);
    if (threadIdx.x == 0) *to = (float)(factor * sum);
}

/* ---- the gradient */

/* Products of heads from `head` on of query t with the keys from s on become their cotangents; dw
 * adds up what weights get, NULL = not wanted. */
__device__ static void products_gradient(const Loss &l, int64_t t, int64_t head, int64_t s,
                                         const IndexTiles &tiles, float *dw) {
    const Index &x = l.x;
    int lane = (int)threadIdx.x % GPU_WARP;
    int64_t rows = index_rows(x, head);
    const float *ds = l.rows + (t - l.from) * l.step + s;
    index_products(x, l.b, s, rows, tiles);
    for (int64_t n = threadIdx.x / GPU_WARP; n < rows; n += GPU_BLOCK / GPU_WARP) {
        bool is_there = head + n < x.heads;
        float weight = is_there ? x.w[(l.b * x.time + t) * x.heads + head + n] : 0.0f, sum = 0.0f;
        for (int64_t j = lane; j < INDEX_KEYS; j += GPU_WARP) {
            float *product = &tiles.products.x[n * tiles.products.step + j];
            float above = *product > 0.0f ? *product : 0.0f;
            sum += ds[j] * above;
            *product = *product > 0.0f ? weight * ds[j] : 0.0f;
        }
        sum = gpu_warp_sum(sum);
        if (dw && is_there && !lane) dw[n] += sum;
    }
    __syncthreads();
}

/* A block has a query: all its heads, a tile of them at a time. */
__global__ void __launch_bounds__(GPU_BLOCK) queries_kernel(Loss l) {
    __shared__ float dw[INDEX_ROWS];
    const Index &x = l.x;
    TileRoom room = {(char *)gpu_dynamic<float>(), l.scratch + blockIdx.x * l.block_bytes, 0, 0,
                     INDEX_SHARED};
    IndexTiles tiles = index_lay_out(x, &room);
    Tile dq = tile_take(&room, INDEX_ROWS, x.padded);
    for (int64_t t = l.from + blockIdx.x; t < l.from + l.n; t += gridDim.x)
        for (int64_t head = 0; head < x.heads; head += INDEX_ROWS) {
            int64_t n = gpu_min(INDEX_ROWS, x.heads - head), row = l.b * x.time + t;
            index_load_heads(x, row, head, tiles);
            for (int64_t i = threadIdx.x; i < INDEX_ROWS * dq.step; i += GPU_BLOCK) dq.x[i] = 0.0f;
            if (threadIdx.x < INDEX_ROWS) dw[threadIdx.x] = 0.0f;
            for (int64_t s = 0; s <= x.first + t; s += INDEX_KEYS) {
                products_gradient(l, t, head, s, tiles, dw);
                tile_product<false, false>(
                    tiles.products, tiles.k, index_rows(x, head), x.padded, INDEX_KEYS, nullptr,
                    [&](int64_t i, int64_t h, float sum) { dq.x[i * dq.step + h] += sum; });
                __syncthreads();
            }
            for (int64_t i = threadIdx.x; l.dq.data && i < n * x.width; i += GPU_BLOCK)
                gpu_put(l.dq, (row * x.heads + head) * x.width + i,
                        dq.x[i / x.width * dq.step + i % x.width]);
            if (l.dw && threadIdx.x < n) l.dw[row * x.heads + head + threadIdx.x] = dw[threadIdx.x];
            __syncthreads();
        }
}

/* A block has a tile of keys: what the rows of queries give them, added to what earlier ones gave.
 */
__global__ void __launch_bounds__(GPU_BLOCK) keys_kernel(Loss l) {
    const Index &x = l.x;
    TileRoom room = {(char *)gpu_dynamic<float>(), l.scratch + blockIdx.x * l.block_bytes, 0, 0,
                     INDEX_SHARED};
    IndexTiles tiles = index_lay_out(x, &room);
    Tile dk = tile_take(&room, INDEX_KEYS, x.padded);
    for (int64_t s = (int64_t)blockIdx.x * INDEX_KEYS; s < x.keys;
         s += (int64_t)gridDim.x * INDEX_KEYS) {
        for (int64_t i = threadIdx.x; i < INDEX_KEYS * dk.step; i += GPU_BLOCK) dk.x[i] = 0.0f;
        for (int64_t t = gpu_max(l.from, s - x.first); t < l.from + l.n; t++)
            for (int64_t head = 0; head < x.heads; head += INDEX_ROWS) {
                index_load_heads(x, l.b * x.time + t, head, tiles);
                products_gradient(l, t, head, s, tiles, nullptr);
                tile_product<true, false>(
                    tiles.products, tiles.q, INDEX_KEYS, x.padded, index_rows(x, head), nullptr,
                    [&](int64_t j, int64_t h, float sum) { dk.x[j * dk.step + h] += sum; });
                __syncthreads();
            }
        __syncthreads();
        int64_t n = gpu_min(INDEX_KEYS, x.keys - s);
        for (int64_t i = threadIdx.x; i < n * x.width; i += GPU_BLOCK) {
            float *sum = &l.sum_k[s * x.width + i];
            *sum = (l.from ? *sum : 0.0f) + dk.x[i / x.width * dk.step + i % x.width];
            if (l.from + l.n == x.time) gpu_put(l.dk, (l.b * x.keys + s) * x.width + i, *sum);
        }
        __syncthreads();
    }
}

/* ---- */

static Loss loss_of(const MxKernelCall *call, bool is_gradient) {
    const MxIndexLossAttr *attr = (const MxIndexLossAttr *)call->attr;
    MxShape q = call->in_type[Q].shape, k = call->in_type[K].shape;
    Loss l = {};
    l.x = index_of(call);
    l.x.first = attr->first_query;
    l.heads = q.dim[2], l.key_heads = k.dim[2], l.width = q.dim[3];
    l.padded = tile_padded(l.width);
    l.scale = (float)attr->scale, l.factor = (float)attr->factor;
    l.step = (l.x.keys + INDEX_KEYS - 1) / INDEX_KEYS * INDEX_KEYS;
    l.n = l.x.time;
    if (is_gradient) l.n = gpu_min(l.n, gpu_max(QUERIES, ROW_ELEMENTS / gpu_max(1, l.step)));
    if (!call->in) return l;
    l.q = gpu_in(call, Q);
    l.k = gpu_in(call, K);
    if (call->n_in > CHOSEN + is_gradient) l.x.chosen = (const int32_t *)call->in[CHOSEN];
    return l;
}

/* The most of all kernels. */
static TileRoom room_of(const Loss &l) {
    TileRoom room = {nullptr, nullptr, 0, 0, INDEX_SHARED}, more = room;
    lay_out(l, &room);
    index_lay_out(l.x, &more);
    tile_take(&more, INDEX_ROWS, l.x.padded);
    if (more.shared_used > room.shared_used) room.shared_used = more.shared_used;
    if (more.scratch_used > room.scratch_used) room.scratch_used = more.scratch_used;
    return room;
}

static int64_t most_blocks(const MxDevice *device) {
    return gpu_of(device)->n_processors;
}

static int64_t pieces_of(const Loss &l) {
    return l.x.batch * ((l.x.time + QUERIES - 1) / QUERIES);
}

static size_t sums_bytes(const Loss &l) {
    return gpu_padded((size_t)pieces_of(l) * sizeof(double));
}

static MxKernelCall types_of(const MxKernelCall *call) {
    MxKernelCall types = *call;
    types.in = nullptr;
    return types;
}

static size_t index_loss_scratch(const MxDevice *device, const MxKernelCall *call) {
    MxKernelCall types = types_of(call);
    Loss l = loss_of(&types, false);
    return sums_bytes(l) + room_of(l).scratch_used * (size_t)most_blocks(device);
}

static void index_loss_run(const MxDevice *device, const MxKernelCall *call) {
    Loss l = loss_of(call, false);
    TileRoom room = room_of(l);
    void *scratch = call->scratch;
    if (!call->out[0]) return;
    l.sums = (double *)gpu_carve(&scratch, sums_bytes(l));
    l.scratch = (char *)scratch;
    l.block_bytes = room.scratch_used;
    gpu_launch(device, rows_kernel, (unsigned)gpu_min(pieces_of(l), most_blocks(device)), GPU_BLOCK,
               room.shared_used, l);
    gpu_launch(device, sum_kernel, 1, GPU_BLOCK, 0, l, pieces_of(l),
               ((const MxIndexLossAttr *)call->attr)->factor, (float *)call->out[0]);
}
GPU_KERNEL(index_loss, .scratch = index_loss_scratch, .run = index_loss_run);

static size_t rows_bytes(const Loss &l) {
    return gpu_padded((size_t)(l.n * l.step) * sizeof(float));
}

static size_t keys_bytes(const Loss &l) {
    return gpu_padded((size_t)(l.x.keys * l.x.width) * sizeof(float));
}

static size_t index_loss_grad_scratch(const MxDevice *device, const MxKernelCall *call) {
    MxKernelCall types = types_of(call);
    Loss l = loss_of(&types, true);
    return rows_bytes(l) + keys_bytes(l) + room_of(l).scratch_used * (size_t)most_blocks(device);
}

/* Some queries of a sequence. */
static void gradient_of_rows(const MxDevice *device, const Loss &l, size_t shared) {
    int64_t most = most_blocks(device), pieces = (l.n + QUERIES - 1) / QUERIES;
    int64_t tiles = (l.x.keys + INDEX_KEYS - 1) / INDEX_KEYS;
    gpu_launch(device, rows_kernel, (unsigned)gpu_min(pieces, most), GPU_BLOCK, shared, l);
    if (l.dq.data || l.dw)
        gpu_launch(device, queries_kernel, (unsigned)gpu_min(l.n, most), GPU_BLOCK, shared, l);
    if (l.dk.data)
        gpu_launch(device, keys_kernel, (unsigned)gpu_min(tiles, most), GPU_BLOCK, shared, l);
}

static void index_loss_grad_run(const MxDevice *device, const MxKernelCall *call) {
    Loss l = loss_of(call, true);
    TileRoom room = room_of(l);
    int64_t a_time = l.n;
    void *scratch = call->scratch;
    l.rows = (float *)gpu_carve(&scratch, rows_bytes(l));
    l.sum_k = (float *)gpu_carve(&scratch, keys_bytes(l));
    l.scratch = (char *)scratch;
    l.block_bytes = room.scratch_used;
    l.dy = (const float *)call->in[call->n_in - 1];
    l.dq = gpu_out(call, DQ);
    l.dk = gpu_out(call, DK);
    l.dw = (float *)call->out[DW];
    for (l.b = 0; l.b < l.x.batch; l.b++)
        for (l.from = 0; l.from < l.x.time; l.from += l.n) {
            l.n = gpu_min(a_time, l.x.time - l.from);
            gradient_of_rows(device, l, room.shared_used);
        }
}
GPU_KERNEL(index_loss_grad, .scratch = index_loss_grad_scratch, .run = index_loss_grad_run);

} // namespace gpu_index_loss
