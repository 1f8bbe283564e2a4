/* params.c — parameters, adapters or all of the state from other checkpoints than a run's own. */
#include <mx/ckpt.h>

#include "internal.h"

static bool holds_adapters(MxArena *arena, MxH5 *file, const char *group, bool *out, MxError *err) {
    MxH5Array *arrays;
    int n;
    *out = false;
    if (!mx_h5_list(arena, file, group, &arrays, &n, err)) return false;
    for (int i = 0; i < n; i++)
        *out = *out || mx_text_has_suffix(arrays[i].path, "_lora_a") ||
               mx_text_has_suffix(arrays[i].path, "_lora_a/value");
    return true;
}

/* The same leaves; those that are adapters (or those that are none) without data. */
static MxTree *hide(MxArena *arena, const MxTree *from, bool adapters) {
    MxTree *tree = mx_new(arena, MxTree);
    mx_tree_init(tree, arena);
    for (int i = 0; i < from->n; i++) {
        MxLeaf leaf = from->leaves[i];
        if ((leaf.kind == MX_KIND_LORA_PARAM) == adapters) leaf.data = NULL;
        mx_tree_add(tree, leaf);
    }
    return tree;
}

/* A source, opened. */
typedef struct Source {
    MxCkptRef ref;
    MxH5 *file;
    bool has_adapters;
} Source;

static bool open_source(MxArena *arena, const char *ref, const MxTeam *team, Source *out,
                        MxError *err) {
    return mx_ckpt_find(arena, ref, team, &out->ref, err) &&
           mx_h5_open(arena, out->ref.path, &out->file, err) &&
           holds_adapters(arena, out->file, out->ref.group, &out->has_adapters, err);
}

static const char section[] = "model/";

bool mx_ckpt_load_params(const char *ref, const MxTeam *team, int scan_axis, MxTree *state,
                         MxError *err) {
    MxArena arena = {.name = "ckpt load"};
    Source s;
    bool ok = open_source(&arena, ref, team, &s, err);
    if (ok && !s.has_adapters) state = hide(&arena, state, true);
    ok = ok && mx_ckpt_read(s.file, s.ref.group, section, scan_axis, state, err);
    mx_arena_release(&arena);
    return ok;
}

bool mx_ckpt_load_adapters(const char *ref, const MxTeam *team, int scan_axis, MxTree *state,
                           MxError *err) {
    MxArena arena = {.name = "ckpt load"};
    Source s;
    bool ok =
        open_source(&arena, ref, team, &s, err) &&
        mx_ckpt_read(s.file, s.ref.group, section, scan_axis, hide(&arena, state, false), err);
    mx_arena_release(&arena);
    return ok;
}

/* The same leaves; those below a prefix without data. */
static MxTree *hide_below(MxArena *arena, const MxTree *from, const char *prefix) {
    MxTree *tree = mx_new(arena, MxTree);
    mx_tree_init(tree, arena);
    for (int i = 0; i < from->n; i++) {
        MxLeaf leaf = from->leaves[i];
        if (mx_text_has_prefix(leaf.path, prefix)) leaf.data = NULL;
        mx_tree_add(tree, leaf);
    }
    return tree;
}

bool mx_ckpt_load_full(const char *ref, const MxTeam *team, int scan_axis, MxTree *state,
                       bool *has_reference, MxError *err) {
    static const char reference[] = "reference_model", own[] = "mxtrain";
    MxArena arena = {.name = "ckpt load"};
    Source s;
    bool ok = open_source(&arena, ref, team, &s, err);
    if (ok) {
        *has_reference = mx_h5_has_group(s.file, mx_path_join(&arena, s.ref.group, reference));
        if (!*has_reference) state = hide_below(&arena, state, reference);
        if (!mx_h5_has_group(s.file, mx_path_join(&arena, s.ref.group, own)))
            state = hide_below(&arena, state, own);
        ok = mx_ckpt_read(s.file, s.ref.group, "", scan_axis, state, err);
    }
    mx_arena_release(&arena);
    return ok;
}
