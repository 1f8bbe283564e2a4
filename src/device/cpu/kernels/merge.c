/* merge.c — replaces some rows of a sequence by rows from elsewhere, and the gradient. In the
 * gradient a piece of work owns a sequence, so rows used by several tokens are added up in the
 * order of the tokens. */
#include "kernel.h"

static void merge_tokens(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    MxShape x = call->in_type[0].shape;
    int64_t length = x.dim[1], n = call->in_type[1].shape.dim[1];
    size_t bytes = (size_t)x.dim[2] * mx_dtype_bytes(call->in_type[0].dtype);
    const int32_t *index = call->in[2];
    for (int64_t i = begin; i < end; i++) {
        MX_ASSERT(index[i] >= 0 && index[i] <= n);
        size_t own = (size_t)i * bytes, other = (size_t)(i / length * n + index[i] - 1) * bytes;
        const char *from =
            index[i] ? (const char *)call->in[1] + other : (const char *)call->in[0] + own;
        memcpy((char *)call->out[0] + own, from, bytes);
    }
}

static void merge_run(const MxDevice *device, const MxKernelCall *call) {
    int64_t width = call->in_type[0].shape.dim[2];
    if (call->out[0])
        cpu_for(device, mx_shape_count(call->in_type[2].shape),
                cpu_max(1, CPU_PIECE / cpu_max(1, width)), merge_tokens, call);
}

const MxKernel cpu_merge = {.run = merge_run};

/* A token's row goes to x or to one of the others. */
static void give_row(const MxKernelCall *call, int64_t token, int64_t row) {
    MxDtype dtype = call->in_type[1].dtype;
    int64_t width = call->in_type[1].shape.dim[2];
    size_t bytes = (size_t)width * mx_dtype_bytes(dtype);
    char *dx = call->out[0];
    if (dx && row < 0)
        memcpy(dx + (size_t)token * bytes, (const char *)call->in[1] + (size_t)token * bytes,
               bytes);
    else if (dx)
        memset(dx + (size_t)token * bytes, 0, bytes);
    float block[CPU_BLOCK];
    for (int64_t at = 0, n; row >= 0 && call->out[1] && at < width; at += n) {
        n = cpu_min(CPU_BLOCK, width - at);
        const float *dy = cpu_read(call->in[1], dtype, token * width + at, n, block);
        cpu_add_to(dy, n, call->out[1], dtype, row * width + at);
    }
}

static void merge_grad_sequences(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    MxShape dy = call->in_type[1].shape;
    int64_t length = dy.dim[1], n = call->out_type[1].shape.dim[1];
    size_t bytes = (size_t)(n * dy.dim[2]) * mx_dtype_bytes(call->in_type[1].dtype);
    const int32_t *index = call->in[0];
    for (int64_t b = begin; b < end; b++) {
        if (call->out[1]) memset((char *)call->out[1] + (size_t)b * bytes, 0, bytes);
        for (int64_t i = b * length; i < (b + 1) * length; i++)
            give_row(call, i, index[i] ? b * n + index[i] - 1 : -1);
    }
}

static void merge_grad_run(const MxDevice *device, const MxKernelCall *call) {
    cpu_for(device, call->in_type[1].shape.dim[0], 1, merge_grad_sequences, call);
}

const MxKernel cpu_merge_grad = {.run = merge_grad_run};
