/* index.c — the keys that an index chooses, and its loss. */
#include "cases.h"

#include <math.h>
#include <stdlib.h>

enum { INDEX_Q, INDEX_K, INDEX_W, SEGMENTS, Q, K, CHOSEN };

/* Of query t of sequence b with key `s` of `keys`, which a row of them has `step` apart. */
static double score(const Reference *r, int64_t b, int64_t t, const double *key) {
    MxShape q = r->in_type[INDEX_Q].shape;
    int64_t N = q.dim[2], H = q.dim[3], row = b * q.dim[1] + t;
    double sum = 0;
    for (int64_t n = 0; n < N; n++) {
        double product = 0;
        for (int64_t h = 0; h < H; h++) product += r->in[INDEX_Q][(row * N + n) * H + h] * key[h];
        sum += r->in[INDEX_W][row * N + n] * fmax(product, 0);
    }
    return sum;
}

/* Whether fewer than n_best of the first `n` scores are larger, or equal and before. */
static bool is_chosen(const MxIndexAttr *attr, const double *scores, int64_t n, int64_t s) {
    int64_t before = 0;
    for (int64_t i = 0; i < n; i++)
        before += scores[i] > scores[s] || (!attr->keeps_ties && i < s && scores[i] == scores[s]);
    return before < attr->n_best;
}

static void set_bit(double *words, int64_t s) {
    uint32_t word = (uint32_t)(int32_t)words[s / 32] | 1u << s % 32;
    words[s / 32] = (double)(int32_t)word;
}

/* Whether query `own` of a row of segments may choose key s. */
static bool may_choose(const MxIndexAttr *attr, const double *segments, int64_t own, int64_t s) {
    if (!attr->ratio) return s <= own && segments[s] == segments[own];
    return (s + 1) * attr->ratio <= own + 1 &&
           is_window_of(segments, attr->ratio, s, segments[own]);
}

static void ref_index(const Reference *r) {
    const MxIndexAttr *attr = r->attr;
    MxShape q = r->in_type[INDEX_Q].shape, k = r->in_type[INDEX_K].shape, out = r->out_type->shape;
    double *scores = malloc((size_t)(k.dim[1] + 1) * sizeof *scores);
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) r->out[0][i] = 0;
    for (int64_t row = 0; row < q.dim[0] * q.dim[1]; row++) {
        int64_t b = row / q.dim[1], t = row % q.dim[1], own = attr->first_query + t;
        const double *segments = r->in[SEGMENTS] + b * r->in_type[SEGMENTS].shape.dim[1];
        for (int64_t s = 0; s < k.dim[1]; s++)
            scores[s] = may_choose(attr, segments, own, s)
                            ? score(r, b, t, r->in[INDEX_K] + (b * k.dim[1] + s) * k.dim[2])
                            : -INFINITY;
        for (int64_t s = 0; s < k.dim[1]; s++)
            if (may_choose(attr, segments, own, s) && is_chosen(attr, scores, k.dim[1], s))
                set_bit(r->out[0] + row * out.dim[2], s);
    }
    free(scores);
}

static void ref_cache_index(const Reference *r) {
    const MxIndexAttr *attr = r->attr;
    MxShape q = r->in_type[INDEX_Q].shape, k = r->in_type[INDEX_K].shape, out = r->out_type->shape;
    double *scores = malloc((size_t)k.dim[1] * sizeof *scores);
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) r->out[0][i] = 0;
    for (int64_t row = 0; row < q.dim[0] * q.dim[1]; row++) {
        int64_t b = row / q.dim[1], t = row % q.dim[1], own = (int64_t)r->in[SEGMENTS][row];
        int64_t first = (int64_t)r->in[SEGMENTS + 1][b] * k.dim[1];
        for (int64_t s = 0; s <= own; s++)
            scores[s] = score(r, b, t, r->in[INDEX_K] + (first + s) * k.dim[3]);
        for (int64_t s = 0; s <= own; s++)
            if (is_chosen(attr, scores, own + 1, s)) set_bit(r->out[0] + row * out.dim[2], s);
    }
    free(scores);
}

/* ---- the loss */

static bool is_seen(const Reference *r, int64_t b, int64_t t, int64_t s) {
    const MxIndexLossAttr *attr = r->attr;
    int64_t keys = r->in_type[INDEX_K].shape.dim[1], own = attr->first_query + t;
    const double *segments = r->in[SEGMENTS] + b * keys;
    if (s > own || segments[s] != segments[own]) return false;
    if (r->n_in == CHOSEN) return true;
    MxShape chosen = r->in_type[CHOSEN].shape;
    double word = r->in[CHOSEN][(b * chosen.dim[1] + t) * chosen.dim[2] + s / 32];
    return (uint32_t)(int32_t)word >> s % 32 & 1u;
}

static double product_of_head(const Reference *r, const int64_t b_t_s[3], int64_t head) {
    MxShape q = r->in_type[Q].shape, k = r->in_type[K].shape;
    int64_t key_head = head / (q.dim[2] / k.dim[2]);
    const double *x = r->in[Q] + ((b_t_s[0] * q.dim[1] + b_t_s[1]) * q.dim[2] + head) * q.dim[3];
    const double *y =
        r->in[K] + ((b_t_s[0] * k.dim[1] + b_t_s[2]) * k.dim[2] + key_head) * k.dim[3];
    double sum = 0;
    for (int64_t h = 0; h < q.dim[3]; h++) sum += x[h] * y[h];
    return sum * ((const MxIndexLossAttr *)r->attr)->scale;
}

/* Test scores are small: no maximum is needed. */
static double divergence(const Reference *r, int64_t b, int64_t t, double *wanted, double *made) {
    const double tiny = 1e-8;
    MxShape q = r->in_type[Q].shape, k = r->in_type[INDEX_K].shape;
    double sum = 0, all = 0, result = 0;
    for (int64_t s = 0; s < k.dim[1]; s++) {
        bool seen = is_seen(r, b, t, s);
        wanted[s] = 0;
        made[s] = seen ? exp(score(r, b, t, r->in[INDEX_K] + (b * k.dim[1] + s) * k.dim[2])) : 0;
        sum += made[s];
    }
    for (int64_t head = 0; head < q.dim[2]; head++) {
        double total = 0;
        for (int64_t s = 0; s < k.dim[1]; s++)
            if (is_seen(r, b, t, s)) total += exp(product_of_head(r, (int64_t[]){b, t, s}, head));
        for (int64_t s = 0; s < k.dim[1]; s++)
            if (is_seen(r, b, t, s))
                wanted[s] += exp(product_of_head(r, (int64_t[]){b, t, s}, head)) / total;
    }
    for (int64_t s = 0; s < k.dim[1]; s++) all += wanted[s];
    for (int64_t s = 0; s < k.dim[1]; s++) {
        double p = wanted[s] / (all + tiny);
        result += p * (log(p + tiny) - log(made[s] / sum + tiny));
    }
    return result;
}

static void ref_index_loss(const Reference *r) {
    MxShape q = r->in_type[Q].shape, k = r->in_type[INDEX_K].shape;
    double *rows = malloc((size_t)(2 * k.dim[1]) * sizeof *rows);
    r->out[0][0] = 0;
    for (int64_t row = 0; row < q.dim[0] * q.dim[1]; row++)
        r->out[0][0] += ((const MxIndexLossAttr *)r->attr)->factor *
                        divergence(r, row / q.dim[1], row % q.dim[1], rows, rows + k.dim[1]);
    free(rows);
}

// clang-format off
const OpTest test_index = {
    CASES(
        {"a few of some", ATTR(MxIndexAttr, .n_best = 3), "x2,13,4,6 x2,13,6 f2,13,4 i2,13:segments100", NULL, 0},
        {"segments, some of no more", ATTR(MxIndexAttr, .n_best = 5), "x2,40,3,5 x2,40,5 f2,40,3 i2,40:segments17", NULL, 0},
        {"one, the best", ATTR(MxIndexAttr, .n_best = 1), "x1,35,2,8 x1,35,8 f1,35,2 i1,35:segments100", NULL, 0},
        {"all of one head are 0, the first", ATTR(MxIndexAttr, .n_best = 4), "x1,20,1,1:value1 x1,20,1:value-1 f1,20,1 i1,20:segments100", NULL, 0},
        {"all alike, with ties", ATTR(MxIndexAttr, .n_best = 4, .keeps_ties = true), "x1,20,2,3:value1 x1,20,3:value1 f1,20,2:value0.5 i1,20:segments100", NULL, 0},
        {"all alike, the first", ATTR(MxIndexAttr, .n_best = 4), "x1,20,2,3:value1 x1,20,3:value1 f1,20,2:value-0.5 i1,20:segments100", NULL, 0},
        {"blocks", ATTR(MxIndexAttr, .n_best = 40), "x2,203,9,33 x2,203,33 f2,203,9 i2,203:segments150", NULL, 0},
        {"many heads", ATTR(MxIndexAttr, .n_best = 7), "x1,70,300,4 x1,70,4 f1,70,300 i1,70:segments100", NULL, 0},
        {"later queries", ATTR(MxIndexAttr, .n_best = 4, .is_part = true, .first_query = 5), "x2,6,4,6 x2,18,6 f2,6,4 i2,18:segments11", NULL, 0},
        {"windows", ATTR(MxIndexAttr, .n_best = 3, .ratio = 3), "x2,40,4,6 x2,13,6 f2,40,4 i2,40:segments100", NULL, 0},
        {"windows, segments", ATTR(MxIndexAttr, .n_best = 2, .ratio = 4), "x3,50,3,5 x3,12,5 f3,50,3 i3,50:segments21", NULL, 0},
        {"windows of one token, with ties", ATTR(MxIndexAttr, .n_best = 4, .keeps_ties = true, .ratio = 1), "x1,20,2,3:value1 x1,20,3:value1 f1,20,2:value0.5 i1,20:segments9", NULL, 0},
        {"windows, blocks", ATTR(MxIndexAttr, .n_best = 40, .ratio = 2), "x2,303,9,33 x2,151,33 f2,303,9 i2,303:segments250", NULL, 0},
        {"windows, later queries", ATTR(MxIndexAttr, .n_best = 2, .is_part = true, .first_query = 5, .ratio = 2), "x2,9,4,6 x2,9,6 f2,9,4 i2,18:segments11", NULL, 0},
        {NULL, ATTR(MxIndexAttr, .n_best = 4), "b2,40,4,6 b2,40,6 f2,40,4 i2,40", "i2,40,2", 0},
        {NULL, ATTR(MxIndexAttr, .n_best = 4, .ratio = 4), "b2,40,4,6 b2,10,6 f2,40,4 i2,40", "i2,40,1", 0},
        {NULL, ATTR(MxIndexAttr, .n_best = 3), "f8,16,4,4 f8,16,4 f8,16,4 i8,16:segments9", NULL, CASE_RANKS},
        {"windows of ranks", ATTR(MxIndexAttr, .n_best = 2, .ratio = 2), "f8,16,4,4 f8,8,4 f8,16,4 i8,16:segments9", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxIndexAttr, .n_best = 0), "f2,5,4,6 f2,5,6 f2,5,4 i2,5", "must see at least one key"},
        {ATTR(MxIndexAttr, .n_best = 1), "f2,5,4,6 f2,5,7 f2,5,4 i2,5", "an index must have q"},
        {ATTR(MxIndexAttr, .n_best = 1), "f2,5,4,6 f2,6,6 f2,5,4 i2,6", "an index must have q"},
        {ATTR(MxIndexAttr, .n_best = 1, .is_part = true, .first_query = 2), "f2,5,4,6 f2,6,6 f2,5,4 i2,6", "an index must have q"},
        {ATTR(MxIndexAttr, .n_best = 1), "f2,5,4,6 b2,5,6 f2,5,4 i2,5", "input 1 must be float32 of rank 3"},
        {ATTR(MxIndexAttr, .n_best = 1), "f2,5,4,6 f2,5,6 f2,5,3 i2,5", "w must be float32 [B, T, N]"},
        {ATTR(MxIndexAttr, .n_best = 1), "f2,5,4,6 f2,5,6 b2,5,4 i2,5", "input 2 must be float32 of rank 3"},
        {ATTR(MxIndexAttr, .n_best = 1), "f2,5,4,6 f2,5,6 f2,5,4 i2,4", "segments must be [B, T]"},
        {ATTR(MxIndexAttr, .n_best = 1, .ratio = 2), "f2,5,4,6 f3,2,6 f2,5,4 i2,5", "segments must be [B, T]"},
        {ATTR(MxIndexAttr, .n_best = 1, .ratio = 2), "f2,5,4,6 f2,2,6 f2,5,4 i2,4", "an index must have q"},
        {ATTR(MxIndexAttr, .n_best = 1, .ratio = 2), "f2,5,4,6 f2,3,6 f2,5,4 i2,5", "a row for each window of 2"},
        {ATTR(MxIndexAttr, .n_best = 1, .ratio = 6), "f2,5,4,6 f2,0,6 f2,5,4 i2,5", "a row for each window of 6"}),
    .reference = ref_index,
};

const OpTest test_cache_index = {
    CASES(
        {"a token", ATTR(MxIndexAttr, .n_best = 3), "x3,1,4,6 x3,20,1,6 f3,1,4 i3,1:value15 i3:positions3", NULL, 0},
        {"some, padding", ATTR(MxIndexAttr, .n_best = 4), "x2,9,3,5 x4,40,1,5 f2,9,3 i2,9:none38 i2:positions4", NULL, 0},
        {"no more than are seen", ATTR(MxIndexAttr, .n_best = 30), "x2,5,3,5 x2,40,1,5 f2,5,3 i2,5:from20 i2:positions2", NULL, 0},
        {"blocks", ATTR(MxIndexAttr, .n_best = 50), "x1,40,9,33 x2,300,1,33 f1,40,9 i1,40:from200 i1:value1", NULL, 0},
        {NULL, ATTR(MxIndexAttr, .n_best = 4), "b2,3,4,6 b2,40,1,6 f2,3,4 i2,3 i2:positions2", "i2,3,2", 0},
        {NULL, ATTR(MxIndexAttr, .n_best = 3), "f8,4,4,4 f8,16,1,4 f8,4,4 i8,4:ids16 i8:positions8", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxIndexAttr, .n_best = 0), "f2,5,4,6 f2,9,1,6 f2,5,4 i2,5 i2", "must see at least one key"},
        {ATTR(MxIndexAttr, .n_best = 1, .ratio = 2), "f2,5,4,6 f2,9,1,6 f2,5,4 i2,5 i2", "no ratio"},
        {ATTR(MxIndexAttr, .n_best = 1), "f2,5,4,6 f2,9,2,6 f2,5,4 i2,5 i2", "a cache of keys [S, C, 1, H]"},
        {ATTR(MxIndexAttr, .n_best = 1), "f2,5,4,6 f2,9,1,5 f2,5,4 i2,5 i2", "a cache of keys [S, C, 1, H]"},
        {ATTR(MxIndexAttr, .n_best = 1), "f2,5,4,6 f2,9,1,6 f2,4,4 i2,5 i2", "w must be float32 [B, T, N]"},
        {ATTR(MxIndexAttr, .n_best = 1), "f2,5,4,6 f2,9,1,6 f2,5,4 i2,5 i3", "positions must be [B, T], sequences [B]"}),
    .reference = ref_cache_index,
};

/* What is below 0 counts nothing: there are kinks within reach of differences of float32 runs. */
const OpTest test_index_loss = {
    CASES(
        {"all", ATTR(MxIndexLossAttr, .factor = 0.3, .scale = 0.4), "x2,9,3,5 x2,9,5 f2,9,3 i2,9:segments100 x2,9,4,6 x2,9,4,6", NULL, CASE_NO_SLOPE},
        {"segments, shared keys", ATTR(MxIndexLossAttr, .factor = 0.1, .scale = 0.4), "x2,40,3,5 x2,40,5 f2,40,3 i2,40:segments17 x2,40,4,6 x2,40,2,6", NULL, CASE_NO_SLOPE},
        {"of those chosen", ATTR(MxIndexLossAttr, .factor = 0.2, .scale = 0.4), "x2,40,3,5 x2,40,5 f2,40,3 i2,40:segments30 x2,40,2,6 x2,40,2,6 i2,40,2:bits", NULL, CASE_NO_SLOPE},
        {"blocks", ATTR(MxIndexLossAttr, .factor = 0.01, .scale = 0.2), "x1,70,3,20 x1,70,20:normal0.2 f1,70,3 i1,70:segments60 x1,70,2,24 x1,70,1,24", NULL, CASE_NO_SLOPE},
        {"more than the rows of a piece", ATTR(MxIndexLossAttr, .factor = 0.002, .scale = 0.2), "x1,520,2,3 x1,520,3 f1,520,2 i1,520:segments530 x1,520,1,4 x1,520,1,4", NULL, CASE_NO_SLOPE},
        {"later queries", ATTR(MxIndexLossAttr, .factor = 0.3, .scale = 0.4, .is_part = true, .first_query = 5), "x2,6,3,5 x2,18,5 f2,6,3 i2,18:segments11 x2,6,2,6 x2,18,2,6", NULL, CASE_NO_SLOPE},
        {NULL, ATTR(MxIndexLossAttr, .factor = 1, .scale = 1), "b2,40,4,6 b2,40,6 f2,40,4 i2,40 b2,40,4,6 b2,40,4,6 i2,40,2:bits", "f", 0},
        {"of ranks", ATTR(MxIndexLossAttr, .factor = 0.1, .scale = 0.4), "f8,16,4,4 f8,16,4 f8,16,4 i8,16:segments9 f8,16,8,4 f8,16,8,4", NULL, CASE_RANKS | CASE_NO_SLOPE},
        {"of ranks, those chosen", ATTR(MxIndexLossAttr, .factor = 0.1, .scale = 0.4), "f8,16,4,4 f8,16,4 f8,16,4 i8,16:segments9 f8,16,8,4 f8,16,8,4 i8,16,1:bits", NULL, CASE_RANKS | CASE_NO_SLOPE}),
    WRONG(
        {ATTR(MxIndexLossAttr, .scale = 1), "f2,5,4,6 f2,5,7 f2,5,4 i2,5 f2,5,4,6 f2,5,4,6", "an index must have q"},
        {ATTR(MxIndexLossAttr, .scale = 1), "f2,5,4,6 f2,5,6 f2,5,4 i2,5 b2,5,4,6 f2,5,4,6", "input 4 must be float32 of rank 4"},
        {ATTR(MxIndexLossAttr, .scale = 1), "f2,5,4,6 f2,5,6 f2,5,4 i2,5 f2,5,4,6 f2,5,3,6", "over the same tokens"},
        {ATTR(MxIndexLossAttr, .scale = 1), "f2,5,4,6 f2,5,6 f2,5,4 i2,5 f2,4,4,6 f2,5,4,6", "over the same tokens"},
        {ATTR(MxIndexLossAttr, .scale = 1), "f2,5,4,6 f2,5,6 f2,5,4 i2,5 f2,5,4,6 f2,5,4,6 i2,5,2", "chosen must be int32"}),
    .reference = ref_index_loss,
    .flows = 1 << 0 | 1 << 1 | 1 << 2,
};

const OpTest test_index_loss_grad = {
    WRONG(
        {ATTR(MxIndexLossAttr, .scale = 1), "f2,5,4,6 f2,5,6 f2,5,4 i2,5 f2,5,4,6 f2,5,3,6 f", "over the same tokens"},
        {ATTR(MxIndexLossAttr, .scale = 1), "f2,5,4,6 f2,5,6 f2,5,4 i2,5 f2,5,4,6 f2,5,4,6 f2", "input 6 must be float32 of rank 0"}),
    .forward = &op_index_loss,
    .wrt = {0, 1, 2},
};
// clang-format on
