/* checkpoint.c — the checkpoints of a run. One process at a time has the run's folder. It starts
 * from the newest checkpoint that verifies; saves are made on a copy of the state, at most one at a
 * time; when one is on disk, older ones make room. A failed save ends the run and removes nothing.
 *
 * Of several ranks each writes its share of the state. Their threads do not talk to each other:
 * what ranks have to agree on (that all have written, what they wrote) they do in the main thread
 * between steps, and then the first one publishes. What a checkpoint is, room ckpt knows. */
#include "checkpoint.h"
#include "internal.h"
#include "saver.h"

#include <mx/ckpt.h>

#include <stdio.h>
#include <time.h>

/* One save, from the copy of the state to what was removed after it. */
typedef struct Save {
    MxArena arena;
    const MxConfig *config;
    MxSaving how;
    const char *dir;
    int64_t step;
    double eval_loss;
    MxCkptSave *ckpt;
    const char *const *reports; /* [ranks] of what they wrote */
    int n_ranks;
    MxError rotation; /* what could not be removed; no reason to stop */
} Save;

struct Checkpoints {
    MxArena *arena;
    const MxConfig *config;
    MxComm *comm;
    const char *config_text; /* as saved */
    const char *data;        /* as saved: the files of the training data */
    const char *made_by;     /* as saved: what bits depend on */
    CheckpointsUse use;
    MxTrainState *state;
    MxTree *tree;              /* what is saved of it */
    const char *from;          /* folder or file to start from, NULL = none */
    bool is_own;               /* it is a checkpoint of this run */
    MxCkptTokenizer tokenizer; /* of the weights */
    int64_t start;             /* first step to make */
    int64_t saved;             /* newest step whose save was started, -1 = none */
    int64_t evaluated;
    double eval_loss; /* after step `evaluated` */
    Saver *saver;
    Save save; /* in progress */
    enum { NO_SAVE, WRITING, PUBLISHING } progress;
};

/* ---- starting */

static const char *step_dir(MxArena *arena, const MxConfig *config, int64_t step) {
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

static bool is_first(const Checkpoints *c) {
    return mx_comm_rank(c->comm) == 0;
}

static bool is_alone(const Checkpoints *c) {
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
    if (is_alone(c)) return true;
    bool ok = !is_first(c) || mx_store_mark(c->arena, dir, &made, err);
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
    bool ok = !is_first(c) || c->use != CHECKPOINTS_TRAIN ||
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
    if (c->from || !path || train_is_elsewhere(path)) return true;
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

MxForm checkpoints_form(const MxConfig *config) {
    return (MxForm){.is_linen = !config->pure_nnx,
                    .is_scanned = config->scan_layers,
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

static void abandon(void *checkpoints);

bool checkpoints_restore(Checkpoints *c, MxTrainState *state, MxError *err) {
    c->state = state;
    if (!fill(c, err)) return false;
    if (!c->config->enable_checkpointing || c->use != CHECKPOINTS_TRAIN) return true;
    c->made_by = describe_machine(c->arena, c->comm, state);
    if (c->is_own) compare_machine(c);
    c->tree = mx_train_saved_tree(c->arena, state);
    c->saver = saver_open(c->arena, mx_ckpt_share(c->arena, checkpoints_form(c->config), c->tree),
                          c->config->async_checkpointing);
    mx_arena_on_release(c->arena, abandon, c);
    return true;
}

/* ---- what is kept */

/* The step whose checkpoint has the lowest evaluation loss, the first of equals; -1 = none. One
 * that cannot be read now may be it. */
static bool find_best(MxArena *arena, const MxConfig *config, const int64_t *steps, int n,
                      int64_t *best, MxError *err) {
    double lowest = 0;
    *best = -1;
    for (int i = 0; i < n; i++) {
        MxError why = {0};
        MxJson *manifest;
        double loss;
        bool ok = mx_store_manifest(arena, step_dir(arena, config, steps[i]), &manifest, &why);
        bool is_damaged = why.exit == MX_EXIT_BAD_INPUT;
        if (!ok && !is_damaged) mx_fail(err, why.exit, MX_NOWHERE, "%s", why.text.data);
        mx_error_release(&why);
        if (!ok && !is_damaged) return mx_context(err, "no older checkpoint is removed");
        if (ok && mx_json_number(mx_json_get(manifest, "eval_loss"), &loss) &&
            (*best < 0 || loss < lowest)) {
            *best = steps[i];
            lowest = loss;
        }
    }
    return true;
}

/* Removes what is too old after a save. Folders of later steps do not verify, or the run would have
 * started from them: they are no reason to remove one that does, and were named at the start. */
static bool rotate(const MxConfig *config, int64_t newest, MxError *err) {
    int64_t keep = config->max_num_checkpoints_to_keep, *steps;
    if (keep <= 0) return true;
    MxArena arena = {.name = "rotate"};
    int n = 0;
    bool ok = mx_store_steps(&arena, config->checkpoint_dir, &steps, &n, err);
    while (n && steps[n - 1] > newest) n--;
    int64_t best = -1;
    if (config->keep_best_checkpoint) ok = ok && find_best(&arena, config, steps, n, &best, err);
    for (int i = 0; ok && i < n - keep; i++)
        if (steps[i] != best) ok = mx_store_remove(step_dir(&arena, config, steps[i]), err);
    mx_arena_release(&arena);
    return ok;
}

/* ---- saving */

/* A folder of that step that is damaged stands in the way of a good one. */
static bool clear_place(Save *save, bool *is_saved, MxError *err) {
    MxError why = {0};
    bool is_there = mx_dir_exists(save->dir), ok = true;
    *is_saved = is_there && mx_store_verify(&save->arena, save->dir, NULL, NULL, &why);
    if (is_there && !*is_saved)
        ok = why.exit == MX_EXIT_BAD_INPUT
                 ? mx_store_remove(save->dir, err)
                 : mx_fail(err, why.exit, MX_NOWHERE, "%s", why.text.data);
    mx_error_release(&why);
    return ok;
}

/* The first rank makes the folder and tells the others its name; "" = the step is saved already. */
static bool begin(Checkpoints *c, bool *is_saved, MxError *err) {
    Save *save = &c->save;
    char temp[4096] = "";
    *is_saved = false;
    bool ok =
        !is_first(c) || (clear_place(save, is_saved, err) &&
                         (*is_saved || mx_ckpt_save_begin(&save->arena, save->dir, NULL, &save->how,
                                                          c->tree, &save->ckpt, err)));
    if (ok && save->ckpt && strlen(mx_ckpt_save_temp(save->ckpt)) >= sizeof temp)
        ok = mx_fail(err, MX_EXIT_CANNOT_CREATE, MX_NOWHERE, "\"%s\": the path is too long",
                     save->dir);
    if (!train_agree(c->comm, ok, err)) return false;
    if (save->ckpt) snprintf(temp, sizeof temp, "%s", mx_ckpt_save_temp(save->ckpt));
    mx_comm_broadcast(c->comm, temp, sizeof temp);
    *is_saved = !*temp;
    return *temp == 0 || save->ckpt ||
           mx_ckpt_save_begin(&save->arena, save->dir, mx_arena_strdup(&save->arena, temp),
                              &save->how, c->tree, &save->ckpt, err);
}

/* In the saver's thread of the first rank. */
static bool publish(void *data, const MxTree *share, MxPace *pace, MxError *err) {
    Save *save = data;
    (void)share;
    save->how.pace = pace;
    if (!mx_ckpt_save_commit(save->ckpt, save->reports, save->n_ranks, err)) return false;
    rotate(save->config, save->step, &save->rotation);
    return true;
}

/* In the saver's thread of every rank. One that is alone has nobody to wait for. */
static bool write_share(void *data, const MxTree *share, MxPace *pace, MxError *err) {
    Save *save = data;
    save->how.pace = pace;
    if (!mx_ckpt_save_write(save->ckpt, share, err)) return false;
    if (save->n_ranks > 1) return true;
    const char *const report[] = {mx_ckpt_save_report(save->ckpt)};
    save->reports = report;
    return publish(data, share, pace, err);
}

/* Tells how the save in progress went. */
static bool end_save(Checkpoints *c, bool ok, bool was_saved, MxError *err) {
    Save *save = &c->save;
    c->progress = NO_SAVE;
    if (ok && was_saved)
        mx_log("Checkpoint for step %lld already exists, skipping save.", (long long)save->step);
    else if (ok)
        mx_log("Saved a checkpoint at step %lld.", (long long)save->step);
    if (save->rotation.count) mx_warn("%s", save->rotation.text.data);
    mx_error_release(&save->rotation);
    mx_arena_release(&save->arena); /* with the folder, unless it was published */
    return ok || mx_context(err, "Checkpointing failed");
}

/* All have written: the first publishes, the others are done. */
static bool hand_over(Checkpoints *c, MxError *err) {
    Save *save = &c->save;
    save->reports = train_gather_texts(&save->arena, c->comm, mx_ckpt_save_report(save->ckpt));
    if (!is_first(c)) return end_save(c, true, false, err);
    c->progress = PUBLISHING;
    return saver_go_on(c->saver, publish, save, err) || end_save(c, false, false, err);
}

/* Goes on with the save in progress as far as can be done without waiting, or to its end. */
static bool advance(Checkpoints *c, bool waits, MxError *err) {
    if (c->progress == WRITING) {
        if (!waits && mx_comm_max(c->comm, !saver_is_done(c->saver))) return true;
        bool ok = train_agree(c->comm, saver_end(c->saver, err), err);
        if (!ok || is_alone(c)) return end_save(c, ok, false, err);
        if (!hand_over(c, err)) return false;
    }
    if (c->progress != PUBLISHING || (!waits && !saver_is_done(c->saver))) return true;
    return end_save(c, saver_end(c->saver, err), false, err);
}

/* A run that ends otherwise leaves no thread behind. What all ranks would have to finish together
 * is given up: the others may not be here. */
static void abandon(void *checkpoints) {
    Checkpoints *c = checkpoints;
    MxError err = {0};
    bool is_fine = true;
    if (c->progress == WRITING && !is_alone(c)) {
        saver_end(c->saver, &err);
        mx_arena_release(&c->save.arena);
    } else {
        is_fine = advance(c, true, &err);
    }
    if (!is_fine) mx_warn("%s", err.text.data);
    mx_error_release(&err);
}

bool checkpoints_are_due(const Checkpoints *c, int64_t step) {
    return c->config->enable_checkpointing && step % c->config->checkpoint_period == 0 &&
           (step || c->config->save_checkpoint_on_start);
}

void checkpoints_evaluated(Checkpoints *c, int64_t step, double loss) {
    c->evaluated = step;
    c->eval_loss = loss;
}

static void describe_save(Checkpoints *c, int64_t step) {
    const MxConfig *config = c->config;
    Save *save = &c->save;
    *save = (Save){.arena = {.name = "save"},
                   .config = config,
                   .step = step,
                   .n_ranks = mx_comm_size(c->comm)};
    save->dir = step_dir(&save->arena, config, step);
    save->how = (MxSaving){.form = checkpoints_form(config),
                           .config = c->config_text,
                           .tokenizer = c->tokenizer,
                           .data = c->data,
                           .made_by = c->made_by,
                           .run = config->run_name};
    save->eval_loss = c->eval_loss;
    if (c->evaluated == step) save->how.eval_loss = &save->eval_loss;
}

bool checkpoints_save(Checkpoints *c, int64_t step, MxError *err) {
    const MxConfig *config = c->config;
    if (c->saved == step) return true;
    if (!checkpoints_finish(c, err)) return false;
    c->saved = step;
    describe_save(c, step);
    bool is_saved;
    if (!begin(c, &is_saved, err)) return end_save(c, false, false, err);
    if (is_saved) {
        if (is_first(c)) rotate(config, step, &c->save.rotation);
        return end_save(c, true, true, err);
    }
    if (!saver_start(c->saver, write_share, &c->save, err)) return end_save(c, false, false, err);
    c->progress = WRITING;
    if (!config->async_checkpointing) return advance(c, true, err);
    mx_log("Started an asynchronous checkpoint save for step %lld.", (long long)step);
    return true;
}

bool checkpoints_poll(Checkpoints *c, MxError *err) {
    return advance(c, false, err);
}

bool checkpoints_finish(Checkpoints *c, MxError *err) {
    return advance(c, true, err);
}
