/* ops_loss.h — ops of the vocabulary, losses and counts. Letters in shapes are those of ops.h. */
#ifndef MX_OPS_LOSS_H
#define MX_OPS_LOSS_H

#include <mx/graph.h>

/* ---- embedding and loss */

typedef struct MxEmbedAttr {
    MxDtype dtype;
    int n_parts; /* number of equal parts of the table, of which this is one, 0 = the whole table;
                    rows of other parts are zeros … */
    int64_t first_id; /* … and its own rows start at this id */
} MxEmbedAttr;

/* mx_embed — looks up rows of table [V, D] by ids i32 [B, T], as dtype: [B, T, D]. ids are in [0,
 * V), or -1 for a row of zeros. */
MxValue mx_embed(MxTrace *t, MxValue table, MxValue ids, MxDtype dtype);
/* mx_row_ids — rows of a table of whole numbers, as integers: table [V, C] real, ids i32 [B, T] to
 * i32 [B, T, C]. */
MxValue mx_row_ids(MxTrace *t, MxValue table, MxValue ids);

typedef struct MxEmbedGradAttr {
    int64_t vocab;    /* number of rows that are computed … */
    int64_t first_id; /* … starting at this one */
} MxEmbedGradAttr;

/* mx_merge — x [B, T, D], with rows replaced by rows[b, index - 1] where index i32 [B, T] is above
 * 0. rows [B, R, D] of x's dtype, index in [0, R]. Source: MaxText multimodal/utils.py,
 * merge_mm_embeddings @e591f30c. */
MxValue mx_merge(MxTrace *t, MxValue x, MxValue rows, MxValue index);

typedef struct MxMergeGradAttr {
    int64_t n; /* R */
} MxMergeGradAttr;

typedef struct MxXentAttr {
    MxDtype dtype;  /* dtype of dw (out 0 of the gradients) */
    bool tied;      /* w is [V, D] instead of [D, V] */
    double scale;   /* on the logits */
    double softcap; /* 0 = none; applied after the scale */
    double z_loss;  /* multiplier of lse^2; only for xent */
    bool entropy;   /* of every token's distribution too; only for logprob */
    int64_t tiles;  /* > 1: compute logits of at most 1/tiles of the tokens at a time */
    MxGroup group;  /* ranks with the parts of the vocabulary, of which w is one; size 0 = w is all
                       of it … */
    int64_t first_id; /* … starting at this id */
} MxXentAttr;

/* What the ranks of a group exchange for every token: the maximum of its logits, the sum of the
 * exponentials relative to that, and the target's logit, 0 on ranks that do not have it. mx_argmax:
 * the maximum and, as the sum, its id. Where the entropy is wanted there is a double more: the sum
 * of the exponentials times their exponents. */
typedef struct MxXentPart {
    double sum;
    float most, target;
} MxXentPart;

size_t mx_xent_part_bytes(const MxXentAttr *attr);

/* mx_xent_chunk — the number of tokens for which these ops compute logits, of row_bytes each, at a
 * time: the machine's chunk size, and at most 1/tiles of all tokens; chunks are as even as
 * possible. The ranks of a group make an exchange for every possible chunk, whichever tokens count.
 */
int64_t mx_xent_chunk(const MxMachine *machine, int64_t tokens, int64_t row_bytes, int64_t tiles);

/* mx_xent — cross-entropy from hidden states and the output matrix, in chunks of tokens, logits
 * never stored whole. h [.., D], w [D, V] (or [V, D]), targets and weights i32 [..]; a token counts
 * if its weight is not 0. Outputs, f32 scalars: 0  sum of lse - logit[target] + z_loss lse^2     1
 * only the sum of z_loss lse^2 (no gradient). logits = softcap(scale * h·w), where h·w has the
 * dtype of h, as in MaxText, and everything after it is f32. Source: MaxText
 * trainers/pre_train/train.py loss_fn, max_utils cross_entropy_with_logits,
 * logits_dot_in_fp32=false. */
MxValue mx_xent(MxTrace *t, MxValue h, MxValue w, MxValue targets, MxValue weights,
                MxXentAttr attr);

/* mx_logprob — log-probability of every target from hidden states and the output matrix, in the
 * same chunks; inputs and logits as in mx_xent. Outputs f32 [..]: 0  logit[target] - lse where
 * weights != 0, else 0     1  lse there, else 0, which the gradient needs (without a gradient
 * itself)     2  with attr.entropy: - sum over ids of p log p there, p the softmax, else 0. */
MxValue mx_logprob(MxTrace *t, MxValue h, MxValue w, MxValue targets, MxValue weights,
                   MxXentAttr attr);

/* mx_argmax — the index of the largest logit (the first of equal ones), i32 [..], for tokens whose
 * weight is not 0, else 0. h, w, weights and attr as for mx_xent. */
MxValue mx_argmax(MxTrace *t, MxValue h, MxValue w, MxValue weights, MxXentAttr attr);

/* ---- distillation */

/* Numbers of a step: weight of the teacher's logits, temperature of both logits, weight of
 * features. Sums over tokens: cross-entropy of the student; KL(teacher || student) at the
 * temperature and without; cross-entropy of the teacher. */
enum { MX_DISTILL_ALPHA, MX_DISTILL_TEMPERATURE, MX_DISTILL_BETA, MX_DISTILL_NUMBERS };
enum { MX_DISTILL_HARD, MX_DISTILL_KL, MX_DISTILL_KL_PLAIN, MX_DISTILL_TEACHER, MX_DISTILL_SUMS };
typedef struct MxDistillAttr {
    MxXentAttr student, teacher;
} MxDistillAttr;
typedef struct MxHead { /* inputs from which a model's logits are computed, as in mx_xent */
    MxValue h, w;
    MxXentAttr attr;
} MxHead;

/* mx_distill — targets and weights as in mx_xent, numbers f32 [MX_DISTILL_NUMBERS] with alpha and
 * T. Outputs: 0  sum over tokens that count of alpha T^2 KL(softmax(t / T) || softmax(s / T)) + (1
 * - alpha) (lse(s) - s[target])     1  f32 [MX_DISTILL_SUMS] (no gradient). The teacher gets no
 * gradient. Source: MaxText trainers/post_train/distillation/distillation_utils.py. */
MxValue mx_distill(MxTrace *t, MxHead student, MxHead teacher, MxValue targets, MxValue weights,
                   MxValue numbers);

enum { MX_MOST_TOP = 1024 }; /* largest logits of a token that can be kept */
typedef struct MxTopAttr {
    MxXentAttr head;
    int64_t k;
} MxTopAttr;
/* mx_top_logits — the k largest logits of tokens whose weight is not 0, in falling order, of equal
 * ones the smaller id first: 0  f32 [.., k]     1  their ids, i32 [.., k]; zeros for other tokens.
 * h, w, weights as for mx_xent, attr without a group. */
MxValue mx_top_logits(MxTrace *t, MxValue h, MxValue w, MxValue weights, MxTopAttr attr);

/* mx_distill_top — mx_distill where only the teacher's k largest logits are known, top f32 [.., k]
 * and ids i32 [.., k]: both distributions of the divergence are over these ids alone. The sums of
 * MX_DISTILL_KL_PLAIN and MX_DISTILL_TEACHER are 0. Source: the same. */
MxValue mx_distill_top(MxTrace *t, MxHead student, MxValue top, MxValue ids, MxValue targets,
                       MxValue weights, MxValue numbers);

typedef struct MxFeatureAttr {
    bool is_cosine; /* otherwise the mean square of the difference */
} MxFeatureAttr;
/* mx_feature — numbers[MX_DISTILL_BETA] times the sum over tokens that count of 1 - cos(x, y),
 * norms at least 1e-6, or the mean of (x - y)^2; x, y [.., D], y without gradient. Source: the
 * same. */
MxValue mx_feature(MxTrace *t, MxValue x, MxValue y, MxValue weights, MxValue numbers,
                   MxFeatureAttr attr);
#define MX_FEATURE_LEAST_NORM 1e-6

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
    MX_PREFERENCE_DISCOPOP,     /* m = s(z/tau): -(1-m) log s(z) + m exp(-z) */
    MX_PREFERENCE_AOT,          /* dpo's of b (u - v) of sorted numbers, see MX_SORTS_MARGINS */
    MX_PREFERENCE_AOT_UNPAIRED, /* dpo's of b (x - y) of sorted numbers */
    MX_PREFERENCE_ORPO,         /* nll + lambda (-(1-e) log s(o) - e log s(-o)), no reference */
    MX_PREFERENCE_SIMPO,        /* dpo's of z - gamma, of means, no reference */
    MX_PREFERENCE_SFT,          /* the sum of -logp over the chosen response, no reference */
    MX_PREFERENCE_REWARD,       /* -log s(x - y) + center (x + y)^2, of scores */
    MX_PREFERENCE_COUNT
} MxPreference;

/* Two numbers of each pair, each sorted over all pairs, which are compared rank by rank: x and y;
 * or u, which is the policy's log-probability of the chosen response minus that of the rejected
 * one, and v, the reference's. Of equal numbers that of the earlier pair comes first. */
typedef enum MxSorts { MX_SORTS_NOTHING, MX_SORTS_RESPONSES, MX_SORTS_MARGINS } MxSorts;

/* Their names for users (`name`), and their properties. */
typedef struct MxPreferenceRow {
    const char *name;
    bool has_reference; /* x and y are log-ratios to a reference, otherwise log-probabilities */
    bool averages;      /* x and y are means over tokens that count, otherwise sums */
    bool has_scores;    /* x and y are outputs of a head with one output, and are the rewards */
    bool has_maxtext;   /* MX_FORMULA_MAXTEXT is supported */
    bool has_others;    /* divergences other than the reverse one are, without that formula */
    bool by_token;      /* its sum is for a mean over tokens of chosen responses, not over pairs */
    MxSorts sorts;
} MxPreferenceRow;
extern const MxPreferenceRow mx_preferences[MX_PREFERENCE_COUNT];

/* MaxText's own variants: dpo applies beta twice; orpo uses sums instead of means. */
typedef enum MxFormula { MX_FORMULA_STANDARD, MX_FORMULA_MAXTEXT, MX_FORMULA_COUNT } MxFormula;
extern const char *const mx_formula_names[MX_FORMULA_COUNT];

/* f'(r) in place of log r of the ratio r of a response to the reference, which is that of the
 * reverse divergence; without a reference r is a probability, if means are compared their geometric
 * mean (AlphaPO). forward 1 - 1/r; Jensen and Shannon's log(2r / (r + 1)); alpha (r^(alpha - 1) -
 * 1) / (alpha - 1).
 */
typedef enum MxDivergence {
    MX_DIVERGENCE_REVERSE,
    MX_DIVERGENCE_FORWARD,
    MX_DIVERGENCE_JS,
    MX_DIVERGENCE_ALPHA,
    MX_DIVERGENCE_COUNT
} MxDivergence;
extern const char *const mx_divergence_names[MX_DIVERGENCE_COUNT];

typedef struct MxPreferenceAttr {
    MxPreference algo;
    MxFormula formula;
    MxDivergence divergence;
    double alpha;      /* of the divergence; 1 = the reverse one */
    bool no_reference; /* x and y are log-probabilities whatever the algorithm */
    bool weighs;       /* a pair's loss is multiplied by a weight; not if something is sorted */
    double tail_cut;   /* share of log-probabilities that is left out of tokens which the longer
                          response of a pair has more than the other one */
    double beta, label_smoothing /* e */;
    double lambda; /* orpo's */
    double gamma;  /* margin of simpo */
    double tau;    /* discopop's, above 0 */
    double center; /* of reward: pulls x + y towards 0 */
} MxPreferenceAttr;

/* mx_preference_compares — whether there is a reference. */
bool mx_preference_compares(const MxPreferenceAttr *attr);

/* Sums over pairs, for the log. A response's reward is beta x (beta y), for orpo lambda x, with
 * scores the score itself. */
enum {
    MX_PAIRS_LOSS,
    MX_PAIRS_CORRECT, /* pairs with x > y, as sums if there is a reference */
    MX_PAIRS_CHOSEN_REWARD,
    MX_PAIRS_REJECTED_REWARD,
    MX_PAIRS_MARGIN, /* chosen minus rejected reward */
    MX_PAIRS_CHOSEN_LOGP,
    MX_PAIRS_REJECTED_LOGP,
    MX_PAIRS_CHOSEN_TOKENS,
    MX_PAIRS_REJECTED_TOKENS,
    MX_PAIRS_NLL, /* means of -logp over the chosen response: orpo's first term */
    MX_PAIRS_COUNT
};

/* The largest reward of all responses, and the largest negated reward; -inf if there are none. */
enum { MX_EXTREMES_HIGHEST, MX_EXTREMES_LOWEST, MX_EXTREMES_COUNT };

/* Arrays [2P, T], see below; MX_NONE = there is none. */
typedef struct MxPairInputs {
    MxValue logp, reference, alignment; /* f32 */
    MxValue weights, segments;          /* i32 */
} MxPairInputs;

/* mx_preference — loss of pairs of responses from their tokens' log-probabilities: rows 0 .. P-1
 * are chosen responses, P .. 2P-1 the rejected ones. The number of pairs in rows r and P+r is the
 * largest of their segments, from 1 to T; a token counts in pair `weights`, if that is not 0. x and
 * y are defined by the table for the chosen and the rejected response, z = beta (x - y), o = x -
 * log(1 - e^x) - y + log(1 - e^y). The mean over no tokens is 0, and orpo's o is 0, without
 * gradient, for a pair with a response without tokens; a mean probability within 1e-9 of 1 is taken
 * as that. There is a reference if the algorithm has one. A pair that weighs has the weight exp(a +
 * b), a and b the means of alignment over the tokens of its responses. No gradient flows to either.
 * With scores, logp is the output of a head with one output, and one token of each response counts.
 * Outputs f32: 0  the sum over pairs 1  the vector of MX_PAIRS_* 2  that of MX_EXTREMES_* (both
 * without gradient). Sums are in f64, in order. Source: Rafailov et al. 2023, Azar et al. 2023,
 * Wang et al. 2023 (divergences), Hong et al. 2024, Melnyk et al. 2024 (aot), Liu et al. 2024
 * (tail_cut), Gupta et al. 2025 (AlphaPO), Zhou et al. 2024 (weights) and TRL's DPO, CPO, ORPO and
 * reward trainers; MaxText trainers/post_train/dpo/dpo_utils.py
 * @4bcec6af, Tunix dpo_trainer. */
MxValue mx_preference(MxTrace *t, MxPairInputs in, MxPreferenceAttr attr);

/* ---- policies */

/* rho, the ratio of a token's probability to that under the policy that generated it: from its own
 * log-probabilities, or from the mean or the sum of those of its row. */
typedef enum MxRatio { MX_RATIO_TOKEN, MX_RATIO_MEAN, MX_RATIO_SUM, MX_RATIO_COUNT } MxRatio;

/* What becomes of the ratio of a token of advantage A, which is at most `most`, 0 = no bound:
 * clip    -min(rho A, clip(rho, 1 - low, 1 + high) A)
 * weight  -rho A logp, and rho gets no gradient; not with ratios of sums
 * gate    -A 4/tau s(tau (rho - 1)), s the sigmoid, tau `rise` if A > 0, otherwise `fall`; no bound
 * gamma   -w^k e^(lambda (1 - w)) A logp, whose w, the product of the row's ratios, gets no
 * gradient, k and lambda of `shape` and `rate`: [0] if A >= 0, otherwise [1]; no bound
 */
typedef enum MxTrust {
    MX_TRUST_CLIP,
    MX_TRUST_WEIGHT,
    MX_TRUST_GATE,
    MX_TRUST_GAMMA,
    MX_TRUST_COUNT
} MxTrust;

/* The divergence of a token, of d = reference - policy: exp(d) - d - 1, -d, or d^2 / 2. */
typedef enum MxKl { MX_KL_LOW_VAR, MX_KL_PLAIN, MX_KL_SQUARE, MX_KL_COUNT } MxKl;

/* Of a product of ratios: limits of its logarithm and of that of each ratio, and the least. */
#define MX_POLICY_FAR   20.0
#define MX_POLICY_LEAST 1e-8

typedef struct MxPolicyAttr {
    MxRatio ratio;
    MxTrust trust;
    MxKl kl;
    bool sums; /* a row's loss is the sum over its tokens, otherwise their mean */
    bool has_reference, has_kept;
    bool weighs_kl;   /* the divergence from the reference is multiplied by rho */
    double low, high; /* limits of the ratio, as distances from 1 */
    double most;
    double rise, fall;
    double shape[2], rate[2];
    double off;  /* a row of advantage below 0 whose mean of old - policy is above it has only the
                    divergence; 0 = no limit */
    double beta; /* weight of the KL divergence from the reference */
} MxPolicyAttr;

/* Log-probabilities f32 [R, T]: under the policy, under the one that generated the rows (MX_NONE =
 * the policy itself, so that rho = 1), under the reference (MX_NONE = none). */
typedef struct MxLogps {
    MxValue policy, old, reference;
} MxLogps;

/* Sums over rows, for the log. */
enum {
    MX_POLICY_LOSS,
    MX_POLICY_GAIN,    /* advantage times the mean log-probability of the row's tokens */
    MX_POLICY_KL,      /* divergences of tokens */
    MX_POLICY_CLIPPED, /* tokens whose ratio is clipped */
    MX_POLICY_TOKENS,  /* tokens that count */
    MX_POLICY_ROWS,
    MX_POLICY_COUNT
};

/* mx_policy — loss of responses by their advantages A, f32 [R, T], of which the first in each row
 * is used. A token counts where weights i32 [R, T] is not 0. Its loss is what MxTrust says plus
 * beta times its divergence from the reference; a row without tokens has no loss. Where kept f32
 * [R, T] is 0 the divergence alone is left of it; MX_NONE = nowhere. old, reference, advantages and
 * kept get no gradient. Outputs f32: 0  the sum over rows 1  the vector of MX_POLICY_*
 * (no gradient). Sums are in f64, in order. Source: Shao et al. 2024 (grpo), Zheng et al. 2025
 * (mean ratio), MiniMax 2025 (weight), Gao et al. 2025 (gate), DeepSeek-V3.2
 * 2025 (off, weighs_kl), VESPO as TRL has it (gamma); MaxText
 * experimental/rl/grpo_trainer.py @e591f30c, TRL 1.16 grpo_trainer. */
MxValue mx_policy(MxTrace *t, MxLogps logp, MxValue weights, MxValue advantages, MxValue kept,
                  MxPolicyAttr attr);

typedef struct MxUpperAttr {
    double share; /* from 0 to 1 */
} MxUpperAttr;

/* mx_upper_tokens — which tokens have the largest x, f32 [R, T]: of the n that count, weights i32
 * [R, T] not 0, those with at least the quantile 1 - share (between two numbers on the line through
 * them), say m, become n / m, so that they count as much as all; all others 0. No gradient. Source:
 * Wang et al. 2025 (high-entropy minority tokens), TRL 1.16 get_high_entropy_mask. */
MxValue mx_upper_tokens(MxTrace *t, MxValue x, MxValue weights, MxUpperAttr attr);

/* ---- desirable and undesirable responses */

typedef struct MxKtoAttr {
    double beta;
    double wanted, unwanted; /* weights of their losses */
} MxKtoAttr;

/* Sums over rows, for the log; a row's reward is beta x. */
enum {
    MX_KTO_LOSS,
    MX_KTO_WANTED, /* rows */
    MX_KTO_UNWANTED,
    MX_KTO_WANTED_REWARD,
    MX_KTO_UNWANTED_REWARD,
    MX_KTO_WANTED_LOGP,
    MX_KTO_UNWANTED_LOGP,
    MX_KTO_COUNT
};

/* mx_kto — loss of desirable ("wanted") responses, whose row has a first label, f32 [R, T], above
 * 0, and of undesirable ones. logp has a policy and a reference, f32 [R, T]; a token counts where
 * weights i32 [R, T] is not 0. x is the sum over these tokens of policy minus reference, k the
 * larger of the scalar kl and 0, s the sigmoid: the loss of a row is wanted (1 - s(beta (x - k)))
 * or unwanted (1 - s(beta (k - x))). A gradient flows only to the policy. Outputs f32: 0  the sum
 * over rows 1  the vector of MX_KTO_* (no gradient). Sums are in f64, in order. Source: Ethayarajh
 * et al. 2024; TRL 1.16, trainer/kto_trainer.py. */
MxValue mx_kto(MxTrace *t, MxLogps logp, MxValue weights, MxValue labels, MxValue kl,
               MxKtoAttr attr);

/* ---- counting */

typedef struct MxCountAttr {
    int64_t parts; /* of equal size, of an array's first dim, of which the first counts */
} MxCountAttr;

/* mx_count_nonzero — number of nonzero elements of an i32 array, as an f32 scalar.
 * mx_count_nonzero_first — of the first of several equal parts of its first dim. */
MxValue mx_count_nonzero(MxTrace *t, MxValue x);
MxValue mx_count_nonzero_first(MxTrace *t, MxValue x, int64_t parts);
/* mx_count_segments — number of segments in an i32 array [rows, T], as an f32 scalar: the sum of
 * the largest id of each row, at least 1 per row. */
MxValue mx_count_segments(MxTrace *t, MxValue segments);
/* mx_count_equal — number of positions with x = y and weights != 0, i32 arrays of one shape, as an
 * f32 scalar. */
MxValue mx_count_equal(MxTrace *t, MxValue x, MxValue y, MxValue weights);

#endif
