/* few.h — sums of products of few rows with what serves all of them. */
#ifndef CPU_FEW_H
#define CPU_FEW_H

#include <mx/base.h>

enum { FEW_BESIDE = 4 /* rows of B turned, whose sums are made at a time */ };

/* Rows of floats, `step` apart. */
typedef struct FewRows {
    const float *row;
    int64_t step, m;
} FewRows;

/* few_add — adds to n sums of each row, `columns` apart, CPU_ROWS rows of B, `step` elements apart,
 * times the row's first elements. Meanwhile as many rows at `next` are prefetched; NULL = none. */
void few_add(FewRows a, int64_t n, const float *b, int64_t step, float *sums, int64_t columns,
             const float *next);

/* few_dots — adds to the sums of each row its products, over n elements, with FEW_BESIDE rows of B
 * of floats or bf16. has_next: as many rows lie behind these, and are prefetched meanwhile. */
void few_dots(FewRows a, int64_t n, const void *b, MxDtype dtype, int64_t step,
              float (*sums)[FEW_BESIDE], bool has_next);
#endif
