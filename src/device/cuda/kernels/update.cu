/* update.cu — optimizer updates: one pass over contiguous memory each. */
#include "device/cuda/map.cuh"

namespace gpu_update {

/* The numbers of a step, which are on the device. */
struct Step : GpuEach {
    const float *hyper, *factor;
    bool narrows; /* mu is bf16: under JAX's weak types a decay takes the dtype of its moment */
    float clip, lr, b1, one_b1, b2, one_b2, bias1, bias2, next1;

    __device__ void begin() {
        clip = factor ? *factor : 1.0f;
        lr = hyper[MX_HYPER_LR];
        b1 = hyper[MX_HYPER_B1], one_b1 = hyper[MX_HYPER_ONE_B1];
        b2 = hyper[MX_HYPER_B2], one_b2 = hyper[MX_HYPER_ONE_B2];
        bias1 = hyper[MX_HYPER_BIAS1], bias2 = hyper[MX_HYPER_BIAS2];
        next1 = hyper[MX_HYPER_NEXT1];
    }
    __device__ float decay(float b) const { return narrows ? gpu_widen(gpu_narrow(b)) : b; }
};

/* clip: the input with that factor, 0 = none. mu: the moment whose dtype decays take. */
template <class F> static F step_of(const MxKernelCall *call, int hyper, int clip, int mu) {
    F f = {};
    f.hyper = (const float *)call->in[hyper];
    f.factor = clip ? (const float *)call->in[clip] : nullptr;
    f.narrows = mu && call->in_type[mu].dtype == MX_BF16;
    return f;
}

/* ---- Adam and descent */

template <bool NESTEROV> struct Adamw : Step {
    float eps, eps_root, weight_decay;
    __device__ void operator()(const float *in, float *out) const {
        float p = in[0], gradient = in[1] * clip;
        float m = decay(b1) * in[2] + one_b1 * gradient;
        float v = b2 * in[3] + one_b2 * (gradient * gradient);
        float first = NESTEROV ? b1 * (m / next1) + one_b1 * (gradient / bias1) : m / bias1;
        float update = first / (sqrtf(v / bias2 + eps_root) + eps) + weight_decay * p;
        out[0] = p - lr * update;
        out[1] = m;
        out[2] = v;
    }
};

template <bool NESTEROV> static void adamw_kind(const MxDevice *device, const MxKernelCall *call) {
    const MxAdamwAttr *attr = (const MxAdamwAttr *)call->attr;
    auto f = step_of<Adamw<NESTEROV>>(call, 4, 5, 2);
    f.eps = (float)attr->eps;
    f.eps_root = (float)attr->eps_root;
    f.weight_decay = (float)attr->weight_decay;
    gpu_map<4, 3>(device, call, f);
}

static void adamw_run(const MxDevice *device, const MxKernelCall *call) {
    if (((const MxAdamwAttr *)call->attr)->nesterov)
        adamw_kind<true>(device, call);
    else
        adamw_kind<false>(device, call);
}
GPU_KERNEL(adamw, .run = adamw_run);

struct Sgd : Step {
    __device__ void operator()(const float *in, float *out) const {
        out[0] = in[0] - lr * clip * in[1];
    }
};

static void sgd_run(const MxDevice *device, const MxKernelCall *call) {
    gpu_map<2, 1>(device, call, step_of<Sgd>(call, 2, 3, 0));
}
GPU_KERNEL(sgd, .run = sgd_run);

struct Lion : Step {
    float weight_decay;
    __device__ void operator()(const float *in, float *out) const {
        float p = in[0], gradient = in[1] * clip, mu = in[2];
        float ahead = decay(b1) * mu + one_b1 * gradient;
        float sign = ahead > 0 ? 1.0f : ahead < 0 ? -1.0f : ahead;
        out[0] = p - lr * (sign + weight_decay * p);
        out[1] = decay(b2) * mu + one_b2 * gradient;
    }
};

static void lion_run(const MxDevice *device, const MxKernelCall *call) {
    Lion lion = step_of<Lion>(call, 3, 4, 2);
    lion.weight_decay = (float)((const MxLionAttr *)call->attr)->weight_decay;
    gpu_map<3, 2>(device, call, lion);
}
GPU_KERNEL(lion, .run = lion_run);

struct ScheduleFree : Step {
    float mix, eps, weight_decay;
    __device__ void operator()(const float *in, float *out) const {
        float x = in[0], gradient = in[1] * clip, d = in[2];
        float v = b2 * in[3] + one_b2 * (gradient * gradient);
        float update = gradient / (sqrtf(v / bias2) + eps) + weight_decay * (x + mix * d);
        float off = d - lr * update; /* z less the old x */
        out[0] = x + one_b1 * off;
        out[1] = b1 * off;
        out[2] = v;
    }
};

static void schedule_free_run(const MxDevice *device, const MxKernelCall *call) {
    const MxScheduleFreeAttr *attr = (const MxScheduleFreeAttr *)call->attr;
    ScheduleFree f = step_of<ScheduleFree>(call, 4, 5, 0);
    f.mix = (float)(1 - attr->b1);
    f.eps = (float)attr->eps;
    f.weight_decay = (float)attr->weight_decay;
    gpu_map<4, 3>(device, call, f);
}
GPU_KERNEL(schedule_free, .run = schedule_free_run);

/* ---- parts of updates by matrices */

struct Momentum : Step {
    __device__ void operator()(const float *in, float *out) const {
        float gradient = in[0] * clip, m = decay(b1) * in[1] + one_b1 * gradient;
        out[0] = b1 * (m / next1) + one_b1 * (gradient / bias1);
        out[1] = m;
    }
};

static void momentum_run(const MxDevice *device, const MxKernelCall *call) {
    gpu_map<2, 2>(device, call, step_of<Momentum>(call, 2, 3, 1));
}
GPU_KERNEL(momentum, .run = momentum_run);

struct Over : GpuEach {
    float norm;
    __device__ void operator()(const float *in, float *out) const { out[0] = in[0] / norm; }
};

/* The map is that of a part, with a norm of its own; all parts have as many tiles. */
__global__ void __launch_bounds__(GPU_BLOCK)
    unit_kernel(GpuMap map, const float *squares, float eps, int64_t bytes, unsigned tiles) {
    int64_t part = blockIdx.x / tiles;
    map.in[0].data = (char *)map.in[0].data + part * bytes;
    map.out[0].data = (char *)map.out[0].data + part * bytes;
    Over over;
    over.norm = sqrtf(squares[part]) + eps;
    gpu_map_tile<1, 1>(map, over, blockIdx.x % tiles);
}

static void unit_run(const MxDevice *device, const MxKernelCall *call) {
    int64_t parts = mx_shape_count(call->in_type[1].shape);
    GpuMap map = {};
    map.in[0] = gpu_in(call, 0);
    map.out[0] = gpu_out(call, 0);
    map.n = map.period = parts ? mx_shape_count(call->in_type[0].shape) / parts : 0;
    map.has_quads = gpu_has_quads(map.in[0], map.n) && gpu_has_quads(map.out[0], map.n);
    unsigned tiles = gpu_blocks(map.n, GPU_MAP_TILE);
    if (map.out[0].data)
        gpu_launch(device, unit_kernel, tiles * (unsigned)parts, GPU_BLOCK, 0, map,
                   (const float *)call->in[1], (float)((const MxUnitAttr *)call->attr)->eps,
                   map.n * (int64_t)mx_dtype_bytes(map.in[0].dtype), tiles);
}
GPU_KERNEL(unit, .run = unit_run);

struct Descend : Step {
    float share, weight_decay;
    __device__ void operator()(const float *in, float *out) const {
        out[0] = in[0] - lr * (share * in[1] + weight_decay * in[0]);
    }
};

static void descend_run(const MxDevice *device, const MxKernelCall *call) {
    const MxDescendAttr *attr = (const MxDescendAttr *)call->attr;
    Descend descend = step_of<Descend>(call, 2, 0, 0);
    descend.share = (float)attr->factor;
    descend.weight_decay = (float)attr->weight_decay;
    gpu_map<2, 1>(device, call, descend);
}
GPU_KERNEL(descend, .run = descend_run);

/* ---- factored moments and the size of a step */

struct Decayed : Step {
    bool is_second;
    float times, plus;
    __device__ void operator()(const float *in, float *out) const {
        out[0] = decay(is_second ? b2 : b1) * in[0] +
                 (is_second ? one_b2 : one_b1) * (times * in[1] + plus);
    }
};

static void decayed_run(const MxDevice *device, const MxKernelCall *call) {
    const MxDecayedAttr *attr = (const MxDecayedAttr *)call->attr;
    Decayed decayed = step_of<Decayed>(call, 2, 0, 0);
    decayed.narrows = call->in_type[0].dtype == MX_BF16;
    decayed.is_second = attr->is_second;
    decayed.times = (float)attr->factor;
    decayed.plus = (float)attr->plus;
    gpu_map<2, 1>(device, call, decayed);
}
GPU_KERNEL(decayed, .run = decayed_run);

struct RmsStep : Step {
    float count, threshold;
    bool scales;
    __device__ void operator()(const float *in, float *out) const {
        float step = lr;
        if (threshold > 0) step /= fmaxf(1, sqrtf(in[0] / count) / threshold);
        if (scales) step *= fmaxf((float)MX_LEAST_RMS, sqrtf(in[1] / count));
        out[0] = step;
    }
};

static void rms_step_run(const MxDevice *device, const MxKernelCall *call) {
    const MxRmsStepAttr *attr = (const MxRmsStepAttr *)call->attr;
    RmsStep step = step_of<RmsStep>(call, 2, 0, 0);
    step.count = (float)attr->count;
    step.threshold = (float)attr->threshold;
    step.scales = attr->scales;
    gpu_map<2, 1>(device, call, step);
}
GPU_KERNEL(rms_step, .run = rms_step_run);

/* ---- products with arrays that lack a dim */

/* x [outer, n, inner], y [outer, inner]; a scalar y has neither. */
typedef struct Times {
    const float *x, *y;
    float *out;
    int64_t count, n, inner;
    MxFactor factor;
} Times;

__device__ static inline float times_factor(MxFactor factor, float x, float y) {
    if (factor == MX_FACTOR_PLAIN) return x * y;
    return x / (factor == MX_FACTOR_INVERSE_ROOT ? sqrtf(y) : y);
}

template <class I> __global__ void __launch_bounds__(GPU_BLOCK) times_kernel(Times t) {
    I i = (I)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= (I)t.count) return;
    I inner = (I)t.inner, row = i / inner;
    t.out[i] = times_factor(t.factor, t.x[i], t.y[row / (I)t.n * inner + i % inner]);
}

static void times_run(const MxDevice *device, const MxKernelCall *call) {
    const MxTimesAttr *attr = (const MxTimesAttr *)call->attr;
    MxShape shape = call->in_type[0].shape;
    Times t = {(const float *)call->in[0], (const float *)call->in[1], (float *)call->out[0]};
    t.count = mx_shape_count(shape), t.factor = attr->factor, t.n = t.inner = 1;
    if (!t.out || !t.count) return;
    if (attr->dim == MX_NONE && !call->in_type[1].shape.rank)
        t.n = t.count;
    else if (attr->dim == MX_NONE)
        t.inner = t.count;
    else
        t.n = shape.dim[attr->dim];
    for (int d = attr->dim + 1; attr->dim != MX_NONE && d < shape.rank; d++)
        t.inner *= shape.dim[d];
    auto kernel = t.count <= INT32_MAX ? times_kernel<uint32_t> : times_kernel<int64_t>;
    gpu_launch(device, kernel, gpu_blocks(t.count), GPU_BLOCK, 0, t);
}
GPU_KERNEL(times, .run = times_run);

} // namespace gpu_update
