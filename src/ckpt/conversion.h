/* conversion.h — the plan of a conversion: every array of the result with its parts. Made in
 * conversion.c, executed in convert.c. */
#ifndef CKPT_CONVERSION_H
#define CKPT_CONVERSION_H

#include "lora.h"

typedef struct CkptTarget {
    const char *path;
    MxDtype dtype;
    MxShape shape;
    int scan_dim; /* of the pieces in it; -1 = one piece is the whole */
    int inner;    /* as of MxStack */
    int n;        /* pieces */
    int *pieces;  /* [n] leaves, by their place in the stack */
    bool is_text;
    MxQuant quant; /* it is written as codes and scales */
} CkptTarget;

typedef struct CkptConversion {
    CkptFile from;
    MxForm form;
    const char *note; /* of block cycles, for the result */
    MxTree leaves;
    CkptPiece *pieces; /* [leaves.n] */
    CkptTarget *targets;
    int n;
    int n_random_left, n_reference_left; /* arrays that the result leaves out */
    const char *evidence;                /* for the way in which layers are stacked, or NULL */
    int cycle;
    CkptLora lora; /* adapters to be merged */
    int *merges;   /* [leaves.n] which of them goes into a leaf, -1 = none; NULL = nothing merged */
} CkptConversion;

/* ckpt_conversion_make — what becomes of the arrays of a file; needs its survey, not its contents.
 * Adapters that are merged may lie over another file's weights, which then is the one that is
 * converted. Errors: all that stands in the way. */
bool ckpt_conversion_make(MxArena *arena, const CkptFile *from, const MxConvert *how,
                          CkptConversion *out, MxError *err);

#endif
