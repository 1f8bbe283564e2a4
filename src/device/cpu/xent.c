/* xent.c — cross-entropy from hidden states and the output matrix, a chunk of tokens at a time:
 * logits of the chunk by a matrix product into scratch, then row by row. The gradient turns a
 * chunk's logits into their cotangents where they lie and multiplies on from there, so that logits
 * are made once. Totals are in f64, added up token by token. */
#include "cpu.h"
#include "vec.h"

#include <math.h>

/* Of a chunk: large enough for the products to run at full speed, small enough to be little
 * memory. */
enum { CHUNK_BYTES = 64 << 20, CHUNK_TOKENS = 1024 };

enum { H, W, TARGETS, WEIGHTS, DSUM };
enum { DW, DH, GRAD_SUM, GRAD_Z };

/* The sizes of a call, and its products: [1] is for the last chunk, which may be shorter. */
typedef struct Xent {
    const MxKernelCall *call;
    const MxXentAttr *attr;
    int64_t tokens, width, vocab, chunk;
    MxDtype dtype;
    bool is_grad;
    const CpuMatmul *logits[2], *dh[2], *dw_first, *dw[2];
} Xent;

/* Scratch. */
typedef struct Work {
    float *logits;
    MxBf16 *rounded; /* cotangents of logits for bf16 products */
    double *loss, *z;
    float *dw; /* sum in f32 if dw is bf16 */
    void *product;
} Work;

static Xent xent_of(const MxKernelCall *call, bool is_grad) {
    const MxXentAttr *attr = call->attr;
    MxShape w = call->in_type[W].shape;
    Xent x = {.call = call, .attr = attr, .is_grad = is_grad, .dtype = call->in_type[H].dtype};
    x.tokens = mx_shape_count(call->in_type[TARGETS].shape);
    x.width = w.dim[attr->tied ? 1 : 0];
    x.vocab = w.dim[attr->tied ? 0 : 1];
    int64_t most = cpu_max(1, CHUNK_BYTES / (int64_t)sizeof(float) / cpu_max(1, x.vocab));
    most = cpu_min(most, CHUNK_TOKENS);
    int64_t chunks = cpu_max(1, cpu_pieces(x.tokens, most));
    x.chunk = cpu_max(1, cpu_pieces(x.tokens, chunks));
    return x;
}

static int64_t last_chunk(const Xent *x) {
    return x->tokens ? x->tokens - (cpu_pieces(x->tokens, x->chunk) - 1) * x->chunk : x->chunk;
}

static CpuMatmulSpec logits_spec(const Xent *x, int64_t n) {
    return (CpuMatmulSpec){.m = n,
                           .n = x->vocab,
                           .k = x->width,
                           .trans_b = x->attr->tied,
                           .in = x->dtype,
                           .out = MX_F32};
}

static CpuMatmulSpec dh_spec(const Xent *x, int64_t n) {
    return (CpuMatmulSpec){.m = n,
                           .n = x->width,
                           .k = x->vocab,
                           .trans_b = !x->attr->tied,
                           .in = x->dtype,
                           .out = x->dtype};
}

static CpuMatmulSpec dw_spec(const Xent *x, int64_t n, bool accumulate) {
    return (CpuMatmulSpec){.m = x->attr->tied ? x->vocab : x->width,
                           .n = x->attr->tied ? x->width : x->vocab,
                           .k = n,
                           .trans_a = true,
                           .accumulate = accumulate,
                           .in = x->dtype,
                           .out = MX_F32};
}

/* A dw of bf16 is summed up in scratch. */
static bool sums_dw_apart(const Xent *x) {
    return x->is_grad && x->call->out_type[DW].dtype != MX_F32;
}

static bool adds_dw(const Xent *x) {
    return x->is_grad && x->call->accumulate >> DW & 1 && !sums_dw_apart(x);
}

static size_t product_bytes(const MxDevice *device, const Xent *x) {
    size_t most = 0;
    for (int i = 0; i < 2; i++) {
        int64_t n = i ? last_chunk(x) : x->chunk;
        size_t bytes[] = {cpu_matmul_scratch(device, logits_spec(x, n)),
                          x->is_grad ? cpu_matmul_scratch(device, dh_spec(x, n)) : 0,
                          x->is_grad ? cpu_matmul_scratch(device, dw_spec(x, n, true)) : 0};
        for (int j = 0; j < MX_COUNT(bytes); j++) most = bytes[j] > most ? bytes[j] : most;
    }
    return most;
}

static size_t carve(const Xent *x, void *scratch, Work *work) {
    size_t cells = (size_t)(x->chunk * x->vocab), weights = (size_t)(x->width * x->vocab);
    char *start = scratch;
    work->logits = cpu_carve(&scratch, cells * sizeof(float));
    work->loss = cpu_carve(&scratch, (size_t)x->chunk * sizeof(double));
    work->z = cpu_carve(&scratch, (size_t)x->chunk * sizeof(double));
    bool rounds = x->is_grad && x->dtype == MX_BF16;
    work->rounded = cpu_carve(&scratch, rounds ? cells * sizeof(MxBf16) : 0);
    work->dw = cpu_carve(&scratch, sums_dw_apart(x) ? weights * sizeof(float) : 0);
    work->product = scratch;
    return (size_t)((char *)scratch - start);
}

static size_t bytes_of(const MxDevice *device, const Xent *x) {
    static char origin[1]; /* offsets alone matter */
    Work work;
    return carve(x, origin, &work) + product_bytes(device, x);
}

static bool prepare(MxDevice *device, MxKernelCall *call, bool is_grad, MxError *err) {
    Xent *x = mx_new(device->arena, Xent);
    *x = xent_of(call, is_grad);
    call->state = x;
    for (int i = 0; i < 2; i++) {
        int64_t n = i ? last_chunk(x) : x->chunk;
        x->logits[i] = cpu_matmul_prepare(device, logits_spec(x, n), err);
        if (!x->logits[i]) return false;
        if (!is_grad) continue;
        x->dh[i] = cpu_matmul_prepare(device, dh_spec(x, n), err);
        x->dw[i] = cpu_matmul_prepare(device, dw_spec(x, n, true), err);
        if (!x->dh[i] || !x->dw[i]) return false;
    }
    if (is_grad) x->dw_first = cpu_matmul_prepare(device, dw_spec(x, x->chunk, adds_dw(x)), err);
    return !is_grad || x->dw_first;
}

/* ---- rows of logits */

typedef struct Chunk {
    const Xent *x;
    const Work *work;
    int64_t first;
    float dsum;
} Chunk;

CPU_LEVELS static void scale_logits(int64_t n, float scale, float *x) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] *= scale;
}

CPU_LEVELS static void cap_logits(int64_t n, float cap, float *x) {
    float inverse = 1.0f / cap;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] = cap * vec_tanh(x[i] * inverse);
}

CPU_LEVELS static double log_sum_exp(int64_t n, const float *x) {
    float most = vec_max(n, x, x[0]);
    double total = 0.0;
    for (int64_t at = 0; at < n; at += CPU_BLOCK) {
        int64_t end = at + CPU_BLOCK < n ? at + CPU_BLOCK : n;
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = at; i < end; i++) sum += vec_exp(x[i] - most);
        total += (double)sum;
    }
    return (double)most + log(total);
}

/* y = factor * softmax(x), times the slope of the cap. */
CPU_LEVELS static void cotangent(int64_t n, const float *x, float log_sum, const float param[2],
                                 float *y) {
    const float factor = param[0], inverse_cap = param[1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float tangent = x[i] * inverse_cap;
        y[i] = factor * vec_exp(x[i] - log_sum) * (1.0f - tangent * tangent);
    }
}

static void grad_row(const Chunk *c, int64_t row, int32_t target, double log_sum) {
    const Xent *x = c->x;
    double scale = x->attr->scale, cap = x->attr->softcap, z_slope = 2 * x->attr->z_loss * log_sum;
    float *logits = c->work->logits + row * x->vocab;
    float factor = c->dsum * (float)scale, inverse_cap = cap > 0 ? (float)(1 / cap) : 0.0f;
    float param[] = {factor * (float)(1 + z_slope), inverse_cap};
    float tangent = logits[target] * inverse_cap;
    cotangent(x->vocab, logits, (float)log_sum, param, logits);
    logits[target] -= factor * (1.0f - tangent * tangent);
}

static void logit_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Chunk *c = context;
    const Xent *x = c->x;
    const MxXentAttr *attr = x->attr;
    const int32_t *targets = x->call->in[TARGETS], *weights = x->call->in[WEIGHTS];
    for (int64_t row = begin; row < end; row++) {
        int64_t token = c->first + row;
        float *logits = c->work->logits + row * x->vocab;
        c->work->loss[row] = c->work->z[row] = 0.0;
        if (weights[token]) {
            MX_ASSERT(targets[token] >= 0 && targets[token] < x->vocab);
            if (attr->scale != 1.0) scale_logits(x->vocab, (float)attr->scale, logits);
            if (attr->softcap > 0) cap_logits(x->vocab, (float)attr->softcap, logits);
            double log_sum = log_sum_exp(x->vocab, logits);
            c->work->z[row] = attr->z_loss * log_sum * log_sum;
            c->work->loss[row] = log_sum - (double)logits[targets[token]] + c->work->z[row];
            if (x->is_grad) grad_row(c, row, targets[token], log_sum);
        } else if (x->is_grad) {
            memset(logits, 0, (size_t)x->vocab * sizeof(float));
        }
        if (x->is_grad && x->dtype == MX_BF16)
            cpu_narrow(logits, x->vocab, c->work->rounded + row * x->vocab);
    }
}

/* ---- chunks */

static const void *hidden(const Xent *x, int64_t token) {
    size_t bytes = (size_t)(token * x->width) * mx_dtype_bytes(x->dtype);
    return (const char *)x->call->in[H] + bytes;
}

static void multiply_back(const Chunk *c, bool is_last) {
    const Xent *x = c->x;
    const Work *work = c->work;
    const MxKernelCall *call = x->call;
    const void *d = x->dtype == MX_BF16 ? (const void *)work->rounded : work->logits;
    const void *h = hidden(x, c->first);
    size_t at = (size_t)(c->first * x->width) * mx_dtype_bytes(x->dtype);
    if (call->out[DH])
        cpu_matmul(x->dh[is_last], d, call->in[W], (char *)call->out[DH] + at, work->product);
    if (!call->out[DW]) return;
    const CpuMatmul *product = c->first ? x->dw[is_last] : x->dw_first;
    void *dw = sums_dw_apart(x) ? work->dw : call->out[DW];
    cpu_matmul(product, x->attr->tied ? d : h, x->attr->tied ? h : d, dw, work->product);
}

typedef struct Sums {
    double loss, z;
} Sums;

static Sums run_chunks(const MxDevice *device, const Xent *x, const Work *work) {
    Sums sums = {0};
    Chunk c = {.x = x, .work = work};
    if (x->is_grad) c.dsum = *(const float *)x->call->in[DSUM];
    for (; c.first < x->tokens; c.first += x->chunk) {
        int64_t n = cpu_min(x->chunk, x->tokens - c.first);
        bool is_last = c.first + n == x->tokens && c.first > 0;
        cpu_matmul(x->logits[is_last], hidden(x, c.first), x->call->in[W], work->logits,
                   work->product);
        cpu_for(device, n, cpu_max(1, CPU_PIECE / x->vocab), logit_rows, &c);
        for (int64_t i = 0; i < n; i++) {
            sums.loss += work->loss[i];
            sums.z += work->z[i];
        }
        if (x->is_grad) multiply_back(&c, is_last);
    }
    return sums;
}

typedef struct Rounding {
    const MxKernelCall *call;
    const float *from;
} Rounding;

static void round_dw(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Rounding *r = context;
    MxDtype dtype = r->call->out_type[DW].dtype;
    if (r->call->accumulate >> DW & 1)
        cpu_add_to(r->from + begin, end - begin, r->call->out[DW], dtype, begin);
    else
        cpu_write(r->from + begin, end - begin, r->call->out[DW], dtype, begin);
}

static void run(const MxDevice *device, const MxKernelCall *call, int sum_out) {
    Xent x = *(const Xent *)call->state;
    x.call = call;
    x.attr = call->attr;
    Work work;
    carve(&x, call->scratch, &work);
    Sums sums = run_chunks(device, &x, &work);
    if (call->out[sum_out]) *(float *)call->out[sum_out] = (float)sums.loss;
    if (call->out[sum_out + 1]) *(float *)call->out[sum_out + 1] = (float)sums.z;
    Rounding rounding = {.call = call, .from = work.dw};
    if (sums_dw_apart(&x) && call->out[DW])
        cpu_for(device, x.width * x.vocab, CPU_PIECE, round_dw, &rounding);
}

static size_t xent_scratch(const MxDevice *device, const MxKernelCall *call) {
    Xent x = xent_of(call, false);
    return bytes_of(device, &x);
}

static bool xent_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    return prepare(device, call, false, err);
}

static void xent_run(const MxDevice *device, const MxKernelCall *call) {
    run(device, call, 0);
}

const MxKernel cpu_xent = {.scratch = xent_scratch, .prepare = xent_prepare, .run = xent_run};

static size_t xent_grad_scratch(const MxDevice *device, const MxKernelCall *call) {
    Xent x = xent_of(call, true);
    return bytes_of(device, &x);
}

static bool xent_grad_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    return prepare(device, call, true, err);
}

static void xent_grad_run(const MxDevice *device, const MxKernelCall *call) {
    run(device, call, GRAD_SUM);
}

const MxKernel cpu_xent_grad = {
    .scratch = xent_grad_scratch,
    .prepare = xent_grad_prepare,
    .run = xent_grad_run,
};
