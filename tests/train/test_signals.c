/* test_signals.c — each signal at each stage of a run: exit code, message, and what is on disk. */
#include "process.h"
#include "train_test.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
    int number, code;
    const char *name;
} stops[] = {{SIGINT, 130, "SIGINT"}, {SIGTERM, 143, "SIGTERM"}, {SIGHUP, 129, "SIGHUP"}};

/* Large enough for its state to take a while to make and to write. */
#define LARGE "base_emb_dim=512 base_mlp_dim=2048 base_num_decoder_layers=6 eval_interval=-1 "

/* When a signal is sent, and what is to come of it. */
static const struct {
    const char *name, *keys, *when; /* printed */
    const char *reason;             /* before and after the signal's name; NULL = not told */
    int saved;                      /* the newest checkpoint: this step or a later one, -1 = none */
    bool is_done;                   /* the run has made all its steps: exit 0 */
} stages[] = {
    {"start", LARGE "steps=100", "memory: ", "received %s before the first step, nothing to save",
     -1, false},
    {"step", "steps=100000 eval_interval=-1 checkpoint_period=100000", "completed step: 7,",
     "Training stopped: received %s", 7, false},
    {"evaluation", "steps=100000 eval_interval=4 eval_steps=100000 dataset_type=synthetic",
     "completed step: 0,", "Training stopped: received %s", 0, false}, /* it begins there */
    {"save", LARGE "steps=100 checkpoint_period=100", "asynchronous checkpoint save for step 0.",
     "Training stopped: received %s", 0, false},
    {"end", LARGE "steps=2 checkpoint_period=100", "asynchronous checkpoint save for step 1.", NULL,
     1, true},
};

/* The newest checkpoint of run "x", -1 = none; nothing half made lies beside it. */
static int newest(MxArena *arena, const char *dir) {
    MxError err = {0};
    char **names;
    int n, last = -1;
    const char *all = mx_path_join(arena, dir, "x/checkpoints");
    ck_assert_msg(mx_dir_list(arena, all, &names, &n, &err), "%s", err.text.data);
    for (int i = 0; i < n; i++) {
        ck_assert_msg(names[i][0] != '.', "%s is left", names[i]);
        int step = (int)strtol(names[i], NULL, 10);
        if (step > last) last = step;
    }
    return last;
}

START_TEST(a_signal_at_a_stage) {
    MxArena arena = {0};
    int stage = _i / MX_COUNT(stops), stop = _i % MX_COUNT(stops);
    const char *dir = process_dir(&arena, "signal");
    pid_t pid = process_start(&arena, dir, process_tiny(&arena, dir, stages[stage].keys));
    process_wait_for(&arena, dir, stages[stage].when);
    ck_assert(!kill(pid, stops[stop].number));
    int code = process_wait(pid), saved = newest(&arena, dir);
    const char *log = process_file(&arena, dir, "log", NULL), *reason = stages[stage].reason;
    const char *what = mx_arena_printf(&arena, "%s at %s", stops[stop].name, stages[stage].name);
    ck_assert_msg(code == (stages[stage].is_done ? 0 : stops[stop].code), "%s: exit %d: %s", what,
                  code, log);
    ck_assert_msg(stages[stage].saved < 0 ? saved < 0 : saved >= stages[stage].saved,
                  "%s: checkpoint %d: %s", what, saved, log);
    if (reason) { /* its "%s" is the signal's name */
        const char *at = strchr(reason, '%');
        ck_assert_msg(strstr(log, mx_arena_printf(&arena, "%.*s%s%s", (int)(at - reason), reason,
                                                  stops[stop].name, at + 2)) != NULL,
                      "%s: %s", what, log);
    }
    mx_arena_release(&arena);
}
END_TEST

/* A terminal that goes away says so twice: its driver does, and the shell. */
START_TEST(hangups_may_come_often) {
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "hangups");
    const char *keys = LARGE "steps=100000 checkpoint_period=100000";
    pid_t pid = process_start(&arena, dir, process_tiny(&arena, dir, keys));
    process_wait_for(&arena, dir, "completed step: 1,");
    for (int i = 0; i < 3; i++) ck_assert(!kill(pid, SIGHUP) && !usleep(1000));
    ck_assert(!kill(pid, SIGTERM));
    ck_assert_int_eq(process_wait(pid), 128 + SIGHUP);
    ck_assert_int_ge(newest(&arena, dir), 1);
    mx_arena_release(&arena);
}
END_TEST

/* Where this process is late, the run has left before the second one: it has some tries. */
START_TEST(the_second_one_leaves_at_once) {
    enum { TRIES = 10 };
    MxArena arena = {0};
    bool left_at_once = false;
    for (int i = 0; i < TRIES && !left_at_once; i++) {
        const char *dir = process_dir(&arena, "second");
        pid_t pid = process_start(&arena, dir, process_tiny(&arena, dir, LARGE "steps=2"));
        process_wait_for(&arena, dir, "asynchronous checkpoint save for step 0.");
        ck_assert(!kill(pid, SIGTERM) && !usleep(1000) && !kill(pid, SIGTERM));
        ck_assert_int_eq(process_wait(pid), 128 + SIGTERM);
        left_at_once = !strstr(process_file(&arena, dir, "log", NULL), "Training stopped");
    }
    ck_assert(left_at_once);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(under_nohup_hangups_mean_nothing) {
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "nohup");
    signal(SIGHUP, SIG_IGN);
    pid_t pid = process_start(&arena, dir, process_tiny(&arena, dir, "steps=300 eval_interval=-1"));
    process_wait_for(&arena, dir, "completed step: 3,");
    ck_assert(!kill(pid, SIGHUP));
    ck_assert_int_eq(process_wait(pid), 0);
    ck_assert_int_eq(newest(&arena, dir), 299);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(usr1_saves_and_goes_on) {
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "usr1");
    const char *keys = "steps=100000 eval_interval=-1 checkpoint_period=100000";
    pid_t pid = process_start(&arena, dir, process_tiny(&arena, dir, keys));
    process_wait_for(&arena, dir, "completed step: 3,");
    ck_assert(!kill(pid, SIGUSR1));
    process_wait_for(&arena, dir, "received SIGUSR1: saving after step");
    const char *log = process_file(&arena, dir, "log", NULL);
    long step = strtol(strstr(log, "saving after step ") + strlen("saving after step "), NULL, 10);
    process_wait_for(&arena, dir, mx_arena_printf(&arena, "Saved a checkpoint at step %ld.", step));
    ck_assert_int_eq(newest(&arena, dir), step);
    process_wait_for(&arena, dir, mx_arena_printf(&arena, "completed step: %ld,", step + 5));
    ck_assert(!kill(pid, SIGTERM));
    ck_assert_int_eq(process_wait(pid), MX_EXIT_SIGTERM);
    ck_assert_int_gt(newest(&arena, dir), step);
    mx_arena_release(&arena);
}
END_TEST

/* oneDNN's products for AVX2 have the stack pointer in the heap, where a signal would write. */
START_TEST(signals_hit_no_product) {
    enum { STEPS = 12, PAUSE_US = 1000 };
    MxArena arena = {0};
    const char *dir[2];
    MetricsLine *lines[2];
    int n[2], status;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) setenv("MX_CPU", "avx2", 1);
#endif
    for (int i = 0; i < 2; i++) {
        dir[i] = process_dir(&arena, i ? "storm" : "quiet");
        const char *keys =
            mx_arena_printf(&arena,
                            "base_emb_dim=256 base_mlp_dim=1024 matmul_provider=onednn "
                            "enable_checkpointing=false eval_interval=-1 steps=%d",
                            STEPS);
        pid_t pid = process_start(&arena, dir[i], process_tiny(&arena, dir[i], keys));
        process_wait_for(&arena, dir[i], "completed step: 0,");
        while (!waitpid(pid, &status, WNOHANG))
            ck_assert((!i || !kill(pid, SIGUSR1)) && !usleep(PAUSE_US));
        const char *log = process_file(&arena, dir[i], "log", NULL);
        ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "%d: %d: %s", i, status, log);
        ck_assert(!i == !strstr(log, "received SIGUSR1"));
        lines[i] = process_metrics(&arena, dir[i], "learning/loss", &n[i]);
    }
    ck_assert(n[0] == STEPS && n[1] == STEPS);
    for (int i = 0; i < STEPS; i++) {
        double loss[2];
        for (int k = 0; k < 2; k++)
            ck_assert(mx_json_number(mx_json_get(lines[k][i].json, "learning/loss"), &loss[k]));
        ck_assert_double_eq(loss[0], loss[1]);
    }
    mx_arena_release(&arena);
}
END_TEST

START_TEST(usr1_without_checkpoints_says_so) {
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "usr1");
    const char *keys = "steps=100000 eval_interval=-1 enable_checkpointing=false";
    pid_t pid = process_start(&arena, dir, process_tiny(&arena, dir, keys));
    process_wait_for(&arena, dir, "completed step: 3,");
    ck_assert(!kill(pid, SIGUSR1));
    process_wait_for(&arena, dir, "enable_checkpointing=false: nothing is saved");
    ck_assert(!kill(pid, SIGTERM));
    ck_assert_int_eq(process_wait(pid), MX_EXIT_SIGTERM);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(nobody_needs_to_read_the_log) {
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "pipe");
    const char *words = process_tiny(&arena, dir, "steps=30");
    int status = system(mx_arena_printf(&arena, "{ %s %s; echo $? >%s/code; } | head -n 3 >%s/head",
                                        process_binary(), words, dir, dir));
    ck_assert_int_eq(status, 0);
    ck_assert_str_eq(process_file(&arena, dir, "code", NULL), "0\n");
    ck_assert_int_eq(newest(&arena, dir), 29);
    mx_arena_release(&arena);
}
END_TEST

Suite *signals_suite(void) {
    enum { SECONDS = 120 };
    signal(SIGHUP, SIG_DFL); /* whatever started the tests may ignore it */
    Suite *suite = suite_create("signals");
    TCase *tcase = tcase_create("stages");
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_loop_test(tcase, a_signal_at_a_stage, 0, MX_COUNT(stages) * MX_COUNT(stops));
    tcase_set_long(tcase);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("trainer");
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_test(tcase, hangups_may_come_often);
    tcase_add_test(tcase, the_second_one_leaves_at_once);
    tcase_add_test(tcase, under_nohup_hangups_mean_nothing);
    tcase_add_test(tcase, usr1_saves_and_goes_on);
    tcase_add_test(tcase, signals_hit_no_product);
    tcase_add_test(tcase, usr1_without_checkpoints_says_so);
    tcase_add_test(tcase, nobody_needs_to_read_the_log);
    suite_add_tcase(suite, tcase);
    return suite;
}
