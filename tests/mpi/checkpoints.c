/* checkpoints.c — checkpoints that several ranks write: any mesh takes what any other has saved, to
 * the bit; files that are missing, swapped or damaged; a rank that cannot write. */
#include "common/saving.h"
#include "small.h"

#include <train/checkpoint.h>
#include <train/internal.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static MxArena arena = {.name = "test"};
static MxError err;
static char folder[64]; /* that all ranks share */

static bool is_first(void) {
    return mx_comm_rank(comm) == 0;
}

/* Waits for all ranks. */
static void meet(void) {
    mx_comm_max(comm, 0);
}

static void set_up(void) {
    mx_log_silence(mx_comm_rank(comm));
    snprintf(folder, sizeof folder, "/tmp/mx_mpi_XXXXXX");
    if (is_first()) ck_assert_ptr_nonnull(mkdtemp(folder));
    mx_comm_broadcast(comm, folder, sizeof folder);
}

static void tear_down(void) {
    mx_arena_release(&arena);
    meet();
    if (is_first()) ck_assert(mx_dir_remove(folder, &err));
    mx_error_release(&err);
}

static void ck_ok(bool ok) {
    ck_assert_msg(ok, "%s", err.text.data);
}

/* Forms of files: stacked or not, at different dims, both kinds of names, arrays that are several
 * in one. */
static const char *const forms[][3] = {
    {"scan_layers=true", "param_scan_axis=1", "pure_nnx=true"},
    {"scan_layers=false", "param_scan_axis=1", "pure_nnx=true"},
    {"scan_layers=true", "param_scan_axis=0", "pure_nnx=false"},
    {"scan_layers=true", "fused_qkv=true", "fused_mlp=true"},
    {"scan_layers=false", "weight_dtype=bfloat16", "pure_nnx=true"},
};

/* mesh: NULL = one rank. more: another key, or NULL. */
static MxConfig *config_of(const RankMesh *mesh, const char *const form[3], bool in_background,
                           const char *more) {
    Variant v = {.set = {mx_arena_printf(&arena, "base_output_directory=%s", folder), "run_name=x",
                         in_background ? "async_checkpointing=true" : "async_checkpointing=false",
                         form[0], form[1], form[2], more}};
    return small_config(&arena, &v, mesh);
}

/* A run as far as its checkpoints go. */
typedef struct Run {
    MxArena arena;
    MxTrainState *state;
    Checkpoints *checkpoints;
} Run;

static bool run_open(Run *run, const MxConfig *config) {
    *run = (Run){.arena = {.name = "run"}};
    return checkpoints_open(&run->arena, config, comm, CHECKPOINTS_TRAIN, &run->checkpoints,
                            &err) &&
           mx_train_state_open_on(&run->arena, config, comm, &run->state, &err) &&
           checkpoints_restore(run->checkpoints, run->state, &err);
}

static void train_a_step(MxTrainState *state) {
    MxBatch batch = small_batch(&arena, NULL, 0);
    mx_train_loss_and_grad(state, &batch);
    mx_train_update(state);
}

static const char *step_folder(int step) {
    return mx_arena_printf(&arena, "%s/x/checkpoints/%d", folder, step);
}

/* Every part that this rank has is what a state of one rank has there. */
static void ck_part_of(MxTrainState *divided, MxTrainState *whole, const char *what) {
    MxTree *parts = mx_train_state_tree(divided), *all = mx_train_state_tree(whole);
    ck_assert_int_eq(parts->n, all->n);
    for (int i = 0; i < parts->n; i++) {
        const MxLeaf *part = &parts->leaves[i], *leaf = &all->leaves[i];
        MxBox box = part->division->box[part->division->rank], from = mx_box_of(leaf->shape);
        size_t each = mx_dtype_bytes(leaf->dtype), bytes = (size_t)mx_box_count(&box) * each;
        char *want = mx_arena_alloc(&arena, bytes);
        mx_box_copy(&box, &from, mx_leaf_values(&arena, leaf), &box, want, each);
        ck_assert_msg(!memcmp(mx_leaf_values(&arena, part), want, bytes), "%s: %s has other bits",
                      what, part->path);
    }
}

static MxTrainState *open_whole(const char *const form[3], const char *dir) {
    MxTrainState *whole;
    ck_ok(mx_train_state_open(&arena, config_of(NULL, form, false, NULL), &whole, &err));
    ck_ok(train_restore(whole, dir, &err));
    return whole;
}

/* ---- meshes */

/* A mesh of as many ranks as there are, round and round. */
static const RankMesh *mesh_number(int i) {
    int n;
    const RankMesh *meshes = rank_meshes(&n);
    return &meshes[i % n];
}

START_TEST(any_mesh_takes_any_state) {
    const char *const *form = forms[_i % MX_COUNT(forms)];
    const char *cuts_moments = _i % 2 ? "shard_optimizer_over_data=true" : NULL;
    Run from, to;
    ck_ok(run_open(&from, config_of(mesh_number(_i), form, _i % 2, cuts_moments)));
    train_a_step(from.state);
    ck_ok(checkpoints_save(from.checkpoints, 7, &err));
    train_a_step(from.state); /* what is written in the background is what was there */
    ck_ok(checkpoints_finish(from.checkpoints, &err));
    mx_arena_release(&from.arena);
    meet();
    ck_ok(run_open(&to, config_of(mesh_number(_i + 1), form, true, NULL)));
    ck_assert_int_eq(checkpoints_start(to.checkpoints), 8);
    ck_assert_int_eq(mx_train_state_step(to.state), 1);
    ck_part_of(to.state, open_whole(form, step_folder(7)), mx_arena_printf(&arena, "mesh %d", _i));
    mx_arena_release(&to.arena);
}
END_TEST

/* One process saves, several resume; and the other way round the whole is what they have. */
START_TEST(one_rank_and_several) {
    Run run;
    MxTrainState *one;
    ck_ok(mx_train_state_open(&arena, config_of(NULL, forms[_i], false, NULL), &one, &err));
    mx_train_state_init(one);
    train_a_step(one);
    const MxConfig *config = config_of(NULL, forms[_i], false, NULL);
    MxSaving how = {.form = checkpoints_form(config), .config = mx_config_text(&arena, config)};
    if (is_first()) ck_ok(save_whole(step_folder(3), &how, mx_train_state_tree(one), &err));
    meet();
    ck_ok(run_open(&run, config_of(mesh_number(0), forms[_i], false, NULL)));
    ck_part_of(run.state, one, "resumed");
    ck_ok(checkpoints_save(run.checkpoints, 4, &err));
    meet();
    ck_part_of(run.state, open_whole(forms[_i], step_folder(4)), "saved");
    mx_arena_release(&run.arena);
}
END_TEST

/* ---- gradients in few bits */

/* The bits of all leaves that this rank has. */
static uint64_t hash_of(MxTrainState *s, const char *prefix) {
    MxTree *tree = mx_train_state_tree(s);
    uint64_t hash = 0;
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        if (!mx_text_has_prefix(leaf->path, prefix)) continue;
        uint64_t own = mx_hash64(mx_leaf_values(&arena, leaf), mx_leaf_bytes(leaf));
        hash = mx_tree_fingerprint(hash, leaf->path, own);
    }
    return hash;
}

/* What ranks have not sent yet is a part of the state: the step after a checkpoint is the same with
 * the run that goes on and with one that resumes. Meshes whose sums are over as many ranks take it
 * from each other; others start with nothing. */
START_TEST(what_ranks_have_not_sent_is_saved) {
    static const char feedback[] = "mxtrain/feedback/";
    const char *few = "gradient_exchange_dtype=int8";
    Run run;
    ck_ok(run_open(&run, config_of(mesh_number(_i), forms[0], true, few)));
    train_a_step(run.state);
    train_a_step(run.state);
    ck_ok(checkpoints_save(run.checkpoints, 7, &err));
    ck_ok(checkpoints_finish(run.checkpoints, &err));
    uint64_t saved = hash_of(run.state, feedback);
    train_a_step(run.state);
    uint64_t next = hash_of(run.state, "");
    mx_arena_release(&run.arena);
    meet();
    ck_ok(run_open(&run, config_of(mesh_number(_i), forms[0], true, few)));
    ck_assert_uint_eq(hash_of(run.state, feedback), saved);
    train_a_step(run.state);
    ck_assert_uint_eq(hash_of(run.state, ""), next);
    mx_arena_release(&run.arena);
    meet();
    ck_ok(run_open(&run, config_of(mesh_number(_i + 1), forms[0], true, few)));
    ck_assert_int_eq(mx_train_state_step(run.state), 2);
    mx_arena_release(&run.arena);
    meet();
    /* A run without it leaves nothing of it. */
    ck_ok(run_open(&run, config_of(mesh_number(_i), forms[0], true, NULL)));
    ck_ok(checkpoints_save(run.checkpoints, 9, &err));
    ck_ok(checkpoints_finish(run.checkpoints, &err));
    mx_arena_release(&run.arena);
    meet();
    ck_ok(run_open(&run, config_of(mesh_number(_i), forms[0], true, few)));
    ck_assert_int_eq(checkpoints_start(run.checkpoints), 10);
    mx_arena_release(&run.arena);
}
END_TEST

/* ---- damage */

/* A checkpoint of all ranks; its files of ranks. */
static char **save_one(void) {
    Run run;
    int n;
    ck_ok(run_open(&run, config_of(mesh_number(0), forms[0], true, NULL)));
    ck_ok(checkpoints_save(run.checkpoints, 0, &err));
    ck_ok(checkpoints_finish(run.checkpoints, &err));
    mx_arena_release(&run.arena);
    meet();
    char **names;
    ck_ok(mx_dir_list(&arena, step_folder(0), &names, &n, &err));
    ck_assert_int_eq(n, mx_comm_size(comm) + 2); /* MANIFEST.json, the ranks', state.h5 */
    for (int i = 0; i < n; i++) names[i] = mx_path_join(&arena, step_folder(0), names[i]);
    meet();
    return names + 1;
}

static void remove_file(char **files) {
    ck_assert_int_eq(unlink(files[1]), 0);
}
static void swap_files(char **files) {
    const char *away = mx_arena_printf(&arena, "%s/away", folder);
    ck_assert_int_eq(rename(files[0], away), 0);
    ck_assert_int_eq(rename(files[1], files[0]), 0);
    ck_assert_int_eq(rename(away, files[1]), 0);
}
static void flip_bit(char **files) {
    MxBytes bytes;
    ck_ok(mx_file_read(&arena, files[1], 1 << 24, &bytes, &err));
    bytes.data[bytes.size / 2] ^= 1;
    ck_ok(mx_file_write(files[1], bytes.data, bytes.size, &err));
}
static void cut_short(char **files) {
    ck_assert_int_eq(truncate(files[1], 1000), 0);
}

static void (*const damages[])(char **files) = {remove_file, swap_files, flip_bit, cut_short};

START_TEST(damage_is_refused_with_the_name) {
    char **files = save_one();
    if (is_first()) damages[_i](files);
    meet();
    Run run;
    ck_assert(!run_open(&run, config_of(mesh_number(0), forms[0], true, NULL)));
    ck_assert_int_eq(err.exit, MX_EXIT_BAD_INPUT);
    mx_error_release(&err);
    /* The reason is in a warning; here it is asked for again. */
    ck_assert(!mx_store_verify(&arena, step_folder(0), train_team(&arena, comm), NULL, &err));
    ck_assert_int_eq(err.exit, MX_EXIT_BAD_INPUT);
    if (is_first()) ck_assert_msg(strstr(err.text.data, files[1]) != NULL, "%s", err.text.data);
    mx_error_release(&err);
    mx_arena_release(&run.arena);
}
END_TEST

/* ---- a rank that cannot write */

/* Folders where the last rank's file is to be: its name tells the step and run by a hash. */
static void take_names(const char *temp) {
    uint64_t hash = mx_hash64("x/5", 3);
    int n = mx_comm_size(comm);
    const char *name = mx_arena_printf(&arena, "%s/state.%016llx.%d-of-%d.h5", temp,
                                       (unsigned long long)hash, n - 1, n);
    ck_assert_int_eq(mkdir(name, 0777), 0);
}

/* The last rank's file is taken by a folder, so that it fails where the others do not. */
START_TEST(a_rank_that_fails_fails_the_save) {
    char temp[4096] = "";
    MxArena brief = {.name = "brief"};
    MxCkptSave *save = NULL;
    Run run;
    char **files = save_one();
    const MxConfig *config = config_of(mesh_number(0), forms[0], true, NULL);
    MxSaving how = {.form = checkpoints_form(config), .config = "", .run = "x"};
    ck_ok(run_open(&run, config));
    MxTree *tree = mx_train_state_tree(run.state);
    if (is_first()) {
        ck_ok(mx_ckpt_save_begin(&brief, step_folder(5), NULL, &how, tree, &save, &err));
        snprintf(temp, sizeof temp, "%s", mx_ckpt_save_temp(save));
    }
    mx_comm_broadcast(comm, temp, sizeof temp);
    if (!save) ck_ok(mx_ckpt_save_begin(&brief, step_folder(5), temp, &how, tree, &save, &err));
    bool is_last = mx_comm_rank(comm) == mx_comm_size(comm) - 1;
    if (is_last) take_names(temp);
    bool ok = mx_ckpt_save_write(save, mx_ckpt_share(&brief, how.form, tree), &err);
    ck_assert(ok == !is_last);
    ck_assert(!train_agree(comm, ok, &err));
    ck_assert_int_eq(err.exit, MX_EXIT_CANNOT_CREATE);
    const char *who = mx_arena_printf(&arena, "rank %d: could not save", mx_comm_size(comm) - 1);
    if (is_first()) ck_assert_msg(strstr(err.text.data, who) != NULL, "%s", err.text.data);
    mx_error_release(&err);
    mx_arena_release(&brief);
    meet();
    ck_assert(!mx_dir_exists(temp) && !mx_dir_exists(step_folder(5)));
    ck_ok(mx_store_verify(&arena, mx_path_dir(&arena, files[0]), train_team(&arena, comm), NULL,
                          &err));
    mx_arena_release(&run.arena);
}
END_TEST

/* ---- a rank whose disk is another */

START_TEST(ranks_share_a_folder) {
    Run run;
    int last = mx_comm_size(comm) - 1;
    if (mx_comm_rank(comm) == last)
        snprintf(folder + strlen(folder), sizeof folder - strlen(folder), "/elsewhere");
    ck_assert(!run_open(&run, config_of(mesh_number(0), forms[0], true, NULL)));
    ck_assert_int_eq(err.exit, MX_EXIT_IO);
    const char *why = mx_arena_printf(
        &arena, "rank %d: does not see what rank 0 has written to \"%s", last, folder);
    if (is_first()) ck_assert_msg(strstr(err.text.data, why) != NULL, "%s", err.text.data);
    mx_error_release(&err);
    mx_arena_release(&run.arena);
    char **names;
    int n;
    if (is_first())
        ck_ok(mx_dir_list(&arena, mx_path_dir(&arena, step_folder(0)), &names, &n, &err));
    ck_assert(!is_first() || n == 0); /* nothing is left of the search */
}
END_TEST

Suite *checkpoints_suite(void) {
    int n;
    rank_meshes(&n);
    Suite *suite = suite_create("mpi/checkpoints");
    TCase *tcase = tcase_create("checkpoints");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, any_mesh_takes_any_state, 0, n);
    tcase_add_loop_test(tcase, one_rank_and_several, 0, MX_COUNT(forms));
    tcase_add_loop_test(tcase, what_ranks_have_not_sent_is_saved, 0, n);
    tcase_add_loop_test(tcase, damage_is_refused_with_the_name, 0, MX_COUNT(damages));
    tcase_add_test(tcase, a_rank_that_fails_fails_the_save);
    tcase_add_test(tcase, ranks_share_a_folder);
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    return suite;
}
