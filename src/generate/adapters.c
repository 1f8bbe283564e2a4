/* adapters.c — adapters that a config names, in the files of runs and of peft. */
#include <mx/generate.h>

#include <mx/ckpt_peft.h>
#include <mx/model.h>

#include <stdlib.h>

/* Adapters mean something else under another alpha. A file without a manifest does not tell its. */
static bool check_alpha(const MxConfig *c, const MxTeam *team, const char *path, MxError *err) {
    MxArena arena = {.name = "adapters"};
    MxCkptRef ref;
    const char *theirs = "";
    bool ok = mx_ckpt_find(&arena, path, team, &ref, err);
    if (ok && ref.manifest)
        theirs = mx_config_said(&arena, mx_json_string(mx_json_get(ref.manifest, "config")),
                                MX_KEY_lora_alpha);
    if (*theirs && strtod(theirs, NULL) != c->lora_alpha)
        ok = mx_config_fail(err, c, MX_KEY_lora_alpha,
                            "%.15g is not the lora_alpha of the adapters in %s, which is %s",
                            c->lora_alpha, path, theirs);
    mx_arena_release(&arena);
    return ok;
}

/* A whole adapter in memory, with the values that this rank has. */
static MxLeaf copy_whole(MxArena *arena, const MxLeaf *leaf) {
    const MxBox all = mx_box_of(leaf->shape), own = mx_leaf_part(leaf);
    MxLeaf whole = *leaf;
    whole.division = NULL;
    whole = mx_leaf_on_host(arena, whole);
    mx_box_copy(&own, &own, mx_leaf_values(arena, leaf), &all, whole.data,
                mx_dtype_bytes(leaf->dtype));
    return whole;
}

/* PEFT's files are transposed, so adapters, which are small, are read whole. */
static bool read_peft(MxTrainState *s, const MxTeam *team, const char *dir, MxError *err) {
    MxArena arena = {.name = "peft"};
    const MxJson *manifest;
    const MxModel *model = mx_train_state_model(s);
    const MxConfig *c = mx_train_state_config(s);
    MxHfModel theirs = mx_hf_of_config(c, mx_model_head_form(model));
    MxTree whole, *tree = mx_train_state_tree(s);
    mx_tree_init(&whole, &arena);
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        bool is_adapter = leaf->kind == MX_KIND_LORA_PARAM;
        mx_tree_add(&whole, is_adapter ? copy_whole(&arena, leaf) : mx_leaf_abstract(*leaf));
    }
    bool sees =
        c->use_multimodal && c->load_parameters_path && mx_hf_is_dir(c->load_parameters_path);
    theirs.sees = sees;
    theirs.hears = sees && c->use_audio;
    bool ok = (!sees || mx_hf_see(&arena, c->load_parameters_path, &theirs, err)) &&
              mx_ckpt_vouch(&arena, dir, team, &manifest, err) &&
              mx_peft_load(dir, &theirs, mx_model_lora(model)->scale, &whole, err);
    for (int i = 0; ok && i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        const MxBox all = mx_box_of(leaf->shape), own = mx_leaf_part(leaf);
        if (leaf->kind != MX_KIND_LORA_PARAM) continue;
        void *part = mx_arena_alloc(&arena, mx_leaf_bytes(leaf) + 1);
        mx_box_copy(&own, &all, whole.leaves[i].data, &own, part, mx_dtype_bytes(leaf->dtype));
        mx_leaf_write(leaf, part);
    }
    mx_arena_release(&arena);
    return ok;
}

bool mx_source_load_adapters(MxTrainState *s, const MxTeam *team, const char *path, MxError *err) {
    const MxConfig *c = mx_train_state_config(s);
    if (mx_peft_is_dir(path)) return read_peft(s, team, path, err);
    return check_alpha(c, team, path, err) &&
           mx_ckpt_load_adapters(path, team, (int)c->param_scan_axis, mx_train_state_tree(s), err);
}
