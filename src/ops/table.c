/* table.c — all op rows in the order of ops.def, and code shared by the shape rules. */
#include <mx/ops.h>

#include "internal.h"

const MxOp *const mx_ops[MX_OP_COUNT] = {
#define MX_OP(symbol) [MX_OP_##symbol] = &op_##symbol,
#include <mx/ops.def>
#undef MX_OP
};

int mx_op_index(const MxOp *op) {
    int i = 0;
    while (i < MX_OP_COUNT && mx_ops[i] != op) i++;
    MX_ASSERT(i < MX_OP_COUNT);
    return i;
}

bool ops_infer_same(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    return ops_is_real(infer, 0);
}

bool ops_same_type(MxInfer *infer, int a, int b) {
    if (infer->in[a].dtype == infer->in[b].dtype &&
        mx_shape_equal(infer->in[a].shape, infer->in[b].shape))
        return true;
    return mx_infer_fail(infer, "inputs %d and %d must have one type", a, b);
}

bool ops_is_real(MxInfer *infer, int i) {
    if (infer->in[i].dtype == MX_F32 || infer->in[i].dtype == MX_BF16) return true;
    return mx_infer_fail(infer, "input %d must be float32 or bfloat16", i);
}

bool ops_is(MxInfer *infer, int i, MxDtype dtype, int rank) {
    if (infer->in[i].dtype == dtype && (rank < 0 || infer->in[i].shape.rank == rank)) return true;
    return mx_infer_fail(infer, "input %d must be %s of rank %d", i, mx_dtype_name(dtype), rank);
}
