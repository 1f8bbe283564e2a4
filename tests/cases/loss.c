/* loss.c — cross-entropy and what else is made of logits. */
#include "cases.h"

#include <math.h>

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
    for (int64_t token = 0; token < element_count(r->in_type[2]); token++) {
        if (r->in[3][token] == 0) continue;
        double target, lse = log_sum(r, token, &target), z = attr->z_loss * lse * lse;
        total += lse - target + z;
        z_total += z;
    }
    r->out[0][0] = total;
    r->out[1][0] = z_total;
}

static double entropy(const Reference *r, int64_t token, double log_sum) {
    int64_t vocab = r->in_type[1].shape.dim[((const MxXentAttr *)r->attr)->tied ? 0 : 1];
    double sum = 0;
    for (int64_t v = 0; v < vocab; v++) {
        double logp = logit(r, token, v) - log_sum;
        sum -= exp(logp) * logp;
    }
    return sum;
}

static void ref_logprob(const Reference *r) {
    for (int64_t token = 0; token < element_count(r->in_type[2]); token++) {
        double target;
        bool counts = r->in[3][token] != 0;
        r->out[1][token] = counts ? log_sum(r, token, &target) : 0;
        r->out[0][token] = counts ? target - r->out[1][token] : 0;
        if (((const MxXentAttr *)r->attr)->entropy)
            r->out[2][token] = counts ? entropy(r, token, r->out[1][token]) : 0;
    }
}

static void ref_argmax(const Reference *r) {
    int64_t vocab = r->in_type[1].shape.dim[((const MxXentAttr *)r->attr)->tied ? 0 : 1];
    for (int64_t token = 0; token < element_count(r->in_type[2]); token++) {
        int64_t best = 0;
        for (int64_t v = 1; v < vocab && r->in[2][token] != 0; v++)
            if (logit(r, token, v) > logit(r, token, best)) best = v;
        r->out[0][token] = (double)best;
    }
}

// clang-format off
const OpTest test_xent = {
    CASES(
        {"untied", ATTR(MxXentAttr, .scale = 1), "x2,5,7 x7,19:normal0.3 i2,5:ids19 i2,5:flags0.3", NULL, CASE_FOLLOWS},
        {"tied, scale, z", ATTR(MxXentAttr, .tied = true, .scale = 0.8, .z_loss = 0.01), "x2,5,7 x19,7:normal0.3 i2,5:ids19 i2,5:flags0.3", NULL, CASE_FOLLOWS},
        {"untied, cap, z", ATTR(MxXentAttr, .scale = 1.3, .softcap = 2.5, .z_loss = 0.05), "x2,5,7 x7,19:normal0.3 i2,5:ids19 i2,5:flags0", NULL, CASE_FOLLOWS},
        {"nothing counts", ATTR(MxXentAttr, .tied = true, .scale = 1, .z_loss = 0.01), "x1,4,5 x7,5:normal0.3 i1,4:ids7 i1,4:flags1", NULL, CASE_FOLLOWS | CASE_NO_SLOPE},
        {"large", ATTR(MxXentAttr, .scale = 1, .z_loss = 1e-3), "x3,33,20 x20,1501:normal0.3 i3,33:ids1501 i3,33:flags0.2", NULL, CASE_FOLLOWS},
        {"chunks", ATTR(MxXentAttr, .tied = true, .scale = 0.5, .softcap = 6.0, .z_loss = 1e-3), "x2,1250,3 x13,3:normal0.3 i2,1250:ids13 i2,1250:flags0.2", NULL, CASE_FOLLOWS | CASE_NO_SLOPE},
        {"chunks untied", ATTR(MxXentAttr, .scale = 1), "x2,1251,3 x3,13:normal0.3 i2,1251:ids13 i2,1251:flags0.2", NULL, CASE_FOLLOWS},
        {"few count", ATTR(MxXentAttr, .scale = 1, .z_loss = 1e-3), "x2,1250,3 x3,13:normal0.3 i2,1250:ids13 i2,1250:flags0.9", NULL, CASE_FOLLOWS},
        {NULL, ATTR(MxXentAttr, .scale = 1), "f2,5,4 f4,9 i2,5 i2,5", "f f", 0},
        {NULL, ATTR(MxXentAttr, .dtype = MX_BF16, .scale = 1, .tied = true), "b2,5,4 b9,4 i2,5 i2,5", "f f", 0},
        {NULL, ATTR(MxXentAttr, .scale = 1), "f4 f4,9 i:ids9 i:flags0", "f f", 0},
        {NULL, ATTR(MxXentAttr, .scale = 0.9, .z_loss = 0.01), "f8,8,16 f16,8:normal0.3 i8,8:ids8 i8,8:flags0.3", NULL, CASE_RANKS},
        {NULL, ATTR(MxXentAttr, .tied = true, .scale = 0.9), "f8,8,16 f8,16:normal0.3 i8,8:ids8 i8,8:flags0.3", NULL, CASE_RANKS},
        {NULL, ATTR(MxXentAttr, .scale = 0.9, .z_loss = 0.01, .tiles = 3), "f4,8,16 f16,512:normal0.3 i4,8:ids512 i4,8:flags0.3", NULL, CASE_RANKS | CASE_JOINED},
        {NULL, ATTR(MxXentAttr, .dtype = MX_BF16, .tied = true, .scale = 0.9, .softcap = 3), "b8,2,32 b512,32:normal0.3 i8,2:ids512 i8,2:flags0.3", NULL, CASE_RANKS | CASE_JOINED},
        {NULL, ATTR(MxXentAttr, .scale = 0.9, .z_loss = 0.01, .softcap = 3), "f8,2,32 f32,512:normal0.3 i8,2:ids512 i8,2:flags0.3", NULL, CASE_RANKS | CASE_JOINED},
        {NULL, ATTR(MxXentAttr, .tied = true, .scale = 0.9, .z_loss = 0.01, .tiles = 3), "f8,2,32 f512,32:normal0.3 i8,2:ids512 i8,2:flags0.3", NULL, CASE_RANKS | CASE_JOINED},
        {NULL, ATTR(MxXentAttr, .dtype = MX_BF16, .scale = 0.9), "b8,2,32 b32,512:normal0.3 i8,2:ids512 i8,2:flags0.3", NULL, CASE_RANKS | CASE_JOINED},
        {NULL, ATTR(MxXentAttr, .scale = 0.9, .z_loss = 0.01, .tiles = 4), "f3,5,32 f32,512:normal0.3 i3,5:ids512 i3,5:flags0.3", NULL, CASE_RANKS | CASE_JOINED}),
    WRONG(
        {ATTR(MxXentAttr, .scale = 1), "f2,5,4 f9,4 i2,5 i2,5", "w must have h's last dim"},
        {ATTR(MxXentAttr, .scale = 1, .tied = true), "f2,5,4 f4,9 i2,5 i2,5", "w must have h's last dim"},
        {ATTR(MxXentAttr, .scale = 1), "f2,5,4 b4,9 i2,5 i2,5", "input 1 must be float32 of rank 2"},
        {ATTR(MxXentAttr, .scale = 1), "f2,5,4 f4 i2,5 i2,5", "input 1 must be float32 of rank 2"},
        {ATTR(MxXentAttr, .scale = 1), "f2,5,4 f4,9 f2,5 i2,5", "input 2 must be int32 of rank 2"},
        {ATTR(MxXentAttr, .scale = 1), "f2,5,4 f4,9 i5 i2,5", "input 2 must be int32 of rank 2"},
        {ATTR(MxXentAttr, .scale = 1), "f2,5,4 f4,9 i2,5 f2,5", "input 3 must be int32 of rank 2"},
        {ATTR(MxXentAttr, .scale = 1), "f2,5,4 f4,9 i2,4 i2,5", "targets and weights must have h's leading dims"},
        {ATTR(MxXentAttr, .scale = 1), "f2,5,4 f4,9 i2,5 i1,5", "targets and weights must have h's leading dims"},
        {ATTR(MxXentAttr, .scale = 1), "i2,5,4 i4,9 i2,5 i2,5", "input 0 must be float32 or bfloat16"},
        {ATTR(MxXentAttr, .scale = 1), "f f4,9 i i", "h must have a last dim"}),
    .reference = ref_xent,
    .flows = 1 << 0 | 1 << 1,
    .any_bits = true,
};

const OpTest test_xent_grad = {
    WRONG(
        {ATTR(MxXentAttr, .scale = 1), "f2,5,4 f9,4 i2,5 i2,5 f", "w must have h's last dim"},
        {ATTR(MxXentAttr, .scale = 1), "f2,5,4 f4,9 i2,5 i2,5 f1", "input 4 must be float32 of rank 0"},
        {ATTR(MxXentAttr, .scale = 1), "f2,5,4 f4,9 i2,5 i2,5 b", "input 4 must be float32 of rank 0"}),
    .forward = &op_xent,
    .wrt = {1, 0, -1, -2},
    .any_bits = true,
};

const OpTest test_logprob = {
    CASES(
        {"untied", ATTR(MxXentAttr, .scale = 1), "x2,5,7 x7,19:normal0.3 i2,5:ids19 i2,5:flags0.3", NULL, CASE_FOLLOWS},
        {"tied, scale", ATTR(MxXentAttr, .tied = true, .scale = 0.8), "x2,5,7 x19,7:normal0.3 i2,5:ids19 i2,5:flags0.3", NULL, CASE_FOLLOWS},
        {"untied, cap, all count", ATTR(MxXentAttr, .scale = 1.3, .softcap = 2.5, .tiles = 1), "x2,5,7 x7,19:normal0.3 i2,5:ids19 i2,5:flags0", NULL, CASE_FOLLOWS},
        {"nothing counts", ATTR(MxXentAttr, .tied = true, .scale = 1), "x1,4,5 x7,5:normal0.3 i1,4:ids7 i1,4:flags1", NULL, CASE_FOLLOWS | CASE_NO_SLOPE},
        {"large, tiles", ATTR(MxXentAttr, .scale = 1, .tiles = 5), "x3,33,20 x20,1501:normal0.3 i3,33:ids1501 i3,33:flags0.2", NULL, CASE_FOLLOWS},
        {"chunks", ATTR(MxXentAttr, .tied = true, .scale = 0.5, .softcap = 6.0), "x2,1250,3 x13,3:normal0.3 i2,1250:ids13 i2,1250:flags0.2", NULL, CASE_FOLLOWS | CASE_NO_SLOPE},
        {"few count", ATTR(MxXentAttr, .scale = 1), "x2,1250,3 x3,13:normal0.3 i2,1250:ids13 i2,1250:flags0.9", NULL, CASE_FOLLOWS},
        {"entropy", ATTR(MxXentAttr, .scale = 1, .entropy = true), "x2,5,7 x7,19:normal0.3 i2,5:ids19 i2,5:flags0.3", NULL, CASE_FOLLOWS},
        {"entropy, tied, scale, cap", ATTR(MxXentAttr, .tied = true, .scale = 1.3, .softcap = 2.5, .entropy = true, .tiles = 3), "x2,5,7 x19,7:normal0.3 i2,5:ids19 i2,5:flags0", NULL, CASE_FOLLOWS},
        {"entropy, large", ATTR(MxXentAttr, .scale = 1, .entropy = true), "x3,33,20 x20,1501:normal0.3 i3,33:ids1501 i3,33:flags0.2", NULL, CASE_FOLLOWS},
        {"entropy, few likely", ATTR(MxXentAttr, .scale = 40, .entropy = true), "f2,5,7 f7,19:normal1 i2,5:ids19 i2,5:flags0.3", NULL, CASE_NO_SLOPE},
        {"entropy, nothing counts", ATTR(MxXentAttr, .scale = 1, .entropy = true), "x1,4,5 x5,7:normal0.3 i1,4:ids7 i1,4:flags1", NULL, CASE_FOLLOWS | CASE_NO_SLOPE},
        {NULL, ATTR(MxXentAttr, .scale = 1, .entropy = true), "f2,5,4 f4,9 i2,5 i2,5", "f2,5 f2,5 f2,5", 0},
        {NULL, ATTR(MxXentAttr, .scale = 1), "f2,5,4 f4,9 i2,5 i2,5", "f2,5 f2,5", 0},
        {NULL, ATTR(MxXentAttr, .dtype = MX_BF16, .scale = 1, .tied = true), "b2,5,4 b9,4 i2,5 i2,5", "f2,5 f2,5", 0},
        {NULL, ATTR(MxXentAttr, .scale = 1), "f4 f4,9 i:ids9 i:flags0", "f f", 0},
        {NULL, ATTR(MxXentAttr, .scale = 0.9), "f8,8,16 f16,8:normal0.3 i8,8:ids8 i8,8:flags0.3", NULL, CASE_RANKS},
        {NULL, ATTR(MxXentAttr, .tied = true, .scale = 0.9, .softcap = 3, .tiles = 5), "f8,4,16 f128,16:normal0.3 i8,4:ids128 i8,4:flags0.3", NULL, CASE_RANKS | CASE_JOINED},
        {NULL, ATTR(MxXentAttr, .tied = true, .scale = 0.9, .softcap = 3), "f8,4,16 f128,16:normal0.3 i8,4:ids128 i8,4:flags0.3", NULL, CASE_RANKS | CASE_JOINED},
        {NULL, ATTR(MxXentAttr, .scale = 0.9, .entropy = true), "f8,4,16 f16,128:normal0.3 i8,4:ids128 i8,4:flags0.3", NULL, CASE_RANKS | CASE_JOINED},
        {NULL, ATTR(MxXentAttr, .dtype = MX_BF16, .tied = true, .scale = 0.9, .entropy = true, .tiles = 3), "b8,4,32 b512,32:normal0.3 i8,4:ids512 i8,4:flags0.3", NULL, CASE_RANKS | CASE_JOINED}),
    WRONG(
        {ATTR(MxXentAttr, .scale = 1), "f2,5,4 f9,4 i2,5 i2,5", "w must have h's last dim"},
        {ATTR(MxXentAttr, .scale = 1), "f2,5,4 f4,9 i2,5 f2,5", "input 3 must be int32 of rank 2"},
        {ATTR(MxXentAttr, .scale = 1, .z_loss = 0.1), "f2,5,4 f4,9 i2,5 i2,5", "log-probabilities have no z-loss"}),
    .reference = ref_logprob,
    .flows = 1 << 0 | 1 << 1,
    .any_bits = true,
};

const OpTest test_logprob_grad = {
    WRONG(
        {ATTR(MxXentAttr, .scale = 1), "f2,5,4 f9,4 i2,5 i2,5 f2,5 f2,5", "w must have h's last dim"},
        {ATTR(MxXentAttr, .scale = 1, .entropy = true), "f2,5,4 f4,9 i2,5 i2,5 f2,5 f2,5", "takes 8 inputs, not 6"},
        {ATTR(MxXentAttr, .scale = 1, .entropy = true), "f2,5,4 f4,9 i2,5 i2,5 f2,5 f2,5 f2,5 f5,2", "input 7 must have targets' dims"},
        {ATTR(MxXentAttr, .scale = 1), "f2,5,4 f4,9 i2,5 i2,5 f2,4 f2,5", "input 4 must have targets' dims"},
        {ATTR(MxXentAttr, .scale = 1), "f2,5,4 f4,9 i2,5 i2,5 f2,5 f5", "input 5 must be float32 of rank 2"},
        {ATTR(MxXentAttr, .scale = 1), "f2,5,4 f4,9 i2,5 i2,5 f2,5 b2,5", "input 5 must be float32 of rank 2"},
        {ATTR(MxXentAttr, .scale = 1, .z_loss = 0.1), "f2,5,4 f4,9 i2,5 i2,5 f2,5 f2,5", "log-probabilities have no z-loss"}),
    .forward = &op_logprob,
    .saved = 1 << 1 | 1 << 2,
    .wrt = {1, 0},
    .any_bits = true,
};

const OpTest test_argmax = {
    CASES(
        {"untied", ATTR(MxXentAttr, .scale = 1), "x2,5,7 x7,19:normal0.3 i2,5:flags0.3", NULL, CASE_FOLLOWS},
        {"tied, scale, cap, tiles", ATTR(MxXentAttr, .tied = true, .scale = -0.7, .softcap = 20, .tiles = 7), "x2,75,7 x301,7:normal0.3 i2,75:flags0.3", NULL, CASE_FOLLOWS},
        {NULL, ATTR(MxXentAttr, .scale = 1), "f2,5,4 f4,9 i2,5", "i2,5", 0},
        {NULL, ATTR(MxXentAttr, .dtype = MX_BF16, .scale = 1, .tied = true), "b2,5,4 b9,4 i2,5", "i2,5", 0},
        {NULL, ATTR(MxXentAttr, .scale = 0.9, .softcap = 3), "f8,4,16 f16,128:normal0.3 i8,4:flags0.3", NULL, CASE_RANKS | CASE_JOINED},
        {NULL, ATTR(MxXentAttr, .scale = 0.9), "f8,8,16 f16,8:normal0.3 i8,8:flags0.3", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxXentAttr, .scale = 1), "f2,5,4 f9,4 i2,5", "w must have h's last dim"},
        {ATTR(MxXentAttr, .scale = 1), "f2,5,4 f4,9 f2,5", "input 2 must be int32 of rank 2"},
        {ATTR(MxXentAttr, .scale = 1), "f2,5,4 f4,9 i2,4", "targets and weights must have h's leading dims"}),
    .reference = ref_argmax,
    .any_bits = true,
};
// clang-format on
