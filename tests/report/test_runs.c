/* test_runs.c — what the list of runs says of folders: of all ways to end, of files cut off or not
 * ours, in order and in size. */
#include "report_test.h"

#include <mx/report.h>
#include <mx/store.h>

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#define AT "2026-01-02T03:04:05.678Z "
#define STEP(n)                                                                                    \
    AT "completed step: " #n ", seconds: 0.1, total_weights: 8, loss: 2.500, lm_loss: 9\n"
#define ROW(n)  "{\"learning/loss\": 3.25, \"step\": " #n ".0, \"run_name\": \"x\"}\n"
#define EVAL(n) "{\"eval/avg_loss\": 1.75, \"step\": " #n ".0, \"run_name\": \"x\"}\n"

/* A run of ten steps. */
static const struct {
    const char *log, *metrics;
    MxRunState state;
    const char *how;
    int64_t step;
    double loss, eval_loss;
} cases[] = {
    {STEP(9) AT "results are in /x\n", ROW(8) ROW(9) EVAL(9), MX_RUN_FINISHED, "", 9, 3.25, 1.75},
    {STEP(9), ROW(9), MX_RUN_FINISHED, "", 9, 3.25, NAN}, /* enable_checkpointing=false */
    {STEP(4) AT "Training stopped: the data ended\n" AT "results are in /x\n", ROW(4),
     MX_RUN_FINISHED, "the data ended", 4, 3.25, NAN},
    {STEP(4) AT "Training stopped: received SIGTERM\n", ROW(4), MX_RUN_STOPPED, "received SIGTERM",
     4, 3.25, NAN},
    {STEP(4) AT "mxtrain: error: no room\n", ROW(4), MX_RUN_FAILED, "no room", 4, 3.25, NAN},
    {STEP(4), ROW(4), MX_RUN_BROKEN, "", 4, 3.25, NAN},
    /* the log is ahead of the metrics, or alone */
    {STEP(4), ROW(2) "{\"learning/lo", MX_RUN_BROKEN, "", 4, 2.5, NAN},
    {STEP(4), NULL, MX_RUN_BROKEN, "", 4, 2.5, NAN},
    {NULL, ROW(3) EVAL(3), MX_RUN_BROKEN, "", 3, 3.25, 1.75},
    /* what an earlier start said is over */
    {STEP(4) AT "Training stopped: received SIGINT\n" STEP(5), ROW(5), MX_RUN_BROKEN, "", 5, 3.25,
     NAN},
    {AT "mxtrain: error: no\n" STEP(9) AT "results are in /x\n", ROW(9), MX_RUN_FINISHED, "", 9,
     3.25, NAN},
    /* begun anew without a save */
    {STEP(7) STEP(0) STEP(1), ROW(0), MX_RUN_BROKEN, "", 1, 2.5, NAN},
    /* nothing, or not ours */
    {AT "memory: 1 GiB\n", NULL, MX_RUN_EMPTY, "", -1, NAN, NAN},
    {"", "", MX_RUN_EMPTY, "", -1, NAN, NAN},
    {"Z \nZ completed step: 99999999999999999999999\nZ Training stopped:\n",
     "]\n{\"step\": -1, \"learning/loss\": 1}\n{\"step\": 1e300, \"learning/loss\": null}\n[[[\n",
     MX_RUN_BROKEN, "", -1, NAN, NAN},
    {STEP(2), "{\"learning/loss\": null, \"step\": 2.0}\n", MX_RUN_BROKEN, "", 2, NAN, NAN},
};

static void ck_same(double a, double b) {
    ck_assert_msg(a == b || (isnan(a) && isnan(b)), "%g, not %g", a, b);
}

START_TEST(a_folder_says_what_became_of_a_run) {
    MxRunFacts run;
    put_run("x", 10, cases[_i].log, cases[_i].metrics);
    ck_assert_msg(mx_report_run(&arena, in("x"), &run, &err), "%s", err.text.data);
    ck_assert_str_eq(mx_run_state_name(run.state), mx_run_state_name(cases[_i].state));
    ck_assert_str_eq(run.how, cases[_i].how);
    ck_assert_int_eq(run.step, cases[_i].step);
    ck_assert_int_eq(run.steps, 10);
    ck_same(run.loss, cases[_i].loss);
    ck_same(run.eval_loss, cases[_i].eval_loss);
}
END_TEST

START_TEST(a_lock_says_that_it_runs) {
    MxRunFacts run;
    put_run("x", 10, STEP(9) AT "results are in /x\n", NULL);
    ck_assert(mx_store_lock(&arena, in("x"), &err));
    ck_assert(mx_report_run(&arena, in("x"), &run, &err));
    ck_assert_int_eq(run.state, MX_RUN_RUNNING);
    ck_assert_msg(strstr(run.how, mx_arena_printf(&arena, "process %ld ", (long)getpid())) ==
                      run.how,
                  "%s", run.how);
}
END_TEST

START_TEST(a_long_log_is_read_from_its_end) {
    MxText log;
    MxRunFacts run;
    mx_text_init(&log, &arena);
    for (int i = 0; i < 20000; i++) mx_text_add(&log, AT "completed step: %d, loss: 4.000\n", i);
    put_run("x", 30000, log.data, NULL);
    ck_assert(mx_report_run(&arena, in("x"), &run, &err));
    ck_assert_int_eq(run.step, 19999);
    ck_same(run.loss, 4);
}
END_TEST

static void set_time(const char *name, int64_t seconds) {
    const char *files[] = {"run.log", "config.yml", "checkpoints"};
    const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    for (int i = 0; i < MX_COUNT(files); i++)
        utimensat(AT_FDCWD, in(mx_arena_printf(&arena, "%s/%s", name, files[i])), times, 0);
}

/* Folders that are no runs are passed over, links are not followed. */
START_TEST(a_folder_of_runs_is_listed_the_last_first) {
    MxRunFacts *runs;
    MxText text;
    int n;
    put_run("old", 10, STEP(9), NULL);
    put_run("new", 10, STEP(3), NULL);
    put_run("a\033[2Jb", 10, STEP(3) AT "mxtrain: error: \033]0;x\a\n", NULL);
    put("new/checkpoints/2/state.h5", "1234");
    put("new/checkpoints/10/state.h5", "1234");
    put("notes/config.yml", "a: 1\n");
    put("file", "a run is a folder");
    ck_assert(!symlink("/usr", in("new/everything")));
    set_time("old", 1000000000);
    set_time("new", 1000000100);
    set_time("a\033[2Jb", 1000000050);
    ck_assert(mx_report_runs(&arena, in(""), &runs, &n, &err));
    ck_assert_int_eq(n, 3);
    ck_assert_str_eq(runs[0].name, "new");
    ck_assert_str_eq(runs[2].name, "old");
    ck_assert_int_eq(runs[0].n_checkpoints, 2);
    ck_assert_int_eq(runs[0].checkpoints[1], 10);
    ck_assert_int_lt(runs[0].bytes, 1 << 16);
    ck_assert_int_ge(runs[0].bytes, 2 * 4);
    mx_text_init(&text, &arena);
    mx_report_runs_print("x", runs, n, &text);
    ck_assert_msg(!strchr(text.data, '\033') && !strchr(text.data, '\a'), "%s", text.data);
    ck_assert_ptr_nonnull(strstr(text.data, "2001-09-09 01:48:20"));
    const char *json = mx_report_runs_json(&arena, "x", runs, n);
    MxJson *root = mx_json_parse(&arena, json, strlen(json), "list", &err);
    ck_assert_ptr_nonnull(root);
    ck_assert_uint_eq(mx_json_length(mx_json_get(root, "runs")), 3);
    ck_assert(mx_report_runs(&arena, in("old"), &runs, &n, &err) && n == 1);
}
END_TEST

START_TEST(what_is_no_folder_is_an_error) {
    MxRunFacts *runs;
    int n;
    ck_assert(!mx_report_runs(&arena, in("none"), &runs, &n, &err));
    ck_assert_ptr_nonnull(strstr(err.text.data, "there is no folder"));
    MxRunFacts run;
    put("empty/x", "");
    ck_assert(!mx_report_run(&arena, in("empty"), &run, &err));
    ck_assert(mx_report_runs(&arena, in("empty"), &runs, &n, &(MxError){0}) && n == 0);
}
END_TEST

Suite *runs_suite(void) {
    Suite *suite = suite_create("runs");
    TCase *tcase = add_case(suite, "runs");
    tcase_add_loop_test(tcase, a_folder_says_what_became_of_a_run, 0, MX_COUNT(cases));
    tcase_add_test(tcase, a_lock_says_that_it_runs);
    tcase_add_test(tcase, a_long_log_is_read_from_its_end);
    tcase_add_test(tcase, a_folder_of_runs_is_listed_the_last_first);
    tcase_add_test(tcase, what_is_no_folder_is_an_error);
    return suite;
}
