/* state.c — initial values and norms. */
#include "cases.h"

#include <math.h>

static void ref_sum_squares(const Reference *r) {
    r->out[0][0] = 0;
    for (int j = 0; j < r->n_in; j++)
        for (int64_t i = 0; i < element_count(r->in_type[j]); i++)
            r->out[0][0] += r->in[j][i] * r->in[j][i];
}

static void ref_moments(const Reference *r) {
    for (int m = 0; m < MX_MOMENTS; m++) r->out[0][m] = 0;
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++) {
        double x = r->in[0][i];
        r->out[0][MX_MOMENT_COUNT]++;
        r->out[0][MX_MOMENT_ZEROS] += x == 0;
        r->out[0][MX_MOMENT_SUM] += x;
        r->out[0][MX_MOMENT_SQUARES] += x * x;
    }
}

static void ref_clip_factor(const Reference *r) {
    double threshold = ((const MxClipFactorAttr *)r->attr)->threshold, norm = sqrt(r->in[0][0]);
    r->out[0][0] = norm < threshold ? 1 : threshold / norm;
}

/* The inverse of the normal distribution, by bisection. */
static double normal_quantile(double p) {
    double low = -8, high = 8;
    for (int i = 0; i < 100; i++) {
        double middle = (low + high) / 2;
        *(0.5 * erfc(-middle / sqrt(2)) < p ? &low : &high) = middle;
    }
    return low;
}

static double init_element(const MxInitAttr *a, int64_t i) {
    const double pi = 3.14159265358979323846, tail = 0.5 * erfc(sqrt(2)), of_cut = 0.87962566103424;
    uint32_t words[4];
    mx_philox(a->seed, a->stream, (uint64_t)i / 4, words);
    double u = (double)mx_uniform(words[i % 4]);
    if (a->fill == MX_FILL_CONSTANT) return a->value;
    if (a->fill == MX_FILL_CYCLE) return (double)(i % (int64_t)a->value);
    if (a->fill == MX_FILL_LOG_UNIFORM) return log(a->value * u);
    if (a->fill == MX_FILL_UNIFORM) return a->value * sqrt(3) * (2 * u - 1);
    if (a->fill == MX_FILL_TRUNCATED_NORMAL)
        return a->value / of_cut * normal_quantile(tail + u * (1 - 2 * tail));
    double radius = sqrt(-2 * log((double)mx_uniform(words[i % 4 / 2 * 2])));
    double turn = 2 * pi * (double)mx_uniform(words[i % 4 / 2 * 2 + 1]);
    return a->value * radius * (i % 2 ? sin(turn) : cos(turn));
}

static void ref_init(const Reference *r) {
    const MxInitAttr *attr = r->attr;
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) {
        int64_t place = 0, stride = 1, rest = i; /* in the whole */
        for (int d = attr->whole.rank - 1; d >= 0; d--) {
            place += (attr->start[d] + rest % attr->type.shape.dim[d]) * stride;
            stride *= attr->whole.dim[d];
            rest /= attr->type.shape.dim[d];
        }
        r->out[0][i] = init_element(attr, attr->whole.rank ? place : i);
    }
}

// clang-format off
const OpTest test_sum_squares = {
    CASES(
        {"several", NULL, "x3,41 x:normal2 x3,211,113", NULL, 0},
        {NULL, NULL, "f2,3 b4 f", "f", 0},
        {NULL, NULL, "", "f", 0},
        {NULL, NULL, "f8,16 f4,8 b16 f f8,8,8", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "f2,3 i4", "input 1 must be float32 or bfloat16"}),
    .reference = ref_sum_squares,
};

const OpTest test_moments = {
    CASES(
        {"some zeros", NULL, "x3,5,41:flags0.4", NULL, 0},
        {"many", NULL, "x7,211,113:square2", NULL, 0},
        {NULL, NULL, "b2,3", "f4", 0},
        {NULL, NULL, "f8,4,8:flags0.5", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "i4", "input 0 must be float32 or bfloat16"}),
    .reference = ref_moments,
};

const OpTest test_init = {
    CASES(
        {"constant", ATTR(MxInitAttr, .type = {MX_F32, {.rank = 2, .dim = {7, 11}}}, .fill = MX_FILL_CONSTANT, .value = 0.75, .seed = 0x1234567890, .stream = 0x700000003), "", NULL, CASE_FOLLOWS},
        {"zeros", ATTR(MxInitAttr, .type = {MX_F32, {.rank = 2, .dim = {7, 11}}}, .fill = MX_FILL_CONSTANT, .seed = 0x1234567890, .stream = 0x700000003), "", NULL, CASE_FOLLOWS},
        {"normal", ATTR(MxInitAttr, .type = {MX_F32, {.rank = 2, .dim = {37, 31}}}, .fill = MX_FILL_NORMAL, .value = 0.02, .seed = 0x1234567890, .stream = 0x700000003), "", NULL, CASE_FOLLOWS},
        {"truncated", ATTR(MxInitAttr, .type = {MX_F32, {.rank = 2, .dim = {37, 31}}}, .fill = MX_FILL_TRUNCATED_NORMAL, .value = 0.3, .seed = 0x1234567890, .stream = 0x700000003), "", NULL, CASE_FOLLOWS},
        {"uniform", ATTR(MxInitAttr, .type = {MX_F32, {.rank = 2, .dim = {37, 31}}}, .fill = MX_FILL_UNIFORM, .value = 0.3, .seed = 0x1234567890, .stream = 0x700000003), "", NULL, CASE_FOLLOWS},
        {"log of uniform", ATTR(MxInitAttr, .type = {MX_F32, {.rank = 2, .dim = {37, 31}}}, .fill = MX_FILL_LOG_UNIFORM, .value = 16, .seed = 0x1234567890, .stream = 0x700000003), "", NULL, CASE_FOLLOWS},
        {"cycle", ATTR(MxInitAttr, .type = {MX_F32, {.rank = 2, .dim = {37, 6}}}, .fill = MX_FILL_CYCLE, .value = 7), "", NULL, 0},
        {"cycle of integers", ATTR(MxInitAttr, .type = {MX_I32, {.rank = 3, .dim = {5, 37, 4}}}, .fill = MX_FILL_CYCLE, .value = 4), "", NULL, 0},
        {"part, cycle", ATTR(MxInitAttr, .type = {MX_I32, {.rank = 2, .dim = {15, 5}}}, .fill = MX_FILL_CYCLE, .value = 9, .whole = {.rank = 2, .dim = {37, 31}}, .start = {1, 3}), "", NULL, 0},
        {"normal large", ATTR(MxInitAttr, .type = {MX_F32, {.rank = 2, .dim = {211, 333}}}, .fill = MX_FILL_NORMAL, .value = 1.0, .seed = 0x1234567890, .stream = 0x700000003), "", NULL, CASE_FOLLOWS},
        {"part, normal, rows", ATTR(MxInitAttr, .type = {MX_F32, {.rank = 2, .dim = {15, 31}}}, .fill = MX_FILL_NORMAL, .value = 0.3, .seed = 7, .stream = 99, .whole = {.rank = 2, .dim = {37, 31}}, .start = {1, 0}), "", NULL, 0},
        {"part, truncated, columns", ATTR(MxInitAttr, .type = {MX_F32, {.rank = 2, .dim = {37, 7}}}, .fill = MX_FILL_TRUNCATED_NORMAL, .value = 0.3, .seed = 7, .stream = 99, .whole = {.rank = 2, .dim = {37, 31}}, .start = {0, 13}), "", NULL, 0},
        {"part, normal, box", ATTR(MxInitAttr, .type = {MX_F32, {.rank = 2, .dim = {150, 273}}}, .fill = MX_FILL_NORMAL, .value = 0.3, .seed = 7, .stream = 99, .whole = {.rank = 2, .dim = {211, 333}}, .start = {17, 31}), "", NULL, 0},
        {NULL, ATTR(MxInitAttr, .type = {MX_F32, {.rank = 1, .dim = {4}}}), "", "f4", 0},
        {NULL, ATTR(MxInitAttr, .type = {MX_F32, {2, {16, 24}}}, .fill = MX_FILL_NORMAL, .value = 1, .seed = 3, .stream = 4), "", NULL, CASE_RANKS},
        {NULL, ATTR(MxInitAttr, .type = {MX_F32, {3, {8, 8, 24}}}, .fill = MX_FILL_TRUNCATED_NORMAL, .value = 1, .seed = 3, .stream = 4), "", NULL, CASE_RANKS}),
    WRONG({ATTR(MxInitAttr, .type = {MX_I32, {.rank = 1, .dim = {4}}}, .fill = MX_FILL_CYCLE), "", "at least one number"}),
    .reference = ref_init,
};

const OpTest test_clip_factor = {
    CASES(
        {"above", ATTR(MxClipFactorAttr, 1.0), "f:value6.25", NULL, 0},
        {"below", ATTR(MxClipFactorAttr, 1.0), "f:value0.25", NULL, 0},
        {NULL, ATTR(MxClipFactorAttr, 1), "f", "f", 0},
        {NULL, ATTR(MxClipFactorAttr, 1.0), "f:value6.25", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxClipFactorAttr, 1), "f1", "input 0 must be float32 of rank 0"},
        {ATTR(MxClipFactorAttr, 1), "b", "input 0 must be float32 of rank 0"}),
    .reference = ref_clip_factor,
};
// clang-format on
