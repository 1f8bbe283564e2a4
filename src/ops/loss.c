/* loss.c — cross-entropy and log-probabilities directly from hidden states, and counting tokens. */
#include <mx/ops.h>

#include "internal.h"

MxValue mx_xent(MxTrace *t, MxValue h, MxValue w, MxValue targets, MxValue weights,
                MxXentAttr attr) {
    attr.dtype = mx_trace_type(t, w).dtype;
    return mx_trace_node(t, &op_xent, (MxValue[]){h, w, targets, weights}, 4, &attr);
}

static int64_t n_tokens(MxShape h) {
    int64_t n = 1;
    for (int d = 0; d < h.rank - 1; d++) n *= h.dim[d];
    return n;
}

bool ops_check_logits(MxInfer *infer, int last) {
    const MxXentAttr *attr = infer->attr;
    MxShape h = infer->in[0].shape, w = infer->in[1].shape;
    if (!h.rank) return mx_infer_fail(infer, "h must have a last dim");
    if (!ops_is_real(infer, 0) || !ops_is(infer, 1, infer->in[0].dtype, 2)) return false;
    if (!ops_is(infer, 2, MX_I32, h.rank - 1) || !ops_is(infer, last, MX_I32, h.rank - 1))
        return false;
    for (int i = 0; i < h.rank - 1; i++)
        if (infer->in[2].shape.dim[i] != h.dim[i] || infer->in[last].shape.dim[i] != h.dim[i])
            return mx_infer_fail(infer, "targets and weights must have h's leading dims");
    if (w.dim[attr->tied ? 1 : 0] == h.dim[h.rank - 1]) return true;
    return mx_infer_fail(infer, "w must have h's last dim");
}

static bool check(MxInfer *infer) {
    return ops_check_logits(infer, 3);
}

static bool xent_infer(MxInfer *infer) {
    infer->n_out = 2;
    infer->out[0] = infer->out[1] = (MxType){MX_F32, MX_SCALAR};
    return check(infer);
}

static void xent_vjp(const MxVjp *v) {
    MxValue in[] = {v->in[0], v->in[1], v->in[2], v->in[3], v->dy[0]};
    MxValue dw = mx_trace_node(v->t, &op_xent_grad, in, MX_COUNT(in), v->attr);
    v->dx[0] = dw < 0 ? MX_NONE : dw + 1;
    v->dx[1] = dw;
    v->dx[2] = v->dx[3] = MX_NONE;
}

double ops_logits_flops(const MxType *in, const MxType *out, const void *attr) {
    (void)out;
    (void)attr;
    MxShape w = in[1].shape;
    double tokens = (double)mx_shape_count(in[2].shape);
    return 2.0 * tokens * (double)w.dim[0] * (double)w.dim[1];
}

double ops_logits_grad_flops(const MxType *in, const MxType *out, const void *attr) {
    enum { PRODUCTS = 3 };
    return PRODUCTS * ops_logits_flops(in, out, attr);
}

/* ---- division: tokens can be cut, and the vocabulary */

enum { VOCAB }; /* the first factor; those of the tokens' dims follow */
enum { H = 1 << 0, TARGETS = 1 << 2, WEIGHTS = 1 << 3 };

static int vocab_dim(const MxXentAttr *attr) {
    return attr->tied ? 0 : 1;
}

static void cut_logits(MxFactors *f, unsigned per_token) {
    f->in_dim[1][vocab_dim(f->attr)] = ops_new_factor(f);
    ops_cut_lead(f, f->in[0].shape.rank - 1, per_token);
}

/* Outputs that sums over the vocabulary are made for: the ranks that have its parts tell each other
 * theirs. */
static void join_logits(MxFactors *f, unsigned outputs) {
    f->joined = VOCAB;
    f->joins = outputs;
    f->joined_bytes = (double)n_tokens(f->in[0].shape) * (double)mx_xent_part_bytes(f->attr);
}

static void take_vocab(const MxShare *share, void *attr) {
    MxXentAttr *a = attr;
    if (!share->is_cut[VOCAB]) return;
    a->group = share->group[VOCAB];
    a->first_id = share->start[VOCAB];
}

static int64_t pieces(int64_t n, int64_t piece) {
    return piece > 0 ? (n + piece - 1) / piece : n;
}

size_t mx_xent_part_bytes(const MxXentAttr *attr) {
    return sizeof(MxXentPart) + (attr->entropy ? sizeof(double) : 0);
}

int64_t mx_xent_chunk(const MxMachine *machine, int64_t tokens, int64_t row_bytes, int64_t tiles) {
    int64_t most = machine->chunk_tokens, tile = pieces(tokens, tiles);
    if (most * row_bytes > machine->chunk_bytes) most = machine->chunk_bytes / row_bytes;
    if (most < machine->chunk_least) most = machine->chunk_least;
    if (most > tile) most = tile;
    int64_t even = pieces(tokens, pieces(tokens, most));
    return even > 0 ? even : 1;
}

static const MxGroup *exchange_parts(const MxMachine *machine, const MxNode *node, const MxType *in,
                                     MxCommCost *cost) {
    const MxXentAttr *attr = node->attr;
    if (attr->group.size <= 1) return NULL;
    int64_t tokens = n_tokens(in[0].shape), vocab = in[1].shape.dim[vocab_dim(attr)];
    int64_t chunk =
        mx_xent_chunk(machine, tokens, vocab * (int64_t)mx_dtype_bytes(in[0].dtype), attr->tiles);
    cost->calls = pieces(tokens, chunk);
    cost->bytes = cost->calls * (attr->group.size - 1) * chunk * (int64_t)mx_xent_part_bytes(attr);
    return &attr->group;
}

/* ---- cross-entropy */

static void xent_cut(MxFactors *f) {
    cut_logits(f, H | TARGETS | WEIGHTS);
    join_logits(f, 1 << 0 | 1 << 1);
}

const MxOp op_xent = {
    .name = "xent",
    .arity = 4,
    .no_gradient = 1 << 1,
    .attr_bytes = sizeof(MxXentAttr),
    .infer = xent_infer,
    .vjp = xent_vjp,
    .partition = xent_cut,
    .localize = take_vocab,
    .exchange = exchange_parts,
    .flops = ops_logits_flops,
    .doc = "sums of cross-entropy and of its z part",
};

static bool xent_grad_infer(MxInfer *infer) {
    infer->n_out = 4;
    infer->out[0] = (MxType){((const MxXentAttr *)infer->attr)->dtype, infer->in[1].shape};
    infer->out[1] = infer->in[0];
    infer->out[2] = infer->out[3] = (MxType){MX_F32, MX_SCALAR};
    return check(infer) && ops_is(infer, 4, MX_F32, 0);
}

static void cut_gradients(MxFactors *f) {
    memcpy(f->out_dim[0], f->in_dim[1], sizeof f->out_dim[0]);
    memcpy(f->out_dim[1], f->in_dim[0], sizeof f->out_dim[1]);
}

static void xent_grad_cut(MxFactors *f) {
    cut_logits(f, H | TARGETS | WEIGHTS);
    join_logits(f, 1 << 2 | 1 << 3);
    cut_gradients(f);
}

bool ops_is_same_loss(const void *own, const void *other) {
    const MxXentAttr *a = own, *b = other;
    return a->tied == b->tied && a->scale == b->scale && a->softcap == b->softcap &&
           a->z_loss == b->z_loss && a->tiles == b->tiles;
}

const MxOp op_xent_grad = {
    .name = "xent_grad",
    .arity = 5,
    .flags = MX_OP_CAST_FOLDS,
    .accumulates = 1,
    .attr_bytes = sizeof(MxXentAttr),
    .infer = xent_grad_infer,
    .partition = xent_grad_cut,
    .localize = take_vocab,
    .exchange = exchange_parts,
    .flops = ops_logits_grad_flops,
    .also = {.op = &op_xent, .at = 2, .is_same = ops_is_same_loss},
    .doc = "dw, dh and xent's two sums in one pass, from xent's inputs and the cotangent of its "
           "first sum",
};

MxValue mx_logprob(MxTrace *t, MxValue h, MxValue w, MxValue targets, MxValue weights,
                   MxXentAttr attr) {
    attr.dtype = mx_trace_type(t, w).dtype;
    return mx_trace_node(t, &op_logprob, (MxValue[]){h, w, targets, weights}, 4, &attr);
}

/* Whether input i holds a number for every token. */
static bool is_per_token(MxInfer *infer, int i) {
    MxShape tokens = infer->in[2].shape;
    if (!ops_is(infer, i, MX_F32, tokens.rank)) return false;
    if (mx_shape_equal(infer->in[i].shape, tokens)) return true;
    return mx_infer_fail(infer, "input %d must have targets' dims", i);
}

static bool logprob_infer(MxInfer *infer) {
    infer->n_out = 2 + ((const MxXentAttr *)infer->attr)->entropy;
    for (int i = 0; i < infer->n_out; i++) infer->out[i] = (MxType){MX_F32, infer->in[2].shape};
    if (((const MxXentAttr *)infer->attr)->z_loss != 0)
        return mx_infer_fail(infer, "log-probabilities have no z-loss");
    return check(infer);
}

/* logprob's inputs, what it saved, and cotangents; those of entropies only if there are any. */
enum { SAVED = 4, GRADIENT_INPUTS = 6, ENTROPY_INPUTS = 8 };

static void logprob_vjp(const MxVjp *v) {
    MxXentAttr attr = *(const MxXentAttr *)v->attr;
    MxValue in[ENTROPY_INPUTS] = {v->in[0], v->in[1], v->in[2], v->in[3], v->out[1]};
    const MxInitAttr zeros = {.type = mx_trace_type(v->t, v->out[1])};
    int n = SAVED + 1;
    attr.entropy = attr.entropy && v->dy[2] != MX_NONE;
    if (attr.entropy) in[n++] = v->out[2];
    in[n++] = v->dy[0] == MX_NONE ? mx_init(v->t, zeros) : v->dy[0];
    if (attr.entropy) in[n++] = v->dy[2];
    MxValue dw = mx_trace_node(v->t, &op_logprob_grad, in, n, &attr);
    v->dx[0] = dw < 0 ? MX_NONE : dw + 1;
    v->dx[1] = dw;
    v->dx[2] = v->dx[3] = MX_NONE;
}

static void logprob_cut(MxFactors *f) {
    cut_logits(f, H | TARGETS | WEIGHTS);
    join_logits(f, (1u << f->n_out) - 1);
    for (int i = 0; i < f->n_out; i++) memcpy(f->out_dim[i], f->in_dim[2], sizeof f->out_dim[i]);
}

const MxOp op_logprob = {
    .name = "logprob",
    .arity = 4,
    .no_gradient = 1 << 1,
    .attr_bytes = sizeof(MxXentAttr),
    .infer = logprob_infer,
    .vjp = logprob_vjp,
    .partition = logprob_cut,
    .localize = take_vocab,
    .exchange = exchange_parts,
    .flops = ops_logits_flops,
    .doc = "log-probabilities of targets, the logs of the sums that they were divided by, and the "
           "entropies of all logits",
};

static bool logprob_grad_infer(MxInfer *infer) {
    const MxXentAttr *attr = infer->attr;
    int n = attr->entropy ? ENTROPY_INPUTS : GRADIENT_INPUTS;
    if (infer->n_in != n) return mx_infer_fail(infer, "takes %d inputs, not %d", n, infer->n_in);
    bool fits = logprob_infer(infer);
    infer->n_out = 2;
    infer->out[0] = (MxType){attr->dtype, infer->in[1].shape};
    infer->out[1] = infer->in[0];
    for (int i = SAVED; i < n; i++) fits = fits && is_per_token(infer, i);
    return fits;
}

static void logprob_grad_cut(MxFactors *f) {
    unsigned given = (1u << f->n_in) - (1u << SAVED);
    cut_logits(f, H | TARGETS | WEIGHTS | given);
    cut_gradients(f);
}

const MxOp op_logprob_grad = {
    .name = "logprob_grad",
    .arity = -1,
    .flags = MX_OP_CAST_FOLDS,
    .accumulates = 1,
    .attr_bytes = sizeof(MxXentAttr),
    .infer = logprob_grad_infer,
    .partition = logprob_grad_cut,
    .localize = take_vocab,
    .flops = ops_logits_grad_flops,
    .doc = "dw and dh from logprob's inputs, its logs of sums and the cotangents of its first "
           "output; also from the entropies and their cotangents",
};

MxValue mx_argmax(MxTrace *t, MxValue h, MxValue w, MxValue weights, MxXentAttr attr) {
    return mx_trace_node(t, &op_argmax, (MxValue[]){h, w, weights}, 3, &attr);
}

static bool argmax_infer(MxInfer *infer) {
    infer->out[0] = infer->in[2];
    return ops_check_logits(infer, 2);
}

static void argmax_cut(MxFactors *f) {
    enum { ARGMAX_WEIGHTS = 1 << 2 };
    cut_logits(f, H | ARGMAX_WEIGHTS);
    join_logits(f, 1 << 0);
    memcpy(f->out_dim[0], f->in_dim[2], sizeof f->out_dim[0]);
}

const MxOp op_argmax = {
    .name = "argmax",
    .arity = 3,
    .flags = MX_OP_CONSTANT,
    .attr_bytes = sizeof(MxXentAttr),
    .infer = argmax_infer,
    .partition = argmax_cut,
    .localize = take_vocab,
    .exchange = exchange_parts,
    .flops = ops_logits_flops,
    .doc = "which logit of every token is the largest",
};

MxValue mx_count_equal(MxTrace *t, MxValue x, MxValue y, MxValue weights) {
    return mx_trace_node(t, &op_count_equal, (MxValue[]){x, y, weights}, 3, NULL);
}

static bool count_equal_infer(MxInfer *infer) {
    infer->out[0] = (MxType){MX_F32, MX_SCALAR};
    return ops_is(infer, 0, MX_I32, -1) && ops_same_type(infer, 0, 1) && ops_same_type(infer, 0, 2);
}

static void count_equal_cut(MxFactors *f) {
    ops_cut_lead(f, f->in[0].shape.rank, 7);
}

const MxOp op_count_equal = {
    .name = "count_equal",
    .arity = 3,
    .flags = MX_OP_CONSTANT,
    .infer = count_equal_infer,
    .partition = count_equal_cut,
    .doc = "at how many places that count two arrays are equal",
};

MxValue mx_count_nonzero(MxTrace *t, MxValue x) {
    return mx_count_nonzero_first(t, x, 1);
}

MxValue mx_count_nonzero_first(MxTrace *t, MxValue x, int64_t parts) {
    const MxCountAttr attr = {.parts = parts};
    return mx_trace_node(t, &op_count_nonzero, &x, 1, &attr);
}

static bool count_nonzero_infer(MxInfer *infer) {
    const MxCountAttr *attr = infer->attr;
    MxShape shape = infer->in[0].shape;
    infer->out[0] = (MxType){MX_F32, MX_SCALAR};
    if (!ops_is(infer, 0, MX_I32, -1)) return false;
    if (attr->parts > 1 && (!shape.rank || shape.dim[0] % attr->parts))
        return mx_infer_fail(infer, "%lld parts of the first dim are not of equal size",
                             (long long)attr->parts);
    return true;
}

/* A rank's rows are in any of several parts. */
static void count_nonzero_cut(MxFactors *f) {
    const MxCountAttr *attr = f->attr;
    if (attr->parts == 1) ops_cut_lead(f, f->in[0].shape.rank, 1);
}

static void count_nonzero_print(MxText *text, const void *attr) {
    const MxCountAttr *a = attr;
    if (a->parts > 1) mx_text_add(text, "first of %lld parts", (long long)a->parts);
}

const MxOp op_count_nonzero = {
    .name = "count_nonzero",
    .arity = 1,
    .flags = MX_OP_CONSTANT,
    .attr_bytes = sizeof(MxCountAttr),
    .print = count_nonzero_print,
    .infer = count_nonzero_infer,
    .partition = count_nonzero_cut,
    .doc = "how many elements are not 0",
};

MxValue mx_count_segments(MxTrace *t, MxValue segments) {
    return mx_trace_node(t, &op_count_segments, &segments, 1, NULL);
}

static bool count_segments_infer(MxInfer *infer) {
    infer->out[0] = (MxType){MX_F32, MX_SCALAR};
    return ops_is(infer, 0, MX_I32, 2);
}

static void count_segments_cut(MxFactors *f) {
    ops_cut_lead(f, 1, 1);
}

const MxOp op_count_segments = {
    .name = "count_segments",
    .arity = 1,
    .flags = MX_OP_CONSTANT,
    .infer = count_segments_infer,
    .partition = count_segments_cut,
    .doc = "how many segments all rows have: the largest id of each, at least 1",
};
