/* clip.c — the largest element of rows, and scaling down heads in the kernels of queries and keys.
 */
#include "kernel.h"

#include <math.h>

static int64_t dim_from_end(MxShape shape, int i) {
    return shape.dim[shape.rank - i];
}

static void largest_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    int64_t n = dim_from_end(call->in_type[0].shape, 1);
    for (int64_t row = begin; row < end; row++) {
        const float *x = (const float *)call->in[0] + row * n;
        float most = x[0];
        for (int64_t i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
        ((float *)call->out[0])[row] = most;
    }
}

static void largest_run(const MxDevice *device, const MxKernelCall *call) {
    int64_t n = dim_from_end(call->in_type[0].shape, 1);
    if (call->out[0])
        cpu_for(device, mx_shape_count(call->out_type[0].shape), cpu_max(1, CPU_PIECE / n),
                largest_rows, call);
}

const MxKernel cpu_largest = {.run = largest_run};

/* Of a head: what its first elements are multiplied by, and what the others are. */
enum { FIRST, REST, FACTORS };

static size_t factors_scratch(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    return (size_t)dim_from_end(call->in_type[0].shape, 2) * FACTORS * sizeof(float);
}

static void find_factors(const MxKernelCall *call) {
    const float slack = 1e-6f, *tops = call->in[1]; /* MaxText's */
    const MxClipHeadsAttr *attr = call->attr;
    int64_t heads = dim_from_end(call->in_type[0].shape, 2);
    int64_t rows = mx_shape_count(call->in_type[1].shape) / heads;
    for (int64_t n = 0; n < heads; n++) {
        float top = 0.0f, *factor = (float *)call->scratch + n * FACTORS;
        for (int64_t row = 0; row < rows; row++) top = fmaxf(top, tops[row * heads + n]);
        float share = fminf(1.0f, (float)attr->threshold / (top + slack));
        factor[FIRST] = sqrtf(share);
        factor[REST] = attr->keeps_rest ? 1.0f : share;
    }
}

static void clip_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    int64_t heads = dim_from_end(call->in_type[0].shape, 2);
    int64_t width = dim_from_end(call->in_type[0].shape, 1);
    int64_t first = ((const MxClipHeadsAttr *)call->attr)->n_root;
    for (int64_t row = begin; row < end; row++) {
        const float *factor = (const float *)call->scratch + row % heads * FACTORS;
        const float *w = (const float *)call->in[0] + row * width;
        float *out = (float *)call->out[0] + row * width;
        for (int64_t i = 0; i < first; i++) out[i] = w[i] * factor[FIRST];
        for (int64_t i = first; i < width; i++) out[i] = w[i] * factor[REST];
    }
}

static void clip_heads_run(const MxDevice *device, const MxKernelCall *call) {
    MxShape w = call->in_type[0].shape;
    int64_t n = mx_shape_count(w), width = cpu_max(1, dim_from_end(w, 1));
    if (!call->out[0] || !n) return;
    find_factors(call);
    cpu_for(device, n / width, cpu_max(1, CPU_PIECE / width), clip_rows, call);
}

const MxKernel cpu_clip_heads = {.scratch = factors_scratch, .run = clip_heads_run};
