/* distill_top.c — a teacher's largest logits, and distillation where nothing else is known of it.
 */
#include <mx/ops.h>

#include "internal.h"

/* ---- the largest logits */

MxValue mx_top_logits(MxTrace *t, MxValue h, MxValue w, MxValue weights, MxTopAttr attr) {
    attr.head.dtype = mx_trace_type(t, w).dtype;
    return mx_trace_node(t, &op_top_logits, (MxValue[]){h, w, weights}, 3, &attr);
}

static MxShape with_dim(MxShape shape, int64_t dim) {
    shape.dim[shape.rank++] = dim;
    return shape;
}

static bool top_infer(MxInfer *infer) {
    enum { TOKEN_WEIGHTS = 2 };
    const MxTopAttr *attr = infer->attr;
    if (!ops_check_logits(infer, TOKEN_WEIGHTS)) return false;
    int64_t vocab = infer->in[1].shape.dim[attr->head.tied ? 0 : 1];
    if (attr->k < 1 || attr->k > vocab || attr->k > MX_MOST_TOP)
        return mx_infer_fail(infer, "k must be at least 1, at most the vocabulary and %d",
                             MX_MOST_TOP);
    MxShape shape = with_dim(infer->in[TOKEN_WEIGHTS].shape, attr->k);
    infer->n_out = 2;
    infer->out[0] = (MxType){MX_F32, shape};
    infer->out[1] = (MxType){MX_I32, shape};
    return true;
}

/* Tokens can be cut; of the vocabulary every rank has all. */
static void top_cut(MxFactors *f) {
    ops_cut_lead(f, f->in[0].shape.rank - 1, 1 << 0 | 1 << 2);
    for (int i = 0; i < 2; i++) memcpy(f->out_dim[i], f->in_dim[0], sizeof f->out_dim[i]);
}

static void top_print(MxText *text, const void *attr) {
    mx_text_add(text, "k %lld", (long long)((const MxTopAttr *)attr)->k);
}

const MxOp op_top_logits = {
    .name = "top_logits",
    .arity = 3,
    .flags = MX_OP_CONSTANT,
    .attr_bytes = sizeof(MxTopAttr),
    .infer = top_infer,
    .partition = top_cut,
    .flops = ops_logits_flops,
    .print = top_print,
    .doc = "the largest logits of every token, and their ids",
};

/* ---- the loss */

/* Inputs; those of the student stand where mx_xent has them. */
enum { H, W, TARGETS, WEIGHTS, TOP, IDS, NUMBERS, DLOSS };

MxValue mx_distill_top(MxTrace *t, MxHead student, MxValue top, MxValue ids, MxValue targets,
                       MxValue weights, MxValue numbers) {
    MxValue in[] = {student.h, student.w, targets, weights, top, ids, numbers};
    student.attr.dtype = mx_trace_type(t, student.w).dtype;
    return mx_trace_node(t, &op_distill_top, in, MX_COUNT(in), &student.attr);
}

static bool check(MxInfer *infer) {
    const MxXentAttr *attr = infer->attr;
    MxShape h = infer->in[H].shape, top = infer->in[TOP].shape;
    if (attr->z_loss != 0) return mx_infer_fail(infer, "distillation has no z-loss");
    if (!ops_check_logits(infer, WEIGHTS) || !ops_is(infer, TOP, MX_F32, h.rank) ||
        !ops_is(infer, IDS, MX_I32, h.rank) || !ops_is(infer, NUMBERS, MX_F32, 1))
        return false;
    if (memcmp(top.dim, h.dim, (size_t)(h.rank - 1) * sizeof *h.dim))
        return mx_infer_fail(infer, "the largest logits must have h's leading dims");
    if (!mx_shape_equal(top, infer->in[IDS].shape))
        return mx_infer_fail(infer, "ids must have the shape of their logits");
    if (top.dim[top.rank - 1] > MX_MOST_TOP)
        return mx_infer_fail(infer, "more than %d logits of a token", MX_MOST_TOP);
    return infer->in[NUMBERS].shape.dim[0] == MX_DISTILL_NUMBERS ||
           mx_infer_fail(infer, "numbers must be %d", MX_DISTILL_NUMBERS);
}

static bool loss_infer(MxInfer *infer) {
    ops_distill_infer(infer);
    return check(infer);
}

static void loss_vjp(const MxVjp *v) {
    ops_distill_vjp(v, &op_distill_top_grad);
}

static void loss_cut(MxFactors *f) {
    ops_cut_lead(f, f->in[H].shape.rank - 1,
                 1 << H | 1 << TARGETS | 1 << WEIGHTS | 1 << TOP | 1 << IDS);
}

const MxOp op_distill_top = {
    .name = "distill_top",
    .arity = DLOSS,
    .no_gradient = 1 << 1,
    .attr_bytes = sizeof(MxXentAttr),
    .infer = loss_infer,
    .vjp = loss_vjp,
    .partition = loss_cut,
    .flops = ops_logits_flops,
    .doc = "loss of a student beside a teacher's largest logits, and its sums",
};

static bool grad_infer(MxInfer *infer) {
    infer->n_out = 4;
    infer->out[0] = (MxType){((const MxXentAttr *)infer->attr)->dtype, infer->in[W].shape};
    infer->out[1] = infer->in[H];
    infer->out[2] = (MxType){MX_F32, MX_SCALAR};
    infer->out[3] = (MxType){MX_F32, MX_SHAPE(MX_DISTILL_SUMS)};
    return check(infer) && ops_is(infer, DLOSS, MX_F32, 0);
}

static void grad_cut(MxFactors *f) {
    loss_cut(f);
    memcpy(f->out_dim[1], f->in_dim[H], sizeof f->out_dim[1]);
}

const MxOp op_distill_top_grad = {
    .name = "distill_top_grad",
    .arity = DLOSS + 1,
    .flags = MX_OP_CAST_FOLDS,
    .accumulates = 1,
    .attr_bytes = sizeof(MxXentAttr),
    .infer = grad_infer,
    .partition = grad_cut,
    .flops = ops_logits_grad_flops,
    .also = {.op = &op_distill_top, .at = 2, .is_same = ops_is_same_loss},
    .doc = "dw and dh of the student, distill_top's loss and sums in one pass, from distill_top's "
           "inputs and the cotangent of its loss",
};
