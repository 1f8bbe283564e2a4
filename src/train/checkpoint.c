/* checkpoint.c — where a run starts. Only one process at a time may use the run's folder. The run
 * starts from the newest valid checkpoint. The room ckpt defines checkpoints. */
#include "checkpoint_room.h"

#include <stdio.h>
#include <time.h>

const char *checkpoints_folder(MxArena *arena, const MxConfig *config, int64_t step) {
    return mx_arena_printf(arena, "%s/%lld", config->checkpoint_dir, (long long)step);
}

/* Tells how the config of a checkpoint folder differs; refuses what cannot go on. */
static bool compare_config(const Checkpoints *c, MxError *err) {
    MxArena arena = {.name = "config"};
    MxJson *manifest;
    MxStrs changes = {0};
    bool ok = mx_store_manifest(&arena, c->from, &manifest, err);
    const char *old = ok ? mx_json_string(mx_json_get(manifest, "config")) : NULL;
    if (old) ok = mx_config_resume(&arena, c->config, old, c->from, &changes, err);
    for (int i = 0; ok && c->use != CHECKPOINTS_EVALUATE && i < changes.n; i++)
        mx_warn("%s since \"%s\" was made: the curve changes from here", changes.item[i], c->from);
    mx_arena_release(&arena);
    return ok;
}

bool checkpoints_is_first(const Checkpoints *c) {
    return mx_comm_rank(c->comm) == 0;
}

bool checkpoints_is_alone(const Checkpoints *c) {
    return mx_comm_size(c->comm) == 1;
}

/* Whether a folder is there, or soon: what another machine has made, a network's disk may show a
 * moment later. */
static bool appears(const char *path) {
    const double patience_s = 5;
    const struct timespec often = {.tv_nsec = 50000000};
    double start = mx_clock_s();
    while (!mx_dir_exists(path) && mx_clock_s() - start < patience_s) nanosleep(&often, NULL);
    return mx_dir_exists(path);
}

/* Each rank writes its part of a checkpoint into one folder: that all of them see it is made sure
 * of before there is anything to lose. */
static bool share_folder(Checkpoints *c, MxError *err) {
    enum { MOST = 64 };
    const char *dir = c->config->checkpoint_dir;
    char name[MOST] = "", *made = NULL;
    if (checkpoints_is_alone(c)) return true;
    bool ok = !checkpoints_is_first(c) || mx_store_mark(c->arena, dir, &made, err);
    if (!train_agree(c->comm, ok, err)) return false;
    if (made) snprintf(name, sizeof name, "%s", made);
    mx_comm_broadcast(c->comm, name, sizeof name);
    char *mark = mx_path_join(c->arena, dir, name);
    if (!appears(mark))
        ok = mx_fail(err, MX_EXIT_IO, MX_NOWHERE,
                     "does not see what rank 0 has written to \"%s\"; the folder of a run "
                     "(base_output_directory) must be on a disk that all ranks see",
                     dir);
    ok = train_agree(c->comm, ok, err);
    return (!made || mx_dir_remove(mark, err)) && ok;
}

/* The folder has more than checkpoints: without them too nobody else writes to it. */
static bool find_own(Checkpoints *c, MxError *err) {
    const MxConfig *config = c->config;
    const MxCkptSearch how = {.peeks = c->use == CHECKPOINTS_PLAN,
                              .team = train_team(c->arena, c->comm)};
    bool ok = !checkpoints_is_first(c) || c->use != CHECKPOINTS_TRAIN ||
              (mx_store_lock(c->arena, config->run_dir, err) &&
               (!config->enable_checkpointing || mx_store_sweep(config->checkpoint_dir, err)));
    if (!train_agree(c->comm, ok, err)) return false;
    if (!config->enable_checkpointing) return true;
    if ((c->use == CHECKPOINTS_TRAIN && !share_folder(c, err)) ||
        !mx_ckpt_newest(c->arena, config->checkpoint_dir, &how, &c->from, &c->saved, err))
        return false;
    c->is_own = c->from != NULL;
    c->start = c->saved + 1;
    return true;
}

/* The whole state of another run; that of a file alone comes without a config to compare. */
static bool find_other(Checkpoints *c, MxError *err) {
    MxCkptRef ref;
    const char *path = c->config->load_full_state_path;
    if (c->from || !path || mx_config_is_elsewhere(path)) return true;
    if (!(c->use == CHECKPOINTS_PLAN
              ? mx_ckpt_peek(c->arena, path, &ref, err)
              : mx_ckpt_find(c->arena, path, train_team(c->arena, c->comm), &ref, err)))
        return mx_context(err, "load_full_state_path");
    c->from = ref.dir && !*ref.group ? ref.dir : path;
    return true;
}

bool checkpoints_open(MxArena *arena, const MxConfig *config, MxComm *comm, CheckpointsUse use,
                      Checkpoints **out, MxError *err) {
    Checkpoints *c = *out = mx_new(arena, Checkpoints);
    *c = (Checkpoints){
        .arena = arena, .config = config, .comm = comm, .use = use, .saved = -1, .evaluated = -1};
    c->config_text = mx_config_text(arena, config);
    return find_own(c, err) && find_other(c, err) &&
           (!c->from || !mx_dir_exists(c->from) || compare_config(c, err));
}

bool checkpoints_try(Checkpoints *c, MxError *err) {
    const char *own = checkpoints_own(c);
    return train_try_files(c->config, c->comm, c->start > 0, err) &&
           train_check_origin(c->arena, c->config, c->comm, own, &c->tokenizer, err);
}

const char *checkpoints_own(const Checkpoints *c) {
    return c->is_own ? c->from : NULL;
}

void checkpoints_remember(Checkpoints *c, const char *data) {
    c->data = data;
}

int64_t checkpoints_start(const Checkpoints *c) {
    return c->start;
}

static bool fill(Checkpoints *c, MxError *err) {
    if (c->is_own)
        mx_log("restoring from this run's directory step %lld", (long long)c->saved);
    else if (c->config->enable_checkpointing)
        mx_log("No existing checkpoints found, not restoring checkpoint.");
    if (c->is_own || !c->from) return train_restore(c->state, c->from, err);
    mx_log("restoring the full state from %s", c->from);
    if (!train_restore_full(c->state, c->from, err)) return mx_context(err, "load_full_state_path");
    c->start = mx_train_state_step(c->state);
    return true;
}

/* Ranks of a pipeline have whole layers, and none has a part of every layer of a stack. */
MxForm checkpoints_form(const MxConfig *config) {
    return (MxForm){.is_linen = !config->pure_nnx,
                    .is_scanned = config->scan_layers && config->pipeline_stages == 1,
                    .scan_axis = (int)config->param_scan_axis};
}

/* What bits depend on besides the config. */
static const char *describe_machine(MxArena *arena, const MxComm *comm, const MxTrainState *state) {
    const MxDevice *device = mx_train_state_device(state);
    MxJson *json = mx_json_object(arena);
    mx_json_set_int(json, "ranks", mx_comm_size(comm));
    mx_json_set_int(json, "threads", device->n_threads);
    mx_json_set_string(json, "arithmetic", mx_device_arithmetic(device));
    return mx_json_dump(arena, json, false);
}

static void add_differences(MxText *out, const MxJson *was, const MxJson *is) {
    const char *key;
    MxJson *now;
    for (size_t i = 0; mx_json_member(is, i, &key, &now); i++) {
        const char *before = mx_json_dump(out->arena, mx_json_get(was, key), false);
        const char *after = mx_json_dump(out->arena, now, false);
        if (strcmp(before, after))
            mx_text_add(out, "%s%s %s, here %s", out->len ? ", " : "", key, before, after);
    }
}

/* A run goes on to the last bit where it was; elsewhere nearly so. */
static void compare_machine(const Checkpoints *c) {
    MxArena arena = {.name = "machine"};
    MxError ignored = {0}; /* it was verified */
    MxJson *manifest;
    MxText text;
    mx_text_init(&text, &arena);
    bool ok = mx_store_manifest(&arena, c->from, &manifest, &ignored);
    const MxJson *was = ok ? mx_json_get(manifest, "made_by") : NULL;
    if (was)
        add_differences(&text, was,
                        mx_json_parse(&arena, c->made_by, strlen(c->made_by), "", &ignored));
    if (text.len)
        mx_warn("\"%s\" was made with %s: results differ in their last bits from those of a run "
                "without this change",
                c->from, text.data);
    mx_error_release(&ignored);
    mx_arena_release(&arena);
}

bool checkpoints_restore(Checkpoints *c, MxTrainState *state, MxError *err) {
    c->state = state;
    if (!fill(c, err)) return false;
    if (!c->config->enable_checkpointing || c->use != CHECKPOINTS_TRAIN) return true;
    c->made_by = describe_machine(c->arena, c->comm, state);
    if (c->is_own) compare_machine(c);
    c->tree = mx_train_saved_tree(c->arena, state);
    c->saver = saver_open(c->arena, mx_ckpt_share(c->arena, checkpoints_form(c->config), c->tree),
                          c->config->async_checkpointing);
    mx_arena_on_release(c->arena, checkpoints_abandon, c);
    return true;
}
