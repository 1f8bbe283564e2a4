/* route.c — routing to experts. */
#include "cases.h"

#include <math.h>

static int64_t last_dim(MxType type) {
    return type.shape.dim[type.shape.rank - 1];
}

static void ref_softmax(const Reference *r) {
    int64_t n = last_dim(r->in_type[0]);
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++) sum += exp(r->in[0][i / n * n + j]);
        r->out[0][i] = exp(r->in[0][i]) / sum;
    }
}

static void ref_softmax_grad(const Reference *r) {
    int64_t n = last_dim(r->in_type[0]);
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++) {
        double sum = 0;
        for (int64_t j = i / n * n; j < i / n * n + n; j++) sum += r->in[0][j] * r->in[1][j];
        r->out[0][i] = r->in[0][i] * (r->in[1][i] - sum);
    }
}

static void ref_share(const Reference *r) {
    int64_t n = last_dim(r->in_type[0]);
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++) {
        double sum = 1e-20;
        for (int64_t j = 0; j < n; j++) sum += r->in[0][i / n * n + j];
        r->out[0][i] = r->in[0][i] / sum;
    }
}

enum { MOST_GROUPS = 8 };

/* Which groups have the largest sums of two elements; without groups the only one. */
static void best_groups(const double *x, const MxTopKAttr *a, int64_t each,
                        bool is_best[MOST_GROUPS]) {
    double most[MOST_GROUPS];
    is_best[0] = true;
    for (int64_t g = 0; g < a->n_groups; g++) {
        most[g] = -INFINITY;
        for (int64_t i = g * each; i < (g + 1) * each; i++)
            for (int64_t j = g * each; j < i; j++) most[g] = fmax(most[g], x[i] + x[j]);
    }
    for (int64_t g = 0; g < a->n_groups; g++) {
        int64_t before = 0;
        for (int64_t h = 0; h < a->n_groups; h++)
            before += most[h] > most[g] || (most[h] == most[g] && h < g);
        is_best[g] = before < a->n_best;
    }
}

/* An element's place is the number of those that come before it. */
static void ref_top_k(const Reference *r) {
    const MxTopKAttr *a = r->attr;
    int64_t n = last_dim(r->in_type[0]), k = last_dim(r->out_type[0]);
    int64_t each = a->n_groups ? n / a->n_groups : n;
    bool is_best[MOST_GROUPS];
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++) {
        int64_t row = i / n, before = 0;
        const double *x = r->in[0] + row * n;
        if (i % n == 0) best_groups(x, a, each, is_best);
        if (!is_best[i % n / each]) continue;
        for (int64_t j = 0; j < n; j++)
            before += (x[j] > x[i % n] || (x[j] == x[i % n] && j < i % n)) && is_best[j / each];
        if (before < k) r->out[0][row * k + before] = (double)(i % n);
    }
}

static void ref_count_ids(const Reference *r) {
    for (int64_t e = 0; e < element_count(r->out_type[0]); e++) {
        r->out[0][e] = 0;
        for (int64_t i = 0; i < element_count(r->in_type[0]); i++)
            r->out[0][e] += r->in[0][i] == (double)e;
    }
}

static void ref_even_out(const Reference *r) {
    double rate = ((const MxEvenOutAttr *)r->attr)->rate, mean = 0;
    int64_t n = element_count(r->in_type[0]);
    for (int64_t i = 0; i < n; i++) mean += r->in[1][i];
    for (int64_t i = 0; i < n; i++) {
        double under = mean / (double)n - r->in[1][i];
        r->out[0][i] = r->in[0][i] + (under > 0 ? rate : under < 0 ? -rate : 0);
    }
}

static void ref_pick(const Reference *r) {
    int64_t n = last_dim(r->in_type[0]), k = last_dim(r->in_type[1]);
    for (int64_t i = 0; i < element_count(r->in_type[1]); i++)
        r->out[0][i] = r->in[0][i / k * n + (int64_t)r->in[1][i]];
}

static void ref_pick_grad(const Reference *r) {
    int64_t n = last_dim(r->out_type[0]), k = last_dim(r->in_type[0]);
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) r->out[0][i] = 0;
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++)
        r->out[0][i / k * n + (int64_t)r->in[0][i]] += r->in[1][i];
}

static void ref_combine(const Reference *r) {
    MxShape x = r->in_type[0].shape;
    int64_t width = last_dim(r->in_type[0]), choices = x.dim[x.rank - 2];
    int64_t sums = r->in_type[1].shape.rank == x.rank ? last_dim(r->in_type[1]) : 1;
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) {
        int64_t row = i / width / sums, m = i / width % sums;
        r->out[0][i] = 0;
        for (int64_t c = row * choices; c < (row + 1) * choices; c++)
            r->out[0][i] += r->in[1][c * sums + m] * r->in[0][c * width + i % width];
    }
}

static double share_of(const double *ids, int64_t n, int64_t expert) {
    double count = 0;
    for (int64_t i = 0; i < n; i++) count += ids[i] == (double)expert;
    return count;
}

static void ref_balance(const Reference *r) {
    const MxBalanceAttr *a = r->attr;
    MxShape p = r->in_type[0].shape;
    int64_t T = p.dim[1], X = p.dim[2], C = last_dim(r->in_type[1]);
    r->out[0][0] = 0;
    for (int64_t b = 0; b < p.dim[0]; b++)
        for (int64_t e = 0; e < X; e++) {
            double mean = 0, share = share_of(r->in[1] + b * T * C, T * C, e) / (double)T;
            for (int64_t t = 0; t < T; t++) mean += r->in[0][(b * T + t) * X + e] / (double)T;
            r->out[0][0] += a->factor * share * mean;
        }
}

static void ref_balance_grad(const Reference *r) {
    const MxBalanceAttr *a = r->attr;
    MxShape ids = r->in_type[0].shape;
    int64_t T = ids.dim[1], X = a->n_experts, C = ids.dim[2];
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) {
        const double *row = r->in[0] + i / (T * X) * T * C;
        double share = share_of(row, T * C, i % X) / (double)T;
        r->out[0][i] = r->in[1][0] * a->factor * share / (double)T;
    }
}

// clang-format off
const OpTest test_softmax = {
    CASES(
        {"rows", NULL, "f3,5,7:normal2", NULL, 0},
        {"large", NULL, "f301,129", NULL, 0},
        {NULL, NULL, "f3,1500", NULL, CASE_NO_SLOPE},
        {"one element", NULL, "f5,1", NULL, CASE_NO_SLOPE},
        {NULL, NULL, "f2,3", "f2,3", 0},
        {NULL, NULL, "f8,4,8", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "f", "input 0 must have a last dim"},
        {NULL, "b2,3", "input 0 must be float32"}),
    .reference = ref_softmax,
    .flows = 1 << 0,
};

const OpTest test_softmax_grad = {
    CASES(
        {"rows", NULL, "f3,5,7 f3,5,7", NULL, 0},
        {"large", NULL, "f301,129:normal0.1 f301,129", NULL, 0},
        {NULL, NULL, "f2,3 f2,3", "f2,3", 0},
        {NULL, NULL, "f8,4,8 f8,4,8", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "f2,3 f2,4", "inputs 0 and 1 must have one type"}),
    .reference = ref_softmax_grad,
};

const OpTest test_share = {
    CASES(
        {"rows", NULL, "f3,5,7:square1", NULL, 0},
        {"large", NULL, "f301,129:square1", NULL, 0},
        {NULL, NULL, "f3,1500:square1", NULL, CASE_NO_SLOPE},
        {"one element", NULL, "f5,1:square1", NULL, CASE_NO_SLOPE},
        {NULL, NULL, "f2,3:square1", "f2,3", 0},
        {NULL, NULL, "f8,4,8:square1", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "f", "input 0 must have a last dim"},
        {NULL, "b2,3", "input 0 must be float32"}),
    .reference = ref_share,
    .flows = 1 << 0,
};

const OpTest test_share_grad = {
    WRONG(
        {NULL, "f2,3 f2,4", "inputs 0 and 1 must have one type"}),
    .forward = &op_share,
    .wrt = {0},
};

const OpTest test_count_ids = {
    CASES(
        {"ids", ATTR(MxCountIdsAttr, 7), "i3,5,2:ids7", NULL, 0},
        {"some do not occur", ATTR(MxCountIdsAttr, 129), "i31,2:ids7", NULL, 0},
        {"none", ATTR(MxCountIdsAttr, 3), "i2,5,2:none3", NULL, 0},
        {NULL, ATTR(MxCountIdsAttr, 4), "i2,3", "f4", 0},
        {NULL, ATTR(MxCountIdsAttr, 4), "i8,4,2:ids4", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxCountIdsAttr, 4), "f2,3", "input 0 must be int32"}),
    .reference = ref_count_ids,
};

const OpTest test_even_out = {
    CASES(
        {"counts", ATTR(MxEvenOutAttr, 0.01), "f33 f33:square1", NULL, 0},
        {"even ones", ATTR(MxEvenOutAttr, 0.01), "f33 f33:value8", NULL, 0},
        {NULL, ATTR(MxEvenOutAttr, 0.01), "f3 f3", "f3", 0},
        {NULL, ATTR(MxEvenOutAttr, 0.01), "f8 f8:square1", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxEvenOutAttr, 0.01), "f3 f4", "inputs 0 and 1 must have one type"},
        {ATTR(MxEvenOutAttr, 0.01), "f3,2 f3,2", "input 0 must be float32 of rank 1"}),
    .reference = ref_even_out,
};

const OpTest test_top_k = {
    CASES(
        {"groups", ATTR(MxTopKAttr, 3, 4, 2), "f3,5,12", NULL, 0},
        {"all groups", ATTR(MxTopKAttr, 3, 4, 4), "f3,5,12", NULL, 0},
        {"all of a group", ATTR(MxTopKAttr, 4, 3, 1), "f7,12", NULL, 0},
        {"equal groups", ATTR(MxTopKAttr, 5, 3, 2), "f5,12:value0.5", NULL, 0},
        {"large groups", ATTR(MxTopKAttr, 8, 8, 4), "f151,64", NULL, 0},
        {NULL, ATTR(MxTopKAttr, 2, 2, 1), "f8,4,8", NULL, CASE_RANKS},
        {"rows", ATTR(MxTopKAttr, .k = 3), "f3,5,7", NULL, 0},
        {"all", ATTR(MxTopKAttr, .k = 7), "f5,7", NULL, 0},
        {"equal ones", ATTR(MxTopKAttr, .k = 3), "f5,7:value0.5", NULL, 0},
        {"large", ATTR(MxTopKAttr, .k = 8), "f1501,129", NULL, 0},
        {NULL, ATTR(MxTopKAttr, .k = 8), "f3,1500", NULL, CASE_NO_SLOPE},
        {NULL, ATTR(MxTopKAttr, .k = 2), "f2,3", "i2,2", 0},
        {NULL, ATTR(MxTopKAttr, .k = 2), "f8,4,8", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxTopKAttr, .k = 4), "f2,3", "cannot take the 4 largest of 3"},
        {ATTR(MxTopKAttr, .k = 0), "f2,3", "cannot take the 0 largest of 3"},
        {ATTR(MxTopKAttr, 3, 4, 1), "f2,8", "cannot take the 3 largest of 2"},
        {ATTR(MxTopKAttr, 1, 3, 1), "f2,8", "8 elements are not 3 groups of two or more"},
        {ATTR(MxTopKAttr, 1, 8, 1), "f2,8", "8 elements are not 8 groups of two or more"},
        {ATTR(MxTopKAttr, 1, 4, 5), "f2,8", "cannot take the 5 best of 4 groups"},
        {ATTR(MxTopKAttr, .k = 1), "f", "input 0 must have a last dim"},
        {ATTR(MxTopKAttr, .k = 1), "i2,3", "input 0 must be float32"}),
    .reference = ref_top_k,
};

const OpTest test_pick = {
    CASES(
        {"rows", NULL, "f3,5,7 i3,5,2:ids7", NULL, 0},
        {"more than there are", NULL, "f5,3 i5,9:ids3", NULL, 0},
        {"large", NULL, "f1501,129 i1501,8:ids129", NULL, 0},
        {NULL, NULL, "f2,3 i2,2", "f2,2", 0},
        {NULL, NULL, "f8,4,8 i8,4,2:ids8", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "f2,3 i3,2", "inputs 0 and 1 must differ in the last dim alone"},
        {NULL, "f2,3 i2", "inputs 0 and 1 must differ in the last dim alone"},
        {NULL, "b2,3 i2,2", "input 0 must be float32"},
        {NULL, "f2,3 f2,2", "input 1 must be int32"}),
    .reference = ref_pick,
    .flows = 1 << 0,
};

const OpTest test_pick_grad = {
    CASES(
        {"rows", ATTR(MxPickGradAttr, 7), "i3,5,2:ids7 f3,5,2", NULL, 0},
        {"large", ATTR(MxPickGradAttr, 129), "i1501,8:ids129 f1501,8", NULL, 0},
        {NULL, ATTR(MxPickGradAttr, 7), "i2,2 f2,2", "f2,7", 0},
        {NULL, ATTR(MxPickGradAttr, 8), "i8,4,2:ids8 f8,4,2", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxPickGradAttr, 7), "i2,2 f2,3", "dy must have the shape of the ids"},
        {ATTR(MxPickGradAttr, 7), "i2,2 b2,2", "input 1 must be float32"}),
    .reference = ref_pick_grad,
};

const OpTest test_combine = {
    CASES(
        {"rows", NULL, "x3,5,2,7 f3,5,2", NULL, 0},
        {"one choice", NULL, "x5,1,7 f5,1", NULL, 0},
        {"large, wide", NULL, "x31,3,2051 f31,3", NULL, 0},
        {NULL, NULL, "x7,3,2112 f7,3", NULL, CASE_NO_SLOPE},
        {NULL, NULL, "x7,3,2112 f7,3,2", NULL, CASE_NO_SLOPE},
        {"several sums", NULL, "x3,5,2,7 f3,5,2,3", NULL, 0},
        {"several sums of one", NULL, "x5,1,7 f5,1,4", NULL, 0},
        {"several sums, large, wide", NULL, "x31,3,2051 f31,3,5", NULL, 0},
        {NULL, NULL, "b2,3,4 f2,3", "b2,4", 0},
        {NULL, NULL, "b2,3,4 f2,3,5", "b2,5,4", 0},
        {NULL, NULL, "f8,4,2,16 f8,4,2", NULL, CASE_RANKS},
        {"several sums, shared", NULL, "f8,4,2,16 f8,4,2,4", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "f2,3,4 f2,4", "weights must have x's dims but the last"},
        {NULL, "f2,3,4 f2", "weights must have x's dims but the last"},
        {NULL, "f2,3,4 f2,4,3", "weights must have x's dims but the last"},
        {NULL, "f2,3,4 b2,3", "input 1 must be float32"},
        {NULL, "i2,3,4 f2,3", "input 0 must be float32 or bfloat16"}),
    .reference = ref_combine,
    .flows = 1 << 0 | 1 << 1,
};

const OpTest test_combine_grad = {
    WRONG(
        {NULL, "f2,3,4 f2,3 f2,3", "dy must be of the result's type"},
        {NULL, "f2,3,4 f2,3 b2,4", "dy must be of the result's type"},
        {NULL, "f2,3,4 f2,3,5 f2,4", "dy must be of the result's type"},
        {NULL, "f2,3,4 f2,4 f2,4", "weights must have x's dims but the last"}),
    .forward = &op_combine,
    .wrt = {0, 1},
};

const OpTest test_balance = {
    CASES(
        {"rows", ATTR(MxBalanceAttr, 0.7, 4), "f3,5,4:square1 i3,5,2:ids4", NULL, 0},
        {"large", ATTR(MxBalanceAttr, 0.01, 129), "f9,301,129:square1 i9,301,8:ids129", NULL, 0},
        {NULL, ATTR(MxBalanceAttr, 1, 4), "f2,3,4 i2,3,2", "f", 0},
        {NULL, ATTR(MxBalanceAttr, 1, 4), "f8,4,4:square1 i8,4,2:ids4", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxBalanceAttr, 1, 4), "f2,3,4 i2,4,2", "inputs 0 and 1 must differ in the last dim alone"},
        {ATTR(MxBalanceAttr, 1, 4), "f3,4 i3,2", "input 0 must be float32 of rank 3"},
        {ATTR(MxBalanceAttr, 1, 4), "f2,3,4 f2,3,2", "input 1 must be int32 of rank 3"}),
    .reference = ref_balance,
    .flows = 1 << 0,
};

const OpTest test_balance_grad = {
    CASES(
        {"rows", ATTR(MxBalanceAttr, 0.7, 4), "i3,5,2:ids4 f:value0.3", NULL, 0},
        {"large", ATTR(MxBalanceAttr, 0.7, 129), "i9,301,8:ids129 f:value300", NULL, 0},
        {NULL, ATTR(MxBalanceAttr, 1, 4), "i2,3,2 f", "f2,3,4", 0},
        {NULL, ATTR(MxBalanceAttr, 1, 4), "i8,4,2:ids4 f:value0.3", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxBalanceAttr, 1, 4), "i3,2 f", "input 0 must be int32 of rank 3"},
        {ATTR(MxBalanceAttr, 1, 4), "i2,3,2 f1", "input 1 must be float32 of rank 0"}),
    .reference = ref_balance_grad,
};
// clang-format on
