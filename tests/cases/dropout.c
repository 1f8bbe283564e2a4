/* dropout.c — elements and columns that are left out, noise, and indices that are drawn, by chance.
 */
#include "cases.h"

#include <math.h>

/* Element e of the sequence of the step that is input 2. */
static double word(const Reference *r, uint64_t seed, uint64_t stream, uint64_t e) {
    uint32_t words[4];
    mx_philox(seed, stream, (uint64_t)r->in[2][0], words);
    mx_philox((uint64_t)words[1] << 32 | words[0], stream, e / 4, words);
    return words[e % 4];
}

/* Of element i of x: its word, as a share of all that words can be. */
static double share_of(const Reference *r, const MxRandomAttr *a, int64_t i) {
    MxShape x = r->in_type[0].shape;
    int64_t at[MX_MAX_RANK] = {0};
    for (int d = x.rank - 1; d >= 0; i /= x.dim[d--]) at[d] = i % x.dim[d];
    uint64_t e = (uint64_t)r->in[1][at[0]];
    for (int d = 1; d < x.rank; d++)
        if (d == x.rank - 1 || !a->by_column)
            e = e * (uint64_t)a->whole.dim[d] + (uint64_t)(a->first[d] + at[d]);
    return word(r, a->seed, a->stream, e) / 4294967296.0;
}

static void ref_dropout(const Reference *r) {
    const MxRandomAttr *a = r->attr;
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++)
        r->out[0][i] = share_of(r, a, i) < a->amount ? 0 : r->in[0][i] / (1 - a->amount);
}

#define DROP(rate, ...)                                                                            \
    ATTR(MxRandomAttr, .amount = rate, .seed = 0x1234567890, .stream = 3, .whole = __VA_ARGS__)
#define WHOLE(n, ...)                                                                              \
    {                                                                                              \
        .rank = n, .dim = { __VA_ARGS__ }                                                          \
    }
#define COLUMNS .by_column = true

// clang-format off
const OpTest test_dropout = {
    CASES(
        {"a third", DROP(0.3, WHOLE(3, 9, 5, 37)), "x3,5,37 i3:ids9 i:ids100", NULL, 0},
        {"half, large", DROP(0.5, WHOLE(3, 5, 41, 1030)), "x5,41,1030 i5:ids900 i:ids100000", NULL, 0},
        {"heads", DROP(0.5, WHOLE(4, 2, 3, 4, 5)), "x2,3,4,5 i2:ids7 i:ids9", NULL, 0},
        {"a part", DROP(0.5, WHOLE(4, 2, 9, 4, 40), .first = {0, 5, 2, 7}), "x2,3,2,19 i2:ids7 i:ids9", NULL, 0},
        {"columns, a third", DROP(0.3, WHOLE(3, 9, 5, 37), COLUMNS), "x3,5,37 i3:ids9 i:ids100", NULL, 0},
        {"columns, half, large", DROP(0.5, WHOLE(3, 5, 41, 1030), COLUMNS), "x5,41,1030 i5:ids900 i:ids100000", NULL, 0},
        {"nothing", DROP(0, WHOLE(3, 2, 3, 6), COLUMNS), "x2,3,6 i2 i", NULL, 0},
        {"all", DROP(1, WHOLE(3, 2, 3, 6), COLUMNS), "x2,3,6 i2 i", NULL, CASE_NO_SLOPE},
        {"nothing between", DROP(0.5, WHOLE(2, 70, 301)), "x7,301 i7:ids70 i:ids9", NULL, 0},
        {"columns, heads", DROP(0.5, WHOLE(4, 2, 3, 4, 5), COLUMNS), "x2,3,4,5 i2:ids7 i:ids9", NULL, 0},
        {"columns, a part", DROP(0.5, WHOLE(3, 2, 9, 40), COLUMNS, .first = {0, 4, 7}), "x2,3,19 i2:ids7 i:ids9", NULL, 0},
        {NULL, DROP(0.5, WHOLE(3, 2, 3, 6)), "b2,3,6 i2 i", "b2,3,6", 0},
        {NULL, DROP(0.3, WHOLE(3, 8, 4, 16)), "f8,4,16 i8:ids70 i:ids9", NULL, CASE_RANKS},
        {NULL, DROP(0.3, WHOLE(4, 8, 4, 2, 16)), "b8,4,2,16 i8:ids70 i:ids9", NULL, CASE_RANKS},
        {NULL, DROP(0.3, WHOLE(3, 8, 4, 16), COLUMNS), "f8,4,16 i8:ids70 i:ids9", NULL, CASE_RANKS},
        {NULL, DROP(0.3, WHOLE(3, 8, 4, 16), COLUMNS), "b8,4,16 i8:ids70 i:ids9", NULL, CASE_RANKS}),
    WRONG(
        {DROP(0.5, WHOLE(3, 2, 3, 6)), "f2,3,6 i3 i", "rows must have x's first dim"},
        {DROP(0.5, WHOLE(1, 6)), "f6 i6 i", "rows must have x's first dim"},
        {DROP(0.5, WHOLE(3, 2, 3, 6)), "f2,3,6 f2 i", "input 1 must be int32 of rank 1"},
        {DROP(0.5, WHOLE(3, 2, 3, 6)), "f2,3,6 i2 i1", "input 2 must be int32 of rank 0"},
        {DROP(0.5, WHOLE(2, 2, 6)), "f2,3,6 i2 i", "x is no part of the whole"},
        {DROP(0.5, WHOLE(3, 2, 3, 6), .first = {0, 0, 1}), "f2,3,6 i2 i", "x is no part of the whole"},
        {DROP(1.5, WHOLE(3, 2, 3, 6)), "f2,3,6 i2 i", "a rate of 1.5 is not within 0 and 1"}),
    .reference = ref_dropout,
    .flows = 1 << 0,
};
// clang-format on

/* Of 2^23 numbers, each in the middle of its interval. */
static void ref_noise(const Reference *r) {
    const MxRandomAttr *a = r->attr;
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++) {
        double u = (floor(share_of(r, a, i) * 8388608) + 0.5) / 8388608;
        r->out[0][i] = r->in[0][i] + a->amount * (2 * u - 1);
    }
}

// clang-format off
const OpTest test_noise = {
    CASES(
        {"a third", DROP(0.3, WHOLE(3, 9, 5, 37)), "x3,5,37 i3:ids9 i:ids100", NULL, 0},
        {"large", DROP(5, WHOLE(3, 5, 41, 1030)), "x5,41,1030 i5:ids900 i:ids100000", NULL, 0},
        {"a part", DROP(0.5, WHOLE(4, 2, 9, 4, 40), .first = {0, 5, 2, 7}), "x2,3,2,19 i2:ids7 i:ids9", NULL, 0},
        {"columns", DROP(2, WHOLE(3, 2, 3, 37), COLUMNS), "x2,3,37 i2:ids7 i:ids9", NULL, 0},
        {"none", DROP(0, WHOLE(2, 2, 6)), "x2,6 i2 i", NULL, 0},
        {NULL, DROP(2, WHOLE(3, 8, 4, 16)), "f8,4,16 i8:ids70 i:ids9", NULL, CASE_RANKS}),
    WRONG(
        {DROP(0.5, WHOLE(3, 2, 3, 6)), "f2,3,6 i3 i", "rows must have x's first dim"},
        {DROP(-1, WHOLE(3, 2, 3, 6)), "f2,3,6 i2 i", "a range of -1 is below 0"}),
    .reference = ref_noise,
    .flows = 1 << 0,
};
// clang-format on

static void ref_draw_ids(const Reference *r) {
    const MxDrawIdsAttr *a = r->attr;
    MxShape x = r->in_type[0].shape;
    int64_t each = x.dim[1] * a->k;
    for (int64_t i = 0; i < x.dim[0] * each; i++) {
        int64_t at = ((int64_t)r->in[1][i / each] * a->length + a->first) * a->k + i % each;
        double share = word(r, a->seed, a->stream, (uint64_t)at) / 4294967296.0;
        r->out[0][i] = floor(share * (double)x.dim[2]);
    }
}

#define DRAW(...) ATTR(MxDrawIdsAttr, .seed = 0x9876543210, .stream = 5, __VA_ARGS__)

// clang-format off
const OpTest test_draw_ids = {
    CASES(
        {"three of seven", DRAW(.k = 3, .length = 5), "f3,5,7 i3:ids9 i:ids100", NULL, 0},
        {"more than there are", DRAW(.k = 5, .length = 3), "f2,3,2 i2:ids7 i:ids9", NULL, 0},
        {"of one", DRAW(.k = 2, .length = 3), "f2,3,1 i2 i", NULL, 0},
        {"many", DRAW(.k = 8, .length = 301), "f7,301,64 i7:ids900 i:ids100000", NULL, 0},
        {"a part", DRAW(.k = 3, .length = 40, .first = 7), "f2,19,6 i2:ids7 i:ids9", NULL, 0},
        {NULL, DRAW(.k = 3, .length = 16), "f8,16,4 i8:ids70 i:ids9", NULL, CASE_RANKS}),
    WRONG(
        {DRAW(.k = 1, .length = 3), "f2,3,6 i3 i", "rows must have x's first dim"},
        {DRAW(.k = 1, .length = 3), "f2,3 i2 i", "input 0 must be float32 of rank 3"},
        {DRAW(.k = 1, .length = 3), "f2,3,6 i2 i1", "input 2 must be int32 of rank 0"},
        {DRAW(.k = 1, .length = 3, .first = 1), "f2,3,6 i2 i", "x is no part of rows of 3"},
        {DRAW(.k = 0, .length = 3), "f2,3,6 i2 i", "cannot draw 0 of 6"},
        {DRAW(.k = 1, .length = 3), "f2,3,0 i2 i", "cannot draw 1 of 0"}),
    .reference = ref_draw_ids,
};
// clang-format on
