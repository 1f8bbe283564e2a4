/* route.c — routing tokens to experts: rows of a few elements each, f32, divided among threads by
 * rows; each row by one thread, in order. */
#include "kernel.h"

#include <math.h>

static int64_t last_dim(MxShape shape) {
    return shape.rank ? shape.dim[shape.rank - 1] : 1;
}

/* Runs work over rows of input 0. */
static void for_rows(const MxDevice *device, const MxKernelCall *call, CpuWork *work) {
    int64_t width = last_dim(call->in_type[0].shape);
    int64_t rows = width ? mx_shape_count(call->in_type[0].shape) / width : 0;
    if (call->out[0]) cpu_for(device, rows, cpu_max(1, CPU_PIECE / cpu_max(1, width)), work, call);
}

/* ---- softmax */

static void softmax_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    int64_t n = last_dim(call->in_type[0].shape);
    for (int64_t row = begin; row < end; row++) {
        const float *x = (const float *)call->in[0] + row * n;
        float *y = (float *)call->out[0] + row * n, most = -INFINITY, sum = 0;
        for (int64_t i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
        for (int64_t i = 0; i < n; i++) sum += y[i] = expf(x[i] - most);
        for (int64_t i = 0; i < n; i++) y[i] /= sum;
    }
}

static void softmax_run(const MxDevice *device, const MxKernelCall *call) {
    for_rows(device, call, softmax_rows);
}

const MxKernel cpu_softmax = {.run = softmax_run};

static void softmax_grad_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    int64_t n = last_dim(call->in_type[0].shape);
    for (int64_t row = begin; row < end; row++) {
        const float *y = (const float *)call->in[0] + row * n;
        const float *dy = (const float *)call->in[1] + row * n;
        float *dx = (float *)call->out[0] + row * n, sum = 0;
        for (int64_t i = 0; i < n; i++) sum += y[i] * dy[i];
        for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - sum);
    }
}

static void softmax_grad_run(const MxDevice *device, const MxKernelCall *call) {
    for_rows(device, call, softmax_grad_rows);
}

const MxKernel cpu_softmax_grad = {.run = softmax_grad_run};

/* ---- shares */

static const float SHARE_EPS = 1e-20f;

static float sum_of(const float *x, int64_t n) {
    float sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum + SHARE_EPS;
}

static void share_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    int64_t n = last_dim(call->in_type[0].shape);
    for (int64_t row = begin; row < end; row++) {
        const float *x = (const float *)call->in[0] + row * n;
        float *y = (float *)call->out[0] + row * n, sum = sum_of(x, n);
        for (int64_t i = 0; i < n; i++) y[i] = x[i] / sum;
    }
}

static void share_run(const MxDevice *device, const MxKernelCall *call) {
    for_rows(device, call, share_rows);
}

const MxKernel cpu_share = {.run = share_run};

static void share_grad_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    int64_t n = last_dim(call->in_type[0].shape);
    for (int64_t row = begin; row < end; row++) {
        const float *x = (const float *)call->in[0] + row * n;
        const float *dy = (const float *)call->in[1] + row * n;
        float *dx = (float *)call->out[0] + row * n, sum = sum_of(x, n), mean = 0;
        for (int64_t i = 0; i < n; i++) mean += x[i] / sum * dy[i];
        for (int64_t i = 0; i < n; i++) dx[i] = (dy[i] - mean) / sum;
    }
}

static void share_grad_run(const MxDevice *device, const MxKernelCall *call) {
    for_rows(device, call, share_grad_rows);
}

const MxKernel cpu_share_grad = {.run = share_grad_run};

/* ---- the largest elements */

/* Puts i among the first `found` of the best, which are in order; k are kept. A NaN goes last. */
static int64_t insert(const float *x, int32_t i, int32_t *best, int64_t found, int64_t k) {
    int64_t at = found;
    while (at > 0 && !(x[best[at - 1]] >= x[i]) && !isnan(x[i])) at--;
    if (at == k) return found;
    int64_t last = found < k ? found : k - 1;
    for (int64_t j = last; j > at; j--) best[j] = best[j - 1];
    best[at] = i;
    return found < k ? found + 1 : k;
}

/* Each worker's: what groups score, and the best of them. */
static size_t groups_scratch(const MxDevice *device, const MxKernelCall *call) {
    const MxTopKAttr *a = call->attr;
    return (sizeof(float) + sizeof(int32_t)) * (size_t)(a->n_groups * device->n_threads);
}

static float two_largest(const float *x, int64_t n) {
    float first = -INFINITY, second = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (x[i] > first) {
            second = first;
            first = x[i];
        } else if (x[i] > second) {
            second = x[i];
        }
    }
    return first + second;
}

/* Elements of the best groups, from lower to higher index. */
static void take_of_groups(const MxTopKAttr *a, const float *x, int64_t n, float *score,
                           int32_t *group, int32_t *best) {
    int64_t each = n / a->n_groups, n_found = 0, found = 0;
    for (int32_t g = 0; g < a->n_groups; g++) {
        score[g] = two_largest(x + g * each, each);
        n_found = insert(score, g, group, n_found, a->n_best);
    }
    for (int64_t g = 0; g < a->n_best; g++) score[group[g]] = INFINITY;
    for (int32_t i = 0; i < n; i++)
        if (score[i / each] == INFINITY) found = insert(x, i, best, found, a->k);
}

static void top_k_rows(const void *context, int64_t begin, int64_t end, int worker) {
    const MxKernelCall *call = context;
    const MxTopKAttr *a = call->attr;
    int64_t n = last_dim(call->in_type[0].shape), k = last_dim(call->out_type[0].shape);
    float *score = (float *)call->scratch + 2 * worker * a->n_groups;
    for (int64_t row = begin; row < end; row++) {
        const float *x = (const float *)call->in[0] + row * n;
        int32_t *best = (int32_t *)call->out[0] + row * k;
        int64_t found = 0;
        if (a->n_groups)
            take_of_groups(a, x, n, score, (int32_t *)(score + a->n_groups), best);
        else
            for (int32_t i = 0; i < n; i++) found = insert(x, i, best, found, k);
    }
}

static void top_k_run(const MxDevice *device, const MxKernelCall *call) {
    for_rows(device, call, top_k_rows);
}

const MxKernel cpu_top_k = {.scratch = groups_scratch, .run = top_k_run};

static void pick_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    int64_t n = last_dim(call->in_type[0].shape), k = last_dim(call->in_type[1].shape);
    for (int64_t row = begin; row < end; row++) {
        const float *x = (const float *)call->in[0] + row * n;
        const int32_t *ids = (const int32_t *)call->in[1] + row * k;
        float *y = (float *)call->out[0] + row * k;
        for (int64_t i = 0; i < k; i++) {
            MX_ASSERT(ids[i] >= 0 && ids[i] < n);
            y[i] = x[ids[i]];
        }
    }
}

static void pick_run(const MxDevice *device, const MxKernelCall *call) {
    for_rows(device, call, pick_rows);
}

const MxKernel cpu_pick = {.run = pick_run};

static void pick_grad_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    int64_t k = last_dim(call->in_type[0].shape), n = last_dim(call->out_type[0].shape);
    for (int64_t row = begin; row < end; row++) {
        const int32_t *ids = (const int32_t *)call->in[0] + row * k;
        const float *dy = (const float *)call->in[1] + row * k;
        float *dx = (float *)call->out[0] + row * n;
        memset(dx, 0, sizeof *dx * (size_t)n);
        for (int64_t i = 0; i < k; i++) {
            MX_ASSERT(ids[i] >= 0 && ids[i] < n);
            dx[ids[i]] += dy[i];
        }
    }
}

static void pick_grad_run(const MxDevice *device, const MxKernelCall *call) {
    for_rows(device, call, pick_grad_rows);
}

const MxKernel cpu_pick_grad = {.run = pick_grad_run};

/* ---- loads: few elements, one thread */

static void count_ids_run(const MxDevice *device, const MxKernelCall *call) {
    const int32_t *ids = call->in[0];
    int64_t n_ids = mx_shape_count(call->in_type[0].shape), n = last_dim(call->out_type[0].shape);
    float *count = call->out[0];
    (void)device;
    if (!count) return;
    if (!call->accumulate) memset(count, 0, sizeof *count * (size_t)n);
    for (int64_t i = 0; i < n_ids; i++) {
        MX_ASSERT(ids[i] >= -1 && ids[i] < n);
        if (ids[i] >= 0) count[ids[i]]++;
    }
}

const MxKernel cpu_count_ids = {.run = count_ids_run};

static void even_out_run(const MxDevice *device, const MxKernelCall *call) {
    const float *p = call->in[0], *counts = call->in[1];
    int64_t n = last_dim(call->in_type[0].shape);
    float *out = call->out[0], rate = (float)((const MxEvenOutAttr *)call->attr)->rate;
    double sum = 0;
    (void)device;
    if (!out) return;
    for (int64_t i = 0; i < n; i++) sum += (double)counts[i];
    double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) {
        int sign = (mean > (double)counts[i]) - (mean < (double)counts[i]);
        out[i] = p[i] + rate * (float)sign;
    }
}

const MxKernel cpu_even_out = {.run = even_out_run};

/* ---- balance: a row of the batch at a time */

static void count_choices(const int32_t *ids, int64_t n, int64_t n_experts, double *count) {
    for (int64_t e = 0; e < n_experts; e++) count[e] = 0;
    for (int64_t i = 0; i < n; i++) {
        MX_ASSERT(ids[i] >= 0 && ids[i] < n_experts);
        count[ids[i]]++;
    }
}

static size_t balance_scratch(const MxDevice *device, const MxKernelCall *call) {
    const MxBalanceAttr *attr = call->attr;
    (void)device;
    return sizeof(double) * 2 * (size_t)attr->n_experts;
}

/* Few elements: one thread. */
static void balance_run(const MxDevice *device, const MxKernelCall *call) {
    const MxBalanceAttr *attr = call->attr;
    MxShape probs = call->in_type[0].shape;
    int64_t length = probs.dim[1], choices = call->in_type[1].shape.dim[2], X = attr->n_experts;
    double *count = call->scratch, *sum = count + X, total = 0;
    (void)device;
    if (!call->out[0]) return;
    for (int64_t row = 0; row < probs.dim[0]; row++) {
        const float *p = (const float *)call->in[0] + row * length * X;
        count_choices((const int32_t *)call->in[1] + row * length * choices, length * choices, X,
                      count);
        for (int64_t e = 0; e < X; e++) sum[e] = 0;
        for (int64_t i = 0; i < length * X; i++) sum[i % X] += (double)p[i];
        for (int64_t e = 0; e < X; e++) total += count[e] * sum[e];
    }
    double scale = length ? attr->factor / ((double)length * (double)length) : 0;
    *(float *)call->out[0] = (float)(scale * total);
}

const MxKernel cpu_balance = {.scratch = balance_scratch, .run = balance_run};

static size_t balance_grad_scratch(const MxDevice *device, const MxKernelCall *call) {
    const MxBalanceAttr *attr = call->attr;
    return sizeof(double) * (size_t)(attr->n_experts * device->n_threads);
}

static void balance_grad_rows(const void *context, int64_t begin, int64_t end, int worker) {
    const MxKernelCall *call = context;
    const MxBalanceAttr *attr = call->attr;
    MxShape ids = call->in_type[0].shape;
    int64_t length = ids.dim[1], choices = ids.dim[2], X = attr->n_experts;
    double *count = (double *)call->scratch + worker * X;
    double dy = (double)*(const float *)call->in[1];
    double scale = attr->factor * dy / ((double)length * (double)length);
    for (int64_t row = begin; row < end; row++) {
        float *dx = (float *)call->out[0] + row * length * X;
        count_choices((const int32_t *)call->in[0] + row * length * choices, length * choices, X,
                      count);
        for (int64_t i = 0; i < length * X; i++) dx[i] = (float)(scale * count[i % X]);
    }
}

static void balance_grad_run(const MxDevice *device, const MxKernelCall *call) {
    if (call->out[0]) cpu_for(device, call->in_type[0].shape.dim[0], 1, balance_grad_rows, call);
}

const MxKernel cpu_balance_grad = {.scratch = balance_grad_scratch, .run = balance_grad_run};
