/* preference.c — losses of pairs of responses: a pair is a few sums over its rows; a formula gives
 * its loss and the derivatives by those sums. Some formulas compare numbers of the same rank among
 * all pairs: these are ranked first. All in f64. */
#include "kernel.h"

#include <math.h>

enum { LOGP, WEIGHTS, SEGMENTS, REFERENCE };
enum { LOSS, SUMS, EXTREMES };
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

/* ---- formulas: the loss, and its slopes d by x */

typedef double Formula(const MxPreferenceAttr *a, const Pair *p, double d[2]);

static double sigmoid(double x) {
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

/* -log sigmoid(-x), which is log(1 + e^x). */
static double softplus(double x) {
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

/* -(1-e) log s(z) - e log s(-z) and its slope by z. */
static double smoothed(double e, double z, double *slope) {
    *slope = e - sigmoid(-z);
    return (1 - e) * softplus(-z) + e * softplus(z);
}

static double margin(const MxPreferenceAttr *a, const Pair *p) {
    return a->beta * (p->x[CHOSEN] - p->x[REJECTED]);
}

/* From a slope by x - y to slopes by x and y. */
static void apart(double slope, double d[2]) {
    d[CHOSEN] = slope;
    d[REJECTED] = -slope;
}

static double dpo(const MxPreferenceAttr *a, const Pair *p, double d[2]) {
    double slope, again = a->formula == MX_FORMULA_MAXTEXT ? a->beta : 1;
    double loss = smoothed(a->label_smoothing, again * margin(a, p), &slope);
    apart(slope * again * a->beta, d);
    return loss;
}

static double simpo(const MxPreferenceAttr *a, const Pair *p, double d[2]) {
    double slope, loss = smoothed(a->label_smoothing, margin(a, p) - a->gamma, &slope);
    apart(slope * a->beta, d);
    return loss;
}

static double hinge(const MxPreferenceAttr *a, const Pair *p, double d[2]) {
    double z = margin(a, p);
    apart(z < 1 ? -a->beta : 0, d);
    return fmax(0, 1 - z);
}

static double ipo(const MxPreferenceAttr *a, const Pair *p, double d[2]) {
    double off = p->x[CHOSEN] - p->x[REJECTED] - 1 / (2 * a->beta);
    apart(2 * off, d);
    return off * off;
}

static double robust(const MxPreferenceAttr *a, const Pair *p, double d[2]) {
    double z = margin(a, p), e = a->label_smoothing, sum = 1 - 2 * e;
    apart((-(1 - e) * sigmoid(-z) - e * sigmoid(z)) * a->beta / sum, d);
    return ((1 - e) * softplus(-z) - e * softplus(z)) / sum;
}

static double exo_pair(const MxPreferenceAttr *a, const Pair *p, double d[2]) {
    double z = margin(a, p), e = a->label_smoothing, q = sigmoid(z);
    double for_chosen = -softplus(-z) - log(1 - e), for_rejected = -softplus(z) - log(e);
    apart(q * (1 - q) * (for_chosen - for_rejected) * a->beta, d);
    return q * for_chosen + (1 - q) * for_rejected;
}

static double nca_pair(const MxPreferenceAttr *a, const Pair *p, double d[2]) {
    double x = a->beta * p->x[CHOSEN], y = a->beta * p->x[REJECTED];
    d[CHOSEN] = a->beta * (0.5 * sigmoid(x) - sigmoid(-x));
    d[REJECTED] = a->beta * 0.5 * sigmoid(y);
    return softplus(-x) + 0.5 * softplus(x) + 0.5 * softplus(y);
}

static double bco_pair(const MxPreferenceAttr *a, const Pair *p, double d[2]) {
    double x = a->beta * p->x[CHOSEN], y = a->beta * p->x[REJECTED];
    d[CHOSEN] = -a->beta * sigmoid(-x);
    d[REJECTED] = a->beta * sigmoid(y);
    return softplus(-x) + softplus(y);
}

static double sppo_hard(const MxPreferenceAttr *a, const Pair *p, double d[2]) {
    double half = 1 / (2 * a->beta), off[] = {p->x[CHOSEN] - half, p->x[REJECTED] + half};
    for (int i = 0; i < 2; i++) d[i] = 2 * off[i];
    return off[CHOSEN] * off[CHOSEN] + off[REJECTED] * off[REJECTED];
}

static double bell(double x) {
    return sigmoid(x) * sigmoid(-x);
}

static double apo_zero(const MxPreferenceAttr *a, const Pair *p, double d[2]) {
    double x = a->beta * p->x[CHOSEN], y = a->beta * p->x[REJECTED];
    d[CHOSEN] = -a->beta * bell(x);
    d[REJECTED] = a->beta * bell(y);
    return sigmoid(-x) + sigmoid(y);
}

static double apo_down(const MxPreferenceAttr *a, const Pair *p, double d[2]) {
    double x = a->beta * p->x[CHOSEN], z = margin(a, p);
    apart(-a->beta * bell(z), d);
    d[CHOSEN] += a->beta * bell(x);
    return sigmoid(x) + sigmoid(-z);
}

static double discopop(const MxPreferenceAttr *a, const Pair *p, double d[2]) {
    double z = margin(a, p), m = sigmoid(z / a->tau), steep = bell(z / a->tau) / a->tau;
    double logistic = softplus(-z), exponential = exp(-z);
    apart(a->beta * (-(1 - m) * sigmoid(-z) - m * exponential + steep * (exponential - logistic)),
          d);
    return (1 - m) * logistic + m * exponential;
}

/* u is compared with a v, whose pair plays no part. */
static double aot(const MxPreferenceAttr *a, const Pair *p, double d[2]) {
    double slope,
        loss = smoothed(a->label_smoothing, a->beta * (p->number[0] - p->peer[0]), &slope);
    apart(slope * a->beta, d);
    return loss;
}

/* The loss is that of x and its peer; y is the peer of some other x. */
static double aot_unpaired(const MxPreferenceAttr *a, const Pair *p, double d[2]) {
    double e = a->label_smoothing, slope[2], loss;
    smoothed(e, a->beta * (p->peer[REJECTED] - p->number[REJECTED]), &slope[REJECTED]);
    loss = smoothed(e, a->beta * (p->number[CHOSEN] - p->peer[CHOSEN]), &slope[CHOSEN]);
    d[CHOSEN] = slope[CHOSEN] * a->beta;
    d[REJECTED] = -slope[REJECTED] * a->beta;
    return loss;
}

/* log odds of a log-probability, and its slope. */
static double log_odds(double x, double *slope) {
    const double nearly_one = -1e-9, half = -0.6931471805599453;
    x = fmin(x, nearly_one);
    *slope = -1 / expm1(x);
    return x - (x > half ? log(-expm1(x)) : log1p(-exp(x)));
}

static double orpo(const MxPreferenceAttr *a, const Pair *p, double d[2]) {
    double slope[2], by_odds;
    double share = a->formula == MX_FORMULA_MAXTEXT ? fmax(p->n[CHOSEN], 1) : 1;
    double odds = log_odds(p->x[CHOSEN], &slope[CHOSEN]);
    odds -= log_odds(p->x[REJECTED], &slope[REJECTED]);
    bool is_pair = p->n[CHOSEN] > 0 && p->n[REJECTED] > 0;
    double loss = smoothed(a->label_smoothing, is_pair ? odds : 0, &by_odds);
    apart(is_pair ? a->lambda * by_odds : 0, d);
    for (int i = 0; i < 2; i++) d[i] *= slope[i];
    d[CHOSEN] -= 1 / share;
    return a->lambda * loss - p->x[CHOSEN] / share;
}

static double sft(const MxPreferenceAttr *a, const Pair *p, double d[2]) {
    (void)a;
    d[CHOSEN] = -1;
    d[REJECTED] = 0;
    return -p->x[CHOSEN];
}

static double scores(const MxPreferenceAttr *a, const Pair *p, double d[2]) {
    double slope, sum = p->x[CHOSEN] + p->x[REJECTED];
    double loss = smoothed(0, p->x[CHOSEN] - p->x[REJECTED], &slope);
    apart(slope, d);
    for (int i = 0; i < 2; i++) d[i] += 2 * a->center * sum;
    return loss + a->center * sum * sum;
}

static Formula *const formulas[MX_PREFERENCE_COUNT] = {
    [MX_PREFERENCE_DPO] = dpo,
    [MX_PREFERENCE_SIGMOID_NORM] = dpo,
    [MX_PREFERENCE_HINGE] = hinge,
    [MX_PREFERENCE_IPO] = ipo,
    [MX_PREFERENCE_ROBUST] = robust,
    [MX_PREFERENCE_EXO_PAIR] = exo_pair,
    [MX_PREFERENCE_NCA_PAIR] = nca_pair,
    [MX_PREFERENCE_BCO_PAIR] = bco_pair,
    [MX_PREFERENCE_SPPO_HARD] = sppo_hard,
    [MX_PREFERENCE_APO_ZERO] = apo_zero,
    [MX_PREFERENCE_APO_DOWN] = apo_down,
    [MX_PREFERENCE_DISCOPOP] = discopop,
    [MX_PREFERENCE_AOT] = aot,
    [MX_PREFERENCE_AOT_UNPAIRED] = aot_unpaired,
    [MX_PREFERENCE_ORPO] = orpo,
    [MX_PREFERENCE_SIMPO] = simpo,
    [MX_PREFERENCE_SFT] = sft,
    [MX_PREFERENCE_REWARD] = scores,
};

/* ---- divergences: f' by the logarithm u of a ratio, and its slope */

typedef double Divergence(const MxPreferenceAttr *a, double u, double *slope);

static double reverse_kl(const MxPreferenceAttr *a, double u, double *slope) {
    (void)a;
    *slope = 1;
    return u;
}

static double forward_kl(const MxPreferenceAttr *a, double u, double *slope) {
    (void)a;
    *slope = exp(-u);
    return -expm1(-u);
}

static double js_divergence(const MxPreferenceAttr *a, double u, double *slope) {
    (void)a;
    *slope = sigmoid(-u);
    return log(2) - softplus(-u);
}

/* TRL's bound of the power, above which it is flat. */
static double alpha_divergence(const MxPreferenceAttr *a, double u, double *slope) {
    const double most = 80;
    double power = (a->alpha - 1) * u;
    if (a->alpha == 1) return reverse_kl(a, u, slope);
    *slope = power > most ? 0 : exp(power);
    return expm1(fmin(power, most)) / (a->alpha - 1);
}

static Divergence *const divergences[MX_DIVERGENCE_COUNT] = {
    [MX_DIVERGENCE_REVERSE] = reverse_kl,
    [MX_DIVERGENCE_FORWARD] = forward_kl,
    [MX_DIVERGENCE_JS] = js_divergence,
    [MX_DIVERGENCE_ALPHA] = alpha_divergence,
};

/* ---- pairs */

static bool averages(const MxPreferenceAttr *a) {
    return mx_preferences[a->algo].averages && a->formula != MX_FORMULA_MAXTEXT;
}

/* Pairs of rows; each holds one pair of responses or several. */
static int64_t n_rows(const MxKernelCall *call) {
    return call->in_type[LOGP].shape.dim[0] / 2;
}

/* Where a side of a pair of rows begins. */
static int64_t row_at(const MxKernelCall *call, int64_t row, int side) {
    return (row + side * n_rows(call)) * call->in_type[LOGP].shape.dim[1];
}

static int32_t pairs_of_row(const MxKernelCall *call, int64_t row) {
    int32_t most = 1;
    for (int side = 0; side < 2; side++) {
        const int32_t *segments = (const int32_t *)call->in[SEGMENTS] + row_at(call, row, side);
        for (int64_t i = 0; i < call->in_type[LOGP].shape.dim[1]; i++)
            if (segments[i] > most) most = segments[i];
    }
    return most;
}

/* Where a row's tokens of pair `id` go on after the first n. */
static int64_t after(const int32_t *weights, int64_t length, int32_t id, double n) {
    for (int64_t i = 0; i < length; i++)
        if (weights[i] == id && n-- < 1) return i;
    return length;
}

static void count_tokens(const MxKernelCall *call, int64_t row, int32_t id, Pair *p) {
    const MxPreferenceAttr *attr = call->attr;
    const int32_t *weights = call->in[WEIGHTS];
    int64_t length = call->in_type[LOGP].shape.dim[1];
    for (int side = 0; side < 2; side++)
        for (int64_t i = 0; i < length; i++)
            p->n[side] += weights[row_at(call, row, side) + i] == id;
    double shared = fmin(p->n[CHOSEN], p->n[REJECTED]);
    for (int side = 0; side < 2; side++)
        p->tail[side] = attr->tail_cut > 0
                            ? after(weights + row_at(call, row, side), length, id, shared)
                            : length;
}

/* How much a token counts. */
static double share_of(const MxPreferenceAttr *a, const Pair *p, int side, int64_t i) {
    return i < p->tail[side] ? 1 : 1 - a->tail_cut;
}

/* The weight of a pair's loss. */
static double weigh(const MxKernelCall *call, int64_t row, int32_t id, const Pair *p) {
    const MxPreferenceAttr *attr = call->attr;
    double mean = 0;
    for (int side = 0; side < 2 && attr->weighs; side++) {
        int64_t at = row_at(call, row, side);
        const float *alignment =
            (const float *)call->in[REFERENCE + mx_preference_compares(attr)] + at;
        const int32_t *weights = (const int32_t *)call->in[WEIGHTS] + at;
        double sum = 0;
        for (int64_t i = 0; i < call->in_type[LOGP].shape.dim[1]; i++)
            if (weights[i] == id) sum += (double)alignment[i];
        mean += sum / fmax(p->n[side], 1);
    }
    return exp(mean);
}

/* Pair `id` of a pair of rows. */
static Pair read_pair(const MxKernelCall *call, int64_t row, int32_t id) {
    const MxPreferenceAttr *attr = call->attr;
    const float *reference = mx_preference_compares(attr) ? call->in[REFERENCE] : NULL;
    Pair p = {0};
    count_tokens(call, row, id, &p);
    p.weight = weigh(call, row, id, &p);
    for (int side = 0; side < 2; side++) {
        int64_t at = row_at(call, row, side);
        const float *logp = (const float *)call->in[LOGP] + at;
        const int32_t *weights = (const int32_t *)call->in[WEIGHTS] + at;
        for (int64_t i = 0; i < call->in_type[LOGP].shape.dim[1]; i++) {
            if (weights[i] != id) continue;
            double share = share_of(attr, &p, side, i);
            p.logp[side] += share * (double)logp[i];
            p.ratio[side] +=
                share * ((double)logp[i] - (reference ? (double)reference[at + i] : 0));
        }
        double each = averages(attr) ? fmax(p.n[side], 1) : 1, u = p.ratio[side];
        double *slope = &p.slope[side];
        p.x[side] = reference ? divergences[attr->divergence](attr, u, slope) / each
                              : divergences[attr->divergence](attr, u / each, slope);
        *slope /= each;
        p.number[side] = p.x[side];
    }
    if (mx_preferences[attr->algo].sorts == MX_SORTS_MARGINS) {
        p.number[0] = p.logp[CHOSEN] - p.logp[REJECTED];
        p.number[1] = p.number[0] - (p.ratio[CHOSEN] - p.ratio[REJECTED]);
    }
    return p;
}

/* ---- numbers that are sorted over all pairs, in a kernel's scratch */

/* A row has a slot for each of its tokens, so for as many pairs as it can have. */
typedef struct Order {
    const MxKernelCall *call;
    int64_t rows, time;
    int64_t *n;                    /* [rows] pairs */
    double *number[2], *sorted[2]; /* [rows time]; number: of each slot */
    int64_t *rank[2];              /* [rows time] */
} Order;

static MxSorts sorts(const MxKernelCall *call) {
    const MxPreferenceAttr *attr = call->attr;
    return mx_preferences[attr->algo].sorts;
}

static size_t order_bytes(const MxKernelCall *call) {
    size_t rows = (size_t)n_rows(call), slots = rows * (size_t)call->in_type[LOGP].shape.dim[1];
    size_t arrays = 2 * (2 * sizeof(double) + sizeof(int64_t));
    return sorts(call) ? rows * sizeof(int64_t) + slots * arrays : 0;
}

static Order order_at(const MxKernelCall *call, void *scratch) {
    Order o = {.call = call, .rows = n_rows(call), .time = call->in_type[LOGP].shape.dim[1]};
    o.n = scratch;
    double *next = (double *)(o.n + o.rows);
    for (int i = 0; i < 2; i++, next += 3 * o.rows * o.time) {
        o.number[i] = next;
        o.sorted[i] = next + o.rows * o.time;
        o.rank[i] = (int64_t *)(next + 2 * o.rows * o.time);
    }
    return o;
}

static void number_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Order *o = context;
    for (int64_t row = begin; row < end; row++) {
        o->n[row] = pairs_of_row(o->call, row);
        for (int32_t id = 1; id <= o->n[row]; id++) {
            Pair p = read_pair(o->call, row, id);
            for (int i = 0; i < 2; i++) o->number[i][row * o->time + id - 1] = p.number[i];
        }
    }
}

/* How many numbers come before that of a slot. Pairs are few beside the tokens of a batch, so
 * counting costs less than reading these. */
static int64_t rank_of(const Order *o, int i, int64_t slot) {
    double own = o->number[i][slot];
    int64_t rank = 0;
    for (int64_t row = 0; row < o->rows; row++)
        for (int64_t at = row * o->time; at < row * o->time + o->n[row]; at++) {
            double other = o->number[i][at];
            rank += other < own || (other == own && at < slot);
        }
    return rank;
}

static void rank_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Order *o = context;
    for (int64_t row = begin; row < end; row++)
        for (int64_t slot = row * o->time; slot < row * o->time + o->n[row]; slot++)
            for (int i = 0; i < 2; i++) {
                o->rank[i][slot] = rank_of(o, i, slot);
                o->sorted[i][o->rank[i][slot]] = o->number[i][slot];
            }
}

/* Sorts the numbers of a call, if it has any, in scratch. */
static void sort_pairs(const MxDevice *device, const MxKernelCall *call, void *scratch) {
    if (!sorts(call)) return;
    Order o = order_at(call, scratch);
    cpu_for(device, o.rows, 1, number_rows, &o);
    cpu_for(device, o.rows, 1, rank_rows, &o);
}

static Pair read_sorted(const MxKernelCall *call, void *scratch, int64_t row, int32_t id) {
    Pair p = read_pair(call, row, id);
    if (!sorts(call)) return p;
    Order o = order_at(call, scratch);
    for (int i = 0; i < 2; i++) p.peer[i] = o.sorted[!i][o.rank[i][row * o.time + id - 1]];
    return p;
}

/* ---- sums */

/* What sums of a row of pairs, and its extremes, are added up of. */
typedef struct Sums {
    double pairs[MX_PAIRS_COUNT], extremes[MX_EXTREMES_COUNT];
} Sums;

static const Sums no_sums = {.extremes = {-INFINITY, -INFINITY}};

static double scale_of(const MxPreferenceAttr *a) {
    if (mx_preferences[a->algo].has_scores) return 1;
    return a->algo == MX_PREFERENCE_ORPO ? a->lambda : a->beta;
}

static void add_pair(const MxPreferenceAttr *a, const Pair *p, Sums *all) {
    const double *reward = mx_preference_compares(a) ? p->ratio : p->x;
    double d[2], scale = scale_of(a), *sums = all->pairs;
    for (int side = 0; side < 2; side++) {
        double *extremes = all->extremes, of_side = scale * reward[side];
        extremes[MX_EXTREMES_HIGHEST] = fmax(extremes[MX_EXTREMES_HIGHEST], of_side);
        extremes[MX_EXTREMES_LOWEST] = fmax(extremes[MX_EXTREMES_LOWEST], -of_side);
    }
    sums[MX_PAIRS_LOSS] += p->weight * formulas[a->algo](a, p, d);
    sums[MX_PAIRS_CORRECT] += reward[CHOSEN] > reward[REJECTED];
    sums[MX_PAIRS_CHOSEN_REWARD] += scale * reward[CHOSEN];
    sums[MX_PAIRS_REJECTED_REWARD] += scale * reward[REJECTED];
    sums[MX_PAIRS_MARGIN] += scale * (reward[CHOSEN] - reward[REJECTED]);
    sums[MX_PAIRS_CHOSEN_LOGP] += p->logp[CHOSEN];
    sums[MX_PAIRS_REJECTED_LOGP] += p->logp[REJECTED];
    sums[MX_PAIRS_CHOSEN_TOKENS] += p->n[CHOSEN];
    sums[MX_PAIRS_REJECTED_TOKENS] += p->n[REJECTED];
    sums[MX_PAIRS_NLL] -= p->logp[CHOSEN] / fmax(p->n[CHOSEN], 1);
}

/* Rows that are worth a thread's while. */
static int64_t piece_of(const MxKernelCall *call) {
    return cpu_max(1, CPU_PIECE / cpu_max(1, 2 * call->in_type[LOGP].shape.dim[1]));
}

static size_t preference_scratch(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    return (size_t)n_rows(call) * sizeof(Sums) + order_bytes(call);
}

static void sum_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    for (int64_t row = begin; row < end; row++) {
        Sums *sums = (Sums *)call->scratch + row;
        int32_t n = pairs_of_row(call, row);
        *sums = no_sums;
        for (int32_t id = 1; id <= n; id++) {
            Pair p = read_sorted(call, (Sums *)call->scratch + n_rows(call), row, id);
            add_pair(call->attr, &p, sums);
        }
    }
}

static void put(const MxKernelCall *call, int out, int at, double x) {
    float *to = call->out[out];
    if (to) to[at] = (float)(x + (call->accumulate >> out & 1 ? (double)to[at] : 0));
}

static void preference_run(const MxDevice *device, const MxKernelCall *call) {
    Sums total = no_sums;
    sort_pairs(device, call, (Sums *)call->scratch + n_rows(call));
    cpu_for(device, n_rows(call), piece_of(call), sum_rows, call);
    for (int64_t i = 0; i < n_rows(call); i++) {
        const Sums *of_row = (const Sums *)call->scratch + i;
        for (int k = 0; k < MX_PAIRS_COUNT; k++) total.pairs[k] += of_row->pairs[k];
        for (int k = 0; k < MX_EXTREMES_COUNT; k++)
            total.extremes[k] = fmax(total.extremes[k], of_row->extremes[k]);
    }
    put(call, LOSS, 0, total.pairs[MX_PAIRS_LOSS]);
    for (int k = 0; k < MX_PAIRS_COUNT; k++) put(call, SUMS, k, total.pairs[k]);
    for (int k = 0; k < MX_EXTREMES_COUNT; k++) put(call, EXTREMES, k, total.extremes[k]);
}

const MxKernel cpu_preference = {.scratch = preference_scratch, .run = preference_run};

/* ---- gradient */

static void grad_pair(const MxKernelCall *call, int64_t row, int32_t id) {
    const MxPreferenceAttr *attr = call->attr;
    Pair p = read_sorted(call, call->scratch, row, id);
    double d[2], dloss = (double)*(const float *)call->in[call->n_in - 1];
    formulas[attr->algo](attr, &p, d);
    for (int side = 0; side < 2; side++) {
        int64_t at = row_at(call, row, side);
        const int32_t *weights = (const int32_t *)call->in[WEIGHTS] + at;
        float *dlogp = (float *)call->out[0] + at;
        double slope = dloss * p.weight * d[side] * p.slope[side];
        for (int64_t i = 0; i < call->in_type[LOGP].shape.dim[1]; i++)
            if (weights[i] == id) dlogp[i] = (float)(slope * share_of(attr, &p, side, i));
    }
}

static void grad_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    size_t bytes = (size_t)call->in_type[LOGP].shape.dim[1] * sizeof(float);
    for (int64_t row = begin; row < end; row++) {
        int32_t n = pairs_of_row(call, row);
        for (int side = 0; side < 2; side++)
            memset((float *)call->out[0] + row_at(call, row, side), 0, bytes);
        for (int32_t id = 1; id <= n; id++) grad_pair(call, row, id);
    }
}

static size_t preference_grad_scratch(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    return order_bytes(call);
}

static void preference_grad_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    sort_pairs(device, call, call->scratch);
    cpu_for(device, n_rows(call), piece_of(call), grad_rows, call);
}

const MxKernel cpu_preference_grad = {.scratch = preference_grad_scratch,
                                      .run = preference_grad_run};
