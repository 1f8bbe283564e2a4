/* test_disk.c — moments in a file (optimizer_memory_disk), from outside: the same bits as in memory
 * for every kind of moments, when a run goes on too; nothing is left in the folder; what cannot be
 * had there is told, and costs nothing that was saved. */
#include "process.h"
#include "train_test.h"

#include <mx/program.h>

#include <check.h>
#include <signal.h>
#include <sys/resource.h>

static MxArena arena = {.name = "test"};
static MxError err;

static void tear_down(void) {
    mx_error_release(&err);
    mx_arena_release(&arena);
}

/* The end of what was printed. */
static const char *end_of_log(const char *dir) {
    enum { SHOWN = 1000 };
    const char *log = process_file(&arena, dir, "log", NULL);
    size_t n = strlen(log);
    return n > SHOWN ? log + n - SHOWN : log;
}

static void run_ends(const char *dir, const char *more, int want) {
    const char *words = process_tiny(
        &arena, dir,
        mx_arena_printf(&arena, "async_checkpointing=false eval_interval=-1 metrics_file= %s",
                        more));
    int code = process_run(&arena, dir, words);
    ck_assert_msg(code == want, "exit %d instead of %d: %s", code, want, end_of_log(dir));
}

static void has_said(const char *dir, const char *text) {
    ck_assert_msg(strstr(end_of_log(dir), text) != NULL, "\"%s\" is not in: %s", text,
                  end_of_log(dir));
}

static void same_state(const char *dir, const char *a, const char *b, int step) {
    const char *path = "%s/checkpoints/%d/state.h5";
    size_t n_a, n_b;
    const char *x = process_file(&arena, dir, mx_arena_printf(&arena, path, a, step), &n_a);
    const char *y = process_file(&arena, dir, mx_arena_printf(&arena, path, b, step), &n_b);
    ck_assert_msg(n_a == n_b && !memcmp(x, y, n_a), "%s and %s differ", a, b);
}

static const char *make_folder(const char *dir) {
    const char *folder = mx_path_join(&arena, dir, "disk");
    ck_assert_msg(mx_dir_make(folder, &err), "%s", err.text.data);
    return folder;
}

static void is_empty(const char *folder) {
    char **names;
    int n;
    ck_assert_msg(mx_dir_list(&arena, folder, &names, &n, &err), "%s", err.text.data);
    ck_assert_msg(n == 0, "\"%s\" is left in the folder", names[0]);
}

/* ---- the same bits */

static const char *const kinds[] = {
    "opt_type=adamw mu_dtype=bfloat16",
    "opt_type=adamw optimizer_state_dtype=int8",
    "opt_type=muon gradient_accumulation_steps=2",
    "opt_type=adafactor adafactor_min_dim_size_to_factor=16",
    "opt_type=schedule_free_adamw skip_step_on_spikes=true skip_step_interval=4",
    "lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8",
    "enable_diloco=true diloco_sync_period=3",
};

START_TEST(moments_have_the_same_bits_on_disk) {
    const char *dir = process_dir(&arena, "disk"), *folder = make_folder(dir);
    const char *there = mx_arena_printf(&arena, "%s optimizer_memory_disk=%s", kinds[_i], folder);
    run_ends(dir, mx_arena_printf(&arena, "%s run_name=memory steps=9", kinds[_i]), 0);
    run_ends(dir, mx_arena_printf(&arena, "%s run_name=on_disk steps=4", there), 0);
    run_ends(dir, mx_arena_printf(&arena, "%s run_name=on_disk steps=9", there), 0);
    same_state(dir, "memory", "on_disk", 8);
    is_empty(folder);
}
END_TEST

/* ---- what takes memory */

static MxTrainBytes bytes_of(const char *folder) {
    const char *files[] = {"configs/base.yml"};
    const char *set[] = {"dataset_type=synthetic", "async_checkpointing=false", "base_emb_dim=64",
                         mx_arena_printf(&arena, "optimizer_memory_disk=%s", folder)};
    char *none[] = {NULL};
    const MxConfigRequest request = {.files = files,
                                     .n_files = 1,
                                     .overrides = set,
                                     .n_overrides = MX_COUNT(set),
                                     .environ = none};
    MxConfig *config;
    MxTrainState *state;
    ck_assert_msg(mx_config_load(&arena, &request, &config, &err) &&
                      mx_train_state_open(&arena, config, &state, &err),
                  "%s", err.text.data);
    return mx_train_state_bytes(state);
}

START_TEST(moments_on_disk_take_no_memory) {
    const char *dir = process_dir(&arena, "disk");
    MxTrainBytes memory = bytes_of(""), disk = bytes_of(make_folder(dir));
    ck_assert_uint_gt(memory.moments, 0);
    ck_assert_uint_eq(memory.disk, 0);
    ck_assert_uint_eq(disk.disk, memory.moments);
    ck_assert_uint_eq(disk.moments, 0);
    ck_assert_uint_eq(disk.total + disk.disk, memory.total);
    ck_assert_uint_eq(disk.buffers, memory.buffers);
}
END_TEST

START_TEST(a_plan_tells_what_is_on_disk) {
    const char *dir = process_dir(&arena, "disk"), *folder = make_folder(dir);
    run_ends(dir, mx_arena_printf(&arena, "--plan optimizer_memory_disk=%s", folder), 0);
    const char *log = process_file(&arena, dir, "log", NULL);
    ck_assert_ptr_nonnull(strstr(log, "\n  optimizer           0.000  exact\n"));
    ck_assert_ptr_nonnull(
        strstr(log, mx_arena_printf(&arena, "moments, in a file in \"%s\", not in memory: exact",
                                    folder)));
    is_empty(folder);
}
END_TEST

/* ---- what cannot be had */

START_TEST(a_folder_that_is_missing_is_told) {
    const char *dir = process_dir(&arena, "disk");
    run_ends(dir, mx_arena_printf(&arena, "steps=2 optimizer_memory_disk=%s/none", dir),
             MX_EXIT_CANNOT_CREATE);
    has_said(dir,
             mx_arena_printf(&arena, "could not create a file in \"%s/none\": No such file", dir));
}
END_TEST

/* Files may have 100 kB from then on, as with a disk that is full. The state that was saved stays,
 * and the run goes on in memory. */
START_TEST(a_full_disk_loses_nothing) {
    enum { MOST_BYTES = 100000 };
    const char *dir = process_dir(&arena, "disk"), *folder = make_folder(dir);
    struct rlimit before, few;
    run_ends(dir, "run_name=straight steps=9", 0);
    run_ends(dir, "run_name=x steps=4", 0);
    ck_assert(!getrlimit(RLIMIT_FSIZE, &before));
    few = (struct rlimit){.rlim_cur = MOST_BYTES, .rlim_max = before.rlim_max};
    ck_assert(!setrlimit(RLIMIT_FSIZE, &few));
    run_ends(dir, mx_arena_printf(&arena, "run_name=x steps=9 optimizer_memory_disk=%s", folder),
             MX_EXIT_IO);
    ck_assert(!setrlimit(RLIMIT_FSIZE, &before));
    has_said(dir, mx_arena_printf(&arena, "KiB of room in \"%s\": File too large", folder));
    is_empty(folder);
    run_ends(dir, "run_name=x steps=9", 0);
    same_state(dir, "straight", "x", 8);
}
END_TEST

Suite *disk_suite(void) {
    Suite *suite = suite_create("disk");
    TCase *tcase = tcase_create("moments on disk");
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_test(tcase, moments_on_disk_take_no_memory);
    tcase_add_test(tcase, a_plan_tells_what_is_on_disk);
    tcase_add_test(tcase, a_folder_that_is_missing_is_told);
    tcase_add_test(tcase, a_full_disk_loses_nothing);
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("kinds");
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_loop_test(tcase, moments_have_the_same_bits_on_disk, 0, MX_COUNT(kinds));
    tcase_set_timeout(tcase, 120);
    tcase_set_long(tcase);
    suite_add_tcase(suite, tcase);
    return suite;
}
