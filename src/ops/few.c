/* few.c — terms of a sum on their way from rank to rank in fewer bits than float32. An array is cut
 * into parts, one for each rank that gets one, and each part is a row of bytes; whoever gets rows
 * adds them up in float32, in the order of the ranks. What rounding loses stays with the rank that
 * rounded, as an array of its own (error feedback). The partition pass adds these nodes
 * (src/lower/few.c); models do not. */
#include <mx/ops.h>

#include "internal.h"

/* Rows are whole units of 4 bytes, so that scales in them are aligned. */
static int64_t padded(int64_t bytes) {
    const int64_t unit = sizeof(float);
    return (bytes + unit - 1) / unit * unit;
}

int64_t mx_few_bytes(MxDtype wire, int64_t n) {
    int64_t scales = (n + MX_FEW_BLOCK - 1) / MX_FEW_BLOCK;
    if (wire == MX_BF16) return padded(n * (int64_t)sizeof(MxBf16));
    return padded(n) + scales * (int64_t)sizeof(float);
}

int64_t mx_few_part(MxShape shape, int n_parts) {
    return (mx_shape_count(shape) + n_parts - 1) / n_parts;
}

static bool has_parts(MxInfer *infer, int n_parts, int dim) {
    MxShape shape = infer->in[0].shape;
    if (dim == MX_WHOLE || (dim < shape.rank && shape.dim[dim] % n_parts == 0)) return true;
    return mx_infer_fail(infer, "%d parts do not divide dim %d", n_parts, dim);
}

static bool to_few_infer(MxInfer *infer) {
    const MxToFewAttr *attr = infer->attr;
    if (!ops_is(infer, 0, MX_F32, -1) || !has_parts(infer, attr->n_parts, attr->dim)) return false;
    int64_t part = mx_few_part(infer->in[0].shape, attr->n_parts);
    infer->out[0] = (MxType){MX_U8, MX_SHAPE(attr->n_parts, mx_few_bytes(attr->wire, part))};
    infer->out[1] = infer->in[0];
    infer->n_out = 2;
    return true;
}

static bool from_few_infer(MxInfer *infer) {
    const MxFromFewAttr *attr = infer->attr;
    if (!ops_is(infer, 0, MX_U8, 2)) return false;
    MxShape in = infer->in[0].shape;
    int64_t part = mx_few_part(attr->shape, attr->sums ? 1 : (int)in.dim[0]);
    if (mx_few_bytes(attr->wire, part) != in.dim[1])
        return mx_infer_fail(infer, "rows of %lld bytes, not of %lld", (long long)in.dim[1],
                             (long long)mx_few_bytes(attr->wire, part));
    infer->out[0] = (MxType){MX_F32, attr->shape};
    return true;
}

static bool add_part_infer(MxInfer *infer) {
    const MxAddPartAttr *attr = infer->attr;
    if (!ops_is(infer, 0, MX_F32, -1) || !ops_is(infer, 1, MX_F32, -1) ||
        !has_parts(infer, attr->n_parts, attr->dim))
        return false;
    int64_t part = mx_few_part(infer->in[0].shape, attr->n_parts);
    if (mx_shape_count(infer->in[1].shape) != part)
        return mx_infer_fail(infer, "input 1 is not one of %d parts of input 0", attr->n_parts);
    infer->out[0] = infer->in[0];
    return true;
}

static void print_parts(MxText *text, int n_parts, int dim) {
    mx_text_add(text, "parts %d", n_parts);
    if (dim != MX_WHOLE) mx_text_add(text, " dim %d", dim);
}

static void to_few_print(MxText *text, const void *attr) {
    const MxToFewAttr *a = attr;
    mx_text_add(text, "%s ", mx_dtype_name(a->wire));
    print_parts(text, a->n_parts, a->dim);
}

static void from_few_print(MxText *text, const void *attr) {
    const MxFromFewAttr *a = attr;
    mx_text_add(text, "%s %s", mx_dtype_name(a->wire), a->sums ? "sum" : "joined");
}

static void add_part_print(MxText *text, const void *attr) {
    const MxAddPartAttr *a = attr;
    print_parts(text, a->n_parts, a->dim);
}

const MxOp op_to_few = {
    .name = "to_few",
    .arity = 1,
    .attr_bytes = sizeof(MxToFewAttr),
    .infer = to_few_infer,
    .print = to_few_print,
    .doc = "an array's parts in few bits, and what that loses",
};

const MxOp op_from_few = {
    .name = "from_few",
    .arity = 1,
    .attr_bytes = sizeof(MxFromFewAttr),
    .infer = from_few_infer,
    .print = from_few_print,
    .doc = "the sum of parts in few bits, or the array that they make",
};

const MxOp op_add_part = {
    .name = "add_part",
    .arity = 2,
    .inplace = 1,
    .attr_bytes = sizeof(MxAddPartAttr),
    .infer = add_part_infer,
    .print = add_part_print,
    .doc = "an array to one of whose parts another is added",
};
