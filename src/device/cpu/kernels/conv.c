/* conv.c — causal convolution of channels, in blocks of channels, and the decay of the gated delta
 * rule. */
#include "kernel.h"
#include "vec.h"

enum { CHANNELS = 128 /* that a thread takes at a time */ };

typedef struct Conv {
    const MxKernelCall *call;
    const int32_t *segments;
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

/* n weights of a tap from channel `at` on, rounded to x's dtype. */
static const float *weights(const Conv *c, int64_t tap, int64_t at, int64_t n, float *block) {
    const float *w = (const float *)c->call->in[1] + tap * c->width + at;
    if (c->dtype == MX_F32) return w;
    for (int64_t i = 0; i < n; i++) block[i] = mx_bf16_to_f32(mx_f32_to_bf16(w[i]));
    return block;
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

/* y[t] = sum over taps of w x[t - before]; of the gradient, x[t + before]. */
static void gather(const Conv *c, int from, int to, const int64_t begin_end[2]) {
    float sum[CHANNELS], x_block[CHANNELS], w_block[CHANNELS];
    int64_t at = begin_end[0], n = begin_end[1] - at;
    for (int64_t row = 0; row < c->rows; row++)
        for (int64_t t = 0; t < c->time; t++) {
            int64_t place = (row * c->time + t) * c->width + at;
            memset(sum, 0, sizeof sum);
            for (int64_t tap = 0; tap < c->taps; tap++) {
                int64_t before = (from ? -1 : 1) * behind(c, tap);
                if (!is_near(c, row, t, before)) continue;
                const float *x =
                    cpu_read(c->call->in[from], c->dtype, place - before * c->width, n, x_block);
                multiply_add(n, x, weights(c, tap, at, n, w_block), sum);
            }
            cpu_store(sum, n, c->call->out[to], c->dtype, place);
        }
}

static void conv_channels(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    gather(context, 0, 0, (const int64_t[]){begin, end});
}

static void conv_run(const MxDevice *device, const MxKernelCall *call) {
    Conv c = conv_of(call);
    if (call->out[0]) cpu_for(device, c.width, CHANNELS, conv_channels, &c);
}

const MxKernel cpu_conv = {.run = conv_run};

/* ---- the same of what is kept in a cache */

static void cached_channels(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Conv *c = context;
    const int32_t *positions = c->call->in[2], *sequences = c->call->in[3];
    const int64_t slots = c->call->in_type[0].shape.dim[1], n = end - begin;
    float sum[CHANNELS], x_block[CHANNELS], w_block[CHANNELS];
    for (int64_t i = 0; i < c->rows * c->time; i++) {
        memset(sum, 0, sizeof sum);
        for (int64_t tap = 0; tap < c->taps; tap++) {
            int64_t from = positions[i] - behind(c, tap);
            if (from < 0 || positions[i] < 0) continue;
            int64_t row = sequences[i / c->time] * slots + from % slots;
            const float *x = cpu_read(c->call->in[0], c->dtype, row * c->width + begin, n, x_block);
            multiply_add(n, x, weights(c, tap, begin, n, w_block), sum);
        }
        cpu_store(sum, n, c->call->out[0], c->dtype, i * c->width + begin);
    }
}

static void cache_conv_run(const MxDevice *device, const MxKernelCall *call) {
    MxShape piece = call->in_type[2].shape;
    Conv c = {.call = call,
              .rows = piece.dim[0],
              .time = piece.dim[1],
              .width = call->in_type[0].shape.dim[2],
              .taps = call->in_type[1].shape.dim[0],
              .apart = apart_of(call),
              .dtype = call->in_type[0].dtype};
    if (call->out[0]) cpu_for(device, c.width, CHANNELS, cached_channels, &c);
}

const MxKernel cpu_cache_conv = {.run = cache_conv_run};

/* ---- gradient */

enum { DY = 3 };

static void sum_tap(const Conv *c, int64_t tap, int64_t at, int64_t n) {
    float sum[CHANNELS] = {0}, x_block[CHANNELS], y_block[CHANNELS];
    int64_t before = behind(c, tap);
    for (int64_t row = 0; row < c->rows; row++)
        for (int64_t t = 0; t < c->time; t++) {
            if (!is_near(c, row, t, before)) continue;
            int64_t place = (row * c->time + t) * c->width + at;
            const float *dy = cpu_read(c->call->in[DY], c->dtype, place, n, y_block);
            const float *x =
                cpu_read(c->call->in[0], c->dtype, place - before * c->width, n, x_block);
            multiply_add(n, x, dy, sum);
        }
    memcpy((float *)c->call->out[1] + tap * c->width + at, sum, (size_t)n * sizeof *sum);
}

static void conv_grad_channels(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Conv *c = context;
    if (c->call->out[0]) gather(c, DY, 0, (const int64_t[]){begin, end});
    for (int64_t tap = 0; tap < c->taps && c->call->out[1]; tap++)
        sum_tap(c, tap, begin, end - begin);
}

static void conv_grad_run(const MxDevice *device, const MxKernelCall *call) {
    Conv c = conv_of(call);
    cpu_for(device, c.width, CHANNELS, conv_grad_channels, &c);
}

const MxKernel cpu_conv_grad = {.run = conv_grad_run};

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
