/* lora.h — the adapters of a file, layer by layer and in pairs, and what they make of weights.
 * Found and read in adapters.c, merged in lora.c. */
#ifndef CKPT_LORA_H
#define CKPT_LORA_H

#include "internal.h"

/* What becomes of one weight: it is replaced by another array of the file, or A B is added. A B,
 * materialised: a [rows, rank], b [rank, columns]; of experts as many of both, one behind the
 * other. With magnitudes [columns] every column gets a factor, m / its norm with the adapter. */
typedef struct CkptDelta {
    const float *a, *b;
    const float *m;       /* NULL = there are none */
    const double *factor; /* of each column, NULL = 1 */
    int64_t rows, rank, columns;
    double scale;
    const CkptFile *file;   /* of … */
    const CkptPiece *whole; /* … what replaces it; NULL = nothing does */
} CkptDelta;

/* Squared norms over all weights that were changed. */
typedef struct CkptDrift {
    int n_merged; /* weights */
    double delta; /* of what was to be added */
    double lost;  /* of what rounding to float32 took away again */
} CkptDrift;

/* ckpt_delta_replace — a box of the weight, x, by the array that is to be in its place.
 * ckpt_delta_merge — A B into `n` elements of the weight from its element `first` on, in row-major
 * order; the squares of both norms are added to the drift's. */
bool ckpt_delta_replace(const CkptDelta *d, const MxBox *box, float *x, CkptDrift *drift,
                        MxError *err);
void ckpt_delta_merge(const CkptDelta *d, int64_t first, int64_t n, float *x, CkptDrift *drift);

/* A weight and its adapters, as leaves, m -1 = there are no magnitudes; or what was trained in its
 * place. */
typedef struct CkptAdapter {
    const char *weight;
    int a, b, m, whole; /* -1 = there is none */
} CkptAdapter;

/* All of a file. */
typedef struct CkptLora {
    CkptFile file;
    MxTree leaves; /* layer by layer, all of the file */
    CkptPiece *pieces;
    CkptAdapter *adapters; /* [n + n_whole] those that were trained as they are come last */
    int n, n_whole;
    bool has_weights; /* parameters that are no adapters */
} CkptLora;

/* ckpt_is_adapter — by its name; path without "/value". ckpt_is_whole — whether it is what was
 * trained in a weight's place. ckpt_is_head — whether it is a head of one number, which adapters
 * train as it is. */
bool ckpt_is_adapter(const char *path);
bool ckpt_is_whole(const char *path);
bool ckpt_is_head(const char *path);
/* ckpt_lora_find — the adapters among the parameters of a file.
 * Errors: there are none; every one whose other half is missing or that has another rank. */
bool ckpt_lora_find(MxArena *arena, const CkptFile *file, CkptLora *out, MxError *err);
/* ckpt_lora_match — which adapter belongs to each of the weights (an index, -1 = none): [weights.n]
 * in the arena. Errors: every adapter without its weight, or for one of another shape. */
bool ckpt_lora_match(MxArena *arena, const CkptLora *lora, const MxTree *weights, int **out,
                     MxError *err);
/* ckpt_lora_load — the arrays of one adapter, for a weight of `count` elements. ckpt_lora_measure —
 * the factors of its columns if it has magnitudes: the weight, a piece of a file, is read once.
 * Errors: a column of zeros. */
bool ckpt_lora_load(MxArena *arena, const CkptLora *lora, int adapter, int64_t count, double alpha,
                    CkptDelta *out, MxError *err);
bool ckpt_lora_measure(MxArena *arena, const CkptFile *file, const CkptPiece *piece,
                       const MxLeaf *weight, CkptDelta *delta, MxError *err);
/* ckpt_lora_check_base — that weights are those that the adapters were trained over, where their
 * file and the facts tell.
 *   note  receives what was done, a line */
bool ckpt_lora_check_base(const CkptLora *lora, const CkptFile *file, const MxTree *weights,
                          const CkptPiece *pieces, const MxTree *order, const char **note,
                          MxError *err);

#endif
