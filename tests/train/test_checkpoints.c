/* test_checkpoints.c — the checkpoints of a run, from outside: who may have its folder, what is the
 * same whether it was written in the background or not, what is kept, what may change when it goes
 * on, and starting from another run's whole state. What a crash leaves is tested in tests/fault. */
#include "process.h"
#include "train_test.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static const char tiny[] =
    "--config configs/base.yml base_emb_dim=32 base_num_decoder_layers=2 base_num_query_heads=2 "
    "base_num_kv_heads=2 head_dim=16 base_mlp_dim=64 max_target_length=32 per_device_batch_size=4 "
    "eval_interval=-1 eval_steps=2 checkpoint_period=5 learning_rate_schedule_steps=40 "
    "log_config=false";

static MxArena arena = {.name = "test"};
static MxError err;

static void tear_down(void) {
    mx_error_release(&err);
    mx_arena_release(&arena);
}

static const char *words(const char *dir, const char *run, const char *more) {
    return mx_arena_printf(&arena, "%s base_output_directory=%s run_name=%s %s", tiny, dir, run,
                           more);
}

static const char *log_of(const char *dir) {
    return process_file(&arena, dir, "log", NULL);
}

/* The end of it, for messages. */
static const char *end_of_log(const char *dir) {
    enum { SHOWN = 1000 };
    const char *log = log_of(dir);
    size_t n = strlen(log);
    return n > SHOWN ? log + n - SHOWN : log;
}

/* What is printed goes to the end of dir/log. */
static void run_ends(const char *dir, const char *run, const char *more, int want) {
    int code = process_run(&arena, dir, words(dir, run, more));
    ck_assert_msg(code == want, "exit %d instead of %d: %s", code, want, end_of_log(dir));
}

static void has_said(const char *dir, const char *text) {
    ck_assert_msg(strstr(log_of(dir), text) != NULL, "\"%s\" is not in: %s", text, end_of_log(dir));
}

static void same_state(const char *dir, const char *a, const char *b) {
    size_t n_a, n_b;
    const char *x = process_file(&arena, dir, mx_arena_printf(&arena, "%s/state.h5", a), &n_a);
    const char *y = process_file(&arena, dir, mx_arena_printf(&arena, "%s/state.h5", b), &n_b);
    ck_assert_msg(n_a == n_b && !memcmp(x, y, n_a), "%s and %s differ", a, b);
}

/* The names in a run's checkpoint folder, with blanks between them. */
static const char *kept(const char *dir, const char *run) {
    char **names;
    int n;
    MxText text;
    mx_text_init(&text, &arena);
    const char *path = mx_arena_printf(&arena, "%s/%s/checkpoints", dir, run);
    ck_assert(mx_dir_list(&arena, path, &names, &n, &err));
    for (int i = 0; i < n; i++) mx_text_add(&text, "%s%s", i ? " " : "", names[i]);
    return text.data;
}

/* ---- the lock */

START_TEST(one_run_at_a_time_has_the_folder) {
    enum { TRIES = 60000, PAUSE_US = 10000 };
    const char *dir = process_dir(&arena, "lock");
    pid_t pid = process_start(&arena, dir, words(dir, "x", "steps=1000000"));
    int i = 0;
    while (i++ < TRIES && !(mx_file_exists(mx_path_join(&arena, dir, "log")) &&
                            strstr(log_of(dir), "completed step: 1,")))
        usleep(PAUSE_US);
    run_ends(dir, "x", "steps=10", MX_EXIT_LOCKED);
    has_said(dir, mx_arena_printf(&arena, "/x\" is in use by process %ld on ", (long)pid));
    run_ends(dir, "y", "steps=2", 0);
    run_ends(dir, "x", "steps=1 enable_checkpointing=false", MX_EXIT_LOCKED); /* its log is there */
    ck_assert(!kill(pid, SIGKILL));
    process_wait(pid);
    run_ends(dir, "x", "steps=7", 0); /* a killed run holds nothing */
}
END_TEST

/* ---- in the background */

START_TEST(the_background_writes_the_same_bytes) {
    static const char *const steps[] = {"0", "5", "10", "11"};
    const char *dir = process_dir(&arena, "async");
    run_ends(dir, "async", "steps=12", 0);
    has_said(dir, "Started an asynchronous checkpoint save for step 5.");
    has_said(dir, "Saved a checkpoint at step 11.");
    run_ends(dir, "sync", "steps=12 async_checkpointing=false", 0);
    for (int i = 0; i < MX_COUNT(steps); i++)
        same_state(dir, mx_arena_printf(&arena, "async/checkpoints/%s", steps[i]),
                   mx_arena_printf(&arena, "sync/checkpoints/%s", steps[i]));
    ck_assert_str_eq(kept(dir, "async"), "0 10 11 5");
}
END_TEST

/* After each step that ends while no save is in progress: without a background after each. With
 * one, which steps these are is a matter of time. */
START_TEST(saves_follow_one_another) {
    const char *continuous = "steps=8 checkpoint_period=1000 enable_continuous_checkpointing=true";
    const char *dir = process_dir(&arena, "continuous");
    run_ends(dir, "sync", mx_arena_printf(&arena, "%s async_checkpointing=false", continuous), 0);
    ck_assert_str_eq(kept(dir, "sync"), "0 1 2 3 4 5 6 7");
    run_ends(dir, "async", continuous, 0);
    same_state(dir, "async/checkpoints/7", "sync/checkpoints/7");
}
END_TEST

/* ---- what is kept */

static const struct {
    const char *more, *kept;
} rotations[] = {
    {"steps=23 max_num_checkpoints_to_keep=2", "20 22"},
    {"steps=23 max_num_checkpoints_to_keep=2 async_checkpointing=false", "20 22"},
    {"steps=23 max_num_checkpoints_to_keep=1", "22"},
    {"steps=23 max_num_checkpoints_to_keep=9", "0 10 15 20 22 5"},
    /* a learning rate of 0 from step 0 on: every evaluation is as good, the first stays */
    {"steps=23 max_num_checkpoints_to_keep=2 keep_best_checkpoint=true eval_interval=10 "
     "learning_rate=0",
     "0 20 22"},
    /* the loss falls: the last one is the best, as the last step is evaluated */
    {"steps=23 max_num_checkpoints_to_keep=2 keep_best_checkpoint=true eval_interval=10", "20 22"},
    {"steps=23 max_num_checkpoints_to_keep=1 keep_best_checkpoint=true eval_interval=10", "22"},
};

START_TEST(old_ones_make_room) {
    const char *dir = process_dir(&arena, "rotate");
    run_ends(dir, "x", rotations[_i].more, 0);
    ck_assert_msg(!strcmp(kept(dir, "x"), rotations[_i].kept), "%s leaves %s, wanted %s",
                  rotations[_i].more, kept(dir, "x"), rotations[_i].kept);
}
END_TEST

/* Damaged ones with larger numbers once counted as the newest, and good ones went. */
START_TEST(damaged_ones_push_no_good_one_out) {
    const char *dir = process_dir(&arena, "rotate_damaged");
    run_ends(dir, "x", "steps=22", 0);
    static const char *const damaged[] = {"15", "20", "21"};
    for (int i = 0; i < MX_COUNT(damaged); i++) {
        const char *file = mx_arena_printf(&arena, "%s/x/checkpoints/%s/state.h5", dir, damaged[i]);
        ck_assert(mx_file_write(file, "x", 1, &err));
    }
    run_ends(dir, "x", "steps=14 max_num_checkpoints_to_keep=1", 0);
    has_said(dir, "restoring from this run's directory step 10");
    ck_assert_str_eq(kept(dir, "x"), "13 15 20 21");
    run_ends(dir, "x", "steps=15", 0);
    has_said(dir, "restoring from this run's directory step 13");
}
END_TEST

/* ---- going on with another config */

START_TEST(frozen_keys_stop_a_resume) {
    const char *dir = process_dir(&arena, "frozen");
    run_ends(dir, "x", "steps=6", 0);
    run_ends(dir, "x", "steps=8 base_mlp_dim=96 opt_type=sgd learning_rate=0.5", MX_EXIT_CONFIG);
    has_said(dir, "<command line>: base_mlp_dim: 96, but \"");
    has_said(dir, "x/checkpoints/5\" was made with 64; it cannot resume with another value");
    has_said(dir, "opt_type: \"sgd\", but");
    ck_assert(!strstr(log_of(dir), "restoring from"));
    ck_assert_str_eq(kept(dir, "x"), "0 5");
}
END_TEST

START_TEST(the_schedule_may_change_with_a_warning) {
    const char *dir = process_dir(&arena, "schedule");
    run_ends(dir, "x", "steps=6 num_threads=2", 0);
    run_ends(dir, "x", "steps=8 learning_rate=0.5 num_threads=1 scan_layers=false", 0);
    has_said(dir, "warning: learning_rate: 0.001 -> 0.5 since \"");
    has_said(dir, "checkpoints/5\" was made with threads 2, here 1: results differ in their last");
    ck_assert(!strstr(log_of(dir), "num_threads:") && !strstr(log_of(dir), "scan_layers:"));
}
END_TEST

/* ---- another run's whole state */

static const struct {
    const char *from, *more;
} sources[] = {
    {"x", ""},
    {"x/checkpoints", ""},
    {"x/checkpoints/16", "pure_nnx=false scan_layers=false"},
    {"x/checkpoints/16/state.h5", "opt_type=sgd"},
    {"x", "lora.enable_lora=true lora.lora_rank=2 lora.lora_alpha=4"},
};

START_TEST(a_whole_state_goes_on_elsewhere) {
    const char *dir = process_dir(&arena, "full"), *more = sources[_i].more;
    run_ends(dir, "straight", mx_arena_printf(&arena, "steps=30 %s", more), 0);
    run_ends(dir, "x", mx_arena_printf(&arena, "steps=17 %s", more), 0);
    run_ends(dir, "y",
             mx_arena_printf(&arena, "steps=30 load_full_state_path=%s/%s %s", dir,
                             sources[_i].from, more),
             0);
    has_said(dir, "restoring the full state from ");
    same_state(dir, "straight/checkpoints/29", "y/checkpoints/29");
    run_ends(dir, "y", /* its own come first */
             mx_arena_printf(&arena, "steps=33 load_full_state_path=/no/such/place %s", more), 0);
    has_said(dir, "restoring from this run's directory step 29");
}
END_TEST

START_TEST(a_whole_state_that_cannot_be_is_told) {
    const char *dir = process_dir(&arena, "full_wrong");
    run_ends(dir, "x", "steps=17", 0);
    const char *from = mx_arena_printf(&arena, "load_full_state_path=%s/x", dir);
    run_ends(dir, "y", mx_arena_printf(&arena, "%s steps=30 base_mlp_dim=96", from),
             MX_EXIT_CONFIG);
    run_ends(dir, "y", mx_arena_printf(&arena, "%s steps=17", from), 0);
    has_said(dir, "nothing to do: step 17 of 17; raise steps=");
    run_ends(dir, "y", "load_full_state_path=/no/such/place", MX_EXIT_BAD_INPUT);
    has_said(dir, "load_full_state_path: ");
    const char *file = mx_arena_printf(&arena, "%s/alone.h5", dir);
    size_t size; /* a file alone brings no config; its arrays tell */
    const char *bytes = process_file(&arena, dir, "x/checkpoints/16/state.h5", &size);
    ck_assert(mx_file_write(file, bytes, size, &err));
    run_ends(dir, "y", mx_arena_printf(&arena, "load_full_state_path=%s opt_type=sgd", file),
             MX_EXIT_BAD_INPUT);
    has_said(dir, "is not in the model");
}
END_TEST

Suite *checkpoints_suite(void) {
    enum { SECONDS = 120 };
    Suite *suite = suite_create("checkpoints");
    TCase *tcase = tcase_create("run");
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_test(tcase, one_run_at_a_time_has_the_folder);
    tcase_add_test(tcase, the_background_writes_the_same_bytes);
    tcase_add_test(tcase, saves_follow_one_another);
    tcase_add_loop_test(tcase, old_ones_make_room, 0, MX_COUNT(rotations));
    tcase_add_test(tcase, damaged_ones_push_no_good_one_out);
    tcase_add_test(tcase, frozen_keys_stop_a_resume);
    tcase_add_test(tcase, the_schedule_may_change_with_a_warning);
    tcase_add_loop_test(tcase, a_whole_state_goes_on_elsewhere, 0, MX_COUNT(sources));
    tcase_add_test(tcase, a_whole_state_that_cannot_be_is_told);
    suite_add_tcase(suite, tcase);
    return suite;
}
