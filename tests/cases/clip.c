/* clip.c — the largest of rows, and heads that are made smaller. */
#include "cases.h"

#include <math.h>

static void ref_largest(const Reference *r) {
    int64_t rows = element_count(r->out_type[0]), n = element_count(r->in_type[0]) / rows;
    for (int64_t row = 0; row < rows; row++) {
        r->out[0][row] = -INFINITY;
        for (int64_t i = 0; i < n; i++)
            r->out[0][row] = fmax(r->out[0][row], r->in[0][row * n + i]);
    }
}

static void ref_clip_heads(const Reference *r) {
    const MxClipHeadsAttr *attr = r->attr;
    MxShape w = r->in_type[0].shape;
    int64_t heads = w.dim[w.rank - 2], width = w.dim[w.rank - 1];
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++) {
        double top = -INFINITY, share = 1;
        for (int64_t k = i / width % heads; k < element_count(r->in_type[1]); k += heads)
            top = fmax(top, r->in[1][k]);
        if (top > 0) share = fmin(1, attr->threshold / (top + 1e-6));
        double rest = attr->keeps_rest ? 1 : share;
        r->out[0][i] = r->in[0][i] * (i % width < attr->n_root ? sqrt(share) : rest);
    }
}

// clang-format off
const OpTest test_largest = {
    CASES(
        {"rows", NULL, "f3,5,41", NULL, 0},
        {"rows of one", NULL, "f7,1", NULL, 0},
        {"one row", NULL, "f70001", NULL, 0},
        {"many rows", NULL, "f3001,29", NULL, 0},
        {NULL, NULL, "f3,5,7", "f3,5", 0},
        {NULL, NULL, "f8,16,4", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "f", "x must have a last dim of at least 1"},
        {NULL, "f3,0", "x must have a last dim of at least 1"},
        {NULL, "b3,4", "input 0 must be float32"}),
    .reference = ref_largest,
};

const OpTest test_clip_heads = {
    CASES(
        {"queries", ATTR(MxClipHeadsAttr, .threshold = 0.5, .n_root = 5), "f7,4,9 f3,4", NULL, 0},
        {"keys and values", ATTR(MxClipHeadsAttr, .threshold = 0.5, .n_root = 5, .keeps_rest = true), "f7,4,9 f3,4", NULL, 0},
        {"no score is above 0", ATTR(MxClipHeadsAttr, .threshold = 0.5, .n_root = 5), "f7,4,9 f4:logp3", NULL, 0},
        {"all by the root", ATTR(MxClipHeadsAttr, .threshold = 0.01, .n_root = 3), "f2,3,2,3 f2,2,2:square2", NULL, 0},
        {"many", ATTR(MxClipHeadsAttr, .threshold = 1, .n_root = 16), "f311,8,40 f29,8", NULL, 0},
        {NULL, ATTR(MxClipHeadsAttr, .threshold = 1), "f5,4,6 f2,4", "f5,4,6", 0},
        {NULL, ATTR(MxClipHeadsAttr, .threshold = 0.5, .n_root = 2), "f8,16,8 f4,16", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxClipHeadsAttr, .threshold = 1), "f5,4,6 f2,6", "the last dim of tops must be w's heads"},
        {ATTR(MxClipHeadsAttr, .threshold = 1), "f6 f6", "the last dim of tops must be w's heads"},
        {ATTR(MxClipHeadsAttr, .threshold = 1, .n_root = 7), "f5,4,6 f2,4", "a head has no 7 elements"},
        {ATTR(MxClipHeadsAttr, .threshold = 1), "b5,4,6 f2,4", "input 0 must be float32"}),
    .reference = ref_clip_heads,
};
// clang-format on
