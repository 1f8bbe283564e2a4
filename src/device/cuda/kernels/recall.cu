/* recall.cu — rows that n-grams name, a thread for each token; how rows match, a block for each. */
#include "device/cuda/gpu.cuh"

namespace gpu_recall {

/* ---- n-grams */

static constexpr int MOST_IDS = 64;

/* Copies of what the attributes point to, and a call's arrays. */
typedef struct Ngrams {
    int32_t *sizes, *factors, *canon;
    int32_t longest, n_heads, n_canon, before;
    const int32_t *tokens, *positions, *sequences; /* the last two NULL = tokens are no cache */
    int32_t *out;
    int64_t n, time, slots, rows;
} Ngrams;

__device__ static int32_t id_before(const Ngrams &g, int64_t row, int64_t at, int k) {
    if (k > at) return g.before;
    int64_t from =
        g.positions ? g.sequences[row] * g.slots + (at - k) % g.slots : row * g.time + at - k;
    return g.canon[gpu_min(g.tokens[from], g.n_canon - 1)];
}

/* All rows of a token; products wrap around. */
__global__ void __launch_bounds__(GPU_BLOCK) ngrams_kernel(Ngrams g) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= g.n) return;
    int64_t row = i / g.time, at = g.positions ? g.positions[i] : i % g.time;
    int32_t *out = g.out + i * g.rows, first = 0;
    const int32_t *size = g.sizes;
    if (at < 0) { /* padding */
        for (int64_t k = 0; k < g.rows; k++) out[k] = 0;
        return;
    }
    uint32_t mixed = (uint32_t)id_before(g, row, at, 0) * (uint32_t)g.factors[0];
    for (int n = 2; n <= g.longest; n++) {
        mixed ^= (uint32_t)id_before(g, row, at, n - 1) * (uint32_t)g.factors[n - 1];
        for (int h = 0; h < g.n_heads; h++) {
            *out++ = first + (int32_t)mixed % *size;
            first += *size++;
        }
    }
}

static bool copy_ids(MxDevice *device, const int32_t *from, int64_t n, int32_t **to, MxError *err) {
    void *copy;
    if (!gpu_runtime_alloc((Gpu *)device, (size_t)n * sizeof *from, &copy, err)) return false;
    gpu_runtime_write(gpu_of(device), copy, from, (size_t)n * sizeof *from);
    *to = (int32_t *)copy;
    return true;
}

static bool ngrams_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    const MxNgrams *of = ((const MxNgramAttr *)call->attr)->of;
    Ngrams *g = mx_new(device->arena, Ngrams);
    call->state = g;
    MX_ASSERT(of->longest <= MOST_IDS);
    g->longest = of->longest, g->n_heads = of->n_heads;
    g->n_canon = of->n_canon, g->before = of->before;
    g->rows = (int64_t)(of->longest - 1) * of->n_heads;
    if (!of->canon) return true; /* not run */
    return copy_ids(device, of->sizes, g->rows, &g->sizes, err) &&
           copy_ids(device, of->factors, of->longest, &g->factors, err) &&
           copy_ids(device, of->canon, of->n_canon, &g->canon, err);
}

static void run_ngrams(const MxDevice *device, const MxKernelCall *call, bool is_cached) {
    MxShape piece = call->in_type[is_cached ? 1 : 0].shape;
    Ngrams g = *(const Ngrams *)call->state;
    if (!call->out[0]) return;
    MX_ASSERT(g.canon);
    g.tokens = (const int32_t *)call->in[0];
    if (is_cached) {
        g.positions = (const int32_t *)call->in[1];
        g.sequences = (const int32_t *)call->in[2];
    }
    g.out = (int32_t *)call->out[0];
    g.time = piece.dim[1];
    g.n = piece.dim[0] * g.time;
    g.slots = call->in_type[0].shape.dim[1];
    gpu_launch(device, ngrams_kernel, gpu_blocks(g.n), GPU_BLOCK, 0, g);
}

static void ngrams_run(const MxDevice *device, const MxKernelCall *call) {
    run_ngrams(device, call, false);
}
GPU_KERNEL(ngrams, .prepare = ngrams_prepare, .run = ngrams_run);

static void cache_ngrams_run(const MxDevice *device, const MxKernelCall *call) {
    run_ngrams(device, call, true);
}
GPU_KERNEL(cache_ngrams, .prepare = ngrams_prepare, .run = cache_ngrams_run);

/* ---- matching */

static constexpr float LEAST = 1e-6f; /* that a root is taken of */
static constexpr int MATCH_BLOCK = 128;

typedef struct Match {
    GpuArray in[2], gradient[2]; /* of q and k; no data = not wanted */
    int64_t width;
    float scale;
} Match;

/* scale · q · k of the block's row. */
__device__ static float likeness(const Match &m) {
    int64_t row = blockIdx.x * m.width;
    double sum = 0;
    for (int64_t i = threadIdx.x; i < m.width; i += blockDim.x)
        sum += (double)gpu_get(m.in[0], row + i) * (double)gpu_get(m.in[1], row + i);
    return (float)gpu_block_sum(sum) * m.scale;
}

__device__ static float sigmoid_of_root(float s) {
    float root = sqrtf(fmaxf(fabsf(s), LEAST));
    root = s > 0 ? root : s < 0 ? -root : 0;
    return 1.0f / (1.0f + expf(-root));
}

__global__ void __launch_bounds__(MATCH_BLOCK) match_kernel(Match m, float *out) {
    float s = likeness(m);
    if (!threadIdx.x) out[blockIdx.x] = sigmoid_of_root(s);
}

/* The root is flat where it is of the least number. */
__global__ void __launch_bounds__(MATCH_BLOCK) match_grad_kernel(Match m, const float *dy) {
    float s = likeness(m), y = sigmoid_of_root(s), size = fabsf(s);
    float slope = size > LEAST ? 0.5f / sqrtf(size) : 0;
    float factor = dy[blockIdx.x] * y * (1 - y) * slope * m.scale;
    int64_t row = blockIdx.x * m.width;
    for (int k = 0; k < 2; k++)
        for (int64_t i = threadIdx.x; m.gradient[k].data && i < m.width; i += blockDim.x)
            gpu_put(m.gradient[k], row + i, factor * gpu_get(m.in[1 - k], row + i));
}

static Match match_of(const MxKernelCall *call) {
    MxShape q = call->in_type[0].shape;
    Match m = {};
    for (int i = 0; i < 2; i++) m.in[i] = gpu_in(call, i);
    m.width = q.dim[q.rank - 1];
    m.scale = (float)((const MxMatchAttr *)call->attr)->scale;
    return m;
}

static unsigned rows_of(const MxKernelCall *call, const Match &m) {
    return m.width ? (unsigned)(mx_shape_count(call->in_type[0].shape) / m.width) : 0;
}

/* Whole warps for the elements of a row. */
static unsigned threads_of(const Match &m) {
    return (unsigned)gpu_min(MATCH_BLOCK, gpu_max(1, gpu_blocks(m.width, GPU_WARP)) * GPU_WARP);
}

static void match_run(const MxDevice *device, const MxKernelCall *call) {
    Match m = match_of(call);
    if (call->out[0])
        gpu_launch(device, match_kernel, rows_of(call, m), threads_of(m), 0, m,
                   (float *)call->out[0]);
}
GPU_KERNEL(match, .run = match_run);

static void match_grad_run(const MxDevice *device, const MxKernelCall *call) {
    Match m = match_of(call);
    for (int i = 0; i < 2; i++) m.gradient[i] = gpu_out(call, i);
    gpu_launch(device, match_grad_kernel, rows_of(call, m), threads_of(m), 0, m,
               (const float *)call->in[2]);
}
GPU_KERNEL(match_grad, .run = match_grad_run);

} // namespace gpu_recall
