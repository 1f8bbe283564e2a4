/* update.c — optimizer updates: one pass over contiguous memory each. */
#include "kernel.h"

#include <math.h>

/* Numbers that blocks get. Those of a step stand as in the variable, `enum MX_HYPER_*`. */
enum { CLIP = MX_HYPER_COUNT, DECAY_B1, DECAY_B2, EPS, EPS_ROOT, WEIGHT_DECAY, FACTOR, PARAMS };

/* Under JAX's weak types a decay takes the dtype of the moment that it multiplies. */
static float decay_of(float b, MxDtype mu) {
    return mu == MX_BF16 ? mx_bf16_to_f32(mx_f32_to_bf16(b)) : b;
}

/* The numbers of a step, from the inputs that hold them. */
static void read_hyper(const MxKernelCall *call, int hyper, float param[PARAMS]) {
    memcpy(param, call->in[hyper], MX_HYPER_COUNT * sizeof *param);
}

/* ---- Adam and descent */

/* What the root of the second moment divides is the first one, or what is ahead of it. */
static inline void adam(bool is_ahead, int64_t n, const float *const *in, float *const *out,
                        const float *param) {
    const float *p = in[0], *g = in[1], *mu = in[2], *nu = in[3];
    float *new_p = out[0], *new_mu = out[1], *new_nu = out[2];
    const float clip = param[CLIP], lr = param[MX_HYPER_LR], bias1 = param[MX_HYPER_BIAS1];
    const float bias2 = param[MX_HYPER_BIAS2], next1 = param[MX_HYPER_NEXT1];
    const float b1 = param[DECAY_B1], full_b1 = param[MX_HYPER_B1];
    const float one_b1 = param[MX_HYPER_ONE_B1], b2 = param[MX_HYPER_B2];
    const float one_b2 = param[MX_HYPER_ONE_B2], eps = param[EPS], eps_root = param[EPS_ROOT];
    const float decay = param[WEIGHT_DECAY];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float gradient = g[i] * clip;
        float m = b1 * mu[i] + one_b1 * gradient;
        float v = b2 * nu[i] + one_b2 * (gradient * gradient);
        float first = is_ahead ? full_b1 * (m / next1) + one_b1 * (gradient / bias1) : m / bias1;
        float update = first / (sqrtf(v / bias2 + eps_root) + eps) + decay * p[i];
        new_p[i] = p[i] - lr * update;
        new_mu[i] = m;
        new_nu[i] = v;
    }
}

static void adamw_block(int64_t n, const float *const *in, float *const *out, const float *param) {
    adam(false, n, in, out, param);
}

static void nesterov_block(int64_t n, const float *const *in, float *const *out,
                           const float *param) {
    adam(true, n, in, out, param);
}

static void adamw_run(const MxDevice *device, const MxKernelCall *call) {
    const MxAdamwAttr *a = call->attr;
    float param[PARAMS] = {0};
    read_hyper(call, 4, param);
    param[CLIP] = *(const float *)call->in[5];
    param[DECAY_B1] = decay_of(param[MX_HYPER_B1], call->in_type[2].dtype);
    param[EPS] = (float)a->eps;
    param[EPS_ROOT] = (float)a->eps_root;
    param[WEIGHT_DECAY] = (float)a->weight_decay;
    cpu_map(device, call, 4, a->nesterov ? nesterov_block : adamw_block, param);
}

const MxKernel cpu_adamw = {.run = adamw_run};

static void sgd_block(int64_t n, const float *const *in, float *const *out, const float *param) {
    const float *p = in[0], *g = in[1], step = param[0];
    float *new_p = out[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) new_p[i] = p[i] - step * g[i];
}

static void sgd_run(const MxDevice *device, const MxKernelCall *call) {
    float step = ((const float *)call->in[2])[MX_HYPER_LR] * *(const float *)call->in[3];
    cpu_map(device, call, 2, sgd_block, &step);
}

const MxKernel cpu_sgd = {.run = sgd_run};

static void lion_block(int64_t n, const float *const *in, float *const *out, const float *param) {
    const float *p = in[0], *g = in[1], *mu = in[2];
    float *new_p = out[0], *new_mu = out[1];
    const float clip = param[CLIP], lr = param[MX_HYPER_LR], decay = param[WEIGHT_DECAY];
    const float b1 = param[DECAY_B1], one_b1 = param[MX_HYPER_ONE_B1];
    const float b2 = param[DECAY_B2], one_b2 = param[MX_HYPER_ONE_B2];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float gradient = g[i] * clip;
        float ahead = b1 * mu[i] + one_b1 * gradient;
        float sign = ahead > 0 ? 1.0f : ahead < 0 ? -1.0f : ahead;
        float m = b2 * mu[i] + one_b2 * gradient;
        new_p[i] = p[i] - lr * (sign + decay * p[i]);
        new_mu[i] = m;
    }
}

static void lion_run(const MxDevice *device, const MxKernelCall *call) {
    float param[PARAMS] = {0};
    read_hyper(call, 3, param);
    param[CLIP] = *(const float *)call->in[4];
    param[DECAY_B1] = decay_of(param[MX_HYPER_B1], call->in_type[2].dtype);
    param[DECAY_B2] = decay_of(param[MX_HYPER_B2], call->in_type[2].dtype);
    param[WEIGHT_DECAY] = (float)((const MxLionAttr *)call->attr)->weight_decay;
    cpu_map(device, call, 3, lion_block, param);
}

const MxKernel cpu_lion = {.run = lion_run};

static void schedule_free_block(int64_t n, const float *const *in, float *const *out,
                                const float *param) {
    const float *x = in[0], *g = in[1], *d = in[2], *nu = in[3];
    float *new_x = out[0], *new_d = out[1], *new_nu = out[2];
    const float clip = param[CLIP], lr = param[MX_HYPER_LR], bias2 = param[MX_HYPER_BIAS2];
    const float kept = param[MX_HYPER_B1], share = param[MX_HYPER_ONE_B1], mix = param[FACTOR];
    const float b2 = param[MX_HYPER_B2], one_b2 = param[MX_HYPER_ONE_B2], eps = param[EPS];
    const float decay = param[WEIGHT_DECAY];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float gradient = g[i] * clip;
        float v = b2 * nu[i] + one_b2 * (gradient * gradient);
        float update = gradient / (sqrtf(v / bias2) + eps) + decay * (x[i] + mix * d[i]);
        float off = d[i] - lr * update; /* z less the old x */
        new_x[i] = x[i] + share * off;
        new_d[i] = kept * off;
        new_nu[i] = v;
    }
}

static void schedule_free_run(const MxDevice *device, const MxKernelCall *call) {
    const MxScheduleFreeAttr *a = call->attr;
    float param[PARAMS] = {0};
    read_hyper(call, 4, param);
    param[CLIP] = *(const float *)call->in[5];
    param[FACTOR] = (float)(1 - a->b1);
    param[EPS] = (float)a->eps;
    param[WEIGHT_DECAY] = (float)a->weight_decay;
    cpu_map(device, call, 4, schedule_free_block, param);
}

const MxKernel cpu_schedule_free = {.run = schedule_free_run};

/* ---- parts of updates by matrices */

static void momentum_block(int64_t n, const float *const *in, float *const *out,
                           const float *param) {
    const float *g = in[0], *mu = in[1];
    float *ahead = out[0], *new_mu = out[1];
    const float clip = param[CLIP], bias1 = param[MX_HYPER_BIAS1], next1 = param[MX_HYPER_NEXT1];
    const float b1 = param[DECAY_B1], full_b1 = param[MX_HYPER_B1];
    const float one_b1 = param[MX_HYPER_ONE_B1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float gradient = g[i] * clip;
        float m = b1 * mu[i] + one_b1 * gradient;
        ahead[i] = full_b1 * (m / next1) + one_b1 * (gradient / bias1);
        new_mu[i] = m;
    }
}

static void momentum_run(const MxDevice *device, const MxKernelCall *call) {
    float param[PARAMS] = {0};
    read_hyper(call, 2, param);
    param[CLIP] = *(const float *)call->in[3];
    param[DECAY_B1] = decay_of(param[MX_HYPER_B1], call->in_type[1].dtype);
    cpu_map(device, call, 2, momentum_block, param);
}

const MxKernel cpu_momentum = {.run = momentum_run};

static void unit_block(int64_t n, const float *const *in, float *const *out, const float *param) {
    const float *x = in[0], norm = param[0];
    float *y = out[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = x[i] / norm;
}

/* The part of x and y that has one norm. */
static void unit_run(const MxDevice *device, const MxKernelCall *call) {
    const float eps = (float)((const MxUnitAttr *)call->attr)->eps, *squares = call->in[1];
    int64_t n = mx_shape_count(call->in_type[1].shape);
    MxType part = {.dtype = call->in_type[0].dtype,
                   .shape = MX_SHAPE(mx_shape_count(call->in_type[0].shape) / cpu_max(1, n))};
    int64_t bytes = part.shape.dim[0] * (int64_t)mx_dtype_bytes(part.dtype);
    MxKernelCall one = *call;
    one.in_type = one.out_type = &part;
    for (int64_t i = 0; i < n && call->out[0]; i++) {
        void *x = (char *)call->in[0] + i * bytes, *y = (char *)call->out[0] + i * bytes;
        float norm = sqrtf(squares[i]) + eps;
        one.in = &x;
        one.out = &y;
        cpu_map(device, &one, 1, unit_block, &norm);
    }
}

const MxKernel cpu_unit = {.run = unit_run};

static void descend_block(int64_t n, const float *const *in, float *const *out,
                          const float *param) {
    const float *p = in[0], *u = in[1];
    const float lr = param[MX_HYPER_LR], factor = param[FACTOR], decay = param[WEIGHT_DECAY];
    float *new_p = out[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) new_p[i] = p[i] - lr * (factor * u[i] + decay * p[i]);
}

static void descend_run(const MxDevice *device, const MxKernelCall *call) {
    const MxDescendAttr *a = call->attr;
    float param[PARAMS] = {0};
    read_hyper(call, 2, param);
    param[FACTOR] = (float)a->factor;
    param[WEIGHT_DECAY] = (float)a->weight_decay;
    cpu_map(device, call, 2, descend_block, param);
}

const MxKernel cpu_descend = {.run = descend_run};

/* ---- steps that are left out */

static void spike_run(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    float norm = sqrtf(*(const float *)call->in[0]);
    float threshold = (float)((const MxSpikeAttr *)call->attr)->threshold;
    const float *limit = call->in[1];
    if (norm > threshold) norm = threshold;
    if (call->out[0]) *(float *)call->out[0] = norm - limit[0] <= limit[1] ? 0.0f : 1.0f;
}

const MxKernel cpu_spike = {.run = spike_run};

static void select_block(int64_t n, const float *const *in, float *const *out, const float *param) {
    const float *x = *param == 0 ? in[0] : in[1];
    if (out[0] != x) memcpy(out[0], x, (size_t)n * sizeof *x);
}

static void select_run(const MxDevice *device, const MxKernelCall *call) {
    cpu_map(device, call, 2, select_block, call->in[2]);
}

const MxKernel cpu_select = {.run = select_run};
