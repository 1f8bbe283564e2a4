/* ties.c — the part of a program for parameters that are one array: checkpoints have it under every
 * path, so that models without ties read them too. */
#include "internal.h"

static bool is_wanted(const MxConfig *config) {
    return mx_config_ties(config);
}

static void show(MxTrainState *s) {
    const int *of;
    const MxTree *aliases = mx_model_aliases(s->model, &of);
    MxLeaf *leaf = mx_tree_add_under(&s->tree, "model", aliases);
    for (int i = 0; i < aliases->n; i++) {
        const char *path = mx_model_params(s->model)->leaves[of[i]].path;
        int at = mx_tree_find(&s->tree, mx_path_join(s->arena, "model", path));
        leaf[i].keeper = s->tree.leaves[at].keeper;
        leaf[i].array = s->tree.leaves[at].array;
        leaf[i].division = s->tree.leaves[at].division;
    }
}

const Part part_ties = {
    .is_wanted = is_wanted,
    .bytes = 1, /* it keeps nothing */
    .show = show,
};
