/* internal.h — the layout table, shared by reading and writing. */
#ifndef CKPT_INTERNAL_H
#define CKPT_INTERNAL_H

#include <mx/ckpt.h>

enum { CKPT_MAX_ALSO = 4 };

#define CKPT_STATE_FILE "state.h5"

/* A section of the state under its names: paths that start with `nnx` start with `linen` in Linen
 * files; `also` are names that are only read. */
typedef struct CkptRow {
    const char *nnx, *linen;
    const char *also[CKPT_MAX_ALSO];
    bool counts_signed; /* uint32 in NNX files, int32 in Linen files */
} CkptRow;

extern const CkptRow ckpt_rows[];
extern const int ckpt_n_rows;

/* ckpt_row_of — the first row that a path of the state belongs to, or NULL. */
const CkptRow *ckpt_row_of(const char *path);
/* ckpt_stacked_shape — the shape of the array that a leaf is a slice of, and in which dim. */
MxShape ckpt_stacked_shape(const MxLeaf *leaf, int scan_axis, int *scan_dim);

/* ckpt_write — mx_ckpt_write with a brake, or NULL. */
bool ckpt_write(MxH5 *file, MxForm form, const MxTree *tree, MxPace *pace, MxError *err);

/* ckpt_box — the part of an array that a leaf is. */
static inline MxH5Box ckpt_box(MxShape shape, int scan_dim, int index) {
    MxH5Box box = {.rank = shape.rank};
    for (int i = 0; i < shape.rank; i++) box.count[i] = shape.dim[i];
    if (scan_dim >= 0) {
        box.start[scan_dim] = index;
        box.count[scan_dim] = 1;
    }
    return box;
}

#endif
