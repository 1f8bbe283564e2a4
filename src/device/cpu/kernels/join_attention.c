/* join_attention.c — attention over two parts of the keys as one: a weighted mean of its two rows
 * for every query and head, by what their log-sums say of the parts' shares. */
#include "kernel.h"

#include <math.h>

enum { O, LOG_SUMS, TOPS, OTHER }; /* inputs, of each part; and outputs */

/* What the two parts add up to, and their shares of it: none of a part without keys for a query. */
typedef struct Shares {
    float log_sum, one, other;
} Shares;

static Shares shares_of(float one, float other) {
    float most = one > other ? one : other;
    if (most == -INFINITY) return (Shares){.log_sum = most};
    Shares s = {.log_sum = most + logf(expf(one - most) + expf(other - most))};
    s.one = expf(one - s.log_sum);
    s.other = expf(other - s.log_sum);
    return s;
}

static void mix(int64_t n, Shares s, const float *one, const float *other, float *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = s.one * one[i] + s.other * other[i];
}

static void mix_rows(const MxKernelCall *call, Shares s, int64_t at, int64_t width) {
    float one[CPU_BLOCK], other[CPU_BLOCK], mixed[CPU_BLOCK];
    for (int64_t from = 0, n; from < width; from += n) {
        n = cpu_min(CPU_BLOCK, width - from);
        float *y = cpu_place(call->out[O], call->out_type[O].dtype, at + from, mixed);
        mix(n, s, cpu_read(call->in[O], call->in_type[O].dtype, at + from, n, one),
            cpu_read(call->in[OTHER], call->in_type[OTHER].dtype, at + from, n, other), y);
        cpu_write(y, n, call->out[O], call->out_type[O].dtype, at + from);
    }
}

/* Rows of [B, T, N, W]; their sums are [B, N, T]. */
static void join_span(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    MxShape o = call->in_type[O].shape;
    float *const *in = (float *const *)call->in, *const *out = (float *const *)call->out;
    for (int64_t i = begin; i < end; i++) {
        int64_t head = i % o.dim[2], t = i / o.dim[2] % o.dim[1], b = i / (o.dim[1] * o.dim[2]);
        int64_t row = (b * o.dim[2] + head) * o.dim[1] + t;
        float top = in[TOPS][row], other = in[OTHER + TOPS][row];
        Shares s = shares_of(in[LOG_SUMS][row], in[OTHER + LOG_SUMS][row]);
        if (call->out[O]) mix_rows(call, s, i * o.dim[3], o.dim[3]);
        if (out[LOG_SUMS]) out[LOG_SUMS][row] = s.log_sum;
        if (out[TOPS]) out[TOPS][row] = top > other ? top : other;
    }
}

static void join_run(const MxDevice *device, const MxKernelCall *call) {
    MxShape o = call->in_type[O].shape;
    cpu_for(device, o.dim[0] * o.dim[1] * o.dim[2], cpu_max(1, CPU_PIECE / cpu_max(1, o.dim[3])),
            join_span, call);
}

const MxKernel cpu_join_attention = {.run = join_run};
