/* attention.h — what attention and its gradient share: tiles of the score matrix, which of them the
 * mask lets through, and rows of the operands as floats. */
#ifndef CPU_ATTENTION_H
#define CPU_ATTENTION_H

#include "cpu.h"

enum { ATTENTION_QUERIES = 128, ATTENTION_KEYS = 128 }; /* sides of a tile */

typedef struct Attention {
    const MxDevice *device;
    const MxKernelCall *call;
    const MxAttentionAttr *attr;
    const int32_t *segments;
    int64_t batch, time, heads, key_heads, group, width;
    MxDtype dtype;
    char *scratch;
    size_t worker_bytes;
} Attention;

/* Queries [q, q + n_q) against keys [k, k + n_k) of sequence b. */
typedef struct Tile {
    int64_t b, q, n_q, k, n_k;
} Tile;

/* What the queries of a tile see of its keys. */
typedef enum Sight { SIGHT_NONE, SIGHT_PART, SIGHT_ALL } Sight;

/* Rows of one head, `step` floats apart. */
typedef struct Rows {
    const float *data;
    int64_t step;
} Rows;

Attention attention_of(const MxDevice *device, const MxKernelCall *call);
/* attention_sight — segments are told apart by their smallest and largest number on both sides. */
Sight attention_sight(const Attention *a, const Tile *tile);
/* attention_rows — n rows from time t of one head of q, k, v, o or do; converted into `block`
 * [n, width] unless f32. heads: of that operand. */
Rows attention_rows(const Attention *a, const void *x, int64_t heads, const int64_t b_t_head_n[4],
                    float *block);
/* attention_scores — capped and masked scores [n_q, n_k] of a tile; what the mask excludes is minus
 * infinity. */
void attention_scores(const Attention *a, const Tile *tile, Rows q, Rows k, float *scores);

#endif
