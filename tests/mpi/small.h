/* small.h — the decoder that tests of training share: what varies, its config on a mesh, its
 * batches. */
#ifndef SMALL_H
#define SMALL_H

#include "mpi_test.h"

#include <mx/program.h>
#include <plan/internal.h>

enum { LENGTH = 16, STEPS = 3, MOST_SET = 32, MOST_AXES = 5 };

typedef struct Variant {
    const char *name;
    const char *set[MOST_SET];
    const char *axes[MOST_AXES]; /* that its mesh has; none = all of them */
    int length;                  /* of a row; 0 = LENGTH */
    int rows;                    /* of a batch; 0 = as many as all ranks divide */
    bool everywhere;             /* on all meshes, not only on some */
    bool often;                  /* on twice as many as others; under MX_LONG on all */
    int parts;                   /* of a batch that are as long as its rows; 0 = 1 */
    double loss;                 /* how far off losses may be; 0 = as all of the dtype */
    double gradient;             /* another bound on the gradient; 0 = the usual one */
    double start;                /* how far off first parameters may be */
    bool is_bf16;
    bool has_stages; /* on meshes with stages alone, on all that fit */
} Variant;

/* small_load, small_config — of a variant; mesh NULL = one rank. The latter asserts. */
bool small_load(MxArena *arena, const Variant *v, const RankMesh *mesh, MxConfig **out,
                MxError *err);
MxConfig *small_config(MxArena *arena, const Variant *v, const RankMesh *mesh);
/* small_rows — of a batch, if the variant does not say: 2, 4 and 8, or 3 and 6, ranks divide them,
 * also by halves. v NULL = one that says nothing. */
int small_rows(const Variant *v);
/* small_batch — two or three documents a row, padding at the end of some rows; the same in both
 * halves of the batch, as pairs have them. v NULL = of a variant that says nothing. */
MxBatch small_batch(MxArena *arena, const Variant *v, int step);
/* small_plan — what a rank's program needs and exchanges, as planned. */
PlanProgram small_plan(MxArena *arena, const MxConfig *config);

#endif
