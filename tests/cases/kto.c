/* kto.c — the loss of responses that are wanted or not, as it is written in the paper. */
#include "cases.h"

#include <math.h>

static double s(double x) {
    return 1 / (1 + exp(-x));
}

static void ref_kto(const Reference *r) {
    const MxKtoAttr *a = r->attr;
    int64_t R = r->in_type[0].shape.dim[0], T = r->in_type[0].shape.dim[1];
    double *total = r->out[1], kl = fmax(r->in[4][0], 0);
    for (int i = 0; i < MX_KTO_COUNT; i++) total[i] = 0;
    for (int64_t row = 0; row < R; row++) {
        double logp = 0, ratio = 0;
        for (int64_t i = row * T; i < (row + 1) * T; i++) {
            logp += r->in[1][i] != 0 ? r->in[0][i] : 0;
            ratio += r->in[1][i] != 0 ? r->in[0][i] - r->in[3][i] : 0;
        }
        if (r->in[2][row * T] > 0) {
            total[MX_KTO_LOSS] += a->wanted * (1 - s(a->beta * (ratio - kl)));
            total[MX_KTO_WANTED]++;
            total[MX_KTO_WANTED_REWARD] += a->beta * ratio;
            total[MX_KTO_WANTED_LOGP] += logp;
        } else {
            total[MX_KTO_LOSS] += a->unwanted * (1 - s(a->beta * (kl - ratio)));
            total[MX_KTO_UNWANTED]++;
            total[MX_KTO_UNWANTED_REWARD] += a->beta * ratio;
            total[MX_KTO_UNWANTED_LOGP] += logp;
        }
    }
    r->out[0][0] = total[MX_KTO_LOSS];
}

// clang-format off
#define USUAL .beta = 0.1, .wanted = 1, .unwanted = 1
#define SMALL "f6,9:logp0.7 i6,9:flags0.3 f6,9 f6,9:logp0.7 f"
const OpTest test_kto = {
    CASES(
        {"usual", ATTR(MxKtoAttr, USUAL), SMALL, NULL, 0},
        {"weights", ATTR(MxKtoAttr, .beta = 0.5, .wanted = 1.33, .unwanted = 0.8), SMALL, NULL, 0},
        {"nothing counts", ATTR(MxKtoAttr, USUAL), "f6,9:logp0.7 i6,9:flags1 f6,9 f6,9:logp0.7 f", NULL, CASE_NO_SLOPE},
        {"large", ATTR(MxKtoAttr, USUAL), "f74,1031:logp0.7 i74,1031:flags0.3 f74,1031 f74,1031:logp0.7 f", NULL, CASE_NO_SLOPE},
        {NULL, ATTR(MxKtoAttr, USUAL), "f4,5:logp0.7 i4,5 f4,5 f4,5:logp0.7 f", "f f7", 0},
        {NULL, ATTR(MxKtoAttr, USUAL), "f8,8:logp0.7 i8,8:flags0.3 f8,8 f8,8:logp0.7 f", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxKtoAttr, 0), "f4,5 i4,6 f4,5 f4,5 f", "weights must have the log-probabilities' shape"},
        {ATTR(MxKtoAttr, 0), "b4,5 i4,5 b4,5 b4,5 f", "input 0 must be float32 of rank 2"},
        {ATTR(MxKtoAttr, 0), "f4,5 f4,5 f4,5 f4,5 f", "input 1 must be int32 of rank 2"},
        {ATTR(MxKtoAttr, 0), "f4,5 i4,5 f4,6 f4,5 f", "inputs 0 and 2 must have one type"},
        {ATTR(MxKtoAttr, 0), "f4,5 i4,5 f4,5 f4,6 f", "inputs 0 and 3 must have one type"},
        {ATTR(MxKtoAttr, 0), "f4,5 i4,5 f4,5 f4,5 f1", "input 4 must be float32 of rank 0"}),
    .reference = ref_kto,
    .flows = 1 << 0,
};

const OpTest test_kto_grad = {
    WRONG(
        {ATTR(MxKtoAttr, 0), "f4,5 i4,5 f4,5 f4,5 f f1", "input 5 must be float32 of rank 0"}),
    .forward = &op_kto,
    .wrt = {0},
};
// clang-format on
