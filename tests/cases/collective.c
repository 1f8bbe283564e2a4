/* collective.c — what the ranks of a group make together; here the group is one rank. */
#include "cases.h"

#include <math.h>

static const int first_dims[] = {0, 0, 0}, some_dims[] = {1, 0, 0};

static void ref_copy(const Reference *r) {
    for (int64_t i = 0; i < element_count(r->in_type[0]); i++) r->out[0][i] = r->in[0][i];
}

/* Where element i of a packed array is: in its part, behind the part's earlier elements. */
static int64_t packed_at(MxShape shape, int n_parts, int dim, int64_t i, int64_t stride,
                         int64_t at) {
    int64_t inner = 1, size = dim < shape.rank ? shape.dim[dim] : 1;
    for (int d = dim + 1; d < shape.rank; d++) inner *= shape.dim[d];
    int64_t each = size / n_parts, part = i / inner % size / each;
    int64_t in_part = (i / inner / size * each + i / inner % size % each) * inner + i % inner;
    return part * stride + at + in_part;
}

static void ref_pack(const Reference *r) {
    const MxPackAttr *attr = r->attr;
    int64_t at = 0, stride = r->out_type[0].shape.dim[1];
    for (int k = 0; k < r->n_in; k++) {
        for (int64_t i = 0; i < element_count(r->in_type[k]); i++)
            r->out[0][packed_at(r->in_type[k].shape, attr->n_parts, attr->dim[k], i, stride, at)] =
                r->in[k][i];
        at += element_count(r->in_type[k]) / attr->n_parts;
    }
}

static void ref_unpack(const Reference *r) {
    const MxUnpackAttr *attr = r->attr;
    MxShape in = r->in_type[0].shape;
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++)
        r->out[0][i] =
            r->in[0][packed_at(attr->shape, (int)in.dim[0], attr->dim, i, in.dim[1], attr->at)];
}

// clang-format off
const OpTest test_all_reduce = {
    CASES(
        {"alone", ATTR(MxCollectiveAttr, .group = {.axes = "data", .size = 1}, .cut = 1), "x3,5,71", NULL, 0},
        {NULL, ATTR(MxCollectiveAttr, .group = {.axes = "fsdp", .size = 3}, .cut = 1), "b2,3", "b2,3", CASE_TYPES},
        {NULL, ATTR(MxCollectiveAttr, .group = {.axes = "fsdp", .size = 3}, .cut = 1), "f", "f", CASE_TYPES}),
    WRONG(
        {ATTR(MxCollectiveAttr, .group = {.axes = "fsdp", .size = 3}, .cut = 1), "i2,3", "input 0 must be float32 or bfloat16"}),
    .reference = ref_copy,
};

const OpTest test_reduce_scatter = {
    CASES(
        {"alone", ATTR(MxCollectiveAttr, .group = {.axes = "data", .size = 1}, .cut = 1), "x3,5,71", NULL, 0},
        {NULL, ATTR(MxCollectiveAttr, .group = {.axes = "fsdp", .size = 3}, .cut = 1), "f2,6,5", "f2,2,5", CASE_TYPES}),
    WRONG(
        {ATTR(MxCollectiveAttr, .group = {.axes = "fsdp", .size = 3}, .cut = 1), "f2,5", "3 ranks do not divide dim 1"},
        {ATTR(MxCollectiveAttr, .group = {.axes = "fsdp", .size = 3}, .cut = 1), "f6", "no such dim: 1"},
        {ATTR(MxCollectiveAttr, .group = {.axes = "fsdp", .size = 3}, .cut = 1), "i2,6", "input 0 must be float32 or bfloat16"}),
    .reference = ref_copy,
};

const OpTest test_all_gather = {
    CASES(
        {"alone", ATTR(MxCollectiveAttr, .group = {.axes = "data", .size = 1}, .joined = 1), "x3,5,71", NULL, 0},
        {NULL, ATTR(MxCollectiveAttr, .group = {.axes = "fsdp", .size = 3}, .joined = 1), "i2,6", "i2,18", CASE_TYPES}),
    WRONG(
        {ATTR(MxCollectiveAttr, .group = {.axes = "fsdp", .size = 3}, .joined = 1), "b6", "no such dim: 1"}),
    .reference = ref_copy,
};

const OpTest test_all_to_all = {
    CASES(
        {"alone", ATTR(MxCollectiveAttr, .group = {.axes = "data", .size = 1}, .joined = 1, .cut = 2), "x3,5,71", NULL, 0},
        {NULL, ATTR(MxCollectiveAttr, .group = {.axes = "fsdp", .size = 3}, .joined = 1, .cut = 0), "f6,2", "f2,6", CASE_TYPES}),
    WRONG(
        {ATTR(MxCollectiveAttr, .group = {.axes = "fsdp", .size = 3}, .joined = 1), "f2,6", "3 ranks do not divide dim 0"},
        {ATTR(MxCollectiveAttr, .group = {.axes = "fsdp", .size = 3}, .joined = 2), "f6,6", "no such dim: 2"}),
    .reference = ref_copy,
};

const OpTest test_swap_halves = {
    CASES(
        {"alone", ATTR(MxCollectiveAttr, .group = {.axes = "data", .size = 1}, .cut = 1), "x3,6,71", NULL, 0},
        {"alone, a row", ATTR(MxCollectiveAttr, .group = {.axes = "data", .size = 1}), "i6,5", NULL, 0},
        {NULL, ATTR(MxCollectiveAttr, .group = {.axes = "context", .size = 3}, .cut = 1), "f2,6", "f2,6", CASE_TYPES}),
    WRONG(
        {ATTR(MxCollectiveAttr, .group = {.axes = "context", .size = 3}, .cut = 1), "f2,7", "dim 1 has no halves"},
        {ATTR(MxCollectiveAttr, .group = {.axes = "context", .size = 3}, .cut = 2), "f6,6", "no such dim: 2"}),
    .reference = ref_copy,
};

const OpTest test_ring_shift = {
    CASES(
        {"alone", ATTR(MxCollectiveAttr, .group = {.axes = "data", .size = 1}), "x3,5,71", NULL, 0},
        {NULL, ATTR(MxCollectiveAttr, .group = {.axes = "context", .size = 3}, .places = -2), "b2,7", "b2,7", CASE_TYPES}),
    WRONG(
        {ATTR(MxCollectiveAttr, .group = {.axes = "context", .size = 3}, .places = 3), "f2,7", "3 places in a ring of 3"},
        {ATTR(MxCollectiveAttr, .group = {.axes = "context", .size = 3}, .places = -3), "f2,7", "-3 places in a ring of 3"}),
    .reference = ref_copy,
};

const OpTest test_take_part = {
    CASES(
        {"alone", ATTR(MxCollectiveAttr, .group = {.axes = "data", .size = 1}, .cut = 1), "x3,5,71", NULL, 0},
        {NULL, ATTR(MxCollectiveAttr, .group = {.axes = "fsdp", .size = 3}, .cut = 1), "i2,6", "i2,2", CASE_TYPES}),
    WRONG(
        {ATTR(MxCollectiveAttr, .group = {.axes = "fsdp", .size = 3}, .cut = 1), "f2,7", "3 ranks do not divide dim 1"}),
    .reference = ref_copy,
};

const OpTest test_send = {
    CASES(
        {NULL, ATTR(MxPeerAttr, .group = {.axes = "stage", .size = 2, .ranks = first_dims}, .type = {MX_F32, {2, {2, 3}}}), "f2,3", "i", CASE_TYPES}),
    WRONG(
        {ATTR(MxPeerAttr, .group = {.axes = "stage", .size = 2, .ranks = first_dims}, .type = {MX_F32, {2, {2, 3}}}), "f3,2", "input 0 is not what is to be sent"},
        {ATTR(MxPeerAttr, .group = {.axes = "stage", .size = 2, .ranks = first_dims}, .type = {MX_F32, {2, {2, 3}}}), "b2,3", "input 0 is not what is to be sent"}),
};

const OpTest test_sent = {
    CASES(
        {NULL, ATTR(MxPeerAttr, .group = {.axes = "stage", .size = 2, .ranks = first_dims}, .type = {MX_F32, {2, {2, 3}}}), "i f2,3", "i", CASE_TYPES}),
    WRONG(
        {ATTR(MxPeerAttr, .group = {.axes = "stage", .size = 2, .ranks = first_dims}, .type = {MX_F32, {2, {2, 3}}}), "f f2,3", "input 0 must be int32"}),
};

const OpTest test_receive = {
    CASES(
        {NULL, ATTR(MxPeerAttr, .group = {.axes = "stage", .size = 2, .ranks = first_dims}, .type = {MX_BF16, {2, {2, 3}}}), "", "b2,3", CASE_TYPES}),
};

const OpTest test_pack = {
    CASES(
        {"three parts", ATTR(MxPackAttr, 3, (const int[]){1, 0, 2}), "x2,6 x9 x5,7,12", NULL, 0},
        {"whole", ATTR(MxPackAttr, 1, (const int[]){0, 0}), "x x31,67", NULL, 0},
        {NULL, ATTR(MxPackAttr, .n_parts = 3, .dim = some_dims), "f2,3 f6 f3,4", "f3,8", CASE_TYPES},
        {NULL, ATTR(MxPackAttr, .n_parts = 1, .dim = first_dims), "b2,3 b", "b1,7", 0}),
    WRONG(
        {ATTR(MxPackAttr, .n_parts = 3, .dim = some_dims), "f2,3 b6", "input 1 must have input 0's dtype"},
        {ATTR(MxPackAttr, .n_parts = 3, .dim = some_dims), "f2,3 f7", "3 parts do not divide input 1"}),
    .reference = ref_pack,
};

const OpTest test_unpack = {
    CASES(
        {"three parts", ATTR(MxUnpackAttr, 5, 1, {.rank = 3, .dim = {4, 6, 11}}), "x3,100", NULL, 0},
        {"whole", ATTR(MxUnpackAttr, 7, 0, {.rank = 2, .dim = {41, 31}}), "x1,1300", NULL, 0},
        {NULL, ATTR(MxUnpackAttr, 2, 0, {2, {6, 2}}), "f3,6", "f6,2", 0},
        {NULL, ATTR(MxUnpackAttr, 0, 0, {0, {0}}), "f1,6", "f", 0}),
    WRONG(
        {ATTR(MxUnpackAttr, 2, 0, {2, {6, 2}}), "f3,5", "no such array in 3 parts of 5"},
        {ATTR(MxUnpackAttr, 0, 0, {2, {4, 3}}), "f3,6", "no such array in 3 parts of 6"},
        {ATTR(MxUnpackAttr, 0, 0, {0, {0}}), "f6", "input 0 must have rank 2"}),
    .reference = ref_unpack,
};
// clang-format on
