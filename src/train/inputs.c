/* inputs.c — checks, before a run builds anything, that everything it names exists: weights, data,
 * the places for metrics and checkpoints. Files are not read here; errors in their contents are
 * reported when they are read. */
#include "data.h"
#include "internal.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file or folder that can be read. */
static bool check_read(const MxConfig *c, MxKey key, const char *path, MxError *err) {
    struct stat st;
    MxWhere where = mx_config_where(c, key);
    const char *name = mx_key_name(key);
    if (stat(path, &st) || access(path, R_OK))
        return mx_fail(err, errno == EACCES ? MX_EXIT_PERMISSION : MX_EXIT_BAD_INPUT, where,
                       "%s: could not open \"%s\": %s", name, path, strerror(errno));
    return S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where, "%s: \"%s\" is neither a file nor a folder", name,
                   path);
}

/* FILE.h5[:group], a checkpoint, a run's folder, or a folder of Hugging Face's. */
static bool check_weights(const MxConfig *c, MxKey key, const char *ref, MxError *err) {
    MxArena arena = {.name = "inputs"};
    char *file, *group;
    if (!ref || mx_config_is_elsewhere(ref)) return true;
    mx_store_ref_parse(&arena, ref, &file, &group);
    bool ok = check_read(c, key, mx_dir_exists(ref) ? ref : file, err);
    mx_arena_release(&arena);
    return ok;
}

/* Whether the run would go on from a checkpoint of its own. */
static bool is_resumed(const MxConfig *c) {
    MxArena arena = {.name = "inputs"};
    MxError ignored = {0};
    int64_t *steps;
    int n = 0;
    bool ok = c->enable_checkpointing && !mx_config_is_elsewhere(c->checkpoint_dir) &&
              mx_store_steps(&arena, c->checkpoint_dir, &steps, &n, &ignored);
    mx_error_release(&ignored);
    mx_arena_release(&arena);
    return ok && n > 0;
}

static bool check_data(const MxConfig *c, bool is_eval, MxError *err) {
    MxDataConfig data = train_data_config(c, NULL, is_eval);
    const char *named = data.mixture ? data.mixture : data.path;
    if (!named || mx_config_is_elsewhere(named))
        return true; /* the config knows what must be named */
    return mx_data_find(&data, err);
}

/* A file that can be made, or written to. */
static bool check_write(MxKey key, const char *path, MxError *err) {
    MxArena arena = {.name = "inputs"};
    bool is_folder = mx_dir_exists(path);
    bool ok = !is_folder && (!access(path, W_OK) ||
                             (errno == ENOENT && !access(mx_path_dir(&arena, path), W_OK | X_OK)));
    if (is_folder) errno = EISDIR;
    if (!ok) mx_fail_errno(err, "%s: could not write \"%s\"", mx_key_name(key), path);
    mx_arena_release(&arena);
    return ok;
}

/* The first folder on the way up that is there must take a new one. */
static bool check_folder(const char *path, MxError *err) {
    MxArena arena = {.name = "inputs"};
    struct stat st;
    const char *at = path;
    while (stat(at, &st) && errno == ENOENT && strcmp(at, ".") && strcmp(at, "/"))
        at = mx_path_dir(&arena, at);
    bool ok = mx_dir_exists(at) && !access(at, W_OK | X_OK);
    if (!ok && mx_file_exists(at)) errno = ENOTDIR;
    if (!ok)
        mx_fail_errno(err, "%s: could not write to \"%s\"",
                      mx_key_name(MX_KEY_base_output_directory), at);
    mx_arena_release(&arena);
    return ok;
}

bool mx_train_inputs(const MxConfig *c, bool only_evaluates, MxError *err) {
    TrainWants wants = only_evaluates ? TRAIN_WANTS_EVAL : train_wants(c);
    bool resumes = is_resumed(c), ok = true;
    const struct {
        MxKey key;
        const char *ref;
        bool is_read;
    } weights[] = {
        {MX_KEY_load_parameters_path, c->load_parameters_path, !resumes || c->enable_lora},
        {MX_KEY_load_full_state_path, c->load_full_state_path, !resumes},
        {MX_KEY_lora_restore_path, c->lora_restore_path, !resumes},
    };
    for (int i = 0; i < MX_COUNT(weights); i++)
        if (weights[i].is_read) ok &= check_weights(c, weights[i].key, weights[i].ref, err);
    for (int is_eval = 0; is_eval < 2; is_eval++)
        if (train_reads(c, wants, is_eval)) ok &= check_data(c, is_eval, err);
    if (c->sample_prompts && !only_evaluates && !mx_config_is_elsewhere(c->sample_prompts))
        ok &= check_read(c, MX_KEY_sample_prompts, c->sample_prompts, err);
    for (int i = 0; i < c->eval_tasks.n; i++)
        ok &= check_read(c, MX_KEY_eval_tasks, c->eval_tasks.item[i], err);
    if (c->metrics_file && !mx_config_is_elsewhere(c->metrics_file))
        ok &= check_write(MX_KEY_metrics_file, c->metrics_file, err);
    if (!only_evaluates && !mx_config_is_elsewhere(c->run_dir)) ok &= check_folder(c->run_dir, err);
    return ok;
}
