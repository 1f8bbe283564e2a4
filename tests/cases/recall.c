/* recall.c — rows that n-grams name, and how they match. */
#include "cases.h"

#include <math.h>

static const int32_t sizes[] = {11, 13, 17, 19, 23, 29}, factors[] = {7, 1003, 31};
static const int32_t canon[] = {4, 0, 3, 3, 1, 2, 5, 4, 6, 7, 8, 0};

/* Two lengths of three heads, and one of two. */
static const MxNgrams wide = {.longest = 3,
                              .n_heads = 3,
                              .sizes = sizes,
                              .factors = factors,
                              .canon = canon,
                              .n_canon = 12,
                              .before = 3};
static const MxNgrams pairs = {.longest = 2,
                               .n_heads = 2,
                               .sizes = sizes,
                               .factors = factors,
                               .canon = canon,
                               .n_canon = 12,
                               .before = 0};

static int64_t id_of(const MxNgrams *of, const double *tokens, int64_t at, int64_t slots) {
    if (at < 0) return of->before;
    int64_t token = (int64_t)tokens[at % slots];
    return of->canon[token < of->n_canon ? token : of->n_canon - 1];
}

/* Of one token, at a place of the row or cache that its tokens are in. */
static void name(const MxNgrams *of, const double *tokens, int64_t at, int64_t slots, double *out) {
    int64_t first = 0;
    for (int n = 2; n <= of->longest; n++)
        for (int h = 0; h < of->n_heads; h++) {
            int64_t mixed = 0, size = of->sizes[(n - 2) * of->n_heads + h];
            for (int k = 0; k < n; k++) mixed ^= id_of(of, tokens, at - k, slots) * of->factors[k];
            *out++ = (double)(first + mixed % size);
            first += size;
        }
}

static void ref_ngrams(const Reference *r) {
    MxShape out = r->out_type[0].shape;
    for (int64_t i = 0; i < out.dim[0] * out.dim[1]; i++)
        name(((const MxNgramAttr *)r->attr)->of, r->in[0] + i / out.dim[1] * out.dim[1],
             i % out.dim[1], out.dim[1], r->out[0] + i * out.dim[2]);
}

static void ref_cache_ngrams(const Reference *r) {
    MxShape out = r->out_type[0].shape;
    int64_t slots = r->in_type[0].shape.dim[1];
    for (int64_t i = 0; i < out.dim[0] * out.dim[1]; i++) {
        const double *tokens = r->in[0] + (int64_t)r->in[2][i / out.dim[1]] * slots;
        int64_t at = (int64_t)r->in[1][i];
        double *to = r->out[0] + i * out.dim[2];
        for (int64_t h = 0; h < out.dim[2]; h++) to[h] = 0;
        if (at >= 0) name(((const MxNgramAttr *)r->attr)->of, tokens, at, slots, to);
    }
}

static void ref_match(const Reference *r) {
    MxShape q = r->in_type[0].shape;
    int64_t width = q.dim[q.rank - 1];
    for (int64_t row = 0; row < element_count(r->out_type[0]); row++) {
        double s = 0;
        for (int64_t i = row * width; i < (row + 1) * width; i++) s += r->in[0][i] * r->in[1][i];
        s *= ((const MxMatchAttr *)r->attr)->scale;
        double root = sqrt(fmax(fabs(s), 1e-6)) * (s > 0 ? 1 : s < 0 ? -1 : 0);
        r->out[0][row] = 1 / (1 + exp(-root));
    }
}

// clang-format off
const OpTest test_ngrams = {
    CASES(
        {"three heads", ATTR(MxNgramAttr, &wide), "i3,19:ids14", NULL, 0},
        {"pairs, many tokens", ATTR(MxNgramAttr, &pairs), "i9,301:ids12", NULL, 0},
        {"a long row, for several threads", ATTR(MxNgramAttr, &wide), "i1,12001:ids14", NULL, 0},
        {"one token", ATTR(MxNgramAttr, &wide), "i2,1:ids12", "i2,1,6", 0},
        {NULL, ATTR(MxNgramAttr, &wide), "i8,4:ids12", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxNgramAttr, &wide), "f2,3", "input 0 must be int32 of rank 2"},
        {ATTR(MxNgramAttr, &wide), "i3", "input 0 must be int32 of rank 2"}),
    .reference = ref_ngrams,
};

const OpTest test_cache_ngrams = {
    CASES(
        {"three heads", ATTR(MxNgramAttr, &wide), "i3,19:ids14 i3,5:positions100 i3:positions3", NULL, 0},
        {"slots used again", ATTR(MxNgramAttr, &pairs), "i3,7:ids12 i3,5:positions100 i3:positions3", NULL, 0},
        {"padding", ATTR(MxNgramAttr, &wide), "i2,12:ids12 i2,5:none12 i2:positions2", NULL, 0},
        {"a long piece, for several threads", ATTR(MxNgramAttr, &wide), "i1,40:ids12 i1,12001:positions100 i1:positions1", NULL, 0},
        {"a token of the last sequence", ATTR(MxNgramAttr, &wide), "i4,4:ids12 i1,1:value2 i1:value3", NULL, 0},
        {NULL, ATTR(MxNgramAttr, &wide), "i8,8:ids12 i8,4:positions99 i8:positions8", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxNgramAttr, &wide), "f2,3 i2,3 i2", "input 0 must be int32 of rank 2"},
        {ATTR(MxNgramAttr, &wide), "i2,0 i2,3 i2", "a cache must be [S, C]"},
        {ATTR(MxNgramAttr, &wide), "i2,5 i2,3 i3", "positions must be [B, T], sequences [B]"},
        {ATTR(MxNgramAttr, &wide), "i2,5 f2,3 i2", "input 1 must be int32 of rank 2"},
        {ATTR(MxNgramAttr, &wide), "i2,5 i2,3 i2,3", "input 2 must be int32 of rank 1"}),
    .reference = ref_cache_ngrams,
};

const OpTest test_match = {
    CASES(
        {"rows", ATTR(MxMatchAttr, 0.125), "x2,7,3,65:square0.5 x2,7,3,65:square0.5", NULL, 0}, /* away from 0, where the root has no slope */
        {"one row", ATTR(MxMatchAttr, 2), "x37 x37", "f", CASE_NO_SLOPE},
        {"long rows", ATTR(MxMatchAttr, 0.03), "x3,1301 x3,1301", NULL, 0},
        {"many rows", ATTR(MxMatchAttr, 0.2), "x9,301,4,16:square0.5 x9,301,4,16:square0.5", NULL, 0},
        {NULL, ATTR(MxMatchAttr, 0.3), "f8,4,16 f8,4,16", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxMatchAttr, 1), "f2,3 f2,4", "inputs 0 and 1 must have one type"},
        {ATTR(MxMatchAttr, 1), "f f", "q must have a last dim"},
        {ATTR(MxMatchAttr, 1), "i2,3 i2,3", "input 0 must be float32 or bfloat16"}),
    .reference = ref_match,
    .flows = 1 << 0 | 1 << 1,
};

const OpTest test_match_grad = {
    WRONG(
        {ATTR(MxMatchAttr, 1), "f2,3 f2,4 f2", "inputs 0 and 1 must have one type"},
        {ATTR(MxMatchAttr, 1), "f2,3 f2,3 f3", "dy must be float32 of q's leading dims"},
        {ATTR(MxMatchAttr, 1), "b2,3 b2,3 b2", "dy must be float32 of q's leading dims"}),
    .forward = &op_match,
    .wrt = {0, 1},
};
// clang-format on
