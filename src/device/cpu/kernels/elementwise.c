/* elementwise.c — kernels whose output element depends on the input elements at the same position:
 * one block function each, driven by cpu_map. Also the two related sums over leading dims and of
 * flags. */
#include "kernel.h"
#include "vec.h"

/* ---- copy, cast, add, scale */

static void copy_block(int64_t n, const float *const *in, float *const *out, const float *param) {
    (void)param;
    const float *x = in[0];
    float *y = out[0];
    if (x == y) return;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = x[i];
}

static void copy_run(const MxDevice *device, const MxKernelCall *call) {
    cpu_map(device, call, 1, copy_block, NULL);
}

const MxKernel cpu_copy = {.run = copy_run};
const MxKernel cpu_cast = {.run = copy_run};

static void add_block(int64_t n, const float *const *in, float *const *out, const float *param) {
    (void)param;
    const float *x = in[0], *y = in[1];
    float *z = out[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) z[i] = x[i] + y[i];
}

static void add_run(const MxDevice *device, const MxKernelCall *call) {
    cpu_map(device, call, 2, add_block, NULL);
}

const MxKernel cpu_add = {.run = add_run};

static void multiply_block(int64_t n, const float *const *in, float *const *out,
                           const float *param) {
    (void)param;
    const float *x = in[0], *y = in[1];
    float *z = out[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) z[i] = x[i] * y[i];
}

static void multiply_run(const MxDevice *device, const MxKernelCall *call) {
    cpu_map(device, call, 2, multiply_block, NULL);
}

const MxKernel cpu_multiply = {.run = multiply_run};

static void scale_block(int64_t n, const float *const *in, float *const *out, const float *param) {
    const float *x = in[0], factor = param[0], plus = param[1];
    float *y = out[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * factor + plus;
}

static void scale_run(const MxDevice *device, const MxKernelCall *call) {
    const MxScaleAttr *attr = call->attr;
    const float param[] = {(float)attr->factor, (float)attr->plus};
    cpu_map(device, call, 1, scale_block, param);
}

const MxKernel cpu_scale = {.run = scale_run};

/* ---- soft cap */

static void softcap_block(int64_t n, const float *const *in, float *const *out,
                          const float *param) {
    const float *x = in[0], cap = param[0], inverse = param[1];
    float *y = out[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = cap * vec_tanh(x[i] * inverse);
}

static void softcap_grad_block(int64_t n, const float *const *in, float *const *out,
                               const float *param) {
    const float *x = in[0], *dy = in[1], inverse = param[1];
    float *dx = out[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float t = vec_tanh(x[i] * inverse);
        dx[i] = dy[i] * (1.0f - t * t);
    }
}

static void softcap_run(const MxDevice *device, const MxKernelCall *call) {
    double cap = ((const MxSoftcapAttr *)call->attr)->cap;
    const float param[] = {(float)cap, (float)(1 / cap)};
    cpu_map(device, call, 1, softcap_block, param);
}

static void softcap_grad_run(const MxDevice *device, const MxKernelCall *call) {
    double cap = ((const MxSoftcapAttr *)call->attr)->cap;
    const float param[] = {(float)cap, (float)(1 / cap)};
    cpu_map(device, call, 2, softcap_grad_block, param);
}

const MxKernel cpu_softcap = {.run = softcap_run};
const MxKernel cpu_softcap_grad = {.run = softcap_grad_run};

/* ---- scalars */

static void ratio_run(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    float eps = (float)((const MxRatioAttr *)call->attr)->eps;
    const float *x = call->in[0], *y = call->in[1];
    float *out = call->out[0];
    if (out) *out = *x / (*y + eps);
}

const MxKernel cpu_ratio = {.run = ratio_run};

static void count_nonzero_run(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    const int32_t *x = call->in[0];
    int64_t n = mx_shape_count(call->in_type[0].shape), count = 0;
    n /= ((const MxCountAttr *)call->attr)->parts;
#pragma omp simd reduction(+ : count)
    for (int64_t i = 0; i < n; i++) count += x[i] != 0;
    if (call->out[0]) *(float *)call->out[0] = (float)count;
}

const MxKernel cpu_count_nonzero = {.run = count_nonzero_run};

static void count_segments_run(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    const int32_t *segments = call->in[0];
    MxShape shape = call->in_type[0].shape;
    int64_t count = 0;
    for (int64_t row = 0; row < shape.dim[0]; row++) {
        int32_t most = 1;
        for (int64_t i = 0; i < shape.dim[1]; i++, segments++)
            if (*segments > most) most = *segments;
        count += most;
    }
    if (call->out[0]) *(float *)call->out[0] = (float)count;
}

const MxKernel cpu_count_segments = {.run = count_segments_run};

static void count_equal_run(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    int64_t n = mx_shape_count(call->in_type[0].shape), count = 0;
    const int32_t *x = call->in[0], *y = call->in[1], *weights = call->in[2];
    for (int64_t i = 0; i < n; i++) count += weights[i] != 0 && x[i] == y[i];
    if (call->out[0]) *(float *)call->out[0] = (float)count;
}

const MxKernel cpu_count_equal = {.run = count_equal_run};

/* ---- sum over leading dims */

enum { COLUMNS = 256 }; /* sums that a thread keeps at hand */

static void add_row(int64_t n, const float *x, double *sum) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) sum[i] += (double)x[i];
}

static void sum_columns(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    double sum[COLUMNS] = {0};
    float row[COLUMNS];
    MX_ASSERT(end - begin <= COLUMNS);
    int64_t width = mx_shape_count(call->out_type[0].shape), n = end - begin;
    int64_t rows = mx_shape_count(call->in_type[0].shape) / width;
    for (int64_t i = 0; i < rows; i++)
        add_row(n, cpu_read(call->in[0], call->in_type[0].dtype, i * width + begin, n, row), sum);
    for (int64_t i = 0; i < n; i++) row[i] = (float)sum[i];
    MxDtype dtype = call->out_type[0].dtype;
    if (call->accumulate & 1)
        cpu_add_to(row, n, call->out[0], dtype, begin);
    else if (dtype == MX_F32)
        memcpy((float *)call->out[0] + begin, row, (size_t)n * sizeof(float));
    else
        cpu_write(row, n, call->out[0], dtype, begin);
}

static void sum_lead_run(const MxDevice *device, const MxKernelCall *call) {
    if (call->out[0])
        cpu_for(device, mx_shape_count(call->out_type[0].shape), COLUMNS, sum_columns, call);
}

const MxKernel cpu_sum_lead = {.run = sum_lead_run};
