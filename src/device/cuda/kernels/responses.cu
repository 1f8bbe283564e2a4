/* responses.cu — losses of single responses: of rewarded ones, of desirable and undesirable ones. A
 * block makes the sums over the tokens of a row. */
#include "responses.cuh"

namespace gpu_responses {

/* ---- rewarded responses */

typedef struct Policy {
    MxPolicyAttr attr;
    int64_t time;
    const float *logp, *old, *advantages, *dloss;
    const float *reference, *kept; /* NULL = none */
    const int32_t *weights;
    double *sums;
    float *dlogp;
} Policy;

/* What holds for all tokens of a row. */
typedef struct Row {
    int64_t at;
    double advantage, n; /* n: tokens that count … */
    double n_kept;       /* … and not for their divergence alone */
    double ratio;        /* of the row, where tokens have none of their own */
    double product;      /* of all ratios, as its logarithm */
    double kl;           /* the sum of divergences from the reference */
    bool is_off;         /* only these count */
} Row;

__device__ static double log_ratio(const Policy &g, int64_t i) {
    return (double)g.logp[i] - (double)g.old[i];
}

/* The divergence of a token, and its slope. */
__device__ static double divergence(const Policy &g, int64_t i, double *slope) {
    double d = g.reference ? (double)g.reference[i] - (double)g.logp[i] : 0;
    const double slopes[] = {-expm1(d), 1, -d}, values[] = {expm1(d) - d, -d, d * d / 2};
    *slope = g.reference ? slopes[g.attr.kl] : 0;
    return values[g.attr.kl];
}

__device__ static bool is_kept(const Policy &g, int64_t i) {
    return !g.kept || g.kept[i] != 0;
}

__device__ static double within(double x, double low, double high) {
    return fmin(fmax(x, low), high);
}

__device__ static Row read_row(const Policy &g) {
    Row r = {};
    double sum = 0, n = 0, kept = 0, product = 0, kl = 0, slope;
    r.at = blockIdx.x * g.time;
    r.advantage = (double)g.advantages[r.at];
    for (int64_t i = r.at + threadIdx.x; i < r.at + g.time; i += GPU_BLOCK) {
        if (!g.weights[i]) continue;
        sum += log_ratio(g, i);
        product += within(log_ratio(g, i), -MX_POLICY_FAR, MX_POLICY_FAR);
        kl += divergence(g, i, &slope);
        n++;
        kept += is_kept(g, i);
    }
    sum = gpu_block_sum(sum), product = gpu_block_sum(product);
    r.kl = gpu_block_sum(kl), r.n = gpu_block_sum(n), r.n_kept = gpu_block_sum(kept);
    r.ratio = exp(g.attr.ratio == MX_RATIO_MEAN ? sum / fmax(r.n, 1.0) : sum);
    r.product = within(product, log(MX_POLICY_LEAST), MX_POLICY_FAR);
    r.is_off = g.attr.off > 0 && r.advantage < 0 && -sum / fmax(r.n, 1.0) > g.attr.off;
    return r;
}

__device__ static double ratio_of(const Policy &g, const Row &r, int64_t i) {
    return g.attr.ratio == MX_RATIO_TOKEN ? exp(log_ratio(g, i)) : r.ratio;
}

/* The loss of a token for its ratio, and its slope by the log-ratio. */
__device__ static double trusted(const Policy &g, const Row &r, int64_t i, double *slope,
                                 bool *is_bounded) {
    const MxPolicyAttr &a = g.attr;
    double ratio = ratio_of(g, r, i);
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
    if (a.trust == MX_TRUST_GAMMA) {
        int side = r.advantage < 0;
        double rate = a.rate[side];
        *is_bounded = false;
        *slope = -r.advantage * exp(a.shape[side] * r.product + rate - rate * exp(r.product));
        return *slope * (double)g.logp[i];
    }
    double bounded = within(ratio, 1 - a.low, 1 + a.high);
    bool is_less = bounded * r.advantage < kept * r.advantage;
    double used = is_less ? bounded : kept;
    *is_bounded = is_less && bounded != ratio;
    *slope = used == ratio ? -ratio * r.advantage : 0;
    return -used * r.advantage;
}

__device__ static double loss_of(const Policy &g, const Row &r, int64_t i, double *slope,
                                 bool *is_bounded) {
    double loss = trusted(g, r, i, slope, is_bounded);
    if (r.is_off) *slope = 0;
    return r.is_off || !is_kept(g, i) ? 0 : loss;
}

/* Of the divergence, as far as the token moves it: its own, and where it is weighed the ratio, with
 * that of a row all others. */
__device__ static double slope_of_kl(const Policy &g, const Row &r, int64_t i) {
    double slope, own = divergence(g, i, &slope);
    if (!g.attr.weighs_kl) return slope;
    if (g.attr.ratio == MX_RATIO_MEAN) own = r.kl / fmax(r.n, 1.0);
    if (g.attr.ratio == MX_RATIO_SUM) own = r.kl;
    return ratio_of(g, r, i) * (slope + own);
}

__global__ void __launch_bounds__(GPU_BLOCK) policy_kernel(Policy g) {
    Row r = read_row(g);
    double loss = 0, gain = 0, kl = 0, clipped = 0, slope;
    for (int64_t i = r.at + threadIdx.x; i < r.at + g.time; i += GPU_BLOCK) {
        bool is_bounded;
        if (!g.weights[i]) continue;
        double own = divergence(g, i, &slope), weight = g.attr.weighs_kl ? ratio_of(g, r, i) : 1;
        loss += g.attr.beta * weight * own + loss_of(g, r, i, &slope, &is_bounded);
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

/* Where a ratio gets no gradient, or is the token's own, a token moves its own loss. A ratio of a
 * row moves with each of its tokens, and all losses that are kept with it: of a mean each by 1/n.
 */
__device__ static double slope_of(const Policy &g, const Row &r, int64_t i) {
    const MxPolicyAttr &a = g.attr;
    bool is_bounded;
    double slope;
    loss_of(g, r, i, &slope, &is_bounded);
    if (a.trust == MX_TRUST_WEIGHT || a.trust == MX_TRUST_GAMMA || a.ratio == MX_RATIO_TOKEN)
        return is_kept(g, i) ? slope : 0;
    return slope * (a.ratio == MX_RATIO_SUM ? r.n_kept : r.n_kept / fmax(r.n, 1.0));
}

__global__ void __launch_bounds__(GPU_BLOCK) policy_grad_kernel(Policy g) {
    Row r = read_row(g);
    double share = (double)*g.dloss / (g.attr.sums ? 1 : fmax(r.n, 1.0));
    for (int64_t i = r.at + threadIdx.x; i < r.at + g.time; i += GPU_BLOCK) {
        double slope = 0;
        if (g.weights[i]) slope = slope_of(g, r, i) + g.attr.beta * slope_of_kl(g, r, i);
        g.dlogp[i] = (float)(share * slope);
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
    if (g.attr.has_kept) g.kept = (const float *)call->in[REFERENCE + g.attr.has_reference];
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
