/* try.c — whether data can be read: that its files are there and of a format that their kind reads,
 * and an attempt in a child process: batches, where the library that reads them may crash on
 * damaged files, else records as they are in the files. */
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

static bool find_files(const MxDataConfig *config, MxError *err) {
    MxArena arena = {.name = "files"};
    const DataKind *kind = data_find_kind(config->kind, config->where, err);
    bool ok = kind && (!kind->parts || check_files(&arena, kind, config, err));
    mx_arena_release(&arena);
    return ok;
}

/* In the child, as try_data. */
static MxExit try_finding(void *config) {
    MxError ignored = {0};
    find_files(config, &ignored);
    mx_error_release(&ignored);
    return MX_EXIT_OK;
}

/* In a child process, whose end is a failure with the file's name in it. */
static bool guarded(const MxDataConfig *config, MxExit (*work)(void *), MxError *err) {
    const char *path = config->path ? config->path : "";
    MxExit code =
        mx_store_guarded(path, MX_CONFINE_TO_READING, work, (void *)(uintptr_t)config, err);
    if (code && !err->count)
        mx_fail(err, code, MX_NOWHERE, "%s: could not be read in a child process", path);
    return !code;
}

bool mx_data_find(const MxDataConfig *config, MxError *err) {
    const DataKind *kind = data_find_kind(config->kind, config->where, err);
    bool reads = kind && kind->parts;
    return kind && (!reads || guarded(config, try_finding, err)) && find_files(config, err);
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

/* Records of a file, as long as there are bytes left. */
static void try_file(const char *path, const FormatChoice *choice, int64_t *n_bytes) {
    enum { RECORDS_OF_A_GRANT = 1024 };
    MxArena arena = {.name = "try"};
    MxError ignored = {0};
    RecordFile file;
    const char *bytes;
    size_t n = 0;
    mx_store_guard_rearm(path);
    bool goes_on = record_file_open(&arena, path, choice, &file, &ignored) && file.format;
    for (int i = 1; goes_on && *n_bytes > 0 && file.format->next(&file, &bytes, &n, &ignored);
         i++) {
        MxArena scratch = {.name = "record"};
        Fields fields;
        if (i % RECORDS_OF_A_GRANT == 0) mx_store_guard_rearm(path);
        file.format->parse(&scratch, bytes, n, MX_NOWHERE, &fields, &goes_on, &ignored);
        mx_arena_release(&scratch);
        mx_error_release(&ignored);
        ignored = (MxError){0};
        *n_bytes -= (int64_t)n;
    }
    mx_error_release(&ignored);
    mx_arena_release(&arena);
}

/* In the child, as try_data. */
static MxExit try_records(void *data) {
    const MxDataConfig *config = data;
    const DataKind *kind;
    int64_t n_bytes = (int64_t)64 << 20;
    MxArena arena = {.name = "try"};
    MxError ignored = {0};
    DataParts parts;
    kind = data_find_kind(config->kind, config->where, &ignored);
    bool ok = kind && kind->parts(&arena, config, &parts, &ignored);
    for (int i = 0; ok && i < parts.n; i++)
        for (int k = 0; k < parts.item[i].n_paths && n_bytes > 0; k++)
            try_file(parts.item[i].paths[k], kind->choice(config, parts.item[i].paths[k]),
                     &n_bytes);
    mx_error_release(&ignored);
    mx_arena_release(&arena);
    return MX_EXIT_OK;
}

bool mx_data_try(const MxDataConfig *config, MxError *err) {
    const DataKind *kind = data_find_kind(config->kind, config->where, err);
    bool is_named = config->path || config->mixture;
    if (!kind || !is_named || (!kind->is_guarded && !kind->parts)) return kind != NULL;
    return guarded(config, kind->is_guarded ? try_data : try_records, err);
}
