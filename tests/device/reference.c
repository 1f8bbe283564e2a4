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
    int64_t T = q.dim[1], H = q.dim[3], head = n / (q.dim[2] / k.dim[2]);
    const double *query = r->in[0] + ((b * T + t) * q.dim[2] + n) * H;
    double *out = r->out[0] + ((b * T + t) * q.dim[2] + n) * H, sum = 0;
    for (int64_t h = 0; h < H; h++) out[h] = 0;
    for (int64_t s = 0; s < T; s++) {
        if (!sees(attr, t, s) || r->in[3][b * T + s] != r->in[3][b * T + t]) continue;
        const double *key = r->in[1] + ((b * T + s) * k.dim[2] + head) * H;
        const double *value = r->in[2] + ((b * T + s) * k.dim[2] + head) * H;
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
    int64_t width = r->in_type[0].shape.dim[1];
    for (int64_t i = 0; i < count(r->out_type[0]); i++)
        r->out[0][i] = r->in[0][(int64_t)r->in[1][i / width] * width + i % width];
}

static void ref_embed_grad(const Reference *r) {
    int64_t width = r->out_type[0].shape.dim[1];
    for (int64_t i = 0; i < count(r->out_type[0]); i++) r->out[0][i] = 0;
    for (int64_t i = 0; i < count(r->in_type[1]); i++)
        r->out[0][(int64_t)r->in[0][i / width] * width + i % width] += r->in[1][i];
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

static void ref_xent(const Reference *r) {
    const MxXentAttr *attr = r->attr;
    int64_t vocab = r->in_type[1].shape.dim[attr->tied ? 0 : 1];
    double total = 0, z_total = 0;
    for (int64_t token = 0; token < count(r->in_type[2]); token++) {
        if (r->in[3][token] == 0) continue;
        double sum = 0, target = 0;
        for (int64_t v = 0; v < vocab; v++) {
            double x = logit(r, token, v);
            sum += exp(x);
            if (v == (int64_t)r->in[2][token]) target = x;
        }
        double z = attr->z_loss * log(sum) * log(sum);
        total += log(sum) - target + z;
        z_total += z;
    }
    r->out[0][0] = total;
    r->out[1][0] = z_total;
}

static void ref_count_nonzero(const Reference *r) {
    r->out[0][0] = 0;
    for (int64_t i = 0; i < count(r->in_type[0]); i++) r->out[0][0] += r->in[0][i] != 0;
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
    if (a->fill == MX_FILL_TRUNCATED_NORMAL)
        return a->value / of_cut * normal_quantile(tail + u * (1 - 2 * tail));
    double radius = sqrt(-2 * log((double)mx_uniform(words[i % 4 / 2 * 2])));
    double turn = 2 * pi * (double)mx_uniform(words[i % 4 / 2 * 2 + 1]);
    return a->value * radius * (i % 2 ? sin(turn) : cos(turn));
}

static void ref_init(const Reference *r) {
    for (int64_t i = 0; i < count(r->out_type[0]); i++) r->out[0][i] = init_element(r->attr, i);
}

/* ---- tables */

static ReferenceFn *const references[MX_OP_COUNT] = {
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
    [MX_OP_count_nonzero] = ref_count_nonzero,
    [MX_OP_sum_squares] = ref_sum_squares,
    [MX_OP_init] = ref_init,
    [MX_OP_clip_factor] = ref_clip_factor,
    [MX_OP_adamw] = ref_adamw,
    [MX_OP_sgd] = ref_sgd,
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
};

const GradientOf *reference_gradient(const MxOp *op) {
    for (int i = 0; i < MX_COUNT(gradients); i++)
        if (gradients[i].gradient == op) return &gradients[i];
    return NULL;
}
