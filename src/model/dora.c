/* dora.c — adapters that change directions alone: the magnitude of each output, the norm of its
 * weights, is a parameter of its own (lora.use_dora). A kernel W with the adapter A B counts as
 * (W + A B scale) m / |W + A B scale|, the norm over the inputs. No gradient flows to the norm.
 * Source: DoRA (Liu et al. 2024), 4.3; peft 0.21, tuners/lora/dora.py. */
#include <mx/model.h>

#include "adapter.h"

/* The kernel as a matrix, in float32. One in few bits is made floats here, so that few kernels are
 * floats at a time. A cast of the parameter itself would be kept beside it, as casts to the dtype
 * of computation are (mx_hoist_casts). */
static MxValue matrix(MxTrace *t, const MxLeaf *leaf, MxValue kernel) {
    MxShape flat = MX_SHAPE(1, 1);
    MxQuantized few;
    if (mx_is_quantized(t, kernel, &few))
        kernel = mx_dequantized(t, few.codes, few.scales,
                                (MxQuantAttr){.dtype = MX_F32, .quant = few.quant});
    for (int d = 0; d < leaf->shape.rank; d++)
        flat.dim[d >= leaf->n_contract] *= leaf->shape.dim[d];
    return mx_cast(t, mx_detach(t, mx_reshape(t, kernel, flat)), MX_F32);
}

static MxValue sum_squares(MxTrace *t, MxValue x_KN) {
    return mx_sum_dim(t, x_KN, (MxSumDimAttr){.dim = 0, .squares = true});
}

/* m / |W + A B scale|, f32 [N]. It is in no region of rematerialisation: of little size, it is kept
 * for the backward pass instead of what it is made of. The matrix is made for it: sums of W^2, 2 W
 * A B scale and (A B scale)^2, which need no such matrix, would lose what is left where an adapter
 * cancels most of its weights. */
static MxValue factors(const Pass *p, int kernel, const Adapter *adapter) {
    MxTrace *t = p->t;
    MxTimesAttr by = {.dim = MX_NONE, .factor = MX_FACTOR_INVERSE_ROOT};
    int region = t->region;
    t->region = 0;
    MxValue w_KN = matrix(t, &p->model->params.leaves[kernel], p->params[kernel]);
    MxValue a_KR = mx_cast(t, p->params[adapter->a], MX_F32);
    MxValue b_RN = mx_scale(t, mx_cast(t, p->params[adapter->b], MX_F32), p->model->lora.scale);
    MxValue squares_N = sum_squares(t, mx_add(t, mx_dot(t, a_KR, b_RN, MX_DOT_NN, 1), w_KN));
    MxValue factors_N = mx_times(t, mx_cast(t, p->params[adapter->m], MX_F32), squares_N, by);
    t->region = region;
    return factors_N;
}

MxValue mx_model_factors(MxTrace *t, const MxModel *model, const MxValue *params, int kernel) {
    Pass pass = {.t = t, .model = model, .params = params};
    return factors(&pass, kernel, &model->adapters[kernel]);
}

const MxModel *mx_model_with_factors(MxArena *arena, const MxModel *model) {
    MxModel *made = mx_new(arena, MxModel);
    *made = *model;
    made->has_factors = true;
    return made;
}

MxValue model_magnify(const Pass *p, int kernel, MxValue y_N) {
    const Adapter *adapter = model_adapter(p, kernel);
    if (adapter->m < 0) return y_N;
    bool has_factors = p->model->has_factors;
    MxValue factors_N = has_factors ? p->params[adapter->m] : factors(p, kernel, adapter);
    return mx_multiply(p->t, y_N, factors_N);
}

int mx_model_magnitude(const MxModel *model, int param) {
    return model->adapters ? model->adapters[param].m : -1;
}

/* x / sqrt(x) is the root of x. */
MxValue mx_model_norms(MxTrace *t, const MxModel *model, const MxValue *params, int kernel) {
    MxTimesAttr by = {.dim = MX_NONE, .factor = MX_FACTOR_INVERSE_ROOT};
    MxValue squares_N = sum_squares(t, matrix(t, &model->params.leaves[kernel], params[kernel]));
    return mx_times(t, squares_N, squares_N, by);
}
