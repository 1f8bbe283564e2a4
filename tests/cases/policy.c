/* policy.c — losses of rewarded responses, as they are written in the papers. */
#include "cases.h"

#include <math.h>
#include <stdlib.h>

/* The loss of a token for its ratio. */
static double token_loss(const MxPolicyAttr *a, double ratio, double advantage, double logp) {
    if (a->trust == MX_TRUST_GATE) {
        double tau = advantage > 0 ? a->rise : a->fall;
        return -advantage * 4 / (tau * (1 + exp(-tau * (ratio - 1))));
    }
    double clipped = ratio;
    if (a->most > 0 && ratio > a->most) ratio = a->most;
    if (a->trust == MX_TRUST_WEIGHT) return -ratio * advantage * logp;
    if (clipped < 1 - a->low) clipped = 1 - a->low;
    if (clipped > 1 + a->high) clipped = 1 + a->high;
    double plain = ratio * advantage, bounded = clipped * advantage;
    return plain < bounded ? -plain : -bounded;
}

/* The same for the product of all ratios of its row. */
static double gamma_loss(const MxPolicyAttr *a, double w, double advantage, double logp) {
    double k = a->shape[advantage < 0], lambda = a->rate[advantage < 0];
    return -exp(lambda) * pow(w, k) * exp(-lambda * w) * advantage * logp;
}

static bool is_bounded(const MxPolicyAttr *a, double ratio, double advantage) {
    if (a->trust == MX_TRUST_GATE || a->trust == MX_TRUST_GAMMA) return false;
    if (a->trust == MX_TRUST_WEIGHT) return advantage > 0 && ratio > a->most;
    return advantage > 0 ? ratio > 1 + a->high : advantage < 0 && ratio < 1 - a->low;
}

static void add_row(const Reference *r, int64_t row, double *total) {
    const MxPolicyAttr *a = r->attr;
    int64_t T = r->in_type[0].shape.dim[1];
    const double *logp = r->in[0] + row * T, *weights = r->in[1] + row * T;
    const double *old = r->in[3] + row * T;
    const double *reference = a->has_reference ? r->in[4] + row * T : logp;
    const double *kept = a->has_kept ? r->in[4 + a->has_reference] + row * T : NULL;
    double n = 0, sum = 0, loss = 0, far = 0, advantage = r->in[2][row * T];
    for (int64_t i = 0; i < T; i++) {
        n += weights[i] != 0;
        sum += weights[i] != 0 ? logp[i] - old[i] : 0;
        far += weights[i] != 0 ? fmax(fmin(logp[i] - old[i], 20), -20) : 0;
    }
    bool is_off = a->off > 0 && advantage < 0 && -sum / n > a->off;
    far = fmax(fmin(far, 20), log(1e-8));
    for (int64_t i = 0; i < T; i++) {
        if (weights[i] == 0) continue;
        double ratio = a->ratio == MX_RATIO_TOKEN  ? exp(logp[i] - old[i])
                       : a->ratio == MX_RATIO_MEAN ? exp(sum / n)
                                                   : exp(sum);
        double d = reference[i] - logp[i], kl = exp(d) - d - 1;
        if (a->kl == MX_KL_PLAIN) kl = logp[i] - reference[i];
        if (a->kl == MX_KL_SQUARE) kl = 0.5 * pow(d, 2);
        double own = a->trust == MX_TRUST_GAMMA ? gamma_loss(a, exp(far), advantage, logp[i])
                                                : token_loss(a, ratio, advantage, logp[i]);
        if (is_off || (kept && kept[i] == 0)) own = 0;
        loss += own + a->beta * kl * (a->weighs_kl ? ratio : 1);
        total[MX_POLICY_GAIN] += advantage * logp[i] / n;
        total[MX_POLICY_KL] += kl;
        total[MX_POLICY_CLIPPED] += is_bounded(a, ratio, advantage);
    }
    total[MX_POLICY_LOSS] += a->sums || n == 0 ? loss : loss / n;
    total[MX_POLICY_TOKENS] += n;
    total[MX_POLICY_ROWS] += 1;
}

static void ref_policy(const Reference *r) {
    for (int i = 0; i < MX_POLICY_COUNT; i++) r->out[1][i] = 0;
    for (int64_t row = 0; row < r->in_type[0].shape.dim[0]; row++) add_row(r, row, r->out[1]);
    r->out[0][0] = r->out[1][MX_POLICY_LOSS];
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void ref_upper_tokens(const Reference *r) {
    int64_t all = element_count(r->in_type[0]), n = 0, m = 0;
    double *x = malloc((size_t)(all + 1) * sizeof *x), least = 0;
    for (int64_t i = 0; i < all; i++)
        if (r->in[1][i] != 0) x[n++] = r->in[0][i];
    qsort(x, (size_t)n, sizeof *x, by_size);
    double at = (1 - ((const MxUpperAttr *)r->attr)->share) * (double)(n - 1);
    int64_t below = (int64_t)floor(at + 1e-9);
    if (n) least = x[below] + (at - (double)below) * (x[below + (below + 1 < n)] - x[below]);
    free(x);
    for (int64_t i = 0; i < all; i++) m += r->in[1][i] != 0 && r->in[0][i] >= least - 1e-9;
    for (int64_t i = 0; i < all; i++)
        r->out[0][i] = r->in[1][i] != 0 && r->in[0][i] >= least - 1e-9 ? (double)n / (double)m : 0;
}

// clang-format off
const OpTest test_upper_tokens = {
    CASES(
        {"a fifth", ATTR(MxUpperAttr, .share = 0.2), "f6,9:square1 i6,9:flags0.3", NULL, 0},
        {"most", ATTR(MxUpperAttr, .share = 0.8), "f6,9 i6,9:flags0.3", NULL, 0},
        {"the largest", ATTR(MxUpperAttr, .share = 0), "f6,9 i6,9:flags0.3", NULL, 0},
        {"all", ATTR(MxUpperAttr, .share = 1), "f6,9 i6,9:flags0.3", NULL, 0},
        {"few tokens", ATTR(MxUpperAttr, .share = 0.3), "f1,3 i1,3:flags0", NULL, 0},
        {"equal ones", ATTR(MxUpperAttr, .share = 0.3), "f4,5:value0.5 i4,5:flags0.3", NULL, 0},
        {"nothing counts", ATTR(MxUpperAttr, .share = 0.3), "f4,5 i4,5:flags1", NULL, 0},
        {"large", ATTR(MxUpperAttr, .share = 0.2), "f74,1031:square1 i74,1031:flags0.3", NULL, 0},
        {NULL, ATTR(MxUpperAttr, .share = 0.2), "f4,5 i4,5", "f4,5", 0},
        {NULL, ATTR(MxUpperAttr, .share = 0.4), "f8,8:square1 i8,8:flags0.3", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxUpperAttr, .share = -0.5), "f4,5 i4,5", "a share must be from 0 to 1, but is -0.5"},
        {ATTR(MxUpperAttr, .share = 0.5), "f4,5 i4,6", "weights must have x's shape"},
        {ATTR(MxUpperAttr, .share = 0.5), "f4,5 f4,5", "input 1 must be int32 of rank 2"}),
    .reference = ref_upper_tokens,
};

#define BOUNDS .low = 0.2, .high = 0.3
#define ALONE  "f6,9:logp0.7 i6,9:flags0.3 f6,9 f6,9:logp0.7"
#define BESIDE ALONE " f6,9:logp0.7"
const OpTest test_policy = {
    CASES(
        {"tokens", ATTR(MxPolicyAttr, BOUNDS), ALONE, NULL, 0},
        {"tokens and a reference", ATTR(MxPolicyAttr, BOUNDS, .has_reference = true, .beta = 0.5), BESIDE, NULL, 0},
        {"tokens, sums", ATTR(MxPolicyAttr, BOUNDS, .sums = true, .has_reference = true, .beta = 0.1), BESIDE, NULL, 0},
        {"rows", ATTR(MxPolicyAttr, BOUNDS, .ratio = MX_RATIO_MEAN, .has_reference = true, .beta = 0.1), BESIDE, NULL, 0},
        {"rows, sums", ATTR(MxPolicyAttr, BOUNDS, .ratio = MX_RATIO_MEAN, .sums = true), ALONE, NULL, 0},
        {"products", ATTR(MxPolicyAttr, .low = 0.9, .high = 4, .ratio = MX_RATIO_SUM), "f6,3:logp0.4 i6,3 f6,3 f6,3:logp0.4", NULL, 0},
        {"weights", ATTR(MxPolicyAttr, .trust = MX_TRUST_WEIGHT, .most = 1.2, .sums = true, .has_reference = true, .beta = 0.1), BESIDE, NULL, CASE_DETACHED},
        {"weights of rows", ATTR(MxPolicyAttr, .trust = MX_TRUST_WEIGHT, .most = 1.1, .ratio = MX_RATIO_MEAN), ALONE, NULL, CASE_DETACHED},
        {"weights at their bound", ATTR(MxPolicyAttr, .trust = MX_TRUST_WEIGHT, .most = 0.01, .has_reference = true, .beta = 0.1), BESIDE, NULL, 0},
        {"gates", ATTR(MxPolicyAttr, .trust = MX_TRUST_GATE, .rise = 1, .fall = 1.5, .has_reference = true, .beta = 0.1), BESIDE, NULL, 0},
        {"gates of rows", ATTR(MxPolicyAttr, .trust = MX_TRUST_GATE, .rise = 2, .fall = 0.5, .ratio = MX_RATIO_MEAN, .sums = true), ALONE, NULL, 0},
        {"a bound", ATTR(MxPolicyAttr, BOUNDS, .most = 1.5), ALONE, NULL, CASE_NO_SLOPE},
        {"gammas", ATTR(MxPolicyAttr, .trust = MX_TRUST_GAMMA, .shape = {2, 3}, .rate = {3, 2}, .sums = true), "f6,9:logp0.2 i6,9:flags0.3 f6,9 f6,9:logp0.2", NULL, CASE_DETACHED},
        {"divergences by ratios", ATTR(MxPolicyAttr, BOUNDS, .weighs_kl = true, .has_reference = true, .beta = 0.5), BESIDE, NULL, 0},
        {"divergences by ratios of rows", ATTR(MxPolicyAttr, BOUNDS, .weighs_kl = true, .ratio = MX_RATIO_MEAN, .has_reference = true, .beta = 0.5), BESIDE, NULL, 0},
        {"divergences by products", ATTR(MxPolicyAttr, .low = 0.9, .high = 4, .ratio = MX_RATIO_SUM, .weighs_kl = true, .has_reference = true, .beta = 0.5), "f6,3:logp0.4 i6,3 f6,3 f6,3:logp0.4 f6,3:logp0.4", NULL, 0},
        {"plain divergences", ATTR(MxPolicyAttr, BOUNDS, .kl = MX_KL_PLAIN, .has_reference = true, .beta = 0.5), BESIDE, NULL, 0},
        {"squared divergences", ATTR(MxPolicyAttr, BOUNDS, .kl = MX_KL_SQUARE, .weighs_kl = true, .has_reference = true, .beta = 0.5), BESIDE, NULL, 0},
        {"rows that are off", ATTR(MxPolicyAttr, BOUNDS, .off = 0.02, .has_reference = true, .beta = 0.1), BESIDE, NULL, 0},
        {"some kept", ATTR(MxPolicyAttr, BOUNDS, .has_reference = true, .has_kept = true, .beta = 0.1), BESIDE " f6,9:flags0.5", NULL, 0},
        {"some of rows kept", ATTR(MxPolicyAttr, BOUNDS, .ratio = MX_RATIO_MEAN, .has_kept = true), ALONE " f6,9:flags0.5", NULL, 0},
        {"some of products kept", ATTR(MxPolicyAttr, .low = 0.9, .high = 4, .ratio = MX_RATIO_SUM, .has_kept = true), "f6,3:logp0.4 i6,3 f6,3 f6,3:logp0.4 f6,3:flags0.5", NULL, 0},
        {"some weights kept", ATTR(MxPolicyAttr, .trust = MX_TRUST_WEIGHT, .most = 0.01, .has_kept = true), ALONE " f6,9:flags0.5", NULL, 0},
        {"nothing counts", ATTR(MxPolicyAttr, BOUNDS), "f6,9:logp0.7 i6,9:flags1 f6,9 f6,9:logp0.7", NULL, CASE_NO_SLOPE},
        {"large", ATTR(MxPolicyAttr, BOUNDS, .has_reference = true, .beta = 0.1), "f74,1031:logp0.7 i74,1031:flags0.3 f74,1031 f74,1031:logp0.7 f74,1031:logp0.7", NULL, CASE_NO_SLOPE},
        {NULL, ATTR(MxPolicyAttr, BOUNDS), "f4,5:logp0.7 i4,5 f4,5 f4,5:logp0.7", "f f6", 0},
        {NULL, ATTR(MxPolicyAttr, BOUNDS), "f8,8:logp0.7 i8,8:flags0.3 f8,8 f8,8:logp0.7", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxPolicyAttr, .has_reference = true), "f4,5 i4,5 f4,5 f4,5", "takes 5 inputs, not 4"},
        {ATTR(MxPolicyAttr, .has_kept = true), "f4,5 i4,5 f4,5 f4,5 f4,6", "inputs 0 and 4 must have one type"},
        {ATTR(MxPolicyAttr, 0), "f4,5 i4,6 f4,5 f4,5", "weights must have the log-probabilities' shape"},
        {ATTR(MxPolicyAttr, 0), "b4,5 i4,5 b4,5 b4,5", "input 0 must be float32 of rank 2"},
        {ATTR(MxPolicyAttr, 0), "f4,5 f4,5 f4,5 f4,5", "input 1 must be int32 of rank 2"},
        {ATTR(MxPolicyAttr, 0), "f4,5 i4,5 f4,6 f4,5", "inputs 0 and 2 must have one type"},
        {ATTR(MxPolicyAttr, .trust = MX_TRUST_WEIGHT, .ratio = MX_RATIO_SUM), "f4,5 i4,5 f4,5 f4,5", "weights are not of sums"},
        {ATTR(MxPolicyAttr, .trust = MX_TRUST_GATE, .rise = 1), "f4,5 i4,5 f4,5 f4,5", "temperatures must be above 0, but are 1 and 0"},
        {ATTR(MxPolicyAttr, .low = -1), "f4,5 i4,5 f4,5 f4,5", "bounds must not be below 0, but are -1 and 0"}),
    .reference = ref_policy,
    .flows = 1 << 0,
};

const OpTest test_policy_grad = {
    WRONG(
        {ATTR(MxPolicyAttr, 0), "f4,5 i4,5 f4,5 f4,5", "takes 5 inputs, not 4"},
        {ATTR(MxPolicyAttr, 0), "f4,5 i4,5 f4,5 f4,5 f1", "input 4 must be float32 of rank 0"}),
    .forward = &op_policy,
    .wrt = {0},
};
// clang-format on
