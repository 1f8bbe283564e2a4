/* conv.c — causal convolution of channels, in blocks of channels, and the decay of the gated delta
 * rule. */
#include "kernel.h"
#include "vec.h"

enum { CHANNELS = 128 /* at a time */, TOKENS = 32 /* that a thread takes together */ };

typedef struct Conv {
    const MxKernelCall *call;
    const int32_t *segments;
    const float *weights; /* [taps, width], rounded to x's dtype */
    int64_t rows, time, width, taps, apart;
    MxDtype dtype;
    bool carries;
} Conv;

static int64_t apart_of(const MxKernelCall *call) {
    return cpu_max(1, ((const MxDeltaAttr *)call->attr)->apart);
}

static Conv conv_of(const MxKernelCall *call) {
    MxShape x = call->in_type[0].shape;
    return (Conv){.call = call,
                  .segments = call->in[2],
                  .rows = x.dim[0],
                  .time = x.dim[1],
                  .width = x.dim[2],
                  .taps = call->in_type[1].shape.dim[0],
                  .apart = apart_of(call),
                  .dtype = call->in_type[0].dtype,
                  .carries = ((const MxDeltaAttr *)call->attr)->carries};
}

/* How far back a tap looks. */
static int64_t behind(const Conv *c, int64_t tap) {
    return (c->taps - 1 - tap) * c->apart;
}

static size_t weights_scratch(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    bool is_plain = call->in_type[0].dtype == MX_F32;
    return is_plain ? 0 : (size_t)mx_shape_count(call->in_type[1].shape) * sizeof(float);
}

static const float *weights_of(const MxKernelCall *call) {
    const float *w = call->in[1];
    float *rounded = (float *)(void *)call->scratch;
    if (call->in_type[0].dtype == MX_F32) return w;
    for (int64_t i = 0; i < mx_shape_count(call->in_type[1].shape); i++)
        rounded[i] = mx_bf16_to_f32(mx_f32_to_bf16(w[i]));
    return rounded;
}

static void multiply_add(int64_t n, const float *x, const float *w, float *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] += x[i] * w[i];
}

/* Whether the token `before` places back, or ahead if below 0, is one that is seen. */
static bool is_near(const Conv *c, int64_t row, int64_t t, int64_t before) {
    const int32_t *s = c->segments + row * c->time;
    int64_t other = t - before;
    return other >= 0 && other < c->time && (c->carries || s[other] == s[t]);
}

enum { TOGETHER = 4 /* taps, whose products are summed in registers */ };

/* Inputs and weights of taps that see a token. */
typedef struct Near {
    const float *x[TOGETHER], *w[TOGETHER];
    int n;
} Near;

static inline void add_products(int64_t n, const Near *near, int taps, float *sum) {
    const float *x0 = near->x[0], *x1 = near->x[1], *x2 = near->x[2], *x3 = near->x[3];
    const float *w0 = near->w[0], *w1 = near->w[1], *w2 = near->w[2], *w3 = near->w[3];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float y = sum[i];
        y += x0[i] * w0[i];
        if (taps > 1) y += x1[i] * w1[i];
        if (taps > 2) y += x2[i] * w2[i];
        if (taps > 3) y += x3[i] * w3[i];
        sum[i] = y;
    }
}

static void add_near(int64_t n, const Near *near, float *sum) {
    if (near->n == TOGETHER) add_products(n, near, TOGETHER, sum);
    if (near->n == 3) add_products(n, near, 3, sum);
    if (near->n == 2) add_products(n, near, 2, sum);
    if (near->n == 1) add_products(n, near, 1, sum);
}

/* y[t] = sum over taps of w x[t - before]; of the gradient, x[t + before]. Of some tokens of all
 * rows: they are read in the order in which they lie. */
static void gather(const Conv *c, int from, int to, int64_t begin, int64_t end) {
    float sum[CHANNELS], x_block[TOGETHER][CHANNELS];
    for (int64_t i = begin; i < end; i++)
        for (int64_t at = 0, n; at < c->width; at += n) {
            int64_t row = i / c->time, t = i % c->time, place = i * c->width + at;
            Near near = {.n = 0};
            n = cpu_min(CHANNELS, c->width - at);
            memset(sum, 0, sizeof sum);
            for (int64_t tap = 0; tap < c->taps; tap++) {
                int64_t before = (from ? -1 : 1) * behind(c, tap);
                if (!is_near(c, row, t, before)) continue;
                near.x[near.n] = cpu_read(c->call->in[from], c->dtype, place - before * c->width, n,
                                          x_block[near.n]);
                near.w[near.n++] = c->weights + tap * c->width + at;
                if (near.n < TOGETHER) continue;
                add_near(n, &near, sum);
                near.n = 0;
            }
            add_near(n, &near, sum);
            cpu_store(sum, n, c->call->out[to], c->dtype, place);
        }
}

static void conv_tokens(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    gather(context, 0, 0, begin, end);
}

static void conv_run(const MxDevice *device, const MxKernelCall *call) {
    Conv c = conv_of(call);
    c.weights = weights_of(call);
    if (call->out[0]) cpu_for(device, c.rows * c.time, TOKENS, conv_tokens, &c);
}

const MxKernel cpu_conv = {.scratch = weights_scratch, .run = conv_run};

/* ---- the same of what is kept in a cache */

static void cached_channels(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Conv *c = context;
    const int32_t *positions = c->call->in[2], *sequences = c->call->in[3];
    const int64_t slots = c->call->in_type[0].shape.dim[1], n = end - begin;
    float sum[CHANNELS], x_block[CHANNELS];
    for (int64_t i = 0; i < c->rows * c->time; i++) {
        memset(sum, 0, sizeof sum);
        for (int64_t tap = 0; tap < c->taps; tap++) {
            int64_t from = positions[i] - behind(c, tap);
            if (from < 0 || positions[i] < 0) continue;
            int64_t row = sequences[i / c->time] * slots + from % slots;
            const float *x = cpu_read(c->call->in[0], c->dtype, row * c->width + begin, n, x_block);
            multiply_add(n, x, c->weights + tap * c->width + begin, sum);
        }
        cpu_store(sum, n, c->call->out[0], c->dtype, i * c->width + begin);
    }
}

static void cache_conv_run(const MxDevice *device, const MxKernelCall *call) {
    MxShape piece = call->in_type[2].shape;
    Conv c = {.call = call,
              .weights = weights_of(call),
              .rows = piece.dim[0],
              .time = piece.dim[1],
              .width = call->in_type[0].shape.dim[2],
              .taps = call->in_type[1].shape.dim[0],
              .apart = apart_of(call),
              .dtype = call->in_type[0].dtype};
    if (call->out[0]) cpu_for(device, c.width, CHANNELS, cached_channels, &c);
}

const MxKernel cpu_cache_conv = {.scratch = weights_scratch, .run = cache_conv_run};

/* ---- gradient */

enum { DY = 3 };

static void conv_grad_tokens(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    gather(context, DY, 0, begin, end);
}

/* Of the weights of some channels: each tap's sum over tokens in their order. */
static void sum_taps(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Conv *c = context;
    float x_block[CHANNELS], y_block[CHANNELS], *sum = c->call->out[1];
    for (int64_t tap = 0; tap < c->taps; tap++)
        memset(sum + tap * c->width + begin, 0, (size_t)(end - begin) * sizeof *sum);
    for (int64_t i = 0; i < c->rows * c->time; i++)
        for (int64_t at = begin, n; at < end; at += n) {
            int64_t row = i / c->time, t = i % c->time, place = i * c->width + at;
            n = cpu_min(CHANNELS, end - at);
            const float *dy = cpu_read(c->call->in[DY], c->dtype, place, n, y_block);
            for (int64_t tap = 0; tap < c->taps; tap++) {
                int64_t before = behind(c, tap);
                if (!is_near(c, row, t, before)) continue;
                const float *x =
                    cpu_read(c->call->in[0], c->dtype, place - before * c->width, n, x_block);
                multiply_add(n, x, dy, sum + tap * c->width + at);
            }
        }
}

static void conv_grad_run(const MxDevice *device, const MxKernelCall *call) {
    Conv c = conv_of(call);
    int64_t share = cpu_pieces(c.width, device->n_threads);
    c.weights = weights_of(call);
    if (call->out[0]) cpu_for(device, c.rows * c.time, TOKENS, conv_grad_tokens, &c);
    if (call->out[1])
        cpu_for(device, c.width, cpu_pieces(share, CHANNELS) * CHANNELS, sum_taps, &c);
}

const MxKernel cpu_conv_grad = {.scratch = weights_scratch, .run = conv_grad_run};

/* ---- decay */

/* log(1 + exp(x)), of which exp never overflows. */
static inline float softplus(float x) {
    float magnitude = x < 0.0f ? -x : x;
    return (x > 0.0f ? x : 0.0f) + vec_log(1.0f + vec_exp(-magnitude));
}

static void decay_block(int64_t n, const float *const *in, float *const *out, const float *param) {
    (void)param;
    const float *x = in[0], *rate = in[1];
    float *y = out[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = -vec_exp(rate[i]) * softplus(x[i]);
}

static void grad_row(int64_t n, const float *const x_rate_dy[3], float *dx) {
    const float *x = x_rate_dy[0], *rate = x_rate_dy[1], *dy = x_rate_dy[2];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dx[i] = -dy[i] * vec_exp(rate[i]) * vec_sigmoid(x[i]);
}

static void decay_grad_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    int64_t n = mx_shape_count(call->in_type[1].shape);
    for (int64_t row = begin; row < end; row++) {
        const float *in[] = {(const float *)call->in[0] + row * n, call->in[1],
                             (const float *)call->in[2] + row * n};
        grad_row(n, in, (float *)call->out[0] + row * n);
    }
}

static void decay_run(const MxDevice *device, const MxKernelCall *call) {
    cpu_map(device, call, 2, decay_block, NULL);
}

static void decay_grad_run(const MxDevice *device, const MxKernelCall *call) {
    int64_t n = mx_shape_count(call->in_type[1].shape);
    int64_t rows = n ? mx_shape_count(call->in_type[0].shape) / n : 0;
    if (call->out[0])
        cpu_for(device, rows, cpu_max(1, CPU_PIECE / cpu_max(1, n)), decay_grad_rows, call);
}

const MxKernel cpu_decay = {.run = decay_run};
const MxKernel cpu_decay_grad = {.run = decay_grad_run};
