/* layout.c — the table of layouts: what a path of the state is called in each form. Source of the
 * names: MaxText common/checkpointing.py and train_state_nnx.py @e591f30c (to_checkpoint_dict),
 * read off its trees. */
#include <mx/ckpt.h>

#include "internal.h"

const CkptRow ckpt_rows[] = {
    {.nnx = "model/", .linen = "params/params/", .also = {"params/", "model_params/", ""}},
    {.nnx = "optimizer/opt_state/0/mu/",
     .linen = "opt_state/0/mu/params/",
     .also = {"opt_state/0/mu/"}},
    {.nnx = "optimizer/opt_state/0/nu/",
     .linen = "opt_state/0/nu/params/",
     .also = {"opt_state/0/nu/"}},
    {.nnx = "optimizer/opt_state/", .linen = "opt_state/"},
    {.nnx = "optimizer/step", .linen = "step", .counts_signed = true},
};
const int ckpt_n_rows = MX_COUNT(ckpt_rows);

const CkptRow *ckpt_row_of(const char *path) {
    for (int i = 0; i < ckpt_n_rows; i++)
        if (mx_text_has_prefix(path, ckpt_rows[i].nnx)) return &ckpt_rows[i];
    return NULL;
}

MxShape ckpt_stacked_shape(const MxLeaf *leaf, int scan_axis, int *scan_dim) {
    MxShape shape = leaf->shape;
    *scan_dim = scan_axis < shape.rank ? scan_axis : shape.rank;
    for (int i = shape.rank; i > *scan_dim; i--) shape.dim[i] = shape.dim[i - 1];
    shape.dim[*scan_dim] = leaf->stack.count;
    shape.rank++;
    return shape;
}

MxPlace mx_ckpt_place(MxArena *arena, MxForm form, const MxLeaf *leaf) {
    bool stacks = form.is_scanned && leaf->stack.count;
    const char *path = stacks ? leaf->stack.path : leaf->path;
    MxPlace place = {.path = path, .dtype = leaf->dtype, .shape = leaf->shape, .scan_dim = -1};
    const CkptRow *row = ckpt_row_of(path);
    if (row && form.is_linen) {
        place.path = mx_arena_printf(arena, "%s%s", row->linen, path + strlen(row->nnx));
        if (row->counts_signed) place.dtype = MX_I32;
    }
    if (stacks) place.shape = ckpt_stacked_shape(leaf, form.scan_axis, &place.scan_dim);
    return place;
}
