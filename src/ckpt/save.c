/* save.c — writing trees, and checkpoint folders as a whole. */
#include <mx/ckpt.h>

#include "internal.h"

static const char state_file[] = CKPT_STATE_FILE;

bool mx_ckpt_write(MxH5 *file, MxForm form, const MxTree *tree, MxError *err) {
    MxArena arena = {.name = "ckpt write"};
    bool ok = true;
    for (int i = 0; ok && i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        MxPlace place = mx_ckpt_place(&arena, form, leaf);
        if (place.scan_dim < 0)
            ok = mx_h5_write(file, place.path, place.dtype, place.shape, leaf->data, err);
        else {
            if (leaf->stack.index == 0)
                ok = mx_h5_make(file, place.path, place.dtype, place.shape, err);
            MxH5Box box = ckpt_box(place.shape, place.scan_dim, leaf->stack.index);
            ok = ok && mx_h5_write_box(file, place.path, box, leaf->data, err);
        }
    }
    mx_arena_release(&arena);
    return ok;
}

bool mx_ckpt_save(const char *dir, MxForm form, const MxTree *state, const char *config,
                  MxError *err) {
    MxArena arena = {.name = "ckpt save"};
    MxPublish *publish;
    MxH5 *file;
    bool ok = mx_store_publish_begin(&arena, dir, &publish, err);
    if (ok) {
        MxJson *manifest = mx_store_publish_manifest(publish);
        mx_json_set_string(manifest, "style", form.is_linen ? "linen" : "nnx");
        mx_json_set_bool(manifest, "scan_layers", form.is_scanned);
        mx_json_set_int(manifest, "param_scan_axis", form.scan_axis);
        mx_json_set_string(manifest, "config", config);
        const char *path = mx_path_join(&arena, mx_store_publish_dir(publish), state_file);
        ok = mx_h5_create(&arena, path, &file, err) && mx_ckpt_write(file, form, state, err) &&
             mx_h5_close(file, err) && mx_store_publish_commit(publish, err);
    }
    mx_arena_release(&arena);
    return ok || mx_context(err, "could not save checkpoint \"%s\"", dir);
}

bool mx_ckpt_load(const char *dir, int scan_axis, MxTree *state, MxError *err) {
    MxArena arena = {.name = "ckpt load"};
    MxH5 *file;
    bool ok = mx_h5_open(&arena, mx_path_join(&arena, dir, state_file), &file, err) &&
              mx_ckpt_read(file, "", "", scan_axis, state, err);
    mx_arena_release(&arena);
    return ok;
}

bool mx_ckpt_newest(MxArena *arena, const char *checkpoint_dir, const char **dir, int64_t *step,
                    MxError *err) {
    int64_t *steps;
    int n;
    *dir = NULL;
    if (!mx_store_steps(arena, checkpoint_dir, &steps, &n, err)) return false;
    for (int i = n - 1; i >= 0; i--) {
        MxError why = {0};
        const char *path = mx_arena_printf(arena, "%s/%lld", checkpoint_dir, (long long)steps[i]);
        bool is_good = mx_store_verify(arena, path, NULL, &why);
        if (is_good) {
            *dir = path;
            *step = steps[i];
        } else
            mx_warn("skipped checkpoint \"%s\", which does not verify: %s", path, why.text.data);
        mx_error_release(&why);
        if (is_good) return true;
    }
    if (!n) return true;
    return mx_fail(
        err, MX_EXIT_BAD_INPUT, (MxWhere){.file = checkpoint_dir},
        "none of %d checkpoints verifies; restore one of them or choose another run_name", n);
}
