/* dropout.c — columns that are left out, and indices that are drawn, by chance. */
#include "cases.h"

#include <math.h>

/* Element e of the sequence of the step that is input 2. */
static double word(const Reference *r, uint64_t seed, uint64_t stream, uint64_t e) {
    uint32_t words[4];
    mx_philox(seed, stream, (uint64_t)r->in[2][0], words);
    mx_philox((uint64_t)words[1] << 32 | words[0], stream, e / 4, words);
    return words[e % 4];
}

static void ref_dropout(const Reference *r) {
    const MxDropoutAttr *a = r->attr;
    MxShape x = r->in_type[0].shape;
    int64_t width = x.dim[x.rank - 1], n = element_count(r->in_type[0]), each = n / x.dim[0];
    for (int64_t i = 0; i < n; i++) {
        uint64_t row = (uint64_t)r->in[1][i / each];
        uint64_t e = row * (uint64_t)a->width + (uint64_t)(a->first + i % width);
        bool is_left_out = word(r, a->seed, a->stream, e) < a->rate * 4294967296.0;
        r->out[0][i] = is_left_out ? 0 : r->in[0][i] / (1 - a->rate);
    }
}

#define DROP(...) ATTR(MxDropoutAttr, .seed = 0x1234567890, .stream = 3, __VA_ARGS__)

// clang-format off
const OpTest test_dropout = {
    CASES(
        {"a third", DROP(.rate = 0.3, .width = 37), "x3,5,37 i3:ids9 i:ids100", NULL, 0},
        {"half, large", DROP(.rate = 0.5, .width = 1030), "x5,41,1030 i5:ids900 i:ids100000", NULL, 0},
        {"nothing", DROP(.rate = 0, .width = 6), "x2,3,6 i2 i", NULL, 0},
        {"all", DROP(.rate = 1, .width = 6), "x2,3,6 i2 i", NULL, CASE_NO_SLOPE},
        {"nothing between", DROP(.rate = 0.5, .width = 301), "x7,301 i7:ids70 i:ids9", NULL, 0},
        {"heads", DROP(.rate = 0.5, .width = 5), "x2,3,4,5 i2:ids7 i:ids9", NULL, 0},
        {"a part", DROP(.rate = 0.5, .width = 40, .first = 7), "x2,3,19 i2:ids7 i:ids9", NULL, 0},
        {NULL, DROP(.rate = 0.5, .width = 6), "b2,3,6 i2 i", "b2,3,6", 0},
        {NULL, DROP(.rate = 0.3, .width = 16), "f8,4,16 i8:ids70 i:ids9", NULL, CASE_RANKS},
        {NULL, DROP(.rate = 0.3, .width = 16), "b8,4,16 i8:ids70 i:ids9", NULL, CASE_RANKS}),
    WRONG(
        {DROP(.rate = 0.5, .width = 6), "f2,3,6 i3 i", "rows must have x's first dim"},
        {DROP(.rate = 0.5, .width = 6), "f6 i6 i", "rows must have x's first dim"},
        {DROP(.rate = 0.5, .width = 6), "f2,3,6 f2 i", "input 1 must be int32 of rank 1"},
        {DROP(.rate = 0.5, .width = 6), "f2,3,6 i2 i1", "input 2 must be int32 of rank 0"},
        {DROP(.rate = 0.5, .width = 6, .first = 1), "f2,3,6 i2 i", "x is no part of rows of 6"},
        {DROP(.rate = 1.5, .width = 6), "f2,3,6 i2 i", "a rate of 1.5 is not within 0 and 1"}),
    .reference = ref_dropout,
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
