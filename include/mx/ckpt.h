/* ckpt.h — trees in files. In memory a train state is one tree with MaxText's NNX paths, layer by
 * layer
 * ("model/decoder/layers_3/mlp/wi_0/kernel", "optimizer/opt_state/0/mu/…"). Files hold it in one of
 * several forms: NNX or Linen paths, layers stacked or not. A table translates, in both directions.
 * docs/CHECKPOINT_FORMAT.md describes the files. */
#ifndef MX_CKPT_H
#define MX_CKPT_H

#include <mx/store.h>
#include <mx/tree.h>

/* How a tree is written. */
typedef struct MxForm {
    bool is_linen;   /* params/params/…, opt_state/… instead of model/…, optimizer/… */
    bool is_scanned; /* layers stacked into one array */
    int scan_axis; /* dim of the layers in stacked arrays (param_scan_axis); past the end = last */
} MxForm;

/* Where one leaf is in a file. */
typedef struct MxPlace {
    const char *path;
    MxDtype dtype;
    MxShape shape; /* of the whole array in the file */
    int scan_dim;  /* dim in which the leaf is one slice; -1 = the leaf is the array */
} MxPlace;

/* mx_ckpt_place — the place of a leaf in a form. */
MxPlace mx_ckpt_place(MxArena *arena, MxForm form, const MxLeaf *leaf);

/* mx_ckpt_write — every leaf of a materialised tree into an open file, in pieces of whole rows;
 * stacked arrays are put together piece by piece in memory of a few MiB (or one row). */
bool mx_ckpt_write(MxH5 *file, MxForm form, const MxTree *tree, MxError *err);

/* mx_ckpt_read — fills the leaves' data from a group of an open file; the form is found by looking.
 * Leaves outside `section` ("model/"; "" = all) are left alone, and so is whatever the file holds
 * outside it. A leaf without data may be in the file or not, and is not read. Dtypes are
 * converted. scan_axis  tried first for stacked arrays; then 0 and 1 Errors:
 * every missing, extra and mis-shaped array, one line each (exit 65); random-number and dropout
 * leaves that MaxText keeps beside its weights are not extra. */
bool mx_ckpt_read(MxH5 *file, const char *group, const char *section, int scan_axis, MxTree *tree,
                  MxError *err);

/* How a checkpoint is saved. */
typedef struct MxSaving {
    MxForm form;
    const char *config;      /* kept in the manifest as text */
    const double *eval_loss; /* of this very state, kept in the manifest; NULL = not known */
    MxPace *pace;            /* a brake; NULL = none */
} MxSaving;

/* mx_ckpt_save — publishes a checkpoint folder with state.h5 and a manifest; see
 * mx_store_publish_begin. Equal states give equal bytes. Errors also: no room on the disk, told
 * with the bytes wanted and free, before anything is written where that can be seen. */
bool mx_ckpt_save(const char *dir, const MxSaving *how, const MxTree *state, MxError *err);

/* mx_ckpt_newest — the newest checkpoint folder of a run that verifies; *dir is NULL if there is
 * none at all. Newer ones that do not verify are named in warnings. Errors: there are some, but
 * none verifies (exit 65). */
bool mx_ckpt_newest(MxArena *arena, const char *checkpoint_dir, const char **dir, int64_t *step,
                    MxError *err);

/* mx_ckpt_load — reads the whole state from a checkpoint folder that verified. */
bool mx_ckpt_load(const char *dir, int scan_axis, MxTree *state, MxError *err);

/* ---- parameters from elsewhere */

/* What a reference names. */
typedef struct MxCkptRef {
    const char *path, *group; /* the HDF5 file, and a group in it ("" = all) */
    const char *dir;          /* its folder, if that is a checkpoint that verified; else NULL */
    const MxJson *manifest;   /* of the folder, or NULL */
} MxCkptRef;

/* mx_ckpt_find — FILE.h5[:group], a checkpoint folder, or a run's folder (its newest checkpoint).
 * Errors: damage (exit 65). */
bool mx_ckpt_find(MxArena *arena, const char *ref, MxCkptRef *out, MxError *err);

/* mx_ckpt_load_params — only the parameters ("model/…"), from whatever mx_ckpt_find finds. Adapters
 * stay as they are if the source has none at all. */
bool mx_ckpt_load_params(const char *ref, int scan_axis, MxTree *state, MxError *err);
/* mx_ckpt_load_adapters — only the adapters, all of them. */
bool mx_ckpt_load_adapters(const char *ref, int scan_axis, MxTree *state, MxError *err);
/* mx_ckpt_load_full — the whole state from whatever mx_ckpt_find finds. A reference model and what
 * is the run's own ("mxtrain/…") stay as they are if the source has none.
 *   has_reference  whether the source has a reference model */
bool mx_ckpt_load_full(const char *ref, int scan_axis, MxTree *state, bool *has_reference,
                       MxError *err);

#endif
