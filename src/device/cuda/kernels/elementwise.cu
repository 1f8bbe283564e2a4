/* elementwise.cu — ops whose output element depends on the input elements at the same position, and
 * formulas of scalars. */
#include "device/cuda/map.cuh"

namespace gpu_elementwise {

/* ---- copy, cast, add, scale */

struct Add : GpuEach {
    __device__ void operator()(const float *in, float *out) const { out[0] = in[0] + in[1]; }
};
struct Multiply : GpuEach {
    __device__ void operator()(const float *in, float *out) const { out[0] = in[0] * in[1]; }
};
struct Scale : GpuEach {
    float factor, plus;
    __device__ void operator()(const float *in, float *out) const {
        out[0] = in[0] * factor + plus;
    }
};

static void copy_run(const MxDevice *device, const MxKernelCall *call) {
    gpu_map<1, 1>(device, call, GpuCopy());
}
GPU_KERNEL(copy, .run = copy_run);
GPU_KERNEL(cast, .run = copy_run);

static void add_run(const MxDevice *device, const MxKernelCall *call) {
    gpu_map<2, 1>(device, call, Add());
}
GPU_KERNEL(add, .run = add_run);

static void multiply_run(const MxDevice *device, const MxKernelCall *call) {
    gpu_map<2, 1>(device, call, Multiply());
}
GPU_KERNEL(multiply, .run = multiply_run);

static void scale_run(const MxDevice *device, const MxKernelCall *call) {
    const MxScaleAttr *attr = (const MxScaleAttr *)call->attr;
    Scale scale;
    scale.factor = (float)attr->factor;
    scale.plus = (float)attr->plus;
    gpu_map<1, 1>(device, call, scale);
}
GPU_KERNEL(scale, .run = scale_run);

/* ---- soft cap */

struct Softcap : GpuEach {
    float cap, inverse;
    __device__ void operator()(const float *in, float *out) const {
        out[0] = cap * tanhf(in[0] * inverse);
    }
};
struct SoftcapGrad : GpuEach {
    float inverse;
    __device__ void operator()(const float *in, float *out) const {
        float t = tanhf(in[0] * inverse);
        out[0] = in[1] * (1.0f - t * t);
    }
};

static void softcap_run(const MxDevice *device, const MxKernelCall *call) {
    double cap = ((const MxSoftcapAttr *)call->attr)->cap;
    Softcap softcap;
    softcap.cap = (float)cap;
    softcap.inverse = (float)(1 / cap);
    gpu_map<1, 1>(device, call, softcap);
}
GPU_KERNEL(softcap, .run = softcap_run);

static void softcap_grad_run(const MxDevice *device, const MxKernelCall *call) {
    SoftcapGrad grad;
    grad.inverse = (float)(1 / ((const MxSoftcapAttr *)call->attr)->cap);
    gpu_map<2, 1>(device, call, grad);
}
GPU_KERNEL(softcap_grad, .run = softcap_grad_run);

/* ---- scalars */

struct Ratio : GpuEach {
    float eps;
    __device__ void operator()(const float *in, float *out) const {
        out[0] = in[0] / (in[1] + eps);
    }
};

static void ratio_run(const MxDevice *device, const MxKernelCall *call) {
    Ratio ratio;
    ratio.eps = (float)((const MxRatioAttr *)call->attr)->eps;
    gpu_map<2, 1>(device, call, ratio);
}
GPU_KERNEL(ratio, .run = ratio_run);

struct ClipFactor : GpuEach {
    float threshold;
    __device__ void operator()(const float *in, float *out) const {
        float norm = sqrtf(in[0]);
        out[0] = norm < threshold ? 1.0f : threshold / norm;
    }
};

static void clip_factor_run(const MxDevice *device, const MxKernelCall *call) {
    ClipFactor clip;
    clip.threshold = (float)((const MxClipFactorAttr *)call->attr)->threshold;
    gpu_map<1, 1>(device, call, clip);
}
GPU_KERNEL(clip_factor, .run = clip_factor_run);

struct Spike : GpuEach {
    float threshold, middle, reach;
    const float *limit;
    __device__ void begin() { middle = limit[0], reach = limit[1]; }
    __device__ void operator()(const float *in, float *out) const {
        float norm = sqrtf(in[0]);
        if (norm > threshold) norm = threshold;
        out[0] = norm - middle <= reach ? 0.0f : 1.0f;
    }
};

static void spike_run(const MxDevice *device, const MxKernelCall *call) {
    Spike spike = {};
    spike.threshold = (float)((const MxSpikeAttr *)call->attr)->threshold;
    spike.limit = (const float *)call->in[1];
    gpu_map<1, 1>(device, call, spike);
}
GPU_KERNEL(spike, .run = spike_run);

/* ---- select: only the one that is wanted is read, and nothing if that is in place */

__global__ void __launch_bounds__(GPU_BLOCK)
    select_kernel(GpuMap map, GpuArray x, GpuArray y, const float *flag) {
    map.in[0] = *flag == 0 ? x : y;
    if (map.in[0].data != map.out[0].data) gpu_map_tile<1, 1>(map, GpuCopy(), blockIdx.x);
}

static void select_run(const MxDevice *device, const MxKernelCall *call) {
    GpuMap map = {};
    GpuArray x = gpu_in(call, 0), y = gpu_in(call, 1);
    map.out[0] = gpu_out(call, 0);
    map.n = map.period = mx_shape_count(call->in_type[0].shape);
    map.has_quads = gpu_has_quads(x, GPU_QUAD) && gpu_has_quads(y, GPU_QUAD) &&
                    gpu_has_quads(map.out[0], GPU_QUAD);
    if (map.out[0].data)
        gpu_launch(device, select_kernel, gpu_blocks(map.n, GPU_MAP_TILE), GPU_BLOCK, 0, map, x, y,
                   (const float *)call->in[2]);
}
GPU_KERNEL(select, .run = select_run);

} // namespace gpu_elementwise
