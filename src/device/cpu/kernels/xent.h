/* xent.h — functions of logits, chunk by chunk of the tokens that count (xent.c), shared with the
 * work on their rows (xent_rows.c). */
#ifndef CPU_XENT_H
#define CPU_XENT_H

#include "kernel.h"

/* Products are prepared for chunks of so many sizes, evenly apart, and for what is left if all
 * tokens count; a smaller rest is padded with zeros up to the next size. */
enum { STEPS = 8, REST = STEPS, SIZES };

enum { H, W, TARGETS, WEIGHTS, DSUM, LOG_SUM = DSUM, DLOGP };
enum { ENTROPY = LOG_SUM + 1, DLOGP_BESIDE, DENTROPY }; /* where entropies have cotangents too */
enum { ONLY_WEIGHTS = 2 };
enum { TEACHER_H = 4, TEACHER_W, NUMBERS, DISTILL_DLOSS };
enum { TOP = 4, TOP_IDS };
enum { DW, DH, GRAD_SUM };

enum { MOST_SUMS = 1 + MX_DISTILL_SUMS };

/* A teacher's logits, beside those of the student. */
typedef struct Teacher {
    const MxXentAttr *attr;
    int64_t width;
    MxDtype dtype;
    const CpuMatmul *logits[SIZES];
} Teacher;

typedef struct Chunk Chunk;

/* What an op makes of logits. */
typedef struct XentKind {
    int n_sums; /* over tokens: the loss and others; 0 = log-probabilities */
    bool is_grad, is_argmax, has_teacher;
    bool knows_sums;   /* of rows: they are an input */
    bool only_weights; /* no targets: weights are input ONLY_WEIGHTS */
    /* All of a row's work, of ops that no part of the vocabulary is enough for; NULL = in halves */
    void (*row)(const Chunk *chunk, int64_t row, void *products);
} XentKind;

/* The sizes of a call, and its products for every size of a chunk. */
typedef struct Xent {
    const MxKernelCall *call;
    const MxXentAttr *attr;
    int64_t tokens, width, vocab, chunk;
    MxDtype dtype;
    const int32_t *weights;
    XentKind kind;
    Teacher teacher;
    MxExchange *exchange; /* with ranks to tell of rows; NULL = none */
    const CpuMatmul *logits[SIZES], *dh[SIZES], *dw_first[SIZES], *dw[SIZES];
} Xent;

/* Scratch. */
typedef struct Work {
    int64_t *counting; /* the tokens that count, in order */
    void *logits;
    void *h, *dh; /* a chunk's rows side by side */
    void *teacher_h, *teacher_logits;
    double *sums; /* [chunk][n_sums] */
    /* Of a chunk's rows: this rank's [chunk] among those of the whole group, each with the sums of
     * exponentials times exponents [chunk] behind it, where the entropy is wanted. */
    char *parts;
    MxXentPart *part;
    double *bent;
    float *dw; /* sum in f32 if dw is bf16 */
    void *product;
} Work;

/* Halves of a row's work: up to what it gives the others, and from what they all gave. */
enum { FIRST_HALF = 1, SECOND_HALF = 2, ALL_OF_IT = 3 };

/* Tokens [first, first + n) of those that count; the products are made for `rows` of them. */
struct Chunk {
    const Xent *x;
    const Work *work;
    const int64_t *token;
    int64_t first, n, rows;
    int size;
    int halves;    /* of the rows' work that are done */
    bool in_place; /* the tokens lie side by side in h */
};

/* xent_begin_row — the first half: a row of products, and what it gives. xent_end_row — the second
 * half: to what is wanted. */
void xent_begin_row(const Chunk *chunk, int64_t row, const void *products);
void xent_end_row(const Chunk *chunk, int64_t row, void *products);

/* ---- for rows */

/* xent_logits_at — n logits of a row from `at` on, CPU_BLOCK at most: products, scaled and capped.
 * xent_target — where a token's target stands in its row; -1 = with another rank. */
const float *xent_logits_at(const MxXentAttr *attr, MxDtype dtype, const void *row, int64_t at,
                            int64_t n, float *block);
int64_t xent_target(const Chunk *chunk, int64_t row);
/* xent_sum_row — the largest of a row's logits, the sum of exponentials relative to it, and the
 * target's logit, to work->part. */
void xent_sum_row(const Chunk *chunk, int64_t row, const void *products);

/* What a row's exponentials are multiplied with in the cotangent, and what more times their
 * exponents above `level`, relative to the largest logit; what its target loses, and what n of its
 * logits get besides. */
typedef struct RowSlope {
    double softmax, bend, level, target;
    int64_t n;
    const int32_t *ids; /* [n] */
    const float *more;  /* [n] */
} RowSlope;

/* xent_grad_row — a row of products to their cotangents; work->part has its largest logit. */
void xent_grad_row(const Chunk *chunk, int64_t row, void *products, RowSlope slope);

/* xent_distill_row — beside a teacher (distill.c). xent_top_row, xent_distill_top_row — the largest
 * logits, and beside a teacher's largest ones (distill_top.c). */
void xent_distill_row(const Chunk *chunk, int64_t row, void *products);
void xent_top_row(const Chunk *chunk, int64_t row, void *products);
void xent_distill_top_row(const Chunk *chunk, int64_t row, void *products);

#endif
