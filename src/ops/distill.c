/* distill.c — distillation of logits and features from a teacher. */
#include <mx/ops.h>

#include "internal.h"

/* Inputs; those of the student stand where mx_xent has them. */
enum { H, W, TARGETS, WEIGHTS, TEACHER_H, TEACHER_W, NUMBERS, DLOSS };

MxValue mx_distill(MxTrace *t, MxHead student, MxHead teacher, MxValue targets, MxValue weights,
                   MxValue numbers) {
    MxDistillAttr attr = {student.attr, teacher.attr};
    MxValue in[] = {student.h, student.w, targets, weights, teacher.h, teacher.w, numbers};
    attr.student.dtype = mx_trace_type(t, student.w).dtype;
    return mx_trace_node(t, &op_distill, in, MX_COUNT(in), &attr);
}

static int64_t vocab_of(MxShape w, MxXentAttr attr) {
    return w.dim[attr.tied ? 0 : 1];
}

static bool check_teacher(MxInfer *infer) {
    const MxDistillAttr *attr = infer->attr;
    MxShape h = infer->in[H].shape, h_t = infer->in[TEACHER_H].shape;
    MxShape w = infer->in[W].shape, w_t = infer->in[TEACHER_W].shape;
    if (!ops_is_real(infer, TEACHER_H) ||
        !ops_is(infer, TEACHER_W, infer->in[TEACHER_H].dtype, 2) ||
        !ops_is(infer, NUMBERS, MX_F32, 1))
        return false;
    if (h_t.rank != h.rank || memcmp(h_t.dim, h.dim, (size_t)(h.rank - 1) * sizeof *h.dim))
        return mx_infer_fail(infer, "the teacher must have h's leading dims");
    if (w_t.dim[attr->teacher.tied ? 1 : 0] != h_t.dim[h_t.rank - 1])
        return mx_infer_fail(infer, "the teacher's w must have its h's last dim");
    if (vocab_of(w_t, attr->teacher) != vocab_of(w, attr->student))
        return mx_infer_fail(infer, "both must have one vocabulary");
    return infer->in[NUMBERS].shape.dim[0] == MX_DISTILL_NUMBERS ||
           mx_infer_fail(infer, "numbers must be %d", MX_DISTILL_NUMBERS);
}

static bool check(MxInfer *infer) {
    const MxDistillAttr *attr = infer->attr;
    if (attr->student.z_loss != 0 || attr->teacher.z_loss != 0)
        return mx_infer_fail(infer, "distillation has no z-loss");
    return ops_check_logits(infer, WEIGHTS) && check_teacher(infer);
}

void ops_distill_infer(MxInfer *infer) {
    infer->n_out = 2;
    infer->out[0] = (MxType){MX_F32, MX_SCALAR};
    infer->out[1] = (MxType){MX_F32, MX_SHAPE(MX_DISTILL_SUMS)};
}

static bool distill_infer(MxInfer *infer) {
    ops_distill_infer(infer);
    return check(infer);
}

void ops_distill_vjp(const MxVjp *v, const MxOp *gradient) {
    MxValue in[DLOSS + 1];
    memcpy(in, v->in, DLOSS * sizeof *in);
    in[DLOSS] = v->dy[0];
    MxValue dw = mx_trace_node(v->t, gradient, in, MX_COUNT(in), v->attr);
    for (int i = 0; i < v->n_in; i++) v->dx[i] = MX_NONE;
    v->dx[H] = dw < 0 ? MX_NONE : dw + 1;
    v->dx[W] = dw;
}

static void distill_vjp(const MxVjp *v) {
    ops_distill_vjp(v, &op_distill_grad);
}

static double distill_flops(const MxType *in, const MxType *out, const void *attr) {
    return ops_logits_flops(in, out, attr) + 2.0 * (double)mx_shape_count(in[TARGETS].shape) *
                                                 (double)mx_shape_count(in[TEACHER_W].shape);
}

static double distill_grad_flops(const MxType *in, const MxType *out, const void *attr) {
    return distill_flops(in, out, attr) + 2 * ops_logits_flops(in, out, attr);
}

/* Tokens can be cut; of the vocabulary every rank has all. */
static void distill_cut(MxFactors *f) {
    ops_cut_lead(f, f->in[H].shape.rank - 1, 1 << H | 1 << TARGETS | 1 << WEIGHTS | 1 << TEACHER_H);
}

const MxOp op_distill = {
    .name = "distill",
    .arity = DLOSS,
    .no_gradient = 1 << 1,
    .attr_bytes = sizeof(MxDistillAttr),
    .infer = distill_infer,
    .vjp = distill_vjp,
    .partition = distill_cut,
    .flops = distill_flops,
    .doc = "loss of a student beside a teacher, and its sums",
};

static bool distill_grad_infer(MxInfer *infer) {
    const MxDistillAttr *attr = infer->attr;
    infer->n_out = 4;
    infer->out[0] = (MxType){attr->student.dtype, infer->in[W].shape};
    infer->out[1] = infer->in[H];
    infer->out[2] = (MxType){MX_F32, MX_SCALAR};
    infer->out[3] = (MxType){MX_F32, MX_SHAPE(MX_DISTILL_SUMS)};
    return check(infer) && ops_is(infer, DLOSS, MX_F32, 0);
}

static void distill_grad_cut(MxFactors *f) {
    distill_cut(f);
    memcpy(f->out_dim[1], f->in_dim[H], sizeof f->out_dim[1]);
}

static bool is_same_loss(const void *own, const void *other) {
    const MxDistillAttr *a = own, *b = other;
    return ops_is_same_loss(&a->student, &b->student) && ops_is_same_loss(&a->teacher, &b->teacher);
}

const MxOp op_distill_grad = {
    .name = "distill_grad",
    .arity = DLOSS + 1,
    .flags = MX_OP_CAST_FOLDS,
    .accumulates = 1,
    .attr_bytes = sizeof(MxDistillAttr),
    .infer = distill_grad_infer,
    .partition = distill_grad_cut,
    .flops = distill_grad_flops,
    .also = {.op = &op_distill, .at = 2, .is_same = is_same_loss},
    .doc =
        "dw and dh of the student, distill's loss and sums in one pass, from distill's inputs and "
        "the cotangent of its loss",
};

/* ---- features */

enum { X, Y, TOKEN_WEIGHTS, BETA, DDISTANCE };

MxValue mx_feature(MxTrace *t, MxValue x, MxValue y, MxValue weights, MxValue numbers,
                   MxFeatureAttr attr) {
    return mx_trace_node(t, &op_feature, (MxValue[]){x, y, weights, numbers}, DDISTANCE, &attr);
}

static bool check_features(MxInfer *infer) {
    MxShape x = infer->in[X].shape, weights = infer->in[TOKEN_WEIGHTS].shape;
    if (!x.rank) return mx_infer_fail(infer, "x must have a last dim");
    if (!ops_is_real(infer, X) || !ops_is_real(infer, Y) ||
        !ops_is(infer, TOKEN_WEIGHTS, MX_I32, x.rank - 1) || !ops_is(infer, BETA, MX_F32, 1))
        return false;
    if (!mx_shape_equal(x, infer->in[Y].shape))
        return mx_infer_fail(infer, "y must have x's shape");
    if (memcmp(weights.dim, x.dim, (size_t)weights.rank * sizeof *x.dim))
        return mx_infer_fail(infer, "weights must have x's leading dims");
    return infer->in[BETA].shape.dim[0] == MX_DISTILL_NUMBERS ||
           mx_infer_fail(infer, "numbers must be %d", MX_DISTILL_NUMBERS);
}

static bool feature_infer(MxInfer *infer) {
    infer->out[0] = (MxType){MX_F32, MX_SCALAR};
    return check_features(infer);
}

static void feature_vjp(const MxVjp *v) {
    MxValue in[] = {v->in[X], v->in[Y], v->in[TOKEN_WEIGHTS], v->in[BETA], v->dy[0]};
    for (int i = 0; i < v->n_in; i++) v->dx[i] = MX_NONE;
    v->dx[X] = mx_trace_node(v->t, &op_feature_grad, in, MX_COUNT(in), v->attr);
}

static void feature_cut(MxFactors *f) {
    ops_cut_lead(f, f->in[X].shape.rank - 1, 1 << X | 1 << Y | 1 << TOKEN_WEIGHTS);
}

static void feature_print(MxText *text, const void *attr) {
    mx_text_add(text, "%s", ((const MxFeatureAttr *)attr)->is_cosine ? "cosine" : "l2");
}

const MxOp op_feature = {
    .name = "feature",
    .arity = DDISTANCE,
    .attr_bytes = sizeof(MxFeatureAttr),
    .infer = feature_infer,
    .vjp = feature_vjp,
    .partition = feature_cut,
    .print = feature_print,
    .doc = "weighted sum of distances of features from a teacher's",
};

static bool feature_grad_infer(MxInfer *infer) {
    infer->out[0] = infer->in[X];
    return check_features(infer) && ops_is(infer, DDISTANCE, MX_F32, 0);
}

static void feature_grad_cut(MxFactors *f) {
    feature_cut(f);
    memcpy(f->out_dim[0], f->in_dim[X], sizeof f->out_dim[0]);
}

const MxOp op_feature_grad = {
    .name = "feature_grad",
    .arity = DDISTANCE + 1,
    .attr_bytes = sizeof(MxFeatureAttr),
    .infer = feature_grad_infer,
    .partition = feature_grad_cut,
    .print = feature_print,
    .doc = "dx from feature's inputs and the cotangent of its sum",
};
