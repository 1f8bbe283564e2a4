/* glu.c — gated units: activation(gate) * up and its gradient. An activation is two functions, its
 * value and its slope; the loops over them are generated from one text, so that they become vector
 * code. An activation alone is one with up = 1. */
#include "kernel.h"
#include "vec.h"

#include <math.h>

static const float gelu_in = 0.797884561f, gelu_cube = 0.044715f; /* sqrt(2 / pi) */
static const float quick_in = 1.702f;

static inline float silu_value(float x) {
    return x * vec_sigmoid(x);
}
static inline float silu_slope(float x) {
    float s = vec_sigmoid(x);
    return s + x * s * (1.0f - s);
}

static inline float gelu_value(float x) {
    float t = vec_tanh(gelu_in * (x + gelu_cube * x * x * x));
    return 0.5f * x * (1.0f + t);
}
static inline float gelu_slope(float x) {
    float t = vec_tanh(gelu_in * (x + gelu_cube * x * x * x));
    float slope = gelu_in * (1.0f + 3.0f * gelu_cube * x * x);
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * slope;
}

/* The normal distribution, and density 1 / sqrt(2 pi) exp(-x^2 / 2). Of the tail, a polynomial
 * in 1 / (1 + p |x| / sqrt(2)) times that exponential, within 1e-7. Source: Abramowitz and Stegun
 * 7.1.26. */
static inline float normal(float x, float *density) {
    float bell = vec_exp(-0.5f * x * x), magnitude = x < 0.0f ? -x : x;
    float t = 1.0f / (1.0f + 0.231641888f * magnitude), p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    float tail = 0.5f * p * t * bell;
    *density = 0.398942280f * bell;
    return x < 0.0f ? tail : 1.0f - tail;
}
static inline float gelu_exact_value(float x) {
    float density;
    return x * normal(x, &density);
}
static inline float gelu_exact_slope(float x) {
    float density, below = normal(x, &density);
    return below + x * density;
}

static inline float relu_value(float x) {
    return x < 0.0f ? 0.0f : x;
}
static inline float relu_slope(float x) {
    return x > 0.0f ? 1.0f : 0.0f;
}

static inline float linear_value(float x) {
    return x;
}
static inline float linear_slope(float x) {
    (void)x;
    return 1.0f;
}

static inline float sigmoid_value(float x) {
    return vec_sigmoid(x);
}
static inline float sigmoid_slope(float x) {
    float s = vec_sigmoid(x);
    return s * (1.0f - s);
}

static inline float quick_gelu_value(float x) {
    return x * vec_sigmoid(quick_in * x);
}
static inline float quick_gelu_slope(float x) {
    float s = vec_sigmoid(quick_in * x);
    return s + quick_in * x * s * (1.0f - s);
}

/* exp(x) - 1 for x below 0, by a function that keeps what is small. */
static inline float shrink(float x) {
    float t = vec_tanh(0.5f * x);
    return 2.0f * t / (1.0f - t);
}
static inline float elu_value(float x) {
    return x > 0.0f ? x : shrink(x > 0.0f ? 0.0f : x);
}
static inline float elu_slope(float x) {
    return x > 0.0f ? 1.0f : vec_exp(x > 0.0f ? 0.0f : x);
}

/* Source: Klambauer et al., Self-Normalizing Neural Networks (2017), equation 14. */
static const float selu_scale = 1.05070099f, selu_below = 1.67326324f;
static inline float selu_value(float x) {
    return selu_scale * (x > 0.0f ? x : selu_below * elu_value(x));
}
static inline float selu_slope(float x) {
    return selu_scale * (x > 0.0f ? 1.0f : selu_below * elu_slope(x));
}

static inline float tanh_value(float x) {
    return vec_tanh(x);
}
static inline float tanh_slope(float x) {
    float t = vec_tanh(x);
    return 1.0f - t * t;
}

/* With what the sum 1 + exp(-|x|) lost when it was rounded. */
static inline float softplus_value(float x) {
    float e = vec_exp(-fabsf(x)), sum = 1.0f + e, lost = e - (sum - 1.0f);
    return (x > 0.0f ? x : 0.0f) + vec_log(sum) + lost / sum;
}
static inline float softplus_slope(float x) {
    return vec_sigmoid(x);
}
static inline float sqrtsoftplus_value(float x) {
    return sqrtf(softplus_value(x));
}
static inline float sqrtsoftplus_slope(float x) {
    const float least = 1e-37f;
    return 0.5f * vec_sigmoid(x) / sqrtf(softplus_value(x) + least);
}

/* ---- loops */

enum { LIMIT, TERM, PARAMS };

static inline float below(float x, float limit) {
    return x > limit ? limit : x;
}
static inline float between(float x, float limit) {
    return x < -limit ? -limit : below(x, limit);
}

// clang-format off
#define LOOPS(activation)                                                                          \
    static void activation##_block(int64_t n, const float *const *in, float *const *out,           \
                                   const float *param) {                                           \
        const float *gate = in[0], *up = in[1], limit = param[LIMIT], term = param[TERM];          \
        float *y = out[0];                                                                         \
        _Pragma("omp simd")                                                                        \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i] = activation##_value(below(gate[i], limit)) * (between(up[i], limit) + term);     \
    }                                                                                              \
    static void activation##_grad_block(int64_t n, const float *const *in, float *const *out,      \
                                        const float *param) {                                      \
        const float *gate = in[0], *up = in[1], *dy = in[2];                                       \
        const float limit = param[LIMIT], term = param[TERM];                                      \
        float *dgate = out[0], *dup = out[1];                                                      \
        _Pragma("omp simd")                                                                        \
        for (int64_t i = 0; i < n; i++) {                                                          \
            float x = gate[i], u = up[i], d = dy[i];                                               \
            float flows = d * (between(u, limit) + term) * activation##_slope(below(x, limit));    \
            float to_up = d * activation##_value(below(x, limit));                                 \
            dgate[i] = x > limit ? 0.0f : flows;                                                   \
            dup[i] = u > limit || u < -limit ? 0.0f : to_up;                                       \
        }                                                                                          \
    }
// clang-format on

#define MX_ALSO_CALLED(function, other)
#define MX_ACTIVATION(name, function) LOOPS(function)
#include <mx/ops_activations.def>
#undef MX_ACTIVATION

#define MX_ACTIVATION(name, function) [MX_##name] = {function##_block, function##_grad_block},
static const struct {
    CpuMapBlock *forward, *backward;
} activations[MX_ACTIVATION_COUNT] = {
#include <mx/ops_activations.def>
};
#undef MX_ACTIVATION
#undef MX_ALSO_CALLED

static void read_params(const MxKernelCall *call, float param[PARAMS]) {
    const MxGluAttr *a = call->attr;
    param[LIMIT] = a->limit > 0 ? (float)a->limit : INFINITY;
    param[TERM] = (float)a->term;
}

static void glu_run(const MxDevice *device, const MxKernelCall *call) {
    float param[PARAMS];
    read_params(call, param);
    cpu_map(device, call, 2, activations[((const MxGluAttr *)call->attr)->activation].forward,
            param);
}

static void glu_grad_run(const MxDevice *device, const MxKernelCall *call) {
    float param[PARAMS];
    read_params(call, param);
    cpu_map(device, call, 3, activations[((const MxGluAttr *)call->attr)->activation].backward,
            param);
}

const MxKernel cpu_glu = {.run = glu_run};
const MxKernel cpu_glu_grad = {.run = glu_grad_run};

/* ---- an activation alone; param is its number */

static const float no_limit[PARAMS] = {[LIMIT] = INFINITY};

static void fill_ones(int64_t n, float *ones) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) ones[i] = 1.0f;
}

static void activate_block(int64_t n, const float *const *in, float *const *out,
                           const float *param) {
    _Alignas(CPU_ALIGN) float ones[CPU_MAP_BLOCK];
    fill_ones(n, ones);
    activations[(int)*param].forward(n, (const float *const[]){in[0], ones}, out, no_limit);
}

static void activate_grad_block(int64_t n, const float *const *in, float *const *out,
                                const float *param) {
    _Alignas(CPU_ALIGN) float ones[CPU_MAP_BLOCK], d_ones[CPU_MAP_BLOCK];
    fill_ones(n, ones);
    activations[(int)*param].backward(n, (const float *const[]){in[0], ones, in[1]},
                                      (float *const[]){out[0], d_ones}, no_limit);
}

static void activate_run(const MxDevice *device, const MxKernelCall *call) {
    const float number = (float)((const MxGluAttr *)call->attr)->activation;
    cpu_map(device, call, 1, activate_block, &number);
}

static void activate_grad_run(const MxDevice *device, const MxKernelCall *call) {
    const float number = (float)((const MxGluAttr *)call->attr)->activation;
    cpu_map(device, call, 2, activate_grad_block, &number);
}

const MxKernel cpu_activate = {.run = activate_run};
const MxKernel cpu_activate_grad = {.run = activate_grad_run};
