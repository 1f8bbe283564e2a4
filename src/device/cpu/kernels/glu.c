/* glu.c — gated units: activation(gate) * up and its gradient, a block function for each
 * activation. An activation alone is one with up = 1. */
#include "kernel.h"
#include "vec.h"

static const float gelu_in = 0.797884561f, gelu_cube = 0.044715f; /* sqrt(2 / pi) */

static void silu_block(int64_t n, const float *const *in, float *const *out, const float *param) {
    (void)param;
    const float *gate = in[0], *up = in[1];
    float *y = out[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = gate[i] * vec_sigmoid(gate[i]) * up[i];
}

static void silu_grad_block(int64_t n, const float *const *in, float *const *out,
                            const float *param) {
    (void)param;
    const float *gate = in[0], *up = in[1], *dy = in[2];
    float *dgate = out[0], *dup = out[1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float s = vec_sigmoid(gate[i]), a = gate[i] * s;
        float d = dy[i];
        dgate[i] = d * up[i] * (s + a * (1.0f - s));
        dup[i] = d * a;
    }
}

static void gelu_block(int64_t n, const float *const *in, float *const *out, const float *param) {
    (void)param;
    const float *gate = in[0], *up = in[1];
    float *y = out[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float x = gate[i];
        float t = vec_tanh(gelu_in * (x + gelu_cube * x * x * x));
        y[i] = 0.5f * x * (1.0f + t) * up[i];
    }
}

static void gelu_grad_block(int64_t n, const float *const *in, float *const *out,
                            const float *param) {
    (void)param;
    const float *gate = in[0], *up = in[1], *dy = in[2];
    float *dgate = out[0], *dup = out[1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float x = gate[i], d = dy[i];
        float t = vec_tanh(gelu_in * (x + gelu_cube * x * x * x));
        float slope = gelu_in * (1.0f + 3.0f * gelu_cube * x * x);
        float derivative = 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * slope;
        dgate[i] = d * up[i] * derivative;
        dup[i] = d * (0.5f * x * (1.0f + t));
    }
}

static void relu_block(int64_t n, const float *const *in, float *const *out, const float *param) {
    (void)param;
    const float *gate = in[0], *up = in[1];
    float *y = out[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = (gate[i] < 0.0f ? 0.0f : gate[i]) * up[i];
}

static void relu_grad_block(int64_t n, const float *const *in, float *const *out,
                            const float *param) {
    (void)param;
    const float *gate = in[0], *up = in[1], *dy = in[2];
    float *dgate = out[0], *dup = out[1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float d = dy[i], x = gate[i];
        dgate[i] = x > 0.0f ? d * up[i] : 0.0f;
        dup[i] = d * (x < 0.0f ? 0.0f : x);
    }
}

static void linear_block(int64_t n, const float *const *in, float *const *out, const float *param) {
    (void)param;
    const float *gate = in[0], *up = in[1];
    float *y = out[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = gate[i] * up[i];
}

static void linear_grad_block(int64_t n, const float *const *in, float *const *out,
                              const float *param) {
    (void)param;
    const float *gate = in[0], *up = in[1], *dy = in[2];
    float *dgate = out[0], *dup = out[1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float d = dy[i], x = gate[i];
        dgate[i] = d * up[i];
        dup[i] = d * x;
    }
}

static void sigmoid_block(int64_t n, const float *const *in, float *const *out,
                          const float *param) {
    (void)param;
    const float *gate = in[0], *up = in[1];
    float *y = out[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = vec_sigmoid(gate[i]) * up[i];
}

static void sigmoid_grad_block(int64_t n, const float *const *in, float *const *out,
                               const float *param) {
    (void)param;
    const float *gate = in[0], *up = in[1], *dy = in[2];
    float *dgate = out[0], *dup = out[1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float d = dy[i], s = vec_sigmoid(gate[i]);
        dgate[i] = d * up[i] * (s * (1.0f - s));
        dup[i] = d * s;
    }
}

static const struct {
    CpuMapBlock *forward, *backward;
} activations[MX_ACTIVATION_COUNT] = {
    [MX_SILU] = {silu_block, silu_grad_block},
    [MX_GELU] = {gelu_block, gelu_grad_block},
    [MX_RELU] = {relu_block, relu_grad_block},
    [MX_LINEAR] = {linear_block, linear_grad_block},
    [MX_SIGMOID] = {sigmoid_block, sigmoid_grad_block},
};

static void glu_run(const MxDevice *device, const MxKernelCall *call) {
    cpu_map(device, call, 2, activations[((const MxGluAttr *)call->attr)->activation].forward,
            NULL);
}

static void glu_grad_run(const MxDevice *device, const MxKernelCall *call) {
    cpu_map(device, call, 3, activations[((const MxGluAttr *)call->attr)->activation].backward,
            NULL);
}

const MxKernel cpu_glu = {.run = glu_run};
const MxKernel cpu_glu_grad = {.run = glu_grad_run};

/* ---- an activation alone; param is its number */

static void fill_ones(int64_t n, float *ones) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) ones[i] = 1.0f;
}

static void activate_block(int64_t n, const float *const *in, float *const *out,
                           const float *param) {
    _Alignas(CPU_ALIGN) float ones[CPU_MAP_BLOCK];
    fill_ones(n, ones);
    activations[(int)*param].forward(n, (const float *const[]){in[0], ones}, out, NULL);
}

static void activate_grad_block(int64_t n, const float *const *in, float *const *out,
                                const float *param) {
    _Alignas(CPU_ALIGN) float ones[CPU_MAP_BLOCK], d_ones[CPU_MAP_BLOCK];
    fill_ones(n, ones);
    activations[(int)*param].backward(n, (const float *const[]){in[0], ones, in[1]},
                                      (float *const[]){out[0], d_ones}, NULL);
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
