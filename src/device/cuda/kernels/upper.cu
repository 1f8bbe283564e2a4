/* upper.cu — the tokens whose numbers are in the upper share of all: a block looks for the
 * quantile, bit by bit of the numbers in their order. */
#include "device/cuda/gpu.cuh"

namespace gpu_upper {

typedef struct Upper {
    const float *x;
    const int32_t *weights;
    float *out;
    int64_t all;
    float at; /* of the quantile, among 1 */
} Upper;

/* Bits that have the order of the numbers. */
__device__ static uint32_t bits_of(float x) {
    uint32_t bits = __float_as_uint(x == 0 ? 0.0f : x);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

__device__ static float of_bits(uint32_t bits) {
    return __uint_as_float(bits >> 31 ? bits & 0x7fffffffu : ~bits);
}

/* How many of those that count are below. */
__device__ static int64_t count_below(const Upper &u, uint32_t bits) {
    double n = 0;
    for (int64_t i = threadIdx.x; i < u.all; i += GPU_BLOCK)
        n += u.weights[i] && bits_of(u.x[i]) < bits;
    return (int64_t)gpu_block_sum(n);
}

/* The number with so many before it: the largest bits that no more are below. */
__device__ static float number_at(const Upper &u, int64_t rank) {
    uint32_t found = 0;
    for (uint32_t bit = 0x80000000u; bit; bit >>= 1)
        if (count_below(u, found | bit) <= rank) found |= bit;
    return of_bits(found);
}

__global__ void __launch_bounds__(GPU_BLOCK) upper_kernel(Upper u) {
    double counting = 0, upper = 0;
    for (int64_t i = threadIdx.x; i < u.all; i += GPU_BLOCK) counting += u.weights[i] != 0;
    int64_t n = (int64_t)gpu_block_sum(counting);
    float rank = u.at * (float)(n - 1), below = floorf(rank), share = rank - below, least = 0;
    if (n) {
        int64_t at = (int64_t)below;
        float low = number_at(u, at), high = number_at(u, gpu_min(at + 1, n - 1));
        least = share < 0.5f ? low + share * (high - low) : high - (high - low) * (1 - share);
    }
    for (int64_t i = threadIdx.x; i < u.all; i += GPU_BLOCK)
        upper += u.weights[i] && u.x[i] >= least;
    upper = gpu_block_sum(upper);
    for (int64_t i = threadIdx.x; i < u.all; i += GPU_BLOCK)
        u.out[i] = u.weights[i] && u.x[i] >= least ? (float)((double)n / upper) : 0;
}

static void run(const MxDevice *device, const MxKernelCall *call) {
    Upper u = {};
    u.x = (const float *)call->in[0];
    u.weights = (const int32_t *)call->in[1];
    u.out = (float *)call->out[0];
    u.all = mx_shape_count(call->in_type[0].shape);
    u.at = (float)(1 - ((const MxUpperAttr *)call->attr)->share);
    if (u.out) gpu_launch(device, upper_kernel, 1, GPU_BLOCK, 0, u);
}

GPU_KERNEL(upper_tokens, .run = run);

} // namespace gpu_upper
