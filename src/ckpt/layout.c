/* layout.c — the table of sections: the names of the state's paths in each form. Source of the
 * names: MaxText common/checkpointing.py and train_state_nnx.py @e591f30c (to_checkpoint_dict),
 * read off its trees. The stacking of layers is in stack.c. */
#include <mx/ckpt.h>

#include "internal.h"

/* The first row whose name fits is the path's: the longer before what it starts with. */
const CkptRow ckpt_rows[] = {
    {.nnx = "model/",
     .linen = "nnx_aux/model/",
     .is_tree = true,
     .is_random = true,
     .is_optional = true},
    {.nnx = "model/",
     .linen = "params/params/",
     .also = {"model/base/", "model_params/", "params/base/", "params/", "base/", ""},
     .is_tree = true,
     .is_param = true},
    {.nnx = "reference_model/", .also = {"params/reference_params/"}, .is_tree = true},
    {.nnx = "optimizer/opt_state/", .linen = "opt_state/", .has_moments = true},
    {.nnx = "optimizer/step", .linen = "step", .counts_signed = true},
    {.nnx = "outer_opt_state/0/trace/", .linen = "outer_opt_state/0/trace/", .is_tree = true},
    {.nnx = "inner_state/", .linen = "inner_state/"},
    {.nnx = "mxtrain/", .linen = "mxtrain/", .is_optional = true},
};
const int ckpt_n_rows = MX_COUNT(ckpt_rows);

/* Segments below which MaxText's trees hold no weights. */
static const char *const random_segments[] = {"rngs", "dropout"};
/* Names of trees in the optimizer that are shaped like the parameters. */
static const char *const moments[] = {
#define MX_OPTIM_TREE(name) #name, #name "_scales",
#include <mx/config_optimizers.def>
#undef MX_OPTIM_TREE
};
/* What stands at the top of every model. */
static const char *const components[] = {"decoder/", "encoder/", "token_embedder/"};

/* The first segment that is one of `names`, or NULL; `len` is its length. */
static const char *find_segment(const char *path, const char *const *names, int n, size_t *len) {
    for (const char *p = path; p; p = strchr(p, '/'), p = p ? p + 1 : NULL) {
        *len = strcspn(p, "/");
        for (int i = 0; i < n; i++)
            if (strlen(names[i]) == *len && !strncmp(p, names[i], *len)) return p;
    }
    return NULL;
}

static bool is_random(const char *path) {
    size_t len;
    return find_segment(path, random_segments, MX_COUNT(random_segments), &len) != NULL;
}

/* A row's name is a folder, or the whole path. */
static bool has_name(const char *path, const char *name) {
    size_t n = strlen(name);
    return !strncmp(path, name, n) && (!n || name[n - 1] == '/' || !path[n]);
}

const CkptRow *ckpt_row_of(const char *path) {
    for (int i = 0; i < ckpt_n_rows; i++)
        if (has_name(path, ckpt_rows[i].nnx) && (!ckpt_rows[i].is_random || is_random(path)))
            return &ckpt_rows[i];
    return NULL;
}

const char *ckpt_tree_part(const CkptRow *row, const char *path) {
    if (!row) return NULL;
    const char *rest = path + strlen(row->nnx);
    if (!row->has_moments) return row->is_tree ? rest : NULL;
    size_t len;
    const char *moment = find_segment(rest, moments, MX_COUNT(moments), &len);
    return moment && moment[len] ? moment + len + 1 : NULL;
}

/* ---- a file's names */

static bool any_below(const MxH5Array *arrays, int n, const char *prefix, const char *below) {
    size_t len = strlen(prefix);
    for (int i = 0; i < n; i++)
        if (!strncmp(arrays[i].path, prefix, len) &&
            mx_text_has_prefix(arrays[i].path + len, below))
            return true;
    return false;
}

static const CkptRow *param_row(void) {
    int i = 0;
    while (!ckpt_rows[i].is_param) i++;
    return &ckpt_rows[i];
}

/* The names below which parameters may lie, the better first: [CKPT_MAX_ALSO + 2]. */
static int list_prefixes(const char **names) {
    const CkptRow *row = param_row();
    int n = 0;
    names[n++] = row->linen;
    names[n++] = row->nnx;
    for (int i = 0; i < CKPT_MAX_ALSO && row->also[i]; i++) names[n++] = row->also[i];
    return n;
}

static bool has_components(const MxH5Array *arrays, int n, const char *prefix) {
    for (int c = 0; c < MX_COUNT(components); c++)
        if (any_below(arrays, n, prefix, components[c])) return true;
    return false;
}

const char *ckpt_model_prefix(const MxH5Array *arrays, int n, bool *is_sure) {
    const char *names[CKPT_MAX_ALSO + 2];
    int n_names = list_prefixes(names);
    *is_sure = true;
    for (int k = 0; k < n_names; k++)
        if (has_components(arrays, n, names[k])) return names[k];
    *is_sure = false;
    for (int k = 0; k < n_names; k++)
        if (any_below(arrays, n, names[k], "")) return names[k];
    return param_row()->nnx;
}

const char *ckpt_other_prefix(const MxH5Array *arrays, int n, const char *prefix) {
    const char *names[CKPT_MAX_ALSO + 2];
    int n_names = list_prefixes(names);
    for (int k = 0; k < n_names; k++)
        if (strcmp(names[k], prefix) && has_components(arrays, n, names[k])) return names[k];
    return NULL;
}

/* What follows the name of a row in a file's path, or NULL. */
static const char *strip_name(const CkptRow *row, const char *model_prefix, const char *path) {
    const char *names[CKPT_MAX_ALSO + 2];
    int n = 0;
    if (row->is_param) {
        names[n++] = model_prefix;
    } else if (row->is_random) {
        names[n++] = row->linen;
        if (is_random(path)) names[n++] = model_prefix; /* NNX files keep it among the weights */
    } else {
        names[n++] = row->nnx;
        if (row->linen) names[n++] = row->linen;
        for (int i = 0; i < CKPT_MAX_ALSO && row->also[i]; i++) names[n++] = row->also[i];
    }
    for (int i = 0; i < n; i++)
        if (has_name(path, names[i])) return path + strlen(names[i]);
    return NULL;
}

const char *ckpt_state_path(MxArena *arena, const char *model_prefix, const char *path,
                            const CkptRow **row) {
    const char *rest = NULL;
    *row = NULL;
    /* The parameters last: their prefix may be the start of any other. */
    for (int pass = 0; pass < 2 && !rest; pass++)
        for (int i = 0; i < ckpt_n_rows && !rest; i++)
            if (ckpt_rows[i].is_param == (pass == 1))
                rest = strip_name(*row = &ckpt_rows[i], model_prefix, path);
    if (!rest) {
        *row = NULL;
        return NULL;
    }
    static const char wrapper[] = "/value", inner[] = "params/";
    size_t n = strlen(rest);
    if (mx_text_has_suffix(rest, wrapper)) n -= strlen(wrapper);
    char *out = mx_arena_printf(arena, "%s%.*s", (*row)->nnx, (int)n, rest);
    const char *tree = (*row)->has_moments ? ckpt_tree_part(*row, out) : NULL;
    if (tree && mx_text_has_prefix(tree, inner)) {
        char *from = out + (tree - out);
        memmove(from, from + strlen(inner), strlen(from + strlen(inner)) + 1);
    }
    return out;
}

/* ---- where a leaf goes */

MxPlace mx_ckpt_place(MxArena *arena, MxForm form, const MxLeaf *leaf) {
    bool is_renamed = form.is_scanned && leaf->stack.path;
    const char *path = is_renamed ? leaf->stack.path : leaf->path;
    MxPlace place = {.path = path, .dtype = leaf->dtype, .shape = leaf->shape, .scan_dim = -1};
    const CkptRow *row = ckpt_row_of(path);
    if (row && form.is_linen) {
        const char *rest = path + strlen(row->nnx);
        const char *tree = row->has_moments ? ckpt_tree_part(row, path) : NULL;
        if (!row->linen)
            place.path = NULL;
        else if (tree)
            place.path = mx_arena_printf(arena, "%s%.*sparams/%s", row->linen, (int)(tree - rest),
                                         rest, tree);
        else
            place.path = mx_arena_printf(arena, "%s%s", row->linen, rest);
    }
    if (row && row->counts_signed) place.dtype = form.is_linen ? MX_I32 : MX_U32;
    int axis = row && row->is_random ? 0 : form.scan_axis;
    if (is_renamed && leaf->stack.count)
        place.shape = ckpt_shape_of_stack(leaf->shape, &leaf->stack, axis, &place.scan_dim);
    return place;
}
