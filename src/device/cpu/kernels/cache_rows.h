/* cache_rows.h — rows of caches, in the form that they are kept in. */
#ifndef CPU_CACHE_ROWS_H
#define CPU_CACHE_ROWS_H

#include "kernel.h"

/* Rows of a head, `step` bytes apart, and how many of their elements are used; vectors that they
 * are multiplied with lie `apart`, in floats. What lies `ahead` bytes behind a row is wanted soon;
 * 0 = nothing. */
typedef struct CacheRows {
    const char *first;
    int64_t n, step, width, apart, ahead;
} CacheRows;

/* ---- cache_rows.c */

/* cache_row_read — the n elements that a row of mx_cache_codes stands for. cache_row_scales — what
 * the codes of such rows are multiplied with. */
void cache_row_read(MxQtype type, MxDtype dtype, const char *row, int64_t n, float *y);
void cache_row_scales(MxQtype type, MxDtype dtype, const CacheRows *rows, float *scales);

/* ---- cache_forms.c */

/* Products of rows with the vectors of one query, or of CACHE_QUERIES, of codes without their
 * scales: score[j] += q · row j; sum += p[0] row 0 + p[1] row 1 + … Scores, and p, of a query lie
 * CACHE_ROOM apart. Rows are read CACHE_ROWS at a time: of p those that no row has are zeros. */
enum { CACHE_QUERIES = 4, CACHE_ROWS = 4, CACHE_ROOM = 36 };
typedef struct CacheForm {
    void (*dots[2])(const CacheRows *rows, const float *q, float *score);
    void (*add[2])(const CacheRows *rows, const float *p, float *sum);
} CacheForm;
/* cache_form — of rows of codes or, if the type is MX_NOT_QUANTIZED, of the dtype. */
const CacheForm *cache_form(MxQtype kept, MxDtype dtype);

#endif
