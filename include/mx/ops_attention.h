/* ops_attention.h — ops of attention, and of the indexer that chooses its keys. Letters in shapes
 * are those of ops.h. */
#ifndef MX_OPS_ATTENTION_H
#define MX_OPS_ATTENTION_H

#include <mx/graph.h>

/* The keys s that a query t attends to, among those of its own segment. */
typedef enum MxMask {
    MX_MASK_CAUSAL,  /* s <= t */
    MX_MASK_SLIDING, /* t - window < s <= t */
    MX_MASK_CHUNK,   /* s <= t and s / window == t / window */
    MX_MASK_FULL,    /* all */
    MX_MASK_BLOCKS,  /* s / window <= t / window */
    MX_MASK_COUNT
} MxMask;

typedef struct MxAttentionAttr {
    double scale;   /* on q·k */
    double softcap; /* 0 = none; applied after the scale, before the mask */
    MxMask mask;
    int64_t window;
    bool is_part; /* q has only the queries from first_query on */
    int64_t first_query;
    bool is_swapped; /* of a part the second half is the queries from second_query on */
    int64_t second_query;
    bool has_key_part; /* k and v have only the keys from first_key on, a multiple of their number;
                          of a query that sees none o is 0 and the log-sum minus infinity */
    int64_t first_key;
    int64_t value_width; /* only for mx_cache_attention */
    MxQtype kept;        /* only for mx_cache_attention: k and v are what mx_cache_codes makes */
    int64_t block_size;  /* for mx_attention_blocks above 0; for others 0 */
    bool is_chosen;      /* for mx_attention_chosen true; for others false */
    int64_t chunk;       /* above 0: chosen are chunks of so many keys, by each head for itself */
} MxAttentionAttr;

/* mx_masked_keys — the first and the last of so many tokens' keys that the mask shows a query,
 * segments and blocks aside; both grow with the query. */
typedef struct MxKeyRange {
    int64_t low, high;
} MxKeyRange;
MxKeyRange mx_masked_keys(const MxAttentionAttr *attr, int64_t tokens, int64_t query);

/* mx_attention — softmax over keys of q·k, times v, head by head; query head n reads key head n /
 * (N / K). Scores and softmax in f32; memory linear in T. q [B, T, N, H], k [B, T, K, H], v [B, T,
 * K, W], segments i32 [B, T] (tokens attend to each other only within a segment). Outputs o [B, T,
 * N, W] and, for each row of scores, f32 [B, N, T], the log-sum of its exponentials and its largest
 * score. Source: MaxText layers/attention_op.py; backward after Dao 2022. */
MxValue mx_attention(MxTrace *t, MxValue q, MxValue k, MxValue v, MxValue segments,
                     MxAttentionAttr attr);
/* mx_attention_sinks — the same with an additional key for all queries of a head, whose score is
 * sinks f32 [N] without scaling and whose value is 0; the log-sum includes it, the largest score
 * does not. Source: OpenAI gpt-oss (2025); MaxText layers/attention_op.py @e591f30c. */
MxValue mx_attention_sinks(MxTrace *t, const MxValue qkv[3], MxValue segments, MxValue sinks,
                           MxAttentionAttr attr);

/* mx_attention_blocks — mx_attention in which consecutive tokens of a block, such as the tokens of
 * an image, also attend to each other, whatever the mask is. blocks i32 [B, T]: the number of the
 * token among those of all blocks, from 1 on, attr.block_size per block; 0 = in no block. Source:
 * MaxText layers/attention_op.py, _make_bidirectional_block_mask @e591f30c. */
MxValue mx_attention_blocks(MxTrace *t, const MxValue qkv[3], MxValue segments, MxValue blocks,
                            MxAttentionAttr attr);

/* mx_attention_chosen — mx_attention restricted to the keys chosen for each query: bit s % 32 of
 * chosen[b, t, s / 32] is 1. chosen i32 [B, T, ceil(S / 32)], S keys; at least one key must remain
 * for each query. With attr.chunk what mx_chunks gives: bits of chunks, not of keys. */
MxValue mx_attention_chosen(MxTrace *t, const MxValue qkv[3], MxValue segments, MxValue chosen,
                            MxAttentionAttr attr);

/* mx_pooled_attention — mx_attention_sinks over tokens and further rows, each of which stands for a
 * window of tokens: k [B, T + W, K, H] and v go on with those of the W rows, and token t sees row w
 * if bit w % 32 of seen[b, t, w / 32] is 1. segments i32 [B, T], seen i32 [B, T, ceil(W / 32)]; of
 * attr the mask is about tokens alone. Source: DeepSeek-V4 (2026) 2.3; MaxText
 * layers/attention_compressed.py @e591f30c. */
MxValue mx_pooled_attention(MxTrace *t, const MxValue qkv[3], MxValue segments, MxValue sinks,
                            MxValue seen, MxAttentionAttr attr);

typedef struct MxChunksAttr {
    int64_t chunk;  /* keys of a chunk, at least 1; the last one may have fewer */
    int64_t n_best; /* chunks for a query, at least 1 */
    bool is_part;   /* as of MxAttentionAttr */
    int64_t first_query;
} MxChunksAttr;

/* mx_chunks — the chunks of keys for each query of a head, i32 [B, T, N, ceil(ceil(S / chunk) /
 * 32)]: that of its own token and, of those before it, the n_best - 1 with the largest products of
 * q[t, n] and the mean of their keys, of equal ones the first; all if there are no more. Segments
 * play no part. q [B, T, N, H], k [B, S, K, H]; products in f32. Source: Lu et al., MoBA (2025);
 * MaxText layers/attention_op.py (calculate_moba_gate_logic) @e591f30c. */
MxValue mx_chunks(MxTrace *t, MxValue q, MxValue k, MxChunksAttr attr);

typedef struct MxIndexAttr {
    int64_t n_best;  /* number of keys per query, at least 1 */
    bool keeps_ties; /* also choose all keys with the same score as the last of them */
    bool is_part;    /* as of MxAttentionAttr */
    int64_t first_query;
    int64_t ratio; /* above 0: keys are windows of so many tokens; 0 = tokens */
} MxIndexAttr;

/* mx_index — the keys for each query, in the form of mx_attention_chosen: of the keys s <= t of its
 * segment the n_best with the largest scores sum over n of w[t, n] max(0, q[t, n] · k[s]), of equal
 * ones the first; all keys if there are no more. q [B, T, N, H], k [B, S, H], w f32 [B, T, N],
 * segments i32 [B, S]. Scores in f32. With attr.ratio keys [B, W, H] are of windows of the S
 * tokens, and a query chooses among those that mx_windows gives it (ops_windows.h), which may be
 * none. Source: DeepSeek-V3.2 (2025) 2.1, DeepSeek-V4 (2026) 2.3; MaxText layers/attention_mla.py
 * (Indexer), layers/attention_compressed.py (DeepseekV4Indexer) @e591f30c. */
MxValue mx_index(MxTrace *t, const MxValue qkw[3], MxValue segments, MxIndexAttr attr);

typedef struct MxIndexLossAttr {
    double factor;
    double scale; /* scale of queries times keys of attention */
    bool is_part; /* as of MxAttentionAttr */
    int64_t first_query;
} MxIndexLossAttr;

/* mx_index_loss — the distance of the softmax of an indexer's scores from attention: factor times
 * the sum over tokens of KL(p || softmax(scores)), p[s] the mean over heads of the softmax of scale
 * q · k, both over keys s <= t of the token's segment or, if some were chosen, those among them; an
 * f32 scalar. Logarithms are of a probability plus 1e-8; the sums over heads are normalised by
 * their total plus 1e-8. qkw as in mx_index; qk of attention, [B, T, N, H] and [B, S, K, H],
 * without gradient; chosen MX_NONE = all. Source: DeepSeek-V3.2 (2025) 2.1.1; MaxText
 * layers/attention_mla.py (calculate_indexer_loss) @e591f30c. */
MxValue mx_index_loss(MxTrace *t, const MxValue qkw[3], MxValue segments, const MxValue qk[2],
                      MxValue chosen, MxIndexLossAttr attr);

/* mx_largest — the largest element of each row: f32 [..] from f32 [.., n], n at least 1. Has no
 * gradient. */
MxValue mx_largest(MxTrace *t, MxValue x);

typedef struct MxClipHeadsAttr {
    double threshold; /* above 0 */
    int64_t n_root;   /* number of first elements of a head that are multiplied by the root of its
                         factor */
    bool keeps_rest;  /* the other elements are unchanged, otherwise they are multiplied by the
                         factor */
} MxClipHeadsAttr;

/* mx_clip_heads — scales down heads of a kernel of queries or keys f32 [.., N, H] whose largest
 * score, over all rows of tops f32 [.., N], is above the threshold: the factor of head n is min(1,
 * threshold / (top + 1e-6)), and 1 if the top is not above 0. Source: Kimi K2 (2025) 2.1; MaxText
 * utils/qk_clip_utils.py @e591f30c. */
MxValue mx_clip_heads(MxTrace *t, MxValue w, MxValue tops, MxClipHeadsAttr attr);

#endif
