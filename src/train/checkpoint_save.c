/* checkpoint_save.c — saves of a run. They are made from a copy of the state, at most one at a
 * time; when one is on disk, older ones are removed. A failed save ends the run and removes
 * nothing.
 *
 * With several ranks each writes its share of the state. Their threads do not communicate: the main
 * threads agree between steps (that all have written, and what), and then the first rank publishes
 * the checkpoint. */
#include "checkpoint_room.h"

#include <stdio.h>

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
        bool ok =
            mx_store_manifest(arena, checkpoints_folder(arena, config, steps[i]), &manifest, &why);
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
        if (steps[i] != best)
            ok = mx_store_remove(checkpoints_folder(&arena, config, steps[i]), err);
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
    bool ok = !checkpoints_is_first(c) ||
              (clear_place(save, is_saved, err) &&
               (*is_saved || mx_ckpt_save_begin(&save->arena, save->dir, NULL, &save->how,
                                                save->tree, &save->ckpt, err)));
    if (ok && save->ckpt && strlen(mx_ckpt_save_temp(save->ckpt)) >= sizeof temp)
        ok = mx_fail(err, MX_EXIT_CANNOT_CREATE, MX_NOWHERE, "\"%s\": the path is too long",
                     save->dir);
    if (!train_agree(c->comm, ok, err)) return false;
    if (save->ckpt) snprintf(temp, sizeof temp, "%s", mx_ckpt_save_temp(save->ckpt));
    mx_comm_broadcast(c->comm, temp, sizeof temp);
    *is_saved = !*temp;
    return *temp == 0 || save->ckpt ||
           mx_ckpt_save_begin(&save->arena, save->dir, mx_arena_strdup(&save->arena, temp),
                              &save->how, save->tree, &save->ckpt, err);
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
    if (!checkpoints_is_first(c)) return end_save(c, true, false, err);
    c->progress = PUBLISHING;
    return saver_go_on(c->saver, publish, save, err) || end_save(c, false, false, err);
}

/* Goes on with the save in progress as far as can be done without waiting, or to its end. */
static bool advance(Checkpoints *c, bool waits, MxError *err) {
    if (c->progress == WRITING) {
        if (!waits && mx_comm_max(c->comm, !saver_is_done(c->saver))) return true;
        bool ok = train_agree(c->comm, saver_end(c->saver, err), err);
        if (!ok || checkpoints_is_alone(c)) return end_save(c, ok, false, err);
        if (!hand_over(c, err)) return false;
    }
    if (c->progress != PUBLISHING || (!waits && !saver_is_done(c->saver))) return true;
    return end_save(c, saver_end(c->saver, err), false, err);
}

/* A run that ends otherwise leaves no thread behind. What all ranks would have to finish together
 * is given up: the others may not be here. */
void checkpoints_abandon(void *checkpoints) {
    Checkpoints *c = checkpoints;
    MxError err = {0};
    bool is_fine = true;
    if (c->progress == WRITING && !checkpoints_is_alone(c)) {
        saver_end(c->saver, &err);
        mx_arena_release(&c->save.arena);
    } else {
        is_fine = advance(c, true, &err);
    }
    if (!is_fine) mx_warn("%s", err.text.data);
    mx_error_release(&err);
}

bool checkpoints_are_due(const Checkpoints *c, int64_t step) {
    const MxConfig *config = c->config;
    if (!config->enable_checkpointing || (!step && !config->save_checkpoint_on_start)) return false;
    if (config->enable_continuous_checkpointing)
        return !mx_comm_max(c->comm, c->progress != NO_SAVE); /* the first publishes alone */
    return step % config->checkpoint_period == 0;
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
                   .tree = c->tree,
                   .n_ranks = mx_comm_size(c->comm)};
    save->dir = checkpoints_folder(&save->arena, config, step);
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
        if (checkpoints_is_first(c)) rotate(config, step, &c->save.rotation);
        return end_save(c, true, true, err);
    }
    if (!saver_start(c->saver, write_share, &c->save, err)) return end_save(c, false, false, err);
    c->progress = WRITING;
    if (!config->async_checkpointing) return advance(c, true, err);
    mx_log("Started an asynchronous checkpoint save for step %lld.", (long long)step);
    return true;
}

/* ---- the model behind the last step, in ordinary weights */

/* The run's config as of a model that learns nothing of a teacher's weights. */
static const char *folded_config(Checkpoints *c, MxArena *arena, MxError *err) {
    static const char *const without[] = {
        "learn_to_init_mode=false",    "attn_module_name=",
        "lti_layer_indices=null",      "lti_use_general_linear_map=false",
        "distill_weights_copy_map={}", "distill_student_weights_share_map={}",
        "student_params_to_update=[]"};
    const MxConfigRequest request = {.text = c->config_text,
                                     .text_name = "the run's config",
                                     .overrides = without,
                                     .n_overrides = MX_COUNT(without)};
    MxConfig *config;
    return mx_config_load(arena, &request, &config, err) ? mx_config_text(arena, config) : NULL;
}

/* All ranks write their part, and wait for each other. */
static bool write_folded(Checkpoints *c, MxError *err) {
    Save *save = &c->save;
    bool is_saved, is_first = checkpoints_is_first(c);
    bool ok = !is_first || !mx_dir_exists(save->dir) || mx_store_remove(save->dir, err);
    if (!train_agree(c->comm, ok, err) || !begin(c, &is_saved, err)) return false;
    const MxTree *share = mx_ckpt_share(&save->arena, save->how.form, save->tree);
    ok = mx_ckpt_save_write(save->ckpt, share, err);
    if (!train_agree(c->comm, ok, err)) return false;
    save->reports = train_gather_texts(&save->arena, c->comm, mx_ckpt_save_report(save->ckpt));
    ok = !is_first || mx_ckpt_save_commit(save->ckpt, save->reports, save->n_ranks, err);
    return train_agree(c->comm, ok, err);
}

bool checkpoints_fold(Checkpoints *c, int64_t step, MxError *err) {
    Save *save = &c->save;
    if (!checkpoints_finish(c, err)) return false;
    describe_save(c, step);
    save->dir = mx_path_join(&save->arena, c->config->run_dir, "folded");
    save->tree = mx_train_folded_tree(&save->arena, c->state);
    bool ok = true;
    if (save->tree) {
        save->how.config = folded_config(c, &save->arena, err);
        ok = save->how.config && write_folded(c, err);
        if (ok) mx_log("Saved the model in ordinary weights in %s.", save->dir);
    }
    mx_arena_release(&save->arena);
    return ok || mx_context(err, "learn_to_init_mode");
}

bool checkpoints_poll(Checkpoints *c, MxError *err) {
    return advance(c, false, err);
}

bool checkpoints_finish(Checkpoints *c, MxError *err) {
    return advance(c, true, err);
}
