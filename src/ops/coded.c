/* coded.c — products whose operands are rounded to few numbers: pruning, encoding, and the product,
 * whose gradients are such products too. A code and its scale represent a value; gradients are
 * those of the values, as if nothing had been rounded. */
#include <mx/ops.h>

#include "internal.h"

/* ---- encode */

enum { CODES, SCALES, MAGNITUDES, ENCODED };

MxCoded mx_encode(MxTrace *t, MxValue x, MxValue factor, MxEncodeAttr attr) {
    MxValue codes =
        mx_trace_node(t, &op_encode, (MxValue[]){x, factor}, factor == MX_NONE ? 1 : 2, &attr);
    return (MxCoded){codes, codes < 0 ? MX_NONE : codes + SCALES, mx_trace_type(t, x).dtype};
}

/* One dim at a time, so that ranks may have parts of any of them; nobody reads the codes. */
MxValue mx_magnitude(MxTrace *t, MxValue x) {
    MxEncodeAttr attr = {.coding = {MX_GRID_INT8, {MX_ABSMAX, 1}}, .n_contract = 1};
    if (mx_trace_type(t, x).shape.rank == 0) x = mx_reshape(t, x, MX_SHAPE(1));
    while (x >= 0 && mx_trace_type(t, x).shape.rank) {
        MxCoded coded = mx_encode(t, x, MX_NONE, attr);
        x = coded.codes < 0 ? MX_NONE : coded.codes + MAGNITUDES;
    }
    return x;
}

/* n dims of a shape from one on. */
static MxShape dims_of(MxShape shape, int from, int n) {
    MxShape dims = {.rank = n};
    for (int i = 0; i < n; i++) dims.dim[i] = shape.dim[from + i];
    return dims;
}

static int first_contracted(const MxEncodeAttr *attr, MxShape x) {
    return attr->leads ? 0 : x.rank - attr->n_contract;
}

static int first_free(const MxEncodeAttr *attr) {
    return attr->leads ? attr->n_contract : 0;
}

static MxShape scales_of(const MxEncodeAttr *attr, MxShape x) {
    return dims_of(x, first_free(attr), x.rank - attr->n_contract);
}

static bool encode_infer(MxInfer *infer) {
    const MxEncodeAttr *attr = infer->attr;
    MxShape x = infer->in[0].shape;
    if (!ops_is_real(infer, 0)) return false;
    if (attr->n_contract < 1 || attr->n_contract > x.rank)
        return mx_infer_fail(infer, "cannot contract %d dims", attr->n_contract);
    MxShape contracted = dims_of(x, first_contracted(attr, x), attr->n_contract);
    if (infer->n_in > 1 && !ops_is(infer, 1, MX_F32, -1)) return false;
    if (infer->n_in > 1 && !mx_shape_equal(infer->in[1].shape, contracted))
        return mx_infer_fail(infer, "factor must have the dims that are contracted");
    if (!(attr->coding.calibration.by > 0))
        return mx_infer_fail(infer, "calibration wants a number above 0, not %g",
                             (double)attr->coding.calibration.by);
    infer->n_out = ENCODED;
    infer->out[CODES] = infer->in[0];
    if (mx_grids[attr->coding.grid].is_whole) infer->out[CODES].dtype = MX_I8;
    infer->out[SCALES] = infer->out[MAGNITUDES] = (MxType){MX_F32, scales_of(attr, x)};
    return true;
}

static void encode_vjp(const MxVjp *v) {
    const MxEncodeAttr *attr = v->attr;
    for (int i = 0; i < v->n_in; i++) v->dx[i] = MX_NONE;
    v->dx[0] = v->dy[CODES];
    if (mx_calibration_cuts(attr->coding.calibration))
        v->dx[0] = mx_within(v->t, v->dy[CODES], v->in[0], v->out[MAGNITUDES], *attr);
}

enum { JOINED }; /* the first factor: of the first dim that is contracted */

static void encode_cut(MxFactors *f) {
    const MxEncodeAttr *attr = f->attr;
    int k = first_contracted(attr, f->in[0].shape), from = first_free(attr);
    f->joined = f->in_dim[0][k] = f->out_dim[0][k] = ops_new_factor(f);
    f->joins = 1 << SCALES | 1 << MAGNITUDES;
    f->joined_bytes = (double)mx_shape_count(f->out[SCALES].shape) * sizeof(float);
    if (f->n_in > 1) f->in_dim[1][0] = JOINED;
    for (int i = 0; i < f->out[SCALES].shape.rank; i++) {
        f->in_dim[0][from + i] = f->out_dim[CODES][from + i] = ops_new_factor(f);
        f->out_dim[SCALES][i] = f->out_dim[MAGNITUDES][i] = f->in_dim[0][from + i];
    }
}

static void take_group(const MxShare *share, void *attr) {
    if (share->is_cut[JOINED]) ((MxEncodeAttr *)attr)->group = share->group[JOINED];
}

static const MxGroup *exchange_scales(const MxMachine *machine, const MxNode *node,
                                      const MxType *in, MxCommCost *cost) {
    const MxEncodeAttr *attr = node->attr;
    (void)machine;
    if (attr->group.size <= 1 || attr->coding.calibration.measure == MX_FIXED) return NULL;
    int64_t bytes = mx_shape_count(scales_of(attr, in[0].shape)) * (int64_t)sizeof(float);
    *cost = (MxCommCost){.calls = 1, .bytes = (attr->group.size - 1) * bytes};
    return &attr->group;
}

static void encode_print(MxText *text, const void *attr) {
    const MxEncodeAttr *a = attr;
    mx_text_add(text, "%s %s %d %s %g", mx_grids[a->coding.grid].name, a->leads ? "first" : "last",
                a->n_contract, mx_calibration_name(a->coding.calibration.measure),
                (double)a->coding.calibration.by);
}

const MxOp op_encode = {
    .name = "encode",
    .arity = 1,
    .optional = 1,
    .attr_bytes = sizeof(MxEncodeAttr),
    .infer = encode_infer,
    .vjp = encode_vjp,
    .partition = encode_cut,
    .localize = take_group,
    .exchange = exchange_scales,
    .print = encode_print,
    .doc = "numbers of a grid, and a scale for all that a product contracts",
};

/* ---- within */

MxValue mx_within(MxTrace *t, MxValue y, MxValue x, MxValue most, MxEncodeAttr attr) {
    return mx_trace_node(t, &op_within, (MxValue[]){y, x, most}, 3, &attr);
}

static bool within_infer(MxInfer *infer) {
    const MxEncodeAttr *attr = infer->attr;
    MxShape x = infer->in[1].shape;
    if (!ops_is_real(infer, 0) || !ops_is_real(infer, 1) || !ops_is(infer, 2, MX_F32, -1))
        return false;
    if (!mx_shape_equal(infer->in[0].shape, x))
        return mx_infer_fail(infer, "both arrays must have one shape");
    if (attr->n_contract < 1 || attr->n_contract > x.rank)
        return mx_infer_fail(infer, "cannot contract %d dims", attr->n_contract);
    if (!mx_shape_equal(infer->in[2].shape, scales_of(attr, x)))
        return mx_infer_fail(infer, "magnitudes must be one for all that is contracted");
    infer->out[0] = infer->in[0];
    return true;
}

static void within_cut(MxFactors *f) {
    const MxEncodeAttr *attr = f->attr;
    int from = first_free(attr);
    for (int d = 0; d < f->in[0].shape.rank; d++)
        f->in_dim[0][d] = f->in_dim[1][d] = f->out_dim[0][d] = ops_new_factor(f);
    for (int i = 0; i < f->in[2].shape.rank; i++) f->in_dim[2][i] = f->out_dim[0][from + i];
}

static void within_print(MxText *text, const void *attr) {
    const MxEncodeAttr *a = attr;
    mx_text_add(text, "%s %d", a->leads ? "first" : "last", a->n_contract);
}

const MxOp op_within = {
    .name = "within",
    .arity = 3,
    .inplace = 1,
    .attr_bytes = sizeof(MxEncodeAttr),
    .infer = within_infer,
    .partition = within_cut,
    .print = within_print,
    .doc = "an array where another's magnitudes are not above a bound, else 0",
};

/* ---- prune */

static MxValue prune(MxTrace *t, MxValue y, MxValue x, MxPruneAttr attr) {
    return mx_trace_node(t, &op_prune, (MxValue[]){y, x}, 2, &attr);
}

MxValue mx_prune(MxTrace *t, MxValue w, int64_t n, int64_t m) {
    MxShape shape = mx_trace_type(t, w).shape, groups = shape;
    int last = shape.rank - 1;
    if (w < 0) return w;
    if (shape.dim[last] % m) groups = MX_SHAPE(mx_shape_count(shape)), last = 0;
    groups.dim[last] /= m;
    groups.dim[groups.rank++] = m;
    w = mx_reshape(t, w, groups);
    return mx_reshape(t, prune(t, w, w, (MxPruneAttr){n}), shape);
}

static bool prune_infer(MxInfer *infer) {
    const MxPruneAttr *attr = infer->attr;
    MxShape x = infer->in[1].shape;
    if (!ops_is_real(infer, 0) || !ops_is_real(infer, 1)) return false;
    if (!mx_shape_equal(infer->in[0].shape, x))
        return mx_infer_fail(infer, "both arrays must have one shape");
    int64_t width = x.rank ? x.dim[x.rank - 1] : 0;
    if (attr->n < 1 || attr->n > width || width > MX_MOST_PRUNED)
        return mx_infer_fail(infer, "cannot keep %lld of %lld", (long long)attr->n,
                             (long long)width);
    infer->out[0] = infer->in[0];
    return true;
}

static void prune_vjp(const MxVjp *v) {
    v->dx[0] = prune(v->t, v->dy[0], v->in[1], *(const MxPruneAttr *)v->attr);
    v->dx[1] = MX_NONE;
}

static void prune_cut(MxFactors *f) {
    int rows = f->out[0].shape.rank - 1;
    ops_cut_lead(f, rows, 3);
    for (int d = 0; d < rows; d++) f->out_dim[0][d] = f->in_dim[0][d];
}

static void prune_print(MxText *text, const void *attr) {
    mx_text_add(text, "%lld", (long long)((const MxPruneAttr *)attr)->n);
}

const MxOp op_prune = {
    .name = "prune",
    .arity = 2,
    .attr_bytes = sizeof(MxPruneAttr),
    .infer = prune_infer,
    .vjp = prune_vjp,
    .partition = prune_cut,
    .print = prune_print,
    .doc = "an array where another's magnitudes are among the largest of their row, else 0",
};

/* ---- products */

static MxValue product(MxTrace *t, const MxValue *in, int n_in, MxCodedDotAttr attr) {
    return mx_trace_node(t, &op_coded_dot, in, n_in, &attr);
}

MxValue mx_coded_dot(MxTrace *t, MxCoded x, MxCoded w, int n_contract, MxCoding to_x,
                     MxCoding to_w) {
    MxCodedDotAttr attr = {.dot = {.dtype = x.dtype, .n_contract = n_contract},
                           .rows = true,
                           .columns = true,
                           .to_x = to_x,
                           .to_w = to_w,
                           .values = x.dtype};
    return product(t, (MxValue[]){x.codes, w.codes, x.scales, w.scales}, 4, attr);
}

static bool are_scales(MxInfer *infer, int i, MxShape of) {
    return ops_is(infer, i, MX_F32, -1) &&
           (mx_shape_equal(infer->in[i].shape, of) ||
            mx_infer_fail(infer, "scales must be one for each row, or column, of the result"));
}

static bool coded_dot_infer(MxInfer *infer) {
    const MxCodedDotAttr *attr = infer->attr;
    MxType operands[] = {infer->in[0], infer->in[1]};
    bool are_whole = operands[0].dtype == MX_I8 && operands[1].dtype == MX_I8;
    if (are_whole) operands[0].dtype = operands[1].dtype = MX_F32;
    MxInfer dot = {.in = operands, .n_in = 2, .attr = &attr->dot, .message = infer->message};
    if (!ops_infer_dot(&dot)) return false;
    infer->out[0] = dot.out[0];
    if (infer->n_in != 2 + attr->rows + attr->columns)
        return mx_infer_fail(infer, "wants %d inputs", 2 + attr->rows + attr->columns);
    MxShape out = infer->out[0].shape;
    int m = infer->in[0].shape.rank - attr->dot.n_contract;
    return (!attr->rows || are_scales(infer, 2, dims_of(out, 0, m))) &&
           (!attr->columns || are_scales(infer, 2 + attr->rows, dims_of(out, m, out.rank - m)));
}

static void coded_dot_vjp(const MxVjp *v) {
    const MxCodedDotAttr *attr = v->attr;
    MxTrace *t = v->t;
    MxValue x = v->in[0], w = v->in[1];
    MX_ASSERT(attr->dot.kind == MX_DOT_NN && attr->rows && attr->columns);
    MxDtype dtype = mx_trace_type(t, x).dtype;
    if (dtype == MX_I8) dtype = attr->values;
    MxValue dy = mx_cast(t, v->dy[0], dtype);
    int m = mx_trace_type(t, x).shape.rank - attr->dot.n_contract;
    int n = mx_trace_type(t, w).shape.rank - attr->dot.n_contract;
    for (int i = 0; i < v->n_in; i++) v->dx[i] = MX_NONE;
    if (v->needs[0]) {
        MxCoded g =
            mx_encode(t, dy, v->in[3], (MxEncodeAttr){.coding = attr->to_x, .n_contract = n});
        MxCodedDotAttr nt = {.dot = {dtype, MX_DOT_NT, .n_contract = n}, .rows = true};
        v->dx[0] = product(t, (MxValue[]){g.codes, w, g.scales}, 3, nt);
    }
    if (v->needs[1]) {
        MxEncodeAttr columns = {.coding = attr->to_w, .n_contract = m, .leads = true};
        MxCoded g = mx_encode(t, dy, v->in[2], columns);
        MxCodedDotAttr tn = {.dot = {dtype, MX_DOT_TN, .n_contract = m}, .columns = true};
        v->dx[1] = product(t, (MxValue[]){x, g.codes, g.scales}, 3, tn);
    }
}

static void coded_dot_cut(MxFactors *f) {
    const MxCodedDotAttr *attr = f->attr;
    int m = f->in[0].shape.rank - attr->dot.n_contract, n = f->out[0].shape.rank - m;
    ops_cut_dot(f);
    for (int i = 0; attr->rows && i < m; i++) f->in_dim[2][i] = f->out_dim[0][i];
    for (int i = 0; attr->columns && i < n; i++)
        f->in_dim[2 + attr->rows][i] = f->out_dim[0][m + i];
}

static void coded_dot_print(MxText *text, const void *attr) {
    const MxCodedDotAttr *a = attr;
    ops_print_dot(text, attr);
    mx_text_add(text, "%s%s", a->rows ? " rows" : "", a->columns ? " columns" : "");
}

const MxOp op_coded_dot = {
    .name = "coded_dot",
    .arity = 2,
    .optional = 2,
    .flags = MX_OP_CAST_FOLDS | MX_OP_IS_KEPT,
    .accumulates = 1,
    .attr_bytes = sizeof(MxCodedDotAttr),
    .infer = coded_dot_infer,
    .vjp = coded_dot_vjp,
    .partition = coded_dot_cut,
    .flops = ops_dot_flops,
    .print = coded_dot_print,
    .doc = "matrix product of codes, times the scales of both",
};
