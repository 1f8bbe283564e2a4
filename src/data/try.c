/* try.c — whether data can be read: that its files are there and of a format that their kind reads,
 * and, of kinds whose library may crash on damaged files, an attempt in a child process. */
#include "formats.h"

#include <mx/store.h>

/* Each of the files that a config names. */
static bool check_files(MxArena *arena, const DataKind *kind, const MxDataConfig *config,
                        MxError *err) {
    DataParts parts;
    bool ok = kind->parts(arena, config, &parts, err);
    for (int i = 0; ok && i < parts.n; i++)
        for (int k = 0; ok && k < parts.item[i].n_paths; k++) {
            const char *path = parts.item[i].paths[k];
            ok = formats_check(path, kind->choice(config, path), err);
        }
    return ok;
}

bool mx_data_find(const MxDataConfig *config, MxError *err) {
    MxArena arena = {.name = "files"};
    const DataKind *kind = data_find_kind(config->kind, config->where, err);
    bool ok = kind && (!kind->parts || check_files(&arena, kind, config, err));
    mx_arena_release(&arena);
    return ok;
}

/* In the child; says nothing, for whoever reads the data will meet the same errors. */
static MxExit try_data(void *config) {
    enum { MOST_BATCHES = 32 };
    MxArena arena = {.name = "try"};
    MxDataConfig tried = *(const MxDataConfig *)config;
    MxDataset *dataset;
    MxError ignored = {0};
    tried.shuffle = tried.pads = false;
    tried.n_epochs = 1;
    if (mx_data_open(&arena, &tried, &dataset, &ignored)) {
        MxBatch batch = mx_batch_new(&arena, mx_data_batch_rows(&tried), tried.length);
        int64_t steps = mx_data_steps(dataset), n = steps < MOST_BATCHES ? steps : MOST_BATCHES;
        for (int64_t i = 0; i < n; i++) /* the first and the last are among them */
            mx_data_batch(dataset, n == 1 ? 0 : i * (steps - 1) / (n - 1), &batch, &ignored);
    }
    mx_error_release(&ignored);
    mx_arena_release(&arena);
    return MX_EXIT_OK;
}

bool mx_data_try(const MxDataConfig *config, MxError *err) {
    const DataKind *kind = data_find_kind(config->kind, config->where, err);
    if (!kind || !kind->is_guarded) return kind != NULL;
    const char *path = config->path ? config->path : "";
    MxExit code =
        mx_store_guarded(path, MX_CONFINE_TO_READING, try_data, (void *)(uintptr_t)config, err);
    if (code && !err->count)
        mx_fail(err, code, MX_NOWHERE, "%s: could not be read in a child process", path);
    return !code;
}
