/* embed.c — rows of a table. */
#include "cases.h"

#include <math.h>

static void ref_embed(const Reference *r) {
    int64_t width = r->in_type[0].shape.dim[1], rows = r->in_type[0].shape.dim[0];
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) {
        int64_t row = (int64_t)r->in[1][i / width] - ((const MxEmbedAttr *)r->attr)->first_id;
        r->out[0][i] = row >= 0 && row < rows ? r->in[0][row * width + i % width] : 0;
    }
}

static void ref_embed_grad(const Reference *r) {
    int64_t width = r->out_type[0].shape.dim[1];
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++) r->out[0][i] = 0;
    const MxEmbedGradAttr *attr = r->attr;
    for (int64_t i = 0; i < element_count(r->in_type[1]); i++) {
        int64_t row = (int64_t)r->in[0][i / width] - attr->first_id;
        if (row >= 0 && row < attr->vocab) r->out[0][row * width + i % width] += r->in[1][i];
    }
}

static void ref_row_ids(const Reference *r) {
    int64_t width = r->in_type[0].shape.dim[1];
    for (int64_t i = 0; i < element_count(r->out_type[0]); i++)
        r->out[0][i] = r->in[0][(int64_t)r->in[1][i / width] * width + i % width];
}

// clang-format off
const OpTest test_row_ids = {
    CASES(
        {"rows", NULL, "f23,7:ids40 i3,19:ids23", NULL, 0},
        {"of ranks", NULL, "f8,4:ids9 i8,16:ids8", NULL, CASE_RANKS}),
    WRONG(
        {NULL, "i9,4 i2,5", "input 0 must be float32 or bfloat16"},
        {NULL, "f9 i2,5", "input 0 must be float32 of rank 2"},
        {NULL, "f9,4 f2,5", "input 1 must be int32 of rank 2"}),
    .reference = ref_row_ids,
};

const OpTest test_embed = {
    CASES(
        {"rows", ATTR(MxEmbedAttr, 0), "f23,37 i3,19:ids23", NULL, CASE_FOLLOWS},
        {"large", ATTR(MxEmbedAttr, 0), "f301,137 i5,101:ids301", NULL, CASE_FOLLOWS},
        {"some have none", ATTR(MxEmbedAttr, 0), "f23,37 i3,19:none23", NULL, CASE_FOLLOWS},
        {"part of the rows", ATTR(MxEmbedAttr, .n_parts = 3, .first_id = 11), "f11,37 i3,19:ids33", NULL, CASE_FOLLOWS | CASE_NO_SLOPE},
        {NULL, ATTR(MxEmbedAttr, .dtype = MX_BF16), "f9,4 i2,5", "b2,5,4", 0},
        {NULL, ATTR(MxEmbedAttr, .dtype = MX_F32), "f9,4 i2,5", "f2,5,4", 0},
        {"table of the same dtype", ATTR(MxEmbedAttr, 0), "x23,37 i3,19:ids23", NULL, CASE_FOLLOWS},
        {"widened or as it is", ATTR(MxEmbedAttr, .dtype = MX_F32), "x23,37 i3,19:ids23", NULL, 0},
        {NULL, ATTR(MxEmbedAttr, .dtype = MX_F32), "f8,16 i8,16:none8", NULL, CASE_RANKS},
        {NULL, ATTR(MxEmbedAttr, .dtype = MX_BF16), "f16,8 i8,4:ids8", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxEmbedAttr, .dtype = MX_F32), "i9,4 i2,5", "input 0 must be float32 or bfloat16"},
        {ATTR(MxEmbedAttr, .dtype = MX_F32), "f9 i2,5", "input 0 must be float32 of rank 2"},
        {ATTR(MxEmbedAttr, .dtype = MX_F32), "f9,4 i5", "input 1 must be int32 of rank 2"},
        {ATTR(MxEmbedAttr, .dtype = MX_F32), "f9,4 f2,5", "input 1 must be int32 of rank 2"}),
    .reference = ref_embed,
    .flows = 1 << 0,
};

const OpTest test_embed_grad = {
    CASES(
        {"rows", ATTR(MxEmbedGradAttr, .vocab = 23), "i3,19:ids23 x3,19,37", NULL, 0},
        {"some have none", ATTR(MxEmbedGradAttr, .vocab = 23), "i3,19:none23 x3,19,37", NULL, 0},
        {"large", ATTR(MxEmbedGradAttr, .vocab = 1001), "i5,201:ids1001 x5,201,1031", NULL, 0},
        {"part of the rows", ATTR(MxEmbedGradAttr, .vocab = 11, .first_id = 6), "i3,19:ids23 x3,19,37", NULL, 0},
        {NULL, ATTR(MxEmbedGradAttr, .vocab = 9), "i2,5 b2,5,4", "f9,4", 0},
        {NULL, ATTR(MxEmbedGradAttr, .vocab = 8), "i8,16:ids8 f8,16,8", NULL, CASE_RANKS}),
    WRONG(
        {ATTR(MxEmbedGradAttr, .vocab = 9), "i5 f2,5,4", "input 0 must be int32 of rank 2"},
        {ATTR(MxEmbedGradAttr, .vocab = 9), "i2,5 i2,5,4", "input 1 must be float32 or bfloat16"},
        {ATTR(MxEmbedGradAttr, .vocab = 9), "i2,5 f2,4,4", "dy must be [B, T, D]"},
        {ATTR(MxEmbedGradAttr, .vocab = 9), "i2,5 f2,5", "dy must be [B, T, D]"}),
    .reference = ref_embed_grad,
};
// clang-format on
