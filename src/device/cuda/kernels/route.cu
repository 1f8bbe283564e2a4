/* route.cu — routing tokens to experts: rows of a few elements each, f32, a warp a row; of many
 * elements, a block a row. */
#include "rows.cuh"

namespace gpu_route {

/* Rows of n elements, and of k others. */
typedef struct Rows {
    const float *a, *b;
    const int32_t *ids;
    float *out;
    int64_t rows, n, k;
} Rows;

static Rows rows_of(const MxKernelCall *call) {
    Rows r = {};
    r.a = (const float *)call->in[0];
    r.out = (float *)call->out[0];
    r.n = rows_width(call->in_type[0].shape);
    r.rows = rows_count(call->in_type[0].shape);
    return r;
}

/* for_rows — calls f with the number of threads of a row. */
template <class F> static void for_rows(int64_t n, const F &f) {
    constexpr int64_t MOST_OF_A_WARP = 1024;
    if (n <= MOST_OF_A_WARP)
        f(RowsFit<GPU_WARP>());
    else
        f(RowsFit<GPU_BLOCK>());
}

template <class Fit, class... P>
static void launch_rows(const MxDevice *device, void (*kernel)(P...), const Rows &r) {
    constexpr int BLOCK = rows_block(Fit::THREADS);
    gpu_launch(device, kernel, gpu_blocks(r.rows, BLOCK / Fit::THREADS), BLOCK, 0, r);
}

/* run_rows — a kernel of one or two arrays and no ids; kernel_of: that of a number of threads. */
template <class F>
static void run_rows(const MxDevice *device, const MxKernelCall *call, const F &kernel_of) {
    Rows r = rows_of(call);
    if (call->n_in > 1) r.b = (const float *)call->in[1];
    for_rows(r.n, [&](auto fit) {
        if (r.out) launch_rows<decltype(fit)>(device, kernel_of(fit), r);
    });
}

/* Elements of a thread: i from rows_lane on, every THREADS-th. A thread without a row has none. */
template <class Fit> __device__ static inline int64_t elements_of(const Rows &r, int64_t row) {
    return row < r.rows ? r.n : 0;
}

/* ---- softmax */

template <class Fit> __global__ void __launch_bounds__(GPU_BLOCK) softmax_rows(Rows r) {
    int64_t row = rows_row<Fit::THREADS>(), n = elements_of<Fit>(r, row), first = row * r.n;
    int lane = rows_lane<Fit::THREADS>();
    float most = -INFINITY, sum = 0;
    for (int64_t i = lane; i < n; i += Fit::THREADS) most = fmaxf(most, r.a[first + i]);
    most = rows_max<Fit::THREADS>(most);
    for (int64_t i = lane; i < n; i += Fit::THREADS)
        sum += r.out[first + i] = expf(r.a[first + i] - most);
    sum = rows_sum<Fit::THREADS>(sum);
    for (int64_t i = lane; i < n; i += Fit::THREADS) r.out[first + i] /= sum;
}

static void softmax_run(const MxDevice *device, const MxKernelCall *call) {
    run_rows(device, call, [](auto fit) { return softmax_rows<decltype(fit)>; });
}

GPU_KERNEL(softmax, .run = softmax_run);

template <class Fit> __global__ void __launch_bounds__(GPU_BLOCK) softmax_grad_rows(Rows r) {
    int64_t row = rows_row<Fit::THREADS>(), n = elements_of<Fit>(r, row), first = row * r.n;
    int lane = rows_lane<Fit::THREADS>();
    float sum = 0;
    for (int64_t i = lane; i < n; i += Fit::THREADS) sum += r.a[first + i] * r.b[first + i];
    sum = rows_sum<Fit::THREADS>(sum);
    for (int64_t i = lane; i < n; i += Fit::THREADS)
        r.out[first + i] = r.a[first + i] * (r.b[first + i] - sum);
}

static void softmax_grad_run(const MxDevice *device, const MxKernelCall *call) {
    run_rows(device, call, [](auto fit) { return softmax_grad_rows<decltype(fit)>; });
}

GPU_KERNEL(softmax_grad, .run = softmax_grad_run);

/* ---- shares */

static constexpr float SHARE_EPS = 1e-20f;

/* The sum that elements are a share of. */
template <class Fit>
__device__ static inline float whole_of(const Rows &r, int64_t first, int64_t n) {
    float sum = 0;
    for (int64_t i = rows_lane<Fit::THREADS>(); i < n; i += Fit::THREADS) sum += r.a[first + i];
    return rows_sum<Fit::THREADS>(sum) + SHARE_EPS;
}

template <class Fit> __global__ void __launch_bounds__(GPU_BLOCK) share_rows(Rows r) {
    int64_t row = rows_row<Fit::THREADS>(), n = elements_of<Fit>(r, row), first = row * r.n;
    float whole = whole_of<Fit>(r, first, n);
    for (int64_t i = rows_lane<Fit::THREADS>(); i < n; i += Fit::THREADS)
        r.out[first + i] = r.a[first + i] / whole;
}

static void share_run(const MxDevice *device, const MxKernelCall *call) {
    run_rows(device, call, [](auto fit) { return share_rows<decltype(fit)>; });
}

GPU_KERNEL(share, .run = share_run);

template <class Fit> __global__ void __launch_bounds__(GPU_BLOCK) share_grad_rows(Rows r) {
    int64_t row = rows_row<Fit::THREADS>(), n = elements_of<Fit>(r, row), first = row * r.n;
    int lane = rows_lane<Fit::THREADS>();
    float whole = whole_of<Fit>(r, first, n), mean = 0;
    for (int64_t i = lane; i < n; i += Fit::THREADS)
        mean += r.a[first + i] / whole * r.b[first + i];
    mean = rows_sum<Fit::THREADS>(mean);
    for (int64_t i = lane; i < n; i += Fit::THREADS)
        r.out[first + i] = (r.b[first + i] - mean) / whole;
}

static void share_grad_run(const MxDevice *device, const MxKernelCall *call) {
    run_rows(device, call, [](auto fit) { return share_grad_rows<decltype(fit)>; });
}

GPU_KERNEL(share_grad, .run = share_grad_run);

/* ---- the largest elements: k times the first of those behind the last one that was found */

/* A number above 0 that orders elements: the larger first, then the lower index; NaNs go last. */
__device__ static inline uint64_t order_of(float x, uint32_t index) {
    uint32_t bits = __float_as_uint(x == 0 ? 0.0f : x), high = 0;
    if (x == x) high = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)high << 32 | (0xffffffffu - index);
}

/* Of rows in groups: what a group scores, and whether it is one of the best. */
typedef struct Groups {
    float *score;     /* [rows, n_groups] */
    uint8_t *is_best; /* likewise */
    int64_t n_groups, n_best, each;
} Groups;

__global__ void __launch_bounds__(GPU_BLOCK) score_groups(Rows r, Groups g) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= r.rows * g.n_groups) return;
    const float *x = r.a + i * g.each;
    float first = -INFINITY, second = -INFINITY;
    for (int64_t j = 0; j < g.each; j++) {
        if (x[j] > first) {
            second = first;
            first = x[j];
        } else if (x[j] > second) {
            second = x[j];
        }
    }
    g.score[i] = first + second;
}

__global__ void __launch_bounds__(GPU_BLOCK) choose_groups(Rows r, Groups g) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= r.rows * g.n_groups) return;
    const float *score = g.score + i / g.n_groups * g.n_groups;
    int64_t own = i % g.n_groups, before = 0;
    uint64_t order = order_of(score[own], (uint32_t)own);
    for (int64_t j = 0; j < g.n_groups; j++) before += order_of(score[j], (uint32_t)j) > order;
    g.is_best[i] = before < g.n_best;
}

template <class Fit>
__global__ void __launch_bounds__(GPU_BLOCK) top_k_rows(Rows r, Groups g, int32_t *best) {
    int64_t row = rows_row<Fit::THREADS>(), n = elements_of<Fit>(r, row);
    int lane = rows_lane<Fit::THREADS>();
    const uint8_t *is_best = g.n_groups ? g.is_best + row * g.n_groups : nullptr;
    uint64_t last = ~0ull;
    for (int64_t found = 0; found < r.k; found++) {
        uint64_t most = 0;
        for (int64_t i = lane; i < n; i += Fit::THREADS) {
            uint64_t order = order_of(r.a[row * r.n + i], (uint32_t)i);
            if (order > most && order < last && (!is_best || is_best[i / g.each])) most = order;
        }
        last = rows_max<Fit::THREADS>(most);
        if (n && lane == 0) best[row * r.k + found] = (int32_t)(0xffffffffu - (uint32_t)last);
    }
}

static Groups groups_of(const MxKernelCall *call, const Rows &r) {
    const MxTopKAttr *attr = (const MxTopKAttr *)call->attr;
    Groups g = {};
    g.n_groups = attr->n_groups;
    g.n_best = attr->n_best;
    g.each = g.n_groups ? r.n / g.n_groups : r.n;
    return g;
}

static size_t top_k_scratch(const MxDevice *, const MxKernelCall *call) {
    size_t n =
        (size_t)(rows_count(call->in_type[0].shape) * ((const MxTopKAttr *)call->attr)->n_groups);
    return gpu_padded(n * sizeof(float)) + n;
}

static void top_k_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    Rows r = rows_of(call);
    Groups g = groups_of(call, r);
    int64_t n = r.rows * g.n_groups;
    r.k = rows_width(call->out_type[0].shape);
    if (n) {
        void *scratch = call->scratch;
        g.score = (float *)gpu_carve(&scratch, sizeof(float) * (size_t)n);
        g.is_best = (uint8_t *)scratch;
        gpu_launch(device, score_groups, gpu_blocks(n), GPU_BLOCK, 0, r, g);
        gpu_launch(device, choose_groups, gpu_blocks(n), GPU_BLOCK, 0, r, g);
    }
    for_rows(r.n, [&](auto f) {
        using Fit = decltype(f);
        constexpr int BLOCK = rows_block(Fit::THREADS);
        gpu_launch(device, top_k_rows<Fit>, gpu_blocks(r.rows, BLOCK / Fit::THREADS), BLOCK, 0, r,
                   g, (int32_t *)call->out[0]);
    });
}

GPU_KERNEL(top_k, .scratch = top_k_scratch, .run = top_k_run);

/* ---- picking: a thread an element */

__global__ void __launch_bounds__(GPU_BLOCK) pick_elements(Rows r) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= r.rows * r.k) return;
    int32_t id = r.ids[i];
    GPU_ASSERT(id >= 0 && id < r.n);
    r.out[i] = r.a[i / r.k * r.n + id];
}

static void pick_run(const MxDevice *device, const MxKernelCall *call) {
    Rows r = rows_of(call);
    r.ids = (const int32_t *)call->in[1];
    r.k = rows_width(call->in_type[1].shape);
    if (r.out) gpu_launch(device, pick_elements, gpu_blocks(r.rows * r.k), GPU_BLOCK, 0, r);
}

GPU_KERNEL(pick, .run = pick_run);

/* An element may have been picked several times: its thread looks at all ids of the row. */
__global__ void __launch_bounds__(GPU_BLOCK) pick_grad_elements(Rows r) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= r.rows * r.n) return;
    int64_t row = i / r.n, own = i % r.n;
    float sum = 0;
    for (int64_t j = row * r.k; j < (row + 1) * r.k; j++) {
        GPU_ASSERT(r.ids[j] >= 0 && r.ids[j] < r.n);
        if (r.ids[j] == own) sum += r.b[j];
    }
    r.out[i] = sum;
}

static void pick_grad_run(const MxDevice *device, const MxKernelCall *call) {
    Rows r = {};
    r.ids = (const int32_t *)call->in[0];
    r.b = (const float *)call->in[1];
    r.out = (float *)call->out[0];
    r.n = rows_width(call->out_type[0].shape);
    r.rows = rows_count(call->out_type[0].shape);
    r.k = rows_width(call->in_type[0].shape);
    if (r.out) gpu_launch(device, pick_grad_elements, gpu_blocks(r.rows * r.n), GPU_BLOCK, 0, r);
}

GPU_KERNEL(pick_grad, .run = pick_grad_run);

} // namespace gpu_route
