/* policy.c — losses of rewarded responses: the rules of the op. The formulas are in the kernels. */
#include <mx/ops.h>

#include "internal.h"

enum { LOGP, WEIGHTS, ADVANTAGES, OLD, FIXED, MOST_INPUTS = FIXED + 2 };

static int count_inputs(const MxPolicyAttr *attr) {
    return FIXED + attr->has_reference + attr->has_kept;
}

MxValue mx_policy(MxTrace *t, MxLogps logp, MxValue weights, MxValue advantages, MxValue kept,
                  MxPolicyAttr attr) {
    MxValue old = logp.old == MX_NONE ? logp.policy : logp.old;
    MxValue in[MOST_INPUTS] = {logp.policy, weights, advantages, old, logp.reference};
    attr.has_reference = logp.reference != MX_NONE;
    attr.has_kept = kept != MX_NONE;
    if (attr.has_kept) in[FIXED + attr.has_reference] = kept;
    return mx_trace_node(t, &op_policy, in, count_inputs(&attr), &attr);
}

static bool check(MxInfer *infer, int more) {
    const MxPolicyAttr *attr = infer->attr;
    int n = count_inputs(attr);
    if (infer->n_in != n + more)
        return mx_infer_fail(infer, "takes %d inputs, not %d", n + more, infer->n_in);
    if (!ops_is(infer, LOGP, MX_F32, 2) || !ops_is(infer, WEIGHTS, MX_I32, 2)) return false;
    if (!mx_shape_equal(infer->in[LOGP].shape, infer->in[WEIGHTS].shape))
        return mx_infer_fail(infer, "weights must have the log-probabilities' shape");
    for (int i = ADVANTAGES; i < n; i++)
        if (!ops_same_type(infer, LOGP, i)) return false;
    if (attr->low < 0 || attr->high < 0)
        return mx_infer_fail(infer, "bounds must not be below 0, but are %g and %g", attr->low,
                             attr->high);
    if (attr->trust == MX_TRUST_WEIGHT && attr->ratio == MX_RATIO_SUM)
        return mx_infer_fail(infer, "weights are not of sums");
    if (attr->trust == MX_TRUST_GATE && (attr->rise <= 0 || attr->fall <= 0))
        return mx_infer_fail(infer, "temperatures must be above 0, but are %g and %g", attr->rise,
                             attr->fall);
    return true;
}

static bool policy_infer(MxInfer *infer) {
    infer->n_out = 2;
    infer->out[0] = (MxType){MX_F32, MX_SCALAR};
    infer->out[1] = (MxType){MX_F32, MX_SHAPE(MX_POLICY_COUNT)};
    return check(infer, 0);
}

static void policy_vjp(const MxVjp *v) {
    int n = count_inputs(v->attr);
    MxValue in[MOST_INPUTS + 1];
    for (int i = 0; i < n; i++) in[i] = v->in[i];
    in[n] = v->dy[0];
    v->dx[0] = mx_trace_node(v->t, &op_policy_grad, in, n + 1, v->attr);
    for (int i = 1; i < n; i++) v->dx[i] = MX_NONE;
}

static void policy_print(MxText *text, const void *attr) {
    static const char *const ratios[] = {"token", "mean", "sum"};
    static const char *const trusts[] = {"clip", "weight", "gate", "gamma"};
    static const char *const divergences[] = {"low_var", "plain", "square"};
    const MxPolicyAttr *a = attr;
    mx_text_add(text, "%s %s %s low %g high %g beta %g %s", trusts[a->trust], ratios[a->ratio],
                a->sums ? "sums" : "means", a->low, a->high, a->beta, divergences[a->kl]);
}

const MxOp op_policy = {
    .name = "policy",
    .arity = -1,
    .no_gradient = 1 << 1,
    .accumulates = 3,
    .attr_bytes = sizeof(MxPolicyAttr),
    .infer = policy_infer,
    .vjp = policy_vjp,
    .print = policy_print,
    .doc = "loss of responses by their advantages, and sums over them for the log",
};

static bool policy_grad_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    return check(infer, 1) && ops_is(infer, infer->n_in - 1, MX_F32, 0);
}

const MxOp op_policy_grad = {
    .name = "policy_grad",
    .arity = -1,
    .attr_bytes = sizeof(MxPolicyAttr),
    .infer = policy_grad_infer,
    .print = policy_print,
    .doc = "dlogp from policy's inputs and the cotangent of its loss",
};

/* ---- the upper tokens, of all ranks together */

MxValue mx_upper_tokens(MxTrace *t, MxValue x, MxValue weights, MxUpperAttr attr) {
    return mx_trace_node(t, &op_upper_tokens, (MxValue[]){x, weights}, 2, &attr);
}

static bool upper_infer(MxInfer *infer) {
    const MxUpperAttr *attr = infer->attr;
    infer->out[0] = infer->in[0];
    if (!ops_is(infer, 0, MX_F32, 2) || !ops_is(infer, 1, MX_I32, 2)) return false;
    if (!mx_shape_equal(infer->in[0].shape, infer->in[1].shape))
        return mx_infer_fail(infer, "weights must have x's shape");
    return (attr->share >= 0 && attr->share <= 1) ||
           mx_infer_fail(infer, "a share must be from 0 to 1, but is %g", attr->share);
}

static void upper_print(MxText *text, const void *attr) {
    mx_text_add(text, "share %g", ((const MxUpperAttr *)attr)->share);
}

const MxOp op_upper_tokens = {
    .name = "upper_tokens",
    .arity = 2,
    .flags = MX_OP_CONSTANT,
    .attr_bytes = sizeof(MxUpperAttr),
    .infer = upper_infer,
    .print = upper_print,
    .doc = "weights of the tokens whose numbers are in the upper share of all, 0 for the others",
};
