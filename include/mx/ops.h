/* ops.h — the ops: their attributes and the functions that add them to a trace. Each function's
 * comment is the op's definition; a backend's kernel must do just that. Here are those that any
 * program uses; ops_layers.h has what layers are made of, ops_loss.h losses and counts,
 * ops_update.h initial values and updates.
 *
 * Letters in shapes: B batch, T time, D model, N query heads, K key/value heads, H head, V vocab;
 * ".." any dims. Values of type bf16 are computed in f32 and rounded once at the end, unless said
 * otherwise. */
#ifndef MX_OPS_H
#define MX_OPS_H

#include <mx/ops_layers.h>
#include <mx/ops_loss.h>
#include <mx/ops_update.h>

enum {
#define MX_OP(symbol) MX_OP_##symbol,
#include <mx/ops.def>
#undef MX_OP
    MX_OP_COUNT
};

#define MX_OP(symbol) extern const MxOp op_##symbol;
#include <mx/ops.def>
#undef MX_OP

extern const MxOp *const mx_ops[MX_OP_COUNT];

/* mx_op_index — an op's place in ops.def. */
int mx_op_index(const MxOp *op);

/* ---- variables and shapes */

/* mx_variable — the content of a variable when the entry starts. */
MxValue mx_variable(MxTrace *t, int var);

typedef struct MxReshapeAttr {
    MxShape shape;
} MxReshapeAttr;

/* mx_reshape — the same elements in the same order under another shape; costs nothing. */
MxValue mx_reshape(MxTrace *t, MxValue x, MxShape shape);
/* mx_detach — x itself, through which no gradient flows; costs nothing. */
MxValue mx_detach(MxTrace *t, MxValue x);

typedef struct MxShiftAttr {
    int64_t offset;
} MxShiftAttr;

/* mx_shift — every element the one to its right in its row, as long as a segment goes on: y[t] =
 * x[t+1] where segments[t+offset] = segments[t+offset+1] != 0, else 0 (also beyond the row). x,
 * segments i32 [B, T]; offset = how often x was shifted already. */
MxValue mx_shift(MxTrace *t, MxValue x, MxValue segments, int64_t offset);

typedef struct MxSplitAttr {
    int64_t width;  /* of the first part */
    bool is_shared; /* the second is one of all in the dim before the last: their sum */
} MxSplitAttr;

/* mx_concat — x and y, which differ in their last dims alone, side by side: [.., m], [.., n] to
 * [.., m + n]. All of the dim before the last may share one y: [.., N, m], [.., 1, n] to [.., N, m
 * + n]. */
MxValue mx_concat(MxTrace *t, MxValue x, MxValue y);
/* mx_split — the other way round: [.., m + n] to [.., m] and, in the value after it, [.., n]. */
MxValue mx_split(MxTrace *t, MxValue x, int64_t m);

/* ---- elementwise */

typedef struct MxCastAttr {
    MxDtype dtype;
} MxCastAttr;

/* mx_copy — y = x in a buffer of its own. */
MxValue mx_copy(MxTrace *t, MxValue x);
/* mx_cast — y = x as another dtype (f32 or bf16, round to nearest even); x itself if it has that
 * dtype. */
MxValue mx_cast(MxTrace *t, MxValue x, MxDtype dtype);
/* mx_add — x + y. y has x's shape or its trailing dims (a bias); both one dtype. */
MxValue mx_add(MxTrace *t, MxValue x, MxValue y);

typedef struct MxSumLeadAttr {
    MxDtype dtype;
    int n_lead;
} MxSumLeadAttr;

/* mx_sum_lead — the sum over the first n_lead dims, in f32, as x's dtype. */
MxValue mx_sum_lead(MxTrace *t, MxValue x, int n_lead);

typedef struct MxScaleAttr {
    double factor, plus;
} MxScaleAttr;

/* mx_scale — x times a constant. mx_plus — x and a constant. */
MxValue mx_scale(MxTrace *t, MxValue x, double factor);
MxValue mx_plus(MxTrace *t, MxValue x, double constant);

typedef struct MxDropoutAttr {
    double rate; /* 0 to 1 */
    uint64_t seed, stream;
    int64_t width, first; /* x's last dim, and where in it a part begins */
} MxDropoutAttr;

/* mx_dropout — x [B, .., D] without a share `rate` of its columns, the rest times 1 / (1 - rate).
 * Column d of row b is left out everywhere or nowhere in the dims between, as element rows[b] D + d
 * of a random sequence says, which depends on (seed, stream, step) alone: on no mesh, and not on
 * how a batch is split. rows i32 [B], step i32 scalar. With Philox, whose key is what Philox makes
 * of (seed, stream, step). Source: Srivastava et al. 2014; flax.linen.Dropout with broadcast_dims
 * as MaxText has it. */
MxValue mx_dropout(MxTrace *t, MxValue x, MxValue rows, MxValue step, MxDropoutAttr attr);

typedef struct MxSoftcapAttr {
    double cap;
} MxSoftcapAttr;

/* mx_softcap — cap * tanh(x / cap). */
MxValue mx_softcap(MxTrace *t, MxValue x, double cap);

typedef struct MxRatioAttr {
    double eps;
} MxRatioAttr;

/* mx_ratio — x / (y + eps) of f32 scalars; no gradient flows to y. */
MxValue mx_ratio(MxTrace *t, MxValue x, MxValue y, double eps);

/* Activations of gated units, in the order of mx_activation_names. gelu is the tanh approximation
 * (jax.nn.gelu), quick_gelu x sigmoid(1.702 x), gelu_exact x times the normal distribution. */
typedef enum MxActivation {
    MX_SILU,
    MX_GELU,
    MX_RELU,
    MX_LINEAR,
    MX_SIGMOID,
    MX_QUICK_GELU,
    MX_GELU_EXACT,
    MX_ACTIVATION_COUNT
} MxActivation;
extern const char *const mx_activation_names[MX_ACTIVATION_COUNT];

typedef struct MxGluAttr {
    MxActivation activation;
    double limit; /* gate at most, up from minus to plus this; 0 = none */
    double term;  /* is added to up behind the limit */
} MxGluAttr;

/* mx_activate — activation(x). */
MxValue mx_activate(MxTrace *t, MxValue x, MxActivation activation);
/* mx_glu — activation(gate) * up, of one shape. mx_glu_within — activation(min(gate, limit)) *
 * (min(max(up, -limit), limit) + term). Source: OpenAI gpt-oss (2025); MaxText layers/moe.py
 * apply_ffn_activation @e591f30c. */
MxValue mx_glu(MxTrace *t, MxValue gate, MxValue up, MxActivation activation);
MxValue mx_glu_within(MxTrace *t, MxValue gate, MxValue up, MxGluAttr attr);

/* ---- matrix product */

/* Which dims of the operands are contracted. K.. are n_contract dims, the same in both. The first
 * n_batch dims of both, E.., stand before these and before those of the result: there is a product
 * for each of their elements. */
typedef enum MxDotKind {
    MX_DOT_NN, /* x[M.., K..] y[K.., N..] */
    MX_DOT_NT, /* x[M.., K..] y[N.., K..] */
    MX_DOT_TN, /* x[K.., M..] y[K.., N..] */
} MxDotKind;

typedef struct MxDotAttr {
    MxDtype dtype; /* of the result; sums are in f32 */
    MxDotKind kind;
    int n_contract, n_batch;
} MxDotAttr;

/* mx_dot — out[M.., N..] = sum over K.., in the operands' common dtype. Every case is one matrix
 * product: groups of dims are contiguous. The three kinds are closed under differentiation. */
MxValue mx_dot(MxTrace *t, MxValue x, MxValue y, MxDotKind kind, int n_contract);
/* mx_batch_dot — the same with all attributes but the dtype, which is filled in. */
MxValue mx_batch_dot(MxTrace *t, MxValue x, MxValue y, MxDotAttr attr);

/* The matrix product's sizes: out [m, n], contracted k; and how many there are. */
typedef struct MxDotSizes {
    int64_t m, n, k, batch;
} MxDotSizes;
MxDotSizes mx_dot_sizes(MxShape x, MxShape y, const MxDotAttr *attr);

/* ---- weights in few bits */

typedef struct MxQuantAttr {
    MxDtype dtype; /* of the values that dequantize makes */
    MxQuant quant;
} MxQuantAttr;

/* mx_quantized — codes of x f32, and in the value after it scales, as mx_quantize makes them. */
MxValue mx_quantized(MxTrace *t, MxValue x, MxQuant quant);
/* mx_dequantized — the array again: code's value times scale, in f32, as attr.dtype. */
MxValue mx_dequantized(MxTrace *t, MxValue codes, MxValue scales, MxQuantAttr attr);

typedef struct MxQuantized {
    MxValue codes, scales;
    MxQuant quant;
} MxQuantized;

/* mx_is_quantized — whether a value is what mx_dequantized has made, and of what. */
bool mx_is_quantized(const MxTrace *t, MxValue value, MxQuantized *out);

typedef struct MxQuantDotAttr {
    MxDotAttr dot;
    MxQuant quant; /* of the weight */
} MxQuantDotAttr;

/* mx_quant_dot — mx_dot of x and the array, NN or NT, whose values are rounded to x's dtype; it is
 * never whole in memory. A gradient flows to x alone. */
MxValue mx_quant_dot(MxTrace *t, MxValue x, MxQuantized w, MxDotKind kind, int n_contract);

/* ---- products of rounded operands */

typedef struct MxEncodeAttr {
    MxGrid grid;
    int n_contract;
    bool leads;    /* what is contracted are the first dims, else the last */
    MxGroup group; /* the ranks that have parts of the first of these dims */
} MxEncodeAttr;

/* Codes, numbers of a grid in the dtype of what they stand for, and in the value after them scales,
 * f32, one for all that is contracted. A cotangent of codes is one of the values. */
typedef struct MxCoded {
    MxValue codes, scales;
} MxCoded;

/* mx_encode — x [M.., K..] (leads: [K.., M..]) times `factor` f32 [K..], MX_NONE = 1, in float32:
 * scales [M..] are the largest magnitudes over K.. as mx_grid_scale has them, codes the numbers of
 * the grid nearest to x / scale. No gradient flows to factor; what flows to codes flows to x. */
MxCoded mx_encode(MxTrace *t, MxValue x, MxValue factor, MxEncodeAttr attr);

typedef struct MxCodedDotAttr {
    MxDotAttr dot;
    bool rows, columns; /* whether there are scales of the result's rows, and of its columns */
    MxGrid back;
} MxCodedDotAttr;

/* mx_coded_dot — x [M.., K..] w [K.., N..] of codes, times the scales of both. Its gradients are
 * such products too: the cotangent, times the scales of the other operand, is rounded to the grid
 * `back`, by rows for x and by columns for w. Source: qwix _src/core/dot_general_qt.py @0.1.8. */
MxValue mx_coded_dot(MxTrace *t, MxCoded x, MxCoded w, int n_contract, MxGrid back);

/* ---- collectives */

typedef struct MxCollectiveAttr {
    MxGroup group;
    int joined, cut; /* dims; the group's parts follow each other along them */
} MxCollectiveAttr;

/* One array from a rank to another: `send` lets it go and makes a token, with which `sent` waits
 * until it is there; until then the array must not change. `receive` makes the same array there. */
typedef struct MxPeerAttr {
    MxGroup group; /* the two of them, this rank first */
    int tag;       /* of this array, among all that the two exchange in a run of an entry */
    MxType type;
} MxPeerAttr;

/* Several arrays in one, so that one exchange does for all of them: [parts, elements of a part], a
 * part holding that of every array along its dim. One part: the arrays as they are. */
typedef struct MxPackAttr {
    int n_parts;
    const int *dim; /* [inputs] kept */
} MxPackAttr;

typedef struct MxUnpackAttr {
    int64_t at; /* the array's first element in each part */
    int dim;    /* along which the parts follow each other */
    MxShape shape;
} MxUnpackAttr;

/* mx_op_phases — in how many steps a machine runs a node: 1 unless the op is a collective. */
int mx_op_phases(const MxMachine *machine, const MxOp *op, MxType in, const void *attr);

#endif
