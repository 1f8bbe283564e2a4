/* dropout.c — dropout of columns. The factors of each column of each row of the batch are computed
 * first, then all of x is processed once. */
#include "kernel.h"

typedef struct Dropout {
    const MxKernelCall *call;
    const MxDropoutAttr *attr;
    int64_t batch, between, width; /* of what is here */
    uint64_t key;
    float *factor; /* [batch, width] */
} Dropout;

static Dropout dropout_of(const MxKernelCall *call) {
    MxShape x = call->in_type[0].shape;
    Dropout d = {.call = call,
                 .attr = call->attr,
                 .batch = x.dim[0],
                 .width = x.dim[x.rank - 1],
                 .between = 1,
                 .factor = call->scratch};
    for (int i = 1; i < x.rank - 1; i++) d.between *= x.dim[i];
    return d;
}

static size_t factors_scratch(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    Dropout d = dropout_of(call);
    return (size_t)(d.batch * d.width) * sizeof(float);
}

/* Those of one row of the batch, from element `from` of the sequence on. */
static void find_factors(const Dropout *d, uint64_t from, float *factor) {
    const double range = 4294967296.0; /* of a word */
    uint64_t least = (uint64_t)(d->attr->rate * range);
    float kept = d->attr->rate < 1 ? (float)(1 / (1 - d->attr->rate)) : 0.0f;
    uint32_t words[CPU_PHILOX_WORDS][CPU_PHILOX_LANES];
    for (int64_t i = 0; i < d->width;) {
        uint64_t counter = (from + (uint64_t)i) / CPU_PHILOX_WORDS;
        cpu_philox(d->key, d->attr->stream, counter, words);
        for (int lane = 0; lane < CPU_PHILOX_LANES && i < d->width; lane++)
            for (uint64_t w = (from + (uint64_t)i) % CPU_PHILOX_WORDS;
                 w < CPU_PHILOX_WORDS && i < d->width; w++, i++)
                factor[i] = words[w][lane] < least ? 0.0f : kept;
    }
}

static void factor_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Dropout *d = context;
    const int32_t *rows = d->call->in[1];
    for (int64_t b = begin; b < end; b++)
        find_factors(d, (uint64_t)rows[b] * (uint64_t)d->attr->width + (uint64_t)d->attr->first,
                     d->factor + b * d->width);
}

/* Rows of x, a block of columns at a time. */
static void drop_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Dropout *d = context;
    MxDtype dtype = d->call->in_type[0].dtype;
    float in_block[CPU_BLOCK], out_block[CPU_BLOCK];
    for (int64_t row = begin; row < end; row++) {
        const float *factor = d->factor + row / d->between * d->width;
        for (int64_t i = 0, n; i < d->width; i += n) {
            int64_t at = row * d->width + i;
            n = cpu_min(CPU_BLOCK, d->width - i);
            const float *x = cpu_read(d->call->in[0], dtype, at, n, in_block);
            float *y = cpu_place(d->call->out[0], dtype, at, out_block);
#pragma omp simd
            for (int64_t k = 0; k < n; k++) y[k] = factor[i + k] > 0.0f ? x[k] * factor[i + k] : 0;
            cpu_write(y, n, d->call->out[0], dtype, at);
        }
    }
}

static void dropout_run(const MxDevice *device, const MxKernelCall *call) {
    Dropout d = dropout_of(call);
    uint32_t words[4];
    if (!call->out[0] || !d.width) return;
    mx_philox(d.attr->seed, d.attr->stream, (uint64_t) * (const int32_t *)call->in[2], words);
    d.key = (uint64_t)words[1] << 32 | words[0];
    cpu_for(device, d.batch, cpu_max(1, CPU_BLOCK / d.width), factor_rows, &d);
    cpu_for(device, d.batch * d.between, cpu_max(1, CPU_PIECE / d.width), drop_rows, &d);
}

const MxKernel cpu_dropout = {.scratch = factors_scratch, .run = dropout_run};
