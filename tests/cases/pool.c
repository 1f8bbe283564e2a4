/* pool.c — windows of tokens: their means, and which of them tokens see. */
#include "cases.h"

#include <math.h>
#include <stdlib.h>

/* One element of a pooled row: window w of row b, column h. */
static double pooled(const Reference *r, int64_t b, int64_t w, int64_t h) {
    const MxPoolAttr *attr = r->attr;
    MxShape x = r->in_type[0].shape;
    int64_t R = attr->ratio, E = x.dim[2], first = b * x.dim[1] + w * R;
    const double *segments = r->in[3];
    bool joins = attr->overlaps && w && segments[first] == segments[first - R];
    double sum = 0, y = 0;
    for (int64_t i = joins ? -R : 0; i < R; i++) {
        int64_t column = attr->overlaps && i >= 0 ? E / 2 + h : h, at = (first + i) * E + column;
        double e = exp(r->in[1][at] + r->in[2][(i + R) % R * E + column]);
        sum += e;
        y += e * r->in[0][at];
    }
    return y / sum;
}

static void ref_pool(const Reference *r) {
    MxShape y = r->out_type[0].shape;
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) {
        int64_t window = i / y.dim[2];
        r->out[0][i] = pooled(r, window / y.dim[1], window % y.dim[1], i % y.dim[2]);
    }
}

static void ref_windows(const Reference *r) {
    int64_t R = ((const MxWindowsAttr *)r->attr)->ratio;
    MxShape out = r->out_type[0].shape;
    for (int64_t i = 0; i < out.dim[0] * out.dim[1]; i++) {
        const double *row = r->in[0] + i / out.dim[1] * out.dim[1];
        for (int64_t word = 0; word < out.dim[2]; word++) {
            uint32_t bits = 0;
            for (int64_t w = 32 * word; w < 32 * word + 32 && (w + 1) * R <= i % out.dim[1] + 1;
                 w++)
                bits |= (uint32_t)is_window_of(row, R, w, r->in[0][i]) << w % 32;
            r->out[0][i * out.dim[2] + word] = (double)(int32_t)bits;
        }
    }
}

/* ---- of pieces, whose rows are in caches */

/* The i-th window that ends at one of these positions; -1 = there is none. */
static int64_t ended_window(const double *positions, int64_t T, int64_t R, int64_t i) {
    for (int64_t t = 0; t < T; t++) {
        int64_t n = (int64_t)positions[t] + 1;
        if (n > 0 && n % R == 0 && i-- == 0) return n / R - 1;
    }
    return -1;
}

/* A cache's rows of a sequence's first n positions, those that it no longer has as what it has. */
static double *unroll(const Reference *r, int input, int64_t sequence, int64_t n) {
    MxShape cache = r->in_type[input].shape;
    int64_t C = cache.dim[1], E = cache.dim[2];
    double *rows = malloc((size_t)(n * E + 1) * sizeof *rows);
    for (int64_t i = 0; i < n * E; i++)
        rows[i] = r->in[input][(sequence * C + i / E % C) * E + i % E];
    return rows;
}

/* As mx_pool of the whole sequence, up to window w, has it. */
static void pool_sequence(const Reference *r, int64_t sequence, int64_t w, double *out) {
    int64_t n = (w + 1) * ((const MxPoolAttr *)r->attr)->ratio, H = r->out_type[0].shape.dim[2];
    double *segments = calloc((size_t)n, sizeof *segments);
    double *in[] = {unroll(r, 0, sequence, n), unroll(r, 1, sequence, n), r->in[2], segments};
    MxType x = {MX_F32, MX_SHAPE(1, n, r->in_type[0].shape.dim[2])};
    Reference whole = {.attr = r->attr, .in_type = &x, .in = in};
    for (int64_t h = 0; h < H; h++) out[h] = pooled(&whole, 0, w, h);
    free(in[0]);
    free(in[1]);
    free(segments);
}

static void ref_cache_pool(const Reference *r) {
    int64_t R = ((const MxPoolAttr *)r->attr)->ratio, T = r->in_type[3].shape.dim[1];
    MxShape y = r->out_type[0].shape;
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) r->out[0][i] = 0;
    for (int64_t row = 0; row < y.dim[0] * y.dim[1]; row++) {
        int64_t b = row / y.dim[1], w = ended_window(r->in[3] + b * T, T, R, row % y.dim[1]);
        if (w >= 0) pool_sequence(r, (int64_t)r->in[4][b], w, r->out[0] + row * y.dim[2]);
    }
}

static void ref_cache_windows(const Reference *r) {
    int64_t R = ((const MxWindowsAttr *)r->attr)->ratio, T = r->in_type[0].shape.dim[1];
    int64_t P = r->out_type[0].shape.dim[1];
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++)
        r->out[0][i] = (double)ended_window(r->in[0] + i / P * T, T, R, i % P);
}

/* Windows end at R - 1, 2 R - 1, ... */
static void ref_cache_last_window(const Reference *r) {
    int64_t R = ((const MxWindowsAttr *)r->attr)->ratio;
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) {
        r->out[0][i] = -1;
        for (int64_t end = R - 1; end <= (int64_t)r->in[0][i]; end += R) r->out[0][i]++;
    }
}

// clang-format off
const OpTest test_pool = {
    CASES(
        {"of three, two tokens behind", ATTR(MxPoolAttr, .ratio = 3), "x2,14,5 x2,14,5 f3,5 i2,14:segments5", NULL, 0},
        {"of three, overlaps", ATTR(MxPoolAttr, .ratio = 3, .overlaps = true), "x2,14,10 x2,14,10 f3,10 i2,14:segments100", NULL, 0},
        {"overlaps, segments", ATTR(MxPoolAttr, .ratio = 4, .overlaps = true), "x3,30,6 x3,30,6 f4,6 i3,30:segments9", NULL, 0},
        {"a window", ATTR(MxPoolAttr, .ratio = 7, .overlaps = true), "x2,7,6 x2,7,6 f7,6 i2,7:segments100", NULL, 0},
        {"windows of one", ATTR(MxPoolAttr, .ratio = 1, .overlaps = true), "x2,11,6 x2,11,6 f1,6 i2,11:segments4", NULL, 0},
        {"far apart", ATTR(MxPoolAttr, .ratio = 5), "x2,23,3 x2,23,3:normal40 f5,3:normal40 i2,23:segments100", NULL, 0},
        {"long windows, columns in blocks", ATTR(MxPoolAttr, .ratio = 128), "x2,300,301 x2,300,301 f128,301 i2,300:segments200", NULL, CASE_NO_SLOPE},
        {"many", ATTR(MxPoolAttr, .ratio = 4, .overlaps = true), "x3,203,402 x3,203,402 f4,402 i3,203:segments50", NULL, CASE_NO_SLOPE},
        {NULL, ATTR(MxPoolAttr, .ratio = 3), "b2,14,5 b2,14,5 f3,5 i2,14", "b2,4,5", 0},
        {NULL, ATTR(MxPoolAttr, .ratio = 4, .overlaps = true), "b2,8,6 b2,8,6 f4,6 i2,8", "b2,2,3", 0},
        {NULL, ATTR(MxPoolAttr, .ratio = 4), "f8,16,4 f8,16,4 f4,4 i8,16:segments9", NULL, CASE_RANKS},
        {"of ranks, overlaps", ATTR(MxPoolAttr, .ratio = 4, .overlaps = true), "f8,16,4 f8,16,4 f4,4 i8,16:segments9", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxPoolAttr, .ratio = 3), "i2,14,5 i2,14,5 f3,5 i2,14", "input 0 must be float32 or bfloat16"},
        {ATTR(MxPoolAttr, .ratio = 3), "f2,14,5 b2,14,5 f3,5 i2,14", "inputs 0 and 1 must have one type"},
        {ATTR(MxPoolAttr, .ratio = 3), "b2,14,5 b2,14,5 b3,5 i2,14", "input 2 must be float32 of rank 2"},
        {ATTR(MxPoolAttr, .ratio = 3), "f2,14,5 f2,14,5 f4,5 i2,14", "the bias [R, E]"},
        {ATTR(MxPoolAttr, .ratio = 3), "f2,14,5 f2,14,5 f3,4 i2,14", "the bias [R, E]"},
        {ATTR(MxPoolAttr, .ratio = 3), "f14,5 f14,5 f3,5 i2,14", "x must be [B, T, E]"},
        {ATTR(MxPoolAttr, .ratio = 3), "f2,14,5 f2,14,5 f3,5 i2,13", "segments must be [B, T]"},
        {ATTR(MxPoolAttr, .ratio = 3, .overlaps = true), "f2,14,5 f2,14,5 f3,5 i2,14", "must have two halves"},
        {ATTR(MxPoolAttr, .ratio = 3), "f2,2,5 f2,2,5 f3,5 i2,2", "rows of 2 tokens have no window of 3"},
        {ATTR(MxPoolAttr, .ratio = 0), "f2,2,5 f2,2,5 f0,5 i2,2", "must have at least one token"}),
    .reference = ref_pool,
    .flows = 1 << 0 | 1 << 1 | 1 << 2,
};

const OpTest test_pool_grad = {
    WRONG(
        {ATTR(MxPoolAttr, .ratio = 3), "f2,14,5 f2,14,5 f3,5 i2,14 f2,5,5", "dy must be [B, W, H] of x's dtype"},
        {ATTR(MxPoolAttr, .ratio = 3), "b2,14,5 b2,14,5 f3,5 i2,14 f2,4,5", "dy must be [B, W, H] of x's dtype"},
        {ATTR(MxPoolAttr, .ratio = 3, .overlaps = true), "f2,14,6 f2,14,6 f3,6 i2,14 f2,4,6", "dy must be [B, W, H] of x's dtype"},
        {ATTR(MxPoolAttr, .ratio = 3), "f2,2,5 f2,2,5 f3,5 i2,2 f2,1,5", "rows of 2 tokens have no window of 3"}),
    .forward = &op_pool,
    .wrt = {0, 1, 2},
};

const OpTest test_windows = {
    CASES(
        {"one segment, padding", ATTR(MxWindowsAttr, 3), "i2,14:segments100", NULL, 0},
        {"segments", ATTR(MxWindowsAttr, 4), "i3,50:segments11", NULL, 0},
        {"of one token", ATTR(MxWindowsAttr, 1), "i2,70:segments30", NULL, 0},
        {"in disorder", ATTR(MxWindowsAttr, 2), "i3,40:ids3", NULL, 0},
        {"many", ATTR(MxWindowsAttr, 2), "i3,700:segments300", NULL, 0},
        {NULL, ATTR(MxWindowsAttr, 4), "i2,131", "i2,131,1", 0},
        {NULL, ATTR(MxWindowsAttr, 4), "i2,132", "i2,132,2", 0},
        {NULL, ATTR(MxWindowsAttr, 2), "i8,16:segments5", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxWindowsAttr, 3), "f2,14", "input 0 must be int32 of rank 2"},
        {ATTR(MxWindowsAttr, 3), "i14", "input 0 must be int32 of rank 2"},
        {ATTR(MxWindowsAttr, 3), "i2,2", "rows of 2 tokens have no window of 3"},
        {ATTR(MxWindowsAttr, 0), "i2,2", "must have at least one token"}),
    .reference = ref_windows,
};

const OpTest test_cache_pool = {
    CASES(
        {"a prompt, padding", ATTR(MxPoolAttr, .ratio = 3), "x3,30,5 x3,30,5 f3,5 i2,20:from0 i2:positions3", NULL, 0},
        {"a prompt, overlaps", ATTR(MxPoolAttr, .ratio = 4, .overlaps = true), "x3,30,6 x3,30,6 f4,6 i2,21:from0 i2:positions3", NULL, 0},
        {"goes on, in the middle of a window", ATTR(MxPoolAttr, .ratio = 4, .overlaps = true), "x2,40,10 x2,40,10 f4,10 i2,9:from22 i2:positions2", NULL, 0},
        {"slots used again", ATTR(MxPoolAttr, .ratio = 4, .overlaps = true), "x3,13,6 x3,13,6 f4,6 i2,6:from50 i2:positions3", NULL, 0},
        {"slots used again, as many as are needed", ATTR(MxPoolAttr, .ratio = 5, .overlaps = true), "x2,10,6 x2,10,6 f5,6 i2,1:value84 i2:positions2", NULL, 0},
        {"slots used again, no overlap", ATTR(MxPoolAttr, .ratio = 5), "x2,10,7 x2,10,7 f5,7 i2,6:from24 i2:positions2", NULL, 0},
        {"a token each, few end one", ATTR(MxPoolAttr, .ratio = 3, .overlaps = true), "x9,12,4 x9,12,4 f3,4 i9,1:positions9 i9:positions9", NULL, 0},
        {"nothing but padding", ATTR(MxPoolAttr, .ratio = 2), "x3,12,4 x3,12,4 f2,4 i1,6:value-1 i1:value2", NULL, 0},
        {"windows of one", ATTR(MxPoolAttr, .ratio = 1, .overlaps = true), "x2,20,4 x2,20,4 f1,4 i2,11:from5 i2:positions2", NULL, 0},
        {"many", ATTR(MxPoolAttr, .ratio = 4, .overlaps = true), "x3,203,402 x3,203,402 f4,402 i3,190:from11 i3:positions3", NULL, 0},
        {NULL, ATTR(MxPoolAttr, .ratio = 4, .overlaps = true), "b3,12,6 b3,12,6 f4,6 i2,5:from0 i2", "b2,2,3", 0}),
    WRONG(
        {ATTR(MxPoolAttr, .ratio = 3), "f3,9,5 b3,9,5 f3,5 i2,4 i2", "inputs 0 and 1 must have one type"},
        {ATTR(MxPoolAttr, .ratio = 3), "f3,0,5 f3,0,5 f3,5 i2,4 i2", "a cache [S, C, E]"},
        {ATTR(MxPoolAttr, .ratio = 4), "f3,9,5 f3,9,5 f3,5 i2,4 i2", "the bias [R, E]"},
        {ATTR(MxPoolAttr, .ratio = 3, .overlaps = true), "f3,9,5 f3,9,5 f3,5 i2,4 i2", "must have two halves"},
        {ATTR(MxPoolAttr, .ratio = 3), "f3,9,5 f3,9,5 f3,5 i2,4 i3", "positions must be [B, T], sequences [B]"},
        {ATTR(MxPoolAttr, .ratio = 3), "f3,9,5 f3,9,5 f3,5 f2,4 i2", "input 3 must be int32 of rank 2"}),
    .reference = ref_cache_pool,
};

const OpTest test_cache_windows = {
    CASES(
        {"a prompt, padding", ATTR(MxWindowsAttr, 3), "i2,20:from0", NULL, 0},
        {"goes on", ATTR(MxWindowsAttr, 4), "i2,9:from22", NULL, 0},
        {"a token each", ATTR(MxWindowsAttr, 3), "i9,1:positions9", NULL, 0},
        {"nothing but padding", ATTR(MxWindowsAttr, 3), "i2,7:value-1", NULL, 0},
        {NULL, ATTR(MxWindowsAttr, 4), "i2,9:from0", "i2,3", 0}),
    WRONG(
        {ATTR(MxWindowsAttr, 4), "f2,9", "input 0 must be int32 of rank 2"},
        {ATTR(MxWindowsAttr, 0), "i2,9", "must have at least one token"}),
    .reference = ref_cache_windows,
};

const OpTest test_cache_last_window = {
    CASES(
        {"a prompt, padding", ATTR(MxWindowsAttr, 3), "i2,20:from0", NULL, 0},
        {"goes on", ATTR(MxWindowsAttr, 4), "i2,9:from22", NULL, 0},
        {NULL, ATTR(MxWindowsAttr, 4), "i2,9", "i2,9", 0},
        {NULL, ATTR(MxWindowsAttr, 4), "i8,16:from3", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxWindowsAttr, 4), "f2,9", "input 0 must be int32 of rank 2"},
        {ATTR(MxWindowsAttr, 0), "i2,9", "must have at least one token"}),
    .reference = ref_cache_last_window,
};
// clang-format on
