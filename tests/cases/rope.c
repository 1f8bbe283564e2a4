/* rope.c — rotary positions. */
#include "cases.h"

#include <math.h>

static double frequencies[] = {1.0, 0.31, 0.01, 1e-4, 3e-7}, two_frequencies[] = {1.0, 0.3};
static const uint8_t kinds[] = {0, 2, 1, 2, 0};

static void ref_rope_table(const Reference *r) {
    const MxRopeFreqs *f = &((const MxRopeTableAttr *)r->attr)->freqs;
    for (int64_t row = 0; row < element_count(r->in_type[0]); row++)
        for (int i = 0; i < f->n; i++) {
            const double *position = r->in[f->kind ? f->kind[i] : 0];
            double angle = position[row] * f->frequency[i], length = f->amplitude;
            if (f->growth > 0) /* 0.1 log(...) + 1 in the original's order */
                length *= log(floor((r->in[0][row] + 1) / f->period) + 1) * f->growth + 1;
            r->out[0][2 * (row * f->n + i)] = length * cos(angle);
            r->out[0][2 * (row * f->n + i) + 1] = length * sin(angle);
        }
}

static void ref_rope(const Reference *r) {
    const MxRopeAttr *attr = r->attr;
    MxShape x = r->in_type[0].shape;
    int64_t half = r->in_type[1].shape.dim[2];
    memcpy(r->out[0], r->in[0], (size_t)element_count(r->in_type[0]) * sizeof(double));
    for (int64_t row = 0; row < x.dim[0] * x.dim[1] * x.dim[2]; row++)
        for (int64_t i = 0; i < half; i++) {
            const double *cos_sin = r->in[1] + 2 * (row / x.dim[2] * half + i);
            double c = cos_sin[0], s = attr->inverse ? -cos_sin[1] : cos_sin[1];
            const double *in = r->in[0] + row * x.dim[3] + attr->first;
            double *out = r->out[0] + row * x.dim[3] + attr->first;
            double a = in[attr->interleaved_in ? 2 * i : i];
            double b = in[attr->interleaved_in ? 2 * i + 1 : half + i];
            out[attr->interleaved_out ? 2 * i : i] = a * c - b * s;
            out[attr->interleaved_out ? 2 * i + 1 : half + i] = b * c + a * s;
        }
}

// clang-format off
const OpTest test_rope_table = {
    CASES(
        {"positions", ATTR(MxRopeTableAttr, .freqs = {.n = 5, .frequency = frequencies, .amplitude = 1.1}), "i3,201:positions100000", NULL, 0},
        {"longer at later positions", ATTR(MxRopeTableAttr, .freqs = {.n = 5, .frequency = frequencies, .amplitude = 1, .growth = 0.1, .period = 8192}), "i3,201:positions100000", NULL, 0},
        {"longer from the third position on", ATTR(MxRopeTableAttr, .freqs = {.n = 1, .frequency = frequencies, .amplitude = 2, .growth = 3, .period = 3}), "i2,9:positions20", NULL, 0},
        {"positions of three kinds", ATTR(MxRopeTableAttr, .freqs = {.n = 5, .frequency = frequencies, .amplitude = 1.1, .kind = kinds}), "i3,201:positions100000 i3,201:ids77 i3,201:ids5000", NULL, 0},
        {"positions of three kinds, for ranks", ATTR(MxRopeTableAttr, .freqs = {.n = 5, .frequency = frequencies, .amplitude = 1, .kind = kinds}), "i8,8:positions100 i8,8:ids7 i8,8:ids50", NULL, CASE_RANKS},
        {NULL, ATTR(MxRopeTableAttr, .freqs = {.n = 3, .amplitude = 1}), "i2,5", "f2,5,3,2", CASE_TYPES},
        {NULL, ATTR(MxRopeTableAttr, .freqs = {.n = 2, .frequency = two_frequencies, .amplitude = 1.2}), "i8,8:positions100", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxRopeTableAttr, .freqs = {.n = 3, .amplitude = 1}), "i5", "input 0 must be int32 of rank 2"},
        {ATTR(MxRopeTableAttr, .freqs = {.n = 3, .amplitude = 1}), "f2,5", "input 0 must be int32 of rank 2"},
        {ATTR(MxRopeTableAttr, .freqs = {.n = 3, .amplitude = 1}), "i2,5 i2,5 f2,5", "input 2 must be int32 of rank 2"},
        {ATTR(MxRopeTableAttr, .freqs = {.n = 3, .amplitude = 1}), "i2,5 i2,4", "positions must have one shape"}),
    .reference = ref_rope_table,
};

const OpTest test_rope = {
    CASES(
        {"halves", ATTR(MxRopeAttr, 0), "x2,9,3,10 f2,9,5,2:trig", NULL, 0},
        {"halves back", ATTR(MxRopeAttr, .inverse = true), "x2,9,3,10 f2,9,5,2:trig", NULL, 0},
        {"interleaved", ATTR(MxRopeAttr, .interleaved_in = true, .interleaved_out = true), "x2,9,3,10 f2,9,5,2:trig", NULL, 0},
        {"interleaved to halves", ATTR(MxRopeAttr, .interleaved_in = true), "x2,9,3,10 f2,9,5,2:trig", NULL, 0},
        {"halves to interleaved back", ATTR(MxRopeAttr, .interleaved_out = true, .inverse = true), "x2,9,3,10 f2,9,5,2:trig", NULL, 0},
        {"large heads", ATTR(MxRopeAttr, .interleaved_in = true), "x3,41,2,262 f3,41,131,2:trig", NULL, 0},
        {"many heads", ATTR(MxRopeAttr, 0), "x2,3,37,64 f2,3,32,2:trig", NULL, 0},
        {"many heads, interleaved", ATTR(MxRopeAttr, .interleaved_in = true, .interleaved_out = true), "x2,3,37,64 f2,3,32,2:trig", NULL, 0},
        {"heads wider than a block", ATTR(MxRopeAttr, .interleaved_out = true, .inverse = true), "x1,5,3,1062 f1,5,531,2:trig", NULL, 0},
        {NULL, ATTR(MxRopeAttr, .interleaved_in = true, .first = 8), "x2,5,3,40 f2,5,8,2:trig", NULL, CASE_NO_SLOPE},
        {NULL, ATTR(MxRopeAttr, .interleaved_out = true, .first = 8, .inverse = true), "x2,5,3,48 f2,5,16,2:trig", NULL, CASE_NO_SLOPE},
        {NULL, ATTR(MxRopeAttr, .first = 8), "x2,5,3,48 f2,5,16,2:trig", NULL, CASE_NO_SLOPE},
        {"last elements", ATTR(MxRopeAttr, .interleaved_in = true, .first = 7), "x2,5,3,17 f2,5,5,2:trig", NULL, 0},
        {"first elements back", ATTR(MxRopeAttr, .inverse = true), "x2,5,3,17 f2,5,3,2:trig", NULL, 0},
        {NULL, ATTR(MxRopeAttr, 0), "b2,5,4,6 f2,5,3,2", "b2,5,4,6", 0},
        {NULL, ATTR(MxRopeAttr, .interleaved_in = true), "f8,8,8,4 f8,8,2,2:trig", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxRopeAttr, 0), "f2,5,4,6 f2,5,4,2", "x must be [B, T, N, 2n]"},
        {ATTR(MxRopeAttr, .first = 2), "f2,5,4,7 f2,5,3,2", "x must be [B, T, N, 2n], or wider"},
        {ATTR(MxRopeAttr, 0), "f2,5,4,6 f1,5,3,2", "x must be [B, T, N, 2n]"},
        {ATTR(MxRopeAttr, 0), "f2,5,4,6 f2,4,3,2", "x must be [B, T, N, 2n]"},
        {ATTR(MxRopeAttr, 0), "f2,5,4,6 f2,5,3,1", "x must be [B, T, N, 2n]"},
        {ATTR(MxRopeAttr, 0), "f2,5,6 f2,5,3,2", "x must be [B, T, N, 2n]"},
        {ATTR(MxRopeAttr, 0), "f2,5,4,6 b2,5,3,2", "input 1 must be float32 of rank 4"},
        {ATTR(MxRopeAttr, 0), "i2,5,4,6 f2,5,3,2", "input 0 must be float32 or bfloat16"}),
    .reference = ref_rope,
    .flows = 1 << 0,
};
// clang-format on
