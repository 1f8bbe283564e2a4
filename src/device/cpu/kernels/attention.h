/* attention.h — shared by attention and its gradient: tiles of the score matrix, and which of them
 * the mask admits. */
#ifndef CPU_ATTENTION_H
#define CPU_ATTENTION_H

#include "small.h"

/* A thread packs what a span of queries or keys shares, and goes through it in blocks: as many as
 * the kind's tiles have sides. A tile that the mask lets through in part is done in parts of half
 * its side (words along either start at a part), since some are not seen at all. */
enum {
    ATTENTION_SPAN = 256,
    ATTENTION_BLOCKS = ATTENTION_SPAN / SMALL_LEAST_SIDE, /* at most */
    ATTENTION_SIDE = SMALL_SIDE,
    ATTENTION_PARTS = 2 * 2
};

typedef struct Attention {
    const MxKernelCall *call;
    const SmallKind *kind;
    const MxAttentionAttr *attr;
    const int32_t *segments; /* NULL = all are of one */
    const int32_t *blocks;   /* of keys, from one on; NULL = none */
    int64_t blocks_from;
    const int32_t *chosen; /* [batch, time, choosers, words], of keys from one on; NULL = all are */
    int64_t words, chosen_from;
    int64_t choosers, chunk; /* heads that choose, or 1; keys of a bit */
    const float *sinks;      /* [heads]; NULL = none */
    int64_t batch, heads, key_heads, group;
    int64_t width, value_width; /* of queries and keys; of values */
    int64_t time, keys;         /* queries and keys of a sequence */
    int64_t tokens;             /* keys of tokens; those behind them only `chosen` shows */
    int64_t slots, oldest; /* key k lies in row k mod slots; those before the oldest are gone */
    int64_t side;          /* queries, and keys, of a tile */
    int n_blocks;          /* of a span */
    int64_t first;         /* the key of which query 0 is the token … */
    int64_t half, second;  /* … and the one of query `half`, from which on they are others */
    float factor;          /* from a product, or from a capped score, to the exponent of 2 */
    MxDtype dtype;
    char *scratch;
    size_t worker_bytes;
} Attention;

/* What the queries of a tile see of its keys. */
typedef enum Sight { SIGHT_NONE, SIGHT_PART, SIGHT_ALL } Sight;

/* Queries [q, q + n_q) of a head against keys [k, k + n_k) of sequence b, each counted in its own
 * array. */
typedef struct Tile {
    int64_t b, head, q, n_q, k, n_k;
    Sight sight; /* filled in by attention_parts */
} Tile;

Attention attention_of(const MxDevice *device, const MxKernelCall *call);
/* attention_forward — the attention of all its queries. attention_forward_bytes — of scratch that a
 * thread needs for it. */
void attention_forward(const MxDevice *device, Attention a);
size_t attention_forward_bytes(const Attention *a);
/* attention_token — the key of which a query is the token. attention_queries_end — where the tile
 * ends that begins at query q: its tokens lie side by side. */
static inline int64_t attention_token(const Attention *a, int64_t q) {
    return q < a->half ? a->first + q : a->second + q - a->half;
}
static inline int64_t attention_queries_end(const Attention *a, int64_t q) {
    return cpu_min(q + a->side, q < a->half ? a->half : a->time);
}
/* attention_pieces — of queries, of at most so many tokens side by side. */
static inline int64_t attention_pieces(const Attention *a, int64_t size) {
    return cpu_pieces(a->half, size) + cpu_pieces(a->time - a->half, size);
}
/* attention_parts — what has to be done of a tile: all of it if everything is seen, or those parts
 * of which something is seen; how many there are. */
int attention_parts(const Attention *a, const Tile *tile, Tile parts[ATTENTION_PARTS]);
/* attention_queries, attention_keys — n rows from time t of one head of an input that has a row a
 * query, or a row a key, of any width. attention_keys_end — where the keys of the tile that begins
 * at k end: they lie side by side, and are of tokens or behind them. */
SmallRows attention_queries(const Attention *a, int input, const int64_t b_t_head_n[4]);
SmallRows attention_keys(const Attention *a, int input, const int64_t b_t_head_n[4]);
static inline int64_t attention_keys_end(const Attention *a, int64_t k) {
    int64_t end = k < a->tokens ? a->tokens : a->keys;
    return cpu_min(cpu_min(k + a->side, end), k - k % a->slots + a->slots);
}
/* attention_mask — makes products of a tile, `step` floats between rows, capped scores if there is
 * a cap, and those minus infinity that the mask excludes. A row is a query or, by_key, a key. */
void attention_mask(const Attention *a, const Tile *tile, bool by_key, float *scores, int64_t step);

#endif
