/* chunks.c — the chunks of keys that queries choose. */
#include "cases.h"

#include <math.h>
#include <stdlib.h>

enum { Q, K, POSITIONS, SEQUENCES };

/* The product of a query's head with the mean key of a chunk. */
static double score(const Reference *r, int64_t row, int64_t n, int64_t sequence, int64_t c) {
    MxShape q = r->in_type[Q].shape, k = r->in_type[K].shape;
    int64_t H = q.dim[3], size = ((const MxChunksAttr *)r->attr)->chunk;
    int64_t head = n / (q.dim[2] / k.dim[2]);
    double sum = 0;
    for (int64_t s = c * size; s < (c + 1) * size; s++)
        for (int64_t h = 0; h < H; h++)
            sum += r->in[Q][(row * q.dim[2] + n) * H + h] *
                   r->in[K][((sequence * k.dim[1] + s) * k.dim[2] + head) * H + h];
    return sum / (double)size;
}

/* Whether fewer than n chunks before `own` have larger scores, or equal ones and come before. */
static bool is_among(const double *scores, int64_t own, int64_t n, int64_t c) {
    int64_t before = 0;
    for (int64_t i = 0; i < own; i++)
        before += scores[i] > scores[c] || (i < c && scores[i] == scores[c]);
    return before < n;
}

static void set_bit(double *words, int64_t c) {
    uint32_t word = (uint32_t)(int32_t)words[c / 32] | 1u << c % 32;
    words[c / 32] = (double)(int32_t)word;
}

static void choose(const Reference *r, int64_t row, int64_t n, int64_t sequence, int64_t token) {
    const MxChunksAttr *attr = r->attr;
    int64_t own = token / attr->chunk, words = r->out_type->shape.dim[3];
    double *scores = malloc((size_t)(own + 1) * sizeof *scores);
    double *out = r->out[0] + (row * r->in_type[Q].shape.dim[2] + n) * words;
    for (int64_t c = 0; c < own; c++) scores[c] = score(r, row, n, sequence, c);
    for (int64_t c = 0; c < own; c++)
        if (is_among(scores, own, attr->n_best - 1, c)) set_bit(out, c);
    set_bit(out, own);
    free(scores);
}

static void ref_chunks(const Reference *r) {
    const MxChunksAttr *attr = r->attr;
    MxShape q = r->in_type[Q].shape;
    bool is_cache = r->n_in > POSITIONS;
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) r->out[0][i] = 0;
    for (int64_t row = 0; row < q.dim[0] * q.dim[1]; row++) {
        int64_t b = row / q.dim[1], token = attr->first_query + row % q.dim[1];
        if (is_cache) token = (int64_t)r->in[POSITIONS][row];
        for (int64_t n = 0; n < q.dim[2] && token >= 0; n++)
            choose(r, row, n, is_cache ? (int64_t)r->in[SEQUENCES][b] : b, token);
    }
}

// clang-format off
const OpTest test_chunks = {
    CASES(
        {"some", ATTR(MxChunksAttr, .chunk = 4, .n_best = 3), "x2,31,4,6 x2,31,2,6", NULL, 0},
        {"its own alone", ATTR(MxChunksAttr, .chunk = 5, .n_best = 1), "x2,21,2,6 x2,21,1,6", NULL, 0},
        {"no more than there are", ATTR(MxChunksAttr, .chunk = 7, .n_best = 9), "x1,30,2,6 x1,30,2,6", NULL, 0},
        {"a chunk that is longer", ATTR(MxChunksAttr, .chunk = 64, .n_best = 2), "x1,30,2,6 x1,30,2,6", NULL, 0},
        {"two words", ATTR(MxChunksAttr, .chunk = 2, .n_best = 7), "x1,150,3,33 x1,150,1,33", NULL, 0},
        {"later queries", ATTR(MxChunksAttr, .chunk = 4, .n_best = 3, .is_part = true, .first_query = 13), "x2,9,4,6 x2,31,2,6", NULL, 0},
        {NULL, ATTR(MxChunksAttr, .chunk = 3, .n_best = 2), "b2,9,4,6 b2,9,2,6", "i2,9,4,1", 0},
        {NULL, ATTR(MxChunksAttr, .chunk = 1, .n_best = 2), "f2,33,4,6 f2,33,2,6", "i2,33,4,2", 0},
        {NULL, ATTR(MxChunksAttr, .chunk = 3, .n_best = 3), "f8,16,8,4 f8,16,8,4", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxChunksAttr, .chunk = 3), "f2,9,4,6 f2,9,2,6", "at least one chunk of at least one key"},
        {ATTR(MxChunksAttr, .n_best = 3), "f2,9,4,6 f2,9,2,6", "at least one chunk of at least one key"},
        {ATTR(MxChunksAttr, .chunk = 3, .n_best = 3), "f2,9,4,6 f2,9,3,6", "heads that divide those of q"},
        {ATTR(MxChunksAttr, .chunk = 3, .n_best = 3), "f2,9,4,6 f2,9,2,5", "heads that divide those of q"},
        {ATTR(MxChunksAttr, .chunk = 3, .n_best = 3), "f2,9,4,6 b2,9,2,6", "input 1 must be float32"},
        {ATTR(MxChunksAttr, .chunk = 3, .n_best = 3), "i2,9,4,6 i2,9,2,6", "input 0 must be float32 or bfloat16"},
        {ATTR(MxChunksAttr, .chunk = 3, .n_best = 3), "f2,9,4,6 f2,8,2,6", "the tokens of k, or a part of them"},
        {ATTR(MxChunksAttr, .chunk = 3, .n_best = 3, .is_part = true, .first_query = 3), "f2,9,4,6 f2,11,2,6", "the tokens of k, or a part of them"}),
    .reference = ref_chunks,
};

const OpTest test_cache_chunks = {
    CASES(
        {"a token", ATTR(MxChunksAttr, .chunk = 4, .n_best = 3), "x3,1,4,6 x3,40,2,6 i3,1:value35 i3:positions3", NULL, 0},
        {"some, padding", ATTR(MxChunksAttr, .chunk = 3, .n_best = 4), "x2,9,3,5 x4,40,1,5 i2,9:none38 i2:positions4", NULL, 0},
        {"a stretch", ATTR(MxChunksAttr, .chunk = 16, .n_best = 5), "x1,40,4,33 x2,300,2,33 i1,40:from200 i1:value1", NULL, 0},
        {NULL, ATTR(MxChunksAttr, .chunk = 4, .n_best = 4), "b2,3,4,6 b2,40,1,6 i2,3 i2:positions2", "i2,3,4,1", 0},
        {NULL, ATTR(MxChunksAttr, .chunk = 3, .n_best = 3), "f8,4,8,4 f8,16,8,4 i8,4:ids16 i8:positions8", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxChunksAttr, .chunk = 3), "f2,5,4,6 f2,9,1,6 i2,5 i2", "at least one chunk of at least one key"},
        {ATTR(MxChunksAttr, .chunk = 3, .n_best = 2), "f2,5,4,6 f2,9,3,6 i2,5 i2", "heads that divide those of q"},
        {ATTR(MxChunksAttr, .chunk = 3, .n_best = 2), "f2,5,4,6 f2,9,1,6 i2,5 i3", "positions must be [B, T], sequences [B]"}),
    .reference = ref_chunks,
};
// clang-format on
