/* combine.c — weighted sums of a token's rows: token by token, a block of columns at a time. */
#include "kernel.h"

static int64_t last_dim(MxShape shape) {
    return shape.dim[shape.rank - 1];
}

/* Rows of x a token, and how many sums are made of them. */
typedef struct Combined {
    int64_t choices, sums, width;
} Combined;

static Combined combined_of(const MxKernelCall *call) {
    MxShape x = call->in_type[0].shape, w = call->in_type[1].shape;
    return (Combined){.choices = x.dim[x.rank - 2],
                      .sums = w.rank == x.rank ? last_dim(w) : 1,
                      .width = last_dim(x)};
}

/* Columns `at` to at + n of sum m of a token. */
static void combine_block(const MxKernelCall *call, Combined all, int64_t row, int64_t m,
                          int64_t at, int64_t n) {
    MxDtype dtype = call->in_type[0].dtype;
    const float *weights = (const float *)call->in[1] + row * all.choices * all.sums + m;
    float block[CPU_BLOCK], sum[CPU_BLOCK] = {0};
    for (int64_t c = 0; c < all.choices; c++) {
        int64_t first = (row * all.choices + c) * all.width + at;
        const float *from = cpu_read(call->in[0], dtype, first, n, block);
        float weight = weights[c * all.sums];
#pragma omp simd
        for (int64_t i = 0; i < n; i++) sum[i] += weight * from[i];
    }
    cpu_store(sum, n, call->out[0], dtype, (row * all.sums + m) * all.width + at);
}

static void combine_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    Combined all = combined_of(call);
    for (int64_t row = begin; row < end; row++)
        for (int64_t at = 0, n; at < all.width; at += n) {
            n = cpu_min(CPU_BLOCK, all.width - at);
            for (int64_t m = 0; m < all.sums; m++) combine_block(call, all, row, m, at, n);
        }
}

/* Tokens, of whose choices there are `width` elements each. */
static void for_tokens(const MxDevice *device, const MxKernelCall *call, CpuWork *work) {
    Combined all = combined_of(call);
    int64_t each = all.choices * all.width;
    int64_t tokens = each ? mx_shape_count(call->in_type[0].shape) / each : 0;
    cpu_for(device, tokens, cpu_max(1, CPU_PIECE / cpu_max(1, each * all.sums)), work, call);
}

static void combine_run(const MxDevice *device, const MxKernelCall *call) {
    if (call->out[0]) for_tokens(device, call, combine_rows);
}

const MxKernel cpu_combine = {.run = combine_run};

/* As SUMS sums side by side, whatever the width of vectors. */
static float dot_block(int64_t n, const float *x, const float *y) {
    enum { SUMS = 32 };
    float sum[SUMS] = {0};
    int64_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int j = 0; j < SUMS; j++) sum[j] += x[i + j] * y[i + j];
    for (int j = 0; i < n; i++, j++) sum[j] += x[i] * y[i];
    for (int half = SUMS / 2; half; half /= 2)
        for (int j = 0; j < half; j++) sum[j] += sum[j + half];
    return sum[0];
}

/* Choice c of all: dx is the sum of weight dy, dweights are x · dy. */
static void grad_row(const MxKernelCall *call, Combined all, int64_t c) {
    MxDtype dtype = call->in_type[0].dtype;
    const float *weights = (const float *)call->in[1] + c * all.sums;
    float block[CPU_BLOCK], dy_block[CPU_BLOCK], dx[CPU_BLOCK];
    float *dweights = call->out[1] ? (float *)call->out[1] + c * all.sums : NULL;
    for (int64_t m = 0; dweights && m < all.sums; m++) dweights[m] = 0;
    for (int64_t at = 0, n; at < all.width; at += n) {
        n = cpu_min(CPU_BLOCK, all.width - at);
        const float *x = cpu_read(call->in[0], dtype, c * all.width + at, n, block);
        memset(dx, 0, sizeof *dx * (size_t)n);
        for (int64_t m = 0; m < all.sums; m++) {
            int64_t first = (c / all.choices * all.sums + m) * all.width + at;
            const float *dy = cpu_read(call->in[2], dtype, first, n, dy_block);
            float weight = weights[m];
            if (dweights) dweights[m] += dot_block(n, x, dy);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) dx[i] += weight * dy[i];
        }
        if (call->out[0]) cpu_store(dx, n, call->out[0], dtype, c * all.width + at);
    }
}

static void combine_grad_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    Combined all = combined_of(call);
    for (int64_t c = begin * all.choices; c < end * all.choices; c++) grad_row(call, all, c);
}

static void combine_grad_run(const MxDevice *device, const MxKernelCall *call) {
    for_tokens(device, call, combine_grad_rows);
}

const MxKernel cpu_combine_grad = {.run = combine_grad_run};
