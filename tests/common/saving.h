/* saving.h — states as files: a checkpoint folder by the steps in which the ranks of a run make
 * one, one file, and what mxconvert makes of adapters in it. */
#ifndef TESTS_COMMON_SAVING_H
#define TESTS_COMMON_SAVING_H

#include <ckpt/internal.h>
#include <mx/ckpt.h>

/* save_whole — the checkpoint folder of an undivided state. */
static inline bool save_whole(const char *dir, const MxSaving *how, const MxTree *state,
                              MxError *err) {
    MxArena scratch = {.name = "saving"};
    MxCkptSave *save;
    bool ok = mx_ckpt_save_begin(&scratch, dir, NULL, how, state, &save, err) &&
              mx_ckpt_save_write(save, state, err);
    const char *report = ok ? mx_ckpt_save_report(save) : NULL;
    ok = ok && mx_ckpt_save_commit(save, &report, 1, err);
    mx_arena_release(&scratch);
    return ok;
}

/* save_file — all of a state in one HDF5 file, layers one by one. */
static inline bool save_file(MxArena *arena, const char *path, const MxTree *state, MxCkptRef *out,
                             MxError *err) {
    MxH5 *file;
    return mx_h5_create(arena, path, &file, err) &&
           ckpt_write(file, (MxForm){0}, state, NULL, err) && mx_h5_close(file, err) &&
           mx_ckpt_find(arena, path, NULL, out, err);
}

/* merge_adapters — saves a state, merges its adapters as mxconvert does, and reads the weights back
 * into it. notes  what the conversion tells */
static inline bool merge_adapters(MxArena *arena, const char *path, double alpha, MxTree *state,
                                  MxText *notes, MxError *err) {
    MxCkptRef ref;
    MxForm form;
    const char *merged = mx_arena_printf(arena, "%s.merged.h5", path);
    MxConvert how = {
        .scan = -1, .scan_axis = -1, .adapters = MX_ADAPTERS_MERGED, .facts = {.alpha = alpha}};
    return save_file(arena, path, state, &ref, err) &&
           mx_ckpt_convert(&ref, &how, merged, &form, notes, err) &&
           mx_ckpt_load_params(merged, NULL, 1, state, err);
}

#endif
