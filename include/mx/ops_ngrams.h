/* ops_ngrams.h — ops of n-gram memories: which rows of tables n-grams select, and how well rows
 * match. Letters in shapes are those of ops.h. */
#ifndef MX_OPS_NGRAMS_H
#define MX_OPS_NGRAMS_H

#include <mx/graph.h>

/* How n-grams of 2 to `longest` tokens become row numbers, one for each length and head. */
typedef struct MxNgrams {
    int longest, n_heads;
    const int32_t *sizes;    /* [longest - 1, n_heads] rows of a head's table */
    const int32_t *factors;  /* [longest] of a token and of those before it */
    const int32_t *canon;    /* [n_canon] canonical id of a token, which several may share; NULL in
                                graphs that are not run */
    int32_t n_canon, before; /* before: the canonical id in place of tokens before the first */
} MxNgrams;

typedef struct MxNgramAttr {
    const MxNgrams *of;
} MxNgramAttr;

/* mx_ngrams — the table rows that the n-grams ending at a token select, with the tables of all
 * heads one after another: i32 [B, T, (longest - 1) heads] of tokens i32 [B, T]. With canonical ids
 * c and factors f the n-gram at t is x_n = c[t] f[0] ^ c[t - 1] f[1] ^ .. ^ c[t - n + 1] f[n - 1],
 * and a head's row is x_n mod its size. N-grams continue across segments. Tokens beyond canon count
 * as its last one. Source: Engram (2026) 2.2; MaxText layers/engram.py (NgramHashMapping)
 * @e591f30c. */
MxValue mx_ngrams(MxTrace *t, MxValue tokens, MxNgramAttr attr);

/* mx_match — how well rows match: sigmoid(r), r = sign(s) sqrt(max(|s|, 1e-6)), s = scale · q · k;
 * f32 [..] of q and k [.., D]. Source: Engram (2026) 2.3; MaxText layers/engram.py (Engram)
 * @e591f30c. */
typedef struct MxMatchAttr {
    double scale;
} MxMatchAttr;
MxValue mx_match(MxTrace *t, MxValue q, MxValue k, MxMatchAttr attr);

#endif
