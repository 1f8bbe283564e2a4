/* factor.c — sums along a dim, and products with arrays that lack one. An array is [outer, n,
 * inner] with n elements along that dim. */
#include "kernel.h"

#include <math.h>

typedef struct Along {
    int64_t outer, n, inner;
    bool squares;
    MxFactor factor;
    const float *x, *y;
    float *out;
} Along;

/* dim MX_NONE: what has no such dim is inner. */
static Along along_of(MxShape shape, int dim) {
    Along a = {.outer = 1, .n = 1, .inner = 1};
    for (int d = 0; d < shape.rank; d++)
        *(d < dim ? &a.outer : d == dim ? &a.n : &a.inner) *= shape.dim[d];
    return a;
}

/* ---- sums: columns of one outer index side by side, so that sums of all are made in one pass */

enum { COLUMNS = 256 };

static void sum_columns(const Along *a, int64_t o, int64_t first, int64_t n) {
    double sum[COLUMNS] = {0};
    const float *x = a->x + o * a->n * a->inner + first;
    for (int64_t k = 0; k < a->n; k++, x += a->inner)
        for (int64_t i = 0; i < n; i++)
            sum[i] += a->squares ? (double)x[i] * (double)x[i] : (double)x[i];
    for (int64_t i = 0; i < n; i++) a->out[o * a->inner + first + i] = (float)sum[i];
}

static void sum_pieces(const void *context, int64_t begin, int64_t end, int worker) {
    const Along *a = context;
    const int64_t pieces = cpu_pieces(a->inner, COLUMNS);
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i % pieces * COLUMNS;
        sum_columns(a, i / pieces, first, cpu_min(COLUMNS, a->inner - first));
    }
}

static void sum_dim_run(const MxDevice *device, const MxKernelCall *call) {
    const MxSumDimAttr *attr = call->attr;
    Along a = along_of(call->in_type[0].shape, attr->dim);
    if (!call->out[0] || !a.inner) return;
    a.squares = attr->squares;
    a.x = call->in[0];
    a.out = call->out[0];
    int64_t width = cpu_min(COLUMNS, a.inner);
    cpu_for(device, a.outer * cpu_pieces(a.inner, COLUMNS),
            cpu_max(1, CPU_PIECE / cpu_max(1, a.n * width)), sum_pieces, &a);
}

const MxKernel cpu_sum_dim = {.run = sum_dim_run};

/* ---- products */

static float factor_of(MxFactor factor, float y) {
    if (factor == MX_FACTOR_INVERSE) return 1 / y;
    return factor == MX_FACTOR_INVERSE_ROOT ? 1 / sqrtf(y) : y;
}

static void times_one(int64_t n, const float *x, float factor, float *out) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) out[i] = x[i] * factor;
}

static void times_each(MxFactor factor, int64_t n, const float *x, const float *y, float *out) {
    if (factor == MX_FACTOR_PLAIN) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) out[i] = x[i] * y[i];
    } else if (factor == MX_FACTOR_INVERSE) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) out[i] = x[i] / y[i];
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) out[i] = x[i] / sqrtf(y[i]);
    }
}

/* Elements of x; those next to each other have one factor, or factors next to each other. */
static void times_pieces(const void *context, int64_t begin, int64_t end, int worker) {
    const Along *a = context;
    const int64_t run = a->inner == 1 ? a->n : a->inner;
    (void)worker;
    for (int64_t at = begin; at < end;) {
        int64_t row = at / run, n = cpu_min(end, (row + 1) * run) - at;
        if (a->inner == 1)
            times_one(n, a->x + at, factor_of(a->factor, a->y[row]), a->out + at);
        else
            times_each(a->factor, n, a->x + at, a->y + row / a->n * a->inner + at % run,
                       a->out + at);
        at += n;
    }
}

static void times_run(const MxDevice *device, const MxKernelCall *call) {
    const MxTimesAttr *attr = call->attr;
    MxShape shape = call->in_type[0].shape;
    Along a = along_of(shape, attr->dim);
    if (attr->dim == MX_NONE && !call->in_type[1].shape.rank)
        a = (Along){.outer = 1, .n = mx_shape_count(shape), .inner = 1};
    a.factor = attr->factor;
    a.x = call->in[0];
    a.y = call->in[1];
    a.out = call->out[0];
    if (a.out) cpu_for(device, mx_shape_count(shape), CPU_PIECE, times_pieces, &a);
}

const MxKernel cpu_times = {.run = times_run};

/* ---- moments and the size of a step */

enum { DECAY, SHARE, FACTOR, PLUS, PARAMS };

static void decayed_block(int64_t n, const float *const *in, float *const *out,
                          const float *param) {
    const float *v = in[0], *x = in[1], decay = param[DECAY], share = param[SHARE];
    const float factor = param[FACTOR], plus = param[PLUS];
    float *y = out[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = decay * v[i] + share * (factor * x[i] + plus);
}

static void decayed_run(const MxDevice *device, const MxKernelCall *call) {
    const MxDecayedAttr *a = call->attr;
    const float *hyper = call->in[2];
    float decay = hyper[a->is_second ? MX_HYPER_B2 : MX_HYPER_B1];
    if (call->in_type[0].dtype == MX_BF16) decay = mx_bf16_to_f32(mx_f32_to_bf16(decay));
    const float param[PARAMS] = {[DECAY] = decay,
                                 [SHARE] = hyper[a->is_second ? MX_HYPER_ONE_B2 : MX_HYPER_ONE_B1],
                                 [FACTOR] = (float)a->factor,
                                 [PLUS] = (float)a->plus};
    cpu_map(device, call, 2, decayed_block, param);
}

const MxKernel cpu_decayed = {.run = decayed_run};

static void rms_step_run(const MxDevice *device, const MxKernelCall *call) {
    const MxRmsStepAttr *a = call->attr;
    const float count = (float)a->count, *squares_p = call->in[1], *squares_u = call->in[0];
    float step = ((const float *)call->in[2])[MX_HYPER_LR];
    (void)device;
    if (a->threshold > 0) step /= fmaxf(1, sqrtf(*squares_u / count) / (float)a->threshold);
    if (a->scales) step *= fmaxf((float)MX_LEAST_RMS, sqrtf(*squares_p / count));
    if (call->out[0]) *(float *)call->out[0] = step;
}

const MxKernel cpu_rms_step = {.run = rms_step_run};
