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

/* NULL = no files are named. */
static const char *name_of(const MxDataConfig *config) {
    return config->path ? config->path : config->mixture;
}

static void try_finding(MxArena *arena, const void *config, MxError *ignored) {
    (void)arena;
    find_files(config, ignored);
}

bool mx_data_find(const MxDataConfig *config, MxError *err) {
    const DataKind *kind = data_find_kind(config->kind, config->where, err);
    bool reads = kind && kind->parts && name_of(config);
    return kind && (!reads || mx_store_try(name_of(config), try_finding, config, err)) &&
           find_files(config, err);
}

static void try_data(MxArena *arena, const void *config, MxError *ignored) {
    enum { MOST_BATCHES = 32 };
    MxDataConfig tried = *(const MxDataConfig *)config;
    MxDataset *dataset;
    tried.shuffle = tried.pads = false;
    tried.n_epochs = 1;
    if (!mx_data_open(arena, &tried, &dataset, ignored)) return;
    MxBatch batch = mx_batch_new(arena, mx_data_batch_rows(&tried), tried.length);
    int64_t steps = mx_data_steps(dataset), n = steps < MOST_BATCHES ? steps : MOST_BATCHES;
    for (int64_t i = 0; i < n; i++) /* the first and the last are among them */
        mx_data_batch(dataset, n == 1 ? 0 : i * (steps - 1) / (n - 1), &batch, ignored);
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

static void try_records(MxArena *arena, const void *data, MxError *ignored) {
    const MxDataConfig *config = data;
    const DataKind *kind = data_find_kind(config->kind, config->where, ignored);
    int64_t n_bytes = (int64_t)64 << 20;
    DataParts parts;
    bool ok = kind && kind->parts(arena, config, &parts, ignored);
    for (int i = 0; ok && i < parts.n; i++)
        for (int k = 0; k < parts.item[i].n_paths && n_bytes > 0; k++)
            try_file(parts.item[i].paths[k], kind->choice(config, parts.item[i].paths[k]),
                     &n_bytes);
}

bool mx_data_try(const MxDataConfig *config, MxError *err) {
    const DataKind *kind = data_find_kind(config->kind, config->where, err);
    if (!kind || !name_of(config) || (!kind->is_guarded && !kind->parts)) return kind != NULL;
    return mx_store_try(name_of(config), kind->is_guarded ? try_data : try_records, config, err);
}
