/* activation.cu — gated units: activation(gate) * up and its gradient, and activations alone. An
 * activation is a type with its value and its slope, of which the kernels are made. */
#include "device/cuda/map.cuh"

namespace gpu_activation {

/* ---- activations */

/* The fast division is as good as the other where the divisor is at least 1; beyond its range the
 * quotient is 0, as it should be. */
__device__ static inline float sigmoid_of(float x) {
    return __fdividef(1.0f, 1.0f + expf(-x));
}

struct act_silu {
    __device__ static float value(float x) { return x * sigmoid_of(x); }
    __device__ static float slope(float x) {
        float s = sigmoid_of(x);
        return s + x * s * (1.0f - s);
    }
};

/* 1/2 (1 + tanh(u)) is the sigmoid of 2 u: half the work. */
struct act_gelu {
    static constexpr float in = 1.595769122f, cube = 0.044715f; /* 2 sqrt(2 / pi) */
    __device__ static float share(float x) { return sigmoid_of(in * (x + cube * x * x * x)); }
    __device__ static float value(float x) { return x * share(x); }
    __device__ static float slope(float x) {
        float s = share(x);
        return s + x * s * (1.0f - s) * (in * (1.0f + 3.0f * cube * x * x));
    }
};

/* The normal distribution, and density 1 / sqrt(2 pi) exp(-x^2 / 2). Of the tail, a polynomial in
 * 1 / (1 + p |x| / sqrt(2)) times that exponential, within 1e-7. Source: Abramowitz and Stegun
 * 7.1.26. */
struct act_gelu_exact {
    __device__ static float normal(float x, float *density) {
        float bell = expf(-0.5f * x * x);
        float t = __fdividef(1.0f, 1.0f + 0.231641888f * fabsf(x)), p = 1.061405429f;
        p = p * t - 1.453152027f;
        p = p * t + 1.421413741f;
        p = p * t - 0.284496736f;
        p = p * t + 0.254829592f;
        float tail = 0.5f * p * t * bell;
        *density = 0.398942280f * bell;
        return x < 0.0f ? tail : 1.0f - tail;
    }
    __device__ static float value(float x) {
        float density;
        return x * normal(x, &density);
    }
    __device__ static float slope(float x) {
        float density, below = normal(x, &density);
        return below + x * density;
    }
};

struct act_relu {
    __device__ static float value(float x) { return x < 0.0f ? 0.0f : x; }
    __device__ static float slope(float x) { return x > 0.0f ? 1.0f : 0.0f; }
};

struct act_linear {
    __device__ static float value(float x) { return x; }
    __device__ static float slope(float) { return 1.0f; }
};

struct act_sigmoid {
    __device__ static float value(float x) { return sigmoid_of(x); }
    __device__ static float slope(float x) {
        float s = sigmoid_of(x);
        return s * (1.0f - s);
    }
};

struct act_quick_gelu {
    static constexpr float in = 1.702f;
    __device__ static float value(float x) { return x * sigmoid_of(in * x); }
    __device__ static float slope(float x) {
        float s = sigmoid_of(in * x);
        return s + in * x * s * (1.0f - s);
    }
};

struct act_elu {
    __device__ static float value(float x) { return x > 0.0f ? x : expm1f(x); }
    __device__ static float slope(float x) { return x > 0.0f ? 1.0f : expf(x); }
};

/* Source: Klambauer et al., Self-Normalizing Neural Networks (2017), equation 14. */
struct act_selu {
    static constexpr float scale = 1.05070099f, below = 1.67326324f;
    __device__ static float value(float x) { return scale * (x > 0.0f ? x : below * expm1f(x)); }
    __device__ static float slope(float x) { return scale * (x > 0.0f ? 1.0f : below * expf(x)); }
};

struct act_tanh {
    __device__ static float value(float x) { return tanhf(x); }
    __device__ static float slope(float x) {
        float t = tanhf(x);
        return 1.0f - t * t;
    }
};

struct act_softplus {
    __device__ static float value(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }
    __device__ static float slope(float x) { return sigmoid_of(x); }
};

struct act_sqrtsoftplus {
    __device__ static float value(float x) { return sqrtf(act_softplus::value(x)); }
    __device__ static float slope(float x) {
        const float least = 1e-37f;
        return 0.5f * sigmoid_of(x) / sqrtf(act_softplus::value(x) + least);
    }
};

/* ---- gated units */

__device__ static inline float below(float x, float limit) {
    return x > limit ? limit : x;
}
__device__ static inline float between(float x, float limit) {
    return x < -limit ? -limit : below(x, limit);
}

template <class A> struct Glu : GpuEach {
    float limit, term;
    __device__ void operator()(const float *in, float *out) const {
        out[0] = A::value(below(in[0], limit)) * (between(in[1], limit) + term);
    }
};

template <class A> struct GluGrad : GpuEach {
    float limit, term;
    __device__ void operator()(const float *in, float *out) const {
        float x = in[0], u = in[1], d = in[2];
        float flows = d * (between(u, limit) + term) * A::slope(below(x, limit));
        float to_up = d * A::value(below(x, limit));
        out[0] = x > limit ? 0.0f : flows;
        out[1] = u > limit || u < -limit ? 0.0f : to_up;
    }
};

template <class A> struct Activate : GpuEach {
    __device__ void operator()(const float *in, float *out) const { out[0] = A::value(in[0]); }
};

template <class A> struct ActivateGrad : GpuEach {
    __device__ void operator()(const float *in, float *out) const {
        out[0] = in[1] * A::slope(in[0]);
    }
};

template <class F> static F limited(const MxKernelCall *call) {
    const MxGluAttr *attr = (const MxGluAttr *)call->attr;
    F f;
    f.limit = attr->limit > 0 ? (float)attr->limit : INFINITY;
    f.term = (float)attr->term;
    return f;
}

/* ---- the kernels of each activation */

typedef void Run(const MxDevice *device, const MxKernelCall *call);

template <class A> static void run_glu(const MxDevice *device, const MxKernelCall *call) {
    gpu_map<2, 1>(device, call, limited<Glu<A>>(call));
}
template <class A> static void run_glu_grad(const MxDevice *device, const MxKernelCall *call) {
    gpu_map<3, 2>(device, call, limited<GluGrad<A>>(call));
}
template <class A> static void run_activate(const MxDevice *device, const MxKernelCall *call) {
    gpu_map<1, 1>(device, call, Activate<A>());
}
template <class A> static void run_activate_grad(const MxDevice *device, const MxKernelCall *call) {
    gpu_map<2, 1>(device, call, ActivateGrad<A>());
}

typedef struct Runs {
    Run *glu, *glu_grad, *activate, *activate_grad;
} Runs;

template <class A> static constexpr Runs runs_of() {
    return {run_glu<A>, run_glu_grad<A>, run_activate<A>, run_activate_grad<A>};
}

static const Runs *runs(const MxKernelCall *call) {
#define MX_ALSO_CALLED(function, other)
#define MX_ACTIVATION(name, function) runs_of<act_##function>(),
    static const Runs all[MX_ACTIVATION_COUNT] = {
#include <mx/ops_activations.def>
    };
#undef MX_ACTIVATION
#undef MX_ALSO_CALLED
    return &all[((const MxGluAttr *)call->attr)->activation];
}

static void glu_run(const MxDevice *device, const MxKernelCall *call) {
    runs(call)->glu(device, call);
}
static void glu_grad_run(const MxDevice *device, const MxKernelCall *call) {
    runs(call)->glu_grad(device, call);
}
static void activate_run(const MxDevice *device, const MxKernelCall *call) {
    runs(call)->activate(device, call);
}
static void activate_grad_run(const MxDevice *device, const MxKernelCall *call) {
    runs(call)->activate_grad(device, call);
}
GPU_KERNEL(glu, .run = glu_run);
GPU_KERNEL(glu_grad, .run = glu_grad_run);
GPU_KERNEL(activate, .run = activate_run);
GPU_KERNEL(activate_grad, .run = activate_grad_run);

} // namespace gpu_activation
