/* ops.h — the ops: their attributes and the functions that add them to a trace. Each function's
 * comment is the op's definition; a backend's kernel must compute exactly that. This header has the
 * ops that any program uses; ops_layers.h has the ops of layers, ops_windows.h those of windows of
 * tokens, ops_loss.h losses and counts, ops_update.h initial values and updates.
 *
 * Letters in shapes: B batch, T time, D model, N query heads, K key/value heads, H head, V vocab;
 * ".." any dims. Values of type bf16 are computed in f32 and rounded once at the end, unless the
 * op's comment says otherwise. */
#ifndef MX_OPS_H
#define MX_OPS_H

#include <mx/ops_layers.h>
#include <mx/ops_loss.h>
#include <mx/ops_update.h>
#include <mx/ops_windows.h>

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

/* mx_op_index — an op's position in ops.def. */
int mx_op_index(const MxOp *op);

/* ---- variables and shapes */

/* mx_variable — the contents of a variable when the entry starts. */
MxValue mx_variable(MxTrace *t, int var);

typedef struct MxReshapeAttr {
    MxShape shape;
} MxReshapeAttr;

/* mx_reshape — the same elements in the same order with another shape; costs nothing. */
MxValue mx_reshape(MxTrace *t, MxValue x, MxShape shape);
/* mx_detach — x itself, but no gradient flows through it; costs nothing. */
MxValue mx_detach(MxTrace *t, MxValue x);

typedef struct MxEveryAttr {
    int64_t n;
} MxEveryAttr;

typedef struct MxFirstBitsAttr {
    int64_t n;
} MxFirstBitsAttr;

typedef struct MxShiftAttr {
    int64_t offset;
} MxShiftAttr;

/* mx_shift — replaces every element by its right neighbour within a segment: y[t] = x[t+1] where
 * segments[t+offset] = segments[t+offset+1] != 0, else 0 (also at the end of the row). x, segments
 * i32 [B, T]; offset = how often x has been shifted already. */
MxValue mx_shift(MxTrace *t, MxValue x, MxValue segments, int64_t offset);

typedef struct MxSplitAttr {
    int64_t width;  /* width of the first part */
    bool is_shared; /* the second part is shared by all in the dim before the last: it is their sum
                     */
} MxSplitAttr;

/* mx_concat — joins x and y along their last dims; all other dims are equal: [.., m], [.., n] to
 * [.., m + n]. y may be shared along the dim before the last: [.., N, m], [.., 1, n] to [.., N, m +
 * n]. */
MxValue mx_concat(MxTrace *t, MxValue x, MxValue y);
/* mx_split — the inverse: [.., m + n] to [.., m] and, in the next value, [.., n]. */
MxValue mx_split(MxTrace *t, MxValue x, int64_t m);

/* mx_every — every n-th token's number, from the first on: y[b, w] = x[b, w n], w < T / n. x i32
 * [B, T], n <= T. */
MxValue mx_every(MxTrace *t, MxValue x, int64_t n);
/* mx_first_bits — of n bits those up to a number: bit s % 32 of y[b, t, s / 32] is 1 for s <=
 * last[b, t], s < n. last i32 [B, T], y i32 [B, T, ceil(n / 32)]. */
MxValue mx_first_bits(MxTrace *t, MxValue last, int64_t n);

/* ---- elementwise */

typedef struct MxCastAttr {
    MxDtype dtype;
} MxCastAttr;

/* mx_copy — y = x in a separate buffer. */
MxValue mx_copy(MxTrace *t, MxValue x);
/* mx_cast — y = x as another dtype (f32 or bf16, round to nearest even); x itself if it has that
 * dtype. */
MxValue mx_cast(MxTrace *t, MxValue x, MxDtype dtype);
/* mx_add — x + y. y has x's shape or its trailing dims (a bias); both have the same dtype. */
MxValue mx_add(MxTrace *t, MxValue x, MxValue y);
/* mx_multiply — x * y, each f32 or bf16, as x's dtype. y has x's shape or its trailing dims. */
MxValue mx_multiply(MxTrace *t, MxValue x, MxValue y);

typedef struct MxSumLeadAttr {
    MxDtype dtype;
    int n_lead;
} MxSumLeadAttr;

/* mx_sum_lead — the sum over the first n_lead dims, in f32, as x's dtype. */
MxValue mx_sum_lead(MxTrace *t, MxValue x, int n_lead);

typedef struct MxScaleAttr {
    double factor, plus;
} MxScaleAttr;

/* mx_scale — x times a constant. mx_plus — x plus a constant. */
MxValue mx_scale(MxTrace *t, MxValue x, double factor);
MxValue mx_plus(MxTrace *t, MxValue x, double constant);

/* Which elements of a random sequence those of x [B, .., D] get: element (b, .., d) that of index
 * (rows[b], .., d) in an array of x's shape, in row-major order. With by_column the dims between
 * the first and the last one do not count, so that elements along them get the same. The sequence
 * depends only on (seed, stream, step), not on the mesh and not on how a batch is split. rows i32
 * [B], step i32 scalar. The random numbers are Philox's, with a key computed by Philox from (seed,
 * stream, step). */
typedef struct MxRandomAttr {
    double amount; /* the rate of a dropout, 0 to 1; the range of noise */
    uint64_t seed, stream;
    bool by_column;
    MxShape whole;              /* of x on all ranks */
    int64_t first[MX_MAX_RANK]; /* index of this rank's first element along dims 1 .. */
} MxRandomAttr;

/* mx_dropout — sets a share `amount` of the elements of x, or of its columns, to 0 and multiplies
 * the others by 1 / (1 - amount). Source: Srivastava et al. 2014; torch.nn.Dropout; by_column:
 * flax.linen.Dropout with broadcast_dims as in MaxText. */
MxValue mx_dropout(MxTrace *t, MxValue x, MxValue rows, MxValue step, MxRandomAttr attr);
/* mx_noise — x plus noise that is uniform in ±amount. */
MxValue mx_noise(MxTrace *t, MxValue x, MxValue rows, MxValue step, MxRandomAttr attr);

typedef struct MxSoftcapAttr {
    double cap;
} MxSoftcapAttr;

/* mx_softcap — cap * tanh(x / cap). */
MxValue mx_softcap(MxTrace *t, MxValue x, double cap);

typedef struct MxRatioAttr {
    double eps;
} MxRatioAttr;

/* mx_ratio — x / (y + eps) for f32 scalars; no gradient flows to y. */
MxValue mx_ratio(MxTrace *t, MxValue x, MxValue y, double eps);

#define MX_ACTIVATION(name, function) MX_##name,
#define MX_ALSO_CALLED(function, other)
typedef enum MxActivation {
#include <mx/ops_activations.def>
    MX_ACTIVATION_COUNT
} MxActivation;
#undef MX_ACTIVATION
#undef MX_ALSO_CALLED
extern const char *const mx_activation_names[MX_ACTIVATION_COUNT];
/* mx_activation_find — the one of a name, false if there is none. */
bool mx_activation_find(const char *name, MxActivation *found);

typedef struct MxGluAttr {
    MxActivation activation;
    double limit; /* upper limit of gate; up is limited to minus and plus this; 0 = none */
    double term;  /* added to up after the limit */
} MxGluAttr;

/* mx_activate — activation(x). */
MxValue mx_activate(MxTrace *t, MxValue x, MxActivation activation);
/* mx_glu — activation(gate) * up; both have the same shape. mx_glu_within — activation(min(gate,
 * limit)) * (min(max(up, -limit), limit) + term). Source: OpenAI gpt-oss (2025); MaxText
 * layers/moe.py apply_ffn_activation @e591f30c. */
MxValue mx_glu(MxTrace *t, MxValue gate, MxValue up, MxActivation activation);
MxValue mx_glu_within(MxTrace *t, MxValue gate, MxValue up, MxGluAttr attr);

/* ---- matrix product */

/* Which dims of the operands are contracted. K.. are n_contract dims, the same in both. The first
 * n_batch dims, E.., of both operands and of the result enumerate separate products. */
typedef enum MxDotKind {
    MX_DOT_NN, /* x[M.., K..] y[K.., N..] */
    MX_DOT_NT, /* x[M.., K..] y[N.., K..] */
    MX_DOT_TN, /* x[K.., M..] y[K.., N..] */
} MxDotKind;

typedef struct MxDotAttr {
    MxDtype dtype; /* dtype of the result; sums are in f32 */
    MxDotKind kind;
    int n_contract, n_batch;
    bool is_square; /* x and y are one value: its product with its own transpose, NT or TN */
} MxDotAttr;

/* mx_dot — out[M.., N..] = sum over K.., in the operands' common dtype. Every case is one matrix
 * product: groups of dims are contiguous. The three kinds are closed under differentiation. */
MxValue mx_dot(MxTrace *t, MxValue x, MxValue y, MxDotKind kind, int n_contract);
/* mx_batch_dot — the same with given attributes, except the dtype, which is filled in. */
MxValue mx_batch_dot(MxTrace *t, MxValue x, MxValue y, MxDotAttr attr);

/* Sizes of the matrix product: out [m, n], contracted k; and the number of products. */
typedef struct MxDotSizes {
    int64_t m, n, k, batch;
} MxDotSizes;
MxDotSizes mx_dot_sizes(MxShape x, MxShape y, const MxDotAttr *attr);

/* ---- weights in few bits */

typedef struct MxQuantAttr {
    MxDtype dtype; /* dtype of the dequantized values */
    MxQuant quant;
} MxQuantAttr;

/* mx_quantized — codes of x f32 and, in the next value, scales, as in mx_quantize. */
MxValue mx_quantized(MxTrace *t, MxValue x, MxQuant quant);
/* mx_dequantized — restores the array: value of the code times scale, computed in f32, converted to
 * attr.dtype. */
MxValue mx_dequantized(MxTrace *t, MxValue codes, MxValue scales, MxQuantAttr attr);

typedef struct MxQuantized {
    MxValue codes, scales;
    MxQuant quant;
} MxQuantized;

/* mx_is_quantized — whether a value is a result of mx_dequantized; out receives its inputs. */
bool mx_is_quantized(const MxTrace *t, MxValue value, MxQuantized *out);

typedef struct MxQuantDotAttr {
    MxDotAttr dot;
    MxQuant quant; /* quantization of the weight */
} MxQuantDotAttr;

/* mx_quant_dot — mx_dot (NN or NT) of x and the dequantized array, with values rounded to x's
 * dtype. The whole array is never in memory as floats. A gradient flows only to x. */
MxValue mx_quant_dot(MxTrace *t, MxValue x, MxQuantized w, MxDotKind kind, int n_contract);

/* ---- products of rounded operands */

/* The grid to which an operand is rounded, and the magnitude that becomes its bound. */
typedef struct MxCoding {
    MxGrid grid;
    MxCalibration calibration;
} MxCoding;

typedef struct MxEncodeAttr {
    MxCoding coding;
    int n_contract;
    bool leads;    /* the contracted dims are the first ones, otherwise the last */
    MxGroup group; /* the ranks that have parts of the first contracted dim */
} MxEncodeAttr;

/* Codes are numbers of a grid: int8 if they are whole, otherwise in the dtype of the values that
 * they represent. Scales, f32, are the next value; there is one scale for all contracted elements,
 * and it is NaN if one of these is. A cotangent of codes is a cotangent of the values. */
typedef struct MxCoded {
    MxValue codes, scales;
    MxDtype dtype; /* of the values */
} MxCoded;

/* mx_encode — x [M.., K..] (leads: [K.., M..]) times `factor` f32 [K..], MX_NONE = 1, is encoded in
 * float32. The magnitudes [M..] are calibrated over K.. (mx_calibration_magnitude), the scales
 * [M..] are mx_grid_scale of them; the codes are the numbers of the grid nearest to x / scale, at
 * most its largest. A third output has the magnitudes. No gradient flows to factor; the gradient of
 * codes is passed on to x, without those of elements of larger magnitude. */
MxCoded mx_encode(MxTrace *t, MxValue x, MxValue factor, MxEncodeAttr attr);

/* mx_magnitude — the largest magnitude of all elements of x, as an f32 scalar; 0 if there are none.
 * Has no gradient. NaN if an element is. */
MxValue mx_magnitude(MxTrace *t, MxValue x);

/* mx_within — y f32 or bf16 [M.., K..] (leads: [K.., M..]) where the magnitude of x is at most
 * `most` f32 [M..], else 0. `attr` says which dims are K... Source: qwix _src/core/qarray.py,
 * clip_gradient_to_calibration @0.1.8. */
MxValue mx_within(MxTrace *t, MxValue y, MxValue x, MxValue most, MxEncodeAttr attr);

enum { MX_MOST_PRUNED = 1024 };

typedef struct MxPruneAttr {
    int64_t n;
} MxPruneAttr;

/* mx_prune — w f32 or bf16 where its magnitude is among the n largest of its group of m elements,
 * at most MX_MOST_PRUNED, else 0. Of equal magnitudes the first are the largest; a NaN is kept, and
 * larger than none. Groups are in the last dim, or go over its ends if it is no whole number of
 * them. Elements that are 0 get no gradient. The op has y and x [.., M]: y where x is among the n
 * largest of its row. Errors: the elements are no whole number of groups. Source: qwix
 * _src/core/sparsity.py, get_sparsity_mask, and qarray.py, sparsify @0.1.8. */
MxValue mx_prune(MxTrace *t, MxValue w, int64_t n, int64_t m);

typedef struct MxCodedDotAttr {
    MxDotAttr dot;
    bool rows, columns;  /* whether the result's rows, and its columns, have scales */
    MxCoding to_x, to_w; /* of the cotangent in the gradients of x and w */
    MxDtype values;      /* the dtype of what int8 codes represent, so of their gradients */
} MxCodedDotAttr;

/* mx_coded_dot — the product of codes x [M.., K..] w [K.., N..], times the scales of both, in the
 * dtype of x's values. Its gradients are products of codes too: the cotangent, times the scales of
 * the other operand, is rounded by rows for x, as `to_x` says, and by columns for w, as `to_w`
 * says. Source: qwix _src/core/dot_general_qt.py @0.1.8. */
MxValue mx_coded_dot(MxTrace *t, MxCoded x, MxCoded w, int n_contract, MxCoding to_x,
                     MxCoding to_w);

/* ---- collectives */

typedef struct MxCollectiveAttr {
    MxGroup group;
    int joined, cut; /* dims along which the group's parts are joined, and cut */
    /* Of a shift: places from whom an array comes to whom it goes, below zero the other way; and
     * whether this rank has such partners. */
    int places;
    bool sends, receives;
} MxCollectiveAttr;

/* Moves one array from a rank to another. `send` starts the message and returns a token, with which
 * `sent` waits until the message has arrived; until then the array must not change. `receive` makes
 * the same array on the other rank. */
typedef struct MxPeerAttr {
    MxGroup group; /* the two of them, this rank first */
    int tag;       /* identifies this array among all that the two exchange in a run of an entry */
    MxType type;
} MxPeerAttr;

/* Packs several arrays into one, so that a single exchange moves all of them: [parts, elements of a
 * part]. A part contains the corresponding part of every array along its dim. With one part the
 * arrays are packed whole. */
typedef struct MxPackAttr {
    int n_parts;
    const int *dim; /* [inputs] kept */
} MxPackAttr;

typedef struct MxUnpackAttr {
    int64_t at; /* position of the array's first element in each part */
    int dim;    /* the dim along which the parts are joined */
    MxShape shape;
} MxUnpackAttr;

/* Terms of sums over ranks in fewer bits than float32. to_few: f32 x becomes rows u8
 * [parts, mx_few_bytes], each a part along `dim`, or of the flat array (MX_WHOLE) as many elements
 * as fit, where the last part may be short; and what that loses, x less what the rows say, 0 where
 * either is not finite. bfloat16: nearest numbers. int8: of each MX_FEW_BLOCK elements of a part
 * the scale, the largest magnitude / 127, and round(x / scale); largest magnitudes below 1e-30 are
 * 0, and a block with an infinite element or a NaN is all NaN. from_few: the sum of the rows, added
 * up in float32 in their order, or the flat array that they are the parts of. */
enum { MX_FEW_BLOCK = 256 };

typedef struct MxToFewAttr {
    MxDtype wire;
    int n_parts, dim;
} MxToFewAttr;

typedef struct MxFromFewAttr {
    MxDtype wire;
    bool sums;
    MxShape shape; /* of the result */
} MxFromFewAttr;

/* mx_few_part — elements of each of so many parts; mx_few_bytes — what n elements take. */
int64_t mx_few_part(MxShape shape, int n_parts);
int64_t mx_few_bytes(MxDtype wire, int64_t n);

/* add_part — x, with `factor` times y added to one of its parts, as to_few cuts them. */
typedef struct MxAddPartAttr {
    int n_parts, index, dim;
    double factor;
} MxAddPartAttr;

/* mx_op_phases — the number of steps in which a machine runs a node: 1 unless the op is a
 * collective. */
int mx_op_phases(const MxMachine *machine, const MxOp *op, MxType in, const void *attr);

#endif
