/* restore.c — the sources of a run's arrays: its own checkpoint, or step 0 with weights and
 * adapters from elsewhere. While adapters are trained, a run's checkpoints omit the base, which
 * does not change: it is initialised or loaded again, and recognized by its fingerprint. The same
 * holds for the reference model if checkpoints are Linen. */
#include <mx/train.h>

#include "internal.h"

#include <mx/generate.h>

/* ---- the base under adapters */

/* What the config in a manifest, if there is one, says of a key. */
static const char *said_in(MxArena *arena, const MxJson *manifest, MxKey key) {
    const char *text = manifest ? mx_json_string(mx_json_get(manifest, "config")) : NULL;
    return mx_config_said(arena, text, key);
}

static bool refuse_base(const MxTrainState *s, const char *dir, int64_t found, MxError *err) {
    MxArena arena = {.name = "message"};
    MxError ignored = {0};
    MxJson *manifest = NULL;
    const char *here = mx_train_state_config(s)->load_parameters_path;
    mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = dir},
            "its adapters belong to other weights: fingerprint %016llx, here it is %016llx",
            (unsigned long long)found, (unsigned long long)*mx_train_base_fingerprint(s));
    if (mx_store_manifest(&arena, dir, &manifest, &ignored))
        mx_note(err,
                "hint: they were trained with load_parameters_path=%s and "
                "init_weights_seed=%s; this run has load_parameters_path=\"%s\"",
                said_in(&arena, manifest, MX_KEY_load_parameters_path),
                said_in(&arena, manifest, MX_KEY_init_weights_seed), here ? here : "");
    mx_error_release(&ignored);
    mx_arena_release(&arena);
    return false;
}

/* ---- restoring: every rank reads its part of the arrays */

typedef bool Reader(MxTrainState *s, const MxTeam *team, const char *from, MxError *err);

static bool read_with(MxTrainState *s, Reader *read, const char *from, MxError *err) {
    MxArena arena = {.name = "restore"};
    bool ok = read(s, train_team(&arena, mx_train_state_comm(s)), from, err);
    if (ok) mx_train_state_restored(s);
    mx_arena_release(&arena);
    return ok;
}

static int scan_axis(const MxTrainState *s) {
    return (int)mx_train_state_config(s)->param_scan_axis;
}

bool train_try_files(const MxConfig *c, MxComm *comm, bool is_resumed, MxError *err) {
    const char *paths[] = {is_resumed && !c->enable_lora ? NULL : c->load_parameters_path,
                           is_resumed ? NULL : c->load_full_state_path,
                           is_resumed ? NULL : c->lora_restore_path,
                           c->teacher ? c->teacher->load_parameters_path : NULL};
    bool ok = true;
    for (int i = 0; ok && i < MX_COUNT(paths) && mx_comm_rank(comm) == 0; i++)
        ok = !paths[i] || mx_ckpt_try(paths[i], err);
    return train_agree(comm, ok, err);
}

/* A model whose parameters are wanted. */
typedef struct Wanted {
    const MxConfig *config;
    const MxModel *model;
    MxTree *tree; /* "model/…" */
} Wanted;

static bool read_model(const Wanted *wanted, const MxTeam *team, const char *from, MxError *err) {
    return mx_hf_is_dir(from)
               ? mx_hf_load_for(from, team, wanted->config, mx_model_head_form(wanted->model),
                                wanted->tree, err)
               : mx_ckpt_load_params(from, team, (int)wanted->config->param_scan_axis, wanted->tree,
                                     err);
}

/* Only states that are saved or read have it beside them; of a large model it takes a while. */
static bool wants_fingerprint(const MxTrainState *s) {
    const MxConfig *c = mx_train_state_config(s);
    return mx_train_base_fingerprint(s) && (c->enable_checkpointing || c->load_full_state_path);
}

static bool read_params(MxTrainState *s, const MxTeam *team, const char *from, MxError *err) {
    const Wanted wanted = {mx_train_state_config(s), mx_train_state_model(s),
                           mx_train_state_tree(s)};
    if (from) mx_log("restoring parameters from %s", from);
    if (from && !read_model(&wanted, team, from, err)) return false;
    bool is_finite = mx_train_check_weights(s, err); /* of a rank's own part */
    if (from && !train_agree(mx_train_state_comm(s), is_finite, err)) return false;
    if (wants_fingerprint(s)) *mx_train_base_fingerprint(s) = mx_train_fingerprint(s);
    return true;
}

static bool start_anew(MxTrainState *s, MxError *err) {
    const char *from = mx_train_state_config(s)->load_parameters_path;
    mx_train_state_init(s);
    return ((!from && !mx_train_base_fingerprint(s)) || read_with(s, read_params, from, err)) &&
           mx_train_start_adapters(s, err);
}

static int64_t fingerprint_of(const MxTrainState *s) {
    return mx_train_base_fingerprint(s) ? *mx_train_base_fingerprint(s) : 0;
}

/* That the base in memory, whose fingerprint is `base`, is that of the adapters just read. */
static bool check_base(MxTrainState *s, int64_t base, const char *from, MxError *err) {
    int64_t found = fingerprint_of(s);
    if (found == base) return true;
    *mx_train_base_fingerprint(s) = base;
    return refuse_base(s, from, found, err);
}

/* How many replicas wrote a whole state (enable_diloco); as many as here where it cannot be told.
 */
static bool find_replicas(MxTrainState *s, const char *from, int64_t *n, MxError *err) {
    MxArena arena = {.name = "replicas"};
    const char *path = mx_train_replica_leaf(s);
    MxCkptRef ref;
    *n = 0;
    bool ok = !path || (mx_ckpt_peek(&arena, from, &ref, err) && mx_ckpt_dim(&ref, path, n, err));
    if (!*n) *n = mx_train_replicas(s);
    mx_arena_release(&arena);
    return ok;
}

/* Where others were between two outer steps is nobody's place here. */
static void rejoin(MxTrainState *s, int64_t n) {
    int64_t here = mx_train_replicas(s);
    if (n == here) return;
    mx_log("%lld replicas wrote the checkpoint, here are %lld: all go on from the outer parameters",
           (long long)n, (long long)here);
    mx_train_rejoin(s);
}

static bool read_own(MxTrainState *s, const MxTeam *team, const char *dir, MxError *err) {
    (void)team; /* it was verified when it was found */
    MxArena arena = {.name = "own"};
    int64_t base = fingerprint_of(s), n;
    bool ok = find_replicas(s, dir, &n, err) &&
              mx_ckpt_load(dir, scan_axis(s), mx_train_saved_tree_of(&arena, s, n), err);
    if (ok) rejoin(s, n);
    mx_arena_release(&arena);
    return ok && check_base(s, base, dir, err);
}

/* What the other run was in the middle of is its own business. */
static bool read_full(MxTrainState *s, const char *ref, bool *has_reference, MxError *err) {
    MxArena arena = {.name = "full"};
    int64_t base = fingerprint_of(s), n;
    bool ok = find_replicas(s, ref, &n, err) &&
              mx_ckpt_load_full(ref, train_team(&arena, mx_train_state_comm(s)), scan_axis(s),
                                mx_train_saved_tree_of(&arena, s, n), has_reference, err);
    if (ok) rejoin(s, n);
    mx_arena_release(&arena);
    return ok && check_base(s, base, ref, err);
}

bool train_restore_full(MxTrainState *s, const char *ref, MxError *err) {
    bool has_reference;
    if (mx_model_lora(mx_train_state_model(s)) && !start_anew(s, err)) return false;
    if (!read_full(s, ref, &has_reference, err)) return false;
    mx_train_state_restored(s);
    *mx_train_state_eval_pending(s) = 0;
    if (!has_reference) mx_train_state_begin(s);
    return true;
}

/* The values are the same, but further training takes other steps than peft's would. */
static bool tell_dropout(const MxConfig *c, MxError *err) {
    double theirs;
    if (!mx_peft_is_dir(c->lora_restore_path)) return true;
    if (!mx_peft_dropout(c->lora_restore_path, &theirs, err)) return false;
    if (theirs != c->lora_dropout)
        mx_log("the adapters in %s were trained with lora_dropout %.9g; this run's "
               "lora.lora_dropout is %.9g",
               c->lora_restore_path, theirs, c->lora_dropout);
    return true;
}

static bool restore_adapters(MxTrainState *s, MxError *err) {
    const MxConfig *c = mx_train_state_config(s);
    if (!read_with(s, mx_source_load_adapters, c->lora_restore_path, err)) return false;
    if (!tell_dropout(c, err)) return false;
    mx_log("LoRA restore complete from \"%s\".", c->lora_restore_path);
    return true;
}

/* Linen checkpoints hold no reference model: it is made again, as when the run began. */
static bool remake_reference(MxTrainState *s, MxError *err) {
    if (mx_train_state_config(s)->load_full_state_path)
        return train_restore_full(s, mx_train_state_config(s)->load_full_state_path, err);
    if (!start_anew(s, err)) return false;
    mx_train_state_begin(s);
    return true;
}

/* ---- the teacher of distillation, which no checkpoint of the run holds */

static bool read_teacher(MxTrainState *s, const MxTeam *team, const char *from, MxError *err) {
    const Wanted wanted = {mx_train_state_config(s)->teacher, mx_train_teacher(s),
                           mx_train_teacher_tree(s)};
    mx_log("restoring the teacher's parameters from %s", from);
    return read_model(&wanted, team, from, err) || mx_context(err, "the teacher");
}

/* fingerprint: of its weights, 0 if it is not run. */
static bool load_teacher(MxTrainState *s, int64_t *fingerprint, MxError *err) {
    *fingerprint = 0;
    if (!mx_train_teacher_tree(s)) return true;
    const char *from = mx_train_state_config(s)->teacher->load_parameters_path;
    if (!read_with(s, read_teacher, from, err)) return false;
    *fingerprint = mx_train_fingerprint_of(s, mx_train_teacher_tree(s));
    *mx_train_teacher_fingerprint(s) = *fingerprint;
    return true;
}

static bool check_teacher(const MxTrainState *s, const char *dir, int64_t fingerprint,
                          MxError *err) {
    if (!fingerprint || *mx_train_teacher_fingerprint(s) == fingerprint) return true;
    mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = dir},
            "its student learned from another teacher: fingerprint %016llx, here it is %016llx",
            (unsigned long long)*mx_train_teacher_fingerprint(s), (unsigned long long)fingerprint);
    mx_note(err, "hint: give teacher_overrides.load_parameters_path its weights, or begin another "
                 "run (run_name) from these: load_parameters_path");
    return false;
}

static bool restore_run(MxTrainState *s, const char *dir, MxError *err) {
    const MxConfig *c = mx_train_state_config(s);
    bool is_whole = dir && !mx_model_lora(mx_train_state_model(s)), has_reference = true;
    if (is_whole && !mx_ckpt_has_reference(dir, mx_train_state_tree(s), &has_reference, err))
        return false;
    if (!has_reference && !remake_reference(s, err)) return false;
    if (!is_whole && !start_anew(s, err)) return false;
    if (dir) return read_with(s, read_own, dir, err);
    if (!train_inherit(s, err)) return false;
    if (c->lora_restore_path && !restore_adapters(s, err)) return false;
    mx_train_state_begin(s);
    return true;
}

bool train_restore(MxTrainState *s, const char *dir, MxError *err) {
    int64_t fingerprint;
    if (!load_teacher(s, &fingerprint, err) || !restore_run(s, dir, err)) return false;
    const char *full = mx_train_state_config(s)->load_full_state_path;
    return check_teacher(s, dir ? dir : full ? full : "", fingerprint, err);
}
