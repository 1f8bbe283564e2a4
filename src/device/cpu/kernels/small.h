/* small.h — products of small matrices on one thread, C[m, n] = A[m, k] B[k, n] + beta C, for
 * kernels that keep tiles in the caches. Operands are made of 32-bit words: a float, or, where the
 * processor multiplies bf16, a pair of them that are neighbours along k. So k counts words, and one
 * layout serves both.
 *
 *   A   any strides; element (i, w) at a[i * a_row + w * a_k]
 *   B   rows of words, `b_row` apart, padded with zeros to whole lanes
 *   C   rows of floats, `c_row` apart, padded to whole lanes; the padding is written too */
#ifndef CPU_SMALL_H
#define CPU_SMALL_H

#include "kernel.h"

enum {
    SMALL_LANES = 16,
    SMALL_SIDE = 128, /* the largest side of a kind */
    SMALL_LEAST_SIDE = 64
};

static inline int64_t small_padded(int64_t n) {
    return (n + SMALL_LANES - 1) / SMALL_LANES * SMALL_LANES;
}

typedef struct Small {
    int64_t m, n, k, a_row, a_k, b_row, c_row;
    bool adds; /* beta: 1 or 0 */
} Small;

/* How a machine multiplies one dtype. */
typedef struct SmallKind {
    const char *name;
    int per_word; /* elements along k in a word: floats 1, bf16 2 */
    int depth;    /* words along k that it is best given a multiple of */
    int side;     /* m, n and k of products that run well from the first two caches: 64 or 128 */
    int rows, columns; /* of C that stay in registers while k passes by */
    bool wants_rows;   /* A's words, which are pairs, along k should be neighbours: a_k = 1 */
    void (*multiply)(const Small *small, const void *a, const void *b, float *c);
    void (*open)(void), (*close)(void); /* NULL = nothing to be done */
} SmallKind;

/* small_kind — the fastest way of this machine for a dtype. */
const SmallKind *small_kind(const MxDevice *device, MxDtype dtype);
/* small_kind_of_pairs — the fastest way to multiply bf16 as it is; NULL = the level has none. */
const SmallKind *small_kind_of_pairs(const MxDevice *device);
/* small_kinds — all ways that work on this machine. */
enum { SMALL_KINDS = 3 };
int small_kinds(const MxDevice *device, const SmallKind *kinds[SMALL_KINDS]);

/* small_open, small_close — a thread multiplies only between them. */
static inline void small_open(const SmallKind *kind) {
    if (kind->open) kind->open();
}
static inline void small_close(const SmallKind *kind) {
    if (kind->close) kind->close();
}

/* Floats; and, at the levels that have them, vectors of pairs and AMX's tiles of pairs. */
extern const SmallKind small_floats, small_pairs, small_tiles;

/* small_turn — words [SMALL_LANES, SMALL_LANES] turned round; steps of rows from, to. */
void small_turn(const uint32_t *from, int64_t from_step, uint32_t *to, int64_t to_step);
/* small_turn_floats — [rows, columns], whole lanes both, turned round. */
static inline void small_turn_floats(int64_t rows, int64_t columns, const float *from, float *to) {
    for (int64_t i = 0; i < rows; i += SMALL_LANES)
        for (int64_t j = 0; j < columns; j += SMALL_LANES)
            small_turn((const uint32_t *)(const void *)(from + i * columns + j), columns,
                       (uint32_t *)(void *)(to + j * rows + i), rows);
}

/* small_take — the next bytes of a worker's scratch, or, where that is NULL, only their count.
 * What follows starts two cache lines further on than whole pages would have it: a load that agrees
 * in its last 12 bits with a store under way waits for it. */
static inline void *small_take(char *scratch, size_t *used, size_t bytes) {
    size_t at = *used;
    *used += cpu_padded(bytes) + 2 * CPU_ALIGN;
    return scratch ? scratch + at : NULL;
}

/* Words that n elements along k take. */
static inline int64_t small_words(const SmallKind *kind, int64_t n) {
    return (n + kind->per_word - 1) / kind->per_word;
}

/* Rows [n, width] of an array, `step` elements apart. */
typedef struct SmallRows {
    const void *data;
    MxDtype dtype;
    int64_t n, width, step;
} SmallRows;

/* An A, its element (i, w) at words[i * row + w * k]. */
typedef struct SmallLeft {
    const uint32_t *words;
    int64_t row, k;
} SmallLeft;

/* Words between rows of a packed A that is contracted over the width. */
static inline int64_t small_left_step(const SmallKind *kind, int64_t width) {
    return small_padded(width) / kind->per_word;
}

/* small_pack_left — as A, contracted over the width: [n][small_left_step], or the rows where they
 * are, if the kind wants rows of words and they consist of whole ones.
 * small_pack_right — as B, contracted over the rows: [words of n][width, padded].
 * small_pack_turned — as B, contracted over the width: [words of width][n, padded]; `left` has room
 * for what small_pack_left makes.
 * small_pack_columns — as A, contracted over the rows: [width, padded][words of n, padded]; `right`
 * has room for what small_pack_right makes of whole lanes of words of n.
 * small_pack_across — the same or, where the kind does not mind, what small_pack_right makes. */
SmallLeft small_pack_left(const SmallKind *kind, const SmallRows *rows, void *to);
void small_pack_right(const SmallKind *kind, const SmallRows *rows, void *to);
void small_pack_turned(const SmallKind *kind, const SmallRows *rows, void *left, void *to);
SmallLeft small_pack_columns(const SmallKind *kind, const SmallRows *rows, void *right, void *to);
SmallLeft small_pack_across(const SmallKind *kind, const SmallRows *rows, void *right, void *to);

/* What tests want to see of a level (cpu.h). */
typedef struct SmallParts {
    int (*kinds)(const MxDevice *device, const SmallKind *kinds[SMALL_KINDS]);
    const SmallKind *(*kind)(const MxDevice *device, MxDtype dtype);
    SmallLeft (*pack_left)(const SmallKind *kind, const SmallRows *rows, void *to);
    void (*pack_right)(const SmallKind *kind, const SmallRows *rows, void *to);
    void (*pack_turned)(const SmallKind *kind, const SmallRows *rows, void *left, void *to);
    SmallLeft (*pack_across)(const SmallKind *kind, const SmallRows *rows, void *right, void *to);
    void (*pairs_words)(const float *low, const float *high, uint32_t *words);
    void (*pairs_rows)(const float *low, const float *high, MxBf16 *rows, int64_t step);
} SmallParts;

#endif
