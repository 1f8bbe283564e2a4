/* responses.cuh — private to kernels of losses of responses: numbers of rows, which a block makes
 * of each, all in f64, are added up by a last kernel. */
#ifndef GPU_RESPONSES_CUH
#define GPU_RESPONSES_CUH

#include "device/cuda/gpu.cuh"

namespace gpu_responses {

enum { LOGP, WEIGHTS };
enum { LOSS, SUMS, EXTREMES };

/* ---- all rows together */

/* Numbers of rows [rows][n_sums + n_most], of which the last are maxima; the first sum is the
 * loss. */
typedef struct ResponseTotals {
    const double *of_rows;
    int64_t rows;
    int n_sums, n_most;
    float *loss, *sums, *extremes; /* NULL = not wanted */
    unsigned accumulate;
} ResponseTotals;

__device__ static inline void put(const ResponseTotals &t, int out, float *to, double x) {
    if (to) *to = (float)(x + (t.accumulate >> out & 1 ? (double)*to : 0));
}

/* A block for each number. */
static __global__ void __launch_bounds__(GPU_BLOCK) totals_kernel(ResponseTotals t) {
    int k = (int)blockIdx.x, each = t.n_sums + t.n_most;
    bool is_sum = k < t.n_sums;
    double x = is_sum ? 0 : -INFINITY;
    for (int64_t row = threadIdx.x; row < t.rows; row += GPU_BLOCK) {
        double own = t.of_rows[row * each + k];
        x = is_sum ? x + own : fmax(x, own);
    }
    x = is_sum ? gpu_block_sum(x) : gpu_block_max(x);
    if (threadIdx.x) return;
    if (!is_sum) {
        put(t, EXTREMES, t.extremes ? t.extremes + k - t.n_sums : nullptr, x);
        return;
    }
    if (!k) put(t, LOSS, t.loss, x);
    put(t, SUMS, t.sums ? t.sums + k : nullptr, x);
}

static inline void add_up(const MxDevice *device, const MxKernelCall *call, int64_t rows,
                          int n_sums, int n_most) {
    ResponseTotals t = {};
    t.of_rows = (const double *)call->scratch;
    t.rows = rows;
    t.n_sums = n_sums, t.n_most = n_most;
    t.loss = (float *)call->out[LOSS];
    t.sums = (float *)call->out[SUMS];
    if (n_most) t.extremes = (float *)call->out[EXTREMES];
    t.accumulate = call->accumulate;
    gpu_launch(device, totals_kernel, (unsigned)(n_sums + n_most), GPU_BLOCK, 0, t);
}

__device__ static inline double sigmoid(double x) {
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

} // namespace gpu_responses

#endif
