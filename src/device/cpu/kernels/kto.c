/* kto.c — the loss of desirable and undesirable responses: a row is a response. All in f64. */
#include "kernel.h"

#include <math.h>

enum { LOGP, WEIGHTS, LABELS, REFERENCE, KL };
enum { LOSS, SUMS };

typedef struct Row {
    double logp, ratio; /* sums over tokens that count; ratio: less the reference */
    double n;
    bool is_wanted;
    double loss, slope; /* of the row, and by its ratio */
} Row;

static double sigmoid(double x) {
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

static Row read_row(const MxKernelCall *call, int64_t row) {
    const MxKtoAttr *a = call->attr;
    int64_t T = call->in_type[LOGP].shape.dim[1], at = row * T;
    const float *logp = (const float *)call->in[LOGP] + at,
                *reference = (const float *)call->in[REFERENCE] + at;
    const int32_t *weights = (const int32_t *)call->in[WEIGHTS] + at;
    Row r = {.is_wanted = ((const float *)call->in[LABELS])[at] > 0};
    for (int64_t i = 0; i < T; i++) {
        if (!weights[i]) continue;
        r.logp += (double)logp[i];
        r.ratio += (double)logp[i] - (double)reference[i];
        r.n++;
    }
    double sign = r.is_wanted ? 1 : -1, weight = r.is_wanted ? a->wanted : a->unwanted;
    double value =
        sigmoid(sign * a->beta * (r.ratio - fmax((double)*(const float *)call->in[KL], 0)));
    r.loss = weight * (1 - value);
    r.slope = -sign * weight * a->beta * value * (1 - value);
    return r;
}

/* Rows that are worth a thread's while. */
static int64_t piece_of(const MxKernelCall *call) {
    return cpu_max(1, CPU_PIECE / cpu_max(1, call->in_type[LOGP].shape.dim[1]));
}

static size_t kto_scratch(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    return (size_t)call->in_type[LOGP].shape.dim[0] * MX_KTO_COUNT * sizeof(double);
}

static void sum_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    const MxKtoAttr *a = call->attr;
    for (int64_t row = begin; row < end; row++) {
        double *sums = (double *)call->scratch + row * MX_KTO_COUNT;
        Row r = read_row(call, row);
        for (int k = 0; k < MX_KTO_COUNT; k++) sums[k] = 0;
        sums[MX_KTO_LOSS] = r.loss;
        sums[r.is_wanted ? MX_KTO_WANTED : MX_KTO_UNWANTED] = 1;
        sums[r.is_wanted ? MX_KTO_WANTED_REWARD : MX_KTO_UNWANTED_REWARD] = a->beta * r.ratio;
        sums[r.is_wanted ? MX_KTO_WANTED_LOGP : MX_KTO_UNWANTED_LOGP] = r.logp;
    }
}

static void put(const MxKernelCall *call, int out, int at, double x) {
    float *to = call->out[out];
    if (to) to[at] = (float)(x + (call->accumulate >> out & 1 ? (double)to[at] : 0));
}

static void kto_run(const MxDevice *device, const MxKernelCall *call) {
    double total[MX_KTO_COUNT] = {0};
    int64_t n = call->in_type[LOGP].shape.dim[0];
    cpu_for(device, n, piece_of(call), sum_rows, call);
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < MX_KTO_COUNT; k++)
            total[k] += ((const double *)call->scratch)[i * MX_KTO_COUNT + k];
    put(call, LOSS, 0, total[MX_KTO_LOSS]);
    for (int k = 0; k < MX_KTO_COUNT; k++) put(call, SUMS, k, total[k]);
}

const MxKernel cpu_kto = {.scratch = kto_scratch, .run = kto_run};

static void grad_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    int64_t T = call->in_type[LOGP].shape.dim[1];
    double dloss = (double)*(const float *)call->in[call->n_in - 1];
    for (int64_t row = begin; row < end; row++) {
        const int32_t *weights = (const int32_t *)call->in[WEIGHTS] + row * T;
        float *dlogp = (float *)call->out[0] + row * T;
        float slope = (float)(dloss * read_row(call, row).slope);
        for (int64_t i = 0; i < T; i++) dlogp[i] = weights[i] ? slope : 0;
    }
}

static void kto_grad_run(const MxDevice *device, const MxKernelCall *call) {
    if (call->out[0])
        cpu_for(device, call->in_type[LOGP].shape.dim[0], piece_of(call), grad_rows, call);
}

const MxKernel cpu_kto_grad = {.run = kto_grad_run};
