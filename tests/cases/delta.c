/* delta.c — the gated delta rule token by token, and what goes with it. */
#include "cases.h"

#include <math.h>

static bool carries(const Reference *r) {
    return ((const MxDeltaAttr *)r->attr)->carries;
}

static void ref_conv(const Reference *r) {
    MxShape x = r->in_type[0].shape;
    int64_t T = x.dim[1], D = x.dim[2], W = r->in_type[1].shape.dim[0];
    int64_t said = ((const MxDeltaAttr *)r->attr)->apart, apart = said ? said : 1;
    for (int64_t row = 0; row < x.dim[0]; row++)
        for (int64_t t = 0; t < T; t++)
            for (int64_t d = 0; d < D; d++) {
                const double *s = r->in[2] + row * T;
                double sum = 0;
                for (int64_t j = 0; j < W; j++) {
                    int64_t from = t - (W - 1 - j) * apart;
                    if (from < 0 || (!carries(r) && s[from] != s[t])) continue;
                    sum += r->in[1][j * D + d] * r->in[0][(row * T + from) * D + d];
                }
                r->out[0][(row * T + t) * D + d] = sum;
            }
}

static void ref_decay(const Reference *r) {
    int64_t n = element_count(r->in_type[1]);
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++)
        r->out[0][i] = -exp(r->in[1][i % n]) * log1p(exp(r->in[0][i]));
}

enum { MOST_WIDTH = 128 };

/* One token of a head: the memory, and what is read of it. */
static void step(const Reference *r, const int64_t at_key[2], bool is_silent,
                 double S[][MOST_WIDTH]) {
    int64_t at = at_key[0], key_at = at_key[1];
    double beta = is_silent ? 0 : r->in[4][at], kept = is_silent ? 1 : exp(r->in[3][at]);
    int64_t H = r->in_type[0].shape.dim[3], W = r->in_type[2].shape.dim[3];
    const double *q = r->in[0] + key_at * H, *k = r->in[1] + key_at * H, *v = r->in[2] + at * W;
    for (int64_t w = 0; w < W; w++) {
        double seen = 0, read = 0;
        for (int64_t h = 0; h < H; h++) {
            S[h][w] *= kept;
            seen += S[h][w] * k[h];
        }
        for (int64_t h = 0; h < H; h++) {
            S[h][w] += k[h] * beta * (v[w] - seen);
            read += S[h][w] * q[h];
        }
        r->out[0][at * W + w] = read;
    }
}

static void ref_delta(const Reference *r) {
    MxShape q = r->in_type[0].shape, v = r->in_type[2].shape;
    int64_t T = v.dim[1], N = v.dim[2], group = N / q.dim[2];
    static double S[MOST_WIDTH][MOST_WIDTH];
    for (int64_t row = 0; row < v.dim[0] * N; row++)
        for (int64_t t = 0; t < T; t++) {
            const double *s = r->in[5] + row / N * T;
            int64_t token = row / N * T + t, head = row % N, at = token * N + head;
            int64_t key_at = token * q.dim[2] + head / group;
            if (!t || (!carries(r) && s[t] != s[t - 1])) memset(S, 0, sizeof S);
            if (s[t] != 0 || carries(r))
                step(r, (const int64_t[]){at, key_at}, s[t] == 0, S);
            else
                for (int64_t w = 0; w < v.dim[3]; w++) r->out[0][at * v.dim[3] + w] = 0;
        }
}

// clang-format off
const OpTest test_conv = {
    CASES(
        {"four taps, segments", ATTR(MxDeltaAttr, .carries = false), "x2,19,7 f4,7 i2,19:segments6", NULL, 0},
        {"two taps, many channels", ATTR(MxDeltaAttr, .carries = false), "x3,33,301 f2,301 i3,33:segments20", NULL, 0},
        {"four taps, carried on", ATTR(MxDeltaAttr, .carries = true), "x2,19,7 f4,7 i2,19:segments6", NULL, 0},
        {"four taps, three apart", ATTR(MxDeltaAttr, .apart = 3), "x2,19,7 f4,7 i2,19:segments12", NULL, 0},
        {"two taps far apart, carried on", ATTR(MxDeltaAttr, .carries = true, .apart = 5), "x3,33,301 f2,301 i3,33:segments20", NULL, 0},
        {"one tap", ATTR(MxDeltaAttr, .carries = false), "x1,5,3 f1,3 i1,5:segments9", NULL, 0},
        {"more taps than tokens", ATTR(MxDeltaAttr, .carries = false), "x2,3,5 f6,5 i2,3:segments9", NULL, 0},
        {NULL, ATTR(MxDeltaAttr, .carries = false), "b2,5,3 f4,3 i2,5", "b2,5,3", 0},
        {NULL, ATTR(MxDeltaAttr, .carries = false), "f8,4,16 f4,16 i8,4:segments3", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxDeltaAttr, .carries = false), "f2,5,3 f4,2 i2,5", "x must be [B, T, D] and w [W, D]"},
        {ATTR(MxDeltaAttr, .apart = -1), "f2,5,3 f4,3 i2,5", "taps must be apart by 0 or more"},
        {ATTR(MxDeltaAttr, .carries = false), "f5,3 f4,3 i2,5", "x must be [B, T, D] and w [W, D]"},
        {ATTR(MxDeltaAttr, .carries = false), "f2,5,3 f4,3 i2,4", "segments must be [B, T]"},
        {ATTR(MxDeltaAttr, .carries = false), "f2,5,3 b4,3 i2,5", "input 1 must be float32 of rank 2"},
        {ATTR(MxDeltaAttr, .carries = false), "i2,5,3 f4,3 i2,5", "input 0 must be float32 or bfloat16"}),
    .reference = ref_conv,
    .flows = 1 << 0 | 1 << 1,
};

const OpTest test_conv_grad = {
    WRONG(
        {ATTR(MxDeltaAttr, .carries = false), "f2,5,3 f4,3 i2,5 f2,5,2", "inputs 0 and 3 must have one type"},
        {ATTR(MxDeltaAttr, .carries = false), "f2,5,3 f4,3 f2,5 f2,5,3", "input 2 must be int32 of rank 2"}),
    .forward = &op_conv,
    .wrt = {0, 1},
};

const OpTest test_decay = {
    CASES(
        {"heads", NULL, "f3,17,5:normal2 f5", NULL, 0},
        {"large", NULL, "f5,211,32:normal3 f32", NULL, 0},
        {NULL, NULL, "f2,3 f3", "f2,3", 0},
        {NULL, NULL, "f8,4,8 f8", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "f2,3 f2", "the rate must have the last dim of x"},
        {NULL, "f f1", "the rate must have the last dim of x"},
        {NULL, "b2,3 f3", "input 0 must be float32"},
        {NULL, "f2,3 f1,3", "input 1 must be float32 of rank 1"}),
    .reference = ref_decay,
    .flows = 1 << 0 | 1 << 1,
};

const OpTest test_decay_grad = {
    WRONG(
        {NULL, "f2,3 f3 f2,2", "inputs 0 and 2 must have one type"},
        {NULL, "f2,3 f2 f2,3", "the rate must have the last dim of x"}),
    .forward = &op_decay,
    .wrt = {0},
};

/* Decays are below 0: FILL_LOGP. Keys are short, or the memory would grow beyond all bounds. */
const OpTest test_delta = {
    CASES(
        {"one chunk", ATTR(MxDeltaAttr, .carries = false), "x2,9,2,4:normal0.5 x2,9,2,4:normal0.5 x2,9,2,3 f2,9,2:logp0.3 f2,9,2:square0.5 i2,9:segments100", NULL, 0},
        {"one token", ATTR(MxDeltaAttr, .carries = false), "x2,1,1,5 x2,1,1,5:normal0.4 x2,1,1,3 f2,1,1:logp0.3 f2,1,1:square0.5 i2,1:segments1", NULL, CASE_NO_SLOPE},
        {"groups of 2, segments", ATTR(MxDeltaAttr, .carries = false), "x2,21,2,5:normal0.4 x2,21,2,5:normal0.4 x2,21,4,7 f2,21,4:logp0.3 f2,21,4:square0.5 i2,21:segments6", NULL, 0},
        {"chunks", ATTR(MxDeltaAttr, .carries = false), "x1,150,2,8:normal0.3 x1,150,2,8:normal0.3 x1,150,2,8 f1,150,2:logp0.1 f1,150,2:square0.5 i1,150:segments1000", NULL, 0},
        {"chunks, segments, groups", ATTR(MxDeltaAttr, .carries = false), "x2,200,1,18:normal0.2 x2,200,1,18:normal0.2 x2,200,2,20 f2,200,2:logp0.2 f2,200,2:square0.5 i2,200:segments90", NULL, 0},
        {"carried on", ATTR(MxDeltaAttr, .carries = true), "x2,21,2,5:normal0.4 x2,21,2,5:normal0.4 x2,21,4,7 f2,21,4:logp0.3 f2,21,4:square0.5 i2,21:segments6", NULL, 0},
        {"chunks, carried on", ATTR(MxDeltaAttr, .carries = true), "x2,150,1,18:normal0.2 x2,150,1,18:normal0.2 x2,150,2,20 f2,150,2:logp0.2 f2,150,2:square0.5 i2,150:segments60", NULL, 0},
        {"forgets at once", ATTR(MxDeltaAttr, .carries = false), "x1,80,1,8:normal0.3 x1,80,1,8:normal0.3 x1,80,1,8 f1,80,1:logp40 f1,80,1:square0.5 i1,80:segments1000", NULL, CASE_NO_SLOPE},
        {"wide", ATTR(MxDeltaAttr, .carries = false), "x1,70,1,64:normal0.1 x1,70,1,64:normal0.1 x1,70,1,40 f1,70,1:logp0.1 f1,70,1:square0.5 i1,70:segments1000", NULL, 0},
        {NULL, ATTR(MxDeltaAttr, .carries = false), "b2,5,2,4 b2,5,2,4 b2,5,4,6 f2,5,4 f2,5,4 i2,5", "b2,5,4,6", 0},
        {NULL, ATTR(MxDeltaAttr, .carries = false), "f8,4,4,4:normal0.4 f8,4,4,4:normal0.4 f8,4,8,2 f8,4,8:logp0.3 f8,4,8:square0.5 i8,4:segments3", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxDeltaAttr, .carries = false), "f2,5,2,4 f2,5,2,3 f2,5,4,6 f2,5,4 f2,5,4 i2,5", "inputs 0 and 1 must have one type"},
        {ATTR(MxDeltaAttr, .carries = false), "f2,5,2,4 f2,5,2,4 b2,5,4,6 f2,5,4 f2,5,4 i2,5", "of one dtype"},
        {ATTR(MxDeltaAttr, .carries = false), "f5,2,4 f5,2,4 f5,4,6 f2,5,4 f2,5,4 i2,5", "must be [B, T, heads, width]"},
        {ATTR(MxDeltaAttr, .carries = false), "f2,5,2,4 f2,5,2,4 f2,5,3,6 f2,5,3 f2,5,3 i2,5", "a whole number of heads"},
        {ATTR(MxDeltaAttr, .carries = false), "f2,5,2,4 f2,5,2,4 f2,4,4,6 f2,4,4 f2,4,4 i2,4", "a whole number of heads"},
        {ATTR(MxDeltaAttr, .carries = false), "f2,5,2,4 f2,5,2,4 f2,5,4,6 f2,5,2 f2,5,4 i2,5", "decay and beta must be"},
        {ATTR(MxDeltaAttr, .carries = false), "f2,5,2,4 f2,5,2,4 f2,5,4,6 f2,5,4 f2,5,2 i2,5", "decay and beta must be"},
        {ATTR(MxDeltaAttr, .carries = false), "f2,5,2,4 f2,5,2,4 f2,5,4,6 b2,5,4 f2,5,4 i2,5", "input 3 must be float32 of rank 3"},
        {ATTR(MxDeltaAttr, .carries = false), "f2,5,2,4 f2,5,2,4 f2,5,4,6 f2,5,4 f2,5,4 i2,4", "segments must be [B, T]"},
        {ATTR(MxDeltaAttr, .carries = false), "i2,5,2,4 i2,5,2,4 i2,5,4,6 f2,5,4 f2,5,4 i2,5", "input 0 must be float32 or bfloat16"}),
    .reference = ref_delta,
    .flows = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4,
};

const OpTest test_delta_grad = {
    WRONG(
        {ATTR(MxDeltaAttr, .carries = false), "f2,5,2,4 f2,5,2,4 f2,5,4,6 f2,5,4 f2,5,4 i2,5 f2,5,4,5", "inputs 2 and 6 must have one type"},
        {ATTR(MxDeltaAttr, .carries = false), "f2,5,2,4 f2,5,2,4 f2,5,4,6 f2,5,4 f2,5,4 f2,5 f2,5,4,6", "input 5 must be int32 of rank 2"}),
    .forward = &op_delta,
    .wrt = {0, 1, 2, 3, 4},
};
// clang-format on
