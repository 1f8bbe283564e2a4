/* quant.c — weights in few bits: quantising, dequantising, and products that read the codes. If
 * ranks have parts of a weight, blocks stay whole: a dim is cut only where weight, codes and scales
 * can all be cut. */
#include <mx/ops.h>

#include "internal.h"

/* Codes and scales (inputs `at` and at + 1) of an array; its shape. */
static bool array_of(MxInfer *infer, int at, MxQuant quant, MxShape *out) {
    if (!ops_is(infer, at, MX_U8, -1) || !ops_is(infer, at + 1, MX_F32, -1)) return false;
    MxArena arena = {.name = "message"};
    MxShape shape = *out = mx_quant_shape(quant, infer->in[at].shape);
    const char *why = mx_quant_why_not(&arena, quant, shape);
    bool ok = !why || mx_infer_fail(infer, "%s", why);
    mx_arena_release(&arena);
    if (!ok) return false;
    return mx_shape_equal(infer->in[at + 1].shape, mx_quant_scales(quant, shape)) ||
           mx_infer_fail(infer, "scales must be one a block");
}

/* A factor for each dim, of array, codes and scales alike. */
static void cut_alike(MxFactors *f) {
    for (int d = 0; d < f->in[0].shape.rank; d++) {
        int factor = ops_new_factor(f);
        for (int i = 0; i < f->n_in; i++) f->in_dim[i][d] = factor;
        for (int i = 0; i < f->n_out; i++) f->out_dim[i][d] = factor;
    }
}

static void print_quant(MxText *text, MxQuant quant) {
    mx_text_add(text, "%s %lld dim %d", mx_qtype_name(quant.type), (long long)quant.tile,
                quant.dim);
}

/* ---- quantize */

MxValue mx_quantized(MxTrace *t, MxValue x, MxQuant quant) {
    MxQuantAttr attr = {.dtype = MX_F32, .quant = quant};
    return mx_trace_node(t, &op_quantize, &x, 1, &attr);
}

static bool quantize_infer(MxInfer *infer) {
    MxQuant quant = ((const MxQuantAttr *)infer->attr)->quant;
    if (!ops_is(infer, 0, MX_F32, -1)) return false;
    MxArena arena = {.name = "message"};
    const char *why = mx_quant_why_not(&arena, quant, infer->in[0].shape);
    bool ok = !why || mx_infer_fail(infer, "%s", why);
    mx_arena_release(&arena);
    if (!ok) return false;
    infer->n_out = 2;
    infer->out[0] = (MxType){MX_U8, mx_quant_codes(quant, infer->in[0].shape)};
    infer->out[1] = (MxType){MX_F32, mx_quant_scales(quant, infer->in[0].shape)};
    return true;
}

static void quantize_print(MxText *text, const void *attr) {
    print_quant(text, ((const MxQuantAttr *)attr)->quant);
}

const MxOp op_quantize = {
    .name = "quantize",
    .arity = 1,
    .attr_bytes = sizeof(MxQuantAttr),
    .infer = quantize_infer,
    .partition = cut_alike,
    .print = quantize_print,
    .doc = "codes and scales of blocks",
};

/* ---- dequantize */

MxValue mx_dequantized(MxTrace *t, MxValue codes, MxValue scales, MxQuantAttr attr) {
    return mx_trace_node(t, &op_dequantize, (MxValue[]){codes, scales}, 2, &attr);
}

static bool dequantize_infer(MxInfer *infer) {
    const MxQuantAttr *attr = infer->attr;
    infer->out[0].dtype = attr->dtype;
    return array_of(infer, 0, attr->quant, &infer->out[0].shape);
}

static void dequantize_print(MxText *text, const void *attr) {
    const MxQuantAttr *a = attr;
    print_quant(text, a->quant);
    mx_text_add(text, " %s", mx_dtype_name(a->dtype));
}

const MxOp op_dequantize = {
    .name = "dequantize",
    .arity = 2,
    .attr_bytes = sizeof(MxQuantAttr),
    .infer = dequantize_infer,
    .partition = cut_alike,
    .print = dequantize_print,
    .doc = "values of codes times the scales of their blocks",
};

/* ---- products */

bool mx_is_quantized(const MxTrace *t, MxValue value, MxQuantized *out) {
    const MxNode *made = value < 0 ? NULL : mx_graph_producer(t->graph, value);
    if (!made || made->op != &op_dequantize) return false;
    MxQuant quant = ((const MxQuantAttr *)made->attr)->quant;
    *out = (MxQuantized){.codes = made->in[0], .scales = made->in[1], .quant = quant};
    return true;
}

MxValue mx_quant_dot(MxTrace *t, MxValue x, MxQuantized w, MxDotKind kind, int n_contract) {
    MxQuantDotAttr attr = {
        .dot = {.dtype = mx_trace_type(t, x).dtype, .kind = kind, .n_contract = n_contract},
        .quant = w.quant};
    return mx_trace_node(t, &op_quant_dot, (MxValue[]){x, w.codes, w.scales}, 3, &attr);
}

static bool quant_dot_infer(MxInfer *infer) {
    const MxQuantDotAttr *attr = infer->attr;
    MxType operands[] = {infer->in[0], {.dtype = infer->in[0].dtype}};
    if (!array_of(infer, 1, attr->quant, &operands[1].shape)) return false;
    int c = attr->dot.n_contract, rows = attr->quant.dim + 1;
    bool fits = attr->dot.kind == MX_DOT_NN   ? c == rows
                : attr->dot.kind == MX_DOT_NT ? c == operands[1].shape.rank - rows
                                              : false;
    if (!fits)
        return mx_infer_fail(infer, "what is contracted must be the weight's rows or columns");
    MxInfer dot = {.in = operands, .n_in = 2, .attr = &attr->dot, .message = infer->message};
    if (!ops_infer_dot(&dot)) return false;
    infer->out[0] = dot.out[0];
    return true;
}

/* The gradient with respect to x is a product with the same weight, the other way. */
static void quant_dot_vjp(const MxVjp *v) {
    const MxQuantDotAttr *attr = v->attr;
    MxQuantized w = {.codes = v->in[1], .scales = v->in[2], .quant = attr->quant};
    MxValue dy = mx_cast(v->t, v->dy[0], mx_trace_type(v->t, v->in[0]).dtype);
    int n = mx_trace_type(v->t, w.codes).shape.rank - attr->dot.n_contract;
    MxDotKind back = attr->dot.kind == MX_DOT_NN ? MX_DOT_NT : MX_DOT_NN;
    v->dx[0] = v->needs[0] ? mx_quant_dot(v->t, dy, w, back, n) : MX_NONE;
    v->dx[1] = v->dx[2] = MX_NONE;
}

/* As a product's; codes and scales are cut as the weight. */
static void quant_dot_cut(MxFactors *f) {
    const MxDotAttr *attr = &((const MxQuantDotAttr *)f->attr)->dot;
    int c = attr->n_contract, m = f->in[0].shape.rank - c, n = f->in[1].shape.rank - c;
    bool is_turned = attr->kind == MX_DOT_NT;
    int k_at = is_turned ? n : 0, n_at = is_turned ? 0 : c;
    for (int i = 0; i < c; i++)
        f->in_dim[0][m + i] = f->in_dim[1][k_at + i] = f->in_dim[2][k_at + i] = ops_new_factor(f);
    for (int i = 0; i < m; i++) f->in_dim[0][i] = f->out_dim[0][i] = ops_new_factor(f);
    for (int i = 0; i < n; i++)
        f->in_dim[1][n_at + i] = f->in_dim[2][n_at + i] = f->out_dim[0][m + i] = ops_new_factor(f);
}

static double quant_dot_flops(const MxType *in, const MxType *out, const void *attr) {
    const MxQuantDotAttr *a = attr;
    (void)out;
    MxDotSizes s = mx_dot_sizes(in[0].shape, mx_quant_shape(a->quant, in[1].shape), &a->dot);
    return 2.0 * (double)s.m * (double)s.n * (double)s.k;
}

static void quant_dot_print(MxText *text, const void *attr) {
    const MxQuantDotAttr *a = attr;
    mx_text_add(text, "%s %d %s ", a->dot.kind == MX_DOT_NN ? "nn" : "nt", a->dot.n_contract,
                mx_dtype_name(a->dot.dtype));
    print_quant(text, a->quant);
}

const MxOp op_quant_dot = {
    .name = "quant_dot",
    .arity = 3,
    .flags = MX_OP_CAST_FOLDS | MX_OP_IS_KEPT,
    .attr_bytes = sizeof(MxQuantDotAttr),
    .infer = quant_dot_infer,
    .vjp = quant_dot_vjp,
    .partition = quant_dot_cut,
    .flops = quant_dot_flops,
    .print = quant_dot_print,
    .doc = "matrix product with a weight that is kept as codes",
};
