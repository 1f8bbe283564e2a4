/* save.c — checkpoint folders as a whole: saving, finding, loading. */
#include <mx/ckpt.h>

#include "internal.h"

static const char state_file[] = CKPT_STATE_FILE;

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

static bool describe(MxArena *arena, const MxSaving *how, MxJson *manifest, MxError *err) {
    mx_json_set_string(manifest, "style", how->form.is_linen ? "linen" : "nnx");
    mx_json_set_bool(manifest, "scan_layers", how->form.is_scanned);
    mx_json_set_int(manifest, "param_scan_axis", how->form.scan_axis);
    if (how->eval_loss) mx_json_set_number(manifest, "eval_loss", *how->eval_loss);
    mx_json_set_string(manifest, "config", how->config);
    ckpt_tell_tokenizer(arena, &how->tokenizer, manifest);
    const char *const texts[][2] = {{"data", how->data}, {"made_by", how->made_by}};
    for (int i = 0; i < MX_COUNT(texts); i++) {
        const char *name = texts[i][0], *text = texts[i][1];
        if (!text) continue;
        const MxJson *json = mx_json_parse(arena, text, strlen(text), name, err);
        if (!json) return false;
        mx_json_set(manifest, name, json);
    }
    return true;
}

struct MxCkptSave {
    MxArena *arena;
    const MxSaving *how;
    const MxTree *state;
    const char *dir, *temp;
    MxPublish *publish; /* on the rank that publishes, else NULL */
    CkptShares shares;  /* of a divided state */
    MxJson *sealed;     /* entries of the files that this rank wrote */
};

/* In the names of the files of ranks: a file of another run or step is never taken for one. */
static const char *unique_of(MxArena *arena, const MxSaving *how, const char *dir) {
    const char *slash = strrchr(dir, '/');
    const char *text = mx_arena_printf(arena, "%s/%s", how->run, slash ? slash + 1 : dir);
    return mx_arena_printf(arena, "%016llx", (unsigned long long)mx_hash64(text, strlen(text)));
}

bool mx_ckpt_save_begin(MxArena *arena, const char *dir, const char *temp, const MxSaving *how,
                        const MxTree *state, MxCkptSave **out, MxError *err) {
    MxCkptSave *save = *out = mx_new(arena, MxCkptSave);
    *save = (MxCkptSave){.arena = arena,
                         .how = how,
                         .state = state,
                         .dir = mx_arena_strdup(arena, dir),
                         .temp = temp,
                         .sealed = mx_json_object(arena)};
    if (ckpt_division(state))
        save->shares = ckpt_shares(arena, how->form, state, unique_of(arena, how, dir));
    if (temp) return true;
    if (mx_store_publish_begin(arena, dir, &save->publish, err)) {
        save->temp = mx_store_publish_dir(save->publish);
        if (has_room(save->temp, state, err)) return true;
        mx_store_publish_abort(save->publish);
    }
    return mx_context(err, "could not save checkpoint \"%s\"", dir);
}

const char *mx_ckpt_save_temp(const MxCkptSave *save) {
    return save->temp;
}

/* A file of the folder: the data of `tree`, or a view of all ranks' files. */
static bool write_file(MxCkptSave *save, const char *name, const MxTree *tree, bool is_view,
                       MxError *err) {
    MxArena arena = {.name = "ckpt save"};
    const MxSaving *how = save->how;
    const char *path = mx_path_join(&arena, save->temp, name);
    MxH5 *file;
    bool ok = mx_h5_create(&arena, path, &file, err) &&
              (is_view ? ckpt_write_views(file, how->form, tree, &save->shares, err)
                       : ckpt_write(file, how->form, tree, how->pace, err));
    if (ok) mx_failpoint("save.before_close");
    ok = ok && mx_h5_close(file, err) &&
         mx_store_seal(path, how->pace, mx_json_put_object(save->sealed, name), err);
    mx_arena_release(&arena);
    return ok;
}

bool mx_ckpt_save_write(MxCkptSave *save, const MxTree *share, MxError *err) {
    const MxDivision *division = ckpt_division(save->state);
    bool ok;
    if (!division)
        ok = write_file(save, state_file, share, false, err);
    else
        ok = write_file(save, save->shares.names[division->rank], share, false, err) &&
             (!save->publish || write_file(save, state_file, share, true, err));
    if (ok) return true;
    note_room(save->temp, save->state, err);
    return mx_context(err, "could not save checkpoint \"%s\"", save->dir);
}

const char *mx_ckpt_save_report(const MxCkptSave *save) {
    return mx_json_dump(save->arena, save->sealed, false);
}

static bool take_reports(MxCkptSave *save, const char *const *reports, int n, MxError *err) {
    for (int r = 0; r < n; r++) {
        const MxJson *files =
            mx_json_parse(save->arena, reports[r], strlen(reports[r]), "report", err);
        if (!files) return false;
        mx_store_publish_sealed(save->publish, files);
    }
    return true;
}

bool mx_ckpt_save_commit(MxCkptSave *save, const char *const *reports, int n, MxError *err) {
    MxJson *manifest = mx_store_publish_manifest(save->publish);
    bool ok = describe(save->arena, save->how, manifest, err) &&
              take_reports(save, reports, n, err) && mx_store_publish_commit(save->publish, err);
    if (!ok) mx_store_publish_abort(save->publish);
    return ok || mx_context(err, "could not save checkpoint \"%s\"", save->dir);
}

bool mx_ckpt_load(const char *dir, int scan_axis, MxTree *state, MxError *err) {
    MxArena arena = {.name = "ckpt load"};
    MxH5 *file;
    bool ok = mx_h5_open(&arena, mx_path_join(&arena, dir, state_file), &file, err) &&
              mx_ckpt_read(file, "", "", scan_axis, state, err);
    mx_arena_release(&arena);
    return ok;
}

/* Whether a checkpoint is good; if not, why: damage (exit 65) lets an older one take its place. */
static bool is_good(MxArena *arena, const char *dir, const MxCkptSearch *how, MxError *why) {
    MxJson *manifest;
    return how->peeks ? mx_store_manifest(arena, dir, &manifest, why)
                      : mx_store_verify(arena, dir, how->team, NULL, why);
}

/* A checkpoint that cannot be read now may be good: steps would be lost without need. */
static bool refuse_unreadable(const char *dir, const MxError *why, MxError *err) {
    mx_fail(err, why->exit, MX_NOWHERE, "could not read the newest checkpoint \"%s\": %s", dir,
            why->text.data);
    mx_note(err, "hint: make it readable; without \"%s\" the run goes on from an older one", dir);
    return false;
}

bool mx_ckpt_newest(MxArena *arena, const char *checkpoint_dir, const MxCkptSearch *how,
                    const char **dir, int64_t *step, MxError *err) {
    int64_t *steps;
    int n;
    *dir = NULL;
    if (!mx_store_steps(arena, checkpoint_dir, &steps, &n, err)) return false;
    for (int i = n - 1; i >= 0 && !*dir; i--) {
        MxError why = {0};
        const char *path = mx_arena_printf(arena, "%s/%lld", checkpoint_dir, (long long)steps[i]);
        bool ok = true;
        if (is_good(arena, path, how, &why)) {
            *dir = path;
            *step = steps[i];
        } else if (why.exit != MX_EXIT_BAD_INPUT)
            ok = refuse_unreadable(path, &why, err);
        else if (!how->peeks)
            mx_warn("skipped checkpoint \"%s\", which does not verify: %s", path, why.text.data);
        mx_error_release(&why);
        if (!ok) return false;
    }
    if (!n || *dir) return true;
    return mx_fail(
        err, MX_EXIT_BAD_INPUT, (MxWhere){.file = checkpoint_dir},
        "none of %d checkpoints verifies; restore one of them or choose another run_name", n);
}
