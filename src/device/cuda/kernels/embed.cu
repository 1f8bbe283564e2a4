/* embed.cu — rows of a table, and rows put among others; and the gradients of both, which add up
 * rows of one name in the order of the tokens.
 *
 * For that the tokens of every name are listed in their order, by integers alone: each token's rank
 * among those of its name in its tile; then, tile by tile, its rank among all, which leaves the
 * number of tokens of each name; the sums of those are where the names' lists begin. */
#include "device/cuda/gpu.cuh"

namespace gpu_embed {

/* ---- copies of rows */

/* Elements [at, at + GPU_PACK) of a row that starts at element `row`; rows whose width is no
 * multiple of a pack are not aligned. */
__device__ static inline void read_pack(GpuArray x, int64_t row, int64_t at, int64_t width,
                                        float *to) {
    if (width % GPU_PACK == 0)
        gpu_get_pack(x, row + at, to);
    else
        for (int j = 0; j < GPU_PACK; j++) to[j] = at + j < width ? gpu_get(x, row + at + j) : 0;
}
__device__ static inline void write_pack(GpuArray x, int64_t row, int64_t at, int64_t width,
                                         const float *from) {
    if (width % GPU_PACK == 0)
        gpu_put_pack(x, row + at, from);
    else
        for (int j = 0; j < GPU_PACK && at + j < width; j++) gpu_put(x, row + at + j, from[j]);
}

/* By a block: a row of another, or zeros if there is none (from < 0). */
__device__ static void copy_row(GpuArray x, int64_t from, GpuArray y, int64_t to, int64_t width) {
    for (int64_t at = threadIdx.x * GPU_PACK; at < width; at += blockDim.x * GPU_PACK) {
        float pack[GPU_PACK] = {};
        if (from >= 0) read_pack(x, from * width, at, width, pack);
        write_pack(y, to * width, at, width, pack);
    }
}

static unsigned threads_of(int64_t width, unsigned most) {
    unsigned n = GPU_WARP;
    while (n < most && (int64_t)n * GPU_PACK < width) n *= 2;
    return n;
}

__global__ void __launch_bounds__(GPU_BLOCK)
    embed_kernel(GpuArray table, const int32_t *ids, GpuArray out, int64_t width, int64_t vocab,
                 int64_t n_ids, int64_t first) {
    int64_t token = blockIdx.x, id = ids[token], row = id - first;
    GPU_ASSERT(id >= -1 && id < n_ids);
    copy_row(table, row >= 0 && row < vocab ? row : -1, out, token, width);
}

static void embed_run(const MxDevice *device, const MxKernelCall *call) {
    const MxEmbedAttr *attr = (const MxEmbedAttr *)call->attr;
    int64_t vocab = call->in_type[0].shape.dim[0], width = call->in_type[0].shape.dim[1];
    if (call->out[0])
        gpu_launch(device, embed_kernel, (unsigned)mx_shape_count(call->in_type[1].shape),
                   threads_of(width, GPU_BLOCK), 0, gpu_in(call, 0), (const int32_t *)call->in[1],
                   gpu_out(call, 0), width, vocab, vocab * gpu_max(1, attr->n_parts),
                   attr->first_id);
}
GPU_KERNEL(embed, .run = embed_run);

__global__ void __launch_bounds__(GPU_BLOCK)
    merge_kernel(GpuArray x, GpuArray rows, const int32_t *index, GpuArray out, int64_t width,
                 int64_t length, int64_t n) {
    int64_t token = blockIdx.x, at = index[token];
    GPU_ASSERT(at >= 0 && at <= n);
    if (at)
        copy_row(rows, token / length * n + at - 1, out, token, width);
    else
        copy_row(x, token, out, token, width);
}

static void merge_run(const MxDevice *device, const MxKernelCall *call) {
    MxShape x = call->in_type[0].shape;
    if (call->out[0])
        gpu_launch(device, merge_kernel, (unsigned)(x.dim[0] * x.dim[1]),
                   threads_of(x.dim[2], GPU_BLOCK), 0, gpu_in(call, 0), gpu_in(call, 1),
                   (const int32_t *)call->in[2], gpu_out(call, 0), x.dim[2], x.dim[1],
                   call->in_type[1].shape.dim[1]);
}
GPU_KERNEL(merge, .run = merge_run);

/* ---- lists of the tokens of every name */

static constexpr int TILE = 1024, STRETCH = 16; /* tokens; names that a thread counts at once */

/* EmbedNames of tokens: ids from `first` on, `each` of them, and others in every sequence. */
typedef struct EmbedNames {
    const int32_t *ids;
    int64_t n, first, each, length, count; /* tokens; of a sequence; names in all */
} EmbedNames;

__device__ static inline int32_t name_of(const EmbedNames &names, int64_t token) {
    int64_t at = names.ids[token] - names.first;
    if (at < 0 || at >= names.each) return -1;
    return (int32_t)(token / names.length * names.each + at);
}

/* rank [n]; start [names + 1]: where a name's tokens begin in order [n]. */
typedef struct EmbedLists {
    int32_t *rank, *start, *order, *stretches;
} EmbedLists;

/* A token's rank in its tile; bit 0: whether it is the last of its name there. */
__global__ void __launch_bounds__(TILE) names_rank_kernel(EmbedNames names, int32_t *rank) {
    __shared__ int32_t tile[TILE];
    int64_t token = blockIdx.x * (int64_t)TILE + threadIdx.x;
    int32_t own = token < names.n ? name_of(names, token) : -1;
    int before = 0, after = 0;
    tile[threadIdx.x] = own;
    __syncthreads();
    if (own < 0) return;
    for (int i = 0; i < TILE; i++) {
        bool is_same = tile[i] == own;
        before += is_same && i < (int)threadIdx.x;
        after += is_same && i > (int)threadIdx.x;
    }
    rank[token] = 2 * before + !after;
}

/* One block, tile by tile: `counts` is how many tokens of a name earlier tiles have. */
__global__ void __launch_bounds__(TILE)
    join_ranks_kernel(EmbedNames names, int32_t *rank, int32_t *counts) {
    for (int64_t at = 0; at < names.n; at += TILE) {
        int64_t token = at + threadIdx.x;
        int32_t name = token < names.n ? name_of(names, token) : -1;
        int32_t own = name < 0 ? 0 : rank[token], all = name < 0 ? 0 : counts[name] + own / 2;
        __syncthreads();
        if (name >= 0) rank[token] = all;
        if (own & 1) counts[name] = all + 1;
        __syncthreads();
    }
}

/* Turns numbers into the sums of those before them, in three steps: stretches that a thread adds
 * up, sums of stretches by one block, and stretches again. */
__global__ void __launch_bounds__(GPU_BLOCK)
    add_stretches_kernel(const int32_t *counts, int64_t n, int32_t *stretches) {
    int64_t stretch = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    int32_t sum = 0;
    if (stretch * STRETCH >= n) return;
    for (int64_t i = stretch * STRETCH; i < n && i < (stretch + 1) * STRETCH; i++) sum += counts[i];
    stretches[stretch] = sum;
}

/* The sum of x of all threads of a block before this one; *all: of all of them. */
__device__ static int32_t sum_before(int32_t x, int32_t *all) {
    __shared__ int32_t part[GPU_WARP];
    int lane = (int)threadIdx.x % GPU_WARP, warp = (int)threadIdx.x / GPU_WARP;
    int32_t sum = x, before = 0;
    for (int by = 1; by < GPU_WARP; by *= 2) {
        int32_t other = __shfl_up_sync(0xffffffffu, sum, (unsigned)by);
        if (lane >= by) sum += other;
    }
    __syncthreads();
    if (lane == GPU_WARP - 1) part[warp] = sum;
    __syncthreads();
    *all = 0;
    for (int i = 0; i < (int)blockDim.x / GPU_WARP; i++) {
        if (i < warp) before += part[i];
        *all += part[i];
    }
    return before + sum - x;
}

__global__ void __launch_bounds__(TILE) scan_stretches_kernel(int32_t *stretches, int64_t n) {
    int32_t base = 0, all;
    for (int64_t at = 0; at < n; at += TILE) {
        int64_t i = at + threadIdx.x;
        int32_t before = sum_before(i < n ? stretches[i] : 0, &all);
        if (i < n) stretches[i] = base + before;
        base += all;
    }
}

__global__ void __launch_bounds__(GPU_BLOCK)
    spread_stretches_kernel(int32_t *counts, int64_t n, const int32_t *stretches) {
    int64_t stretch = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (stretch * STRETCH >= n) return;
    int32_t sum = stretches[stretch];
    for (int64_t i = stretch * STRETCH; i < n && i < (stretch + 1) * STRETCH; i++) {
        int32_t own = counts[i];
        counts[i] = sum;
        sum += own;
    }
}

__global__ void __launch_bounds__(GPU_BLOCK)
    names_order_kernel(EmbedNames names, EmbedLists lists) {
    int64_t token = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    int32_t name = token < names.n ? name_of(names, token) : -1;
    if (name >= 0) lists.order[lists.start[name] + lists.rank[token]] = (int32_t)token;
}

static int64_t n_stretches(const EmbedNames &names) {
    return (names.count + 1 + STRETCH - 1) / STRETCH;
}

static size_t carve(const EmbedNames &names, void *scratch, EmbedLists *lists) {
    char *start = (char *)scratch;
    size_t each = sizeof(int32_t);
    lists->rank = (int32_t *)gpu_carve(&scratch, (size_t)names.n * each);
    lists->order = (int32_t *)gpu_carve(&scratch, (size_t)names.n * each);
    lists->start = (int32_t *)gpu_carve(&scratch, (size_t)(names.count + 1) * each);
    lists->stretches = (int32_t *)gpu_carve(&scratch, (size_t)n_stretches(names) * each);
    return (size_t)((char *)scratch - start);
}

static void make_lists(const MxDevice *device, const EmbedNames &names, const EmbedLists &lists) {
    int64_t n = names.count + 1, stretches = n_stretches(names);
    MX_ASSERT(names.n < INT32_MAX / 2 && names.count < INT32_MAX);
    gpu_runtime_zero(gpu_of(device), lists.start, (size_t)n * sizeof(int32_t));
    gpu_launch(device, names_rank_kernel, gpu_blocks(names.n, TILE), TILE, 0, names, lists.rank);
    gpu_launch(device, join_ranks_kernel, 1, TILE, 0, names, lists.rank, lists.start);
    gpu_launch(device, add_stretches_kernel, gpu_blocks(stretches), GPU_BLOCK, 0, lists.start, n,
               lists.stretches);
    gpu_launch(device, scan_stretches_kernel, 1, TILE, 0, lists.stretches, stretches);
    gpu_launch(device, spread_stretches_kernel, gpu_blocks(stretches), GPU_BLOCK, 0, lists.start, n,
               lists.stretches);
    gpu_launch(device, names_order_kernel, gpu_blocks(names.n), GPU_BLOCK, 0, names, lists);
}

/* ---- sums of the rows of every name */

static constexpr int AT_ONCE = 8; /* vectors that a thread is loading */

/* UNITS: vectors of 16 bytes in a pack, so that loads need not wait to be told their dtype; 0 =
 * rows are not aligned. Rows of tokens [begin, end) are added in their order: those of one name may
 * be thousands, as padding is. */
template <int UNITS>
__device__ static void add_rows(GpuArray dy, const int32_t *order, int32_t begin, int32_t end,
                                int64_t at, int64_t width, float *sum) {
    constexpr int ROWS = UNITS ? AT_ONCE / UNITS : 1;
    const int64_t bytes = UNITS == 2 ? sizeof(float) : sizeof(MxBf16);
    int32_t i = begin;
    for (; UNITS && i + ROWS <= end; i += ROWS) {
        uint4 loaded[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            int64_t from = order[i + k / (AT_ONCE / ROWS)] * width + at;
            loaded[k] =
                ((const uint4 *)((const char *)dy.data + from * bytes))[k % (AT_ONCE / ROWS)];
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const uint32_t word[] = {loaded[k].x, loaded[k].y, loaded[k].z, loaded[k].w};
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (UNITS == 2) {
                    sum[k % 2 * 4 + j] += __uint_as_float(word[j]);
                } else {
                    sum[2 * j] += __uint_as_float(word[j] << 16);
                    sum[2 * j + 1] += __uint_as_float(word[j] & 0xffff0000u);
                }
        }
    }
    for (; i < end; i++) {
        float row[GPU_PACK];
        read_pack(dy, (int64_t)order[i] * width, at, width, row);
#pragma unroll
        for (int j = 0; j < GPU_PACK; j++) sum[j] += row[j];
    }
}

/* A block for each name, or, where names without tokens need no work, for each place in the order:
 * that of the name's first token does it all. */
template <int UNITS>
__global__ void __launch_bounds__(GPU_BLOCK, 4)
    embed_sum_kernel(EmbedNames names, EmbedLists lists, GpuArray dy, GpuArray out, int64_t width,
                     bool adds) {
    int64_t name = blockIdx.x, at = (blockIdx.y * blockDim.x + threadIdx.x) * GPU_PACK;
    if (adds) {
        if ((int32_t)blockIdx.x >= lists.start[names.count]) return;
        name = name_of(names, lists.order[blockIdx.x]);
        if (lists.start[name] != (int32_t)blockIdx.x) return;
    }
    if (at >= width) return;
    float sum[GPU_PACK] = {};
    if (adds) read_pack(out, name * width, at, width, sum);
    add_rows<UNITS>(dy, lists.order, lists.start[name], lists.start[name + 1], at, width, sum);
    write_pack(out, name * width, at, width, sum);
}

static void sum_names(const MxDevice *device, const EmbedNames &names, const EmbedLists &lists,
                      GpuArray dy, GpuArray out, int64_t width, bool adds) {
    unsigned threads = threads_of(width, GPU_BLOCK);
    dim3 grid((unsigned)(adds ? names.n : names.count),
              gpu_blocks(width, (int64_t)threads * GPU_PACK));
    auto kernel = width % GPU_PACK     ? embed_sum_kernel<0>
                  : dy.dtype == MX_F32 ? embed_sum_kernel<2>
                                       : embed_sum_kernel<1>;
    gpu_launch(device, kernel, grid, threads, 0, names, lists, dy, out, width, adds);
}

/* ---- gradients */

static EmbedNames ids_of(const MxKernelCall *call) {
    EmbedNames names = {};
    names.n = names.length = mx_shape_count(call->in_type[0].shape);
    names.first = ((const MxEmbedGradAttr *)call->attr)->first_id;
    names.each = names.count = call->out_type[0].shape.dim[0];
    return names;
}

static size_t embed_grad_scratch(const MxDevice *, const MxKernelCall *call) {
    static char origin[1]; /* offsets alone matter */
    EmbedLists lists;
    return carve(ids_of(call), origin, &lists);
}

static void embed_grad_run(const MxDevice *device, const MxKernelCall *call) {
    EmbedNames names = ids_of(call);
    names.ids = (const int32_t *)call->in[0];
    EmbedLists lists;
    if (!call->out[0]) return;
    carve(names, call->scratch, &lists);
    make_lists(device, names, lists);
    sum_names(device, names, lists, gpu_in(call, 1), gpu_out(call, 0),
              call->out_type[0].shape.dim[1], call->accumulate & 1);
}
GPU_KERNEL(embed_grad, .scratch = embed_grad_scratch, .run = embed_grad_run);

/* EmbedNames are rows of others; tokens that keep their own have none. */
static EmbedNames index_of(const MxKernelCall *call) {
    MxShape index = call->in_type[0].shape, rows = call->out_type[1].shape;
    EmbedNames names = {};
    names.n = index.dim[0] * index.dim[1];
    names.length = index.dim[1];
    names.first = 1;
    names.each = rows.dim[1];
    names.count = rows.dim[0] * rows.dim[1];
    return names;
}

static size_t merge_grad_scratch(const MxDevice *, const MxKernelCall *call) {
    static char origin[1];
    EmbedLists lists;
    return carve(index_of(call), origin, &lists);
}

__global__ void __launch_bounds__(GPU_BLOCK)
    merge_keep_kernel(const int32_t *index, GpuArray dy, GpuArray dx, int64_t width) {
    int64_t token = blockIdx.x;
    copy_row(dy, index[token] ? -1 : token, dx, token, width);
}

static void merge_grad_run(const MxDevice *device, const MxKernelCall *call) {
    EmbedNames names = index_of(call);
    names.ids = (const int32_t *)call->in[0];
    int64_t width = call->in_type[1].shape.dim[2];
    EmbedLists lists;
    carve(names, call->scratch, &lists);
    if (call->out[0])
        gpu_launch(device, merge_keep_kernel, (unsigned)names.n, threads_of(width, GPU_BLOCK), 0,
                   names.ids, gpu_in(call, 1), gpu_out(call, 0), width);
    if (!call->out[1]) return;
    make_lists(device, names, lists);
    sum_names(device, names, lists, gpu_in(call, 1), gpu_out(call, 1), width, false);
}
GPU_KERNEL(merge_grad, .scratch = merge_grad_scratch, .run = merge_grad_run);

} // namespace gpu_embed
