/* slots.c — rows to the slots of experts and back. */
#include "cases.h"

/* The slot of choice i among those of its row of the batch; -1 = none. */
static int64_t slot_of(const Reference *r, int64_t i) {
    const MxSlotsAttr *a = r->attr;
    MxShape ids = r->in_type[1].shape;
    int64_t row = ids.dim[1] * ids.dim[2], before = 0, e = (int64_t)r->in[1][i];
    for (int64_t j = i / row * row; j < i; j++) before += (int64_t)r->in[1][j] == e;
    if (e < 0 || before >= a->capacity) return -1;
    return (i / row * a->n_experts + e) * a->capacity + before;
}

static int64_t width_of(const Reference *r) {
    MxShape x = r->in_type[0].shape;
    return x.dim[x.rank - 1];
}

static void ref_to_slots(const Reference *r) {
    MxShape x = r->in_type[0].shape, ids = r->in_type[1].shape;
    int64_t width = width_of(r);
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) r->out[0][i] = 0;
    for (int64_t i = 0; i < element_count(r->out_type[1]); i++) r->out[1][i] = -1;
    for (int64_t i = 0; i < mx_shape_count(ids); i++) {
        int64_t to = slot_of(r, i), from = x.rank == ids.rank ? i / ids.dim[2] : i;
        if (to < 0) continue;
        r->out[1][to] = r->in[1][i];
        for (int64_t k = 0; k < width; k++) r->out[0][to * width + k] = r->in[0][from * width + k];
    }
}

static void ref_from_slots(const Reference *r) {
    const MxSlotsAttr *a = r->attr;
    MxShape ids = r->in_type[1].shape;
    int64_t width = width_of(r);
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) r->out[0][i] = 0;
    for (int64_t i = 0; i < mx_shape_count(ids); i++) {
        int64_t from = slot_of(r, i), to = a->sums ? i / ids.dim[2] : i;
        for (int64_t k = 0; from >= 0 && k < width; k++)
            r->out[0][to * width + k] += r->in[0][from * width + k];
    }
}

// clang-format off
#define SLOTS(n, each, ...) ATTR(MxSlotsAttr, .n_experts = n, .capacity = each, __VA_ARGS__)

const OpTest test_to_slots = {
    CASES(
        {"a row a token", SLOTS(4, 3, .sums = false), "x3,5,7 i3,5,2:ids4", NULL, 0},
        {"a row a choice", SLOTS(4, 3, .sums = false), "x3,5,2,7 i3,5,2:ids4", NULL, 0},
        {"room for all", SLOTS(3, 10, .sums = false), "x3,5,7 i3,5,2:ids3", NULL, 0},
        {"no room", SLOTS(3, 0, .sums = false), "x3,5,7 i3,5,2:ids3", NULL, CASE_NO_SLOPE},
        {"no expert", SLOTS(3, 2, .sums = false), "x2,5,7 i2,5,2:none3", NULL, 0},
        {"large", SLOTS(8, 300, .sums = false), "x3,501,33 i3,501,2:ids8", NULL, 0},
        {NULL, SLOTS(8, 100, .sums = false), "x3,501,40 i3,501,2:ids8", NULL, CASE_NO_SLOPE},
        {NULL, SLOTS(4, 3, .sums = false), "f3,5,7 i3,5,2", "f3,4,3,7 i3,4,3", 0},
        {NULL, SLOTS(8, 2, .sums = false), "f8,4,16 i8,4,2:ids8", NULL, CASE_RANKS},
        {NULL, SLOTS(8, 2, .sums = false), "b8,4,2,16 i8,4,2:ids8", NULL, CASE_RANKS}),
    WRONG(
        {SLOTS(4, 3, .sums = false), "f3,5,7 i3,5", "input 1 must be int32 of rank 3"},
        {SLOTS(4, 3, .sums = false), "i3,5,7 i3,5,2", "input 0 must be float32 or bfloat16"},
        {SLOTS(4, 3, .sums = false), "f3,4,7 i3,5,2", "x must have a row for each token or choice"},
        {SLOTS(4, 3, .sums = false), "f3,5,3,7 i3,5,2", "x must have a row for each token or choice"}),
    .reference = ref_to_slots,
    .flows = 1 << 0,
};

const OpTest test_from_slots = {
    CASES(
        {"rows of choices", SLOTS(4, 3, .sums = false), "x3,4,3,7 i3,5,2:ids4", NULL, 0},
        {"sums", SLOTS(4, 3, .sums = true), "x3,4,3,7 i3,5,2:ids4", NULL, 0},
        {"no room", SLOTS(3, 0, .sums = true), "x3,3,1,7 i3,5,2:ids3", NULL, CASE_NO_SLOPE},
        {"no expert", SLOTS(3, 2, .sums = true), "x2,3,2,7 i2,5,2:none3", NULL, 0},
        {"large", SLOTS(8, 300, .sums = false), "x3,8,300,33 i3,501,2:ids8", NULL, 0},
        {NULL, SLOTS(8, 100, .sums = true), "x3,8,100,40 i3,501,2:ids8", NULL, CASE_NO_SLOPE},
        {"large, sums", SLOTS(8, 300, .sums = true), "x3,8,300,33 i3,501,2:ids8", NULL, 0},
        {NULL, SLOTS(4, 3, .sums = false), "f3,4,3,7 i3,5,2", "f3,5,2,7", 0},
        {NULL, SLOTS(4, 3, .sums = true), "b3,4,3,7 i3,5,2", "b3,5,7", 0},
        {NULL, SLOTS(8, 2, .sums = true), "f8,8,2,16 i8,4,2:ids8", NULL, CASE_RANKS},
        {NULL, SLOTS(8, 2, .sums = false), "b8,8,2,16 i8,4,2:ids8", NULL, CASE_RANKS}),
    WRONG(
        {SLOTS(4, 3, .sums = false), "f3,4,3,7 i3,5", "input 1 must be int32 of rank 3"},
        {SLOTS(4, 3, .sums = false), "i3,4,3,7 i3,5,2", "input 0 must be float32 or bfloat16"},
        {SLOTS(4, 3, .sums = false), "f3,4,2,7 i3,5,2", "y must have the slots of every expert"},
        {SLOTS(4, 3, .sums = false), "f3,5,3,7 i3,5,2", "y must have the slots of every expert"}),
    .reference = ref_from_slots,
    .flows = 1 << 0,
};
// clang-format on
