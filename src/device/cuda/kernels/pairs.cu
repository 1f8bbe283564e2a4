/* pairs.cu — losses of pairs of responses. A block makes the sums over the tokens of two rows. */
#include "responses.cuh"

namespace gpu_responses {

/* ---- pairs: formulas, and their slopes d by x; the CPU's have the explanations */

enum { CHOSEN, REJECTED };

/* Indexed by CHOSEN and REJECTED. */
typedef struct Pair {
    double logp[2], ratio[2]; /* sums over counting tokens; ratio: less the reference */
    double n[2];              /* counting tokens */
    int64_t tail[2];          /* where the tokens begin in a row that the other response lacks */
    double x[2];              /* what the formula is about … */
    double slope[2];          /* … and its slope by the log-probability of a token */
    double weight;            /* of its loss */
    double number[2];         /* what is sorted over all pairs, if anything is … */
    double peer[2];           /* … and, of the other kind, the number of the same rank */
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
        double m = sigmoid(z / a.tau), steep = bell(z / a.tau) / a.tau;
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

__device__ static double aot(const MxPreferenceAttr &a, const Pair &p, double *d) {
    double slope, z = a.beta * (p.number[0] - p.peer[0]);
    double loss = smoothed(a.label_smoothing, z, &slope);
    apart(slope * a.beta, d);
    if (a.algo == MX_PREFERENCE_AOT) return loss;
    smoothed(a.label_smoothing, a.beta * (p.peer[1] - p.number[1]), &slope);
    d[REJECTED] = -slope * a.beta;
    return loss;
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
    case MX_PREFERENCE_AOT:
    case MX_PREFERENCE_AOT_UNPAIRED:
        return aot(a, p, d);
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

/* Numbers that are sorted over all pairs. A row has a slot for each of its tokens, so for as many
 * pairs as it can have. */
typedef struct Order {
    MxSorts sorts;
    int64_t *n;                    /* [rows] pairs */
    double *number[2], *sorted[2]; /* [rows time]; number: of each slot */
    int64_t *rank[2];              /* [rows time] */
} Order;

typedef struct Pairs {
    MxPreferenceAttr attr;
    bool has_reference, averages;
    double scale;       /* of rewards */
    int64_t rows, time; /* rows: pairs of them */
    const float *logp, *reference, *alignment, *dloss;
    const int32_t *weights, *segments;
    double *sums;
    float *dlogp;
    Order order;
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

/* How many tokens of pair `id` the first ones of a row have. */
__device__ static double count_tokens(const Pairs &g, int side, int32_t id, int64_t first) {
    double n = 0;
    for (int64_t i = threadIdx.x; i < first; i += GPU_BLOCK)
        n += g.weights[row_at(g, side) + i] == id;
    return gpu_block_sum(n);
}

/* Where a row's tokens of pair `id` go on after the first n: behind the shortest beginning that has
 * n, so n is at most as many as there are. */
__device__ static int64_t after(const Pairs &g, int side, int32_t id, double n) {
    int64_t low = 0, high = g.time;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (count_tokens(g, side, id, middle) >= n)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* How much a token counts. */
__device__ static double share_of(const Pairs &g, const Pair &p, int side, int64_t i) {
    return i < p.tail[side] ? 1 : 1 - g.attr.tail_cut;
}

__device__ static double weigh(const Pairs &g, int32_t id, const Pair &p) {
    double mean = 0;
    for (int side = 0; side < 2 && g.alignment; side++) {
        int64_t at = row_at(g, side);
        double sum = 0;
        for (int64_t i = at + threadIdx.x; i < at + g.time; i += GPU_BLOCK)
            if (g.weights[i] == id) sum += (double)g.alignment[i];
        mean += gpu_block_sum(sum) / fmax(p.n[side], 1.0);
    }
    return exp(mean);
}

/* Pair `id` of the block's rows. */
__device__ static Pair read_pair(const Pairs &g, int32_t id) {
    Pair p;
    for (int side = 0; side < 2; side++) p.n[side] = count_tokens(g, side, id, g.time);
    p.weight = weigh(g, id, p);
    for (int side = 0; side < 2; side++)
        p.tail[side] =
            g.attr.tail_cut > 0 ? after(g, side, id, fmin(p.n[CHOSEN], p.n[REJECTED])) : g.time;
    for (int side = 0; side < 2; side++) {
        int64_t at = row_at(g, side);
        double logp = 0, ratio = 0;
        for (int64_t i = at + threadIdx.x; i < at + g.time; i += GPU_BLOCK) {
            if (g.weights[i] != id) continue;
            double share = share_of(g, p, side, i - at);
            logp += share * (double)g.logp[i];
            ratio += share * ((double)g.logp[i] - (g.reference ? (double)g.reference[i] : 0));
        }
        p.logp[side] = gpu_block_sum(logp);
        p.ratio[side] = gpu_block_sum(ratio);
        double each = g.averages ? fmax(p.n[side], 1.0) : 1, u = p.ratio[side];
        double *slope = &p.slope[side];
        p.x[side] = g.has_reference ? divergence(g.attr, u, slope) / each
                                    : divergence(g.attr, u / each, slope);
        *slope /= each;
        p.number[side] = p.x[side];
    }
    if (g.order.sorts == MX_SORTS_MARGINS) {
        p.number[0] = p.logp[CHOSEN] - p.logp[REJECTED];
        p.number[1] = p.number[0] - (p.ratio[CHOSEN] - p.ratio[REJECTED]);
    }
    return p;
}

__device__ static Pair read_sorted(const Pairs &g, int32_t id) {
    Pair p = read_pair(g, id);
    int64_t slot = blockIdx.x * g.time + id - 1;
    for (int i = 0; i < 2 && g.order.sorts; i++)
        p.peer[i] = g.order.sorted[!i][g.order.rank[i][slot]];
    return p;
}

__global__ void __launch_bounds__(GPU_BLOCK) number_kernel(Pairs g) {
    int32_t n = pairs_of_row(g);
    if (!threadIdx.x) g.order.n[blockIdx.x] = n;
    for (int32_t id = 1; id <= n; id++) {
        Pair p = read_pair(g, id);
        for (int i = 0; i < 2 && !threadIdx.x; i++)
            g.order.number[i][blockIdx.x * g.time + id - 1] = p.number[i];
    }
}

/* How many numbers come before that of a slot, of equal ones those of earlier pairs. */
__device__ static int64_t rank_of(const Pairs &g, const double *number, int64_t slot) {
    int64_t rank = 0;
    double own = number[slot];
    for (int64_t row = threadIdx.x; row < g.rows; row += GPU_BLOCK)
        for (int64_t at = row * g.time; at < row * g.time + g.order.n[row]; at++)
            rank += number[at] < own || (number[at] == own && at < slot);
    return gpu_block_sum(rank);
}

__global__ void __launch_bounds__(GPU_BLOCK) rank_kernel(Pairs g) {
    int64_t first = blockIdx.x * g.time, end = first + g.order.n[blockIdx.x];
    for (int64_t slot = first; slot < end; slot++)
        for (int i = 0; i < 2; i++) {
            int64_t rank = rank_of(g, g.order.number[i], slot);
            if (threadIdx.x) continue;
            g.order.rank[i][slot] = rank;
            g.order.sorted[i][rank] = g.order.number[i][slot];
        }
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
    sums[MX_PAIRS_LOSS] += p.weight * formula(g.attr, p, d);
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
        Pair p = read_sorted(g, id);
        if (!threadIdx.x) add_pair(g, p, sums);
    }
}

__global__ void __launch_bounds__(GPU_BLOCK) pairs_grad_kernel(Pairs g) {
    __shared__ double d[2];
    int32_t n = pairs_of_row(g);
    for (int side = 0; side < 2; side++)
        for (int64_t i = threadIdx.x; i < g.time; i += GPU_BLOCK) g.dlogp[row_at(g, side) + i] = 0;
    for (int32_t id = 1; id <= n; id++) {
        Pair p = read_sorted(g, id);
        if (!threadIdx.x) formula(g.attr, p, d);
        __syncthreads(); /* they are not written again before all have met in read_sorted */
        for (int side = 0; side < 2; side++) {
            double slope = (double)*g.dloss * p.weight * d[side] * p.slope[side];
            int64_t at = row_at(g, side);
            for (int64_t i = at + threadIdx.x; i < at + g.time; i += GPU_BLOCK)
                if (g.weights[i] == id) g.dlogp[i] = (float)(slope * share_of(g, p, side, i - at));
        }
    }
}

/* Pairs of rows. */
static int64_t rows_of(const MxKernelCall *call) {
    return call->in_type[LOGP].shape.dim[0] / 2;
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
    g.rows = rows_of(call);
    g.time = call->in_type[LOGP].shape.dim[1];
    g.logp = (const float *)call->in[LOGP];
    if (g.has_reference) g.reference = (const float *)call->in[REFERENCE];
    if (attr->weighs) g.alignment = (const float *)call->in[REFERENCE + g.has_reference];
    g.weights = (const int32_t *)call->in[WEIGHTS];
    g.segments = (const int32_t *)call->in[SEGMENTS];
    g.order.sorts = row->sorts;
    return g;
}

static size_t order_bytes(const MxKernelCall *call) {
    const MxPreferenceAttr *attr = (const MxPreferenceAttr *)call->attr;
    size_t rows = (size_t)rows_of(call), slots = rows * (size_t)call->in_type[LOGP].shape.dim[1];
    size_t arrays = 2 * (2 * sizeof(double) + sizeof(int64_t));
    return mx_preferences[attr->algo].sorts ? rows * sizeof(int64_t) + slots * arrays : 0;
}

/* Sorts the numbers of a call, if it has any, in scratch. */
static void sort_pairs(const MxDevice *device, Pairs *g, void *scratch) {
    if (!g->order.sorts) return;
    int64_t slots = g->rows * g->time;
    g->order.n = (int64_t *)scratch;
    double *next = (double *)(g->order.n + g->rows);
    for (int i = 0; i < 2; i++, next += 3 * slots) {
        g->order.number[i] = next;
        g->order.sorted[i] = next + slots;
        g->order.rank[i] = (int64_t *)(next + 2 * slots);
    }
    gpu_launch(device, number_kernel, (unsigned)g->rows, GPU_BLOCK, 0, *g);
    gpu_launch(device, rank_kernel, (unsigned)g->rows, GPU_BLOCK, 0, *g);
}

static size_t preference_scratch(const MxDevice *, const MxKernelCall *call) {
    return (size_t)rows_of(call) * PAIR_NUMBERS * sizeof(double) + order_bytes(call);
}

static void preference_run(const MxDevice *device, const MxKernelCall *call) {
    Pairs g = pairs_of(call);
    g.sums = (double *)call->scratch;
    sort_pairs(device, &g, g.sums + g.rows * PAIR_NUMBERS);
    gpu_launch(device, pairs_kernel, (unsigned)g.rows, GPU_BLOCK, 0, g);
    add_up(device, call, g.rows, MX_PAIRS_COUNT, MX_EXTREMES_COUNT);
}
GPU_KERNEL(preference, .scratch = preference_scratch, .run = preference_run);

static size_t preference_grad_scratch(const MxDevice *, const MxKernelCall *call) {
    return order_bytes(call);
}

static void preference_grad_run(const MxDevice *device, const MxKernelCall *call) {
    Pairs g = pairs_of(call);
    g.dloss = (const float *)call->in[call->n_in - 1];
    g.dlogp = (float *)call->out[0];
    if (!g.dlogp) return;
    sort_pairs(device, &g, call->scratch);
    gpu_launch(device, pairs_grad_kernel, (unsigned)g.rows, GPU_BLOCK, 0, g);
}
GPU_KERNEL(preference_grad, .scratch = preference_grad_scratch, .run = preference_grad_run);

} // namespace gpu_responses
