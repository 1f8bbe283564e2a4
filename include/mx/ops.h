/* ops.h — the ops: their attributes and the functions that add them to a trace. Each function's
 * comment is the op's definition; a backend's kernel must do just that.
 *
 * Letters in shapes: B batch, T time, D model, N query heads, K key/value heads, H head, V vocab;
 * ".." any dims. Values of type bf16 are computed in f32 and rounded once at the end, unless said
 * otherwise. */
#ifndef MX_OPS_H
#define MX_OPS_H

#include <mx/graph.h>

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

typedef struct MxVariableAttr {
    int var;
    MxType type;
} MxVariableAttr;

/* mx_variable — the content of a variable when the entry starts. */
MxValue mx_variable(MxTrace *t, int var);

typedef struct MxReshapeAttr {
    MxShape shape;
} MxReshapeAttr;

/* mx_reshape — the same elements in the same order under another shape; costs nothing. */
MxValue mx_reshape(MxTrace *t, MxValue x, MxShape shape);

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
    double factor;
} MxScaleAttr;

/* mx_scale — x times a constant. */
MxValue mx_scale(MxTrace *t, MxValue x, double factor);

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
 * (jax.nn.gelu). */
typedef enum MxActivation {
    MX_SILU,
    MX_GELU,
    MX_RELU,
    MX_LINEAR,
    MX_ACTIVATION_COUNT
} MxActivation;
extern const char *const mx_activation_names[MX_ACTIVATION_COUNT];

typedef struct MxGluAttr {
    MxActivation activation;
} MxGluAttr;

/* mx_glu — activation(gate) * up, of one shape. */
MxValue mx_glu(MxTrace *t, MxValue gate, MxValue up, MxActivation activation);

/* ---- matrix product */

/* Which dims of the operands are contracted. K.. are n_contract dims, the same in both. */
typedef enum MxDotKind {
    MX_DOT_NN, /* x[M.., K..] y[K.., N..] */
    MX_DOT_NT, /* x[M.., K..] y[N.., K..] */
    MX_DOT_TN, /* x[K.., M..] y[K.., N..] */
} MxDotKind;

typedef struct MxDotAttr {
    MxDtype dtype; /* of the result; sums are in f32 */
    MxDotKind kind;
    int n_contract;
} MxDotAttr;

/* mx_dot — out[M.., N..] = sum over K.., in the operands' common dtype. Every case is one matrix
 * product: groups of dims are contiguous. The three kinds are closed under differentiation. */
MxValue mx_dot(MxTrace *t, MxValue x, MxValue y, MxDotKind kind, int n_contract);

/* The matrix product's sizes: out [m, n], contracted k. */
typedef struct MxDotSizes {
    int64_t m, n, k;
} MxDotSizes;
MxDotSizes mx_dot_sizes(MxShape x, MxShape y, const MxDotAttr *attr);

/* ---- routing to experts. X experts, C choices of a token. */

/* mx_softmax — exp(x) / sum of exp(x) over the last dim, f32 [.., n]. */
MxValue mx_softmax(MxTrace *t, MxValue x);

typedef struct MxTopKAttr {
    int64_t k;
} MxTopKAttr;

/* mx_top_k — where the k largest elements of the last dim are, i32 [.., k], the largest first; of
 * equal ones the one with the lower index. x f32 [.., n], 1 <= k <= n. */
MxValue mx_top_k(MxTrace *t, MxValue x, int64_t k);

typedef struct MxPickGradAttr {
    int64_t n; /* elements of the last dim of what was picked from */
} MxPickGradAttr;

/* mx_pick — y[.., i] = x[.., ids[.., i]]. x f32 [.., n], ids i32 [.., k] in [0, n). */
MxValue mx_pick(MxTrace *t, MxValue x, MxValue ids);

typedef struct MxCapacityAttr {
    int64_t n_experts, capacity;
} MxCapacityAttr;

/* mx_within_capacity — ids i32 [B, T, C] in [0, n_experts), and -1 (no expert) where `capacity`
 * choices of the same row b before this one, in the order of tokens and then of choices, are of
 * the same expert. Source: MaxText layers/moe.py generate_masks. */
MxValue mx_within_capacity(MxTrace *t, MxValue ids, MxCapacityAttr attr);

/* What a choice is multiplied with: w[e] or its transpose. */
typedef struct MxExpertDotAttr {
    MxDtype dtype;     /* of the result; sums are in f32 */
    bool transposed;   /* w is [X, N, D] */
    bool sums;         /* over the choices of a token */
    int64_t n_experts; /* of which w has those from `first` on; other ids make zeros */
    int64_t first;
} MxExpertDotAttr;

/* mx_expert_dot — y[.., c, :] = x[.., c, :] w[ids[.., c]]: a product with as many matrices as there
 * are experts, each for the rows that chose it. x [.., C, D], or [.., D] for the same row for every
 * choice; ids i32 [.., C], -1 = no expert, a row of zeros; w [X, D, N] of x's dtype. y [.., C, N],
 * with attr.sums their sum over C, [.., N]. Rows are sorted by expert within the op. The dtype and
 * the number of experts are filled in. */
MxValue mx_expert_dot(MxTrace *t, MxValue x, MxValue ids, MxValue w, MxExpertDotAttr attr);

typedef struct MxExpertDwAttr {
    MxDtype dtype;     /* of the result */
    int64_t n_experts; /* that are made … */
    int64_t first;     /* … from this one on */
} MxExpertDwAttr;

/* mx_expert_dw — dw[e] = sum over choices of e of x[.., c, :]^T y[.., c, :], [X, D, N]: the
 * gradient of expert_dot by w. x and y [.., C, D] and [.., C, N], or without C. The
 * dtype is filled in. */
MxValue mx_expert_dw(MxTrace *t, MxValue x, MxValue ids, MxValue y, MxExpertDwAttr attr);

/* mx_combine — y[.., :] = sum over c of weights[.., c] x[.., c, :], in f32, as x's dtype.
 * x [.., C, D], weights f32 [.., C]. */
MxValue mx_combine(MxTrace *t, MxValue x, MxValue weights);

typedef struct MxBalanceAttr {
    double factor;
    int64_t n_experts;
} MxBalanceAttr;

/* mx_balance — how unevenly experts are chosen: factor times the sum over rows b and experts e of
 * (choices of e / T) (mean over t of probs[b, t, e]), an f32 scalar. probs f32 [B, T, X], ids i32
 * [B, T, C] in [0, X); no gradient flows to ids. Source: Fedus et al. 2021 (4)-(6); MaxText
 * layers/moe.py load_balance_loss. The number of experts is filled in. */
MxValue mx_balance(MxTrace *t, MxValue probs, MxValue ids, double factor);

/* ---- normalisation */

typedef struct MxRmsnormAttr {
    double eps;
} MxRmsnormAttr;

/* mx_rmsnorm — y = round(x * rstd) * round(scale) with rstd = 1/sqrt(mean(x^2) + eps) over the last
 * dim; round is to x's dtype, all else f32. x [.., D], scale f32 [D]; outputs y and rstd f32 [..].
 * Source: MaxText layers/normalizations.py RMSNorm. */
MxValue mx_rmsnorm(MxTrace *t, MxValue x, MxValue scale, double eps);

/* ---- rotary positions */

/* Frequencies of one rotary embedding. */
typedef struct MxRopeFreqs {
    int n;             /* rotated pairs of a head */
    double *frequency; /* [n] radians a position */
    double amplitude;  /* factor on cos and sin (yarn's attention scaling); usually 1 */
} MxRopeFreqs;

/* mx_rope_table — cos and sin of positions i32 [B, T]: f32 [B, T, n, 2]. Angles are computed in
 * double. */
MxValue mx_rope_table(MxTrace *t, MxValue positions, MxRopeFreqs freqs);

typedef struct MxRopeTableAttr {
    MxRopeFreqs freqs;
} MxRopeTableAttr;

/* Where the two members of pair i of 2n elements stand: halves (i, i + n) or interleaved (2i, 2i +
 * 1). */
typedef struct MxRopeAttr {
    bool interleaved_in, interleaved_out;
    bool inverse;  /* rotate back (the gradient) */
    int64_t first; /* element of a head: 2n are rotated from it on, the others stay */
} MxRopeAttr;

/* mx_rope — rotates pair i of every head of x [B, T, N, H], or of a part of it, by the table's
 * angle i: (a cos - b sin, b cos + a sin). first + 2n <= H. */
MxValue mx_rope(MxTrace *t, MxValue x, MxValue table, MxRopeAttr attr);

/* ---- attention */

/* Which keys s a query t may see, besides those of its own segment. */
typedef enum MxMask {
    MX_MASK_CAUSAL,  /* s <= t */
    MX_MASK_SLIDING, /* t - window < s <= t */
    MX_MASK_CHUNK,   /* s <= t and s / window == t / window */
    MX_MASK_FULL,    /* all */
    MX_MASK_COUNT
} MxMask;

typedef struct MxAttentionAttr {
    double scale;   /* on q·k */
    double softcap; /* 0 = none; applied after the scale, before the mask */
    MxMask mask;
    int64_t window;
    bool is_part; /* q holds only the queries from first_query on, k and v all keys */
    int64_t first_query;
} MxAttentionAttr;

/* mx_attention — softmax over keys of q·k, times v, head by head; query head n reads key head n /
 * (N / K). Scores and softmax in f32; memory linear in T. q [B, T, N, H], k [B, T, K, H], v [B, T,
 * K, W], segments i32 [B, T] (t and s see each other only if equal). Outputs o [B, T, N, W] and the
 * log of each row's sum f32 [B, N, T]. Source: MaxText layers/attention_op.py; backward after Dao
 * 2022. */
MxValue mx_attention(MxTrace *t, MxValue q, MxValue k, MxValue v, MxValue segments,
                     MxAttentionAttr attr);
/* mx_attention_sinks — the same, where every query also sees a key that it shares with all others
 * of its head, whose score is sinks f32 [N] as it is and whose value is 0; the log of the sum has
 * it. Source: OpenAI gpt-oss (2025); MaxText layers/attention_op.py @e591f30c. */
MxValue mx_attention_sinks(MxTrace *t, const MxValue qkv[3], MxValue segments, MxValue sinks,
                           MxAttentionAttr attr);

/* ---- embedding and loss */

typedef struct MxEmbedAttr {
    MxDtype dtype;
    int n_parts; /* the table is one of so many equal ones, 0 = all of it; rows of others are zeros
                    … */
    int64_t first_id; /* … and its own are those from this id on */
} MxEmbedAttr;

/* mx_embed — rows of table [V, D] by ids i32 [B, T], as dtype: [B, T, D]. ids are in [0, V). */
MxValue mx_embed(MxTrace *t, MxValue table, MxValue ids, MxDtype dtype);

typedef struct MxEmbedGradAttr {
    int64_t vocab;    /* rows that are made … */
    int64_t first_id; /* … from this one on */
} MxEmbedGradAttr;

typedef struct MxXentAttr {
    MxDtype dtype;    /* of dw (out 0 of the gradients) */
    bool tied;        /* w is [V, D] instead of [D, V] */
    double scale;     /* on the logits */
    double softcap;   /* 0 = none; after the scale */
    double z_loss;    /* multiplier of lse^2; xent's alone */
    int64_t tiles;    /* > 1: logits of no more than 1/tiles of the tokens at a time */
    MxGroup group;    /* w is one of so many parts of the vocabulary; size 0 = all of it … */
    int64_t first_id; /* … from this id on */
} MxXentAttr;

/* What the ranks of a group tell each other of every token: its logits' maximum, the sum of their
 * exponentials below that, and the target's logit, 0 where it is not. mx_argmax: the maximum and
 * its id, as the sum. */
typedef struct MxXentPart {
    double sum;
    float most, target;
} MxXentPart;

/* mx_xent_chunk — of how many tokens these ops hold logits, row_bytes of each, at a time: as many
 * as the machine has for a chunk, and no more than 1/tiles of all; chunks are as even as can be.
 * The ranks of a group make an exchange for every chunk there can be, whichever tokens count. */
int64_t mx_xent_chunk(const MxMachine *machine, int64_t tokens, int64_t row_bytes, int64_t tiles);

/* mx_xent — cross-entropy from hidden states and the output matrix, in chunks of tokens, logits
 * never stored whole. h [.., D], w [D, V] (or [V, D]), targets and weights i32 [..]; a token counts
 * where weights != 0. Outputs, f32 scalars: 0  sum of lse - logit[target] + z_loss lse^2     1  sum
 * of z_loss lse^2 alone (no gradient). logits = softcap(scale * h·w), where h·w has the dtype of h,
 * as in the original, and all that follows is f32. Source: MaxText trainers/pre_train/train.py
 * loss_fn, max_utils cross_entropy_with_logits, logits_dot_in_fp32=false. */
MxValue mx_xent(MxTrace *t, MxValue h, MxValue w, MxValue targets, MxValue weights,
                MxXentAttr attr);

/* mx_logprob — log-probability of every target from hidden states and the output matrix, by the
 * same chunks; inputs as mx_xent's, logits too. Outputs f32 [..]: 0  logit[target] - lse where
 * weights != 0, else 0     1  lse there, else 0, which the gradient needs (no gradient itself). */
MxValue mx_logprob(MxTrace *t, MxValue h, MxValue w, MxValue targets, MxValue weights,
                   MxXentAttr attr);

/* mx_argmax — which logit is the largest (the first of several), i32 [..]: of tokens whose weight
 * is not 0, else 0. h, w, weights and attr as for mx_xent. */
MxValue mx_argmax(MxTrace *t, MxValue h, MxValue w, MxValue weights, MxXentAttr attr);

/* ---- preference losses */

typedef enum MxPreference {
    MX_PREFERENCE_DPO,          /* -(1-e) log s(z) - e log s(-z); s is the sigmoid */
    MX_PREFERENCE_SIGMOID_NORM, /* the same of means */
    MX_PREFERENCE_HINGE,        /* max(0, 1 - z) */
    MX_PREFERENCE_IPO,          /* (x - y - 1/(2 beta))^2 of means */
    MX_PREFERENCE_ROBUST,       /* (-(1-e) log s(z) + e log s(-z)) / (1-2e) */
    MX_PREFERENCE_EXO_PAIR,     /* q = s(z): q log(q/(1-e)) + (1-q) log((1-q)/e) */
    MX_PREFERENCE_NCA_PAIR,     /* -log s(bx) - 1/2 log s(-bx) - 1/2 log s(-by), b = beta */
    MX_PREFERENCE_BCO_PAIR,     /* -log s(bx) - log s(-by) */
    MX_PREFERENCE_SPPO_HARD,    /* (x - 1/(2 beta))^2 + (y + 1/(2 beta))^2 */
    MX_PREFERENCE_APO_ZERO,     /* 1 - s(bx) + s(by) */
    MX_PREFERENCE_APO_DOWN,     /* s(bx) + 1 - s(z) */
    MX_PREFERENCE_DISCOPOP,     /* m = s(z/0.05): -(1-m) log s(z) + m exp(-z) */
    MX_PREFERENCE_ORPO,         /* nll + lambda (-(1-e) log s(o) - e log s(-o)), no reference */
    MX_PREFERENCE_SIMPO,        /* dpo's of z - gamma, of means, no reference */
    MX_PREFERENCE_COUNT
} MxPreference;

/* What a user calls them (`name`), and what they need. */
typedef struct MxPreferenceRow {
    const char *name;
    bool has_reference; /* x and y are log-ratios to a reference, else log-probabilities */
    bool averages;      /* x and y are means over counting tokens, else sums */
    bool has_maxtext;   /* MX_FORMULA_MAXTEXT means something */
} MxPreferenceRow;
extern const MxPreferenceRow mx_preferences[MX_PREFERENCE_COUNT];

/* MaxText's own variants: dpo's beta enters twice; orpo takes sums instead of means. */
typedef enum MxFormula { MX_FORMULA_STANDARD, MX_FORMULA_MAXTEXT, MX_FORMULA_COUNT } MxFormula;
extern const char *const mx_formula_names[MX_FORMULA_COUNT];

typedef struct MxPreferenceAttr {
    MxPreference algo;
    MxFormula formula;
    double beta, label_smoothing /* e */;
    double lambda; /* orpo's */
    double gamma;  /* simpo's margin */
} MxPreferenceAttr;

/* Sums over pairs, for the log. A response's reward is beta x (beta y), orpo's lambda x. */
enum {
    MX_PAIRS_LOSS,
    MX_PAIRS_CORRECT, /* pairs with x > y, of sums where there is a reference */
    MX_PAIRS_CHOSEN_REWARD,
    MX_PAIRS_REJECTED_REWARD,
    MX_PAIRS_MARGIN, /* chosen less rejected reward */
    MX_PAIRS_CHOSEN_LOGP,
    MX_PAIRS_REJECTED_LOGP,
    MX_PAIRS_CHOSEN_TOKENS,
    MX_PAIRS_REJECTED_TOKENS,
    MX_PAIRS_NLL, /* means of -logp over the chosen response: orpo's first term */
    MX_PAIRS_COUNT
};

/* mx_preference — loss of pairs of responses from their tokens' log-probabilities. logp, ref_logp
 * f32, weights and segments i32 [2P, T]: rows 0 .. P-1 are chosen responses, P .. 2P-1 the rejected
 * ones. Rows r and P+r hold as many pairs as the largest of their segments says, at least one; a
 * token counts in pair `weights`, where that is not 0. x and y are what the table says of the
 * chosen and the rejected response, z = beta (x - y), o = x - log(1 - e^x) - y + log(1 - e^y). The
 * mean of no tokens is 0, and orpo's o is 0, without gradient, for a pair one of whose responses
 * has none; a mean probability within 1e-9 of 1 counts as that. ref_logp is MX_NONE where the
 * algorithm has no reference; no gradient flows to it. Outputs f32: 0  the sum over pairs 1  the
 * vector of MX_PAIRS_* (no gradient). Sums are in f64, in order. Source: Rafailov et al. 2023, Azar
 * et al. 2023, Hong et al. 2024 and TRL's DPO, CPO and ORPO trainers; MaxText
 * trainers/post_train/dpo/dpo_utils.py @4bcec6af, Tunix dpo_trainer. */
MxValue mx_preference(MxTrace *t, MxValue logp, MxValue ref_logp, MxValue weights, MxValue segments,
                      MxPreferenceAttr attr);

/* ---- counting */

/* mx_count_nonzero — how many elements of an i32 array are not 0, as an f32 scalar. */
MxValue mx_count_nonzero(MxTrace *t, MxValue x);
/* mx_count_segments — how many segments an i32 array [rows, T] has, as an f32 scalar: the largest
 * id of each row, at least 1. */
MxValue mx_count_segments(MxTrace *t, MxValue segments);
/* mx_count_equal — at how many places x = y where weights != 0, i32 arrays of one shape, as an f32
 * scalar. */
MxValue mx_count_equal(MxTrace *t, MxValue x, MxValue y, MxValue weights);

/* ---- state */

/* MX_INIT_* of tree.h by number would make ops depend on trees; the distributions are the same. */
typedef enum MxFill {
    MX_FILL_CONSTANT,
    MX_FILL_NORMAL,
    MX_FILL_TRUNCATED_NORMAL,
    MX_FILL_UNIFORM,
    MX_FILL_COUNT
} MxFill;

typedef struct MxInitAttr {
    MxType type;
    MxFill fill;
    double value; /* the constant, or the standard deviation */
    uint64_t seed, stream;
    MxShape whole;              /* of which the array is a part; rank 0 = it is the whole */
    int64_t start[MX_MAX_RANK]; /* where the part begins */
} MxInitAttr;

/* mx_init — an array that depends on (seed, stream, element index) alone. Normals by Box–Muller;
 * the truncated ones lie within two deviations of the parent normal and have standard deviation
 * `value` themselves; so have the uniform ones, which lie within sqrt(3) `value` of 0. */
MxValue mx_init(MxTrace *t, MxInitAttr attr);

/* mx_sum_squares — of all elements of all inputs, summed in f64, as an f32 scalar. */
MxValue mx_sum_squares(MxTrace *t, const MxValue *x, int n);

typedef struct MxClipFactorAttr {
    double threshold;
} MxClipFactorAttr;

/* mx_clip_factor — what gradients of that sum of squares are multiplied with: 1 if norm <
 * threshold, else threshold / norm. Source: MaxText utils/gradient_clipping
 * (optax.clip_by_global_norm). */
MxValue mx_clip_factor(MxTrace *t, MxValue sum_squares, double threshold);

/* Numbers of one update that change from step to step, in a variable f32 [MX_HYPER_COUNT]; t counts
 * updates from 1. Rules use those that they need. */
enum {
    MX_HYPER_LR,
    MX_HYPER_B1, /* decay of the first moment, and 1 less that, made in double */
    MX_HYPER_ONE_B1,
    MX_HYPER_B2, /* of the second */
    MX_HYPER_ONE_B2,
    MX_HYPER_BIAS1, /* 1 - b1^t */
    MX_HYPER_BIAS2, /* 1 - b2^t */
    MX_HYPER_NEXT1, /* 1 - b1^(t + 1) */
    MX_HYPER_COUNT
};

/* Updates. p, g and moments have one shape, f32; a first moment mu is f32 or bf16. g is multiplied
 * with the f32 scalar `clip` first. New values may take over the buffers of the old. A bf16 mu is
 * rounded after the update was computed from it, and decays by b1 rounded to bf16 (JAX's weak
 * types). */

typedef struct MxAdamwAttr {
    double eps, eps_root, weight_decay;
    bool nesterov;
} MxAdamwAttr;

/* mx_adamw — outputs the new p, mu, nu. mu = b1 mu + (1-b1) g; nu = b2 nu + (1-b2) g^2; p -= lr (m
 * / (sqrt(nu/bias2 + eps_root) + eps) + weight_decay p), where m = mu/bias1, or, with nesterov, b1
 * mu/next1 + (1-b1) g/bias1. Source: optax.adamw. */
MxValue mx_adamw(MxTrace *t, const MxValue p_g_mu_nu[4], MxValue hyper, MxValue clip,
                 MxAdamwAttr attr);

/* mx_sgd — p - lr * clip * g. */
MxValue mx_sgd(MxTrace *t, MxValue p, MxValue g, MxValue hyper, MxValue clip);

typedef struct MxLionAttr {
    double weight_decay;
} MxLionAttr;

/* mx_lion — p -= lr (sign(b1 mu + (1-b1) g) + weight_decay p), the sign of 0 being 0; then mu = b2
 * mu
 * + (1-b2) g. Outputs the new p and mu. Source: optax.lion; Chen et al. 2023. */
MxValue mx_lion(MxTrace *t, const MxValue p_g_mu[3], MxValue hyper, MxValue clip, MxLionAttr attr);

/* mx_momentum — mu = b1 mu + (1-b1) g. Outputs the direction b1 mu/next1 + (1-b1) g/bias1, f32, and
 * the new mu. Source: optax.contrib.scale_by_muon. */
MxValue mx_momentum(MxTrace *t, MxValue g, MxValue mu, MxValue hyper, MxValue clip);

typedef struct MxUnitAttr {
    double eps;
} MxUnitAttr;

/* mx_unit — x / (sqrt(squares) + eps); squares is an f32 scalar. */
MxValue mx_unit(MxTrace *t, MxValue x, MxValue squares, double eps);

typedef struct MxDescendAttr {
    double factor, weight_decay;
} MxDescendAttr;

/* mx_descend — p - lr (factor u + weight_decay p), f32. */
MxValue mx_descend(MxTrace *t, MxValue p, MxValue u, MxValue hyper, MxDescendAttr attr);

typedef struct MxSpikeAttr {
    double threshold;
} MxSpikeAttr;

/* mx_spike — 1 unless min(sqrt(squares), threshold) - limit[0] <= limit[1], then 0: an f32 scalar;
 * limit is f32 [2]. Not a number is a spike. */
MxValue mx_spike(MxTrace *t, MxValue squares, MxValue limit, double threshold);

/* mx_select — x where the f32 scalar flag is 0, else y; both of one type. */
MxValue mx_select(MxTrace *t, MxValue x, MxValue y, MxValue flag);

/* ---- collectives */

typedef struct MxCollectiveAttr {
    MxGroup group;
    int dim; /* that is joined or cut; the group's parts follow each other along it */
} MxCollectiveAttr;

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
