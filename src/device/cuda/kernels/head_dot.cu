/* head_dot.cu — products of every head with its own part of a kernel: a batch of products, whose
 * steps are those from head to head. */
#include "device/cuda/gpu.cuh"

namespace gpu_head_dot {

static GpuProductSpec spec_of(const MxKernelCall *call) {
    const MxHeadDotAttr *attr = (const MxHeadDotAttr *)call->attr;
    MxShape x = call->in_type[0].shape, w = call->in_type[1].shape, y = call->out_type[0].shape;
    int64_t heads = w.dim[1], x_width = x.dim[x.rank - 1], y_width = y.dim[y.rank - 1];
    GpuProductSpec spec = {};
    spec.m = heads && x_width ? mx_shape_count(x) / (heads * x_width) : 0;
    spec.n = y_width, spec.k = x_width;
    spec.lda = heads * x_width, spec.ldb = heads * w.dim[2], spec.ldc = heads * y_width;
    spec.batch = heads;
    spec.step_a = x_width, spec.step_b = w.dim[2], spec.step_c = y_width;
    spec.trans_b = attr->transposed;
    spec.in = spec.out = call->in_type[0].dtype;
    return spec;
}

static size_t scratch(const MxDevice *device, const MxKernelCall *call) {
    GpuProductSpec spec = spec_of(call);
    return spec.m ? gpu_product_bytes(device, &spec) : 0;
}

static bool prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    GpuProductSpec spec = spec_of(call);
    call->state = nullptr;
    if (!spec.m) return true;
    call->state = (void *)gpu_product_prepare(device, &spec, err);
    return call->state != nullptr;
}

static void run(const MxDevice *device, const MxKernelCall *call) {
    const MxHeadDotAttr *attr = (const MxHeadDotAttr *)call->attr;
    size_t first = (size_t)attr->first * mx_dtype_bytes(call->in_type[1].dtype);
    if (call->out[0] && call->state)
        gpu_product_run(device, (const GpuProduct *)call->state, call->in[0],
                        (const char *)call->in[1] + first, call->out[0], call->scratch);
}

GPU_KERNEL(head_dot, .scratch = scratch, .prepare = prepare, .run = run);

} // namespace gpu_head_dot
