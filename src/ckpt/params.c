/* params.c — loads parameters, adapters or the whole state from checkpoints other than a run's own.
 */
#include <mx/ckpt.h>

#include "hf.h"

static bool holds_below(const CkptFile *file, const char *prefix) {
    for (int i = 0; i < file->n; i++)
        if (mx_text_has_prefix(file->arrays[i].path, prefix)) return true;
    return false;
}

static bool holds_adapters(const CkptFile *file) {
    for (int i = 0; i < file->n; i++)
        if (mx_text_has_suffix(file->arrays[i].path, "_lora_a") ||
            mx_text_has_suffix(file->arrays[i].path, "_lora_a/value"))
            return true;
    return false;
}

typedef bool IsHidden(const MxLeaf *leaf);

/* A head that adapters train is looked for either way. */
static bool is_adapter(const MxLeaf *leaf) {
    return leaf->kind == MX_KIND_LORA_PARAM && !leaf->instead_of;
}

static bool is_no_adapter(const MxLeaf *leaf) {
    return leaf->kind != MX_KIND_LORA_PARAM;
}

static bool is_alias(const MxLeaf *leaf) {
    return leaf->kind == MX_KIND_ALIAS;
}

/* The same leaves; some of them without values. */
static MxTree *hide(MxArena *arena, const MxTree *from, IsHidden *is_hidden) {
    MxTree *tree = mx_new(arena, MxTree);
    mx_tree_init(tree, arena);
    for (int i = 0; i < from->n; i++) {
        MxLeaf leaf = from->leaves[i];
        if (is_hidden(&leaf)) leaf = mx_leaf_abstract(leaf);
        mx_tree_add(tree, leaf);
    }
    return tree;
}

static bool open_source(MxArena *arena, const char *ref, const MxTeam *team, CkptFile *out,
                        MxError *err) {
    MxCkptRef found;
    return mx_ckpt_find(arena, ref, team, &found, err) && ckpt_list(arena, &found, out, err);
}

static const char section[] = "model/";

bool mx_ckpt_load_params(const char *ref, const MxTeam *team, int scan_axis, MxTree *state,
                         MxError *err) {
    MxArena arena = {.name = "ckpt load"};
    CkptFile source;
    bool ok = open_source(&arena, ref, team, &source, err);
    state = hide(&arena, state, is_alias);
    if (ok && !holds_adapters(&source)) state = hide(&arena, state, is_adapter);
    ok = ok && ckpt_read_tree(&source, section, scan_axis, state, err);
    mx_arena_release(&arena);
    return ok;
}

bool mx_ckpt_load_adapters(const char *ref, const MxTeam *team, int scan_axis, MxTree *state,
                           MxError *err) {
    MxArena arena = {.name = "ckpt load"};
    CkptFile source;
    bool ok = open_source(&arena, ref, team, &source, err) &&
              ckpt_read_tree(&source, section, scan_axis, hide(&arena, state, is_no_adapter), err);
    mx_arena_release(&arena);
    return ok;
}

/* The same leaves; those below a prefix without values. */
static MxTree *hide_below(MxArena *arena, const MxTree *from, const char *prefix) {
    MxTree *tree = mx_new(arena, MxTree);
    mx_tree_init(tree, arena);
    for (int i = 0; i < from->n; i++) {
        MxLeaf leaf = from->leaves[i];
        if (mx_text_has_prefix(leaf.path, prefix)) leaf = mx_leaf_abstract(leaf);
        mx_tree_add(tree, leaf);
    }
    return tree;
}

bool mx_ckpt_load_full(const char *ref, const MxTeam *team, int scan_axis, MxTree *state,
                       bool *has_reference, MxError *err) {
    static const char reference[] = "reference_model/", own[] = "mxtrain/";
    MxArena arena = {.name = "ckpt load"};
    CkptFile source;
    bool ok = open_source(&arena, ref, team, &source, err);
    if (ok) {
        *has_reference = holds_below(&source, reference);
        if (!*has_reference) state = hide_below(&arena, state, reference);
        if (!holds_below(&source, own)) state = hide_below(&arena, state, own);
        ok = ckpt_read_tree(&source, "", scan_axis, state, err);
    }
    mx_arena_release(&arena);
    return ok;
}

bool mx_hf_load(MxArena *arena, const MxCkptRef *from, MxTree *state, MxHfModel *theirs,
                MxError *err) {
    CkptFile source;
    if (!ckpt_list(arena, from, &source, err)) return false;
    *theirs = source.hf->model;
    if (*theirs->lacks)
        return mx_fail(err, MX_EXIT_BAD_INPUT,
                       (MxWhere){.file = mx_hf_config_path(arena, from->path)},
                       "not available in mxtrain: %s", theirs->lacks);
    state = hide(arena, hide(arena, state, is_alias), is_adapter);
    return ckpt_read_tree(&source, section, 0, state, err);
}
