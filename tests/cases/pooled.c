/* pooled.c — attention over tokens and rows that stand for windows. */
#include "cases.h"

#include <math.h>

/* What one query adds up. */
typedef struct Sums {
    double top, sum;
    double *out;
} Sums;

static void add_key(const Reference *r, const double *query, int64_t at, Sums *sums) {
    const MxAttentionAttr *attr = r->attr;
    int64_t H = r->in_type[1].shape.dim[3], W = r->in_type[2].shape.dim[3];
    double score = 0;
    for (int64_t h = 0; h < H; h++) score += query[h] * r->in[1][at * H + h];
    score *= attr->scale;
    if (attr->softcap > 0) score = attr->softcap * tanh(score / attr->softcap);
    double p = exp(score); /* test scores are small: no maximum is needed */
    sums->top = fmax(sums->top, score);
    sums->sum += p;
    for (int64_t h = 0; h < W; h++) sums->out[h] += p * r->in[2][at * W + h];
}

static bool sees(const Reference *r, int64_t b, int64_t t, int64_t s) {
    const MxAttentionAttr *attr = r->attr;
    const int64_t T = r->in_type[3].shape.dim[1], S = r->in_type[1].shape.dim[1];
    int64_t own = attr->first_query + t;
    const double *segments = r->in[3] + b * T;
    if (s < T)
        return segments[s] == segments[own] && s <= own &&
               (attr->mask == MX_MASK_CAUSAL || own - attr->window < s);
    const double *words = r->in[5] + (b * r->in_type[0].shape.dim[1] + t) * ((S - T + 31) / 32);
    return (uint32_t)(int32_t)words[(s - T) / 32] >> (s - T) % 32 & 1u;
}

static void attend(const Reference *r, int64_t b, int64_t n, int64_t t) {
    MxShape q = r->in_type[0].shape, k = r->in_type[1].shape;
    int64_t W = r->in_type[2].shape.dim[3], row = (b * q.dim[1] + t) * q.dim[2] + n;
    Sums sums = {-INFINITY, exp(r->in[4][n]), r->out[0] + row * W};
    for (int64_t h = 0; h < W; h++) sums.out[h] = 0;
    for (int64_t s = 0; s < k.dim[1]; s++) {
        int64_t head = n / (q.dim[2] / k.dim[2]);
        if (sees(r, b, t, s))
            add_key(r, r->in[0] + row * q.dim[3], (b * k.dim[1] + s) * k.dim[2] + head, &sums);
    }
    for (int64_t h = 0; h < W; h++) sums.out[h] /= sums.sum;
    r->out[1][(b * q.dim[2] + n) * q.dim[1] + t] = log(sums.sum);
    r->out[2][(b * q.dim[2] + n) * q.dim[1] + t] = sums.top;
}

static void ref_pooled_attention(const Reference *r) {
    MxShape q = r->in_type[0].shape;
    for (int64_t b = 0; b < q.dim[0]; b++)
        for (int64_t n = 0; n < q.dim[2]; n++)
            for (int64_t t = 0; t < q.dim[1]; t++) attend(r, b, n, t);
}

// clang-format off
const OpTest test_pooled_attention = {
    CASES(
        {"sliding", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 4), "x2,13,4,5 x2,16,1,5 x2,16,1,5 i2,13:segments5 f4:normal2 i2,13,1:bits", NULL, 0},
        {"causal, narrow values, cap", ATTR(MxAttentionAttr, .scale = 0.37, .softcap = 2), "x2,9,4,5 x2,10,2,5 x2,10,2,3 i2,9:segments100 f4 i2,9,1:bits", NULL, 0},
        {"blocks, more rows than words", ATTR(MxAttentionAttr, .scale = 0.3, .mask = MX_MASK_SLIDING, .window = 70), "x1,300,2,16 x1,375,1,16 x1,375,1,16 i1,300:segments170 f2:normal2 i1,300,3:bits", NULL, CASE_NO_SLOPE},
        {"spans behind spans", ATTR(MxAttentionAttr, .scale = 0.3, .mask = MX_MASK_SLIDING, .window = 150), "x1,530,1,8 x1,830,1,8 x1,830,1,8 i1,530:segments1000 f1 i1,530,10:bits", NULL, CASE_NO_SLOPE},
        {"few rows behind many tokens", ATTR(MxAttentionAttr, .scale = 0.3, .mask = MX_MASK_SLIDING, .window = 20), "x2,260,2,8 x2,262,1,8 x2,262,1,8 i2,260:segments90 f2 i2,260,1:bits", NULL, 0},
        {"later queries", ATTR(MxAttentionAttr, .scale = 0.3, .mask = MX_MASK_SLIDING, .window = 20, .is_part = true, .first_query = 30), "x2,50,2,8 x2,103,1,8 x2,103,1,8 i2,80:segments60 f2 i2,50,1:bits", NULL, 0},
        {NULL, ATTR(MxAttentionAttr, .scale = 1), "b2,5,4,6 b2,7,2,6 b2,7,2,6 i2,5 f4 i2,5,1:bits", "b2,5,4,6 f2,4,5 f2,4,5", 0},
        {"of ranks", ATTR(MxAttentionAttr, .scale = 0.5, .mask = MX_MASK_SLIDING, .window = 5), "f8,16,8,4 f8,24,8,4 f8,24,8,4 i8,16:segments9 f8 i8,16,1:bits", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,7,3,6 f2,7,3,6 i2,5 f4 i2,5,1", "heads that divide q's"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,7,2,6 f2,8,2,6 i2,5 f4 i2,5,1", "v must be k's shape"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 b2,7,2,6 f2,7,2,6 i2,5 f4 i2,5,1", "of one dtype"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,7,2,6 f2,7,2,6 i2,6 f4 i2,5,1", "segments must be [B, T]"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,5,2,6 f2,5,2,6 i2,5 f4 i2,5,1", "rows behind those of tokens"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,7,2,6 f2,7,2,6 i2,5 f2 i2,5,1", "sinks must be float32 [N]"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,7,2,6 f2,7,2,6 i2,5 f4 i2,5,2", "seen must be int32"}),
    .reference = ref_pooled_attention,
    .flows = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 4,
};

const OpTest test_pooled_attention_grad = {
    WRONG(
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,7,2,6 f2,7,2,6 i2,5 f4 i2,5,1 f2,5,2,6 f2,4,5 f2,5,4,6", "o and do must be"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,7,2,6 f2,7,2,6 i2,5 f4 i2,5,1 f2,5,4,6 f2,5,4 f2,5,4,6", "log-sums must"}),
    .forward = &op_pooled_attention,
    .saved = 1 << 0 | 1 << 1,
    .wrt = {0, 1, 2, 4},
};
// clang-format on
