/* balance.cu — the load-balancing loss of experts and its gradient. Choices are counted with
 * integers; sums over tokens are in f64. */
#include "device/cuda/gpu.cuh"

namespace gpu_balance {

typedef struct Balance {
    const float *probs; /* [batch, length, n_experts] */
    const int32_t *ids; /* [batch, length, choices] */
    int *count;         /* [batch, n_experts] how often each was chosen */
    double *product;    /* [batch, n_experts] count times the sum of the probabilities */
    int64_t batch, length, choices, n_experts;
} Balance;

static Balance balance_of(const MxKernelCall *call, MxShape ids) {
    Balance b = {};
    b.batch = ids.dim[0];
    b.length = ids.dim[1];
    b.choices = ids.dim[2];
    b.n_experts = ((const MxBalanceAttr *)call->attr)->n_experts;
    return b;
}

static size_t count_bytes(const Balance &b) {
    return sizeof(int) * (size_t)(b.batch * b.n_experts);
}

__global__ void __launch_bounds__(GPU_BLOCK) count_choices(Balance b) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x, each = b.length * b.choices;
    if (i >= b.batch * each) return;
    GPU_ASSERT(b.ids[i] >= 0 && b.ids[i] < b.n_experts);
    atomicAdd(&b.count[i / each * b.n_experts + b.ids[i]], 1);
}

static void count_all(const MxDevice *device, const Balance &b) {
    int64_t n = b.batch * b.length * b.choices;
    gpu_runtime_zero(gpu_of(device), b.count, count_bytes(b));
    gpu_launch(device, count_choices, gpu_blocks(n), GPU_BLOCK, 0, b);
}

/* Some experts of a row of the batch; every expert has as many threads, each with some tokens. */
static constexpr int EXPERTS = 32, PARTS = 32;

__global__ void __launch_bounds__(EXPERTS *PARTS) sum_experts(Balance b) {
    __shared__ double part[PARTS][EXPERTS];
    int64_t expert = (int64_t)blockIdx.y * EXPERTS + threadIdx.x, row = blockIdx.x;
    double sum = 0;
    for (int64_t t = threadIdx.y; expert < b.n_experts && t < b.length; t += PARTS)
        sum += (double)b.probs[(row * b.length + t) * b.n_experts + expert];
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || expert >= b.n_experts) return;
    sum = 0;
    for (int i = 0; i < PARTS; i++) sum += part[i][threadIdx.x];
    int64_t at = row * b.n_experts + expert;
    b.product[at] = (double)b.count[at] * sum;
}

__global__ void __launch_bounds__(GPU_BLOCK) sum_products(Balance b, double scale, float *out) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < b.batch * b.n_experts; i += GPU_BLOCK) sum += b.product[i];
    sum = gpu_block_sum(sum);
    if (threadIdx.x == 0) *out = (float)(scale * sum);
}

static size_t balance_scratch(const MxDevice *, const MxKernelCall *call) {
    Balance b = balance_of(call, call->in_type[1].shape);
    return gpu_padded(count_bytes(b)) + sizeof(double) * (size_t)(b.batch * b.n_experts);
}

static void balance_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    Balance b = balance_of(call, call->in_type[1].shape);
    void *scratch = call->scratch;
    b.probs = (const float *)call->in[0];
    b.ids = (const int32_t *)call->in[1];
    b.count = (int *)gpu_carve(&scratch, count_bytes(b));
    b.product = (double *)scratch;
    count_all(device, b);
    gpu_launch(device, sum_experts, dim3((unsigned)b.batch, gpu_blocks(b.n_experts, EXPERTS)),
               dim3(EXPERTS, PARTS), 0, b);
    double factor = ((const MxBalanceAttr *)call->attr)->factor;
    double scale = b.length ? factor / ((double)b.length * (double)b.length) : 0;
    gpu_launch(device, sum_products, 1, GPU_BLOCK, 0, b, scale, call->out[0]);
}

GPU_KERNEL(balance, .scratch = balance_scratch, .run = balance_run);

__global__ void __launch_bounds__(GPU_BLOCK)
    balance_grad_elements(Balance b, double factor, const float *dy, float *dx) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= b.batch * b.length * b.n_experts) return;
    double scale = factor * (double)*dy / ((double)b.length * (double)b.length);
    int64_t row = i / (b.length * b.n_experts);
    dx[i] = (float)(scale * (double)b.count[row * b.n_experts + i % b.n_experts]);
}

static size_t balance_grad_scratch(const MxDevice *, const MxKernelCall *call) {
    return count_bytes(balance_of(call, call->in_type[0].shape));
}

static void balance_grad_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    Balance b = balance_of(call, call->in_type[0].shape);
    b.ids = (const int32_t *)call->in[0];
    b.count = (int *)call->scratch;
    count_all(device, b);
    gpu_launch(device, balance_grad_elements, gpu_blocks(b.batch * b.length * b.n_experts),
               GPU_BLOCK, 0, b, ((const MxBalanceAttr *)call->attr)->factor, call->in[1],
               call->out[0]);
}

GPU_KERNEL(balance_grad, .scratch = balance_grad_scratch, .run = balance_grad_run);

} // namespace gpu_balance
