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

/* How many inputs there are without those of a gradient. */
static int n_inputs(const MxPreferenceAttr *attr) {
    return 3 + mx_preference_compares(attr) + attr->weighs;
}

MxValue mx_preference(MxTrace *t, MxPairInputs given, MxPreferenceAttr attr) {
    MxValue in[5] = {given.logp, given.weights, given.segments};
    int n = 3;
    if (given.reference != MX_NONE) in[n++] = given.reference;
    if (given.alignment != MX_NONE) in[n++] = given.alignment;
    return mx_trace_node(t, &op_preference, in, n, &attr);
}

/* ---- shapes */

/* Inputs are logp, weights, segments, the reference and the alignment if there is one, and `more`.
 */
static bool check(MxInfer *infer, int more) {
    const MxPreferenceAttr *attr = infer->attr;
    const MxPreferenceRow *row = &mx_preferences[attr->algo];
    int n = n_inputs(attr) + more;
    if (infer->n_in != n)
        return mx_infer_fail(infer, "%s takes %d inputs, not %d", row->name, n, infer->n_in);
    if (!ops_is(infer, 0, MX_F32, 2) || !ops_is(infer, 1, MX_I32, 2)) return false;
    MxShape shape = infer->in[0].shape;
    if (shape.dim[0] % 2) return mx_infer_fail(infer, "rows must come in pairs");
    if (!mx_shape_equal(shape, infer->in[1].shape))
        return mx_infer_fail(infer, "weights must have the log-probabilities' shape");
    if (!ops_same_type(infer, 1, 2)) return false;
    for (int i = 3; i < n_inputs(attr); i++)
        if (!ops_same_type(infer, 0, i)) return false;
    if (attr->weighs && row->sorts)
        return mx_infer_fail(infer, "%s has no weights of pairs", row->name);
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
    MxValue in[6];
    for (int i = 0; i < v->n_in; i++) in[i] = v->in[i];
    in[v->n_in] = v->dy[0];
    v->dx[0] = mx_trace_node(v->t, &op_preference_grad, in, v->n_in + 1, v->attr);
    for (int i = 1; i < v->n_in; i++) v->dx[i] = MX_NONE;
}

static void preference_print(MxText *text, const void *attr) {
    const MxPreferenceAttr *a = attr;
    mx_text_add(text, "%s %s beta %g", mx_preferences[a->algo].name, mx_formula_names[a->formula],
                a->beta);
    if (a->divergence) mx_text_add(text, " %s", mx_divergence_names[a->divergence]);
    if (a->tail_cut > 0) mx_text_add(text, " tail_cut %g", a->tail_cut);
    if (a->weighs) mx_text_add(text, " weighed");
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
