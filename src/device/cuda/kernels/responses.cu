/* responses.cu — losses of responses: of pairs of them, of rewarded ones, of desirable and
 * undesirable ones. A block makes the sums over the tokens of a row, all in f64; a last kernel adds
 * up the rows. */
#include "device/cuda/gpu.cuh"

namespace gpu_responses {

enum { LOGP, WEIGHTS };
enum { LOSS, SUMS, EXTREMES };

/* ---- all rows together */

/* Numbers of rows [rows][n_sums + n_most], of which the last are maxima; the first sum is the
 * loss. */
typedef struct ResponseTotals {
    const double *of_rows;
    int64_t rows;
    int n_sums, n_most;
    float *loss, *sums, *extremes; /* NULL = not wanted */
    unsigned accumulate;
} ResponseTotals;

__device__ static void put(const ResponseTotals &t, int out, float *to, double x) {
    if (to) *to = (float)(x + (t.accumulate >> out & 1 ? (double)*to : 0));
}

/* A block for each number. */
__global__ void __launch_bounds__(GPU_BLOCK) totals_kernel(ResponseTotals t) {
    int k = (int)blockIdx.x, each = t.n_sums + t.n_most;
    bool is_sum = k < t.n_sums;
    double x = is_sum ? 0 : -INFINITY;
    for (int64_t row = threadIdx.x; row < t.rows; row += GPU_BLOCK) {
        double own = t.of_rows[row * each + k];
        x = is_sum ? x + own : fmax(x, own);
    }
    x = is_sum ? gpu_block_sum(x) : gpu_block_max(x);
    if (threadIdx.x) return;
    if (!is_sum) {
        put(t, EXTREMES, t.extremes ? t.extremes + k - t.n_sums : nullptr, x);
        return;
    }
    if (!k) put(t, LOSS, t.loss, x);
    put(t, SUMS, t.sums ? t.sums + k : nullptr, x);
}

static void add_up(const MxDevice *device, const MxKernelCall *call, int64_t rows, int n_sums,
                   int n_most) {
    ResponseTotals t = {};
    t.of_rows = (const double *)call->scratch;
    t.rows = rows;
    t.n_sums = n_sums, t.n_most = n_most;
    t.loss = (float *)call->out[LOSS];
    t.sums = (float *)call->out[SUMS];
    if (n_most) t.extremes = (float *)call->out[EXTREMES];
    t.accumulate = call->accumulate;
    gpu_launch(device, totals_kernel, (unsigned)(n_sums + n_most), GPU_BLOCK, 0, t);
}

__device__ static inline double sigmoid(double x) {
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

/* ---- pairs: formulas, and their slopes d by x; the CPU's have the explanations */

enum { CHOSEN, REJECTED };

/* Indexed by CHOSEN and REJECTED. */
typedef struct Pair {
    double logp[2], ratio[2]; /* sums over counting tokens; ratio: less the reference */
    double n[2];              /* counting tokens */
    double x[2];              /* what the formula is about … */
    double slope[2];          /* … and its slope by the log-probability of a token */
} Pair;

/* -log sigmoid(-x), which is log(1 + e^x). */
__device__ static double softplus(double x) {
    return fmax(x, 0.0) + log1p(exp(-fabs(x)));
}

/* -(1-e) log s(z) - e log s(-z) and its slope by z. */
__device__ static double smoothed(double e, double z, double *slope) {
    *slope = e - sigmoid(-z);
    return (1 - e) * softplus(-z) + e * softplus(z);
}

__device__ static double bell(double x) {
    return sigmoid(x) * sigmoid(-x);
}

/* From a slope by x - y to slopes by x and y. */
__device__ static void apart(double slope, double *d) {
    d[CHOSEN] = slope;
    d[REJECTED] = -slope;
}

/* Losses of z = beta (x - y), by which *slope is. */
__device__ static double loss_of_margin(const MxPreferenceAttr &a, double z, double *slope) {
    double e = a.label_smoothing;
    switch (a.algo) {
    case MX_PREFERENCE_SIMPO:
        return smoothed(e, z - a.gamma, slope);
    case MX_PREFERENCE_HINGE:
        *slope = z < 1 ? -1 : 0;
        return fmax(0.0, 1 - z);
    case MX_PREFERENCE_ROBUST:
        *slope = (-(1 - e) * sigmoid(-z) - e * sigmoid(z)) / (1 - 2 * e);
        return ((1 - e) * softplus(-z) - e * softplus(z)) / (1 - 2 * e);
    case MX_PREFERENCE_EXO_PAIR: {
        double q = sigmoid(z);
        double for_chosen = -softplus(-z) - log(1 - e), for_rejected = -softplus(z) - log(e);
        *slope = q * (1 - q) * (for_chosen - for_rejected);
        return q * for_chosen + (1 - q) * for_rejected;
    }
    case MX_PREFERENCE_DISCOPOP: {
        const double temperature = 0.05;
        double m = sigmoid(z / temperature), steep = bell(z / temperature) / temperature;
        double logistic = softplus(-z), exponential = exp(-z);
        *slope = -(1 - m) * sigmoid(-z) - m * exponential + steep * (exponential - logistic);
        return (1 - m) * logistic + m * exponential;
    }
    default: { /* dpo and the same of means */
        double again = a.formula == MX_FORMULA_MAXTEXT ? a.beta : 1;
        double loss = smoothed(e, again * z, slope);
        *slope *= again;
        return loss;
    }
    }
}

/* log odds of a log-probability, and its slope. */
__device__ static double log_odds(double x, double *slope) {
    const double nearly_one = -1e-9, half = -0.6931471805599453;
    x = fmin(x, nearly_one);
    *slope = -1 / expm1(x);
    return x - (x > half ? log(-expm1(x)) : log1p(-exp(x)));
}

__device__ static double orpo(const MxPreferenceAttr &a, const Pair &p, double *d) {
    double slope[2], by_odds;
    double share = a.formula == MX_FORMULA_MAXTEXT ? fmax(p.n[CHOSEN], 1.0) : 1;
    double odds = log_odds(p.x[CHOSEN], &slope[CHOSEN]);
    odds -= log_odds(p.x[REJECTED], &slope[REJECTED]);
    bool is_pair = p.n[CHOSEN] > 0 && p.n[REJECTED] > 0;
    double loss = smoothed(a.label_smoothing, is_pair ? odds : 0, &by_odds);
    apart(is_pair ? a.lambda * by_odds : 0, d);
    for (int i = 0; i < 2; i++) d[i] *= slope[i];
    d[CHOSEN] -= 1 / share;
    return a.lambda * loss - p.x[CHOSEN] / share;
}

__device__ static double scores(const MxPreferenceAttr &a, double x, double y, double *d) {
    double slope, sum = x + y, loss = smoothed(0, x - y, &slope);
    apart(slope, d);
    for (int i = 0; i < 2; i++) d[i] += 2 * a.center * sum;
    return loss + a.center * sum * sum;
}

__device__ static double formula(const MxPreferenceAttr &a, const Pair &p, double *d) {
    double beta = a.beta, x = p.x[CHOSEN], y = p.x[REJECTED], bx = beta * x, by = beta * y;
    double z = beta * (x - y), half = 1 / (2 * beta), slope, loss;
    switch (a.algo) {
    case MX_PREFERENCE_IPO:
        apart(2 * (x - y - half), d);
        return (x - y - half) * (x - y - half);
    case MX_PREFERENCE_NCA_PAIR:
        d[CHOSEN] = beta * (0.5 * sigmoid(bx) - sigmoid(-bx));
        d[REJECTED] = beta * 0.5 * sigmoid(by);
        return softplus(-bx) + 0.5 * softplus(bx) + 0.5 * softplus(by);
    case MX_PREFERENCE_BCO_PAIR:
        d[CHOSEN] = -beta * sigmoid(-bx);
        d[REJECTED] = beta * sigmoid(by);
        return softplus(-bx) + softplus(by);
    case MX_PREFERENCE_SPPO_HARD:
        d[CHOSEN] = 2 * (x - half);
        d[REJECTED] = 2 * (y + half);
        return (x - half) * (x - half) + (y + half) * (y + half);
    case MX_PREFERENCE_APO_ZERO:
        d[CHOSEN] = -beta * bell(bx);
        d[REJECTED] = beta * bell(by);
        return sigmoid(-bx) + sigmoid(by);
    case MX_PREFERENCE_APO_DOWN:
        apart(-beta * bell(z), d);
        d[CHOSEN] += beta * bell(bx);
        return sigmoid(bx) + sigmoid(-z);
    case MX_PREFERENCE_SFT:
        d[CHOSEN] = -1;
        d[REJECTED] = 0;
        return -x;
    case MX_PREFERENCE_ORPO:
        return orpo(a, p, d);
    case MX_PREFERENCE_REWARD:
        return scores(a, x, y, d);
    default:
        loss = loss_of_margin(a, z, &slope);
        apart(slope * beta, d);
        return loss;
    }
}

__device__ static double divergence(const MxPreferenceAttr &a, double u, double *slope) {
    const double most = 80, power = (a.alpha - 1) * u;
    bool is_limit = a.divergence == MX_DIVERGENCE_ALPHA && a.alpha == 1;
    switch (is_limit ? MX_DIVERGENCE_REVERSE : a.divergence) {
    case MX_DIVERGENCE_FORWARD:
        *slope = exp(-u);
        return -expm1(-u);
    case MX_DIVERGENCE_JS:
        *slope = sigmoid(-u);
        return log(2.0) - softplus(-u);
    case MX_DIVERGENCE_ALPHA:
        *slope = power > most ? 0 : exp(power);
        return expm1(fmin(power, most)) / (a.alpha - 1);
    default:
        *slope = 1;
        return u;
    }
}

/* ---- pairs: rows, each with one pair of responses or several */

typedef struct Pairs {
    MxPreferenceAttr attr;
    bool has_reference, averages;
    double scale;       /* of rewards */
    int64_t rows, time; /* rows: pairs of them */
    const float *logp, *reference, *dloss;
    const int32_t *weights, *segments;
    double *sums;
    float *dlogp;
} Pairs;

__device__ static int64_t row_at(const Pairs &g, int side) {
    return (blockIdx.x + side * g.rows) * g.time;
}

__device__ static int32_t pairs_of_row(const Pairs &g) {
    int32_t most = 1;
    for (int side = 0; side < 2; side++)
        for (int64_t i = threadIdx.x; i < g.time; i += GPU_BLOCK) {
            int32_t id = g.segments[row_at(g, side) + i];
            most = id > most ? id : most;
        }
    return gpu_block_max(most);
}

/* Pair `id` of the block's rows. */
__device__ static Pair read_pair(const Pairs &g, int32_t id) {
    Pair p;
    for (int side = 0; side < 2; side++) {
        int64_t at = row_at(g, side);
        double logp = 0, ratio = 0, n = 0;
        for (int64_t i = at + threadIdx.x; i < at + g.time; i += GPU_BLOCK) {
            if (g.weights[i] != id) continue;
            logp += (double)g.logp[i];
            ratio += (double)g.logp[i] - (g.reference ? (double)g.reference[i] : 0);
            n++;
        }
        p.logp[side] = gpu_block_sum(logp);
        p.ratio[side] = gpu_block_sum(ratio);
        p.n[side] = gpu_block_sum(n);
        double share = g.averages ? fmax(p.n[side], 1.0) : 1;
        p.x[side] = divergence(g.attr, p.ratio[side], &p.slope[side]) / share;
        p.slope[side] /= share;
    }
    return p;
}

__device__ static void add_pair(const Pairs &g, const Pair &p, double *sums) {
    double d[2], reward[2], *extremes = sums + MX_PAIRS_COUNT;
    for (int side = 0; side < 2; side++) {
        double own = g.has_reference ? p.ratio[side] : p.x[side];
        reward[side] = g.scale * own;
        extremes[MX_EXTREMES_HIGHEST] = fmax(extremes[MX_EXTREMES_HIGHEST], reward[side]);
        extremes[MX_EXTREMES_LOWEST] = fmax(extremes[MX_EXTREMES_LOWEST], -reward[side]);
    }
    const double *compared = g.has_reference ? p.ratio : p.x;
    sums[MX_PAIRS_LOSS] += formula(g.attr, p, d);
    sums[MX_PAIRS_CORRECT] += compared[CHOSEN] > compared[REJECTED];
    sums[MX_PAIRS_CHOSEN_REWARD] += reward[CHOSEN];
    sums[MX_PAIRS_REJECTED_REWARD] += reward[REJECTED];
    sums[MX_PAIRS_MARGIN] += g.scale * (compared[CHOSEN] - compared[REJECTED]);
    sums[MX_PAIRS_CHOSEN_LOGP] += p.logp[CHOSEN];
    sums[MX_PAIRS_REJECTED_LOGP] += p.logp[REJECTED];
    sums[MX_PAIRS_CHOSEN_TOKENS] += p.n[CHOSEN];
    sums[MX_PAIRS_REJECTED_TOKENS] += p.n[REJECTED];
    sums[MX_PAIRS_NLL] -= p.logp[CHOSEN] / fmax(p.n[CHOSEN], 1.0);
}

static constexpr int PAIR_NUMBERS = (int)MX_PAIRS_COUNT + (int)MX_EXTREMES_COUNT;

__global__ void __launch_bounds__(GPU_BLOCK) pairs_kernel(Pairs g) {
    int32_t n = pairs_of_row(g);
    double *sums = g.sums + blockIdx.x * (int64_t)PAIR_NUMBERS;
    for (int k = 0; k < PAIR_NUMBERS && !threadIdx.x; k++)
        sums[k] = k < MX_PAIRS_COUNT ? 0 : -INFINITY;
    for (int32_t id = 1; id <= n; id++) {
        Pair p = read_pair(g, id);
        if (!threadIdx.x) add_pair(g, p, sums);
    }
}

__global__ void __launch_bounds__(GPU_BLOCK) pairs_grad_kernel(Pairs g) {
    __shared__ double d[2];
    int32_t n = pairs_of_row(g);
    for (int side = 0; side < 2; side++)
        for (int64_t i = threadIdx.x; i < g.time; i += GPU_BLOCK) g.dlogp[row_at(g, side) + i] = 0;
    for (int32_t id = 1; id <= n; id++) {
        Pair p = read_pair(g, id);
        if (!threadIdx.x) formula(g.attr, p, d);
        __syncthreads(); /* they are not written again before all have met in read_pair */
        for (int side = 0; side < 2; side++) {
            float slope = (float)((double)*g.dloss * d[side] * p.slope[side]);
            int64_t at = row_at(g, side);
            for (int64_t i = at + threadIdx.x; i < at + g.time; i += GPU_BLOCK)
                if (g.weights[i] == id) g.dlogp[i] = slope;
        }
    }
}

static Pairs pairs_of(const MxKernelCall *call) {
    enum { SEGMENTS = 2, REFERENCE };
    const MxPreferenceAttr *attr = (const MxPreferenceAttr *)call->attr;
    const MxPreferenceRow *row = &mx_preferences[attr->algo];
    Pairs g = {};
    g.attr = *attr;
    g.has_reference = mx_preference_compares(attr);
    g.averages = row->averages && attr->formula != MX_FORMULA_MAXTEXT;
    g.scale = attr->algo == MX_PREFERENCE_ORPO ? attr->lambda : attr->beta;
    if (row->has_scores) g.scale = 1;
    g.rows = call->in_type[LOGP].shape.dim[0] / 2;
    g.time = call->in_type[LOGP].shape.dim[1];
    g.logp = (const float *)call->in[LOGP];
    if (g.has_reference) g.reference = (const float *)call->in[REFERENCE];
    g.weights = (const int32_t *)call->in[WEIGHTS];
    g.segments = (const int32_t *)call->in[SEGMENTS];
    return g;
}

static size_t preference_scratch(const MxDevice *, const MxKernelCall *call) {
    return (size_t)call->in_type[LOGP].shape.dim[0] / 2 * PAIR_NUMBERS * sizeof(double);
}

static void preference_run(const MxDevice *device, const MxKernelCall *call) {
    Pairs g = pairs_of(call);
    g.sums = (double *)call->scratch;
    gpu_launch(device, pairs_kernel, (unsigned)g.rows, GPU_BLOCK, 0, g);
    add_up(device, call, g.rows, MX_PAIRS_COUNT, MX_EXTREMES_COUNT);
}
GPU_KERNEL(preference, .scratch = preference_scratch, .run = preference_run);

static void preference_grad_run(const MxDevice *device, const MxKernelCall *call) {
    Pairs g = pairs_of(call);
    g.dloss = (const float *)call->in[call->n_in - 1];
    g.dlogp = (float *)call->out[0];
    if (g.dlogp) gpu_launch(device, pairs_grad_kernel, (unsigned)g.rows, GPU_BLOCK, 0, g);
}
GPU_KERNEL(preference_grad, .run = preference_grad_run);

/* ---- rewarded responses */

typedef struct Policy {
    MxPolicyAttr attr;
    int64_t time;
    const float *logp, *old, *reference, *advantages, *dloss; /* reference: NULL = none */
    const int32_t *weights;
    double *sums;
    float *dlogp;
} Policy;

/* What holds for all tokens of a row. */
typedef struct Row {
    int64_t at;
    double advantage, n; /* n: tokens that count */
    double ratio;        /* of the row, where tokens have none of their own */
} Row;

__device__ static double log_ratio(const Policy &g, int64_t i) {
    return (double)g.logp[i] - (double)g.old[i];
}

__device__ static Row read_row(const Policy &g) {
    Row r = {};
    double sum = 0, n = 0;
    r.at = blockIdx.x * g.time;
    r.advantage = (double)g.advantages[r.at];
    for (int64_t i = r.at + threadIdx.x; i < r.at + g.time; i += GPU_BLOCK) {
        if (!g.weights[i]) continue;
        sum += log_ratio(g, i);
        n++;
    }
    sum = gpu_block_sum(sum);
    r.n = gpu_block_sum(n);
    r.ratio = exp(g.attr.ratio == MX_RATIO_MEAN ? sum / fmax(r.n, 1.0) : sum);
    return r;
}

/* The loss of a token, and its slope by the log-ratio. */
__device__ static double loss_of(const Policy &g, const Row &r, int64_t i, double *slope,
                                 bool *is_bounded) {
    const MxPolicyAttr &a = g.attr;
    double ratio = a.ratio == MX_RATIO_TOKEN ? exp(log_ratio(g, i)) : r.ratio;
    double kept = a.most > 0 ? fmin(ratio, a.most) : ratio;
    if (a.trust == MX_TRUST_WEIGHT) {
        *is_bounded = kept < ratio && r.advantage > 0;
        *slope = -kept * r.advantage;
        return *slope * (double)g.logp[i];
    }
    if (a.trust == MX_TRUST_GATE) {
        double tau = r.advantage > 0 ? a.rise : a.fall, open = 1 / (1 + exp(-tau * (ratio - 1)));
        *is_bounded = false;
        *slope = -r.advantage * 4 * open * (1 - open) * ratio;
        return -r.advantage * 4 / tau * open;
    }
    double bounded = fmin(fmax(ratio, 1 - a.low), 1 + a.high);
    *is_bounded = kept * r.advantage > bounded * r.advantage;
    *slope = *is_bounded || kept < ratio ? 0 : -ratio * r.advantage;
    return -(*is_bounded ? bounded : kept) * r.advantage;
}

/* exp(d) - d - 1 and its slope. */
__device__ static double divergence(const Policy &g, int64_t i, double *slope) {
    double d = g.reference ? (double)g.reference[i] - (double)g.logp[i] : 0;
    *slope = -expm1(d);
    return expm1(d) - d;
}

__global__ void __launch_bounds__(GPU_BLOCK) policy_kernel(Policy g) {
    Row r = read_row(g);
    double loss = 0, gain = 0, kl = 0, clipped = 0, slope;
    for (int64_t i = r.at + threadIdx.x; i < r.at + g.time; i += GPU_BLOCK) {
        bool is_bounded;
        if (!g.weights[i]) continue;
        double own = divergence(g, i, &slope);
        loss += g.attr.beta * own + loss_of(g, r, i, &slope, &is_bounded);
        gain += r.advantage * (double)g.logp[i] / r.n;
        kl += own;
        clipped += is_bounded;
    }
    loss = gpu_block_sum(loss), gain = gpu_block_sum(gain);
    kl = gpu_block_sum(kl), clipped = gpu_block_sum(clipped);
    if (threadIdx.x) return;
    double *sums = g.sums + blockIdx.x * (int64_t)MX_POLICY_COUNT;
    sums[MX_POLICY_LOSS] = loss / (g.attr.sums ? 1 : fmax(r.n, 1.0));
    sums[MX_POLICY_GAIN] = gain;
    sums[MX_POLICY_KL] = kl;
    sums[MX_POLICY_CLIPPED] = clipped;
    sums[MX_POLICY_TOKENS] = r.n;
    sums[MX_POLICY_ROWS] = 1;
}

/* A ratio of a row moves with each of its tokens, and all their losses with it: of a sum n times,
 * of a mean n times 1/n. */
__global__ void __launch_bounds__(GPU_BLOCK) policy_grad_kernel(Policy g) {
    Row r = read_row(g);
    double share = (double)*g.dloss / (g.attr.sums ? 1 : fmax(r.n, 1.0));
    for (int64_t i = r.at + threadIdx.x; i < r.at + g.time; i += GPU_BLOCK) {
        bool is_bounded;
        double of_loss = 0, of_kl = 0;
        if (g.weights[i]) {
            divergence(g, i, &of_kl);
            loss_of(g, r, i, &of_loss, &is_bounded);
            if (g.attr.ratio == MX_RATIO_SUM) of_loss *= r.n;
        }
        g.dlogp[i] = g.weights[i] ? (float)(share * (of_loss + g.attr.beta * of_kl)) : 0;
    }
}

static int64_t rows_of(const MxKernelCall *call) {
    return call->in_type[LOGP].shape.dim[0];
}

static Policy policy_of(const MxKernelCall *call) {
    enum { ADVANTAGES = 2, OLD, REFERENCE };
    Policy g = {};
    g.attr = *(const MxPolicyAttr *)call->attr;
    g.time = call->in_type[LOGP].shape.dim[1];
    g.logp = (const float *)call->in[LOGP];
    g.weights = (const int32_t *)call->in[WEIGHTS];
    g.advantages = (const float *)call->in[ADVANTAGES];
    g.old = (const float *)call->in[OLD];
    if (g.attr.has_reference) g.reference = (const float *)call->in[REFERENCE];
    return g;
}

static size_t policy_scratch(const MxDevice *, const MxKernelCall *call) {
    return (size_t)rows_of(call) * MX_POLICY_COUNT * sizeof(double);
}

static void policy_run(const MxDevice *device, const MxKernelCall *call) {
    Policy g = policy_of(call);
    g.sums = (double *)call->scratch;
    gpu_launch(device, policy_kernel, (unsigned)rows_of(call), GPU_BLOCK, 0, g);
    add_up(device, call, rows_of(call), MX_POLICY_COUNT, 0);
}
GPU_KERNEL(policy, .scratch = policy_scratch, .run = policy_run);

static void policy_grad_run(const MxDevice *device, const MxKernelCall *call) {
    Policy g = policy_of(call);
    g.dloss = (const float *)call->in[call->n_in - 1];
    g.dlogp = (float *)call->out[0];
    if (g.dlogp) gpu_launch(device, policy_grad_kernel, (unsigned)rows_of(call), GPU_BLOCK, 0, g);
}
GPU_KERNEL(policy_grad, .run = policy_grad_run);

/* ---- desirable and undesirable responses */

typedef struct Kto {
    MxKtoAttr attr;
    int64_t time;
    const float *logp, *reference, *labels, *kl, *dloss;
    const int32_t *weights;
    double *sums;
    float *dlogp;
} Kto;

typedef struct Judged {
    double logp, ratio; /* sums over tokens that count; ratio: less the reference */
    bool is_wanted;
    double loss, slope; /* of the row, and by its ratio */
} Judged;

__device__ static Judged judge_row(const Kto &g) {
    int64_t at = blockIdx.x * g.time;
    double logp = 0, ratio = 0;
    for (int64_t i = at + threadIdx.x; i < at + g.time; i += GPU_BLOCK) {
        if (!g.weights[i]) continue;
        logp += (double)g.logp[i];
        ratio += (double)g.logp[i] - (double)g.reference[i];
    }
    Judged r = {gpu_block_sum(logp), gpu_block_sum(ratio), g.labels[at] > 0, 0, 0};
    double sign = r.is_wanted ? 1 : -1, weight = r.is_wanted ? g.attr.wanted : g.attr.unwanted;
    double value = sigmoid(sign * g.attr.beta * (r.ratio - fmax((double)*g.kl, 0.0)));
    r.loss = weight * (1 - value);
    r.slope = -sign * weight * g.attr.beta * value * (1 - value);
    return r;
}

__global__ void __launch_bounds__(GPU_BLOCK) kto_kernel(Kto g) {
    Judged r = judge_row(g);
    if (threadIdx.x) return;
    double *sums = g.sums + blockIdx.x * (int64_t)MX_KTO_COUNT;
    for (int k = 0; k < MX_KTO_COUNT; k++) sums[k] = 0;
    sums[MX_KTO_LOSS] = r.loss;
    sums[r.is_wanted ? MX_KTO_WANTED : MX_KTO_UNWANTED] = 1;
    sums[r.is_wanted ? MX_KTO_WANTED_REWARD : MX_KTO_UNWANTED_REWARD] = g.attr.beta * r.ratio;
    sums[r.is_wanted ? MX_KTO_WANTED_LOGP : MX_KTO_UNWANTED_LOGP] = r.logp;
}

__global__ void __launch_bounds__(GPU_BLOCK) kto_grad_kernel(Kto g) {
    float slope = (float)((double)*g.dloss * judge_row(g).slope);
    int64_t at = blockIdx.x * g.time;
    for (int64_t i = at + threadIdx.x; i < at + g.time; i += GPU_BLOCK)
        g.dlogp[i] = g.weights[i] ? slope : 0;
}

static Kto kto_of(const MxKernelCall *call) {
    enum { LABELS = 2, REFERENCE, KL };
    Kto g = {};
    g.attr = *(const MxKtoAttr *)call->attr;
    g.time = call->in_type[LOGP].shape.dim[1];
    g.logp = (const float *)call->in[LOGP];
    g.weights = (const int32_t *)call->in[WEIGHTS];
    g.labels = (const float *)call->in[LABELS];
    g.reference = (const float *)call->in[REFERENCE];
    g.kl = (const float *)call->in[KL];
    return g;
}

static size_t kto_scratch(const MxDevice *, const MxKernelCall *call) {
    return (size_t)rows_of(call) * MX_KTO_COUNT * sizeof(double);
}

static void kto_run(const MxDevice *device, const MxKernelCall *call) {
    Kto g = kto_of(call);
    g.sums = (double *)call->scratch;
    gpu_launch(device, kto_kernel, (unsigned)rows_of(call), GPU_BLOCK, 0, g);
    add_up(device, call, rows_of(call), MX_KTO_COUNT, 0);
}
GPU_KERNEL(kto, .scratch = kto_scratch, .run = kto_run);

static void kto_grad_run(const MxDevice *device, const MxKernelCall *call) {
    Kto g = kto_of(call);
    g.dloss = (const float *)call->in[call->n_in - 1];
    g.dlogp = (float *)call->out[0];
    if (g.dlogp) gpu_launch(device, kto_grad_kernel, (unsigned)rows_of(call), GPU_BLOCK, 0, g);
}
GPU_KERNEL(kto_grad, .run = kto_grad_run);

} // namespace gpu_responses
