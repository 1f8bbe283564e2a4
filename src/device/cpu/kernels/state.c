/* state.c — norms and moments: one pass over contiguous memory each. */
#include "kernel.h"

#include <mx/ops.h>

#include <math.h>

/* ---- sum of squares: pieces of all inputs in one loop, a partial sum in f64 each, added up in the
 * order of the pieces */

/* As SUMS sums side by side, the same whatever the width of vectors. One stream of reads does not
 * keep memory busy by itself: what comes next is asked for. */
static double squares_block(int64_t n, const float *x) {
    enum { SUMS = 32, AHEAD = 256 };
    double sum[SUMS] = {0}, total = 0.0;
    int64_t i = 0;
    for (; i + SUMS <= n; i += SUMS) {
        uintptr_t next = (uintptr_t)(x + i) + AHEAD * sizeof *x;
        for (size_t at = 0; at < SUMS * sizeof *x; at += CPU_ALIGN)
            __builtin_prefetch((const void *)(next + at));
#pragma omp simd
        for (int j = 0; j < SUMS; j++) sum[j] += (double)x[i + j] * (double)x[i + j];
    }
    for (int j = 0; i < n; i++, j++) sum[j] += (double)x[i] * (double)x[i];
    for (int j = 0; j < SUMS; j++) total += sum[j];
    return total;
}

static int64_t pieces_of(const MxKernelCall *call, int input) {
    return cpu_pieces(mx_shape_count(call->in_type[input].shape), CPU_PIECE);
}

static int64_t all_pieces(const MxKernelCall *call) {
    int64_t n = 0;
    for (int input = 0; input < call->n_in; input++) n += pieces_of(call, input);
    return n;
}

static double squares_of_piece(const MxKernelCall *call, int64_t piece) {
    int input = 0;
    for (; piece >= pieces_of(call, input); input++) piece -= pieces_of(call, input);
    const MxType *type = &call->in_type[input];
    int64_t end = cpu_min(mx_shape_count(type->shape), (piece + 1) * CPU_PIECE);
    float block[CPU_BLOCK];
    double sum = 0.0;
    for (int64_t at = piece * CPU_PIECE, n; at < end; at += n) {
        n = cpu_min(CPU_BLOCK, end - at);
        sum += squares_block(n, cpu_read(call->in[input], type->dtype, at, n, block));
    }
    return sum;
}

static void squares_span(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    double *partial = call->scratch;
    for (int64_t piece = begin; piece < end; piece++)
        partial[piece] = squares_of_piece(call, piece);
}

static size_t sum_squares_scratch(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    return (size_t)all_pieces(call) * sizeof(double);
}

static void sum_squares_run(const MxDevice *device, const MxKernelCall *call) {
    const double *partial = call->scratch;
    int64_t n = all_pieces(call);
    cpu_for(device, n, 1, squares_span, call);
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += partial[i];
    if (call->out[0]) *(float *)call->out[0] = (float)sum;
}

const MxKernel cpu_sum_squares = {.scratch = sum_squares_scratch, .run = sum_squares_run};

/* ---- moments: in pieces too */

typedef double Moments[MX_MOMENTS];

static void moments_block(int64_t n, const float *x, Moments sum) {
    double zeros = 0, all = 0, squares = 0;
#pragma omp simd reduction(+ : zeros, all, squares)
    for (int64_t i = 0; i < n; i++) {
        zeros += x[i] == 0.0f;
        all += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    sum[MX_MOMENT_COUNT] += (double)n;
    sum[MX_MOMENT_ZEROS] += zeros;
    sum[MX_MOMENT_SUM] += all;
    sum[MX_MOMENT_SQUARES] += squares;
}

static void moments_span(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    const MxType *type = &call->in_type[0];
    Moments *part = call->scratch;
    int64_t all = mx_shape_count(type->shape);
    float block[CPU_BLOCK];
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t stop = cpu_min(all, (piece + 1) * CPU_PIECE);
        for (int m = 0; m < MX_MOMENTS; m++) part[piece][m] = 0;
        for (int64_t at = piece * CPU_PIECE, n; at < stop; at += n) {
            n = cpu_min(CPU_BLOCK, stop - at);
            moments_block(n, cpu_read(call->in[0], type->dtype, at, n, block), part[piece]);
        }
    }
}

static size_t moments_scratch(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    return (size_t)all_pieces(call) * sizeof(Moments);
}

static void moments_run(const MxDevice *device, const MxKernelCall *call) {
    const Moments *part = call->scratch;
    float *out = call->out[0];
    int64_t n = all_pieces(call);
    if (!out) return;
    cpu_for(device, n, 1, moments_span, call);
    for (int m = 0; m < MX_MOMENTS; m++) {
        double sum = call->accumulate & 1 ? (double)out[m] : 0;
        for (int64_t i = 0; i < n; i++) sum += part[i][m];
        out[m] = (float)sum;
    }
}

const MxKernel cpu_moments = {.scratch = moments_scratch, .run = moments_run};

static void clip_factor_run(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    float threshold = (float)((const MxClipFactorAttr *)call->attr)->threshold;
    float norm = sqrtf(*(const float *)call->in[0]);
    if (call->out[0]) *(float *)call->out[0] = norm < threshold ? 1.0f : threshold / norm;
}

const MxKernel cpu_clip_factor = {.run = clip_factor_run};
