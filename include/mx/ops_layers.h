/* ops_layers.h — ops of layers: experts, normalisation, rotary positions, the gated delta rule,
 * caches. Letters in shapes are those of ops.h. */
#ifndef MX_OPS_LAYERS_H
#define MX_OPS_LAYERS_H

#include <mx/graph.h>
#include <mx/ops_attention.h>
#include <mx/ops_ngrams.h>

/* ---- routing to experts. X experts, C choices of a token. */

/* mx_softmax — exp(x) / sum of exp(x) over the last dim, f32 [.., n]. */
MxValue mx_softmax(MxTrace *t, MxValue x);

/* mx_share — x / (sum of x + 1e-20) over the last dim, f32 [.., n]. Source: MaxText layers/moe.py
 * deepseek_scale_weights. */
MxValue mx_share(MxTrace *t, MxValue x);

typedef struct MxTopKAttr {
    int64_t k;
    int64_t n_groups; /* number of groups of consecutive elements of the last dim; 0 = one … */
    int64_t n_best;   /* … and number of groups from which elements are taken */
} MxTopKAttr;

/* mx_top_k — the indices of the k largest elements of the last dim, i32 [.., k], the largest first;
 * of equal ones the lower index. x f32 [.., n], 1 <= k <= n. If there are several groups, of at
 * least two elements each, only the n_best groups count whose two largest elements have the largest
 * sums. Source: DeepSeek-V3 (2024) 2.1.2; MaxText layers/moe.py expert_group_mask. */
MxValue mx_top_k(MxTrace *t, MxValue x, MxTopKAttr attr);

typedef struct MxDrawIdsAttr {
    int64_t k;
    uint64_t seed, stream;
    int64_t length, first; /* x's dim 1, and the first element of this rank's part of it */
} MxDrawIdsAttr;

/* mx_draw_ids — k indices of the last dim by chance, i32 [B, T, k]: all are equally likely, each
 * whatever the others are, so that some may be equal. Of x f32 [B, T, n], n < 2^31, only the shape
 * is read. Index c of token t of row b is floor(n w / 2^32), where w is word (rows[b] T + t) k + c
 * of the random sequence of MxRandomAttr; rows i32 [B], step i32 scalar. Source: MaxText
 * layers/moe.py random_routing @e591f30c. */
MxValue mx_draw_ids(MxTrace *t, MxValue x, MxValue rows, MxValue step, MxDrawIdsAttr attr);

typedef struct MxPickGradAttr {
    int64_t n; /* size of the last dim of the array that was picked from */
} MxPickGradAttr;

/* mx_pick — y[.., i] = x[.., ids[.., i]]. x f32 [.., n], ids i32 [.., k] in [0, n). */
MxValue mx_pick(MxTrace *t, MxValue x, MxValue ids);

typedef struct MxSlotsAttr {
    int64_t n_experts, capacity;
    bool sums; /* for from_slots: sum over the choices of a token */
} MxSlotsAttr;

/* mx_to_slots — moves rows of x to the slots of their experts: out 0 [B, X, S, D] of x's dtype has
 * in slot s of expert e the row of the s-th choice of e in row b, in the order of tokens and then
 * of choices, and zeros in empty slots; out 1 i32 [B, X, S] is e for used slots, -1 for empty ones.
 * x [B, T, C, D], or [B, T, D] for the same row for every choice; ids i32 [B, T, C] in [0, X), -1 =
 * no expert. Choices beyond `capacity` are dropped; S is the capacity, or 1 if it is 0. Source:
 * MaxText layers/moe.py generate_masks. */
MxValue mx_to_slots(MxTrace *t, MxValue x, MxValue ids, MxSlotsAttr attr);
/* mx_from_slots — the inverse: the row in each choice's slot, [B, T, C, D], zeros for dropped
 * choices; with attr.sums their sum over C, [B, T, D], in f32. y [B, X, S, D], ids as above. */
MxValue mx_from_slots(MxTrace *t, MxValue y, MxValue ids, MxSlotsAttr attr);

typedef struct MxCountIdsAttr {
    int64_t n;
} MxCountIdsAttr;

/* mx_count_ids — how often each id occurs: f32 [n] from i32 [..] in [0, n); -1 = none. */
MxValue mx_count_ids(MxTrace *t, MxValue ids, int64_t n);

typedef struct MxEvenOutAttr {
    double rate;
} MxEvenOutAttr;

/* mx_even_out — p + rate if the count is below the mean, p - rate if it is above. p, counts f32
 * [n]. Source: Wang et al. 2024 (loss-free balancing); MaxText layers/moe.py
 * calculate_load_balance_updates. */
MxValue mx_even_out(MxTrace *t, MxValue p, MxValue counts, double rate);

/* The matrix of a choice is w[e] or its transpose. */
typedef struct MxExpertDotAttr {
    MxDtype dtype;     /* dtype of the result; sums are in f32 */
    bool transposed;   /* w is [X, N, D] */
    bool sums;         /* sum over the choices of a token */
    bool slots;        /* ids are [B, X, S], those of slots: they are sharded like w */
    int64_t n_experts; /* of which w has those from `first` on; other ids give zeros */
    int64_t first;
} MxExpertDotAttr;

/* mx_expert_dot — y[.., c, :] = x[.., c, :] w[ids[.., c]]: a product with one matrix per expert,
 * each for the rows that chose it. x [.., C, D], or [.., D] for the same row for every choice; ids
 * i32 [.., C], -1 = no expert, a row of zeros; w [X, D, N] of x's dtype. y [.., C, N], with
 * attr.sums their sum over C, [.., N]. The kernel sorts rows by expert. The dtype and the number of
 * experts are filled in. */
MxValue mx_expert_dot(MxTrace *t, MxValue x, MxValue ids, MxValue w, MxExpertDotAttr attr);

typedef struct MxExpertDwAttr {
    MxDtype dtype;     /* of the result */
    bool slots;        /* as in MxExpertDotAttr */
    int64_t n_experts; /* number of experts that are computed … */
    int64_t first;     /* … starting at this one */
} MxExpertDwAttr;

/* mx_expert_dw — dw[e] = sum over choices of e of x[.., c, :]^T y[.., c, :], [X, D, N]: the
 * gradient of expert_dot with respect to w. x and y [.., C, D] and [.., C, N], or without C. The
 * dtype is filled in. */
MxValue mx_expert_dw(MxTrace *t, MxValue x, MxValue ids, MxValue y, MxExpertDwAttr attr);

/* mx_combine — y[.., :] = sum over c of weights[.., c] x[.., c, :], in f32, as x's dtype. x [.., C,
 * D], weights f32 [.., C]. With weights [.., C, M] there are M such sums: y [.., M, D], y[.., m, :]
 * = sum over c of weights[.., c, m] x[.., c, :]. */
MxValue mx_combine(MxTrace *t, MxValue x, MxValue weights);

typedef struct MxBalanceAttr {
    double factor;
    int64_t n_experts;
} MxBalanceAttr;

/* mx_balance — the load-balancing loss of experts: factor times the sum over rows b and experts e
 * of (choices of e / T) (mean over t of probs[b, t, e]), an f32 scalar. probs f32 [B, T, X], ids
 * i32 [B, T, C] in [0, X); no gradient flows to ids. Source: Fedus et al. 2021 (4)-(6); MaxText
 * layers/moe.py load_balance_loss. The number of experts is filled in. */
MxValue mx_balance(MxTrace *t, MxValue probs, MxValue ids, double factor);

/* ---- doubly stochastic matrices: rows and columns sum to 1 */

typedef struct MxSinkhornAttr {
    int64_t iterations; /* at least 1 */
} MxSinkhornAttr;

/* mx_sinkhorn — makes matrices nearly doubly stochastic: softmax of every row plus 1e-6; then,
 * `iterations` times, rows are divided by their sum plus 1e-6 (except the first time), and columns
 * by theirs. x f32 [.., n, n]. Source: Sinkhorn & Knopp 1967; Xie et al. 2025 (mHC) 4.2; MaxText
 * layers/mhc.py (sinkhorn) @e591f30c. */
MxValue mx_sinkhorn(MxTrace *t, MxValue x, int64_t iterations);

enum { MX_MOST_PERMUTED = 8 };

typedef struct MxPermutationsAttr {
    int64_t n;    /* at most MX_MOST_PERMUTED */
    bool is_back; /* the transposed map: from matrices to weights */
} MxPermutationsAttr;

/* mx_permutations — the sum of all n! permutation matrices times their weights: y[.., i, j] = sum
 * of x[.., p] over the permutations p, in lexicographic order, with j at position i; back: y[.., p]
 * = sum over i of x[.., i, p(i)]. x f32 [.., n!], y [.., n, n]. Source: MaxText layers/mhc.py
 * (get_permutation_matrices) @e591f30c. */
MxValue mx_permutations(MxTrace *t, MxValue x, int64_t n);
/* mx_next_permutation — makes p, of 0 .. n - 1, the next one in lexicographic order; false if it is
 * the last. Source: Knuth, TAOCP 7.2.1.2, algorithm L. */
bool mx_next_permutation(int64_t n, uint8_t *p);

/* ---- normalisation */

/* mx_center — x minus its mean over the last dim, summed in f32. x [.., D]. */
MxValue mx_center(MxTrace *t, MxValue x);

typedef struct MxRmsnormAttr {
    double eps;
} MxRmsnormAttr;

/* mx_rmsnorm — y = round(x * rstd) * round(scale) with rstd = 1/sqrt(mean(x^2) + eps) over the last
 * dim; round is to x's dtype, everything else is f32. x [.., D], scale f32 [D]; outputs y and rstd
 * f32 [..]. A scale [G, D] of x [.., G, D] has a row for each position of the dim before the last.
 * Source: MaxText layers/normalizations.py RMSNorm. */
MxValue mx_rmsnorm(MxTrace *t, MxValue x, MxValue scale, double eps);

/* ---- rotary positions */

/* Frequencies of one rotary embedding. */
typedef struct MxRopeFreqs {
    int n;             /* rotated pairs of a head */
    double *frequency; /* [n] radians per position */
    double amplitude;  /* factor on cos and sin (yarn's attention scaling); usually 1 */
    /* Above 0, cos and sin of a position p are also multiplied by 1 + growth log(1 + floor((p + 1)
     * / period)). Source: MaxText layers/attentions.py (temperature_tuning) @e591f30c. */
    double growth, period;
    /* [n] which of a token's positions turns a pair, of tokens that have several; NULL = the first.
     */
    const uint8_t *kind;
} MxRopeFreqs;

enum { MX_ROPE_MOST_KINDS = 3 };

/* mx_rope_table — cos and sin of positions i32 [B, T]: f32 [B, T, n, 2]. Angles are computed in
 * double. mx_rope_table_of — of tokens that have n_kinds positions each: pair i is turned by
 * positions[kind[i]]. */
MxValue mx_rope_table(MxTrace *t, MxValue positions, MxRopeFreqs freqs);
MxValue mx_rope_table_of(MxTrace *t, int n_kinds, const MxValue *positions, MxRopeFreqs freqs);

typedef struct MxRopeTableAttr {
    MxRopeFreqs freqs;
} MxRopeTableAttr;

/* The positions of pair i among 2n elements: halves (i, i + n) or interleaved (2i, 2i + 1). */
typedef struct MxRopeAttr {
    bool interleaved_in, interleaved_out;
    bool inverse;  /* rotate back (the gradient) */
    int64_t first; /* first rotated element of a head: 2n elements from it on are rotated, the
                      others are unchanged */
} MxRopeAttr;

/* mx_rope — rotates pair i of every head of x [B, T, N, H], or of a part of it, by the table's
 * angle i: (a cos - b sin, b cos + a sin). first + 2n <= H. */
MxValue mx_rope(MxTrace *t, MxValue x, MxValue table, MxRopeAttr attr);

/* ---- the gated delta rule */

typedef struct MxDeltaAttr {
    bool carries;  /* state and inputs carry over from one segment to the next */
    int64_t apart; /* of convolutions: distance between two taps in tokens, A; 0 = 1 */
} MxDeltaAttr;

/* mx_conv — a convolution of each channel: y[t, d] = sum over j of w[j, d] x[t - (W - 1 - j) A, d],
 * only over tokens of t's segment unless attr.carries. x [B, T, D], w f32 [W, D], which is rounded
 * to x's dtype; segments i32 [B, T]. */
MxValue mx_conv(MxTrace *t, MxValue x, MxValue w, MxValue segments, MxDeltaAttr attr);

/* mx_decay — -exp(rate) log(1 + exp(x)). x f32 [.., N], rate f32 [N]. */
MxValue mx_decay(MxTrace *t, MxValue x, MxValue rate);

enum { MX_DELTA_CHUNK = 64 }; /* tokens that are processed together */

/* mx_delta — a state S [H, W] for each value head, zero at the beginning of a segment: token t
 * updates it to S = exp(decay) S, then S += k ⊗ beta (v - S^T k), and reads o = S^T q. q, k [B, T,
 * K, H], v [B, T, N, W]; value head n has key head n / (N / K). decay f32 [B, T, N], at most 0;
 * beta f32 [B, T, N]; segments i32 [B, T]. Tokens of segment 0 read zeros; with attr.carries they
 * change nothing and read like others. o [B, T, N, W]. In f32; the work is linear in T. decay_beta
 * are these two inputs. Source: Yang et al. 2024 (Gated Delta Networks); MaxText models/qwen3.py
 * @e591f30c. */
MxValue mx_delta(MxTrace *t, const MxValue qkv[3], const MxValue decay_beta[2], MxValue segments,
                 MxDeltaAttr attr);

/* ---- caches of earlier tokens
 *
 * A cache [S, C, …] holds rows of positions of S sequences: position p in slot p mod C, so of a
 * sequence's n positions 0 .. n - 1 the last C, or all. */

/* The position of a piece [B, T] of some sequences. */
typedef struct MxCachePlace {
    MxValue positions; /* i32 [B, T] of tokens; negative: padding, after the piece's tokens */
    MxValue counts;    /* i32 [B] number of positions in the cache of each sequence, including this
                          piece */
    MxValue sequences; /* i32 [B] indices among the S sequences, each at most once */
} MxCachePlace;

/* mx_cache_write — the cache with rows [B, T, …] written to the slots of their positions; padding
 * is ignored, of several rows for one slot the last one is kept. Assign it to the cache's own
 * variable. */
MxValue mx_cache_write(MxTrace *t, MxValue cache, MxValue rows, MxCachePlace place);

/* mx_cache_codes — rows of heads x [B, T, K, H] in few bits, u8 [B, T, K, mx_cache_row_bytes]:
 * codes of MX_INT8 or MX_INT4 (of 4 bits element i in the low half of a byte, element i + ceil(H /
 * 2) in the high one), then s in x's dtype. The largest magnitude of a row, or of all heads of a
 * token, m, sets s = m / 127.5 or m / 7.5; a code is x (127.5 / m), to the nearest, ties to even,
 * at most 127 or 7, and stands for code s. All that is computed is rounded to x's dtype. A row with
 * an element that is not finite stands for NaN. Source: MaxText inference/kvcache.py, KVQuant
 * @e591f30c. */
typedef struct MxCacheCodesAttr {
    MxQtype type;
    bool spans_heads;
} MxCacheCodesAttr;
MxValue mx_cache_codes(MxTrace *t, MxValue x, MxCacheCodesAttr attr);
/* mx_cache_row_bytes — of a head's codes and scale. */
int64_t mx_cache_row_bytes(MxQtype type, int64_t width, MxDtype dtype);

/* mx_cache_attention — attention of queries q [B, T, N, H] over caches of keys k [S, C, K, H] and
 * values v [S, C, K, W]: o [B, T, N, W], as in mx_attention (attr's is_part is ignored); values are
 * the first attr.value_width elements of v's rows, 0 = all, and v may be k. Padding, and queries
 * without keys, get zeros. sinks f32 [N] as in mx_attention_sinks, or MX_NONE; with attr.is_chosen
 * it is the chosen ones of C slots, i32 [B, T, ceil(C / 32)]; with attr.block_size the blocks of
 * the piece's tokens, i32 [B, T], as in mx_attention_blocks: tokens of one block at neighbouring
 * positions of the piece attend to each other. With attr.kept k and v are u8 [S, C, K,
 * mx_cache_row_bytes] and stand for rows of H and attr.value_width elements. */
MxValue mx_cache_attention(MxTrace *t, const MxValue qkv[3], MxCachePlace place, MxValue sinks,
                           MxAttentionAttr attr);

/* mx_cache_pooled_attention — mx_cache_attention with sinks over a cache of keys, which are values
 * too, and besides over a cache of rows [S, P, K, H], of which token t sees row p if bit p % 32 of
 * seen[b, t, p / 32] is 1 (i32 [B, T, ceil(P / 32)]), as in mx_pooled_attention. */
MxValue mx_cache_pooled_attention(MxTrace *t, const MxValue q_keys_rows[3], MxCachePlace place,
                                  MxValue sinks, MxValue seen, MxAttentionAttr attr);

/* mx_cache_index — mx_index of queries q [B, T, N, H] and w f32 [B, T, N] over a cache of keys [S,
 * C, 1, H] with all positions: i32 [B, T, ceil(C / 32)]. Padding gets no keys. attr.ratio is 0. */
MxValue mx_cache_index(MxTrace *t, const MxValue qkw[3], MxCachePlace place, MxIndexAttr attr);

/* mx_cache_chunks — mx_chunks of queries [B, T, N, H] over a cache of keys [S, C, K, H] with all
 * positions: i32 [B, T, N, ceil(ceil(C / chunk) / 32)]. Padding gets none. */
MxValue mx_cache_chunks(MxTrace *t, MxValue q, MxValue k, MxCachePlace place, MxChunksAttr attr);

/* mx_cache_conv — mx_conv of x in a cache [S, C, D]: y [B, T, D] for the piece's tokens, zeros for
 * padding. w f32 [W, D]; C >= (W - 1) A + T, or all positions. It always carries. */
MxValue mx_cache_conv(MxTrace *t, MxValue cache, MxValue w, MxCachePlace place, MxDeltaAttr attr);

/* mx_cache_ngrams — mx_ngrams of tokens in a cache i32 [S, C]: i32 [B, T, ..] for the piece's
 * tokens, zeros for padding; C >= longest - 1 + T, or all positions. */
MxValue mx_cache_ngrams(MxTrace *t, MxValue cache, MxCachePlace place, MxNgramAttr attr);

/* mx_cache_delta — mx_delta for pieces of sequences, whose states are stored as f32 [S, 1, N, H,
 * W]: returns the states after the piece, to be assigned to their own variable, and, as the next
 * value, o [B, T, N, W], zeros for padding. If a piece begins at position 0, the state is initially
 * zero. */
MxValue mx_cache_delta(MxTrace *t, MxValue memory, const MxValue qkv[3],
                       const MxValue decay_beta[2], MxCachePlace place);

typedef struct MxHeadDotAttr {
    bool transposed;
    int64_t first, width; /* the elements of w's last dim that are used */
} MxHeadDotAttr;

/* mx_head_dot — a product of every head with its part of a kernel w [C, N, E]: y[.., n, v] = sum
 * over c of x[.., n, c] w[c, n, first + v], v < width; transposed, y[.., n, c] = sum over s < width
 * of x[.., n, s] w[c, n, first + s]. In x's dtype; sums are in f32. Has no gradient. */
MxValue mx_head_dot(MxTrace *t, MxValue x, MxValue w, MxHeadDotAttr attr);

#endif
