/* index.h — the scores of an indexer, shared by its choice, its loss and the gradient of its loss.
 */
#ifndef CPU_INDEX_H
#define CPU_INDEX_H

#include "small.h"

/* Queries that a thread takes at a time, keys that it meets them with, and products of heads that
 * are made at a time (more where one query has more). */
enum { INDEX_QUERIES = 32, INDEX_KEYS = 64, INDEX_ROWS = 256 };

enum { INDEX_Q, INDEX_K, INDEX_W, INDEX_SEGMENTS }; /* inputs */

typedef struct Index {
    const MxKernelCall *call;
    const int32_t *segments;          /* of tokens; NULL = all are of one */
    const int32_t *key_segments;      /* the same if keys are tokens */
    const int32_t *chosen;            /* NULL = all are */
    const int32_t *sequences;         /* of a cache: whose keys those of b are; NULL = its own */
    int64_t batch, time, keys, first; /* first: the token that query 0 is */
    int64_t tokens, ratio;            /* of a sequence; that are a key */
    int64_t heads, width, words;      /* words of what is chosen for a query */
    int64_t padded_width, step;       /* step: keys in whole blocks, floats of a row of scores */
    int64_t at_once;                  /* queries whose heads are multiplied at once */
    MxDtype dtype;
} Index;

/* Queries [t, t + n) of sequence b. */
typedef struct IndexSpan {
    int64_t b, t, n;
} IndexSpan;

/* Tiles of a worker: rows of heads of queries, and their products with a block of keys. */
typedef struct IndexTiles {
    float *q;        /* [rows][padded width] */
    float *turned;   /* [width][INDEX_KEYS] of keys */
    float *products; /* [rows][INDEX_KEYS] */
} IndexTiles;

Index index_of(const MxKernelCall *call);
IndexTiles index_carve(const Index *x, char *scratch, size_t *used);
/* index_products — of the heads of queries (at_once at most, loaded by index_load) and n keys from
 * s on. index_scores — of queries with the keys that they may see as to time, row by row. */
void index_load(const Index *x, IndexSpan span, const IndexTiles *tiles);
void index_products(const Index *x, IndexSpan span, int64_t s, const IndexTiles *tiles);
void index_scores(const Index *x, IndexSpan span, const IndexTiles *tiles, float *scores);
/* index_sees — whether query t may see key s: its last token is no later, and it is of the same
 * segment. */
static inline bool index_sees(const Index *x, int64_t b, int64_t t, int64_t s) {
    int64_t own = x->first + t;
    if ((s + 1) * x->ratio > own + 1) return false;
    if (x->segments && x->key_segments[b * x->keys + s] != x->segments[b * x->tokens + own])
        return false;
    if (!x->chosen) return true;
    return (uint32_t)x->chosen[(b * x->time + t) * x->words + s / 32] >> s % 32 & 1u;
}
/* The w of a query's heads. */
static inline const float *index_weights(const Index *x, int64_t b, int64_t t) {
    return (const float *)x->call->in[INDEX_W] + (b * x->time + t) * x->heads;
}
/* Keys that some query of a span may see. */
static inline int64_t index_reach(const Index *x, IndexSpan span) {
    return (x->first + span.t + span.n) / x->ratio;
}

#endif
