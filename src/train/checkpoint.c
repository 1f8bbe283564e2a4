/* checkpoint.c — the checkpoints of a run: the newest that verifies is where it starts, a period
 * says when it saves, and the oldest make room. What a checkpoint is, room ckpt knows. */
#include "checkpoint.h"
#include "internal.h"

#include <mx/ckpt.h>

struct Checkpoints {
    MxArena *arena;
    const MxConfig *config;
    const char *config_text; /* as saved */
    MxTrainState *state;
    const char *newest; /* the folder to start from, NULL = none */
    int64_t saved;      /* newest saved step, -1 = none */
};

/* ---- starting */

bool checkpoints_open(MxArena *arena, const MxConfig *config, Checkpoints **out, MxError *err) {
    Checkpoints *c = *out = mx_new(arena, Checkpoints);
    *c = (Checkpoints){.arena = arena, .config = config, .saved = -1};
    c->config_text = mx_config_text(arena, config);
    if (!config->enable_checkpointing) return true;
    return mx_store_sweep(config->checkpoint_dir, err) &&
           mx_ckpt_newest(arena, config->checkpoint_dir, &c->newest, &c->saved, err);
}

int64_t checkpoints_start(const Checkpoints *c) {
    return c->saved + 1;
}

bool checkpoints_restore(Checkpoints *c, MxTrainState *state, MxError *err) {
    c->state = state;
    if (c->newest)
        mx_log("restoring from this run's directory step %lld", (long long)c->saved);
    else if (c->config->enable_checkpointing)
        mx_log("No existing checkpoints found, not restoring checkpoint.");
    return train_restore(state, c->newest, err);
}

/* ---- saving */

bool checkpoints_are_due(const Checkpoints *c, int64_t step) {
    return c->config->enable_checkpointing && step % c->config->checkpoint_period == 0 &&
           (step || c->config->save_checkpoint_on_start);
}

static void remove_oldest(const MxConfig *config) {
    int64_t keep = config->max_num_checkpoints_to_keep, *steps;
    MxArena arena = {.name = "rotate"};
    MxError err = {0};
    int n = 0;
    bool ok = keep <= 0 || mx_store_steps(&arena, config->checkpoint_dir, &steps, &n, &err);
    for (int i = 0; ok && keep > 0 && i < n - keep; i++)
        ok = mx_dir_remove(
            mx_arena_printf(&arena, "%s/%lld", config->checkpoint_dir, (long long)steps[i]), &err);
    if (!ok) mx_warn("%s", err.text.data);
    mx_error_release(&err);
    mx_arena_release(&arena);
}

/* A folder of that step that does not verify stands in the way of a good one. */
static bool clear_place(MxArena *arena, const char *dir, bool *is_taken, MxError *err) {
    MxError why = {0};
    *is_taken = mx_dir_exists(dir) && mx_store_verify(arena, dir, NULL, &why);
    mx_error_release(&why);
    return *is_taken || !mx_dir_exists(dir) || mx_dir_remove(dir, err);
}

bool checkpoints_save(Checkpoints *c, int64_t step, MxError *err) {
    const MxConfig *config = c->config;
    if (c->saved == step) return true;
    MxArena arena = {.name = "save"};
    const char *dir = mx_arena_printf(&arena, "%s/%lld", config->checkpoint_dir, (long long)step);
    MxSaving how = {.form = {.is_linen = !config->pure_nnx,
                             .is_scanned = config->scan_layers,
                             .scan_axis = (int)config->param_scan_axis},
                    .config = c->config_text};
    bool is_taken, ok = clear_place(&arena, dir, &is_taken, err);
    if (ok && is_taken)
        mx_log("Checkpoint for step %lld already exists, skipping save.", (long long)step);
    else if (ok) {
        ok = mx_ckpt_save(dir, &how, train_saved_tree(&arena, c->state), err);
        if (ok) mx_log("Saved a checkpoint at step %lld.", (long long)step);
    }
    c->saved = step;
    if (ok) remove_oldest(config);
    mx_arena_release(&arena);
    return ok;
}
