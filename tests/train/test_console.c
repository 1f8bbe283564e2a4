/* test_console.c — what a run prints and leaves beside its checkpoints: one line a step and one an
 * evaluation, nothing about what is not measured, the same in run.log and metrics.jsonl; and how
 * long it says it will take. */
#include "process.h"
#include "train_test.h"

#include <train/console.h>
#include <train/metrics.h>

#include <check.h>
#include <stdlib.h>
#include <time.h>

static const char tiny[] =
    "--config configs/base.yml base_emb_dim=32 base_num_decoder_layers=2 base_num_query_heads=2 "
    "base_num_kv_heads=2 head_dim=16 base_mlp_dim=64 max_target_length=32 per_device_batch_size=4 "
    "eval_interval=2 eval_steps=3 run_name=x";

static const char *run_tiny(MxArena *arena, const char *dir, const char *more) {
    const char *words = mx_arena_printf(arena, "%s base_output_directory=%s %s", tiny, dir, more);
    int code = process_run(arena, dir, words);
    const char *log = process_file(arena, dir, "log", NULL);
    ck_assert_msg(code == 0, "exit %d: %s", code, log);
    return log;
}

/* How many lines begin with a text; the first of them in *line, if that is wanted. */
static int count_lines(MxArena *arena, const char *text, const char *start, const char **line) {
    int n = 0;
    for (const char *at = text; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (!mx_text_has_prefix(at, start)) {
            if (!*at) break;
            continue;
        }
        if (!n++ && line) *line = mx_arena_strndup(arena, at, strcspn(at, "\n"));
    }
    return n;
}

/* The text has the parts in that order. */
static void ck_in_order(const char *text, const char *const *parts, int n) {
    const char *at = text;
    for (int i = 0; i < n; i++) {
        const char *found = strstr(at, parts[i]);
        ck_assert_msg(found != NULL, "no \"%s\" in its place: %s", parts[i], text);
        at = found + strlen(parts[i]);
    }
}

/* Whatever log_period is: a line that comes two seconds after the last flush is in the file. */
START_TEST(slow_runs_show_their_lines) {
    const struct timespec often = {.tv_nsec = 50000000};
    MxArena arena = {0};
    MxError err = {0};
    MetricsFile *file;
    Metrics m = metrics_new(&arena, 1);
    MxConfig config = {.run_name = "x", .log_period = 1000};
    const char *path = mx_path_join(&arena, process_dir(&arena, "slow"), "metrics.jsonl");
    MetricsSetup setup = {.config = &config, .own = path, .columns = &m};
    metrics_add(&m, "learning/loss", 1);
    ck_assert_msg(metrics_file_open(&arena, &setup, &file, &err), "%s", err.text.data);
    double opened_s = mx_clock_s();
    ck_assert(metrics_file_write(file, 0, &m, &err));
    while (mx_clock_s() - opened_s < 2) nanosleep(&often, NULL);
    ck_assert(metrics_file_write(file, 1, &m, &err));
    MxBytes bytes;
    ck_assert(mx_file_read(&arena, path, 1 << 16, &bytes, &err));
    ck_assert_int_eq(count_lines(&arena, (const char *)bytes.data, "{", NULL), 2);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(a_step_and_an_evaluation_are_a_line_each) {
    static const char *const step[] = {"completed step: 0, seconds: ",
                                       ", TFLOP/s/device: ",
                                       ", Tokens/s/device: ",
                                       ", total_weights: 128, loss: ",
                                       ", lm_loss: ",
                                       ", perplexity: ",
                                       ", learning_rate: 0.00100",
                                       ", raw_grad_norm: ",
                                       ", diag: raw_grad_norm=",
                                       " grad_norm=1.000000000e+00",
                                       " param_norm=",
                                       " max_abs_grad=",
                                       " moe_bias_checksum=0.0",
                                       " moe_bias_update_nonzero=0.0",
                                       " moe_overflow=0.000000000e+00"};
    static const char *const eval[] = {"Completed eval after train step 0, loss=", ", perplexity=",
                                       ", total_weights=384, avg_z_loss=0.000, seconds="};
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "lines"), *line = "";
    const char *log = run_tiny(&arena, dir, "steps=4 log_step_diagnostics=true");
    ck_assert_int_eq(count_lines(&arena, log, "completed step: ", &line), 4);
    ck_in_order(line, step, MX_COUNT(step));
    ck_assert_int_eq(count_lines(&arena, log, "Completed eval", &line), 3); /* 0, 2, the last */
    ck_in_order(line, eval, MX_COUNT(eval));
    ck_assert_msg(!strstr(log, "Starting eval"), "%s", log);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(what_is_not_measured_is_not_told) {
    static const char *const absent[] = {"lm_loss", "perplexity", "z_loss"};
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "pairs"), *line = "";
    const char *log =
        run_tiny(&arena, dir, "steps=2 use_dpo=true dataset_type=synthetic packing=false");
    ck_assert_int_eq(count_lines(&arena, log, "completed step: ", &line), 2);
    ck_assert_msg(strstr(line, ", dpo_loss: 0.693, reward_accuracy: ") != NULL, "%s", line);
    ck_assert_msg(strstr(line, ", margin: ") != NULL, "%s", line);
    const char *metrics = process_file(&arena, dir, "x/metrics.jsonl", NULL);
    ck_assert(strstr(metrics, "\"learning/dpo_loss\": ") != NULL);
    for (int i = 0; i < MX_COUNT(absent); i++) {
        ck_assert_msg(!strstr(log, absent[i]), "%s: %s", absent[i], log);
        ck_assert_msg(!strstr(metrics, absent[i]), "%s: %s", absent[i], metrics);
    }
    ck_assert_msg(strstr(log, "frozen reference weight flops") != NULL, "%s", log);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(small_models_have_figures) {
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "figures"), *line = "";
    const char *log = run_tiny(&arena, dir, "steps=1");
    ck_assert_int_eq(count_lines(&arena, log, "number parameters: ", &line), 1);
    ck_assert_str_eq(line, "number parameters: 3.72e-05 billion (37152)");
    ck_assert(strtod(strstr(log, "Total TFLOPs: ") + strlen("Total TFLOPs: "), NULL) > 0);
    mx_arena_release(&arena);
}
END_TEST

/* Only what somebody changed is on the terminal, however it was said. */
START_TEST(what_differs_from_the_defaults_is_told) {
    static const char *const want[] = {"Config param base_emb_dim: 32\n",
                                       "Config param eval_interval: 2\n",
                                       "Config param learning_rate: 0.002\n",
                                       "Config param run_name: x\n",
                                       " keys differ from the defaults; all are in ",
                                       "/x/config.yml\n"};
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "differs"), *again = process_dir(&arena, "differs.again");
    const char *log =
        run_tiny(&arena, dir, "steps=1 learning_rate=0.002 adam_b1=0.90 packing=true");
    ck_in_order(log, want, MX_COUNT(want));
    int n = count_lines(&arena, log, "Config param ", NULL);
    ck_assert_int_eq(n, 14); /* packing and adam_b1 are as they were */
    ck_assert(process_file(&arena, dir, "x/config.yml", NULL));
    const char *words =
        mx_arena_printf(&arena, "%s/x/config.yml base_output_directory=%s", dir, again);
    ck_assert_int_eq(process_run(&arena, again, words), 0);
    log = process_file(&arena, again, "log", NULL);
    ck_in_order(log, want, MX_COUNT(want));
    log = run_tiny(&arena, process_dir(&arena, "differs.not"), "steps=1 log_config=false");
    ck_assert_int_eq(count_lines(&arena, log, "Config param ", NULL), 0);
    mx_arena_release(&arena);
}
END_TEST

/* Every line but the bar, warnings and errors too, of every start. */
START_TEST(the_folder_keeps_the_log) {
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "kept");
    run_tiny(&arena, dir, "steps=2 log_period=1:40");
    const char *log = run_tiny(&arena, dir, "steps=3 log_period=1:40");
    const char *kept = process_file(&arena, dir, "x/run.log", NULL);
    MxText plain;
    mx_text_init(&plain, &arena);
    for (const char *at = kept; *at; at = strchr(at, '\n') + 1) {
        enum { TIME = sizeof "2026-01-31T23:59:59.999Z" }; /* and a blank */
        int n = (int)strcspn(at, "\n");
        bool has_time = n > TIME && at[TIME - 2] == 'Z';
        mx_text_add(&plain, "%.*s\n", has_time ? n - TIME : n, has_time ? at + TIME : at);
    }
    ck_assert_msg(strstr(log, "warning: ") != NULL, "%s", log);
    ck_assert_str_eq(plain.data, log);
    mx_arena_release(&arena);
}
END_TEST

/* The run's own metrics and those asked for are the same; a run that begins anew keeps what is
 * there. */
START_TEST(the_folder_keeps_the_metrics) {
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "metrics");
    const char *more = mx_arena_printf(&arena, "metrics_file=%s/m.jsonl", dir);
    run_tiny(&arena, dir, mx_arena_printf(&arena, "steps=2 %s", more));
    run_tiny(&arena, dir, mx_arena_printf(&arena, "steps=3 %s", more));
    const char *own = process_file(&arena, dir, "x/metrics.jsonl", NULL);
    ck_assert_int_eq(count_lines(&arena, own, "{\"learning/loss\": ", NULL), 3);
    ck_assert_str_eq(process_file(&arena, dir, "m.jsonl", NULL), own);
    more = mx_arena_printf(&arena, "metrics_file=%s/x/../x/metrics.jsonl", dir);
    run_tiny(&arena, dir, mx_arena_printf(&arena, "steps=1 enable_checkpointing=false %s", more));
    ck_assert_str_eq(process_file(&arena, dir, "x/metrics.jsonl.1", NULL), own);
    own = process_file(&arena, dir, "x/metrics.jsonl", NULL);
    ck_assert_int_eq(count_lines(&arena, own, "{\"learning/loss\": ", NULL), 1);
    mx_arena_release(&arena);
}
END_TEST

/* ---- how long it will take */

START_TEST(the_pace_is_that_of_the_last_steps) {
    MxArena arena = {0};
    MxConfig config = {.decoder_block = "llama2", .steps = 100, .eval_interval = 10};
    Console console;
    console_open(&arena, &config, config.steps, &console);
    ck_assert(console_seconds_left(&console, -1) < 0);
    for (int i = 0; i < 40; i++) console_took_step(&console, 0.1);
    ck_assert_double_eq_tol(console_seconds_left(&console, 39), 6, 1e-9);
    for (int i = 0; i < CONSOLE_RECENT; i++) console_took_step(&console, 1);
    ck_assert_double_eq_tol(console_seconds_left(&console, 71), 28, 1e-9);
    console_took_eval(&console, 5); /* after steps 80, 90 and 99, the last one */
    ck_assert_double_eq_tol(console_seconds_left(&console, 71), 28 + 3 * 5, 1e-9);
    ck_assert_double_eq_tol(console_seconds_left(&console, 99), 0, 1e-9);
    mx_arena_release(&arena);
}
END_TEST

static const struct {
    int64_t interval, start, steps;
} plans[] = {{10, 0, 100}, {7, 3, 50}, {1, 0, 9}, {-1, 0, 9}, {5, 40, 30}, {5, 29, 30}};

START_TEST(evaluations_are_counted) {
    MxArena arena = {0};
    MxConfig config = {.decoder_block = "llama2",
                       .steps = plans[_i].steps,
                       .eval_interval = plans[_i].interval,
                       .eval_start_step = plans[_i].start};
    Console console;
    console_open(&arena, &config, config.steps, &console);
    console_took_step(&console, 0);
    console_took_eval(&console, 1);
    for (int64_t step = 0; step < config.steps; step++) {
        int want = 0;
        for (int64_t s = step + 1; s < config.steps; s++) want += console_eval_is_due(&console, s);
        ck_assert_msg(console_seconds_left(&console, step) == want, "step %lld: %g, not %d",
                      (long long)step, console_seconds_left(&console, step), want);
    }
    mx_arena_release(&arena);
}
END_TEST

Suite *console_suite(void) {
    enum { SECONDS = 120 };
    Suite *suite = suite_create("console");
    TCase *tcase = tcase_create("console");
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_test(tcase, slow_runs_show_their_lines);
    tcase_add_test(tcase, a_step_and_an_evaluation_are_a_line_each);
    tcase_add_test(tcase, what_is_not_measured_is_not_told);
    tcase_add_test(tcase, small_models_have_figures);
    tcase_add_test(tcase, what_differs_from_the_defaults_is_told);
    tcase_add_test(tcase, the_folder_keeps_the_log);
    tcase_add_test(tcase, the_folder_keeps_the_metrics);
    tcase_add_test(tcase, the_pace_is_that_of_the_last_steps);
    tcase_add_loop_test(tcase, evaluations_are_counted, 0, MX_COUNT(plans));
    suite_add_tcase(suite, tcase);
    return suite;
}
