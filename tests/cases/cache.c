/* cache.c — caches of keys and values, and attention over them. */
#include "cases.h"

#include <math.h>

static void ref_cache_write(const Reference *r) {
    int64_t slots = r->in_type[0].shape.dim[1], T = r->in_type[1].shape.dim[1];
    int64_t rows = r->in_type[1].shape.dim[0] * T, n = element_count(r->out_type[0]);
    int64_t width = rows ? element_count(r->in_type[1]) / rows : 0;
    for (int64_t i = 0; i < n; i++) r->out[0][i] = r->in[0][i];
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = (int64_t)r->in[2][row];
        if (at < 0) continue;
        for (int64_t i = 0; i < width; i++)
            r->out[0][(row / T * slots + at % slots) * width + i] = r->in[1][row * width + i];
    }
}

static bool sees(const MxAttentionAttr *attr, int64_t t, int64_t s) {
    if (attr->mask == MX_MASK_SLIDING && s <= t - attr->window) return false;
    if (attr->mask == MX_MASK_CHUNK && s / attr->window != t / attr->window) return false;
    return attr->mask == MX_MASK_FULL || s <= t;
}

/* The position that a slot holds of n: the last one that was put there; -1 = none. */
static int64_t held(int64_t slot, int64_t slots, int64_t n) {
    int64_t position = -1;
    for (int64_t p = slot; p < n; p += slots) position = p;
    return position;
}

static void attend(const Reference *r, int64_t row, int64_t n) {
    const MxAttentionAttr *attr = r->attr;
    MxShape q = r->in_type[0].shape, k = r->in_type[1].shape;
    int64_t b = row / q.dim[1], H = q.dim[3], W = r->in_type[2].shape.dim[3];
    int64_t head = n / (q.dim[2] / k.dim[2]), own = (int64_t)r->in[3][row];
    double *out = r->out[0] + (row * q.dim[2] + n) * W;
    double sum = r->n_in > op_cache_attention.arity ? exp(r->in[5][n]) : 0;
    for (int64_t w = 0; w < W; w++) out[w] = 0;
    for (int64_t slot = 0; slot < k.dim[1] && own >= 0; slot++) {
        int64_t p = held(slot, k.dim[1], (int64_t)r->in[4][b]),
                at = (b * k.dim[1] + slot) * k.dim[2];
        if (p < 0 || !sees(attr, own, p)) continue;
        double score = 0;
        for (int64_t h = 0; h < H; h++)
            score += r->in[0][(row * q.dim[2] + n) * H + h] * r->in[1][(at + head) * H + h];
        score *= attr->scale;
        if (attr->softcap > 0) score = attr->softcap * tanh(score / attr->softcap);
        sum += exp(score);
        for (int64_t w = 0; w < W; w++) out[w] += exp(score) * r->in[2][(at + head) * W + w];
    }
    for (int64_t w = 0; w < W && sum > 0; w++) out[w] /= sum;
}

static void ref_cache_attention(const Reference *r) {
    MxShape q = r->in_type[0].shape;
    for (int64_t row = 0; row < q.dim[0] * q.dim[1]; row++)
        for (int64_t n = 0; n < q.dim[2]; n++) attend(r, row, n);
}

// clang-format off
const OpTest test_cache_write = {
    CASES(
        {"rows", NULL, "x3,7,2,5 x3,4,2,5 i3,4:positions100", NULL, 0},
        {"some left out, slots used again", NULL, "x3,7,5 x3,9,5 i3,9:none30", NULL, 0},
        {"one position of all", NULL, "x5,3 x5,1 i5,1:value8", NULL, 0},
        {"large", NULL, "x4,300,2,64 x4,200,2,64 i4,200:positions1000", NULL, 0},
        {NULL, NULL, "b2,5,4,6 b2,3,4,6 i2,3", "b2,5,4,6", 0},
        {NULL, NULL, "f8,5,8,4 f8,3,8,4 i8,3:none9", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "i2,5,4 i2,3,4 i2,3", "input 0 must be float32 or bfloat16"},
        {NULL, "f2,5,4 b2,3,4 i2,3", "input 1 must be float32 of rank 3"},
        {NULL, "f2,5,4 f2,3,5 i2,3", "rows must be those of the cache"},
        {NULL, "f2,5,4 f1,3,4 i1,3", "rows must be those of the cache"},
        {NULL, "f2 f2 i2,3", "a cache is [B, C, ..]"},
        {NULL, "f2,0,4 f2,3,4 i2,3", "a cache is [B, C, ..]"},
        {NULL, "f2,5,4 f2,3,4 i2,4", "positions must be [B, T]"},
        {NULL, "f2,5,4 f2,3,4 f2,3", "input 2 must be int32 of rank 2"}),
    .reference = ref_cache_write,
};

const OpTest test_cache_attention = {
    CASES(
        {"causal", ATTR(MxAttentionAttr, .scale = 0.37), "x2,9,2,4 x2,12,2,4 x2,12,2,4 i2,9:positions100 i2:value9", NULL, 0},
        {"a token, groups of 4", ATTR(MxAttentionAttr, .scale = 0.37), "x3,1,4,5 x3,12,1,5 x3,12,1,5 i3,1:value6 i3:value7", NULL, 0},
        {"lengths of their own, padding", ATTR(MxAttentionAttr, .scale = 0.37), "x5,6,2,5 x5,12,1,5 x5,12,1,5 i5,6:none9 i5:ids9", NULL, 0},
        {"sliding, slots used again", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 5), "x3,4,4,3 x3,8,2,3 x3,8,2,3 i3,4:ids20 i3:value20", NULL, 0},
        {"sliding, all of a window", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 5), "x3,1,4,3 x3,5,2,3 x3,5,2,3 i3,1:value18 i3:value19", NULL, 0},
        {"chunks, cap", ATTR(MxAttentionAttr, .scale = 0.37, .softcap = 1.5, .mask = MX_MASK_CHUNK, .window = 5), "x2,9,2,3 x2,14,1,3 x2,14,1,3 i2,9:positions20 i2:value9", NULL, 0},
        {"full", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_FULL), "x2,3,2,3 x2,9,2,3 x2,9,2,3 i2,3:positions9 i2:value7", NULL, 0},
        {"sinks, narrow values", ATTR(MxAttentionAttr, .scale = 0.37), "x2,5,4,9 x2,13,2,9 x2,13,2,3 i2,5:none5 i2:ids6 f4:normal2", NULL, 0},
        {"sinks far away, wide values", ATTR(MxAttentionAttr, .scale = 0.37), "x2,5,4,3 x2,13,2,3 x2,13,2,21 i2,5:positions9 i2:value5 f4:normal20", NULL, 0},
        {"nothing there yet", ATTR(MxAttentionAttr, .scale = 0.37), "x2,2,2,3 x2,4,2,3 x2,4,2,3 i2,2:positions9 i2:value0", NULL, 0},
        {"blocks", ATTR(MxAttentionAttr, .scale = 0.37), "x2,70,4,40 x2,300,2,40 x2,300,2,40 i2,70:ids300 i2:value290", NULL, 0},
        {"blocks, sliding", ATTR(MxAttentionAttr, .scale = 0.37, .mask = MX_MASK_SLIDING, .window = 150), "x2,33,4,16 x2,190,2,16 x2,190,2,16 i2,33:ids500 i2:value500", NULL, 0},
        {"a token, far apart", ATTR(MxAttentionAttr, .scale = 3.0), "x1,1,4,16 x1,300,2,16 x1,300,2,16 i1,1:value299 i1:value300", NULL, 0},
        {NULL, ATTR(MxAttentionAttr, .scale = 1), "b2,5,4,6 b2,9,2,6 b2,9,2,7 i2,5 i2", "b2,5,4,7", 0},
        {NULL, ATTR(MxAttentionAttr, .scale = 0.5), "f8,4,8,4 f8,16,8,4 f8,16,8,4 i8,4:positions9 i8:value4", NULL, CASE_RANKS},
        {NULL, ATTR(MxAttentionAttr, .scale = 0.5), "f8,4,8,4 f8,16,4,4 f8,16,4,2 i8,4:none9 i8:ids9 f8", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,9,3,6 f2,9,3,6 i2,5 i2", "heads that divide q's"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,0,2,6 f2,0,2,6 i2,5 i2", "heads that divide q's"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f1,9,2,6 f1,9,2,6 i2,5 i2", "k must have q's sequences"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,9,2,6 f2,8,2,6 i2,5 i2", "v must be k's shape but for its own width"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 b2,9,2,6 b2,9,2,6 i2,5 i2", "of its dtype"},
        {ATTR(MxAttentionAttr, .scale = 1), "f5,4,6 f5,2,6 f5,2,6 i2,5 i2", "q must be [B, T, N, H]"},
        {ATTR(MxAttentionAttr, .scale = 1), "i2,5,4,6 i2,9,2,6 i2,9,2,6 i2,5 i2", "input 0 must be float32 or bfloat16"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,9,2,6 f2,9,2,6 i2,4 i2", "positions must be [B, T]"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,9,2,6 f2,9,2,6 i2,5 i3", "counts [B]"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,9,2,6 f2,9,2,6 f2,5 i2", "input 3 must be int32 of rank 2"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,9,2,6 f2,9,2,6 i2,5 i2,1", "input 4 must be int32 of rank 1"},
        {ATTR(MxAttentionAttr, .scale = 1), "f2,5,4,6 f2,9,2,6 f2,9,2,6 i2,5 i2 f2", "sinks must be float32 [N]"}),
    .reference = ref_cache_attention,
};
// clang-format on
