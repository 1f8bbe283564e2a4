/* policy.c — losses of rewarded responses: a row is a response, whose tokens have a ratio each or
 * one together. All in f64. */
#include "kernel.h"

#include <math.h>
#include <stdlib.h>

enum { LOGP, WEIGHTS, ADVANTAGES, OLD, REFERENCE };
enum { LOSS, SUMS };

/* One row and what holds for all of its tokens. */
typedef struct Row {
    const MxPolicyAttr *attr;
    const float *logp, *old, *reference, *kept; /* the last two: NULL = none */
    const int32_t *weights;
    int64_t length;
    double advantage, n; /* tokens that count … */
    double n_kept;       /* … and not for their divergence alone */
    double ratio;        /* of the row, where tokens have none of their own */
    double product;      /* of all ratios, as its logarithm */
    double kl;           /* the sum of divergences from the reference */
    bool is_off;         /* only these count */
} Row;

static const float *row_of(const MxKernelCall *call, int input, int64_t row) {
    return (const float *)call->in[input] + row * call->in_type[LOGP].shape.dim[1];
}

static double log_ratio(const Row *r, int64_t i) {
    return (double)r->logp[i] - (double)r->old[i];
}

/* The divergence of a token, and its slope. */
static double divergence(const Row *r, int64_t i, double *slope) {
    double d = r->reference ? (double)r->reference[i] - (double)r->logp[i] : 0;
    const double slopes[] = {-expm1(d), 1, -d}, values[] = {expm1(d) - d, -d, d * d / 2};
    *slope = r->reference ? slopes[r->attr->kl] : 0;
    return values[r->attr->kl];
}

static bool is_kept(const Row *r, int64_t i) {
    return !r->kept || r->kept[i] != 0;
}

static double within(double x, double low, double high) {
    return fmin(fmax(x, low), high);
}

static Row read_row(const MxKernelCall *call, int64_t row) {
    const MxPolicyAttr *attr = call->attr;
    Row r = {.attr = attr, .length = call->in_type[LOGP].shape.dim[1]};
    r.logp = row_of(call, LOGP, row);
    r.weights = (const int32_t *)call->in[WEIGHTS] + row * r.length;
    r.advantage = (double)*row_of(call, ADVANTAGES, row);
    r.old = row_of(call, OLD, row);
    if (attr->has_reference) r.reference = row_of(call, REFERENCE, row);
    if (attr->has_kept) r.kept = row_of(call, REFERENCE + attr->has_reference, row);
    double sum = 0, slope;
    for (int64_t i = 0; i < r.length; i++) {
        if (!r.weights[i]) continue;
        sum += log_ratio(&r, i);
        r.product += within(log_ratio(&r, i), -MX_POLICY_FAR, MX_POLICY_FAR);
        r.kl += divergence(&r, i, &slope);
        r.n++;
        r.n_kept += is_kept(&r, i);
    }
    r.ratio = exp(attr->ratio == MX_RATIO_MEAN ? sum / fmax(r.n, 1) : sum);
    r.product = within(r.product, log(MX_POLICY_LEAST), MX_POLICY_FAR);
    r.is_off = attr->off > 0 && r.advantage < 0 && -sum / fmax(r.n, 1) > attr->off;
    return r;
}

/* ---- the loss of a token, and its slope by the log-ratio */

typedef double Trusted(const Row *r, int64_t i, double ratio, double *slope, bool *is_bounded);

static double at_most(const MxPolicyAttr *a, double ratio) {
    return a->most > 0 ? fmin(ratio, a->most) : ratio;
}

static double clip(const Row *r, int64_t i, double ratio, double *slope, bool *is_bounded) {
    (void)i;
    const MxPolicyAttr *a = r->attr;
    double bounded = within(ratio, 1 - a->low, 1 + a->high), kept = at_most(a, ratio);
    bool is_less = bounded * r->advantage < kept * r->advantage;
    double used = is_less ? bounded : kept;
    *is_bounded = is_less && bounded != ratio;
    *slope = used == ratio ? -ratio * r->advantage : 0;
    return -used * r->advantage;
}

static double weight(const Row *r, int64_t i, double ratio, double *slope, bool *is_bounded) {
    double kept = at_most(r->attr, ratio);
    *is_bounded = kept < ratio && r->advantage > 0;
    *slope = -kept * r->advantage;
    return *slope * (double)r->logp[i];
}

static double gate(const Row *r, int64_t i, double ratio, double *slope, bool *is_bounded) {
    (void)i;
    double tau = r->advantage > 0 ? r->attr->rise : r->attr->fall;
    double open = 1 / (1 + exp(-tau * (ratio - 1)));
    *is_bounded = false;
    *slope = -r->advantage * 4 * open * (1 - open) * ratio;
    return -r->advantage * 4 / tau * open;
}

static double gamma_of(const Row *r, int64_t i, double ratio, double *slope, bool *is_bounded) {
    (void)ratio;
    int side = r->advantage < 0;
    double rate = r->attr->rate[side];
    *is_bounded = false;
    *slope = -r->advantage * exp(r->attr->shape[side] * r->product + rate - rate * exp(r->product));
    return *slope * (double)r->logp[i];
}

static Trusted *const trusted[MX_TRUST_COUNT] = {[MX_TRUST_CLIP] = clip,
                                                 [MX_TRUST_WEIGHT] = weight,
                                                 [MX_TRUST_GATE] = gate,
                                                 [MX_TRUST_GAMMA] = gamma_of};

static double ratio_of(const Row *r, int64_t i) {
    return r->attr->ratio == MX_RATIO_TOKEN ? exp(log_ratio(r, i)) : r->ratio;
}

static double loss_of(const Row *r, int64_t i, double *slope, bool *is_bounded) {
    double loss = trusted[r->attr->trust](r, i, ratio_of(r, i), slope, is_bounded);
    if (r->is_off) *slope = 0;
    return r->is_off || !is_kept(r, i) ? 0 : loss;
}

/* ---- forward */

/* Rows that are worth a thread's while. */
static int64_t piece_of(const MxKernelCall *call) {
    return cpu_max(1, CPU_PIECE / cpu_max(1, call->in_type[LOGP].shape.dim[1]));
}

static size_t policy_scratch(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    return (size_t)call->in_type[LOGP].shape.dim[0] * MX_POLICY_COUNT * sizeof(double);
}

static void sum_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    for (int64_t row = begin; row < end; row++) {
        double *sums = (double *)call->scratch + row * MX_POLICY_COUNT, loss = 0, slope;
        Row r = read_row(call, row);
        for (int k = 0; k < MX_POLICY_COUNT; k++) sums[k] = 0;
        for (int64_t i = 0; i < r.length; i++) {
            bool is_bounded;
            if (!r.weights[i]) continue;
            double kl = divergence(&r, i, &slope);
            double weight = r.attr->weighs_kl ? ratio_of(&r, i) : 1;
            loss += r.attr->beta * weight * kl + loss_of(&r, i, &slope, &is_bounded);
            sums[MX_POLICY_GAIN] += r.advantage * (double)r.logp[i] / r.n;
            sums[MX_POLICY_KL] += kl;
            sums[MX_POLICY_CLIPPED] += is_bounded;
        }
        sums[MX_POLICY_LOSS] = loss / (r.attr->sums ? 1 : fmax(r.n, 1));
        sums[MX_POLICY_TOKENS] = r.n;
        sums[MX_POLICY_ROWS] = 1;
    }
}

static void put(const MxKernelCall *call, int out, int at, double x) {
    float *to = call->out[out];
    if (to) to[at] = (float)(x + (call->accumulate >> out & 1 ? (double)to[at] : 0));
}

static void policy_run(const MxDevice *device, const MxKernelCall *call) {
    double total[MX_POLICY_COUNT] = {0};
    int64_t n = call->in_type[LOGP].shape.dim[0];
    cpu_for(device, n, piece_of(call), sum_rows, call);
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < MX_POLICY_COUNT; k++)
            total[k] += ((const double *)call->scratch)[i * MX_POLICY_COUNT + k];
    put(call, LOSS, 0, total[MX_POLICY_LOSS]);
    for (int k = 0; k < MX_POLICY_COUNT; k++) put(call, SUMS, k, total[k]);
}

const MxKernel cpu_policy = {.scratch = policy_scratch, .run = policy_run};

/* ---- gradient */

/* Where a ratio gets no gradient, or is the token's own, a token moves its own loss. A ratio of a
 * row moves with each of its tokens, and all losses that are kept with it: of a mean each by 1/n.
 */
static double slope_of(const Row *r, int64_t i) {
    const MxPolicyAttr *a = r->attr;
    bool is_bounded;
    double slope;
    loss_of(r, i, &slope, &is_bounded);
    if (a->trust == MX_TRUST_WEIGHT || a->trust == MX_TRUST_GAMMA || a->ratio == MX_RATIO_TOKEN)
        return is_kept(r, i) ? slope : 0;
    return slope * (a->ratio == MX_RATIO_SUM ? r->n_kept : r->n_kept / fmax(r->n, 1));
}

/* Of the divergence, as far as the token moves it: its own, and where it is weighed the ratio, with
 * that of a row all others. */
static double slope_of_kl(const Row *r, int64_t i) {
    double slope, own = divergence(r, i, &slope);
    if (!r->attr->weighs_kl) return slope;
    if (r->attr->ratio == MX_RATIO_MEAN) own = r->kl / fmax(r->n, 1);
    if (r->attr->ratio == MX_RATIO_SUM) own = r->kl;
    return ratio_of(r, i) * (slope + own);
}

static void grad_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    double dloss = (double)*(const float *)call->in[call->n_in - 1];
    for (int64_t row = begin; row < end; row++) {
        Row r = read_row(call, row);
        float *dlogp = (float *)call->out[0] + row * r.length;
        double share = dloss / (r.attr->sums ? 1 : fmax(r.n, 1));
        for (int64_t i = 0; i < r.length; i++) {
            dlogp[i] = 0;
            if (!r.weights[i]) continue;
            dlogp[i] = (float)(share * (slope_of(&r, i) + r.attr->beta * slope_of_kl(&r, i)));
        }
    }
}

static void policy_grad_run(const MxDevice *device, const MxKernelCall *call) {
    if (call->out[0])
        cpu_for(device, call->in_type[LOGP].shape.dim[0], piece_of(call), grad_rows, call);
}

const MxKernel cpu_policy_grad = {.run = policy_grad_run};

/* ---- the upper tokens */

enum { X, X_WEIGHTS };

static size_t upper_scratch(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    return (size_t)mx_shape_count(call->in_type[X].shape) * sizeof(float);
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The quantile of n > 0 numbers, which are sorted here. In f32, as torch has it. */
static float quantile(float *x, int64_t n, double at) {
    qsort(x, (size_t)n, sizeof *x, by_size);
    float rank = (float)at * (float)(n - 1), below = floorf(rank), share = rank - below;
    float low = x[(int64_t)below], high = x[cpu_min((int64_t)below + 1, n - 1)];
    return share < 0.5f ? low + share * (high - low) : high - (high - low) * (1 - share);
}

static void upper_run(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    const float *x = call->in[X];
    const int32_t *weights = call->in[X_WEIGHTS];
    float *sorted = call->scratch, *out = call->out[0];
    int64_t all = mx_shape_count(call->in_type[X].shape), n = 0, n_upper = 0;
    for (int64_t i = 0; i < all; i++)
        if (weights[i]) sorted[n++] = x[i];
    float least = n ? quantile(sorted, n, 1 - ((const MxUpperAttr *)call->attr)->share) : 0;
    for (int64_t i = 0; i < all; i++) n_upper += weights[i] && x[i] >= least;
    for (int64_t i = 0; i < all && out; i++)
        out[i] = weights[i] && x[i] >= least ? (float)((double)n / (double)n_upper) : 0;
}

const MxKernel cpu_upper_tokens = {.scratch = upper_scratch, .run = upper_run};
