/* argmax.cu — the likeliest token: logits a chunk of tokens at a time, and the largest of each row.
 * Logits of tokens that do not count are made too: how many count is not known to the host. Ranks
 * that have parts of the vocabulary exchange what they found, which is left to the host. */
#include "device/cuda/gpu.cuh"

namespace gpu_argmax {

enum { H, W, WEIGHTS };

/* Products are prepared for whole chunks and for the tokens left over. */
enum { WHOLE, REST, SIZES };

typedef struct Argmax {
    const MxXentAttr *attr;
    int64_t tokens, width, vocab, chunk;
    int64_t stride; /* from a row of logits to the next: whole vectors */
    MxDtype dtype;
} Argmax;

static bool is_cut(const MxKernelCall *call) {
    return ((const MxXentAttr *)call->attr)->group.size > 1;
}

static Argmax argmax_of(const MxKernelCall *call) {
    const int64_t most_bytes = 256 << 20;
    Argmax a = {(const MxXentAttr *)call->attr};
    MxShape w = call->in_type[W].shape;
    a.tokens = mx_shape_count(call->in_type[WEIGHTS].shape);
    a.width = w.dim[a.attr->tied ? 1 : 0];
    a.vocab = w.dim[a.attr->tied ? 0 : 1];
    a.dtype = call->in_type[H].dtype;
    a.stride = (int64_t)gpu_blocks(a.vocab, GPU_PACK) * GPU_PACK;
    int64_t most = gpu_max(1, most_bytes / (a.stride * (int64_t)mx_dtype_bytes(a.dtype)));
    int64_t pieces = gpu_max(gpu_blocks(a.tokens, most), a.attr->tiles);
    a.chunk = gpu_max(1, gpu_blocks(a.tokens, gpu_max(1, pieces)));
    return a;
}

static GpuProductSpec logits_spec(const Argmax *a, int size) {
    int64_t rest = a->tokens % a->chunk;
    GpuProductSpec spec = {};
    spec.m = size == REST && rest ? rest : a->chunk;
    spec.n = a->vocab, spec.k = a->width, spec.batch = 1;
    spec.ldc = a->stride;
    spec.trans_b = a->attr->tied;
    spec.in = spec.out = a->dtype;
    return spec;
}

static size_t argmax_scratch(const MxDevice *device, const MxKernelCall *call) {
    Argmax a = argmax_of(call);
    size_t product = 0;
    if (is_cut(call)) return 0;
    for (int size = 0; size < SIZES; size++) {
        GpuProductSpec spec = logits_spec(&a, size);
        size_t bytes = gpu_product_bytes(device, &spec);
        product = bytes > product ? bytes : product;
    }
    return gpu_padded((size_t)(a.chunk * a.stride) * mx_dtype_bytes(a.dtype)) + product;
}

static bool argmax_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    Argmax a = argmax_of(call);
    if (is_cut(call)) return gpu_host_prepare(device, call, err);
    const GpuProduct **products = mx_new_n(device->arena, const GpuProduct *, SIZES);
    call->state = products;
    for (int size = 0; size < SIZES; size++) {
        GpuProductSpec spec = logits_spec(&a, size);
        products[size] = gpu_product_prepare(device, &spec, err);
        if (!products[size]) return false;
    }
    return true;
}

typedef struct Largest {
    GpuArray products;
    const int32_t *weights;
    int32_t *out;
    int64_t vocab, stride, first_id;
    float factor, cap; /* cap: 0 = none */
} Largest;

/* A block has a row. Of equal logits each thread finds its first one, and the first of those
 * counts; NaN is no largest one. */
__global__ void __launch_bounds__(GPU_BLOCK) largest_logit_kernel(Largest l) {
    if (!l.weights[blockIdx.x]) {
        if (threadIdx.x == 0) l.out[blockIdx.x] = 0;
        return;
    }
    float most = -INFINITY;
    int64_t at = 0, row = blockIdx.x * l.stride;
    for (int64_t i = threadIdx.x * GPU_PACK; i < l.vocab; i += GPU_BLOCK * GPU_PACK) {
        float x[GPU_PACK];
        gpu_get_pack(l.products, row + i, x);
        for (int j = 0; j < GPU_PACK; j++) {
            float logit = x[j] * l.factor;
            if (l.cap > 0) logit = l.cap * tanhf(logit / l.cap);
            if (i + j < l.vocab && logit > most) most = logit, at = i + j;
        }
    }
    float most_of_all = gpu_block_max(most);
    at = -gpu_block_max(most == most_of_all ? -at : -l.vocab);
    if (threadIdx.x == 0) l.out[blockIdx.x] = (int32_t)(l.first_id + at);
}

static void argmax_run(const MxDevice *device, const MxKernelCall *call) {
    if (is_cut(call)) {
        gpu_host_run(device, call);
        return;
    }
    Argmax a = argmax_of(call);
    const GpuProduct *const *products = (const GpuProduct *const *)call->state;
    void *scratch = call->scratch;
    int64_t each = (int64_t)mx_dtype_bytes(a.dtype);
    void *logits = gpu_carve(&scratch, (size_t)(a.chunk * a.stride * each));
    for (int64_t at = 0, n; at < a.tokens && call->out[0]; at += n) {
        n = gpu_min(a.chunk, a.tokens - at);
        gpu_product_run(device, products[n == a.chunk ? WHOLE : REST],
                        (char *)call->in[H] + at * a.width * each, call->in[W], logits, scratch);
        Largest l = {GpuArray{logits, a.dtype}, (const int32_t *)call->in[WEIGHTS] + at,
                     (int32_t *)call->out[0] + at};
        l.vocab = a.vocab, l.stride = a.stride, l.first_id = a.attr->first_id;
        l.factor = (float)a.attr->scale, l.cap = (float)a.attr->softcap;
        gpu_launch(device, largest_logit_kernel, (unsigned)n, GPU_BLOCK, 0, l);
    }
}
GPU_KERNEL(argmax, .scratch = argmax_scratch, .prepare = argmax_prepare, .run = argmax_run);

} // namespace gpu_argmax
