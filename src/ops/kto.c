/* kto.c — the KTO loss on desirable and undesirable responses: the rules of the op. The formula is
 * in the kernels. */
#include <mx/ops.h>

#include "internal.h"

enum { LOGP, WEIGHTS, LABELS, REFERENCE, KL, FIXED };

MxValue mx_kto(MxTrace *t, MxLogps logp, MxValue weights, MxValue labels, MxValue kl,
               MxKtoAttr attr) {
    MxValue in[] = {logp.policy, weights, labels, logp.reference, kl};
    return mx_trace_node(t, &op_kto, in, FIXED, &attr);
}

static bool check(MxInfer *infer) {
    if (!ops_is(infer, LOGP, MX_F32, 2) || !ops_is(infer, WEIGHTS, MX_I32, 2)) return false;
    if (!mx_shape_equal(infer->in[LOGP].shape, infer->in[WEIGHTS].shape))
        return mx_infer_fail(infer, "weights must have the log-probabilities' shape");
    return ops_same_type(infer, LOGP, LABELS) && ops_same_type(infer, LOGP, REFERENCE) &&
           ops_is(infer, KL, MX_F32, 0);
}

static bool kto_infer(MxInfer *infer) {
    infer->n_out = 2;
    infer->out[0] = (MxType){MX_F32, MX_SCALAR};
    infer->out[1] = (MxType){MX_F32, MX_SHAPE(MX_KTO_COUNT)};
    return check(infer);
}

static void kto_vjp(const MxVjp *v) {
    MxValue in[FIXED + 1];
    for (int i = 0; i < FIXED; i++) in[i] = v->in[i];
    in[FIXED] = v->dy[0];
    v->dx[0] = mx_trace_node(v->t, &op_kto_grad, in, FIXED + 1, v->attr);
    for (int i = 1; i < FIXED; i++) v->dx[i] = MX_NONE;
}

static void kto_print(MxText *text, const void *attr) {
    const MxKtoAttr *a = attr;
    mx_text_add(text, "beta %g wanted %g unwanted %g", a->beta, a->wanted, a->unwanted);
}

const MxOp op_kto = {
    .name = "kto",
    .arity = FIXED,
    .no_gradient = 1 << 1,
    .accumulates = 3,
    .attr_bytes = sizeof(MxKtoAttr),
    .infer = kto_infer,
    .vjp = kto_vjp,
    .print = kto_print,
    .doc = "loss of responses that are wanted or not, and sums over them for "
           "the log",
};

static bool kto_grad_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    return check(infer) && ops_is(infer, FIXED, MX_F32, 0);
}

const MxOp op_kto_grad = {
    .name = "kto_grad",
    .arity = FIXED + 1,
    .attr_bytes = sizeof(MxKtoAttr),
    .infer = kto_grad_infer,
    .print = kto_print,
    .doc = "dlogp from kto's inputs and the cotangent of its loss",
};
