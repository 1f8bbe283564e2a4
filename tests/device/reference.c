/* reference.c — the ops in plain loops over doubles. */
#include "reference.h"

#include <math.h>

static int64_t count(MxType type) {
    return mx_shape_count(type.shape);
}

/* ---- elementwise */

static void ref_copy(const Reference *r) {
    for (int64_t i = 0; i < count(r->in_type[0]); i++) r->out[0][i] = r->in[0][i];
}

static void ref_shift(const Reference *r) {
    int64_t T = r->in_type[0].shape.dim[1], offset = ((const MxShiftAttr *)r->attr)->offset;
    for (int64_t i = 0; i < count(r->in_type[0]); i++) {
        const double *segment = r->in[1] + i + offset;
        bool ends = i % T + offset >= T - 1 || segment[0] == 0 || segment[0] != segment[1];
        r->out[0][i] = ends ? 0 : r->in[0][i + 1];
    }
}

static void ref_concat(const Reference *r) {
    MxShape shape = r->out_type[0].shape;
    int64_t width = shape.dim[shape.rank - 1], first = r->in_type[0].shape.dim[shape.rank - 1];
    for (int64_t i = 0; i < count(r->out_type[0]); i++) {
        int64_t row = i / width, at = i % width;
        r->out[0][i] =
            at < first ? r->in[0][row * first + at] : r->in[1][row * (width - first) + at - first];
    }
}

static void ref_split(const Reference *r) {
    MxShape shape = r->in_type[0].shape;
    int64_t width = shape.dim[shape.rank - 1], first = r->out_type[0].shape.dim[shape.rank - 1];
    for (int64_t i = 0; i < count(r->in_type[0]); i++) {
        int64_t row = i / width, at = i % width;
        if (at < first)
            r->out[0][row * first + at] = r->in[0][i];
        else
            r->out[1][row * (width - first) + at - first] = r->in[0][i];
    }
}

static void ref_add(const Reference *r) {
    int64_t period = count(r->in_type[1]);
    for (int64_t i = 0; i < count(r->in_type[0]); i++)
        r->out[0][i] = r->in[0][i] + r->in[1][i % period];
}

static void ref_sum_lead(const Reference *r) {
    int64_t width = count(r->out_type[0]);
    for (int64_t j = 0; j < width; j++) r->out[0][j] = 0;
    for (int64_t i = 0; i < count(r->in_type[0]); i++) r->out[0][i % width] += r->in[0][i];
}

static void ref_scale(const Reference *r) {
    double factor = ((const MxScaleAttr *)r->attr)->factor;
    for (int64_t i = 0; i < count(r->in_type[0]); i++) r->out[0][i] = r->in[0][i] * factor;
}

static void ref_softcap(const Reference *r) {
    double cap = ((const MxSoftcapAttr *)r->attr)->cap;
    for (int64_t i = 0; i < count(r->in_type[0]); i++) r->out[0][i] = cap * tanh(r->in[0][i] / cap);
}

static void ref_ratio(const Reference *r) {
    r->out[0][0] = r->in[0][0] / (r->in[1][0] + ((const MxRatioAttr *)r->attr)->eps);
}

static double activate(MxActivation activation, double x) {
    switch (activation) {
    case MX_SILU:
        return x / (1 + exp(-x));
    case MX_GELU:
        return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case MX_RELU:
        return x > 0 ? x : 0;
    default:
        return x;
    }
}

static void ref_glu(const Reference *r) {
    MxActivation activation = ((const MxGluAttr *)r->attr)->activation;
    for (int64_t i = 0; i < count(r->in_type[0]); i++)
        r->out[0][i] = activate(activation, r->in[0][i]) * r->in[1][i];
}

/* ---- products and norms */

static void ref_dot(const Reference *r) {
    const MxDotAttr *attr = r->attr;
    MxDotSizes s = mx_dot_sizes(r->in_type[0].shape, r->in_type[1].shape, attr);
    bool trans_a = attr->kind == MX_DOT_TN, trans_b = attr->kind == MX_DOT_NT;
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < s.n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < s.k; k++)
                sum += r->in[0][trans_a ? k * s.m + i : i * s.k + k] *
                       r->in[1][trans_b ? j * s.k + k : k * s.n + j];
            r->out[0][i * s.n + j] = sum;
        }
}

static void ref_rmsnorm(const Reference *r) {
    int64_t width = count(r->in_type[1]);
    double eps = ((const MxRmsnormAttr *)r->attr)->eps;
    for (int64_t row = 0; row < count(r->out_type[1]); row++) {
        const double *x = r->in[0] + row * width;
        double squares = 0;
        for (int64_t i = 0; i < width; i++) squares += x[i] * x[i];
        double rstd = 1 / sqrt(squares / (double)width + eps);
        r->out[1][row] = rstd;
        for (int64_t i = 0; i < width; i++) r->out[0][row * width + i] = x[i] * rstd * r->in[1][i];
    }
}

static void ref_rope_table(const Reference *r) {
    const MxRopeFreqs *f = &((const MxRopeTableAttr *)r->attr)->freqs;
    for (int64_t row = 0; row < count(r->in_type[0]); row++)
        for (int i = 0; i < f->n; i++) {
            double angle = r->in[0][row] * f->frequency[i];
            r->out[0][2 * (row * f->n + i)] = f->amplitude * cos(angle);
            r->out[0][2 * (row * f->n + i) + 1] = f->amplitude * sin(angle);
        }
}

static void ref_rope(const Reference *r) {
    const MxRopeAttr *attr = r->attr;
    MxShape x = r->in_type[0].shape;
    int64_t half = x.dim[3] / 2;
    for (int64_t row = 0; row < x.dim[0] * x.dim[1] * x.dim[2]; row++)
        for (int64_t i = 0; i < half; i++) {
            const double *cos_sin = r->in[1] + 2 * (row / x.dim[2] * half + i);
            double c = cos_sin[0], s = attr->inverse ? -cos_sin[1] : cos_sin[1];
            const double *in = r->in[0] + row * 2 * half;
            double *out = r->out[0] + row * 2 * half;
            double a = in[attr->interleaved_in ? 2 * i : i];
            double b = in[attr->interleaved_in ? 2 * i + 1 : half + i];
            out[attr->interleaved_out ? 2 * i : i] = a * c - b * s;
            out[attr->interleaved_out ? 2 * i + 1 : half + i] = b * c + a * s;
        }
}

/* ---- attention */

static bool sees(const MxAttentionAttr *attr, int64_t t, int64_t s) {
    switch (attr->mask) {
    case MX_MASK_CAUSAL:
        return s <= t;
    case MX_MASK_SLIDING:
        return t - attr->window < s && s <= t;
    case MX_MASK_CHUNK:
        return s <= t && s / attr->window == t / attr->window;
    default:
        return true;
    }
}

/* One query t of sequence b and head n. */
static void attend(const Reference *r, int64_t b, int64_t n, int64_t t) {
    const MxAttentionAttr *attr = r->attr;
    MxShape q = r->in_type[0].shape, k = r->in_type[1].shape;
    int64_t T = q.dim[1], S = k.dim[1], H = q.dim[3], head = n / (q.dim[2] / k.dim[2]);
    int64_t own = attr->first_query + t; /* the query's own token */
    const double *query = r->in[0] + ((b * T + t) * q.dim[2] + n) * H;
    double *out = r->out[0] + ((b * T + t) * q.dim[2] + n) * H, sum = 0;
    for (int64_t h = 0; h < H; h++) out[h] = 0;
    for (int64_t s = 0; s < S; s++) {
        if (!sees(attr, own, s) || r->in[3][b * S + s] != r->in[3][b * S + own]) continue;
        const double *key = r->in[1] + ((b * S + s) * k.dim[2] + head) * H;
        const double *value = r->in[2] + ((b * S + s) * k.dim[2] + head) * H;
        double score = 0;
        for (int64_t h = 0; h < H; h++) score += query[h] * key[h];
        score *= attr->scale;
        if (attr->softcap > 0) score = attr->softcap * tanh(score / attr->softcap);
        double p = exp(score); /* test scores are small: no maximum is needed */
        sum += p;
        for (int64_t h = 0; h < H; h++) out[h] += p * value[h];
    }
    for (int64_t h = 0; h < H; h++) out[h] /= sum;
    r->out[1][(b * q.dim[2] + n) * T + t] = log(sum);
}

static void ref_attention(const Reference *r) {
    MxShape q = r->in_type[0].shape;
    for (int64_t b = 0; b < q.dim[0]; b++)
        for (int64_t n = 0; n < q.dim[2]; n++)
            for (int64_t t = 0; t < q.dim[1]; t++) attend(r, b, n, t);
}

/* ---- embedding and loss */

static void ref_embed(const Reference *r) {
    int64_t width = r->in_type[0].shape.dim[1], rows = r->in_type[0].shape.dim[0];
    for (int64_t i = 0; i < count(r->out_type[0]); i++) {
        int64_t row = (int64_t)r->in[1][i / width] - ((const MxEmbedAttr *)r->attr)->first_id;
        r->out[0][i] = row >= 0 && row < rows ? r->in[0][row * width + i % width] : 0;
    }
}

static void ref_embed_grad(const Reference *r) {
    int64_t width = r->out_type[0].shape.dim[1];
    for (int64_t i = 0; i < count(r->out_type[0]); i++) r->out[0][i] = 0;
    const MxEmbedGradAttr *attr = r->attr;
    for (int64_t i = 0; i < count(r->in_type[1]); i++) {
        int64_t row = (int64_t)r->in[0][i / width] - attr->first_id;
        if (row >= 0 && row < attr->vocab) r->out[0][row * width + i % width] += r->in[1][i];
    }
}

static double logit(const Reference *r, int64_t token, int64_t v) {
    const MxXentAttr *attr = r->attr;
    MxShape w = r->in_type[1].shape;
    int64_t width = w.dim[attr->tied ? 1 : 0];
    double sum = 0;
    for (int64_t i = 0; i < width; i++)
        sum +=
            r->in[0][token * width + i] * r->in[1][attr->tied ? v * width + i : i * w.dim[1] + v];
    sum *= attr->scale;
    return attr->softcap > 0 ? attr->softcap * tanh(sum / attr->softcap) : sum;
}

/* The log of a token's sum; *target becomes its target's logit. */
static double log_sum(const Reference *r, int64_t token, double *target) {
    int64_t vocab = r->in_type[1].shape.dim[((const MxXentAttr *)r->attr)->tied ? 0 : 1];
    double sum = 0;
    for (int64_t v = 0; v < vocab; v++) {
        double x = logit(r, token, v);
        sum += exp(x);
        if (v == (int64_t)r->in[2][token]) *target = x;
    }
    return log(sum);
}

static void ref_xent(const Reference *r) {
    const MxXentAttr *attr = r->attr;
    double total = 0, z_total = 0;
    for (int64_t token = 0; token < count(r->in_type[2]); token++) {
        if (r->in[3][token] == 0) continue;
        double target, lse = log_sum(r, token, &target), z = attr->z_loss * lse * lse;
        total += lse - target + z;
        z_total += z;
    }
    r->out[0][0] = total;
    r->out[1][0] = z_total;
}

static void ref_logprob(const Reference *r) {
    for (int64_t token = 0; token < count(r->in_type[2]); token++) {
        double target;
        bool counts = r->in[3][token] != 0;
        r->out[1][token] = counts ? log_sum(r, token, &target) : 0;
        r->out[0][token] = counts ? target - r->out[1][token] : 0;
    }
}

static void ref_argmax(const Reference *r) {
    int64_t vocab = r->in_type[1].shape.dim[((const MxXentAttr *)r->attr)->tied ? 0 : 1];
    for (int64_t token = 0; token < count(r->in_type[2]); token++) {
        int64_t best = 0;
        for (int64_t v = 1; v < vocab && r->in[2][token] != 0; v++)
            if (logit(r, token, v) > logit(r, token, best)) best = v;
        r->out[0][token] = (double)best;
    }
}

/* ---- preference losses, as they are written in the papers: no care for large arguments */

static double s(double x) {
    return 1 / (1 + exp(-x));
}

static double smoothed(double z, double e) {
    return -(1 - e) * log(s(z)) - e * log(s(-z));
}

static double odds(double x) {
    return log(exp(x) / (1 - exp(x)));
}

/* x and y: sums or means of log-probabilities less the reference's, of n tokens each. */
static double pair_loss(const MxPreferenceAttr *a, double x, double y, const double n[2]) {
    double b = a->beta, e = a->label_smoothing, z = b * (x - y), q = s(z), half = 1 / (2 * b);
    bool is_maxtext = a->formula == MX_FORMULA_MAXTEXT;
    switch (a->algo) {
    case MX_PREFERENCE_DPO:
        return smoothed(is_maxtext ? b * z : z, e);
    case MX_PREFERENCE_SIGMOID_NORM:
        return smoothed(z, e);
    case MX_PREFERENCE_HINGE:
        return z < 1 ? 1 - z : 0;
    case MX_PREFERENCE_IPO:
        return pow(x - y - half, 2);
    case MX_PREFERENCE_ROBUST:
        return (-(1 - e) * log(s(z)) + e * log(s(-z))) / (1 - 2 * e);
    case MX_PREFERENCE_EXO_PAIR:
        return q * log(q / (1 - e)) + (1 - q) * log((1 - q) / e);
    case MX_PREFERENCE_NCA_PAIR:
        return -log(s(b * x)) - 0.5 * log(s(-b * x)) - 0.5 * log(s(-b * y));
    case MX_PREFERENCE_BCO_PAIR:
        return -log(s(b * x)) - log(s(-b * y));
    case MX_PREFERENCE_SPPO_HARD:
        return pow(x - half, 2) + pow(y + half, 2);
    case MX_PREFERENCE_APO_ZERO:
        return 1 - s(b * x) + s(b * y);
    case MX_PREFERENCE_APO_DOWN:
        return s(b * x) + 1 - s(z);
    case MX_PREFERENCE_DISCOPOP:
        return -(1 - s(z / 0.05)) * log(s(z)) + s(z / 0.05) * exp(-z);
    case MX_PREFERENCE_ORPO:
        z = n[0] > 0 && n[1] > 0 ? odds(x) - odds(y) : 0;
        return -x / (is_maxtext ? fmax(n[0], 1) : 1) + a->lambda * smoothed(z, e);
    default:
        return smoothed(z - a->gamma, e);
    }
}

static int largest(const double *ids, int64_t n) {
    double most = 1;
    for (int64_t i = 0; i < n; i++) most = fmax(most, ids[i]);
    return (int)most;
}

/* Adds what pair `id` of a pair of rows gives to sums over pairs. */
static void add_pair(const Reference *r, int64_t row, int id, double *total) {
    const MxPreferenceAttr *a = r->attr;
    const MxPreferenceRow *how = &mx_preferences[a->algo];
    bool averages = how->averages && a->formula == MX_FORMULA_STANDARD;
    int64_t P = r->in_type[0].shape.dim[0] / 2, T = r->in_type[0].shape.dim[1];
    double factor = a->algo == MX_PREFERENCE_ORPO ? a->lambda : a->beta;
    double logp[2] = {0}, sum[2] = {0}, n[2] = {0}, x[2], reward[2];
    for (int side = 0; side < 2; side++) {
        for (int64_t i = (row + side * P) * T; i < (row + side * P + 1) * T; i++) {
            if ((int)r->in[1][i] != id) continue;
            logp[side] += r->in[0][i];
            sum[side] += r->in[0][i] - (how->has_reference ? r->in[3][i] : 0);
            n[side] += 1;
        }
        x[side] = averages ? sum[side] / fmax(n[side], 1) : sum[side];
        reward[side] = how->has_reference ? sum[side] : x[side];
    }
    const double add[] = {
        [MX_PAIRS_LOSS] = pair_loss(a, x[0], x[1], n),
        [MX_PAIRS_CORRECT] = reward[0] > reward[1],
        [MX_PAIRS_CHOSEN_REWARD] = factor * reward[0],
        [MX_PAIRS_REJECTED_REWARD] = factor * reward[1],
        [MX_PAIRS_MARGIN] = factor * (reward[0] - reward[1]),
        [MX_PAIRS_CHOSEN_LOGP] = logp[0],
        [MX_PAIRS_REJECTED_LOGP] = logp[1],
        [MX_PAIRS_CHOSEN_TOKENS] = n[0],
        [MX_PAIRS_REJECTED_TOKENS] = n[1],
        [MX_PAIRS_NLL] = -logp[0] / fmax(n[0], 1),
    };
    for (int i = 0; i < MX_PAIRS_COUNT; i++) total[i] += add[i];
}

static void ref_preference(const Reference *r) {
    int64_t P = r->in_type[0].shape.dim[0] / 2, T = r->in_type[0].shape.dim[1];
    for (int i = 0; i < MX_PAIRS_COUNT; i++) r->out[1][i] = 0;
    for (int64_t row = 0; row < P; row++) {
        const double *chosen = r->in[2] + row * T, *rejected = chosen + P * T;
        int chosen_ids = largest(chosen, T), rejected_ids = largest(rejected, T);
        for (int id = 1; id <= chosen_ids || id <= rejected_ids; id++)
            add_pair(r, row, id, r->out[1]);
    }
    r->out[0][0] = r->out[1][MX_PAIRS_LOSS];
}

static void ref_count_segments(const Reference *r) {
    int64_t rows = r->in_type[0].shape.dim[0], T = r->in_type[0].shape.dim[1];
    r->out[0][0] = 0;
    for (int64_t row = 0; row < rows; row++) r->out[0][0] += largest(r->in[0] + row * T, T);
}

static void ref_count_nonzero(const Reference *r) {
    r->out[0][0] = 0;
    for (int64_t i = 0; i < count(r->in_type[0]); i++) r->out[0][0] += r->in[0][i] != 0;
}

static void ref_count_equal(const Reference *r) {
    r->out[0][0] = 0;
    for (int64_t i = 0; i < count(r->in_type[0]); i++)
        r->out[0][0] += r->in[0][i] == r->in[1][i] && r->in[2][i] != 0;
}

/* ---- state */

static void ref_sum_squares(const Reference *r) {
    r->out[0][0] = 0;
    for (int j = 0; j < r->n_in; j++)
        for (int64_t i = 0; i < count(r->in_type[j]); i++)
            r->out[0][0] += r->in[j][i] * r->in[j][i];
}

static void ref_clip_factor(const Reference *r) {
    double threshold = ((const MxClipFactorAttr *)r->attr)->threshold, norm = sqrt(r->in[0][0]);
    r->out[0][0] = norm < threshold ? 1 : threshold / norm;
}

static void ref_adamw(const Reference *r) {
    const MxAdamwAttr *a = r->attr;
    const double *hyper = r->in[4];
    double decay = a->b1;
    if (r->in_type[2].dtype == MX_BF16)
        decay = (double)mx_bf16_to_f32(mx_f32_to_bf16((float)decay));
    for (int64_t i = 0; i < count(r->in_type[0]); i++) {
        double p = r->in[0][i], g = r->in[1][i] * r->in[5][0];
        double mu = decay * r->in[2][i] + (1 - a->b1) * g;
        double nu = a->b2 * r->in[3][i] + (1 - a->b2) * g * g;
        double root = sqrt(nu / hyper[MX_HYPER_BIAS2] + a->eps_root) + a->eps;
        double step = mu / hyper[MX_HYPER_BIAS1] / root + a->weight_decay * p;
        r->out[0][i] = p - hyper[MX_HYPER_LR] * step;
        r->out[1][i] = mu;
        r->out[2][i] = nu;
    }
}

static void ref_sgd(const Reference *r) {
    for (int64_t i = 0; i < count(r->in_type[0]); i++)
        r->out[0][i] = r->in[0][i] - r->in[2][MX_HYPER_LR] * r->in[3][0] * r->in[1][i];
}

/* The inverse of the normal distribution, by bisection. */
static double normal_quantile(double p) {
    double low = -8, high = 8;
    for (int i = 0; i < 100; i++) {
        double middle = (low + high) / 2;
        *(0.5 * erfc(-middle / sqrt(2)) < p ? &low : &high) = middle;
    }
    return low;
}

static double init_element(const MxInitAttr *a, int64_t i) {
    const double pi = 3.14159265358979323846, tail = 0.5 * erfc(sqrt(2)), of_cut = 0.87962566103424;
    uint32_t words[4];
    mx_philox(a->seed, a->stream, (uint64_t)i / 4, words);
    double u = (double)mx_uniform(words[i % 4]);
    if (a->fill == MX_FILL_CONSTANT) return a->value;
    if (a->fill == MX_FILL_UNIFORM) return a->value * sqrt(3) * (2 * u - 1);
    if (a->fill == MX_FILL_TRUNCATED_NORMAL)
        return a->value / of_cut * normal_quantile(tail + u * (1 - 2 * tail));
    double radius = sqrt(-2 * log((double)mx_uniform(words[i % 4 / 2 * 2])));
    double turn = 2 * pi * (double)mx_uniform(words[i % 4 / 2 * 2 + 1]);
    return a->value * radius * (i % 2 ? sin(turn) : cos(turn));
}

static void ref_init(const Reference *r) {
    const MxInitAttr *attr = r->attr;
    for (int64_t i = 0; i < count(r->out_type[0]); i++) {
        int64_t place = 0, stride = 1, rest = i; /* in the whole */
        for (int d = attr->whole.rank - 1; d >= 0; d--) {
            place += (attr->start[d] + rest % attr->type.shape.dim[d]) * stride;
            stride *= attr->whole.dim[d];
            rest /= attr->type.shape.dim[d];
        }
        r->out[0][i] = init_element(attr, attr->whole.rank ? place : i);
    }
}

/* Where element i of a packed array is: in its part, behind the part's earlier elements. */
static int64_t packed_at(MxShape shape, int n_parts, int dim, int64_t i, int64_t stride,
                         int64_t at) {
    int64_t inner = 1, size = dim < shape.rank ? shape.dim[dim] : 1;
    for (int d = dim + 1; d < shape.rank; d++) inner *= shape.dim[d];
    int64_t each = size / n_parts, part = i / inner % size / each;
    int64_t in_part = (i / inner / size * each + i / inner % size % each) * inner + i % inner;
    return part * stride + at + in_part;
}

static void ref_pack(const Reference *r) {
    const MxPackAttr *attr = r->attr;
    int64_t at = 0, stride = r->out_type[0].shape.dim[1];
    for (int k = 0; k < r->n_in; k++) {
        for (int64_t i = 0; i < count(r->in_type[k]); i++)
            r->out[0][packed_at(r->in_type[k].shape, attr->n_parts, attr->dim[k], i, stride, at)] =
                r->in[k][i];
        at += count(r->in_type[k]) / attr->n_parts;
    }
}

static void ref_unpack(const Reference *r) {
    const MxUnpackAttr *attr = r->attr;
    MxShape in = r->in_type[0].shape;
    for (int64_t i = 0; i < count(r->out_type[0]); i++)
        r->out[0][i] =
            r->in[0][packed_at(attr->shape, (int)in.dim[0], attr->dim, i, in.dim[1], attr->at)];
}

/* ---- tables */

static ReferenceFn *const references[MX_OP_COUNT] = {
    [MX_OP_shift] = ref_shift,
    [MX_OP_concat] = ref_concat,
    [MX_OP_split] = ref_split,
    [MX_OP_copy] = ref_copy,
    [MX_OP_cast] = ref_copy,
    [MX_OP_add] = ref_add,
    [MX_OP_sum_lead] = ref_sum_lead,
    [MX_OP_scale] = ref_scale,
    [MX_OP_softcap] = ref_softcap,
    [MX_OP_ratio] = ref_ratio,
    [MX_OP_glu] = ref_glu,
    [MX_OP_dot] = ref_dot,
    [MX_OP_rmsnorm] = ref_rmsnorm,
    [MX_OP_rope_table] = ref_rope_table,
    [MX_OP_rope] = ref_rope,
    [MX_OP_attention] = ref_attention,
    [MX_OP_embed] = ref_embed,
    [MX_OP_embed_grad] = ref_embed_grad,
    [MX_OP_xent] = ref_xent,
    [MX_OP_logprob] = ref_logprob,
    [MX_OP_preference] = ref_preference,
    [MX_OP_argmax] = ref_argmax,
    [MX_OP_count_nonzero] = ref_count_nonzero,
    [MX_OP_count_segments] = ref_count_segments,
    [MX_OP_count_equal] = ref_count_equal,
    [MX_OP_sum_squares] = ref_sum_squares,
    [MX_OP_init] = ref_init,
    [MX_OP_clip_factor] = ref_clip_factor,
    [MX_OP_adamw] = ref_adamw,
    [MX_OP_sgd] = ref_sgd,
    [MX_OP_all_reduce] = ref_copy,
    [MX_OP_reduce_scatter] = ref_copy,
    [MX_OP_all_gather] = ref_copy,
    [MX_OP_take_part] = ref_copy,
    [MX_OP_pack] = ref_pack,
    [MX_OP_unpack] = ref_unpack,
};

ReferenceFn *reference_of(const MxOp *op) {
    return references[mx_op_index(op)];
}

static const GradientOf gradients[] = {
    {&op_softcap_grad, &op_softcap, 1, 1, {0}, 1},
    {&op_glu_grad, &op_glu, 2, 2, {0, 1}, 2},
    {&op_rmsnorm_grad, &op_rmsnorm, 2, 3, {0, 1}, 2},
    {&op_attention_grad, &op_attention, 4, 6, {0, 1, 2}, 3},
    {&op_xent_grad, &op_xent, 4, 4, {1, 0, -1, -2}, 4},
    {&op_logprob_grad, &op_logprob, 4, 5, {1, 0}, 2},
    {&op_preference_grad, &op_preference, 4, 4, {0}, 1},
    {&op_preference_grad, &op_preference, 3, 3, {0}, 1}, /* no reference */
};

const GradientOf *reference_gradient(const MxOp *op, int n_in) {
    for (int i = 0; i < MX_COUNT(gradients); i++)
        if (gradients[i].gradient == op && gradients[i].dy == n_in - 1) return &gradients[i];
    return NULL;
}
