/* product.cu — the matrix product, whose libraries are in nvidia/ and fibers/. */
#include "device/cuda/gpu.cuh"

GpuProductSpec gpu_product_complete(GpuProductSpec s) {
    if (!s.lda) s.lda = s.trans_a ? s.m : s.k;
    if (!s.ldb) s.ldb = s.trans_b ? s.k : s.n;
    if (!s.ldc) s.ldc = s.n;
    if (!s.batch) s.batch = 1;
    if (!s.step_a) s.step_a = (s.trans_a ? s.k : s.m) * s.lda;
    if (!s.step_b) s.step_b = (s.trans_b ? s.n : s.k) * s.ldb;
    if (!s.step_c) s.step_c = s.m * s.ldc;
    return s;
}

static GpuProductSpec dot_spec(const MxKernelCall *call) {
    const MxDotAttr *attr = (const MxDotAttr *)call->attr;
    MxDotSizes sizes = mx_dot_sizes(call->in_type[0].shape, call->in_type[1].shape, attr);
    GpuProductSpec spec = {};
    spec.m = sizes.m, spec.n = sizes.n, spec.k = sizes.k;
    spec.batch = sizes.batch;
    spec.trans_a = attr->kind == MX_DOT_TN;
    spec.trans_b = attr->kind == MX_DOT_NT;
    spec.accumulate = call->accumulate & 1;
    spec.in = call->in_type[0].dtype;
    spec.out = call->out_type[0].dtype;
    return spec;
}

static size_t dot_scratch(const MxDevice *device, const MxKernelCall *call) {
    GpuProductSpec spec = dot_spec(call);
    return gpu_product_bytes(device, &spec);
}

static bool dot_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    GpuProductSpec spec = dot_spec(call);
    call->state = (void *)gpu_product_prepare(device, &spec, err);
    return call->state != nullptr;
}

static void dot_run(const MxDevice *device, const MxKernelCall *call) {
    if (call->out[0])
        gpu_product_run(device, (const GpuProduct *)call->state, call->in[0], call->in[1],
                        call->out[0], call->scratch);
}

GPU_KERNEL(dot, .scratch = dot_scratch, .prepare = dot_prepare, .run = dot_run);
