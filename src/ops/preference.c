/* preference.c — losses of pairs of responses: the available algorithms, and the rules of the op.
 * The formulas are in the kernels. */
#include <mx/ops.h>

#include "internal.h"

// clang-format off
const MxPreferenceRow mx_preferences[MX_PREFERENCE_COUNT] = {
    [MX_PREFERENCE_DPO]          = {"dpo",          .has_reference = true, .has_maxtext = true, .has_others = true},
    [MX_PREFERENCE_SIGMOID_NORM] = {"sigmoid_norm", .has_reference = true, .averages = true, .has_others = true},
    [MX_PREFERENCE_HINGE]        = {"hinge",        .has_reference = true, .has_others = true},
    [MX_PREFERENCE_IPO]          = {"ipo",          .has_reference = true, .averages = true, .has_others = true},
    [MX_PREFERENCE_ROBUST]       = {"robust",       .has_reference = true, .has_others = true},
    [MX_PREFERENCE_EXO_PAIR]     = {"exo_pair",     .has_reference = true, .has_others = true},
    [MX_PREFERENCE_NCA_PAIR]     = {"nca_pair",     .has_reference = true},
    [MX_PREFERENCE_BCO_PAIR]     = {"bco_pair",     .has_reference = true},
    [MX_PREFERENCE_SPPO_HARD]    = {"sppo_hard",    .has_reference = true},
    [MX_PREFERENCE_APO_ZERO]     = {"apo_zero",     .has_reference = true},
    [MX_PREFERENCE_APO_DOWN]     = {"apo_down",     .has_reference = true},
    [MX_PREFERENCE_DISCOPOP]     = {"discopop",     .has_reference = true, .has_others = true},
    [MX_PREFERENCE_AOT]          = {"aot",          .has_reference = true, .sorts = MX_SORTS_MARGINS},
    [MX_PREFERENCE_AOT_UNPAIRED] = {"aot_unpaired", .has_reference = true, .sorts = MX_SORTS_RESPONSES},
    [MX_PREFERENCE_ORPO]         = {"orpo",         .averages = true, .has_maxtext = true},
    [MX_PREFERENCE_SIMPO]        = {"simpo",        .averages = true, .has_others = true},
    [MX_PREFERENCE_SFT]          = {"sft",          .by_token = true},
    [MX_PREFERENCE_REWARD]       = {"reward",       .has_scores = true},
};

const char *const mx_formula_names[MX_FORMULA_COUNT] = {
    [MX_FORMULA_STANDARD] = "standard",
    [MX_FORMULA_MAXTEXT]  = "maxtext",
};

const char *const mx_divergence_names[MX_DIVERGENCE_COUNT] = {
    [MX_DIVERGENCE_REVERSE] = "reverse_kl",
    [MX_DIVERGENCE_FORWARD] = "forward_kl",
    [MX_DIVERGENCE_JS]      = "js_divergence",
    [MX_DIVERGENCE_ALPHA]   = "alpha_divergence",
};
// clang-format on

bool mx_preference_compares(const MxPreferenceAttr *attr) {
    return mx_preferences[attr->algo].has_reference && !attr->no_reference;
}

MxValue mx_preference(MxTrace *t, MxValue logp, MxValue ref_logp, MxValue weights, MxValue segments,
                      MxPreferenceAttr attr) {
    MxValue in[] = {logp, weights, segments, ref_logp};
    return mx_trace_node(t, &op_preference, in, ref_logp == MX_NONE ? 3 : 4, &attr);
}

/* ---- shapes */

/* Inputs are logp, weights, segments, the reference if there is one, and `more`. */
static bool check(MxInfer *infer, int more) {
    const MxPreferenceAttr *attr = infer->attr;
    const MxPreferenceRow *row = &mx_preferences[attr->algo];
    bool compares = mx_preference_compares(attr);
    int n = 3 + more + compares;
    if (infer->n_in != n)
        return mx_infer_fail(infer, "%s takes %d inputs, not %d", row->name, n, infer->n_in);
    if (!ops_is(infer, 0, MX_F32, 2) || !ops_is(infer, 1, MX_I32, 2)) return false;
    MxShape shape = infer->in[0].shape;
    if (shape.dim[0] % 2) return mx_infer_fail(infer, "rows must come in pairs");
    if (!mx_shape_equal(shape, infer->in[1].shape))
        return mx_infer_fail(infer, "weights must have the log-probabilities' shape");
    if (!ops_same_type(infer, 1, 2)) return false;
    if (compares && !ops_same_type(infer, 0, 3)) return false;
    if (attr->formula == MX_FORMULA_MAXTEXT && !row->has_maxtext)
        return mx_infer_fail(infer, "MaxText has no %s", row->name);
    if (attr->divergence && (!row->has_others || attr->formula == MX_FORMULA_MAXTEXT))
        return mx_infer_fail(infer, "%s has no %s", row->name,
                             mx_divergence_names[attr->divergence]);
    return true;
}

/* Values that a formula divides by or takes the logarithm of. */
static bool check_values(MxInfer *infer) {
    const MxPreferenceAttr *attr = infer->attr;
    double e = attr->label_smoothing;
    bool divides_by_beta = attr->algo == MX_PREFERENCE_IPO || attr->algo == MX_PREFERENCE_SPPO_HARD;
    if (divides_by_beta && attr->beta <= 0)
        return mx_infer_fail(infer, "beta must be more than 0, not %g", attr->beta);
    if (attr->algo == MX_PREFERENCE_DISCOPOP && attr->tau <= 0)
        return mx_infer_fail(infer, "tau must be more than 0, not %g", attr->tau);
    if (attr->tail_cut < 0 || attr->tail_cut > 1)
        return mx_infer_fail(infer, "tail_cut must be between 0 and 1, not %g", attr->tail_cut);
    if (attr->algo == MX_PREFERENCE_ROBUST && e >= 0.5)
        return mx_infer_fail(infer, "label smoothing must be less than 0.5, not %g", e);
    if (attr->algo == MX_PREFERENCE_EXO_PAIR && (e <= 0 || e >= 1))
        return mx_infer_fail(infer, "label smoothing must be between 0 and 1, not %g", e);
    return true;
}

static bool preference_infer(MxInfer *infer) {
    infer->n_out = 3;
    infer->out[0] = (MxType){MX_F32, MX_SCALAR};
    infer->out[1] = (MxType){MX_F32, MX_SHAPE(MX_PAIRS_COUNT)};
    infer->out[2] = (MxType){MX_F32, MX_SHAPE(MX_EXTREMES_COUNT)};
    return check(infer, 0) && check_values(infer);
}

static void preference_vjp(const MxVjp *v) {
    const MxPreferenceAttr *attr = v->attr;
    bool has_reference = mx_preference_compares(attr);
    MxValue in[] = {v->in[0], v->in[1], v->in[2], has_reference ? v->in[3] : v->dy[0], v->dy[0]};
    v->dx[0] = mx_trace_node(v->t, &op_preference_grad, in, 4 + has_reference, attr);
    for (int i = 1; i < 3 + has_reference; i++) v->dx[i] = MX_NONE;
}

static void preference_print(MxText *text, const void *attr) {
    const MxPreferenceAttr *a = attr;
    mx_text_add(text, "%s %s beta %g", mx_preferences[a->algo].name, mx_formula_names[a->formula],
                a->beta);
    if (a->divergence) mx_text_add(text, " %s", mx_divergence_names[a->divergence]);
    if (a->tail_cut > 0) mx_text_add(text, " tail_cut %g", a->tail_cut);
    if (a->no_reference) mx_text_add(text, " without reference");
}

const MxOp op_preference = {
    .name = "preference",
    .arity = -1,
    .no_gradient = 1 << 1 | 1 << 2,
    .accumulates = 3,
    .attr_bytes = sizeof(MxPreferenceAttr),
    .infer = preference_infer,
    .vjp = preference_vjp,
    .print = preference_print,
    .doc = "loss of pairs of responses, and sums over pairs for the log",
};

static bool preference_grad_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    return check(infer, 1) && check_values(infer) && ops_is(infer, infer->n_in - 1, MX_F32, 0);
}

const MxOp op_preference_grad = {
    .name = "preference_grad",
    .arity = -1,
    .attr_bytes = sizeof(MxPreferenceAttr),
    .infer = preference_grad_infer,
    .print = preference_print,
    .doc = "dlogp from preference's inputs and the cotangent of its loss",
};
