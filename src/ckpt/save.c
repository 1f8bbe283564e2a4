/* save.c — checkpoint folders as a whole: saved, found, loaded. */
#include <mx/ckpt.h>

#include "internal.h"

static const char state_file[] = CKPT_STATE_FILE;

bool mx_ckpt_write(MxH5 *file, MxForm form, const MxTree *tree, MxError *err) {
    return ckpt_write(file, form, tree, NULL, err);
}

static int64_t tree_bytes(const MxTree *tree) {
    int64_t n = 0;
    for (int i = 0; i < tree->n; i++)
        n += mx_shape_count(tree->leaves[i].shape) * (int64_t)mx_dtype_bytes(tree->leaves[i].dtype);
    return n;
}

/* What a checkpoint needs at least and what there is, for a disk that is or became full. */
static bool has_room(const char *dir, const MxTree *state, MxError *err) {
    int64_t wanted = tree_bytes(state), free_bytes = mx_store_free_bytes(dir);
    return free_bytes < 0 || free_bytes >= wanted ||
           mx_fail(err, MX_EXIT_IO, MX_NOWHERE,
                   "no space left on device: it needs %lld bytes, \"%s\" has %lld free",
                   (long long)wanted, dir, (long long)free_bytes);
}

static void note_room(const char *dir, const MxTree *state, MxError *err) {
    int64_t free_bytes = mx_store_free_bytes(dir);
    if (err->exit == MX_EXIT_IO && free_bytes >= 0)
        mx_note(err, "note: it needs %lld bytes; \"%s\" has %lld free",
                (long long)tree_bytes(state), dir, (long long)free_bytes);
}

static void describe(const MxSaving *how, MxJson *manifest) {
    mx_json_set_string(manifest, "style", how->form.is_linen ? "linen" : "nnx");
    mx_json_set_bool(manifest, "scan_layers", how->form.is_scanned);
    mx_json_set_int(manifest, "param_scan_axis", how->form.scan_axis);
    if (how->eval_loss) mx_json_set_number(manifest, "eval_loss", *how->eval_loss);
    mx_json_set_string(manifest, "config", how->config);
}

static bool fill_folder(MxArena *arena, MxPublish *publish, const MxSaving *how,
                        const MxTree *state, MxError *err) {
    MxH5 *file;
    const char *path = mx_path_join(arena, mx_store_publish_dir(publish), state_file);
    describe(how, mx_store_publish_manifest(publish));
    if (!mx_h5_create(arena, path, &file, err) ||
        !ckpt_write(file, how->form, state, how->pace, err))
        return false;
    mx_failpoint("save.before_close");
    return mx_h5_close(file, err);
}

bool mx_ckpt_save(const char *dir, const MxSaving *how, const MxTree *state, MxError *err) {
    MxArena arena = {.name = "ckpt save"};
    MxPublish *publish;
    bool ok = mx_store_publish_begin(&arena, dir, &publish, err);
    if (ok) {
        const char *temp = mx_store_publish_dir(publish);
        mx_store_publish_pace(publish, how->pace);
        ok = has_room(temp, state, err);
        if (ok && !(ok = fill_folder(&arena, publish, how, state, err)))
            note_room(temp, state, err);
        ok = ok && mx_store_publish_commit(publish, err);
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
