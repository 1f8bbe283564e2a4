/* norm.c — centring of rows; RMS normalisation of rows and its gradient. The scale's gradient is a
 * sum over all rows: each piece of rows writes a partial sum to scratch, and the pieces are added
 * up in order. */
#include "kernel.h"

#include <math.h>

enum { MOST_PARTIALS = 64 };

typedef struct Norm {
    const MxKernelCall *call;
    int64_t rows, width, piece;
    int64_t scales; /* that rows have in turn */
    MxDtype dtype;
    float *scale;   /* [scales, width], rounded to x's dtype */
    float *partial; /* [pieces, scales, width] */
    float *block;   /* [workers, blocks of width] */
} Norm;

static float rounded(float x, MxDtype dtype) {
    return dtype == MX_BF16 ? mx_bf16_to_f32(mx_f32_to_bf16(x)) : x;
}

/* As SUMS sums side by side that are added up in pairs: the same whatever the width of vectors, and
 * fast, since no addition waits for the one before. */
static float sum_of_squares(int64_t n, const float *x) {
    enum { SUMS = 32 };
    float sum[SUMS] = {0};
    int64_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int j = 0; j < SUMS; j++) sum[j] += x[i + j] * x[i + j];
    for (int j = 0; i < n; i++, j++) sum[j] += x[i] * x[i];
    for (int half = SUMS / 2; half; half /= 2)
        for (int j = 0; j < half; j++) sum[j] += sum[j + half];
    return sum[0];
}

static void scale_row(int64_t n, const float *x, float rstd, const float *scale, float *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * rstd * scale[i];
}

/* The same with x * rstd rounded to bf16 before the scale. */
static void scale_row_bf16(int64_t n, const float *x, float rstd, const float *scale, float *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = mx_bf16_to_f32(mx_f32_to_bf16(x[i] * rstd)) * scale[i];
}

static Norm norm_of(const MxKernelCall *call) {
    MxShape shape = call->in_type[0].shape;
    Norm norm = {.call = call, .dtype = call->in_type[0].dtype};
    norm.width = shape.dim[shape.rank - 1];
    norm.rows = norm.width ? mx_shape_count(shape) / norm.width : 0;
    norm.scales = 1;
    norm.piece = cpu_max(1, CPU_PIECE / cpu_max(1, norm.width));
    norm.piece = cpu_max(norm.piece, cpu_pieces(norm.rows, MOST_PARTIALS));
    return norm;
}

static Norm scaled_norm_of(const MxKernelCall *call) {
    Norm norm = norm_of(call);
    MxShape scale = call->in_type[1].shape;
    if (scale.rank == 2) norm.scales = scale.dim[0];
    return norm;
}

static void round_scale(const Norm *norm) {
    const float *scale = norm->call->in[1];
    for (int64_t i = 0; i < norm->scales * norm->width; i++)
        norm->scale[i] = rounded(scale[i], norm->dtype);
}

static size_t row_bytes(const Norm *norm) {
    return cpu_padded((size_t)norm->width * sizeof(float));
}

static size_t scale_bytes(const Norm *norm) {
    return cpu_padded((size_t)(norm->scales * norm->width) * sizeof(float));
}

/* Where the scale of a row begins. */
static int64_t scale_at(const Norm *norm, int64_t row) {
    return row % norm->scales * norm->width;
}

/* ---- forward */

static void norm_rows(const void *context, int64_t begin, int64_t end, int worker) {
    const Norm *norm = context;
    const MxKernelCall *call = norm->call;
    double eps = ((const MxRmsnormAttr *)call->attr)->eps;
    int64_t n = norm->width;
    float *block = (float *)((char *)norm->block + 2 * row_bytes(norm) * (size_t)worker);
    float *y_block = block + row_bytes(norm) / sizeof(float), *rstds = call->out[1];
    for (int64_t row = begin; row < end; row++) {
        const float *x = cpu_read(call->in[0], norm->dtype, row * n, n, block);
        float *y = cpu_place(call->out[0], norm->dtype, row * n, y_block);
        const float *scale = norm->scale + scale_at(norm, row);
        float mean = sum_of_squares(n, x) / (float)n;
        float rstd = 1.0f / sqrtf(mean + (float)eps);
        if (rstds) rstds[row] = rstd;
        if (!call->out[0]) continue;
        (norm->dtype == MX_BF16 ? scale_row_bf16 : scale_row)(n, x, rstd, scale, y);
        cpu_write(y, n, call->out[0], norm->dtype, row * n);
    }
}

static size_t rmsnorm_scratch(const MxDevice *device, const MxKernelCall *call) {
    Norm norm = scaled_norm_of(call);
    return scale_bytes(&norm) + row_bytes(&norm) * (size_t)(2 * device->n_threads);
}

static void rmsnorm_run(const MxDevice *device, const MxKernelCall *call) {
    Norm norm = scaled_norm_of(call);
    void *scratch = call->scratch;
    norm.scale = cpu_carve(&scratch, scale_bytes(&norm));
    norm.block = scratch;
    round_scale(&norm);
    cpu_for(device, norm.rows, norm.piece, norm_rows, &norm);
}

const MxKernel cpu_rmsnorm = {.scratch = rmsnorm_scratch, .run = rmsnorm_run};

/* ---- backward: dx = rstd (g - xhat mean(g xhat)), g = dy scale, xhat = x rstd; dscale = sum dy
 * xhat */

static float mean_product(int64_t n, const float *x, const float *dy, const float *scale) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += x[i] * (dy[i] * scale[i]);
    return sum / (float)n;
}

static void grad_row(int64_t n, const float *const x_dy_scale[3], float rstd, float *dx,
                     float *dscale) {
    const float *x = x_dy_scale[0], *dy = x_dy_scale[1], *scale = x_dy_scale[2];
    float mean = mean_product(n, x, dy, scale) * rstd;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float xhat = x[i] * rstd, d = dy[i];
        dscale[i] += d * xhat;
        dx[i] = rstd * (d * scale[i] - xhat * mean);
    }
}

static void grad_rows(const void *context, int64_t begin, int64_t end, int worker) {
    const Norm *norm = context;
    const MxKernelCall *call = norm->call;
    int64_t n = norm->width;
    size_t stride = row_bytes(norm) / sizeof(float);
    float *block = norm->block + 3 * stride * (size_t)worker;
    size_t partial_bytes = scale_bytes(norm);
    float *partial = norm->partial + partial_bytes / sizeof(float) * (size_t)(begin / norm->piece);
    memset(partial, 0, partial_bytes);
    const float *rstd = call->in[2];
    for (int64_t row = begin; row < end; row++) {
        int64_t at = scale_at(norm, row);
        const float *x_dy_scale[] = {cpu_read(call->in[0], norm->dtype, row * n, n, block),
                                     cpu_read(call->in[3], norm->dtype, row * n, n, block + stride),
                                     norm->scale + at};
        bool adds = call->accumulate & 1 && call->out[0];
        float *dx = cpu_place(adds ? NULL : call->out[0], norm->dtype, row * n, block + 2 * stride);
        grad_row(n, x_dy_scale, rstd[row], dx, partial + at);
        if (adds)
            cpu_add_to(dx, n, call->out[0], norm->dtype, row * n);
        else
            cpu_write(dx, n, call->out[0], norm->dtype, row * n);
    }
}

static size_t rmsnorm_grad_scratch(const MxDevice *device, const MxKernelCall *call) {
    Norm norm = scaled_norm_of(call);
    int64_t scales = 1 + cpu_max(1, cpu_pieces(norm.rows, norm.piece));
    return scale_bytes(&norm) * (size_t)scales + row_bytes(&norm) * (size_t)(3 * device->n_threads);
}

static void rmsnorm_grad_run(const MxDevice *device, const MxKernelCall *call) {
    Norm norm = scaled_norm_of(call);
    int64_t n = norm.scales * norm.width;
    void *scratch = call->scratch;
    norm.scale = cpu_carve(&scratch, scale_bytes(&norm));
    norm.block = cpu_carve(&scratch, row_bytes(&norm) * (size_t)(3 * device->n_threads));
    norm.partial = scratch;
    round_scale(&norm);
    memset(norm.partial, 0, scale_bytes(&norm));
    cpu_for(device, norm.rows, norm.piece, grad_rows, &norm);
    float *dscale = call->out[1];
    if (!dscale) return;
    for (int64_t i = 1; i < cpu_pieces(norm.rows, norm.piece); i++)
        cpu_add_to(norm.partial + (size_t)i * (scale_bytes(&norm) / sizeof(float)), n, norm.partial,
                   MX_F32, 0);
    if (!(call->accumulate & 2)) memset(dscale, 0, (size_t)n * sizeof(float));
    cpu_add_to(norm.partial, n, dscale, MX_F32, 0);
}

const MxKernel cpu_rmsnorm_grad = {.scratch = rmsnorm_grad_scratch, .run = rmsnorm_grad_run};

/* ---- centring */

/* Sums side by side, as in sum_of_squares. */
static float sum_of(int64_t n, const float *x) {
    enum { SUMS = 32 };
    float sum[SUMS] = {0};
    int64_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int j = 0; j < SUMS; j++) sum[j] += x[i + j];
    for (int j = 0; i < n; i++, j++) sum[j] += x[i];
    for (int half = SUMS / 2; half; half /= 2)
        for (int j = 0; j < half; j++) sum[j] += sum[j + half];
    return sum[0];
}

static void center_rows(const void *context, int64_t begin, int64_t end, int worker) {
    const Norm *norm = context;
    const MxKernelCall *call = norm->call;
    int64_t n = norm->width;
    float *block = (float *)((char *)norm->block + 2 * row_bytes(norm) * (size_t)worker);
    float *y_block = block + row_bytes(norm) / sizeof(float);
    bool adds = call->accumulate & 1;
    for (int64_t row = begin; row < end; row++) {
        const float *x = cpu_read(call->in[0], norm->dtype, row * n, n, block);
        float *y = cpu_place(adds ? NULL : call->out[0], norm->dtype, row * n, y_block);
        float mean = sum_of(n, x) / (float)n;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = x[i] - mean;
        if (adds)
            cpu_add_to(y, n, call->out[0], norm->dtype, row * n);
        else
            cpu_write(y, n, call->out[0], norm->dtype, row * n);
    }
}

static size_t center_scratch(const MxDevice *device, const MxKernelCall *call) {
    Norm norm = norm_of(call);
    return row_bytes(&norm) * (size_t)(2 * device->n_threads);
}

static void center_run(const MxDevice *device, const MxKernelCall *call) {
    Norm norm = norm_of(call);
    norm.block = call->scratch;
    if (call->out[0]) cpu_for(device, norm.rows, norm.piece, center_rows, &norm);
}

const MxKernel cpu_center = {.scratch = center_scratch, .run = center_run};
