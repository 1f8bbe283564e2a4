/* sinkhorn.cu — doubly stochastic matrices of a few rows each, f32, a thread a matrix; sums of
 * permutations. */
#include "device/cuda/gpu.cuh"

namespace gpu_sinkhorn {

static constexpr float EPS = 1e-6f;

/* Numbers of a thread, as if each had them in a row: they lie `apart`, so that those of threads
 * side by side lie side by side. */
typedef struct Apart {
    float *at;
    int64_t apart;
    __device__ float &operator[](int64_t i) const { return at[i * apart]; }
} Apart;

typedef struct Sinkhorn {
    const float *x, *dy;
    float *out, *scratch;
    int64_t n, count, turns, workers; /* side; matrices; see count_turns */
} Sinkhorn;

/* Columns, then rows and columns in turns: so often in all. */
static int64_t count_turns(const MxKernelCall *call) {
    return 2 * ((const MxSinkhornAttr *)call->attr)->iterations - 1;
}

static Sinkhorn sinkhorn_of(const MxKernelCall *call) {
    constexpr int64_t MOST_WORKERS = 1 << 15;
    MxShape x = call->in_type[0].shape;
    Sinkhorn s = {};
    s.n = x.dim[x.rank - 1];
    s.count = s.n ? mx_shape_count(x) / (s.n * s.n) : 0;
    s.turns = count_turns(call);
    s.workers = gpu_min(s.count, MOST_WORKERS);
    return s;
}

template <class Y> __device__ static inline void soften(int64_t n, const float *x, const Y &y) {
    for (int64_t row = 0; row < n * n; row += n) {
        float most = -INFINITY, sum = 0;
        for (int64_t i = row; i < row + n; i++) most = fmaxf(most, x[i]);
        for (int64_t i = row; i < row + n; i++) sum += y[i] = expf(x[i] - most);
        for (int64_t i = row; i < row + n; i++) y[i] = y[i] / sum + EPS;
    }
}

/* Element i of row or column k. */
__device__ static inline int64_t element_of(int64_t n, bool is_row, int64_t k, int64_t i) {
    return is_row ? k * n + i : i * n + k;
}

__device__ static inline void divide_lines(int64_t n, bool is_row, const Apart &x, const Apart &y,
                                           const Apart &sums) {
    for (int64_t k = 0; k < n; k++) {
        float sum = 0;
        for (int64_t i = 0; i < n; i++) sum += x[element_of(n, is_row, k, i)];
        if (sums.at) sums[k] = sum + EPS;
        for (int64_t i = 0; i < n; i++) {
            int64_t at = element_of(n, is_row, k, i);
            y[at] = x[at] / (sum + EPS);
        }
    }
}

/* Of small matrices: all in registers. */
template <int N> __global__ void __launch_bounds__(GPU_BLOCK) sinkhorn_small(Sinkhorn s) {
    int64_t matrix = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (matrix >= s.count) return;
    float x[N * N], y[N * N];
#pragma unroll
    for (int i = 0; i < N * N; i++) x[i] = s.x[matrix * N * N + i];
#pragma unroll
    for (int row = 0; row < N; row++) {
        float most = -INFINITY, sum = 0;
#pragma unroll
        for (int i = row * N; i < row * N + N; i++) most = fmaxf(most, x[i]);
#pragma unroll
        for (int i = row * N; i < row * N + N; i++) sum += y[i] = expf(x[i] - most);
#pragma unroll
        for (int i = row * N; i < row * N + N; i++) y[i] = y[i] / sum + EPS;
    }
    for (int64_t turn = 0; turn < s.turns; turn++) {
        bool is_row = turn % 2;
#pragma unroll
        for (int k = 0; k < N; k++) {
            float sum = 0;
#pragma unroll
            for (int i = 0; i < N; i++) sum += is_row ? y[k * N + i] : y[i * N + k];
#pragma unroll
            for (int i = 0; i < N; i++)
                if (is_row)
                    y[k * N + i] /= sum + EPS;
                else
                    y[i * N + k] /= sum + EPS;
        }
    }
#pragma unroll
    for (int i = 0; i < N * N; i++) s.out[matrix * N * N + i] = y[i];
}

__global__ void __launch_bounds__(GPU_BLOCK) sinkhorn_any(Sinkhorn s) {
    int64_t matrix = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x, each = s.n * s.n;
    if (matrix >= s.count) return;
    Apart y = {s.out + matrix * each, 1};
    soften(s.n, s.x + matrix * each, y);
    for (int64_t turn = 0; turn < s.turns; turn++) divide_lines(s.n, turn % 2, y, y, Apart{});
}

static void sinkhorn_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    Sinkhorn s = sinkhorn_of(call);
    s.x = (const float *)call->in[0];
    s.out = (float *)call->out[0];
    gpu_launch(device,
               s.n == 2   ? sinkhorn_small<2>
               : s.n == 4 ? sinkhorn_small<4>
                          : sinkhorn_any,
               gpu_blocks(s.count), GPU_BLOCK, 0, s);
}

GPU_KERNEL(sinkhorn, .run = sinkhorn_run);

/* Through y = x / sums, or, without sums, through y = softmax(x) + EPS of rows: the cotangent g of
 * y becomes that of x. */
__device__ static inline void back_lines(int64_t n, bool is_row, const Apart &y, const Apart &sums,
                                         const Apart &g) {
    float eps = sums.at ? 0 : EPS;
    for (int64_t k = 0; k < n; k++) {
        float dot = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t at = element_of(n, is_row, k, i);
            dot += g[at] * (y[at] - eps);
        }
        for (int64_t i = 0; i < n; i++) {
            int64_t at = element_of(n, is_row, k, i);
            g[at] = (g[at] - dot) * (sums.at ? 1 / sums[k] : y[at] - eps);
        }
    }
}

/* What a worker needs: the matrix after every turn, the sums of its lines, and a cotangent. */
static int64_t floats_of(const Sinkhorn &s) {
    return s.turns * (s.n * s.n + s.n) + 2 * s.n * s.n;
}

__global__ void __launch_bounds__(GPU_BLOCK) sinkhorn_grad_any(Sinkhorn s) {
    int64_t worker = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x, each = s.n * s.n;
    if (worker >= s.workers) return;
    auto part = [&](int64_t first) {
        return Apart{s.scratch + first * s.workers + worker, s.workers};
    };
    auto after = [&](int64_t turn) { return part(turn * each); };
    auto sums = [&](int64_t turn) { return part((s.turns + 1) * each + turn * s.n); };
    Apart g = part((s.turns + 1) * each + s.turns * s.n);
    for (int64_t m = worker; m < s.count; m += s.workers) {
        for (int64_t i = 0; i < each; i++) g[i] = s.dy[m * each + i];
        soften(s.n, s.x + m * each, after(0));
        for (int64_t turn = 0; turn < s.turns; turn++)
            divide_lines(s.n, turn % 2, after(turn), after(turn + 1), sums(turn));
        for (int64_t turn = s.turns - 1; turn >= 0; turn--)
            back_lines(s.n, turn % 2, after(turn + 1), sums(turn), g);
        back_lines(s.n, true, after(0), Apart{}, g);
        for (int64_t i = 0; i < each; i++) s.out[m * each + i] = g[i];
    }
}

static size_t sinkhorn_grad_scratch(const MxDevice *, const MxKernelCall *call) {
    Sinkhorn s = sinkhorn_of(call);
    return sizeof(float) * (size_t)(floats_of(s) * s.workers);
}

static void sinkhorn_grad_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    Sinkhorn s = sinkhorn_of(call);
    s.x = (const float *)call->in[0];
    s.dy = (const float *)call->in[1];
    s.out = (float *)call->out[0];
    s.scratch = (float *)call->scratch;
    gpu_launch(device, sinkhorn_grad_any, gpu_blocks(s.workers), GPU_BLOCK, 0, s);
}

GPU_KERNEL(sinkhorn_grad, .scratch = sinkhorn_grad_scratch, .run = sinkhorn_grad_run);

/* ---- sums of permutations: from a table of all of them on the device */

typedef struct Permutations {
    const uint8_t *table; /* [n!, n] in lexicographic order */
    const float *in;
    float *out;
    int64_t rows, n, n_weights;
} Permutations;

static MxShape weights_of(const MxKernelCall *call) {
    bool is_back = ((const MxPermutationsAttr *)call->attr)->is_back;
    return is_back ? call->out_type[0].shape : call->in_type[0].shape;
}

static bool permutations_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    MxShape weights = weights_of(call);
    int64_t n = ((const MxPermutationsAttr *)call->attr)->n, k = 0;
    int64_t n_weights = weights.dim[weights.rank - 1];
    uint8_t *table = mx_new_n(device->arena, uint8_t, n_weights * n), p[MX_MOST_PERMUTED];
    for (int64_t i = 0; i < n; i++) p[i] = (uint8_t)i;
    do
        for (int64_t i = 0; i < n; i++) table[k * n + i] = p[i];
    while (++k < n_weights && mx_next_permutation(n, p));
    size_t bytes = (size_t)(n_weights * n);
    if (!gpu_runtime_alloc((Gpu *)device, bytes, &call->state, err)) return false;
    gpu_runtime_write(gpu_of(device), call->state, table, bytes);
    return true;
}

/* A thread an element of a matrix: adds up the weights of the permutations that have it. */
__global__ void __launch_bounds__(GPU_BLOCK) permutations_sum(Permutations p) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x, each = p.n * p.n;
    if (i >= p.rows * each) return;
    int64_t row = i / each, place = i % each / p.n, own = i % p.n;
    float sum = 0;
    for (int64_t k = 0; k < p.n_weights; k++)
        if (p.table[k * p.n + place] == own) sum += p.in[row * p.n_weights + k];
    p.out[i] = sum;
}

/* A thread a permutation: adds up its elements of a matrix. */
__global__ void __launch_bounds__(GPU_BLOCK) permutations_back(Permutations p) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= p.rows * p.n_weights) return;
    const float *matrix = p.in + i / p.n_weights * p.n * p.n;
    const uint8_t *own = p.table + i % p.n_weights * p.n;
    float sum = 0;
    for (int64_t j = 0; j < p.n; j++) sum += matrix[j * p.n + own[j]];
    p.out[i] = sum;
}

static void permutations_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    const MxPermutationsAttr *attr = (const MxPermutationsAttr *)call->attr;
    MxShape weights = weights_of(call);
    Permutations p = {};
    p.table = (const uint8_t *)call->state;
    p.in = (const float *)call->in[0];
    p.out = (float *)call->out[0];
    p.n = attr->n;
    p.n_weights = weights.dim[weights.rank - 1];
    p.rows = mx_shape_count(weights) / p.n_weights;
    if (attr->is_back)
        gpu_launch(device, permutations_back, gpu_blocks(p.rows * p.n_weights), GPU_BLOCK, 0, p);
    else
        gpu_launch(device, permutations_sum, gpu_blocks(p.rows * p.n * p.n), GPU_BLOCK, 0, p);
}

GPU_KERNEL(permutations, .prepare = permutations_prepare, .run = permutations_run);

} // namespace gpu_sinkhorn
