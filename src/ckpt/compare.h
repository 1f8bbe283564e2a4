/* compare.h — the result of a comparison. Made in compare.c, printed in report.c. */
#ifndef CKPT_COMPARE_H
#define CKPT_COMPARE_H

#include "internal.h"

/* A leaf that both have. */
typedef struct CkptPair {
    const char *path;
    MxShape shape, shape_b;
    MxDtype dtype_a, dtype_b;
    bool is_shape_other, is_dtype_other;
    MxDtype type; /* in which values are compared: float32, float64, int64 */
    bool is_bf16; /* both are: floats between are counted in bfloat16 */
    int64_t n_different;
    double max_abs, max_rel;
    int64_t max_ulp;
    int64_t at; /* element of the largest absolute difference, in row-major order */
    double value_a, value_b;
} CkptPair;

/* A leaf that one lacks. */
typedef struct CkptLone {
    const char *path;
    MxDtype dtype;
    MxShape shape;
} CkptLone;

typedef struct CkptReport {
    const char *name_a, *name_b, *form_a, *form_b;
    bool is_split; /* layers were compared one by one */
    CkptLone *only_a, *only_b;
    CkptPair *pairs;
    int n_a, n_only_a, n_only_b, n_pairs;
    int n_optional; /* only one has and the other need not: no difference */
    int64_t n_elements;
} CkptReport;

bool ckpt_report_is_equal(const CkptReport *report);
/* ckpt_pair_place — where the largest difference is, an index of each dim. */
MxShape ckpt_pair_place(const CkptPair *pair);
/* ckpt_report_page — as a page, of sorted pairs. */
const char *ckpt_report_page(MxArena *arena, const CkptReport *report, const MxCompare *how);
/* ckpt_report_tell — prints it, and writes the JSON and the page. Sorts the pairs. */
bool ckpt_report_tell(MxArena *arena, CkptReport *report, const MxCompare *how, MxError *err);

#endif
