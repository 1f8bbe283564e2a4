/* distill.c — a student beside its teacher. */
#include "cases.h"

#include <math.h>

/* ---- logits */

static double logit(const Reference *r, int h, int w, const MxXentAttr *attr, int64_t token,
                    int64_t v) {
    MxShape shape = r->in_type[w].shape;
    int64_t width = shape.dim[attr->tied ? 1 : 0];
    double sum = 0;
    for (int64_t i = 0; i < width; i++)
        sum += r->in[h][token * width + i] *
               r->in[w][attr->tied ? v * width + i : i * shape.dim[1] + v];
    sum *= attr->scale;
    return attr->softcap > 0 ? attr->softcap * tanh(sum / attr->softcap) : sum;
}

/* The log of the sum of exponentials of n logits divided by a temperature. */
static double log_sum(const double *x, int64_t n, double heat) {
    double sum = 0;
    for (int64_t v = 0; v < n; v++) sum += exp(x[v] / heat);
    return log(sum);
}

static double divergence(const double *t, const double *s, int64_t n, double heat) {
    double t_log = log_sum(t, n, heat), s_log = log_sum(s, n, heat), sum = 0;
    for (int64_t v = 0; v < n; v++)
        sum += exp(t[v] / heat - t_log) * (t[v] / heat - t_log - s[v] / heat + s_log);
    return sum;
}

enum { MOST = 2048 }; /* vocabulary */

static void ref_distill(const Reference *r) {
    const MxDistillAttr *attr = r->attr;
    const double *numbers = r->in[6];
    double alpha = numbers[MX_DISTILL_ALPHA], heat = numbers[MX_DISTILL_TEMPERATURE];
    int64_t vocab = r->in_type[1].shape.dim[attr->student.tied ? 0 : 1];
    static double s[MOST], t[MOST];
    double *sums = r->out[1];
    r->out[0][0] = 0;
    for (int i = 0; i < MX_DISTILL_SUMS; i++) sums[i] = 0;
    for (int64_t token = 0; token < element_count(r->in_type[2]); token++) {
        int64_t target = (int64_t)r->in[2][token];
        if (r->in[3][token] == 0) continue;
        for (int64_t v = 0; v < vocab; v++) {
            s[v] = logit(r, 0, 1, &attr->student, token, v);
            t[v] = logit(r, 4, 5, &attr->teacher, token, v);
        }
        double hard = log_sum(s, vocab, 1) - s[target], kl = divergence(t, s, vocab, heat);
        sums[MX_DISTILL_HARD] += hard;
        sums[MX_DISTILL_KL] += kl;
        sums[MX_DISTILL_KL_PLAIN] += divergence(t, s, vocab, 1);
        sums[MX_DISTILL_TEACHER] += log_sum(t, vocab, 1) - t[target];
        r->out[0][0] += alpha * heat * heat * kl + (1 - alpha) * hard;
    }
}

#define HEADS(...) ATTR(MxDistillAttr, __VA_ARGS__)

// clang-format off
const OpTest test_distill = {
    CASES(
        {"untied", HEADS({.scale = 1}, {.scale = 1}), "x2,5,7 x7,19:normal0.3 i2,5:ids19 i2,5:flags0.3 f2,5,9 f9,19:normal0.3 f3:value0.5", NULL, CASE_FOLLOWS},
        {"tied, scales", HEADS({.tied = true, .scale = 0.8}, {.tied = true, .scale = 1.2}), "x2,5,7 x19,7:normal0.3 i2,5:ids19 i2,5:flags0.3 f2,5,4 f19,4:normal0.3 f3:value0.7", NULL, CASE_FOLLOWS},
        {"caps, no temperature", HEADS({.scale = 1.3, .softcap = 2.5}, {.tied = true, .scale = 1, .softcap = 3}), "x2,5,7 x7,19:normal0.3 i2,5:ids19 i2,5:flags0 f2,5,7 f19,7:normal0.3 f3:value1", NULL, CASE_FOLLOWS},
        {"another dtype", HEADS({.scale = 1}, {.scale = 1}), "x2,5,8 x8,33:normal0.3 i2,5:ids33 i2,5:flags0.3 b2,5,8 b8,33:normal0.3 f3:value0.6", NULL, CASE_FOLLOWS},
        {"nothing counts", HEADS({.tied = true, .scale = 1}, {.scale = 1}), "x1,4,5 x7,5:normal0.3 i1,4:ids7 i1,4:flags1 f1,4,3 f3,7 f3:value0.5", NULL, CASE_FOLLOWS | CASE_NO_SLOPE},
        {"large", HEADS({.scale = 1}, {.scale = 1}), "x3,33,20 x20,1501:normal0.3 i3,33:ids1501 i3,33:flags0.2 f3,33,12 f12,1501:normal0.3 f3:value0.5", NULL, CASE_FOLLOWS},
        {"chunks", HEADS({.scale = 1}, {.tied = true, .scale = 0.5}), "x2,1251,3 x3,13:normal0.3 i2,1251:ids13 i2,1251:flags0.2 f2,1251,3 f13,3:normal0.3 f3:value0.8", NULL, CASE_FOLLOWS},
        {NULL, HEADS({.scale = 1}, {.scale = 1}), "f2,5,4 f4,9 i2,5 i2,5 f2,5,3 f3,9 f3", "f f4", 0},
        {NULL, HEADS({.dtype = MX_BF16, .scale = 1, .tied = true}, {.scale = 1}), "b2,5,4 b9,4 i2,5 i2,5 f2,5,3 f3,9 f3", "f f4", 0},
        {NULL, HEADS({.scale = 0.9}, {.scale = 0.9}), "f8,8,16 f16,64:normal0.3 i8,8:ids64 i8,8:flags0.3 f8,8,8 f8,64:normal0.3 f3:value0.5", NULL, CASE_RANKS},
        {NULL, HEADS({.tied = true, .scale = 0.9, .tiles = 3}, {.scale = 0.9}), "f8,4,16 f128,16:normal0.3 i8,4:ids128 i8,4:flags0.3 f8,4,16 f16,128:normal0.3 f3:value0.5", NULL, CASE_RANKS}),
    WRONG(
        {HEADS({.scale = 1}, {.scale = 1}), "f2,5,4 f9,4 i2,5 i2,5 f2,5,3 f3,9 f3", "w must have h's last dim"},
        {HEADS({.scale = 1, .z_loss = 0.1}, {.scale = 1}), "f2,5,4 f4,9 i2,5 i2,5 f2,5,3 f3,9 f3", "distillation has no z-loss"},
        {HEADS({.scale = 1}, {.scale = 1}), "f2,5,4 f4,9 i2,5 i2,5 f2,4,3 f3,9 f3", "the teacher must have h's leading dims"},
        {HEADS({.scale = 1}, {.scale = 1}), "f2,5,4 f4,9 i2,5 i2,5 f2,5,3 f4,9 f3", "the teacher's w must have its h's last dim"},
        {HEADS({.scale = 1}, {.scale = 1}), "f2,5,4 f4,9 i2,5 i2,5 f2,5,3 f3,8 f3", "both must have one vocabulary"},
        {HEADS({.scale = 1}, {.scale = 1}), "f2,5,4 f4,9 i2,5 i2,5 f2,5,3 b3,9 f3", "input 5 must be float32 of rank 2"},
        {HEADS({.scale = 1}, {.scale = 1}), "f2,5,4 f4,9 i2,5 i2,5 f2,5,3 f3,9 f2", "numbers must be 3"},
        {HEADS({.scale = 1}, {.scale = 1}), "f2,5,4 f4,9 i2,5 i2,5 f2,5,3 f3,9 f", "input 6 must be float32 of rank 1"}),
    .reference = ref_distill,
    .flows = 1 << 0 | 1 << 1,
    .any_bits = true,
};

const OpTest test_distill_grad = {
    WRONG(
        {HEADS({.scale = 1}, {.scale = 1}), "f2,5,4 f4,9 i2,5 i2,5 f2,5,3 f3,8 f3 f", "both must have one vocabulary"},
        {HEADS({.scale = 1}, {.scale = 1}), "f2,5,4 f4,9 i2,5 i2,5 f2,5,3 f3,9 f3 f1", "input 7 must be float32 of rank 0"}),
    .forward = &op_distill,
    .wrt = {1, 0, -1, -2},
    .any_bits = true,
};
// clang-format on

/* ---- beside the largest logits alone */

static void ref_top_logits(const Reference *r) {
    const MxTopAttr *attr = r->attr;
    int64_t vocab = r->in_type[1].shape.dim[attr->head.tied ? 0 : 1];
    static bool is_taken[MOST];
    for (int64_t token = 0; token < element_count(r->in_type[2]); token++) {
        memset(is_taken, 0, sizeof is_taken);
        for (int64_t i = 0; i < attr->k; i++) {
            int64_t best = -1;
            for (int64_t v = 0; v < vocab; v++)
                if (!is_taken[v] && (best < 0 || logit(r, 0, 1, &attr->head, token, v) >
                                                     logit(r, 0, 1, &attr->head, token, best)))
                    best = v;
            is_taken[best] = true;
            bool counts = r->in[2][token] != 0;
            r->out[0][token * attr->k + i] = counts ? logit(r, 0, 1, &attr->head, token, best) : 0;
            r->out[1][token * attr->k + i] = counts ? (double)best : 0;
        }
    }
}

static void ref_distill_top(const Reference *r) {
    const MxXentAttr *attr = r->attr;
    MxShape shape = r->in_type[4].shape;
    int64_t k = shape.dim[shape.rank - 1], vocab = r->in_type[1].shape.dim[attr->tied ? 0 : 1];
    double alpha = r->in[6][MX_DISTILL_ALPHA], heat = r->in[6][MX_DISTILL_TEMPERATURE];
    static double s[MOST], few[MOST];
    double *sums = r->out[1];
    r->out[0][0] = 0;
    for (int i = 0; i < MX_DISTILL_SUMS; i++) sums[i] = 0;
    for (int64_t token = 0; token < element_count(r->in_type[2]); token++) {
        if (r->in[3][token] == 0) continue;
        for (int64_t v = 0; v < vocab; v++) s[v] = logit(r, 0, 1, attr, token, v);
        for (int64_t i = 0; i < k; i++) few[i] = s[(int64_t)r->in[5][token * k + i]];
        double hard = log_sum(s, vocab, 1) - s[(int64_t)r->in[2][token]];
        double kl = divergence(r->in[4] + token * k, few, k, heat);
        sums[MX_DISTILL_HARD] += hard;
        sums[MX_DISTILL_KL] += kl;
        r->out[0][0] += alpha * heat * heat * kl + (1 - alpha) * hard;
    }
}

#define TOP(number, ...) ATTR(MxTopAttr, .k = number, .head = __VA_ARGS__)
#define HEAD(...)        ATTR(MxXentAttr, __VA_ARGS__)

// clang-format off
const OpTest test_top_logits = {
    CASES(
        {"untied", TOP(3, {.scale = 1}), "x2,5,7 x7,19:normal0.3 i2,5:flags0.3", NULL, CASE_FOLLOWS},
        {"all, tied, scale, cap", TOP(19, {.tied = true, .scale = 0.8, .softcap = 5}), "f2,5,7 f19,7:normal0.3 i2,5:flags0", NULL, 0},
        {"nothing counts", TOP(1, {.scale = 1}), "x1,4,5 x5,7 i1,4:flags1", NULL, CASE_FOLLOWS},
        {"large, tiles", TOP(128, {.scale = 1, .tiles = 7}), "f3,33,20 f20,1501:normal0.3 i3,33:flags0.2", NULL, 0},
        {NULL, TOP(2, {.scale = 1}), "f2,5,4 f4,9 i2,5", "f2,5,2 i2,5,2", 0},
        {NULL, TOP(2, {.dtype = MX_BF16, .scale = 1, .tied = true}), "b2,5,4 b9,4 i2,5", "f2,5,2 i2,5,2", 0},
        {NULL, TOP(4, {.scale = 0.9}), "f8,8,16 f16,64:normal0.3 i8,8:flags0.3", NULL, CASE_RANKS}),
    WRONG(
        {TOP(2, {.scale = 1}), "f2,5,4 f9,4 i2,5", "w must have h's last dim"},
        {TOP(10, {.scale = 1}), "f2,5,4 f4,9 i2,5", "k must be at least 1, at most the vocabulary and 1024"},
        {TOP(0, {.scale = 1}), "f2,5,4 f4,9 i2,5", "k must be at least 1"},
        {TOP(2, {.scale = 1}), "f2,5,4 f4,9 f2,5", "input 2 must be int32 of rank 2"}),
    .reference = ref_top_logits,
    .any_bits = true,
};

const OpTest test_distill_top = {
    CASES(
        {"untied", HEAD(.scale = 1), "x2,5,7 x7,19:normal0.3 i2,5:ids19 i2,5:flags0.3 f2,5,4 i2,5,4:ids19 f3:value0.5", NULL, CASE_FOLLOWS},
        {"tied, scale, cap", HEAD(.tied = true, .scale = 0.8, .softcap = 2.5), "x2,5,7 x19,7:normal0.3 i2,5:ids19 i2,5:flags0.3 f2,5,9 i2,5,9:ids19 f3:value0.7", NULL, CASE_FOLLOWS},
        {"the teacher alone", HEAD(.scale = 1.3), "x2,5,7 x7,19:normal0.3 i2,5:ids19 i2,5:flags0 f2,5,7 i2,5,7:ids19 f3:value1", NULL, CASE_FOLLOWS},
        {"one logit", HEAD(.scale = 1), "x2,5,8 x8,33:normal0.3 i2,5:ids33 i2,5:flags0.3 f2,5,1 i2,5,1:ids33 f3:value0.6", NULL, CASE_FOLLOWS},
        {"nothing counts", HEAD(.tied = true, .scale = 1), "x1,4,5 x7,5:normal0.3 i1,4:ids7 i1,4:flags1 f1,4,3 i1,4,3:ids7 f3:value0.5", NULL, CASE_FOLLOWS | CASE_NO_SLOPE},
        {"large", HEAD(.scale = 1), "x3,33,20 x20,1501:normal0.3 i3,33:ids1501 i3,33:flags0.2 f3,33,128 i3,33,128:ids1501 f3:value0.5", NULL, CASE_FOLLOWS},
        {NULL, HEAD(.scale = 1), "f2,5,4 f4,9 i2,5 i2,5 f2,5,3 i2,5,3 f3", "f f4", 0},
        {NULL, HEAD(.dtype = MX_BF16, .scale = 1, .tied = true), "b2,5,4 b9,4 i2,5 i2,5 f2,5,3 i2,5,3 f3", "f f4", 0},
        {NULL, HEAD(.scale = 0.9), "f8,8,16 f16,64:normal0.3 i8,8:ids64 i8,8:flags0.3 f8,8,4 i8,8,4:ids64 f3:value0.5", NULL, CASE_RANKS}),
    WRONG(
        {HEAD(.scale = 1), "f2,5,4 f9,4 i2,5 i2,5 f2,5,3 i2,5,3 f3", "w must have h's last dim"},
        {HEAD(.scale = 1, .z_loss = 0.1), "f2,5,4 f4,9 i2,5 i2,5 f2,5,3 i2,5,3 f3", "distillation has no z-loss"},
        {HEAD(.scale = 1), "f2,5,4 f4,9 i2,5 i2,5 f2,4,3 i2,4,3 f3", "the largest logits must have h's leading dims"},
        {HEAD(.scale = 1), "f2,5,4 f4,9 i2,5 i2,5 f2,5,3 i2,5,2 f3", "ids must have the shape of their logits"},
        {HEAD(.scale = 1), "f2,5,4 f4,9 i2,5 i2,5 f2,5,1025 i2,5,1025 f3", "more than 1024 logits of a token"},
        {HEAD(.scale = 1), "f2,5,4 f4,9 i2,5 i2,5 f2,5,3 i2,5,3 f2", "numbers must be 3"}),
    .reference = ref_distill_top,
    .flows = 1 << 0 | 1 << 1,
    .any_bits = true,
};

const OpTest test_distill_top_grad = {
    WRONG(
        {HEAD(.scale = 1), "f2,5,4 f4,9 i2,5 i2,5 f2,5,3 i2,5,2 f3 f", "ids must have the shape of their logits"},
        {HEAD(.scale = 1), "f2,5,4 f4,9 i2,5 i2,5 f2,5,3 i2,5,3 f3 f1", "input 7 must be float32 of rank 0"}),
    .forward = &op_distill_top,
    .wrt = {1, 0, -1, -2},
    .any_bits = true,
};
// clang-format on

/* ---- features */

static void ref_feature(const Reference *r) {
    const MxFeatureAttr *attr = r->attr;
    MxShape shape = r->in_type[0].shape;
    int64_t width = shape.dim[shape.rank - 1];
    double total = 0;
    for (int64_t token = 0; token < element_count(r->in_type[2]); token++) {
        const double *x = r->in[0] + token * width, *y = r->in[1] + token * width;
        double xx = 0, yy = 0, xy = 0, square = 0;
        for (int64_t i = 0; i < width; i++) {
            xx += x[i] * x[i];
            yy += y[i] * y[i];
            xy += x[i] * y[i];
            square += (x[i] - y[i]) * (x[i] - y[i]);
        }
        double norms =
            fmax(sqrt(xx), MX_FEATURE_LEAST_NORM) * fmax(sqrt(yy), MX_FEATURE_LEAST_NORM);
        if (r->in[2][token] == 0) continue;
        total += attr->is_cosine ? 1 - xy / norms : square / (double)width;
    }
    r->out[0][0] = r->in[3][MX_DISTILL_BETA] * total;
}

// clang-format off
const OpTest test_feature = {
    CASES(
        {"cosine", ATTR(MxFeatureAttr, .is_cosine = true), "x2,5,7 f2,5,7 i2,5:flags0.3 f3:value0.7", NULL, 0},
        {"l2", ATTR(MxFeatureAttr), "x2,5,7 f2,5,7 i2,5:flags0.3 f3:value0.7", NULL, 0},
        {"cosine, wide", ATTR(MxFeatureAttr, .is_cosine = true), "x3,9,1100 b3,9,1100 i3,9:flags0.2 f3:value0.5", NULL, 0},
        {"nothing counts", ATTR(MxFeatureAttr, .is_cosine = true), "x1,4,5 f1,4,5 i1,4:flags1 f3:value0.5", NULL, CASE_NO_SLOPE},
        {NULL, ATTR(MxFeatureAttr), "f2,5,4 b2,5,4 i2,5 f3", "f", 0},
        {NULL, ATTR(MxFeatureAttr, .is_cosine = true), "f8,8,16 f8,8,16 i8,8:flags0.3 f3:value0.5", NULL, CASE_RANKS},
        {NULL, ATTR(MxFeatureAttr), "f8,4,32 f8,4,32 i8,4:flags0.3 f3:value0.5", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxFeatureAttr), "f2,5,4 f2,5,3 i2,5 f3", "y must have x's shape"},
        {ATTR(MxFeatureAttr), "f2,5,4 f2,5,4 i2,4 f3", "weights must have x's leading dims"},
        {ATTR(MxFeatureAttr), "f2,5,4 f2,5,4 f2,5 f3", "input 2 must be int32 of rank 2"},
        {ATTR(MxFeatureAttr), "f2,5,4 i2,5,4 i2,5 f3", "input 1 must be float32 or bfloat16"},
        {ATTR(MxFeatureAttr), "f f i f3", "x must have a last dim"},
        {ATTR(MxFeatureAttr), "f2,5,4 f2,5,4 i2,5 f4", "numbers must be 3"}),
    .reference = ref_feature,
    .flows = 1 << 0,
};

const OpTest test_feature_grad = {
    WRONG(
        {ATTR(MxFeatureAttr), "f2,5,4 f2,5,3 i2,5 f3 f", "y must have x's shape"},
        {ATTR(MxFeatureAttr), "f2,5,4 f2,5,4 i2,5 f3 f1", "input 4 must be float32 of rank 0"}),
    .forward = &op_feature,
    .wrt = {0},
};
// clang-format on
