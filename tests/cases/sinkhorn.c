/* sinkhorn.c — doubly stochastic matrices. */
#include "cases.h"

#include <math.h>

static const double EPS = 1e-6;

static void divide(double *y, int64_t n, bool rows) {
    for (int64_t k = 0; k < n; k++) {
        double sum = EPS;
        for (int64_t i = 0; i < n; i++) sum += y[rows ? k * n + i : i * n + k];
        for (int64_t i = 0; i < n; i++) y[rows ? k * n + i : i * n + k] /= sum;
    }
}

static void ref_sinkhorn(const Reference *r) {
    int64_t iterations = ((const MxSinkhornAttr *)r->attr)->iterations;
    MxShape x = r->in_type[0].shape;
    int64_t n = x.dim[x.rank - 1];
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++) sum += exp(r->in[0][i / n * n + j]);
        r->out[0][i] = exp(r->in[0][i]) / sum + EPS;
    }
    for (int64_t m = 0; m < element_count(r->in_type[0]); m += n * n)
        for (int64_t k = 0; k < iterations; k++) {
            if (k) divide(r->out[0] + m, n, true);
            divide(r->out[0] + m, n, false);
        }
}

/* The element at place i of permutation k of n: of those that are left, one after the other. */
static int64_t element_at(int64_t n, int64_t k, int64_t i) {
    bool taken[MX_MOST_PERMUTED] = {false};
    int64_t found = 0, behind = 1;
    for (int64_t m = 2; m < n; m++) behind *= m; /* permutations of the places behind the first */
    for (int64_t at = 0; at <= i; at++) {
        int64_t left = k / behind;
        k %= behind;
        if (at < n - 1) behind /= n - 1 - at;
        for (found = 0; taken[found] || left > 0; found++) left -= !taken[found];
        taken[found] = true;
    }
    return found;
}

static void ref_permutations(const Reference *r) {
    const MxPermutationsAttr *a = r->attr;
    const MxType *weights = a->is_back ? r->out_type : r->in_type;
    int64_t n = a->n, n_weights = weights->shape.dim[weights->shape.rank - 1];
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) r->out[0][i] = 0;
    for (int64_t i = 0; i < element_count(*weights) * n; i++) {
        int64_t weight = i / n, row = weight / n_weights;
        int64_t at = row * n * n + i % n * n + element_at(n, weight % n_weights, i % n);
        r->out[0][a->is_back ? weight : at] += r->in[0][a->is_back ? at : weight];
    }
}

// clang-format off
const OpTest test_sinkhorn = {
    CASES(
        {"once", ATTR(MxSinkhornAttr, 1), "f3,5,4,4", NULL, 0},
        {"often", ATTR(MxSinkhornAttr, 20), "f3,5,4,4", NULL, 0},
        {"odd", ATTR(MxSinkhornAttr, 3), "f2,7,7:normal2", NULL, 0},
        {"one element", ATTR(MxSinkhornAttr, 2), "f5,1,1", NULL, CASE_NO_SLOPE},
        {"many", ATTR(MxSinkhornAttr, 20), "f9,301,3,3", NULL, 0},
        {NULL, ATTR(MxSinkhornAttr, 2), "f2,3,3", "f2,3,3", 0},
        {NULL, ATTR(MxSinkhornAttr, 4), "f8,4,4,4", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxSinkhornAttr, 1), "f2,3,4", "x must be square matrices"},
        {ATTR(MxSinkhornAttr, 1), "f3", "x must be square matrices"},
        {ATTR(MxSinkhornAttr, 0), "f2,3,3", "wants at least one iteration"},
        {ATTR(MxSinkhornAttr, 1), "b2,3,3", "input 0 must be float32"}),
    .reference = ref_sinkhorn,
    .flows = 1 << 0,
};

const OpTest test_sinkhorn_grad = {
    WRONG(
        {ATTR(MxSinkhornAttr, 1), "f2,3,3 f2,3,4", "inputs 0 and 1 must have one type"},
        {ATTR(MxSinkhornAttr, 1), "f2,3,4 f2,3,4", "x must be square matrices"}),
    .forward = &op_sinkhorn,
    .wrt = {0},
};

const OpTest test_permutations = {
    CASES(
        {"of three", ATTR(MxPermutationsAttr, .n = 3), "f3,5,6", NULL, 0},
        {"of three, back", ATTR(MxPermutationsAttr, 3, true), "f3,5,3,3", NULL, 0},
        {"of one", ATTR(MxPermutationsAttr, .n = 1), "f3,1", "f3,1,1", 0},
        {"of five", ATTR(MxPermutationsAttr, .n = 5), "f7,120", "f7,5,5", 0},
        {"of five, back", ATTR(MxPermutationsAttr, 5, true), "f7,5,5", "f7,120", 0},
        {"many", ATTR(MxPermutationsAttr, .n = 4), "f9,301,24", NULL, 0},
        {NULL, ATTR(MxPermutationsAttr, .n = 4), "f8,4,24", "f8,4,4,4", CASE_RANKS},
        {"shared, back", ATTR(MxPermutationsAttr, 4, true), "f8,4,4,4", "f8,4,24", CASE_RANKS}),
    WRONG(
        {ATTR(MxPermutationsAttr, .n = 3), "f2,7", "x must be of permutations of 3"},
        {ATTR(MxPermutationsAttr, 3, true), "f2,3,4", "x must be of permutations of 3"},
        {ATTR(MxPermutationsAttr, 3, true), "f3", "x must be of permutations of 3"},
        {ATTR(MxPermutationsAttr, .n = 9), "f2,7", "permutations of 9, wants 1 to 8"},
        {ATTR(MxPermutationsAttr, .n = 0), "f2,7", "permutations of 0, wants 1 to 8"},
        {ATTR(MxPermutationsAttr, .n = 2), "b2,2", "input 0 must be float32"}),
    .reference = ref_permutations,
    .flows = 1 << 0,
};
// clang-format on
